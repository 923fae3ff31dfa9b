//! Emptiness, rehearsed on the embedded control plane under a virtual clock.
//!
//! Only the duties of disruption run here, on nodes and claims made by hand: what launches nodes and what ends them is rehearsed
//! elsewhere. A claim has its finalizer, so that "goes" means: its deletion was asked for.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

use kerf_controllers::disruption::{Conditioning, Execution, Rounds};
use kerf_controllers::metrics::Metrics;
use kerf_controllers::resource::WATCHED;
use kerf_controllers::standstill::Check;
use kerf_controllers::world::Change;
use kerf_controllers::{ApiCall, Desk, Duty, Errand, Operator, Outcome, Ticket, Wake, World};
use kerf_mirror::{Kind, Object};
use kerf_model::{Text, UnixMillis};
use kerf_simulation::{Rehearsal, Setup};
use serde_json::{Value, json};
use std::sync::Arc;

fn duties() -> Vec<Box<dyn Duty>> {
    vec![
        Box::new(Conditioning::default()),
        Box::new(Rounds::default()),
        Box::new(Execution::default()),
        Box::new(Check::default()),
    ]
}

fn stage(disruption: &Value) -> Rehearsal {
    stage_with(disruption, Setup::default().with_duties(duties))
}

fn stage_with(disruption: &Value, setup: Setup) -> Rehearsal {
    let mut rehearsal = Rehearsal::new(setup);
    rehearsal.create_value(&json!({
        "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}, "spec": {},
    }));
    rehearsal.create_value(&json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {
            "disruption": disruption,
            "template": {"spec": {
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            }},
        },
    }));
    rehearsal.settle();
    rehearsal
}

/// A node and its claim, both initialized now.
fn add_node(rehearsal: &mut Rehearsal, name: &str) {
    let labels = json!({
        "karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
        "karpenter.sh/capacity-type": "on-demand", "node.kubernetes.io/instance-type": "c-2x-amd64-linux",
        "topology.kubernetes.io/zone": "test-zone-a",
    });
    let amounts = json!({"cpu": "2", "memory": "4Gi", "pods": "110"});
    rehearsal.create_value(&json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"providerID": format!("kwok://{name}")},
        "status": {"capacity": amounts, "allocatable": amounts},
    }));
    add_claim(rehearsal, name, &format!("kwok://{name}"));
}

fn add_claim(rehearsal: &mut Rehearsal, name: &str, provider_id: &str) {
    let now = rehearsal.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    rehearsal.create_value(&json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name, "finalizers": ["karpenter.sh/termination"],
            "labels": {"karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "on-demand"}},
        "spec": {
            "requirements": [],
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        },
    }));
    let conditions: Vec<Value> = ["Launched", "Registered", "Initialized", "Ready"]
        .iter()
        .map(|kind| json!({"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": now}))
        .collect();
    let status = json!({"status": {"providerID": provider_id, "nodeName": name, "conditions": conditions}});
    rehearsal.patch(&format!("{}/status", claim_path(name)), &status);
    rehearsal.run_until("the node is ready", 10, |rehearsal| {
        rehearsal.get(&node_path(name)).is_none_or(|node| status_of(&node, "Ready") == "True")
    });
}

fn add_pod(rehearsal: &mut Rehearsal, name: &str, node: &str, metadata: &Value) {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "web"}],
        },
    });
    for (key, value) in metadata.as_object().into_iter().flatten() {
        pod["metadata"][key] = value.clone();
    }
    rehearsal.create_value(&pod);
    let path = pod_path(name);
    rehearsal.run_until("the pod runs", 20, |rehearsal| {
        rehearsal.get(&path).is_some_and(|pod| pod["status"]["phase"] == "Running")
    });
}

fn node_path(name: &str) -> String {
    format!("/api/v1/nodes/{name}")
}

fn claim_path(name: &str) -> String {
    format!("/apis/karpenter.sh/v1/nodeclaims/{name}")
}

fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{name}")
}

const POOL: &str = "/apis/karpenter.sh/v1/nodepools/default";

/// The status of a condition; empty where there is none.
fn status_of(object: &Value, kind: &str) -> String {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == kind);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or_default().to_owned()
}

fn is_consolidatable(rehearsal: &Rehearsal, name: &str) -> bool {
    status_of(&rehearsal.get(&claim_path(name)).unwrap(), "Consolidatable") == "True"
}

fn goes(rehearsal: &Rehearsal, name: &str) -> bool {
    rehearsal.get(&claim_path(name)).unwrap()["metadata"]["deletionTimestamp"].is_string()
}

fn is_tainted(rehearsal: &Rehearsal, name: &str) -> bool {
    let node = rehearsal.get(&node_path(name)).unwrap();
    node["spec"]["taints"].as_array().into_iter().flatten().any(|taint| taint["key"] == "karpenter.sh/disrupted")
}

/// Lets time pass, and sees that nothing happens to the node in it.
#[track_caller]
fn stays_for(rehearsal: &mut Rehearsal, name: &str, seconds: i64) {
    for _ in 0..seconds {
        rehearsal.run_for(1);
        assert!(!goes(rehearsal, name) && !is_tainted(rehearsal, name), "{name} is disrupted");
    }
}

#[track_caller]
fn waits_until_it_goes(rehearsal: &mut Rehearsal, name: &str, seconds: i64) {
    rehearsal.run_until(&format!("{name} goes"), seconds, |rehearsal| goes(rehearsal, name));
}

fn has_event(rehearsal: &Rehearsal, reason: &str, message: &str) -> bool {
    rehearsal.events(reason).iter().any(|found| found == message)
}

fn metric(rehearsal: &Rehearsal, line: &str) -> bool {
    rehearsal.operator().metrics().render().lines().any(|found| found == line)
}

#[test]
fn d0_25_an_empty_node_goes_when_consolidate_after_has_passed() {
    let mut rehearsal = stage(&json!({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s"}));
    add_node(&mut rehearsal, "n1");
    let born = rehearsal.now();
    rehearsal.run_until("it has rested", 31, |rehearsal| is_consolidatable(rehearsal, "n1"));
    let rested = rehearsal.now();
    assert!((rested - born).get_seconds() >= 28, "{born} {rested}");
    stays_for(&mut rehearsal, "n1", 4);
    waits_until_it_goes(&mut rehearsal, "n1", 2);
    assert!(is_tainted(&rehearsal, "n1"));
    let claim = rehearsal.get(&claim_path("n1")).unwrap();
    let conditions = claim["status"]["conditions"].as_array().unwrap();
    let reason = conditions.iter().find(|condition| condition["type"] == "DisruptionReason").unwrap();
    assert_eq!(
        (&reason["status"], &reason["reason"], &reason["message"]),
        (&json!("True"), &json!("Empty"), &json!("Empty"))
    );
    rehearsal.settle();
    assert!(has_event(&rehearsal, "DisruptionTerminating", "Disrupting Node: Empty"));
    assert!(has_event(&rehearsal, "DisruptionTerminating", "Disrupting NodeClaim: Empty"));
    for line in [
        "karpenter_nodeclaims_disrupted_total{reason=\"empty\",nodepool=\"default\",capacity_type=\"on-demand\",consolidation_policy=\"when_empty\",termination_mode=\"graceful\"} 1",
        "karpenter_voluntary_disruption_decisions_total{decision=\"delete\",reason=\"empty\",consolidation_type=\"empty\"} 1",
    ] {
        assert!(metric(&rehearsal, line), "{line} not in {}", rehearsal.operator().metrics().render());
    }
}

#[test]
fn every_policy_lets_empty_nodes_go_and_not_those_in_use() {
    for policy in ["WhenEmpty", "WhenEmptyOrUnderutilized"] {
        let mut rehearsal = stage(&json!({
            "consolidationPolicy": policy, "consolidateAfter": "0s", "budgets": [{"nodes": "100%"}],
        }));
        add_node(&mut rehearsal, "used");
        add_node(&mut rehearsal, "empty");
        add_pod(&mut rehearsal, "p", "used", &json!({}));
        waits_until_it_goes(&mut rehearsal, "empty", 20);
        stays_for(&mut rehearsal, "used", 60);
    }
}

#[test]
fn consolidate_after_never_keeps_an_empty_node_and_says_so() {
    let mut rehearsal = stage(&json!({"consolidateAfter": "Never"}));
    add_node(&mut rehearsal, "n1");
    stays_for(&mut rehearsal, "n1", 120);
    assert!(!is_consolidatable(&rehearsal, "n1"));
    assert!(has_event(&rehearsal, "Unconsolidatable", "NodePool \"default\" has consolidation disabled"));
    // A pool that changes its mind is heard at once.
    rehearsal.patch(POOL, &json!({"spec": {"disruption": {"consolidateAfter": "0s"}}}));
    waits_until_it_goes(&mut rehearsal, "n1", 20);
}

#[test]
fn termination_a_budget_of_0_keeps_an_empty_node_that_is_consolidatable() {
    let mut rehearsal = stage(&json!({"consolidateAfter": "0s", "budgets": [{"nodes": "0"}]}));
    add_node(&mut rehearsal, "n1");
    rehearsal.run_until("it is consolidatable", 5, |rehearsal| is_consolidatable(rehearsal, "n1"));
    stays_for(&mut rehearsal, "n1", 60);
    assert!(is_consolidatable(&rehearsal, "n1"));
    let words = "No allowed disruptions for disruption reason Empty due to blocking budget";
    assert!(has_event(&rehearsal, "DisruptionBlocked", words), "{:?}", rehearsal.events("DisruptionBlocked"));
    assert!(metric(&rehearsal, "karpenter_nodepools_allowed_disruptions{nodepool=\"default\",reason=\"empty\"} 0"));
    assert!(metric(&rehearsal, "karpenter_voluntary_disruption_eligible_nodes{reason=\"empty\"} 1"));
    rehearsal.patch(POOL, &json!({"spec": {"disruption": {"budgets": [{"nodes": "1"}]}}}));
    waits_until_it_goes(&mut rehearsal, "n1", 3);
}

#[test]
fn termination_a_scheduled_budget_of_0_keeps_an_empty_node_while_it_holds() {
    // Rehearsals begin at midnight.
    let budgets = json!([{"nodes": "100%"}, {"nodes": "0", "schedule": "45 23 * * *", "duration": "30m"}]);
    let mut rehearsal = stage(&json!({"consolidateAfter": "0s", "budgets": budgets}));
    add_node(&mut rehearsal, "n1");
    stays_for(&mut rehearsal, "n1", 60);
    assert!(is_consolidatable(&rehearsal, "n1"));
    waits_until_it_goes(&mut rehearsal, "n1", 15 * 60);
    assert_eq!(rehearsal.now().strftime("%H:%M").to_string(), "00:15");
}

#[test]
fn a_share_of_the_pool_rounds_up_and_the_rest_follows_when_there_is_room() {
    let mut rehearsal = stage(&json!({"consolidateAfter": "0s", "budgets": [{"nodes": "50%"}]}));
    let names = ["n1", "n2", "n3"];
    names.iter().for_each(|name| add_node(&mut rehearsal, name));
    let n_going = |rehearsal: &Rehearsal| {
        rehearsal.claims().iter().filter(|claim| claim["metadata"]["deletionTimestamp"].is_string()).count()
    };
    rehearsal.run_for(60);
    assert_eq!(n_going(&rehearsal), 2);
    assert!(metric(&rehearsal, "karpenter_nodepools_nodes_consuming_budgets{nodepool=\"default\",reason=\"empty\"} 2"));
    let going: Vec<&str> = names.into_iter().filter(|name| goes(&rehearsal, name)).collect();
    for name in &going {
        rehearsal.delete(&node_path(name));
        rehearsal.patch(&claim_path(name), &json!({"metadata": {"finalizers": null}}));
    }
    rehearsal.run_until("the last one follows", 5, |rehearsal| n_going(rehearsal) == 1);
}

#[test]
fn a_node_held_by_an_annotation_stays_until_it_is_taken_off() {
    let mut rehearsal = stage(&json!({"consolidateAfter": "0s"}));
    add_node(&mut rehearsal, "n1");
    let hold = |value: Value| json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": value}}});
    rehearsal.patch(&node_path("n1"), &hold(json!("true")));
    stays_for(&mut rehearsal, "n1", 60);
    let words = "Disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation";
    assert_eq!(rehearsal.events("DisruptionBlocked").iter().filter(|found| **found == words).count(), 2);
    rehearsal.patch(&node_path("n1"), &hold(Value::Null));
    waits_until_it_goes(&mut rehearsal, "n1", 20);
}

#[test]
fn a_daemons_pod_does_not_keep_a_node_unless_it_is_held() {
    let mut rehearsal = stage(&json!({"consolidateAfter": "0s"}));
    add_node(&mut rehearsal, "n1");
    // Its DaemonSet is not there, but nobody collects pods of a missing owner that was never seen to go.
    let metadata = json!({
        "annotations": {"karpenter.sh/do-not-disrupt": "90s"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node_uid(&rehearsal, "n1"), "controller": true}],
    });
    add_pod(&mut rehearsal, "d", "n1", &metadata);
    stays_for(&mut rehearsal, "n1", 80);
    let words = "Pod \"default/d\" has \"karpenter.sh/do-not-disrupt\" annotation";
    assert!(has_event(&rehearsal, "DisruptionBlocked", words));
    assert!(!rehearsal.events("DoNotDisruptUntil").is_empty());
    waits_until_it_goes(&mut rehearsal, "n1", 40);
}

fn node_uid(rehearsal: &Rehearsal, name: &str) -> Value {
    rehearsal.get(&node_path(name)).unwrap()["metadata"]["uid"].clone()
}

#[test]
fn a_pod_that_arrives_between_the_two_looks_saves_the_node() {
    let mut rehearsal = stage(&json!({"consolidateAfter": "0s"}));
    add_node(&mut rehearsal, "n1");
    rehearsal.run_for(3);
    add_pod(&mut rehearsal, "p", "n1", &json!({}));
    stays_for(&mut rehearsal, "n1", 60);
    assert!(metric(
        &rehearsal,
        "karpenter_voluntary_disruption_failed_validations_total{consolidation_type=\"empty\"} 1"
    ));
    rehearsal.delete(&pod_path("p"));
    let emptied = rehearsal.now();
    waits_until_it_goes(&mut rehearsal, "n1", 20);
    assert!((rehearsal.now() - emptied).get_seconds() >= 5, "the two looks are 5 s apart again");
}

#[test]
fn a_pod_guarded_by_a_budget_is_told_as_the_reason() {
    let mut rehearsal = stage(&json!({"consolidateAfter": "0s"}));
    add_node(&mut rehearsal, "n1");
    rehearsal.create_value(&json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
    }));
    add_pod(&mut rehearsal, "p", "n1", &json!({}));
    rehearsal.run_for(20);
    assert!(has_event(&rehearsal, "DisruptionBlocked", "Pdb \"default/web\" prevents pod evictions"));
}

#[test]
fn a_node_that_is_not_initialized_is_no_candidate() {
    let mut rehearsal = stage(&json!({"consolidateAfter": "0s"}));
    add_node(&mut rehearsal, "n1");
    rehearsal.patch(&node_path("n1"), &json!({"metadata": {"labels": {"karpenter.sh/initialized": null}}}));
    stays_for(&mut rehearsal, "n1", 40);
    assert!(has_event(&rehearsal, "DisruptionBlocked", "Node isn't initialized"));
    add_claim(&mut rehearsal, "n2", "kwok://nowhere");
    rehearsal.run_for(12);
    assert!(has_event(&rehearsal, "DisruptionBlocked", "NodeClaim does not have an associated node"));
}

/// Speaks for a node until a time, as provisioning does.
struct Nominator;

impl Duty for Nominator {
    fn name(&self) -> &'static str {
        "nominator"
    }

    fn observe(&mut self, _change: &Change, _world: &World) {}

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        let start: i64 = 1_767_225_600_000;
        desk.nominations.nominate(&"n1".into(), UnixMillis(start + 60_000));
        None
    }

    fn done(&mut self, _key: &Text, _outcome: Outcome, _desk: &mut Desk<'_>) {}
}

#[test]
fn a_node_that_was_chosen_for_a_pod_is_left_alone() {
    let with_nominator = || {
        let mut all = duties();
        all.insert(0, Box::new(Nominator));
        all
    };
    let disruption = json!({"consolidateAfter": "0s"});
    let mut rehearsal = stage_with(&disruption, Setup::default().with_duties(with_nominator));
    add_node(&mut rehearsal, "n1");
    while rehearsal.now().strftime("%H:%M:%S").to_string().as_str() < "00:01:01" {
        stays_for(&mut rehearsal, "n1", 1);
    }
    assert!(has_event(&rehearsal, "DisruptionBlocked", "Node is nominated for a pending pod"));
    waits_until_it_goes(&mut rehearsal, "n1", 20);
}

#[test]
fn capacity_buffer_a_node_with_buffer_pods_is_not_emptied_until_the_buffer_is_gone() {
    let mut setup = Setup::default().with_duties(duties);
    setup.options.gates.capacity_buffer = true;
    setup.options.mirror.gates.capacity_buffer = true;
    let mut rehearsal = stage_with(&json!({"consolidateAfter": "0s"}), setup);
    rehearsal.create_value(&json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": {"name": "spare", "namespace": "default"},
        "spec": {"podTemplateRef": {"name": "spare"}, "replicas": 1},
    }));
    add_node(&mut rehearsal, "n1");
    stays_for(&mut rehearsal, "n1", 60);
    assert!(has_event(&rehearsal, "Unconsolidatable", "Node \"n1\" has buffer pods"));
    rehearsal.delete("/apis/autoscaling.x-k8s.io/v1beta1/namespaces/default/capacitybuffers/spare");
    waits_until_it_goes(&mut rehearsal, "n1", 30);
}

#[test]
fn what_a_forgotten_command_left_behind_is_taken_away_after_a_restart() {
    let mut rehearsal = stage(&json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}));
    add_node(&mut rehearsal, "used");
    add_node(&mut rehearsal, "empty");
    add_pod(&mut rehearsal, "p", "used", &json!({}));
    rehearsal.kill();
    for name in ["used", "empty"] {
        let taints = json!([{"key": "example.com/own", "effect": "NoSchedule"}, {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]);
        rehearsal.patch(&node_path(name), &json!({"spec": {"taints": taints}}));
        let claim = rehearsal.get(&claim_path(name)).unwrap();
        let mut conditions = claim["status"]["conditions"].as_array().unwrap().clone();
        conditions.push(json!({"type": "DisruptionReason", "status": "True", "reason": "Empty", "message": "Empty", "lastTransitionTime": "2026-01-01T00:00:00Z"}));
        rehearsal.patch(&format!("{}/status", claim_path(name)), &json!({"status": {"conditions": conditions}}));
    }
    rehearsal.revive();
    rehearsal.settle();
    for name in ["used", "empty"] {
        assert!(!is_tainted(&rehearsal, name));
        let node = rehearsal.get(&node_path(name)).unwrap();
        assert_eq!(node["spec"]["taints"][0]["key"], "example.com/own");
        assert_eq!(status_of(&rehearsal.get(&claim_path(name)).unwrap(), "DisruptionReason"), "");
    }
    stays_for(&mut rehearsal, "used", 10);
    waits_until_it_goes(&mut rehearsal, "empty", 10);
    stays_for(&mut rehearsal, "used", 30);
}

#[test]
fn an_operator_that_dies_between_the_looks_begins_anew() {
    let mut rehearsal = stage(&json!({"consolidateAfter": "0s"}));
    add_node(&mut rehearsal, "n1");
    rehearsal.run_for(3);
    rehearsal.restart();
    stays_for(&mut rehearsal, "n1", 4);
    waits_until_it_goes(&mut rehearsal, "n1", 3);
}

#[test]
fn a_hundred_empty_nodes_go_in_one_breath_with_three_requests_each() {
    let mut rehearsal = stage(&json!({"consolidateAfter": "1h", "budgets": [{"nodes": "100%"}]}));
    for number in 0..100 {
        add_node(&mut rehearsal, &format!("n{number}"));
    }
    rehearsal.patch(POOL, &json!({"spec": {"disruption": {"consolidateAfter": "0s"}}}));
    rehearsal.run_for(5);
    let (before, n_events) = (rehearsal.n_calls(), rehearsal.list("/api/v1/events").len());
    rehearsal.run_until("all go", 12, |rehearsal| {
        rehearsal.claims().iter().all(|claim| claim["metadata"]["deletionTimestamp"].is_string())
    });
    rehearsal.settle();
    let n_events = rehearsal.list("/api/v1/events").len() - n_events;
    assert!(n_events >= 200, "{n_events}");
    let n_calls = rehearsal.n_calls() - before - n_events;
    assert!((300..=310).contains(&n_calls), "{n_calls}");
}

/// The requests of a batch that change nodes and claims.
fn changes(batch: Vec<(Ticket, Errand)>) -> Vec<(Ticket, ApiCall)> {
    let calls = batch.into_iter().filter_map(|(ticket, errand)| match errand {
        Errand::Api(call) if call.method != "POST" => Some((ticket, call)),
        _ => None,
    });
    calls.collect()
}

fn observed(value: Value) -> Wake {
    Wake::Observed(Box::new(Object::read(value).unwrap()))
}

#[test]
fn a_pod_that_slips_in_while_its_node_is_being_marked_keeps_the_node() {
    // A server without an operator, and an operator whose requests reach the server when we say so.
    let mut rehearsal = stage(&json!({"consolidateAfter": "0s"}));
    add_node(&mut rehearsal, "n1");
    rehearsal.run_for(2);
    rehearsal.kill();
    let metrics = Arc::new(Metrics::default());
    let mut operator = Operator::with_duties(Setup::default().options, rehearsal.cloud().clone(), metrics, duties());
    let class = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses/default";
    for path in [class, POOL, &claim_path("n1"), &node_path("n1")] {
        operator.wake(observed(rehearsal.get(path).unwrap()));
    }
    WATCHED.iter().map(|(kind, _)| *kind).chain([Kind::NodeClass]).for_each(|kind| operator.wake(Wake::Synced(kind)));
    let then = UnixMillis(rehearsal.now().as_millisecond());
    assert_eq!(changes(operator.work(then).errands), []);
    let then = UnixMillis(then.0 + 5_000);
    // It looks empty, and so does the API server's own list.
    let mut looks = changes(operator.work(then).errands);
    let (ticket, look) = looks.remove(0);
    assert_eq!((look.method, looks.len()), ("GET", 0));
    let list = json!({"items": rehearsal.list("/api/v1/pods")});
    operator.wake(Wake::Done(ticket, Outcome::Api(Ok(list))));
    let marks = changes(operator.work(then).errands);
    let paths: Vec<&str> = marks.iter().map(|(_, call)| call.path.as_str()).collect();
    assert_eq!(paths, ["/api/v1/nodes/n1", "/apis/karpenter.sh/v1/nodeclaims/n1/status"]);
    rehearsal.create_value(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "web"}]},
    }));
    operator.wake(observed(rehearsal.get(&pod_path("p")).unwrap()));
    let mut under_way = marks;
    while !under_way.is_empty() {
        for (ticket, call) in under_way.drain(..) {
            assert_eq!(call.method, "PATCH", "{}", call.path);
            let answer = rehearsal.patch(&call.path, &call.body);
            operator.wake(Wake::Done(ticket, Outcome::Api(Ok(answer))));
        }
        under_way = changes(operator.work(then).errands);
    }
    assert!(!is_tainted(&rehearsal, "n1") && !goes(&rehearsal, "n1"));
    assert_eq!(status_of(&rehearsal.get(&claim_path("n1")).unwrap(), "DisruptionReason"), "");
}
