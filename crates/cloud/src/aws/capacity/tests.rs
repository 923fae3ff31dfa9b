//! Figures that AWS publishes, and what a class changes about them.

use super::*;
use crate::aws::{AmiFamily, BlockDevice, NetworkInterface, type_facts};
use kerf_model::Text;

fn amount(class: &NodeClassFacts, type_name: &str, resource: &str) -> String {
    capacity(type_facts(type_name).expect(type_name), class).get(resource).to_string()
}

fn allocatable(class: &NodeClassFacts, type_name: &str, resource: &str) -> String {
    let facts = type_facts(type_name).expect(type_name);
    let mut left = capacity(facts, class);
    let overhead = overhead(facts, class, &left);
    left.subtract(&overhead);
    left.get(resource).to_string()
}

#[test]
fn pod_density_is_as_aws_publishes_it() {
    let class = NodeClassFacts::default();
    for (name, expected) in [
        ("m5.large", "29"),
        ("t3.micro", "4"),
        ("t3.medium", "17"),
        ("c5.xlarge", "58"),
        ("m5.4xlarge", "234"),
        ("m5.24xlarge", "737"),
        ("m7g.medium", "8"),
        ("p4d.24xlarge", "737"),
        ("p5.48xlarge", "100"),
    ] {
        assert_eq!(amount(&class, name, PODS), expected, "{name}");
    }
}

#[test]
fn an_m5_large_leaves_pods_what_the_contract_works_out() {
    let class = NodeClassFacts::default();
    for (resource, expected) in [
        (CPU, "1930m"),
        (MEMORY, "6903Mi"),
        (EPHEMERAL_STORAGE, "17Gi"),
        (PODS, "29"),
        ("vpc.amazonaws.com/pod-eni", "9"),
    ] {
        assert_eq!(allocatable(&class, "m5.large", resource), expected, "{resource}");
    }
}

#[test]
fn the_kubelet_keeps_less_of_each_further_core() {
    for (cores, expected) in [(1, 60), (2, 70), (4, 80), (8, 90), (16, 110), (96, 310), (192, 550)] {
        assert_eq!(reserved_cpu_milli(cores * 1000), expected, "{cores}");
    }
}

#[test]
fn arm_machines_lose_their_firmware_before_the_share_is_taken() {
    // 4096 − 64 = 4032, of which 302.4 rounds up to 303.
    assert_eq!(amount(&NodeClassFacts::default(), "m7g.medium", MEMORY), "3729Mi");
}

#[test]
fn accelerators_are_counted_by_maker() {
    let class = NodeClassFacts::default();
    for (name, resource, expected) in [
        ("p5.48xlarge", "nvidia.com/gpu", "8"),
        ("g5.xlarge", "nvidia.com/gpu", "1"),
        ("inf2.24xlarge", "aws.amazon.com/neuron", "6"),
        ("inf2.24xlarge", "aws.amazon.com/neuroncore", "12"),
        ("p5.48xlarge", "vpc.amazonaws.com/efa", "32"),
        ("m5.large", "nvidia.com/gpu", "0"),
    ] {
        assert_eq!(amount(&class, name, resource), expected, "{name} {resource}");
    }
}

#[test]
fn the_class_moves_pod_density() {
    let with = |change: fn(&mut NodeClassFacts)| {
        let mut class = NodeClassFacts::default();
        change(&mut class);
        amount(&class, "m5.large", PODS)
    };
    assert_eq!(with(|class| class.kubelet.max_pods = Some(110)), "110");
    assert_eq!(with(|class| class.kubelet.pods_per_core = Some(4)), "8");
    assert_eq!(with(|class| class.reserved_interfaces = 1), "20");
    assert_eq!(with(|class| class.reserved_interfaces = 3), "0");
    assert_eq!(with(|class| class.ami_family = AmiFamily::Windows2022), "110");
    assert_eq!(
        with(|class| class.network_interfaces = vec![NetworkInterface { card: 0, device: 0, efa_only: true }]),
        "20"
    );
    let bottlerocket = |class: &mut NodeClassFacts| {
        class.ami_family = AmiFamily::Bottlerocket;
        class.kubelet.pods_per_core = Some(4);
    };
    assert_eq!(with(bottlerocket), "29");
}

#[test]
fn memory_kept_for_the_kubelet_ignores_max_pods_except_on_bottlerocket() {
    let mut class = NodeClassFacts::default();
    class.kubelet.max_pods = Some(110);
    assert_eq!(allocatable(&class, "m5.large", MEMORY), "6903Mi");
    class.ami_family = AmiFamily::Bottlerocket;
    // 11 × 110 + 255 = 1465 instead of 574.
    assert_eq!(allocatable(&class, "m5.large", MEMORY), "6012Mi");
}

#[test]
fn the_user_may_replace_what_is_reserved() {
    let mut class = NodeClassFacts::default();
    class.kubelet.kube_reserved =
        [(CPU, Quantity::from_milli(200)), ("pid", Quantity::from_units(1000))].into_iter().collect();
    class.kubelet.system_reserved = Resources::new().with(CPU, Quantity::from_milli(100));
    class.kubelet.eviction_hard.insert(Text::from("memory.available"), Threshold::Percent(100.0));
    class.kubelet.eviction_hard.insert(Text::from("nodefs.available"), Threshold::parse("5%").expect("a threshold"));
    assert_eq!(allocatable(&class, "m5.large", CPU), "1700m");
    assert_eq!(allocatable(&class, "m5.large", MEMORY), "7003Mi");
    assert_eq!(allocatable(&class, "m5.large", EPHEMERAL_STORAGE), "18Gi");
    assert_eq!(allocatable(&class, "m5.large", "pid"), "0");
}

#[test]
fn scratch_space_comes_from_the_disk_that_holds_it() {
    let device = |name: &str, gibibytes: i64, is_root| BlockDevice {
        name: name.into(),
        size: Some(Quantity::from_units(gibibytes * GIBIBYTE)),
        is_root,
    };
    let class = |ami_family, block_devices, instance_store| NodeClassFacts {
        ami_family,
        block_devices,
        instance_store,
        ..NodeClassFacts::default()
    };
    let unset = InstanceStorePolicy::Unset;
    for (class, expected) in [
        (class(AmiFamily::Al2023, vec![], unset), "20Gi"),
        (class(AmiFamily::Windows2022, vec![], unset), "50Gi"),
        (class(AmiFamily::Al2023, vec![device("/dev/xvda", 100, false)], unset), "100Gi"),
        (
            class(AmiFamily::Bottlerocket, vec![device("/dev/xvda", 4, false), device("/dev/xvdb", 80, false)], unset),
            "80Gi",
        ),
        (class(AmiFamily::Al2023, vec![device("/dev/xvda", 100, false), device("/dev/x", 7, true)], unset), "7Gi"),
        (class(AmiFamily::Custom, vec![device("/dev/a", 1, false), device("/dev/b", 2, false)], unset), "2Gi"),
        (class(AmiFamily::Al2023, vec![device("/dev/xvda", 100, false)], InstanceStorePolicy::Raid0), "75000000000"),
    ] {
        assert_eq!(amount(&class, "m5d.large", EPHEMERAL_STORAGE), expected, "{class:?}");
    }
}
