//! Laws about which pods may, and must, be near each other: required pod anti-affinity and affinity.

use super::breach::Breach;
use super::domains::{Domains, KeyView};
use super::market::Market;
use super::picture::{Picture, Place};
use kerf_model::{Labels, NamespaceName, PodTerm, TopologyKind};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

fn selects(term: &PodTerm, namespace: &NamespaceName, labels: &Labels) -> bool {
    term.selector.as_ref().is_some_and(|selector| term.namespaces.contains(&namespace.0) && selector.matches(labels))
}

/// No two different pods, at least one of them newly placed, may share a domain in which one bars the other. A claim
/// is in every domain where it may end.
pub(super) fn check_anti_affinity<'a>(
    picture: &Picture<'a>,
    market: &mut Market<'a>,
    domains: &mut Domains<'_, 'a>,
    breaches: &mut Vec<Breach>,
) {
    let placed: Vec<usize> = (0..picture.places.len()).filter(|demand| !picture.places[*demand].is_empty()).collect();
    let mut terms: BTreeSet<&PodTerm> = BTreeSet::new();
    for demand in &placed {
        terms.extend(&picture.demand(*demand).anti_affinity);
    }
    for bound in &domains.shapes {
        terms.extend(&bound.shape.anti_affinity);
    }
    for term in terms {
        let view = domains.key(&term.topology_key, market);
        let mut tallies: BTreeMap<u32, Tally> = BTreeMap::new();
        for idx in &placed {
            let demand = picture.demand(*idx);
            let role = Role {
                bars: demand.anti_affinity.contains(term),
                is_barred: selects(term, &demand.namespace, &demand.labels),
            };
            if role.bars || role.is_barred {
                for place in &picture.places[*idx] {
                    for domain in &view.of_host[place.host].ids {
                        tallies.entry(*domain).or_default().add_new(role, place);
                    }
                }
            }
        }
        if tallies.is_empty() {
            continue;
        }
        for bound in &domains.shapes {
            let shape = bound.shape;
            let role = Role {
                bars: shape.anti_affinity.contains(term),
                is_barred: selects(term, &shape.namespace, &shape.labels),
            };
            if role.bars || role.is_barred {
                for (node, n_pods) in &bound.on {
                    for domain in &view.of_host[*node].ids {
                        if let Some(tally) = tallies.get_mut(domain) {
                            tally.old.add(role, *n_pods);
                        }
                    }
                }
            }
        }
        for (domain, tally) in tallies {
            if let Some((example, kind)) = tally.offender() {
                breaches.push(Breach::AntiAffinity {
                    pod: picture.pod(example),
                    key: term.topology_key.clone(),
                    domain: view.names[domain as usize].clone(),
                    kind,
                });
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Role {
    bars: bool,
    is_barred: bool,
}

/// How many pods of a domain bar, are barred, and both.
#[derive(Default, Clone, Copy)]
struct Parties {
    barring: u64,
    barred: u64,
    both: u64,
}

impl Parties {
    fn add(&mut self, role: Role, n_pods: u32) {
        let n_pods = u64::from(n_pods);
        self.barring += if role.bars { n_pods } else { 0 };
        self.barred += if role.is_barred { n_pods } else { 0 };
        self.both += if role.bars && role.is_barred { n_pods } else { 0 };
    }

    /// Ordered pairs of different pods of which the first bars the second.
    fn n_quarrels(self) -> u64 {
        self.barring * self.barred - self.both
    }
}

#[derive(Default)]
struct Tally {
    new: Parties,
    old: Parties,
    barring: Option<usize>,
    barred: Option<usize>,
}

impl Tally {
    fn add_new(&mut self, role: Role, place: &Place) {
        self.new.add(role, place.n_pods);
        if role.bars {
            self.barring.get_or_insert(place.example);
        }
        if role.is_barred {
            self.barred.get_or_insert(place.example);
        }
    }

    /// A pod of the plan that has a part in a quarrel.
    fn offender(&self) -> Option<(usize, TopologyKind)> {
        let all = Parties {
            barring: self.new.barring + self.old.barring,
            barred: self.new.barred + self.old.barred,
            both: self.new.both + self.old.both,
        };
        if all.n_quarrels() == self.old.n_quarrels() {
            return None;
        }
        self.barring
            .map(|pod| (pod, TopologyKind::AntiAffinity))
            .or(self.barred.map(|pod| (pod, TopologyKind::InverseAntiAffinity)))
    }
}

/// There must be an order in which the pods can come, each finding one it must be near already there. A group that
/// selects itself may start in one domain with nobody there, if none it selects is bound anywhere: it then comes before
/// whatever else the plan places.
pub(super) fn check_affinity<'a>(
    picture: &Picture<'a>,
    market: &mut Market<'a>,
    domains: &mut Domains<'_, 'a>,
    breaches: &mut Vec<Breach>,
) {
    let mut waiting: Vec<(usize, Place)> = Vec::new();
    let mut settled: Vec<(usize, Place)> = Vec::new();
    let mut term_ids: BTreeMap<&PodTerm, usize> = BTreeMap::new();
    for (demand, places) in picture.places.iter().enumerate() {
        let terms = &picture.demand(demand).affinity;
        let list = if terms.is_empty() { &mut settled } else { &mut waiting };
        list.extend(places.iter().map(|place| (demand, *place)));
        for term in terms.iter().filter(|_| !places.is_empty()) {
            let next = term_ids.len();
            term_ids.entry(term).or_insert(next);
        }
    }
    if waiting.is_empty() {
        return;
    }
    waiting.sort_by_key(|(demand, place)| (place.host, *demand));
    let mut gatherings: Vec<Gathering> = vec![Gathering::default(); term_ids.len()];
    let mut views: Vec<Rc<KeyView>> = vec![Rc::default(); term_ids.len()];
    for (term, id) in &term_ids {
        views[*id] = domains.key(&term.topology_key, market);
        for bound in &domains.shapes {
            if selects(term, &bound.shape.namespace, &bound.shape.labels) {
                for (node, _) in &bound.on {
                    gatherings[*id].join(&views[*id], *node);
                    gatherings[*id].may_start &= views[*id].of_host[*node].ids.is_empty();
                }
            }
        }
    }
    let selecting: Vec<Vec<usize>> = (0..picture.places.len())
        .map(|idx| {
            let demand = picture.demand(idx);
            term_ids
                .iter()
                .filter(|(term, _)| selects(term, &demand.namespace, &demand.labels))
                .map(|(_, id)| *id)
                .collect()
        })
        .collect();
    let terms_of = |demand: usize| picture.demand(demand).affinity.iter().map(|term| term_ids[term]);
    for (demand, place) in &settled {
        for id in &selecting[*demand] {
            gatherings[*id].join(&views[*id], place.host);
        }
    }
    let mut may_start = false;
    loop {
        let n_before = waiting.len();
        waiting.retain(|(demand, place)| {
            let mut starts = Vec::new();
            let can_come = terms_of(*demand).all(|id| {
                let starts_here = || {
                    may_start
                        && gatherings[id].may_start
                        && selecting[*demand].contains(&id)
                        && !views[id].of_host[place.host].ids.is_empty()
                };
                if gatherings[id].is_near(&views[id], place.host) {
                    true
                } else if starts_here() {
                    starts.push(id);
                    true
                } else {
                    false
                }
            });
            if can_come {
                starts.iter().for_each(|id| gatherings[*id].may_start = false);
                for id in &selecting[*demand] {
                    gatherings[*id].join(&views[*id], place.host);
                }
            }
            !can_come
        });
        if waiting.len() < n_before {
            may_start = false;
        } else if may_start || waiting.is_empty() {
            break;
        } else {
            may_start = true;
        }
    }
    for (demand, place) in waiting {
        let far = picture
            .demand(demand)
            .affinity
            .iter()
            .find(|term| !gatherings[term_ids[term]].is_near(&views[term_ids[term]], place.host));
        let term = far.unwrap_or(&picture.demand(demand).affinity[0]);
        breaches.push(Breach::AffinityAlone {
            on: picture.hosts[place.host].name.clone(),
            pod: picture.pod(place.example),
            key: term.topology_key.clone(),
        });
    }
}

/// Where pods that a term selects are sure to be.
#[derive(Clone)]
struct Gathering {
    domains: BTreeSet<u32>,
    hosts: BTreeSet<usize>,
    /// Nobody is bound anywhere, and the group has not started elsewhere.
    may_start: bool,
}

impl Default for Gathering {
    fn default() -> Self {
        Self { domains: BTreeSet::new(), hosts: BTreeSet::new(), may_start: true }
    }
}

impl Gathering {
    fn join(&mut self, view: &KeyView, host: usize) {
        let whereabouts = &view.of_host[host];
        if whereabouts.ids.is_empty() {
            return; // Without the label it is in no domain, and kube-scheduler does not see it.
        }
        self.hosts.insert(host);
        self.domains.extend(whereabouts.pinned());
    }

    /// Wherever the host ends, somebody is there: on the very host, or in each domain that it may be in.
    fn is_near(&self, view: &KeyView, host: usize) -> bool {
        let whereabouts = &view.of_host[host];
        !whereabouts.ids.is_empty()
            && (self.hosts.contains(&host)
                || (!whereabouts.is_open && whereabouts.ids.iter().all(|id| self.domains.contains(id))))
    }
}
