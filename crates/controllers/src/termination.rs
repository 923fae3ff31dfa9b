//! The end of a node: taint it, drain it, wait for its volumes and its machine, and only then let the object go.
//!
//! ```text
//! a Node that is being deleted and carries our finalizer
//!   │ node.termination: its claim goes too ─▶ taint ─▶ drain ─▶ volumes ─▶ machine ─▶ finalizer off
//!   │                                                   │ who waits, and which tier's turn it is (drain)
//!   ▼                                                   ▼
//! NodeClaim conditions: Drained, VolumesDetached,     Evictions ─▶ eviction-queue: evict within budgets,
//! InstanceTerminating                                              or delete when the claim's time is up
//! ```
//!
//! Whatever must survive a restart stands on the objects: the deletion timestamp, the finalizer, the claim's conditions and the
//! annotation with its termination time. What is not here: why a node goes, and the claim's own end (`lifecycle`).

mod drain;
mod eviction;
mod hold;
mod node;
mod volumes;

pub use drain::{Drain, Tier, force_from, force_grace_seconds, is_drainable, is_waited_for};
pub use eviction::{EvictionQueue, Evictions, NAME as EVICTION_QUEUE, Until};
pub use hold::tell_hold;
pub use node::NodeTermination;
pub(crate) use node::termination_time;
