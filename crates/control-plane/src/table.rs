//! What `kubectl get` shows.

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::Resource;

#[must_use]
pub fn columns(_resource: &Resource) -> Vec<Value> {
    Vec::new()
}

#[must_use]
pub fn cells(_resource: &Resource, _object: &Value, _now: Timestamp) -> Vec<Value> {
    Vec::new()
}
