//! Writes instance types in the format that [`super::parse`] reads.

use super::{INSTANCE_CPU, INSTANCE_FAMILY, INSTANCE_MEMORY, INSTANCE_SIZE, default_overhead};
use kerf_model::{InstanceType, Offering, Operator, Requirement, Resources, labels};
use serde::Serialize;
use std::collections::BTreeMap;

/// The inverse of reading, one type per line.
///
/// Caveats: the format has no word for what a type lacks, nor for a label with several values, except the operating
/// system. Such requirements, overrides and volume limits are left out.
pub fn render(types: &[InstanceType]) -> String {
    let lines: Vec<String> = types.iter().map(line).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

fn line(it: &InstanceType) -> String {
    // Plain strings, numbers and maps of strings always serialise.
    serde_json::to_string(&written_type(it)).unwrap_or_default()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenType<'a> {
    name: &'a str,
    architecture: &'a str,
    operating_systems: Vec<&'a str>,
    resources: BTreeMap<&'a str, String>,
    offerings: Vec<WrittenOffering<'a>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead: Option<BTreeMap<&'a str, String>>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct WrittenOffering<'a> {
    price: f64,
    available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation_capacity: Option<u32>,
    requirements: Vec<WrittenRequirement<'a>>,
}

#[derive(Serialize)]
struct WrittenRequirement<'a> {
    key: &'a str,
    operator: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<String>,
}

fn written_type(it: &InstanceType) -> WrittenType<'_> {
    let first = |key: &str| {
        it.requirements.get(key).and_then(|requirement| requirement.values.first()).map_or("", |value| value)
    };
    let systems = it
        .requirements
        .get(labels::OS)
        .map_or_else(Vec::new, |requirement| requirement.values.iter().map(|v| &**v).collect());
    WrittenType {
        name: it.name.as_str(),
        architecture: first(labels::ARCH),
        operating_systems: systems,
        resources: quantities(&it.capacity),
        offerings: it.offerings.iter().map(written_offering).collect(),
        labels: extra_labels(it),
        overhead: (it.overhead != default_overhead()).then(|| quantities(&it.overhead)),
    }
}

fn written_offering(offering: &Offering) -> WrittenOffering<'_> {
    WrittenOffering {
        price: offering.price.dollars(),
        available: offering.available,
        reservation_capacity: offering.reservation_capacity,
        requirements: offering
            .requirements
            .iter()
            .flat_map(|(key, requirement)| written_requirements(key, requirement))
            .collect(),
    }
}

/// Two entries where both bounds are set; the format has one operator each.
fn written_requirements<'a>(key: &'a str, requirement: &Requirement) -> Vec<WrittenRequirement<'a>> {
    let entry = |operator: Operator, values| WrittenRequirement { key, operator: operator.as_str(), values };
    let bound = |operator, bound: Option<i64>| bound.map(|bound| entry(operator, vec![bound.to_string()]));
    let mut entries = Vec::new();
    entries.extend(bound(Operator::Gte, requirement.at_least));
    entries.extend(bound(Operator::Lte, requirement.at_most));
    let plain = requirement.operator();
    if entries.is_empty() || plain != Operator::Exists {
        entries.push(entry(plain, requirement.values.iter().map(ToString::to_string).collect()));
    }
    entries
}

/// Labels with one value that reading would not derive by itself.
fn extra_labels(it: &InstanceType) -> BTreeMap<&str, &str> {
    let derived = [
        labels::INSTANCE_TYPE,
        labels::ARCH,
        labels::OS,
        labels::ZONE,
        labels::CAPACITY_TYPE,
        INSTANCE_SIZE,
        INSTANCE_FAMILY,
        INSTANCE_CPU,
        INSTANCE_MEMORY,
    ];
    let extra = it.requirements.iter().filter(|(key, _)| !derived.contains(&&***key));
    extra.filter_map(|(key, requirement)| Some((&**key, &**requirement.single()?))).collect()
}

fn quantities(resources: &Resources) -> BTreeMap<&str, String> {
    resources.0.iter().map(|(name, amount)| (&**name, amount.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::{NodeClassFacts, instance_types};
    use crate::kwok::parse;

    #[test]
    fn ec2_types_keep_their_figures_and_labels_on_the_way_through_a_file() {
        let types = instance_types("eu-west-1", &NodeClassFacts::default()).expect("eu-west-1");
        let parsed = parse(&render(&types));
        assert_eq!(parsed.problems, []);
        assert_eq!(parsed.types.len(), types.len());
        for (ours, read) in types.iter().zip(&parsed.types) {
            assert_eq!((&ours.name, &ours.capacity, &ours.overhead), (&read.name, &read.capacity, &read.overhead));
            assert_eq!(ours.offerings.len(), read.offerings.len(), "{}", ours.name);
            let family = "karpenter.k8s.aws/instance-family";
            assert_eq!(ours.requirements.get(family), read.requirements.get(family), "{}", ours.name);
        }
    }
}
