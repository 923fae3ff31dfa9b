//! The cluster's default spread constraints, for pods that have none of their own.

use crate::pods::{Owner, OwnerKind};
use crate::read::Reader;
use crate::shape;
use crate::workloads::WorkloadFact;
use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use kerf_model::{LabelSelector, Labels, Note, SelectorTerm, Spread, Text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Reads `{podTopologySpread: {defaultConstraints: [...]}}`. Anything odd refuses the whole file, because a cluster
/// must not run with half of its defaults.
pub fn read_scheduler_config(source: &str, config: &Value) -> Result<Vec<Spread>, Vec<Note>> {
    let mut reader = Reader::new(&source.into(), "scheduler configuration");
    let spreads = read(&mut reader, config);
    if reader.notes.is_empty() { Ok(spreads) } else { Err(reader.notes) }
}

fn read(reader: &mut Reader, config: &Value) -> Vec<Spread> {
    let Some(section) = only_field(reader, "", config, "podTopologySpread") else {
        return Vec::new();
    };
    let Some(list) = only_field(reader, "podTopologySpread", section, "defaultConstraints") else {
        return Vec::new();
    };
    let Some(items) = list.as_array() else {
        reader.note("podTopologySpread.defaultConstraints", "it is not a list");
        return Vec::new();
    };
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for (position, item) in items.iter().enumerate() {
        let field = format!("podTopologySpread.defaultConstraints[{position}]");
        let constraint: TopologySpreadConstraint = match serde_path_to_error::deserialize(item) {
            Ok(constraint) => constraint,
            Err(error) => {
                reader.note(format!("{field}.{}", error.path()), error.inner());
                continue;
            }
        };
        for unknown in item.as_object().into_iter().flat_map(|fields| fields.keys()) {
            const KNOWN: [&str; 6] =
                ["maxSkew", "topologyKey", "whenUnsatisfiable", "minDomains", "nodeAffinityPolicy", "nodeTaintsPolicy"];
            if !KNOWN.contains(&unknown.as_str()) {
                reader.note(format!("{field}.{unknown}"), "a default constraint has no such field");
            }
        }
        if let Some(spread) = shape::read_spread(reader, &field, &constraint) {
            if !seen.insert((spread.topology_key.clone(), spread.when)) {
                reader.note(&*field, "another constraint has the same topologyKey and whenUnsatisfiable");
            }
            out.push(spread);
        }
    }
    out
}

fn only_field<'a>(reader: &mut Reader, path: &str, value: &'a Value, name: &str) -> Option<&'a Value> {
    let Some(fields) = value.as_object() else {
        if !value.is_null() {
            reader.note(path, "it is not a mapping");
        }
        return None;
    };
    for unknown in fields.keys().filter(|key| *key != name) {
        let dot = if path.is_empty() { "" } else { "." };
        reader.note(format!("{path}{dot}{unknown}"), "there is no such field");
    }
    fields.get(name)
}

/// Which pods a default constraint spreads the given pod against: those that its Services and its controller select.
/// None where nothing selects it; then the defaults do not apply.
pub(crate) fn deduce_selector<'a>(
    labels: &Labels,
    services: impl Iterator<Item = &'a Labels>,
    owner: Option<&Owner>,
    workload: Option<&WorkloadFact>,
) -> Option<LabelSelector> {
    let mut merged: BTreeMap<&Text, &Text> = BTreeMap::new();
    for selector in services {
        let selects = selector.iter().all(|(key, value)| labels.get(key) == Some(value));
        if selects && !selector.is_empty() {
            merged.extend(selector);
        }
    }
    let mut extra: Vec<SelectorTerm> = Vec::new();
    if let (Some(owner), Some(selector)) = (owner, workload.and_then(|workload| workload.selector.as_ref())) {
        // A ReplicationController has plain labels only, and they take precedence over those of Services.
        if owner.kind == OwnerKind::ReplicationController {
            merged.retain(|key, _| !selector.terms.iter().any(|term| term.key == **key));
        }
        extra.extend(selector.terms.iter().cloned());
    }
    let terms: Vec<SelectorTerm> =
        merged.into_iter().map(|(key, value)| SelectorTerm::is_in(key, value)).chain(extra).collect();
    (!terms.is_empty()).then(|| LabelSelector::new(terms))
}
