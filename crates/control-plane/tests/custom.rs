//! What the embedded server says about definitions and custom objects, word for word as a real server 1.36.3 has said it.
//!
//! `custom/definitions.json` and `custom/objects.json` hold the questions and the real server's answers. A server goes over
//! the fields of an object in no order, so that answers are compared as sets.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

use kerf_control_plane::custom::{CustomVersion, default_definition, resources, validate_definition};
use kerf_control_plane::error::FieldError;
use kerf_control_plane::patch;
use serde_json::{Value, json};

fn base() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.custom.kerf.test" },
        "spec": {
            "group": "custom.kerf.test",
            "scope": "Namespaced",
            "names": { "plural": "widgets", "kind": "Widget" },
            "versions": [
                { "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object" } } },
            ],
        },
    })
}

fn definition(case: &Value) -> Value {
    let mut crd = patch::merge(&base(), case.get("patch").unwrap_or(&json!({})));
    if let Some(schema) = case.get("schema") {
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema.clone();
    }
    for (name, value) in case.get("version").and_then(Value::as_object).into_iter().flatten() {
        crd["spec"]["versions"][0][name] = value.clone();
    }
    default_definition(&mut crd);
    crd
}

/// Field and message of each complaint, in order of the alphabet.
fn said(errors: &[FieldError]) -> Vec<(String, String)> {
    let mut said: Vec<_> = errors.iter().map(|error| (error.field.clone(), error.without_field())).collect();
    said.sort();
    said.dedup();
    said
}

fn expected(case: &Value) -> Vec<(String, String)> {
    let pair = |cause: &Value| (cause[0].as_str().unwrap().to_owned(), cause[1].as_str().unwrap().to_owned());
    let causes = case["causes"].as_array().into_iter().flatten().map(pair);
    // The name as such is judged with all other names, elsewhere.
    let mut expected: Vec<_> =
        causes.filter(|(_, message)| !message.contains("a lowercase RFC 1123 subdomain")).collect();
    expected.sort();
    expected
}

struct Tally {
    n_cases: usize,
    differences: Vec<String>,
}

impl Tally {
    fn compare(&mut self, name: &str, ours: &[(String, String)], theirs: &[(String, String)]) {
        self.n_cases += 1;
        if ours != theirs {
            let list = |said: &[(String, String)]| {
                said.iter().map(|(field, message)| format!("    {field}: {message}")).collect::<Vec<_>>().join("\n")
            };
            self.differences.push(format!("{name}\n  ours:\n{}\n  theirs:\n{}", list(ours), list(theirs)));
        }
    }

    fn settle(self) {
        let n = self.differences.len();
        assert!(n == 0, "{n} of {} differ:\n{}", self.n_cases, self.differences.join("\n"));
    }
}

#[test]
fn definitions_are_refused_in_the_real_server_s_words() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("custom/definitions.json")).unwrap();
    let mut tally = Tally { n_cases: 0, differences: Vec::new() };
    for case in &cases {
        let errors = validate_definition(&definition(case), None);
        tally.compare(case["name"].as_str().unwrap(), &said(&errors), &expected(case));
    }
    tally.settle();
}

#[test]
fn objects_are_refused_in_the_real_server_s_words() {
    let groups: Vec<Value> = serde_json::from_str(include_str!("custom/objects.json")).unwrap();
    let mut tally = Tally { n_cases: 0, differences: Vec::new() };
    for group in &groups {
        let crd = definition(group);
        let errors = validate_definition(&crd, None);
        assert!(errors.is_empty(), "{}: {errors:?}", group["name"]);
        let served = resources(&crd);
        let custom = served[0].custom.as_ref().unwrap();
        let object = |name: &str, spec: Option<&Value>| {
            let mut object = json!({
                "apiVersion": "custom.kerf.test/v1", "kind": "Widget", "metadata": { "name": name.replace('_', "-") },
            });
            if let Some(spec) = spec {
                object["spec"] = spec.clone();
            }
            read(custom, object)
        };
        for case in group["objects"].as_array().into_iter().flatten() {
            let name = case["name"].as_str().unwrap();
            let new = object(name, case.get("spec"));
            tally.compare(name, &said(&custom.validate(&new, None)), &expected(case));
            if let Some(stored) = case.get("stored") {
                assert_eq!(new["spec"], *stored, "{name}: what is stored");
            }
        }
        for case in group["updates"].as_array().into_iter().flatten() {
            let name = case["name"].as_str().unwrap();
            let (old, new) = (object(name, case.get("from")), object(name, case.get("to")));
            tally.compare(name, &said(&custom.validate(&new, Some(&old))), &expected(case));
        }
        for case in group["statuses"].as_array().into_iter().flatten() {
            let name = case["name"].as_str().unwrap();
            let old = object(name, Some(&json!({})));
            let mut new = old.clone();
            new["status"] = case["status"].clone();
            tally.compare(name, &said(&custom.validate_status(&new, &old)), &expected(&case["verdict"]));
        }
    }
    tally.settle();
}

#[test]
fn expressions_mean_what_they_mean_to_the_real_server() {
    let table: Value = serde_json::from_str(include_str!("custom/expressions.json")).unwrap();
    let mut tally = Tally { n_cases: 0, differences: Vec::new() };
    for row in table["rows"].as_array().unwrap() {
        let (rule, theirs) = (row[0].as_str().unwrap(), row[1].as_str().unwrap());
        let ours = answer(rule, &table["schema"], &table["spec"]);
        let one = |text: &str| vec![(String::new(), text.to_owned())];
        tally.compare(rule, &one(&ours), &one(theirs));
    }
    tally.settle();
}

/// `true`, `false`, `error: …`, or `refused: …` for a rule that does not make it into a definition.
fn answer(rule: &str, schema: &Value, spec: &Value) -> String {
    let mut schema = schema.clone();
    schema["properties"]["spec"]["x-kubernetes-validations"] = json!([{ "rule": rule, "message": "m" }]);
    let crd = definition(&json!({ "schema": schema }));
    if let Some(error) = validate_definition(&crd, None).first() {
        let text = error.without_field();
        let why = text.split_once("}: ").map_or(text.as_str(), |(_, why)| why);
        return format!("refused: {why}");
    }
    let served = resources(&crd);
    let object = json!({
        "apiVersion": "custom.kerf.test/v1", "kind": "Widget", "metadata": { "name": "x" }, "spec": spec,
    });
    match served[0].custom.as_ref().unwrap().validate(&object, None).first().map(FieldError::without_field) {
        None => "true".to_owned(),
        Some(said) if said == "Invalid value: m" => "false".to_owned(),
        Some(said) => format!("error: {}", said.replace("Invalid value: \"object\": ", "")),
    }
}

#[test]
fn a_rule_that_runs_away_is_stopped() {
    let numbers: Vec<u32> = (0..2_000).collect();
    let schema = json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": {
        "l": { "type": "array", "items": { "type": "integer" } } } } } });
    let said = answer("self.l.all(x, self.l.all(y, self.l.all(z, x + y + z >= 0)))", &schema, &json!({ "l": numbers }));
    assert!(said.contains("cost limit exceeded"), "{said}");
}

#[test]
fn a_rule_of_any_depth_and_length_is_answered() {
    let schema = json!({ "type": "object", "properties": { "spec": { "type": "object" } } });
    let rows = [
        format!("{}true{}", "(".repeat(5_000), ")".repeat(5_000)),
        format!("0 == 0{}", " + 1".repeat(5_000)),
        format!("{}true", "!".repeat(5_000)),
        format!("true{}", " && true".repeat(5_000)),
        format!("0 == -{}1", "-".repeat(5_000)),
        format!("self{} == 1", ".a".repeat(5_000)),
        format!("true{}", " ? true : true".repeat(1_000)),
        format!("{}1{} == 1", "[".repeat(3_000), "]".repeat(3_000)),
        "x".repeat(100_000),
    ];
    for rule in rows {
        let said = answer(&rule, &schema, &json!({}));
        assert!(!said.is_empty());
    }
}

fn read(custom: &CustomVersion, mut object: Value) -> Value {
    custom.prune(&mut object);
    custom.default(&mut object);
    object
}
