//! What the mirror asks of whoever knows what can be bought.

use kerf_api::NodeOverlay;
use kerf_model::{CapacityType, InstanceType, Labels, Money, NodeClassRef, PoolName, Requirements, Text, TypeName};
use serde_json::Value;
use std::sync::Arc;

/// What one pool can buy, overlays applied.
pub type Types = Arc<[Arc<InstanceType>]>;

/// A pool that wants to know its instance types.
#[derive(Debug, Clone)]
pub struct Inquiry<'a> {
    pub pool: &'a PoolName,
    pub labels: &'a Labels,
    pub requirements: &'a Requirements,
    pub node_class: &'a NodeClassRef,
    /// The whole NodeClass object, where it was observed.
    pub class_object: Option<&'a Value>,
}

/// Knows instance types, offerings and prices.
pub trait Supply {
    /// Whether node classes of this kind are ours to serve. Pools of other kinds are left alone.
    fn serves(&self, node_class: &NodeClassRef) -> bool;

    /// For each pool, in order: its types, or in words why there are none. All pools at once, because a conflict of
    /// overlays in one pool rejects the overlay in all.
    fn types(&self, inquiries: &[Inquiry<'_>], overlays: &[Arc<NodeOverlay>]) -> Stock;

    /// The price of a machine that belongs to no pool of ours.
    fn price(&self, instance_type: &TypeName, zone: Option<&Text>, capacity_type: CapacityType) -> Option<Money>;
}

/// What the supply answered.
#[derive(Debug, Clone, Default)]
pub struct Stock {
    /// In the order of the inquiries.
    pub types: Vec<Result<Types, Text>>,
    /// Overlays that were rejected: name and reason.
    pub rejected_overlays: Vec<(Text, Text)>,
}
