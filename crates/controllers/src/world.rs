//! What is known of the cluster, owned by the operator: the mirror for planning, and the objects that the hands work on.
//!
//! Pods are kept as [`PodState`]s, because there are many; nodes, claims and pools as the objects they are. What the API
//! server answered to a write of ours is taken in at once, so that nobody acts twice on an old picture; a watch event that is older
//! than what is known is passed over.

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kerf_api::{CapacityBuffer, NodeClaim, NodeOverlay, NodePool};
use kerf_mirror::{Kind, Mirror, NodeClassObject, Object, ObjectKey, PodState};
use kerf_model::{Labels, NodeClassRef, PodId, Text};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Answers to our own requests are seconds late at most; so many deletions do not happen meanwhile.
const GONE_MAX: usize = 10_000;

#[derive(Debug)]
pub struct World {
    pub mirror: Mirror,
    /// Where the mirror is told that everything comes from.
    source: Text,
    pub claims: BTreeMap<Text, Arc<NodeClaim>>,
    pub nodes: BTreeMap<Text, Arc<Node>>,
    pub pools: BTreeMap<Text, Arc<NodePool>>,
    pub classes: BTreeMap<NodeClassRef, Arc<NodeClassObject>>,
    pub overlays: BTreeMap<Text, Arc<NodeOverlay>>,
    pub buffers: BTreeMap<(Text, Text), Arc<CapacityBuffer>>,
    pub budgets: BTreeMap<(Text, Text), Arc<PodDisruptionBudget>>,
    pub attachments: BTreeMap<Text, Arc<VolumeAttachment>>,
    pub volumes: BTreeMap<Text, Arc<PersistentVolume>>,
    pub volume_claims: BTreeMap<(Text, Text), Arc<PersistentVolumeClaim>>,
    pods: FxHashMap<PodId, KnownPod>,
    pods_by_node: FxHashMap<Text, BTreeSet<PodId>>,
    labels: SharedLabels,
    nodes_by_provider_id: BTreeMap<Text, BTreeSet<Text>>,
    claims_by_provider_id: BTreeMap<Text, BTreeSet<Text>>,
    /// What is known of each object's version. Pods have theirs beside them.
    versions: FxHashMap<ObjectKey, u64>,
    /// What is gone, and at which version: an answer that was on its way meanwhile must not bring it back.
    gone: BTreeMap<ObjectKey, u64>,
    gone_order: VecDeque<ObjectKey>,
    synced: BTreeSet<Kind>,
    /// Kinds of which nothing was heard for too long.
    stale: BTreeSet<Kind>,
    /// Objects that are there, and whose present form cannot be read, with what is wrong.
    unreadable: BTreeMap<ObjectKey, String>,
    /// What must be synced before anything is decided.
    awaited: BTreeSet<Kind>,
}

#[derive(Debug)]
struct KnownPod {
    state: Arc<PodState>,
    /// Zero where the server does not say.
    version: u64,
}

/// Something that changed. The world shows what is after; `before` is what was.
#[derive(Debug, Clone)]
pub enum Change {
    Pod {
        id: PodId,
        before: Option<Arc<PodState>>,
        after: Option<Arc<PodState>>,
    },
    Node {
        name: Text,
        before: Option<Arc<Node>>,
        after: Option<Arc<Node>>,
    },
    Claim {
        name: Text,
        before: Option<Arc<NodeClaim>>,
        after: Option<Arc<NodeClaim>>,
    },
    Pool {
        name: Text,
        before: Option<Arc<NodePool>>,
        after: Option<Arc<NodePool>>,
    },
    Class {
        class: NodeClassRef,
        before: Option<Arc<NodeClassObject>>,
        after: Option<Arc<NodeClassObject>>,
    },
    /// An object of another kind.
    Other {
        key: ObjectKey,
    },
    /// Everything that decisions wait for has been seen.
    Synced,
}

impl Change {
    /// Of which object; none when it is about all of them.
    pub fn key(&self) -> Option<ObjectKey> {
        let plain =
            |kind: Kind, name: &Text| ObjectKey { kind, class_kind: None, namespace: "".into(), name: name.clone() };
        match self {
            Self::Pod { id, .. } => Some(pod_key(id)),
            Self::Node { name, .. } => Some(plain(Kind::Node, name)),
            Self::Claim { name, .. } => Some(plain(Kind::NodeClaim, name)),
            Self::Pool { name, .. } => Some(plain(Kind::NodePool, name)),
            Self::Class { class, .. } => Some(ObjectKey {
                class_kind: Some(format!("{}.{}", class.kind, class.group).into()),
                ..plain(Kind::NodeClass, &class.name)
            }),
            Self::Other { key } => Some(key.clone()),
            Self::Synced => None,
        }
    }
}

impl World {
    pub fn new(mirror: Mirror, awaited: impl IntoIterator<Item = Kind>) -> Self {
        Self {
            mirror,
            source: "watch".into(),
            claims: BTreeMap::new(),
            nodes: BTreeMap::new(),
            pools: BTreeMap::new(),
            classes: BTreeMap::new(),
            overlays: BTreeMap::new(),
            buffers: BTreeMap::new(),
            budgets: BTreeMap::new(),
            attachments: BTreeMap::new(),
            volumes: BTreeMap::new(),
            volume_claims: BTreeMap::new(),
            pods: FxHashMap::default(),
            pods_by_node: FxHashMap::default(),
            labels: SharedLabels::default(),
            nodes_by_provider_id: BTreeMap::new(),
            claims_by_provider_id: BTreeMap::new(),
            versions: FxHashMap::default(),
            gone: BTreeMap::new(),
            gone_order: VecDeque::new(),
            synced: BTreeSet::new(),
            stale: BTreeSet::new(),
            unreadable: BTreeMap::new(),
            awaited: awaited.into_iter().collect(),
        }
    }

    /// Whether everything has been seen once. Nothing is decided before.
    pub fn is_synced(&self) -> bool {
        self.awaited.iter().all(|kind| self.synced.contains(kind))
    }

    /// Kinds of which nothing was heard for too long: what is known of them may be long past.
    pub fn stale(&self) -> &BTreeSet<Kind> {
        &self.stale
    }

    /// Answers whether that is news.
    pub fn set_stale(&mut self, kind: Kind, is_stale: bool) -> bool {
        if is_stale { self.stale.insert(kind) } else { self.stale.remove(&kind) }
    }

    /// Objects that are there, and whose present form cannot be read, with what is wrong with them.
    pub fn unreadable(&self) -> &BTreeMap<ObjectKey, String> {
        &self.unreadable
    }

    /// An object is there, and cannot be read. What was known of it before stays known. Answers whether that is news.
    pub fn cannot_read(&mut self, key: ObjectKey, why: String) -> bool {
        self.unreadable.insert(key, why.clone()).is_none_or(|before| before != why)
    }

    pub fn pod(&self, id: &PodId) -> Option<&Arc<PodState>> {
        self.pods.get(id).map(|known| &known.state)
    }

    /// In no order.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<PodState>> {
        self.pods.values().map(|known| &known.state)
    }

    pub fn n_pods(&self) -> usize {
        self.pods.len()
    }

    /// Pods bound to a node, ended ones included, by name.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &Arc<PodState>> {
        self.pods_by_node.get(node).into_iter().flatten().filter_map(|id| self.pod(id))
    }

    /// Pods of the API server's list that are alive, and that our watch has not shown on the node.
    pub fn unseen_of(&self, list: &Value, node: &str) -> Vec<String> {
        let pods = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text =
            |pod: &Value, pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let alive = pods.iter().filter(|pod| !matches!(&*text(pod, "/status/phase"), "Succeeded" | "Failed"));
        let missing = alive.filter(|pod| {
            let uid = text(pod, "/metadata/uid");
            !self.pods_on(node).any(|known| *known.uid == *uid)
        });
        missing.map(|pod| format!("{}/{}", text(pod, "/metadata/namespace"), text(pod, "/metadata/name"))).collect()
    }

    /// The nodes of a machine: one, unless something is wrong.
    pub fn nodes_of(&self, provider_id: &str) -> Vec<&Arc<Node>> {
        let names = self.nodes_by_provider_id.get(provider_id).into_iter().flatten();
        names.filter_map(|name| self.nodes.get(name)).collect()
    }

    /// The claims of a machine: one, unless something is wrong.
    pub fn claims_of(&self, provider_id: &str) -> Vec<&Arc<NodeClaim>> {
        let names = self.claims_by_provider_id.get(provider_id).into_iter().flatten();
        names.filter_map(|name| self.claims.get(name)).collect()
    }

    /// The one claim of a node.
    pub fn claim_of_node(&self, node: &Node) -> Option<&Arc<NodeClaim>> {
        let id = provider_id(node)?;
        match self.claims_of(id).as_slice() {
            [claim] => Some(claim),
            _ => None,
        }
    }

    /// The one node of a claim.
    pub fn node_of_claim(&self, claim: &NodeClaim) -> Option<&Arc<Node>> {
        let id = claim.status.as_ref()?.provider_id.as_deref().filter(|id| !id.is_empty())?;
        match self.nodes_of(id).as_slice() {
            [node] => Some(node),
            _ => None,
        }
    }

    /// The Node that a claim has, and why it cannot be read; None when it can.
    pub fn unreadable_node_of<'a>(&'a self, claim: &'a NodeClaim) -> Option<(&'a str, &'a str)> {
        let name = claim.status.as_ref()?.node_name.as_deref()?;
        let key = ObjectKey { kind: Kind::Node, class_kind: None, namespace: "".into(), name: name.into() };
        Some((name, self.unreadable.get(&key)?))
    }

    /// Takes an object in. None when it is older than what is known.
    pub fn observe(&mut self, object: Object) -> Option<Change> {
        let key = object.key();
        let version = object.metadata().resource_version.as_deref().and_then(|text| text.parse::<u64>().ok());
        if let (Some(new), Some(known)) = (version, self.version(&key).or_else(|| self.gone.get(&key).copied()))
            && new <= known
        {
            if new == known {
                self.unreadable.remove(&key);
            }
            return None;
        }
        self.unreadable.remove(&key);
        let change = self.take(&key, &object, version.unwrap_or_default());
        self.mirror.observe_as(&self.source, key.clone(), object);
        // Last, so that an object that cannot be taken in is tried again when it is shown again.
        if let Some(version) = version.filter(|_| key.kind != Kind::Pod) {
            self.versions.insert(key, version);
        }
        Some(change)
    }

    /// Drops an object that was gone at a version. None when it was not known, or is known to have come since: an answer to a request of
    /// ours may be ahead of the watch, and the end that the watch tells of is then a predecessor's.
    pub fn forget(&mut self, key: &ObjectKey, version: Option<u64>) -> Option<Change> {
        let known = self.version(key);
        if version.zip(known).is_some_and(|(at, known)| known > at) {
            return None;
        }
        self.versions.remove(key);
        self.unreadable.remove(key);
        if let Some(version) = version.max(known) {
            if self.gone.insert(key.clone(), version).is_none() {
                self.gone_order.push_back(key.clone());
            }
            if self.gone_order.len() > GONE_MAX
                && let Some(oldest) = self.gone_order.pop_front()
            {
                self.gone.remove(&oldest);
            }
        }
        let has_own = matches!(key.kind, Kind::Node | Kind::NodeClaim | Kind::NodePool | Kind::NodeClass)
            && self.as_change(key).is_some();
        if known.is_none() && !has_own {
            return None;
        }
        self.mirror.forget(key);
        let named = (key.namespace.clone(), key.name.clone());
        Some(match key.kind {
            Kind::Pod => {
                let id = pod_id(key);
                let before = self.pods.remove(&id).map(|known| known.state);
                if let Some(pod) = &before {
                    self.unbind(pod);
                }
                Change::Pod { id, before, after: None }
            }
            Kind::Node => {
                let before = self.nodes.remove(&key.name);
                if let Some(id) = before.as_deref().and_then(provider_id) {
                    unindex(&mut self.nodes_by_provider_id, id, &key.name);
                }
                Change::Node { name: key.name.clone(), before, after: None }
            }
            Kind::NodeClaim => {
                let before = self.claims.remove(&key.name);
                if let Some(id) = before.as_deref().and_then(claim_provider_id) {
                    unindex(&mut self.claims_by_provider_id, id, &key.name);
                }
                Change::Claim { name: key.name.clone(), before, after: None }
            }
            Kind::NodePool => {
                Change::Pool { name: key.name.clone(), before: self.pools.remove(&key.name), after: None }
            }
            Kind::NodeClass => {
                let class = class_of(key);
                let before = self.classes.remove(&class);
                Change::Class { class, before, after: None }
            }
            other => {
                match other {
                    Kind::NodeOverlay => drop(self.overlays.remove(&key.name)),
                    Kind::CapacityBuffer => drop(self.buffers.remove(&named)),
                    Kind::PodDisruptionBudget => drop(self.budgets.remove(&named)),
                    Kind::VolumeAttachment => drop(self.attachments.remove(&key.name)),
                    Kind::PersistentVolume => drop(self.volumes.remove(&key.name)),
                    Kind::PersistentVolumeClaim => drop(self.volume_claims.remove(&named)),
                    _ => {}
                }
                Change::Other { key: key.clone() }
            }
        })
    }

    /// Everything of a kind was listed. Answers true when that was the last kind awaited.
    pub fn synced(&mut self, kind: Kind) -> bool {
        let was_synced = self.is_synced();
        self.synced.insert(kind);
        !was_synced && self.is_synced()
    }

    /// Everything that is there, as if it came now: for those who have not looked so far.
    pub fn everything(&self) -> Vec<Change> {
        let mut pods: Vec<&Arc<PodState>> = self.pods.values().map(|known| &known.state).collect();
        pods.sort_by(|one, other| one.id.cmp(&other.id));
        let has_own =
            |kind| matches!(kind, Kind::Pod | Kind::Node | Kind::NodeClaim | Kind::NodePool | Kind::NodeClass);
        let mut others: Vec<&ObjectKey> = self.versions.keys().filter(|key| !has_own(key.kind)).collect();
        others.sort();
        let classes = self.classes.iter().map(|(class, after)| {
            let (class, after) = (class.clone(), Some(after.clone()));
            Change::Class { class, before: None, after }
        });
        let pools = self.pools.iter().map(|(name, after)| {
            let (name, after) = (name.clone(), Some(after.clone()));
            Change::Pool { name, before: None, after }
        });
        let nodes = self.nodes.iter().map(|(name, after)| {
            let (name, after) = (name.clone(), Some(after.clone()));
            Change::Node { name, before: None, after }
        });
        let claims = self.claims.iter().map(|(name, after)| {
            let (name, after) = (name.clone(), Some(after.clone()));
            Change::Claim { name, before: None, after }
        });
        let pods = pods.into_iter().map(|after| {
            let (id, after) = (after.id.clone(), Some(after.clone()));
            Change::Pod { id, before: None, after }
        });
        let others = others.into_iter().map(|key| Change::Other { key: key.clone() });
        let synced = self.is_synced().then_some(Change::Synced);
        classes.chain(pools).chain(nodes).chain(claims).chain(pods).chain(others).chain(synced).collect()
    }

    /// Known objects of a kind, readable or not, that are not among these.
    pub fn absent(&self, kind: Kind, class_kind: Option<&Text>, present: &BTreeSet<ObjectKey>) -> Vec<ObjectKey> {
        let is_meant = |key: &&ObjectKey| key.kind == kind && key.class_kind.as_ref() == class_kind;
        let known: Vec<ObjectKey> = match kind {
            Kind::Pod => self.pods.keys().map(pod_key).collect(),
            _ => self.versions.keys().filter(is_meant).cloned().collect(),
        };
        let known = known.into_iter().chain(self.unreadable.keys().filter(is_meant).cloned());
        let mut absent: Vec<ObjectKey> = known.filter(|key| !present.contains(key)).collect();
        absent.sort();
        absent.dedup();
        absent
    }

    /// Whether what is known of an object, its end included, is newer than this version of it.
    pub fn knows_newer(&self, key: &ObjectKey, version: u64) -> bool {
        self.version(key).is_some_and(|known| known > version)
            || self.gone.get(key).is_some_and(|gone| *gone >= version)
    }

    /// All claims, nodes, pools and node classes.
    pub fn keys_of_moment(&self) -> Vec<ObjectKey> {
        let plain =
            |kind: Kind, name: &Text| ObjectKey { kind, class_kind: None, namespace: "".into(), name: name.clone() };
        let classes = self.classes.keys().map(|class| ObjectKey {
            class_kind: Some(format!("{}.{}", class.kind, class.group).into()),
            ..plain(Kind::NodeClass, &class.name)
        });
        let claims = self.claims.keys().map(|name| plain(Kind::NodeClaim, name));
        let nodes = self.nodes.keys().map(|name| plain(Kind::Node, name));
        let pools = self.pools.keys().map(|name| plain(Kind::NodePool, name));
        classes.chain(pools).chain(claims).chain(nodes).collect()
    }

    /// An object as though it were new. None when it is not there.
    pub fn as_change(&self, key: &ObjectKey) -> Option<Change> {
        let name = key.name.clone();
        Some(match key.kind {
            Kind::Pod => {
                let pod = self.pod(&pod_id(key))?.clone();
                Change::Pod { id: pod.id.clone(), before: None, after: Some(pod) }
            }
            Kind::Node => {
                let node = self.nodes.get(&name)?.clone();
                Change::Node { name, before: None, after: Some(node) }
            }
            Kind::NodeClaim => {
                let claim = self.claims.get(&name)?.clone();
                Change::Claim { name, before: None, after: Some(claim) }
            }
            Kind::NodePool => {
                let pool = self.pools.get(&name)?.clone();
                Change::Pool { name, before: None, after: Some(pool) }
            }
            Kind::NodeClass => {
                let class = class_of(key);
                let object = self.classes.get(&class)?.clone();
                Change::Class { class, before: None, after: Some(object) }
            }
            _ => Change::Other { key: key.clone() },
        })
    }

    /// An object as though it were new, or its end.
    pub fn as_change_or_end(&self, key: &ObjectKey) -> Change {
        let name = key.name.clone();
        self.as_change(key).unwrap_or_else(|| match key.kind {
            Kind::Pod => Change::Pod { id: pod_id(key), before: None, after: None },
            Kind::Node => Change::Node { name, before: None, after: None },
            Kind::NodeClaim => Change::Claim { name, before: None, after: None },
            Kind::NodePool => Change::Pool { name, before: None, after: None },
            Kind::NodeClass => Change::Class { class: class_of(key), before: None, after: None },
            _ => Change::Other { key: key.clone() },
        })
    }

    fn version(&self, key: &ObjectKey) -> Option<u64> {
        match key.kind {
            Kind::Pod => self.pods.get(&pod_id(key)).map(|known| known.version),
            _ => self.versions.get(key).copied(),
        }
    }

    fn take(&mut self, key: &ObjectKey, object: &Object, version: u64) -> Change {
        let named = || (key.namespace.clone(), key.name.clone());
        match object {
            Object::Pod(pod) => {
                let id = pod_id(key);
                let before = self.pod(&id).cloned();
                // Everybody who knows the pod calls it by the same texts.
                let id = before.as_ref().map_or(id, |before| before.id.clone());
                let mut state = PodState::of(id, pod);
                // A hundred thousand pods have a few hundred sets of labels, and nodes are named by all pods on them.
                state.labels = self.labels.share(state.labels);
                if let Some((node, _)) = self.pods_by_node.get_key_value(&state.node) {
                    state.node = node.clone();
                }
                if let Some(before) = &before {
                    self.unbind(before);
                }
                let after = Arc::new(state);
                if after.is_bound() {
                    self.pods_by_node.entry(after.node.clone()).or_default().insert(after.id.clone());
                }
                self.pods.insert(after.id.clone(), KnownPod { state: after.clone(), version });
                Change::Pod { id: after.id.clone(), before, after: Some(after) }
            }
            Object::Node(node) => {
                let mut after = lean(&**node, |node| &mut node.metadata);
                if let Some(status) = &mut after.status {
                    (status.addresses, status.images, status.node_info) = (None, None, None);
                }
                let after = Arc::new(after);
                let before = self.nodes.insert(key.name.clone(), after.clone());
                if let Some(id) = before.as_deref().and_then(provider_id) {
                    unindex(&mut self.nodes_by_provider_id, id, &key.name);
                }
                if let Some(id) = provider_id(&after) {
                    self.nodes_by_provider_id.entry(id.into()).or_default().insert(key.name.clone());
                }
                Change::Node { name: key.name.clone(), before, after: Some(after) }
            }
            Object::NodeClaim(claim) => {
                let after = Arc::new(lean(&**claim, |claim| &mut claim.metadata));
                let before = self.claims.insert(key.name.clone(), after.clone());
                if let Some(id) = before.as_deref().and_then(claim_provider_id) {
                    unindex(&mut self.claims_by_provider_id, id, &key.name);
                }
                if let Some(id) = claim_provider_id(&after) {
                    self.claims_by_provider_id.entry(id.into()).or_default().insert(key.name.clone());
                }
                Change::Claim { name: key.name.clone(), before, after: Some(after) }
            }
            Object::NodePool(pool) => {
                let after = Arc::new(lean(&**pool, |pool| &mut pool.metadata));
                let before = self.pools.insert(key.name.clone(), after.clone());
                Change::Pool { name: key.name.clone(), before, after: Some(after) }
            }
            Object::NodeClass(class) => {
                let after = Arc::new((**class).clone());
                let reference = class_of(key);
                let before = self.classes.insert(reference.clone(), after.clone());
                Change::Class { class: reference, before, after: Some(after) }
            }
            other => {
                match other {
                    Object::NodeOverlay(it) => drop(self.overlays.insert(key.name.clone(), Arc::new((**it).clone()))),
                    Object::CapacityBuffer(it) => drop(self.buffers.insert(named(), Arc::new((**it).clone()))),
                    Object::PodDisruptionBudget(it) => drop(self.budgets.insert(named(), Arc::new((**it).clone()))),
                    Object::VolumeAttachment(it) => {
                        self.attachments.insert(key.name.clone(), Arc::new((**it).clone()));
                    }
                    Object::PersistentVolume(it) => {
                        self.volumes.insert(key.name.clone(), Arc::new((**it).clone()));
                    }
                    Object::PersistentVolumeClaim(it) => {
                        self.volume_claims.insert(named(), Arc::new((**it).clone()));
                    }
                    _ => {}
                }
                Change::Other { key: key.clone() }
            }
        }
    }

    fn unbind(&mut self, pod: &PodState) {
        if let Some(on_node) = self.pods_by_node.get_mut(&pod.node) {
            on_node.remove(&pod.id);
            if on_node.is_empty() {
                self.pods_by_node.remove(&pod.node);
            }
        }
    }
}

/// Equal sets of labels, kept once.
#[derive(Debug, Default)]
struct SharedLabels {
    known: FxHashSet<Arc<Labels>>,
    /// How many were in use when it was last looked.
    n_used: usize,
}

impl SharedLabels {
    fn share(&mut self, labels: Arc<Labels>) -> Arc<Labels> {
        if let Some(known) = self.known.get(&labels) {
            return known.clone();
        }
        if self.known.len() > 2 * self.n_used + 256 {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.n_used = self.known.len();
        }
        self.known.insert(labels.clone());
        labels
    }
}

/// `spec.providerID`, where it is set.
pub fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref().filter(|id| !id.is_empty())
}

/// Whether its kubelet says so.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// `status.providerID`, where it is set.
pub fn claim_provider_id(claim: &NodeClaim) -> Option<&str> {
    claim.status.as_ref()?.provider_id.as_deref().filter(|id| !id.is_empty())
}

fn pod_id(key: &ObjectKey) -> PodId {
    PodId { namespace: key.namespace.clone(), name: key.name.clone() }
}

fn pod_key(id: &PodId) -> ObjectKey {
    ObjectKey { kind: Kind::Pod, class_kind: None, namespace: id.namespace.clone(), name: id.name.clone() }
}

fn class_of(key: &ObjectKey) -> NodeClassRef {
    let (kind, group) = key.class_kind.as_deref().and_then(|text| text.split_once('.')).unwrap_or_default();
    NodeClassRef { group: group.into(), kind: kind.into(), name: key.name.clone() }
}

/// A copy without what nobody here reads.
fn lean<T: Clone>(object: &T, metadata: impl Fn(&mut T) -> &mut ObjectMeta) -> T {
    let mut copy = object.clone();
    let metadata = metadata(&mut copy);
    metadata.managed_fields = None;
    metadata.labels = metadata.labels.take().map(dense);
    metadata.annotations = metadata.annotations.take().map(dense);
    copy
}

/// The same map in less room: one that was filled in order, key by key, is half empty.
fn dense<K: Ord, V>(map: BTreeMap<K, V>) -> BTreeMap<K, V> {
    map.into_iter().collect()
}

fn unindex(index: &mut BTreeMap<Text, BTreeSet<Text>>, id: &str, name: &Text) {
    if let Some(names) = index.get_mut(id) {
        names.remove(name);
        if names.is_empty() {
            index.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_mirror::{MirrorSettings, View};
    use serde_json::json;

    fn world() -> World {
        World::new(Mirror::new(MirrorSettings::new(View::Live)), [])
    }

    fn pool(version: u64) -> Object {
        Object::read(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {"name": "p", "uid": "u", "resourceVersion": version.to_string()},
            "spec": {"template": {"spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}}},
        }))
        .unwrap()
    }

    #[test]
    fn what_an_answer_brought_is_not_ended_by_what_was_before_it() {
        let mut world = world();
        // A list was begun at 5; the answer to a creation says 7.
        assert!(world.observe(pool(7)).is_some());
        let key = pool(7).key();
        assert!(world.forget(&key, Some(5)).is_none(), "a predecessor's end, or a list without it");
        assert!(world.pools.contains_key("p") && world.observe(pool(8)).is_some());
        assert!(world.forget(&key, Some(9)).is_some());
        assert!(world.observe(pool(8)).is_none(), "what is gone does not come back");
        assert!(world.observe(pool(10)).is_some(), "another one does");
        assert!(world.forget(&key, None).is_some(), "a server that does not say when is believed");
    }

    #[test]
    fn a_list_of_one_kind_of_class_says_nothing_of_another_kind() {
        let mut world = world();
        let class = |kind: &str| ObjectKey {
            kind: Kind::NodeClass,
            class_kind: Some(kind.into()),
            namespace: "".into(),
            name: "c".into(),
        };
        for kind in ["A.x", "B.x"] {
            world.cannot_read(class(kind), "odd".to_owned());
        }
        let absent = world.absent(Kind::NodeClass, Some(&"A.x".into()), &BTreeSet::new());
        assert_eq!(absent, [class("A.x")]);
    }

    #[test]
    fn what_came_without_a_version_goes_all_the_same() {
        let mut world = world();
        let Object::NodePool(mut versionless) = pool(7) else { panic!("it is a pool") };
        versionless.metadata.resource_version = None;
        assert!(world.observe(Object::NodePool(versionless)).is_some());
        assert!(world.forget(&pool(7).key(), None).is_some() && world.pools.is_empty());
    }

    #[test]
    fn what_is_read_at_last_is_readable() {
        let mut world = world();
        let key = pool(7).key();
        world.observe(pool(7));
        assert!(world.cannot_read(key.clone(), "odd".to_owned()));
        assert!(world.observe(pool(6)).is_none() && world.unreadable().contains_key(&key), "that was before");
        assert!(world.observe(pool(7)).is_none() && world.unreadable().is_empty());
    }
}
