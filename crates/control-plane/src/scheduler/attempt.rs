//! One attempt to place one pod: look, and choose or explain.

use super::cluster::Cluster;
use super::filter::{Cycle, PodVolumes, Setback};
use super::pod::PodFacts;
use super::preempt::{self, Preemption};
use super::score;
use super::verdict::{Filter, NO_NODES, Reason, Refusal, Verdict, histogram};

/// Clusters up to this size are looked at whole, and in larger ones at least this many fitting nodes are compared.
const COMPARED_MIN: usize = 100;
const COMPARED_PERCENT_MIN: usize = 5;

/// What came of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Place {
        node: String,
        volumes: PodVolumes,
    },
    /// No node will do now.
    Wait {
        message: String,
        filters: Vec<Filter>,
        preemption: Option<Preemption>,
        /// A node that the pod was promised is not kept for it any longer.
        gives_up_nomination: bool,
    },
    /// Something that should have worked did not; try again soon.
    Retry {
        message: String,
    },
}

/// What each node says to a pod, in the order the nodes came, or why it was not asked.
///
/// - Flow: what concerns all nodes first, then node by node, first refusing check first.
/// - Guarantees: depends on nothing but the arguments, and changes nothing.
/// - Caveats: looks at every node, where the scheduler itself stops once it has enough to compare.
pub fn verdicts(pod: &PodFacts, cluster: &Cluster) -> Result<Vec<(String, Verdict)>, Setback> {
    let cycle = Cycle::begin(cluster, pod).map_err(|(_, setback)| setback)?;
    Ok(cluster.nodes().map(|(slot, node)| (node.facts.name.clone(), judge(&cycle, cluster, slot))).collect())
}

/// The words for a pod that found no node: those of the `PodScheduled` condition and the event.
///
/// `verdicts` are of all nodes. Preemption is weighed too, but not done.
#[must_use]
pub fn explain(pod: &PodFacts, cluster: &Cluster, verdicts: &Result<Vec<(String, Verdict)>, Setback>) -> String {
    if cluster.n_nodes() == 0 {
        return NO_NODES.to_owned();
    }
    match verdicts {
        Err(Setback::Error(message)) => message.clone(),
        Err(Setback::Refused { message, .. }) => refused_outright(cluster, message),
        Ok(verdicts) => {
            if let Some(message) = verdicts.iter().find_map(|(_, verdict)| match verdict {
                Verdict::Error(message) => Some(message),
                _ => None,
            }) {
                return message.clone();
            }
            let refused = refusals(cluster, verdicts);
            match Cycle::begin(cluster, pod) {
                Ok(cycle) => told(cluster, pod, &refused, preempt::weigh(cluster, &cycle, &refused, 0).err()),
                Err(_) => String::new(),
            }
        }
    }
}

/// The nodes that are best for a pod: those of the highest score among all that would do. The scheduler picks one of them.
#[must_use]
pub fn best(pod: &PodFacts, cluster: &Cluster) -> Vec<String> {
    let Ok(verdicts) = verdicts(pod, cluster) else { return Vec::new() };
    let fitting = verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Fits);
    let fitting: Vec<usize> = fitting.filter_map(|(name, _)| cluster.slot(name)).collect();
    let equals = equally_good(cluster, pod, &fitting);
    equals.iter().filter_map(|slot| Some(cluster.node(*slot)?.facts.name.clone())).collect()
}

/// Whom a pod may send away to get a node: every choice that does as little harm as any other. Empty when none would help.
#[must_use]
pub fn preemptions(pod: &PodFacts, cluster: &Cluster, verdicts: &[(String, Verdict)]) -> Vec<Preemption> {
    let Ok(cycle) = Cycle::begin(cluster, pod) else { return Vec::new() };
    preempt::least_harmful(cluster, &cycle, &refusals(cluster, verdicts), 0).unwrap_or_default()
}

fn refusals(cluster: &Cluster, verdicts: &[(String, Verdict)]) -> Vec<(usize, Refusal)> {
    let refusal = |(name, verdict): &(String, Verdict)| match verdict {
        Verdict::Refused(refusal) => Some((cluster.slot(name)?, refusal.clone())),
        _ => None,
    };
    verdicts.iter().filter_map(refusal).collect()
}

/// Where the scheduler left off looking, and its dice for equals.
pub(crate) struct Search<'a> {
    pub(crate) next_start: &'a mut usize,
    pub(crate) random: &'a mut dyn FnMut() -> u64,
}

pub(crate) fn attempt(cluster: &Cluster, pod: &PodFacts, search: &mut Search<'_>) -> Outcome {
    let n_nodes = cluster.n_nodes();
    if n_nodes == 0 {
        let message = NO_NODES.to_owned();
        return Outcome::Wait { message, filters: Vec::new(), preemption: None, gives_up_nomination: true };
    }
    let cycle = match Cycle::begin(cluster, pod) {
        Ok(cycle) => cycle,
        Err((_, Setback::Error(message))) => return Outcome::Retry { message },
        Err((filter, Setback::Refused { message, .. })) => {
            // The part that would take a promise back is not reached.
            let message = refused_outright(cluster, &message);
            return Outcome::Wait { message, filters: vec![filter], preemption: None, gives_up_nomination: false };
        }
    };
    let found = match look(cluster, &cycle, search.next_start) {
        Ok(found) => found,
        Err(message) => return Outcome::Retry { message },
    };
    if let Some(slot) = choose(cluster, pod, &found.fitting, search.random)
        && let Some(node) = cluster.node(slot)
    {
        return Outcome::Place { node: node.facts.name.clone(), volumes: cycle.plan_volumes(node) };
    }
    let mut filters: Vec<Filter> = found.refused.iter().map(|(_, refusal)| refusal.filter).collect();
    filters.sort_unstable();
    filters.dedup();
    let offset = usize::try_from((search.random)() % u64::try_from(n_nodes).unwrap_or(1).max(1)).unwrap_or(0);
    match preempt::weigh(cluster, &cycle, &found.refused, offset) {
        Ok(preemption) => Outcome::Wait {
            message: told(cluster, pod, &found.refused, None),
            filters,
            preemption: Some(preemption),
            gives_up_nomination: false,
        },
        Err(why) => {
            let gives_up_nomination = why.starts_with("0/");
            let message = told(cluster, pod, &found.refused, Some(why));
            Outcome::Wait { message, filters, preemption: None, gives_up_nomination }
        }
    }
}

fn judge(cycle: &Cycle<'_>, cluster: &Cluster, slot: usize) -> Verdict {
    let Some(node) = cluster.node(slot) else { return Verdict::Error(format!("no node in slot {slot}")) };
    if cycle.only.as_ref().is_some_and(|names| !names.contains(&node.facts.name)) {
        let reasons = vec![Reason::NotNamed];
        return Verdict::Refused(Refusal { reasons, could_yield: false, filter: Filter::NodeAffinity });
    }
    cycle.judge(slot, node)
}

#[derive(Default)]
struct Found {
    fitting: Vec<usize>,
    refused: Vec<(usize, Refusal)>,
}

/// Looks at nodes until enough fit. Each look begins where the one before ended, so that every node gets its turn.
fn look(cluster: &Cluster, cycle: &Cycle<'_>, next_start: &mut usize) -> Result<Found, String> {
    let order = cluster.order();
    let mut found = Found::default();
    let take = |slot: usize, found: &mut Found| {
        match judge(cycle, cluster, slot) {
            Verdict::Fits => found.fitting.push(slot),
            Verdict::Refused(refusal) => found.refused.push((slot, refusal)),
            Verdict::Error(message) => return Err(message),
        }
        Ok(())
    };
    if let Some(slot) = cycle.pod.nominated.as_ref().and_then(|name| cluster.slot(name)) {
        let mut alone = Found::default();
        if take(slot, &mut alone).is_ok() && !alone.fitting.is_empty() {
            return Ok(alone);
        }
    }
    let named = cycle.only.as_ref().map(|names| names.iter().filter(|name| cluster.slot(name).is_some()).count());
    let enough = compared(named.unwrap_or(order.len()));
    let start = *next_start % order.len().max(1);
    for slot in order.iter().cycle().skip(start).take(order.len()) {
        take(*slot, &mut found)?;
        if found.fitting.len() >= enough {
            break;
        }
    }
    *next_start = (start + found.fitting.len() + found.refused.len()) % order.len().max(1);
    Ok(found)
}

/// How many fitting nodes are enough: all of a small cluster, and fewer of the whole the larger it is.
fn compared(n_nodes: usize) -> usize {
    if n_nodes < COMPARED_MIN {
        return n_nodes;
    }
    let percent = 50_usize.saturating_sub(n_nodes / 125).max(COMPARED_PERCENT_MIN);
    (n_nodes * percent / 100).max(COMPARED_MIN)
}

fn choose(cluster: &Cluster, pod: &PodFacts, fitting: &[usize], random: &mut dyn FnMut() -> u64) -> Option<usize> {
    let equals = equally_good(cluster, pod, fitting);
    if equals.len() <= 1 {
        return equals.first().copied();
    }
    let pick = usize::try_from(random() % u64::try_from(equals.len()).ok()?).ok()?;
    equals.get(pick).copied()
}

/// Of these, the ones with the highest score.
fn equally_good(cluster: &Cluster, pod: &PodFacts, fitting: &[usize]) -> Vec<usize> {
    if fitting.len() <= 1 {
        return fitting.to_vec();
    }
    let totals = score::totals(cluster, pod, fitting);
    let best = totals.iter().copied().max();
    fitting.iter().zip(&totals).filter(|(_, total)| Some(**total) == best).map(|(slot, _)| *slot).collect()
}

/// A pod refused before any node was asked. The last words come from a part that then misses its own notes.
fn refused_outright(cluster: &Cluster, message: &str) -> String {
    format!("{} {message}. not found", histogram(cluster.n_nodes(), [].into_iter()))
}

/// What the nodes said, and why preemption does not help. Where it does, nothing is said of it.
fn told(cluster: &Cluster, pod: &PodFacts, refused: &[(usize, Refusal)], no_preemption: Option<String>) -> String {
    let nodes = histogram(cluster.n_nodes(), refused.iter().flat_map(|(_, refusal)| &refusal.reasons));
    let Some(why) = no_preemption else { return nodes };
    let has_claims = pod.resource_claims.iter().any(|used| used.claim.is_some());
    let claims = if has_claims { "still not schedulable" } else { "no new claims to deallocate" };
    format!("{nodes} {claims}, preemption: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_the_cluster_the_smaller_the_share_that_is_compared() {
        for (n_nodes, n_compared) in [(3, 3), (99, 99), (100, 100), (250, 120), (1000, 420), (5000, 500), (10_000, 500)]
        {
            assert_eq!(compared(n_nodes), n_compared, "{n_nodes} nodes");
        }
    }
}
