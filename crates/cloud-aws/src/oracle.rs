//! The contract's formulas once more, written down plainly and apart from the code that is in use, for tests to compare with: what
//! a node of a type has, what pods get of it, and which labels it carries.
//!
//! It shares no arithmetic with `kerf_cloud::aws`, only the facts that EC2 gives. Where both are wrong in the same way, the pages of
//! AWS are the next judge: some of their figures stand in the tests of `kerf_cloud::aws`.

use kerf_api::Ec2NodeClass;
use kerf_cloud::aws::TypeFacts;
use kerf_model::InstanceType;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;
/// Where the subnet of a class is.
pub const ZONE: &str = "us-west-2a";

/// A class in the few words that the formulas need. Amounts in bytes and millicores.
#[derive(Debug, Clone)]
pub struct Case {
    /// As a class spells it.
    pub family: &'static str,
    pub region: &'static str,
    pub max_pods: Option<i64>,
    pub pods_per_core: Option<i64>,
    pub reserved_enis: i64,
    pub memory_overhead: f64,
    pub kube_reserved_cpu_milli: Option<i64>,
    pub system_reserved_memory: Option<i64>,
    /// Of `memory.available`.
    pub eviction_memory: Option<Eviction>,
    /// The size of the volume that the family puts pods' scratch space on.
    pub volume: Option<i64>,
    pub has_raid0: bool,
    /// Interfaces of kind `efa-only` on card 0, beside one ordinary interface; None when the class lists no interfaces.
    pub n_efa_only: Option<i64>,
}

#[derive(Debug, Clone, Copy)]
pub enum Eviction {
    Bytes(i64),
    Percent(f64),
}

impl Case {
    /// A class that only names its family.
    pub fn of(family: &'static str, region: &'static str) -> Self {
        Self {
            family,
            region,
            max_pods: None,
            pods_per_core: None,
            reserved_enis: 0,
            memory_overhead: 0.075,
            kube_reserved_cpu_milli: None,
            system_reserved_memory: None,
            eviction_memory: None,
            volume: None,
            has_raid0: false,
            n_efa_only: None,
        }
    }
}

/// A class of the family with these fields of its `spec`, and a subnet in [`ZONE`].
///
/// # Panics
///
/// When the fields are none that a class has.
pub fn class(family: &str, spec: &Value) -> Ec2NodeClass {
    let mut class = json!({"metadata": {"name": "default"}, "spec": {"amiFamily": family, "amiSelectorTerms": [{"id": "ami-1"}]},
        "status": {"subnets": [{"id": "subnet-1", "zone": ZONE, "zoneID": "usw2-az1"}]}});
    for (key, value) in spec.as_object().expect("fields of a class") {
        class["spec"][key] = value.clone();
    }
    serde_json::from_value(class).expect("fields of a class")
}

/// Classes as they are written, and the same in the oracle's words.
pub fn cases(family: &'static str, region: &'static str) -> Vec<(Value, Case)> {
    let case = Case::of(family, region);
    let device = match family {
        "Bottlerocket" => "/dev/xvdb",
        "Windows2019" | "Windows2022" | "Windows2025" => "/dev/sda1",
        _ => "/dev/xvda",
    };
    vec![
        (json!({}), case.clone()),
        (json!({"kubelet": {"maxPods": 110}}), Case { max_pods: Some(110), ..case.clone() }),
        (json!({"kubelet": {"podsPerCore": 5}}), Case { pods_per_core: Some(5), ..case.clone() }),
        (
            json!({"kubelet": {
                "kubeReserved": {"cpu": "123m"}, "systemReserved": {"memory": "200Mi"}, "evictionHard": {"memory.available": "7.5%"}}}),
            Case {
                kube_reserved_cpu_milli: Some(123),
                system_reserved_memory: Some(200 << 20),
                eviction_memory: Some(Eviction::Percent(7.5)),
                ..case.clone()
            },
        ),
        (
            json!({"kubelet": {"evictionHard": {"memory.available": "100%"}, "evictionSoft": {"memory.available": "1Gi"}},
                   "instanceStorePolicy": "RAID0"}),
            Case { eviction_memory: Some(Eviction::Percent(100.0)), has_raid0: true, ..case.clone() },
        ),
        (
            json!({"kubelet": {"evictionHard": {"memory.available": "1Gi"}},
                   "blockDeviceMappings": [{"deviceName": device, "ebs": {"volumeSize": "123Gi"}}]}),
            Case { eviction_memory: Some(Eviction::Bytes(1 << 30)), volume: Some(123 << 30), ..case.clone() },
        ),
        (
            json!({"networkInterfaces": [
                {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
                {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"}]}),
            Case { n_efa_only: Some(1), ..case },
        ),
    ]
}

/// Where a type is not as the formulas have it, in words; empty when it is.
pub fn differences(facts: &TypeFacts, case: &Case, it: &InstanceType) -> Vec<String> {
    let mut found = Vec::new();
    let allocatable = it.allocatable();
    let expected = amounts(facts, case);
    let known: BTreeSet<&str> =
        expected.iter().map(|row| row.0).chain(it.capacity.iter().map(|(name, _)| &**name)).collect();
    for name in known {
        let row = expected.iter().find(|row| row.0 == name).copied().unwrap_or((name, 0, 0));
        let is = (it.capacity.get(name).milli, allocatable.get(name).milli);
        if is != (row.1, row.2) {
            found.push(format!(
                "{} {}: {name} is {is:?}, expected {:?} (thousandths)",
                facts.name,
                case.family,
                (row.1, row.2)
            ));
        }
    }
    for (key, expected) in labels(facts, case) {
        let is = it.requirements.get(key).map(|requirement| match requirement.operator() {
            kerf_model::Operator::DoesNotExist => None,
            _ => Some(requirement.values.iter().map(|value| value.to_string()).collect::<Vec<_>>().join(",")),
        });
        if is != Some(expected.clone()) {
            found.push(format!("{} {}: label {key} is {is:?}, expected {expected:?}", facts.name, case.family));
        }
    }
    found
}

/// Resource, capacity, allocatable: in thousandths.
fn amounts(facts: &TypeFacts, case: &Case) -> Vec<(&'static str, i64, i64)> {
    let is_windows = case.family.starts_with("Windows");
    let vcpus = i64::from(facts.vcpus);
    let n_pods = pods(facts, case);

    // kubeReserved for cpu: 6% of the first core, 1% of the second, 0.5% of the next two, 0.25% of the rest.
    let milli = vcpus * 1000;
    let mut reserved_cpu = 0;
    reserved_cpu += (milli.min(1000) as f64 * 0.06) as i64;
    reserved_cpu += ((milli.min(2000) - 1000).max(0) as f64 * 0.01) as i64;
    reserved_cpu += ((milli.min(4000) - 2000).max(0) as f64 * 0.005) as i64;
    reserved_cpu += ((milli - 4000).max(0) as f64 * 0.0025) as i64;
    let reserved_cpu = case.kube_reserved_cpu_milli.unwrap_or(reserved_cpu);

    let firmware = if &*facts.architectures[0] == "arm64" { 64 } else { 0 };
    let advertised = facts.memory_mib as i64 - firmware;
    let memory = (advertised - (advertised as f64 * case.memory_overhead).ceil() as i64) * MIB;
    let pods_that_count = match case.family {
        "AL2" | "AL2023" | "Custom" => eni_pods(facts, case, 0),
        _ => n_pods,
    };
    let eviction = match case.eviction_memory {
        None => 100 * MIB,
        Some(Eviction::Bytes(bytes)) => bytes,
        Some(Eviction::Percent(100.0)) => 0,
        Some(Eviction::Percent(share)) => (memory as f64 / 100.0 * share).ceil() as i64,
    };
    let memory_left = memory - (11 * pods_that_count + 255) * MIB - case.system_reserved_memory.unwrap_or(0) - eviction;

    let storage = if case.has_raid0 && facts.disk_gb.is_some() {
        i64::from(facts.disk_gb.unwrap_or_default()) * 1_000_000_000
    } else {
        case.volume.unwrap_or(if is_windows { 50 * GIB } else { 20 * GIB })
    };
    let storage_left = storage - GIB - (storage as f64 / 100.0 * 10.0).ceil() as i64;

    let gpus = |maker: &str| -> i64 {
        facts.gpus.iter().filter(|gpu| &*gpu.maker == maker).map(|gpu| i64::from(gpu.count)).sum()
    };
    let neurons: i64 = facts.neurons.iter().map(|device| i64::from(device.count)).sum();
    let neuron_cores = match facts.neurons.first() {
        Some(device) => i64::from(device.count) * i64::from(device.cores_each),
        None => 0,
    };
    let efa = case.n_efa_only.unwrap_or(i64::from(facts.efa_interfaces));
    let addresses = match facts.branch_interfaces {
        Some(_) if is_windows => i64::from(facts.addresses_per_interface) - 1,
        _ => 0,
    };
    let whole = |name: &'static str, count: i64| (name, count * 1000, count * 1000);
    vec![
        ("cpu", milli, milli - reserved_cpu),
        ("memory", memory * 1000, memory_left * 1000),
        ("ephemeral-storage", storage * 1000, storage_left * 1000),
        whole("pods", n_pods),
        whole("vpc.amazonaws.com/pod-eni", facts.branch_interfaces.map_or(0, i64::from)),
        whole("nvidia.com/gpu", gpus("nvidia")),
        whole("amd.com/gpu", gpus("amd")),
        whole("habana.ai/gaudi", gpus("habana")),
        whole("aws.amazon.com/neuron", neurons),
        whole("aws.amazon.com/neuroncore", neuron_cores),
        whole("vpc.amazonaws.com/efa", efa),
        whole("vpc.amazonaws.com/PrivateIPv4Address", addresses),
    ]
}

fn pods(facts: &TypeFacts, case: &Case) -> i64 {
    let count = match case.max_pods {
        Some(count) => count,
        None if case.family.starts_with("Windows") => 110,
        None => eni_pods(facts, case, case.reserved_enis),
    };
    match case.pods_per_core {
        Some(each) if each > 0 && case.family != "Bottlerocket" => count.min(each * i64::from(facts.vcpus)),
        _ => count,
    }
}

fn eni_pods(facts: &TypeFacts, case: &Case, reserved: i64) -> i64 {
    let usable = (i64::from(facts.interfaces) - reserved - case.n_efa_only.unwrap_or(0)).max(0);
    if usable == 0 {
        return 0;
    }
    usable * (i64::from(facts.addresses_per_interface) - 1) + 2
}

/// Labels that one type alone decides; None where the label must not exist. Several values are joined by commas.
fn labels(facts: &TypeFacts, case: &Case) -> BTreeMap<&'static str, Option<String>> {
    let name = &*facts.name;
    let dot = name.find('.').unwrap_or(name.len());
    let (family, size) = (&name[..dot], &name[(dot + 1).min(name.len())..]);
    let category: String = family.chars().take_while(char::is_ascii_lowercase).collect();
    let after = &family[category.len()..];
    // `-6tb` of u-6tb1 stands between the category and the generation.
    let after = match (after.strip_prefix('-'), after.find("tb")) {
        (Some(_), Some(place)) => &after[place + 2..],
        _ => after,
    };
    let generation: String = after.chars().take_while(char::is_ascii_digit).collect();
    let is_windows = case.family.starts_with("Windows");
    let build = match case.family {
        "Windows2019" => Some("10.0.17763"),
        "Windows2022" => Some("10.0.20348"),
        "Windows2025" => Some("10.0.26100"),
        _ => None,
    };
    let system = match (is_windows, facts.architectures.iter().any(|architecture| &**architecture == "amd64")) {
        (false, _) => Some("linux"),
        (true, true) => Some("windows"),
        (true, false) => None,
    };
    let gpu = facts.gpus.first().filter(|_| facts.gpus.len() == 1);
    let (mut accelerator, mut maker, mut n_accelerators) = (None, None, None);
    if facts.neurons.len() == 1 {
        accelerator = Some(facts.neurons[0].name.to_string());
        maker = Some("aws".to_owned());
        n_accelerators = Some(facts.neurons[0].count.to_string());
    } else if facts.accelerators.len() == 1 {
        accelerator = Some(facts.accelerators[0].name.to_string());
        maker = Some(facts.accelerators[0].maker.to_string());
        n_accelerators = Some(facts.accelerators[0].count.to_string());
    }
    let mut architectures: Vec<&str> = facts.architectures.iter().map(|architecture| &**architecture).collect();
    architectures.sort_unstable();
    let text = |value: &str| Some(value.to_owned());
    BTreeMap::from([
        ("node.kubernetes.io/instance-type", text(name)),
        ("kubernetes.io/arch", text(&architectures.join(","))),
        ("kubernetes.io/os", system.map(str::to_owned)),
        ("node.kubernetes.io/windows-build", build.map(str::to_owned)),
        ("topology.kubernetes.io/region", text(case.region)),
        ("karpenter.k8s.aws/instance-category", text(&category)),
        ("karpenter.k8s.aws/instance-generation", text(&generation)),
        ("karpenter.k8s.aws/instance-family", text(family)),
        ("karpenter.k8s.aws/instance-size", text(size)),
        ("karpenter.k8s.aws/instance-capability-flex", Some(family.contains("-flex").to_string())),
        ("karpenter.k8s.aws/instance-cpu", Some(facts.vcpus.to_string())),
        ("karpenter.k8s.aws/instance-cpu-manufacturer", text(&facts.cpu_maker).filter(|maker| maker != "-")),
        ("karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz", facts.clock_mhz.map(|mhz| mhz.to_string())),
        ("karpenter.k8s.aws/instance-memory", Some(facts.memory_mib.to_string())),
        ("karpenter.k8s.aws/instance-ebs-bandwidth", facts.ebs_mbps.map(|mbps| mbps.to_string())),
        ("karpenter.k8s.aws/instance-network-bandwidth", facts.network_mbps.map(|mbps| mbps.to_string())),
        (
            "karpenter.k8s.aws/instance-local-nvme",
            if facts.disk_is_nvme { facts.disk_gb.map(|gb| gb.to_string()) } else { None },
        ),
        ("karpenter.k8s.aws/instance-gpu-name", gpu.map(|gpu| gpu.name.to_string())),
        ("karpenter.k8s.aws/instance-gpu-manufacturer", gpu.map(|gpu| gpu.maker.to_string())),
        ("karpenter.k8s.aws/instance-gpu-count", gpu.map(|gpu| gpu.count.to_string())),
        ("karpenter.k8s.aws/instance-gpu-memory", gpu.map(|gpu| gpu.memory_mib.to_string())),
        ("karpenter.k8s.aws/instance-accelerator-name", accelerator),
        ("karpenter.k8s.aws/instance-accelerator-manufacturer", maker),
        ("karpenter.k8s.aws/instance-accelerator-count", n_accelerators),
        ("karpenter.k8s.aws/instance-hypervisor", text(&facts.hypervisor)),
        ("karpenter.k8s.aws/instance-encryption-in-transit-supported", Some(facts.encrypts_in_transit.to_string())),
        ("karpenter.k8s.aws/nitro-sandbox", Some(facts.has_enclaves.to_string())),
        ("karpenter.k8s.aws/instance-tenancy", text("dedicated,default")),
        ("karpenter.k8s.aws/capacity-reservation-id", None),
        ("karpenter.k8s.aws/capacity-reservation-type", None),
        ("karpenter.k8s.aws/capacity-reservation-interruptible", None),
        ("karpenter.k8s.aws/placement-group-id", None),
        ("karpenter.k8s.aws/placement-group-partition", None),
    ])
}
