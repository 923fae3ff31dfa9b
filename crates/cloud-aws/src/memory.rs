//! Memory: what was learned, and for how long it may be believed.
//!
//! A map whose entries die after a span of the time that is passed in. It asks no clock and cleans up behind itself only when
//! somebody takes out what has expired; reading never shows what is dead.

use kerf_model::UnixMillis;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug)]
pub struct Memory<K, V> {
    ttl_ms: i64,
    /// Value, and when it dies.
    entries: Mutex<BTreeMap<K, (V, UnixMillis)>>,
}

impl<K: Ord + Clone, V: Clone> Memory<K, V> {
    pub fn new(ttl: Duration) -> Self {
        Self { ttl_ms: millis(ttl), entries: Mutex::new(BTreeMap::new()) }
    }

    pub fn get(&self, key: &K, now: UnixMillis) -> Option<V> {
        self.lock().get(key).filter(|(_, dies)| *dies > now).map(|(value, _)| value.clone())
    }

    pub fn put(&self, key: K, value: V, now: UnixMillis) {
        self.lock().insert(key, (value, self.after(now)));
    }

    /// As [`Self::put`], with a span of its own.
    pub fn put_for(&self, key: K, value: V, span: Duration, now: UnixMillis) {
        let dies = UnixMillis(now.0.saturating_add(millis(span)));
        self.lock().insert(key, (value, dies));
    }

    /// An entry that is alive lives its whole span again.
    pub fn touch(&self, key: &K, now: UnixMillis) {
        let until = self.after(now);
        if let Some((_, dies)) = self.lock().get_mut(key).filter(|(_, dies)| *dies > now) {
            *dies = until;
        }
    }

    pub fn remove(&self, key: &K) -> Option<V> {
        self.lock().remove(key).map(|(value, _)| value)
    }

    /// Those that live, in order of their keys.
    pub fn alive(&self, now: UnixMillis) -> Vec<(K, V)> {
        let entries = self.lock();
        let alive = entries.iter().filter(|(_, (_, dies))| *dies > now);
        alive.map(|(key, (value, _))| (key.clone(), value.clone())).collect()
    }

    /// Takes out those that are dead, in order of their keys.
    pub fn expired(&self, now: UnixMillis) -> Vec<(K, V)> {
        let mut entries = self.lock();
        let dead: Vec<K> = entries.iter().filter(|(_, (_, dies))| *dies <= now).map(|(key, _)| key.clone()).collect();
        dead.into_iter().filter_map(|key| entries.remove(&key).map(|(value, _)| (key, value))).collect()
    }

    pub fn clear(&self) {
        self.lock().clear();
    }

    fn after(&self, now: UnixMillis) -> UnixMillis {
        UnixMillis(now.0.saturating_add(self.ttl_ms))
    }

    /// A panic elsewhere leaves the map whole: every change is one insertion or removal.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, (V, UnixMillis)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> UnixMillis {
        UnixMillis(second * 1_000)
    }

    #[test]
    fn an_entry_lives_for_its_span_and_no_longer() {
        let memory = Memory::new(Duration::from_secs(60));
        memory.put("a", 1, at(0));
        memory.put_for("b", 2, Duration::from_secs(10), at(0));
        assert_eq!((memory.get(&"a", at(59)), memory.get(&"b", at(9))), (Some(1), Some(2)));
        assert_eq!((memory.get(&"a", at(60)), memory.get(&"b", at(10))), (None, None));
    }

    #[test]
    fn touching_keeps_the_living_alive_and_does_not_wake_the_dead() {
        let memory = Memory::new(Duration::from_secs(60));
        memory.put("a", 1, at(0));
        memory.touch(&"a", at(50));
        assert_eq!(memory.get(&"a", at(109)), Some(1));
        memory.touch(&"a", at(110));
        assert_eq!(memory.get(&"a", at(110)), None);
    }

    #[test]
    fn the_dead_are_taken_out_once() {
        let memory = Memory::new(Duration::from_secs(60));
        memory.put("b", 2, at(0));
        memory.put("a", 1, at(0));
        memory.put("c", 3, at(30));
        assert_eq!(memory.alive(at(60)), [("c", 3)]);
        assert_eq!(memory.expired(at(60)), [("a", 1), ("b", 2)]);
        assert!(memory.expired(at(60)).is_empty());
        assert_eq!(memory.remove(&"c"), Some(3));
    }
}
