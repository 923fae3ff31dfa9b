//! `cloudprovider.metrics`: what every offering costs, whether it can be had, and how large the types are.

use kerf_cloud::{ChoreReport, CloudError, InUse, PoolInUse, Sample};
use kerf_model::{CapacityType, InstanceType, Text};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const AVAILABLE: &str = "karpenter_cloudprovider_instance_type_offering_available";
const PRICE: &str = "karpenter_cloudprovider_instance_type_offering_price_estimate";
const CORES: &str = "karpenter_cloudprovider_instance_type_cpu_cores";
const MEMORY: &str = "karpenter_cloudprovider_instance_type_memory_bytes";

/// Cores, and memory as EC2 lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub cores: u32,
    pub memory_bytes: u64,
}

/// The figures of every type that some pool can buy. A pool that cannot be answered does not keep the others off the page.
pub fn figures(
    in_use: &InUse,
    has_reserved_capacity: bool,
    types_of: impl Fn(&PoolInUse) -> Result<Arc<[Arc<InstanceType>]>, CloudError>,
    size_of: impl Fn(&str) -> Option<Size>,
) -> ChoreReport {
    let mut offerings: BTreeMap<(Text, CapacityType, Text), (bool, f64)> = BTreeMap::new();
    let mut types: BTreeSet<Text> = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for pool in &in_use.pools {
        let list = match types_of(pool) {
            Ok(list) => list,
            Err(error) => {
                tracing::debug!(controller = "cloudprovider.metrics", NodePool = %pool.name, %error, "no instance types");
                continue;
            }
        };
        // Pools of one class mostly share one list.
        if !seen.insert(list.as_ptr()) {
            continue;
        }
        for it in list.iter() {
            types.insert(it.name.0.clone());
            for offering in &it.offerings {
                let (Some(zone), Some(kind)) = (offering.zone(), offering.capacity_type()) else {
                    continue;
                };
                let key = (it.name.0.clone(), kind, zone.clone());
                let (available, price) = offerings.entry(key).or_insert((false, offering.price.dollars()));
                if offering.available {
                    *price = if *available { price.min(offering.price.dollars()) } else { offering.price.dollars() };
                    *available = true;
                }
                if has_reserved_capacity {
                    // A zone without a reservation says so.
                    let key = (it.name.0.clone(), CapacityType::Reserved, zone.clone());
                    offerings.entry(key).or_insert((false, 0.0));
                }
            }
        }
    }
    ChoreReport { samples: samples(offerings, types, size_of), ..ChoreReport::default() }
}

fn samples(
    offerings: BTreeMap<(Text, CapacityType, Text), (bool, f64)>,
    types: BTreeSet<Text>,
    size_of: impl Fn(&str) -> Option<Size>,
) -> Vec<Sample> {
    let mut samples = Vec::with_capacity(2 * (offerings.len() + types.len()));
    for ((name, kind, zone), (available, price)) in offerings {
        let labels: Vec<Text> = vec![name, kind.as_str().into(), zone];
        samples.push(Sample { family: AVAILABLE, labels: labels.clone(), value: f64::from(u8::from(available)) });
        samples.push(Sample { family: PRICE, labels, value: price });
    }
    for name in types {
        if let Some(size) = size_of(&name) {
            samples.push(Sample { family: CORES, labels: vec![name.clone()], value: f64::from(size.cores) });
            #[expect(clippy::cast_precision_loss, reason = "a machine's memory is exact in a float")]
            samples.push(Sample { family: MEMORY, labels: vec![name], value: size.memory_bytes as f64 });
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::super::testing::{in_use, pool};
    use super::*;
    use kerf_model::{Money, Offering, Requirements, Resources, TypeName};

    fn a_type(name: &str, offerings: Vec<Offering>) -> Arc<InstanceType> {
        Arc::new(InstanceType {
            name: TypeName(name.into()),
            requirements: Requirements::new(),
            offerings,
            capacity: Resources::new(),
            overhead: Resources::new(),
            attach_limits: BTreeMap::new(),
        })
    }

    fn shown(report: &ChoreReport) -> Vec<String> {
        let short = |family: &str| family.rsplit('_').next().unwrap().to_owned();
        let words = |sample: &Sample| {
            let labels = sample.labels.iter().map(|label| &**label).collect::<Vec<_>>().join(" ");
            format!("{} {labels} {}", short(sample.family), sample.value)
        };
        report.samples.iter().map(words).collect()
    }

    #[test]
    fn every_offering_has_its_price_and_whether_it_can_be_had_and_every_type_its_size() {
        let dollars = Money::from_dollars;
        let dry = Offering { available: false, ..Offering::new("a", CapacityType::Spot, dollars(0.25)) };
        let list: Arc<[Arc<InstanceType>]> =
            Arc::from([a_type("m5.large", vec![Offering::new("a", CapacityType::OnDemand, dollars(0.5)), dry])]);
        let pools = vec![pool("one", &[]), pool("broken", &[]), pool("two", &[])];
        let in_use = in_use(Vec::new(), pools, serde_json::json!({}));
        let types_of = |pool: &PoolInUse| match &*pool.name.0 {
            "broken" => Err(CloudError::ClassNotReady { message: "no".into() }),
            _ => Ok(list.clone()),
        };
        let size_of = |_: &str| Some(Size { cores: 2, memory_bytes: 8 << 30 });
        assert_eq!(
            shown(&figures(&in_use, false, types_of, size_of)),
            [
                "available m5.large spot a 0",
                "estimate m5.large spot a 0.25",
                "available m5.large on-demand a 1",
                "estimate m5.large on-demand a 0.5",
                "cores m5.large 2",
                "bytes m5.large 8589934592",
            ]
        );
        let with_reserved = shown(&figures(&in_use, true, types_of, size_of));
        assert_eq!(with_reserved[..2], ["available m5.large reserved a 0", "estimate m5.large reserved a 0"]);
        assert_eq!(with_reserved.len(), 8);
    }

    #[test]
    fn of_two_pools_the_offering_that_can_be_had_counts() {
        let lists: [Arc<[Arc<InstanceType>]>; 2] = [false, true].map(|available| {
            let offering = Offering { available, ..Offering::new("a", CapacityType::Spot, Money::from_dollars(1.0)) };
            Arc::from([a_type("t", vec![offering])])
        });
        let in_use = in_use(Vec::new(), vec![pool("0", &[]), pool("1", &[])], serde_json::json!({}));
        let types_of = |pool: &PoolInUse| Ok(lists[pool.name.0.parse::<usize>().unwrap()].clone());
        assert_eq!(
            shown(&figures(&in_use, false, types_of, |_| None)),
            ["available t spot a 1", "estimate t spot a 1"]
        );
    }
}
