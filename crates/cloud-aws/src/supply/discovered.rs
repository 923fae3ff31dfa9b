//! What EC2 sells in the region: every type, and the zones that have it.

use crate::wire::{Aws, Failure};
use kerf_cloud::aws::{TypeFacts, type_facts};
use kerf_model::Text;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Discovered {
    pub(super) types: BTreeMap<Text, Arc<TypeFacts>>,
    pub(super) zones_by_type: BTreeMap<Text, BTreeSet<Text>>,
    /// Of the region.
    pub(super) zones: BTreeSet<Text>,
}

impl Discovered {
    /// Asks EC2. An empty answer is no answer: an account that can buy nothing needs no provider, and one whose permissions were just
    /// cut must not lose what it knew.
    pub(super) async fn ask(wire: &dyn Aws, region: &str) -> Result<Self, Failure> {
        let types = wire.describe_instance_types(false).await?;
        if types.is_empty() {
            let what = format!("{region} has no instance types; those known so far stay");
            return Err(Failure::new("ec2:DescribeInstanceTypes", "", &what));
        }
        let offerings = wire.describe_instance_type_offerings().await?;
        if offerings.is_empty() {
            let what = format!("no zone of {region} offers an instance type; what was known so far stays");
            return Err(Failure::new("ec2:DescribeInstanceTypeOfferings", "", &what));
        }
        let mut discovered = Self::default();
        for facts in types {
            discovered.types.insert(facts.name.clone(), Arc::new(complete(facts)));
        }
        for offering in offerings {
            let zone = Text::from(offering.zone);
            discovered.zones.insert(zone.clone());
            discovered.zones_by_type.entry(offering.instance_type.into()).or_default().insert(zone);
        }
        Ok(discovered)
    }
}

/// EC2 does not say how many branch interfaces a type takes, and says its baseline bandwidth per card: both are in a table.
fn complete(mut facts: TypeFacts) -> TypeFacts {
    if let Some(known) = type_facts(&facts.name) {
        facts.branch_interfaces = known.branch_interfaces;
        facts.network_mbps = known.network_mbps;
    }
    facts
}
