//! Watches in one version of what is written in another.

use serde_json::{Value, json};

use super::stage::{BETA, DEFINITION, GROUP, Stage, V1, converted, definition, gadget};

/// Types, names and sizes.
fn told(events: Vec<(String, Value)>) -> Vec<String> {
    let said = |(kind, object): (String, Value)| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let spec = &object["spec"];
        let size = spec["sizeText"].as_str().map_or_else(|| spec["size"].to_string(), |text| format!("\"{text}\""));
        let version =
            object["apiVersion"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default().to_owned();
        format!("{kind} {version} {name} {size}")
    };
    events.into_iter().map(said).collect()
}

#[test]
fn events_are_in_the_version_that_is_watched() {
    let stage = Stage::converting();
    stage.define(&definition("Webhook"));
    stage.create(V1, &gadget("v1", "zero", json!({"size": 0})));
    let mut beta = stage.watch(&format!("{BETA}?watch=true&allowWatchBookmarks=true"));
    let mut v1 = stage.watch(&format!("{V1}?watch=true"));
    stage.create(BETA, &gadget("v1beta1", "one", json!({"sizeText": "1"})));
    stage.patch(&format!("{V1}/one"), "merge", &json!({"spec": {"size": 2}}));
    stage.delete(&format!("{V1}/one"));
    assert_eq!(told(v1.take()), ["ADDED v1 zero 0", "ADDED v1 one 1", "MODIFIED v1 one 2", "DELETED v1 one 2"]);
    assert_eq!(
        told(beta.take()),
        [
            "ADDED v1beta1 zero \"0\"",
            "ADDED v1beta1 one \"1\"",
            "MODIFIED v1beta1 one \"2\"",
            "DELETED v1beta1 one \"2\"",
        ]
    );
    let bookmark = beta.bookmark();
    assert_eq!(
        (&bookmark["type"], &bookmark["object"]["apiVersion"]),
        (&json!("BOOKMARK"), &json!(format!("{GROUP}/v1beta1")))
    );
}

#[test]
fn a_watch_resumes_from_the_past_in_its_version() {
    let stage = Stage::converting();
    stage.define(&definition("Webhook"));
    let created = stage.create(V1, &gadget("v1", "one", json!({"size": 1})));
    stage.patch(&format!("{V1}/one"), "merge", &json!({"spec": {"size": 2}}));
    stage.delete(&format!("{V1}/one"));
    let from = created["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = stage.watch(&format!("{BETA}?watch=true&resourceVersion={from}"));
    let events = watch.take();
    let deleted = events[1].1["metadata"]["resourceVersion"].clone();
    assert_eq!(told(events), ["MODIFIED v1beta1 one \"2\"", "DELETED v1beta1 one \"2\""]);
    assert!(deleted.as_str().unwrap().parse::<u64>().unwrap() > from.parse().unwrap());
}

#[test]
fn a_watch_selects_what_its_version_shows() {
    let stage = Stage::converting();
    stage.define(&definition("Webhook"));
    stage.create(V1, &gadget("v1", "one", json!({"size": 1})));
    let mut watch = stage.watch(&format!("{BETA}?watch=true&fieldSelector=spec.sizeText%3D2"));
    assert!(watch.take().is_empty());
    stage.patch(&format!("{V1}/one"), "merge", &json!({"spec": {"size": 2}}));
    let changed = stage.patch(&format!("{V1}/one"), "merge", &json!({"spec": {"size": 3}}));
    let events = watch.take();
    assert_eq!(events[1].1["metadata"]["resourceVersion"], changed["metadata"]["resourceVersion"]);
    assert_eq!(told(events), ["ADDED v1beta1 one \"2\"", "DELETED v1beta1 one \"2\""]);
}

#[test]
fn nothing_is_converted_before_somebody_takes_it() {
    let stage = Stage::converting();
    stage.define(&definition("Webhook"));
    stage.create(V1, &gadget("v1", "one", json!({"size": 1})));
    let mut watch = stage.watch(&format!("{BETA}?watch=true"));
    stage.patch(&format!("{V1}/one"), "merge", &json!({"spec": {"size": 2}}));
    assert_eq!(stage.n_conversions(), 0);
    assert_eq!(watch.take().len(), 2);
    assert_eq!(stage.n_conversions(), 2);
}

#[test]
fn a_watch_ends_at_what_cannot_be_converted() {
    let stage = Stage::converting_by(|object, to| match object["spec"]["size"].as_i64() {
        Some(13) => Err("unlucky".to_owned()),
        _ => converted(object, to),
    });
    stage.define(&definition("Webhook"));
    stage.create(V1, &gadget("v1", "one", json!({"size": 1})));
    let mut watch = stage.watch(&format!("{BETA}?watch=true"));
    stage.patch(&format!("{V1}/one"), "merge", &json!({"spec": {"size": 13}}));
    stage.patch(&format!("{V1}/one"), "merge", &json!({"spec": {"size": 14}}));
    let mut events = watch.take();
    let (kind, error) = events.pop().unwrap();
    assert_eq!(told(events), ["ADDED v1beta1 one \"1\""]);
    let message = format!("conversion webhook for {GROUP}/v1, Kind=Gadget failed: unlucky");
    assert_eq!((kind.as_str(), &error["code"], &error["message"]), ("ERROR", &json!(500), &json!(message)));
    assert!(watch.has_ended());
}

#[test]
fn a_watch_ends_when_its_definition_changes_and_not_when_its_status_does() {
    let stage = Stage::plain();
    stage.define(&definition("None"));
    let mut watch = stage.watch(&format!("{V1}?watch=true&resourceVersion=0"));
    stage.patch(&format!("{DEFINITION}/status"), "merge", &json!({"status": {"storedVersions": ["v1"]}}));
    stage.redefine(&json!({"metadata": {"labels": {"a": "b"}}}));
    stage.create(V1, &gadget("v1", "one", json!({"size": 1})));
    assert_eq!(told(watch.take()), ["ADDED v1 one 1"]);
    stage.create(V1, &gadget("v1", "two", json!({"size": 2})));
    stage.keep_in("v1beta1");
    assert_eq!(told(watch.take()), ["ADDED v1 two 2"], "what happened before is told");
    assert!(watch.has_ended());
}

#[test]
fn metadata_is_watched_in_every_version() {
    let stage = Stage::converting();
    stage.define(&definition("Webhook"));
    stage.create(V1, &gadget("v1", "one", json!({"size": 1})));
    let list = stage.plane.server().handle(&kerf_control_plane::request::Request {
        method: "GET".to_owned(),
        path: BETA.to_owned(),
        accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1".to_owned(),
        ..kerf_control_plane::request::Request::default()
    });
    let list = list.to_value();
    assert_eq!(list["items"][0]["metadata"]["name"], "one");
    assert_eq!(list["items"][0]["metadata"]["annotations"], json!({"shapes.kerf.test/colour": "grey"}));
}
