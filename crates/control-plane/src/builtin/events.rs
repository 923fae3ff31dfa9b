//! Events stand in two groups under different field names. They are kept as the core group writes them.

use serde_json::{Map, Value};

use super::tree::open;

/// events.k8s.io, core.
const NAMES: [(&str, &str); 7] = [
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

/// An event of events.k8s.io as it is kept.
pub fn event_to_core(object: &mut Value) {
    rename(open(object, ""), NAMES.into_iter());
    let event = open(object, "");
    event.insert("apiVersion".to_owned(), Value::from("v1"));
    for key in ["reportingComponent", "reportingInstance"] {
        event.entry(key).or_insert(Value::from(""));
    }
}

/// A kept event as events.k8s.io shows it.
pub fn event_from_core(object: &mut Value) {
    rename(open(object, ""), NAMES.into_iter().map(|(theirs, core)| (core, theirs)));
    let event = open(object, "");
    event.insert("apiVersion".to_owned(), Value::from("events.k8s.io/v1"));
    for key in ["reportingController", "reportingInstance"] {
        if event.get(key).and_then(Value::as_str) == Some("") {
            event.remove(key);
        }
    }
}

fn rename(event: &mut Map<String, Value>, names: impl Iterator<Item = (&'static str, &'static str)>) {
    for (from, to) in names {
        if let Some(value) = event.remove(from) {
            event.insert(to.to_owned(), value);
        }
    }
}
