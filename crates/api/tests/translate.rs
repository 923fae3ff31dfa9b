//! What becomes of each field of a Provisioner and an AWSNodeTemplate.

#![expect(clippy::unwrap_used, reason = "helpers of tests may, like tests")]

use kerf_api::older::{
    Refusal, TranslatedKind, Translation, TranslationSettings, class_name_of_template, translate, translate_template,
};
use kerf_api::{Ec2NodeClass, Kind};
use serde_json::{Value, json};

fn settings() -> TranslationSettings {
    TranslationSettings { kubernetes_minor: Some(28), cluster_name: Some("mine".to_owned()), ..Default::default() }
}

fn provider() -> Value {
    json!({"instanceProfile": "p", "subnetSelector": {"a": "b"}, "securityGroupSelector": {"a": "b"}})
}

/// A Provisioner that has what it needs, and these fields beside or instead.
fn provisioner(spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": {"name": "p1"}, "spec": {"provider": provider()},
    });
    merge(&mut object["spec"], spec);
    object
}

fn template(spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "karpenter.k8s.aws/v1alpha1", "kind": "AWSNodeTemplate", "metadata": {"name": "t1", "uid": "7"}, "spec": provider(),
    });
    merge(&mut object["spec"], spec);
    object
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, field) in from {
                match field {
                    Value::Null => drop(into.remove(name)),
                    _ if into.get(name).is_some_and(Value::is_object) => merge(&mut into[name], field),
                    _ => drop(into.insert(name.clone(), field.clone())),
                }
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// What these fields come to; the type of every field that the table uses is one that the CRD takes.
fn made_of(spec: Value) -> Translation {
    translate(&provisioner(&spec), None, &settings())
}

fn with_provider(fields: Value) -> Translation {
    made_of(json!({"provider": fields}))
}

#[track_caller]
fn pool(spec: Value) -> Value {
    let made = made_of(spec);
    assert_eq!(made.refusals, []);
    made.node_pool.unwrap()["spec"].take()
}

#[track_caller]
fn class(fields: Value) -> Value {
    let made = with_provider(fields);
    assert_eq!(made.refusals, []);
    made.node_class.unwrap()["spec"].take()
}

fn told(made: &Translation) -> String {
    let warnings = made.warnings.iter().map(|warning| format!("warning: {warning}\n"));
    let refusals = made.refusals.iter().map(|refusal| format!("refusal: {refusal}\n"));
    warnings.chain(refusals).collect()
}

/// The only refusal.
#[track_caller]
fn refusal(made: &Translation) -> &Refusal {
    assert_eq!(made.refusals.len(), 1, "{}", told(made));
    &made.refusals[0]
}

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
fn every_field_of_the_class_has_its_place() {
    let spec = class(json!({
        "apiVersion": "extensions.karpenter.sh/v1alpha1", "kind": "AWS",
        "amiFamily": "Bottlerocket", "userData": "[settings]", "context": "c", "detailedMonitoring": true,
        "tags": {"team": "a"},
        "metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 3},
        "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {
            "volumeSize": "100Gi", "volumeType": "gp3", "iops": 3000, "throughput": 125, "encrypted": true, "deleteOnTermination": true,
            "kmsKeyID": "k", "snapshotID": "snap-1"}}],
    }));
    assert_eq!(
        spec,
        json!({
            "subnetSelectorTerms": [{"tags": {"a": "b"}}],
            "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
            "amiSelectorTerms": [{"alias": "bottlerocket@latest"}],
            "instanceProfile": "p", "userData": "[settings]", "context": "c", "detailedMonitoring": true, "tags": {"team": "a"},
            "metadataOptions": {
                "httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 3, "httpTokens": "required",
            },
            "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {
                "volumeSize": "100Gi", "volumeType": "gp3", "iops": 3000, "throughput": 125, "encrypted": true, "deleteOnTermination": true,
                "kmsKeyID": "k", "snapshotID": "snap-1"}}],
        })
    );
}

#[test]
fn selectors_become_terms() {
    for (selector, expected) in [
        (json!({"a": "b", "c": "*"}), json!([{"tags": {"a": "b", "c": "*"}}])),
        (json!({"a": "b, c"}), json!([{"tags": {"a": "b"}}, {"tags": {"a": "c"}}])),
        (
            json!({"a": "b,c", "x": "y,z"}),
            json!([
                {"tags": {"a": "b", "x": "y"}}, {"tags": {"a": "c", "x": "y"}}, {"tags": {"a": "b", "x": "z"}},
                {"tags": {"a": "c", "x": "z"}}
            ]),
        ),
        (json!({"aws-ids": "subnet-1"}), json!([{"id": "subnet-1"}])),
        (json!({"aws::ids": "subnet-1, subnet-2"}), json!([{"id": "subnet-1"}, {"id": "subnet-2"}])),
        (json!({"a": ""}), json!([{"tags": {"a": "*"}}])),
    ] {
        let mut fields = json!({"subnetSelector": null});
        fields["subnetSelector"] = selector.clone();
        let mut made = provisioner(&json!({}));
        made["spec"]["provider"]["subnetSelector"] = selector.clone();
        let made = translate(&made, None, &settings());
        assert_eq!(made.refusals, [], "{selector}");
        assert_eq!(made.node_class.unwrap()["spec"]["subnetSelectorTerms"], expected, "{selector}");
    }
}

#[test]
fn images_are_selected_by_id_name_owner_and_tag() {
    for (selector, expected) in [
        (json!({"aws-ids": "ami-1,ami-2"}), json!([{"id": "ami-1"}, {"id": "ami-2"}])),
        (json!({"aws::name": "my-*"}), json!([{"name": "my-*"}])),
        (
            json!({"aws::name": "a,b", "aws::owners": "self,amazon"}),
            json!([
                {"name": "a", "owner": "self"}, {"name": "b", "owner": "self"}, {"name": "a", "owner": "amazon"},
                {"name": "b", "owner": "amazon"}
            ]),
        ),
        (json!({"aws::owners": "self"}), json!([{"name": "*", "owner": "self"}])),
        (json!({"team": "a", "aws::owners": "self"}), json!([{"tags": {"team": "a"}, "owner": "self"}])),
    ] {
        let spec = class(json!({"amiSelector": selector, "amiFamily": "Custom"}));
        assert_eq!((&spec["amiSelectorTerms"], &spec["amiFamily"]), (&expected, &json!("Custom")), "{selector}");
    }
    // Images that somebody chose keep the format that they were chosen for, on any version.
    let chosen = provisioner(&json!({"provider": {"amiSelector": {"aws-ids": "ami-1"}}}));
    let made = translate(&chosen, None, &TranslationSettings { kubernetes_minor: Some(36), ..settings() });
    assert_eq!(told(&made), "");
    assert_eq!(made.node_class.unwrap()["spec"]["amiFamily"], "AL2");
}

#[test]
fn ubuntu_boots_as_al2_does_from_images_of_its_own() {
    let made = with_provider(json!({"amiFamily": "Ubuntu", "amiSelector": {"aws-ids": "ami-1"}}));
    assert!(made.may_launch());
    let spec = &made.node_class.as_ref().unwrap()["spec"];
    assert_eq!(
        (&spec["amiFamily"], &spec["blockDeviceMappings"][0]["deviceName"]),
        (&json!("AL2"), &json!("/dev/sda1"))
    );
    let made = with_provider(json!({"amiFamily": "Ubuntu"}));
    assert!(refusal(&made).message.contains("aws::owners"), "{}", told(&made));
}

#[test]
fn metadata_options_keep_their_old_defaults() {
    let absent = class(json!({}))["metadataOptions"].take();
    assert_eq!((&absent["httpPutResponseHopLimit"], &absent["httpTokens"]), (&json!(2), &json!("required")));
    let given = class(json!({"metadataOptions": {"httpEndpoint": "enabled"}}))["metadataOptions"].take();
    assert_eq!((&given["httpPutResponseHopLimit"], &given["httpTokens"]), (&json!(1), &json!("optional")));
}

#[test]
fn sizes_of_volumes_that_v1_cannot_spell_become_gibibytes() {
    let size = |size: Value| {
        let made = with_provider(json!({"blockDeviceMappings": [{"deviceName": "a", "ebs": {"volumeSize": size}}]}));
        match &made.refusals[..] {
            [] => made.node_class.unwrap()["spec"]["blockDeviceMappings"][0]["ebs"]["volumeSize"].take(),
            [refusal] => json!(refusal.path),
            _ => panic!("{}", told(&made)),
        }
    };
    const PATH: &str = "spec.provider.blockDeviceMappings[0].ebs.volumeSize";
    for (written, expected) in [
        (json!("100Gi"), "100Gi"),
        (json!("20G"), "20G"),
        (json!("10240Mi"), "10Gi"),
        (json!("10241Mi"), "11Gi"),
        (json!("18Ti"), "18432Gi"),
        (json!("1.5Ti"), "1536Gi"),
        (json!(107_374_182_400_i64), "100Gi"),
        (json!("0"), PATH),
        (json!("-1Gi"), PATH),
        (json!("100Ti"), PATH),
        (json!("large"), PATH),
        (json!(true), PATH),
    ] {
        assert_eq!(size(written.clone()), expected, "{written}");
    }
}

#[test]
fn the_kubelet_moves_to_the_class() {
    let made = made_of(json!({"kubeletConfiguration": {
        "clusterDNS": ["10.0.0.1", "10.0.0.2"], "containerRuntime": "dockerd", "maxPods": 20, "podsPerCore": 4,
        "systemReserved": {"cpu": 1, "memory": "100Mi"}, "kubeReserved": {}, "evictionHard": {"memory.available": "5%"},
        "evictionSoft": {"memory.available": "10%"}, "evictionSoftGracePeriod": {"memory.available": "1m"},
        "evictionMaxPodGracePeriod": 60, "imageGCHighThresholdPercent": 85, "imageGCLowThresholdPercent": 80, "cpuCFSQuota": false,
    }}));
    assert_eq!(made.refusals, []);
    assert_eq!(
        made.node_class.as_ref().unwrap()["spec"]["kubelet"],
        json!({
            "clusterDNS": ["10.0.0.1"], "maxPods": 20, "podsPerCore": 4, "systemReserved": {"cpu": "1", "memory": "100Mi"},
            "evictionHard": {"memory.available": "5%"}, "evictionSoft": {"memory.available": "10%"},
            "evictionSoftGracePeriod": {"memory.available": "1m"}, "evictionMaxPodGracePeriod": 60, "imageGCHighThresholdPercent": 85,
            "imageGCLowThresholdPercent": 80, "cpuCFSQuota": false,
        })
    );
    assert!(told(&made).contains("spec.kubeletConfiguration.containerRuntime: it is left out"), "{}", told(&made));
    assert!(told(&made).contains("spec.kubeletConfiguration.clusterDNS"), "{}", told(&made));

    let made = made_of(json!({"provider": {"amiFamily": "Bottlerocket"}, "kubelet": {"podsPerCore": 4, "maxPods": 9}}));
    assert_eq!(made.refusals, []);
    assert_eq!(made.node_class.as_ref().unwrap()["spec"]["kubelet"], json!({"maxPods": 9}));

    let made = made_of(json!({"kubelet": {"evictionSoft": {"memory.available": "10%"}}}));
    assert!(refusal(&made).path.starts_with("spec.kubelet.evictionSoft"), "{}", told(&made));
}

#[test]
fn pools_of_one_template_share_its_class_unless_they_have_kubelet_settings() {
    let template = template(&json!({"userData": "x", "tags": {"team": "a"}}));
    let by_ref = |name: &str, more: Value| {
        let mut spec = json!({"provider": null, "providerRef": {"name": "t1"}});
        merge(&mut spec, &more);
        let mut object = provisioner(&spec);
        merge(&mut object, &json!({"metadata": {"name": name}}));
        object["spec"]["provider"].take();
        let made = translate(&object, Some(&template), &settings());
        assert_eq!(told(&made), "");
        made
    };
    let class_of = |made: &Translation| {
        made.node_pool.as_ref().unwrap()["spec"]["template"]["spec"]["nodeClassRef"]["name"].clone()
    };
    let (a, b) = (by_ref("a", json!({})), by_ref("b", json!({"weight": 3})));
    assert_eq!((class_of(&a), a.node_class.clone()), (json!("t1"), b.node_class));
    assert_eq!(a.node_class, translate_template(&template, &settings()).node_class, "and alone it is the same");
    assert_eq!(
        a.node_class.unwrap()["metadata"]["annotations"]["kerf.dev/translated-from"],
        "awsnodetemplates.karpenter.k8s.aws/t1/7"
    );
    let c = by_ref("c", json!({"kubeletConfiguration": {"maxPods": 20}}));
    let d = by_ref("d", json!({"kubeletConfiguration": {"maxPods": 30}}));
    assert_eq!(class_of(&c), class_name_of_template("t1", "c", true));
    assert_ne!(class_of(&c), class_of(&d));
    let class = c.node_class.unwrap();
    assert_eq!(
        (&class["metadata"]["name"], &class["spec"]["kubelet"]),
        (&class_of(&by_ref("c", json!({"kubelet": {"maxPods": 1}}))), &json!({"maxPods": 20}))
    );
    assert_eq!(
        (&class["spec"]["userData"], class["metadata"]["annotations"]["kerf.dev/translated-from"].as_str()),
        (&json!("x"), Some("provisioners.karpenter.sh/c"))
    );
}

#[test]
fn the_name_of_a_class_of_its_own_is_a_label_value_and_nobody_elses() {
    assert_eq!(class_name_of_template("shared", "batch", false), "shared");
    assert!(class_name_of_template("shared", "batch", true).starts_with("shared-batch-"));
    assert_ne!(class_name_of_template("a", "b-c", true), class_name_of_template("a-b", "c", true));
    let long = class_name_of_template(&"x".repeat(60), &"y".repeat(60), true);
    assert!(long.len() <= 63 && kerf_api::validate::is_label_value(&long), "{long}");
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
fn without_a_version_nobody_guesses_which_image_was_meant() {
    let unsure = TranslationSettings { kubernetes_minor: None, ..settings() };
    let made = translate(&provisioner(&json!({})), None, &unsure);
    assert!(refusal(&made).message.contains("--kubernetes-version"), "{}", told(&made));
    let made = translate(&provisioner(&json!({"provider": {"amiFamily": "AL2"}})), None, &unsure);
    assert!(made.may_launch() && told(&made).contains("from Kubernetes 1.33 on"), "{}", told(&made));
    let made = translate(&provisioner(&json!({"provider": {"amiFamily": "Bottlerocket"}})), None, &unsure);
    assert_eq!(told(&made), "");
}

#[test]
fn a_node_role_may_stand_in_for_an_instance_profile() {
    let by_role = TranslationSettings { default_role: Some("KarpenterNodeRole".to_owned()), ..settings() };
    let mut object = provisioner(&json!({}));
    object["spec"]["provider"]["instanceProfile"].take();
    let class = translate(&object, None, &by_role).node_class.unwrap();
    assert_eq!((&class["spec"]["role"], class["spec"].get("instanceProfile")), (&json!("KarpenterNodeRole"), None));
    let class = translate(&provisioner(&json!({})), None, &by_role).node_class.unwrap();
    assert_eq!(
        (class["spec"].get("role"), &class["spec"]["instanceProfile"]),
        (None, &json!("p")),
        "who names one keeps it"
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
