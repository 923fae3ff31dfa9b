//! From what was sent to what is kept: types are checked in the order of the document, the first mistake is told in Go's words.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use base64::Engine as _;
use serde_json::{Map, Value};

use super::document::{self, Document};
use super::{
    Alternative, Decoded, Empty, FieldValidation, Object, Scalar, Schema, Shape, built_in, go, quantity, time, yaml,
};
use crate::error::{ApiError, FieldError};

/// Strictness has its limits: after so many complaints the real decoder counts no more.
const MOST_COMPLAINTS: usize = 100;

pub(super) fn parse(body: &[u8], is_yaml: bool) -> Result<Decoded, String> {
    let document = if is_yaml { yaml::parse(body)? } else { Document::parse(body)? };
    let mut repeated = Vec::new();
    let value = document::plain(document, &mut String::new(), &mut repeated);
    Ok(Decoded { value, warnings: repeated })
}

pub(super) fn decode(
    schema: &Schema,
    kind: &str,
    api_version: &str,
    body: &[u8],
    is_yaml: bool,
    mode: FieldValidation,
) -> Result<Decoded, ApiError> {
    let unrecognized = |why: String| {
        let start = summary(body);
        ApiError::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({start})"))
    };
    let document = if is_yaml {
        yaml::parse(body).map_err(&unrecognized)?
    } else {
        Document::parse(body)
            .map_err(|error| unrecognized(format!("couldn't get version/kind; json parse error: {error}")))?
    };
    let said = type_meta(&document)
        .map_err(|error| unrecognized(format!("couldn't get version/kind; json parse error: {error}")))?;
    if said.api_version.matches('/').count() > 1 {
        return Err(unrecognized(format!("unexpected GroupVersion string: {}", said.api_version)));
    }
    let is_custom = matches!(&schema.shape, Shape::Object(object) if object.custom);
    if is_custom {
        if said.kind.is_empty() {
            let text = String::from_utf8_lossy(body);
            return Err(unrecognized(format!("Object 'Kind' is missing in '{text}'")));
        }
    } else {
        said.belongs_to(kind, api_version)?;
    }
    let handled = |why: &str| {
        let said_kind = if said.kind.is_empty() { kind } else { &said.kind };
        let said_version = if said.api_version.is_empty() { api_version } else { &said.api_version };
        let version = said_version.rsplit('/').next().unwrap_or(said_version);
        ApiError::bad_request(format!("{said_kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
    };
    let typing = Typing::default();
    let (value, complaints) = typing.whole(document, schema).map_err(|why| handled(&why))?;
    if said.differs_from(api_version) || (is_custom && said.api_version != api_version) {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({api_version})",
            said.api_version
        )));
    }
    let mut value = value;
    if let Value::Object(object) = &mut value {
        object.insert("apiVersion".to_owned(), Value::from(api_version));
        object.insert("kind".to_owned(), Value::from(kind));
    }
    match mode {
        FieldValidation::Strict if !complaints.is_empty() => {
            Err(handled(&format!("strict decoding error: {}", complaints.join(", "))))
        }
        FieldValidation::Warn => Ok(Decoded { value, warnings: complaints }),
        _ => Ok(Decoded { value, warnings: Vec::new() }),
    }
}

pub(super) fn after_patch(schema: &Schema, value: Value, mode: FieldValidation) -> Result<Decoded, ApiError> {
    // The refusal shows the whole object, so that it is kept until all is well. Nothing else needs it.
    let document = Document::from(value.clone());
    let refused = |why: &str| ApiError::invalid("", "", "", &[FieldError::invalid("patch", value.to_string(), why)]);
    let (conforming, complaints) = Typing::default().whole(document, schema).map_err(|why| refused(&why))?;
    match mode {
        FieldValidation::Strict if !complaints.is_empty() => {
            Err(refused(&format!("strict decoding error: {}", complaints.join(", "))))
        }
        FieldValidation::Warn => Ok(Decoded { value: conforming, warnings: complaints }),
        _ => Ok(Decoded { value: conforming, warnings: Vec::new() }),
    }
}

/// How the beginning of a body that nobody understood is shown.
fn summary(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    let start = body.get(..SHOWN).unwrap_or(body);
    let more = if body.len() > SHOWN { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => {
            let mut shown = String::new();
            for byte in start {
                let _infallible = write!(shown, "{byte:02x}");
            }
            shown + more
        }
    }
}

/// What an object says it is. Empty where it says nothing.
struct Said {
    kind: String,
    api_version: String,
}

const TYPE_META_STRUCT: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

fn type_meta(document: &Document<'_>) -> Result<Said, String> {
    let mut said = Said { kind: String::new(), api_version: String::new() };
    let fields = match document {
        Document::Object(fields) => fields,
        Document::Null => return Ok(said),
        other => {
            return Err(format!("json: cannot unmarshal {} into Go value of type {TYPE_META_STRUCT}", other.what()));
        }
    };
    for (key, value) in fields {
        let target = match key.as_ref() {
            "kind" => &mut said.kind,
            "apiVersion" => &mut said.api_version,
            _ => continue,
        };
        match value {
            Document::String(text) => text.as_ref().clone_into(target),
            Document::Null => {}
            other => {
                let what = other.what();
                return Err(format!("json: cannot unmarshal {what} into Go struct field .{key} of type string"));
            }
        }
    }
    Ok(said)
}

impl Said {
    fn differs_from(&self, api_version: &str) -> bool {
        !self.api_version.is_empty() && self.api_version != api_version
    }

    /// Whether the built-in decoder could make a `kind` of it.
    fn belongs_to(&self, kind: &str, api_version: &str) -> Result<(), ApiError> {
        let said_kind = if self.kind.is_empty() { kind } else { &self.kind };
        let said_version = if self.api_version.is_empty() { api_version } else { &self.api_version };
        if said_kind == kind && said_version == api_version {
            return Ok(());
        }
        let version = said_version.rsplit('/').next().unwrap_or(said_version);
        let (_, group) = split(said_version);
        let registered = |kind: &str| {
            let item = kind.strip_suffix("List").filter(|item| !item.is_empty());
            built_in::name_of(said_version, kind).is_some()
                || item.is_some_and(|item| built_in::name_of(said_version, item).is_some())
        };
        let same_extension = (group == "apiextensions.k8s.io") == api_version.starts_with("apiextensions.k8s.io/");
        let why = if said_kind == kind && (split(api_version).1 == group || kind == "Event") && group_serves(group) {
            // Another version, or the other of two groups that share a kind: told later.
            return Ok(());
        } else if registered(said_kind) && same_extension {
            let internal = internal_package(kind, api_version);
            format!("converting (v1.{said_kind}) to ({internal}.{kind}): unknown conversion")
        } else {
            format!(
                "no kind \"{said_kind}\" is registered for version \"{said_version}\" in scheme \"pkg/runtime/scheme.go:111\""
            )
        };
        Err(ApiError::bad_request(format!("{said_kind} in version \"{version}\" cannot be handled as a {kind}: {why}")))
    }
}

/// Groups of which the real server knows more versions than the one we serve.
fn group_serves(group: &str) -> bool {
    !group.is_empty()
}

/// The version and the group of an apiVersion.
fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').map_or((api_version, ""), |(group, version)| (version, group))
}

/// The Go package of a kind's internal type.
fn internal_package<'a>(kind: &str, api_version: &'a str) -> &'a str {
    match split(api_version).1 {
        "" => "core",
        "events.k8s.io" if kind == "Event" => "core",
        group => group.split('.').next().unwrap_or(group),
    }
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
                other => self.wrong(other.what(), &schema.go_type),
            },
            Shape::Map(map) => match document {
                Document::Object(fields) => Some(self.map(fields, map.values.get())),
                other => self.wrong(other.what(), &schema.go_type),
            },
            Shape::List(list) => match document {
                Document::List(items) => Some(self.list(items, list.item.get())),
                other => self.wrong(other.what(), &schema.go_type),
            },
            Shape::Scalar(scalar) => self.scalar(document, *scalar, &schema.go_type),
            Shape::Either(link, alternative) => self.either(document, link.get(), *alternative),
            Shape::Any => self.any(document),
        }
    }

    fn object(&mut self, fields: Vec<(std::borrow::Cow<'_, str>, Document<'_>)>, shape: &'a Object) -> Value {
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

    fn map(&mut self, fields: Vec<(std::borrow::Cow<'_, str>, Document<'_>)>, values: &'a Schema) -> Value {
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

    fn wrong(&mut self, what: &str, go_type: &str) -> Option<Value> {
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

fn zero(schema: &Schema) -> Value {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn decoded(api_version: &str, kind: &str, body: &str, mode: FieldValidation) -> Result<Decoded, String> {
        let schema = Schema::built_in(api_version, kind).unwrap();
        decode(&schema, kind, api_version, body.as_bytes(), false, mode).map_err(|error| {
            assert_eq!((error.code, error.reason), (400, "BadRequest"));
            error.message
        })
    }

    /// What the real server said to each of these.
    #[test]
    fn mistakes_are_told_in_the_words_of_the_real_server() {
        const UNRECOGNIZED: &str = "the object provided is unrecognized (must be of type Pod): ";
        const META: &str = "couldn't get version/kind; json parse error: ";
        const HANDLED: &str = "Pod in version \"v1\" cannot be handled as a Pod: ";
        const FIELD: &str = "into Go struct field ";
        for (body, before, words) in [
            ("", UNRECOGNIZED, format!("{META}unexpected end of JSON input (<empty>)")),
            ("{", UNRECOGNIZED, format!("{META}unexpected end of JSON input ({{)")),
            (
                "[]",
                UNRECOGNIZED,
                format!("{META}json: cannot unmarshal array into Go value of type {TYPE_META_STRUCT} (5b5d)"),
            ),
            (
                r#"{"kind":1}"#,
                UNRECOGNIZED,
                format!("{META}json: cannot unmarshal number {FIELD}.kind of type string ({{\"kind\":1}})"),
            ),
            (
                r#"{"kind":"Pod","apiVersion":"a/b/c"}"#,
                UNRECOGNIZED,
                "unexpected GroupVersion string: a/b/c ({\"kind\":\"Pod\",\"apiVersion\":\"a/ ...)".into(),
            ),
            (r#"{"spec":[]}"#, HANDLED, format!("json: cannot unmarshal array {FIELD}Pod.spec of type v1.PodSpec")),
            (
                r#"{"spec":1,"metadata":2}"#,
                HANDLED,
                format!("json: cannot unmarshal number {FIELD}Pod.spec of type v1.PodSpec"),
            ),
            (
                r#"{"metadata":{"labels":{"a":1}}}"#,
                HANDLED,
                format!("json: cannot unmarshal number {FIELD}ObjectMeta.metadata.labels of type string"),
            ),
            (
                r#"{"spec":{"containers":{}}}"#,
                HANDLED,
                format!("json: cannot unmarshal object {FIELD}PodSpec.spec.containers of type []v1.Container"),
            ),
            (
                r#"{"spec":{"containers":[1]}}"#,
                HANDLED,
                format!("json: cannot unmarshal number {FIELD}PodSpec.spec.containers of type v1.Container"),
            ),
            (
                r#"{"spec":{"containers":[{"ports":[{"protocol":1}]}]}}"#,
                HANDLED,
                format!(
                    "json: cannot unmarshal number {FIELD}ContainerPort.spec.containers.ports.protocol of type v1.Protocol"
                ),
            ),
            (
                r#"{"spec":{"containers":[{"ports":[{"containerPort":1.5}]}]}}"#,
                HANDLED,
                format!(
                    "json: cannot unmarshal number 1.5 {FIELD}ContainerPort.spec.containers.ports.containerPort of type int32"
                ),
            ),
            (
                r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":{}}}}]}}"#,
                HANDLED,
                quantity::WRONG_FORMAT.into(),
            ),
            (
                r#"{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":true}}}]}}"#,
                HANDLED,
                format!(
                    "json: cannot unmarshal bool {FIELD}HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32"
                ),
            ),
            (
                r#"{"spec":{"volumes":[{"configMap":{"name":5}}]}}"#,
                HANDLED,
                format!(
                    "json: cannot unmarshal number {FIELD}ConfigMapVolumeSource.spec.volumes.VolumeSource.configMap.LocalObjectReference.name of type string"
                ),
            ),
            (
                r#"{"spec":{"priority":3000000000}}"#,
                HANDLED,
                format!("json: cannot unmarshal number 3000000000 {FIELD}PodSpec.spec.priority of type int32"),
            ),
            (
                r#"{"metadata":{"creationTimestamp":"x"}}"#,
                HANDLED,
                r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#.into(),
            ),
            (
                r#"{"metadata":{"creationTimestamp":5}}"#,
                HANDLED,
                format!("json: cannot unmarshal number {FIELD}ObjectMeta.metadata.creationTimestamp of type string"),
            ),
            (
                r#"{"metadata":{"ownerReferences":[{"uid":5}]}}"#,
                HANDLED,
                format!(
                    "json: cannot unmarshal number {FIELD}OwnerReference.metadata.ownerReferences.uid of type types.UID"
                ),
            ),
            (
                r#"{"kind":"Foo","apiVersion":"v1"}"#,
                "Foo in version \"v1\" cannot be handled as a Pod: ",
                r#"no kind "Foo" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111""#.into(),
            ),
            (
                r#"{"kind":"Pod","apiVersion":"v2"}"#,
                "Pod in version \"v2\" cannot be handled as a Pod: ",
                r#"no kind "Pod" is registered for version "v2" in scheme "pkg/runtime/scheme.go:111""#.into(),
            ),
            (
                r#"{"kind":"Deployment","apiVersion":"apps/v1"}"#,
                "Deployment in version \"v1\" cannot be handled as a Pod: ",
                "converting (v1.Deployment) to (core.Pod): unknown conversion".into(),
            ),
            (
                r#"{"kind":"PodList","apiVersion":"v1"}"#,
                "PodList in version \"v1\" cannot be handled as a Pod: ",
                "converting (v1.PodList) to (core.Pod): unknown conversion".into(),
            ),
        ] {
            let said = decoded("v1", "Pod", body, FieldValidation::Warn).unwrap_err();
            assert_eq!(said, format!("{before}{words}"), "{body}");
        }
        let said = decoded(
            "apps/v1",
            "Deployment",
            r#"{"kind":"Deployment","apiVersion":"apps/v1beta1"}"#,
            FieldValidation::Warn,
        );
        assert_eq!(
            said.unwrap_err(),
            "the API version in the data (apps/v1beta1) does not match the expected API version (apps/v1)"
        );
        for (data, at) in [("$$$", 0), ("YQ", 0), ("YWJjZA", 4), ("YWJj!", 4)] {
            let body = format!(r#"{{"data":{{"a":"{data}"}}}}"#);
            let said = decoded("v1", "Secret", &body, FieldValidation::Warn).unwrap_err();
            assert!(said.ends_with(&format!("illegal base64 data at input byte {at}")), "{said}");
        }
    }

    const SLOPPY: &str = r#"{"kind":"Pod","apiVersion":"v1","Spec":{},"spec":{"containers":[
        {"name":"x","image":"x","foo":1,"foo":2,"name":"y"}],"nodename":"x","nodeSelector":{"a":"1","a":"2"}},
        "metadata":{"name":"x","zzz":1},"foo.bar":1,"a\"b":1}"#;

    #[test]
    fn unknown_and_repeated_fields_are_told_or_refused_as_asked() {
        let complaints = [
            r#"unknown field "Spec""#,
            r#"unknown field "spec.containers[0].foo""#,
            r#"duplicate field "spec.containers[0].name""#,
            r#"unknown field "spec.nodename""#,
            r#"duplicate field "spec.nodeSelector.a""#,
            r#"unknown field "metadata.zzz""#,
            r#"unknown field "foo.bar""#,
            r#"unknown field "a\"b""#,
        ];
        let warned = decoded("v1", "Pod", SLOPPY, FieldValidation::Warn).unwrap();
        assert_eq!(warned.warnings, complaints);
        assert_eq!(warned.value["spec"]["containers"][0]["name"], "y");
        assert_eq!(warned.value["spec"]["nodeSelector"]["a"], "2");
        let refused = decoded("v1", "Pod", SLOPPY, FieldValidation::Strict).unwrap_err();
        let listed = complaints.join(", ");
        assert_eq!(
            refused,
            format!("Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: {listed}")
        );
        assert!(decoded("v1", "Pod", SLOPPY, FieldValidation::Ignore).unwrap().warnings.is_empty());
    }

    #[test]
    fn empty_fields_are_left_out_or_written_as_go_does() {
        let meta = json!({"name": "x"});
        for (api_version, kind, sent, kept) in [
            (
                "v1",
                "ConfigMap",
                json!({"metadata": {"name": "x", "labels": {"a": null}, "annotations": {}, "finalizers": [], "generateName": ""},
                    "data": {"a": null, "b": ""}, "binaryData": {}, "immutable": false}),
                json!({"metadata": {"name": "x", "labels": {"a": ""}}, "data": {"a": "", "b": ""}, "immutable": false}),
            ),
            (
                "v1",
                "Secret",
                json!({"metadata": meta, "data": {"a": null, "b": "", "c": "YQ=="}, "type": ""}),
                json!({"metadata": meta, "data": {"a": "", "b": "", "c": "YQ=="}}),
            ),
            (
                "rbac.authorization.k8s.io/v1",
                "ClusterRole",
                json!({"metadata": meta, "rules": []}),
                json!({"metadata": meta, "rules": null}),
            ),
            (
                "apps/v1",
                "Deployment",
                json!({"metadata": meta, "spec": {"replicas": 0, "paused": false, "minReadySeconds": 0}}),
                json!({"metadata": meta, "status": {}, "spec": {"replicas": 0, "selector": null, "strategy": {},
                    "template": {"metadata": {}, "spec": {"containers": null}}}}),
            ),
            (
                "v1",
                "Pod",
                json!({"metadata": meta, "spec": {"containers": [{"name": "a", "ports": [{"containerPort": 1}],
                    "resources": {"limits": {"cpu": 0.1, "memory": "1024Mi"}}}], "securityContext": {}}}),
                json!({"metadata": meta, "status": {}, "spec": {"containers": [{"name": "a", "ports": [{"containerPort": 1}],
                    "resources": {"limits": {"cpu": "100m", "memory": "1Gi"}}}], "securityContext": {}}}),
            ),
        ] {
            let value = decoded(api_version, kind, &sent.to_string(), FieldValidation::Strict).unwrap().value;
            let mut expected = kept.clone();
            expected["apiVersion"] = json!(api_version);
            expected["kind"] = json!(kind);
            assert_eq!(value, expected);
            let schema = Schema::built_in(api_version, kind).unwrap();
            let again = after_patch(&schema, value.clone(), FieldValidation::Strict).unwrap().value;
            assert_eq!(again, value, "what conforms stays as it is");
        }
    }

    #[test]
    fn a_condition_without_a_time_has_null() {
        let body = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}).to_string();
        let pod = decoded("v1", "Pod", &body, FieldValidation::Strict).unwrap().value;
        assert_eq!(
            pod["status"]["conditions"][0],
            json!({"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": null})
        );
    }

    #[test]
    fn a_custom_resource_has_typed_metadata_and_complaints_about_repetition_only() {
        let schema =
            Schema::structural(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "m": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}}}}));
        let decode = |body: &str, mode| {
            decode(&schema, "Shape", "shapes.io/v1", body.as_bytes(), false, mode).map_err(|error| error.message)
        };
        let head = r#""kind":"Shape","apiVersion":"shapes.io/v1""#;
        for (body, words) in [
            (
                r#"{"kind":"Shape"}"#.to_owned(),
                "the API version in the data () does not match the expected API version (shapes.io/v1)",
            ),
            (
                r#"{"apiVersion":"shapes.io/v1"}"#.to_owned(),
                r#"the object provided is unrecognized (must be of type Shape): Object 'Kind' is missing in '{"apiVersion":"shapes.io/v1"}' ({"apiVersion":"shapes.io/v1"})"#,
            ),
            (
                format!(r#"{{{head},"metadata":5}}"#),
                r#"Shape in version "v1" cannot be handled as a Shape: json: cannot unmarshal number into Go value of type v1.ObjectMeta"#,
            ),
            (
                format!(r#"{{{head},"metadata":{{"labels":{{"a":5}}}}}}"#),
                r#"Shape in version "v1" cannot be handled as a Shape: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"#,
            ),
            (
                format!(r#"{{{head},"spec":{{"x":1e400}}}}"#),
                r#"Shape in version "v1" cannot be handled as a Shape: json: cannot unmarshal number 1e400 into Go value of type float64"#,
            ),
            (
                format!(r#"{{{head},"metadata":{{"ownerReferences":[{{"foo":1}}]}}}}"#),
                r#"Shape in version "v1" cannot be handled as a Shape: strict decoding error: unknown field "metadata.ownerReferences[0].foo""#,
            ),
        ] {
            assert_eq!(decode(&body, FieldValidation::Strict).unwrap_err(), words);
        }
        let body = format!(
            r#"{{{head},"metadata":{{"name":"a","labels":null,"annotations":{{}}}},"spec":{{"a":1.0,"e":"","l":[],"m":[{{"k":"a","k":"b"}}],"f":{{"x":1,"x":2}}}}}}"#
        );
        let decoded = decode(&body, FieldValidation::Warn).unwrap();
        assert_eq!(decoded.warnings, [r#"duplicate field "spec.m[0].k""#, r#"duplicate field "spec.f.x""#]);
        assert_eq!(
            decoded.value,
            json!({"kind": "Shape", "apiVersion": "shapes.io/v1", "metadata": {"name": "a"},
            "spec": {"a": 1, "e": "", "l": [], "m": [{"k": "b"}], "f": {"x": 2}}})
        );
    }
}
