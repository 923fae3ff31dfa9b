//! A set of fields, in the form that `fieldsV1` has on the wire: a trie whose steps are `f:<field>`, `k:<keys>`, `v:<value>` and
//! `i:<index>`. A step may be a member itself, may lead to members, or both.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::schema::go;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Whether the field that leads here is in the set.
    pub(crate) member: bool,
    /// No child is empty.
    pub(crate) below: BTreeMap<String, FieldSet>,
}

impl FieldSet {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }

    /// From `fieldsV1`. `None` for what is no set of fields.
    #[must_use]
    pub fn decode(fields: &Value) -> Option<Self> {
        let mut set = Self::default();
        for (step, below) in fields.as_object()? {
            if step == "." {
                set.member = true;
                continue;
            }
            if !["f:", "k:", "v:", "i:"].iter().any(|prefix| step.starts_with(prefix)) {
                return None;
            }
            let mut child = Self::decode(below)?;
            child.member |= child.below.is_empty();
            set.below.insert(step.clone(), child);
        }
        Some(set)
    }

    /// To `fieldsV1`.
    #[must_use]
    pub fn encode(&self) -> Value {
        let mut fields = Map::new();
        for (step, child) in &self.below {
            let Value::Object(mut encoded) = child.encode() else { continue };
            if child.member && !encoded.is_empty() {
                encoded.insert(".".to_owned(), Value::Object(Map::new()));
            }
            fields.insert(step.clone(), Value::Object(encoded));
        }
        Value::Object(fields)
    }

    /// Adds a step and what is below it, unless that is nothing.
    pub(crate) fn put(&mut self, step: impl Into<String>, child: Self) {
        if !child.is_empty() {
            self.below.entry(step.into()).or_default().unite(child);
        }
    }

    pub(crate) fn unite(&mut self, other: Self) {
        self.member |= other.member;
        if self.below.is_empty() {
            self.below = other.below;
            return;
        }
        for (step, child) in other.below {
            self.below.entry(step).or_default().unite(child);
        }
    }

    /// Takes out the members of another set.
    pub(crate) fn subtract(&mut self, other: &Self) {
        self.member &= !other.member;
        for (step, child) in &other.below {
            if let Some(mine) = self.below.get_mut(step) {
                mine.subtract(child);
                if mine.is_empty() {
                    self.below.remove(step);
                }
            }
        }
    }

    /// What is a member of both.
    #[must_use]
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut both = Self { member: self.member && other.member, below: BTreeMap::new() };
        for (step, child) in &self.below {
            if let Some(theirs) = other.below.get(step) {
                both.put(step.as_str(), child.intersection(theirs));
            }
        }
        both
    }

    /// Takes out a field with all that is below it, by its dotted path.
    pub(crate) fn forget(&mut self, path: &str) {
        let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
        let step = format!("f:{first}");
        match rest {
            None => {
                self.below.remove(&step);
            }
            Some(rest) => {
                if let Some(child) = self.below.get_mut(&step) {
                    child.forget(rest);
                    if child.is_empty() {
                        self.below.remove(&step);
                    }
                }
            }
        }
    }

    /// The members as people read them: `.spec.containers[name="a"].image`.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_paths(&mut String::new(), &mut paths);
        paths
    }

    fn collect_paths(&self, path: &mut String, paths: &mut Vec<String>) {
        for (step, child) in self.in_order() {
            let length = path.len();
            path.push_str(&shown(step));
            if child.member {
                paths.push(path.clone());
            }
            child.collect_paths(path, paths);
            path.truncate(length);
        }
    }

    /// Items of lists stand by their keys as values: 80 is before 443.
    fn in_order(&self) -> Vec<(&str, &Self)> {
        let mut steps: Vec<(&str, &Self)> = self.below.iter().map(|(step, child)| (step.as_str(), child)).collect();
        if steps.iter().any(|(step, _)| !step.starts_with("f:")) {
            steps.sort_by_cached_key(|(step, _)| sort_key(step));
        }
        steps
    }
}

/// The kind of the step, then its values: numbers by size, texts by letters.
fn sort_key(step: &str) -> (u8, Vec<(String, u8, i64, String)>) {
    let (kind, rest) = step.split_once(':').unwrap_or(("", step));
    let by_value = |name: &str, value: &Value| match value.as_i64() {
        Some(number) => (name.to_owned(), 0, number, String::new()),
        None => (name.to_owned(), 1, 0, value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
    };
    match (kind, serde_json::from_str::<Value>(rest)) {
        ("f", _) => (0, vec![(rest.to_owned(), 0, 0, String::new())]),
        ("k", Ok(Value::Object(keys))) => (1, keys.iter().map(|(name, value)| by_value(name, value)).collect()),
        ("v", Ok(value)) => (2, vec![by_value("", &value)]),
        _ => (3, vec![(String::new(), 1, rest.parse().unwrap_or(0), rest.to_owned())]),
    }
}

fn shown(step: &str) -> String {
    let (kind, rest) = step.split_once(':').unwrap_or(("", step));
    let value_shown = |value: &Value| match value {
        Value::String(text) => go::quote(text),
        other => other.to_string(),
    };
    match (kind, serde_json::from_str::<Value>(rest)) {
        ("f", _) => format!(".{rest}"),
        ("k", Ok(Value::Object(keys))) => {
            let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={}", value_shown(value))).collect();
            format!("[{}]", keys.join(","))
        }
        ("v", Ok(value)) => format!("[={}]", value_shown(&value)),
        _ => format!("[{rest}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields() -> Value {
        json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:finalizers": {"v:\"x/y\"": {}}},
            "f:spec": {"f:ports": {
                "k:{\"port\":443,\"protocol\":\"TCP\"}": {},
                "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}},
        })
    }

    #[test]
    fn a_set_is_read_and_written() {
        let set = FieldSet::decode(&fields()).unwrap();
        assert_eq!(set.encode(), fields());
        assert_eq!(
            set.paths(),
            [
                ".metadata.finalizers[=\"x/y\"]",
                ".metadata.labels",
                ".metadata.labels.a",
                ".spec.ports[port=80,protocol=\"TCP\"]",
                ".spec.ports[port=80,protocol=\"TCP\"].port",
                ".spec.ports[port=443,protocol=\"TCP\"]",
            ]
        );
        for odd in [json!(5), json!({"x": {}}), json!({"f:a": 1}), json!({"f:a": {"b": {}}})] {
            assert!(FieldSet::decode(&odd).is_none(), "{odd}");
        }
    }

    #[test]
    fn sets_subtract_intersect_and_unite() {
        let set = FieldSet::decode(&fields()).unwrap();
        let some = FieldSet::decode(&json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:other": {}})).unwrap();
        let both = set.intersection(&some);
        assert_eq!(both.paths(), [".metadata.labels.a"]);
        let mut rest = set.clone();
        rest.subtract(&some);
        assert_eq!(rest.encode()["f:metadata"]["f:labels"], json!({}));
        rest.unite(both);
        assert_eq!(rest, set);
        rest.forget("metadata.labels");
        rest.forget("spec");
        rest.forget("nothing.at.all");
        assert_eq!(rest.paths(), [".metadata.finalizers[=\"x/y\"]"]);
    }
}
