//! Nodes come, run pods, fall ill and go: what the node controllers make of it.

use serde_json::{Value, json};

use crate::expect::names;
use crate::stage::{Stage, cluster};

crate::tests!(
    a_marked_node_is_run_and_says_that_it_is_ready,
    a_node_has_a_lease_that_goes_on,
    the_old_names_of_labels_follow_the_new_ones,
    taints_follow_conditions,
    a_cordoned_node_is_tainted,
    a_new_node_and_one_that_goes_are_told,
    a_bound_pod_runs_and_is_ready,
    a_pod_of_a_job_completes,
    a_deleted_pod_leaves_its_node,
    pods_that_do_not_tolerate_a_taint_must_go,
    a_pod_may_tolerate_a_taint_for_a_while,
    the_condition_of_an_evicted_pod_says_why,
    a_silent_node_is_unknown_after_its_grace,
);

const NODES: &str = "/api/v1/nodes";

/// A node that nobody runs: its conditions are the test's own.
fn silent_node(stage: &Stage, name: &str, labels: Value) -> String {
    let name = stage.unique(name);
    let now = now();
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "Test", "message": "set by a test",
            "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"conditions": [condition("Ready", "True"), condition("MemoryPressure", "False")]},
    });
    stage.create_for_now(NODES, &node);
    format!("{NODES}/{name}")
}

fn now() -> String {
    let now = k8s_openapi::jiff::Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn set_condition(stage: &Stage, node: &str, kind: &str, status: &str) {
    let condition = json!({"type": kind, "status": status, "reason": "Test", "message": "set by a test",
        "lastHeartbeatTime": now(), "lastTransitionTime": now()});
    stage.patch(&format!("{node}/status"), "strategic-merge", &json!({"status": {"conditions": [condition]}}));
}

/// The taints of one effect, without their common prefix.
fn taints(node: &Value, effect: &str) -> Vec<String> {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let of_effect = taints.filter(|taint| taint["effect"] == effect);
    of_effect.map(|taint| taint["key"].as_str().unwrap().trim_start_matches("node.kubernetes.io/").to_owned()).collect()
}

#[track_caller]
fn wait_for_taints(stage: &Stage, node: &str, expected: &[&str]) {
    stage.wait_for(&format!("the taints {expected:?}"), || taints(&stage.read(node), "NoSchedule") == expected);
}

fn condition(object: &Value, kind: &str) -> Value {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == kind).cloned().unwrap_or_default()
}

fn is_ready(object: &Value) -> bool {
    condition(object, "Ready")["status"] == "True"
}

fn pod_on(node: &str, name: &str, spec: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "nodeName": node, "containers": [{"name": "web", "image": "web:1"}]}});
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    pod
}

/// A pod that is running and ready when this returns. Gives back its path.
#[track_caller]
fn run(stage: &Stage, pod: &Value) -> String {
    stage.create(&stage.pods(), pod);
    let path = stage.object("v1", "pods", pod["metadata"]["name"].as_str().unwrap());
    stage.wait_for("a pod to be ready", || is_ready(&stage.read(&path)));
    path
}

/// What was told about an object, by reason, as `kind component message`.
fn told(stage: &Stage, namespace: &str, name: &str, reason: &str) -> Vec<String> {
    let selector = format!("fieldSelector=involvedObject.name={name},reason={reason}");
    let events = stage.read(&format!("/api/v1/namespaces/{namespace}/events?{selector}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let events = events["items"].as_array().cloned().unwrap_or_default();
    let line = |event: &Value| {
        format!("{} {} {}", text(&event["type"]), text(&event["source"]["component"]), text(&event["message"]))
    };
    events.iter().map(line).collect()
}

#[track_caller]
fn wait_told(stage: &Stage, namespace: &str, name: &str, reason: &str, expected: &str) {
    stage.wait_for(&format!("{reason}: {expected}"), || {
        told(stage, namespace, name, reason).iter().any(|line| line == expected)
    });
}

fn a_marked_node_is_run_and_says_that_it_is_ready(stage: &Stage) {
    let name = stage.add_node("n", |_| {});
    let node = stage.read(&format!("{NODES}/{name}"));
    let ready = condition(&node, "Ready");
    assert_eq!(
        (&ready["reason"], &ready["message"]),
        (&json!("KubeletReady"), &json!("kubelet is posting ready status"))
    );
    for (kind, reason, message) in [
        ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ] {
        let condition = condition(&node, kind);
        let said = (&condition["status"], &condition["reason"], &condition["message"]);
        assert_eq!(said, (&json!("False"), &json!(reason), &json!(message)), "{kind}");
    }
    assert_eq!(node["status"]["capacity"]["cpu"], "8");
    assert_eq!(node["status"]["nodeInfo"]["operatingSystem"], "linux");
}

fn a_node_has_a_lease_that_goes_on(stage: &Stage) {
    let name = stage.add_node("n", |_| {});
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}");
    let renewed = || stage.client.get(&path).unwrap().body["spec"]["renewTime"].as_str().map(str::to_owned);
    let first = stage.wait_some("a lease", renewed);
    let lease = stage.read(&path);
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
    let owner = &lease["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("Node"), &json!(name)));
    stage.wait_for("the lease to be renewed", || renewed().is_some_and(|now| now > first));
}

fn the_old_names_of_labels_follow_the_new_ones(stage: &Stage) {
    let node = silent_node(stage, "n", json!({"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"}));
    stage.wait_for("the old labels", || {
        let labels = &stage.read(&node)["metadata"]["labels"];
        labels["beta.kubernetes.io/os"] == "linux" && labels["beta.kubernetes.io/arch"] == "arm64"
    });
}

fn taints_follow_conditions(stage: &Stage) {
    let node = silent_node(stage, "n", json!({}));
    wait_for_taints(stage, &node, &[]);
    for (kind, status, taint, well) in [
        ("MemoryPressure", "True", "memory-pressure", "False"),
        ("DiskPressure", "True", "disk-pressure", "False"),
        ("PIDPressure", "True", "pid-pressure", "False"),
        ("NetworkUnavailable", "True", "network-unavailable", "False"),
        ("Ready", "False", "not-ready", "True"),
        ("Ready", "Unknown", "unreachable", "True"),
    ] {
        set_condition(stage, &node, kind, status);
        wait_for_taints(stage, &node, &[taint]);
        set_condition(stage, &node, kind, well);
        wait_for_taints(stage, &node, &[]);
    }
}

fn a_cordoned_node_is_tainted(stage: &Stage) {
    let node = silent_node(stage, "n", json!({}));
    wait_for_taints(stage, &node, &[]);
    stage.patch(&node, "merge", &json!({"spec": {"unschedulable": true}}));
    wait_for_taints(stage, &node, &["unschedulable"]);
    assert!(stage.read(&node)["spec"]["taints"][0]["timeAdded"].is_string());
    stage.patch(&node, "merge", &json!({"spec": {"unschedulable": null}}));
    wait_for_taints(stage, &node, &[]);
}

fn a_new_node_and_one_that_goes_are_told(stage: &Stage) {
    let name = stage.add_node("n", |_| {});
    let expected = format!("Normal node-controller Node {name} event: Registered Node {name} in Controller");
    wait_told(stage, "default", &name, "RegisteredNode", &expected);
    stage.delete(&format!("{NODES}/{name}"));
    let expected = format!("Normal node-controller Node {name} event: Removing Node {name} from Controller");
    wait_told(stage, "default", &name, "RemovingNode", &expected);
}

fn a_bound_pod_runs_and_is_ready(stage: &Stage) {
    let node = stage.add_node("n", |_| {});
    let init =
        json!([{"name": "init", "image": "tool:1"}, {"name": "side", "image": "side:1", "restartPolicy": "Always"}]);
    let path = run(stage, &pod_on(&node, "web", json!({"initContainers": init})));
    let pod = stage.read(&path);
    let status = &pod["status"];
    assert_eq!(status["phase"], "Running");
    for kind in ["Initialized", "Ready", "ContainersReady"] {
        assert_eq!(condition(&pod, kind)["status"], "True", "{kind}");
    }
    assert!(status["startTime"].is_string());
    let container = &status["containerStatuses"][0];
    assert_eq!(
        (&container["name"], &container["ready"], &container["restartCount"]),
        (&json!("web"), &json!(true), &json!(0))
    );
    assert!(container["state"]["running"]["startedAt"].is_string());
    let init = &status["initContainerStatuses"];
    assert_eq!((&init[0]["state"]["terminated"]["reason"], &init[0]["ready"]), (&json!("Completed"), &json!(true)));
    assert!(init[1]["state"]["running"]["startedAt"].is_string());
}

fn a_pod_of_a_job_completes(stage: &Stage) {
    let node = stage.add_node("n", |_| {});
    let template = json!({"spec": {"nodeName": node, "restartPolicy": "Never", "containers": [{"name": "task", "image": "task:1"}]}});
    let job =
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": {"template": template}});
    stage.create(&stage.at("batch/v1", "jobs"), &job);
    let pods = format!("{}?labelSelector=job-name=job", stage.pods());
    let pod = stage.wait_some("a pod that succeeded", || {
        let pod = stage.read(&pods)["items"][0].clone();
        (pod["status"]["phase"] == "Succeeded").then_some(pod)
    });
    let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(0), &json!("Completed")));
    // Others run on, whatever their restart policy.
    let path = run(stage, &pod_on(&node, "alone", json!({"restartPolicy": "Never"})));
    assert_eq!(stage.read(&path)["status"]["phase"], "Running");
}

fn a_deleted_pod_leaves_its_node(stage: &Stage) {
    let node = stage.add_node("n", |_| {});
    let path = run(stage, &pod_on(&node, "web", json!({})));
    stage.delete(&path);
    stage.wait_for("the pod to be gone", || stage.is_gone(&path));
}

fn taint_no_execute(stage: &Stage, node: &str) {
    let path = format!("{NODES}/{node}");
    let mut taints = stage.read(&path)["spec"]["taints"].clone();
    taints.as_array_mut().unwrap().push(json!({"key": "kerf.test/out", "effect": "NoExecute"}));
    stage.patch(&path, "merge", &json!({"spec": {"taints": taints}}));
}

fn pods_that_do_not_tolerate_a_taint_must_go(stage: &Stage) {
    let node = stage.add_node("n", |_| {});
    let stays = json!([{"key": "kerf.test/out", "operator": "Exists"}, stage.toleration()]);
    let goes = run(stage, &pod_on(&node, "goes", json!({})));
    let stays = run(stage, &pod_on(&node, "stays", json!({"tolerations": stays})));
    taint_no_execute(stage, &node);
    stage.wait_for("the pod to be gone", || stage.is_gone(&goes));
    assert!(is_ready(&stage.read(&stays)));
    let expected = format!("Normal taint-eviction-controller Marking for deletion Pod {}/goes", stage.namespace);
    wait_told(stage, &stage.namespace, "goes", "TaintManagerEviction", &expected);
    assert_eq!(names(&stage.read(&stage.pods())), ["stays"]);
}

fn a_pod_may_tolerate_a_taint_for_a_while(stage: &Stage) {
    let node = stage.add_node("n", |_| {});
    let tolerates = |seconds: u32| json!([{"key": "kerf.test/out", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
    let soon = run(stage, &pod_on(&node, "soon", json!({"tolerations": tolerates(2)})));
    let later = run(stage, &pod_on(&node, "later", json!({"tolerations": tolerates(600)})));
    let began = std::time::Instant::now();
    taint_no_execute(stage, &node);
    stage.wait_for("the pod to be gone", || stage.is_gone(&soon));
    assert!(began.elapsed() >= std::time::Duration::from_secs(2));
    assert!(is_ready(&stage.read(&later)));
    // Without the taint nobody has to go.
    let path = format!("{NODES}/{node}");
    stage.patch(&path, "merge", &json!({"spec": {"taints": null}}));
    let expected = format!("Normal taint-eviction-controller Cancelling deletion of Pod {}/later", stage.namespace);
    wait_told(stage, &stage.namespace, "later", "TaintManagerEviction", &expected);
}

fn the_condition_of_an_evicted_pod_says_why(stage: &Stage) {
    let node = stage.add_node("n", |_| {});
    let mut pod = pod_on(&node, "held", json!({}));
    pod["metadata"]["finalizers"] = json!(["kerf.test/hold"]);
    let path = run(stage, &pod);
    taint_no_execute(stage, &node);
    let pod = stage.wait_some("the pod to be on its way out", || {
        let pod = stage.read(&path);
        pod["metadata"]["deletionTimestamp"].is_string().then_some(pod)
    });
    let why = condition(&pod, "DisruptionTarget");
    assert_eq!(
        (&why["status"], &why["reason"], &why["message"]),
        (&json!("True"), &json!("DeletionByTaintManager"), &json!("Taint manager: deleting due to NoExecute taint"))
    );
    stage.patch(&path, "merge", &json!({"metadata": {"finalizers": null}}));
    stage.wait_for("the pod to be gone", || stage.is_gone(&path));
}

/// The slowest of these tests: the grace is fifty seconds on both stages.
fn a_silent_node_is_unknown_after_its_grace(stage: &Stage) {
    // Somebody must be well, or the controller doubts itself.
    stage.add_node("well", |_| {});
    let began = std::time::Instant::now();
    let node = silent_node(stage, "n", json!({}));
    let is_unknown = || condition(&stage.read(&node), "Ready")["status"] == "Unknown";
    while began.elapsed() < std::time::Duration::from_secs(75) && !is_unknown() {
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    assert!(is_unknown());
    assert!(began.elapsed() >= std::time::Duration::from_secs(45), "{:?}", began.elapsed());
    let found = stage.read(&node);
    let ready = condition(&found, "Ready");
    assert_eq!(
        (&ready["reason"], &ready["message"]),
        (&json!("NodeStatusUnknown"), &json!("Kubelet stopped posting node status."))
    );
    let never = condition(&found, "DiskPressure");
    assert_eq!(
        (&never["status"], &never["reason"], &never["message"]),
        (&json!("Unknown"), &json!("NodeStatusNeverUpdated"), &json!("Kubelet never posted node status."))
    );
    wait_for_taints(stage, &node, &["unreachable"]);
    stage.wait_for("the taint that evicts", || taints(&stage.read(&node), "NoExecute") == ["unreachable"]);
    let name = stage.unique("n");
    let expected = format!("Normal node-controller Node {name} status is now: NodeNotReady");
    wait_told(stage, "default", &name, "NodeNotReady", &expected);
    assert!(names(&stage.read(&cluster("v1", "nodes"))).contains(&name));
}
