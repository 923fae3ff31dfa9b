//! What it costs to move a node's pods. Costs are whole numbers of 2⁻²⁷, so that equal means equal.

use kerf_mirror::PodState;

/// The cost of 1.0: of moving one ordinary pod, and of taking a node at all.
pub const ONE: i64 = 1 << 27;

/// What moving a pod costs: 1 + cost/2²⁷ + priority/2²⁵, between −10 and 10. A cost that is no number counts nothing.
pub fn eviction_cost(pod: &PodState) -> i64 {
    let cost = pod.cost.as_deref().and_then(|text| text.parse::<i32>().ok()).unwrap_or(0);
    (ONE + i64::from(cost) + 4 * i64::from(pod.priority)).clamp(-10 * ONE, 10 * ONE)
}

/// What taking a node with these pods costs: 1.0 for itself, and for each pod that wants another place what that costs, if
/// anything.
pub fn reschedule_cost<'a>(pods: impl Iterator<Item = &'a PodState>) -> i64 {
    let moves = pods.filter(|pod| pod.is_reschedulable()).map(|pod| eviction_cost(pod).max(0));
    moves.fold(ONE, i64::saturating_add)
}

/// Nobody minds when a node of this cost goes.
pub fn is_empty(reschedule_cost: i64) -> bool {
    reschedule_cost <= ONE
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(priority: i64, cost: Option<&str>, owner: &str) -> PodState {
        let mut annotations = json!({});
        if let Some(cost) = cost {
            annotations["karpenter.sh/disruption-cost"] = json!(cost);
        }
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "annotations": annotations, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "u", "controller": true}]},
            "spec": {"nodeName": "a", "priority": priority, "containers": []},
            "status": {"phase": "Running"},
        });
        PodState::read(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_pod_costs_one_and_more_with_priority_and_cost() {
        for (priority, cost, expected) in [
            (0, None, ONE),
            (1 << 25, None, 2 * ONE),
            (0, Some("134217728"), 2 * ONE),
            (0, Some("+134217728"), 2 * ONE),
            (0, Some("1.5"), ONE),
            (-(1 << 25), None, 0),
            (i64::from(i32::MIN), None, -10 * ONE),
            (2_000_000_000, None, 10 * ONE),
        ] {
            assert_eq!(eviction_cost(&pod(priority, cost, "ReplicaSet")), expected, "{priority} {cost:?}");
        }
    }

    #[test]
    fn a_node_is_empty_when_moving_its_pods_costs_nothing() {
        for (pods, expected) in [
            (vec![], true),
            (vec![pod(0, None, "DaemonSet")], true),
            (vec![pod(0, None, "ReplicaSet")], false),
            // As upstream: pods of very low priority do not keep their node, and their worth is not subtracted from others.
            (vec![pod(-(1 << 25), None, "ReplicaSet")], true),
            (vec![pod(0, Some("-134217728"), "ReplicaSet")], true),
            (vec![pod(-(1 << 26), None, "ReplicaSet"), pod(0, None, "ReplicaSet")], false),
        ] {
            assert_eq!(is_empty(reschedule_cost(pods.iter())), expected, "{pods:?}");
        }
    }
}
