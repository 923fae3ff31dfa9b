//! The hands: observe, decide, check, tell, apply.
//!
//! ```text
//! watches, answers, time ──▶ Wake ──▶ Operator ── world (mirror, objects, pods) ──▶ duties, in order
//!                                        │                                            │ each looks at the world,
//!                                        ▼                                            ▼ and orders errands
//!                                   Errands: API calls, cloud calls, thoughts ──▶ apply (the shell) ──▶ Wake::Done
//! ```
//!
//! The operator is one synchronous state machine: it owns the state, asks no clock, and never waits. Whatever takes time is an
//! [`Errand`]: the shell runs it and brings the outcome back through the same door as every other fact. So the same operator runs
//! on a real cluster, in one process with the control plane, and under a virtual clock.
//!
//! To know what wakes it, read [`wake`]; to know what it does and in which order, read [`operator::duties`].

pub mod buffers;
pub mod chores;
pub mod claims;
pub mod classes;
pub mod conditions;
pub mod desk;
pub mod dispatch;
pub mod disruption;
pub mod duty;
pub mod early_binding;
pub mod errand;
pub mod events;
pub mod explain;
pub mod gauges;
pub mod guard;
pub mod interruption;
pub mod lease;
pub mod lifecycle;
pub mod limits;
pub mod log;
pub mod metrics;
pub mod moment;
pub mod nominations;
pub mod operator;
pub mod options;
pub mod overlays;
#[cfg(feature = "planted")]
pub mod planted;
pub mod poison;
pub mod pools;
pub mod provisioning;
pub mod queue;
pub mod record;
pub mod resource;
#[cfg(feature = "shell")]
pub mod shell;
pub mod standstill;
pub mod static_capacity;
pub mod status;
pub mod stock;
pub mod supply;
pub mod tagging;
pub mod termination;
pub mod upkeep;
pub mod wake;
mod ward;
pub mod watcher;
pub mod world;
pub mod write;

pub use desk::Desk;
pub use duty::Duty;
pub use errand::{ApiCall, ApiFailure, CloudAnswer, CloudCall, Errand, Outcome, Thought, Ticket};
pub use operator::Operator;
pub use options::{Gates, Options, Rebalance};
pub use standstill::{Standstill, Voluntary};
pub use wake::Wake;
pub use world::{Change, World};
