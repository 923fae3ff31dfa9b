//! What becomes of an inline provider, an AWSNodeTemplate, and kubelet settings.

use crate::{class, made_of, merge, provisioner, refusal, settings, template, told, with_provider};
use kerf_api::older::{Translation, TranslationSettings, class_name_of_template, translate, translate_template};
use serde_json::{Value, json};

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
