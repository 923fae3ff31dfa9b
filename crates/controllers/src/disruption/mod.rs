//! Voluntary disruption: which nodes may go, how many at a time, and how they are taken out of use.
//!
//! ```text
//! nodeclaim.disruption   claims, pools, classes ─▶ conditions Consolidatable and Drifted (drift)
//! disruption             claims, nodes, pods ─▶ candidate (or Block) ─▶ emptiness (or Unfit) ─▶ seen 5 s ─▶ budgets ─▶ Commands
//! disruption.queue       Commands ─▶ taint, condition DisruptionReason ─▶ delete the claim; or give the node back
//! ```
//!
//! What is decided is decided by plain functions on plain values ([`candidate`], [`emptiness`], [`budgets`], [`cost`]); each "no"
//! is a value whose words are the event. What is not here: draining and ending the machine (termination does that, whoever
//! deleted the claim), and removals that ask nobody: expiry, garbage collection, liveness.

pub mod budgets;
pub mod candidate;
pub mod commands;
pub mod condition;
pub mod cost;
pub mod drift;
pub mod emptiness;
pub mod execution;
mod guards;
pub(crate) mod marks;
pub mod rounds;

pub use commands::Commands;
pub use condition::Conditioning;
pub use execution::Execution;
pub use rounds::Rounds;

use crate::standstill::Voluntary;
use kerf_api::DisruptionReason;

/// The ways to disrupt a node of one's own will, in the order in which they are asked. A round asks only for emptiness so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    Repair,
    Emptiness,
    StaticDrift,
    Drift,
    MultiNodeConsolidation,
    SingleNodeConsolidation,
}

impl Method {
    /// As what it asks whether it may begin.
    pub fn voluntary(self) -> Voluntary {
        match self {
            Method::Repair => Voluntary::Repair,
            Method::Emptiness => Voluntary::Emptiness,
            Method::StaticDrift | Method::Drift => Voluntary::Drift,
            Method::MultiNodeConsolidation | Method::SingleNodeConsolidation => Voluntary::Consolidation,
        }
    }

    /// What budgets, conditions and events call it.
    pub fn reason(self) -> DisruptionReason {
        match self {
            Method::Repair => DisruptionReason::Unhealthy,
            Method::Emptiness => DisruptionReason::Empty,
            Method::StaticDrift | Method::Drift => DisruptionReason::Drifted,
            Method::MultiNodeConsolidation | Method::SingleNodeConsolidation => DisruptionReason::Underutilized,
        }
    }

    /// The `reason` label of metrics.
    pub fn reason_label(self) -> &'static str {
        match self {
            Method::Repair => "unhealthy",
            Method::Emptiness => "empty",
            Method::StaticDrift | Method::Drift => "drifted",
            Method::MultiNodeConsolidation | Method::SingleNodeConsolidation => "underutilized",
        }
    }

    /// The `consolidation_type` label of metrics.
    pub fn consolidation_type(self) -> &'static str {
        match self {
            Method::Emptiness => "empty",
            Method::MultiNodeConsolidation => "multi",
            Method::SingleNodeConsolidation => "single",
            Method::Repair | Method::StaticDrift | Method::Drift => "",
        }
    }
}
