//! `nodepool.counter`: what a pool's nodes have together, on its status. Counted when something changed, and not more often than
//! every five seconds.

use super::{is_served, new_queue, settle};
use crate::claims::written_amounts;
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::queue::Queue;
use crate::resource::NODE_POOLS;
use crate::world::{Change, World};
use crate::write;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kerf_api::NodePool;
use kerf_api::labels::{INITIALIZED, NODE_POOL};
use kerf_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, NODES, PODS};
use kerf_model::{PoolName, Quantity, Resources, Text, UnixMillis};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const NAME: &str = "nodepool.counter";
const PERIOD_MS: i64 = 5_000;

pub struct Counter {
    queue: Queue<Text>,
    /// Pools in which something changed since they were last put on the queue.
    changed: BTreeSet<Text>,
    counted: BTreeMap<Text, UnixMillis>,
}

impl Default for Counter {
    fn default() -> Self {
        Self { queue: new_queue(), changed: BTreeSet::new(), counted: BTreeMap::new() }
    }
}

impl Duty for Counter {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, change: &Change, world: &World) {
        match change {
            Change::Pool { name, after: None, .. } => {
                self.changed.remove(name);
                self.counted.remove(name);
                self.queue.forget(name);
            }
            Change::Pool { name, before: None, .. } => {
                self.changed.insert(name.clone());
            }
            Change::Claim { before, after, .. } => {
                let sides = before.iter().chain(after);
                self.changed.extend(sides.filter_map(|claim| pool_of(&claim.metadata)));
            }
            Change::Node { before, after, .. } if !counts_alike(before.as_deref(), after.as_deref()) => {
                let sides = before.iter().chain(after);
                self.changed.extend(sides.filter_map(|node| pool_of(&node.metadata)));
            }
            Change::Synced => self.changed.extend(world.pools.keys().cloned()),
            _ => {}
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        // Half of the nodes would be a wrong answer.
        if !desk.world.is_synced() {
            return None;
        }
        for name in std::mem::take(&mut self.changed) {
            let then = self.counted.get(&name).map_or(desk.now, |counted| UnixMillis(counted.0 + PERIOD_MS));
            self.queue.add_at(name, then);
        }
        let due = self.queue.take_due(desk.now);
        if !due.is_empty() {
            let usage = desk.world.mirror.usage();
            for name in due {
                if let Some(pool) = desk.world.pools.get(&name).cloned()
                    && is_served(&**desk.cloud, &pool)
                    && !desk.is_busy(&name)
                {
                    self.counted.insert(name.clone(), desk.now);
                    let used = usage.get(&PoolName(name.clone())).cloned().unwrap_or_default();
                    if let Some(status) = changed_status(&pool, &used) {
                        desk.call(&name, write::patch_status(NODE_POOLS, "", &name, json!({"status": status})));
                    }
                }
            }
        }
        self.queue.next()
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        if matches!(outcome, Outcome::Api(Err(_))) {
            settle(&mut self.queue, key, &outcome, NAME, desk.now);
        } else {
            self.queue.succeeded(key);
            // What changed while the answer was on its way was passed over.
            self.changed.insert(key.clone());
        }
    }
}

fn pool_of(metadata: &ObjectMeta) -> Option<Text> {
    metadata.labels.as_ref()?.get(NODE_POOL).map(|pool| pool.as_str().into())
}

/// A heartbeat changes nothing that is counted.
fn counts_alike(before: Option<&Node>, after: Option<&Node>) -> bool {
    let parts = |node: &Node| {
        let labels = node.metadata.labels.as_ref();
        let label = |key: &str| labels.and_then(|labels| labels.get(key)).cloned();
        let capacity = node.status.as_ref().and_then(|status| status.capacity.clone());
        (label(NODE_POOL), label(INITIALIZED), capacity, node.metadata.deletion_timestamp.is_some())
    };
    before.map(parts) == after.map(parts)
}

/// What to patch of the status; None when it says so already.
fn changed_status(pool: &NodePool, used: &Resources) -> Option<Value> {
    let mut all = Resources::new();
    for name in [CPU, MEMORY, PODS, EPHEMERAL_STORAGE, NODES] {
        all.set(name, Quantity::ZERO);
    }
    all.add(used);
    let n_nodes = all.get(NODES).units();
    let wanted = written_amounts(&all);
    let status = pool.status.clone().unwrap_or_default();
    let known = status.resources.unwrap_or_default();
    if known == wanted && status.nodes == Some(n_nodes) {
        return None;
    }
    let mut resources = json!(wanted);
    for gone in known.keys().filter(|name| !wanted.contains_key(*name)) {
        resources[gone] = Value::Null;
    }
    Some(json!({"resources": resources, "nodes": n_nodes}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(status: &Value) -> NodePool {
        let class = json!({"group": "g", "kind": "k", "name": "n"});
        let pool = json!({"spec": {"template": {"spec": {"nodeClassRef": class}}}, "status": status});
        serde_json::from_value(pool).unwrap()
    }

    #[test]
    fn an_empty_pool_says_zero_of_everything_that_is_always_counted() {
        let status = changed_status(&pool(&json!({})), &Resources::new()).unwrap();
        let zeros = json!({"cpu": "0", "memory": "0", "pods": "0", "ephemeral-storage": "0", "nodes": "0"});
        assert_eq!(status, json!({"resources": zeros, "nodes": 0}));
        assert_eq!(changed_status(&pool(&status), &Resources::new()), None, "it says so already");
    }

    #[test]
    fn a_resource_that_no_node_has_any_more_is_taken_off() {
        let used =
            Resources::new().with("nvidia.com/gpu", Quantity::from_units(8)).with(NODES, Quantity::from_units(1));
        let with_gpu = changed_status(&pool(&json!({})), &used).unwrap();
        assert_eq!((&with_gpu["resources"]["nvidia.com/gpu"], &with_gpu["nodes"]), (&json!("8"), &json!(1)));
        let without = changed_status(&pool(&with_gpu), &Resources::new()).unwrap();
        assert_eq!(without["resources"]["nvidia.com/gpu"], Value::Null);
        assert!(without["resources"].as_object().unwrap().contains_key("nvidia.com/gpu"), "null takes it off");
    }

    #[test]
    fn a_heartbeat_is_no_reason_to_count() {
        let node = |capacity: &str, beat: &str| -> Node {
            serde_json::from_value(json!({
                "metadata": {"name": "n", "labels": {"karpenter.sh/nodepool": "p"}},
                "status": {"capacity": {"cpu": capacity}, "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": beat}]},
            }))
            .unwrap()
        };
        let (one, later) = (node("1", "2026-01-01T00:00:00Z"), node("1", "2026-01-01T00:10:00Z"));
        assert!(counts_alike(Some(&one), Some(&later)));
        assert!(!counts_alike(Some(&one), Some(&node("2", "2026-01-01T00:00:00Z"))));
        assert!(!counts_alike(None, Some(&one)));
    }
}
