//! `nodepool.validation`: what the schema cannot check becomes a condition with the field's path.

use super::{conditions_of, is_served, mark_pools, new_queue, patch_conditions, settle};
use crate::conditions::Status;
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::events::{About, Event, cut};
use crate::queue::Queue;
use crate::resource::NODE_POOLS;
use crate::world::{Change, World};
use kerf_api::{LabelRules, NodePool};
use kerf_model::{Text, UnixMillis};
use serde_json::Value;

const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
const FAILED: &str = "NodePoolValidationFailed";

pub struct Validation {
    queue: Queue<Text>,
}

impl Default for Validation {
    fn default() -> Self {
        Self { queue: new_queue() }
    }
}

impl Duty for Validation {
    fn name(&self) -> &'static str {
        "nodepool.validation"
    }

    fn observe(&mut self, change: &Change, world: &World) {
        if matches!(change, Change::Pool { .. } | Change::Synced) {
            mark_pools(&mut self.queue, change, world);
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        for name in self.queue.take_due(desk.now) {
            if let Some(pool) = desk.world.pools.get(&name)
                && is_served(&**desk.cloud, pool)
                && !desk.is_busy(&name)
            {
                validate(desk, &name, &pool.clone());
            }
        }
        self.queue.next()
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        settle(&mut self.queue, key, &outcome, "nodepool.validation", desk.now);
    }
}

fn validate(desk: &mut Desk<'_>, name: &Text, pool: &NodePool) {
    let mut conditions = conditions_of(pool);
    match problems(pool, &desk.options.mirror.labels) {
        None => {
            conditions.set_true(VALIDATION_SUCCEEDED, desk.now);
        }
        Some(message) => {
            let is_news = conditions.set(VALIDATION_SUCCEEDED, Status::False, FAILED, &message, desk.now);
            if is_news {
                tracing::error!(controller = "nodepool.validation", NodePool = %name, error = message, "nodepool is invalid");
                let about = About::of(NODE_POOLS, &pool.metadata);
                let same = [about.uid.clone(), message.as_str().into()];
                desk.event(Event::warning(about, FAILED, cut(message)).same_by(same));
            }
        }
    }
    if conditions.is_changed() {
        patch_conditions(desk, name, pool, &conditions, Value::Null);
    }
}

/// Everything that is wrong with a pool, in one line.
fn problems(pool: &NodePool, rules: &LabelRules) -> Option<String> {
    let mut problems: Vec<String> = pool.validate(rules).iter().map(ToString::to_string).collect();
    if let Err(error) = pool.hash() {
        problems.push(format!("spec.template.spec: {error}"));
    }
    (!problems.is_empty()).then(|| problems.join("; "))
}
