//! The eviction queue: pods that must leave, asked politely within their budgets, and by force when the time is up.
//!
//! ```text
//! whoever drains ─▶ Evictions (on the desk) ─▶ EvictionQueue ─▶ looks at each pod
//!      gone, another of its name, ended, leaving ─▶ forgotten      held by its annotation ─▶ waits for that to end
//!      its deadline is near ─▶ deleted, what is left as grace       else ─▶ evicted; refused ─▶ again, later and later
//! ```
//!
//! However many wait, only some requests are under way at a time; the others keep their order.

use super::drain::{force_from, force_grace_seconds};
use super::hold::tell_hold;
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::{ApiFailure, Outcome};
use crate::events::{About, Event, timestamp};
use crate::metrics::families;
use crate::queue::{Queue, earlier};
use crate::resource::NODES;
use crate::world::{Change, World};
use crate::write;
use kerf_mirror::{Hold, PodState};
use kerf_model::{PodId, Text, UnixMillis};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// As upstream calls it. Its requests have a share of their own: see [`crate::dispatch`].
pub const NAME: &str = "eviction-queue";

/// Enough to keep an API server busy, and few enough that others get through.
const IN_FLIGHT_MAX: usize = 200;

/// The contract's waits between two attempts on one pod.
const BACKOFF_MS: (i64, i64) = (100, 10_000);

/// After the server said yes, the pod should be seen leaving at once. If it is not, something is wrong, and we ask again.
const SEEN_WITHIN_MS: i64 = 10_000;

/// After the server said that there is no such pod (any more), as above; the next look of a drain would be this soon.
const GONE_WITHIN_MS: i64 = 1_000;

/// A pod that a budget holds is told so again after this long. Budgets may hold for days, and many pods at once.
const HELD_QUIET_MS: i64 = 600_000;

/// Why pods leave when no disruption gave a reason.
const FORCEFUL: &str = "Forceful Termination";

/// What drains ask for; the eviction queue takes it from here. It stands after them in the order of duties.
#[derive(Debug, Default)]
pub struct Evictions(Vec<(Arc<PodState>, Until)>);

impl Evictions {
    /// Asks for a pod to leave its node. Asking again changes nothing, unless the time is shorter now.
    pub fn ask(&mut self, pod: &Arc<PodState>, until: Until) {
        self.0.push((pod.clone(), until));
    }
}

/// How long a pod is asked politely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Until it goes; with a time, it is deleted so that it is gone by then.
    Forced(Option<UnixMillis>),
    /// Until then, and after that it may stay: it is never deleted by force.
    GivenUp(UnixMillis),
}

impl Until {
    /// The stricter of two wishes for one pod.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Forced(one), Self::Forced(other)) => Self::Forced(earlier(one, other)),
            (Self::GivenUp(one), Self::GivenUp(other)) => Self::GivenUp(one.min(other)),
            (Self::Forced(at), Self::GivenUp(_)) | (Self::GivenUp(_), Self::Forced(at)) => Self::Forced(at),
        }
    }
}

/// Evicts. Keys are the uids of pods.
#[derive(Debug)]
pub struct EvictionQueue {
    entries: BTreeMap<Text, Entry>,
    queue: Queue<Text>,
    /// Due, in order, as soon as another request has ended.
    ready: VecDeque<Text>,
    n_in_flight: usize,
}

#[derive(Debug)]
struct Entry {
    pod: PodId,
    until: Until,
    is_ready: bool,
    /// Something changed while a request was under way.
    is_news: bool,
    under_way: Option<Attempt>,
}

#[derive(Debug)]
enum Attempt {
    Evict { node: Text, reason: Text },
    Delete { grace_seconds: i64, deadline: UnixMillis },
}

/// What to do about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Move {
    Forget,
    Delete {
        grace_seconds: i64,
        deadline: UnixMillis,
    },
    /// Nothing until then, or until the pod changes.
    Wait(Option<UnixMillis>),
    Evict,
}

impl Default for EvictionQueue {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            queue: Queue::new(BACKOFF_MS.0, BACKOFF_MS.1),
            ready: VecDeque::new(),
            n_in_flight: 0,
        }
    }
}

impl Duty for EvictionQueue {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, change: &Change, _: &World) {
        let Change::Pod { before: Some(before), after, .. } = change else {
            return;
        };
        // A pod may say much about itself while it waits; only these words end the wait.
        let matters = after.as_ref().is_none_or(|after| {
            after.uid != before.uid
                || after.hold != before.hold
                || after.started != before.started
                || after.deleting_since != before.deleting_since
                || after.is_terminal() != before.is_terminal()
        });
        if matters && self.entries.contains_key(&before.uid) {
            self.queue.add(before.uid.clone());
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        for (pod, until) in std::mem::take(&mut desk.evictions.0) {
            self.take_in(&pod, until);
        }
        for uid in self.queue.take_due(desk.now) {
            if let Some(entry) = self.entries.get_mut(&uid)
                && !entry.is_ready
            {
                entry.is_ready = true;
                self.ready.push_back(uid);
            }
        }
        while self.n_in_flight < IN_FLIGHT_MAX
            && let Some(uid) = self.ready.pop_front()
        {
            self.look_at(&uid, desk);
        }
        self.queue.next()
    }

    fn done(&mut self, uid: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        self.n_in_flight -= 1;
        let Outcome::Api(result) = outcome else {
            return;
        };
        let Some(entry) = self.entries.get_mut(uid) else {
            return;
        };
        let Some(attempt) = entry.under_way.take() else {
            return;
        };
        let pod = entry.pod.clone();
        if std::mem::take(&mut entry.is_news) {
            self.queue.add(uid.clone());
        }
        match attempt {
            Attempt::Evict { node, reason } => self.evicted(uid, &pod, &node, &reason, result.map(drop), desk),
            Attempt::Delete { grace_seconds, deadline } => {
                self.deleted(uid, &pod, grace_seconds, deadline, result.map(drop), desk);
            }
        }
    }
}

impl EvictionQueue {
    fn take_in(&mut self, pod: &PodState, until: Until) {
        match self.entries.get_mut(&pod.uid) {
            Some(entry) => {
                let stricter = entry.until.and(until);
                if stricter != entry.until {
                    entry.until = stricter;
                    self.queue.add(pod.uid.clone());
                }
            }
            None => {
                let entry = Entry { pod: pod.id.clone(), until, is_ready: false, is_news: false, under_way: None };
                self.entries.insert(pod.uid.clone(), entry);
                self.queue.add(pod.uid.clone());
            }
        }
    }

    fn look_at(&mut self, uid: &Text, desk: &mut Desk<'_>) {
        let Some(entry) = self.entries.get_mut(uid) else {
            return;
        };
        entry.is_ready = false;
        if entry.under_way.is_some() {
            entry.is_news = true;
            return;
        }
        let pod = desk.world.pod(&entry.pod).filter(|pod| pod.uid == *uid).cloned();
        let next = decide(pod.as_deref(), entry.until, desk.now);
        let Some(pod) = pod else {
            self.forget(uid);
            return;
        };
        if !matches!(next, Move::Forget | Move::Delete { .. }) {
            tell_hold(&pod, desk);
        }
        match next {
            Move::Forget => self.forget(uid),
            Move::Wait(until) => {
                if let Some(until) = until {
                    self.queue.add_at(uid.clone(), until);
                }
            }
            Move::Delete { grace_seconds, deadline } => {
                entry.under_way = Some(Attempt::Delete { grace_seconds, deadline });
                self.n_in_flight += 1;
                desk.call(uid, write::delete_pod(&pod, grace_seconds));
            }
            Move::Evict => {
                let reason = reason_of(&pod.node, desk.world);
                entry.under_way = Some(Attempt::Evict { node: pod.node.clone(), reason });
                self.n_in_flight += 1;
                desk.call(uid, write::evict(&pod));
            }
        }
    }

    fn evicted(
        &mut self,
        uid: &Text,
        pod: &PodId,
        node: &Text,
        reason: &Text,
        result: Result<(), ApiFailure>,
        desk: &mut Desk<'_>,
    ) {
        let code = match &result {
            Ok(()) => "200".to_owned(),
            Err(ApiFailure { status: 0, .. }) => "unknown".to_owned(),
            Err(failure) => failure.status.to_string(),
        };
        desk.metrics.add(&families::PODS_EVICTION_REQUESTS_TOTAL, &[&code], 1.0);
        let failure = match result {
            Ok(()) => {
                let event = Event::normal(About::pod(pod, uid), "Evicted", format!("Evicted pod: {reason}"));
                desk.event(event.same_by([pod.namespace.clone(), pod.name.clone()]));
                desk.metrics.add(&families::PODS_DRAINED_TOTAL, &[reason], 1.0);
                tracing::debug!(controller = "eviction-queue", Pod = %pod, Node = %node, "evicted pod");
                self.queue.succeeded(uid);
                self.queue.add_at(uid.clone(), UnixMillis(desk.now.0 + SEEN_WITHIN_MS));
                return;
            }
            Err(failure) => failure,
        };
        if failure.status == 404 || failure.status == 409 {
            // It is gone, or another has its name: the watch will tell.
            self.queue.add_at(uid.clone(), UnixMillis(desk.now.0 + GONE_WITHIN_MS));
            return;
        }
        if let Some(why) = budget_refusal(&failure) {
            let Some(node) = desk.world.nodes.get(node) else {
                self.forget(uid);
                return;
            };
            // Whoever runs the pod may not look at nodes. The server's own words name the budget.
            let about = About::of(NODES, &node.metadata);
            let held = format!("Cannot leave node {}, which is to go: {}", about.name, failure.message);
            desk.event(Event::warning(About::pod(pod, uid), "EvictionBlocked", held).quiet_for(HELD_QUIET_MS));
            // Apart from "N pods are waiting", which every drain says first: this one says what to do something about.
            let same = [about.name.clone(), why.into()];
            let message = format!("Failed to drain node, {why} (Pod={pod})");
            desk.event(Event::warning(about, "FailedDraining", message).same_by(same));
        } else {
            tracing::error!(controller = "eviction-queue", Pod = %pod, Node = %node, error = %failure, "failed to evict pod");
        }
        self.queue.retry(uid.clone(), desk.now);
    }

    fn deleted(
        &mut self,
        uid: &Text,
        pod: &PodId,
        grace_seconds: i64,
        deadline: UnixMillis,
        result: Result<(), ApiFailure>,
        desk: &mut Desk<'_>,
    ) {
        match result {
            Ok(()) => {
                let deadline = timestamp(deadline);
                let message = format!(
                    "Deleted pod with {grace_seconds} s of grace: its node must be gone by {deadline}; \
                     disruption budgets and do-not-disrupt hold it no longer"
                );
                let event = Event::normal(About::pod(pod, uid), "Disrupted", message);
                desk.event(event.same_by([pod.namespace.clone(), pod.name.clone()]));
                tracing::info!(
                    controller = "eviction-queue", Pod = %pod, "grace-period-seconds" = grace_seconds, deadline,
                    "deleted pod by force"
                );
                self.queue.succeeded(uid);
                self.queue.add_at(uid.clone(), UnixMillis(desk.now.0 + SEEN_WITHIN_MS));
            }
            Err(failure) if failure.status == 404 || failure.status == 409 => {
                self.queue.add_at(uid.clone(), UnixMillis(desk.now.0 + GONE_WITHIN_MS));
            }
            Err(failure) => {
                tracing::error!(controller = "eviction-queue", Pod = %pod, error = %failure, "failed to delete pod");
                self.queue.retry(uid.clone(), desk.now);
            }
        }
    }

    fn forget(&mut self, uid: &Text) {
        self.entries.remove(uid);
        self.queue.forget(uid);
    }
}

fn decide(pod: Option<&PodState>, until: Until, now: UnixMillis) -> Move {
    let Some(pod) = pod else {
        return Move::Forget;
    };
    let (deadline, gives_up_at) = match until {
        Until::Forced(deadline) => (deadline, None),
        Until::GivenUp(at) => (None, Some(at)),
    };
    if gives_up_at.is_some_and(|at| at <= now) {
        return Move::Forget;
    }
    if let Some(deadline) = deadline
        && !pod.is_terminal()
        && let Some(grace_seconds) = force_grace_seconds(pod, deadline, now)
    {
        return Move::Delete { grace_seconds, deadline };
    }
    if !pod.is_active() {
        return Move::Forget;
    }
    let held_until = match pod.hold(now) {
        Hold::None | Hold::Over | Hold::Invalid(_) => return Move::Evict,
        Hold::Until(until) => Some(until),
        Hold::ForEver | Hold::NotStarted => None,
    };
    let forced_at = deadline.and_then(|deadline| force_from(pod, deadline));
    Move::Wait(earlier(held_until, earlier(forced_at, gives_up_at)))
}

/// A budget's no, in the words of the event.
fn budget_refusal(failure: &ApiFailure) -> Option<&'static str> {
    if failure.status == 429 {
        Some("evicting pod violates a PDB")
    } else if failure.message.contains("more than one PodDisruptionBudget") {
        Some("eviction does not support multiple PDBs")
    } else {
        None
    }
}

/// Why a node's pods must leave, as its claim says.
fn reason_of(node: &str, world: &World) -> Text {
    let claim = world.nodes.get(node).and_then(|node| world.claim_of_node(node));
    let conditions = claim.and_then(|claim| claim.status.as_ref()).map(|status| status.conditions.as_slice());
    let condition = conditions
        .unwrap_or_default()
        .iter()
        .find(|condition| condition.type_ == "DisruptionReason" && condition.status == "True");
    condition.map_or(FORCEFUL, |condition| condition.reason.as_str()).into()
}

#[cfg(test)]
mod tests {
    use super::super::drain::tests::{SECOND, pod};
    use super::*;

    const T: UnixMillis = UnixMillis(60 * SECOND);

    #[test]
    fn the_stricter_wish_counts() {
        let (sooner, later) = (UnixMillis(1), UnixMillis(2));
        for (one, other, both) in [
            (Until::Forced(None), Until::Forced(None), Until::Forced(None)),
            (Until::Forced(None), Until::Forced(Some(later)), Until::Forced(Some(later))),
            (Until::Forced(Some(sooner)), Until::Forced(Some(later)), Until::Forced(Some(sooner))),
            (Until::Forced(None), Until::GivenUp(sooner), Until::Forced(None)),
            (Until::Forced(Some(later)), Until::GivenUp(sooner), Until::Forced(Some(later))),
            (Until::GivenUp(later), Until::GivenUp(sooner), Until::GivenUp(sooner)),
        ] {
            assert_eq!(one.and(other), both);
            assert_eq!(other.and(one), both);
        }
    }

    #[test]
    fn each_pod_gets_what_its_state_asks_for() {
        let forced = Until::Forced(Some(T));
        for (text, until, now, expected) in [
            ("a", Until::Forced(None), 0, Move::Evict),
            ("a ended", forced, 70, Move::Forget),
            ("a leaves=30", Until::Forced(None), 0, Move::Forget),
            ("a hold=true", Until::Forced(None), 0, Move::Wait(None)),
            ("a hold=true grace=30", forced, 0, Move::Wait(Some(UnixMillis(30_001)))),
            ("a hold=true grace=30", forced, 31, Move::Delete { grace_seconds: 29, deadline: T }),
            ("a hold=5s started=10 grace=30", forced, 12, Move::Wait(Some(UnixMillis(15 * SECOND)))),
            ("a hold=5s started=10", Until::Forced(None), 15, Move::Evict),
            ("a hold=nonsense", Until::Forced(None), 15, Move::Evict),
            ("a grace=90 leaves=90", forced, 0, Move::Delete { grace_seconds: 60, deadline: T }),
            ("a grace=90", Until::GivenUp(T), 59, Move::Evict),
            ("a grace=90 hold=true", Until::GivenUp(T), 59, Move::Wait(Some(T))),
            ("a grace=90", Until::GivenUp(T), 60, Move::Forget),
        ] {
            assert_eq!(decide(Some(&pod(text)), until, UnixMillis(now * SECOND)), expected, "{text} at {now}");
        }
        assert_eq!(decide(None, forced, T), Move::Forget);
    }

    #[test]
    fn a_budgets_no_is_told_from_other_failures() {
        let failure = |status, message: &str| ApiFailure { status, reason: String::new(), message: message.to_owned() };
        assert!(budget_refusal(&failure(429, "Cannot evict pod")).unwrap().contains("violates a PDB"));
        let several =
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        assert!(budget_refusal(&failure(500, several)).unwrap().contains("multiple PDBs"));
        assert_eq!(budget_refusal(&failure(500, "etcd is away")), None);
    }
}
