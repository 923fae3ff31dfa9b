//! Annotations of an object that is plain JSON.

use serde_json::{Map, Value};

pub(super) fn get<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

pub(super) fn put(object: &mut Value, key: &str, text: String) {
    let Value::Object(fields) = object else { return };
    let metadata = fields.entry("metadata").or_insert(Value::Null);
    if let Some(annotations) =
        child_object(metadata).map(|metadata| metadata.entry("annotations").or_insert(Value::Null))
        && let Some(annotations) = child_object(annotations)
    {
        annotations.insert(key.to_owned(), text.into());
    }
}

/// Removes an annotation, and with the last one the map: an API server has no empty one.
pub(super) fn take(object: &mut Value, key: &str) -> Option<String> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let taken = annotations.remove(key)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    taken.as_str().map(str::to_owned)
}

/// `null` counts as nothing there yet.
fn child_object(value: &mut Value) -> Option<&mut Map<String, Value>> {
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}
