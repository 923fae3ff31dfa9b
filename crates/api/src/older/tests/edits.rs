//! Somebody edits the object on one side while the annotation still tells what was on the other.

use serde_json::{Value, json};

use super::*;

#[test]
fn who_changes_a_field_in_v1_is_believed() {
    let nested = pool_with("/spec/limits", json!({"resources": {"cpu": 5, "memory": "1Gi"}}));
    let stored = to_v1(&nested);
    for (pointer, value, read_at, read) in [
        ("/spec/limits/cpu", json!(10), "/spec/limits", json!({"resources": {"cpu": 10, "memory": "1Gi"}})),
        ("/spec/template/spec/expireAfter", json!("24h"), "/spec/disruption/expireAfter", json!("24h")),
        ("/spec/disruption/consolidateAfter", json!("30s"), "/spec/disruption/consolidateAfter", json!("30s")),
        (
            "/spec/disruption/consolidationPolicy",
            json!("WhenEmpty"),
            "/spec/disruption/consolidationPolicy",
            json!("WhenEmpty"),
        ),
        ("/spec/weight", json!(7), "/spec/weight", json!(7)),
    ] {
        let edited = with(stored.clone(), pointer, value);
        assert_eq!(*to_v1beta1(&edited).pointer(read_at).unwrap(), read, "{pointer}");
        // What the edit did not touch is still read as it was written.
        assert_eq!(to_v1(&to_v1beta1(&edited))["spec"], edited["spec"], "{pointer}");
    }
    assert_eq!(to_v1beta1(&with(stored, "/spec/weight", json!(7)))["spec"]["limits"], nested["spec"]["limits"]);
}

#[test]
fn who_changes_a_field_in_v1beta1_is_believed() {
    let mut current = pool_v1();
    current["spec"]["disruption"] =
        json!({"consolidationPolicy": "Balanced", "consolidateAfter": "5m", "budgets": [{"nodes": "10%"}]});
    current["spec"]["template"]["spec"]["terminationGracePeriod"] = json!("1h");
    let read = to_v1beta1(&current);
    let edited = with(read, "/spec/disruption/consolidationPolicy", json!("WhenEmpty"));
    let written = to_v1(&edited);
    assert_eq!(written["spec"]["disruption"]["consolidationPolicy"], "WhenEmpty");
    assert_eq!(written["spec"]["template"]["spec"]["terminationGracePeriod"], "1h");
}

#[test]
fn a_budget_keeps_its_reasons_when_others_come_and_go_in_v1beta1() {
    let budgets =
        json!([{"nodes": "0", "reasons": ["Drifted"]}, {"nodes": "20%", "reasons": ["Empty"]}, {"nodes": "5"}]);
    let read = to_v1beta1(&with(pool_v1(), "/spec/disruption/budgets", budgets));
    assert_eq!(read["spec"]["disruption"]["budgets"], json!([{"nodes": "0"}, {"nodes": "20%"}, {"nodes": "5"}]));
    let edited = with(read, "/spec/disruption/budgets", json!([{"nodes": "20%"}, {"nodes": "1"}]));
    assert_eq!(
        to_v1(&edited)["spec"]["disruption"]["budgets"],
        json!([{"nodes": "20%", "reasons": ["Empty"]}, {"nodes": "1"}])
    );
}

#[test]
fn a_part_that_was_taken_away_does_not_come_back_in_pieces() {
    let pool = pool_with("/spec/template/spec/kubelet", json!({"maxPods": 20}));
    let mut stored = to_v1(&pool);
    stored["metadata"].as_object_mut().unwrap().remove("annotations");
    assert_eq!(to_v1beta1(&stored)["spec"]["template"]["spec"]["kubelet"], Value::Null);

    let mut stored = to_v1(&with(claim(), "/status", json!({"conditions": [{"type": "Empty", "status": "True"}]})));
    stored.as_object_mut().unwrap().remove("status");
    assert_eq!(to_v1beta1(&stored)["status"], Value::Null);
}

/// Without the annotation the way back is the lossy one; that is all that happens.
#[test]
fn who_writes_an_object_anew_without_our_annotation_says_all_there_is() {
    let current = with(pool_v1(), "/spec/template/spec/terminationGracePeriod", json!("1h"));
    let mut read = to_v1beta1(&current);
    read["metadata"].as_object_mut().unwrap().remove("annotations");
    assert_eq!(to_v1(&read)["spec"]["template"]["spec"]["terminationGracePeriod"], Value::Null);
}

#[test]
fn a_field_that_is_changed_together_with_another_does_not_bring_it_back_wrong() {
    let current = with(class_v1(json!([{"alias": "al2@v1"}])), "/spec/amiFamily", json!("AL2"));
    let edited = with(to_v1beta1(&current), "/spec/amiFamily", json!("Bottlerocket"));
    let written = to_v1(&edited);
    assert_eq!(written["spec"]["amiFamily"], Value::Null);
    assert_eq!(Kind::Ec2NodeClass.check(&written, None), []);
}

#[test]
fn an_annotation_that_somebody_has_written_into_changes_nothing_but_what_a_conversion_may() {
    for text in [
        "",
        "no JSON",
        "{}",
        "[1, null, {}]",
        r#"[{"path": ""}]"#,
        r#"[{"path": "/metadata/name", "is": "b"}]"#,
        r#"[{"path": "/kind", "was": "NodePool", "is": "b"}]"#,
        r#"[{"path": "/annotations/x", "is": 5}]"#,
        r#"[{"path": "/annotations/compatibility.karpenter.sh~1kerf-v1", "is": "[]"}]"#,
        r#"[{"path": "/annotations/compatibility.karpenter.sh~1kerf-v1beta1", "is": "[]"}]"#,
        r#"[{"path": "/annotations", "was": {}, "is": 5}]"#,
        r#"[{"path": "/spec/template/spec/requirements/0", "is": {}}]"#,
        r#"[{"path": "/spec/template/spec/requirements", "items": 5}]"#,
        r#"[{"together": 5}]"#,
    ] {
        let mut object = pool();
        object["metadata"]["annotations"] = json!({LOST_OF_V1: text});
        assert_eq!(to_v1(&object), to_v1(&pool()), "{text}");
    }
}
