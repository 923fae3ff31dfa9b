//! The CreateFleet request, and who shares it.
//!
//! A request carries nothing of the claim it is for (neither tag nor name), so that claims which want the same are one call for so
//! many instances.

use super::filters::{Candidate, Choice, ReservationKind, reservation_id};
use super::subnets::Chosen;
use crate::batch::{Batcher, Run, Windows};
use crate::tally::Tally;
use crate::templates::ReadyTemplate;
use crate::wire::{Aws, Failure, FleetConfig, FleetError, FleetInstance, FleetOrder, FleetOverride, FleetReply, Tags};
use futures_util::FutureExt;
use kerf_api::Ec2NodeClass;
use kerf_api::labels::{MIN_VALUES_RELAXED, PRICE_OVERLAY_APPLIED};
use kerf_cloud::LaunchOrder;
use kerf_cloud::clock::Clock;
use kerf_model::{CapacityType, Text};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const WINDOWS: Windows =
    Windows { idle: Duration::from_millis(35), max: Duration::from_millis(1_000), items_max: 1_000 };

/// What a claim gets out of a call that it may have shared.
#[derive(Debug, Clone)]
pub(super) enum FleetAnswer {
    /// One instance, with what went wrong on the way to it.
    Got {
        instance: Box<FleetInstance>,
        id: String,
        errors: Arc<[FleetError]>,
    },
    Nothing {
        errors: Arc<[FleetError]>,
    },
    Failed(Failure),
}

/// Whose call it is: the claim's uid, and how many calls were made for it before. A call repeated after a crash is recognised by
/// them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Asker {
    pub(super) uid: Text,
    pub(super) n_before: u32,
}

pub(super) type Fleets = Batcher<FleetOrder, Asker, FleetAnswer>;

pub(super) fn fleets(wire: Arc<dyn Aws>, clock: Arc<dyn Clock>, tally: Arc<Tally>) -> Fleets {
    let run: Run<FleetOrder, Asker, FleetAnswer> = Arc::new(move |mut order, askers| {
        order.n_instances = i32::try_from(askers.len()).unwrap_or(i32::MAX);
        order.client_token = Some(token(&order, &askers));
        let reply = wire.create_fleet(order);
        async move { shares(reply.await, askers.len()) }.boxed()
    });
    Batcher::new("create_fleet", tally, clock, WINDOWS, run)
}

/// One instance for each who asked, as far as they go; the errors for the others; a failed call fails for all.
fn shares(reply: Result<FleetReply, Failure>, n_askers: usize) -> Vec<FleetAnswer> {
    let reply = match reply {
        Ok(reply) => reply,
        Err(failure) => return vec![FleetAnswer::Failed(failure); n_askers],
    };
    let errors: Arc<[FleetError]> = reply.errors.into();
    let each = reply.instances.into_iter().flat_map(|mut group| {
        let ids = std::mem::take(&mut group.ids);
        ids.into_iter().map(move |id| (id, group.clone()))
    });
    let mut answers: Vec<FleetAnswer> = each
        .take(n_askers)
        .map(|(id, group)| FleetAnswer::Got { instance: Box::new(group), id, errors: errors.clone() })
        .collect();
    answers.resize(n_askers, FleetAnswer::Nothing { errors });
    answers
}

/// The same for the same request by the same askers, in any order: a call that was made before a crash is not made again.
fn token(order: &FleetOrder, askers: &[Asker]) -> String {
    let mut askers: Vec<&Asker> = askers.iter().collect();
    askers.sort();
    let text = format!("{order:?} {askers:?}");
    // FNV-1a, from two starting points: sixteen bytes that do not change with the compiler.
    let hash =
        |start: u64| text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{:016x}{:016x}", hash(0xcbf2_9ce4_8422_2325), hash(0x6c62_272e_07bb_0142))
}

/// What a request is made of.
pub(super) struct Ingredients<'a> {
    pub(super) order: &'a LaunchOrder,
    pub(super) class: &'a Ec2NodeClass,
    pub(super) choice: &'a Choice<'a>,
    pub(super) templates: &'a [ReadyTemplate],
    pub(super) subnets: &'a BTreeMap<Text, Chosen>,
    pub(super) tags: Tags,
}

/// The request for one instance. None when no template has a type with a subnet.
pub(super) fn request(of: &Ingredients<'_>) -> Option<FleetOrder> {
    let configs: Vec<FleetConfig> = of.templates.iter().filter_map(|template| config(of, template)).collect();
    if configs.is_empty() {
        return None;
    }
    let kind =
        of.choice.candidates.iter().flat_map(|candidate| &candidate.offerings).find_map(|o| ReservationKind::of(o));
    let is_special = kind.is_some_and(|kind| kind.is_block() || kind.is_interruptible());
    let is_spot = of.choice.capacity_type == CapacityType::Spot;
    let is_overlaid = super::is_true(of.order, PRICE_OVERLAY_APPLIED);
    let spot_strategy = if is_overlaid { "capacity-optimized-prioritized" } else { "price-capacity-optimized" };
    let on_demand_strategy = if is_overlaid { "prioritized" } else { "lowest-price" };
    Some(FleetOrder {
        context: of.class.spec.context.clone().filter(|_| !super::is_true(of.order, MIN_VALUES_RELAXED)),
        configs,
        n_instances: 1,
        capacity_type: target(of.choice.capacity_type, kind).to_owned(),
        spot_strategy: is_spot.then(|| spot_strategy.to_owned()),
        on_demand_strategy: (!is_spot && !is_special).then(|| on_demand_strategy.to_owned()),
        reservation_types: kind
            .filter(|kind| kind.is_interruptible())
            .map(|_| "interruptible-capacity-reservation".to_owned())
            .into_iter()
            .collect(),
        tags: of.tags.clone(),
        ..FleetOrder::default()
    })
}

/// As EC2 names what is to be bought. A plain reservation is on-demand capacity that its template points at.
fn target(capacity_type: CapacityType, kind: Option<ReservationKind>) -> &'static str {
    match (capacity_type, kind) {
        (CapacityType::Spot, _) => "spot",
        (CapacityType::Reserved, Some(kind)) if kind.is_block() => "capacity-block",
        (CapacityType::Reserved, Some(kind)) if kind.is_interruptible() => "reserved-capacity",
        _ => "on-demand",
    }
}

/// Every type of a template in every zone that has a subnet. None when there is none.
fn config(of: &Ingredients<'_>, template: &ReadyTemplate) -> Option<FleetConfig> {
    let types: BTreeSet<_> = template.types.iter().collect();
    let candidates = of.choice.candidates.iter().filter(|candidate| types.contains(&candidate.it.name));
    let overrides: Vec<FleetOverride> = candidates.flat_map(|candidate| overrides(of, template, candidate)).collect();
    (!overrides.is_empty()).then(|| FleetConfig { template_name: template.name.clone(), overrides })
}

fn overrides(of: &Ingredients<'_>, template: &ReadyTemplate, candidate: &Candidate<'_>) -> Vec<FleetOverride> {
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for offering in &candidate.offerings {
        let is_of_template = template.reservation_id.as_deref() == reservation_id(offering).map(|id| &**id);
        let Some((zone, subnet)) = offering.zone().and_then(|zone| Some((zone, of.subnets.get(zone)?))) else {
            continue;
        };
        // Partitions of a placement group are one zone to a fleet.
        if is_of_template && seen.insert(zone) {
            out.push(FleetOverride {
                instance_type: candidate.it.name.as_str().to_owned(),
                subnet_id: Some(subnet.id.clone()),
                image_id: Some(template.image_id.clone()),
                zone: zone.to_string(),
                priority: Some(offering.price),
            });
        }
    }
    out
}

#[cfg(test)]
#[path = "fleet_tests.rs"]
mod tests;
