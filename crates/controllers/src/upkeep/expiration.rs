//! Claims that have lived their time. Budgets, disruption marks and promises do not hold them: who wants a limit on a node's age
//! wants it for security's sake.

use super::{BACKOFF_MS, again};
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::lifecycle::{is_managed, removal};
use crate::queue::Queue;
use crate::resource::NODE_CLAIMS;
use crate::standstill::{Looks, Voluntary};
use crate::world::{Change, World};
use crate::write;
use kerf_api::NodeClaim;
use kerf_model::{Text, UnixMillis};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const NAME: &str = "nodeclaim.expiration";

pub struct Expiration {
    queue: Queue<Text>,
    /// Those whose time is over, and which go as soon as they may.
    over: BTreeSet<Text>,
    /// Claims as they were when their deletion was asked for.
    leaving: BTreeMap<Text, Arc<NodeClaim>>,
}

impl Default for Expiration {
    fn default() -> Self {
        Self { queue: Queue::new(BACKOFF_MS.0, BACKOFF_MS.1), over: BTreeSet::new(), leaving: BTreeMap::new() }
    }
}

impl Duty for Expiration {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, change: &Change, _: &World) {
        if let Change::Claim { name, after, .. } = change {
            match after {
                None => {
                    self.queue.forget(name);
                    self.over.remove(name);
                }
                Some(claim) => {
                    if let Some(then) = expires(claim) {
                        self.queue.add_at(name.clone(), then);
                    }
                }
            }
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !desk.world.is_synced() {
            return None;
        }
        for name in self.queue.take_due(desk.now) {
            let claim = desk.world.claims.get(&name);
            let is_over = |claim: &Arc<NodeClaim>| expires(claim).is_some_and(|then| then <= desk.now);
            if claim.is_some_and(|claim| is_over(claim) && is_managed(claim, &**desk.cloud)) {
                self.over.insert(name);
            }
        }
        let is_going =
            |name: &Text| desk.world.claims.get(name).is_none_or(|claim| claim.metadata.deletion_timestamp.is_some());
        self.over.retain(|name| !is_going(name));
        // Clocks are set back, and lives are prolonged: such a claim's time is still to come.
        let time_of = |name: &Text| desk.world.claims.get(name).and_then(|claim| expires(claim));
        for name in self.over.extract_if(.., |name| time_of(name).is_none_or(|then| then > desk.now)) {
            if let Some(then) = time_of(&name) {
                self.queue.add_at(name.clone(), then);
            }
            desk.brake.clear(Looks::Expired, &name);
        }
        // A Node that cannot be read could not be drained.
        let is_drainable = |claim: &Arc<NodeClaim>| desk.world.unreadable_node_of(claim).is_none();
        let due = self.over.iter().filter(|name| desk.world.claims.get(*name).is_some_and(is_drainable));
        let due: Vec<Text> = due.cloned().collect();
        if !due.is_empty() && desk.may_take(Voluntary::Expiration, Looks::Expired, &due).is_ok() {
            for name in due {
                self.over.remove(&name);
                let Some(claim) = desk.world.claims.get(&name).filter(|_| !desk.is_busy(&name)) else {
                    continue;
                };
                self.leaving.insert(name.clone(), claim.clone());
                desk.call(&name, write::delete(NODE_CLAIMS, "", &name, claim.metadata.uid.as_deref()));
            }
        }
        self.queue.next()
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        let claim = self.leaving.remove(key);
        match outcome {
            Outcome::Api(Ok(_)) => {
                self.queue.forget(key);
                if let Some(claim) = claim {
                    removal::count(desk.metrics, &claim, "expired");
                    removal::count_pods(desk.metrics, &claim, "expired", desk.world);
                    tracing::info!(controller = NAME, NodeClaim = &**key, "deleted an expired nodeclaim");
                }
            }
            Outcome::Api(Err(failure)) if failure.is_not_found() => {}
            Outcome::Api(Err(failure)) => again(&mut self.queue, key, &failure, NAME, desk.now),
            Outcome::Cloud(_) | Outcome::Thought { .. } => {}
        }
    }
}

/// When a claim has lived its time; None for those that may live for ever.
pub(crate) fn expires(claim: &NodeClaim) -> Option<UnixMillis> {
    let after = claim.spec.expire_after.as_ref()?.parse().ok()??;
    let created = claim.metadata.creation_timestamp.as_ref()?;
    let then = created.0.saturating_add(after).ok()?;
    Some(UnixMillis(then.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::time;
    use crate::lifecycle::testing::claim;
    use kerf_api::DurationOrNever;

    #[test]
    fn a_claim_expires_so_long_after_its_creation_or_never() {
        let mut it = claim("c");
        it.metadata.creation_timestamp = Some(time(UnixMillis(5_000)));
        assert_eq!(expires(&it), None);
        it.spec.expire_after = Some(DurationOrNever::never());
        assert_eq!(expires(&it), None);
        it.spec.expire_after = Some(DurationOrNever::new("30s"));
        assert_eq!(expires(&it), Some(UnixMillis(35_000)));
        it.spec.expire_after = Some(DurationOrNever::new("0s"));
        assert_eq!(expires(&it), Some(UnixMillis(5_000)));
    }
}
