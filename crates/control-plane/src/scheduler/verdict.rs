//! What comes of looking at a node, and the words for it.

use std::collections::BTreeMap;
use std::fmt;

/// One node's answer to one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Fits,
    Refused(Refusal),
    /// The question itself could not be answered; the pod is tried again later.
    Error(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reasons: Vec<Reason>,
    /// Whether fewer pods on the node would change the answer.
    pub could_yield: bool,
    pub(crate) filter: Filter,
}

impl Refusal {
    /// A refusal for this reason alone, that no departure of a pod would change.
    #[must_use]
    pub fn never(reason: Reason) -> Self {
        Self { reasons: vec![reason], could_yield: false, filter: Filter::NodeName }
    }
}

/// Which check refused: what changes may help depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Filter {
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
}

/// Why not here. The words are the real scheduler's: people search for them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    Unschedulable,
    OtherNodeName,
    Taint,
    NodeAffinity,
    /// The pod named the nodes it may run on, and this is none of them.
    NotNamed,
    Ports,
    TooManyPods,
    Insufficient(String),
    DiskInUse,
    ClaimInUse,
    TooManyVolumes,
    VolumeElsewhere,
    NoVolume,
    NoStorageRoom,
    VolumeMissing,
    VolumeZone,
    Spread,
    SpreadLabel,
    ExistingAntiAffinity,
    Affinity,
    AntiAffinity,
    NoVictims,
    PreemptionUseless,
    Other(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unschedulable => "node(s) were unschedulable",
            Self::OtherNodeName => "node(s) didn't match the requested node name",
            Self::Taint => "node(s) had untolerated taint(s)",
            Self::NodeAffinity => "node(s) didn't match Pod's node affinity/selector",
            Self::NotNamed => "node(s) didn't satisfy plugin(s) [NodeAffinity]",
            Self::Ports => "node(s) didn't have free ports for the requested pod ports",
            Self::TooManyPods => "Too many pods",
            Self::Insufficient(resource) => return write!(f, "Insufficient {resource}"),
            Self::DiskInUse => "node(s) had no available disk",
            Self::ClaimInUse => {
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
            }
            Self::TooManyVolumes => "node(s) exceed max volume count",
            Self::VolumeElsewhere => "node(s) didn't match PersistentVolume's node affinity",
            Self::NoVolume => "node(s) didn't find available persistent volumes to bind",
            Self::NoStorageRoom => "node(s) did not have enough free storage",
            Self::VolumeMissing => "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
            Self::VolumeZone => "node(s) had no available volume zone",
            Self::Spread => "node(s) didn't match pod topology spread constraints",
            Self::SpreadLabel => "node(s) didn't match pod topology spread constraints (missing required label)",
            Self::ExistingAntiAffinity => "node(s) didn't satisfy existing pods anti-affinity rules",
            Self::Affinity => "node(s) didn't match pod affinity rules",
            Self::AntiAffinity => "node(s) didn't match pod anti-affinity rules",
            Self::NoVictims => "No preemption victims found for incoming pod",
            Self::PreemptionUseless => "Preemption is not helpful for scheduling",
            Self::Other(text) => text,
        })
    }
}

pub(crate) const NO_NODES: &str = "no nodes available to schedule pods";

/// `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s).` The counts are sorted as text.
pub(crate) fn histogram<'a>(n_nodes: usize, reasons: impl Iterator<Item = &'a Reason>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for reason in reasons {
        *counts.entry(reason.to_string()).or_default() += 1;
    }
    let mut lines: Vec<String> = counts.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    lines.sort();
    let head = format!("0/{n_nodes} nodes are available:");
    if lines.is_empty() { head } else { format!("{head} {}.", lines.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_sorted_as_text() {
        let reasons: Vec<Reason> = std::iter::repeat_n(Reason::Taint, 10)
            .chain([Reason::Insufficient("cpu".into()), Reason::TooManyPods, Reason::TooManyPods])
            .collect();
        assert_eq!(
            histogram(12, reasons.iter()),
            "0/12 nodes are available: 1 Insufficient cpu, 10 node(s) had untolerated taint(s), 2 Too many pods."
        );
        assert_eq!(histogram(0, [].into_iter()), "0/0 nodes are available:");
    }
}
