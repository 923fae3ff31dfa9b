//! What becomes of Jobs and CronJobs: pods that end, counts, conditions, events.

use regex_lite::Regex;
use serde_json::{Value, json};

use crate::stage::Stage;
use crate::workloads::{conditions, events, items, template, text, timeless, wait_condition, wait_status};

crate::tests!(
    a_job_completes,
    the_pods_of_an_indexed_job_know_their_index,
    a_job_whose_pod_fails_too_often_fails,
    a_failure_policy_can_fail_a_job_at_once,
    a_suspended_job_has_no_pods_until_it_is_resumed,
    a_job_past_its_deadline_loses_its_pods,
    a_finished_job_is_deleted_when_its_time_has_come,
    a_cron_job_starts_a_job,
);

/// Sets a pod's status, as its kubelet would.
#[track_caller]
fn set_status(stage: &Stage, pod: &str, status: &Value) {
    stage.patch(&format!("{}/{pod}/status", stage.pods()), "merge", &json!({"status": status}));
}

fn job(stage: &Stage, more: &Value) -> String {
    let mut template = template(stage, "web:1");
    template["spec"]["restartPolicy"] = json!("Never");
    let mut body =
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "sum"}, "spec": {"template": template}});
    for (key, value) in more.as_object().unwrap() {
        body["spec"][key] = value.clone();
    }
    stage.create(&stage.at("batch/v1", "jobs"), &body);
    stage.object("batch/v1", "jobs", "sum")
}

fn a_job_completes(stage: &Stage) {
    stage.add_node("a", |_| {});
    let sum = job(stage, &json!({"completions": 2, "parallelism": 1}));
    let done = wait_condition(stage, &sum, "Complete=True");
    let mut status = timeless(&done["status"]);
    status["conditions"].as_array_mut().unwrap().sort_by_key(|condition| text(&condition["type"]));
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "CompletionsReached",
            "message": "Reached expected number of succeeded pods"})
    };
    assert_eq!(
        status,
        json!({"succeeded": 2, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {},
            "conditions": [condition("Complete"), condition("SuccessCriteriaMet")]})
    );
    assert!(done["status"]["startTime"].is_string() && done["status"]["completionTime"].is_string());
    let pods = items(stage, &stage.pods());
    let uid = &done["metadata"]["uid"];
    for pod in &pods {
        assert!(pod["metadata"]["finalizers"].is_null(), "{pod}");
        assert_eq!(
            pod["metadata"]["labels"],
            json!({"app": "web", "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": "sum",
                "controller-uid": uid, "job-name": "sum"})
        );
    }
    stage.wait_for("its end to be told", || events(stage, "Job", "sum").len() == 3);
    let told = events(stage, "Job", "sum");
    assert!(told[..2].iter().all(|event| event.starts_with("Normal SuccessfulCreate: Created pod: sum-")), "{told:?}");
    assert_eq!(told[2], "Normal Completed: Job completed");
}

fn the_pods_of_an_indexed_job_know_their_index(stage: &Stage) {
    let sum = job(stage, &json!({"completions": 3, "parallelism": 2, "completionMode": "Indexed"}));
    wait_status(stage, &sum, &[("active", 2)]);
    let mut pods = items(stage, &stage.pods());
    pods.sort_by_key(|pod| text(&pod["metadata"]["name"]));
    for (index, pod) in pods.iter().enumerate() {
        let index = index.to_string();
        let label = "batch.kubernetes.io/job-completion-index";
        assert_eq!(pod["metadata"]["generateName"], format!("sum-{index}-"));
        assert_eq!(pod["metadata"]["labels"][label], index.as_str());
        assert_eq!(pod["metadata"]["annotations"][label], index.as_str());
        assert_eq!(pod["metadata"]["finalizers"], json!(["batch.kubernetes.io/job-tracking"]));
        assert_eq!(pod["spec"]["hostname"], format!("sum-{index}"));
        assert_eq!(
            pod["spec"]["containers"][0]["env"],
            json!([{"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {
                "apiVersion": "v1", "fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}}}])
        );
    }
    set_status(stage, &text(&pods[1]["metadata"]["name"]), &json!({"phase": "Succeeded"}));
    let next = wait_status(stage, &sum, &[("succeeded", 1), ("active", 2)]);
    assert_eq!(next["status"]["completedIndexes"], "1");
    stage.add_node("a", |_| {});
    let done = wait_condition(stage, &sum, "Complete=True");
    assert_eq!(done["status"]["completedIndexes"], "0-2");
}

fn a_job_whose_pod_fails_too_often_fails(stage: &Stage) {
    let sum = job(stage, &json!({"backoffLimit": 0, "parallelism": 2, "completions": 2}));
    wait_status(stage, &sum, &[("active", 2)]);
    let pod = text(&items(stage, &stage.pods())[0]["metadata"]["name"]);
    set_status(stage, &pod, &json!({"phase": "Failed"}));
    let failed = wait_condition(stage, &sum, "Failed=True");
    let why = "BackoffLimitExceeded: Job has reached the specified backoff limit";
    assert_eq!(conditions(&failed), [format!("Failed=True {why}"), format!("FailureTarget=True {why}")]);
    let status = timeless(&failed["status"]);
    assert_eq!(
        (&status["failed"], &status["active"], &status["ready"]),
        (&json!(2), &Value::Null, &json!(0)),
        "{status}"
    );
    stage.wait_for("its end to be told", || {
        events(stage, "Job", "sum").last().is_some_and(|event| *event == format!("Warning {why}"))
    });
    let told = events(stage, "Job", "sum");
    assert!(told.iter().any(|event| event.starts_with("Normal SuccessfulDelete: Deleted pod: sum-")), "{told:?}");
}

fn a_failure_policy_can_fail_a_job_at_once(stage: &Stage) {
    let rules = json!([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]);
    let sum = job(stage, &json!({"backoffLimit": 5, "podFailurePolicy": {"rules": rules}}));
    wait_status(stage, &sum, &[("active", 1)]);
    let pod = text(&items(stage, &stage.pods())[0]["metadata"]["name"]);
    let container = json!({"name": "web", "image": "web:1", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 42}}});
    set_status(stage, &pod, &json!({"phase": "Failed", "containerStatuses": [container]}));
    let failed = wait_condition(stage, &sum, "Failed=True");
    let why = format!(
        "PodFailurePolicy: Container web for pod {}/{pod} failed with exit code 42 matching FailJob rule at index 0",
        stage.namespace
    );
    assert_eq!(conditions(&failed), [format!("Failed=True {why}"), format!("FailureTarget=True {why}")]);
}

fn a_suspended_job_has_no_pods_until_it_is_resumed(stage: &Stage) {
    let sum = job(stage, &json!({"suspend": true}));
    let held = wait_condition(stage, &sum, "Suspended=True JobSuspended: Job suspended");
    assert!(held["status"]["startTime"].is_null());
    assert!(items(stage, &stage.pods()).is_empty());
    stage.patch(&sum, "merge", &json!({"spec": {"suspend": false}}));
    wait_condition(stage, &sum, "Suspended=False JobResumed: Job resumed");
    let going = wait_status(stage, &sum, &[("active", 1)]);
    assert!(going["status"]["startTime"].is_string());
    stage.patch(&sum, "merge", &json!({"spec": {"suspend": true}}));
    stage.wait_for("the pod to go", || items(stage, &stage.pods()).is_empty());
    wait_status(stage, &sum, &[("active", 0)]);
}

fn a_job_past_its_deadline_loses_its_pods(stage: &Stage) {
    let sum = job(stage, &json!({"activeDeadlineSeconds": 1}));
    let failed = wait_condition(stage, &sum, "Failed=True");
    let why = "DeadlineExceeded: Job was active longer than specified deadline";
    assert_eq!(conditions(&failed), [format!("Failed=True {why}"), format!("FailureTarget=True {why}")]);
    stage.wait_for("the pod to go", || items(stage, &stage.pods()).is_empty());
}

fn a_finished_job_is_deleted_when_its_time_has_come(stage: &Stage) {
    stage.add_node("a", |_| {});
    let sum = job(stage, &json!({"ttlSecondsAfterFinished": 0}));
    stage.wait_for("the job and its pod to go", || stage.is_gone(&sum) && items(stage, &stage.pods()).is_empty());
}

fn a_cron_job_starts_a_job(stage: &Stage) {
    let mut template = template(stage, "web:1");
    template["spec"]["restartPolicy"] = json!("Never");
    let path = stage.at("batch/v1", "cronjobs");
    let spec = json!({"schedule": "@every 1s", "concurrencyPolicy": "Forbid",
        "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"template": template}}});
    let tick = stage.create(
        &path,
        &json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"}, "spec": spec}),
    );
    let jobs = stage.at("batch/v1", "jobs");
    let job = stage.wait_some("a job to be started", || items(stage, &jobs).into_iter().next());
    let name = text(&job["metadata"]["name"]);
    assert!(Regex::new("^tick-[0-9]{8}$").unwrap().is_match(&name), "{name}");
    assert_eq!(job["metadata"]["labels"]["a"], "b");
    let at = text(&job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]);
    assert!(Regex::new("^20[0-9-]+T[0-9:]+Z$").unwrap().is_match(&at), "{at}");
    assert_eq!(job["metadata"]["ownerReferences"][0]["uid"], tick["metadata"]["uid"]);
    let known = stage.wait_some("the job to be known as active", || {
        let tick = stage.read(&format!("{path}/tick"));
        tick["status"]["active"].as_array().map(|active| active[0].clone())
    });
    assert_eq!(
        (&known["kind"], &known["name"], &known["uid"], &known["namespace"]),
        (&json!("Job"), &json!(name), &job["metadata"]["uid"], &json!(stage.namespace))
    );
    stage.wait_for("the job to be told of", || {
        events(stage, "CronJob", "tick").contains(&format!("Normal SuccessfulCreate: Created job {name}"))
    });
}
