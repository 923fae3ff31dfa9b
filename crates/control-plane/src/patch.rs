//! The three kinds of patch.

use serde_json::Value;

use crate::error::ApiError;
use crate::schema::Schema;

pub fn json(target: &Value, _patch: &[u8]) -> Result<Value, ApiError> {
    Ok(target.clone())
}

#[must_use]
pub fn merge(target: &Value, patch: &Value) -> Value {
    let mut merged = target.clone();
    json_patch::merge(&mut merged, patch);
    merged
}

pub fn strategic(_schema: &Schema, target: &Value, patch: &Value) -> Result<Value, ApiError> {
    Ok(merge(target, patch))
}
