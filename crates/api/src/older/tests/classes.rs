//! What becomes of each field of an EC2NodeClass.

use serde_json::{Value, json};

use super::super::{ALIAS_VERSION, UBUNTU, v1beta1};
use super::*;

const TERMS: &str = "/spec/amiSelectorTerms";

#[test]
fn a_family_without_terms_becomes_the_alias_of_its_newest_image() {
    for (family, alias) in [
        ("AL2", "al2@latest"),
        ("AL2023", "al2023@latest"),
        ("Bottlerocket", "bottlerocket@latest"),
        ("Windows2019", "windows2019@latest"),
        ("Windows2022", "windows2022@latest"),
        ("Windows2025", "windows2025@latest"),
    ] {
        for terms in [Value::Null, json!([])] {
            let class = with(class_with("/spec/amiFamily", json!(family)), TERMS, terms);
            let current = comes_back(class);
            assert_eq!(current["spec"]["amiSelectorTerms"], json!([{"alias": alias}]));
            assert_eq!(current["spec"]["amiFamily"], Value::Null);
            assert_eq!(Kind::Ec2NodeClass.check(&current, None), []);
        }
    }
}

#[test]
fn a_family_with_terms_keeps_both() {
    let class = class_with(TERMS, json!([{"tags": {"a": "b"}}, {"name": "n", "owner": "self"}, {"id": "ami-1"}]));
    let current = comes_back(class.clone());
    assert_eq!(current["spec"]["amiFamily"], "AL2");
    assert_eq!(current["spec"]["amiSelectorTerms"], class["spec"]["amiSelectorTerms"]);
}

#[test]
fn a_custom_family_stays_and_an_unset_one_is_custom() {
    let terms = json!([{"id": "ami-1"}]);
    for family in [json!("Custom"), Value::Null] {
        let current = comes_back(with(class_with(TERMS, terms.clone()), "/spec/amiFamily", family));
        assert_eq!(current["spec"]["amiFamily"], "Custom");
        assert_eq!(current["spec"]["amiSelectorTerms"], terms);
        assert_eq!(Kind::Ec2NodeClass.check(&current, None), []);
    }
}

#[test]
fn a_term_with_an_id_is_reduced_to_it() {
    let class = class_with(TERMS, json!([{"id": "ami-1", "name": "n", "tags": {"a": "b"}}, {"name": "m"}]));
    let current = comes_back(class);
    assert_eq!(current["spec"]["amiSelectorTerms"], json!([{"id": "ami-1"}, {"name": "m"}]));
}

#[test]
fn ubuntu_becomes_al2_with_its_own_volume_and_an_image_that_has_to_be_named() {
    let current = comes_back(class_with("/spec/amiFamily", json!("Ubuntu")));
    assert_eq!(annotation(&current, UBUNTU), "amiFamily,blockDeviceMappings,incompatible");
    assert_eq!(current["spec"]["amiFamily"], "AL2");
    assert_eq!(current["spec"]["amiSelectorTerms"], json!([{"id": "ami-placeholder"}]));
    assert_eq!(current["spec"]["blockDeviceMappings"][0]["deviceName"], "/dev/sda1");
    assert_eq!(Kind::Ec2NodeClass.check(&current, None), []);
}

#[test]
fn ubuntu_with_images_and_volumes_of_its_own_keeps_them() {
    let mut class = class_with(TERMS, json!([{"id": "ami-1"}]));
    class["spec"]["amiFamily"] = json!("Ubuntu");
    class["spec"]["blockDeviceMappings"] = json!([{"deviceName": "/dev/sda1", "ebs": {"volumeSize": "50Gi"}}]);
    let current = comes_back(class.clone());
    assert_eq!(annotation(&current, UBUNTU), "amiFamily");
    for field in ["amiSelectorTerms", "blockDeviceMappings"] {
        assert_eq!(current["spec"][field], class["spec"][field]);
    }
}

#[test]
fn what_somebody_put_in_place_of_ubuntu_in_v1_stays() {
    let stored = to_v1(&class_with("/spec/amiFamily", json!("Ubuntu")));
    let named = with(stored.clone(), TERMS, json!([{"id": "ami-1"}]));
    let older = to_v1beta1(&named);
    assert_eq!(older["spec"]["amiFamily"], "Ubuntu");
    assert_eq!(older["spec"]["amiSelectorTerms"], json!([{"id": "ami-1"}]));
    assert_eq!(older["spec"]["blockDeviceMappings"], Value::Null);

    let left = with(named, "/spec/amiFamily", json!("AL2023"));
    let older = to_v1beta1(&left);
    assert_eq!(older["spec"]["amiFamily"], "AL2023");
    assert_eq!(older["spec"]["blockDeviceMappings"][0]["deviceName"], "/dev/sda1");
    assert_eq!(annotation(&to_v1(&older), UBUNTU), annotation(&left, UBUNTU));
}

#[test]
fn a_pinned_alias_is_read_as_its_family_and_comes_back_pinned() {
    let older = comes_back(class_v1(json!([{"alias": "al2023@v20240807"}])));
    assert_eq!(older["spec"]["amiFamily"], "AL2023");
    assert_eq!(older["spec"]["amiSelectorTerms"], Value::Null);
    assert_eq!(annotation(&older, ALIAS_VERSION), "v20240807");
}

/// Another family has no image of that version.
#[test]
fn who_changes_the_family_in_v1beta1_leaves_the_pinned_version_behind() {
    let older = to_v1beta1(&class_v1(json!([{"alias": "al2023@v20240807"}])));
    let changed = with(older, "/spec/amiFamily", json!("Bottlerocket"));
    let current = to_v1(&changed);
    assert_eq!(current["spec"]["amiSelectorTerms"], json!([{"alias": "bottlerocket@latest"}]));
    assert_eq!(annotation(&current, ALIAS_VERSION), &Value::Null);
}

#[test]
fn a_version_that_upstream_kept_is_read() {
    let path = "/metadata/annotations/compatibility.karpenter.k8s.aws~1v1-alias-version";
    let class = defaulted(class_with(path, json!("v20240807")));
    let current = to_v1(&class);
    assert_eq!(plain(to_v1beta1(&current)), class);
    assert_eq!(current["spec"]["amiSelectorTerms"], json!([{"alias": "al2@v20240807"}]));
    assert_eq!(annotation(&current, ALIAS_VERSION), &Value::Null);
}

#[test]
fn the_hop_limit_is_that_of_its_generation() {
    let hops = |object: &Value| object["spec"]["metadataOptions"]["httpPutResponseHopLimit"].clone();
    assert_eq!(hops(&defaulted(class())), 2);
    assert_eq!(hops(&to_v1(&class())), 2);
    assert_eq!(hops(&to_v1(&class_with("/spec/metadataOptions", json!({"httpTokens": "optional"})))), 2);
    let older = comes_back(class_v1(json!([{"alias": "al2@latest"}])));
    assert_eq!(hops(&older), 1);
}

#[test]
fn what_only_v1_can_say_survives_a_reader_of_v1beta1() {
    for (pointer, value) in [
        (TERMS, json!([{"ssmParameter": "/my/ami"}])),
        (TERMS, json!([{"ssmParameter": "/my/ami", "name": "n"}, {"id": "ami-1"}])),
        ("/spec/amiFamily", json!("Custom")),
        ("/spec/amiFamily", json!("AL2")),
        ("/spec/kubelet", json!({"maxPods": "vcpus * 8", "somethingNew": {"deep": [1]}})),
        ("/spec/capacityReservationSelectorTerms", json!([{"id": "cr-1"}])),
        ("/spec/placementGroupSelector", json!({"name": "n"})),
        ("/spec/ipPrefixCount", json!(3)),
        ("/spec/networkInterfaces", json!([{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}])),
        ("/spec/connectionTracking", json!({"udpTimeout": 30})),
        ("/spec/cpuOptions", json!({"nestedVirtualization": "enabled"})),
        (
            "/status",
            json!({"capacityReservations": [{"id": "cr-1", "state": "active"}], "amis": [{"id": "ami-1", "deprecated": true, "requirements": []}]}),
        ),
    ] {
        let class = with(class_v1(json!([{"alias": "al2@v1"}])), pointer, value);
        comes_back(class);
    }
}

#[test]
fn every_field_that_both_have_is_the_same_in_both() {
    let mut class = class();
    for (field, value) in [
        ("associatePublicIPAddress", json!(false)),
        ("userData", json!("echo hello")),
        ("tags", json!({"team": "a"})),
        ("instanceStorePolicy", json!("RAID0")),
        ("detailedMonitoring", json!(true)),
        ("context", json!("c")),
        (
            "blockDeviceMappings",
            json!([{"deviceName": "/dev/xvda", "rootVolume": true, "ebs": {"volumeSize": "20Gi"}}]),
        ),
    ] {
        class["spec"][field] = value.clone();
        assert_eq!(comes_back(class.clone())["spec"][field], value, "{field}");
    }
}

#[test]
fn custom_images_have_to_be_named() {
    let class = defaulted(class_with("/spec/amiFamily", json!("Custom")));
    let problems = v1beta1::check(Kind::Ec2NodeClass, &class, None);
    assert!(problems[0].to_string().contains("needs amiSelectorTerms"), "{problems:?}");
}

#[test]
fn the_group_that_never_shipped_is_taken_for_the_one_that_did() {
    let odd = with(class(), "/apiVersion", json!("compute.k8s.aws/v1beta1"));
    assert_eq!(convert(&odd, CLASS_V1).unwrap(), to_v1(&class()));
    assert_eq!(convert(&odd, CLASS_V1BETA1).unwrap(), class());
}
