//! The schemas of types, with the extensions that say how lists and maps merge.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::Format;
use crate::kind::{Resource, Subresource};
use crate::schema::built_in::{self, LIST_META, OBJECT_META};
use crate::schema::{Empty, Field, ListType, Schema, Shape};

pub(super) const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
pub(super) const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

/// The full name of a resource's type: `io.k8s.api.apps.v1.Deployment`, or the group turned around.
pub(super) fn name_of(resource: &Resource) -> String {
    match built_in::name_of(&resource.api_version(), &resource.kind) {
        Some(name) if resource.custom.is_none() && !is_custom(resource) => name.to_owned(),
        _ => {
            let mut parts: Vec<&str> = resource.group.rsplit('.').collect();
            parts.extend([resource.version.as_str(), resource.kind.as_str()]);
            parts.join(".")
        }
    }
}

fn is_custom(resource: &Resource) -> bool {
    resource.schema.as_ref().is_some_and(|schema| schema.source.is_some())
}

/// What a subresource takes and gives.
pub(super) fn name_of_sub(resource: &Resource, subresource: Subresource) -> String {
    let kind = match subresource {
        Subresource::Scale => ("autoscaling/v1", "Scale"),
        Subresource::Eviction => ("policy/v1", "Eviction"),
        Subresource::Binding => ("v1", "Binding"),
        Subresource::Token => ("authentication.k8s.io/v1", "TokenRequest"),
        _ => return name_of(resource),
    };
    built_in::name_of(kind.0, kind.1).unwrap_or_default().to_owned()
}

/// The types that a resource's paths speak of.
pub(super) fn roots(resource: &Resource) -> Vec<String> {
    let name = name_of(resource);
    let mut names = vec![format!("{name}List"), name];
    names.extend(resource.subresources.iter().map(|subresource| name_of_sub(resource, *subresource)));
    names.extend([DELETE_OPTIONS, STATUS, PATCH].map(str::to_owned));
    names
}

/// These types and all that they refer to.
pub(super) fn closure(format: Format, served: &[&Resource], names: BTreeSet<String>) -> Map<String, Value> {
    let mut kinds: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut custom: BTreeMap<String, &Resource> = BTreeMap::new();
    let mut lists: BTreeMap<String, (String, &Resource)> = BTreeMap::new();
    for resource in served {
        let name = name_of(resource);
        let list = format!("{name}List");
        kinds.entry(name.clone()).or_default().push(kind_fact(resource, &resource.kind));
        kinds.entry(list.clone()).or_default().push(kind_fact(resource, &resource.list_kind));
        lists.insert(list, (name.clone(), resource));
        if is_custom(resource) {
            custom.insert(name, resource);
        }
    }
    for (name, group, version, kind) in [
        (DELETE_OPTIONS, "", "v1", "DeleteOptions"),
        (STATUS, "", "v1", "Status"),
        ("io.k8s.api.autoscaling.v1.Scale", "autoscaling", "v1", "Scale"),
        ("io.k8s.api.policy.v1.Eviction", "policy", "v1", "Eviction"),
        ("io.k8s.api.authentication.v1.TokenRequest", "authentication.k8s.io", "v1", "TokenRequest"),
    ] {
        kinds.insert(name.to_owned(), vec![json!({ "group": group, "kind": kind, "version": version })]);
    }
    let mut waiting: Vec<String> = names.into_iter().collect();
    let mut schemas = Map::new();
    while let Some(name) = waiting.pop() {
        if schemas.contains_key(&name) {
            continue;
        }
        let mut schema = match (lists.get(&name), custom.get(&name)) {
            (Some((item, resource)), _) => list(format, resource, item),
            (_, Some(resource)) => custom_type(format, resource),
            _ => built_in_type(format, &name),
        };
        if let (Value::Object(schema), Some(kinds)) = (&mut schema, kinds.get(&name)) {
            schema.insert("x-kubernetes-group-version-kind".to_owned(), json!(kinds));
        }
        references(&schema, &mut waiting);
        schemas.insert(name, schema);
    }
    schemas
}

fn kind_fact(resource: &Resource, kind: &str) -> Value {
    json!({ "group": resource.group, "kind": kind, "version": resource.version })
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(built_in::reference(value).map(str::to_owned));
            fields.values().for_each(|field| references(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

fn list(format: Format, resource: &Resource, item: &str) -> Value {
    let text = |description: &str| json!({ "description": description, "type": "string" });
    json!({
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": text("The group and version of this list."),
            "items": { "description": format!("List of {}.", resource.plural), "type": "array", "items": format.reference(item) },
            "kind": text("The kind of this list."),
            "metadata": referring(format, LIST_META, Some("Standard list metadata."), false),
        },
    })
}

/// A reference with something said beside it.
fn referring(format: Format, name: &str, description: Option<&str>, is_written: bool) -> Value {
    let mut schema = match format {
        Format::V2 => format.reference(name),
        Format::V3 => json!({ "allOf": [format.reference(name)] }),
    };
    if let Value::Object(schema) = &mut schema {
        if let Some(description) = description {
            schema.insert("description".to_owned(), json!(description));
        }
        if is_written && format == Format::V3 {
            schema.insert("default".to_owned(), json!({}));
        }
    }
    schema
}

fn custom_type(format: Format, resource: &Resource) -> Value {
    let source = resource.schema.as_ref().and_then(|schema| schema.source.clone());
    let mut schema = source.filter(Value::is_object).unwrap_or_else(|| json!({ "type": "object" }));
    complete(format, &mut schema);
    if format == Format::V2 {
        older(&mut schema);
    }
    let Value::Object(fields) = &mut schema else { return schema };
    let properties = fields.entry("properties").or_insert_with(|| json!({}));
    if let Value::Object(properties) = properties {
        let text = |description: &str| json!({ "description": description, "type": "string" });
        properties.insert("apiVersion".to_owned(), text("The group and version of this object."));
        properties.insert("kind".to_owned(), text("The kind of this object."));
        let meta = referring(format, OBJECT_META, Some("Standard object's metadata."), false);
        properties.insert("metadata".to_owned(), meta);
    }
    schema
}

/// What a structural schema leaves to its readers to know.
fn complete(format: Format, schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let is_either = fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
            if is_either && format == Format::V3 && !fields.contains_key("anyOf") {
                fields.insert("anyOf".to_owned(), json!([{ "type": "integer" }, { "type": "string" }]));
            }
            for key in ["items", "additionalProperties"] {
                if let Some(child @ Value::Object(_)) = fields.get_mut(key) {
                    complete(format, child);
                }
            }
            if let Some(Value::Object(properties)) = fields.get_mut("properties") {
                properties.values_mut().for_each(|property| complete(format, property));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| complete(format, item)),
        _ => {}
    }
}

/// The older format has no choices, no nulls, and no defaults that would be told twice.
fn older(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    for key in ["anyOf", "oneOf", "allOf", "not", "nullable", "default", "x-kubernetes-validations"] {
        fields.remove(key);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(child) = fields.get_mut(key) {
            older(child);
        }
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(older);
    }
}

fn built_in_type(format: Format, name: &str) -> Value {
    let short = name.rsplit('.').next().unwrap_or(name);
    let source = built_in::json_schema(name);
    let described = |mut schema: Value| {
        let description = source.and_then(|source| source.get("description"));
        if let (Value::Object(fields), Some(description)) = (&mut schema, description) {
            fields.insert("description".to_owned(), description.clone());
        }
        schema
    };
    let special = match (short, format) {
        ("IntOrString", Format::V2) => json!({ "type": "string", "format": "int-or-string" }),
        ("IntOrString", Format::V3) => {
            json!({ "format": "int-or-string", "oneOf": [{ "type": "integer" }, { "type": "string" }] })
        }
        ("Quantity", Format::V2) => json!({ "type": "string" }),
        ("Quantity", Format::V3) => json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] }),
        ("JSON" | "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray", _) => json!({}),
        ("Patch", _) => json!({ "description": "A patch to a resource.", "type": "object" }),
        _ => Value::Null,
    };
    if !special.is_null() {
        return described(special);
    }
    let Some(source) = source else {
        return json!({ "type": "object" });
    };
    let shape = built_in::definition(name);
    let mut schema = source.clone();
    let Value::Object(fields) = &mut schema else { return schema };
    if let Shape::Object(object) = &shape.shape {
        if object.atomic {
            fields.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
        }
        if let Some(Value::Object(properties)) = fields.get_mut("properties") {
            for (key, property) in properties.iter_mut() {
                if let Some(field) = object.fields.get(key) {
                    *property = field_type(format, property, field);
                }
            }
        }
    }
    schema
}

fn field_type(format: Format, property: &Value, field: &Field) -> Value {
    let schema = field.link.get();
    let is_written = field.empty == Empty::Zero;
    let description = property["description"].as_str();
    let mut shown = match built_in::reference(property) {
        Some(name) => referring(format, name, description, is_written && matches!(schema.shape, Shape::Object(_))),
        None => relinked(format, property),
    };
    let Value::Object(fields) = &mut shown else { return shown };
    if format == Format::V3
        && let Shape::Scalar(scalar) = schema.shape
        && (is_written || schema.default.is_some())
        && built_in::reference(property).is_none()
    {
        fields.insert("default".to_owned(), schema.default.clone().unwrap_or_else(|| scalar.zero()));
    }
    extensions(schema, field, fields);
    shown
}

/// The same with references of this format.
fn relinked(format: Format, property: &Value) -> Value {
    if let Some(name) = built_in::reference(property) {
        return format.reference(name);
    }
    match property {
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (key.clone(), relinked(format, value))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(|item| relinked(format, item)).collect(),
        other => other.clone(),
    }
}

fn extensions(schema: &Schema, field: &Field, fields: &mut Map<String, Value>) {
    let mut say = |key: &str, value: Value| {
        fields.insert(format!("x-kubernetes-{key}"), value);
    };
    let mut strategies = Vec::new();
    match &schema.shape {
        Shape::List(list) => {
            match &list.kind {
                ListType::Atomic => say("list-type", json!("atomic")),
                ListType::Set => say("list-type", json!("set")),
                ListType::Map(keys) => {
                    say("list-type", json!("map"));
                    say("list-map-keys", json!(keys));
                }
            }
            if let Some(key) = &list.merge_key {
                strategies.push("merge");
                if !key.is_empty() {
                    say("patch-merge-key", json!(key));
                }
            }
        }
        Shape::Map(map) if map.atomic => say("map-type", json!("atomic")),
        _ => {}
    }
    match field.atomic {
        Some(true) => say("map-type", json!("atomic")),
        Some(false) => say("map-type", json!("granular")),
        None => {}
    }
    if field.retain_keys {
        strategies.push("retainKeys");
    }
    if field.replace {
        strategies.push("replace");
    }
    if !strategies.is_empty() {
        say("patch-strategy", json!(strategies.join(",")));
    }
}
