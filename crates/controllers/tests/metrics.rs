//! What the page says: every family of the contract, and how a small cluster looks on it.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

use kerf_controllers::Duty;
use kerf_controllers::gauges::{nodes::NodeGauges, pods::PodGauges, pools::PoolGauges, state::StateGauges};
use kerf_controllers::metrics::catalogue::{Row, document, rows};
use kerf_controllers::metrics::page::describe;
use kerf_controllers::status::StatusTeller;
use kerf_model::{Text, UnixMillis};
use kerf_simulation::{Rehearsal, Setup};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The contract's tables: name (prefix `karpenter_` unless it begins with a dot), type, labels. D, P and L stand for buckets below, N for
/// one label per well-known label.
const CONTRACT: &str = "
nodeclaims_created_total C reason nodepool min_values_relaxed
nodeclaims_terminated_total C nodepool capacity_type zone
nodeclaims_disrupted_total C reason nodepool capacity_type consolidation_policy termination_mode
pods_disruption_initiated_total C reason nodepool capacity_type consolidation_policy termination_mode
nodeclaims_unhealthy_disrupted_total C condition nodepool capacity_type image_id termination_mode
nodeclaims_instance_termination_duration_seconds H:1*2^11 nodepool
nodeclaims_termination_duration_seconds H:1*2^12 nodepool
nodes_created_total C nodepool zone
nodes_terminated_total C nodepool zone
nodes_termination_duration_seconds S nodepool
nodes_drained_total C nodepool
nodes_reboots_total C result
nodes_reboot_duration_seconds H:10*2^8 result
nodes_reboot_recovery_duration_seconds H:10*2^8
nodes_lifetime_duration_seconds H:L nodepool
nodes_allocatable G resource_type node_name phase managed N
nodes_total_pod_requests G resource_type node_name phase managed N
nodes_total_pod_limits G resource_type node_name phase managed N
nodes_total_daemon_requests G resource_type node_name phase managed N
nodes_total_daemon_limits G resource_type node_name phase managed N
nodes_system_overhead G resource_type node_name phase managed N
nodes_current_lifetime_seconds G node_name phase managed N
cluster_utilization_percent G resource_type
pods_state G name namespace owner node nodepool zone arch capacity_type instance_type phase scheduled ready managed
pods_startup_duration_seconds S
pods_unstarted_time_seconds G name namespace
pods_bound_duration_seconds H:D dynamic_resources
pods_provisioning_bound_duration_seconds H:D dynamic_resources
pods_unbound_time_seconds G name namespace dynamic_resources
pods_provisioning_unbound_time_seconds G name namespace dynamic_resources
pods_provisioning_startup_duration_seconds H:D
pods_provisioning_unstarted_time_seconds G name namespace
pods_provisioning_scheduling_undecided_time_seconds G name namespace
pods_scheduling_decision_duration_seconds H:D
pods_eviction_requests_total C code
pods_drained_total C reason
nodepools_limit G resource_type nodepool
nodepools_usage G resource_type nodepool
nodepools_cost_total G nodepool
nodepools_cost_tracker_errors_total C nodepool
nodepools_allowed_disruptions G nodepool reason
nodepools_nodes_consuming_budgets G nodepool reason
voluntary_disruption_decision_evaluation_duration_seconds H:D reason consolidation_type
voluntary_disruption_decisions_total C decision reason consolidation_type
voluntary_disruption_decisions_by_nodepool_total C nodepool decision reason consolidation_type
voluntary_disruption_terminate_first_decisions_total C nodepool reason terminate_first_reason
voluntary_disruption_eligible_nodes G reason
voluntary_disruption_consolidation_timeouts_total C consolidation_type
voluntary_disruption_failed_validations_total C consolidation_type
voluntary_disruption_queue_failures_total C decision reason consolidation_type
consolidation_score H:0.1,0.25,0.33,0.5,1,2,5,10 decision nodepool policy
consolidation_moves_total C decision nodepool policy
pod_deletion_cost_nodes_with_pending_annotation_writes G nodepool
pod_deletion_cost_pod_annotation_writes_total C result
scheduler_scheduling_duration_seconds H:D controller
scheduler_queue_depth G controller scheduling_id
scheduler_unfinished_work_seconds G controller scheduling_id
scheduler_ignored_pods_count G
scheduler_unschedulable_pods_count G controller
scheduler_pending_pods_by_effective_zone_count G controller zone
cluster_state_node_count G
cluster_state_synced G
cluster_state_unsynced_time_seconds G
cloudprovider_duration_seconds H:D controller method provider
cloudprovider_errors_total C controller method provider error nodepool
build_info G version goversion goarch commit
.client_go_request_duration_seconds H:0.001*1.5^20 verb group version kind subresource
.client_go_request_total C code method
.process_resident_memory_bytes G
.process_cpu_seconds_total C
.go_gc_heap_live_bytes G
";

/// Families of each kind, behind `operator_<kind>_`.
const CONTRACT_OF_KINDS: &str = "
status_condition_transition_seconds H:0.5*2^15 type status to_status
status_condition_count G namespace name type status reason
status_condition_current_status_seconds G namespace name type status reason
status_condition_transitions_total C type status reason
termination_current_time_seconds G namespace name
termination_duration_seconds H:0.5*2^15
";

#[test]
fn every_family_of_the_contract_is_there_with_its_type_buckets_and_labels() {
    let setup = Setup::default();
    let well_known: Vec<Text> = setup.options.mirror.scheduling.well_known.iter().cloned().collect();
    let rehearsal = Rehearsal::new(setup);
    let ours: BTreeMap<String, Row> =
        rows(&well_known, &rehearsal.cloud().node_classes()).into_iter().map(|row| (row.name.clone(), row)).collect();
    let of_nodes: Vec<String> =
        well_known.iter().map(|key| key.rsplit('/').next().unwrap().replace(['-', '.'], "_")).collect();

    let mut expected = Vec::new();
    for line in CONTRACT.lines().filter(|line| !line.is_empty()) {
        let (name, rest) = line.split_once(' ').unwrap();
        let name = name.strip_prefix('.').map_or_else(|| format!("karpenter_{name}"), ToOwned::to_owned);
        expected.push((name, rest.to_owned(), Vec::new()));
    }
    for kind in ["nodeclaim_", "nodepool_", "node_", "capacitybuffer_", "kwoknodeclass_", ""] {
        let extra: &[&str] = match kind {
            "nodeclaim_" => &["karpenter_kwok_sh_kwoknodeclass", "karpenter_sh_nodepool"],
            "node_" => &["karpenter_kwok_sh_kwoknodeclass", "karpenter_sh_nodepool", "karpenter_sh_initialized"],
            "" => &["group", "kind"],
            _ => &[],
        };
        for line in CONTRACT_OF_KINDS.lines().filter(|line| !line.is_empty()) {
            let (name, rest) = line.split_once(' ').unwrap();
            expected.push((format!("operator_{kind}{name}"), rest.to_owned(), extra.to_vec()));
        }
    }
    assert_eq!(expected.len(), 107, "the contract has so many families with one node class");

    for (name, rest, extra) in expected {
        let row = ours.get(&name).unwrap_or_else(|| panic!("{name} is missing"));
        let mut words = rest.split(' ');
        assert_eq!(describe(row.shape), shape(words.next().unwrap()), "{name}");
        let mut labels: BTreeSet<&str> = extra.into_iter().collect();
        for word in words {
            if word == "N" {
                labels.extend(of_nodes.iter().map(String::as_str));
            } else {
                labels.insert(word);
            }
        }
        let own: BTreeSet<&str> = row.labels.iter().map(String::as_str).collect();
        assert_eq!(own, labels, "{name}");
        assert_eq!(own.len(), row.labels.len(), "{name} has a label twice");
    }
}

fn shape(word: &str) -> String {
    const D: &str = "0.005 0.01 0.025 0.05 0.1 0.15 0.2 0.25 0.3 0.35 0.4 0.45 0.5 0.6 0.7 0.8 0.9 1 1.25 1.5 1.75 2 2.5 3 3.5 4 \
         4.5 5 6 7 8 9 10 15 20 25 30 40 50 60 120 150 300 450 600";
    const L: &str = "900 1800 2700 3600 7200 14400 21600 28800 36000 43200 57600 72000 86400 172800 259200 432000 864000 1296000 \
         1728000 2160000 2592000";
    let bounds = match word {
        "C" => return "counter".to_owned(),
        "G" => return "gauge".to_owned(),
        "S" => return "summary 0 0.5 0.9 0.99 1".to_owned(),
        "H:D" => D.to_owned(),
        "H:L" => L.to_owned(),
        other => {
            let written = other.strip_prefix("H:").expect("a histogram");
            match written.split_once('*') {
                None => written.replace(',', " "),
                Some((first, growth)) => {
                    let (factor, n) = growth.split_once('^').unwrap();
                    let (mut bound, factor): (f64, f64) = (first.parse().unwrap(), factor.parse().unwrap());
                    let mut bounds = Vec::new();
                    for _ in 0..n.parse().unwrap() {
                        bounds.push(bound.to_string());
                        bound *= factor;
                    }
                    bounds.join(" ")
                }
            }
        }
    };
    format!("histogram {bounds}")
}

#[test]
fn the_page_of_documentation_is_what_the_code_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    if std::env::var_os("KERF_WRITE_DOCS").is_some() {
        std::fs::write(path, document()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == document(),
        "docs/metrics.md is out of date; run KERF_WRITE_DOCS=1 cargo test -p kerf-controllers --test metrics"
    );
}

fn telling() -> Vec<Box<dyn Duty>> {
    vec![
        Box::new(StateGauges::default()),
        Box::new(PodGauges::default()),
        Box::new(NodeGauges::default()),
        Box::new(PoolGauges::default()),
        Box::new(StatusTeller::default()),
    ]
}

fn stage() -> Rehearsal {
    let mut rehearsal = Rehearsal::new(Setup::default().with_duties(telling));
    rehearsal.settle();
    rehearsal
}

fn page(rehearsal: &Rehearsal) -> String {
    rehearsal.operator().metrics().render_at(UnixMillis(rehearsal.now().as_millisecond()))
}

/// The value of the series whose line contains all of these.
fn value(rehearsal: &Rehearsal, family: &str, parts: &[&str]) -> Option<f64> {
    let page = page(rehearsal);
    let is_it = |line: &&str| {
        let rest = line.strip_prefix(family);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']) && parts.iter().all(|part| rest.contains(part)))
    };
    let line = page.lines().find(is_it)?.rsplit_once(' ')?.1.to_owned();
    line.parse().ok()
}

const NODE: &str = "
apiVersion: v1
kind: Node
metadata:
  name: one
  labels: {topology.kubernetes.io/zone: zone-a, karpenter.sh/capacity-type: spot, kubernetes.io/hostname: one}
spec: {}
status:
  capacity: {cpu: '5', memory: 9Gi, pods: '10', ephemeral-storage: 20Gi}
  allocatable: {cpu: '4', memory: 8Gi, pods: '10', ephemeral-storage: 20Gi}
  conditions: [{type: Ready, status: 'True', reason: KubeletReady, lastTransitionTime: '2026-01-01T00:00:00Z'}]
";

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  containers: [{name: a, image: x, resources: {requests: {cpu: '1', memory: 2Gi}, limits: {cpu: '2'}}}]
";

#[test]
fn a_pod_and_its_node_are_on_the_page_with_what_they_ask_and_have() {
    let mut rehearsal = stage();
    rehearsal.create(POD);
    rehearsal.run_for(8);
    assert_eq!(
        value(&rehearsal, "karpenter_pods_state", &["name=\"web\"", "phase=\"Pending\"", "scheduled=\"false\""]),
        Some(1.0)
    );
    let unbound =
        value(&rehearsal, "karpenter_pods_unbound_time_seconds", &["name=\"web\"", "dynamic_resources=\"false\""]);
    assert!(unbound.is_some_and(|seconds| seconds > 0.0), "{unbound:?}");
    let undecided =
        value(&rehearsal, "karpenter_pods_provisioning_scheduling_undecided_time_seconds", &["name=\"web\""]);
    assert!(undecided.is_some());

    rehearsal.create(NODE);
    rehearsal.run_until("the pod is bound", 60, |rehearsal| rehearsal.pods()[0]["spec"]["nodeName"] == "one");
    let now = rehearsal.now().to_string();
    let scheduled = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now});
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": now});
    let status = json!({"status": {"phase": "Running", "conditions": [scheduled, ready]}});
    rehearsal.patch("/api/v1/namespaces/default/pods/web/status", &status);
    rehearsal.run_until("the pod is seen ready on the page", 120, |rehearsal| {
        value(rehearsal, "karpenter_pods_state", &["name=\"web\"", "node=\"one\"", "zone=\"zone-a\"", "ready=\"true\""])
            .is_some()
    });
    assert_eq!(value(&rehearsal, "karpenter_pods_startup_duration_seconds_count", &[]), Some(1.0));
    assert_eq!(value(&rehearsal, "karpenter_pods_bound_duration_seconds_count", &["false"]), Some(1.0));
    assert_eq!(value(&rehearsal, "karpenter_pods_unstarted_time_seconds", &["web"]), None);
    let of_cpu = |family| {
        value(
            &rehearsal,
            family,
            &["resource_type=\"cpu\"", "node_name=\"one\"", "capacity_type=\"spot\"", "managed=\"false\""],
        )
    };
    assert_eq!(of_cpu("karpenter_nodes_allocatable"), Some(4.0));
    assert_eq!(of_cpu("karpenter_nodes_system_overhead"), Some(1.0));
    assert_eq!(of_cpu("karpenter_nodes_total_pod_requests"), Some(1.0));
    assert_eq!(of_cpu("karpenter_nodes_total_pod_limits"), Some(2.0));
    assert_eq!(of_cpu("karpenter_nodes_total_daemon_requests"), None);
    assert_eq!(value(&rehearsal, "karpenter_cluster_utilization_percent", &["\"cpu\""]), Some(25.0));
    assert_eq!(value(&rehearsal, "karpenter_cluster_utilization_percent", &["\"memory\""]), Some(25.0));
    let age = value(&rehearsal, "karpenter_nodes_current_lifetime_seconds", &["node_name=\"one\""]);
    assert!(age.is_some_and(|seconds| seconds >= 0.0), "{age:?}");
    assert_eq!(value(&rehearsal, "karpenter_cluster_state_synced", &[]), Some(1.0));

    rehearsal.delete("/api/v1/namespaces/default/pods/web");
    rehearsal.delete("/api/v1/nodes/one");
    rehearsal.run_until("nothing of them is left", 120, |rehearsal| {
        let page = page(rehearsal);
        !page.contains("\"one\"") && !page.contains("\"web\"")
    });
    assert_eq!(value(&rehearsal, "karpenter_cluster_state_node_count", &[]), Some(0.0));
}

#[test]
fn d0_12_limits_usage_and_cost_of_a_pool_can_be_watched() {
    let mut rehearsal = stage();
    rehearsal.create(POOL);
    rehearsal.patch(
        "/apis/karpenter.sh/v1/nodepools/default/status",
        &json!({"status": {"resources": {"cpu": "12", "nodes": "3", "ephemeral-storage": "1Ki"}}}),
    );
    rehearsal.run_until("usage is told", 20, |rehearsal| {
        value(rehearsal, "karpenter_nodepools_usage", &["resource_type=\"cpu\"", "nodepool=\"default\""]) == Some(12.0)
    });
    assert_eq!(value(&rehearsal, "karpenter_nodepools_usage", &["ephemeral_storage"]), Some(1024.0));
    assert_eq!(value(&rehearsal, "karpenter_nodepools_limit", &["resource_type=\"cpu\""]), Some(100.0));
    assert_eq!(value(&rehearsal, "karpenter_nodepools_cost_total", &["default"]), Some(0.0));
    assert_eq!(value(&rehearsal, "karpenter_cluster_state_node_count", &[]), Some(0.0));

    rehearsal.create(CLAIM);
    let status =
        |instance_type: &str| json!({"metadata": {"labels": {"node.kubernetes.io/instance-type": instance_type}}});
    rehearsal.patch("/apis/karpenter.sh/v1/nodeclaims/a", &status(&a_type(&rehearsal)));
    rehearsal.patch("/apis/karpenter.sh/v1/nodeclaims/a/status", &json!({"status": {"providerID": "kwok://a"}}));
    rehearsal.run_until("its price is told", 20, |rehearsal| {
        value(rehearsal, "karpenter_nodepools_cost_total", &["default"]).is_some_and(|dollars| dollars > 0.0)
    });
    assert_eq!(value(&rehearsal, "karpenter_cluster_state_node_count", &[]), Some(1.0));
    rehearsal.patch("/apis/karpenter.sh/v1/nodeclaims/a", &status("unheard-of"));
    rehearsal.run_until("it is told that a price is missing", 20, |rehearsal| {
        value(rehearsal, "karpenter_nodepools_cost_tracker_errors_total", &["default"]) == Some(1.0)
    });
    rehearsal.delete("/apis/karpenter.sh/v1/nodepools/default");
    rehearsal.run_until("the pool is off the page", 20, |rehearsal| {
        value(rehearsal, "karpenter_nodepools_limit", &["default"]).is_none()
    });
}

/// A type that the kwok provider has a price for.
fn a_type(rehearsal: &Rehearsal) -> String {
    let types = kerf_cloud::kwok::embedded();
    let zone = Text::from("test-zone-a");
    let has_price = |name| rehearsal.cloud().price(name, Some(&zone), kerf_model::CapacityType::OnDemand).is_some();
    types.iter().find(|it| has_price(&it.name)).expect("kwok has prices").name.to_string()
}

const POOL: &str = "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  limits: {cpu: '100'}
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements: [{key: kubernetes.io/os, operator: In, values: [linux]}]
";

const CLAIM: &str = "
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata:
  name: a
  finalizers: [karpenter.sh/termination]
  labels:
    karpenter.sh/nodepool: default
    karpenter.kwok.sh/kwoknodeclass: classy
    karpenter.sh/capacity-type: on-demand
    topology.kubernetes.io/zone: test-zone-a
spec:
  nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: classy}
  requirements: [{key: kubernetes.io/os, operator: In, values: [linux]}]
";

fn launched(status: &str, at: &str, reason: &str, message: &str) -> Value {
    let condition =
        json!({"type": "Launched", "status": status, "reason": reason, "message": message, "lastTransitionTime": at});
    json!({"status": {"conditions": [condition]}})
}

#[test]
fn a_transition_of_a_condition_is_an_event_and_a_count_and_a_stand_is_a_gauge() {
    let mut rehearsal = stage();
    rehearsal.create(CLAIM);
    let path = "/apis/karpenter.sh/v1/nodeclaims/a";
    let status = format!("{path}/status");
    rehearsal.patch(&status, &launched("Unknown", "2026-01-01T00:00:00Z", "AwaitingReconciliation", "wait"));
    rehearsal.settle();
    assert_eq!(rehearsal.events("Launched"), Vec::<String>::new(), "it was not seen before");
    rehearsal.patch(&status, &launched("True", "2026-01-01T00:00:03Z", "Launched", ""));
    rehearsal.settle();
    let told = ["Status condition transitioned, Type: Launched, Status: Unknown -> True, Reason: Launched"];
    assert_eq!(rehearsal.events("Launched"), told);
    let of_claim = [
        "type=\"Launched\"",
        "status=\"True\"",
        "karpenter_kwok_sh_kwoknodeclass=\"classy\"",
        "karpenter_sh_nodepool=\"default\"",
    ];
    assert_eq!(value(&rehearsal, "operator_nodeclaim_status_condition_transitions_total", &of_claim), Some(1.0));
    let transition = ["type=\"Launched\"", "status=\"Unknown\"", "to_status=\"True\""];
    assert_eq!(value(&rehearsal, "operator_nodeclaim_status_condition_transition_seconds_sum", &transition), Some(3.0));
    let of_old = ["type=\"Launched\"", "status=\"True\"", "group=\"karpenter.sh\"", "kind=\"NodeClaim\""];
    assert_eq!(value(&rehearsal, "operator_status_condition_transitions_total", &of_old), Some(1.0));
    rehearsal.run_for(15);
    assert_eq!(value(&rehearsal, "operator_nodeclaim_status_condition_count", &of_claim), Some(1.0));
    assert_eq!(value(&rehearsal, "operator_status_condition_count", &of_old), Some(1.0));
    let stands = value(&rehearsal, "operator_nodeclaim_status_condition_current_status_seconds", &of_claim);
    assert!(stands.is_some_and(|seconds| seconds > 0.0), "{stands:?}");

    // A successor finds things as they stand: no news.
    rehearsal.restart();
    rehearsal.run_for(15);
    assert_eq!(rehearsal.events("Launched"), told);
    assert_eq!(value(&rehearsal, "operator_nodeclaim_status_condition_count", &of_claim), Some(1.0));
    assert_eq!(value(&rehearsal, "operator_nodeclaim_status_condition_transitions_total", &of_claim), None);

    rehearsal.delete(path);
    rehearsal.run_for(12);
    let going = value(&rehearsal, "operator_nodeclaim_termination_current_time_seconds", &["name=\"a\""]);
    assert!(going.is_some(), "it is held by its finalizer");
    rehearsal.patch(path, &json!({"metadata": {"finalizers": null}}));
    rehearsal.run_for(12);
    assert_eq!(rehearsal.events("Finalized"), ["Finalized karpenter.sh/termination"]);
    let ended = value(&rehearsal, "operator_nodeclaim_termination_duration_seconds_sum", &["default"]);
    assert!(ended.is_some_and(|seconds| seconds >= 12.0), "{ended:?}");
    let page = page(&rehearsal);
    assert!(!page.contains("name=\"a\""), "what is gone has no stand");
}

#[test]
fn every_line_of_the_page_is_one_that_prometheus_reads() {
    let mut rehearsal = stage();
    rehearsal.create(NODE);
    rehearsal.create(POD);
    rehearsal.create(POOL);
    rehearsal.create(CLAIM);
    rehearsal.run_for(30);
    let page = page(&rehearsal);
    let mut types: BTreeMap<String, String> = BTreeMap::new();
    let mut lines = BTreeSet::new();
    for line in page.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, shape) = head.split_once(' ').unwrap();
            assert_eq!(types.insert(name.to_owned(), shape.to_owned()), None, "{name} has two heads");
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (series, number) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        assert!(number == "+Inf" || number.parse::<f64>().is_ok(), "{line}");
        assert!(lines.insert(series.to_owned()), "{series} is there twice");
        let name = series.split('{').next().unwrap();
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| {
            name.strip_suffix(suffix)
                .filter(|family| matches!(types.get(*family).map(String::as_str), Some("histogram" | "summary")))
        });
        assert!(types.contains_key(family.unwrap_or(name)), "{line} has no head");
    }
    assert!(lines.len() > 20, "{page}");
}
