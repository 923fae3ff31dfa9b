//! The whole story on a real Kubernetes: from an empty account to an empty account.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Test;
use crate::manifests::{deployment, node_class, node_pool, spot_interruption};
use crate::stage::{
    CLUSTER, NODE_CLAIMS, NODE_CLASSES, NODE_POOLS, NODES, Needs, Stage, condition, is_true, name, text,
};

pub(crate) const TESTS: &[Test] = &[Test {
    name: "pods_get_machines_that_are_interrupted_drift_and_go_and_the_account_is_empty_in_the_end",
    needs: Needs::Real,
    body: life,
}];

/// What AWS gives.
const NOTICE: Duration = Duration::from_secs(120);

fn life(stage: &mut Stage) {
    stage.start_operator();
    machines_come_with_pods(stage);
    a_restart_adopts_everything(stage);
    an_interruption_is_over_before_the_machine(stage);
    another_image_is_drift(stage);
    a_deleted_node_ends_its_machine(stage);
    machines_go_with_pods(stage);
    stage.leave_nothing();
    stage.check_rights();
}

fn machines_come_with_pods(stage: &Stage) {
    stage.apply(&[node_class(CLUSTER), node_pool("default", &["spot", "on-demand"])]);
    stage.wait_for("the class and the pool to be ready", || {
        is_true(&stage.read(&format!("{NODE_CLASSES}/default")), "Ready")
            && is_true(&stage.read(&format!("{NODE_POOLS}/default")), "Ready")
    });
    // Two nodes at least, so that one of them can be lost.
    stage.apply(&[deployment("inflate", "default", 0, true)]);
    stage.kubectl(&["scale", "deployment/inflate", "--replicas=3"], None);
    stage.wait_until_running("inflate", 3);
    assert!(!stage.calls("CreateFleet").is_empty());
    let machines = stage.machines();
    assert_eq!(machines.len(), 3);
    let nodes = stage.list(NODES);
    let ids: BTreeSet<String> = nodes.iter().map(|node| text(&node["spec"]["providerID"])).collect();
    let expected: BTreeSet<String> = machines.iter().map(|machine| machine.provider_id()).collect();
    assert_eq!(ids, expected);
    for node in &nodes {
        assert_eq!(node["metadata"]["labels"]["karpenter.sh/nodepool"], "default");
        let taints = node["spec"]["taints"].to_string();
        assert!(!taints.contains("karpenter.sh/unregistered"), "{taints}");
    }
    stage.wait_for("the names of node and claim on every machine", || {
        let machines = stage.machines();
        machines.iter().all(|it| it.tag("karpenter.sh/nodeclaim").is_some() && it.tag("Name").is_some())
    });
}

fn a_restart_adopts_everything(stage: &mut Stage) {
    let before: BTreeSet<String> = stage.machines().into_iter().map(|machine| machine.id).collect();
    let claims: BTreeSet<String> = stage.claims().iter().map(name).collect();
    stage.kill_operator();
    stage.start_operator();
    stage.kubectl(&["scale", "deployment/inflate", "--replicas=4"], None);
    stage.wait_until_running("inflate", 4);
    let after: BTreeSet<String> = stage.machines().into_iter().map(|machine| machine.id).collect();
    assert!(before.is_subset(&after) && after.len() == 4, "before {before:?}, after {after:?}");
    let kept: BTreeSet<String> = stage.claims().iter().map(name).collect();
    assert!(claims.is_subset(&kept), "before {claims:?}, after {kept:?}");
}

fn an_interruption_is_over_before_the_machine(stage: &Stage) {
    let spot = stage.machines().into_iter().find(|machine| machine.is_spot).expect("spot is cheaper, so there is some");
    let began = Instant::now();
    let queue = stage.prepared.queue_url.clone();
    stage.account.send(&queue, &[spot_interruption(&spot.id, "first")]).unwrap();
    stage.wait_for("the interrupted machine to be replaced", || {
        let machines = stage.machines();
        machines.iter().all(|machine| machine.id != spot.id) && stage.n_running("inflate") == 4
    });
    let took = began.elapsed();
    assert!(took < NOTICE, "{took:?}");
    stage.wait_for("four machines and four claims", || stage.machines().len() == 4 && stage.claims().len() == 4);
    stage.wait_for("the queue to be empty", || stage.account.n_messages(&queue).unwrap() == (0, 0));
    let events = stage.list("/api/v1/events");
    assert!(events.iter().any(|event| event["reason"] == "SpotInterrupted"));
}

fn another_image_is_drift(stage: &Stage) {
    let pinned = json!({"spec": {"amiSelectorTerms": [{"alias": "al2023@v20260115"}]}});
    stage.kubectl(&["patch", "ec2nodeclass", "default", "--type=merge", "-p", &pinned.to_string()], None);
    stage.wait_for("every claim to say that its image is no longer the class's", || {
        let claims = stage.list(NODE_CLAIMS);
        let is_drifted = |claim| {
            let drifted = condition(claim, "Drifted");
            drifted["status"] == "True" && drifted["reason"] == "AMIDrift"
        };
        !claims.is_empty() && claims.iter().all(is_drifted)
    });
}

fn a_deleted_node_ends_its_machine(stage: &Stage) {
    let node = stage.list(NODES).remove(0);
    let id = text(&node["spec"]["providerID"]);
    stage.kubectl(&["delete", "node", &name(&node), "--wait=false"], None);
    stage.wait_for("the machine of a deleted node to end, and its pod to run elsewhere", || {
        let machines = stage.machines();
        machines.iter().all(|machine| machine.provider_id() != id) && stage.n_running("inflate") == 4
    });
}

fn machines_go_with_pods(stage: &Stage) {
    stage.kubectl(&["scale", "deployment/inflate", "--replicas=0"], None);
    stage.wait_for("every machine to end", || stage.machines().is_empty() && stage.claims().is_empty());
}
