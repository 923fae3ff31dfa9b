//! The question, as dense vectors: classes of alike pods, what each may accept, and the nodes that are there.

use crate::market::{Dim, Market};
use crate::memo::Memo;
use crate::relax::{self, Wish};
use crate::scope::{Scopes, SigId, Signature};
use crate::topology::{Groups, OwnTerm};
use kerf_model::labels::HOSTNAME;
use kerf_model::{Demand, Labels, Node, NodeStage, Requirements, Snapshot, Taint, Text, Toleration, taint};
use std::collections::{BTreeMap, BTreeSet};

/// Pods that no rule can tell apart.
pub(crate) struct Class {
    /// The demand of one of them, for words and volumes.
    pub(crate) demand: usize,
    /// Indices into `Snapshot::pods`, oldest first.
    pub(crate) pods: Vec<u32>,
    pub(crate) requests: Vec<i64>,
    /// Volumes that all its pods share: the first of them on a node attaches them, the others find them there. In the
    /// dimensions of the market, on top of `requests`; empty where pods share nothing.
    pub(crate) shared: Vec<i64>,
    /// What it accepts, most wishes first.
    pub(crate) variants: Vec<Variant>,
    /// Each way to satisfy selector and required terms: any of them makes a node count for a spread.
    pub(crate) strict_terms: Vec<SigId>,
    /// Affinity and anti-affinity groups that select these pods.
    pub(crate) counted: Vec<u32>,
    /// Groups of its own required anti-affinity terms.
    pub(crate) owns: Vec<u32>,
}

/// A class with some of its wishes given up.
#[derive(Clone)]
pub(crate) struct Variant {
    /// Label requirements, one signature per volume alternative. Empty when they contradict each other.
    pub(crate) sigs: Vec<SigId>,
    /// Without preferences: what topology looks at.
    pub(crate) strict: SigId,
    pub(crate) tolerance: u32,
    pub(crate) spreads: Vec<OwnTerm>,
    pub(crate) affinity: Vec<OwnTerm>,
    pub(crate) anti_affinity: Vec<OwnTerm>,
    /// Whether a constraint over something wider than one host decides where it may go.
    pub(crate) is_wide: bool,
    pub(crate) given_up: Vec<Text>,
}

/// A node that is there or on its way.
pub(crate) struct NodeFacts<'a> {
    pub(crate) node: &'a Node,
    /// Its place in `Snapshot::nodes`.
    pub(crate) index: usize,
    pub(crate) free: Vec<i64>,
    /// Nodes of one kind differ in their hostname only.
    pub(crate) kind: u32,
}

pub(crate) struct NodeKind {
    pub(crate) requirements: Requirements,
    pub(crate) taints: Vec<Taint>,
}

/// A list of tolerations, and the pools whose taints it covers.
pub(crate) struct Tolerance {
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) pools: Vec<bool>,
    /// The same with preferences about taints left aside, as kube-scheduler counts domains.
    pub(crate) pools_at_all: Vec<bool>,
}

pub(crate) struct Problem<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) market: Market<'a>,
    /// Largest first.
    pub(crate) classes: Vec<Class>,
    /// Initialized first, then by name. Leaving nodes are not among them.
    pub(crate) nodes: Vec<NodeFacts<'a>>,
    pub(crate) kinds: Vec<NodeKind>,
    pub(crate) tolerances: Vec<Tolerance>,
    pub(crate) groups: Groups,
}

impl<'a> Problem<'a> {
    pub(crate) fn of(snapshot: &'a Snapshot) -> (Self, Scopes) {
        let market = Market::of(snapshot);
        let mut scopes = Scopes::of(&market);
        let (nodes, kinds) = nodes(&market, snapshot);
        let mut problem = Problem {
            snapshot,
            market,
            classes: Vec::new(),
            nodes,
            kinds,
            tolerances: Vec::new(),
            groups: Groups::default(),
        };
        let drafts = sort_into_classes(&problem);
        let mut tolerance_ids: BTreeMap<Vec<Toleration>, u32> = BTreeMap::new();
        let pools_prefer = problem
            .market
            .pools
            .iter()
            .any(|pool| pool.pool.taints.iter().any(|taint| taint.effect == kerf_model::Effect::PreferNoSchedule));
        for draft in &drafts {
            let class = compile(&mut problem, &mut scopes, &mut tolerance_ids, draft, pools_prefer);
            problem.classes.push(class);
        }
        problem.groups.add_bound(snapshot);
        let shapes: Vec<(kerf_model::NamespaceName, Labels)> =
            drafts.iter().map(|draft| (draft.look.namespace.clone(), draft.look.labels.clone())).collect();
        for (class, (namespace, labels)) in problem.classes.iter_mut().zip(&shapes) {
            class.counted = problem.groups.selecting(namespace, labels);
        }
        let mut groups = std::mem::take(&mut problem.groups);
        groups.settle_domains(&problem);
        problem.groups = groups;
        let barred: Vec<bool> =
            problem.classes.iter().map(|class| problem.groups.any_wide_anti(&class.counted)).collect();
        for (class, barred) in problem.classes.iter_mut().zip(barred) {
            for variant in &mut class.variants {
                variant.is_wide |= barred;
            }
        }
        (problem, scopes)
    }

    pub(crate) fn demand(&self, class: usize) -> &'a Demand {
        &self.snapshot.demands[self.classes[class].demand]
    }

    /// Whether a node takes pods with this signature and these tolerations, resources and neighbours aside.
    pub(crate) fn node_accepts(
        &self,
        scopes: &Scopes,
        memo: &mut NodeMemo,
        sig: SigId,
        tolerance: u32,
        kind: u32,
    ) -> bool {
        if let Some(known) = memo.0.get(&(sig, tolerance, kind)) {
            return *known;
        }
        let facts = &self.kinds[kind as usize];
        let tolerations = &self.tolerances[tolerance as usize].tolerations;
        let accepts = taint::first_untolerated(&facts.taints, tolerations).is_none()
            && facts.requirements.compatible(&scopes.sig(sig).requirements, |_| false).is_ok()
            && scopes.sig(sig).must_exist.iter().all(|key| facts.requirements.get(key).is_some());
        memo.0.insert((sig, tolerance, kind), accepts);
        accepts
    }
}

/// Remembered answers of `node_accepts`.
#[derive(Clone, Default)]
pub(crate) struct NodeMemo(Memo<(SigId, u32, u32), bool>);

struct ClassDraft {
    demand: usize,
    pods: Vec<u32>,
    requests: Vec<i64>,
    shared: Vec<i64>,
    look: Demand,
}

/// Groups pods by everything that rules can see: labels that nobody selects on do not tell pods apart.
fn sort_into_classes(problem: &Problem<'_>) -> Vec<ClassDraft> {
    let snapshot = problem.snapshot;
    let keys = selected_keys(snapshot);
    let mut pods_of: Vec<Vec<u32>> = vec![Vec::new(); snapshot.demands.len()];
    for (index, pod) in snapshot.pods.iter().enumerate() {
        pods_of[pod.demand.0 as usize].push(index as u32);
    }
    let mut by_look: BTreeMap<(std::cmp::Reverse<Vec<i64>>, Demand), ClassDraft> = BTreeMap::new();
    for (index, pods) in pods_of.into_iter().enumerate().filter(|(_, pods)| !pods.is_empty()) {
        let demand = &snapshot.demands[index];
        let mut requests = problem.market.dims.requests(demand);
        let mut look = look(demand, &keys);
        let shares = pods.len() > 1 && !demand.volumes.attachments.is_empty();
        let mut shared = Vec::new();
        if shares {
            look.volumes.attachments = demand.volumes.attachments.clone();
            shared = vec![0; requests.len()];
            for (dim, kind) in problem.market.dims.0.iter().enumerate() {
                if let Dim::Attachments(_) = kind {
                    shared[dim] = std::mem::take(&mut requests[dim]);
                }
            }
        }
        let key = (std::cmp::Reverse(requests.clone()), look.clone());
        match by_look.get_mut(&key) {
            Some(class) => class.pods.extend(pods),
            None => {
                by_look.insert(key, ClassDraft { demand: index, pods, requests, shared, look });
            }
        }
    }
    let mut classes: Vec<ClassDraft> = by_look.into_values().collect();
    for class in &mut classes {
        let key = |index: &u32| {
            let pod = &snapshot.pods[*index as usize];
            (std::cmp::Reverse(pod.priority), pod.created, &pod.id)
        };
        class.pods.sort_by(|a, b| key(a).cmp(&key(b)));
    }
    classes
}

/// Label keys that any selector of the snapshot mentions.
fn selected_keys(snapshot: &Snapshot) -> BTreeSet<&Text> {
    let mut keys: BTreeSet<&Text> = BTreeSet::new();
    let demands = snapshot.demands.iter();
    let terms = demands
        .clone()
        .flat_map(|demand| {
            let weighed = demand.preferred_affinity.iter().chain(&demand.preferred_anti_affinity);
            demand.affinity.iter().chain(&demand.anti_affinity).chain(weighed.map(|(_, term)| term))
        })
        .chain(snapshot.bound.iter().flat_map(|group| &group.shape.anti_affinity));
    let selectors = terms
        .filter_map(|term| term.selector.as_ref())
        .chain(demands.flat_map(|demand| demand.spreads.iter().filter_map(|spread| spread.selector.as_ref())));
    keys.extend(selectors.flat_map(|selector| selector.terms.iter().map(|term| &term.key)));
    keys
}

/// A demand without what no rule looks at.
fn look(demand: &Demand, keys: &BTreeSet<&Text>) -> Demand {
    let mut look = demand.clone();
    look.labels.retain(|key, _| keys.contains(key));
    look.volumes.attachments.clear();
    look
}

fn compile(
    problem: &mut Problem<'_>,
    scopes: &mut Scopes,
    tolerance_ids: &mut BTreeMap<Vec<Toleration>, u32>,
    draft: &ClassDraft,
    pools_prefer: bool,
) -> Class {
    let demand = &draft.look;
    let wishes = relax::chain(demand, problem.snapshot.settings.preferences, pools_prefer);
    let owns = demand.anti_affinity.iter().map(|term| problem.groups.anti_affinity(term)).collect();
    let variants = wishes
        .into_iter()
        .map(|wish| {
            let tolerance = *tolerance_ids.entry(wish.tolerations.clone()).or_insert_with(|| {
                let covers = |taints: &[Taint]| taint::first_untolerated(taints, &wish.tolerations).is_none();
                let pools = problem.market.pools.iter().map(|pool| covers(&pool.pool.taints)).collect();
                let pools_at_all = problem.market.pools.iter().map(|pool| covers(&hard(&pool.pool.taints))).collect();
                problem.tolerances.push(Tolerance { tolerations: wish.tolerations.clone(), pools, pools_at_all });
                problem.tolerances.len() as u32 - 1
            });
            variant(&mut problem.groups, scopes, demand, wish, tolerance)
        })
        .collect();
    let strict_terms = crate::market::strict_terms(demand)
        .into_iter()
        .map(|requirements| scopes.sig_id(Signature { requirements, ..Signature::default() }))
        .collect();
    Class {
        demand: draft.demand,
        pods: draft.pods.clone(),
        requests: draft.requests.clone(),
        shared: draft.shared.clone(),
        variants,
        strict_terms,
        counted: Vec::new(),
        owns,
    }
}

fn variant(groups: &mut Groups, scopes: &mut Scopes, demand: &Demand, wish: Wish, tolerance: u32) -> Variant {
    let ports: BTreeSet<_> = demand.host_ports.iter().cloned().collect();
    let mut sig = |requirements: Requirements| {
        scopes.sig_id(Signature { requirements, must_exist: wish.must_exist.clone(), ports: ports.clone() })
    };
    let strict = sig(wish.strict.clone());
    let sigs = if wish.contradiction.is_some() {
        Vec::new()
    } else if demand.volumes.alternatives.is_empty() {
        vec![sig(wish.requirements.clone())]
    } else {
        let possible = |alternative: &&Requirements| wish.requirements.first_contradiction(alternative).is_none();
        let narrowed = demand.volumes.alternatives.iter().filter(possible).map(|alternative| {
            let mut requirements = wish.requirements.clone();
            requirements.add_all(alternative);
            sig(requirements)
        });
        narrowed.collect()
    };
    let own_terms = |groups: &mut Groups, terms: &[&kerf_model::PodTerm], affinity: bool| -> Vec<OwnTerm> {
        let own = |term: &&kerf_model::PodTerm| {
            let group = if affinity { groups.affinity(term) } else { groups.anti_affinity(term) };
            let selects = term.selector.as_ref().is_some_and(|selector| selector.matches(&demand.labels));
            let is_self = selects && term.namespaces.contains(&demand.namespace.0);
            OwnTerm { group, is_self, max_skew: 0, min_domains: None }
        };
        terms.iter().map(own).collect()
    };
    let affinity = own_terms(groups, &wish.affinity, true);
    let anti_affinity = own_terms(groups, &wish.anti_affinity, false);
    let spreads = wish
        .spreads
        .iter()
        .map(|spread| OwnTerm {
            group: groups.spread(demand, spread),
            is_self: spread.selector.as_ref().is_some_and(|selector| selector.matches(&demand.labels)),
            max_skew: spread.max_skew,
            min_domains: spread.min_domains,
        })
        .collect::<Vec<_>>();
    let is_wide = [&affinity, &anti_affinity, &spreads].into_iter().flatten().any(|term| !groups.is_host(term.group));
    Variant { sigs, strict, tolerance, spreads, affinity, anti_affinity, is_wide, given_up: wish.given_up }
}

fn nodes<'a>(market: &Market<'a>, snapshot: &'a Snapshot) -> (Vec<NodeFacts<'a>>, Vec<NodeKind>) {
    let mut there: Vec<(usize, &Node)> =
        snapshot.nodes.iter().enumerate().filter(|(_, node)| node.stage != NodeStage::Leaving).collect();
    there.sort_by(|(_, a), (_, b)| (a.stage, &a.name).cmp(&(b.stage, &b.name)));
    let mut kinds: Vec<NodeKind> = Vec::new();
    let mut kind_ids: BTreeMap<(Labels, &[Taint]), u32> = BTreeMap::new();
    let daemons: Vec<(Vec<Requirements>, &Demand)> =
        snapshot.daemons.iter().map(|daemon| (crate::market::strict_terms(&daemon.demand), &*daemon.demand)).collect();
    let mut daemon_load: Vec<Vec<i64>> = Vec::new();
    let mut out = Vec::with_capacity(there.len());
    for (index, node) in there {
        let mut look = node.labels.clone();
        look.remove(HOSTNAME);
        let kind = *kind_ids.entry((look, &node.taints)).or_insert_with(|| {
            let requirements = Requirements::from_labels(&node.labels);
            daemon_load.push(load_of_daemons(market, &daemons, &requirements, &node.taints));
            kinds.push(NodeKind { requirements, taints: node.taints.clone() });
            kinds.len() as u32 - 1
        });
        let free = free_on(market, node, &daemon_load[kind as usize]).unwrap_or_else(|| vec![-1; market.dims.n()]);
        out.push(NodeFacts { node, index, free, kind });
    }
    (out, kinds)
}

fn load_of_daemons(
    market: &Market<'_>,
    daemons: &[(Vec<Requirements>, &Demand)],
    requirements: &Requirements,
    taints: &[Taint],
) -> Vec<i64> {
    let mut load = vec![0_i64; market.dims.n()];
    for (terms, demand) in daemons {
        let runs = taint::first_untolerated(&hard(taints), &demand.tolerations).is_none()
            && terms.iter().any(|term| requirements.compatible(term, |_| false).is_ok());
        if runs {
            for (total, amount) in load.iter_mut().zip(market.dims.requests(demand)) {
                *total = total.saturating_add(amount);
            }
        }
    }
    load
}

/// Taints that forbid, without those that merely discourage.
pub(crate) fn hard(taints: &[Taint]) -> Vec<Taint> {
    taints.iter().filter(|taint| taint.effect != kerf_model::Effect::PreferNoSchedule).cloned().collect()
}

/// What pods can still take on a node. None when it is overfull, or has a negative figure: then it takes nothing.
fn free_on(market: &Market<'_>, node: &Node, daemon_load: &[i64]) -> Option<Vec<i64>> {
    if node.allocatable.iter().any(|(name, amount)| (amount - node.used.get(name)).milli < 0) {
        return None;
    }
    let limit = |driver: &Text| {
        let attached = node.attached.get(driver).map_or(0, |volumes| volumes.len() as i64);
        node.attach_limits.get(driver).map_or(i64::MAX / 4, |limit| i64::from(*limit) - attached)
    };
    let mut free = market.dims.vector(&node.allocatable, limit);
    let used = market.dims.vector(&node.used, |_| 0);
    let by_daemons = market.dims.vector(&node.used_by_daemons, |_| 0);
    for dim in 0..free.len() {
        let daemons_to_come = (daemon_load[dim] - by_daemons[dim]).max(0);
        free[dim] -= used[dim] + daemons_to_come;
    }
    free.iter().all(|amount| *amount >= 0).then_some(free)
}
