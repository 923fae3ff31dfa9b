//! What becomes of an errand on its way to its outcome: the one interpreter, for the shell and for rehearsals.
//!
//! ```text
//! errand ─▶ Trip::of ─▶ lane: wait for a turn ─▶ leaves ─▶ send it, or ask the cloud ─▶ judge ─▶ its outcome
//!                            ▲                     │ the lease is lost: an outcome at once   │
//!                            └───── the server asks to come back: wait, and leave again ◀────┘
//! ```
//!
//! No clock, runtime or client is here. To drive it:
//!
//! ```text
//! let pass = Pass::of(&mandate);                        // when the operator orders it, not when it is sent
//! let mut trip = Trip::of(&ticket, &errand, pass);
//! loop {
//!     // wait for a turn in trip.lane(), if it has one
//!     let by = trip.leaves(now)?;                     // Err: the outcome, without anything being sent
//!     // send the request or ask the cloud; when nothing has come by `by`: trip.lost()
//!     // the API server refused: match trip.judge(now, &refused) { Some(then) => wait until then and go on, None => its outcome }
//! }
//! ```
//!
//! **The mandate.** Nothing leaves under a lease that is lost, that could not be renewed in time, or that is another than the one under which it was
//! ordered. Such an errand comes back as [`ApiFailure::not_sent`] or [`CloudError::NotAsked`]: it certainly had no effect.
//!
//! **Lost answers.** What was sent and not answered in time may have had its effect. It comes back as a failure with status 0, or as an error of
//! the cloud that says so; whoever ordered it looks at the world, and asks again under the same name or token.
//!
//! **Who asks again.** A request that the server did not begin (429, 503 with Retry-After) is sent again from here, and so is a read. Everything
//! else goes back to the duty that ordered it, which looks at the world first. Evictions always go back: a budget's no is a 429, too, and the
//! eviction queue has waits of its own.

use crate::errand::{ApiFailure, Errand, Outcome, Ticket};
use crate::lease::{Mandate, Term};
use crate::limits::{AGAIN_FIRST, ANSWER_WITHIN, CLOUD_WITHIN, NOTICES_WITHIN, TRIES_MAX};
use crate::moment::Moment;
use crate::operator::NARRATOR;
use crate::termination::EVICTION_QUEUE;
use kerf_cloud::CloudError;
use std::sync::Arc;
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
    /// As metrics name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Evictions => "evictions",
            Self::Events => "events",
        }
    }

    pub fn of(ticket: &Ticket) -> Self {
        match ticket.duty {
            NARRATOR => Self::Events,
            EVICTION_QUEUE => Self::Evictions,
            _ => Self::Work,
        }
    }
}

/// Under which term of which lease something was ordered.
#[derive(Debug, Clone)]
pub struct Pass {
    mandate: Arc<Mandate>,
    term: Term,
}

impl Pass {
    /// For what is ordered now.
    pub fn of(mandate: &Arc<Mandate>) -> Self {
        Self { mandate: Arc::clone(mandate), term: mandate.term() }
    }

    /// For whoever asks by hand.
    pub fn free() -> Self {
        Self::of(&Mandate::open())
    }
}

/// One errand on its way.
#[derive(Debug, Clone)]
pub struct Trip {
    pass: Pass,
    way: Way,
    n_tries: usize,
    /// When all of it must have come to an end; known from the first sending on.
    deadline: Option<Moment>,
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Api {
        lane: Lane,
        is_read: bool,
    },
    Cloud {
        within: Duration,
    },
    /// It leaves nothing behind in the world.
    Inside,
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
    pub fn of(ticket: &Ticket, errand: &Errand, pass: Pass) -> Self {
        let way = match errand {
            Errand::Api(call) => Way::Api { lane: Lane::of(ticket), is_read: call.method == "GET" },
            Errand::Cloud(call) if call.is_listening() => Way::Cloud { within: NOTICES_WITHIN },
            Errand::Cloud(_) => Way::Cloud { within: CLOUD_WITHIN },
            Errand::Think(_) => Way::Inside,
        };
        Self { pass, way, n_tries: 0, deadline: None }
    }

    /// A request that nobody ordered as an errand.
    pub fn request(lane: Lane, method: &str) -> Self {
        Self { pass: Pass::free(), way: Way::Api { lane, is_read: method == "GET" }, n_tries: 0, deadline: None }
    }

    /// Where it waits for its turn; none for what waits for nobody.
    pub fn lane(&self) -> Option<Lane> {
        match self.way {
            Way::Api { lane, .. } => Some(lane),
            Way::Cloud { .. } | Way::Inside => None,
        }
    }

    /// It is its turn. Answers by when there must be an answer, or the outcome at once where it may not leave.
    pub fn leaves(&mut self, now: Moment) -> Result<Moment, Outcome> {
        let within = match self.way {
            Way::Api { .. } => ANSWER_WITHIN,
            Way::Cloud { within } => within,
            Way::Inside => return Ok(Moment(i64::MAX)),
        };
        let allowed = self.pass.mandate.check(self.pass.term, now);
        #[cfg(feature = "planted")]
        let allowed = allowed.or_else(|refusal| match crate::planted::has(crate::planted::Bug::UnfencedErrand) {
            true => Ok(()),
            false => Err(refusal),
        });
        if let Err(refusal) = allowed {
            return Err(match self.way {
                Way::Cloud { .. } => Outcome::Cloud(Err(CloudError::NotAsked { why: refusal.to_string().into() })),
                Way::Api { .. } | Way::Inside => Outcome::Api(Err(ApiFailure::not_sent(refusal.to_string()))),
            });
        }
        self.n_tries += 1;
        Ok(*self.deadline.get_or_insert(now.after(within)))
    }

    /// When a refused request waits for its turn again; None when the answer stands.
    pub fn judge(&self, now: Moment, refused: &Refused) -> Option<Moment> {
        let Way::Api { lane, is_read } = self.way else { return None };
        let may_come_back = match (refused.failure.status, refused.retry_after) {
            (429 | 503, Some(_)) => true,
            (429 | 500 | 503 | 504, None) => is_read,
            _ => false,
        };
        if lane == Lane::Evictions || !may_come_back || self.n_tries >= TRIES_MAX {
            return None;
        }
        let doubled = u32::try_from(self.n_tries.saturating_sub(1)).unwrap_or(u32::MAX);
        let wait = refused.retry_after.unwrap_or(AGAIN_FIRST.saturating_mul(2_u32.saturating_pow(doubled)));
        let then = now.after(wait.max(AGAIN_FIRST));
        self.deadline.is_some_and(|deadline| then < deadline).then_some(then)
    }

    /// There was no answer in time.
    pub fn lost(&self) -> Outcome {
        match self.way {
            Way::Cloud { within } => {
                let message =
                    format!("no answer of the cloud within {} s; what was asked may be done", within.as_secs());
                Outcome::Cloud(Err(CloudError::Other { message: message.into() }))
            }
            Way::Api { .. } | Way::Inside => Outcome::Api(Err(unanswered())),
        }
    }
}

/// There was no answer in time. Whether the request had its effect, nobody knows.
pub fn unanswered() -> ApiFailure {
    ApiFailure { status: 0, reason: String::new(), message: format!("no answer within {} s", ANSWER_WITHIN.as_secs()) }
}

/// Why a request was not answered as hoped, told with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The kind is not served.
    Missing,
    /// We may not.
    Forbidden {
        message: String,
    },
    /// The server does not know us.
    Unauthorized {
        message: String,
    },
    /// What we have seen is too old to go on from there.
    Expired,
    Unreachable {
        message: String,
    },
    Other {
        status: u16,
        message: String,
    },
}

impl Trouble {
    pub fn of(failure: ApiFailure) -> Self {
        let message = failure.message;
        match failure.status {
            0 => Self::Unreachable { message },
            401 => Self::Unauthorized { message },
            403 => Self::Forbidden { message },
            404 => Self::Missing,
            410 => Self::Expired,
            status => Self::Other { status, message },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errand::{ApiCall, CloudCall};
    use crate::lease::{Do, Lease, News, Timings};
    use kerf_model::UnixMillis;
    use serde_json::Value;

    fn refused(status: u16, retry_after: Option<u64>) -> Refused {
        let failure = ApiFailure { status, reason: String::new(), message: String::new() };
        Refused { failure, retry_after: retry_after.map(Duration::from_secs) }
    }

    /// Milliseconds after which each answer leads to another sending, until one stands.
    fn waits(lane: Lane, method: &str, answer: &Refused) -> Vec<i64> {
        let mut trip = Trip::request(lane, method);
        let (mut now, mut waits) = (Moment(1_000), Vec::new());
        loop {
            assert_eq!(trip.leaves(now).unwrap(), Moment(61_000), "one deadline for all of it");
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

    #[test]
    fn what_was_ordered_under_a_lost_lease_is_not_sent_and_says_so() {
        const WALL: UnixMillis = UnixMillis(0);
        let mut lease = Lease::new("ns", "l", "me", Timings::default());
        let missing = ApiFailure { status: 404, reason: String::new(), message: String::new() };
        lease.step(Moment(0), WALL, News::None);
        let Do::Ask(post) = lease.step(Moment(0), WALL, News::Answer(Err(missing))) else { panic!() };
        assert_eq!(lease.step(Moment(0), WALL, News::Answer(Ok(post.body))), Do::Leads);

        let ticket = Ticket { duty: "d", key: "k".into() };
        let call = ApiCall { method: "DELETE", path: "/x".to_owned(), content_type: "", body: Value::Null };
        let trip = |errand: &Errand| Trip::of(&ticket, errand, Pass::of(lease.mandate()));
        let (mut request, mut launch) = (trip(&Errand::Api(call)), trip(&Errand::Cloud(CloudCall::List)));
        assert_eq!(request.leaves(Moment(9_999)).unwrap(), Moment(69_999));
        assert!(request.judge(Moment(9_999), &refused(429, Some(1))).is_some());
        // While it waited for its next turn, the lease could not be renewed.
        let Err(Outcome::Api(Err(failure))) = request.leaves(Moment(10_999)) else { panic!() };
        assert!(failure.is_not_sent() && failure.status == 0, "{failure:?}");
        let Err(Outcome::Cloud(Err(error))) = launch.leaves(Moment(10_000)) else { panic!() };
        assert!(matches!(error, CloudError::NotAsked { .. }), "{error}");
    }

    #[test]
    fn a_lost_answer_is_no_refusal() {
        let ticket = Ticket { duty: "d", key: "k".into() };
        let mut trip = Trip::of(&ticket, &Errand::Cloud(CloudCall::List), Pass::free());
        assert_eq!(trip.leaves(Moment(0)).unwrap(), Moment(0).after(CLOUD_WITHIN));
        let Outcome::Cloud(Err(error)) = trip.lost() else { panic!() };
        assert!(error.to_string().contains("may be done"), "{error}");
        let Outcome::Api(Err(failure)) = Trip::request(Lane::Work, "POST").lost() else { panic!() };
        assert!(failure.status == 0 && !failure.is_not_sent());
    }
}
