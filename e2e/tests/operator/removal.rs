//! How nodes go: by their age, by their owner's wish, and never before their pods.

use std::time::SystemTime;

use serde_json::{Value, json};

use crate::scene::{DISRUPTED, has_taint, is_going, is_true, name};
use crate::stage::{NODE_CLAIMS, NODES, Stage};
use crate::tests;

tests!(
    an_expired_node_is_replaced,
    an_expired_node_whose_pods_have_a_budget_gets_one_replacement,
    a_termination_grace_period_ends_what_asks_not_to_be_disrupted,
    a_pod_that_takes_its_time_to_end_is_waited_for,
    a_held_pod_keeps_its_node_until_its_time_is_over_or_the_annotation_goes,
    a_node_is_drained_in_four_tiers,
    an_empty_node_goes_when_its_time_has_passed,
    a_budget_of_none_keeps_an_empty_node,
    a_budget_of_none_at_this_hour_keeps_an_empty_node,
);

const HOLD: &str = "karpenter.sh/do-not-disrupt";

fn hold(template: &mut Value, value: &str) {
    template["metadata"]["annotations"] = json!({HOLD: value});
}

fn only_claim(stage: &Stage<'_>) -> String {
    stage.wait_for("one claim, ready", || stage.n_ready_claims() == 1 && stage.claims().len() == 1);
    format!("{NODE_CLAIMS}/{}", name(&stage.claims()[0]))
}

fn only_pod(stage: &Stage<'_>, app: &str) -> String {
    let pods = stage.pods(app);
    assert_eq!(pods.len(), 1, "pods of {app}");
    stage.object("v1", "pods", &name(&pods[0]))
}

fn an_expired_node_is_replaced(stage: &Stage<'_>) {
    stage.add_pool(|pool| pool["spec"]["template"]["spec"]["expireAfter"] = json!("30s"));
    stage.add_deployment("inflate", 1, |_| {});
    stage.wait_until_running("inflate", 1);
    let first = stage.only_node_of("inflate");
    stage.wait_for("the node to go", || stage.is_gone(&format!("{NODES}/{first}")));
    stage.wait_for("the pod to run elsewhere", || {
        let pods = stage.pods("inflate");
        pods.iter().any(|pod| pod["status"]["phase"] == "Running" && pod["spec"]["nodeName"] != first.as_str())
    });
}

/// The replacement is bought for all the pods that have to leave, though the budget lets them leave one by one.
fn an_expired_node_whose_pods_have_a_budget_gets_one_replacement(stage: &Stage<'_>) {
    const PODS: usize = 5;
    stage.add_pool(|pool| pool["spec"]["template"]["spec"]["expireAfter"] = json!("30s"));
    stage.add_deployment("inflate", PODS, |_| {});
    stage.wait_until_running("inflate", PODS);
    // The replacement is to stay.
    stage.patch(&stage.pool_path(), &json!({"spec": {"template": {"spec": {"expireAfter": "Never"}}}}));
    let first = stage.only_node_of("inflate");
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "inflate"},
        "spec": {"minAvailable": PODS - 1, "selector": {"matchLabels": {"app": "inflate"}}},
    });
    stage.create(&stage.at("policy/v1", "poddisruptionbudgets"), &budget);
    stage.wait_for("the node to go", || stage.is_gone(&format!("{NODES}/{first}")));
    stage.wait_until_running("inflate", PODS);
    stage.wait_for("the first claim to go", || {
        stage.claims().iter().all(|claim| claim["status"]["nodeName"] != first.as_str())
    });
    assert_eq!(stage.claims().len(), 1, "one replacement for all");
    assert_ne!(stage.only_node_of("inflate"), first);
}

fn a_termination_grace_period_ends_what_asks_not_to_be_disrupted(stage: &Stage<'_>) {
    stage.add_pool(|pool| pool["spec"]["template"]["spec"]["terminationGracePeriod"] = json!("20s"));
    stage.add_deployment("held", 1, |template| {
        hold(template, "true");
        template["spec"]["terminationGracePeriodSeconds"] = json!(5);
    });
    stage.wait_until_running("held", 1);
    let (claim, node, pod) = (only_claim(stage), stage.only_node_of("held"), only_pod(stage, "held"));
    stage.delete(&claim);
    let node = format!("{NODES}/{node}");
    stage.wait_for("the node to be tainted", || has_taint(&stage.read(&node), DISRUPTED));
    assert!(!is_going(&stage.read(&pod)), "the pod has its time yet");
    stage
        .wait_for("pod, node and claim to go", || stage.is_gone(&pod) && stage.is_gone(&node) && stage.is_gone(&claim));
}

/// A finalizer holds the pod, as a long preStop hook would: the kubelets of these clusters end pods at once.
fn a_pod_that_takes_its_time_to_end_is_waited_for(stage: &Stage<'_>) {
    stage.add_pool(|pool| pool["spec"]["template"]["spec"]["terminationGracePeriod"] = json!("10m"));
    stage.add_deployment("slow", 1, |_| {});
    stage.wait_until_running("slow", 1);
    let (claim, node, pod) = (only_claim(stage), stage.only_node_of("slow"), only_pod(stage, "slow"));
    let node = format!("{NODES}/{node}");
    stage.patch(&pod, &json!({"metadata": {"finalizers": ["kerf.test/slow"]}}));
    stage.delete(&claim);
    stage.wait_for("the pod to be on its way out", || is_going(&stage.read(&pod)));
    stage.wait_for("the drain to be told as waiting", || is_told_as_draining(stage, &node));
    assert!(has_taint(&stage.read(&node), DISRUPTED) && is_going(&stage.read(&claim)));
    stage.patch(&pod, &json!({"metadata": {"finalizers": null}}));
    stage
        .wait_for("pod, node and claim to go", || stage.is_gone(&pod) && stage.is_gone(&node) && stage.is_gone(&claim));
}

/// The times are counted from the pods' start. Nobody but the last asks for good.
fn a_held_pod_keeps_its_node_until_its_time_is_over_or_the_annotation_goes(stage: &Stage<'_>) {
    const HELD: [(&str, &str); 3] = [("for-a-while", "20s"), ("for-longer", "45s"), ("for-good", "true")];
    stage.add_pool(|_| {});
    for (app, value) in HELD {
        stage.add_deployment(app, 1, |template| hold(template, value));
    }
    for (app, _) in HELD {
        stage.wait_until_running(app, 1);
    }
    let claim = only_claim(stage);
    let [for_a_while, for_longer, for_good] = HELD.map(|(app, _)| only_pod(stage, app));
    stage.delete(&claim);
    stage.wait_for("the pod whose time is over to go", || stage.is_gone(&for_a_while));
    assert!(!is_going(&stage.read(&for_longer)) && !is_going(&stage.read(&for_good)));
    stage.wait_for("the pod with more time to go", || stage.is_gone(&for_longer));
    assert!(!is_going(&stage.read(&for_good)) && !stage.is_gone(&claim));
    stage.kubectl_says(&["annotate", "pod", for_good.rsplit('/').next().unwrap(), &format!("{HOLD}-")]);
    stage.wait_for("the last one to go", || stage.is_gone(&for_good));
    stage.wait_for("the claim to go", || stage.is_gone(&claim));
}

/// Whether an event about the node says that pods are waiting.
fn is_told_as_draining(stage: &Stage<'_>, node: &str) -> bool {
    let name = node.rsplit('/').next().unwrap_or_default();
    let events =
        format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name},reason=FailedDraining");
    !stage.list(&events).is_empty()
}

/// Each pod is held by a finalizer while it leaves, so that the turn of the next does not come before we let it.
fn a_node_is_drained_in_four_tiers(stage: &Stage<'_>) {
    const TIERS: [&str; 4] = ["plain", "daemon", "critical", "critical-daemon"];
    // kwok holds a pod for its finalizer; our kubelets end it in its time, which is then long enough to be seen.
    let slow = |template: &mut Value| {
        template["metadata"]["annotations"]["kerf.dev/stops-after"] = json!("8s");
        template["spec"]["terminationGracePeriodSeconds"] = json!(60);
    };
    let critical = |template: &mut Value| {
        slow(template);
        template["spec"]["priorityClassName"] = json!("system-cluster-critical");
    };
    stage.add_pool(|_| {});
    stage.add_daemon("daemon", "100m", slow);
    stage.add_daemon("critical-daemon", "100m", critical);
    stage.add_deployment("plain", 1, slow);
    stage.wait_until_running("plain", 1);
    stage.add_deployment("critical", 1, |template| {
        critical(template);
        template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("100m");
        template["spec"]["nodeSelector"]["kubernetes.io/hostname"] =
            stage.nodes()[0]["metadata"]["labels"]["kubernetes.io/hostname"].clone();
    });
    for app in TIERS {
        stage.wait_until_running(app, 1);
    }
    let (claim, node) = (only_claim(stage), format!("{NODES}/{}", stage.only_node_of("plain")));
    let pods = TIERS.map(|app| only_pod(stage, app));
    for pod in &pods {
        stage.patch(pod, &json!({"metadata": {"finalizers": ["kerf.test/slow"]}}));
    }
    stage.delete(&claim);
    stage.wait_for("the drain to be told as waiting", || is_told_as_draining(stage, &node));
    for (index, pod) in pods.iter().enumerate() {
        stage.wait_for(&format!("the turn of {}", TIERS[index]), || is_going(&stage.read(pod)));
        for (later, app) in pods.iter().zip(TIERS).skip(index + 1) {
            assert!(!is_going(&stage.read(later)), "{app} before its turn, which comes after {}", TIERS[index]);
        }
        stage.patch(pod, &json!({"metadata": {"finalizers": null}}));
    }
    stage.wait_for("node and claim to go", || stage.is_gone(&node) && stage.is_gone(&claim));
}

/// An empty node in a pool with this disruption block.
fn empty_node(stage: &Stage<'_>, change: impl FnOnce(&mut Value)) {
    stage.add_pool(|pool| change(&mut pool["spec"]["disruption"]));
    stage.add_deployment("inflate", 1, |_| {});
    stage.wait_until_running("inflate", 1);
    only_claim(stage);
    stage.delete(&stage.object("apps/v1", "deployments", "inflate"));
    stage.wait_for("the node to be empty", || stage.pods("inflate").is_empty());
}

fn an_empty_node_goes_when_its_time_has_passed(stage: &Stage<'_>) {
    empty_node(stage, |disruption| disruption["consolidateAfter"] = json!("15s"));
    assert_eq!(stage.claims().len(), 1, "it stays for a while");
    stage.wait_until_no_node_is_left();
}

/// The node may go, and nobody lets it, until the budget allows it.
fn kept_by_a_budget(stage: &Stage<'_>, budget: &Value) {
    empty_node(stage, |disruption| {
        disruption["consolidateAfter"] = json!("0s");
        disruption["budgets"] = json!([budget]);
    });
    stage.wait_for("the claim to be consolidatable", || is_true(&stage.claims()[0], "Consolidatable"));
    let events = format!(
        "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={},reason=DisruptionBlocked",
        stage.namespace
    );
    stage.wait_for("the pool to be told as blocked", || !stage.list(&events).is_empty());
    assert!(stage.claims().len() == 1 && !is_going(&stage.claims()[0]));
    stage.patch(&stage.pool_path(), &json!({"spec": {"disruption": {"budgets": [{"nodes": "100%"}]}}}));
    stage.wait_until_no_node_is_left();
}

fn a_budget_of_none_keeps_an_empty_node(stage: &Stage<'_>) {
    kept_by_a_budget(stage, &json!({"nodes": "0"}));
}

/// A window of two hours, begun an hour ago.
fn a_budget_of_none_at_this_hour_keeps_an_empty_node(stage: &Stage<'_>) {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let an_hour_ago = (seconds / 3600 + 23) % 24;
    let schedule = format!("{} {an_hour_ago} * * *", seconds / 60 % 60);
    kept_by_a_budget(stage, &json!({"nodes": "0", "schedule": schedule, "duration": "2h"}));
}
