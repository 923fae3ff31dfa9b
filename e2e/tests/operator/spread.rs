//! Default spread constraints: the scheduler has some, and the operator is told the same, so that it buys nodes on which they can be kept.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use kerf_control_plane::scheduler::Profile;
use serde_json::{Value, json};

use crate::scene::text;
use crate::stage::{NODES, Stage};
use crate::tests;

tests!(;
    alone
    pods_of_a_deployment_are_spread_by_default,
    pods_that_a_service_selects_are_spread_by_default,
    pods_that_nothing_selects_are_not_spread,
    pods_with_constraints_of_their_own_keep_to_them_beside_others,
);

/// As the configuration of the real cluster's scheduler has it.
const SCHEDULER: &str = "topology-spread-defaults";
const KEYS: [&str; 2] = ["kubernetes.io/hostname", "topology.kubernetes.io/zone"];
const CONFIGURATION: &str = "podTopologySpread:
  defaultConstraints:
  - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule}
  - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}
";
const PODS: usize = 4;

/// The same profile for the embedded scheduler.
pub(crate) fn profile() -> Profile {
    let constraint = |key: &str| TopologySpreadConstraint {
        max_skew: 1,
        topology_key: key.to_owned(),
        when_unsatisfiable: "DoNotSchedule".to_owned(),
        ..TopologySpreadConstraint::default()
    };
    Profile { scheduler_name: SCHEDULER.to_owned(), default_constraints: KEYS.map(constraint).to_vec() }
}

fn with_defaults(stage: &Stage<'_>, play: impl FnOnce()) {
    stage.add_pool(|_| {});
    // Pods come one by one, and are to be one batch.
    let batch = [("BATCH_IDLE_DURATION", "2s"), ("BATCH_MAX_DURATION", "10s")];
    stage.with_operator(&[[("SCHEDULER_CONFIG", CONFIGURATION)].as_slice(), &batch].concat(), play);
}

/// Pods that nobody owns.
fn add_pods(stage: &Stage<'_>, app: &str, change: impl Fn(&mut Value)) {
    for index in 1..=PODS {
        let mut spec = stage.pod_spec("1");
        spec["schedulerName"] = json!(SCHEDULER);
        change(&mut spec);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("{app}-{index}"), "labels": {"app": app}}, "spec": spec,
        });
        stage.create(&stage.at("v1", "pods"), &pod);
    }
}

/// The nodes on which the pods run.
#[track_caller]
fn nodes_of(stage: &Stage<'_>, app: &str) -> BTreeSet<String> {
    stage.wait_until_running(app, PODS);
    stage.pods(app).iter().map(|pod| text(&pod["spec"]["nodeName"])).collect()
}

/// Each pod has a node and a zone of its own. Gives back the nodes.
#[track_caller]
fn expect_spread(stage: &Stage<'_>, app: &str) -> Vec<Value> {
    let names = nodes_of(stage, app);
    let nodes: Vec<Value> = names.iter().map(|node| stage.read(&format!("{NODES}/{node}"))).collect();
    let zones: BTreeSet<String> = nodes.iter().map(|node| text(&node["metadata"]["labels"][KEYS[1]])).collect();
    assert_eq!((nodes.len(), zones.len()), (PODS, PODS), "{names:?} in {zones:?}");
    nodes
}

/// None of them is larger than its one pod needs.
#[track_caller]
fn expect_small(nodes: &[Value]) {
    for node in nodes {
        assert_eq!(node["metadata"]["labels"]["karpenter.kwok.sh/instance-cpu"], "2", "for one pod of 1 CPU");
    }
}

fn pods_of_a_deployment_are_spread_by_default(stage: &Stage<'_>) {
    with_defaults(stage, || {
        stage.add_deployment("web", PODS, |template| template["spec"]["schedulerName"] = json!(SCHEDULER));
        expect_small(&expect_spread(stage, "web"));
    });
}

fn pods_that_a_service_selects_are_spread_by_default(stage: &Stage<'_>) {
    with_defaults(stage, || {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        });
        stage.create(&stage.at("v1", "services"), &service);
        add_pods(stage, "web", |_| {});
        expect_small(&expect_spread(stage, "web"));
    });
}

fn pods_that_nothing_selects_are_not_spread(stage: &Stage<'_>) {
    with_defaults(stage, || {
        // Of smaller machines, two would be cheaper than one that has room for all.
        add_pods(stage, "lone", |spec| spec["nodeSelector"]["karpenter.kwok.sh/instance-cpu"] = json!("8"));
        assert_eq!(nodes_of(stage, "lone").len(), 1);
    });
}

fn pods_with_constraints_of_their_own_keep_to_them_beside_others(stage: &Stage<'_>) {
    with_defaults(stage, || {
        // Those with a constraint of their own are selected too, and still keep to their own. The sizes keep the two from taking each other's
        // places, in which the scheduler is free.
        let sized = |template: &mut Value, cpu: &str| {
            template["spec"]["schedulerName"] = json!(SCHEDULER);
            template["spec"]["nodeSelector"]["karpenter.kwok.sh/instance-cpu"] = json!(cpu);
        };
        stage.add_deployment("own", PODS, |template| {
            sized(template, "8");
            template["spec"]["topologySpreadConstraints"] = json!([{
                "maxSkew": PODS, "topologyKey": KEYS[0], "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "own"}},
            }]);
        });
        stage.add_deployment("web", PODS, |template| sized(template, "2"));
        expect_spread(stage, "web");
        assert_eq!(nodes_of(stage, "own").len(), 1, "they pack, as nothing forbids it");
    });
}
