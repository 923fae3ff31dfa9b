//! The kubelet's settings, which v1beta1 had on NodePool and NodeClaim and knew by name.

use serde_json::Value;

use crate::schema::rule::Look as _;
use crate::schema::{Rule, Schema, boolean, int_or_text, int32, list_of, map_of, object, patterns, text};

const RESERVABLE: &[&str] = &["cpu", "memory", "ephemeral-storage", "pid"];

const SIGNALS: &[&str] = &[
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
];

/// A percentage or a quantity.
const THRESHOLD: &str = concat!(
    r"^(([0-9]{1,2}(\.[0-9]{1,2})?|100(\.0{1,2})?)%",
    r"|(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))",
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?)$"
);

pub(super) fn schema() -> Schema {
    object([
        ("clusterDNS", list_of(text()).about("Addresses of the cluster's DNS servers.")),
        ("maxPods", int32().at_least(0).about("How many pods a node takes at most.")),
        ("podsPerCore", int32().at_least(0).about("How many pods a node takes per CPU core, within maxPods.")),
        ("systemReserved", reserved("systemReserved", "What is kept for daemons of the operating system.")),
        ("kubeReserved", reserved("kubeReserved", "What is kept for the parts of Kubernetes on the node.")),
        ("evictionHard", thresholds("evictionHard", "What must be left, or pods are evicted at once.")),
        ("evictionSoft", thresholds("evictionSoft", "What should be left, or pods are evicted after a while.")),
        (
            "evictionSoftGracePeriod",
            keyed_by(SIGNALS, "evictionSoftGracePeriod", text())
                .about("How long each threshold of evictionSoft may be crossed."),
        ),
        (
            "evictionMaxPodGracePeriod",
            int32().about("Seconds that a pod gets at most to end when a soft threshold evicts it."),
        ),
        (
            "imageGCHighThresholdPercent",
            int32().range(0, 100).about("Disk usage in percent above which unused images are removed."),
        ),
        ("imageGCLowThresholdPercent", int32().range(0, 100).about("Disk usage in percent at which that ends.")),
        ("cpuCFSQuota", boolean().about("Whether CPU limits of containers are enforced.")),
    ])
    .about("Settings of the kubelet. They go with the NodeClass in v1.")
    .rule(Rule::new(
        "has(self.imageGCHighThresholdPercent) && has(self.imageGCLowThresholdPercent) \
         ? self.imageGCHighThresholdPercent > self.imageGCLowThresholdPercent : true",
        "imageGCHighThresholdPercent must be above imageGCLowThresholdPercent",
        |kubelet| {
            let percent = |name| kubelet.at(name).as_i64();
            percent("imageGCHighThresholdPercent")
                .zip(percent("imageGCLowThresholdPercent"))
                .is_none_or(|(high, low)| high > low)
        },
    ))
    .rule(each_key_is_in("evictionSoft", "evictionSoftGracePeriod"))
    .rule(each_key_is_in("evictionSoftGracePeriod", "evictionSoft"))
}

/// The published schema took whole numbers in some releases and only text in others; this one takes both.
fn reserved(name: &'static str, about: &'static str) -> Schema {
    keyed_by(RESERVABLE, name, int_or_text().pattern(patterns::QUANTITY)).about(about).rule(Rule::new(
        "self.all(k, type(self[k]) == string ? !self[k].startsWith('-') : self[k] >= 0)",
        format!("{name} may not be negative"),
        |map| {
            map.as_object().is_none_or(|map| {
                map.values().all(|amount| !amount.text().starts_with('-') && amount.as_f64().is_none_or(|n| n >= 0.0))
            })
        },
    ))
}

fn thresholds(name: &'static str, about: &'static str) -> Schema {
    keyed_by(SIGNALS, name, text().pattern(THRESHOLD)).about(about)
}

/// A map that takes no other keys than these. Its size is said, too: it bounds what the rules about it can cost.
fn keyed_by(keys: &'static [&'static str], name: &'static str, values: Schema) -> Schema {
    let quoted = keys.iter().map(|key| format!("'{key}'")).collect::<Vec<_>>().join(", ");
    map_of(values).max_properties(keys.len() as u64).rule(Rule::new(
        format!("self.all(k, k in [{quoted}])"),
        format!("{name} takes {}", keys.join(", ")),
        move |map: &Value| map.keys().all(|key| keys.contains(&key.as_str())),
    ))
}

fn each_key_is_in(one: &'static str, other: &'static str) -> Rule {
    Rule::new(
        format!("!has(self.{one}) || self.{one}.all(k, has(self.{other}) && k in self.{other})"),
        format!("each key of {one} must be in {other}, too"),
        move |kubelet: &Value| kubelet.at(one).keys().all(|key| kubelet.at(other).has(key)),
    )
}
