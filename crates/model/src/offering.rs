//! What can be bought: instance types, and where and how each is offered.

use crate::ids::{Text, TypeName};
use crate::labels;
use crate::money::Money;
use crate::requirement::{Requirement, Requirements};
use crate::resources::Resources;
use crate::shared::shared_requirements;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CapacityType {
    /// Listed first because it is what providers try first.
    Reserved,
    Spot,
    OnDemand,
}

impl CapacityType {
    pub fn as_str(self) -> &'static str {
        match self {
            CapacityType::Reserved => "reserved",
            CapacityType::Spot => "spot",
            CapacityType::OnDemand => "on-demand",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [CapacityType::Reserved, CapacityType::Spot, CapacityType::OnDemand]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

/// A kind of machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceType {
    pub name: TypeName,
    /// The labels that a node of this type can have, every well-known one among them.
    pub requirements: Requirements,
    pub offerings: Vec<Offering>,
    pub capacity: Resources,
    /// Reserved for the system and the kubelet, and the eviction threshold, summed.
    pub overhead: Resources,
    /// By CSI driver: how many volumes a node of this type can attach. A driver left out is unlimited.
    pub attach_limits: BTreeMap<Text, u32>,
}

impl InstanceType {
    /// What pods can use: capacity less overhead, and less the huge pages that memory pays for.
    pub fn allocatable(&self) -> Resources {
        allocatable(&self.capacity, &self.overhead)
    }

    /// What pods can use under one of its offerings, whose overrides replace the type's own figures.
    pub fn allocatable_of(&self, offering: &Offering) -> Resources {
        match &offering.overrides {
            None => self.allocatable(),
            Some(overrides) => {
                allocatable(&self.capacity.overlaid(&overrides.capacity), &self.overhead.overlaid(&overrides.overhead))
            }
        }
    }

    /// What the machine has under one of its offerings, before anything is reserved.
    pub fn capacity_of(&self, offering: &Offering) -> Resources {
        match &offering.overrides {
            None => self.capacity.clone(),
            Some(overrides) => self.capacity.overlaid(&overrides.capacity),
        }
    }
}

fn allocatable(capacity: &Resources, overhead: &Resources) -> Resources {
    let mut out = capacity.clone();
    out.subtract(overhead);
    let huge: Vec<_> =
        capacity.iter().filter(|(name, _)| name.starts_with("hugepages-")).map(|(_, amount)| amount).collect();
    for amount in huge {
        let memory = out.get(crate::resources::MEMORY) - amount;
        out.set(crate::resources::MEMORY, memory.max(crate::quantity::Quantity::ZERO));
    }
    out
}

/// One way to buy an instance type: a zone, a capacity type, a price.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offering {
    /// Contains at least the zone and the capacity type. Thousands of offerings have the same.
    pub requirements: Arc<Requirements>,
    pub price: Money,
    /// Whether the price is a guess (spot prices of a built-in catalogue, say).
    pub price_is_estimate: bool,
    /// Healthy: neither sold out lately nor withdrawn. A full reservation is available but not launchable.
    pub available: bool,
    /// How many more instances a reservation holds; None unless the capacity type is reserved.
    pub reservation_capacity: Option<u32>,
    pub overrides: Option<Box<Overrides>>,
}

/// Figures that replace those of the instance type under one offering.
#[derive(Debug, Clone, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Overrides {
    pub capacity: Resources,
    pub overhead: Resources,
}

impl Offering {
    pub fn new(zone: &str, capacity_type: CapacityType, price: Money) -> Self {
        Self {
            requirements: shared_requirements(
                &Requirements::new()
                    .with(labels::ZONE, Requirement::is_in([zone]))
                    .with(labels::CAPACITY_TYPE, Requirement::is_in([capacity_type.as_str()])),
            ),
            price,
            price_is_estimate: false,
            available: true,
            reservation_capacity: None,
            overrides: None,
        }
    }

    /// Asks for one thing more.
    pub fn require(&mut self, key: &str, requirement: Requirement) {
        let mut requirements = Requirements::clone(&self.requirements);
        requirements.add(key, requirement);
        self.requirements = shared_requirements(&requirements);
    }

    pub fn zone(&self) -> Option<&Text> {
        self.requirements.get(labels::ZONE)?.single()
    }

    pub fn capacity_type(&self) -> Option<CapacityType> {
        CapacityType::parse(self.requirements.get(labels::CAPACITY_TYPE)?.single()?)
    }

    /// Whether an instance could be had now: available, and for a reservation not full.
    pub fn launchable(&self) -> bool {
        self.available
            && (self.capacity_type() != Some(CapacityType::Reserved) || self.reservation_capacity.unwrap_or(0) > 0)
    }
}
