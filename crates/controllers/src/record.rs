//! A bounded record of decisions: what `kerf explain` answers from.

use kerf_model::{Launch, Plan, PodId, Report, Revision, Step, UnixMillis};
use std::collections::VecDeque;
use std::sync::Arc;

/// Decisions kept, and how many pods they may speak of together: a large cluster keeps fewer of them.
const DECISIONS_MAX: usize = 200;
const PODS_MAX: usize = 200_000;

#[derive(Debug, Default)]
pub struct Record {
    decisions: VecDeque<Arc<Decision>>,
    n_pods: usize,
}

/// One decision: what was planned, and why.
#[derive(Debug)]
pub struct Decision {
    pub at: UnixMillis,
    pub revision: Revision,
    pub plan: Plan,
    pub report: Report,
    /// Only what was full already was carried out; a later decision speaks of the rest.
    pub is_interim: bool,
}

impl Decision {
    fn n_pods(&self) -> usize {
        let planned = self.plan.steps.iter().map(|step| match step {
            Step::Place(placement) => placement.pods.len(),
            Step::Launch(launch) => launch.for_pods.len(),
        });
        planned.sum::<usize>() + self.report.refused.len()
    }

    pub fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.plan.steps.iter().filter_map(|step| match step {
            Step::Launch(launch) => Some(&**launch),
            Step::Place(_) => None,
        })
    }
}

impl Record {
    pub fn keep(&mut self, decision: Decision) {
        self.n_pods += decision.n_pods();
        self.decisions.push_back(Arc::new(decision));
        while self.decisions.len() > 1 && (self.decisions.len() > DECISIONS_MAX || self.n_pods > PODS_MAX) {
            if let Some(oldest) = self.decisions.pop_front() {
                self.n_pods -= oldest.n_pods();
            }
        }
    }

    /// The latest first.
    pub fn decisions(&self) -> impl Iterator<Item = &Arc<Decision>> {
        self.decisions.iter().rev()
    }

    /// The decision that launched a claim, and the launch.
    pub fn launch_of(&self, claim: &str) -> Option<(&Decision, &Launch)> {
        self.decisions().find_map(|decision| {
            let launch = decision.launches().find(|launch| launch.claim.as_str() == claim)?;
            Some((&**decision, launch))
        })
    }

    /// The pods that a claim was launched for.
    pub fn pods_of(&self, claim: &str) -> Vec<PodId> {
        self.launch_of(claim).map(|(_, launch)| launch.for_pods.clone()).unwrap_or_default()
    }
}
