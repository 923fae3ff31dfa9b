//! Changes as they happen.

use std::time::Duration;

use kerf_e2e::client::{Next, Watch};
use kerf_mirror::{Kind, Object, WireEvent, wire_frame};
use serde_json::{Value, json};

use crate::expect::{refused, refused_with};
use crate::objects::{gadget, gadgets, labelled, pod};
use crate::stage::{Stage, next_change, next_event};

crate::tests!(
    a_watch_from_a_version_tells_what_came_after,
    a_watch_without_a_version_begins_with_what_is_there,
    a_watch_of_version_zero_begins_with_what_is_there,
    a_watch_of_one_name_hears_of_nothing_else,
    a_watch_of_all_namespaces_hears_of_each,
    an_object_that_begins_to_match_is_added_and_one_that_ends_is_deleted,
    a_field_selector_moves_objects_in_and_out_of_a_watch,
    a_deletion_tells_the_last_state_at_its_own_version,
    initial_events_end_with_a_bookmark,
    initial_events_come_after_a_selector,
    initial_events_need_a_match,
    a_bookmark_comes_before_the_end,
    a_watch_ends_when_its_time_is_up,
    a_watch_of_the_distant_past_is_told_to_list_again,
    a_watch_of_the_future_waits,
    a_watch_of_a_nonsense_version_is_refused,
    a_watch_of_a_missing_kind_is_not_found,
    a_watch_of_tables_gives_rows,
    a_pod_says_in_protocol_buffers_what_it_says_in_json,
);

fn secret(name: &str, labels: Value) -> Value {
    let mut secret = labelled(name, labels);
    secret["kind"] = json!("Secret");
    secret
}

fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

fn change(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

#[track_caller]
fn hears_nothing(watch: &Watch) {
    // Long enough for an event that is on its way.
    assert_eq!(watch.next(Duration::from_millis(300)), Next::Nothing);
}

fn a_watch_from_a_version_tells_what_came_after(stage: &Stage) {
    let secrets = stage.at("v1", "secrets");
    let first = stage.create(&secrets, &secret("a", json!({})));
    stage.create(&secrets, &secret("b", json!({})));
    let changed = stage.patch(&format!("{secrets}/a"), "merge", &json!({"metadata": {"labels": {"x": "y"}}}));
    stage.delete(&format!("{secrets}/b"));
    let watch = stage.watch(&format!("{secrets}?watch=true&timeoutSeconds=60&resourceVersion={}", version(&first)));
    assert_eq!(next_change(&watch), change("ADDED", "b"));
    let event = next_event(&watch);
    assert_eq!((&event["type"], &event["object"]), (&json!("MODIFIED"), &changed));
    assert_eq!((&event["object"]["kind"], &event["object"]["apiVersion"]), (&json!("Secret"), &json!("v1")));
    assert_eq!(next_change(&watch), change("DELETED", "b"));
    hears_nothing(&watch);
    stage.create(&secrets, &secret("c", json!({})));
    assert_eq!(next_change(&watch), change("ADDED", "c"));
}

fn a_watch_without_a_version_begins_with_what_is_there(stage: &Stage) {
    let secrets = stage.at("v1", "secrets");
    for name in ["b", "a"] {
        stage.create(&secrets, &secret(name, json!({})));
    }
    let watch = stage.watch(&format!("{secrets}?watch=1&timeoutSeconds=60"));
    let mut found = vec![next_change(&watch), next_change(&watch)];
    found.sort();
    assert_eq!(found, [change("ADDED", "a"), change("ADDED", "b")]);
    hears_nothing(&watch);
}

fn a_watch_of_version_zero_begins_with_what_is_there(stage: &Stage) {
    let secrets = stage.at("v1", "secrets");
    stage.create(&secrets, &secret("a", json!({})));
    let watch = stage.watch(&format!("{secrets}?watch=true&timeoutSeconds=60&resourceVersion=0"));
    assert_eq!(next_change(&watch), change("ADDED", "a"));
    stage.delete(&format!("{secrets}/a"));
    assert_eq!(next_change(&watch), change("DELETED", "a"));
}

fn a_watch_of_one_name_hears_of_nothing_else(stage: &Stage) {
    let secrets = stage.at("v1", "secrets");
    let first = stage.create(&secrets, &secret("a", json!({})));
    let watch = stage.watch(&format!(
        "{secrets}?watch=true&timeoutSeconds=60&fieldSelector=metadata.name%3Dc&resourceVersion={}",
        version(&first)
    ));
    for name in ["b", "c", "d"] {
        stage.create(&secrets, &secret(name, json!({})));
    }
    assert_eq!(next_change(&watch), change("ADDED", "c"));
    hears_nothing(&watch);
}

fn a_watch_of_all_namespaces_hears_of_each(stage: &Stage) {
    let secrets = stage.at("v1", "secrets");
    let label = format!("of%3D{}", stage.namespace);
    let first = stage.create(&secrets, &secret("a", json!({"of": stage.namespace})));
    let watch = stage.watch(&format!(
        "/api/v1/secrets?watch=true&timeoutSeconds=60&labelSelector={label}&resourceVersion={}",
        version(&first)
    ));
    let other = stage.unique("more");
    stage.create("/api/v1/namespaces", &json!({"metadata": {"name": other}}));
    stage.create(&format!("/api/v1/namespaces/{other}/secrets"), &secret("b", json!({"of": stage.namespace})));
    let event = next_event(&watch);
    assert_eq!((&event["type"], &event["object"]["metadata"]["namespace"]), (&json!("ADDED"), &json!(other)));
    stage.delete(&format!("/api/v1/namespaces/{other}"));
    assert_eq!(next_change(&watch), change("DELETED", "b"));
}

fn an_object_that_begins_to_match_is_added_and_one_that_ends_is_deleted(stage: &Stage) {
    let secrets = stage.at("v1", "secrets");
    let first = stage.create(&secrets, &secret("a", json!({"on": "no"})));
    let watch = stage.watch(&format!(
        "{secrets}?watch=true&timeoutSeconds=60&labelSelector=on%3Dyes&resourceVersion={}",
        version(&first)
    ));
    let label =
        |value: &str| stage.patch(&format!("{secrets}/a"), "merge", &json!({"metadata": {"labels": {"on": value}}}));
    let on = label("yes");
    let event = next_event(&watch);
    assert_eq!((&event["type"], version(&event["object"])), (&json!("ADDED"), version(&on)));
    stage.patch(&format!("{secrets}/a"), "merge", &json!({"metadata": {"labels": {"more": "1"}}}));
    assert_eq!(next_change(&watch), change("MODIFIED", "a"));
    let off = label("no");
    let event = next_event(&watch);
    // The state that matched last, at the version of the change that ended it.
    assert_eq!((&event["type"], version(&event["object"])), (&json!("DELETED"), version(&off)));
    assert_eq!(event["object"]["metadata"]["labels"], json!({"on": "yes", "more": "1"}));
    stage.delete(&format!("{secrets}/a"));
    hears_nothing(&watch);
}

fn a_field_selector_moves_objects_in_and_out_of_a_watch(stage: &Stage) {
    let first = stage.create(&stage.pods(), &pod("a"));
    let watch = stage.watch(&format!(
        "{}?watch=true&timeoutSeconds=60&fieldSelector=status.phase%3DRunning&resourceVersion={}",
        stage.pods(),
        version(&first)
    ));
    let status = format!("{}/a/status", stage.pods());
    stage.patch(&status, "merge", &json!({"status": {"phase": "Running"}}));
    assert_eq!(next_change(&watch), change("ADDED", "a"));
    stage.patch(&status, "merge", &json!({"status": {"phase": "Succeeded"}}));
    assert_eq!(next_change(&watch), change("DELETED", "a"));
}

fn a_deletion_tells_the_last_state_at_its_own_version(stage: &Stage) {
    let secrets = stage.at("v1", "secrets");
    let first = stage.create(&secrets, &secret("a", json!({"x": "y"})));
    let watch = stage.watch(&format!("{secrets}?watch=true&timeoutSeconds=60&resourceVersion={}", version(&first)));
    stage.delete(&format!("{secrets}/a"));
    let event = next_event(&watch);
    assert_eq!(event["type"], "DELETED");
    assert!(version(&event["object"]).parse::<u64>().unwrap() > version(&first).parse().unwrap());
    let mut last = event["object"].clone();
    last["metadata"]["resourceVersion"] = first["metadata"]["resourceVersion"].clone();
    assert_eq!(last, first);
}

fn initial_events_end_with_a_bookmark(stage: &Stage) {
    let secrets = stage.at("v1", "secrets");
    for name in ["a", "b"] {
        stage.create(&secrets, &secret(name, json!({})));
    }
    let watch = stage.watch(&format!(
        "{secrets}?watch=true&timeoutSeconds=60&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    ));
    assert_eq!([next_change(&watch), next_change(&watch)], [change("ADDED", "a"), change("ADDED", "b")]);
    let bookmark = next_event(&watch);
    assert_eq!((&bookmark["type"], &bookmark["object"]["kind"]), (&json!("BOOKMARK"), &json!("Secret")));
    assert_eq!(
        bookmark["object"]["metadata"]["annotations"],
        json!({"k8s.io/initial-events-end": "true"}),
        "{bookmark}"
    );
    let from = version(&bookmark["object"]);
    let created = stage.create(&secrets, &secret("c", json!({})));
    assert!(version(&created).parse::<u64>().unwrap() > from.parse().unwrap());
    assert_eq!(next_change(&watch), change("ADDED", "c"));
}

fn initial_events_come_after_a_selector(stage: &Stage) {
    let secrets = stage.at("v1", "secrets");
    stage.create(&secrets, &secret("a", json!({"on": "yes"})));
    stage.create(&secrets, &secret("b", json!({})));
    let watch = stage.watch(&format!(
        "{secrets}?watch=true&timeoutSeconds=60&sendInitialEvents=true&allowWatchBookmarks=true\
         &resourceVersionMatch=NotOlderThan&labelSelector=on%3Dyes"
    ));
    assert_eq!(next_change(&watch), change("ADDED", "a"));
    assert_eq!(next_event(&watch)["type"], "BOOKMARK");
}

fn initial_events_need_a_match(stage: &Stage) {
    let secrets = stage.at("v1", "secrets");
    let answer = stage.client.get(&format!("{secrets}?watch=true&sendInitialEvents=true")).unwrap();
    refused(
        &answer,
        422,
        "Invalid",
        r#"ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"#,
    );
    let answer =
        stage.client.get(&format!("{secrets}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan")).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert!(
        answer.message().contains("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        "{}",
        answer.message()
    );
}

/// Shortly before its time is up, a watch is told how far it has come.
fn a_bookmark_comes_before_the_end(stage: &Stage) {
    let secrets = stage.at("v1", "secrets");
    let first = stage.create(&secrets, &secret("a", json!({})));
    let watch = stage.watch(&format!(
        "{secrets}?watch=true&timeoutSeconds=6&allowWatchBookmarks=true&resourceVersion={}",
        version(&first)
    ));
    let event = next_event(&watch);
    assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("BOOKMARK"), &json!("Secret")));
    assert!(version(&event["object"]).parse::<u64>().unwrap() >= version(&first).parse().unwrap());
}

fn a_watch_ends_when_its_time_is_up(stage: &Stage) {
    let secrets = stage.at("v1", "secrets");
    let first = stage.create(&secrets, &secret("a", json!({})));
    let watch = stage.watch(&format!("{secrets}?watch=true&timeoutSeconds=1&resourceVersion={}", version(&first)));
    assert_eq!(watch.next(Duration::from_secs(20)), Next::Ended);
}

fn a_watch_of_the_distant_past_is_told_to_list_again(stage: &Stage) {
    // Nothing is remembered of a kind from before it was served.
    let gadgets = gadgets(stage, json!({}));
    stage.create(&gadgets, &gadget(stage, "a", json!({})));
    let watch = stage.watch(&format!("{gadgets}?watch=true&timeoutSeconds=60&resourceVersion=1"));
    let event = next_event(&watch);
    assert_eq!(event["type"], "ERROR");
    let status = &event["object"];
    assert_eq!(
        (&status["kind"], &status["code"], &status["reason"]),
        (&json!("Status"), &json!(410), &json!("Expired"))
    );
    let message = status["message"].as_str().unwrap();
    assert!(message.starts_with("too old resource version: 1 ("), "{message}");
    assert_eq!(watch.next(Duration::from_secs(20)), Next::Ended);
}

fn a_watch_of_the_future_waits(stage: &Stage) {
    let secrets = stage.at("v1", "secrets");
    let watch = stage.watch(&format!("{secrets}?watch=true&timeoutSeconds=1&resourceVersion=999999999"));
    stage.create(&secrets, &secret("a", json!({})));
    assert_eq!(watch.next(Duration::from_secs(20)), Next::Ended);
}

fn a_watch_of_a_nonsense_version_is_refused(stage: &Stage) {
    let answer = stage.client.get(&format!("{}?watch=true&resourceVersion=abc", stage.pods())).unwrap();
    refused(
        &answer,
        500,
        "",
        r#"resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax"#,
    );
}

fn a_watch_of_a_missing_kind_is_not_found(stage: &Stage) {
    let answer = stage.client.get(&format!("{}?watch=true", stage.at("v1", "gadgets"))).unwrap();
    refused(&answer, 404, "NotFound", "the server could not find the requested resource");
}

fn a_watch_of_tables_gives_rows(stage: &Stage) {
    let first = stage.create(&stage.pods(), &pod("a"));
    let path = format!("{}?watch=true&timeoutSeconds=60&resourceVersion={}", stage.pods(), version(&first));
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let watch = stage.client.call("GET", &path).header("Accept", accept).watch().unwrap().unwrap();
    for name in ["b", "c"] {
        stage.create(&stage.pods(), &pod(name));
    }
    let first = next_event(&watch);
    assert_eq!((&first["type"], &first["object"]["kind"]), (&json!("ADDED"), &json!("Table")));
    assert_eq!(first["object"]["columnDefinitions"][0]["name"], "Name");
    assert_eq!(first["object"]["rows"][0]["cells"][0], "b");
    let second = next_event(&watch);
    // The columns are told once.
    assert_eq!(second["object"]["columnDefinitions"], Value::Null, "{second}");
    assert_eq!(second["object"]["rows"][0]["cells"][0], "c");
    assert_eq!(second["object"]["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

/// With something in every field that our operator reads.
fn rich_pod() -> Value {
    let selector = json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]});
    let term =
        json!({"labelSelector": selector, "topologyKey": "zone", "namespaceSelector": {}, "namespaces": ["a", "b"]});
    let nodes = json!({"matchExpressions": [{"key": "arch", "operator": "In", "values": ["arm64", "amd64"]}]});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "rich", "labels": {"app": "web", "empty": ""}, "annotations": {"karpenter.sh/do-not-disrupt": "true"},
            "finalizers": ["example.com/hold"],
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-1", "controller": true}
            ]
        },
        "spec": {
            "schedulingGates": [{"name": "example.com/wait"}],
            "schedulerName": "another", "terminationGracePeriodSeconds": 7, "nodeSelector": {"disk": "fast", "plain": ""},
            "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
            "topologySpreadConstraints": [{
                "maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector,
                "minDomains": 3, "nodeTaintsPolicy": "Honor", "matchLabelKeys": ["pod-template-hash"]
            }],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [nodes, nodes]},
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "preference": nodes}]
                },
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": term}]
                }
            },
            "initContainers": [{
                "name": "first", "image": "a", "restartPolicy": "Always", "resources": {"requests": {"cpu": "250m"}}
            }],
            "containers": [
                {
                    "name": "main", "image": "b", "env": [{"name": "A", "value": "b"}],
                    "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1", "protocol": "UDP"}],
                    "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
                },
                {"name": "side", "image": "c"}
            ],
            "volumes": [
                {"name": "claimed", "persistentVolumeClaim": {"claimName": "data", "readOnly": true}},
                {"name": "made", "ephemeral": {"volumeClaimTemplate": {"spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}
                }}}},
                {"name": "empty", "emptyDir": {}}
            ]
        }
    })
}

/// What our operator reads of a pod, and of a pod only: all that both forms must agree on.
fn read_parts(pod: &Value) -> Vec<Value> {
    let spec = &pod["spec"];
    let containers =
        ["containers", "initContainers"].into_iter().flat_map(|list| spec[list].as_array().into_iter().flatten());
    let mut parts: Vec<Value> = containers
        .map(|container| {
            json!([container["name"], container["resources"], container["ports"], container["restartPolicy"]])
        })
        .collect();
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        let class = &volume["ephemeral"]["volumeClaimTemplate"]["spec"]["storageClassName"];
        parts.push(json!([volume["name"], volume["persistentVolumeClaim"], class]));
    }
    for field in [
        "nodeName",
        "nodeSelector",
        "affinity",
        "tolerations",
        "topologySpreadConstraints",
        "schedulerName",
        "priority",
        "priorityClassName",
        "preemptionPolicy",
        "schedulingGates",
        "terminationGracePeriodSeconds",
        "overhead",
    ] {
        parts.push(json!([field, spec[field]]));
    }
    let metadata = &pod["metadata"];
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
    ] {
        parts.push(json!([field, metadata[field]]));
    }
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    parts.extend(conditions.map(|one| json!([one["type"], one["status"], one["reason"], one["lastTransitionTime"]])));
    parts.push(pod["status"]["phase"].clone());
    parts
}

/// As our operator asks for it.
fn first_of_a_watch(stage: &Stage, pods: &str) -> Object {
    let query =
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1";
    let accept = "application/vnd.kubernetes.protobuf;stream=watch,application/json";
    let watch = stage.client.call("GET", &format!("{pods}?{query}")).header("Accept", accept);
    let (status, bytes) = watch.fetch().unwrap();
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&bytes));
    if bytes.starts_with(b"{") {
        // A server that speaks JSON only says so, and is understood.
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap();
        let event: Value = serde_json::from_slice(line).unwrap();
        Object::parse(Kind::Pod, event["object"].to_string().as_bytes()).unwrap()
    } else {
        let (frame, _) = wire_frame(&bytes).unwrap().expect("one frame at least");
        let event = WireEvent::read(frame).unwrap();
        assert_eq!(event.kind, "ADDED");
        Object::parse_wire(Kind::Pod, event.object).unwrap()
    }
}

fn a_pod_says_in_protocol_buffers_what_it_says_in_json(stage: &Stage) {
    let pods = stage.at("v1", "pods");
    stage.create(&pods, &rich_pod());
    // The scheduler writes a condition meanwhile: only pictures of one version are compared.
    let (seen, expected) = std::iter::repeat_with(|| {
        let as_json = stage.client.call("GET", &format!("{pods}/rich")).fetch().unwrap().1;
        (first_of_a_watch(stage, &pods), Object::parse(Kind::Pod, &as_json).unwrap())
    })
    .take(10)
    .find(|(seen, expected)| seen.metadata().resource_version == expected.metadata().resource_version)
    .expect("a pod that nobody changes any more");
    let (Object::Pod(seen), Object::Pod(expected)) = (seen, expected) else { panic!("a pod is read as a pod") };
    let [seen, expected] = [seen, expected].map(|pod| read_parts(&serde_json::to_value(&pod).unwrap()));
    assert_eq!(seen, expected);
    stage.patch(&format!("{pods}/rich"), "merge", &json!({"metadata": {"finalizers": null}}));
}
