//! CronJobs: a Job whenever its time comes.

mod schedule;

use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use self::schedule::Schedule;
use super::Synced;
use super::facts::{after, controller_of, created_of, uid_of, whole_seconds};
use super::job::finished_condition;
use super::owner::{Owner, gone_is_fine, is_controlled_by, is_namespace_going};
use super::world::{World, in_namespace};
use crate::error::ApiResult;
use crate::hands::Hands;
use crate::store::Key;

const COMPONENT: &str = "cronjob-controller";
const SCHEDULED_AT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// More missed times than this are worth a word.
const MISSED_MAX: i64 = 100;

pub(crate) fn sync(world: &World, hands: &mut Hands<'_>, key: &Key) -> Synced {
    let Some(cron_job) = world.cron_jobs.get(key) else { return Ok(None) };
    let owner = Owner::of(cron_job.as_ref(), COMPONENT);
    let spec = cron_job.spec.clone();
    let jobs: Vec<Arc<Job>> = in_namespace(&world.jobs, owner.namespace())
        .filter(|(_, job)| controller_of(&job.metadata).is_some_and(|theirs| theirs.name == key.name))
        .map(|(_, job)| Arc::clone(job))
        .collect();
    let mut round = Round { owner, spec: &spec, status: cron_job.status.clone().unwrap_or_default() };
    round.keep_history(hands, &jobs)?;
    round.look_at_jobs(hands, world, &jobs);
    let result = if owner.is_deleting() { Ok(None) } else { round.run(hands, cron_job) };
    let status = round.status;
    if status != cron_job.status.clone().unwrap_or_default() {
        let mut changed = cron_job.as_ref().clone();
        changed.status = Some(status);
        hands.update_status(&changed)?;
    }
    result
}

struct Round<'a> {
    owner: Owner<'a>,
    spec: &'a CronJobSpec,
    status: CronJobStatus,
}

impl Round<'_> {
    /// Deletes the oldest finished Jobs beyond what shall be kept of each kind.
    fn keep_history(&mut self, hands: &mut Hands<'_>, jobs: &[Arc<Job>]) -> ApiResult<()> {
        let limits =
            [("Complete", self.spec.successful_jobs_history_limit), ("Failed", self.spec.failed_jobs_history_limit)];
        for (kind, limit) in limits {
            let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { continue };
            for job in beyond_history(jobs, kind, limit) {
                self.delete(hands, &job)?;
            }
        }
        Ok(())
    }

    fn delete(&mut self, hands: &mut Hands<'_>, job: &Job) -> ApiResult<()> {
        let name = job.metadata.name.clone().unwrap_or_default();
        let options = json!({ "propagationPolicy": "Background" });
        if let Err(error) = hands.delete::<Job>(self.owner.namespace(), &name, &options)
            && error.code != 404
        {
            self.owner.warn(hands, "FailedDelete", format!("Deleted job: {}", error.message));
            return Err(error);
        }
        self.forget(uid_of(&job.metadata));
        self.owner.normal(hands, "SuccessfulDelete", format!("Deleted job {name}"));
        Ok(())
    }

    fn forget(&mut self, uid: &str) -> bool {
        let active = self.status.active.get_or_insert_default();
        let before = active.len();
        active.retain(|known| known.uid.as_deref() != Some(uid));
        let was_there = active.len() < before;
        if active.is_empty() {
            self.status.active = None;
        }
        was_there
    }

    /// Takes notice of Jobs that ended or went missing.
    fn look_at_jobs(&mut self, hands: &mut Hands<'_>, world: &World, jobs: &[Arc<Job>]) {
        for job in jobs {
            let (uid, name) = (uid_of(&job.metadata), job.metadata.name.clone().unwrap_or_default());
            let is_known = self.status.active.iter().flatten().any(|known| known.uid.as_deref() == Some(uid));
            let Some(finished) = finished_condition(job) else {
                if !is_known {
                    let note = format!("Saw a job that the controller did not create or forgot: {name}");
                    self.owner.warn(hands, "UnexpectedJob", note);
                }
                continue;
            };
            if is_known && self.forget(uid) {
                let note = format!("Saw completed job: {name}, condition: {}", finished.type_);
                self.owner.normal(hands, "SawCompletedJob", note);
            }
            let completed = job.status.as_ref().and_then(|status| status.completion_time.clone());
            if finished.type_ == "Complete" {
                let last = self.status.last_successful_time.take();
                self.status.last_successful_time = last.into_iter().chain(completed).max();
            }
        }
        for known in self.status.active.clone().unwrap_or_default() {
            let (name, uid) = (known.name.unwrap_or_default(), known.uid.unwrap_or_default());
            let exists = jobs.iter().any(|job| uid_of(&job.metadata) == uid)
                || world.jobs.contains_key(&Key::new(self.owner.namespace(), &name));
            if !exists {
                self.owner.normal(hands, "MissingJob", format!("Active job went missing: {name}"));
                self.forget(&uid);
            }
        }
    }

    /// Starts the Job whose time has come. Answers when the next time is.
    fn run(&mut self, hands: &mut Hands<'_>, cron_job: &CronJob) -> Synced {
        let zone = match self.zone() {
            Ok(zone) => zone,
            Err(note) => {
                self.owner.warn(hands, "UnknownTimeZone", note);
                return Ok(None);
            }
        };
        if self.spec.suspend.unwrap_or(false) {
            return Ok(None);
        }
        let schedule = match Schedule::parse(&self.spec.schedule) {
            Ok(schedule) => schedule,
            Err(why) => {
                let note = format!("unparseable schedule: \"{}\" : {why}", self.spec.schedule);
                self.owner.warn(hands, "UnparseableSchedule", note);
                return Ok(None);
            }
        };
        let now = hands.now();
        let due = due(self.spec, &self.status, &cron_job.metadata, &schedule, &zone, now);
        if let Due::Start { n_missed, .. } | Due::Forbidden { n_missed } = due
            && n_missed > MISSED_MAX
        {
            let note = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.owner.warn(hands, "TooManyMissedTimes", note.to_owned());
        }
        match due {
            Due::NotYet => {}
            Due::Missed(at) => {
                let note =
                    format!("Missed scheduled time to start a job: {}", at.strftime("%a, %d %b %Y %H:%M:%S +0000"));
                self.owner.warn(hands, "MissSchedule", note);
            }
            Due::Forbidden { .. } => {
                let note = "Not starting job because prior execution is running and concurrency policy is Forbid";
                self.owner.normal(hands, "JobAlreadyActive", note.to_owned());
            }
            Due::Start { at, .. } => {
                if self.spec.concurrency_policy.as_deref() == Some("Replace") {
                    self.replace_active(hands)?;
                }
                self.start(hands, at, &zone)?;
            }
        }
        let known = self.status.last_schedule_time.as_ref().map_or_else(|| created_of(&cron_job.metadata), |at| at.0);
        let since = schedule.last(known, now, &zone).map_or(known, |(last, _)| last);
        Ok(schedule.next(since.max(known), &zone).map(schedule::a_little_after))
    }

    fn zone(&self) -> Result<TimeZone, String> {
        match self.spec.time_zone.as_deref() {
            None => Ok(TimeZone::UTC),
            Some(name) => {
                TimeZone::get(name).map_err(|_| format!("invalid timeZone: \"{name}\": unknown time zone {name}"))
            }
        }
    }

    fn replace_active(&mut self, hands: &mut Hands<'_>) -> ApiResult<()> {
        for known in self.status.active.clone().unwrap_or_default() {
            let name = known.name.unwrap_or_default();
            match hands.get::<Job>(self.owner.namespace(), &name) {
                Some(job) => self.delete(hands, &job)?,
                None => {
                    self.forget(&known.uid.unwrap_or_default());
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, hands: &mut Hands<'_>, at: Timestamp, zone: &TimeZone) -> ApiResult<()> {
        let wanted = job_for(self.owner, self.spec, at, zone);
        let name = wanted.metadata.name.clone().unwrap_or_default();
        let job = match hands.create(&wanted) {
            Ok(job) => {
                self.owner.normal(hands, "SuccessfulCreate", format!("Created job {name}"));
                job
            }
            Err(error) if error.reason == "AlreadyExists" => {
                let ours = hands
                    .get::<Job>(self.owner.namespace(), &name)
                    .filter(|job| is_controlled_by(&job.metadata, self.owner.uid()));
                let Some(job) = ours else { return Ok(()) };
                job
            }
            Err(error) => {
                if !is_namespace_going(&error) {
                    self.owner.warn(hands, "FailedCreate", format!("Error creating job: {}", error.message));
                }
                return gone_is_fine(Err(error)).map(|_: Option<()>| ());
            }
        };
        self.status.active.get_or_insert_default().push(ObjectReference {
            api_version: Some("batch/v1".to_owned()),
            kind: Some("Job".to_owned()),
            namespace: job.metadata.namespace.clone(),
            name: job.metadata.name.clone(),
            uid: job.metadata.uid.clone(),
            resource_version: job.metadata.resource_version.clone(),
            field_path: None,
        });
        self.status.last_schedule_time = Some(whole_seconds(at));
        Ok(())
    }
}

/// What the schedule asks for now.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Due {
    NotYet,
    /// Too late to start it.
    Missed(Timestamp),
    /// The one before is still running.
    Forbidden {
        n_missed: i64,
    },
    Start {
        at: Timestamp,
        n_missed: i64,
    },
}

fn due(
    spec: &CronJobSpec,
    status: &CronJobStatus,
    meta: &ObjectMeta,
    schedule: &Schedule,
    zone: &TimeZone,
    now: Timestamp,
) -> Due {
    let known = status.last_schedule_time.as_ref().map_or_else(|| created_of(meta), |at| at.0);
    let since = match spec.starting_deadline_seconds {
        Some(seconds) => known.max(after(now, seconds.saturating_neg())),
        None => known,
    };
    let Some((at, n_missed)) = schedule.last(since, now, zone) else { return Due::NotYet };
    if spec.starting_deadline_seconds.is_some_and(|seconds| after(at, seconds) < now) {
        return Due::Missed(at);
    }
    let name = format!("{}-{}", meta.name.as_deref().unwrap_or_default(), schedule::minutes_of(at));
    let mut active = status.active.iter().flatten();
    if active.any(|job| job.name.as_deref() == Some(&name))
        || status.last_schedule_time.as_ref().is_some_and(|t| t.0 == at)
    {
        return Due::NotYet;
    }
    if spec.concurrency_policy.as_deref() == Some("Forbid") && status.active.as_ref().is_some_and(|all| !all.is_empty())
    {
        return Due::Forbidden { n_missed };
    }
    Due::Start { at, n_missed }
}

fn job_for(owner: Owner<'_>, spec: &CronJobSpec, at: Timestamp, zone: &TimeZone) -> Job {
    let template = spec.job_template.clone();
    let meta = template.metadata.unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    let zoned = at.to_zoned(zone.clone());
    let told = if zoned.offset().is_zero() {
        zoned.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    } else {
        zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    };
    annotations.insert(SCHEDULED_AT.to_owned(), told);
    Job {
        metadata: ObjectMeta {
            name: Some(format!("{}-{}", owner.name(), schedule::minutes_of(at))),
            namespace: owner.meta.namespace.clone(),
            labels: meta.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![owner.reference()]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

/// Finished Jobs of one kind beyond the limit, the oldest first.
fn beyond_history(jobs: &[Arc<Job>], kind: &str, limit: usize) -> Vec<Arc<Job>> {
    let mut finished: Vec<_> = jobs
        .iter()
        .filter(|job| finished_condition(job).is_some_and(|condition| condition.type_ == kind))
        .cloned()
        .collect();
    finished.sort_by_key(|job| {
        let start = job.status.as_ref().and_then(|status| status.start_time.clone());
        (start.is_none(), start, job.metadata.name.clone())
    });
    finished.truncate(finished.len().saturating_sub(limit));
    finished.retain(|job| job.metadata.deletion_timestamp.is_none());
    finished
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2026-01-01T{text}:00Z").parse().unwrap()
    }

    #[test]
    fn a_job_is_due_once_for_each_time() {
        let meta: ObjectMeta =
            serde_json::from_value(json!({ "name": "tick", "creationTimestamp": "2026-01-01T00:00:00Z" })).unwrap();
        let schedule = Schedule::parse("0 * * * *").unwrap();
        let active = json!([{ "name": "tick-29452380" }]);
        for (spec, status, now, expected) in [
            (json!({}), json!({}), "00:59", Due::NotYet),
            (json!({}), json!({}), "01:00", Due::Start { at: at("01:00"), n_missed: 1 }),
            (json!({}), json!({}), "05:10", Due::Start { at: at("05:00"), n_missed: 5 }),
            (json!({}), json!({ "lastScheduleTime": "2026-01-01T01:00:00Z" }), "01:30", Due::NotYet),
            (json!({ "startingDeadlineSeconds": 60 }), json!({}), "01:02", Due::NotYet),
            (
                json!({ "startingDeadlineSeconds": 600 }),
                json!({}),
                "01:02",
                Due::Start { at: at("01:00"), n_missed: 1 },
            ),
            (
                json!({ "concurrencyPolicy": "Forbid" }),
                json!({ "active": active }),
                "02:00",
                Due::Forbidden { n_missed: 2 },
            ),
            (
                json!({ "concurrencyPolicy": "Allow" }),
                json!({ "active": active }),
                "02:00",
                Due::Start { at: at("02:00"), n_missed: 2 },
            ),
        ] {
            let full = |value: &Value| {
                let mut value = value.clone();
                value["schedule"] = json!("");
                value["jobTemplate"] = json!({});
                value
            };
            let spec: CronJobSpec = serde_json::from_value(full(&spec)).unwrap();
            let status: CronJobStatus = serde_json::from_value(status).unwrap();
            assert_eq!(due(&spec, &status, &meta, &schedule, &TimeZone::UTC, at(now)), expected, "{now} {spec:?}");
        }
    }

    #[test]
    fn the_oldest_finished_jobs_beyond_the_limit_go() {
        let job = |name: &str, kind: &str, start: &str| -> Arc<Job> {
            let job = json!({ "metadata": { "name": name }, "status": {
                "startTime": start, "conditions": [{ "type": kind, "status": "True" }] } });
            Arc::new(serde_json::from_value(job).unwrap())
        };
        let jobs = [
            job("b", "Complete", "2026-01-01T02:00:00Z"),
            job("a", "Complete", "2026-01-01T01:00:00Z"),
            job("f", "Failed", "2026-01-01T00:00:00Z"),
            job("r", "Suspended", "2026-01-01T00:00:00Z"),
        ];
        let names = |kind: &str, limit| {
            beyond_history(&jobs, kind, limit).iter().map(|job| job.metadata.name.clone().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(names("Complete", 1), ["a"]);
        assert_eq!(names("Complete", 0), ["a", "b"]);
        assert_eq!(names("Failed", 0), ["f"]);
        assert!(names("Failed", 1).is_empty());
    }
}
