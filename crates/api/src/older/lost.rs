//! What one version cannot say, written down so that the way back can restore it.
//!
//! The text is a JSON array of entries. Each names a place and what the way back says there (`was`), and what it should
//! say (`is`); a key that is not there stands for a field that is not there.
//!
//! ```text
//! {"path": "/spec/replicas", "is": 3}                       one field
//! {"together": [{"path": …, "was": …, "is": …}, …]}         fields that belong together
//! {"path": "/spec/disruption/budgets", "items": [[was, is], …]}   items of a list, wherever they have moved to
//! ```

use serde_json::{Map, Value, json};

use super::{LOST_OF_V1, LOST_OF_V1BETA1};

/// The parts of an object that a conversion may change, as one value with `annotations`, `spec` and `status`. They are
/// put back when it is dropped.
pub(super) struct View<'a> {
    object: &'a mut Value,
    parts: Value,
}

impl<'a> View<'a> {
    /// No annotations and an empty map of them are the same to an API server, and here.
    pub(super) fn of(object: &'a mut Value) -> Self {
        let mut parts = Map::new();
        if let Value::Object(fields) = object {
            for name in ["spec", "status"] {
                parts.extend(fields.remove(name).map(|part| (name.to_owned(), part)));
            }
            let metadata = fields.get_mut("metadata").and_then(Value::as_object_mut);
            let annotations = metadata.and_then(|metadata| metadata.remove("annotations"));
            parts.insert("annotations".to_owned(), annotations.filter(Value::is_object).unwrap_or_else(|| json!({})));
        }
        Self { object, parts: parts.into() }
    }

    /// Puts in place whatever of `lost` still fits.
    pub(super) fn restore(&mut self, lost: &Lost) {
        for entry in &lost.0 {
            match entry {
                Entry::Fields(fields) => {
                    if fields.iter().all(|field| self.parts.pointer(&field.path) == field.was.as_ref()) {
                        fields.iter().for_each(|field| self.set(&field.path, field.is.clone()));
                    }
                }
                Entry::Items { path, pairs } => {
                    if let Some(Value::Array(items)) = self.parts.pointer_mut(path) {
                        restore_items(items, pairs);
                    }
                }
            }
        }
    }

    /// A place whose parent is gone was given up on purpose.
    fn set(&mut self, path: &str, value: Option<Value>) {
        let Some((parent, name)) = path.rsplit_once('/') else { return };
        let fits = match parent {
            "" => name == "spec" || name == "status",
            "/annotations" => value.as_ref().is_none_or(Value::is_string),
            _ => true,
        };
        let Some(Value::Object(fields)) = self.parts.pointer_mut(parent).filter(|_| fits) else { return };
        let name = name.replace("~1", "/").replace("~0", "~");
        match value {
            Some(value) => fields.insert(name, value),
            None => fields.remove(&name),
        };
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        let (Value::Object(parts), Value::Object(fields)) = (self.parts.take(), &mut *self.object) else { return };
        for (name, part) in parts {
            if name != "annotations" {
                fields.insert(name, part);
            } else if part != json!({})
                && let Value::Object(metadata) = fields.entry("metadata").or_insert_with(|| json!({}))
            {
                metadata.insert(name, part);
            }
        }
    }
}

/// Items are found by what they say, not by where they stand. Two that say the same take their turns in order.
fn restore_items(items: &mut [Value], pairs: &[(Value, Value)]) {
    let mut is_used = vec![false; pairs.len()];
    for item in items {
        let found = pairs.iter().enumerate().find(|(i, (was, _))| !is_used[*i] && was == item);
        if let Some((i, (_, is))) = found {
            is_used[i] = true;
            *item = is.clone();
        }
    }
}

#[derive(Default)]
pub(super) struct Lost(Vec<Entry>);

enum Entry {
    Fields(Vec<Field>),
    Items { path: String, pairs: Vec<(Value, Value)> },
}

struct Field {
    path: String,
    was: Option<Value>,
    is: Option<Value>,
}

impl Lost {
    /// What has to be restored to make `is` out of `was`. Each of `units` is a set of paths that belong together.
    pub(super) fn between(was: &View<'_>, is: &View<'_>, units: &[&[&str]]) -> Self {
        let mut lost = Self::default();
        for paths in units {
            let fields: Vec<Field> =
                paths.iter().map(|path| field(path, was.parts.pointer(path), is.parts.pointer(path))).collect();
            if fields.iter().any(|field| field.was != field.is) {
                lost.0.push(Entry::Fields(fields));
            }
        }
        lost.compare("", &was.parts, &is.parts, &units.concat());
        lost
    }

    fn compare(&mut self, path: &str, was: &Value, is: &Value, skipped: &[&str]) {
        if was == is || skipped.contains(&path) {
            return;
        }
        match (was, is) {
            (Value::Object(was), Value::Object(is)) => {
                let only_in_is = is.keys().filter(|name| !was.contains_key(*name));
                for name in was.keys().chain(only_in_is) {
                    let path = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
                    match (was.get(name), is.get(name)) {
                        _ if skipped.contains(&path.as_str()) || is_ours(&path) => {}
                        (Some(was), Some(is)) => self.compare(&path, was, is, skipped),
                        (was, is) => self.0.push(Entry::Fields(vec![field(&path, was, is)])),
                    }
                }
            }
            (Value::Array(was), Value::Array(is)) if was.len() == is.len() => {
                let pairs = was.iter().cloned().zip(is.iter().cloned()).collect();
                self.0.push(Entry::Items { path: path.to_owned(), pairs });
            }
            _ => self.0.push(Entry::Fields(vec![field(path, Some(was), Some(is))])),
        }
    }

    /// What the field of this path was before, whether or not it still fits.
    pub(super) fn value_at(&self, path: &str) -> Option<&Value> {
        let mut fields = self.0.iter().filter_map(|entry| match entry {
            Entry::Fields(fields) => fields.iter().find(|field| field.path == path),
            Entry::Items { .. } => None,
        });
        fields.next()?.is.as_ref()
    }

    pub(super) fn text(&self) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let entries = self.0.iter().map(|entry| match entry {
            Entry::Fields(fields) => match &fields[..] {
                [field] => field.json(),
                fields => json!({"together": fields.iter().map(Field::json).collect::<Vec<_>>()}),
            },
            Entry::Items { path, pairs } => json!({"path": path, "items": pairs}),
        });
        Some(Value::Array(entries.collect()).to_string())
    }

    /// What cannot be read is passed over: somebody wrote into what is ours.
    pub(super) fn read(text: &str) -> Self {
        let entries: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
        Self(entries.iter().filter_map(Entry::read).collect())
    }
}

impl Entry {
    fn read(entry: &Value) -> Option<Self> {
        if let Some(fields) = entry.get("together") {
            return fields.as_array()?.iter().map(Field::read).collect::<Option<_>>().map(Self::Fields);
        }
        let field = Field::read(entry)?;
        let Some(items) = entry.get("items") else { return Some(Self::Fields(vec![field])) };
        let pair = |pair: &Value| match pair.as_array()?.as_slice() {
            [was, is] => Some((was.clone(), is.clone())),
            _ => None,
        };
        Some(Self::Items { path: field.path, pairs: items.as_array()?.iter().map(pair).collect::<Option<_>>()? })
    }
}

impl Field {
    fn json(&self) -> Value {
        let mut fields = Map::from_iter([("path".to_owned(), self.path.as_str().into())]);
        fields.extend(self.was.iter().map(|was| ("was".to_owned(), was.clone())));
        fields.extend(self.is.iter().map(|is| ("is".to_owned(), is.clone())));
        fields.into()
    }

    fn read(text: &Value) -> Option<Self> {
        let path = text.get("path")?.as_str().filter(|path| !is_ours(path))?;
        Some(self::field(path, text.get("was"), text.get("is")))
    }
}

fn field(path: &str, was: Option<&Value>, is: Option<&Value>) -> Field {
    Field { path: path.to_owned(), was: was.cloned(), is: is.cloned() }
}

/// What is kept must not keep itself.
fn is_ours(path: &str) -> bool {
    let name = path.strip_prefix("/annotations/").unwrap_or_default().replace("~1", "/");
    name == LOST_OF_V1 || name == LOST_OF_V1BETA1
}
