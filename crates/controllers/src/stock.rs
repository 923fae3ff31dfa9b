//! What the cloud could not deliver: offerings that ran dry, remembered for longer each time, so that a storm of claims cannot
//! happen; and types whose machines turned out smaller than promised, so that nobody buys the same disappointment again.

use kerf_cloud::OfferingKey;
use kerf_model::{Resources, TypeName, UnixMillis};
use std::collections::BTreeMap;

/// As long as upstream's provider remembers.
const FIRST_MS: i64 = 180_000;
const MOST_MS: i64 = 3_600_000;
/// A machine may be small because it is broken, not because of its type. After a day the type gets another chance; a pod that
/// needs the promised size would otherwise wait for a restart of ours.
const DISAPPOINTED_MS: i64 = 24 * 3_600_000;

#[derive(Debug, Default)]
pub struct Stock {
    dry: BTreeMap<OfferingKey, Dry>,
    small: BTreeMap<TypeName, Small>,
}

/// What a machine of some type really had.
#[derive(Debug, Clone)]
struct Small {
    allocatable: Resources,
    until: UnixMillis,
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

    /// A machine of this type had only so much for pods of what is named here. Answers whether that is news.
    pub fn disappointed(&mut self, instance_type: &TypeName, allocatable: Resources, now: UnixMillis) -> bool {
        let until = UnixMillis(now.0.saturating_add(DISAPPOINTED_MS));
        let is_news = self.allocatable_of(instance_type, now) != Some(&allocatable);
        self.small.insert(instance_type.clone(), Small { allocatable, until });
        is_news
    }

    /// What a machine of this type had for pods, of what it had less of than promised. None where nothing is amiss.
    pub fn allocatable_of(&self, instance_type: &TypeName, now: UnixMillis) -> Option<&Resources> {
        self.small.get(instance_type).filter(|small| small.until > now).map(|small| &small.allocatable)
    }

    /// Whether any type disappointed lately.
    pub fn is_any_small(&self, now: UnixMillis) -> bool {
        self.small.values().any(|small| small.until > now)
    }

    /// When the next of them may be asked again.
    pub fn next(&self, now: UnixMillis) -> Option<UnixMillis> {
        self.dry.values().map(|dry| dry.until).filter(|until| *until > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_model::{CapacityType, Quantity};

    fn offering() -> OfferingKey {
        OfferingKey { instance_type: "m".into(), zone: "a".into(), capacity_type: CapacityType::Spot }
    }

    #[test]
    fn a_shortage_is_remembered_for_longer_each_time_until_something_is_delivered() {
        let mut stock = Stock::default();
        stock.sold_out(offering(), UnixMillis(0));
        stock.sold_out(offering(), UnixMillis(1));
        assert!(stock.is_dry(&offering(), UnixMillis(FIRST_MS - 1)));
        assert!(!stock.is_dry(&offering(), UnixMillis(FIRST_MS)), "one shortage, heard of twice, is one");
        stock.sold_out(offering(), UnixMillis(FIRST_MS));
        assert!(stock.is_dry(&offering(), UnixMillis(3 * FIRST_MS - 1)));
        stock.delivered(&offering());
        assert_eq!(stock.dry(UnixMillis(FIRST_MS)).count(), 0);
    }

    #[test]
    fn a_type_that_disappointed_is_known_for_a_day() {
        let mut stock = Stock::default();
        let had = Resources::new().with("memory", Quantity::from_units(7));
        assert!(stock.disappointed(&"m".into(), had.clone(), UnixMillis(0)));
        assert!(!stock.disappointed(&"m".into(), had.clone(), UnixMillis(1)), "that is no news");
        assert_eq!(stock.allocatable_of(&"m".into(), UnixMillis(DISAPPOINTED_MS)), Some(&had));
        assert_eq!(stock.allocatable_of(&"m".into(), UnixMillis(DISAPPOINTED_MS + 1)), None);
        assert_eq!(stock.allocatable_of(&"other".into(), UnixMillis(1)), None);
    }
}
