//! Bugs on purpose, one at a time: what the seeds of `simulation` are tried on.
//!
//! Only under the feature `planted`, which tests ask for and no released binary has.

use std::cell::Cell;

/// What may be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// No answer to a launch counts as no machine.
    LostAnswerIsFailure,
    /// What went while a watch was broken is never forgotten.
    StaleList,
    /// A budget lets one node more go.
    BudgetOffByOne,
    /// What was ordered is sent, whoever leads by then.
    UnfencedErrand,
    /// A node that is to stay after all keeps the marks of one that goes.
    ForgottenRollback,
}

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// From now on, on this thread.
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

pub(crate) fn has(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}
