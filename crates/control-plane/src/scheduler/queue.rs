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
        let key = key.clone();
        match waiting.place {
            Place::Active => self.active.remove(&(Reverse(waiting.priority), waiting.since, waiting.number, key)),
            Place::Backoff { until, .. } => self.backoff.remove(&(until, waiting.number, key)),
            Place::Unschedulable { since } => self.unschedulable.remove(&(since, key)),
            Place::Gated | Place::Out => false,
        };
    }
}

/// Doubles with each attempt, from one second to ten.
fn pause(n_attempts: u32) -> SignedDuration {
    let doubled = 1_i64.checked_shl(n_attempts.saturating_sub(1)).filter(|factor| *factor > 0);
    doubled
        .and_then(|factor| FIRST_PAUSE.checked_mul(i32::try_from(factor).ok()?))
        .map_or(LONGEST_PAUSE, |p| p.min(LONGEST_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("default", name)
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn popped(queue: &mut Queue, seconds: i64) -> Option<String> {
        queue.pop(at(seconds)).map(|key| key.name.clone())
    }

    #[test]
    fn the_important_go_first_and_then_those_who_wait_longest() {
        let mut queue = Queue::default();
        for (name, priority, seconds) in [("late", 0, 2), ("early", 0, 1), ("important", 9, 3)] {
            queue.add(&key(name), priority, false, at(seconds));
        }
        let order: Vec<String> = std::iter::from_fn(|| popped(&mut queue, 4)).collect();
        assert_eq!(order, ["important", "early", "late"]);
    }

    #[test]
    fn a_gated_pod_waits_for_its_gate() {
        let mut queue = Queue::default();
        queue.add(&key("p"), 0, true, at(0));
        assert_eq!(popped(&mut queue, 0), None);
        queue.add(&key("p"), 0, false, at(1));
        assert_eq!(popped(&mut queue, 1).as_deref(), Some("p"));
    }

    #[test]
    fn a_refused_pod_waits_for_a_change_or_five_minutes() {
        let mut queue = Queue::default();
        queue.add(&key("p"), 0, false, at(0));
        popped(&mut queue, 0);
        queue.refuse(&key("p"), vec![Filter::NodeResourcesFit], at(0));
        queue.changed(|_, filters| filters.contains(&Filter::NodePorts), at(1));
        assert_eq!((popped(&mut queue, 299), queue.next_wake()), (None, Some(at(300))));
        assert_eq!(popped(&mut queue, 300).as_deref(), Some("p"));
        queue.refuse(&key("p"), vec![Filter::NodeResourcesFit], at(300));
        queue.changed(|_, filters| filters.contains(&Filter::NodeResourcesFit), at(301));
        assert_eq!(popped(&mut queue, 301).as_deref(), Some("p"));
    }

    #[test]
    fn a_pause_after_an_error_is_kept_and_grows() {
        let mut queue = Queue::default();
        queue.add(&key("p"), 0, false, at(0));
        let mut now = 0;
        for pause in [1, 2, 4, 8, 10, 10] {
            assert_eq!(popped(&mut queue, now).as_deref(), Some("p"));
            queue.retry(&key("p"), at(now));
            assert_eq!(popped(&mut queue, now + pause - 1), None, "a pause of {pause} s");
            now += pause;
        }
        queue.remove(&key("p"));
        assert_eq!((popped(&mut queue, now), queue.next_wake()), (None, None));
    }
}
