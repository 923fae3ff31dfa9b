//! The built-in set of generic types, by formula.

use super::{Parts, assemble, default_overhead};
use kerf_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use kerf_model::{CapacityType, InstanceType, Labels, Money, Offering, Quantity, Resources};

const CPUS: [i64; 12] = [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256];
/// The family letter and its GiB per cpu.
const FAMILIES: [(&str, i64); 3] = [("c", 2), ("s", 4), ("m", 8)];
const SYSTEMS: [&str; 2] = ["linux", "windows"];
const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];
const ZONES: [&str; 4] = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"];
const GIBIBYTE: i64 = 1 << 30;

/// The 144 types that the kwok provider has without a file.
pub fn embedded() -> Vec<InstanceType> {
    let mut types = Vec::with_capacity(CPUS.len() * FAMILIES.len() * SYSTEMS.len() * ARCHITECTURES.len());
    for cpu in CPUS {
        for (family, gibibytes_each) in FAMILIES {
            for system in SYSTEMS {
                for architecture in ARCHITECTURES {
                    types.push(generic(family, cpu, cpu * gibibytes_each, system, architecture));
                }
            }
        }
    }
    types
}

fn generic(family: &str, cpu: i64, gibibytes: i64, system: &str, architecture: &str) -> InstanceType {
    let on_demand = 0.025 * cpu as f64 + 0.001 * (gibibytes * GIBIBYTE) as f64 / 1e9;
    let offerings = ZONES.iter().flat_map(|zone| {
        let spot = Offering::new(zone, CapacityType::Spot, Money::from_dollars(0.7 * on_demand));
        [spot, Offering::new(zone, CapacityType::OnDemand, Money::from_dollars(on_demand))]
    });
    assemble(Parts {
        name: format!("{family}-{cpu}x-{architecture}-{system}").into(),
        architecture: architecture.into(),
        operating_systems: vec![system.into()],
        capacity: Resources::new()
            .with(CPU, Quantity::from_units(cpu))
            .with(MEMORY, Quantity::from_units(gibibytes * GIBIBYTE))
            .with(PODS, Quantity::from_units((cpu * 16).min(1024)))
            .with(EPHEMERAL_STORAGE, Quantity::from_units(20 * GIBIBYTE)),
        overhead: default_overhead(),
        offerings: offerings.collect(),
        labels: Labels::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kwok::{INSTANCE_CPU, INSTANCE_FAMILY, INSTANCE_MEMORY, INSTANCE_SIZE};

    fn find(name: &str) -> InstanceType {
        embedded().into_iter().find(|it| it.name.as_str() == name).expect(name)
    }

    #[test]
    fn there_are_144_types_of_8_offerings() {
        let types = embedded();
        assert_eq!(types.len(), 144);
        assert!(types.iter().all(|it| it.offerings.len() == 8));
    }

    #[test]
    fn prices_follow_the_formula() {
        for (name, on_demand, spot) in [
            ("c-1x-amd64-linux", 0.027_147_483_648, 0.019_003_238_553_6),
            ("s-4x-arm64-linux", 0.117_179_869_184, 0.082_025_908_428_8),
            ("m-256x-amd64-windows", 8.599_023_255_552, 6.019_316_278_886_4),
        ] {
            for offering in &find(name).offerings {
                let expected = if offering.capacity_type() == Some(CapacityType::Spot) { spot } else { on_demand };
                assert_eq!(offering.price, Money::from_dollars(expected), "{name}");
            }
        }
    }

    #[test]
    fn a_generic_type_has_the_labels_and_room_that_kwok_gives_it() {
        let it = find("s-128x-amd64-linux");
        for (key, expected) in [
            (INSTANCE_SIZE, "128"),
            (INSTANCE_FAMILY, "s"),
            (INSTANCE_CPU, "128"),
            (INSTANCE_MEMORY, "512Gi"),
            ("kubernetes.io/arch", "amd64"),
            ("kubernetes.io/os", "linux"),
        ] {
            let single = it.requirements.get(key).and_then(|requirement| requirement.single());
            assert_eq!(single.map(|value| &**value), Some(expected), "{key}");
        }
        assert_eq!(it.allocatable().to_string(), "cpu 127900m, ephemeral-storage 20Gi, memory 524278Mi, pods 1Ki");
    }
}
