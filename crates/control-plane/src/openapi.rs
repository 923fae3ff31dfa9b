//! The OpenAPI documents that clients read.

use serde_json::{Value, json};

use crate::kind::Catalog;

#[must_use]
pub fn v3_index(_catalog: &Catalog) -> Value {
    json!({ "paths": {} })
}

#[must_use]
pub fn v3(_catalog: &Catalog, _group: &str, _version: &str) -> Option<Value> {
    None
}

#[must_use]
pub fn v2(_catalog: &Catalog) -> Value {
    json!({ "swagger": "2.0" })
}
