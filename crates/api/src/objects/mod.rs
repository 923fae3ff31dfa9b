//! The six kinds as Rust values.
//!
//! Every field of the contract is here, under its Rust name; serde does the rest. Two habits to know:
//!
//! - **Text stays text.** Durations and quantities keep the letters the user wrote, so that reading and writing an
//!   object changes nothing a GitOps tool could see. Parsing happens when someone asks.
//! - **Reading is kind.** A choice we have never heard of becomes `Other(text)` instead of an error, because one odd
//!   object must not make a list of ten thousand unreadable. [`crate::Kind::check`] is where strangeness is named.
//!
//! `Option` around a list or map means that absent and empty differ somewhere (in a drift hash, or in a rule);
//! elsewhere absent is empty.

#[macro_use]
mod macros;

mod capacity_buffer;
mod ec2_node_class;
mod kwok_node_class;
mod node_claim;
mod node_overlay;
mod node_pool;
mod parts;

pub use capacity_buffer::{CapacityBuffer, CapacityBufferSpec, CapacityBufferStatus, LocalObjectRef, ScalableRef};
pub use ec2_node_class::{
    Ami, AmiFamily, AmiSelectorTerm, BlockDevice, BlockDeviceMapping, CapacityReservation,
    CapacityReservationSelectorTerm, ConnectionTracking, CpuOptions, Ec2NodeClass, Ec2NodeClassSpec,
    Ec2NodeClassStatus, Kubelet, MetadataOptions, NetworkInterface, PlacementGroupSelector, SecurityGroup,
    SecurityGroupSelectorTerm, Subnet, SubnetSelectorTerm,
};
pub use kwok_node_class::{KwokNodeClass, KwokNodeClassSpec, KwokNodeClassStatus};
pub use node_claim::{NodeClaim, NodeClaimSpec, NodeClaimStatus, ResourceRequirements};
pub use node_overlay::{NodeOverlay, NodeOverlaySpec, NodeOverlayStatus, OverlayRequirement};
pub use node_pool::{
    Budget, ConsolidationPolicy, Disruption, DisruptionReason, NodeClaimTemplate, NodeClaimTemplateSpec, NodePool,
    NodePoolSpec, NodePoolStatus, TemplateMetadata,
};
pub use parts::{NodeClassRef, Operator, Requirement, ResourceList};
