//! One frozen picture of the cluster. Every decision is made from one of these, and from nothing else.

use crate::demand::Demand;
use crate::ids::{DemandIdx, NodeName, PodId, Revision, Text, UnixMillis};
use crate::money::Money;
use crate::node::{BoundGroup, Node};
use crate::pool::Pool;
use crate::refusal::Why;
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct Snapshot {
    pub revision: Revision,
    pub now: UnixMillis,
    pub settings: Settings,
    pub pools: Vec<Pool>,
    pub nodes: Vec<Node>,
    /// Pods that run, by node and by what topology can see of them. Terminating and finished pods are left out.
    pub bound: Vec<BoundGroup>,
    pub demands: Vec<Arc<Demand>>,
    pub pods: Vec<PendingPod>,
    pub daemons: Vec<Daemon>,
    /// Pods that cannot be considered at all (a missing volume claim, say), with the reason.
    pub ill: Vec<(PodId, Why)>,
    /// What was odd about the objects observed. Never fatal.
    pub notes: Vec<Note>,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self {
            revision: Revision(0),
            now: UnixMillis(0),
            settings: Settings::default(),
            pools: Vec::new(),
            nodes: Vec::new(),
            bound: Vec::new(),
            demands: Vec::new(),
            pods: Vec::new(),
            daemons: Vec::new(),
            ill: Vec::new(),
            notes: Vec::new(),
        }
    }
}

impl Snapshot {
    pub fn demand(&self, idx: DemandIdx) -> &Demand {
        &self.demands[idx.0 as usize]
    }
}

/// A pod that wants a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingPod {
    pub id: PodId,
    pub demand: DemandIdx,
    pub created: UnixMillis,
    pub priority: i32,
    /// The node it must leave, where it is not simply pending.
    pub leaving: Option<NodeName>,
    /// Stands for spare capacity (a capacity buffer), not for a real pod.
    pub is_virtual: bool,
}

/// The pod that a DaemonSet would run on a new node.
#[derive(Debug, Clone)]
pub struct Daemon {
    pub name: Text,
    pub demand: Arc<Demand>,
}

/// Something odd that was observed, with where it was found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    pub source: Text,
    pub object: Text,
    pub field: Text,
    pub message: Text,
}

/// What a platform engineer configures about scheduling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub preferences: PreferencePolicy,
    pub min_values: MinValuesPolicy,
    /// None when reserved capacity is switched off.
    pub reserved: Option<ReservedMode>,
    pub placed_by: Binder,
    /// Labels that a pod may select although the pool says nothing about them: every provider adds its own.
    pub well_known: BTreeSet<Text>,
    /// The label that tells reservations apart.
    pub reservation_label: Text,
    /// What a node costs beside its price (agents, addresses, image pulls): among plans that are no dearer than first
    /// fit and hardly dearer than the cheapest, fewer nodes win where the price differs by less than this per node.
    pub node_overhead: Money,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            preferences: PreferencePolicy::Respect,
            min_values: MinValuesPolicy::Strict,
            reserved: Some(ReservedMode::Strict),
            placed_by: Binder::KubeScheduler,
            well_known: crate::labels::WELL_KNOWN.into_iter().map(Into::into).collect(),
            reservation_label: crate::labels::AWS_RESERVATION_ID.into(),
            node_overhead: Money::from_micros(10_000),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreferencePolicy {
    /// A preference constrains until it cannot be met.
    Respect,
    Ignore,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MinValuesPolicy {
    Strict,
    /// Lowered to what there is.
    BestEffort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReservedMode {
    /// A pod that could have had a reservation waits for it rather than pay.
    Strict,
    /// Reservations are lost silently to on-demand and spot.
    Fallback,
}

/// Who puts the pods onto the nodes that were launched for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binder {
    /// We do, exactly as planned (early binding).
    Kerf,
    /// kube-scheduler does: it spreads where we packed, and takes pods in its own order.
    KubeScheduler,
}
