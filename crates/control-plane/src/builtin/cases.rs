//! The built-in kinds' rules beside what a real server was seen to say: `cases/verdicts.yaml`, `cases/defaults.yaml`.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::clock::Clock;
use crate::kind::Catalog;
use crate::request::Request;
use crate::rest::Body;
use crate::server::Server;

#[derive(Deserialize)]
struct Verdict {
    name: String,
    /// What is there already.
    before: Option<Value>,
    given: Value,
    patch: Option<Value>,
    #[serde(default)]
    subresource: String,
    /// 422 unless it says so.
    code: Option<u16>,
    says: String,
}

/// A cluster with a namespace and its service account.
fn server() -> Server {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let server = Server::new(clock, 1);
    send(&server, "POST", "/api/v1/namespaces", "", &json!({ "metadata": { "name": "cases" } }));
    let account = json!({ "metadata": { "name": "default" } });
    send(&server, "POST", "/api/v1/namespaces/cases/serviceaccounts", "", &account);
    server
}

fn send(server: &Server, method: &str, path: &str, content_type: &str, body: &Value) -> (u16, Value) {
    let (status, body, _) = send_and_hear(server, method, path, content_type, body);
    (status, body)
}

/// The last are the warnings.
fn send_and_hear(
    server: &Server,
    method: &str,
    path: &str,
    content_type: &str,
    body: &Value,
) -> (u16, Value, Vec<String>) {
    let request = Request {
        method: method.to_owned(),
        path: path.to_owned(),
        content_type: if content_type.is_empty() { "application/json" } else { content_type }.to_owned(),
        accept: "application/json".to_owned(),
        body: Bytes::from(body.to_string()),
        ..Request::default()
    };
    let answer = server.handle(&request);
    let Body::Whole(bytes) = answer.body else { return (answer.status, Value::Null, answer.warnings) };
    (answer.status, serde_json::from_slice(&bytes).unwrap_or_default(), answer.warnings)
}

fn collection(object: &Value) -> String {
    let catalog = Catalog::built_in();
    let text = |field: &str| object[field].as_str().unwrap().to_owned();
    let resource = catalog.of_kind(&text("apiVersion"), &text("kind")).unwrap();
    let base = if resource.group.is_empty() { "api" } else { "apis" };
    let scope = if resource.namespaced { "/namespaces/cases" } else { "" };
    format!("/{base}/{}{scope}/{}", resource.api_version(), resource.plural)
}

fn judge(case: &Verdict) -> (u16, String) {
    let server = server();
    if let Some(before) = &case.before {
        let (status, answer) = send(&server, "POST", &collection(before), "", before);
        assert_eq!(status, 201, "{}: {}", case.name, answer["message"]);
    }
    let path = collection(&case.given);
    let mut answer = send(&server, "POST", &path, "", &case.given);
    if let Some(patch) = &case.patch {
        assert_eq!(answer.0, 201, "{}: {}", case.name, answer.1["message"]);
        let mut path = format!("{path}/{}", case.given["metadata"]["name"].as_str().unwrap());
        if !case.subresource.is_empty() {
            path = format!("{path}/{}", case.subresource);
        }
        answer = send(&server, "PATCH", &path, "application/merge-patch+json", patch);
    }
    let message = answer.1["message"].as_str().unwrap_or_default();
    (answer.0, if answer.0 < 300 { String::new() } else { message.to_owned() })
}

#[test]
fn objects_are_judged_as_the_real_server_judges_them() {
    let cases: Vec<Verdict> = serde_norway::from_str(include_str!("cases/verdicts.yaml")).unwrap();
    let uid = regex::Regex::new("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").unwrap();
    let mut wrong = Vec::new();
    for case in &cases {
        let (code, said) = judge(case);
        // A uid is made on the spot.
        let said = uid.replace_all(&said, "<uid>").into_owned();
        let wanted = if case.says.is_empty() { code < 300 } else { code == case.code.unwrap_or(422) };
        if said != case.says || !wanted {
            wrong.push(format!("{}\n  real {}\n  ours {code} {said}", case.name, case.says));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[derive(Deserialize)]
struct Shown {
    given: Value,
    shown: Value,
}

/// The object without what differs from run to run.
fn without_chance(mut object: Value) -> Value {
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["creationTimestamp", "managedFields", "namespace", "uid", "resourceVersion"] {
            metadata.remove(field);
        }
    }
    if !uid.is_empty() {
        object = serde_json::from_str(&object.to_string().replace(&uid, "<uid>")).unwrap();
    }
    let has_address = object["spec"]["clusterIP"].as_str().is_some_and(|address| address.starts_with("10.96."));
    if object["kind"] == "Service" && has_address {
        object["spec"]["clusterIP"] = json!("<ip>");
        object["spec"]["clusterIPs"] = json!(["<ip>"]);
        for port in object["spec"]["ports"].as_array_mut().into_iter().flatten() {
            if port.get("nodePort").is_some_and(|number| *number != 31234) {
                port["nodePort"] = json!("<port>");
            }
        }
    }
    if let Some(time) = object.pointer_mut("/status/lastPhaseTransitionTime") {
        *time = json!("<now>");
    }
    for condition in object["status"]["conditions"].as_array_mut().into_iter().flatten() {
        if condition["lastTransitionTime"].is_string() {
            condition["lastTransitionTime"] = json!("<now>");
        }
    }
    object
}

#[test]
fn objects_are_shown_as_the_real_server_shows_them() {
    let cases: Vec<Shown> = serde_norway::from_str(include_str!("cases/defaults.yaml")).unwrap();
    let mut wrong = Vec::new();
    for case in &cases {
        let (status, answer) = send(&server(), "POST", &collection(&case.given), "", &case.given);
        if status != 201 {
            wrong.push(format!("{}\n  {}", case.given, answer["message"]));
            continue;
        }
        let (ours, real) = (without_chance(answer), without_chance(case.shown.clone()));
        if ours != real {
            wrong.push(format!("{}\n  real {real}\n  ours {ours}", case.given["kind"]));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[derive(Deserialize)]
struct Warned {
    given: Value,
    warns: Vec<String>,
}

#[test]
fn objects_are_warned_of_as_the_real_server_warns_of_them() {
    let cases: Vec<Warned> = serde_norway::from_str(include_str!("cases/warnings.yaml")).unwrap();
    for case in &cases {
        let (_, answer, warnings) = send_and_hear(&server(), "POST", &collection(&case.given), "", &case.given);
        assert_eq!(warnings, case.warns, "{}\n{}", case.given, answer["message"]);
    }
}
