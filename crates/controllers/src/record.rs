//! A bounded record of decisions: what `kerf explain` answers from.

use kerf_model::{Plan, Report, Snapshot, UnixMillis};
use std::collections::VecDeque;
use std::sync::Arc;

/// Decisions kept. A decision holds its snapshot, so a handful is what memory allows in a large cluster.
const DECISIONS_MAX: usize = 16;

#[derive(Debug, Default)]
pub struct Record {
    decisions: VecDeque<Arc<Decision>>,
}

/// One decision, whole: what was seen, what was planned, and why.
#[derive(Debug)]
pub struct Decision {
    pub at: UnixMillis,
    pub snapshot: Arc<Snapshot>,
    pub plan: Plan,
    pub report: Report,
}

impl Record {
    pub fn keep(&mut self, decision: Decision) {
        if self.decisions.len() == DECISIONS_MAX {
            self.decisions.pop_front();
        }
        self.decisions.push_back(Arc::new(decision));
    }

    /// The latest first.
    pub fn decisions(&self) -> impl Iterator<Item = &Arc<Decision>> {
        self.decisions.iter().rev()
    }
}
