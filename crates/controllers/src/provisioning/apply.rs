//! From a plan to claims: what of it still makes sense, and how it is written.

use super::{Pending, Provisioning, patience};
use crate::claims::{self, Wish};
use crate::desk::Desk;
use crate::errand::ApiCall;
use crate::events::{About, Event};
use crate::metrics::families;
use crate::queue::earlier;
use crate::resource::NODE_CLAIMS;
use crate::write;
use k8s_openapi::api::core::v1::Node;
use kerf_api::labels::{CAPACITY_OVERLAY_APPLIED, INSTANCE_TYPE, MIN_VALUES_RELAXED, NODE_POOL, PRICE_OVERLAY_APPLIED};
use kerf_api::{NodeClaim, NodePool, taints};
use kerf_cloud::overlay::Changed;
use kerf_model::{
    InstanceType, Launch, LaunchOption, Placement, Plan, PodId, Resources, Snapshot, Step, Text, TypeName, UnixMillis,
    resources,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// While pods of a backlog are being bound, what will be left over is not known: kube-scheduler places them as it likes. So long
/// after the last binding it is.
pub(super) const SETTLE_MS: i64 = 2_000;
/// Of what a node offers, in tenths: one that is as full as this gains nothing by waiting for company.
const FULL_TENTHS: i64 = 9;

/// What is done of a plan, and what waits.
pub(super) struct Steps<'a> {
    pub(super) placed: Vec<&'a Placement>,
    pub(super) launches: Vec<&'a Launch>,
    /// Something was left for later: look again then.
    pub(super) again_at: Option<UnixMillis>,
}

/// Leaves out what nobody needs any more, what company may still improve, what kube-scheduler may make needless,
/// and what would only be spoiled again.
pub(super) fn sort_out<'a>(
    provisioning: &Provisioning,
    desk: &Desk<'_>,
    pending: &Pending,
    snapshot: &Snapshot,
    plan: &'a Plan,
) -> Steps<'a> {
    let is_wanted = |id: &PodId| match desk.world.pod(id) {
        Some(pod) => !pod.is_bound() && pod.is_active() || pod.is_reschedulable(),
        None => snapshot.pods.binary_search_by(|pod| pod.id.cmp(id)).is_ok_and(|at| snapshot.pods[at].is_virtual),
    };
    let second_wave = is_second_wave(provisioning, desk, snapshot, plan);
    let mut patience: BTreeMap<&Text, Option<UnixMillis>> = BTreeMap::new();
    let mut steps = Steps { placed: Vec::new(), launches: Vec::new(), again_at: None };
    for step in &plan.steps {
        match step {
            Step::Place(placement) => steps.placed.push(placement),
            Step::Launch(launch) if !launch.for_pods.iter().any(is_wanted) => {}
            Step::Launch(_) if second_wave => {
                steps.again_at = earlier(steps.again_at, Some(UnixMillis(desk.now.0 + SETTLE_MS)));
            }
            Step::Launch(launch) if pending.is_interim && !goes_ahead(launch, snapshot) => {}
            Step::Launch(launch) => {
                let pool = &launch.pool.0;
                match *patience.entry(pool).or_insert_with(|| patience::waits_until(desk, pool)) {
                    Some(until) => steps.again_at = earlier(steps.again_at, Some(until)),
                    None => steps.launches.push(launch),
                }
            }
        }
    }
    steps
}

/// Whether every pod of the plan was promised a place that still stands, and kube-scheduler is not done with them: it placed
/// some otherwise than planned, and only when it is done it is known who is left over. What is on its way is used first.
fn is_second_wave(provisioning: &Provisioning, desk: &Desk<'_>, snapshot: &Snapshot, plan: &Plan) -> bool {
    let mut pods = plan.steps.iter().flat_map(|step| match step {
        Step::Place(placement) => &placement.pods,
        Step::Launch(launch) => &launch.for_pods,
    });
    let must_move = |pod: &PodId| {
        let found = snapshot.pods.binary_search_by(|planned| planned.id.cmp(pod));
        found.is_ok_and(|at| snapshot.pods[at].leaving.is_some())
    };
    pods.all(|pod| match desk.nominations.promise_of(pod) {
        Some(promise) => is_settling(provisioning, desk, &promise.place),
        // It was bound, or went, while the plan was made; unless it is bound to a node that goes, and still needs a place.
        None => desk.world.pod(pod).is_some_and(|it| !it.is_active() || (it.is_bound() && !must_move(pod))),
    })
}

/// Whether a promised place is still on its way, or kube-scheduler is still binding pods.
fn is_settling(provisioning: &Provisioning, desk: &Desk<'_>, place: &Text) -> bool {
    let is_binding = desk.now.0 - provisioning.last_bound.0 < SETTLE_MS;
    let node = desk.world.nodes.get(place);
    let claim = desk.world.claims.get(place).or_else(|| desk.world.claim_of_node(node?));
    match claim {
        Some(claim) if claim.metadata.deletion_timestamp.is_some() => false,
        Some(claim) => !is_initialized(claim) || is_binding,
        None => is_binding && node.is_some(),
    }
}

/// The places of all who wait, if every one of them was promised one that is still to be had. There is nothing to think about then: what
/// is on its way is used first, whatever a new plan would say.
pub(super) fn all_promised(
    provisioning: &Provisioning,
    desk: &Desk<'_>,
    snapshot: &Snapshot,
) -> Option<BTreeSet<Text>> {
    let mut places = BTreeSet::new();
    for pod in &snapshot.pods {
        let place = &desk.nominations.promise_of(&pod.id).filter(|_| !pod.is_virtual)?.place;
        if !places.contains(place) {
            if !is_settling(provisioning, desk, place) {
                return None;
            }
            places.insert(place.clone());
        }
    }
    Some(places)
}

/// Whether a launch need not wait for company: it is full, and none of its pods looks at where others are. Those are planned
/// together or not at all: half of a spread is not a spread.
fn goes_ahead(launch: &Launch, snapshot: &Snapshot) -> bool {
    let is_alone = |id: &PodId| {
        let Ok(at) = snapshot.pods.binary_search_by(|pod| pod.id.cmp(id)) else { return false };
        let demand = snapshot.demand(snapshot.pods[at].demand);
        demand.spreads.is_empty() && demand.affinity.is_empty() && demand.anti_affinity.is_empty()
    };
    is_full(launch, snapshot) && launch.for_pods.iter().all(is_alone)
}

/// Whether more pods would hardly find room on it.
fn is_full(launch: &Launch, snapshot: &Snapshot) -> bool {
    let Some(first) = launch.any_of.first().and_then(|option| type_of(launch, option, snapshot)) else {
        return false;
    };
    let allocatable = first.allocatable();
    [resources::CPU, resources::MEMORY, resources::PODS].iter().any(|name| {
        let (asked, offered) = (launch.requests.get(name).milli, allocatable.get(name).milli);
        offered > 0 && asked >= offered / 10 * FULL_TENTHS
    })
}

fn type_of<'a>(launch: &Launch, option: &LaunchOption, snapshot: &'a Snapshot) -> Option<&'a Arc<InstanceType>> {
    let pool = snapshot.pools.iter().find(|pool| pool.name == launch.pool)?;
    pool.types.iter().find(|it| it.name == option.instance_type)
}

/// The request that creates a launch's claim; None where the pool has a duration that is none, which its status says.
/// `overlaid` says what overlays changed of the pool's types.
pub(super) fn create(
    launch: &Launch,
    pool: &NodePool,
    snapshot: &Snapshot,
    overlaid: Option<&BTreeMap<TypeName, Changed>>,
) -> Option<ApiCall> {
    let texts =
        |labels: &kerf_model::Labels| labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let mut annotations = BTreeMap::from([(MIN_VALUES_RELAXED.to_owned(), launch.min_values_relaxed.to_string())]);
    let changed = || launch.any_of.iter().filter_map(|option| overlaid?.get(&option.instance_type));
    for (key, is_so) in [
        (PRICE_OVERLAY_APPLIED, changed().any(|changed| changed.price)),
        (CAPACITY_OVERLAY_APPLIED, changed().any(|changed| changed.capacity)),
    ] {
        annotations.extend(is_so.then(|| (key.to_owned(), "true".to_owned())));
    }
    let wish = Wish {
        name: launch.claim.0.clone(),
        requirements: claims::written(&launch.requirements),
        labels: texts(&launch.labels),
        annotations,
        requests: launch.requests.clone(),
        reserves: most(launch, snapshot),
    };
    match claims::claim_for(pool, wish) {
        Ok(claim) => Some(write::create(NODE_CLAIMS, "", &claim)),
        Err(error) => {
            tracing::error!(controller = "provisioner", NodePool = %launch.pool, %error, "creating nodeclaim");
            None
        }
    }
}

/// The most that the node may have, whichever of its options the cloud picks.
fn most(launch: &Launch, snapshot: &Snapshot) -> Resources {
    let mut most = Resources::new();
    let Some(pool) = snapshot.pools.iter().find(|pool| pool.name == launch.pool) else {
        return most;
    };
    for option in launch.any_of.iter() {
        if let Some(it) = pool.types.iter().find(|it| it.name == option.instance_type) {
            most.raise_to(&it.capacity);
        }
    }
    most
}

/// Promises a place to pods, and tells them.
pub(super) fn promise(desk: &mut Desk<'_>, place: &Text, pods: &[PodId], snapshot: &Snapshot) {
    let until = UnixMillis(desk.now.0 + desk.options.nomination_ms());
    let mut is_real = false;
    let words = words_for(desk, place);
    for id in pods {
        let Some(pod) = desk.world.pod(id).cloned() else { continue };
        is_real = true;
        let is_first = desk.nominations.promise_of(id).is_none();
        if is_kept(desk, id) {
            continue;
        }
        if !desk.nominations.promise(id, place, desk.now) {
            continue;
        }
        if is_first {
            let seconds = (snapshot.now.0 - pod.created.0).max(0) as f64 / 1_000.0;
            desk.metrics.observe(&families::PODS_SCHEDULING_DECISION_DURATION_SECONDS, &[], seconds);
        }
        let about = About::pod(id, &pod.uid);
        desk.event(Event::normal(about, "Nominated", words.clone()).at_most(5));
    }
    if is_real {
        desk.nominations.nominate(place, until);
    }
}

/// The nodes and claims that hold room for buffers once this plan is carried out.
pub(super) fn places_for_buffers(snapshot: &Snapshot, plan: &Plan) -> BTreeSet<Text> {
    let are_virtual: BTreeSet<&PodId> = snapshot.pods.iter().filter(|pod| pod.is_virtual).map(|pod| &pod.id).collect();
    let holds_any = |pods: &[PodId]| pods.iter().any(|pod| are_virtual.contains(pod));
    let places = plan.steps.iter().filter_map(|step| match step {
        Step::Place(placement) if holds_any(&placement.pods) => Some(placement.node.0.clone()),
        Step::Launch(launch) if holds_any(&launch.for_pods) => Some(launch.claim.0.clone()),
        Step::Place(_) | Step::Launch(_) => None,
    });
    places.collect()
}

/// Whether a pod's promise stands whatever a later plan says: who binds early binds as promised.
fn is_kept(desk: &Desk<'_>, id: &PodId) -> bool {
    let Some(promise) = desk.nominations.promise_of(id).filter(|_| desk.options.gates.early_binding) else {
        return false;
    };
    let claim = desk.world.claims.get(&promise.place);
    claim.is_some_and(|claim| claim.metadata.deletion_timestamp.is_none() && !is_initialized(claim))
}

/// `Pod should schedule on: nodeclaim/x, node/y`, as far as they exist.
fn words_for(desk: &Desk<'_>, place: &Text) -> String {
    if let Some(node) = desk.world.nodes.get(place) {
        return match desk.world.claim_of_node(node).and_then(|claim| claim.metadata.name.as_deref()) {
            Some(claim) => format!("Pod should schedule on: nodeclaim/{claim}, node/{place}"),
            None => format!("Pod should schedule on: node/{place}"),
        };
    }
    format!("Pod should schedule on: nodeclaim/{place}")
}

pub(super) fn is_disrupted(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().any(|taint| taint.key == taints::DISRUPTED && taint.effect == taints::NO_SCHEDULE)
}

pub(super) fn is_ready(pool: &NodePool) -> bool {
    let conditions = pool.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn is_initialized(claim: &NodeClaim) -> bool {
    let conditions = claim.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Initialized" && condition.status == "True")
}

pub(super) fn pool_of(claim: &NodeClaim) -> &str {
    claim.metadata.labels.as_ref().and_then(|labels| labels.get(NODE_POOL)).map(String::as_str).unwrap_or_default()
}

pub(super) fn annotation<'a>(claim: &'a NodeClaim, key: &str) -> &'a str {
    let annotations = claim.metadata.annotations.as_ref();
    annotations.and_then(|annotations| annotations.get(key)).map(String::as_str).unwrap_or_default()
}

/// The first few of them, and how many more there are.
pub(super) fn few<'a>(ids: impl Iterator<Item = &'a PodId>) -> String {
    const FEW: usize = 5;
    let ids: Vec<&PodId> = ids.collect();
    let mut words: Vec<String> = ids.iter().take(FEW).map(ToString::to_string).collect();
    if ids.len() > FEW {
        words.push(format!("and {} other(s)", ids.len() - FEW));
    }
    words.join(", ")
}

pub(super) fn requests_in_words(claim: &NodeClaim) -> String {
    let requests = claim.spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let words = requests.into_iter().flatten().map(|(name, amount)| format!("{name}={}", amount.0));
    words.collect::<Vec<_>>().join(" ")
}

pub(super) fn types_in_words(claim: &NodeClaim) -> String {
    const FEW: usize = 5;
    let types = claim.spec.requirements.iter().find(|requirement| requirement.key == INSTANCE_TYPE);
    let names = types.map(|requirement| requirement.values.as_slice()).unwrap_or_default();
    let shown = names.iter().take(FEW).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > FEW { format!("{shown} and {} other(s)", names.len() - FEW) } else { shown }
}
