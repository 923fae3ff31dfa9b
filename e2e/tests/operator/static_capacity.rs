//! Static pools: as many nodes as they say.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::scene::{has_taint, name};
use crate::stage::Stage;
use crate::tests;

tests!(
    a_static_pool_follows_its_replicas_up_and_down_and_to_none,
    replicas_beyond_the_limit_are_not_made,
    a_static_node_is_what_the_template_says,
    scaling_down_spares_the_node_that_is_held,
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
    static_pool(stage, 3, |_| {});
    wait_until_ready(stage, 3);
    let first = names(stage);
    scale(stage, 5);
    wait_until_ready(stage, 5);
    assert!(names(stage).is_superset(&first));
    let scaled = stage.kubectl(&["scale", "nodepool", &stage.namespace, "--replicas", "2"]);
    assert_eq!(scaled.code, 0, "{}", scaled.err);
    wait_until_ready(stage, 2);
    scale(stage, 0);
    stage.wait_until_no_node_is_left();
}

fn replicas_beyond_the_limit_are_not_made(stage: &Stage<'_>) {
    static_pool(stage, 4, |pool| pool["spec"]["limits"] = json!({"nodes": "2"}));
    let wait = |n: usize| {
        stage.wait_for("as many nodes as the limit allows", || {
            assert!(stage.claims().len() <= n, "{:?} are more than {n}", names(stage));
            stage.n_ready_claims() == n
        });
    };
    wait(2);
    stage.patch(&stage.pool_path(), &json!({"spec": {"limits": {"nodes": "3"}}}));
    wait(3);
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

fn scaling_down_spares_the_node_that_is_held(stage: &Stage<'_>) {
    static_pool(stage, 3, |_| {});
    wait_until_ready(stage, 3);
    stage.add_deployment("held", 1, |template| {
        template["metadata"]["annotations"] = json!({"karpenter.sh/do-not-disrupt": "true"});
        // A static pool asks for nothing, and so gets the smallest machines.
        template["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "100m"});
    });
    stage.wait_until_running("held", 1);
    let node = stage.only_node_of("held");
    scale(stage, 1);
    wait_until_ready(stage, 1);
    assert_eq!(stage.claims()[0]["status"]["nodeName"], node);
    assert_eq!(stage.n_running("held"), 1);
}
