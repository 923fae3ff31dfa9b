//! A pod's status as its kubelet writes it: a function of the pod, of its life so far, and of where it lives.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::admission::Refused;
use super::life::{Ended, Life, Run, State, Waiting};
use super::script::Role;

/// Conditions that kubelets own. Those of others pass through.
const OWNED: [&str; 5] = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// The addresses of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) host: String,
    pub(crate) pod: String,
}

pub(crate) fn living(pod: &Pod, life: &Life, addresses: &Addresses, now: Timestamp) -> PodStatus {
    let before = pod.status.clone().unwrap_or_default();
    let phase = life.phase();
    let uses_host_network = pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false);
    let pod_ip = match (uses_host_network, life.has_sandbox) {
        (true, _) => Some(addresses.host.clone()),
        (false, true) => Some(addresses.pod.clone()),
        (false, false) => before.pod_ip.clone(),
    };
    let (init, main) = container_statuses(pod, life);
    let (reason, message) = if life.is_too_late {
        (Some("DeadlineExceeded"), Some("Pod was active on the node longer than the specified deadline"))
    } else {
        (None, None)
    };
    let is_same_phase = before.phase.as_deref() == Some(phase);
    let kept = |text: Option<&str>, before: Option<String>| {
        text.map(str::to_owned).or_else(|| before.filter(|_| is_same_phase))
    };
    PodStatus {
        conditions: Some(conditions(pod, life, phase, now)),
        container_statuses: Some(main),
        host_ip: Some(addresses.host.clone()),
        host_ips: Some(vec![HostIP { ip: addresses.host.clone() }]),
        init_container_statuses: Some(init).filter(|init| !init.is_empty()),
        message: kept(message, before.message.clone()),
        observed_generation: pod.metadata.generation,
        phase: Some(phase.to_owned()),
        pod_ips: pod_ip.clone().map(|ip| vec![PodIP { ip }]),
        pod_ip,
        reason: kept(reason, before.reason.clone()),
        start_time: before.start_time.clone().or(Some(time(life.begun))),
        ..before
    }
}

/// A pod that was not let in.
pub(crate) fn refused(pod: &Pod, refused: &Refused, now: Timestamp) -> PodStatus {
    let before = pod.status.clone().unwrap_or_default();
    PodStatus {
        conditions: Some(not_owned(&before)).filter(|conditions| !conditions.is_empty()),
        message: Some(format!("Pod was rejected: {}", refused.message)),
        observed_generation: pod.metadata.generation,
        phase: Some("Failed".to_owned()),
        qos_class: before.qos_class.clone(),
        reason: Some(refused.reason.clone()),
        start_time: before.start_time.clone().or(Some(time(now))),
        ..PodStatus::default()
    }
}

fn not_owned(status: &PodStatus) -> Vec<PodCondition> {
    status.conditions.iter().flatten().filter(|condition| !OWNED.contains(&condition.type_.as_str())).cloned().collect()
}

/// What a condition says: its status, reason and message.
type Verdict = (bool, &'static str, String);

fn conditions(pod: &Pod, life: &Life, phase: &str, now: Timestamp) -> Vec<PodCondition> {
    let before = pod.status.clone().unwrap_or_default();
    let mut conditions = not_owned(&before);
    let containers_ready = containers_ready(life, phase);
    let ready = if containers_ready.0 { gates_open(pod, &conditions) } else { containers_ready.clone() };
    let owned: [(&str, Verdict); 5] = [
        ("PodReadyToStartContainers", (life.has_sandbox && !life.is_over, "", String::new())),
        ("Initialized", initialised(life, phase)),
        ("Ready", ready),
        ("ContainersReady", containers_ready),
        ("PodScheduled", (true, "", String::new())),
    ];
    for (kind, (is_true, reason, message)) in owned {
        let status = if is_true { "True" } else { "False" };
        let old = before.conditions.iter().flatten().find(|condition| condition.type_ == kind);
        let unchanged = old.filter(|old| old.status == status);
        conditions.push(PodCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()).filter(|reason| !reason.is_empty()),
            message: Some(message).filter(|message| !message.is_empty()),
            last_transition_time: unchanged.and_then(|old| old.last_transition_time.clone()).or(Some(time(now))),
            observed_generation: pod.metadata.generation,
            last_probe_time: None,
        });
    }
    conditions
}

fn initialised(life: &Life, phase: &str) -> Verdict {
    if phase == "Succeeded" {
        return (true, "PodCompleted", String::new());
    }
    let incomplete = names(life, |role, run| match role {
        Role::Main => false,
        Role::Init => !run.is_ready,
        Role::Sidecar => !run.is_started,
    });
    let has_begun =
        life.script.acts.iter().zip(&life.runs).any(|(act, run)| {
            act.role == Role::Main && (!matches!(run.state, State::Waiting(_)) || run.last.is_some())
        });
    if incomplete.is_empty() || has_begun {
        return (true, "", String::new());
    }
    (false, "ContainersNotInitialized", format!("containers with incomplete status: [{}]", incomplete.join(" ")))
}

fn containers_ready(life: &Life, phase: &str) -> Verdict {
    match phase {
        "Succeeded" => return (false, "PodCompleted", String::new()),
        "Failed" => return (false, "PodFailed", String::new()),
        _ => {}
    }
    let unready = names(life, |role, run| role != Role::Init && !run.is_ready);
    if unready.is_empty() {
        return (true, "", String::new());
    }
    (false, "ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" ")))
}

fn gates_open(pod: &Pod, conditions: &[PodCondition]) -> Verdict {
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_deref()).unwrap_or_default();
    let closed: Vec<String> = gates
        .iter()
        .filter_map(|gate| {
            let gate = &gate.condition_type;
            match conditions.iter().find(|condition| condition.type_ == *gate) {
                None => Some(format!("corresponding condition of pod readiness gate \"{gate}\" does not exist.")),
                Some(condition) if condition.status != "True" => Some(format!(
                    "the status of pod readiness gate \"{gate}\" is not \"True\", but {}",
                    condition.status
                )),
                Some(_) => None,
            }
        })
        .collect();
    if closed.is_empty() { (true, "", String::new()) } else { (false, "ReadinessGatesNotReady", closed.join(", ")) }
}

fn names(life: &Life, wanted: impl Fn(Role, &Run) -> bool) -> Vec<&str> {
    let acts = life.script.acts.iter().zip(&life.runs);
    acts.filter(|(act, run)| wanted(act.role, run)).map(|(act, _)| act.name.as_str()).collect()
}

/// Those of the init containers, and those of the others.
fn container_statuses(pod: &Pod, life: &Life) -> (Vec<ContainerStatus>, Vec<ContainerStatus>) {
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let main = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let mut of_init: Vec<ContainerStatus> =
        init.iter().chain(main).zip(&life.runs).map(|(container, run)| container_status(pod, container, run)).collect();
    let of_main = of_init.split_off(init.len().min(of_init.len()));
    (of_init, of_main)
}

fn container_status(pod: &Pod, container: &Container, run: &Run) -> ContainerStatus {
    let image = container.image.clone().unwrap_or_default();
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let id_of = |n_restarts: i32| format!("containerd://{}", digest(&format!("{uid}/{}/{n_restarts}", container.name)));
    let id = id_of(run.n_restarts);
    let has_run = |ended: &Ended| ended.started.is_some();
    let (container_id, state, is_running) = match &run.state {
        State::Waiting(waiting) => {
            (run.last.as_ref().map(|_| id.clone()), waiting_state(pod, container, *waiting), false)
        }
        State::Running { since } => {
            let running = ContainerStateRunning { started_at: Some(time(*since)) };
            (Some(id.clone()), ContainerState { running: Some(running), ..ContainerState::default() }, true)
        }
        State::Ended(ended) => {
            let id = Some(id.clone()).filter(|_| has_run(ended));
            (id.clone(), ended_state(ended, id), false)
        }
    };
    let last_state = run.last.as_ref().map(|last| {
        let is_waiting = matches!(run.state, State::Waiting(_));
        let n_restarts = if is_waiting { run.n_restarts } else { run.n_restarts.saturating_sub(1) };
        ended_state(last, Some(id_of(n_restarts)))
    });
    let image_id = container_id.as_ref().map(|_| format!("{}@sha256:{}", untagged(&image), digest(&image)));
    let resources =
        container.resources.clone().filter(|resources| resources.requests.is_some() || resources.limits.is_some());
    ContainerStatus {
        allocated_resources: resources.as_ref().and_then(|resources| resources.requests.clone()),
        container_id,
        image_id: image_id.unwrap_or_default(),
        image,
        last_state,
        name: container.name.clone(),
        ready: run.is_ready,
        resources: resources.filter(|_| is_running),
        restart_count: run.n_restarts,
        started: Some(is_running && run.is_started),
        state: Some(state),
        ..ContainerStatus::default()
    }
}

fn waiting_state(pod: &Pod, container: &Container, waiting: Waiting) -> ContainerState {
    let (reason, message) = match waiting {
        Waiting::PodInitializing => ("PodInitializing", None),
        Waiting::ContainerCreating => ("ContainerCreating", None),
        Waiting::CrashLoopBackOff(delay) => (
            "CrashLoopBackOff",
            Some(format!(
                "back-off {} restarting failed container={} pod={}",
                go_duration(delay),
                container.name,
                full_name(pod)
            )),
        ),
    };
    let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

fn ended_state(ended: &Ended, container_id: Option<String>) -> ContainerState {
    let terminated = ContainerStateTerminated {
        container_id,
        exit_code: ended.code,
        finished_at: ended.started.map(|_| time(ended.finished)),
        message: Some(ended.message.to_owned()).filter(|message| !message.is_empty()),
        reason: Some(ended.reason.to_owned()),
        started_at: ended.started.map(time),
        signal: None,
    };
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

/// Whole seconds, as they are stored: a status that is only read back differs in nothing from the one written.
pub(crate) fn time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// `web_default(4a2f…)`: how kubelets name a pod in messages.
pub(crate) fn full_name(pod: &Pod) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let meta = &pod.metadata;
    format!("{}_{}({})", text(&meta.name), text(&meta.namespace), text(&meta.uid))
}

/// `1m30s`, `1.5s`, `300ms`, `0s`: as Go writes a duration that was cut to milliseconds.
pub(crate) fn go_duration(duration: jiff::SignedDuration) -> String {
    let milliseconds = duration.as_millis().max(0);
    if milliseconds == 0 {
        return "0s".to_owned();
    }
    if milliseconds < 1000 {
        return format!("{milliseconds}ms");
    }
    let (hours, minutes) = (milliseconds / 3_600_000, milliseconds / 60_000 % 60);
    let rest = milliseconds % 60_000;
    let fraction = format!("{:03}", rest % 1000);
    let fraction = fraction.trim_end_matches('0');
    let seconds =
        if fraction.is_empty() { format!("{}s", rest / 1000) } else { format!("{}.{fraction}s", rest / 1000) };
    match (hours, minutes) {
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}

fn untagged(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or(image);
    match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => name,
        _ => image,
    }
}

/// Sixty-four hexadecimal digits that follow from a text: it looks like a SHA-256 and promises nothing.
pub(crate) fn digest(text: &str) -> String {
    let mut state: u64 = 0xcbf2_9ce4_8422_2325;
    let mut digits = String::with_capacity(64);
    for salt in 0..4_u8 {
        for byte in text.bytes().chain([salt]) {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        digits.push_str(&format!("{:016x}", mixed ^ (mixed >> 31)));
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::super::life::Images;
    use super::super::script::{Pace, script};
    use super::*;
    use jiff::SignedDuration;
    use serde_json::json;

    #[test]
    fn durations_are_written_as_go_writes_them() {
        let cases = [
            (0, "0s"),
            (300, "300ms"),
            (1000, "1s"),
            (1500, "1.5s"),
            (61_020, "1m1.02s"),
            (300_000, "5m0s"),
            (3_600_000, "1h0m0s"),
        ];
        for (milliseconds, expected) in cases {
            assert_eq!(go_duration(SignedDuration::from_millis(milliseconds)), expected);
        }
    }

    #[test]
    fn conditions_follow_the_pods_life() {
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "u", "generation": 2},
            "spec": {
                "initContainers": [{"name": "i", "image": "x"}],
                "containers": [{"name": "a", "image": "reg:5000/x:1", "readinessProbe": {"initialDelaySeconds": 10}}],
                "readinessGates": [{"conditionType": "gate"}],
            },
            "status": {"conditions": [{"type": "gate", "status": "False"}, {"type": "PodScheduled", "status": "True"}]},
        }))
        .unwrap();
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut life = Life::new(script(&pod, &Pace::brisk()), at(0));
        life.go(at(0));
        let addresses = Addresses { host: "10.0.0.1".to_owned(), pod: "10.128.0.1".to_owned() };
        let mut images = Images::default();
        let mut told = Vec::new();
        for second in [0, 1, 2, 5, 20] {
            life.advance(at(second), &mut images);
            pod.status = Some(living(&pod, &life, &addresses, at(second)));
            let status = pod.status.clone().unwrap();
            let conditions: Vec<String> = status
                .conditions
                .unwrap()
                .iter()
                .map(|condition| {
                    let since = condition.last_transition_time.as_ref().map_or(-1, |time| time.0.as_second());
                    let reason = condition.reason.as_deref().map(|reason| format!(" {reason}")).unwrap_or_default();
                    let message = condition.message.as_deref().map(|text| format!(" ({text})")).unwrap_or_default();
                    format!("  {}={}@{since}{reason}{message}", condition.type_, condition.status)
                })
                .collect();
            told.push(format!("{second}s {} {:?}\n{}", status.phase.unwrap(), status.pod_ip, conditions.join("\n")));
        }
        insta::assert_snapshot!(told.join("\n"));
    }
}
