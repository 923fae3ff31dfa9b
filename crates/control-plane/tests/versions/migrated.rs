//! The version that is kept changes: what is there stays readable, and is rewritten by the next write.

use serde_json::{Value, json};

use super::stage::{BETA, DEFINITION, GROUP, Stage, V1, definition, gadget};

#[test]
fn stored_versions_grow_with_what_is_written_and_shrink_by_hand() {
    let stage = Stage::plain();
    stage.define(&definition("None"));
    let stored = || stage.get(DEFINITION)["status"]["storedVersions"].clone();
    assert_eq!(stored(), json!(["v1"]));
    let changed = stage.keep_in("v1beta1");
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v1beta1"]), "the answer says so already");
    assert_eq!(stored(), json!(["v1", "v1beta1"]));
    stage.keep_in("v1");
    assert_eq!(stored(), json!(["v1", "v1beta1"]));
    stage.patch(&format!("{DEFINITION}/status"), "merge", &json!({"status": {"storedVersions": ["v1"]}}));
    assert_eq!(stored(), json!(["v1"]));
    let mut definition = stage.get(DEFINITION);
    definition["status"]["storedVersions"] = json!(["v1", "v1beta1"]);
    stage.put(&format!("{DEFINITION}/status"), &definition);
    assert_eq!(stored(), json!(["v1", "v1beta1"]));
    definition = stage.get(DEFINITION);
    definition["status"]["storedVersions"] = json!(["v1"]);
    stage.put(DEFINITION, &definition);
    assert_eq!(stored(), json!(["v1", "v1beta1"]), "only through the status");
}

#[test]
fn a_version_in_which_something_may_be_kept_stays_in_the_definition() {
    let stage = Stage::plain();
    stage.define(&definition("None"));
    stage.keep_in("v1beta1");
    stage.keep_in("v1");
    let without_beta = json!({"spec": {"versions": [stage.get(DEFINITION)["spec"]["versions"][1]]}});
    let answer = stage.ask("PATCH", DEFINITION, "application/merge-patch+json", &without_beta);
    let (code, reason, message) = Stage::refusal(&answer);
    assert_eq!((code, reason.as_str()), (422, "Invalid"));
    assert!(
        message.ends_with(
            "status.storedVersions[1]: Invalid value: \"v1beta1\": missing from spec.versions; v1beta1 was previously a storage \
             version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1beta1 and \
             removes v1beta1 from status.storedVersions"
        ),
        "{message}"
    );
    stage.patch(&format!("{DEFINITION}/status"), "merge", &json!({"status": {"storedVersions": ["v1"]}}));
    stage.redefine(&without_beta);
    assert_eq!(stage.ask("GET", BETA, "", &Value::Null).status, 404);
    stage.create(V1, &gadget("v1", "one", json!({})));
}

#[test]
fn what_was_kept_before_is_read_converted_until_a_write_rewrites_it() {
    let stage = Stage::converting();
    stage.define(&definition("Webhook"));
    stage.keep_in("v1beta1");
    stage.create(BETA, &gadget("v1beta1", "one", json!({"sizeText": "3"})));
    stage.create(BETA, &gadget("v1beta1", "two", json!({"sizeText": "4"})));
    stage.keep_in("v1");
    stage.n_conversions();
    let path = format!("{V1}/one");
    let before = stage.get(&path);
    assert_eq!(before["spec"], json!({"size": 3}));
    assert_eq!(stage.n_conversions(), 1);
    assert_eq!(stage.get(&format!("{BETA}/one"))["spec"], json!({"sizeText": "3"}));
    assert_eq!(stage.n_conversions(), 0, "it is kept in this version still");
    assert_eq!(stage.get(V1)["items"][1]["spec"]["size"], 4);
    let put = stage.put(&path, &before);
    assert_ne!(put["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"], "it is written anew");
    assert_eq!(put["spec"], json!({"size": 3, "colour": "grey"}));
    stage.n_conversions();
    assert_eq!(stage.get(&path), put);
    assert_eq!(stage.n_conversions(), 0);
    assert_eq!(stage.put(&path, &put), put, "once");
    stage.patch(&format!("{V1}/two"), "merge", &json!({}));
    stage.n_conversions();
    assert_eq!(stage.get(V1)["items"].as_array().unwrap().len(), 2);
    assert_eq!(stage.n_conversions(), 0);
}

#[test]
fn objects_of_an_older_version_are_deleted_collected_and_watched() {
    let stage = Stage::converting();
    stage.define(&definition("Webhook"));
    stage.keep_in("v1beta1");
    let owner = stage.create(BETA, &gadget("v1beta1", "owner", json!({"sizeText": "3"})));
    let mut dependent = gadget("v1beta1", "dependent", json!({"sizeText": "4"}));
    dependent["metadata"]["ownerReferences"] = json!([{"apiVersion": format!("{GROUP}/v1"), "kind": "Gadget", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    stage.create(BETA, &dependent);
    stage.keep_in("v1");
    let mut watch = stage.watch(&format!("{V1}?watch=true"));
    stage.delete(&format!("{V1}/owner"));
    stage.plane.settle();
    assert_eq!(stage.get(V1)["items"], json!([]));
    let told: Vec<String> = watch
        .take()
        .into_iter()
        .map(|(kind, object)| {
            format!("{kind} {} {}", object["metadata"]["name"].as_str().unwrap(), object["spec"]["size"])
        })
        .collect();
    assert_eq!(told, ["ADDED dependent 4", "ADDED owner 3", "DELETED owner 3", "DELETED dependent 4"]);
}

#[test]
fn a_version_may_be_kept_and_not_served() {
    let stage = Stage::converting();
    let mut definition = definition("Webhook");
    definition["spec"]["versions"][1]["served"] = json!(false);
    stage.define(&definition);
    stage.create(BETA, &gadget("v1beta1", "one", json!({"sizeText": "3"})));
    assert_eq!(stage.ask("GET", V1, "", &Value::Null).status, 404);
    assert_eq!(
        stage.get(&format!("{BETA}/one"))["metadata"]["annotations"],
        json!({"shapes.kerf.test/colour": "grey"})
    );
    let patched = stage.patch(&format!("{BETA}/one"), "merge", &json!({"spec": {"sizeText": "4"}}));
    assert_eq!(patched["spec"], json!({"sizeText": "4"}));
    stage.delete(DEFINITION);
    stage.plane.settle();
    assert_eq!(stage.ask("GET", DEFINITION, "", &Value::Null).status, 404, "its objects went with it");
}

#[test]
fn a_list_of_the_past_is_read_as_things_are_defined_now() {
    let stage = Stage::converting();
    stage.define(&definition("Webhook"));
    stage.keep_in("v1beta1");
    let created = stage.create(BETA, &gadget("v1beta1", "one", json!({"sizeText": "3"})));
    stage.keep_in("v1");
    stage.patch(&format!("{V1}/one"), "merge", &json!({"spec": {"size": 4}}));
    let then = created["metadata"]["resourceVersion"].as_str().unwrap();
    let list = stage.get(&format!("{V1}?resourceVersion={then}&resourceVersionMatch=Exact"));
    assert_eq!(list["items"][0]["spec"], json!({"size": 3}));
}
