//! Kubelet settings as flags of its command line, for the images that take them so (AL2, Windows).

use super::Bootstrap;
use std::collections::BTreeMap;

/// In the order of the contract, separated by spaces.
pub(super) fn kubelet_flags(inputs: &Bootstrap) -> String {
    let mut flags = Vec::new();
    flags.extend(node_labels(inputs));
    if !inputs.taints.is_empty() {
        let taints: Vec<String> = inputs.taints.iter().map(ToString::to_string).collect();
        flags.push(format!("--register-with-taints=\"{}\"", taints.join(",")));
    }
    flags.push(format!("--max-pods={}", inputs.resolved.max_pods));
    flags.extend(single(inputs, "--pods-per-core", "podsPerCore"));
    flags.extend(pairs("--system-reserved", '=', &inputs.system_reserved()));
    flags.extend(pairs("--kube-reserved", '=', &inputs.kube_reserved()));
    flags.extend(pairs("--eviction-hard", '<', &inputs.amounts("evictionHard")));
    flags.extend(pairs("--eviction-soft", '<', &inputs.amounts("evictionSoft")));
    flags.extend(pairs("--eviction-soft-grace-period", '=', &inputs.amounts("evictionSoftGracePeriod")));
    flags.extend(single(inputs, "--eviction-max-pod-grace-period", "evictionMaxPodGracePeriod"));
    flags.extend(single(inputs, "--image-gc-high-threshold", "imageGCHighThresholdPercent"));
    flags.extend(single(inputs, "--image-gc-low-threshold", "imageGCLowThresholdPercent"));
    flags.extend(single(inputs, "--cpu-cfs-quota", "cpuCFSQuota"));
    flags.join(" ")
}

/// The flag that every image takes, as kubelet's configuration file has no field for labels.
pub(super) fn node_labels(inputs: &Bootstrap) -> Option<String> {
    pairs("--node-labels", '=', &inputs.labels)
}

fn single(inputs: &Bootstrap, flag: &str, setting: &str) -> Option<String> {
    inputs.single(setting).map(|value| format!("{flag}={value}"))
}

fn pairs(flag: &str, between: char, entries: &BTreeMap<String, String>) -> Option<String> {
    let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{key}{between}{value}")).collect();
    (!entries.is_empty()).then(|| format!("{flag}=\"{}\"", entries.join(",")))
}
