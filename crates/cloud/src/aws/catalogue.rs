//! The built-in catalogue: `data/aws.txt`, made by `cargo xtask catalog` and read when first asked for.
//!
//! The types are read once; the lines of a region only when that region is asked for.

use super::class::PlacementStrategy;
use super::facts::{Accelerator, Gpu, Neuron, TypeFacts, ZoneOffer};
use kerf_model::{Money, Text};
use std::collections::BTreeMap;
use std::sync::LazyLock;

const FILE: &str = include_str!("../../data/aws.txt");

/// The file is generated, committed and read whole by a test, so a line that does not fit is a build mistake.
const WELL_FORMED: &str = "data/aws.txt is as `cargo xtask catalog` writes it";

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| Catalogue::read(FILE));

/// A region that the catalogue does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the built-in EC2 catalogue has no region {asked:?}; it has {}", known.join(", "))]
pub struct UnknownRegion {
    pub asked: String,
    pub known: Vec<&'static str>,
}

/// The day the newest facts are of, as `YYYY-MM-DD`.
pub fn catalogue_date() -> &'static str {
    CATALOGUE.date
}

/// The day the listed prices are of. Newer families have estimated prices.
pub fn price_date() -> &'static str {
    CATALOGUE.price_date
}

/// The packages that the facts are from: name, version, date, what they give.
pub fn sources() -> &'static [&'static str] {
    &CATALOGUE.sources
}

pub fn regions() -> impl Iterator<Item = &'static str> {
    CATALOGUE.regions.keys().copied()
}

pub fn zones(region: &str) -> Result<&'static [&'static str], UnknownRegion> {
    Ok(&CATALOGUE.region(region)?.zones)
}

/// What EC2 says about a type, wherever it is sold.
pub fn type_facts(name: &str) -> Option<&'static TypeFacts> {
    CATALOGUE.types.get(name)
}

/// The types that a region sells and the zones that sell them, in order of name.
pub fn offers(region: &str) -> Result<impl Iterator<Item = (&'static TypeFacts, Vec<ZoneOffer>)>, UnknownRegion> {
    let block = CATALOGUE.region(region)?;
    Ok(block.lines.lines().map(|line| row(block, line).expect(WELL_FORMED)))
}

struct Catalogue {
    date: &'static str,
    price_date: &'static str,
    sources: Vec<&'static str>,
    types: BTreeMap<&'static str, TypeFacts>,
    regions: BTreeMap<&'static str, Region>,
}

struct Region {
    name: &'static str,
    zones: Vec<&'static str>,
    lines: &'static str,
}

impl Catalogue {
    fn read(file: &'static str) -> Self {
        let mut parts = file.split("\nregion ");
        let mut catalogue =
            Self { date: "", price_date: "", sources: Vec::new(), types: BTreeMap::new(), regions: BTreeMap::new() };
        for line in parts.next().unwrap_or_default().lines() {
            match line.split_once(' ') {
                Some(("date", date)) => catalogue.date = date,
                Some(("prices", date)) => catalogue.price_date = date,
                Some(("source", source)) => catalogue.sources.push(source),
                Some(("type", columns)) => {
                    let (name, facts) = type_line(columns).expect(WELL_FORMED);
                    catalogue.types.insert(name, facts);
                }
                _ => {}
            }
        }
        for part in parts {
            let (head, lines) = part.split_once('\n').unwrap_or((part, ""));
            let mut words = head.split(' ');
            let name = words.next().unwrap_or_default();
            catalogue.regions.insert(name, Region { name, zones: words.collect(), lines });
        }
        catalogue
    }

    fn region(&self, asked: &str) -> Result<&Region, UnknownRegion> {
        let unknown = || UnknownRegion { asked: asked.to_owned(), known: self.regions.keys().copied().collect() };
        self.regions.get(asked).ok_or_else(unknown)
    }
}

/// A type as the file has it: what `type_line` reads. For those who renew the file.
pub fn line_of(facts: &TypeFacts) -> String {
    let columns: [String; 20] = [
        facts.name.to_string(),
        facts.architectures.join(","),
        or_dash((!facts.cpu_maker.is_empty()).then_some(&facts.cpu_maker)),
        or_dash(facts.clock_mhz),
        facts.vcpus.to_string(),
        facts.memory_mib.to_string(),
        or_dash((!facts.hypervisor.is_empty()).then_some(&facts.hypervisor)),
        facts.interfaces.to_string(),
        facts.addresses_per_interface.to_string(),
        facts.branch_interfaces.unwrap_or(0).to_string(),
        facts.network_cards.to_string(),
        or_dash(facts.network_mbps),
        or_dash(facts.ebs_mbps),
        or_dash(facts.ebs_volumes),
        or_dash(facts.disk_gb),
        joined(&facts.gpus, |gpu| format!("{}:{}:{}:{}", gpu.count, gpu.maker, gpu.name, gpu.memory_mib)),
        joined(&facts.accelerators, |it| format!("{}:{}:{}", it.count, it.maker, it.name)),
        joined(&facts.neurons, |it| format!("{}:{}:{}", it.count, it.cores_each, it.name)),
        facts.efa_interfaces.to_string(),
        flags(facts),
    ];
    columns.join(" ")
}

fn flags(facts: &TypeFacts) -> String {
    let flags = [
        ('d', facts.sells_on_demand),
        ('s', facts.sells_spot),
        ('b', facts.is_bare_metal),
        ('e', facts.encrypts_in_transit),
        ('n', facts.has_enclaves),
        ('v', facts.nests_virtualization),
        ('c', facts.placement.contains(&PlacementStrategy::Cluster)),
        ('N', facts.disk_is_nvme),
        ('w', facts.branch_interfaces.is_some()),
        ('E', facts.has_ena),
    ];
    flags.into_iter().filter(|(_, is_set)| *is_set).map(|(letter, _)| letter).collect()
}

/// The header of the file names the columns.
fn type_line(line: &'static str) -> Option<(&'static str, TypeFacts)> {
    let mut columns = line.split(' ');
    let name = columns.next()?;
    let mut facts = TypeFacts {
        name: name.into(),
        architectures: columns.next()?.split(',').map(Text::from).collect(),
        cpu_maker: columns.next()?.into(),
        clock_mhz: optional(columns.next()?)?,
        vcpus: columns.next()?.parse().ok()?,
        memory_mib: columns.next()?.parse().ok()?,
        hypervisor: columns.next().map(|word| if word == "-" { "" } else { word })?.into(),
        interfaces: columns.next()?.parse().ok()?,
        addresses_per_interface: columns.next()?.parse().ok()?,
        branch_interfaces: Some(columns.next()?.parse().ok()?),
        network_cards: columns.next()?.parse().ok()?,
        network_mbps: optional(columns.next()?)?,
        ebs_mbps: optional(columns.next()?)?,
        ebs_volumes: optional(columns.next()?)?,
        disk_gb: optional(columns.next()?)?,
        gpus: list(columns.next()?, |parts| match *parts {
            [count, maker, name, mib] => Some(Gpu {
                count: count.parse().ok()?,
                maker: maker.into(),
                name: name.into(),
                memory_mib: mib.parse().ok()?,
            }),
            _ => None,
        })?,
        accelerators: list(columns.next()?, |parts| match *parts {
            [count, maker, name] => {
                Some(Accelerator { count: count.parse().ok()?, maker: maker.into(), name: name.into() })
            }
            _ => None,
        })?,
        neurons: list(columns.next()?, |parts| match *parts {
            [count, cores, name] => {
                Some(Neuron { count: count.parse().ok()?, cores_each: cores.parse().ok()?, name: name.into() })
            }
            _ => None,
        })?,
        efa_interfaces: columns.next()?.parse().ok()?,
        // The file marks only what differs between types: every one can be spread and partitioned.
        placement: vec![PlacementStrategy::Partition, PlacementStrategy::Spread],
        ..TypeFacts::default()
    };
    set_flags(&mut facts, columns.next()?)?;
    Some((name, facts))
}

fn set_flags(facts: &mut TypeFacts, flags: &str) -> Option<()> {
    let mut has_limits = false;
    for flag in flags.chars() {
        match flag {
            'd' => facts.sells_on_demand = true,
            's' => facts.sells_spot = true,
            'b' => facts.is_bare_metal = true,
            'e' => facts.encrypts_in_transit = true,
            'n' => facts.has_enclaves = true,
            'v' => facts.nests_virtualization = true,
            'c' => facts.placement.push(PlacementStrategy::Cluster),
            'N' => facts.disk_is_nvme = true,
            'w' => has_limits = true,
            'E' => facts.has_ena = true,
            _ => return None,
        }
    }
    facts.branch_interfaces = facts.branch_interfaces.filter(|_| has_limits);
    Some(())
}

/// A line of a region: type, zone letters, on-demand price, spot price.
fn row(region: &Region, line: &str) -> Option<(&'static TypeFacts, Vec<ZoneOffer>)> {
    let mut words = line.split(' ');
    let facts = type_facts(words.next()?)?;
    let letters = words.next()?;
    let on_demand = words.next()?;
    let listed = on_demand.strip_suffix('~');
    let price = |word: &str| optional(word).map(|micros| micros.map(Money::from_micros));
    let on_demand_price = price(listed.unwrap_or(on_demand))?;
    let spot = price(words.next()?)?;
    let offer = |letter: char| ZoneOffer {
        zone: format!("{}{letter}", region.name).into(),
        on_demand: on_demand_price,
        on_demand_is_estimate: listed.is_some(),
        spot,
    };
    Some((facts, letters.chars().map(offer).collect()))
}

/// A number, or `-` for none.
fn optional<T: std::str::FromStr>(word: &str) -> Option<Option<T>> {
    if word == "-" { Some(None) } else { word.parse().ok().map(Some) }
}

/// Comma-separated items of colon-separated parts, or `-` for none.
fn list<T>(word: &str, read: impl Fn(&[&str]) -> Option<T>) -> Option<Vec<T>> {
    if word == "-" {
        return Some(Vec::new());
    }
    word.split(',').map(|item| read(&item.split(':').collect::<Vec<_>>())).collect()
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn joined<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    if items.is_empty() { "-".to_owned() } else { items.iter().map(show).collect::<Vec<_>>().join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_written_as_it_was_read() {
        let written = FILE.lines().filter_map(|line| line.strip_prefix("type "));
        for line in written {
            let (_, facts) = type_line(line).expect(line);
            assert_eq!(line_of(&facts), line);
        }
    }
}
