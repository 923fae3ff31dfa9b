//! What a Deployment's status says of its rollout.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};

use super::super::facts::{after, count, whole_seconds};
use super::rollout::{Wish, wanted_of};

pub(crate) const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const FAILURE: &str = "ReplicaFailure";
const NEW_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// The deadline for progress, in seconds, if one is set. The largest number stands for none.
pub(crate) fn deadline(deployment: &Deployment) -> Option<i32> {
    deployment.spec.as_ref()?.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX)
}

pub(crate) fn condition_of<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

pub(crate) fn condition(
    kind: &str,
    status: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_update_time: Some(whole_seconds(now)),
        last_transition_time: Some(whole_seconds(now)),
    }
}

/// Says something new. The same status for the same reason is nothing new, and the transition time tells of the status only.
pub(crate) fn set_condition(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    let conditions = status.conditions.get_or_insert_default();
    if let Some(known) = conditions.iter().find(|known| known.type_ == condition.type_)
        && known.status == condition.status
    {
        if known.reason == condition.reason {
            return;
        }
        condition.last_transition_time.clone_from(&known.last_transition_time);
    }
    conditions.retain(|known| known.type_ != condition.type_);
    conditions.push(condition);
}

fn remove_condition(status: &mut DeploymentStatus, kind: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != kind);
        if conditions.is_empty() {
            status.conditions = None;
        }
    }
}

/// The condition that pausing or resuming calls for. A rollout that ran out of time stays told as such.
pub(crate) fn paused_condition(deployment: &Deployment, now: Timestamp) -> Option<DeploymentCondition> {
    deadline(deployment)?;
    let reason = deployment
        .status
        .as_ref()
        .and_then(|status| condition_of(status, PROGRESSING))
        .and_then(|condition| condition.reason.as_deref());
    let is_paused = deployment.spec.as_ref().and_then(|spec| spec.paused).unwrap_or(false);
    match (is_paused, reason == Some(PAUSED)) {
        _ if reason == Some(TIMED_OUT) => None,
        (true, false) => Some(condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused".to_owned(), now)),
        (false, true) => {
            Some(condition(PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed".to_owned(), now))
        }
        _ => None,
    }
}

/// The counts and availability, as the ReplicaSets tell them.
pub(crate) fn counted(
    deployment: &Deployment,
    wish: &Wish,
    new: Option<&ReplicaSet>,
    old: &[&ReplicaSet],
    now: Timestamp,
) -> DeploymentStatus {
    let sum = |of: &dyn Fn(&ReplicaSet) -> i32| old.iter().copied().chain(new).map(of).fold(0, i32::saturating_add);
    let told = |of: &dyn Fn(&k8s_openapi::api::apps::v1::ReplicaSetStatus) -> Option<i32>| {
        sum(&|set| set.status.as_ref().and_then(of).unwrap_or(0))
    };
    let actual = |set: &ReplicaSet| set.status.as_ref().map_or(0, |status| status.replicas);
    let available = told(&|status| status.available_replicas);
    let before = deployment.status.clone().unwrap_or_default();
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: count(sum(&actual)),
        updated_replicas: count(new.map_or(0, actual)),
        ready_replicas: count(told(&|status| status.ready_replicas)),
        available_replicas: count(available),
        unavailable_replicas: count((sum(&wanted_of) - available).max(0)),
        terminating_replicas: terminating(old.iter().copied().chain(new)),
        collision_count: before.collision_count,
        conditions: before.conditions,
    };
    let is_available = available >= wish.replicas - wish.max_unavailable();
    set_condition(
        &mut status,
        if is_available {
            let message = "Deployment has minimum availability.".to_owned();
            condition(AVAILABLE, "True", "MinimumReplicasAvailable", message, now)
        } else {
            let message = "Deployment does not have minimum availability.".to_owned();
            condition(AVAILABLE, "False", "MinimumReplicasUnavailable", message, now)
        },
    );
    status
}

/// None as long as one of the sets has not told.
fn terminating<'a>(sets: impl Iterator<Item = &'a ReplicaSet>) -> Option<i32> {
    let mut sum = 0_i32;
    for set in sets {
        let status = set.status.as_ref();
        match status.and_then(|status| status.terminating_replicas) {
            Some(n) => sum = sum.saturating_add(n),
            None if status.and_then(|status| status.observed_generation).unwrap_or(0) == 0 => {}
            None => return None,
        }
    }
    Some(sum)
}

pub(crate) fn is_complete(deployment: &Deployment, wish: &Wish, status: &DeploymentStatus) -> bool {
    status.updated_replicas.unwrap_or(0) == wish.replicas
        && status.replicas.unwrap_or(0) == wish.replicas
        && status.available_replicas.unwrap_or(0) == wish.replicas
        && status.observed_generation.unwrap_or(0) >= deployment.metadata.generation.unwrap_or(0)
}

/// The status of a rollout: what is counted, and whether it gets anywhere. Also when to look again for lack of progress.
pub(crate) fn of_rollout(
    deployment: &Deployment,
    wish: &Wish,
    new: Option<&ReplicaSet>,
    old: &[&ReplicaSet],
    now: Timestamp,
) -> (DeploymentStatus, Option<Timestamp>) {
    let before = deployment.status.clone().unwrap_or_default();
    let mut status = counted(deployment, wish, new, old, now);
    let deadline = deadline(deployment);
    if deadline.is_none() {
        remove_condition(&mut status, PROGRESSING);
    }
    let current = condition_of(&before, PROGRESSING).cloned();
    let reason = current.as_ref().and_then(|condition| condition.reason.as_deref()).unwrap_or_default();
    let was_complete = status.replicas == status.updated_replicas && reason == NEW_SET_AVAILABLE;
    if let Some(seconds) = deadline
        && !was_complete
    {
        let who = match new {
            Some(set) => format!("ReplicaSet \"{}\"", set.metadata.name.as_deref().unwrap_or_default()),
            None => format!("Deployment \"{}\"", deployment.metadata.name.as_deref().unwrap_or_default()),
        };
        if is_complete(deployment, wish, &status) {
            let message = format!("{who} has successfully progressed.");
            set_condition(&mut status, condition(PROGRESSING, "True", NEW_SET_AVAILABLE, message, now));
        } else if made_progress(&before, &status) {
            let message = format!("{who} is progressing.");
            let mut news = condition(PROGRESSING, "True", "ReplicaSetUpdated", message, now);
            // Told again with each bit of progress, because the deadline counts from the last one.
            if let Some(current) = current.as_ref().filter(|current| current.status == "True") {
                news.last_transition_time.clone_from(&current.last_transition_time);
            }
            remove_condition(&mut status, PROGRESSING);
            status.conditions.get_or_insert_default().push(news);
        } else if is_timed_out(&status, seconds, now) {
            let message = format!("{who} has timed out progressing.");
            set_condition(&mut status, condition(PROGRESSING, "False", TIMED_OUT, message, now));
        }
    }
    match failure(new, old) {
        Some(failure) => set_condition(&mut status, failure),
        None => remove_condition(&mut status, FAILURE),
    }
    let again = again(deployment, wish, &status, deadline);
    (status, again)
}

fn made_progress(before: &DeploymentStatus, after: &DeploymentStatus) -> bool {
    let n = |count: Option<i32>| count.unwrap_or(0);
    let left = |status: &DeploymentStatus| n(status.replicas) - n(status.updated_replicas);
    n(after.updated_replicas) > n(before.updated_replicas)
        || left(after) < left(before)
        || n(after.ready_replicas) > n(before.ready_replicas)
        || n(after.available_replicas) > n(before.available_replicas)
}

fn is_timed_out(status: &DeploymentStatus, seconds: i32, now: Timestamp) -> bool {
    let Some(condition) = condition_of(status, PROGRESSING) else { return false };
    match condition.reason.as_deref() {
        Some(NEW_SET_AVAILABLE) => false,
        Some(TIMED_OUT) => true,
        _ => condition.last_update_time.as_ref().is_some_and(|last| after(last.0, seconds.into()) < now),
    }
}

/// One set's trouble to create pods becomes the Deployment's. The newest set's counts most.
fn failure(new: Option<&ReplicaSet>, old: &[&ReplicaSet]) -> Option<DeploymentCondition> {
    let failures = |set: &ReplicaSet| {
        let conditions = set.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        conditions.into_iter().find(|condition| condition.type_ == FAILURE)
    };
    let failure = new.and_then(failures).or_else(|| old.iter().find_map(|set| failures(set)))?;
    Some(DeploymentCondition {
        type_: failure.type_,
        status: failure.status,
        reason: failure.reason,
        message: failure.message,
        last_update_time: failure.last_transition_time.clone(),
        last_transition_time: failure.last_transition_time,
    })
}

/// A second after the deadline, as long as the rollout neither ended nor ran out of time.
fn again(deployment: &Deployment, wish: &Wish, status: &DeploymentStatus, deadline: Option<i32>) -> Option<Timestamp> {
    let current = condition_of(status, PROGRESSING)?;
    let reason = current.reason.as_deref();
    if is_complete(deployment, wish, status) || reason == Some(TIMED_OUT) || reason == Some(NEW_SET_AVAILABLE) {
        return None;
    }
    Some(after(current.last_update_time.as_ref()?.0, i64::from(deadline?) + 1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(status: serde_json::Value) -> Deployment {
        serde_json::from_value(json!({
            "metadata": { "name": "web", "generation": 2 },
            "spec": { "replicas": 3, "selector": {}, "template": {}, "progressDeadlineSeconds": 60,
                      "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } } },
            "status": status,
        }))
        .unwrap()
    }

    fn set(name: &str, wanted: i32, replicas: i32, available: i32) -> ReplicaSet {
        serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": { "replicas": wanted, "selector": {} },
            "status": { "replicas": replicas, "readyReplicas": available, "availableReplicas": available,
                        "terminatingReplicas": 0, "observedGeneration": 1 },
        }))
        .unwrap()
    }

    fn told(status: &DeploymentStatus) -> Vec<String> {
        let conditions = status.conditions.iter().flatten();
        conditions
            .map(|c| {
                format!("{}={} {}: {}", c.type_, c.status, c.reason.as_deref().unwrap(), c.message.as_deref().unwrap())
            })
            .collect()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn a_rollout_is_told_from_its_beginning_to_its_end() {
        let mut deployment = deployment(json!({}));
        let wish = Wish::of(&deployment);
        let (status, again) = of_rollout(&deployment, &wish, Some(&set("web-1", 3, 1, 0)), &[], at(10));
        assert_eq!(
            told(&status),
            [
                "Available=False MinimumReplicasUnavailable: Deployment does not have minimum availability.",
                "Progressing=True ReplicaSetUpdated: ReplicaSet \"web-1\" is progressing.",
            ]
        );
        assert_eq!((status.unavailable_replicas, again), (Some(3), Some(at(71))));
        deployment.status = Some(status);
        let (status, again) = of_rollout(&deployment, &wish, Some(&set("web-1", 3, 3, 3)), &[], at(20));
        assert_eq!(
            told(&status),
            [
                "Available=True MinimumReplicasAvailable: Deployment has minimum availability.",
                "Progressing=True NewReplicaSetAvailable: ReplicaSet \"web-1\" has successfully progressed.",
            ]
        );
        let progressing = condition_of(&status, PROGRESSING).unwrap();
        assert_eq!(progressing.last_transition_time.as_ref().unwrap().0, at(10));
        assert_eq!((progressing.last_update_time.as_ref().unwrap().0, again), (at(20), None));
        // A pod that fails later is no lack of progress, however long it lasts.
        deployment.status = Some(status);
        let (status, again) = of_rollout(&deployment, &wish, Some(&set("web-1", 3, 3, 2)), &[], at(2000));
        assert_eq!(condition_of(&status, PROGRESSING).unwrap().reason.as_deref(), Some(NEW_SET_AVAILABLE));
        assert_eq!(again, None);
    }

    #[test]
    fn a_rollout_without_progress_runs_out_of_time_once() {
        let mut deployment = deployment(json!({ "replicas": 3, "updatedReplicas": 1,
            "readyReplicas": 2, "availableReplicas": 2, "conditions": [{
            "type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated",
            "lastUpdateTime": "1970-01-01T00:00:10Z" }] }));
        let wish = Wish::of(&deployment);
        let (new, old) = (set("web-2", 1, 1, 0), set("web-1", 2, 2, 2));
        let at_deadline = of_rollout(&deployment, &wish, Some(&new), &[&old], at(70));
        assert_eq!(condition_of(&at_deadline.0, PROGRESSING).unwrap().reason.as_deref(), Some("ReplicaSetUpdated"));
        assert_eq!(at_deadline.1, Some(at(71)));
        let (status, again) = of_rollout(&deployment, &wish, Some(&new), &[&old], at(71));
        let progressing = condition_of(&status, PROGRESSING).unwrap();
        assert_eq!(progressing.status, "False");
        assert_eq!(progressing.message.as_deref(), Some("ReplicaSet \"web-2\" has timed out progressing."));
        assert_eq!(again, None);
        deployment.status = Some(status.clone());
        assert_eq!(of_rollout(&deployment, &wish, Some(&new), &[&old], at(500)), (status, None));
    }

    #[test]
    fn pausing_and_resuming_are_told_once() {
        let mut deployment = deployment(json!({}));
        assert_eq!(paused_condition(&deployment, at(1)), None);
        deployment.spec.as_mut().unwrap().paused = Some(true);
        let paused = paused_condition(&deployment, at(1)).unwrap();
        assert_eq!((paused.status.as_str(), paused.message.as_deref()), ("Unknown", Some("Deployment is paused")));
        set_condition(deployment.status.as_mut().unwrap(), paused);
        assert_eq!(paused_condition(&deployment, at(2)), None);
        deployment.spec.as_mut().unwrap().paused = None;
        assert_eq!(paused_condition(&deployment, at(3)).unwrap().reason.as_deref(), Some("DeploymentResumed"));
    }

    #[test]
    fn trouble_of_a_set_becomes_the_deployments_until_it_is_over() {
        let mut deployment = deployment(json!({}));
        let wish = Wish::of(&deployment);
        let mut troubled = set("web-1", 3, 0, 0);
        troubled.status.as_mut().unwrap().conditions = Some(vec![
            serde_json::from_value(
                json!({ "type": FAILURE, "status": "True", "reason": "FailedCreate", "message": "no" }),
            )
            .unwrap(),
        ]);
        let (status, _) = of_rollout(&deployment, &wish, Some(&troubled), &[], at(10));
        assert!(told(&status).contains(&"ReplicaFailure=True FailedCreate: no".to_owned()));
        deployment.status = Some(status);
        let (status, _) = of_rollout(&deployment, &wish, Some(&set("web-1", 3, 0, 0)), &[], at(10));
        assert!(condition_of(&status, FAILURE).is_none());
    }
}
