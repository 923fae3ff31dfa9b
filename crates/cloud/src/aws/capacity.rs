//! What a node of a type has, and what of it pods never get.

use super::class::{InstanceStorePolicy, NodeClassFacts, Threshold};
use super::facts::TypeFacts;
use kerf_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use kerf_model::{Quantity, Resources};

const GIBIBYTE: i64 = 1 << 30;

/// Pods where interfaces do not limit them: what the kubelet allows by default.
const DEFAULT_PODS: i64 = 110;

/// Amounts that are zero are left out, as an absent resource reads as zero.
pub(super) fn capacity(facts: &TypeFacts, class: &NodeClassFacts) -> Resources {
    let count_gpus =
        |maker: &str| facts.gpus.iter().filter(|gpu| &*gpu.maker == maker).map(|gpu| i64::from(gpu.count)).sum();
    let n_neurons = facts.neurons.iter().map(|neuron| i64::from(neuron.count)).sum();
    let n_cores = facts.neurons.first().map_or(0, |neuron| i64::from(neuron.count * neuron.cores_each));
    let counts: [(&str, i64); 10] = [
        (CPU, i64::from(facts.vcpus)),
        (PODS, pods(facts, class)),
        ("vpc.amazonaws.com/pod-eni", facts.branch_interfaces.map_or(0, i64::from)),
        ("nvidia.com/gpu", count_gpus("nvidia")),
        ("amd.com/gpu", count_gpus("amd")),
        ("habana.ai/gaudi", count_gpus("habana")),
        ("aws.amazon.com/neuron", n_neurons),
        ("aws.amazon.com/neuroncore", n_cores),
        ("vpc.amazonaws.com/efa", efa_interfaces(facts, class)),
        ("vpc.amazonaws.com/PrivateIPv4Address", windows_addresses(facts, class)),
    ];
    let counted =
        counts.into_iter().filter(|(_, count)| *count != 0).map(|(name, count)| (name, Quantity::from_units(count)));
    counted
        .collect::<Resources>()
        .with(MEMORY, memory(facts, class))
        .with(EPHEMERAL_STORAGE, ephemeral_storage(facts, class))
}

/// Reserved for the kubelet and the system, and the eviction threshold, summed. Resources that the type does not have
/// (process ids, say) are left out: nothing can be taken from them.
pub(super) fn overhead(facts: &TypeFacts, class: &NodeClassFacts, capacity: &Resources) -> Resources {
    let mut sum = kube_reserved(facts, class);
    sum.add(&class.kubelet.system_reserved);
    sum.add(&eviction(class, capacity));
    sum.0.retain(|name, _| capacity.0.contains_key(name));
    sum
}

fn memory(facts: &TypeFacts, class: &NodeClassFacts) -> Quantity {
    // Arm machines lose 64 MiB to their firmware before the hypervisor takes its share.
    let is_arm = facts.architectures.first().is_some_and(|first| &**first == "arm64");
    let advertised = facts.memory_mib as i64 - if is_arm { 64 } else { 0 };
    let lost = (advertised as f64 * class.memory_overhead_share).ceil() as i64;
    Quantity::from_mebibytes(advertised - lost)
}

/// How many pods the family takes where the class does not say.
pub fn default_pods(facts: &TypeFacts, class: &NodeClassFacts) -> i64 {
    if class.ami_family.limits_pods_by_interfaces() {
        pods_by_interfaces(facts, class, class.reserved_interfaces)
    } else {
        DEFAULT_PODS
    }
}

/// How many pods a node of the type takes.
pub fn pods(facts: &TypeFacts, class: &NodeClassFacts) -> i64 {
    let limit = class.kubelet.max_pods.map_or_else(|| default_pods(facts, class), i64::from);
    match class.kubelet.pods_per_core {
        Some(per_core) if per_core > 0 && class.ami_family.honours_pods_per_core() => {
            limit.min(i64::from(per_core) * i64::from(facts.vcpus))
        }
        _ => limit,
    }
}

/// One address of each interface is its own; two pods (the CNI and kube-proxy) use the host's network.
fn pods_by_interfaces(facts: &TypeFacts, class: &NodeClassFacts, reserved: u32) -> i64 {
    let taken = class.network_interfaces.iter().filter(|interface| interface.efa_only && interface.card == 0).count();
    let usable = i64::from(facts.interfaces) - i64::from(reserved) - taken as i64;
    if usable <= 0 { 0 } else { usable * (i64::from(facts.addresses_per_interface) - 1) + 2 }
}

fn efa_interfaces(facts: &TypeFacts, class: &NodeClassFacts) -> i64 {
    if class.network_interfaces.is_empty() {
        return i64::from(facts.efa_interfaces);
    }
    class.network_interfaces.iter().filter(|interface| interface.efa_only).count() as i64
}

fn windows_addresses(facts: &TypeFacts, class: &NodeClassFacts) -> i64 {
    if class.ami_family.is_windows() && facts.branch_interfaces.is_some() {
        i64::from(facts.addresses_per_interface) - 1
    } else {
        0
    }
}

fn ephemeral_storage(facts: &TypeFacts, class: &NodeClassFacts) -> Quantity {
    if let (InstanceStorePolicy::Raid0, Some(gb)) = (class.instance_store, facts.disk_gb) {
        return Quantity::from_units(i64::from(gb) * 1_000_000_000);
    }
    if let Some(size) = class.block_devices.iter().find(|device| device.is_root).and_then(|device| device.size) {
        return size;
    }
    let mapped = match class.ami_family.ephemeral_device() {
        Some((name, _)) => class.block_devices.iter().find(|device| &*device.name == name),
        None => class.block_devices.last(),
    };
    let default = class.ami_family.ephemeral_device().map_or(20, |(_, gibibytes)| gibibytes);
    mapped.and_then(|device| device.size).unwrap_or(Quantity::from_units(default * GIBIBYTE))
}

fn kube_reserved(facts: &TypeFacts, class: &NodeClassFacts) -> Resources {
    let n_pods = if class.ami_family.reserves_memory_by_interfaces() {
        pods_by_interfaces(facts, class, 0)
    } else {
        pods(facts, class)
    };
    let mut reserved = Resources::new()
        .with(CPU, Quantity::from_milli(reserved_cpu_milli(i64::from(facts.vcpus) * 1000)))
        .with(MEMORY, Quantity::from_mebibytes(11 * n_pods + 255))
        .with(EPHEMERAL_STORAGE, Quantity::from_units(GIBIBYTE));
    for (name, amount) in class.kubelet.kube_reserved.iter() {
        reserved.set(name, amount);
    }
    reserved
}

/// The more cores, the smaller the share of each further one. Shares in ten-thousandths, each band rounded down.
fn reserved_cpu_milli(total: i64) -> i64 {
    let bands = [(0, 1000, 600), (1000, 2000, 100), (2000, 4000, 50), (4000, i64::MAX, 25)];
    bands.into_iter().map(|(from, to, share)| (total.min(to) - from).max(0) * share / 10_000).sum()
}

fn eviction(class: &NodeClassFacts, capacity: &Resources) -> Resources {
    let share =
        |total: Quantity, percent: f64| Quantity::from_units((total.units() as f64 / 100.0 * percent).ceil() as i64);
    let threshold = |signal: &str, resource: &str, default: Quantity| match class.kubelet.eviction_hard.get(signal) {
        None => default,
        Some(Threshold::Amount(amount)) => *amount,
        Some(Threshold::Percent(percent)) if *percent == 100.0 => Quantity::ZERO,
        Some(Threshold::Percent(percent)) => share(capacity.get(resource), *percent),
    };
    let storage = share(capacity.get(EPHEMERAL_STORAGE), 10.0);
    Resources::new()
        .with(MEMORY, threshold("memory.available", MEMORY, Quantity::from_mebibytes(100)))
        .with(EPHEMERAL_STORAGE, threshold("nodefs.available", EPHEMERAL_STORAGE, storage))
}

#[cfg(test)]
mod tests;
