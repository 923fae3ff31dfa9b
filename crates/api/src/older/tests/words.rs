//! What is said when there is nothing to convert, and what the schemas of v1beta1 refuse.

use serde_json::{Value, json};

use super::super::{ConversionError, to_current, v1beta1};
use super::*;

#[test]
fn the_same_version_is_a_copy() {
    for object in [pool(), claim(), class(), pool_v1(), class_v1(json!([{"alias": "al2@latest"}]))] {
        assert_eq!(convert(&object, object["apiVersion"].as_str().unwrap()).unwrap(), object);
    }
    let overlay = json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "spec": {"odd": 1}});
    assert_eq!(convert(&overlay, "karpenter.sh/v1alpha1").unwrap(), overlay);
}

#[test]
fn what_cannot_be_converted_is_named_together_with_what_would_do() {
    let odd = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind});
    for (object, to, expected) in [
        (json!(null), "karpenter.sh/v1", "found null where an object with apiVersion and kind would do"),
        (
            json!({"kind": "NodePool"}),
            "karpenter.sh/v1",
            r#"found {"kind":"NodePool"} where an object with apiVersion and kind would do"#,
        ),
        (
            odd("v1", "Pod"),
            "v1",
            "found kind Pod of v1; NodePool, NodeClaim, EC2NodeClass of karpenter.sh or karpenter.k8s.aws would do",
        ),
        (
            odd("karpenter.sh/v1", "EC2NodeClass"),
            "karpenter.sh/v1",
            "found kind EC2NodeClass of karpenter.sh/v1; NodePool, NodeClaim, EC2NodeClass of karpenter.sh or karpenter.k8s.aws would do",
        ),
        (
            pool(),
            "karpenter.sh/v2",
            "found version karpenter.sh/v2 of NodePool; karpenter.sh/v1 or karpenter.sh/v1beta1 would do",
        ),
        (
            pool(),
            "karpenter.k8s.aws/v1",
            "found version karpenter.k8s.aws/v1 of NodePool; karpenter.sh/v1 or karpenter.sh/v1beta1 would do",
        ),
        (
            odd("karpenter.sh/v1alpha5", "NodePool"),
            "karpenter.sh/v1",
            "found version karpenter.sh/v1alpha5 of NodePool; karpenter.sh/v1 or karpenter.sh/v1beta1 would do",
        ),
        (
            odd("karpenter.sh/v1alpha1", "NodeOverlay"),
            "karpenter.sh/v1",
            "found version karpenter.sh/v1 of NodeOverlay; karpenter.sh/v1alpha1 would do",
        ),
        (with(pool(), "/metadata", json!(5)), "karpenter.sh/v1", "found 5 at /metadata; an object would do"),
        (
            with(pool(), "/metadata/annotations", json!([1])),
            "karpenter.sh/v1",
            "found [1] at /metadata/annotations; an object would do",
        ),
    ] {
        assert_eq!(convert(&object, to).unwrap_err().to_string(), expected);
    }
}

#[test]
fn only_objects_of_an_older_generation_have_a_current_form() {
    assert_eq!(to_current(&pool()), Some(Ok(to_v1(&pool()))));
    let odd = with(class(), "/apiVersion", json!("compute.k8s.aws/v1beta1"));
    assert_eq!(to_current(&odd), Some(Ok(to_v1(&class()))));
    let buffer = json!({"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer"});
    for other in [pool_v1(), buffer, json!({"apiVersion": "v1", "kind": "Pod"}), json!(5)] {
        assert_eq!(to_current(&other), None, "{other}");
    }
    let broken = with(pool(), "/metadata", json!(5));
    assert!(matches!(to_current(&broken), Some(Err(ConversionError::Malformed { .. }))));
}

#[test]
fn an_object_without_metadata_gets_what_has_to_be_kept() {
    let bare = json!({"apiVersion": POOL_V1BETA1, "kind": "NodePool"});
    assert_eq!(to_v1(&bare)["metadata"]["annotations"][super::super::EXPIRY_REPLACES_FIRST], "true");
}

#[test]
fn fields_that_v1beta1_had_not_are_named() {
    let pool = with(pool_with("/spec/replicas", json!(3)), "/spec/limits", json!({"example.com/gpu": 1}));
    assert_eq!(v1beta1::unknown_fields(Kind::NodePool, &pool), ["spec.replicas"]);
}

/// As an API server reads them, and as templates of charts write what nobody has set.
#[test]
fn a_field_that_is_null_is_left_out() {
    let mut object = pool();
    object["spec"]["limits"] = Value::Null;
    object["spec"]["disruption"] = json!({"consolidateAfter": null, "expireAfter": null});
    object["spec"]["template"]["spec"]["taints"] = Value::Null;
    object["spec"]["template"]["metadata"] = json!({"labels": {"a": null, "b": "c"}});
    let expected = pool_with("/spec/template/metadata", json!({"labels": {"b": "c"}}));
    assert_eq!(to_v1(&object), to_v1(&expected));
}

#[test]
fn who_has_left_v1beta1_behind_keeps_only_what_means_something() {
    let mut current = to_v1(&pool_with("/spec/template/spec/kubelet", json!({"maxPods": 20})));
    super::super::forget_v1beta1(&mut current);
    let annotations = current["metadata"]["annotations"].as_object().unwrap();
    let kept: Vec<_> = annotations.keys().collect();
    assert_eq!(kept, [crate::labels::KUBELET_CONVERSION, super::super::EXPIRY_REPLACES_FIRST]);
}
