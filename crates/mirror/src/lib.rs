//! The window: Kubernetes objects in, frozen Snapshots out.
//!
//! The mirror keeps the facts that decisions need, not the objects they came from. It is synchronous, asks no clock and
//! talks to nobody; a file reader or a watch feeds it, and each `snapshot` is a picture at one revision. An object that
//! cannot be used becomes a note beside the facts, and the others go on.
//!
//! ```text
//! Value ─▶ Object ─▶ observe ─▶ facts by kind ─▶ snapshot(now, supply) ─▶ Snapshot
//!            │          │                            ▲
//!            └──────────┴── notes                    └── Supply: instance types and prices
//! ```
//!
//! What it is *not* for: deciding. Which node a pod gets is the engine's business; that a pod counts at all, what it
//! requests, and which namespaces its selector means are decided here.

mod buffers;
mod default_spreads;
mod freeze;
mod guards;
mod nodes;
mod object;
pub mod pod_state;
mod pods;
mod pools;
mod read;
mod requests;
mod requirement;
mod resolve;
mod settings;
mod shape;
mod supply;
mod volumes;
mod wants;
mod wire;
mod workloads;

#[cfg(test)]
mod tests;

pub use buffers::{BufferSize, Unresolved as UnresolvedBuffer};
pub use default_spreads::read_scheduler_config;
pub use kerf_api::LabelRules;
pub use nodes::{Asked, RESERVES};
pub use object::{Kind, NodeClassObject, Object, ObjectKey, Unreadable, describe, without_managed_fields};
pub use pod_state::{Hold, OwnedBy, Phase, PodState};
pub use pods::WaitsFor;
pub use settings::{Gates, MirrorSettings, View};
pub use supply::{Inquiry, Stock, Supply, Types};
pub use wire::{WireEvent, WireStatus, frame as wire_frame};

use buffers::{BufferFact, TemplateFact};
use guards::GuardFact;
use k8s_openapi::api::core::v1::{LimitRange, Pod, PodTemplateSpec};
use kerf_api::NodeOverlay;
use kerf_model::{Labels, NodeClassRef, Note, PodId, PoolName, Resources, Revision, Snapshot, Text, UnixMillis, Why};
use nodes::{NodeClaimFact, NodeFact};
use pods::{OwnerKind, PodFact};
use pools::{ClassFact, PoolFact};
use read::Reader;
use requests::ContainerDefaults;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;
use shape::Shape;
use std::collections::BTreeMap;
use std::sync::Arc;
use volumes::Storage;
use workloads::WorkloadFact;

type Named = (Text, Text);

/// What is known of the cluster.
#[derive(Debug)]
pub struct Mirror {
    settings: MirrorSettings,
    n_observed: u64,
    /// Where each object was last seen.
    sources: FxHashMap<ObjectKey, Text>,
    notes: BTreeMap<ObjectKey, Vec<Note>>,
    /// Notes on what has no key.
    loose_notes: Vec<Note>,
    /// Objects of kinds that nobody here knows: the first of each kind, and how many.
    strangers: BTreeMap<Text, (Note, usize)>,
    /// Pods that could not even be read.
    unreadable_pods: BTreeMap<PodId, Why>,

    shapes: FxHashSet<Arc<Shape>>,
    pods: BTreeMap<PodId, Box<PodFact>>,
    nodes: BTreeMap<Text, NodeFact>,
    node_claims: BTreeMap<Text, NodeClaimFact>,
    pools: BTreeMap<Text, PoolFact>,
    classes: BTreeMap<NodeClassRef, ClassFact>,
    overlays: BTreeMap<Text, (Text, Arc<NodeOverlay>)>,
    buffers: BTreeMap<Named, BufferFact>,
    pod_templates: BTreeMap<Named, TemplateFact>,
    workloads: BTreeMap<(Text, OwnerKind, Text), WorkloadFact>,
    daemon_sets: BTreeMap<Named, DaemonSetFact>,
    services: BTreeMap<Named, Labels>,
    guards: BTreeMap<Named, GuardFact>,
    storage: Storage,
    namespaces: BTreeMap<Text, Labels>,
    /// Value, and whether it is the cluster's default.
    priorities: BTreeMap<Text, (i32, bool)>,
    limit_ranges: BTreeMap<Named, ContainerDefaults>,
}

#[derive(Debug, Clone)]
struct DaemonSetFact {
    source: Text,
    template: Arc<PodTemplateSpec>,
}

/// What a pod asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodAmounts<'a> {
    pub requests: &'a Resources,
    pub limits: &'a Resources,
}

/// What became of an observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    New,
    /// The same object was known, from there.
    Replaced {
        earlier: Text,
    },
    /// It is of no use for planning.
    NotNeeded,
    /// There is a note about it.
    Unreadable,
}

impl Mirror {
    pub fn new(settings: MirrorSettings) -> Self {
        Self {
            settings,
            n_observed: 0,
            sources: FxHashMap::default(),
            notes: BTreeMap::new(),
            loose_notes: Vec::new(),
            strangers: BTreeMap::new(),
            unreadable_pods: BTreeMap::new(),
            shapes: FxHashSet::default(),
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            node_claims: BTreeMap::new(),
            pools: BTreeMap::new(),
            classes: BTreeMap::new(),
            overlays: BTreeMap::new(),
            buffers: BTreeMap::new(),
            pod_templates: BTreeMap::new(),
            workloads: BTreeMap::new(),
            daemon_sets: BTreeMap::new(),
            services: BTreeMap::new(),
            guards: BTreeMap::new(),
            storage: Storage::default(),
            namespaces: BTreeMap::new(),
            priorities: BTreeMap::new(),
            limit_ranges: BTreeMap::new(),
        }
    }

    /// Reads a value as it comes from a JSON or YAML parser, and observes it. What cannot be read becomes a note.
    ///
    /// `source` says where it was found, such as `dump.yaml:120`.
    pub fn observe_value(&mut self, source: &str, value: Value) -> Seen {
        // What was written for an older version of the API means what it is converted to.
        let value = match kerf_api::older::to_current(&value) {
            Some(Ok(current)) => current,
            _ => value,
        };
        let name = describe(&value);
        let api_version = value.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
        let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let pod = pod_id_if_waiting(&value);
        let source: Text = source.into();
        let problems = schema_problems(&value);
        let (field, message) = match Object::read(value) {
            Ok(object) => {
                let key = object.key();
                let seen = self.observe(&source, object);
                self.add_problems(&source, key, problems);
                return seen;
            }
            Err(Unreadable::NotNeeded) => return Seen::NotNeeded,
            Err(Unreadable::UnknownKind) => {
                let note = Reader::lone_note(
                    &source,
                    name,
                    "kind",
                    format!("{kind} of {api_version} is not used for planning"),
                );
                self.strangers
                    .entry(format!("{api_version}/{kind}").into())
                    .and_modify(|(_, count)| *count += 1)
                    .or_insert((note, 1));
                return Seen::Unreadable;
            }
            Err(Unreadable::NotAnObject { message }) => (String::new(), message),
            Err(Unreadable::OtherVersion { known }) => {
                let later = if api_version.starts_with("karpenter.sh/") { "; so is v1beta1" } else { "" };
                (
                    "apiVersion".to_owned(),
                    format!("{api_version} is not read, only {known}{later}; the object is left out"),
                )
            }
            Err(Unreadable::Field { field, message }) => (field, message),
        };
        if let Some(id) = pod {
            let why = Why::Ill { field: field.as_str().into(), message: message.as_str().into() };
            self.unreadable_pods.insert(id, why);
        }
        self.loose_notes.push(Reader::lone_note(&source, name, field, message));
        Seen::Unreadable
    }

    /// Takes in one object, in place of what was known under its key.
    pub fn observe(&mut self, source: &Text, object: Object) -> Seen {
        let key = object.key();
        self.observe_as(source, key, object)
    }

    /// The same, for those who have asked the object for its key already.
    pub fn observe_as(&mut self, source: &Text, key: ObjectKey, object: Object) -> Seen {
        self.n_observed += 1;
        let mut reader = Reader::new(source, &key);
        self.take(&mut reader, source, &key, object);
        if reader.notes.is_empty() {
            self.notes.remove(&key);
        } else {
            self.notes.insert(key.clone(), reader.notes);
        }
        // A watch is the source of everything: of a hundred thousand pods nobody asks.
        if self.settings.view == View::Live && key.kind == Kind::Pod {
            return Seen::New;
        }
        match self.sources.insert(key.clone(), source.clone()) {
            Some(earlier) => {
                if self.settings.view == View::Files {
                    let message = format!("it was given before, at {earlier}; this one is used");
                    self.loose_notes.push(Reader::lone_note(source, key, "", message));
                }
                Seen::Replaced { earlier }
            }
            None => Seen::New,
        }
    }

    /// Drops what is known of an object.
    pub fn forget(&mut self, key: &ObjectKey) {
        self.n_observed += 1;
        self.sources.remove(key);
        self.notes.remove(key);
        let named = (key.namespace.clone(), key.name.clone());
        let workload = |kind| (key.namespace.clone(), kind, key.name.clone());
        match key.kind {
            Kind::Pod => drop(self.pods.remove(&pod_id(key))),
            Kind::Node => drop(self.nodes.remove(&key.name)),
            Kind::Namespace => drop(self.namespaces.remove(&key.name)),
            Kind::Service => drop(self.services.remove(&named)),
            Kind::PersistentVolume => drop(self.storage.volumes.remove(&key.name)),
            Kind::PersistentVolumeClaim => drop(self.storage.claims.remove(&named)),
            Kind::LimitRange => drop(self.limit_ranges.remove(&named)),
            Kind::PodTemplate => drop(self.pod_templates.remove(&named)),
            Kind::ReplicationController => drop(self.workloads.remove(&workload(OwnerKind::ReplicationController))),
            Kind::Deployment => drop(self.workloads.remove(&workload(OwnerKind::Deployment))),
            Kind::ReplicaSet => drop(self.workloads.remove(&workload(OwnerKind::ReplicaSet))),
            Kind::StatefulSet => drop(self.workloads.remove(&workload(OwnerKind::StatefulSet))),
            Kind::Job => drop(self.workloads.remove(&workload(OwnerKind::Job))),
            Kind::DaemonSet => drop(self.daemon_sets.remove(&named)),
            Kind::PodDisruptionBudget => drop(self.guards.remove(&named)),
            Kind::StorageClass => drop(self.storage.classes.remove(&key.name)),
            Kind::CSINode => drop(self.storage.csi_nodes.remove(&key.name)),
            // Only a drain asks for attachments, and its own room keeps them.
            Kind::VolumeAttachment => {}
            Kind::PriorityClass => drop(self.priorities.remove(&key.name)),
            Kind::NodePool => drop(self.pools.remove(&key.name)),
            Kind::NodeClaim => drop(self.node_claims.remove(&key.name)),
            Kind::NodeOverlay => drop(self.overlays.remove(&key.name)),
            Kind::CapacityBuffer => drop(self.buffers.remove(&named)),
            Kind::NodeClass => self.classes.retain(|reference, _| class_key(reference) != *key),
        }
    }

    /// Adds a note that its owner made while finding objects (a file that ends in the middle, say).
    pub fn note(&mut self, note: Note) {
        self.loose_notes.push(note);
    }

    /// How many observations there were: two snapshots of one revision show the same facts.
    pub fn revision(&self) -> Revision {
        Revision(self.n_observed)
    }

    /// Freezes what is known.
    ///
    /// Guarantees: the order of observation does not show, equal demands share one index, and pods, nodes, pools and
    /// daemons are sorted by name.
    pub fn snapshot(&self, now: UnixMillis, supply: &dyn Supply) -> Snapshot {
        freeze::freeze(self, now, supply)
    }

    /// What each pool's machines have together, those on their way out left aside: what limits are compared with.
    pub fn usage(&self) -> BTreeMap<PoolName, Resources> {
        let claims: Vec<&NodeClaimFact> = self.node_claims.values().collect();
        nodes::usage(self.nodes.values(), &claims)
    }

    /// What a pod that has not ended asks for, and at most.
    pub fn pod_amounts(&self, id: &PodId) -> Option<PodAmounts<'_>> {
        let shape = &self.pods.get(id)?.shape;
        Some(PodAmounts { requests: &shape.requests, limits: &shape.limits })
    }

    /// What a CapacityBuffer comes to, or why to nothing. None when it is not known.
    pub fn buffer_size(&self, namespace: &Text, name: &Text) -> Option<Result<BufferSize, UnresolvedBuffer>> {
        let buffer = self.buffers.get(&(namespace.clone(), name.clone()))?;
        Some(wants::buffer_size(self, namespace, buffer))
    }

    /// Overlays that conflict with others or cannot be read: name and reason. Those that are unsound by themselves are not asked
    /// about.
    pub fn rejected_overlays(&self, supply: &dyn Supply) -> Vec<(Text, Text)> {
        freeze::rejected_overlays(self, supply)
    }

    fn take(&mut self, reader: &mut Reader, source: &Text, key: &ObjectKey, object: Object) {
        let named = (key.namespace.clone(), key.name.clone());
        let name = key.name.clone();
        let rules = &self.settings.labels;
        match object {
            Object::Pod(pod) => self.take_pod(reader, source, key, *pod),
            Object::Node(node) => drop(self.nodes.insert(name, NodeFact::read(reader, &node))),
            Object::Namespace(namespace) => {
                let mut labels = read::labels(namespace.metadata.labels.as_ref());
                labels.insert("kubernetes.io/metadata.name".into(), name.clone());
                self.namespaces.insert(name, labels);
            }
            Object::Service(service) => {
                let selector = service.spec.and_then(|spec| spec.selector);
                self.services.insert(named, read::labels(selector.as_ref()));
            }
            Object::PersistentVolume(volume) => {
                let fact = volumes::VolumeFact::read(reader, &volume, rules);
                self.storage.volumes.insert(name, fact);
            }
            Object::PersistentVolumeClaim(claim) => {
                self.storage.claims.insert(named, volumes::ClaimFact::read(&claim));
            }
            Object::LimitRange(range) => drop(self.limit_ranges.insert(named, container_defaults(reader, &range))),
            Object::PodTemplate(template) => {
                let generation = template.metadata.generation.unwrap_or(0);
                let template = Arc::new(template.template.unwrap_or_default());
                self.pod_templates.insert(named, TemplateFact { template, generation });
            }
            Object::ReplicationController(object) => {
                self.take_workload(WorkloadFact::of_replication_controller(source, *object));
            }
            Object::Deployment(object) => {
                let fact = WorkloadFact::of_deployment(reader, source, *object);
                self.take_workload(fact);
            }
            Object::ReplicaSet(object) => {
                let fact = WorkloadFact::of_replica_set(reader, source, *object);
                self.take_workload(fact);
            }
            Object::StatefulSet(object) => {
                let fact = WorkloadFact::of_stateful_set(reader, source, *object);
                self.take_workload(fact);
            }
            Object::Job(object) => self.take_workload(WorkloadFact::of_job(source, *object)),
            Object::DaemonSet(object) => {
                let template = Arc::new(object.spec.map(|spec| spec.template).unwrap_or_default());
                self.daemon_sets.insert(named, DaemonSetFact { source: source.clone(), template });
            }
            Object::PodDisruptionBudget(budget) => drop(self.guards.insert(named, GuardFact::read(reader, &budget))),
            Object::StorageClass(class) => {
                self.storage.classes.insert(name, volumes::ClassFact::read(&class));
            }
            Object::CSINode(node) => drop(self.storage.csi_nodes.insert(name, volumes::attach_limits(&node))),
            Object::VolumeAttachment(_) => {}
            Object::PriorityClass(class) => {
                self.priorities.insert(name, (class.value.unwrap_or_default(), class.global_default == Some(true)));
            }
            Object::NodePool(pool) => {
                let fact = PoolFact::read(reader, &pool, rules, self.settings.view);
                self.pools.insert(name, fact);
            }
            Object::NodeClaim(claim) => {
                let fact = NodeClaimFact::read(reader, &claim, rules);
                self.node_claims.insert(name, fact);
            }
            Object::NodeOverlay(overlay) => drop(self.overlays.insert(name, (source.clone(), Arc::new(*overlay)))),
            Object::CapacityBuffer(buffer) => {
                let created = read::created(&buffer.metadata);
                let fact = BufferFact { source: source.clone(), spec: buffer.spec, created };
                self.buffers.insert(named, fact);
            }
            Object::NodeClass(class) => {
                let reference = NodeClassRef { group: class.group.clone(), kind: class.kind.clone(), name };
                self.classes.insert(reference, ClassFact::read(&class));
            }
        }
    }

    fn take_pod(&mut self, reader: &mut Reader, source: &Text, key: &ObjectKey, mut pod: Pod) {
        let id = pod_id(key);
        self.unreadable_pods.remove(&id);
        let of_daemon_set = pod
            .metadata
            .owner_references
            .iter()
            .flatten()
            .any(|owner| OwnerKind::parse(&owner.api_version, &owner.kind) == OwnerKind::DaemonSet);
        // The controller pins a daemon's pod to its node; what the DaemonSet itself wants stands in its template.
        if of_daemon_set
            && let Some(affinity) = pod.spec.as_mut().and_then(|spec| spec.affinity.as_mut())
            && let Some(affinity) = affinity.node_affinity.as_mut()
        {
            affinity.required_during_scheduling_ignored_during_execution = None;
        }
        let (rules, view) = (&self.settings.labels, self.settings.view);
        let Some(mut fact) = pods::read(reader, source, &pod, &key.namespace, rules, view) else {
            self.pods.remove(&id);
            return;
        };
        if fact.place != pods::Place::Waiting {
            // Only what a running pod takes up matters, not what it once asked for.
            reader.notes.retain(|note| note.field.contains("resources") || note.field.contains("overhead"));
        }
        if let pods::Place::On(node) = &mut fact.place
            && let Some((name, _)) = self.nodes.get_key_value(node)
        {
            *node = name.clone();
        }
        match self.shapes.get(&fact.shape) {
            Some(known) => fact.shape = known.clone(),
            None => drop(self.shapes.insert(fact.shape.clone())),
        }
        self.pods.insert(id, Box::new(fact));
        // A watch that runs for months sees many shapes come and go.
        if self.n_observed.is_multiple_of(1 << 16) {
            self.shapes.retain(|shape| Arc::strong_count(shape) > 1);
        }
    }

    /// Notes what an API server would refuse, except where our own reading has stumbled over the same field.
    fn add_problems(&mut self, source: &Text, key: ObjectKey, problems: Vec<(String, String)>) {
        if problems.is_empty() {
            return;
        }
        let name = key.to_string();
        let notes = self.notes.entry(key).or_default();
        for (field, message) in problems {
            if !read::says_so(notes, &field) {
                notes.push(Reader::lone_note(source, &name, field, message));
            }
        }
    }

    fn take_workload(&mut self, fact: WorkloadFact) {
        self.workloads.insert((fact.namespace.clone(), fact.kind, fact.name.clone()), fact);
    }
}

fn pod_id(key: &ObjectKey) -> PodId {
    PodId { namespace: key.namespace.clone(), name: key.name.clone() }
}

/// What an API server would refuse or drop of an object of ours that no API server has seen yet: field and words.
fn schema_problems(value: &Value) -> Vec<(String, String)> {
    let Some(kind) = kerf_api::Kind::of(value) else {
        return Vec::new();
    };
    if value.pointer("/metadata/uid").is_some() {
        return Vec::new();
    }
    let mut complete = value.clone();
    kind.apply_defaults(&mut complete);
    let refused = kind.check(&complete, None).into_iter().map(|problem| {
        (problem.path, format!("an API server would refuse it: found {}; {}", problem.found, problem.wants))
    });
    let dropped = kind
        .unknown_fields(value)
        .into_iter()
        .map(|field| (field, "there is no such field; an API server would drop it".to_owned()));
    refused.chain(dropped).collect()
}

fn class_key(reference: &NodeClassRef) -> ObjectKey {
    ObjectKey {
        kind: Kind::NodeClass,
        class_kind: Some(format!("{}.{}", reference.kind, reference.group).into()),
        namespace: "".into(),
        name: reference.name.clone(),
    }
}

/// The name of a pod that has no node, even if the rest of it makes no sense.
fn pod_id_if_waiting(value: &Value) -> Option<PodId> {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    let is_over = matches!(text("/status/phase"), Some("Succeeded" | "Failed" | "Running"));
    if text("/kind") != Some("Pod") || text("/spec/nodeName").is_some() || is_over {
        return None;
    }
    Some(PodId::new(text("/metadata/namespace").unwrap_or("default"), text("/metadata/name")?))
}

fn container_defaults(reader: &mut Reader, range: &LimitRange) -> ContainerDefaults {
    let mut out = ContainerDefaults::default();
    let items = range.spec.as_ref().map(|spec| spec.limits.as_slice()).unwrap_or_default();
    for (position, item) in items.iter().enumerate().filter(|(_, item)| item.type_ == "Container") {
        let field = format!("spec.limits[{position}]");
        let limits = reader.resources(format_args!("{field}.default"), item.default.as_ref());
        let requests = reader.resources(format_args!("{field}.defaultRequest"), item.default_request.as_ref());
        out.limits.0.extend(limits.0);
        out.requests.0.extend(requests.0);
    }
    out
}
