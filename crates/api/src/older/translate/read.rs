//! Reading older objects with care: whatever is there, something is said about it and nothing panics.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use kerf_model::typo;
use serde_json::{Map, Value};

use super::{Refusal, Warning};
use crate::problem::{Problem, brief};

/// What is said about a translation, as it goes.
#[derive(Default)]
pub(super) struct Told {
    pub(super) warnings: Vec<Warning>,
    pub(super) refusals: Vec<Refusal>,
}

/// A place in the input: a field and the object it is in.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) object: String,
    pub(super) path: String,
}

impl Place {
    pub(super) fn child(&self, name: &str) -> Self {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Self { path, ..self.clone() }
    }

    pub(super) fn item(&self, i: usize) -> Self {
        Self { path: format!("{}[{i}]", self.path), ..self.clone() }
    }

    pub(super) fn entry(&self, key: &str) -> Self {
        Self { path: format!("{}[{key}]", self.path), ..self.clone() }
    }
}

impl Told {
    pub(super) fn warn(&mut self, place: Place, message: impl Into<String>) {
        self.warnings.push(Warning { object: place.object, path: place.path, message: message.into() });
    }

    /// The field matters: without it nothing is launched.
    pub(super) fn refuse(&mut self, place: Place, found: &Value, message: impl Into<String>) {
        self.say(place, brief(found), message.into(), false);
    }

    /// The field is missing, and matters.
    pub(super) fn miss(&mut self, place: Place, message: impl Into<String>) {
        self.say(place, "nothing".to_owned(), message.into(), false);
    }

    /// The field had no meaning then, and has none now.
    pub(super) fn shrug(&mut self, place: Place, found: &Value, message: impl Into<String>) {
        self.say(place, brief(found), message.into(), true);
    }

    /// What the schema says, in its own words.
    pub(super) fn pass_on(&mut self, place: Place, Problem { found, wants, .. }: Problem) {
        self.say(place, found, wants, false);
    }

    fn say(&mut self, place: Place, found: String, message: String, may_launch: bool) {
        self.refusals.push(Refusal { object: place.object, path: place.path, found, message, may_launch });
    }
}

/// An object within the input. An absent one has no fields.
#[derive(Clone)]
pub(super) struct Section<'a> {
    pub(super) place: Place,
    fields: &'a Map<String, Value>,
}

static NO_FIELDS: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

impl<'a> Section<'a> {
    /// The object itself, under the name it has in messages: `Provisioner lab`.
    pub(super) fn root(kind: &str, value: &'a Value) -> Self {
        let name = value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let place = Place { object: format!("{kind} {name}").trim_end().to_owned(), path: String::new() };
        Self { place, fields: value.as_object().unwrap_or(&NO_FIELDS) }
    }

    pub(super) fn at(&self, name: &str) -> Place {
        self.place.child(name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
        self.fields.iter()
    }

    pub(super) fn section(&self, name: &str, told: &mut Told) -> Section<'a> {
        let fields = self.typed(name, "an object", Value::as_object, told);
        Section { place: self.at(name), fields: fields.unwrap_or(&NO_FIELDS) }
    }

    pub(super) fn text(&self, name: &str, told: &mut Told) -> Option<&'a str> {
        self.typed(name, "a string; put quotes around it", Value::as_str, told)
    }

    /// A text that counts as absent when it is empty.
    pub(super) fn word(&self, name: &str, told: &mut Told) -> Option<&'a str> {
        self.text(name, told).filter(|text| !text.is_empty())
    }

    pub(super) fn integer(&self, name: &str, told: &mut Told) -> Option<i64> {
        self.typed(name, "a whole number", Value::as_i64, told)
    }

    pub(super) fn boolean(&self, name: &str, told: &mut Told) -> Option<bool> {
        self.typed(name, "true or false", Value::as_bool, told)
    }

    pub(super) fn list(&self, name: &str, told: &mut Told) -> &'a [Value] {
        self.typed(name, "a list", Value::as_array, told).map_or(&[], Vec::as_slice)
    }

    /// The objects of a list, each with its place.
    pub(super) fn sections(&self, name: &str, told: &mut Told) -> Vec<Section<'a>> {
        let mut sections = Vec::new();
        for (i, item) in self.list(name, told).iter().enumerate() {
            let place = self.at(name).item(i);
            match item.as_object() {
                Some(fields) => sections.push(Section { place, fields }),
                None => told.refuse(place, item, "this must be an object"),
            }
        }
        sections
    }

    /// A map of strings.
    pub(super) fn texts(&self, name: &str, told: &mut Told) -> BTreeMap<String, String> {
        let section = self.section(name, told);
        let mut texts = BTreeMap::new();
        for (key, value) in section.entries() {
            match value.as_str() {
                Some(text) => drop(texts.insert(key.clone(), text.to_owned())),
                None => told.refuse(section.place.entry(key), value, "this must be a string; put quotes around it"),
            }
        }
        texts
    }

    /// Says something about every field that is none of `known`: one that looks like a slip of the pen may matter.
    pub(super) fn tell_unknown(&self, known: &[&str], told: &mut Told) {
        for (name, value) in self.fields.iter().filter(|(name, _)| !known.contains(&name.as_str())) {
            match typo::misspelt(name, known.iter().copied()) {
                Some(meant) => {
                    told.refuse(self.at(name), value, format!("there is no such field (typo of {meant:?}?)"))
                }
                None => told.shrug(self.at(name), value, "there is no such field; it is left out"),
            }
        }
    }

    fn typed<T>(&self, name: &str, wants: &str, read: impl Fn(&'a Value) -> Option<T>, told: &mut Told) -> Option<T> {
        let value = self.get(name)?;
        let typed = read(value);
        if typed.is_none() {
            told.refuse(self.at(name), value, format!("this must be {wants}"));
        }
        typed
    }
}

/// The same without fields that are `null`, which is how some tools write "absent", and with `3` for `3.0`.
pub(super) fn tidied(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let there = fields.iter().filter(|(_, field)| !field.is_null());
            there.map(|(name, field)| (name.clone(), tidied(field))).collect()
        }
        Value::Array(items) => items.iter().map(tidied).collect(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if !number.is_i64() && float.fract() == 0.0 && float.abs() < 1e15 => (float as i64).into(),
            _ => value.clone(),
        },
        other => other.clone(),
    }
}
