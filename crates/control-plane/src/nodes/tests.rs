//! Nodes that fall silent, and what becomes of their pods, on the embedded control plane.

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;

use crate::kubelet::rehearsal::Rehearsal;

#[test]
fn pods_leave_a_dead_node_after_five_minutes() {
    let stage = Rehearsal::new();
    stage.boot("alive", "a");
    stage.boot("dead", "a");
    let tolerations = json!([{"operator": "Exists", "effect": "NoExecute"}]);
    stage.pod("web", json!({"nodeName": "dead"}));
    stage.pod("stays", json!({"nodeName": "dead", "tolerations": tolerations}));
    stage.pass(5);
    stage.plane.machines().power_off("dead");
    stage.pass(39);
    assert_eq!((stage.taints("dead").as_str(), stage.seen("web").as_str()), ("", "Running ready"));
    stage.pass(12);
    assert_eq!(stage.taints("dead"), "unreachable:NoExecute unreachable:NoSchedule");
    assert_eq!(stage.seen("web"), "Running");
    let ready = stage.get::<Node>("dead").status.unwrap().conditions.unwrap();
    let ready = ready.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!(
        (ready.status.as_str(), ready.reason.as_deref(), ready.message.as_deref()),
        ("Unknown", Some("NodeStatusUnknown"), Some("Kubelet stopped posting node status."))
    );
    stage.pass(280);
    assert_eq!(stage.seen("web"), "Running");
    stage.pass(20);
    // Nobody is there to end it, and so it stays as it is until its node goes or comes back.
    assert_eq!((stage.seen("web").as_str(), stage.seen("stays").as_str()), ("Running deleting", "Running"));
    assert!(
        stage
            .events("web")
            .contains("Normal TaintManagerEviction (taint-eviction-controller) Marking for deletion Pod default/web")
    );
    assert!(stage.events("web").contains("Warning NodeNotReady (node-controller) Node is not ready"));
    assert!(
        stage.events("dead").contains("Normal NodeNotReady (node-controller) Node dead status is now: NodeNotReady")
    );
    let disrupted = stage.get::<Pod>("web").status.unwrap().conditions.unwrap();
    let disrupted = disrupted.iter().find(|condition| condition.type_ == "DisruptionTarget").unwrap();
    assert_eq!(disrupted.reason.as_deref(), Some("DeletionByTaintManager"));

    stage.plane.machines().power_on("dead");
    stage.pass(5);
    assert_eq!((stage.taints("dead").as_str(), stage.seen("web").as_str()), ("", "gone"));
    assert_eq!(stage.seen("stays"), "Running ready");
}

#[test]
fn a_node_that_comes_back_in_time_keeps_its_pods() {
    let stage = Rehearsal::new();
    stage.boot("alive", "a");
    stage.boot("flaky", "a");
    stage.pod("web", json!({"nodeName": "flaky"}));
    stage.pass(5);
    stage.plane.machines().power_off("flaky");
    stage.pass(120);
    assert_eq!(stage.taints("flaky"), "unreachable:NoExecute unreachable:NoSchedule");
    stage.plane.machines().power_on("flaky");
    stage.pass(600);
    assert_eq!((stage.taints("flaky").as_str(), stage.seen("web").as_str()), ("", "Running ready"));
    assert!(stage.events("web").contains("Cancelling deletion of Pod default/web"));
}

#[test]
fn pods_of_a_node_that_is_gone_are_deleted() {
    let stage = Rehearsal::new();
    stage.boot("n", "a");
    stage.pod("web", json!({"nodeName": "n"}));
    stage.pass(5);
    stage.plane.machines().terminate("n");
    stage.delete::<Node>("n");
    stage.pass(39);
    assert_eq!(stage.seen("web"), "Running ready");
    stage.pass(2);
    assert_eq!(stage.seen("web"), "gone");
    assert!(
        stage
            .events("n")
            .contains("Normal RemovingNode (node-controller) Node n event: Removing Node n from Controller")
    );
}

#[test]
fn when_every_node_falls_silent_nobody_is_evicted() {
    let stage = Rehearsal::new();
    stage.boot("one", "a");
    stage.boot("two", "b");
    stage.pod("web", json!({"nodeName": "one"}));
    stage.pass(5);
    stage.plane.machines().power_off("one");
    stage.plane.machines().power_off("two");
    stage.pass(1200);
    assert_eq!((stage.taints("one").as_str(), stage.seen("web").as_str()), ("unreachable:NoSchedule", "Running"));
}

#[test]
fn a_cordoned_node_is_tainted() {
    let stage = Rehearsal::new();
    stage.boot("n", "a");
    for (is_unschedulable, expected) in [(true, "unschedulable:NoSchedule"), (false, "")] {
        let patch = json!({"spec": {"unschedulable": is_unschedulable}});
        stage.with(|hands| hands.merge_patch::<Node>("", "n", None, &patch)).unwrap();
        stage.plane.settle();
        assert_eq!(stage.taints("n"), expected);
    }
}

#[test]
fn an_out_of_service_node_lets_go_of_its_pods() {
    let stage = Rehearsal::new();
    stage.boot("alive", "a");
    stage.boot("dead", "a");
    stage.pod("web", json!({"nodeName": "dead"}));
    stage.pass(5);
    stage.plane.machines().power_off("dead");
    stage.pass(60);
    let mut taints = stage.get::<Node>("dead").spec.unwrap().taints.unwrap();
    taints.push(
        serde_json::from_value(json!({"key": super::OUT_OF_SERVICE, "effect": "NoExecute", "value": "nodeshutdown"}))
            .unwrap(),
    );
    stage.with(|hands| hands.merge_patch::<Node>("", "dead", None, &json!({"spec": {"taints": taints}}))).unwrap();
    stage.pass(1);
    assert_eq!(stage.seen("web"), "gone");
}
