//! A server with gadgets of two generations: in v1 `spec.size` is a number, in v1beta1 it is a text, `spec.sizeText`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kerf_control_plane::clock::Clock;
use kerf_control_plane::request::Request;
use kerf_control_plane::rest::{Answer, Body};
use kerf_control_plane::{ControlPlane, Converter, Options};
use serde_json::{Value, json};

pub(super) const GROUP: &str = "shapes.kerf.test";
pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(super) const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.shapes.kerf.test";
pub(super) const V1: &str = "/apis/shapes.kerf.test/v1/namespaces/default/gadgets";
pub(super) const BETA: &str = "/apis/shapes.kerf.test/v1beta1/namespaces/default/gadgets";

pub(super) struct Stage {
    pub(super) plane: ControlPlane,
    n_conversions: Arc<AtomicUsize>,
}

impl Stage {
    /// Without anything that converts.
    pub(super) fn plain() -> Self {
        Self::with(None)
    }

    /// With a converter that knows what a size is.
    pub(super) fn converting() -> Self {
        Self::converting_by(converted)
    }

    pub(super) fn converting_by(
        convert: impl Fn(&Value, &str) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        let n_conversions = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&n_conversions);
        let converter = Converter::new(move |object, to| {
            counter.fetch_add(1, Ordering::Relaxed);
            convert(object, to)
        });
        Self { n_conversions, ..Self::with(Some(converter)) }
    }

    fn with(converter: Option<Converter>) -> Self {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let plane = ControlPlane::in_process(&Options { clock, converter, ..Options::default() });
        plane.settle();
        Self { plane, n_conversions: Arc::default() }
    }

    /// How often the converter was called since the last time this was asked.
    pub(super) fn n_conversions(&self) -> usize {
        self.n_conversions.swap(0, Ordering::Relaxed)
    }

    pub(super) fn ask(&self, method: &str, path: &str, content_type: &str, body: &Value) -> Answer {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.plane.server().handle(&Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            content_type: content_type.to_owned(),
            user_agent: "tester/1".to_owned(),
            body: body.into(),
            ..Request::default()
        })
    }

    #[track_caller]
    fn good(answer: &Answer) -> Value {
        let body = answer.to_value();
        assert!(answer.status < 300, "{body}");
        body
    }

    #[track_caller]
    pub(super) fn get(&self, path: &str) -> Value {
        Self::good(&self.ask("GET", path, "", &Value::Null))
    }

    /// Status, reason and message of a refusal.
    #[track_caller]
    pub(super) fn refusal(answer: &Answer) -> (u16, String, String) {
        let body = answer.to_value();
        assert_eq!((&body["kind"], &body["status"]), (&json!("Status"), &json!("Failure")), "{body}");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (answer.status, text(&body["reason"]), text(&body["message"]))
    }

    #[track_caller]
    pub(super) fn create(&self, collection: &str, body: &Value) -> Value {
        Self::good(&self.ask("POST", collection, "application/json", body))
    }

    #[track_caller]
    pub(super) fn put(&self, path: &str, body: &Value) -> Value {
        Self::good(&self.ask("PUT", path, "application/json", body))
    }

    /// `kind` is `merge` or `json`.
    #[track_caller]
    pub(super) fn patch(&self, path: &str, kind: &str, body: &Value) -> Value {
        Self::good(&self.ask("PATCH", path, &format!("application/{kind}-patch+json"), body))
    }

    pub(super) fn apply(&self, path: &str, manager: &str, body: &Value) -> Answer {
        let path = if path.contains('?') {
            format!("{path}&fieldManager={manager}")
        } else {
            format!("{path}?fieldManager={manager}")
        };
        self.ask("PATCH", &path, "application/apply-patch+yaml", body)
    }

    #[track_caller]
    pub(super) fn delete(&self, path: &str) -> Value {
        Self::good(&self.ask("DELETE", path, "", &Value::Null))
    }

    /// As a table, as kubectl asks for it.
    pub(super) fn table(&self, path: &str) -> Value {
        self.plane
            .server()
            .handle(&Request {
                method: "GET".to_owned(),
                path: path.to_owned(),
                accept: "application/json;as=Table;v=v1;g=meta.k8s.io".to_owned(),
                ..Request::default()
            })
            .to_value()
    }

    /// A watch, from which events are taken.
    pub(super) fn watch(&self, path: &str) -> Events {
        match self.ask("GET", path, "", &Value::Null).body {
            Body::Watch(watch) => Events(watch),
            body => panic!("{body:?}"),
        }
    }

    #[track_caller]
    pub(super) fn define(&self, definition: &Value) {
        self.create(DEFINITIONS, definition);
        self.plane.settle();
    }

    /// Changes the definition as a merge patch says.
    #[track_caller]
    pub(super) fn redefine(&self, patch: &Value) -> Value {
        let changed = self.patch(DEFINITION, "merge", patch);
        self.plane.settle();
        changed
    }

    /// Makes `version` the one that is written.
    #[track_caller]
    pub(super) fn keep_in(&self, version: &str) -> Value {
        let mut definition = self.get(DEFINITION);
        for one in definition["spec"]["versions"].as_array_mut().unwrap() {
            one["storage"] = json!(one["name"] == version);
        }
        let changed = self.put(DEFINITION, &definition);
        self.plane.settle();
        changed
    }
}

pub(super) struct Events(Box<kerf_control_plane::rest::watch::Watch>);

impl Events {
    /// What has been told and not taken: types and objects.
    pub(super) fn take(&mut self) -> Vec<(String, Value)> {
        let mut text = Vec::new();
        while let Some(bytes) = self.0.try_next() {
            text.extend_from_slice(&bytes);
        }
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let events = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap());
        events.map(|event| (event["type"].as_str().unwrap().to_owned(), event["object"].clone())).collect()
    }

    pub(super) fn bookmark(&self) -> Value {
        serde_json::from_slice(&self.0.bookmark(false)).unwrap()
    }

    /// Whether nothing comes any more, to those who wait and to those who do not.
    pub(super) fn has_ended(mut self) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        self.0.has_ended() && runtime.block_on(async move { self.0.next().await.is_none() })
    }
}

/// Two served versions, kept in v1, that differ in how they say a size.
pub(super) fn definition(strategy: &str) -> Value {
    let conversion = match strategy {
        "Webhook" => json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://nobody.kerf.test/convert"}}}),
        _ => json!({"strategy": "None"}),
    };
    let version = |name: &str, size: &str, spec: Value| {
        let path = |field: &str| format!(".spec.{field}");
        json!({
            "name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": spec},
                "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
            }}},
            "subresources": {"status": {},
                "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
            "additionalPrinterColumns": [{"name": size, "type": "string", "jsonPath": path(size)}],
            "selectableFields": [{"jsonPath": path(size)}],
        })
    };
    let number = json!({"type": "integer", "maximum": 100});
    let text = json!({"type": "string"});
    let replicas = json!({"type": "integer"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("gadgets.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "conversion": conversion,
            "versions": [
                version("v1beta1", "sizeText", json!({"sizeText": text, "replicas": replicas, "note": text})),
                version("v1", "size", json!({"size": number, "replicas": replicas, "note": text,
                    "colour": {"type": "string", "default": "grey"}})),
            ],
        },
    })
}

pub(super) fn gadget(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{GROUP}/{version}"), "kind": "Gadget", "metadata": {"name": name}, "spec": spec})
}

/// Sizes are numbers in v1 and texts in v1beta1. Colours are kept in an annotation where there are none.
pub(super) fn converted(object: &Value, to: &str) -> Result<Value, String> {
    const COLOUR: &str = "shapes.kerf.test/colour";
    let mut object = object.clone();
    object["apiVersion"] = json!(to);
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(object) };
    if to.ends_with("/v1beta1") {
        if let Some(size) = spec.remove("size") {
            spec.insert("sizeText".to_owned(), json!(size.to_string()));
        }
        if let Some(colour) = spec.remove("colour") {
            object["metadata"]["annotations"][COLOUR] = colour;
        }
        return Ok(object);
    }
    if let Some(text) = spec.remove("sizeText") {
        let text = text.as_str().unwrap_or_default();
        let size: i64 = text.parse().map_err(|_| format!("spec.sizeText: {text} is no number"))?;
        spec.insert("size".to_owned(), json!(size));
    }
    let annotations = object["metadata"].get_mut("annotations").and_then(Value::as_object_mut);
    if let Some(annotations) = annotations
        && let Some(colour) = annotations.remove(COLOUR)
    {
        if annotations.is_empty() {
            object["metadata"].as_object_mut().unwrap().remove("annotations");
        }
        object["spec"]["colour"] = colour;
    }
    Ok(object)
}
