//! Every family of series, by upstream's names. A constant is the name in capitals without its prefix `karpenter_`.
//!
//! A family that belongs to a feature which is off, or yet to come, is here too: its name is on the page, and no series.
//! Families that exist once per kind of object (`operator_<kind>_status_condition_*`) are in `crate::status`.

use super::{Family, Shape};

/// Upstream's default for durations.
pub const DURATIONS: [f64; 45] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0, 120.0,
    150.0, 300.0, 450.0, 600.0,
];

const MINUTE: f64 = 60.0;
const HOUR: f64 = 60.0 * MINUTE;
const DAY: f64 = 24.0 * HOUR;

const LIFETIMES: [f64; 21] = [
    15.0 * MINUTE,
    30.0 * MINUTE,
    45.0 * MINUTE,
    HOUR,
    2.0 * HOUR,
    4.0 * HOUR,
    6.0 * HOUR,
    8.0 * HOUR,
    10.0 * HOUR,
    12.0 * HOUR,
    16.0 * HOUR,
    20.0 * HOUR,
    DAY,
    2.0 * DAY,
    3.0 * DAY,
    5.0 * DAY,
    10.0 * DAY,
    15.0 * DAY,
    20.0 * DAY,
    25.0 * DAY,
    30.0 * DAY,
];

const SCORES: [f64; 8] = [0.1, 0.25, 0.33, 0.5, 1.0, 2.0, 5.0, 10.0];
const INSTANCE_TERMINATIONS: [f64; 11] = exponential(1.0, 2.0);
const CLAIM_TERMINATIONS: [f64; 12] = exponential(1.0, 2.0);
const REBOOTS: [f64; 8] = exponential(10.0, 2.0);
const REQUESTS: [f64; 20] = exponential(0.001, 1.5);
/// 1, 2, 4, 5 and then in steps of five up to a thousand.
const BATCH_SIZES: [f64; 203] = batch_sizes();
const WAITS: [f64; 10] = [0.005, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];
const RETRIES: [f64; 6] = [0.0, 1.0, 2.0, 3.0, 5.0, 10.0];

const fn batch_sizes() -> [f64; 203] {
    let mut bounds = [0.0; 203];
    (bounds[0], bounds[1], bounds[2]) = (1.0, 2.0, 4.0);
    let mut place = 3;
    while place < bounds.len() {
        bounds[place] = 5.0 * (place - 2) as f64;
        place += 1;
    }
    bounds
}

/// Bounds that grow by a factor.
pub(crate) const fn exponential<const N: usize>(first: f64, factor: f64) -> [f64; N] {
    let mut bounds = [first; N];
    let mut place = 1;
    while place < N {
        bounds[place] = bounds[place - 1] * factor;
        place += 1;
    }
    bounds
}

macro_rules! shape {
    (counter) => {
        Shape::Counter
    };
    (gauge) => {
        Shape::Gauge
    };
    (summary) => {
        Shape::Summary
    };
    ($bounds:ident) => {
        Shape::Histogram(&$bounds)
    };
}

macro_rules! families {
    ($($constant:ident = $name:literal $shape:ident [$($label:ident),*] $help:literal;)+) => {
        $(
            #[doc = $help]
            pub const $constant: Family =
                Family { name: $name, help: $help, shape: shape!($shape), labels: &[$(stringify!($label)),*] };
        )+

        /// All of the above.
        pub const ALL: &[&Family] = &[$(&$constant),+];
    };
}

families! {
    // NodeClaims and nodes.
    NODECLAIMS_CREATED_TOTAL = "karpenter_nodeclaims_created_total" counter [reason, nodepool, min_values_relaxed]
        "NodeClaims created, by why and for which NodePool, and whether minValues had to be relaxed.";
    NODECLAIMS_TERMINATED_TOTAL = "karpenter_nodeclaims_terminated_total" counter [nodepool, capacity_type, zone]
        "NodeClaims whose instance is gone.";
    NODECLAIMS_DISRUPTED_TOTAL = "karpenter_nodeclaims_disrupted_total" counter
        [reason, nodepool, capacity_type, consolidation_policy, termination_mode]
        "NodeClaims that were disrupted, by reason.";
    PODS_DISRUPTION_INITIATED_TOTAL = "karpenter_pods_disruption_initiated_total" counter
        [reason, nodepool, capacity_type, consolidation_policy, termination_mode]
        "Pods that must move because their NodeClaim is disrupted.";
    NODECLAIMS_UNHEALTHY_DISRUPTED_TOTAL = "karpenter_nodeclaims_unhealthy_disrupted_total" counter
        [condition, nodepool, capacity_type, image_id, termination_mode]
        "NodeClaims that were disrupted because their node is broken, by the node's condition.";
    NODECLAIMS_INSTANCE_TERMINATION_DURATION_SECONDS = "karpenter_nodeclaims_instance_termination_duration_seconds"
        INSTANCE_TERMINATIONS [nodepool]
        "From the first request to end an instance until it is gone.";
    NODECLAIMS_TERMINATION_DURATION_SECONDS = "karpenter_nodeclaims_termination_duration_seconds"
        CLAIM_TERMINATIONS [nodepool]
        "From the deletion of a NodeClaim until its finalizer is removed.";
    NODES_CREATED_TOTAL = "karpenter_nodes_created_total" counter [nodepool, zone]
        "Nodes that joined the cluster for a NodeClaim.";
    NODES_TERMINATED_TOTAL = "karpenter_nodes_terminated_total" counter [nodepool, zone]
        "Nodes that were drained and removed.";
    NODES_TERMINATION_DURATION_SECONDS = "karpenter_nodes_termination_duration_seconds" summary [nodepool]
        "From the deletion of a node until its finalizer is removed.";
    NODES_DRAINED_TOTAL = "karpenter_nodes_drained_total" counter [nodepool]
        "Nodes that were drained.";
    NODES_REBOOTS_TOTAL = "karpenter_nodes_reboots_total" counter [result]
        "Reboots of nodes in place, by result.";
    NODES_REBOOT_DURATION_SECONDS = "karpenter_nodes_reboot_duration_seconds" REBOOTS [result]
        "From the request of a reboot to its outcome.";
    NODES_REBOOT_RECOVERY_DURATION_SECONDS = "karpenter_nodes_reboot_recovery_duration_seconds" REBOOTS []
        "From the issuance of a reboot until the node is back; successes only.";
    NODES_LIFETIME_DURATION_SECONDS = "karpenter_nodes_lifetime_duration_seconds" LIFETIMES [nodepool]
        "How old nodes were when they were removed.";
    NODES_ALLOCATABLE = "karpenter_nodes_allocatable" gauge [resource_type, node_name, phase, managed]
        "What a node has for pods.";
    NODES_TOTAL_POD_REQUESTS = "karpenter_nodes_total_pod_requests" gauge [resource_type, node_name, phase, managed]
        "What the pods of a node request, daemons excepted.";
    NODES_TOTAL_POD_LIMITS = "karpenter_nodes_total_pod_limits" gauge [resource_type, node_name, phase, managed]
        "The limits of the pods of a node, daemons excepted.";
    NODES_TOTAL_DAEMON_REQUESTS = "karpenter_nodes_total_daemon_requests" gauge
        [resource_type, node_name, phase, managed]
        "What the DaemonSet pods of a node request.";
    NODES_TOTAL_DAEMON_LIMITS = "karpenter_nodes_total_daemon_limits" gauge [resource_type, node_name, phase, managed]
        "The limits of the DaemonSet pods of a node.";
    NODES_SYSTEM_OVERHEAD = "karpenter_nodes_system_overhead" gauge [resource_type, node_name, phase, managed]
        "What a node keeps for itself: capacity less allocatable.";
    NODES_CURRENT_LIFETIME_SECONDS = "karpenter_nodes_current_lifetime_seconds" gauge [node_name, phase, managed]
        "How old a node is.";
    CLUSTER_UTILIZATION_PERCENT = "karpenter_cluster_utilization_percent" gauge [resource_type]
        "Requests of all pods on nodes, daemons included, of what the nodes have for pods.";

    // Pods.
    PODS_STATE = "karpenter_pods_state" gauge
        [name, namespace, owner, node, nodepool, zone, arch, capacity_type, instance_type, phase, scheduled, ready, managed]
        "1 for each pod, with where it is and how it is.";
    PODS_STARTUP_DURATION_SECONDS = "karpenter_pods_startup_duration_seconds" summary []
        "From the creation of a pod until it is ready.";
    PODS_UNSTARTED_TIME_SECONDS = "karpenter_pods_unstarted_time_seconds" gauge [name, namespace]
        "How long a pod that is not ready has been there.";
    PODS_BOUND_DURATION_SECONDS = "karpenter_pods_bound_duration_seconds" DURATIONS [dynamic_resources]
        "From the creation of a pod until it is bound.";
    PODS_PROVISIONING_BOUND_DURATION_SECONDS = "karpenter_pods_provisioning_bound_duration_seconds" DURATIONS
        [dynamic_resources]
        "From the first decision that a pod can be placed until it is bound.";
    PODS_UNBOUND_TIME_SECONDS = "karpenter_pods_unbound_time_seconds" gauge [name, namespace, dynamic_resources]
        "How long a pod that is not bound has been there.";
    PODS_PROVISIONING_UNBOUND_TIME_SECONDS = "karpenter_pods_provisioning_unbound_time_seconds" gauge
        [name, namespace, dynamic_resources]
        "How long ago it was first decided that a pod can be placed, while it is not bound.";
    PODS_PROVISIONING_STARTUP_DURATION_SECONDS = "karpenter_pods_provisioning_startup_duration_seconds" DURATIONS []
        "From the first decision that a pod can be placed until it is ready.";
    PODS_PROVISIONING_UNSTARTED_TIME_SECONDS = "karpenter_pods_provisioning_unstarted_time_seconds" gauge
        [name, namespace]
        "How long ago it was first decided that a pod can be placed, while it is not ready.";
    PODS_PROVISIONING_SCHEDULING_UNDECIDED_TIME_SECONDS = "karpenter_pods_provisioning_scheduling_undecided_time_seconds"
        gauge [name, namespace]
        "How long a pod has waited for a decision.";
    PODS_SCHEDULING_DECISION_DURATION_SECONDS = "karpenter_pods_scheduling_decision_duration_seconds" DURATIONS []
        "From the first sight of a pod until it is decided whether it can be placed.";
    PODS_EVICTION_REQUESTS_TOTAL = "karpenter_pods_eviction_requests_total" counter [code]
        "Eviction requests, by the API server's answer.";
    PODS_DRAINED_TOTAL = "karpenter_pods_drained_total" counter [reason]
        "Pods that a drain evicted or deleted.";

    // NodePools, disruption, the scheduler, the state.
    NODEPOOLS_LIMIT = "karpenter_nodepools_limit" gauge [resource_type, nodepool]
        "The limits of a NodePool.";
    NODEPOOLS_USAGE = "karpenter_nodepools_usage" gauge [resource_type, nodepool]
        "What a NodePool's nodes have.";
    NODEPOOLS_COST_TOTAL = "karpenter_nodepools_cost_total" gauge [nodepool]
        "What a NodePool's nodes cost per hour, in dollars.";
    NODEPOOLS_COST_TRACKER_ERRORS_TOTAL = "karpenter_nodepools_cost_tracker_errors_total" counter [nodepool]
        "NodeClaims whose price is not known.";
    NODEPOOLS_ALLOWED_DISRUPTIONS = "karpenter_nodepools_allowed_disruptions" gauge [nodepool, reason]
        "How many nodes of a NodePool its budgets allow to be disrupted now.";
    NODEPOOLS_NODES_CONSUMING_BUDGETS = "karpenter_nodepools_nodes_consuming_budgets" gauge [nodepool, reason]
        "Nodes of a NodePool that use up its budgets.";
    VOLUNTARY_DISRUPTION_DECISION_EVALUATION_DURATION_SECONDS =
        "karpenter_voluntary_disruption_decision_evaluation_duration_seconds" DURATIONS [reason, consolidation_type]
        "How long it took to look for disruption decisions.";
    VOLUNTARY_DISRUPTION_DECISIONS_TOTAL = "karpenter_voluntary_disruption_decisions_total" counter
        [decision, reason, consolidation_type]
        "Disruption decisions.";
    VOLUNTARY_DISRUPTION_DECISIONS_BY_NODEPOOL_TOTAL = "karpenter_voluntary_disruption_decisions_by_nodepool_total"
        counter [nodepool, decision, reason, consolidation_type]
        "Disruption decisions, by NodePool.";
    VOLUNTARY_DISRUPTION_TERMINATE_FIRST_DECISIONS_TOTAL =
        "karpenter_voluntary_disruption_terminate_first_decisions_total" counter
        [nodepool, reason, terminate_first_reason]
        "Decisions to end a node before its replacement is there.";
    VOLUNTARY_DISRUPTION_ELIGIBLE_NODES = "karpenter_voluntary_disruption_eligible_nodes" gauge [reason]
        "Nodes that could be disrupted, budgets aside.";
    VOLUNTARY_DISRUPTION_CONSOLIDATION_TIMEOUTS_TOTAL =
        "karpenter_voluntary_disruption_consolidation_timeouts_total" counter [consolidation_type]
        "Searches for consolidation that ran out of effort.";
    VOLUNTARY_DISRUPTION_FAILED_VALIDATIONS_TOTAL = "karpenter_voluntary_disruption_failed_validations_total" counter
        [consolidation_type]
        "Disruption decisions that no longer held when looked at again.";
    VOLUNTARY_DISRUPTION_QUEUE_FAILURES_TOTAL = "karpenter_voluntary_disruption_queue_failures_total" counter
        [decision, reason, consolidation_type]
        "Disruption decisions that could not be carried out.";
    CONSOLIDATION_SCORE = "karpenter_consolidation_score" SCORES [decision, nodepool, policy]
        "What consolidation moves saved, against what they disrupted.";
    CONSOLIDATION_MOVES_TOTAL = "karpenter_consolidation_moves_total" counter [decision, nodepool, policy]
        "Consolidation moves, by whether the policy approved them.";
    POD_DELETION_COST_NODES_WITH_PENDING_ANNOTATION_WRITES =
        "karpenter_pod_deletion_cost_nodes_with_pending_annotation_writes" gauge [nodepool]
        "Nodes whose pods still wait for their deletion cost.";
    POD_DELETION_COST_POD_ANNOTATION_WRITES_TOTAL = "karpenter_pod_deletion_cost_pod_annotation_writes_total" counter
        [result]
        "Deletion costs written to pods, by result.";
    SCHEDULER_SCHEDULING_DURATION_SECONDS = "karpenter_scheduler_scheduling_duration_seconds" DURATIONS [controller]
        "How long planning took.";
    SCHEDULER_QUEUE_DEPTH = "karpenter_scheduler_queue_depth" gauge [controller, scheduling_id]
        "Pods that the plan in the making has yet to place.";
    SCHEDULER_UNFINISHED_WORK_SECONDS = "karpenter_scheduler_unfinished_work_seconds" gauge [controller, scheduling_id]
        "How long the plan in the making has taken so far.";
    SCHEDULER_IGNORED_PODS_COUNT = "karpenter_scheduler_ignored_pods_count" gauge []
        "Pods that wait for a place and are not planned for, because they cannot be read or used.";
    SCHEDULER_UNSCHEDULABLE_PODS_COUNT = "karpenter_scheduler_unschedulable_pods_count" gauge [controller]
        "Pods that the latest plan found no place for.";
    SCHEDULER_PENDING_PODS_BY_EFFECTIVE_ZONE_COUNT = "karpenter_scheduler_pending_pods_by_effective_zone_count" gauge
        [controller, zone]
        "Pods of the latest plan, by the zone they must go to.";
    CLUSTER_STATE_NODE_COUNT = "karpenter_cluster_state_node_count" gauge []
        "Nodes and claims that are known.";
    CLUSTER_STATE_SYNCED = "karpenter_cluster_state_synced" gauge []
        "1 when everything in the cluster has been seen, else 0.";
    CLUSTER_STATE_UNSYNCED_TIME_SECONDS = "karpenter_cluster_state_unsynced_time_seconds" gauge []
        "How long something in the cluster has not been seen yet.";
    CLOUDPROVIDER_DURATION_SECONDS = "karpenter_cloudprovider_duration_seconds" DURATIONS
        [controller, method, provider]
        "How long the cloud took to answer.";
    CLOUDPROVIDER_ERRORS_TOTAL = "karpenter_cloudprovider_errors_total" counter
        [controller, method, provider, error, nodepool]
        "What the cloud refused, by error.";

    // The cloud's own: notices, offerings, launches.
    INTERRUPTION_RECEIVED_MESSAGES_TOTAL = "karpenter_interruption_received_messages_total" counter [message_type]
        "Notices that the cloud sent, by kind.";
    INTERRUPTION_DELETED_MESSAGES_TOTAL = "karpenter_interruption_deleted_messages_total" counter []
        "Notices that were dealt with and acknowledged.";
    INTERRUPTION_MESSAGE_QUEUE_DURATION_SECONDS = "karpenter_interruption_message_queue_duration_seconds" DURATIONS []
        "From what happened until its notice was received.";
    INTERRUPTION_INSTANCE_STATUS_UNHEALTHY_TOTAL = "karpenter_interruption_instance_status_unhealthy_total" counter
        [category]
        "Instances that a status check or a scheduled event found unhealthy, once each while they are.";
    CLOUDPROVIDER_INSTANCE_TYPE_OFFERING_AVAILABLE = "karpenter_cloudprovider_instance_type_offering_available" gauge
        [instance_type, capacity_type, zone]
        "1 when an offering can be bought, else 0.";
    CLOUDPROVIDER_INSTANCE_TYPE_OFFERING_PRICE_ESTIMATE =
        "karpenter_cloudprovider_instance_type_offering_price_estimate" gauge [instance_type, capacity_type, zone]
        "What an offering costs per hour, in dollars.";
    CLOUDPROVIDER_INSTANCE_TYPE_CPU_CORES = "karpenter_cloudprovider_instance_type_cpu_cores" gauge [instance_type]
        "Cores of an instance type.";
    CLOUDPROVIDER_INSTANCE_TYPE_MEMORY_BYTES = "karpenter_cloudprovider_instance_type_memory_bytes" gauge
        [instance_type]
        "Memory of an instance type, as the cloud lists it.";
    CLOUDPROVIDER_INSTANCE_LAUNCH_FAILURES_TOTAL = "karpenter_cloudprovider_instance_launch_failures_total" counter
        [zone, zone_id, capacity_type, reason]
        "Errors of fleets, by reason.";
    CLOUDPROVIDER_INSTANCE_TERMINATION_FAILURES_TOTAL =
        "karpenter_cloudprovider_instance_termination_failures_total" counter [zone, zone_id]
        "Terminations that failed.";
    CLOUDPROVIDER_BATCHER_BATCH_TIME_SECONDS = "karpenter_cloudprovider_batcher_batch_time_seconds" DURATIONS [batcher]
        "How long a batch of calls waited for company.";
    CLOUDPROVIDER_BATCHER_BATCH_SIZE = "karpenter_cloudprovider_batcher_batch_size" BATCH_SIZES [batcher]
        "How many calls a batch joined.";
    EC2NODECLASSES_USERDATA_BYTES = "karpenter_ec2nodeclasses_userdata_bytes" gauge [nodeclass]
        "How large the user data of an EC2NodeClass is.";
    AWS_SDK_GO_REQUEST_TOTAL = "aws_sdk_go_request_total" counter [service, operation, status]
        "Calls to AWS, by answer.";
    AWS_SDK_GO_REQUEST_DURATION_SECONDS = "aws_sdk_go_request_duration_seconds" DURATIONS [service, operation, status]
        "How long AWS took to answer, retries included.";
    AWS_SDK_GO_REQUEST_RETRY_COUNT = "aws_sdk_go_request_retry_count" RETRIES [service, operation]
        "How often a call to AWS was tried again.";
    AWS_SDK_GO_REQUEST_ATTEMPT_TOTAL = "aws_sdk_go_request_attempt_total" counter [service, operation, status]
        "Attempts of calls to AWS, by answer.";
    AWS_SDK_GO_REQUEST_ATTEMPT_DURATION_SECONDS = "aws_sdk_go_request_attempt_duration_seconds" DURATIONS
        [service, operation, status]
        "How long AWS took to answer one attempt.";
    BUILD_INFO = "karpenter_build_info" gauge [version, goversion, goarch, commit]
        "1, with the release. goversion names the Rust release: this is no Go program.";

    // The process.
    // Ours.
    DISRUPTION_STANDSTILL = "kerf_disruption_standstill" gauge [what, reason]
        "1 for each voluntary way to remove nodes that stands still, by reason: paused, stale, unreadable or brake.";
    DISRUPTION_BRAKES_TOTAL = "kerf_disruption_brakes_total" counter [looks]
        "How often so many nodes looked empty, gone, expired or unclaimed at once that removing them waited for a fresh answer.";
    DEFECTS_TOTAL = "kerf_defects_total" counter [controller]
        "Panics that were held, by where they happened.";
    QUARANTINED_OBJECTS = "kerf_quarantined_objects" gauge [controller]
        "Objects that are left alone for a while because somebody panics on them, by who.";
    UNREADABLE_OBJECTS = "kerf_unreadable_objects" gauge [kind]
        "Objects that are there and cannot be read, by kind.";
    WATCH_AGE_SECONDS = "kerf_watch_age_seconds" gauge [resource]
        "How long ago a kind's watch last said anything, a bookmark at least.";
    EVENTS_UNTOLD_TOTAL = "kerf_events_untold_total" counter []
        "Events that were not written, because too many waited for the API server already; they are told later if they still hold.";
    REQUEST_WAIT_SECONDS = "kerf_request_wait_seconds" WAITS [lane]
        "How long a request to the API server waited for its turn, by lane: work, evictions or events.";
    UNSOUND_PLANS_TOTAL = "kerf_unsound_plans_total" counter []
        "Plans that would have broken a rule of the audit, and were dropped.";
    // The process.
    CLIENT_GO_REQUEST_DURATION_SECONDS = "client_go_request_duration_seconds" REQUESTS
        [verb, group, version, kind, subresource]
        "How long the API server took to answer.";
    CLIENT_GO_REQUEST_TOTAL = "client_go_request_total" counter [code, method]
        "Requests to the API server, by answer; code error, in angle brackets, where there was none.";
    REST_CLIENT_REQUESTS_TOTAL = "rest_client_requests_total" counter [code, method, host]
        "Requests to the API server, by answer and host.";
    LEADER_ELECTION_MASTER_STATUS = "leader_election_master_status" gauge [name]
        "1 while this process holds the lease, else 0.";
    CONTROLLER_RUNTIME_RECONCILE_TOTAL = "controller_runtime_reconcile_total" counter [controller, result]
        "Errands of a controller that ended: requests, cloud calls and plans, by success or error.";
    CONTROLLER_RUNTIME_RECONCILE_ERRORS_TOTAL = "controller_runtime_reconcile_errors_total" counter [controller]
        "Errands of a controller that failed.";
    CONTROLLER_RUNTIME_ACTIVE_WORKERS = "controller_runtime_active_workers" gauge [controller]
        "Errands of a controller that are under way.";
    PROCESS_RESIDENT_MEMORY_BYTES = "process_resident_memory_bytes" gauge []
        "Resident memory.";
    PROCESS_VIRTUAL_MEMORY_BYTES = "process_virtual_memory_bytes" gauge []
        "Virtual memory.";
    PROCESS_CPU_SECONDS_TOTAL = "process_cpu_seconds_total" counter []
        "Processor time, user and system.";
    PROCESS_START_TIME_SECONDS = "process_start_time_seconds" gauge []
        "When the process started, since 1970.";
    PROCESS_OPEN_FDS = "process_open_fds" gauge []
        "Open file descriptors.";
    PROCESS_MAX_FDS = "process_max_fds" gauge []
        "How many file descriptors may be open.";
    GO_GC_HEAP_LIVE_BYTES = "go_gc_heap_live_bytes" gauge []
        "Memory that holds data of this process: resident anonymous pages, heap and stacks. There is no garbage collector.";
}
