//! What can be bought, as the mirror asks for it: the provider's types, less what ran dry and as small as they turned out to be,
//! overlays applied.

use crate::guard::guarded;
use crate::stock::Stock as Shelves;
use kerf_api::NodeOverlay;
use kerf_cloud::overlay::{self, Overlay, PoolTypes, PriceChange};
use kerf_cloud::{CloudProvider, OfferingKey, TypesAsk};
use kerf_mirror::{Inquiry, Stock, Supply, Types};
use kerf_model::{
    CapacityType, InstanceType, Money, NodeClassRef, Operator, PoolName, Quantity, Requirement, Requirements,
    Resources, Text, TypeName, UnixMillis,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A provider and the operator's memory of what it could not deliver, at one time.
pub struct CloudSupply<'a> {
    pub cloud: &'a dyn CloudProvider,
    pub shelves: &'a Shelves,
    pub now: UnixMillis,
}

impl Supply for CloudSupply<'_> {
    fn serves(&self, node_class: &NodeClassRef) -> bool {
        self.cloud.node_classes().iter().any(|kind| kind.is(node_class))
    }

    fn types(&self, inquiries: &[Inquiry<'_>], overlays: &[Arc<NodeOverlay>]) -> Stock {
        // Pools of one class mostly share one list; what ran dry is taken out of each list once.
        let mut seen: BTreeMap<*const Arc<InstanceType>, Types> = BTreeMap::new();
        let types = inquiries
            .iter()
            .map(|inquiry| {
                let ask = TypesAsk {
                    pool: inquiry.pool,
                    labels: inquiry.labels,
                    requirements: inquiry.requirements,
                    node_class: inquiry.node_class,
                    class_object: inquiry.class_object,
                };
                // A class whose settings bring a defect to light closes its own pools, and no others.
                let types =
                    guarded(|| self.cloud.instance_types(&ask)).map_err(|defect| Text::from(defect.to_string()))?;
                let types = types.map_err(|error| Text::from(error.to_string()))?;
                if types.is_empty() {
                    return Err("the provider offers no instance type to it".into());
                }
                Ok(seen.entry(types.as_ptr()).or_insert_with(|| self.as_known(&types)).clone())
            })
            .collect();
        if overlays.is_empty() {
            return Stock { types, rejected_overlays: Vec::new() };
        }
        overlaid(inquiries, types, overlays)
    }

    fn price(&self, instance_type: &TypeName, zone: Option<&Text>, capacity_type: CapacityType) -> Option<Money> {
        self.cloud.price(instance_type, zone, capacity_type)
    }
}

impl CloudSupply<'_> {
    /// The provider's types, as experience has shown them to be.
    fn as_known(&self, types: &Types) -> Types {
        let dry: Vec<&OfferingKey> = self.shelves.dry(self.now).collect();
        if dry.is_empty() && !self.shelves.is_any_small(self.now) {
            return types.clone();
        }
        let of_type = |it: &Arc<InstanceType>| {
            let small = self.shelves.allocatable_of(&it.name, self.now);
            if small.is_none() && !dry.iter().any(|key| key.instance_type == it.name) {
                return it.clone();
            }
            let mut changed = (**it).clone();
            if let Some(allocatable) = small {
                shrink(&mut changed, allocatable);
            }
            for offering in &mut changed.offerings {
                let is_dry = dry.iter().any(|key| {
                    key.instance_type == it.name
                        && Some(&key.zone) == offering.zone()
                        && Some(key.capacity_type) == offering.capacity_type()
                });
                offering.available &= !is_dry;
            }
            Arc::new(changed)
        };
        types.iter().map(of_type).collect()
    }
}

/// Makes a type as small as a machine of it was: what is missing counts as overhead.
fn shrink(it: &mut InstanceType, to: &Resources) {
    // Offerings first: what they offer follows from the type's own figures as well.
    let by_offering: Vec<Resources> =
        it.offerings.iter().map(|offering| missing(&it.allocatable_of(offering), to)).collect();
    let of_type = missing(&it.allocatable(), to);
    for (offering, missing) in it.offerings.iter_mut().zip(by_offering) {
        if let Some(overrides) = &mut offering.overrides {
            for (name, amount) in missing.iter() {
                let base = overrides.overhead.0.get(name).copied().unwrap_or_else(|| it.overhead.get(name));
                overrides.overhead.set(name, base + amount);
            }
        }
    }
    it.overhead.add(&of_type);
}

/// By how much each amount exceeds the other, where it does.
fn missing(promised: &Resources, found: &Resources) -> Resources {
    let mut out = Resources::new();
    for (name, amount) in found.iter() {
        if promised.get(name) > amount {
            out.set(name, promised.get(name) - amount);
        }
    }
    out
}

/// Applies overlays to all pools at once.
pub fn overlaid(inquiries: &[Inquiry<'_>], types: Vec<Result<Types, Text>>, overlays: &[Arc<NodeOverlay>]) -> Stock {
    let mut rejected_overlays = Vec::new();
    let mut read = Vec::new();
    for overlay in overlays {
        let name: Text = overlay.metadata.name.as_deref().unwrap_or_default().into();
        match read_overlay(&name, overlay) {
            Ok(overlay) => read.push(overlay),
            Err(reason) => rejected_overlays.push((name, reason.into())),
        }
    }
    let pools = inquiries
        .iter()
        .zip(&types)
        .filter_map(|(inquiry, types)| {
            let types = types.as_ref().ok()?;
            Some(PoolTypes {
                pool: inquiry.pool.clone(),
                labels: inquiry.labels.clone(),
                types: types.iter().map(|it| (**it).clone()).collect(),
            })
        })
        .collect();
    let overlaid = overlay::apply(&read, pools);
    rejected_overlays
        .extend(overlaid.conflicts.iter().map(|conflict| (conflict.refused.clone(), conflict.to_string().into())));
    let mut changed: BTreeMap<PoolName, Types> = overlaid
        .pools
        .into_iter()
        .map(|(pool, of_pool)| (pool, of_pool.types.into_iter().map(Arc::new).collect()))
        .collect();
    let types = inquiries
        .iter()
        .zip(types)
        .map(|(inquiry, types)| types.map(|types| changed.remove(inquiry.pool).unwrap_or(types)))
        .collect();
    Stock { types, rejected_overlays }
}

pub(crate) fn read_overlay(name: &Text, overlay: &NodeOverlay) -> Result<Overlay, String> {
    let spec = &overlay.spec;
    let mut requirements = Requirements::new();
    for (position, written) in spec.requirements.iter().enumerate() {
        let values: Vec<Text> = written.values.iter().map(|value| value.as_str().into()).collect();
        let requirement = Operator::parse(written.operator.as_str())
            .and_then(|operator| Requirement::new(operator, &values))
            .ok_or_else(|| {
                format!(
                    "spec.requirements[{position}]: {} with [{}] means nothing",
                    written.operator,
                    values.join(", ")
                )
            })?;
        requirements.add(&written.key, requirement);
    }
    let price = match (&spec.price, &spec.price_adjustment) {
        (Some(text), _) => Some(PriceChange::parse_price(text).map_err(|error| format!("spec.price: {error}"))?),
        (None, Some(text)) => {
            Some(PriceChange::parse_adjustment(text).map_err(|error| format!("spec.priceAdjustment: {error}"))?)
        }
        (None, None) => None,
    };
    let mut capacity = Resources::new();
    for (resource, text) in spec.capacity.iter().flatten() {
        let amount = Quantity::parse(&text.0).map_err(|error| format!("spec.capacity.{resource}: {error}"))?;
        capacity.set(resource, amount);
    }
    let weight = spec.weight.and_then(|weight| u32::try_from(weight).ok()).unwrap_or(0);
    Ok(Overlay { name: name.clone(), weight, requirements, price, capacity })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_cloud::{
        Answer, ClassStatus, CloudError, Instance, InstanceRef, LaunchOrder, NodeClassKind, RepairPolicy,
    };
    use kerf_model::offering::Overrides;
    use kerf_model::{Labels, Offering};
    use serde_json::Value;

    fn amounts(pairs: &[(&str, i64)]) -> Resources {
        pairs.iter().map(|(name, units)| (*name, Quantity::from_units(*units))).collect()
    }

    /// Sells to pool `sound`, and panics for any other.
    struct Brittle;

    impl CloudProvider for Brittle {
        fn name(&self) -> &'static str {
            "brittle"
        }

        fn node_classes(&self) -> Vec<NodeClassKind> {
            Vec::new()
        }

        fn well_known_labels(&self) -> Vec<&'static str> {
            Vec::new()
        }

        fn instance_types(&self, ask: &TypesAsk<'_>) -> Result<Arc<[Arc<InstanceType>]>, CloudError> {
            assert_eq!(&*ask.pool.0, "sound", "planted");
            Ok(kerf_cloud::kwok::embedded().into_iter().map(Arc::new).collect())
        }

        fn price(&self, _: &TypeName, _: Option<&Text>, _: CapacityType) -> Option<Money> {
            None
        }

        fn launch(&self, _: Arc<LaunchOrder>) -> Answer<Instance> {
            unreachable!("nobody launches")
        }

        fn terminate(&self, _: InstanceRef) -> Answer<()> {
            unreachable!("nobody ends")
        }

        fn get(&self, _: Text) -> Answer<Instance> {
            unreachable!("nobody asks")
        }

        fn list(&self) -> Answer<Vec<Instance>> {
            unreachable!("nobody lists")
        }

        fn reboot(&self, _: InstanceRef, _: Text) -> Answer<()> {
            unreachable!("nobody reboots")
        }

        fn resolve_class(&self, _: Arc<Value>) -> Answer<ClassStatus> {
            unreachable!("nobody resolves")
        }

        fn drift(&self, _: InstanceRef, _: Arc<Value>) -> Answer<Option<Text>> {
            unreachable!("nothing drifts")
        }

        fn repair_policies(&self) -> Vec<RepairPolicy> {
            Vec::new()
        }
    }

    #[test]
    fn a_class_that_brings_a_defect_to_light_closes_its_own_pools_and_no_others() {
        let class = NodeClassRef { group: "g".into(), kind: "k".into(), name: "n".into() };
        let (labels, requirements) = (Labels::default(), Requirements::new());
        let (sound, other) = (PoolName("sound".into()), PoolName("other".into()));
        let inquiry = |pool| Inquiry {
            pool,
            labels: &labels,
            requirements: &requirements,
            node_class: &class,
            class_object: None,
        };
        let shelves = Shelves::default();
        let supply = CloudSupply { cloud: &Brittle, shelves: &shelves, now: UnixMillis(0) };
        let stock = supply.types(&[inquiry(&other), inquiry(&sound)], &[]);
        let words = stock.types[0].as_ref().unwrap_err();
        assert!(words.starts_with("a defect of Kerf: "), "{words}");
        assert!(!stock.types[1].as_ref().unwrap().is_empty());
    }

    #[test]
    fn a_type_that_disappointed_offers_what_its_machine_had() {
        let overridden = Offering {
            overrides: Some(Box::new(Overrides { capacity: amounts(&[("memory", 200)]), overhead: Resources::new() })),
            ..Offering::new("a", CapacityType::Spot, Money::ZERO)
        };
        let mut it = InstanceType {
            name: "m".into(),
            requirements: Requirements::new(),
            offerings: vec![Offering::new("a", CapacityType::OnDemand, Money::ZERO), overridden],
            capacity: amounts(&[("cpu", 4), ("memory", 100), ("pods", 10)]),
            overhead: amounts(&[("memory", 10)]),
            attach_limits: BTreeMap::new(),
        };
        shrink(&mut it, &amounts(&[("memory", 80), ("cpu", 4), ("pods", 11)]));
        let expected = amounts(&[("cpu", 4), ("memory", 80), ("pods", 10)]);
        assert_eq!(it.allocatable(), expected);
        assert_eq!(it.allocatable_of(&it.offerings[0]), expected);
        assert_eq!(
            it.allocatable_of(&it.offerings[1]),
            expected,
            "an offering's own figures are no more than a promise"
        );
        assert_eq!(it.capacity.get("memory"), Quantity::from_units(100), "limits count what the machine has");
    }
}
