//! Provisioning: pods that found no place become claims for nodes.
//!
//! ```text
//! pod waits ─▶ window (quiet for a second, ten at most) ─▶ snapshot ─▶ thought ─▶ claims, promises, events
//!                 └── after a while: what is full already goes out, the rest waits on
//! ```
//!
//! One thought at a time, and none before every claim of the last one is in the world: so that what was decided is seen, limits
//! are never crossed, and nothing is bought twice.

mod apply;
mod patience;
mod window;

use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::{ApiCall, ApiFailure, Outcome, Thought};
use crate::events::{About, Event, MESSAGE_MAX, cut};
use crate::guard::Defect;
use crate::limits::POISON_TOLD_MAX;
use crate::metrics::families;
use crate::overlays;
use crate::poison::{Poison, Quarantine};
use crate::queue::{Queue, earlier};
use crate::record::Decision;
use crate::resource::{NODE_CLAIMS, NODE_POOLS};
use crate::supply::CloudSupply;
use crate::world::{Change, World};
use crate::write;
use kerf_mirror::{PodState, WaitsFor};
use kerf_model::{Plan, PodId, PoolName, Report, Revision, Snapshot, Text, UnixMillis, Why};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use window::{Window, Workload};

/// A pod that nothing could be done for is looked at again after this long, if anything changed.
const AGAIN_MS: i64 = 10_000;
/// A thought that panicked is not thought again before.
const AFTER_DEFECT_MS: i64 = 60_000;
/// The answers of one cloud to one storm of claims come together; one look serves them all.
const AFTER_FAILURE_MS: i64 = 100;
/// Between two tries to create a claim of which nobody knows whether it is there.
const UNANSWERED_MS: (i64, i64) = (1_000, 8_000);
/// How often nobody answers before it is given up, and the next plan counts what there is.
const UNANSWERED_MAX: u32 = 5;
/// How long the same refusal is not told again.
const REFUSAL_QUIET_MS: i64 = 300_000;

pub struct Provisioning {
    window: Window,
    /// Everything has been seen once, and nothing was decided yet.
    has_just_begun: bool,
    /// The thought that is being thought.
    pending: Option<Pending>,
    /// Claims whose creation has not been answered.
    creating: BTreeMap<Text, ApiCall>,
    /// Those of them that are asked about again, and when.
    again: Queue<Text>,
    /// What the last thought saw, and when to look again although no pod is new.
    last: Option<(Revision, UnixMillis)>,
    /// Pods that were bound or went since the last time.
    settled: Vec<PodId>,
    /// Claims that went since the last time.
    gone: Vec<Text>,
    /// When a pod was last bound: while kube-scheduler is busy with a backlog, nobody knows what will be left of it.
    last_bound: UnixMillis,
    /// Pods and pools that made a thought panic.
    quarantine: Quarantine,
}

struct Pending {
    began: UnixMillis,
    /// More pods are expected: only what is full goes out.
    is_interim: bool,
    n_pods: usize,
    window_ms: i64,
}

impl Default for Provisioning {
    fn default() -> Self {
        Self {
            window: Window::default(),
            has_just_begun: false,
            pending: None,
            creating: BTreeMap::new(),
            again: Queue::new(UNANSWERED_MS.0, UNANSWERED_MS.1),
            last: None,
            settled: Vec::new(),
            gone: Vec::new(),
            last_bound: UnixMillis(i64::MIN / 2),
            quarantine: Quarantine::default(),
        }
    }
}

impl Duty for Provisioning {
    fn name(&self) -> &'static str {
        "provisioner"
    }

    fn observe(&mut self, change: &Change, world: &World) {
        match change {
            Change::Pod { id, before, after } => {
                let is_waiting = |pod: &Option<Arc<PodState>>| pod.as_ref().is_some_and(|pod| pod.is_waiting);
                let is_fresh =
                    |pod: &Option<Arc<PodState>>| pod.as_ref().is_some_and(|pod| pod.waits_for == WaitsFor::Scheduler);
                if let Some(pod) = after.as_ref().filter(|pod| pod.is_waiting)
                    && !is_waiting(before)
                {
                    self.window.waits(&pod.uid, workload_of(pod), is_fresh(before));
                }
                if let (None, Some(pod)) = (before, after)
                    && is_fresh(after)
                    && let Some(workload) = workload_of(pod)
                {
                    self.window.arrives(workload);
                }
                // Who is evicted has a successor in a moment. A plan in between would count neither, and buy for one pod too few.
                let is_active = |pod: &Option<Arc<PodState>>| pod.as_ref().is_some_and(|pod| pod.is_active());
                if let Some(pod) = after.as_ref().filter(|pod| pod.deleting_since.is_some() && !pod.is_daemon())
                    && is_active(before)
                    && world.nodes.get(&pod.node).is_some_and(|node| apply::is_disrupted(node))
                {
                    self.window.trigger(&pod.uid);
                }
                let is_bound = after.as_ref().is_none_or(|pod| pod.is_bound() || !pod.is_active());
                if is_bound && before.as_ref().is_none_or(|pod| !pod.is_bound()) {
                    self.settled.push(id.clone());
                }
                if after.is_none() {
                    self.quarantine.forget(&Poison::Pod(id.clone()));
                }
            }
            // Pods of a node that goes want another place.
            Change::Node { name, before, after } => {
                let goes = |node: &k8s_openapi::api::core::v1::Node| {
                    node.metadata.deletion_timestamp.is_some() || apply::is_disrupted(node)
                };
                if after.as_ref().is_some_and(|node| goes(node)) && !before.as_ref().is_some_and(|node| goes(node)) {
                    self.window.trigger(&format!("node/{name}").into());
                }
            }
            Change::Claim { name, before, after } => {
                let is_going = |claim: &kerf_api::NodeClaim| claim.metadata.deletion_timestamp.is_some();
                let went = after.as_ref().is_none_or(|claim| is_going(claim));
                if let Some(claim) = before.as_ref().filter(|claim| went && !is_going(claim)) {
                    let who = format!("claim/{name}").into();
                    // Those who were to run on a node that never came have waited once already.
                    match world.node_of_claim(claim) {
                        Some(_) => self.window.trigger(&who),
                        None => self.window.hurry(&who),
                    }
                    self.gone.push(name.clone());
                }
            }
            Change::Pool { name, before, after } => {
                let generation = |pool: &Option<Arc<kerf_api::NodePool>>| {
                    pool.as_ref().map(|pool| (pool.metadata.generation, apply::is_ready(pool)))
                };
                if generation(before) != generation(after) {
                    self.window.trigger(&format!("pool/{name}").into());
                    // What is only looked at again comes without a before.
                    if before.is_some() {
                        self.quarantine.forget(&Poison::Pool(PoolName(name.clone())));
                    }
                }
            }
            Change::Class { class, .. } => self.window.trigger(&format!("class/{}", class.name).into()),
            Change::Other { key } => {
                if matches!(
                    key.kind,
                    kerf_mirror::Kind::CapacityBuffer | kerf_mirror::Kind::PodTemplate | kerf_mirror::Kind::NodeOverlay
                ) {
                    self.window.trigger(&key.to_string().into());
                }
            }
            Change::Synced => {
                self.window.trigger(&"synced".into());
                self.has_just_begun = true;
            }
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        let now = desk.now;
        for id in self.settled.drain(..) {
            self.last_bound = now;
            desk.nominations.fulfilled(&id);
        }
        for claim in self.gone.drain(..) {
            desk.nominations.withdraw(&claim);
        }
        desk.nominations.tidy(now);
        desk.metrics.set(&families::QUARANTINED_OBJECTS, &[self.name()], self.quarantine.len(now) as f64);
        self.window.settle(now);
        if std::mem::take(&mut self.has_just_begun) {
            // Pods that waited before we came have had their company.
            let newest = desk.world.pods().filter(|pod| pod.is_waiting).map(|pod| pod.created).max();
            self.window.is_quiet_since(newest.unwrap_or(now));
        }
        for claim in self.again.take_due(now) {
            if let Some(call) = self.creating.get(&claim) {
                desk.call(&claim, call.clone());
            }
        }
        if !desk.world.is_synced() || self.pending.is_some() || !self.creating.is_empty() {
            return self.again.next();
        }
        if let Some((revision, again)) = self.last
            && again <= now
        {
            // The same facts would give the same answer.
            if desk.world.mirror.revision() != revision || desk.stock.has_recovered(UnixMillis(again.0 - AGAIN_MS), now)
            {
                self.window.trigger(&"again".into());
                self.window.settle(now);
            }
            self.last = Some((revision, UnixMillis(now.0 + AGAIN_MS)));
        }
        match self.window.state(now, desk.options.batch_idle_ms, desk.options.batch_max_ms) {
            window::State::Closed { opened } => self.look(desk, opened, false),
            window::State::Interim { opened } => self.look(desk, opened, true),
            window::State::Waiting(until) => return earlier(Some(until), self.last.map(|(_, again)| again)),
            window::State::Empty => return self.last.map(|(_, again)| again),
        }
        self.last.map(|(_, again)| again)
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        match outcome {
            Outcome::Thought { snapshot, plan, report, poison, defect } => {
                let Some(pending) = self.pending.take() else { return };
                if let Some(defect) = &defect {
                    self.keep_out(poison, defect, desk);
                }
                match plan {
                    Ok(plan) => self.decided(desk, &pending, snapshot, plan, *report),
                    Err(_) if defect.is_some() => {
                        self.last = Some((Revision(u64::MAX), UnixMillis(desk.now.0 + AFTER_DEFECT_MS)));
                    }
                    Err(breaches) => {
                        desk.metrics.add(&families::UNSOUND_PLANS_TOTAL, &[], 1.0);
                        tracing::error!(
                            controller = "provisioner",
                            ?breaches,
                            "a plan would break a rule and is dropped"
                        );
                        self.last = Some((Revision(u64::MAX), UnixMillis(desk.now.0 + AGAIN_MS)));
                    }
                }
            }
            Outcome::Api(Err(failure)) if self.may_be_there(desk, key, &failure) => {}
            Outcome::Api(result) => {
                self.creating.remove(key);
                self.again.forget(key);
                self.created(desk, key, result);
            }
            Outcome::Cloud(_) => {}
        }
    }
}

fn workload_of(pod: &PodState) -> Option<Workload> {
    (!pod.owner_name.is_empty()).then(|| (pod.id.namespace.clone(), pod.owner_name.clone()))
}

impl Provisioning {
    /// Freezes the world and thinks about it.
    fn look(&mut self, desk: &mut Desk<'_>, opened: UnixMillis, is_interim: bool) {
        let now = desk.now;
        let supply = CloudSupply { cloud: &**desk.cloud, shelves: desk.stock, now };
        let mut snapshot = desk.world.mirror.snapshot(now, &supply);
        if let Some(then) = self.quarantine.apply(&mut snapshot, now) {
            self.window.again_at(then);
        }
        let snapshot = Arc::new(snapshot);
        self.last = Some((snapshot.revision, UnixMillis(now.0 + AGAIN_MS)));
        if is_interim {
            self.window.looked(now);
        } else {
            self.window.close();
        }
        let n_pods = snapshot.pods.iter().filter(|pod| !pod.is_virtual).count();
        desk.record.leave_out(now, snapshot.revision, &snapshot.ill);
        self.tell_ill(desk, &snapshot);
        if snapshot.pods.is_empty() {
            desk.nominations.keep_for_buffers(BTreeSet::new());
            if !snapshot.ill.is_empty() {
                return;
            }
            // Nothing waits: nothing to look at again.
            self.last = None;
            desk.metrics.set(&families::SCHEDULER_UNSCHEDULABLE_PODS_COUNT, &["provisioner"], 0.0);
            return;
        }
        if let Some(places) = apply::all_promised(self, desk, &snapshot) {
            desk.nominations.keep_for_buffers(BTreeSet::new());
            let until = UnixMillis(now.0 + desk.options.nomination_ms());
            for place in &places {
                desk.nominations.nominate(place, until);
            }
            self.window.again_at(UnixMillis(now.0 + apply::SETTLE_MS));
            return;
        }
        let window_ms = now.0 - opened.0;
        if n_pods > 0 {
            let pods = apply::few(snapshot.pods.iter().filter(|pod| !pod.is_virtual).map(|pod| &pod.id));
            tracing::info!(
                controller = "provisioner",
                Pods = pods,
                "pods" = n_pods,
                duration = format!("{window_ms}ms"),
                "found provisionable pod(s)"
            );
        }
        desk.metrics.set(&families::SCHEDULER_QUEUE_DEPTH, &["provisioner", "current"], snapshot.pods.len() as f64);
        self.pending = Some(Pending { began: now, is_interim, n_pods, window_ms });
        let (effort, plant) = (desk.options.effort, desk.options.plant);
        desk.think(&"plan".into(), Thought::Capacity { snapshot, effort, plant });
    }

    /// A plan is there: carry it out, as far as it still makes sense.
    fn decided(&mut self, desk: &mut Desk<'_>, pending: &Pending, snapshot: Arc<Snapshot>, plan: Plan, report: Report) {
        let seconds = (desk.now.0 - pending.began.0) as f64 / 1_000.0;
        desk.metrics.observe(&families::SCHEDULER_SCHEDULING_DURATION_SECONDS, &["provisioner"], seconds);
        desk.metrics.set(&families::SCHEDULER_QUEUE_DEPTH, &["provisioner", "current"], 0.0);
        desk.nominations.keep_for_buffers(apply::places_for_buffers(&snapshot, &plan));
        let steps = apply::sort_out(self, desk, pending, &snapshot, &plan);
        for placement in &steps.placed {
            apply::promise(desk, &placement.node.0, &placement.pods, &snapshot);
        }
        if !pending.is_interim {
            self.tell_refused(desk, &report);
        }
        if !steps.launches.is_empty() {
            let n_pods: usize = steps.launches.iter().map(|launch| launch.for_pods.len()).sum();
            tracing::info!(
                controller = "provisioner",
                nodeclaims = steps.launches.len(),
                pods = n_pods,
                batched = pending.n_pods,
                window = format!("{}ms", pending.window_ms),
                "computed new nodeclaim(s) to fit pod(s)"
            );
        }
        let overlaid = match steps.launches.is_empty() {
            true => BTreeMap::new(),
            false => overlays::changed(desk, &snapshot.pools),
        };
        for launch in &steps.launches {
            let Some(pool) = desk.world.pools.get(&launch.pool.0).cloned() else { continue };
            let Some(call) = apply::create(launch, &pool, &snapshot, overlaid.get(&launch.pool)) else { continue };
            self.creating.insert(launch.claim.0.clone(), call.clone());
            apply::promise(desk, &launch.claim.0, &launch.for_pods, &snapshot);
            desk.call(&launch.claim.0, call);
        }
        if let Some(then) = steps.again_at {
            self.window.again_at(then);
        }
        let (at, revision, is_interim) = (desk.now, snapshot.revision, pending.is_interim);
        desk.record.keep(Decision { at, revision, plan, report, is_interim });
    }

    /// Whether a claim may be there although its creation was not answered well: then it is asked about again, under the same name, and
    /// nothing is planned before it is known. A plan that counts neither it nor what it was for would buy twice.
    fn may_be_there(&mut self, desk: &mut Desk<'_>, key: &Text, failure: &ApiFailure) -> bool {
        let Some(call) = self.creating.get_mut(key) else { return false };
        if call.method == "POST" && failure.already_exists() {
            // It is ours: nobody else gives such names. The answer brings it into the world, whenever the watch does.
            *call = write::get(NODE_CLAIMS.path("", key));
            desk.call(key, call.clone());
            return true;
        }
        if !failure.may_be_done() || self.again.n_failures(key) >= UNANSWERED_MAX {
            return false;
        }
        self.again.retry(key.clone(), desk.now);
        true
    }

    fn created(&mut self, desk: &mut Desk<'_>, key: &Text, result: Result<serde_json::Value, ApiFailure>) {
        match result {
            Ok(_) => {
                let Some(claim) = desk.world.claims.get(key) else { return };
                let pool = apply::pool_of(claim);
                let relaxed = apply::annotation(claim, kerf_api::labels::MIN_VALUES_RELAXED);
                desk.metrics.add(&families::NODECLAIMS_CREATED_TOTAL, &["provisioned", pool, relaxed], 1.0);
                tracing::info!(
                    controller = "provisioner",
                    NodePool = pool,
                    NodeClaim = &**key,
                    requests = apply::requests_in_words(claim),
                    "instance-types" = apply::types_in_words(claim),
                    "created nodeclaim"
                );
            }
            Err(failure) => {
                tracing::error!(controller = "provisioner", NodeClaim = &**key, error = %failure, "creating nodeclaim");
                desk.nominations.withdraw(key);
                self.window.again_at(UnixMillis(desk.now.0 + 1_000));
            }
        }
    }

    /// Leaves out of the next thoughts the pods and pools that made this one panic.
    fn keep_out(&mut self, poison: Vec<Poison>, defect: &Defect, desk: &mut Desk<'_>) {
        let name = "provisioner";
        desk.metrics.add(&families::DEFECTS_TOTAL, &[name], 1.0);
        tracing::error!(controller = name, error = %defect, n_left_out = poison.len(), "held a panic while planning");
        let n_more = poison.len().saturating_sub(POISON_TOLD_MAX);
        for (nth, poison) in poison.into_iter().enumerate() {
            let minutes = self.quarantine.keep(poison.clone(), desk.now) / 60_000;
            // Replicas of one workload are one story.
            if nth >= POISON_TOLD_MAX {
                continue;
            }
            let words = format!("planning panics because of it, and leaves it out for {minutes} minutes ({defect})");
            tracing::error!(controller = name, object = %poison, "{words}");
            let about = match &poison {
                Poison::Pod(id) => desk.world.pod(id).map(|pod| About::pod(id, &pod.uid)),
                Poison::Pool(pool) => desk.world.pools.get(&pool.0).map(|pool| About::of(NODE_POOLS, &pool.metadata)),
            };
            if let Some(about) = about {
                desk.event(Event::warning(about, "Quarantined", crate::events::cut(words)));
            }
        }
        if n_more > 0 {
            tracing::error!(controller = name, pods = n_more, "so many more are left out with them");
        }
        self.window.again_at(UnixMillis(desk.now.0 + AFTER_DEFECT_MS));
    }

    fn tell_refused(&self, desk: &mut Desk<'_>, report: &Report) {
        let n_real = report.refused.len();
        desk.metrics.set(&families::SCHEDULER_UNSCHEDULABLE_PODS_COUNT, &["provisioner"], n_real as f64);
        let mut told: BTreeSet<*const kerf_model::Refusal> = BTreeSet::new();
        let mut empty_pools: BTreeSet<Text> = BTreeSet::new();
        for (id, refusal) in &report.refused {
            let awaits = refusal.verdicts.iter().any(|verdict| matches!(verdict.why, Why::ReservationAwaited { .. }));
            if awaits {
                continue;
            }
            for verdict in &refusal.verdicts {
                if let (Some(pool), Why::PoolMatchesNoType { .. }) = (&verdict.pool, &verdict.why) {
                    empty_pools.insert(pool.0.clone());
                }
            }
            // Alike pods share one refusal: the log names it once, with how many.
            if told.insert(Arc::as_ptr(refusal)) {
                let n_alike = report.refused.iter().filter(|(_, other)| Arc::ptr_eq(other, refusal)).count();
                tracing::error!(
                    controller = "provisioner",
                    Pod = %id,
                    pods = n_alike,
                    error = %refusal,
                    "could not schedule pod"
                );
            }
            self.tell_failed(desk, id, |most| refusal.within(most));
        }
        for name in empty_pools {
            if let Some(pool) = desk.world.pools.get(&name) {
                let about = About::of(NODE_POOLS, &pool.metadata);
                let message = "NodePool requirements filtered out all compatible available instance types";
                desk.event(Event::warning(about, "NoCompatibleInstanceTypes", message).quiet_for(60_000));
            }
        }
    }

    fn tell_ill(&self, desk: &mut Desk<'_>, snapshot: &Snapshot) {
        desk.metrics.set(&families::SCHEDULER_IGNORED_PODS_COUNT, &[], snapshot.ill.len() as f64);
        for (id, why) in &snapshot.ill {
            if !matches!(why, Why::NotForUs) {
                self.tell_failed(desk, id, |_| why.to_string());
            }
        }
    }

    /// For many this event is all they may read: it has the whole reason, as far as an event can.
    fn tell_failed(&self, desk: &mut Desk<'_>, id: &PodId, words: impl FnOnce(usize) -> String) {
        const BEGINNING: &str = "Failed to schedule pod, ";
        let Some(pod) = desk.world.pod(id) else { return };
        let about = About::pod(id, &pod.uid);
        let message = cut(format!("{BEGINNING}{}", words(MESSAGE_MAX - BEGINNING.len())));
        desk.event(Event::warning(about, "FailedScheduling", message).quiet_for(REFUSAL_QUIET_MS));
    }
}
