//! Who is next: pods waiting for their turn, for a pause to pass, or for something to change.
//!
//! ```text
//!            ┌────────────── a change that may help ──────────────┐
//!            ▼                                                    │
//! new ─▶ active ──pop──▶ attempt ──no node──▶ unschedulable ──────┤ (and after five minutes anyway)
//!            ▲                      └─error─▶ backoff ─┐          │
//!            └───── pause over, or nobody else ◀───────┴──◀───────┘
//! gated: not yet to be looked at
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::verdict::Filter;
use crate::store::Key;

const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(1);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(10);
/// A change that we did not recognise as helpful may be: after this long a pod is tried again.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: BTreeMap<Key, Waiting>,
    active: BTreeSet<(Reverse<i32>, Timestamp, u64, Key)>,
    backoff: BTreeSet<(Timestamp, u64, Key)>,
    unschedulable: BTreeSet<(Timestamp, Key)>,
    n_added: u64,
}

#[derive(Debug)]
struct Waiting {
    priority: i32,
    since: Timestamp,
    number: u64,
    n_attempts: u32,
    place: Place,
    /// Which checks refused it last. None: it was never refused by any.
    filters: Vec<Filter>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Gated,
    Active,
    Backoff {
        until: Timestamp,
        is_after_error: bool,
    },
    Unschedulable {
        since: Timestamp,
    },
    /// Being attempted right now.
    Out,
}

impl Queue {
    /// Adds a pod, or keeps its turn if it waits already. A gated one is not tried.
    pub(crate) fn add(&mut self, key: &Key, priority: i32, is_gated: bool, now: Timestamp) {
        let number = self.n_added;
        let waiting = self.waiting.entry(key.clone()).or_insert_with(|| {
            self.n_added += 1;
            Waiting { priority, since: now, number, n_attempts: 0, place: Place::Gated, filters: Vec::new() }
        });
        if waiting.place != Place::Active {
            waiting.priority = priority;
        }
        match (waiting.place, is_gated) {
            (Place::Gated, false) => {
                waiting.since = now;
                self.activate(key);
            }
            (Place::Gated, true) => {}
            (_, true) => {
                self.leave(key);
                self.set_place(key, Place::Gated);
            }
            (_, false) => {}
        }
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        self.leave(key);
        self.waiting.remove(key);
    }

    /// The most important pod, the longest waiting of equals. With nobody active, one in its pause does not idle.
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<Key> {
        self.wake(now);
        let key = match self.active.first() {
            Some((_, _, _, key)) => key.clone(),
            None => self.backoff.iter().map(|(_, _, key)| key).find(|key| !self.is_after_error(key))?.clone(),
        };
        self.leave(&key);
        self.set_place(&key, Place::Out);
        if let Some(waiting) = self.waiting.get_mut(&key) {
            waiting.n_attempts += 1;
        }
        Some(key)
    }

    /// Puts a pod that no node would have aside until something changes.
    pub(crate) fn refuse(&mut self, key: &Key, filters: Vec<Filter>, now: Timestamp) {
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.filters = filters;
            waiting.place = Place::Unschedulable { since: now };
            self.unschedulable.insert((now, key.clone()));
        }
    }

    /// Tries a pod again after a pause.
    pub(crate) fn retry(&mut self, key: &Key, now: Timestamp) {
        if let Some(waiting) = self.waiting.get_mut(key) {
            let until = now.saturating_add(pause(waiting.n_attempts)).unwrap_or(Timestamp::MAX);
            waiting.place = Place::Backoff { until, is_after_error: true };
            self.backoff.insert((until, waiting.number, key.clone()));
        }
    }

    /// Something changed: those whom it may help move on.
    pub(crate) fn changed(&mut self, may_help: impl Fn(&Key, &[Filter]) -> bool, now: Timestamp) {
        let moved: Vec<Key> = self
            .unschedulable
            .iter()
            .map(|(_, key)| key)
            .filter(|key| self.waiting.get(*key).is_some_and(|waiting| may_help(key, &waiting.filters)))
            .cloned()
            .collect();
        for key in moved {
            self.move_on(&key, now);
        }
    }

    /// Moves one pod on, if it is set aside.
    pub(crate) fn move_on(&mut self, key: &Key, now: Timestamp) {
        let Some(Place::Unschedulable { since }) = self.waiting.get(key).map(|waiting| waiting.place) else { return };
        self.leave(key);
        let Some(waiting) = self.waiting.get_mut(key) else { return };
        let until = since.saturating_add(pause(waiting.n_attempts)).unwrap_or(Timestamp::MAX);
        if until <= now {
            self.activate(key);
        } else {
            waiting.place = Place::Backoff { until, is_after_error: false };
            self.backoff.insert((until, waiting.number, key.clone()));
        }
    }

    /// When to look again even if nothing changes.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        let pause = self.backoff.first().map(|(until, _, _)| *until);
        let flush = self.unschedulable.first().map(|(since, _)| since.saturating_add(LONGEST_WAIT).unwrap_or(*since));
        pause.into_iter().chain(flush).min()
    }

    fn wake(&mut self, now: Timestamp) {
        while let Some((until, _, key)) = self.backoff.first().cloned() {
            if until > now {
                break;
            }
            self.leave(&key);
            self.activate(&key);
        }
        while let Some((since, key)) = self.unschedulable.first().cloned() {
            if since.saturating_add(LONGEST_WAIT).unwrap_or(since) > now {
                break;
            }
            self.move_on(&key, now);
        }
    }

    fn is_after_error(&self, key: &Key) -> bool {
        let place = self.waiting.get(key).map(|waiting| waiting.place);
        matches!(place, Some(Place::Backoff { is_after_error: true, .. }))
    }

    fn activate(&mut self, key: &Key) {
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.place = Place::Active;
            self.active.insert((Reverse(waiting.priority), waiting.since, waiting.number, key.clone()));
        }
    }

    fn set_place(&mut self, key: &Key, place: Place) {
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.place = place;
        }
    }

    /// Takes a pod out of wherever it waits.
    fn leave(&mut self, key: &Key) {
        let Some(waiting) = self.waiting.get(key) else { return };
        match waiting.place {
            Place::Active => {
                drop(self.active.remove(&(Reverse(waiting.priority), waiting.since, waiting.number, key.clone())));
            }
            Place::Backoff { until, .. } => drop(self.backoff.remove(&(until, waiting.number, key.clone()))),
            Place::Unschedulable { since } => drop(self.unschedulable.remove(&(since, key.clone()))),
            Place::Gated | Place::Out => {}
        }
    }
}

/// Doubles with each attempt, from one second to ten.
fn pause(n_attempts: u32) -> SignedDuration {
    let doubled = 1_i64.checked_shl(n_attempts.saturating_sub(1)).filter(|factor| *factor > 0);
    doubled
        .and_then(|factor| FIRST_PAUSE.checked_mul(i32::try_from(factor).ok()?))
        .map_or(LONGEST_PAUSE, |p| p.min(LONGEST_PAUSE))
}
