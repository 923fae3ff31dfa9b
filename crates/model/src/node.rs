//! Nodes, as facts: what is there, or on its way.

use crate::demand::{HostPort, NamespaceName, PodTerm};
use crate::ids::{NodeIdx, NodeName, PoolName, Text, TypeName};
use crate::labels::Labels;
use crate::money::Money;
use crate::resources::Resources;
use crate::taint::Taint;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How far a node has come. The engine fills initialized nodes first, then those on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeStage {
    Initialized,
    /// Launched or registered, not yet initialized: capacity that has been paid for.
    InFlight,
    /// Marked for deletion: takes no pods, and its pods are among the pending ones.
    Leaving,
}

#[derive(Debug, Clone)]
pub struct Node {
    pub name: NodeName,
    /// None for nodes that we do not manage.
    pub pool: Option<PoolName>,
    pub stage: NodeStage,
    pub labels: Labels,
    /// The value of the hostname label, or the node's name where there is none.
    pub hostname: Text,
    /// Those that count for scheduling now: ephemeral and startup taints are left out until initialization.
    pub taints: Vec<Taint>,
    pub allocatable: Resources,
    pub capacity: Resources,
    /// Requests of the pods on it that have not ended, DaemonSet pods included.
    pub used: Resources,
    /// The part of `used` that DaemonSet pods have.
    pub used_by_daemons: Resources,
    pub host_ports: Vec<HostPort>,
    /// Distinct volumes by CSI driver.
    pub attached: BTreeMap<Text, BTreeSet<Text>>,
    /// By CSI driver; a driver left out is unlimited.
    pub attach_limits: BTreeMap<Text, u32>,
    pub instance_type: Option<TypeName>,
    /// What it costs, where that is known.
    pub price: Option<Money>,
}

/// Pods on one node that look alike to topology constraints.
#[derive(Debug, Clone)]
pub struct BoundGroup {
    pub node: NodeIdx,
    pub shape: Arc<BoundShape>,
    pub n_pods: u32,
}

/// What topology constraints can see of a bound pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BoundShape {
    pub namespace: NamespaceName,
    pub labels: Labels,
    /// Required terms only: they bar others from its domain.
    pub anti_affinity: Vec<PodTerm>,
}
