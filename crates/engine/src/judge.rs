//! kube-scheduler has the last word: what becomes of a plan when it places the pods, in its own order.

use crate::bin::{Bin, Home};
use crate::by_value::{self, Item};
use crate::desk::Desk;
use crate::draft::Draft;
use crate::scheduler_model::{self as model, Constraint, ModelClass, ModelNode, NO_ZONE, Rule};
use kerf_model::labels::ZONE;
use kerf_model::{Money, Robustness, Text};
use std::collections::BTreeMap;

/// Orders to try. The first four are the extremes, the others are shuffles.
const N_ORDERS: usize = 10;

/// Looks at a node, over all orders together. Beyond it fewer orders are tried, then none.
const MAX_LOOKS: usize = 40_000_000;

/// Any constant will do: the draws must only be the same every time.
const SEED: u64 = 0x6b65_7266;

/// Worst of several orders: pods left over by the first wave, and the cost with the nodes bought for them.
pub(crate) fn robustness(desk: &mut Desk<'_, '_>, draft: &Draft, cost: Money) -> Option<Robustness> {
    let is_used = |bin: &&Bin| matches!(bin.home, Home::New { .. }) || !bin.contents.is_empty();
    let bins: Vec<&Bin> = draft.bins.iter().filter(is_used).collect();
    let stage = Stage::of(desk, &bins);
    let n_orders = stage.affordable_orders(bins.len())?;
    let mut worst = Robustness { n_orders, worst_stranded: 0, worst_cost: cost };
    for outcome in stage.outcomes(n_orders) {
        let n_stranded: usize = outcome.iter().map(|n| *n as usize).sum();
        if n_stranded > 0 {
            let more = cost_of_stranded(desk, &stage, &outcome);
            worst.worst_cost = worst.worst_cost.max(cost + more);
            worst.worst_stranded = worst.worst_stranded.max(n_stranded);
        }
    }
    Some(worst)
}

/// Whether some order leaves pods over when these bins alone are there. None when that is too much to find out.
pub(crate) fn strands(desk: &mut Desk<'_, '_>, bins: &[Bin]) -> Option<bool> {
    let bins: Vec<&Bin> = bins.iter().collect();
    let stage = Stage::of(desk, &bins);
    let n_orders = stage.affordable_orders(bins.len())?;
    Some(stage.outcomes(n_orders).any(|stranded| stranded.iter().any(|n| *n > 0)))
}

/// The nodes and classes of a plan, as the model wants them.
struct Stage {
    nodes: Vec<ModelNode>,
    classes: Vec<ModelClass>,
    counts: Vec<u32>,
    /// Class and variant behind each class of the model.
    who: Vec<(u32, u32)>,
}

impl Stage {
    fn of(desk: &mut Desk<'_, '_>, bins: &[&Bin]) -> Self {
        let mut counts: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        for content in bins.iter().flat_map(|bin| &bin.contents) {
            *counts.entry((content.class, content.variant)).or_default() += content.n;
        }
        let mut kinds: BTreeMap<Kind, u32> = BTreeMap::new();
        let mut zones: BTreeMap<Text, u32> = BTreeMap::new();
        let nodes: Vec<ModelNode> = bins.iter().map(|bin| node(desk, bin, &mut kinds, &mut zones)).collect();
        let who: Vec<(u32, u32)> = counts.keys().copied().collect();
        let classes = who.iter().map(|who| class(desk, *who, &kinds)).collect();
        Self { nodes, classes, counts: counts.into_values().collect(), who }
    }

    fn affordable_orders(&self, n_bins: usize) -> Option<usize> {
        let n_pods: usize = self.counts.iter().map(|n| *n as usize).sum();
        let looks = (n_pods * n_bins).max(1);
        Some((MAX_LOOKS / looks).min(N_ORDERS)).filter(|n_orders| *n_orders > 0)
    }

    fn outcomes(&self, n_orders: usize) -> impl Iterator<Item = Vec<u32>> {
        let orders = model::orders(&self.counts, &self.classes, n_orders, SEED);
        orders
            .into_iter()
            .zip(SEED..)
            .map(|(order, seed)| model::place(&self.nodes, &self.classes, &order, seed, MAX_LOOKS as u64).stranded)
    }
}

/// Nodes that no class can tell apart by labels and taints.
#[derive(PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
enum Kind {
    There(u32),
    New(crate::scope::ScopeId, u32),
}

fn node(desk: &Desk<'_, '_>, bin: &Bin, kinds: &mut BTreeMap<Kind, u32>, zones: &mut BTreeMap<Text, u32>) -> ModelNode {
    let problem = desk.problem;
    let (kind, zone, allocatable, free) = match bin.home {
        Home::Node(position) => {
            let facts = &problem.nodes[position];
            let allocatable = problem.market.dims.vector(&facts.node.allocatable, |_| 0);
            (Kind::There(facts.kind), facts.node.labels.get(ZONE).cloned(), allocatable, facts.free.clone())
        }
        Home::New { scope, choice } => {
            let facts = desk.scopes.get(scope);
            let picked = facts.choices[choice];
            let zone = problem.market.offers[picked.offer as usize].zone.cloned();
            let free = facts.cap(choice).to_vec();
            (Kind::New(scope, picked.ty), zone, problem.market.types[picked.ty as usize].allocatable.clone(), free)
        }
    };
    let n_kinds = kinds.len() as u32;
    let n_zones = zones.len() as u32;
    ModelNode {
        kind: *kinds.entry(kind).or_insert(n_kinds),
        zone: zone.map_or(NO_ZONE, |zone| *zones.entry(zone).or_insert(n_zones)),
        allocatable_cpu: allocatable[0],
        allocatable_memory: allocatable[1],
        requested_cpu: allocatable[0] - free[0],
        requested_memory: allocatable[1] - free[1],
        free,
        counts: Vec::new(),
    }
}

fn class(desk: &mut Desk<'_, '_>, (class, variant): (u32, u32), kinds: &BTreeMap<Kind, u32>) -> ModelClass {
    let problem = desk.problem;
    let facts = &problem.classes[class as usize];
    let wish = &facts.variants[variant as usize];
    let mut allowed = vec![false; kinds.len()];
    for (kind, index) in kinds {
        allowed[*index as usize] = wish.sigs.iter().any(|sig| match kind {
            Kind::There(kind) => desk.accepts(*sig, wish.tolerance, *kind),
            Kind::New(scope, ty) => {
                let pool = desk.scopes.get(*scope).pool;
                problem.tolerances[wish.tolerance as usize].pools[pool]
                    && desk
                        .join(*scope, *sig)
                        .is_some_and(|joined| desk.scopes.get(joined).choice_of_type(*ty).is_some())
            }
        });
    }
    // Owners of an anti-affinity are a group of their own: they bar what the group selects.
    let n_groups = problem.groups.all.len() as u32;
    let mut counts_in: Vec<u32> = facts.counted.clone();
    counts_in.extend(facts.owns.iter().map(|group| n_groups + group));
    let (mut per_host, mut per_zone) = (Vec::new(), Vec::new());
    let mut constrain = |group: u32, rule: Rule, owners: bool| {
        let about = problem.groups.get(group);
        let constraint = Constraint { group: if owners { n_groups + group } else { group }, rule };
        if about.is_host {
            per_host.push(constraint);
        } else if &*about.key == ZONE {
            per_zone.push(constraint);
        }
    };
    for term in &wish.anti_affinity {
        constrain(term.group, Rule::AtMost(u32::from(term.is_self)), false);
    }
    for group in
        facts.counted.iter().filter(|group| problem.groups.get(**group).kind == kerf_model::TopologyKind::AntiAffinity)
    {
        constrain(*group, Rule::AtMost(u32::from(facts.owns.contains(group))), true);
    }
    for term in &wish.spreads {
        if term.is_self {
            counts_in.push(term.group);
        }
        let min_domains = term.min_domains.unwrap_or(1);
        constrain(term.group, Rule::Skew { max_skew: term.max_skew, min_domains }, false);
    }
    for term in &wish.affinity {
        constrain(term.group, Rule::Near, false);
    }
    let first = facts.pods.first().map(|index| &problem.snapshot.pods[*index as usize]);
    ModelClass {
        requests: facts.requests.clone(),
        cpu: facts.requests[0],
        memory: facts.requests[1],
        priority: first.map_or(0, |pod| pod.priority),
        kinds: allowed,
        counts_in,
        per_host,
        per_zone,
    }
}

fn cost_of_stranded(desk: &mut Desk<'_, '_>, stage: &Stage, stranded: &[u32]) -> Money {
    let mut draft = Draft::new(desk.problem, u64::MAX);
    let mut items: Vec<Item> = Vec::new();
    for ((class, variant), n) in stage.who.iter().zip(stranded).filter(|(_, n)| **n > 0) {
        let sig = desk.problem.classes[*class as usize].variants[*variant as usize].sigs[0];
        items.push(Item { class: *class, variant: *variant, sig, n: *n });
    }
    by_value::pack(desk, &mut draft, &mut items);
    draft.cost(&desk.scopes)
}
