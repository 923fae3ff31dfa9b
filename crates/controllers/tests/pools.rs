//! What is said of NodePools, on the embedded control plane.

use kerf_controllers::{Duty, pools};
use kerf_simulation::{Rehearsal, Setup};
use serde_json::{Value, json};

const CLASS: &str = "{apiVersion: karpenter.kwok.sh/v1alpha1, kind: KWOKNodeClass, metadata: {name: default}}";

fn of_pools() -> Vec<Box<dyn Duty>> {
    vec![
        Box::new(pools::Hash::default()),
        Box::new(pools::Validation::default()),
        Box::new(pools::Readiness::default()),
        Box::new(pools::RegistrationHealth::default()),
        Box::new(pools::Counter::default()),
    ]
}

fn rehearsal() -> Rehearsal {
    Rehearsal::new(Setup::default().with_duties(of_pools))
}

fn pool(name: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
        "spec": {"template": {"spec": {
            "requirements": [],
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        }}},
    })
}

fn path(name: &str) -> String {
    format!("/apis/karpenter.sh/v1/nodepools/{name}")
}

fn condition(rehearsal: &Rehearsal, name: &str, kind: &str) -> Value {
    let pool = rehearsal.get(&path(name)).unwrap_or_default();
    let conditions = pool["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
}

fn is_ready(rehearsal: &Rehearsal, name: &str) -> bool {
    condition(rehearsal, name, "Ready")["status"] == "True"
}

fn node(name: &str, pool: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": pool}},
        "status": {"capacity": {"cpu": cpu, "memory": "1Gi"}, "allocatable": {"cpu": cpu, "memory": "1Gi"}},
    })
}

#[test]
fn a_sound_pool_becomes_ready_and_carries_the_hash_of_its_template() {
    let mut rehearsal = rehearsal();
    rehearsal.create(CLASS);
    rehearsal.create_value(&pool("default"));
    rehearsal.run_until("the pool is ready", 5, |rehearsal| is_ready(rehearsal, "default"));
    rehearsal.run_for(5);
    let pool = rehearsal.get(&path("default")).unwrap();
    assert_eq!(pool["metadata"]["annotations"]["karpenter.sh/nodepool-hash"], "12745407319442031341");
    assert_eq!(pool["metadata"]["annotations"]["karpenter.sh/nodepool-hash-version"], "v3");
    for condition in pool["status"]["conditions"].as_array().unwrap() {
        assert_eq!(condition["observedGeneration"], pool["metadata"]["generation"], "{condition}");
    }
    assert_eq!(pool["status"]["nodes"], 0);
    assert_eq!(pool["status"]["resources"]["nodes"], "0");
    assert_eq!(pool["status"]["nodeClassObservedGeneration"], 1);
}

#[test]
fn a_pool_that_is_settled_is_not_written_again() {
    let mut rehearsal = rehearsal();
    rehearsal.create(CLASS);
    rehearsal.create_value(&pool("default"));
    rehearsal.run_for(10);
    let n_calls = rehearsal.n_calls();
    rehearsal.run_for(3_600);
    assert_eq!(rehearsal.n_calls(), n_calls);
    rehearsal.restart();
    rehearsal.run_for(60);
    assert_eq!(rehearsal.n_calls(), n_calls, "not even by a successor");
}

#[test]
fn an_invalid_pool_says_which_field_and_the_others_go_on() {
    let mut rehearsal = rehearsal();
    rehearsal.create(CLASS);
    let mut twice = pool("twice");
    let taint = json!([{"key": "a", "effect": "NoSchedule"}]);
    twice["spec"]["template"]["spec"]["taints"] = taint.clone();
    twice["spec"]["template"]["spec"]["startupTaints"] = taint;
    rehearsal.create_value(&twice);
    rehearsal.create_value(&pool("default"));
    rehearsal.run_until("the sound pool is ready", 5, |rehearsal| is_ready(rehearsal, "default"));
    rehearsal.run_for(5);
    let failed = condition(&rehearsal, "twice", "ValidationSucceeded");
    assert_eq!((&failed["status"], &failed["reason"]), (&json!("False"), &json!("NodePoolValidationFailed")));
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("spec.template.spec.startupTaints[0]"), "{message}");
    assert_eq!(condition(&rehearsal, "twice", "Ready")["status"], "False");
    assert_eq!(rehearsal.events("NodePoolValidationFailed"), [message]);

    rehearsal.patch(&path("twice"), &json!({"spec": {"template": {"spec": {"startupTaints": null}}}}));
    rehearsal.run_until("the pool is mended", 5, |rehearsal| is_ready(rehearsal, "twice"));
}

#[test]
fn a_pool_waits_for_its_class_and_says_so() {
    let mut rehearsal = rehearsal();
    rehearsal.create_value(&pool("default"));
    rehearsal.run_until("the class is missed", 5, |rehearsal| {
        condition(rehearsal, "default", "NodeClassReady")["reason"] == "NodeClassNotFound"
    });
    let ready = condition(&rehearsal, "default", "Ready");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("UnhealthyDependents")));
    rehearsal.create(CLASS);
    rehearsal.run_until("the pool is ready", 5, |rehearsal| is_ready(rehearsal, "default"));
    let class = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses/default";
    let not_ready = json!({"status": {"conditions": [{
        "type": "Ready", "status": "False", "reason": "Broken", "message": "no luck", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    rehearsal.patch(&format!("{class}/status"), &not_ready);
    rehearsal.run_until("the class's own reason is shown", 5, |rehearsal| {
        let of_class = condition(rehearsal, "default", "NodeClassReady");
        of_class["reason"] == "Broken" && of_class["message"] == "no luck"
    });
    rehearsal.patch(class, &json!({"metadata": {"finalizers": ["example.com/hold"]}}));
    rehearsal.delete(class);
    rehearsal.run_until("the class is going", 5, |rehearsal| {
        condition(rehearsal, "default", "NodeClassReady")["reason"] == "NodeClassTerminating"
    });
}

#[test]
fn a_pool_of_another_provider_is_left_alone() {
    let mut rehearsal = rehearsal();
    let mut foreign = pool("foreign");
    foreign["spec"]["template"]["spec"]["nodeClassRef"] =
        json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    rehearsal.create_value(&foreign);
    rehearsal.run_for(60);
    assert_eq!(rehearsal.n_calls(), 0);
    let pool = rehearsal.get(&path("foreign")).unwrap();
    assert_eq!(pool["metadata"]["annotations"], Value::Null);
    assert_eq!(condition(&rehearsal, "foreign", "Ready"), Value::Null);
}

#[test]
fn a_new_way_of_hashing_forgives_no_claim_that_had_drifted() {
    let mut rehearsal = Rehearsal::new(Setup::default().with_duties(|| vec![Box::new(pools::Hash::default())]));
    rehearsal.create(CLASS);
    let old = json!({"karpenter.sh/nodepool-hash": "7", "karpenter.sh/nodepool-hash-version": "v2"});
    for name in ["fresh", "drifted"] {
        rehearsal.create_value(&json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "default"}, "annotations": old},
            "spec": {
                "requirements": [],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            },
        }));
    }
    let drifted = json!({"status": {"conditions": [{
        "type": "Drifted", "status": "True", "reason": "NodePoolDrifted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    rehearsal.patch("/apis/karpenter.sh/v1/nodeclaims/drifted/status", &drifted);
    let mut pool = pool("default");
    pool["metadata"]["annotations"] = old;
    rehearsal.create_value(&pool);
    let annotation = |rehearsal: &Rehearsal, path: &str, key: &str| {
        rehearsal.get(path).unwrap()["metadata"]["annotations"][format!("karpenter.sh/{key}")].clone()
    };
    rehearsal.run_until("the pool has the new hash", 5, |rehearsal| {
        annotation(rehearsal, &path("default"), "nodepool-hash-version") == "v3"
    });
    let hash = annotation(&rehearsal, &path("default"), "nodepool-hash");
    assert_ne!(hash, "7");
    for (name, expected) in [("fresh", hash), ("drifted", json!("7"))] {
        let claim = format!("/apis/karpenter.sh/v1/nodeclaims/{name}");
        assert_eq!(annotation(&rehearsal, &claim, "nodepool-hash-version"), "v3", "{name}");
        assert_eq!(annotation(&rehearsal, &claim, "nodepool-hash"), expected, "{name}");
    }
}

#[test]
fn nodes_are_counted_at_most_every_five_seconds() {
    let mut rehearsal = rehearsal();
    rehearsal.create(CLASS);
    rehearsal.create_value(&pool("default"));
    rehearsal.run_for(10);
    let n_calls = rehearsal.n_calls();
    for n in 0..4 {
        rehearsal.create_value(&node(&format!("n{n}"), "default", "2"));
        rehearsal.run_for(1);
    }
    rehearsal.run_until("all four are counted", 5, |rehearsal| {
        let status = &rehearsal.get(&path("default")).unwrap()["status"];
        status["nodes"] == 4 && status["resources"]["cpu"] == "8" && status["resources"]["nodes"] == "4"
    });
    rehearsal.run_for(60);
    assert!(rehearsal.n_calls() - n_calls <= 2, "{} writes", rehearsal.n_calls() - n_calls);
    rehearsal.delete("/api/v1/nodes/n0");
    rehearsal.run_until("one is gone", 6, |rehearsal| rehearsal.get(&path("default")).unwrap()["status"]["nodes"] == 3);
}

#[test]
fn d0_19_deleting_a_node_pool_removes_its_nodes() {
    let mut rehearsal = Rehearsal::new(Setup::default());
    rehearsal.create(CLASS);
    rehearsal.create_value(&pool("default"));
    rehearsal.create_value(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "inflate", "namespace": "default"},
        "spec": {
            "replicas": 4, "selector": {"matchLabels": {"app": "inflate"}},
            "template": {
                "metadata": {"labels": {"app": "inflate"}},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
                        "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "inflate"}},
                    }]}},
                    "containers": [{"name": "c", "image": "pause", "resources": {"requests": {"cpu": "1"}}}],
                },
            },
        },
    }));
    let running = |rehearsal: &Rehearsal| {
        let pods = rehearsal.pods();
        pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count()
    };
    rehearsal.run_until("four pods run on four nodes", 300, |rehearsal| {
        running(rehearsal) == 4 && rehearsal.nodes().len() == 4
    });
    rehearsal.delete(&path("default"));
    rehearsal.run_until("every node is gone", 600, |rehearsal| {
        rehearsal.nodes().is_empty() && rehearsal.claims().is_empty()
    });
    rehearsal.run_for(120);
    assert!(rehearsal.nodes().is_empty() && rehearsal.claims().is_empty(), "and none comes back");
    assert_eq!(rehearsal.pods().len(), 4, "the pods wait for another pool");
}
