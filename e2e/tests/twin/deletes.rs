//! Objects go: preconditions, grace, finalizers, and those who hang on them.

use serde_json::{Value, json};

use crate::expect::{causes, names, refused, refused_with};
use crate::objects::{config_map, deployment, pod};
use crate::stage::{Stage, next_change, next_event};

crate::tests!(
    a_deletion_says_what_went,
    a_deletion_may_ask_for_an_identity,
    a_deletion_may_ask_for_a_version,
    a_pod_without_a_node_goes_at_once,
    a_pod_on_a_node_gets_its_grace,
    a_grace_period_can_be_shortened_and_not_lengthened,
    a_negative_grace_period_is_refused_or_one_second,
    a_finalizer_holds_an_object_until_it_is_removed,
    an_object_that_is_going_takes_no_new_finalizers,
    an_object_that_is_going_cannot_be_deleted_twice_over,
    in_the_background_dependents_follow_their_owner,
    in_the_foreground_the_owner_follows_its_dependents,
    an_orphan_loses_its_owner_and_stays,
    a_dependent_with_another_owner_stays,
    a_dependent_of_nobody_is_collected,
    an_unknown_propagation_policy_is_refused,
    two_propagation_policies_are_refused,
    a_collection_is_deleted_by_selector,
    options_may_be_in_the_query,
    options_that_cannot_be_read_are_refused,
);

fn options(content: Value) -> Value {
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
    for (key, value) in content.as_object().into_iter().flatten() {
        options[key] = value.clone();
    }
    options
}

fn a_deletion_says_what_went(stage: &Stage) {
    let created = stage.create(&stage.config_maps(), &config_map("one", json!({})));
    let status = stage.delete(&stage.object("v1", "configmaps", "one"));
    assert_eq!(
        status,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": "one", "kind": "configmaps", "uid": created["metadata"]["uid"]}})
    );
    stage.create(&stage.at("apps/v1", "deployments"), &deployment("one"));
    let status = stage.delete(&stage.object("apps/v1", "deployments", "one"));
    assert_eq!((&status["details"]["group"], &status["details"]["kind"]), (&json!("apps"), &json!("deployments")));
    // A pod says goodbye with itself.
    stage.create(&stage.pods(), &pod("one"));
    assert_eq!(stage.delete(&stage.object("v1", "pods", "one"))["kind"], "Pod");
}

fn a_deletion_may_ask_for_an_identity(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    let created = stage.create(&stage.config_maps(), &config_map("one", json!({})));
    let uid = created["metadata"]["uid"].as_str().unwrap();
    let answer = stage.client.delete_with(&path, &options(json!({"preconditions": {"uid": "another"}}))).unwrap();
    refused(
        &answer,
        409,
        "Conflict",
        &format!(
            "Operation cannot be fulfilled on ConfigMap \"one\": the UID in the precondition (another) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        ),
    );
    assert_eq!(stage.client.delete_with(&path, &options(json!({"preconditions": {"uid": uid}}))).unwrap().status, 200);
    assert!(stage.is_gone(&path));
}

fn a_deletion_may_ask_for_a_version(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    let created = stage.create(&stage.config_maps(), &config_map("one", json!({})));
    let before = created["metadata"]["resourceVersion"].as_str().unwrap();
    let now = stage.patch(&path, "merge", &json!({"data": {"a": "b"}}))["metadata"]["resourceVersion"].clone();
    let answer =
        stage.client.delete_with(&path, &options(json!({"preconditions": {"resourceVersion": before}}))).unwrap();
    refused(
        &answer,
        409,
        "Conflict",
        &format!(
            "Operation cannot be fulfilled on ConfigMap \"one\": the ResourceVersion in the precondition ({before}) does not match the ResourceVersion in record ({}). The object might have been modified",
            now.as_str().unwrap()
        ),
    );
    assert_eq!(
        stage.client.delete_with(&path, &options(json!({"preconditions": {"resourceVersion": now}}))).unwrap().status,
        200
    );
}

fn a_pod_without_a_node_goes_at_once(stage: &Stage) {
    stage.create(&stage.pods(), &pod("one"));
    let path = stage.object("v1", "pods", "one");
    let last = stage.delete(&path);
    assert_eq!((&last["kind"], &last["metadata"]["deletionGracePeriodSeconds"]), (&json!("Pod"), &json!(0)));
    assert!(stage.is_gone(&path));
}

/// A pod on a node that nobody tends: it stays as the API server leaves it.
fn bound(stage: &Stage, name: &str) -> String {
    let node = stage.unique("untended");
    if stage.is_gone(&format!("/api/v1/nodes/{node}")) {
        stage.create_for_now("/api/v1/nodes", &json!({"metadata": {"name": node}}));
    }
    let mut pod = pod(name);
    pod["spec"]["nodeName"] = json!(node);
    stage.create(&stage.pods(), &pod);
    stage.object("v1", "pods", name)
}

fn a_pod_on_a_node_gets_its_grace(stage: &Stage) {
    let path = bound(stage, "one");
    let before = stage.read(&path);
    let watch = stage.watch(&format!(
        "{}?watch=true&timeoutSeconds=60&resourceVersion={}",
        stage.pods(),
        before["metadata"]["resourceVersion"].as_str().unwrap()
    ));
    let going = stage.delete(&path);
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    let generation = |pod: &Value| pod["metadata"]["generation"].as_i64().unwrap();
    assert_eq!(generation(&going), generation(&before) + 1, "what is wanted has changed");
    assert_eq!(stage.read(&path), going, "it is there until its node lets it go");
    assert_eq!(next_change(&watch), ("MODIFIED".to_owned(), "one".to_owned()));
    // The node lets it go.
    stage.client.delete_with(&path, &options(json!({"gracePeriodSeconds": 0}))).unwrap();
    let mut event = next_event(&watch);
    while event["type"] == "MODIFIED" {
        event = next_event(&watch);
    }
    assert_eq!(event["type"], "DELETED");
    assert!(stage.is_gone(&path));
}

fn a_grace_period_can_be_shortened_and_not_lengthened(stage: &Stage) {
    let path = bound(stage, "one");
    let asked = |seconds: i64| {
        let answer = stage.client.delete_with(&path, &options(json!({"gracePeriodSeconds": seconds}))).unwrap();
        assert!(answer.is_success(), "{}", answer.message());
        stage.read(&path)["metadata"]["deletionGracePeriodSeconds"].clone()
    };
    assert_eq!(asked(20), 20);
    assert_eq!(asked(10), 10);
    assert_eq!(asked(50), 10);
    stage.delete(&format!("{path}?gracePeriodSeconds=0"));
    assert!(stage.is_gone(&path));
}

fn a_negative_grace_period_is_refused_or_one_second(stage: &Stage) {
    let path = bound(stage, "one");
    let answer = stage.client.delete_with(&path, &options(json!({"gracePeriodSeconds": -1}))).unwrap();
    assert!(answer.is_success(), "{}", answer.message());
    assert_eq!(stage.read(&path)["metadata"]["deletionGracePeriodSeconds"], 1);
    stage.delete(&format!("{path}?gracePeriodSeconds=0"));
}

fn held(stage: &Stage, name: &str) -> String {
    let mut body = config_map(name, json!({}));
    body["metadata"]["finalizers"] = json!(["kerf.test/hold"]);
    stage.create(&stage.config_maps(), &body);
    stage.object("v1", "configmaps", name)
}

fn a_finalizer_holds_an_object_until_it_is_removed(stage: &Stage) {
    let path = held(stage, "one");
    let answer = stage.client.delete(&path).unwrap();
    assert_eq!((answer.status, &answer.body["kind"]), (200, &json!("ConfigMap")));
    let going = stage.read(&path);
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 0);
    // It can still change.
    assert_eq!(stage.patch(&path, "merge", &json!({"data": {"a": "b"}}))["data"], json!({"a": "b"}));
    let last = stage.patch(&path, "merge", &json!({"metadata": {"finalizers": null}}));
    assert_eq!(last["metadata"]["finalizers"], Value::Null);
    assert!(stage.is_gone(&path));
}

fn an_object_that_is_going_takes_no_new_finalizers(stage: &Stage) {
    let path = held(stage, "one");
    stage.delete(&path);
    let patch = json!({"metadata": {"finalizers": ["kerf.test/hold", "kerf.test/more"]}});
    let answer = stage.client.patch(&path, "merge", &patch).unwrap();
    refused(
        &answer,
        422,
        "Invalid",
        r#"ConfigMap "one" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"kerf.test/more"}"#,
    );
    // It is found twice, and told once.
    let cause = "FieldValueForbidden metadata.finalizers";
    assert_eq!(causes(&answer), [cause, cause]);
    stage.patch(&path, "merge", &json!({"metadata": {"finalizers": []}}));
}

fn an_object_that_is_going_cannot_be_deleted_twice_over(stage: &Stage) {
    let path = held(stage, "one");
    stage.delete(&path);
    let first = stage.read(&path);
    assert_eq!(stage.client.delete(&path).unwrap().status, 200);
    assert_eq!(stage.read(&path), first, "a second deletion changes nothing");
    let answer = stage.client.post(&stage.config_maps(), &config_map("one", json!({}))).unwrap();
    refused(&answer, 409, "AlreadyExists", r#"object is being deleted: configmaps "one" already exists"#);
    stage.patch(&path, "merge", &json!({"metadata": {"finalizers": []}}));
}

/// An owner and two ConfigMaps that hang on it; the second one holds the owner back.
fn family(stage: &Stage) -> (String, [String; 2]) {
    let owner = stage.create(&stage.config_maps(), &config_map("owner", json!({})));
    let path = |name: &str| stage.object("v1", "configmaps", name);
    for (name, blocks) in [("free", false), ("blocking", true)] {
        let mut body = config_map(name, json!({}));
        body["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
            "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks}]);
        stage.create(&stage.config_maps(), &body);
    }
    (path("owner"), [path("free"), path("blocking")])
}

fn in_the_background_dependents_follow_their_owner(stage: &Stage) {
    let (owner, dependents) = family(stage);
    let answer = stage.client.delete_with(&owner, &options(json!({"propagationPolicy": "Background"}))).unwrap();
    assert_eq!((answer.status, &answer.body["status"]), (200, &json!("Success")));
    assert!(stage.is_gone(&owner), "the owner does not wait");
    stage.wait_for("the dependents to go", || dependents.iter().all(|path| stage.is_gone(path)));
}

fn in_the_foreground_the_owner_follows_its_dependents(stage: &Stage) {
    let (owner, [free, blocking]) = family(stage);
    stage.patch(&blocking, "merge", &json!({"metadata": {"finalizers": ["kerf.test/hold"]}}));
    let answer = stage.client.delete_with(&owner, &options(json!({"propagationPolicy": "Foreground"}))).unwrap();
    assert_eq!(answer.status, 200);
    let going = stage.read(&owner);
    assert_eq!(going["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    stage.wait_for("the dependents to be deleted", || {
        stage.is_gone(&free) && stage.read(&blocking)["metadata"]["deletionTimestamp"].is_string()
    });
    assert!(!stage.is_gone(&owner), "a dependent that blocks is still there");
    stage.patch(&blocking, "merge", &json!({"metadata": {"finalizers": null}}));
    stage.wait_for("the owner to go", || stage.is_gone(&owner));
}

fn an_orphan_loses_its_owner_and_stays(stage: &Stage) {
    let (owner, dependents) = family(stage);
    let answer = stage.client.delete_with(&owner, &options(json!({"propagationPolicy": "Orphan"}))).unwrap();
    assert_eq!(answer.status, 200);
    stage.wait_for("the owner to go", || stage.is_gone(&owner));
    for path in dependents {
        let orphan = stage.read(&path);
        assert_eq!(
            (&orphan["metadata"]["ownerReferences"], &orphan["metadata"]["deletionTimestamp"]),
            (&Value::Null, &Value::Null)
        );
    }
}

fn a_dependent_with_another_owner_stays(stage: &Stage) {
    let (owner, [free, blocking]) = family(stage);
    let other = stage.create(&stage.config_maps(), &config_map("other", json!({})));
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": other["metadata"]["uid"]});
    stage.patch(&free, "json", &json!([{"op": "add", "path": "/metadata/ownerReferences/-", "value": reference}]));
    stage.delete(&format!("{owner}?propagationPolicy=Background"));
    stage.wait_for("the other dependent to go", || stage.is_gone(&blocking));
    stage.wait_for("the owner that is gone to be forgotten", || {
        stage.read(&free)["metadata"]["ownerReferences"] == json!([reference])
    });
}

fn a_dependent_of_nobody_is_collected(stage: &Stage) {
    let mut body = config_map("one", json!({}));
    body["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "00000000-0000-0000-0000-000000000000"}]);
    stage.create(&stage.config_maps(), &body);
    stage.wait_for("a dependent of nobody to go", || stage.is_gone(&stage.object("v1", "configmaps", "one")));
}

fn an_unknown_propagation_policy_is_refused(stage: &Stage) {
    stage.create(&stage.config_maps(), &config_map("one", json!({})));
    let path = stage.object("v1", "configmaps", "one");
    let answer = stage.client.delete_with(&path, &options(json!({"propagationPolicy": "Sideways"}))).unwrap();
    refused(
        &answer,
        422,
        "Invalid",
        r#"DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Sideways": supported values: "Foreground", "Background", "Orphan", "nil""#,
    );
    assert_eq!(causes(&answer), ["FieldValueNotSupported propagationPolicy"]);
}

fn two_propagation_policies_are_refused(stage: &Stage) {
    stage.create(&stage.config_maps(), &config_map("one", json!({})));
    let body = options(json!({"propagationPolicy": "Orphan", "orphanDependents": true}));
    let answer = stage.client.delete_with(&stage.object("v1", "configmaps", "one"), &body).unwrap();
    refused(
        &answer,
        422,
        "Invalid",
        r#"DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both set"#,
    );
}

fn a_collection_is_deleted_by_selector(stage: &Stage) {
    let secrets = stage.at("v1", "secrets");
    for (name, kind) in [("a", "x"), ("b", "y"), ("c", "x")] {
        stage.create(&secrets, &json!({"metadata": {"name": name, "labels": {"kind": kind}}}));
    }
    let answer = stage.client.delete(&format!("{secrets}?labelSelector=kind%3Dx")).unwrap();
    assert_eq!((answer.status, &answer.body["kind"]), (200, &json!("SecretList")));
    assert_eq!(names(&answer.body), ["a", "c"]);
    assert_eq!(names(&stage.read(&secrets)), ["b"]);
    stage.create(&stage.pods(), &pod("one"));
    stage.delete(&stage.pods());
    assert_eq!(names(&stage.read(&stage.pods())), [""; 0]);
}

fn options_may_be_in_the_query(stage: &Stage) {
    let path = bound(stage, "one");
    let going = stage.delete(&format!("{path}?gracePeriodSeconds=7"));
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 7);
    stage.delete(&format!("{path}?gracePeriodSeconds=0"));
    let answer =
        stage.client.delete(&format!("{}?propagationPolicy=Sideways", stage.object("v1", "configmaps", "x"))).unwrap();
    refused_with(&answer, 422, "Invalid");
}

fn options_that_cannot_be_read_are_refused(stage: &Stage) {
    stage.create(&stage.config_maps(), &config_map("one", json!({})));
    let path = stage.object("v1", "configmaps", "one");
    let answer = stage.client.delete_with(&path, &options(json!({"gracePeriodSeconds": "soon"}))).unwrap();
    refused_with(&answer, 400, "BadRequest");
    assert!(
        answer.message().contains(
            "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
        ),
        "{}",
        answer.message()
    );
    assert!(!stage.is_gone(&path));
}
