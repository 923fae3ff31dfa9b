//! Walking trees that may have any shape: reading never fails, writing never panics.

use std::fmt;

use serde_json::{Map, Value};

use crate::error::{FieldError, FieldErrorKind};

const NULL: Value = Value::Null;

/// What stands at a dotted path; null where there is nothing.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    let mut here = value;
    for part in path.split('.') {
        match here.get(part) {
            Some(next) => here = next,
            None => return &NULL,
        }
    }
    here
}

/// The object at a dotted path, if there is one.
pub(crate) fn map_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Map<String, Value>> {
    value_mut(value, path)?.as_object_mut()
}

pub(crate) fn value_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let mut here = value;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        here = here.as_object_mut()?.get_mut(part)?;
    }
    Some(here)
}

/// The object at a dotted path, made where there is none. Something else that stands in the way is replaced.
pub(crate) fn open<'a>(value: &'a mut Value, path: &str) -> &'a mut Map<String, Value> {
    let mut here = as_map(value);
    for part in path.split('.').filter(|part| !part.is_empty()) {
        here = as_map(here.entry(part).or_insert(Value::Null));
    }
    here
}

fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was just made an object")
}

/// The elements of the list at a dotted path.
pub(crate) fn items<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn items_mut<'a>(value: &'a mut Value, path: &str) -> &'a mut [Value] {
    value_mut(value, path).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

/// The text at a dotted path; empty where there is none.
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

pub(crate) fn int(value: &Value, path: &str) -> Option<i64> {
    at(value, path).as_i64()
}

pub(crate) fn flag(value: &Value, path: &str) -> bool {
    at(value, path).as_bool().unwrap_or_default()
}

/// The entries of the object at a dotted path.
pub(crate) fn entries<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    at(value, path).as_object().into_iter().flatten()
}

pub(crate) fn has(value: &Value, path: &str) -> bool {
    !at(value, path).is_null()
}

/// Puts a value where nothing stands.
pub(crate) fn fill(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    if map.get(key).is_none_or(Value::is_null) {
        map.insert(key.to_owned(), value.into());
    }
}

/// Puts a text where nothing or the empty text stands.
pub(crate) fn fill_text(map: &mut Map<String, Value>, key: &str, value: &str) {
    if map.get(key).is_none_or(|found| found.is_null() || found.as_str() == Some("")) {
        map.insert(key.to_owned(), Value::from(value));
    }
}

/// Puts a number where nothing or zero stands.
pub(crate) fn fill_count(map: &mut Map<String, Value>, key: &str, value: i64) {
    if map.get(key).is_none_or(|found| found.is_null() || found.as_i64() == Some(0)) {
        map.insert(key.to_owned(), Value::from(value));
    }
}

/// An empty object where nothing stands.
pub(crate) fn fill_map(map: &mut Map<String, Value>, key: &str) {
    fill(map, key, Value::Object(Map::new()));
}

/// Sets or removes a key, as the other object has it.
pub(crate) fn copy_key(to: &mut Map<String, Value>, key: &str, from: &Value) {
    match from.get(key) {
        Some(value) => to.insert(key.to_owned(), value.clone()),
        None => to.remove(key),
    };
}

/// Where in an object we are. A chain of borrowed steps: a path costs nothing until it is said.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
    Key(&'a Path<'a>, &'a str),
}

pub(crate) static ROOT: Path<'static> = Path::Root;
pub(crate) static SPEC: Path<'static> = Path::Field(&ROOT, "spec");
pub(crate) static STATUS: Path<'static> = Path::Field(&ROOT, "status");
pub(crate) static METADATA: Path<'static> = Path::Field(&ROOT, "metadata");

impl<'a> Path<'a> {
    pub(crate) fn field(&'a self, name: &'a str) -> Path<'a> {
        Path::Field(self, name)
    }

    pub(crate) fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }

    pub(crate) fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Field(Path::Root, name) => f.write_str(name),
            Path::Field(parent, name) => write!(f, "{parent}.{name}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
            Path::Key(parent, key) => write!(f, "{parent}[{key}]"),
        }
    }
}

/// The JSON of an object with these fields, in this order, as far as it has them.
pub(crate) fn ordered(value: &Value, fields: &[&str]) -> String {
    let parts = fields.iter().filter_map(|field| Some(format!("\"{field}\":{}", value.get(field)?)));
    format!("{{{}}}", parts.collect::<Vec<_>>().join(","))
}

/// What is wrong, collected.
#[derive(Debug, Default)]
pub(crate) struct Faults(pub(crate) Vec<FieldError>);

impl Faults {
    pub(crate) fn required(&mut self, path: &Path<'_>, detail: &str) {
        self.0.push(FieldError::required(path.to_string(), detail));
    }

    pub(crate) fn invalid(&mut self, path: &Path<'_>, found: impl Into<Value>, detail: impl Into<String>) {
        self.0.push(FieldError::invalid(path.to_string(), found, detail));
    }

    pub(crate) fn forbidden(&mut self, path: &Path<'_>, detail: impl Into<String>) {
        self.0.push(FieldError::forbidden(path.to_string(), detail));
    }

    pub(crate) fn duplicate(&mut self, path: &Path<'_>, found: impl Into<Value>) {
        self.0.push(FieldError::duplicate(path.to_string(), found));
    }

    pub(crate) fn not_supported(&mut self, path: &Path<'_>, found: impl Into<Value>, supported: &[&str]) {
        self.0.push(FieldError::not_supported(path.to_string(), found, supported));
    }

    pub(crate) fn not_found(&mut self, path: &Path<'_>, found: impl Into<Value>) {
        self.0.push(FieldError::new(FieldErrorKind::NotFound, path.to_string(), found, ""));
    }

    pub(crate) fn too_long(&mut self, path: &Path<'_>, max_bytes: usize) {
        let detail = format!("may not be more than {max_bytes} bytes");
        self.0.push(FieldError::new(FieldErrorKind::TooLong, path.to_string(), Value::Null, detail));
    }

    pub(crate) fn too_many(&mut self, path: &Path<'_>, found: usize, max: usize) {
        let items = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {items}");
        self.0.push(FieldError::new(FieldErrorKind::TooMany, path.to_string(), found, detail));
    }

    /// One of a few words. Empty is `Required` where it must be given.
    pub(crate) fn one_of(&mut self, path: &Path<'_>, found: &str, supported: &[&str]) {
        if !supported.contains(&found) {
            self.not_supported(path, found, supported);
        }
    }

    /// Zero or more.
    pub(crate) fn not_negative(&mut self, path: &Path<'_>, value: &Value) {
        if let Some(number) = value.as_i64().filter(|number| *number < 0) {
            self.invalid(path, number, "must be greater than or equal to 0");
        }
    }

    /// The last fault shows what was found in these words.
    pub(crate) fn show(&mut self, text: String) {
        if let Some(fault) = self.0.last_mut() {
            fault.shown = Some(text);
        }
    }

    pub(crate) fn immutable(&mut self, path: &Path<'_>, new: &Value, old: &Value) {
        if new != old {
            self.invalid(path, new.clone(), "field is immutable");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reading_and_writing_survive_every_shape() {
        for mut value in [json!(null), json!(3), json!("x"), json!([1]), json!({"a": 1}), json!({"a": {"b": []}})] {
            assert_eq!(text(&value, "a.b.c"), "");
            assert!(items(&value, "a.b").is_empty() && items_mut(&mut value, "a.b").is_empty());
            assert!(map_mut(&mut value, "a.b.c").is_none());
            open(&mut value, "a.b.c").insert("d".to_owned(), json!(1));
            assert_eq!(int(&value, "a.b.c.d"), Some(1));
        }
    }

    #[test]
    fn a_path_is_said_as_the_real_server_says_it() {
        let containers = SPEC.field("containers");
        let first = containers.index(0);
        let requests = first.field("resources").to_string();
        assert_eq!(requests, "spec.containers[0].resources");
        assert_eq!(SPEC.field("nodeSelector").key("a/b").to_string(), "spec.nodeSelector[a/b]");
    }
}
