//! The commands of the documents, typed into a stock kubectl. A test is named after the line it keeps.

use serde_json::json;

use crate::scene::{DISRUPTED, has_taint, is_going, name};
use crate::stage::{NODE_CLASSES, NODES, Stage};
use crate::tests;

tests!(
    d0_63_four_replicas_of_inflate_run_after_kubectl_scale,
    d4_7_sixty_replicas_of_inflate_get_nodes_and_all_run,
    d4_13_get_nodeclaim_wide_has_the_columns_of_v1,
    d2_20_a_node_deleted_with_kubectl_is_drained_before_it_goes,
    d0_19_deleting_a_nodepool_removes_its_nodes,
    d0_88_a_drain_waits_for_what_a_budget_protects,
    d0_90_a_pod_beyond_the_limit_is_told_so_in_kubectl_describe,
    d0_25_nodes_go_when_their_deployment_is_deleted,
    the_category_karpenter_lists_our_kinds,
);

fn inflate(stage: &Stage<'_>, replicas: usize) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: inflate}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: inflate}}}}
  template:
    metadata: {{labels: {{app: inflate}}}}
    spec:
      terminationGracePeriodSeconds: 0
      nodeSelector: {{karpenter.sh/nodepool: {pool}}}
      containers:
      - name: inflate
        image: public.ecr.aws/eks-distro/kubernetes/pause:3.9
        resources: {{requests: {{cpu: 1}}}}
",
        pool = stage.namespace
    )
}

/// A class and a pool of its own, both from one file.
fn class_and_pool(stage: &Stage<'_>) -> String {
    format!(
        "apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {{name: {name}}}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: {name}}}
spec:
  template:
    spec:
      nodeClassRef: {{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: {name}}}
      requirements:
      - {{key: kubernetes.io/os, operator: In, values: [linux]}}
      - {{key: kubernetes.io/arch, operator: In, values: [amd64]}}
      - {{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}}
      expireAfter: Never
  disruption: {{consolidationPolicy: WhenEmpty, consolidateAfter: Never}}
",
        name = stage.namespace
    )
}

#[track_caller]
fn apply(stage: &Stage<'_>, manifest: &str) -> String {
    let said = stage.kubectl_apply(manifest);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    said.out
}

fn d0_63_four_replicas_of_inflate_run_after_kubectl_scale(stage: &Stage<'_>) {
    stage.clear_later(format!("{NODE_CLASSES}/{}", stage.namespace));
    let said = apply(stage, &class_and_pool(stage));
    let created = ["kwoknodeclass.karpenter.kwok.sh", "nodepool.karpenter.sh"]
        .map(|kind| format!("{kind}/{} created\n", stage.namespace));
    assert_eq!(said, created.concat());
    assert_eq!(apply(stage, &inflate(stage, 0)), "deployment.apps/inflate created\n");
    stage.kubectl_says(&["scale", "deployment", "inflate", "--replicas", "4"]);
    stage.wait_until_running("inflate", 4);

    let selector = format!("karpenter.sh/nodepool={}", stage.namespace);
    let listed = stage.kubectl_says(&["get", "node", "-l", &selector, "--no-headers"]);
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(!names.is_empty());
    for pod in stage.pods("inflate") {
        assert!(names.contains(&pod["spec"]["nodeName"].as_str().unwrap()), "{names:?}");
    }
    // Again changes nothing.
    let said = apply(stage, &class_and_pool(stage));
    assert!(said.lines().all(|line| line.ends_with(" unchanged")), "{said}");
}

fn d4_7_sixty_replicas_of_inflate_get_nodes_and_all_run(stage: &Stage<'_>) {
    stage.add_pool(|_| {});
    apply(stage, &inflate(stage, 0));
    stage.kubectl_says(&["scale", "deployment", "inflate", "--replicas", "60"]);
    stage.wait_until_running("inflate", 60);
    stage.wait_for("every claim to be ready", || stage.n_ready_claims() == stage.nodes().len());
}

fn d4_13_get_nodeclaim_wide_has_the_columns_of_v1(stage: &Stage<'_>) {
    stage.add_pool(|_| {});
    apply(stage, &inflate(stage, 1));
    stage.wait_until_running("inflate", 1);
    stage.wait_for("the claim to be ready", || stage.n_ready_claims() == 1);
    let claim = name(&stage.claims()[0]);
    let said = stage.kubectl_says(&["get", "nodeclaim", &claim, "-o", "wide"]);
    let lines: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    let columns = [
        "NAME",
        "TYPE",
        "CAPACITY",
        "ZONE",
        "NODE",
        "READY",
        "AGE",
        "IMAGEID",
        "ID",
        "NODEPOOL",
        "NODECLASS",
        "DRIFTED",
    ];
    assert_eq!(lines[0], columns);
    let node = stage.only_node_of("inflate");
    let row = &lines[1];
    assert_eq!((row[0], row[2], row[4], row[5]), (claim.as_str(), "on-demand", node.as_str(), "True"), "{said}");
    assert!(row[1].ends_with("-amd64-linux") && row[3].starts_with("test-zone-"), "{said}");
    // The image of a kwok node is nothing, and nothing is what is printed.
    let provider_id = row.iter().position(|word| word.starts_with("kwok://")).unwrap();
    assert_eq!(&row[provider_id + 1..provider_id + 3], [stage.namespace.as_str(), "default"], "{said}");
}

fn d2_20_a_node_deleted_with_kubectl_is_drained_before_it_goes(stage: &Stage<'_>) {
    stage.add_pool(|_| {});
    apply(stage, &inflate(stage, 1));
    stage.wait_until_running("inflate", 1);
    stage.wait_for("the claim to be ready", || stage.n_ready_claims() == 1);
    let (node, claim, pod) = (stage.only_node_of("inflate"), name(&stage.claims()[0]), name(&stage.pods("inflate")[0]));
    // A pod that takes its time, so that the finalizer has something to hold the node for.
    let pod = stage.object("v1", "pods", &pod);
    stage.patch(&pod, &json!({"metadata": {"finalizers": ["kerf.test/slow"]}}));
    stage.kubectl_says(&["delete", "node", &node, "--wait=false"]);
    stage.wait_for("the pod to be evicted", || is_going(&stage.read(&pod)));
    let held = stage.read(&format!("{NODES}/{node}"));
    assert!(is_going(&held) && has_taint(&held, DISRUPTED), "{}", held["spec"]);
    assert!(held["metadata"]["finalizers"].as_array().unwrap().contains(&json!("karpenter.sh/termination")));
    stage.patch(&pod, &json!({"metadata": {"finalizers": null}}));
    stage.wait_for("the node to go", || stage.is_gone(&format!("{NODES}/{node}")));
    stage.wait_for("its claim to go", || stage.claims().iter().all(|other| name(other) != claim));
    stage.wait_until_running("inflate", 1);
}

fn d0_19_deleting_a_nodepool_removes_its_nodes(stage: &Stage<'_>) {
    stage.add_pool(|_| {});
    apply(stage, &inflate(stage, 3));
    stage.wait_until_running("inflate", 3);
    stage.kubectl_says(&["delete", "nodepool", &stage.namespace]);
    stage.wait_until_no_node_is_left();
    assert_eq!(stage.n_running("inflate"), 0);
}

fn d0_88_a_drain_waits_for_what_a_budget_protects(stage: &Stage<'_>) {
    stage.add_pool(|_| {});
    apply(stage, &inflate(stage, 1));
    stage.wait_until_running("inflate", 1);
    let budget = "apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: inflate}
spec: {minAvailable: 1, selector: {matchLabels: {app: inflate}}}
";
    apply(stage, budget);
    let budget = stage.object("policy/v1", "poddisruptionbudgets", "inflate");
    stage.wait_for("the budget to be counted", || stage.read(&budget)["status"]["currentHealthy"] == 1);
    let node = stage.only_node_of("inflate");
    stage.kubectl_says(&["delete", "node", &node, "--wait=false"]);
    let events =
        format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={node},reason=FailedDraining");
    stage.wait_for("the drain to be told as waiting", || !stage.list(&events).is_empty());
    assert!(!is_going(&stage.pods("inflate")[0]), "the budget allows no eviction");
    stage.kubectl_says(&["delete", "poddisruptionbudget", "inflate"]);
    stage.wait_for("the node to go", || stage.is_gone(&format!("{NODES}/{node}")));
}

fn d0_90_a_pod_beyond_the_limit_is_told_so_in_kubectl_describe(stage: &Stage<'_>) {
    stage.add_pool(|pool| pool["spec"]["limits"] = json!({"cpu": "4"}));
    apply(stage, &inflate(stage, 3));
    stage.wait_until_running("inflate", 3);
    stage.kubectl_says(&["scale", "deployment", "inflate", "--replicas", "12"]);
    let told = format!("nodepool {}: limits: cpu ", stage.namespace);
    stage.wait_for("an event that names the limit", || {
        stage.our_events("FailedScheduling").iter().any(|message| message.contains(&told))
    });
    let waiting = stage.pods("inflate").into_iter().filter(|pod| pod["spec"]["nodeName"].is_null());
    let described = waiting.map(|pod| stage.kubectl_says(&["describe", "pod", &name(&pod)]));
    let is_told = |said: String| said.contains("karpenter") && said.contains(&told);
    assert!(described.into_iter().any(is_told), "no pod is described with {told:?}");
    let cpu: f64 = stage
        .nodes()
        .iter()
        .map(|node| node["status"]["capacity"]["cpu"].as_str().unwrap().parse::<f64>().unwrap())
        .sum();
    assert!(cpu <= 4.0, "{cpu} CPUs are more than the limit");
}

fn d0_25_nodes_go_when_their_deployment_is_deleted(stage: &Stage<'_>) {
    stage.add_pool(|pool| pool["spec"]["disruption"]["consolidateAfter"] = json!("0s"));
    apply(stage, &inflate(stage, 2));
    stage.wait_until_running("inflate", 2);
    stage.kubectl_says(&["delete", "deployment", "inflate"]);
    stage.wait_until_no_node_is_left();
}

fn the_category_karpenter_lists_our_kinds(stage: &Stage<'_>) {
    let said = stage.kubectl_says(&["api-resources", "--categories", "karpenter", "--no-headers", "-o", "name"]);
    let mut kinds: Vec<&str> = said.lines().map(str::trim).collect();
    kinds.sort_unstable();
    let ours = [
        "ec2nodeclasses.karpenter.k8s.aws",
        "kwoknodeclasses.karpenter.kwok.sh",
        "nodeclaims.karpenter.sh",
        "nodeoverlays.karpenter.sh",
        "nodepools.karpenter.sh",
    ];
    assert_eq!(kinds, ours);
}
