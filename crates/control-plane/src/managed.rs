//! Who manages which field, and server-side apply.

use jiff::Timestamp;
use serde_json::Value;

use crate::error::ApiError;
use crate::schema::Schema;

#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    pub manager: &'a str,
    pub api_version: &'a str,
    pub subresource: &'a str,
    pub now: Timestamp,
}

pub fn track(_schema: &Schema, _live: Option<&Value>, _new: &mut Value, _writer: &Writer<'_>, _ignored: &[&str]) {}

pub fn apply(
    _schema: &Schema,
    live: Option<&Value>,
    applied: &Value,
    _writer: &Writer<'_>,
    _force: bool,
    _ignored: &[&str],
) -> Result<Value, ApiError> {
    Ok(live.map_or_else(|| applied.clone(), |live| crate::patch::merge(live, applied)))
}
