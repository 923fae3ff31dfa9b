//! Nodes: what each has, what its pods ask for, how old it is, and how full the cluster is. Duty `metrics.node`.
//!
//! A node's figures are added up again only when the node or one of its pods changed.

use super::{Renewal, resource_type, seconds, units};
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::metrics::families::{
    CLUSTER_UTILIZATION_PERCENT, NODES_ALLOCATABLE, NODES_CURRENT_LIFETIME_SECONDS, NODES_SYSTEM_OVERHEAD,
    NODES_TOTAL_DAEMON_LIMITS, NODES_TOTAL_DAEMON_REQUESTS, NODES_TOTAL_POD_LIMITS, NODES_TOTAL_POD_REQUESTS,
};
use crate::metrics::{Family, Page, Source};
use crate::world::{Change, World};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use kerf_model::{Quantity, Resources, Text, UnixMillis};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug, Default)]
pub struct NodeGauges {
    board: Arc<Board>,
    changed: BTreeSet<Text>,
    loads: BTreeMap<Text, Arc<Load>>,
    renewal: Renewal,
    is_attached: bool,
}

/// What a node has and what is asked of it, by resource.
type Load = Vec<(Text, [Quantity; 6])>;

/// The columns of a [`Load`].
const FAMILIES: [&Family; 6] = [
    &NODES_ALLOCATABLE,
    &NODES_TOTAL_POD_REQUESTS,
    &NODES_TOTAL_POD_LIMITS,
    &NODES_TOTAL_DAEMON_REQUESTS,
    &NODES_TOTAL_DAEMON_LIMITS,
    &NODES_SYSTEM_OVERHEAD,
];
const ALLOCATABLE: usize = 0;
const POD_REQUESTS: usize = 1;
const POD_LIMITS: usize = 2;
const DAEMON_REQUESTS: usize = 3;
const DAEMON_LIMITS: usize = 4;
const OVERHEAD: usize = 5;

#[derive(Debug, Default)]
struct Board(Mutex<Arc<Sheet>>);

#[derive(Debug, Default)]
struct Sheet {
    nodes: Vec<(Arc<Node>, bool, Arc<Load>)>,
    /// The names of the labels that every node's series carry, and the keys they stand for.
    extra: Vec<(String, Text)>,
}

impl Duty for NodeGauges {
    fn name(&self) -> &'static str {
        "metrics.node"
    }

    fn observe(&mut self, change: &Change, world: &World) {
        match change {
            Change::Pod { before, after, .. } => {
                let nodes = [before, after].into_iter().flatten().map(|pod| &pod.node);
                self.changed.extend(nodes.filter(|node| world.nodes.contains_key(*node)).cloned());
            }
            Change::Node { name, after: Some(_), .. } => {
                self.changed.insert(name.clone());
            }
            Change::Node { name, after: None, .. } => {
                self.changed.remove(name);
                self.loads.remove(name);
            }
            Change::Claim { .. } => {}
            _ => return,
        }
        self.renewal.is_dirty = true;
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !self.is_attached {
            desk.metrics.attach("nodes", self.board.clone());
            self.is_attached = true;
        }
        if self.renewal.is_due(desk.now) {
            for name in std::mem::take(&mut self.changed) {
                if let Some(node) = desk.world.nodes.get(&name) {
                    self.loads.insert(name, Arc::new(load(node, desk.world)));
                }
            }
            let utilization = utilization(self.loads.values().map(|load| &**load));
            let series = utilization.iter().map(|(resource, percent)| (vec![resource.as_str()], *percent));
            desk.metrics.replace(&CLUSTER_UTILIZATION_PERCENT, series);
            self.board.publish(self.sheet(desk));
        }
        self.renewal.wish()
    }

    fn done(&mut self, _: &Text, _: Outcome, _: &mut Desk<'_>) {}
}

impl NodeGauges {
    fn sheet(&self, desk: &Desk<'_>) -> Sheet {
        let nodes = self.loads.iter().filter_map(|(name, load)| {
            let node = desk.world.nodes.get(name)?;
            Some((node.clone(), desk.world.claim_of_node(node).is_some(), load.clone()))
        });
        Sheet { nodes: nodes.collect(), extra: extra_labels(desk.options.mirror.scheduling.well_known.iter()) }
    }
}

/// One label per well-known label of a node: the part of its key behind the slash. Two keys with one such part share it, and the
/// first has it.
pub fn extra_labels<'a>(well_known: impl Iterator<Item = &'a Text>) -> Vec<(String, Text)> {
    let mut extra: BTreeMap<String, Text> = BTreeMap::new();
    for key in well_known {
        let name = key.rsplit('/').next().unwrap_or(key).replace(['-', '.'], "_");
        if !NODES_ALLOCATABLE.labels.contains(&name.as_str()) {
            extra.entry(name).or_insert_with(|| key.clone());
        }
    }
    extra.into_iter().collect()
}

fn load(node: &Node, world: &World) -> Load {
    let mut load: BTreeMap<Text, [Quantity; 6]> = BTreeMap::new();
    let status = node.status.as_ref();
    let allocatable = amounts(status.and_then(|status| status.allocatable.as_ref()));
    let mut overhead = amounts(status.and_then(|status| status.capacity.as_ref()));
    overhead.subtract(&allocatable);
    overhead.floor_at_zero();
    let mut add = |column: usize, amounts: &Resources| {
        for (resource, amount) in amounts.iter() {
            let total = &mut load.entry(resource.clone()).or_default()[column];
            *total = Quantity::from_milli(total.milli.saturating_add(amount.milli));
        }
    };
    add(ALLOCATABLE, &allocatable);
    add(OVERHEAD, &overhead);
    let name = node.metadata.name.as_deref().unwrap_or_default();
    for pod in world.pods_on(name).filter(|pod| !pod.is_terminal()) {
        let (requests, limits) =
            if pod.is_daemon() { (DAEMON_REQUESTS, DAEMON_LIMITS) } else { (POD_REQUESTS, POD_LIMITS) };
        if let Some(of_pod) = world.mirror.pod_amounts(&pod.id) {
            add(requests, of_pod.requests);
            add(limits, of_pod.limits);
        }
    }
    load.into_iter().collect()
}

fn amounts(written: Option<&BTreeMap<String, QuantityText>>) -> Resources {
    let mut amounts = Resources::new();
    for (resource, text) in written.into_iter().flatten() {
        // What cannot be read is in the mirror's notes.
        if let Ok(amount) = Quantity::parse(&text.0) {
            amounts.set(resource, amount);
        }
    }
    amounts
}

/// Requests of all pods on nodes, of what the nodes have, in percent.
fn utilization<'a>(loads: impl Iterator<Item = &'a Load>) -> BTreeMap<String, f64> {
    let mut totals: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for (resource, columns) in loads.flatten() {
        let (asked, there) = totals.entry(resource).or_default();
        *asked += units(columns[POD_REQUESTS]) + units(columns[DAEMON_REQUESTS]);
        *there += units(columns[ALLOCATABLE]);
    }
    let percent = |(resource, (asked, there)): (&str, (f64, f64))| {
        (there > 0.0).then(|| (resource_type(resource), 100.0 * asked / there))
    };
    totals.into_iter().filter_map(percent).collect()
}

impl Board {
    fn publish(&self, sheet: Sheet) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(sheet);
    }
}

impl Source for Board {
    fn render(&self, page: &mut Page, now: UnixMillis) {
        let sheet = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (column, family) in FAMILIES.into_iter().enumerate() {
            page.begin_family(family);
            for (node, is_managed, load) in &sheet.nodes {
                for (resource, columns) in load.iter().filter(|(_, columns)| !columns[column].is_zero()) {
                    let resource = resource_type(resource);
                    let labels = [("resource_type", resource.as_str())].into_iter();
                    page.sample_of(family.name, labels.chain(sheet.labels(node, *is_managed)), units(columns[column]));
                }
            }
        }
        page.begin_family(&NODES_CURRENT_LIFETIME_SECONDS);
        for (node, is_managed, _) in &sheet.nodes {
            if let Some(created) = &node.metadata.creation_timestamp {
                let age = seconds(UnixMillis(created.0.as_millisecond()), now);
                page.sample_of(NODES_CURRENT_LIFETIME_SECONDS.name, sheet.labels(node, *is_managed), age);
            }
        }
    }
}

impl Sheet {
    fn labels<'a>(&'a self, node: &'a Node, is_managed: bool) -> impl Iterator<Item = (&'a str, &'a str)> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let phase = node.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        let managed = if is_managed { "true" } else { "false" };
        let extra = self.extra.iter().map(|(label, key)| {
            let value = node.metadata.labels.as_ref().and_then(|labels| labels.get(&**key));
            (label.as_str(), value.map(String::as_str).unwrap_or_default())
        });
        [("node_name", name), ("phase", phase), ("managed", managed)].into_iter().chain(extra)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_nodes_are_named_by_the_end_of_their_key() {
        let keys: Vec<Text> =
            ["karpenter.sh/capacity-type", "topology.kubernetes.io/zone", "karpenter.kwok.sh/instance-cpu", "a/phase"]
                .map(Into::into)
                .to_vec();
        let names: Vec<String> = extra_labels(keys.iter()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["capacity_type", "instance_cpu", "zone"]);
    }

    #[test]
    fn a_cluster_is_as_full_as_its_pods_ask_of_what_its_nodes_have() {
        let cores = |of: [i64; 6]| of.map(Quantity::from_units);
        let one: Load = vec![("cpu".into(), cores([4, 1, 9, 1, 9, 1])), ("gpu".into(), cores([0, 1, 0, 0, 0, 0]))];
        let other: Load = vec![("cpu".into(), cores([4, 0, 0, 0, 0, 0])), ("ephemeral-storage".into(), cores([8; 6]))];
        let utilization = utilization([&one, &other].into_iter());
        let expected = [("cpu".to_owned(), 25.0), ("ephemeral_storage".to_owned(), 200.0)];
        assert_eq!(utilization.into_iter().collect::<Vec<_>>(), expected);
    }
}
