//! Which types and offerings a launch may name: a chain of filters, each of which can only take away.
//!
//! ```text
//! types ─▶ suiting ─▶ reservation kind ─▶ capacity block ─▶ one reservation per zone ─▶ not exotic ─▶ spot worth it
//!       ─▶ the sixty cheapest ─▶ minValues still met ─▶ capacity type, tenancy ─▶ Choice
//! ```

use kerf_api::labels::{
    CAPACITY_RESERVATION_INTERRUPTIBLE, CAPACITY_RESERVATION_TYPE, INSTANCE_SIZE, INSTANCE_TENANCY,
    PLACEMENT_GROUP_PARTITION,
};
use kerf_cloud::{LaunchOrder, OfferingKey};
use kerf_model::{CapacityType, InstanceType, Money, Offering, Requirement, Requirements, Resources, Text, labels};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// As many types as one fleet request names.
pub(super) const TYPES_MAX: usize = 60;

/// Kept for pods that ask for such things.
const EXOTIC: [&str; 5] =
    ["aws.amazon.com/neuron", "aws.amazon.com/neuroncore", "amd.com/gpu", "nvidia.com/gpu", "habana.ai/gaudi"];

/// What an order asks of a machine.
pub(super) struct Wanted<'a> {
    pub(super) requirements: Requirements,
    requests: &'a Resources,
    /// Whether pods ask for resources that only an overlay says a type has: the operator has seen to it that they fit.
    has_overlaid_capacity: bool,
    avoid: BTreeSet<&'a OfferingKey>,
    full_reservations: &'a BTreeSet<Text>,
    is_strict: bool,
}

/// What was tried in vain in the course of one launch.
#[derive(Debug, Default)]
pub(super) struct Dry {
    pub(super) offerings: BTreeSet<OfferingKey>,
    /// By id; several may be in one zone.
    pub(super) reservations: BTreeSet<Text>,
}

/// A type, and what is left of its offerings.
#[derive(Debug, Clone)]
pub(super) struct Candidate<'a> {
    pub(super) it: &'a Arc<InstanceType>,
    pub(super) offerings: Vec<&'a Offering>,
}

/// What is bought, and as what.
#[derive(Debug)]
pub(super) struct Choice<'a> {
    pub(super) capacity_type: CapacityType,
    pub(super) tenancy: &'static str,
    /// Cheapest first, with offerings of that capacity type only.
    pub(super) candidates: Vec<Candidate<'a>>,
}

/// Why nothing is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Nothing {
    /// So many types meet the requirements; none of them has an available offering with room.
    Suits { n_types: usize },
    /// The cheapest that one request can name offer too few values of a key.
    MinValues { key: Text, wanted: u32, left: usize },
}

impl std::fmt::Display for Nothing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Suits { n_types: 0 } => f.write_str("no instance type meets its requirements"),
            Self::Suits { n_types } => write!(
                f,
                "none of the {n_types} instance types that meet its requirements has room for its requests in an available offering"
            ),
            Self::MinValues { key, wanted, left } => write!(
                f,
                "minValues of {key} asks for {wanted} values, and the {TYPES_MAX} cheapest instance types that are available have {left}"
            ),
        }
    }
}

impl<'a> Wanted<'a> {
    /// What the claim asks for, less what was tried in vain.
    pub(super) fn new(order: &'a LaunchOrder, dry: &'a Dry, has_strict_min_values: bool) -> Self {
        let mut requirements = order.requirements.clone();
        // A claim that was launched before carries what it got as labels, and is to get that again. A partition that nobody knows yet
        // is none to insist on.
        let is_known = |(key, value): &(&Text, &Text)| &***key != PLACEMENT_GROUP_PARTITION || !value.is_empty();
        for (key, value) in order.labels.iter().filter(is_known) {
            requirements.add(key, Requirement::is_in([&**value]));
        }
        let is_relaxed = super::is_true(order, kerf_api::labels::MIN_VALUES_RELAXED);
        Self {
            requirements,
            requests: &order.requests,
            has_overlaid_capacity: super::is_true(order, kerf_api::labels::CAPACITY_OVERLAY_APPLIED),
            avoid: order.avoid.iter().chain(&dry.offerings).collect(),
            full_reservations: &dry.reservations,
            is_strict: has_strict_min_values && !is_relaxed,
        }
    }

    pub(super) fn allows(&self, key: &str, value: &str) -> bool {
        self.requirements.get(key).is_none_or(|requirement| requirement.has(value))
    }

    fn allows_kind(&self, kind: CapacityType) -> bool {
        self.allows(labels::CAPACITY_TYPE, kind.as_str())
    }

    fn fits(&self, capacity: &Resources, allocatable: &Resources) -> bool {
        if !self.has_overlaid_capacity {
            return self.requests.fits(allocatable);
        }
        let known = self.requests.0.iter().filter(|(name, _)| capacity.0.contains_key(*name));
        Resources(known.map(|(name, amount)| (name.clone(), *amount)).collect()).fits(allocatable)
    }

    /// Whether the offering was given up, by the operator or in this launch.
    fn avoids(&self, it: &InstanceType, offering: &Offering) -> bool {
        let is_full = || reservation_id(offering).is_some_and(|id| self.full_reservations.contains(id));
        self.avoid.contains(&key_of(it, offering)) || is_full()
    }

    fn has_min_values(&self) -> bool {
        self.requirements.iter().any(|(_, requirement)| requirement.min_values.is_some())
    }
}

/// The whole chain.
pub(super) fn choose<'a>(types: &'a [Arc<InstanceType>], wanted: &Wanted<'_>) -> Result<Choice<'a>, Nothing> {
    let n_types = types.iter().filter(|it| it.requirements.intersects(&wanted.requirements)).count();
    let mut left = suiting(types, wanted);
    left = of_one_reservation_kind(left, wanted);
    left = one_capacity_block(left, wanted);
    left = one_reservation_per_zone(left, wanted);
    left = not_exotic(left, wanted);
    left = spot_worth_it(left, wanted);
    if left.is_empty() {
        return Err(Nothing::Suits { n_types });
    }
    left.sort_by(|a, b| (cheapest(a), &a.it.name).cmp(&(cheapest(b), &b.it.name)));
    left.truncate(TYPES_MAX);
    if wanted.is_strict {
        keep_min_values(&left, wanted)?;
    }
    let capacity_type = capacity_type(&left, wanted);
    for candidate in &mut left {
        candidate.offerings.retain(|offering| offering.capacity_type() == Some(capacity_type));
    }
    left.retain(|candidate| !candidate.offerings.is_empty());
    let tenancy = if wanted.allows(INSTANCE_TENANCY, "default") { "default" } else { "dedicated" };
    Ok(Choice { capacity_type, tenancy, candidates: left })
}

/// 1: types that meet the requirements, with the offerings that can be had, suit, and have room for the requests.
fn suiting<'a>(types: &'a [Arc<InstanceType>], wanted: &Wanted<'_>) -> Vec<Candidate<'a>> {
    let meeting = types.iter().filter(|it| it.requirements.intersects(&wanted.requirements));
    let candidates = meeting.map(|it| {
        let plain = it.allocatable();
        let has_room = |offering: &Offering| match &offering.overrides {
            None => wanted.fits(&it.capacity, &plain),
            Some(_) => wanted.fits(&it.capacity, &it.allocatable_of(offering)),
        };
        let suits = |offering: &&Offering| {
            offering.launchable()
                && offering.requirements.intersects(&wanted.requirements)
                && !wanted.avoids(it, offering)
                && has_room(offering)
        };
        Candidate { it, offerings: it.offerings.iter().filter(suits).collect() }
    });
    candidates.filter(|candidate| !candidate.offerings.is_empty()).collect()
}

/// 2: of reserved offerings only those of one kind, the cheapest; and then nothing but them.
fn of_one_reservation_kind<'a>(candidates: Vec<Candidate<'a>>, wanted: &Wanted<'_>) -> Vec<Candidate<'a>> {
    if !wanted.allows_kind(CapacityType::Reserved) {
        return candidates;
    }
    let mut by_kind: BTreeMap<ReservationKind, Money> = BTreeMap::new();
    for (_, offering) in each(&candidates) {
        if let Some(kind) = ReservationKind::of(offering) {
            let lowest = by_kind.entry(kind).or_insert(offering.price);
            *lowest = offering.price.min(*lowest);
        }
    }
    match by_kind.into_iter().min_by_key(|(kind, price)| (*price, *kind)) {
        Some((chosen, _)) => keep(candidates, |_, offering| ReservationKind::of(offering) == Some(chosen)),
        None => candidates,
    }
}

/// 3: a capacity block is one type in one zone.
fn one_capacity_block<'a>(candidates: Vec<Candidate<'a>>, wanted: &Wanted<'_>) -> Vec<Candidate<'a>> {
    if !wanted.allows_kind(CapacityType::Reserved) {
        return candidates;
    }
    let first = each(&candidates).find_map(|(_, offering)| ReservationKind::of(offering));
    if first.is_none_or(|kind| !kind.is_block()) {
        return candidates;
    }
    let reserved = each(&candidates).filter(|(_, offering)| ReservationKind::of(offering).is_some());
    let best = reserved.min_by_key(|(it, offering)| (offering.price, &it.name, offering.zone()));
    best.map(|(it, offering)| Candidate { it, offerings: vec![offering] }).into_iter().collect()
}

/// 4: of the reservations of a type in a zone the one with the most room.
fn one_reservation_per_zone<'a>(candidates: Vec<Candidate<'a>>, wanted: &Wanted<'_>) -> Vec<Candidate<'a>> {
    if !wanted.allows_kind(CapacityType::Reserved) {
        return candidates;
    }
    let mut kept = Vec::new();
    for candidate in &candidates {
        let mut by_zone: BTreeMap<Option<&Text>, &'a Offering> = BTreeMap::new();
        for offering in
            candidate.offerings.iter().copied().filter(|o| o.capacity_type() == Some(CapacityType::Reserved))
        {
            let best = by_zone.entry(offering.zone()).or_insert(offering);
            if offering.reservation_capacity > best.reservation_capacity {
                *best = offering;
            }
        }
        if !by_zone.is_empty() {
            kept.push(Candidate { it: candidate.it, offerings: by_zone.into_values().collect() });
        }
    }
    if kept.is_empty() { candidates } else { kept }
}

/// 5: accelerated and bare-metal machines are for those who need them: for others only where nothing else is left.
fn not_exotic<'a>(candidates: Vec<Candidate<'a>>, wanted: &Wanted<'_>) -> Vec<Candidate<'a>> {
    let is_exotic = |candidate: &Candidate<'_>| {
        let size = candidate.it.requirements.get(INSTANCE_SIZE);
        let is_metal = size.is_some_and(|size| size.values.iter().any(|value| value.contains("metal")));
        is_metal || EXOTIC.iter().any(|resource| !candidate.it.capacity.get(resource).is_zero())
    };
    if wanted.has_min_values() || candidates.iter().all(is_exotic) {
        return candidates;
    }
    candidates.into_iter().filter(|candidate| !is_exotic(candidate)).collect()
}

/// 6: spot that costs more than the cheapest on-demand machine is not worth being interrupted.
fn spot_worth_it<'a>(candidates: Vec<Candidate<'a>>, wanted: &Wanted<'_>) -> Vec<Candidate<'a>> {
    let allows_both = wanted.allows_kind(CapacityType::Spot) && wanted.allows_kind(CapacityType::OnDemand);
    if wanted.has_min_values() || !allows_both {
        return candidates;
    }
    let of_kind = |kind: CapacityType| {
        each(&candidates)
            .filter(move |(_, offering)| offering.capacity_type() == Some(kind))
            .map(|(_, o)| o.price)
            .min()
    };
    match (of_kind(CapacityType::Spot), of_kind(CapacityType::OnDemand)) {
        (Some(_), Some(limit)) => keep(candidates, |_, offering| {
            offering.capacity_type() != Some(CapacityType::Spot) || offering.price <= limit
        }),
        _ => candidates,
    }
}

/// Whether the types offer as many values as minValues wants.
fn keep_min_values(candidates: &[Candidate<'_>], wanted: &Wanted<'_>) -> Result<(), Nothing> {
    for (key, requirement) in wanted.requirements.iter() {
        let Some(least) = requirement.min_values else { continue };
        let offered = candidates.iter().filter_map(|candidate| candidate.it.requirements.get(key));
        let values: BTreeSet<&Text> =
            offered.flat_map(|offered| &offered.values).filter(|value| requirement.has(value)).collect();
        if values.len() < least as usize {
            return Err(Nothing::MinValues { key: key.clone(), wanted: least, left: values.len() });
        }
    }
    Ok(())
}

/// The first of reserved and spot that is allowed and there; else on-demand.
fn capacity_type(candidates: &[Candidate<'_>], wanted: &Wanted<'_>) -> CapacityType {
    let is_there = |kind: &CapacityType| each(candidates).any(|(_, offering)| offering.capacity_type() == Some(*kind));
    [CapacityType::Reserved, CapacityType::Spot]
        .into_iter()
        .find(|kind| wanted.allows_kind(*kind) && is_there(kind))
        .unwrap_or(CapacityType::OnDemand)
}

/// Kinds of reservations, in order of preference where they cost the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReservationKind {
    Default,
    CapacityBlock,
    Interruptible,
    InterruptibleBlock,
}

impl ReservationKind {
    /// None: the offering is not reserved.
    pub(super) fn of(offering: &Offering) -> Option<Self> {
        if offering.capacity_type() != Some(CapacityType::Reserved) {
            return None;
        }
        let label = |key: &str| offering.requirements.get(key).and_then(Requirement::single).map(|value| &**value);
        let is_block = label(CAPACITY_RESERVATION_TYPE) == Some("capacity-block");
        let is_interruptible = label(CAPACITY_RESERVATION_INTERRUPTIBLE) == Some("true");
        Some(match (is_block, is_interruptible) {
            (false, false) => Self::Default,
            (true, false) => Self::CapacityBlock,
            (false, true) => Self::Interruptible,
            (true, true) => Self::InterruptibleBlock,
        })
    }

    pub(super) fn is_block(self) -> bool {
        matches!(self, Self::CapacityBlock | Self::InterruptibleBlock)
    }

    pub(super) fn is_interruptible(self) -> bool {
        matches!(self, Self::Interruptible | Self::InterruptibleBlock)
    }
}

pub(super) fn reservation_id(offering: &Offering) -> Option<&Text> {
    offering.requirements.get(labels::AWS_RESERVATION_ID).and_then(Requirement::single)
}

pub(super) fn key_of(it: &InstanceType, offering: &Offering) -> OfferingKey {
    OfferingKey {
        instance_type: it.name.clone(),
        zone: offering.zone().cloned().unwrap_or_default(),
        capacity_type: offering.capacity_type().unwrap_or(CapacityType::OnDemand),
    }
}

/// Every type with each of its offerings.
pub(super) fn each<'a, 'b>(
    candidates: &'b [Candidate<'a>],
) -> impl Iterator<Item = (&'a Arc<InstanceType>, &'a Offering)> + use<'a, 'b> {
    candidates.iter().flat_map(|candidate| candidate.offerings.iter().map(|offering| (candidate.it, *offering)))
}

fn keep<'a>(
    mut candidates: Vec<Candidate<'a>>,
    keeps: impl Fn(&InstanceType, &Offering) -> bool,
) -> Vec<Candidate<'a>> {
    for candidate in &mut candidates {
        let it = candidate.it;
        candidate.offerings.retain(|offering| keeps(it, offering));
    }
    candidates.retain(|candidate| !candidate.offerings.is_empty());
    candidates
}

fn cheapest(candidate: &Candidate<'_>) -> Option<Money> {
    candidate.offerings.iter().map(|offering| offering.price).min()
}

#[cfg(test)]
#[path = "filters_tests.rs"]
mod tests;
