//! Claims whose machine is gone without a word: somebody ended it by hand, or the cloud took it.

use super::{BACKOFF_MS, again};
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::{CloudAnswer, CloudCall, Outcome};
use crate::lifecycle::{is_managed, removal};
use crate::queue::Queue;
use crate::resource::NODE_CLAIMS;
use crate::standstill::{Looks, Voluntary};
use crate::world::{Change, World, claim_provider_id, is_ready};
use crate::write;
use kerf_api::NodeClaim;
use kerf_cloud::Instance;
use kerf_model::{Text, UnixMillis};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const NAME: &str = "nodeclaim.garbagecollection";
const EVERY_MS: i64 = 120_000;
/// The key of the question to the cloud; no claim can have this name.
const LIST: &str = "/list";

pub struct Garbage {
    queue: Queue<Text>,
    /// Registered claims when the cloud was asked, by name: one that registers while the cloud counts may be missing from its
    /// answer without being gone.
    asked_about: BTreeMap<Text, Arc<NodeClaim>>,
    leaving: BTreeMap<Text, Arc<NodeClaim>>,
    /// Claims whose machine the cloud does not have.
    lost: BTreeMap<Text, Arc<NodeClaim>>,
    /// It could not go on; when it can, the cloud is asked anew.
    is_held: bool,
}

impl Default for Garbage {
    fn default() -> Self {
        Self {
            queue: Queue::new(BACKOFF_MS.0, BACKOFF_MS.1),
            asked_about: BTreeMap::new(),
            leaving: BTreeMap::new(),
            lost: BTreeMap::new(),
            is_held: false,
        }
    }
}

impl Duty for Garbage {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, change: &Change, _: &World) {
        match change {
            Change::Synced => self.queue.add(LIST.into()),
            Change::Claim { name, after: None, .. } => {
                self.queue.forget(name);
                self.lost.remove(name);
            }
            _ => {}
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !desk.world.is_synced() {
            return None;
        }
        if desk.may_take(Voluntary::Collection, Looks::Gone, self.lost.keys()).is_err() {
            // By then it is another question.
            for name in std::mem::take(&mut self.lost).into_keys() {
                self.queue.forget(&name);
            }
            self.is_held = true;
            return None;
        }
        if std::mem::take(&mut self.is_held) {
            self.queue.add(LIST.into());
        }
        for key in self.queue.take_due(desk.now) {
            if desk.is_busy(&key) {
                continue;
            }
            if *key == *LIST {
                let claims = desk.world.claims.iter();
                let candidates = claims.filter(|(_, claim)| is_candidate(claim) && is_managed(claim, &**desk.cloud));
                self.asked_about = candidates.map(|(name, claim)| (name.clone(), claim.clone())).collect();
                desk.ask_cloud(&key, CloudCall::List);
            } else if let Some(claim) = self.lost.get(&key) {
                desk.call(&key, write::delete(NODE_CLAIMS, "", &key, claim.metadata.uid.as_deref()));
                self.leaving.insert(key.clone(), claim.clone());
            }
        }
        self.queue.next()
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        match outcome {
            Outcome::Cloud(Ok(CloudAnswer::Listed(instances))) => {
                self.queue.succeeded(key);
                self.queue.add_at(key.clone(), UnixMillis(desk.now.0 + EVERY_MS));
                let asked_about = std::mem::take(&mut self.asked_about);
                self.lost = lost(&asked_about, &instances, desk.world);
                for name in self.lost.keys() {
                    self.queue.add(name.clone());
                }
            }
            Outcome::Cloud(Err(error)) => {
                tracing::error!(controller = NAME, error = %error, "listing cloudprovider instances");
                self.queue.retry(key.clone(), desk.now);
            }
            Outcome::Api(Ok(_)) => {
                self.lost.remove(key);
                if let Some(claim) = self.leaving.remove(key) {
                    removal::count(desk.metrics, &claim, "garbage_collected");
                    removal::count_pods(desk.metrics, &claim, "garbage_collected", desk.world);
                    tracing::info!(
                        controller = NAME,
                        NodeClaim = &**key,
                        "provider-id" = claim_provider_id(&claim).unwrap_or_default(),
                        "garbage collecting nodeclaim with no cloudprovider representation"
                    );
                }
            }
            Outcome::Api(Err(failure)) => {
                self.leaving.remove(key);
                if failure.is_not_found() {
                    self.lost.remove(key);
                } else {
                    again(&mut self.queue, key, &failure, NAME, desk.now);
                }
            }
            Outcome::Cloud(Ok(_)) | Outcome::Thought { .. } => {}
        }
    }
}

/// Of the claims asked about, those whose machine is not listed and whose Node does not say that it lives.
fn lost(
    asked_about: &BTreeMap<Text, Arc<NodeClaim>>,
    instances: &[Instance],
    world: &World,
) -> BTreeMap<Text, Arc<NodeClaim>> {
    let there: BTreeSet<&str> =
        instances.iter().filter(|instance| !instance.is_ending).map(|instance| &*instance.provider_id).collect();
    let is_lost = |name: &Text, claim: &NodeClaim| {
        let Some(id) = claim_provider_id(claim).filter(|id| !there.contains(id)) else {
            return false;
        };
        // Whoever renamed or deleted it meanwhile has made another question of it.
        let is_same = world.claims.get(name).is_some_and(|now| is_candidate(now) && claim_provider_id(now) == Some(id));
        is_same && !world.nodes_of(id).iter().any(|node| is_ready(node))
    };
    asked_about
        .iter()
        .filter(|(name, claim)| is_lost(name, claim))
        .map(|(name, claim)| (name.clone(), claim.clone()))
        .collect()
}

fn is_candidate(claim: &NodeClaim) -> bool {
    let conditions = claim.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    claim.metadata.deletion_timestamp.is_none()
        && conditions.iter().any(|condition| condition.type_ == "Registered" && condition.status == "True")
}
