//! Kinds of one's own: CustomResourceDefinitions and their objects.

use serde_json::{Value, json};

use crate::expect::{causes, names, refused, refused_with};
use crate::objects::{gadget, gadget_definition, gadgets, group};
use crate::stage::{Stage, next_change};

crate::tests!(
    a_definition_is_established_and_its_names_accepted,
    a_definition_gets_its_defaults,
    a_new_kind_is_discovered,
    a_new_kind_is_in_open_api,
    objects_are_created_listed_watched_and_deleted,
    unknown_fields_are_pruned,
    unknown_fields_are_told_or_refused_on_demand,
    unknown_fields_are_kept_where_the_schema_says_so,
    defaults_are_filled_in,
    an_object_is_held_to_its_schema,
    formats_and_enums_and_lengths_are_checked,
    rules_are_checked_with_their_messages,
    a_rule_may_say_its_reason_and_its_field,
    transition_rules_compare_with_what_was,
    what_was_wrong_before_may_stay_wrong,
    the_status_has_its_own_door,
    without_a_status_door_the_status_is_content,
    a_gadget_is_scaled,
    a_generation_counts_all_but_metadata,
    a_strategic_patch_of_a_gadget_is_not_supported,
    fields_are_selectable_where_the_definition_says_so,
    a_definition_that_is_not_structural_is_refused,
    a_definition_with_a_broken_rule_is_refused,
    a_definition_of_another_name_is_refused,
    a_definition_whose_default_does_not_fit_is_refused,
    a_definition_must_have_one_stored_version,
    names_that_are_taken_are_not_accepted,
    a_new_schema_holds_at_once,
    a_definition_takes_its_objects_along,
    a_cluster_wide_kind_has_no_namespaces,
    a_strict_create_refuses_unknown_and_duplicate_fields,
);

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn schema(spec: Value) -> Value {
    json!({"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
}

fn condition(definition: &Value, kind: &str) -> Value {
    let conditions = definition["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
}

fn a_definition_is_established_and_its_names_accepted(stage: &Stage) {
    gadgets(stage, json!({}));
    let path = format!("{DEFINITIONS}/gadgets.{}", group(stage));
    let definition = stage.wait_some("the definition to be established", || {
        let definition = stage.read(&path);
        (condition(&definition, "Established")["status"] == "True").then_some(definition)
    });
    let accepted = condition(&definition, "NamesAccepted");
    assert_eq!(
        (&accepted["status"], &accepted["reason"], &accepted["message"]),
        (&json!("True"), &json!("NoConflicts"), &json!("no conflicts found"))
    );
    let established = condition(&definition, "Established");
    assert_eq!(
        (&established["reason"], &established["message"]),
        (&json!("InitialNamesAccepted"), &json!("the initial names have been accepted"))
    );
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(definition["status"]["acceptedNames"], definition["spec"]["names"]);
}

fn a_definition_gets_its_defaults(stage: &Stage) {
    let mut body = gadget_definition(stage, json!({}));
    body["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget"});
    let created = stage.create(&format!("{DEFINITIONS}?dryRun=All"), &body);
    assert_eq!(
        created["spec"]["names"],
        json!({"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"})
    );
    assert_eq!(created["spec"]["conversion"], json!({"strategy": "None"}));
}

fn a_new_kind_is_discovered(stage: &Stage) {
    gadgets(
        stage,
        json!({"subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}}),
    );
    let group = group(stage);
    let list = stage.wait_some("the kind to be listed", || {
        let answer = stage.client.get(&format!("/apis/{group}/v1")).unwrap();
        (answer.is_success() && answer.body["resources"].as_array().is_some_and(|found| found.len() == 3))
            .then_some(answer.body)
    });
    let found = list["resources"].as_array().unwrap();
    let named = |name: &str| found.iter().find(|resource| resource["name"] == name).cloned().unwrap_or_default();
    let mut main = named("gadgets");
    main.as_object_mut().unwrap().remove("storageVersionHash");
    assert_eq!(
        main,
        json!({"name": "gadgets", "singularName": "gadget", "namespaced": true, "kind": "Gadget", "shortNames": ["gd"],
            "verbs": ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]})
    );
    assert_eq!(
        named("gadgets/scale"),
        json!({"name": "gadgets/scale", "singularName": "", "namespaced": true, "group": "autoscaling", "version": "v1",
            "kind": "Scale", "verbs": ["get", "patch", "update"]})
    );
    assert_eq!(named("gadgets/status")["kind"], "Gadget");
    stage.wait_for("the group to be listed", || {
        stage.read("/apis")["groups"].as_array().unwrap().iter().any(|entry| entry["name"] == group)
    });
}

fn a_new_kind_is_in_open_api(stage: &Stage) {
    gadgets(
        stage,
        schema(json!({"type": "object", "properties": {"size": {"type": "integer", "description": "How large."}}})),
    );
    let path = format!("/openapi/v3/apis/{}/v1", group(stage));
    let document = stage.wait_some("the kind to be described", || {
        let answer = stage.client.get(&path).unwrap();
        answer.is_success().then_some(answer.body)
    });
    let wanted = json!([{"group": group(stage), "version": "v1", "kind": "Gadget"}]);
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let found = schemas.values().find(|schema| schema["x-kubernetes-group-version-kind"] == wanted).unwrap();
    let size = &found["properties"]["spec"]["properties"]["size"];
    assert_eq!((&size["type"], &size["description"]), (&json!("integer"), &json!("How large.")));
}

fn objects_are_created_listed_watched_and_deleted(stage: &Stage) {
    let collection = gadgets(stage, json!({}));
    let created = stage.create(&collection, &gadget(stage, "one", json!({"anything": [1, {"goes": true}, 1.5, null]})));
    assert_eq!((&created["kind"], &created["anything"]), (&json!("Gadget"), &json!([1, {"goes": true}, 1.5, null])));
    assert_eq!(created["metadata"]["generation"], 1);
    let list = stage.read(&collection);
    assert_eq!((&list["kind"], names(&list)), (&json!("GadgetList"), vec!["one".to_owned()]));
    assert_eq!(list["items"][0], created, "items of a list of one's own kinds say what they are");
    let watch = stage.watch(&format!(
        "{collection}?watch=true&timeoutSeconds=60&resourceVersion={}",
        created["metadata"]["resourceVersion"].as_str().unwrap()
    ));
    stage.patch(&format!("{collection}/one"), "merge", &json!({"anything": 2}));
    assert_eq!(next_change(&watch), ("MODIFIED".to_owned(), "one".to_owned()));
    let status = stage.delete(&format!("{collection}/one"));
    assert_eq!(
        (&status["status"], &status["details"]["group"], &status["details"]["kind"]),
        (&json!("Success"), &json!(group(stage)), &json!("gadgets"))
    );
    assert_eq!(next_change(&watch), ("DELETED".to_owned(), "one".to_owned()));
    let answer = stage.client.get(&format!("{collection}/one")).unwrap();
    refused(&answer, 404, "NotFound", &format!("gadgets.{} \"one\" not found", group(stage)));
}

fn sized() -> Value {
    schema(
        json!({"type": "object", "properties": {"size": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}}}),
    )
}

fn unknown_fields_are_pruned(stage: &Stage) {
    let collection = gadgets(stage, sized());
    let content = json!({"spec": {"size": 1, "colour": "red"}, "more": 1});
    let created = stage.create(&collection, &gadget(stage, "one", content));
    assert_eq!((&created["spec"], &created["more"]), (&json!({"size": 1}), &Value::Null));
    let patched = stage.patch(&format!("{collection}/one"), "merge", &json!({"spec": {"weight": 2}}));
    assert_eq!(patched["spec"], json!({"size": 1}));
}

fn unknown_fields_are_told_or_refused_on_demand(stage: &Stage) {
    let collection = gadgets(stage, sized());
    let body = gadget(stage, "one", json!({"spec": {"size": 1, "colour": "red"}, "more": 1}));
    let answer = stage.client.post(&format!("{collection}?fieldValidation=Warn&dryRun=All"), &body).unwrap();
    assert_eq!(
        (answer.status, answer.warnings()),
        (201, vec![r#"unknown field "more""#.to_owned(), r#"unknown field "spec.colour""#.to_owned()])
    );
    let answer = stage.client.post(&format!("{collection}?fieldValidation=Strict"), &body).unwrap();
    refused(
        &answer,
        400,
        "BadRequest",
        r#"Gadget in version "v1" cannot be handled as a Gadget: strict decoding error: unknown field "more", unknown field "spec.colour""#,
    );
    let answer = stage.client.post(&format!("{collection}?fieldValidation=Ignore&dryRun=All"), &body).unwrap();
    assert_eq!((answer.status, answer.warnings()), (201, vec![]));
}

fn unknown_fields_are_kept_where_the_schema_says_so(stage: &Stage) {
    let collection = gadgets(
        stage,
        schema(json!({"type": "object", "properties": {
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}}},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "either": {"x-kubernetes-int-or-string": true},
            "whole": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}})),
    );
    let spec = json!({"free": {"x": {"y": 1}, "known": {"a": "b", "c": "d"}}, "map": {"any": 1, "key": 2}, "either": "50%",
        "whole": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "odd": 1}, "data": {"a": "b"}}});
    let created = stage.create(&collection, &gadget(stage, "one", json!({"spec": spec})));
    let kept = &created["spec"];
    assert_eq!(
        (&kept["free"], &kept["map"], &kept["either"]),
        (&json!({"x": {"y": 1}, "known": {"a": "b"}}), &json!({"any": 1, "key": 2}), &json!("50%"))
    );
    assert_eq!(kept["whole"]["data"], json!({"a": "b"}));
    assert_eq!(kept["whole"]["metadata"], json!({"name": "x"}), "an embedded object's metadata has a known shape");
}

fn defaults_are_filled_in(stage: &Stage) {
    let collection = gadgets(
        stage,
        schema(json!({"type": "object", "default": {}, "properties": {
            "size": {"type": "integer", "default": 3},
            "nested": {"type": "object", "default": {"a": "x"}, "properties": {"a": {"type": "string"}, "b": {"type": "string", "default": "y"}}},
            "deep": {"type": "object", "properties": {"z": {"type": "boolean", "default": true}}},
            "items": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer", "default": 1}, "m": {"type": "string"}}}},
            "null": {"type": "string", "default": "was null"}}})),
    );
    let created = stage.create(&collection, &gadget(stage, "one", json!({})));
    assert_eq!(created["spec"], json!({"size": 3, "nested": {"a": "x", "b": "y"}, "null": "was null"}));
    let spec = json!({"size": 5, "deep": {}, "items": [{"m": "k"}, {"n": 9}], "null": null});
    let created = stage.create(&collection, &gadget(stage, "two", json!({"spec": spec})));
    assert_eq!(
        created["spec"],
        json!({"size": 5, "nested": {"a": "x", "b": "y"}, "deep": {"z": true}, "items": [{"n": 1, "m": "k"}, {"n": 9}], "null": "was null"})
    );
}

fn an_object_is_held_to_its_schema(stage: &Stage) {
    let collection = gadgets(
        stage,
        json!({"schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object", "required": ["size"],
            "properties": {"size": {"type": "integer", "minimum": 1, "maximum": 10}, "name": {"type": "string"}, "on": {"type": "boolean"}, "list": {"type": "array", "items": {"type": "integer"}}}}}}}}),
    );
    let refusal = |content: Value| stage.client.post(&collection, &gadget(stage, "one", content)).unwrap();
    let start = format!("Gadget.{} \"one\" is invalid: ", group(stage));
    #[rustfmt::skip]
    let cases = [
        (json!({}), "spec: Required value", "FieldValueRequired spec"),
        (json!({"spec": {}}), "spec.size: Required value", "FieldValueRequired spec.size"),
        (json!({"spec": {"size": 0}}), "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1", "FieldValueInvalid spec.size"),
        (json!({"spec": {"size": 11}}), "spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10", "FieldValueInvalid spec.size"),
        (json!({"spec": {"size": "x"}}), r#"spec.size: Invalid value: "string": spec.size in body must be of type integer: "string""#, "FieldValueTypeInvalid spec.size"),
        (json!({"spec": {"size": 1, "on": 1}}), r#"spec.on: Invalid value: "integer": spec.on in body must be of type boolean: "integer""#, "FieldValueTypeInvalid spec.on"),
        (json!({"spec": {"size": 1, "list": [1, "b"]}}), r#"spec.list[1]: Invalid value: "string": spec.list[1] in body must be of type integer: "string""#, "FieldValueTypeInvalid spec.list[1]"),
        (json!({"spec": {"size": 1.5}}), r#"[spec.size: Invalid value: "number": spec.size in body must be of type integer: "number", <nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.size]"#, "FieldValueTypeInvalid spec.size"),
    ];
    for (content, message, cause) in cases {
        let answer = refusal(content.clone());
        refused(&answer, 422, "Invalid", &format!("{start}{message}"));
        assert_eq!(causes(&answer)[0], cause, "{content}");
        assert_eq!(
            (&answer.body["details"]["group"], &answer.body["details"]["kind"]),
            (&json!(group(stage)), &json!("Gadget"))
        );
    }
}

fn formats_and_enums_and_lengths_are_checked(stage: &Stage) {
    let collection = gadgets(
        stage,
        schema(json!({"type": "object", "properties": {
            "colour": {"type": "string", "enum": ["red", "blue"]}, "word": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
            "when": {"type": "string", "format": "date-time"}, "few": {"type": "array", "maxItems": 2, "minItems": 1, "items": {"type": "string"}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}},
            "props": {"type": "object", "maxProperties": 1, "additionalProperties": {"type": "string"}}, "even": {"type": "integer", "multipleOf": 2}}})),
    );
    #[rustfmt::skip]
    let cases = [
        (json!({"colour": "green"}), r#"spec.colour: Unsupported value: "green": supported values: "red", "blue""#),
        (json!({"word": "a"}), r#"spec.word: Invalid value: "a": spec.word in body should be at least 2 chars long"#),
        (json!({"word": "abcde"}), r#"spec.word: Too long: may not be more than 4 bytes"#),
        (json!({"word": "AB"}), r#"spec.word: Invalid value: "AB": spec.word in body should match '^[a-z]+$'"#),
        (json!({"when": "noon"}), r#"spec.when: Invalid value: "noon": spec.when in body must be of type date-time: "noon""#),
        (json!({"few": []}), "spec.few: Invalid value: 0: spec.few in body should have at least 1 items"),
        (json!({"few": ["a", "b", "c"]}), "spec.few: Too many: 3: must have at most 2 items"),
        (json!({"set": ["a", "a"]}), r#"spec.set[1]: Duplicate value: "a""#),
        (json!({"map": [{"k": "a"}, {"k": "a"}]}), r#"spec.map[1]: Duplicate value: {"k":"a"}"#),
        (json!({"props": {"a": "1", "b": "2"}}), "spec.props: Too many: 2: must have at most 1 item"),
        (json!({"even": 3}), "spec.even: Invalid value: 3: spec.even in body should be a multiple of 2"),
    ];
    for (spec, message) in cases {
        let answer = stage.client.post(&collection, &gadget(stage, "one", json!({"spec": spec}))).unwrap();
        refused(&answer, 422, "Invalid", &format!("Gadget.{} \"one\" is invalid: {message}", group(stage)));
    }
}

fn rules_are_checked_with_their_messages(stage: &Stage) {
    let collection = gadgets(
        stage,
        schema(json!({"type": "object", "x-kubernetes-validations": [
                {"rule": "self.min <= self.max", "message": "min is above max"},
                {"rule": "!has(self.tags) || self.tags.all(t, t.size() < 4)", "messageExpression": "self.tags[0] + ' or another tag is too long'"},
                {"rule": "self.min >= 0"}],
            "properties": {"min": {"type": "integer", "default": 0}, "max": {"type": "integer", "default": 10}, "tags": {"type": "array", "maxItems": 8, "items": {"type": "string", "maxLength": 20}}}})),
    );
    let start = format!("Gadget.{} \"one\" is invalid: ", group(stage));
    let refusal = |spec: Value| stage.client.post(&collection, &gadget(stage, "one", json!({"spec": spec}))).unwrap();
    refused(
        &refusal(json!({"min": 5, "max": 1})),
        422,
        "Invalid",
        &format!("{start}spec: Invalid value: min is above max"),
    );
    refused(
        &refusal(json!({"tags": ["abc", "abcd"]})),
        422,
        "Invalid",
        &format!("{start}spec: Invalid value: abc or another tag is too long"),
    );
    refused(
        &refusal(json!({"min": -1})),
        422,
        "Invalid",
        &format!("{start}spec: Invalid value: failed rule: self.min >= 0"),
    );
    let answer = refusal(json!({"min": -1, "max": -2}));
    refused_with(&answer, 422, "Invalid");
    assert_eq!(causes(&answer), ["FieldValueInvalid spec", "FieldValueInvalid spec"]);
    stage.create(&collection, &gadget(stage, "one", json!({"spec": {"min": 1, "max": 2, "tags": ["abc"]}})));
}

fn a_rule_may_say_its_reason_and_its_field(stage: &Stage) {
    let collection = gadgets(
        stage,
        schema(json!({"type": "object", "x-kubernetes-validations": [
                {"rule": "has(self.a) || has(self.b)", "reason": "FieldValueRequired", "fieldPath": ".a", "message": "a or b"},
                {"rule": "!(has(self.a) && has(self.b))", "reason": "FieldValueForbidden", "fieldPath": ".b", "message": "not both"}],
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}}})),
    );
    let start = format!("Gadget.{} \"one\" is invalid: ", group(stage));
    let refusal = |spec: Value| stage.client.post(&collection, &gadget(stage, "one", json!({"spec": spec}))).unwrap();
    let answer = refusal(json!({}));
    refused(&answer, 422, "Invalid", &format!("{start}spec.a: Required value: a or b"));
    assert_eq!(causes(&answer), ["FieldValueRequired spec.a"]);
    let answer = refusal(json!({"a": "1", "b": "2"}));
    refused(&answer, 422, "Invalid", &format!("{start}spec.b: Forbidden: not both"));
    assert_eq!(causes(&answer), ["FieldValueForbidden spec.b"]);
}

fn transition_rules_compare_with_what_was(stage: &Stage) {
    let collection = gadgets(
        stage,
        schema(json!({"type": "object", "properties": {
            "size": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "size only grows"}]},
            "name": {"type": "string", "x-kubernetes-validations": [{"rule": "oldSelf.orValue('') == '' || self == oldSelf.value()", "message": "name is kept", "optionalOldSelf": true}]}}})),
    );
    stage.create(&collection, &gadget(stage, "one", json!({"spec": {"size": 5}})));
    let path = format!("{collection}/one");
    let answer = stage.client.patch(&path, "merge", &json!({"spec": {"size": 4}})).unwrap();
    refused(
        &answer,
        422,
        "Invalid",
        &format!("Gadget.{} \"one\" is invalid: spec.size: Invalid value: 4: size only grows", group(stage)),
    );
    assert_eq!(
        stage.patch(&path, "merge", &json!({"spec": {"size": 6, "name": "x"}}))["spec"],
        json!({"size": 6, "name": "x"})
    );
    let answer = stage.client.patch(&path, "merge", &json!({"spec": {"name": "y"}})).unwrap();
    refused(
        &answer,
        422,
        "Invalid",
        &format!("Gadget.{} \"one\" is invalid: spec.name: Invalid value: \"y\": name is kept", group(stage)),
    );
}

/// A field that does not change is not judged by a rule that came later.
fn what_was_wrong_before_may_stay_wrong(stage: &Stage) {
    let collection = gadgets(stage, sized());
    stage.create(&collection, &gadget(stage, "one", json!({"spec": {"size": 50}})));
    let path = format!("{DEFINITIONS}/gadgets.{}", group(stage));
    let narrower = json!([{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum", "value": 10}]);
    stage.patch(&path, "json", &narrower);
    stage.wait_for("the new schema to hold", || {
        let body = gadget(stage, "two", json!({"spec": {"size": 50}}));
        stage.client.post(&format!("{collection}?dryRun=All"), &body).unwrap().status == 422
    });
    let kept = stage.patch(&format!("{collection}/one"), "merge", &json!({"spec": {"tags": ["a"]}}));
    assert_eq!(kept["spec"], json!({"size": 50, "tags": ["a"]}));
    let answer = stage.client.patch(&format!("{collection}/one"), "merge", &json!({"spec": {"size": 51}})).unwrap();
    refused_with(&answer, 422, "Invalid");
}

fn with_status() -> Value {
    json!({"subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"replicas": {"type": "integer", "minimum": 0}, "size": {"type": "integer"}}},
            "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}, "phase": {"type": "string"}}}}}}})
}

fn the_status_has_its_own_door(stage: &Stage) {
    let collection = gadgets(stage, with_status());
    let created =
        stage.create(&collection, &gadget(stage, "one", json!({"spec": {"size": 1}, "status": {"phase": "Mine"}})));
    assert_eq!(created["status"], Value::Null, "a new object has no status");
    let path = format!("{collection}/one");
    let after = stage.patch(
        &format!("{path}/status"),
        "merge",
        &json!({"status": {"phase": "Theirs"}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}}),
    );
    assert_eq!(
        (&after["status"], &after["spec"], &after["metadata"]["generation"]),
        (&json!({"phase": "Theirs"}), &json!({"size": 1}), &json!(1))
    );
    assert_eq!(after["metadata"]["labels"], Value::Null);
    let after = stage.patch(&path, "merge", &json!({"status": {"phase": "Mine"}, "spec": {"size": 2}}));
    assert_eq!(
        (&after["status"], &after["spec"], &after["metadata"]["generation"]),
        (&json!({"phase": "Theirs"}), &json!({"size": 2}), &json!(2))
    );
}

fn without_a_status_door_the_status_is_content(stage: &Stage) {
    let collection = gadgets(stage, json!({}));
    let created = stage.create(&collection, &gadget(stage, "one", json!({"status": {"phase": "Mine"}})));
    assert_eq!(created["status"], json!({"phase": "Mine"}));
    let answer = stage.client.get(&format!("{collection}/one/status")).unwrap();
    refused(&answer, 404, "NotFound", &format!("gadgets.{} \"one\" not found", group(stage)));
}

fn a_gadget_is_scaled(stage: &Stage) {
    let collection = gadgets(stage, with_status());
    stage.create(&collection, &gadget(stage, "one", json!({"spec": {"replicas": 2}})));
    let path = format!("{collection}/one");
    stage.patch(&format!("{path}/status"), "merge", &json!({"status": {"replicas": 1, "selector": "app=one"}}));
    let mut scale = stage.read(&format!("{path}/scale"));
    assert_eq!(
        (&scale["kind"], &scale["spec"], &scale["status"]),
        (&json!("Scale"), &json!({"replicas": 2}), &json!({"replicas": 1, "selector": "app=one"}))
    );
    scale["spec"]["replicas"] = json!(5);
    stage.replace(&format!("{path}/scale"), &scale);
    assert_eq!(stage.read(&path)["spec"]["replicas"], 5);
    let patched = stage.patch(&format!("{path}/scale"), "merge", &json!({"spec": {"replicas": 6}}));
    assert_eq!(patched["spec"]["replicas"], 6);
}

fn a_generation_counts_all_but_metadata(stage: &Stage) {
    let collection = gadgets(stage, json!({}));
    stage.create(&collection, &gadget(stage, "one", json!({"spec": 1})));
    let generation =
        |patch: Value| stage.patch(&format!("{collection}/one"), "merge", &patch)["metadata"]["generation"].clone();
    assert_eq!(generation(json!({"metadata": {"labels": {"a": "b"}}})), 1);
    assert_eq!(generation(json!({"anything": "new"})), 2);
    assert_eq!(generation(json!({"status": "also, without a door of its own"})), 3);
}

fn a_strategic_patch_of_a_gadget_is_not_supported(stage: &Stage) {
    let collection = gadgets(stage, json!({}));
    stage.create(&collection, &gadget(stage, "one", json!({})));
    let answer = stage.client.patch(&format!("{collection}/one"), "strategic-merge", &json!({"a": 1})).unwrap();
    refused(
        &answer,
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, \
         application/merge-patch+json, application/apply-patch+yaml",
    );
}

fn fields_are_selectable_where_the_definition_says_so(stage: &Stage) {
    let mut version = schema(json!({"type": "object", "properties": {"colour": {"type": "string"}}}));
    version["selectableFields"] = json!([{"jsonPath": ".spec.colour"}]);
    let collection = gadgets(stage, version);
    for (name, colour) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        stage.create(&collection, &gadget(stage, name, json!({"spec": {"colour": colour}})));
    }
    assert_eq!(names(&stage.read(&format!("{collection}?fieldSelector=spec.colour%3Dred"))), ["a", "c"]);
    let answer = stage.client.get(&format!("{collection}?fieldSelector=spec.size%3D1")).unwrap();
    refused(&answer, 400, "BadRequest", "field label not supported: spec.size");
}

#[track_caller]
fn refusal(stage: &Stage, definition: &Value) -> (String, Vec<String>) {
    let answer = stage.client.post(&format!("{DEFINITIONS}?dryRun=All"), definition).unwrap();
    refused_with(&answer, 422, "Invalid");
    (answer.message(), causes(&answer))
}

const SCHEMA: &str = "spec.validation.openAPIV3Schema";

fn a_definition_that_is_not_structural_is_refused(stage: &Stage) {
    let of = |open_api: Value| gadget_definition(stage, json!({"schema": {"openAPIV3Schema": open_api}}));
    let start = format!("CustomResourceDefinition.apiextensions.k8s.io \"gadgets.{}\" is invalid: ", group(stage));
    let (said, causes) = refusal(stage, &of(json!({"properties": {"spec": {"type": "object"}}})));
    assert_eq!(causes, ["FieldValueRequired spec.validation.openAPIV3Schema.type"], "{said}");
    assert_eq!(
        said,
        format!("{start}spec.validation.openAPIV3Schema.type: Required value: must not be empty at the root")
    );
    let (_, causes) = refusal(
        stage,
        &of(json!({"type": "object", "properties": {"spec": {"properties": {"a": {"type": "string"}}}}})),
    );
    assert_eq!(causes, [format!("FieldValueRequired {SCHEMA}.properties[spec].type")]);
    let (said, _) = refusal(
        stage,
        &of(
            json!({"type": "object", "properties": {"spec": {"type": "object", "additionalProperties": {"type": "string"}, "properties": {"a": {"type": "string"}}}}}),
        ),
    );
    assert!(
        said.contains("additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive")
            || said.contains("mutual exclusive"),
        "{said}"
    );
    let (said, _) = refusal(stage, &of(json!({"type": "object", "properties": {"spec": {"type": "array"}}})));
    assert!(said.contains("properties[spec].items: Required value: must be specified"), "{said}");
    let (said, _) = refusal(stage, &of(json!({"type": "object", "properties": {"spec": {"type": "poem"}}})));
    assert!(said.contains(r#"properties[spec].type: Unsupported value: "poem": supported values: "array", "boolean", "integer", "number", "object", "string""#), "{said}");
}

fn a_definition_with_a_broken_rule_is_refused(stage: &Stage) {
    let with = |rule: &str| {
        gadget_definition(
            stage,
            schema(
                json!({"type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": rule}]}),
            ),
        )
    };
    let (said, causes) = refusal(stage, &with("self.a >"));
    assert_eq!(
        causes,
        ["FieldValueInvalid spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"],
        "{said}"
    );
    assert!(said.contains("compilation failed: ERROR: <input>:1:9: Syntax error"), "{said}");
    let (said, _) = refusal(stage, &with("self.b > 1"));
    assert!(said.contains("undefined field 'b'"), "{said}");
    let (said, _) = refusal(stage, &with("self.a + 1"));
    assert!(said.contains("must evaluate to a bool"), "{said}");
}

fn a_definition_of_another_name_is_refused(stage: &Stage) {
    let mut definition = gadget_definition(stage, json!({}));
    definition["metadata"]["name"] = json!("gizmos.example.com");
    let (said, causes) = refusal(stage, &definition);
    assert_eq!(causes, ["FieldValueInvalid metadata.name"]);
    assert_eq!(
        said,
        format!(
            "CustomResourceDefinition.apiextensions.k8s.io \"gizmos.example.com\" is invalid: metadata.name: Invalid value: \"gizmos.example.com\": must be spec.names.plural+\".\"+spec.group"
        )
    );
}

fn a_definition_whose_default_does_not_fit_is_refused(stage: &Stage) {
    let definition = gadget_definition(
        stage,
        schema(json!({"type": "object", "properties": {"size": {"type": "integer", "maximum": 3, "default": 5}}})),
    );
    let (said, causes) = refusal(stage, &definition);
    assert_eq!(causes, [format!("FieldValueInvalid {SCHEMA}.properties[spec].properties[size].default")]);
    assert!(
        said.ends_with("Invalid value: 5: spec.size in body should be less than or equal to 3")
            || said.contains("should be less than or equal to 3"),
        "{said}"
    );
}

fn a_definition_must_have_one_stored_version(stage: &Stage) {
    let definition = gadget_definition(stage, json!({"storage": false}));
    let (said, causes) = refusal(stage, &definition);
    assert!(causes.contains(&"FieldValueInvalid spec.versions".to_owned()), "{causes:?}");
    assert!(said.contains("must have exactly one version marked as storage version"), "{said}");
    let mut nothing = gadget_definition(stage, json!({}));
    nothing["spec"]["versions"] = json!([]);
    let (said, _) = refusal(stage, &nothing);
    assert!(said.contains("spec.versions"), "{said}");
}

fn names_that_are_taken_are_not_accepted(stage: &Stage) {
    gadgets(stage, json!({}));
    let mut second = gadget_definition(stage, json!({}));
    second["metadata"]["name"] = json!(format!("gizmos.{}", group(stage)));
    second["spec"]["names"] = json!({"plural": "gizmos", "singular": "gizmo", "kind": "Gadget", "listKind": "GadgetList", "shortNames": ["gd"]});
    stage.create_for_now(DEFINITIONS, &second);
    let path = format!("{DEFINITIONS}/gizmos.{}", group(stage));
    let refused = stage.wait_some("the names to be judged", || {
        let condition = condition(&stage.read(&path), "NamesAccepted");
        condition["status"].is_string().then_some(condition)
    });
    assert_eq!((&refused["status"], &refused["reason"]), (&json!("False"), &json!("ListKindConflict")));
    assert_eq!(refused["message"], "\"GadgetList\" is already in use");
    let established = condition(&stage.read(&path), "Established");
    assert_eq!(
        (&established["status"], &established["reason"], &established["message"]),
        (&json!("False"), &json!("NotAccepted"), &json!("not all names are accepted"))
    );
}

fn a_new_schema_holds_at_once(stage: &Stage) {
    let collection = gadgets(stage, sized());
    let path = format!("{DEFINITIONS}/gadgets.{}", group(stage));
    let wider = json!([{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/colour", "value": {"type": "string", "default": "red"}}]);
    let changed = stage.patch(&path, "json", &wider);
    assert_eq!(changed["metadata"]["generation"], 2);
    stage.create(&collection, &gadget(stage, "one", json!({"spec": {"size": 1}})));
    stage.wait_for("the new field to be known", || stage.read(&format!("{collection}/one"))["spec"]["colour"] == "red");
}

fn a_definition_takes_its_objects_along(stage: &Stage) {
    let collection = gadgets(stage, json!({}));
    let mut body = gadget(stage, "one", json!({}));
    body["metadata"]["finalizers"] = json!(["kerf.test/hold"]);
    stage.create(&collection, &body);
    let path = format!("{DEFINITIONS}/gadgets.{}", group(stage));
    stage.delete(&path);
    let going = stage.read(&path);
    assert_eq!(going["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    stage.wait_for("its objects to be deleted", || {
        let answer = stage.client.get(&format!("{collection}/one")).unwrap();
        answer.is_success() && answer.body["metadata"]["deletionTimestamp"].is_string()
    });
    stage.wait_for("the definition to say that it goes", || {
        condition(&stage.read(&path), "Terminating")["status"] == "True"
    });
    stage.patch(&format!("{collection}/one"), "merge", &json!({"metadata": {"finalizers": null}}));
    stage.wait_for("the definition to go", || stage.is_gone(&path));
    stage.wait_for("its objects not to be served any more", || stage.is_gone(&collection));
}

fn a_cluster_wide_kind_has_no_namespaces(stage: &Stage) {
    let mut definition = gadget_definition(stage, json!({}));
    definition["spec"]["scope"] = json!("Cluster");
    stage.create_for_now(DEFINITIONS, &definition);
    let collection = format!("/apis/{}/v1/gadgets", group(stage));
    stage.wait_for("a new kind to be served", || stage.client.get(&collection).unwrap().is_success());
    let created = stage.create(&collection, &gadget(stage, "one", json!({})));
    assert_eq!(created["metadata"]["namespace"], Value::Null);
    let answer = stage.client.get(&stage.at(&format!("{}/v1", group(stage)), "gadgets")).unwrap();
    assert_eq!(answer.status, 404, "{}", answer.message());
}

fn a_strict_create_refuses_unknown_and_duplicate_fields(stage: &Stage) {
    let collection = gadgets(stage, sized());
    let text = format!(
        r#"{{"apiVersion":"{}/v1","kind":"Gadget","metadata":{{"name":"one","odd":1}},"spec":{{"size":1,"size":2}}}}"#,
        group(stage)
    );
    let call = stage.client.call("POST", &format!("{collection}?fieldValidation=Strict"));
    let answer = call.typed("application/json", text).send().unwrap();
    refused_with(&answer, 400, "BadRequest");
    assert_eq!(
        answer.message(),
        r#"Gadget in version "v1" cannot be handled as a Gadget: strict decoding error: duplicate field "spec.size", unknown field "metadata.odd""#
    );
}
