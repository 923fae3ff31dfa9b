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
fn an_older_object_is_refused_for_what_it_was_refused_for_then() {
    fn refused(kind: Kind, object: Value, words: &str) {
        let said: Vec<String> =
            v1beta1::check(kind, &defaulted(object), None).iter().map(ToString::to_string).collect();
        assert!(said.iter().any(|problem| problem.contains(words)), "{words:?} is not in {said:?}");
    }
    let kubelet = |settings: Value| pool_with("/spec/template/spec/kubelet", settings);
    for (settings, words) in [
        (json!({"maxPods": "20"}), "spec.template.spec.kubelet.maxPods"),
        (json!({"maxPods": -1}), "spec.template.spec.kubelet.maxPods"),
        (json!({"systemReserved": {"cpu": "-1"}}), "systemReserved may not be negative"),
        (json!({"kubeReserved": {"cpu": -1}}), "kubeReserved may not be negative"),
        (json!({"systemReserved": {"gpu": "1"}}), "systemReserved takes cpu, memory, ephemeral-storage, pid"),
        (json!({"evictionHard": {"memory": "5%"}}), "evictionHard takes memory.available"),
        (json!({"evictionHard": {"memory.available": "a lot"}}), "evictionHard.memory.available"),
        (
            json!({"evictionSoft": {"memory.available": "5%"}}),
            "each key of evictionSoft must be in evictionSoftGracePeriod",
        ),
        (
            json!({"evictionSoftGracePeriod": {"memory.available": "5m"}}),
            "each key of evictionSoftGracePeriod must be in evictionSoft",
        ),
        (
            json!({"imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 50}),
            "must be above imageGCLowThresholdPercent",
        ),
    ] {
        refused(Kind::NodePool, kubelet(settings), words);
    }
    for (pointer, value, words) in [
        ("/spec/weight", json!(101), "spec.weight"),
        ("/spec/limits", json!({"cpu": "lots"}), "spec.limits.cpu"),
        ("/spec/limits", json!({"resources": {"cpu": "lots"}}), "spec.limits.resources.cpu"),
        ("/spec/disruption", json!({"consolidationPolicy": "Balanced"}), "consolidationPolicy"),
        ("/spec/template/spec/nodeClassRef", json!({"kind": "EC2NodeClass"}), "nodeClassRef.name"),
    ] {
        refused(Kind::NodePool, pool_with(pointer, value), words);
    }
    for (pointer, value, words) in [
        ("/spec/amiFamily", Value::Null, "spec.amiFamily"),
        ("/spec/amiFamily", json!("AL1"), "spec.amiFamily"),
        ("/spec/role", Value::Null, "exactly one of role and instanceProfile"),
        ("/spec/instanceProfile", json!("p"), "exactly one of role and instanceProfile"),
        ("/spec/tags", json!({"karpenter.sh/managed-by": "a"}), "karpenter.sh/managed-by is written by the operator"),
        ("/spec/amiSelectorTerms", json!([{"owner": "self"}]), "every term needs tags, id or name"),
        ("/spec/amiSelectorTerms", json!([{"id": "ami-1", "name": "n"}]), "one of id, name or tags per term"),
        ("/spec/amiSelectorTerms", json!({"tags": {"a": "b"}}), "spec.amiSelectorTerms: found"),
    ] {
        refused(Kind::Ec2NodeClass, class_with(pointer, value), words);
    }
}

#[test]
fn fields_that_v1beta1_had_not_are_named() {
    let pool = with(pool_with("/spec/replicas", json!(3)), "/spec/limits", json!({"example.com/gpu": 1}));
    assert_eq!(v1beta1::unknown_fields(Kind::NodePool, &pool), ["spec.replicas"]);
}
