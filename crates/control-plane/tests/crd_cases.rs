//! Does the embedded server judge our objects as we say a server does?
//!
//! The table is `kerf_api::testing::crd_cases`; `e2e/tests/crds.rs` asks a real server about the same one.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

use std::path::Path;

use kerf_api::testing::{CrdCase, Expect, crd_cases};
use kerf_control_plane::custom::{CustomVersion, default_definition, resources, validate_definition};
use kerf_control_plane::error::ApiError;
use kerf_control_plane::kind::Resource;
use serde_json::Value;

fn definitions() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut definitions: Vec<Value> =
        paths.iter().map(|path| serde_norway::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()).collect();
    definitions.iter_mut().for_each(default_definition);
    definitions
}

#[test]
fn our_own_definitions_are_accepted() {
    for definition in definitions() {
        let errors = validate_definition(&definition, None);
        assert!(errors.is_empty(), "{}: {errors:?}", definition["metadata"]["name"]);
    }
}

#[test]
fn every_case_gets_the_verdict_that_the_real_server_gives() {
    let served: Vec<Resource> = definitions().iter().flat_map(resources).collect();
    let mut unexpected = Vec::new();
    let cases = crd_cases();
    for case in &cases {
        let resource = served
            .iter()
            .find(|resource| {
                case.object["kind"] == resource.kind && case.object["apiVersion"] == resource.api_version()
            })
            .unwrap();
        let refusal = judge(resource, case);
        let complaint = match (&case.expect, refusal) {
            (Expect::Accept, None) => continue,
            (Expect::Accept, Some(said)) => format!("should be accepted: {said}"),
            (Expect::Reject { .. }, None) => "should be rejected".to_owned(),
            (Expect::Reject { text }, Some(said)) if said.contains(text) => continue,
            (Expect::Reject { text }, Some(said)) => format!("is rejected in other words than {text:?}: {said}"),
        };
        unexpected.push(format!("{}: {complaint}", case.name));
    }
    assert!(cases.len() >= 470, "the whole table is asked");
    assert!(unexpected.is_empty(), "{} of {}:\n{}", unexpected.len(), cases.len(), unexpected.join("\n"));
}

/// What the server says, if it refuses.
fn judge(resource: &Resource, case: &CrdCase) -> Option<String> {
    let custom = resource.custom.as_ref().unwrap();
    let mut new = read(custom, &case.object);
    let errors = match &case.update_from {
        None => {
            if custom.has_status() {
                new.as_object_mut().unwrap().remove("status");
            }
            custom.validate(&new, None)
        }
        Some(before) => {
            let mut old = read(custom, before);
            old.as_object_mut().unwrap().remove("status");
            let before_errors = custom.validate(&old, None);
            assert!(before_errors.is_empty(), "{}: what it starts from is refused: {before_errors:?}", case.name);
            if case.subresource.as_deref() == Some("status") {
                let status = new["status"].take();
                new = old.clone();
                new["status"] = status;
                custom.validate_status(&new, &old)
            } else {
                new.as_object_mut().unwrap().remove("status");
                custom.validate(&new, Some(&old))
            }
        }
    };
    (!errors.is_empty()).then(|| ApiError::invalid(&resource.group, &resource.kind, "x", &errors).message)
}

fn read(custom: &CustomVersion, object: &Value) -> Value {
    let mut object = object.clone();
    custom.prune(&mut object);
    custom.default(&mut object);
    object
}
