//! D0: overview, install and operations.

use crate::cluster::{
    self, AMD64, BOTH, CATEGORIES, CLASS, Launch, ON_DEMAND, TYPE, app_of, deployment, kwok_type, list, node, plan,
    plan_with, plan_with_types, pod, pool, pool_with_labels, running, within,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn d0_4_several_nodes_of_different_types_come_from_one_decision() {
    let cpus = kwok_type("cpu.box", 16, 16, &[("on-demand", 0.60)]);
    let memory = kwok_type("memory.box", 2, 128, &[("on-demand", 0.50)]);
    let documents = [
        CLASS,
        &pool("default", &[], "", ""),
        &deployment("number-cruncher", 3, "{cpu: 15, memory: 8Gi}", ""),
        &deployment("cache", 2, "{cpu: 1, memory: 100Gi}", ""),
    ];
    let plan = plan_with_types(&[cpus.clone(), memory.clone()], &documents);
    assert_eq!(plan.n_pending(), 0);
    assert_eq!(plan.bought(), BTreeMap::from([("cpu.box", (3, 3)), ("memory.box", (2, 2))]), "five nodes at once");
    assert_eq!(plan.added(), 3.0 * 0.60 + 2.0 * 0.50);
    // With one kind of machine, as in a node group, the other half of the pods has no place.
    for (only, n_pending, left) in [(cpus, 2, "default/cache-1"), (memory, 3, "default/number-cruncher-1")] {
        let plan = plan_with_types(&[only], &documents);
        assert_eq!((plan.n_pending(), plan.refusal(left)["default"].0), (n_pending, "TooLarge"));
    }
}

#[test]
fn d0_6_what_is_not_written_has_a_default() {
    // Only what v1 insists on. The Deployment leaves out even its replicas.
    let one = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: pause}]}}}
";
    let brief = plan(&[CLASS, &pool("default", &[], "", ""), one]);
    assert_eq!((brief.count("podsWaiting"), brief.n_pending()), (1, 0), "no replicas means one");
    assert_eq!(brief.notes(), "");
    let launches = brief.launches();
    assert_eq!(launches.len(), 1);
    assert_eq!(launches[0].pods(), ["default/web-1"]);
    assert_eq!(launches[0].request("pods"), "1");
    assert_eq!(launches[0].request("cpu"), "", "no requests means none");
    assert!(list(&launches[0].0["taints"]).is_empty());
    assert!(launches[0].types().len() >= 100, "nothing narrows the choice");
    assert_eq!(brief.json["catalogues"][0]["name"], "AWS us-east-1");

    let written = plan_with(
        &["--region", "us-east-1", "--preference-policy", "respect", "--min-values-policy", "strict"],
        &[
            CLASS,
            &pool(
                "default",
                &[],
                "expireAfter: 720h, taints: [], startupTaints: []",
                "disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 0s, budgets: [{nodes: 10%}]}",
            ),
            &one.replace("{selector", "{replicas: 1, selector"),
        ],
    );
    assert_eq!(written.json["launches"], brief.json["launches"], "the defaults, written out, change nothing");
}

#[test]
fn d0_7_spot_comes_first_and_on_demand_when_there_is_none() {
    let documents =
        [CLASS, &pool("default", &[BOTH, AMD64, CATEGORIES], "", ""), &deployment("inflate", 10, "{cpu: 1}", "")];
    let with_catalogue = plan(&documents);
    assert_eq!(with_catalogue.n_pending(), 0);
    for launch in with_catalogue.launches() {
        assert_eq!(launch.first("capacityType"), "spot");
        let allowed = launch.values("karpenter.sh/capacity-type");
        assert_eq!(allowed, BTreeSet::from(["on-demand", "spot"]), "the claim itself can fall back");
    }
    // The same pods, once spot has run dry, and once only one of two types has.
    let documents = [CLASS, &pool("default", &[BOTH], "", ""), &deployment("inflate", 3, "{cpu: 1}", "")];
    let offers = |spot: Option<f64>, on_demand: f64| {
        let mut offers = vec![("on-demand", on_demand)];
        offers.extend(spot.map(|price| ("spot", price)));
        offers
    };
    let box_4 = |spot: bool| kwok_type("box.four", 4, 16, &offers(spot.then_some(0.06), 0.20));
    let box_8 = |spot: bool| kwok_type("box.eight", 8, 32, &offers(spot.then_some(0.13), 0.40));
    for (four, eight, expected) in [
        (true, true, ("box.four", "spot", 0.06)),
        (false, true, ("box.eight", "spot", 0.13)),
        (false, false, ("box.four", "on-demand", 0.20)),
    ] {
        let plan = plan_with_types(&[box_4(four), box_8(eight)], &documents);
        let launches = plan.launches();
        assert_eq!((plan.n_pending(), launches.len()), (0, 1));
        assert_eq!((launches[0].first_type(), launches[0].first("capacityType"), launches[0].price()), expected);
    }
}

#[test]
fn d0_9_the_types_of_a_pool_can_be_edited_later() {
    let before = pool("default", &[ON_DEMAND, &within(TYPE, "m5.large")], "", "");
    let after = pool("default", &[ON_DEMAND, &within(TYPE, "c6i.xlarge, c6i.2xlarge")], "", "");
    let first = plan(&[CLASS, &before, &pod("one", "{cpu: 1500m}", "")]);
    assert_eq!(first.bought(), BTreeMap::from([("m5.large", (1, 1))]));
    // The node came and the pod runs; then the pool is edited, and more pods come.
    let node = node("old", "default", "m5.large", "{cpu: 1930m, memory: 7Gi, pods: '29'}", "", "");
    let one = running("one", "one", "old", "{cpu: 1500m}", "");
    let small = pod("small", "{cpu: 300m}", "");
    let large = pod("large", "{cpu: 3}", "");
    let second = plan(&[CLASS, &after, &node, &one, &small, &large]);
    assert_eq!(second.bought(), BTreeMap::from([("c6i.xlarge", (1, 1))]));
    assert_eq!(second.launches()[0].types(), BTreeSet::from(["c6i.xlarge", "c6i.2xlarge"]));
    assert_eq!(second.placed(), BTreeMap::from([("old", vec!["default/small"])]), "what is there is still used");
    let unedited = plan(&[CLASS, &before, &node, &one, &small, &large]);
    assert_eq!(unedited.refusal("default/large")["default"].0, "TooLarge", "it was the edit that made room");
}

/// GEN v1beta1. The document's pool with its kubelet block on the class, where v1 has it. What is asked of it besides
/// goes into `more`.
fn blue_pool(more: &[&str]) -> [String; 2] {
    let class = CLASS.to_owned()
        + "  kubelet: {systemReserved: {cpu: 100m, memory: 100Mi, ephemeral-storage: 1Gi}, maxPods: 20}\n";
    let mut requirements = vec![
        "{key: topology.kubernetes.io/zone, operator: In, values: [ap-northeast-2a, ap-northeast-2b]}",
        "{key: karpenter.sh/capacity-type, operator: In, values: [on-demand, spot]}",
        "{key: kubernetes.io/arch, operator: In, values: [amd64, arm64]}",
        "{key: kubernetes.io/os, operator: In, values: [linux]}",
        CATEGORIES,
        "{key: karpenter.k8s.aws/instance-size, operator: NotIn, values: [nano, micro, small, medium, large]}",
    ];
    requirements.extend(more);
    let pool = pool_with_labels(
        "workers",
        "{team: blue, tier: batch}",
        &requirements,
        "taints: [{key: example.com/only-blue, effect: NoSchedule}]",
        "limits: {cpu: '500', memory: 1000Gi}",
    );
    [class, pool]
}

#[test]
fn d0_51_requirements_are_anded_over_architectures_capacity_types_and_sizes() {
    let blue = "tolerations: [{key: example.com/only-blue, operator: Exists}]";
    let wanting = |key: &str, value: &str| format!("{blue}, nodeSelector: {{{key}: {value}}}");
    let [class, workers] = blue_pool(&[]);
    let korea = ["--region", "ap-northeast-2"];
    let plan = plan_with(
        &korea,
        &[
            &class,
            &workers,
            &deployment("intel", 2, "{cpu: 1}", &wanting("kubernetes.io/arch", "amd64")),
            &deployment("arm", 2, "{cpu: 1}", &wanting("kubernetes.io/arch", "arm64")),
            &deployment("steady", 2, "{cpu: 1}", &wanting("karpenter.sh/capacity-type", "on-demand")),
            &deployment("cheap", 2, "{cpu: 1}", &wanting("karpenter.sh/capacity-type", "spot")),
            &deployment("tiny", 45, "{cpu: 10m}", blue),
            &pod("gpu", "{cpu: 1}", &wanting("karpenter.k8s.aws/instance-category", "g")),
            &pod("elsewhere", "{cpu: 1}", &wanting("topology.kubernetes.io/zone", "ap-northeast-2c")),
            &pod("little", "{cpu: 100m}", &wanting("karpenter.k8s.aws/instance-size", "large")),
        ],
    );
    for launch in plan.launches() {
        assert!(launch.pods().len() <= 20, "the class allows 20 pods on a node");
        for option in launch.options() {
            let text = |field: &str| option[field].as_str().unwrap_or_default();
            assert!(["ap-northeast-2a", "ap-northeast-2b"].contains(&text("zone")), "{option}");
            assert!(["c", "m", "r"].iter().any(|category| text("name").starts_with(category)), "{option}");
            let size = text("name").rsplit('.').next().unwrap_or_default();
            assert!(!["nano", "micro", "small", "medium", "large"].contains(&size), "{option}");
        }
        assert_eq!((launch.label("team"), launch.label("tier")), ("blue", "batch"));
        let is_arm = |name: &str| name.split('.').next().is_some_and(|family| family[2..].contains('g'));
        let apps: BTreeSet<&str> = launch.pods().into_iter().map(app_of).collect();
        assert!(!(apps.contains("intel") && apps.contains("arm")), "one machine has one architecture");
        assert!(!(apps.contains("steady") && apps.contains("cheap")), "one machine is paid for in one way");
        for (app, fits) in [
            ("intel", !is_arm(launch.first_type())),
            ("arm", is_arm(launch.first_type())),
            ("steady", launch.first("capacityType") == "on-demand"),
            ("cheap", launch.first("capacityType") == "spot"),
        ] {
            assert!(fits || !apps.contains(app), "{app} on {}", launch.first_type());
        }
    }
    assert_eq!((plan.count("podsOnNewNodes"), plan.n_pending()), (53, 3));
    for (pod, key) in [
        ("default/gpu", "karpenter.k8s.aws/instance-category"),
        ("default/elsewhere", "topology.kubernetes.io/zone"),
        ("default/little", "karpenter.k8s.aws/instance-size"),
    ] {
        let (cause, message) = plan.refusal(pod)["workers"];
        assert_eq!(cause, "RequirementsClash");
        assert!(message.contains(key), "{message}");
    }
    // One requirement more, one choice less.
    let [class, workers] = blue_pool(&[&within(TYPE, "c5a.4xlarge, c5.4xlarge, t3.large")]);
    let plan = plan_with(&korea, &[&class, &workers, &deployment("intel", 20, "{cpu: 1}", blue)]);
    assert_eq!(plan.n_pending(), 0);
    for launch in plan.launches() {
        assert_eq!(launch.types(), BTreeSet::from(["c5.4xlarge", "c5a.4xlarge"]));
    }
}

#[test]
fn d0_52_nothing_is_launched_beyond_the_limits_of_a_pool() {
    // As advised: the limit is a middle-sized type of the pool times the wanted count.
    let limits = "limits: {cpu: 20}";
    let pods = deployment("inflate", 40, "{cpu: 1}", "");
    let one_type = pool("default", &[ON_DEMAND, &within(TYPE, "m5.xlarge")], "", limits);
    let plan = plan(&[CLASS, &one_type, &pods]);
    assert_eq!(plan.bought(), BTreeMap::from([("m5.xlarge", (5, 15))]), "five of them, three pods each");
    assert_eq!(plan.n_pending(), 25);
    let (cause, message) = plan.refusal(plan.last_pending())["default"];
    assert_eq!(cause, "LimitReached");
    assert!(message.contains("cpu 20 of 20 in use") && message.contains("needs 4"), "{message}");
    assert_eq!(plan.would_help(plan.last_pending()), "raise limit cpu of nodepool default to 24");

    // What runs already counts.
    let there = [1, 2].map(|n| {
        let name = format!("node-{n}");
        let node = node(&name, "default", "m5.xlarge", "{cpu: 4, memory: 16Gi, pods: '58'}", "", "");
        format!("{node}---{}", running(&format!("busy-{n}"), "busy", &name, "{cpu: 3500m}", ""))
    });
    let plan = cluster::plan(&[CLASS, &one_type, &pods, &there[0], &there[1]]);
    assert_eq!(plan.bought(), BTreeMap::from([("m5.xlarge", (3, 9))]));
    assert_eq!(plan.n_pending(), 31);

    // With a choice of sizes, the limit holds whichever of them the cloud gives.
    let sizes = within(TYPE, "m5.large, m5.xlarge, m5.2xlarge, m5.4xlarge, m5.8xlarge");
    let several = pool("default", &[ON_DEMAND, &sizes], "", "limits: {cpu: 20, nodes: 3}");
    let plan = cluster::plan(&[CLASS, &several, &pods]);
    let most: u64 = plan.launches().iter().map(most_cpus).sum();
    assert!(most <= 20, "{most} CPUs could be launched");
    assert!(plan.launches().len() <= 3);
    assert!(plan.count("podsOnNewNodes") >= 17, "16 and 4 CPUs hold 15 and 3 pods: {}", plan.count("podsOnNewNodes"));
}

/// CPUs of the largest type that would do.
fn most_cpus(launch: &Launch<'_>) -> u64 {
    let cpus = |name: &str| match name.rsplit('.').next() {
        Some("large") => 2,
        Some("xlarge") => 4,
        Some("2xlarge") => 8,
        Some("4xlarge") => 16,
        Some("8xlarge") => 32,
        other => panic!("unexpected size {other:?}"),
    };
    launch.types().into_iter().map(cpus).max().unwrap_or(0)
}

/// GEN v1beta1, and not YAML in the document; this is what it means.
#[test]
fn d0_74_types_can_be_excluded_and_a_misspelt_key_is_pointed_out() {
    let families = "{key: karpenter.k8s.aws/instance-family, operator: In, values: [m6g, m6gd, r6g, r6gd, c6g, c6gd]}";
    let sizes = "{key: karpenter.k8s.aws/instance-size, operator: NotIn, values: [metal]}";
    let excluded = ["m6g.16xlarge", "m6gd.16xlarge", "r6g.16xlarge", "r6gd.16xlarge", "c6g.16xlarge"];
    let not_those = |key: &str| format!("{{key: {key}, operator: NotIn, values: [{}]}}", excluded.join(", "));
    let large = deployment("large", 2, "{cpu: 60}", "");
    let open = plan(&[CLASS, &pool("default", &[ON_DEMAND, families, sizes], "", ""), &large]);
    assert_eq!(open.bought(), BTreeMap::from([("c6g.16xlarge", (2, 2))]), "the cheapest, if it is allowed");
    let narrowed = plan(&[CLASS, &pool("default", &[ON_DEMAND, families, sizes, &not_those(TYPE)], "", ""), &large]);
    assert_eq!(narrowed.n_pending(), 0);
    for launch in narrowed.launches() {
        assert_eq!(launch.types(), BTreeSet::from(["c6gd.16xlarge"]), "the only one of that size that is left");
    }

    let typo = "node.kubernetes.io/instnace-type";
    let hint = "(typo of \"node.kubernetes.io/instance-type\"?)";
    // A pod that insists is refused with the hint; one that only excludes runs, with a note.
    let in_affinity = |operator: &str| {
        format!(
            "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{matchExpressions: [{{key: {typo}, operator: {operator}, values: [m5.large]}}]}}]}}}}}}"
        )
    };
    let plan = plan(&[
        CLASS,
        &pool("default", &[ON_DEMAND, AMD64], "", ""),
        &pod("selecting", "{cpu: 1}", &format!("nodeSelector: {{{typo}: m5.large}}")),
        &pod("insisting", "{cpu: 1}", &in_affinity("In")),
        &deployment("avoiding", 3, "{cpu: 1}", &in_affinity("NotIn")),
    ]);
    for refused in ["default/selecting", "default/insisting"] {
        let (cause, message) = plan.refusal(refused)["default"];
        assert_eq!(cause, "LabelUnknown");
        assert!(message.contains(typo) && message.ends_with(hint), "{message}");
    }
    assert_eq!((plan.count("podsOnNewNodes"), plan.n_pending()), (3, 2));
    let notes = plan.notes();
    assert_eq!(notes.lines().count(), 1, "once for the three of them: {notes}");
    assert!(notes.starts_with("Deployment default/avoiding: ") && notes.contains(hint), "{notes}");
    // The same in a pool, which goes on: the label may be the user's own.
    let plan =
        cluster::plan(&[CLASS, &pool("default", &[ON_DEMAND, families, sizes, &not_those(typo)], "", ""), &large]);
    assert_eq!(plan.bought(), open.bought());
    assert!(plan.notes().contains(&format!("requirements[3].key: {typo:?} is not")), "{}", plan.notes());
    assert!(plan.notes().contains(hint), "{}", plan.notes());
}

#[test]
fn d0_79_teams_with_other_systems_or_types_have_pools_of_their_own() {
    let windows_class = CLASS.replace("name: workers", "name: windows").replace("al2023", "windows2022");
    let windows = pool("windows", &[ON_DEMAND, "{key: kubernetes.io/os, operator: In, values: [windows]}"], "", "")
        .replace("name: workers", "name: windows");
    let linux =
        pool("linux", &[ON_DEMAND, "{key: kubernetes.io/os, operator: In, values: [linux]}", CATEGORIES], "", "");
    let storage = pool_with_labels(
        "storage",
        "{team: search}",
        &[ON_DEMAND, "{key: karpenter.k8s.aws/instance-family, operator: In, values: [i4i]}"],
        "taints: [{key: team, value: search, effect: NoSchedule}]",
        "",
    );
    let on = |key: &str, value: &str| format!("nodeSelector: {{{key}: {value}}}");
    let plan = plan(&[
        CLASS,
        &windows_class,
        &windows,
        &linux,
        &storage,
        &deployment("dotnet", 3, "{cpu: 1, memory: 2Gi}", &on("kubernetes.io/os", "windows")),
        &deployment("web", 3, "{cpu: 1, memory: 2Gi}", &on("kubernetes.io/os", "linux")),
        &deployment(
            "search",
            3,
            "{cpu: 1, memory: 2Gi}",
            &(on("team", "search") + ", tolerations: [{key: team, operator: Exists}]"),
        ),
    ]);
    assert_eq!(plan.n_pending(), 0, "{}", plan.json["pending"]);
    assert_eq!(plan.pods_by_pool("dotnet"), BTreeMap::from([("windows", 3)]));
    assert_eq!(plan.pods_by_pool("web"), BTreeMap::from([("linux", 3)]));
    assert_eq!(plan.pods_by_pool("search"), BTreeMap::from([("storage", 3)]));
    for launch in plan.launches() {
        let class = if launch.pool() == "windows" { "windows" } else { "workers" };
        assert_eq!(launch.0["nodeClass"]["name"], class);
        assert_eq!(launch.pool() == "storage", launch.first_type().starts_with("i4i."));
    }
}

#[test]
fn d0_80_pools_are_chosen_by_weight_then_price_then_name_every_time() {
    let types =
        [kwok_type("dear.box", 4, 16, &[("on-demand", 0.30)]), kwok_type("cheap.box", 4, 16, &[("on-demand", 0.20)])];
    let pods = deployment("inflate", 3, "{cpu: 1}", "");
    let of = |name: &str, of_type: &str, weight: u32| {
        let weight = if weight == 0 { String::new() } else { format!("weight: {weight}") };
        pool(name, &[&within(TYPE, of_type)], "", &weight)
    };
    for (story, pools, expected) in [
        ("weight before price", [of("a", "cheap.box", 10), of("b", "dear.box", 50), of("c", "cheap.box", 0)], "b"),
        ("price before name", [of("a", "dear.box", 0), of("b", "cheap.box", 0), of("c", "dear.box", 0)], "b"),
        (
            "price before name, among the heaviest",
            [of("a", "dear.box", 7), of("b", "cheap.box", 3), of("c", "cheap.box", 7)],
            "c",
        ),
        ("name at last", [of("b", "cheap.box", 0), of("a", "cheap.box", 0), of("c", "cheap.box", 0)], "a"),
    ] {
        // Whatever the order of the documents, and however often one asks.
        let [x, y, z] = &pools;
        let mut answers = Vec::new();
        for order in [[x, y, z], [z, y, x], [y, z, x], [x, y, z]] {
            let plan = plan_with_types(&types, &[CLASS, order[0], order[1], order[2], &pods]);
            assert_eq!(plan.pods_by_pool("inflate"), BTreeMap::from([(expected, 3)]), "{story}");
            answers.push(plan.json["launches"].clone());
        }
        answers.dedup();
        assert_eq!(answers.len(), 1, "{story}: the same answer every time");
    }
}

/// GEN v1beta1. A pool of GPUs behind a taint, and one with a label.
fn gpu_and_general() -> String {
    let gpu = pool(
        "gpu",
        &[&within(TYPE, "p3.8xlarge, p3.16xlarge")],
        "taints: [{key: nvidia.com/gpu, value: 'true', effect: NoSchedule}]",
        "",
    );
    let types = within(TYPE, "m5.xlarge, m5.2xlarge, c5.2xlarge, r5.2xlarge");
    format!("{gpu}---{}", pool_with_labels("general", "{cost-centre: blue}", &[&types], "", ""))
}

const TOLERATING: &str = "tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]";
const BLUE: &str = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: cost-centre, operator: In, values: [blue]}]}]}}}";

/// The types of both pools with the cloud's prices, so that the plan can be drawn by hand.
fn document_types() -> [Value; 6] {
    let gpus = |mut of_type: Value, count: &str| {
        of_type["resources"]["nvidia.com/gpu"] = count.into();
        of_type
    };
    [
        gpus(kwok_type("p3.8xlarge", 32, 244, &[("on-demand", 12.24)]), "4"),
        gpus(kwok_type("p3.16xlarge", 64, 488, &[("on-demand", 24.48)]), "8"),
        kwok_type("m5.xlarge", 4, 16, &[("on-demand", 0.192)]),
        kwok_type("m5.2xlarge", 8, 32, &[("on-demand", 0.384)]),
        kwok_type("c5.2xlarge", 8, 16, &[("on-demand", 0.34)]),
        kwok_type("r5.2xlarge", 8, 64, &[("on-demand", 0.504)]),
    ]
}

#[test]
fn d0_81_a_gpu_pool_stays_apart_by_its_taint_and_the_other_is_chosen_by_its_label() {
    let plan = plan_with_types(
        &document_types(),
        &[
            CLASS,
            &gpu_and_general(),
            &deployment("train", 3, "{cpu: 2, nvidia.com/gpu: 4}", TOLERATING),
            &deployment("web", 200, "{cpu: 500m, memory: 1Gi}", BLUE),
        ],
    );
    assert_eq!(plan.n_pending(), 0);
    assert_eq!(plan.pods_by_pool("train"), BTreeMap::from([("gpu", 3)]));
    assert_eq!(plan.pods_by_pool("web"), BTreeMap::from([("general", 200)]));
    let (gpu, general): (Vec<Launch<'_>>, Vec<Launch<'_>>) =
        plan.launches().into_iter().partition(|launch| launch.pool() == "gpu");
    for launch in &gpu {
        assert!(launch.types().is_subset(&BTreeSet::from(["p3.8xlarge", "p3.16xlarge"])));
        let taint = serde_json::json!([{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]);
        assert_eq!(launch.0["taints"], taint);
    }
    for launch in &general {
        assert!(launch.types().is_subset(&BTreeSet::from(["m5.xlarge", "m5.2xlarge", "c5.2xlarge", "r5.2xlarge"])));
        assert_eq!((launch.label("cost-centre"), list(&launch.0["taints"]).len()), ("blue", 0));
    }
    // Twelve GPUs. A c5.2xlarge holds 15 of the others, for less than anything else does: thirteen, and the last five
    // pods on one of the smallest.
    let cost = |launches: &[Launch<'_>]| launches.iter().map(Launch::price).sum::<f64>();
    assert!((cost(&gpu) - 3.0 * 12.24).abs() < 1e-9, "{}", cost(&gpu));
    let bought = plan.bought();
    assert_eq!((bought["c5.2xlarge"].0, bought["m5.xlarge"].0), (13, 1), "{bought:?}");
    assert!((cost(&general) - (13.0 * 0.34 + 0.192)).abs() < 1e-9, "{}", cost(&general));
}

#[test]
fn d0_82_tolerating_pods_may_use_the_gpu_pool_and_others_never_do() {
    let pools = gpu_and_general();
    let tolerating = deployment("train", 4, "{cpu: 1}", TOLERATING);
    let web = deployment("web", 200, "{cpu: 1}", BLUE);
    let other = deployment("other", 5, "{cpu: 1}", "");
    // No GPU is asked for, and a toleration forces nobody: the cheap pool serves all of them.
    let types = document_types();
    let relaxed = plan_with_types(&types, &[CLASS, &pools, &tolerating, &web, &other]);
    assert_eq!((relaxed.n_pending(), relaxed.count("podsOnNewNodes")), (0, 209));
    for app in ["train", "web", "other"] {
        assert_eq!(relaxed.pods_by_pool(app).into_keys().collect::<Vec<_>>(), ["general"], "{app}");
    }
    // The general pool may not grow: those who tolerate go to the GPUs, nobody else does.
    let full = pools.clone() + "  limits: {cpu: 0}\n";
    let plan = plan_with_types(&types, &[CLASS, &full, &tolerating, &web, &other]);
    assert_eq!(plan.pods_by_pool("train"), BTreeMap::from([("gpu", 4)]));
    assert_eq!((plan.count("podsOnNewNodes"), plan.n_pending()), (4, 205));
    for (pod, cause) in [("default/web-7", "TaintNotTolerated"), ("default/other-5", "TaintNotTolerated")] {
        let refusal = plan.refusal(pod);
        assert_eq!((refusal["gpu"].0, refusal["general"].0), (cause, "LimitReached"), "{pod}");
        assert!(refusal["gpu"].1.contains("nvidia.com/gpu=true:NoSchedule"));
    }
    // A pod that tolerates and wants the label lands on the labelled pool only.
    let both = pod("both", "{cpu: 1}", &format!("{TOLERATING}, {BLUE}"));
    let plan = plan_with_types(&types, &[CLASS, &full, &both]);
    assert_eq!(plan.refusal("default/both")["gpu"].0, "LabelUnknown");
    let plan = plan_with_types(&types, &[CLASS, &pools, &both]);
    assert_eq!(plan.launches()[0].pool(), "general");
}

/// GEN v1beta1; v1 writes limits the same way.
#[test]
fn d0_90_a_type_that_would_exceed_what_is_left_of_the_limits_is_not_launched() {
    let families = "{key: karpenter.k8s.aws/instance-family, operator: In, values: [c6i, m6i, r6i]}";
    let limited = pool("default", &[ON_DEMAND, families], "", "limits: {cpu: \"1000\", memory: 1000Gi}");
    let there = |capacity: &str| {
        let node = node("there", "default", "m6i.32xlarge", capacity, "", "");
        format!("{node}---{}", running("busy", "busy", "there", "{cpu: 990, memory: 900Gi}", ""))
    };
    let pods = deployment("inflate", 12, "{cpu: 1, memory: 1Gi}", "");
    // Ten CPUs are left: two and eight, or two, four and four; never sixteen.
    let cpus = plan(&[CLASS, &limited, &there("{cpu: 990, memory: 900Gi, pods: '110'}"), &pods]);
    let most: u64 = cpus.launches().iter().map(most_cpus).sum();
    assert!(most <= 10, "{most} CPUs could be launched");
    assert_eq!((cpus.count("podsOnNewNodes"), cpus.n_pending()), (8, 4), "8 and 2 CPUs hold 7 pods and 1");
    let (cause, message) = cpus.refusal(cpus.last_pending())["default"];
    assert_eq!(cause, "LimitReached");
    assert!(message.contains("cpu 1000 of 1000 in use"), "{message}");
    // Ten GiB of memory are left: the types with eight or less, of whatever shape.
    let memory = plan(&[
        CLASS,
        &limited,
        &there("{cpu: 900, memory: 990Gi, pods: '110'}")
            .replace("cpu: 990, memory: 900Gi}", "cpu: 900, memory: 990Gi}"),
        &pods,
    ]);
    assert!(memory.count("podsOnNewNodes") >= 1);
    let small = ["c6i.large", "c6i.xlarge", "m6i.large"];
    for launch in memory.launches() {
        assert!(launch.types().iter().all(|name| small.contains(name)), "{:?}", launch.types());
    }
    assert!(memory.launches().len() <= 2, "two times four GiB, or one time eight");
    let (cause, message) = memory.refusal(memory.last_pending())["default"];
    assert_eq!(cause, "LimitReached");
    assert!(message.starts_with("limits: memory"), "{message}");
}

#[test]
fn d0_92_what_a_limit_range_adds_is_counted_in_pods_and_in_daemons() {
    let types = [kwok_type("box.four", 4, 16, &[("on-demand", 0.20)])];
    let pool = pool("default", &[], "", "");
    let range = "
apiVersion: v1
kind: LimitRange
metadata: {name: guard-rail, namespace: default}
spec: {limits: [{type: Container, default: {cpu: 1, memory: 1Gi}, defaultRequest: {cpu: 500m, memory: 512Mi}}]}
";
    let silent = deployment("web", 14, "{}", "");
    // 3.9 CPUs are for pods, so seven of them fit.
    let counted = plan_with_types(&types, &[CLASS, &pool, range, &silent]);
    assert_eq!(counted.bought(), BTreeMap::from([("box.four", (2, 14))]));
    assert_eq!((counted.launches()[0].request("cpu"), counted.launches()[0].request("memory")), ("3500m", "3584Mi"));
    let without = plan_with_types(&types, &[CLASS, &pool, &silent]);
    assert_eq!(without.bought(), BTreeMap::from([("box.four", (1, 14))]), "nothing is requested, nothing is counted");
    // Pods that admission has seen carry the amounts; the range is not added to them again.
    let admitted: Vec<String> = (1..=14)
        .map(|n| {
            pod(&format!("web-{n}"), "{cpu: 500m, memory: 512Mi}", "").replace(
                "labels: {app",
                "annotations: {kubernetes.io/limit-ranger: 'LimitRanger plugin set: cpu, memory request for container web'}, labels: {app",
            )
        })
        .collect();
    let admitted = plan_with_types(&types, &[CLASS, &pool, range, &admitted.join("---")]);
    assert_eq!(admitted.bought(), counted.bought());
    // A daemon's template is not yet admitted: on each node it takes another half CPU, so six pods fit beside it.
    let daemon = "
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec: {selector: {matchLabels: {app: agent}}, template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: agent, image: agent}]}}}
";
    let with_daemon = plan_with_types(&types, &[CLASS, &pool, range, &silent, daemon]);
    assert_eq!(with_daemon.bought(), BTreeMap::from([("box.four", (3, 14))]));
    let cpus: BTreeSet<(usize, &str)> =
        with_daemon.launches().iter().map(|launch| (launch.pods().len(), launch.request("cpu"))).collect();
    for (n_pods, cpu) in cpus {
        let milli = (n_pods + 1) * 500;
        assert_eq!(cpu, if milli % 1000 == 0 { (milli / 1000).to_string() } else { format!("{milli}m") });
    }
    // A limit without a request is the request.
    let limited = silent.replace("requests: {}", "limits: {cpu: 1300m}");
    let limited = plan_with_types(&types, &[CLASS, &pool, range, &limited]);
    assert_eq!(limited.bought(), BTreeMap::from([("box.four", (5, 14))]), "three of 1.3 CPUs on each");
}
