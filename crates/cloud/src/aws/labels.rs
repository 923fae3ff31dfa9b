//! The labels that a node of a type can have.

use super::class::NodeClassFacts;
use super::facts::TypeFacts;
use kerf_model::{Requirement, Requirements, labels as keys};

pub const ZONE_ID: &str = "topology.k8s.aws/zone-id";
pub const RESERVATION_TYPE: &str = "karpenter.k8s.aws/capacity-reservation-type";
pub const RESERVATION_INTERRUPTIBLE: &str = "karpenter.k8s.aws/capacity-reservation-interruptible";
pub const PLACEMENT_GROUP_ID: &str = "karpenter.k8s.aws/placement-group-id";
pub const PLACEMENT_GROUP_PARTITION: &str = "karpenter.k8s.aws/placement-group-partition";

const RESERVATION: [&str; 3] = [keys::AWS_RESERVATION_ID, RESERVATION_TYPE, RESERVATION_INTERRUPTIBLE];

/// Everything but zones and capacity types, which the offerings decide. A label that the type lacks must not exist.
pub(super) fn requirements(facts: &TypeFacts, region: &str, class: &NodeClassFacts) -> Requirements {
    let mut requirements = Requirements::new();
    for (key, value) in single_values(facts, region, class) {
        let requirement = value.map_or_else(Requirement::does_not_exist, |value| Requirement::is_in([value.as_str()]));
        requirements.add(key, requirement);
    }
    requirements.add(keys::ARCH, Requirement::is_in(facts.architectures.iter().map(|name| &**name)));
    requirements.add(keys::OS, operating_system(facts, class));
    requirements.add("karpenter.k8s.aws/instance-tenancy", Requirement::is_in(["default", "dedicated"]));
    // Reservation labels are the provider's to add, with the reserved offerings.
    for key in RESERVATION {
        requirements.add(key, Requirement::does_not_exist());
    }
    requirements
}

fn operating_system(facts: &TypeFacts, class: &NodeClassFacts) -> Requirement {
    let runs_windows = facts.architectures.iter().any(|name| &**name == "amd64");
    match class.ami_family.is_windows() {
        true if runs_windows => Requirement::is_in(["windows"]),
        true => Requirement::does_not_exist(),
        false => Requirement::is_in(["linux"]),
    }
}

fn single_values(facts: &TypeFacts, region: &str, class: &NodeClassFacts) -> [(&'static str, Option<String>); 27] {
    let name = Name::parse(&facts.name);
    let number = |value: u32| Some(value.to_string());
    let yes_no = |value: bool| Some(value.to_string());
    let gpu = only(&facts.gpus);
    let accelerator = accelerator(facts);
    let nvme_gb = facts.disk_gb.filter(|_| facts.disk_is_nvme);
    [
        (keys::INSTANCE_TYPE, Some(facts.name.to_string())),
        (keys::REGION, Some(region.to_owned())),
        (keys::WINDOWS_BUILD, class.ami_family.windows_build().map(str::to_owned)),
        ("karpenter.k8s.aws/instance-category", name.category.map(str::to_owned)),
        ("karpenter.k8s.aws/instance-generation", name.generation.map(str::to_owned)),
        ("karpenter.k8s.aws/instance-family", name.family.map(str::to_owned)),
        ("karpenter.k8s.aws/instance-size", name.size.map(str::to_owned)),
        (
            "karpenter.k8s.aws/instance-capability-flex",
            yes_no(name.family.is_some_and(|family| family.contains("-flex"))),
        ),
        ("karpenter.k8s.aws/instance-cpu", number(facts.vcpus)),
        ("karpenter.k8s.aws/instance-cpu-manufacturer", Some(facts.cpu_maker.to_string()).filter(|maker| maker != "-")),
        ("karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz", facts.clock_mhz.and_then(number)),
        ("karpenter.k8s.aws/instance-memory", Some(facts.memory_mib.to_string())),
        ("karpenter.k8s.aws/instance-ebs-bandwidth", facts.ebs_mbps.and_then(number)),
        ("karpenter.k8s.aws/instance-network-bandwidth", facts.network_mbps.and_then(number)),
        ("karpenter.k8s.aws/instance-local-nvme", nvme_gb.and_then(number)),
        ("karpenter.k8s.aws/instance-gpu-name", gpu.map(|gpu| gpu.name.to_string())),
        ("karpenter.k8s.aws/instance-gpu-manufacturer", gpu.map(|gpu| gpu.maker.to_string())),
        ("karpenter.k8s.aws/instance-gpu-count", gpu.map(|gpu| gpu.count.to_string())),
        ("karpenter.k8s.aws/instance-gpu-memory", gpu.map(|gpu| gpu.memory_mib.to_string())),
        ("karpenter.k8s.aws/instance-accelerator-name", accelerator.map(|(name, _, _)| name.to_owned())),
        ("karpenter.k8s.aws/instance-accelerator-manufacturer", accelerator.map(|(_, maker, _)| maker.to_owned())),
        ("karpenter.k8s.aws/instance-accelerator-count", accelerator.map(|(_, _, count)| count.to_string())),
        ("karpenter.k8s.aws/instance-hypervisor", Some(facts.hypervisor.to_string())),
        ("karpenter.k8s.aws/instance-encryption-in-transit-supported", yes_no(facts.encrypts_in_transit)),
        ("karpenter.k8s.aws/nitro-sandbox", yes_no(facts.has_enclaves)),
        // The class's placement group, once one exists, is the provider's to add.
        (PLACEMENT_GROUP_ID, None),
        (PLACEMENT_GROUP_PARTITION, None),
    ]
}

fn accelerator(facts: &TypeFacts) -> Option<(&str, &str, u32)> {
    let neuron = only(&facts.neurons).map(|device| (&*device.name, "aws", device.count));
    neuron.or_else(|| only(&facts.accelerators).map(|device| (&*device.name, &*device.maker, device.count)))
}

/// The one item of a list; a mixed machine has no single name to put on a label.
fn only<T>(items: &[T]) -> Option<&T> {
    match items {
        [item] => Some(item),
        _ => None,
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Name<'a> {
    category: Option<&'a str>,
    generation: Option<&'a str>,
    family: Option<&'a str>,
    size: Option<&'a str>,
}

impl<'a> Name<'a> {
    /// `u-6tb1.56xlarge` is category `u`, generation `1`; `m7i-flex.large` is `m`, `7`.
    fn parse(name: &'a str) -> Self {
        let (family, size) = match name.split('.').collect::<Vec<_>>()[..] {
            [family, size] => (Some(family), Some(size)),
            _ => (None, None),
        };
        let parts = family.and_then(category_and_generation);
        Self {
            category: parts.map(|(category, _)| category),
            generation: parts.map(|(_, generation)| generation),
            family,
            size,
        }
    }
}

fn category_and_generation(family: &str) -> Option<(&str, &str)> {
    let (category, rest) = split_while(family, |c| c.is_ascii_lowercase());
    // High-memory types carry their terabytes between category and generation.
    let terabytes = rest
        .strip_prefix('-')
        .map(|rest| split_while(rest, |c| c.is_ascii_digit()))
        .and_then(|(_, rest)| rest.strip_prefix("tb"));
    let (generation, _) = split_while(terabytes.unwrap_or(rest), |c| c.is_ascii_digit());
    (!category.is_empty() && !generation.is_empty()).then_some((category, generation))
}

fn split_while(text: &str, wanted: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !wanted(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_as_the_provider_does() {
        for (name, category, generation) in [
            ("m5.large", "m", "5"),
            ("m7i-flex.large", "m", "7"),
            ("u-6tb1.56xlarge", "u", "1"),
            ("u7i-12tb.224xlarge", "u", "7"),
            ("p6-b200.48xlarge", "p", "6"),
            ("im4gn.large", "im", "4"),
            ("hpc7a.96xlarge", "hpc", "7"),
            ("trn1n.32xlarge", "trn", "1"),
        ] {
            let parsed = Name::parse(name);
            assert_eq!((parsed.category, parsed.generation), (Some(category), Some(generation)), "{name}");
        }
        assert_eq!(Name::parse("nonsense"), Name { category: None, generation: None, family: None, size: None });
    }
}
