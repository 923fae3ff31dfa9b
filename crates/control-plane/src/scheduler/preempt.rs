//! Making room: which less important pods would have to go for this one to fit, and on which node that hurts least.

use std::sync::Arc;

use super::cluster::Cluster;
use super::filter::Cycle;
use super::node::NodeInfo;
use super::pod::PodFacts;
use super::verdict::{Reason, Refusal, Verdict, histogram};
use crate::store::Key;

/// At least this many nodes are weighed, and at least this share of them.
const CANDIDATES_MIN: usize = 100;
const CANDIDATES_PERCENT: usize = 10;

/// Who goes, and where the pod will run then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemption {
    pub node: String,
    /// The most important first.
    pub victims: Vec<Key>,
}

struct Candidate {
    node: String,
    victims: Vec<Arc<PodFacts>>,
    n_violations: usize,
}

/// Looks for the least harm. Err says why there is no way, in the words that follow `preemption: `.
pub(crate) fn weigh(
    cluster: &Cluster,
    cycle: &Cycle<'_>,
    refused: &[(usize, Refusal)],
    offset: usize,
) -> Result<Preemption, String> {
    least_harmful(cluster, cycle, refused, offset)?.into_iter().next().ok_or_else(String::new)
}

/// All that are equally good, by name of the node.
pub(crate) fn least_harmful(
    cluster: &Cluster,
    cycle: &Cycle<'_>,
    refused: &[(usize, Refusal)],
    offset: usize,
) -> Result<Vec<Preemption>, String> {
    let pod = cycle.pod;
    if pod.never_preempts {
        return Err("not eligible due to preemptionPolicy=Never.".to_owned());
    }
    if waits_for_victims(cluster, pod, refused) {
        return Err("not eligible due to a terminating pod on the nominated node.".to_owned());
    }
    let open: Vec<usize> = refused.iter().filter(|(_, refusal)| refusal.could_yield).map(|(slot, _)| *slot).collect();
    let enough = (open.len() * CANDIDATES_PERCENT / 100).max(CANDIDATES_MIN).min(open.len());
    let (mut candidates, mut reasons): (Vec<Candidate>, Vec<Reason>) = (Vec::new(), Vec::new());
    let mut n_tried = 0;
    for slot in open.iter().cycle().skip(offset % open.len().max(1)).take(open.len()) {
        n_tried += 1;
        match try_node(cluster, cycle, *slot) {
            Ok(candidate) => candidates.push(candidate),
            Err(why) => reasons.extend(why),
        }
        if candidates.len() >= enough && candidates.iter().any(|candidate| candidate.n_violations == 0) {
            break;
        }
    }
    let Some(least) = candidates.iter().map(harm).min() else {
        reasons.extend(std::iter::repeat_n(Reason::PreemptionUseless, cluster.n_nodes().saturating_sub(n_tried)));
        return Err(histogram(cluster.n_nodes(), reasons.iter()));
    };
    candidates.retain(|candidate| harm(candidate) == least);
    candidates.sort_by(|a, b| a.node.cmp(&b.node));
    let chosen = |candidate: Candidate| Preemption {
        victims: candidate.victims.iter().map(|victim| victim.key.clone()).collect(),
        node: candidate.node,
    };
    Ok(candidates.into_iter().map(chosen).collect())
}

/// Room was made already, and those who leave have not left yet.
fn waits_for_victims(cluster: &Cluster, pod: &PodFacts, refused: &[(usize, Refusal)]) -> bool {
    let Some(slot) = pod.nominated.as_ref().and_then(|name| cluster.slot(name)) else { return false };
    let is_hopeless = refused.iter().any(|(other, refusal)| *other == slot && !refusal.could_yield);
    let leaving = |node: &NodeInfo| {
        node.pods.values().any(|other| other.priority < pod.priority && other.is_deleting && other.is_being_preempted)
    };
    !is_hopeless && cluster.node(slot).is_some_and(leaving)
}

fn try_node(cluster: &Cluster, cycle: &Cycle<'_>, slot: usize) -> Result<Candidate, Vec<Reason>> {
    let Some(node) = cluster.node(slot) else { return Err(Vec::new()) };
    let (mut node, mut cycle) = (node.clone(), cycle.clone());
    let mut lesser: Vec<Arc<PodFacts>> =
        node.pods.values().filter(|other| other.priority < cycle.pod.priority).cloned().collect();
    if lesser.is_empty() {
        return Err(vec![Reason::NoVictims]);
    }
    for other in &lesser {
        node.remove(&other.key);
        cycle.shift(other, slot, -1);
    }
    match cycle.judge(slot, &node) {
        Verdict::Fits => {}
        Verdict::Refused(refusal) => return Err(refusal.reasons),
        Verdict::Error(message) => return Err(vec![Reason::Other(message)]),
    }
    lesser.sort_by(|a, b| importance(a).cmp(&importance(b)));
    let (guarded, free) = by_budget(cluster, &lesser);
    let mut victims = Vec::new();
    let mut n_violations = 0;
    for (is_guarded, other) in guarded.iter().map(|pod| (true, pod)).chain(free.iter().map(|pod| (false, pod))) {
        node.add(other.clone());
        cycle.shift(other, slot, 1);
        if cycle.judge(slot, &node) != Verdict::Fits {
            node.remove(&other.key);
            cycle.shift(other, slot, -1);
            victims.push(other.clone());
            n_violations += usize::from(is_guarded);
        }
    }
    victims.sort_by(|a, b| importance(a).cmp(&importance(b)));
    if victims.is_empty() {
        return Err(Vec::new());
    }
    Ok(Candidate { node: node.facts.name.clone(), victims, n_violations })
}

/// The most important first: high priority, then age, then name.
fn importance(pod: &PodFacts) -> (i64, jiff::Timestamp, &Key) {
    (-i64::from(pod.priority), pod.since(), &pod.key)
}

/// Those whose going would break a disruption budget, and the others. A budget's allowance is used up in order.
fn by_budget(cluster: &Cluster, pods: &[Arc<PodFacts>]) -> (Vec<Arc<PodFacts>>, Vec<Arc<PodFacts>>) {
    let mut budgets: Vec<_> = cluster.budgets.values().map(|budget| (budget, budget.allowed)).collect();
    pods.iter().cloned().partition(|pod| {
        let mut is_violated = false;
        for (budget, left) in budgets.iter_mut().filter(|(budget, _)| budget.namespace == pod.key.namespace) {
            let is_covered = !pod.labels.is_empty()
                && !budget.selector.is_everything()
                && budget.selector.matches(&pod.labels)
                && !budget.disrupted.contains(&pod.key.name);
            if is_covered {
                *left = left.saturating_sub(1);
                is_violated |= *left < 0;
            }
        }
        is_violated
    })
}

/// Fewer broken budgets, a lesser most important victim, less priority in sum, fewer victims, younger ones.
fn harm(candidate: &Candidate) -> (usize, i32, i64, usize, std::cmp::Reverse<jiff::Timestamp>) {
    let victims = &candidate.victims;
    let highest = victims.iter().map(|victim| victim.priority).max().unwrap_or(i32::MIN);
    let sum = victims.iter().map(|victim| i64::from(victim.priority) + i64::from(i32::MAX) + 1).sum();
    let eldest = victims.iter().filter(|victim| victim.priority == highest).map(|victim| victim.since()).min();
    let eldest = std::cmp::Reverse(eldest.unwrap_or(jiff::Timestamp::MAX));
    (candidate.n_violations, highest, sum, victims.len(), eldest)
}

#[cfg(test)]
mod tests;
