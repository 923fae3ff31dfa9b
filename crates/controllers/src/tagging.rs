//! Duty `nodeclaim.tagging`: once a node has its name, the names of node and claim are written onto the machine, for people who
//! look for it in the cloud's own console. The claim's annotations say that it is done.

use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::{CloudAnswer, CloudCall, Outcome};
use crate::lifecycle::is_managed;
use crate::queue::Queue;
use crate::resource::NODE_CLAIMS;
use crate::world::{Change, World, claim_provider_id};
use crate::write;
use kerf_api::NodeClaim;
use kerf_cloud::{CloudError, InstanceRef};
use kerf_model::{ClaimName, Text, UnixMillis};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

const NAME: &str = "nodeclaim.tagging";
const BACKOFF_MS: (i64, i64) = (1_000, 300_000);
/// At a time: nobody waits for these, and the calls that launch machines count against the same limit.
const IN_FLIGHT_MAX: usize = 5;

#[derive(Debug)]
pub struct Tagging {
    queue: Queue<Text>,
    /// What the cloud is being asked, or was told to be written onto the claim.
    asking: BTreeSet<Text>,
    marks: BTreeMap<Text, BTreeMap<Text, Text>>,
    /// Done, by claim and uid, where the provider has no annotation that says so.
    done: BTreeMap<Text, Text>,
    /// The provider does no such thing.
    is_resting: bool,
}

impl Default for Tagging {
    fn default() -> Self {
        Self {
            queue: Queue::new(BACKOFF_MS.0, BACKOFF_MS.1),
            asking: BTreeSet::new(),
            marks: BTreeMap::new(),
            done: BTreeMap::new(),
            is_resting: false,
        }
    }
}

impl Duty for Tagging {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, change: &Change, _: &World) {
        match change {
            Change::Claim { name, after: None, .. } => {
                self.queue.forget(name);
                self.marks.remove(name);
                self.done.remove(name);
            }
            Change::Claim { name, before, after: Some(claim) } => {
                let has_node = |claim: &NodeClaim| node_name(claim).is_some();
                if has_node(claim) && !before.as_ref().is_some_and(|before| has_node(before)) {
                    self.queue.add(name.clone());
                }
            }
            _ => {}
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if self.is_resting || !desk.world.is_synced() || self.asking.len() >= IN_FLIGHT_MAX {
            return None;
        }
        for name in self.queue.take_due(desk.now) {
            if self.asking.len() >= IN_FLIGHT_MAX {
                self.queue.add(name);
            } else {
                self.look_at(&name, desk);
            }
        }
        if self.asking.len() >= IN_FLIGHT_MAX { None } else { self.queue.next() }
    }

    fn done(&mut self, name: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        self.asking.remove(name);
        match outcome {
            Outcome::Cloud(Ok(CloudAnswer::Labelled(marks))) => {
                self.queue.succeeded(name);
                if let Some(uid) = desk.world.claims.get(name).and_then(|claim| claim.metadata.uid.as_deref()) {
                    self.done.insert(name.clone(), uid.into());
                }
                if !marks.is_empty() {
                    self.marks.insert(name.clone(), marks);
                    self.queue.add(name.clone());
                }
            }
            Outcome::Cloud(Err(CloudError::Unsupported { .. })) => self.is_resting = true,
            // Its machine is gone; the claim will follow.
            Outcome::Cloud(Err(error)) if error.is_not_found() => {}
            Outcome::Cloud(Err(error)) => {
                let wait_ms = self.queue.retry(name.clone(), desk.now);
                tracing::error!(controller = NAME, NodeClaim = &**name, %error, wait_ms, "tagging an instance failed");
            }
            Outcome::Api(Ok(_)) => drop(self.marks.remove(name)),
            Outcome::Api(Err(failure)) if failure.is_not_found() => drop(self.marks.remove(name)),
            Outcome::Api(Err(failure)) => {
                tracing::error!(controller = NAME, NodeClaim = &**name, error = %failure, "a write failed");
                self.queue.retry(name.clone(), desk.now);
            }
            Outcome::Cloud(Ok(_)) | Outcome::Thought { .. } => {}
        }
    }
}

impl Tagging {
    fn look_at(&mut self, name: &Text, desk: &mut Desk<'_>) {
        let Some(claim) = desk.world.claims.get(name).filter(|_| !desk.is_busy(name)) else {
            return;
        };
        if claim.metadata.deletion_timestamp.is_some() || !is_managed(claim, &**desk.cloud) {
            return;
        }
        if let Some(marks) = self.marks.get(name) {
            let marks: BTreeMap<&str, &str> = marks.iter().map(|(key, value)| (&**key, &**value)).collect();
            self.asking.insert(name.clone());
            desk.call(name, write::patch(NODE_CLAIMS, "", name, json!({"metadata": {"annotations": marks}})));
            return;
        }
        let annotations = claim.metadata.annotations.as_ref();
        let is_said = |key: &&str| annotations.is_some_and(|all| all.contains_key(*key));
        let marks = desk.cloud.labelling_marks();
        let is_done = self.done.get(name).map(|uid| &**uid) == claim.metadata.uid.as_deref();
        if is_done || (!marks.is_empty() && marks.iter().all(is_said)) {
            return;
        }
        let (Some(id), Some(node)) = (claim_provider_id(claim), node_name(claim)) else {
            return;
        };
        let instance =
            InstanceRef { provider_id: id.into(), claim: ClaimName(name.clone()), node_name: Some(node.into()) };
        self.asking.insert(name.clone());
        desk.ask_cloud(name, CloudCall::LabelInstance(instance));
    }
}

fn node_name(claim: &NodeClaim) -> Option<&str> {
    claim.status.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}
