//! Machines, nodes and pods on the embedded control plane.

use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use k8s_openapi::api::storage::v1::CSINode;
use serde_json::json;

use super::rehearsal::{Rehearsal, machine};
use super::{KubeletOptions, Machine, PODS_PER_ROUND, Pace, Trouble};

#[test]
fn a_machine_boots_registers_and_becomes_ready() {
    let stage = Rehearsal::new();
    stage.boot("other", "a");
    stage.plane.machines().boot(Machine {
        boot_delay: SignedDuration::from_secs(30),
        ready_delay: SignedDuration::from_secs(15),
        taints: vec![Taint {
            key: "karpenter.sh/unregistered".to_owned(),
            effect: "NoExecute".to_owned(),
            ..Taint::default()
        }],
        ..machine("new", "a")
    });
    stage.pass(29);
    assert!(stage.find::<Node>("new").is_none());
    stage.pass(1);
    assert_eq!(stage.taints("new"), "karpenter.sh/unregistered:NoExecute not-ready:NoExecute not-ready:NoSchedule");
    stage.pass(15);
    assert_eq!(stage.taints("new"), "karpenter.sh/unregistered:NoExecute");
    let node: Node = stage.get("new");
    assert_eq!(node.spec.unwrap().provider_id.as_deref(), Some("sim:///new"));
    let status = node.status.unwrap();
    let conditions: Vec<String> = status
        .conditions
        .unwrap()
        .iter()
        .map(|one| {
            format!("{} {} {}: {}", one.type_, one.status, one.reason.as_ref().unwrap(), one.message.as_ref().unwrap())
        })
        .collect();
    let mut labels: Vec<String> =
        node.metadata.labels.unwrap().iter().map(|(key, value)| format!("{key}={value}")).collect();
    labels.sort();
    insta::assert_snapshot!(format!("{}\n\n{}\n\n{}", conditions.join("\n"), labels.join("\n"), stage.events("new")));
    let uid = node.metadata.uid;
    let csi_node: CSINode = stage.get("new");
    assert_eq!(csi_node.metadata.owner_references.unwrap().first().map(|owner| owner.uid.clone()), uid);
}

#[test]
fn a_flood_of_pods_lets_leases_be_renewed_and_others_have_their_turn() {
    let stage = Rehearsal::new();
    stage.plane.machines().boot(Machine { max_pods: Some(5000), ..machine("here", "a") });
    stage.pass(1);
    let n_pods = 3 * PODS_PER_ROUND;
    for n in 0..n_pods {
        let spec = json!({"nodeName": "here", "containers": [{"name": "main", "image": "app:1"}]});
        let pod = json!({"metadata": {"name": format!("p{n}"), "namespace": "default"}, "spec": spec});
        stage.with(|hands| hands.create::<Pod>(&serde_json::from_value(pod).unwrap())).unwrap();
    }
    let clock = stage.plane.server().lock().clock.clone();
    clock.advance(SignedDuration::from_secs(10));
    stage.plane.round();
    let lease: Lease = stage.with(|hands| hands.get("kube-node-lease", "here")).unwrap();
    assert_eq!(lease.spec.unwrap().renew_time.unwrap().0, clock.now());
    let n_begun = || {
        let pods: Vec<Pod> = stage.with(|hands| hands.list("default"));
        pods.iter().filter(|pod| pod.status.as_ref().is_some_and(|status| status.start_time.is_some())).count()
    };
    assert_eq!(n_begun(), PODS_PER_ROUND);
    stage.plane.settle();
    assert_eq!(n_begun(), n_pods);
}

#[test]
fn heartbeats_are_all_that_a_quiet_cluster_writes() {
    let stage = Rehearsal::new();
    for n in 0..20 {
        stage.plane.machines().boot(machine(&format!("n{n}"), "a"));
    }
    stage.pass(5);
    for n in 0..40 {
        stage.pod(&format!("p{n}"), json!({}));
    }
    stage.pass(60);
    assert_eq!(stage.seen("p39"), "Running ready");
    let before = stage.revision();
    stage.pass(600);
    // Twenty leases every ten seconds, twenty statuses every five minutes.
    assert_eq!(stage.revision() - before, 20 * 60 + 20 * 2);
    let lease: Lease = stage.with(|hands| hands.get("kube-node-lease", "n7")).unwrap();
    let spec = lease.spec.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds), (Some("n7"), Some(40)));
}

#[test]
fn a_pod_is_pulled_started_and_ready_in_that_order() {
    let stage = Rehearsal::new();
    stage.boot("n", "a");
    stage.pod("web", json!({
        "nodeName": "n",
        "initContainers": [{"name": "init", "image": "tool:1"}],
        "containers": [{"name": "main", "image": "app:1", "readinessProbe": {"initialDelaySeconds": 5, "tcpSocket": {"port": 80}}}],
    }));
    let mut seen = Vec::new();
    for _ in 0..12 {
        seen.push(stage.seen("web"));
        stage.pass(1);
    }
    seen.dedup();
    assert_eq!(seen, ["Pending", "Running", "Running ready"]);
    let pod: Pod = stage.get("web");
    let status = serde_json::to_string_pretty(&pod.status.unwrap()).unwrap();
    let uid = pod.metadata.uid.unwrap();
    insta::assert_snapshot!(format!("{}\n\n{}", status.replace(&uid, "<uid>"), stage.events("web")));
}

#[test]
fn a_pod_that_does_not_fit_is_refused_by_the_kubelet() {
    let stage = Rehearsal::new();
    stage.boot("n", "a");
    let asks = |cpu: &str| json!({"nodeName": "n", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]});
    stage.pod("first", asks("3"));
    stage.pass(5);
    stage.pod("second", asks("2"));
    stage.pod("elsewhere", json!({"nodeName": "n", "nodeSelector": {"zone": "b"}}));
    stage.pass(5);
    assert_eq!(stage.seen("first"), "Running ready");
    assert_eq!(stage.seen("second"), "Failed OutOfcpu");
    assert_eq!(stage.seen("elsewhere"), "Failed NodeAffinity");
    let message = "Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000";
    let said = stage.get::<Pod>("second").status.unwrap().message;
    assert_eq!(said, Some(format!("Pod was rejected: {message}")));
    assert!(stage.events("second").contains(&format!("Warning OutOfcpu (kubelet) {message}")));
    // What a finished pod had is free again.
    stage.delete::<Pod>("first");
    stage.pass(5);
    stage.pod("third", asks("4"));
    stage.pass(5);
    assert_eq!(stage.seen("third"), "Running ready");
    for n in 0..10 {
        stage.pod(&format!("small-{n}"), json!({"nodeName": "n"}));
    }
    stage.pass(5);
    assert_eq!((stage.seen("small-8").as_str(), stage.seen("small-9").as_str()), ("Running ready", "Failed OutOfpods"));
}

#[test]
fn a_deleted_pod_ends_within_its_grace() {
    // annotations, grace -> what is seen after 0, 2 and 12 seconds
    let cases = [
        (json!({}), 30, ["Running ready deleting", "gone", "gone"]),
        (json!({"kerf.dev/stops-after": "10s"}), 30, ["Running ready deleting", "Running ready deleting", "gone"]),
        (json!({"kerf.dev/stops-after": "60s"}), 5, ["Running ready deleting", "Running ready deleting", "gone"]),
        (json!({}), 0, ["gone", "gone", "gone"]),
    ];
    for (annotations, grace, expected) in cases {
        let stage = Rehearsal::new();
        stage.boot("n", "a");
        stage.annotated_pod(
            "web",
            annotations.clone(),
            json!({"nodeName": "n", "terminationGracePeriodSeconds": grace}),
        );
        stage.pass(5);
        stage.delete::<Pod>("web");
        let mut seen = Vec::new();
        for wait in [0, 2, 10] {
            stage.pass(wait);
            seen.push(stage.seen("web"));
        }
        assert_eq!(seen, expected, "{annotations} {grace}");
        if grace > 0 {
            assert!(stage.events("web").contains("Normal Killing (kubelet) Stopping container main"));
        }
    }
}

#[test]
fn a_finished_pod_shows_how_it_ended() {
    let cases = [
        (json!({"kerf.dev/run-for": "10s"}), "Never", "Succeeded"),
        (json!({"kerf.dev/run-for": "10s", "kerf.dev/exit-code": "3"}), "Never", "Failed"),
        (json!({"kerf.dev/run-for": "10s", "kerf.dev/exit-code": "3"}), "OnFailure", "Running"),
        (json!({}), "Never", "Running ready"),
    ];
    for (annotations, policy, expected) in cases {
        let stage = Rehearsal::new();
        stage.boot("n", "a");
        stage.annotated_pod("task", annotations.clone(), json!({"nodeName": "n", "restartPolicy": policy}));
        stage.pass(5);
        assert_eq!(stage.seen("task"), "Running ready");
        stage.pass(20);
        assert_eq!(stage.seen("task"), expected, "{annotations} {policy}");
    }
}

#[test]
fn a_node_made_by_hand_is_run_if_it_is_marked() {
    let stage = Rehearsal::with_options(KubeletOptions { pace: Pace::instant(), ..KubeletOptions::default() });
    stage.create::<Node>(json!({"metadata": {"name": "plain"}}));
    stage.create::<Node>(json!({
        "metadata": {"name": "fake", "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "5"}},
    }));
    stage.pass(61);
    let unreachable = "unreachable:NoExecute unreachable:NoSchedule";
    assert_eq!((stage.taints("plain").as_str(), stage.taints("fake").as_str()), (unreachable, ""));
    let status = stage.get::<Node>("fake").status.unwrap();
    assert_eq!(status.capacity, status.allocatable);
    assert_eq!(status.capacity.unwrap().get("cpu").map(|cpu| cpu.0.as_str()), Some("2"));
    stage.pod("web", json!({"nodeName": "fake"}));
    assert_eq!(stage.seen("web"), "Running ready");
    stage.delete::<Node>("fake");
    stage.pass(60);
    assert_eq!(stage.seen("web"), "gone");
}

#[test]
fn a_machine_in_trouble_says_so() {
    let stage = Rehearsal::new();
    stage.boot("n", "a");
    stage.boot("other", "a");
    for (trouble, expected) in [
        (Trouble::MemoryPressure, "memory-pressure:NoSchedule"),
        (Trouble::DiskPressure, "disk-pressure:NoSchedule"),
        (Trouble::PidPressure, "pid-pressure:NoSchedule"),
        (Trouble::NotReady, "not-ready:NoExecute not-ready:NoSchedule"),
    ] {
        stage.plane.machines().trouble("n", trouble, true);
        stage.pass(1);
        assert_eq!(stage.taints("n"), expected);
        stage.plane.machines().trouble("n", trouble, false);
        stage.pass(1);
        assert_eq!(stage.taints("n"), "");
    }
}
