//! The definition itself: what is filled in, and what a definition must be like.

use serde_json::{Value, json};

use crate::error::FieldError;

pub fn default_definition(crd: &mut Value) {
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_empty = |value: Option<&Value>| value.and_then(Value::as_str).is_none_or(str::is_empty);
        if is_empty(names.get("singular")) && !kind.is_empty() {
            names.insert("singular".to_owned(), kind.to_lowercase().into());
        }
        if is_empty(names.get("listKind")) && !kind.is_empty() {
            names.insert("listKind".to_owned(), format!("{kind}List").into());
        }
    }
    let conversion = spec.entry("conversion").or_insert(Value::Null);
    if conversion.is_null() {
        *conversion = json!({ "strategy": "None" });
    }
    if let Some(service) = conversion.pointer_mut("/webhook/clientConfig/service").and_then(Value::as_object_mut) {
        service.entry("port").or_insert(json!(443));
    }
}

#[must_use]
pub fn validate_definition(_new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    Vec::new()
}
