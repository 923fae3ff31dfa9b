//! Managed fields are named as in the version through which they were written.

use serde_json::{Value, json};

use super::stage::{BETA, GROUP, Stage, V1, definition, gadget};

fn stage() -> Stage {
    let stage = Stage::converting();
    stage.define(&definition("Webhook"));
    stage
}

/// Manager, operation, version and fields of the spec.
fn managers(object: &Value) -> Vec<String> {
    let mut managers: Vec<String> = object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| {
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            let version = text("apiVersion").rsplit('/').next().unwrap_or_default().to_owned();
            let fields: Vec<String> = entry["fieldsV1"]["f:spec"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, _)| key.trim_start_matches("f:").to_owned())
                .filter(|key| key != ".")
                .collect();
            format!("{} {} {version}: {}", text("manager"), text("operation"), fields.join(" "))
        })
        .collect();
    managers.sort();
    managers
}

#[test]
fn an_entry_keeps_the_version_it_was_written_through() {
    let stage = stage();
    stage.create(BETA, &gadget("v1beta1", "one", json!({"sizeText": "3", "note": "n"})));
    let now = stage.patch(&format!("{V1}/one"), "merge", &json!({"spec": {"replicas": 2}}));
    assert_eq!(managers(&now), ["tester Update v1: replicas", "tester Update v1beta1: note sizeText"]);
    assert_eq!(managers(&stage.get(&format!("{BETA}/one"))), managers(&now));
}

#[test]
fn a_field_that_changes_in_one_version_is_lost_by_its_manager_in_another() {
    let stage = stage();
    stage.create(BETA, &gadget("v1beta1", "one", json!({"sizeText": "3", "note": "n"})));
    let now = stage.patch(&format!("{V1}/one"), "merge", &json!({"spec": {"size": 4}}));
    assert_eq!(managers(&now), ["tester Update v1: size", "tester Update v1beta1: note"]);
}

#[test]
fn appliers_of_different_versions_conflict_over_the_same_thing() {
    let stage = stage();
    let path = |version: &str| format!("{version}/one");
    let answer = stage.apply(&path(BETA), "old", &gadget("v1beta1", "one", json!({"sizeText": "3"})));
    assert_eq!(answer.status, 201);
    let answer = stage.apply(&path(V1), "new", &gadget("v1", "one", json!({"size": 4})));
    let (code, reason, message) = Stage::refusal(&answer);
    assert_eq!((code, reason.as_str()), (409, "Conflict"));
    assert_eq!(message, "Apply failed with 1 conflict: conflict with \"old\": .spec.sizeText");
    let answer = stage.apply(&format!("{}?force=false", path(V1)), "none", &gadget("v1", "one", json!({"size": 3})));
    assert_eq!(answer.status, 200, "the same value is nobody's loss");
}

#[test]
fn an_applier_that_comes_back_in_another_version_gives_up_what_it_no_longer_applies() {
    let stage = stage();
    let one = gadget("v1beta1", "one", json!({"sizeText": "3", "note": "n"}));
    assert_eq!(stage.apply(&format!("{BETA}/one"), "applier", &one).status, 201);
    let applied = stage.apply(&format!("{V1}/one"), "applier", &gadget("v1", "one", json!({"size": 3})));
    assert_eq!(applied.status, 200, "{}", applied.to_value());
    let applied = applied.to_value();
    assert_eq!(applied["spec"], json!({"size": 3, "colour": "grey"}), "the note is gone, the size is still its own");
    assert_eq!(managers(&applied), ["applier Apply v1: size"]);
    let back =
        stage.apply(&format!("{BETA}/one"), "applier", &gadget("v1beta1", "one", json!({"note": "m"}))).to_value();
    assert_eq!(back["spec"], json!({"note": "m"}));
    assert_eq!(stage.get(&format!("{V1}/one"))["spec"], json!({"note": "m", "colour": "grey"}));
}

#[test]
fn what_others_have_is_not_given_up_with_it() {
    let stage = stage();
    let one = gadget("v1beta1", "one", json!({"sizeText": "3", "note": "n"}));
    stage.apply(&format!("{BETA}/one"), "applier", &one);
    let shared = gadget("v1", "one", json!({"size": 3, "replicas": 2}));
    assert_eq!(stage.apply(&format!("{V1}/one"), "other", &shared).status, 200);
    let now =
        stage.apply(&format!("{BETA}/one"), "applier", &gadget("v1beta1", "one", json!({"note": "n"}))).to_value();
    assert_eq!(now["spec"], json!({"sizeText": "3", "note": "n", "replicas": 2}));
    assert_eq!(managers(&now), ["applier Apply v1beta1: note", "other Apply v1: replicas size"]);
}

#[test]
fn without_a_conversion_an_update_forgets_who_manages_what_and_goes_on() {
    let stage = Stage::plain();
    stage.define(&definition("None"));
    stage.create(BETA, &gadget("v1beta1", "one", json!({"note": "n"})));
    let mut with_webhook = definition("Webhook");
    with_webhook["metadata"]["resourceVersion"] =
        stage.get(super::stage::DEFINITION)["metadata"]["resourceVersion"].clone();
    stage.put(super::stage::DEFINITION, &with_webhook);
    let path = format!("{V1}/one");
    let applied = stage.apply(&path, "applier", &gadget("v1", "one", json!({"size": 4})));
    let message = format!("conversion webhook for {GROUP}/v1, Kind=Gadget failed: nothing converts here");
    assert_eq!(Stage::refusal(&applied), (500, String::new(), message));
    let patched = stage.patch(&path, "merge", &json!({"spec": {"size": 4}}));
    assert_eq!((&patched["spec"]["size"], &patched["metadata"]["managedFields"]), (&json!(4), &Value::Null));
}

#[test]
fn where_only_the_version_s_name_changes_who_wrote_through_one_that_does_not_know_a_field_is_forgotten() {
    let stage = Stage::plain();
    stage.define(&definition("None"));
    stage.create(BETA, &gadget("v1beta1", "one", json!({"note": "n"})));
    assert_eq!(managers(&stage.get(&format!("{V1}/one"))), ["tester Update v1beta1: note"]);
    let path = format!("{V1}/one");
    let applied = stage.apply(&path, "applier", &gadget("v1", "one", json!({"size": 4})));
    assert_eq!(Stage::refusal(&applied), (500, String::new(), ".spec.colour: field not declared in schema".to_owned()));
    let patched = stage.patch(&path, "merge", &json!({"spec": {"replicas": 2}}));
    assert_eq!(patched["metadata"]["managedFields"], Value::Null);
}
