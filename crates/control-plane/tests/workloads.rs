//! The workload controllers in a whole cluster under a virtual clock: what people see after a while, and that it then stays so.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

use jiff::{SignedDuration, Timestamp};
use kerf_control_plane::clock::Clock;

use kerf_control_plane::request::Request;
use kerf_control_plane::rest::{Answer, Body};
use kerf_control_plane::{ControlPlane, Options};
use serde_json::{Value, json};

struct Cluster {
    plane: ControlPlane,
}

impl Cluster {
    fn new(n_nodes: usize) -> Self {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let options = Options { clock: Clock::starting_at(start), ..Options::default() };
        let cluster = Self { plane: ControlPlane::in_process(&options) };
        cluster.plane.settle();
        for idx in 0..n_nodes {
            cluster.add_node(&format!("n{idx}"), &json!({}));
        }
        cluster.pass(1);
        cluster
    }

    fn add_node(&self, name: &str, labels: &Value) {
        let size = json!({ "cpu": "8", "memory": "16Gi", "pods": "110" });
        self.create(
            "/api/v1/nodes",
            &json!({ "metadata": { "name": name, "labels": labels, "annotations": { "kwok.x-k8s.io/node": "fake" } },
                     "status": { "allocatable": size, "capacity": size } }),
        );
    }

    fn ask(&self, method: &str, path: &str, content_type: &str, body: &Value) -> (u16, Value) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let request = Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            accept: "application/json".to_owned(),
            content_type: content_type.to_owned(),
            user_agent: "test".to_owned(),
            body: if body.is_null() { Default::default() } else { body.to_string().into() },
        };
        let Answer { status, body, .. } = self.plane.server().handle(&request);
        let bytes = match body {
            Body::Whole(bytes) => bytes.to_vec(),
            Body::Pieces(pieces) => pieces.concat(),
            Body::Watch(_) => panic!("nobody asked for a watch"),
        };
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    #[track_caller]
    fn create(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.ask("POST", path, "application/json", body);
        assert_eq!(status, 201, "{answer}");
        answer
    }

    #[track_caller]
    fn get(&self, path: &str) -> Value {
        let (status, answer) = self.ask("GET", path, "", &Value::Null);
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    #[track_caller]
    fn patch(&self, path: &str, patch: &Value) -> Value {
        let (status, answer) = self.ask("PATCH", path, "application/merge-patch+json", patch);
        assert_eq!(status, 200, "{answer}");
        answer
    }

    #[track_caller]
    fn delete(&self, path: &str) {
        let (status, answer) = self.ask("DELETE", path, "application/json", &json!({}));
        assert!(status < 300, "{answer}");
    }

    fn pass(&self, seconds: i64) {
        self.plane.advance(SignedDuration::from_secs(seconds));
    }

    fn items(&self, path: &str) -> Vec<Value> {
        self.get(path)["items"].as_array().unwrap().clone()
    }

    fn pods(&self) -> Vec<Value> {
        self.items("/api/v1/namespaces/default/pods")
    }

    fn names(&self, path: &str) -> Vec<String> {
        self.items(path).iter().map(|item| text(&item["metadata"]["name"])).collect()
    }

    /// The events about an object: `reason: message`, in the order in which they were first told.
    fn events(&self, kind: &str, name: &str) -> Vec<String> {
        let mut events: Vec<_> = self
            .items("/api/v1/namespaces/default/events")
            .into_iter()
            .filter(|event| event["involvedObject"]["kind"] == kind && event["involvedObject"]["name"] == name)
            .collect();
        events.sort_by_key(|event| {
            (text(&event["firstTimestamp"]), text(&event["metadata"]["resourceVersion"]).parse::<u64>().unwrap())
        });
        events.iter().map(|event| format!("{}: {}", text(&event["reason"]), text(&event["message"]))).collect()
    }

    /// Nothing is written any more, for a long while, but for what kubelets do.
    #[track_caller]
    fn expect_quiet(&self) {
        let snapshot = || {
            let mut all = Vec::new();
            for path in [
                "/apis/apps/v1/deployments",
                "/apis/apps/v1/replicasets",
                "/apis/apps/v1/statefulsets",
                "/apis/apps/v1/daemonsets",
                "/apis/apps/v1/controllerrevisions",
                "/apis/batch/v1/jobs",
                "/apis/batch/v1/cronjobs",
                "/apis/policy/v1/poddisruptionbudgets",
                "/api/v1/replicationcontrollers",
                "/api/v1/configmaps",
                "/api/v1/serviceaccounts",
                "/api/v1/pods",
                "/api/v1/events",
            ] {
                all.extend(self.items(path));
            }
            // The scheduler tells again and again of pods that it cannot place.
            all.retain(|object| object["reportingComponent"] != "default-scheduler");
            all
        };
        let before = snapshot();
        self.pass(600);
        for (before, after) in before.iter().zip(snapshot()) {
            assert_eq!(*before, after);
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn template(image: &str) -> Value {
    json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": image }] } })
}

fn workload(name: &str, extra: &Value) -> Value {
    let mut object = json!({ "metadata": { "name": name }, "spec": {
        "selector": { "matchLabels": { "app": "web" } }, "template": template("app:1") } });
    for (key, value) in extra.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

fn conditions(object: &Value) -> Vec<String> {
    let mut all: Vec<_> = object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| format!("{}={} {}", text(&c["type"]), text(&c["status"]), text(&c["reason"])))
        .collect();
    all.sort();
    all
}

#[test]
fn a_deployment_rolls_out_updates_scales_and_rolls_back() {
    let cluster = Cluster::new(3);
    cluster.create(DEPLOYMENTS, &workload("web", &json!({ "replicas": 3 })));
    cluster.pass(30);
    let web = format!("{DEPLOYMENTS}/web");
    let deployment = cluster.get(&web);
    assert_eq!(
        conditions(&deployment),
        ["Available=True MinimumReplicasAvailable", "Progressing=True NewReplicaSetAvailable"]
    );
    let status = &deployment["status"];
    for count in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        assert_eq!(status[count], 3, "{count}: {status}");
    }
    assert_eq!(status["terminatingReplicas"], 0);
    assert_eq!(deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    let first = cluster.names(SETS).remove(0);
    assert_eq!(
        cluster.events("Deployment", "web"),
        [format!("ScalingReplicaSet: Scaled up replica set {first} from 0 to 3")]
    );
    cluster.expect_quiet();

    cluster.patch(&web, &json!({ "spec": { "template": template("app:2") } }));
    cluster.pass(60);
    let deployment = cluster.get(&web);
    assert_eq!(deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
    assert_eq!(deployment["status"]["updatedReplicas"], 3);
    let second = cluster.names(SETS).into_iter().find(|name| *name != first).unwrap();
    assert_eq!(
        cluster.events("Deployment", "web")[1..],
        [
            format!("ScalingReplicaSet: Scaled up replica set {second} from 0 to 1"),
            format!("ScalingReplicaSet: Scaled down replica set {first} from 3 to 2"),
            format!("ScalingReplicaSet: Scaled up replica set {second} from 1 to 2"),
            format!("ScalingReplicaSet: Scaled down replica set {first} from 2 to 1"),
            format!("ScalingReplicaSet: Scaled up replica set {second} from 2 to 3"),
            format!("ScalingReplicaSet: Scaled down replica set {first} from 1 to 0"),
        ]
    );
    cluster.expect_quiet();

    cluster.patch(&format!("{web}/scale"), &json!({ "spec": { "replicas": 5 } }));
    cluster.pass(30);
    assert_eq!(cluster.get(&web)["status"]["readyReplicas"], 5);
    cluster.patch(&web, &json!({ "spec": { "template": template("app:1") } }));
    cluster.pass(60);
    let back = cluster.get(&format!("{SETS}/{first}"));
    assert_eq!(back["spec"]["replicas"], 5);
    assert_eq!(back["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
    assert_eq!(back["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"], "1");
    assert_eq!(cluster.pods().len(), 5);
    cluster.expect_quiet();
}

#[test]
fn recreate_waits_for_the_last_old_pod() {
    let cluster = Cluster::new(1);
    let web = format!("{DEPLOYMENTS}/web");
    cluster.create(DEPLOYMENTS, &workload("web", &json!({ "replicas": 2, "strategy": { "type": "Recreate" } })));
    cluster.pass(30);
    cluster.patch(&web, &json!({ "spec": { "template": template("app:2") } }));
    cluster.plane.settle();
    assert!(cluster.pods().iter().all(|pod| pod["metadata"]["deletionTimestamp"].is_string()));
    assert_eq!(cluster.names(SETS).len(), 1);
    cluster.pass(60);
    assert_eq!(cluster.names(SETS).len(), 2);
    assert!(cluster.pods().iter().all(|pod| pod["spec"]["containers"][0]["image"] == "app:2"));
    assert_eq!(cluster.get(&web)["status"]["availableReplicas"], 2);
    cluster.expect_quiet();
}

#[test]
fn a_stuck_rollout_is_told_after_its_deadline_and_a_paused_one_waits() {
    let cluster = Cluster::new(1);
    let web = format!("{DEPLOYMENTS}/web");
    let spec = json!({ "replicas": 2, "progressDeadlineSeconds": 60, "minReadySeconds": 5 });
    cluster.create(DEPLOYMENTS, &workload("web", &spec));
    cluster.pass(30);
    assert_eq!(cluster.get(&web)["status"]["availableReplicas"], 2);
    cluster.patch(&web, &json!({ "spec": { "paused": true, "template": template("app:2") } }));
    cluster.pass(30);
    assert_eq!(cluster.names(SETS).len(), 1);
    assert!(conditions(&cluster.get(&web)).contains(&"Progressing=Unknown DeploymentPaused".to_owned()));
    let mut never = template("app:2");
    never["metadata"]["annotations"] = json!({ "kerf.dev/ready-after": "never" });
    cluster.patch(&web, &json!({ "spec": { "paused": false, "template": never } }));
    cluster.pass(30);
    assert!(conditions(&cluster.get(&web)).contains(&"Progressing=True ReplicaSetUpdated".to_owned()));
    cluster.pass(90);
    assert!(conditions(&cluster.get(&web)).contains(&"Progressing=False ProgressDeadlineExceeded".to_owned()));
    assert_eq!(cluster.get(&web)["status"]["readyReplicas"], 2);
    cluster.expect_quiet();
}

#[test]
fn history_beyond_its_limit_is_deleted() {
    let cluster = Cluster::new(1);
    let web = format!("{DEPLOYMENTS}/web");
    cluster.create(DEPLOYMENTS, &workload("web", &json!({ "replicas": 1, "revisionHistoryLimit": 1 })));
    for version in 2..6 {
        cluster.pass(30);
        cluster.patch(&web, &json!({ "spec": { "template": template(&format!("app:{version}")) } }));
    }
    cluster.pass(60);
    let mut revisions: Vec<_> = cluster
        .items(SETS)
        .iter()
        .map(|set| text(&set["metadata"]["annotations"]["deployment.kubernetes.io/revision"]))
        .collect();
    revisions.sort();
    assert_eq!(revisions, ["4", "5"]);
    cluster.expect_quiet();
}

#[test]
fn a_replica_set_adopts_releases_and_replaces_pods() {
    let cluster = Cluster::new(1);
    let pods = "/api/v1/namespaces/default/pods";
    let mut lone = template("app:1");
    lone["metadata"]["name"] = json!("lone");
    cluster.create(pods, &lone);
    cluster.create(SETS, &workload("web", &json!({ "replicas": 2 })));
    cluster.pass(20);
    assert_eq!(cluster.pods().len(), 2);
    let lone = cluster.get(&format!("{pods}/lone"));
    assert_eq!(lone["metadata"]["ownerReferences"][0]["name"], "web");
    cluster.patch(&format!("{pods}/lone"), &json!({ "metadata": { "labels": { "app": "other" } } }));
    cluster.pass(20);
    assert_eq!(cluster.pods().len(), 3);
    assert!(cluster.get(&format!("{pods}/lone"))["metadata"]["ownerReferences"].is_null());
    let owned = cluster.names(pods).into_iter().find(|name| name.starts_with("web-")).unwrap();
    cluster.delete(&format!("{pods}/{owned}"));
    cluster.plane.settle();
    let status = cluster.get(&format!("{SETS}/web"))["status"].clone();
    assert_eq!((&status["replicas"], &status["terminatingReplicas"]), (&json!(2), &json!(1)), "{status}");
    cluster.pass(60);
    let status = cluster.get(&format!("{SETS}/web"))["status"].clone();
    assert_eq!((&status["readyReplicas"], &status["terminatingReplicas"]), (&json!(2), &json!(0)), "{status}");
    cluster.expect_quiet();
}

#[test]
fn a_set_that_may_not_create_pods_says_so_and_recovers() {
    let cluster = Cluster::new(1);
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    cluster.create(quotas, &json!({ "metadata": { "name": "few" }, "spec": { "hard": { "pods": "1" } } }));
    cluster.create(SETS, &workload("web", &json!({ "replicas": 2 })));
    cluster.pass(60);
    let set = cluster.get(&format!("{SETS}/web"));
    assert_eq!(conditions(&set), ["ReplicaFailure=True FailedCreate"], "{set}");
    let events = cluster.events("ReplicaSet", "web");
    assert!(events.iter().any(|event| event.starts_with("FailedCreate: Error creating: pods \"web-")), "{events:?}");
    cluster.delete(&format!("{quotas}/few"));
    cluster.pass(1000);
    let set = cluster.get(&format!("{SETS}/web"));
    assert_eq!((conditions(&set), &set["status"]["readyReplicas"]), (Vec::new(), &json!(2)));
    cluster.expect_quiet();
}

#[test]
fn a_stateful_set_comes_in_order_keeps_its_storage_and_updates_from_the_end() {
    let cluster = Cluster::new(1);
    let sets = "/apis/apps/v1/namespaces/default/statefulsets";
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let spec = json!({ "replicas": 3, "serviceName": "web" });
    cluster.create(sets, &workload("web", &spec));
    cluster.plane.settle();
    assert_eq!(cluster.names("/api/v1/namespaces/default/pods"), ["web-0"]);
    cluster.pass(60);
    assert_eq!(cluster.names("/api/v1/namespaces/default/pods"), ["web-0", "web-1", "web-2"]);
    let set = cluster.get(&format!("{sets}/web"));
    let revision = set["status"]["currentRevision"].clone();
    assert_eq!(
        (&set["status"]["readyReplicas"], &set["status"]["updateRevision"], &set["status"]["collisionCount"]),
        (&json!(3), &revision, &json!(0))
    );
    assert_eq!(
        cluster.events("StatefulSet", "web")[0],
        "SuccessfulCreate: Create Pod web-0 in StatefulSet web successful"
    );
    cluster.expect_quiet();

    let update = json!({ "spec": { "template": template("app:2"),
                                   "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 1 } } } });
    cluster.patch(&format!("{sets}/web"), &update);
    cluster.pass(90);
    let images: Vec<_> = cluster.pods().iter().map(|pod| text(&pod["spec"]["containers"][0]["image"])).collect();
    assert_eq!(images, ["app:1", "app:2", "app:2"]);
    let status = cluster.get(&format!("{sets}/web"))["status"].clone();
    assert_eq!((&status["currentReplicas"], &status["updatedReplicas"]), (&json!(1), &json!(2)), "{status}");
    cluster.patch(
        &format!("{sets}/web"),
        &json!({ "spec": { "updateStrategy": { "rollingUpdate": { "partition": 0 } }, "replicas": 1 } }),
    );
    cluster.pass(90);
    assert_eq!(cluster.names("/api/v1/namespaces/default/pods"), ["web-0"]);
    let status = cluster.get(&format!("{sets}/web"))["status"].clone();
    assert_eq!(status["currentRevision"], status["updateRevision"]);
    assert_ne!(status["currentRevision"], revision);
    assert_eq!(cluster.names("/apis/apps/v1/namespaces/default/controllerrevisions").len(), 2);
    assert!(cluster.names(claims).is_empty());
    cluster.expect_quiet();
}

#[test]
fn claims_of_a_stateful_set_stay_or_go_as_its_policy_says() {
    let cluster = Cluster::new(1);
    let sets = "/apis/apps/v1/namespaces/default/statefulsets";
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let template = json!([{ "metadata": { "name": "data" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } }, "storageClassName": "none" } }]);
    let spec = json!({ "replicas": 2, "serviceName": "web", "podManagementPolicy": "Parallel",
        "volumeClaimTemplates": template,
        "persistentVolumeClaimRetentionPolicy": { "whenScaled": "Delete", "whenDeleted": "Retain" } });
    cluster.create(sets, &workload("web", &spec));
    cluster.pass(10);
    assert_eq!(cluster.names(claims), ["data-web-0", "data-web-1"]);
    assert_eq!(cluster.get(&format!("{claims}/data-web-0"))["metadata"]["labels"]["app"], "web");
    cluster.patch(&format!("{sets}/web"), &json!({ "spec": { "replicas": 1 } }));
    cluster.pass(60);
    assert_eq!(cluster.names(claims), ["data-web-0"]);
    cluster.expect_quiet();
}

#[test]
fn a_daemon_set_covers_the_nodes_it_may_and_updates_them_in_turn() {
    let cluster = Cluster::new(2);
    let sets = "/apis/apps/v1/namespaces/default/daemonsets";
    cluster.create(sets, &workload("web", &json!({})));
    cluster.pass(30);
    let status = cluster.get(&format!("{sets}/web"))["status"].clone();
    for count in
        ["desiredNumberScheduled", "currentNumberScheduled", "numberReady", "numberAvailable", "updatedNumberScheduled"]
    {
        assert_eq!(status[count], 2, "{count}: {status}");
    }
    cluster.add_node("late", &json!({}));
    cluster.pass(30);
    let mut nodes: Vec<_> = cluster.pods().iter().map(|pod| text(&pod["spec"]["nodeName"])).collect();
    nodes.sort();
    assert_eq!(nodes, ["late", "n0", "n1"]);
    cluster.expect_quiet();

    cluster.patch(&format!("{sets}/web"), &json!({ "spec": { "template": template("app:2") } }));
    cluster.plane.settle();
    let n_leaving = cluster.pods().iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_string()).count();
    assert_eq!(n_leaving, 1);
    cluster.pass(120);
    let status = cluster.get(&format!("{sets}/web"))["status"].clone();
    assert_eq!((&status["updatedNumberScheduled"], &status["numberAvailable"]), (&json!(3), &json!(3)), "{status}");
    assert!(cluster.pods().iter().all(|pod| pod["spec"]["containers"][0]["image"] == "app:2"));

    let selector = json!({ "spec": { "template": { "spec": { "nodeSelector": { "disk": "ssd" } } } } });
    cluster.patch(&format!("{sets}/web"), &selector);
    cluster.pass(60);
    assert!(cluster.pods().is_empty());
    cluster.patch("/api/v1/nodes/n0", &json!({ "metadata": { "labels": { "disk": "ssd" } } }));
    cluster.pass(60);
    assert_eq!(cluster.pods().len(), 1);
    cluster.expect_quiet();
}

#[test]
fn a_surging_daemon_set_starts_the_new_pod_before_it_stops_the_old_one() {
    let cluster = Cluster::new(2);
    let sets = "/apis/apps/v1/namespaces/default/daemonsets";
    let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } });
    cluster.create(sets, &workload("web", &json!({ "updateStrategy": strategy })));
    cluster.pass(30);
    cluster.patch(&format!("{sets}/web"), &json!({ "spec": { "template": template("app:2") } }));
    cluster.plane.settle();
    assert_eq!(cluster.pods().len(), 3);
    for _ in 0..60 {
        cluster.pass(1);
        let available = cluster.get(&format!("{sets}/web"))["status"]["numberAvailable"].clone();
        assert_eq!(available, 2);
    }
    assert_eq!(cluster.pods().len(), 2);
    assert!(cluster.pods().iter().all(|pod| pod["spec"]["containers"][0]["image"] == "app:2"));
    cluster.expect_quiet();
}

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

fn job(name: &str, spec: &Value, annotations: &Value) -> Value {
    let mut object = json!({ "metadata": { "name": name }, "spec": { "template": {
        "metadata": { "annotations": annotations },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "app:1" }] } } } });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object
}

#[test]
fn a_job_runs_to_completion_and_is_deleted_when_its_time_has_come() {
    let cluster = Cluster::new(1);
    let spec = json!({ "completions": 3, "parallelism": 2, "ttlSecondsAfterFinished": 100 });
    cluster.create(JOBS, &job("sum", &spec, &json!({})));
    cluster.plane.settle();
    let status = cluster.get(&format!("{JOBS}/sum"))["status"].clone();
    assert_eq!(
        (&status["active"], &status["ready"], &status["terminating"]),
        (&json!(2), &json!(0), &json!(0)),
        "{status}"
    );
    cluster.pass(60);
    let done = cluster.get(&format!("{JOBS}/sum"));
    assert_eq!(conditions(&done), ["Complete=True CompletionsReached", "SuccessCriteriaMet=True CompletionsReached"]);
    assert_eq!(done["status"]["succeeded"], 3);
    assert!(done["status"]["completionTime"].is_string() && done["status"]["active"].is_null());
    assert!(cluster.pods().iter().all(|pod| pod["metadata"]["finalizers"].is_null()));
    let events = cluster.events("Job", "sum");
    assert_eq!((events.len(), events.last().unwrap().as_str()), (4, "Completed: Job completed"));
    cluster.pass(120);
    assert!(cluster.names(JOBS).is_empty() && cluster.pods().is_empty());
    cluster.expect_quiet();
}

#[test]
fn an_indexed_job_counts_by_index_and_a_failing_one_gives_up() {
    let cluster = Cluster::new(1);
    let spec = json!({ "completions": 3, "parallelism": 3, "completionMode": "Indexed" });
    cluster.create(JOBS, &job("parts", &spec, &json!({})));
    let failing = json!({ "backoffLimit": 1 });
    cluster.create(JOBS, &job("bad", &failing, &json!({ "kerf.dev/exit-code": "3" })));
    cluster.pass(120);
    let done = cluster.get(&format!("{JOBS}/parts"));
    assert_eq!((&done["status"]["completedIndexes"], &done["status"]["succeeded"]), (&json!("0-2"), &json!(3)));
    let bad = cluster.get(&format!("{JOBS}/bad"));
    assert_eq!(conditions(&bad), ["Failed=True BackoffLimitExceeded", "FailureTarget=True BackoffLimitExceeded"]);
    assert_eq!(bad["status"]["failed"], 2, "{bad}");
    let events = cluster.events("Job", "bad");
    assert_eq!(events.last().unwrap(), "BackoffLimitExceeded: Job has reached the specified backoff limit");
    cluster.expect_quiet();
}

#[test]
fn a_job_that_takes_too_long_or_is_suspended_loses_its_pods() {
    let cluster = Cluster::new(1);
    let long = json!({ "kerf.dev/run-for": "1h" });
    cluster.create(JOBS, &job("late", &json!({ "activeDeadlineSeconds": 30 }), &long));
    cluster.create(JOBS, &job("held", &json!({ "suspend": true }), &long));
    cluster.pass(10);
    assert_eq!(cluster.pods().len(), 1);
    assert_eq!(conditions(&cluster.get(&format!("{JOBS}/held"))), ["Suspended=True JobSuspended"]);
    cluster.pass(60);
    let late = cluster.get(&format!("{JOBS}/late"));
    assert_eq!(conditions(&late), ["Failed=True DeadlineExceeded", "FailureTarget=True DeadlineExceeded"]);
    cluster.patch(&format!("{JOBS}/held"), &json!({ "spec": { "suspend": false } }));
    cluster.pass(10);
    let held = cluster.get(&format!("{JOBS}/held"));
    assert_eq!(
        (conditions(&held), &held["status"]["active"]),
        (vec!["Suspended=False JobResumed".to_owned()], &json!(1))
    );
    let events = cluster.events("Job", "held");
    assert_eq!((events[0].as_str(), events[2].as_str()), ("Suspended: Job suspended", "Resumed: Job resumed"));
    // A Job that is deleted without a word about its pods leaves them, without its finalizer.
    cluster.delete(&format!("{JOBS}/held"));
    cluster.pass(60);
    let left = cluster.pods().into_iter().find(|pod| pod["status"]["phase"] == "Running").unwrap();
    assert!(left["metadata"]["finalizers"].is_null() && left["metadata"]["ownerReferences"].is_null(), "{left}");
    cluster.expect_quiet();
}

#[test]
fn a_cron_job_starts_jobs_on_time_and_keeps_so_many() {
    let cluster = Cluster::new(1);
    let cron_jobs = "/apis/batch/v1/namespaces/default/cronjobs";
    let spec = job("x", &json!({}), &json!({}))["spec"].clone();
    cluster.create(
        cron_jobs,
        &json!({ "metadata": { "name": "tick" }, "spec": {
            "schedule": "*/10 * * * *", "successfulJobsHistoryLimit": 2, "jobTemplate": { "spec": spec } } }),
    );
    cluster.pass(590);
    assert!(cluster.names(JOBS).is_empty());
    cluster.pass(60);
    assert_eq!(cluster.names(JOBS), ["tick-29453770"]);
    let events = cluster.events("CronJob", "tick");
    assert_eq!(events[0], "SuccessfulCreate: Created job tick-29453770");
    assert!(events.contains(&"SawCompletedJob: Saw completed job: tick-29453770, condition: Complete".to_owned()));
    cluster.pass(3600);
    assert_eq!(cluster.names(JOBS).len(), 2);
    let status = cluster.get(&format!("{cron_jobs}/tick"))["status"].clone();
    assert_eq!(status["lastScheduleTime"], "2026-01-01T01:10:00Z");
    assert!(status["active"].is_null() && status["lastSuccessfulTime"].is_string(), "{status}");
}

#[test]
fn a_budget_knows_how_many_disruptions_it_allows() {
    let cluster = Cluster::new(2);
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let spec = json!({ "maxUnavailable": 1, "selector": { "matchLabels": { "app": "web" } } });
    cluster.create(budgets, &json!({ "metadata": { "name": "web" }, "spec": spec }));
    cluster.plane.settle();
    let status = cluster.get(&format!("{budgets}/web"))["status"].clone();
    assert_eq!((&status["disruptionsAllowed"], &status["expectedPods"]), (&json!(0), &json!(0)), "{status}");
    cluster.create(DEPLOYMENTS, &workload("web", &json!({ "replicas": 3 })));
    cluster.pass(60);
    let budget = cluster.get(&format!("{budgets}/web"));
    let status = &budget["status"];
    for (count, expected) in
        [("expectedPods", 3), ("desiredHealthy", 2), ("currentHealthy", 3), ("disruptionsAllowed", 1)]
    {
        assert_eq!(status[count], expected, "{count}: {status}");
    }
    assert_eq!(conditions(&budget), ["DisruptionAllowed=True SufficientPods"]);
    let pod = text(&cluster.pods()[0]["metadata"]["name"]);
    let evict = |pod: &str| {
        let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod } });
        cluster.ask("POST", &format!("/api/v1/namespaces/default/pods/{pod}/eviction"), "application/json", &eviction).0
    };
    assert_eq!(evict(&pod), 201);
    cluster.plane.settle();
    let budget = cluster.get(&format!("{budgets}/web"));
    assert_eq!(conditions(&budget), ["DisruptionAllowed=False InsufficientPods"]);
    let is_staying =
        |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null() && pod["status"]["phase"] == "Running";
    let other = text(&cluster.pods().iter().find(is_staying).unwrap()["metadata"]["name"]);
    assert_eq!(evict(&other), 429);
    cluster.pass(60);
    assert_eq!(cluster.get(&format!("{budgets}/web"))["status"]["disruptionsAllowed"], 1);
    cluster.expect_quiet();
}

#[test]
fn every_namespace_gets_its_account_and_its_certificate() {
    let cluster = Cluster::new(0);
    cluster.create("/api/v1/namespaces", &json!({ "metadata": { "name": "team" } }));
    cluster.plane.settle();
    assert_eq!(cluster.names("/api/v1/namespaces/team/serviceaccounts"), ["default"]);
    cluster.delete("/api/v1/namespaces/team/configmaps/kube-root-ca.crt");
    cluster.plane.settle();
    assert_eq!(cluster.names("/api/v1/namespaces/team/configmaps"), ["kube-root-ca.crt"]);
    cluster.expect_quiet();
}
