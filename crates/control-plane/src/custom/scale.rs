//! What the scale subresource asks of the fields that it shows.

use serde_json::Value;

use super::ScalePaths;
use crate::error::FieldError;

pub(super) fn validate_spec(scale: Option<&ScalePaths>, object: &Value) -> Vec<FieldError> {
    scale.into_iter().filter_map(|scale| replicas(&scale.spec_replicas, object)).collect()
}

pub(super) fn validate_status(scale: Option<&ScalePaths>, object: &Value) -> Vec<FieldError> {
    let Some(scale) = scale else { return Vec::new() };
    let mut errors: Vec<FieldError> = replicas(&scale.status_replicas, object).into_iter().collect();
    if let Some(path) = &scale.label_selector {
        match nested(path, object) {
            Err(why) => errors.push(FieldError::invalid(path.as_str(), "", why)),
            Ok(Some(found)) if !found.is_string() => {
                let why = format!(
                    "{path} accessor error: {} is of the type {}, expected string",
                    shown(found),
                    go_type(found)
                );
                errors.push(FieldError::invalid(path.as_str(), "", why));
            }
            Ok(_) => {}
        }
    }
    errors
}

/// The field is named as the definition writes it: `.spec.replicas`.
fn replicas(path: &str, object: &Value) -> Option<FieldError> {
    let found = match nested(path, object) {
        Err(why) => return Some(FieldError::invalid(path, 0, why)),
        Ok(None) => return None,
        Ok(Some(found)) => found,
    };
    let Some(replicas) = found.as_i64() else {
        let why = format!("{path} accessor error: {} is of the type {}, expected int64", shown(found), go_type(found));
        return Some(FieldError::invalid(path, 0, why));
    };
    if replicas < 0 {
        return Some(FieldError::invalid(path, replicas, "should be a non-negative integer"));
    }
    if replicas > i64::from(i32::MAX) {
        return Some(FieldError::invalid(path, replicas, format!("should be less than or equal to {}", i32::MAX)));
    }
    None
}

/// What is at a path of plain names. Something on the way that is no object cannot be passed.
fn nested<'a>(path: &str, object: &'a Value) -> Result<Option<&'a Value>, String> {
    let mut at = object;
    let mut passed = String::new();
    for name in path.trim_start_matches('.').split('.') {
        match at {
            Value::Null => return Ok(None),
            Value::Object(members) => match members.get(name) {
                Some(member) => at = member,
                None => return Ok(None),
            },
            other => {
                let (shown, go_type) = (shown(other), go_type(other));
                return Err(format!(
                    "{passed} accessor error: {shown} is of the type {go_type}, expected map[string]interface {{}}"
                ));
            }
        }
        passed.push('.');
        passed.push_str(name);
    }
    Ok(Some(at))
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Value::Object(members) => {
            let mut entries: Vec<String> =
                members.iter().map(|(name, member)| format!("{name}:{}", shown(member))).collect();
            entries.sort();
            format!("map[{}]", entries.join(" "))
        }
        Value::Number(number) if number.as_i64().is_none() => super::go::float(number.as_f64().unwrap_or_default()),
        other => other.to_string(),
    }
}

pub(super) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.as_i64().is_some() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
