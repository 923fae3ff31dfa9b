//! What is due when: one instant per key, in order of time and then of key, so that nothing is ever looked for by a scan.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

#[derive(Debug)]
pub(crate) struct Agenda<K> {
    by_time: BTreeSet<(Timestamp, K)>,
    by_key: BTreeMap<K, Timestamp>,
}

impl<K> Default for Agenda<K> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new(), by_key: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Agenda<K> {
    /// Sets the instant of a key, in place of the one it had.
    pub(crate) fn set(&mut self, key: K, at: Timestamp) {
        if let Some(before) = self.by_key.insert(key.clone(), at) {
            self.by_time.remove(&(before, key.clone()));
        }
        self.by_time.insert((at, key));
    }

    /// The same, unless the key is due before.
    pub(crate) fn set_earlier(&mut self, key: K, at: Timestamp) {
        if self.by_key.get(&key).is_none_or(|before| *before > at) {
            self.set(key, at);
        }
    }

    /// Whether there was anything to cancel.
    pub(crate) fn cancel(&mut self, key: &K) -> bool {
        match self.by_key.remove(key) {
            Some(at) => self.by_time.remove(&(at, key.clone())),
            None => false,
        }
    }

    pub(crate) fn when(&self, key: &K) -> Option<Timestamp> {
        self.by_key.get(key).copied()
    }

    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// The first key that is due, which is then no longer on the agenda.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.by_key.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_order_of_time_and_a_key_has_one_instant() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut agenda = Agenda::default();
        agenda.set("late", at(30));
        agenda.set("moved", at(1));
        agenda.set("moved", at(20));
        agenda.set_earlier("moved", at(25));
        agenda.set("b", at(10));
        agenda.set("a", at(10));
        agenda.set("cancelled", at(5));
        assert!(agenda.cancel(&"cancelled") && !agenda.cancel(&"cancelled"));
        assert_eq!(agenda.next(), Some(at(10)));
        assert_eq!(agenda.when(&"moved"), Some(at(20)));
        let due: Vec<_> = std::iter::from_fn(|| agenda.take_due(at(20))).collect();
        assert_eq!(due, ["a", "b", "moved"]);
        assert_eq!(agenda.next(), Some(at(30)));
    }
}
