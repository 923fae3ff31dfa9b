//! What becomes of an errand on its way: in which lane it waits, by when it must be answered, and who asks again.
//!
//! ```text
//! errand ─▶ Trip::of ─▶ lane: wait for a turn ─▶ leaves ─▶ (send, until the deadline) ─▶ judge ─▶ its outcome
//!                            ▲                                                             │
//!                            └────────────── the server asks to come back ◀────────────────┘
//! ```
//!
//! No clock, runtime or client is here: the shell drives a trip over the network, a rehearsal over a simulated one.
//!
//! Who asks again: a request that the server did not begin (429, 503 with Retry-After) is sent again from here, and so is a read. Everything
//! else goes back to the duty that ordered it, which looks at the world first. Evictions always go back: a budget's no is a 429, too, and the
//! eviction queue has waits of its own.

use crate::errand::{ApiFailure, Ticket};
use crate::limits::{AGAIN_FIRST, ANSWER_WITHIN, TRIES_MAX};
use crate::moment::Moment;
use crate::operator::NARRATOR;
use crate::termination::EVICTION_QUEUE;
use std::time::Duration;

/// What waits together. Nothing waits behind what is in another lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Claims, bindings, statuses, reads: whatever moves things forward.
    Work,
    /// What budgets and webhooks may hold up.
    Evictions,
    /// What is told, which must not hold up what is done.
    Events,
}

impl Lane {
    pub fn of(ticket: &Ticket) -> Self {
        match ticket.duty {
            NARRATOR => Self::Events,
            EVICTION_QUEUE => Self::Evictions,
            _ => Self::Work,
        }
    }
}

/// One request on its way to an answer.
#[derive(Debug, Clone)]
pub struct Trip {
    lane: Lane,
    is_read: bool,
    n_tries: usize,
    /// When all of it must have come to an end; known from the first sending on.
    deadline: Option<Moment>,
}

/// Why a request was not answered as hoped, and when the server wants to be asked again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub failure: ApiFailure,
    pub retry_after: Option<Duration>,
}

impl From<ApiFailure> for Refused {
    fn from(failure: ApiFailure) -> Self {
        Self { failure, retry_after: None }
    }
}

impl Trip {
    pub fn of(lane: Lane, method: &str) -> Self {
        Self { lane, is_read: method == "GET", n_tries: 0, deadline: None }
    }

    /// It is its turn: it is sent now. Answers by when it must be answered.
    pub fn leaves(&mut self, now: Moment) -> Moment {
        self.n_tries += 1;
        *self.deadline.get_or_insert(now.after(ANSWER_WITHIN))
    }

    /// When it waits for its turn again; None when the answer stands.
    pub fn judge(&self, now: Moment, refused: &Refused) -> Option<Moment> {
        let may_come_back = match (refused.failure.status, refused.retry_after) {
            (429 | 503, Some(_)) => true,
            (429 | 500 | 503 | 504, None) => self.is_read,
            _ => false,
        };
        if self.lane == Lane::Evictions || !may_come_back || self.n_tries >= TRIES_MAX {
            return None;
        }
        let doubled = u32::try_from(self.n_tries.saturating_sub(1)).unwrap_or(u32::MAX);
        let wait = refused.retry_after.unwrap_or(AGAIN_FIRST.saturating_mul(2_u32.saturating_pow(doubled)));
        let then = now.after(wait.max(AGAIN_FIRST));
        self.deadline.is_some_and(|deadline| then < deadline).then_some(then)
    }
}

/// There was no answer in time. Whether the request had its effect, nobody knows: who asked looks at the world before asking again.
pub fn unanswered() -> ApiFailure {
    ApiFailure { status: 0, reason: String::new(), message: format!("no answer within {} s", ANSWER_WITHIN.as_secs()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, retry_after: Option<u64>) -> Refused {
        let failure = ApiFailure { status, reason: String::new(), message: String::new() };
        Refused { failure, retry_after: retry_after.map(Duration::from_secs) }
    }

    /// Milliseconds after which each answer leads to another sending, until one stands.
    fn waits(lane: Lane, method: &str, answer: &Refused) -> Vec<i64> {
        let mut trip = Trip::of(lane, method);
        let (mut now, mut waits) = (Moment(1_000), Vec::new());
        loop {
            assert!(trip.leaves(now) == Moment(61_000), "one deadline for all of it");
            let Some(then) = trip.judge(now, answer) else { return waits };
            waits.push(then.0 - now.0);
            now = then;
        }
    }

    #[test]
    fn who_comes_back_when_and_how_often() {
        for (lane, method, status, retry_after, expected) in [
            (Lane::Work, "PATCH", 429, Some(1), &[1_000, 1_000, 1_000, 1_000][..]),
            (Lane::Work, "POST", 503, Some(20), &[20_000, 20_000][..]),
            (Lane::Work, "POST", 429, Some(0), &[500, 500, 500, 500][..]),
            (Lane::Events, "POST", 429, Some(3_600), &[][..]),
            (Lane::Work, "POST", 429, None, &[][..]),
            (Lane::Work, "POST", 504, Some(1), &[][..]),
            (Lane::Work, "PATCH", 409, Some(1), &[][..]),
            (Lane::Work, "PATCH", 0, None, &[][..]),
            (Lane::Work, "GET", 503, None, &[500, 1_000, 2_000, 4_000][..]),
            (Lane::Work, "GET", 404, None, &[][..]),
            (Lane::Evictions, "POST", 429, Some(10), &[][..]),
            (Lane::Evictions, "POST", 503, Some(1), &[][..]),
        ] {
            assert_eq!(waits(lane, method, &refused(status, retry_after)), expected, "{lane:?} {method} {status}");
        }
    }

    #[test]
    fn evictions_and_events_have_lanes_of_their_own() {
        let lane = |duty| Lane::of(&Ticket { duty, key: "k".into() });
        assert_eq!(lane(EVICTION_QUEUE), Lane::Evictions);
        assert_eq!(lane(NARRATOR), Lane::Events);
        assert_eq!(lane("nodeclaim.lifecycle"), Lane::Work);
    }
}
