//! The strategy `Webhook`, with a converter in this process.

use serde_json::{Value, json};

use super::stage::{BETA, GROUP, Stage, V1, definition, gadget};

fn stage() -> Stage {
    let stage = Stage::converting();
    stage.define(&definition("Webhook"));
    stage
}

#[test]
fn an_object_is_written_in_one_version_and_read_in_the_other() {
    let stage = stage();
    let created = stage.create(BETA, &gadget("v1beta1", "one", json!({"sizeText": "3", "note": "n"})));
    assert_eq!(created["spec"], json!({"sizeText": "3", "note": "n"}));
    let kept = stage.get(&format!("{V1}/one"));
    assert_eq!(kept["spec"], json!({"size": 3, "note": "n", "colour": "grey"}));
    let beta = stage.get(&format!("{BETA}/one"));
    assert_eq!(beta["metadata"]["annotations"], json!({"shapes.kerf.test/colour": "grey"}), "what it cannot say");
    assert_eq!(beta, created);
    stage.patch(&format!("{V1}/one"), "merge", &json!({"spec": {"size": 7, "colour": "red"}}));
    let beta = stage.get(&format!("{BETA}/one"));
    assert_eq!(beta["spec"]["sizeText"], "7");
    let patched = stage.patch(&format!("{BETA}/one"), "merge", &json!({"spec": {"sizeText": "8"}}));
    assert_eq!(patched["metadata"]["generation"], 3);
    assert_eq!(stage.get(&format!("{V1}/one"))["spec"], json!({"size": 8, "note": "n", "colour": "red"}));
}

#[test]
fn what_is_asked_in_the_version_that_is_kept_converts_nothing() {
    let stage = stage();
    let mut watch = stage.watch(&format!("{V1}?watch=true&resourceVersion=0"));
    stage.create(V1, &gadget("v1", "one", json!({"size": 3})));
    let path = format!("{V1}/one");
    stage.get(&path);
    stage.get(V1);
    stage.table(V1);
    stage.patch(&path, "merge", &json!({"spec": {"size": 4}}));
    assert_eq!(stage.apply(&path, "applier", &gadget("v1", "one", json!({"note": "n"}))).status, 200);
    stage.patch(&format!("{path}/scale"), "merge", &json!({"spec": {"replicas": 5}}));
    stage.patch(&format!("{path}/status"), "merge", &json!({"status": {"replicas": 5}}));
    stage.delete(&path);
    assert_eq!(watch.take().len(), 6);
    assert_eq!(stage.n_conversions(), 0);
}

#[test]
fn a_scale_is_that_of_the_version() {
    let stage = stage();
    stage.create(V1, &gadget("v1", "one", json!({"size": 3, "replicas": 2})));
    let path = format!("{BETA}/one/scale");
    assert_eq!(stage.get(&path)["spec"]["replicas"], 2);
    let mut scale = stage.get(&path);
    scale["spec"]["replicas"] = json!(4);
    assert_eq!(stage.put(&path, &scale)["spec"]["replicas"], 4);
    assert_eq!(stage.get(&format!("{V1}/one"))["spec"], json!({"size": 3, "replicas": 4, "colour": "grey"}));
}

#[test]
fn selectors_and_columns_are_those_of_what_is_shown() {
    let stage = Stage::converting_by(|object, to| {
        let mut object = super::stage::converted(object, to)?;
        if to.ends_with("/v1beta1") {
            object["metadata"]["labels"] = json!({"generation": "old"});
        } else if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("labels");
        }
        Ok(object)
    });
    stage.define(&definition("Webhook"));
    for (name, size) in [("one", 3), ("two", 4)] {
        stage.create(V1, &gadget("v1", name, json!({"size": size})));
    }
    let names = |path: &str| {
        let list = stage.get(path);
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&format!("{BETA}?fieldSelector=spec.sizeText%3D4")), ["two"]);
    assert_eq!(names(&format!("{V1}?fieldSelector=spec.size%3D4")), ["two"]);
    assert_eq!(names(&format!("{BETA}?labelSelector=generation%3Dold")), ["one", "two"]);
    assert!(names(&format!("{V1}?labelSelector=generation%3Dold")).is_empty());
    assert_eq!(stage.table(BETA)["rows"][1]["cells"][1], "4");
}

#[test]
fn pages_of_a_list_go_on_in_their_version() {
    let stage = stage();
    for name in ["one", "three", "two"] {
        stage.create(V1, &gadget("v1", name, json!({"size": 3})));
    }
    let first = stage.get(&format!("{BETA}?limit=2"));
    let rest = stage.get(&format!("{BETA}?limit=2&continue={}", first["metadata"]["continue"].as_str().unwrap()));
    assert_eq!((first["items"].as_array().unwrap().len(), rest["items"].as_array().unwrap().len()), (2, 1));
    assert_eq!(rest["items"][0]["spec"], json!({"sizeText": "3"}));
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
}

#[test]
fn of_the_metadata_only_labels_and_annotations_change() {
    let stage = Stage::converting_by(|object, to| {
        let mut object = super::stage::converted(object, to)?;
        object["metadata"]["finalizers"] = json!(["a.b/c"]);
        object["metadata"]["generation"] = json!(99);
        object["metadata"]["resourceVersion"] = json!("1");
        object["metadata"].as_object_mut().unwrap().remove("creationTimestamp");
        object["metadata"]["labels"] = json!({"to": to.rsplit('/').next()});
        Ok(object)
    });
    stage.define(&definition("Webhook"));
    let kept = stage.create(V1, &gadget("v1", "one", json!({"size": 3})));
    let mut shown = stage.get(&format!("{BETA}/one"))["metadata"].clone();
    assert_eq!(shown["labels"], json!({"to": "v1beta1"}));
    for field in ["labels", "annotations"] {
        shown.as_object_mut().unwrap().remove(field);
    }
    assert_eq!(shown, kept["metadata"]);
}

#[test]
fn an_object_is_created_by_applying_it_in_any_version() {
    let stage = stage();
    let answer = stage.apply(&format!("{BETA}/one"), "applier", &gadget("v1beta1", "one", json!({"sizeText": "3"})));
    assert_eq!(answer.status, 201);
    assert_eq!(answer.to_value()["spec"], json!({"sizeText": "3"}));
    assert_eq!(stage.get(&format!("{V1}/one"))["spec"], json!({"size": 3, "colour": "grey"}));
    let entry = &stage.get(&format!("{V1}/one"))["metadata"]["managedFields"][0];
    assert_eq!(entry["apiVersion"], format!("{GROUP}/v1beta1"));
    assert_eq!(entry["fieldsV1"], json!({"f:spec": {"f:sizeText": {}}}));
}

#[test]
fn a_definition_takes_its_objects_along_without_a_conversion() {
    let stage = stage();
    stage.create(V1, &gadget("v1", "one", json!({"size": 3})));
    stage.delete(super::stage::DEFINITION);
    stage.plane.settle();
    assert_eq!(stage.ask("GET", V1, "", &Value::Null).status, 404);
    assert_eq!(stage.n_conversions(), 0);
}
