//! D1 to D4: the Terraform module, two hands-on guides, and the chart with its fixed number of nodes.

use crate::cluster::{
    self, AMD64, BOTH, CATEGORIES, CLASS, Launch, ON_DEMAND, Plan, TYPE, app_of, deployment, kwok_type, list, node,
    plan, plan_with_types, pod, pool, pool_with_labels, running, within,
};
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn d1_26_what_is_paid_for_ahead_is_pinned_by_type_and_on_demand() {
    let paid = within(TYPE, "m5.2xlarge, r5.xlarge");
    let pods = deployment("inflate", 20, "{cpu: 1}", "");
    let plan = plan(&[CLASS, &pool("reserved", &[ON_DEMAND, &paid], "", ""), &pods]);
    assert_eq!(plan.n_pending(), 0);
    for launch in plan.launches() {
        assert!(launch.types().iter().all(|name| ["m5.2xlarge", "r5.xlarge"].contains(name)), "{:?}", launch.types());
        assert!(launch.options().iter().all(|option| option["capacityType"] == "on-demand"));
        assert_eq!(launch.values("karpenter.sh/capacity-type"), BTreeSet::from(["on-demand"]));
    }
    assert_eq!(plan.json["cost"]["hasEstimates"], false, "no spot price is in it");
    let free = cluster::plan(&[CLASS, &pool("free", &[BOTH, CATEGORIES], "", ""), &pods]);
    assert!(free.added() < plan.added(), "the pins cost something, so it was they that decided");
    // The document's key exists in no generation; who copies it is told the right one.
    let wrong = "{key: karpenter.k8s.aws/capacity-type, operator: In, values: [on-demand]}";
    let plan = cluster::plan(&[CLASS, &pool("reserved", &[wrong, &paid], "", ""), &pods]);
    assert_eq!((plan.n_pending(), plan.count("nodePoolsNotReady")), (20, 1));
    let (cause, message) = plan.refusal("default/inflate-1")["reserved"];
    assert_eq!(cause, "PoolNotReady");
    assert!(message.contains("(typo of \"karpenter.sh/capacity-type\"?)"), "{message}");
}

#[test]
fn d1_28_a_taint_may_have_a_key_that_a_label_may_not() {
    let tainted = pool(
        "spot",
        &[AMD64, CATEGORIES, "{key: karpenter.sh/capacity-type, operator: In, values: [spot]}"],
        "taints: [{key: karpenter.k8s.aws/capacity-type, value: spot, effect: NoSchedule}]",
        "",
    );
    let tolerating =
        "tolerations: [{key: karpenter.k8s.aws/capacity-type, operator: Equal, value: spot, effect: NoSchedule}]";
    let plan = plan(&[
        CLASS,
        &tainted,
        &deployment("batch", 4, "{cpu: 1}", tolerating),
        &deployment("web", 2, "{cpu: 1}", ""),
        &deployment("odd", 1, "{cpu: 1}", &tolerating.replace("value: spot", "value: on-demand")),
    ]);
    assert_eq!((plan.notes().as_str(), plan.count("nodePoolsNotReady")), ("", 0), "the pool is accepted as it is");
    assert_eq!(plan.pods_by_pool("batch"), BTreeMap::from([("spot", 4)]));
    assert_eq!(plan.n_pending(), 3);
    for refused in ["default/web-2", "default/odd-1"] {
        let (cause, message) = plan.refusal(refused)["spot"];
        assert_eq!(cause, "TaintNotTolerated");
        assert!(message.contains("karpenter.k8s.aws/capacity-type=spot:NoSchedule"), "{message}");
    }
    // Without the taint the toleration means nothing, and everybody may come.
    let plain = pool("spot", &[AMD64, CATEGORIES], "", "");
    let plan = cluster::plan(&[
        CLASS,
        &plain,
        &deployment("batch", 4, "{cpu: 1}", tolerating),
        &deployment("web", 2, "{cpu: 1}", ""),
    ]);
    assert_eq!(
        (plan.pods_by_pool("batch"), plan.pods_by_pool("web")),
        (BTreeMap::from([("spot", 4)]), BTreeMap::from([("spot", 2)]))
    );
}

#[test]
fn d2_1_one_claim_has_hundreds_of_types_to_choose_from() {
    let plan = plan(&[CLASS, &pool("default", &[BOTH], "", ""), &deployment("inflate", 30, "{cpu: 1}", "")]);
    assert_eq!(plan.n_pending(), 0);
    let catalogue = plan.json["catalogues"][0]["instanceTypes"].as_u64().unwrap_or(0);
    assert!(catalogue >= 700, "{catalogue} types");
    let mut claims = BTreeSet::new();
    for launch in plan.launches() {
        assert!(launch.types().len() >= 100, "{} types", launch.types().len());
        let families: BTreeSet<&str> = launch.types().iter().filter_map(|name| name.split('.').next()).collect();
        assert!(families.len() >= 30, "of {} families", families.len());
        let prices: Vec<f64> = launch.options().iter().filter_map(|option| option["dollarsPerHour"].as_f64()).collect();
        assert!(prices.is_sorted(), "the cheapest first");
        assert_eq!(launch.values("karpenter.sh/capacity-type"), BTreeSet::from(["on-demand", "spot"]));
        assert!(claims.insert(launch.0["claim"].as_str().unwrap_or_default()), "each machine has a claim of its own");
    }
    // A choice that wide is worth something: one family alone would be dearer.
    for family in ["m5", "c6i", "m7g"] {
        let family = within("karpenter.k8s.aws/instance-family", family);
        let narrow = cluster::plan(&[
            CLASS,
            &pool("default", &[BOTH, &family], "", ""),
            &deployment("inflate", 30, "{cpu: 1}", ""),
        ]);
        assert!(narrow.added() > plan.added(), "{family}: {} against {}", narrow.added(), plan.added());
    }
}

#[test]
fn d3_13_taints_keep_off_who_does_not_tolerate_exactly_them() {
    let lab = pool("lab", &[AMD64], "taints: [{key: dedicated, value: lab, effect: NoSchedule}]", "");
    let toleration = |words: &str| format!("tolerations: [{{{words}}}]");
    let cases = [
        ("equal", "key: dedicated, operator: Equal, value: lab, effect: NoSchedule", true),
        ("equal-by-default", "key: dedicated, value: lab, effect: NoSchedule", true),
        ("exists", "key: dedicated, operator: Exists", true),
        ("everything", "operator: Exists", true),
        ("other-value", "key: dedicated, operator: Equal, value: shop, effect: NoSchedule", false),
        ("other-key", "key: reserved, operator: Exists", false),
        ("other-effect", "key: dedicated, operator: Equal, value: lab, effect: NoExecute", false),
    ];
    let pods: Vec<String> = cases.iter().map(|(name, words, _)| pod(name, "{cpu: 1}", &toleration(words))).collect();
    let plan = plan(&[CLASS, &lab, &pods.join("---"), &pod("none", "{cpu: 1}", "")]);
    let placed: BTreeSet<&str> = plan.launches().iter().flat_map(|launch| launch.pods()).collect();
    for (name, _, tolerates) in cases.into_iter().chain([("none", "", false)]) {
        let id = format!("default/{name}");
        assert_eq!(placed.contains(id.as_str()), tolerates, "{name}");
        let refusal = plan.refusal(&id);
        let cause = refusal.get("lab").map(|(cause, _)| *cause);
        assert_eq!(cause, (!tolerates).then_some("TaintNotTolerated"), "{name}");
        assert!(tolerates || refusal["lab"].1.contains("dedicated=lab:NoSchedule"));
    }
    assert_eq!(plan.would_help("default/none"), "tolerate dedicated=lab:NoSchedule to use nodepool lab");
}

/// GEN any; the pool is the Provisioner of D3.7 in its v1 form.
#[test]
fn d3_17_both_pods_run_on_whatever_is_cheaper() {
    let lab = |capacity_type: &str, types: &str| {
        pool_with_labels(
            "lab",
            "{deployment: lab}",
            &[&within("karpenter.sh/capacity-type", capacity_type), &within(TYPE, types)],
            "taints: [{key: dedicated, value: lab, effect: NoSchedule}]",
            "",
        )
    };
    let class = CLASS.replace("al2023", "bottlerocket");
    let pods = deployment(
        "inflate",
        2,
        "{cpu: 1}",
        "tolerations: [{key: dedicated, operator: Equal, value: lab, effect: NoSchedule}], affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: deployment, operator: In, values: [lab]}]}]}}}",
    );
    for capacity_type in ["spot", "on-demand"] {
        let cost = |types: &str| {
            let plan = plan(&[&class, &lab(capacity_type, types), &pods]);
            assert_eq!((plan.count("podsOnNewNodes"), plan.n_pending()), (2, 0), "both pods run, with {types}");
            plan.added()
        };
        let (two_small, one_large) = (cost("t3a.large"), cost("t3.xlarge"));
        let chosen = plan(&[&class, &lab(capacity_type, "t3a.large, t3.large, t3.xlarge"), &pods]);
        assert_eq!((chosen.count("podsOnNewNodes"), chosen.n_pending()), (2, 0));
        assert_eq!(chosen.added(), two_small.min(one_large).min(cost("t3.large")), "{capacity_type}");
        let first = list(&chosen.json["search"]["candidates"])[0].clone();
        assert_eq!(
            first["dollarsPerHour"].as_f64(),
            Some(chosen.added()),
            "the report tells what it was compared with"
        );
        assert!(chosen.launches().iter().all(|launch| launch.first("capacityType") == capacity_type));
    }
    // By hand: a t3a.large costs $0.0752 and holds one such pod, a t3.xlarge costs $0.1664 and holds both.
    let chosen = plan(&[&class, &lab("on-demand", "t3a.large, t3.large, t3.xlarge"), &pods]);
    assert_eq!(chosen.bought(), BTreeMap::from([("t3a.large", (2, 2))]));
    assert_eq!(chosen.added(), 0.1504);
    assert!(chosen.launches().iter().all(|launch| launch.0["reason"] == "pods waiting: 1"));
}

#[test]
fn d3_37_one_pool_gives_every_kind_of_machine_in_every_zone_and_at_every_rate() {
    let zones = ["us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d", "us-east-1f"];
    let mut pods = Vec::new();
    for (n, zone) in zones.iter().enumerate() {
        for rate in ["spot", "on-demand"] {
            let wish =
                format!("nodeSelector: {{topology.kubernetes.io/zone: {zone}, karpenter.sh/capacity-type: {rate}}}");
            pods.push(deployment(&format!("{rate}-{n}"), 1, "{cpu: 1}", &wish));
        }
    }
    let special = [
        ("arm", "{cpu: 1}", "nodeSelector: {kubernetes.io/arch: arm64}"),
        ("gpu", "{cpu: 1, nvidia.com/gpu: 1}", ""),
        ("neuron", "{cpu: 1, aws.amazon.com/neuron: 1}", ""),
        ("giant", "{cpu: 4, memory: 3000Gi}", ""),
        (
            "nvme",
            "{cpu: 1}",
            "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: karpenter.k8s.aws/instance-local-nvme, operator: Gt, values: ['1000']}]}]}}}",
        ),
    ];
    pods.extend(special.iter().map(|(name, requests, wish)| deployment(name, 1, requests, wish)));
    let plan = plan(&[CLASS, &pool("default", &[BOTH], "", ""), &pods.join("---")]);
    assert_eq!((plan.count("nodePools"), plan.n_pending()), (1, 0), "{}", plan.json["pending"]);
    for (n, zone) in zones.iter().enumerate() {
        for rate in ["spot", "on-demand"] {
            let pod = format!("default/{rate}-{n}-1");
            let launch = launch_of(&plan.launches(), &pod);
            assert_eq!(launch, (true, (*zone).to_owned(), rate.to_owned()), "{pod}");
        }
    }
    let first_type = |app: &str| {
        let pod = format!("default/{app}-1");
        let launches = plan.launches();
        let launch = launches.iter().find(|launch| launch.pods().contains(&pod.as_str()));
        launch.map(|launch| launch.first_type().to_owned()).unwrap_or_default()
    };
    let family = |app: &str| first_type(app).split('.').next().unwrap_or_default().to_owned();
    assert!(family("gpu").starts_with('g') || family("gpu").starts_with('p'), "{}", first_type("gpu"));
    assert!(family("neuron").starts_with("inf") || family("neuron").starts_with("trn"), "{}", first_type("neuron"));
    assert!(
        family("giant").starts_with('x') || family("giant").starts_with('u') || family("giant").starts_with('r'),
        "{}",
        first_type("giant")
    );
    assert!(family("arm").contains('g'), "{}", first_type("arm"));
    assert!(!family("nvme").is_empty());
}

/// Whether a pod gets a new node, where, and at which rate.
fn launch_of(launches: &[Launch<'_>], pod: &str) -> (bool, String, String) {
    let found = launches.iter().find(|launch| launch.pods().contains(&pod));
    found.map_or_else(Default::default, |launch| {
        (true, launch.first("zone").to_owned(), launch.first("capacityType").to_owned())
    })
}

#[test]
fn d3_38_teams_with_disjoint_taints_and_labels_never_share_a_node() {
    let bottlerocket = CLASS.replace("name: workers", "name: bottlerocket").replace("al2023", "bottlerocket");
    let of = |team: &str, class: &str| {
        pool_with_labels(
            team,
            &format!("{{team: {team}}}"),
            &[ON_DEMAND, AMD64, CATEGORIES],
            &format!("taints: [{{key: team, value: {team}, effect: NoSchedule}}]"),
            "",
        )
        .replace("name: workers", &format!("name: {class}"))
    };
    let wish = |team: &str| {
        format!(
            "nodeSelector: {{team: {team}}}, tolerations: [{{key: team, operator: Equal, value: {team}, effect: NoSchedule}}]"
        )
    };
    // A node of the blue team with room for much more than its own, and one of the red team that is full.
    let there = |team: &str, cpu: u32| {
        node(
            &format!("{team}-node"),
            team,
            "m6i.4xlarge",
            &format!("{{cpu: {cpu}, memory: 64Gi, pods: '110'}}"),
            &format!("team: {team}"),
            &format!("taints: [{{key: team, value: {team}, effect: NoSchedule}}]"),
        )
    };
    let plan = plan(&[
        CLASS,
        &bottlerocket,
        &of("blue", "workers"),
        &of("red", "bottlerocket"),
        &there("blue", 16),
        &there("red", 0),
        &deployment("blue", 7, "{cpu: 1}", &wish("blue")),
        &deployment("red", 9, "{cpu: 1}", &wish("red")),
        &deployment("nobody", 2, "{cpu: 1}", ""),
        &deployment(
            "torn",
            1,
            "{cpu: 1}",
            &wish("red").replace("nodeSelector: {team: red}", "nodeSelector: {team: blue}"),
        ),
    ]);
    assert_eq!(plan.placed().into_keys().collect::<Vec<_>>(), ["blue-node"]);
    assert_eq!(
        plan.placed()["blue-node"].iter().map(|pod| app_of(pod)).collect::<BTreeSet<_>>(),
        BTreeSet::from(["blue"])
    );
    assert_eq!(plan.placed()["blue-node"].len(), 7);
    assert_eq!(plan.pods_by_pool("red"), BTreeMap::from([("red", 9)]));
    for launch in plan.launches() {
        let apps: BTreeSet<&str> = launch.pods().into_iter().map(app_of).collect();
        assert_eq!((launch.pool(), apps), ("red", BTreeSet::from(["red"])));
        assert_eq!((launch.label("team"), &launch.0["nodeClass"]["name"]), ("red", &"bottlerocket".into()));
    }
    assert_eq!(plan.n_pending(), 3);
    assert_eq!(plan.refusal("default/nobody-1")["blue"].0, "TaintNotTolerated");
    assert_eq!(plan.refusal("default/nobody-1")["red"].0, "TaintNotTolerated");
    assert_eq!(plan.refusal("default/torn-1")["blue"].0, "TaintNotTolerated");
    assert_eq!(plan.refusal("default/torn-1")["red"].0, "RequirementsClash");
    // From nothing, each gets its own.
    let plan = cluster::plan(&[
        CLASS,
        &bottlerocket,
        &of("blue", "workers"),
        &of("red", "bottlerocket"),
        &deployment("blue", 7, "{cpu: 1}", &wish("blue")),
        &deployment("red", 9, "{cpu: 1}", &wish("red")),
    ]);
    assert_eq!(
        (plan.pods_by_pool("blue"), plan.pods_by_pool("red")),
        (BTreeMap::from([("blue", 7)]), BTreeMap::from([("red", 9)]))
    );
    assert!(plan.launches().iter().all(|launch| launch.pods().iter().all(|pod| app_of(pod) == launch.pool())));
}

/// The document's Deployment, both halves of its trick on their own.
const APART: &str = "podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {matchExpressions: [{key: app, operator: In, values: [hold]}]}, topologyKey: kubernetes.io/hostname}]}";
const ON_DEFAULT: &str = "nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: karpenter.sh/nodepool, operator: In, values: [default]}]}]}}";

fn hold(replicas: u32, parts: &[&str]) -> String {
    deployment("hold", replicas, "{cpu: 1}", &format!("affinity: {{{}}}", parts.join(", ")))
}

/// `default` can buy only the dearer box, `spare` only the cheaper.
fn hold_plan(documents: &[&str]) -> Plan {
    let types =
        [kwok_type("dear.box", 8, 32, &[("on-demand", 0.40)]), kwok_type("cheap.box", 8, 32, &[("on-demand", 0.30)])];
    let default = pool("default", &[&within(TYPE, "dear.box")], "", "");
    let spare = pool("spare", &[&within(TYPE, "cheap.box")], "", "");
    let mut all = vec![CLASS, &default, &spare];
    all.extend(documents);
    plan_with_types(&types, &all)
}

#[test]
fn d4_10_anti_affinity_and_node_affinity_both_hold() {
    for replicas in [1, 3] {
        let both = hold_plan(&[&hold(replicas, &[APART, ON_DEFAULT])]);
        let n = replicas as usize;
        assert_eq!(both.bought(), BTreeMap::from([("dear.box", (n, n))]), "as many nodes as replicas, of the pool");
        assert_eq!(both.pods_by_pool("hold"), BTreeMap::from([("default", n)]));
    }
    // Each half alone does half of it.
    let only_apart = hold_plan(&[&hold(3, &[APART])]);
    assert_eq!(only_apart.bought(), BTreeMap::from([("cheap.box", (3, 3))]), "apart, in the cheaper pool");
    let only_pool = hold_plan(&[&hold(3, &[ON_DEFAULT])]);
    assert_eq!(only_pool.bought(), BTreeMap::from([("dear.box", (1, 3))]), "in the pool, together");
}

#[test]
fn d4_11_six_replicas_are_six_nodes_and_nodes_that_are_there_come_first() {
    let six = hold_plan(&[&hold(6, &[APART, ON_DEFAULT])]);
    assert_eq!((six.bought(), six.n_pending()), (BTreeMap::from([("dear.box", (6, 6))]), 0));
    assert!(six.launches().iter().all(|launch| launch.pool() == "default" && launch.pods().len() == 1));
    let seven = hold_plan(&[&hold(7, &[APART, ON_DEFAULT])]);
    assert_eq!(seven.bought(), BTreeMap::from([("dear.box", (7, 7))]), "one replica more, one node more");

    // Two nodes of the pool with room, one that has such a pod already, one that is full, and one of another pool.
    let capacity = "{cpu: 8, memory: 32Gi, pods: '110'}";
    let of = |name: &str, pool: &str| node(name, pool, "dear.box", capacity, "", "");
    let nodes = [
        of("free-1", "default"),
        of("free-2", "default"),
        of("held", "default"),
        of("full", "default"),
        of("other", "spare"),
    ];
    let there = nodes.join("---");
    let held = running("hold-1", "hold", "held", "{cpu: 1}", &format!("affinity: {{{APART}, {ON_DEFAULT}}}"));
    let busy = running("busy", "busy", "full", "{cpu: 7500m}", "");
    let plan = hold_plan(&[&there, &held, &busy, &hold(6, &[APART, ON_DEFAULT])]);
    assert_eq!(plan.count("podsWaiting"), 5, "one of the six runs");
    let used: BTreeMap<&str, usize> = plan.placed().into_iter().map(|(node, pods)| (node, pods.len())).collect();
    assert_eq!(used, BTreeMap::from([("free-1", 1), ("free-2", 1)]));
    assert_eq!(plan.bought(), BTreeMap::from([("dear.box", (3, 3))]), "the rest is bought, one each");
    assert_eq!(plan.pods_by_pool("hold"), BTreeMap::from([("default", 3)]));
}
