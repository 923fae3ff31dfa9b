//! What to look at, and when: keys, each at most once, with back-off for those that failed.

use crate::limits::FAILURES_MAX;
use kerf_model::UnixMillis;
use std::collections::{BTreeMap, BTreeSet};

/// A queue of keys. Taking a key removes it; a change adds it again.
#[derive(Debug, Clone)]
pub struct Queue<K> {
    due: BTreeMap<K, UnixMillis>,
    by_time: BTreeSet<(UnixMillis, K)>,
    failures: BTreeMap<K, u32>,
    backoff_ms: (i64, i64),
}

impl<K: Ord + Clone> Queue<K> {
    /// Failures wait from `first_ms`, doubling, up to `most_ms`.
    pub fn new(first_ms: i64, most_ms: i64) -> Self {
        Self {
            due: BTreeMap::new(),
            by_time: BTreeSet::new(),
            failures: BTreeMap::new(),
            backoff_ms: (first_ms, most_ms),
        }
    }

    /// Look at it now.
    pub fn add(&mut self, key: K) {
        self.add_at(key, UnixMillis(i64::MIN));
    }

    /// Look at it then, or earlier if something else asks for it.
    pub fn add_at(&mut self, key: K, then: UnixMillis) {
        match self.due.get(&key) {
            Some(earlier) if *earlier <= then => {}
            earlier => {
                if let Some(earlier) = earlier {
                    self.by_time.remove(&(*earlier, key.clone()));
                }
                self.due.insert(key.clone(), then);
                self.by_time.insert((then, key));
            }
        }
    }

    /// It failed: look again after a while that grows. Answers how long.
    pub fn retry(&mut self, key: K, now: UnixMillis) -> i64 {
        if self.failures.len() >= FAILURES_MAX {
            // Of what is not waited for, most is gone and was never said to be.
            self.failures.retain(|key, _| self.due.contains_key(key));
        }
        let failures = self.failures.entry(key.clone()).or_insert(0);
        let (first, most) = self.backoff_ms;
        let wait = first.saturating_mul(1 << (*failures).min(30)).min(most);
        *failures += 1;
        self.add_at(key, UnixMillis(now.0.saturating_add(wait)));
        wait
    }

    pub fn n_failures(&self, key: &K) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }

    /// It went well: the next failure is the first.
    pub fn succeeded(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// It is no more.
    pub fn forget(&mut self, key: &K) {
        self.failures.remove(key);
        if let Some(then) = self.due.remove(key) {
            self.by_time.remove(&(then, key.clone()));
        }
    }

    /// The keys that are due, in order of their time and then of themselves.
    pub fn take_due(&mut self, now: UnixMillis) -> Vec<K> {
        let mut out = Vec::new();
        while let Some((then, _)) = self.by_time.first()
            && *then <= now
        {
            let (_, key) = self.by_time.pop_first().expect("there is a first");
            self.due.remove(&key);
            out.push(key);
        }
        out
    }

    /// When the next key is due.
    pub fn next(&self) -> Option<UnixMillis> {
        self.by_time.first().map(|(then, _)| *then)
    }

    pub fn contains(&self, key: &K) -> bool {
        self.due.contains_key(key)
    }

    pub fn len(&self) -> usize {
        self.due.len()
    }

    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }
}

/// The earlier of two wishes.
pub fn earlier(one: Option<UnixMillis>, other: Option<UnixMillis>) -> Option<UnixMillis> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_looked_at_once_at_its_earliest_time() {
        let mut queue = Queue::new(100, 10_000);
        queue.add_at("a", UnixMillis(50));
        queue.add_at("a", UnixMillis(20));
        queue.add_at("a", UnixMillis(30));
        queue.add("b");
        assert_eq!(queue.take_due(UnixMillis(10)), ["b"]);
        assert_eq!(queue.next(), Some(UnixMillis(20)));
        assert_eq!(queue.take_due(UnixMillis(60)), ["a"]);
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn failures_wait_longer_each_time_up_to_a_limit() {
        let mut queue = Queue::new(100, 500);
        let waits: Vec<i64> = (0..5).map(|_| queue.retry("a", UnixMillis(0))).collect();
        assert_eq!(waits, [100, 200, 400, 500, 500]);
        queue.succeeded(&"a");
        queue.forget(&"a");
        assert_eq!(queue.retry("a", UnixMillis(0)), 100);
    }

    #[test]
    fn failures_of_what_is_gone_are_forgotten_in_the_end() {
        let mut queue = Queue::new(100, 500);
        for n in 0..FAILURES_MAX + 10 {
            queue.retry(n, UnixMillis(0));
            queue.take_due(UnixMillis(100));
        }
        queue.retry(usize::MAX, UnixMillis(0));
        assert!(queue.failures.len() <= 12, "{}", queue.failures.len());
        assert_eq!(queue.retry(usize::MAX, UnixMillis(0)), 200, "what is waited for keeps its count");
    }
}
