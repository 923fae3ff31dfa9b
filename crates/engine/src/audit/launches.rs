//! Laws about what is bought: option lists, prices, limits, minValues, reservations.

use super::breach::Breach;
use super::market::Market;
use super::picture::{Claim, Picture};
use kerf_model::resources::NODES;
use kerf_model::{
    CapacityType, InstanceType, LaunchOption, MinValuesPolicy, Offering, Quantity, Resources, Text, labels,
};
use std::collections::{BTreeMap, BTreeSet};

/// The longest launch list that a NodeClaim may carry (contract §20).
const MAX_OPTIONS: usize = 600;

pub(super) fn check<'a>(picture: &Picture<'a>, market: &mut Market<'a>, breaches: &mut Vec<Breach>) {
    let mut bought: BTreeMap<usize, Resources> = BTreeMap::new();
    let mut holders: BTreeMap<&Text, usize> = BTreeMap::new();
    for (_, claim) in picture.claims() {
        check_list(claim, breaches);
        check_options(claim, market, breaches);
        check_min_values(claim, picture.snapshot.settings.min_values, market, breaches);
        check_reservations(claim, market, breaches);
        for id in claim.launch.reservations.iter().collect::<BTreeSet<_>>() {
            *holders.entry(id).or_default() += 1;
        }
        bought.entry(claim.pool_idx).or_default().add(&largest(claim));
    }
    check_limits(picture, &bought, breaches);
    check_reservation_room(picture, market, &holders, breaches);
}

fn check_list(claim: &Claim, breaches: &mut Vec<Breach>) {
    let name = || claim.launch.claim.clone();
    let list = &claim.launch.any_of;
    if list.is_empty() {
        breaches.push(Breach::NoOptions { claim: name() });
    }
    if list.len() > MAX_OPTIONS {
        breaches.push(Breach::TooManyOptions { claim: name(), n_options: list.len(), max: MAX_OPTIONS });
    }
    for pair in list.windows(2) {
        if pair[0].price > pair[1].price {
            breaches.push(Breach::OptionsNotByPrice { claim: name(), before: pair[0].price, after: pair[1].price });
        }
    }
}

fn check_options<'a>(claim: &Claim<'a>, market: &mut Market<'a>, breaches: &mut Vec<Breach>) {
    for option in claim.launch.any_of.iter() {
        let Some(type_idx) = market.type_idx(claim.pool_idx, &option.instance_type) else {
            continue; // Noted when the picture was drawn.
        };
        let kind = &claim.pool.types[type_idx];
        let fit = market.fit(claim.supply, type_idx);
        let Some(cheapest) = fit.usable.first().map(|idx| kind.offerings[*idx].price) else {
            breaches.push(Breach::OptionNotForSale {
                claim: claim.launch.claim.clone(),
                option: option.instance_type.clone(),
            });
            continue;
        };
        let is_true = option.price == cheapest && fit.usable.iter().any(|idx| is_said(option, &kind.offerings[*idx]));
        if !is_true {
            breaches.push(Breach::OptionMispriced {
                claim: claim.launch.claim.clone(),
                option: option.instance_type.clone(),
                said: option.price,
                cheapest,
            });
        }
    }
}

fn is_said(option: &LaunchOption, offering: &Offering) -> bool {
    option.price == offering.price
        && option.zone.as_ref().is_none_or(|zone| offering.zone() == Some(zone))
        && option.capacity_type.is_none_or(|kind| offering.capacity_type() == Some(kind))
}

/// Only values that the claim still allows count.
fn check_min_values<'a>(
    claim: &Claim<'a>,
    policy: MinValuesPolicy,
    market: &mut Market<'a>,
    breaches: &mut Vec<Breach>,
) {
    let mut wanted: BTreeMap<&Text, u32> = BTreeMap::new();
    for (key, requirement) in claim.pool.requirements.iter().chain(claim.launch.requirements.iter()) {
        // BestEffort may write lowered numbers into the claim; what the pool asks for is what counts.
        if let Some(needs) = requirement.min_values {
            let slot = wanted.entry(key).or_default();
            *slot = needs.max(*slot);
        }
    }
    let is_excused = policy == MinValuesPolicy::BestEffort && claim.launch.min_values_relaxed;
    for (key, needs) in wanted {
        let allowed = market.requirements(claim.supply).get(key);
        let mut values = BTreeSet::new();
        for idx in &claim.options {
            let kind = &claim.pool.types[*idx];
            values.extend(values_of(kind, key).filter(|value| allowed.is_none_or(|r| r.has(value))));
        }
        let has = values.len() as u32;
        if has < needs && !is_excused {
            breaches.push(Breach::MinValues { claim: claim.launch.claim.clone(), key: key.clone(), needs, has });
        }
    }
}

fn values_of<'k>(kind: &'k InstanceType, key: &str) -> impl Iterator<Item = &'k Text> {
    let name = (key == labels::INSTANCE_TYPE).then_some(&kind.name.0);
    let listed = kind.requirements.get(key).filter(|requirement| !requirement.complement && name.is_none());
    name.into_iter().chain(listed.into_iter().flat_map(|requirement| &requirement.values))
}

fn check_reservations<'a>(claim: &Claim<'a>, market: &mut Market<'a>, breaches: &mut Vec<Breach>) {
    if claim.launch.reservations.is_empty() {
        return;
    }
    let mut in_reach = BTreeSet::new();
    for idx in &claim.options {
        let fit = market.fit(claim.supply, *idx);
        for offering in fit.usable.iter().map(|o| &claim.pool.types[*idx].offerings[*o]) {
            if offering.capacity_type() == Some(CapacityType::Reserved) {
                in_reach.extend(market.reservation(offering));
            }
        }
    }
    for id in &claim.launch.reservations {
        if !in_reach.contains(id) {
            breaches.push(Breach::ReservationNotItsOwn { claim: claim.launch.claim.clone(), reservation: id.clone() });
        }
    }
}

/// A reservation has room for the least that anybody says of it.
fn check_reservation_room(
    picture: &Picture,
    market: &Market,
    holders: &BTreeMap<&Text, usize>,
    breaches: &mut Vec<Breach>,
) {
    if holders.is_empty() {
        return;
    }
    let mut capacities: BTreeMap<&Text, u32> = BTreeMap::new();
    for kind in picture.snapshot.pools.iter().flat_map(|pool| pool.types.iter()) {
        for offering in kind.offerings.iter().filter(|offering| offering.available) {
            if let (Some(id), Some(capacity)) = (market.reservation(offering), offering.reservation_capacity) {
                let least = capacities.entry(id).or_insert(capacity);
                *least = capacity.min(*least);
            }
        }
    }
    for (&id, &n_holders) in holders {
        let capacity = capacities.get(id).copied().unwrap_or(0);
        if n_holders > capacity as usize {
            breaches.push(Breach::ReservationOversold { reservation: id.clone(), holders: n_holders, capacity });
        }
    }
}

/// The most that the claim can add to its pool, resource by resource.
fn largest(claim: &Claim) -> Resources {
    let mut most = Resources::new().with(NODES, Quantity::from_units(1));
    for idx in &claim.options {
        most.raise_to(&claim.pool.types[*idx].capacity);
    }
    most
}

fn check_limits(picture: &Picture, bought: &BTreeMap<usize, Resources>, breaches: &mut Vec<Breach>) {
    for (&pool_idx, bought) in bought {
        let pool = &picture.snapshot.pools[pool_idx];
        for (resource, limit) in pool.limits.iter() {
            let total = pool.in_use.get(resource) + bought.get(resource);
            if total > limit && !bought.get(resource).is_zero() {
                breaches.push(Breach::LimitCrossed {
                    pool: pool.name.clone(),
                    resource: resource.clone(),
                    limit,
                    total,
                });
            }
        }
    }
}
