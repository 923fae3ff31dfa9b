//! What a schema's extensions ask of a value: that sets and maps written as lists have no item twice, and that a resource
//! within a resource says what it is.

use serde_json::{Map, Value, json};

use super::node::{ListType, Node};
use super::path::Path;
use crate::error::FieldError;

/// Items that are there twice. Each is told once, at its second place.
pub(super) fn duplicates(node: &Node, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit_lists(node, value, &Path::root(""), &mut errors);
    errors
}

fn visit_lists(node: &Node, value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Array(items) => {
            match &node.list {
                ListType::Atomic => {}
                ListType::Set => {
                    let keys: Vec<Value> = items.clone();
                    for idx in second_places(&keys) {
                        let found = keys.get(idx).cloned().unwrap_or_default();
                        errors.push(FieldError::duplicate(path.item(idx).to_field(), found));
                    }
                }
                ListType::Map(keys) => visit_list_map(keys, items, path, errors),
            }
            if let Some(item_node) = &node.items {
                for (idx, item) in items.iter().enumerate() {
                    visit_lists(item_node, item, &path.item(idx), errors);
                }
            }
        }
        Value::Object(members) => {
            if let Some(additional) = node.additional_node() {
                for (name, member) in members {
                    visit_lists(additional, member, &path.key(name), errors);
                }
            }
            for (name, member) in members {
                if let Some(property) = node.properties.get(name) {
                    visit_lists(property, member, &path.field(name), errors);
                }
            }
        }
        _ => {}
    }
}

fn visit_list_map(keys: &[String], items: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some((idx, item)) = items.iter().enumerate().find(|(_, item)| !item.is_object() && !item.is_null()) {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(path.item(idx).to_field(), item.clone(), detail));
        return;
    }
    let key_of = |item: &Value| {
        let members = item.as_object();
        let named = keys.iter().filter_map(|key| Some((key.clone(), members?.get(key)?.clone())));
        Value::Object(named.collect::<Map<_, _>>())
    };
    let found: Vec<Value> = match keys {
        // With one key a null is no item at all.
        [_] => items.iter().filter(|item| !item.is_null()).map(key_of).collect(),
        _ => items.iter().map(key_of).collect(),
    };
    for idx in second_places(&found) {
        errors.push(FieldError::duplicate(path.item(idx).to_field(), found.get(idx).cloned().unwrap_or(json!({}))));
    }
}

/// Where a value stands for the second time.
fn second_places(values: &[Value]) -> Vec<usize> {
    let mut n_seen = std::collections::BTreeMap::<String, usize>::new();
    let mut places = Vec::new();
    for (idx, value) in values.iter().enumerate() {
        let n = n_seen.entry(value.to_string()).or_default();
        *n += 1;
        if *n == 2 {
            places.push(idx);
        }
    }
    places
}

/// What is wrong with what embedded resources say of themselves. The root is judged elsewhere, by the server itself.
pub(super) fn embedded(node: &Node, value: &Value, base: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit_embedded(node, value, &Path::root(base), &mut errors);
    errors
}

fn visit_embedded(node: &Node, value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(members) => {
            if node.embedded {
                check_embedded(members, path, errors);
            }
            for (name, member) in members {
                if let Some(property) = node.properties.get(name) {
                    visit_embedded(property, member, &path.field(name), errors);
                } else if let Some(additional) = node.additional_node() {
                    visit_embedded(additional, member, &path.key(name), errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(item_node) = &node.items {
                for (idx, item) in items.iter().enumerate() {
                    visit_embedded(item_node, item, &path.item(idx), errors);
                }
            }
        }
        _ => {}
    }
}

fn check_embedded(members: &Map<String, Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        if !members.contains_key(name) {
            errors.push(FieldError::required(path.field(name).to_field(), ""));
        }
    }
    for name in ["apiVersion", "kind"] {
        let field = || path.field(name).to_field();
        let Some(value) = members.get(name) else { continue };
        match value.as_str() {
            None => errors.push(FieldError::invalid(field(), value.clone(), "must be a string")),
            Some("") => errors.push(FieldError::invalid(field(), "", "must not be empty")),
            Some(version) if name == "apiVersion" && version.matches('/').count() > 1 => {
                errors.push(FieldError::invalid(
                    field(),
                    version,
                    format!("unexpected GroupVersion string: {version}"),
                ));
            }
            Some(kind) if name == "kind" => {
                if let Err(why) = super::names::is_dns1035_label(&kind.to_lowercase()) {
                    let detail = format!("may have mixed case, but should otherwise match: {why}");
                    errors.push(FieldError::invalid(field(), kind, detail));
                }
            }
            Some(_) => {}
        }
    }
    if let Some(metadata) = members.get("metadata") {
        check_embedded_metadata(metadata, &path.field("metadata"), errors);
    }
}

fn check_embedded_metadata(metadata: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(metadata) = metadata.as_object() else {
        let detail = "json: cannot unmarshal into Go value of type v1.ObjectMeta";
        errors.push(FieldError::invalid(path.to_field(), metadata.clone(), detail));
        return;
    };
    let text = |name: &str| metadata.get(name).and_then(Value::as_str).unwrap_or_default();
    let (name, generate_name) = (text("name"), text("generateName"));
    if name.is_empty() && generate_name.is_empty() {
        errors.push(FieldError::required(path.field("name").to_field(), "name or generateName is required"));
    }
    for (field, value) in [("name", name), ("generateName", generate_name)] {
        if let Some(why) = super::names::not_a_path_segment(value) {
            errors.push(FieldError::invalid(path.field(field).to_field(), value, why));
        }
    }
}
