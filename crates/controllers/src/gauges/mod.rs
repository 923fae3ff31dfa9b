//! Gauges of what is there: pods, nodes, pools, and how much of the cluster is known.
//!
//! ```text
//! Change ─▶ duty: what is dirty ─▶ every few seconds a new sheet (shared facts, no copies) ─▶ Board ─▶ the page
//! ```
//!
//! A sheet holds pointers to facts that the operator keeps anyway; the hundred thousand lines exist only while a page is
//! rendered. Ages are counted to the moment of the rendering, so that nobody has to wake up for them.
//!
//! Not for counting what happens: whoever does a thing counts it.

pub mod nodes;
pub mod pods;
pub mod pools;
pub mod state;

use crate::duty::Duty;
use crate::options::Options;
use crate::status::StatusTeller;
use kerf_model::{Quantity, UnixMillis};

/// The duties that only tell how things stand.
pub fn duties(options: &Options) -> Vec<Box<dyn Duty>> {
    let mut duties: Vec<Box<dyn Duty>> = vec![Box::new(state::StateGauges::default())];
    if options.observes_cluster_state {
        duties.push(Box::new(pods::PodGauges::default()));
        duties.push(Box::new(nodes::NodeGauges::default()));
        duties.push(Box::new(pools::PoolGauges::default()));
        duties.push(Box::new(StatusTeller::default()));
    }
    duties
}

/// How often a sheet is renewed while things change. Prometheus asks less often.
const RENEW_EVERY_MS: i64 = 5_000;

/// Whether something changed, and when it was last told.
#[derive(Debug, Default)]
struct Renewal {
    is_dirty: bool,
    renewed: Option<UnixMillis>,
}

impl Renewal {
    /// Answers true when it is time to tell; it is then told.
    fn is_due(&mut self, now: UnixMillis) -> bool {
        let is_due = self.is_dirty && self.next().is_none_or(|then| then <= now);
        if is_due {
            (self.is_dirty, self.renewed) = (false, Some(now));
        }
        is_due
    }

    /// When to ask again.
    fn wish(&self) -> Option<UnixMillis> {
        self.next().filter(|_| self.is_dirty)
    }

    fn next(&self) -> Option<UnixMillis> {
        self.renewed.map(|then| UnixMillis(then.0.saturating_add(RENEW_EVERY_MS)))
    }
}

/// As the label `resource_type` says it: `ephemeral_storage`.
fn resource_type(resource: &str) -> String {
    resource.to_lowercase().replace('-', "_")
}

fn units(amount: Quantity) -> f64 {
    amount.milli as f64 / 1_000.0
}

fn seconds(from: UnixMillis, to: UnixMillis) -> f64 {
    to.0.saturating_sub(from.0).max(0) as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_is_renewed_at_once_and_then_after_a_while() {
        let mut renewal = Renewal::default();
        assert!(!renewal.is_due(UnixMillis(0)), "nothing changed");
        renewal.is_dirty = true;
        assert!(renewal.is_due(UnixMillis(0)));
        assert_eq!(renewal.wish(), None);
        renewal.is_dirty = true;
        assert!(!renewal.is_due(UnixMillis(4_999)));
        assert_eq!(renewal.wish(), Some(UnixMillis(5_000)));
        assert!(renewal.is_due(UnixMillis(5_000)));
    }
}
