//! Pods that wait, and the nodes that they get.

use std::collections::BTreeSet;

use kerf_api::NodePool;
use kerf_e2e::proxy::Proxy;
use serde_json::{Value, json};

use crate::scene::{is_true, name, text};
use crate::stage::{NODE_CLAIMS, NODES, Stage};
use crate::tests;

tests!(
    limits_that_a_limit_range_gives_to_daemons_are_counted,
    requests_that_a_limit_range_gives_to_daemons_are_counted,
    host_ports_of_daemons_for_two_architectures_do_not_clash,
    a_pool_carries_the_hash_of_its_template,
    d4_11_pods_that_avoid_their_like_get_a_node_each,
    a_rogue_who_taints_every_new_node_is_not_followed_without_end,
    a_rogue_is_not_followed_without_end_where_empty_nodes_stay_for_a_while,
    an_overlay_says_that_it_is_in_force
    ; alone a_claim_whose_creation_was_answered_to_nobody_is_made_once
);

fn a_claim_whose_creation_was_answered_to_nobody_is_made_once(stage: &Stage<'_>) {
    let proxy = Proxy::start(stage.address()).unwrap();
    let kubeconfig = proxy.kubeconfig(stage.operators_kubeconfig(), stage.folder()).unwrap();
    stage.with_operator(&[("KUBECONFIG", kubeconfig.to_str().unwrap())], || {
        stage.add_pool(|_| {});
        // No watch tells of it, either.
        proxy.freeze(NODE_CLAIMS);
        proxy.lose_answer("POST", NODE_CLAIMS);
        stage.add_deployment("inflate", 1, |_| {});
        stage.wait_for("the claim", || {
            assert!(stage.claims().len() <= 1, "bought twice");
            stage.claims().len() == 1
        });
        let claim = name(&stage.claims()[0]);
        stage.wait_until_running("inflate", 1);
        assert!(proxy.has_lost_it());
        assert_eq!(stage.claims().iter().map(name).collect::<Vec<_>>(), [claim]);
        proxy.thaw();
    });
}

fn an_overlay_says_that_it_is_in_force(stage: &Stage<'_>) {
    const OVERLAYS: &str = "/apis/karpenter.sh/v1alpha1/nodeoverlays";
    let path = format!("{OVERLAYS}/{}", stage.namespace);
    stage.add_pool(|_| {});
    stage.clear_later(path.clone());
    let own = json!({"key": "karpenter.sh/nodepool", "operator": "In", "values": [stage.namespace]});
    let overlay = json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": stage.namespace},
        "spec": {"requirements": [own], "priceAdjustment": "+10%", "weight": 1},
    });
    stage.create(OVERLAYS, &overlay);
    stage.wait_for("the overlay to be judged", || is_true(&stage.read(&path), "ValidationSucceeded"));
}

/// A deployment and a DaemonSet whose requests only a LimitRange tells share one node, so the node was chosen for both.
fn with_limit_range(stage: &Stage<'_>, limits: &Value) {
    stage.add_pool(|_| {});
    let range = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "range"},
        "spec": {"limits": [limits]},
    });
    stage.create(&stage.at("v1", "limitranges"), &range);
    stage.add_daemon("daemon", "1", |template| template["spec"]["containers"][0]["resources"] = json!({}));
    let daemon = stage.object("apps/v1", "daemonsets", "daemon");
    stage.wait_for("the daemon to be known to its controller", || {
        stage.read(&daemon)["status"]["observedGeneration"] == 1
    });
    stage.add_deployment("inflate", 1, |template| {
        template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}});
    });
    stage.wait_until_running("inflate", 1);
    stage.wait_until_running("daemon", 1);
    assert_eq!(stage.nodes().len(), 1);
    assert_eq!(stage.pods("daemon")[0]["spec"]["containers"][0]["resources"]["requests"]["cpu"], "2");
}

fn limits_that_a_limit_range_gives_to_daemons_are_counted(stage: &Stage<'_>) {
    with_limit_range(stage, &json!({"type": "Container", "default": {"cpu": "2"}}));
}

fn requests_that_a_limit_range_gives_to_daemons_are_counted(stage: &Stage<'_>) {
    with_limit_range(stage, &json!({"type": "Container", "defaultRequest": {"cpu": "2"}}));
}

fn host_ports_of_daemons_for_two_architectures_do_not_clash(stage: &Stage<'_>) {
    stage.add_pool(|pool| pool["spec"]["template"]["spec"]["requirements"][1]["values"] = json!(["amd64", "arm64"]));
    for architecture in ["amd64", "arm64"] {
        stage.add_daemon(architecture, "100m", |template| {
            template["spec"]["nodeSelector"]["kubernetes.io/arch"] = json!(architecture);
            template["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
        });
    }
    stage.add_deployment("inflate", 1, |_| {});
    stage.wait_until_running("inflate", 1);
    assert_eq!(stage.our_events("FailedScheduling"), Vec::<String>::new());
}

fn a_pool_carries_the_hash_of_its_template(stage: &Stage<'_>) {
    stage.add_pool(|pool| pool["spec"]["template"]["metadata"] = json!({"labels": {"team": "blue"}}));
    stage.wait_for("the hash", || stage.pool()["metadata"]["annotations"]["karpenter.sh/nodepool-hash"].is_string());
    let stored = stage.pool();
    let pool: NodePool = serde_json::from_value(stored.clone()).unwrap();
    let annotations = &stored["metadata"]["annotations"];
    assert_eq!(annotations["karpenter.sh/nodepool-hash"], pool.hash().unwrap());
    assert_eq!(annotations["karpenter.sh/nodepool-hash-version"], "v3");
}

fn d4_11_pods_that_avoid_their_like_get_a_node_each(stage: &Stage<'_>) {
    const PODS: usize = 100;
    stage.add_pool(|_| {});
    stage.add_deployment("hold", PODS, |template| {
        template["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "labelSelector": {"matchLabels": {"app": "hold"}}, "topologyKey": "kubernetes.io/hostname",
        }]}});
    });
    stage.wait_until_running("hold", PODS);
    let used: BTreeSet<String> = stage.pods("hold").iter().map(|pod| text(&pod["spec"]["nodeName"])).collect();
    let there: BTreeSet<String> = stage.nodes().iter().map(name).collect();
    assert_eq!((used.len(), &used), (PODS, &there));
}

fn a_rogue_who_taints_every_new_node_is_not_followed_without_end(stage: &Stage<'_>) {
    stage.add_pool(|pool| {
        pool["spec"]["template"]["spec"]["requirements"][2]["values"] = json!(["spot"]);
        let disruption = &mut pool["spec"]["disruption"];
        disruption["consolidationPolicy"] = json!("WhenEmptyOrUnderutilized");
        disruption["consolidateAfter"] = json!("0s");
    });
    with_a_rogue(stage, 2);
}

fn a_rogue_is_not_followed_without_end_where_empty_nodes_stay_for_a_while(stage: &Stage<'_>) {
    stage.add_pool(|pool| pool["spec"]["disruption"]["consolidateAfter"] = json!("30s"));
    with_a_rogue(stage, 1);
}

/// Somebody makes every node useless as soon as it comes. New nodes follow, but the useless ones go, and there is never a crowd.
fn with_a_rogue(stage: &Stage<'_>, n_gone: usize) {
    stage.add_deployment("inflate", 1, |_| {});
    let mut tainted = BTreeSet::new();
    stage.wait_for(&format!("three nodes to be tainted and {n_gone} of them to go"), || {
        let nodes = stage.nodes();
        assert!(nodes.len() < 35, "{} nodes for one pod", nodes.len());
        let there: BTreeSet<String> = nodes.iter().map(name).collect();
        let fresh: Vec<String> = there.difference(&tainted).cloned().collect();
        fresh.iter().for_each(|node| taint(stage, node));
        tainted.extend(fresh);
        tainted.len() >= 3 && tainted.difference(&there).count() >= n_gone
    });
    assert!(tainted.len() < 35, "{} nodes for one pod", tainted.len());
}

/// Adds a taint beside those that are there, as often as others write in between.
fn taint(stage: &Stage<'_>, node: &str) {
    let path = format!("{NODES}/{node}");
    stage.wait_for("a taint to be written", || {
        let answer = stage.client.get(&path).unwrap();
        if answer.status == 404 {
            return true;
        }
        let mut taints = answer.body["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.push(json!({"key": "kerf.test/rogue", "effect": "NoExecute"}));
        let version = &answer.body["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}});
        matches!(stage.client.patch(&path, "merge", &patch).unwrap().status, 200 | 404)
    });
}
