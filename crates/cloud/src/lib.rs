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
pub mod clock;
#[cfg(feature = "testing")]
pub mod conformance;
pub mod kwok;
pub mod overlay;
pub mod provider;

pub use aws::catalogue_date;
pub use provider::{
    Answer, Chore, ChoreAsk, ChoreReport, ClaimInUse, ClassStatus, CloudError, CloudProvider, InUse, Instance,
    InstanceRef, LaunchOrder, NodeClassKind, NodeSeen, Notice, NoticeKind, OfferingKey, PoolInUse, RepairAction,
    RepairPolicy, Sample, TypesAsk,
};

/// Threads on which a provider reads and runs people's expressions. A panic there is an answer to whoever waits, and no end of the process.
pub const EXPRESSION_THREAD: &str = "expression";
