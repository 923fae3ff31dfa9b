//! What upstream's own end-to-end suite asks of an operator, and which of our tests ask the same.
//!
//! The suite's Integration, NodeClaim, Chaos, StaticCapacity, CapacityBuffer and default spread specs, and the Expiration and Termination
//! specs that once belonged to them. What needs drift waits for drift, and is listed with that.

use std::collections::BTreeSet;

use crate::{MODULES, Test};

/// A behaviour, and the tests that have to hold for it on both stages.
struct Behaviour {
    of: &'static str,
    what: &'static str,
    tests: &'static [&'static str],
}

const fn kept(of: &'static str, what: &'static str, tests: &'static [&'static str]) -> Behaviour {
    Behaviour { of, what, tests }
}

#[rustfmt::skip]
const BEHAVIOURS: &[Behaviour] = &[
    kept("Integration", "a LimitRange's default limits count for DaemonSets", &["limits_that_a_limit_range_gives_to_daemons_are_counted"]),
    kept("Integration", "a LimitRange's default requests count for DaemonSets", &["requests_that_a_limit_range_gives_to_daemons_are_counted"]),
    kept("Integration", "host ports of DaemonSets per architecture do not clash", &["host_ports_of_daemons_for_two_architectures_do_not_clash"]),
    kept("Integration", "a NodePool carries its hash", &["a_pool_carries_the_hash_of_its_template"]),
    kept("Integration", "100 pods that avoid each other get 100 nodes", &["d4_11_pods_that_avoid_their_like_get_a_node_each"]),
    kept("Integration", "NodePools that break a rule are refused", &["pools_that_break_a_rule_are_refused"]),
    kept("Integration", "NodePools at the edge of the rules are accepted", &["pools_at_the_edge_of_the_rules_are_taken"]),
    kept("Integration", "do-not-disrupt for a time and for good", &["a_held_pod_keeps_its_node_until_its_time_is_over_or_the_annotation_goes"]),
    kept("NodeClaim", "a plain claim becomes Ready", &["a_claim_of_nobodys_becomes_a_ready_node"]),
    kept("NodeClaim", "a claim with requests becomes Ready", &["a_claim_with_requests_gets_a_node_that_has_them"]),
    kept("NodeClaim", "annotations, labels, taints and owner reach the Node", &["what_a_claim_says_reaches_its_node"]),
    kept("NodeClaim", "deleting the claim removes claim and node", &["deleting_a_claim_removes_its_node"]),
    kept("NodeClaim", "deleting the node removes node and claim", &["deleting_a_node_removes_its_claim"]),
    kept("NodeClaim", "a Node that an admission policy denies: registration timeout", &["a_claim_whose_node_is_denied_is_deleted_when_its_time_to_register_is_over"]),
    kept("NodeClaim", "an unknown NodeClass", &["a_claim_of_an_unknown_class_is_deleted"]),
    kept("NodeClaim", "a NodeClass that is not Ready", &["a_claim_of_a_class_that_is_not_ready_is_deleted"]),
    kept("NodeClaim", "a providerID that nobody knows is garbage collected", &["a_claim_with_a_strange_provider_id_is_garbage"]),
    kept("Chaos", "no runaway with spot and consolidation at once", &["a_rogue_who_taints_every_new_node_is_not_followed_without_end"]),
    kept("Chaos", "no runaway with emptiness after 30 s", &["a_rogue_is_not_followed_without_end_where_empty_nodes_stay_for_a_while"]),
    kept("DefaultTopologySpreadConstraints", "a Deployment without a Service", &["pods_of_a_deployment_are_spread_by_default"]),
    kept("DefaultTopologySpreadConstraints", "bare pods with a Service", &["pods_that_a_service_selects_are_spread_by_default"]),
    kept("DefaultTopologySpreadConstraints", "bare pods that nothing selects", &["pods_that_nothing_selects_are_not_spread"]),
    kept("DefaultTopologySpreadConstraints", "pods with a constraint of their own, in the same batch", &["pods_with_constraints_of_their_own_keep_to_them_beside_others"]),
    kept("StaticCapacity", "10, then 15 replicas Ready; scale to 0", &["a_static_pool_follows_its_replicas_up_and_down_and_to_none"]),
    kept("StaticCapacity", "the template's metadata and taints", &["a_static_node_is_what_the_template_says"]),
    kept("StaticCapacity", "10 replicas within a limit of 5 nodes", &["replicas_beyond_the_limit_are_not_made"]),
    kept("StaticCapacity", "empty nodes go first, a held one last", &["scaling_down_takes_the_empty_nodes_and_spares_the_one_that_is_held"]),
    kept("StaticCapacity", "pods of surplus nodes are evicted gracefully", &["scaling_down_evicts_pods_with_grace"]),
    kept("StaticCapacity", "static and dynamic claims coexist", &["static_and_dynamic_pools_live_side_by_side"]),
    kept("StaticCapacity", "deleting the pool removes all and creates none", &["deleting_a_static_pool_removes_its_nodes_and_makes_none"]),
    kept("CapacityBuffer", "podTemplateRef × 3", &["room_is_made_for_a_buffer_taken_by_a_pod_made_again_and_given_back"]),
    kept("CapacityBuffer", "an edit of the PodTemplate moves its generation in the status", &["a_buffer_follows_the_edits_of_its_template_and_its_own"]),
    kept("CapacityBuffer", "scalableRef: 20 % of 10; a missing target recovers", &["a_buffer_without_its_target_says_so_and_recovers"]),
    kept("CapacityBuffer", "scalableRef: a fixed 3", &["a_buffer_of_a_fixed_number_ignores_the_replicas_of_its_workload"]),
    kept("CapacityBuffer", "a consumer takes the space, which is made again (two variants)", &["room_is_made_for_a_buffer_taken_by_a_pod_made_again_and_given_back", "a_buffer_of_a_workload_is_filled_again_when_its_pods_take_the_room"]),
    kept("CapacityBuffer", "its nodes are not emptied, and go when it is deleted", &["nodes_with_room_for_a_buffer_are_not_taken_for_empty"]),
    kept("CapacityBuffer", "3 → 1 replicas", &["a_buffer_follows_the_edits_of_its_template_and_its_own"]),
    kept("CapacityBuffer", "20 % follows the Deployment from 5 to 20", &["a_buffer_follows_the_replicas_of_its_workload"]),
    kept("CapacityBuffer", "a NodePool's limit is not crossed", &["a_buffer_does_not_cross_the_limit_of_its_pool"]),
    kept("CapacityBuffer", "two buffers are independent", &["two_buffers_do_not_disturb_each_other"]),
    kept("CapacityBuffer", "rapid creation and deletion × 5", &["buffers_that_come_and_go_quickly_leave_no_claim_behind"]),
    kept("CapacityBuffer", "shares a node with a small pod", &["a_buffer_shares_a_node_with_a_small_pod"]),
    kept("CapacityBuffer", "nodeSelector", &["a_buffers_node_selector_is_obeyed"]),
    kept("CapacityBuffer", "refilled after expiry", &["a_buffer_is_filled_again_when_its_node_expires"]),
    kept("CapacityBuffer", "limits of 2, then 5 CPUs", &["the_limits_of_a_buffer_give_its_number"]),
    kept("CapacityBuffer", "hostname anti-affinity by podTemplateRef", &["a_buffer_of_pods_that_avoid_each_other_gets_a_node_each"]),
    kept("CapacityBuffer", "hostname anti-affinity by scalableRef", &["a_buffer_of_a_workload_whose_pods_avoid_each_other_gets_a_node_each"]),
    kept("Expiration", "an expired node is removed and replaced", &["an_expired_node_is_replaced"]),
    kept("Expiration", "5 pods with a budget end on one replacement", &["an_expired_node_whose_pods_have_a_budget_gets_one_replacement"]),
    kept("Termination", "emptiness with a budget of 0", &["a_budget_of_none_keeps_an_empty_node"]),
    kept("Termination", "emptiness with a scheduled budget of 0", &["a_budget_of_none_at_this_hour_keeps_an_empty_node"]),
    kept("Termination", "an empty node goes when consolidateAfter elapses", &["an_empty_node_goes_when_its_time_has_passed"]),
    kept("Termination", "terminationGracePeriod and do-not-disrupt", &["a_termination_grace_period_ends_what_asks_not_to_be_disrupted"]),
    kept("Termination", "terminationGracePeriod and a pod that takes long to end", &["a_pod_that_takes_its_time_to_end_is_waited_for"]),
    kept("Termination", "deleting a Node object removes it", &["d2_20_a_node_deleted_with_kubectl_is_drained_before_it_goes"]),
    kept("Termination", "four tiers of draining", &["a_node_is_drained_in_four_tiers"]),
];

/// Specs of the same files that need drift, which is not there yet.
#[rustfmt::skip]
const WITH_DRIFT: &[(&str, &str)] = &[
    ("StaticCapacity", "drift of 10 all at once"),
    ("StaticCapacity", "drift within limit 12 and budget 4"),
    ("StaticCapacity", "drift within limit 15 and budget 2"),
    ("StaticCapacity", "drift and scaling at the same time"),
    ("CapacityBuffer", "buffer nodes are replaced by drift"),
];

/// Fails with every name that no test has, and with every behaviour that nothing is said of.
pub(crate) fn check() -> Result<(), String> {
    let there: BTreeSet<&str> =
        MODULES.iter().flat_map(|(_, tests)| tests.iter()).map(|test: &Test| test.name).collect();
    let missing: Vec<String> = BEHAVIOURS
        .iter()
        .filter(|behaviour| behaviour.tests.is_empty() || behaviour.tests.iter().any(|name| !there.contains(name)))
        .map(|behaviour| format!("{}: {}: no test {}", behaviour.of, behaviour.what, behaviour.tests.join(", ")))
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(missing.join("\n")) }
}

/// What is printed at the end of a run.
pub(crate) fn told() -> String {
    let suites: BTreeSet<&str> = BEHAVIOURS.iter().map(|behaviour| behaviour.of).collect();
    format!(
        "operator tests: {} behaviours of the regression suite ({} files of it), each on both stages; {} more of them need drift",
        BEHAVIOURS.len(),
        suites.len(),
        WITH_DRIFT.len()
    )
}
