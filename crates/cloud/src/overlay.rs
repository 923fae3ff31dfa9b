//! NodeOverlays: what users say about prices and extra resources of instance types.
//!
//! Overlays are looked at from the heaviest to the lightest, and by name from last to first where they weigh the same.
//! The first to touch a price, or a resource, decides it. Two of the same weight that touch the same thing conflict:
//! the later one is refused whole, in every pool.

use kerf_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use kerf_model::{
    InstanceType, Labels, Money, Offering, PoolName, Quantity, Requirement, Requirements, Resources, Text, TypeName,
    labels,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq)]
pub struct Overlay {
    pub name: Text,
    pub weight: u32,
    pub requirements: Requirements,
    pub price: Option<PriceChange>,
    /// Extended resources that nodes of the type turn out to have.
    pub capacity: Resources,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PriceChange {
    /// The price is this.
    Absolute(Money),
    /// The price is this much more, or less.
    Shift(Money),
    /// The price is this many percent more, or less.
    Percent(f64),
}

/// Why a text is no price, or no change of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct PriceError {
    pub text: String,
    pub expected: &'static str,
}

impl PriceChange {
    /// Reads `spec.price`: digits, perhaps with a fraction.
    pub fn parse_price(text: &str) -> Result<Self, PriceError> {
        let dollars = unsigned(text).ok_or_else(|| error(text, "a price such as 0.25"))?;
        Ok(Self::Absolute(Money::from_dollars(dollars)))
    }

    /// Reads `spec.priceAdjustment`: a sign, a number, perhaps a percent sign.
    pub fn parse_adjustment(text: &str) -> Result<Self, PriceError> {
        let expected = "a change such as +0.5, -1.2, +10% or -15%, no lower than -100%";
        let (sign, rest) = match text.as_bytes().first() {
            Some(b'+') => (1.0, &text[1..]),
            Some(b'-') => (-1.0, &text[1..]),
            _ => return Err(error(text, expected)),
        };
        let number = |digits: &str| unsigned(digits).map(|value| sign * value).ok_or_else(|| error(text, expected));
        match rest.strip_suffix('%') {
            Some(digits) => number(digits).and_then(|percent| {
                if percent < -100.0 { Err(error(text, expected)) } else { Ok(Self::Percent(percent)) }
            }),
            None => number(rest).map(|dollars| Self::Shift(Money::from_dollars(dollars))),
        }
    }

    /// Never below zero.
    pub fn apply(self, price: Money) -> Money {
        let changed = match self {
            Self::Absolute(price) => price,
            Self::Shift(difference) => price + difference,
            Self::Percent(percent) => {
                Money::from_micros((price.micros as f64 * (1.0 + percent / 100.0)).round() as i64)
            }
        };
        changed.max(Money::ZERO)
    }
}

fn error(text: &str, expected: &'static str) -> PriceError {
    PriceError { text: text.to_owned(), expected }
}

fn unsigned(text: &str) -> Option<f64> {
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if is_digits(whole) && is_digits(fraction) { text.parse().ok() } else { None }
}

/// A pool and the instance types it chooses from.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolTypes {
    pub pool: PoolName,
    /// The labels of the pool's template.
    pub labels: Labels,
    pub types: Vec<InstanceType>,
}

/// The types after all overlays, and what became of these.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Overlaid {
    pub pools: BTreeMap<PoolName, OverlaidPool>,
    pub conflicts: Vec<Conflict>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OverlaidPool {
    pub types: Vec<InstanceType>,
    /// The types that differ from what the cloud said, and how.
    pub changed: BTreeMap<TypeName, Changed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changed {
    pub price: bool,
    pub capacity: bool,
}

/// An overlay that was refused, because another of the same weight touches the same thing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "overlay {refused} conflicts with {with}: both of weight {weight} change the {what} of {instance_type} in pool {pool}"
)]
pub struct Conflict {
    pub refused: Text,
    pub with: Text,
    pub weight: u32,
    pub pool: PoolName,
    pub instance_type: TypeName,
    /// `price`, or the name of a resource.
    pub what: Text,
}

/// Applies overlays to the types of all pools.
///
/// Guarantees: the order of `overlays` does not matter. An overlay applies to all pools it matches, or, on a conflict
/// in any of them, to none.
/// Caveats: an offering with a changed price loses its overrides of capacity and overhead, as in the original. Capacity
/// entries for cpu, memory, ephemeral-storage and pods, which the API refuses, are ignored.
pub fn apply(overlays: &[Overlay], pools: Vec<PoolTypes>) -> Overlaid {
    let mut order: Vec<&Overlay> = overlays.iter().collect();
    order.sort_by_key(|overlay| Reverse((overlay.weight, overlay.name.clone())));
    let mut decided = Decided::default();
    let mut conflicts = Vec::new();
    for overlay in order {
        let touched = touches(overlay, &pools);
        match decided.conflict(overlay, &touched, &pools) {
            Some(conflict) => conflicts.push(conflict),
            None => decided.record(overlay, touched),
        }
    }
    Overlaid {
        pools: pools.into_iter().enumerate().map(|(pool_idx, pool)| decided.rewrite(pool_idx, pool)).collect(),
        conflicts,
    }
}

/// What an overlay reaches: an offering's price, or a resource of a type. Indices into the pools as given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Touch {
    Price { pool_idx: usize, type_idx: usize, offering_idx: usize },
    Resource { pool_idx: usize, type_idx: usize, name: Text },
}

fn touches(overlay: &Overlay, pools: &[PoolTypes]) -> Vec<Touch> {
    let mut touched = Vec::new();
    for (pool_idx, pool) in pools.iter().enumerate() {
        for (type_idx, it) in pool.types.iter().enumerate().filter(|(_, it)| matches(overlay, pool, it)) {
            let reached = |(_, offering): &(usize, &Offering)| offering.requirements.intersects(&overlay.requirements);
            let offerings: Vec<usize> = it.offerings.iter().enumerate().filter(reached).map(|(idx, _)| idx).collect();
            if overlay.price.is_some() {
                touched.extend(offerings.iter().map(|&offering_idx| Touch::Price { pool_idx, type_idx, offering_idx }));
            }
            if !offerings.is_empty() {
                touched.extend(extended(&overlay.capacity).map(|(name, _)| Touch::Resource {
                    pool_idx,
                    type_idx,
                    name: name.clone(),
                }));
            }
        }
    }
    touched
}

fn extended(capacity: &Resources) -> impl Iterator<Item = (&Text, Quantity)> {
    capacity.iter().filter(|(name, _)| ![CPU, MEMORY, EPHEMERAL_STORAGE, PODS].contains(&&***name))
}

/// A node of this pool and type would carry these labels; all that the overlay names must be among them.
fn matches(overlay: &Overlay, pool: &PoolTypes, it: &InstanceType) -> bool {
    let mut node = Requirements::from_labels(&pool.labels);
    node.add(labels::NODEPOOL, Requirement::is_in([pool.pool.as_str()]));
    node.add_all(&it.requirements);
    node.compatible(&overlay.requirements, |_| false).is_ok()
}

/// Who decides what. The lightest overlay that reached a thing is kept beside the one that decides it: an equal of
/// either conflicts, and since lighter ones come later, only the lightest can have an equal still to come.
#[derive(Default)]
struct Decided<'a> {
    by_touch: BTreeMap<Touch, (&'a Overlay, &'a Overlay)>,
}

impl<'a> Decided<'a> {
    fn conflict(&self, overlay: &Overlay, touched: &[Touch], pools: &[PoolTypes]) -> Option<Conflict> {
        let clash =
            |touch: &&Touch| self.by_touch.get(touch).is_some_and(|(_, lightest)| lightest.weight == overlay.weight);
        let touch = touched.iter().find(clash)?;
        let (_, lightest) = self.by_touch.get(touch)?;
        let (pool_idx, type_idx, what) = match touch {
            Touch::Price { pool_idx, type_idx, .. } => (*pool_idx, *type_idx, Text::from("price")),
            Touch::Resource { pool_idx, type_idx, name } => (*pool_idx, *type_idx, name.clone()),
        };
        let pool = pools.get(pool_idx)?;
        Some(Conflict {
            refused: overlay.name.clone(),
            with: lightest.name.clone(),
            weight: overlay.weight,
            pool: pool.pool.clone(),
            instance_type: pool.types.get(type_idx)?.name.clone(),
            what,
        })
    }

    fn record(&mut self, overlay: &'a Overlay, touched: Vec<Touch>) {
        for touch in touched {
            self.by_touch.entry(touch).and_modify(|(_, lightest)| *lightest = overlay).or_insert((overlay, overlay));
        }
    }

    fn rewrite(&self, pool_idx: usize, pool: PoolTypes) -> (PoolName, OverlaidPool) {
        let mut out = OverlaidPool { types: Vec::with_capacity(pool.types.len()), changed: BTreeMap::new() };
        for (type_idx, mut it) in pool.types.into_iter().enumerate() {
            let mut changed = Changed::default();
            for (offering_idx, offering) in it.offerings.iter_mut().enumerate() {
                let touch = Touch::Price { pool_idx, type_idx, offering_idx };
                if let Some(change) = self.by_touch.get(&touch).and_then(|(decides, _)| decides.price) {
                    change_price(offering, change);
                    changed.price = true;
                }
            }
            let resources = Touch::Resource { pool_idx, type_idx, name: "".into() }..Touch::Resource {
                pool_idx,
                type_idx: type_idx + 1,
                name: "".into(),
            };
            for (touch, (decides, _)) in self.by_touch.range(resources) {
                if let Touch::Resource { name, .. } = touch {
                    it.capacity.set(name, decides.capacity.get(name));
                    changed.capacity = true;
                }
            }
            if changed != Changed::default() {
                out.changed.insert(it.name.clone(), changed);
            }
            out.types.push(it);
        }
        (pool.pool, out)
    }
}

fn change_price(offering: &mut Offering, change: PriceChange) {
    offering.price = change.apply(offering.price);
    // Who states a price outright knows it.
    offering.price_is_estimate &= !matches!(change, PriceChange::Absolute(_));
    offering.overrides = None;
}

#[cfg(test)]
mod tests;
