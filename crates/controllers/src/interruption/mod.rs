//! Duty `interruption`: what the cloud is about to do to machines, dealt with before it does.
//!
//! ```text
//! CloudProvider::notices ─▶ cases, by the notice's id ─┬▶ a claim of ours    ending: deadline, deletion; termination drains
//!   (one long poll at a time)                          ├▶ a node of others   guests: cordon, evict, two minutes at most
//!                                                      ├▶ rebalance          an event; or replace: replacement first
//!                                                      └▶ nobody's           nothing
//! CloudProvider::acknowledge ◀── once what follows from it is stored in the cluster
//! ```
//!
//! Nothing is remembered that matters: a notice that was not acknowledged comes again, so an operator that dies in between loses
//! none. Copies of a notice, and notices of the same end in another order, find the claim going already.

pub(crate) mod ending;
mod guests;
mod post;
mod replace;
mod words;

use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::{CloudAnswer, CloudCall, Outcome};
use crate::events::About;
use crate::lifecycle::removal::label;
use crate::metrics::families;
use crate::options::Rebalance;
use crate::queue::earlier;
use crate::resource::{NODE_CLAIMS, NODES};
use crate::world::{Change, World, claim_provider_id, is_ready, provider_id};
use ending::{By, End, Endings};
use guests::Guests;
use kerf_api::{NodeClaim, labels};
use kerf_cloud::{CloudError, Notice, NoticeKind, OfferingKey};
use kerf_model::{CapacityType, Labels, Text, TypeName, UnixMillis};
use post::Post;
use replace::Replacements;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const NAME: &str = "interruption";

#[derive(Debug, Default)]
pub struct Interruption {
    post: Post,
    /// Claims and nodes by the end of their provider id, which is what notices name.
    claims: BTreeMap<Text, BTreeSet<Text>>,
    nodes: BTreeMap<Text, BTreeSet<Text>>,
    /// Notices that are being dealt with, by id.
    cases: BTreeMap<Text, Case>,
    endings: Endings,
    guests: Guests,
    replacements: Replacements,
}

/// A notice that is being dealt with.
#[derive(Debug, Default)]
struct Case {
    /// Of every copy that came.
    receipts: BTreeSet<Text>,
    /// What must be stored before it is acknowledged.
    awaits: BTreeSet<Awaited>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Awaited {
    /// The deletion of a claim.
    End(Text),
    /// The drain of a node that is not ours.
    Guest(Text),
    /// The marks of a node that is to be replaced.
    Replacement(Text),
}

impl Duty for Interruption {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, change: &Change, _: &World) {
        match change {
            Change::Claim { name, before, after } => {
                let id = |claim: &Option<Arc<NodeClaim>>| claim.as_deref().and_then(claim_provider_id).map(instance_of);
                reindex(&mut self.claims, name, id(before), id(after));
                self.replacements.mark(name);
            }
            Change::Node { name, before, after } => {
                let id = |node: &Option<Arc<_>>| node.as_deref().and_then(provider_id).map(instance_of);
                reindex(&mut self.nodes, name, id(before), id(after));
                self.guests.mark(name);
            }
            Change::Pod { before, after, .. } => {
                for pod in [before, after].into_iter().flatten() {
                    self.guests.mark(&pod.node);
                }
            }
            Change::Pool { .. } | Change::Class { .. } | Change::Other { .. } | Change::Synced => {}
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !desk.world.is_synced() {
            return None;
        }
        let (ended, mut wish) = self.endings.work(NAME, desk);
        let (drained, guests_wish) = self.guests.work(desk);
        let (marked, replacements_wish) = self.replacements.work(desk);
        for (names, awaited) in [
            (ended, Awaited::End as fn(Text) -> Awaited),
            (drained, Awaited::Guest as fn(Text) -> Awaited),
            (marked, Awaited::Replacement as fn(Text) -> Awaited),
        ] {
            names.into_iter().for_each(|name| self.settle(&awaited(name)));
        }
        wish = earlier(wish, earlier(guests_wish, replacements_wish));
        earlier(wish, self.post.work(self.cases.len(), desk))
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        match (&**key, outcome) {
            (post::POLL, Outcome::Cloud(answer)) => {
                for notice in self.post.received(answer, desk) {
                    self.receive(notice, desk);
                }
            }
            (post::ACKNOWLEDGE, Outcome::Cloud(answer)) => self.post.acknowledged(answer, desk),
            (key, outcome) => {
                let _ = self.endings.done(NAME, key, &outcome, desk)
                    || self.guests.done(key, &outcome, desk)
                    || self.replacements.done(key, &outcome, desk);
            }
        }
    }
}

impl Interruption {
    fn receive(&mut self, notice: Notice, desk: &mut Desk<'_>) {
        desk.metrics.add(&families::INTERRUPTION_RECEIVED_MESSAGES_TOTAL, &[notice.kind.as_str()], 1.0);
        let age_ms = (desk.now.0 - notice.happened_ms).max(0);
        desk.metrics.observe(&families::INTERRUPTION_MESSAGE_QUEUE_DURATION_SECONDS, &[], age_ms as f64 / 1_000.0);
        if let Some(case) = self.cases.get_mut(&notice.id) {
            case.receipts.insert(notice.receipt);
            return;
        }
        if self.post.was_handled(&notice.id) {
            self.post.acknowledge(notice.id, [notice.receipt]);
            return;
        }
        if notice.kind == NoticeKind::LaunchLifecycleAction {
            return self.welcome(notice, desk);
        }
        let awaits = self.act(&notice, desk);
        let case = Case { receipts: [notice.receipt].into(), awaits };
        if case.awaits.is_empty() {
            self.post.acknowledge(notice.id, case.receipts);
        } else {
            self.cases.insert(notice.id, case);
        }
    }

    /// A group waits for its instance to be of use: once its node is ready the group may go on. Until then, or where the instance
    /// is none of this cluster's, the notice is left where it is and comes again.
    fn welcome(&mut self, notice: Notice, desk: &Desk<'_>) {
        let nodes = notice.instances.iter().flat_map(|instance| self.nodes.get(instance).into_iter().flatten());
        let mut nodes = nodes.filter_map(|name| desk.world.nodes.get(name));
        if nodes.any(|node| is_ready(node)) {
            self.post.acknowledge(notice.id, [notice.receipt]);
        } else {
            tracing::debug!(controller = NAME, id = &*notice.id, detail = &*notice.detail, "its node is not ready yet");
        }
    }

    /// Something that cases may wait for is stored.
    fn settle(&mut self, awaited: &Awaited) {
        let mut settled = Vec::new();
        for (id, case) in &mut self.cases {
            if case.awaits.remove(awaited) && case.awaits.is_empty() {
                settled.push(id.clone());
            }
        }
        for id in settled {
            if let Some(case) = self.cases.remove(&id) {
                self.post.acknowledge(id, case.receipts);
            }
        }
    }

    /// Does what a notice asks for. Answers what must be stored before it is acknowledged.
    fn act(&mut self, notice: &Notice, desk: &mut Desk<'_>) -> BTreeSet<Awaited> {
        let mut awaits = BTreeSet::new();
        if notice.kind == NoticeKind::NoOp {
            tracing::debug!(
                controller = NAME,
                id = &*notice.id,
                detail = &*notice.detail,
                "a message without consequences"
            );
            return awaits;
        }
        for instance in notice.instances.iter().collect::<BTreeSet<_>>() {
            let claims = self.claims.get(instance).cloned().unwrap_or_default();
            for name in &claims {
                if let Some(claim) = desk.world.claims.get(name).cloned() {
                    awaits.extend(self.act_on_claim(notice, instance, name, &claim, desk));
                }
            }
            if claims.is_empty() {
                for name in self.nodes.get(instance).into_iter().flatten() {
                    awaits.extend(act_on_guest(&mut self.guests, notice, name, desk));
                }
            }
        }
        awaits
    }

    fn act_on_claim(
        &mut self,
        notice: &Notice,
        instance: &Text,
        name: &Text,
        claim: &Arc<NodeClaim>,
        desk: &mut Desk<'_>,
    ) -> Option<Awaited> {
        let node = desk.world.node_of_claim(claim).cloned();
        tracing::info!(
            controller = NAME,
            messageKind = notice.kind.as_str(),
            NodeClaim = &**name,
            Node = node.as_ref().and_then(|node| node.metadata.name.as_deref()).unwrap_or_default(),
            "instance-id" = &**instance,
            detail = &*notice.detail,
            "received a notice of interruption"
        );
        let abouts = [Some(About::of(NODE_CLAIMS, &claim.metadata)), node.map(|node| About::of(NODES, &node.metadata))];
        for about in abouts.into_iter().flatten() {
            if let Some(event) = words::event(notice, about) {
                desk.event(event);
            }
        }
        if matches!(notice.kind, NoticeKind::SpotInterrupted | NoticeKind::CapacityReservationInterrupted) {
            remember_shortage(claim, desk);
        }
        if notice.kind == NoticeKind::RebalanceRecommendation {
            let replaces = desk.options.rebalance == Rebalance::Replace;
            return (replaces && self.replacements.ask(name, claim, instance, desk))
                .then(|| Awaited::Replacement(name.clone()));
        }
        let by = notice.until_ms.map_or(By::Leave, |at| By::Time(UnixMillis(at)));
        self.endings.ask(name, claim, End { reason: notice.kind.as_str().into(), by });
        Some(Awaited::End(name.clone()))
    }
}

/// A node of the cluster whose machine somebody else bought: a managed node group, say.
fn act_on_guest(guests: &mut Guests, notice: &Notice, name: &Text, desk: &mut Desk<'_>) -> Option<Awaited> {
    let node = desk.world.nodes.get(name)?.clone();
    let about = About::of(NODES, &node.metadata);
    if let Some(event) = words::event(notice, about) {
        desk.event(event);
    }
    if notice.kind == NoticeKind::RebalanceRecommendation || node.metadata.deletion_timestamp.is_some() {
        return None;
    }
    tracing::info!(
        controller = NAME,
        messageKind = notice.kind.as_str(),
        Node = &**name,
        detail = &*notice.detail,
        "draining a node that is not ours"
    );
    guests.ask(name, notice.until_ms.map(UnixMillis), desk.now);
    Some(Awaited::Guest(name.clone()))
}

/// Nobody should buy the same again right now.
fn remember_shortage(claim: &NodeClaim, desk: &mut Desk<'_>) {
    if let Some(offering) = offering_of(claim).filter(|offering| offering.capacity_type == CapacityType::Spot) {
        desk.stock.sold_out(offering, desk.now);
    }
    let written = claim.metadata.labels.iter().flatten();
    let labels: Labels = written.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect();
    desk.cloud.taken_back(&labels);
}

/// What was bought for a claim, as far as its labels say.
fn offering_of(claim: &NodeClaim) -> Option<OfferingKey> {
    let of = |key: &str| Some(label(claim, key)).filter(|value| !value.is_empty());
    Some(OfferingKey {
        instance_type: TypeName(of(labels::INSTANCE_TYPE)?.into()),
        zone: of(labels::ZONE)?.into(),
        capacity_type: CapacityType::parse(of(labels::CAPACITY_TYPE)?)?,
    })
}

/// `i-0123` of `aws:///eu-west-1a/i-0123`.
fn instance_of(provider_id: &str) -> Text {
    provider_id.rsplit('/').next().unwrap_or(provider_id).into()
}

fn reindex(index: &mut BTreeMap<Text, BTreeSet<Text>>, name: &Text, before: Option<Text>, after: Option<Text>) {
    if before == after {
        return;
    }
    if let Some(id) = before
        && let Some(names) = index.get_mut(&id)
    {
        names.remove(name);
        if names.is_empty() {
            index.remove(&id);
        }
    }
    if let Some(id) = after {
        index.entry(id).or_default().insert(name.clone());
    }
}
