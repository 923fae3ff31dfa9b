//! Get and list, in the form that the client wants.

use std::sync::Arc;

use base64::Engine as _;
use bytes::Bytes;
use serde_json::{Value, json};

use super::answer::{self, Form};
use super::{Answer, Body, Call, events};
use crate::error::{ApiError, ApiResult};
use crate::kind::Resource;
use crate::selector::{Fields, Labels};
use crate::state::State;
use crate::store::{ResourceId, Stored};
use crate::{builtin, table};

/// Pieces of a list are joined up to about this size before they are sent.
const PIECE_BYTES: usize = 64 << 10;

/// What a list found.
pub(super) struct Selected {
    pub(super) objects: Vec<Arc<Stored>>,
    revision: u64,
    /// Where the next page begins, when there is one.
    next: Option<String>,
    remaining: Option<usize>,
}

/// Where a paged list goes on.
#[derive(serde::Serialize, serde::Deserialize)]
struct Continue {
    v: String,
    rv: i64,
    start: String,
}

impl State {
    pub(super) fn get(&mut self, call: &Call<'_>) -> ApiResult<Answer> {
        self.check_not_ahead(call)?;
        let stored = self.live(call)?.ok_or_else(|| call.not_found())?;
        Ok(self.shown(call, 200, events::json_in(&call.resource, &stored)))
    }

    pub(super) fn list(&mut self, call: &Call<'_>) -> ApiResult<Answer> {
        let selected = self.select(call)?;
        Ok(self.shown_list(call, &selected))
    }

    /// A revision that does not exist yet cannot be read.
    fn check_not_ahead(&self, call: &Call<'_>) -> ApiResult<u64> {
        let asked = revision_of(call.query.get("resourceVersion"))
            .map_err(|why| ApiError::bad_request(format!("invalid resource version: {why}")))?;
        if asked > self.store.revision() {
            let current = self.store.revision();
            let mut error = ApiError::new(
                504,
                "Timeout",
                format!("Timeout: Too large resource version: {asked}, current: {current}"),
            )
            .cause("ResourceVersionTooLarge", "Too large resource version", "");
            error.details.retry_after_seconds = 1;
            return Err(error);
        }
        Ok(asked)
    }

    pub(super) fn select(&self, call: &Call<'_>) -> ApiResult<Selected> {
        let (labels, fields) = selectors(call)?;
        let asked = self.check_not_ahead(call)?;
        check_match(call)?;
        let limit = usize::try_from(call.query.number("limit")?.unwrap_or(0)).unwrap_or(0);
        let token = call.query.get("continue");
        let is_exact = call.query.get("resourceVersionMatch") == "Exact";
        let (revision, start) = if token.is_empty() {
            (if is_exact { asked } else { self.store.revision() }, None)
        } else {
            let (revision, start) = read_token(token)?;
            (if revision == 0 { self.store.revision() } else { revision }, Some(start))
        };
        let id = call.resource.id();
        let is_placed = |stored: &Stored| {
            start.as_deref().is_none_or(|start| place(call, stored).as_str() >= start)
                && (call.name.is_empty() || stored.key.name == call.name)
                && (call.namespace.is_empty() || stored.key.namespace == call.namespace)
        };
        let is_selected = |stored: &Stored| labels.matches(stored) && fields.matches(stored);
        // Selectors ask what is shown, which may differ from what is kept.
        let wanted = |stored: &Arc<Stored>| {
            if !is_placed(stored) {
                return None;
            }
            match call.resource.reread(stored) {
                Ok(None) => is_selected(stored).then(|| Ok(Arc::clone(stored))),
                Ok(Some(shown)) => is_selected(&shown).then_some(Ok(shown)),
                Err(error) => Some(Err(error)),
            }
        };
        let mut objects: Vec<Arc<Stored>> = if revision == self.store.revision() {
            match (fields.name(), fields.node()) {
                (Some(name), _) if !call.namespace.is_empty() || !call.resource.namespaced => {
                    let found = self.find(&call.resource, &call.namespace, name);
                    found.iter().filter_map(wanted).collect::<ApiResult<_>>()?
                }
                (_, Some(node)) if id == *ResourceId::pods() => {
                    self.store.pods_on(node).filter_map(wanted).collect::<ApiResult<_>>()?
                }
                _ => self.store.list(&id, &call.namespace).filter_map(wanted).collect::<ApiResult<_>>()?,
            }
        } else {
            let then = self.store.list_at(&id, &call.namespace, revision);
            let then = then.map_err(|_| Self::expired(start.as_deref()))?;
            then.iter().filter_map(wanted).collect::<ApiResult<_>>()?
        };
        let mut next = None;
        let mut remaining = None;
        if limit > 0 && objects.len() > limit {
            let left = objects.split_off(limit);
            // The place right after the last one that is shown.
            next = objects.last().map(|last| write_token(revision, &format!("{}\u{0}", place(call, last))));
            // The real server does not count what a selector would leave out.
            remaining = (labels.is_empty() && fields.is_empty()).then_some(left.len());
        }
        Ok(Selected { objects, revision, next, remaining })
    }

    /// What a client is told whose list has grown too old, with a way to go on where there is one.
    fn expired(start: Option<&str>) -> ApiError {
        let Some(start) = start else {
            return ApiError::new(410, "Expired", "The resourceVersion for the provided list is too old.");
        };
        let mut error = ApiError::new(
            410,
            "Expired",
            "The provided continue parameter is too old to display a consistent list result. You can start a new list \
             without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
             results. Continuing with the provided token results in an inconsistent list - objects that were created, \
             modified, or deleted between the time the first chunk was returned and now may show up in the list.",
        );
        error.continue_token = write_token(0, start);
        error
    }

    /// One object, in the form asked for.
    pub(super) fn shown(&self, call: &Call<'_>, status: u16, json: Bytes) -> Answer {
        match answer::form(&call.request.accept) {
            Some(Form::Table) => {
                let object: Value = serde_json::from_slice(&json).unwrap_or_default();
                let revision = object["metadata"]["resourceVersion"].clone();
                let mut shown = self.table(call, &[object]);
                shown["metadata"] = json!({ "resourceVersion": revision });
                Answer::json(status, &shown)
            }
            Some(Form::Metadata) => {
                let object: Value = serde_json::from_slice(&json).unwrap_or_default();
                Answer::json(status, &partial(&object))
            }
            Some(Form::Yaml) => yaml(status, &json),
            Some(Form::Json) | None => Answer::bytes(status, json),
        }
    }

    pub(super) fn shown_list(&self, call: &Call<'_>, selected: &Selected) -> Answer {
        let mut metadata = json!({ "resourceVersion": selected.revision.to_string() });
        if let Some(next) = &selected.next {
            metadata["continue"] = json!(next);
        }
        if let Some(remaining) = selected.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        let resource = &call.resource;
        match answer::form(&call.request.accept) {
            Some(Form::Table) => {
                let objects: Vec<Value> =
                    selected.objects.iter().map(|stored| events::shown_in(resource, stored.value())).collect();
                let mut shown = self.table(call, &objects);
                shown["metadata"] = metadata;
                Answer::json(200, &shown)
            }
            Some(Form::Metadata) => {
                let items: Vec<Value> = selected.objects.iter().map(|stored| partial(&stored.value())).collect();
                Answer::json(
                    200,
                    &json!({ "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items }),
                )
            }
            form => {
                let pieces = list_pieces(resource, &metadata, &selected.objects);
                if form == Some(Form::Yaml) {
                    return yaml(200, &pieces.concat());
                }
                Answer {
                    status: 200,
                    content_type: "application/json".to_owned(),
                    body: Body::Pieces(pieces),
                    warnings: Vec::new(),
                }
            }
        }
    }

    /// A `Table` of objects, without its list metadata.
    pub(super) fn table(&self, call: &Call<'_>, objects: &[Value]) -> Value {
        let include = call.query.get("includeObject");
        let now = self.now();
        let rows: Vec<Value> = objects.iter().map(|object| row(&call.resource, object, include, now)).collect();
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {},
            "columnDefinitions": table::columns(&call.resource), "rows": rows,
        })
    }
}

pub(super) fn row(resource: &Resource, object: &Value, include: &str, now: jiff::Timestamp) -> Value {
    let mut row = json!({ "cells": table::cells(resource, object, now) });
    if let Some(conditions) = table::conditions(resource, object) {
        row["conditions"] = conditions;
    }
    match include {
        "None" => {}
        "Object" => row["object"] = object.clone(),
        _ => row["object"] = partial(object),
    }
    row
}

/// An object's metadata alone.
pub(super) fn partial(object: &Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] })
}

fn yaml(status: u16, json: &[u8]) -> Answer {
    let object: Value = serde_json::from_slice(json).unwrap_or_default();
    let text = super::yaml::write(&object);
    Answer::bytes(status, Bytes::from(text)).of_type("application/yaml")
}

fn list_pieces(resource: &Resource, metadata: &Value, objects: &[Arc<Stored>]) -> Vec<Bytes> {
    let mut piece = Vec::with_capacity(PIECE_BYTES + 4096);
    piece.extend_from_slice(
        format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{metadata},\"items\":[",
            Value::from(resource.list_kind.as_str()),
            Value::from(resource.api_version())
        )
        .as_bytes(),
    );
    let mut pieces = Vec::new();
    let is_shared = events::is_second_group(resource);
    for (index, stored) in objects.iter().enumerate() {
        if index > 0 {
            piece.push(b',');
        }
        if is_shared {
            piece.extend_from_slice(&events::json_in(resource, stored));
        } else if resource.custom.is_some() {
            piece.extend_from_slice(&stored.json());
        } else {
            piece.push(b'{');
            piece.extend_from_slice(&stored.headless());
        }
        if piece.len() >= PIECE_BYTES {
            pieces.push(Bytes::from(std::mem::replace(&mut piece, Vec::with_capacity(PIECE_BYTES + 4096))));
        }
    }
    piece.extend_from_slice(b"]}\n");
    pieces.push(Bytes::from(piece));
    pieces
}

/// The order of lists, and where a page begins: the key below what is listed.
fn place(call: &Call<'_>, stored: &Stored) -> String {
    if call.resource.namespaced && call.namespace.is_empty() {
        format!("{}/{}", stored.key.namespace, stored.key.name)
    } else {
        stored.key.name.clone()
    }
}

/// What Go says of bytes that do not begin like JSON.
fn not_json(bytes: &[u8]) -> String {
    match bytes.first() {
        None => "unexpected end of JSON input".to_owned(),
        Some(first) if first.is_ascii_graphic() => {
            format!("invalid character '{}' looking for beginning of value", char::from(*first))
        }
        Some(first) => format!("invalid character '\\u{first:04x}' looking for beginning of value"),
    }
}

fn write_token(revision: u64, start: &str) -> String {
    let token = Continue {
        v: "meta.k8s.io/v1".to_owned(),
        rv: i64::try_from(revision).unwrap_or(i64::MAX),
        start: start.to_owned(),
    };
    let json = serde_json::to_vec(&token).expect("a token of text and numbers is JSON");
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(json)
}

fn read_token(token: &str) -> ApiResult<(u64, String)> {
    let bad = |why: &str| ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let json = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(token.trim_end_matches('='))
        .map_err(|_| bad("illegal base64 data"))?;
    let token: Continue = serde_json::from_slice(&json).map_err(|_| bad(&not_json(&json)))?;
    if token.v != "meta.k8s.io/v1" {
        return Err(bad(&format!("server does not recognize this encoded version \"{}\"", token.v)));
    }
    Ok((u64::try_from(token.rv).unwrap_or(0), token.start))
}

pub(super) fn revision_of(text: &str) -> Result<u64, String> {
    match text {
        "" => Ok(0),
        text => text.parse().map_err(|_| {
            format!("resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax")
        }),
    }
}

pub(super) fn selectors(call: &Call<'_>) -> ApiResult<(Labels, Fields)> {
    let labels = Labels::parse(call.query.get("labelSelector")).map_err(ApiError::bad_request)?;
    let fields = Fields::parse(call.query.get("fieldSelector")).map_err(ApiError::bad_request)?;
    let mut known: Vec<String> = match &call.resource.custom {
        Some(custom) => custom.selectable_fields().iter().map(|path| path.trim_start_matches('.').to_owned()).collect(),
        None => builtin::selectable_names(&call.resource),
    };
    known.retain(|name| !matches!(name.as_str(), "metadata.name" | "metadata.namespace"));
    for name in fields.names() {
        let is_known =
            matches!(name, "metadata.name" | "metadata.namespace") || known.iter().any(|known| known == name);
        if !is_known {
            return Err(ApiError::bad_request(if known.is_empty() {
                format!("\"{name}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            } else {
                format!("field label not supported: {name}")
            }));
        }
    }
    Ok((labels, fields))
}

/// `resourceVersionMatch` needs a revision to match.
fn check_match(call: &Call<'_>) -> ApiResult<()> {
    use crate::error::FieldError;
    let kind = call.query.get("resourceVersionMatch");
    let mut errors = Vec::new();
    if call.query.has("sendInitialEvents") {
        errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors));
    }
    if kind.is_empty() {
        return Ok(());
    }
    let revision = call.query.get("resourceVersion");
    if !call.query.get("continue").is_empty() {
        errors.push(FieldError::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden when continue is provided",
        ));
    }
    if revision.is_empty() {
        errors.push(FieldError::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ));
    }
    if !matches!(kind, "Exact" | "NotOlderThan") {
        errors.push(FieldError::not_supported("resourceVersionMatch", kind, &["Exact", "NotOlderThan", ""]));
    }
    if kind == "Exact" && revision == "0" {
        errors.push(FieldError::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ));
    }
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors)) }
}
