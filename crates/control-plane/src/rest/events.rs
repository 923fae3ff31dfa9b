//! Events: one store, two groups that show it, and the recorder that the cluster's controllers share.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};

use super::write::Write;
use crate::clock;
use crate::hands::Event;
use crate::kind::Resource;
use crate::state::State;
use crate::store::Stored;

/// Whether this resource only shows what another one keeps.
pub(super) fn is_second_group(resource: &Resource) -> bool {
    resource.group != resource.stored_as.0 || resource.plural != resource.stored_as.1
}

/// A stored object's bytes, as this resource shows them.
pub(super) fn json_in(resource: &Resource, stored: &Stored) -> Bytes {
    if is_second_group(resource) { Bytes::from(shown_in(resource, stored.value()).to_string()) } else { stored.json() }
}

/// The fields that the two groups name differently: in core/v1, and in events.k8s.io/v1.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// A core event as events.k8s.io shows it. Other objects stay as they are.
pub(super) fn shown_in(resource: &Resource, mut object: Value) -> Value {
    if is_second_group(resource)
        && let Some(map) = object.as_object_mut()
    {
        for (core, new) in RENAMED {
            if let Some(value) = map.remove(core) {
                map.insert(new.to_owned(), value);
            }
        }
        map.insert("apiVersion".to_owned(), resource.api_version().into());
    }
    object
}

/// An event of events.k8s.io in the form that is kept. Other objects stay as they are.
pub(super) fn to_core(object: &mut Value) {
    if object["apiVersion"] != "events.k8s.io/v1" {
        return;
    }
    if let Some(map) = object.as_object_mut() {
        for (core, new) in RENAMED {
            if let Some(value) = map.remove(new) {
                map.insert(core.to_owned(), value);
            }
        }
        map.insert("apiVersion".to_owned(), "v1".into());
    }
}

/// What the controllers have told before: the same thing again only counts.
#[derive(Debug, Default)]
pub struct Recorder {
    told: BTreeMap<(String, String, String, String), Told>,
}

#[derive(Debug)]
struct Told {
    namespace: String,
    name: String,
    count: u64,
}

/// Beyond this many different events the recorder forgets what it has told, and tells it anew.
const TOLD_MAX: usize = 4096;

impl State {
    /// Tells an event, or counts one that was told before.
    pub(crate) fn record(&mut self, event: Event<'_>) {
        let about = &event.about;
        let key = (
            [&about.kind, &about.namespace, &about.name, &about.uid, &about.field_path]
                .map(|part| part.as_deref().unwrap_or_default())
                .join("/"),
            event.reason.to_owned(),
            event.note.clone(),
            event.component.to_owned(),
        );
        let Some(resource) = self.catalog.get("", "v1", "events").cloned() else { return };
        let now = self.now();
        let write = Write::by(event.component);
        if let Some(told) = self.recorder.told.get_mut(&key) {
            told.count += 1;
            let (namespace, name, count) = (told.namespace.clone(), told.name.clone(), told.count);
            if let Some(live) = self.find(&resource, &namespace, &name) {
                let mut object = live.value();
                if event.component == "default-scheduler" {
                    object["series"] = json!({ "count": count, "lastObservedTime": clock::micros(now) });
                } else {
                    object["count"] = json!(count);
                    object["lastTimestamp"] = json!(clock::seconds(now));
                }
                // An event is a courtesy: when it cannot be told, the work goes on.
                let _ = self.update_object(&resource, &live, object, &write);
                return;
            }
            self.recorder.told.remove(&key);
        }
        let namespace = about.namespace.clone().filter(|it| !it.is_empty()).unwrap_or_else(|| "default".to_owned());
        let nanos = u64::try_from(now.as_nanosecond()).unwrap_or_default();
        let unique = nanos.wrapping_add(self.store.revision());
        let name = format!("{}.{unique:x}", about.name.as_deref().unwrap_or_default());
        let object = event_object(&event, &namespace, &name, now);
        if self.create_object(&resource, &namespace, object, &write).is_ok() {
            if self.recorder.told.len() >= TOLD_MAX {
                self.recorder.told.clear();
            }
            self.recorder.told.insert(key, Told { namespace, name, count: 1 });
        }
    }
}

fn event_object(event: &Event<'_>, namespace: &str, name: &str, now: jiff::Timestamp) -> Value {
    let about = serde_json::to_value(&event.about).unwrap_or_default();
    let mut object = json!({
        "kind": "Event", "apiVersion": "v1",
        "metadata": { "name": name, "namespace": namespace },
        "involvedObject": about,
        "reason": event.reason,
        "message": event.note,
        "type": event.kind,
        "reportingComponent": event.component,
    });
    // The scheduler tells through the newer group, which counts in another place.
    if event.component == "default-scheduler" {
        object["eventTime"] = json!(clock::micros(now));
        object["action"] = json!(event.action);
        object["reportingInstance"] = json!("default-scheduler-kerf");
        object["source"] = json!({});
        object["firstTimestamp"] = Value::Null;
        object["lastTimestamp"] = Value::Null;
    } else {
        object["eventTime"] = Value::Null;
        object["source"] = json!({ "component": event.component });
        object["firstTimestamp"] = json!(clock::seconds(now));
        object["lastTimestamp"] = json!(clock::seconds(now));
        object["count"] = json!(1);
        object["reportingInstance"] = json!("");
    }
    object
}
