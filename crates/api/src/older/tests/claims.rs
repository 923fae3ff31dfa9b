//! What becomes of each field of a NodeClaim.

use serde_json::{Value, json};

use super::super::EXPIRY_OF_POOL;
use super::*;
use crate::labels::{KUBELET_CONVERSION, NODE_CLASS_REFERENCE};

fn claim_v1() -> Value {
    defaulted(json!({
        "apiVersion": POOL_V1, "kind": "NodeClaim", "metadata": {"name": "workers-1"},
        "spec": {"requirements": [], "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "workers"}},
    }))
}

#[test]
fn a_claim_that_came_without_an_expiry_never_expires_by_being_converted() {
    let current = comes_back(claim());
    assert_eq!(current["spec"]["expireAfter"], "Never");
    assert_eq!(annotation(&current, EXPIRY_OF_POOL), "true");
    assert_eq!(Kind::NodeClaim.check(&current, None), []);
    // Read by someone in v1beta1 and written back, it still waits for its pool's.
    assert_eq!(to_v1(&to_v1beta1(&current)), current);
}

#[test]
fn an_expiry_that_a_claim_was_given_in_v1_survives_and_so_does_never() {
    for expiry in ["720h", "Never", "1h"] {
        let given = with(claim_v1(), "/spec/expireAfter", json!(expiry));
        comes_back(given.clone());
        assert_eq!(annotation(&to_v1(&to_v1beta1(&given)), EXPIRY_OF_POOL), &Value::Null);
    }
}

/// A claim's spec never changes through v1; through v1beta1, which does not have the field, it does not either.
#[test]
fn a_duty_gives_a_claim_its_expiry_by_writing_it_in_v1beta1() {
    let stored = to_v1(&claim());
    let mut wanted = with(stored.clone(), "/spec/expireAfter", json!("48h"));
    wanted["metadata"]["annotations"].as_object_mut().unwrap().remove(EXPIRY_OF_POOL);
    let written = to_v1beta1(&wanted);
    let before = to_v1beta1(&stored);
    assert_eq!(v1beta1::check(Kind::NodeClaim, &written, Some(&before)), []);
    assert_eq!(to_v1(&written), wanted);
    assert_ne!(Kind::NodeClaim.check(&wanted, Some(&stored)), []);
}

#[test]
fn the_reference_as_it_was_written_is_kept_where_upstream_keeps_it() {
    let current = to_v1(&claim());
    assert_eq!(annotation(&current, NODE_CLASS_REFERENCE), r#"{"name":"workers"}"#);
    assert_eq!(
        current["spec"]["nodeClassRef"],
        json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "workers"})
    );
    assert_eq!(to_v1beta1(&current)["spec"]["nodeClassRef"], json!({"name": "workers"}));
}

#[test]
fn a_claim_that_upstream_stored_as_v1_is_read_and_left_as_it_is() {
    let mut stored = claim_v1();
    stored["metadata"]["annotations"] = json!({
        NODE_CLASS_REFERENCE: r#"{"kind":"EC2NodeClass","name":"workers","apiVersion":"karpenter.k8s.aws/v1beta1"}"#,
        KUBELET_CONVERSION: r#"{"maxPods":20,"cpuCFSQuota":true}"#,
        "karpenter.sh/stored-version-migrated": "true",
    });
    let older = comes_back(stored);
    assert_eq!(older["spec"]["kubelet"], json!({"maxPods": 20, "cpuCFSQuota": true}));
}

#[test]
fn the_settings_of_the_kubelet_are_kept_where_upstream_keeps_them() {
    let current = comes_back(with(claim(), "/spec/kubelet", json!({"maxPods": 20})));
    assert_eq!(annotation(&current, KUBELET_CONVERSION), r#"{"maxPods":20}"#);
    assert_eq!(current["spec"]["kubelet"], Value::Null);
}

#[test]
fn conditions_of_a_claim_are_those_that_v1_knows() {
    let mut old = claim();
    old["status"] = json!({"nodeName": "n", "providerID": "aws:///a/i-1", "capacity": {"cpu": "4"}, "conditions": [
        {"type": "Launched", "status": "True", "severity": "", "lastTransitionTime": "2024-05-02T00:00:00Z"},
        {"type": "Empty", "status": "True"},
        {"type": "Expired", "status": "True"},
        {"type": "Terminating", "status": "True"},
        {"type": "a strange one", "status": "False"},
    ]});
    let current = comes_back(old);
    let conditions = current["status"]["conditions"].as_array().unwrap();
    let facts: Vec<_> =
        conditions.iter().map(|c| (c["type"].as_str().unwrap(), c["reason"].as_str().unwrap())).collect();
    assert_eq!(facts, [("Launched", "Launched"), ("InstanceTerminating", "Terminating"), ("a strange one", "Unknown")]);
    assert_eq!(conditions[0]["lastTransitionTime"], "2024-05-02T00:00:00Z");
    assert_eq!(conditions[1]["lastTransitionTime"], "2024-05-01T00:00:00Z");
}

#[test]
fn what_only_v1_can_say_survives_a_reader_of_v1beta1() {
    for (pointer, value) in [
        ("/spec/terminationGracePeriod", json!("1h")),
        ("/status", json!({"lastPodEventTime": "2024-05-01T00:00:00Z", "nodeName": "n"})),
        (
            "/status",
            json!({"conditions": [{"type": "InstanceTerminating", "status": "True", "lastTransitionTime": "2024-05-01T00:00:00Z"}]}),
        ),
    ] {
        comes_back(with(claim_v1(), pointer, value));
    }
}

#[test]
fn the_spec_of_a_claim_changes_in_v1beta1_as_little_as_in_v1() {
    let changed = with(claim(), "/spec/nodeClassRef/name", json!("others"));
    let problems = v1beta1::check(Kind::NodeClaim, &changed, Some(&claim()));
    assert!(problems[0].to_string().contains("never changes"), "{problems:?}");
}
