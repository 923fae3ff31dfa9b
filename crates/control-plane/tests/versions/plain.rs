//! The strategy `None`: only `apiVersion` changes, and what the other version does not know is pruned on the way.

use serde_json::{Value, json};

use super::stage::{BETA, DEFINITION, GROUP, Stage, V1, definition, gadget};

fn stage() -> Stage {
    let stage = Stage::plain();
    stage.define(&definition("None"));
    stage
}

#[test]
fn an_object_is_read_in_every_version_and_pruned_by_each() {
    let stage = stage();
    let created = stage.create(V1, &gadget("v1", "one", json!({"size": 3, "note": "n"})));
    assert_eq!(created["spec"], json!({"size": 3, "note": "n", "colour": "grey"}));
    let beta = stage.get(&format!("{BETA}/one"));
    assert_eq!(beta["apiVersion"], format!("{GROUP}/v1beta1"));
    assert_eq!(beta["spec"], json!({"note": "n"}), "what it does not know it does not show");
    assert_eq!(beta["metadata"], created["metadata"]);
    assert_eq!(stage.get(&format!("{V1}/one")), created, "reading leaves it as it is");
}

#[test]
fn an_object_written_in_another_version_gets_the_defaults_of_the_one_that_is_kept() {
    let stage = stage();
    let created = stage.create(BETA, &gadget("v1beta1", "one", json!({"sizeText": "3", "note": "n"})));
    assert_eq!(created["apiVersion"], format!("{GROUP}/v1beta1"));
    assert_eq!(created["spec"], json!({"note": "n"}), "what is not kept is not shown either");
    assert_eq!(stage.get(&format!("{V1}/one"))["spec"], json!({"note": "n", "colour": "grey"}));
}

#[test]
fn each_version_validates_by_its_own_schema() {
    let stage = stage();
    let answer = stage.ask("POST", V1, "application/json", &gadget("v1", "one", json!({"size": 300})));
    assert_eq!(answer.status, 422);
    let answer = stage.ask("POST", BETA, "application/json", &gadget("v1beta1", "one", json!({"sizeText": 3})));
    let (code, _, message) = Stage::refusal(&answer);
    assert_eq!(code, 422);
    assert!(message.contains("spec.sizeText in body must be of type string"), "{message}");
    let answer = stage.ask("POST", BETA, "application/json", &gadget("v1", "one", json!({})));
    assert_eq!(answer.status, 400, "a body says the version of its path");
}

#[test]
fn lists_and_tables_are_in_the_version_asked_for() {
    let stage = stage();
    stage.create(V1, &gadget("v1", "one", json!({"size": 3})));
    stage.create(BETA, &gadget("v1beta1", "two", json!({"note": "n"})));
    for (path, version, column) in [(V1, "v1", "size"), (BETA, "v1beta1", "sizeText")] {
        let list = stage.get(path);
        assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("GadgetList"), &json!(format!("{GROUP}/{version}"))));
        let said: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|item| &item["apiVersion"]).collect();
        assert_eq!(said, [&list["apiVersion"], &list["apiVersion"]]);
        let table = stage.table(path);
        assert_eq!(table["columnDefinitions"][1]["name"], column);
        assert_eq!(table["rows"].as_array().unwrap().len(), 2);
    }
    assert_eq!(stage.table(V1)["rows"][0]["cells"][1], "3");
    assert_eq!(stage.table(BETA)["rows"][0]["cells"][1], Value::Null);
}

#[test]
fn every_kind_of_write_goes_through_every_version() {
    let stage = stage();
    stage.create(V1, &gadget("v1", "one", json!({"note": "created"})));
    let path = format!("{BETA}/one");
    let merged = stage.patch(&path, "merge", &json!({"spec": {"note": "merged"}}));
    assert_eq!(
        (&merged["apiVersion"], &merged["spec"]["note"]),
        (&json!(format!("{GROUP}/v1beta1")), &json!("merged"))
    );
    let patched = stage.patch(&path, "json", &json!([{"op": "replace", "path": "/spec/note", "value": "patched"}]));
    assert_eq!(patched["metadata"]["generation"], 3);
    let mut replaced = patched;
    replaced["spec"]["note"] = json!("replaced");
    stage.put(&path, &replaced);
    let applied = stage.apply(&path, "applier", &gadget("v1beta1", "one", json!({"replicas": 2})));
    assert_eq!(applied.status, 200);
    stage.patch(&format!("{path}/status"), "merge", &json!({"status": {"replicas": 1}}));
    assert_eq!(stage.get(&format!("{path}/scale"))["spec"]["replicas"], 2);
    stage.patch(&format!("{path}/scale"), "merge", &json!({"spec": {"replicas": 5}}));
    let now = stage.get(&format!("{V1}/one"));
    assert_eq!(now["spec"], json!({"note": "replaced", "replicas": 5, "colour": "grey"}));
    assert_eq!(now["status"], json!({"replicas": 1}));
    assert_eq!(stage.delete(&path)["status"], "Success");
    assert_eq!(stage.ask("GET", &format!("{V1}/one"), "", &Value::Null).status, 404);
}

#[test]
fn a_collection_is_deleted_through_any_version() {
    let stage = stage();
    for name in ["one", "two"] {
        stage.create(V1, &gadget("v1", name, json!({})));
    }
    let gone = stage.delete(BETA);
    assert_eq!((&gone["apiVersion"], gone["items"].as_array().unwrap().len()), (&json!(format!("{GROUP}/v1beta1")), 2));
    assert_eq!(stage.get(V1)["items"], json!([]));
}

#[test]
fn a_write_that_changes_nothing_is_none_in_any_version() {
    let stage = stage();
    let created = stage.create(V1, &gadget("v1", "one", json!({"note": "n"})));
    let path = format!("{BETA}/one");
    let put = stage.put(&path, &stage.get(&path));
    assert_eq!(put["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    assert_eq!(put["metadata"]["managedFields"], created["metadata"]["managedFields"]);
}

#[test]
fn a_stale_write_conflicts_whatever_version_it_saw() {
    let stage = stage();
    stage.create(V1, &gadget("v1", "one", json!({"note": "n"})));
    let mut stale = stage.get(&format!("{BETA}/one"));
    stage.patch(&format!("{V1}/one"), "merge", &json!({"spec": {"note": "m"}}));
    stale["spec"]["note"] = json!("o");
    let answer = stage.ask("PUT", &format!("{BETA}/one"), "application/json", &stale);
    assert_eq!(Stage::refusal(&answer).1, "Conflict");
}

#[test]
fn a_dry_run_shows_what_a_run_would() {
    let stage = stage();
    let body = gadget("v1beta1", "one", json!({"sizeText": "3", "note": "n"}));
    let shown = stage.create(&format!("{BETA}?dryRun=All"), &body);
    assert_eq!((&shown["apiVersion"], &shown["spec"]), (&json!(format!("{GROUP}/v1beta1")), &json!({"note": "n"})));
    assert_eq!(stage.get(V1)["items"], json!([]));
}

#[test]
fn a_field_is_selected_as_the_version_has_it() {
    let stage = stage();
    stage.create(V1, &gadget("v1", "one", json!({"size": 3})));
    let names = |path: &str| stage.get(path)["items"].as_array().unwrap().len();
    assert_eq!(names(&format!("{V1}?fieldSelector=spec.size%3D3")), 1);
    assert_eq!(names(&format!("{BETA}?fieldSelector=spec.sizeText%3D3")), 0);
    let answer = stage.ask("GET", &format!("{BETA}?fieldSelector=spec.size%3D3"), "", &Value::Null);
    assert_eq!(Stage::refusal(&answer).2, "field label not supported: spec.size");
}

#[test]
fn a_schema_that_changes_holds_for_what_is_there() {
    let stage = stage();
    let created = stage.create(V1, &gadget("v1", "one", json!({"size": 3})));
    let mut crd = stage.get(DEFINITION);
    let properties = &mut crd["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    properties["shape"] = json!({"type": "string", "default": "round"});
    properties.as_object_mut().unwrap().remove("size");
    crd["spec"]["versions"][1]["selectableFields"] = json!([{"jsonPath": ".spec.shape"}]);
    stage.put(DEFINITION, &crd);
    let read = stage.get(&format!("{V1}/one"));
    assert_eq!(read["spec"], json!({"colour": "grey", "shape": "round"}));
    assert_eq!(read["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"], "nobody has written it");
    let found = stage.get(&format!("{V1}?fieldSelector=spec.shape%3Dround"));
    assert_eq!(found["items"][0], read);
}

#[test]
fn a_field_that_becomes_selectable_is_so_in_what_is_there() {
    let stage = stage();
    stage.create(V1, &gadget("v1", "one", json!({"note": "n"})));
    let mut crd = stage.get(DEFINITION);
    crd["spec"]["versions"][1]["selectableFields"] = json!([{"jsonPath": ".spec.note"}]);
    stage.put(DEFINITION, &crd);
    assert_eq!(stage.get(&format!("{V1}?fieldSelector=spec.note%3Dn"))["items"].as_array().unwrap().len(), 1);
}

#[test]
fn owners_and_dependents_find_each_other_across_versions() {
    let stage = stage();
    let owner = stage.create(BETA, &gadget("v1beta1", "owner", json!({})));
    let reference = |version: &str| json!([{"apiVersion": format!("{GROUP}/{version}"), "kind": "Gadget", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    for version in ["v1", "v1beta1"] {
        let mut dependent = gadget(version, &format!("of-{version}"), json!({}));
        dependent["metadata"]["ownerReferences"] = reference(version);
        stage.create(if version == "v1" { V1 } else { BETA }, &dependent);
    }
    stage.plane.settle();
    assert_eq!(stage.get(V1)["items"].as_array().unwrap().len(), 3);
    stage.delete(&format!("{V1}/owner"));
    stage.plane.settle();
    assert_eq!(stage.get(V1)["items"], json!([]));
}

#[test]
fn a_namespace_is_emptied_of_every_object_once() {
    let stage = stage();
    stage.create("/api/v1/namespaces", &json!({"metadata": {"name": "short"}}));
    let mut held = gadget("v1beta1", "held", json!({}));
    held["metadata"]["finalizers"] = json!(["shapes.kerf.test/hold"]);
    let path = BETA.replace("default", "short");
    stage.create(&path, &held);
    stage.delete("/api/v1/namespaces/short");
    stage.plane.settle();
    let namespace = stage.get("/api/v1/namespaces/short");
    let remaining = namespace["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|condition| condition["type"] == "NamespaceContentRemaining")
        .unwrap();
    assert_eq!(remaining["message"], format!("Some resources are remaining: gadgets.{GROUP} has 1 resource instances"));
    stage.patch(&format!("{path}/held"), "merge", &json!({"metadata": {"finalizers": null}}));
    stage.plane.settle();
    assert_eq!(stage.ask("GET", "/api/v1/namespaces/short", "", &Value::Null).status, 404);
}

#[test]
fn a_quota_counts_an_object_once() {
    let stage = stage();
    let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {format!("count/gadgets.{GROUP}"): "2"}}});
    stage.create("/api/v1/namespaces/default/resourcequotas", &quota);
    stage.create(V1, &gadget("v1", "one", json!({})));
    stage.plane.settle();
    let used = stage.get("/api/v1/namespaces/default/resourcequotas/few");
    assert_eq!(used["status"]["used"][format!("count/gadgets.{GROUP}")], "1");
    stage.create(BETA, &gadget("v1beta1", "two", json!({})));
    let answer = stage.ask("POST", BETA, "application/json", &gadget("v1beta1", "three", json!({})));
    assert_eq!(Stage::refusal(&answer).1, "Forbidden");
}
