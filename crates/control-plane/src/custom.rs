//! CustomResourceDefinitions: the definition itself, and the objects that it defines.

use serde_json::Value;

use crate::error::FieldError;
use crate::kind::Resource;

/// One served version of a custom resource, compiled.
#[derive(Debug)]
pub struct CustomVersion {}

#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    pub json_path: String,
}

#[derive(Clone, Debug)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

#[must_use]
pub fn validate_definition(_new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    Vec::new()
}

pub fn default_definition(_crd: &mut Value) {}

#[must_use]
pub fn resources(_crd: &Value) -> Vec<Resource> {
    Vec::new()
}

impl CustomVersion {
    pub fn prune(&self, _object: &mut Value) -> Vec<String> {
        Vec::new()
    }

    pub fn default(&self, _object: &mut Value) {}

    #[must_use]
    pub fn validate(&self, _new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
        Vec::new()
    }

    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &[]
    }

    #[must_use]
    pub fn cell(&self, _column: &Column, _object: &Value) -> Value {
        Value::Null
    }

    #[must_use]
    pub fn scale_paths(&self) -> Option<ScalePaths> {
        None
    }

    #[must_use]
    pub fn selectable_fields(&self) -> &[String] {
        &[]
    }

    #[must_use]
    pub fn has_status(&self) -> bool {
        true
    }
}
