//! Pods that want each other near, or far: the pod's own rules, and the rules of those already placed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::cluster::{CensusKey, Cluster, Role};
use super::super::pod::{PodFacts, Population, Term};
use super::super::topology::Domains;
use super::super::verdict::{Filter, Reason, Refusal};
use super::{for_now, never};

/// How many pods of a kind each domain has, for one rule.
#[derive(Clone)]
struct Count {
    domains: Arc<Domains>,
    per_domain: Vec<i64>,
}

#[derive(Clone, Default)]
pub(super) struct Neighbours {
    /// One per rule of the pod.
    wanted: Vec<Count>,
    unwanted: Vec<Count>,
    /// Pods that do not want this one, by topology key.
    unwelcoming: BTreeMap<String, Count>,
    /// It belongs to what it wants to be near: the first of its kind may go anywhere.
    may_be_first: bool,
}

impl Count {
    fn of(cluster: &Cluster, key: &str, per_slot: &[i64]) -> Self {
        let domains = cluster.domains(key);
        let per_domain = domains.sum(per_slot);
        Self { domains, per_domain }
    }

    fn at(&self, slot: usize) -> Option<i64> {
        self.per_domain.get(self.domains.at(slot)?).copied()
    }

    fn shift(&mut self, slot: usize, sign: i64) {
        if let Some(count) = self.domains.at(slot).and_then(|domain| self.per_domain.get_mut(domain)) {
            *count += sign;
        }
    }
}

impl Neighbours {
    pub(super) fn begin(cluster: &Cluster, pod: &PodFacts) -> Self {
        let mut neighbours = Self { may_be_first: has_all(cluster, &pod.affinity, pod), ..Self::default() };
        if !pod.affinity.is_empty() {
            let counts = cluster.census(census_key(pod.affinity.iter().map(|term| &term.who)));
            neighbours.wanted =
                pod.affinity.iter().map(|term| Count::of(cluster, &term.topology_key, &counts)).collect();
        }
        for term in &pod.anti_affinity {
            let counts = cluster.census(census_key(std::iter::once(&term.who)));
            neighbours.unwanted.push(Count::of(cluster, &term.topology_key, &counts));
        }
        for (role, term, per_slot) in cluster.rules() {
            if role != Role::RequiredAnti {
                break;
            }
            if term.who.has(pod, &cluster.namespaces) {
                for (slot, n_pods) in per_slot {
                    neighbours.unwelcome(cluster, term, *slot, *n_pods);
                }
            }
        }
        neighbours
    }

    fn unwelcome(&mut self, cluster: &Cluster, term: &Term, slot: usize, sign: i64) {
        let key = &term.topology_key;
        if !self.unwelcoming.contains_key(key) {
            self.unwelcoming.insert(key.clone(), Count::of(cluster, key, &[]));
        }
        if let Some(count) = self.unwelcoming.get_mut(key) {
            count.shift(slot, sign);
        }
    }

    pub(super) fn judge(&self, slot: usize) -> Option<Refusal> {
        if !self.is_near_the_wanted(slot) {
            return Some(never(Filter::InterPodAffinity, Reason::Affinity));
        }
        let is_met = |count: &Count| count.at(slot).is_some_and(|n_pods| n_pods > 0);
        if self.unwanted.iter().any(is_met) {
            return Some(for_now(Filter::InterPodAffinity, Reason::AntiAffinity));
        }
        self.unwelcoming.values().any(is_met).then(|| for_now(Filter::InterPodAffinity, Reason::ExistingAntiAffinity))
    }

    fn is_near_the_wanted(&self, slot: usize) -> bool {
        let mut are_there = true;
        for count in &self.wanted {
            match count.at(slot) {
                None => return false,
                Some(n_pods) => are_there &= n_pods > 0,
            }
        }
        are_there || (self.may_be_first && self.wanted.iter().all(|count| count.per_domain.iter().all(|n| *n == 0)))
    }

    pub(super) fn shift(&mut self, cluster: &Cluster, pod: &PodFacts, other: &PodFacts, slot: usize, sign: i64) {
        if has_all(cluster, &pod.affinity, other) {
            self.wanted.iter_mut().for_each(|count| count.shift(slot, sign));
        }
        for (term, count) in pod.anti_affinity.iter().zip(&mut self.unwanted) {
            if term.who.has(other, &cluster.namespaces) {
                count.shift(slot, sign);
            }
        }
        for term in &other.anti_affinity {
            if term.who.has(pod, &cluster.namespaces) {
                self.unwelcome(cluster, term, slot, sign);
            }
        }
    }
}

fn has_all(cluster: &Cluster, terms: &[Arc<Term>], pod: &PodFacts) -> bool {
    !terms.is_empty() && terms.iter().all(|term| term.who.has(pod, &cluster.namespaces))
}

fn census_key<'a>(who: impl Iterator<Item = &'a Population>) -> CensusKey {
    CensusKey { all_of: who.cloned().collect(), skips_deleting: false }
}
