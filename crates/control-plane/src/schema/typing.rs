//! From what was sent to what is kept: types are checked in the order of the document, the first mistake is told in Go's words.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write as _;

use base64::Engine as _;
use serde_json::{Map, Value};

use super::document::{self, Document};
use super::{Alternative, Empty, Object, Scalar, Schema, Shape, go, quantity, time};

/// Strictness has its limits: after so many complaints the real decoder counts no more.
const MOST_COMPLAINTS: usize = 100;

/// A tree that keeps to its shape, and what a strict reader would complain about; or the first mistake.
pub(super) fn typed(document: Document<'_>, schema: &Schema, dialect: Dialect) -> Result<(Value, Vec<String>), String> {
    Typing { dialect, ..Typing::default() }.whole(document, schema)
}

/// Whose words are used for mistakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Dialect {
    /// The JSON decoder's.
    #[default]
    Decoder,
    /// Those of the converter that strategic merge patches go through.
    Converter,
}

/// Where we are in the document.
enum Step<'a> {
    /// A field of a Go struct, with the struct's name and the embedded struct it is in.
    Field {
        owner: &'a str,
        part: &'a str,
        name: &'a str,
    },
    Key(String),
    Index(usize),
}

#[derive(Default)]
struct Typing<'a> {
    dialect: Dialect,
    path: Vec<Step<'a>>,
    /// The first mistake. Decoding goes on, as the real one does, but for nothing.
    mistake: Option<String>,
    complaints: Vec<String>,
    /// Inside types that decode themselves, nobody is strict.
    lenient: usize,
}

impl<'a> Typing<'a> {
    fn whole(mut self, document: Document<'_>, schema: &'a Schema) -> Result<(Value, Vec<String>), String> {
        let document = if matches!(document, Document::Null) { Document::Object(Vec::new()) } else { document };
        let value = self.value(document, schema).unwrap_or(Value::Null);
        match self.mistake {
            Some(mistake) => Err(mistake),
            None => Ok((value, self.complaints)),
        }
    }

    /// What is kept of a value, `None` for null and for mistakes.
    fn value(&mut self, document: Document<'_>, schema: &'a Schema) -> Option<Value> {
        if matches!(document, Document::Null) {
            return None;
        }
        match &schema.shape {
            Shape::Object(object) if object.custom => self.custom(document, object, schema),
            Shape::Object(object) => match document {
                Document::Object(fields) => Some(self.object(fields, object)),
                other => self.unsuitable(&other, "cannot restore struct from: ", &schema.go_type),
            },
            Shape::Map(map) => match document {
                Document::Object(fields) => Some(self.map(fields, map.values.get())),
                other => self.unsuitable(&other, "cannot restore map from ", &schema.go_type),
            },
            Shape::List(list) => match document {
                Document::List(items) => Some(self.list(items, list.item.get())),
                other => self.unsuitable(&other, "cannot restore slice from ", &schema.go_type),
            },
            Shape::Scalar(scalar) => self.scalar(document, *scalar, &schema.go_type),
            Shape::Either(link, alternative) => self.either(document, link.get(), *alternative),
            Shape::Any { .. } => self.any(document),
        }
    }

    fn object(&mut self, fields: Vec<(Cow<'_, str>, Document<'_>)>, shape: &'a Object) -> Value {
        let mut kept = Map::new();
        let mut seen = Seen::new(fields.len());
        for (key, document) in fields {
            let Some((name, field)) = shape.fields.get_key_value(key.as_ref()) else {
                if shape.preserve_unknown {
                    if let Some(value) = self.any(document) {
                        kept.insert(key.into_owned(), value);
                    }
                } else {
                    self.complain("unknown", &key);
                }
                continue;
            };
            if !seen.first(name) {
                self.complain("duplicate", &key);
                kept.remove(name);
            }
            let schema = field.link.get();
            self.path.push(Step::Field { owner: &shape.name, part: &field.part, name });
            let value = self.value(document, schema);
            self.path.pop();
            if let Some(value) = value
                && !is_left_out(&value, field.empty)
            {
                kept.insert(key.into_owned(), value);
            }
        }
        fill(&mut kept, shape);
        Value::Object(kept)
    }

    fn map(&mut self, fields: Vec<(Cow<'_, str>, Document<'_>)>, values: &'a Schema) -> Value {
        let mut kept = Map::new();
        for (key, document) in fields {
            if kept.contains_key(key.as_ref()) {
                self.complain("duplicate", &key);
            }
            self.path.push(Step::Key(key.clone().into_owned()));
            let value = self.value(document, values).unwrap_or_else(|| zero_item(values));
            self.path.pop();
            kept.insert(key.into_owned(), value);
        }
        Value::Object(kept)
    }

    fn list(&mut self, items: Vec<Document<'_>>, item: &'a Schema) -> Value {
        let kept = items.into_iter().enumerate().map(|(index, document)| {
            self.path.push(Step::Index(index));
            let value = self.value(document, item).unwrap_or_else(|| zero_item(item));
            self.path.pop();
            value
        });
        Value::Array(kept.collect())
    }

    fn scalar(&mut self, document: Document<'_>, scalar: Scalar, go_type: &str) -> Option<Value> {
        if self.dialect == Dialect::Converter
            && let Some(mistake) = inconvertible(&document, scalar, go_type)
        {
            return self.mistaken(mistake);
        }
        match (scalar, document) {
            (Scalar::Int32, Document::Number(text)) => match text.parse::<i32>() {
                Ok(number) => Some(Value::from(number)),
                Err(_) => self.wrong(&format!("number {text}"), go_type),
            },
            (Scalar::Int64, Document::Number(text)) => match text.parse::<i64>() {
                Ok(number) => Some(Value::from(number)),
                Err(_) => self.wrong(&format!("number {text}"), go_type),
            },
            (Scalar::Number, Document::Number(text)) => match document::number(&text) {
                Some(number) => Some(Value::Number(number)),
                None => self.wrong(&format!("number {text}"), go_type),
            },
            (Scalar::String, Document::String(text)) => Some(Value::String(text.into_owned())),
            (Scalar::Bool, Document::Bool(yes)) => Some(Value::Bool(yes)),
            (Scalar::Bytes, Document::String(text)) => match bytes(&text) {
                Ok(text) => Some(Value::String(text)),
                Err(at) => self.mistaken(format!("illegal base64 data at input byte {at}")),
            },
            (Scalar::IntOrString, Document::String(text)) => Some(Value::String(text.into_owned())),
            (Scalar::IntOrString, Document::Number(text)) => match text.parse::<i32>() {
                Ok(number) => Some(Value::from(number)),
                Err(_) => self.wrong(&format!("number {text}"), "int32"),
            },
            (Scalar::IntOrString, other) => self.wrong(other.what(), "int32"),
            (Scalar::Quantity, Document::String(text) | Document::Number(text)) => {
                let canonical = quantity::canonical(&text).map(Value::String);
                canonical.or_else(|why| self.mistaken(why.to_owned()).ok_or(())).ok()
            }
            (Scalar::Quantity, _) => self.mistaken(quantity::WRONG_FORMAT.to_owned()),
            (Scalar::Time, Document::String(text)) => {
                time::seconds(&text).map(Value::String).or_else(|why| self.mistaken(why).ok_or(())).ok()
            }
            (Scalar::MicroTime, Document::String(text)) => {
                time::micros(&text).map(Value::String).or_else(|why| self.mistaken(why).ok_or(())).ok()
            }
            (Scalar::Time | Scalar::MicroTime, other) => self.wrong(other.what(), "string"),
            (_, other) => self.wrong(other.what(), go_type),
        }
    }

    fn either(&mut self, document: Document<'_>, object: &'a Schema, alternative: Alternative) -> Option<Value> {
        self.lenient += 1;
        let value = match (alternative, document) {
            (_, document @ Document::Object(_)) => self.value(document, object),
            (Alternative::Bool, Document::Bool(yes)) => Some(Value::Bool(yes)),
            (Alternative::Bool, _) => self.mistaken("boolean or JSON schema expected".to_owned()),
            (Alternative::Objects, Document::List(items)) => Some(self.list(items, object)),
            (Alternative::Strings, Document::List(items)) => {
                let texts = items.into_iter().map(|item| match item {
                    Document::String(text) => Some(Value::String(text.into_owned())),
                    other => self.wrong(other.what(), "string"),
                });
                texts.collect::<Option<Vec<_>>>().map(Value::Array)
            }
            _ => None,
        };
        self.lenient -= 1;
        value
    }

    /// Whatever was sent; a key that is there twice is complained about all the same.
    fn any(&mut self, document: Document<'_>) -> Option<Value> {
        let mut repeated = Vec::new();
        if let Some(number) = too_large(&document) {
            return self.wrong_value(&format!("number {number}"), "float64");
        }
        let value = document::plain(document, &mut String::new(), &mut repeated);
        Some(value)
    }

    /// A custom resource's object: its schema is for others to judge, but metadata is everybody's.
    fn custom(&mut self, document: Document<'_>, shape: &'a Object, schema: &'a Schema) -> Option<Value> {
        let Document::Object(fields) = document else {
            return self.untyped(document, schema);
        };
        let mut kept = Map::new();
        for (key, document) in fields {
            if kept.contains_key(key.as_ref()) {
                self.complain("duplicate", &key);
            }
            let field = shape.fields.get_key_value(key.as_ref());
            self.path.push(Step::Key(key.clone().into_owned()));
            let value = match field {
                Some((name, field)) if name == "metadata" && is_meta(field.link.get()) => {
                    // Read by itself: mistakes are told without the way to it.
                    self.value(document, field.link.get())
                }
                Some((_, field)) => Some(self.untyped(document, field.link.get()).unwrap_or(Value::Null)),
                None => Some(self.untyped_any(document)),
            };
            self.path.pop();
            if let Some(value) = value {
                kept.insert(key.into_owned(), value);
            }
        }
        Some(Value::Object(kept))
    }

    fn untyped(&mut self, document: Document<'_>, schema: &'a Schema) -> Option<Value> {
        match (&schema.shape, document) {
            (_, Document::Null) => None,
            (Shape::Object(object), document @ Document::Object(_)) => self.custom(document, object, schema),
            (Shape::Map(map), Document::Object(fields)) => {
                let mut kept = Map::new();
                for (key, document) in fields {
                    if kept.contains_key(key.as_ref()) {
                        self.complain("duplicate", &key);
                    }
                    self.path.push(Step::Key(key.clone().into_owned()));
                    let value = self.untyped(document, map.values.get()).unwrap_or(Value::Null);
                    self.path.pop();
                    kept.insert(key.into_owned(), value);
                }
                Some(Value::Object(kept))
            }
            (Shape::List(list), Document::List(items)) => {
                let kept = items.into_iter().enumerate().map(|(index, document)| {
                    self.path.push(Step::Index(index));
                    let value = self.untyped(document, list.item.get()).unwrap_or(Value::Null);
                    self.path.pop();
                    value
                });
                Some(Value::Array(kept.collect()))
            }
            (_, document) => Some(self.untyped_any(document)),
        }
    }

    fn untyped_any(&mut self, document: Document<'_>) -> Value {
        if let Some(number) = too_large(&document) {
            return self.wrong_value(&format!("number {number}"), "float64").unwrap_or(Value::Null);
        }
        let mut path = self.strict_path();
        let mut repeated = Vec::new();
        let value = document::plain(document, &mut path, &mut repeated);
        for path in repeated {
            self.complain_of(format!("duplicate field {}", go::quote(&path)));
        }
        value
    }

    /// Something else where an object, a map or a list should be.
    fn unsuitable(&mut self, found: &Document<'_>, before: &str, go_type: &str) -> Option<Value> {
        match self.dialect {
            Dialect::Decoder => self.wrong(found.what(), go_type),
            Dialect::Converter => self.mistaken(format!("{before}{}", kind_of(found))),
        }
    }

    fn wrong(&mut self, what: &str, go_type: &str) -> Option<Value> {
        if self.dialect == Dialect::Converter {
            return self.wrong_value(what, go_type);
        }
        let names: Vec<&str> = self
            .path
            .iter()
            .filter_map(|step| match step {
                Step::Field { part, name, .. } => Some([*part, *name]),
                _ => None,
            })
            .flatten()
            .filter(|name| !name.is_empty())
            .collect();
        let owner = self.path.iter().rev().find_map(|step| match step {
            Step::Field { owner, .. } => Some(*owner),
            _ => None,
        });
        match owner {
            None => self.wrong_value(what, go_type),
            Some(owner) => {
                let path = names.join(".");
                self.mistaken(format!(
                    "json: cannot unmarshal {what} into Go struct field {owner}.{path} of type {go_type}"
                ))
            }
        }
    }

    fn wrong_value(&mut self, what: &str, go_type: &str) -> Option<Value> {
        self.mistaken(format!("json: cannot unmarshal {what} into Go value of type {go_type}"))
    }

    fn mistaken(&mut self, mistake: String) -> Option<Value> {
        self.mistake.get_or_insert(mistake);
        None
    }

    fn complain(&mut self, what: &str, key: &str) {
        if self.lenient == 0 && self.complaints.len() < MOST_COMPLAINTS {
            let mut path = self.strict_path();
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(key);
            self.complain_of(format!("{what} field {}", go::quote(&path)));
        }
    }

    fn complain_of(&mut self, complaint: String) {
        if self.complaints.len() < MOST_COMPLAINTS && !self.complaints.contains(&complaint) {
            self.complaints.push(complaint);
        }
    }

    fn strict_path(&self) -> String {
        let mut path = String::new();
        for step in &self.path {
            let name = match step {
                Step::Index(index) => {
                    let _infallible = write!(path, "[{index}]");
                    continue;
                }
                Step::Field { name, .. } => *name,
                Step::Key(key) => key,
            };
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(name);
        }
        path
    }
}

/// The Go kind that the converter finds.
fn kind_of(document: &Document<'_>) -> &'static str {
    match document {
        Document::Null => "invalid",
        Document::Bool(_) => "bool",
        Document::Number(text) if text.parse::<i64>().is_err() => "float64",
        Document::Number(_) => "int64",
        Document::String(_) => "string",
        Document::List(_) => "slice",
        Document::Object(_) => "map",
    }
}

/// What the converter says of a plain value of the wrong type. Types with a decoder of their own speak for themselves.
fn inconvertible(document: &Document<'_>, scalar: Scalar, go_type: &str) -> Option<String> {
    let (kind, fits) = match scalar {
        Scalar::String => ("string", matches!(document, Document::String(_))),
        Scalar::Bool => ("bool", matches!(document, Document::Bool(_))),
        Scalar::Int32 => ("int32", kind_of(document) == "int64"),
        Scalar::Int64 => ("int64", kind_of(document) == "int64"),
        Scalar::Number => ("float64", matches!(document, Document::Number(_))),
        _ => return None,
    };
    match (fits, kind_of(document), kind) {
        (true, ..) => None,
        // Go would convert between these, but this would lose something.
        (_, "int64", "string") | (_, "float64", "int32" | "int64") => {
            Some(format!("cannot convert {} to {go_type}", kind_of(document)))
        }
        _ => Some(format!("unrecognized type: {kind}")),
    }
}

fn is_meta(schema: &Schema) -> bool {
    matches!(&schema.shape, Shape::Object(object) if object.name == "ObjectMeta")
}

/// Which keys of an object were there before. Few keys are compared one by one.
enum Seen<'a> {
    Few(Vec<&'a str>),
    Many(BTreeSet<&'a str>),
}

impl<'a> Seen<'a> {
    fn new(n_keys: usize) -> Self {
        if n_keys <= 16 { Self::Few(Vec::with_capacity(n_keys)) } else { Self::Many(BTreeSet::new()) }
    }

    fn first(&mut self, key: &'a str) -> bool {
        match self {
            Self::Few(keys) if keys.contains(&key) => false,
            Self::Few(keys) => {
                keys.push(key);
                true
            }
            Self::Many(keys) => keys.insert(key),
        }
    }
}

/// Whether Go leaves a field out that holds this.
fn is_left_out(value: &Value, empty: Empty) -> bool {
    let is_empty_collection = match value {
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    match empty {
        Empty::Kept | Empty::Zero => false,
        // What is written as null when absent is written so when it is an empty list, too.
        Empty::Null => is_empty_collection,
        Empty::LeftOut => match value {
            Value::Null => true,
            Value::Bool(yes) => !yes,
            Value::Number(number) => number.as_i64() == Some(0),
            Value::String(text) => text.is_empty(),
            Value::Array(_) => is_empty_collection,
            Value::Object(fields) => fields.is_empty(),
        },
    }
}

/// Writes the fields that Go writes even when nobody set them.
fn fill(kept: &mut Map<String, Value>, shape: &Object) {
    for (name, field) in &shape.fields {
        if matches!(field.empty, Empty::Zero | Empty::Null) && !kept.contains_key(name) {
            let value = match field.empty {
                Empty::Null => Value::Null,
                _ => zero(field.link.get()),
            };
            kept.insert(name.clone(), value);
        }
    }
}

pub(super) fn zero(schema: &Schema) -> Value {
    match &schema.shape {
        Shape::Scalar(scalar) => scalar.zero(),
        Shape::Object(object) => {
            let mut kept = Map::new();
            fill(&mut kept, object);
            Value::Object(kept)
        }
        _ => Value::Null,
    }
}

/// What stands for null in a list or a map.
fn zero_item(schema: &Schema) -> Value {
    match schema.shape {
        Shape::Scalar(Scalar::Bytes) => Value::from(""),
        _ => zero(schema),
    }
}

/// A number that no float holds.
fn too_large(document: &Document<'_>) -> Option<String> {
    match document {
        Document::Number(text) if document::number(text).is_none() => Some(text.clone().into_owned()),
        Document::List(items) => items.iter().find_map(too_large),
        Document::Object(fields) => fields.iter().find_map(|(_, field)| too_large(field)),
        _ => None,
    }
}

/// Base64 in its one form, or where it stops being base64.
fn bytes(text: &str) -> Result<String, usize> {
    let bare: String = text.chars().filter(|letter| !matches!(letter, '\n' | '\r')).collect();
    let engine = &base64::engine::general_purpose::STANDARD;
    match engine.decode(&bare) {
        Ok(bytes) => Ok(engine.encode(bytes)),
        Err(base64::DecodeError::InvalidByte(at, _)) => Err(at),
        // An end that comes too early is told by where its group of four began.
        Err(_) => Err(bare.len().saturating_sub(1) / 4 * 4),
    }
}
