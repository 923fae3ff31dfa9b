//! The study: plans capacity from one frozen picture; no I/O, no async, no clock.

use kerf_model::{Effort, Plan, Report, Snapshot};

/// Plans where the pending pods go, and what to buy for those that fit nowhere.
pub fn plan_capacity(snapshot: &Snapshot, _effort: &Effort) -> (Plan, Report) {
    let _ = snapshot;
    unimplemented!()
}
