//! What becomes of each field of a NodePool.

use serde_json::{Value, json};

use super::super::{EXPIRY_REPLACES_FIRST, LOST_OF_V1BETA1, v1beta1};
use super::*;
use crate::labels::{KUBELET_CONVERSION, NODE_CLASS_REFERENCE};

const REFERENCE: &str = "/spec/template/spec/nodeClassRef";

#[test]
fn a_pool_of_v1beta1_becomes_the_pool_of_v1_that_means_the_same() {
    let current = to_v1(&pool());
    let spec = json!({
        "template": {"spec": {
            "requirements": [],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "workers"},
            "expireAfter": "720h",
        }},
        "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s", "budgets": [{"nodes": "10%"}]},
    });
    assert_eq!(current["spec"], spec);
    assert_eq!(current["apiVersion"], "karpenter.sh/v1");
    assert_eq!(Kind::NodePool.check(&current, None), []);
    comes_back(pool());
}

#[test]
fn the_defaults_are_those_of_that_generation() {
    let expected =
        json!({"consolidationPolicy": "WhenUnderutilized", "expireAfter": "720h", "budgets": [{"nodes": "10%"}]});
    assert_eq!(defaulted(pool())["spec"]["disruption"], expected);
}

#[test]
fn consolidation_is_renamed_and_waits_no_longer_than_was_said() {
    for (before, after) in [
        (json!({}), json!(["WhenEmptyOrUnderutilized", "0s"])),
        (json!({"consolidationPolicy": "WhenUnderutilized"}), json!(["WhenEmptyOrUnderutilized", "0s"])),
        (
            json!({"consolidationPolicy": "WhenUnderutilized", "consolidateAfter": "0s"}),
            json!(["WhenEmptyOrUnderutilized", "0s"]),
        ),
        (
            json!({"consolidationPolicy": "WhenUnderutilized", "consolidateAfter": "30s"}),
            json!(["WhenEmptyOrUnderutilized", "30s"]),
        ),
        (
            json!({"consolidationPolicy": "WhenUnderutilized", "consolidateAfter": "Never"}),
            json!(["WhenEmptyOrUnderutilized", "Never"]),
        ),
        (json!({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1h"}), json!(["WhenEmpty", "1h"])),
    ] {
        let pool = pool_with("/spec/disruption", before.clone());
        assert_eq!(v1beta1::check(Kind::NodePool, &defaulted(pool.clone()), None), [], "{before}");
        let disruption = &to_v1(&pool)["spec"]["disruption"];
        assert_eq!(json!([disruption["consolidationPolicy"], disruption["consolidateAfter"]]), after, "{before}");
        comes_back(pool);
    }
}

#[test]
fn empty_nodes_are_kept_for_a_time_that_must_be_said() {
    let pool = defaulted(pool_with("/spec/disruption", json!({"consolidationPolicy": "WhenEmpty"})));
    let problems = v1beta1::check(Kind::NodePool, &pool, None);
    assert!(problems[0].to_string().contains("needs a consolidateAfter"), "{problems:?}");
}

#[test]
fn expiry_moves_to_the_template() {
    for expiry in ["720h", "24h", "Never"] {
        let pool = pool_with("/spec/disruption", json!({"expireAfter": expiry}));
        let current = to_v1(&pool);
        assert_eq!(current["spec"]["template"]["spec"]["expireAfter"], expiry);
        assert_eq!(current["spec"]["disruption"]["expireAfter"], Value::Null);
        comes_back(pool);
    }
}

#[test]
fn expiry_of_a_pool_that_came_from_v1beta1_replaces_first_and_the_mark_is_not_seen_there() {
    let current = to_v1(&pool());
    assert_eq!(annotation(&current, EXPIRY_REPLACES_FIRST), "true");
    assert_eq!(to_v1beta1(&current)["metadata"], pool()["metadata"]);
}

#[test]
fn a_mark_that_a_user_has_set_is_the_users() {
    for word in ["true", "false"] {
        let written = pool_with("/metadata/annotations/karpenter.sh~1expiry-replaces-first", json!(word));
        let current = to_v1(&written);
        assert_eq!(annotation(&current, EXPIRY_REPLACES_FIRST), word);
        assert_eq!(annotation(&to_v1beta1(&current), EXPIRY_REPLACES_FIRST), word);
    }
    // A pool of v1 that nobody has marked is not marked by being read.
    assert_eq!(annotation(&to_v1(&to_v1beta1(&pool_v1())), EXPIRY_REPLACES_FIRST), &Value::Null);
    // Who takes the mark off in v1 has decided.
    let mut decided = to_v1(&pool());
    decided["metadata"]["annotations"].as_object_mut().unwrap().remove(EXPIRY_REPLACES_FIRST);
    assert_eq!(annotation(&to_v1(&to_v1beta1(&decided)), EXPIRY_REPLACES_FIRST), &Value::Null);
}

#[test]
fn nested_limits_become_flat_and_are_read_as_they_were_written() {
    let nested = json!({"resources": {"cpu": 500, "memory": "1000Gi", "example.com/gpu": "2"}});
    let pool = pool_with("/spec/limits", nested);
    assert_eq!(to_v1(&pool)["spec"]["limits"], json!({"cpu": 500, "memory": "1000Gi", "example.com/gpu": "2"}));
    comes_back(pool);
}

#[test]
fn flat_limits_stay_as_they_are() {
    let flat = json!({"cpu": "500", "memory": 1000, "nodes": 5, "example.com/gpu": "2"});
    let pool = pool_with("/spec/limits", flat.clone());
    let current = comes_back(pool);
    assert_eq!(current["spec"]["limits"], flat);
    assert_eq!(Kind::NodePool.check(&current, None), []);
}

#[test]
fn the_settings_of_the_kubelet_are_kept_where_upstream_keeps_them() {
    let kubelet = json!({"systemReserved": {"cpu": "100m"}, "maxPods": 20});
    let pool = pool_with("/spec/template/spec/kubelet", kubelet);
    let current = to_v1(&pool);
    assert_eq!(annotation(&current, KUBELET_CONVERSION), r#"{"maxPods":20,"systemReserved":{"cpu":"100m"}}"#);
    assert_eq!(current["spec"]["template"]["spec"]["kubelet"], Value::Null);
    comes_back(pool);
}

#[test]
fn settings_of_the_kubelet_that_upstream_kept_are_read() {
    let text = r#"{"maxPods": 20, "clusterDNS": ["10.0.0.1"]}"#;
    let stored =
        with(pool_v1(), "/metadata/annotations/compatibility.karpenter.sh~1v1beta1-kubelet-conversion", json!(text));
    let older = comes_back(stored);
    assert_eq!(older["spec"]["template"]["spec"]["kubelet"], json!({"maxPods": 20, "clusterDNS": ["10.0.0.1"]}));
    assert_eq!(annotation(&older, KUBELET_CONVERSION), &Value::Null);
}

#[test]
fn a_reference_to_a_class_gets_a_group_and_keeps_what_it_did_not_say() {
    for (before, group, kind) in [
        (json!({"name": "a"}), "karpenter.k8s.aws", "EC2NodeClass"),
        (json!({"name": "a", "apiVersion": "", "kind": ""}), "karpenter.k8s.aws", "EC2NodeClass"),
        (json!({"name": "a", "apiVersion": "karpenter.k8s.aws/v1beta1"}), "karpenter.k8s.aws", "EC2NodeClass"),
        (
            json!({"name": "a", "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass"}),
            "karpenter.k8s.aws",
            "EC2NodeClass",
        ),
        (
            json!({"name": "a", "apiVersion": "compute.k8s.aws/v1beta1", "kind": "EC2NodeClass"}),
            "karpenter.k8s.aws",
            "EC2NodeClass",
        ),
        (
            json!({"name": "a", "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass"}),
            "karpenter.kwok.sh",
            "KWOKNodeClass",
        ),
        (json!({"name": "a", "kind": "KWOKNodeClass"}), "karpenter.kwok.sh", "KWOKNodeClass"),
        (json!({"name": "a", "apiVersion": "karpenter.kwok.sh/v1alpha1"}), "karpenter.kwok.sh", "KWOKNodeClass"),
        (json!({"name": "a", "apiVersion": "example.com/v1", "kind": "Class"}), "example.com", "Class"),
    ] {
        let pool = with(pool(), REFERENCE, before.clone());
        assert_eq!(
            *to_v1(&pool).pointer(REFERENCE).unwrap(),
            json!({"group": group, "kind": kind, "name": "a"}),
            "{before}"
        );
        comes_back(pool);
    }
}

#[test]
fn a_reference_of_v1_is_read_with_a_version() {
    for (group, expected) in
        [("karpenter.k8s.aws", "karpenter.k8s.aws/v1beta1"), ("karpenter.kwok.sh", "karpenter.kwok.sh/v1alpha1")]
    {
        let pool = with(pool_v1(), REFERENCE, json!({"group": group, "kind": "K", "name": "a"}));
        let older = comes_back(pool);
        assert_eq!(*older.pointer(REFERENCE).unwrap(), json!({"apiVersion": expected, "kind": "K", "name": "a"}));
    }
}

/// Upstream wrote it for pools, too, and went on believing it when the pool was moved to another class.
#[test]
fn a_reference_that_upstream_kept_is_believed_while_it_fits() {
    let kept = r#"{"kind":"EC2NodeClass","name":"workers"}"#;
    let path = "/metadata/annotations/compatibility.karpenter.sh~1v1beta1-nodeclass-reference";
    let stored = with(pool_v1(), path, json!(kept));
    let older = comes_back(stored.clone());
    assert_eq!(*older.pointer(REFERENCE).unwrap(), json!({"kind": "EC2NodeClass", "name": "workers"}));
    assert_eq!(annotation(&older, NODE_CLASS_REFERENCE), &Value::Null);

    let moved = with(stored, &format!("{REFERENCE}/name"), json!("others"));
    let older = comes_back(moved);
    let expected = json!({"apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass", "name": "others"});
    assert_eq!(*older.pointer(REFERENCE).unwrap(), expected);
}

#[test]
fn what_only_v1_can_say_survives_a_reader_of_v1beta1() {
    for (pointer, value) in [
        ("/spec/replicas", json!(3)),
        ("/spec/template/spec/terminationGracePeriod", json!("1h")),
        ("/spec/disruption/consolidationPolicy", json!("Balanced")),
        ("/spec/disruption/consolidateAfter", json!("5m")),
        (
            "/spec/disruption/budgets",
            json!([{"nodes": "0", "reasons": ["Drifted"]}, {"nodes": "0", "reasons": ["Empty"]}, {"nodes": "5"}]),
        ),
        ("/spec/limits", json!({"nodes": 3})),
        ("/status", json!({"nodes": 3, "nodeClassObservedGeneration": 2, "resources": {"cpu": "4"}})),
    ] {
        comes_back(with(pool_v1(), pointer, value));
    }
}

#[test]
fn resources_of_a_template_which_v1_has_not_survive() {
    comes_back(pool_with("/spec/template/spec/resources", json!({"requests": {"cpu": 1}})));
}

#[test]
fn conditions_get_what_v1_requires() {
    let mut old = pool();
    old["metadata"]["creationTimestamp"] = json!("2024-05-01T00:00:00Z");
    old["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "severity": "Info"}]);
    let current = to_v1(&old);
    assert_eq!(
        current["status"]["conditions"],
        json!([{"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2024-05-01T00:00:00Z"}])
    );
    assert_eq!(Kind::NodePool.check(&current, None), []);
    comes_back(old);
}

#[test]
fn a_plain_pool_of_v1_needs_no_annotation_but_one_about_the_mark() {
    let older = to_v1beta1(&pool_v1());
    let expected = r#"[{"path":"/annotations/karpenter.sh~1expiry-replaces-first","was":"true"}]"#;
    assert_eq!(*annotation(&older, LOST_OF_V1), expected);
    assert_eq!(annotation(&older, LOST_OF_V1BETA1), &Value::Null);
}
