//! Who is placed where once the plan is carried out.

use super::breach::Breach;
use super::market::Market;
use kerf_model::{
    Demand, Labels, Launch, Node, NodeStage, Plan, PodId, Pool, Readiness, Requirements, Snapshot, Step, Text, labels,
};
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct Picture<'a> {
    pub(super) snapshot: &'a Snapshot,
    /// Every node of the snapshot at its own index, then the claims.
    pub(super) hosts: Vec<Host<'a>>,
    /// For each demand, the hosts that get pods of it.
    pub(super) places: Vec<Vec<Place>>,
}

pub(super) struct Host<'a> {
    pub(super) name: Text,
    pub(super) site: Site<'a>,
    pub(super) contents: Vec<Content>,
}

pub(super) enum Site<'a> {
    Node(&'a Node),
    Claim(Claim<'a>),
}

pub(super) struct Claim<'a> {
    pub(super) launch: &'a Launch,
    pub(super) pool_idx: usize,
    pub(super) pool: &'a Pool,
    pub(super) supply: usize,
    /// The options that exist and are allowed, as indices into the pool's types.
    pub(super) options: Vec<usize>,
}

/// Newly placed pods of one demand.
pub(super) struct Content {
    pub(super) demand: usize,
    pub(super) n_pods: u32,
    /// The first of them, as an index into the snapshot's pods.
    pub(super) example: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) host: usize,
    pub(super) n_pods: u32,
    pub(super) example: usize,
}

impl<'a> Picture<'a> {
    pub(super) fn draw(
        snapshot: &'a Snapshot,
        plan: &'a Plan,
        market: &mut Market<'a>,
        breaches: &mut Vec<Breach>,
    ) -> Self {
        if plan.based_on != snapshot.revision {
            breaches.push(Breach::WrongRevision { plan: plan.based_on, snapshot: snapshot.revision });
        }
        let mut ledger = Ledger::new(snapshot);
        let mut picture = Self {
            snapshot,
            hosts: snapshot
                .nodes
                .iter()
                .map(|node| Host { name: node.name.0.clone(), site: Site::Node(node), contents: Vec::new() })
                .collect(),
            places: vec![Vec::new(); snapshot.demands.len()],
        };
        let nodes: BTreeMap<&str, usize> =
            snapshot.nodes.iter().enumerate().map(|(idx, node)| (node.name.as_str(), idx)).collect();
        let pools: BTreeMap<&str, usize> =
            snapshot.pools.iter().enumerate().map(|(idx, pool)| (pool.name.as_str(), idx)).collect();
        let mut claim_names = BTreeSet::new();
        for step in &plan.steps {
            match step {
                Step::Place(placement) => {
                    let contents = ledger.enter(&placement.pods, breaches);
                    let Some(&idx) = nodes.get(placement.node.as_str()) else {
                        breaches.push(Breach::NodeUnknown { node: placement.node.0.clone() });
                        continue;
                    };
                    if snapshot.nodes[idx].stage == NodeStage::Leaving {
                        breaches.push(Breach::NodeLeaving { node: placement.node.0.clone() });
                    }
                    // A node may be named by several steps.
                    merge(&mut picture.hosts[idx].contents, contents);
                }
                Step::Launch(launch) => {
                    let contents = ledger.enter(&launch.for_pods, breaches);
                    if !claim_names.insert(&launch.claim) {
                        breaches.push(Breach::ClaimNameTaken { claim: launch.claim.clone() });
                    }
                    if launch.for_pods.is_empty() {
                        breaches.push(Breach::LaunchForNobody { claim: launch.claim.clone() });
                    }
                    let Some(&pool_idx) = pools.get(launch.pool.as_str()) else {
                        breaches.push(Breach::PoolUnknown { claim: launch.claim.clone(), pool: launch.pool.clone() });
                        continue;
                    };
                    let claim = claim(snapshot, launch, pool_idx, market, breaches);
                    picture.hosts.push(Host { name: launch.claim.0.clone(), site: Site::Claim(claim), contents });
                }
            }
        }
        for (host, Host { contents, .. }) in picture.hosts.iter().enumerate() {
            for content in contents {
                picture.places[content.demand].push(Place { host, n_pods: content.n_pods, example: content.example });
            }
        }
        picture
    }

    pub(super) fn demand(&self, idx: usize) -> &'a Demand {
        &self.snapshot.demands[idx]
    }

    pub(super) fn pod(&self, idx: usize) -> PodId {
        self.snapshot.pods[idx].id.clone()
    }

    pub(super) fn stays(&self, host: usize) -> bool {
        !matches!(&self.hosts[host].site, Site::Node(node) if node.stage == NodeStage::Leaving)
    }

    pub(super) fn claims(&self) -> impl Iterator<Item = (&Host<'a>, &Claim<'a>)> {
        self.hosts.iter().filter_map(|host| match &host.site {
            Site::Claim(claim) => Some((host, claim)),
            Site::Node(_) => None,
        })
    }
}

/// Finds the options among the pool's types, and notes what makes the claim a stranger to its pool.
fn claim<'a>(
    snapshot: &'a Snapshot,
    launch: &'a Launch,
    pool_idx: usize,
    market: &mut Market<'a>,
    breaches: &mut Vec<Breach>,
) -> Claim<'a> {
    let pool = &snapshot.pools[pool_idx];
    let name = || launch.claim.clone();
    if pool.is_static || pool.readiness != Readiness::Ready {
        breaches.push(Breach::PoolCannotGrow { claim: name(), pool: pool.name.clone() });
    }
    let mut stranger = |what: &str| {
        breaches.push(Breach::NotOfItsPool { claim: launch.claim.clone(), what: what.into() });
    };
    if launch.taints != pool.taints || launch.startup_taints != pool.startup_taints {
        stranger("a taint");
    }
    if launch.node_class != pool.node_class {
        stranger("the node class");
    }
    let written = Requirements::from_labels(&launch.labels);
    let template = market.template(pool_idx);
    for (what, side) in [("a label", &written), ("a requirement", &launch.requirements)] {
        if !template.intersects(side) || !written.intersects(side) {
            stranger(what);
        }
    }
    let (supply, instance_types) = market.supply(pool_idx, launch);
    let mut options = Vec::with_capacity(launch.any_of.len());
    let mut seen = BTreeSet::new();
    for option in launch.any_of.iter() {
        let name_allowed = instance_types.as_ref().is_none_or(|allowed| allowed.has(option.instance_type.as_str()));
        match market.type_idx(pool_idx, &option.instance_type) {
            Some(idx) if name_allowed && market.fit(supply, idx).is_allowed => {
                if !seen.insert(idx) {
                    breaches.push(Breach::OptionTwice { claim: name(), option: option.instance_type.clone() });
                }
                options.push(idx);
            }
            _ => breaches.push(Breach::OptionNotAllowed { claim: name(), option: option.instance_type.clone() }),
        }
    }
    Claim { launch, pool_idx, pool, supply, options }
}

/// Which pending pods have been placed so far.
struct Ledger<'a> {
    snapshot: &'a Snapshot,
    pods: BTreeMap<&'a PodId, usize>,
    is_placed: Vec<bool>,
}

impl<'a> Ledger<'a> {
    fn new(snapshot: &'a Snapshot) -> Self {
        Self {
            snapshot,
            pods: snapshot.pods.iter().enumerate().map(|(idx, pod)| (&pod.id, idx)).collect(),
            is_placed: vec![false; snapshot.pods.len()],
        }
    }

    fn enter(&mut self, pods: &[PodId], breaches: &mut Vec<Breach>) -> Vec<Content> {
        let mut by_demand: BTreeMap<usize, Content> = BTreeMap::new();
        for pod in pods {
            let Some(&idx) = self.pods.get(pod) else {
                breaches.push(Breach::PodUnknown { pod: pod.clone() });
                continue;
            };
            if std::mem::replace(&mut self.is_placed[idx], true) {
                breaches.push(Breach::PodPlacedTwice { pod: pod.clone() });
                continue;
            }
            let demand = self.snapshot.pods[idx].demand.0 as usize;
            by_demand.entry(demand).or_insert(Content { demand, n_pods: 0, example: idx }).n_pods += 1;
        }
        by_demand.into_values().collect()
    }
}

fn merge(into: &mut Vec<Content>, more: Vec<Content>) {
    for content in more {
        match into.iter_mut().find(|present| present.demand == content.demand) {
            Some(present) => present.n_pods += content.n_pods,
            None => into.push(content),
        }
    }
}

/// A label of a node, under today's name or one of the beta days.
pub(super) fn node_label<'n>(node: &'n Node, key: &str) -> Option<&'n Text> {
    if key == labels::HOSTNAME {
        return Some(&node.hostname);
    }
    node.labels.get(key).or_else(|| old_label(&node.labels, key))
}

fn old_label<'n>(labels: &'n Labels, key: &str) -> Option<&'n Text> {
    let has_old_names =
        matches!(key, labels::ZONE | labels::REGION | labels::ARCH | labels::OS | labels::INSTANCE_TYPE);
    has_old_names
        .then(|| labels.iter().find(|(name, _)| labels::normalise(name) == key))
        .flatten()
        .map(|(_, value)| value)
}

/// Whether a node has what is asked for. Nothing may be undefined: the node is there, and so are its labels.
pub(super) fn node_has(node: &Node, wanted: &Requirements) -> bool {
    wanted.iter().all(|(key, wanted)| match node_label(node, key) {
        Some(value) => wanted.has(value),
        None => wanted.allows_absence(),
    })
}

/// The node selector, and one of the required terms.
pub(super) fn node_suits(node: &Node, demand: &Demand) -> bool {
    node_has(node, &demand.node_selector)
        && (demand.required_terms.is_empty() || demand.required_terms.iter().any(|term| node_has(node, term)))
}
