//! Judging a JSON value by a schema, as an API server does: shape first, rules only where the shape is sound.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Merge, Schema, Shape};
use crate::problem::{Problem, brief};

/// All problems of `new`, in document order.
///
/// Flow: fields, sizes, patterns; then, unless something there is so wrong that rules could not be read (a wrong type,
/// a missing field, an unknown word, something too long), the rules. `old` is the value before an update; rules about a
/// change need it.
///
/// Guarantees: accepts what a Kubernetes 1.36 API server accepts with the CRD of the same schema, except for what the
/// server itself knows of metadata (names, owner references). Assumptions: defaults are already filled in. Caveats: no
/// ratcheting; an unchanged invalid part of an updated object is still reported.
pub(crate) fn check(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<Problem> {
    let mut shape = ShapeCheck::default();
    shape.visit(schema, new, "");
    if !shape.blocks_rules {
        visit_rules(schema, new, old, "", &mut shape.problems);
    }
    shape.problems
}

/// Paths of fields the schema does not describe. An API server drops them silently, unless asked to be strict.
pub(crate) fn unknown_fields(schema: &Schema, value: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    visit_unknown(schema, value, "", &mut paths);
    paths
}

#[derive(Default)]
struct ShapeCheck {
    problems: Vec<Problem>,
    blocks_rules: bool,
}

impl ShapeCheck {
    fn visit(&mut self, schema: &Schema, value: &Value, path: &str) {
        match (&schema.shape, value) {
            (Shape::Object { properties, required }, Value::Object(fields)) => {
                for name in required {
                    if !fields.contains_key(*name) {
                        self.block(&child(path, name), "nothing", "this field is required");
                    }
                }
                for (name, field) in fields {
                    if let Some(schema) = properties.get(name.as_str()) {
                        self.visit(schema, field, &child(path, name));
                    }
                }
            }
            (Shape::Map(values), Value::Object(entries)) => {
                if let Some(max) = schema.max_properties.filter(|max| entries.len() as u64 > *max) {
                    self.block(path, format!("{} entries", entries.len()), format!("at most {max} entries fit"));
                }
                for (key, entry) in entries {
                    self.visit(values, entry, &child(path, key));
                }
            }
            (Shape::List(item), Value::Array(items)) => {
                self.visit_list(schema, items, path);
                for (i, entry) in items.iter().enumerate() {
                    self.visit(item, entry, &format!("{path}[{i}]"));
                }
            }
            (Shape::Text, Value::String(text)) => self.visit_text(schema, text, path),
            (Shape::Integer, Value::Number(number)) if is_whole(number) => self.visit_integer(schema, value, path),
            (Shape::Boolean, Value::Bool(_)) | (Shape::Open, Value::Object(_)) => {}
            (Shape::IntOrText, Value::Number(number)) if is_whole(number) => {}
            (Shape::IntOrText, Value::String(text)) => self.visit_text(schema, text, path),
            _ => self.block(path, brief(value), format!("this must be {}", in_words(&schema.shape))),
        }
    }

    fn visit_list(&mut self, schema: &Schema, items: &[Value], path: &str) {
        let n_items = items.len() as u64;
        if let Some(max) = schema.max_items.filter(|max| n_items > *max) {
            self.block(path, format!("{n_items} items"), format!("at most {max} items fit"));
        }
        if let Some(min) = schema.min_items.filter(|min| n_items < *min) {
            self.say(path, format!("{n_items} items"), format!("at least {min} must be there"));
        }
        let mut seen = BTreeSet::new();
        for (i, item) in items.iter().enumerate() {
            let identity = match schema.merge {
                Merge::Set => item,
                Merge::MapBy(key) => item.get(key).unwrap_or(&Value::Null),
                Merge::Unsaid | Merge::AtomicList | Merge::AtomicMap | Merge::GranularMap => continue,
            };
            if !seen.insert(identity.to_string()) {
                self.say(
                    &format!("{path}[{i}]"),
                    brief(identity),
                    "each may be listed once; this one is a duplicate".to_owned(),
                );
            }
        }
    }

    fn visit_text(&mut self, schema: &Schema, text: &str, path: &str) {
        let n_chars = text.chars().count() as u64;
        if let Some(max) = schema.max_length.filter(|max| n_chars > *max) {
            self.block(path, format!("{n_chars} characters"), format!("at most {max} characters fit"));
        }
        if let Some(min) = schema.min_length.filter(|min| n_chars < *min) {
            self.say(path, format!("{text:?}"), format!("at least {min} character(s) must be there"));
        }
        if !schema.words.is_empty() && !schema.words.contains(&text) {
            self.block(path, format!("{text:?}"), format!("one of {} would do", schema.words.join(", ")));
        }
        if let Some(pattern) = schema.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            self.say(path, format!("{text:?}"), format!("this must match {}", pattern.as_str()));
        }
        if schema.format == Some("date-time") && text.parse::<jiff::Timestamp>().is_err() {
            self.say(path, format!("{text:?}"), "this must be a time such as 2024-01-31T12:00:00Z".to_owned());
        }
    }

    fn visit_integer(&mut self, schema: &Schema, value: &Value, path: &str) {
        let Some(number) = value.as_i64().or_else(|| value.as_f64().map(|float| float as i64)) else { return };
        let below = schema.minimum.is_some_and(|minimum| number < minimum);
        let above = schema.maximum.is_some_and(|maximum| number > maximum);
        if below || above {
            self.say(path, number.to_string(), range_in_words(schema));
        }
    }

    fn say(&mut self, path: &str, found: String, wants: String) {
        self.problems.push(Problem::new(path, found, wants));
    }

    /// Says it, and keeps the rules from reading a value they could not make sense of.
    fn block(&mut self, path: &str, found: impl Into<String>, wants: impl Into<String>) {
        self.blocks_rules = true;
        self.say(path, found.into(), wants.into());
    }
}

fn visit_rules(schema: &Schema, new: &Value, old: Option<&Value>, path: &str, problems: &mut Vec<Problem>) {
    for rule in &schema.rules {
        if !rule.holds(new, old) {
            problems.push(Problem::new(path, brief(new), rule.message.clone()));
        }
    }
    match (&schema.shape, new) {
        (Shape::Object { properties, .. }, Value::Object(fields)) => {
            for (name, field) in fields {
                if let Some(schema) = properties.get(name.as_str()) {
                    visit_rules(schema, field, old.and_then(|old| old.get(name)), &child(path, name), problems);
                }
            }
        }
        (Shape::Map(values), Value::Object(entries)) => {
            for (key, entry) in entries {
                visit_rules(values, entry, old.and_then(|old| old.get(key)), &format!("{path}[{key}]"), problems);
            }
        }
        (Shape::List(item), Value::Array(items)) => {
            for (i, entry) in items.iter().enumerate() {
                // Items of an atomic list have no past of their own; only a list keyed by a field can be matched up,
                // and none of ours that has a rule about change is.
                visit_rules(item, entry, None, &format!("{path}[{i}]"), problems);
            }
        }
        _ => {}
    }
}

fn visit_unknown(schema: &Schema, value: &Value, path: &str, paths: &mut Vec<String>) {
    match (&schema.shape, value) {
        (Shape::Object { properties, .. }, Value::Object(fields)) => {
            for (name, field) in fields {
                match properties.get(name.as_str()) {
                    Some(schema) => visit_unknown(schema, field, &child(path, name), paths),
                    None if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) => {}
                    None if schema.keeps_unknown => {}
                    None => paths.push(child(path, name)),
                }
            }
        }
        (Shape::Map(values), Value::Object(entries)) => {
            for (key, entry) in entries {
                visit_unknown(values, entry, &child(path, key), paths);
            }
        }
        (Shape::List(item), Value::Array(items)) => {
            for (i, entry) in items.iter().enumerate() {
                visit_unknown(item, entry, &format!("{path}[{i}]"), paths);
            }
        }
        _ => {}
    }
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// JSON has one kind of number; `3.0` is whole to an API server too.
fn is_whole(number: &serde_json::Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|float| float.fract() == 0.0)
}

fn in_words(shape: &Shape) -> &'static str {
    match shape {
        Shape::Object { .. } | Shape::Map(_) | Shape::Open => "an object",
        Shape::List(_) => "a list",
        Shape::Text => "a string",
        Shape::Integer => "a whole number",
        Shape::Boolean => "true or false",
        Shape::IntOrText => "a whole number or a string",
    }
}

fn range_in_words(schema: &Schema) -> String {
    match (schema.minimum, schema.maximum) {
        (Some(minimum), Some(maximum)) => format!("a whole number from {minimum} to {maximum} would do"),
        (Some(minimum), None) => format!("a whole number of at least {minimum} would do"),
        (None, Some(maximum)) => format!("a whole number of at most {maximum} would do"),
        (None, None) => "a whole number would do".to_owned(),
    }
}
