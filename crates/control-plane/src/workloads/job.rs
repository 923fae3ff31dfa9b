//! Jobs: pods that are to end well, so and so many times.
//!
//! A pod that ends is counted once, whatever fails on the way: its uid goes into the status first, then its finalizer is
//! removed, and only then it moves from the list into the count.

mod decide;
mod failure;
mod indexes;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod, PodTemplateSpec};
use serde_json::json;

use self::decide::{Action, Backoff, Picture, Tally, Verdict};
use super::Synced;
use super::facts::{JOB_INDEX, Phase, PodFacts, after, count, whole_seconds};
use super::owner::{Owner, gone_is_fine, is_namespace_going};
use super::selector::Selector;
use super::world::World;
use crate::error::{ApiError, ApiResult};
use crate::hands::Hands;
use crate::store::Key;

/// Keeps a pod until its end is counted.
pub(crate) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
pub(crate) const JOB_NAME: &str = "batch.kubernetes.io/job-name";
const COMPONENT: &str = "job-controller";
const OWN_CONTROLLER: &str = "kubernetes.io/job-controller";

/// Pods that are counted in one go, so that the list of them in the status stays short.
const UNCOUNTED_MAX: usize = 500;

/// What is remembered of each Job's failures.
#[derive(Debug, Default)]
pub(crate) struct Records(BTreeMap<Key, (String, Backoff)>);

pub(crate) fn sync(world: &World, hands: &mut Hands<'_>, key: &Key, records: &mut Records) -> Synced {
    let Some(job) = world.jobs.get(key) else {
        records.0.remove(key);
        return release_all(world, hands, key);
    };
    let spec = job.spec.clone().unwrap_or_default();
    if spec.managed_by.as_deref().is_some_and(|manager| manager != OWN_CONTROLLER) {
        return Ok(None);
    }
    if let Some(finished) = finished_condition(job) {
        records.0.remove(key);
        release_all(world, hands, key)?;
        return expire(hands, job, &spec, finished);
    }
    let owner = Owner { finalizer: Some(TRACKING), ..Owner::of(job.as_ref(), COMPONENT) };
    let selector = spec.selector.as_ref().map(Selector::of).unwrap_or_default();
    let candidates = world.pods.of_owner_or_nobody(owner.uid(), owner.namespace());
    let pods = owner.claim(hands, &selector, candidates)?;

    let mut status = job.status.clone().unwrap_or_default();
    status.uncounted_terminated_pods.get_or_insert_default();
    let now = hands.now();
    if status.start_time.is_none() && !spec.suspend.unwrap_or(false) {
        status.start_time = Some(whole_seconds(now));
    }
    let known = status.clone();
    let picture = Picture { spec: &spec, status: &known, pods: &pods, now };
    let tally = picture.tally();
    let record = match records.0.get(key) {
        Some((uid, backoff)) if uid == owner.uid() => *backoff,
        _ => Backoff::default(),
    };
    let backoff = record.after(&tally.new_succeeded, &tally.new_failed);

    let mut round = Round { owner, picture, status, again: None, failure: None };
    let verdict = round.run(hands, &tally, backoff);
    let job = round.track(hands, job, &tally, &verdict)?;
    // Remembered once the pods are in the status: they will not be new again.
    records.0.insert(key.clone(), (owner.uid().to_owned(), backoff));
    if let Some(job) = job {
        tell_end(hands, &job);
    }
    match round.failure {
        Some(error) => Err(error),
        None => Ok(round.again),
    }
}

struct Round<'a> {
    owner: Owner<'a>,
    picture: Picture<'a>,
    status: JobStatus,
    again: Option<Timestamp>,
    failure: Option<ApiError>,
}

impl Round<'_> {
    /// Starts and ends pods, and says whether the Job is over.
    fn run(&mut self, hands: &mut Hands<'_>, tally: &Tally, backoff: Backoff) -> Verdict {
        let verdict = self.picture.verdict(tally);
        let mut active = tally.active.len();
        let mut ready = tally.ready;
        let mut terminating = tally.terminating;
        let mut delete = |round: &mut Self, hands: &mut Hands<'_>, pods: &[Arc<PodFacts>], releases: bool| {
            for pod in pods {
                match round.delete(hands, pod, releases) {
                    Ok(()) => {
                        active -= 1;
                        terminating += 1;
                        ready -= i32::from(pod.is_ready());
                    }
                    Err(error) => round.failure = Some(error),
                }
            }
        };
        let verdict = if verdict == Verdict::Open {
            self.again = self.picture.deadline();
            if !self.owner.is_deleting() {
                match self.picture.manage(tally, backoff) {
                    Action::Nothing => {}
                    Action::Wait(until) => self.again = self.again.into_iter().chain([until]).min(),
                    Action::Delete(pods) => delete(self, hands, &pods, true),
                    Action::Create(pods) => active += self.create(hands, &pods),
                }
            }
            if self.picture.is_complete(tally.succeeded, active) {
                Verdict::Succeeded {
                    reason: "CompletionsReached".to_owned(),
                    message: "Reached expected number of succeeded pods".to_owned(),
                }
            } else {
                if !self.owner.is_deleting() {
                    self.tell_suspension(hands);
                }
                Verdict::Open
            }
        } else {
            delete(self, hands, &tally.active, false);
            // As long as some run, it is not over.
            if active == 0 { verdict } else { Verdict::Open }
        };
        self.status.active = count(i32::try_from(active).unwrap_or(i32::MAX));
        self.status.ready = Some(ready);
        self.status.terminating = Some(terminating);
        verdict
    }

    fn delete(&self, hands: &mut Hands<'_>, pod: &PodFacts, releases: bool) -> ApiResult<()> {
        if releases {
            release(hands, pod)?;
        }
        self.owner.delete_pod(hands, pod)
    }

    fn create(&mut self, hands: &mut Hands<'_>, pods: &[Option<u32>]) -> usize {
        let template = tracked_template(&self.picture.spec.template, self.picture.is_indexed());
        for (nth, index) in pods.iter().enumerate() {
            let mut pod = self.owner.pod(&template);
            if let Some(index) = index {
                number(&mut pod, self.owner.name(), *index);
            }
            if let Err(error) = self.owner.create_pod(hands, &pod) {
                if !is_namespace_going(&error) {
                    self.failure = Some(error);
                }
                return nth;
            }
        }
        pods.len()
    }

    fn tell_suspension(&mut self, hands: &mut Hands<'_>) {
        let now = hands.now();
        let is_suspended = self.picture.is_suspended();
        let known = self.status.conditions.iter().flatten().find(|condition| condition.type_ == "Suspended");
        let (status, reason, message, event) = if is_suspended {
            ("True", "JobSuspended", "Job suspended", "Suspended")
        } else {
            ("False", "JobResumed", "Job resumed", "Resumed")
        };
        let is_news = known.map_or(is_suspended, |known| known.status != status);
        if !is_news {
            return;
        }
        let conditions = self.status.conditions.get_or_insert_default();
        let news = condition("Suspended", status, reason, message, now);
        match conditions.iter_mut().find(|condition| condition.type_ == "Suspended") {
            Some(known) => *known = news,
            None => conditions.push(news),
        }
        // The time that is allowed begins anew when it is resumed.
        self.status.start_time = (!is_suspended).then(|| whole_seconds(now));
        self.owner.normal(hands, event, message.to_owned());
    }

    /// Counts what has ended. Returns the Job if this was its end.
    fn track(&mut self, hands: &mut Hands<'_>, job: &Job, tally: &Tally, verdict: &Verdict) -> ApiResult<Option<Job>> {
        let is_over = *verdict != Verdict::Open;
        let mut kept: Vec<&Arc<PodFacts>> = self
            .picture
            .pods
            .iter()
            .filter(|pod| pod.finalizers.iter().any(|finalizer| finalizer == TRACKING))
            .collect();
        // What lost its finalizer in an earlier round that was not written down is counted now.
        settle_uncounted(&mut self.status, &|uid| kept.iter().any(|pod| pod.uid() == uid));
        let may_go = |pod: &PodFacts| {
            self.owner.is_deleting() || is_over || pod.phase == Phase::Succeeded || self.picture.is_failed(pod)
        };
        let mut ended: Vec<&Arc<PodFacts>> = kept.iter().copied().filter(|pod| may_go(pod)).collect();
        let is_capped = ended.len() > UNCOUNTED_MAX;
        ended.truncate(UNCOUNTED_MAX);
        for pod in &ended {
            self.note(pod, verdict);
        }
        if self.picture.is_indexed() {
            self.status.succeeded = count(i32::try_from(tally.done.len()).unwrap_or(i32::MAX));
            let done = tally.done.to_string();
            self.status.completed_indexes = (!done.is_empty()).then_some(done);
        }
        self.announce(verdict, hands.now());
        let mut job = write(hands, job, &self.status)?;

        for pod in &ended {
            release(hands, pod)?;
        }
        kept.retain(|pod| !ended.iter().any(|gone| gone.uid() == pod.uid()));
        settle_uncounted(&mut self.status, &|uid| kept.iter().any(|pod| pod.uid() == uid));
        let is_finished = !is_capped && self.finish(verdict, hands.now());
        job = write(hands, &job, &self.status)?;
        Ok(is_finished.then_some(job))
    }

    /// Puts a pod that ended on the list of those to be counted.
    fn note(&mut self, pod: &PodFacts, verdict: &Verdict) {
        let lists = self.status.uncounted_terminated_pods.get_or_insert_default();
        let is_listed = |list: &Option<Vec<String>>| list.iter().flatten().any(|uid| uid == pod.uid());
        if is_listed(&lists.succeeded) || is_listed(&lists.failed) {
            return;
        }
        let is_indexed = self.picture.is_indexed();
        if pod.phase == Phase::Succeeded {
            // An index says by itself that it is done.
            if !is_indexed {
                lists.succeeded.get_or_insert_default().push(pod.uid().to_owned());
            }
        } else if self.picture.is_failed(pod) || matches!(verdict, Verdict::Failed { .. }) {
            let is_ours = !is_indexed || self.picture.index_of(pod).is_some();
            if is_ours && self.picture.counts(pod) {
                lists.failed.get_or_insert_default().push(pod.uid().to_owned());
            }
        }
    }

    /// The condition that comes before the last one.
    fn announce(&mut self, verdict: &Verdict, now: Timestamp) {
        let (kind, reason, message) = match verdict {
            Verdict::Open => return,
            Verdict::Failed { reason, message } => ("FailureTarget", reason, message),
            Verdict::Succeeded { reason, message } => ("SuccessCriteriaMet", reason, message),
        };
        let conditions = self.status.conditions.get_or_insert_default();
        if !conditions.iter().any(|known| known.type_ == kind && known.status == "True") {
            conditions.push(condition(kind, "True", reason, message, now));
        }
    }

    /// The last condition, once every pod is counted and gone.
    fn finish(&mut self, verdict: &Verdict, now: Timestamp) -> bool {
        let (kind, reason, message) = match verdict {
            Verdict::Open => return false,
            Verdict::Failed { reason, message } => ("Failed", reason, message),
            Verdict::Succeeded { reason, message } => ("Complete", reason, message),
        };
        let lists = self.status.uncounted_terminated_pods.clone().unwrap_or_default();
        let n_uncounted = lists.succeeded.unwrap_or_default().len() + lists.failed.unwrap_or_default().len();
        if n_uncounted > 0 || self.status.terminating.unwrap_or(0) > 0 {
            return false;
        }
        self.status.conditions.get_or_insert_default().push(condition(kind, "True", reason, message, now));
        if kind == "Complete" {
            self.status.completion_time = Some(whole_seconds(now));
        }
        true
    }
}

fn condition(kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(whole_seconds(now)),
        last_transition_time: Some(whole_seconds(now)),
    }
}

/// Moves uids from the lists into the counts when nobody holds their pods any more.
fn settle_uncounted(status: &mut JobStatus, is_held: &dyn Fn(&str) -> bool) {
    let lists = status.uncounted_terminated_pods.get_or_insert_default();
    let settle = |list: &mut Option<Vec<String>>, counted: &mut Option<i32>| {
        let before = list.as_ref().map_or(0, Vec::len);
        let left: Vec<String> = list.take().unwrap_or_default().into_iter().filter(|uid| is_held(uid)).collect();
        let n = i32::try_from(before - left.len()).unwrap_or(i32::MAX);
        *counted = count(counted.unwrap_or(0).saturating_add(n));
        *list = (!left.is_empty()).then_some(left);
    };
    settle(&mut lists.succeeded, &mut status.succeeded);
    settle(&mut lists.failed, &mut status.failed);
}

/// Writes the status if it is new.
fn write(hands: &mut Hands<'_>, job: &Job, status: &JobStatus) -> ApiResult<Job> {
    // An empty list of lists may be left out of what is stored.
    let mut known = job.status.clone().unwrap_or_default();
    if known.uncounted_terminated_pods.is_none() && job.status.as_ref().is_some_and(|status| status.ready.is_some()) {
        known.uncounted_terminated_pods = Some(k8s_openapi::api::batch::v1::UncountedTerminatedPods::default());
    }
    if known == *status {
        return Ok(job.clone());
    }
    let mut changed = job.clone();
    changed.status = Some(status.clone());
    hands.update_status(&changed)
}

fn tell_end(hands: &mut Hands<'_>, job: &Job) {
    let owner = Owner::of(job, COMPONENT);
    let Some(last) = finished_condition(job) else { return };
    if last.type_ == "Complete" {
        owner.normal(hands, "Completed", "Job completed".to_owned());
    } else {
        let reason = last.reason.clone().unwrap_or_default();
        owner.warn(hands, &reason, last.message.clone().unwrap_or_default());
    }
}

/// The condition that says that it is over.
pub(crate) fn finished_condition(job: &Job) -> Option<&JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|c| (c.type_ == "Complete" || c.type_ == "Failed") && c.status == "True")
}

/// Deletes a finished Job when its time has come.
fn expire(hands: &mut Hands<'_>, job: &Job, spec: &JobSpec, finished: &JobCondition) -> Synced {
    let (Some(ttl), Some(at)) = (spec.ttl_seconds_after_finished, finished.last_transition_time.as_ref()) else {
        return Ok(None);
    };
    if job.metadata.deletion_timestamp.is_some() {
        return Ok(None);
    }
    let due = after(at.0, ttl.into());
    if due > hands.now() {
        return Ok(Some(due));
    }
    let owner = Owner::of(job, COMPONENT);
    let options = json!({ "propagationPolicy": "Foreground", "preconditions": { "uid": owner.uid() } });
    gone_is_fine(hands.delete::<Job>(owner.namespace(), owner.name(), &options))?;
    Ok(None)
}

/// Lets the pods of a Job go that is finished or gone.
fn release_all(world: &World, hands: &mut Hands<'_>, key: &Key) -> Synced {
    let pods: Vec<_> = world
        .pods
        .in_namespace(&key.namespace)
        .filter(|pod| pod.finalizers.iter().any(|finalizer| finalizer == TRACKING))
        .filter(|pod| match &pod.owner {
            Some(owner) => owner.kind == "Job" && owner.name == key.name,
            None => pod.labels.get(JOB_NAME) == Some(&key.name),
        })
        .cloned()
        .collect();
    for pod in pods {
        release(hands, &pod)?;
    }
    Ok(None)
}

/// Removes the finalizer.
fn release(hands: &mut Hands<'_>, pod: &PodFacts) -> ApiResult<()> {
    if !pod.finalizers.iter().any(|finalizer| finalizer == TRACKING) {
        return Ok(());
    }
    let left: Vec<&String> = pod.finalizers.iter().filter(|finalizer| *finalizer != TRACKING).collect();
    let patch = json!({ "metadata": { "uid": pod.uid(), "finalizers": left } });
    gone_is_fine(hands.merge_patch::<Pod>(&pod.key.namespace, &pod.key.name, None, &patch))?;
    Ok(())
}

/// The template with the finalizer, and with the variable that tells a container its index.
fn tracked_template(template: &PodTemplateSpec, is_indexed: bool) -> PodTemplateSpec {
    let mut template = template.clone();
    let finalizers = template.metadata.get_or_insert_default().finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == TRACKING) {
        finalizers.push(TRACKING.to_owned());
    }
    if is_indexed && let Some(spec) = &mut template.spec {
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            tell_index(container);
        }
    }
    template
}

fn tell_index(container: &mut Container) {
    const NAME: &str = "JOB_COMPLETION_INDEX";
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|variable| variable.name == NAME) {
        return;
    }
    let field = ObjectFieldSelector { field_path: format!("metadata.labels['{JOB_INDEX}']"), api_version: None };
    variables.push(EnvVar {
        name: NAME.to_owned(),
        value: None,
        value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
    });
}

/// Gives a pod its index.
fn number(pod: &mut Pod, job: &str, index: u32) {
    /// What the server leaves of a prefix before it adds its suffix.
    const PREFIX_MAX: usize = 58;
    let text = index.to_string();
    let meta = &mut pod.metadata;
    meta.annotations.get_or_insert_default().insert(JOB_INDEX.to_owned(), text.clone());
    meta.labels.get_or_insert_default().insert(JOB_INDEX.to_owned(), text.clone());
    let tail = format!("-{text}-");
    let head: String = job.chars().take(PREFIX_MAX.saturating_sub(tail.len())).collect();
    meta.generate_name = Some(format!("{head}{tail}"));
    if let Some(spec) = &mut pod.spec {
        spec.hostname = Some(format!("{job}-{text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_indexed_pod_knows_its_index() {
        let job: Job =
            serde_json::from_value(json!({ "metadata": { "name": "sum", "namespace": "a", "uid": "u" } })).unwrap();
        let template: PodTemplateSpec =
            serde_json::from_value(json!({ "spec": { "containers": [{ "name": "c" }] } })).unwrap();
        let mut pod = Owner::of(&job, COMPONENT).pod(&tracked_template(&template, true));
        number(&mut pod, "sum", 7);
        assert_eq!(pod.metadata.generate_name.as_deref(), Some("sum-7-"));
        assert_eq!(pod.metadata.finalizers.as_deref(), Some(&[TRACKING.to_owned()][..]));
        assert_eq!(pod.metadata.labels.unwrap()[JOB_INDEX], "7");
        let spec = pod.spec.unwrap();
        assert_eq!(spec.hostname.as_deref(), Some("sum-7"));
        assert_eq!(spec.containers[0].env.as_ref().unwrap()[0].name, "JOB_COMPLETION_INDEX");
    }

    #[test]
    fn uids_move_into_the_counts_when_their_pods_are_let_go() {
        let mut status: JobStatus = serde_json::from_value(json!({
            "succeeded": 1, "uncountedTerminatedPods": { "succeeded": ["a", "b"], "failed": ["c"] } }))
        .unwrap();
        settle_uncounted(&mut status, &|uid| uid == "b");
        assert_eq!((status.succeeded, status.failed), (Some(2), Some(1)));
        let lists = status.uncounted_terminated_pods.unwrap();
        assert_eq!((lists.succeeded, lists.failed), (Some(vec!["b".to_owned()]), None));
    }
}
