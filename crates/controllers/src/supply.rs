//! What can be bought, as the mirror asks for it: the provider's types, less what ran dry, overlays applied.

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
                let types = self.cloud.instance_types(&ask).map_err(|error| Text::from(error.to_string()))?;
                if types.is_empty() {
                    return Err("the provider offers no instance type to it".into());
                }
                Ok(seen.entry(types.as_ptr()).or_insert_with(|| self.without_dry(&types)).clone())
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
    fn without_dry(&self, types: &Types) -> Types {
        let dry: Vec<&OfferingKey> = self.shelves.dry(self.now).collect();
        if dry.is_empty() {
            return types.clone();
        }
        let of_type = |it: &Arc<InstanceType>| {
            if !dry.iter().any(|key| key.instance_type == it.name) {
                return it.clone();
            }
            let mut changed = (**it).clone();
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

fn read_overlay(name: &Text, overlay: &NodeOverlay) -> Result<Overlay, String> {
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
