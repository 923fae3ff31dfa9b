//! From a NodeClaim to a machine and back: the duty `nodeclaim.lifecycle`.
//!
//! ```text
//! live:      finalizer ─▶ launch ─▶ registration ─▶ initialization        liveness: 5 min to launch, 15 min to register
//!               │           │            │                │
//!               ▼           ▼            ▼                ▼
//!            metadata   the cloud    Node: sync       Node: label          then the claim's status, in one patch
//!
//! deleting:  deadline ─▶ delete its Nodes, wait ─▶ end the instance, every 5 s until it is gone ─▶ finalizer off
//! ```
//!
//! Each look at a claim does the next thing that is missing, one write at a time; the answer brings the next look. What the cloud is
//! asked has a key of its own, so a cloud that does not answer stops neither the timeouts nor any other claim. Nothing here waits
//! for another claim.
//!
//! What must survive a restart is in the objects. What is kept in memory only saves work, with one exception that the
//! provider covers: an instance whose claim does not name it yet is asked for again, and the provider answers with the same one.

mod finalize;
mod initialize;
mod late_labels;
mod launch;
pub(crate) mod liveness;
mod register;
mod release;
pub mod removal;

use crate::conditions::{Conditions, NODE_CLAIM};
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::metrics::families;
use crate::queue::{Queue, earlier};
use crate::resource::{NODE_CLAIMS, NODES};
use crate::standstill::Voluntary;
use crate::world::{Change, World, claim_provider_id, provider_id};
use crate::write;
use kerf_api::labels::{TERMINATION_FINALIZER, ZONE};
use kerf_api::{NodeClaim, labels};
use kerf_cloud::{CloudProvider, Instance};
use kerf_model::{Labels, Text, UnixMillis};
use removal::{GiveUp, label};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const NAME: &str = "nodeclaim.lifecycle";

const LAUNCHED: &str = "Launched";
const REGISTERED: &str = "Registered";
const INITIALIZED: &str = "Initialized";
const INSTANCE_TERMINATING: &str = "InstanceTerminating";

/// What is asked of the cloud for a claim goes under this prefix: no name of a claim contains it.
const CLOUD: &str = "cloud/";
/// Whose machine it is, is asked under this one: what else the cloud is asked does not wait for it.
const RELEASE: &str = "release/";
/// A write that met a newer object: the newer one is on its way, and its arrival brings the next look.
const CONFLICT_MS: i64 = 1_000;
/// How often a claim that is late is looked at while everything voluntary stands still.
const HELD_MS: i64 = 10_000;
const BACKOFF_MS: (i64, i64) = (1_000, 60_000);

pub struct Lifecycle {
    queue: Queue<Text>,
    /// By claim name.
    memory: BTreeMap<Text, Memory>,
    /// What the write in flight is for, and the claim as it was, by claim name.
    doing: BTreeMap<Text, (Doing, Arc<NodeClaim>)>,
}

/// What is known of a claim beyond its object. Losing it costs a request, not a machine.
#[derive(Debug, Default)]
struct Memory {
    uid: Text,
    /// Certainly no machine was launched for it: its finalizer is new, or the cloud said so.
    is_surely_unlaunched: bool,
    /// Launched, and not in the claim's status yet.
    launched: Option<Arc<Instance>>,
    /// Why it is not launched: for the status.
    trouble: Option<Trouble>,
    n_failures: u32,
    /// Do not ask for a launch again before.
    launch_after: Option<UnixMillis>,
    /// Do not ask for its end again before.
    end_after: Option<UnixMillis>,
    /// When we were the first to work on it.
    begun: Option<UnixMillis>,
    /// What the cloud is being asked.
    asking: Option<Asking>,
    /// The cloud says that there is no instance (any more).
    is_gone: bool,
    /// Since when the cloud lists no instance of it, although one may have been asked for.
    missing_since: Option<UnixMillis>,
    /// When the cloud was first asked to end it.
    ending_since: Option<UnixMillis>,
    /// The cloud has begun to end it.
    is_ending: bool,
    /// Whether a person has taken the machine over; None before the cloud has said so.
    is_released: Option<bool>,
    /// When that was first asked.
    release_asked_at: Option<UnixMillis>,
    n_release_failures: u32,
    /// Do not ask for it again before.
    release_after: Option<UnixMillis>,
    /// Its Node was let go.
    is_freed: bool,
    /// It is to be deleted, and why.
    given_up: Option<GiveUp>,
    is_told_of_missing_taint: bool,
    /// What the cloud last said of the machine's labels, while some are missing.
    late_labels: Option<Labels>,
    /// Do not ask for them again before.
    labels_after: Option<UnixMillis>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Trouble {
    reason: Text,
    message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asking {
    Launch,
    /// Whether there is an instance that nobody wrote down.
    Search,
    /// Labels that the cloud did not know at the launch.
    Labels,
    Terminate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    AddFinalizer,
    /// Labels and annotations of what was launched.
    Describe,
    SyncNode,
    InitializeNode,
    /// With what turned true by it.
    Status {
        launched: bool,
        registered: bool,
        initialized: bool,
    },
    GiveUp(GiveUp),
    Deadline,
    DeleteNode,
    /// Lets a Node stay whose claim goes.
    FreeNode,
    RemoveFinalizer,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self { queue: Queue::new(BACKOFF_MS.0, BACKOFF_MS.1), memory: BTreeMap::new(), doing: BTreeMap::new() }
    }
}

impl Duty for Lifecycle {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, change: &Change, world: &World) {
        match change {
            Change::Claim { name, after, .. } => {
                if after.is_some() {
                    self.queue.add(name.clone());
                } else {
                    self.queue.forget(name);
                    self.memory.remove(name);
                }
            }
            Change::Node { before, after, .. } => {
                let ids = [before, after].into_iter().flatten().filter_map(|node| provider_id(node));
                for name in ids.flat_map(|id| world.claims_of(id)).filter_map(|claim| claim.metadata.name.as_deref()) {
                    self.queue.add(name.into());
                }
            }
            Change::Synced => world.claims.keys().for_each(|name| self.queue.add(name.clone())),
            Change::Pod { .. } | Change::Pool { .. } | Change::Class { .. } | Change::Other { .. } => {}
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !desk.world.is_synced() {
            return None;
        }
        for name in self.queue.take_due(desk.now) {
            // A claim with a write in flight is looked at again when that has ended.
            if desk.is_busy(&name) {
                continue;
            }
            let Some(claim) = desk.world.claims.get(&name).cloned().filter(|claim| is_managed(claim, &**desk.cloud))
            else {
                continue;
            };
            let uid: Text = claim.metadata.uid.as_deref().unwrap_or_default().into();
            // What the cloud was asked about another claim of that name is answered first: its end marks the name again.
            let is_another = self.memory.get(&name).is_none_or(|memory| memory.uid != uid);
            if is_another && (desk.is_busy(&cloud_key(&name)) || desk.is_busy(&release::release_key(&name))) {
                continue;
            }
            let memory = self.memory.entry(name.clone()).or_default();
            if memory.uid != uid {
                *memory = Memory { uid, ..Memory::default() };
            }
            let mut look = Look { name: &name, claim: &claim, memory, desk, doing: None, again: None };
            if claim.metadata.deletion_timestamp.is_some() {
                look.finalize()
            } else {
                look.advance()
            }
            let (doing, then) = (look.doing, look.again);
            if let Some(doing) = doing {
                self.doing.insert(name.clone(), (doing, claim));
            }
            if let Some(then) = then {
                self.queue.add_at(name, then);
            }
        }
        self.queue.next()
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        match outcome {
            Outcome::Cloud(answer) if key.starts_with(RELEASE) => {
                let name: Text = key.strip_prefix(RELEASE).unwrap_or(key).into();
                if let Some(memory) = self.memory.get_mut(&name) {
                    release::answered(&name, memory, answer, desk);
                }
                self.queue.add(name);
            }
            Outcome::Cloud(answer) => {
                let name: Text = key.strip_prefix(CLOUD).unwrap_or(key).into();
                if let Some(memory) = self.memory.get_mut(&name) {
                    match memory.asking.take() {
                        Some(Asking::Launch) => launch::answered(&name, memory, answer, desk),
                        Some(Asking::Search) => finalize::searched(&name, memory, answer, desk),
                        Some(Asking::Labels) => late_labels::answered(&name, memory, answer, desk),
                        Some(Asking::Terminate) => finalize::terminated(&name, memory, answer, desk),
                        None => {}
                    }
                }
                self.queue.add(name);
            }
            Outcome::Api(Ok(_)) => {
                self.queue.succeeded(key);
                let Some((doing, before)) = self.doing.remove(key) else {
                    return;
                };
                // The claim may be gone by now: the write that frees it is its last.
                let claim = desk.world.claims.get(key).cloned().unwrap_or(before);
                if let Some(memory) = self.memory.get_mut(key) {
                    heard(doing, memory, desk.now);
                }
                tell(doing, &claim, desk);
                // Whose finalizer is off has nothing left to do; the watch will say that it is gone.
                match doing {
                    Doing::RemoveFinalizer => {}
                    // An answer that cannot be read shows us no end or label of the Node, and what is not seen would be asked for at once.
                    Doing::DeleteNode | Doing::InitializeNode => {
                        self.queue.add_at(key.clone(), UnixMillis(desk.now.0 + CONFLICT_MS))
                    }
                    _ => self.queue.add(key.clone()),
                }
            }
            Outcome::Api(Err(failure)) => {
                let doing = self.doing.remove(key).map(|(doing, _)| doing);
                if failure.is_conflict() {
                    self.queue.add_at(key.clone(), UnixMillis(desk.now.0 + CONFLICT_MS));
                } else if failure.is_not_found() {
                    // The claim or its Node is gone; the watch has it, or will.
                    self.queue.add_at(key.clone(), UnixMillis(desk.now.0 + CONFLICT_MS));
                } else {
                    tracing::error!(
                        controller = NAME, NodeClaim = &**key, doing = ?doing, error = %failure, "writing a nodeclaim failed"
                    );
                    self.queue.retry(key.clone(), desk.now);
                }
            }
            Outcome::Thought { .. } => {}
        }
    }
}

/// One look at one claim: at most one write, and perhaps a question to the cloud.
struct Look<'a, 'b, 'c> {
    name: &'a Text,
    claim: &'a NodeClaim,
    memory: &'a mut Memory,
    desk: &'b mut Desk<'c>,
    doing: Option<Doing>,
    /// Look again then, even if nothing changes.
    again: Option<UnixMillis>,
}

impl Look<'_, '_, '_> {
    /// A claim that lives.
    fn advance(&mut self) {
        if !has_finalizer(self.claim) {
            // Before anything is launched: whoever deletes the claim from now on meets the finalizer.
            let mut finalizers = self.claim.metadata.finalizers.clone().unwrap_or_default();
            finalizers.push(TERMINATION_FINALIZER.to_owned());
            self.patch(json!({"metadata": {"finalizers": finalizers}}), Doing::AddFinalizer);
            return;
        }
        if let Some(give_up) = self.memory.given_up {
            self.delete(give_up);
            return;
        }
        let now = self.desk.now;
        let mut conditions = self.conditions();
        let mut status = json!({});

        let launched = self.launch(&mut conditions, &mut status);
        if self.doing.is_some() {
            return;
        }
        let registered = self.register(&mut conditions, &mut status);
        if self.doing.is_some() {
            return;
        }
        let initialized = self.initialize(&mut conditions);
        if self.doing.is_some() {
            return;
        }
        match liveness::judge(&conditions, self.memory.begun, now) {
            liveness::Judgement::Alive => {}
            liveness::Judgement::Until(then) => self.again = earlier(self.again, Some(then)),
            liveness::Judgement::Late(give_up) if self.desk.may_begin(Voluntary::Liveness).is_ok() => {
                self.delete(give_up);
                return;
            }
            liveness::Judgement::Late(_) => self.again = earlier(self.again, Some(UnixMillis(now.0 + HELD_MS))),
        }
        let has_news = conditions.is_changed() || status != json!({});
        // An answer of the cloud is about to change the status anyway.
        if has_news && self.memory.asking.is_none() {
            status["conditions"] = json!(conditions.list());
            let version = self.claim.metadata.resource_version.as_deref();
            let patch = write::if_unchanged(json!({"status": status}), version);
            let call = write::patch_status(NODE_CLAIMS, "", self.name, patch);
            self.desk.call(self.name, call);
            self.doing = Some(Doing::Status { launched, registered, initialized });
        }
    }

    fn conditions(&self) -> Conditions {
        let stored = self.claim.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        Conditions::of(NODE_CLAIM, &self.claim.metadata, stored)
    }

    /// Patches the claim's own object, unless it has changed meanwhile.
    fn patch(&mut self, patch: Value, doing: Doing) {
        let patch = write::if_unchanged(patch, self.claim.metadata.resource_version.as_deref());
        self.desk.call(self.name, write::patch(NODE_CLAIMS, "", self.name, patch));
        self.doing = Some(doing);
    }

    fn patch_node(&mut self, name: &str, patch: Value, doing: Doing) {
        self.desk.call(self.name, write::patch(NODES, "", name, patch));
        self.doing = Some(doing);
    }

    fn delete(&mut self, give_up: GiveUp) {
        self.memory.given_up = Some(give_up);
        let uid = self.claim.metadata.uid.as_deref();
        self.desk.call(self.name, write::delete(NODE_CLAIMS, "", self.name, uid));
        self.doing = Some(Doing::GiveUp(give_up));
    }
}

/// What a write that is in the store means for what is remembered.
fn heard(doing: Doing, memory: &mut Memory, now: UnixMillis) {
    match doing {
        Doing::AddFinalizer => (memory.is_surely_unlaunched, memory.begun) = (true, Some(now)),
        Doing::Status { launched: true, .. } => memory.launched = None,
        Doing::GiveUp(_) => memory.given_up = None,
        Doing::FreeNode => memory.is_freed = true,
        _ => {}
    }
}

/// Tells of a write that is in the store.
fn tell(doing: Doing, claim: &NodeClaim, desk: &mut Desk<'_>) {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let id = claim_provider_id(claim).unwrap_or_default();
    let node = claim.status.as_ref().and_then(|status| status.node_name.as_deref()).unwrap_or_default();
    match doing {
        Doing::Status { launched, registered, initialized } => {
            if launched {
                tracing::info!(
                    controller = NAME,
                    NodeClaim = name,
                    "provider-id" = id,
                    "instance-type" = label(claim, labels::INSTANCE_TYPE),
                    zone = label(claim, ZONE),
                    "capacity-type" = label(claim, labels::CAPACITY_TYPE),
                    "launched nodeclaim"
                );
            }
            if registered {
                let series = [label(claim, labels::NODE_POOL), label(claim, ZONE)];
                desk.metrics.add(&families::NODES_CREATED_TOTAL, &series, 1.0);
                register::teach(claim, desk);
                tracing::info!(
                    controller = NAME,
                    NodeClaim = name,
                    Node = node,
                    "provider-id" = id,
                    "registered nodeclaim"
                );
            }
            if initialized {
                tracing::info!(
                    controller = NAME,
                    NodeClaim = name,
                    Node = node,
                    "provider-id" = id,
                    "initialized nodeclaim"
                );
            }
        }
        Doing::GiveUp(give_up) => {
            removal::count(desk.metrics, claim, give_up.reason());
            tracing::info!(controller = NAME, NodeClaim = name, reason = give_up.reason(), "gave a nodeclaim up");
        }
        Doing::Deadline => finalize::annotated(claim, desk),
        Doing::RemoveFinalizer => finalize::finished(claim, desk),
        Doing::AddFinalizer
        | Doing::Describe
        | Doing::SyncNode
        | Doing::InitializeNode
        | Doing::DeleteNode
        | Doing::FreeNode => {}
    }
}

/// Whether a claim is of a class that the provider serves.
pub fn is_managed(claim: &NodeClaim, cloud: &dyn CloudProvider) -> bool {
    let reference = &claim.spec.node_class_ref;
    cloud.node_classes().iter().any(|kind| *kind.group == *reference.group && *kind.kind == *reference.kind)
}

fn has_finalizer(claim: &NodeClaim) -> bool {
    claim.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == TERMINATION_FINALIZER)
}

/// The key under which the cloud is asked about a claim.
fn cloud_key(name: &Text) -> Text {
    format!("{CLOUD}{name}").into()
}

/// How long to wait after so many failures.
fn backoff_ms(n_failures: u32) -> i64 {
    BACKOFF_MS.0.saturating_mul(1 << n_failures.saturating_sub(1).min(16)).min(BACKOFF_MS.1)
}

#[cfg(test)]
pub(crate) mod testing;
