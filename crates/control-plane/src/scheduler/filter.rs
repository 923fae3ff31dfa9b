//! May this pod run on that node? Every check of the default profile, in its order; the first that refuses speaks.
//!
//! ```text
//! Cycle::begin: what is the same for all nodes, once per pod       refuses the pod outright where a claim is missing…
//! Cycle::judge: one node                                            cheap checks first, then volumes, then other pods
//! Cycle::shift: the same as if a pod came to a node, or left        for preemption and for nominated pods
//! ```

use std::collections::BTreeSet;

use super::cluster::Cluster;
use super::node::{NodeInfo, tolerates};
use super::pod::PodFacts;
use super::verdict::{Filter, Reason, Refusal, Verdict};

mod affinity;
pub(crate) mod spread;
mod volumes;

use affinity::Neighbours;
use spread::SpreadCounts;
pub(crate) use volumes::PodVolumes;
use volumes::Volumes;

/// One pod's way through the nodes.
#[derive(Clone)]
pub(crate) struct Cycle<'a> {
    cluster: &'a Cluster,
    pub(crate) pod: &'a PodFacts,
    /// The only nodes the pod may run on, where it names them.
    pub(crate) only: Option<BTreeSet<String>>,
    volumes: Volumes<'a>,
    spread: Vec<SpreadCounts<'a>>,
    neighbours: Neighbours,
}

/// The pod cannot be placed anywhere, whatever the nodes are like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setback {
    Refused { message: String, is_about_claims: bool },
    Error(String),
}

impl<'a> Cycle<'a> {
    pub(crate) fn begin(cluster: &'a Cluster, pod: &'a PodFacts) -> Result<Self, (Filter, Setback)> {
        let only = named_nodes(pod).map_err(|setback| (Filter::NodeAffinity, setback))?;
        let volumes = Volumes::begin(cluster, pod)?;
        Ok(Self {
            cluster,
            pod,
            only,
            volumes,
            spread: spread::counts(cluster, pod),
            neighbours: Neighbours::begin(cluster, pod),
        })
    }

    /// Judges a node, as it is and also with the pods it is promised to: those that are as important as this one.
    pub(crate) fn judge(&self, slot: usize, node: &NodeInfo) -> Verdict {
        let mut promised = self
            .cluster
            .nominated_to(&node.facts.name)
            .filter(|other| other.priority >= self.pod.priority && other.uid != self.pod.uid)
            .peekable();
        if promised.peek().is_some() {
            let (mut fuller, mut node) = (self.clone(), node.clone());
            for other in promised {
                node.add(other.clone());
                fuller.shift(other, slot, 1);
            }
            let verdict = fuller.judge_as_is(slot, &node);
            if verdict != Verdict::Fits {
                return verdict;
            }
        }
        self.judge_as_is(slot, node)
    }

    fn judge_as_is(&self, slot: usize, node: &NodeInfo) -> Verdict {
        let checks =
            [Self::unschedulable, Self::node_name, Self::taints, Self::node_affinity, Self::ports, Self::resources];
        for check in checks {
            if let Some(refusal) = check(self, node) {
                return Verdict::Refused(refusal);
            }
        }
        match self.volumes.judge(self.cluster, self.pod, node) {
            Verdict::Fits => {}
            verdict => return verdict,
        }
        spread::judge(&self.spread, slot)
            .or_else(|| self.neighbours.judge(slot))
            .or_else(|| self.resource_claims())
            .map_or(Verdict::Fits, Verdict::Refused)
    }

    /// Counts a pod in or out of a node. The node's own sums are the caller's.
    pub(crate) fn shift(&mut self, other: &PodFacts, slot: usize, sign: i64) {
        spread::shift(&mut self.spread, self.pod, other, slot, sign);
        self.neighbours.shift(self.cluster, self.pod, other, slot, sign);
        self.volumes.shift(self.pod, other, sign);
    }

    /// How the pod's unbound claims would be met on this node.
    pub(crate) fn plan_volumes(&self, node: &NodeInfo) -> PodVolumes {
        self.volumes.plan(self.cluster, node).map(|(plan, _)| plan).unwrap_or_default()
    }

    fn unschedulable(&self, node: &NodeInfo) -> Option<Refusal> {
        if !node.facts.is_unschedulable {
            return None;
        }
        let taint = k8s_openapi::api::core::v1::Taint {
            key: "node.kubernetes.io/unschedulable".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Default::default()
        };
        let is_tolerated = self.pod.tolerations.iter().any(|toleration| tolerates(toleration, &taint));
        (!is_tolerated).then(|| never(Filter::NodeUnschedulable, Reason::Unschedulable))
    }

    fn node_name(&self, node: &NodeInfo) -> Option<Refusal> {
        let is_other = self.pod.node.as_ref().is_some_and(|name| *name != node.facts.name);
        is_other.then(|| never(Filter::NodeName, Reason::OtherNodeName))
    }

    fn taints(&self, node: &NodeInfo) -> Option<Refusal> {
        let is_tolerated = node.facts.is_tolerated_by(&self.pod.tolerations);
        (!is_tolerated).then(|| never(Filter::TaintToleration, Reason::Taint))
    }

    fn node_affinity(&self, node: &NodeInfo) -> Option<Refusal> {
        let is_accepted = self.pod.accepts_labels(&node.facts.name, &node.facts.labels);
        (!is_accepted).then(|| never(Filter::NodeAffinity, Reason::NodeAffinity))
    }

    fn ports(&self, node: &NodeInfo) -> Option<Refusal> {
        let is_taken = self.pod.ports.iter().any(|port| node.has_port(port));
        is_taken.then(|| for_now(Filter::NodePorts, Reason::Ports))
    }

    fn resources(&self, node: &NodeInfo) -> Option<Refusal> {
        resources(self.pod, node)
    }

    /// Devices are not simulated: a pod that claims some waits for them.
    fn resource_claims(&self) -> Option<Refusal> {
        let needs_devices = self.pod.resource_claims.iter().any(|used| used.claim.is_some());
        needs_devices.then(|| never(Filter::DynamicResources, Reason::Other("cannot allocate all claims".to_owned())))
    }
}

/// What does not fit, resource by resource.
fn resources(pod: &PodFacts, node: &NodeInfo) -> Option<Refusal> {
    let (asked, has, used) = (&pod.demand.asked, &node.facts.allocatable, &node.requested);
    let (mut reasons, mut could_yield) = (Vec::new(), true);
    if i64::try_from(node.pods.len()).unwrap_or(i64::MAX) >= node.facts.pods_max {
        reasons.push(Reason::TooManyPods);
    }
    let mut check = |name: &str, asked: i64, has: i64, used: i64| {
        if asked > 0 && asked > has.saturating_sub(used) {
            reasons.push(Reason::Insufficient(name.to_owned()));
            could_yield &= asked <= has;
        }
    };
    if !asked.is_empty() {
        check("cpu", asked.cpu_milli, has.cpu_milli, used.cpu_milli);
        check("memory", asked.memory_bytes, has.memory_bytes, used.memory_bytes);
        check("ephemeral-storage", asked.ephemeral_bytes, has.ephemeral_bytes, used.ephemeral_bytes);
        for (name, amount) in &asked.scalars {
            check(name, *amount, has.scalar(name), used.scalar(name));
        }
    }
    (!reasons.is_empty()).then_some(Refusal { reasons, could_yield, filter: Filter::NodeResourcesFit })
}

/// The names a pod limits itself to; an empty set that cannot be met is told at once.
fn named_nodes(pod: &PodFacts) -> Result<Option<BTreeSet<String>>, Setback> {
    let Some(terms) = pod.node_terms.as_ref().filter(|terms| !terms.is_empty()) else { return Ok(None) };
    let mut names = BTreeSet::new();
    for term in terms {
        match term.names() {
            None => return Ok(None),
            Some(more) => names.extend(more),
        }
    }
    if names.is_empty() {
        let message = "pod affinity terms conflict".to_owned();
        return Err(Setback::Refused { message, is_about_claims: false });
    }
    Ok(Some(names))
}

/// A refusal that no departure of a pod would change.
fn never(filter: Filter, reason: Reason) -> Refusal {
    Refusal { reasons: vec![reason], could_yield: false, filter }
}

/// A refusal because of pods that are there now.
fn for_now(filter: Filter, reason: Reason) -> Refusal {
    Refusal { reasons: vec![reason], could_yield: true, filter }
}

#[cfg(test)]
mod tests;
