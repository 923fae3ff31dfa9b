//! Three ways to change a part of an object.

use serde_json::{Value, json};

use crate::expect::{causes, refused, refused_with};
use crate::objects::{config_map, deployment, pod};
use crate::stage::Stage;

crate::tests!(
    a_json_patch_works_step_by_step,
    a_json_patch_with_a_failing_test_is_refused,
    a_json_patch_of_a_missing_path_is_refused,
    a_json_patch_that_cannot_be_read_is_refused,
    a_merge_patch_removes_what_is_null,
    a_merge_patch_replaces_lists,
    a_strategic_patch_merges_lists_by_their_key,
    a_strategic_patch_merges_ports_by_number_and_protocol_by_default,
    a_strategic_patch_deletes_an_entry,
    a_strategic_patch_replaces_a_map_or_a_list,
    a_strategic_patch_deletes_from_a_list_of_words,
    a_strategic_patch_keeps_only_the_keys_it_names,
    a_strategic_patch_orders_a_list,
    a_strategic_patch_with_an_unknown_directive_is_refused,
    a_patch_of_a_stale_state_is_a_conflict,
    a_patch_must_say_its_type,
    a_patch_that_is_not_json_is_refused,
    a_patch_is_validated_like_an_update,
    a_patch_of_a_wrong_type_is_refused,
);

fn a_json_patch_works_step_by_step(stage: &Stage) {
    stage.create(&stage.config_maps(), &config_map("one", json!({"a": "1", "b": "2", "c": "3"})));
    let patched = stage.patch(
        &stage.object("v1", "configmaps", "one"),
        "json",
        &json!([
            {"op": "test", "path": "/data/a", "value": "1"},
            {"op": "replace", "path": "/data/a", "value": "10"},
            {"op": "remove", "path": "/data/b"},
            {"op": "move", "from": "/data/c", "path": "/data/moved"},
            {"op": "copy", "from": "/data/a", "path": "/data/copied"},
            {"op": "add", "path": "/metadata/labels", "value": {"x": "y"}},
            {"op": "add", "path": "/metadata/labels/kerf.test~1z", "value": "0"},
            {"op": "replace", "path": "/data/new", "value": "4"}
        ]),
    );
    // The last step replaces what was not there; the real server does not mind.
    assert_eq!(patched["data"], json!({"a": "10", "moved": "3", "copied": "10", "new": "4"}));
    assert_eq!(patched["metadata"]["labels"], json!({"x": "y", "kerf.test/z": "0"}));
}

fn a_json_patch_with_a_failing_test_is_refused(stage: &Stage) {
    stage.create(&stage.config_maps(), &config_map("one", json!({"a": "1"})));
    let path = stage.object("v1", "configmaps", "one");
    let patch = json!([{"op": "test", "path": "/data/a", "value": "2"}, {"op": "remove", "path": "/data/a"}]);
    let answer = stage.client.patch(&path, "json", &patch).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert_eq!(answer.message(), "the server rejected our request due to an error in our request");
    assert_eq!(stage.read(&path)["data"], json!({"a": "1"}));
}

fn a_json_patch_of_a_missing_path_is_refused(stage: &Stage) {
    stage.create(&stage.config_maps(), &config_map("one", json!({"a": "1"})));
    let path = stage.object("v1", "configmaps", "one");
    for patch in [
        json!([{"op": "remove", "path": "/data/none"}]),
        json!([{"op": "add", "path": "/nothing/here", "value": "1"}]),
        json!([{"op": "move", "from": "/data/none", "path": "/data/b"}]),
    ] {
        let answer = stage.client.patch(&path, "json", &patch).unwrap();
        refused_with(&answer, 422, "Invalid");
        assert_eq!(answer.message(), "the server rejected our request due to an error in our request", "{patch}");
    }
}

fn a_json_patch_that_cannot_be_read_is_refused(stage: &Stage) {
    stage.create(&stage.config_maps(), &config_map("one", json!({"a": "1"})));
    let path = stage.object("v1", "configmaps", "one");
    let answer = stage.client.patch(&path, "json", &json!({"data": {"a": "2"}})).unwrap();
    refused_with(&answer, 400, "BadRequest");
    assert_eq!(
        answer.message(),
        "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
    );
    let answer = stage.client.patch(&path, "json", &json!([{"op": "dance", "path": "/data/a"}])).unwrap();
    refused_with(&answer, 422, "Invalid");
}

fn a_merge_patch_removes_what_is_null(stage: &Stage) {
    stage.create(&stage.config_maps(), &config_map("one", json!({"a": "1", "b": "2"})));
    let path = stage.object("v1", "configmaps", "one");
    let patched = stage.patch(
        &path,
        "merge",
        &json!({"data": {"a": null, "c": "3"}, "metadata": {"labels": {"x": null, "y": "z"}}}),
    );
    assert_eq!((&patched["data"], &patched["metadata"]["labels"]), (&json!({"b": "2", "c": "3"}), &json!({"y": "z"})));
    assert_eq!(stage.patch(&path, "merge", &json!({"data": null}))["data"], Value::Null);
}

fn a_merge_patch_replaces_lists(stage: &Stage) {
    stage.create(&stage.at("apps/v1", "deployments"), &deployment("one"));
    let path = stage.object("apps/v1", "deployments", "one");
    let containers = json!([{"name": "other", "image": "other:1"}]);
    let patched = stage.patch(&path, "merge", &json!({"spec": {"template": {"spec": {"containers": containers}}}}));
    let found = patched["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    assert_eq!(
        (found.len(), &found[0]["name"], &found[0]["imagePullPolicy"]),
        (1, &json!("other"), &json!("IfNotPresent"))
    );
}

/// A deployment with lists to patch.
fn patched(stage: &Stage, patch: Value) -> Value {
    let mut body = deployment("one");
    body["spec"]["template"]["spec"] = json!({
        "containers": [
            {"name": "web", "image": "web:1", "ports": [{"containerPort": 80}, {"containerPort": 443}],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], "args": ["x", "y"]},
            {"name": "side", "image": "side:1"}],
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
        "nodeSelector": {"a": "1", "b": "2"},
        "tolerations": [{"key": "t", "operator": "Exists"}],
    });
    body["metadata"]["finalizers"] = json!(["kerf.test/a", "kerf.test/b"]);
    let created = stage.client.post(&stage.at("apps/v1", "deployments"), &body).unwrap();
    assert!(created.status == 201 || created.status == 409, "{}", created.message());
    let path = stage.object("apps/v1", "deployments", "one");
    let patched = stage.patch(&path, "strategic-merge", &patch);
    stage.patch(&path, "merge", &json!({"metadata": {"finalizers": null}}));
    patched
}

fn template(spec: Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

fn a_strategic_patch_merges_lists_by_their_key(stage: &Stage) {
    let patched = patched(
        stage,
        template(json!({"containers": [
            {"name": "web", "image": "web:2", "env": [{"name": "B", "value": "20"}, {"name": "C", "value": "3"}], "args": ["z"]},
            {"name": "more", "image": "more:1"}]})),
    );
    let containers = &patched["spec"]["template"]["spec"]["containers"];
    let names: Vec<&Value> = containers.as_array().unwrap().iter().map(|container| &container["name"]).collect();
    assert_eq!(names, ["web", "more", "side"].map(|name| json!(name)).iter().collect::<Vec<_>>());
    let web = &containers[0];
    assert_eq!((&web["image"], &web["args"]), (&json!("web:2"), &json!(["z"])));
    let mut env = web["env"].as_array().unwrap().clone();
    env.sort_by_key(|entry| entry["name"].as_str().unwrap().to_owned());
    assert_eq!(
        json!(env),
        json!([{"name": "A", "value": "1"}, {"name": "B", "value": "20"}, {"name": "C", "value": "3"}])
    );
}

fn a_strategic_patch_merges_ports_by_number_and_protocol_by_default(stage: &Stage) {
    let patched = patched(
        stage,
        template(json!({"containers": [{"name": "web", "ports": [{"containerPort": 443, "name": "tls"}]}],
            "tolerations": [{"key": "other", "operator": "Exists"}]})),
    );
    let spec = &patched["spec"]["template"]["spec"];
    assert_eq!(
        spec["containers"][0]["ports"],
        json!([{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 443, "name": "tls", "protocol": "TCP"}])
    );
    assert_eq!(
        spec["tolerations"],
        json!([{"key": "other", "operator": "Exists"}]),
        "a list without a key is replaced"
    );
}

fn a_strategic_patch_deletes_an_entry(stage: &Stage) {
    let patched = patched(
        stage,
        template(
            json!({"containers": [{"name": "side", "$patch": "delete"}], "volumes": [{"name": "v", "$patch": "delete"}],
            "nodeSelector": {"a": null}}),
        ),
    );
    let spec = &patched["spec"]["template"]["spec"];
    assert_eq!(spec["containers"].as_array().unwrap().len(), 1);
    assert_eq!((&spec["volumes"], &spec["nodeSelector"]), (&Value::Null, &json!({"b": "2"})));
}

fn a_strategic_patch_replaces_a_map_or_a_list(stage: &Stage) {
    let patched = patched(
        stage,
        template(json!({"nodeSelector": {"$patch": "replace", "c": "3"},
            "containers": [{"$patch": "replace"}, {"name": "only", "image": "only:1"}]})),
    );
    let spec = &patched["spec"]["template"]["spec"];
    assert_eq!(spec["nodeSelector"], json!({"c": "3"}));
    assert_eq!((spec["containers"].as_array().unwrap().len(), &spec["containers"][0]["name"]), (1, &json!("only")));
}

fn a_strategic_patch_deletes_from_a_list_of_words(stage: &Stage) {
    let patched = patched(stage, json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["kerf.test/a"]}}));
    assert_eq!(patched["metadata"]["finalizers"], json!(["kerf.test/b"]));
    let patched = self::patched(stage, json!({"metadata": {"finalizers": ["kerf.test/c"]}}));
    assert_eq!(patched["metadata"]["finalizers"], json!(["kerf.test/c"]), "what the patch before left was cleared");
}

fn a_strategic_patch_keeps_only_the_keys_it_names(stage: &Stage) {
    let patched = patched(
        stage,
        json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"},
            "template": {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}]}}}}),
    );
    assert_eq!(patched["spec"]["strategy"], json!({"type": "Recreate"}));
    assert_eq!(
        patched["spec"]["template"]["spec"]["volumes"],
        json!([{"name": "v", "configMap": {"name": "c", "defaultMode": 420}}])
    );
}

fn a_strategic_patch_orders_a_list(stage: &Stage) {
    let patched = patched(
        stage,
        template(json!({"$setElementOrder/containers": [{"name": "side"}, {"name": "new"}, {"name": "web"}],
            "containers": [{"name": "new", "image": "new:1"}]})),
    );
    let containers = patched["spec"]["template"]["spec"]["containers"].as_array().unwrap().clone();
    let names: Vec<&str> = containers.iter().map(|container| container["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["side", "new", "web"]);
}

fn a_strategic_patch_with_an_unknown_directive_is_refused(stage: &Stage) {
    stage.create(&stage.at("apps/v1", "deployments"), &deployment("one"));
    let path = stage.object("apps/v1", "deployments", "one");
    let answer = stage.client.patch(&path, "strategic-merge", &template(json!({"$patch": "explode"}))).unwrap();
    refused(&answer, 500, "", "unknown patch type: explode in map: map[$patch:explode]");
}

fn a_patch_of_a_stale_state_is_a_conflict(stage: &Stage) {
    let first = stage.create(&stage.config_maps(), &config_map("one", json!({"a": "1"})));
    let path = stage.object("v1", "configmaps", "one");
    stage.patch(&path, "merge", &json!({"data": {"a": "2"}}));
    let patch = json!({"data": {"a": "3"}, "metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}});
    for kind in ["merge", "strategic-merge"] {
        let answer = stage.client.patch(&path, kind, &patch).unwrap();
        refused(
            &answer,
            409,
            "Conflict",
            r#"Operation cannot be fulfilled on configmaps "one": the object has been modified; please apply your changes to the latest version and try again"#,
        );
    }
}

fn a_patch_must_say_its_type(stage: &Stage) {
    stage.create(&stage.config_maps(), &config_map("one", json!({})));
    let path = stage.object("v1", "configmaps", "one");
    let answer = stage.client.call("PATCH", &path).typed("application/json", "{}").send().unwrap();
    refused(&answer, 415, "UnsupportedMediaType", "415: Unsupported Media Type");
}

fn a_patch_that_is_not_json_is_refused(stage: &Stage) {
    stage.create(&stage.config_maps(), &config_map("one", json!({})));
    let path = stage.object("v1", "configmaps", "one");
    for kind in ["merge", "strategic-merge", "json"] {
        let call = stage.client.call("PATCH", &path);
        let answer = call.typed(&format!("application/{kind}-patch+json"), "{nonsense").send().unwrap();
        refused_with(&answer, 400, "BadRequest");
        let said = answer.message();
        assert!(said.contains("invalid character 'n' looking for beginning of object key string"), "{kind}: {said}");
    }
}

fn a_patch_is_validated_like_an_update(stage: &Stage) {
    stage.create(&stage.at("apps/v1", "deployments"), &deployment("one"));
    let path = stage.object("apps/v1", "deployments", "one");
    let answer = stage.client.patch(&path, "merge", &json!({"spec": {"replicas": -1}})).unwrap();
    refused(
        &answer,
        422,
        "Invalid",
        r#"Deployment.apps "one" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"#,
    );
    assert_eq!(causes(&answer), ["FieldValueInvalid spec.replicas"]);
}

fn a_patch_of_a_wrong_type_is_refused(stage: &Stage) {
    stage.create(&stage.pods(), &pod("one"));
    let path = stage.object("v1", "pods", "one");
    let patch = json!({"spec": {"activeDeadlineSeconds": "soon"}});
    let answer = stage.client.patch(&path, "merge", &patch).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert_eq!(causes(&answer), ["FieldValueInvalid patch"]);
    let said = answer.message();
    assert!(said.starts_with(r#" "" is invalid: patch: Invalid value: "#), "{said}");
    let end = "json: cannot unmarshal string into Go struct field PodSpec.spec.activeDeadlineSeconds of type int64";
    assert!(said.ends_with(end), "{said}");
    let answer = stage.client.patch(&path, "strategic-merge", &patch).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert_eq!(causes(&answer), ["FieldValueInvalid patch"]);
}
