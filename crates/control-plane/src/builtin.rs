//! The built-in kinds' own rules: defaults, what a client may set and change, validation.
//!
//! ```text
//! create: default ─▶ (uid, name, time) ─▶ admit ─▶ prepare_create ─▶ validate_meta, validate_create
//! update: default ─▶ admit ─▶ prepare_update ─▶ validate_meta_update, validate_update
//! ```
//!
//! Everything works on trees, and every function is total: a tree of the wrong shape gives an odd answer, never a panic.

#[cfg(test)]
mod cases;
mod check;
mod defaults;
pub(crate) mod fields;
mod meta;
mod names;
pub(crate) mod quantity;
mod strategy;
pub(crate) mod tree;
mod warnings;

use serde_json::Value;

use crate::error::FieldError;
use crate::kind::{Resource, Subresource};

pub(crate) use strategy::{needs_address, needs_node_ports, quality_of_service};

/// Fills in what a client left out.
pub fn default(resource: &Resource, object: &mut Value) {
    if resource.custom.is_none() {
        defaults::default(resource, object);
    }
}

/// Takes out what a client may not set on a new object and puts in what the server sets: the first status, the first
/// generation, a job's selector. The object has its name, uid and time of creation already.
pub fn prepare_create(resource: &Resource, object: &mut Value) {
    strategy::prepare_create(resource, object);
}

/// Puts back what this write may not change: the status on the main resource, all but the status on `status`.
pub fn prepare_update(resource: &Resource, subresource: Option<Subresource>, new: &mut Value, old: &Value) {
    strategy::prepare_update(resource, subresource, new, old);
}

/// Whether objects of this kind count their generations. `prepare_create` sets the first.
#[must_use]
pub fn has_generation(resource: &Resource) -> bool {
    strategy::has_generation(resource)
}

#[must_use]
pub fn bumps_generation(resource: &Resource, new: &Value, old: &Value) -> bool {
    strategy::bumps_generation(resource, new, old)
}

/// What is wrong with a new object beside its metadata.
#[must_use]
pub fn validate_create(resource: &Resource, object: &Value) -> Vec<FieldError> {
    if resource.custom.is_some() { Vec::new() } else { check::create(resource, object) }
}

/// What is wrong with a changed object beside its metadata, and what may not be changed.
#[must_use]
pub fn validate_update(
    resource: &Resource,
    subresource: Option<Subresource>,
    new: &Value,
    old: &Value,
) -> Vec<FieldError> {
    if resource.custom.is_some() { Vec::new() } else { check::update(resource, subresource, new, old) }
}

#[must_use]
pub fn validate_meta(resource: &Resource, object: &Value) -> Vec<FieldError> {
    meta::validate(resource, object)
}

#[must_use]
pub fn validate_meta_update(new: &Value, old: &Value) -> Vec<FieldError> {
    meta::validate_update(new, old)
}

/// What is wrong with `labels` or `annotations` that somebody else made up, in one line.
pub(crate) fn pairs_faults(field: &str, pairs: &Value) -> Option<String> {
    let mut faults = tree::Faults::default();
    match field {
        "labels" => meta::labels(&mut faults, &tree::METADATA.field("labels"), pairs),
        // The real server's slip: it names the field in the singular here.
        _ => meta::annotations(&mut faults, &tree::METADATA.field("annotation"), pairs),
    }
    let said: Vec<String> = faults.0.iter().map(ToString::to_string).collect();
    match said.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

/// What is allowed and yet worth a word.
#[must_use]
pub fn warnings(resource: &Resource, object: &Value) -> Vec<String> {
    warnings::of(resource, object)
}

/// What field selectors may ask for beside name and namespace, with its values.
#[must_use]
pub fn selectable_fields(resource: &Resource, object: &Value) -> Vec<(String, String)> {
    fields::values(resource, object)
}

/// Every name that a field selector on this resource may have, name and namespace among them.
#[must_use]
pub fn selectable_names(resource: &Resource) -> Vec<String> {
    fields::names(resource)
}

/// How long a deleted object has to leave: seconds for pods, none for others.
#[must_use]
pub fn grace_period(resource: &Resource, object: &Value, asked: Option<i64>) -> Option<i64> {
    strategy::grace_period(resource, object, asked)
}

/// What a pod requests as a whole, by resource.
pub(crate) fn aggregate_requests(pod: &Value) -> Vec<(String, quantity::Quantity)> {
    aggregate(pod, "requests")
}

/// What a pod is limited to as a whole, by resource.
pub(crate) fn aggregate_limits(pod: &Value) -> Vec<(String, quantity::Quantity)> {
    aggregate(pod, "limits")
}

/// Amounts for the pod as a whole win over the sum of its containers.
fn aggregate(pod: &Value, which: &str) -> Vec<(String, quantity::Quantity)> {
    let mut total = defaults::aggregate(pod, which);
    for (name, amount) in tree::entries(tree::at(pod, "spec.resources"), which) {
        let Some(amount) = quantity::Quantity::of(amount) else { continue };
        match total.iter_mut().find(|(key, _)| key == name) {
            Some((_, sum)) => *sum = amount,
            None => total.push((name.clone(), amount)),
        }
    }
    total
}
