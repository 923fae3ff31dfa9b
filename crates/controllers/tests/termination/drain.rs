//! Drains: tiers, holds, deadlines, pods that nobody waits for, restarts.

use crate::stage::{
    annotated, budget, claim_path, condition, delete_claim_within, is_gone, is_leaving, is_running, is_tainted, metric,
    node_path, pod_path, run_pod, stage,
};
use kerf_simulation::Rehearsal;
use serde_json::{Value, json};

/// Termination: terminationGracePeriod 60 s, a pod with 30 s of grace and do-not-disrupt.
#[test]
fn with_a_termination_grace_period_a_held_pod_is_deleted_just_in_time() {
    let (mut rehearsal, machines) = stage(&["n1"]);
    run_pod(&mut rehearsal, "a", "n1", &annotated("karpenter.sh/do-not-disrupt", "true"));
    delete_claim_within(&mut rehearsal, "n1", 60);
    rehearsal.run_until("the node is tainted", 3, |rehearsal| is_tainted(rehearsal, "n1"));
    rehearsal.run_for(25);
    assert!(is_running(&rehearsal, "a") && machines.is_untouched("n1"));
    rehearsal.run_until("the pod is told to go", 6, |rehearsal| is_leaving(rehearsal, "a"));
    rehearsal.run_until("the node is gone", 40, |rehearsal| is_gone(rehearsal, &node_path("n1")));
    assert!(is_gone(&rehearsal, &pod_path("a")));
    let told = rehearsal.events("Disrupted");
    assert!(told.len() == 1 && told[0].contains("2026-01-01T00:01:0"), "{told:?}");
    let expiring = rehearsal.events("TerminationGracePeriodExpiring");
    assert!(
        expiring.len() == 1 && expiring[0].starts_with("All pods will be deleted by 2026-01-01T00:01:0"),
        "{expiring:?}"
    );
}

/// Termination: the same with a 300 s preStop sleep.
#[test]
fn a_pod_that_takes_longer_than_its_node_has_is_cut_short() {
    let (mut rehearsal, machines) = stage(&["n1"]);
    let mut slow = annotated("kerf.dev/stops-after", "300s");
    slow["spec"] = json!({"terminationGracePeriodSeconds": 300});
    run_pod(&mut rehearsal, "slow", "n1", &slow);
    delete_claim_within(&mut rehearsal, "n1", 60);
    rehearsal.run_for(50);
    assert!(is_leaving(&rehearsal, "slow") && machines.is_untouched("n1"));
    let pod = rehearsal.get(&pod_path("slow")).unwrap();
    assert!(pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap() <= 60);
    rehearsal.run_until("the node is gone", 30, |rehearsal| is_gone(rehearsal, &node_path("n1")));
    assert!(is_gone(&rehearsal, &pod_path("slow")));
}

/// Termination: deleting a Node object removes it.
#[test]
fn an_empty_node_goes_after_five_seconds_at_least() {
    let (mut rehearsal, machines) = stage(&["n1"]);
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_for(3);
    assert!(machines.is_untouched("n1"));
    assert_eq!(condition(&rehearsal, "n1", "Drained"), "Unknown Draining");
    rehearsal.run_until("the machine is told to end", 3, |_| !machines.is_untouched("n1"));
    rehearsal.settle();
    assert_eq!(condition(&rehearsal, "n1", "Drained"), "True Drained");
    assert_eq!(condition(&rehearsal, "n1", "VolumesDetached"), "True VolumesDetached");
    assert_eq!(condition(&rehearsal, "n1", "InstanceTerminating"), "True InstanceTerminating");
    rehearsal.run_until("the node is gone", 6, |rehearsal| is_gone(rehearsal, &node_path("n1")));
    assert!(!machines.is_there("n1"));
    for series in [
        "karpenter_nodes_drained_total{nodepool=\"default\"}",
        "karpenter_nodes_terminated_total{nodepool=\"default\",zone=\"zone-a\"}",
    ] {
        assert!((metric(&rehearsal, series) - 1.0).abs() < 0.1, "{series}");
    }
    assert!(!is_gone(&rehearsal, &claim_path("n1")), "the claim's own end is not this duty's");
}

/// Termination: six pods drain in the four tiers, later tiers untouched for as long as the earlier ones take.
#[test]
fn pods_leave_in_four_tiers() {
    let (mut rehearsal, _) = stage(&["n1"]);
    let workload = |kind: &str, name: &str, priority: &str| {
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "selector": {"matchLabels": {"tier": name}},
                "template": {
                    "metadata": {"labels": {"tier": name}, "annotations": {"kerf.dev/stops-after": "30s"}},
                    "spec": {
                        "priorityClassName": priority, "terminationGracePeriodSeconds": 60,
                        "containers": [{"name": "main", "image": "web"}],
                    },
                },
            },
        });
        if priority.is_empty() {
            object["spec"]["template"]["spec"].as_object_mut().unwrap().remove("priorityClassName");
        }
        object
    };
    for (kind, name, priority) in [
        ("Deployment", "app", ""),
        ("DaemonSet", "agent", ""),
        ("Deployment", "dns", "system-cluster-critical"),
        ("Deployment", "dns-node", "system-node-critical"),
        ("DaemonSet", "proxy", "system-cluster-critical"),
        ("DaemonSet", "cni", "system-node-critical"),
    ] {
        rehearsal.create_value(&workload(kind, name, priority));
    }
    let names = ["app", "agent", "dns", "dns-node", "proxy", "cni"];
    let on_node = |rehearsal: &Rehearsal, tier: &str| -> Vec<Value> {
        let pods = rehearsal.list(&format!("/api/v1/pods?labelSelector=tier={tier}"));
        pods.into_iter().filter(|pod| pod["spec"]["nodeName"] == "n1").collect()
    };
    let runs = |rehearsal: &Rehearsal, tier: &str| {
        on_node(rehearsal, tier)
            .iter()
            .any(|pod| pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null())
    };
    rehearsal.run_until("all run", 120, |rehearsal| names.iter().all(|name| runs(rehearsal, name)));
    rehearsal.delete(&node_path("n1"));
    for (tier, later) in [
        (&names[0..1], &names[1..]),
        (&names[1..2], &names[2..]),
        (&names[2..4], &names[4..]),
        (&names[4..6], &names[6..]),
    ] {
        rehearsal.run_until("the tier leaves", 5, |rehearsal| tier.iter().all(|name| !runs(rehearsal, name)));
        rehearsal.run_for(25);
        assert!(tier.iter().all(|name| !on_node(&rehearsal, name).is_empty()), "{tier:?} takes 30 s");
        assert!(later.iter().all(|name| runs(&rehearsal, name)), "{later:?} must wait for {tier:?}");
        rehearsal
            .run_until("the tier is gone", 10, |rehearsal| tier.iter().all(|name| on_node(rehearsal, name).is_empty()));
    }
    rehearsal.run_until("the node is gone", 20, |rehearsal| is_gone(rehearsal, &node_path("n1")));
}

/// Integration: do-not-disrupt `1m`, `2m` and `true` on one node whose claim is deleted.
#[test]
fn do_not_disrupt_for_a_while_holds_for_that_while() {
    let (mut rehearsal, _) = stage(&["n1"]);
    for (name, value) in [("one", "1m"), ("two", "2m"), ("ever", "true")] {
        run_pod(&mut rehearsal, name, "n1", &annotated("karpenter.sh/do-not-disrupt", value));
    }
    let started = |rehearsal: &Rehearsal, name: &str| -> jiff::Timestamp {
        rehearsal.get(&pod_path(name)).unwrap()["status"]["startTime"].as_str().unwrap().parse().unwrap()
    };
    let ends = [("one", 60), ("two", 120)].map(|(name, seconds)| (name, started(&rehearsal, name), seconds));
    rehearsal.delete(&claim_path("n1"));
    rehearsal.delete(&node_path("n1"));
    for (name, started, seconds) in ends {
        let end = started + jiff::SignedDuration::from_secs(seconds);
        rehearsal.run_for(end.as_second() - 5 - rehearsal.now().as_second());
        assert!(is_running(&rehearsal, name), "{name} goes too early");
        rehearsal.run_until("it leaves when its time is over", 6, |rehearsal| !is_running(rehearsal, name));
        assert!(rehearsal.now() >= end, "{name} went too early");
    }
    rehearsal.run_for(30);
    assert!(is_running(&rehearsal, "ever"));
    rehearsal.patch(&pod_path("ever"), &json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": null}}}));
    rehearsal.run_until("the node is gone", 40, |rehearsal| is_gone(rehearsal, &node_path("n1")));
    assert_eq!(rehearsal.events("DoNotDisruptUntil").len(), 2);
    assert_eq!(rehearsal.events("DoNotDisruptGracePeriodElapsed").len(), 2);
}

#[test]
fn a_new_operator_goes_on_where_the_old_one_was_killed() {
    let (mut rehearsal, machines) = stage(&["n1", "n2"]);
    for name in ["a", "b", "c"] {
        run_pod(&mut rehearsal, name, "n1", &json!({}));
    }
    rehearsal.create_value(&budget("web", 2));
    rehearsal.delete(&node_path("n1"));
    rehearsal.delete(&node_path("n2"));
    rehearsal.run_for(2);
    rehearsal.kill();
    rehearsal.run_for(60);
    assert!(!is_gone(&rehearsal, &node_path("n1")) && !is_gone(&rehearsal, &node_path("n2")));
    rehearsal.delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets/web");
    rehearsal.revive();
    rehearsal.run_for(1);
    rehearsal.restart();
    rehearsal.run_until("both nodes are gone", 60, |rehearsal| {
        is_gone(rehearsal, &node_path("n1")) && is_gone(rehearsal, &node_path("n2"))
    });
    assert!(!machines.is_there("n1") && !machines.is_there("n2"));
}

#[test]
fn nobody_waits_for_pods_that_tolerate_the_taint_or_that_the_kubelet_owns() {
    let (mut rehearsal, _) = stage(&["n1"]);
    run_pod(&mut rehearsal, "agent", "n1", &json!({"spec": {"tolerations": [{"operator": "Exists"}]}}));
    run_pod(&mut rehearsal, "mirror", "n1", &annotated("kubernetes.io/config.mirror", "x"));
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_until("the node is gone", 15, |rehearsal| is_gone(rehearsal, &node_path("n1")));
    assert_eq!(rehearsal.events("Evicted"), Vec::<String>::new());
}

#[test]
fn a_pod_of_several_budgets_is_told_of_and_kept() {
    let (mut rehearsal, _) = stage(&["n1"]);
    run_pod(&mut rehearsal, "a", "n1", &json!({}));
    rehearsal.create_value(&budget("one", 0));
    rehearsal.create_value(&budget("two", 0));
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_for(30);
    assert!(is_running(&rehearsal, "a"));
    let told = rehearsal.events("FailedDraining");
    assert!(told.iter().any(|message| message.contains("eviction does not support multiple PDBs")), "{told:?}");
    rehearsal.delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets/two");
    rehearsal.run_until("the node is gone", 30, |rehearsal| is_gone(rehearsal, &node_path("n1")));
}

#[test]
fn pods_are_told_why_their_node_goes() {
    let (mut rehearsal, _) = stage(&["n1"]);
    run_pod(&mut rehearsal, "a", "n1", &json!({}));
    let reason = json!([{
        "type": "DisruptionReason", "status": "True", "reason": "Drifted", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    rehearsal.patch(&format!("{}/status", claim_path("n1")), &json!({"status": {"conditions": reason}}));
    rehearsal.delete(&node_path("n1"));
    rehearsal.run_until("the node is gone", 40, |rehearsal| is_gone(rehearsal, &node_path("n1")));
    assert_eq!(rehearsal.events("Evicted"), ["Evicted pod: Drifted"]);
    assert!((metric(&rehearsal, "karpenter_pods_drained_total{reason=\"Drifted\"}") - 1.0).abs() < 0.1);
    assert!((metric(&rehearsal, "karpenter_pods_eviction_requests_total{code=\"200\"}") - 1.0).abs() < 0.1);
}
