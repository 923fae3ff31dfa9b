//! What the scheduler needs to know of a pod, read once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Affinity, Container, Pod, PodAffinityTerm, PodSpec, PodStatus, Toleration, TopologySpreadConstraint, Volume,
};

use super::demand::{self, Demand};
use super::labels::{Labels, NodeTerm, Selector};
use crate::store::Key;

/// A pod, waiting or placed. Its rules are as good as its own.
#[derive(Clone, Debug)]
pub struct PodFacts {
    pub(crate) key: Key,
    pub(crate) uid: Arc<str>,
    pub(crate) labels: Arc<Labels>,
    pub(crate) started: Option<Timestamp>,
    pub(crate) is_deleting: bool,
    /// Succeeded or failed: it holds nothing any more.
    pub(crate) is_over: bool,
    pub(crate) is_being_preempted: bool,
    pub(crate) node: Option<String>,
    pub(crate) nominated: Option<String>,
    pub(crate) claims: Box<[ClaimUse]>,
    pub(crate) owner: Option<Box<(String, String)>>,
    pub(crate) resource_claims: Box<[ResourceClaimUse]>,
    pub(crate) rules: Arc<Rules>,
}

/// What a pod's spec says about its place: mostly the same for all pods of a workload, and then kept once.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    pub(crate) scheduler: String,
    pub(crate) gates: Vec<String>,
    pub(crate) priority: i32,
    pub(crate) never_preempts: bool,
    pub(crate) demand: Demand,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) node_selector: Labels,
    /// Alternatives, one of which must hold. None when there is no such rule.
    pub(crate) node_terms: Option<Vec<NodeTerm>>,
    pub(crate) node_preferences: Vec<(i32, NodeTerm)>,
    pub(crate) affinity: Vec<Arc<Term>>,
    pub(crate) anti_affinity: Vec<Arc<Term>>,
    pub(crate) affinity_preferences: Vec<(i32, Arc<Term>)>,
    pub(crate) anti_affinity_preferences: Vec<(i32, Arc<Term>)>,
    pub(crate) spread: Vec<Spread>,
    pub(crate) disks: Vec<Disk>,
    pub(crate) images: Vec<String>,
    pub(crate) n_containers: usize,
}

impl Deref for PodFacts {
    type Target = Rules;

    fn deref(&self) -> &Rules {
        &self.rules
    }
}

/// A port taken on the node itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostPort {
    pub(crate) protocol: String,
    pub(crate) port: i32,
    pub(crate) ip: String,
}

/// One rule about other pods: which ones, and how near.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Term {
    pub(crate) who: Population,
    pub(crate) topology_key: String,
}

/// Which pods are meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Population {
    pub(crate) namespaces: BTreeSet<String>,
    pub(crate) namespace_selector: Selector,
    pub(crate) selector: Selector,
}

/// One topology spread constraint.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) is_hard: bool,
    pub(crate) max_skew: i32,
    pub(crate) min_domains: i32,
    pub(crate) topology_key: String,
    pub(crate) selector: Selector,
    pub(crate) honours_affinity: bool,
    pub(crate) honours_taints: bool,
}

/// A PersistentVolumeClaim the pod mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimUse {
    pub(crate) name: String,
    /// Made for this pod from a template in its own spec.
    pub(crate) is_ephemeral: bool,
}

/// A disk named in the pod itself, of a kind that not everybody may share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    identity: DiskIdentity,
    is_read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum DiskIdentity {
    Gce(String),
    Ebs(String),
    Iscsi(String),
    Rbd { monitors: Vec<String>, pool: String, image: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceClaimUse {
    pub(crate) name: String,
    /// The claim, once known. An empty one needs none.
    pub(crate) claim: Option<String>,
    pub(crate) template: Option<String>,
    pub(crate) is_settled: bool,
}

impl PodFacts {
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let (default_spec, default_status) = (PodSpec::default(), PodStatus::default());
        let (meta, spec) = (&pod.metadata, pod.spec.as_ref().unwrap_or(&default_spec));
        let status = pod.status.as_ref().unwrap_or(&default_status);
        let key = Key::new(meta.namespace.as_deref().unwrap_or(""), meta.name.as_deref().unwrap_or(""));
        let labels = meta.labels.clone().unwrap_or_default();
        let affinity = spec.affinity.clone().unwrap_or_default();
        let terms = |terms: Option<&Vec<PodAffinityTerm>>| -> Vec<Arc<Term>> {
            terms.into_iter().flatten().map(|term| Arc::new(Term::of(term, &key.namespace))).collect()
        };
        let (affinity_terms, anti_terms) = (affinity.pod_affinity.as_ref(), affinity.pod_anti_affinity.as_ref());
        let weighted = |terms: Option<&Vec<k8s_openapi::api::core::v1::WeightedPodAffinityTerm>>| {
            let one = |term: &k8s_openapi::api::core::v1::WeightedPodAffinityTerm| {
                (term.weight, Arc::new(Term::of(&term.pod_affinity_term, &key.namespace)))
            };
            terms.into_iter().flatten().map(one).collect::<Vec<_>>()
        };
        let containers = || spec.init_containers.iter().flatten().chain(&spec.containers);
        let rules = Rules {
            scheduler: spec.scheduler_name.clone().unwrap_or_else(|| "default-scheduler".to_owned()),
            gates: spec.scheduling_gates.iter().flatten().map(|gate| gate.name.clone()).collect(),
            priority: spec.priority.unwrap_or(0),
            never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
            demand: demand::of(spec, status),
            ports: host_ports(spec),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            node_terms: required_node_terms(&affinity),
            node_preferences: preferred_node_terms(&affinity),
            affinity: terms(
                affinity_terms.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()),
            ),
            anti_affinity: terms(
                anti_terms.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()),
            ),
            affinity_preferences: weighted(
                affinity_terms.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()),
            ),
            anti_affinity_preferences: weighted(
                anti_terms.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()),
            ),
            spread: spec.topology_spread_constraints.iter().flatten().map(|c| Spread::of(c, &labels)).collect(),
            disks: spec.volumes.iter().flatten().filter_map(disk).collect(),
            images: image_names(spec, containers()),
            n_containers: containers().count(),
        };
        Self {
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            started: status.start_time.as_ref().map(|time| time.0),
            is_deleting: meta.deletion_timestamp.is_some(),
            is_over: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            is_being_preempted: is_being_preempted(status),
            node: spec.node_name.clone().filter(|name| !name.is_empty()),
            nominated: status.nominated_node_name.clone().filter(|name| !name.is_empty()),
            claims: spec.volumes.iter().flatten().filter_map(|volume| claim_use(&key.name, volume)).collect(),
            owner: meta
                .owner_references
                .iter()
                .flatten()
                .find(|owner| owner.controller == Some(true))
                .map(|owner| Box::new((format!("{}/{}", owner.api_version, owner.kind), owner.name.clone()))),
            resource_claims: resource_claims(spec, status),
            labels: Arc::new(labels),
            rules: Arc::new(rules),
            key,
        }
    }

    /// Where it counts: on its node while it runs.
    pub(crate) fn holds_node(&self) -> Option<&str> {
        self.node.as_deref().filter(|_| !self.is_over)
    }

    /// Whether the node's name and labels are acceptable to it.
    pub(crate) fn accepts_labels(&self, name: &str, labels: &Labels) -> bool {
        self.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.node_terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.matches(name, labels)))
    }

    /// When it began to matter, for who is older.
    pub(crate) fn since(&self) -> Timestamp {
        self.started.unwrap_or(Timestamp::MAX)
    }
}

impl Term {
    fn of(term: &PodAffinityTerm, namespace: &str) -> Self {
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(namespace.to_owned());
        }
        let namespace_selector = Selector::of(term.namespace_selector.as_ref());
        let selector = Selector::of(term.label_selector.as_ref());
        let who = Population { namespaces, namespace_selector, selector };
        Self { who, topology_key: term.topology_key.clone() }
    }
}

impl Population {
    pub(crate) fn has(&self, pod: &PodFacts, namespaces: &BTreeMap<String, Labels>) -> bool {
        let is_here = self.namespaces.contains(&pod.key.namespace)
            || self.namespace_selector.is_everything()
            || namespaces.get(&pod.key.namespace).is_some_and(|labels| self.namespace_selector.matches(labels));
        is_here && self.selector.matches(&pod.labels)
    }
}

impl Spread {
    pub(super) fn of(constraint: &TopologySpreadConstraint, labels: &Labels) -> Self {
        let keys = constraint.match_label_keys.iter().flatten();
        let own: Labels = keys.filter_map(|key| labels.get(key).map(|value| (key.clone(), value.clone()))).collect();
        let selector = Selector::of(constraint.label_selector.as_ref());
        Self {
            is_hard: constraint.when_unsatisfiable == "DoNotSchedule",
            max_skew: constraint.max_skew,
            min_domains: constraint.min_domains.unwrap_or(1),
            topology_key: constraint.topology_key.clone(),
            selector: if own.is_empty() { selector } else { selector.and(&Selector::of_labels(&own)) },
            honours_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honours_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        }
    }
}

impl Disk {
    /// Whether two pods may not have both on one node.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let is_same = match (&self.identity, &other.identity) {
            (
                DiskIdentity::Rbd { monitors, pool, image },
                DiskIdentity::Rbd { monitors: theirs, pool: their_pool, image: their_image },
            ) => pool == their_pool && image == their_image && monitors.iter().any(|one| theirs.contains(one)),
            (mine, theirs) => mine == theirs,
        };
        let may_share = !matches!(self.identity, DiskIdentity::Ebs(_)) && self.is_read_only && other.is_read_only;
        is_same && !may_share
    }
}

fn is_being_preempted(status: &PodStatus) -> bool {
    status.conditions.iter().flatten().any(|condition| {
        condition.type_ == "DisruptionTarget"
            && condition.status == "True"
            && condition.reason.as_deref() == Some("PreemptionByScheduler")
    })
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number > 0)?;
            let or = |text: &Option<String>, default: &str| {
                text.clone().filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned())
            };
            Some(HostPort { protocol: or(&port.protocol, "TCP"), port: number, ip: or(&port.host_ip, "0.0.0.0") })
        })
        .collect()
}

fn required_node_terms(affinity: &Affinity) -> Option<Vec<NodeTerm>> {
    let required = affinity.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref()?;
    Some(NodeTerm::all_of(required))
}

fn preferred_node_terms(affinity: &Affinity) -> Vec<(i32, NodeTerm)> {
    let preferred = affinity
        .node_affinity
        .as_ref()
        .and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_ref());
    preferred.into_iter().flatten().map(|term| (term.weight, NodeTerm::of(&term.preference))).collect()
}

fn claim_use(pod: &str, volume: &Volume) -> Option<ClaimUse> {
    if let Some(claim) = &volume.persistent_volume_claim {
        return Some(ClaimUse { name: claim.claim_name.clone(), is_ephemeral: false });
    }
    volume.ephemeral.as_ref().map(|_| ClaimUse { name: format!("{pod}-{}", volume.name), is_ephemeral: true })
}

fn disk(volume: &Volume) -> Option<Disk> {
    let (identity, read_only) = if let Some(disk) = &volume.gce_persistent_disk {
        (DiskIdentity::Gce(disk.pd_name.clone()), disk.read_only)
    } else if let Some(disk) = &volume.aws_elastic_block_store {
        (DiskIdentity::Ebs(disk.volume_id.clone()), disk.read_only)
    } else if let Some(disk) = &volume.iscsi {
        (DiskIdentity::Iscsi(disk.iqn.clone()), disk.read_only)
    } else if let Some(disk) = &volume.rbd {
        let pool = disk.pool.clone().unwrap_or_else(|| "rbd".to_owned());
        (DiskIdentity::Rbd { monitors: disk.monitors.clone(), pool, image: disk.image.clone() }, disk.read_only)
    } else {
        return None;
    };
    Some(Disk { identity, is_read_only: read_only.unwrap_or(false) })
}

fn image_names<'a>(spec: &'a PodSpec, containers: impl Iterator<Item = &'a Container>) -> Vec<String> {
    let volumes = spec.volumes.iter().flatten().filter_map(|volume| volume.image.as_ref()?.reference.as_ref());
    containers.filter_map(|container| container.image.as_ref()).chain(volumes).map(|name| full_image(name)).collect()
}

/// An image without a tag means `latest`.
fn full_image(name: &str) -> String {
    if name.rfind(':') <= name.rfind('/') { format!("{name}:latest") } else { name.to_owned() }
}

fn resource_claims(spec: &PodSpec, status: &PodStatus) -> Box<[ResourceClaimUse]> {
    let one = |claim: &k8s_openapi::api::core::v1::PodResourceClaim| {
        let made = status.resource_claim_statuses.iter().flatten().find(|made| made.name == claim.name);
        ResourceClaimUse {
            name: claim.name.clone(),
            claim: claim.resource_claim_name.clone().or_else(|| made.and_then(|made| made.resource_claim_name.clone())),
            template: claim.resource_claim_template_name.clone(),
            is_settled: claim.resource_claim_name.is_some() || made.is_some(),
        }
    };
    spec.resource_claims.iter().flatten().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_a_tag_means_latest() {
        for (name, full) in [
            ("web", "web:latest"),
            ("web:1", "web:1"),
            ("host:5000/web", "host:5000/web:latest"),
            ("host:5000/web:1", "host:5000/web:1"),
        ] {
            assert_eq!(full_image(name), full);
        }
    }

    #[test]
    fn disks_conflict_unless_all_only_read() {
        let disk = |identity, is_read_only| Disk { identity, is_read_only };
        let gce = |read_only| disk(DiskIdentity::Gce("d".into()), read_only);
        let ebs = |read_only| disk(DiskIdentity::Ebs("d".into()), read_only);
        let rbd = |monitor: &str| {
            disk(DiskIdentity::Rbd { monitors: vec![monitor.into()], pool: "p".into(), image: "i".into() }, false)
        };
        assert!(gce(false).conflicts(&gce(true)) && !gce(true).conflicts(&gce(true)));
        assert!(ebs(true).conflicts(&ebs(true)) && !ebs(false).conflicts(&gce(false)));
        assert!(rbd("m").conflicts(&rbd("m")) && !rbd("m").conflicts(&rbd("n")));
    }
}
