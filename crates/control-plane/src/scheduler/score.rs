//! Which of the nodes that would do is best: the scores of the default profile, each brought to 0..=100 and weighed.
//!
//! | score | weight | prefers |
//! |---|---|---|
//! | TaintToleration | 3 | few `PreferNoSchedule` taints that the pod does not tolerate |
//! | NodeAffinity | 2 | preferred node terms |
//! | PodTopologySpread | 2 | domains with few of the pod's kind |
//! | InterPodAffinity | 2 | what preferred rules of this pod and of others say |
//! | NodeResourcesFit | 1 | much left of cpu and memory |
//! | NodeResourcesBalancedAllocation | 1 | cpu and memory used alike |
//! | ImageLocality | 1 | images already there |

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cluster::{CensusKey, Cluster, Role};
use super::filter::spread::{includes, population};
use super::node::{NodeInfo, tolerates};
use super::pod::{PodFacts, Spread, Term};
use super::topology::Domains;

const MAX_SCORE: i64 = 100;
const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
/// What a required affinity of a placed pod counts for a newcomer that meets it.
const HARD_AFFINITY_WEIGHT: i64 = 1;

/// The total of each slot, in the order given. No order depends on anything but the arguments.
pub(crate) fn totals(cluster: &Cluster, pod: &PodFacts, slots: &[usize]) -> Vec<i64> {
    let mut totals = vec![0; slots.len()];
    for (weight, scores) in [
        (3, taints(cluster, pod, slots)),
        (2, node_preferences(cluster, pod, slots)),
        (2, spread(cluster, pod, slots)),
        (2, neighbours(cluster, pod, slots)),
        (1, per_node(cluster, slots, |node| least_allocated(pod, node))),
        (1, balanced(cluster, pod, slots)),
        (1, images(cluster, pod, slots)),
    ] {
        for (total, score) in totals.iter_mut().zip(scores) {
            *total += weight * score;
        }
    }
    totals
}

fn per_node(cluster: &Cluster, slots: &[usize], score: impl Fn(&NodeInfo) -> i64) -> Vec<i64> {
    slots.iter().map(|slot| cluster.node(*slot).map_or(0, &score)).collect()
}

/// Brings the largest to 100; reversed, so that the smallest is best.
fn normalise(mut scores: Vec<i64>, is_reversed: bool) -> Vec<i64> {
    let most = scores.iter().copied().max().unwrap_or(0);
    for score in &mut scores {
        let share = if most == 0 { 0 } else { MAX_SCORE * *score / most };
        *score = if is_reversed { MAX_SCORE - share } else { share };
    }
    scores
}

fn taints(cluster: &Cluster, pod: &PodFacts, slots: &[usize]) -> Vec<i64> {
    let tolerations: Vec<_> = pod
        .tolerations
        .iter()
        .filter(|toleration| matches!(toleration.effect.as_deref(), None | Some("" | "PreferNoSchedule")))
        .collect();
    let count = |node: &NodeInfo| {
        let soft = node.facts.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
        let bad = soft.filter(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)));
        i64::try_from(bad.count()).unwrap_or(i64::MAX / MAX_SCORE)
    };
    normalise(per_node(cluster, slots, count), true)
}

fn node_preferences(cluster: &Cluster, pod: &PodFacts, slots: &[usize]) -> Vec<i64> {
    if pod.node_preferences.is_empty() {
        return vec![0; slots.len()];
    }
    let sum = |node: &NodeInfo| {
        let met = pod.node_preferences.iter().filter(|(_, term)| term.matches(&node.facts.name, &node.facts.labels));
        met.map(|(weight, _)| i64::from(*weight)).sum()
    };
    normalise(per_node(cluster, slots, sum), false)
}

fn least_allocated(pod: &PodFacts, node: &NodeInfo) -> i64 {
    let left = |asked: i64, used: i64, has: i64| {
        let used = used.saturating_add(asked);
        (has != 0).then(|| if used > has { 0 } else { scaled(has.saturating_sub(used), has) })
    };
    let has = &node.facts.allocatable;
    let scores = [
        left(pod.demand.scored_cpu_milli, node.scored_cpu_milli, has.cpu_milli),
        left(pod.demand.scored_memory_bytes, node.scored_memory_bytes, has.memory_bytes),
    ];
    let n_scores = scores.iter().flatten().count();
    i64::try_from(n_scores).ok().and_then(|n| scores.iter().flatten().sum::<i64>().checked_div(n)).unwrap_or(0)
}

fn scaled(part: i64, whole: i64) -> i64 {
    let share = i128::from(part) * i128::from(MAX_SCORE) / i128::from(whole);
    i64::try_from(share).unwrap_or(MAX_SCORE).clamp(0, MAX_SCORE)
}

fn balanced(cluster: &Cluster, pod: &PodFacts, slots: &[usize]) -> Vec<i64> {
    let asked = &pod.demand.asked;
    if asked.cpu_milli == 0 && asked.memory_bytes == 0 {
        return vec![0; slots.len()];
    }
    per_node(cluster, slots, |node| {
        let (has, used) = (&node.facts.allocatable, &node.requested);
        let evenness = |more_cpu: i64, more_memory: i64| {
            let mut fractions = Vec::with_capacity(2);
            for (used, has) in [
                (used.cpu_milli.saturating_add(more_cpu), has.cpu_milli),
                (used.memory_bytes.saturating_add(more_memory), has.memory_bytes),
            ] {
                if has != 0 {
                    fractions.push((used as f64 / has as f64).min(1.0));
                }
            }
            let deviation = if let [cpu, memory] = fractions[..] { ((cpu - memory) / 2.0).abs() } else { 0.0 };
            ((1.0 - deviation) * MAX_SCORE as f64) as i64
        };
        let (with, without) = (evenness(asked.cpu_milli, asked.memory_bytes), evenness(0, 0));
        MAX_SCORE / 2 + (MAX_SCORE / 2 + with - without) / 2
    })
}

fn images(cluster: &Cluster, pod: &PodFacts, slots: &[usize]) -> Vec<i64> {
    const MIB: i64 = 1024 * 1024;
    const LEAST: i64 = 23 * MIB;
    let most = 1000 * MIB * i64::try_from(pod.n_containers).unwrap_or(1).max(1);
    let n_nodes = cluster.n_nodes() as f64;
    per_node(cluster, slots, |node| {
        let sizes = pod.images.iter().filter_map(|image| {
            let size = node.facts.images.get(image)?;
            Some((*size as f64 * (cluster.n_nodes_with_image(image) as f64 / n_nodes)) as i64)
        });
        let sum = sizes.fold(0_i64, i64::saturating_add).clamp(LEAST, most);
        MAX_SCORE * (sum - LEAST) / (most - LEAST)
    })
}

/// One soft constraint, counted over all nodes.
struct SoftSpread {
    constraint: Spread,
    domains: Arc<Domains>,
    per_slot: Option<Arc<Vec<i64>>>,
    per_domain: Vec<i64>,
    weight: f64,
}

fn spread(cluster: &Cluster, pod: &PodFacts, slots: &[usize]) -> Vec<i64> {
    let is_own = !pod.spread.is_empty();
    let constraints = if is_own {
        pod.spread.iter().filter(|constraint| !constraint.is_hard).cloned().collect()
    } else {
        default_spread(cluster, pod)
    };
    if constraints.is_empty() {
        return vec![0; slots.len()];
    }
    let keys: Vec<Arc<Domains>> = constraints.iter().map(|c| cluster.domains(&c.topology_key)).collect();
    let is_ignored = |slot: usize| is_own && keys.iter().any(|domains| domains.at(slot).is_none());
    let counted: Vec<usize> = slots.iter().copied().filter(|slot| !is_ignored(*slot)).collect();
    let soft: Vec<SoftSpread> = constraints
        .into_iter()
        .zip(&keys)
        .map(|(constraint, domains)| {
            count_soft(cluster, pod, constraint, domains, &counted, is_own.then_some(&keys[..]))
        })
        .collect();

    let score_of = |slot: usize| {
        let mut sum = 0.0;
        for one in &soft {
            let Some(domain) = one.domains.at(slot) else { continue };
            let count = if one.constraint.topology_key == HOSTNAME {
                one.per_slot.as_ref().and_then(|counts| counts.get(slot)).copied().unwrap_or(0)
            } else {
                one.per_domain[domain]
            };
            sum += count as f64 * one.weight + f64::from(one.constraint.max_skew.saturating_sub(1));
        }
        sum.round() as i64
    };
    let scores: Vec<Option<i64>> = slots.iter().map(|slot| (!is_ignored(*slot)).then(|| score_of(*slot))).collect();
    let (least, most) =
        (scores.iter().flatten().min().copied().unwrap_or(0), scores.iter().flatten().max().copied().unwrap_or(0));
    scores
        .into_iter()
        .map(|score| match score {
            None => 0,
            Some(_) if most == 0 => MAX_SCORE,
            Some(score) => MAX_SCORE * (most + least - score) / most,
        })
        .collect()
}

/// Pods of a service or workload are spread over nodes and zones even if they do not ask for it.
fn default_spread(cluster: &Cluster, pod: &PodFacts) -> Vec<Spread> {
    let Some(selector) = cluster.siblings_of(pod) else { return Vec::new() };
    [(HOSTNAME, 3), (ZONE, 5)]
        .map(|(topology_key, max_skew)| Spread {
            is_hard: false,
            max_skew,
            min_domains: 1,
            topology_key: topology_key.to_owned(),
            selector: selector.clone(),
            honours_affinity: true,
            honours_taints: false,
        })
        .to_vec()
}

fn count_soft(
    cluster: &Cluster,
    pod: &PodFacts,
    constraint: Spread,
    domains: &Arc<Domains>,
    counted: &[usize],
    required_keys: Option<&[Arc<Domains>]>,
) -> SoftSpread {
    let per_slot = population(cluster, pod, &constraint.selector);
    let mut is_candidate = vec![false; domains.n_domains];
    for domain in counted.iter().filter_map(|slot| domains.at(*slot)) {
        is_candidate[domain] = true;
    }
    let mut per_domain = vec![0; domains.n_domains];
    if constraint.topology_key != HOSTNAME {
        for (slot, node) in cluster.nodes() {
            let Some(domain) = domains.at(slot).filter(|domain| is_candidate[*domain]) else { continue };
            let has_keys = required_keys.is_none_or(|keys| keys.iter().all(|domains| domains.at(slot).is_some()));
            if has_keys && includes(&constraint, pod, node) {
                per_domain[domain] += per_slot.as_ref().and_then(|counts| counts.get(slot)).copied().unwrap_or(0);
            }
        }
    }
    // Nodes without the label make up one more domain where a constraint does not require the label.
    let has_unlabelled = counted.iter().any(|slot| domains.at(*slot).is_none());
    let n_domains = if constraint.topology_key == HOSTNAME {
        counted.len()
    } else {
        is_candidate.iter().filter(|is_candidate| **is_candidate).count() + usize::from(has_unlabelled)
    };
    SoftSpread { constraint, domains: domains.clone(), per_slot, per_domain, weight: ((n_domains + 2) as f64).ln() }
}

/// Sums by topology key and domain.
#[derive(Default)]
struct TopologyScores(BTreeMap<String, (Arc<Domains>, Vec<i64>)>);

impl TopologyScores {
    fn add(&mut self, cluster: &Cluster, term: &Term, slot: usize, amount: i64) {
        let (domains, sums) = self.0.entry(term.topology_key.clone()).or_insert_with(|| {
            let domains = cluster.domains(&term.topology_key);
            let sums = vec![0; domains.n_domains];
            (domains, sums)
        });
        if let Some(domain) = domains.at(slot) {
            sums[domain] += amount;
        }
    }
}

fn neighbours(cluster: &Cluster, pod: &PodFacts, slots: &[usize]) -> Vec<i64> {
    let mut scores = TopologyScores::default();
    let own = pod.affinity_preferences.iter().map(|(weight, term)| (i64::from(*weight), term));
    let own_anti = pod.anti_affinity_preferences.iter().map(|(weight, term)| (-i64::from(*weight), term));
    for (weight, term) in own.chain(own_anti) {
        let counts = cluster.census(CensusKey { all_of: vec![term.who.clone()], skips_deleting: false });
        for (slot, count) in counts.iter().enumerate().filter(|(_, count)| **count != 0) {
            scores.add(cluster, term, slot, weight * count);
        }
    }
    for (role, term, per_slot) in cluster.rules() {
        let weight = match role {
            Role::RequiredAnti => continue,
            Role::RequiredAffinity => HARD_AFFINITY_WEIGHT,
            Role::Preferred(weight) => i64::from(weight),
            Role::PreferredAnti(weight) => -i64::from(weight),
        };
        if term.who.has(pod, &cluster.namespaces) {
            for (slot, count) in per_slot {
                scores.add(cluster, term, *slot, weight * count);
            }
        }
    }
    let sum = |slot: &usize| {
        scores.0.values().filter_map(|(domains, sums)| domains.at(*slot).map(|domain| sums[domain])).sum::<i64>()
    };
    let sums: Vec<i64> = slots.iter().map(sum).collect();
    let (least, most) = (sums.iter().copied().min().unwrap_or(0), sums.iter().copied().max().unwrap_or(0));
    if most == least {
        return vec![0; slots.len()];
    }
    let range = (most - least) as f64;
    sums.into_iter().map(|sum| (MAX_SCORE as f64 * ((sum - least) as f64 / range)) as i64).collect()
}

#[cfg(test)]
mod tests;
