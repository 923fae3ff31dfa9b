//! The objects: in memory, as the JSON they are served as, with a log of what happened to them.
//!
//! ```text
//! put / remove ──▶ Shelf (one per resource): key ─▶ Arc<Stored>         lists hand out the Arcs, watches share the bytes
//!                     └─▶ log: the last changes, each with what was before    watch from a revision, lists of the past
//! ```
//!
//! An object is kept as bytes, not as a tree: a list is a concatenation, twenty watchers share one line, and ten thousand
//! pods are as large as their JSON. What selectors, owners and the garbage collector ask for stands beside the bytes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc;

use bytes::Bytes;
use serde_json::Value;

/// Changes kept per resource for watches that come back and for lists that go on. A watch that asks for older ones is told
/// `410 Gone`, and lists anew.
const LOG_MAX: usize = 4096;

/// Where an object is, within its resource. The namespace is empty for cluster scope. Ordered as the real server lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

/// Which resource an object belongs to: group and plural. Versions share their objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId {
    pub group: String,
    pub plural: String,
}

/// One object at one revision.
#[derive(Debug)]
pub struct Stored {
    pub key: Key,
    pub revision: u64,
    /// The whole object, as served.
    pub json: Bytes,
    pub uid: String,
    pub labels: Vec<(String, String)>,
    pub owners: Vec<Owner>,
    /// What field selectors may ask for beside name and namespace: `spec.nodeName`, `status.phase`…
    pub fields: Vec<(String, String)>,
    pub is_deleting: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub blocks_deletion: bool,
}

impl Stored {
    /// The object as a tree.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json).expect("what is stored was serialised here")
    }

    /// The object as a type of k8s-openapi. None when it does not have that shape.
    #[must_use]
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.json).ok()
    }

    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    #[must_use]
    pub fn field(&self, path: &str) -> Option<&str> {
        self.fields.iter().find(|(name, _)| name == path).map(|(_, value)| value.as_str())
    }
}

/// Something that happened to one object.
#[derive(Debug)]
pub struct Change {
    pub resource: ResourceId,
    pub revision: u64,
    pub kind: ChangeKind,
    /// The object after the change; for a deletion its last state, at the revision of the deletion.
    pub object: Arc<Stored>,
    pub before: Option<Arc<Stored>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

/// All objects of one resource.
#[derive(Debug, Default)]
struct Shelf {
    objects: BTreeMap<Key, Arc<Stored>>,
    log: VecDeque<Arc<Change>>,
    /// Changes up to here have left the log.
    forgotten: u64,
}

#[derive(Debug, Default)]
pub struct Store {
    shelves: BTreeMap<ResourceId, Shelf>,
    revision: u64,
    listeners: Vec<Listener>,
}

#[derive(Debug)]
struct Listener {
    /// None hears everything.
    resource: Option<ResourceId>,
    to: mpsc::Sender<Arc<Change>>,
}

impl ResourceId {
    #[must_use]
    pub fn new(group: &str, plural: &str) -> Self {
        Self { group: group.to_owned(), plural: plural.to_owned() }
    }
}

impl Key {
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}
