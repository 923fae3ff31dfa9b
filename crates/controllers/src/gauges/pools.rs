//! NodePools: limits, what is used of them, and what the nodes cost. Duty `metrics.nodepool`.

use super::{Renewal, resource_type, units};
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::metrics::families::{
    NODEPOOLS_COST_TOTAL, NODEPOOLS_COST_TRACKER_ERRORS_TOTAL, NODEPOOLS_LIMIT, NODEPOOLS_USAGE,
};
use crate::world::{Change, World};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use kerf_api::{NodeClaim, labels};
use kerf_model::{CapacityType, Money, Quantity, Text, TypeName, UnixMillis};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub struct PoolGauges {
    renewal: Renewal,
    /// Claims without a price that were counted already.
    unpriced: BTreeSet<Text>,
}

impl Duty for PoolGauges {
    fn name(&self) -> &'static str {
        "metrics.nodepool"
    }

    fn observe(&mut self, change: &Change, _: &World) {
        self.renewal.is_dirty |= matches!(change, Change::Pool { .. } | Change::Claim { .. });
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if self.renewal.is_due(desk.now) {
            tell_amounts(desk);
            self.tell_cost(desk);
        }
        self.renewal.wish()
    }

    fn done(&mut self, _: &Text, _: Outcome, _: &mut Desk<'_>) {}
}

fn tell_amounts(desk: &Desk<'_>) {
    let (mut limits, mut usage) = (Vec::new(), Vec::new());
    for (name, pool) in &desk.world.pools {
        let of = |written: Option<&BTreeMap<String, QuantityText>>| {
            let read = |(resource, text): (&String, &QuantityText)| {
                Some((resource_type(resource), &**name, units(Quantity::parse(&text.0).ok()?)))
            };
            written.into_iter().flatten().filter_map(read).collect::<Vec<_>>()
        };
        limits.extend(of(pool.spec.limits.as_ref()));
        usage.extend(of(pool.status.as_ref().and_then(|status| status.resources.as_ref())));
    }
    let series = |of: &[(String, &str, f64)], family| {
        let labelled = of.iter().map(|(resource, pool, amount)| (vec![resource.as_str(), pool], *amount));
        desk.metrics.replace(family, labelled);
    };
    series(&limits, &NODEPOOLS_LIMIT);
    series(&usage, &NODEPOOLS_USAGE);
}

impl PoolGauges {
    fn tell_cost(&mut self, desk: &Desk<'_>) {
        let mut costs: BTreeMap<&str, f64> = desk.world.pools.keys().map(|name| (&**name, 0.0)).collect();
        let mut unpriced = BTreeSet::new();
        for (name, claim) in &desk.world.claims {
            let (Some(pool), Some(machine)) = (label(claim, labels::NODE_POOL), machine(claim)) else {
                continue;
            };
            match price(desk, &machine) {
                Some(price) => *costs.entry(pool).or_default() += price.dollars(),
                None => {
                    if !self.unpriced.contains(name) {
                        desk.metrics.add(&NODEPOOLS_COST_TRACKER_ERRORS_TOTAL, &[pool], 1.0);
                    }
                    unpriced.insert(name.clone());
                }
            }
        }
        self.unpriced = unpriced;
        desk.metrics.replace(&NODEPOOLS_COST_TOTAL, costs.into_iter().map(|(pool, cost)| (vec![pool], cost)));
    }
}

/// What was bought for a claim: known once it is launched.
fn machine(claim: &NodeClaim) -> Option<(TypeName, Option<Text>, CapacityType)> {
    let is_launched = claim.status.as_ref().is_some_and(|status| status.provider_id.is_some());
    let instance_type = label(claim, labels::INSTANCE_TYPE).filter(|_| is_launched)?;
    let capacity_type = CapacityType::parse(label(claim, labels::CAPACITY_TYPE)?)?;
    Some((instance_type.into(), label(claim, labels::ZONE).map(Into::into), capacity_type))
}

fn price(
    desk: &Desk<'_>,
    (instance_type, zone, capacity_type): &(TypeName, Option<Text>, CapacityType),
) -> Option<Money> {
    desk.cloud.price(instance_type, zone.as_ref(), *capacity_type)
}

fn label<'a>(claim: &'a NodeClaim, key: &str) -> Option<&'a str> {
    claim.metadata.labels.as_ref()?.get(key).map(String::as_str)
}
