//! The built-in kinds' own rules: defaults, what a client may set and change, validation.

use serde_json::Value;

use crate::error::FieldError;
use crate::kind::{Resource, Subresource};

pub fn default(_resource: &Resource, _object: &mut Value) {}

pub fn prepare_create(_resource: &Resource, _object: &mut Value) {}

pub fn prepare_update(_resource: &Resource, _subresource: Option<Subresource>, _new: &mut Value, _old: &Value) {}

#[must_use]
pub fn bumps_generation(_resource: &Resource, new: &Value, old: &Value) -> bool {
    new["spec"] != old["spec"]
}

#[must_use]
pub fn validate_create(_resource: &Resource, _object: &Value) -> Vec<FieldError> {
    Vec::new()
}

#[must_use]
pub fn validate_update(
    _resource: &Resource,
    _subresource: Option<Subresource>,
    _new: &Value,
    _old: &Value,
) -> Vec<FieldError> {
    Vec::new()
}

#[must_use]
pub fn validate_meta(_resource: &Resource, _object: &Value) -> Vec<FieldError> {
    Vec::new()
}

#[must_use]
pub fn validate_meta_update(_new: &Value, _old: &Value) -> Vec<FieldError> {
    Vec::new()
}

#[must_use]
pub fn warnings(_resource: &Resource, _object: &Value) -> Vec<String> {
    Vec::new()
}

#[must_use]
pub fn selectable_fields(_resource: &Resource, _object: &Value) -> Vec<(String, String)> {
    Vec::new()
}

#[must_use]
pub fn selectable_names(_resource: &Resource) -> Vec<String> {
    Vec::new()
}

#[must_use]
pub fn grace_period(_resource: &Resource, _object: &Value, _asked: Option<i64>) -> Option<i64> {
    None
}
