//! Metadata: names, labels, annotations, owners, finalizers.

use serde_json::Value;

use super::names;
use super::tree::{Faults, METADATA, Path, at, entries, flag, int, items, ordered, text};
use crate::error::FieldError;
use crate::kind::Resource;

/// All annotations of an object together, keys and values.
const ANNOTATIONS_MAX_BYTES: usize = 256 * 1024;

pub(crate) fn validate(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut faults = Faults::default();
    let generate = text(object, "metadata.generateName");
    let name = text(object, "metadata.name");
    if !generate.is_empty() {
        for why in name_faults(resource, &names::as_prefix(generate)) {
            faults.invalid(&METADATA.field("generateName"), generate, why);
        }
    }
    if name.is_empty() {
        faults.required(&METADATA.field("name"), "name or generateName is required");
    } else {
        for why in name_faults(resource, name) {
            faults.invalid(&METADATA.field("name"), name, why);
        }
    }
    let namespace = text(object, "metadata.namespace");
    if !resource.namespaced {
        if !namespace.is_empty() {
            faults.forbidden(&METADATA.field("namespace"), "not allowed on this type");
        }
    } else if namespace.is_empty() {
        faults.required(&METADATA.field("namespace"), "");
    } else {
        for why in names::label(namespace) {
            faults.invalid(&METADATA.field("namespace"), namespace, why);
        }
    }
    faults.not_negative(&METADATA.field("generation"), at(object, "metadata.generation"));
    common(&mut faults, object);
    finalizers(&mut faults, object, resource);
    faults.0
}

pub(crate) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut faults = Faults::default();
    if !text(old, "metadata.deletionTimestamp").is_empty() {
        let before = items(old, "metadata.finalizers");
        let mut added: Vec<String> = items(new, "metadata.finalizers")
            .iter()
            .filter(|finalizer| !before.contains(finalizer))
            .map(ToString::to_string)
            .collect();
        added.sort();
        if !added.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            faults.forbidden(&METADATA.field("finalizers"), detail);
        }
    }
    if text(new, "metadata.resourceVersion").is_empty() {
        faults.invalid(&METADATA.field("resourceVersion"), "", "must be specified for an update");
    }
    let generation = int(new, "metadata.generation").unwrap_or_default();
    if generation < int(old, "metadata.generation").unwrap_or_default() {
        faults.invalid(&METADATA.field("generation"), generation, "must not be decremented");
    }
    for field in ["name", "namespace", "uid"] {
        let (after, before) = (text(at(new, "metadata"), field), text(at(old, "metadata"), field));
        if after != before {
            faults.invalid(&METADATA.field(field), after, "field is immutable");
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        faults.immutable(&METADATA.field(field), at(at(new, "metadata"), field), at(at(old, "metadata"), field));
    }
    common(&mut faults, new);
    faults.0
}

fn common(faults: &mut Faults, object: &Value) {
    labels(faults, &METADATA.field("labels"), at(object, "metadata.labels"));
    annotations(faults, &METADATA.field("annotations"), at(object, "metadata.annotations"));
    owners(faults, object);
}

/// Keys and values of a map of labels.
pub(crate) fn labels(faults: &mut Faults, path: &Path<'_>, labels: &Value) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        label_key(faults, path, key);
        let value = value.as_str().unwrap_or_default();
        for why in names::label_value(value) {
            faults.invalid(path, value, why);
        }
    }
}

pub(crate) fn label_key(faults: &mut Faults, path: &Path<'_>, key: &str) {
    for why in names::qualified(key) {
        faults.invalid(path, key, why);
    }
}

pub(crate) fn annotations(faults: &mut Faults, path: &Path<'_>, annotations: &Value) {
    let mut n_bytes = 0_usize;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        let wrong = if key.bytes().any(|byte| byte.is_ascii_uppercase()) {
            names::qualified(&key.to_ascii_lowercase())
        } else {
            names::qualified(key)
        };
        for why in wrong {
            faults.invalid(path, key.as_str(), why);
        }
        n_bytes = n_bytes.saturating_add(key.len()).saturating_add(value.as_str().unwrap_or_default().len());
    }
    if n_bytes > ANNOTATIONS_MAX_BYTES {
        faults.too_long(path, ANNOTATIONS_MAX_BYTES);
    }
}

const OWNER: [&str; 6] = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];

fn owners(faults: &mut Faults, object: &Value) {
    let path = METADATA.field("ownerReferences");
    let mut controller: Option<String> = None;
    for owner in items(object, "metadata.ownerReferences") {
        let api_version = text(owner, "apiVersion");
        if api_version.rsplit('/').next().unwrap_or_default().is_empty() {
            faults.invalid(&path.field("apiVersion"), api_version, "version must not be empty");
        }
        for field in ["kind", "name", "uid"] {
            if text(owner, field).is_empty() {
                faults.invalid(&path.field(field), "", "must not be empty");
            }
        }
        if (api_version, text(owner, "kind")) == ("v1", "Event") {
            faults.invalid(&path, owner.clone(), "/v1, Kind=Event is disallowed from being an owner");
            faults.show(ordered(owner, &OWNER));
        }
        if flag(owner, "controller") {
            let this = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
            match &controller {
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                         and {this}"
                    );
                    faults.invalid(&path, at(object, "metadata.ownerReferences").clone(), detail);
                    let owners = items(object, "metadata.ownerReferences").iter().map(|one| ordered(one, &OWNER));
                    faults.show(format!("[{}]", owners.collect::<Vec<_>>().join(",")));
                }
                None => controller = Some(this),
            }
        }
    }
}

fn finalizers(faults: &mut Faults, object: &Value, resource: &Resource) {
    let path = METADATA.field("finalizers");
    let list = items(object, "metadata.finalizers");
    for finalizer in list.iter().filter_map(Value::as_str) {
        label_key(faults, &path, finalizer);
    }
    let has = |name: &str| list.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        faults.invalid(&path, Value::from(list.to_vec()), detail);
    }
    let groups_of_their_own = ["coordination.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io"];
    if resource.custom.is_some() || groups_of_their_own.contains(&resource.group.as_str()) {
        return;
    }
    for (index, finalizer) in list.iter().filter_map(Value::as_str).enumerate() {
        if !finalizer.contains('/') && !matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion") {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            faults.invalid(&path.index(index), finalizer, detail);
        }
    }
}

/// What is wrong with a name, by the kind's own rule.
pub(crate) fn name_faults(resource: &Resource, name: &str) -> Vec<String> {
    if resource.custom.is_some() {
        return names::subdomain(name);
    }
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Namespace" | "Service") | ("apps", "StatefulSet") => names::label(name),

        ("", "Event") | ("events.k8s.io" | "rbac.authorization.k8s.io", _) => names::path_segment(name),
        _ => names::subdomain(name),
    }
}

/// A label selector, with matchLabels and matchExpressions.
pub(crate) fn selector(faults: &mut Faults, path: &Path<'_>, selector: &Value) {
    if selector.is_null() {
        return;
    }
    labels(faults, &path.field("matchLabels"), at(selector, "matchLabels"));
    let expressions = path.field("matchExpressions");
    for (index, requirement) in items(selector, "matchExpressions").iter().enumerate() {
        let path = expressions.index(index);
        let values = items(requirement, "values");
        match text(requirement, "operator") {
            "In" | "NotIn" => {
                if values.is_empty() {
                    faults.required(&path.field("values"), "must be specified when `operator` is 'In' or 'NotIn'");
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    faults.forbidden(&path.field("values"), detail);
                }
            }
            other => faults.invalid(&path.field("operator"), other, "not a valid selector operator"),
        }
        label_key(faults, &path.field("key"), text(requirement, "key"));
        let values_path = path.field("values");
        for (index, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            for why in names::label_value(value) {
                faults.invalid(&values_path.index(index), value, why);
            }
        }
    }
}

/// Whether a label selector selects these labels. None where it is not a selector.
pub(crate) fn selects(selector: &Value, labels: &Value) -> Option<bool> {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let mut is_selected = true;
    for (key, value) in entries(selector, "matchLabels") {
        if !names::qualified(key).is_empty() || !names::label_value(value.as_str()?).is_empty() {
            return None;
        }
        is_selected &= label(key) == value.as_str();
    }
    for requirement in items(selector, "matchExpressions") {
        let key = text(requirement, "key");
        let values = items(requirement, "values");
        if !names::qualified(key).is_empty() {
            return None;
        }
        let is_listed = label(key).is_some_and(|value| values.iter().any(|listed| listed == value));
        is_selected &= match text(requirement, "operator") {
            "In" | "NotIn" if values.is_empty() => return None,
            "Exists" | "DoesNotExist" if !values.is_empty() => return None,
            "In" => is_listed,
            "NotIn" => !is_listed,
            "Exists" => label(key).is_some(),
            "DoesNotExist" => label(key).is_none(),
            _ => return None,
        };
    }
    Some(is_selected)
}
