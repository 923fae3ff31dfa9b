//! Amounts by resource name.

use crate::ids::Text;
use crate::quantity::Quantity;
use crate::shared::shared_text;
use std::collections::BTreeMap;
use std::fmt;

pub const CPU: &str = "cpu";
pub const MEMORY: &str = "memory";
pub const PODS: &str = "pods";
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// Counts nodes in NodePool limits and usage; no instance type offers it.
pub const NODES: &str = "nodes";

/// Amounts by resource name. A resource that is absent reads as zero.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash, PartialOrd, Ord)]
pub struct Resources(pub BTreeMap<Text, Quantity>);

impl Resources {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn get(&self, name: &str) -> Quantity {
        self.0.get(name).copied().unwrap_or_default()
    }

    pub fn set(&mut self, name: &str, amount: Quantity) {
        if let Some(slot) = self.0.get_mut(name) {
            *slot = amount;
        } else {
            self.0.insert(shared_text(name), amount);
        }
    }

    pub fn with(mut self, name: &str, amount: Quantity) -> Self {
        self.set(name, amount);
        self
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Text, Quantity)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn add(&mut self, other: &Resources) {
        for (name, amount) in other.iter() {
            *self.0.entry(name.clone()).or_default() += amount;
        }
    }

    /// These amounts, with the other's in place of those that both name.
    pub fn overlaid(&self, with: &Resources) -> Resources {
        let mut out = self.clone();
        for (name, amount) in with.iter() {
            out.set(name, amount);
        }
        out
    }

    /// Subtracts; a resource absent here goes below zero.
    pub fn subtract(&mut self, other: &Resources) {
        for (name, amount) in other.iter() {
            *self.0.entry(name.clone()).or_default() -= amount;
        }
    }

    /// The larger of the two, resource by resource. (Not named `max`: `Ord` has one that compares whole maps.)
    pub fn raise_to(&mut self, other: &Resources) {
        for (name, amount) in other.iter() {
            let slot = self.0.entry(name.clone()).or_default();
            *slot = (*slot).max(amount);
        }
    }

    /// Nothing below zero.
    pub fn floor_at_zero(&mut self) {
        for amount in self.0.values_mut() {
            *amount = (*amount).max(Quantity::ZERO);
        }
    }

    /// Whether `self` fits into `total`: nothing in total is negative, and each request is covered.
    pub fn fits(&self, total: &Resources) -> bool {
        total.0.values().all(|amount| amount.milli >= 0) && self.iter().all(|(name, amount)| amount <= total.get(name))
    }
}

impl<'a> FromIterator<(&'a str, Quantity)> for Resources {
    fn from_iter<I: IntoIterator<Item = (&'a str, Quantity)>>(iter: I) -> Self {
        Self(iter.into_iter().map(|(name, amount)| (name.into(), amount)).collect())
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (name, amount)) in self.iter().enumerate() {
            let comma = if position == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {amount}")?;
        }
        Ok(())
    }
}
