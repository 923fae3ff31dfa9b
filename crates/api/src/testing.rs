//! The table of objects that an API server accepts or rejects, for whoever judges: our own `check`, the embedded API
//! server, or a real one.
//!
//! The table is `tests/crd_cases/*.yaml`, and `tests/crd_cases/v1beta1/*.yaml` for the older generation; its `README.md` tells how to read and extend it.

use serde::Deserialize;
use serde_json::{Map, Value};

/// One object, and what is to become of it.
#[derive(Clone, Debug, PartialEq)]
pub struct CrdCase {
    /// A true sentence, unique in the table.
    pub name: String,
    /// The whole object, without defaults filled in. Its `metadata.name` is made from the case's name.
    pub object: Value,
    /// For updates: the object that must exist before. It is always acceptable.
    pub update_from: Option<Value>,
    /// For updates: `Some("status")` when the object goes to that subresource.
    pub subresource: Option<String>,
    pub expect: Expect,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    Accept,
    /// The refusal contains this text: a field path, or words of our message.
    Reject {
        text: String,
    },
}

/// The whole table.
///
/// # Panics
///
/// When a file of the table cannot be read; it is compiled in, so that is found by the first test.
pub fn crd_cases() -> Vec<CrdCase> {
    const FILES: &[&str] = &[
        include_str!("../tests/crd_cases/node_pool.yaml"),
        include_str!("../tests/crd_cases/node_claim.yaml"),
        include_str!("../tests/crd_cases/node_overlay.yaml"),
        include_str!("../tests/crd_cases/capacity_buffer.yaml"),
        include_str!("../tests/crd_cases/ec2_node_class.yaml"),
        include_str!("../tests/crd_cases/ec2_terms.yaml"),
        include_str!("../tests/crd_cases/kwok_node_class.yaml"),
    ];
    FILES.iter().flat_map(|file| cases_of(file)).collect()
}

/// The table of objects of v1beta1. A server that is to judge it needs somebody to convert what it accepts.
///
/// # Panics
///
/// When a file of the table cannot be read; it is compiled in, so that is found by the first test.
pub fn older_crd_cases() -> Vec<CrdCase> {
    const FILES: &[&str] = &[
        include_str!("../tests/crd_cases/v1beta1/node_pool.yaml"),
        include_str!("../tests/crd_cases/v1beta1/node_claim.yaml"),
        include_str!("../tests/crd_cases/v1beta1/ec2_node_class.yaml"),
    ];
    FILES.iter().flat_map(|file| cases_of(file)).collect()
}

/// The table of objects of the kinds that are translated.
///
/// # Panics
///
/// When a file of the table cannot be read; it is compiled in, so that is found by the first test.
pub fn translated_crd_cases() -> Vec<CrdCase> {
    const FILES: &[&str] = &[
        include_str!("../tests/crd_cases/v1alpha/provisioner.yaml"),
        include_str!("../tests/crd_cases/v1alpha/aws_node_template.yaml"),
        include_str!("../tests/crd_cases/v1alpha/compute_node_class.yaml"),
    ];
    FILES.iter().flat_map(|file| cases_of(file)).collect()
}

fn cases_of(file: &str) -> Vec<CrdCase> {
    let file: File = serde_norway::from_str(file).expect("the table is compiled in and read by every test");
    let made = |case: &Row, changes: &Map<String, Value>| {
        let mut object = file.base.clone();
        for (path, value) in changes {
            put(&mut object, path, expand(value.clone(), None));
        }
        object["metadata"]["name"] = case.name.replace('_', "-").into();
        object
    };
    let case_of = |row: &Row| CrdCase {
        name: row.name.clone(),
        object: made(row, &row.set),
        update_from: row.from.as_ref().map(|from| made(row, from)),
        subresource: row.subresource.clone(),
        expect: row.reject.clone().map_or(Expect::Accept, |text| Expect::Reject { text }),
    };
    file.cases.iter().map(case_of).collect()
}

#[derive(Deserialize)]
struct File {
    base: Value,
    cases: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    #[serde(default)]
    set: Map<String, Value>,
    from: Option<Map<String, Value>>,
    subresource: Option<String>,
    reject: Option<String>,
}

fn put(object: &mut Value, path: &str, value: Value) {
    let (parents, last) = path.rsplit_once('.').map_or((None, path), |(parents, last)| (Some(parents), last));
    let mut place = object;
    for name in parents.into_iter().flat_map(|parents| parents.split('.')) {
        place = &mut place[name];
    }
    if value.is_null() {
        place.as_object_mut().expect("paths lead through objects").remove(last);
    } else {
        place[last] = value;
    }
}

/// Makes the values that are too long to write down.
fn expand(value: Value, index: Option<u64>) -> Value {
    match value {
        Value::Object(fields) => match maker(&fields) {
            Some(("$text", n, of)) => of.as_str().expect("$text repeats a string").repeat(n as usize).into(),
            Some(("$repeat", n, of)) => (0..n).map(|i| expand(of.clone(), Some(i))).collect(),
            Some((_, n, of)) => Value::Object((0..n).map(|i| (format!("k{i}"), expand(of.clone(), Some(i)))).collect()),
            None => Value::Object(fields.into_iter().map(|(name, field)| (name, expand(field, index))).collect()),
        },
        Value::Array(items) => items.into_iter().map(|item| expand(item, index)).collect(),
        Value::String(text) => match index {
            Some(i) => text.replace("$i", &i.to_string()).into(),
            None => text.into(),
        },
        other => other,
    }
}

fn maker(fields: &Map<String, Value>) -> Option<(&'static str, u64, &Value)> {
    ["$text", "$repeat", "$entries"].into_iter().find_map(|word| {
        let [n, of] = fields.get(word)?.as_array()?.as_slice() else { return None };
        Some((word, n.as_u64()?, of))
    })
}
