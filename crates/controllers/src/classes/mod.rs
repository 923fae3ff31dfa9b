//! `nodeclass`: lets the provider look up what a node class names, and writes what it found onto the class.
//!
//! ```text
//! class changed, or time to look again ─▶ CloudCall::ResolveClass ─▶ ClassStatus ─┬▶ annotations
//!                                                                                  └▶ status
//! ```
//!
//! What a class means is the provider's business. For one that has nothing to add, nothing is written.

use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::{ApiCall, CloudAnswer, CloudCall, Outcome};
use crate::queue::Queue;
use crate::resource::Resource;
use crate::world::{Change, World};
use crate::write;
use kerf_cloud::{ClassStatus, CloudError, CloudProvider, NodeClassKind};
use kerf_mirror::NodeClassObject;
use kerf_model::{NodeClassRef, Text, UnixMillis};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const NAME: &str = "nodeclass";

pub struct Classes {
    queue: Queue<NodeClassRef>,
    /// The version that the provider was asked about last: what we write ourselves is no reason to ask again.
    known: BTreeMap<NodeClassRef, Known>,
    /// What is to be written, step by step.
    to_write: BTreeMap<NodeClassRef, Vec<Value>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    generation: Option<i64>,
    is_deleting: bool,
}

impl Default for Classes {
    fn default() -> Self {
        Self { queue: Queue::new(1_000, 60_000), known: BTreeMap::new(), to_write: BTreeMap::new() }
    }
}

impl Duty for Classes {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, change: &Change, world: &World) {
        match change {
            Change::Class { class, after: None, .. } => {
                self.queue.forget(class);
                self.known.remove(class);
                self.to_write.remove(class);
            }
            Change::Class { class, after: Some(after), .. } if self.known.get(class) != Some(&known(after)) => {
                self.queue.add(class.clone());
            }
            Change::Synced => world.classes.keys().for_each(|class| self.queue.add(class.clone())),
            _ => {}
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        for class in self.queue.take_due(desk.now) {
            let key = key_of(&class);
            let Some(object) = desk.world.classes.get(&class).cloned() else {
                continue;
            };
            if desk.is_busy(&key) || kind_of(&**desk.cloud, &class).is_none() {
                continue;
            }
            self.to_write.remove(&class);
            self.known.insert(class, known(&object));
            desk.ask_cloud(&key, CloudCall::ResolveClass(Arc::new(object.value.clone())));
        }
        self.queue.next()
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        let Some(class) = self.known.keys().find(|class| key_of(class) == *key).cloned() else {
            return;
        };
        match outcome {
            Outcome::Cloud(Ok(CloudAnswer::Class(status))) => {
                self.queue.succeeded(&class);
                if let Some(object) = desk.world.classes.get(&class) {
                    if known(object) != self.known[&class] {
                        self.queue.add(class.clone());
                    }
                    if let Some(after) = status.again_after {
                        let after_ms = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
                        self.queue.add_at(class.clone(), UnixMillis(desk.now.0.saturating_add(after_ms)));
                    }
                    self.to_write.insert(class.clone(), patches(&object.value, &status));
                }
            }
            Outcome::Cloud(Ok(_)) => {}
            Outcome::Cloud(Err(CloudError::Unsupported { .. })) => {}
            Outcome::Cloud(Err(error)) => {
                let wait_ms = self.queue.retry(class.clone(), desk.now);
                tracing::error!(controller = NAME, name = %class.name, kind = %class.kind, error = %error, wait_ms, "cannot resolve the node class");
            }
            Outcome::Api(Err(failure)) => {
                // What the provider said is asked for again rather than kept: by then it may say something else.
                self.to_write.remove(&class);
                if !failure.is_not_found() {
                    let wait_ms = self.queue.retry(class.clone(), desk.now);
                    tracing::error!(controller = NAME, name = %class.name, kind = %class.kind, error = %failure, wait_ms, "Reconciler error");
                }
            }
            Outcome::Api(Ok(_)) | Outcome::Thought { .. } => {}
        }
        if let Some(patches) = self.to_write.get_mut(&class)
            && !patches.is_empty()
            && let Some(kind) = kind_of(&**desk.cloud, &class)
        {
            let patch = patches.remove(0);
            desk.call(key, call(&kind, &class, patch));
        }
    }
}

fn key_of(class: &NodeClassRef) -> Text {
    format!("{}/{}/{}", class.group, class.kind, class.name).into()
}

fn known(object: &NodeClassObject) -> Known {
    Known { generation: object.metadata.generation, is_deleting: object.metadata.deletion_timestamp.is_some() }
}

fn kind_of(cloud: &dyn CloudProvider, class: &NodeClassRef) -> Option<NodeClassKind> {
    cloud.node_classes().into_iter().find(|kind| kind.is(class))
}

/// What of the provider's word the class does not say yet, the annotations first.
fn patches(class: &Value, found: &ClassStatus) -> Vec<Value> {
    let mut out = Vec::new();
    let has = |key: &str, value: &str| class["metadata"]["annotations"][key] == value;
    if found.annotations.iter().any(|(key, value)| !has(key, value)) {
        let annotations: BTreeMap<&str, &str> =
            found.annotations.iter().map(|(key, value)| (&**key, &**value)).collect();
        out.push(json!({"metadata": {"annotations": annotations}}));
    }
    let is_said = found.status.is_null() || merged(&class["status"], &found.status) == class["status"];
    if !is_said {
        out.push(json!({"status": found.status}));
    }
    out
}

/// What a merge patch makes of a value.
fn merged(value: &Value, patch: &Value) -> Value {
    let Value::Object(changes) = patch else {
        return patch.clone();
    };
    let mut out = value.as_object().cloned().unwrap_or_default();
    for (key, change) in changes {
        if change.is_null() {
            out.remove(key);
        } else {
            out.insert(key.clone(), merged(out.get(key).unwrap_or(&Value::Null), change));
        }
    }
    Value::Object(out)
}

fn call(kind: &NodeClassKind, class: &NodeClassRef, patch: Value) -> ApiCall {
    let resource = Resource {
        group: kind.group,
        version: kind.version,
        plural: kind.plural,
        kind: kind.kind,
        is_namespaced: false,
    };
    if patch.get("status").is_some() {
        write::patch_status(resource, "", &class.name, patch)
    } else {
        write::patch(resource, "", &class.name, patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_class_does_not_say_yet_is_written() {
        let class = json!({
            "metadata": {"annotations": {"hash": "1"}},
            "status": {"subnets": [{"id": "a"}], "conditions": [{"type": "Ready"}], "old": true},
        });
        let found = |hash: &str, status: Value| ClassStatus {
            status,
            annotations: BTreeMap::from([("hash".into(), hash.into())]),
            again_after: None,
        };
        assert!(patches(&class, &found("1", Value::Null)).is_empty(), "nothing to add");
        assert!(patches(&class, &found("1", json!({"subnets": [{"id": "a"}]}))).is_empty(), "said already");
        assert_eq!(
            patches(&class, &found("2", json!({"subnets": [], "old": null}))),
            [json!({"metadata": {"annotations": {"hash": "2"}}}), json!({"status": {"subnets": [], "old": null}})]
        );
    }
}
