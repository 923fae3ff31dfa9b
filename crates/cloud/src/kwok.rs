//! The instance-type file of the kwok provider: reading it, writing it, and the set that is built in.
//!
//! A file is a JSON array; keys are read whatever their case:
//!
//! ```json
//! [{
//!   "name": "c-1x-amd64-linux",
//!   "architecture": "amd64",
//!   "operatingSystems": ["linux"],
//!   "resources": {"cpu": "1", "memory": "2Gi", "pods": "16"},
//!   "offerings": [{
//!     "Price": 0.027, "Available": true,
//!     "Requirements": [
//!       {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
//!       {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-a"]}
//!     ]
//!   }]
//! }]
//! ```
//!
//! Two keys are ours: `labels` (what else a node of the type carries) and `overhead` (what pods never get, 100m cpu and
//! 10Mi memory unless said). The kwok provider ignores both.

mod embedded;
mod read;
mod render;

pub use embedded::embedded;
pub use read::{Parsed, Problem, parse};
pub use render::render;

use kerf_model::resources::{CPU, MEMORY};
use kerf_model::{
    InstanceType, Labels, Offering, Quantity, Requirement, Requirements, Resources, Text, TypeName, labels,
};
use std::collections::BTreeMap;

pub const INSTANCE_SIZE: &str = "karpenter.kwok.sh/instance-size";
pub const INSTANCE_FAMILY: &str = "karpenter.kwok.sh/instance-family";
pub const INSTANCE_CPU: &str = "karpenter.kwok.sh/instance-cpu";
pub const INSTANCE_MEMORY: &str = "karpenter.kwok.sh/instance-memory";

/// Pods per node where a file says nothing: what the kubelet allows by default.
const DEFAULT_PODS: i64 = 110;

/// What the kubelet of a simulated node keeps for itself.
fn default_overhead() -> Resources {
    Resources::new().with(CPU, Quantity::from_milli(100)).with(MEMORY, Quantity::from_mebibytes(10))
}

/// What a type is made of before its labels are derived.
struct Parts {
    name: Text,
    architecture: Text,
    operating_systems: Vec<Text>,
    capacity: Resources,
    overhead: Resources,
    offerings: Vec<Offering>,
    labels: Labels,
}

/// Derives the labels of a simulated node. Labels given by hand win over derived ones.
fn assemble(parts: Parts) -> InstanceType {
    let cpu = parts.capacity.get(CPU).to_string();
    let memory = parts.capacity.get(MEMORY).to_string();
    let mut requirements = BTreeMap::new();
    let mut say = |key: &str, requirement: Requirement| {
        requirements.insert(Text::from(key), requirement);
    };
    say(labels::INSTANCE_TYPE, Requirement::is_in([&*parts.name]));
    say(labels::ARCH, Requirement::is_in([&*parts.architecture]));
    say(labels::OS, Requirement::is_in(parts.operating_systems.iter().map(|system| &**system)));
    say(labels::ZONE, union(&parts.offerings, labels::ZONE));
    say(labels::CAPACITY_TYPE, union(&parts.offerings, labels::CAPACITY_TYPE));
    say(INSTANCE_SIZE, Requirement::is_in([size(&parts.name).unwrap_or(&cpu)]));
    say(INSTANCE_FAMILY, Requirement::is_in([family(&parts.name)]));
    say(INSTANCE_CPU, Requirement::is_in([&*cpu]));
    say(INSTANCE_MEMORY, Requirement::is_in([&*memory]));
    for (key, value) in &parts.labels {
        say(labels::normalise(key), Requirement::is_in([&**value]));
    }
    InstanceType {
        name: TypeName(parts.name),
        requirements: Requirements(requirements),
        offerings: parts.offerings,
        capacity: parts.capacity,
        overhead: parts.overhead,
        attach_limits: BTreeMap::new(),
    }
}

fn union(offerings: &[Offering], key: &str) -> Requirement {
    let stated = offerings.iter().filter_map(|offering| offering.requirements.get(key));
    let values = stated.flat_map(|requirement| requirement.values.iter().cloned()).collect();
    Requirement { values, ..Requirement::does_not_exist() }
}

/// `large` of `m5.large`. None when the name is not two words with a dot between.
fn size(name: &str) -> Option<&str> {
    let is_word =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let (family, size) = name.split_once('.')?;
    (is_word(family) && is_word(size)).then_some(size)
}

/// `m5` of `m5.large`, `c` of `c-1x-amd64-linux`, else the first letter.
fn family(name: &str) -> &str {
    match name.find(['.', '-']) {
        Some(end) => &name[..end],
        None => &name[..name.chars().next().map_or(0, char::len_utf8)],
    }
}
