//! A Node that is being deleted, from the first taint to the last finalizer.

use super::drain::Drain;
use super::eviction::Until;
use super::volumes::Attachments;
use crate::conditions::{Conditions, NODE_CLAIM, Status};
use crate::desk::Desk;
use crate::disruption::marks;
use crate::duty::Duty;
use crate::errand::{CloudCall, Outcome};
use crate::events::{About, Event, QUIET_MS, timestamp};
use crate::limits::UNSEEN_PODS;
use crate::metrics::families;
use crate::moment::after;
use crate::queue::{Queue, earlier};
use crate::resource::{NODE_CLAIMS, NODES, PODS};
use crate::world::{Change, World, claim_provider_id, is_ready, provider_id};
use crate::write;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kerf_api::{NodeClaim, labels};
use kerf_cloud::{CloudProvider, InstanceRef};
use kerf_mirror::Kind;
use kerf_model::{NodeClassRef, Text, UnixMillis};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Between failures.
const BACKOFF_MS: (i64, i64) = (100, 10_000);
/// A drain lasts so long at least, so that load balancers and others see the taint before the machine ends.
const DRAIN_AT_LEAST_MS: i64 = 5_000;
const VOLUMES_AGAIN_MS: i64 = 1_000;
const MACHINE_AGAIN_MS: i64 = 5_000;
/// Between two looks at who is on a node, as long as the watch is behind.
const UNSEEN_AGAIN_MS: i64 = 2_000;
/// The first time it is asked again sooner: some clouds end a machine at once.
const MACHINE_SOON_MS: i64 = 1_000;

/// What the question for a machine begins with, as a key: no node has a name with this in it.
const ASK: &str = "machine/";

const DRAINED: &str = "Drained";
const VOLUMES_DETACHED: &str = "VolumesDetached";
const INSTANCE_TERMINATING: &str = "InstanceTerminating";

/// Ends nodes. Keys are their names.
#[derive(Debug)]
pub struct NodeTermination {
    queue: Queue<Text>,
    going: BTreeMap<Text, Going>,
    attachments: Attachments,
}

/// What is remembered of a node on its way out. All of it may be forgotten: it is asked or done again.
#[derive(Debug, Default)]
struct Going {
    under_way: Option<Step>,
    /// The node as it was when it was let go: it may be gone before we hear of it.
    released: Option<Arc<Node>>,
    /// When the cloud last said whether it has the machine of a node that is not ready.
    asked_at: Option<UnixMillis>,
    /// When the cloud was last asked to end the machine, and said that it would.
    ending_at: Option<UnixMillis>,
    /// How long to wait until it is asked again.
    ask_after_ms: i64,
    /// The cloud has no such machine: nothing is left to wait for.
    has_no_machine: bool,
    /// When the API server itself last said that nobody is on it whom we do not know.
    counted_at: Option<UnixMillis>,
    /// Since when it says otherwise.
    unseen_since: Option<UnixMillis>,
    /// Since when nobody is on it, where no condition says since when it drains.
    free_since: Option<UnixMillis>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    DeleteClaim,
    Taint,
    Tell { is_drained: bool },
    CountPods,
    EndMachine,
    Release { is_drained: bool },
}

impl Default for NodeTermination {
    fn default() -> Self {
        Self {
            queue: Queue::new(BACKOFF_MS.0, BACKOFF_MS.1),
            going: BTreeMap::new(),
            attachments: Attachments::default(),
        }
    }
}

impl Duty for NodeTermination {
    fn name(&self) -> &'static str {
        "node.termination"
    }

    fn observe(&mut self, change: &Change, world: &World) {
        match change {
            Change::Node { name, after, .. } => {
                if after.as_ref().is_some_and(|node| is_going(&node.metadata)) {
                    self.going.entry(name.clone()).or_default();
                    self.queue.add(name.clone());
                } else if self.going.get(name).is_some_and(|going| going.released.is_none()) {
                    self.forget(name);
                }
            }
            Change::Pod { before, after, .. } => {
                for pod in [before, after].into_iter().flatten() {
                    self.mark(&pod.node);
                }
            }
            Change::Claim { before, after, .. } => {
                for claim in [before, after].into_iter().flatten() {
                    for node in claim_provider_id(claim).map(|id| world.nodes_of(id)).unwrap_or_default() {
                        self.mark(node.metadata.name.as_deref().unwrap_or_default());
                    }
                }
            }
            Change::Other { key } if key.kind == Kind::VolumeAttachment => {
                if let Some(node) = self.attachments.observe(&key.name, world) {
                    self.mark(&node);
                }
            }
            _ => {}
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !desk.world.is_synced() {
            return None;
        }
        for name in self.queue.take_due(desk.now) {
            if let Some(again) = self.look_at(&name, desk) {
                self.queue.add_at(name, again);
            }
        }
        self.queue.next()
    }

    fn done(&mut self, name: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        if let Some(name) = name.strip_prefix(ASK) {
            self.heard_of_machine(&name.into(), &outcome, desk.now);
            return;
        }
        let Some(going) = self.going.get_mut(name) else {
            return;
        };
        let Some(step) = going.under_way.take() else {
            return;
        };
        let released = going.released.take();
        let failure = match (step, outcome) {
            (Step::Release { is_drained }, Outcome::Api(Ok(_))) => {
                if let Some(node) = released {
                    tell_released(&node, is_drained, desk);
                }
                self.forget(name);
                return;
            }
            (Step::Release { .. }, Outcome::Api(Err(error))) if error.is_not_found() => {
                self.forget(name);
                return;
            }
            (Step::CountPods, Outcome::Api(Ok(list))) => {
                let unseen = desk.world.unseen_of(&list, name);
                if unseen.is_empty() {
                    (going.counted_at, going.unseen_since) = (Some(desk.now), None);
                } else {
                    // A watch that is known to be behind is waited for, however long.
                    if desk.world.stale().contains(&Kind::Pod) {
                        going.unseen_since = None;
                    }
                    going.unseen_since.get_or_insert(desk.now);
                    tracing::warn!(
                        controller = "node.termination", Node = %name, pods = unseen.join(", "),
                        "the node looks drained, but the API server lists pods on it that the watch has not shown yet"
                    );
                    self.queue.add_at(name.clone(), UnixMillis(desk.now.0 + UNSEEN_AGAIN_MS));
                    return;
                }
                None
            }
            // An answer that cannot be read shows us no end of the claim, and what is not seen would be asked for at once.
            (Step::DeleteClaim, Outcome::Api(Ok(_))) => {
                tell_success(step, name, desk);
                self.queue.succeeded(name);
                self.queue.add_at(name.clone(), UnixMillis(desk.now.0 + UNSEEN_AGAIN_MS));
                return;
            }
            (_, Outcome::Api(Ok(_))) => {
                tell_success(step, name, desk);
                None
            }
            (_, Outcome::Cloud(Ok(_))) => {
                going.ask_after_ms = if going.ending_at.is_none() { MACHINE_SOON_MS } else { MACHINE_AGAIN_MS };
                going.ending_at = Some(desk.now);
                None
            }
            (_, Outcome::Cloud(Err(error))) if error.is_not_found() => {
                going.has_no_machine = true;
                None
            }
            (_, Outcome::Cloud(Err(error))) => Some((false, error.to_string())),
            // A change that we have not seen yet comes by the watch, and then it is looked at again.
            (_, Outcome::Api(Err(error))) => Some((error.is_conflict() || error.is_not_found(), error.to_string())),
            (_, Outcome::Thought { .. }) => None,
        };
        match failure {
            None => {
                self.queue.succeeded(name);
                self.queue.add(name.clone());
            }
            Some((is_expected, error)) => {
                if !is_expected {
                    tracing::error!(controller = "node.termination", Node = %name, ?step, error, "failed to terminate node");
                }
                self.queue.retry(name.clone(), desk.now);
            }
        }
    }
}

impl NodeTermination {
    /// The cloud was asked whether it has the machine. Not to know is no reason not to drain.
    fn heard_of_machine(&mut self, name: &Text, outcome: &Outcome, now: UnixMillis) {
        let Some(going) = self.going.get_mut(name) else {
            return;
        };
        going.asked_at = Some(now);
        going.has_no_machine |= matches!(outcome, Outcome::Cloud(Err(error)) if error.is_not_found());
        self.queue.add(name.clone());
    }

    fn forget(&mut self, name: &Text) {
        self.going.remove(name);
        self.queue.forget(name);
    }

    fn mark(&mut self, node: &str) {
        if let Some((name, _)) = self.going.get_key_value(node) {
            self.queue.add(name.clone());
        }
    }

    /// Takes the next step of one node. Answers when to look again, unless an errand's end or a change says so.
    fn look_at(&mut self, name: &Text, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        let node = desk.world.nodes.get(name)?.clone();
        let claim = desk.world.claim_of_node(&node).cloned();
        let going = self.going.get_mut(name)?;
        if going.under_way.is_some() || !is_ours(&node, claim.as_deref(), &**desk.cloud) {
            return None;
        }
        if let Some(claim) = &claim
            && claim.metadata.deletion_timestamp.is_none()
        {
            going.under_way = Some(Step::DeleteClaim);
            let (claim_name, uid) = (name_of(&claim.metadata), claim.metadata.uid.as_deref());
            desk.call(name, write::delete(NODE_CLAIMS, "", claim_name, uid));
            return None;
        }
        let mut again = None;
        if going.has_no_machine {
            going.under_way = Some(Step::Release { is_drained: false });
            going.released = Some(node.clone());
            desk.call(name, release(&node));
            return None;
        }
        if !is_ready(&node)
            && let Some(provider_id) = provider_id(&node)
        {
            // Asked beside: a cloud that does not answer keeps nobody from draining.
            let ask_at = going.asked_at.map_or(desk.now, |at| UnixMillis(at.0 + MACHINE_AGAIN_MS));
            let key: Text = format!("{ASK}{name}").into();
            if ask_at > desk.now {
                again = Some(ask_at);
            } else if !desk.is_busy(&key) {
                desk.ask_cloud(&key, CloudCall::Get { provider_id: provider_id.into() });
            }
        }
        let deadline = claim.as_deref().and_then(termination_time);
        if let Some(deadline) = deadline {
            let message = format!("All pods will be deleted by {}", timestamp(deadline));
            let event = Event::warning(About::of(NODES, &node.metadata), "TerminationGracePeriodExpiring", message);
            desk.event(event.same_by([name.clone()]));
        }
        if !marks::is_closed(&node) {
            going.under_way = Some(Step::Taint);
            desk.call(name, marks::close(&node));
            return None;
        }
        let mut conditions = claim.as_deref().map(conditions_of);
        let was_drained = conditions.as_ref().is_some_and(|conditions| conditions.is_true(DRAINED));
        let stage =
            Stages { attachments: &self.attachments, node: &node, name, deadline, free_since: &mut going.free_since }
                .look(conditions.as_mut(), desk);
        if going.ending_at.is_some()
            && let Some(conditions) = &mut conditions
        {
            conditions.set_true(INSTANCE_TERMINATING, desk.now);
        }
        if let (Some(claim), Some(conditions)) = (&claim, &conditions)
            && conditions.is_changed()
        {
            going.under_way = Some(Step::Tell { is_drained: !was_drained && conditions.is_true(DRAINED) });
            let patch = json!({"status": conditions.to_value()});
            let patch = write::if_unchanged(patch, claim.metadata.resource_version.as_deref());
            desk.call(name, write::patch_status(NODE_CLAIMS, "", name_of(&claim.metadata), patch));
            return None;
        }
        if matches!(stage, Stage::Waiting(_)) {
            (going.counted_at, going.unseen_since) = (None, None);
        } else if must_count(going, deadline, desk.now) {
            // What we know of pods may be behind. The machine ends with whoever is on it, so who is there is asked for once more.
            going.under_way = Some(Step::CountPods);
            desk.call(name, write::get(PODS.on_node(name)));
            return None;
        }
        match (stage, &claim) {
            (Stage::Waiting(until), _) => return earlier(again, until),
            (Stage::Empty, Some(claim)) => {
                let provider_id = claim_provider_id(claim).expect("a node finds its claim by this id");
                let end_at = going.ending_at.map_or(desk.now, |at| UnixMillis(at.0 + going.ask_after_ms));
                if end_at > desk.now {
                    return earlier(again, Some(end_at));
                }
                going.under_way = Some(Step::EndMachine);
                let instance = InstanceRef {
                    provider_id: provider_id.into(),
                    claim: name_of(&claim.metadata).into(),
                    node_name: Some(name.clone()),
                };
                desk.ask_cloud(name, CloudCall::Terminate(instance));
            }
            (Stage::Empty, None) => {
                going.under_way = Some(Step::Release { is_drained: true });
                going.released = Some(node.clone());
                desk.call(name, release(&node));
            }
        }
        None
    }
}

/// Whether the API server is to be asked who is on a node that looks drained.
fn must_count(going: &Going, deadline: Option<UnixMillis>, now: UnixMillis) -> bool {
    let is_over = going.unseen_since.is_some_and(|since| now >= after(since, UNSEEN_PODS));
    going.counted_at.is_none() && !is_over && deadline.is_none_or(|deadline| deadline > now)
}

/// How far a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// For pods, volumes, or time; until then at most.
    Waiting(Option<UnixMillis>),
    /// Nobody needs it any more.
    Empty,
}

/// The two stages that end by themselves: pods leave, volumes are detached.
struct Stages<'a> {
    attachments: &'a Attachments,
    node: &'a Node,
    name: &'a Text,
    deadline: Option<UnixMillis>,
    free_since: &'a mut Option<UnixMillis>,
}

impl Stages<'_> {
    /// Asks pods to leave, and writes down how far it is.
    fn look(&mut self, mut conditions: Option<&mut Conditions>, desk: &mut Desk<'_>) -> Stage {
        let now = desk.now;
        let drain = Drain::look(desk.world.pods_on(self.name), self.deadline, now);
        for pod in &drain.leaving {
            desk.evictions.ask(pod, Until::Forced(self.deadline));
        }
        if drain.n_waiting > 0 {
            let message = format!("Failed to drain node, {} pods are waiting to be evicted", drain.n_waiting);
            desk.event(Event::warning(self.about(), "FailedDraining", message).same_by([self.name.clone()]));
            if let Some(conditions) = conditions {
                conditions.set(DRAINED, Status::Unknown, "Draining", "", now);
            }
            // The event, at least, is told again.
            return Stage::Waiting(earlier(drain.again_at, Some(UnixMillis(now.0 + QUIET_MS))));
        }
        if let Some(conditions) = conditions.as_deref_mut()
            && !conditions.is_true(DRAINED)
        {
            // A claim that says why its empty node goes has nothing to tell until it is drained: a request for each is saved.
            if !conditions.is_true(marks::DISRUPTION_REASON) {
                conditions.set(DRAINED, Status::Unknown, "Draining", "", now);
            }
            let since = conditions.since(DRAINED).unwrap_or_else(|| *self.free_since.get_or_insert(now));
            let earliest = UnixMillis(since.0 + DRAIN_AT_LEAST_MS);
            if earliest > now {
                return Stage::Waiting(Some(earliest));
            }
            conditions.set_true(DRAINED, now);
        }
        let blocking = self.attachments.blocking(self.name, desk.world, now);
        let is_elapsed = self.deadline.is_some_and(|deadline| deadline <= now);
        let (status, reason, stage) = if blocking.is_empty() {
            (Status::True, VOLUMES_DETACHED, Stage::Empty)
        } else if is_elapsed {
            (Status::False, "TerminationGracePeriodElapsed", Stage::Empty)
        } else {
            let names: Vec<&str> = blocking.iter().map(|name| &***name).collect();
            let message = format!("Awaiting detachment of volumes, VolumeAttachments {}", few(&names));
            let event = Event::normal(self.about(), "AwaitingVolumeDetachment", message);
            desk.event(event.same_by([self.name.clone()]));
            let again = UnixMillis(now.0 + VOLUMES_AGAIN_MS);
            (Status::Unknown, "AwaitingVolumeDetachment", Stage::Waiting(Some(again)))
        };
        if let Some(conditions) = conditions {
            conditions.set(VOLUMES_DETACHED, status, reason, "", now);
        }
        stage
    }

    fn about(&self) -> About {
        About::of(NODES, &self.node.metadata)
    }
}

/// Counts and logs what a step achieved.
fn tell_success(step: Step, name: &Text, desk: &mut Desk<'_>) {
    let Some(node) = desk.world.nodes.get(name) else {
        return;
    };
    match step {
        Step::Taint => marks::tell_tainted(node),
        Step::Tell { is_drained: true } => {
            desk.metrics.add(&families::NODES_DRAINED_TOTAL, &[label(node, labels::NODE_POOL)], 1.0);
        }
        Step::DeleteClaim => tracing::info!(controller = "node.termination", Node = %name, "deleted nodeclaim"),
        Step::Tell { is_drained: false } | Step::CountPods | Step::EndMachine | Step::Release { .. } => {}
    }
}

fn tell_released(node: &Node, is_drained: bool, desk: &mut Desk<'_>) {
    let pool = label(node, labels::NODE_POOL);
    if is_drained {
        desk.metrics.add(&families::NODES_DRAINED_TOTAL, &[pool], 1.0);
    }
    desk.metrics.add(&families::NODES_TERMINATED_TOTAL, &[pool, label(node, labels::ZONE)], 1.0);
    let seconds_since = |time: &Option<Time>| {
        let since = time.as_ref().map_or(desk.now.0, |time| time.0.as_millisecond());
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of a node's life are exact in a float")]
        let ms = (desk.now.0 - since).max(0) as f64;
        ms / 1_000.0
    };
    let terminating = seconds_since(&node.metadata.deletion_timestamp);
    desk.metrics.observe(&families::NODES_TERMINATION_DURATION_SECONDS, &[pool], terminating);
    let lifetime = seconds_since(&node.metadata.creation_timestamp);
    desk.metrics.observe(&families::NODES_LIFETIME_DURATION_SECONDS, &[pool], lifetime);
    tracing::info!(
        controller = "node.termination",
        Node = name_of(&node.metadata),
        "provider-id" = provider_id(node).unwrap_or_default(),
        "deleted node"
    );
}

fn label<'a>(node: &'a Node, key: &str) -> &'a str {
    node.metadata.labels.as_ref().and_then(|all| all.get(key)).map(String::as_str).unwrap_or_default()
}

fn is_going(metadata: &ObjectMeta) -> bool {
    let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
    metadata.deletion_timestamp.is_some() && finalizers.iter().any(|it| it == labels::TERMINATION_FINALIZER)
}

/// Whether a node is this provider's: its class label says so, or its claim does.
fn is_ours(node: &Node, claim: Option<&NodeClaim>, cloud: &dyn CloudProvider) -> bool {
    let classes = cloud.node_classes();
    if let Some(claim) = claim {
        let class = &claim.spec.node_class_ref;
        let class = NodeClassRef {
            group: class.group.as_str().into(),
            kind: class.kind.as_str().into(),
            name: class.name.as_str().into(),
        };
        return classes.iter().any(|kind| kind.is(&class));
    }
    let labels = node.metadata.labels.as_ref();
    classes.iter().any(|class| {
        let key = format!("{}/{}", class.group, class.kind.to_lowercase());
        labels.is_some_and(|labels| labels.contains_key(&key))
    })
}

/// When the claim says that everything must be over.
pub(crate) fn termination_time(claim: &NodeClaim) -> Option<UnixMillis> {
    let text = claim.metadata.annotations.as_ref()?.get(labels::TERMINATION_TIMESTAMP)?;
    match text.parse::<jiff::Timestamp>() {
        Ok(at) => Some(UnixMillis(at.as_millisecond())),
        Err(error) => {
            tracing::error!(
                controller = "node.termination", NodeClaim = name_of(&claim.metadata), found = text, %error,
                "annotation {} is no RFC 3339 time; draining without a deadline", labels::TERMINATION_TIMESTAMP
            );
            None
        }
    }
}

fn conditions_of(claim: &NodeClaim) -> Conditions {
    let stored = claim.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    Conditions::of(NODE_CLAIM, &claim.metadata, stored)
}

/// Takes our finalizer off.
fn release(node: &Node) -> crate::errand::ApiCall {
    let finalizers = node.metadata.finalizers.as_deref().unwrap_or_default();
    let others: Vec<&String> = finalizers.iter().filter(|it| *it != labels::TERMINATION_FINALIZER).collect();
    let patch =
        write::if_unchanged(json!({"metadata": {"finalizers": others}}), node.metadata.resource_version.as_deref());
    write::patch(NODES, "", name_of(&node.metadata), patch)
}

fn name_of(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

/// The first few of a list, and how many more.
fn few(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} other(s)"),
    }
}
