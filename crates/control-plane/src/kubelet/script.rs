//! What a pod will do once it runs: there is no program in a simulated container, so its pod says how it behaves.
//!
//! | annotation | meaning | without it |
//! |---|---|---|
//! | `kerf.dev/run-for` | the containers exit after this long | they run until stopped; in a Job's pod for the options' `job_run_for` |
//! | `kerf.dev/exit-code` | with this code | 0 |
//! | `kerf.dev/ready-after` | ready so long after the start, or `never` | what the probes' initial delays say |
//! | `kerf.dev/stops-after` | how long they take to stop when asked to | the options' `stop` |
//!
//! Durations are written `30s`, `1h30m`, `500ms`. kwok completes the pods of Jobs at once and runs all others for ever; so do we, with a
//! moment of running in between.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};

pub(crate) const RUN_FOR: &str = "kerf.dev/run-for";
pub(crate) const EXIT_CODE: &str = "kerf.dev/exit-code";
pub(crate) const READY_AFTER: &str = "kerf.dev/ready-after";
pub(crate) const STOPS_AFTER: &str = "kerf.dev/stops-after";

/// How long things take on every node.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// The sandbox of a pod: network and volumes.
    pub sandbox: SignedDuration,
    /// An image that the node does not have yet, one at a time.
    pub pull: SignedDuration,
    /// The same for the images named here.
    pub pull_by_image: BTreeMap<String, SignedDuration>,
    /// The creation of one container.
    pub start: SignedDuration,
    /// The run of an init container.
    pub init: SignedDuration,
    /// From being asked to stop to having stopped.
    pub stop: SignedDuration,
    /// The containers of a Job's pod.
    pub job_run_for: SignedDuration,
}

impl Pace {
    /// A quick node with a near registry.
    #[must_use]
    pub fn brisk() -> Self {
        Self {
            sandbox: SignedDuration::from_millis(300),
            pull: SignedDuration::from_secs(1),
            pull_by_image: BTreeMap::new(),
            start: SignedDuration::from_millis(200),
            init: SignedDuration::from_millis(500),
            stop: SignedDuration::from_secs(1),
            job_run_for: SignedDuration::from_secs(1),
        }
    }

    /// Everything at once, but for the moment in which a Job's pod is seen running.
    #[must_use]
    pub fn instant() -> Self {
        Self { job_run_for: SignedDuration::from_secs(1), ..Self::default() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Script {
    pub(crate) sandbox: SignedDuration,
    /// Init containers first, then the others, each in the order of the spec.
    pub(crate) acts: Vec<Act>,
    pub(crate) restart: Restart,
    pub(crate) stops_after: SignedDuration,
    pub(crate) deadline: Option<SignedDuration>,
}

/// The part of one container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Act {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) role: Role,
    pub(crate) always_pulls: bool,
    pub(crate) pull: SignedDuration,
    pub(crate) start: SignedDuration,
    pub(crate) started_after: SignedDuration,
    /// None is never.
    pub(crate) ready_after: Option<SignedDuration>,
    /// None is until stopped.
    pub(crate) run_for: Option<SignedDuration>,
    pub(crate) exit_code: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Init,
    Sidecar,
    Main,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Restart {
    Always,
    OnFailure,
    Never,
}

pub(crate) fn script(pod: &Pod, pace: &Pace) -> Script {
    let Some(spec) = &pod.spec else {
        return Script {
            sandbox: pace.sandbox,
            acts: Vec::new(),
            restart: Restart::Always,
            stops_after: pace.stop,
            deadline: None,
        };
    };
    let note =
        |key: &str| pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(key)).map(String::as_str);
    let is_job = pod.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "Job");
    let run_for = match note(RUN_FOR) {
        Some(text) => duration(text),
        None if is_job && spec.restart_policy.as_deref() != Some("Always") => Some(pace.job_run_for),
        None => None,
    };
    let exit_code = note(EXIT_CODE).and_then(|text| text.parse().ok()).unwrap_or(0);
    let ready_after = note(READY_AFTER).map(duration);
    let init = spec.init_containers.iter().flatten().map(|container| {
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        let role = if is_sidecar { Role::Sidecar } else { Role::Init };
        Act { run_for: (role == Role::Init).then_some(pace.init), ..act(container, role, pace) }
    });
    let main = spec.containers.iter().map(|container| {
        let by_probe = act(container, Role::Main, pace);
        let ready_after = ready_after.unwrap_or(by_probe.ready_after);
        Act { run_for, exit_code, ready_after, ..by_probe }
    });
    let last_words = spec.containers.iter().map(pre_stop_sleep).max().unwrap_or_default();
    let stops_after = note(STOPS_AFTER).and_then(duration).unwrap_or(pace.stop);
    Script {
        sandbox: pace.sandbox,
        acts: init.chain(main).collect(),
        restart: match spec.restart_policy.as_deref() {
            Some("Never") => Restart::Never,
            Some("OnFailure") => Restart::OnFailure,
            _ => Restart::Always,
        },
        stops_after: stops_after.saturating_add(last_words),
        deadline: spec.active_deadline_seconds.map(SignedDuration::from_secs),
    }
}

fn act(container: &Container, role: Role, pace: &Pace) -> Act {
    let image = container.image.clone().unwrap_or_default();
    let started_after = container.startup_probe.as_ref().map_or(SignedDuration::ZERO, first_success);
    let ready_after = container.readiness_probe.as_ref().map_or(SignedDuration::ZERO, first_success);
    Act {
        name: container.name.clone(),
        pull: pace.pull_by_image.get(&image).copied().unwrap_or(pace.pull),
        always_pulls: container.image_pull_policy.as_deref() == Some("Always"),
        image,
        role,
        start: pace.start,
        started_after,
        ready_after: Some(ready_after.max(started_after)),
        run_for: None,
        exit_code: 0,
    }
}

/// A simulated probe succeeds each time it is asked: the first time after its initial delay, and as often as it must.
fn first_success(probe: &Probe) -> SignedDuration {
    let initial = i64::from(probe.initial_delay_seconds.unwrap_or(0).max(0));
    let again = i64::from(probe.success_threshold.unwrap_or(1).max(1) - 1);
    let period = i64::from(probe.period_seconds.unwrap_or(10).max(1));
    SignedDuration::from_secs(initial.saturating_add(again.saturating_mul(period)))
}

fn pre_stop_sleep(container: &Container) -> SignedDuration {
    let hook = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
    hook.and_then(|hook| hook.sleep.as_ref())
        .map_or(SignedDuration::ZERO, |sleep| SignedDuration::from_secs(sleep.seconds.max(0)))
}

/// None for `never`, and for what is no duration.
fn duration(text: &str) -> Option<SignedDuration> {
    text.parse::<SignedDuration>().ok().map(|duration| duration.max(SignedDuration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_pod_says_how_it_behaves() {
        let seconds = |n: i64| Some(SignedDuration::from_secs(n));
        let job = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}]);
        let plain = json!([{"name": "c"}]);
        let probed = json!([{"name": "c",
            "startupProbe": {"initialDelaySeconds": 5},
            "readinessProbe": {"initialDelaySeconds": 3, "successThreshold": 3, "periodSeconds": 2}}]);
        // annotations, owners, restart policy, containers -> run for, exit code, started after, ready after, stops after
        type Case<'a> =
            (Value, &'a Value, &'a str, &'a Value, (Option<SignedDuration>, i32, i64, Option<SignedDuration>, i64));
        let none = json!([]);
        let sleeps = json!([{"name": "c", "lifecycle": {"preStop": {"sleep": {"seconds": 4}}}}]);
        let cases: Vec<Case<'_>> = vec![
            (json!({}), &none, "Always", &plain, (None, 0, 0, seconds(0), 1)),
            (json!({}), &job, "Never", &plain, (seconds(1), 0, 0, seconds(0), 1)),
            (json!({}), &none, "Never", &plain, (None, 0, 0, seconds(0), 1)),
            (json!({RUN_FOR: "1m30s", EXIT_CODE: "7"}), &job, "Never", &plain, (seconds(90), 7, 0, seconds(0), 1)),
            (json!({RUN_FOR: "soon", EXIT_CODE: "x"}), &none, "Never", &plain, (None, 0, 0, seconds(0), 1)),
            (json!({}), &none, "Always", &probed, (None, 0, 5, seconds(7), 1)),
            (json!({READY_AFTER: "never"}), &none, "Always", &probed, (None, 0, 5, None, 1)),
            (json!({READY_AFTER: "1m"}), &none, "Always", &plain, (None, 0, 0, seconds(60), 1)),
            (json!({STOPS_AFTER: "20s"}), &none, "Always", &plain, (None, 0, 0, seconds(0), 20)),
            (json!({}), &none, "Always", &sleeps, (None, 0, 0, seconds(0), 5)),
        ];
        for (annotations, owners, restart, containers, expected) in cases {
            let pod = json!({
                "metadata": {"annotations": annotations, "ownerReferences": owners},
                "spec": {"restartPolicy": restart, "containers": containers},
            });
            let script = script(&serde_json::from_value(pod.clone()).unwrap(), &Pace::brisk());
            let act = &script.acts[0];
            let said = (
                act.run_for,
                act.exit_code,
                act.started_after.as_secs(),
                act.ready_after,
                script.stops_after.as_secs(),
            );
            assert_eq!(said, expected, "{pod}");
        }
    }
}
