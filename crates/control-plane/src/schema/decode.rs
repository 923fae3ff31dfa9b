//! From bytes to a tree: what the object says it is, whether that is what was asked for, and how a refusal is worded.

use std::fmt::Write as _;

use serde_json::Value;

use super::document::{self, Document};
use super::typing::{self, Dialect};
use super::{Decoded, FieldValidation, Schema, Shape, built_in, go, yaml};
use crate::error::{ApiError, FieldError};

pub(super) fn parse(body: &[u8], is_yaml: bool) -> Result<Decoded, String> {
    let document = if is_yaml { yaml::parse(body)? } else { Document::parse(body)? };
    let mut repeated = Vec::new();
    let value = document::plain(document, &mut String::new(), &mut repeated);
    let warnings = repeated.iter().map(|path| format!("duplicate field {}", go::quote(path))).collect();
    Ok(Decoded { value, warnings })
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
    let (value, complaints) = typing::typed(document, schema, Dialect::Decoder).map_err(|why| handled(&why))?;
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

/// Shows what was refused, and speaks in its words.
pub(super) enum Refused<'a> {
    /// The object as the patch left it.
    Object,
    /// The patch, through the converter.
    Patch(&'a str),
}

pub(super) fn after_patch(
    schema: &Schema,
    value: Value,
    refused: &Refused<'_>,
    before: &[String],
    mode: FieldValidation,
) -> Result<Decoded, ApiError> {
    let (shown, dialect) = match refused {
        Refused::Object => (None, Dialect::Decoder),
        Refused::Patch(shown) => (Some((*shown).to_owned()), Dialect::Converter),
    };
    // The refusal shows the whole object, which is gone by then: it is put into words while there is something to refuse.
    let attempt = typing::typed(Document::from(value.clone()), schema, dialect);
    let invalid = |why: &str| {
        let shown = shown.clone().unwrap_or_else(|| value.to_string());
        ApiError::invalid("", "", "", &[FieldError::invalid("patch", shown, why)])
    };
    let (conforming, complaints) = attempt.map_err(|why| invalid(&why))?;
    match mode {
        FieldValidation::Strict if !(before.is_empty() && complaints.is_empty()) => {
            let all: Vec<&str> = before.iter().chain(&complaints).map(String::as_str).collect();
            Err(invalid(&format!("strict decoding error: {}", all.join(", "))))
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

pub(super) const TYPE_META_STRUCT: &str =
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
        // Versions that the real server has types for begin so; it knows nothing of a v7.
        let may_be_known = ["v1", "v2"].iter().any(|known| version.starts_with(known));
        let is_same_kind = said_kind == kind && (split(api_version).1 == group || kind == "Event");
        let why = if is_same_kind && may_be_known && group_serves(group) {
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
