//! The versions of one kind: how an object that is kept in one of them is shown in another.
//!
//! ```text
//! kept ──prune, default (as written)──▶ convert ──prune (as asked)──▶ shown       reading
//! sent ──▶ convert ──prune, default (as kept)──▶ kept                             writing
//! ```
//!
//! With the strategy `None` only `apiVersion` changes. With `Webhook` a [`Converter`] is called, in this process: definitions name a
//! webhook, and nobody calls it over a network here. What it answers is checked as the real server checks a webhook's answer.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::CustomVersion;
use super::scale::go_type;
use crate::builtin;
use crate::error::{ApiError, ApiResult};
use crate::schema::Schema;
use crate::store::Stored;

/// Stands in for the webhooks that definitions name.
#[derive(Clone)]
pub struct Converter(Arc<Convert>);

type Convert = dyn Fn(&Value, &str) -> Result<Value, String> + Send + Sync;

impl Converter {
    /// - Flow: the function gets an object as it is, and the `apiVersion` in which it is wanted.
    /// - Assumptions: it answers at once and always the same: it is called under the server's lock, and by every watcher of a
    ///   version that is not kept.
    /// - Guarantees: whoever reads, lists or watches in the version that is kept does not cause a call. A write does not either, unless
    ///   the object's managed fields name another version: those are compared as they are there, as on the real server.
    /// - Caveats: of the metadata only labels and annotations may change. Other changes are undone, and another name, namespace,
    ///   uid or kind is an error. What comes out shall have no field that its version's schema does not know: it would be pruned, and
    ///   nobody would manage any field of the object after the next write through another version.
    #[must_use]
    pub fn new(convert: impl Fn(&Value, &str) -> Result<Value, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(convert))
    }
}

impl fmt::Debug for Converter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Converter")
    }
}

/// What the versions of one definition have in common.
#[derive(Debug)]
pub struct Versions {
    /// The `apiVersion` in which objects are written.
    kept_in: String,
    /// Every version of the definition by its `apiVersion`, served or not: objects may still be kept in one that is not.
    all: BTreeMap<String, (Arc<CustomVersion>, Arc<Schema>)>,
    calls_webhook: bool,
    converter: Option<Converter>,
    /// Objects written from this revision on are as this definition has them. Older ones may have another version, or lack defaults.
    since: u64,
    /// Names, schemas, places and selectable fields of the versions: while they stay, what is kept is as it should be.
    shape: Value,
}

impl Versions {
    pub(super) fn new(
        crd: &Value,
        compiled: &[(&Value, Arc<CustomVersion>, Arc<Schema>)],
        converter: Option<Converter>,
        since: u64,
    ) -> Self {
        let kept_in = compiled.iter().find(|(version, ..)| version["storage"] == true);
        let shape = compiled.iter().map(|(version, ..)| {
            let part = |field: &str| version[field].clone();
            Value::Array(vec![part("name"), part("storage"), part("schema"), part("selectableFields")])
        });
        Self {
            kept_in: kept_in.map(|(_, custom, _)| custom.api_version().to_owned()).unwrap_or_default(),
            calls_webhook: crd["spec"]["conversion"]["strategy"] == "Webhook",
            converter,
            since,
            shape: shape.collect(),
            all: compiled
                .iter()
                .map(|(_, custom, schema)| (custom.api_version().to_owned(), (Arc::clone(custom), Arc::clone(schema))))
                .collect(),
        }
    }

    /// Since when objects are written as these versions have it, once they follow others.
    pub(crate) fn follow(&mut self, before: &Self) {
        if self.shape == before.shape {
            self.since = before.since;
        }
    }

    /// The `apiVersion` in which objects are written.
    #[must_use]
    pub fn kept_in(&self) -> &str {
        &self.kept_in
    }

    #[must_use]
    pub fn of(&self, api_version: &str) -> Option<&Arc<CustomVersion>> {
        self.all.get(api_version).map(|(custom, _)| custom)
    }

    /// Whether the bytes of what is kept are what a reader of this version gets.
    #[must_use]
    pub(crate) fn is_plain(&self, stored: &Stored, asked: &CustomVersion) -> bool {
        stored.written >= self.since && asked.api_version() == self.kept_in
    }

    /// What is kept, as a reader of `asked` gets it.
    pub(crate) fn read(&self, stored: &Stored, asked: &CustomVersion) -> ApiResult<Value> {
        let mut object = stored.value();
        if stored.written < self.since
            && let Some(written) = self.of(api_version(&object))
        {
            written.coerce(&mut object);
            written.default(&mut object);
        }
        self.shown(object, asked)
    }

    /// What was just written, as a reader of `asked` would get it.
    pub(crate) fn shown(&self, kept: Value, asked: &CustomVersion) -> ApiResult<Value> {
        if api_version(&kept) == asked.api_version() {
            return Ok(kept);
        }
        let mut shown = self.convert(kept, asked.api_version())?;
        asked.coerce(&mut shown);
        Ok(shown)
    }

    /// What becomes of an object that is written.
    pub(crate) fn to_kept(&self, object: Value) -> ApiResult<Value> {
        if api_version(&object) == self.kept_in {
            return Ok(object);
        }
        let mut kept = self.convert(object, &self.kept_in)?;
        if let Some(custom) = self.of(&self.kept_in) {
            custom.coerce(&mut kept);
            // The real server fills these in when it reads.
            custom.default(&mut kept);
        }
        Ok(kept)
    }

    /// An object in another version, and the shape that it has there, as those compare it who manage fields.
    pub(crate) fn translated(&self, object: Value, to: &str) -> ApiResult<(Value, Arc<Schema>)> {
        let translated = self.convert(object, to)?;
        let (_, schema) = self.all.get(to).ok_or_else(|| no_version("to", to))?;
        Ok((translated, Arc::clone(schema)))
    }

    /// The object in another version. What is in it already comes back as it is.
    fn convert(&self, mut object: Value, to: &str) -> ApiResult<Value> {
        if !self.all.contains_key(to) {
            return Err(no_version("to", to));
        }
        let from = api_version(&object).to_owned();
        if !self.all.contains_key(&from) {
            return Err(no_version("from", &from));
        }
        if from == to {
            return Ok(object);
        }
        // What has neither metadata nor anything else stands for nothing yet.
        let is_empty = object.as_object().is_some_and(|fields| fields.len() <= 2);
        if !self.calls_webhook || is_empty {
            if let Some(fields) = object.as_object_mut() {
                fields.insert("apiVersion".to_owned(), to.into());
            }
            return Ok(object);
        }
        let kind = object["kind"].as_str().unwrap_or_default();
        let webhook = format!("conversion webhook for {from}, Kind={kind}");
        let converted = match &self.converter {
            Some(Converter(convert)) => convert(&object, to),
            None => Err("nothing converts here".to_owned()),
        };
        let converted = converted.map_err(|why| unconverted(format!("{webhook} failed: {why}")))?;
        checked(&object, converted, to).map_err(|why| unconverted(format!("{webhook} returned invalid {why}")))
    }
}

fn api_version(object: &Value) -> &str {
    object["apiVersion"].as_str().unwrap_or_default()
}

/// The real server has no reason for these: `Error from server: conversion webhook for …`.
fn unconverted(message: String) -> ApiError {
    ApiError::new(500, "", message)
}

fn no_version(direction: &str, api_version: &str) -> ApiError {
    unconverted(format!("request to convert CR {direction} an invalid group/version: {api_version}"))
}

/// A converter's answer with the metadata of the original, but for labels and annotations. Or what is wrong with it.
fn checked(original: &Value, mut converted: Value, to: &str) -> Result<Value, String> {
    let text =
        |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    if api_version(&converted) != to {
        let found = api_version(&converted);
        return Err(format!("object at index 0: invalid groupVersion (expected {to}, received {found})"));
    }
    let (expected, found) = (text(original, "/kind"), text(&converted, "/kind"));
    if expected != found {
        return Err(format!("object at index 0: invalid kind (expected {expected}, received {found})"));
    }
    for (what, pointer) in [("name", "/metadata/name"), ("namespace", "/metadata/namespace"), ("UID", "/metadata/uid")]
    {
        let (expected, found) = (text(original, pointer), text(&converted, pointer));
        if expected != found {
            return Err(format!("object: must have the same {what}: {expected} != {found}"));
        }
    }
    let metadata = match converted.get("metadata") {
        None => return Err("metadata: missing metadata in converted object".to_owned()),
        Some(Value::Object(metadata)) => restored(&original["metadata"], metadata)?,
        Some(other) => {
            return Err(format!("metadata: invalid metadata of type {} in converted object", go_type(other)));
        }
    };
    if let Some(fields) = converted.as_object_mut() {
        fields.insert("metadata".to_owned(), Value::Object(metadata));
    }
    Ok(converted)
}

fn restored(original: &Value, answered: &Map<String, Value>) -> Result<Map<String, Value>, String> {
    let mut metadata = original.as_object().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        let Some(answer) = answered.get(field).filter(|answer| !answer.is_null()) else {
            metadata.remove(field);
            continue;
        };
        let Some(entries) = answer.as_object() else {
            return Err(format!("metadata: invalid metadata.{field} of type {} in converted object", go_type(answer)));
        };
        if let Some((key, odd)) = entries.iter().find(|(_, value)| !value.is_string()) {
            let found = go_type(odd);
            return Err(format!(
                "metadata: metadata.{field}[{key}] must be a string, but is {found} in converted object"
            ));
        }
        if metadata.get(field) != Some(answer)
            && let Some(why) = builtin::pairs_faults(field, answer)
        {
            return Err(format!("metadata: {why}"));
        }
        metadata.insert(field.to_owned(), answer.clone());
    }
    Ok(metadata)
}
