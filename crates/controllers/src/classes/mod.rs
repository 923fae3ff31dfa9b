//! `nodeclass`: lets the provider look up what a node class names, and writes what it found onto the class; and sees a class
//! off when it goes.
//!
//! ```text
//! class changed, or time to look again ─▶ finalizer ─▶ CloudCall::ResolveClass ─▶ ClassStatus ─┬▶ claims of an older hash
//!                                                                                               ├▶ annotations
//!                                                                                               └▶ status
//! class deleted ─▶ wait for its claims ─▶ CloudCall::EndClass ─▶ finalizer goes
//! ```
//!
//! What a class means is the provider's business, and whether it has a finalizer or a hash. For one that has nothing to add,
//! nothing is written.

pub mod hash;

use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::{ApiCall, CloudAnswer, CloudCall, Outcome};
use crate::events::{About, Event};
use crate::queue::Queue;
use crate::resource::Resource;
use crate::world::{Change, World};
use crate::write;
use kerf_cloud::{ClassStatus, CloudError, CloudProvider, NodeClassKind};
use kerf_mirror::NodeClassObject;
use kerf_model::{NodeClassRef, Text, UnixMillis};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const NAME: &str = "nodeclass";

/// A class that waits for its claims is looked at again when one of them is gone, or after this.
const WAIT_FOR_CLAIMS_MS: i64 = 600_000;
/// So many claims are named in an event.
const NAMED_MAX: usize = 5;

pub struct Classes {
    queue: Queue<NodeClassRef>,
    /// The version that the provider was asked about last: what we write ourselves is no reason to ask again.
    known: BTreeMap<NodeClassRef, Known>,
    /// What is to be written, step by step.
    to_write: BTreeMap<NodeClassRef, Vec<Value>>,
    /// Annotations that the provider writes.
    own_annotations: BTreeSet<String>,
    /// Wanted a look while an errand of theirs was under way.
    held: BTreeSet<NodeClassRef>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    generation: Option<i64>,
    is_deleting: bool,
    /// Other people's: a change of them is a wish to be looked at.
    annotations: BTreeMap<String, String>,
}

impl Default for Classes {
    fn default() -> Self {
        Self {
            queue: Queue::new(1_000, 60_000),
            known: BTreeMap::new(),
            to_write: BTreeMap::new(),
            own_annotations: BTreeSet::new(),
            held: BTreeSet::new(),
        }
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
                self.held.remove(class);
            }
            Change::Class { class, after: Some(after), .. } if self.known.get(class) != Some(&self.known_of(after)) => {
                self.queue.add(class.clone());
            }
            Change::Claim { before: Some(before), after: None, .. } => {
                let is_its = |(class, object): &(&NodeClassRef, &Arc<NodeClassObject>)| {
                    object.metadata.deletion_timestamp.is_some() && hash::is_of(before, class)
                };
                if let Some((class, _)) = world.classes.iter().find(is_its) {
                    self.queue.add(class.clone());
                }
            }
            Change::Synced => world.classes.keys().for_each(|class| self.queue.add(class.clone())),
            _ => {}
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        // Claims that have not been seen yet would lose their class, or keep an old hash.
        if !desk.world.is_synced() {
            return None;
        }
        for class in self.queue.take_due(desk.now) {
            let key = key_of(&class);
            let Some(object) = desk.world.classes.get(&class).cloned() else {
                continue;
            };
            let Some(kind) = kind_of(&**desk.cloud, &class) else {
                continue;
            };
            if desk.is_busy(&key) {
                self.held.insert(class);
                continue;
            }
            self.to_write.remove(&class);
            self.known.insert(class.clone(), self.known_of(&object));
            match object.metadata.deletion_timestamp.is_some() {
                true => self.see_off(desk, &kind, &class, &object),
                false => look(desk, &kind, &class, &object),
            }
        }
        self.queue.next()
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        // A claim's key has its class in front.
        let (of_class, is_of_claim) = match key.rsplit_once('#') {
            Some((class, _)) => (Text::from(class), true),
            None => (key.clone(), false),
        };
        let Some(class) = self.known.keys().find(|class| key_of(class) == of_class).cloned() else {
            return;
        };
        if is_of_claim {
            // Whatever became of this one, another look finds those that are left.
            match outcome {
                Outcome::Api(Err(failure)) if !failure.is_not_found() => self.failed(&class, &failure, desk.now),
                _ => self.queue.add(class),
            }
            return;
        }
        match outcome {
            Outcome::Cloud(Ok(CloudAnswer::Class(status))) => {
                self.queue.succeeded(&class);
                self.resolved(desk, &class, &status);
            }
            Outcome::Cloud(Ok(CloudAnswer::Done)) => {
                self.queue.succeeded(&class);
                if let Some(patch) = without_finalizer(desk, &class) {
                    self.to_write.insert(class.clone(), vec![patch]);
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
                    self.failed(&class, &failure, desk.now);
                }
            }
            Outcome::Api(Ok(stored)) => {
                // Our finalizer is on it: now it may be looked at.
                let is_first = !self.to_write.contains_key(&class) && stored["metadata"]["deletionTimestamp"].is_null();
                if is_first {
                    self.queue.add(class.clone());
                }
            }
            Outcome::Thought { .. } => {}
        }
        self.write_next(desk, key, &class);
        if !desk.is_busy(key) && self.held.remove(&class) {
            self.queue.add(class);
        }
    }
}

impl Classes {
    /// A class that is going: once no claim needs it, what the cloud holds for it goes, and then the finalizer.
    fn see_off(&mut self, desk: &mut Desk<'_>, kind: &NodeClassKind, class: &NodeClassRef, object: &NodeClassObject) {
        let finalizers = object.metadata.finalizers.as_deref().unwrap_or_default();
        if !kind.finalizer.is_some_and(|ours| finalizers.iter().any(|finalizer| finalizer == ours)) {
            return;
        }
        let users: Vec<&str> =
            desk.world.claims.iter().filter(|(_, claim)| hash::is_of(claim, class)).map(|(name, _)| &**name).collect();
        if users.is_empty() {
            return desk.ask_cloud(&key_of(class), CloudCall::EndClass(object.value.clone()));
        }
        let more = users.len().saturating_sub(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} other(s)") } else { String::new() };
        let names = users.iter().copied().take(NAMED_MAX).collect::<Vec<_>>().join(", ");
        let message = format!("Waiting on NodeClaim termination for {names}{more}");
        let about = About::of(resource(kind), &object.metadata);
        desk.event(Event::normal(about, "WaitingOnNodeClaimTermination", message));
        self.queue.add_at(class.clone(), UnixMillis(desk.now.0.saturating_add(WAIT_FOR_CLAIMS_MS)));
    }

    /// The provider has answered: claims first, then annotations and status.
    fn resolved(&mut self, desk: &mut Desk<'_>, class: &NodeClassRef, found: &ClassStatus) {
        let (Some(object), Some(kind)) = (desk.world.classes.get(class).cloned(), kind_of(&**desk.cloud, class)) else {
            return;
        };
        self.own_annotations.extend(found.annotations.keys().map(ToString::to_string));
        if let Some(known) = self.known.get_mut(class) {
            known.annotations.retain(|key, _| !self.own_annotations.contains(key));
        }
        if self.known.get(class) != Some(&self.known_of(&object)) {
            // It has changed meanwhile: what was found is about another class.
            return self.queue.add(class.clone());
        }
        if let Some(after) = found.again_after {
            let after_ms = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
            self.queue.add_at(class.clone(), UnixMillis(desk.now.0.saturating_add(after_ms)));
        }
        let migrations = hash::migrations(&kind, class, &object, found, desk.world.claims.values());
        let mut writes = patches(&object.value, found);
        if !migrations.is_empty() {
            writes.retain(|patch| patch.get("status").is_some());
        }
        for (claim, call) in migrations {
            let key: Text = format!("{}#{claim}", key_of(class)).into();
            if !desk.is_busy(&key) {
                desk.call(&key, call);
            }
        }
        self.to_write.insert(class.clone(), writes);
    }

    /// Sends the next write off, unless the class has moved on: then the server refuses it.
    fn write_next(&mut self, desk: &mut Desk<'_>, key: &Text, class: &NodeClassRef) {
        let (Some(kind), Some(object)) = (kind_of(&**desk.cloud, class), desk.world.classes.get(class)) else {
            return;
        };
        let Some(patches) = self.to_write.get_mut(class).filter(|patches| !patches.is_empty()) else {
            return;
        };
        let patch = write::if_unchanged(patches.remove(0), object.metadata.resource_version.as_deref());
        desk.call(key, call(&kind, class, patch));
    }

    fn failed(&mut self, class: &NodeClassRef, failure: &crate::errand::ApiFailure, now: UnixMillis) {
        let wait_ms = self.queue.retry(class.clone(), now);
        // Somebody else was faster: nothing to be alarmed about.
        if !failure.is_conflict() {
            tracing::error!(controller = NAME, name = %class.name, kind = %class.kind, error = %failure, wait_ms, "Reconciler error");
        }
    }

    fn known_of(&self, object: &NodeClassObject) -> Known {
        let annotations = object.metadata.annotations.iter().flatten();
        Known {
            generation: object.metadata.generation,
            is_deleting: object.metadata.deletion_timestamp.is_some(),
            annotations: annotations
                .filter(|(key, _)| !self.own_annotations.contains(*key))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
        }
    }
}

/// Puts the finalizer on, where the kind has one, before anything is made for the class; else asks.
fn look(desk: &mut Desk<'_>, kind: &NodeClassKind, class: &NodeClassRef, object: &NodeClassObject) {
    let mut finalizers = object.metadata.finalizers.clone().unwrap_or_default();
    if let Some(ours) = kind.finalizer.filter(|ours| !finalizers.iter().any(|finalizer| finalizer == ours)) {
        finalizers.push(ours.to_owned());
        let patch = json!({"metadata": {"finalizers": finalizers}});
        let patch = write::if_unchanged(patch, object.metadata.resource_version.as_deref());
        return desk.call(&key_of(class), call(kind, class, patch));
    }
    desk.ask_cloud(&key_of(class), CloudCall::ResolveClass(object.value.clone()));
}

fn without_finalizer(desk: &Desk<'_>, class: &NodeClassRef) -> Option<Value> {
    let ours = kind_of(&**desk.cloud, class)?.finalizer?;
    let finalizers = desk.world.classes.get(class)?.metadata.finalizers.clone().unwrap_or_default();
    let others: Vec<String> = finalizers.into_iter().filter(|finalizer| finalizer != ours).collect();
    Some(json!({"metadata": {"finalizers": others}}))
}

fn key_of(class: &NodeClassRef) -> Text {
    format!("{}/{}/{}", class.group, class.kind, class.name).into()
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
    if patch.get("status").is_some() {
        write::patch_status(resource(kind), "", &class.name, patch)
    } else {
        write::patch(resource(kind), "", &class.name, patch)
    }
}

fn resource(kind: &NodeClassKind) -> Resource {
    Resource { group: kind.group, version: kind.version, plural: kind.plural, kind: kind.kind, is_namespaced: false }
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
