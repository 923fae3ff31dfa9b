//! What is due, what is due later, and how long to wait after a failure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

/// The wait after the first failure. It doubles with each further one, as in the real controllers.
const FIRST_WAIT: SignedDuration = SignedDuration::from_millis(5);
const LONGEST_WAIT: SignedDuration = SignedDuration::from_secs(1000);

/// Tasks to look at: each at most once per turn, in order.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    due: BTreeSet<T>,
    later: BTreeMap<T, Timestamp>,
    failures: BTreeMap<T, u32>,
}

impl<T: Ord + Clone> Default for Queue<T> {
    fn default() -> Self {
        Self { due: BTreeSet::new(), later: BTreeMap::new(), failures: BTreeMap::new() }
    }
}

impl<T: Ord + Clone> Queue<T> {
    pub(crate) fn add(&mut self, task: T) {
        self.due.insert(task);
    }

    /// Not before `at`, unless something adds it sooner. The earliest time asked for counts.
    pub(crate) fn add_at(&mut self, task: T, at: Timestamp) {
        let known = self.later.entry(task).or_insert(at);
        *known = at.min(*known);
    }

    /// Everything due by `now`.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Vec<T> {
        let ripe: Vec<T> = self.later.iter().filter(|(_, at)| **at <= now).map(|(task, _)| task.clone()).collect();
        for task in ripe {
            self.later.remove(&task);
            self.due.insert(task);
        }
        std::mem::take(&mut self.due).into_iter().collect()
    }

    pub(crate) fn succeeded(&mut self, task: &T) {
        self.failures.remove(task);
    }

    pub(crate) fn failed(&mut self, task: T, now: Timestamp) {
        let count = self.failures.entry(task.clone()).or_insert(0);
        let wait = FIRST_WAIT.saturating_mul(1_i32.checked_shl(*count).unwrap_or(i32::MAX).max(1)).min(LONGEST_WAIT);
        // Beyond this the wait is the longest anyway, and the shift stays in range.
        *count = (*count + 1).min(24);
        self.add_at(task, now.saturating_add(wait).unwrap_or(Timestamp::MAX));
    }

    /// When to look again if nothing changes.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        if self.due.is_empty() { self.later.values().min().copied() } else { Some(Timestamp::MIN) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_wait_longer_each_time_until_the_longest() {
        let mut queue = Queue::default();
        let mut now = Timestamp::UNIX_EPOCH;
        let mut waits = Vec::new();
        for _ in 0..30 {
            queue.failed("a", now);
            let next = queue.next().unwrap();
            waits.push(next.duration_since(now).as_millis());
            now = next;
            assert_eq!(queue.take_due(now), ["a"]);
        }
        assert_eq!(waits[..4], [5, 10, 20, 40]);
        assert_eq!(waits[29], 1_000_000);
        queue.succeeded(&"a");
        queue.failed("a", now);
        assert_eq!(queue.next().unwrap().duration_since(now).as_millis(), 5);
    }

    #[test]
    fn a_task_is_taken_once_and_the_earliest_time_counts() {
        let mut queue = Queue::default();
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        queue.add_at("b", at(20));
        queue.add_at("b", at(10));
        queue.add_at("b", at(30));
        queue.add("a");
        queue.add("a");
        assert_eq!(queue.take_due(at(5)), ["a"]);
        assert_eq!(queue.next(), Some(at(10)));
        assert_eq!(queue.take_due(at(10)), ["b"]);
        assert_eq!(queue.next(), None);
    }
}
