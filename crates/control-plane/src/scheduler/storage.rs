//! Claims, volumes, classes and what drivers say of nodes: the storage side of placing a pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};

use super::labels::{Labels, NodeTerm, Selector};
use super::quantity::{Nanos, parse};
use crate::store::Key;

pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
pub(crate) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
pub(crate) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// A provisioner that makes nothing: volumes of such a class are there already or never.
pub(crate) const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) key: Key,
    pub(crate) uid: String,
    pub(crate) volume: String,
    pub(crate) class: String,
    pub(crate) selected_node: Option<String>,
    /// The binding is done on both sides.
    pub(crate) is_bound: bool,
    pub(crate) is_lost: bool,
    pub(crate) is_deleting: bool,
    pub(crate) access_modes: Vec<String>,
    pub(crate) size: Nanos,
    pub(crate) has_size: bool,
    pub(crate) selector: Option<Selector>,
    pub(crate) mode: String,
    pub(crate) attributes_class: String,
    pub(crate) controller_uid: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) claim: Option<ClaimRef>,
    pub(crate) class: String,
    pub(crate) capacity: Nanos,
    pub(crate) mode: String,
    pub(crate) attributes_class: String,
    pub(crate) access_modes: Vec<String>,
    pub(crate) is_available: bool,
    pub(crate) is_deleting: bool,
    pub(crate) node_terms: Option<Vec<NodeTerm>>,
    pub(crate) csi: Option<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimRef {
    pub(crate) key: Key,
    pub(crate) uid: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) provisioner: String,
    pub(crate) waits_for_consumer: bool,
    /// Alternatives: for each key the allowed values.
    pub(crate) topologies: Vec<Vec<(String, Vec<String>)>>,
}

#[derive(Clone, Debug)]
struct Capacity {
    class: String,
    limit: Option<Nanos>,
    nodes: Option<Selector>,
}

#[derive(Clone, Debug)]
struct Attachment {
    node: String,
    attacher: String,
    volume: Option<String>,
}

/// Everything about storage in the cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Storage {
    pub(crate) claims: BTreeMap<Key, Claim>,
    pub(crate) volumes: BTreeMap<String, Volume>,
    pub(crate) classes: BTreeMap<String, Class>,
    /// Most volumes per driver, by node.
    limits: BTreeMap<String, BTreeMap<String, i64>>,
    /// Drivers that report how much room they have.
    tracked_drivers: BTreeMap<String, bool>,
    capacities: BTreeMap<Key, Capacity>,
    attachments: BTreeMap<String, Attachment>,
}

impl Claim {
    fn of(claim: &PersistentVolumeClaim) -> Self {
        let (meta, spec) = (&claim.metadata, claim.spec.clone().unwrap_or_default());
        let annotation = |key: &str| meta.annotations.as_ref().and_then(|all| all.get(key)).cloned();
        let asked = spec.resources.as_ref().and_then(|r| r.requests.as_ref()).and_then(|all| all.get("storage"));
        let volume = spec.volume_name.unwrap_or_default();
        Self {
            key: Key::new(meta.namespace.as_deref().unwrap_or(""), meta.name.as_deref().unwrap_or("")),
            uid: meta.uid.clone().unwrap_or_default(),
            class: annotation(BETA_CLASS).or(spec.storage_class_name).unwrap_or_default(),
            selected_node: annotation(SELECTED_NODE),
            is_bound: !volume.is_empty() && annotation(BIND_COMPLETED).is_some(),
            is_lost: claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost"),
            is_deleting: meta.deletion_timestamp.is_some(),
            access_modes: spec.access_modes.unwrap_or_default(),
            size: asked.map_or(0, |quantity| parse(&quantity.0)),
            has_size: asked.is_some(),
            selector: spec.selector.as_ref().map(|selector| Selector::of(Some(selector))),
            mode: spec.volume_mode.unwrap_or_else(|| "Filesystem".to_owned()),
            attributes_class: spec.volume_attributes_class_name.unwrap_or_default(),
            controller_uid: meta
                .owner_references
                .iter()
                .flatten()
                .find(|owner| owner.controller == Some(true))
                .map(|owner| owner.uid.clone()),
            volume,
        }
    }

    /// For one pod alone.
    pub(crate) fn is_for_one_pod(&self) -> bool {
        self.access_modes.iter().any(|mode| mode == "ReadWriteOncePod")
    }
}

impl Volume {
    fn of(volume: &PersistentVolume) -> Self {
        let (meta, spec) = (&volume.metadata, volume.spec.clone().unwrap_or_default());
        let beta_class = meta.annotations.as_ref().and_then(|all| all.get(BETA_CLASS)).cloned();
        let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
        Self {
            name: meta.name.clone().unwrap_or_default(),
            labels: meta.labels.clone().unwrap_or_default(),
            claim: spec.claim_ref.map(|reference| ClaimRef {
                key: Key::new(reference.namespace.as_deref().unwrap_or(""), reference.name.as_deref().unwrap_or("")),
                uid: reference.uid.unwrap_or_default(),
            }),
            class: beta_class.or(spec.storage_class_name).unwrap_or_default(),
            capacity: spec
                .capacity
                .iter()
                .flatten()
                .find(|(name, _)| *name == "storage")
                .map_or(0, |(_, q)| parse(&q.0)),
            mode: spec.volume_mode.unwrap_or_else(|| "Filesystem".to_owned()),
            attributes_class: spec.volume_attributes_class_name.unwrap_or_default(),
            access_modes: spec.access_modes.unwrap_or_default(),
            is_available: volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Available"),
            is_deleting: meta.deletion_timestamp.is_some(),
            node_terms: required.map(NodeTerm::all_of),
            csi: spec.csi.map(|csi| (csi.driver, csi.volume_handle)),
        }
    }

    /// Whether the volume can be reached from such a node.
    pub(crate) fn is_reachable_from(&self, labels: &Labels) -> bool {
        self.node_terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.matches("", labels)))
    }

    /// Kept for this claim, by its user or by a controller.
    fn is_for(&self, claim: &Claim) -> bool {
        self.claim.as_ref().is_some_and(|reference| {
            reference.key == claim.key && (reference.uid.is_empty() || reference.uid == claim.uid)
        })
    }
}

impl Class {
    fn of(class: &StorageClass) -> Self {
        let topologies = class.allowed_topologies.iter().flatten().map(|term| {
            let one =
                |e: &k8s_openapi::api::core::v1::TopologySelectorLabelRequirement| (e.key.clone(), e.values.clone());
            term.match_label_expressions.iter().flatten().map(one).collect()
        });
        Self {
            provisioner: class.provisioner.clone(),
            waits_for_consumer: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
            topologies: topologies.collect(),
        }
    }

    pub(crate) fn provisions(&self) -> bool {
        !self.provisioner.is_empty() && self.provisioner != NO_PROVISIONER
    }

    /// Whether volumes may be made where such a node reaches them. A class that lists nothing allows everywhere.
    pub(crate) fn allows(&self, labels: &Labels) -> bool {
        let holds = |(key, values): &(String, Vec<String>)| labels.get(key).is_some_and(|value| values.contains(value));
        self.topologies.is_empty() || self.topologies.iter().any(|term| !term.is_empty() && term.iter().all(holds))
    }
}

/// What the store holds of storage, parsed.
pub(crate) enum Item {
    Claim(Claim),
    Volume(Volume),
    Class(String, Class),
    Limits(String, BTreeMap<String, i64>),
    Driver(String, bool),
    Capacity(Key, CapacityFacts),
    Attachment(String, AttachmentFacts),
}

pub(crate) struct CapacityFacts(Capacity);
pub(crate) struct AttachmentFacts(Attachment);

impl Item {
    /// Reads an object of a storage resource. None for other resources and unreadable objects.
    pub(crate) fn read(group: &str, plural: &str, json: &[u8]) -> Option<Self> {
        Some(match (group, plural) {
            ("", "persistentvolumeclaims") => Self::Claim(Claim::of(&serde_json::from_slice(json).ok()?)),
            ("", "persistentvolumes") => Self::Volume(Volume::of(&serde_json::from_slice(json).ok()?)),
            ("storage.k8s.io", "storageclasses") => {
                let class: StorageClass = serde_json::from_slice(json).ok()?;
                Self::Class(class.metadata.name.clone().unwrap_or_default(), Class::of(&class))
            }
            ("storage.k8s.io", "csinodes") => {
                let node: CSINode = serde_json::from_slice(json).ok()?;
                let limits =
                    node.spec.drivers.iter().filter_map(|driver| {
                        Some((driver.name.clone(), i64::from(driver.allocatable.as_ref()?.count?)))
                    });
                Self::Limits(node.metadata.name.clone().unwrap_or_default(), limits.collect())
            }
            ("storage.k8s.io", "csidrivers") => {
                let driver: CSIDriver = serde_json::from_slice(json).ok()?;
                let is_tracked = driver.spec.storage_capacity.unwrap_or(false);
                Self::Driver(driver.metadata.name.unwrap_or_default(), is_tracked)
            }
            ("storage.k8s.io", "csistoragecapacities") => {
                let capacity: CSIStorageCapacity = serde_json::from_slice(json).ok()?;
                let meta = capacity.metadata;
                let key = Key::new(meta.namespace.as_deref().unwrap_or(""), meta.name.as_deref().unwrap_or(""));
                let limit = capacity.maximum_volume_size.or(capacity.capacity).map(|quantity| parse(&quantity.0));
                let nodes = capacity.node_topology.as_ref().map(|selector| Selector::of(Some(selector)));
                Self::Capacity(key, CapacityFacts(Capacity { class: capacity.storage_class_name, limit, nodes }))
            }
            ("storage.k8s.io", "volumeattachments") => {
                let attachment: VolumeAttachment = serde_json::from_slice(json).ok()?;
                let (name, spec) = (attachment.metadata.name.unwrap_or_default(), attachment.spec);
                let volume = spec.source.persistent_volume_name;
                Self::Attachment(
                    name,
                    AttachmentFacts(Attachment { node: spec.node_name, attacher: spec.attacher, volume }),
                )
            }
            _ => return None,
        })
    }
}

impl Storage {
    pub(crate) fn put(&mut self, item: Item) {
        match item {
            Item::Claim(claim) => drop(self.claims.insert(claim.key.clone(), claim)),
            Item::Volume(volume) => drop(self.volumes.insert(volume.name.clone(), volume)),
            Item::Class(name, class) => drop(self.classes.insert(name, class)),
            Item::Limits(node, limits) => drop(self.limits.insert(node, limits)),
            Item::Driver(name, is_tracked) => drop(self.tracked_drivers.insert(name, is_tracked)),
            Item::Capacity(key, facts) => drop(self.capacities.insert(key, facts.0)),
            Item::Attachment(name, facts) => drop(self.attachments.insert(name, facts.0)),
        }
    }

    pub(crate) fn remove(&mut self, group: &str, plural: &str, key: &Key) {
        match (group, plural) {
            ("", "persistentvolumeclaims") => drop(self.claims.remove(key)),
            ("", "persistentvolumes") => drop(self.volumes.remove(&key.name)),
            ("storage.k8s.io", "storageclasses") => drop(self.classes.remove(&key.name)),
            ("storage.k8s.io", "csinodes") => drop(self.limits.remove(&key.name)),
            ("storage.k8s.io", "csidrivers") => drop(self.tracked_drivers.remove(&key.name)),
            ("storage.k8s.io", "csistoragecapacities") => drop(self.capacities.remove(key)),
            ("storage.k8s.io", "volumeattachments") => drop(self.attachments.remove(&key.name)),
            _ => {}
        }
    }

    /// The smallest free volume that suits the claim on such a node, but for those already `taken`.
    pub(crate) fn find_volume(&self, claim: &Claim, labels: &Labels, taken: &[String]) -> Option<&Volume> {
        let mut smallest: Option<&Volume> = None;
        for volume in self.volumes.values().filter(|volume| volume.class == claim.class) {
            let is_kept_for_other = volume.claim.is_some() && !volume.is_for(claim);
            let suits = !is_kept_for_other
                && !taken.contains(&volume.name)
                && volume.capacity >= claim.size
                && volume.mode == claim.mode
                && volume.attributes_class == claim.attributes_class
                && !volume.is_deleting;
            if !suits {
                continue;
            }
            let is_reachable = volume.is_reachable_from(labels);
            if volume.is_for(claim) {
                return is_reachable.then_some(volume);
            }
            let is_fit = volume.is_available
                && claim.selector.as_ref().is_none_or(|selector| selector.matches(&volume.labels))
                && is_reachable
                && claim.access_modes.iter().all(|mode| volume.access_modes.contains(mode));
            if is_fit && smallest.is_none_or(|smallest| volume.capacity < smallest.capacity) {
                smallest = Some(volume);
            }
        }
        smallest
    }

    /// Whether the driver says it has room for the claim where such a node reaches it. Most drivers say nothing.
    pub(crate) fn has_room(&self, claim: &Claim, class_name: &str, class: &Class, labels: &Labels) -> bool {
        if !claim.has_size || self.tracked_drivers.get(&class.provisioner) != Some(&true) {
            return true;
        }
        self.capacities.values().any(|capacity| {
            capacity.class == class_name
                && capacity.limit.is_some_and(|limit| limit >= claim.size)
                && capacity.nodes.as_ref().is_some_and(|nodes| nodes.matches(labels))
        })
    }

    pub(crate) fn limits(&self, node: &str) -> Option<&BTreeMap<String, i64>> {
        self.limits.get(node).filter(|limits| !limits.is_empty())
    }

    /// The driver of a claim's volume and what the volume is called there; before it exists, a name of its own.
    pub(crate) fn driver_of(&self, claim: &Claim) -> Option<(String, String)> {
        if !claim.volume.is_empty()
            && let Some(volume) = self.volumes.get(&claim.volume)
        {
            return volume.csi.clone().filter(|(driver, handle)| !driver.is_empty() && !handle.is_empty());
        }
        let class = self.classes.get(&claim.class)?;
        let handle = format!("unbound {}/{}", claim.key.namespace, claim.key.name);
        (!class.provisioner.is_empty()).then(|| (class.provisioner.clone(), handle))
    }

    /// What is attached to a node: driver and handle.
    pub(crate) fn attached_to<'a>(&'a self, node: &'a str) -> impl Iterator<Item = (String, String)> + 'a {
        self.attachments.values().filter(move |attachment| attachment.node == node).filter_map(|attachment| {
            let volume = self.volumes.get(attachment.volume.as_ref()?)?;
            let (_, handle) = volume.csi.as_ref()?;
            (!attachment.attacher.is_empty()).then(|| (attachment.attacher.clone(), handle.clone()))
        })
    }
}
