//! Whether a schema is structural: each value has one type, said outside of junctors, and junctors only narrow it.

use serde_json::{Map, Value};

use super::{list, text};
use crate::custom::pattern;
use crate::error::FieldError;

/// What keeps a schema from being read as structural at all.
pub(super) fn unsupported(schema: &Value) -> Option<String> {
    for (keyword, name) in [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ] {
        let is_said = match &schema[keyword] {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Object(members) => !members.is_empty(),
            _ => true,
        };
        if is_said {
            return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
        }
    }
    if schema["items"].is_array() {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    below(schema).find_map(|(_, child)| unsupported(child))
}

/// The schemas right below one.
pub(super) fn below(schema: &Value) -> impl Iterator<Item = (String, &Value)> {
    let named = |keyword: &'static str| {
        let members = schema[keyword].as_object();
        members.into_iter().flatten().map(move |(name, child)| (format!("{keyword}[{name}]"), child))
    };
    let single = |keyword: &'static str| {
        schema.get(keyword).filter(|child| child.is_object()).map(|child| (keyword.to_owned(), child))
    };
    let numbered = |keyword: &'static str| {
        list(&schema[keyword]).iter().enumerate().map(move |(idx, child)| (format!("{keyword}[{idx}]"), child))
    };
    single("additionalProperties")
        .into_iter()
        .chain(named("properties"))
        .chain(single("items"))
        .chain(single("not"))
        .chain(numbered("allOf"))
        .chain(numbered("anyOf"))
        .chain(numbered("oneOf"))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// In the order of their words, as the server sorts them.
pub(super) fn validate(schema: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check(schema, Level::Root, path, &mut errors);
    check_complete(schema, Some(schema), path, path, &mut errors);
    errors.sort_by_key(ToString::to_string);
    errors
}

fn is_set(schema: &Value, keyword: &str) -> bool {
    schema[keyword] == true
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flat_map(Map::iter)
}

fn check(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let type_name = text(&schema["type"]);
    let items = schema.get("items").filter(|items| items.is_object());
    if type_name == "array" && items.is_none() {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    if let Some(items) = items {
        check(items, Level::Item, &format!("{path}.items"), errors);
    }
    for (name, property) in properties(schema) {
        check(property, Level::Field, &format!("{path}.properties[{name}]"), errors);
    }
    let additional = schema.get("additionalProperties").filter(|additional| !additional.is_null());
    if let Some(additional) = additional {
        if level == Level::Root {
            errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), "must not be used at the root"));
        }
        if additional.is_object() {
            check(additional, Level::Field, &format!("{path}.additionalProperties"), errors);
        }
    }
    let is_int_or_string = is_set(schema, "x-kubernetes-int-or-string");
    let keeps_unknown = is_set(schema, "x-kubernetes-preserve-unknown-fields");
    let is_embedded = is_set(schema, "x-kubernetes-embedded-resource");
    for (keyword, is_said) in
        [("x-kubernetes-preserve-unknown-fields", keeps_unknown), ("x-kubernetes-embedded-resource", is_embedded)]
    {
        if is_int_or_string && is_said {
            let why = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(format!("{path}.{keyword}"), true, why));
        }
    }
    check_junctors(schema, is_int_or_string_any_of(schema), is_int_or_string_any_of(&schema["allOf"][0]), path, errors);

    let type_field = format!("{path}.type");
    if is_embedded && type_name != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if type_name.is_empty() {
            FieldError::required(type_field, why)
        } else {
            FieldError::invalid(type_field, type_name, why)
        });
    } else if type_name.is_empty() && !is_int_or_string && !keeps_unknown {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(type_field, why));
    }
    if is_embedded && additional.is_some() {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), why));
    }
    if level == Level::Root && !type_name.is_empty() && type_name != "object" {
        errors.push(FieldError::invalid(format!("{path}.type"), type_name, "must be object at the root"));
    }
    check_meta(schema, level, is_embedded, path, errors);
    if is_embedded && !keeps_unknown && properties(schema).next().is_none() {
        let why =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(format!("{path}.properties"), why));
    }
}

fn check_meta(schema: &Value, level: Level, is_embedded: bool, path: &str, errors: &mut Vec<FieldError>) {
    let is_resource = level == Level::Root || is_embedded;
    for name in ["kind", "apiVersion"] {
        if let Some(property) = schema["properties"].get(name).filter(|_| is_resource)
            && property["type"] != "string"
        {
            let field = format!("{path}.properties[{name}].type");
            errors.push(FieldError::invalid(field, text(&property["type"]), "must be string"));
        }
    }
    let Some(metadata) = schema["properties"].get("metadata") else { return };
    let field = format!("{path}.properties[metadata]");
    if is_resource && metadata["type"] != "object" {
        errors.push(FieldError::invalid(format!("{field}.type"), text(&metadata["type"]), "must be object"));
    }
    if level == Level::Root {
        let names_only = properties(metadata).all(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
        // Validations of the whole are not restrictions of its parts, and are let be.
        let is_plain = metadata.as_object().into_iter().flatten().all(|(keyword, _)| {
            !matches!(
                keyword.as_str(),
                "description" | "title" | "nullable" | "additionalProperties" | "items" | "example"
            ) && !keyword.starts_with("x-kubernetes-")
        });
        let has_validations = ["required", "minProperties", "maxProperties", "anyOf", "allOf", "oneOf", "not", "enum"]
            .iter()
            .any(|keyword| !metadata[*keyword].is_null());
        if !names_only || !is_plain || has_validations {
            let why =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            errors.push(FieldError::forbidden(field, why));
        }
    }
}

/// `anyOf: [{type: integer}, {type: string}]`, which an int-or-string may say.
fn is_int_or_string_any_of(schema: &Value) -> bool {
    let only_type = |part: &Value, type_name: &str| {
        part.as_object().is_some_and(|members| members.len() == 1) && part["type"] == type_name
    };
    matches!(list(&schema["anyOf"]), [one, other] if only_type(one, "integer") && only_type(other, "string"))
}

fn check_junctors(
    schema: &Value,
    skips_any_of: bool,
    skips_any_of_in_first_all_of: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if !skips_any_of {
        for (idx, nested) in list(&schema["anyOf"]).iter().enumerate() {
            check_nested(nested, false, &format!("{path}.anyOf[{idx}]"), errors);
        }
    }
    for (idx, nested) in list(&schema["allOf"]).iter().enumerate() {
        let skips_any_of = skips_any_of_in_first_all_of && idx == 0;
        check_nested(nested, skips_any_of, &format!("{path}.allOf[{idx}]"), errors);
    }
    for (idx, nested) in list(&schema["oneOf"]).iter().enumerate() {
        check_nested(nested, false, &format!("{path}.oneOf[{idx}]"), errors);
    }
    if let Some(nested) = schema.get("not").filter(|nested| nested.is_object()) {
        check_nested(nested, false, &format!("{path}.not"), errors);
    }
    let source = text(&schema["pattern"]);
    if let (false, Err(why)) = (source.is_empty(), pattern::compile(source)) {
        let why = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(format!("{path}.pattern"), source, why));
    }
}

fn check_nested(nested: &Value, skips_any_of: bool, path: &str, errors: &mut Vec<FieldError>) {
    check_junctors(nested, skips_any_of, false, path, errors);
    if let Some(items) = nested.get("items").filter(|items| items.is_object()) {
        check_nested(items, false, &format!("{path}.items"), errors);
    }
    for (name, property) in properties(nested) {
        check_nested(property, false, &format!("{path}.properties[{name}]"), errors);
    }
    let rows = [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ];
    for (keyword, why) in rows {
        let is_said = match &nested[keyword] {
            Value::Null | Value::Bool(false) => false,
            Value::String(text) => !text.is_empty() || why.contains("undefined"),
            Value::Array(items) => !items.is_empty() || keyword == "default",
            _ => true,
        };
        if is_said || (keyword == "default" && nested[keyword] == false) {
            errors.push(FieldError::forbidden(format!("{path}.{keyword}"), why));
        }
    }
    if nested["properties"].get("metadata").is_some() {
        let why = "must not be specified in a nested context";
        errors.push(FieldError::forbidden(format!("{path}.properties[metadata]"), why));
    }
}

/// What a junctor says something about must be there outside of it.
fn check_complete(
    said: &Value,
    there: Option<&Value>,
    there_path: &str,
    said_path: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(there) = there else {
        errors.push(FieldError::required(there_path, format!("because it is defined in {said_path}")));
        return;
    };
    let junctors = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|keyword| {
        list(&said[keyword]).iter().enumerate().map(move |(idx, nested)| (format!("{keyword}[{idx}]"), nested))
    });
    let not = said.get("not").filter(|nested| nested.is_object()).map(|nested| ("not".to_owned(), nested));
    for (name, nested) in not.into_iter().chain(junctors) {
        let said_path = format!("{said_path}.{name}");
        check_complete(nested, Some(there), there_path, &said_path, errors);
        if let Some(items) = nested.get("items").filter(|items| items.is_object()) {
            let items_there = there.get("items").filter(|items| items.is_object());
            check_nested_complete(
                items,
                items_there,
                &format!("{there_path}.items"),
                &format!("{said_path}.items"),
                errors,
            );
        }
        for (name, property) in properties(nested) {
            let step = format!("properties[{name}]");
            let property_there = there["properties"].get(name);
            check_nested_complete(
                property,
                property_there,
                &format!("{there_path}.{step}"),
                &format!("{said_path}.{step}"),
                errors,
            );
        }
    }
}

fn check_nested_complete(
    said: &Value,
    there: Option<&Value>,
    there_path: &str,
    said_path: &str,
    errors: &mut Vec<FieldError>,
) {
    check_complete(said, there, there_path, said_path, errors);
    let Some(there) = there else { return };
    if let Some(items) = said.get("items").filter(|items| items.is_object()) {
        let items_there = there.get("items").filter(|items| items.is_object());
        check_nested_complete(
            items,
            items_there,
            &format!("{there_path}.items"),
            &format!("{said_path}.items"),
            errors,
        );
    }
    for (name, property) in properties(said) {
        let step = format!("properties[{name}]");
        let property_there = there["properties"].get(name);
        check_nested_complete(
            property,
            property_there,
            &format!("{there_path}.{step}"),
            &format!("{said_path}.{step}"),
            errors,
        );
    }
}
