//! What is said when a conversion fails, or when its answer is not what it should be.

use serde_json::{Value, json};

use super::stage::{BETA, GROUP, Stage, V1, converted, definition, gadget};

#[test]
fn without_a_converter_other_versions_cannot_be_read_or_written() {
    let stage = Stage::plain();
    stage.define(&definition("Webhook"));
    stage.create(V1, &gadget("v1", "one", json!({"size": 3})));
    let of_kept = format!("conversion webhook for {GROUP}/v1, Kind=Gadget failed: nothing converts here");
    let of_sent = format!("conversion webhook for {GROUP}/v1beta1, Kind=Gadget failed: nothing converts here");
    let one = format!("{BETA}/one");
    let change = json!({"spec": {"note": "n"}});
    for (method, path, content, body, message) in [
        ("GET", one.clone(), "", Value::Null, &of_kept),
        ("GET", BETA.to_owned(), "", Value::Null, &of_kept),
        ("GET", format!("/apis/{GROUP}/v1beta1/gadgets"), "", Value::Null, &of_kept),
        ("GET", format!("{one}/scale"), "", Value::Null, &of_kept),
        ("PATCH", one.clone(), "application/merge-patch+json", change, &of_kept),
        ("PUT", one.clone(), "application/json", gadget("v1beta1", "one", json!({})), &of_kept),
        ("DELETE", one.clone(), "", Value::Null, &of_kept),
        ("DELETE", BETA.to_owned(), "", Value::Null, &of_kept),
        ("POST", BETA.to_owned(), "application/json", gadget("v1beta1", "two", json!({})), &of_sent),
        ("POST", format!("{BETA}?dryRun=All"), "application/json", gadget("v1beta1", "two", json!({})), &of_sent),
    ] {
        let answer = stage.ask(method, &path, content, &body);
        assert_eq!(Stage::refusal(&answer), (500, String::new(), message.clone()), "{method} {path}");
    }
    let applied = stage.apply(&one, "applier", &gadget("v1beta1", "one", json!({"note": "n"})));
    assert_eq!(Stage::refusal(&applied), (500, String::new(), of_kept));
    assert_eq!(stage.get(V1)["items"].as_array().unwrap().len(), 1, "and the version that is kept goes on");
    assert_eq!(stage.get(&BETA.replace("default", "kube-system"))["items"], json!([]), "nothing is nothing to convert");
    stage.delete(&format!("{V1}/one"));
}

#[test]
fn a_refusal_is_told_in_the_converter_s_words() {
    let stage = Stage::converting();
    stage.define(&definition("Webhook"));
    let answer = stage.ask("POST", BETA, "application/json", &gadget("v1beta1", "one", json!({"sizeText": "large"})));
    let message =
        format!("conversion webhook for {GROUP}/v1beta1, Kind=Gadget failed: spec.sizeText: large is no number");
    assert_eq!(Stage::refusal(&answer), (500, String::new(), message));
    assert_eq!(stage.get(V1)["items"], json!([]));
}

#[test]
fn one_object_that_cannot_be_shown_spoils_the_list() {
    let stage = Stage::converting_by(|object, to| match object["metadata"]["name"].as_str() {
        Some("bad") => Err("it is bad".to_owned()),
        _ => converted(object, to),
    });
    stage.define(&definition("Webhook"));
    for name in ["bad", "good"] {
        stage.create(V1, &gadget("v1", name, json!({"size": 3})));
    }
    let message = format!("conversion webhook for {GROUP}/v1, Kind=Gadget failed: it is bad");
    for path in [BETA.to_owned(), format!("{BETA}?labelSelector=none")] {
        let answer = stage.ask("GET", &path, "", &Value::Null);
        assert_eq!(Stage::refusal(&answer), (500, String::new(), message.clone()));
    }
    stage.get(&format!("{BETA}/good"));
    stage.delete(&format!("{V1}/bad"));
    assert_eq!(stage.get(BETA)["items"].as_array().unwrap().len(), 1);
}

#[test]
fn an_answer_is_checked() {
    type Spoil = fn(&mut Value);
    let rows: [(Spoil, &str); 11] = [
        (|object| object["metadata"]["name"] = json!("other"), "object: must have the same name: one != other"),
        (|object| object["metadata"]["namespace"] = json!("x"), "object: must have the same namespace: default != x"),
        (|object| object["metadata"]["uid"] = json!("u"), "object: must have the same UID: UID != u"),
        (|object| object["kind"] = json!("Other"), "object at index 0: invalid kind (expected Gadget, received Other)"),
        (
            |object| object["apiVersion"] = json!("shapes.kerf.test/v1"),
            "object at index 0: invalid groupVersion (expected shapes.kerf.test/v1beta1, received shapes.kerf.test/v1)",
        ),
        (
            |object| *object = json!("text"),
            "object at index 0: invalid groupVersion (expected shapes.kerf.test/v1beta1, received )",
        ),
        (
            |object| object["metadata"]["labels"] = json!({"a": 1}),
            "metadata: metadata.labels[a] must be a string, but is int64 in converted object",
        ),
        (
            |object| object["metadata"]["labels"] = json!("a=b"),
            "metadata: invalid metadata.labels of type string in converted object",
        ),
        (
            |object| object["metadata"]["labels"] = json!({"a": "b c"}),
            "metadata: metadata.labels: Invalid value: \"b c\": a valid label must be",
        ),
        (
            |object| object["metadata"]["annotations"] = json!({"a b": "c"}),
            "metadata: metadata.annotation: Invalid value: \"a b\": name part must consist of",
        ),
        (|object| object["metadata"] = json!("text"), "object: must have the same name: one != "),
    ];
    for (spoil, told) in rows {
        let stage = Stage::converting_by(move |object, to| {
            let mut object = converted(object, to)?;
            spoil(&mut object);
            Ok(object)
        });
        stage.define(&definition("Webhook"));
        let kept = stage.create(V1, &gadget("v1", "one", json!({"size": 3})));
        let (code, reason, message) = Stage::refusal(&stage.ask("GET", &format!("{BETA}/one"), "", &Value::Null));
        let told = told.replace("UID !=", &format!("{} !=", kept["metadata"]["uid"].as_str().unwrap()));
        let expected = format!("conversion webhook for {GROUP}/v1, Kind=Gadget returned invalid {told}");
        assert_eq!((code, reason.as_str()), (500, ""));
        assert!(message.starts_with(&expected), "{message}\n{expected}");
    }
}

#[test]
fn a_converter_that_brings_nonsense_breaks_nothing() {
    for nonsense in
        [json!(null), json!([]), json!({}), json!({"apiVersion": 1, "kind": [], "metadata": null, "spec": 3})]
    {
        let stage = Stage::converting_by(move |_, _| Ok(nonsense.clone()));
        stage.define(&definition("Webhook"));
        stage.create(V1, &gadget("v1", "one", json!({"size": 3})));
        assert_eq!(stage.ask("GET", BETA, "", &Value::Null).status, 500);
        assert_eq!(stage.ask("POST", BETA, "application/json", &gadget("v1beta1", "two", json!({}))).status, 500);
        assert_eq!(stage.get(V1)["items"].as_array().unwrap().len(), 1);
    }
}
