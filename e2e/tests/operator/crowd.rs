//! Many pods that a budget holds, and many others beside them that want to run. On the real cluster only: ours serves from a build for
//! debugging, where requests wait for it and not for each other.

use std::time::{Duration, Instant};

use kerf_e2e::stages::Which;
use serde_json::{Value, json};

use crate::process::page;
use crate::scene::{is_going, name, text};
use crate::stage::{NODES, Stage};
use crate::tests;

tests!(; only Real five_hundred_pods_run_beside_three_hundred_that_a_budget_holds);

/// Listed only where `KERF_LONG` is set: it takes many minutes, and says nothing on a machine that is busy otherwise.
pub(crate) const LONG: &[crate::Test] = &[crate::Test {
    name: stringify!(five_hundred_pods_take_no_longer_beside_three_hundred_that_a_budget_holds),
    body: five_hundred_pods_take_no_longer_beside_three_hundred_that_a_budget_holds,
    is_alone: true,
    only: Some(Which::Real),
}];

const HELD: usize = 300;
const NODES_HELD: usize = 30;
const OTHERS: usize = 500;
/// The gate is one more kind of write that must not wait: pods are bound to the nodes that were launched for them.
const WITH_BINDING: (&str, &str) =
    ("FEATURE_GATES", "StaticCapacity=true,CapacityBuffer=true,NodeOverlay=true,EarlyBinding=true");

fn five_hundred_pods_run_beside_three_hundred_that_a_budget_holds(stage: &Stage<'_>) {
    stage.with_operator(&[WITH_BINDING], || {
        add_pool(stage);
        scale_up(stage, true);
        each_held_pod_knows_its_budget(stage);
        let waits = "kerf_request_wait_seconds";
        let is_of_work = |line: &&str| line.starts_with(waits) && line.contains("lane=\"work\"");
        let (_, metrics) = page(stage.operator().metrics_port, "/metrics").unwrap();
        let lines: Vec<&str> = metrics.lines().filter(is_of_work).collect();
        let value = |mark: &str| lines.iter().find(|line| line.contains(mark)).and_then(|line| line.rsplit(' ').next());
        let (soon, all) = (value("le=\"5\""), value("le=\"+Inf\""));
        assert!(soon.is_some() && soon == all, "some of the requests waited for more than 5 s: {lines:#?}");
    });
}

fn five_hundred_pods_take_no_longer_beside_three_hundred_that_a_budget_holds(stage: &Stage<'_>) {
    stage.with_operator(&[WITH_BINDING], || {
        add_pool(stage);
        let mut took = [Vec::new(), Vec::new()];
        for round in 0..6 {
            let is_held = round % 2 == 1;
            took[usize::from(is_held)].push(scale_up(stage, is_held));
            for path in [stage.at("apps/v1", "deployments"), stage.at("policy/v1", "poddisruptionbudgets")] {
                stage.delete(&path);
            }
            stage.wait_until_no_node_is_left();
        }
        let [without, with] = took.map(|mut took| {
            took.sort();
            took[1]
        });
        let ratio = with.as_secs_f64() / without.as_secs_f64();
        kerf_e2e::control_plane::build::to_stderr(&format!(
            "500 pods: {without:?}, beside 300 held: {with:?}: {ratio:.2}"
        ));
        assert!(ratio <= 1.5, "{without:?} without, {with:?} with");
    });
}

/// Nodes for ten of the pods each.
fn add_pool(stage: &Stage<'_>) {
    stage.add_pool(|pool| {
        let cores = json!({"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["16"]});
        pool["spec"]["template"]["spec"]["requirements"].as_array_mut().unwrap().push(cores);
        pool["spec"]["disruption"]["consolidateAfter"] = json!("0s");
    });
}

/// Three hundred pods on thirty nodes with a budget that allows none to go; then, where they are to be held, the nodes are deleted. How long
/// five hundred others take to run.
fn scale_up(stage: &Stage<'_>, is_held: bool) -> Duration {
    stage.add_deployment("held", HELD, |template| template["spec"] = stage.pod_spec("1500m"));
    stage.wait_until_running("held", HELD);
    let nodes: Vec<String> = stage.nodes().iter().map(name).collect();
    assert_eq!(nodes.len(), NODES_HELD);
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "none-may-go"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "held"}}},
    });
    stage.create(&stage.at("policy/v1", "poddisruptionbudgets"), &budget);
    let budget = stage.object("policy/v1", "poddisruptionbudgets", "none-may-go");
    stage.wait_for("the budget to be counted", || stage.read(&budget)["status"]["currentHealthy"] == HELD);
    stage.wait_for("the claims to be ready", || stage.n_ready_claims() == NODES_HELD);
    if is_held {
        for node in &nodes {
            stage.delete(&format!("{NODES}/{node}"));
        }
        let held: Vec<String> = stage.pods("held").iter().map(name).collect();
        stage.wait_for("each pod to be refused", || {
            let told = told(stage);
            held.iter().all(|pod| told.contains_key(pod))
        });
    }
    let begun = Instant::now();
    stage.add_deployment("others", OTHERS, |_| {});
    stage.wait_until_running("others", OTHERS);
    let took = begun.elapsed();
    if is_held {
        let held = stage.pods("held");
        assert!(held.len() == HELD && held.iter().all(|pod| !is_going(pod)), "the budget allows none to go");
    }
    took
}

/// What was told of pods that are held, by pod.
fn told(stage: &Stage<'_>) -> std::collections::BTreeMap<String, Value> {
    let events = stage.list(&format!("{}?fieldSelector=reason=EvictionBlocked", stage.at("v1", "events")));
    events.into_iter().map(|event| (text(&event["involvedObject"]["name"]), event)).collect()
}

fn each_held_pod_knows_its_budget(stage: &Stage<'_>) {
    let told = told(stage);
    for pod in stage.pods("held") {
        let event = &told[&name(&pod)];
        let message = text(&event["message"]);
        let node = text(&pod["spec"]["nodeName"]);
        assert!(message.starts_with(&format!("Cannot leave node {node}, which is to go: ")), "{message}");
        assert!(message.contains("The disruption budget none-may-go "), "{message}");
        assert_eq!(event["type"], "Warning");
    }
}
