//! What people and programs read.

use super::ask::Ask;
use super::select::{Found, Row, Share};
use kerf_cloud::aws::{AmiFamily, catalogue_date, price_date};
use kerf_model::resources::{CPU, MEMORY, PODS};
use kerf_model::{CapacityType, Offering, Quantity, Resources};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Resources that a table has no column for.
const ACCELERATORS: [(&str, &str); 4] = [
    ("nvidia.com/gpu", "instance-gpu-name"),
    ("amd.com/gpu", "instance-gpu-name"),
    ("habana.ai/gaudi", "instance-gpu-name"),
    ("aws.amazon.com/neuron", "instance-accelerator-name"),
];

pub(super) fn table(ask: &Ask, found: &Found, is_wide: bool) -> String {
    let mut text = String::new();
    if found.rows.is_empty() {
        let _ = writeln!(text, "No instance type of {} does all of this.", ask.region);
        for (wish, n_types) in &found.met_alone {
            let _ = writeln!(text, "  {wish}: {n_types} of {} types", found.n_types);
        }
        return text;
    }
    let mut lines = vec![head(ask, is_wide)];
    for row in &found.rows {
        for (family, share) in &row.by_family {
            lines.push(line(ask, row, *family, share, is_wide));
        }
    }
    write_columns(&mut text, &lines);
    let _ = writeln!(
        text,
        "\n{} of {} types in {}. Catalogue of {}, prices of {}; ~ is an estimate.",
        found.rows.len(),
        found.n_types,
        ask.region,
        catalogue_date(),
        price_date()
    );
    for note in min_values(ask, found).iter().chain(&ask.notes) {
        let _ = writeln!(text, "{note}");
    }
    text
}

fn head(ask: &Ask, is_wide: bool) -> Vec<String> {
    let mut head = vec!["NAME", "ARCH", "VCPU", "MEMORY", "ACCELERATORS", "ON-DEMAND", "SPOT"];
    if ask.families.len() > 1 {
        head.push("AMI FAMILY");
    }
    head.extend(["PODS", "ALLOCATABLE CPU", "ALLOCATABLE MEMORY"]);
    if is_wide {
        head.extend(["STORAGE", "LOCAL DISK GB", "NETWORK MBPS", "EBS MBPS", "CPU", "HYPERVISOR", "ZONES"]);
    }
    head.into_iter().map(str::to_owned).collect()
}

fn line(ask: &Ask, row: &Row, family: AmiFamily, share: &Share, is_wide: bool) -> Vec<String> {
    let label = |key: &str| row.labels.get(key).map_or("-".to_owned(), ToString::to_string);
    let ours = |key: &str| label(&format!("karpenter.k8s.aws/{key}"));
    let architectures = row.requirements.get(kerf_model::labels::ARCH);
    let architectures: Vec<&str> =
        architectures.into_iter().flat_map(|arch| arch.values.iter().map(|value| &**value)).collect();
    let mut cells = vec![
        row.name.to_string(),
        architectures.join(","),
        row.capacity.get(CPU).units().to_string(),
        gibibytes(row.memory_mib),
        accelerators(row),
        price(row.offering(CapacityType::OnDemand)),
        price(row.offering(CapacityType::Spot)),
    ];
    if ask.families.len() > 1 {
        cells.push(family.as_str().to_owned());
    }
    cells.extend([
        share.capacity.get(PODS).units().to_string(),
        share.allocatable.get(CPU).to_string(),
        share.allocatable.get(MEMORY).to_string(),
    ]);
    if is_wide {
        cells.extend([
            share.allocatable.get(kerf_model::resources::EPHEMERAL_STORAGE).to_string(),
            ours("instance-local-nvme"),
            ours("instance-network-bandwidth"),
            ours("instance-ebs-bandwidth"),
            ours("instance-cpu-manufacturer"),
            ours("instance-hypervisor"),
            zones(ask, row),
        ]);
    }
    cells.into_iter().map(|cell| if cell.is_empty() { "-".to_owned() } else { cell }).collect()
}

/// `7.5Gi`, `512Mi` as `0.5Gi`.
fn gibibytes(mebibytes: u64) -> String {
    let text = format!("{:.2}", mebibytes as f64 / 1024.0);
    format!("{}Gi", text.trim_end_matches('0').trim_end_matches('.'))
}

fn accelerators(row: &Row) -> String {
    let of_kind = |(resource, key): &(&str, &str)| {
        let count = row.capacity.get(resource);
        let name = row.labels.get(format!("karpenter.k8s.aws/{key}").as_str()).map_or("", |name| name);
        (count > Quantity::ZERO).then(|| format!("{} {}", count.units(), name).trim_end().to_owned())
    };
    ACCELERATORS.iter().filter_map(of_kind).collect::<Vec<_>>().join(", ")
}

fn price(offering: Option<&Offering>) -> String {
    offering.map_or("-".to_owned(), |offering| {
        format!("{}{}", offering.price, if offering.price_is_estimate { "~" } else { "" })
    })
}

/// The letters, where they are of this region.
fn zones(ask: &Ask, row: &Row) -> String {
    row.zones()
        .into_iter()
        .map(|zone| zone.strip_prefix(ask.region.as_str()).unwrap_or(zone))
        .collect::<Vec<_>>()
        .join(",")
}

fn write_columns(text: &mut String, lines: &[Vec<String>]) {
    let n_columns = lines.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..n_columns).map(|column| width(column).unwrap_or_default()).collect();
    for line in lines {
        let mut padded = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(padded, "{cell:<width$}   ");
        }
        let _ = writeln!(text, "{}", padded.trim_end());
    }
}

/// The pool's minValues that what was found cannot give.
fn min_values(ask: &Ask, found: &Found) -> Vec<String> {
    let mut notes = Vec::new();
    for (key, requirement) in ask.requirements.iter() {
        let Some(wanted) = requirement.min_values else {
            continue;
        };
        let of_rows = found.rows.iter().filter_map(|row| row.requirements.get(key));
        let values: BTreeSet<_> =
            of_rows.flat_map(|offered| &offered.values).filter(|value| requirement.has(value)).collect();
        if values.len() < wanted as usize {
            notes.push(format!("minValues of {key} asks for {wanted} different values; there are {}", values.len()));
        }
    }
    notes
}

pub(super) fn json(ask: &Ask, found: &Found) -> String {
    let page = json!({
        "region": ask.region,
        "catalogue": catalogue_date(),
        "prices": price_date(),
        "instanceTypes": found.rows.iter().map(of_row).collect::<Vec<_>>(),
        "notes": min_values(ask, found).into_iter().chain(ask.notes.iter().cloned()).collect::<Vec<_>>(),
    });
    format!("{page:#}\n")
}

fn of_row(row: &Row) -> Value {
    let by_family = |amounts: fn(&Share) -> &Resources| -> Value {
        row.by_family.iter().map(|(family, share)| (family.as_str().to_owned(), resources(amounts(share)))).collect()
    };
    json!({
        "name": row.name.as_str(),
        "price": row.cheapest().dollars(),
        "memoryMiB": row.memory_mib,
        "labels": row.labels.iter().map(|(key, value)| (key.to_string(), json!(&**value))).collect::<Value>(),
        "capacity": by_family(|share| &share.capacity),
        "allocatable": by_family(|share| &share.allocatable),
        "offerings": row.offerings.iter().map(offering).collect::<Vec<_>>(),
    })
}

fn offering(offering: &Offering) -> Value {
    json!({
        "zone": offering.zone().map(|zone| zone.to_string()),
        "capacityType": offering.capacity_type().map(CapacityType::as_str),
        "price": offering.price.dollars(),
        "isEstimate": offering.price_is_estimate,
    })
}

fn resources(amounts: &Resources) -> Value {
    amounts.iter().map(|(name, amount)| (name.to_string(), json!(amount.to_string()))).collect()
}
