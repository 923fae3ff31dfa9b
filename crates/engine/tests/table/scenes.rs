//! The scenes: small sisters of the bench's, and one for every rule that the searches have an opinion on.

use crate::market::{Dice, generic, grown, made_up, with_cards};

const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const CAPACITY: &str = "karpenter.sh/capacity-type";
const ON_DEMAND: &str = "pool default need karpenter.sh/capacity-type In on-demand\n";
const SIZES: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

pub(crate) fn all() -> Vec<(&'static str, String)> {
    let mut all = of_the_bench();
    all.extend(about_neighbours());
    all.extend(about_pools());
    all.extend(about_what_is_there());
    for (name, seed) in [("drawn-1", 1), ("drawn-2", 2), ("drawn-3", 3), ("drawn-4", 4), ("drawn-5", 5), ("drawn-6", 6)]
    {
        all.push((name, drawn(seed, 40)));
    }
    all
}

fn of_the_bench() -> Vec<(&'static str, String)> {
    let mixed = "pod small 900m 3100Mi x 300\npod large 3500m 28Gi x 300\n";
    let everything = generic(&[1, 2, 4, 8, 16, 32, 48, 64, 96, 128], true);
    let below_32 = generic(&[1, 2, 4, 8, 16], true);
    let spread = format!("pod small 900m 3100Mi x 200 spread {HOST}\npod large 3500m 28Gi x 200 spread {HOST}\n");
    let preferring = format!("pod web 500m 512Mi x 120 prefer {ZONE}=a prefer {ZONE}=b\n{}{ON_DEMAND}", made_up(40));
    vec![
        ("diverse-100", diverse(100)),
        ("diverse-400", diverse(400)),
        ("preferences-respected", preferring.clone()),
        ("preferences-ignored", format!("with preferences ignored\n{preferring}")),
        ("mixed", format!("{everything}{ON_DEMAND}{mixed}")),
        ("mixed-kube-scheduler", format!("with kube-scheduler\n{everything}{ON_DEMAND}{mixed}")),
        ("hostname-spread", format!("{below_32}{ON_DEMAND}{spread}")),
        ("backlog", backlog()),
        ("large", drawn(9, 150)),
    ]
}

/// A fifth each: plain, spread over zones, spread over hosts, beside each other in a zone, apart on hosts.
fn diverse(n_pods: u64) -> String {
    let mut dice = Dice::new(n_pods);
    let mut out = made_up(60) + "pool default\n";
    for n in 0..n_pods {
        let cpu = dice.pick(&["100m", "250m", "500m", "1", "1500m"]);
        let memory = dice.pick(&["100Mi", "256Mi", "512Mi", "1Gi", "2Gi", "4Gi"]);
        let app = dice.pick(&["a", "b", "c", "d", "e", "f", "g"]);
        let wish = match n % 5 {
            0 => String::new(),
            1 => format!("spread {ZONE}"),
            2 => format!("spread {HOST}"),
            3 => format!("beside {ZONE} {app}"),
            _ => format!("apart {HOST}"),
        };
        // Those who stand beside or apart are a kind of their own each.
        out += &format!("pod p{n} {cpu} {memory} app {}{app} {wish}\n", ["x", "z", "h", "", "n"][(n % 5) as usize]);
    }
    out
}

/// Many ask for a machine that one pool cannot get, and the light ones wait behind them.
fn backlog() -> String {
    let mut out = format!("{}{}", with_cards(), grown(31, &[2, 4, 8, 16]));
    out += "pool ml taint cards=true:NoSchedule need family In g label team=ml\n";
    out += &format!("pool stuck taint cards=true:NoSchedule need family In g need {ZONE} In c label team=stuck\n");
    for team in 0..4 {
        out += &format!("pool team-{team} need family In c5,m6,r7 limit cpu=40 label team=t{team}\n");
        out += &format!("pod light-{team} 2 8Gi x 12 select team=t{team}\n");
    }
    for n in 0..20 {
        out += &format!("node n{n} 8cpu 32Gi zone a label team=t{}\n", n % 4);
    }
    out + "pod train 6 24Gi gpu 1 x 60 tolerate cards select team=ml\npod idle 6 24Gi gpu 1 x 20 tolerate cards select team=stuck\n"
}

fn about_neighbours() -> Vec<(&'static str, String)> {
    let machines = generic(&SIZES, false) + "pool default\n";
    let fillers = "pod web 500m 1Gi x 150\npod batch 1800m 2Gi x 40\npod cache 300m 3Gi x 60\n";
    let ports = "pod edge 400m 1Gi x 12 port 80\npod edge-tls 200m 2Gi x 7 port 443\n";
    vec![
        ("apart-and-fillers", format!("{machines}pod lonely 1 2Gi x 20 apart {HOST}\n{fillers}")),
        ("apart-and-few-fillers", format!("{machines}pod lonely 1 2Gi x 40 apart {HOST}\npod web 500m 1Gi x 30\n")),
        (
            "two-kinds-apart",
            format!("{machines}pod one 1 2Gi x 15 apart {HOST}\npod two 3 5Gi x 25 apart {HOST}\n{fillers}"),
        ),
        (
            "one-kind-in-two-sizes-apart",
            format!("{machines}pod one 1 2Gi x 12 app a apart {HOST}\npod two 3 5Gi x 9 app a apart {HOST}\n{fillers}"),
        ),
        ("ports", format!("{machines}{ports}{fillers}")),
        ("hosts-spread-and-fillers", format!("{machines}pod even 1200m 2Gi x 30 spread {HOST}\n{fillers}")),
        ("zones-spread", format!("{machines}pod even 900m 3Gi x 41 spread {ZONE}\n{fillers}")),
        ("zones-apart", format!("{machines}pod quorum 2 4Gi x 6 apart {ZONE}\n{fillers}")),
        (
            "zones-beside-and-spread",
            format!(
                "{machines}pod a 900m 2Gi x 20 beside {ZONE} a\npod b 700m 1Gi x 33 spread {ZONE} beside {ZONE} a\n"
            ),
        ),
        ("hosts-beside", format!("{machines}pod pair 600m 1Gi x 18 beside {HOST} pair\n{fillers}")),
    ]
}

fn about_pools() -> Vec<(&'static str, String)> {
    let machines = grown(7, &SIZES);
    let pods = "pod web 700m 1500Mi x 90\npod cache 500m 6Gi x 40\npod crunch 3 4Gi x 25\n";
    let few = generic(&[1, 2, 4], true);
    let zoned = format!(
        "pod in-a 900m 2Gi x 20 select {ZONE}=a\npod in-b 900m 3Gi x 20 select {ZONE}=b\npod any 600m 2Gi x 30\n\
         pod steady 800m 2Gi x 20 select {CAPACITY}=on-demand\n"
    );
    vec![
        ("spot-among-many", format!("{machines}pool default\n{pods}")),
        ("spot-among-few", format!("{few}pool default need {CAPACITY} In spot\n{pods}")),
        ("selectors", format!("{machines}pool default\n{zoned}")),
        (
            "weights-and-limits",
            format!(
                "{machines}pool first weight 10 limit cpu=48\npool second weight 5 limit nodes=3\npool last\n{pods}"
            ),
        ),
        (
            "a-heavy-pool-of-small-machines",
            format!(
                "{machines}pool small weight 10 need family In c5 need {CAPACITY} In on-demand limit cpu=30\npool rest\n{pods}"
            ),
        ),
        ("tight-limits", format!("{machines}pool default limit cpu=60 limit memory=150Gi\n{pods}")),
        ("min-values", format!("{machines}pool default min node.kubernetes.io/instance-type 20 min family 4\n{pods}")),
        (
            "tainted-and-open",
            format!(
                "{}{machines}pool gpu taint cards=true:NoSchedule need family In g\npool open need family NotIn g\n{pods}\
                 pod train 3 12Gi gpu 1 x 14 tolerate cards\npod tolerant 500m 1Gi x 40 tolerate cards\n",
                with_cards()
            ),
        ),
    ]
}

fn about_what_is_there() -> Vec<(&'static str, String)> {
    let machines = generic(&SIZES, true) + "pool default\n";
    let nodes: String = (0..25)
        .map(|n| {
            let coming = if n % 3 == 0 { "coming" } else { "" };
            let zone = ["a", "b", "c"][n % 3];
            format!("node n{n:02} {}cpu {}Gi zone {zone} runs app=web {} {coming}\n", 2 + n % 4, 4 + 3 * (n % 5), n % 2)
        })
        .collect();
    let pods = format!("pod web 600m 1Gi x 60 spread {ZONE}\npod cache 400m 3Gi x 50\npod big 5 9Gi x 8\n");
    vec![
        ("half-full-cluster", format!("{machines}{nodes}{pods}")),
        ("daemons", format!("{machines}daemon agent 200m 256Mi\ndaemon logs 150m 400Mi\n{pods}")),
    ]
}

/// Anything with anything.
fn drawn(seed: u64, n_shapes: u64) -> String {
    let mut dice = Dice::new(seed);
    let mut out = grown(seed, &[1, 2, 4, 8, 16, 32]);
    out += "pool open\n";
    out += &format!("pool steady weight {} need {CAPACITY} In on-demand limit cpu=120\n", 5 * (seed % 2));
    out += "pool apart taint team=red:NoSchedule label team=red need family In c5,c6,m7\n";
    for n in 0..n_shapes {
        let cpu = dice.pick(&["100m", "250m", "600m", "1", "1700m", "3", "6500m"]);
        let memory = dice.pick(&["128Mi", "500Mi", "1Gi", "3Gi", "7Gi", "20Gi"]);
        let many = 1 + dice.below(12) * dice.below(3);
        let wish = match dice.below(12) {
            0 => format!("apart {HOST}"),
            1 => format!("spread {HOST}"),
            2 => format!("spread {ZONE}"),
            3 => format!("select {ZONE}={}", dice.pick(&["a", "b", "c"])),
            4 => format!("select {CAPACITY}={}", dice.pick(&["spot", "on-demand"])),
            5 => "tolerate team select team=red".to_owned(),
            6 => format!("port {}", dice.pick(&["80", "443"])),
            7 => format!("prefer {ZONE}={}", dice.pick(&["a", "b"])),
            _ => String::new(),
        };
        out += &format!("pod p{n} {cpu} {memory} x {many} {wish}\n");
    }
    out
}
