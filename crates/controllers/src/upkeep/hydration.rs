//! The label that names a claim's class, for claims and nodes that were made without it.

use super::{BACKOFF_MS, again};
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::lifecycle::is_managed;
use crate::queue::Queue;
use crate::resource::{NODE_CLAIMS, NODES};
use crate::world::{Change, World, claim_provider_id};
use crate::write;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kerf_api::NodeClaim;
use kerf_api::labels::{REGISTERED, node_class_label};
use kerf_model::{Text, UnixMillis};
use serde_json::{Value, json};

const OF_CLAIMS: &str = "nodeclaim.hydration";
const OF_NODES: &str = "node.hydration";

pub struct ClaimHydration {
    queue: Queue<Text>,
}

pub struct NodeHydration {
    queue: Queue<Text>,
}

impl Default for ClaimHydration {
    fn default() -> Self {
        Self { queue: Queue::new(BACKOFF_MS.0, BACKOFF_MS.1) }
    }
}

impl Default for NodeHydration {
    fn default() -> Self {
        Self { queue: Queue::new(BACKOFF_MS.0, BACKOFF_MS.1) }
    }
}

impl Duty for ClaimHydration {
    fn name(&self) -> &'static str {
        OF_CLAIMS
    }

    fn observe(&mut self, change: &Change, _: &World) {
        match change {
            Change::Claim { name, after: Some(_), .. } => self.queue.add(name.clone()),
            Change::Claim { name, after: None, .. } => self.queue.forget(name),
            _ => {}
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !desk.world.is_synced() {
            return None;
        }
        for name in self.queue.take_due(desk.now) {
            let claim = desk.world.claims.get(&name).filter(|claim| is_managed(claim, &**desk.cloud));
            if let Some(patch) = claim.and_then(|claim| label_for(claim, &claim.metadata))
                && !desk.is_busy(&name)
            {
                desk.call(&name, write::patch(NODE_CLAIMS, "", &name, patch));
            }
        }
        self.queue.next()
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        match outcome {
            Outcome::Api(Ok(_)) => self.queue.succeeded(key),
            Outcome::Api(Err(failure)) => again(&mut self.queue, key, &failure, OF_CLAIMS, desk.now),
            Outcome::Cloud(_) | Outcome::Thought { .. } => {}
        }
    }
}

impl Duty for NodeHydration {
    fn name(&self) -> &'static str {
        OF_NODES
    }

    fn observe(&mut self, change: &Change, world: &World) {
        match change {
            Change::Node { name, after: Some(_), .. } => self.queue.add(name.clone()),
            Change::Node { name, after: None, .. } => self.queue.forget(name),
            Change::Claim { after: Some(claim), .. } => {
                for node in claim_provider_id(claim).into_iter().flat_map(|id| world.nodes_of(id)) {
                    self.queue.add(node.metadata.name.as_deref().unwrap_or_default().into());
                }
            }
            _ => {}
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !desk.world.is_synced() {
            return None;
        }
        for name in self.queue.take_due(desk.now) {
            // A node that is not registered yet is about to get all labels of its claim.
            let node = desk.world.nodes.get(&name).filter(|node| has_label(&node.metadata, REGISTERED));
            let patch = node.and_then(|node| {
                let claim = desk.world.claim_of_node(node).filter(|claim| is_managed(claim, &**desk.cloud))?;
                label_for(claim, &node.metadata)
            });
            if let Some(patch) = patch
                && !desk.is_busy(&name)
            {
                desk.call(&name, write::patch(NODES, "", &name, patch));
            }
        }
        self.queue.next()
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        match outcome {
            Outcome::Api(Ok(_)) => self.queue.succeeded(key),
            Outcome::Api(Err(failure)) => again(&mut self.queue, key, &failure, OF_NODES, desk.now),
            Outcome::Cloud(_) | Outcome::Thought { .. } => {}
        }
    }
}

/// The patch that gives an object the label of its claim's class. None when it has it.
fn label_for(claim: &NodeClaim, metadata: &ObjectMeta) -> Option<Value> {
    let reference = &claim.spec.node_class_ref;
    let key = node_class_label(&reference.group, &reference.kind);
    (!has_label(metadata, &key)).then(|| json!({"metadata": {"labels": {key: reference.name}}}))
}

fn has_label(metadata: &ObjectMeta, key: &str) -> bool {
    metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(key))
}
