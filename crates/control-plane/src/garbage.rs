//! The garbage collector: what nobody owns any more goes, in the order that the deletion asked for.
//!
//! ```text
//! background   the owner is gone              ─▶ its dependents are deleted
//! foreground   the owner waits, being deleted ─▶ dependents are deleted first; then `foregroundDeletion` leaves the owner
//! orphan       the owner waits, being deleted ─▶ dependents forget it; then `orphan` leaves the owner
//! ```

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::drive::Controller;
use crate::hands::Hands;
use crate::kind::Resource;
use crate::rest::Write;
use crate::shared::Shared;
use crate::state::{State, set_meta, unset_meta};
use crate::store::{Change, ChangeKind, Key, Owner, ResourceId, Stored};

/// Where an object is.
type Place = (ResourceId, Key);

/// An object that is there, found by its uid.
#[derive(Debug)]
struct Living {
    resource: Arc<ResourceId>,
    stored: Arc<Stored>,
}

#[derive(Debug, Default)]
pub struct GarbageCollector {
    living: BTreeSet<Living>,
    resources: Shared<ResourceId>,
    /// Dependents by the uid of their owner.
    dependents: BTreeMap<String, BTreeSet<Place>>,
    /// Objects with owners that may be gone.
    doubtful: BTreeSet<Place>,
    /// Owners that wait for their dependents.
    waiting: BTreeSet<Place>,
}

impl Controller for GarbageCollector {
    fn name(&self) -> &'static str {
        "garbage-collector"
    }

    fn observe(&mut self, change: &Change) {
        let place = (change.resource.clone(), change.object.key.clone());
        for owner in change.before.iter().flat_map(|before| &before.owners) {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(&place);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
                self.look_at_owner(owner);
            }
        }
        let uid = &*change.object.uid;
        if change.kind == ChangeKind::Deleted {
            self.living.remove(uid);
            self.doubtful.remove(&place);
            self.waiting.remove(&place);
            if let Some(left) = self.dependents.get(uid) {
                self.doubtful.extend(left.iter().cloned());
            }
            return;
        }
        let resource = self.resources.share(Arc::new(change.resource.clone()));
        self.living.replace(Living { resource, stored: Arc::clone(&change.object) });
        for owner in &change.object.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(place.clone());
            self.look_at_owner(owner);
        }
        if change.before.is_none() && !change.object.owners.is_empty() {
            self.doubtful.insert(place.clone());
        }
        if change.object.is_deleting {
            self.waiting.insert(place);
            // Dependents of an owner that waits for them must be looked at.
            if let Some(dependents) = self.dependents.get(uid) {
                self.doubtful.extend(dependents.iter().cloned());
            }
        }
    }

    fn work(&mut self, hands: &mut Hands<'_>) -> Option<Timestamp> {
        let state = hands.state();
        for place in std::mem::take(&mut self.doubtful) {
            self.judge(state, &place);
        }
        for place in std::mem::take(&mut self.waiting) {
            self.release(state, &place);
        }
        None
    }
}

impl GarbageCollector {
    fn look_at_owner(&mut self, owner: &Owner) {
        if let Some(living) = self.living.get(owner.uid.as_str()) {
            self.waiting.insert(living.place());
        }
    }

    /// Deletes an object whose owners are all gone or all waiting for it to go; lets it forget those that are gone.
    fn judge(&self, state: &mut State, place: &Place) {
        let Some((resource, live)) = find(state, place) else { return };
        if live.owners.is_empty() || live.is_deleting {
            return;
        }
        let (mut solid, mut waiting, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for owner in &live.owners {
            match self.living.get(owner.uid.as_str()).and_then(|living| find(state, &living.place())) {
                None => gone.push(owner.uid.clone()),
                Some((_, stored)) if stored.is_deleting && has_finalizer(&stored.value(), "foregroundDeletion") => {
                    waiting.push(owner.uid.clone());
                }
                Some(_) => solid.push(owner.uid.clone()),
            }
        }
        if !solid.is_empty() {
            if gone.is_empty() && waiting.is_empty() {
                return;
            }
            let forget: Vec<String> = gone.into_iter().chain(waiting).collect();
            forget_owners(state, &resource, &live, &forget);
            return;
        }
        let has_dependents = self.dependents.contains_key(&*live.uid);
        let policy = if !waiting.is_empty() && has_dependents { "Foreground" } else { "Background" };
        let value = live.value();
        let policy = match () {
            () if has_finalizer(&value, "orphan") => "Orphan",
            () if has_finalizer(&value, "foregroundDeletion") => "Foreground",
            () => policy,
        };
        let options = json!({ "propagationPolicy": policy, "preconditions": { "uid": live.uid } });
        // A refusal leaves it as it is; the next change of it or its owners brings us back.
        let _ = state.delete_object(&resource, &live, &options);
    }

    /// Lets an owner go that waits for its dependents, once they are gone or have forgotten it.
    fn release(&self, state: &mut State, place: &Place) {
        let Some((resource, live)) = find(state, place) else { return };
        if !live.is_deleting {
            return;
        }
        let value = live.value();
        let dependents: Vec<Place> =
            self.dependents.get(&*live.uid).map(|places| places.iter().cloned().collect()).unwrap_or_default();
        if has_finalizer(&value, "orphan") {
            for place in &dependents {
                let Some((resource, dependent)) = find(state, place) else { continue };
                forget_owners(state, &resource, &dependent, &[live.uid.to_string()]);
            }
            remove_finalizer(state, &resource, &live, "orphan");
        } else if has_finalizer(&value, "foregroundDeletion") {
            let is_blocked = dependents.iter().filter_map(|place| find(state, place)).any(|(_, dependent)| {
                dependent.owners.iter().any(|owner| *owner.uid == *live.uid && owner.blocks_deletion)
            });
            for place in &dependents {
                self.judge(state, place);
            }
            if !is_blocked {
                remove_finalizer(state, &resource, &live, "foregroundDeletion");
            }
        }
    }
}

impl Living {
    fn place(&self) -> Place {
        (ResourceId::clone(&self.resource), self.stored.key.clone())
    }
}

impl Borrow<str> for Living {
    fn borrow(&self) -> &str {
        &self.stored.uid
    }
}

impl Ord for Living {
    fn cmp(&self, other: &Self) -> Ordering {
        self.stored.uid.cmp(&other.stored.uid)
    }
}

impl PartialOrd for Living {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Living {
    fn eq(&self, other: &Self) -> bool {
        self.stored.uid == other.stored.uid
    }
}

impl Eq for Living {}

fn find(state: &State, (id, key): &Place) -> Option<(Arc<Resource>, Arc<Stored>)> {
    let resource = state.catalog.of_plural(&id.group, &id.plural)?;
    // What cannot be read in the version that is written is left alone.
    let stored = resource.view(state.store.get(id, key)?).ok()?;
    Some((Arc::clone(resource), stored))
}

fn has_finalizer(object: &Value, name: &str) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|list| list.iter().any(|it| it == name))
}

fn forget_owners(state: &mut State, resource: &Arc<Resource>, live: &Arc<Stored>, uids: &[String]) {
    let mut object = live.value();
    let left: Vec<Value> = object["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|owner| !uids.iter().any(|uid| owner["uid"] == uid.as_str()))
        .cloned()
        .collect();
    if left.is_empty() {
        unset_meta(&mut object, "ownerReferences");
    } else {
        set_meta(&mut object, "ownerReferences", left);
    }
    let _ = state.update_object(resource, live, object, &Write::by("kube-controller-manager"));
}

fn remove_finalizer(state: &mut State, resource: &Arc<Resource>, live: &Arc<Stored>, name: &str) {
    let mut object = live.value();
    let left: Vec<Value> = object["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|finalizer| *finalizer != name)
        .cloned()
        .collect();
    if left.is_empty() {
        unset_meta(&mut object, "finalizers");
    } else {
        set_meta(&mut object, "finalizers", left);
    }
    let _ = state.update_object(resource, live, object, &Write::by("kube-controller-manager"));
}
