//! Claims that come to nothing: how long they may take.

use super::removal::GiveUp;
use super::{LAUNCHED, REGISTERED};
use crate::conditions::Conditions;
use kerf_model::UnixMillis;

/// A cloud that has not answered by then will hardly do so; the pods have waited long enough for another choice.
pub(crate) const LAUNCH_MS: i64 = 5 * 60_000;
/// A machine boots and joins within minutes; after this its configuration or its network is wrong.
pub(crate) const REGISTRATION_MS: i64 = 15 * 60_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    /// It has come through.
    Alive,
    /// It may take until then.
    Until(UnixMillis),
    Late(GiveUp),
}

/// Counts from when each condition took its present status, which at first is when the claim was created: by the API server's clock, which
/// may be another than ours. Whoever saw it come counts from then on.
pub(super) fn judge(conditions: &Conditions, begun: Option<UnixMillis>, now: UnixMillis) -> Judgement {
    if conditions.is_true(REGISTERED) {
        return Judgement::Alive;
    }
    let since = |kind: &str| conditions.since(kind).unwrap_or(now).max(begun.unwrap_or(UnixMillis(i64::MIN)));
    let until = |kind: &str, ms: i64| UnixMillis(since(kind).0.saturating_add(ms));
    let registration = until(REGISTERED, REGISTRATION_MS);
    if conditions.is_true(LAUNCHED) {
        return if now >= registration {
            Judgement::Late(GiveUp::RegistrationTimeout)
        } else {
            Judgement::Until(registration)
        };
    }
    let launch = until(LAUNCHED, LAUNCH_MS);
    if now >= launch { Judgement::Late(GiveUp::LaunchTimeout) } else { Judgement::Until(launch) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::{NODE_CLAIM, Status, time};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    const MINUTE: i64 = 60_000;

    fn fresh() -> Conditions {
        let metadata = ObjectMeta { creation_timestamp: Some(time(UnixMillis(0))), ..ObjectMeta::default() };
        Conditions::of(NODE_CLAIM, &metadata, &[])
    }

    #[test]
    fn a_launch_may_take_five_minutes_from_creation_whatever_is_said_meanwhile() {
        let mut conditions = fresh();
        conditions.set(LAUNCHED, Status::Unknown, "LaunchFailed", "no", UnixMillis(4 * MINUTE));
        assert_eq!(judge(&conditions, None, UnixMillis(5 * MINUTE - 1)), Judgement::Until(UnixMillis(5 * MINUTE)));
        assert_eq!(judge(&conditions, None, UnixMillis(5 * MINUTE)), Judgement::Late(GiveUp::LaunchTimeout));
    }

    #[test]
    fn a_clock_that_is_ahead_of_the_servers_gives_up_no_claim_that_has_just_come() {
        let (conditions, ahead) = (fresh(), UnixMillis(5 * MINUTE));
        let judged = |now: i64| judge(&conditions, Some(ahead), UnixMillis(now));
        assert_eq!(judged(5 * MINUTE), Judgement::Until(UnixMillis(10 * MINUTE)));
        assert_eq!(judged(10 * MINUTE), Judgement::Late(GiveUp::LaunchTimeout));
    }

    #[test]
    fn a_registration_may_take_fifteen_minutes_from_creation() {
        let mut conditions = fresh();
        conditions.set_true(LAUNCHED, UnixMillis(4 * MINUTE));
        conditions.set(REGISTERED, Status::Unknown, "NodeNotFound", "", UnixMillis(4 * MINUTE));
        assert_eq!(judge(&conditions, None, UnixMillis(14 * MINUTE)), Judgement::Until(UnixMillis(15 * MINUTE)));
        assert_eq!(judge(&conditions, None, UnixMillis(15 * MINUTE)), Judgement::Late(GiveUp::RegistrationTimeout));
    }

    #[test]
    fn a_refused_registration_is_given_fifteen_minutes_from_the_refusal() {
        let mut conditions = fresh();
        conditions.set_true(LAUNCHED, UnixMillis(0));
        conditions.set(REGISTERED, Status::False, "MultipleNodesFound", "", UnixMillis(10 * MINUTE));
        assert_eq!(judge(&conditions, None, UnixMillis(20 * MINUTE)), Judgement::Until(UnixMillis(25 * MINUTE)));
    }

    #[test]
    fn a_registered_claim_has_all_the_time_to_initialize() {
        let mut conditions = fresh();
        conditions.set_true(LAUNCHED, UnixMillis(0));
        conditions.set_true(REGISTERED, UnixMillis(0));
        assert_eq!(judge(&conditions, None, UnixMillis(i64::MAX)), Judgement::Alive);
    }
}
