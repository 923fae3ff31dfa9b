//! `nodepool.hash`: the number that tells whether a claim was made from the template as it is now.
//!
//! When the way of hashing changes (the version), claims would all look drifted at once. So the claims are rewritten first, except
//! those that had drifted already, and the pool last: as long as the pool says the old version, the work is not done.

use super::{is_served, mark_pools, new_queue, settle};
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::queue::Queue;
use crate::resource::{NODE_CLAIMS, NODE_POOLS};
use crate::world::{Change, World};
use crate::write;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kerf_api::hash::NODE_POOL_HASH_VERSION as VERSION;
use kerf_api::labels::{NODE_POOL, NODE_POOL_HASH, NODE_POOL_HASH_VERSION};
use kerf_api::{NodeClaim, NodePool};
use kerf_model::{Text, UnixMillis};
use serde_json::{Value, json};

const NAME: &str = "nodepool.hash";

pub struct Hash {
    queue: Queue<Text>,
}

impl Default for Hash {
    fn default() -> Self {
        Self { queue: new_queue() }
    }
}

impl Duty for Hash {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, change: &Change, world: &World) {
        if matches!(change, Change::Pool { .. } | Change::Synced) {
            mark_pools(&mut self.queue, change, world);
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        // Claims that have not been seen yet would keep their old version.
        if !desk.world.is_synced() {
            return None;
        }
        for name in self.queue.take_due(desk.now) {
            if let Some(pool) = desk.world.pools.get(&name).cloned()
                && is_served(&**desk.cloud, &pool)
                && !desk.is_busy(&name)
            {
                write_hash(desk, &name, &pool);
            }
        }
        self.queue.next()
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        // A claim's key has its pool in front; what is wrong with a claim must not keep the others waiting.
        let pool: Text = key.split_once('/').map_or_else(|| key.clone(), |(pool, _)| pool.into());
        match &outcome {
            Outcome::Api(Err(failure)) if pool != *key && failure.is_not_found() => self.queue.add(pool),
            _ => settle(&mut self.queue, &pool, &outcome, NAME, desk.now),
        }
    }
}

fn write_hash(desk: &mut Desk<'_>, name: &Text, pool: &NodePool) {
    let hash = match pool.hash() {
        Ok(hash) => hash,
        Err(error) => {
            tracing::error!(controller = NAME, NodePool = %name, error = %error, "cannot hash the nodepool's template");
            return;
        }
    };
    if annotation(&pool.metadata, NODE_POOL_HASH_VERSION) != Some(VERSION) {
        let outdated: Vec<_> = desk.world.claims.values().filter(|claim| is_outdated(claim, name)).cloned().collect();
        for claim in &outdated {
            let claim_name = claim.metadata.name.as_deref().unwrap_or_default();
            let key: Text = format!("{name}/{claim_name}").into();
            if !desk.is_busy(&key) {
                desk.call(&key, write::patch(NODE_CLAIMS, "", claim_name, claim_patch(claim, &hash)));
            }
        }
        if !outdated.is_empty() {
            return;
        }
    }
    let wanted = [(NODE_POOL_HASH, hash.as_str()), (NODE_POOL_HASH_VERSION, VERSION)];
    if wanted.iter().any(|(key, value)| annotation(&pool.metadata, key) != Some(value)) {
        let patch = json!({"metadata": {"annotations": {NODE_POOL_HASH: hash, NODE_POOL_HASH_VERSION: VERSION}}});
        desk.call(name, write::patch(NODE_POOLS, "", name, patch));
    }
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn is_outdated(claim: &NodeClaim, pool: &str) -> bool {
    let of_pool = claim.metadata.labels.as_ref().and_then(|labels| labels.get(NODE_POOL));
    of_pool.is_some_and(|of_pool| of_pool == pool)
        && annotation(&claim.metadata, NODE_POOL_HASH_VERSION) != Some(VERSION)
}

fn claim_patch(claim: &NodeClaim, hash: &str) -> Value {
    let conditions = claim.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    // With its old number it stays drifted; with the new one it would be forgiven.
    if conditions.iter().any(|condition| condition.type_ == "Drifted" && condition.status == "True") {
        return json!({"metadata": {"annotations": {NODE_POOL_HASH_VERSION: VERSION}}});
    }
    json!({"metadata": {"annotations": {NODE_POOL_HASH: hash, NODE_POOL_HASH_VERSION: VERSION}}})
}
