//! What is served, told to clients.

use serde_json::{Value, json};

use crate::kind::Catalog;

#[must_use]
pub fn answer(_catalog: &Catalog, _path: &str, _accept: &str) -> Option<(Value, &'static str)> {
    None
}

#[must_use]
pub fn version() -> Value {
    json!({})
}
