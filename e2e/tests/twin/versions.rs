//! Kinds of one's own with several versions, and one in which they are kept.

use kerf_e2e::client::Next;
use serde_json::{Value, json};

use crate::expect::{names, refused, refused_with};
use crate::objects::{gadget_definition, group};
use crate::stage::{Stage, next_event};

crate::tests!(
    an_object_is_read_in_every_version,
    what_is_written_in_another_version_gets_the_defaults_of_the_one_that_is_kept,
    each_version_holds_objects_to_its_own_schema,
    every_kind_of_write_goes_through_another_version,
    a_body_says_the_version_of_its_path,
    a_list_says_its_version_and_so_do_its_items,
    a_collection_is_deleted_through_another_version,
    a_watch_tells_in_its_own_version,
    a_table_has_the_columns_of_its_version,
    fields_are_selected_as_the_version_has_them,
    an_entry_of_managed_fields_keeps_its_version,
    an_applier_is_the_same_in_every_version,
    who_wrote_through_a_version_that_does_not_know_a_field_is_forgotten,
    versions_are_discovered_in_their_order,
    discovery_tells_which_version_is_kept,
    each_version_is_in_open_api,
    a_deprecated_version_says_what_to_use,
    stored_versions_are_remembered_until_somebody_says_otherwise,
    a_version_in_which_something_may_be_kept_cannot_be_left_out,
    what_was_kept_in_another_version_is_read_and_rewritten,
    a_new_default_is_read_into_what_is_there,
    a_watch_ends_when_the_definition_changes,
    a_conversion_that_fails_is_told,
    the_older_document_is_there_in_protocol_buffers,
);

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition_path(stage: &Stage) -> String {
    format!("{DEFINITIONS}/gadgets.{}", group(stage))
}

/// Where gadgets are in a version.
fn at(stage: &Stage, version: &str) -> String {
    stage.at(&format!("{}/{version}", group(stage)), "gadgets")
}

fn version(name: &str, column: &str, fields: &Value) -> Value {
    let path = format!(".spec.{column}");
    json!({
        "name": name, "served": true, "storage": name == "v1",
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": fields},
            "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}}},
        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
        "additionalPrinterColumns": [{"name": column, "type": "string", "jsonPath": path}],
        "selectableFields": [{"jsonPath": path}],
    })
}

/// v1 is kept and knows a size and a colour; v1beta1 knows a length.
fn definition(stage: &Stage) -> Value {
    let mut definition = gadget_definition(stage, json!({}));
    let (text, number) = (json!({"type": "string"}), json!({"type": "integer", "maximum": 100}));
    definition["spec"]["versions"] = json!([
        version("v1beta1", "length", &json!({"length": number, "note": text, "replicas": {"type": "integer"}})),
        version(
            "v1",
            "size",
            &json!({"size": number, "note": text, "replicas": {"type": "integer"},
            "colour": {"type": "string", "default": "grey"}})
        ),
    ]);
    definition
}

/// Both versions, served.
fn define(stage: &Stage, definition: &Value) {
    stage.create_for_now(DEFINITIONS, definition);
    for version in definition["spec"]["versions"].as_array().unwrap() {
        let path = at(stage, version["name"].as_str().unwrap());
        stage.wait_for("a version to be served", || stage.client.get(&path).unwrap().is_success());
    }
}

/// Two versions with the same fields.
fn alike(stage: &Stage) -> (String, String) {
    let mut definition = definition(stage);
    let number = json!({"type": "integer"});
    let fields = json!({"size": number, "replicas": number, "note": {"type": "string"}});
    definition["spec"]["versions"] = json!([version("v1beta1", "size", &fields), version("v1", "size", &fields)]);
    define(stage, &definition);
    (at(stage, "v1"), at(stage, "v1beta1"))
}

fn gadgets(stage: &Stage) -> (String, String) {
    define(stage, &definition(stage));
    (at(stage, "v1"), at(stage, "v1beta1"))
}

fn gadget(stage: &Stage, version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{}/{version}", group(stage)), "kind": "Gadget", "metadata": {"name": name}, "spec": spec})
}

/// Makes a version the one that is kept, and gives back the definition as answered.
fn keep_in(stage: &Stage, version: &str) -> Value {
    change(stage, |definition| {
        for one in definition["spec"]["versions"].as_array_mut().unwrap() {
            one["storage"] = json!(one["name"] == version);
        }
    })
}

/// Controllers write to a fresh definition, too.
fn change(stage: &Stage, change: impl Fn(&mut Value)) -> Value {
    let path = definition_path(stage);
    stage.wait_some("the definition to be changed", || {
        let mut definition = stage.read(&path);
        change(&mut definition);
        let answer = stage.client.put(&path, &definition).unwrap();
        (answer.status != 409).then(|| {
            assert_eq!(answer.status, 200, "{}", answer.message());
            answer.body
        })
    })
}

fn an_object_is_read_in_every_version(stage: &Stage) {
    let (v1, beta) = gadgets(stage);
    let created = stage.create(&v1, &gadget(stage, "v1", "one", json!({"size": 3, "note": "n"})));
    assert_eq!(created["spec"], json!({"size": 3, "note": "n", "colour": "grey"}));
    let shown = stage.read(&format!("{beta}/one"));
    assert_eq!(shown["apiVersion"], format!("{}/v1beta1", group(stage)));
    assert_eq!((&shown["spec"], &shown["metadata"]), (&json!({"note": "n"}), &created["metadata"]));
    assert_eq!(stage.read(&format!("{v1}/one")), created);
}

fn what_is_written_in_another_version_gets_the_defaults_of_the_one_that_is_kept(stage: &Stage) {
    let (v1, beta) = gadgets(stage);
    let body = gadget(stage, "v1beta1", "one", json!({"length": 3, "note": "n"}));
    let shown = stage.create(&format!("{beta}?dryRun=All"), &body);
    assert_eq!(shown["spec"], json!({"note": "n"}), "a length is not kept");
    let created = stage.create(&beta, &body);
    assert_eq!((&created["apiVersion"], &created["spec"]), (&body["apiVersion"], &json!({"note": "n"})));
    assert_eq!(stage.read(&format!("{v1}/one"))["spec"], json!({"note": "n", "colour": "grey"}));
}

fn each_version_holds_objects_to_its_own_schema(stage: &Stage) {
    let (v1, beta) = gadgets(stage);
    let start = format!("Gadget.{} \"one\" is invalid: ", group(stage));
    for (path, version, field) in [(&v1, "v1", "size"), (&beta, "v1beta1", "length")] {
        let answer = stage.client.post(path, &gadget(stage, version, "one", json!({field: 101}))).unwrap();
        let message = format!(
            "{start}spec.{field}: Invalid value: 101: spec.{field} in body should be less than or equal to 100"
        );
        refused(&answer, 422, "Invalid", &message);
    }
    let strict = format!("{beta}?fieldValidation=Strict");
    let answer = stage.client.post(&strict, &gadget(stage, "v1beta1", "one", json!({"size": 1}))).unwrap();
    refused(
        &answer,
        400,
        "BadRequest",
        r#"Gadget in version "v1beta1" cannot be handled as a Gadget: strict decoding error: unknown field "spec.size""#,
    );
}

fn every_kind_of_write_goes_through_another_version(stage: &Stage) {
    let (v1, beta) = gadgets(stage);
    stage.create(&v1, &gadget(stage, "v1", "one", json!({"size": 3, "note": "created"})));
    let path = format!("{beta}/one");
    let merged = stage.patch(&path, "merge", &json!({"spec": {"note": "merged"}}));
    assert_eq!(merged["spec"], json!({"note": "merged"}));
    assert_eq!(
        stage.read(&format!("{v1}/one"))["spec"],
        json!({"note": "merged", "colour": "grey"}),
        "its size is gone"
    );
    let patch = json!([{"op": "replace", "path": "/spec/note", "value": "patched"}]);
    let mut patched = stage.patch(&path, "json", &patch);
    assert_eq!(patched["metadata"]["generation"], 3);
    patched["spec"]["note"] = json!("replaced");
    stage.replace(&path, &patched);
    let applied = stage.apply(&path, "applier", "", &gadget(stage, "v1beta1", "one", json!({"replicas": 2})));
    assert_eq!(applied.status, 200, "{}", applied.message());
    let status = stage.patch(&format!("{path}/status"), "merge", &json!({"status": {"replicas": 1}}));
    assert_eq!(status["apiVersion"], patched["apiVersion"]);
    let scale = stage.read(&format!("{path}/scale"));
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["replicas"]), (&json!(2), &json!(1)));
    stage.patch(&format!("{path}/scale"), "merge", &json!({"spec": {"replicas": 5}}));
    let now = stage.read(&format!("{v1}/one"));
    assert_eq!(now["spec"], json!({"note": "replaced", "replicas": 5, "colour": "grey"}));
    assert_eq!(now["status"], json!({"replicas": 1}));
    let unchanged = stage.replace(&path, &stage.read(&path));
    assert_eq!(unchanged["metadata"], now["metadata"], "nothing is written when nothing changes");
    stage.delete(&path);
    stage.wait_for("it to be gone in the other version", || stage.is_gone(&format!("{v1}/one")));
}

fn a_body_says_the_version_of_its_path(stage: &Stage) {
    let (_, beta) = gadgets(stage);
    let answer = stage.client.post(&beta, &gadget(stage, "v1", "one", json!({}))).unwrap();
    let group = group(stage);
    refused(
        &answer,
        400,
        "BadRequest",
        &format!("the API version in the data ({group}/v1) does not match the expected API version ({group}/v1beta1)"),
    );
    let applied = stage.apply(&format!("{beta}/one"), "applier", "", &gadget(stage, "v1", "one", json!({})));
    refused_with(&applied, 400, "BadRequest");
}

fn a_list_says_its_version_and_so_do_its_items(stage: &Stage) {
    let (v1, beta) = gadgets(stage);
    for name in ["one", "three", "two"] {
        stage.create(&v1, &gadget(stage, "v1", name, json!({"size": 3})));
    }
    let list = stage.read(&format!("{beta}?limit=2"));
    let api_version = json!(format!("{}/v1beta1", group(stage)));
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("GadgetList"), &api_version));
    let items = list["items"].as_array().unwrap();
    assert!(items.iter().all(|item| item["apiVersion"] == api_version && item["spec"] == json!({})), "{list}");
    let next = list["metadata"]["continue"].as_str().unwrap();
    assert_eq!(names(&stage.read(&format!("{beta}?limit=2&continue={next}"))), ["two"]);
    let one = stage.read(&format!("{beta}/one"));
    assert_eq!(one, items[0]);
}

fn a_collection_is_deleted_through_another_version(stage: &Stage) {
    let (v1, beta) = gadgets(stage);
    for name in ["one", "two"] {
        stage.create(&v1, &gadget(stage, "v1", name, json!({})));
    }
    let gone = stage.delete(&beta);
    assert_eq!((&gone["kind"], names(&gone).len()), (&json!("GadgetList"), 2));
    stage.wait_for("all to be gone", || names(&stage.read(&v1)).is_empty());
}

fn a_watch_tells_in_its_own_version(stage: &Stage) {
    let (v1, beta) = gadgets(stage);
    let version = stage.read(&beta)["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let watch = stage.watch(&format!("{beta}?watch=true&timeoutSeconds=60&resourceVersion={version}"));
    stage.create(&v1, &gadget(stage, "v1", "one", json!({"size": 3, "note": "n"})));
    stage.patch(&format!("{v1}/one"), "merge", &json!({"spec": {"note": "m"}}));
    stage.delete(&format!("{v1}/one"));
    for (kind, note) in [("ADDED", "n"), ("MODIFIED", "m"), ("DELETED", "m")] {
        let event = next_event(&watch);
        assert_eq!(event["type"], kind, "{event}");
        assert_eq!(event["object"]["apiVersion"], format!("{}/v1beta1", group(stage)));
        assert_eq!(event["object"]["spec"], json!({"note": note}));
    }
    let first = format!(
        "{beta}?watch=true&timeoutSeconds=60&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    let bookmark = next_event(&stage.watch(&first));
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["apiVersion"], format!("{}/v1beta1", group(stage)));
}

fn a_table_has_the_columns_of_its_version(stage: &Stage) {
    let (v1, beta) = gadgets(stage);
    stage.create(&v1, &gadget(stage, "v1", "one", json!({"size": 3})));
    for (path, column, cell) in [(&v1, "size", json!("3")), (&beta, "length", Value::Null)] {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        let table = stage.client.call("GET", path).header("Accept", table).send().unwrap().body;
        assert_eq!(table["columnDefinitions"][1]["name"], column);
        assert_eq!(table["rows"][0]["cells"], json!(["one", cell]));
    }
}

fn fields_are_selected_as_the_version_has_them(stage: &Stage) {
    let (v1, beta) = gadgets(stage);
    stage.create(&v1, &gadget(stage, "v1", "one", json!({"size": 3})));
    assert_eq!(names(&stage.read(&format!("{v1}?fieldSelector=spec.size%3D3"))), ["one"]);
    assert!(names(&stage.read(&format!("{beta}?fieldSelector=spec.length%3D3"))).is_empty());
    assert_eq!(names(&stage.read(&format!("{beta}?fieldSelector=spec.length%3D"))), ["one"]);
    let answer = stage.client.get(&format!("{beta}?fieldSelector=spec.size%3D3")).unwrap();
    refused(&answer, 400, "BadRequest", "field label not supported: spec.size");
}

/// Manager, operation, version and fields of the spec.
fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let mut managers: Vec<String> = entries
        .map(|entry| {
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            let version = text("apiVersion").rsplit('/').next().unwrap_or_default().to_owned();
            let fields = entry["fieldsV1"]["f:spec"].as_object().into_iter().flatten();
            let fields: Vec<&str> =
                fields.map(|(key, _)| key.trim_start_matches("f:")).filter(|key| *key != ".").collect();
            format!("{} {} {version}: {}", text("manager"), text("operation"), fields.join(" "))
        })
        .collect();
    managers.sort();
    managers
}

fn an_entry_of_managed_fields_keeps_its_version(stage: &Stage) {
    let (v1, beta) = alike(stage);
    let by = |path: &str, manager: &str| format!("{path}?fieldManager={manager}");
    let body = gadget(stage, "v1beta1", "one", json!({"note": "n", "replicas": 1}));
    stage.create(&by(&beta, "one"), &body);
    let path = format!("{v1}/one");
    let now = stage.patch(&by(&path, "one"), "merge", &json!({"spec": {"size": 2}}));
    assert_eq!(managers(&now), ["one Update v1: size", "one Update v1beta1: note replicas"]);
    let now = stage.patch(&by(&path, "two"), "merge", &json!({"spec": {"note": "m"}}));
    assert_eq!(managers(&now), ["one Update v1: size", "one Update v1beta1: replicas", "two Update v1: note"]);
    assert_eq!(managers(&stage.read(&format!("{beta}/one"))), managers(&now));
}

fn an_applier_is_the_same_in_every_version(stage: &Stage) {
    let (v1, beta) = alike(stage);
    let applied = |path: &str, manager: &str, body: &Value| stage.apply(&format!("{path}/one"), manager, "", body);
    let first = applied(&beta, "applier", &gadget(stage, "v1beta1", "one", json!({"note": "n", "replicas": 1})));
    assert_eq!(first.status, 201, "{}", first.message());
    let other = applied(&v1, "other", &gadget(stage, "v1", "one", json!({"note": "m"})));
    refused(&other, 409, "Conflict", "Apply failed with 1 conflict: conflict with \"applier\": .spec.note");
    let shared = applied(&v1, "other", &gadget(stage, "v1", "one", json!({"replicas": 1})));
    assert_eq!(shared.status, 200, "{}", shared.message());
    let now = applied(&v1, "applier", &gadget(stage, "v1", "one", json!({"size": 3})));
    assert_eq!(now.status, 200, "{}", now.message());
    assert_eq!(now.body["spec"], json!({"size": 3, "replicas": 1}), "the note was its own alone");
    assert_eq!(managers(&now.body), ["applier Apply v1: size", "other Apply v1: replicas"]);
}

fn who_wrote_through_a_version_that_does_not_know_a_field_is_forgotten(stage: &Stage) {
    let (v1, beta) = gadgets(stage);
    let created = stage.create(&beta, &gadget(stage, "v1beta1", "one", json!({"note": "n"})));
    assert_eq!(managers(&created).len(), 1);
    // Its colour is a default of v1, which the other version cannot say.
    let applied = stage.apply(&format!("{v1}/one"), "applier", "", &gadget(stage, "v1", "one", json!({"size": 4})));
    refused_with(&applied, 500, "");
    assert!(applied.message().contains(".spec.colour: field not declared in schema"), "{}", applied.message());
    let patched = stage.patch(&format!("{v1}/one"), "merge", &json!({"spec": {"replicas": 2}}));
    assert_eq!(patched["metadata"]["managedFields"], Value::Null);
}

fn versions_are_discovered_in_their_order(stage: &Stage) {
    let mut definition = definition(stage);
    let text = json!({"note": {"type": "string"}});
    for name in ["v2alpha1", "v1beta2", "v10"] {
        definition["spec"]["versions"].as_array_mut().unwrap().push(version(name, "note", &text));
    }
    definition["spec"]["versions"][4]["served"] = json!(false);
    stage.create_for_now(DEFINITIONS, &definition);
    let expected = ["v1", "v1beta2", "v1beta1", "v2alpha1"];
    let group = group(stage);
    let told = |versions: &Value| -> Vec<String> {
        let versions = versions.as_array().into_iter().flatten();
        versions.map(|version| version["version"].as_str().unwrap_or_default().to_owned()).collect()
    };
    stage.wait_for("the group to be told", || {
        let answer = stage.client.get(&format!("/apis/{group}")).unwrap();
        answer.is_success()
            && told(&answer.body["versions"]) == expected
            && answer.body["preferredVersion"]["version"] == "v1"
    });
    stage.wait_for("the group to be listed", || {
        let groups = stage.read("/apis")["groups"].as_array().unwrap().clone();
        let ours = groups.iter().find(|entry| entry["name"] == group);
        ours.is_some_and(|ours| told(&ours["versions"]) == expected && ours["preferredVersion"]["version"] == "v1")
    });
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    stage.wait_for("the group to be in the whole", || {
        let answer = stage.client.call("GET", "/apis").header("Accept", aggregated).send().unwrap();
        let items = answer.body["items"].as_array().cloned().unwrap_or_default();
        let ours = items.iter().find(|entry| entry["metadata"]["name"] == group);
        ours.is_some_and(|ours| {
            told(&ours["versions"]) == expected && ours["versions"][3]["resources"][0]["resource"] == "gadgets"
        })
    });
}

fn discovery_tells_which_version_is_kept(stage: &Stage) {
    gadgets(stage);
    let hash = |version: &str| {
        let answer = stage.client.get(&format!("/apis/{}/{version}", group(stage))).unwrap();
        let list = answer.body["resources"].as_array().cloned().unwrap_or_default();
        let gadgets = list.into_iter().find(|resource| resource["name"] == "gadgets");
        gadgets.and_then(|gadgets| Some(gadgets["storageVersionHash"].as_str()?.to_owned()))
    };
    let kept_in_v1 = stage.wait_some("the version to be discovered", || hash("v1"));
    stage.wait_for("both versions to say the same", || hash("v1beta1").as_ref() == Some(&kept_in_v1));
    keep_in(stage, "v1beta1");
    let other = stage.wait_some("the other version to be told", || hash("v1").filter(|hash| *hash != kept_in_v1));
    stage.wait_for("both versions to say the same", || hash("v1beta1").as_ref() == Some(&other));
}

fn each_version_is_in_open_api(stage: &Stage) {
    gadgets(stage);
    for (version, field, other) in [("v1", "size", "length"), ("v1beta1", "length", "size")] {
        let path = format!("/openapi/v3/apis/{}/{version}", group(stage));
        let document = stage.wait_some("the version to be described", || {
            let answer = stage.client.get(&path).unwrap();
            answer.is_success().then_some(answer.body)
        });
        let wanted = json!([{"group": group(stage), "version": version, "kind": "Gadget"}]);
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let found = schemas.values().find(|schema| schema["x-kubernetes-group-version-kind"] == wanted).unwrap();
        let fields = &found["properties"]["spec"]["properties"];
        assert!(fields.get(field).is_some() && fields.get(other).is_none(), "{fields}");
        let of_one = format!("/apis/{}/{version}/namespaces/{{namespace}}/gadgets/{{name}}", group(stage));
        assert!(document["paths"].get(&of_one).is_some(), "{of_one}");
    }
}

fn a_deprecated_version_says_what_to_use(stage: &Stage) {
    let mut definition = definition(stage);
    definition["spec"]["versions"][0]["deprecated"] = json!(true);
    define(stage, &definition);
    let (v1, beta) = (at(stage, "v1"), at(stage, "v1beta1"));
    let group = group(stage);
    let expected = [format!("{group}/v1beta1 Gadget is deprecated; use {group}/v1 Gadget")];
    let answers = [
        stage.client.post(&beta, &gadget(stage, "v1beta1", "one", json!({}))).unwrap(),
        stage.client.get(&format!("{beta}/one")).unwrap(),
        stage.client.get(&beta).unwrap(),
        stage.client.get(&format!("{beta}/none")).unwrap(),
        stage.client.patch(&format!("{beta}/one"), "merge", &json!({"spec": {"note": "n"}})).unwrap(),
        stage.client.delete(&format!("{beta}/one")).unwrap(),
    ];
    for answer in answers {
        assert_eq!(answer.warnings(), expected, "{}", answer.body);
    }
    assert!(stage.client.get(&v1).unwrap().warnings().is_empty());
}

fn stored_versions_are_remembered_until_somebody_says_otherwise(stage: &Stage) {
    gadgets(stage);
    let path = definition_path(stage);
    let stored = || stage.read(&path)["status"]["storedVersions"].clone();
    assert_eq!(stored(), json!(["v1"]));
    assert_eq!(keep_in(stage, "v1beta1")["status"]["storedVersions"], json!(["v1", "v1beta1"]));
    assert_eq!(keep_in(stage, "v1")["status"]["storedVersions"], json!(["v1", "v1beta1"]));
    change(stage, |definition| definition["status"]["storedVersions"] = json!(["v1"]));
    assert_eq!(stored(), json!(["v1", "v1beta1"]), "not through the definition itself");
    stage.patch(&format!("{path}/status"), "merge", &json!({"status": {"storedVersions": ["v1"]}}));
    assert_eq!(stored(), json!(["v1"]));
}

fn a_version_in_which_something_may_be_kept_cannot_be_left_out(stage: &Stage) {
    gadgets(stage);
    let path = definition_path(stage);
    keep_in(stage, "v1beta1");
    keep_in(stage, "v1");
    let without = json!({"spec": {"versions": [stage.read(&path)["spec"]["versions"][1]]}});
    let answer = stage.client.patch(&path, "merge", &without).unwrap();
    refused(
        &answer,
        422,
        "Invalid",
        &format!(
            "CustomResourceDefinition.apiextensions.k8s.io \"gadgets.{}\" is invalid: status.storedVersions[1]: Invalid value: \
             \"v1beta1\": missing from spec.versions; v1beta1 was previously a storage version, and must remain in spec.versions \
             until a storage migration ensures no data remains persisted in v1beta1 and removes v1beta1 from \
             status.storedVersions",
            group(stage)
        ),
    );
    stage.patch(&format!("{path}/status"), "merge", &json!({"status": {"storedVersions": ["v1"]}}));
    stage.patch(&path, "merge", &without);
    stage.wait_for("the version not to be served any more", || stage.is_gone(&at(stage, "v1beta1")));
}

fn what_was_kept_in_another_version_is_read_and_rewritten(stage: &Stage) {
    let (v1, beta) = gadgets(stage);
    keep_in(stage, "v1beta1");
    // Until the server has seen it, lengths are not kept.
    let body = |name: &str| gadget(stage, "v1beta1", name, json!({"length": 3, "note": "n"}));
    stage.wait_for("the other version to be kept", || {
        stage.client.post(&format!("{beta}?dryRun=All"), &body("dry")).unwrap().body["spec"]["length"] == 3
    });
    let created = stage.create(&beta, &body("one"));
    assert_eq!(created["spec"], json!({"length": 3, "note": "n"}));
    keep_in(stage, "v1");
    stage.wait_for("the first version to be kept", || {
        stage.client.post(&format!("{beta}?dryRun=All"), &body("dry")).unwrap().body["spec"] == json!({"note": "n"})
    });
    assert_eq!(stage.read(&format!("{beta}/one")), created, "it is kept as it was");
    let shown = stage.read(&format!("{v1}/one"));
    assert_eq!(shown["spec"], json!({"note": "n"}), "defaults are those of the version that is kept");
    let put = stage.replace(&format!("{v1}/one"), &shown);
    assert_ne!(put["metadata"]["resourceVersion"], shown["metadata"]["resourceVersion"], "it is written anew");
    assert_eq!(stage.read(&format!("{v1}/one"))["spec"], json!({"note": "n", "colour": "grey"}));
    assert_eq!(stage.read(&format!("{beta}/one"))["spec"], json!({"note": "n"}));
    let again = stage.replace(&format!("{v1}/one"), &put);
    assert_eq!(again["metadata"]["resourceVersion"], put["metadata"]["resourceVersion"], "once");
}

fn a_new_default_is_read_into_what_is_there(stage: &Stage) {
    let (v1, beta) = gadgets(stage);
    let created = stage.create(&v1, &gadget(stage, "v1", "one", json!({"size": 3})));
    change(stage, |definition| {
        let spec =
            &mut definition["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        spec["note"] = json!({"type": "string", "default": "new"});
        spec["size"] = json!({"type": "integer", "maximum": 2});
    });
    stage.wait_for("the default to be read", || stage.read(&format!("{v1}/one"))["spec"]["note"] == "new");
    let shown = stage.read(&format!("{v1}/one"));
    assert_eq!(
        shown["spec"],
        json!({"size": 3, "note": "new", "colour": "grey"}),
        "nothing is judged that is only read"
    );
    assert_eq!(shown["metadata"], created["metadata"]);
    stage.wait_for("the default to be converted", || {
        stage.read(&format!("{beta}/one"))["spec"] == json!({"note": "new"})
    });
    stage.wait_for("the list to have it, too", || stage.client.get(&v1).unwrap().body["items"][0] == shown);
}

fn a_watch_ends_when_the_definition_changes(stage: &Stage) {
    let (v1, _) = gadgets(stage);
    let version = stage.read(&v1)["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let watch = stage.watch(&format!("{v1}?watch=true&timeoutSeconds=600&resourceVersion={version}"));
    keep_in(stage, "v1beta1");
    stage.wait_for("the watch to end", || matches!(watch.next(std::time::Duration::from_secs(1)), Next::Ended));
}

fn a_conversion_that_fails_is_told(stage: &Stage) {
    let mut definition = definition(stage);
    // Nobody listens there.
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:9/convert"}}});
    stage.create_for_now(DEFINITIONS, &definition);
    let (v1, beta) = (at(stage, "v1"), at(stage, "v1beta1"));
    stage.wait_for("a version to be served", || stage.client.get(&v1).unwrap().is_success());
    stage.wait_for("the other version to be served", || stage.client.get(&beta).unwrap().is_success());
    stage.create(&v1, &gadget(stage, "v1", "one", json!({"size": 3})));
    let failed = |version: &str| format!("conversion webhook for {}/{version}, Kind=Gadget failed: ", group(stage));
    let one = format!("{beta}/one");
    // The real server's cache needs a moment to notice; a list with a limit does without.
    let list = stage.wait_some("the list to fail", || {
        let answer = stage.client.get(&format!("{beta}?limit=500")).unwrap();
        (answer.status == 500).then_some(answer)
    });
    let answers = [
        (list, "v1"),
        (stage.client.get(&one).unwrap(), "v1"),
        (stage.client.patch(&one, "merge", &json!({"spec": {"note": "n"}})).unwrap(), "v1"),
        (stage.client.delete(&one).unwrap(), "v1"),
        (stage.client.post(&beta, &gadget(stage, "v1beta1", "two", json!({}))).unwrap(), "v1beta1"),
    ];
    for (answer, version) in answers {
        refused_with(&answer, 500, "");
        assert!(answer.message().starts_with(&failed(version)), "{}", answer.message());
    }
    assert_eq!(names(&stage.read(&v1)), ["one"], "the version that is kept goes on");
    stage.patch(&format!("{v1}/one"), "merge", &json!({"spec": {"note": "n"}}));
    stage.delete(&format!("{v1}/one"));
}

fn the_older_document_is_there_in_protocol_buffers(stage: &Stage) {
    let asked = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let (status, bytes) = stage.client.call("GET", "/openapi/v2").header("Accept", asked).fetch().unwrap();
    assert_eq!(status, 200);
    assert!(
        bytes.starts_with(b"\x0a\x032.0\x12"),
        "the document begins with its version and its title: {:?}",
        bytes.get(..16)
    );
}
