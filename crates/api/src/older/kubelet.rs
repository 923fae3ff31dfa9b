//! The kubelet's settings: a field in v1beta1, an annotation in v1 until a duty has moved them to a NodeClass.

use std::collections::BTreeMap;

use serde_json::Value;

use super::annotations;
use crate::labels::KUBELET_CONVERSION;

/// `spec` is where the settings are a field of.
pub(super) fn to_v1(object: &mut Value, spec: &str) {
    annotations::take(object, KUBELET_CONVERSION);
    let Some(Value::Object(fields)) = object.pointer_mut(spec) else { return };
    if let Some(Value::Object(settings)) = fields.remove("kubelet") {
        // By name, so that one block is one text.
        let sorted: BTreeMap<_, _> = settings.into_iter().collect();
        if let Ok(text) = serde_json::to_string(&sorted) {
            annotations::put(object, KUBELET_CONVERSION, text);
        }
    }
}

/// An annotation that does not hold settings stays where it is.
pub(super) fn to_v1beta1(object: &mut Value, spec: &str) {
    let text = annotations::get(object, KUBELET_CONVERSION).unwrap_or_default();
    let Ok(settings @ Value::Object(_)) = serde_json::from_str(text) else { return };
    let Some(Value::Object(fields)) = object.pointer_mut(spec) else { return };
    fields.insert("kubelet".to_owned(), settings);
    annotations::take(object, KUBELET_CONVERSION);
}
