//! Server-side apply: who owns which field.

use kerf_e2e::client::Answer;
use serde_json::{Value, json};

use crate::expect::{refused, refused_with};
use crate::objects::{config_map, deployment};
use crate::stage::Stage;

crate::tests!(
    applying_creates_and_owns,
    applying_the_same_again_changes_nothing,
    a_field_that_is_no_longer_applied_goes,
    a_field_of_two_managers_stays_with_the_other,
    a_field_of_another_manager_is_a_conflict,
    force_takes_a_field_away,
    the_same_value_is_shared,
    an_update_takes_ownership_without_asking,
    lists_are_merged_by_their_keys,
    an_applied_list_item_that_is_left_out_goes,
    a_set_is_merged_and_an_atomic_list_replaced,
    the_status_is_applied_apart,
    an_update_through_the_status_is_told_apart,
    applying_needs_a_manager,
    applying_needs_the_kind_and_the_name_of_the_path,
    managed_fields_cannot_be_applied,
    managed_fields_can_be_reset,
    a_stale_apply_is_a_conflict,
    duplicate_list_items_are_refused,
    a_custom_resource_is_applied,
    managers_with_long_names_are_refused,
);

/// `manager operation subresource: fields`, in the order of the object.
fn owners(object: &Value) -> Vec<(String, String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    entries
        .map(|entry| {
            let subresource = entry["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
            (text(&entry["manager"]), format!("{}{subresource}", text(&entry["operation"])), entry["fieldsV1"].clone())
        })
        .collect()
}

fn owner(object: &Value, manager: &str) -> Value {
    owners(object).into_iter().find(|(name, _, _)| name == manager).map(|(_, _, fields)| fields).unwrap_or_default()
}

#[track_caller]
fn applied(answer: Answer) -> Value {
    assert!(answer.is_success(), "{}", answer.message());
    answer.body
}

fn applying_creates_and_owns(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    let mut body = config_map("one", json!({"a": "1"}));
    body["metadata"]["labels"] = json!({"x": "y"});
    let answer = stage.apply(&path, "me", "", &body);
    assert_eq!(answer.status, 201, "{}", answer.message());
    assert_eq!(
        owners(&answer.body),
        [(
            "me".to_owned(),
            "Apply".to_owned(),
            json!({"f:data": {"f:a": {}}, "f:metadata": {"f:labels": {"f:x": {}}}})
        )]
    );
    let answer = stage.apply(&path, "me", "", &config_map("one", json!({"a": "2"})));
    assert_eq!((answer.status, &answer.body["data"]), (200, &json!({"a": "2"})));
}

fn applying_the_same_again_changes_nothing(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    let first = applied(stage.apply(&path, "me", "", &config_map("one", json!({"a": "1"}))));
    let second = applied(stage.apply(&path, "me", "", &config_map("one", json!({"a": "1"}))));
    assert_eq!(second, first);
}

fn a_field_that_is_no_longer_applied_goes(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    applied(stage.apply(&path, "me", "", &config_map("one", json!({"a": "1", "b": "2"}))));
    let second = applied(stage.apply(&path, "me", "", &config_map("one", json!({"b": "2"}))));
    assert_eq!(second["data"], json!({"b": "2"}));
    let third = applied(stage.apply(&path, "me", "", &json!({"apiVersion": "v1", "kind": "ConfigMap"})));
    assert_eq!((&third["data"], owners(&third)), (&Value::Null, vec![]));
}

fn a_field_of_two_managers_stays_with_the_other(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    applied(stage.apply(&path, "me", "", &config_map("one", json!({"a": "1", "b": "2"}))));
    applied(stage.apply(&path, "you", "", &config_map("one", json!({"a": "1"}))));
    let after = applied(stage.apply(&path, "me", "", &config_map("one", json!({"b": "2"}))));
    assert_eq!(after["data"], json!({"a": "1", "b": "2"}));
    assert_eq!(
        (owner(&after, "me"), owner(&after, "you")),
        (json!({"f:data": {"f:b": {}}}), json!({"f:data": {"f:a": {}}}))
    );
}

fn a_field_of_another_manager_is_a_conflict(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    applied(stage.apply(&path, "me", "", &config_map("one", json!({"a": "1", "b": "2"}))));
    let answer = stage.apply(&path, "you", "", &config_map("one", json!({"a": "9"})));
    refused(&answer, 409, "Conflict", r#"Apply failed with 1 conflict: conflict with "me": .data.a"#);
    assert_eq!(
        answer.body["details"]["causes"],
        json!([{"reason": "FieldManagerConflict", "message": "conflict with \"me\"", "field": ".data.a"}])
    );
    let answer = stage.apply(&path, "you", "", &config_map("one", json!({"a": "9", "b": "8"})));
    refused(&answer, 409, "Conflict", "Apply failed with 2 conflicts: conflicts with \"me\":\n- .data.a\n- .data.b");
    assert_eq!(stage.read(&path)["data"], json!({"a": "1", "b": "2"}));
}

fn force_takes_a_field_away(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    applied(stage.apply(&path, "me", "", &config_map("one", json!({"a": "1", "b": "2"}))));
    let after = applied(stage.apply(&path, "you", "force=true", &config_map("one", json!({"a": "9"}))));
    assert_eq!(after["data"], json!({"a": "9", "b": "2"}));
    assert_eq!(
        (owner(&after, "me"), owner(&after, "you")),
        (json!({"f:data": {"f:b": {}}}), json!({"f:data": {"f:a": {}}}))
    );
}

fn the_same_value_is_shared(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    applied(stage.apply(&path, "me", "", &config_map("one", json!({"a": "1"}))));
    let after = applied(stage.apply(&path, "you", "", &config_map("one", json!({"a": "1"}))));
    assert_eq!(owner(&after, "me"), owner(&after, "you"));
    // And whoever changes it then meets both.
    let answer = stage.apply(&path, "third", "", &config_map("one", json!({"a": "2"})));
    refused(
        &answer,
        409,
        "Conflict",
        "Apply failed with 2 conflicts: conflicts with \"me\":\n- .data.a\nconflicts with \"you\":\n- .data.a",
    );
}

fn an_update_takes_ownership_without_asking(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    applied(stage.apply(&path, "me", "", &config_map("one", json!({"a": "1", "b": "2"}))));
    let after = stage.patch(&format!("{path}?fieldManager=editor"), "merge", &json!({"data": {"a": "5"}}));
    assert_eq!(
        owners(&after).iter().map(|(name, operation, _)| format!("{name} {operation}")).collect::<Vec<_>>(),
        ["me Apply", "editor Update"]
    );
    assert_eq!(
        (owner(&after, "me"), owner(&after, "editor")),
        (json!({"f:data": {"f:b": {}}}), json!({"f:data": {"f:a": {}}}))
    );
    let answer = stage.apply(&path, "me", "", &config_map("one", json!({"a": "1", "b": "2"})));
    refused(&answer, 409, "Conflict", r#"Apply failed with 1 conflict: conflict with "editor" using v1: .data.a"#);
}

fn lists_are_merged_by_their_keys(stage: &Stage) {
    let path = stage.object("apps/v1", "deployments", "one");
    applied(stage.apply(&path, "me", "", &deployment("one")));
    let side = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "one"}, "spec": {"template": {"spec":
        {"containers": [{"name": "side", "image": "side:1", "ports": [{"containerPort": 80, "name": "http"}]}]}}}});
    let after = applied(stage.apply(&path, "injector", "", &side));
    let containers = after["spec"]["template"]["spec"]["containers"].as_array().unwrap().clone();
    assert_eq!(
        containers.iter().map(|container| &container["name"]).collect::<Vec<_>>(),
        [&json!("web"), &json!("side")]
    );
    assert_eq!(
        owner(&after, "injector"),
        json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"side\"}": {".": {}, "f:image": {}, "f:name": {},
            "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:name": {}}}}}}}}})
    );
}

fn an_applied_list_item_that_is_left_out_goes(stage: &Stage) {
    let path = stage.object("apps/v1", "deployments", "one");
    let mut body = deployment("one");
    body["spec"]["template"]["spec"]["containers"] =
        json!([{"name": "web", "image": "web:1"}, {"name": "side", "image": "side:1"}]);
    applied(stage.apply(&path, "me", "", &body));
    let after = applied(stage.apply(&path, "me", "", &deployment("one")));
    let containers = after["spec"]["template"]["spec"]["containers"].as_array().unwrap().clone();
    assert_eq!(containers.iter().map(|container| &container["name"]).collect::<Vec<_>>(), [&json!("web")]);
}

fn a_set_is_merged_and_an_atomic_list_replaced(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    let with = |finalizers: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "finalizers": finalizers}});
    applied(stage.apply(&path, "me", "", &with(json!(["kerf.test/a"]))));
    let after = applied(stage.apply(&path, "you", "", &with(json!(["kerf.test/b"]))));
    assert_eq!(after["metadata"]["finalizers"], json!(["kerf.test/a", "kerf.test/b"]));
    assert_eq!(owner(&after, "you"), json!({"f:metadata": {"f:finalizers": {"v:\"kerf.test/b\"": {}}}}));
    stage.patch(&path, "merge", &json!({"metadata": {"finalizers": null}}));

    let claims = stage.object("v1", "persistentvolumeclaims", "one");
    let claim = |modes: Value| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "one"},
        "spec": {"accessModes": modes, "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let created = applied(stage.apply(&claims, "me", "", &claim(json!(["ReadWriteOnce"]))));
    assert_eq!(owner(&created, "me")["f:spec"]["f:accessModes"], json!({}), "a list that is one value");
    let answer = stage.apply(&claims, "you", "", &claim(json!(["ReadOnlyMany"])));
    refused(&answer, 409, "Conflict", r#"Apply failed with 1 conflict: conflict with "me": .spec.accessModes"#);
}

fn the_status_is_applied_apart(stage: &Stage) {
    let path = stage.object("apps/v1", "deployments", "one");
    applied(stage.apply(&path, "me", "", &deployment("one")));
    let status = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "one"}, "spec": {"replicas": 7},
        "status": {"conditions": [{"type": "Kerf", "status": "True", "reason": "Because", "message": "so"}]}});
    let after = applied(stage.apply(&format!("{path}/status"), "judge", "", &status));
    assert_eq!(after["spec"]["replicas"], 0);
    let (_, operation, fields) = owners(&after).into_iter().find(|(name, _, _)| name == "judge").unwrap();
    assert_eq!(operation, "Apply/status");
    assert_eq!(
        fields,
        json!({"f:status": {"f:conditions": {"k:{\"type\":\"Kerf\"}": {".": {}, "f:message": {}, "f:reason": {}, "f:status": {}, "f:type": {}}}}})
    );
    // What the main resource says of the status is not listened to.
    let mut body = deployment("one");
    body["status"] = json!({"replicas": 5});
    let after = applied(stage.apply(&path, "me", "", &body));
    assert_eq!(owner(&after, "me")["f:status"], Value::Null);
}

fn an_update_through_the_status_is_told_apart(stage: &Stage) {
    stage.create(&format!("{}?fieldManager=maker", stage.pods()), &crate::objects::pod("one"));
    let path = stage.object("v1", "pods", "one/status?fieldManager=kubelet");
    let after = stage.patch(&path, "strategic-merge", &json!({"status": {"phase": "Running"}}));
    let found: Vec<String> =
        owners(&after).into_iter().map(|(name, operation, _)| format!("{name} {operation}")).collect();
    assert_eq!(found, ["kubelet Update/status", "maker Update"]);
    assert_eq!(owner(&after, "kubelet"), json!({"f:status": {"f:phase": {}}}));
}

fn applying_needs_a_manager(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    let call = stage.client.call("PATCH", &path);
    let answer = call.typed("application/apply-patch+yaml", config_map("one", json!({})).to_string()).send().unwrap();
    refused(
        &answer,
        422,
        "Invalid",
        r#"PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch"#,
    );
    let answer = stage.client.patch(&format!("{path}?force=true"), "merge", &json!({})).unwrap();
    refused(
        &answer,
        422,
        "Invalid",
        r#"PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch"#,
    );
}

fn applying_needs_the_kind_and_the_name_of_the_path(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    let answer = stage.apply(&path, "me", "", &json!({"metadata": {"name": "one"}, "data": {}}));
    refused(&answer, 400, "BadRequest", "invalid object type: /, Kind=");
    let answer = stage.apply(&path, "me", "", &config_map("two", json!({})));
    refused_with(&answer, 400, "BadRequest");
    let said = answer.message();
    assert!(
        said.contains("the name of the object (two based on URL) was undeterminable")
            || said.contains("does not match the name on the URL (one)"),
        "{said}"
    );
    let call = stage.client.call("PATCH", &format!("{path}?fieldManager=me"));
    let answer = call.typed("application/apply-patch+yaml", "a: [").send().unwrap();
    refused_with(&answer, 400, "BadRequest");
    assert!(answer.message().starts_with("error decoding YAML: "), "{}", answer.message());
}

fn managed_fields_cannot_be_applied(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    let mut body = config_map("one", json!({"a": "1"}));
    body["metadata"]["managedFields"] = json!([{"manager": "x", "operation": "Apply", "apiVersion": "v1"}]);
    let answer = stage.apply(&path, "me", "", &body);
    refused(&answer, 400, "BadRequest", "metadata.managedFields must be nil");
}

fn managed_fields_can_be_reset(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    applied(stage.apply(&path, "me", "", &config_map("one", json!({"a": "1"}))));
    let after = stage.patch(&path, "merge", &json!({"metadata": {"managedFields": [{}]}}));
    assert_eq!(after["metadata"]["managedFields"], Value::Null);
}

fn a_stale_apply_is_a_conflict(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    let first = applied(stage.apply(&path, "me", "", &config_map("one", json!({"a": "1"}))));
    applied(stage.apply(&path, "me", "", &config_map("one", json!({"a": "2"}))));
    let mut body = config_map("one", json!({"a": "3"}));
    body["metadata"]["resourceVersion"] = first["metadata"]["resourceVersion"].clone();
    let answer = stage.apply(&path, "me", "force=true", &body);
    refused_with(&answer, 409, "Conflict");
    assert!(answer.message().contains("the object has been modified"), "{}", answer.message());
}

fn duplicate_list_items_are_refused(stage: &Stage) {
    let path = stage.object("apps/v1", "deployments", "one");
    let mut body = deployment("one");
    body["spec"]["template"]["spec"]["containers"] =
        json!([{"name": "web", "image": "web:1"}, {"name": "web", "image": "web:2"}]);
    let answer = stage.apply(&path, "me", "", &body);
    assert_eq!(answer.status, 500, "{}", answer.message());
    assert!(
        answer.message().contains(r#".spec.template.spec.containers: duplicate entries for key [name="web"]"#),
        "{}",
        answer.message()
    );
}

fn a_custom_resource_is_applied(stage: &Stage) {
    let collection = crate::objects::gadgets(
        stage,
        json!({"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "size": {"type": "integer"},
            "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object",
                "required": ["name"], "properties": {"name": {"type": "string"}, "count": {"type": "integer"}}}}}}}}}}),
    );
    let path = format!("{collection}/one");
    let with = |spec: Value| crate::objects::gadget(stage, "one", json!({"spec": spec}));
    applied(stage.apply(&path, "me", "", &with(json!({"size": 1, "parts": [{"name": "a", "count": 1}]}))));
    let after = applied(stage.apply(&path, "you", "", &with(json!({"parts": [{"name": "b", "count": 2}]}))));
    assert_eq!(after["spec"]["parts"], json!([{"name": "a", "count": 1}, {"name": "b", "count": 2}]));
    let answer = stage.apply(&path, "you", "", &with(json!({"size": 2, "parts": [{"name": "b", "count": 2}]})));
    refused(&answer, 409, "Conflict", r#"Apply failed with 1 conflict: conflict with "me": .spec.size"#);
}

fn managers_with_long_names_are_refused(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    let answer = stage.apply(&path, &"m".repeat(129), "", &config_map("one", json!({})));
    refused_with(&answer, 422, "Invalid");
    assert_eq!(
        answer.message(),
        r#"PatchOptions.meta.k8s.io "" is invalid: fieldManager: Too long: may not be more than 128 bytes"#
    );
}
