//! What the operator says of each NodePool.
//!
//! ```text
//! NodePool ─┬─▶ hash                 annotations: a number to recognise drift by
//!           ├─▶ validation ─┐
//! class ────┼─▶ readiness ──┴─▶ Ready    nothing is bought for a pool that is not
//! claims ───┼─▶ registration health        for people to see
//! nodes ────┴─▶ counter                    what limits are compared with
//! ```
//!
//! Pools whose node class is of a kind that the provider does not serve are somebody else's: nothing is written on them.

mod counter;
mod hash;
mod readiness;
mod registration_health;
mod validation;

pub use counter::Counter;
pub use hash::Hash;
pub use readiness::Readiness;
pub use registration_health::RegistrationHealth;
pub use validation::Validation;

use crate::conditions::{Conditions, NODE_POOL};
use crate::desk::Desk;
use crate::errand::Outcome;
use crate::queue::Queue;
use crate::resource::NODE_POOLS;
use crate::world::{Change, World};
use crate::write;
use kerf_api::NodePool;
use kerf_cloud::CloudProvider;
use kerf_model::{NodeClassRef, Text, UnixMillis};
use serde_json::{Value, json};

/// A failed write is tried again after this long, doubling.
const RETRY_MS: (i64, i64) = (100, 30_000);

pub(crate) fn new_queue() -> Queue<Text> {
    Queue::new(RETRY_MS.0, RETRY_MS.1)
}

/// The class that a pool's nodes are built with.
pub fn class_of(pool: &NodePool) -> NodeClassRef {
    let class = &pool.spec.template.spec.node_class_ref;
    NodeClassRef {
        group: class.group.as_str().into(),
        kind: class.kind.as_str().into(),
        name: class.name.as_str().into(),
    }
}

/// Whether a pool is ours to look after.
pub fn is_served(cloud: &dyn CloudProvider, pool: &NodePool) -> bool {
    let class = class_of(pool);
    cloud.node_classes().iter().any(|kind| kind.is(&class))
}

/// Whether a pool may be used: looked at, sound, and its class ready. A statement about an older generation does not count.
pub fn is_ready(pool: &NodePool) -> bool {
    let conditions = pool.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    ready.is_some_and(|ready| ready.status == "True" && ready.observed_generation == pool.metadata.generation)
}

pub(crate) fn conditions_of(pool: &NodePool) -> Conditions {
    let stored = pool.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    Conditions::of(NODE_POOL, &pool.metadata, stored)
}

/// Marks the pool of a change, and the pools of a class that changed.
pub(crate) fn mark_pools(queue: &mut Queue<Text>, change: &Change, world: &World) {
    match change {
        Change::Pool { name, after: None, .. } => queue.forget(name),
        Change::Pool { name, .. } => queue.add(name.clone()),
        Change::Class { class, .. } => {
            let of_class = world.pools.iter().filter(|(_, pool)| class_of(pool) == *class);
            of_class.for_each(|(name, _)| queue.add(name.clone()));
        }
        Change::Synced => world.pools.keys().for_each(|name| queue.add(name.clone())),
        _ => {}
    }
}

/// Writes a pool's conditions, and whatever else of its status, unless the pool has changed meanwhile.
pub(crate) fn patch_conditions(
    desk: &mut Desk<'_>,
    name: &Text,
    pool: &NodePool,
    conditions: &Conditions,
    more: Value,
) {
    let mut status = conditions.to_value();
    if let (Some(status), Value::Object(more)) = (status.as_object_mut(), more) {
        status.extend(more);
    }
    let patch = write::if_unchanged(json!({"status": status}), pool.metadata.resource_version.as_deref());
    desk.call(name, write::patch_status(NODE_POOLS, "", name, patch));
}

/// After a write: the key is looked at again, later if it failed, and not at all if its object is gone.
pub(crate) fn settle(queue: &mut Queue<Text>, key: &Text, outcome: &Outcome, controller: &str, now: UnixMillis) {
    match outcome {
        Outcome::Api(Err(failure)) if failure.is_not_found() => queue.forget(key),
        Outcome::Api(Err(failure)) => {
            let wait_ms = queue.retry(key.clone(), now);
            // Somebody else wrote first: that is how things go, and nothing to worry about.
            if failure.is_conflict() {
                tracing::debug!(controller, name = %key, error = %failure, wait_ms, "the object has moved on");
            } else {
                tracing::error!(controller, name = %key, error = %failure, wait_ms, "Reconciler error");
            }
        }
        _ => {
            queue.succeeded(key);
            queue.add(key.clone());
        }
    }
}
