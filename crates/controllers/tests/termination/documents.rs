//! The documents' lines about draining.

use crate::stage::{
    add_node, annotated, budget, claim_path, delete_claim_within, is_gone, is_leaving, is_running, is_tainted, metric,
    node_path, pod_path, run_pod, stage,
};
use serde_json::json;

const REFUSED: &str = "karpenter_pods_eviction_requests_total{code=\"429\"}";

#[test]
fn d0_10_eviction_respects_disruption_budgets() {
    let (mut rehearsal, machines) = stage(&["n1"]);
    run_pod(&mut rehearsal, "a", "n1", &json!({}));
    run_pod(&mut rehearsal, "b", "n1", &json!({}));
    rehearsal.create_value(&budget("web", 2));
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_for(600);
    assert!(is_running(&rehearsal, "a") && is_running(&rehearsal, "b"));
    assert!(machines.is_untouched("n1"));
    rehearsal.delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets/web");
    rehearsal.run_until("the node is gone", 60, |rehearsal| is_gone(rehearsal, &node_path("n1")));
    assert!(is_gone(&rehearsal, &pod_path("a")) && is_gone(&rehearsal, &pod_path("b")));
    assert!(!machines.is_there("n1"));
}

#[test]
fn d0_87_a_drain_waits_the_pods_whole_grace_period_before_the_instance_ends() {
    let (mut rehearsal, machines) = stage(&["n1"]);
    let mut slow = annotated("kerf.dev/stops-after", "70s");
    slow["spec"] = json!({
        "terminationGracePeriodSeconds": 75,
        "containers": [{
            "name": "main", "image": "web",
            "env": [{"name": "SPRING_LIFECYCLE_TIMEOUT-PER-SHUTDOWN-PHASE", "value": "60s"}],
            "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "sleep 10"]}}},
        }],
    });
    run_pod(&mut rehearsal, "slow", "n1", &slow);
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_for(69);
    let pod = rehearsal.get(&pod_path("slow")).unwrap();
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 75);
    assert!(is_leaving(&rehearsal, "slow") && machines.is_untouched("n1"));
    rehearsal.run_until("the node is gone", 30, |rehearsal| is_gone(rehearsal, &node_path("n1")));
    assert_eq!(rehearsal.events("Disrupted"), Vec::<String>::new());
}

#[test]
fn d0_88_of_two_replicas_on_one_node_one_moves_before_the_other() {
    let (mut rehearsal, machines) = stage(&["n1"]);
    rehearsal.create_value(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "web"}]},
            },
        },
    }));
    let n_ready_on = |rehearsal: &kerf_simulation::Rehearsal, node: &str| {
        let is_ready = |pod: &&serde_json::Value| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            let mut ready =
                conditions.filter(|condition| condition["type"] == "Ready" && condition["status"] == "True");
            ready.next().is_some() && pod["spec"]["nodeName"] == node
        };
        rehearsal.pods().iter().filter(is_ready).count()
    };
    rehearsal.run_until("both run on the only node", 60, |rehearsal| n_ready_on(rehearsal, "n1") == 2);
    rehearsal.create_value(&budget("web", 1));
    add_node(&mut rehearsal, &machines, "n2");
    rehearsal.delete(&node_path("n1"));
    let mut has_met = false;
    rehearsal.run_until("both have moved", 300, |rehearsal| {
        let (before, after) = (n_ready_on(rehearsal, "n1"), n_ready_on(rehearsal, "n2"));
        assert!(before + after >= 1, "nobody serves");
        has_met |= before == 1 && after == 1;
        after == 2
    });
    assert!(has_met, "the second left before the first was replaced");
    rehearsal.run_until("the node is gone", 60, |rehearsal| is_gone(rehearsal, &node_path("n1")));
}

#[test]
fn d0_91_do_not_disrupt_on_a_pod_keeps_it_and_its_node() {
    let (mut rehearsal, machines) = stage(&["n1"]);
    run_pod(&mut rehearsal, "long", "n1", &annotated("karpenter.sh/do-not-disrupt", "true"));
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_for(3_600);
    assert!(is_running(&rehearsal, "long") && machines.is_untouched("n1"));
    let unquoted = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "bare", "annotations": {"karpenter.sh/do-not-disrupt": true}},
        "spec": {"containers": [{"name": "main", "image": "web"}]},
    });
    let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rehearsal.create_value(&unquoted)));
    assert!(answer.is_err(), "the API server takes a bare true");
}

#[test]
fn d1_27_a_pod_with_the_older_do_not_evict_is_not_evicted() {
    let (mut rehearsal, machines) = stage(&["n1"]);
    run_pod(&mut rehearsal, "old", "n1", &annotated("karpenter.sh/do-not-evict", "true"));
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_for(3_600);
    assert!(is_running(&rehearsal, "old") && machines.is_untouched("n1"));
    assert_eq!(rehearsal.events("Evicted"), Vec::<String>::new());
}

#[test]
fn d2_20_a_deleted_node_is_tainted_drained_and_ended_before_the_object_goes() {
    let (mut rehearsal, machines) = stage(&["n1"]);
    run_pod(&mut rehearsal, "a", "n1", &json!({}));
    rehearsal.delete(&node_path("n1"));
    rehearsal.settle();
    assert!(is_tainted(&rehearsal, "n1") && is_leaving(&rehearsal, "a"));
    let claim = rehearsal.get(&claim_path("n1")).unwrap();
    assert!(!claim["metadata"]["deletionTimestamp"].is_null(), "the claim goes with its node");
    rehearsal.run_until("the pod is gone", 40, |rehearsal| is_gone(rehearsal, &pod_path("a")));
    assert!(!is_gone(&rehearsal, &node_path("n1")), "the finalizer holds the node");
    rehearsal.run_until("the machine is ended", 20, |_| !machines.is_untouched("n1"));
    assert!(!is_gone(&rehearsal, &node_path("n1")));
    rehearsal.run_until("the node is gone", 20, |rehearsal| is_gone(rehearsal, &node_path("n1")));
    assert!(!machines.is_there("n1"), "the machine ended first");
}

#[test]
fn d2_21_a_budget_stops_the_eviction_and_it_is_tried_again_later_and_later() {
    let (mut rehearsal, _) = stage(&["n1"]);
    run_pod(&mut rehearsal, "a", "n1", &json!({}));
    rehearsal.create_value(&budget("web", 1));
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_for(1);
    let (in_a_second, before) = (metric(&rehearsal, REFUSED), 1.0 + 3.0);
    assert!((in_a_second - before).abs() < 0.5, "at 0, 100, 300 and 700 ms, not {in_a_second} times");
    rehearsal.run_for(59);
    let in_a_minute = metric(&rehearsal, REFUSED);
    assert!((10.0..16.0).contains(&in_a_minute), "every 10 s at last, not {in_a_minute} times");
    let told = rehearsal.events("FailedDraining");
    assert!(told.iter().any(|message| message.contains("evicting pod violates a PDB")), "{told:?}");
    assert!(told.iter().any(|message| message.contains("1 pods are waiting to be evicted")), "{told:?}");
    let held = rehearsal.events("EvictionBlocked");
    let words =
        "Cannot leave node n1, which is to go: Cannot evict pod as it would violate the pod's disruption budget.";
    assert!(held.len() == 1 && held[0].starts_with(words), "once in ten minutes, on the pod itself: {held:?}");
    rehearsal.delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets/web");
    rehearsal.run_until("the pod leaves", 11, |rehearsal| is_leaving(rehearsal, "a"));
    assert_eq!(rehearsal.events("Evicted"), ["Evicted pod: Forceful Termination"]);
}

#[test]
fn d2_22_without_a_termination_grace_period_no_pod_is_deleted_by_force() {
    let (mut rehearsal, machines) = stage(&["n1"]);
    run_pod(&mut rehearsal, "held", "n1", &annotated("karpenter.sh/do-not-disrupt", "true"));
    run_pod(&mut rehearsal, "guarded", "n1", &json!({}));
    rehearsal.create_value(&budget("web", 2));
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_for(6 * 3_600);
    assert!(is_running(&rehearsal, "held") && is_running(&rehearsal, "guarded"));
    assert!(machines.is_untouched("n1") && !is_gone(&rehearsal, &node_path("n1")));
    assert_eq!(rehearsal.events("Disrupted"), Vec::<String>::new());
    // The exception that the user asks for.
    delete_claim_within(&mut rehearsal, "n1", 60);
    rehearsal.run_until("the node is gone", 90, |rehearsal| is_gone(rehearsal, &node_path("n1")));
    assert_eq!(rehearsal.events("Disrupted").len(), 2);
}

#[test]
fn d2_23_do_not_evict_holds_pod_and_node_and_other_values_are_warned_of() {
    let (mut rehearsal, machines) = stage(&["n1"]);
    run_pod(&mut rehearsal, "driver", "n1", &annotated("karpenter.sh/do-not-evict", "true"));
    run_pod(&mut rehearsal, "worker", "n1", &annotated("karpenter.sh/do-not-evict", "yes please"));
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_until("the worker is gone", 60, |rehearsal| is_gone(rehearsal, &pod_path("worker")));
    rehearsal.run_for(600);
    assert!(is_running(&rehearsal, "driver") && machines.is_untouched("n1"));
    let told = rehearsal.events("InvalidDoNotDisruptAnnotation");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("yes please"), "{told:?}");
}

#[test]
fn d3_24_do_not_evict_keeps_the_node_until_the_pod_ends() {
    let (mut rehearsal, _) = stage(&["n1"]);
    let mut job = annotated("karpenter.sh/do-not-evict", "true");
    job["metadata"]["annotations"]["kerf.dev/run-for"] = json!("10m");
    job["spec"] = json!({"restartPolicy": "Never"});
    run_pod(&mut rehearsal, "job", "n1", &job);
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_for(590);
    assert!(is_running(&rehearsal, "job") && !is_gone(&rehearsal, &node_path("n1")));
    rehearsal.run_until("the node is gone", 30, |rehearsal| is_gone(rehearsal, &node_path("n1")));
    assert_eq!(rehearsal.events("Evicted"), Vec::<String>::new());
}

#[test]
fn d3_24_do_not_evict_keeps_the_node_until_the_annotation_is_removed() {
    let (mut rehearsal, _) = stage(&["n1"]);
    run_pod(&mut rehearsal, "a", "n1", &annotated("karpenter.sh/do-not-evict", "true"));
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_for(600);
    assert!(is_running(&rehearsal, "a"));
    rehearsal.patch(&pod_path("a"), &json!({"metadata": {"annotations": {"karpenter.sh/do-not-evict": null}}}));
    rehearsal.settle();
    assert!(is_leaving(&rehearsal, "a"), "at once, without waiting for the next attempt");
    rehearsal.run_until("the node is gone", 60, |rehearsal| is_gone(rehearsal, &node_path("n1")));
}

/// A documented difference: the documents show `SchedulingDisabled`.
#[test]
fn d3_30_a_draining_node_is_tainted_and_not_unschedulable() {
    let (mut rehearsal, _) = stage(&["n1"]);
    run_pod(&mut rehearsal, "a", "n1", &annotated("karpenter.sh/do-not-disrupt", "true"));
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_for(5);
    let spot = rehearsal.list("/api/v1/nodes?labelSelector=karpenter.sh/capacity-type=spot");
    assert_eq!(spot.len(), 1);
    assert!(is_tainted(&rehearsal, "n1"));
    assert!(spot[0]["spec"]["unschedulable"].is_null());
    let label = &spot[0]["metadata"]["labels"]["node.kubernetes.io/exclude-from-external-load-balancers"];
    assert_eq!(label, "karpenter");
}
