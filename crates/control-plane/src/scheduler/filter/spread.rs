//! Topology spread: not more pods of a kind in one domain than in the emptiest, but for the skew allowed.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::cluster::{CensusKey, Cluster};
use super::super::labels::Selector;
use super::super::node::NodeInfo;
use super::super::pod::{PodFacts, Population, Spread};
use super::super::topology::Domains;
use super::super::verdict::{Filter, Reason, Refusal};
use super::{for_now, never};

/// One hard constraint and how the pods it counts are spread now.
#[derive(Clone)]
pub(super) struct SpreadCounts<'a> {
    constraint: &'a Spread,
    domains: Arc<Domains>,
    /// Which slots count: nodes with every topology key, that the constraint's policies include.
    eligible: Arc<Vec<bool>>,
    per_domain: Vec<i64>,
    /// Domains with at least one node that counts.
    is_domain: Arc<Vec<bool>>,
    n_domains: usize,
    minimum: i64,
    is_self_match: bool,
}

pub(super) fn counts<'a>(cluster: &Cluster, pod: &'a PodFacts) -> Vec<SpreadCounts<'a>> {
    let hard: Vec<&Spread> = pod.spread.iter().filter(|constraint| constraint.is_hard).collect();
    let keys: Vec<Arc<Domains>> = hard.iter().map(|constraint| cluster.domains(&constraint.topology_key)).collect();
    let count = |(constraint, domains): (&&'a Spread, &Arc<Domains>)| {
        let per_slot = population(cluster, pod, &constraint.selector);
        let mut eligible = vec![false; domains.of_slot.len()];
        let (mut per_domain, mut is_domain) = (vec![0; domains.n_domains], vec![false; domains.n_domains]);
        for (slot, node) in cluster.nodes() {
            let has_all_keys = keys.iter().all(|domains| domains.at(slot).is_some());
            let Some(domain) = domains.at(slot).filter(|_| has_all_keys && includes(constraint, pod, node)) else {
                continue;
            };
            eligible[slot] = true;
            is_domain[domain] = true;
            per_domain[domain] += per_slot.as_ref().and_then(|counts| counts.get(slot)).copied().unwrap_or(0);
        }
        let n_domains = is_domain.iter().filter(|is_domain| **is_domain).count();
        let mut counts = SpreadCounts {
            constraint,
            domains: domains.clone(),
            eligible: Arc::new(eligible),
            per_domain,
            is_domain: Arc::new(is_domain),
            n_domains,
            minimum: 0,
            is_self_match: constraint.selector.matches(&pod.labels),
        };
        counts.find_minimum();
        counts
    };
    hard.iter().zip(&keys).map(count).collect()
}

impl SpreadCounts<'_> {
    fn find_minimum(&mut self) {
        let counted = self.per_domain.iter().zip(self.is_domain.iter()).filter(|(_, is_domain)| **is_domain);
        let least = counted.map(|(count, _)| *count).min().unwrap_or(0);
        let min_domains = usize::try_from(self.constraint.min_domains).unwrap_or(0);
        self.minimum = if self.n_domains < min_domains { 0 } else { least };
    }
}

pub(super) fn judge(all: &[SpreadCounts<'_>], slot: usize) -> Option<Refusal> {
    for counts in all {
        let Some(domain) = counts.domains.at(slot) else {
            return Some(never(Filter::PodTopologySpread, Reason::SpreadLabel));
        };
        let here = counts.per_domain.get(domain).copied().unwrap_or(0) + i64::from(counts.is_self_match);
        if here - counts.minimum > i64::from(counts.constraint.max_skew) {
            return Some(for_now(Filter::PodTopologySpread, Reason::Spread));
        }
    }
    None
}

pub(super) fn shift(all: &mut [SpreadCounts<'_>], pod: &PodFacts, other: &PodFacts, slot: usize, sign: i64) {
    if pod.key.namespace != other.key.namespace {
        return;
    }
    for counts in all {
        let counts_here = counts.eligible.get(slot).copied().unwrap_or(false);
        if let Some(domain) = counts.domains.at(slot).filter(|_| counts_here)
            && counts.constraint.selector.matches(&other.labels)
        {
            counts.per_domain[domain] += sign;
            counts.find_minimum();
        }
    }
}

/// Whether a node counts for a constraint.
pub(crate) fn includes(constraint: &Spread, pod: &PodFacts, node: &NodeInfo) -> bool {
    (!constraint.honours_affinity || pod.accepts_labels(&node.facts.name, &node.facts.labels))
        && (!constraint.honours_taints || node.facts.is_tolerated_by(&pod.tolerations))
}

/// How many pods a constraint counts on each slot. None when its selector is empty, which counts nobody.
pub(crate) fn population(cluster: &Cluster, pod: &PodFacts, selector: &Selector) -> Option<Arc<Vec<i64>>> {
    if selector.is_everything() {
        return None;
    }
    let who = Population {
        namespaces: BTreeSet::from([pod.key.namespace.clone()]),
        namespace_selector: Selector::nothing(),
        selector: selector.clone(),
    };
    Some(cluster.census(CensusKey { all_of: vec![who], skips_deleting: true }))
}
