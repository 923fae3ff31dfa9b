//! The eviction queue before a server that answers as the test says.

use crate::stage::{Machines, duties, node};
use kerf_controllers::errand::ApiFailure;
use kerf_controllers::metrics::Metrics;
use kerf_controllers::resource::WATCHED;
use kerf_controllers::{ApiCall, Errand, Operator, Options, Outcome, Ticket, Wake};
use kerf_mirror::{Kind, MirrorSettings, Object, View};
use kerf_model::UnixMillis;
use serde_json::{Value, json};
use std::sync::Arc;

/// An operator that has seen these objects.
fn operator(objects: &[Value]) -> Operator {
    let options = Options::new(MirrorSettings::new(View::Live));
    let mut operator =
        Operator::with_duties(options, Arc::new(Machines::default()), Arc::new(Metrics::default()), duties());
    for object in objects {
        observe(&mut operator, object);
    }
    for kind in WATCHED.iter().map(|(kind, _)| *kind).chain([Kind::NodeClass]) {
        operator.wake(Wake::Synced(kind));
    }
    operator
}

fn observe(operator: &mut Operator, object: &Value) {
    operator.wake(Wake::Observed(Box::new(Object::read(object.clone()).unwrap())));
}

fn forget(operator: &mut Operator, object: &Value) {
    operator.wake(Wake::Gone(Object::read(object.clone()).unwrap().key(), None));
}

/// A node without a claim, tainted already: nothing is written but evictions, and at last its finalizers.
fn leaving(name: &str) -> Value {
    let mut node = node(name);
    node["metadata"]["uid"] = json!(name);
    node["metadata"]["resourceVersion"] = json!("1");
    node["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    node["metadata"]["labels"]["node.kubernetes.io/exclude-from-external-load-balancers"] = json!("karpenter");
    node["spec"]["taints"] = json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]);
    node["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    node
}

fn pod(name: &str, uid: &str, node: &str, version: u64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": uid, "resourceVersion": version.to_string()},
        "spec": {"nodeName": node, "containers": []}, "status": {"phase": "Running"},
    })
}

/// The requests of a round that are not events.
fn requests(operator: &mut Operator, now: i64) -> Vec<(Ticket, ApiCall)> {
    let batch = operator.work(UnixMillis(now));
    let calls = batch.errands.into_iter().filter_map(|(ticket, errand)| match errand {
        Errand::Api(call) if !call.path.ends_with("/events") => Some((ticket, call)),
        _ => None,
    });
    calls.collect()
}

fn is_eviction(call: &ApiCall) -> bool {
    call.path.ends_with("/eviction")
}

fn refusal(status: u16) -> Outcome {
    Outcome::Api(Err(ApiFailure { status, reason: String::new(), message: "no".to_owned() }))
}

#[test]
fn however_many_pods_must_leave_only_some_requests_are_under_way() {
    const N_NODES: usize = 500;
    const PODS_PER_NODE: usize = 10;
    let nodes: Vec<Value> = (0..N_NODES).map(|n| leaving(&format!("n{n:03}"))).collect();
    let pods: Vec<Value> = (0..N_NODES * PODS_PER_NODE)
        .map(|n| pod(&format!("p{n}"), &format!("uid-{n}"), &format!("n{:03}", n % N_NODES), 1))
        .collect();
    let mut operator = operator(&[nodes, pods.clone()].concat());
    let (mut n_evicted, mut n_released) = (0, 0);
    for round in 0.. {
        let calls = requests(&mut operator, round);
        if calls.is_empty() {
            break;
        }
        assert!(calls.iter().filter(|(_, call)| is_eviction(call)).count() <= 200);
        for (ticket, call) in calls {
            if is_eviction(&call) {
                n_evicted += 1;
                let n: usize = ticket.key.trim_start_matches("uid-").parse().unwrap();
                forget(&mut operator, &pods[n]);
            } else if call.method != "GET" {
                // Before that the API server is asked once who is left.
                n_released += 1;
            }
            operator.wake(Wake::Done(ticket, Outcome::Api(Ok(Value::Null))));
        }
    }
    assert_eq!((n_evicted, n_released), (N_NODES * PODS_PER_NODE, N_NODES));
    assert_eq!(operator.n_busy(), 0);
}

#[test]
fn the_server_is_asked_once_until_the_pod_is_seen_leaving() {
    let mut operator = operator(&[leaving("n"), pod("a", "first", "n", 1)]);
    let mut asked = requests(&mut operator, 0);
    assert_eq!(asked.len(), 1);
    operator.wake(Wake::Done(asked.remove(0).0, Outcome::Api(Ok(Value::Null))));
    assert!(requests(&mut operator, 0).is_empty());
    let mut again = leaving("n");
    again["metadata"]["resourceVersion"] = json!("2");
    observe(&mut operator, &again);
    assert!(requests(&mut operator, 1_000).is_empty());
    assert!(requests(&mut operator, 9_999).is_empty());
    assert_eq!(requests(&mut operator, 10_000).len(), 1, "something is wrong: asked again");
}

#[test]
fn a_pod_that_went_meanwhile_is_forgotten() {
    let first = pod("a", "first", "n", 1);
    let mut operator = operator(&[leaving("n"), first.clone()]);
    let (ticket, call) = requests(&mut operator, 0).remove(0);
    assert!(is_eviction(&call));
    operator.wake(Wake::Done(ticket, refusal(404)));
    forget(&mut operator, &first);
    let calls = requests(&mut operator, 0);
    assert!(calls.len() == 1 && !is_eviction(&calls[0].1), "nothing holds the node: {calls:?}");
}

#[test]
fn a_pod_that_was_replaced_by_another_of_its_name_is_not_mistaken_for_it() {
    let mut operator = operator(&[leaving("n"), pod("a", "first", "n", 1)]);
    let (ticket, call) = requests(&mut operator, 0).remove(0);
    assert_eq!(call.body["deleteOptions"]["preconditions"]["uid"], "first");
    operator.wake(Wake::Done(ticket, refusal(409)));
    observe(&mut operator, &pod("a", "second", "n", 2));
    let calls = requests(&mut operator, 0);
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].1.body["deleteOptions"]["preconditions"]["uid"], "second");
    assert!(requests(&mut operator, 60_000).is_empty(), "the first is forgotten, the second is under way");
}

#[test]
fn other_failures_are_tried_again_later_and_later() {
    let mut operator = operator(&[leaving("n"), pod("a", "first", "n", 1)]);
    let mut at = 0;
    for wait in [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000] {
        let (ticket, _) = requests(&mut operator, at).remove(0);
        operator.wake(Wake::Done(ticket, refusal(500)));
        assert!(requests(&mut operator, at).is_empty());
        assert!(requests(&mut operator, at + wait - 1).is_empty());
        at += wait;
    }
    assert_eq!(requests(&mut operator, at).len(), 1);
}
