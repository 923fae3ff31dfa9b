//! Duty `nodeclaim.disruption`: says on each claim whether consolidation may look at it yet, and whether it has drifted.

use super::drift::{self, Memo};
use super::marks;
use crate::classes::hash;
use crate::conditions::{Conditions, NODE_CLAIM, Status};
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::{CloudAnswer, CloudCall, Outcome};
use crate::queue::Queue;
use crate::world::{Change, World};
use kerf_api::{DurationOrNever, NodeClaim, NodePool, labels};
use kerf_cloud::CloudError;
use kerf_model::{Text, UnixMillis};

const NAME: &str = "nodeclaim.disruption";

/// Back-off of a claim whose status could not be written.
const BACKOFF_MS: (i64, i64) = (100, 10_000);

#[derive(Debug)]
pub struct Conditioning {
    queue: Queue<Text>,
    /// What the provider said about drift.
    memo: Memo,
}

impl Default for Conditioning {
    fn default() -> Self {
        Self { queue: Queue::new(BACKOFF_MS.0, BACKOFF_MS.1), memo: Memo::default() }
    }
}

/// What is to stand on a claim about drift.
enum Drift {
    /// Whatever stands there.
    Keep,
    No,
    Yes(Text),
    /// The provider has been asked.
    Asked,
}

/// Whether consolidation may look at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Not at all, as things are.
    Never,
    /// Not before then.
    Until(UnixMillis),
    Over,
}

/// A node rests for `consolidateAfter` since a pod came or went, or since it was initialized. Static pools are never consolidated.
pub fn rest(claim: &NodeClaim, pool: &NodePool, now: UnixMillis) -> Rest {
    let after = pool.spec.disruption.as_ref().and_then(|disruption| disruption.consolidate_after.as_ref());
    // A pool that says nothing means the schema's default, at once.
    let after = match after.map_or(Ok(Some(jiff::SignedDuration::ZERO)), DurationOrNever::parse) {
        Ok(Some(after)) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Ok(None) | Err(_) => return Rest::Never,
    };
    let initialized = marks::stored(claim)
        .iter()
        .find(|condition| condition.type_ == marks::INITIALIZED && condition.status == "True");
    let Some(initialized) = initialized.filter(|_| !pool.is_static()) else {
        return Rest::Never;
    };
    let event = claim.status.as_ref().and_then(|status| status.last_pod_event_time.as_ref());
    let since = event.unwrap_or(&initialized.last_transition_time).0.as_millisecond();
    let then = UnixMillis(since.saturating_add(after));
    if then > now { Rest::Until(then) } else { Rest::Over }
}

impl Conditioning {
    fn reconcile(&mut self, name: &Text, desk: &mut Desk<'_>) {
        let Some(claim) = desk.world.claims.get(name).cloned() else {
            self.queue.forget(name);
            self.memo.forget(name);
            return;
        };
        if claim.metadata.deletion_timestamp.is_some() || !marks::is_managed(&claim, &desk.cloud.node_classes()) {
            return;
        }
        let pool = marks::label(&claim.metadata, labels::NODE_POOL).and_then(|pool| desk.world.pools.get(pool));
        let Some(pool) = pool.cloned() else {
            return;
        };
        let drift = self.drift(name, &claim, &pool, desk);
        if matches!(drift, Drift::Asked) {
            // Its end marks the key again.
            return;
        }
        let rest = rest(&claim, &pool, desk.now);
        let mut conditions = Conditions::of(NODE_CLAIM, &claim.metadata, marks::stored(&claim));
        let is_rest_news = say_rest(name, &claim, rest, &mut conditions, desk.now);
        let is_drift_news = say_drift(name, &claim, &drift, &mut conditions, desk.now);
        if is_rest_news || is_drift_news {
            let call = marks::write_conditions(&claim, &conditions);
            desk.call(name, call);
        }
        if let Rest::Until(then) = rest {
            self.queue.add_at(name.clone(), then);
        }
        if let Some(then) = self.memo.good_until(name).filter(|then| *then > desk.now) {
            self.queue.add_at(name.clone(), then);
        }
    }

    /// What the objects tell comes first; the provider is asked when they tell nothing and its last word has aged.
    fn drift(&mut self, name: &Text, claim: &NodeClaim, pool: &NodePool, desk: &mut Desk<'_>) -> Drift {
        let Some(instance) = drift::instance(name, claim).filter(|_| marks::is_true(claim, marks::LAUNCHED)) else {
            return Drift::No;
        };
        let well_known = &desk.options.mirror.scheduling.well_known;
        if let Some(reason) = drift::of_pool(claim, pool, |key| well_known.contains(key)) {
            return Drift::Yes(reason.into());
        }
        let reference = drift::class_of(claim);
        let Some(class) = desk.world.classes.get(&reference) else {
            return Drift::No;
        };
        let kind = desk.cloud.node_classes().into_iter().find(|kind| kind.is(&reference));
        if kind.is_some_and(|kind| hash::is_drifted(&kind, class, claim)) {
            return Drift::Yes("NodeClassDrift".into());
        }
        match self.memo.word(name, class, desk.now) {
            Some(Some(Some(reason))) => Drift::Yes(reason.clone()),
            Some(Some(None)) => Drift::No,
            Some(None) => Drift::Keep,
            None => {
                self.memo.asked(name, class);
                desk.ask_cloud(name, CloudCall::Drift { instance, class: class.value.clone() });
                Drift::Asked
            }
        }
    }

    fn answered(&mut self, name: &Text, answer: Result<CloudAnswer, CloudError>, now: UnixMillis) {
        let in_a_while = UnixMillis(now.0.saturating_add(drift::ASK_AGAIN_MS));
        match answer {
            Ok(CloudAnswer::Drifted(reason)) => self.memo.answered(name, Some(reason), in_a_while),
            // A machine that is gone is somebody else's business, and a provider without an answer has none in a while either.
            Ok(_) | Err(CloudError::NotFound { .. } | CloudError::Unsupported { .. }) => {
                self.memo.answered(name, Some(None), in_a_while);
            }
            Err(error) => {
                let wait_ms = self.queue.retry(name.clone(), now);
                tracing::debug!(controller = NAME, NodeClaim = &**name, error = %error, wait_ms, "cannot tell whether it drifted");
                self.memo.answered(name, None, UnixMillis(now.0.saturating_add(wait_ms)));
                self.queue.add(name.clone());
                return;
            }
        }
        self.queue.succeeded(name);
        self.queue.add(name.clone());
    }
}

/// Answers whether that is news.
fn say_rest(name: &Text, claim: &NodeClaim, rest: Rest, conditions: &mut Conditions, now: UnixMillis) -> bool {
    let was_over = marks::stored(claim).iter().any(|condition| condition.type_ == marks::CONSOLIDATABLE);
    let is_over = rest == Rest::Over;
    if is_over == marks::is_true(claim, marks::CONSOLIDATABLE) && is_over == was_over {
        return false;
    }
    if is_over {
        tracing::debug!(controller = NAME, NodeClaim = &**name, "marking consolidatable");
        conditions.set_true(marks::CONSOLIDATABLE, now);
    } else {
        tracing::debug!(controller = NAME, NodeClaim = &**name, "removing consolidatable status condition");
        conditions.clear(marks::CONSOLIDATABLE);
    }
    true
}

fn say_drift(name: &Text, claim: &NodeClaim, drift: &Drift, conditions: &mut Conditions, now: UnixMillis) -> bool {
    match drift {
        Drift::Keep | Drift::Asked => false,
        Drift::No => {
            let was_said = conditions.clear(marks::DRIFTED);
            if was_said {
                tracing::debug!(controller = NAME, NodeClaim = &**name, "removing drifted status condition");
            }
            was_said
        }
        Drift::Yes(reason) if drift::stated(claim) == Some(&**reason) => false,
        Drift::Yes(reason) => {
            tracing::debug!(controller = NAME, NodeClaim = &**name, reason = &**reason, "marking drifted");
            conditions.set(marks::DRIFTED, Status::True, reason, reason, now);
            true
        }
    }
}

impl Duty for Conditioning {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, change: &Change, world: &World) {
        match change {
            Change::Claim { name, .. } => self.queue.add(name.clone()),
            Change::Pool { name, .. } => {
                let of_pool = world
                    .claims
                    .iter()
                    .filter(|(_, claim)| marks::label(&claim.metadata, labels::NODE_POOL) == Some(&**name));
                of_pool.for_each(|(claim, _)| self.queue.add(claim.clone()));
            }
            Change::Class { class, .. } => {
                let of_class = world.claims.iter().filter(|(_, claim)| drift::class_of(claim) == *class);
                of_class.for_each(|(claim, _)| self.queue.add(claim.clone()));
            }
            _ => {}
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !desk.world.is_synced() {
            return None;
        }
        for name in self.queue.take_due(desk.now) {
            // Its end marks the key again.
            if !desk.is_busy(&name) {
                self.reconcile(&name, desk);
            }
        }
        self.queue.next()
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        match outcome {
            Outcome::Cloud(answer) => self.answered(key, answer, desk.now),
            Outcome::Api(Err(failure)) if !failure.is_not_found() => {
                tracing::debug!(controller = NAME, NodeClaim = &**key, error = %failure, "cannot write the status");
                self.queue.retry(key.clone(), desk.now);
            }
            _ => {
                self.queue.succeeded(key);
                if desk.world.claims.contains_key(key) {
                    self.queue.add(key.clone());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn claim(initialized: Option<&str>, event: Option<&str>) -> NodeClaim {
        let mut status = json!({"conditions": []});
        if let Some(at) = initialized {
            status["conditions"] = json!([
                {"type": "Initialized", "status": "True", "reason": "Initialized", "message": "", "lastTransitionTime": at}]);
        }
        if let Some(at) = event {
            status["lastPodEventTime"] = json!(at);
        }
        let claim = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c"},
            "spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}, "status": status,
        });
        serde_json::from_value(claim).unwrap()
    }

    fn pool(disruption: Value, replicas: Option<i64>) -> NodePool {
        let mut spec = json!({
            "template": {"spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}}, "disruption": disruption,
        });
        if let Some(replicas) = replicas {
            spec["replicas"] = json!(replicas);
        }
        let pool =
            json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": spec});
        serde_json::from_value(pool).unwrap()
    }

    #[test]
    fn a_node_rests_since_its_last_pod_event_or_its_initialization() {
        let now = UnixMillis(100_000);
        let (at_60, at_80) = ("1970-01-01T00:01:00Z", "1970-01-01T00:01:20Z");
        for (after, replicas, initialized, event, expected) in [
            (json!({"consolidateAfter": "30s"}), None, Some(at_60), None, Rest::Over),
            (json!({"consolidateAfter": "40s"}), None, Some(at_60), None, Rest::Over),
            (json!({"consolidateAfter": "41s"}), None, Some(at_60), None, Rest::Until(UnixMillis(101_000))),
            (json!({"consolidateAfter": "30s"}), None, Some(at_60), Some(at_80), Rest::Until(UnixMillis(110_000))),
            (json!({"consolidateAfter": "0s"}), None, Some(at_60), Some(at_80), Rest::Over),
            (json!({}), None, Some(at_60), Some(at_80), Rest::Over),
            (json!({"consolidateAfter": "0s"}), None, None, Some(at_80), Rest::Never),
            (json!({"consolidateAfter": "Never"}), None, Some(at_60), None, Rest::Never),
            (json!({"consolidateAfter": "soon"}), None, Some(at_60), None, Rest::Never),
            (json!({"consolidateAfter": "0s"}), Some(2), Some(at_60), None, Rest::Never),
        ] {
            let found = rest(&claim(initialized, event), &pool(after.clone(), replicas), now);
            assert_eq!(found, expected, "{after} {replicas:?} {initialized:?} {event:?}");
        }
    }
}
