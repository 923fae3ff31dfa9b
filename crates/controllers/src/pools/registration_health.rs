//! `nodepool.registrationhealth`: whether nodes of a pool have come up lately, for people to see.
//!
//! ```text
//! claim registers ────────────▶ success ─┐
//! claim given up by a timeout ─▶ failure ─┴─▶ the last four of the pool ─▶ NodeRegistrationHealthy
//! ```
//!
//! What became of a claim is read off the claim: it was registered, or it was deleted at an age at which nobody waits any longer. A
//! pool or class that changed starts afresh. After a restart the condition itself stands in for the memory.

use super::{class_of, conditions_of, is_served, mark_pools, new_queue, patch_conditions, settle};
use crate::conditions::{Conditions, NODE_CLAIM, Status};
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::lifecycle::liveness::{LAUNCH_MS, REGISTRATION_MS};
use crate::queue::Queue;
use crate::world::{Change, World};
use kerf_api::labels::NODE_POOL;
use kerf_api::{NodeClaim, NodePool};
use kerf_model::{Text, UnixMillis};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

const NAME: &str = "nodepool.registrationhealth";
const HEALTHY: &str = "NodeRegistrationHealthy";
/// How many results are remembered.
const REMEMBERED: usize = 4;
/// Results that wait for their pool to be looked at; of more, the oldest say nothing any more.
const NEWS_MAX: usize = 64;
/// So many failures among them are too many.
const FAILURES_MAX: usize = 2;

pub struct RegistrationHealth {
    queue: Queue<Text>,
    /// By the uid of the pool: one that was made anew under an old name has no past.
    histories: BTreeMap<Text, History>,
}

/// What became of the last nodes of a pool.
#[derive(Debug, Default)]
struct History {
    results: VecDeque<bool>,
    /// What the condition should say since the last result; None: what it says.
    verdict: Option<Verdict>,
    /// Results that the condition has not been asked about yet.
    news: VecDeque<Fate>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Verdict {
    status: Status,
    reason: String,
    message: String,
}

/// How a claim ended its youth.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    Registered,
    /// With the words of the condition that is to blame.
    GivenUp {
        reason: String,
        message: String,
    },
}

impl Default for RegistrationHealth {
    fn default() -> Self {
        Self { queue: new_queue(), histories: BTreeMap::new() }
    }
}

impl Duty for RegistrationHealth {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, change: &Change, world: &World) {
        mark_pools(&mut self.queue, change, world);
        match change {
            Change::Pool { before: Some(pool), after: None, .. } => {
                self.histories.remove(pool.metadata.uid.as_deref().unwrap_or_default());
            }
            Change::Claim { before: Some(before), after: Some(after), .. } => {
                let is_there = |(name, uid): &(Text, Text)| {
                    world.pools.get(name).is_some_and(|pool| pool.metadata.uid.as_deref() == Some(&**uid))
                };
                if let Some(fate) = fate(before, after)
                    && let Some((name, uid)) = owner(after).filter(is_there)
                {
                    self.histories.entry(uid).or_default().tell(fate);
                    self.queue.add(name);
                }
            }
            _ => {}
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !desk.world.is_synced() {
            return None;
        }
        for name in self.queue.take_due(desk.now) {
            if let Some(pool) = desk.world.pools.get(&name).cloned()
                && is_served(&**desk.cloud, &pool)
                && !desk.is_busy(&name)
            {
                let class = desk.world.classes.get(&class_of(&pool));
                let class_generation = class.map(|class| class.metadata.generation.unwrap_or(0));
                let uid: Text = pool.metadata.uid.as_deref().unwrap_or_default().into();
                let history = self.histories.entry(uid).or_default();
                if let Some((conditions, more)) = judge(history, &pool, class_generation, desk.now) {
                    patch_conditions(desk, &name, &pool, &conditions, more);
                }
            }
        }
        self.queue.next()
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        settle(&mut self.queue, key, &outcome, NAME, desk.now);
    }
}

/// What to write on a pool; None when it says so already.
fn judge(
    history: &mut History,
    pool: &NodePool,
    class_generation: Option<i64>,
    now: UnixMillis,
) -> Option<(Conditions, Value)> {
    let mut conditions = conditions_of(pool);
    let status = pool.status.clone().unwrap_or_default();
    let stored = conditions.get(HEALTHY).cloned();
    let is_stale = stored.as_ref().is_none_or(|stored| stored.observed_generation != pool.metadata.generation)
        || class_generation.is_some_and(|generation| status.node_class_observed_generation != Some(generation));
    if is_stale {
        history.results.clear();
        history.verdict = None;
        conditions.set(HEALTHY, Status::Unknown, "AwaitingReconciliation", "object is awaiting reconciliation", now);
    } else if history.results.is_empty() {
        match stored.as_ref().map(|stored| stored.status.as_str()) {
            Some("True") => history.results.push_back(true),
            Some("False") => history.results.extend([false, false]),
            _ => {}
        }
    }
    for fate in std::mem::take(&mut history.news) {
        history.take(fate);
    }
    if let Some(Verdict { status, reason, message }) = &history.verdict {
        conditions.set(HEALTHY, *status, reason, message, now);
    }
    let observed = class_generation.or(status.node_class_observed_generation);
    let is_changed = conditions.is_changed() || observed != status.node_class_observed_generation;
    let more = observed.map_or(Value::Null, |generation| json!({"nodeClassObservedGeneration": generation}));
    is_changed.then_some((conditions, more))
}

impl History {
    fn tell(&mut self, fate: Fate) {
        if self.news.len() == NEWS_MAX {
            self.news.pop_front();
        }
        self.news.push_back(fate);
    }

    fn take(&mut self, fate: Fate) {
        if self.results.len() == REMEMBERED {
            self.results.pop_front();
        }
        self.results.push_back(fate == Fate::Registered);
        let is_healthy = self.results.iter().filter(|is_success| !**is_success).count() < FAILURES_MAX;
        match fate {
            Fate::Registered if is_healthy => {
                self.verdict =
                    Some(Verdict { status: Status::True, reason: HEALTHY.to_owned(), message: String::new() });
            }
            Fate::GivenUp { reason, message } if !is_healthy => {
                self.verdict = Some(Verdict { status: Status::False, reason, message });
            }
            // One failure among successes is no trend, and neither is one success among failures.
            _ => {}
        }
    }
}

/// Name and uid of the pool that made a claim.
fn owner(claim: &NodeClaim) -> Option<(Text, Text)> {
    let pool = claim.metadata.labels.as_ref()?.get(NODE_POOL)?;
    let owner = claim.metadata.owner_references.iter().flatten().find(|owner| owner.kind == "NodePool")?;
    Some((pool.as_str().into(), owner.uid.as_str().into()))
}

/// What a change says about how a claim fared, if anything.
fn fate(before: &NodeClaim, after: &NodeClaim) -> Option<Fate> {
    let conditions = |claim: &NodeClaim| {
        let stored = claim.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        Conditions::of(NODE_CLAIM, &claim.metadata, stored)
    };
    let (was, is) = (conditions(before), conditions(after));
    if is.is_true("Registered") {
        return (!was.is_true("Registered")).then_some(Fate::Registered);
    }
    let deleted = after.metadata.deletion_timestamp.as_ref()?;
    if before.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let waited = |kind: &str| is.since(kind).map_or(0, |since| deleted.0.as_millisecond() - since.0);
    if !is.is_true("Launched") && waited("Launched") >= LAUNCH_MS {
        let launched = is.get("Launched")?;
        return Some(Fate::GivenUp { reason: launched.reason.clone(), message: launched.message.clone() });
    }
    (waited("Registered") >= REGISTRATION_MS).then(|| Fate::GivenUp {
        reason: "RegistrationFailed".to_owned(),
        message: "Failed to register node".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_800_000_000_000);

    fn pool(generation: i64, status: &Value) -> NodePool {
        let class = json!({"group": "g", "kind": "k", "name": "n"});
        serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u", "generation": generation, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"template": {"spec": {"nodeClassRef": class}}}, "status": status,
        }))
        .unwrap()
    }

    fn said(history: &mut History, pool: &mut NodePool, class_generation: i64) -> String {
        if let Some((conditions, more)) = judge(history, pool, Some(class_generation), NOW) {
            let mut status = conditions.to_value();
            status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            pool.status = Some(serde_json::from_value(status).unwrap());
        }
        let conditions = conditions_of(pool);
        let healthy = conditions.get(HEALTHY).unwrap();
        format!("{} {}", healthy.status, healthy.reason)
    }

    fn failed() -> Fate {
        Fate::GivenUp { reason: "RegistrationFailed".to_owned(), message: "Failed to register node".to_owned() }
    }

    #[test]
    fn two_failures_among_the_last_four_are_too_many() {
        let (mut history, mut pool) = (History::default(), pool(1, &json!({})));
        assert_eq!(said(&mut history, &mut pool, 1), "Unknown AwaitingReconciliation");
        for (fate, expected) in [
            (failed(), "Unknown AwaitingReconciliation"),
            (failed(), "False RegistrationFailed"),
            (Fate::Registered, "False RegistrationFailed"),
            (Fate::Registered, "False RegistrationFailed"),
            (Fate::Registered, "True NodeRegistrationHealthy"),
            (failed(), "True NodeRegistrationHealthy"),
            (failed(), "False RegistrationFailed"),
        ] {
            history.news.push_back(fate);
            assert_eq!(said(&mut history, &mut pool, 1), expected, "{:?}", history.results);
        }
    }

    #[test]
    fn results_of_a_pool_that_nobody_looks_at_do_not_pile_up() {
        let mut history = History::default();
        (0..10 * NEWS_MAX).for_each(|_| history.tell(Fate::Registered));
        assert_eq!(history.news.len(), NEWS_MAX);
    }

    #[test]
    fn a_changed_pool_or_class_starts_afresh() {
        let (mut history, mut pool) = (History::default(), pool(1, &json!({})));
        said(&mut history, &mut pool, 1);
        history.news.push_back(Fate::Registered);
        assert_eq!(said(&mut history, &mut pool, 1), "True NodeRegistrationHealthy");
        assert_eq!(said(&mut history, &mut pool, 2), "Unknown AwaitingReconciliation");
        history.news.push_back(Fate::Registered);
        assert_eq!(said(&mut history, &mut pool, 2), "True NodeRegistrationHealthy");
        pool.metadata.generation = Some(2);
        assert_eq!(said(&mut history, &mut pool, 2), "Unknown AwaitingReconciliation");
    }

    #[test]
    fn after_a_restart_the_condition_is_the_memory() {
        let (mut history, mut pool) = (History::default(), pool(1, &json!({})));
        said(&mut history, &mut pool, 1);
        history.news.extend([failed(), failed()]);
        assert_eq!(said(&mut history, &mut pool, 1), "False RegistrationFailed");
        let mut successor = History::default();
        assert_eq!(said(&mut successor, &mut pool, 1), "False RegistrationFailed");
        successor.news.push_back(Fate::Registered);
        assert_eq!(said(&mut successor, &mut pool, 1), "False RegistrationFailed", "two failures and a success");
        assert!(judge(&mut successor, &pool, Some(1), NOW).is_none(), "nothing new is nothing to write");
    }

    #[test]
    fn what_became_of_a_claim_is_read_off_the_claim() {
        let claim = |launched: &str, registered: &str, deleted: Option<&str>| -> NodeClaim {
            let condition = |kind: &str, status: &str| {
                json!({"type": kind, "status": status, "reason": format!("{kind}Reason"), "message": "m",
                       "lastTransitionTime": "2026-01-01T00:00:00Z"})
            };
            let mut claim = json!({
                "metadata": {"name": "c", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
                "status": {"conditions": [condition("Launched", launched), condition("Registered", registered)]},
            });
            if let Some(at) = deleted {
                claim["metadata"]["deletionTimestamp"] = json!(at);
            }
            serde_json::from_value(claim).unwrap()
        };
        let waiting = claim("Unknown", "Unknown", None);
        let launched = claim("True", "Unknown", None);
        let registered = claim("True", "True", None);
        assert_eq!(fate(&launched, &registered), Some(Fate::Registered));
        assert_eq!(fate(&registered, &registered), None);
        assert_eq!(fate(&registered, &claim("True", "True", Some("2026-01-01T01:00:00Z"))), None);
        assert_eq!(
            fate(&waiting, &claim("Unknown", "Unknown", Some("2026-01-01T00:04:59Z"))),
            None,
            "taken back early"
        );
        let unlaunched = fate(&waiting, &claim("Unknown", "Unknown", Some("2026-01-01T00:05:00Z")));
        assert_eq!(unlaunched, Some(Fate::GivenUp { reason: "LaunchedReason".to_owned(), message: "m".to_owned() }));
        assert_eq!(fate(&launched, &claim("True", "Unknown", Some("2026-01-01T00:14:59Z"))), None);
        let lost = claim("True", "Unknown", Some("2026-01-01T00:15:00Z"));
        assert_eq!(fate(&launched, &lost), Some(failed()));
        assert_eq!(fate(&lost, &lost), None, "counted once");
    }
}
