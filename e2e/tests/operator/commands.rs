//! `kerf explain` and `kerf plan --live`, against a cluster with an operator at work, and the operator's own pages.

use serde_json::{Value, json};

use crate::process::page;
use crate::scene::name;
use crate::stage::{LEASE, Stage};
use crate::tests;

tests!(
    what_was_decided_is_explained_of_pod_node_claim_and_pool,
    what_was_refused_is_explained_with_what_would_help,
    what_was_left_out_of_every_plan_is_explained,
    strangers_are_not_told_anything,
    a_plan_of_the_live_cluster_names_the_pods_without_a_place,
    the_page_of_metrics_has_the_families_of_the_contract,
    the_operator_is_ready_and_holds_the_lease,
);

fn explain(stage: &Stage<'_>, arguments: &[&str]) -> String {
    let file = stage.operator().explain_file.display().to_string();
    let said = stage.kerf(&[&["explain"], arguments, &["--explain-file", &file]].concat());
    assert_eq!(said.code, 0, "kerf explain {}: {}{}", arguments.join(" "), said.out, said.err);
    said.out
}

fn what_was_decided_is_explained_of_pod_node_claim_and_pool(stage: &Stage<'_>) {
    stage.add_pool(|_| {});
    stage.add_deployment("inflate", 2, |_| {});
    stage.wait_until_running("inflate", 2);
    stage.wait_for("the claim to be ready", || stage.n_ready_claims() == 1);
    let (pod, node, claim) = (name(&stage.pods("inflate")[0]), stage.only_node_of("inflate"), name(&stage.claims()[0]));

    let of_pod = explain(stage, &["pod", &pod, "-n", &stage.namespace]);
    assert!(of_pod.starts_with(&format!("pod {}/{pod}: Running on node {node}\n", stage.namespace)), "{of_pod}");
    assert!(of_pod.contains("  why: "), "{of_pod}");
    let of_node = explain(stage, &[&format!("nodes/{node}")]);
    assert!(of_node.starts_with(&format!("node {node} (nodeclaim {claim}): runs 2 pods")), "{of_node}");
    let of_claim: Value = serde_json::from_str(&explain(stage, &["nodeclaim", &claim, "-o", "json"])).unwrap();
    assert_eq!(of_claim["subject"], format!("nodeclaim {claim}"));
    assert!(of_claim["now"].as_str().unwrap().starts_with(&format!("is ready, node {node}")), "{of_claim}");
    assert_eq!(of_claim["decisions"].as_array().unwrap().len(), 1, "{of_claim}");
    let of_pool = explain(stage, &["nodepool", &stage.namespace]);
    assert!(of_pool.contains("is ready") && of_pool.contains("launch 1 nodes for 2 pods"), "{of_pool}");
}

fn what_was_refused_is_explained_with_what_would_help(stage: &Stage<'_>) {
    stage.add_pool(|_| {});
    stage.add_deployment("huge", 1, |template| template["spec"] = stage.pod_spec("1000"));
    stage.wait_for("the pod to be told", || !stage.our_events("FailedScheduling").is_empty());
    let said = explain(stage, &["pod", &name(&stage.pods("huge")[0]), "-n", &stage.namespace]);
    assert!(said.contains("waits; no place was found for it yet") && said.contains("  would help: "), "{said}");
}

fn what_was_left_out_of_every_plan_is_explained(stage: &Stage<'_>) {
    stage.add_pool(|_| {});
    let mistyped = json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["sopt"]});
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [mistyped]}]});
    stage.add_deployment("mistyped", 1, |template| {
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
        template["spec"]["affinity"]["nodeAffinity"] = required;
    });
    stage.wait_for("the pod to be told", || !stage.our_events("FailedScheduling").is_empty());
    let said = explain(stage, &[&format!("pod/{}", name(&stage.pods("mistyped")[0])), "-n", &stage.namespace]);
    assert!(said.contains("waits, and is left out of every plan"), "{said}");
    let told = stage.our_events("FailedScheduling").concat();
    assert!(said.contains("[sopt] is a capacity type") && told.contains("[sopt] is a capacity type"), "{said} {told}");
}

fn strangers_are_not_told_anything(stage: &Stage<'_>) {
    let address = stage.operator().explain_address().unwrap();
    let port = address.strip_prefix("127.0.0.1:").unwrap().parse().unwrap();
    let (status, body) = page(port, "/explain/nodepool/default").unwrap();
    assert_eq!(status, 401, "{body}");
    assert_eq!(page(stage.operator().metrics_port, "/explain/nodepool/default").unwrap().0, 404);
}

fn a_plan_of_the_live_cluster_names_the_pods_without_a_place(stage: &Stage<'_>) {
    stage.add_pool(|_| {});
    stage.add_deployment("huge", 1, |template| template["spec"] = stage.pod_spec("1000"));
    stage.wait_for("kube-scheduler to find no place", || {
        stage.pods("huge").first().is_some_and(|pod| crate::scene::condition(pod, "PodScheduled")["status"] == "False")
    });
    let said = stage.kerf(&["plan", "--live", "-o", "json"]);
    assert_eq!(said.code, 2, "{}{}", said.out, said.err);
    let plan: Value = serde_json::from_str(&said.out).unwrap();
    let pod = format!("{}/{}", stage.namespace, name(&stage.pods("huge")[0]));
    let is_named = plan["pending"].as_array().unwrap().iter().any(|entry| entry.to_string().contains(&pod));
    assert!(is_named, "{}", plan["pending"]);
    assert_eq!(stage.claims(), Vec::<Value>::new(), "a plan changes nothing");
}

fn the_page_of_metrics_has_the_families_of_the_contract(stage: &Stage<'_>) {
    stage.add_pool(|_| {});
    stage.add_deployment("inflate", 1, |_| {});
    stage.wait_until_running("inflate", 1);
    let port = stage.operator().metrics_port;
    let families = [
        "karpenter_build_info",
        "karpenter_cloudprovider_duration_seconds",
        "karpenter_cluster_state_node_count",
        "karpenter_cluster_state_synced",
        "karpenter_nodeclaims_created_total",
        "karpenter_nodepools_usage",
        "karpenter_nodes_allocatable",
        "karpenter_nodes_created_total",
        "karpenter_pods_state",
        "karpenter_scheduler_queue_depth",
        "karpenter_scheduler_scheduling_duration_seconds",
        "karpenter_scheduler_unschedulable_pods_count",
    ];
    let created = format!("nodepool=\"{}\"", stage.namespace);
    stage.wait_for("the pool's node to be counted", || {
        let (status, body) = page(port, "/metrics").unwrap();
        assert_eq!(status, 200);
        body.lines().any(|line| line.starts_with("karpenter_nodes_created_total{") && line.contains(&created))
    });
    stage.wait_for("every family", || {
        let (_, body) = page(port, "/metrics").unwrap();
        families.iter().all(|family| body.contains(&format!("# TYPE {family} ")))
    });
}

fn the_operator_is_ready_and_holds_the_lease(stage: &Stage<'_>) {
    assert!(stage.operator().is_ready());
    let lease = stage.read(LEASE);
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap();
    assert!(stage.operator().said().contains(holder), "{holder} is not our operator");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 15);
}
