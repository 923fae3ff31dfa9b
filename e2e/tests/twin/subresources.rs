//! The doors beside the main one: scale, eviction, binding, status.

use serde_json::{Value, json};

use crate::expect::{refused, refused_with};
use crate::objects::{deployment, pod};
use crate::stage::Stage;

crate::tests!(
    a_scale_shows_and_sets_the_replicas,
    a_scale_is_validated,
    a_scale_of_a_stale_state_is_a_conflict,
    a_scale_is_patched,
    a_pod_is_evicted,
    an_eviction_is_refused_while_a_budget_has_nothing_left,
    an_eviction_of_a_pod_of_two_budgets_is_an_error,
    an_eviction_asks_for_an_identity,
    an_eviction_in_a_dry_run_evicts_nobody,
    a_pod_that_does_not_run_is_evicted_whatever_its_budget,
    a_pod_is_bound_to_a_node,
    a_pod_is_bound_once,
    a_binding_needs_a_node,
    a_binding_keeps_its_annotations,
    a_pod_that_is_gated_cannot_be_bound,
    a_nodes_status_is_written_apart,
    a_service_account_gets_a_token,
);

fn deployed(stage: &Stage) -> String {
    stage.create(&stage.at("apps/v1", "deployments"), &deployment("one"));
    stage.object("apps/v1", "deployments", "one")
}

fn a_scale_shows_and_sets_the_replicas(stage: &Stage) {
    let path = deployed(stage);
    let mut scale = stage.read(&format!("{path}/scale"));
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!((&scale["spec"], &scale["status"]), (&json!({}), &json!({"replicas": 0, "selector": "app=one"})));
    let object = stage.read(&path);
    for field in ["uid", "name", "namespace", "creationTimestamp"] {
        assert_eq!(scale["metadata"][field], object["metadata"][field], "{field}");
    }
    // Without a version, as kubectl sends it: the deployment's controller may have written in between.
    scale["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    stage.patch(&path, "merge", &json!({"spec": {"paused": true}}));
    scale["spec"]["replicas"] = json!(3);
    let scaled = stage.replace(&format!("{path}/scale"), &scale);
    assert_eq!(scaled["spec"], json!({"replicas": 3}));
    assert_eq!(stage.read(&path)["spec"]["replicas"], 3);
}

fn a_scale_is_validated(stage: &Stage) {
    let path = deployed(stage);
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "one", "namespace": stage.namespace},
        "spec": {"replicas": -1}});
    let answer = stage.client.put(&format!("{path}/scale"), &scale).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert_eq!(
        answer.message(),
        r#"Scale.autoscaling "one" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"#
    );
    let answer = stage.client.get(&stage.object("apps/v1", "deployments", "none/scale")).unwrap();
    refused(&answer, 404, "NotFound", r#"deployments.apps "none" not found"#);
}

fn a_scale_of_a_stale_state_is_a_conflict(stage: &Stage) {
    let path = deployed(stage);
    let mut scale = stage.read(&format!("{path}/scale"));
    stage.patch(&path, "merge", &json!({"metadata": {"labels": {"a": "b"}}}));
    scale["spec"]["replicas"] = json!(2);
    let answer = stage.client.put(&format!("{path}/scale"), &scale).unwrap();
    refused_with(&answer, 409, "Conflict");
    assert!(
        answer
            .message()
            .ends_with("the object has been modified; please apply your changes to the latest version and try again")
    );
}

fn a_scale_is_patched(stage: &Stage) {
    let path = deployed(stage);
    stage.patch(&path, "merge", &json!({"spec": {"paused": true}}));
    let patched = stage.patch(&format!("{path}/scale"), "merge", &json!({"spec": {"replicas": 4}}));
    assert_eq!((&patched["kind"], &patched["spec"]["replicas"]), (&json!("Scale"), &json!(4)));
    assert_eq!(stage.read(&path)["spec"]["replicas"], 4);
}

fn eviction(name: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}})
}

/// A pod that runs, as far as its status goes.
fn running(stage: &Stage, name: &str) -> String {
    let node = stage.unique("untended");
    if stage.is_gone(&format!("/api/v1/nodes/{node}")) {
        stage.create_for_now("/api/v1/nodes", &json!({"metadata": {"name": node}}));
    }
    let mut pod = pod(name);
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod["spec"]["nodeName"] = json!(node);
    stage.create(&stage.pods(), &pod);
    let path = stage.object("v1", "pods", name);
    stage.patch(
        &format!("{path}/status"),
        "strategic-merge",
        &json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    path
}

fn budget(stage: &Stage, name: &str, min_available: i64) -> String {
    let body = json!({"metadata": {"name": name}, "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": "web"}}}});
    stage.create(&stage.at("policy/v1", "poddisruptionbudgets"), &body);
    stage.object("policy/v1", "poddisruptionbudgets", name)
}

fn allows(stage: &Stage, budget: &str, n: i64) {
    stage.wait_for("the budget to be counted", || {
        let budget = stage.read(budget);
        budget["status"]["observedGeneration"] == budget["metadata"]["generation"]
            && budget["status"]["disruptionsAllowed"] == n
    });
}

fn a_pod_is_evicted(stage: &Stage) {
    let path = running(stage, "one");
    let answer = stage.client.post(&format!("{path}/eviction"), &eviction("one")).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.message());
    assert_eq!((&answer.body["kind"], &answer.body["status"]), (&json!("Status"), &json!("Success")));
    let going = stage.read(&path);
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    let condition = &going["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["type"] == "DisruptionTarget")
        .unwrap()
        .clone();
    assert_eq!(
        (&condition["status"], &condition["reason"], &condition["message"]),
        (&json!("True"), &json!("EvictionByEvictionAPI"), &json!("Eviction API: evicting"))
    );
    stage.delete(&format!("{path}?gracePeriodSeconds=0"));
}

fn an_eviction_is_refused_while_a_budget_has_nothing_left(stage: &Stage) {
    let paths = [running(stage, "one"), running(stage, "two")];
    let budget = budget(stage, "guard", 1);
    allows(stage, &budget, 1);
    assert_eq!(stage.client.post(&format!("{}/eviction", paths[0]), &eviction("one")).unwrap().status, 201);
    let answer = stage.client.post(&format!("{}/eviction", paths[1]), &eviction("two")).unwrap();
    refused(&answer, 429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.");
    // How many are healthy depends on whether the budget has been counted again meanwhile.
    let causes = &answer.body["details"]["causes"];
    let told = |healthy: u32| {
        let message = format!("The disruption budget guard needs 1 healthy pods and has {healthy} currently");
        json!([{"reason": "DisruptionBudget", "message": message}])
    };
    assert!(*causes == told(1) || *causes == told(2), "{causes}");
    assert_eq!(stage.read(&paths[1])["metadata"]["deletionTimestamp"], Value::Null);
    for path in paths {
        stage.delete(&format!("{path}?gracePeriodSeconds=0"));
    }
}

fn an_eviction_of_a_pod_of_two_budgets_is_an_error(stage: &Stage) {
    let path = running(stage, "one");
    for name in ["a", "b"] {
        budget(stage, name, 0);
    }
    // The real server asks its own cache of budgets.
    let answer = stage.client.post(&format!("{path}/eviction"), &eviction("one")).unwrap();
    assert_eq!(answer.status, 500, "{}", answer.message());
    assert_eq!(
        answer.message(),
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    );
    stage.delete(&format!("{path}?gracePeriodSeconds=0"));
}

fn an_eviction_asks_for_an_identity(stage: &Stage) {
    let path = running(stage, "one");
    let mut body = eviction("one");
    body["deleteOptions"] = json!({"preconditions": {"uid": "another"}});
    let answer = stage.client.post(&format!("{path}/eviction"), &body).unwrap();
    refused_with(&answer, 409, "Conflict");
    let answer = stage.client.post(&format!("{path}/eviction"), &eviction("two")).unwrap();
    refused(&answer, 400, "BadRequest", "name in URL does not match name in Eviction object");
    let answer = stage.client.post(&stage.object("v1", "pods", "none/eviction"), &eviction("none")).unwrap();
    refused(&answer, 404, "NotFound", r#"pods "none" not found"#);
    stage.delete(&format!("{path}?gracePeriodSeconds=0"));
}

fn an_eviction_in_a_dry_run_evicts_nobody(stage: &Stage) {
    let path = running(stage, "one");
    let budget = budget(stage, "guard", 0);
    allows(stage, &budget, 1);
    assert_eq!(stage.client.post(&format!("{path}/eviction?dryRun=All"), &eviction("one")).unwrap().status, 201);
    assert_eq!(stage.read(&path)["metadata"]["deletionTimestamp"], Value::Null);
    assert_eq!(stage.read(&budget)["status"]["disruptionsAllowed"], 1);
    stage.delete(&format!("{path}?gracePeriodSeconds=0"));
}

fn a_pod_that_does_not_run_is_evicted_whatever_its_budget(stage: &Stage) {
    let mut body = pod("one");
    body["metadata"]["labels"] = json!({"app": "web"});
    stage.create(&stage.pods(), &body);
    let budget = budget(stage, "guard", 1);
    allows(stage, &budget, 0);
    let path = stage.object("v1", "pods", "one");
    assert_eq!(stage.client.post(&format!("{path}/eviction"), &eviction("one")).unwrap().status, 201);
    assert!(stage.is_gone(&path));
}

fn binding(name: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}})
}

fn a_pod_is_bound_to_a_node(stage: &Stage) {
    stage.create(&stage.pods(), &pod("one"));
    let path = stage.object("v1", "pods", "one");
    let node = stage.unique("n");
    let answer = stage.client.post(&format!("{path}/binding"), &binding("one", &node)).unwrap();
    assert_eq!(
        (answer.status, &answer.body["kind"], &answer.body["status"]),
        (201, &json!("Status"), &json!("Success"))
    );
    let bound = stage.read(&path);
    assert_eq!(bound["spec"]["nodeName"], node);
    let conditions = bound["status"]["conditions"].as_array().unwrap();
    let condition = conditions.iter().find(|condition| condition["type"] == "PodScheduled").unwrap();
    assert_eq!(condition["status"], "True");
    // The old door, of the whole namespace.
    stage.create(&stage.pods(), &pod("two"));
    assert_eq!(stage.client.post(&stage.at("v1", "bindings"), &binding("two", &node)).unwrap().status, 201);
    assert_eq!(stage.read(&stage.object("v1", "pods", "two"))["spec"]["nodeName"], node);
}

fn a_pod_is_bound_once(stage: &Stage) {
    stage.create(&stage.pods(), &pod("one"));
    let path = stage.object("v1", "pods", "one/binding");
    let (first, second) = (stage.unique("a"), stage.unique("b"));
    assert_eq!(stage.client.post(&path, &binding("one", &first)).unwrap().status, 201);
    let answer = stage.client.post(&path, &binding("one", &second)).unwrap();
    refused(
        &answer,
        409,
        "Conflict",
        &format!(
            "Operation cannot be fulfilled on pods/binding \"one\": pod one is already assigned to node \"{first}\""
        ),
    );
    let answer = stage.client.post(&stage.object("v1", "pods", "none/binding"), &binding("none", &first)).unwrap();
    refused(&answer, 404, "NotFound", r#"pods "none" not found"#);
}

fn a_binding_needs_a_node(stage: &Stage) {
    stage.create(&stage.pods(), &pod("one"));
    let path = stage.object("v1", "pods", "one/binding");
    let answer = stage.client.post(&path, &binding("one", "")).unwrap();
    refused(&answer, 500, "", "target.name: Required value");
    let mut other = binding("one", "n");
    other["target"]["kind"] = json!("Moon");
    let answer = stage.client.post(&path, &other).unwrap();
    refused(&answer, 500, "", r#"target.kind: Unsupported value: "Moon": supported values: "Node", "<empty>""#);
}

fn a_binding_keeps_its_annotations(stage: &Stage) {
    stage.create(&stage.pods(), &pod("one"));
    let mut body = binding("one", &stage.unique("n"));
    body["metadata"]["annotations"] = json!({"kerf.test/why": "because"});
    assert_eq!(stage.client.post(&stage.object("v1", "pods", "one/binding"), &body).unwrap().status, 201);
    assert_eq!(
        stage.read(&stage.object("v1", "pods", "one"))["metadata"]["annotations"],
        json!({"kerf.test/why": "because"})
    );
}

fn a_pod_that_is_gated_cannot_be_bound(stage: &Stage) {
    let mut body = pod("one");
    body["spec"]["schedulingGates"] = json!([{"name": "kerf.test/gate"}]);
    let created = stage.create(&stage.pods(), &body);
    let condition = &created["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"], &condition["reason"], &condition["message"]),
        (
            &json!("PodScheduled"),
            &json!("False"),
            &json!("SchedulingGated"),
            &json!("Scheduling is blocked due to non-empty scheduling gates")
        )
    );
    let answer = stage.client.post(&stage.object("v1", "pods", "one/binding"), &binding("one", "n")).unwrap();
    refused(
        &answer,
        409,
        "Conflict",
        "Operation cannot be fulfilled on pods/binding \"one\": pod one has non-empty .spec.schedulingGates",
    );
}

fn a_nodes_status_is_written_apart(stage: &Stage) {
    let name = stage.unique("n");
    let mut node = stage
        .create_for_now("/api/v1/nodes", &json!({"metadata": {"name": name}, "status": {"capacity": {"cpu": "4"}}}));
    assert_eq!(node["status"]["capacity"], json!({"cpu": "4"}), "a kubelet registers with its status");
    let path = format!("/api/v1/nodes/{name}");
    node = stage.patch(
        &format!("{path}/status"),
        "strategic-merge",
        &json!({"status": {"allocatable": {"cpu": "3"},
        "conditions": [{"type": "Ready", "status": "False"}]}, "spec": {"unschedulable": true}}),
    );
    assert_eq!((&node["status"]["allocatable"], &node["spec"]["unschedulable"]), (&json!({"cpu": "3"}), &Value::Null));
    let node = stage.patch(
        &path,
        "merge",
        &json!({"status": {"allocatable": {"cpu": "1"}}, "metadata": {"labels": {"a": "b"}}}),
    );
    assert_eq!(node["status"]["allocatable"], json!({"cpu": "3"}));
}

fn a_service_account_gets_a_token(stage: &Stage) {
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 900}});
    let answer = stage.client.post(&stage.object("v1", "serviceaccounts", "default/token"), &request).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.message());
    assert_eq!(answer.body["kind"], "TokenRequest");
    assert!(answer.body["status"]["token"].as_str().is_some_and(|token| token.len() > 20), "{}", answer.body);
    assert!(answer.body["status"]["expirationTimestamp"].is_string());
}
