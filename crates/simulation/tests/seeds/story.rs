//! What happens to the cluster: people scale and delete, the cloud takes machines back, and between the operator and the world everything
//! goes wrong that can.

use crate::laws::{self, Allowed, name};
use kerf_cloud_sim::{Faults as CloudFaults, SimCloud, SimOptions, Span};
use kerf_control_plane::dice::Dice;
use kerf_simulation::{Faults, Rehearsal, Setup};
use serde_json::{Value, json};

/// How a seed ended.
pub(crate) struct Ended {
    pub(crate) breaches: Vec<String>,
    pub(crate) trace: Vec<String>,
}

/// Limits that are often reached.
const SMALL_CORES: u32 = 8;
const DEFAULT_CORES: u32 = 14;
/// How many things happen.
const N_SCENES: u64 = 16;
/// Within so long after the trouble everything is as it should be: a machine that never joins is given up after a quarter of an hour.
const REST_SECONDS: i64 = 2_400;
const LOOK_EVERY: i64 = 5;
/// What people want in the end.
const LEFT: [(&str, u64); 3] = [("a", 4), ("b", 3), ("c", 2)];
const KINDS: [&str; 5] = ["pods", "nodes", "nodeclaims", "nodepools", "replicasets"];

pub(crate) fn run(seed: u64, shares_tokens: bool) -> Ended {
    let (mut dice, mut visits) = (Dice::for_purpose(seed, "story"), Dice::for_purpose(seed, "visits"));
    let elects = dice.roll().is_multiple_of(2);
    let (mut scene, cloud) = stage(seed, elects, shares_tokens);
    let n_disrupted = 1 + usize::try_from(dice.roll() % 2).unwrap_or(0);
    let allowed = [
        Allowed { pool: "default", cores: DEFAULT_CORES, disrupted: n_disrupted },
        Allowed { pool: "small", cores: SMALL_CORES, disrupted: n_disrupted },
    ];
    people(&mut scene, &mut dice, &allowed);
    scene.expect_faults(Faults::bad_day());
    for _ in 0..N_SCENES {
        happen(&mut scene, &cloud, &mut dice, elects);
        let seconds = i64::try_from(10 + dice.roll() % 200).unwrap_or(0);
        let breaches = pass(&mut scene, &cloud, &allowed, seconds, |scene| visit(scene, &mut visits));
        if !breaches.is_empty() {
            return Ended { breaches, trace: scene.trace().to_vec() };
        }
    }
    scene.clear_faults();
    for (deployment, replicas) in LEFT {
        scale(&mut scene, deployment, replicas);
    }
    let mut rested = 0;
    let breaches = loop {
        let mut breaches = pass(&mut scene, &cloud, &allowed, 60, |_| {});
        forget_nodes(&mut scene, &cloud);
        rested += 60;
        if !breaches.is_empty() {
            break breaches;
        }
        breaches = laws::at_rest(&scene, &cloud, &LEFT);
        if breaches.is_empty() || rested >= REST_SECONDS {
            break breaches;
        }
    };
    Ended { breaches, trace: scene.trace().to_vec() }
}

/// Lets time pass, and looks at the laws. Somebody may do something after each look.
fn pass(
    scene: &mut Rehearsal,
    cloud: &SimCloud,
    allowed: &[Allowed],
    seconds: i64,
    mut meanwhile: impl FnMut(&mut Rehearsal),
) -> Vec<String> {
    let mut left = seconds;
    while left > 0 {
        scene.run_for(left.min(LOOK_EVERY));
        left -= LOOK_EVERY;
        let breaches = laws::always(scene, cloud, allowed);
        if !breaches.is_empty() {
            return breaches;
        }
        meanwhile(scene);
    }
    Vec::new()
}

/// Somebody puts a pod on a node that is about to go, at the worst moment: past the scheduler, by name.
fn visit(scene: &mut Rehearsal, dice: &mut Dice) {
    let is_about_to_go = |node: &&Value| {
        let taints = node["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
        node["metadata"]["deletionTimestamp"].is_null()
            && taints.iter().any(|taint| taint["key"] == "karpenter.sh/disrupted")
    };
    let nodes = scene.nodes();
    let Some(node) = nodes.iter().find(is_about_to_go) else { return };
    if dice.roll().is_multiple_of(2) {
        return;
    }
    scene.create_value(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "visitor-"},
        "spec": {"nodeName": name(node), "terminationGracePeriodSeconds": 5, "containers": [
            {"name": "main", "image": "public.ecr.aws/eks-distro/kubernetes/pause:3.7"}]},
    }));
}

fn stage(seed: u64, elects: bool, shares_tokens: bool) -> (Rehearsal, SimCloud) {
    let setup = Setup { seed, elects, keeps_trace: true, ..Setup::default() };
    let options = SimOptions { seed, faults: misfortunes(), shares_tokens, ..SimOptions::default() };
    let (mut scene, cloud) = Rehearsal::on_sim(setup, options);
    if elects {
        scene.add_process();
    }
    (scene, cloud)
}

fn misfortunes() -> CloudFaults {
    CloudFaults {
        throttled_share: 0.05,
        failed_launch_share: 0.05,
        launch_answer: Span { least_ms: 0, most_ms: 3_000 },
        never_joins_share: 0.01,
        sold_out_share: 0.1,
        spot_losses_per_hour: 0.2,
        spot_price_swing: 0.3,
        spot_price_step: std::time::Duration::from_secs(900),
        read_lag: Span { least_ms: 0, most_ms: 8_000 },
        ..CloudFaults::default()
    }
}

/// What people have created before trouble begins.
fn people(scene: &mut Rehearsal, dice: &mut Dice, allowed: &[Allowed]) {
    scene.create(
        "{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: default}, spec: {role: r, \
         amiSelectorTerms: [{alias: al2023@latest}], subnetSelectorTerms: [{tags: {a: b}}], \
         securityGroupSelectorTerms: [{tags: {a: b}}]}}",
    );
    let expire_after = if dice.roll().is_multiple_of(3) { "8m" } else { "Never" };
    for Allowed { pool, cores, disrupted } in allowed {
        scene.create_value(&json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": pool},
            "spec": {
                "limits": {"cpu": cores.to_string()},
                "template": {
                    "metadata": {"labels": {"tier": pool}},
                    "spec": {
                        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                        "requirements": [
                            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]},
                            {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m7i", "c7i", "m6i"]},
                            {"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["2", "4"]},
                        ],
                        "expireAfter": expire_after,
                    },
                },
                "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "15s",
                    "budgets": [{"nodes": disrupted.to_string()}]},
            },
        }));
    }
    for (name, tier, replicas) in
        [("a", "default", dice.roll() % 8), ("b", "default", 3), ("c", "small", dice.roll() % 6)]
    {
        scene.create_value(&deployment(name, tier, replicas));
    }
    scene.create_value(&json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "default"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "b"}}},
    }));
}

fn deployment(name: &str, tier: &str, replicas: u64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {
                "terminationGracePeriodSeconds": 5,
                "nodeSelector": {"tier": tier},
                "containers": [{"name": "main", "image": "public.ecr.aws/eks-distro/kubernetes/pause:3.7",
                    "resources": {"requests": {"cpu": "900m"}}}],
            }},
        },
    })
}

fn scale(scene: &mut Rehearsal, deployment: &str, replicas: u64) {
    let path = format!("/apis/apps/v1/namespaces/default/deployments/{deployment}");
    scene.patch(&path, &json!({"spec": {"replicas": replicas}}));
}

/// One thing happens.
fn happen(scene: &mut Rehearsal, cloud: &SimCloud, dice: &mut Dice, elects: bool) {
    let process = if elects { usize::try_from(dice.roll() % 2).unwrap_or(0) } else { 0 };
    let kind = KINDS[usize::try_from(dice.roll() % 5).unwrap_or(0)];
    let seconds = i64::try_from(5 + dice.roll() % 40).unwrap_or(0);
    match dice.roll() % 20 {
        0..=2 => scale(scene, "a", dice.roll() % 12),
        3 => scale(scene, "b", dice.roll() % 5),
        4 | 5 => scale(scene, "c", dice.roll() % 10),
        6 => delete(scene, dice, "/apis/karpenter.sh/v1/nodeclaims"),
        7 => delete(scene, dice, "/api/v1/nodes"),
        8 => {
            if let Some(line) = pick(&cloud.running(), dice) {
                cloud.interrupt(&line.provider_id);
            }
        }
        9 => scene.crash(process),
        10 => scene.put_to_sleep(process, seconds),
        11 => scene.cut_off(process, seconds),
        12 if elects => scene.steal_lease(),
        13 => scene.set_clock(process, if dice.roll().is_multiple_of(2) { 300 } else { -300 }),
        14 => scene.freeze(kind, seconds * 8),
        15 => scene.cut_watches(kind),
        16 => scene.compact(kind),
        17 => behind_its_back(scene, dice),
        18 => scene.repeat_watches(kind),
        _ => {
            let path = ["/eviction", "/nodes/", "/nodeclaims", ""][usize::try_from(dice.roll() % 4).unwrap_or(0)];
            scene.hang_webhook(path, seconds * 2);
        }
    }
}

/// Something goes while nobody hears of it, and what happened since is not told afterwards.
fn behind_its_back(scene: &mut Rehearsal, dice: &mut Dice) {
    let kind = ["pods", "pods", "nodes", "nodeclaims"][usize::try_from(dice.roll() % 4).unwrap_or(0)];
    match kind {
        "nodes" => delete(scene, dice, "/api/v1/nodes"),
        "nodeclaims" => delete(scene, dice, "/apis/karpenter.sh/v1/nodeclaims"),
        _ => {}
    }
    // Our finalizer keeps what nobody has seen going.
    scene.run_for(4);
    scene.freeze(kind, 120);
    scene.compact(kind);
    if kind == "pods" {
        scale(scene, "a", dice.roll() % 3);
        scale(scene, "c", dice.roll() % 3);
    }
}

/// As the cloud's own controller does it: a Node whose machine is gone goes, too.
fn forget_nodes(scene: &mut Rehearsal, cloud: &SimCloud) {
    let running = cloud.running();
    for node in scene.nodes() {
        let id = node["spec"]["providerID"].as_str().unwrap_or_default();
        if !running.iter().any(|line| *line.provider_id == *id) {
            scene.delete(&format!("/api/v1/nodes/{}", name(&node)));
        }
    }
}

fn delete(scene: &mut Rehearsal, dice: &mut Dice, collection: &str) {
    let names: Vec<String> = scene.list(collection).iter().map(|object| name(object).to_owned()).collect();
    if let Some(name) = pick(&names, dice) {
        let path = format!("{collection}/{name}");
        scene.delete(&path);
    }
}

fn pick<'a, T>(all: &'a [T], dice: &mut Dice) -> Option<&'a T> {
    let n = u64::try_from(all.len()).unwrap_or(0);
    (n > 0).then(|| &all[usize::try_from(dice.roll() % n).unwrap_or(0)])
}
