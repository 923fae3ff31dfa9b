//! Which offering an order gets: the cheapest that suits.

use kerf_cloud::{LaunchOrder, OfferingKey};
use kerf_model::{CapacityType, InstanceType, Offering, Requirement, Requirements, labels};
use std::collections::BTreeSet;
use std::sync::Arc;

/// One offering that suits an order.
#[derive(Debug, Clone)]
pub(crate) struct Candidate<'a> {
    pub(crate) it: &'a Arc<InstanceType>,
    pub(crate) offering: &'a Offering,
    pub(crate) key: OfferingKey,
}

impl Candidate<'_> {
    /// Whether the order's requests fit into it. Asked of the cheapest first, and mostly of no other: the sums are not free.
    pub(crate) fn fits(&self, order: &LaunchOrder) -> bool {
        order.requests.fits(&self.it.allocatable_of(self.offering))
    }
}

/// Every launchable offering that suits the requirements and is not to be avoided: cheapest first, ties by name, zone and
/// capacity type. Whether the requests fit is another question.
pub(crate) fn candidates<'a>(types: &'a [Arc<InstanceType>], order: &LaunchOrder) -> Vec<Candidate<'a>> {
    let wanted = wanted(order);
    let avoid: BTreeSet<&OfferingKey> = order.avoid.iter().collect();
    let mut found: Vec<Candidate<'a>> = Vec::new();
    for it in types.iter().filter(|it| it.requirements.intersects(&wanted)) {
        let suiting = it.offerings.iter().filter(|offering| offering.launchable());
        for offering in suiting.filter(|offering| offering.requirements.intersects(&wanted)) {
            let key = offering_key(it, offering);
            if !avoid.contains(&key) {
                found.push(Candidate { it, offering, key });
            }
        }
    }
    found.sort_by(|a, b| (a.offering.price, &a.key).cmp(&(b.offering.price, &b.key)));
    found
}

/// Whether the order says which types it accepts.
pub(crate) fn names_types(order: &LaunchOrder) -> bool {
    let types = order.requirements.get(labels::INSTANCE_TYPE);
    types.is_some_and(|requirement| !requirement.complement && !requirement.values.is_empty())
}

pub(crate) fn offering_key(it: &InstanceType, offering: &Offering) -> OfferingKey {
    OfferingKey {
        instance_type: it.name.clone(),
        zone: offering.zone().cloned().unwrap_or_default(),
        capacity_type: offering.capacity_type().unwrap_or(CapacityType::OnDemand),
    }
}

/// What the order asks for. A claim that was launched before carries what it got as labels, and is to get that again.
fn wanted(order: &LaunchOrder) -> Requirements {
    let mut wanted = order.requirements.clone();
    for (key, value) in &order.labels {
        wanted.add(key, Requirement::is_in([&**value]));
    }
    wanted
}
