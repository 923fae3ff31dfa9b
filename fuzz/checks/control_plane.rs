//! A populated control plane that judges its own answers: each is a whole object or a whole `Status`, and watches tell all.

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use kerf_control_plane::clock::Clock;
use kerf_control_plane::request::Request;
use kerf_control_plane::rest::watch::Watch;
use kerf_control_plane::rest::{Answer, Body};
use kerf_control_plane::store::ResourceId;
use kerf_control_plane::{ControlPlane, Options};
use serde_json::{Value, json};

/// A client may open as many watches as it likes; looking at a few of them is enough.
const WATCHES_MAX: usize = 8;
/// More events than this from a handful of requests would be a loop.
const EVENTS_MAX: usize = 100_000;

pub(crate) struct Rehearsal {
    plane: ControlPlane,
    watches: Vec<Watch>,
    /// Hears of every ConfigMap since `since`.
    witness: Box<Watch>,
    since: u64,
    /// The last object that was answered.
    pub(crate) last: Value,
}

impl Rehearsal {
    /// With controllers whatever is asked for comes to pass, which takes its time: without them, far more is asked.
    pub(crate) fn new(with_controllers: bool) -> Self {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let clock = Clock::starting_at(start);
        let plane = ControlPlane::in_process(&Options { clock, with_controllers, ..Options::default() });
        plane.settle();
        for (path, body) in population() {
            let answer = plane.server().handle(&request("POST", path, "", "application/json", body.to_string()));
            // With controllers the service account is there already.
            assert!(answer.status < 300 || answer.status == 409, "{path}: {}", answer.to_value());
            plane.settle();
        }
        let since = plane.server().lock().store.revision();
        let query = format!("watch=true&resourceVersion={since}");
        let answer = plane.server().handle(&request("GET", "/api/v1/configmaps", &query, "", ""));
        let Body::Watch(witness) = answer.body else { panic!("a watch of ConfigMaps is a watch") };
        Self { plane, watches: Vec::new(), witness, since, last: Value::Null }
    }

    /// Asks, and judges the answer.
    pub(crate) fn ask(&mut self, request: &Request) {
        let answer = self.plane.server().handle(request);
        let about = || format!("{} {}?{}", request.method, request.path, request.query);
        assert!((200..600).contains(&answer.status), "{}: status {}", about(), answer.status);
        for warning in &answer.warnings {
            assert!(!warning.is_empty(), "{}: an empty warning", about());
        }
        if let Some(object) = whole(&answer, &about) {
            self.last = object;
        }
        if let Body::Watch(watch) = answer.body {
            assert_eq!(answer.status, 200, "{}", about());
            self.watches.push(*watch);
            if self.watches.len() > WATCHES_MAX {
                self.watches.remove(0);
            }
        }
    }

    /// Lets the controllers work.
    pub(crate) fn settle(&self) {
        self.plane.settle();
    }

    /// Lets time pass.
    pub(crate) fn advance(&self, seconds: u8) {
        self.plane.advance(SignedDuration::from_secs(i64::from(seconds)));
    }

    /// Looks at the watches and at everything that is stored.
    pub(crate) fn end(mut self) {
        for watch in &mut self.watches {
            for event in events(watch) {
                let kind = event["type"].as_str().unwrap_or_default();
                assert!(matches!(kind, "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR"), "{event}");
                assert!(event["object"]["kind"].is_string(), "{event}");
            }
        }
        let heard = events(&mut self.witness);
        let state = self.plane.server().lock();
        let happened = state.store.changes_after(&ResourceId::new("", "configmaps"), self.since);
        if let Ok(happened) = happened {
            assert_eq!(heard.len(), happened.len(), "a watch tells everything that happened");
        }
        let resources: Vec<ResourceId> = state.store.resources().cloned().collect();
        for id in resources {
            for stored in state.store.list(&id, "") {
                let object = stored.value();
                assert_eq!(object["metadata"]["name"], stored.key.name, "{id:?}");
                assert_eq!(object["metadata"]["resourceVersion"], stored.revision.to_string(), "{id:?}");
                assert!(object["metadata"]["uid"].is_string() && object["kind"].is_string(), "{object}");
            }
        }
    }
}

/// The object of an answer that is one, after a look at its form.
fn whole(answer: &Answer, about: &dyn Fn() -> String) -> Option<Value> {
    let bytes = match &answer.body {
        Body::Whole(bytes) => bytes.clone(),
        Body::Pieces(pieces) => Bytes::from(pieces.concat()),
        Body::Watch(_) => return None,
    };
    if answer.status == 404 && answer.content_type.starts_with("text/plain") {
        return None;
    }
    if !answer.content_type.starts_with("application/json") {
        assert!(answer.status < 300, "{}: a refusal is a Status", about());
        return None;
    }
    let object: Value = serde_json::from_slice(&bytes).unwrap_or_else(|error| {
        panic!("{}: {error} in {}", about(), String::from_utf8_lossy(&bytes));
    });
    if answer.status >= 300 {
        assert_eq!(object["kind"], "Status", "{}: {object}", about());
        assert_eq!(object["code"], answer.status, "{}: {object}", about());
        assert_eq!(object["status"], "Failure", "{}: {object}", about());
        assert!(object["message"].as_str().is_some_and(|message| !message.is_empty()), "{}: {object}", about());
        return None;
    }
    assert!(object.is_object(), "{}: {object}", about());
    Some(object)
}

/// Everything that a watch has to tell now.
fn events(watch: &mut Watch) -> Vec<Value> {
    let mut events = Vec::new();
    while let Some(bytes) = watch.try_next() {
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            events.push(serde_json::from_slice(line).expect("a line of a watch is JSON"));
        }
        assert!(events.len() < EVENTS_MAX, "a watch does not end");
    }
    events
}

pub(crate) fn request(method: &str, path: &str, query: &str, content_type: &str, body: impl Into<Bytes>) -> Request {
    Request {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        accept: String::new(),
        content_type: content_type.to_owned(),
        user_agent: "fuzz".to_owned(),
        body: body.into(),
    }
}

/// A little of everything that requests can refer to.
#[rustfmt::skip]
fn population() -> Vec<(&'static str, Value)> {
    let labels = json!({"app": "web"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}});
    vec![
        ("/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "default"}})),
        ("/api/v1/nodes", json!({"metadata": {"name": "n1", "annotations": {"kwok.x-k8s.io/node": "fake"}}, "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"}, "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}})),
        ("/api/v1/namespaces", json!({"metadata": {"name": "other"}})),
        ("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "a", "finalizers": ["kerf.test/hold"]}, "data": {"a": "1"}})),
        ("/api/v1/namespaces/default/pods", json!({"metadata": {"name": "web", "labels": labels}, "spec": template["spec"]})),
        ("/apis/apps/v1/namespaces/default/deployments", json!({"metadata": {"name": "web"}, "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}})),
        ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}})),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", json!({"metadata": {"name": "high"}, "value": 100})),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json!({"metadata": {"name": "gadgets.kerf.test"}, "spec": {"group": "kerf.test", "scope": "Namespaced",
            "names": {"plural": "gadgets", "kind": "Gadget"}, "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "default": {}, "x-kubernetes-validations": [{"rule": "!has(self.size) || self.size < 10"}, {"rule": "!has(oldSelf.size) || has(self.size)"}], "properties": {
                        "size": {"type": "integer", "default": 1}, "replicas": {"type": "integer"}, "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "parts": {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}}}},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}})),
        ("/apis/kerf.test/v1/namespaces/default/gadgets", json!({"apiVersion": "kerf.test/v1", "kind": "Gadget", "metadata": {"name": "a"}, "spec": {"size": 2, "parts": [{"name": "x"}]}})),
    ]
}
