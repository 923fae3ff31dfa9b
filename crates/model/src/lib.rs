//! The words of the house: what the engine looks at, and what it answers.
//!
//! Nouns live here, verbs live in `kerf-engine`. Nothing in this crate does I/O, asks a clock or draws at random, and
//! nothing here knows Kubernetes objects: `kerf-mirror` turns those into facts.
//!
//! ```text
//! Snapshot ── pools ── instance types ── offerings      what can be bought
//!    │  └──── nodes, bound groups                       what is there
//!    └─────── pods ── demands                           what is wanted
//! Plan ────── steps, each with a Reason                 what to do
//! Report ──── refusals, cost, bound, effort             why, and how well
//! ```

pub mod demand;
pub mod ids;
pub mod labels;
pub mod money;
pub mod node;
pub mod offering;
pub mod plan;
pub mod pool;
pub mod quantity;
pub mod refusal;
pub mod report;
pub mod requirement;
pub mod resources;
pub mod selector;
pub mod shared;
pub mod snapshot;
pub mod taint;
pub mod typo;
pub mod values;
mod words;

pub use demand::{
    Demand, HostPort, NamespaceName, Namespaces, NodePolicy, PodTerm, Spread, VolumeNeeds, WhenUnsatisfiable,
};
pub use ids::{ClaimName, DemandIdx, NodeIdx, NodeName, PodId, PoolName, Revision, Text, TypeName, UnixMillis};
pub use labels::Labels;
pub use money::Money;
pub use node::{BoundGroup, BoundShape, Node, NodeStage};
pub use offering::{CapacityType, InstanceType, Offering};
pub use plan::{Launch, LaunchOption, Placement, Plan, Reason, Step};
pub use pool::{NodeClassRef, Pool, Readiness};
pub use quantity::{Quantity, QuantityError};
pub use refusal::{Refusal, Remedy, TopologyKind, Verdict, Why};
pub use report::{Candidate, Cost, Effort, Relaxed, Report, Robustness, Spent, Strategy};
pub use requirement::{Mismatch, Operator, Requirement, Requirements};
pub use resources::Resources;
pub use selector::{LabelSelector, SelectorOperator, SelectorTerm};
pub use shared::{shared_requirements, shared_text};
pub use snapshot::{
    Binder, Daemon, MinValuesPolicy, Note, PendingPod, PreferencePolicy, ReservedMode, Settings, Snapshot,
};
pub use taint::{Effect, Taint, Toleration, TolerationOperator};
pub use values::Values;
