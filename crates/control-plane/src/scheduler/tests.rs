//! The scheduler at work on the embedded API server, under a virtual clock.

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use serde_json::{Value, json};

use super::testing::{asking, node, over, pod};
use super::{Profile, Scheduler};
use crate::clock::Clock;
use crate::drive::{Controller, Drive, Round};
use crate::request::Request;
use crate::rest::Body;
use crate::server::Server;
use crate::volumes::{self, VolumeOptions};

struct Stage {
    server: Server,
    drive: Drive,
    clock: Clock,
}

impl Stage {
    fn new(seed: u64) -> Self {
        Self::beside(seed, Vec::new())
    }

    /// The scheduler beside others.
    fn beside(seed: u64, mut controllers: Vec<Box<dyn Controller>>) -> Self {
        controllers.push(Box::new(Scheduler::new()));
        Self::of(seed, controllers)
    }

    fn of(seed: u64, controllers: Vec<Box<dyn Controller>>) -> Self {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let server = Server::new(clock.clone(), seed);
        let world = Self { server, drive: Drive::new(controllers, seed), clock };
        // No other controller is here to make the account that pods run as.
        world.ask("POST", "/api/v1/namespaces/default/serviceaccounts", &json!({ "metadata": { "name": "default" } }));
        world
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let answer = self.server.handle(&Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            accept: "application/json".to_owned(),
            content_type: if method == "PATCH" { "application/merge-patch+json" } else { "application/json" }
                .to_owned(),
            user_agent: "test".to_owned(),
            body: Bytes::from(if body.is_null() { String::new() } else { body.to_string() }),
        });
        let bytes = match answer.body {
            Body::Whole(bytes) => bytes.to_vec(),
            Body::Pieces(pieces) => pieces.concat(),
            Body::Watch(_) => panic!("nobody asked for a watch"),
        };
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        assert!((200..300).contains(&answer.status), "{method} {path}: {body}");
        body
    }

    fn get(&self, path: &str) -> Value {
        self.ask("GET", path, &Value::Null)
    }

    fn pod(&self, name: &str) -> Value {
        self.get(&format!("/api/v1/namespaces/default/pods/{name}"))
    }

    fn add_node(&self, name: &str, more: Value) {
        let wanted = node(name, more);
        let mut created = self.ask("POST", "/api/v1/nodes", &wanted);
        // Admission marks a new node as not ready; here nobody would take that back.
        created["spec"] = wanted["spec"].clone();
        self.ask("PUT", &format!("/api/v1/nodes/{name}"), &created);
    }

    fn add_pod(&self, name: &str, more: Value) {
        let mut wanted = pod(name, more);
        wanted["metadata"].as_object_mut().unwrap().remove("uid");
        self.ask("POST", "/api/v1/namespaces/default/pods", &wanted);
    }

    fn settle(&mut self) -> Option<Timestamp> {
        match self.drive.settle(&mut self.server.lock()) {
            Some(Round::Until(then)) => Some(then),
            Some(_) => None,
            None => panic!("the scheduler never settles"),
        }
    }

    /// `Reason: note`, as told about a pod.
    fn told(&self, name: &str) -> Vec<String> {
        let events = self.get("/api/v1/namespaces/default/events");
        let about = |event: &&Value| event["involvedObject"]["name"] == name;
        let line =
            |event: &Value| format!("{}: {}", event["reason"].as_str().unwrap(), event["message"].as_str().unwrap());
        events["items"].as_array().unwrap().iter().filter(about).map(line).collect()
    }
}

fn scheduled(pod: &Value) -> Value {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == "PodScheduled").unwrap_or_default()
}

#[test]
fn a_pod_gets_the_emptier_node_and_an_event_says_so() {
    let mut stage = Stage::new(1);
    stage.add_node("small", json!({"status": {"allocatable": {"cpu": "1"}}}));
    stage.add_node("large", json!({}));
    stage.add_pod("p", asking("500m", "1Gi"));
    stage.settle();
    let pod = stage.pod("p");
    assert_eq!((&pod["spec"]["nodeName"], &scheduled(&pod)["status"]), (&json!("large"), &json!("True")));
    assert_eq!(stage.told("p"), ["Scheduled: Successfully assigned default/p to large"]);
}

#[test]
fn a_pod_that_fits_nowhere_says_why_and_goes_when_a_node_comes() {
    let mut stage = Stage::new(1);
    stage.add_pod("p", asking("2", "1Gi"));
    stage.settle();
    assert_eq!(scheduled(&stage.pod("p"))["message"], "no nodes available to schedule pods");
    stage.add_node("small", json!({"status": {"allocatable": {"cpu": "1"}}}));
    stage.settle();
    let pod = stage.pod("p");
    let message = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, \
         preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    let condition = scheduled(&pod);
    assert_eq!(
        (&condition["status"], &condition["reason"], &condition["message"]),
        (&json!("False"), &json!("Unschedulable"), &json!(message))
    );
    assert_eq!(
        stage.told("p"),
        ["FailedScheduling: no nodes available to schedule pods".to_owned(), format!("FailedScheduling: {message}")]
    );
    let revision = pod["metadata"]["resourceVersion"].clone();
    stage.clock.advance(SignedDuration::from_mins(6));
    stage.settle();
    assert_eq!(stage.pod("p")["metadata"]["resourceVersion"], revision, "the same words are not written twice");
    stage.add_node("large", json!({}));
    stage.settle();
    assert_eq!(stage.pod("p")["spec"]["nodeName"], "large");
}

#[test]
fn a_gate_holds_a_pod_and_another_schedulers_pod_is_left_alone() {
    let mut stage = Stage::new(1);
    stage.add_node("n1", json!({}));
    stage.add_pod("gated", json!({"spec": {"schedulingGates": [{"name": "kerf.test/wait"}]}}));
    stage.add_pod("foreign", json!({"spec": {"schedulerName": "other"}}));
    stage.settle();
    assert_eq!(stage.pod("gated")["spec"]["nodeName"], Value::Null);
    stage.ask("PATCH", "/api/v1/namespaces/default/pods/gated", &json!({"spec": {"schedulingGates": []}}));
    stage.settle();
    assert_eq!(stage.pod("gated")["spec"]["nodeName"], "n1");
    assert_eq!(stage.pod("foreign")["spec"]["nodeName"], Value::Null);
}

#[test]
fn a_profiles_default_constraints_spread_pods_that_somebody_selects_and_no_others() {
    let constraint = |topology_key: &str| TopologySpreadConstraint {
        max_skew: 1,
        topology_key: topology_key.to_owned(),
        when_unsatisfiable: "DoNotSchedule".to_owned(),
        ..TopologySpreadConstraint::default()
    };
    let profile = Profile {
        scheduler_name: "spreading".to_owned(),
        default_constraints: vec![constraint("kubernetes.io/hostname"), constraint("topology.kubernetes.io/zone")],
    };
    let mut stage = Stage::of(1, vec![Box::new(Scheduler::with_profiles(vec![profile]))]);
    stage.add_node("n1", json!({}));
    stage.add_node("n2", json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "b"}}}));
    let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    stage.ask("POST", "/api/v1/namespaces/default/services", &service);
    let pod = |app: &str| json!({"metadata": {"labels": {"app": app}}, "spec": {"schedulerName": "spreading"}});
    // Both nodes would do for each of them, and the second and third do not fit beside the first two of their kind.
    let cordon = |stage: &Stage, is_cordoned: bool| {
        stage.ask("PATCH", "/api/v1/nodes/n2", &json!({"spec": {"unschedulable": is_cordoned}}));
    };
    cordon(&stage, true);
    for name in ["web-1", "web-2"] {
        stage.add_pod(name, pod("web"));
    }
    for name in ["lone-1", "lone-2"] {
        stage.add_pod(name, pod("lone"));
    }
    stage.settle();
    let node_of = |stage: &Stage, name: &str| stage.pod(name)["spec"]["nodeName"].clone();
    assert_eq!((node_of(&stage, "lone-1"), node_of(&stage, "lone-2")), (json!("n1"), json!("n1")));
    let placed: Vec<bool> = ["web-1", "web-2"].iter().map(|name| node_of(&stage, name) == "n1").collect();
    assert_eq!(placed.iter().filter(|is_placed| **is_placed).count(), 1, "the other waits for the other zone");
    cordon(&stage, false);
    stage.settle();
    let mut nodes = [node_of(&stage, "web-1"), node_of(&stage, "web-2")].map(|node| node.to_string());
    nodes.sort();
    assert_eq!(nodes, ["\"n1\"", "\"n2\""]);
}

#[test]
fn an_important_pod_sends_a_lesser_one_away_and_takes_its_place() {
    let mut stage = Stage::new(1);
    stage.add_node("n1", json!({}));
    stage.ask(
        "POST",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        &json!({"metadata": {"name": "high"}, "value": 1000}),
    );
    stage.add_pod("low", asking("3", "1Gi"));
    stage.settle();
    stage.add_pod("high", over(asking("2", "1Gi"), json!({"spec": {"priorityClassName": "high", "priority": 1000}})));
    stage.settle();
    let (low, high) = (stage.pod("low"), stage.pod("high"));
    assert!(low["metadata"]["deletionTimestamp"].is_string(), "{low}");
    assert_eq!(high["status"]["nominatedNodeName"], "n1");
    assert_eq!(scheduled(&high)["message"], "0/1 nodes are available: 1 Insufficient cpu.");
    let uid = high["metadata"]["uid"].as_str().unwrap();
    assert!(
        stage.told("low").contains(&format!("Preempted: Preempted by pod {uid} on node n1")),
        "{:?}",
        stage.told("low")
    );
    stage.ask("DELETE", "/api/v1/namespaces/default/pods/low?gracePeriodSeconds=0", &Value::Null);
    stage.settle();
    assert_eq!(stage.pod("high")["spec"]["nodeName"], "n1");
}

#[test]
fn a_claim_that_waits_for_its_pod_is_told_the_node_and_waited_for() {
    let mut stage = Stage::new(1);
    stage.add_node("n1", json!({}));
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    stage.ask(
        "POST",
        "/apis/storage.k8s.io/v1/storageclasses",
        &json!({"metadata": {"name": "wait"}, "provisioner": "csi.test", "volumeBindingMode": "WaitForFirstConsumer"}),
    );
    stage.ask(
        "POST",
        claims,
        &json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "wait"}}),
    );
    stage.add_pod("p", json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}}));
    let until = stage.settle();
    assert_eq!(until, Some("2026-01-01T00:10:00Z".parse().unwrap()));
    let claim = stage.get(&format!("{claims}/data"));
    assert_eq!(claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"], "n1");
    assert_eq!(
        (&stage.pod("p")["spec"]["nodeName"], &stage.pod("p")["status"]["nominatedNodeName"]),
        (&Value::Null, &json!("n1"))
    );
    stage.ask("POST", "/api/v1/persistentvolumes", &json!({"metadata": {"name": "made"}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "storageClassName": "wait", "csi": {"driver": "csi.test", "volumeHandle": "h"},
        "claimRef": {"namespace": "default", "name": "data"}}}));
    stage.ask("PATCH", &format!("{claims}/data"),
        &json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": "made"}}));
    stage.settle();
    assert_eq!(stage.pod("p")["spec"]["nodeName"], "n1");
}

#[test]
fn volumes_are_made_or_found_where_the_pod_goes() {
    let mut stage = Stage::beside(1, volumes::controllers(&VolumeOptions::default()));
    for (name, zone) in [("n1", "a"), ("n2", "b")] {
        stage.add_node(name, json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}}));
    }
    for (name, provisioner) in [("made", "csi.test"), ("found", "kubernetes.io/no-provisioner")] {
        let class = json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"});
        stage.ask("POST", "/apis/storage.k8s.io/v1/storageclasses", &class);
        let claim = json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": name}});
        stage.ask("POST", "/api/v1/namespaces/default/persistentvolumeclaims", &claim);
    }
    let terms =
        json!([{"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}]}]);
    stage.ask(
        "POST",
        "/api/v1/persistentvolumes",
        &json!({"metadata": {"name": "disk"}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "storageClassName": "found", "local": {"path": "/disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}),
    );
    stage.settle();
    stage.add_pod(
        "p",
        json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "made"}},
        {"name": "w", "persistentVolumeClaim": {"claimName": "found"}}]}}),
    );
    stage.settle();
    for _ in 0..60 {
        stage.clock.advance(SignedDuration::from_secs(1));
        stage.settle();
    }
    assert_eq!(stage.pod("p")["spec"]["nodeName"], "n2", "{:?}", stage.told("p"));
    for name in ["made", "found"] {
        let claim = stage.get(&format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}"));
        assert_eq!(claim["status"]["phase"], "Bound", "{claim}");
    }
}

#[test]
fn one_seed_gives_one_placement() {
    let placements = |seed: u64| -> Vec<Value> {
        let mut stage = Stage::new(seed);
        (0..5).for_each(|n| stage.add_node(&format!("n{n}"), json!({})));
        (0..20).for_each(|n| stage.add_pod(&format!("p{n}"), asking("100m", "64Mi")));
        stage.settle();
        (0..20).map(|n| stage.pod(&format!("p{n}"))["spec"]["nodeName"].clone()).collect()
    };
    assert_eq!(placements(7), placements(7));
    assert!(placements(7).iter().all(Value::is_string));
    assert_ne!(placements(7), placements(8));
}
