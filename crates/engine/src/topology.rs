//! Topology: groups of pods that attract, repel or spread, and the domains they count in.
//!
//! A group is what several pods share: a selector over namespaces and a label key that divides nodes into domains. The
//! hostname is a key like any other, except that every node is its own domain: those counts live with the bins.

use crate::memo::Memo;
use crate::problem::{Problem, hard};
use kerf_model::labels::HOSTNAME;
use kerf_model::{
    Demand, LabelSelector, Labels, NamespaceName, Namespaces, NodePolicy, PodTerm, Requirements, Snapshot, Spread,
    Text, Toleration, TopologyKind, taint,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A constraint that a class carries itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnTerm {
    pub(crate) group: u32,
    /// Whether its own pods are among those selected.
    pub(crate) is_self: bool,
    /// For spreads only.
    pub(crate) max_skew: u32,
    pub(crate) min_domains: Option<u32>,
}

/// Which nodes count for a spread: those that match one of the terms, and whose taints are tolerated.
type Filter = (Option<Vec<Requirements>>, Option<Vec<Toleration>>);

/// A group, whether it counts a pod, and whether the pod carries its anti-affinity.
type Concern = (u32, bool, bool);

/// What makes a group. Pods with the same identity share counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    kind: TopologyKind,
    key: Text,
    namespaces: Namespaces,
    selector: Option<LabelSelector>,
    max_skew: u32,
    /// Spreads count only on nodes that match one of these.
    terms: Option<Vec<Requirements>>,
    /// And whose taints these tolerate.
    tolerations: Option<Vec<Toleration>>,
}

pub(crate) struct Group {
    identity: Identity,
    pub(crate) key: Text,
    pub(crate) kind: TopologyKind,
    pub(crate) is_host: bool,
    /// Index into `Groups::keys`; meaningless for the hostname.
    pub(crate) key_idx: usize,
    /// All values of the key, in order: groups of one key share them. Empty for the hostname.
    pub(crate) domains: Arc<[Text]>,
    /// By domain: whether it is one for this group.
    pub(crate) known: Vec<bool>,
    /// By domain: the pods selected that run there already.
    pub(crate) matched: Vec<u32>,
    /// By domain: running pods that carry this anti-affinity.
    pub(crate) owners: Vec<u32>,
    /// By domain: whether some node there, or some pool by index, can provide it.
    pub(crate) on_nodes: Vec<bool>,
    pub(crate) in_pools: Vec<Arc<[bool]>>,
    /// By node, for the hostname: selected and owning pods.
    pub(crate) on_host: BTreeMap<usize, (u32, u32)>,
    /// By kind of node: whether pods there count.
    accepts: Arc<[bool]>,
    /// Whether waiting pods are attracted to it.
    pub(crate) attracts: bool,
}

#[derive(Default)]
pub(crate) struct Groups {
    ids: BTreeMap<Identity, u32>,
    pub(crate) all: Vec<Group>,
    /// Keys wider than the hostname.
    pub(crate) keys: Vec<Key>,
}

/// A label key that divides nodes into domains.
pub(crate) struct Key {
    pub(crate) key: Text,
    pub(crate) values: Arc<[Text]>,
    /// By node: the domain it is in.
    pub(crate) of_node: Vec<Option<u32>>,
}

impl Groups {
    pub(crate) fn get(&self, group: u32) -> &Group {
        &self.all[group as usize]
    }

    pub(crate) fn is_host(&self, group: u32) -> bool {
        self.get(group).is_host
    }

    pub(crate) fn affinity(&mut self, term: &PodTerm) -> u32 {
        let group = self.pod_term(TopologyKind::Affinity, term);
        self.all[group as usize].attracts = true;
        group
    }

    pub(crate) fn anti_affinity(&mut self, term: &PodTerm) -> u32 {
        self.pod_term(TopologyKind::AntiAffinity, term)
    }

    fn pod_term(&mut self, kind: TopologyKind, term: &PodTerm) -> u32 {
        self.intern(Identity {
            kind,
            key: term.topology_key.clone(),
            namespaces: term.namespaces.clone(),
            selector: term.selector.clone(),
            max_skew: 0,
            terms: None,
            tolerations: None,
        })
    }

    pub(crate) fn spread(&mut self, demand: &Demand, spread: &Spread) -> u32 {
        let honors_affinity = spread.node_affinity_policy == NodePolicy::Honor;
        let honors_taints = spread.node_taints_policy == NodePolicy::Honor;
        let constrained = !demand.node_selector.is_empty() || !demand.required_terms.is_empty();
        self.intern(Identity {
            kind: TopologyKind::Spread,
            key: spread.topology_key.clone(),
            namespaces: Namespaces::These(BTreeSet::from([demand.namespace.0.clone()])),
            selector: spread.selector.clone(),
            max_skew: spread.max_skew,
            terms: (honors_affinity && constrained).then(|| crate::market::strict_terms(demand)),
            tolerations: honors_taints.then(|| demand.tolerations.clone()),
        })
    }

    fn intern(&mut self, identity: Identity) -> u32 {
        if let Some(id) = self.ids.get(&identity) {
            return *id;
        }
        let id = self.all.len() as u32;
        self.all.push(Group {
            key: identity.key.clone(),
            kind: identity.kind,
            is_host: &*identity.key == HOSTNAME,
            key_idx: usize::MAX,
            domains: Arc::from([]),
            known: Vec::new(),
            matched: Vec::new(),
            owners: Vec::new(),
            on_nodes: Vec::new(),
            in_pools: Vec::new(),
            on_host: BTreeMap::new(),
            accepts: Arc::from([]),
            attracts: false,
            identity: identity.clone(),
        });
        self.ids.insert(identity, id);
        id
    }

    /// Anti-affinity of running pods bars waiting ones too.
    pub(crate) fn add_bound(&mut self, snapshot: &Snapshot) {
        for group in &snapshot.bound {
            for term in &group.shape.anti_affinity {
                self.anti_affinity(term);
            }
        }
    }

    /// Affinity and anti-affinity groups that select such a pod.
    pub(crate) fn selecting(&self, namespace: &NamespaceName, labels: &Labels) -> Vec<u32> {
        let selects = |group: &Group| {
            group.kind != TopologyKind::Spread
                && group.identity.namespaces.contains(&namespace.0)
                && group.identity.selector.as_ref().is_some_and(|selector| selector.matches(labels))
        };
        self.all.iter().enumerate().filter(|(_, group)| selects(group)).map(|(id, _)| id as u32).collect()
    }

    pub(crate) fn any_wide_anti(&self, groups: &[u32]) -> bool {
        groups.iter().any(|group| {
            let group = self.get(*group);
            !group.is_host && (group.kind == TopologyKind::AntiAffinity || group.attracts)
        })
    }

    /// Finds the domains of every group, and counts what runs in them.
    pub(crate) fn settle_domains(&mut self, problem: &Problem<'_>) {
        if self.all.is_empty() {
            return;
        }
        let names: BTreeSet<Text> =
            self.all.iter().filter(|group| !group.is_host).map(|group| group.key.clone()).collect();
        let universes: Vec<(Text, Universe)> =
            names.into_iter().map(|key| (key.clone(), Universe::of(problem, &key))).collect();
        for (key, universe) in &universes {
            let values: Arc<[Text]> = universe.0.keys().cloned().collect();
            let domain = |facts: &crate::problem::NodeFacts<'_>| {
                let value = facts.node.labels.get(key)?;
                values.binary_search(value).ok().map(|domain| domain as u32)
            };
            let of_node = problem.nodes.iter().map(domain).collect();
            self.keys.push(Key { key: key.clone(), values, of_node });
        }
        let mut judged: BTreeMap<Filter, Arc<[bool]>> = BTreeMap::new();
        for group in &mut self.all {
            let key = (group.identity.terms.clone(), group.identity.tolerations.clone());
            let accepts = judged
                .entry(key)
                .or_insert_with(|| (0..problem.kinds.len()).map(|kind| group.judges(problem, kind)).collect());
            group.accepts = Arc::clone(accepts);
        }
        for group in self.all.iter_mut().filter(|group| !group.is_host) {
            group.key_idx = self.keys.iter().position(|key| key.key == group.key).expect("every key was listed above");
            group.domains = Arc::clone(&self.keys[group.key_idx].values);
            // A pool that the pods could not choose provides no domain for them, as kube-scheduler sees it.
            let suits: Vec<bool> = problem
                .market
                .pools
                .iter()
                .map(|pool| group.counts_on_new(&pool.template, |key| problem.market.is_well_known(key)))
                .collect();
            for from in universes[group.key_idx].1.0.values() {
                let on_nodes = from.kinds.iter().any(|kind| group.accepts[*kind as usize]);
                let in_pools: Arc<[bool]> =
                    from.pools.iter().zip(&suits).map(|(provides, suits)| *provides && *suits).collect();
                group.known.push(on_nodes || in_pools.contains(&true));
                group.on_nodes.push(on_nodes);
                group.in_pools.push(in_pools);
            }
            group.matched = vec![0; group.domains.len()];
            group.owners = vec![0; group.domains.len()];
        }
        self.count_bound(problem);
    }

    /// Counts the pods that run. Those on nodes that are leaving are about to move, and count nowhere.
    fn count_bound(&mut self, problem: &Problem<'_>) {
        let snapshot = problem.snapshot;
        let mut place_of: Vec<Option<usize>> = vec![None; snapshot.nodes.len()];
        for (position, facts) in problem.nodes.iter().enumerate() {
            place_of[facts.index] = Some(position);
        }
        let mut of_shape: Memo<*const kerf_model::BoundShape, Arc<[Concern]>> = Memo::default();
        for bound in &snapshot.bound {
            let Some(position) = place_of[bound.node.0 as usize] else { continue };
            let shape = Arc::as_ptr(&bound.shape);
            let concerned = match of_shape.get(&shape) {
                Some(known) => Arc::clone(known),
                None => {
                    let concerned: Arc<[_]> = self.concerned_by(&bound.shape).into();
                    of_shape.insert(shape, Arc::clone(&concerned));
                    concerned
                }
            };
            for (id, is_matched, is_owner) in concerned.iter() {
                let group = &mut self.all[*id as usize];
                if !group.counts_on(problem.nodes[position].kind as usize) {
                    continue;
                }
                let (matched, owners) = (u32::from(*is_matched) * bound.n_pods, u32::from(*is_owner) * bound.n_pods);
                if group.is_host {
                    let counts = group.on_host.entry(position).or_default();
                    *counts = (counts.0 + matched, counts.1 + owners);
                } else if let Some(domain) = self.keys[group.key_idx].of_node[position] {
                    group.matched[domain as usize] += matched;
                    group.owners[domain as usize] += owners;
                }
            }
        }
    }

    /// The groups that count pods of this shape, and those it owns.
    fn concerned_by(&self, shape: &kerf_model::BoundShape) -> Vec<Concern> {
        let owned: Vec<u32> = shape
            .anti_affinity
            .iter()
            .filter_map(|term| {
                self.ids
                    .get(&Identity {
                        kind: TopologyKind::AntiAffinity,
                        key: term.topology_key.clone(),
                        namespaces: term.namespaces.clone(),
                        selector: term.selector.clone(),
                        max_skew: 0,
                        terms: None,
                        tolerations: None,
                    })
                    .copied()
            })
            .collect();
        let mut out = Vec::new();
        for (id, group) in self.all.iter().enumerate() {
            let selects = match (&group.identity.selector, group.kind) {
                (Some(selector), _) => selector.matches(&shape.labels),
                // A spread without a selector counts every pod of the namespace.
                (None, kind) => kind == TopologyKind::Spread,
            };
            let is_matched = selects && group.identity.namespaces.contains(&shape.namespace.0);
            let is_owner = owned.contains(&(id as u32));
            if is_matched || is_owner {
                out.push((id as u32, is_matched, is_owner));
            }
        }
        out
    }
}

impl Group {
    /// Whether pods on nodes of this kind count.
    pub(crate) fn counts_on(&self, kind: usize) -> bool {
        self.accepts[kind]
    }

    fn judges(&self, problem: &Problem<'_>, kind: usize) -> bool {
        let kind = &problem.kinds[kind];
        let terms = &self.identity.terms;
        let matches = |term: &Requirements| kind.requirements.compatible(term, |_| false).is_ok();
        terms.as_ref().is_none_or(|terms| terms.iter().any(matches))
            && (self.identity.tolerations.as_ref())
                .is_none_or(|tolerations| taint::first_untolerated(&hard(&kind.taints), tolerations).is_none())
    }

    /// Whether a new node with these requirements would be one of the domains.
    pub(crate) fn counts_on_new(&self, requirements: &Requirements, is_well_known: impl Fn(&str) -> bool) -> bool {
        self.identity
            .terms
            .as_ref()
            .is_none_or(|terms| terms.iter().any(|term| requirements.compatible(term, &is_well_known).is_ok()))
    }

    pub(crate) fn honors_taints(&self) -> bool {
        self.identity.tolerations.is_some()
    }
}

/// The values of one label key, and who can provide them.
struct Universe(BTreeMap<Text, From>);

struct From {
    pools: Arc<[bool]>,
    kinds: BTreeSet<u32>,
}

impl Universe {
    fn of(problem: &Problem<'_>, key: &Text) -> Self {
        let mut values: BTreeMap<Text, (Vec<bool>, BTreeSet<u32>)> = BTreeMap::new();
        let n_pools = problem.market.pools.len();
        let fresh = || (vec![false; n_pools], BTreeSet::new());
        for (index, pool) in problem.market.pools.iter().enumerate() {
            let asked = pool.template.get(key);
            if let Some(asked) = asked.filter(|asked| !asked.complement) {
                for value in &asked.values {
                    values.entry(value.clone()).or_insert_with(fresh).0[index] = true;
                }
            }
            // What cannot be bought now still has its domains: they may come back.
            let types = pool.pool.types.iter().filter(|ty| ty.requirements.intersects(&pool.template));
            for ty in types {
                let Some(offered) = ty.requirements.get(key) else { continue };
                if offered.complement {
                    continue;
                }
                for value in offered.values.iter().filter(|value| asked.is_none_or(|asked| asked.has(value))) {
                    match values.get_mut(value) {
                        Some((pools, _)) => pools[index] = true,
                        None => values.entry(value.clone()).or_insert_with(fresh).0[index] = true,
                    }
                }
            }
        }
        for facts in &problem.nodes {
            if let Some(value) = facts.node.labels.get(key) {
                values.entry(value.clone()).or_insert_with(fresh).1.insert(facts.kind);
            }
        }
        let shared =
            |(value, (pools, kinds)): (Text, (Vec<bool>, BTreeSet<u32>))| (value, From { pools: pools.into(), kinds });
        Self(values.into_iter().map(shared).collect())
    }
}
