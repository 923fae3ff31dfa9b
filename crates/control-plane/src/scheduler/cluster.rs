//! The scheduler's picture of the cluster, kept up to date change by change.
//!
//! ```text
//! slots: nodes with their pods and sums          by index, so that counts are plain vectors
//! terms: rules of placed pods about others       each distinct rule once, with how many pods per node have it
//! census: how many pods of a population per node counted when first asked, kept current afterwards
//! domains: which nodes share a topology value    made when first asked, forgotten when nodes change
//! ```
//!
//! The last three are what makes a cycle cost as many steps as there are nodes, not pods.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, Pod, ReplicationController, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::labels::{Labels, Selector};
use super::node::{NodeFacts, NodeInfo};
use super::pod::{PodFacts, Population, Rules, Term};
use super::storage::{Item, Storage};
use super::topology::Domains;
use crate::nodes::KnownNode;
use crate::shared::{Recent, Shared};
use crate::store::Key;

/// Populations counted at a time. Pods of one workload ask for the same few; a cluster with more workloads than this counts
/// again now and then.
const CENSUS_MAX: usize = 256;

/// Everything a placement depends on.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    slots: Vec<Option<NodeInfo>>,
    by_name: BTreeMap<String, usize>,
    /// Slots in use, in the order the nodes came.
    order: Vec<usize>,
    pub(crate) pods: BTreeMap<Key, Arc<PodFacts>>,
    /// Placed by us, not yet seen placed.
    assumed: BTreeMap<Key, String>,
    /// Pods on nodes that are not there.
    homeless: BTreeMap<String, BTreeSet<Key>>,
    nominated: BTreeMap<String, BTreeSet<Key>>,
    pub(crate) namespaces: BTreeMap<String, Labels>,
    pub(crate) storage: Storage,
    services: BTreeMap<Key, Labels>,
    /// Selectors of workloads, by `apiVersion/kind` and key.
    workloads: BTreeMap<(String, Key), Selector>,
    pub(crate) budgets: BTreeMap<Key, Budget>,
    pub(crate) resource_claims: BTreeMap<Key, ResourceClaimFacts>,
    terms: BTreeMap<(Role, Arc<Term>), BTreeMap<usize, i64>>,
    image_nodes: BTreeMap<String, i64>,
    claim_users: BTreeMap<Key, i64>,
    labels: Shared<Labels>,
    rules: Recent<Rules>,
    census: RefCell<BTreeMap<CensusKey, Arc<Vec<i64>>>>,
    domains: RefCell<BTreeMap<String, Arc<Domains>>>,
}

/// What a placed pod's rule does to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    RequiredAnti,
    RequiredAffinity,
    Preferred(i32),
    PreferredAnti(i32),
}

/// Pods that belong to all of these.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CensusKey {
    pub(crate) all_of: Vec<Population>,
    pub(crate) skips_deleting: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Budget {
    pub(crate) namespace: String,
    pub(crate) selector: Selector,
    pub(crate) allowed: i32,
    pub(crate) disrupted: BTreeSet<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct ResourceClaimFacts {
    pub(crate) is_deleting: bool,
    pub(crate) controller_uid: Option<String>,
}

impl Cluster {
    /// Takes in an object as the API server shows it. Resources that play no part are ignored, unreadable objects too.
    pub fn put(&mut self, group: &str, plural: &str, json: &[u8]) {
        match (group, plural) {
            ("", "pods") => {
                if let Ok(pod) = serde_json::from_slice::<Pod>(json) {
                    self.put_pod(PodFacts::of(&pod));
                }
            }
            ("", "nodes") => {
                if let Ok(node) = serde_json::from_slice::<KnownNode>(json) {
                    self.put_node(NodeFacts::of(&node));
                }
            }
            ("", "namespaces") => {
                if let Ok(Namespace { metadata, .. }) = serde_json::from_slice(json) {
                    self.put_namespace(metadata.name.unwrap_or_default(), metadata.labels.unwrap_or_default());
                }
            }
            _ => {
                if let Some(item) = Item::read(group, plural, json) {
                    self.storage.put(item);
                } else {
                    self.put_workload(group, plural, json);
                }
            }
        }
    }

    pub fn remove(&mut self, group: &str, plural: &str, key: &Key) {
        match (group, plural) {
            ("", "pods") => drop(self.remove_pod(key)),
            ("", "nodes") => self.remove_node(&key.name),
            ("", "namespaces") => {
                self.namespaces.remove(&key.name);
                self.census.get_mut().clear();
            }
            ("", "services") => drop(self.services.remove(key)),
            ("policy", "poddisruptionbudgets") => drop(self.budgets.remove(key)),
            ("resource.k8s.io", "resourceclaims") => drop(self.resource_claims.remove(key)),
            _ => {
                self.storage.remove(group, plural, key);
                if let Some(kind) = workload_kind(group, plural) {
                    self.workloads.remove(&(kind.to_owned(), key.clone()));
                }
            }
        }
    }

    fn put_namespace(&mut self, name: String, labels: Labels) {
        if self.namespaces.get(&name) != Some(&labels) {
            self.namespaces.insert(name, labels);
            self.census.get_mut().clear();
        }
    }

    fn put_workload(&mut self, group: &str, plural: &str, json: &[u8]) -> Option<()> {
        let key = |meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
            Key::new(meta.namespace.as_deref().unwrap_or(""), meta.name.as_deref().unwrap_or(""))
        };
        let (meta, selector) = match (group, plural) {
            ("", "services") => {
                let service: Service = serde_json::from_slice(json).ok()?;
                match service.spec.and_then(|spec| spec.selector) {
                    Some(selector) => drop(self.services.insert(key(&service.metadata), selector)),
                    None => drop(self.services.remove(&key(&service.metadata))),
                }
                return None;
            }
            ("policy", "poddisruptionbudgets") => {
                let budget: PodDisruptionBudget = serde_json::from_slice(json).ok()?;
                let (spec, status) = (budget.spec.unwrap_or_default(), budget.status.unwrap_or_default());
                let facts = Budget {
                    namespace: budget.metadata.namespace.clone().unwrap_or_default(),
                    selector: Selector::of(spec.selector.as_ref()),
                    allowed: status.disruptions_allowed.unwrap_or(0),
                    disrupted: status.disrupted_pods.unwrap_or_default().into_keys().collect(),
                };
                self.budgets.insert(key(&budget.metadata), facts);
                return None;
            }
            ("resource.k8s.io", "resourceclaims") => {
                let claim: ResourceClaim = serde_json::from_slice(json).ok()?;
                let owners = claim.metadata.owner_references.iter().flatten();
                let controller = owners.into_iter().find(|owner| owner.controller == Some(true));
                let facts = ResourceClaimFacts {
                    is_deleting: claim.metadata.deletion_timestamp.is_some(),
                    controller_uid: controller.map(|owner| owner.uid.clone()),
                };
                self.resource_claims.insert(key(&claim.metadata), facts);
                return None;
            }
            ("", "replicationcontrollers") => {
                let controller: ReplicationController = serde_json::from_slice(json).ok()?;
                let selector = controller.spec.and_then(|spec| spec.selector).unwrap_or_default();
                (controller.metadata, Selector::of_labels(&selector))
            }
            ("apps", "replicasets") => {
                let set: ReplicaSet = serde_json::from_slice(json).ok()?;
                (set.metadata, Selector::of(set.spec.as_ref().map(|spec| &spec.selector)))
            }
            ("apps", "statefulsets") => {
                let set: StatefulSet = serde_json::from_slice(json).ok()?;
                (set.metadata, Selector::of(set.spec.as_ref().map(|spec| &spec.selector)))
            }
            _ => return None,
        };
        self.workloads.insert((workload_kind(group, plural)?.to_owned(), key(&meta)), selector);
        None
    }

    pub(crate) fn put_node(&mut self, facts: NodeFacts) {
        let name = facts.name.clone();
        let slot = match self.by_name.get(&name) {
            Some(slot) => *slot,
            None => self.new_slot(name.clone()),
        };
        let Some(info) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let (before, facts) = (info.facts.clone(), Arc::new(facts));
        info.facts = facts.clone();
        if before.labels != facts.labels || before.name.is_empty() {
            self.domains.get_mut().clear();
        }
        for image in before.images.keys() {
            self.image_nodes.entry(image.clone()).and_modify(|n_nodes| *n_nodes -= 1);
        }
        for image in facts.images.keys() {
            *self.image_nodes.entry(image.clone()).or_default() += 1;
        }
        for key in self.homeless.remove(&name).unwrap_or_default() {
            if let Some(pod) = self.pods.get(&key).cloned() {
                self.count_in(slot, pod);
            }
        }
    }

    fn new_slot(&mut self, name: String) -> usize {
        let slot = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(None);
            for counts in self.census.get_mut().values_mut() {
                Arc::make_mut(counts).push(0);
            }
        }
        self.slots[slot] = Some(NodeInfo::default());
        self.by_name.insert(name, slot);
        self.order.push(slot);
        slot
    }

    pub(crate) fn remove_node(&mut self, name: &str) {
        let Some(slot) = self.by_name.remove(name) else { return };
        let Some(info) = self.slots.get(slot).and_then(Option::as_ref) else { return };
        let (images, keys): (Vec<_>, BTreeSet<Key>) =
            (info.facts.images.keys().cloned().collect(), info.pods.keys().cloned().collect());
        for key in &keys {
            self.count_out(slot, key);
        }
        for image in images {
            self.image_nodes.entry(image).and_modify(|n_nodes| *n_nodes -= 1);
        }
        if !keys.is_empty() {
            self.homeless.insert(name.to_owned(), keys);
        }
        self.slots[slot] = None;
        self.order.retain(|other| *other != slot);
        self.domains.get_mut().clear();
    }

    /// Takes in a pod. One that we placed stays where we put it until it is seen there or gone.
    pub(crate) fn put_pod(&mut self, mut pod: PodFacts) -> Arc<PodFacts> {
        let key = pod.key.clone();
        let before = self.remove_pod_keeping_assumption(&key);
        if pod.node.is_some() || before.is_some_and(|before| before.uid != pod.uid) {
            self.assumed.remove(&key);
        } else if let Some(node) = self.assumed.get(&key) {
            pod.node = Some(node.clone());
        }
        pod.labels = self.labels.share(pod.labels);
        pod.rules = self.rules.share(pod.rules);
        let pod = Arc::new(pod);
        self.pods.insert(key.clone(), pod.clone());
        if let Some(node) = pod.holds_node().map(str::to_owned) {
            match self.by_name.get(&node) {
                Some(slot) => self.count_in(*slot, pod.clone()),
                None => drop(self.homeless.entry(node).or_default().insert(key)),
            }
        } else if let Some(node) = pod.nominated.clone().filter(|_| pod.node.is_none() && !pod.is_over) {
            self.nominated.entry(node).or_default().insert(key);
        }
        pod
    }

    pub(crate) fn remove_pod(&mut self, key: &Key) -> Option<Arc<PodFacts>> {
        self.assumed.remove(key);
        self.remove_pod_keeping_assumption(key)
    }

    fn remove_pod_keeping_assumption(&mut self, key: &Key) -> Option<Arc<PodFacts>> {
        let pod = self.pods.remove(key)?;
        if let Some(node) = pod.holds_node() {
            if let Some(slot) = self.by_name.get(node) {
                self.count_out(*slot, key);
            } else if let Some(keys) = self.homeless.get_mut(node) {
                keys.remove(key);
            }
        }
        if let Some(node) = &pod.nominated
            && let Some(keys) = self.nominated.get_mut(node)
        {
            keys.remove(key);
        }
        Some(pod)
    }

    /// Counts a waiting pod on a node before the API server has said so.
    pub(crate) fn assume(&mut self, pod: &PodFacts, node: &str) {
        let placed = PodFacts { node: Some(node.to_owned()), ..pod.clone() };
        self.put_pod(placed);
        self.assumed.insert(pod.key.clone(), node.to_owned());
    }

    /// Takes an assumption back.
    pub(crate) fn forget(&mut self, key: &Key) {
        if self.assumed.remove(key).is_some()
            && let Some(pod) = self.pods.get(key).cloned()
        {
            self.put_pod(PodFacts { node: None, ..(*pod).clone() });
        }
    }

    pub(crate) fn is_assumed(&self, key: &Key) -> bool {
        self.assumed.contains_key(key)
    }

    fn count_in(&mut self, slot: usize, pod: Arc<PodFacts>) {
        self.count(slot, &pod, 1);
        if let Some(info) = self.slots.get_mut(slot).and_then(Option::as_mut) {
            info.add(pod);
        }
    }

    fn count_out(&mut self, slot: usize, key: &Key) {
        let removed = self.slots.get_mut(slot).and_then(Option::as_mut).and_then(|info| info.remove(key));
        if let Some(pod) = removed {
            self.count(slot, &pod, -1);
        }
    }

    fn count(&mut self, slot: usize, pod: &PodFacts, sign: i64) {
        for (role, term) in rules_of(pod) {
            let per_slot = self.terms.entry((role, term.clone())).or_default();
            let n_pods = per_slot.entry(slot).or_default();
            *n_pods += sign;
            if *n_pods == 0 {
                per_slot.remove(&slot);
                if per_slot.is_empty() {
                    self.terms.remove(&(role, term.clone()));
                }
            }
        }
        for claim in pod.claims.iter().filter(|claim| !claim.is_ephemeral) {
            *self.claim_users.entry(Key::new(&pod.key.namespace, &claim.name)).or_default() += sign;
        }
        for (who, counts) in self.census.get_mut() {
            if who.has(pod, &self.namespaces)
                && let Some(count) = Arc::make_mut(counts).get_mut(slot)
            {
                *count += sign;
            }
        }
    }

    pub(crate) fn n_nodes(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn order(&self) -> &[usize] {
        &self.order
    }

    pub(crate) fn slot(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn node(&self, slot: usize) -> Option<&NodeInfo> {
        self.slots.get(slot)?.as_ref()
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (usize, &NodeInfo)> {
        self.order.iter().filter_map(|slot| Some((*slot, self.node(*slot)?)))
    }

    /// Waiting pods for which room was made on a node.
    pub(crate) fn nominated_to<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a Arc<PodFacts>> {
        self.nominated.get(node).into_iter().flatten().filter_map(|key| self.pods.get(key))
    }

    /// Distinct rules of placed pods in one role, with how many pods have each, by slot.
    pub(crate) fn rules(&self) -> impl Iterator<Item = (Role, &Arc<Term>, &BTreeMap<usize, i64>)> {
        self.terms.iter().map(|((role, term), per_slot)| (*role, term, per_slot))
    }

    pub(crate) fn n_nodes_with_image(&self, image: &str) -> i64 {
        self.image_nodes.get(image).copied().unwrap_or(0)
    }

    pub(crate) fn n_users(&self, claim: &Key) -> i64 {
        self.claim_users.get(claim).copied().unwrap_or(0)
    }

    /// How many pods of a population each slot has.
    pub(crate) fn census(&self, key: CensusKey) -> Arc<Vec<i64>> {
        let mut census = self.census.borrow_mut();
        if let Some(counts) = census.get(&key) {
            return counts.clone();
        }
        let count = |info: &NodeInfo| {
            i64::try_from(info.pods.values().filter(|pod| key.has(pod, &self.namespaces)).count()).unwrap_or(i64::MAX)
        };
        let counts: Arc<Vec<i64>> = Arc::new(self.slots.iter().map(|slot| slot.as_ref().map_or(0, count)).collect());
        if census.len() >= CENSUS_MAX {
            census.clear();
        }
        census.insert(key, counts.clone());
        counts
    }

    pub(crate) fn domains(&self, topology_key: &str) -> Arc<Domains> {
        let mut domains = self.domains.borrow_mut();
        if let Some(known) = domains.get(topology_key) {
            return known.clone();
        }
        let values = self.slots.iter().map(|slot| slot.as_ref()?.facts.labels.get(topology_key).map(String::as_str));
        let made = Arc::new(Domains::of(values));
        domains.insert(topology_key.to_owned(), made.clone());
        made
    }

    /// The pods that services and the owning workload count with this one. None when nobody does.
    pub(crate) fn siblings_of(&self, pod: &PodFacts) -> Option<Selector> {
        let mut labels = Labels::new();
        for (_, selector) in self
            .services
            .range(Key::new(&pod.key.namespace, "")..)
            .take_while(|(key, _)| key.namespace == pod.key.namespace)
        {
            if selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value)) {
                labels.extend(selector.clone());
            }
        }
        let mut selector = Selector::of_labels(&labels);
        if let Some((kind, name)) = pod.owner.as_deref()
            && let Some(owner) = self.workloads.get(&(kind.clone(), Key::new(&pod.key.namespace, name)))
        {
            selector = selector.and(owner);
        }
        (!selector.is_everything()).then_some(selector)
    }
}

impl CensusKey {
    fn has(&self, pod: &PodFacts, namespaces: &BTreeMap<String, Labels>) -> bool {
        !(self.skips_deleting && pod.is_deleting) && self.all_of.iter().all(|who| who.has(pod, namespaces))
    }
}

/// Every rule a pod has about others.
pub(crate) fn rules_of(pod: &PodFacts) -> impl Iterator<Item = (Role, &Arc<Term>)> {
    let required_anti = pod.anti_affinity.iter().map(|term| (Role::RequiredAnti, term));
    let required = pod.affinity.iter().map(|term| (Role::RequiredAffinity, term));
    let preferred = pod.affinity_preferences.iter().map(|(weight, term)| (Role::Preferred(*weight), term));
    let preferred_anti =
        pod.anti_affinity_preferences.iter().map(|(weight, term)| (Role::PreferredAnti(*weight), term));
    required_anti.chain(required).chain(preferred).chain(preferred_anti)
}

fn workload_kind(group: &str, plural: &str) -> Option<&'static str> {
    match (group, plural) {
        ("", "replicationcontrollers") => Some("v1/ReplicationController"),
        ("apps", "replicasets") => Some("apps/v1/ReplicaSet"),
        ("apps", "statefulsets") => Some("apps/v1/StatefulSet"),
        _ => None,
    }
}
