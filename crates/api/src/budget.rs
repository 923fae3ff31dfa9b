//! Disruption budgets: when they hold, and how many nodes they let go.

use jiff::Timestamp;

use crate::cron::{CronError, Schedule};
use crate::duration::DurationError;
use crate::objects::{Budget, Disruption, DisruptionReason};

/// What a pool without budgets allows.
pub const DEFAULT_NODES: &str = "10%";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    #[error("the budget's schedule cannot be read")]
    Schedule(#[source] CronError),
    #[error("the budget's duration cannot be read")]
    Duration(#[source] DurationError),
    #[error("a budget's nodes are {found:?}; a count such as \"3\" or a share such as \"10%\" would do")]
    Nodes { found: String },
    #[error("a budget has a schedule without a duration, or the reverse; set both or neither")]
    HalfScheduled,
}

impl Budget {
    /// Whether the budget holds at `now`: always without a schedule, else from each hit on for its duration.
    pub fn is_active(&self, now: Timestamp) -> Result<bool, BudgetError> {
        let (schedule, duration) = match (&self.schedule, &self.duration) {
            (None, None) => return Ok(true),
            (Some(schedule), Some(duration)) => (schedule, duration),
            _ => return Err(BudgetError::HalfScheduled),
        };
        let schedule = Schedule::parse(schedule).map_err(BudgetError::Schedule)?;
        let duration = duration.parse().map_err(BudgetError::Duration)?;
        let window_start = now.checked_sub(duration).unwrap_or(Timestamp::MIN);
        Ok(schedule.next_after(window_start).is_some_and(|hit| hit <= now))
    }

    /// How many of `n_nodes` the budget lets go, a share rounded up.
    pub fn allowed_nodes(&self, n_nodes: u32) -> Result<u32, BudgetError> {
        let text = self.nodes.as_deref().unwrap_or(DEFAULT_NODES);
        let bad = || BudgetError::Nodes { found: text.to_owned() };
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent: u64 = percent.parse().map_err(|_| bad())?;
                Ok(u32::try_from((u64::from(n_nodes) * percent).div_ceil(100)).unwrap_or(u32::MAX))
            }
            None => text.parse().map_err(|_| bad()),
        }
    }

    /// A budget without reasons is for all of them.
    pub fn is_for(&self, reason: &DisruptionReason) -> bool {
        self.reasons.as_ref().is_none_or(|reasons| reasons.contains(reason))
    }
}

impl Disruption {
    /// How many of a pool's `n_nodes` may be disrupted at `now` for `reason`, before those already on their way are
    /// subtracted.
    ///
    /// The tightest budget that holds and is for the reason counts; `None` means that none limits. One budget that
    /// cannot be read spoils the whole pool, for every reason: the caller is to allow nothing then.
    pub fn allowed_nodes(
        &self,
        reason: &DisruptionReason,
        n_nodes: u32,
        now: Timestamp,
    ) -> Result<Option<u32>, BudgetError> {
        let default = [Budget { nodes: Some(DEFAULT_NODES.to_owned()), ..Budget::default() }];
        let budgets = self.budgets.as_deref().unwrap_or(&default);
        let mut tightest = None;
        for budget in budgets {
            let allowed = budget.allowed_nodes(n_nodes)?;
            if budget.is_active(now)? && budget.is_for(reason) {
                tightest = Some(tightest.map_or(allowed, |tightest: u32| tightest.min(allowed)));
            }
        }
        Ok(tightest)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn budget(value: serde_json::Value) -> Budget {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_budget_holds_from_each_hit_for_its_duration() {
        let nightly = budget(json!({"nodes": "0", "schedule": "0 22 * * *", "duration": "8h"}));
        for (now, expected) in [
            ("2024-01-01T21:59:59Z", false),
            ("2024-01-01T22:00:00Z", true),
            ("2024-01-02T05:59:59Z", true),
            // The window is open at its end: the first hit after 22:00 sharp is tomorrow's.
            ("2024-01-02T06:00:00Z", false),
            ("2024-01-02T12:00:00Z", false),
        ] {
            assert_eq!(nightly.is_active(now.parse().unwrap()), Ok(expected), "{now}");
        }
        let always = budget(json!({"nodes": "1"}));
        assert_eq!(always.is_active("2024-01-01T00:00:00Z".parse().unwrap()), Ok(true));
    }

    #[test]
    fn a_share_rounds_up() {
        for (nodes, n_nodes, expected) in [
            ("10%", 0, 0),
            ("10%", 1, 1),
            ("10%", 10, 1),
            ("10%", 11, 2),
            ("100%", 7, 7),
            ("0%", 7, 0),
            ("5", 3, 5),
            ("0", 3, 0),
        ] {
            assert_eq!(budget(json!({"nodes": nodes})).allowed_nodes(n_nodes), Ok(expected), "{nodes} of {n_nodes}");
        }
        assert!(budget(json!({"nodes": "many"})).allowed_nodes(3).is_err());
        assert_eq!(budget(json!({})).allowed_nodes(20), Ok(2));
    }

    #[test]
    fn the_tightest_budget_for_the_reason_counts() {
        let now = "2024-01-01T00:00:00Z".parse().unwrap();
        let disruption: Disruption = serde_json::from_value(json!({"budgets": [
            {"nodes": "50%"},
            {"nodes": "2", "reasons": ["Drifted"]},
            {"nodes": "0", "schedule": "0 12 * * *", "duration": "1h"},
        ]}))
        .unwrap();
        assert_eq!(disruption.allowed_nodes(&DisruptionReason::Drifted, 10, now), Ok(Some(2)));
        assert_eq!(disruption.allowed_nodes(&DisruptionReason::Empty, 10, now), Ok(Some(5)));
        let only_drift: Disruption =
            serde_json::from_value(json!({"budgets": [{"nodes": "2", "reasons": ["Drifted"]}]})).unwrap();
        assert_eq!(only_drift.allowed_nodes(&DisruptionReason::Empty, 10, now), Ok(None));
        assert_eq!(Disruption::default().allowed_nodes(&DisruptionReason::Empty, 10, now), Ok(Some(1)));
    }

    #[test]
    fn one_unreadable_budget_spoils_the_pool() {
        let now = "2024-01-01T00:00:00Z".parse().unwrap();
        let disruption: Disruption = serde_json::from_value(json!({"budgets": [
            {"nodes": "5"},
            {"nodes": "5", "reasons": ["Drifted"], "schedule": "0 99 * * *", "duration": "1h"},
        ]}))
        .unwrap();
        assert!(disruption.allowed_nodes(&DisruptionReason::Empty, 10, now).is_err());
    }
}
