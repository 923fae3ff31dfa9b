//! Why the plan is as it is, and how good it is.

use crate::ids::{PodId, Revision, Text};
use crate::money::Money;
use crate::refusal::Refusal;
use std::sync::Arc;

/// How much searching is allowed. Counted in steps, not in time: a slow machine gets the same answer later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    pub max: u64,
}

impl Default for Effort {
    fn default() -> Self {
        // Ten times what the largest bench (100,000 pods) spends.
        Self { max: 4_000_000_000 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub revision: Revision,
    /// Alike pods share one refusal.
    pub refused: Vec<(PodId, Arc<Refusal>)>,
    /// Preferences that had to be given up.
    pub relaxed: Vec<Relaxed>,
    pub cost: Cost,
    pub spent: Spent,
    /// What was tried, the chosen one first.
    pub candidates: Vec<Candidate>,
    /// Only where kube-scheduler has the last word.
    pub robustness: Option<Robustness>,
}

/// Dollars per hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cost {
    /// Of the nodes whose price is known.
    pub before: Money,
    /// Of the nodes to launch.
    pub added: Money,
    /// No way to buy nodes for the pods that go onto new ones can add less than this.
    pub bound: Money,
    /// Constraints that the bound does not see (spread and affinity over zones, say), so that the gap looks wider
    /// than it is.
    pub bound_ignores: Vec<Text>,
    /// Whether some of the prices are estimates.
    pub has_estimates: bool,
    /// Nodes whose price is not known.
    pub n_unpriced_nodes: usize,
}

impl Cost {
    /// How far above the bound, as a fraction. None when there is nothing to buy.
    pub fn gap(&self) -> Option<f64> {
        (self.bound.micros > 0).then(|| (self.added.micros - self.bound.micros) as f64 / self.bound.micros as f64)
    }
}

/// Search steps used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    pub steps: u64,
    /// The search was stopped; the plan is sound, but might have been better or larger.
    pub is_cut_off: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strategy {
    /// Bins chosen by value for money, filled by the prices of the linear relaxation.
    ByValue,
    /// Nodes that are alike, each able to hold the average mix.
    Alike,
    /// Largest pod first, into the first node with room.
    FirstFit,
}

/// A plan that was considered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub strategy: Strategy,
    pub n_nodes: usize,
    pub n_placed: usize,
    pub cost: Money,
    /// After kube-scheduler's model placed the pods, stranded pods' nodes included.
    pub cost_after_scheduler: Option<Money>,
}

/// What happens when kube-scheduler places the pods, in several orders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Robustness {
    pub n_orders: usize,
    pub worst_stranded: usize,
    pub worst_cost: Money,
}

/// A preference that was given up for some pods of a demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relaxed {
    pub pods: Vec<PodId>,
    pub given_up: Vec<Text>,
}
