//! The end of nodes with the whole operator and the kwok provider.

use crate::stage::{annotated, claim, claim_path, is_gone, is_leaving, is_running, node_path, pod_path, run_pod};
use kerf_simulation::{Rehearsal, Setup};
use serde_json::json;

/// A standalone claim and its node, by name.
fn launched() -> (Rehearsal, String) {
    let mut rehearsal = Rehearsal::new(Setup::default());
    rehearsal.create("{apiVersion: karpenter.kwok.sh/v1alpha1, kind: KWOKNodeClass, metadata: {name: default}}");
    rehearsal.run_for(5);
    let mut claim = claim("lone");
    claim["metadata"] = json!({"name": "lone"});
    claim["spec"]["terminationGracePeriod"] = json!("60s");
    rehearsal.create_value(&claim);
    let node_of = |rehearsal: &Rehearsal| {
        let claim = rehearsal.get(&claim_path("lone")).unwrap_or_default();
        let conditions = claim["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_ready = conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        claim["status"]["nodeName"].as_str().filter(|_| is_ready).map(str::to_owned)
    };
    rehearsal.run_until("the claim is ready", 60, |rehearsal| node_of(rehearsal).is_some());
    let node = node_of(&rehearsal).unwrap();
    (rehearsal, node)
}

#[test]
fn a_deleted_claim_takes_its_pods_and_node_along_within_its_termination_grace_period() {
    let (mut rehearsal, node) = launched();
    run_pod(&mut rehearsal, "held", &node, &annotated("karpenter.sh/do-not-disrupt", "true"));
    rehearsal.delete(&claim_path("lone"));
    rehearsal.run_for(25);
    assert!(is_running(&rehearsal, "held"));
    rehearsal.run_until("the pod is told to go", 6, |rehearsal| is_leaving(rehearsal, "held"));
    rehearsal.run_until("claim and node are gone", 60, |rehearsal| {
        is_gone(rehearsal, &claim_path("lone")) && is_gone(rehearsal, &node_path(&node))
    });
    assert!(is_gone(&rehearsal, &pod_path("held")));
}

#[test]
fn a_deleted_node_takes_its_claim_along_though_the_operator_dies_meanwhile() {
    let (mut rehearsal, node) = launched();
    run_pod(&mut rehearsal, "a", &node, &json!({}));
    rehearsal.delete(&node_path(&node));
    for _ in 0..8 {
        rehearsal.run_for(1);
        rehearsal.restart();
    }
    rehearsal.run_until("claim and node are gone", 60, |rehearsal| {
        is_gone(rehearsal, &claim_path("lone")) && is_gone(rehearsal, &node_path(&node))
    });
    assert!(is_gone(&rehearsal, &pod_path("a")));
}
