//! How many instances each capacity reservation still holds, as far as we know between two looks at EC2.

use kerf_cloud::clock::Clock;
use kerf_model::UnixMillis;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// EC2 is asked every minute; a count that nobody renewed for a day is of a reservation that no class selects any more.
const REMEMBERED_FOR: Duration = Duration::from_secs(24 * 3600);

pub struct ReservationCounts {
    clock: Arc<dyn Clock>,
    /// Count, and when it is forgotten.
    counts: Mutex<BTreeMap<String, (u32, UnixMillis)>>,
    changes: AtomicU64,
}

impl ReservationCounts {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, counts: Mutex::default(), changes: AtomicU64::new(0) }
    }

    /// As EC2 says.
    pub fn set(&self, id: &str, n_available: u32) {
        self.change(id, |_| Some(n_available));
    }

    /// An instance of ours took one.
    pub fn launched(&self, id: &str) {
        self.change(id, |count| count.map(|n| n.saturating_sub(1)));
    }

    /// An instance of ours gave one back.
    pub fn ended(&self, id: &str) {
        self.change(id, |count| count.map(|n| n.saturating_add(1)));
    }

    /// EC2 says that none is left.
    pub fn exhausted(&self, id: &str) {
        self.change(id, |_| Some(0));
    }

    /// Nothing is known to be left of one that nobody counted.
    pub fn available(&self, id: &str) -> u32 {
        let now = self.clock.now();
        self.lock().get(id).filter(|(_, ends)| *ends > now).map_or(0, |(count, _)| *count)
    }

    /// Moves with every change.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    fn change(&self, id: &str, next: impl FnOnce(Option<u32>) -> Option<u32>) {
        let now = self.clock.now();
        let ends = UnixMillis(now.0 + REMEMBERED_FOR.as_millis() as i64);
        let mut counts = self.lock();
        counts.retain(|_, (_, ends)| *ends > now);
        let before = counts.get(id).map(|(count, _)| *count);
        let after = next(before);
        if let Some(count) = after {
            counts.insert(id.to_owned(), (count, ends));
        }
        if before != after {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (u32, UnixMillis)>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::HandClock;

    #[test]
    fn launches_and_ends_move_the_count_until_ec2_is_asked_again() {
        let clock = Arc::new(HandClock::new());
        let counts = ReservationCounts::new(clock.clone());
        counts.ended("cr-1");
        assert_eq!(counts.available("cr-1"), 0);
        counts.set("cr-1", 1);
        counts.launched("cr-1");
        counts.launched("cr-1");
        assert_eq!(counts.available("cr-1"), 0);
        counts.ended("cr-1");
        assert_eq!(counts.available("cr-1"), 1);
        counts.set("cr-1", 5);
        counts.exhausted("cr-1");
        assert_eq!(counts.available("cr-1"), 0);
        counts.set("cr-1", 5);
        clock.advance(REMEMBERED_FOR);
        assert_eq!(counts.available("cr-1"), 0);
    }

    #[test]
    fn only_a_changed_count_is_a_change() {
        let counts = ReservationCounts::new(Arc::new(HandClock::new()));
        counts.set("cr-1", 2);
        let before = counts.changes();
        counts.set("cr-1", 2);
        counts.launched("cr-2");
        assert_eq!(counts.changes(), before);
        counts.launched("cr-1");
        assert_eq!(counts.changes(), before + 1);
    }
}
