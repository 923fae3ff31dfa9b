//! The types that do what was asked, with the offerings that may be bought.

use super::ask::Ask;
use anyhow::bail;
use kerf_cloud::aws::{self, AmiFamily, NodeClassFacts};
use kerf_model::labels::OS;
use kerf_model::resources::CPU;
use kerf_model::{CapacityType, InstanceType, Money, Offering, Quantity, Requirements, Resources, Text, TypeName};
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct Found {
    /// The cheapest first, then by name.
    pub(super) rows: Vec<Row>,
    /// How many the region has.
    pub(super) n_types: usize,
    /// Where nothing was found: how many types would meet each wish alone.
    pub(super) met_alone: Vec<(String, usize)>,
}

pub(super) struct Row {
    pub(super) name: TypeName,
    pub(super) memory_mib: u64,
    /// For the first family.
    pub(super) capacity: Resources,
    pub(super) by_family: Vec<(AmiFamily, Share)>,
    /// Single values, for programs and wide tables.
    pub(super) labels: BTreeMap<Text, Text>,
    pub(super) requirements: Requirements,
    pub(super) offerings: Vec<Offering>,
}

/// What a family leaves of a type.
pub(super) struct Share {
    pub(super) capacity: Resources,
    pub(super) allocatable: Resources,
}

impl Row {
    pub(super) fn cheapest(&self) -> Money {
        self.offerings.iter().map(|offering| offering.price).min().unwrap_or_default()
    }

    /// The cheapest way of a kind.
    pub(super) fn offering(&self, kind: CapacityType) -> Option<&Offering> {
        let of_kind = self.offerings.iter().filter(|offering| offering.capacity_type() == Some(kind));
        of_kind.min_by_key(|offering| offering.price)
    }

    pub(super) fn zones(&self) -> BTreeSet<&str> {
        self.offerings.iter().filter_map(|offering| offering.zone().map(|zone| &**zone)).collect()
    }
}

pub(super) fn select(ask: &Ask) -> anyhow::Result<Found> {
    let lists: Vec<(AmiFamily, Vec<InstanceType>)> = ask
        .families
        .iter()
        .map(|family| {
            let class = NodeClassFacts { ami_family: *family, ..ask.class.clone() };
            Ok((*family, aws::instance_types(&ask.region, &class)?))
        })
        .collect::<Result<_, aws::UnknownRegion>>()?;
    check_zones(ask)?;
    // A type may do for one family and not for another: AL2023 does not run on a1, Windows not on Arm.
    let mut rows: BTreeMap<TypeName, Row> = BTreeMap::new();
    for (family, types) in &lists {
        for it in types {
            let offerings = buyable(it, ask);
            if offerings.is_empty() || !does(it, ask) {
                continue;
            }
            let share = Share { capacity: it.capacity.clone(), allocatable: it.allocatable() };
            let row = rows.entry(it.name.clone()).or_insert_with(|| row(it, offerings));
            row.by_family.push((*family, share));
        }
    }
    let mut rows: Vec<Row> = rows.into_values().collect();
    rows.sort_by(|a, b| (a.cheapest(), &a.name).cmp(&(b.cheapest(), &b.name)));
    let first = lists.first().map(|(_, types)| types.as_slice()).unwrap_or_default();
    let met_alone = if rows.is_empty() { met_alone(first, ask) } else { Vec::new() };
    Ok(Found { rows, n_types: first.len(), met_alone })
}

fn row(it: &InstanceType, offerings: Vec<Offering>) -> Row {
    let single =
        it.requirements.iter().filter_map(|(key, requirement)| Some((key.clone(), requirement.single()?.clone())));
    Row {
        name: it.name.clone(),
        memory_mib: memory_mib(it),
        capacity: it.capacity.clone(),
        by_family: Vec::new(),
        labels: single.collect(),
        requirements: it.requirements.clone(),
        offerings,
    }
}

/// A zone that the region does not have would find nothing, and not say why.
fn check_zones(ask: &Ask) -> anyhow::Result<()> {
    let known = aws::zones(&ask.region)?;
    let wanted = ask.requirements.get(kerf_model::labels::ZONE).filter(|wanted| !wanted.complement);
    for zone in wanted.into_iter().flat_map(|wanted| &wanted.values) {
        if !known.contains(&&**zone) {
            bail!("{} has no zone {zone:?}; it has {}", ask.region, known.join(", "));
        }
    }
    Ok(())
}

fn does(it: &InstanceType, ask: &Ask) -> bool {
    // No image of the family runs on a machine without an operating system.
    let boots = it.requirements.get(OS).is_some_and(|systems| !systems.values.is_empty());
    boots
        && it.requirements.compatible(&ask.requirements, |_| false).is_ok()
        && ask.cpu.is_none_or(|range| range.has(it.capacity.get(CPU)))
        && ask.memory.is_none_or(|range| range.has(advertised(it)))
}

fn buyable(it: &InstanceType, ask: &Ask) -> Vec<Offering> {
    let buyable = it.offerings.iter().filter(|offering| {
        offering.available
            && offering.requirements.intersects(&ask.requirements)
            && ask.max_price.is_none_or(|most| offering.price <= most)
    });
    buyable.cloned().collect()
}

/// As AWS has it, before anything takes its share.
fn advertised(it: &InstanceType) -> Quantity {
    Quantity::from_mebibytes(i64::try_from(memory_mib(it)).unwrap_or(i64::MAX))
}

fn memory_mib(it: &InstanceType) -> u64 {
    aws::type_facts(it.name.as_str()).map_or(0, |facts| facts.memory_mib)
}

fn met_alone(types: &[InstanceType], ask: &Ask) -> Vec<(String, usize)> {
    let count = |does: &dyn Fn(&InstanceType) -> bool| types.iter().filter(|it| does(it)).count();
    let mut met = Vec::new();
    for (key, requirement) in ask.requirements.iter() {
        let alone = Requirements::new().with(key, requirement.clone());
        met.push((format!("{key} {requirement}"), count(&|it| it.requirements.compatible(&alone, |_| false).is_ok())));
    }
    if let Some(range) = ask.cpu {
        met.push(("--cpu".to_owned(), count(&|it| range.has(it.capacity.get(CPU)))));
    }
    if let Some(range) = ask.memory {
        met.push(("--memory".to_owned(), count(&|it| range.has(advertised(it)))));
    }
    if let Some(most) = ask.max_price {
        let is_cheap =
            |it: &InstanceType| it.offerings.iter().any(|offering| offering.available && offering.price <= most);
        met.push((format!("--max-price {most}"), count(&is_cheap)));
    }
    met
}
