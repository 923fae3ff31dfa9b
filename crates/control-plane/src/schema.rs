//! The shape of objects: fields and their types, how lists and maps merge, and what the decoder makes of bytes.
//!
//! ```text
//! k8s-openapi's JSON schemas + facts.txt ──▶ built_in ─┐
//! a CustomResourceDefinition's schema ──▶ structural ──┼─▶ Schema ─▶ decode, conform; patch; managed; openapi
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::error::ApiError;

pub(crate) mod built_in;
mod decode;
#[cfg(test)]
mod decode_tests;
mod document;
mod facts;
pub(crate) mod go;
pub mod quantity;
mod structural;
mod time;
mod typing;
mod yaml;

/// One node of a shape.
#[derive(Debug)]
pub struct Schema {
    pub(crate) shape: Shape,
    /// What Go calls the type: `v1.PodSpec`, `[]string`. Error messages show it.
    pub(crate) go_type: String,
    pub(crate) default: Option<Value>,
    /// What a custom resource's shape was read from.
    pub(crate) source: Option<Value>,
}

#[derive(Debug)]
pub(crate) enum Shape {
    Object(Object),
    Map(MapShape),
    List(List),
    Scalar(Scalar),
    /// An object of this shape, or something else that is as short.
    Either(Link, Alternative),
    /// Whatever was sent. Divided, each of its fields may have an owner; otherwise it has one.
    Any {
        divided: bool,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Object {
    /// `DeploymentSpec`. Empty in custom resources.
    pub(crate) name: String,
    pub(crate) fields: BTreeMap<String, Field>,
    pub(crate) preserve_unknown: bool,
    /// One owner has it whole.
    pub(crate) atomic: bool,
    /// It is a custom resource's: what is in it is judged by its schema and not by a Go type.
    pub(crate) custom: bool,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) link: Link,
    pub(crate) empty: Empty,
    /// The embedded struct that Go has it in.
    pub(crate) part: String,
    pub(crate) retain_keys: bool,
    pub(crate) replace: bool,
    /// Overrules what the object says of itself.
    pub(crate) atomic: Option<bool>,
}

#[derive(Debug)]
pub(crate) struct MapShape {
    pub(crate) values: Link,
    pub(crate) atomic: bool,
}

#[derive(Debug)]
pub(crate) struct List {
    pub(crate) item: Link,
    pub(crate) kind: ListType,
    /// Strategic merge: `Some("")` merges plain values, `Some(key)` objects.
    pub(crate) merge_key: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListType {
    Atomic,
    Set,
    Map(Vec<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    Int32,
    Int64,
    Number,
    String,
    Bool,
    Bytes,
    IntOrString,
    Quantity,
    Time,
    MicroTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alternative {
    Bool,
    Objects,
    Strings,
}

/// What becomes of a field that is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Empty {
    /// Absent or zero: left out.
    LeftOut,
    /// Absent: left out. Zero: kept.
    Kept,
    /// Absent: written as null.
    Null,
    /// Absent: written as its zero value.
    Zero,
}

/// A child. Types refer to each other by name, some to themselves.
#[derive(Debug)]
pub(crate) enum Link {
    Here(Arc<Schema>),
    Named { name: String, found: OnceLock<Arc<Schema>> },
}

impl Link {
    pub(crate) fn here(schema: Schema) -> Self {
        Self::Here(Arc::new(schema))
    }

    pub(crate) fn named(name: &str) -> Self {
        Self::Named { name: name.to_owned(), found: OnceLock::new() }
    }

    pub(crate) fn get(&self) -> &Schema {
        match self {
            Self::Here(schema) => schema,
            Self::Named { name, found } => found.get_or_init(|| built_in::definition(name)),
        }
    }
}

impl Schema {
    /// The shape of a built-in kind.
    #[must_use]
    pub fn built_in(api_version: &str, kind: &str) -> Option<Arc<Self>> {
        built_in::of_kind(api_version, kind)
    }

    /// The shape of a custom resource, from a version's `openAPIV3Schema`.
    ///
    /// - Assumptions: the schema is structural; the caller has validated it. What is malformed all the same counts as any value.
    /// - Guarantees: `apiVersion`, `kind` and `metadata` are filled in at the root and in embedded resources.
    #[must_use]
    pub fn structural(open_api_v3_schema: &Value) -> Arc<Self> {
        structural::read(open_api_v3_schema)
    }

    pub(crate) fn new(shape: Shape, go_type: impl Into<String>) -> Self {
        Self { shape, go_type: go_type.into(), default: None, source: None }
    }

    pub(crate) fn any() -> Self {
        Self::new(Shape::Any { divided: false }, "interface {}")
    }

    /// The object that nobody has filled yet.
    pub(crate) fn zero(&self) -> Value {
        typing::zero(self)
    }

    pub(crate) fn scalar_of(scalar: Scalar) -> Self {
        Self::new(Shape::Scalar(scalar), scalar.go_type())
    }

    /// A field of an object, or the values of a map.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Schema> {
        match &self.shape {
            Shape::Object(object) => object.fields.get(name).map(|field| field.link.get()),
            Shape::Map(map) => Some(map.values.get()),
            Shape::Either(link, _) => link.get().field(name),
            _ => None,
        }
    }

    /// What a field counts as when it is not there: its default, or the zero value of one that is always written.
    pub(crate) fn default_of(&self, name: &str) -> Option<Value> {
        let Shape::Object(object) = &self.shape else { return None };
        let field = object.fields.get(name)?;
        let schema = field.link.get();
        match (&schema.default, &schema.shape) {
            (Some(default), _) => Some(default.clone()),
            (None, Shape::Scalar(scalar)) if field.empty == Empty::Zero => Some(scalar.zero()),
            _ => None,
        }
    }

    /// The declared fields, in order of their names.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &Schema)> {
        let fields = match &self.shape {
            Shape::Object(object) => Some(&object.fields),
            _ => None,
        };
        fields.into_iter().flatten().map(|(name, field)| (name.as_str(), field.link.get()))
    }

    /// The items of a list.
    #[must_use]
    pub fn item(&self) -> Option<&Schema> {
        match &self.shape {
            Shape::List(list) => Some(list.item.get()),
            _ => None,
        }
    }

    /// The values of a map.
    #[must_use]
    pub fn additional(&self) -> Option<&Schema> {
        match &self.shape {
            Shape::Map(map) => Some(map.values.get()),
            _ => None,
        }
    }

    #[must_use]
    pub fn scalar(&self) -> Option<Scalar> {
        match self.shape {
            Shape::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    #[must_use]
    pub fn list_type(&self) -> Option<&ListType> {
        match &self.shape {
            Shape::List(list) => Some(&list.kind),
            _ => None,
        }
    }

    /// What a strategic merge patch finds items by.
    #[must_use]
    pub fn merge_key(&self) -> Option<&str> {
        match &self.shape {
            Shape::List(list) => list.merge_key.as_deref(),
            _ => None,
        }
    }

    #[must_use]
    pub fn preserve_unknown(&self) -> bool {
        match &self.shape {
            Shape::Object(object) => object.preserve_unknown,
            Shape::Any { .. } => true,
            _ => false,
        }
    }
}

impl Scalar {
    fn go_type(self) -> &'static str {
        match self {
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Number => "float64",
            Self::String => "string",
            Self::Bool => "bool",
            Self::Bytes => "[]uint8",
            Self::IntOrString => "intstr.IntOrString",
            Self::Quantity => "resource.Quantity",
            Self::Time => "v1.Time",
            Self::MicroTime => "v1.MicroTime",
        }
    }

    /// How Go writes one that nobody set.
    pub(crate) fn zero(self) -> Value {
        match self {
            Self::Int32 | Self::Int64 | Self::Number | Self::IntOrString => Value::from(0),
            Self::String => Value::from(""),
            Self::Bool => Value::from(false),
            Self::Quantity => Value::from("0"),
            Self::Bytes | Self::Time | Self::MicroTime => Value::Null,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

#[derive(Debug)]
pub struct Decoded {
    pub value: Value,
    pub warnings: Vec<String>,
}

/// Bytes into a tree, as the real decoder would: types are checked, unknown fields dropped (and told or refused by `mode`),
/// empty fields left out or written as Go does, numbers, times and quantities put into their one form.
pub fn decode(
    schema: &Schema,
    kind: &str,
    api_version: &str,
    body: &[u8],
    is_yaml: bool,
    mode: FieldValidation,
) -> Result<Decoded, ApiError> {
    decode::decode(schema, kind, api_version, body, is_yaml, mode)
}

/// The same on a tree that is there already, after a patch. The refusal speaks of the patch.
pub fn conform(schema: &Schema, value: Value, mode: FieldValidation) -> Result<Decoded, ApiError> {
    conform_with(schema, value, &[], mode)
}

/// With what the reader of the patch complained about already.
pub(crate) fn conform_with(
    schema: &Schema,
    value: Value,
    before: &[String],
    mode: FieldValidation,
) -> Result<Decoded, ApiError> {
    decode::after_patch(schema, value, &decode::Refused::Object, before, mode)
}

/// After a strategic merge patch, of which the refusal shows the patch.
pub(crate) fn conform_converted(
    schema: &Schema,
    value: Value,
    patch: &str,
    before: &[String],
    mode: FieldValidation,
) -> Result<Decoded, ApiError> {
    decode::after_patch(schema, value, &decode::Refused::Patch(patch), before, mode)
}

/// JSON or YAML bytes into a tree, whatever its shape: for what is applied, and for patches. Repeated keys are told in the
/// warnings; the last one counts.
pub fn parse(body: &[u8], is_yaml: bool) -> Result<Decoded, String> {
    decode::parse(body, is_yaml)
}
