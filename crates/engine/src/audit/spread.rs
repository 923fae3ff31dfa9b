//! The law of topology spread, for constraints that say `DoNotSchedule`, judged on the final state.
//!
//! Domains are those of the nodes that the constraint sees, and those that a pool could still open for the pod. By
//! hostname they are the nodes that will be there, for no other node counts as empty until it exists.

use super::breach::Breach;
use super::domains::{Domains, KeyView};
use super::market::{Market, barring_taint};
use super::picture::{Picture, Site, node_label, node_suits};
use kerf_model::{
    Demand, LabelSelector, Labels, NamespaceName, NodePolicy, Requirements, Spread, Text, Toleration, TopologyKind,
    WhenUnsatisfiable, labels,
};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

pub(super) fn check<'a>(
    picture: &Picture<'a>,
    market: &mut Market<'a>,
    domains: &mut Domains<'_, 'a>,
    breaches: &mut Vec<Breach>,
) {
    let mut groups: BTreeMap<Group<'a>, Vec<usize>> = BTreeMap::new();
    for (idx, places) in picture.places.iter().enumerate() {
        let demand = picture.demand(idx);
        for spread in hard(demand).filter(|_| !places.is_empty()) {
            if let Some(group) = Group::of(demand, spread) {
                let carriers = groups.entry(group).or_default();
                // A pod may say the same thing twice.
                if carriers.last() != Some(&idx) {
                    carriers.push(idx);
                }
            }
        }
    }
    let mut seen: BTreeMap<Filter<'a>, Rc<Vec<bool>>> = BTreeMap::new();
    let mut openings = Openings::default();
    for (group, carriers) in groups {
        let view = domains.key(group.key, market);
        let in_sight = Rc::clone(
            seen.entry(group.filter.clone())
                .or_insert_with(|| Rc::new(hosts_in_sight(picture, market, carriers[0], &group))),
        );
        let counts = Counts::take(picture, domains, &view, &in_sight, &group, &carriers);
        for carrier in &carriers {
            let scope = Scope::of(picture, &view, &in_sight, &group, *carrier, &mut openings, market);
            judge(picture, &view, &group, *carrier, &counts, &scope, breaches);
        }
    }
}

fn hard(demand: &Demand) -> impl Iterator<Item = &Spread> {
    demand.spreads.iter().filter(|spread| spread.when == WhenUnsatisfiable::DoNotSchedule)
}

/// Constraints that share their counts.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Group<'a> {
    key: &'a Text,
    selector: &'a LabelSelector,
    namespace: &'a NamespaceName,
    max_skew: u32,
    min_domains: u32,
    filter: Filter<'a>,
}

/// Which nodes a constraint looks at.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Filter<'a> {
    affinity: Option<(&'a Requirements, &'a [Requirements])>,
    tolerations: Option<&'a [Toleration]>,
    /// kube-scheduler looks only at nodes that carry the keys of all the pod's hard constraints.
    keys: BTreeSet<&'a Text>,
}

impl<'a> Group<'a> {
    /// None for a constraint without a selector: it counts nothing, so it never binds.
    fn of(demand: &'a Demand, spread: &'a Spread) -> Option<Self> {
        let affinity = (&demand.node_selector, &demand.required_terms[..]);
        Some(Self {
            key: &spread.topology_key,
            selector: spread.selector.as_ref()?,
            namespace: &demand.namespace,
            max_skew: spread.max_skew,
            min_domains: spread.min_domains.unwrap_or(0),
            filter: Filter {
                affinity: (spread.node_affinity_policy == NodePolicy::Honor).then_some(affinity),
                tolerations: (spread.node_taints_policy == NodePolicy::Honor).then_some(&demand.tolerations[..]),
                keys: hard(demand).map(|spread| &spread.topology_key).collect(),
            },
        })
    }

    fn counts(&self, namespace: &NamespaceName, labels: &Labels) -> bool {
        self.namespace == namespace && self.selector.matches(labels)
    }
}

/// For each host whether the constraint looks at it. `carrier` is any demand that carries it: they agree on the filter.
fn hosts_in_sight<'a>(picture: &Picture<'a>, market: &mut Market<'a>, carrier: usize, group: &Group<'a>) -> Vec<bool> {
    let demand = picture.demand(carrier);
    let filter = &group.filter;
    let tolerated = |taints| filter.tolerations.is_none_or(|given| barring_taint(taints, given).is_none());
    let mut in_sight = Vec::with_capacity(picture.hosts.len());
    for host in &picture.hosts {
        in_sight.push(match &host.site {
            Site::Node(node) => {
                filter.keys.iter().all(|key| node_label(node, key).is_some())
                    && (filter.affinity.is_none() || node_suits(node, demand))
                    && tolerated(&node.taints)
            }
            Site::Claim(claim) => {
                tolerated(&claim.pool.taints)
                    && (filter.affinity.is_none()
                        || claim.options.iter().all(|idx| market.assured_filter(claim.supply, *idx, demand)))
            }
        });
    }
    in_sight
}

/// Pods that the group counts, by domain.
struct Counts {
    /// Without newly placed pods that are counted but do not carry the constraint: they may come last.
    at_its_turn: BTreeMap<u32, u32>,
    in_the_end: BTreeMap<u32, u32>,
}

impl Counts {
    fn take<'a>(
        picture: &Picture<'a>,
        domains: &Domains<'_, 'a>,
        view: &KeyView,
        in_sight: &[bool],
        group: &Group<'a>,
        carriers: &[usize],
    ) -> Self {
        let mut counts = Self { at_its_turn: BTreeMap::new(), in_the_end: BTreeMap::new() };
        let mut add = |host: usize, n_pods: u32, bears: bool| {
            if let Some(domain) = view.of_host[host].pinned().filter(|_| in_sight[host]) {
                *counts.in_the_end.entry(domain).or_default() += n_pods;
                if bears {
                    *counts.at_its_turn.entry(domain).or_default() += n_pods;
                }
            }
        };
        for bound in &domains.shapes {
            if group.counts(&bound.shape.namespace, &bound.shape.labels) {
                bound.on.iter().for_each(|(node, n_pods)| add(*node, *n_pods, true));
            }
        }
        for (idx, places) in picture.places.iter().enumerate().filter(|(_, p)| !p.is_empty()) {
            let demand = picture.demand(idx);
            if group.counts(&demand.namespace, &demand.labels) {
                let bears = carriers.contains(&idx);
                places.iter().for_each(|place| add(place.host, place.n_pods, bears));
            }
        }
        counts
    }
}

/// The domains among which a pod is to be spread.
struct Scope {
    ids: BTreeSet<u32>,
    /// Domains that no node is in yet.
    n_empty: usize,
}

impl Scope {
    fn of<'a>(
        picture: &Picture<'a>,
        view: &KeyView,
        in_sight: &[bool],
        group: &Group<'a>,
        carrier: usize,
        openings: &mut Openings,
        market: &Market<'a>,
    ) -> Self {
        let demand = picture.demand(carrier);
        let mut ids = BTreeSet::new();
        for idx in (0..picture.hosts.len()).filter(|idx| in_sight[*idx] && picture.stays(*idx)) {
            ids.extend(view.of_host[idx].pinned());
        }
        let is_hostname = &**group.key == labels::HOSTNAME;
        ids.retain(|id| is_hostname || may_use(demand, group.key, &view.names[*id as usize]));
        let mut n_empty = 0;
        if !is_hostname {
            for value in openings.of(picture, market, group.key, demand, group.filter.tolerations) {
                match view.ids.get(&value) {
                    Some(id) => drop(ids.insert(*id)),
                    None => n_empty += 1,
                }
            }
        }
        Self { ids, n_empty }
    }

    fn least(&self, group: &Group, counts: &Counts) -> u32 {
        if self.n_empty > 0 || self.ids.len() < group.min_domains as usize {
            return 0;
        }
        self.ids.iter().map(|id| counts.in_the_end.get(id).copied().unwrap_or(0)).min().unwrap_or(0)
    }
}

/// Whether the pod's own requirements on the key allow the value.
fn may_use(demand: &Demand, key: &Text, value: &Text) -> bool {
    let allows = |wanted: &Requirements| wanted.get(key).is_none_or(|requirement| requirement.has(value));
    allows(&demand.node_selector) && (demand.required_terms.is_empty() || demand.required_terms.iter().any(allows))
}

fn judge<'a>(
    picture: &Picture<'a>,
    view: &KeyView,
    group: &Group<'a>,
    carrier: usize,
    counts: &Counts,
    scope: &Scope,
    breaches: &mut Vec<Breach>,
) {
    let least = scope.least(group, counts);
    let mut told = BTreeSet::new();
    for place in &picture.places[carrier] {
        let Some(domain) = view.of_host[place.host].pinned() else {
            breaches.push(Breach::DomainUnknown {
                on: picture.hosts[place.host].name.clone(),
                pod: picture.pod(place.example),
                key: group.key.clone(),
                kind: TopologyKind::Spread,
            });
            continue;
        };
        let count = counts.at_its_turn.get(&domain).copied().unwrap_or(0);
        if count > least.saturating_add(group.max_skew) && told.insert(domain) {
            breaches.push(Breach::SpreadTooWide {
                pod: picture.pod(place.example),
                key: group.key.clone(),
                domain: view.names[domain as usize].clone(),
                count,
                least,
                max_skew: group.max_skew,
            });
        }
    }
}

/// Domains that pools could open, each with every pool, type and offering that would.
#[derive(Default)]
struct Openings {
    by_key: BTreeMap<Text, WaysByValue>,
}

/// For each value of a key the pools, types and offerings that would give it, as indices.
type WaysByValue = BTreeMap<Text, Vec<(usize, usize, usize)>>;

impl Openings {
    fn of<'a>(
        &mut self,
        picture: &Picture<'a>,
        market: &Market<'a>,
        key: &Text,
        demand: &Demand,
        tolerations: Option<&[Toleration]>,
    ) -> Vec<Text> {
        let values = self.by_key.entry(key.clone()).or_insert_with(|| openings(picture, market, key));
        let snapshot = picture.snapshot;
        values
            .iter()
            .filter(|(value, ways)| {
                may_use(demand, key, value)
                    && ways.iter().any(|(pool_idx, type_idx, offering_idx)| {
                        let pool = &snapshot.pools[*pool_idx];
                        tolerations.is_none_or(|t| barring_taint(&pool.taints, t).is_none())
                            && market.may_become(*pool_idx, *type_idx, *offering_idx, demand)
                    })
            })
            .map(|(value, _)| value.clone())
            .collect()
    }
}

fn openings<'a>(picture: &Picture<'a>, market: &Market<'a>, key: &Text) -> WaysByValue {
    let mut values = WaysByValue::new();
    for (pool_idx, pool) in picture.snapshot.pools.iter().enumerate() {
        for (type_idx, kind) in pool.types.iter().enumerate() {
            for offering_idx in 0..kind.offerings.len() {
                for value in market.values_of_new(pool_idx, type_idx, offering_idx, key) {
                    values.entry(value).or_default().push((pool_idx, type_idx, offering_idx));
                }
            }
        }
    }
    values
}
