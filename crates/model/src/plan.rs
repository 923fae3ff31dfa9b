//! Decisions as values. Building a plan changes nothing.

use crate::ids::{ClaimName, NodeName, PodId, PoolName, Revision, Text, TypeName};
use crate::labels::Labels;
use crate::money::Money;
use crate::offering::CapacityType;
use crate::pool::NodeClassRef;
use crate::requirement::Requirements;
use crate::resources::Resources;
use crate::taint::Taint;
use std::sync::Arc;

/// A proposal; `based_on` lets the applier refuse it once the world has moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub based_on: Revision,
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Pods that fit on a node that is there or on its way.
    Place(Placement),
    /// A node to buy.
    Launch(Box<Launch>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    pub node: NodeName,
    pub pods: Vec<PodId>,
    pub why: Reason,
}

/// A node to buy, and for whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Follows from the revision and the step: applying twice launches once.
    pub claim: ClaimName,
    pub pool: PoolName,
    pub node_class: NodeClassRef,
    /// What is acceptable, cheapest first. Never empty.
    /// Claims that accept the same share one list: thousands of alike nodes cost one.
    pub any_of: Arc<[LaunchOption]>,
    /// As they go into the NodeClaim's spec, instance types and capacity types included.
    pub requirements: Arc<Requirements>,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    pub startup_taints: Vec<Taint>,
    /// Of the pods and the DaemonSets together: the least that the node must offer.
    pub requests: Resources,
    pub for_pods: Vec<PodId>,
    /// Reservations that this claim holds; empty unless it is to be launched into one.
    pub reservations: Vec<Text>,
    /// Whether minValues was lowered to what there is.
    pub min_values_relaxed: bool,
    pub why: Reason,
}

impl Launch {
    /// What it will cost if the first choice can be had.
    pub fn price(&self) -> Money {
        self.any_of.first().map_or(Money::ZERO, |option| option.price)
    }
}

/// An instance type that would do, at its cheapest offering that can be launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchOption {
    pub instance_type: TypeName,
    pub zone: Option<Text>,
    pub capacity_type: Option<CapacityType>,
    pub price: Money,
    pub price_is_estimate: bool,
}

/// Why a step is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Pods wait, and no node has room for them.
    PodsWaiting { n_pods: usize },
    /// Only capacity buffers ask for it.
    BufferWanted { n_pods: usize },
    /// A node that is there, or on its way, has room.
    RoomOnNode { n_pods: usize, in_flight: bool },
}
