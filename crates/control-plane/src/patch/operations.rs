//! JSON patch (RFC 6902) with the liberties that the real server takes: a replaced field need not be there, a copied one
//! neither, and lists are counted from their end by negative numbers.

use serde_json::Value;

use crate::error::ApiError;
use crate::schema::{self, go};

/// More operations than this are refused.
const MOST_OPERATIONS: usize = 10_000;
/// What copies may add to an object, all together: each of them could double it.
const COPIED_BYTES_MAX: usize = 3 << 20;
const FIELDS: [&str; 4] = ["op", "path", "from", "value"];

pub(super) fn apply(target: &Value, patch: &[u8]) -> Result<Value, ApiError> {
    let undecodable = |why: String| ApiError::bad_request(format!("error decoding patch: {why}"));
    let operations = match schema::parse(patch, false).map_err(undecodable)?.value {
        Value::Array(operations) => operations,
        Value::Null => return Ok(target.clone()),
        other => {
            let what = kind_of(&other);
            let why = format!("json: cannot unmarshal {what} into Go value of type []handlers.jsonPatchOp");
            return Err(undecodable(why));
        }
    };
    for operation in &operations {
        check_types(operation).map_err(undecodable)?;
    }
    if operations.len() > MOST_OPERATIONS {
        let n_operations = operations.len();
        return Err(ApiError::new(
            413,
            "RequestEntityTooLarge",
            format!("The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {n_operations}"),
        ));
    }
    let mut patched = target.clone();
    let mut copied_bytes = 0;
    for operation in &operations {
        perform(&mut patched, operation, &mut copied_bytes).ok_or_else(|| {
            ApiError::new(422, "Invalid", "the server rejected our request due to an error in our request")
        })?;
    }
    Ok(patched)
}

/// Fields of operations that are unknown or there twice, for whoever is strict.
pub(super) fn complaints(patch: &[u8]) -> Vec<String> {
    let Ok(parsed) = schema::parse(patch, false) else {
        return Vec::new();
    };
    let mut complaints: Vec<String> = parsed.warnings.iter().map(|warning| format!("json patch {warning}")).collect();
    for (index, operation) in parsed.value.as_array().into_iter().flatten().enumerate() {
        for key in operation.as_object().into_iter().flatten().map(|(key, _)| key) {
            if !FIELDS.contains(&key.as_str()) {
                complaints.push(format!("json patch unknown field {}", go::quote(&format!("[{index}].{key}"))));
            }
        }
    }
    complaints
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check_types(operation: &Value) -> Result<(), String> {
    let fields = match operation {
        Value::Object(fields) => fields,
        Value::Null => return Ok(()),
        other => {
            let what = kind_of(other);
            return Err(format!("json: cannot unmarshal {what} into Go value of type handlers.jsonPatchOp"));
        }
    };
    for (key, value) in fields {
        if FIELDS[..3].contains(&key.as_str()) && !matches!(value, Value::String(_) | Value::Null) {
            let what = kind_of(value);
            return Err(format!("json: cannot unmarshal {what} into Go struct field jsonPatchOp.{key} of type string"));
        }
    }
    Ok(())
}

/// `None` for an operation that cannot be done.
fn perform(object: &mut Value, operation: &Value, copied_bytes: &mut usize) -> Option<()> {
    let path = operation["path"].as_str()?;
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match operation["op"].as_str()? {
        "add" => add(object, path, value()),
        "remove" => remove(object, path).map(|_| ()),
        "replace" => replace(object, path, value()),
        "move" => {
            let moved = remove(object, operation["from"].as_str()?)?;
            add(object, path, moved)
        }
        "copy" => {
            let (container, key) = container(object, operation["from"].as_str()?)?;
            let copied = read(container, &key)?.clone();
            *copied_bytes += copied.to_string().len();
            if *copied_bytes > COPIED_BYTES_MAX {
                return None;
            }
            add(object, path, copied)
        }
        "test" => {
            let (container, key) = container(object, path)?;
            let found = read(container, &key)?;
            (*found == value()).then_some(())
        }
        _ => None,
    }
}

/// What holds the last step of a path, and that step.
fn container<'a>(object: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let mut steps: Vec<String> = path.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
    if steps.len() < 2 {
        return None;
    }
    let last = steps.pop()?;
    let mut here = object;
    for step in steps.iter().skip(1) {
        here = match here {
            Value::Object(fields) => fields.get_mut(step)?,
            Value::Array(items) => {
                let index = index_of(step, items.len())?;
                items.get_mut(index)?
            }
            _ => return None,
        };
    }
    matches!(here, Value::Object(_) | Value::Array(_)).then_some((here, last))
}

/// A place in a list of so many; negative ones count from its end.
fn index_of(step: &str, length: usize) -> Option<usize> {
    let number: i64 = step.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    let index = if number < 0 { number.checked_add(length)? } else { number };
    usize::try_from(index).ok()
}

/// A field that is not there reads as null; an item that is not there cannot be read.
fn read<'a>(container: &'a Value, key: &str) -> Option<&'a Value> {
    match container {
        Value::Object(fields) => Some(fields.get(key).unwrap_or(&Value::Null)),
        Value::Array(items) => items.get(index_of(key, items.len())?),
        _ => None,
    }
}

fn add(object: &mut Value, path: &str, value: Value) -> Option<()> {
    let (container, key) = container(object, path)?;
    match container {
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        Value::Array(items) => {
            let index = if key == "-" { items.len() } else { index_of(&key, items.len() + 1)? };
            if index > items.len() {
                return None;
            }
            items.insert(index, value);
        }
        _ => return None,
    }
    Some(())
}

fn replace(object: &mut Value, path: &str, value: Value) -> Option<()> {
    let (container, key) = container(object, path)?;
    match container {
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        Value::Array(items) => {
            let index = index_of(&key, items.len())?;
            *items.get_mut(index)? = value;
        }
        _ => return None,
    }
    Some(())
}

fn remove(object: &mut Value, path: &str) -> Option<Value> {
    let (container, key) = container(object, path)?;
    match container {
        Value::Object(fields) => fields.remove(&key),
        Value::Array(items) => {
            let index = index_of(&key, items.len())?;
            (index < items.len()).then(|| items.remove(index))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operations_do_what_they_say() {
        let target = json!({"a": {"b": [1, 2, 3]}, "c/d": 4});
        for (patch, expected) in [
            (json!([]), Some(target.clone())),
            (json!([{"op": "add", "path": "/a/b/-", "value": 9}]), Some(json!({"a": {"b": [1, 2, 3, 9]}, "c/d": 4}))),
            (json!([{"op": "add", "path": "/a/b/1", "value": 9}]), Some(json!({"a": {"b": [1, 9, 2, 3]}, "c/d": 4}))),
            (json!([{"op": "add", "path": "/a/b/7", "value": 9}]), None),
            (json!([{"op": "add", "path": "/a/b/x", "value": 9}]), None),
            (json!([{"op": "remove", "path": "/a/b/-1"}]), Some(json!({"a": {"b": [1, 2]}, "c/d": 4}))),
            (json!([{"op": "remove", "path": "/c~1d"}]), Some(json!({"a": {"b": [1, 2, 3]}}))),
            (json!([{"op": "remove", "path": "/nope"}]), None),
            (
                json!([{"op": "replace", "path": "/nope", "value": 1}]),
                Some(json!({"a": {"b": [1, 2, 3]}, "c/d": 4, "nope": 1})),
            ),
            (json!([{"op": "replace", "path": "/a/b/0"}]), Some(json!({"a": {"b": [null, 2, 3]}, "c/d": 4}))),
            (json!([{"op": "replace", "path": "/a/b/-", "value": 1}]), None),
            (json!([{"op": "move", "from": "/c~1d", "path": "/e"}]), Some(json!({"a": {"b": [1, 2, 3]}, "e": 4}))),
            (json!([{"op": "move", "from": "/nope", "path": "/e"}]), None),
            (
                json!([{"op": "copy", "from": "/a/b/0", "path": "/e"}]),
                Some(json!({"a": {"b": [1, 2, 3]}, "c/d": 4, "e": 1})),
            ),
            (
                json!([{"op": "copy", "from": "/nope", "path": "/e"}]),
                Some(json!({"a": {"b": [1, 2, 3]}, "c/d": 4, "e": null})),
            ),
            (json!([{"op": "test", "path": "/c~1d", "value": 4}]), Some(target.clone())),
            (json!([{"op": "test", "path": "/c~1d", "value": 5}]), None),
            (json!([{"op": "test", "path": "/nope", "value": null}]), Some(target.clone())),
            (json!([{"op": "replace", "path": "", "value": 5}]), None),
            (json!([{"op": "add", "path": "a", "value": 5}]), None),
            (json!([{"op": "add", "path": "/c~1d/x", "value": 5}]), None),
            (json!([{"op": "foo", "path": "/a"}]), None),
            (json!([{"path": "/a"}]), None),
            (json!([{"op": "remove"}]), None),
            (json!([null]), None),
        ] {
            let patched = apply(&target, patch.to_string().as_bytes());
            assert_eq!(patched.clone().ok(), expected, "{patch}");
            if let Err(error) = patched {
                assert_eq!((error.code, error.reason), (422, "Invalid"));
            }
        }
        assert_eq!(apply(&target, b"null").unwrap(), target);
    }

    #[test]
    fn too_many_operations_are_too_much() {
        let many = format!("[{}]", vec![r#"{"op":"test","path":"/a","value":1}"#; 10_001].join(","));
        assert_eq!(apply(&json!({"a": 1}), many.as_bytes()).unwrap_err().code, 413);
    }

    #[test]
    fn copies_that_double_an_object_again_and_again_are_refused() {
        let target = json!({"a": ["x".repeat(1_000)]});
        let doubling: Vec<Value> = (0..64).map(|_| json!({"op": "copy", "from": "/a", "path": "/a/-"})).collect();
        let apply = |patch: &[Value]| apply(&target, Value::from(patch).to_string().as_bytes());
        assert!(apply(&doubling[..10]).is_ok());
        assert_eq!(apply(&doubling).unwrap_err().code, 422);
    }
}
