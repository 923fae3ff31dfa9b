//! Small objects to ask questions with.

use serde_json::{Value, json};

use crate::stage::Stage;

/// A pod that no scheduler takes: nothing happens to it behind a test's back.
pub(crate) fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "web", "image": "web:1"}]}})
}

pub(crate) fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

pub(crate) fn labelled(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}})
}

/// A deployment without replicas: its controller has little to say about it.
pub(crate) fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "replicas": 0, "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "web", "image": "web:1"}]}}}})
}

/// An object with a generation that no controller touches.
pub(crate) fn cron_job(name: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": {
        "schedule": "0 0 31 12 *", "suspend": true,
        "jobTemplate": {"spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "web", "image": "web:1"}]}}}}}})
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A group of the test's own.
pub(crate) fn group(stage: &Stage) -> String {
    format!("{}.kerf.test", stage.namespace)
}

/// A definition of gadgets in that group: in namespaces, and of any content unless `version` says otherwise.
pub(crate) fn gadget_definition(stage: &Stage, version: Value) -> Value {
    let group = group(stage);
    let mut served = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
        {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    for (key, value) in version.as_object().into_iter().flatten() {
        served[key] = value.clone();
    }
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("gadgets.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "versions": [served],
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList", "shortNames": ["gd"]}}})
}

/// Creates a definition and waits until it is served. Gives back the path of its objects in the test's namespace.
#[track_caller]
pub(crate) fn gadgets(stage: &Stage, version: Value) -> String {
    let definition = gadget_definition(stage, version);
    stage.create_for_now(DEFINITIONS, &definition);
    let collection = stage.at(&format!("{}/v1", group(stage)), "gadgets");
    stage.wait_for("a new kind to be served", || stage.client.get(&collection).unwrap().is_success());
    collection
}

/// A gadget with more than a name.
pub(crate) fn gadget(stage: &Stage, name: &str, content: Value) -> Value {
    let mut gadget =
        json!({"apiVersion": format!("{}/v1", group(stage)), "kind": "Gadget", "metadata": {"name": name}});
    for (key, value) in content.as_object().into_iter().flatten() {
        gadget[key] = value.clone();
    }
    gadget
}
