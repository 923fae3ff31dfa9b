//! Where the two answers to one question differ.

use super::ask::{OurAnswer, PeerAnswer, peers_name};
use super::scenario::Scenario;
use kerf_model::{Demand, DemandIdx, Why};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One cluster with both answers.
pub(crate) struct Case {
    pub(crate) scenario: Scenario,
    pub(crate) ours: OurAnswer,
    pub(crate) peer: PeerAnswer,
}

/// Pods that need the same, of which the two placed different numbers. Which of them is nobody's business.
#[derive(Debug, Clone)]
pub(crate) struct Difference {
    /// None for a pod that we did not even consider.
    pub(crate) demand: Option<Arc<Demand>>,
    pub(crate) pods: Vec<String>,
    pub(crate) n_ours: usize,
    pub(crate) n_peer: usize,
    /// What the peer says about those that it left.
    pub(crate) peer_says: String,
    /// What we say.
    pub(crate) we_say: Vec<Why>,
}

impl Difference {
    pub(crate) fn n_pods(&self) -> usize {
        self.n_ours.abs_diff(self.n_peer)
    }

    pub(crate) fn is_ours_more(&self) -> bool {
        self.n_ours > self.n_peer
    }

    pub(crate) fn among(&self, placed: &BTreeSet<String>) -> usize {
        self.pods.iter().filter(|pod| placed.contains(*pod)).count()
    }
}

impl Case {
    pub(crate) fn n_pods(&self) -> usize {
        self.ours.snapshot.pods.len() + self.ours.snapshot.ill.len()
    }

    /// Dollars per hour of what we would buy.
    pub(crate) fn our_cost(&self) -> f64 {
        self.ours.report.cost.added.dollars()
    }

    pub(crate) fn differences(&self) -> Vec<Difference> {
        let (us, them) = (self.ours.placed(), self.peer.placed());
        let mut by_demand: BTreeMap<DemandIdx, Vec<String>> = BTreeMap::new();
        for pod in &self.ours.snapshot.pods {
            by_demand.entry(pod.demand).or_default().push(peers_name(&pod.id));
        }
        let considered = by_demand
            .into_iter()
            .map(|(demand, pods)| (Some(self.ours.snapshot.demands[demand.0 as usize].clone()), pods, Vec::new()));
        let ill = self.ours.snapshot.ill.iter().map(|(pod, why)| (None, vec![peers_name(pod)], vec![why.clone()]));
        considered
            .chain(ill)
            .filter_map(|(demand, pods, we_say)| {
                let count = |placed: &BTreeSet<String>| pods.iter().filter(|pod| placed.contains(*pod)).count();
                let (n_ours, n_peer) = (count(&us), count(&them));
                let mut difference =
                    Difference { demand, n_ours, n_peer, peer_says: self.peer_says(&pods), we_say, pods };
                difference.we_say.extend(self.we_say(&difference.pods));
                (n_ours != n_peer).then_some(difference)
            })
            .collect()
    }

    fn peer_says(&self, pods: &[String]) -> String {
        pods.iter().find_map(|pod| self.peer.errors.get(pod)).cloned().unwrap_or_default()
    }

    fn we_say(&self, pods: &[String]) -> Vec<Why> {
        let refusal = self.ours.report.refused.iter().find(|(pod, _)| pods.contains(&peers_name(pod)));
        refusal.into_iter().flat_map(|(_, refusal)| &refusal.verdicts).map(|verdict| verdict.why.clone()).collect()
    }
}
