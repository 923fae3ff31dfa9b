//! EC2 instance types: a built-in catalogue, and the arithmetic from an EC2 description to what pods can use.
//!
//! ```text
//! catalogue (data/aws.txt) ── TypeFacts, ZoneOffer ──┐
//! NodeClassFacts ────────────────────────────────────┴─▶ assemble ─▶ InstanceType
//!                                                          ├ capacity   capacity, overhead, pod density
//!                                                          └ labels     every label of such a node
//! ```
//!
//! The catalogue serves planning without an account. A provider that asks EC2 itself fills the same `TypeFacts` and
//! `ZoneOffer` and calls the same [`assemble`].

mod capacity;
mod catalogue;
mod class;
mod facts;
mod labels;
mod read;

pub use capacity::{default_pods, pods};
pub use catalogue::{UnknownRegion, catalogue_date, line_of, offers, price_date, regions, sources, type_facts, zones};
pub use class::{
    AmiFamily, BlockDevice, InstanceStorePolicy, KubeletExpressions, KubeletFacts, NetworkInterface, NodeClassFacts,
    PlacementStrategy, Threshold,
};
pub use facts::{Accelerator, Gpu, Neuron, TypeFacts, ZoneOffer};
pub use labels::{PLACEMENT_GROUP_ID, PLACEMENT_GROUP_PARTITION, RESERVATION_INTERRUPTIBLE, RESERVATION_TYPE, ZONE_ID};
pub use read::ClassProblem;

use kerf_model::labels as keys;
use kerf_model::{CapacityType, InstanceType, Money, Offering, Requirement, Text, TypeName};

/// The EBS driver, whose volumes an instance can attach only so many of.
const EBS_DRIVER: &str = "ebs.csi.aws.com";

/// Every instance type that the region sells, as the class would have it, in order of name.
///
/// Guarantees: types that the class cannot use are listed too, with all offerings unavailable. Spot prices, and the
/// on-demand prices that no source lists, say that they are estimates.
/// Caveats: a type has no offering in a zone that does not sell it, where the AWS provider lists an unavailable one.
pub fn instance_types(region: &str, class: &NodeClassFacts) -> Result<Vec<InstanceType>, UnknownRegion> {
    Ok(offers(region)?.map(|(facts, offers)| assemble(facts, region, &offers, class)).collect())
}

/// One instance type from what EC2 says about it and what the class asks for.
pub fn assemble(facts: &TypeFacts, region: &str, offers: &[ZoneOffer], class: &NodeClassFacts) -> InstanceType {
    let usable = is_compatible(facts, class);
    let mut it = describe(facts, region, class);
    it.offerings = offers.iter().flat_map(|offer| offerings(facts, offer, class, usable)).collect();
    for key in [keys::ZONE, keys::CAPACITY_TYPE, ZONE_ID] {
        it.requirements.add(key, union(&it.offerings, key));
    }
    it
}

/// What a node of the type would be under the class, wherever it is bought: no offerings, and so no zone and no capacity type.
pub fn describe(facts: &TypeFacts, region: &str, class: &NodeClassFacts) -> InstanceType {
    let capacity = capacity::capacity(facts, class);
    let overhead = capacity::overhead(facts, class, &capacity);
    // One attachment carries the root volume. EC2's figure already leaves out the first interface and the local disks.
    let volumes = facts.ebs_volumes.map(|limit| (Text::from(EBS_DRIVER), limit.saturating_sub(1)));
    InstanceType {
        name: TypeName(facts.name.clone()),
        requirements: labels::requirements(facts, region, class),
        offerings: Vec::new(),
        capacity,
        overhead,
        attach_limits: volumes.into_iter().collect(),
    }
}

fn offerings(facts: &TypeFacts, offer: &ZoneOffer, class: &NodeClassFacts, usable: bool) -> Vec<Offering> {
    let in_class = class.zones.as_ref().is_none_or(|zones| zones.contains_key(&offer.zone));
    let zone_id = class.zones.as_ref().and_then(|zones| zones.get(&offer.zone)).and_then(Option::as_ref);
    let ways = [
        (CapacityType::Spot, facts.sells_spot, offer.spot, true),
        (CapacityType::OnDemand, facts.sells_on_demand, offer.on_demand, offer.on_demand_is_estimate),
    ];
    let build = |(kind, _, price, is_estimate): (CapacityType, bool, Option<Money>, bool)| {
        let mut offering = Offering::new(&offer.zone, kind, price.unwrap_or_default());
        if let Some(id) = zone_id {
            offering.require(ZONE_ID, Requirement::is_in([&**id]));
        }
        offering.price_is_estimate = is_estimate;
        offering.available = usable && in_class && price.is_some();
        offering
    };
    ways.into_iter().filter(|(_, is_sold, _, _)| *is_sold).map(build).collect()
}

/// The values that available offerings have for a key.
pub fn union(offerings: &[Offering], key: &str) -> Requirement {
    let available = offerings.iter().filter(|offering| offering.available);
    let values =
        available.filter_map(|offering| offering.requirements.get(key)).flat_map(|requirement| &requirement.values);
    Requirement { values: values.cloned().collect(), ..Requirement::does_not_exist() }
}

/// Whether instances of the type can be launched for the class at all.
pub fn is_compatible(facts: &TypeFacts, class: &NodeClassFacts) -> bool {
    let runs_image = class.ami_family != AmiFamily::Al2023 || !facts.name.starts_with("a1.");
    let nests = !class.nested_virtualization || facts.nests_virtualization;
    let tracks = !class.connection_tracking || &*facts.hypervisor == "nitro";
    let groups = class.placement.is_none_or(|strategy| facts.placement.contains(&strategy));
    runs_image && nests && tracks && groups && has_interfaces(facts, &class.network_interfaces)
}

fn has_interfaces(facts: &TypeFacts, wanted: &[NetworkInterface]) -> bool {
    let n_efa = wanted.iter().filter(|interface| interface.efa_only).count();
    let has_room = |interface: &NetworkInterface| {
        interface.card < facts.network_cards
            && room_on_card(facts, interface.card).is_none_or(|limit| interface.device < limit)
    };
    wanted.is_empty() || (facts.has_ena && wanted.iter().all(has_room) && n_efa <= facts.efa_interfaces as usize)
}

/// How many interfaces a card takes; None where nobody says.
fn room_on_card(facts: &TypeFacts, card: u32) -> Option<u32> {
    let listed = facts.card_interfaces.get(card as usize).copied();
    listed.or_else(|| (card == 0 && facts.card_interfaces.is_empty()).then_some(facts.interfaces))
}

#[cfg(test)]
mod tests;
