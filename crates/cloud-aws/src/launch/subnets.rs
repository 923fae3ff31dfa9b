//! Which subnet of a zone a machine goes to, and the addresses that launches under way will take.
//!
//! EC2 says how many addresses are free now; machines that are being launched take theirs, and their pods', a little later.
//! Between two looks the launches are charged here, so that a burst spreads over the subnets of a zone. Free addresses never
//! forbid a launch: EC2 has the last word.

use crate::wire;
use kerf_cloud::clock::Clock;
use kerf_model::Text;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts are believed this long at least, and a little longer than they take to be refreshed.
const BELIEVED_AT_LEAST: Duration = Duration::from_secs(300);
const BELIEVED_AFTER_REFRESH: Duration = Duration::from_secs(240);

pub struct Subnets {
    clock: Arc<dyn Clock>,
    believed_ms: i64,
    known: Mutex<BTreeMap<String, Known>>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    n_free: i64,
    /// What is free less what launches under way will take; None when there are none since the last look.
    n_left: Option<i64>,
    seen_ms: i64,
}

/// A subnet that a launch may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    pub id: String,
    pub zone_id: Option<String>,
    n_charged: i64,
    /// EC2's count at that time: when it has changed, the charge is forgotten already.
    n_free_then: Option<i64>,
}

impl Subnets {
    pub fn new(clock: Arc<dyn Clock>, refreshed_every: Duration) -> Self {
        let believed = BELIEVED_AT_LEAST.max(refreshed_every + BELIEVED_AFTER_REFRESH);
        Self { clock, believed_ms: i64::try_from(believed.as_millis()).unwrap_or(i64::MAX), known: Mutex::default() }
    }

    /// EC2 was asked: its counts know of every launch so far.
    pub fn refreshed<'a>(&self, found: impl IntoIterator<Item = &'a wire::Subnet>) {
        let seen_ms = self.clock.now().0;
        let mut known = self.known();
        for subnet in found {
            let fresh = Known { n_free: subnet.n_free_addresses, n_left: None, seen_ms };
            known.insert(subnet.id.clone(), fresh);
        }
        known.retain(|_, known| seen_ms - known.seen_ms < self.believed_ms);
    }

    /// EC2 said that it has no address left: it comes last until it is looked at again.
    pub fn ran_out(&self, id: &str) {
        let seen_ms = self.clock.now().0;
        self.known().insert(id.to_owned(), Known { n_free: 0, n_left: None, seen_ms });
    }

    /// For each zone the subnet with the most addresses left, charged with what the smallest machine takes there. `n_pods` is that
    /// number, for every zone that is wanted.
    pub fn choose(&self, of_class: &[kerf_api::Subnet], n_pods: &BTreeMap<Text, i64>) -> BTreeMap<Text, Chosen> {
        let now_ms = self.clock.now().0;
        let mut known = self.known();
        let mut out = BTreeMap::new();
        for (zone, n_charged) in n_pods {
            let mut best: Option<(&kerf_api::Subnet, i64)> = None;
            for subnet in of_class.iter().filter(|subnet| *subnet.zone == **zone) {
                let fresh = known.get(&subnet.id).filter(|known| now_ms - known.seen_ms < self.believed_ms);
                let n_left = fresh.map_or(0, |known| known.n_left.unwrap_or(known.n_free));
                // Of equals the earlier stays: the class lists the roomiest first.
                if best.is_none_or(|(_, most)| n_left > most) {
                    best = Some((subnet, n_left));
                }
            }
            let Some((subnet, n_left)) = best else { continue };
            let n_free_then = known.get_mut(&subnet.id).map(|known| {
                known.n_left = Some(n_left - n_charged);
                known.n_free
            });
            let chosen =
                Chosen { id: subnet.id.clone(), zone_id: subnet.zone_id.clone(), n_charged: *n_charged, n_free_then };
            out.insert(zone.clone(), chosen);
        }
        out
    }

    /// The launch is over: what it did not use is given back. `used` is the subnet of the machine that came of it.
    pub fn settle(&self, chosen: &BTreeMap<Text, Chosen>, used: Option<&str>) {
        let mut known = self.known();
        for subnet in chosen.values().filter(|subnet| Some(subnet.id.as_str()) != used) {
            let Some(known) = known.get_mut(&subnet.id) else { continue };
            // A look in between has forgotten the charge.
            if Some(known.n_free) == subnet.n_free_then
                && let Some(n_left) = &mut known.n_left
            {
                *n_left += subnet.n_charged;
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::HandClock;

    fn subnets(clock: &HandClock, counts: &[(&str, i64)]) -> Subnets {
        let subnets = Subnets::new(Arc::new(clock.clone()), Duration::from_secs(60));
        subnets.refreshed(&found(counts));
        subnets
    }

    fn found(counts: &[(&str, i64)]) -> Vec<wire::Subnet> {
        let subnet = |(id, n_free_addresses): &(&str, i64)| wire::Subnet {
            id: (*id).to_owned(),
            n_free_addresses: *n_free_addresses,
            ..wire::Subnet::default()
        };
        counts.iter().map(subnet).collect()
    }

    fn class(ids: &[(&str, &str)]) -> Vec<kerf_api::Subnet> {
        ids.iter()
            .map(|(id, zone)| kerf_api::Subnet { id: (*id).to_owned(), zone: (*zone).to_owned(), zone_id: None })
            .collect()
    }

    fn ids(chosen: &BTreeMap<Text, Chosen>) -> Vec<(&str, &str)> {
        chosen.iter().map(|(zone, subnet)| (&**zone, subnet.id.as_str())).collect()
    }

    fn pods(zones: &[(&str, i64)]) -> BTreeMap<Text, i64> {
        zones.iter().map(|(zone, n)| ((*zone).into(), *n)).collect()
    }

    #[test]
    fn a_burst_spreads_over_the_subnets_of_a_zone() {
        let clock = HandClock::new();
        let subnets = subnets(&clock, &[("s1", 60), ("s2", 50), ("s3", 5)]);
        let class = class(&[("s1", "a"), ("s2", "a"), ("s3", "b")]);
        let wanted = pods(&[("a", 29), ("b", 29), ("c", 29)]);
        let picks: Vec<_> = (0..4).map(|_| subnets.choose(&class, &wanted)["a"].id.clone()).collect();
        assert_eq!(picks, ["s1", "s2", "s1", "s2"]);
        assert_eq!(
            ids(&subnets.choose(&class, &wanted)),
            [("a", "s1"), ("b", "s3")],
            "no subnet, no zone; few, no matter"
        );
    }

    #[test]
    fn of_equals_the_classes_first_is_taken() {
        let subnets = subnets(&HandClock::new(), &[]);
        let chosen = subnets.choose(&class(&[("s2", "a"), ("s1", "a")]), &pods(&[("a", 1)]));
        assert_eq!(ids(&chosen), [("a", "s2")]);
    }

    #[test]
    fn what_a_launch_did_not_use_is_given_back_unless_a_look_came_between() {
        let clock = HandClock::new();
        let subnets = subnets(&clock, &[("s1", 60), ("s2", 50), ("s3", 40)]);
        let class = class(&[("s1", "a"), ("s2", "a"), ("s3", "b")]);
        let wanted = pods(&[("a", 20), ("b", 20)]);
        let first = subnets.choose(&class, &wanted);
        subnets.settle(&first, Some("s3"));
        assert_eq!(subnets.known()["s1"].n_left, Some(60));
        assert_eq!(subnets.known()["s3"].n_left, Some(20));
        let second = subnets.choose(&class, &wanted);
        subnets.refreshed(&found(&[("s1", 59)]));
        subnets.settle(&second, None);
        assert_eq!(subnets.known()["s1"].n_left, None, "a fresh count needs no correction");
        assert_eq!(subnets.known()["s3"].n_left, Some(20), "all is given back when nothing came of it");
    }

    #[test]
    fn a_subnet_that_ran_out_comes_last() {
        let subnets = subnets(&HandClock::new(), &[("s1", 60), ("s2", 50)]);
        let class = class(&[("s1", "a"), ("s2", "a")]);
        subnets.ran_out("s1");
        assert_eq!(ids(&subnets.choose(&class, &pods(&[("a", 1)]))), [("a", "s2")]);
        subnets.refreshed(&found(&[("s1", 60)]));
        assert_eq!(ids(&subnets.choose(&class, &pods(&[("a", 1)]))), [("a", "s1")]);
    }

    #[test]
    fn old_counts_are_not_believed() {
        let clock = HandClock::new();
        let subnets = subnets(&clock, &[("s2", 60)]);
        clock.advance(Duration::from_secs(300));
        assert_eq!(ids(&subnets.choose(&class(&[("s1", "a"), ("s2", "a")]), &pods(&[("a", 1)]))), [("a", "s1")]);
    }
}
