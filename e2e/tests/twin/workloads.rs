//! What the controllers of workloads make of their objects: pods, counts, conditions, events.

use regex_lite::Regex;
use serde_json::{Value, json};

use crate::stage::{NODE_OF, Stage};

crate::tests!(
    a_deployment_becomes_available_and_tells_every_step,
    a_replica_set_of_a_deployment_carries_its_hash_and_revision,
    a_new_template_rolls_out_one_by_one,
    going_back_to_an_old_template_gives_its_set_a_new_revision,
    a_paused_deployment_says_so_and_waits,
    a_deployment_that_recreates_stops_everything_first,
    a_rollout_without_progress_runs_out_of_time,
    scaling_a_deployment_scales_its_set,
    old_sets_beyond_the_limit_are_deleted,
    pods_that_may_not_be_created_are_told_of_until_they_may,
    a_deployment_resized_amid_a_rollout_keeps_its_proportions,
    a_replica_set_adopts_what_it_selects_and_releases_what_it_does_not,
    the_cheapest_pod_is_given_up_first,
    a_replication_controller_keeps_its_pods,
    a_stateful_set_creates_its_pods_in_order,
    a_stateful_set_updates_from_its_end_to_the_partition,
    a_stateful_set_keeps_a_claim_for_each_pod,
    a_parallel_stateful_set_deletes_claims_when_it_shrinks,
    a_daemon_set_runs_on_each_of_its_nodes,
    the_pod_of_a_daemon_set_is_made_for_its_node,
    a_daemon_set_replaces_its_pods_and_keeps_revisions,
    a_daemon_set_on_delete_waits_for_the_deletion,
    a_budget_of_a_deployment_counts_its_replicas,
    a_budget_of_daemons_cannot_be_calculated,
    a_budget_without_pods_allows_nothing,
    every_namespace_has_an_account_and_a_certificate,
);

/// A template whose pods run on this test's nodes.
pub(crate) fn template(stage: &Stage, image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {
        "containers": [{"name": "web", "image": image}],
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {NODE_OF: stage.namespace},
        "tolerations": [stage.toleration()]}})
}

/// A workload with that template and a few more fields.
fn workload(stage: &Stage, kind: &str, name: &str, more: &Value) -> Value {
    let mut object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"app": "web"}}, "template": template(stage, "web:1")}});
    for (key, value) in more.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Without the times in it.
pub(crate) fn timeless(value: &Value) -> Value {
    const TIMES: [&str; 8] = [
        "lastTransitionTime",
        "lastUpdateTime",
        "lastProbeTime",
        "startTime",
        "completionTime",
        "lastScheduleTime",
        "lastSuccessfulTime",
        "creationTimestamp",
    ];
    match value {
        Value::Array(items) => items.iter().map(timeless).collect(),
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| !TIMES.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), timeless(value)))
            .collect(),
        other => other.clone(),
    }
}

/// Each condition as `type=status reason: message`.
pub(crate) fn conditions(object: &Value) -> Vec<String> {
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    let told = |c: &Value| {
        format!("{}={} {}: {}", text(&c["type"]), text(&c["status"]), text(&c["reason"]), text(&c["message"]))
    };
    let mut all: Vec<_> = all.map(told).collect();
    all.sort();
    all
}

pub(crate) fn items(stage: &Stage, path: &str) -> Vec<Value> {
    stage.read(path)["items"].as_array().unwrap().clone()
}

/// What was told about an object, each as `type reason: message`, the first first.
pub(crate) fn events(stage: &Stage, kind: &str, name: &str) -> Vec<String> {
    let query = format!("fieldSelector=involvedObject.kind={kind},involvedObject.name={name}");
    let mut all = items(stage, &format!("{}?{query}", stage.at("v1", "events")));
    all.sort_by_key(|event| text(&event["metadata"]["resourceVersion"]).parse::<u64>().unwrap());
    let told = |e: &Value| format!("{} {}: {}", text(&e["type"]), text(&e["reason"]), text(&e["message"]));
    all.iter().map(told).collect()
}

/// Waits until these are all the events about an object. Those that repeat are not for this.
#[track_caller]
fn expect_events(stage: &Stage, kind: &str, name: &str, expected: &[String]) {
    let mut seen = Vec::new();
    for _ in 0..200 {
        seen = events(stage, kind, name);
        if seen.len() >= expected.len() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(seen, expected);
}

#[track_caller]
pub(crate) fn wait_status(stage: &Stage, path: &str, counts: &[(&str, i64)]) -> Value {
    let mut last = Value::Null;
    let what = format!("{path} to have {counts:?}");
    stage.wait_some(&what, || {
        last = stage.read(path);
        let is_there = |(name, count): &(&str, i64)| last["status"][name].as_i64().unwrap_or(0) == *count;
        let is_observed = last["status"]["observedGeneration"].is_null()
            || last["status"]["observedGeneration"] == last["metadata"]["generation"];
        (is_observed && counts.iter().all(is_there)).then(|| last.clone())
    })
}

#[track_caller]
pub(crate) fn wait_condition(stage: &Stage, path: &str, start: &str) -> Value {
    stage.wait_some(&format!("{path} to say {start}"), || {
        let object = stage.read(path);
        conditions(&object).iter().any(|told| told.starts_with(start)).then_some(object)
    })
}

fn deployment(stage: &Stage, more: &Value) -> String {
    stage.create(&stage.at("apps/v1", "deployments"), &workload(stage, "Deployment", "web", more));
    stage.object("apps/v1", "deployments", "web")
}

fn sets(stage: &Stage) -> Vec<Value> {
    items(stage, &stage.at("apps/v1", "replicasets"))
}

/// The name of the set with this revision.
#[track_caller]
fn set_of_revision(stage: &Stage, revision: &str) -> String {
    stage.wait_some(&format!("a set of revision {revision}"), || {
        let annotation = "deployment.kubernetes.io/revision";
        let set = sets(stage).into_iter().find(|set| set["metadata"]["annotations"][annotation] == revision)?;
        Some(text(&set["metadata"]["name"]))
    })
}

const AVAILABLE: [(&str, i64); 4] =
    [("replicas", 3), ("updatedReplicas", 3), ("readyReplicas", 3), ("availableReplicas", 3)];

fn a_deployment_becomes_available_and_tells_every_step(stage: &Stage) {
    stage.add_node("a", |_| {});
    let web = deployment(stage, &json!({"replicas": 3}));
    wait_status(stage, &web, &AVAILABLE);
    let set = set_of_revision(stage, "1");
    let done = wait_condition(stage, &web, "Progressing=True NewReplicaSetAvailable");
    let mut status = timeless(&done["status"]);
    status["conditions"].as_array_mut().unwrap().sort_by_key(|condition| text(&condition["type"]));
    assert_eq!(
        status,
        json!({
            "observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3,
            "terminatingReplicas": 0,
            "conditions": [
                {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable",
                    "message": "Deployment has minimum availability."},
                {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable",
                    "message": format!("ReplicaSet \"{set}\" has successfully progressed.")},
            ],
        })
    );
    assert_eq!(done["metadata"]["annotations"], json!({"deployment.kubernetes.io/revision": "1"}));
    let told = format!("Normal ScalingReplicaSet: Scaled up replica set {set} from 0 to 3");
    expect_events(stage, "Deployment", "web", &[told]);
    let mut created: Vec<String> = items(stage, &stage.pods())
        .iter()
        .map(|pod| format!("Normal SuccessfulCreate: Created pod: {}", text(&pod["metadata"]["name"])))
        .collect();
    created.sort();
    let mut told = events(stage, "ReplicaSet", &set);
    told.sort();
    assert_eq!(told, created);
}

fn a_replica_set_of_a_deployment_carries_its_hash_and_revision(stage: &Stage) {
    let mut body = workload(stage, "Deployment", "web", &json!({"replicas": 2, "minReadySeconds": 3}));
    body["metadata"]["annotations"] = json!({"team": "blue"});
    let web = stage.create(&stage.at("apps/v1", "deployments"), &body);
    let name = set_of_revision(stage, "1");
    let set = wait_status(stage, &stage.object("apps/v1", "replicasets", &name), &[("replicas", 2)]);
    let hash = text(&set["metadata"]["labels"]["pod-template-hash"]);
    assert!(Regex::new("^[bcdfghjklmnpqrstvwxz2456789]{6,10}$").unwrap().is_match(&hash), "{hash}");
    assert_eq!(name, format!("web-{hash}"));
    let labels = json!({"app": "web", "pod-template-hash": hash});
    assert_eq!(set["metadata"]["labels"], labels);
    assert_eq!(
        set["metadata"]["annotations"],
        json!({"team": "blue", "deployment.kubernetes.io/desired-replicas": "2",
            "deployment.kubernetes.io/max-replicas": "3", "deployment.kubernetes.io/revision": "1"})
    );
    assert_eq!(
        set["metadata"]["ownerReferences"],
        json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": web["metadata"]["uid"],
            "controller": true, "blockOwnerDeletion": true}])
    );
    assert_eq!((&set["spec"]["selector"]["matchLabels"], &set["spec"]["minReadySeconds"]), (&labels, &json!(3)));
    assert_eq!(
        timeless(&set["status"]),
        json!({"replicas": 2, "fullyLabeledReplicas": 2, "terminatingReplicas": 0, "observedGeneration": 1})
    );
    for pod in items(stage, &stage.pods()) {
        assert_eq!(pod["metadata"]["labels"], labels);
        assert_eq!(pod["metadata"]["generateName"], format!("{name}-"));
        let suffix = Regex::new(&format!("^{name}-[bcdfghjklmnpqrstvwxz2456789]{{5}}$")).unwrap();
        assert!(suffix.is_match(&text(&pod["metadata"]["name"])), "{pod}");
        assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], set["metadata"]["uid"]);
    }
    wait_condition(
        stage,
        &stage.object("apps/v1", "deployments", "web"),
        "Available=False MinimumReplicasUnavailable: \
        Deployment does not have minimum availability.",
    );
}

fn a_new_template_rolls_out_one_by_one(stage: &Stage) {
    stage.add_node("a", |_| {});
    let web = deployment(stage, &json!({"replicas": 3}));
    wait_status(stage, &web, &AVAILABLE);
    let one = set_of_revision(stage, "1");
    stage.patch(&web, "merge", &json!({"spec": {"template": template(stage, "web:2")}}));
    wait_status(stage, &web, &AVAILABLE);
    let two = set_of_revision(stage, "2");
    let scaled = |way: &str, set: &str, from: i32, to: i32| {
        format!("Normal ScalingReplicaSet: Scaled {way} replica set {set} from {from} to {to}")
    };
    let expected = [
        scaled("up", &one, 0, 3),
        scaled("up", &two, 0, 1),
        scaled("down", &one, 3, 2),
        scaled("up", &two, 1, 2),
        scaled("down", &one, 2, 1),
        scaled("up", &two, 2, 3),
        scaled("down", &one, 1, 0),
    ];
    expect_events(stage, "Deployment", "web", &expected);
    let old = stage.read(&stage.object("apps/v1", "replicasets", &one));
    assert_eq!((&old["spec"]["replicas"], &old["status"]["replicas"]), (&json!(0), &json!(0)));
    let web = wait_condition(stage, &web, "Progressing=True NewReplicaSetAvailable");
    assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
    assert!(conditions(&web)[1].ends_with(&format!("ReplicaSet \"{two}\" has successfully progressed.")));
}

fn going_back_to_an_old_template_gives_its_set_a_new_revision(stage: &Stage) {
    let web = deployment(stage, &json!({"replicas": 0}));
    let one = set_of_revision(stage, "1");
    stage.patch(&web, "merge", &json!({"spec": {"template": template(stage, "web:2")}}));
    set_of_revision(stage, "2");
    stage.patch(&web, "merge", &json!({"spec": {"template": template(stage, "web:1")}}));
    assert_eq!(set_of_revision(stage, "3"), one);
    let set = stage.read(&stage.object("apps/v1", "replicasets", &one));
    assert_eq!(set["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"], "1");
    stage.wait_for("the deployment to have the revision", || {
        stage.read(&web)["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"
    });
    assert_eq!(sets(stage).len(), 2);
}

fn a_paused_deployment_says_so_and_waits(stage: &Stage) {
    let web = deployment(stage, &json!({"replicas": 1}));
    set_of_revision(stage, "1");
    stage.patch(&web, "merge", &json!({"spec": {"paused": true, "template": template(stage, "web:2")}}));
    wait_condition(stage, &web, "Progressing=Unknown DeploymentPaused: Deployment is paused");
    stage.patch(&web, "merge", &json!({"spec": {"replicas": 2}}));
    wait_status(stage, &stage.object("apps/v1", "replicasets", &set_of_revision(stage, "1")), &[("replicas", 2)]);
    assert_eq!(sets(stage).len(), 1);
    stage.patch(&web, "merge", &json!({"spec": {"paused": false}}));
    set_of_revision(stage, "2");
    wait_condition(stage, &web, "Progressing=True ");
}

fn a_deployment_that_recreates_stops_everything_first(stage: &Stage) {
    stage.add_node("a", |_| {});
    let web = deployment(stage, &json!({"replicas": 3, "strategy": {"type": "Recreate"}}));
    wait_status(stage, &web, &AVAILABLE);
    let one = set_of_revision(stage, "1");
    stage.patch(&web, "merge", &json!({"spec": {"template": template(stage, "web:2")}}));
    let two = set_of_revision(stage, "2");
    wait_status(stage, &web, &AVAILABLE);
    let expected = [
        format!("Normal ScalingReplicaSet: Scaled up replica set {one} from 0 to 3"),
        format!("Normal ScalingReplicaSet: Scaled down replica set {one} from 3 to 0"),
        format!("Normal ScalingReplicaSet: Scaled up replica set {two} from 0 to 3"),
    ];
    expect_events(stage, "Deployment", "web", &expected);
}

fn a_rollout_without_progress_runs_out_of_time(stage: &Stage) {
    // Nothing can run: there is no node.
    let web = deployment(stage, &json!({"replicas": 1, "progressDeadlineSeconds": 2}));
    let set = set_of_revision(stage, "1");
    let late = wait_condition(stage, &web, "Progressing=False");
    assert_eq!(
        conditions(&late),
        [
            "Available=False MinimumReplicasUnavailable: Deployment does not have minimum availability.".to_owned(),
            format!("Progressing=False ProgressDeadlineExceeded: ReplicaSet \"{set}\" has timed out progressing."),
        ]
    );
    assert_eq!(late["status"]["unavailableReplicas"], 1);
}

fn scaling_a_deployment_scales_its_set(stage: &Stage) {
    let web = deployment(stage, &json!({"replicas": 1}));
    let set = set_of_revision(stage, "1");
    stage.patch(&format!("{web}/scale"), "merge", &json!({"spec": {"replicas": 4}}));
    wait_status(stage, &web, &[("replicas", 4), ("unavailableReplicas", 4)]);
    stage.patch(&format!("{web}/scale"), "merge", &json!({"spec": {"replicas": 0}}));
    wait_status(stage, &web, &[("replicas", 0), ("unavailableReplicas", 0)]);
    let scaled = |way: &str, from: i32, to: i32| {
        format!("Normal ScalingReplicaSet: Scaled {way} replica set {set} from {from} to {to}")
    };
    expect_events(stage, "Deployment", "web", &[scaled("up", 0, 1), scaled("up", 1, 4), scaled("down", 4, 0)]);
    let set = stage.read(&stage.object("apps/v1", "replicasets", &set));
    assert_eq!(set["metadata"]["annotations"]["deployment.kubernetes.io/desired-replicas"], "0");
}

fn old_sets_beyond_the_limit_are_deleted(stage: &Stage) {
    let web = deployment(stage, &json!({"replicas": 0, "revisionHistoryLimit": 1}));
    for version in 2..5 {
        set_of_revision(stage, &(version - 1).to_string());
        stage.patch(&web, "merge", &json!({"spec": {"template": template(stage, &format!("web:{version}"))}}));
    }
    let newest = set_of_revision(stage, "4");
    stage.wait_for("two sets to be left", || sets(stage).len() == 2);
    assert!(sets(stage).iter().any(|set| set["metadata"]["name"] == newest.as_str()));
    set_of_revision(stage, "3");
}

fn pods_that_may_not_be_created_are_told_of_until_they_may(stage: &Stage) {
    let mut body = workload(stage, "Deployment", "web", &json!({"replicas": 1}));
    body["spec"]["template"]["spec"]["serviceAccountName"] = json!("nobody");
    stage.create(&stage.at("apps/v1", "deployments"), &body);
    let web = stage.object("apps/v1", "deployments", "web");
    let set = set_of_revision(stage, "1");
    let why = format!(
        "pods \"{set}-\" is forbidden: error looking up service account {}/nobody: serviceaccount \"nobody\" not found",
        stage.namespace
    );
    let failing = format!("ReplicaFailure=True FailedCreate: {why}");
    let path = stage.object("apps/v1", "replicasets", &set);
    assert_eq!(conditions(&wait_condition(stage, &path, "ReplicaFailure")), std::slice::from_ref(&failing));
    assert!(conditions(&wait_condition(stage, &web, "ReplicaFailure")).contains(&failing));
    stage.wait_for("the trouble to be told", || {
        events(stage, "ReplicaSet", &set).contains(&format!("Warning FailedCreate: Error creating: {why}"))
    });
    stage.create(&stage.at("v1", "serviceaccounts"), &json!({"metadata": {"name": "nobody"}}));
    let set = wait_status(stage, &path, &[("replicas", 1)]);
    assert_eq!(conditions(&set), Vec::<String>::new());
    stage.wait_for("the deployment to be out of trouble", || {
        !conditions(&stage.read(&web)).iter().any(|told| told.starts_with("ReplicaFailure"))
    });
}

fn a_deployment_resized_amid_a_rollout_keeps_its_proportions(stage: &Stage) {
    stage.add_node("a", |_| {});
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}});
    let web = deployment(stage, &json!({"replicas": 10, "strategy": strategy}));
    wait_status(stage, &web, &[("availableReplicas", 10)]);
    // No node takes the new ones.
    let mut stuck = template(stage, "web:2");
    stuck["spec"]["nodeSelector"]["no"] = json!("where");
    stage.patch(&web, "merge", &json!({"spec": {"template": stuck}}));
    let sizes = |stage: &Stage, one: i64, two: i64| {
        for (revision, size) in [("1", one), ("2", two)] {
            let path = stage.object("apps/v1", "replicasets", &set_of_revision(stage, revision));
            wait_status(stage, &path, &[("replicas", size)]);
        }
    };
    sizes(stage, 8, 5);
    stage.patch(&format!("{web}/scale"), "merge", &json!({"spec": {"replicas": 15}}));
    sizes(stage, 11, 7);
    stage.patch(&format!("{web}/scale"), "merge", &json!({"spec": {"replicas": 5}}));
    // Both shrink in proportion, and then the rollout goes on: three of five have to be available.
    sizes(stage, 3, 5);
    let (one, two) = (set_of_revision(stage, "1"), set_of_revision(stage, "2"));
    let told = events(stage, "Deployment", "web");
    for (way, set, from, to) in [("up", &one, 8, 11), ("up", &two, 5, 7), ("down", &one, 11, 5), ("down", &two, 7, 3)] {
        let expected = format!("Normal ScalingReplicaSet: Scaled {way} replica set {set} from {from} to {to}");
        assert!(told.contains(&expected), "{expected} in {told:?}");
    }
}

fn a_replica_set_adopts_what_it_selects_and_releases_what_it_does_not(stage: &Stage) {
    let mut lone = template(stage, "web:1");
    lone["metadata"]["name"] = json!("lone");
    stage.create(&stage.pods(), &lone);
    let path = stage.at("apps/v1", "replicasets");
    let set = stage.create(&path, &workload(stage, "ReplicaSet", "web", &json!({"replicas": 2})));
    let web = format!("{path}/web");
    wait_status(stage, &web, &[("replicas", 2)]);
    let lone = format!("{}/lone", stage.pods());
    assert_eq!(
        stage.read(&lone)["metadata"]["ownerReferences"],
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": set["metadata"]["uid"],
            "controller": true, "blockOwnerDeletion": true}])
    );
    stage.patch(&lone, "merge", &json!({"metadata": {"labels": {"app": "other"}}}));
    stage.wait_for("the pod to be released and replaced", || {
        let is_free = stage.read(&lone)["metadata"]["ownerReferences"].is_null();
        is_free && items(stage, &stage.pods()).len() == 3
    });
    wait_status(stage, &web, &[("replicas", 2), ("fullyLabeledReplicas", 2)]);
}

fn the_cheapest_pod_is_given_up_first(stage: &Stage) {
    let path = stage.at("apps/v1", "replicasets");
    stage.create(&path, &workload(stage, "ReplicaSet", "web", &json!({"replicas": 3})));
    wait_status(stage, &format!("{path}/web"), &[("replicas", 3)]);
    let names: Vec<_> = items(stage, &stage.pods()).iter().map(|pod| text(&pod["metadata"]["name"])).collect();
    for (name, cost) in names.iter().zip(["5", "-3", "7"]) {
        let annotation = json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}}});
        stage.patch(&format!("{}/{name}", stage.pods()), "merge", &annotation);
    }
    stage.patch(&format!("{path}/web"), "merge", &json!({"spec": {"replicas": 2}}));
    stage.wait_for("one pod to go", || items(stage, &stage.pods()).len() == 2);
    assert!(stage.is_gone(&format!("{}/{}", stage.pods(), names[1])));
    stage.wait_for("its deletion to be told", || {
        let told = format!("Normal SuccessfulDelete: Deleted pod: {}", names[1]);
        events(stage, "ReplicaSet", "web").contains(&told)
    });
}

fn a_replication_controller_keeps_its_pods(stage: &Stage) {
    let path = stage.at("v1", "replicationcontrollers");
    let spec = json!({"replicas": 2, "selector": {"app": "web"}, "template": template(stage, "web:1")});
    stage.create(
        &path,
        &json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "web"}, "spec": spec}),
    );
    let set = wait_status(stage, &format!("{path}/web"), &[("replicas", 2)]);
    assert_eq!(timeless(&set["status"]), json!({"replicas": 2, "fullyLabeledReplicas": 2, "observedGeneration": 1}));
    let pod = items(stage, &stage.pods()).remove(0);
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "ReplicationController");
}

fn stateful_set(stage: &Stage, more: &Value) -> String {
    let mut body = workload(stage, "StatefulSet", "web", more);
    body["spec"]["serviceName"] = json!("web");
    stage.create(&stage.at("apps/v1", "statefulsets"), &body);
    stage.object("apps/v1", "statefulsets", "web")
}

fn a_stateful_set_creates_its_pods_in_order(stage: &Stage) {
    stage.add_node("a", |_| {});
    let web = stateful_set(stage, &json!({"replicas": 3}));
    wait_status(stage, &web, &[("readyReplicas", 3), ("currentReplicas", 3)]);
    let set = wait_status(stage, &web, &[("updatedReplicas", 3), ("availableReplicas", 3)]);
    let revision = text(&set["status"]["updateRevision"]);
    assert!(Regex::new("^web-[bcdfghjklmnpqrstvwxz2456789]{6,10}$").unwrap().is_match(&revision), "{revision}");
    assert_eq!(
        timeless(&set["status"]),
        json!({"observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "currentReplicas": 3,
            "updatedReplicas": 3, "currentRevision": revision, "updateRevision": revision, "collisionCount": 0})
    );
    let created = |n| format!("Normal SuccessfulCreate: Create Pod web-{n} in StatefulSet web successful");
    expect_events(stage, "StatefulSet", "web", &[created(0), created(1), created(2)]);
    let pod = stage.read(&format!("{}/web-1", stage.pods()));
    assert_eq!(
        pod["metadata"]["labels"],
        json!({"app": "web", "apps.kubernetes.io/pod-index": "1", "controller-revision-hash": revision,
            "statefulset.kubernetes.io/pod-name": "web-1"})
    );
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("web-1"), &json!("web")));
    let kept = stage.read(&stage.object("apps/v1", "controllerrevisions", &revision));
    assert_eq!(kept["revision"], 1);
    assert_eq!(kept["data"]["spec"]["template"]["$patch"], "replace");
    let hash = revision.strip_prefix("web-").unwrap();
    assert_eq!(kept["metadata"]["labels"], json!({"app": "web", "controller.kubernetes.io/hash": hash}));
}

fn a_stateful_set_updates_from_its_end_to_the_partition(stage: &Stage) {
    stage.add_node("a", |_| {});
    let web = stateful_set(stage, &json!({"replicas": 3}));
    wait_status(stage, &web, &[("readyReplicas", 3), ("currentReplicas", 3)]);
    let strategy = |partition: i32| json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
    let change = json!({"spec": {"template": template(stage, "web:2"), "updateStrategy": strategy(1)}});
    stage.patch(&web, "merge", &change);
    let counts = [("readyReplicas", 3), ("updatedReplicas", 2), ("currentReplicas", 1)];
    let set = wait_status(stage, &web, &counts);
    assert_ne!(set["status"]["currentRevision"], set["status"]["updateRevision"]);
    let images: Vec<_> =
        items(stage, &stage.pods()).iter().map(|pod| text(&pod["spec"]["containers"][0]["image"])).collect();
    assert_eq!(images, ["web:1", "web:2", "web:2"]);
    stage.patch(&web, "merge", &json!({"spec": {"updateStrategy": strategy(0)}}));
    let set = wait_status(stage, &web, &[("readyReplicas", 3), ("updatedReplicas", 3), ("currentReplicas", 3)]);
    assert_eq!(set["status"]["currentRevision"], set["status"]["updateRevision"]);
    let deleted = |n| format!("Normal SuccessfulDelete: Delete Pod web-{n} in StatefulSet web successful");
    let told: Vec<_> =
        events(stage, "StatefulSet", "web").into_iter().filter(|event| event.contains("SuccessfulDelete")).collect();
    assert_eq!(told, [deleted(2), deleted(1), deleted(0)]);
}

fn claim_template() -> Value {
    json!([{"metadata": {"name": "data", "labels": {"kind": "disk"}}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "nobody", "resources": {"requests": {"storage": "1Gi"}}}}])
}

fn a_stateful_set_keeps_a_claim_for_each_pod(stage: &Stage) {
    let web = stateful_set(stage, &json!({"replicas": 1, "volumeClaimTemplates": claim_template()}));
    wait_status(stage, &web, &[("replicas", 1)]);
    let claim = stage.object("v1", "persistentvolumeclaims", "data-web-0");
    let kept = stage.read(&claim);
    assert_eq!(kept["metadata"]["labels"], json!({"app": "web", "kind": "disk"}));
    assert!(kept["metadata"]["ownerReferences"].is_null());
    let volumes = stage.read(&format!("{}/web-0", stage.pods()))["spec"]["volumes"].clone();
    assert_eq!(volumes[0], json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}));
    expect_events(
        stage,
        "StatefulSet",
        "web",
        &[
            "Normal SuccessfulCreate: Create Claim data-web-0 Pod web-0 in StatefulSet web success".to_owned(),
            "Normal SuccessfulCreate: Create Pod web-0 in StatefulSet web successful".to_owned(),
        ],
    );
    stage.patch(&web, "merge", &json!({"spec": {"replicas": 0}}));
    stage.wait_for("the pod to go", || items(stage, &stage.pods()).is_empty());
    stage.read(&claim);
}

fn a_parallel_stateful_set_deletes_claims_when_it_shrinks(stage: &Stage) {
    let policy = json!({"whenScaled": "Delete", "whenDeleted": "Delete"});
    let more = json!({"replicas": 3, "podManagementPolicy": "Parallel", "volumeClaimTemplates": claim_template(),
        "persistentVolumeClaimRetentionPolicy": policy});
    let web = stateful_set(stage, &more);
    // All at once: none of them can run.
    wait_status(stage, &web, &[("replicas", 3)]);
    let claims = stage.at("v1", "persistentvolumeclaims");
    stage.wait_for("the set to own its claims", || {
        let all = items(stage, &claims);
        all.len() == 3 && all.iter().all(|claim| claim["metadata"]["ownerReferences"][0]["kind"] == "StatefulSet")
    });
    stage.patch(&web, "merge", &json!({"spec": {"replicas": 1}}));
    stage.wait_for("two pods and their claims to go", || {
        items(stage, &stage.pods()).len() == 1 && items(stage, &claims).len() == 1
    });
    assert_eq!(items(stage, &claims)[0]["metadata"]["name"], "data-web-0");
}

fn daemon_set(stage: &Stage, more: &Value) -> String {
    stage.create(&stage.at("apps/v1", "daemonsets"), &workload(stage, "DaemonSet", "web", more));
    stage.object("apps/v1", "daemonsets", "web")
}

fn a_daemon_set_runs_on_each_of_its_nodes(stage: &Stage) {
    let one = stage.add_node("one", |_| {});
    let web = daemon_set(stage, &json!({}));
    wait_status(stage, &web, &[("numberAvailable", 1)]);
    let two = stage.add_node("two", |node| node["spec"]["unschedulable"] = json!(true));
    let set = wait_status(stage, &web, &[("numberAvailable", 2), ("updatedNumberScheduled", 2)]);
    assert_eq!(
        timeless(&set["status"]),
        json!({"currentNumberScheduled": 2, "desiredNumberScheduled": 2, "numberAvailable": 2, "numberMisscheduled": 0,
            "numberReady": 2, "observedGeneration": 1, "updatedNumberScheduled": 2})
    );
    let mut nodes: Vec<_> = items(stage, &stage.pods()).iter().map(|pod| text(&pod["spec"]["nodeName"])).collect();
    nodes.sort();
    assert_eq!(nodes, [one.clone(), two]);
    // A node that it does not select any more loses its pod.
    stage.patch(
        &format!("/api/v1/nodes/{one}"),
        "merge",
        &json!({"metadata": {"labels": {NODE_OF: stage.namespace, "gone": "1"}}}),
    );
    let selects = json!({"spec": {"template": {"spec": {"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "gone", "operator": "DoesNotExist"}]}]}}}}}}});
    stage.patch(&web, "merge", &selects);
    wait_status(stage, &web, &[("desiredNumberScheduled", 1), ("currentNumberScheduled", 1), ("numberAvailable", 1)]);
}

fn the_pod_of_a_daemon_set_is_made_for_its_node(stage: &Stage) {
    let node = stage.add_node("a", |_| {});
    let web = daemon_set(stage, &json!({}));
    wait_status(stage, &web, &[("numberAvailable", 1)]);
    let pod = items(stage, &stage.pods()).remove(0);
    assert_eq!(
        pod["spec"]["affinity"],
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}}})
    );
    let tolerations: Vec<String> = pod["spec"]["tolerations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| format!("{} {} {}", text(&one["key"]), text(&one["operator"]), text(&one["effect"])))
        .collect();
    assert_eq!(
        tolerations,
        [
            &format!("{NODE_OF} Equal NoSchedule"),
            "node.kubernetes.io/not-ready Exists NoExecute",
            "node.kubernetes.io/unreachable Exists NoExecute",
            "node.kubernetes.io/disk-pressure Exists NoSchedule",
            "node.kubernetes.io/memory-pressure Exists NoSchedule",
            "node.kubernetes.io/pid-pressure Exists NoSchedule",
            "node.kubernetes.io/unschedulable Exists NoSchedule",
        ]
    );
    let labels = &pod["metadata"]["labels"];
    assert_eq!((&labels["app"], &labels["pod-template-generation"]), (&json!("web"), &json!("1")));
    let told = format!("Normal SuccessfulCreate: Created pod: {}", text(&pod["metadata"]["name"]));
    expect_events(stage, "DaemonSet", "web", &[told]);
    let revisions = items(stage, &stage.at("apps/v1", "controllerrevisions"));
    let hash = text(&labels["controller-revision-hash"]);
    assert_eq!(revisions[0]["metadata"]["name"], format!("web-{hash}"));
    assert_eq!(revisions[0]["metadata"]["labels"], json!({"app": "web", "controller-revision-hash": hash}));
}

fn a_daemon_set_replaces_its_pods_and_keeps_revisions(stage: &Stage) {
    stage.add_node("a", |_| {});
    stage.add_node("b", |_| {});
    let web = daemon_set(stage, &json!({}));
    wait_status(stage, &web, &[("numberAvailable", 2), ("updatedNumberScheduled", 2)]);
    stage.patch(&web, "merge", &json!({"spec": {"template": template(stage, "web:2")}}));
    let set = wait_status(stage, &web, &[("numberAvailable", 2), ("updatedNumberScheduled", 2)]);
    assert_eq!(set["metadata"]["annotations"]["deprecated.daemonset.template.generation"], "2");
    let images = |stage: &Stage| -> Vec<String> {
        items(stage, &stage.pods()).iter().map(|pod| text(&pod["spec"]["containers"][0]["image"])).collect()
    };
    assert_eq!(images(stage), ["web:2", "web:2"]);
    stage.patch(&web, "merge", &json!({"spec": {"template": template(stage, "web:1")}}));
    wait_status(stage, &web, &[("numberAvailable", 2), ("updatedNumberScheduled", 2)]);
    assert_eq!(images(stage), ["web:1", "web:1"]);
    let mut numbers: Vec<_> = items(stage, &stage.at("apps/v1", "controllerrevisions"))
        .iter()
        .map(|revision| revision["revision"].as_i64().unwrap())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 3]);
}

fn a_daemon_set_on_delete_waits_for_the_deletion(stage: &Stage) {
    stage.add_node("a", |_| {});
    let web = daemon_set(stage, &json!({"updateStrategy": {"type": "OnDelete"}}));
    wait_status(stage, &web, &[("numberAvailable", 1), ("updatedNumberScheduled", 1)]);
    stage.patch(&web, "merge", &json!({"spec": {"template": template(stage, "web:2")}}));
    wait_status(stage, &web, &[("numberAvailable", 1), ("updatedNumberScheduled", 0)]);
    let pod = text(&items(stage, &stage.pods())[0]["metadata"]["name"]);
    stage.delete(&format!("{}/{pod}", stage.pods()));
    wait_status(stage, &web, &[("numberAvailable", 1), ("updatedNumberScheduled", 1)]);
}

fn budget(stage: &Stage, more: &Value) -> String {
    let mut spec = json!({"selector": {"matchLabels": {"app": "web"}}});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let path = stage.at("policy/v1", "poddisruptionbudgets");
    stage.create(
        &path,
        &json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": spec}),
    );
    format!("{path}/web")
}

fn a_budget_of_a_deployment_counts_its_replicas(stage: &Stage) {
    stage.add_node("a", |_| {});
    let web = budget(stage, &json!({"maxUnavailable": "30%"}));
    deployment(stage, &json!({"replicas": 4}));
    let counts = [("expectedPods", 4), ("currentHealthy", 4), ("desiredHealthy", 2), ("disruptionsAllowed", 2)];
    let allowed = wait_status(stage, &web, &counts);
    assert_eq!(
        timeless(&allowed["status"]),
        json!({"expectedPods": 4, "currentHealthy": 4, "desiredHealthy": 2, "disruptionsAllowed": 2, "observedGeneration": 1,
            "conditions": [{"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods", "message": "",
                "observedGeneration": 1}]})
    );
    stage.patch(&web, "merge", &json!({"spec": {"maxUnavailable": null, "minAvailable": 4}}));
    let counts = [("expectedPods", 4), ("currentHealthy", 4), ("desiredHealthy", 4), ("disruptionsAllowed", 0)];
    let refused = wait_status(stage, &web, &counts);
    assert_eq!(conditions(&refused), ["DisruptionAllowed=False InsufficientPods: "]);
}

fn a_budget_of_daemons_cannot_be_calculated(stage: &Stage) {
    stage.add_node("a", |_| {});
    let set = daemon_set(stage, &json!({}));
    wait_status(stage, &set, &[("numberAvailable", 1)]);
    let web = budget(stage, &json!({"maxUnavailable": 1}));
    let why = "daemonsets.apps does not implement the scale subresource";
    let failed = wait_condition(stage, &web, "DisruptionAllowed=False SyncFailed");
    assert_eq!(conditions(&failed), [format!("DisruptionAllowed=False SyncFailed: {why}")]);
    stage.wait_for("the trouble to be told", || {
        let told =
            format!("Warning CalculateExpectedPodCountFailed: Failed to calculate the number of expected pods: {why}");
        events(stage, "PodDisruptionBudget", "web").contains(&told)
    });
}

fn a_budget_without_pods_allows_nothing(stage: &Stage) {
    let web = budget(stage, &json!({"minAvailable": 0}));
    let empty = wait_condition(stage, &web, "DisruptionAllowed=False InsufficientPods");
    assert_eq!(
        timeless(&empty["status"]),
        json!({"expectedPods": 0, "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "observedGeneration": 1,
            "conditions": [{"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
                "observedGeneration": 1}]})
    );
    stage.wait_for("that to be told", || {
        events(stage, "PodDisruptionBudget", "web").contains(&"Normal NoPods: No matching pods found".to_owned())
    });
    let mut lone = template(stage, "web:1");
    lone["metadata"]["name"] = json!("lone");
    stage.create(&stage.pods(), &lone);
    stage.patch(&web, "merge", &json!({"spec": {"minAvailable": null, "maxUnavailable": 1}}));
    stage.wait_for("unmanaged pods to be told of", || {
        let told = "Warning UnmanagedPods: Pods selected by this PodDisruptionBudget (selector: &LabelSelector{MatchLabels:\
            map[string]string{app: web,},MatchExpressions:[]LabelSelectorRequirement{},}) were found to be unmanaged. As a result, \
            the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these \
            pods please set \".spec.minAvailable\" field of the PDB to an integer value.";
        events(stage, "PodDisruptionBudget", "web").contains(&told.to_owned())
    });
}

fn every_namespace_has_an_account_and_a_certificate(stage: &Stage) {
    let map = stage.object("v1", "configmaps", "kube-root-ca.crt");
    let certificate = stage.wait_some("the certificate", || {
        let answer = stage.client.get(&map).unwrap();
        answer.is_success().then_some(answer.body)
    });
    assert!(text(&certificate["data"]["ca.crt"]).contains("-----BEGIN CERTIFICATE-----"), "{certificate}");
    let description = text(&certificate["metadata"]["annotations"]["kubernetes.io/description"]);
    assert!(
        description.starts_with("Contains a CA bundle that can be used to verify the kube-apiserver"),
        "{description}"
    );
    stage.patch(&map, "merge", &json!({"data": {"ca.crt": "forged"}}));
    stage.wait_for("the certificate to be put right", || stage.read(&map)["data"] == certificate["data"]);
    for path in [map, stage.object("v1", "serviceaccounts", "default")] {
        let uid = stage.read(&path)["metadata"]["uid"].clone();
        stage.delete(&path);
        stage.wait_for("it to come back", || {
            stage.client.get(&path).unwrap().body["metadata"]["uid"].as_str().is_some_and(|new| *new != uid)
        });
    }
}
