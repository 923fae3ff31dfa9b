//! Instance types of the scenes that come with their own.

use kerf_model::{
    CapacityType, InstanceType, Money, Offering, Quantity, Requirement, Requirements, Resources, labels, resources,
};
use std::collections::{BTreeMap, BTreeSet};

/// The 400 made-up types of the peer's own benchmark: n cores, 2n gibibytes, room for 10n pods, at one price per core and
/// gigabyte, spot in two zones and on-demand in three.
pub(crate) fn fakes() -> Vec<InstanceType> {
    (1..=400).map(fake).collect()
}

fn fake(n: i64) -> InstanceType {
    let memory = Quantity::from_mebibytes(2048 * n);
    let price = Money::from_dollars(0.1 * n as f64 + 0.1 * memory.units() as f64 / 1e9);
    let offerings = [
        ("test-zone-1", CapacityType::Spot),
        ("test-zone-2", CapacityType::Spot),
        ("test-zone-1", CapacityType::OnDemand),
        ("test-zone-2", CapacityType::OnDemand),
        ("test-zone-3", CapacityType::OnDemand),
    ]
    .map(|(zone, kind)| Offering::new(zone, kind, price));
    let is_large = n > 4;
    let requirements = Requirements::new()
        .with(labels::ARCH, Requirement::is_in(["amd64"]))
        .with(labels::OS, Requirement::is_in(["darwin", "linux", "windows"]))
        .with("size", Requirement::is_in([if is_large { "large" } else { "small" }]))
        .with("special", if is_large { Requirement::is_in(["optional"]) } else { Requirement::does_not_exist() })
        .with("integer", Requirement::is_in([n.to_string().as_str()]));
    let capacity = Resources::new()
        .with(resources::CPU, Quantity::from_units(n))
        .with(resources::MEMORY, memory)
        .with(resources::PODS, Quantity::from_units(10 * n));
    assemble(&format!("fake-it-{}", n - 1), requirements, capacity, offerings.to_vec())
}

/// A type with the overhead that the peer's made-up providers have, and the labels that follow from its offerings.
fn assemble(name: &str, requirements: Requirements, capacity: Resources, offerings: Vec<Offering>) -> InstanceType {
    let zones: BTreeSet<_> = offerings.iter().filter_map(Offering::zone).collect();
    let kinds: BTreeSet<_> = offerings.iter().filter_map(Offering::capacity_type).map(CapacityType::as_str).collect();
    let requirements = requirements
        .with(labels::INSTANCE_TYPE, Requirement::is_in([name]))
        .with(labels::ZONE, Requirement::is_in(zones.into_iter().map(|zone| &**zone)))
        .with(labels::CAPACITY_TYPE, Requirement::is_in(kinds));
    InstanceType {
        name: name.into(),
        requirements,
        offerings,
        capacity,
        overhead: Resources::new()
            .with(resources::CPU, Quantity::from_milli(100))
            .with(resources::MEMORY, Quantity::from_mebibytes(10)),
        attach_limits: BTreeMap::new(),
    }
}
