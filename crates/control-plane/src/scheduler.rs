//! The kube-scheduler: gives each waiting pod a node, or says why there is none.
//!
//! ```text
//! changes ─▶ Cluster (facts, counted)       Queue (who is next)
//!                 │                            │ pop
//!                 ▼                            ▼
//!              filter: may it run there? ─▶ score: where best? ─▶ bind
//!                 └─ nowhere ─▶ preempt: who would have to go? ─▶ condition, event, wait
//! ```
//!
//! It behaves as the default profile of 1.36 does: the same checks in the same order with the same words, the same scores and
//! weights. [`verdicts`] and [`explain`] are plain functions of a [`Cluster`] and a pod. A further [`Profile`] differs in its name
//! and its default spread constraints only. Not here: devices (a pod that claims some waits), pod groups, extenders, and in-tree
//! volumes that migrate to a driver.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use crate::drive::Controller;
use crate::hands::Hands;
use crate::nodes::KnownNode;
use crate::store::{Change, ChangeKind, Key};

mod act;
mod attempt;
mod cluster;
mod demand;
mod filter;
mod labels;
mod node;
mod pod;
mod preempt;
mod profile;
pub(crate) mod quantity;
mod queue;
mod score;
mod storage;
#[cfg(test)]
mod testing;
mod topology;
mod verdict;

pub use attempt::{best, explain, preemptions, verdicts};
pub use cluster::Cluster;
pub use filter::Setback;
pub use pod::PodFacts;
pub use preempt::Preemption;
pub use profile::Profile;
pub use verdict::{Reason, Refusal, Verdict};

use attempt::{Outcome, Search, attempt};
use filter::PodVolumes;
use node::NodeFacts;
use queue::Queue;
use verdict::Filter;

/// The default profile. Pods with a name that no profile has are left to whoever has it.
const NAME: &str = "default-scheduler";
/// How long a pod's volumes may take to be bound before its node is given up.
const BIND_WITHIN: SignedDuration = SignedDuration::from_mins(10);
/// Attempts in one go. Requests, and others who use the same loop, get their turn in between.
const ATTEMPTS_MAX: usize = 25;

/// The scheduler as a part of the cluster.
#[derive(Debug, Default)]
pub struct Scheduler {
    cluster: Cluster,
    queue: Queue,
    /// What happened since the queue last heard.
    news: News,
    /// Pods with a node, whose volumes are not ready yet.
    binding: BTreeMap<Key, Binding>,
    next_start: usize,
    /// Beside the default one.
    profiles: Vec<Profile>,
}

#[derive(Debug)]
struct Binding {
    uid: Arc<str>,
    node: String,
    volumes: PodVolumes,
    deadline: Timestamp,
}

#[derive(Debug, Default)]
struct News {
    pods: BTreeSet<Key>,
    nodes: BTreeSet<String>,
    kinds: BTreeSet<Kind>,
    own: BTreeSet<Key>,
}

/// Kinds of change that let refused pods hope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    NodeGone,
    PodPlaced,
    PodGone,
    Storage,
    Namespace,
    ResourceClaim,
}

impl Scheduler {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn with_profiles(profiles: Vec<Profile>) -> Self {
        Self { profiles, ..Self::default() }
    }

    fn profile_of(&self, pod: &PodFacts) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.scheduler_name == pod.scheduler)
    }

    /// A pod of ours that has no node and wants one.
    fn is_waiting(&self, pod: &PodFacts) -> bool {
        let is_ours = || pod.scheduler == NAME || self.profile_of(pod).is_some();
        pod.node.is_none() && !pod.is_over && !pod.is_deleting && is_ours()
    }

    fn observe_pod(&mut self, change: &Change) {
        let key = &change.object.key;
        self.news.pods.insert(key.clone());
        let before = self.cluster.pods.get(key).cloned();
        let held = before.as_ref().is_some_and(|pod| pod.holds_node().is_some());
        if change.kind == ChangeKind::Deleted {
            self.cluster.remove_pod(key);
            self.binding.remove(key);
            if held || before.is_some_and(|pod| pod.nominated.is_some()) {
                self.news.kinds.insert(Kind::PodGone);
            }
            return;
        }
        let Some(pod) = change.object.read::<Pod>() else { return };
        // The texts of the stored object do for everybody.
        let uid = Arc::clone(&change.object.uid);
        let pod = self.cluster.put_pod(PodFacts { key: key.clone(), uid, ..PodFacts::of(&pod) });
        let holds = pod.holds_node().is_some();
        let Some(before) = before else {
            if holds {
                self.news.kinds.insert(Kind::PodPlaced);
            }
            return;
        };
        if held && (!holds || pod.demand.held != before.demand.held) {
            self.news.kinds.insert(Kind::PodGone);
        }
        if holds && (!held || pod.labels != before.labels || pod.is_deleting != before.is_deleting) {
            self.news.kinds.insert(Kind::PodPlaced);
        }
        let is_changed = pod.labels != before.labels
            || pod.tolerations != before.tolerations
            || pod.node_selector != before.node_selector
            || pod.demand != before.demand
            || pod.resource_claims != before.resource_claims;
        if !holds && is_changed {
            self.news.own.insert(key.clone());
        }
    }

    fn observe_node(&mut self, change: &Change) {
        if change.kind == ChangeKind::Deleted {
            self.cluster.remove_node(&change.object.key.name);
            self.news.kinds.insert(Kind::NodeGone);
            return;
        }
        let Some(node) = KnownNode::read(&change.object) else { return };
        let facts = NodeFacts::of(&node);
        let known = self.cluster.slot(&facts.name).and_then(|slot| self.cluster.node(slot));
        if known.is_none_or(|known| *known.facts != facts) {
            self.news.nodes.insert(facts.name.clone());
            self.cluster.put_node(facts);
        }
    }

    /// Lets the queue hear the news.
    fn tell_queue(&mut self, now: Timestamp) {
        let mut news = std::mem::take(&mut self.news);
        if news.kinds.contains(&Kind::ResourceClaim) {
            let users = self.cluster.pods.values().filter(|pod| !pod.resource_claims.is_empty());
            news.pods.extend(users.map(|pod| pod.key.clone()));
        }
        for key in &news.pods {
            match self.cluster.pods.get(key) {
                Some(pod) if self.is_waiting(pod) => self.queue.add(key, pod.priority, self.is_gated(pod), now),
                _ => self.queue.remove(key),
            }
        }
        for key in &news.own {
            self.queue.move_on(key, now);
        }
        if !(news.nodes.is_empty() && news.kinds.is_empty()) {
            let cluster = &self.cluster;
            self.queue.changed(|key, filters| may_help(cluster, &news, key, filters), now);
        }
    }

    /// Not to be looked at yet: somebody's gate stands, or a claim is still to be made.
    fn is_gated(&self, pod: &PodFacts) -> bool {
        let is_missing = |used: &pod::ResourceClaimUse| match &used.claim {
            None => !used.is_settled,
            Some(name) => {
                let claim = self.cluster.resource_claims.get(&Key::new(&pod.key.namespace, name));
                let is_foreign = |claim: &cluster::ResourceClaimFacts| {
                    used.template.is_some() && claim.controller_uid.as_deref() != Some(&*pod.uid)
                };
                claim.is_none_or(|claim| claim.is_deleting || is_foreign(claim))
            }
        };
        !pod.gates.is_empty() || pod.resource_claims.iter().any(is_missing)
    }

    fn attempt(&mut self, key: &Key, hands: &mut Hands<'_>) {
        let Some(pod) = self.cluster.pods.get(key).cloned().filter(|pod| self.is_waiting(pod)) else {
            self.queue.remove(key);
            return;
        };
        let completed = self.profile_of(&pod).and_then(|profile| profile.complete(&self.cluster, &pod));
        let mut search = Search { next_start: &mut self.next_start, random: &mut || hands.random() };
        match attempt(&self.cluster, completed.as_ref().unwrap_or(&pod), &mut search) {
            Outcome::Place { node, volumes } => self.place(&pod, &node, volumes, hands),
            Outcome::Retry { message } => {
                self.refuse(&pod, "SchedulerError", &message, Some(""), hands);
                self.queue.retry(key, hands.now());
            }
            Outcome::Wait { message, filters, preemption, gives_up_nomination } => {
                let nominated = preemption.as_ref().map(|preemption| preemption.node.clone());
                if let Some(preemption) = preemption {
                    self.preempt(&pod, &preemption, hands);
                }
                let nominated = nominated.or_else(|| gives_up_nomination.then(String::new));
                self.refuse(&pod, "Unschedulable", &message, nominated.as_deref(), hands);
                self.queue.refuse(key, filters, hands.now());
            }
        }
    }
}

impl Controller for Scheduler {
    fn name(&self) -> &'static str {
        NAME
    }

    fn manager(&self) -> &'static str {
        "kube-scheduler"
    }

    fn observe(&mut self, change: &Change) {
        let (group, plural) = (change.resource.group.as_str(), change.resource.plural.as_str());
        match (group, plural) {
            ("", "pods") => self.observe_pod(change),
            ("", "nodes") => self.observe_node(change),
            _ => {
                if change.kind == ChangeKind::Deleted {
                    self.cluster.remove(group, plural, &change.object.key);
                } else {
                    self.cluster.put(group, plural, &change.object.json());
                }
                self.news.kinds.extend(match (group, plural) {
                    ("", "persistentvolumeclaims" | "persistentvolumes") | ("storage.k8s.io", _) => Some(Kind::Storage),
                    ("", "namespaces") => Some(Kind::Namespace),
                    ("resource.k8s.io", _) => Some(Kind::ResourceClaim),
                    _ => None,
                });
            }
        }
    }

    fn work(&mut self, hands: &mut Hands<'_>) -> Option<Timestamp> {
        let now = hands.now();
        self.tell_queue(now);
        self.finish_bindings(hands);
        for _ in 0..ATTEMPTS_MAX {
            let Some(key) = self.queue.pop(now) else {
                let deadline = self.binding.values().map(|binding| binding.deadline).min();
                return self.queue.next_wake().into_iter().chain(deadline).min();
            };
            self.attempt(&key, hands);
        }
        Some(now)
    }
}

fn may_help(cluster: &Cluster, news: &News, key: &Key, filters: &[Filter]) -> bool {
    let by_pods = |filter: &Filter| matches!(filter, Filter::PodTopologySpread | Filter::InterPodAffinity);
    let about_storage = |filter: &Filter| {
        let all = [Filter::VolumeRestrictions, Filter::NodeVolumeLimits, Filter::VolumeBinding, Filter::VolumeZone];
        all.contains(filter)
    };
    let by_kind = news.kinds.iter().any(|kind| match kind {
        Kind::NodeGone => filters.contains(&Filter::PodTopologySpread),
        Kind::PodPlaced => filters.iter().any(by_pods),
        Kind::PodGone => filters.iter().any(|filter| {
            let frees =
                [Filter::NodeResourcesFit, Filter::NodePorts, Filter::VolumeRestrictions, Filter::NodeVolumeLimits];
            by_pods(filter) || frees.contains(filter)
        }),
        Kind::Storage => filters.iter().any(about_storage),
        Kind::Namespace => filters.contains(&Filter::InterPodAffinity),
        Kind::ResourceClaim => filters.contains(&Filter::DynamicResources),
    });
    let by_nodes = !news.nodes.is_empty() && (filters.iter().any(by_pods) || could_use_any(cluster, &news.nodes, key));
    filters.is_empty() || by_kind || by_nodes
}

/// Whether one of the changed nodes, were it empty, would do.
fn could_use_any(cluster: &Cluster, nodes: &BTreeSet<String>, key: &Key) -> bool {
    let Some(pod) = cluster.pods.get(key) else { return true };
    nodes.iter().filter_map(|name| cluster.node(cluster.slot(name)?)).any(|node| {
        let (facts, asked, has) = (&node.facts, &pod.demand.asked, &node.facts.allocatable);
        facts.is_tolerated_by(&pod.tolerations)
            && pod.accepts_labels(&facts.name, &facts.labels)
            && asked.cpu_milli <= has.cpu_milli
            && asked.memory_bytes <= has.memory_bytes
            && asked.scalars.iter().all(|(name, amount)| *amount <= has.scalar(name))
    })
}

#[cfg(test)]
mod tests;
