//! `static.deprovisioning`: which nodes of a static pool go when it has too many.
//!
//! What has not been launched goes first, then what is empty, then what costs least to move; nodes with pods that must not be
//! disrupted go last. Budgets are not asked: the user has said how many there shall be.

use super::{RECHECK_MS, mark, pool_of, replicas, tally};
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::pools::is_served;
use crate::queue::Queue;
use crate::resource::NODE_CLAIMS;
use crate::standstill::Voluntary;
use crate::world::{Change, World, claim_provider_id};
use crate::write;
use kerf_api::NodeClaim;
use kerf_api::labels::DO_NOT_DISRUPT;
use kerf_mirror::PodState;
use kerf_model::{Text, UnixMillis};
use std::collections::BTreeSet;

const NAME: &str = "static.deprovisioning";

pub struct Deprovisioning {
    queue: Queue<Text>,
    /// Claims whose deletion was asked for and not answered.
    in_flight: BTreeSet<Text>,
}

impl Default for Deprovisioning {
    fn default() -> Self {
        Self { queue: Queue::new(1_000, 60_000), in_flight: BTreeSet::new() }
    }
}

impl Duty for Deprovisioning {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, change: &Change, world: &World) {
        mark(&mut self.queue, change, world);
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !desk.world.is_synced() {
            return None;
        }
        if desk.may_begin(Voluntary::StaticDeprovisioning).is_err() {
            return None;
        }
        for name in self.queue.take_due(desk.now) {
            if let Some(pool) = desk.world.pools.get(&name)
                && let Some(n_wanted) = replicas(pool)
                && is_served(&**desk.cloud, pool)
            {
                self.deprovision(desk, &name, n_wanted);
                self.queue.add_at(name, UnixMillis(desk.now.0 + RECHECK_MS));
            }
        }
        self.queue.next()
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        self.in_flight.remove(key);
        let pool: Option<Text> = desk.world.claims.get(key).and_then(|claim| pool_of(claim)).map(Into::into);
        let Some(pool) = pool else { return };
        match outcome {
            Outcome::Api(Err(failure)) if !failure.is_not_found() => {
                let wait_ms = self.queue.retry(pool.clone(), desk.now);
                tracing::error!(controller = NAME, NodePool = %pool, NodeClaim = %key, error = %failure, wait_ms, "deleting nodeclaim");
            }
            _ => {
                self.queue.succeeded(&pool);
                self.queue.add(pool);
            }
        }
    }
}

impl Deprovisioning {
    fn deprovision(&mut self, desk: &mut Desk<'_>, pool: &Text, n_wanted: usize) {
        let mut active = tally(desk.world, pool).active;
        active.retain(|claim| !self.in_flight.contains(claim.metadata.name.as_deref().unwrap_or_default()));
        let n_excess = active.len().saturating_sub(n_wanted);
        if n_excess == 0 {
            return;
        }
        let mut victims: Vec<Victim> = active.iter().map(|claim| victim(desk.world, claim, desk.now)).collect();
        victims.sort_by(|one, other| one.order(other));
        for victim in victims.into_iter().take(n_excess) {
            tracing::info!(
                controller = NAME, NodePool = %pool, NodeClaim = %victim.claim, reason = victim.plight.in_words(),
                "deleting nodeclaim, the nodepool has more than its replicas"
            );
            let uid = victim.uid.as_deref();
            desk.call(&victim.claim, write::delete(NODE_CLAIMS, "", &victim.claim, uid));
            self.in_flight.insert(victim.claim);
        }
    }
}

/// A claim that may have to go.
#[derive(Debug, Clone)]
struct Victim {
    claim: Text,
    uid: Option<String>,
    plight: Plight,
    /// What its pods cost to move, less the shorter its node has to live anyway.
    cost: f64,
}

/// Who goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Plight {
    NotLaunched,
    Empty,
    InUse,
    Held,
}

impl Plight {
    fn in_words(self) -> &'static str {
        match self {
            Plight::NotLaunched => "not launched",
            Plight::Empty => "empty",
            Plight::InUse => "in use",
            Plight::Held => "in use, and held by do-not-disrupt",
        }
    }
}

impl Victim {
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        let cost = || self.cost.total_cmp(&other.cost);
        self.plight.cmp(&other.plight).then_with(cost).then_with(|| self.claim.cmp(&other.claim))
    }
}

fn victim(world: &World, claim: &NodeClaim, now: UnixMillis) -> Victim {
    let node = world.node_of_claim(claim);
    let on_node = node.and_then(|node| node.metadata.name.as_deref()).unwrap_or_default();
    let pods: Vec<&PodState> = world.pods_on(on_node).map(|pod| &**pod).filter(|pod| !pod.is_terminal()).collect();
    let is_held = node.is_some_and(|node| {
        let annotations = node.metadata.annotations.as_ref();
        annotations.and_then(|annotations| annotations.get(DO_NOT_DISRUPT)).is_some_and(|value| value == "true")
    });
    Victim {
        claim: claim.metadata.name.as_deref().unwrap_or_default().into(),
        uid: claim.metadata.uid.clone(),
        plight: plight(claim_provider_id(claim).is_some(), is_held, &pods, now),
        cost: pods.iter().map(|pod| eviction_cost(pod)).sum::<f64>() * lifetime_left(claim, now),
    }
}

fn plight(is_launched: bool, is_node_held: bool, pods: &[&PodState], now: UnixMillis) -> Plight {
    let is_held = is_node_held || pods.iter().any(|pod| pod.is_held(now));
    let is_empty = pods.iter().all(|pod| pod.is_daemon() || pod.is_mirror);
    match (is_launched, is_held, is_empty) {
        (false, _, _) => Plight::NotLaunched,
        (true, true, _) => Plight::Held,
        (true, false, true) => Plight::Empty,
        (true, false, false) => Plight::InUse,
    }
}

/// What it costs to move a pod, from −10 to 10; an ordinary one costs 1.
fn eviction_cost(pod: &PodState) -> f64 {
    let cost: i32 = pod.cost.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
    (1.0 + f64::from(cost) / f64::from(1 << 27) + f64::from(pod.priority) / f64::from(1 << 25)).clamp(-10.0, 10.0)
}

/// The share of its life that a node still has before it; all of it where it does not expire.
fn lifetime_left(claim: &NodeClaim, now: UnixMillis) -> f64 {
    let life = claim.spec.expire_after.as_ref().and_then(|after| after.parse().ok().flatten());
    let created = claim.metadata.creation_timestamp.as_ref().map(|time| time.0.as_millisecond());
    let (Some(life), Some(created)) = (life, created) else {
        return 1.0;
    };
    let life_ms = life.as_secs_f64() * 1_000.0;
    let left_ms = life_ms - (now.0 - created) as f64;
    if life_ms > 0.0 { (left_ms / life_ms).clamp(0.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    const NOW: UnixMillis = UnixMillis(1_767_229_200_000);

    fn pod(owner: &str, annotations: &Value) -> PodState {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": "p", "namespace": "default", "annotations": annotations,
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "u", "controller": true}],
            },
            "spec": {"containers": [], "nodeName": "n"}, "status": {"phase": "Running"},
        }))
        .unwrap();
        PodState::read(&pod)
    }

    #[test]
    fn who_goes_first_follows_from_the_pods() {
        let plain = pod("ReplicaSet", &json!({}));
        let held = pod("ReplicaSet", &json!({"karpenter.sh/do-not-disrupt": "true"}));
        let daemon = pod("DaemonSet", &json!({}));
        let held_daemon = pod("DaemonSet", &json!({"karpenter.sh/do-not-disrupt": "true"}));
        for (is_launched, is_node_held, pods, expected) in [
            (false, false, vec![], Plight::NotLaunched),
            (true, false, vec![], Plight::Empty),
            (true, false, vec![&daemon], Plight::Empty),
            (true, false, vec![&daemon, &plain], Plight::InUse),
            (true, false, vec![&held_daemon], Plight::Held),
            (true, false, vec![&plain, &held], Plight::Held),
            (true, true, vec![], Plight::Held),
        ] {
            assert_eq!(plight(is_launched, is_node_held, &pods, NOW), expected);
        }
    }

    #[test]
    fn among_nodes_in_use_the_cheapest_to_move_goes_first() {
        let victim = |claim: &str, plight, cost| Victim { claim: claim.into(), uid: None, plight, cost };
        let mut victims = [
            victim("held", Plight::Held, 0.0),
            victim("dear", Plight::InUse, 3.0),
            victim("b", Plight::InUse, 1.0),
            victim("a", Plight::InUse, 1.0),
            victim("new", Plight::NotLaunched, 0.0),
            victim("empty", Plight::Empty, 0.0),
        ];
        victims.sort_by(|one, other| one.order(other));
        let order: Vec<&str> = victims.iter().map(|victim| &*victim.claim).collect();
        assert_eq!(order, ["new", "empty", "a", "b", "dear", "held"]);
    }

    #[test]
    fn a_pod_costs_one_unless_it_says_otherwise() {
        let cost = |annotations: Value| eviction_cost(&pod("ReplicaSet", &annotations));
        assert_eq!(cost(json!({})), 1.0);
        assert_eq!(cost(json!({"karpenter.sh/disruption-cost": "134217728"})), 2.0);
        assert_eq!(cost(json!({"karpenter.sh/disruption-cost": "2147483647"})), 10.0);
        assert_eq!(cost(json!({"karpenter.sh/disruption-cost": "much"})), 1.0);
    }

    #[test]
    fn the_shorter_a_node_has_to_live_the_less_it_is_worth() {
        let claim = |expire_after: &str| -> NodeClaim {
            serde_json::from_value(json!({
                "metadata": {"name": "c", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "expireAfter": expire_after},
            }))
            .unwrap()
        };
        // An hour after it was created.
        assert_eq!(lifetime_left(&claim("Never"), NOW), 1.0);
        assert_eq!(lifetime_left(&claim("4h"), NOW), 0.75);
        assert_eq!(lifetime_left(&claim("30m"), NOW), 0.0);
        assert_eq!(lifetime_left(&claim("0s"), NOW), 0.0);
    }
}
