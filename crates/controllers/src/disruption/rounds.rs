//! Duty `disruption`: looks for nodes that may go, and hands those that do to [`Commands`](super::Commands).
//!
//! ```text
//! every 10 s: all claims          ┐
//! a claim, node or pod changed:   ├─▶ look ─▶ eligible since when? ─▶ 5 s on, looked at again ─▶ within budgets ─▶ command
//!   its claim, once a second      ┘
//! ```
//!
//! A round does not wait: nodes that were found at different times are validated each in its own time, so that one batch never
//! holds up another.

use super::candidate::{Block, Candidate, View, usable_pools};
use super::emptiness::{self, Unfit, VALIDATION_MS};
use super::guards::Guards;
use super::{Method, budgets, marks};
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::events::{About, Event};
use crate::metrics::families;
use crate::resource::{NODE_CLAIMS, NODE_POOLS, NODES};
use crate::standstill::Looks;
use crate::termination::tell_hold;
use crate::world::{Change, World};
use budgets::Ledger;
use kerf_api::{NodeClaim, NodePool, labels};
use kerf_mirror::PodState;
use kerf_model::{Text, UnixMillis};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::Arc;

const NAME: &str = "disruption";
/// Everything is looked at so often.
const POLL_MS: i64 = 10_000;
/// What has changed is looked at after this long at most.
const PACE_MS: i64 = 1_000;
const UNCONSOLIDATABLE_QUIET_MS: i64 = 900_000;
const SHUT_POOL_QUIET_MS: i64 = 60_000;

#[derive(Debug)]
pub struct Rounds {
    /// Claims about which something changed.
    touched: BTreeSet<Text>,
    /// When everything is looked at.
    full_at: UnixMillis,
    last: UnixMillis,
    /// Since when a claim's node may go as empty.
    eligible: BTreeMap<Text, UnixMillis>,
    /// When the next of them has been eligible for long enough.
    validate_at: Option<UnixMillis>,
    /// Some could go if a budget let them.
    is_short_of_budget: bool,
    /// Some would have gone if what is voluntary had not stood still.
    is_held: bool,
    gone_pools: Vec<Text>,
}

impl Default for Rounds {
    fn default() -> Self {
        Self {
            touched: BTreeSet::new(),
            full_at: UnixMillis(i64::MIN),
            last: UnixMillis(i64::MIN),
            eligible: BTreeMap::new(),
            validate_at: None,
            is_short_of_budget: false,
            is_held: false,
            gone_pools: Vec::new(),
        }
    }
}

impl Duty for Rounds {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, change: &Change, world: &World) {
        match change {
            Change::Claim { name, after, .. } => {
                self.touched.insert(name.clone());
                self.look_soon(after.is_none());
            }
            Change::Node { before, after, .. } => {
                for node in before.iter().chain(after) {
                    let claim = world.claim_of_node(node);
                    self.touched.extend(claim.map(|claim| marks::name_of(&claim.metadata)));
                }
                self.look_soon(after.is_none());
            }
            Change::Pod { before, after, .. } => {
                let matters = |pod: &Arc<PodState>| {
                    (pod.node.clone(), pod.is_active(), pod.is_reschedulable(), pod.hold.clone(), pod.started)
                };
                if before.as_ref().map(matters) == after.as_ref().map(matters) {
                    return;
                }
                for pod in before.iter().chain(after).filter(|pod| pod.is_bound()) {
                    let claim = marks::claim_of(world, &pod.node);
                    self.touched.extend(claim.map(|claim| marks::name_of(&claim.metadata)));
                }
            }
            Change::Pool { name, after, .. } => {
                if after.is_none() {
                    self.gone_pools.push(name.clone());
                }
                self.full_at = UnixMillis(i64::MIN);
            }
            Change::Synced => self.full_at = UnixMillis(i64::MIN),
            Change::Class { .. } | Change::Other { .. } => {}
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !desk.world.is_synced() {
            return None;
        }
        if self.is_held && desk.may_begin(Method::Emptiness.voluntary()).is_ok() {
            (self.is_held, self.full_at) = (false, UnixMillis(i64::MIN));
        }
        if self.next_due() <= desk.now {
            self.round(desk);
        }
        Some(self.next_due())
    }

    fn done(&mut self, _key: &Text, _outcome: Outcome, _desk: &mut Desk<'_>) {}
}

/// What was seen of one claim.
struct Look {
    name: Text,
    claim: Arc<NodeClaim>,
    /// Marks of a command that nobody remembers.
    is_left_over: bool,
    found: Result<Candidate, Why>,
}

enum Why {
    Blocked(Block),
    Unfit(Unfit),
}

impl Rounds {
    fn next_due(&self) -> UnixMillis {
        let paced = UnixMillis(self.last.0.saturating_add(PACE_MS));
        let full = self.full_at.max(paced);
        let touched = if self.touched.is_empty() { full } else { paced };
        full.min(touched).min(self.validate_at.unwrap_or(full))
    }

    /// A node that is gone may have freed what another waits for.
    fn look_soon(&mut self, is_gone: bool) {
        if is_gone && self.is_short_of_budget {
            self.full_at = UnixMillis(i64::MIN);
        }
    }

    fn round(&mut self, desk: &mut Desk<'_>) {
        let (now, method) = (desk.now, Method::Emptiness);
        let is_full = self.full_at <= now;
        let looks = self.look(desk, is_full);
        (self.last, self.touched) = (now, BTreeSet::new());
        if is_full {
            self.full_at = UnixMillis(now.0.saturating_add(POLL_MS));
            self.eligible.retain(|claim, _| desk.world.claims.contains_key(claim));
        }
        let mut ready = Vec::new();
        let mut pools_in_question = BTreeSet::new();
        let mut newly_empty = Vec::new();
        for look in looks {
            if look.is_left_over {
                let node = desk.world.node_of_claim(&look.claim).map(|node| marks::name_of(&node.metadata));
                desk.commands.give_back(&look.name, &node.unwrap_or_default());
            }
            match look.found {
                Ok(candidate) => {
                    pools_in_question.insert(candidate.pool.clone());
                    if !self.eligible.contains_key(&look.name) {
                        newly_empty.push(look.name.clone());
                    }
                    let since = *self.eligible.entry(look.name).or_insert(now);
                    if since.0.saturating_add(VALIDATION_MS) <= now.0 {
                        ready.push(candidate);
                    }
                }
                Err(why) => self.turn_down(&look.name, &look.claim, &why, desk),
            }
        }
        // Too many of them are asked about while they wait for the second look.
        let may_take = desk.may_take(method.voluntary(), Looks::Empty, &newly_empty);
        let times = self.eligible.values().map(|since| UnixMillis(since.0.saturating_add(VALIDATION_MS)));
        self.validate_at = times.filter(|then| *then > now).min();
        if is_full || !ready.is_empty() {
            let left = self.ask_budgets(desk, is_full, &pools_in_question);
            let (chosen, kept) = emptiness::choose(ready, &left);
            self.is_short_of_budget = !kept.is_empty() || (self.is_short_of_budget && !is_full);
            let may_take = may_take.and_then(|()| {
                desk.may_take(method.voluntary(), Looks::Empty, chosen.iter().map(|candidate| &candidate.claim))
            });
            if may_take.is_ok() {
                self.start(&chosen, desk);
            } else {
                // What was found is asked again when it may be done.
                self.is_held |= !chosen.is_empty();
            }
        }
        if is_full {
            let reason = method.reason_label();
            desk.metrics.set(&families::VOLUNTARY_DISRUPTION_ELIGIBLE_NODES, &[reason], self.eligible.len() as f64);
        }
    }

    /// Looks at all claims, or at those that changed and those whose time of validation has come.
    fn look(&self, desk: &mut Desk<'_>, is_full: bool) -> Vec<Look> {
        let (world, now) = (desk.world, desk.now);
        let has_come = |since: &UnixMillis| {
            let then = since.0.saturating_add(VALIDATION_MS);
            then <= now.0 && then > self.last.0
        };
        let names: Vec<Text> = if is_full {
            world.claims.keys().cloned().collect()
        } else {
            let due = self.eligible.iter().filter(|(_, since)| has_come(since)).map(|(claim, _)| claim.clone());
            self.touched.iter().cloned().chain(due).collect::<BTreeSet<Text>>().into_iter().collect()
        };
        let classes = desk.cloud.node_classes();
        let has_buffers = desk.options.gates.capacity_buffer && !world.buffers.is_empty();
        let view = View {
            now,
            world,
            commands: desk.commands,
            nominations: desk.nominations,
            cloud: &**desk.cloud,
            guards: Guards::read(world),
            pools: usable_pools(world, &**desk.cloud),
        };
        let mut looks = Vec::new();
        let mut held_pods = Vec::new();
        for name in names {
            let Some(claim) = world.claims.get(&name).filter(|claim| marks::is_managed(claim, &classes)) else {
                continue;
            };
            let found = view.judge(&name, claim).map_err(Why::Blocked).and_then(|candidate| {
                let is_for_buffer = has_buffers
                    && [&candidate.node, &candidate.claim].iter().any(|it| view.nominations.is_for_buffer(it));
                let pool = view.pools.get(&candidate.pool).expect("a candidate's pool is usable");
                emptiness::judge(&candidate, pool, is_for_buffer).map(|()| candidate).map_err(Why::Unfit)
            });
            let is_left_over = !view.commands.contains(&name) && is_left_over(world, claim);
            if let Some(node) = world.node_of_claim(claim) {
                let on_node = world.pods_on(node.metadata.name.as_deref().unwrap_or_default());
                held_pods.extend(on_node.filter(|pod| pod.hold.is_some() && pod.is_active()).cloned());
            }
            looks.push(Look { name, claim: claim.clone(), is_left_over, found });
        }
        for pod in held_pods {
            tell_hold(&pod, desk);
        }
        looks
    }

    /// Says why a node stays, and forgets that it was about to go.
    fn turn_down(&mut self, name: &Text, claim: &NodeClaim, why: &Why, desk: &mut Desk<'_>) {
        let was_eligible = self.eligible.remove(name).is_some();
        if !matches!(why, Why::Blocked(block) if block.is_end()) {
            desk.brake.clear(Looks::Empty, name);
        }
        let (reason, words, is_told, quiet_ms) = match why {
            Why::Blocked(block) => ("DisruptionBlocked", block.to_string(), block.is_told(), None),
            Why::Unfit(unfit) => {
                ("Unconsolidatable", unfit.to_string(), unfit.is_told(), Some(UNCONSOLIDATABLE_QUIET_MS))
            }
        };
        if was_eligible && !matches!(why, Why::Blocked(block) if block.is_end()) {
            tracing::debug!(
                controller = NAME,
                NodeClaim = &**name,
                reason = words,
                "abandoning empty node consolidation"
            );
            let method = Method::Emptiness.consolidation_type();
            desk.metrics.add(&families::VOLUNTARY_DISRUPTION_FAILED_VALIDATIONS_TOTAL, &[method], 1.0);
        }
        if !is_told {
            return;
        }
        let node = desk.world.node_of_claim(claim).map(|node| About::of(NODES, &node.metadata));
        for about in node.into_iter().chain([About::of(NODE_CLAIMS, &claim.metadata)]) {
            let event = Event::normal(about, reason, words.clone());
            desk.event(match quiet_ms {
                Some(quiet_ms) => event.quiet_for(quiet_ms),
                None => event,
            });
        }
    }

    /// How many nodes each pool lets go now; told and counted when everything is looked at.
    fn ask_budgets(
        &mut self,
        desk: &mut Desk<'_>,
        is_full: bool,
        pools_in_question: &BTreeSet<Text>,
    ) -> BTreeMap<Text, u32> {
        let method = Method::Emptiness;
        let (reason, label) = (method.reason(), method.reason_label());
        if is_full {
            for pool in std::mem::take(&mut self.gone_pools) {
                desk.metrics.remove(&families::NODEPOOLS_ALLOWED_DISRUPTIONS, &[&pool, label]);
                desk.metrics.remove(&families::NODEPOOLS_NODES_CONSUMING_BUDGETS, &[&pool, label]);
            }
        }
        let world = desk.world;
        let ledger = Ledger::count(world, desk.commands);
        let mut left = BTreeMap::new();
        for (name, pool) in &world.pools {
            let (allowance, error) = ledger.allowance(name, pool, &reason, desk.now);
            left.insert(name.clone(), allowance.left());
            if is_full {
                let labels = [&**name, label];
                desk.metrics.set(&families::NODEPOOLS_ALLOWED_DISRUPTIONS, &labels, f64::from(allowance.allowed));
                let n_consuming = f64::from(allowance.n_consuming);
                desk.metrics.set(&families::NODEPOOLS_NODES_CONSUMING_BUDGETS, &labels, n_consuming);
                if let Some(error) = error {
                    let error = with_causes(&error);
                    tracing::error!(controller = NAME, NodePool = &**name, error, "detected disruption budget errors");
                }
            }
            if allowance.is_shut() && pools_in_question.contains(name) {
                tell_shut(pool, reason.as_str(), desk);
            }
        }
        left
    }

    fn start(&mut self, chosen: &[Candidate], desk: &mut Desk<'_>) {
        if chosen.is_empty() {
            return;
        }
        let method = Method::Emptiness;
        let described: Vec<String> =
            chosen.iter().map(|it| format!("{}/{}/{}", it.node, it.instance_type, it.capacity_type)).collect();
        let described = described.join(", ");
        let id = format!("{:016x}", kerf_api::hash::fnv1(format!("{}/{described}", desk.now.0).as_bytes()));
        tracing::info!(
            controller = NAME,
            "command-id" = id,
            reason = method.reason_label(),
            decision = "delete",
            "disrupted-node-count" = chosen.len(),
            "replacement-node-count" = 0,
            "pod-count" = chosen.iter().map(|it| it.n_pods).sum::<usize>(),
            "disrupted-nodes" = described,
            "disrupting node(s)"
        );
        let labels = ["delete", method.reason_label(), method.consolidation_type()];
        desk.metrics.add(&families::VOLUNTARY_DISRUPTION_DECISIONS_TOTAL, &labels, 1.0);
        for pool in chosen.iter().map(|it| &it.pool).collect::<BTreeSet<_>>() {
            let labels = [&**pool, labels[0], labels[1], labels[2]];
            desk.metrics.add(&families::VOLUNTARY_DISRUPTION_DECISIONS_BY_NODEPOOL_TOTAL, &labels, 1.0);
        }
        let nodes: Vec<(Text, Text)> = chosen.iter().map(|it| (it.claim.clone(), it.node.clone())).collect();
        desk.commands.take(method, &id.into(), &nodes, desk.now);
        for (claim, _) in &nodes {
            self.eligible.remove(claim);
        }
    }
}

/// A taint or a condition of a command that is not known: a restart forgot it.
fn is_left_over(world: &World, claim: &NodeClaim) -> bool {
    let Some(node) = world.node_of_claim(claim) else {
        return false;
    };
    if marks::is_leaving(claim, Some(node)) || marks::is_true(claim, "Rebooting") {
        return false;
    }
    let is_initialized = marks::has_label(&node.metadata, labels::INITIALIZED);
    marks::is_tainted(node) || (is_initialized && marks::is_true(claim, marks::DISRUPTION_REASON))
}

fn tell_shut(pool: &NodePool, reason: &str, desk: &mut Desk<'_>) {
    let about = About::of(NODE_POOLS, &pool.metadata);
    let same = [about.uid.clone(), reason.into()];
    let words = format!("No allowed disruptions for disruption reason {reason} due to blocking budget");
    desk.event(Event::normal(about, "DisruptionBlocked", words).same_by(same).quiet_for(SHUT_POOL_QUIET_MS));
}

fn with_causes(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}
