//! Static pools: `spec.replicas` nodes, whatever the pods ask (gate `StaticCapacity`).
//!
//! ```text
//! too few ──▶ provisioning ──▶ claims from the template, under names that are counted out
//! too many ─▶ deprovisioning ─▶ the claims that hurt least are deleted
//! ```
//!
//! `limits.nodes` is never crossed. Whatever exists counts, what is going and what is about to come included; and the names of a pool's
//! claims come from a list that is as long as the limit. A request of an operator that died meanwhile takes a name that its
//! successor would take, and so one of the two creates nothing.

mod deprovisioning;
mod provisioning;

pub use deprovisioning::Deprovisioning;
pub use provisioning::Provisioning;

use crate::queue::Queue;
use crate::world::{Change, World};
use kerf_api::labels::NODE_POOL;
use kerf_api::{NodeClaim, NodePool};
use kerf_model::Text;
use std::sync::Arc;

/// How often a pool is looked at though nothing changed.
const RECHECK_MS: i64 = 60_000;

/// The claims of a pool, by what is to become of them.
#[derive(Debug, Default)]
struct Tally {
    active: Vec<Arc<NodeClaim>>,
    /// Chosen by a disruption, and not deleted yet.
    n_pending: usize,
    n_deleting: usize,
}

fn tally(world: &World, pool: &str) -> Tally {
    let mut tally = Tally::default();
    for claim in world.claims.values().filter(|claim| pool_of(claim) == Some(pool)) {
        let conditions = claim.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let is_true = |kind: &str| conditions.iter().any(|it| it.type_ == kind && it.status == "True");
        if claim.metadata.deletion_timestamp.is_some() {
            tally.n_deleting += 1;
        } else if is_true("DisruptionReason") && !is_true("Rebooting") {
            tally.n_pending += 1;
        } else {
            tally.active.push(claim.clone());
        }
    }
    tally
}

fn pool_of(claim: &NodeClaim) -> Option<&str> {
    claim.metadata.labels.as_ref()?.get(NODE_POOL).map(String::as_str)
}

/// How many nodes a pool is to have, unless it is none of ours, or on its way out.
fn replicas(pool: &NodePool) -> Option<usize> {
    let replicas = pool.spec.replicas.filter(|_| pool.metadata.deletion_timestamp.is_none())?;
    Some(usize::try_from(replicas).unwrap_or(0))
}

/// Marks the pool of a change.
fn mark(queue: &mut Queue<Text>, change: &Change, world: &World) {
    match change {
        Change::Pool { name, after: None, .. } => queue.forget(name),
        Change::Pool { name, .. } => queue.add(name.clone()),
        Change::Claim { before, after, .. } => {
            let pools = before.iter().chain(after).filter_map(|claim| pool_of(claim));
            pools.filter(|pool| world.pools.contains_key(*pool)).for_each(|pool| queue.add(pool.into()));
        }
        Change::Synced => world.pools.keys().for_each(|name| queue.add(name.clone())),
        _ => {}
    }
}
