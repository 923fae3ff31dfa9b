//! The shape of a custom resource, from the schema in its definition.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::built_in::OBJECT_META;
use super::{Empty, Field, Link, List, ListType, MapShape, Object, Scalar, Schema, Shape};

pub(super) fn read(schema: &Value) -> Arc<Schema> {
    let mut root = node(schema);
    if !matches!(root.shape, Shape::Object(_)) {
        root = object(schema);
    }
    let mut root = with_type_and_meta(root);
    root.source = Some(schema.clone());
    Arc::new(root)
}

fn with_type_and_meta(mut schema: Schema) -> Schema {
    if let Shape::Object(object) = &mut schema.shape {
        for name in ["apiVersion", "kind"] {
            object.fields.insert(name.to_owned(), field(Link::here(Schema::scalar_of(Scalar::String))));
        }
        object.fields.insert("metadata".to_owned(), field(Link::named(OBJECT_META)));
    }
    schema
}

fn field(link: Link) -> Field {
    Field { link, empty: Empty::Kept, part: String::new(), retain_keys: false, replace: false, atomic: None }
}

fn node(schema: &Value) -> Schema {
    let mut shape = typed(schema);
    if schema["x-kubernetes-embedded-resource"] == Value::Bool(true) {
        if !matches!(shape.shape, Shape::Object(_)) {
            shape = object(schema);
        }
        shape = with_type_and_meta(shape);
    }
    shape.default = schema.get("default").cloned();
    shape
}

fn typed(schema: &Value) -> Schema {
    if schema["x-kubernetes-int-or-string"] == Value::Bool(true) {
        return Schema::scalar_of(Scalar::IntOrString);
    }
    let scalar = match (schema["type"].as_str(), schema["format"].as_str()) {
        (Some("object"), _) => {
            let additional = &schema["additionalProperties"];
            return match additional {
                Value::Object(_) if schema.get("properties").is_none() => map(schema, node(additional)),
                Value::Bool(true) if schema.get("properties").is_none() => map(schema, free()),
                _ => object(schema),
            };
        }
        (Some("array"), _) => return list(schema),
        (Some("integer"), Some("int32")) => Scalar::Int32,
        (Some("integer"), _) => Scalar::Int64,
        (Some("number"), _) => Scalar::Number,
        (Some("string"), _) => Scalar::String,
        (Some("boolean"), _) => Scalar::Bool,
        // Without a type, but with fields: kept as it is, with what is said of the fields.
        (None, _) if schema.get("properties").is_some() => return object(schema),
        _ => return free(),
    };
    Schema::scalar_of(scalar)
}

/// Nothing is said of it.
fn free() -> Schema {
    Schema::new(Shape::Any { divided: true }, "interface {}")
}

fn map(schema: &Value, values: Schema) -> Schema {
    let atomic = schema["x-kubernetes-map-type"] == "atomic";
    Schema::new(Shape::Map(MapShape { values: Link::here(values), atomic }), "map[string]interface {}")
}

fn list(schema: &Value) -> Schema {
    let kind = match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => ListType::Set,
        Some("map") => {
            let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
            ListType::Map(keys.filter_map(Value::as_str).map(str::to_owned).collect())
        }
        _ => ListType::Atomic,
    };
    let item = Link::here(node(&schema["items"]));
    Schema::new(Shape::List(List { item, kind, merge_key: None }), "[]interface {}")
}

fn object(schema: &Value) -> Schema {
    let fields: BTreeMap<String, Field> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, property)| (name.clone(), field(Link::here(node(property)))))
        .collect();
    let object = Object {
        name: String::new(),
        fields,
        preserve_unknown: schema["x-kubernetes-preserve-unknown-fields"] == Value::Bool(true),
        atomic: schema["x-kubernetes-map-type"] == "atomic",
        custom: true,
    };
    Schema::new(Shape::Object(object), "map[string]interface {}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_structural_schema_becomes_a_shape() {
        let schema = Schema::structural(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "size": {"type": "integer", "format": "int32"},
                "any": {"x-kubernetes-preserve-unknown-fields": true},
                "port": {"x-kubernetes-int-or-string": true},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"],
                    "items": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}},
                "pod": {"type": "object", "x-kubernetes-embedded-resource": true},
            }},
        }}));
        let spec = schema.field("spec").unwrap();
        assert_eq!(spec.field("size").unwrap().scalar(), Some(Scalar::Int32));
        assert!(spec.field("any").unwrap().preserve_unknown());
        assert_eq!(spec.field("port").unwrap().scalar(), Some(Scalar::IntOrString));
        assert_eq!(spec.field("labels").unwrap().additional().unwrap().scalar(), Some(Scalar::String));
        let items = spec.field("items").unwrap();
        assert_eq!(items.list_type(), Some(&ListType::Map(vec!["a".to_owned()])));
        assert_eq!(items.item().unwrap().field("a").unwrap().default, Some(json!("x")));
        assert!(spec.field("pod").unwrap().field("metadata").unwrap().field("labels").is_some());
        assert!(schema.field("metadata").unwrap().field("finalizers").is_some());
    }

    #[test]
    fn what_is_no_schema_takes_anything() {
        for odd in [json!(null), json!(5), json!({"type": 7}), json!({"type": "array"})] {
            assert!(Schema::structural(&odd).field("metadata").is_some());
        }
    }
}
