//! Patience: nodes that somebody makes useless as soon as they come are not followed by more of them without end.
//!
//! A node that runs nothing and has got a taint that neither its claim nor Kubernetes gave it is spoiled. A few may happen, and pods do
//! not wait for the matter to be cleared up. The more there are, the longer a pool waits between two launches, so that those who remove
//! empty nodes keep up.

use super::apply::{is_disrupted, pool_of};
use crate::desk::Desk;
use k8s_openapi::api::core::v1::{Node, Taint};
use kerf_api::{NodeClaim, taints};
use kerf_model::UnixMillis;

/// So many may be spoiled without any wait.
const SPOILED_FREE: u32 = 3;
/// The wait beyond that, and twice as long for each further one.
const WAIT_MS: i64 = 1_000;
const WAIT_MAX_MS: i64 = 16_000;
/// Taints of Kubernetes itself come and go with a node's conditions.
const KUBERNETES: [&str; 2] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];

/// Before when a pool launches nothing more; None where there is nothing to wait for.
pub(super) fn waits_until(desk: &Desk<'_>, pool: &str) -> Option<UnixMillis> {
    let (mut n_spoiled, mut newest) = (0, i64::MIN);
    for claim in desk.world.claims.values().filter(|claim| pool_of(claim) == pool) {
        let created = claim.metadata.creation_timestamp.as_ref();
        newest = newest.max(created.map_or(i64::MIN, |time| time.0.as_millisecond()));
        if desk.world.node_of_claim(claim).is_some_and(|node| is_spoiled(desk, claim, node)) {
            n_spoiled += 1;
        }
    }
    let doublings = u32::checked_sub(n_spoiled, SPOILED_FREE)?;
    let wait = (WAIT_MS << doublings.min(8)).min(WAIT_MAX_MS);
    let until = UnixMillis(newest.saturating_add(wait));
    (until > desk.now).then_some(until)
}

fn is_spoiled(desk: &Desk<'_>, claim: &NodeClaim, node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let name = node.metadata.name.as_deref().unwrap_or_default();
    taints.iter().any(|taint| is_foreign(taint, claim))
        && !is_disrupted(node)
        && !desk.world.pods_on(name).any(|pod| pod.is_active() && !pod.is_daemon() && !pod.is_mirror)
}

fn is_foreign(taint: &Taint, claim: &NodeClaim) -> bool {
    let spec = &claim.spec;
    let mut own = spec.taints.iter().chain(&spec.startup_taints).flatten();
    !KUBERNETES.iter().any(|prefix| taint.key.starts_with(prefix))
        && !taint.key.starts_with("karpenter.sh/")
        // Among them our own fence, which stands as long as a node's own pods are being bound.
        && !taints::is_known_ephemeral(&taint.key, &taint.effect)
        && !own.any(|own| own.key == taint.key && own.effect == taint.effect)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn claim(taints: &Value) -> NodeClaim {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "one"},
            "spec": {
                "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": [],
                "taints": taints, "startupTaints": [{"key": "cni", "effect": "NoExecute"}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_foreign_taint_is_one_that_neither_the_claim_nor_kubernetes_gave() {
        let claim = claim(&json!([{"key": "team", "value": "blue", "effect": "NoSchedule"}]));
        let cases = [
            ("rogue", "NoExecute", true),
            ("team", "NoSchedule", false),
            ("team", "NoExecute", true),
            ("cni", "NoExecute", false),
            ("node.kubernetes.io/not-ready", "NoSchedule", false),
            ("karpenter.sh/unregistered", "NoExecute", false),
            ("kerf.dev/early-binding", "NoSchedule", false),
            ("readiness.k8s.io/network", "NoSchedule", false),
        ];
        for (key, effect, expected) in cases {
            let taint = Taint { key: key.to_owned(), effect: effect.to_owned(), ..Taint::default() };
            assert_eq!(is_foreign(&taint, &claim), expected, "{key}:{effect}");
        }
    }
}
