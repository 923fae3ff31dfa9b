//! What would be.

use serde_json::{Value, json};

use crate::expect::{names, refused, refused_with};
use crate::objects::{config_map, pod};
use crate::stage::Stage;

crate::tests!(
    a_dry_creation_answers_and_keeps_nothing,
    a_dry_update_answers_and_changes_nothing,
    a_dry_deletion_answers_and_deletes_nothing,
    a_dry_collection_stays,
    a_dry_apply_shows_what_would_be,
    a_dry_run_is_validated,
    an_unknown_dry_run_is_refused,
);

fn a_dry_creation_answers_and_keeps_nothing(stage: &Stage) {
    let answer = stage.client.post(&format!("{}?dryRun=All", stage.pods()), &pod("one")).unwrap();
    assert_eq!((answer.status, &answer.body["spec"]["restartPolicy"]), (201, &json!("Always")));
    assert!(answer.body["metadata"]["uid"].is_string() && answer.body["metadata"]["creationTimestamp"].is_string());
    assert_eq!(answer.body["metadata"]["resourceVersion"], Value::Null, "it was never stored");
    assert!(stage.is_gone(&stage.object("v1", "pods", "one")));
}

fn a_dry_update_answers_and_changes_nothing(stage: &Stage) {
    let before = stage.create(&stage.config_maps(), &config_map("one", json!({"a": "1"})));
    let path = stage.object("v1", "configmaps", "one");
    let dry = stage.replace(&format!("{path}?dryRun=All"), &config_map("one", json!({"a": "2"})));
    assert_eq!(
        (&dry["data"], &dry["metadata"]["resourceVersion"]),
        (&json!({"a": "2"}), &before["metadata"]["resourceVersion"])
    );
    let dry = stage.patch(&format!("{path}?dryRun=All"), "merge", &json!({"data": {"b": "3"}}));
    assert_eq!(dry["data"], json!({"a": "1", "b": "3"}));
    assert_eq!(stage.read(&path), before);
}

fn a_dry_deletion_answers_and_deletes_nothing(stage: &Stage) {
    let before = stage.create(&stage.config_maps(), &config_map("one", json!({})));
    let path = stage.object("v1", "configmaps", "one");
    let status = stage.delete(&format!("{path}?dryRun=All"));
    assert_eq!((&status["status"], &status["details"]["uid"]), (&json!("Success"), &before["metadata"]["uid"]));
    let answer = stage.client.delete_with(&path, &json!({"dryRun": ["All"]})).unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(stage.read(&path), before);
}

fn a_dry_collection_stays(stage: &Stage) {
    let secrets = stage.at("v1", "secrets");
    stage.create(&secrets, &json!({"metadata": {"name": "a"}}));
    let answer = stage.client.delete(&format!("{secrets}?dryRun=All")).unwrap();
    assert_eq!((answer.status, names(&answer.body)), (200, vec!["a".to_owned()]));
    assert_eq!(names(&stage.read(&secrets)), ["a"]);
}

fn a_dry_apply_shows_what_would_be(stage: &Stage) {
    let path = stage.object("v1", "configmaps", "one");
    let answer = stage.apply(&path, "me", "dryRun=All", &config_map("one", json!({"a": "1"})));
    assert_eq!((answer.status, &answer.body["data"]), (201, &json!({"a": "1"})));
    assert_eq!(answer.body["metadata"]["managedFields"][0]["operation"], "Apply");
    assert!(stage.is_gone(&path));
}

fn a_dry_run_is_validated(stage: &Stage) {
    let mut pod = pod("one");
    pod["spec"]["containers"] = json!([]);
    let answer = stage.client.post(&format!("{}?dryRun=All", stage.pods()), &pod).unwrap();
    refused(&answer, 422, "Invalid", r#"Pod "one" is invalid: spec.containers: Required value"#);
    stage.create(&stage.config_maps(), &config_map("one", json!({})));
    let answer =
        stage.client.post(&format!("{}?dryRun=All", stage.config_maps()), &config_map("one", json!({}))).unwrap();
    refused_with(&answer, 409, "AlreadyExists");
}

fn an_unknown_dry_run_is_refused(stage: &Stage) {
    let answer =
        stage.client.post(&format!("{}?dryRun=Some", stage.config_maps()), &config_map("one", json!({}))).unwrap();
    refused(
        &answer,
        422,
        "Invalid",
        r#"CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All""#,
    );
}
