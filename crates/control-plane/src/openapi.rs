//! The OpenAPI documents that clients read: kubectl for validation, explanation and patches, others to make their types.
//!
//! Types come from k8s-openapi's schemas and our facts about them, or from a CustomResourceDefinition; paths follow from what the
//! catalog serves. Parameters are named without their long descriptions.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::kind::{Catalog, Resource};

mod paths;
mod types;
pub(crate) mod wire;

/// Which of the two formats: they differ in how they refer to types and where they keep bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    V2,
    V3,
}

impl Format {
    fn reference(self, name: &str) -> Value {
        match self {
            Self::V2 => json!({ "$ref": format!("#/definitions/{name}") }),
            Self::V3 => json!({ "$ref": format!("#/components/schemas/{name}") }),
        }
    }
}

/// `/openapi/v3`: where the document of each group and version is.
#[must_use]
pub fn v3_index(catalog: &Catalog) -> Value {
    let mut paths = Map::new();
    for (group, version) in group_versions(catalog) {
        let key = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
        let hash = hash(catalog, &group, &version);
        paths.insert(key.clone(), json!({ "serverRelativeURL": format!("/openapi/v3/{key}?hash={hash}") }));
    }
    json!({ "paths": paths })
}

/// The document of one group and version.
#[must_use]
pub fn v3(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    let served: Vec<&Resource> = of_group(catalog, group, version).collect();
    if served.is_empty() {
        return None;
    }
    let mut document_paths = Map::new();
    let mut names = BTreeSet::new();
    for resource in &served {
        paths::of_resource(Format::V3, resource, &mut document_paths);
        names.extend(types::roots(resource));
    }
    let schemas = types::closure(Format::V3, &served, names);
    Some(json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": "1.36" },
        "paths": document_paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "BearerToken": {
                "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header",
            } },
        },
    }))
}

/// Everything in the older format.
#[must_use]
pub fn v2(catalog: &Catalog) -> Value {
    let served: Vec<&Resource> = catalog.iter().map(AsRef::as_ref).collect();
    let mut document_paths = Map::new();
    let mut names = BTreeSet::new();
    for resource in &served {
        paths::of_resource(Format::V2, resource, &mut document_paths);
        names.extend(types::roots(resource));
    }
    json!({
        "swagger": "2.0",
        "info": { "title": "Kubernetes", "version": "1.36" },
        "paths": document_paths,
        "definitions": types::closure(Format::V2, &served, names),
        "securityDefinitions": { "BearerToken": {
            "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header",
        } },
        "security": [{ "BearerToken": [] }],
    })
}

fn of_group<'a>(catalog: &'a Catalog, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Resource> {
    catalog.iter().map(AsRef::as_ref).filter(move |resource| resource.group == group && resource.version == version)
}

fn group_versions(catalog: &Catalog) -> BTreeSet<(String, String)> {
    catalog.iter().map(|resource| (resource.group.clone(), resource.version.clone())).collect()
}

/// Changes when the document does: clients keep what they have read under its hash.
fn hash(catalog: &Catalog, group: &str, version: &str) -> String {
    let mut facts: BTreeMap<&str, Value> = BTreeMap::new();
    for resource in of_group(catalog, group, version) {
        let source = resource.schema.as_ref().and_then(|schema| schema.source.clone());
        let subresources: Vec<&str> = resource.subresources.iter().map(|subresource| subresource.name()).collect();
        facts.insert(&resource.plural, json!([resource.kind, resource.namespaced, subresources, source]));
    }
    let text = json!([env!("CARGO_PKG_VERSION"), facts]).to_string();
    // FNV-1a in two lanes: nobody attacks it, and it is the same on every day.
    let lane =
        |seed: u64| text.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{:016X}{:016X}", lane(0xcbf2_9ce4_8422_2325), lane(0x6c62_272e_07bb_0142))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;

    fn every_reference<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(target)) = fields.get("$ref") {
                    found.push(target);
                }
                fields.values().for_each(|field| every_reference(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| every_reference(item, found)),
            _ => {}
        }
    }

    fn catalog_with_a_custom_resource() -> Catalog {
        let mut catalog = Catalog::built_in();
        let mut shape = (**catalog.get("", "v1", "configmaps").unwrap()).clone();
        shape.group = "shapes.io".to_owned();
        shape.kind = "Shape".to_owned();
        shape.list_kind = "ShapeList".to_owned();
        shape.plural = "shapes".to_owned();
        shape.schema = Some(Schema::structural(&json!({"type": "object", "description": "A shape.", "properties": {
            "spec": {"type": "object", "properties": {"sides": {"type": "integer", "description": "How many."}}}}})));
        catalog.insert(shape);
        catalog
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let catalog = catalog_with_a_custom_resource();
        let mut documents: Vec<Value> =
            group_versions(&catalog).iter().map(|(group, version)| v3(&catalog, group, version).unwrap()).collect();
        documents.push(v2(&catalog));
        for document in &documents {
            let mut found = Vec::new();
            every_reference(document, &mut found);
            assert!(!found.is_empty());
            for target in found {
                let pointer = target.trim_start_matches('#');
                assert!(document.pointer(pointer).is_some(), "{target}");
            }
        }
        assert!(v3(&catalog, "no.such", "v1").is_none());
    }

    #[test]
    fn a_document_says_what_kubectl_asks_for() {
        let catalog = catalog_with_a_custom_resource();
        let apps = v3(&catalog, "apps", "v1").unwrap();
        let patch = &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
        assert_eq!(
            patch["x-kubernetes-group-version-kind"],
            json!({"group": "apps", "version": "v1", "kind": "Deployment"})
        );
        let parameters: Vec<&str> =
            patch["parameters"].as_array().unwrap().iter().filter_map(|parameter| parameter["name"].as_str()).collect();
        assert_eq!(parameters, ["dryRun", "fieldManager", "fieldValidation", "force"]);
        let schemas = &apps["components"]["schemas"];
        let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
        assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
        assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
        let strategy = &schemas["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["strategy"];
        assert_eq!(strategy["x-kubernetes-patch-strategy"], "retainKeys");
        let deployment = &schemas["io.k8s.api.apps.v1.Deployment"];
        assert_eq!(deployment["x-kubernetes-group-version-kind"][0]["kind"], "Deployment");
        assert!(deployment.get("required").is_none(), "metadata is not asked for");
        let shapes = v3(&catalog, "shapes.io", "v1").unwrap();
        let shape = &shapes["components"]["schemas"]["io.shapes.v1.Shape"];
        assert_eq!(shape["properties"]["spec"]["properties"]["sides"]["description"], "How many.");
        assert!(shape["properties"]["metadata"]["allOf"].is_array());
        assert_eq!(shape["x-kubernetes-group-version-kind"][0]["group"], "shapes.io");
    }

    #[test]
    fn the_index_changes_with_what_is_served() {
        let (before, after) = (v3_index(&Catalog::built_in()), v3_index(&catalog_with_a_custom_resource()));
        assert_eq!(before["paths"]["api/v1"], after["paths"]["api/v1"]);
        assert!(
            before["paths"].get("apis/shapes.io/v1").is_none() && after["paths"].get("apis/shapes.io/v1").is_some()
        );
    }
}
