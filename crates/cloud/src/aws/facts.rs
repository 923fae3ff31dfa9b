//! What EC2 says about an instance type, reduced to what nodes depend on.

use super::class::PlacementStrategy;
use kerf_model::{Money, Text};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TypeFacts {
    pub name: Text,
    /// As Kubernetes names them, the first being the main one.
    pub architectures: Vec<Text>,
    pub cpu_maker: Text,
    pub clock_mhz: Option<u32>,
    pub vcpus: u32,
    /// As advertised; a node sees less.
    pub memory_mib: u64,
    /// `nitro`, `xen`, or empty on bare metal.
    pub hypervisor: Text,
    /// Network interfaces of the default card.
    pub interfaces: u32,
    pub addresses_per_interface: u32,
    /// Branch interfaces for pods with security groups of their own; None when the limits of the type are not known.
    pub branch_interfaces: Option<u32>,
    pub network_cards: u32,
    /// Interfaces of each card, in order of index; empty where only those of the default card are known.
    pub card_interfaces: Vec<u32>,
    /// Baseline, over all cards.
    pub network_mbps: Option<u32>,
    /// Maximum; None unless the type is EBS-optimized by default.
    pub ebs_mbps: Option<u32>,
    pub ebs_volumes: Option<u32>,
    /// Local disks, decimal gigabytes in total.
    pub disk_gb: Option<u32>,
    pub disk_is_nvme: bool,
    pub gpus: Vec<Gpu>,
    pub accelerators: Vec<Accelerator>,
    pub neurons: Vec<Neuron>,
    pub efa_interfaces: u32,
    pub has_ena: bool,
    pub is_bare_metal: bool,
    pub encrypts_in_transit: bool,
    pub has_enclaves: bool,
    pub nests_virtualization: bool,
    /// The strategies of placement groups that take it.
    pub placement: Vec<PlacementStrategy>,
    pub sells_on_demand: bool,
    pub sells_spot: bool,
}

/// Names are in kebab-case, as they become label values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    pub count: u32,
    pub maker: Text,
    pub name: Text,
    /// Of each.
    pub memory_mib: u32,
}

/// An inference accelerator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accelerator {
    pub count: u32,
    pub maker: Text,
    pub name: Text,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neuron {
    pub count: u32,
    pub cores_each: u32,
    pub name: Text,
}

/// A zone that sells a type. A price that is not known makes the offering unavailable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneOffer {
    pub zone: Text,
    pub on_demand: Option<Money>,
    pub on_demand_is_estimate: bool,
    pub spot: Option<Money>,
}
