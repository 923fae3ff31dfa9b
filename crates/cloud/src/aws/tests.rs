//! The built-in catalogue, read whole and asked about well-known machines.

use super::*;
use std::collections::BTreeMap;

fn find(types: &[InstanceType], name: &str) -> InstanceType {
    types.iter().find(|it| it.name.as_str() == name).cloned().expect(name)
}

fn label(it: &InstanceType, key: &str) -> String {
    let key = if key.contains('/') { key.to_owned() } else { format!("karpenter.k8s.aws/{key}") };
    it.requirements.get(&key).map_or_else(|| "undefined".to_owned(), ToString::to_string)
}

#[test]
fn every_line_of_every_region_can_be_read() {
    assert!(catalogue_date() >= "2026-01-01");
    assert!(sources().len() >= 3);
    for region in ["us-east-1", "us-west-2", "eu-west-1", "ap-northeast-2"] {
        assert!(regions().any(|known| known == region), "{region}");
    }
    for region in regions() {
        let known = zones(region).expect(region);
        let rows: Vec<_> = offers(region).expect(region).collect();
        assert!(rows.len() > 200, "{region} has {}", rows.len());
        assert!(rows.is_sorted_by(|(a, _), (b, _)| a.name < b.name), "{region}");
        for (facts, offers) in rows {
            assert!(
                !offers.is_empty() && offers.iter().all(|offer| known.contains(&&*offer.zone)),
                "{region} {}",
                facts.name
            );
            assert!(offers.iter().all(|offer| offer.on_demand.is_some()), "{region} {}", facts.name);
        }
    }
}

#[test]
fn nothing_allocatable_is_negative() {
    for it in instance_types("us-east-1", &NodeClassFacts::default()).expect("us-east-1") {
        assert!(it.allocatable().0.values().all(|amount| amount.milli >= 0), "{} {}", it.name, it.allocatable());
    }
}

#[test]
fn listed_prices_are_those_of_the_price_list_and_spot_is_an_estimate() {
    for (region, name, dollars) in [
        ("us-east-1", "m5.large", 0.096),
        ("us-west-2", "c7g.xlarge", 0.145),
        ("eu-west-1", "m5.large", 0.107),
        ("ap-northeast-2", "m5.large", 0.118),
    ] {
        let it = find(&instance_types(region, &NodeClassFacts::default()).expect(region), name);
        for offering in &it.offerings {
            let is_spot = offering.capacity_type() == Some(CapacityType::Spot);
            assert_eq!(offering.price_is_estimate, is_spot, "{region} {name}");
            if is_spot {
                assert!(
                    offering.price > Money::ZERO && offering.price < Money::from_dollars(dollars),
                    "{region} {name}"
                );
            } else {
                assert_eq!(offering.price, Money::from_dollars(dollars), "{region} {name}");
            }
        }
    }
}

#[test]
fn a_family_newer_than_the_price_list_has_an_estimated_price() {
    let it = find(&instance_types("us-east-1", &NodeClassFacts::default()).expect("us-east-1"), "m8i.large");
    assert!(it.offerings.iter().all(|offering| offering.price_is_estimate && offering.available));
}

#[test]
fn labels_are_those_of_the_contract() {
    let types = instance_types("us-west-2", &NodeClassFacts::default()).expect("us-west-2");
    let m5d = find(&types, "m5d.large");
    for (key, expected) in [
        ("kubernetes.io/arch", "In [amd64]"),
        ("kubernetes.io/os", "In [linux]"),
        ("topology.kubernetes.io/region", "In [us-west-2]"),
        ("karpenter.sh/capacity-type", "In [on-demand, spot]"),
        ("instance-category", "In [m]"),
        ("instance-generation", "In [5]"),
        ("instance-family", "In [m5d]"),
        ("instance-size", "In [large]"),
        ("instance-capability-flex", "In [false]"),
        ("instance-cpu", "In [2]"),
        ("instance-cpu-manufacturer", "In [intel]"),
        ("instance-cpu-sustained-clock-speed-mhz", "In [3100]"),
        ("instance-memory", "In [8192]"),
        ("instance-ebs-bandwidth", "In [4750]"),
        ("instance-network-bandwidth", "In [750]"),
        ("instance-local-nvme", "In [75]"),
        ("instance-gpu-name", "DoesNotExist"),
        ("instance-hypervisor", "In [nitro]"),
        ("instance-tenancy", "In [dedicated, default]"),
        ("instance-encryption-in-transit-supported", "In [false]"),
        ("nitro-sandbox", "In [false]"),
        ("capacity-reservation-id", "DoesNotExist"),
        ("topology.k8s.aws/zone-id", "DoesNotExist"),
    ] {
        assert_eq!(label(&m5d, key), expected, "{key}");
    }
    let p5 = find(&types, "p5.48xlarge");
    assert_eq!(label(&p5, "instance-gpu-name"), "In [h100]");
    assert_eq!(label(&p5, "instance-gpu-memory"), "In [81920]");
    let inf2 = find(&types, "inf2.24xlarge");
    assert_eq!(label(&inf2, "instance-accelerator-name"), "In [inferentia2]");
    assert_eq!(label(&inf2, "instance-accelerator-count"), "In [6]");
    assert_eq!(label(&find(&types, "m5.metal"), "instance-hypervisor"), "In []");
}

#[test]
fn the_root_volume_takes_one_of_the_attachments() {
    let types = instance_types("us-west-2", &NodeClassFacts::default()).expect("us-west-2");
    assert_eq!(find(&types, "m5.large").attach_limits.get(EBS_DRIVER), Some(&26));
}

#[test]
fn zones_outside_the_class_are_listed_but_unavailable() {
    let zones = [("us-west-2a", Some("usw2-az2")), ("us-west-2b", None)];
    let zones: BTreeMap<Text, Option<Text>> =
        zones.into_iter().map(|(zone, id)| (zone.into(), id.map(Text::from))).collect();
    let class = NodeClassFacts { zones: Some(zones), ..NodeClassFacts::default() };
    let it = find(&instance_types("us-west-2", &class).expect("us-west-2"), "m5.large");
    assert_eq!(it.offerings.len(), 8);
    assert_eq!(label(&it, keys::ZONE), "In [us-west-2a, us-west-2b]");
    assert_eq!(label(&it, labels::ZONE_ID), "In [usw2-az2]");
    for offering in &it.offerings {
        let zone = &**offering.zone().expect("a zone");
        assert_eq!(offering.available, zone == "us-west-2a" || zone == "us-west-2b", "{zone}");
    }
}

#[test]
fn a_type_that_the_class_cannot_use_has_no_available_offering() {
    let available = |class: &NodeClassFacts, name: &str| {
        let it = find(&instance_types("us-east-1", class).expect("us-east-1"), name);
        it.offerings.iter().any(|offering| offering.available)
    };
    let default = NodeClassFacts::default();
    let bottlerocket = NodeClassFacts { ami_family: AmiFamily::Bottlerocket, ..NodeClassFacts::default() };
    let tracking = NodeClassFacts { connection_tracking: true, ..NodeClassFacts::default() };
    let nested = NodeClassFacts { nested_virtualization: true, ..NodeClassFacts::default() };
    let efa = NodeClassFacts {
        network_interfaces: vec![NetworkInterface { card: 0, device: 0, efa_only: true }],
        ..NodeClassFacts::default()
    };
    for (class, name, expected) in [
        (&default, "a1.large", false),
        (&bottlerocket, "a1.large", true),
        (&default, "m5.metal", true),
        (&tracking, "m5.metal", false),
        (&tracking, "m5.large", true),
        (&nested, "m5.large", false),
        (&nested, "m8i.large", true),
        (&efa, "m5.large", false),
        (&efa, "c5n.18xlarge", true),
    ] {
        assert_eq!(available(class, name), expected, "{name} {class:?}");
    }
}

#[test]
fn a_region_that_is_not_known_is_refused_with_those_that_are() {
    let error = instance_types("mars-north-1", &NodeClassFacts::default()).expect_err("no such region");
    assert!(error.to_string().contains("mars-north-1") && error.to_string().contains("eu-west-1"), "{error}");
}
