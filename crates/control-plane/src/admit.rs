//! Admission: the rules that look at other objects.

use std::sync::Arc;

use serde_json::Value;

use crate::error::ApiError;
use crate::kind::{Resource, Subresource};
use crate::store::Stored;

/// The other objects.
pub trait Look {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Stored>>;
    /// An empty namespace means all.
    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Stored>>;
}

pub fn create(
    _look: &dyn Look,
    _resource: &Resource,
    _object: &mut Value,
    _namespace: &str,
    _name: &str,
) -> Result<(), ApiError> {
    Ok(())
}

pub fn update(
    _look: &dyn Look,
    _resource: &Resource,
    _subresource: Option<Subresource>,
    _new: &mut Value,
    _old: &Value,
) -> Result<(), ApiError> {
    Ok(())
}
