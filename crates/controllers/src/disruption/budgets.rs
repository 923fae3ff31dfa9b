//! How many nodes of each pool may still go. The arithmetic of a single budget is in [`kerf_api::budget`].

use super::commands::Commands;
use super::marks;
use crate::world::{World, is_ready};
use jiff::Timestamp;
use kerf_api::budget::BudgetError;
use kerf_api::{Disruption, DisruptionReason, NodePool, labels};
use kerf_model::{Text, UnixMillis};
use std::collections::BTreeMap;

/// As upstream writes "no limit".
pub const UNLIMITED: u32 = i32::MAX as u32;

/// The nodes of each pool, counted at one time.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ledger(BTreeMap<Text, Count>);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub n_nodes: u32,
    /// Leaving, for whatever cause, or rebooting.
    pub n_leaving: u32,
    /// Neither leaving nor ready.
    pub n_unready: u32,
}

/// What a pool's budgets say for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    pub n_nodes: u32,
    /// How many may be away at a time.
    pub allowed: u32,
    /// How many are.
    pub n_consuming: u32,
}

impl Allowance {
    pub fn left(&self) -> u32 {
        #[cfg(feature = "planted")]
        if crate::planted::has(crate::planted::Bug::BudgetOffByOne) {
            return (self.allowed + 1).saturating_sub(self.n_consuming);
        }
        self.allowed.saturating_sub(self.n_consuming)
    }

    /// Whether the pool has nodes, and its budgets let none of them go whatever happens.
    pub fn is_shut(&self) -> bool {
        self.n_nodes > 0 && self.allowed == 0
    }
}

impl Ledger {
    pub fn count(world: &World, commands: &Commands) -> Self {
        let mut pools: BTreeMap<Text, Count> = BTreeMap::new();
        for (name, claim) in &world.claims {
            let pool = marks::label(&claim.metadata, labels::NODE_POOL);
            let (Some(pool), Some(node)) = (pool, world.node_of_claim(claim)) else {
                continue;
            };
            let is_rebooting = marks::is_true(claim, "Rebooting");
            let is_there = is_rebooting || marks::has_label(&node.metadata, labels::INITIALIZED);
            if !is_there || marks::is_true(claim, "InstanceTerminating") {
                continue;
            }
            let count = match pools.get_mut(pool) {
                Some(count) => count,
                None => pools.entry(pool.into()).or_default(),
            };
            count.n_nodes += 1;
            if is_rebooting || commands.contains(name) || marks::is_leaving(claim, Some(node)) {
                count.n_leaving += 1;
            } else if !is_ready(node) {
                count.n_unready += 1;
            }
        }
        Self(pools)
    }

    /// What a pool allows. A budget that cannot be read allows nothing, for any reason; the error says what is wrong.
    pub fn allowance(
        &self,
        name: &str,
        pool: &NodePool,
        reason: &DisruptionReason,
        now: UnixMillis,
    ) -> (Allowance, Option<BudgetError>) {
        let count = self.0.get(name).copied().unwrap_or_default();
        allowance(count, pool.spec.disruption.as_ref(), reason, now)
    }
}

pub fn allowance(
    count: Count,
    disruption: Option<&Disruption>,
    reason: &DisruptionReason,
    now: UnixMillis,
) -> (Allowance, Option<BudgetError>) {
    let now = Timestamp::from_millisecond(now.0).unwrap_or(Timestamp::UNIX_EPOCH);
    let default = Disruption::default();
    let (allowed, error) = match disruption.unwrap_or(&default).allowed_nodes(reason, count.n_nodes, now) {
        Ok(allowed) => (allowed.unwrap_or(UNLIMITED), None),
        Err(error) => (0, Some(error)),
    };
    // Sick nodes must not starve their own repair.
    let n_unready = if *reason == DisruptionReason::Unhealthy { 0 } else { count.n_unready };
    (Allowance { n_nodes: count.n_nodes, allowed, n_consuming: count.n_leaving + n_unready }, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use DisruptionReason::{Drifted, Empty, Unhealthy};
    use serde_json::{Value, json};

    /// 2026-01-01, a Thursday, at noon.
    const NOON: UnixMillis = UnixMillis(1_767_268_800_000);

    fn count(n_nodes: u32, n_leaving: u32, n_unready: u32) -> Count {
        Count { n_nodes, n_leaving, n_unready }
    }

    #[test]
    fn what_is_left_is_what_the_tightest_budget_allows_less_who_is_away() {
        let none = json!([]);
        let default = Value::Null;
        let percent = json!([{"nodes": "25%"}]);
        let at_noon = json!([{"nodes": "100%"}, {"nodes": "0", "schedule": "30 11 * * *", "duration": "1h"}]);
        let at_night = json!([{"nodes": "100%"}, {"nodes": "0", "schedule": "0 22 * * *", "duration": "8h"}]);
        let by_reason = json!([{"nodes": "2"}, {"nodes": "0", "reasons": ["Empty"]}]);
        for (budgets, reason, count, allowed, left) in [
            (&default, Empty, count(11, 0, 0), 2, 2),
            (&none, Empty, count(5, 1, 1), UNLIMITED, UNLIMITED - 2),
            (&percent, Empty, count(5, 0, 0), 2, 2),
            (&percent, Empty, count(5, 1, 0), 2, 1),
            (&percent, Empty, count(5, 1, 2), 2, 0),
            (&percent, Unhealthy, count(5, 1, 2), 2, 1),
            (&percent, Empty, count(0, 0, 0), 0, 0),
            (&at_noon, Empty, count(5, 0, 0), 0, 0),
            (&at_night, Empty, count(5, 0, 0), 5, 5),
            (&by_reason, Empty, count(5, 0, 0), 0, 0),
            (&by_reason, Drifted, count(5, 0, 0), 2, 2),
        ] {
            let mut disruption = json!({});
            if !budgets.is_null() {
                disruption["budgets"] = budgets.clone();
            }
            let disruption: Disruption = serde_json::from_value(disruption).unwrap();
            let (found, error) = allowance(count, Some(&disruption), &reason, NOON);
            assert_eq!((found.allowed, found.left(), error), (allowed, left, None), "{budgets} {reason} {count:?}");
        }
    }

    #[test]
    fn a_budget_that_cannot_be_read_allows_nothing_for_any_reason() {
        let budgets = json!({"budgets": [{"nodes": "5"}, {"nodes": "some", "reasons": ["Drifted"]}]});
        let disruption: Disruption = serde_json::from_value(budgets).unwrap();
        for reason in [Empty, Drifted, Unhealthy] {
            let (found, error) = allowance(count(5, 0, 0), Some(&disruption), &reason, NOON);
            assert_eq!(found.left(), 0, "{reason}");
            assert!(found.is_shut());
            assert!(error.unwrap().to_string().contains("\"some\""));
        }
    }

    #[test]
    fn a_pool_without_nodes_is_not_shut() {
        let shut: Disruption = serde_json::from_value(json!({"budgets": [{"nodes": "0"}]})).unwrap();
        assert!(!allowance(count(0, 0, 0), Some(&shut), &Empty, NOON).0.is_shut());
        assert!(allowance(count(1, 0, 0), Some(&shut), &Empty, NOON).0.is_shut());
    }
}
