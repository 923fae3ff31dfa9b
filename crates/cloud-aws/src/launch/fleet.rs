//! The CreateFleet request, and who shares it.
//!
//! A request carries nothing of the claim it is for but its mark (see `trace`), which is put on last: claims which want the same are
//! one call for so many instances.
//!
//! ```text
//! ask ──▶ joined ──▶ CreateFleet, under a token that follows from its claims ──▶ a share for each
//!  │                       └ no answer: kept as it was ─▶ lost
//!  └ a claim of a lost call ─▶ repeated: the very same call, which EC2 knows by its token and does not carry out twice
//! ```

use super::filters::{Candidate, Choice, ReservationKind, reservation_id};
use super::subnets::Chosen;
use super::trace;
use crate::batch::{Batcher, Run, Windows};
use crate::limits::{FLEET_CLAIMS_MAX, LOST_MAX};
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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const WINDOWS: Windows =
    Windows { idle: Duration::from_millis(35), max: Duration::from_millis(1_000), items_max: FLEET_CLAIMS_MAX };

/// EC2 has seen the token, with another request.
pub(super) const OTHER_REQUEST: &str = "IdempotentParameterMismatch";

/// What a claim gets out of a call that it may have shared.
#[derive(Debug, Clone)]
pub(super) enum FleetAnswer {
    /// One instance, with what went wrong on the way to it.
    Got {
        instance: Box<FleetInstance>,
        id: String,
        is_spot: bool,
        errors: Arc<[FleetError]>,
    },
    Nothing {
        errors: Arc<[FleetError]>,
    },
    Failed {
        failure: Failure,
        /// A call before this one may have launched all the same.
        has_past: bool,
    },
}

/// Whose call it is: the claim's uid, and how many calls were answered for it before. A call repeated after a crash is recognised by
/// them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Asker {
    pub(super) uid: Text,
    pub(super) n_before: u32,
}

/// A call that was not answered: it may have been carried out.
#[derive(Debug, Clone, PartialEq)]
struct Lost {
    /// With its token.
    order: FleetOrder,
    /// In the order of the shares.
    askers: Arc<[Asker]>,
}

#[derive(Default)]
struct LostCalls(Mutex<Vec<(Lost, BTreeSet<Text>)>>);

pub(super) struct Fleets {
    joined: Batcher<FleetOrder, Asker, FleetAnswer>,
    repeated: Batcher<Lost, Text, FleetAnswer>,
    lost: Arc<LostCalls>,
}

impl Fleets {
    pub(super) fn new(wire: Arc<dyn Aws>, clock: Arc<dyn Clock>, tally: Arc<Tally>) -> Self {
        let lost = Arc::<LostCalls>::default();
        let first = first(wire.clone(), lost.clone());
        let again = again(wire, lost.clone());
        Self {
            joined: Batcher::new("create_fleet", tally.clone(), clock.clone(), WINDOWS, first),
            repeated: Batcher::new("create_fleet", tally, clock, WINDOWS, again),
            lost,
        }
    }

    /// One instance for a claim. `asker` is called only where no earlier call of the claim is unanswered.
    pub(super) async fn ask(&self, request: FleetOrder, uid: &Text, asker: impl FnOnce() -> Asker) -> FleetAnswer {
        match self.lost.of(uid) {
            Some(lost) => self.repeated.ask(lost, uid.clone()).await,
            None => self.joined.ask(request, asker()).await,
        }
    }
}

fn first(wire: Arc<dyn Aws>, lost: Arc<LostCalls>) -> Run<FleetOrder, Asker, FleetAnswer> {
    Arc::new(move |mut order, askers| {
        // Shares go by this order, so that it can be told again who has which.
        let mut sorted = askers.clone();
        sorted.sort();
        order.n_instances = i32::try_from(askers.len()).unwrap_or(i32::MAX);
        order.tags.extend(trace::tags(sorted.iter().map(|asker| &asker.uid)));
        order.client_token = Some(token(&sorted));
        let call = Lost { order: order.clone(), askers: sorted.into() };
        let (reply, lost) = (wire.create_fleet(order), lost.clone());
        async move {
            let reply = reply.await;
            if reply.as_ref().is_err_and(is_unanswered) {
                lost.keep(call.clone());
            }
            let shares = shares(reply, call.askers.len(), call.order.capacity_type == "spot", false);
            let share = |asker: &Asker| {
                let at = call.askers.binary_search(asker).expect("every asker was sorted in");
                shares[at].clone()
            };
            askers.iter().map(share).collect()
        }
        .boxed()
    })
}

/// Whoever comes back for a share of a lost call has the same call made again; each may come at a time of its own.
fn again(wire: Arc<dyn Aws>, lost: Arc<LostCalls>) -> Run<Lost, Text, FleetAnswer> {
    Arc::new(move |call, uids| {
        let (reply, lost) = (wire.create_fleet(call.order.clone()), lost.clone());
        async move {
            let reply = reply.await;
            if !reply.as_ref().is_err_and(is_unanswered) {
                lost.answered(&call, &uids);
            }
            let shares = shares(reply, call.askers.len(), call.order.capacity_type == "spot", true);
            let share = |uid: &Text| {
                let at =
                    call.askers.iter().position(|asker| asker.uid == *uid).expect("it is one of the call's askers");
                shares[at].clone()
            };
            uids.iter().map(share).collect()
        }
        .boxed()
    })
}

/// Whether EC2 may have launched and not said so. Who is asked to slow down has launched nothing.
fn is_unanswered(failure: &Failure) -> bool {
    failure.is_server_error() && !failure.is_throttled()
}

impl LostCalls {
    fn of(&self, uid: &Text) -> Option<Lost> {
        let calls = self.lock();
        calls.iter().find(|(_, waiting)| waiting.contains(uid)).map(|(lost, _)| lost.clone())
    }

    fn keep(&self, call: Lost) {
        let waiting = call.askers.iter().map(|asker| asker.uid.clone()).collect();
        let mut calls = self.lock();
        if calls.len() >= LOST_MAX {
            // Of those whose claims are gone nobody asks any more.
            calls.remove(0);
        }
        calls.push((call, waiting));
    }

    fn answered(&self, call: &Lost, uids: &[Text]) {
        let mut calls = self.lock();
        for (_, waiting) in calls.iter_mut().filter(|(kept, _)| kept.order.client_token == call.order.client_token) {
            waiting.retain(|uid| !uids.contains(uid));
        }
        calls.retain(|(_, waiting)| !waiting.is_empty());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Lost, BTreeSet<Text>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One instance for each who asked, as far as they go, in order of their ids; the errors for the others; a failed call fails for all.
fn shares(reply: Result<FleetReply, Failure>, n_askers: usize, is_spot: bool, has_past: bool) -> Vec<FleetAnswer> {
    let reply = match reply {
        Ok(reply) => reply,
        Err(failure) => {
            let has_past = has_past || failure.code == OTHER_REQUEST;
            return vec![FleetAnswer::Failed { failure, has_past }; n_askers];
        }
    };
    let errors: Arc<[FleetError]> = reply.errors.into();
    let each = reply.instances.into_iter().flat_map(|mut group| {
        let ids = std::mem::take(&mut group.ids);
        ids.into_iter().map(move |id| (id, group.clone()))
    });
    let mut launched: Vec<(String, FleetInstance)> = each.collect();
    launched.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut answers: Vec<FleetAnswer> = launched
        .into_iter()
        .take(n_askers)
        .map(|(id, group)| FleetAnswer::Got { instance: Box::new(group), id, is_spot, errors: errors.clone() })
        .collect();
    answers.resize(n_askers, FleetAnswer::Nothing { errors });
    answers
}

/// The same for the same askers, whatever they ask for: what was launched for them before a crash is not launched again, but refused
/// where prices or stock make it another request by now.
fn token(sorted: &[Asker]) -> String {
    let text = format!("{sorted:?}");
    format!("{:016x}{:016x}", fnv(0xcbf2_9ce4_8422_2325, &text), fnv(0x6c62_272e_07bb_0142, &text))
}

/// FNV-1a from a starting point: it does not change with the compiler.
pub(super) fn fnv(start: u64, text: &str) -> u64 {
    text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
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
