//! Which keywords a schema may use, and whether its rules make sense.

use serde_json::Value;

use super::{list, shown, text};
use crate::custom::node::Node;
use crate::custom::{field_path, rules};
use crate::error::{FieldError, FieldErrorKind};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// What is wrong with keywords comes first, what is wrong with rules last. Rules are only looked at where `rules_count`, and
/// where nothing is wrong with the schema that they are about.
pub(super) fn validate(schema: &Value, path: &str, rules_count: bool) -> Vec<FieldError> {
    let place = Place {
        forbids_default: None,
        is_in_meta: false,
        uncorrelated: None,
        is_root: true,
        is_resource: true,
        rules_count,
    };
    let mut found = Found::default();
    visit(schema, path, &place, &mut found);
    found.schema.extend(found.rules);
    found.schema
}

#[derive(Default)]
struct Found {
    schema: Vec<FieldError>,
    rules: Vec<FieldError>,
}

/// What is to be known about where a schema stands.
#[derive(Clone)]
struct Place {
    /// Why there may be no default.
    forbids_default: Option<String>,
    is_in_meta: bool,
    /// The nearest list above whose items cannot be told apart over an update.
    uncorrelated: Option<String>,
    is_root: bool,
    is_resource: bool,
    rules_count: bool,
}

fn visit(schema: &Value, path: &str, place: &Place, found: &mut Found) {
    let n_before = found.schema.len();
    check_keywords(schema, path, place, found);
    let below = Place { is_root: false, is_resource: false, ..place.clone() };
    let embedded = |child: &Value| child["x-kubernetes-embedded-resource"] == true;

    let additional = &schema["additionalProperties"];
    let has_properties = schema["properties"].as_object().is_some_and(|members| !members.is_empty());
    if !additional.is_null() {
        if has_properties && *additional != true {
            let why = "additionalProperties and properties are mutual exclusive";
            found.schema.push(FieldError::forbidden(format!("{path}.additionalProperties"), why));
        }
        if additional.is_object() {
            let mut place = Place { is_resource: embedded(additional), ..below.clone() };
            if place.is_in_meta {
                place.forbids_default = Some("inside additionalProperties applying to object metadata".to_owned());
            }
            visit(additional, &format!("{path}.additionalProperties"), &place, found);
        }
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let mut child = Place { is_resource: embedded(property), ..below.clone() };
        let is_meta = matches!(name.as_str(), "metadata" | "kind" | "apiVersion");
        if is_meta && (place.is_root || embedded(schema)) {
            child.is_in_meta = true;
            if place.is_root {
                child.forbids_default = Some(format!("in top-level {name}"));
            }
        }
        visit(property, &format!("{path}.properties[{name}]"), &child, found);
    }
    let in_junctor = Place { rules_count: false, ..below.clone() };
    if schema["not"].is_object() {
        visit(&schema["not"], &format!("{path}.not"), &in_junctor, found);
    }
    for keyword in ["allOf", "oneOf", "anyOf"] {
        for (idx, nested) in list(&schema[keyword]).iter().enumerate() {
            visit(nested, &format!("{path}.{keyword}[{idx}]"), &in_junctor, found);
        }
    }
    for (name, definition) in schema["definitions"].as_object().into_iter().flatten() {
        visit(definition, &format!("{path}.definitions[{name}]"), &in_junctor, found);
    }
    if schema["items"].is_object() {
        let mut place = Place { is_resource: embedded(&schema["items"]), ..below };
        if schema["x-kubernetes-list-type"] != "map" && place.uncorrelated.is_none() {
            place.uncorrelated = Some(path.to_owned());
        }
        visit(&schema["items"], &format!("{path}.items"), &place, found);
    }
    check_extensions(schema, path, found);
    check_rule_texts(schema, path, found);
    if place.rules_count && found.schema.len() == n_before {
        check_rules(schema, path, place, found);
    }
}

fn check_keywords(schema: &Value, path: &str, place: &Place, found: &mut Found) {
    let type_name = text(&schema["type"]);
    if !type_name.is_empty() && !TYPES.contains(&type_name) {
        found.schema.push(FieldError::not_supported(format!("{path}.type"), type_name, &TYPES));
    }
    let mut forbid = |keyword: &str, why: &str| {
        found.schema.push(FieldError::forbidden(format!("{path}.{keyword}"), why));
    };
    if let (false, Some(reason)) = (schema["default"].is_null(), &place.forbids_default) {
        forbid("default", &format!("must not be set {reason}"));
    }
    for (keyword, name) in [
        ("id", "id"),
        ("additionalItems", "additionalItems"),
        ("patternProperties", "patternProperties"),
        ("definitions", "definitions"),
        ("dependencies", "dependencies"),
        ("$ref", "$ref"),
    ] {
        let is_said = match &schema[keyword] {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Object(members) => !members.is_empty() || keyword == "additionalItems",
            _ => true,
        };
        if is_said {
            forbid(keyword, &format!("{name} is not supported"));
        }
    }
    if type_name == "null" {
        forbid("type", "type cannot be set to null, use nullable as an alternative");
    }
    if !list(&schema["items"]).is_empty() {
        forbid("items", "items must be a schema object and not an array");
    }
    if place.is_in_meta && schema["x-kubernetes-embedded-resource"] == true {
        forbid("x-kubernetes-embedded-resource", "must not be used inside of resource meta");
    }
    if schema["uniqueItems"] == true {
        forbid("uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic");
    }
}

fn check_extensions(schema: &Value, path: &str, found: &mut Found) {
    let errors = &mut found.schema;
    let type_name = text(&schema["type"]);
    let field = |keyword: &str| format!("{path}.{keyword}");
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        let why = "must be true or undefined";
        errors.push(FieldError::invalid(field("x-kubernetes-preserve-unknown-fields"), false, why));
    }
    let must_be = |wanted: &str, keyword: &str| {
        let why = format!("must be {wanted} if {keyword} is specified");
        if type_name.is_empty() {
            FieldError::required(format!("{path}.type"), why)
        } else {
            FieldError::invalid(format!("{path}.type"), type_name, why)
        }
    };
    if let Some(map_type) = schema["x-kubernetes-map-type"].as_str() {
        if type_name != "object" {
            errors.push(must_be("object", "x-kubernetes-map-type"));
        }
        if !matches!(map_type, "atomic" | "granular") {
            errors.push(FieldError::not_supported(field("x-kubernetes-map-type"), map_type, &["atomic", "granular"]));
        }
    }
    let keys: Vec<&str> = list(&schema["x-kubernetes-list-map-keys"]).iter().map(text).collect();
    let Some(list_type) = schema["x-kubernetes-list-type"].as_str() else {
        if !keys.is_empty() {
            let why = "must be map if x-kubernetes-list-map-keys is non-empty";
            errors.push(FieldError::required(field("x-kubernetes-list-type"), why));
        }
        return;
    };
    let items = &schema["items"];
    if type_name != "array" {
        errors.push(must_be("array", "x-kubernetes-list-type"));
    } else if list_type == "set" && items.is_object() {
        let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let items_list_type = &items["x-kubernetes-list-type"];
        if items["type"] == "array" && !items_list_type.is_null() && items_list_type != "atomic" {
            let found = items_list_type.clone();
            errors.push(FieldError::invalid(field("items.x-kubernetes-list-type"), found, why));
        }
        if items["type"] == "object" && items["x-kubernetes-map-type"] != "atomic" {
            let found = items_list_type.clone();
            errors.push(FieldError::invalid(field("items.x-kubernetes-map-type"), found, why));
        }
    }
    if !matches!(list_type, "atomic" | "set" | "map") {
        let supported = ["atomic", "set", "map"];
        errors.push(FieldError::not_supported(field("x-kubernetes-list-type"), list_type, &supported));
    }
    if !keys.is_empty() && list_type != "map" {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(FieldError::invalid(field("x-kubernetes-list-type"), list_type, why));
    }
    if list_type == "map" {
        check_map_keys(schema, &keys, path, errors);
    }
    if matches!(list_type, "set" | "map") && items["nullable"] == true {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(field("items.nullable"), why));
    }
    if list_type == "map" {
        check_map_key_properties(items, &keys, path, errors);
    }
}

fn check_map_keys(schema: &Value, keys: &[&str], path: &str, errors: &mut Vec<FieldError>) {
    let items = &schema["items"];
    let keys_field = format!("{path}.x-kubernetes-list-map-keys");
    if keys.is_empty() {
        errors.push(FieldError::required(keys_field.as_str(), "must not be empty if x-kubernetes-list-type is map"));
    }
    if items.is_null() {
        let why = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.items"), why));
        return;
    }
    if items["type"] != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(format!("{path}.items.type"), text(&items["type"]), why));
        return;
    }
    for (idx, key) in keys.iter().enumerate() {
        match items["properties"].get(key) {
            None => {
                let why = "entries must all be names of item properties";
                errors.push(FieldError::invalid(keys_field.as_str(), serde_json::json!(keys), why));
            }
            Some(property) if matches!(text(&property["type"]), "array" | "object") => {
                let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.push(FieldError::invalid(format!("{path}.items.properties[{key}].type"), "object", why));
            }
            Some(_) => {}
        }
        if keys.iter().take(idx).any(|earlier| earlier == key) {
            let why = "must not contain duplicate entries";
            errors.push(FieldError::invalid(keys_field.as_str(), serde_json::json!(keys), why));
        }
    }
}

fn check_map_key_properties(items: &Value, keys: &[&str], path: &str, errors: &mut Vec<FieldError>) {
    for key in keys {
        let Some(property) = items["properties"].get(key) else { continue };
        let field = |keyword: &str| format!("{path}.items.properties[{key}].{keyword}");
        if !list(&items["required"]).iter().any(|name| name == key) && property["default"].is_null() {
            let why =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(field("default"), why));
        }
        if property["nullable"] == true {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(field("nullable"), why));
        }
    }
}

fn check_rule_texts(schema: &Value, path: &str, found: &mut Found) {
    const REASONS: [&str; 4] =
        ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let errors = &mut found.schema;
    let has_break = |text: &str| text.contains(['\n', '\r']);
    for (idx, rule) in rules::written_rules(schema).enumerate() {
        let field = |name: &str| format!("{path}.x-kubernetes-validations[{idx}].{name}");
        let (source, message) = (text(&rule["rule"]), text(&rule["message"]));
        if source.trim().is_empty() {
            errors.push(FieldError::required(field("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            errors.push(FieldError::invalid(field("message"), message, "must be non-empty if specified"));
        } else if has_break(message.trim()) {
            errors.push(FieldError::invalid(field("message"), message, "must not contain line breaks"));
        } else if has_break(source.trim()) && message.trim().is_empty() {
            let why = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(field("message"), why));
        }
        let expression = text(&rule["messageExpression"]);
        if !expression.is_empty() && expression.trim().is_empty() {
            let why = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(field("messageExpression"), why));
        }
        if let Some(reason) = rule["reason"].as_str().filter(|reason| !REASONS.contains(reason)) {
            errors.push(FieldError::not_supported(field("reason"), reason, &REASONS));
        }
        let blamed = text(&rule["fieldPath"]);
        if blamed.is_empty() {
            continue;
        }
        if blamed.trim().is_empty() {
            errors.push(FieldError::invalid(field("fieldPath"), blamed, "must be non-empty if specified"));
        }
        if has_break(blamed) {
            errors.push(FieldError::invalid(field("fieldPath"), blamed, "must not contain line breaks"));
        }
        if field_path::read(blamed, &Node::read(schema), true).is_err() {
            errors.push(FieldError::invalid(field("fieldPath"), blamed, "must be a valid path"));
        }
    }
}

fn check_rules(schema: &Value, path: &str, place: &Place, found: &mut Found) {
    let mut node = None;
    for (idx, rule) in rules::written_rules(schema).enumerate() {
        let node = node.get_or_insert_with(|| Node::read(schema));
        let field = |name: &str| format!("{path}.x-kubernetes-validations[{idx}].{name}");
        let compiled = rules::compile(rule, node, place.is_resource);
        for wrong in &compiled.wrong {
            let (name, why) = match wrong {
                rules::Wrong::Rule(why) => ("rule", why),
                rules::Wrong::MessageExpression(why) => ("messageExpression", why),
            };
            let why = format!("{}: {why}", shown::rule(rule));
            found.rules.push(FieldError::new(FieldErrorKind::InvalidUnshown, field(name), Value::Null, why));
        }
        let Some(condition) = &compiled.condition else { continue };
        if !condition.uses_old_self {
            if let Some(said) = rule["optionalOldSelf"].as_bool() {
                let why = "may not be set if oldSelf is not used in rule";
                found.rules.push(FieldError::invalid(field("optionalOldSelf"), said, why));
            }
        } else if let Some(above) = &place.uncorrelated {
            let why = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {above}");
            found.rules.push(FieldError::invalid(field("rule"), text(&rule["rule"]), why));
        }
    }
}
