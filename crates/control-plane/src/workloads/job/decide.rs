//! Whether a Job has ended, and what it needs if it has not: functions of its pods and of what was counted before.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{JobSpec, JobStatus};

use super::super::facts::{Phase, PodFacts, after};
use super::super::replicas::rank_for_deletion;
use super::TRACKING;
use super::failure::{Judgement, judge};
use super::indexes::Indexes;

/// Pods created or deleted in one go. The rest follows when these are seen.
const BURST_MAX: usize = 500;
const FIRST_WAIT: SignedDuration = SignedDuration::from_secs(10);
const LONGEST_WAIT: SignedDuration = SignedDuration::from_mins(10);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Picture<'a> {
    pub(crate) spec: &'a JobSpec,
    pub(crate) status: &'a JobStatus,
    pub(crate) pods: &'a [Arc<PodFacts>],
    pub(crate) now: Timestamp,
}

/// What there is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) active: Vec<Arc<PodFacts>>,
    pub(crate) ready: i32,
    pub(crate) terminating: i32,
    pub(crate) succeeded: i32,
    pub(crate) failed: i32,
    /// Ended, and not yet in any count.
    pub(crate) new_succeeded: Vec<Arc<PodFacts>>,
    pub(crate) new_failed: Vec<Arc<PodFacts>>,
    /// The indexes that are done, for a Job that has them.
    pub(crate) done: Indexes,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// It goes on.
    Open,
    Failed {
        reason: String,
        message: String,
    },
    Succeeded {
        reason: String,
        message: String,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Nothing,
    Delete(Vec<Arc<PodFacts>>),
    /// One for each; with an index for a Job that has them.
    Create(Vec<Option<u32>>),
    /// The last pods failed: not before then.
    Wait(Timestamp),
}

/// Failures since the last success, and when the last one was.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Backoff {
    n_failures: u32,
    last: Option<Timestamp>,
}

impl Picture<'_> {
    pub(crate) fn is_indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed")
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.spec.suspend.unwrap_or(false)
    }

    fn n_indexes(&self) -> u32 {
        self.spec.completions.and_then(|n| u32::try_from(n).ok()).unwrap_or(0)
    }

    fn waits_for_termination(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed")
    }

    /// A pod that is being deleted counts as failed, unless the Job wants to see it end.
    pub(crate) fn is_failed(&self, pod: &PodFacts) -> bool {
        pod.phase == Phase::Failed
            || (!self.waits_for_termination() && pod.deleted.is_some() && pod.phase != Phase::Succeeded)
    }

    /// The index of a pod that is one of this Job's.
    pub(crate) fn index_of(&self, pod: &PodFacts) -> Option<u32> {
        pod.job_index.filter(|index| *index < self.n_indexes())
    }

    fn is_uncounted(&self, pod: &PodFacts) -> bool {
        let known = self.status.uncounted_terminated_pods.clone().unwrap_or_default();
        known.succeeded.iter().chain(&known.failed).flatten().any(|uid| uid == pod.uid())
    }

    pub(crate) fn tally(&self) -> Tally {
        let is_new = |pod: &&Arc<PodFacts>| {
            pod.finalizers.iter().any(|finalizer| finalizer == TRACKING)
                && !self.is_uncounted(pod)
                && (!self.is_indexed() || self.index_of(pod).is_some())
        };
        let active: Vec<_> = self.pods.iter().filter(|pod| pod.is_active()).cloned().collect();
        let is_new_success = |pod: &&Arc<PodFacts>| pod.phase == Phase::Succeeded && is_new(pod);
        let new_succeeded: Vec<_> = self.pods.iter().filter(is_new_success).cloned().collect();
        let new_failed: Vec<_> = self.pods.iter().filter(|pod| self.is_failed(pod) && is_new(pod)).cloned().collect();
        let known = self.status.uncounted_terminated_pods.clone().unwrap_or_default();
        let n_counting = new_failed.iter().filter(|pod| self.counts(pod)).count();
        let mut done = Indexes::parse(self.status.completed_indexes.as_deref().unwrap_or_default(), self.n_indexes());
        for pod in self.pods.iter().filter(|pod| pod.phase == Phase::Succeeded) {
            if let Some(index) = self.index_of(pod) {
                done.insert(index);
            }
        }
        let n = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let succeeded = if self.is_indexed() {
            i32::try_from(done.len()).unwrap_or(i32::MAX)
        } else {
            let uncounted = known.succeeded.unwrap_or_default().len();
            self.status.succeeded.unwrap_or(0).saturating_add(n(new_succeeded.len() + uncounted))
        };
        Tally {
            ready: n(active.iter().filter(|pod| pod.is_ready()).count()),
            terminating: n(self.pods.iter().filter(|pod| pod.is_terminating()).count()),
            succeeded,
            failed: self
                .status
                .failed
                .unwrap_or(0)
                .saturating_add(n(n_counting + known.failed.unwrap_or_default().len())),
            active,
            new_succeeded,
            new_failed,
            done,
        }
    }

    pub(crate) fn counts(&self, pod: &PodFacts) -> bool {
        judge(self.spec.pod_failure_policy.as_ref(), pod) != Judgement::Ignored
    }

    /// Whether it has ended for a reason that does not depend on what is started next.
    pub(crate) fn verdict(&self, tally: &Tally) -> Verdict {
        let told = |kind: &str| {
            let condition = self.status.conditions.iter().flatten().find(|c| c.type_ == kind && c.status == "True")?;
            Some((condition.reason.clone().unwrap_or_default(), condition.message.clone().unwrap_or_default()))
        };
        if let Some((reason, message)) = told("SuccessCriteriaMet") {
            return Verdict::Succeeded { reason, message };
        }
        if let Some((reason, message)) = told("FailureTarget") {
            return Verdict::Failed { reason, message };
        }
        let failed =
            |reason: &str, message: &str| Verdict::Failed { reason: reason.to_owned(), message: message.to_owned() };
        for pod in self.pods.iter().filter(|pod| self.is_failed(pod)) {
            if let Judgement::FailsJob(message) = judge(self.spec.pod_failure_policy.as_ref(), pod) {
                return failed("PodFailurePolicy", &message);
            }
        }
        if tally.failed > self.spec.backoff_limit.unwrap_or(6) || self.restarts_exceed_limit() {
            return failed("BackoffLimitExceeded", "Job has reached the specified backoff limit");
        }
        if self.deadline().is_some_and(|deadline| deadline <= self.now) {
            return failed("DeadlineExceeded", "Job was active longer than specified deadline");
        }
        match self.matched_success_rule(&tally.done) {
            Some(idx) => Verdict::Succeeded {
                reason: "SuccessPolicy".to_owned(),
                message: format!("Matched rules at index {idx}"),
            },
            None => Verdict::Open,
        }
    }

    /// When its time is up.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        if self.is_suspended() {
            return None;
        }
        let start = self.status.start_time.as_ref()?;
        self.spec.active_deadline_seconds.map(|seconds| after(start.0, seconds))
    }

    /// Containers that are restarted in place fail without their pod ever failing.
    fn restarts_exceed_limit(&self) -> bool {
        let policy = self.spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        if policy != Some("OnFailure") {
            return false;
        }
        let restarts = self
            .pods
            .iter()
            .filter(|pod| matches!(pod.phase, Phase::Running | Phase::Pending))
            .fold(0_i32, |sum, pod| sum.saturating_add(pod.all_restarts));
        match self.spec.backoff_limit.unwrap_or(6) {
            0 => restarts > 0,
            limit => restarts >= limit,
        }
    }

    fn matched_success_rule(&self, done: &Indexes) -> Option<usize> {
        let policy = self.spec.success_policy.as_ref().filter(|_| self.is_indexed() && done.len() > 0)?;
        policy.rules.iter().position(|rule| {
            let count = rule.succeeded_count.and_then(|count| u64::try_from(count).ok());
            match &rule.succeeded_indexes {
                Some(text) => {
                    let wanted = Indexes::parse(text, self.n_indexes());
                    let n = wanted.n_in(done);
                    wanted.len() > 0 && (n == wanted.len() || count.is_some_and(|count| n >= count))
                }
                None => count.is_some_and(|count| done.len() >= count),
            }
        })
    }

    /// Whether as many succeeded as were asked for, and none is left running.
    pub(crate) fn is_complete(&self, succeeded: i32, active: usize) -> bool {
        match self.spec.completions {
            None => succeeded > 0 && active == 0,
            Some(completions) => succeeded >= completions && active == 0,
        }
    }

    pub(crate) fn manage(&self, tally: &Tally, backoff: Backoff) -> Action {
        if self.is_suspended() {
            return if tally.active.is_empty() { Action::Nothing } else { Action::Delete(tally.active.clone()) };
        }
        let n_active = tally.active.len();
        let parallelism = usize::try_from(self.spec.parallelism.unwrap_or(1)).unwrap_or(0);
        let wanted = match self.spec.completions {
            // Once one has succeeded, the others may finish, and no more are started.
            None if tally.succeeded > 0 => n_active,
            None => parallelism,
            Some(completions) => {
                usize::try_from(completions.saturating_sub(tally.succeeded)).unwrap_or(0).min(parallelism)
            }
        };
        let surplus = self.surplus(tally, n_active.saturating_sub(wanted));
        if !surplus.is_empty() {
            return Action::Delete(surplus);
        }
        let leaving = if self.waits_for_termination() { usize::try_from(tally.terminating).unwrap_or(0) } else { 0 };
        let missing = wanted.saturating_sub(n_active + leaving).min(BURST_MAX);
        if missing == 0 {
            return Action::Nothing;
        }
        if let Some(until) = backoff.until().filter(|until| *until > self.now) {
            return Action::Wait(until);
        }
        if !self.is_indexed() {
            return Action::Create(vec![None; missing]);
        }
        let counted =
            self.pods.iter().filter(|pod| pod.is_active() || (self.waits_for_termination() && pod.is_terminating()));
        let taken: BTreeSet<u32> = counted.filter_map(|pod| self.index_of(pod)).collect();
        let free = tally.done.first_free(missing, self.n_indexes(), &|index| taken.contains(&index));
        if free.is_empty() { Action::Nothing } else { Action::Create(free.into_iter().map(Some).collect()) }
    }

    /// Pods to be given up: those that double an index or have none, and at least `n`.
    fn surplus(&self, tally: &Tally, n: usize) -> Vec<Arc<PodFacts>> {
        let ranked = rank_for_deletion(&tally.active, &[], self.now);
        let mut surplus = Vec::new();
        let mut rest = Vec::new();
        if self.is_indexed() {
            let mut seen = BTreeSet::new();
            // The one that is furthest in its life keeps the index.
            for pod in ranked.into_iter().rev() {
                match self.index_of(&pod) {
                    Some(index) if seen.insert(index) => rest.push(pod),
                    _ => surplus.push(pod),
                }
            }
            rest.reverse();
        } else {
            rest = ranked;
        }
        let more = n.saturating_sub(surplus.len());
        surplus.extend(rest.into_iter().take(more));
        surplus.truncate(BURST_MAX);
        surplus
    }
}

impl Backoff {
    /// The record after these pods have ended.
    pub(crate) fn after(self, succeeded: &[Arc<PodFacts>], failed: &[Arc<PodFacts>]) -> Self {
        let last_success = succeeded.iter().map(|pod| pod.finished).max();
        let since = failed.iter().map(|pod| pod.finished).filter(|at| last_success.is_none_or(|success| *at > success));
        let (n, last) = since.fold((0_u32, None), |(n, last), at| (n.saturating_add(1), last.max(Some(at))));
        if last_success.is_some() {
            Self { n_failures: n, last }
        } else {
            Self { n_failures: self.n_failures.saturating_add(n), last: last.or(self.last) }
        }
    }

    fn until(self) -> Option<Timestamp> {
        let doubled = self.n_failures.checked_sub(1)?.min(16);
        let wait = FIRST_WAIT.saturating_mul(1_i32 << doubled).min(LONGEST_WAIT);
        self.last.map(|last| last.saturating_add(wait).unwrap_or(Timestamp::MAX))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::facts::testing::pod;
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn check<T>(spec: &Value, status: &Value, pods: &[&str], ask: impl FnOnce(Picture<'_>) -> T) -> T {
        let mut spec = spec.clone();
        spec["template"] = json!({ "spec": { "containers": [], "restartPolicy": spec["restartPolicy"] } });
        let spec: JobSpec = serde_json::from_value(spec).unwrap();
        let status: JobStatus = serde_json::from_value(status.clone()).unwrap();
        let tracked = |words: &&str| Arc::new(pod(&format!("{words} finalizer={TRACKING}")));
        let pods: Vec<_> = pods.iter().map(tracked).collect();
        ask(Picture { spec: &spec, status: &status, pods: &pods, now: at(1000) })
    }

    fn told(action: &Action) -> String {
        match action {
            Action::Nothing => "nothing".to_owned(),
            Action::Wait(until) => format!("wait {}", until.as_second()),
            Action::Delete(pods) => pods.iter().map(|pod| format!("-{}", pod.key.name)).collect::<Vec<_>>().join(" "),
            Action::Create(all) => all
                .iter()
                .map(|index| index.map_or("+".to_owned(), |index| format!("+{index}")))
                .collect::<Vec<_>>()
                .join(" "),
        }
    }

    #[test]
    fn as_many_pods_run_as_are_needed_and_allowed() {
        let (none, three) = (json!({}), json!({ "succeeded": 3 }));
        for (spec, status, pods, expected) in [
            (json!({ "parallelism": 2, "completions": 5 }), &none, &[][..], "+ +"),
            (json!({ "parallelism": 2, "completions": 5 }), &three, &["a"], "+"),
            (json!({ "parallelism": 2, "completions": 4 }), &three, &["a"], "nothing"),
            (json!({ "parallelism": 1, "completions": 5 }), &none, &["a", "b running"], "-a"),
            (json!({ "parallelism": 2 }), &none, &[], "+ +"),
            (json!({ "parallelism": 2 }), &none, &["a succeeded", "b running"], "nothing"),
            (json!({ "parallelism": 2, "suspend": true }), &none, &["a", "b succeeded"], "-a"),
            (json!({ "parallelism": 0 }), &none, &[], "nothing"),
            // A pod on its way out is replaced at once, or when it has ended.
            (json!({ "completions": 1 }), &none, &["a deleted"], "+"),
            (json!({ "completions": 1, "podReplacementPolicy": "Failed" }), &none, &["a deleted"], "nothing"),
            // Indexed: the lowest that are neither done nor running, and no doubles.
            (
                json!({ "parallelism": 9, "completions": 4, "completionMode": "Indexed" }),
                &json!({ "completedIndexes": "0" }),
                &["a index=2"],
                "+1 +3",
            ),
            (
                json!({ "parallelism": 9, "completions": 2, "completionMode": "Indexed" }),
                &none,
                &["a index=0 running", "b index=0", "c index=7"],
                "-c -b",
            ),
        ] {
            let action = check(&spec, status, pods, |picture| {
                let tally = picture.tally();
                picture.manage(&tally, Backoff::default())
            });
            let mut told: Vec<_> = told(&action).split(' ').map(str::to_owned).collect();
            let mut expected: Vec<_> = expected.split(' ').map(str::to_owned).collect();
            told.sort();
            expected.sort();
            assert_eq!(told, expected, "{spec} {status} {pods:?}");
        }
    }

    #[test]
    fn a_job_ends_by_its_limits_its_deadline_or_its_policies() {
        let failed = |reason: &str| format!("failed {reason}");
        for (spec, status, pods, expected) in [
            (json!({ "backoffLimit": 1 }), json!({ "failed": 1 }), &["a running"][..], "open".to_owned()),
            (json!({ "backoffLimit": 1 }), json!({ "failed": 1 }), &["a failed"], failed("BackoffLimitExceeded")),
            (json!({ "backoffLimit": 0 }), json!({}), &["a failed"], failed("BackoffLimitExceeded")),
            (
                json!({ "backoffLimit": 2, "restartPolicy": "OnFailure" }),
                json!({}),
                &["a running restarts=2"],
                failed("BackoffLimitExceeded"),
            ),
            (
                json!({ "backoffLimit": 2, "restartPolicy": "Never" }),
                json!({}),
                &["a running restarts=2"],
                "open".to_owned(),
            ),
            (
                json!({ "activeDeadlineSeconds": 10 }),
                json!({ "startTime": "1970-01-01T00:16:30Z" }),
                &[],
                failed("DeadlineExceeded"),
            ),
            (
                json!({ "activeDeadlineSeconds": 11 }),
                json!({ "startTime": "1970-01-01T00:16:30Z" }),
                &[],
                "open".to_owned(),
            ),
            (
                json!({ "activeDeadlineSeconds": 10, "suspend": true }),
                json!({ "startTime": "1970-01-01T00:16:30Z" }),
                &[],
                "open".to_owned(),
            ),
            (
                json!({}),
                json!({ "conditions": [{ "type": "FailureTarget", "status": "True", "reason": "X" }] }),
                &[],
                failed("X"),
            ),
            (
                json!({}),
                json!({ "conditions": [{ "type": "SuccessCriteriaMet", "status": "True", "reason": "Y" }] }),
                &[],
                "succeeded Y".to_owned(),
            ),
            (
                json!({ "completionMode": "Indexed", "completions": 5,
                "successPolicy": { "rules": [{ "succeededIndexes": "1-3", "succeededCount": 2 }] } }),
                json!({ "completedIndexes": "0,1" }),
                &["a succeeded index=3"],
                "succeeded SuccessPolicy".to_owned(),
            ),
        ] {
            let verdict = check(&spec, &status, pods, |picture| picture.verdict(&picture.tally()));
            let told = match verdict {
                Verdict::Open => "open".to_owned(),
                Verdict::Failed { reason, .. } => failed(&reason),
                Verdict::Succeeded { reason, .. } => format!("succeeded {reason}"),
            };
            assert_eq!(told, expected, "{spec} {status} {pods:?}");
        }
    }

    #[test]
    fn pods_are_counted_once() {
        let status = json!({ "succeeded": 1, "failed": 2, "uncountedTerminatedPods": { "succeeded": ["uid-b"] } });
        let tally = check(
            &json!({ "completions": 9 }),
            &status,
            &["a succeeded", "b succeeded", "c failed", "d running ready=1", "e deleted running"],
            |picture| picture.tally(),
        );
        // `b` is known already, and `e` counts as failed because it is being deleted.
        assert_eq!((tally.succeeded, tally.failed, tally.active.len()), (3, 4, 1));
        assert_eq!((tally.ready, tally.terminating), (1, 1));
        assert_eq!((tally.new_succeeded.len(), tally.new_failed.len()), (1, 2));
    }

    #[test]
    fn failures_make_a_job_wait_and_a_success_forgets_them() {
        let failed = |seconds: i64| Arc::new(pod(&format!("a failed finished={seconds}")));
        let done = |seconds: i64| Arc::new(pod(&format!("b succeeded finished={seconds}")));
        let one = Backoff::default().after(&[], &[failed(990)]);
        assert_eq!(one.until(), Some(at(1000)));
        let three = one.after(&[], &[failed(995), failed(993)]);
        assert_eq!(three.until(), Some(at(1035)));
        assert_eq!(three.after(&[done(996)], &[]).until(), None);
        assert_eq!(three.after(&[done(996)], &[failed(995), failed(997)]).until(), Some(at(1007)));
        let many = (0..40).fold(Backoff::default(), |backoff, _| backoff.after(&[], &[failed(1000)]));
        assert_eq!(many.until(), Some(at(1600)));
        let action =
            check(&json!({ "completions": 1 }), &json!({}), &[], |picture| picture.manage(&picture.tally(), three));
        assert_eq!(told(&action), "wait 1035");
    }
}
