//! What can be bought, where, and for how much.
//!
//! ```text
//! aws      the built-in EC2 catalogue ──┐
//! kwok     a file of instance types ────┼─▶ Vec<InstanceType> ─▶ overlay ─▶ what the engine plans with
//! ```
//!
//! Everything here is plain data and arithmetic: no client, no runtime, no clock. What a NodeClass says arrives as
//! plain facts; reading the objects is the business of `kerf-mirror`.

pub mod aws;
#[cfg(feature = "testing")]
pub mod conformance;
pub mod kwok;
pub mod overlay;
pub mod provider;

pub use aws::catalogue_date;
pub use provider::{
    Answer, ClassStatus, CloudError, CloudProvider, Instance, InstanceRef, LaunchOrder, NodeClassKind, OfferingKey,
    RepairAction, RepairPolicy, TypesAsk,
};
