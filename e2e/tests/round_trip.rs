//! Does what we write come back as we wrote it, and does our type keep what the server stores?
//!
//! What comes back also has the defaults, and those must be the ones that `kerf_api` fills in without a server.
//!
//! `tests/objects/` has every field of every kind, over as many objects as the rules need; whether it really has is
//! checked against the schema, so that a new field cannot be forgotten here.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use kerf_api::{CapacityBuffer, Ec2NodeClass, Kind, KwokNodeClass, NodeClaim, NodeOverlay, NodePool};
use kerf_e2e::client::Client;
use kerf_e2e::control_plane::{self, Started, build, parts};
use kerf_e2e::crds::{self, Crd};
use kerf_e2e::skipped;
use serde::Deserialize as _;
use serde_json::{Value, json};

#[test]
fn every_field_of_every_kind_comes_back_from_a_real_api_server_as_it_was_written() {
    let objects = objects();
    let plane = match control_plane::start(&build::to_stderr).unwrap() {
        Started::Ready(plane) => plane,
        Started::Skipped(reason) => {
            skipped::tell(1, &format!("the round trip of {} objects", objects.len()), &reason);
            return;
        }
    };
    let client = plane.client().unwrap();
    let crds = crds::read(&crds::folder()).unwrap();
    crds::install(&client, &crds).unwrap();

    let mut n_fields = 0;
    let mut complaints = Vec::new();
    for crd in &crds {
        let of_kind: Vec<&Value> = objects.iter().filter(|object| is_of(object, crd)).collect();
        n_fields += all_fields_are_there(crd, &of_kind, &mut complaints);
        for object in of_kind {
            travels_unchanged(&client, crd, object, &mut complaints);
        }
    }
    for object in objects.iter().filter(|object| !crds.iter().any(|crd| is_of(object, crd))) {
        complaints.push(format!("{}: nobody defines it", name_of(object)));
    }
    build::to_stderr(&format!(
        "round trip on kube-apiserver {}: {} objects of {} kinds, {n_fields} fields, {} unexpected",
        parts::KUBERNETES.version,
        objects.len(),
        crds.len(),
        complaints.len()
    ));
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

fn travels_unchanged(client: &Client, crd: &Crd, object: &Value, complaints: &mut Vec<String>) {
    let name = name_of(object);
    let mut differ = |what: &str, left: &Value, right: &Value| {
        complaints
            .extend(differences(left, right).into_iter().map(|difference| format!("{name}: {what}: {difference}")));
    };
    match through_rust(object) {
        Ok(written) => differ("our type does not keep what it read", object, &written),
        Err(error) => differ("our type cannot read it", &json!(error), &Value::Null),
    }
    let stored = match store(client, crd, object) {
        Ok(stored) => stored,
        Err(refusal) => return complaints.push(format!("{name}: refused: {refusal}")),
    };
    let mut expected = object.clone();
    match Kind::of(object) {
        Some(kind) => kind.apply_defaults(&mut expected),
        None => return complaints.push(format!("{name}: we do not know the kind")),
    }
    differ("the server stored something else than we would", &expected, &as_written(&stored));
    match through_rust(&stored) {
        Ok(written) => differ("our type does not keep what the server stores", &stored, &written),
        Err(error) => differ("our type cannot read what the server stores", &json!(error), &Value::Null),
    }
}

/// Creates the object, then its status, as two writes; then reads it.
fn store(client: &Client, crd: &Crd, object: &Value) -> Result<Value, String> {
    let created = client.post(&crd.collection(), object).unwrap();
    if created.status != 201 {
        return Err(created.message());
    }
    let path = crd.object(object["metadata"]["name"].as_str().unwrap());
    if let Some(status) = object.get("status") {
        let mut with_status = created.body;
        with_status["status"] = status.clone();
        let updated = client.put(&format!("{path}/status"), &with_status).unwrap();
        if !updated.is_success() {
            return Err(format!("status: {}", updated.message()));
        }
    }
    Ok(client.get(&path).unwrap().body)
}

/// Without what only a server knows.
fn as_written(stored: &Value) -> Value {
    let mut object = stored.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"] {
        assert!(metadata.remove(field).is_some(), "the server always sets {field}");
    }
    object
}

fn through_rust(object: &Value) -> Result<Value, String> {
    fn through<T: serde::de::DeserializeOwned + serde::Serialize>(object: &Value) -> Result<Value, String> {
        let typed: T = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
        serde_json::to_value(typed).map_err(|error| error.to_string())
    }
    match object["kind"].as_str().unwrap() {
        "NodePool" => through::<NodePool>(object),
        "NodeClaim" => through::<NodeClaim>(object),
        "NodeOverlay" => through::<NodeOverlay>(object),
        "CapacityBuffer" => through::<CapacityBuffer>(object),
        "KWOKNodeClass" => through::<KwokNodeClass>(object),
        "EC2NodeClass" => through::<Ec2NodeClass>(object),
        kind => Err(format!("we have no type for {kind}")),
    }
}

/// Complains about each field of the schema that none of the objects has. Answers how many fields there are.
fn all_fields_are_there(crd: &Crd, objects: &[&Value], complaints: &mut Vec<String>) -> usize {
    let mut wanted = BTreeSet::new();
    for part in ["spec", "status"] {
        fields_of_schema(&crd.schema["properties"][part], part, &mut wanted);
    }
    let mut seen = BTreeSet::new();
    for object in objects {
        for part in ["spec", "status"] {
            fields_of_value(&crd.schema["properties"][part], &object[part], part, &mut seen);
        }
    }
    complaints.extend(wanted.difference(&seen).map(|field| format!("{}: no object here has {field}", crd.kind)));
    wanted.len()
}

fn fields_of_schema(schema: &Value, path: &str, fields: &mut BTreeSet<String>) {
    fields.insert(path.to_owned());
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        fields_of_schema(inner, &format!("{path}.{name}"), fields);
    }
    if schema["items"].is_object() {
        fields_of_schema(&schema["items"], &format!("{path}[]"), fields);
    }
}

fn fields_of_value(schema: &Value, value: &Value, path: &str, fields: &mut BTreeSet<String>) {
    if value.is_null() {
        return;
    }
    fields.insert(path.to_owned());
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        fields_of_value(inner, &value[name], &format!("{path}.{name}"), fields);
    }
    for item in value.as_array().into_iter().flatten() {
        fields_of_value(&schema["items"], item, &format!("{path}[]"), fields);
    }
}

fn differences(left: &Value, right: &Value) -> Vec<String> {
    fn walk(left: &Value, right: &Value, path: &str, found: &mut Vec<String>) {
        match (left, right) {
            (Value::Object(a), Value::Object(b)) => {
                for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                    walk(
                        a.get(key).unwrap_or(&Value::Null),
                        b.get(key).unwrap_or(&Value::Null),
                        &format!("{path}.{key}"),
                        found,
                    );
                }
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                for (idx, (a, b)) in a.iter().zip(b).enumerate() {
                    walk(a, b, &format!("{path}[{idx}]"), found);
                }
            }
            _ if left == right => {}
            _ => found.push(format!("{path}: {left} became {right}")),
        }
    }
    let mut found = Vec::new();
    walk(left, right, "", &mut found);
    found
}

fn is_of(object: &Value, crd: &Crd) -> bool {
    object["kind"] == crd.kind && object["apiVersion"] == crd.api_version
}

fn name_of(object: &Value) -> String {
    format!("{} {}", object["kind"].as_str().unwrap_or("?"), object["metadata"]["name"].as_str().unwrap_or("?"))
}

fn objects() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/objects");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let text_of = |file| fs::read_to_string(file).unwrap();
    files
        .iter()
        .map(text_of)
        .flat_map(|text| {
            let documents: Vec<Value> = serde_norway::Deserializer::from_str(&text)
                .map(|document| Value::deserialize(document).unwrap())
                .collect();
            documents
        })
        .collect()
}
