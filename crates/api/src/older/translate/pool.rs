//! The NodePool's share: what nodes look like to Kubernetes, how many there may be, when they go.

use serde_json::{Map, Value, json};

use super::read::{Section, Told};
use super::requirements::{self, Requirements};
use crate::duration::NEVER;
use crate::labels;
use crate::older::marks::PROVISIONER_NAME_LABEL;
use crate::validate::is_quantity;

pub(super) struct Pool {
    pub(super) spec: Value,
    pub(super) requirements: Requirements,
}

const KNOWN: &[&str] = &[
    "annotations",
    "labels",
    "taints",
    "startupTaints",
    "requirements",
    "kubeletConfiguration",
    "kubelet",
    "provider",
    "providerRef",
    "ttlSecondsAfterEmpty",
    "ttlSecondsUntilExpired",
    "limits",
    "weight",
    "consolidation",
];

pub(super) fn spec(spec: &Section<'_>, inline: Option<&Section<'_>>, class_name: &str, told: &mut Told) -> Pool {
    spec.tell_unknown(KNOWN, told);
    let labels = labels(spec, told);
    let requirements = requirements::of(spec, inline, &labels, told);

    let mut metadata = Map::new();
    put(&mut metadata, "labels", Value::Object(labels));
    put(&mut metadata, "annotations", json!(spec.texts("annotations", told)));
    let mut template = Map::new();
    put(&mut template, "metadata", Value::Object(metadata));

    let mut node = Map::new();
    put(&mut node, "taints", taints(spec, "taints", told));
    put(&mut node, "startupTaints", taints(spec, "startupTaints", told));
    node.insert("requirements".to_owned(), Value::Array(requirements.items.clone()));
    node.insert(
        "nodeClassRef".to_owned(),
        json!({"group": labels::AWS_GROUP, "kind": "EC2NodeClass", "name": class_name}),
    );
    node.insert("expireAfter".to_owned(), expiry(spec, told).into());
    template.insert("spec".to_owned(), Value::Object(node));

    let mut made = Map::new();
    made.insert("template".to_owned(), Value::Object(template));
    made.insert("disruption".to_owned(), disruption(spec, told));
    put(&mut made, "limits", limits(spec, told));
    // Zero was how "unset" could be said; v1 begins at one.
    if let Some(weight) = spec.integer("weight", told).filter(|weight| *weight != 0) {
        made.insert("weight".to_owned(), weight.into());
    }
    Pool { spec: Value::Object(made), requirements }
}

/// Inserts what is not empty.
pub(super) fn put(fields: &mut Map<String, Value>, name: &str, value: Value) {
    let is_empty = match &value {
        Value::Object(entries) => entries.is_empty(),
        Value::Array(items) => items.is_empty(),
        other => other.is_null(),
    };
    if !is_empty {
        fields.insert(name.to_owned(), value);
    }
}

fn labels(spec: &Section<'_>, told: &mut Told) -> Map<String, Value> {
    let place = spec.at("labels");
    let mut kept = Map::new();
    for (key, value) in spec.texts("labels", told) {
        if key == PROVISIONER_NAME_LABEL || key == labels::NODE_POOL {
            told.warn(place.entry(&key), "nodes get this label anyway; it is left out");
            continue;
        }
        let meant = requirements::repaired_key(&key);
        if meant != key {
            told.warn(place.entry(&key), format!("there is no such label; it is read as {meant}"));
        }
        kept.insert(meant.to_owned(), value.into());
    }
    kept
}

fn taints(spec: &Section<'_>, field: &str, told: &mut Told) -> Value {
    let mut taints = Vec::new();
    for taint in spec.sections(field, told) {
        let mut made = Map::new();
        for name in ["key", "value", "effect"] {
            // An empty value is no value; v1 wants it left out.
            if let Some(text) = taint.word(name, told) {
                made.insert(name.to_owned(), text.into());
            }
        }
        taint.tell_unknown(&["key", "value", "effect", "timeAdded"], told);
        taints.push(Value::Object(made));
    }
    Value::Array(taints)
}

/// What is absent meant "never"; v1 would put 30 days.
fn expiry(spec: &Section<'_>, told: &mut Told) -> String {
    const FIELD: &str = "ttlSecondsUntilExpired";
    match seconds(spec, FIELD, told) {
        None => NEVER.to_owned(),
        Some(0) => {
            told.refuse(
                spec.at(FIELD),
                &json!(0),
                "no node would outlive its start; write an age in seconds, or leave it out",
            );
            NEVER.to_owned()
        }
        Some(age_s) => duration(age_s, spec, FIELD, told),
    }
}

fn disruption(spec: &Section<'_>, told: &mut Told) -> Value {
    const FIELD: &str = "ttlSecondsAfterEmpty";
    let consolidation = spec.section("consolidation", told);
    consolidation.tell_unknown(&["enabled"], told);
    let merges = consolidation.boolean("enabled", told).unwrap_or(false);
    let (policy, after) = match (seconds(spec, FIELD, told), merges) {
        (None, true) => ("WhenEmptyOrUnderutilized", "0s".to_owned()),
        (None, false) => ("WhenEmpty", NEVER.to_owned()),
        (Some(idle_s), false) => ("WhenEmpty", duration(idle_s, spec, FIELD, told)),
        (Some(idle_s), true) => {
            told.refuse(spec.at(FIELD), &json!(idle_s), "it excludes consolidation.enabled; set one of them");
            ("WhenEmpty", NEVER.to_owned())
        }
    };
    json!({"consolidationPolicy": policy, "consolidateAfter": after})
}

fn seconds(spec: &Section<'_>, field: &str, told: &mut Told) -> Option<i64> {
    let seconds = spec.integer(field, told)?;
    if seconds < 0 {
        told.refuse(spec.at(field), &json!(seconds), "a number of seconds is not below zero");
        return None;
    }
    Some(seconds)
}

/// A duration counts nanoseconds in 64 bits; who wrote more than the 292 years that fit meant "never".
fn duration(seconds: i64, spec: &Section<'_>, field: &str, told: &mut Told) -> String {
    if seconds > i64::MAX / 1_000_000_000 {
        told.warn(spec.at(field), "longer than 292 years; it becomes Never");
        return NEVER.to_owned();
    }
    format!("{seconds}s")
}

fn limits(spec: &Section<'_>, told: &mut Told) -> Value {
    let limits = spec.section("limits", told);
    let resources = limits.section("resources", told);
    for (name, value) in limits.entries().filter(|(name, _)| *name != "resources") {
        told.refuse(limits.at(name), value, "a limit stands under limits.resources; move it there");
    }
    let mut kept = Map::new();
    for (resource, amount) in resources.entries() {
        let text = match amount {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => String::new(),
        };
        if is_quantity(&text) {
            kept.insert(resource.clone(), text.into());
        } else {
            told.refuse(resources.place.entry(resource), amount, "an amount such as 100, \"500m\" or 64Gi would do");
        }
    }
    Value::Object(kept)
}
