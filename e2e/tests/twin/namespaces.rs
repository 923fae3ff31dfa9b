//! Namespaces come, and take everything along when they go.

use serde_json::{Value, json};

use crate::expect::{causes, refused, refused_with};
use crate::objects::{config_map, pod};
use crate::stage::Stage;

crate::tests!(
    a_new_namespace_is_active_and_has_a_finalizer_and_its_name_as_a_label,
    a_new_namespace_gets_its_service_account_and_certificate,
    a_namespace_that_goes_takes_its_content_along,
    nothing_is_created_in_a_namespace_that_goes,
    a_namespace_waits_for_the_finalizers_of_its_content,
    the_finalizers_of_a_namespace_are_its_own_door,
    the_system_namespaces_are_there,
    the_default_namespace_stays,
    a_namespace_has_a_short_name,
    namespaces_cannot_be_deleted_as_a_collection,
);

fn a_new_namespace_is_active_and_has_a_finalizer_and_its_name_as_a_label(stage: &Stage) {
    let namespace = stage.read(&format!("/api/v1/namespaces/{}", stage.namespace));
    assert_eq!(
        (&namespace["status"], &namespace["spec"]),
        (&json!({"phase": "Active"}), &json!({"finalizers": ["kubernetes"]}))
    );
    assert_eq!(namespace["metadata"]["labels"], json!({"kubernetes.io/metadata.name": stage.namespace}));
}

fn a_new_namespace_gets_its_service_account_and_certificate(stage: &Stage) {
    let certificate = stage.object("v1", "configmaps", "kube-root-ca.crt");
    let found = stage.wait_some("the certificate of a new namespace", || {
        let answer = stage.client.get(&certificate).unwrap();
        answer.is_success().then_some(answer.body)
    });
    assert!(found["data"]["ca.crt"].as_str().unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
    // It comes back.
    stage.delete(&stage.object("v1", "serviceaccounts", "default"));
    stage.wait_for("the service account to come back", || {
        !stage.is_gone(&stage.object("v1", "serviceaccounts", "default"))
    });
}

fn another(stage: &Stage) -> (String, String) {
    let name = stage.unique("other");
    stage.create("/api/v1/namespaces", &json!({"metadata": {"name": name}}));
    let path = format!("/api/v1/namespaces/{name}");
    stage.wait_for("its service account", || !stage.is_gone(&format!("{path}/serviceaccounts/default")));
    (name, path)
}

fn a_namespace_that_goes_takes_its_content_along(stage: &Stage) {
    let (_, path) = another(stage);
    stage.create(&format!("{path}/configmaps"), &config_map("one", json!({})));
    stage.create(&format!("{path}/pods"), &pod("one"));
    let answer = stage.client.delete(&path).unwrap();
    assert_eq!((answer.status, &answer.body["kind"]), (200, &json!("Namespace")));
    assert_eq!(answer.body["status"]["phase"], "Terminating");
    assert!(answer.body["metadata"]["deletionTimestamp"].is_string());
    stage.wait_for("the namespace to go", || stage.is_gone(&path));
    assert!(stage.is_gone(&format!("{path}/configmaps/one")) && stage.is_gone(&format!("{path}/pods/one")));
}

/// A namespace that cannot go, because of one ConfigMap.
fn stuck(stage: &Stage) -> (String, String, String) {
    let (name, path) = another(stage);
    let mut body = config_map("held", json!({}));
    body["metadata"]["finalizers"] = json!(["kerf.test/hold"]);
    stage.create(&format!("{path}/configmaps"), &body);
    stage.delete(&path);
    (name, path.clone(), format!("{path}/configmaps/held"))
}

fn nothing_is_created_in_a_namespace_that_goes(stage: &Stage) {
    let (name, path, held) = stuck(stage);
    // The real server looks at a cache of namespaces.
    let answer = stage.wait_some("the door to close", || {
        let answer =
            stage.client.post(&format!("{path}/configmaps"), &json!({"metadata": {"generateName": "late-"}})).unwrap();
        (answer.status != 201).then_some(answer)
    });
    refused_with(&answer, 403, "Forbidden");
    let said = answer.message();
    assert!(
        said.starts_with("configmaps \"late-")
            && said.ends_with(&format!(
                "\" is forbidden: unable to create new content in namespace {name} because it is being terminated"
            )),
        "{said}"
    );
    let cause = &answer.body["details"]["causes"][0];
    assert_eq!(
        cause,
        &json!({"reason": "NamespaceTerminating", "message": format!("namespace {name} is being terminated"), "field": "metadata.namespace"})
    );
    stage.patch(&held, "merge", &json!({"metadata": {"finalizers": null}}));
    stage.wait_for("the namespace to go", || stage.is_gone(&path));
}

fn a_namespace_waits_for_the_finalizers_of_its_content(stage: &Stage) {
    let (_, path, held) = stuck(stage);
    let condition = stage.wait_some("the namespace to tell what it waits for", || {
        let namespace = stage.read(&path);
        let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|c| c["type"] == "NamespaceFinalizersRemaining" && c["status"] == "True")
    });
    assert_eq!(condition["reason"], "SomeFinalizersRemain");
    assert_eq!(
        condition["message"],
        "Some content in the namespace has finalizers remaining: kerf.test/hold in 1 resource instances"
    );
    let namespace = stage.read(&path);
    let conditions = namespace["status"]["conditions"].as_array().unwrap();
    let remaining = conditions.iter().find(|c| c["type"] == "NamespaceContentRemaining").unwrap();
    assert_eq!(
        (&remaining["status"], &remaining["reason"], &remaining["message"]),
        (
            &json!("True"),
            &json!("SomeResourcesRemain"),
            &json!("Some resources are remaining: configmaps. has 1 resource instances")
        )
    );
    let deleted = conditions.iter().find(|c| c["type"] == "NamespaceDeletionContentFailure").unwrap();
    assert_eq!(
        (&deleted["status"], &deleted["reason"], &deleted["message"]),
        (
            &json!("False"),
            &json!("ContentDeleted"),
            &json!("All content successfully deleted, may be waiting on finalization")
        )
    );
    stage.patch(&held, "merge", &json!({"metadata": {"finalizers": null}}));
    stage.wait_for("the namespace to go", || stage.is_gone(&path));
}

fn the_finalizers_of_a_namespace_are_its_own_door(stage: &Stage) {
    let name = stage.unique("kept");
    let path = format!("/api/v1/namespaces/{name}");
    stage
        .create("/api/v1/namespaces", &json!({"metadata": {"name": name}, "spec": {"finalizers": ["kerf.test/mine"]}}));
    let namespace = stage.read(&path);
    assert_eq!(namespace["spec"]["finalizers"], json!(["kerf.test/mine", "kubernetes"]));
    let mut changed = namespace.clone();
    changed["spec"]["finalizers"] = json!([]);
    assert_eq!(stage.replace(&path, &changed)["spec"]["finalizers"], json!(["kerf.test/mine", "kubernetes"]));
    stage.delete(&path);
    stage.wait_for("its own finalizer to be left alone", || {
        stage.read(&path)["spec"]["finalizers"] == json!(["kerf.test/mine"])
    });
    let mut last = stage.read(&path);
    last["spec"]["finalizers"] = json!([]);
    stage.replace(&format!("{path}/finalize"), &last);
    stage.wait_for("the namespace to go", || stage.is_gone(&path));
}

fn the_system_namespaces_are_there(stage: &Stage) {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        assert_eq!(stage.read(&format!("/api/v1/namespaces/{name}"))["status"]["phase"], "Active", "{name}");
    }
}

fn the_default_namespace_stays(stage: &Stage) {
    for name in ["default", "kube-system", "kube-public"] {
        let answer = stage.client.delete(&format!("/api/v1/namespaces/{name}")).unwrap();
        refused(
            &answer,
            403,
            "Forbidden",
            &format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted"),
        );
    }
}

fn a_namespace_has_a_short_name(stage: &Stage) {
    let answer = stage.client.post("/api/v1/namespaces", &json!({"metadata": {"name": "with.dots"}})).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert_eq!(causes(&answer), ["FieldValueInvalid metadata.name"]);
    assert_eq!(
        answer.message(),
        r#"Namespace "with.dots" is invalid: metadata.name: Invalid value: "with.dots": must not contain dots"#
    );
}

fn namespaces_cannot_be_deleted_as_a_collection(stage: &Stage) {
    let answer = stage.client.delete("/api/v1/namespaces?labelSelector=none%3Dsuch").unwrap();
    refused(&answer, 405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
    assert_ne!(stage.read("/api/v1/namespaces")["items"], Value::Null);
}
