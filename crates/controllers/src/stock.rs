//! Offerings that ran dry: remembered per offering, for longer each time, so that a storm of claims cannot happen.

use kerf_cloud::OfferingKey;
use kerf_model::UnixMillis;
use std::collections::BTreeMap;

/// As long as upstream's provider remembers.
const FIRST_MS: i64 = 180_000;
const MOST_MS: i64 = 3_600_000;

#[derive(Debug, Default)]
pub struct Stock {
    dry: BTreeMap<OfferingKey, Dry>,
}

#[derive(Debug, Clone, Copy)]
struct Dry {
    until: UnixMillis,
    n_times: u32,
}

impl Stock {
    /// The cloud had nothing left there.
    pub fn sold_out(&mut self, offering: OfferingKey, now: UnixMillis) {
        let dry = self.dry.entry(offering).or_insert(Dry { until: UnixMillis(i64::MIN), n_times: 0 });
        if dry.until > now {
            // Another answer to the same shortage.
            return;
        }
        let wait = FIRST_MS.saturating_mul(1 << dry.n_times.min(16)).min(MOST_MS);
        *dry = Dry { until: UnixMillis(now.0 + wait), n_times: dry.n_times + 1 };
    }

    /// The cloud had some: the next shortage is the first.
    pub fn delivered(&mut self, offering: &OfferingKey) {
        self.dry.remove(offering);
    }

    pub fn is_dry(&self, offering: &OfferingKey, now: UnixMillis) -> bool {
        self.dry.get(offering).is_some_and(|dry| dry.until > now)
    }

    /// Those that are dry now.
    pub fn dry(&self, now: UnixMillis) -> impl Iterator<Item = &OfferingKey> {
        self.dry.iter().filter(move |(_, dry)| dry.until > now).map(|(offering, _)| offering)
    }

    /// Whether one of them may be asked again since then.
    pub fn has_recovered(&self, since: UnixMillis, now: UnixMillis) -> bool {
        self.dry.values().any(|dry| dry.until > since && dry.until <= now)
    }

    /// When the next of them may be asked again.
    pub fn next(&self, now: UnixMillis) -> Option<UnixMillis> {
        self.dry.values().map(|dry| dry.until).filter(|until| *until > now).min()
    }
}
