//! Where and how a type can be bought for a class, and for how much: one offering for every zone of the region and every way to
//! buy, sold there or not, and one for each reservation. What cannot be bought now is listed as unavailable.

use super::prices::{Price, Prices};
use super::reservations::ReservationCounts;
use super::unavailable::Unavailable;
use super::view::View;
use kerf_api::CapacityReservation;
use kerf_cloud::aws::{
    PLACEMENT_GROUP_ID, PLACEMENT_GROUP_PARTITION, RESERVATION_INTERRUPTIBLE, RESERVATION_TYPE, TypeFacts, ZONE_ID,
    union,
};
use kerf_model::labels::{AWS_RESERVATION_ID, CAPACITY_TYPE, ZONE};
use kerf_model::{CapacityType, InstanceType, Money, Offering, Requirement, Text};
use std::collections::BTreeSet;

/// What offerings of a list depend on, beside the type.
pub(super) struct Shop<'a> {
    pub(super) view: &'a View,
    /// Of the region.
    pub(super) zones: &'a BTreeSet<Text>,
    pub(super) prices: &'a Prices,
    pub(super) unavailable: &'a Unavailable,
    pub(super) reservations: &'a ReservationCounts,
    /// Zones where the class can put a node now.
    pub(super) open_zones: BTreeSet<Text>,
}

/// The class's zones, but for those that traffic was moved away from, and those where no subnet of the class has addresses left.
pub(super) fn open_zones(view: &View, unavailable: &Unavailable, shifted: &BTreeSet<String>) -> BTreeSet<Text> {
    let is_shifted = |zone: &Text| view.zone_id(zone).is_some_and(|id| shifted.contains(&**id));
    let has_room = |ids: &[Text]| ids.iter().any(|id| !unavailable.is_subnet_marked(id));
    let open = view.subnets.iter().filter(|(zone, ids)| !is_shifted(zone) && has_room(ids));
    open.map(|(zone, _)| zone.clone()).collect()
}

impl View {
    fn zone_id(&self, zone: &Text) -> Option<&Text> {
        self.facts.zones.as_ref()?.get(zone)?.as_ref()
    }
}

impl Shop<'_> {
    /// Gives a type its offerings, and the labels that follow from them. `sold_in` are the zones that have the type at all.
    pub(super) fn stock(
        &self,
        it: &mut InstanceType,
        facts: &TypeFacts,
        sold_in: &BTreeSet<Text>,
        is_compatible: bool,
    ) {
        it.offerings = self.base(facts, sold_in, is_compatible);
        let reserved = self.view.reservations.get(&facts.name).into_iter().flatten();
        it.offerings.extend(reserved.map(|reservation| self.reserved(facts, reservation, sold_in, is_compatible)));
        for key in [ZONE, CAPACITY_TYPE, ZONE_ID, AWS_RESERVATION_ID, RESERVATION_TYPE, RESERVATION_INTERRUPTIBLE] {
            it.requirements.0.insert(key.into(), union(&it.offerings, key));
        }
        let Some(group) = &self.view.group else {
            return;
        };
        it.requirements.0.insert(PLACEMENT_GROUP_ID.into(), Requirement::is_in([group.id.as_str()]));
        if group.strategy == "partition" {
            let partitions: Vec<String> = (1..=group.n_partitions).map(|number| number.to_string()).collect();
            let all = Requirement::is_in(partitions.iter().map(String::as_str));
            it.requirements.0.insert(PLACEMENT_GROUP_PARTITION.into(), all);
            it.offerings = std::mem::take(&mut it.offerings)
                .into_iter()
                .flat_map(|offering| partitions.iter().map(move |partition| in_partition(&offering, partition)))
                .collect();
        }
    }

    fn base(&self, facts: &TypeFacts, sold_in: &BTreeSet<Text>, is_compatible: bool) -> Vec<Offering> {
        let group = self.view.group.as_ref().map(|group| group.id.as_str());
        let ways = [(CapacityType::Spot, facts.sells_spot), (CapacityType::OnDemand, facts.sells_on_demand)];
        let ways: Vec<CapacityType> = ways.into_iter().filter(|(_, is_sold)| *is_sold).map(|(way, _)| way).collect();
        let mut offerings = Vec::with_capacity(self.zones.len() * ways.len());
        for zone in self.zones {
            for way in &ways {
                let price = match way {
                    CapacityType::Spot => self.prices.spot(&facts.name, zone),
                    _ => self.prices.on_demand(&facts.name),
                };
                let is_available = is_compatible
                    && price.is_some()
                    && sold_in.contains(zone)
                    && self.open_zones.contains(zone)
                    && !self.unavailable.is_marked(*way, &facts.name, zone, group);
                let mut offering = self.offering(zone, *way, price, is_available);
                for key in [AWS_RESERVATION_ID, RESERVATION_TYPE, RESERVATION_INTERRUPTIBLE] {
                    offering.require(key, Requirement::does_not_exist());
                }
                offerings.push(offering);
            }
        }
        offerings
    }

    fn reserved(
        &self,
        facts: &TypeFacts,
        reservation: &CapacityReservation,
        sold_in: &BTreeSet<Text>,
        is_compatible: bool,
    ) -> Offering {
        let zone = Text::from(reservation.availability_zone.as_str());
        let n_left = self.reservations.available(&reservation.id);
        let is_available = is_compatible
            && n_left > 0
            && sold_in.contains(&zone)
            && self.open_zones.contains(&zone)
            && reservation.state.as_deref() != Some("expiring");
        let price = self.prices.reserved(&facts.name);
        let mut offering = self.offering(&zone, CapacityType::Reserved, Some(price), is_available);
        offering.reservation_capacity = Some(n_left);
        let interruptible = if reservation.interruptible == Some(true) { "true" } else { "false" };
        for (key, value) in [
            (AWS_RESERVATION_ID, reservation.id.as_str()),
            (RESERVATION_TYPE, reservation.reservation_type.as_deref().unwrap_or("default")),
            (RESERVATION_INTERRUPTIBLE, interruptible),
        ] {
            offering.require(key, Requirement::is_in([value]));
        }
        offering
    }

    fn offering(&self, zone: &Text, way: CapacityType, price: Option<Price>, is_available: bool) -> Offering {
        let mut offering = Offering::new(zone, way, price.map_or(Money::ZERO, |price| price.money));
        offering.price_is_estimate = price.is_none_or(|price| price.is_estimate);
        offering.available = is_available;
        if let Some(id) = self.view.zone_id(zone) {
            offering.require(ZONE_ID, Requirement::is_in([&**id]));
        }
        offering
    }
}

fn in_partition(offering: &Offering, partition: &str) -> Offering {
    let mut offering = offering.clone();
    offering.require(PLACEMENT_GROUP_PARTITION, Requirement::is_in([partition]));
    offering
}
