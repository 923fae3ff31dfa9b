//! Buying a machine: from a claim to an EC2 instance.
//!
//! ```text
//! order ─▶ ready     may anything be launched from this class?
//!       ─▶ overlaid  types at the users' prices
//!       ─▶ trace     was one launched by a process before us?
//!       ─▶ filters   which types and offerings, bought as what?      ◀─┐ what was dry is left out, and the rest is
//!       ─▶ templates launch templates for them (made where missing)    │ tried at once: other types and zones,
//!       ─▶ subnets   where to; addresses of launches under way         │ on-demand when spot is dry
//!       ─▶ fleet     one CreateFleet for all who want the same         │
//!       ─▶ verdict   an instance, or what ran dry ─────────────────────┘
//! ```
//!
//! What is absent: memory of which claim has which instance; that is the provider's (`cloud`).

mod filters;
mod fleet;
mod overlaid;
mod ready;
mod subnets;
mod trace;
mod verdict;

pub(crate) use overlaid::Overlaid;
pub use subnets::Subnets;

use crate::advice::{self, Optional, OptionalCalls};
use crate::memory::Memory;
use crate::settings::{ClusterFacts, Settings};
use crate::supply::Supply;
use crate::tally::Tally;
use crate::templates::{self, ReadyTemplate, TemplateWants, Templates, TypeWanted};
use crate::wire::{Aws, Ec2Instance, Failure, FleetError, FleetInstance, Tags};
use filters::{Candidate, Choice, Dry, Wanted, each};
use fleet::{Asker, FleetAnswer, Fleets, Ingredients};
use kerf_api::{Ec2NodeClass, labels as api_labels};
use kerf_cloud::clock::Clock;
use kerf_cloud::{CloudError, LaunchOrder, OfferingKey};
use kerf_model::{CapacityType, InstanceType, Text, TypeName, resources};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use subnets::Chosen;
use trace::Traces;
use verdict::Asked;

/// How many fleets are asked for one claim before it is given up. Each leaves out what the ones before found dry; a request names
/// some sixty types in all zones, so that this covers everything EC2 sells.
const ROUNDS_MAX: usize = 16;
/// With fewer types than this, falling back from spot to on-demand is worth a word.
const FLEXIBLE_TYPES: usize = 5;
/// When to look for what an earlier call launched: EC2 shows it in some seconds.
const LOOKS_S: [u64; 3] = [0, 5, 10];
/// A claim that nobody asked for in so long has gone.
const ASKED_FOR: Duration = Duration::from_secs(24 * 3_600);
const EFA: &str = "vpc.amazonaws.com/efa";
const LAUNCH_FAILURES: &str = "karpenter_cloudprovider_instance_launch_failures_total";

/// What a launcher works with.
#[derive(Clone)]
pub struct Parts {
    pub wire: Arc<dyn Aws>,
    pub settings: Arc<Settings>,
    pub clock: Arc<dyn Clock>,
    pub supply: Arc<Supply>,
    pub templates: Arc<Templates>,
    pub optional: Arc<OptionalCalls>,
    pub tally: Arc<Tally>,
}

pub struct Launcher {
    wire: Arc<dyn Aws>,
    settings: Arc<Settings>,
    clock: Arc<dyn Clock>,
    supply: Arc<Supply>,
    templates: Arc<Templates>,
    subnets: Arc<Subnets>,
    fleets: Fleets,
    traces: Traces,
    /// Fleets asked for so far, by the claim's uid.
    n_asked: Memory<Text, u32>,
    optional: Arc<OptionalCalls>,
    tally: Arc<Tally>,
    overlaid: Overlaid,
}

/// What came of an order.
#[derive(Debug, Clone)]
pub struct Launched {
    /// As EC2 will describe it, as far as is known already.
    pub ec2: Ec2Instance,
    pub it: Arc<InstanceType>,
    pub class: Arc<Ec2NodeClass>,
    /// Offerings that were tried on the way and had nothing left.
    pub sold_out: Vec<OfferingKey>,
}

/// What went wrong once and was put right; a second time it is an error.
#[derive(Default)]
struct Repairs {
    were_templates_missing: bool,
    were_spot_tags_denied: bool,
}

/// How one fleet went.
enum Round {
    Got(Box<Launched>),
    /// Something else may still be had, or the same after a repair.
    Again {
        because: String,
    },
}

impl Launcher {
    pub fn new(parts: &Parts, subnets: Arc<Subnets>) -> Self {
        let parts = parts.clone();
        let fleets = Fleets::new(parts.wire.clone(), parts.clock.clone(), parts.tally.clone());
        let traces = Traces::new(parts.wire.clone(), parts.settings.clone(), parts.clock.clone());
        Self {
            wire: parts.wire,
            settings: parts.settings,
            clock: parts.clock,
            supply: parts.supply,
            templates: parts.templates,
            optional: parts.optional,
            tally: parts.tally,
            subnets,
            fleets,
            traces,
            n_asked: Memory::new(ASKED_FOR),
            overlaid: Overlaid::default(),
        }
    }

    /// What users say about types.
    pub(crate) fn overlaid(&self) -> &Overlaid {
        &self.overlaid
    }

    /// Launches one instance.
    ///
    /// Flow: chooses, asks a fleet, and as long as that finds nothing but dry offerings leaves those out and asks again, at once.
    /// Guarantees: a claim whose launch was not answered, to us or to a process before us, gets what was launched then.
    /// Caveats: asked again after an answer it launches again.
    pub async fn launch(&self, order: &LaunchOrder, cluster: Option<&ClusterFacts>) -> Result<Launched, CloudError> {
        let class = Arc::new(ready::class(order)?);
        let Some(cluster) = cluster else {
            let why = "the cluster's endpoint and version are not known yet (eks:DescribeCluster)";
            return Err(launch_failed(order, "NodeClassReadinessUnknown", why));
        };
        if let Some(launched) = self.before(order, &class).await? {
            return Ok(launched);
        }
        let (mut dry, mut repairs) = (Dry::default(), Repairs::default());
        let mut last_words: Option<String> = None;
        for _ in 0..ROUNDS_MAX {
            let types = self
                .supply
                .instance_types(&class)
                .map_err(|error| launch_failed(order, "InstanceTypeResolutionFailed", &error.to_string()))?;
            let types = self.overlaid.over(order, types);
            let wanted = Wanted::new(order, &dry, self.settings.has_strict_min_values);
            let choice = match filters::choose(&types, &wanted) {
                Ok(choice) => choice,
                Err(nothing) => {
                    let why = last_words.unwrap_or_else(|| nothing.to_string());
                    return Err(no_capacity(order, &why, dry));
                }
            };
            note_inflexible(order, &choice, &wanted);
            let round = self.round(order, &class, cluster, &choice, &mut dry, &mut repairs).await?;
            match round {
                Round::Got(mut launched) => {
                    launched.sold_out = dry.offerings.into_iter().collect();
                    return Ok(*launched);
                }
                Round::Again { because } => last_words = Some(because),
            }
        }
        Err(no_capacity(order, &last_words.unwrap_or_default(), dry))
    }

    /// One fleet.
    async fn round(
        &self,
        order: &LaunchOrder,
        class: &Arc<Ec2NodeClass>,
        cluster: &ClusterFacts,
        choice: &Choice<'_>,
        dry: &mut Dry,
        repairs: &mut Repairs,
    ) -> Result<Round, CloudError> {
        let tags = tags(&self.settings, class, order);
        let group = self.supply.placement_group(class);
        let wants = TemplateWants {
            class,
            order,
            types: choice.candidates.iter().map(type_wanted).collect(),
            supply: &*self.supply,
            cluster,
            capacity_type: choice.capacity_type,
            tenancy: choice.tenancy,
            placement_group: group.as_ref(),
            tags: tags.clone(),
        };
        let templates = self.templates.ensure_all(&*self.wire, &wants).await?;
        let status = class.status.as_ref().map(|status| status.subnets.as_slice()).unwrap_or_default();
        let subnets = self.subnets.choose(status, &smallest_by_zone(choice));
        let ingredients = Ingredients { order, class, choice, templates: &templates, subnets: &subnets, tags };
        let Some(request) = fleet::request(&ingredients) else {
            self.subnets.settle(&subnets, None);
            let why = format!(
                "none of its {} instance types has both an image and a subnet of EC2NodeClass {} (status.amis, status.subnets)",
                choice.candidates.len(),
                order.node_class.name
            );
            return Err(launch_failed(order, "SubnetResolutionFailed", &why));
        };
        let asked = Asked { choice, subnets: &subnets, supply: &self.supply, in_flight: &self.subnets };
        match self.fleets.ask(request, &order.uid, || self.asker(&order.uid)).await {
            FleetAnswer::Got { instance, id, is_spot, errors } => {
                self.subnets.settle(&subnets, instance.subnet_id.as_deref());
                let mut ec2 = self.as_described(&id, &instance, order, choice, &templates, &subnets);
                ec2.partition = templates::partition(order, group.as_ref());
                // What was asked for again, as it was, may be of a kind that is not the first choice by now.
                ec2.is_spot = is_spot;
                let got = OfferingKey {
                    instance_type: TypeName::from(ec2.instance_type.as_str()),
                    zone: ec2.zone.as_str().into(),
                    capacity_type: match (is_spot, choice.capacity_type) {
                        (true, _) => CapacityType::Spot,
                        (false, CapacityType::Spot) => CapacityType::OnDemand,
                        (false, other) => other,
                    },
                };
                self.count(&errors, choice, &subnets);
                asked.remember(&errors, Some(&got), dry);
                dry.offerings.remove(&got);
                let it = choice.candidates.iter().find(|candidate| candidate.it.name == got.instance_type);
                let it = it.map(|candidate| candidate.it.clone()).or_else(|| self.type_of(class, &ec2));
                let Some(it) = it else {
                    let why =
                        format!("ec2:CreateFleet launched {id} as {}, which was not asked for", ec2.instance_type);
                    return Err(launch_failed(order, "LaunchFailed", &why));
                };
                if let Some(reservation) = &ec2.reservation_id {
                    self.supply.reservations().launched(reservation);
                }
                Ok(Round::Got(Box::new(Launched { ec2, it, class: class.clone(), sold_out: Vec::new() })))
            }
            FleetAnswer::Nothing { errors } => {
                self.subnets.settle(&subnets, None);
                self.count(&errors, choice, &subnets);
                self.after_nothing(order, &errors, &asked, &templates, dry, repairs).await
            }
            FleetAnswer::Failed { failure, has_past } => {
                self.subnets.settle(&subnets, None);
                if has_past && let Some(launched) = self.past(order, class).await? {
                    return Ok(Round::Got(Box::new(launched)));
                }
                if failure.code == fleet::OTHER_REQUEST {
                    let because = format!("what an earlier request launched does not show: {failure}");
                    return Ok(Round::Again { because });
                }
                match self.repair(&failure, choice, &templates, repairs).await {
                    Some(because) => Ok(Round::Again { because: format!("{because}: {failure}") }),
                    None => Err(self.explained(order, &failure, "").await),
                }
            }
        }
    }

    async fn after_nothing(
        &self,
        order: &LaunchOrder,
        errors: &[FleetError],
        asked: &Asked<'_>,
        templates: &[ReadyTemplate],
        dry: &mut Dry,
        repairs: &mut Repairs,
    ) -> Result<Round, CloudError> {
        let before = dry.offerings.len() + dry.reservations.len();
        asked.remember(errors, None, dry);
        let words = verdict::in_words(errors);
        if verdict::is_dry(errors) {
            // Whatever else it says: this request, asked again, would fare no better.
            if dry.offerings.len() + dry.reservations.len() == before {
                asked.give_up_all(dry);
            }
            return Ok(Round::Again { because: words });
        }
        for error in errors.iter().filter(|error| !verdict::is_unfulfillable(error)) {
            let failure = Failure::new("ec2:CreateFleet", &error.code, &error.message);
            if let Some(because) = self.repair(&failure, asked.choice, templates, repairs).await {
                return Ok(Round::Again { because: format!("{because}: {words}") });
            }
        }
        let first = errors.iter().find(|error| !verdict::is_unfulfillable(error)).or(errors.first());
        let (code, message) = first.map_or(("", ""), |error| (&error.code, &error.message));
        let failure = Failure::new("ec2:CreateFleet", code, message);
        let others = if errors.len() > 1 { format!(" (with fleet errors {words})") } else { String::new() };
        Err(self.explained(order, &failure, &others).await)
    }

    /// Why the launch failed, with what helps.
    async fn explained(&self, order: &LaunchOrder, failure: &Failure, others: &str) -> CloudError {
        let (reason, message) = advice::launch_failure(&failure.code, &failure.message);
        let class = order.class_object.as_deref();
        let field = |name: &str| class.and_then(|class| class["spec"][name].as_str()).map(str::to_owned);
        let what_helps = match &*reason {
            "Unauthorized" => {
                let node_roles = field("role").into_iter().collect();
                let expected = advice::Expected { node_roles, ..advice::Expected::default() };
                advice::denied(&*self.wire, failure, &expected).await.advice
            }
            "InstanceProfileNameInvalid" => {
                let used = class.and_then(|class| class["status"]["instanceProfile"].as_str()).unwrap_or_default();
                let by =
                    if field("instanceProfile").is_some() { "spec.instanceProfile" } else { "status.instanceProfile" };
                let by = format!("EC2NodeClass {} {by}", order.node_class.name);
                let iam = (!self.settings.is_isolated_vpc).then_some(&*self.wire);
                advice::invalid_profile(iam, failure, &by, used).await
            }
            _ => String::new(),
        };
        let space = if what_helps.is_empty() { "" } else { ". " };
        launch_failed(order, &reason, &format!("ec2:CreateFleet: {message}{others}{space}{what_helps}"))
    }

    /// Puts right, once, what a failure names. None when there is nothing to put right.
    async fn repair(
        &self,
        failure: &Failure,
        choice: &Choice<'_>,
        templates: &[ReadyTemplate],
        repairs: &mut Repairs,
    ) -> Option<&'static str> {
        if failure.code == verdict::NO_TEMPLATE && !std::mem::replace(&mut repairs.were_templates_missing, true) {
            // Somebody else deleted one; nobody says which.
            self.templates.forget(templates.iter().map(|template| template.name.as_str()));
            return Some("a launch template was gone");
        }
        let may_be_tags = choice.capacity_type == CapacityType::Spot && failure.is_denied();
        if may_be_tags
            && !std::mem::replace(&mut repairs.were_spot_tags_denied, true)
            && !self.templates.leaves_out_spot_tags()
            && self.denies_spot_tags(failure).await
        {
            self.templates.leave_out_spot_tags();
            if let (_, Some(words)) = self.optional.note(Optional::TagSpotRequests, failure, self.clock.now()) {
                tracing::warn!("{words}");
            }
            return Some("spot requests may not be tagged, and go without");
        }
        None
    }

    /// Whether a refusal is about tags on spot requests. One that nobody may decode is taken for it: a launch without them tells.
    async fn denies_spot_tags(&self, failure: &Failure) -> bool {
        if templates::denies_spot_tags(&failure.code, &failure.message) {
            return true;
        }
        let denied = advice::denied(&*self.wire, failure, &advice::Expected::default()).await;
        match denied.resource {
            Some(resource) => resource.contains("spot-instances-request"),
            None => failure.message.contains("Encoded authorization failure message"),
        }
    }

    /// What a process before us launched for the claim, and did not live to tell.
    async fn before(&self, order: &LaunchOrder, class: &Arc<Ec2NodeClass>) -> Result<Option<Launched>, CloudError> {
        let now = self.clock.now();
        if self.n_asked.get(&order.uid, now).is_some() {
            return Ok(None);
        }
        let found = self.traces.of(&order.uid, None).await.map_err(|failure| not_looked(order, &failure))?;
        self.n_asked.expired(now);
        // Who was asked for an instance that has ended since would answer with that one.
        self.n_asked.put(order.uid.clone(), u32::from(found.is_some()), now);
        Ok(found.and_then(|ec2| self.adopted(order, class, ec2)))
    }

    /// What a call before this one launched for the claim. EC2 takes some seconds to show it.
    async fn past(&self, order: &LaunchOrder, class: &Arc<Ec2NodeClass>) -> Result<Option<Launched>, CloudError> {
        for wait_s in LOOKS_S {
            self.clock.sleep(Duration::from_secs(wait_s)).await;
            let found = self.traces.of(&order.uid, Some(self.clock.now())).await;
            if let Some(ec2) = found.map_err(|failure| not_looked(order, &failure))? {
                return Ok(self.adopted(order, class, ec2));
            }
        }
        Ok(None)
    }

    /// None for one that has ended.
    fn adopted(&self, order: &LaunchOrder, class: &Arc<Ec2NodeClass>, ec2: Ec2Instance) -> Option<Launched> {
        if matches!(ec2.state.as_str(), "shutting-down" | "terminated") {
            return None;
        }
        let it = self.type_of(class, &ec2)?;
        tracing::info!(
            NodeClaim = order.claim.as_str(),
            instance = ec2.id,
            "found the instance that was launched for the nodeclaim before"
        );
        Some(Launched { ec2, it, class: class.clone(), sold_out: Vec::new() })
    }

    fn type_of(&self, class: &Ec2NodeClass, ec2: &Ec2Instance) -> Option<Arc<InstanceType>> {
        let types = self.supply.instance_types(class).ok()?;
        types.iter().find(|it| it.name.as_str() == ec2.instance_type).cloned()
    }

    fn asker(&self, uid: &Text) -> Asker {
        let now = self.clock.now();
        let n_before = self.n_asked.get(uid, now).unwrap_or_default();
        self.n_asked.put(uid.clone(), n_before + 1, now);
        Asker { uid: uid.clone(), n_before }
    }

    fn count(&self, errors: &[FleetError], choice: &Choice<'_>, subnets: &BTreeMap<Text, Chosen>) {
        for error in errors {
            let zone = error.zone.as_deref().unwrap_or_default();
            let zone_id = subnets.get(zone).and_then(|subnet| subnet.zone_id.as_deref()).unwrap_or_default();
            self.tally.note(LAUNCH_FAILURES, [zone, zone_id, choice.capacity_type.as_str(), error.code.as_str()], 1.0);
        }
    }

    /// The instance as EC2 will describe it before long.
    fn as_described(
        &self,
        id: &str,
        got: &FleetInstance,
        order: &LaunchOrder,
        choice: &Choice<'_>,
        templates: &[ReadyTemplate],
        subnets: &BTreeMap<Text, Chosen>,
    ) -> Ec2Instance {
        let by_subnet = || {
            let id = got.subnet_id.as_ref()?;
            subnets.iter().find(|(_, subnet)| subnet.id == *id).map(|(zone, _)| zone.to_string())
        };
        let zone = got.zone.clone().or_else(by_subnet).unwrap_or_default();
        let template = templates.iter().find(|template| Some(&template.name) == got.template_name.as_ref());
        let of_type = || templates.iter().find(|it| it.types.iter().any(|name| name.as_str() == got.instance_type));
        let template = template.or_else(of_type);
        let offered = each(&choice.candidates).find(|(it, offering)| {
            it.name.as_str() == got.instance_type && offering.zone().is_some_and(|it| **it == *zone)
        });
        let reservation = template.and_then(|template| template.reservation_id.clone());
        let class = order.class_object.as_deref();
        let has_interfaces = class.is_some_and(|class| !class["spec"]["networkInterfaces"].is_null());
        let wants_efa = !order.requests.get(EFA).is_zero() || has_interfaces;
        let n_efa = offered.filter(|_| wants_efa).map_or(0, |(it, _)| it.capacity.get(EFA).units());
        Ec2Instance {
            id: id.to_owned(),
            instance_type: got.instance_type.clone(),
            state: "pending".to_owned(),
            zone_id: subnets.get(zone.as_str()).and_then(|subnet| subnet.zone_id.clone()),
            zone,
            subnet_id: got.subnet_id.clone(),
            image_id: got.image_id.clone().or_else(|| template.map(|it| it.image_id.clone())).unwrap_or_default(),
            launched_ms: self.clock.now().0,
            tenancy: Some(choice.tenancy.to_owned()),
            is_spot: choice.capacity_type == CapacityType::Spot,
            reservation_preference: reservation.as_ref().map(|_| "capacity-reservations-only".to_owned()),
            reservation_id: reservation,
            n_efa_interfaces: u32::try_from(n_efa).unwrap_or_default(),
            ..Ec2Instance::default()
        }
    }
}

fn type_wanted<'a>(candidate: &Candidate<'a>) -> TypeWanted<'a> {
    TypeWanted { instance_type: candidate.it, offerings: candidate.offerings.clone() }
}

/// The tags of an order. Nodes of a translated Provisioner keep its name where people look for it.
fn tags(settings: &Settings, class: &Ec2NodeClass, order: &LaunchOrder) -> Tags {
    let mut tags = templates::tags(class, order.pool.as_ref(), &settings.cluster_name);
    if let Some(provisioner) = order.labels.get(PROVISIONER) {
        tags.insert(PROVISIONER.to_owned(), provisioner.to_string());
    }
    tags
}

const PROVISIONER: &str = "karpenter.sh/provisioner-name";

/// Whether the claim carries an annotation with the value `true`.
fn is_true(order: &LaunchOrder, annotation: &str) -> bool {
    order.annotations.get(annotation).is_some_and(|value| &**value == "true")
}

/// How many pods, and so addresses, the smallest machine takes that may come of this, by zone.
fn smallest_by_zone(choice: &Choice<'_>) -> BTreeMap<Text, i64> {
    let mut out: BTreeMap<Text, i64> = BTreeMap::new();
    for (it, offering) in each(&choice.candidates) {
        let n_pods = it.capacity.get(resources::PODS).units();
        if let Some(zone) = offering.zone() {
            let least = out.entry(zone.clone()).or_insert(n_pods);
            *least = n_pods.min(*least);
        }
    }
    out
}

fn note_inflexible(order: &LaunchOrder, choice: &Choice<'_>, wanted: &Wanted<'_>) {
    let n_types = choice.candidates.len();
    let allows_spot = wanted.allows(api_labels::CAPACITY_TYPE, api_labels::SPOT);
    if choice.capacity_type == CapacityType::OnDemand && allows_spot && n_types < FLEXIBLE_TYPES {
        tracing::error!(
            NodeClaim = order.claim.as_str(),
            "at least {FLEXIBLE_TYPES} instance types are recommended when flexible to spot but requesting on-demand, the current \
             provisioning request only has {n_types} instance type options"
        );
    }
}

fn launch_failed(order: &LaunchOrder, reason: &str, why: &str) -> CloudError {
    CloudError::LaunchFailed { reason: reason.into(), message: format!("NodeClaim {}: {why}", order.claim).into() }
}

/// Without this look a launch could be a second one.
fn not_looked(order: &LaunchOrder, failure: &Failure) -> CloudError {
    let message = format!("whether an instance was launched for it before cannot be told: {failure}");
    match failure.is_throttled() {
        true => CloudError::Throttled { message: message.into(), retry_after: Duration::from_secs(5) },
        false => launch_failed(order, "LaunchFailed", &message),
    }
}

fn no_capacity(order: &LaunchOrder, why: &str, dry: Dry) -> CloudError {
    let message = format!("NodeClaim {}: {why}", order.claim);
    CloudError::NoCapacity { message: message.into(), sold_out: dry.offerings.into_iter().collect() }
}
