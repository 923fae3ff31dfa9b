//! Whether the defaults of a schema would be accepted if somebody wrote them.

use serde_json::Value;

use crate::custom::node::Node;
use crate::custom::{lists, prune, rules, shape};
use crate::error::{FieldError, FieldErrorKind};

pub(super) fn validate(schema: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit(schema, true, path, &mut errors);
    errors
}

/// Defaults below `additionalProperties` are not looked at: they are never filled in.
fn visit(schema: &Value, is_resource: bool, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        check(schema, default, is_resource, &format!("{path}.default"), errors);
    }
    let embedded = |child: &Value| child["x-kubernetes-embedded-resource"] == true;
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        visit(items, embedded(items), &format!("{path}.items"), errors);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        visit(property, embedded(property), &format!("{path}.properties[{name}]"), errors);
    }
}

fn check(schema: &Value, default: &Value, is_resource: bool, path: &str, errors: &mut Vec<FieldError>) {
    let mut node = Node::read(schema);
    rules::compile_tree(schema, &mut node, is_resource);
    if !prune::is_pruned(&node, default) {
        errors.push(FieldError::invalid(path, default.clone(), "must not have unknown fields"));
    }
    let mut found = lists::embedded(&node, default, path);
    if found.is_empty() {
        found = shape::validate(&node, default, path, None);
    }
    if found.is_empty() {
        found = rules::validate(&node, default, Some(default), path, false);
        // A rule that does not compile is told where it stands, not where it would be asked.
        found.retain(|error| error.kind != FieldErrorKind::Invalid || !error.detail.starts_with("rule compile error"));
    }
    if found.is_empty() {
        found = rules::validate(&node, default, None, path, false);
        found.retain(|error| error.kind != FieldErrorKind::Invalid || !error.detail.starts_with("rule compile error"));
    }
    errors.extend(found);
}
