//! Objects change: who may, when, and what follows from it.

use serde_json::{Value, json};

use crate::expect::{causes, refused, refused_with};
use crate::objects::{config_map, cron_job, deployment, pod};
use crate::stage::Stage;

crate::tests!(
    an_update_of_a_stale_state_is_a_conflict,
    an_update_without_a_version_is_unconditional,
    an_update_that_changes_nothing_keeps_the_version,
    an_update_of_another_identity_is_a_conflict,
    an_update_under_another_name_is_refused,
    the_generation_counts_changes_of_the_spec,
    the_status_is_written_apart_from_the_spec,
    the_status_cannot_change_what_is_meant,
    metadata_can_be_changed_through_the_status_where_it_is_allowed,
    identity_cannot_be_changed,
    a_pod_is_mostly_immutable,
    a_selector_is_immutable,
    an_immutable_config_map_stays,
    a_deployments_status_is_read_by_itself,
    a_subresource_of_another_kind_is_not_found,
);

fn an_update_of_a_stale_state_is_a_conflict(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    let first = stage.create(&stage.config_maps(), &config_map("one", json!({"a": "1"})));
    let mut second = first.clone();
    second["data"]["a"] = json!("2");
    let second = stage.replace(&path, &second);
    assert_ne!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let mut stale = first;
    stale["data"]["a"] = json!("3");
    let answer = stage.client.put(&path, &stale).unwrap();
    refused(
        &answer,
        409,
        "Conflict",
        r#"Operation cannot be fulfilled on configmaps "one": the object has been modified; please apply your changes to the latest version and try again"#,
    );
    assert_eq!(answer.body["details"], json!({"name": "one", "kind": "configmaps"}));
    assert_eq!(stage.read(&path)["data"], json!({"a": "2"}));
}

fn an_update_without_a_version_is_unconditional(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    stage.create(&stage.config_maps(), &config_map("one", json!({"a": "1"})));
    let replaced = stage.replace(&path, &config_map("one", json!({"b": "2"})));
    assert_eq!(replaced["data"], json!({"b": "2"}));
    let leases = stage.at("coordination.k8s.io/v1", "leases");
    let lease = json!({"metadata": {"name": "one"}, "spec": {"holderIdentity": "me"}});
    stage.create(&leases, &lease);
    let answer = stage.client.put(&format!("{leases}/one"), &lease).unwrap();
    // A lease is what others race for: its holder must say which state it saw.
    refused_with(&answer, 422, "Invalid");
    assert_eq!(
        answer.message(),
        r#"leases.coordination.k8s.io "one" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"#
    );
}

fn an_update_that_changes_nothing_keeps_the_version(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    let first = stage.create(&stage.config_maps(), &config_map("one", json!({"a": "1"})));
    let again = stage.replace(&path, &config_map("one", json!({"a": "1"})));
    assert_eq!(again, first);
    assert_eq!(stage.patch(&path, "merge", &json!({"data": {"a": "1"}})), first);
}

fn an_update_of_another_identity_is_a_conflict(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    let first = stage.create(&stage.config_maps(), &config_map("one", json!({})));
    stage.delete(&path);
    let second = stage.create(&stage.config_maps(), &config_map("one", json!({})));
    let mut stale = second.clone();
    stale["metadata"]["uid"] = first["metadata"]["uid"].clone();
    let answer = stage.client.put(&path, &stale).unwrap();
    refused_with(&answer, 409, "Conflict");
    let (theirs, ours) = (first["metadata"]["uid"].as_str().unwrap(), second["metadata"]["uid"].as_str().unwrap());
    // In between stand the names of the storage.
    let said = answer.message();
    assert!(said.starts_with("Operation cannot be fulfilled on configmaps \"one\": "), "{said}");
    let end = format!("Precondition failed: UID in precondition: {theirs}, UID in object meta: {ours}");
    assert!(said.ends_with(&end), "{said}");
}

fn an_update_under_another_name_is_refused(stage: &Stage) {
    stage.create(&stage.config_maps(), &config_map("one", json!({})));
    let answer = stage.client.put(&stage.object("v1", "configmaps", "one"), &config_map("two", json!({}))).unwrap();
    refused(&answer, 400, "BadRequest", "the name of the object (two) does not match the name on the URL (one)");
}

fn the_generation_counts_changes_of_the_spec(stage: &Stage) {
    let jobs = stage.at("batch/v1", "cronjobs");
    let path = format!("{jobs}/one");
    assert_eq!(stage.create(&jobs, &cron_job("one"))["metadata"]["generation"], 1);
    let generation = |patch: Value| stage.patch(&path, "merge", &patch)["metadata"]["generation"].clone();
    assert_eq!(generation(json!({"metadata": {"labels": {"a": "b"}}})), 1);
    assert_eq!(generation(json!({"spec": {"schedule": "1 0 31 12 *"}})), 2);
    assert_eq!(generation(json!({"spec": {"schedule": "1 0 31 12 *"}})), 2);
    assert_eq!(generation(json!({"metadata": {"generation": 99}})), 2);
    assert_eq!(generation(json!({"spec": {"suspend": false}, "metadata": {"annotations": {"a": "b"}}})), 3);
    let status = stage.patch(
        &format!("{path}/status"),
        "merge",
        &json!({"status": {"lastScheduleTime": "2026-01-01T00:00:00Z"}}),
    );
    assert_eq!(status["metadata"]["generation"], 3);
}

fn the_status_is_written_apart_from_the_spec(stage: &Stage) {
    let jobs = stage.at("batch/v1", "cronjobs");
    let path = format!("{jobs}/one");
    let mut created = stage.create(&jobs, &cron_job("one"));
    created["status"] = json!({"lastScheduleTime": "2026-01-01T00:00:00Z"});
    created["spec"]["schedule"] = json!("5 0 31 12 *");
    let updated = stage.replace(&path, &created);
    assert_eq!((&updated["status"], &updated["spec"]["schedule"]), (&json!({}), &json!("5 0 31 12 *")));

    let mut wanted = updated;
    wanted["status"] = json!({"lastScheduleTime": "2026-01-01T00:00:00Z"});
    wanted["spec"]["schedule"] = json!("6 0 31 12 *");
    let updated = stage.replace(&format!("{path}/status"), &wanted);
    assert_eq!(
        (&updated["status"]["lastScheduleTime"], &updated["spec"]["schedule"]),
        (&json!("2026-01-01T00:00:00Z"), &json!("5 0 31 12 *"))
    );
}

fn the_status_cannot_change_what_is_meant(stage: &Stage) {
    stage.create(&stage.pods(), &pod("one"));
    let path = stage.object("v1", "pods", "one");
    let patch = json!({"spec": {"containers": [{"name": "web", "image": "web:2"}]}, "status": {"message": "hello"}});
    let patched = stage.patch(&format!("{path}/status"), "strategic-merge", &patch);
    assert_eq!(
        (&patched["spec"]["containers"][0]["image"], &patched["status"]["message"]),
        (&json!("web:1"), &json!("hello"))
    );
    // And the other way around.
    let patch = json!({"metadata": {"labels": {"a": "b"}}, "status": {"message": "overwritten"}});
    let patched = stage.patch(&path, "merge", &patch);
    assert_eq!((&patched["metadata"]["labels"], &patched["status"]["message"]), (&json!({"a": "b"}), &json!("hello")));
}

fn metadata_can_be_changed_through_the_status_where_it_is_allowed(stage: &Stage) {
    stage.create(&stage.at("apps/v1", "deployments"), &deployment("one"));
    let path = stage.object("apps/v1", "deployments", "one/status");
    let patch = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}});
    let patched = stage.patch(&path, "merge", &patch);
    assert_eq!(patched["metadata"]["labels"], Value::Null, "labels of a deployment are not part of its status");
    stage.create(&stage.pods(), &pod("one"));
    let patched = stage.patch(&stage.object("v1", "pods", "one/status"), "merge", &patch);
    assert_eq!(
        (&patched["metadata"]["labels"], &patched["metadata"]["annotations"]),
        (&json!({"a": "b"}), &json!({"c": "d"}))
    );
}

fn identity_cannot_be_changed(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    let first = stage.create(&stage.config_maps(), &config_map("one", json!({})));
    let patch = json!({"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "namespace": stage.namespace}});
    let patched = stage.patch(&path, "merge", &patch);
    assert_eq!(patched["metadata"]["creationTimestamp"], first["metadata"]["creationTimestamp"]);
    let patch = json!({"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 7}});
    let answer = stage.client.patch(&path, "merge", &patch).unwrap();
    refused(
        &answer,
        422,
        "Invalid",
        r#"ConfigMap "one" is invalid: [metadata.deletionTimestamp: Invalid value: "2001-01-01T00:00:00Z": field is immutable, metadata.deletionGracePeriodSeconds: Invalid value: 7: field is immutable]"#,
    );
    let answer = stage.client.patch(&path, "merge", &json!({"metadata": {"uid": "x"}})).unwrap();
    refused(
        &answer,
        422,
        "Invalid",
        r#"ConfigMap "one" is invalid: metadata.uid: Invalid value: "x": field is immutable"#,
    );
    let answer = stage.client.patch(&path, "merge", &json!({"metadata": {"name": "two"}})).unwrap();
    refused_with(&answer, 400, "BadRequest");
    let answer = stage.client.patch(&path, "merge", &json!({"metadata": {"namespace": "elsewhere"}})).unwrap();
    refused(
        &answer,
        400,
        "BadRequest",
        "the namespace of the provided object does not match the namespace sent on the request",
    );
}

fn a_pod_is_mostly_immutable(stage: &Stage) {
    stage.create(&stage.pods(), &pod("one"));
    let path = stage.object("v1", "pods", "one");
    let patch = |spec: Value| stage.client.patch(&path, "strategic-merge", &json!({"spec": spec})).unwrap();
    let changed = patch(json!({"containers": [{"name": "web", "image": "web:2"}], "activeDeadlineSeconds": 60}));
    assert_eq!((changed.status, &changed.body["spec"]["containers"][0]["image"]), (200, &json!("web:2")));
    assert_eq!(patch(json!({"tolerations": [{"key": "more", "operator": "Exists"}]})).status, 200);
    let answer = patch(json!({"restartPolicy": "Never"}));
    refused_with(&answer, 422, "Invalid");
    assert_eq!(causes(&answer), ["FieldValueForbidden spec"]);
    let start = "Pod \"one\" is invalid: spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
        `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
        `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
    assert!(answer.message().starts_with(start), "{}", answer.message());
    let answer = patch(json!({"containers": [{"name": "more", "image": "more"}]}));
    refused_with(&answer, 422, "Invalid");
    assert!(answer.message().contains("pod updates may not add or remove containers"), "{}", answer.message());
}

fn a_selector_is_immutable(stage: &Stage) {
    stage.create(&stage.at("apps/v1", "deployments"), &deployment("one"));
    let path = stage.object("apps/v1", "deployments", "one");
    let patch = json!({"spec": {"selector": {"matchLabels": {"app": "two"}}, "template": {"metadata": {"labels": {"app": "two"}}}}});
    let answer = stage.client.patch(&path, "merge", &patch).unwrap();
    refused(
        &answer,
        422,
        "Invalid",
        r#"Deployment.apps "one" is invalid: spec.selector: Invalid value: {"matchLabels":{"app":"two"}}: field is immutable"#,
    );
    assert_eq!(causes(&answer), ["FieldValueInvalid spec.selector"]);
}

fn an_immutable_config_map_stays(stage: &Stage) {
    let mut body = config_map("one", json!({"a": "1"}));
    body["immutable"] = json!(true);
    stage.create(&stage.config_maps(), &body);
    let path = stage.object("v1", "configmaps", "one");
    let answer = stage.client.patch(&path, "merge", &json!({"data": {"a": "2"}, "immutable": false})).unwrap();
    refused(
        &answer,
        422,
        "Invalid",
        r#"ConfigMap "one" is invalid: [immutable: Forbidden: field is immutable when `immutable` is set, data: Forbidden: field is immutable when `immutable` is set]"#,
    );
    assert_eq!(causes(&answer), ["FieldValueForbidden immutable", "FieldValueForbidden data"]);
    assert_eq!(
        stage.patch(&path, "merge", &json!({"metadata": {"labels": {"a": "b"}}}))["metadata"]["labels"],
        json!({"a": "b"})
    );
}

fn a_deployments_status_is_read_by_itself(stage: &Stage) {
    stage.create(&stage.at("apps/v1", "deployments"), &deployment("one"));
    let status = stage.read(&stage.object("apps/v1", "deployments", "one/status"));
    assert_eq!((&status["kind"], &status["spec"]["replicas"]), (&json!("Deployment"), &json!(0)));
}

fn a_subresource_of_another_kind_is_not_found(stage: &Stage) {
    stage.create(&stage.config_maps(), &config_map("one", json!({})));
    for subresource in ["status", "scale", "nonsense"] {
        let answer = stage.client.get(&stage.object("v1", "configmaps", &format!("one/{subresource}"))).unwrap();
        refused(&answer, 404, "NotFound", "the server could not find the requested resource");
    }
}
