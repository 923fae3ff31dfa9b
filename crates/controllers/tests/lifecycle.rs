//! From a NodeClaim to a machine and back, on the embedded control plane under a virtual clock.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

mod scripted;

use kerf_cloud::{CloudError, OfferingKey};
use kerf_controllers::lifecycle::Lifecycle;
use kerf_controllers::metrics::Metrics;
use kerf_controllers::resource::WATCHED;
use kerf_controllers::{CloudCall, Desk, Duty, Errand, Operator, Options, Outcome, Wake, World, upkeep};
use kerf_mirror::{Kind, MirrorSettings, Object, ObjectKey, View};
use kerf_model::{CapacityType, PodId, Text, UnixMillis};
use kerf_simulation::{Rehearsal, Setup};
use scripted::*;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn lifecycle() -> Vec<Box<dyn Duty>> {
    vec![Box::new(Lifecycle::default())]
}

fn all() -> Vec<Box<dyn Duty>> {
    let mut duties = lifecycle();
    duties.extend(upkeep::duties());
    duties
}

fn no_capacity() -> CloudError {
    let sold_out =
        OfferingKey { instance_type: "large".into(), zone: "zone-a".into(), capacity_type: CapacityType::Spot };
    CloudError::NoCapacity { message: "nothing left".into(), sold_out: vec![sold_out] }
}

fn failed(reason: &str, message: &str) -> CloudError {
    CloudError::LaunchFailed { reason: reason.into(), message: message.into() }
}

// Launch.

#[test]
fn a_claim_has_its_finalizer_before_anything_is_launched() {
    let cloud = Arc::new(ScriptedCloud::default());
    let options = Options::new(MirrorSettings::new(View::Live));
    let mut operator = Operator::with_duties(options, cloud, Arc::new(Metrics::default()), lifecycle());
    let mut object = claim("c", &json!({}));
    object["metadata"]["uid"] = json!("u");
    object["metadata"]["resourceVersion"] = json!("1");
    operator.wake(Wake::Observed(Box::new(Object::read(object.clone()).unwrap())));
    assert!(operator.work(UnixMillis(0)).errands.is_empty(), "nothing is decided before everything was seen");
    for kind in WATCHED.iter().map(|(kind, _)| *kind).chain([Kind::NodeClass]) {
        operator.wake(Wake::Synced(kind));
    }
    let errands = operator.work(UnixMillis(0)).errands;
    let [(ticket, Errand::Api(call))] = errands.as_slice() else { panic!("{errands:?}") };
    assert_eq!(call.body["metadata"]["finalizers"], json!(["karpenter.sh/termination"]));
    assert_eq!(call.body["metadata"]["resourceVersion"], "1");
    object["metadata"]["finalizers"] = json!(["karpenter.sh/termination"]);
    object["metadata"]["resourceVersion"] = json!("2");
    operator.wake(Wake::Done(ticket.clone(), Outcome::Api(Ok(object))));
    let errands = operator.work(UnixMillis(0)).errands;
    assert!(matches!(errands.as_slice(), [(_, Errand::Cloud(_))]), "{errands:?}");
}

#[test]
fn a_claim_that_takes_a_name_over_waits_for_the_answer_about_the_one_before() {
    let (mut scene, cloud) = rehearse(lifecycle);
    cloud.script().is_silent = true;
    scene.create_value(&claim("c", &json!({})));
    scene.run_for(5);
    // Somebody forces it away, and makes another one of its name.
    let path = format!("{CLAIMS}/c");
    scene.delete(&path);
    scene.patch(&path, &json!({"metadata": {"finalizers": null}}));
    scene.create_value(&claim("c", &json!({})));
    let uid = get_claim(&scene, "c")["metadata"]["uid"].clone();
    scene.run_for(30);
    assert_eq!(cloud.script().orders.len(), 1, "it waits");
    cloud.script().is_silent = false;
    scene.run_until("it is launched", 60, |scene| condition(&get_claim(scene, "c"), "Launched").starts_with("True"));
    let claim = get_claim(&scene, "c");
    let id = claim["status"]["providerID"].as_str().unwrap();
    assert!(claim["metadata"]["uid"] == uid && id.ends_with(uid.as_str().unwrap()), "its own machine: {id}");
}

/// An operator that knows of a registered claim which is being deleted, and whose Node cannot be read; it may be known from before.
fn with_an_unreadable_node(is_known: bool, deadline: Option<&str>) -> (Operator, ObjectKey) {
    let cloud = Arc::new(ScriptedCloud::default());
    let options = Options::new(MirrorSettings::new(View::Live));
    let mut operator = Operator::with_duties(options, cloud, Arc::new(Metrics::default()), lifecycle());
    let mut object = claim("c", &json!({}));
    let stamp = "2026-01-01T00:00:00Z";
    object["metadata"] = json!({
        "name": "c", "uid": "u", "resourceVersion": "1", "creationTimestamp": stamp, "deletionTimestamp": stamp,
        "finalizers": ["karpenter.sh/termination"],
    });
    if let Some(deadline) = deadline {
        object["metadata"]["annotations"] = json!({"karpenter.sh/nodeclaim-termination-timestamp": deadline});
    }
    object["status"] = json!({"providerID": "cloud://i-1", "nodeName": "n", "conditions": [
        {"type": "Registered", "status": "True", "reason": "Registered", "message": "", "lastTransitionTime": stamp},
    ]});
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "n", "resourceVersion": "1"},
        "spec": {"providerID": "cloud://i-1"},
    });
    for object in is_known.then_some(node).into_iter().chain([object]) {
        operator.wake(Wake::Observed(Box::new(Object::read(object).unwrap())));
    }
    let node = ObjectKey { kind: Kind::Node, class_kind: None, namespace: "".into(), name: "n".into() };
    let (what, field, message) = ("Node n".into(), "spec".into(), "odd".into());
    operator.wake(Wake::Unreadable { key: Some(node.clone()), what, field, message });
    for kind in WATCHED.iter().map(|(kind, _)| *kind).chain([Kind::NodeClass]) {
        operator.wake(Wake::Synced(kind));
    }
    (operator, node)
}

/// Whether the machine's end is asked for then. Nothing else is.
fn ends_machine(operator: &mut Operator, seconds: i64) -> bool {
    let errands = operator.work(UnixMillis(1_767_225_600_000 + seconds * 1_000)).errands;
    let is_event = |errand: &Errand| matches!(errand, Errand::Api(call) if call.path.ends_with("/events"));
    let is_end = |errand: &Errand| matches!(errand, Errand::Cloud(CloudCall::Terminate(_)));
    assert!(errands.iter().all(|(_, errand)| is_event(errand) || is_end(errand)), "{errands:?}");
    errands.iter().any(|(_, errand)| is_end(errand))
}

#[test]
fn a_machine_is_not_ended_while_its_node_cannot_be_read_and_so_not_be_drained() {
    for is_known in [false, true] {
        let (mut operator, node) = with_an_unreadable_node(is_known, None);
        for seconds in [0, 600] {
            assert!(!ends_machine(&mut operator, seconds), "its pods would end with it");
        }
        operator.wake(Wake::Gone(node, None));
        assert!(ends_machine(&mut operator, 610), "it is gone");
    }
}

#[test]
fn a_node_that_pods_may_be_on_is_drained_although_its_claim_does_not_say_so_yet() {
    for is_registered in [true, false] {
        let cloud = Arc::new(ScriptedCloud::default());
        let options = Options::new(MirrorSettings::new(View::Live));
        let mut operator = Operator::with_duties(options, cloud, Arc::new(Metrics::default()), lifecycle());
        let stamp = "2026-01-01T00:00:00Z";
        let mut object = claim("c", &json!({}));
        object["metadata"] = json!({
            "name": "c", "uid": "u", "resourceVersion": "1", "creationTimestamp": stamp, "deletionTimestamp": stamp,
            "finalizers": ["karpenter.sh/termination"],
        });
        object["status"] = json!({"providerID": "cloud://i-1"});
        let labels = if is_registered { json!({"karpenter.sh/registered": "true"}) } else { json!({}) };
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "spec": {"providerID": "cloud://i-1"},
            "metadata": {"name": "n", "uid": "n", "resourceVersion": "1", "labels": labels},
        });
        for object in [object, node] {
            operator.wake(Wake::Observed(Box::new(Object::read(object).unwrap())));
        }
        WATCHED
            .iter()
            .map(|(kind, _)| *kind)
            .chain([Kind::NodeClass])
            .for_each(|kind| operator.wake(Wake::Synced(kind)));
        let errands = operator.work(UnixMillis(1_767_225_600_000)).errands;
        let is_deleted = |errand: &Errand| matches!(errand, Errand::Api(call) if call.path == "/api/v1/nodes/n");
        let is_ended = |errand: &Errand| matches!(errand, Errand::Cloud(CloudCall::Terminate(_)));
        assert_eq!(errands.iter().any(|(_, errand)| is_deleted(errand)), is_registered);
        assert_eq!(errands.iter().any(|(_, errand)| is_ended(errand)), !is_registered, "{errands:?}");
    }
}

#[test]
fn a_node_that_cannot_be_read_is_waited_for_until_its_claims_time_is_over() {
    for is_known in [false, true] {
        let (mut operator, _) = with_an_unreadable_node(is_known, Some("2026-01-01T00:05:00Z"));
        assert!(!ends_machine(&mut operator, 299) && ends_machine(&mut operator, 300));
    }
}

#[test]
fn a_plain_claim_becomes_ready_with_the_labels_of_what_was_bought() {
    let (mut it, cloud) = rehearse(lifecycle);
    make_ready(&mut it, "c", &json!({}));
    let claim = get_claim(&it, "c");
    for kind in ["Launched", "Registered", "Initialized"] {
        assert_eq!(condition(&claim, kind), format!("True {kind}"));
    }
    assert_eq!(claim["metadata"]["labels"]["karpenter.sh/capacity-type"], "on-demand");
    assert_eq!(claim["metadata"]["annotations"]["example.com/cloud"], "scripted");
    assert_eq!(claim["status"]["nodeName"], "node-of-c");
    assert_eq!(claim["status"]["imageID"], "image-1");
    assert_eq!(claim["status"]["capacity"]["cpu"], "4");
    assert_eq!(claim["status"]["allocatable"]["cpu"], "3900m");
    assert_eq!(cloud.script().n_launched, 1);
    assert!(counts(&it, "karpenter_nodes_created_total{nodepool=\"\",zone=\"zone-a\"} 1"));
}

#[test]
fn a_claim_with_requests_becomes_ready_on_kwok() {
    let mut it = Rehearsal::new(Setup::default().with_duties(all));
    it.create(CLASS);
    let types = json!([{
        "key": "node.kubernetes.io/instance-type", "operator": "In",
        "values": ["c-16x-amd64-linux", "c-16x-arm64-linux"],
    }, {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]);
    let spec = json!({"requirements": types, "resources": {"requests": {"cpu": "3", "memory": "11Gi"}}});
    it.create_value(&claim("c", &spec));
    it.run_until("ready", 60, |it| condition(&get_claim(it, "c"), "Ready") == "True Ready");
    let claim = get_claim(&it, "c");
    assert_eq!(claim["metadata"]["labels"]["karpenter.sh/capacity-type"], "on-demand");
    assert_eq!(claim["metadata"]["labels"]["karpenter.kwok.sh/kwoknodeclass"], "default");
    let node = &it.nodes()[0];
    assert_eq!(node["metadata"]["labels"]["karpenter.sh/initialized"], "true");
    assert_eq!(node["metadata"]["labels"]["karpenter.kwok.sh/kwoknodeclass"], "default");
}

#[test]
fn a_claim_without_capacity_is_given_up_and_its_offering_avoided() {
    let (mut it, cloud) = rehearse(lifecycle);
    cloud.script().failures.push_back(no_capacity());
    it.create_value(&claim("c", &json!({})));
    it.settle();
    assert!(!has_claim(&it, "c"));
    assert_eq!(it.events("InsufficientCapacityError"), ["NodeClaim c event: nothing left"]);
    let series = "reason=\"insufficient_capacity\",nodepool=\"\",capacity_type=\"\",consolidation_policy=\"\"";
    assert!(counts(&it, &format!("karpenter_nodeclaims_disrupted_total{{{series},termination_mode=\"graceful\"}} 1")));
    it.create_value(&claim("d", &json!({})));
    it.settle();
    let script = cloud.script();
    assert_eq!(script.orders.len(), 2, "the claim that was given up is not tried again");
    assert_eq!(script.orders[1].avoid.iter().map(ToString::to_string).collect::<Vec<_>>(), ["large zone-a spot"]);
}

#[test]
fn offerings_that_ran_dry_on_the_way_to_a_success_are_avoided_too() {
    let (mut it, cloud) = rehearse(lifecycle);
    cloud.script().sold_out =
        vec![OfferingKey { instance_type: "small".into(), zone: "z".into(), capacity_type: CapacityType::Spot }];
    it.create_value(&claim("c", &json!({})));
    it.create_value(&claim("d", &json!({})));
    it.settle();
    it.create_value(&claim("e", &json!({})));
    it.settle();
    let avoided = cloud.script().orders.last().unwrap().avoid.clone();
    assert_eq!(avoided.iter().map(ToString::to_string).collect::<Vec<_>>(), ["small z spot"]);
}

/// Promises a place on claim `c` to pod `default/p`.
struct Promise;

impl Duty for Promise {
    fn name(&self) -> &'static str {
        "promise"
    }

    fn observe(&mut self, _: &kerf_controllers::Change, _: &World) {}

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        for pod in ["p", "bound"] {
            desk.nominations.promise(&PodId::new("default", pod), &"c".into(), desk.now);
        }
        None
    }

    fn done(&mut self, _: &Text, _: Outcome, _: &mut Desk<'_>) {}
}

#[test]
fn pods_that_were_promised_a_place_hear_that_the_launch_failed() {
    let (mut it, cloud) = rehearse(|| vec![Box::new(Promise), Box::new(Lifecycle::default())]);
    cloud.script().always = Some(no_capacity());
    for (name, node) in [("p", ""), ("bound", "somewhere"), ("other", "")] {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "a", "image": "a"}]},
        });
        if !node.is_empty() {
            pod["spec"]["nodeName"] = json!(node);
        }
        it.create_value(&pod);
    }
    it.create_value(&claim("c", &json!({})));
    it.settle();
    let events = it.list("/api/v1/namespaces/default/events");
    let to_pods: Vec<&Value> = events
        .iter()
        .filter(|event| event["reason"] == "InsufficientCapacityError" && event["involvedObject"]["kind"] == "Pod")
        .collect();
    assert_eq!(to_pods.len(), 1, "{to_pods:?}");
    assert_eq!(to_pods[0]["involvedObject"]["name"], "p");
    assert_eq!(to_pods[0]["message"], "NodeClaim c nominated for this pod failed to launch: nothing left");
}

#[test]
fn a_claim_whose_class_is_not_ready_is_deleted_without_an_event() {
    let (mut it, cloud) = rehearse(lifecycle);
    cloud.script().always = Some(CloudError::ClassNotReady { message: "not yet".into() });
    it.create_value(&claim("c", &json!({})));
    it.settle();
    assert!(!has_claim(&it, "c"));
    assert!(it.list("/api/v1/events").iter().all(|event| event["involvedObject"]["kind"] != "NodeClaim"));
    let series = "reason=\"nodeclass_not_ready\",nodepool=\"\",capacity_type=\"\",consolidation_policy=\"\"";
    assert!(counts(&it, &format!("karpenter_nodeclaims_disrupted_total{{{series},termination_mode=\"graceful\"}} 1")));
}

#[test]
fn on_kwok_a_claim_of_an_unknown_or_unready_class_is_deleted() {
    let mut it = Rehearsal::new(Setup::default().with_duties(lifecycle));
    let types = json!([{
        "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-16x-amd64-linux"],
    }]);
    it.create_value(&claim("unknown", &json!({"requirements": types})));
    it.settle();
    assert!(!has_claim(&it, "unknown"));
    it.create(CLASS);
    let unready = json!([{
        "type": "Ready", "status": "False", "reason": "Broken", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    it.patch(
        "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses/default/status",
        &json!({"status": {"conditions": unready}}),
    );
    it.create_value(&claim("unready", &json!({"requirements": types})));
    it.settle();
    assert!(!has_claim(&it, "unready"));
    assert!(it.nodes().is_empty());
}

#[test]
fn a_failed_launch_says_why_and_is_tried_again_more_slowly_each_time() {
    let (mut it, cloud) = rehearse(lifecycle);
    cloud.script().failures.extend((0..3).map(|_| failed("QuotaExceeded", "ask for more")));
    it.create_value(&claim("c", &json!({})));
    it.settle();
    let waiting = get_claim(&it, "c");
    assert_eq!(condition(&waiting, "Launched"), "Unknown QuotaExceeded");
    assert_eq!(waiting["status"]["conditions"][0]["message"], "ask for more");
    assert_eq!(
        waiting["status"]["conditions"][0]["lastTransitionTime"], waiting["metadata"]["creationTimestamp"],
        "a reason is no transition"
    );
    assert_eq!(cloud.script().orders.len(), 1);
    it.run_for(1);
    assert_eq!(cloud.script().orders.len(), 2);
    it.run_for(2);
    assert_eq!(cloud.script().orders.len(), 3);
    it.run_for(3);
    assert_eq!(cloud.script().orders.len(), 3);
    it.run_for(1);
    assert_eq!(condition(&get_claim(&it, "c"), "Launched"), "True Launched");
    assert_eq!(cloud.script().n_launched, 1);
}

#[test]
fn other_errors_are_launch_failures_with_at_most_1024_bytes_of_text() {
    let (mut it, cloud) = rehearse(lifecycle);
    cloud.script().always = Some(CloudError::Other { message: "x".repeat(2_000).into() });
    it.create_value(&claim("c", &json!({})));
    it.settle();
    let claim = get_claim(&it, "c");
    assert_eq!(condition(&claim, "Launched"), "Unknown LaunchFailed");
    let message = claim["status"]["conditions"][0]["message"].as_str().unwrap();
    assert_eq!(message, format!("{}...", "x".repeat(1_021)));
}

#[test]
fn a_cloud_that_asks_for_patience_gets_it() {
    let (mut it, cloud) = rehearse(lifecycle);
    let slow = CloudError::Throttled { message: "slowly".into(), retry_after: Duration::from_secs(30) };
    cloud.script().failures.push_back(slow);
    it.create_value(&claim("c", &json!({})));
    it.run_for(29);
    assert_eq!(cloud.script().orders.len(), 1);
    it.run_for(1);
    assert_eq!(condition(&get_claim(&it, "c"), "Launched"), "True Launched");
}

#[test]
fn a_claim_that_cannot_be_launched_is_deleted_after_five_minutes() {
    let (mut it, cloud) = rehearse(lifecycle);
    cloud.script().always = Some(CloudError::Other { message: "no".into() });
    it.create_value(&claim("c", &json!({})));
    it.run_for(299);
    assert!(get_claim(&it, "c")["metadata"]["deletionTimestamp"].is_null());
    it.run_for(1);
    assert!(!get_claim(&it, "c")["metadata"]["deletionTimestamp"].is_null());
    // Any of its launches may have had its effect all the same: it goes when the cloud's lists would show that.
    it.run_for(35);
    assert!(!has_claim(&it, "c"));
    let series = "reason=\"launch_timeout\",nodepool=\"\",capacity_type=\"\",consolidation_policy=\"\"";
    assert!(counts(&it, &format!("karpenter_nodeclaims_disrupted_total{{{series},termination_mode=\"graceful\"}} 1")));
}

#[test]
fn a_paused_operator_gives_up_no_claim() {
    let mut setup = Setup::default().with_duties(lifecycle);
    setup.options.pauses_disruption = true;
    let (mut it, cloud) = rehearse_with(setup);
    cloud.script().always = Some(CloudError::Other { message: "no".into() });
    it.create_value(&claim("c", &json!({})));
    it.run_for(1_200);
    assert!(get_claim(&it, "c")["metadata"]["deletionTimestamp"].is_null());
    it.delete(&format!("{CLAIMS}/c"));
    it.run_until("what a person asks for is done", 60, |it| !has_claim(it, "c"));
}

#[test]
fn a_cloud_that_does_not_answer_stops_neither_the_timeout_nor_other_claims() {
    let (mut it, cloud) = rehearse(lifecycle);
    cloud.script().silent_claim = Some("c".into());
    it.create_value(&claim("c", &json!({})));
    it.settle();
    make_ready(&mut it, "d", &json!({}));
    assert!(has_claim(&it, "c"));
    it.run_for(300);
    let waiting = get_claim(&it, "c");
    assert!(!waiting["metadata"]["deletionTimestamp"].is_null(), "the timeout has come");
    assert_eq!(cloud.script().instances.len(), 2, "the machine is there, and nobody knows");
    cloud.script().silent_claim = None;
    it.run_for(10);
    assert!(!has_claim(&it, "c"));
    assert_eq!(cloud.script().instances.len(), 1, "what was launched unheard is ended");
}

#[test]
fn restarts_at_every_point_of_a_launch_leave_one_instance_per_claim() {
    for n_steps in 0..10 {
        let (mut it, cloud) = rehearse(all);
        it.create_value(&claim("c", &json!({})));
        for _ in 0..n_steps {
            it.step();
        }
        it.restart();
        it.run_for(2);
        join(&mut it, "c");
        for _ in 0..n_steps {
            it.step();
        }
        it.restart();
        it.run_until("ready", 60, |it| condition(&get_claim(it, "c"), "Ready") == "True Ready");
        let script = cloud.script();
        assert_eq!((script.n_launched, script.instances.len()), (1, 1), "after {n_steps} steps");
        let id = script.instances.keys().next().unwrap();
        assert_eq!(get_claim(&it, "c")["status"]["providerID"], **id);
    }
}

#[test]
fn an_answer_that_a_dead_operator_did_not_hear_is_given_again() {
    let (mut it, cloud) = rehearse(lifecycle);
    cloud.script().is_silent = true;
    it.create_value(&claim("c", &json!({})));
    it.settle();
    assert_eq!(cloud.script().n_launched, 1);
    it.restart();
    cloud.script().is_silent = false;
    it.run_for(1);
    assert_eq!(condition(&get_claim(&it, "c"), "Launched"), "True Launched");
    assert_eq!(cloud.script().n_launched, 1);
}

#[test]
fn a_claim_deleted_after_its_launch_was_lost_leaves_no_instance() {
    let (mut it, cloud) = rehearse(lifecycle);
    cloud.script().is_silent = true;
    it.create_value(&claim("c", &json!({})));
    it.settle();
    it.kill();
    it.delete(&format!("{CLAIMS}/c"));
    it.revive();
    cloud.script().is_silent = false;
    it.run_for(1);
    assert!(!has_claim(&it, "c"));
    assert!(cloud.script().instances.is_empty());
}

// Registration.

#[test]
fn a_launched_claim_waits_for_its_node() {
    let (mut it, _) = rehearse(lifecycle);
    it.create_value(&claim("c", &json!({})));
    it.settle();
    let waiting = get_claim(&it, "c");
    assert_eq!(condition(&waiting, "Registered"), "Unknown NodeNotFound");
    assert_eq!(condition(&waiting, "Initialized"), "Unknown AwaitingReconciliation");
    assert_eq!(condition(&waiting, "Ready"), "Unknown ReconcilingDependents");
}

#[test]
fn annotations_labels_taints_and_the_owner_reach_the_node() {
    let (mut it, _) = rehearse(lifecycle);
    let mut object = claim(
        "c",
        &json!({
            "taints": [{"key": "example.com/taint", "value": "x", "effect": "NoSchedule"}],
            "startupTaints": [{"key": "example.com/startup", "effect": "NoSchedule"}],
        }),
    );
    object["metadata"]["labels"] = json!({"example.com/label": "a"});
    object["metadata"]["annotations"] = json!({"example.com/annotation": "b"});
    it.create_value(&object);
    it.settle();
    join(&mut it, "c");
    it.run_until("registered", 60, |it| condition(&get_claim(it, "c"), "Registered") == "True Registered");
    let node = it.get("/api/v1/nodes/node-of-c").unwrap();
    assert_eq!(node["metadata"]["labels"]["example.com/label"], "a");
    assert_eq!(node["metadata"]["labels"]["karpenter.sh/registered"], "true");
    assert_eq!(node["metadata"]["labels"]["node.kubernetes.io/instance-type"], "large");
    assert_eq!(node["metadata"]["annotations"]["example.com/annotation"], "b");
    assert_eq!(node["metadata"]["finalizers"], json!(["karpenter.sh/termination"]));
    let owner = &node["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("NodeClaim"), &json!("c")));
    assert_eq!(owner["blockOwnerDeletion"], true);
    let keys: Vec<&str> =
        node["spec"]["taints"].as_array().unwrap().iter().filter_map(|taint| taint["key"].as_str()).collect();
    assert!(keys.contains(&"example.com/taint") && keys.contains(&"example.com/startup"), "{keys:?}");
    assert!(!keys.contains(&"karpenter.sh/unregistered"), "{keys:?}");
    assert_eq!(it.events("UnregisteredTaintMissing"), Vec::<String>::new());
    // Later edits of the claim stay with the claim.
    it.patch(&format!("{CLAIMS}/c"), &json!({"metadata": {"labels": {"example.com/late": "x"}}}));
    it.run_for(10);
    assert!(it.get("/api/v1/nodes/node-of-c").unwrap()["metadata"]["labels"]["example.com/late"].is_null());
}

#[test]
fn a_node_waits_for_labels_that_only_its_running_machine_shows() {
    const KEY: &str = "example.com/partition";
    let (mut it, cloud) = rehearse(lifecycle);
    cloud.script().late_label = Some(KEY);
    it.create_value(&claim("c", &json!({})));
    it.settle();
    assert_eq!(get_claim(&it, "c")["metadata"]["labels"][KEY], "");
    join(&mut it, "c");
    it.run_for(30);
    assert_eq!(condition(&get_claim(&it, "c"), "Registered"), "Unknown LabelNotKnown");
    let taints = |it: &Rehearsal| it.get("/api/v1/nodes/node-of-c").unwrap()["spec"]["taints"].to_string();
    assert!(taints(&it).contains("karpenter.sh/unregistered"), "no pod may come before: {}", taints(&it));
    for instance in cloud.script().instances.values_mut() {
        Arc::make_mut(&mut instance.labels).insert(KEY.into(), "2".into());
    }
    it.run_until("registered", 30, |it| condition(&get_claim(it, "c"), "Registered") == "True Registered");
    assert_eq!(get_claim(&it, "c")["metadata"]["labels"][KEY], "2");
    assert_eq!(it.get("/api/v1/nodes/node-of-c").unwrap()["metadata"]["labels"][KEY], "2");
    assert!(!taints(&it).contains("karpenter.sh/unregistered"));
}

#[test]
fn a_node_without_the_unregistered_taint_is_told_of_and_registered_all_the_same() {
    let (mut it, _) = rehearse(lifecycle);
    it.create_value(&claim("c", &json!({})));
    it.settle();
    let mut node = node_for(&it, "c", true);
    node["spec"]["taints"] = json!([]);
    it.create_value(&node);
    it.run_until("registered", 60, |it| condition(&get_claim(it, "c"), "Registered") == "True Registered");
    assert_eq!(it.events("UnregisteredTaintMissing").len(), 1);
}

#[test]
fn two_nodes_of_one_machine_are_refused_and_the_claim_deleted_fifteen_minutes_later() {
    let (mut it, _) = rehearse(lifecycle);
    it.create_value(&claim("c", &json!({})));
    it.settle();
    it.run_for(60);
    let node = node_for(&it, "c", true);
    let mut other = node.clone();
    other["metadata"]["name"] = json!("other");
    it.kill();
    it.create_value(&node);
    it.create_value(&other);
    it.revive();
    it.settle();
    assert_eq!(condition(&get_claim(&it, "c"), "Registered"), "False MultipleNodesFound");
    assert_eq!(condition(&get_claim(&it, "c"), "Ready"), "False UnhealthyDependents");
    it.run_for(15 * 60 - 1);
    assert!(has_claim(&it, "c"), "the time counts from the refusal");
    it.run_for(5);
    assert!(!has_claim(&it, "c"));
}

#[test]
fn a_claim_whose_node_is_denied_is_deleted_after_the_registration_timeout() {
    let (mut it, cloud) = rehearse(lifecycle);
    it.create_value(&claim("c", &json!({})));
    it.run_for(899);
    assert!(has_claim(&it, "c"));
    it.run_for(1);
    assert!(!has_claim(&it, "c"));
    assert!(cloud.script().instances.is_empty());
    let series = "reason=\"registration_timeout\",nodepool=\"\",capacity_type=\"on-demand\",consolidation_policy=\"\"";
    assert!(counts(&it, &format!("karpenter_nodeclaims_disrupted_total{{{series},termination_mode=\"graceful\"}} 1")));
}

// Initialization.

#[test]
fn a_node_is_initialized_when_it_is_ready_and_its_startup_taints_are_gone() {
    let (mut it, _) = rehearse(lifecycle);
    let startup = json!([{"key": "example.com/startup", "effect": "NoSchedule"}]);
    it.create_value(&claim("c", &json!({"startupTaints": startup})));
    it.settle();
    let node = node_for(&it, "c", false);
    it.create_value(&node);
    it.settle();
    assert_eq!(condition(&get_claim(&it, "c"), "Initialized"), "Unknown NodeNotReady");
    let ready = json!([{
        "type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": it.now().to_string(),
        "lastTransitionTime": it.now().to_string(),
    }]);
    it.patch("/api/v1/nodes/node-of-c/status", &json!({"status": {"conditions": ready}}));
    it.settle();
    assert_eq!(condition(&get_claim(&it, "c"), "Initialized"), "Unknown StartupTaintsExist");
    let ephemeral = json!([{"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}]);
    it.patch("/api/v1/nodes/node-of-c", &json!({"spec": {"taints": ephemeral}}));
    it.settle();
    assert_eq!(condition(&get_claim(&it, "c"), "Initialized"), "Unknown KnownEphemeralTaintsExist");
    it.patch("/api/v1/nodes/node-of-c", &json!({"spec": {"taints": []}}));
    it.settle();
    assert_eq!(condition(&get_claim(&it, "c"), "Initialized"), "True Initialized");
    assert_eq!(condition(&get_claim(&it, "c"), "Ready"), "True Ready");
    let node = it.get("/api/v1/nodes/node-of-c").unwrap();
    assert_eq!(node["metadata"]["labels"]["karpenter.sh/initialized"], "true");
}

#[test]
fn a_requested_device_must_be_there_and_there_is_no_timeout_for_it() {
    let (mut it, _) = rehearse(lifecycle);
    it.create_value(&claim("c", &json!({"resources": {"requests": {"cpu": "1", "example.com/gpu": "1"}}})));
    it.settle();
    join(&mut it, "c");
    it.run_for(3_600);
    assert_eq!(condition(&get_claim(&it, "c"), "Initialized"), "Unknown ResourceNotRegistered");
    it.patch("/api/v1/nodes/node-of-c/status", &json!({"status": {"allocatable": {"example.com/gpu": "1"}}}));
    it.run_until("initialized", 60, |it| condition(&get_claim(it, "c"), "Initialized") == "True Initialized");
}

#[test]
fn a_reboot_in_progress_holds_initialization_back() {
    let (mut it, _) = rehearse(lifecycle);
    make_ready(&mut it, "c", &json!({}));
    let mut conditions = get_claim(&it, "c")["status"]["conditions"].as_array().unwrap().clone();
    for condition in &mut conditions {
        if condition["type"] == "Initialized" {
            condition["status"] = json!("Unknown");
            condition["reason"] = json!("Rebooting");
        }
    }
    conditions.push(json!({
        "type": "Rebooting", "status": "True", "reason": "RebootIssued", "message": "",
        "lastTransitionTime": it.now().to_string(),
    }));
    it.patch(&format!("{CLAIMS}/c/status"), &json!({"status": {"conditions": conditions}}));
    it.run_for(60);
    assert_eq!(condition(&get_claim(&it, "c"), "Initialized"), "Unknown Rebooting");
    let mut conditions = get_claim(&it, "c")["status"]["conditions"].as_array().unwrap().clone();
    for condition in &mut conditions {
        if condition["type"] == "Rebooting" {
            condition["status"] = json!("False");
        }
    }
    it.patch(&format!("{CLAIMS}/c/status"), &json!({"status": {"conditions": conditions}}));
    it.settle();
    assert_eq!(condition(&get_claim(&it, "c"), "Initialized"), "True Initialized");
}

/// Tells what is known of type `large`.
struct Probe;

impl Duty for Probe {
    fn name(&self) -> &'static str {
        "probe"
    }

    fn observe(&mut self, _: &kerf_controllers::Change, _: &World) {}

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if let Some(found) = desk.stock.allocatable_of(&"large".into(), desk.now) {
            let about = kerf_controllers::events::About::pod(&PodId::new("default", "p"), &"u".into());
            desk.event(kerf_controllers::events::Event::normal(about, "Probe", found.to_string()));
        }
        None
    }

    fn done(&mut self, _: &Text, _: Outcome, _: &mut Desk<'_>) {}
}

#[test]
fn a_type_whose_node_is_too_small_for_its_plan_is_learned_and_learned_again_after_a_restart() {
    let (mut it, _) = rehearse(|| vec![Box::new(Probe), Box::new(Lifecycle::default())]);
    it.create_value(&claim("c", &json!({"resources": {"requests": {"cpu": "1", "memory": "7Gi"}}})));
    it.settle();
    let mut node = node_for(&it, "c", true);
    node["status"]["allocatable"]["memory"] = json!("6Gi");
    it.create_value(&node);
    it.run_until("ready", 60, |it| condition(&get_claim(it, "c"), "Ready") == "True Ready");
    it.settle();
    assert_eq!(it.events("Probe"), ["memory 6Gi"]);
    it.restart();
    it.run_for(1);
    it.patch(&format!("{CLAIMS}/c"), &json!({"metadata": {"labels": {"touched": "yes"}}}));
    it.settle();
    assert_eq!(it.events("Probe").len(), 2, "the successor has learned it from the cluster");
}

// Deletion.

#[test]
fn deleting_a_claim_removes_its_node_then_its_instance_then_itself() {
    let (mut it, cloud) = rehearse(lifecycle);
    make_ready(&mut it, "c", &json!({}));
    it.delete(&format!("{CLAIMS}/c"));
    it.run_for(60);
    assert!(!it.get("/api/v1/nodes/node-of-c").unwrap()["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(cloud.script().n_terminations, 0, "the node is not drained yet");
    let_go(&mut it, "node-of-c");
    it.settle();
    assert!(!has_claim(&it, "c") && it.nodes().is_empty());
    assert!(cloud.script().instances.is_empty());
    assert!(counts(
        &it,
        "karpenter_nodeclaims_terminated_total{nodepool=\"\",capacity_type=\"on-demand\",zone=\"zone-a\"} 1"
    ));
    assert!(counts(&it, "karpenter_nodeclaims_termination_duration_seconds_count{nodepool=\"\"} 1"));
    assert!(counts(&it, "karpenter_nodeclaims_instance_termination_duration_seconds_count{nodepool=\"\"} 1"));
}

#[test]
fn d0_20_a_machine_that_a_person_has_taken_over_keeps_running_and_its_node_stays() {
    let (mut it, cloud) = rehearse(lifecycle);
    make_ready(&mut it, "c", &json!({}));
    cloud.script().released = Some(true);
    it.delete(&format!("{CLAIMS}/c"));
    it.run_until("the claim is gone", 60, |it| !has_claim(it, "c"));
    it.run_for(60);
    let node = it.get("/api/v1/nodes/node-of-c").unwrap();
    assert!(node["metadata"]["deletionTimestamp"].is_null(), "{}", node["metadata"]);
    assert!(node["metadata"]["finalizers"].is_null() && node["metadata"]["ownerReferences"].is_null(), "{node}");
    assert_eq!(cloud.script().n_terminations, 0);
    assert_eq!(cloud.script().instances.len(), 1);
    assert_eq!(it.events("Released").len(), 2, "on the claim and on its node");
}

#[test]
fn d0_20_a_machine_that_is_still_ours_is_drained_and_ended_as_ever() {
    let (mut it, cloud) = rehearse(lifecycle);
    cloud.script().released = Some(false);
    make_ready(&mut it, "c", &json!({}));
    it.delete(&format!("{CLAIMS}/c"));
    it.run_for(60);
    let_go(&mut it, "node-of-c");
    it.settle();
    assert!(!has_claim(&it, "c") && it.nodes().is_empty());
    assert!(cloud.script().instances.is_empty());
}

/// Whether the deletion of the node of claim `c` was asked for.
fn is_node_going(it: &Rehearsal) -> bool {
    it.get("/api/v1/nodes/node-of-c").is_some_and(|node| !node["metadata"]["deletionTimestamp"].is_null())
}

#[test]
fn an_end_does_not_wait_for_a_cloud_that_does_not_say_whose_machine_it_is() {
    let (mut it, cloud) = rehearse(lifecycle);
    make_ready(&mut it, "c", &json!({"terminationGracePeriod": "60s"}));
    cloud.script().released = Some(false);
    cloud.script().is_release_held = true;
    it.delete(&format!("{CLAIMS}/c"));
    it.settle();
    assert!(!it.events("TerminationGracePeriodExpiring").is_empty(), "the deadline waits for nobody");
    it.run_until("the node's deletion is asked for", 3, is_node_going);
    let_go(&mut it, "node-of-c");
    it.run_for(5);
    assert!(!has_claim(&it, "c") && cloud.script().instances.is_empty(), "and neither does the machine's end");
}

#[test]
fn what_has_a_deadline_or_a_cloud_in_trouble_is_not_waited_for_at_all() {
    for is_in_trouble in [false, true] {
        let (mut it, cloud) = rehearse(lifecycle);
        make_ready(&mut it, "c", &json!({}));
        cloud.script().released = Some(false);
        if is_in_trouble {
            cloud.script().release_failure = Some(CloudError::Other { message: "503".into() });
        } else {
            cloud.script().is_release_held = true;
            let deadline = json!({"metadata": {"annotations": {
                "karpenter.sh/nodeclaim-termination-timestamp": "2026-01-01T00:02:00Z"}}});
            it.patch(&format!("{CLAIMS}/c"), &deadline);
        }
        it.delete(&format!("{CLAIMS}/c"));
        it.settle();
        assert!(is_node_going(&it), "in trouble: {is_in_trouble}");
    }
}

#[test]
fn d0_20_a_machine_that_turns_out_late_to_be_somebody_elses_is_not_ended() {
    let (mut it, cloud) = rehearse(lifecycle);
    make_ready(&mut it, "c", &json!({}));
    cloud.script().released = Some(true);
    cloud.script().is_release_held = true;
    it.delete(&format!("{CLAIMS}/c"));
    it.run_until("the node's deletion is asked for", 3, is_node_going);
    cloud.script().is_release_held = false;
    it.run_until("the claim is gone", 60, |it| !has_claim(it, "c"));
    let script = cloud.script();
    assert_eq!((script.n_terminations, script.instances.len()), (0, 1));
}

#[test]
fn an_instance_is_asked_for_every_five_seconds_until_it_is_gone() {
    let (mut it, cloud) = rehearse(lifecycle);
    cloud.script().n_endings = 2;
    make_ready(&mut it, "c", &json!({}));
    it.delete(&format!("{CLAIMS}/c"));
    it.settle();
    let_go(&mut it, "node-of-c");
    it.settle();
    assert_eq!(condition(&get_claim(&it, "c"), "InstanceTerminating"), "True InstanceTerminating");
    it.run_for(4);
    assert_eq!(cloud.script().n_terminations, 1);
    it.run_for(1);
    assert_eq!(cloud.script().n_terminations, 2);
    it.run_for(5);
    assert_eq!(cloud.script().n_terminations, 3);
    assert!(!has_claim(&it, "c"));
    assert!(counts(&it, "karpenter_nodeclaims_instance_termination_duration_seconds_sum{nodepool=\"\"} 10"));
}

#[test]
fn a_grace_period_becomes_a_deadline_and_an_event() {
    let (mut it, _) = rehearse(lifecycle);
    make_ready(&mut it, "c", &json!({"terminationGracePeriod": "60s"}));
    it.delete(&format!("{CLAIMS}/c"));
    it.settle();
    let claim = get_claim(&it, "c");
    let deleted: jiff::Timestamp = claim["metadata"]["deletionTimestamp"].as_str().unwrap().parse().unwrap();
    let deadline = claim["metadata"]["annotations"]["karpenter.sh/nodeclaim-termination-timestamp"].as_str().unwrap();
    assert_eq!(deadline.parse::<jiff::Timestamp>().unwrap(), deleted + jiff::SignedDuration::from_secs(60));
    assert_eq!(it.events("TerminationGracePeriodExpiring"), [format!("All pods will be deleted by {deadline}")]);
}

#[test]
fn the_node_of_a_claim_that_never_registered_is_not_ours_to_delete() {
    let (mut it, cloud) = rehearse(lifecycle);
    it.create_value(&claim("c", &json!({})));
    it.settle();
    it.kill();
    let node = node_for(&it, "c", false);
    it.create_value(&node);
    it.delete(&format!("{CLAIMS}/c"));
    it.revive();
    it.settle();
    assert!(!has_claim(&it, "c"));
    assert!(cloud.script().instances.is_empty());
    assert!(it.get("/api/v1/nodes/node-of-c").unwrap()["metadata"]["deletionTimestamp"].is_null());
}

#[test]
fn finalizers_of_others_stay() {
    let (mut it, _) = rehearse(lifecycle);
    let mut object = claim("c", &json!({}));
    object["metadata"]["finalizers"] = json!(["example.com/mine"]);
    it.create_value(&object);
    it.settle();
    it.delete(&format!("{CLAIMS}/c"));
    it.settle();
    assert_eq!(get_claim(&it, "c")["metadata"]["finalizers"], json!(["example.com/mine"]));
}

#[test]
fn a_claim_deleted_before_anybody_looked_at_it_just_goes() {
    let (mut it, cloud) = rehearse(lifecycle);
    it.kill();
    let mut object = claim("c", &json!({}));
    object["metadata"]["finalizers"] = json!(["karpenter.sh/termination"]);
    it.create_value(&object);
    it.delete(&format!("{CLAIMS}/c"));
    it.revive();
    // Nobody knows what was done for it before: it goes when the cloud's lists would show a machine.
    it.run_for(35);
    assert!(!has_claim(&it, "c"));
    assert_eq!(cloud.script().n_launched, 0);
}

#[test]
fn claims_of_other_providers_are_left_alone() {
    let (mut it, cloud) = rehearse(all);
    let mut object = claim("c", &json!({}));
    object["spec"]["nodeClassRef"] = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    it.create_value(&object);
    it.run_for(1_000);
    let claim = get_claim(&it, "c");
    assert!(claim["metadata"]["finalizers"].is_null() && claim["status"].is_null(), "{claim}");
    assert!(cloud.script().orders.is_empty());
}
