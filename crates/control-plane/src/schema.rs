//! The shape of objects: fields and their types, and how lists and maps merge.

use std::sync::Arc;

use serde_json::Value;

use crate::error::ApiError;

/// One node of a shape.
#[derive(Debug)]
pub struct Schema {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

#[derive(Debug)]
pub struct Decoded {
    pub value: Value,
    pub warnings: Vec<String>,
}

impl Schema {
    /// The shape of a built-in kind.
    #[must_use]
    pub fn built_in(_api_version: &str, _kind: &str) -> Option<Arc<Self>> {
        Some(Arc::new(Self {}))
    }

    #[must_use]
    pub fn structural(_open_api_v3_schema: &Value) -> Arc<Self> {
        Arc::new(Self {})
    }
}

pub fn decode(
    _schema: &Schema,
    _kind: &str,
    _api_version: &str,
    body: &[u8],
    _is_yaml: bool,
    _mode: FieldValidation,
) -> Result<Decoded, ApiError> {
    let value = serde_json::from_slice(body).map_err(|error| ApiError::bad_request(error.to_string()))?;
    Ok(Decoded { value, warnings: Vec::new() })
}

pub fn conform(_schema: &Schema, value: Value, _mode: FieldValidation) -> Result<Decoded, ApiError> {
    Ok(Decoded { value, warnings: Vec::new() })
}
