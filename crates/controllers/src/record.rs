//! A bounded record of decisions: what `kerf explain` answers from.

use kerf_model::{Launch, Plan, PodId, Report, Revision, Step, UnixMillis, Why};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Decisions kept, and how many pods they may speak of together: a large cluster keeps fewer of them.
const DECISIONS_MAX: usize = 200;
const PODS_MAX: usize = 200_000;
/// Somebody's mistake in a template is as many pods as the template has; more of them say nothing new.
const LEFT_OUT_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub struct Record {
    decisions: VecDeque<Arc<Decision>>,
    n_pods: usize,
    left_out: BTreeMap<PodId, LeftOut>,
}

/// A pod that the last look left out before there was anything to plan.
#[derive(Debug, Clone)]
pub struct LeftOut {
    /// When that was first seen, as long as it stays so.
    pub at: UnixMillis,
    pub revision: Revision,
    pub why: Why,
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

    /// What a look at the world left out, and why; what an earlier look left out is no news any more.
    pub fn leave_out(&mut self, at: UnixMillis, revision: Revision, pods: &[(PodId, Why)]) {
        let mut before = std::mem::take(&mut self.left_out);
        let now = pods.iter().take(LEFT_OUT_MAX).map(|(id, why)| {
            let same = before.remove(id).filter(|before| before.why == *why);
            (id.clone(), same.unwrap_or_else(|| LeftOut { at, revision, why: why.clone() }))
        });
        self.left_out = now.collect();
    }

    pub fn left_out(&self, pod: &PodId) -> Option<&LeftOut> {
        self.left_out.get(pod)
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
