//! The objects: in memory, as the JSON they are served as, with a log of what happened to them.
//!
//! ```text
//! put / remove ──▶ Shelf (one per resource): key ─▶ Arc<Stored>         lists hand out the Arcs, watches share the bytes
//!                     ├─▶ log: the last changes, each with what was before    watch from a revision, lists of the past
//!                     ├─▶ pack: what the last few hundred changes left alone      a tenth of its JSON
//!                     └─▶ pods_of: who is bound to which node                         asked by all who look after nodes
//! ```
//!
//! An object is kept as bytes, not as a tree: a list is a concatenation, and twenty watchers share one line. What selectors,
//! owners and the garbage collector ask for stands beside the bytes.

mod pack;
mod pairs;

use std::any::Any;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Bound, Deref};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

use pack::{Packed, Packer};
pub use pairs::Pairs;

/// Changes kept per resource for watches that come back and for lists that go on. A watch that asks for older ones is told
/// `410 Gone`, and lists anew.
const LOG_MAX: usize = 4096;

/// An object is packed when so many changes of its resource came after it: those who care have seen it by then.
const PACKED_AFTER: usize = 256;

/// Where an object is, within its resource. Ordered as the real server lists. Every controller keeps the keys of what it looks
/// after: copies share their texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key(Arc<Names>);

#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct Names {
    /// Empty for cluster scope.
    pub namespace: String,
    pub name: String,
}

impl Deref for Key {
    type Target = Names;

    fn deref(&self) -> &Names {
        &self.0
    }
}

impl Ord for Key {
    /// As the texts `namespace/name`: `a-b` comes before `a`, because a dash comes before a slash.
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) {
            return Ordering::Equal;
        }
        if self.namespace == other.namespace {
            return self.name.cmp(&other.name);
        }
        let text = |key: &Self| key.namespace.bytes().chain([b'/']).chain(key.name.bytes()).collect::<Vec<u8>>();
        let (left, right) = (self.namespace.as_bytes(), other.namespace.as_bytes());
        match left.iter().zip(right).find(|(left, right)| left != right) {
            Some((left, right)) => left.cmp(right),
            // One namespace begins with the other: what follows it decides.
            None => text(self).cmp(&text(other)),
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
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
    /// When its content came about: before `revision` for the last state of what was deleted.
    pub written: u64,
    /// The whole object, as served.
    form: Mutex<Form>,
    /// As somebody has read it: the next who asks need not read it again.
    read: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
    /// The bytes after the opening brace that say `kind` and `apiVersion`. Lists of built-in kinds leave them out.
    head: usize,
    pub uid: Arc<str>,
    pub labels: Pairs,
    pub owners: Box<[Owner]>,
    /// What field selectors may ask for beside name and namespace: `spec.nodeName`, `status.phase`…
    pub fields: Pairs,
    pub is_deleting: bool,
}

#[derive(Debug)]
enum Form {
    Plain(Bytes),
    Packed(Packed),
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
    /// The whole object, as served.
    #[must_use]
    pub fn json(&self) -> Bytes {
        match &*self.form() {
            Form::Plain(json) => json.clone(),
            Form::Packed(packed) => packed.unpack(),
        }
    }

    /// The object as a tree.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json()).expect("what is stored was serialised here")
    }

    /// The object as a type of k8s-openapi. None when it does not have that shape.
    #[must_use]
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.json()).ok()
    }

    /// The same, read once for all who ask before it is forgotten.
    #[must_use]
    pub fn shared<T: serde::de::DeserializeOwned + Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let known = self.cell().clone().and_then(|known| known.downcast::<T>().ok());
        if known.is_some() {
            return known;
        }
        let object = Arc::new(self.read::<T>()?);
        *self.cell() = Some(Arc::<T>::clone(&object));
        Some(object)
    }

    /// Everybody who wanted it has read it.
    pub(crate) fn forget_read(&self) {
        *self.cell() = None;
    }

    fn cell(&self) -> MutexGuard<'_, Option<Arc<dyn Any + Send + Sync>>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key)
    }

    #[must_use]
    pub fn field(&self, path: &str) -> Option<&str> {
        self.fields.get(path)
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
    packer: Packer,
    /// Changes up to here have left the log.
    forgotten: u64,
}

#[derive(Debug, Default)]
pub struct Store {
    shelves: BTreeMap<ResourceId, Shelf>,
    revision: u64,
    listeners: BTreeMap<ResourceId, Vec<UnboundedSender<Arc<Change>>>>,
    /// What the cluster's controllers have not seen yet.
    unseen: Vec<Arc<Change>>,
    /// The pods that are bound to each node.
    pods_of: BTreeMap<Box<str>, BTreeSet<Key>>,
}

/// The log no longer reaches back to the revision asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooOld {
    /// The first revision that could be asked for.
    pub oldest: u64,
}

impl Store {
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    #[must_use]
    pub fn get(&self, resource: &ResourceId, key: &Key) -> Option<&Arc<Stored>> {
        self.shelves.get(resource)?.objects.get(key)
    }

    /// In order of namespace and name. An empty namespace means all.
    pub fn list<'a>(&'a self, resource: &ResourceId, namespace: &'a str) -> impl Iterator<Item = &'a Arc<Stored>> {
        let objects = self.shelves.get(resource).map(|shelf| &shelf.objects);
        objects.into_iter().flat_map(move |objects| in_namespace(objects, namespace))
    }

    #[must_use]
    pub fn pod(&self, key: &Key) -> Option<&Arc<Stored>> {
        self.get(ResourceId::pods(), key)
    }

    /// The pods that are bound to a node, in order of namespace and name.
    pub fn pods_on<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a Arc<Stored>> {
        let objects = self.shelves.get(ResourceId::pods()).map(|shelf| &shelf.objects);
        let keys = self.pods_of.get(node).into_iter().flatten();
        keys.filter_map(move |key| objects?.get(key))
    }

    /// The objects as they were at an earlier revision: the log, undone.
    pub fn list_at(&self, resource: &ResourceId, namespace: &str, revision: u64) -> Result<Vec<Arc<Stored>>, TooOld> {
        let Some(shelf) = self.shelves.get(resource) else { return Ok(Vec::new()) };
        if revision < shelf.forgotten {
            return Err(TooOld { oldest: shelf.forgotten });
        }
        if shelf.log.back().is_none_or(|change| change.revision <= revision) {
            return Ok(in_namespace(&shelf.objects, namespace).cloned().collect());
        }
        let mut then = shelf.objects.clone();
        for change in shelf.log.iter().rev().take_while(|change| change.revision > revision) {
            match &change.before {
                Some(before) => then.insert(before.key.clone(), Arc::clone(before)),
                None => then.remove(&change.object.key),
            };
        }
        Ok(in_namespace(&then, namespace).cloned().collect())
    }

    /// Every change of a resource after `revision`.
    pub fn changes_after(&self, resource: &ResourceId, revision: u64) -> Result<Vec<Arc<Change>>, TooOld> {
        let Some(shelf) = self.shelves.get(resource) else { return Ok(Vec::new()) };
        if revision < shelf.forgotten {
            return Err(TooOld { oldest: shelf.forgotten });
        }
        let first = shelf.log.partition_point(|change| change.revision <= revision);
        Ok(shelf.log.range(first..).cloned().collect())
    }

    /// Hears every later change of a resource until it is dropped.
    pub fn listen(&mut self, resource: &ResourceId, to: UnboundedSender<Arc<Change>>) {
        self.listeners.entry(resource.clone()).or_default().push(to);
    }

    /// The changes since the last call, for the cluster's controllers.
    pub fn take_unseen(&mut self) -> Vec<Arc<Change>> {
        std::mem::take(&mut self.unseen)
    }

    #[must_use]
    pub fn has_unseen(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// Keeps an object under the next revision, which it learns in its metadata.
    pub fn put(&mut self, resource: &ResourceId, key: Key, object: &mut Value, fields: Pairs) -> Arc<Stored> {
        self.revision += 1;
        let revision = self.revision;
        let shelf = self.shelf(resource);
        let before = shelf.objects.get(&key).cloned();
        let mut stored = Stored::new(key, revision, object, fields);
        if let Some(before) = &before {
            stored.share_with(before);
        }
        let stored = Arc::new(stored);
        shelf.objects.insert(stored.key.clone(), Arc::clone(&stored));
        let kind = if before.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        // A pod is bound once, and stays where it is.
        if let Some(node) = bound_to(resource, &stored)
            && before.as_deref().and_then(|before| bound_to(resource, before)) != Some(node)
        {
            self.pods_of.entry(node.into()).or_default().insert(stored.key.clone());
        }
        self.note(resource, kind, Arc::clone(&stored), before);
        stored
    }

    /// Takes an object away. Its last state gets the revision of the deletion.
    pub fn remove(&mut self, resource: &ResourceId, key: &Key) -> Option<Arc<Stored>> {
        let before = self.shelf(resource).objects.remove(key)?;
        if let Some(node) = bound_to(resource, &before)
            && let Some(pods) = self.pods_of.get_mut(node)
        {
            pods.remove(key);
            if pods.is_empty() {
                self.pods_of.remove(node);
            }
        }
        self.revision += 1;
        let last = Arc::new(before.at_revision(self.revision));
        self.note(resource, ChangeKind::Deleted, Arc::clone(&last), Some(before));
        Some(last)
    }

    /// Drops all objects of a resource that is no longer served, and ends its watches.
    pub fn drop_resource(&mut self, resource: &ResourceId) {
        self.shelves.remove(resource);
        self.listeners.remove(resource);
    }

    /// Ends the watches of a resource whose definition has changed: who watched lists or watches anew.
    pub fn end_watches(&mut self, resource: &ResourceId) {
        self.listeners.remove(resource);
    }

    pub fn resources(&self) -> impl Iterator<Item = &ResourceId> {
        self.shelves.keys()
    }

    fn shelf(&mut self, resource: &ResourceId) -> &mut Shelf {
        // A resource that nobody used has no past: a watch may not ask for one.
        let revision = self.revision;
        self.shelves
            .entry(resource.clone())
            .or_insert_with(|| Shelf { forgotten: revision.saturating_sub(1), ..Shelf::default() })
    }

    fn note(&mut self, resource: &ResourceId, kind: ChangeKind, object: Arc<Stored>, before: Option<Arc<Stored>>) {
        let change = Arc::new(Change { resource: resource.clone(), revision: object.revision, kind, object, before });
        let shelf = self.shelf(resource);
        shelf.log.push_back(Arc::clone(&change));
        if let Some(old) = shelf.log.len().checked_sub(PACKED_AFTER).and_then(|index| shelf.log.get(index)) {
            old.object.pack(&mut shelf.packer);
        }
        if shelf.log.len() > LOG_MAX
            && let Some(oldest) = shelf.log.pop_front()
        {
            shelf.forgotten = oldest.revision;
        }
        if let Some(listeners) = self.listeners.get_mut(resource) {
            // A listener that is gone does not answer, and is forgotten.
            listeners.retain(|listener| listener.send(Arc::clone(&change)).is_ok());
        }
        self.unseen.push(change);
    }
}

/// The node that a pod is bound to.
fn bound_to<'a>(resource: &ResourceId, stored: &'a Stored) -> Option<&'a str> {
    if resource != ResourceId::pods() {
        return None;
    }
    stored.field("spec.nodeName").filter(|node| !node.is_empty())
}

fn in_namespace<'a>(
    objects: &'a BTreeMap<Key, Arc<Stored>>,
    namespace: &'a str,
) -> impl Iterator<Item = &'a Arc<Stored>> {
    let from = if namespace.is_empty() { Bound::Unbounded } else { Bound::Included(Key::new(namespace, "")) };
    objects
        .range((from, Bound::Unbounded))
        .map(|(_, stored)| stored)
        .take_while(move |stored| namespace.is_empty() || stored.key.namespace == namespace)
}

/// The object's bytes with `kind` and `apiVersion` first, and how many bytes those take after the brace.
fn serialise(object: &Value) -> (Bytes, usize) {
    let mut json = Vec::with_capacity(1024);
    json.push(b'{');
    for key in ["kind", "apiVersion"] {
        if let Some(Value::String(text)) = object.get(key) {
            json.extend_from_slice(format!("{}:{},", Value::from(key), Value::from(text.as_str())).as_bytes());
        }
    }
    let head = json.len() - 1;
    let mut first = true;
    for (key, value) in object.as_object().into_iter().flatten() {
        if key == "kind" || key == "apiVersion" {
            continue;
        }
        if !first {
            json.push(b',');
        }
        first = false;
        serde_json::to_writer(&mut json, key).expect("a vector takes every byte");
        json.push(b':');
        serde_json::to_writer(&mut json, value).expect("a vector takes every byte");
    }
    if first && json.last() == Some(&b',') {
        json.pop();
    }
    json.push(b'}');
    json.shrink_to_fit();
    (Bytes::from(json), head)
}

impl Stored {
    /// What is kept of an object. It learns its revision in its metadata.
    #[must_use]
    pub fn new(key: Key, revision: u64, object: &mut Value, fields: Pairs) -> Self {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
        }
        let (json, head) = serialise(object);
        let metadata = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let labels = metadata["labels"].as_object().map(Pairs::of).unwrap_or_default();
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten().map(|owner| Owner {
            api_version: text(&owner["apiVersion"]),
            kind: text(&owner["kind"]),
            name: text(&owner["name"]),
            uid: text(&owner["uid"]),
            blocks_deletion: owner["blockOwnerDeletion"] == Value::Bool(true),
        });
        Self {
            key,
            revision,
            written: revision,
            form: Mutex::new(Form::Plain(json)),
            read: Mutex::new(None),
            head,
            uid: metadata["uid"].as_str().unwrap_or_default().into(),
            labels,
            owners: owners.collect(),
            fields,
            is_deleting: metadata["deletionTimestamp"].is_string(),
        }
    }

    /// What has not changed since `before` is kept once: its texts live on in the log and with those who look after the object.
    fn share_with(&mut self, before: &Self) {
        self.key = before.key.clone();
        if self.uid == before.uid {
            self.uid = Arc::clone(&before.uid);
        }
        if self.labels == before.labels {
            self.labels = before.labels.clone();
        }
    }

    /// The same object under another revision, as deletion events show it.
    #[must_use]
    pub fn at_revision(&self, revision: u64) -> Self {
        let mut object = self.value();
        let mut last = Self::new(self.key.clone(), revision, &mut object, self.fields.clone());
        last.written = self.written;
        last.share_with(self);
        last
    }

    /// The bytes inside the braces without `kind` and `apiVersion`.
    #[must_use]
    pub fn headless(&self) -> Bytes {
        let json = self.json();
        json.slice((1 + self.head).min(json.len())..)
    }

    fn pack(&self, packer: &mut Packer) {
        let mut form = self.form();
        if let Form::Plain(json) = &*form {
            *form = Form::Packed(packer.pack(json));
        }
    }

    fn form(&self) -> MutexGuard<'_, Form> {
        self.form.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResourceId {
    #[must_use]
    pub fn new(group: &str, plural: &str) -> Self {
        Self { group: group.to_owned(), plural: plural.to_owned() }
    }

    /// Asked for at every look at a pod: made once.
    pub(crate) fn pods() -> &'static Self {
        static PODS: LazyLock<ResourceId> = LazyLock::new(|| ResourceId::new("", "pods"));
        &PODS
    }
}

impl Key {
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(Arc::new(Names { namespace: namespace.to_owned(), name: name.to_owned() }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pods() -> ResourceId {
        ResourceId::pods().clone()
    }

    fn put(store: &mut Store, namespace: &str, name: &str, size: u32) -> Arc<Stored> {
        let mut object = json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": { "name": name, "namespace": namespace, "labels": { "size": size.to_string() } },
        });
        store.put(&pods(), Key::new(namespace, name), &mut object, Pairs::default())
    }

    fn names(objects: &[Arc<Stored>]) -> Vec<String> {
        objects.iter().map(|stored| format!("{}/{}", stored.key.namespace, stored.key.name)).collect()
    }

    #[test]
    fn what_has_long_been_left_alone_reads_lists_and_returns_as_it_was() {
        let mut store = Store::default();
        let first = put(&mut store, "a", "one", 1);
        let text = first.json();
        let n_others = u32::try_from(PACKED_AFTER).unwrap();
        for size in 0..n_others {
            put(&mut store, "a", "other", size);
        }
        assert!(matches!(&*first.form(), Form::Packed(_)));
        assert_eq!(first.json(), text);
        assert_eq!(first.value()["metadata"]["labels"]["size"], "1");
        assert_eq!(names(&store.list_at(&pods(), "a", 1).unwrap()), ["a/one"]);
        put(&mut store, "a", "one", 2);
        let changes = store.changes_after(&pods(), 0).unwrap();
        assert_eq!(changes[0].object.json(), text);
        assert!(store.get(&pods(), &Key::new("a", "one")).unwrap().json().ends_with(b"}"));
    }

    #[test]
    fn an_object_knows_its_revision_and_lists_without_its_head() {
        let mut store = Store::default();
        let stored = put(&mut store, "a", "one", 1);
        assert_eq!(stored.value()["metadata"]["resourceVersion"], "1");
        assert!(stored.json().starts_with(br#"{"kind":"Pod","apiVersion":"v1","metadata""#));
        let headless: Value = serde_json::from_slice(&[b"{", &stored.headless()[..]].concat()).unwrap();
        assert!(headless.get("kind").is_none() && headless["metadata"]["name"] == "one");
        assert_eq!(stored.label("size"), Some("1"));
    }

    #[test]
    fn a_list_of_the_past_undoes_what_came_after() {
        let mut store = Store::default();
        put(&mut store, "a", "one", 1);
        put(&mut store, "b", "two", 1);
        let then = store.revision();
        put(&mut store, "a", "three", 1);
        put(&mut store, "a", "one", 2);
        store.remove(&pods(), &Key::new("b", "two"));
        let now: Vec<_> = store.list(&pods(), "").cloned().collect();
        assert_eq!(names(&now), ["a/one", "a/three"]);
        let past = store.list_at(&pods(), "", then).unwrap();
        assert_eq!(names(&past), ["a/one", "b/two"]);
        assert_eq!(past[0].label("size"), Some("1"));
        assert_eq!(names(&store.list_at(&pods(), "a", then).unwrap()), ["a/one"]);
    }

    #[test]
    fn a_node_knows_its_pods_from_when_they_are_bound_until_they_are_gone() {
        let mut store = Store::default();
        let mut put = |name: &str, node: &str| {
            let fields = [("spec.nodeName", node)].into_iter().collect();
            store.put(&pods(), Key::new("a", name), &mut json!({"metadata": {"name": name}}), fields);
        };
        put("waits", "");
        put("two", "there");
        put("one", "");
        put("one", "there");
        put("one", "there");
        put("else", "elsewhere");
        let on = |store: &Store, node: &str| names(&store.pods_on(node).cloned().collect::<Vec<_>>());
        assert_eq!(on(&store, "there"), ["a/one", "a/two"]);
        assert_eq!(on(&store, ""), [""; 0]);
        store.remove(&pods(), &Key::new("a", "two"));
        assert_eq!(on(&store, "there"), ["a/one"]);
        store.remove(&pods(), &Key::new("a", "one"));
        assert_eq!(on(&store, "there"), [""; 0]);
        assert!(!store.pods_of.contains_key("there"));
        assert_eq!(on(&store, "elsewhere"), ["a/else"]);
    }

    #[test]
    fn what_has_left_the_log_is_too_old() {
        let mut store = Store::default();
        for size in 0..=LOG_MAX {
            put(&mut store, "a", "one", u32::try_from(size).unwrap());
        }
        assert_eq!(store.changes_after(&pods(), 0).unwrap_err(), TooOld { oldest: 1 });
        assert_eq!(store.changes_after(&pods(), 1).unwrap().len(), LOG_MAX);
    }

    #[test]
    fn a_deletion_is_told_with_its_own_revision() {
        let mut store = Store::default();
        let (to, mut from) = tokio::sync::mpsc::unbounded_channel();
        store.listen(&pods(), to);
        put(&mut store, "a", "one", 1);
        store.remove(&pods(), &Key::new("a", "one")).unwrap();
        assert_eq!(from.try_recv().unwrap().kind, ChangeKind::Added);
        let gone = from.try_recv().unwrap();
        assert_eq!((gone.kind, gone.revision, gone.object.revision), (ChangeKind::Deleted, 2, 2));
        assert_eq!(gone.object.value()["metadata"]["resourceVersion"], "2");
    }
}
