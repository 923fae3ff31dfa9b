//! Equal values kept once: the pods of one workload have the same labels, the same requests and the same rules.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Values with an order.
#[derive(Clone, Debug)]
pub(crate) struct Shared<T> {
    known: BTreeSet<Arc<T>>,
    /// With so many, those are looked for that nobody uses any more.
    sweeps_at: usize,
}

/// Values without an order: the last few different ones.
#[derive(Clone, Debug)]
pub(crate) struct Recent<T>(VecDeque<Arc<T>>);

const SWEEPS_AT_LEAST: usize = 256;
const RECENT_MAX: usize = 32;

impl<T: Ord> Shared<T> {
    pub(crate) fn share(&mut self, value: Arc<T>) -> Arc<T> {
        if let Some(known) = self.known.get(&*value) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.sweeps_at {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.sweeps_at = (2 * self.known.len()).max(SWEEPS_AT_LEAST);
        }
        self.known.insert(Arc::clone(&value));
        value
    }
}

impl<T: PartialEq> Recent<T> {
    pub(crate) fn share(&mut self, value: Arc<T>) -> Arc<T> {
        let value = match self.0.iter().position(|known| *known == value) {
            Some(index) => self.0.remove(index).unwrap_or(value),
            None => value,
        };
        self.0.truncate(RECENT_MAX - 1);
        self.0.push_front(Arc::clone(&value));
        value
    }
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self { known: BTreeSet::new(), sweeps_at: SWEEPS_AT_LEAST }
    }
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_unused_ones_are_forgotten() {
        let mut shared = Shared::default();
        let kept = shared.share(Arc::new(1));
        assert!(Arc::ptr_eq(&kept, &shared.share(Arc::new(1))));
        for number in 2..10_000 {
            shared.share(Arc::new(number));
        }
        assert!(shared.known.len() <= SWEEPS_AT_LEAST);
        assert!(Arc::ptr_eq(&kept, &shared.share(Arc::new(1))));
    }

    #[test]
    fn of_values_without_an_order_the_last_few_are_known() {
        let mut recent = Recent::default();
        let kept = recent.share(Arc::new(0.5));
        for number in 1..10_000 {
            recent.share(Arc::new(f64::from(number)));
            assert!(Arc::ptr_eq(&kept, &recent.share(Arc::new(0.5))), "what is used stays");
        }
        assert!(recent.0.len() <= RECENT_MAX);
    }
}
