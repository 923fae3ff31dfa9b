//! What becomes of the rest of a Provisioner, and what is refused.

use crate::{made_of, merge, pool, provisioner, refusal, settings, told, with_provider};
use kerf_api::older::{Refusal, TranslatedKind, translate};
use kerf_api::{Ec2NodeClass, Kind};
use serde_json::{Value, json};

#[test]
fn every_field_of_the_pool_has_its_place() {
    let spec = pool(json!({
        "labels": {"team": "a", "kubernetes.io/role": "b"},
        "annotations": {"karpenter.sh/do-not-consolidate": "true"},
        "taints": [{"key": "t", "value": "v", "effect": "NoSchedule"}, {"key": "e", "value": "", "effect": "NoExecute"}],
        "startupTaints": [{"key": "s", "effect": "NoExecute", "timeAdded": "2024-01-01T00:00:00Z"}],
        "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "Exists"}, {"key": "x", "operator": "NotIn", "values": ["y"]}],
        "ttlSecondsUntilExpired": 86400,
        "consolidation": {"enabled": true},
        "limits": {"resources": {"cpu": "100", "memory": "1000Gi", "nvidia.com/gpu": 2}},
        "weight": 10,
    }));
    assert_eq!(
        spec,
        json!({
            "template": {
                "metadata": {
                    "labels": {"team": "a", "kubernetes.io/role": "b"},
                    "annotations": {"karpenter.sh/do-not-consolidate": "true"},
                },
                "spec": {
                    "taints": [{"key": "t", "value": "v", "effect": "NoSchedule"}, {"key": "e", "effect": "NoExecute"}],
                    "startupTaints": [{"key": "s", "effect": "NoExecute"}],
                    "requirements": [
                        {"key": "karpenter.sh/capacity-type", "operator": "Exists"},
                        {"key": "x", "operator": "NotIn", "values": ["y"]},
                        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                        {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
                        {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"]},
                    ],
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "p1"},
                    "expireAfter": "86400s",
                },
            },
            "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"},
            "limits": {"cpu": "100", "memory": "1000Gi", "nvidia.com/gpu": "2"},
            "weight": 10,
        })
    );
}

#[test]
fn what_matters_and_cannot_be_said_any_more_launches_nothing() {
    for (spec, path, needle) in [
        (json!({"provider": {"launchTemplate": "lt"}}), "spec.provider.launchTemplate", "blockDeviceMappings"),
        (json!({"provider": {"amiFamily": "Slackware"}}), "spec.provider.amiFamily", "Bottlerocket"),
        (json!({"provider": {"amiFamily": "Custom"}}), "spec.provider.amiSelector", "aws::ids"),
        (json!({"provider": {"subnetSelector": null}}), "spec.provider.subnetSelector", "karpenter.sh/discovery"),
        (
            json!({"provider": {"subnetSelector": {"aws-ids": "subnet-1"}}}),
            "spec.provider.subnetSelector",
            "stand alone",
        ),
        (
            json!({"provider": {"securityGroupSelector": {"a": null, "aws-ids": "web"}}}),
            "spec.provider.securityGroupSelector",
            "sg-",
        ),
        (
            json!({"provider": {"subnetSelector": {"a": "1,2,3,4,5,6", "b": "1,2,3,4,5,6"}}}),
            "spec.provider.subnetSelector",
            "36 terms",
        ),
        (json!({"provider": {"tags": {"cost": 5}}}), "spec.provider.tags[cost]", "quotes"),
        (json!({"provider": {"instanceProfil": "x"}}), "spec.provider.instanceProfil", "typo of \"instanceProfile\""),
        (
            json!({"provider": {"metadataOptions": {"httpTokens": "maybe"}}}),
            "spec.provider.metadataOptions.httpTokens",
            "required",
        ),
        (
            json!({"provider": {"blockDeviceMappings": [{"deviceName": "a", "ebs": {"volumeType": "gp9", "volumeSize": "1Gi"}}]}}),
            "spec.provider.blockDeviceMappings[0].ebs.volumeType",
            "gp3",
        ),
        (
            json!({"provider": {"blockDeviceMappings": [{"ebs": {"iops": 3}}]}}),
            "spec.provider.blockDeviceMappings[0].ebs",
            "volumeSize",
        ),
        (
            json!({"ttlSecondsAfterEmpty": 30, "consolidation": {"enabled": true}}),
            "spec.ttlSecondsAfterEmpty",
            "excludes",
        ),
        (json!({"ttlSecondsUntilExpired": 0}), "spec.ttlSecondsUntilExpired", "leave it out"),
        (json!({"ttlSecondsUntilExpired": -1}), "spec.ttlSecondsUntilExpired", "below zero"),
        (json!({"limits": {"cpu": "10"}}), "spec.limits.cpu", "limits.resources"),
        (json!({"limits": {"resources": {"cpu": "ten"}}}), "spec.limits.resources[cpu]", "500m"),
        (json!({"weight": 101}), "spec.weight", "100"),
        (json!({"labels": {"karpenter.sh/mine": "x"}}), "spec.labels", "reserved"),
        (json!({"labels": {"kubernetes.io/hostname": "x"}}), "spec.labels", "hostname"),
        (json!({"taints": [{"key": "a", "effect": "Sometimes"}]}), "spec.taints[0].effect", "NoSchedule"),
        (
            json!({"taints": [{"key": "a", "effect": "NoSchedule"}], "startupTaints": [{"key": "a", "effect": "NoSchedule"}]}),
            "spec.startupTaints[0]",
            "once",
        ),
        (
            json!({"requirements": [{"key": "karpenter.k8s.aws/instance-pods", "operator": "Gt", "values": ["3"]}]}),
            "spec.requirements[0].key",
            "instance-cpu",
        ),
        (
            json!({"requirements": [{"key": "karpenter.k8s.aws/instance-famly", "operator": "Exists"}]}),
            "spec.requirements[0].key",
            "typo of",
        ),
        (
            json!({"requirements": [{"key": "x", "operator": "Around"}]}),
            "spec.requirements[0].operator",
            "DoesNotExist",
        ),
        (json!({"requirements": [{"key": "x", "operator": "In"}]}), "spec.requirements", "at least one"),
        (
            json!({"requirements": [{"key": "x", "operator": "Gt", "values": ["a"]}]}),
            "spec.requirements",
            "whole number",
        ),
        (
            json!({"requirements": [{"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "g4dn"]}]}),
            "spec.requirements[0].values",
            "families alone",
        ),
        (json!({"provider": null}), "spec.provider", "providerRef"),
        (json!({"provider": null, "providerRef": {"name": "gone"}}), "spec.providerRef.name", "no AWSNodeTemplate"),
        (json!({"provider": null, "providerRef": {}}), "spec.providerRef.name", "AWSNodeTemplate"),
    ] {
        let mut object = provisioner(&json!({}));
        merge(&mut object["spec"], &spec);
        let made = translate(&object, None, &settings());
        assert!(!made.may_launch(), "{spec}");
        let Refusal { path: told_path, message, .. } = refusal(&made);
        assert_eq!(told_path, path, "{}", told(&made));
        assert!(message.contains(needle), "{}", told(&made));
    }
}

#[test]
fn what_never_had_a_meaning_is_told_and_stops_nothing() {
    let made = made_of(json!({"provider": {"colour": "red"}, "solver": "x"}));
    assert!(made.may_launch());
    let paths: Vec<&str> = made.refusals.iter().map(|refusal| refusal.path.as_str()).collect();
    assert_eq!(paths, ["spec.solver", "spec.provider.colour"]);
}

#[test]
fn what_nodes_get_anyway_is_left_out_with_a_warning() {
    let made = made_of(json!({
        "labels": {"karpenter.sh/provisioner-name": "p1", "team": "a"},
        "requirements": [{"key": "karpenter.sh/provisioner-name", "operator": "In", "values": ["p1"]}],
        "provider": {"tags": {
            "karpenter.sh/provisioner-name": "p1", "kubernetes.io/cluster/mine": "owned", "kubernetes.io/cluster/other": "owned", "team": "a"}},
    }));
    assert_eq!(made.refusals, []);
    assert_eq!(made.warnings.len(), 5, "{}", told(&made));
    assert_eq!(made.node_class.as_ref().unwrap()["spec"]["tags"], json!({"team": "a"}));
    assert!(told(&made).contains("a node is of one cluster"), "{}", told(&made));
}

#[test]
fn a_label_of_the_pool_counts_as_said() {
    let spec = pool(
        json!({"labels": {"kubernetes.io/arch": "arm64", "karpenter.sh/capacity-type": "spot", "beta.kubernetes.io/os": "linux"}}),
    );
    let keys: Vec<&str> = spec["template"]["spec"]["requirements"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["karpenter.k8s.aws/instance-category", "karpenter.k8s.aws/instance-generation"]);
}

#[test]
fn what_excludes_families_and_categories_excludes_each() {
    let made = made_of(
        json!({"requirements": [{"key": "karpenter.k8s.aws/instance-category", "operator": "NotIn", "values": ["t", "m1"]}]}),
    );
    assert_eq!(made.refusals, []);
    let requirements = &made.node_pool.as_ref().unwrap()["spec"]["template"]["spec"]["requirements"];
    assert_eq!(
        (&requirements[0], &requirements[1]),
        (
            &json!({"key": "karpenter.k8s.aws/instance-category", "operator": "NotIn", "values": ["t"]}),
            &json!({"key": "karpenter.k8s.aws/instance-family", "operator": "NotIn", "values": ["m1"]}),
        )
    );
}

#[test]
fn the_crd_takes_what_is_repaired_and_refuses_what_is_no_such_type() {
    let judged = |spec: Value| {
        let mut object = provisioner(&json!({}));
        merge(&mut object["spec"], &spec);
        TranslatedKind::Provisioner.check(&object, None).into_iter().map(|problem| problem.path).collect::<Vec<_>>()
    };
    for (spec, paths) in [
        (
            json!({"provider": {"requirements": [{"key": "karpenter.k8s.aws/capacity-type", "operator": "In", "values": ["spot"]}]}}),
            &[][..],
        ),
        (json!({"limits": {"resources": {"cpu": 1000, "memory": "1Gi"}}}), &[]),
        (json!({"labels": {"a": 1}}), &["spec.labels.a"]),
        (json!({"ttlSecondsAfterEmpty": "30s"}), &["spec.ttlSecondsAfterEmpty"]),
        (json!({"ttlSecondsAfterEmpty": 30, "consolidation": {"enabled": true}}), &["spec"]),
        (json!({"providerRef": {"name": "x"}}), &["spec"]),
        (json!({"weight": 0}), &["spec.weight"]),
    ] {
        assert_eq!(judged(spec.clone()), paths, "{spec}");
    }
}

#[test]
fn what_comes_out_reads_into_its_types() {
    let class: Ec2NodeClass = serde_json::from_value(with_provider(json!({})).node_class.unwrap()).unwrap();
    assert_eq!(class.validate_kubelet(), []);
    assert_eq!(Kind::of(&with_provider(json!({})).node_pool.unwrap()), Some(Kind::NodePool));
}
