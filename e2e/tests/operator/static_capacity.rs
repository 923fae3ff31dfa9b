//! Static pools: as many nodes as they say.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::scene::{POOL_LABEL, has_taint, is_going, name, text};
use crate::stage::{NODE_CLAIMS, NODE_POOLS, Stage};
use crate::tests;

tests!(
    a_static_pool_follows_its_replicas_up_and_down_and_to_none,
    replicas_beyond_the_limit_are_not_made,
    a_static_node_is_what_the_template_says,
    scaling_down_takes_the_empty_nodes_and_spares_the_one_that_is_held,
    scaling_down_evicts_pods_with_grace,
    static_and_dynamic_pools_live_side_by_side,
    deleting_a_static_pool_removes_its_nodes_and_makes_none,
);

fn static_pool(stage: &Stage<'_>, replicas: i64, change: impl FnOnce(&mut Value)) {
    stage.add_pool(|pool| {
        pool["spec"]["replicas"] = json!(replicas);
        change(pool);
    });
}

fn scale(stage: &Stage<'_>, replicas: i64) {
    stage.patch(&stage.pool_path(), &json!({"spec": {"replicas": replicas}}));
}

#[track_caller]
fn wait_until_ready(stage: &Stage<'_>, n: usize) {
    stage.wait_for(&format!("{n} claims, all ready"), || stage.claims().len() == n && stage.n_ready_claims() == n);
}

fn names(stage: &Stage<'_>) -> BTreeSet<String> {
    stage.claims().iter().map(name).collect()
}

fn a_static_pool_follows_its_replicas_up_and_down_and_to_none(stage: &Stage<'_>) {
    static_pool(stage, 10, |_| {});
    wait_until_ready(stage, 10);
    let first = names(stage);
    scale(stage, 15);
    wait_until_ready(stage, 15);
    assert!(names(stage).is_superset(&first));
    let scaled = stage.kubectl(&["scale", "nodepool", &stage.namespace, "--replicas", "2"]);
    assert_eq!(scaled.code, 0, "{}", scaled.err);
    wait_until_ready(stage, 2);
    scale(stage, 0);
    stage.wait_until_no_node_is_left();
}

fn replicas_beyond_the_limit_are_not_made(stage: &Stage<'_>) {
    static_pool(stage, 10, |pool| pool["spec"]["limits"] = json!({"nodes": "5"}));
    let wait = |n: usize| {
        stage.wait_for("as many nodes as the limit allows", || {
            assert!(stage.claims().len() <= n, "{:?} are more than {n}", names(stage));
            stage.n_ready_claims() == n
        });
    };
    wait(5);
    stage.patch(&stage.pool_path(), &json!({"spec": {"limits": {"nodes": "6"}}}));
    wait(6);
}

fn a_static_node_is_what_the_template_says(stage: &Stage<'_>) {
    static_pool(stage, 1, |pool| {
        pool["spec"]["template"]["metadata"] = json!({"labels": {"team": "blue"}, "annotations": {"note": "n"}});
        pool["spec"]["template"]["spec"]["taints"] = json!([{"key": "kerf.test/own", "effect": "NoSchedule"}]);
    });
    wait_until_ready(stage, 1);
    let node = &stage.nodes()[0];
    assert_eq!(node["metadata"]["labels"]["team"], "blue");
    assert_eq!(node["metadata"]["annotations"]["note"], "n");
    assert!(has_taint(node, "kerf.test/own"));
}

/// So many pods, no two on one node. A static pool asks for nothing, and so gets the smallest machines.
fn add_apart(stage: &Stage<'_>, name: &str, replicas: usize, change: impl FnOnce(&mut Value)) {
    stage.add_deployment(name, replicas, |template| {
        template["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "100m"});
        template["metadata"]["labels"]["apart"] = json!("yes");
        template["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "labelSelector": {"matchLabels": {"apart": "yes"}}, "topologyKey": "kubernetes.io/hostname",
        }]}});
        change(template);
    });
    stage.wait_until_running(name, replicas);
}

fn nodes_of(stage: &Stage<'_>, app: &str) -> BTreeSet<String> {
    stage.pods(app).iter().map(|pod| text(&pod["spec"]["nodeName"])).collect()
}

fn nodes_with_claims(stage: &Stage<'_>) -> BTreeSet<String> {
    stage.claims().iter().map(|claim| text(&claim["status"]["nodeName"])).collect()
}

fn scaling_down_takes_the_empty_nodes_and_spares_the_one_that_is_held(stage: &Stage<'_>) {
    static_pool(stage, 5, |_| {});
    wait_until_ready(stage, 5);
    add_apart(stage, "held", 1, |template| {
        template["metadata"]["annotations"] = json!({"karpenter.sh/do-not-disrupt": "true"});
    });
    add_apart(stage, "inflate", 2, |_| {});
    let held = nodes_of(stage, "held");
    let used: BTreeSet<String> = held.union(&nodes_of(stage, "inflate")).cloned().collect();
    scale(stage, 3);
    wait_until_ready(stage, 3);
    assert_eq!(nodes_with_claims(stage), used, "the empty ones go");
    scale(stage, 1);
    wait_until_ready(stage, 1);
    assert_eq!(nodes_with_claims(stage), held);
    assert_eq!(stage.n_running("held"), 1);
}

fn scaling_down_evicts_pods_with_grace(stage: &Stage<'_>) {
    static_pool(stage, 3, |_| {});
    wait_until_ready(stage, 3);
    // Slow to stop, each cluster in its way: its kubelets take time, and a finalizer holds what kwok would end at once.
    add_apart(stage, "inflate", 2, |template| {
        template["metadata"]["annotations"] = json!({"kerf.dev/stops-after": "15s"});
        template["spec"]["terminationGracePeriodSeconds"] = json!(30);
    });
    let pods: Vec<String> = stage.pods("inflate").iter().map(|pod| stage.object("v1", "pods", &name(pod))).collect();
    for pod in &pods {
        stage.patch(pod, &json!({"metadata": {"finalizers": ["kerf.test/slow"]}}));
    }
    scale(stage, 1);
    // One node is empty and goes at once; of the others one has to go, and waits for its pod.
    stage.wait_for("a pod to be on its way out", || pods.iter().any(|pod| is_going(&stage.read(pod))));
    stage.wait_for("the empty node to go", || stage.claims().len() == 2);
    let leaving = pods.iter().filter(|pod| is_going(&stage.read(pod))).count();
    assert_eq!(leaving, 1, "one node is to stay, and its pod with it");
    stage.wait_for("the eviction to be told", || stage.our_events("Evicted").len() == 1);
    for pod in &pods {
        stage.patch(pod, &json!({"metadata": {"finalizers": null}}));
    }
    wait_until_ready(stage, 1);
    stage.wait_until_running("inflate", 1);
}

fn static_and_dynamic_pools_live_side_by_side(stage: &Stage<'_>) {
    static_pool(stage, 2, |pool| {
        pool["spec"]["template"]["spec"]["taints"] = json!([{"key": "kerf.test/static", "effect": "NoSchedule"}]);
    });
    wait_until_ready(stage, 2);
    let other = format!("{}-dynamic", stage.namespace);
    let mut pool = stage.pool_manifest();
    pool["metadata"]["name"] = json!(other);
    stage.clear_later(format!("{NODE_POOLS}/{other}"));
    stage.create(NODE_POOLS, &pool);
    add_apart(stage, "inflate", 3, |template| template["spec"]["nodeSelector"] = json!({POOL_LABEL: other}));
    assert_eq!(stage.list(&format!("{NODE_CLAIMS}?labelSelector={POOL_LABEL}={other}")).len(), 3);
    wait_until_ready(stage, 2);
    assert!(nodes_of(stage, "inflate").is_disjoint(&nodes_with_claims(stage)));
}

fn deleting_a_static_pool_removes_its_nodes_and_makes_none(stage: &Stage<'_>) {
    static_pool(stage, 3, |_| {});
    wait_until_ready(stage, 3);
    let there = names(stage);
    stage.kubectl_says(&["delete", "nodepool", &stage.namespace, "--wait=false"]);
    stage.wait_for("its claims and nodes to go", || {
        assert!(names(stage).is_subset(&there), "{:?} are new", names(stage));
        stage.claims().is_empty() && stage.nodes().is_empty()
    });
    assert!(stage.is_gone(&stage.pool_path()));
}
