//! What the scenes on EC2 share: the catalogue, and nodes that already stand.

use anyhow::{Context as _, Result};
use kerf_model::{InstanceType, Offering, Pool, Requirement, resources};
use std::ops::RangeInclusive;

pub(crate) const REGION: &str = "us-east-1";
pub(crate) const ZONES: [&str; 3] = ["us-east-1a", "us-east-1b", "us-east-1c"];
pub(crate) const FAMILY: &str = "karpenter.k8s.aws/instance-family";
pub(crate) const CATEGORY: &str = "karpenter.k8s.aws/instance-category";
pub(crate) const GENERATION: &str = "karpenter.k8s.aws/instance-generation";
const TENANCY: &str = "karpenter.k8s.aws/instance-tenancy";
pub(crate) const CPU: &str = "karpenter.k8s.aws/instance-cpu";

/// The built-in catalogue, kept to three zones.
pub(crate) fn catalogue() -> Result<Vec<InstanceType>> {
    let class = kerf_cloud::aws::NodeClassFacts {
        zones: Some(ZONES.into_iter().map(|zone| (zone.into(), None)).collect()),
        ..Default::default()
    };
    let mut types = kerf_cloud::aws::instance_types(REGION, &class).context("the built-in catalogue")?;
    for kind in &mut types {
        kind.offerings.retain(|offering| offering.available);
        // The peer's scenarios have one value per label, and nobody here asks for dedicated hardware.
        kind.requirements.add(TENANCY, Requirement::is_in(["default"]));
    }
    types.retain(|kind| !kind.offerings.is_empty());
    Ok(types)
}

/// What a pool would buy: its types of so many cores, each with the offerings that the pool allows.
pub(crate) fn of_size(pool: &Pool, cores: RangeInclusive<i64>) -> Vec<(&InstanceType, &Offering)> {
    pool.types
        .iter()
        .filter(|kind| cores.contains(&kind.capacity.get(resources::CPU).units()))
        .filter(|kind| kind.requirements.intersects(&pool.requirements))
        .flat_map(|kind| {
            kind.offerings
                .iter()
                .filter(|offering| offering.launchable() && offering.requirements.intersects(&pool.requirements))
                .map(|offering| (&**kind, offering))
        })
        .collect()
}
