//! The rows of what runs pods: deployments, replica sets, stateful sets, daemon sets, jobs, and their budgets.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::ages;
use super::read::{
    holds, is_true, items, joined, labels, number, number_or_text, selector, selector_or_none, text, text_if_set,
};

/// The cells between the name and the age, and those after the age.
pub(super) type Around = (Vec<Value>, Vec<Value>);

fn containers_and(template: &Value, selector: String) -> Vec<Value> {
    let mut wide = containers(template);
    wide.push(json!(selector));
    wide
}

fn containers(template: &Value) -> Vec<Value> {
    let containers = &template["spec"]["containers"];
    vec![json!(joined(containers, "name")), json!(joined(containers, "image"))]
}

pub(super) fn deployment(object: &Value) -> Around {
    let (spec, status) = (&object["spec"], &object["status"]);
    let cells = vec![
        json!(format!("{}/{}", number(&status["readyReplicas"]), number(&spec["replicas"]))),
        json!(number(&status["updatedReplicas"])),
        json!(number(&status["availableReplicas"])),
    ];
    (cells, containers_and(&spec["template"], selector(&spec["selector"])))
}

pub(super) fn replica_set(object: &Value) -> Around {
    let said = selector_or_none(&object["spec"]["selector"]);
    (replicas(object), containers_and(&object["spec"]["template"], said))
}

pub(super) fn replication_controller(object: &Value) -> Around {
    let said = labels(&object["spec"]["selector"]);
    (replicas(object), containers_and(&object["spec"]["template"], said))
}

fn replicas(object: &Value) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    [&spec["replicas"], &status["replicas"], &status["readyReplicas"]].map(|count| json!(number(count))).to_vec()
}

pub(super) fn stateful_set(object: &Value) -> Around {
    let (spec, status) = (&object["spec"], &object["status"]);
    let ready = format!("{}/{}", number(&status["readyReplicas"]), number(&spec["replicas"]));
    (vec![json!(ready)], containers(&spec["template"]))
}

pub(super) fn daemon_set(object: &Value) -> Around {
    let (spec, status) = (&object["spec"], &object["status"]);
    let mut cells: Vec<Value> = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    ]
    .map(|field| json!(number(&status[field])))
    .to_vec();
    cells.push(json!(labels(&spec["template"]["spec"]["nodeSelector"])));
    (cells, containers_and(&spec["template"], selector_or_none(&spec["selector"])))
}

pub(super) fn job(object: &Value, now: Timestamp) -> Around {
    let (spec, status) = (&object["spec"], &object["status"]);
    let succeeded = number(&status["succeeded"]);
    let completions = match (spec["completions"].as_i64(), number(&spec["parallelism"])) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let took = ages::read(&status["startTime"])
        .map(|started| ages::human(ages::read(&status["completionTime"]).unwrap_or(now).duration_since(started)));
    let state = |kind| holds(&status["conditions"], kind);
    let is_deleting = object["metadata"]["deletionTimestamp"].is_string();
    let said = match () {
        () if state("Complete") => "Complete",
        () if state("Failed") => "Failed",
        () if is_deleting => "Terminating",
        () if state("Suspended") => "Suspended",
        () if state("FailureTarget") => "FailureTarget",
        () if state("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    };
    let cells = vec![json!(said), json!(completions), json!(took.unwrap_or_default())];
    (cells, containers_and(&spec["template"], selector_or_none(&spec["selector"])))
}

pub(super) fn cron_job(object: &Value, now: Timestamp) -> Around {
    let (spec, status) = (&object["spec"], &object["status"]);
    let suspend = match spec["suspend"].as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let last = &status["lastScheduleTime"];
    let last = if last.is_null() { "<none>".to_owned() } else { ages::since(last, now) };
    let cells = vec![
        json!(text(&spec["schedule"])),
        json!(text_if_set(&spec["timeZone"], "<none>")),
        json!(suspend),
        json!(items(&status["active"]).len()),
        json!(last),
    ];
    let job = &spec["jobTemplate"]["spec"];
    (cells, containers_and(&job["template"], selector_or_none(&job["selector"])))
}

pub(super) fn disruption_budget(object: &Value) -> Around {
    let (spec, status) = (&object["spec"], &object["status"]);
    let bound = |value: &Value| if value.is_null() { "N/A".to_owned() } else { number_or_text(value) };
    let cells = vec![
        json!(bound(&spec["minAvailable"])),
        json!(bound(&spec["maxUnavailable"])),
        json!(number(&status["disruptionsAllowed"])),
    ];
    (cells, Vec::new())
}

/// Whose history this is: `deployment.apps/web`.
pub(super) fn controller_revision(object: &Value) -> Around {
    let owner = items(&object["metadata"]["ownerReferences"]).iter().find(|owner| is_true(&owner["controller"]));
    let controller = owner.map_or_else(
        || "<none>".to_owned(),
        |owner| {
            let group =
                text(&owner["apiVersion"]).rsplit_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
            format!("{}{group}/{}", text(&owner["kind"]).to_lowercase(), text(&owner["name"]))
        },
    );
    (vec![json!(controller), json!(number(&object["revision"]))], Vec::new())
}
