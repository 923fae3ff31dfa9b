//! Admission: the rules that look at other objects.
//!
//! ```text
//! create:       limit ranges' defaults ─▶ service account ─▶ priority ─▶ tolerations; storage class, protection, addresses
//! (validation)
//! judge_create: limit ranges' bounds, the one default priority class, admission policies, quotas
//! ```

mod accounts;
mod limits;
mod policies;
mod priority;
pub(crate) mod quota;
mod services;
mod storage;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::builtin::tree::{flag, has, items, open, text};
use crate::error::ApiError;
use crate::kind::{Resource, Subresource};
use crate::store::Stored;
use policies::Asked;

/// The other objects.
pub trait Look {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Stored>>;
    /// An empty namespace means all.
    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Stored>>;
}

/// Fills in what follows from other objects, and refuses what cannot be filled in. Before validation.
pub fn create(
    look: &dyn Look,
    resource: &Resource,
    object: &mut Value,
    namespace: &str,
    name: &str,
) -> Result<(), ApiError> {
    if resource.custom.is_some() {
        return Ok(());
    }
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => {
            limits::fill_pod(object, &limits::ranges(look, namespace));
            accounts::admit(look, object, namespace, name)?;
            priority::admit(look, object, name)?;
            tolerations(object);
        }
        ("", "PersistentVolumeClaim") => {
            storage::default_class(look, object);
            protect(object, "kubernetes.io/pvc-protection");
        }
        ("", "PersistentVolume") => protect(object, "kubernetes.io/pv-protection"),
        ("", "Service") => services::allocate(look, object, None)?,
        ("", "Node") => taint(object),
        _ => {}
    }
    Ok(())
}

/// Refuses a valid object that other objects do not allow. After validation.
pub fn judge_create(
    look: &dyn Look,
    resource: &Resource,
    object: &Value,
    namespace: &str,
    name: &str,
) -> Result<(), ApiError> {
    if resource.custom.is_none() {
        match (resource.group.as_str(), resource.kind.as_str()) {
            ("", "Pod") => limits::judge_pod(object, &limits::ranges(look, namespace), name)?,
            ("", "PersistentVolumeClaim") => limits::judge_claim(object, &limits::ranges(look, namespace), name)?,
            ("scheduling.k8s.io", "PriorityClass") => priority::one_default(look, object, name, true)?,
            _ => {}
        }
    }
    let asked = Asked { resource, subresource: None, namespace, name, new: object, old: &Value::Null };
    policies::judge(look, &asked)?;
    quota::create(look, resource, object, namespace, name)
}

/// Before validation.
pub fn update(
    look: &dyn Look,
    resource: &Resource,
    subresource: Option<Subresource>,
    new: &mut Value,
    old: &Value,
) -> Result<(), ApiError> {
    if resource.custom.is_some() || subresource.is_some() {
        return Ok(());
    }
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => tolerations(new),
        ("", "Service") => services::allocate(look, new, Some(old))?,
        _ => {}
    }
    Ok(())
}

/// After validation.
pub fn judge_update(
    look: &dyn Look,
    resource: &Resource,
    subresource: Option<Subresource>,
    new: &Value,
    old: &Value,
) -> Result<(), ApiError> {
    let (namespace, name) = (text(old, "metadata.namespace"), text(old, "metadata.name"));
    policies::judge(look, &Asked { resource, subresource, namespace, name, new, old })?;
    if resource.custom.is_some() || subresource.is_some() {
        return Ok(());
    }
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "PersistentVolumeClaim") => {
            storage::judge_growth(look, new, old, name)?;
            if !has(old, "metadata.deletionTimestamp") {
                limits::judge_claim(new, &limits::ranges(look, text(old, "metadata.namespace")), name)?;
            }
        }
        ("scheduling.k8s.io", "PriorityClass") => priority::one_default(look, new, name, false)?,
        _ => {}
    }
    Ok(())
}

/// `pods "web" is forbidden: …`.
fn forbidden(plural: &str, name: &str, why: &str) -> ApiError {
    ApiError::forbidden("", plural, name, why)
}

/// A node that goes quiet takes its pods with it after five minutes, unless they say otherwise.
fn tolerations(pod: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let is_tolerated = items(pod, "spec.tolerations").iter().any(|toleration| {
            let given = text(toleration, "key");
            (given == key || given.is_empty()) && matches!(text(toleration, "effect"), "NoExecute" | "")
        });
        if is_tolerated {
            continue;
        }
        let added = json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 });
        push(pod, "spec", "tolerations", added);
    }
}

/// A new node is not ready until its controller has seen it.
fn taint(node: &mut Value) {
    const KEY: &str = "node.kubernetes.io/not-ready";
    let is_there = |taint: &Value| text(taint, "key") == KEY && text(taint, "effect") == "NoSchedule";
    if !items(node, "spec.taints").iter().any(is_there) {
        push(node, "spec", "taints", json!({ "key": KEY, "effect": "NoSchedule" }));
    }
}

/// Kept from being deleted while in use.
fn protect(object: &mut Value, finalizer: &str) {
    if !items(object, "metadata.finalizers").iter().any(|given| given == finalizer) {
        push(object, "metadata", "finalizers", Value::from(finalizer));
    }
}

/// Adds to the list at `path.field`, made where there is none.
fn push(object: &mut Value, path: &str, field: &str, value: Value) {
    let list = open(object, path).entry(field).or_insert(Value::Null);
    match list.as_array_mut() {
        Some(list) => list.push(value),
        None => *list = Value::Array(vec![value]),
    }
}

/// Whether an annotation says `true`.
fn is_annotated(object: &Value, key: &str) -> bool {
    crate::builtin::tree::at(object, "metadata.annotations").get(key).and_then(Value::as_str) == Some("true")
}

/// A flag of a stored object.
fn stored_flag(stored: &Stored, path: &str) -> bool {
    flag(&stored.value(), path)
}
