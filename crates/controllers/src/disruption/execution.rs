//! Duty `disruption.queue`: carries commands out, each node by itself.
//!
//! ```text
//! Taking ─▶ look ─▶ taint the node, name the reason on the claim ─▶ still as decided? ─▶ delete the claim ─▶ Deleted ─▶ released
//!    └── time is up, or pods came ─▶ GivingBack ─▶ untaint, take the reason back ─▶ released
//! ```
//!
//! To look is to ask the API server itself who is on a node that seems empty: a watch that has fallen silent shows full nodes as empty for as
//! long as it takes to notice.
//!
//! Only deletions so far: a command with replacements will hold its deletions back until they are initialized.

use super::commands::{Held, Stage};
use super::{Method, cost, marks};
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::events::{About, Event};
use crate::metrics::families;
use crate::queue::Queue;
use crate::resource::{NODE_CLAIMS, NODES, PODS};
use crate::standstill::Looks;
use crate::world::{Change, World};
use crate::write;
use k8s_openapi::api::core::v1::Node;
use kerf_api::{ConsolidationPolicy, NodeClaim, labels};
use kerf_model::{Text, UnixMillis};
use std::sync::Arc;

const NAME: &str = "disruption.queue";
const BACKOFF_MS: (i64, i64) = (1_000, 10_000);

/// The requests that a claim may have under way, as keys.
const LOOK: &str = "look";
const TAINT: &str = "taint";
const REASON: &str = "reason";
const DELETE: &str = "delete";

#[derive(Debug)]
pub struct Execution {
    queue: Queue<Text>,
    /// Those that wait for what the brake asks.
    waiting: Vec<Text>,
}

impl Default for Execution {
    fn default() -> Self {
        Self { queue: Queue::new(BACKOFF_MS.0, BACKOFF_MS.1), waiting: Vec::new() }
    }
}

impl Duty for Execution {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, change: &Change, _world: &World) {
        // A claim that was deleted is released when that shows.
        if let Change::Claim { name, .. } = change {
            self.queue.add(name.clone());
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !desk.brake.is_being_checked() {
            std::mem::take(&mut self.waiting).into_iter().for_each(|claim| self.queue.add(claim));
        }
        // A step may be news itself: a node that is to be given back.
        loop {
            desk.commands.take_news().into_iter().for_each(|claim| self.queue.add(claim));
            let due = self.queue.take_due(desk.now);
            if due.is_empty() {
                break;
            }
            for claim in due {
                match desk.commands.get(&claim).cloned() {
                    Some(held) => self.step(&claim, &held, desk),
                    None => self.queue.forget(&claim),
                }
            }
        }
        self.queue.next()
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        let Some((what, claim)) = key.split_once('/') else {
            return;
        };
        let claim = Text::from(claim);
        match outcome {
            Outcome::Api(Err(failure)) => {
                tracing::debug!(controller = NAME, NodeClaim = &*claim, request = what, error = %failure, "will try again");
                self.queue.retry(claim, desk.now);
            }
            outcome => {
                match what {
                    LOOK => looked(&claim, &outcome, desk),
                    TAINT => tell_tainted(&claim, desk),
                    DELETE => self.deleted(&claim, desk),
                    _ => {}
                }
                self.queue.succeeded(&claim);
                self.queue.add(claim);
            }
        }
    }
}

impl Execution {
    /// The next step for one node. What is done already is seen on the objects.
    fn step(&mut self, claim: &Text, held: &Held, desk: &mut Desk<'_>) {
        let world = desk.world;
        let (object, node) = (world.claims.get(claim), world.nodes.get(&held.node));
        let (Some(object), Some(node)) = (object, node) else {
            desk.commands.release(claim);
            return;
        };
        if marks::is_leaving(object, Some(node)) {
            desk.commands.release(claim);
            return;
        }
        // The end of each marks the claim again.
        if [LOOK, TAINT, REASON, DELETE].iter().any(|what| desk.is_busy(&format!("{what}/{claim}"))) {
            return;
        }
        match &held.stage {
            Stage::Taking { until, .. } if *until <= desk.now => {
                tracing::error!(controller = NAME, NodeClaim = &**claim, "giving the node back, its command timed out");
                desk.commands.give_back(claim, &held.node);
            }
            Stage::Taking { .. } if desk.brake.is_being_checked() => self.waiting.push(claim.clone()),
            Stage::Taking { method, .. } if desk.may_begin(method.voluntary()).is_err() => {
                tracing::info!(
                    controller = NAME,
                    NodeClaim = &**claim,
                    "abandoning disruption, everything voluntary stands still"
                );
                desk.commands.give_back(claim, &held.node);
            }
            Stage::Taking { method, .. } if !is_as_decided(*method, world, &held.node, desk.now) => {
                tracing::info!(
                    controller = NAME,
                    NodeClaim = &**claim,
                    "abandoning disruption, pods have come to the node"
                );
                desk.commands.give_back(claim, &held.node);
            }
            // A list of all pods that was asked for anyway says as much.
            Stage::Taking { method: Method::Emptiness, is_confirmed: false, .. }
                if !desk.brake.has_just_agreed(Looks::Empty, claim, desk.now) =>
            {
                desk.call(&key(LOOK, claim), write::get(PODS.on_node(&held.node)));
            }
            Stage::Taking { method, .. } => mark_and_delete(claim, object, node, *method, desk),
            Stage::Deleted | Stage::Lent => {}
            Stage::GivingBack => give_back(claim, object, node, desk),
        }
    }

    fn deleted(&mut self, claim: &Text, desk: &mut Desk<'_>) {
        let Some(Held { node, stage: Stage::Taking { method, command, .. } }) = desk.commands.get(claim).cloned()
        else {
            return;
        };
        desk.commands.deleted(claim);
        tracing::debug!(controller = NAME, "command-id" = &*command, NodeClaim = &**claim, "command succeeded");
        let world = desk.world;
        let reason = method.reason();
        if let Some(node) = world.nodes.get(&node) {
            let about = About::of(NODES, &node.metadata);
            desk.event(Event::normal(about, "DisruptionTerminating", format!("Disrupting Node: {reason}")));
        }
        if let Some(object) = world.claims.get(claim) {
            let about = About::of(NODE_CLAIMS, &object.metadata);
            desk.event(Event::normal(about, "DisruptionTerminating", format!("Disrupting NodeClaim: {reason}")));
            count(object, &node, method, desk);
        }
    }
}

/// Whether the node still is what the decision was about. Pods that came meanwhile would need a node just like this one.
fn is_as_decided(method: Method, world: &World, node: &str, now: UnixMillis) -> bool {
    let pods = || world.pods_on(node).map(|pod| &**pod);
    method != Method::Emptiness
        || (cost::is_empty(cost::reschedule_cost(pods())) && !pods().any(|pod| pod.is_active() && pod.is_held(now)))
}

/// The API server has said who is on the node.
fn looked(claim: &Text, outcome: &Outcome, desk: &mut Desk<'_>) {
    let Some(Held { node, .. }) = desk.commands.get(claim).cloned() else { return };
    let Outcome::Api(Ok(list)) = outcome else { return };
    let unseen = desk.world.unseen_of(list, &node);
    if unseen.is_empty() {
        return desk.commands.confirm(claim);
    }
    tracing::warn!(
        controller = NAME,
        NodeClaim = &**claim,
        Node = &*node,
        pods = unseen.join(", "),
        "abandoning disruption, the API server lists pods on the node that the watch has not shown yet"
    );
    desk.commands.give_back(claim, &node);
}

fn mark_and_delete(claim: &Text, object: &NodeClaim, node: &Node, method: Method, desk: &mut Desk<'_>) {
    let is_tainted = marks::is_tainted(node);
    if !is_tainted {
        desk.call(&key(TAINT, claim), marks::close(node));
    }
    let is_said = marks::is_true(object, marks::DISRUPTION_REASON);
    if !is_said {
        desk.call(&key(REASON, claim), marks::say_reason(object, method.reason().as_str(), desk.now));
    }
    if is_tainted && is_said {
        let call = write::delete(NODE_CLAIMS, "", claim, object.metadata.uid.as_deref());
        desk.call(&key(DELETE, claim), call);
    }
}

fn tell_tainted(claim: &Text, desk: &Desk<'_>) {
    if let Some(Held { node, stage: Stage::Taking { .. } }) = desk.commands.get(claim)
        && let Some(node) = desk.world.nodes.get(node)
    {
        marks::tell_tainted(node);
    }
}

fn give_back(claim: &Text, object: &NodeClaim, node: &Node, desk: &mut Desk<'_>) {
    let is_tainted = marks::is_tainted(node);
    if is_tainted {
        desk.call(&key(TAINT, claim), marks::open(node));
    }
    let is_said = marks::is_true(object, marks::DISRUPTION_REASON);
    if is_said {
        desk.call(&key(REASON, claim), marks::unsay_reason(object));
    }
    if !is_tainted && !is_said {
        desk.commands.release(claim);
    }
}

fn count(object: &NodeClaim, node: &str, method: Method, desk: &Desk<'_>) {
    let pool = marks::label(&object.metadata, labels::NODE_POOL).unwrap_or_default();
    let policy =
        desk.world.pools.get(pool).map(|pool| policy_label(pool)).filter(|_| !method.consolidation_type().is_empty());
    let series = [
        method.reason_label(),
        pool,
        marks::capacity_type(object),
        policy.unwrap_or_default(),
        marks::termination_mode(object),
    ];
    desk.metrics.add(&families::NODECLAIMS_DISRUPTED_TOTAL, &series, 1.0);
    let n_pods = desk.world.pods_on(node).filter(|pod| pod.is_reschedulable()).count();
    desk.metrics.add(&families::PODS_DISRUPTION_INITIATED_TOTAL, &series, n_pods as f64);
}

/// As the `consolidation_policy` label says it.
fn policy_label(pool: &Arc<kerf_api::NodePool>) -> &'static str {
    let policy = pool.spec.disruption.as_ref().and_then(|disruption| disruption.consolidation_policy.as_ref());
    match policy {
        Some(ConsolidationPolicy::WhenEmpty) => "when_empty",
        Some(ConsolidationPolicy::Balanced) => "balanced",
        Some(ConsolidationPolicy::WhenEmptyOrUnderutilized) | None => "when_empty_or_underutilized",
        Some(ConsolidationPolicy::Other(_)) => "",
    }
}

fn key(what: &str, claim: &Text) -> Text {
    format!("{what}/{claim}").into()
}
