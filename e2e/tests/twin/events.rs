//! Events in both of their groups, and the leases by which leaders are elected.

use serde_json::{Value, json};

use crate::expect::{causes, names, refused, refused_with};
use crate::stage::{Stage, cluster};

crate::tests!(
    an_event_of_the_core_group_is_read_in_both,
    an_event_of_the_new_group_is_read_in_both,
    an_event_about_another_namespace_is_refused,
    an_event_that_is_not_stored_tells_the_servers_time,
    a_new_event_must_say_who_saw_what,
    events_are_chosen_by_what_they_are_about,
    an_event_is_counted_up_by_a_patch,
    a_table_of_events_says_what_happened,
    a_lease_is_taken_over_by_who_saw_it_last,
    a_lease_counts_in_microseconds,
    a_lease_is_validated,
);

fn event(stage: &Stage, name: &str, about: &str, reason: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "namespace": stage.namespace, "name": about, "apiVersion": "v1"},
        "reason": reason, "message": format!("{reason} of {about}"), "type": "Warning", "count": 2,
        "source": {"component": "tester", "host": "here"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:01:00Z"})
}

fn an_event_of_the_core_group_is_read_in_both(stage: &Stage) {
    let created = stage.create(&stage.at("v1", "events"), &event(stage, "one", "web", "Failed"));
    assert_eq!(
        (&created["reportingComponent"], &created["reportingInstance"], &created["eventTime"]),
        (&json!(""), &json!(""), &Value::Null)
    );
    let other = stage.read(&stage.object("events.k8s.io/v1", "events", "one"));
    assert_eq!((&other["apiVersion"], &other["kind"]), (&json!("events.k8s.io/v1"), &json!("Event")));
    assert_eq!(
        (&other["note"], &other["regarding"]["name"], &other["reason"], &other["type"]),
        (&json!("Failed of web"), &json!("web"), &json!("Failed"), &json!("Warning"))
    );
    assert_eq!(
        (&other["deprecatedCount"], &other["deprecatedSource"]),
        (&json!(2), &json!({"component": "tester", "host": "here"}))
    );
    assert_eq!(
        (&other["deprecatedFirstTimestamp"], &other["deprecatedLastTimestamp"]),
        (&json!("2026-01-01T00:00:00Z"), &json!("2026-01-01T00:01:00Z"))
    );
    for gone in ["message", "involvedObject", "count", "source", "firstTimestamp"] {
        assert_eq!(other[gone], Value::Null, "{gone}");
    }
}

fn new_event(stage: &Stage, name: &str) -> Value {
    json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name},
        "eventTime": "2026-01-01T00:00:00.123456Z", "reportingController": "kerf.test/tester", "reportingInstance": "tester-1",
        "action": "Testing", "reason": "Tested", "type": "Normal", "note": "all is well",
        "regarding": {"kind": "Pod", "namespace": stage.namespace, "name": "web", "apiVersion": "v1"}})
}

fn an_event_of_the_new_group_is_read_in_both(stage: &Stage) {
    stage.create(&stage.at("events.k8s.io/v1", "events"), &new_event(stage, "one"));
    let other = stage.read(&stage.object("v1", "events", "one"));
    assert_eq!(
        (&other["message"], &other["involvedObject"]["name"], &other["eventTime"]),
        (&json!("all is well"), &json!("web"), &json!("2026-01-01T00:00:00.123456Z"))
    );
    assert_eq!(
        (&other["reportingComponent"], &other["reportingInstance"], &other["action"]),
        (&json!("kerf.test/tester"), &json!("tester-1"), &json!("Testing"))
    );
    assert_eq!((&other["firstTimestamp"], &other["source"]), (&Value::Null, &json!({})));
}

/// The operator asks so what time it is, when many nodes look expired at once.
fn an_event_that_is_not_stored_tells_the_servers_time(stage: &Stage) {
    let events = stage.at("v1", "events");
    let mut asked = event(stage, "", "web", "Clock");
    asked["metadata"] = json!({"generateName": "clock-"});
    let answer = stage.client.post(&format!("{events}?dryRun=All"), &asked).unwrap();
    assert_eq!(answer.status, 201);
    assert!(answer.body["metadata"]["creationTimestamp"].is_string(), "{}", answer.body);
    assert_eq!(names(&stage.read(&events)), [] as [&str; 0]);
}

fn an_event_about_another_namespace_is_refused(stage: &Stage) {
    let mut body = event(stage, "one", "web", "Failed");
    body["involvedObject"]["namespace"] = json!("elsewhere");
    let answer = stage.client.post(&stage.at("v1", "events"), &body).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert_eq!(
        answer.message(),
        r#"Event "one" is invalid: involvedObject.namespace: Invalid value: "elsewhere": does not match event.namespace"#
    );
}

fn a_new_event_must_say_who_saw_what(stage: &Stage) {
    let mut body = new_event(stage, "one");
    for field in ["reportingController", "reportingInstance", "action", "reason"] {
        body.as_object_mut().unwrap().remove(field);
    }
    let answer = stage.client.post(&stage.at("events.k8s.io/v1", "events"), &body).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert_eq!(
        causes(&answer),
        [
            "FieldValueRequired reportingController",
            "FieldValueInvalid reportingController",
            "FieldValueInvalid reportingController",
            "FieldValueRequired reportingInstance",
            "FieldValueRequired action",
            "FieldValueRequired reason"
        ]
    );
    let mut body = new_event(stage, "one");
    body["type"] = json!("Odd");
    let answer = stage.client.post(&stage.at("events.k8s.io/v1", "events"), &body).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert_eq!(causes(&answer), ["FieldValueInvalid type"]);
}

fn events_are_chosen_by_what_they_are_about(stage: &Stage) {
    for (name, about, reason) in [("a", "web", "Failed"), ("b", "web", "Pulled"), ("c", "db", "Failed")] {
        stage.create(&stage.at("v1", "events"), &event(stage, name, about, reason));
    }
    #[rustfmt::skip]
    let cases: [(&str, &[&str]); 5] = [
        ("involvedObject.name%3Dweb", &["a", "b"]), ("involvedObject.kind%3DPod,reason%3DFailed", &["a", "c"]),
        ("type%3DNormal", &[]), ("source%3Dtester", &["a", "b", "c"]), ("involvedObject.name!%3Dweb", &["c"]),
    ];
    for (selector, expected) in cases {
        assert_eq!(
            names(&stage.read(&format!("{}?fieldSelector={selector}", stage.at("v1", "events")))),
            expected,
            "{selector}"
        );
    }
}

fn an_event_is_counted_up_by_a_patch(stage: &Stage) {
    stage.create(&stage.at("v1", "events"), &event(stage, "one", "web", "Failed"));
    let patch = json!({"count": 3, "lastTimestamp": "2026-01-01T00:02:00Z"});
    let patched = stage.patch(&stage.object("v1", "events", "one"), "strategic-merge", &patch);
    assert_eq!((&patched["count"], &patched["lastTimestamp"]), (&json!(3), &json!("2026-01-01T00:02:00Z")));
}

fn a_table_of_events_says_what_happened(stage: &Stage) {
    stage.create(&stage.at("v1", "events"), &event(stage, "one", "web", "Failed"));
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let table = stage.client.call("GET", &stage.at("v1", "events")).header("Accept", accept).send().unwrap().body;
    let cells = &table["rows"][0]["cells"];
    assert_eq!(
        (&cells[1], &cells[2], &cells[3], &cells[6]),
        (&json!("Warning"), &json!("Failed"), &json!("pod/web"), &json!("Failed of web"))
    );
    assert_eq!((&cells[5], &cells[8], &cells[9]), (&json!("tester, here"), &json!(2), &json!("one")));
}

fn a_lease_is_taken_over_by_who_saw_it_last(stage: &Stage) {
    let leases = stage.at("coordination.k8s.io/v1", "leases");
    let lease = json!({"metadata": {"name": "leader"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z", "leaseTransitions": 0}});
    let seen = stage.create(&leases, &lease);
    let path = format!("{leases}/leader");
    let take = |by: &str| {
        let mut lease = seen.clone();
        lease["spec"]["holderIdentity"] = json!(by);
        lease["spec"]["leaseTransitions"] = json!(1);
        stage.client.put(&path, &lease).unwrap()
    };
    assert_eq!(take("b").status, 200);
    refused_with(&take("c"), 409, "Conflict");
    assert_eq!(stage.read(&path)["spec"]["holderIdentity"], "b");
    let list = stage.read(&cluster("coordination.k8s.io/v1", "leases"));
    assert_eq!(list["kind"], "LeaseList");
}

fn a_lease_counts_in_microseconds(stage: &Stage) {
    let leases = stage.at("coordination.k8s.io/v1", "leases");
    for (index, (written, kept)) in [
        ("2026-01-01T00:00:00.123456Z", "2026-01-01T00:00:00.123456Z"),
        ("2026-01-01T02:00:00.500000+02:00", "2026-01-01T00:00:00.500000Z"),
    ]
    .into_iter()
    .enumerate()
    {
        let lease = json!({"metadata": {"name": format!("l{index}")}, "spec": {"renewTime": written}});
        let answer = stage.client.post(&leases, &lease).unwrap();
        assert_eq!((answer.status, &answer.body["spec"]["renewTime"]), (201, &json!(kept)), "{}", answer.message());
    }
    for (written, complaint) in [
        ("yesterday", r#"cannot parse "yesterday" as "2006""#),
        ("2026-01-01T00:00:00Z", r#"cannot parse "Z" as ".000000""#),
    ] {
        let lease = json!({"metadata": {"name": "bad"}, "spec": {"renewTime": written}});
        let answer = stage.client.post(&leases, &lease).unwrap();
        let said = format!(
            "Lease in version \"v1\" cannot be handled as a Lease: parsing time \"{written}\" as \"2006-01-02T15:04:05.000000Z07:00\": {complaint}"
        );
        refused(&answer, 400, "BadRequest", &said);
    }
}

fn a_lease_is_validated(stage: &Stage) {
    let leases = stage.at("coordination.k8s.io/v1", "leases");
    let lease = json!({"metadata": {"name": "one"}, "spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}});
    let answer = stage.client.post(&leases, &lease).unwrap();
    refused(
        &answer,
        422,
        "Invalid",
        r#"Lease.coordination.k8s.io "one" is invalid: [spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0, spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0]"#,
    );
}
