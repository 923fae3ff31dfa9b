//! What a pod needs. Pods that need the same share one demand: ten thousand pending pods are a few hundred demands.

use crate::ids::Text;
use crate::labels::Labels;
use crate::requirement::Requirements;
use crate::resources::Resources;
use crate::selector::LabelSelector;
use crate::taint::Toleration;
use std::collections::{BTreeMap, BTreeSet};

/// Everything about a pod that a scheduling decision may look at, except its identity.
///
/// Namespaces, namespace selectors, matchLabelKeys, volume claims and cluster default spreads are already resolved
/// by whoever observed the pod: a demand can be judged without asking anything else of the cluster's objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Demand {
    pub namespace: NamespaceName,
    pub labels: Labels,
    /// Requests of the pod as a whole, `pods: 1` included.
    pub requests: Resources,
    /// From `nodeSelector`.
    pub node_selector: Requirements,
    /// Required node-affinity terms: one of them must hold. Empty means no constraint.
    pub required_terms: Vec<Requirements>,
    /// Preferred node-affinity terms with their weights.
    pub preferred_terms: Vec<(i32, Requirements)>,
    pub tolerations: Vec<Toleration>,
    pub affinity: Vec<PodTerm>,
    pub anti_affinity: Vec<PodTerm>,
    pub preferred_affinity: Vec<(i32, PodTerm)>,
    pub preferred_anti_affinity: Vec<(i32, PodTerm)>,
    pub spreads: Vec<Spread>,
    pub host_ports: Vec<HostPort>,
    pub volumes: VolumeNeeds,
}

/// The namespace a pod lives in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceName(pub Text);

impl Default for NamespaceName {
    fn default() -> Self {
        Self("default".into())
    }
}

/// Which namespaces a pod term looks into.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Namespaces {
    All,
    These(BTreeSet<Text>),
}

impl Namespaces {
    pub fn contains(&self, namespace: &Text) -> bool {
        match self {
            Namespaces::All => true,
            Namespaces::These(names) => names.contains(namespace),
        }
    }
}

/// One term of pod affinity or anti-affinity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodTerm {
    pub topology_key: Text,
    pub namespaces: Namespaces,
    /// None selects no pod.
    pub selector: Option<LabelSelector>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WhenUnsatisfiable {
    DoNotSchedule,
    ScheduleAnyway,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodePolicy {
    Honor,
    Ignore,
}

/// One topology spread constraint. It counts pods of the demand's own namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spread {
    pub topology_key: Text,
    pub max_skew: u32,
    pub min_domains: Option<u32>,
    pub when: WhenUnsatisfiable,
    /// None counts every pod of the namespace, and does not count the pod itself.
    pub selector: Option<LabelSelector>,
    pub node_affinity_policy: NodePolicy,
    pub node_taints_policy: NodePolicy,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Empty, `0.0.0.0` and `::` mean every address.
    pub ip: Text,
    pub port: u16,
    pub protocol: Text,
}

impl HostPort {
    pub fn conflicts(&self, other: &HostPort) -> bool {
        let any = |ip: &str| matches!(ip, "" | "0.0.0.0" | "::");
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || any(&self.ip) || any(&other.ip))
    }
}

/// What a pod's volumes ask of the node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct VolumeNeeds {
    /// Where the volumes can be reached: one alternative must hold. Empty means anywhere. They bind the node, not the
    /// pod's own requirements, so that spread counting is unaffected.
    pub alternatives: Vec<Requirements>,
    /// Distinct volumes by CSI driver.
    pub attachments: BTreeMap<Text, BTreeSet<Text>>,
}
