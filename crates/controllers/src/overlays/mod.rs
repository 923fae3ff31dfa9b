//! `nodeoverlay.controller`: which NodeOverlays are in force, on their status (gate `NodeOverlay`).
//!
//! Overlays are judged together, because two of one weight that touch the same thing conflict. What they do to prices and capacity
//! happens where instance types are asked for; the same code judges here and applies there, so the two cannot differ. The cloud is
//! told what is in force, and a claim says whether any of its options owes its price or a resource to an overlay.

use crate::conditions::{Conditions, NODE_OVERLAY, Status};
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::pools::{new_queue, settle};
use crate::queue::{Queue, earlier};
use crate::resource::NODE_OVERLAYS;
use crate::supply::{CloudSupply, read_overlay};
use crate::world::{Change, World};
use crate::write;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kerf_api::{LabelRules, NodeOverlay};
use kerf_cloud::overlay::{self, Changed, Overlay, PoolTypes};
use kerf_mirror::Kind;
use kerf_model::{Pool, PoolName, Text, TypeName, UnixMillis};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

const NAME: &str = "nodeoverlay.controller";
const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
const RECHECK_MS: i64 = 6 * 3_600_000;

pub struct Overlays {
    /// Overlays whose status is to be compared with the judgement.
    queue: Queue<Text>,
    judgement: BTreeMap<Text, Verdict>,
    is_due: bool,
    again_at: Option<UnixMillis>,
}

/// None: in force.
type Verdict = Option<(&'static str, String)>;

impl Default for Overlays {
    fn default() -> Self {
        Self { queue: new_queue(), judgement: BTreeMap::new(), is_due: true, again_at: None }
    }
}

impl Duty for Overlays {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, change: &Change, world: &World) {
        match change {
            Change::Other { key } if key.kind == Kind::NodeOverlay => {
                // Its status is what we write; only what users write is judged.
                let generation = |overlay: &Arc<NodeOverlay>| overlay.metadata.generation;
                let is_judged = self.judgement.contains_key(&key.name)
                    && world.overlays.get(&key.name).is_some_and(|overlay| {
                        let conditions = conditions_of(overlay);
                        let said = conditions.get(VALIDATION_SUCCEEDED);
                        said.is_some_and(|said| said.observed_generation == generation(overlay))
                    });
                self.is_due |= !is_judged;
                self.queue.add(key.name.clone());
            }
            Change::Pool { before, after, .. } => {
                let generation = |metadata: &ObjectMeta| metadata.generation;
                let of = |pool: &Option<Arc<kerf_api::NodePool>>| pool.as_ref().map(|pool| generation(&pool.metadata));
                self.is_due |= of(before) != of(after);
            }
            Change::Class { before, after, .. } => {
                let of = |class: &Option<Arc<kerf_mirror::NodeClassObject>>| {
                    class.as_ref().map(|class| class.metadata.generation)
                };
                self.is_due |= of(before) != of(after);
            }
            Change::Synced => self.is_due = true,
            _ => {}
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !desk.world.is_synced() {
            return None;
        }
        if self.is_due || self.again_at.is_some_and(|then| then <= desk.now) {
            self.is_due = false;
            self.again_at = Some(UnixMillis(desk.now.0 + RECHECK_MS));
            self.judgement = judge(desk);
            desk.cloud.set_overlays(in_force(desk.world, &self.judgement));
            desk.world.overlays.keys().for_each(|name| self.queue.add(name.clone()));
        }
        for name in self.queue.take_due(desk.now) {
            if let Some(overlay) = desk.world.overlays.get(&name).cloned()
                && let Some(verdict) = self.judgement.get(&name)
                && !desk.is_busy(&name)
            {
                write_status(desk, &name, &overlay, verdict);
            }
        }
        earlier(self.queue.next(), self.again_at.filter(|_| !desk.world.overlays.is_empty()))
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        settle(&mut self.queue, key, &outcome, NAME, desk.now);
    }
}

fn judge(desk: &Desk<'_>) -> BTreeMap<Text, Verdict> {
    if desk.world.overlays.is_empty() {
        return BTreeMap::new();
    }
    let supply = CloudSupply { cloud: &**desk.cloud, shelves: desk.stock, now: desk.now };
    let rejected: BTreeMap<Text, Text> = desk.world.mirror.rejected_overlays(&supply).into_iter().collect();
    let rules = &desk.options.mirror.labels;
    let verdict = |(name, overlay): (&Text, &Arc<NodeOverlay>)| {
        let unsound = problems(name, overlay, rules).map(|message| ("RuntimeValidation", message));
        let verdict = unsound.or_else(|| rejected.get(name).map(|why| ("Conflict", in_words(why))));
        (name.clone(), verdict)
    };
    desk.world.overlays.iter().map(verdict).collect()
}

/// What the cloud is told: it ranks launches by the same prices that plans are made with.
fn in_force(world: &World, judgement: &BTreeMap<Text, Verdict>) -> Vec<Overlay> {
    let accepted = world.overlays.iter().filter(|(name, _)| judgement.get(*name) == Some(&None));
    accepted.filter_map(|(name, overlay)| read_overlay(name, overlay).ok()).collect()
}

/// What overlays change of the types of each pool, for plans made from these pools.
pub(crate) fn changed(desk: &Desk<'_>, pools: &[Pool]) -> BTreeMap<PoolName, BTreeMap<TypeName, Changed>> {
    if !desk.options.gates.node_overlay || desk.world.overlays.is_empty() {
        return BTreeMap::new();
    }
    let in_force = in_force(desk.world, &judge(desk));
    let types = |pool: &Pool| PoolTypes {
        pool: pool.name.clone(),
        labels: pool.labels.clone(),
        types: pool.types.iter().map(|it| (**it).clone()).collect(),
    };
    let overlaid = overlay::apply(&in_force, pools.iter().map(types).collect());
    overlaid.pools.into_iter().map(|(name, of_pool)| (name, of_pool.changed)).collect()
}

/// The contract's words, and which overlay it is.
fn in_words(why: &Text) -> String {
    format!("conflict with another overlay: {why}")
}

/// What is wrong with an overlay by itself.
fn problems(name: &Text, overlay: &NodeOverlay, rules: &LabelRules) -> Option<String> {
    let problems: Vec<String> = overlay.validate(rules).iter().map(ToString::to_string).collect();
    if problems.is_empty() { read_overlay(name, overlay).err() } else { Some(problems.join("; ")) }
}

fn conditions_of(overlay: &NodeOverlay) -> Conditions {
    let stored = overlay.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    Conditions::of(NODE_OVERLAY, &overlay.metadata, stored)
}

fn write_status(desk: &mut Desk<'_>, name: &Text, overlay: &NodeOverlay, verdict: &Verdict) {
    let mut conditions = conditions_of(overlay);
    match verdict {
        None => conditions.set_true(VALIDATION_SUCCEEDED, desk.now),
        Some((reason, message)) => {
            let is_news = conditions.set(VALIDATION_SUCCEEDED, Status::False, reason, message, desk.now);
            if is_news {
                tracing::error!(controller = NAME, NodeOverlay = %name, error = message, "nodeoverlay is not in force");
            }
            is_news
        }
    };
    if conditions.is_changed() {
        let patch = json!({"status": conditions.to_value()});
        let patch = write::if_unchanged(patch, overlay.metadata.resource_version.as_deref());
        desk.call(name, write::patch_status(NODE_OVERLAYS, "", name, patch));
    }
}
