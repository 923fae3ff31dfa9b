//! What happens to an object before it is judged: what no schema describes goes, and what is missing gets its default.

use serde_json::Value;

use super::node::{Additional, Node};

const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes what the schema does not know, and tells where it was: `spec.list[0].foo`.
///
/// At the root of a resource `apiVersion`, `kind` and `metadata` stay, as they do in embedded resources.
pub(super) fn prune(node: &Node, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    let mut path = Vec::new();
    prune_node(Some(node), true, object, &mut path, &mut unknown);
    unknown.sort();
    unknown
}

/// Whether a value that stands alone, such as a default, has nothing that would be removed.
pub(super) fn is_pruned(node: &Node, value: &Value) -> bool {
    let mut copy = value.clone();
    prune_node(Some(node), node.embedded, &mut copy, &mut Vec::new(), &mut Vec::new());
    copy == *value
}

fn prune_node(
    node: Option<&Node>,
    is_resource: bool,
    value: &mut Value,
    path: &mut Vec<String>,
    unknown: &mut Vec<String>,
) {
    if let Some(node) = node.filter(|node| node.preserve_unknown) {
        return prune_described(node, is_resource, value, path, unknown);
    }
    match value {
        Value::Object(members) => {
            members.retain(|name, member| {
                if is_resource && META_FIELDS.contains(&name.as_str()) {
                    return true;
                }
                let child = match node {
                    Some(node) if node.properties.contains_key(name) => Some(node.properties.get(name)),
                    Some(node) => match &node.additional {
                        Additional::Schema(additional) => Some(Some(&**additional)),
                        Additional::Allowed(_) => Some(None),
                        Additional::Unsaid => None,
                    },
                    None => None,
                };
                path.push(if path.is_empty() { name.clone() } else { format!(".{name}") });
                let stays = match child {
                    Some(child) => {
                        prune_node(child, child.is_some_and(|child| child.embedded), member, path, unknown);
                        true
                    }
                    None => {
                        unknown.push(path.concat());
                        false
                    }
                };
                path.pop();
                stays
            });
        }
        Value::Array(items) => {
            let item_node = node.and_then(|node| node.items.as_deref());
            for (idx, item) in items.iter_mut().enumerate() {
                path.push(format!("[{idx}]"));
                prune_node(item_node, item_node.is_some_and(|node| node.embedded), item, path, unknown);
                path.pop();
            }
        }
        _ => {}
    }
}

/// Below a schema that keeps unknown fields, those that it does describe are still pruned.
fn prune_described(
    node: &Node,
    is_resource: bool,
    value: &mut Value,
    path: &mut Vec<String>,
    unknown: &mut Vec<String>,
) {
    match value {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                if is_resource && META_FIELDS.contains(&name.as_str()) {
                    continue;
                }
                let child = match node.properties.get(name) {
                    Some(property) => Some(Some(property)),
                    None => match &node.additional {
                        Additional::Schema(additional) => Some(Some(&**additional)),
                        Additional::Allowed(_) => Some(None),
                        Additional::Unsaid => None,
                    },
                };
                if let Some(child) = child {
                    path.push(if path.is_empty() { name.clone() } else { format!(".{name}") });
                    prune_node(child, child.is_some_and(|child| child.embedded), member, path, unknown);
                    path.pop();
                }
            }
        }
        Value::Array(items) => {
            let Some(item_node) = node.items.as_deref() else { return };
            for (idx, item) in items.iter_mut().enumerate() {
                path.push(format!("[{idx}]"));
                prune_described(item_node, item_node.embedded, item, path, unknown);
                path.pop();
            }
        }
        _ => {}
    }
}

/// Fills in defaults. A null where null is not allowed is no value: it gets the default, or goes.
pub(super) fn default(node: &Node, value: &mut Value) {
    drop_nulls(node, value);
    fill_in(node, value);
}

/// Removes nulls where null is not allowed and nothing takes their place.
pub(super) fn drop_nulls(node: &Node, value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, member| {
                !member.is_null() || node.member(name).is_none_or(|child| child.nullable || child.default.is_some())
            });
            for (name, member) in members.iter_mut() {
                if let Some(child) = node.member(name) {
                    drop_nulls(child, member);
                }
            }
        }
        Value::Array(items) => {
            if let Some(item_node) = &node.items {
                items.iter_mut().for_each(|item| drop_nulls(item_node, item));
            }
        }
        _ => {}
    }
}

fn fill_in(node: &Node, value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, property) in &node.properties {
                let Some(default) = &property.default else { continue };
                if members.get(name).is_none_or(|member| member.is_null() && !property.nullable) {
                    members.insert(name.clone(), default.clone());
                }
            }
            for (name, member) in members.iter_mut() {
                let is_property = node.properties.contains_key(name);
                let Some(child) = node.member(name) else { continue };
                if !is_property && member.is_null() && !child.nullable {
                    *member = child.default.clone().unwrap_or_default();
                }
                fill_in(child, member);
            }
        }
        Value::Array(items) => {
            let Some(item_node) = &node.items else { return };
            for item in items {
                if item.is_null() && !item_node.nullable {
                    *item = item_node.default.clone().unwrap_or_default();
                }
                fill_in(item_node, item);
            }
        }
        _ => {}
    }
}
