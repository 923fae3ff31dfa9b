//! What of an EC2NodeClass decides about instance types, as plain facts.

use kerf_model::{Quantity, Resources, Text};
use std::collections::BTreeMap;

/// The part of an EC2NodeClass, and of the operator's settings, that capacity and offerings depend on.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeClassFacts {
    pub ami_family: AmiFamily,
    pub kubelet: KubeletFacts,
    pub instance_store: InstanceStorePolicy,
    pub block_devices: Vec<BlockDevice>,
    /// Empty when the class leaves them to the provider.
    pub network_interfaces: Vec<NetworkInterface>,
    pub placement: Option<PlacementStrategy>,
    pub nested_virtualization: bool,
    pub connection_tracking: bool,
    /// The zones of the class's subnets, with their zone ids where known. None when no subnets are known: all zones.
    pub zones: Option<BTreeMap<Text, Option<Text>>>,
    /// RESERVED_ENIS: interfaces that pods do not get.
    pub reserved_interfaces: u32,
    /// VM_MEMORY_OVERHEAD_PERCENT: the share of advertised memory that a node never sees.
    pub memory_overhead_share: f64,
}

impl Default for NodeClassFacts {
    fn default() -> Self {
        Self {
            ami_family: AmiFamily::default(),
            kubelet: KubeletFacts::default(),
            instance_store: InstanceStorePolicy::default(),
            block_devices: Vec::new(),
            network_interfaces: Vec::new(),
            placement: None,
            nested_virtualization: false,
            connection_tracking: false,
            zones: None,
            reserved_interfaces: 0,
            memory_overhead_share: 0.075,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AmiFamily {
    Al2,
    #[default]
    Al2023,
    Bottlerocket,
    Windows2019,
    Windows2022,
    Windows2025,
    Custom,
}

impl AmiFamily {
    /// Reads the name in a class or an alias. An unknown one reads as AL2, as the AWS provider has it.
    pub fn parse(text: &str) -> Self {
        match text.to_ascii_lowercase().as_str() {
            "al2023" => Self::Al2023,
            "bottlerocket" => Self::Bottlerocket,
            "windows2019" => Self::Windows2019,
            "windows2022" => Self::Windows2022,
            "windows2025" => Self::Windows2025,
            "custom" => Self::Custom,
            _ => Self::Al2,
        }
    }

    /// The word before the `@` of an alias. One that is no alias leaves the class to itself.
    pub(super) fn of_alias(word: &str) -> Self {
        match word {
            "al2" | "al2023" | "bottlerocket" | "windows2019" | "windows2022" | "windows2025" => Self::parse(word),
            _ => Self::Custom,
        }
    }

    pub const ALL: [Self; 7] = [
        Self::Al2,
        Self::Al2023,
        Self::Bottlerocket,
        Self::Windows2019,
        Self::Windows2022,
        Self::Windows2025,
        Self::Custom,
    ];

    /// As a class spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Al2 => "AL2",
            Self::Al2023 => "AL2023",
            Self::Bottlerocket => "Bottlerocket",
            Self::Windows2019 => "Windows2019",
            Self::Windows2022 => "Windows2022",
            Self::Windows2025 => "Windows2025",
            Self::Custom => "Custom",
        }
    }

    pub(super) fn windows_build(self) -> Option<&'static str> {
        match self {
            Self::Windows2019 => Some("10.0.17763"),
            Self::Windows2022 => Some("10.0.20348"),
            Self::Windows2025 => Some("10.0.26100"),
            _ => None,
        }
    }

    pub(super) fn is_windows(self) -> bool {
        self.windows_build().is_some()
    }

    /// Whether addresses of network interfaces limit how many pods a node takes.
    pub(super) fn limits_pods_by_interfaces(self) -> bool {
        !self.is_windows()
    }

    pub(super) fn honours_pods_per_core(self) -> bool {
        self != Self::Bottlerocket
    }

    /// Whether memory kept for the kubelet follows from the interfaces, whatever maxPods says.
    pub(super) fn reserves_memory_by_interfaces(self) -> bool {
        matches!(self, Self::Al2 | Self::Al2023 | Self::Custom)
    }

    /// The device that holds pods' scratch space, and its size where the class maps none.
    pub(super) fn ephemeral_device(self) -> Option<(&'static str, i64)> {
        match self {
            Self::Al2 | Self::Al2023 => Some(("/dev/xvda", 20)),
            Self::Bottlerocket => Some(("/dev/xvdb", 20)),
            Self::Windows2019 | Self::Windows2022 | Self::Windows2025 => Some(("/dev/sda1", 50)),
            Self::Custom => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct KubeletFacts {
    pub max_pods: Option<u32>,
    pub pods_per_core: Option<u32>,
    /// Entries replace the computed ones, resource by resource.
    pub kube_reserved: Resources,
    pub system_reserved: Resources,
    /// By signal; only `memory.available` and `nodefs.available` count.
    pub eviction_hard: BTreeMap<Text, Threshold>,
    /// Settings that are to be computed for each type. The arithmetic here does not see them: who evaluates them puts the
    /// results into the fields above.
    pub expressions: KubeletExpressions,
}

/// Where a class gives an expression instead of a number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KubeletExpressions {
    pub max_pods: Option<Text>,
    pub kube_reserved: BTreeMap<Text, Text>,
    pub system_reserved: BTreeMap<Text, Text>,
}

impl KubeletExpressions {
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Each with the path of its field under `spec`.
    pub fn iter(&self) -> impl Iterator<Item = (String, &Text)> {
        let max_pods = self.max_pods.iter().map(|text| ("kubelet.maxPods".to_owned(), text));
        let kube = self.kube_reserved.iter().map(|(key, text)| (format!("kubelet.kubeReserved.{key}"), text));
        let system = self.system_reserved.iter().map(|(key, text)| (format!("kubelet.systemReserved.{key}"), text));
        max_pods.chain(kube).chain(system)
    }
}

/// How much must stay free before the kubelet evicts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Threshold {
    Amount(Quantity),
    /// Of capacity. A hundred percent switches the threshold off.
    Percent(f64),
}

impl Threshold {
    /// Reads `100Mi` or `5%`. None when it is neither.
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            Some(number) => number.parse().ok().filter(|share: &f64| (0.0..=100.0).contains(share)).map(Self::Percent),
            None => Quantity::parse(text).ok().map(Self::Amount),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InstanceStorePolicy {
    /// Local disks are left alone.
    #[default]
    Unset,
    /// Local disks become the scratch space of pods.
    Raid0,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockDevice {
    pub name: Text,
    pub size: Option<Quantity>,
    pub is_root: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkInterface {
    pub card: u32,
    /// Its place on the card.
    pub device: u32,
    pub efa_only: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlacementStrategy {
    Cluster,
    Partition,
    Spread,
}

impl PlacementStrategy {
    /// As EC2 names it.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "cluster" => Some(Self::Cluster),
            "partition" => Some(Self::Partition),
            "spread" => Some(Self::Spread),
            _ => None,
        }
    }
}
