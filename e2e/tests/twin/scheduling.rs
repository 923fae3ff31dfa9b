//! Where pods go, and what is said of those that go nowhere.

use serde_json::{Value, json};

use crate::stage::{NODE_OF, Stage};

crate::tests!(
    a_scheduled_pod_is_told,
    a_pod_of_another_scheduler_is_left_alone,
    a_gated_pod_waits_until_its_gates_are_gone,
    a_pod_waits_for_a_node_that_suits,
    pods_that_avoid_each_other_part,
    pods_spread_over_zones,
    a_pod_goes_where_its_friends_are,
    the_preferred_node_is_taken;
    alone
    without_nodes_there_is_nowhere_to_go,
    what_does_not_fit_is_told_with_its_resource,
    each_node_has_its_reason,
    a_taint_is_told_with_its_value,
    a_third_pod_that_avoids_two_is_told,
    a_spread_that_cannot_hold_is_told,
    a_port_that_is_taken_is_told,
    a_pod_that_may_not_preempt_is_told,
    an_important_pod_takes_the_place_of_another,
);

/// A pod that may run on the test's nodes.
fn pod(stage: &Stage, name: &str, content: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0,
        "tolerations": [stage.toleration()], "nodeSelector": {NODE_OF: stage.namespace}});
    for (key, value) in content.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name.split('-').next().unwrap_or(name)}}, "spec": spec})
}

fn asking(cpu: &str) -> Value {
    json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}])
}

fn place_of(stage: &Stage, name: &str) -> String {
    let path = stage.object("v1", "pods", name);
    stage.wait_some("the pod to be scheduled", || stage.read(&path)["spec"]["nodeName"].as_str().map(str::to_owned))
}

fn condition(pod: &Value) -> Value {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == "PodScheduled").unwrap_or_default()
}

/// What is said of a pod that finds no place, in its condition and in an event.
#[track_caller]
fn refusal(stage: &Stage, pod: &Value) -> String {
    let name = pod["metadata"]["name"].as_str().unwrap();
    stage.create(&stage.pods(), pod);
    let path = stage.object("v1", "pods", name);
    let condition = stage.wait_some("the pod to be refused", || {
        Some(condition(&stage.read(&path))).filter(|condition| condition["status"] == "False")
    });
    assert_eq!(condition["reason"], "Unschedulable");
    let message = condition["message"].as_str().unwrap().to_owned();
    let event = event(stage, name, "FailedScheduling");
    assert_eq!((&event["type"], &event["message"]), (&json!("Warning"), &json!(message)));
    message
}

fn event(stage: &Stage, about: &str, reason: &str) -> Value {
    let path = format!("{}?fieldSelector=involvedObject.name%3D{about},reason%3D{reason}", stage.at("v1", "events"));
    stage.wait_some("the event", || stage.read(&path)["items"].as_array().and_then(|items| items.first()).cloned())
}

/// Nobody else's nodes are counted.
fn alone(stage: &Stage) {
    stage.wait_for("the nodes of other tests to go", || stage.read("/api/v1/nodes")["items"] == json!([]));
}

fn a_scheduled_pod_is_told(stage: &Stage) {
    let node = stage.add_node("n", |_| {});
    stage.create(&stage.pods(), &pod(stage, "one", json!({})));
    assert_eq!(place_of(stage, "one"), node);
    let scheduled = condition(&stage.read(&stage.object("v1", "pods", "one")));
    assert_eq!(scheduled["status"], "True");
    let event = event(stage, "one", "Scheduled");
    assert_eq!(event["message"], format!("Successfully assigned {}/one to {node}", stage.namespace));
    assert_eq!(
        (&event["type"], &event["reportingComponent"], &event["action"]),
        (&json!("Normal"), &json!("default-scheduler"), &json!("Binding"))
    );
}

fn a_pod_of_another_scheduler_is_left_alone(stage: &Stage) {
    stage.add_node("n", |_| {});
    stage.create(&stage.pods(), &pod(stage, "other", json!({"schedulerName": "somebody-else"})));
    stage.create(&stage.pods(), &pod(stage, "one", json!({})));
    place_of(stage, "one");
    let other = stage.read(&stage.object("v1", "pods", "other"));
    assert_eq!((&other["spec"]["nodeName"], condition(&other)), (&Value::Null, Value::Null));
}

fn a_gated_pod_waits_until_its_gates_are_gone(stage: &Stage) {
    let node = stage.add_node("n", |_| {});
    let gates = json!({"schedulingGates": [{"name": "kerf.test/a"}, {"name": "kerf.test/b"}]});
    let created = stage.create(&stage.pods(), &pod(stage, "gated", gates));
    assert_eq!(condition(&created)["reason"], "SchedulingGated");
    stage.create(&stage.pods(), &pod(stage, "free", json!({})));
    place_of(stage, "free");
    let path = stage.object("v1", "pods", "gated");
    assert_eq!(stage.read(&path)["spec"]["nodeName"], Value::Null);
    stage.patch(&path, "json", &json!([{"op": "remove", "path": "/spec/schedulingGates/0"}]));
    stage.patch(&path, "json", &json!([{"op": "remove", "path": "/spec/schedulingGates"}]));
    assert_eq!(place_of(stage, "gated"), node);
}

fn a_pod_waits_for_a_node_that_suits(stage: &Stage) {
    stage.add_node("small", |node| node["status"]["allocatable"]["cpu"] = json!("1"));
    stage.create(&stage.pods(), &pod(stage, "one", json!({"containers": asking("2")})));
    let path = stage.object("v1", "pods", "one");
    stage.wait_for("the pod to be refused", || condition(&stage.read(&path))["status"] == "False");
    let large = stage.add_node("large", |_| {});
    assert_eq!(place_of(stage, "one"), large);
}

fn avoiding(kind: &str, app: &str, topology: &str) -> Value {
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": topology, "labelSelector": {"matchLabels": {"app": app}}}]}}})
}

fn pods_that_avoid_each_other_part(stage: &Stage) {
    for name in ["n1", "n2"] {
        stage.add_node(name, |_| {});
    }
    for name in ["web-1", "web-2"] {
        stage.create(&stage.pods(), &pod(stage, name, avoiding("podAntiAffinity", "web", "kubernetes.io/hostname")));
    }
    assert_ne!(place_of(stage, "web-1"), place_of(stage, "web-2"));
}

fn pods_spread_over_zones(stage: &Stage) {
    for (name, zone) in [("n1", "a"), ("n2", "a"), ("n3", "b")] {
        stage.add_node(name, |node| node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!(zone));
    }
    let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    let mut in_b = 0;
    for name in ["web-1", "web-2", "web-3", "web-4"] {
        stage.create(&stage.pods(), &pod(stage, name, spread.clone()));
        in_b += usize::from(place_of(stage, name) == stage.unique("n3"));
    }
    assert_eq!(in_b, 2);
}

fn a_pod_goes_where_its_friends_are(stage: &Stage) {
    for name in ["n1", "n2", "n3"] {
        stage.add_node(name, |_| {});
    }
    stage.create(&stage.pods(), &pod(stage, "db", json!({})));
    let home = place_of(stage, "db");
    for name in ["web-1", "web-2"] {
        stage.create(&stage.pods(), &pod(stage, name, avoiding("podAffinity", "db", "kubernetes.io/hostname")));
        assert_eq!(place_of(stage, name), home);
    }
}

fn the_preferred_node_is_taken(stage: &Stage) {
    for (name, disk) in [("n1", "slow"), ("n2", "fast"), ("n3", "slow")] {
        stage.add_node(name, |node| node["metadata"]["labels"]["disk"] = json!(disk));
    }
    let prefers = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}}]}}});
    stage.create(&stage.pods(), &pod(stage, "one", prefers));
    assert_eq!(place_of(stage, "one"), stage.unique("n2"));
}

fn without_nodes_there_is_nowhere_to_go(stage: &Stage) {
    alone(stage);
    assert_eq!(refusal(stage, &pod(stage, "one", json!({}))), "no nodes available to schedule pods");
}

const NO_VICTIMS: &str =
    "no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
const NOT_HELPFUL: &str =
    "no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";

fn what_does_not_fit_is_told_with_its_resource(stage: &Stage) {
    alone(stage);
    stage.add_node("n", |node| node["status"]["allocatable"]["pods"] = json!("1"));
    assert_eq!(
        refusal(stage, &pod(stage, "cpu", json!({"containers": asking("9")}))),
        format!("0/1 nodes are available: 1 Insufficient cpu. {NOT_HELPFUL}")
    );
    let large = json!([{"name": "c", "image": "i", "resources": {"requests": {"memory": "1Ti", "example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}}]);
    assert_eq!(
        refusal(stage, &pod(stage, "memory", json!({"containers": large}))),
        format!("0/1 nodes are available: 1 Insufficient example.com/gpu, 1 Insufficient memory. {NOT_HELPFUL}")
    );
    stage.create(&stage.pods(), &pod(stage, "first", json!({})));
    place_of(stage, "first");
    assert_eq!(
        refusal(stage, &pod(stage, "second", json!({}))),
        format!("0/1 nodes are available: 1 Too many pods. {NO_VICTIMS}")
    );
}

fn each_node_has_its_reason(stage: &Stage) {
    alone(stage);
    stage.add_node("small", |node| node["status"]["allocatable"]["cpu"] = json!("1"));
    stage.add_node("other", |node| node["metadata"]["labels"]["disk"] = json!("slow"));
    stage.add_node("cordoned", |node| node["spec"]["unschedulable"] = json!(true));
    let wanted = json!({"containers": asking("2"), "nodeSelector": null, "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["slow"]}]}]}}}});
    let mut body = pod(stage, "one", wanted);
    body["spec"].as_object_mut().unwrap().remove("nodeSelector");
    assert_eq!(
        refusal(stage, &body),
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) were \
         unschedulable. no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    );
}

fn a_taint_is_told_with_its_value(stage: &Stage) {
    alone(stage);
    stage.add_node("n", |node| {
        node["spec"]["taints"] = json!([{"key": "kerf.test/why", "value": "because", "effect": "NoSchedule"}]);
    });
    assert_eq!(
        refusal(stage, &pod(stage, "one", json!({}))),
        format!("0/1 nodes are available: 1 node(s) had untolerated taint(s). {NOT_HELPFUL}")
    );
}

fn a_third_pod_that_avoids_two_is_told(stage: &Stage) {
    alone(stage);
    for name in ["n1", "n2"] {
        stage.add_node(name, |_| {});
    }
    let avoids = || avoiding("podAntiAffinity", "web", "kubernetes.io/hostname");
    for name in ["web-1", "web-2"] {
        stage.create(&stage.pods(), &pod(stage, name, avoids()));
        place_of(stage, name);
    }
    assert_eq!(
        refusal(stage, &pod(stage, "web-3", avoids())),
        "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules. no new claims to deallocate, preemption: 0/2 nodes are available: 2 No \
         preemption victims found for incoming pod."
    );
    assert_eq!(
        refusal(stage, &pod(stage, "lonely", avoiding("podAffinity", "nobody", "kubernetes.io/hostname"))),
        "0/2 nodes are available: 2 node(s) didn't match pod affinity rules. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption \
         is not helpful for scheduling."
    );
}

fn a_spread_that_cannot_hold_is_told(stage: &Stage) {
    alone(stage);
    stage.add_node("n1", |node| node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("a"));
    stage.add_node("n2", |node| {
        node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("b");
        node["status"]["allocatable"]["cpu"] = json!("100m");
    });
    let spread = || {
        json!({"containers": asking("1"), "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]})
    };
    stage.create(&stage.pods(), &pod(stage, "web-1", spread()));
    place_of(stage, "web-1");
    assert_eq!(
        refusal(stage, &pod(stage, "web-2", spread())),
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match pod topology spread constraints. no new claims to deallocate, preemption: 0/2 \
         nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
    );
}

fn a_port_that_is_taken_is_told(stage: &Stage) {
    alone(stage);
    stage.add_node("n", |_| {});
    let with_port =
        || json!({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 8080}]}]});
    stage.create(&stage.pods(), &pod(stage, "first", with_port()));
    place_of(stage, "first");
    assert_eq!(
        refusal(stage, &pod(stage, "second", with_port())),
        format!("0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. {NO_VICTIMS}")
    );
}

fn class(stage: &Stage, name: &str, value: i64, policy: &str) -> String {
    let name = stage.unique(name);
    let body = json!({"metadata": {"name": name}, "value": value, "preemptionPolicy": policy});
    stage.create_for_now("/apis/scheduling.k8s.io/v1/priorityclasses", &body);
    name
}

fn a_pod_that_may_not_preempt_is_told(stage: &Stage) {
    alone(stage);
    stage.add_node("n", |_| {});
    stage.create(&stage.pods(), &pod(stage, "first", json!({"containers": asking("6")})));
    place_of(stage, "first");
    let polite = class(stage, "polite", 1000, "Never");
    let body = pod(stage, "second", json!({"containers": asking("6"), "priorityClassName": polite}));
    assert_eq!(
        refusal(stage, &body),
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never."
    );
}

fn an_important_pod_takes_the_place_of_another(stage: &Stage) {
    alone(stage);
    let node = stage.add_node("n", |_| {});
    stage.create(
        &stage.pods(),
        &pod(stage, "first", json!({"containers": asking("6"), "terminationGracePeriodSeconds": 30})),
    );
    place_of(stage, "first");
    let first = stage.object("v1", "pods", "first");
    stage.wait_for("the first to run", || stage.read(&first)["status"]["phase"] == "Running");
    // It stays to be looked at.
    stage.patch(&first, "merge", &json!({"metadata": {"finalizers": ["kerf.test/hold"]}}));
    let high = class(stage, "high", 1000, "PreemptLowerPriority");
    let second = stage
        .create(&stage.pods(), &pod(stage, "second", json!({"containers": asking("6"), "priorityClassName": high})));
    let victim = stage.wait_some("the first to be told to go", || {
        Some(stage.read(&first)).filter(|pod| pod["metadata"]["deletionTimestamp"].is_string())
    });
    let conditions = victim["status"]["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget").unwrap();
    assert_eq!(
        (&target["status"], &target["reason"], &target["message"]),
        (
            &json!("True"),
            &json!("PreemptionByScheduler"),
            &json!("default-scheduler: preempting to accommodate a higher priority pod")
        )
    );
    let event = event(stage, "first", "Preempted");
    assert_eq!(
        event["message"],
        format!("Preempted by pod {} on node {node}", second["metadata"]["uid"].as_str().unwrap())
    );
    let path = stage.object("v1", "pods", "second");
    stage.wait_for("the second to be promised the node", || {
        stage.read(&path)["status"]["nominatedNodeName"] == node.as_str()
    });
    stage.patch(&first, "merge", &json!({"metadata": {"finalizers": null}}));
    assert_eq!(place_of(stage, "second"), node);
}
