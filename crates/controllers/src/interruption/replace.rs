//! Replacing a spot machine that is at risk: first another place for its pods, then its end.
//!
//! ```text
//! ask ─▶ line ─▶ (few at a time) ─▶ taint, reason ─▶ its pods want another place: provisioning finds one ─▶ delete the claim
//!                                       └── nothing came in time ─▶ the node is given back
//! ```
//!
//! A recommendation is cheap to give and may never come true, so a machine is replaced once at most, not while it is young, not
//! by what was just said to be at risk, and never many at a time. The reason stands on the claim: after a restart it goes on.

use super::{NAME, offering_of};
use crate::desk::Desk;
use crate::disruption::marks;
use crate::errand::Outcome;
use crate::events::{About, Event};
use crate::lifecycle::removal;
use crate::queue::Queue;
use crate::resource::{NODE_CLAIMS, NODES};
use crate::write;
use k8s_openapi::api::core::v1::Node;
use kerf_api::NodeClaim;
use kerf_cloud::NoticeKind;
use kerf_model::{CapacityType, Text, UnixMillis};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// As the claim's condition says why it goes, and the eviction of its pods.
pub(crate) const REASON: &str = "SpotRebalanceRecommendation";

/// A machine that was just bought was the best there was; one that must go every few minutes serves nobody.
const YOUNG_MS: i64 = 600_000;
/// How long pods may wait for their new place before the node is given back.
const WAIT_MS: i64 = 600_000;
/// After it was tried, a machine is left alone for this long, whatever is recommended.
const REST_MS: i64 = 3_600_000;
/// At a time. More would empty a pool on a nervous day.
const AT_ONCE_MAX: usize = 5;
/// How often places are looked at while pods wait for them.
const LOOK_MS: i64 = 1_000;
const BACKOFF_MS: (i64, i64) = (1_000, 10_000);

const TAINT: &str = "replace-taint/";
const SAY: &str = "replace-reason/";
const DELETE: &str = "replace-delete/";

#[derive(Debug)]
pub(super) struct Replacements {
    queue: Queue<Text>,
    /// By claim: since when its pods look for another place.
    under_way: BTreeMap<Text, Replacement>,
    line: VecDeque<Text>,
    /// Machines that were tried, and until when they are left alone.
    tried: BTreeMap<Text, UnixMillis>,
    /// Claims whose notice needs no more: the marks are stored, or it came to nothing.
    settled: Vec<Text>,
    has_resumed: bool,
}

#[derive(Debug)]
struct Replacement {
    since: UnixMillis,
    node: Text,
    leaving: Option<Arc<NodeClaim>>,
}

impl Default for Replacements {
    fn default() -> Self {
        Self {
            queue: Queue::new(BACKOFF_MS.0, BACKOFF_MS.1),
            under_way: BTreeMap::new(),
            line: VecDeque::new(),
            tried: BTreeMap::new(),
            settled: Vec::new(),
            has_resumed: false,
        }
    }
}

impl Replacements {
    /// Asks for a claim to be replaced. False when that would not be wise, which the log says.
    pub(super) fn ask(&mut self, name: &Text, claim: &NodeClaim, instance: &Text, desk: &Desk<'_>) -> bool {
        self.tried.retain(|_, until| *until > desk.now);
        if self.under_way.contains_key(name) || self.line.contains(name) {
            return true;
        }
        if let Some(why) = self.objection(name, claim, instance, desk) {
            tracing::info!(controller = NAME, NodeClaim = &**name, why, "not replacing a machine that is at risk");
            return false;
        }
        self.tried.insert(instance.clone(), UnixMillis(desk.now.0 + REST_MS));
        self.line.push_back(name.clone());
        true
    }

    fn objection(&self, name: &Text, claim: &NodeClaim, instance: &Text, desk: &Desk<'_>) -> Option<&'static str> {
        let node = desk.world.node_of_claim(claim);
        if marks::is_leaving(claim, node.map(|node| &**node)) || desk.commands.contains(name) {
            Some("it goes already")
        } else if self.tried.contains_key(instance) {
            Some("it was tried within the hour")
        } else if node.is_none() || !marks::is_true(claim, marks::INITIALIZED) {
            Some("it is not initialized")
        } else if initialized_since(claim).is_none_or(|since| since.0 + YOUNG_MS > desk.now.0) {
            Some("it is younger than ten minutes")
        } else {
            None
        }
    }

    pub(super) fn mark(&mut self, claim: &str) {
        if let Some((name, _)) = self.under_way.get_key_value(claim) {
            self.queue.add(name.clone());
        }
    }

    /// Answers the claims whose notice needs no more, and when to look again.
    pub(super) fn work(&mut self, desk: &mut Desk<'_>) -> (Vec<Text>, Option<UnixMillis>) {
        if !self.has_resumed {
            self.has_resumed = true;
            self.resume(desk);
        }
        while self.under_way.len() < AT_ONCE_MAX
            && let Some(name) = self.line.pop_front()
        {
            self.begin(name, desk);
        }
        for name in self.queue.take_due(desk.now) {
            if let Some(again) = self.look_at(&name, desk) {
                self.queue.add_at(name, again);
            }
        }
        (std::mem::take(&mut self.settled), self.queue.next())
    }

    /// Goes on with what a predecessor began: the reason is on the claim.
    fn resume(&mut self, desk: &mut Desk<'_>) {
        let said = |claim: &NodeClaim| {
            let conditions = marks::stored(claim).iter();
            let mut of_reason = conditions.filter(|it| it.type_ == marks::DISRUPTION_REASON && it.reason == REASON);
            of_reason.find(|it| it.status == "True").map(|it| UnixMillis(it.last_transition_time.0.as_millisecond()))
        };
        for (name, claim) in &desk.world.claims {
            if let (Some(since), Some(node)) = (said(claim), desk.world.node_of_claim(claim))
                && !marks::is_leaving(claim, Some(node))
            {
                let node = marks::name_of(&node.metadata);
                desk.commands.lend(name, &node);
                self.under_way.insert(name.clone(), Replacement { since, node, leaving: None });
                self.queue.add(name.clone());
            }
        }
    }

    fn begin(&mut self, name: Text, desk: &mut Desk<'_>) {
        let claim = desk.world.claims.get(&name);
        let node = claim.and_then(|claim| desk.world.node_of_claim(claim));
        match (claim, node) {
            (Some(claim), Some(node)) if !marks::is_leaving(claim, Some(node)) && !desk.commands.contains(&name) => {
                let node = marks::name_of(&node.metadata);
                desk.commands.lend(&name, &node);
                tracing::info!(
                    controller = NAME,
                    NodeClaim = &*name,
                    Node = &*node,
                    "replacing a machine that is at risk"
                );
                self.under_way.insert(name.clone(), Replacement { since: desk.now, node, leaving: None });
                self.queue.add(name);
            }
            _ => self.settled.push(name),
        }
    }

    fn look_at(&mut self, name: &Text, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        let replacement = self.under_way.get_mut(name)?;
        let world = desk.world;
        let (claim, node) = match (world.claims.get(name), world.nodes.get(&replacement.node)) {
            (Some(claim), Some(node)) if !marks::is_leaving(claim, Some(node)) => (claim, node),
            _ => {
                self.finish(name, desk);
                return None;
            }
        };
        if [TAINT, SAY, DELETE].iter().any(|what| desk.is_busy(&format!("{what}{name}"))) {
            return None;
        }
        // Whatever is bought instead, it is not the same again.
        if let Some(offering) = offering_of(claim).filter(|it| it.capacity_type == CapacityType::Spot) {
            desk.stock.sold_out(offering, desk.now);
        }
        if !are_marked(name, claim, node, desk) {
            return None;
        }
        self.settled.push(name.clone());
        if has_place_elsewhere(&replacement.node, desk) {
            replacement.leaving = Some(claim.clone());
            let call = write::delete(NODE_CLAIMS, "", name, claim.metadata.uid.as_deref());
            desk.call(&format!("{DELETE}{name}").into(), call);
            return None;
        }
        if replacement.since.0.saturating_add(WAIT_MS) <= desk.now.0 {
            tracing::info!(
                controller = NAME,
                NodeClaim = &**name,
                Node = &*replacement.node,
                "keeping a machine that is at risk: no other place was found for its pods"
            );
            desk.commands.give_back(name, &replacement.node);
            self.under_way.remove(name);
            return None;
        }
        Some(UnixMillis(desk.now.0 + LOOK_MS))
    }

    pub(super) fn done(&mut self, key: &str, outcome: &Outcome, desk: &mut Desk<'_>) -> bool {
        let Some((what, name)) = key.split_once('/').map(|(what, name)| (what, Text::from(name))) else {
            return false;
        };
        if ![TAINT, SAY, DELETE].iter().any(|prefix| prefix.strip_suffix('/') == Some(what)) {
            return false;
        }
        match outcome {
            Outcome::Api(Ok(_)) => {
                let leaving = self.under_way.get_mut(&name).and_then(|replacement| replacement.leaving.take());
                if let Some(claim) = leaving {
                    tell_end(&claim, desk);
                    self.finish(&name, desk);
                } else {
                    self.queue.succeeded(&name);
                    self.mark(&name);
                }
            }
            Outcome::Api(Err(failure)) => {
                tracing::debug!(controller = NAME, NodeClaim = &*name, request = what, error = %failure, "will try again");
                if self.under_way.contains_key(&name) {
                    self.queue.retry(name, desk.now);
                }
            }
            Outcome::Cloud(_) | Outcome::Thought { .. } => {}
        }
        true
    }

    /// It goes, or is gone.
    fn finish(&mut self, name: &Text, desk: &mut Desk<'_>) {
        self.under_way.remove(name);
        self.queue.forget(name);
        desk.commands.release(name);
        self.settled.push(name.clone());
    }
}

/// Whether node and claim say that the node goes. Otherwise asks for it.
fn are_marked(name: &Text, claim: &NodeClaim, node: &Node, desk: &mut Desk<'_>) -> bool {
    let is_tainted = marks::is_tainted(node);
    if !is_tainted {
        desk.call(&format!("{TAINT}{name}").into(), marks::taint(node));
    }
    let is_said = marks::is_true(claim, marks::DISRUPTION_REASON);
    if !is_said {
        desk.call(&format!("{SAY}{name}").into(), marks::say_reason(claim, REASON, desk.now));
    }
    is_tainted && is_said
}

/// Whether every pod that must move was promised a place on a node that can take it now.
fn has_place_elsewhere(node: &str, desk: &Desk<'_>) -> bool {
    let world = desk.world;
    let places: BTreeSet<Option<&Text>> = world
        .pods_on(node)
        .filter(|pod| pod.is_reschedulable())
        .map(|pod| desk.nominations.promise_of(&pod.id).map(|promise| &promise.place))
        .collect();
    places.into_iter().all(|place| {
        let Some(place) = place.filter(|place| ***place != *node) else {
            return false;
        };
        let is_initialized = |claim: &NodeClaim| marks::is_true(claim, marks::INITIALIZED);
        match (world.claims.get(place), world.nodes.get(place)) {
            (Some(claim), _) => is_initialized(claim),
            (None, Some(node)) => world.claim_of_node(node).is_none_or(|claim| is_initialized(claim)),
            (None, None) => false,
        }
    })
}

fn initialized_since(claim: &NodeClaim) -> Option<UnixMillis> {
    let condition = marks::stored(claim).iter().find(|it| it.type_ == marks::INITIALIZED)?;
    Some(UnixMillis(condition.last_transition_time.0.as_millisecond()))
}

fn tell_end(claim: &Arc<NodeClaim>, desk: &mut Desk<'_>) {
    let reason = NoticeKind::RebalanceRecommendation.as_str();
    removal::count(desk.metrics, claim, reason);
    removal::count_pods(desk.metrics, claim, reason, desk.world);
    let node = desk.world.node_of_claim(claim).map(|node| About::of(NODES, &node.metadata));
    for about in [About::of(NODE_CLAIMS, &claim.metadata)].into_iter().chain(node) {
        let words = "Interruption triggered termination: the replacement is ready, and the node is drained";
        desk.event(Event::warning(about, "TerminatingOnInterruption", words));
    }
}
