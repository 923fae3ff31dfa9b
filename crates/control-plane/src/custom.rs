//! CustomResourceDefinitions: the definition itself, and the objects that it defines.
//!
//! ```text
//! definition ─▶ validate_definition ─▶ resources ─▶ CustomVersion ─┬─ prune ─▶ default ─▶ validate: shape ─▶ scale ─▶
//!                                                                  │             embedded ─▶ lists ─▶ rules
//!                                                                  └─ cell, selectable_value: JSON paths
//!                                               └▶ Versions ─ convert, read, to_kept: from one version to another
//! ```
//!
//! A version is compiled once, when its definition is stored; objects are then judged by reading along their JSON.

mod cel;
mod columns;
pub(crate) mod condition;
mod definition;
mod field_path;
mod formats;
mod go;
mod lists;
mod names;
mod node;
mod path;
mod pattern;
mod prune;
mod rules;
mod scale;
mod shape;
mod versions;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::discovery::by_preference;
use crate::error::{FieldError, FieldErrorKind};
use crate::kind::{Resource, Subresource};
use crate::schema::Schema;
use columns::JsonPath;
use node::{Node, Pair};

pub use definition::{default_definition, open_status, remember_storage, validate_definition};
pub use versions::{Converter, Versions};

/// One served version of a custom resource, compiled.
#[derive(Debug)]
pub struct CustomVersion {
    kind: String,
    api_version: String,
    root: Node,
    columns: Vec<Column>,
    column_paths: Vec<Option<JsonPath>>,
    scale: Option<ScalePaths>,
    selectable_fields: Vec<String>,
    has_status: bool,
    warnings: Vec<String>,
}

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

/// What a (validated) definition brings.
#[derive(Debug)]
pub struct Defined {
    /// One resource for each served version.
    pub served: Vec<Resource>,
    /// In the version that is written, where clients do not get to see that one.
    pub unserved: Option<Resource>,
}

/// The resources that a (validated) definition serves: one for each served version.
#[must_use]
pub fn resources(crd: &Value) -> Vec<Resource> {
    define(crd, None, 0, None).served
}

/// The same, for a server: with a converter for definitions that ask for one, and the revision since which objects are written as
/// this definition has it, unless nothing that concerns them has changed since `before`.
#[must_use]
pub fn define(crd: &Value, converter: Option<Converter>, since: u64, before: Option<&Versions>) -> Defined {
    let spec = &crd["spec"];
    let group = text(&spec["group"]);
    let kind = text(&spec["names"]["kind"]);
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let compiled: Vec<(&Value, Arc<CustomVersion>, Arc<Schema>)> = versions
        .iter()
        .map(|version| {
            let custom = CustomVersion::compile(&group, &kind, version, versions);
            (version, Arc::new(custom), Schema::structural(&open_api_schema(version)))
        })
        .collect();
    let mut family = Versions::new(crd, &compiled, converter, since);
    if let Some(before) = before {
        family.follow(before);
    }
    let family = Arc::new(family);
    let resource_of = |(version, custom, schema): &(&Value, Arc<CustomVersion>, Arc<Schema>)| {
        resource(spec, version, Arc::clone(custom), Arc::clone(schema), Arc::clone(&family))
    };
    let unserved = compiled.iter().find(|(version, ..)| version["storage"] == true && version["served"] != true);
    Defined {
        served: compiled.iter().filter(|(version, ..)| version["served"] == true).map(resource_of).collect(),
        unserved: unserved.map(resource_of),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn resource(
    spec: &Value,
    version: &Value,
    custom: Arc<CustomVersion>,
    schema: Arc<Schema>,
    family: Arc<Versions>,
) -> Resource {
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let or_else = |value: &Value, fallback: String| {
        value.as_str().filter(|text| !text.is_empty()).map_or(fallback, str::to_owned)
    };
    let (group, names) = (text(&spec["group"]), &spec["names"]);
    let kind = text(&names["kind"]);
    let mut subresources = Vec::new();
    if custom.has_status {
        subresources.push(Subresource::Status);
    }
    if custom.scale.is_some() {
        subresources.push(Subresource::Scale);
    }
    Resource {
        group: group.clone(),
        version: text(&version["name"]),
        kind: kind.clone(),
        list_kind: or_else(&names["listKind"], format!("{kind}List")),
        plural: text(&names["plural"]),
        singular: or_else(&names["singular"], kind.to_lowercase()),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced: spec["scope"] == "Namespaced",
        subresources,
        schema: Some(schema),
        custom: Some(custom),
        versions: Some(family),
        stored_as: (group, text(&names["plural"])),
    }
}

/// A version's schema. One that says nothing keeps everything.
fn open_api_schema(version: &Value) -> Value {
    match version.pointer("/schema/openAPIV3Schema") {
        Some(schema) if schema.is_object() => schema.clone(),
        _ => json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }),
    }
}

impl CustomVersion {
    fn compile(group: &str, kind: &str, version: &Value, all: &[Value]) -> Self {
        let schema = open_api_schema(version);
        let mut root = Node::read(&schema);
        rules::compile_tree(&schema, &mut root, true);
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let columns: Vec<Column> = list(&version["additionalPrinterColumns"])
            .iter()
            .map(|column| Column {
                name: text(&column["name"]),
                kind: text(&column["type"]),
                format: text(&column["format"]),
                description: text(&column["description"]),
                priority: column["priority"].as_i64().unwrap_or_default(),
                json_path: text(&column["jsonPath"]),
            })
            .collect();
        let scale = &version["subresources"]["scale"];
        let api_version = format!("{group}/{}", text(&version["name"]));
        Self {
            column_paths: columns.iter().map(|column| JsonPath::read(&column.json_path)).collect(),
            columns,
            root,
            scale: scale.is_object().then(|| ScalePaths {
                spec_replicas: text(&scale["specReplicasPath"]),
                status_replicas: text(&scale["statusReplicasPath"]),
                label_selector: scale["labelSelectorPath"].as_str().filter(|path| !path.is_empty()).map(str::to_owned),
            }),
            selectable_fields: list(&version["selectableFields"])
                .iter()
                .map(|field| text(&field["jsonPath"]))
                .collect(),
            has_status: version["subresources"]["status"].is_object(),
            warnings: deprecation(version, group, kind, all).into_iter().collect(),
            kind: kind.to_owned(),
            api_version,
        }
    }

    /// Removes what the schema does not know, and tells what that was: `spec.foo`.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::prune(&self.root, object)
    }

    pub fn default(&self, object: &mut Value) {
        prune::default(&self.root, object);
    }

    /// Brings what was written elsewhere into this version's shape: what the schema does not know goes, and so do nulls that
    /// stand for nothing.
    pub fn coerce(&self, object: &mut Value) {
        prune::prune(&self.root, object);
        prune::drop_nulls(&self.root, object);
    }

    #[must_use]
    pub fn api_version(&self) -> &str {
        &self.api_version
    }

    /// What is wrong with an object, but for its metadata. With `old`, it is an update: rules about change are asked, and
    /// what was wrong before and has not changed is let pass.
    #[must_use]
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = self.validate_type(new);
        if !errors.is_empty() {
            return errors;
        }
        let pair = old.map(|old| Pair { new, old, node: &self.root });
        errors.extend(shape::validate(&self.root, new, "", pair));
        errors.extend(scale::validate_spec(self.scale.as_ref(), new));
        errors.extend(scale::validate_status(self.scale.as_ref(), new));
        errors.extend(lists::embedded(&self.root, new, ""));
        self.validate_lists_and_rules(new, old, &mut errors);
        errors
    }

    /// What is wrong with an object whose status alone is written.
    #[must_use]
    pub fn validate_status(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate_type(new);
        if !errors.is_empty() {
            return errors;
        }
        if let (Some(status), Some(node)) = (new.get("status"), self.root.properties.get("status")) {
            let pair = old.get("status").map(|old| Pair { new: status, old, node });
            errors.extend(shape::validate(node, status, "status", pair));
        }
        errors.extend(scale::validate_status(self.scale.as_ref(), new));
        self.validate_lists_and_rules(new, Some(old), &mut errors);
        errors
    }

    fn validate_type(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (field, expected) in [("kind", &self.kind), ("apiVersion", &self.api_version)] {
            let found = object.get(field).and_then(Value::as_str).unwrap_or_default();
            if found != expected {
                errors.push(FieldError::invalid(field, found, format!("must be {expected}")));
            }
        }
        errors
    }

    fn validate_lists_and_rules(&self, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        if old.is_none_or(|old| lists::duplicates(&self.root, old).is_empty()) {
            errors.extend(lists::duplicates(&self.root, new));
        }
        if !self.root.has_rules {
            return;
        }
        // A rule cannot make sense of an object that lacks fields, or has them of other types.
        let is_unreadable = |error: &FieldError| {
            matches!(
                error.kind,
                FieldErrorKind::NotSupported
                    | FieldErrorKind::Required
                    | FieldErrorKind::TooLong
                    | FieldErrorKind::TooMany
                    | FieldErrorKind::TypeInvalid
            )
        };
        if errors.iter().any(is_unreadable) {
            let why = "some validation rules were not checked because the object was invalid; correct the existing errors to \
                       complete validation";
            errors.push(FieldError::invalid("<nil>", Value::Null, why));
        } else {
            errors.extend(rules::validate(&self.root, new, old, "", true));
        }
    }

    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// What a column shows of an object: the first value that its path leads to.
    #[must_use]
    pub fn cell(&self, column: &Column, object: &Value) -> Value {
        let known = self.columns.iter().position(|known| known.json_path == column.json_path);
        let path = known.and_then(|idx| self.column_paths.get(idx)?.as_ref());
        path.and_then(|path| path.first(object)).cloned().unwrap_or_default()
    }

    #[must_use]
    pub fn scale_paths(&self) -> Option<ScalePaths> {
        self.scale.clone()
    }

    #[must_use]
    pub fn selectable_fields(&self) -> &[String] {
        &self.selectable_fields
    }

    #[must_use]
    pub fn has_status(&self) -> bool {
        self.has_status
    }

    /// What every answer about a deprecated version carries.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// In the definition's words, or in the server's, which name the newest version that is not deprecated.
fn deprecation(version: &Value, group: &str, kind: &str, all: &[Value]) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(written) = version["deprecationWarning"].as_str() {
        return Some(written.to_owned());
    }
    let name = text(&version["name"]);
    let better = all
        .iter()
        .filter(|other| other["served"] == true && other["deprecated"] != true)
        .map(|other| text(&other["name"]))
        .filter(|other| by_preference(other, &name).is_lt())
        .min_by(|a, b| by_preference(a, b));
    let instead = better.map(|better| format!("; use {group}/{better} {kind}")).unwrap_or_default();
    Some(format!("{group}/{name} {kind} is deprecated{instead}"))
}
