//! Nodes and NodeClaims, merged into one fact per machine.
//!
//! ```text
//! NodeClaim ──providerID── Node      one machine, seen from both sides
//! NodeClaim alone                    on its way
//! Node alone                         not ours, or its claim was not shown to us
//! ```

use crate::read::{self, Reader};
use crate::requirement::{self, Author, Written};
use k8s_openapi::api::core::v1 as core;
use kerf_api::LabelRules;
use kerf_api::NodeClaim;
use kerf_model::{
    CapacityType, Effect, Labels, Node, NodeName, NodeStage, PoolName, Quantity, Requirements, Resources, Taint, Text,
    TypeName, labels, resources,
};
use std::collections::BTreeMap;

/// Annotation of a claim: what its node may have at most, as a JSON object of quantities. Whoever creates the claim writes it;
/// it counts until the cloud has said what was really bought.
pub const RESERVES: &str = "kerf.dev/reserves";

#[derive(Debug, Clone)]
pub(crate) struct NodeFact {
    name: Text,
    labels: Labels,
    provider_id: Option<Text>,
    taints: Vec<Taint>,
    allocatable: Resources,
    capacity: Resources,
    is_deleting: bool,
}

impl NodeFact {
    pub(crate) fn read(reader: &mut Reader, node: &core::Node) -> Self {
        let spec = node.spec.clone().unwrap_or_default();
        let status = node.status.as_ref();
        let mut taints = reader.taints("spec.taints", spec.taints.as_ref());
        let cordon =
            Taint { key: "node.kubernetes.io/unschedulable".into(), value: "".into(), effect: Effect::NoSchedule };
        if spec.unschedulable == Some(true) && !taints.iter().any(|taint| same(taint, &cordon)) {
            taints.push(cordon);
        }
        Self {
            name: node.metadata.name.as_deref().unwrap_or_default().into(),
            labels: read::labels(node.metadata.labels.as_ref()),
            provider_id: spec.provider_id.as_deref().filter(|id| !id.is_empty()).map(Into::into),
            taints,
            allocatable: reader.resources("status.allocatable", status.and_then(|s| s.allocatable.as_ref())),
            capacity: reader.resources("status.capacity", status.and_then(|s| s.capacity.as_ref())),
            is_deleting: read::is_deleting(&node.metadata),
        }
    }

    fn has(&self, label: &str) -> bool {
        self.labels.get(label).map(|value| &**value) == Some("true")
    }
}

#[derive(Debug, Clone)]
pub(crate) struct NodeClaimFact {
    pub(crate) name: Text,
    labels: Labels,
    requirements: Requirements,
    taints: Vec<Taint>,
    startup_taints: Vec<Taint>,
    requests: Resources,
    allocatable: Resources,
    capacity: Resources,
    reserves: Resources,
    provider_id: Option<Text>,
    node_name: Option<Text>,
    is_deleting: bool,
    is_leaving: bool,
    is_rebooting: bool,
}

impl NodeClaimFact {
    pub(crate) fn read(reader: &mut Reader, claim: &NodeClaim, rules: &LabelRules) -> Self {
        let status = claim.status.clone().unwrap_or_default();
        let mut requirements = Requirements::new();
        for (position, written) in claim.spec.requirements.iter().enumerate() {
            let field = format!("spec.requirements[{position}]");
            let written = Written::of_pool(written);
            if let Some(message) = requirement::add(reader, &field, &mut requirements, written, Author::Pool, rules) {
                reader.note(field, message);
            }
        }
        let is_rebooting = read::is_true(&status.conditions, "Rebooting");
        let text = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(Text::from);
        Self {
            name: claim.metadata.name.as_deref().unwrap_or_default().into(),
            labels: read::labels(claim.metadata.labels.as_ref()),
            requirements,
            taints: reader.taints("spec.taints", claim.spec.taints.as_ref()),
            startup_taints: reader.taints("spec.startupTaints", claim.spec.startup_taints.as_ref()),
            requests: reader.resources(
                "spec.resources.requests",
                claim.spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()),
            ),
            allocatable: reader.resources("status.allocatable", status.allocatable.as_ref()),
            capacity: reader.resources("status.capacity", status.capacity.as_ref()),
            reserves: reserves(reader, claim),
            provider_id: text(status.provider_id.as_deref()),
            node_name: text(status.node_name.as_deref()),
            is_deleting: read::is_deleting(&claim.metadata),
            // A disruption command marks its nodes before it deletes their claims; a reboot only borrows the mark.
            is_leaving: read::is_deleting(&claim.metadata)
                || read::is_true(&status.conditions, "InstanceTerminating")
                || (read::is_true(&status.conditions, "DisruptionReason") && !is_rebooting),
            is_rebooting,
        }
    }

    /// What its node will be labelled with, as far as that is decided.
    fn future_labels(&self) -> Labels {
        let mut out: Labels = BTreeMap::new();
        for (key, requirement) in self.requirements.iter() {
            if let Some(value) = requirement.single() {
                out.insert(key.clone(), value.clone());
            }
        }
        out.extend(self.labels.iter().map(|(key, value)| (key.clone(), value.clone())));
        out
    }

    /// What its node has, or may have at most as long as nobody knows.
    fn capacity_at_most(&self) -> &Resources {
        [&self.capacity, &self.reserves].into_iter().find(|amounts| !amounts.is_empty()).unwrap_or(&self.requests)
    }
}

fn reserves(reader: &mut Reader, claim: &NodeClaim) -> Resources {
    let Some(text) = claim.metadata.annotations.as_ref().and_then(|annotations| annotations.get(RESERVES)) else {
        return Resources::new();
    };
    let field = format!("metadata.annotations[{RESERVES}]");
    match serde_json::from_str(text) {
        Ok(amounts) => {
            let mut amounts = reader.resources(&field, Some(&amounts));
            // A node counts by being there.
            amounts.0.remove(resources::NODES);
            amounts
        }
        Err(error) => {
            reader.note(field, format!("{text:?} is not a JSON object of quantities: {error}"));
            Resources::new()
        }
    }
}

/// One node per machine, in order of name, without the pods that run there.
///
/// `startup_taints_of` tells what a pool puts on its nodes until they are ready, for nodes whose claim is not shown.
pub(crate) fn merge<'a>(
    nodes: impl Iterator<Item = &'a NodeFact>,
    claims: &[&'a NodeClaimFact],
    startup_taints_of: impl Fn(&str) -> Vec<Taint>,
) -> Vec<Node> {
    let of_pair = |pair| match pair {
        (Some(node), claim) => Some(of_node(node, claim, &startup_taints_of)),
        (None, claim) => claim.map(of_claim),
    };
    let mut out: Vec<Node> = pair(nodes, claims).into_iter().filter_map(of_pair).collect();
    out.sort_by(|a, b| a.name.cmp(&b.name));
    out
}

/// What each pool's machines have together, those on their way out left aside, and how many there are: what people read.
pub(crate) fn usage<'a>(
    nodes: impl Iterator<Item = &'a NodeFact>,
    claims: &[&'a NodeClaimFact],
) -> BTreeMap<PoolName, Resources> {
    sum(pair(nodes, claims), |claim| claim.is_leaving)
}

/// The same with those that are only marked to go: what limits are compared with. A mark may be taken back, and what was bought in the room of
/// such a node would be too much then.
pub(crate) fn bought<'a>(
    nodes: impl Iterator<Item = &'a NodeFact>,
    claims: &[&'a NodeClaimFact],
) -> BTreeMap<PoolName, Resources> {
    sum(pair(nodes, claims), |claim| claim.is_deleting)
}

fn sum(
    machines: Vec<(Option<&NodeFact>, Option<&NodeClaimFact>)>,
    goes: impl Fn(&NodeClaimFact) -> bool,
) -> BTreeMap<PoolName, Resources> {
    let mut out: BTreeMap<PoolName, Resources> = BTreeMap::new();
    for (node, claim) in machines {
        let goes = node.is_some_and(|node| node.is_deleting) || claim.is_some_and(&goes);
        let of_node = node.and_then(|node| node.labels.get(labels::NODEPOOL));
        let pool = of_node.or_else(|| claim.and_then(|claim| claim.labels.get(labels::NODEPOOL)));
        let Some(pool) = pool.filter(|_| !goes) else {
            continue;
        };
        let total = out.entry(PoolName(pool.clone())).or_default();
        match (node, claim) {
            (Some(node), claim) => total.add(&capacity_of(node, claim)),
            (None, Some(claim)) => total.add(claim.capacity_at_most()),
            (None, None) => {}
        }
        total.set(resources::NODES, total.get(resources::NODES) + Quantity::from_units(1));
    }
    out
}

/// Every machine, from both sides.
fn pair<'a>(
    nodes: impl Iterator<Item = &'a NodeFact>,
    claims: &[&'a NodeClaimFact],
) -> Vec<(Option<&'a NodeFact>, Option<&'a NodeClaimFact>)> {
    let mut unmatched: Vec<Option<&NodeClaimFact>> = claims.iter().map(|claim| Some(*claim)).collect();
    let mut by_provider: BTreeMap<&str, usize> = BTreeMap::new();
    let mut by_node: BTreeMap<&str, usize> = BTreeMap::new();
    for (position, claim) in claims.iter().enumerate() {
        if let Some(id) = &claim.provider_id {
            by_provider.entry(id).or_insert(position);
        }
        if let Some(name) = &claim.node_name {
            by_node.entry(name).or_insert(position);
        }
    }
    // A node may be there before its claim knows which machine it got. The kwok provider calls the host like the claim; counted
    // twice, two pods that must not meet would.
    let nameless: BTreeMap<&str, usize> = claims
        .iter()
        .enumerate()
        .filter(|(_, claim)| claim.provider_id.is_none())
        .map(|(position, claim)| (&*claim.name, position))
        .collect();
    let mut out = Vec::new();
    for node in nodes {
        let position = node
            .provider_id
            .as_deref()
            .and_then(|id| by_provider.get(id))
            .or_else(|| by_node.get(&*node.name))
            .or_else(|| node.labels.get(labels::HOSTNAME).and_then(|hostname| nameless.get(&**hostname)));
        out.push((Some(node), position.and_then(|position| unmatched[*position].take())));
    }
    out.extend(unmatched.into_iter().flatten().map(|claim| (None, Some(claim))));
    out
}

fn is_initialized(node: &NodeFact, claim: Option<&NodeClaimFact>) -> bool {
    let is_managed = claim.is_some() || node.labels.contains_key(labels::NODEPOOL);
    let is_rebooting = claim.is_some_and(|claim| claim.is_rebooting);
    !is_managed || (node.has(labels::INITIALIZED) && !is_rebooting)
}

/// What a node has; until it is initialized, what it does not say is as the cloud promised.
fn capacity_of(node: &NodeFact, claim: Option<&NodeClaimFact>) -> Resources {
    let mut capacity = node.capacity.clone();
    if let Some(claim) = claim
        && !is_initialized(node, Some(claim))
    {
        fill(&mut capacity, &claim.capacity);
    }
    capacity
}

fn of_node(node: &NodeFact, claim: Option<&NodeClaimFact>, startup_taints_of: impl Fn(&str) -> Vec<Taint>) -> Node {
    let pool = node
        .labels
        .get(labels::NODEPOOL)
        .or_else(|| claim.and_then(|claim| claim.labels.get(labels::NODEPOOL)))
        .cloned();
    let is_initialized = is_initialized(node, claim);
    let is_registered = is_initialized || node.has(labels::REGISTERED);

    let mut labels_now = node.labels.clone();
    let mut taints = node.taints.clone();
    if let Some(claim) = claim
        && !is_registered
    {
        for (key, value) in claim.future_labels() {
            labels_now.entry(key).or_insert(value);
        }
        taints = claim.taints.clone();
    }
    if !is_initialized {
        let startup = match (claim, &pool) {
            (Some(claim), _) => claim.startup_taints.clone(),
            (None, Some(pool)) => startup_taints_of(pool),
            (None, None) => Vec::new(),
        };
        taints.retain(|taint| !is_ephemeral(taint) && !startup.iter().any(|start| same(start, taint)));
    }
    let mut allocatable = node.allocatable.clone();
    if let Some(claim) = claim
        && !is_initialized
    {
        fill(&mut allocatable, &claim.allocatable);
    }
    let capacity = capacity_of(node, claim);
    let is_leaving = node.is_deleting || claim.is_some_and(|claim| claim.is_leaving);
    let stage = match (is_leaving, is_initialized) {
        (true, _) => NodeStage::Leaving,
        (false, true) => NodeStage::Initialized,
        (false, false) => NodeStage::InFlight,
    };
    finish(&node.name, pool, stage, labels_now, taints, allocatable, capacity)
}

/// A node that has not appeared yet. Until the cloud has answered, it has at least what was asked for, and at most what its
/// creator reserved: pods count on the least, limits on the most.
fn of_claim(claim: &NodeClaimFact) -> Node {
    let labels_then = claim.future_labels();
    let allocatable = if claim.allocatable.is_empty() { &claim.requests } else { &claim.allocatable };
    let stage = if claim.is_leaving { NodeStage::Leaving } else { NodeStage::InFlight };
    let pool = labels_then.get(labels::NODEPOOL).cloned();
    let mut node = finish(
        &claim.name,
        pool,
        stage,
        labels_then,
        claim.taints.clone(),
        allocatable.clone(),
        claim.capacity_at_most().clone(),
    );
    if let Some(name) = &claim.node_name {
        node.name = NodeName(name.clone());
    }
    node
}

fn finish(
    name: &Text,
    pool: Option<Text>,
    stage: NodeStage,
    labels_now: Labels,
    taints: Vec<Taint>,
    allocatable: Resources,
    capacity: Resources,
) -> Node {
    Node {
        name: NodeName(name.clone()),
        pool: pool.map(PoolName),
        stage,
        hostname: labels_now.get(labels::HOSTNAME).unwrap_or(name).clone(),
        instance_type: [labels::INSTANCE_TYPE, "beta.kubernetes.io/instance-type"]
            .into_iter()
            .find_map(|key| labels_now.get(key))
            .map(|name| TypeName(name.clone())),
        labels: labels_now,
        taints,
        allocatable,
        capacity,
        used: Resources::new(),
        used_by_daemons: Resources::new(),
        host_ports: Vec::new(),
        attached: BTreeMap::new(),
        attach_limits: BTreeMap::new(),
        price: None,
    }
}

/// How the machine is paid for. Other tools' node groups have labels of their own; without any, on demand.
pub(crate) fn capacity_type(labels_now: &Labels) -> CapacityType {
    let get = |key: &str| labels_now.get(key).map(|value| &**value);
    get(labels::CAPACITY_TYPE).and_then(CapacityType::parse).unwrap_or_else(|| {
        match get("eks.amazonaws.com/capacityType") {
            Some("SPOT") => CapacityType::Spot,
            _ => CapacityType::OnDemand,
        }
    })
}

/// Entries that are zero or missing come from the claim.
fn fill(amounts: &mut Resources, from: &Resources) {
    for (name, amount) in from.iter() {
        if amounts.get(name).is_zero() {
            amounts.set(name, amount);
        }
    }
}

fn same(a: &Taint, b: &Taint) -> bool {
    a.key == b.key && a.effect == b.effect
}

/// Taints that go away on their own once a node is up.
fn is_ephemeral(taint: &Taint) -> bool {
    matches!(
        (&*taint.key, taint.effect),
        ("node.kubernetes.io/not-ready", Effect::NoSchedule | Effect::NoExecute)
            | ("node.kubernetes.io/unreachable", Effect::NoSchedule)
            | ("node.cloudprovider.kubernetes.io/uninitialized", Effect::NoSchedule)
            | ("karpenter.sh/unregistered", Effect::NoExecute)
            | ("karpenter.sh/rebooting" | kerf_api::taints::EARLY_BINDING, Effect::NoSchedule)
    ) || taint.key.starts_with("readiness.k8s.io/")
}

/// What a claim asks of its machine, read as planning reads it. What cannot be read is left out: the mirror has a note of it.
#[derive(Debug, Clone)]
pub struct Asked {
    pub requirements: Requirements,
    pub requests: Resources,
    pub taints: Vec<Taint>,
    pub startup_taints: Vec<Taint>,
    pub labels: Labels,
}

impl Asked {
    pub fn of(claim: &NodeClaim, rules: &LabelRules) -> Self {
        let mut reader = Reader::new(&"watch".into(), "NodeClaim");
        let fact = NodeClaimFact::read(&mut reader, claim, rules);
        Self {
            requirements: fact.requirements,
            requests: fact.requests,
            taints: fact.taints,
            startup_taints: fact.startup_taints,
            labels: fact.labels,
        }
    }
}
