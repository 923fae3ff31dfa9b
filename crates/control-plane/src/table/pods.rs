//! The row of a pod. Its STATUS is the best short answer to "what is wrong with it": the phase, unless a container knows
//! better.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::ages;
use super::read::{holds, is_true, items, number, text, text_or};

pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let seen = look(pod);
    let restarts = match seen.last_restart {
        Some(at) if seen.restarts != 0 => {
            format!("{} ({} ago)", seen.restarts, ages::human(now.duration_since(at)))
        }
        _ => seen.restarts.to_string(),
    };
    vec![
        pod["metadata"]["name"].clone(),
        json!(format!("{}/{}", seen.n_ready, seen.n_containers)),
        json!(seen.reason),
        json!(restarts),
        json!(ages::since(&pod["metadata"]["creationTimestamp"], now)),
        json!(text_or(&status["podIPs"][0]["ip"], "<none>")),
        json!(text_or(&spec["nodeName"], "<none>")),
        json!(text_or(&status["nominatedNodeName"], "<none>")),
        json!(readiness_gates(spec, status)),
    ]
}

/// Marks the row of a pod that has ended.
pub(super) fn conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match text(&pod["status"]["phase"]) {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{ "type": "Completed", "status": "True", "reason": reason, "message": message }]))
}

struct Seen {
    reason: String,
    n_ready: usize,
    n_containers: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

/// Restarts, and when the last one ended.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count = self.count.saturating_add(number(&container["restartCount"]));
        self.last = self.last.max(ages::read(&container["lastState"]["terminated"]["finishedAt"]));
    }
}

fn look(pod: &Value) -> Seen {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let mut reason = text_or(&status["reason"], text(&status["phase"])).to_owned();
    let is_gated = |condition: &Value| condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated";
    if items(&status["conditions"]).iter().any(is_gated) {
        reason = "SchedulingGated".to_owned();
    }

    let is_sidecar = |name: &Value| {
        items(&spec["initContainers"]).iter().any(|init| init["name"] == *name && init["restartPolicy"] == "Always")
    };
    let n_sidecars = items(&spec["initContainers"]).iter().filter(|init| init["restartPolicy"] == "Always").count();
    let n_containers = items(&spec["containers"]).len() + n_sidecars;
    let mut n_ready = 0;

    let (mut inits, mut sidecars) = (Restarts::default(), Restarts::default());
    let mut is_initializing = false;
    for (index, container) in items(&status["initContainerStatuses"]).iter().enumerate() {
        let is_sidecar = is_sidecar(&container["name"]);
        inits.add(container);
        if is_sidecar {
            sidecars.add(container);
        }
        let (waiting, terminated) = (&container["state"]["waiting"], &container["state"]["terminated"]);
        if terminated.is_object() && number(&terminated["exitCode"]) == 0 {
            continue;
        }
        if is_sidecar && is_true(&container["started"]) {
            n_ready += usize::from(is_true(&container["ready"]));
            continue;
        }
        is_initializing = true;
        reason = if terminated.is_object() {
            format!("Init:{}", ending(terminated))
        } else {
            match text(&waiting["reason"]) {
                "" | "PodInitializing" => format!("Init:{index}/{}", items(&spec["initContainers"]).len()),
                waits => format!("Init:{waits}"),
            }
        };
        break;
    }

    let mut restarts = inits;
    if !is_initializing || holds(&status["conditions"], "Initialized") {
        restarts = sidecars;
        let mut is_running = false;
        let mut failure = None;
        for container in items(&status["containerStatuses"]).iter().rev() {
            restarts.add(container);
            let (state, waits) = (&container["state"], text(&container["state"]["waiting"]["reason"]));
            if !waits.is_empty() {
                reason = waits.to_owned();
            } else if state["terminated"].is_object() {
                reason = ending(&state["terminated"]);
                if number(&state["terminated"]["exitCode"]) != 0 {
                    failure = Some(reason.clone());
                }
            } else if is_true(&container["ready"]) && state["running"].is_object() {
                is_running = true;
                n_ready += 1;
            }
        }
        // One container that ended well does not end a pod in which another still runs.
        if reason == "Completed" {
            if is_running && holds(&status["conditions"], "Ready") {
                reason = "Running".to_owned();
            } else if let Some(failure) = failure {
                reason = failure;
            } else if is_running {
                reason = "NotReady".to_owned();
            }
        }
    }

    if pod["metadata"]["deletionTimestamp"].is_string() {
        if status["reason"] == "NodeLost" {
            reason = "Unknown".to_owned();
        } else if !matches!(text(&status["phase"]), "Succeeded" | "Failed") {
            reason = "Terminating".to_owned();
        }
    }
    Seen { reason, n_ready, n_containers, restarts: restarts.count, last_restart: restarts.last }
}

/// Why a container ended: its reason, its signal, or its exit code.
fn ending(terminated: &Value) -> String {
    match (text(&terminated["reason"]), number(&terminated["signal"])) {
        ("", 0) => format!("ExitCode:{}", number(&terminated["exitCode"])),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn readiness_gates(spec: &Value, status: &Value) -> String {
    let gates = items(&spec["readinessGates"]);
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let n_open = gates.iter().filter(|gate| holds(&status["conditions"], text(&gate["conditionType"]))).count();
    format!("{n_open}/{}", gates.len())
}
