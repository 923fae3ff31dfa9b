//! The fields of an EC2 instance type description that the catalogue keeps.

use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct Description {
    #[serde(rename = "ProcessorInfo")]
    pub(super) processor: Processor,
    #[serde(rename = "VCpuInfo")]
    pub(super) vcpu: Vcpu,
    #[serde(rename = "MemoryInfo")]
    pub(super) memory: Memory,
    #[serde(rename = "Hypervisor")]
    pub(super) hypervisor: Option<String>,
    #[serde(rename = "BareMetal")]
    pub(super) bare_metal: bool,
    #[serde(rename = "NetworkInfo")]
    pub(super) network: Network,
    #[serde(rename = "EbsInfo")]
    pub(super) ebs: Ebs,
    #[serde(rename = "InstanceStorageInfo")]
    pub(super) storage: Option<Storage>,
    #[serde(rename = "GpuInfo")]
    pub(super) gpu: Option<GpuInfo>,
    #[serde(rename = "InferenceAcceleratorInfo")]
    pub(super) inference: Option<InferenceInfo>,
    #[serde(rename = "NeuronInfo")]
    pub(super) neuron: Option<NeuronInfo>,
    #[serde(rename = "NitroEnclavesSupport")]
    pub(super) enclaves: Option<String>,
    #[serde(rename = "PlacementGroupInfo")]
    pub(super) placement: Placement,
    #[serde(rename = "SupportedUsageClasses")]
    pub(super) usage: Vec<String>,
    #[serde(rename = "SupportedVirtualizationTypes")]
    pub(super) virtualization: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct Processor {
    #[serde(rename = "SupportedArchitectures")]
    architectures: Vec<String>,
    #[serde(rename = "Manufacturer")]
    pub(super) maker: Option<String>,
    #[serde(rename = "SustainedClockSpeedInGhz")]
    pub(super) ghz: Option<f64>,
    #[serde(rename = "SupportedFeatures", default)]
    pub(super) features: Vec<String>,
}

impl Processor {
    /// As Kubernetes names them.
    pub(super) fn known_architectures(&self) -> Vec<&'static str> {
        let known = |name: &String| match name.as_str() {
            "x86_64" => Some("amd64"),
            "arm64" => Some("arm64"),
            _ => None,
        };
        self.architectures.iter().filter_map(known).collect()
    }
}

#[derive(Deserialize)]
pub(super) struct Vcpu {
    #[serde(rename = "DefaultVCpus")]
    pub(super) default: u32,
}

#[derive(Deserialize)]
pub(super) struct Memory {
    #[serde(rename = "SizeInMiB")]
    pub(super) mib: u64,
}

#[derive(Deserialize)]
pub(super) struct Network {
    #[serde(rename = "DefaultNetworkCardIndex")]
    pub(super) default_card: u32,
    #[serde(rename = "NetworkCards", default)]
    pub(super) cards: Vec<Card>,
    #[serde(rename = "Ipv4AddressesPerInterface")]
    pub(super) addresses: u32,
    #[serde(rename = "EncryptionInTransitSupported", default)]
    pub(super) encrypts: bool,
    #[serde(rename = "EnaSupport")]
    pub(super) ena: String,
    #[serde(rename = "EfaInfo")]
    pub(super) efa: Option<Efa>,
}

impl Network {
    /// Over all cards, as AWS documents it for types with several.
    pub(super) fn baseline_mbps(&self) -> Option<u32> {
        let sum: f64 = self.cards.iter().filter_map(|card| card.baseline_gbps).sum();
        (sum > 0.0).then_some((sum * 1000.0).round() as u32)
    }
}

#[derive(Deserialize)]
pub(super) struct Card {
    #[serde(rename = "NetworkCardIndex")]
    pub(super) index: u32,
    #[serde(rename = "MaximumNetworkInterfaces")]
    pub(super) interfaces: u32,
    #[serde(rename = "BaselineBandwidthInGbps")]
    baseline_gbps: Option<f64>,
}

#[derive(Deserialize)]
pub(super) struct Efa {
    #[serde(rename = "MaximumEfaInterfaces")]
    pub(super) interfaces: u32,
}

#[derive(Deserialize)]
pub(super) struct Ebs {
    #[serde(rename = "EbsOptimizedSupport")]
    pub(super) optimized: String,
    #[serde(rename = "EbsOptimizedInfo")]
    pub(super) figures: Option<EbsFigures>,
    #[serde(rename = "MaximumEbsAttachments")]
    pub(super) attachments: Option<u32>,
}

#[derive(Deserialize)]
pub(super) struct EbsFigures {
    #[serde(rename = "MaximumBandwidthInMbps")]
    pub(super) mbps: u32,
}

#[derive(Deserialize)]
pub(super) struct Storage {
    #[serde(rename = "TotalSizeInGB")]
    pub(super) gb: u32,
    #[serde(rename = "NvmeSupport")]
    pub(super) nvme: String,
}

#[derive(Deserialize)]
pub(super) struct GpuInfo {
    #[serde(rename = "Gpus")]
    pub(super) gpus: Vec<Gpu>,
}

#[derive(Deserialize)]
pub(super) struct Gpu {
    #[serde(rename = "Count")]
    pub(super) count: u32,
    #[serde(rename = "Manufacturer")]
    pub(super) maker: String,
    #[serde(rename = "Name")]
    pub(super) name: String,
    #[serde(rename = "MemoryInfo")]
    pub(super) memory: Memory,
}

#[derive(Deserialize)]
pub(super) struct InferenceInfo {
    #[serde(rename = "Accelerators")]
    pub(super) accelerators: Vec<Accelerator>,
}

#[derive(Deserialize)]
pub(super) struct Accelerator {
    #[serde(rename = "Count")]
    pub(super) count: u32,
    #[serde(rename = "Manufacturer")]
    pub(super) maker: String,
    #[serde(rename = "Name")]
    pub(super) name: String,
}

#[derive(Deserialize)]
pub(super) struct NeuronInfo {
    #[serde(rename = "NeuronDevices")]
    pub(super) devices: Vec<NeuronDevice>,
}

#[derive(Deserialize)]
pub(super) struct NeuronDevice {
    #[serde(rename = "Count")]
    pub(super) count: u32,
    #[serde(rename = "Name")]
    pub(super) name: String,
    #[serde(rename = "CoreInfo")]
    pub(super) cores: NeuronCores,
}

#[derive(Deserialize)]
pub(super) struct NeuronCores {
    #[serde(rename = "Count")]
    pub(super) count: u32,
}

#[derive(Deserialize)]
pub(super) struct Placement {
    #[serde(rename = "SupportedStrategies", default)]
    pub(super) strategies: Vec<String>,
}
