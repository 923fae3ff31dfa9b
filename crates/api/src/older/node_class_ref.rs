//! `nodeClassRef`: `{apiVersion, kind, name}` in v1beta1, `{group, kind, name}` in v1.

use serde_json::{Map, Value};

use super::{UNSHIPPED_AWS_GROUP, annotations, v1beta1};
use crate::kind::Kind;
use crate::labels::{AWS_GROUP, KWOK_GROUP, NODE_CLASS_REFERENCE};

/// Whether the reference as it was written is kept in the annotation that upstream has for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Annotation {
    Written,
    OnlyRead,
}

/// `spec` is where the reference is a field of.
pub(super) fn to_v1(object: &mut Value, spec: &str, annotation: Annotation) {
    annotations::take(object, NODE_CLASS_REFERENCE);
    let Some(Value::Object(reference)) = object.pointer_mut(spec).and_then(|spec| spec.get_mut("nodeClassRef")) else {
        return;
    };
    let before = Value::Object(reference.clone());
    *reference = in_v1(reference);
    if annotation == Annotation::Written {
        annotations::put(object, NODE_CLASS_REFERENCE, before.to_string());
    }
}

pub(super) fn to_v1beta1(object: &mut Value, spec: &str) {
    let kept = annotations::get(object, NODE_CLASS_REFERENCE).map(serde_json::from_str::<Map<String, Value>>);
    let Some(Value::Object(reference)) = object.pointer_mut(spec).and_then(|spec| spec.get_mut("nodeClassRef")) else {
        return;
    };
    // It may be about the class that the object had before somebody edited it.
    let fits = |kept: &Map<String, Value>| in_v1(kept) == *reference;
    let has_kept = kept.is_some();
    *reference = match kept {
        Some(Ok(kept)) if fits(&kept) => kept,
        _ => in_v1beta1(reference),
    };
    if has_kept {
        annotations::take(object, NODE_CLASS_REFERENCE);
    }
}

fn in_v1(reference: &Map<String, Value>) -> Map<String, Value> {
    let text = |name: &str| reference.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let group = text("apiVersion").and_then(|version| version.split('/').next()).filter(|group| !group.is_empty());
    let (group, kind) = match (group, text("kind")) {
        (None, Some(kind)) if kind == Kind::KwokNodeClass.name() => (KWOK_GROUP, kind),
        (Some(KWOK_GROUP), None) => (KWOK_GROUP, Kind::KwokNodeClass.name()),
        (group, kind) => (group.unwrap_or(AWS_GROUP), kind.unwrap_or(Kind::Ec2NodeClass.name())),
    };
    let group = if group == UNSHIPPED_AWS_GROUP { AWS_GROUP } else { group };
    let mut result = Map::from_iter([("group".to_owned(), group.into()), ("kind".to_owned(), kind.into())]);
    result.extend(reference.get("name").map(|name| ("name".to_owned(), name.clone())));
    result
}

fn in_v1beta1(reference: &Map<String, Value>) -> Map<String, Value> {
    let mut result = reference.clone();
    if let Some(group) = result.remove("group") {
        let version = if group == KWOK_GROUP { Kind::KwokNodeClass.version() } else { v1beta1::VERSION };
        if let Some(group) = group.as_str().filter(|group| !group.is_empty()) {
            result.insert("apiVersion".to_owned(), format!("{group}/{version}").into());
        }
    }
    result
}
