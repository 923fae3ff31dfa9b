//! Ends claims for causes outside the cluster: by when it must be over is written first, then the deletion.
//!
//! ```text
//! ask(claim, End) ─▶ deadline on the claim, if there is an earlier one ─▶ delete, unless it goes already ─▶ ended
//! ```
//!
//! Draining and ending the machine is for those who do that for every claim that goes.

use crate::desk::Desk;
use crate::errand::{ApiCall, Outcome};
use crate::events::{About, Event, timestamp};
use crate::lifecycle::removal;
use crate::queue::Queue;
use crate::resource::{NODE_CLAIMS, NODES};
use crate::write;
use kerf_api::NodeClaim;
use kerf_api::labels::TERMINATION_TIMESTAMP;
use kerf_model::{Text, UnixMillis};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

const BACKOFF_MS: (i64, i64) = (200, 10_000);
/// What our errands for claims begin with.
const PREFIX: &str = "end/";

/// Claims on their way out. All of it may be forgotten: whoever asked asks again.
#[derive(Debug)]
pub(crate) struct Endings {
    queue: Queue<Text>,
    wanted: BTreeMap<Text, Wanted>,
    /// Whose deletion is stored, or who is gone, since the last time.
    settled: Vec<Text>,
}

/// Why a claim ends, and by when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    /// As metrics name it.
    pub(crate) reason: Text,
    pub(crate) by: By,
}

/// How long pods have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// The time that they need, or that the claim gives them.
    Leave,
    /// The machine is gone then, whatever they say.
    Time(UnixMillis),
    /// Now: nobody knows whether the machine still does anything.
    Force,
}

impl By {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Force, _) | (_, Self::Force) => Self::Force,
            (Self::Time(one), Self::Time(other)) => Self::Time(one.min(other)),
            (Self::Time(at), Self::Leave) | (Self::Leave, Self::Time(at)) => Self::Time(at),
            (Self::Leave, Self::Leave) => Self::Leave,
        }
    }
}

#[derive(Debug)]
struct Wanted {
    uid: Option<String>,
    end: End,
    /// The deadline that the API server was last asked to store, and whether it has: a claim that cannot be read does not show it.
    deadline: Option<UnixMillis>,
    is_deadline_stored: bool,
    /// The claim as it was when its deletion was asked for.
    leaving: Option<Arc<NodeClaim>>,
}

impl Default for Endings {
    fn default() -> Self {
        Self { queue: Queue::new(BACKOFF_MS.0, BACKOFF_MS.1), wanted: BTreeMap::new(), settled: Vec::new() }
    }
}

impl Endings {
    /// Asks for the end of a claim; asked twice, the earlier deadline counts.
    pub(crate) fn ask(&mut self, name: &Text, claim: &NodeClaim, end: End) {
        let wanted = self.wanted.entry(name.clone()).or_insert_with(|| Wanted {
            uid: claim.metadata.uid.clone(),
            end: end.clone(),
            deadline: None,
            is_deadline_stored: false,
            leaving: None,
        });
        wanted.end.by = wanted.end.by.and(end.by);
        self.queue.add(name.clone());
    }

    /// Takes the next step of each claim that is due. Answers those for whom nothing is left to do, and when to look again.
    pub(crate) fn work(&mut self, controller: &'static str, desk: &mut Desk<'_>) -> (Vec<Text>, Option<UnixMillis>) {
        for name in self.queue.take_due(desk.now) {
            let Some(wanted) = self.wanted.get_mut(&name) else {
                continue;
            };
            let key: Text = format!("{PREFIX}{name}").into();
            if desk.is_busy(&key) {
                continue;
            }
            let claim = desk.world.claims.get(&name).filter(|claim| claim.metadata.uid == wanted.uid);
            let stored = wanted.deadline.filter(|_| wanted.is_deadline_stored);
            match claim.and_then(|claim| next(&name, claim, &wanted.end, stored, desk.now)) {
                Some((call, deadline)) => {
                    wanted.leaving = claim.filter(|_| deadline.is_none()).cloned();
                    if deadline.is_some() {
                        (wanted.deadline, wanted.is_deadline_stored) = (deadline, false);
                    }
                    tracing::debug!(controller, NodeClaim = &*name, request = call.method, "ending a nodeclaim");
                    desk.call(&key, call);
                }
                None => self.settle(name),
            }
        }
        (std::mem::take(&mut self.settled), self.queue.next())
    }

    /// Whether an errand was one of these; then it has been heard.
    pub(crate) fn done(&mut self, controller: &'static str, key: &str, outcome: &Outcome, desk: &mut Desk<'_>) -> bool {
        let Some(name) = key.strip_prefix(PREFIX).map(Text::from) else {
            return false;
        };
        let Some(wanted) = self.wanted.get_mut(&name) else {
            return true;
        };
        match outcome {
            Outcome::Api(Ok(_)) => {
                let reason = wanted.end.reason.clone();
                match wanted.leaving.take() {
                    // The deletion is stored, though the watch may show it later.
                    Some(claim) => {
                        removal::count(desk.metrics, &claim, &reason);
                        removal::count_pods(desk.metrics, &claim, &reason, desk.world);
                        tell(&claim, desk);
                        tracing::info!(
                            controller,
                            NodeClaim = &*name,
                            reason = &*reason,
                            "deleted an interrupted nodeclaim"
                        );
                        self.settle(name);
                    }
                    None => {
                        wanted.is_deadline_stored = true;
                        self.queue.succeeded(&name);
                        self.queue.add(name);
                    }
                }
            }
            Outcome::Api(Err(failure)) if failure.is_not_found() => self.settle(name),
            Outcome::Api(Err(failure)) => {
                let wait_ms = self.queue.retry(name.clone(), desk.now);
                tracing::error!(controller, NodeClaim = &*name, error = %failure, wait_ms, "ending a nodeclaim failed");
            }
            Outcome::Cloud(_) | Outcome::Thought { .. } => {}
        }
        true
    }

    fn settle(&mut self, name: Text) {
        self.wanted.remove(&name);
        self.queue.forget(&name);
        self.settled.push(name);
    }
}

/// The next request for a claim, with the deadline that it stores; None when there is nothing left to ask for. `stored` is the deadline that
/// is known to be there, whatever the claim shows.
fn next(
    name: &str,
    claim: &NodeClaim,
    end: &End,
    stored: Option<UnixMillis>,
    now: UnixMillis,
) -> Option<(ApiCall, Option<UnixMillis>)> {
    let is_earlier = |deadline: &UnixMillis| stored.is_none_or(|stored| *deadline < stored);
    if let Some(deadline) = deadline(claim, end.by, now).filter(is_earlier) {
        let patch = json!({"metadata": {"annotations": {TERMINATION_TIMESTAMP: timestamp(deadline)}}});
        return Some((write::patch(NODE_CLAIMS, "", name, patch), Some(deadline)));
    }
    let is_going = claim.metadata.deletion_timestamp.is_some();
    (!is_going).then(|| (write::delete(NODE_CLAIMS, "", name, claim.metadata.uid.as_deref()), None))
}

/// The deadline to write: that of the notice, or the claim's own where that is earlier. None when an earlier one, or this one, is
/// there, or when the notice's has passed: then nothing can be saved by haste.
fn deadline(claim: &NodeClaim, by: By, now: UnixMillis) -> Option<UnixMillis> {
    let by = match by {
        By::Leave => return None,
        By::Time(at) if at < now => return None,
        By::Time(at) => at,
        By::Force => now,
    };
    let annotations = claim.metadata.annotations.as_ref();
    let written = annotations.and_then(|all| all.get(TERMINATION_TIMESTAMP));
    if let Some(written) = written.and_then(|text| text.parse::<jiff::Timestamp>().ok()) {
        // Deadlines are written in whole seconds.
        return (by.0.div_euclid(1_000) < written.as_second()).then_some(by);
    }
    let period = claim.spec.termination_grace_period.as_ref().and_then(|period| period.parse().ok());
    let since = claim.metadata.deletion_timestamp.as_ref().map_or(now.0, |at| at.0.as_millisecond());
    let own = period.map(|period| since.saturating_add(i64::try_from(period.as_millis()).unwrap_or(i64::MAX)));
    Some(UnixMillis(own.map_or(by.0, |own| own.min(by.0))))
}

fn tell(claim: &Arc<NodeClaim>, desk: &mut Desk<'_>) {
    let node = desk.world.node_of_claim(claim).map(|node| About::of(NODES, &node.metadata));
    for about in [About::of(NODE_CLAIMS, &claim.metadata)].into_iter().chain(node) {
        let words = "Interruption triggered termination: the node is drained and its pods move";
        desk.event(Event::warning(about, "TerminatingOnInterruption", words));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::time;
    use crate::lifecycle::testing::claim;
    use kerf_api::DurationText;

    const NOW: UnixMillis = UnixMillis(1_000_000);

    fn end(by_ms: Option<i64>) -> End {
        End { reason: "spot_interrupted".into(), by: by_ms.map_or(By::Leave, |at| By::Time(UnixMillis(at))) }
    }

    fn asked(claim: &NodeClaim, end: &End) -> &'static str {
        asked_after(claim, end, None)
    }

    fn asked_after(claim: &NodeClaim, end: &End, stored: Option<i64>) -> &'static str {
        next("c", claim, end, stored.map(UnixMillis), NOW).map_or("nothing", |(call, _)| call.method)
    }

    #[test]
    fn the_deadline_is_written_before_the_deletion_and_each_only_once() {
        let mut it = claim("c");
        assert_eq!(asked(&it, &end(None)), "DELETE");
        assert_eq!(asked(&it, &end(Some(NOW.0 + 120_500))), "PATCH");
        it.metadata.annotations =
            Some([(TERMINATION_TIMESTAMP.to_owned(), timestamp(UnixMillis(NOW.0 + 120_500)))].into());
        assert_eq!(asked(&it, &end(Some(NOW.0 + 120_500))), "DELETE");
        it.metadata.deletion_timestamp = Some(time(NOW));
        assert_eq!(asked(&it, &end(Some(NOW.0 + 120_500))), "nothing");
        assert_eq!(asked(&it, &end(Some(NOW.0 + 60_000))), "PATCH", "an earlier deadline counts even then");
        assert_eq!(asked(&it, &end(Some(NOW.0 + 500_000))), "nothing", "a later one does not");
    }

    #[test]
    fn a_deadline_that_was_stored_is_not_asked_for_again_though_the_claim_cannot_be_read_and_does_not_show_it() {
        let it = claim("c");
        let forced = End { reason: "x".into(), by: By::Force };
        for end in [end(Some(NOW.0 + 120_000)), forced] {
            let deadline = deadline(&it, end.by, NOW).unwrap().0;
            assert_eq!(asked(&it, &end), "PATCH");
            assert_eq!(asked_after(&it, &end, Some(deadline)), "DELETE");
            assert_eq!(asked_after(&it, &end, Some(deadline + 1)), "PATCH", "an earlier one is");
        }
    }

    #[test]
    fn a_deadline_that_has_passed_hastens_nothing() {
        assert_eq!(asked(&claim("c"), &end(Some(NOW.0 - 1))), "DELETE");
        let forced = End { reason: "x".into(), by: By::Force };
        assert_eq!(asked(&claim("c"), &forced), "PATCH", "by force means now, whenever that is");
    }

    #[test]
    fn the_claims_own_grace_period_counts_where_it_is_shorter() {
        let mut it = claim("c");
        let by = By::Time(UnixMillis(NOW.0 + 120_000));
        it.spec.termination_grace_period = Some(DurationText::new("30s"));
        assert_eq!(deadline(&it, by, NOW), Some(UnixMillis(NOW.0 + 30_000)));
        it.spec.termination_grace_period = Some(DurationText::new("1h"));
        assert_eq!(deadline(&it, by, NOW), Some(UnixMillis(NOW.0 + 120_000)));
    }
}
