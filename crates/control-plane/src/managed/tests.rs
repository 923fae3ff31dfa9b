//! What the real server did and said, asked for each of these.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::schema::{self, FieldValidation};

fn writer<'a>(manager: &'a str, api_version: &'a str) -> Writer<'a> {
    Writer { manager, api_version, subresource: "", now: "2026-11-15T12:00:00Z".parse().unwrap(), versions: None }
}

/// Manager, operation and fields of each entry.
fn entries(object: &Value) -> Vec<(String, String, Value)> {
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| (text(entry, "manager"), text(entry, "operation"), entry["fieldsV1"].clone()))
        .collect()
}

fn named(manager: &str, operation: &str, fields: Value) -> (String, String, Value) {
    (manager.to_owned(), operation.to_owned(), fields)
}

fn conforming(api_version: &str, kind: &str, mut object: Value) -> Value {
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    schema::conform(&Schema::built_in(api_version, kind).unwrap(), object, FieldValidation::Strict).unwrap().value
}

/// A config map and the managers that come to it.
struct Stage {
    schema: std::sync::Arc<Schema>,
    live: Option<Value>,
}

impl Stage {
    fn config_map() -> Self {
        Self { schema: Schema::built_in("v1", "ConfigMap").unwrap(), live: None }
    }

    fn update(&mut self, manager: &str, object: Value) -> &Value {
        let mut new = conforming("v1", "ConfigMap", object);
        track(&self.schema, self.live.as_ref(), &mut new, &writer(manager, "v1"), &[]);
        self.live.insert(new)
    }

    fn patch(&mut self, manager: &str, patch: &Value) -> &Value {
        let patched = crate::patch::merge(self.live.as_ref().unwrap(), patch);
        self.update(manager, patched)
    }

    fn apply(&mut self, manager: &str, mut applied: Value, force: bool) -> Result<&Value, ApiError> {
        applied["apiVersion"] = json!("v1");
        applied["kind"] = json!("ConfigMap");
        let merged = apply(&self.schema, self.live.as_ref(), &applied, &writer(manager, "v1"), force, &[])?;
        let merged = schema::conform(&self.schema, merged, FieldValidation::Strict)?.value;
        Ok(self.live.insert(merged))
    }
}

#[test]
fn fields_go_from_manager_to_manager_with_each_write() {
    let mut stage = Stage::config_map();
    let finalizers = json!({".": {}, "v:\"x/y\"": {}});
    let owners = json!({".": {}, "k:{\"uid\":\"u\"}": {}});
    let created = stage.update(
        "a",
        json!({"metadata": {"name": "m", "finalizers": ["x/y"], "annotations": {"a": "b"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}]}, "data": {"x": "1", "y": "2"}}),
    );
    let meta = json!({"f:annotations": {".": {}, "f:a": {}}, "f:finalizers": finalizers, "f:ownerReferences": owners});
    assert_eq!(
        entries(created),
        [named("a", "Update", json!({"f:data": {".": {}, "f:x": {}, "f:y": {}}, "f:metadata": meta}))]
    );
    let patched = stage.patch("b", &json!({"data": {"x": "3", "z": "4"}})).clone();
    assert_eq!(
        entries(&patched),
        [
            named("a", "Update", json!({"f:data": {".": {}, "f:y": {}}, "f:metadata": meta})),
            named("b", "Update", json!({"f:data": {"f:x": {}, "f:z": {}}})),
        ]
    );
    assert_eq!(stage.patch("b", &json!({"data": {"x": "3"}})), &patched, "nothing changed");
    let rest = json!({"f:finalizers": finalizers, "f:ownerReferences": owners});
    let removed = stage.patch("c", &json!({"data": {"y": null}, "metadata": {"annotations": null}}));
    assert_eq!(
        entries(removed),
        [
            named("a", "Update", json!({"f:data": {}, "f:metadata": rest})),
            named("b", "Update", json!({"f:data": {"f:x": {}, "f:z": {}}})),
        ]
    );
    let error = stage.apply("d", json!({"data": {"x": "9"}}), false).unwrap_err();
    assert_eq!(error.message, "Apply failed with 1 conflict: conflict with \"b\" using v1: .data.x");
    assert_eq!((error.code, error.reason), (409, "Conflict"));
    assert_eq!(error.details.causes[0].message, "conflict with \"b\" using v1");
    assert_eq!(
        (error.details.causes[0].reason, error.details.causes[0].field.as_str()),
        ("FieldManagerConflict", ".data.x")
    );
    let error = stage.apply("d", json!({"data": {"x": "9", "z": "9"}}), false).unwrap_err();
    assert_eq!(error.message, "Apply failed with 2 conflicts: conflicts with \"b\" using v1:\n- .data.x\n- .data.z");
    let config = json!({"data": {"x": "9", "z": "4", "n": "1"}, "metadata": {"labels": {"l": "1"}}});
    let forced = stage.apply("d", config, true).unwrap();
    assert_eq!(
        entries(forced),
        [
            named(
                "d",
                "Apply",
                json!({"f:data": {"f:n": {}, "f:x": {}, "f:z": {}}, "f:metadata": {"f:labels": {"f:l": {}}}})
            ),
            named("a", "Update", json!({"f:data": {}, "f:metadata": rest})),
            named("b", "Update", json!({"f:data": {"f:z": {}}})),
        ]
    );
    // One who applies what is there already becomes an owner without a time.
    let shared = stage.apply("e", json!({"data": {"x": "9"}}), false).unwrap();
    assert_eq!(entries(shared)[0], named("e", "Apply", json!({"f:data": {"f:x": {}}})));
    assert!(shared["metadata"]["managedFields"][0].get("time").is_none());
    // What nobody else has goes away with its applier.
    let less = stage.apply("d", json!({"data": {"z": "4"}}), false).unwrap();
    assert_eq!(less["data"], json!({"x": "9", "z": "4"}));
    assert!(less["metadata"].get("labels").is_none());
    assert_eq!(entries(less)[1], named("d", "Apply", json!({"f:data": {"f:z": {}}})));
    let none = stage.apply("d", json!({}), false).unwrap();
    assert_eq!(none["data"], json!({"x": "9", "z": "4"}));
    assert_eq!(entries(none).len(), 3);
}

#[test]
fn a_manager_who_resets_them_gets_rid_of_them_until_the_first_apply() {
    for reset in [json!([]), json!([{}])] {
        let mut stage = Stage::config_map();
        stage.update("a", json!({"metadata": {"name": "m"}, "data": {"x": "1"}}));
        stage.patch("d", &json!({"metadata": {"managedFields": reset}}));
        assert!(entries(stage.live.as_ref().unwrap()).is_empty());
        assert!(entries(stage.patch("q", &json!({"data": {"after": "1"}}))).is_empty());
        let error = stage.apply("d", json!({"data": {"after": "2"}}), false).unwrap_err();
        assert_eq!(
            error.message,
            "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.after"
        );
        let applied = stage.apply("d", json!({"data": {"mine": "2"}}), false).unwrap();
        let before = json!({"f:data": {".": {}, "f:after": {}, "f:x": {}}});
        assert_eq!(
            entries(applied),
            [named("d", "Apply", json!({"f:data": {"f:mine": {}}})), named("before-first-apply", "Update", before)]
        );
    }
}

#[test]
fn a_configuration_that_the_shape_does_not_allow_is_refused() {
    let mut stage = Stage::config_map();
    stage.update("a", json!({"metadata": {"name": "m"}}));
    let refused = |applied: Value| {
        apply(&stage.schema, stage.live.as_ref(), &applied, &writer("d", "v1"), false, &[]).unwrap_err()
    };
    for (applied, code, words) in [
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "dta": {"z": "4"}}),
            500,
            "failed to create typed patch object (/; /v1, Kind=ConfigMap): .dta: field not declared in schema",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"z": 4}}),
            500,
            "failed to create typed patch object (/; /v1, Kind=ConfigMap): .data.z: expected string, got &value.valueUnstructured{Value:4}",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": 5}),
            500,
            "failed to create typed patch object (/; /v1, Kind=ConfigMap): .data: expected map, got &{5}",
        ),
        (json!({"apiVersion": "v2", "kind": "ConfigMap"}), 400, "invalid object type: /v2, Kind=ConfigMap"),
        (json!({"apiVersion": "v1", "kind": "Foo"}), 400, "invalid object type: /v1, Kind=Foo"),
        (json!({"kind": "ConfigMap"}), 400, "invalid object type: /, Kind=ConfigMap"),
        (json!({"apiVersion": "v1"}), 400, "invalid object type: /v1, Kind="),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"managedFields": []}}),
            400,
            "metadata.managedFields must be nil",
        ),
    ] {
        let error = refused(applied);
        assert_eq!((error.code, error.message.as_str()), (code, words));
    }
}

#[test]
fn no_more_than_ten_updaters_are_kept_apart() {
    let mut stage = Stage::config_map();
    stage.update("m00", json!({"metadata": {"name": "m"}, "data": {"k0": "1"}}));
    for n in 1..15 {
        stage.patch(&format!("m{n:02}"), &json!({"data": {format!("k{n}"): "1"}}));
    }
    let entries = entries(stage.live.as_ref().unwrap());
    assert_eq!(entries.len(), 10);
    assert_eq!(entries[0].0, "ancient-changes");
    assert_eq!(entries[0].2["f:data"].as_object().unwrap().len(), 7, "six fields and the map itself");
}

fn any_data() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-d]", "[xy]", 0..4).prop_map(|data| json!({"metadata": {"name": "m"}, "data": data}))
}

fn any_pod() -> impl Strategy<Value = Value> {
    let port = (1..4_u16, prop::sample::select(vec![None, Some("TCP"), Some("UDP")])).prop_map(|(port, protocol)| {
        match protocol {
            Some(protocol) => json!({"containerPort": port, "protocol": protocol}),
            None => json!({"containerPort": port}),
        }
    });
    let container = ("[a-c]", "[xy]", prop::collection::vec(port, 0..3))
        .prop_map(|(name, image, ports)| json!({"name": name, "image": image, "ports": ports}));
    prop::collection::vec(container, 1..4)
        .prop_map(|containers| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}}))
}

proptest! {
    #[test]
    fn applying_twice_changes_nothing_the_second_time(first in any_data(), second in any_data()) {
        let mut stage = Stage::config_map();
        stage.update("a", first);
        let once = stage.apply("d", second.clone(), true).unwrap().clone();
        let twice = stage.apply("d", second, false).unwrap();
        prop_assert_eq!(&once, twice);
    }

    #[test]
    fn what_is_applied_is_there_afterwards(live in any_pod(), applied in any_pod()) {
        let schema = Schema::built_in("v1", "Pod").unwrap();
        let mut live = schema::conform(&schema, live, FieldValidation::Strict).unwrap().value;
        track(&schema, None, &mut live, &writer("a", "v1"), &["status"]);
        match apply(&schema, Some(&live), &applied, &writer("d", "v1"), true, &["status"]) {
            Err(error) => prop_assert!(error.message.contains("duplicate entries"), "{}", error),
            Ok(merged) => {
                let merged = schema::conform(&schema, merged, FieldValidation::Strict).unwrap().value;
                let names = |pod: &Value| pod["spec"]["containers"].as_array().into_iter().flatten()
                    .map(|container| (container["name"].clone(), container["image"].clone())).collect::<Vec<_>>();
                for one in names(&applied) {
                    prop_assert!(names(&merged).contains(&one));
                }
                let again = apply(&schema, Some(&merged), &applied, &writer("d", "v1"), false, &["status"]).unwrap();
                let again = schema::conform(&schema, again, FieldValidation::Strict).unwrap().value;
                prop_assert_eq!(merged, again);
            }
        }
    }
}

/// Trees with the words that mean something, in places where they do not.
fn any_tree() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "metadata",
        "spec",
        "template",
        "containers",
        "ports",
        "name",
        "labels",
        "finalizers",
        "managedFields",
        "fieldsV1",
        "operation",
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$deleteFromPrimitiveList/finalizers",
        "f:spec",
        "k:{",
        "delete",
        "replace",
        "Update",
        "data",
        "status",
        "conditions",
        "type",
        "replicas",
        "1",
        "é",
        "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!(1.5)),
        word.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(word.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn nothing_that_is_sent_makes_it_panic(live in any_tree(), sent in any_tree(), bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        for (api_version, kind) in [("apps/v1", "Deployment"), ("v1", "ConfigMap"), ("v1", "Node")] {
            let schema = Schema::built_in(api_version, kind).unwrap();
            let writer = writer("m", api_version);
            let body = sent.to_string();
            let _ = schema::decode(&schema, kind, api_version, &bytes, false, FieldValidation::Strict);
            let _ = schema::decode(&schema, kind, api_version, &bytes, true, FieldValidation::Warn);
            let _ = schema::decode(&schema, kind, api_version, body.as_bytes(), false, FieldValidation::Warn);
            for patch_type in [crate::patch::PatchType::Json, crate::patch::PatchType::Merge, crate::patch::PatchType::Strategic] {
                let _ = crate::patch::apply(&schema, patch_type, &live, body.as_bytes(), FieldValidation::Warn);
                let _ = crate::patch::apply(&schema, patch_type, &live, &bytes, FieldValidation::Warn);
            }
            let mut new = sent.clone();
            track(&schema, Some(&live), &mut new, &writer, &["status"]);
            let mut new = sent.clone();
            track(&schema, None, &mut new, &writer, &["status"]);
            let mut applied = sent.clone();
            if let Value::Object(fields) = &mut applied {
                fields.insert("apiVersion".to_owned(), json!(api_version));
                fields.insert("kind".to_owned(), json!(kind));
            }
            let _ = apply(&schema, Some(&live), &applied, &writer, true, &["status"]);
            let _ = apply(&schema, None, &applied, &writer, false, &[]);
        }
    }
}
