//! Expiration, garbage collection, consistency, hydration and pod events, on the embedded control plane under a virtual clock.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

mod scripted;

use kerf_controllers::lifecycle::Lifecycle;
use kerf_controllers::metrics::Metrics;
use kerf_controllers::resource::WATCHED;
use kerf_controllers::{Duty, Errand, Operator, Wake, upkeep};
use kerf_mirror::{Kind, Object, ObjectKey};
use kerf_model::UnixMillis;
use kerf_simulation::{Rehearsal, Setup};
use scripted::*;
use serde_json::{Value, json};
use std::sync::Arc;

fn all() -> Vec<Box<dyn Duty>> {
    let mut duties: Vec<Box<dyn Duty>> = vec![Box::new(Lifecycle::default())];
    duties.extend(upkeep::duties());
    duties
}

fn is_deleting(it: &Rehearsal, name: &str) -> bool {
    it.get(&format!("{CLAIMS}/{name}")).is_none_or(|claim| !claim["metadata"]["deletionTimestamp"].is_null())
}

fn disrupted(reason: &str) -> String {
    let series = format!("reason=\"{reason}\",nodepool=\"\",capacity_type=\"on-demand\",consolidation_policy=\"\"");
    format!("karpenter_nodeclaims_disrupted_total{{{series},termination_mode=\"graceful\"}} 1")
}

fn pod(name: &str, node: &str, owner: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "a", "image": "a"}], "tolerations": [{"operator": "Exists"}]},
    });
    if !node.is_empty() {
        pod["spec"]["nodeName"] = json!(node);
    }
    if !owner.is_empty() {
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "u", "controller": true}]);
    }
    pod
}

// Expiration.

#[test]
fn an_expired_claim_is_deleted_whatever_its_node_says() {
    let (mut it, _) = rehearse(all);
    make_ready(&mut it, "c", &json!({"expireAfter": "1h"}));
    make_ready(&mut it, "d", &json!({"expireAfter": "Never"}));
    let annotations = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    it.patch("/api/v1/nodes/node-of-c", &annotations);
    it.create_value(&pod("p", "node-of-c", ""));
    let created: jiff::Timestamp =
        get_claim(&it, "c")["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
    let age = it.now().duration_since(created).as_secs();
    it.run_for(3_600 - age - 1);
    assert!(!is_deleting(&it, "c"));
    it.run_for(1);
    assert!(is_deleting(&it, "c"));
    assert!(counts(&it, &disrupted("expired")));
    assert!(counts(&it, &disrupted("expired").replace("nodeclaims_disrupted", "pods_disruption_initiated")));
    it.run_for(3_600);
    assert!(!is_deleting(&it, "d"));
}

#[test]
fn an_expired_claim_stays_while_its_node_cannot_be_read_and_the_others_go() {
    let options = Setup::default().options;
    let cloud = Arc::new(ScriptedCloud::default());
    let mut operator = Operator::with_duties(options, cloud, Arc::new(Metrics::default()), upkeep::duties());
    for name in ["odd", "plain"] {
        let mut object = claim(name, &json!({"expireAfter": "1h"}));
        object["metadata"] = json!({
            "name": name, "uid": name, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
        });
        object["status"] = json!({"providerID": format!("cloud://{name}"), "nodeName": name});
        operator.wake(Wake::Observed(Box::new(Object::read(object).unwrap())));
    }
    let node = ObjectKey { kind: Kind::Node, class_kind: None, namespace: "".into(), name: "odd".into() };
    let (what, field, message) = ("Node odd".into(), "spec".into(), "odd".into());
    operator.wake(Wake::Unreadable { key: Some(node.clone()), what, field, message });
    WATCHED.iter().map(|(kind, _)| *kind).chain([Kind::NodeClass]).for_each(|kind| operator.wake(Wake::Synced(kind)));
    let deleted = |operator: &mut Operator| -> Vec<String> {
        let errands = operator.work(UnixMillis(1_767_225_600_000 + 3_600_000)).errands.into_iter();
        let paths = errands.filter_map(|(_, errand)| match errand {
            Errand::Api(call) if call.method == "DELETE" => Some(call.path),
            _ => None,
        });
        paths.collect()
    };
    assert_eq!(deleted(&mut operator), [format!("{CLAIMS}/plain")]);
    operator.wake(Wake::Gone(node, None));
    assert_eq!(deleted(&mut operator), [format!("{CLAIMS}/odd")]);
}

#[test]
fn a_claim_that_expired_while_nobody_was_there_is_deleted_at_once() {
    let (mut it, _) = rehearse(all);
    make_ready(&mut it, "c", &json!({"expireAfter": "30s"}));
    it.kill();
    it.run_for(60);
    assert!(!is_deleting(&it, "c"));
    it.revive();
    it.settle();
    assert!(is_deleting(&it, "c"));
}

// Garbage collection.

#[test]
fn a_claim_whose_machine_is_gone_and_whose_node_is_dead_is_collected_within_two_minutes() {
    let (mut it, cloud) = rehearse(all);
    make_ready(&mut it, "c", &json!({}));
    cloud.script().instances.clear();
    it.run_for(250);
    assert!(!is_deleting(&it, "c"), "a node that says that it lives is believed");
    // Without its kubelet the node is declared lost.
    it.patch("/api/v1/nodes/node-of-c", &json!({"metadata": {"annotations": {"kwok.x-k8s.io/node": null}}}));
    it.run_until("the claim is collected", 400, |it| is_deleting(it, "c"));
    assert!(counts(&it, &disrupted("garbage_collected")));
}

#[test]
fn an_instance_that_is_ending_counts_as_gone() {
    let (mut it, cloud) = rehearse(all);
    make_ready(&mut it, "c", &json!({}));
    cloud.script().instances.values_mut().for_each(|instance| instance.is_ending = true);
    it.delete("/api/v1/nodes/node-of-c");
    it.settle();
    let_go(&mut it, "node-of-c");
    it.run_until("the claim is collected", 130, |it| is_deleting(it, "c"));
}

#[test]
fn a_claim_that_is_not_registered_is_not_garbage() {
    let (mut it, cloud) = rehearse(all);
    it.create_value(&claim("c", &json!({})));
    it.settle();
    cloud.script().instances.clear();
    it.run_for(600);
    assert!(!is_deleting(&it, "c"));
}

#[test]
fn a_claim_that_registers_while_the_cloud_counts_is_not_garbage() {
    let (mut it, cloud) = rehearse(all);
    cloud.script().is_counting = true;
    it.settle();
    assert_eq!(cloud.script().n_lists, 1, "the first look is at the beginning");
    it.create_value(&claim("c", &json!({})));
    it.settle();
    let node = node_for(&it, "c", false);
    it.create_value(&node);
    it.settle();
    assert_eq!(condition(&get_claim(&it, "c"), "Registered"), "True Registered");
    cloud.script().is_counting = false;
    it.run_for(1);
    assert!(!is_deleting(&it, "c"), "it was not there when the cloud was asked");
    it.run_for(300);
    assert!(!is_deleting(&it, "c"), "its machine is listed by now");
    assert_eq!(cloud.script().n_lists, 3, "every two minutes");
}

#[test]
fn a_claim_whose_provider_id_is_replaced_by_a_fake_one_is_collected_on_kwok() {
    let mut it = Rehearsal::new(Setup::default().with_duties(all));
    it.create(CLASS);
    let types = json!([{
        "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-16x-amd64-linux"],
    }]);
    it.create_value(&claim("c", &json!({"requirements": types})));
    it.run_until("ready", 60, |it| condition(&get_claim(it, "c"), "Ready") == "True Ready");
    it.patch(&format!("{CLAIMS}/c/status"), &json!({"status": {"providerID": "kwok://fake"}}));
    it.run_until("collected", 130, |it| !has_claim(it, "c"));
}

// Consistency.

#[test]
fn a_node_with_less_than_nine_tenths_of_what_was_promised_is_told_every_ten_minutes_and_kept() {
    let (mut it, _) = rehearse(all);
    it.create_value(&claim("c", &json!({"resources": {"requests": {"cpu": "1"}}})));
    it.settle();
    let mut node = node_for(&it, "c", true);
    node["status"]["capacity"]["cpu"] = json!("3");
    it.create_value(&node);
    it.run_until("told", 60, |it| condition(&get_claim(it, "c"), "ConsistentStateFound").starts_with("False"));
    assert_eq!(condition(&get_claim(&it, "c"), "ConsistentStateFound"), "False ConsistencyCheckFailed");
    let told = "expected 4 of resource cpu, but found 3 (75.0% of expected)";
    assert_eq!(it.events("FailedConsistencyCheck"), [told]);
    it.patch("/api/v1/nodes/node-of-c/status", &json!({"status": {"capacity": {"cpu": "4"}}}));
    it.run_for(500);
    assert_eq!(condition(&get_claim(&it, "c"), "ConsistentStateFound"), "False ConsistencyCheckFailed");
    it.run_for(101);
    assert_eq!(condition(&get_claim(&it, "c"), "ConsistentStateFound"), "True ConsistentStateFound");
    assert_eq!(condition(&get_claim(&it, "c"), "Ready"), "True Ready");
}

// Hydration.

#[test]
fn claims_and_nodes_get_the_label_of_their_class() {
    let (mut it, _) = rehearse(all);
    make_ready(&mut it, "c", &json!({}));
    let label = "karpenter.kwok.sh/kwoknodeclass";
    assert_eq!(get_claim(&it, "c")["metadata"]["labels"][label], "default");
    assert_eq!(it.nodes()[0]["metadata"]["labels"][label], "default");
    it.patch(&format!("{CLAIMS}/c"), &json!({"metadata": {"labels": {label: null}}}));
    it.patch("/api/v1/nodes/node-of-c", &json!({"metadata": {"labels": {label: null}}}));
    it.settle();
    assert_eq!(get_claim(&it, "c")["metadata"]["labels"][label], "default");
    assert_eq!(it.nodes()[0]["metadata"]["labels"][label], "default");
}

// Pod events.

#[test]
fn a_claim_remembers_when_a_pod_last_came_or_went_but_not_more_often_than_every_ten_seconds() {
    let (mut it, _) = rehearse(all);
    make_ready(&mut it, "c", &json!({}));
    let last = |it: &Rehearsal| get_claim(it, "c")["status"]["lastPodEventTime"].clone();
    assert_eq!(last(&it), Value::Null);
    it.create_value(&pod("daemon", "node-of-c", "DaemonSet"));
    it.create_value(&pod("waiting", "", ""));
    it.settle();
    let first = it.now();
    it.create_value(&pod("p", "node-of-c", ""));
    it.settle();
    let stamp = |at: jiff::Timestamp| json!(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let came = last(&it);
    assert_eq!(came, stamp(first));
    it.run_for(5);
    it.create_value(&pod("q", "node-of-c", ""));
    it.settle();
    assert_eq!(last(&it), came, "a burst is one event");
    it.run_for(6);
    it.delete("/api/v1/namespaces/default/pods/p");
    let second = it.now();
    it.settle();
    assert_eq!(last(&it), stamp(second));
}
