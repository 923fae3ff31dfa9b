//! Requests to the API server, as values.

use crate::errand::ApiCall;
use crate::resource::{PODS, Resource};
use kerf_mirror::PodState;
use serde::Serialize;
use serde_json::{Value, json};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// Reads what is at a path, query included.
pub fn get(path: String) -> ApiCall {
    ApiCall { method: "GET", path, content_type: JSON, body: Value::Null }
}

/// Creates an object; `body` must carry its metadata.
pub fn create(resource: Resource, namespace: &str, body: &impl Serialize) -> ApiCall {
    let mut body = serde_json::to_value(body).expect("our objects have string keys and finite numbers");
    body["apiVersion"] = json!(resource.api_version());
    body["kind"] = json!(resource.kind);
    ApiCall { method: "POST", path: resource.collection_in(namespace), content_type: JSON, body }
}

/// A merge patch. With a resourceVersion in `patch.metadata` the server refuses it once the object has moved on.
pub fn patch(resource: Resource, namespace: &str, name: &str, patch: Value) -> ApiCall {
    ApiCall { method: "PATCH", path: resource.path(namespace, name), content_type: MERGE, body: patch }
}

/// A merge patch of the status alone: `{"status": …}`.
pub fn patch_status(resource: Resource, namespace: &str, name: &str, patch: Value) -> ApiCall {
    ApiCall {
        method: "PATCH",
        path: format!("{}/status", resource.path(namespace, name)),
        content_type: MERGE,
        body: patch,
    }
}

/// Puts the object's resourceVersion into a merge patch: it then fails rather than overwrite what we have not seen.
pub fn if_unchanged(mut patch: Value, resource_version: Option<&str>) -> Value {
    if let Some(version) = resource_version {
        patch["metadata"]["resourceVersion"] = json!(version);
    }
    patch
}

/// Deletes an object in the background, if it still is the one that was seen.
pub fn delete(resource: Resource, namespace: &str, name: &str, uid: Option<&str>) -> ApiCall {
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    if let Some(uid) = uid {
        options["preconditions"] = json!({"uid": uid});
    }
    ApiCall { method: "DELETE", path: resource.path(namespace, name), content_type: JSON, body: options }
}

/// Deletes a pod with a grace period of our choice.
pub fn delete_pod(pod: &PodState, grace_seconds: i64) -> ApiCall {
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace_seconds, "preconditions": {"uid": &*pod.uid},
    });
    ApiCall { method: "DELETE", path: PODS.path(&pod.id.namespace, &pod.id.name), content_type: JSON, body: options }
}

/// Asks for a pod's eviction; budgets have their say.
pub fn evict(pod: &PodState) -> ApiCall {
    let body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": &*pod.id.name, "namespace": &*pod.id.namespace},
        "deleteOptions": {"preconditions": {"uid": &*pod.uid}},
    });
    ApiCall {
        method: "POST",
        path: format!("{}/eviction", PODS.path(&pod.id.namespace, &pod.id.name)),
        content_type: JSON,
        body,
    }
}

/// Binds a pod to a node, if it still is the one that was seen.
pub fn bind(pod: &PodState, node: &str) -> ApiCall {
    let body = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": &*pod.id.name, "namespace": &*pod.id.namespace, "uid": &*pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    ApiCall {
        method: "POST",
        path: format!("{}/binding", PODS.path(&pod.id.namespace, &pod.id.name)),
        content_type: JSON,
        body,
    }
}
