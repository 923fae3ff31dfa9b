//! CustomResourceDefinitions, made from the schemas.
//!
//! A kind that has an older version is served in both and stored in the current one. An API server asks the operator to
//! convert between them; until it answers, requests for what is stored in the other version fail, and nothing is dropped
//! in silence.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceConversion, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceScale,
    CustomResourceSubresourceStatus, CustomResourceSubresources, CustomResourceValidation, JSONSchemaProps,
    ServiceReference, WebhookClientConfig, WebhookConversion,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::kind::Kind;
use crate::older::v1beta1;
use crate::schema::Schema;

/// Where an API server finds who converts between the versions of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversionService {
    pub name: String,
    pub namespace: String,
    pub path: String,
    pub port: u16,
}

impl Default for ConversionService {
    /// Where upstream's charts put it, and ours.
    fn default() -> Self {
        Self { name: "karpenter".into(), namespace: "kube-system".into(), path: "/convert".into(), port: 8443 }
    }
}

/// All CRDs, in the order of [`Kind::ALL`]. One set fits every provider: both the AWS and the kwok label rules are in
/// it.
pub fn crds() -> Vec<CustomResourceDefinition> {
    crds_converted_by(&ConversionService::default())
}

/// The same, with another service to convert.
pub fn crds_converted_by(service: &ConversionService) -> Vec<CustomResourceDefinition> {
    Kind::ALL.iter().map(|kind| crd_converted_by(*kind, service)).collect()
}

/// One CRD as YAML, or all of them as a stream of documents. The text depends on nothing but the code.
pub fn crds_yaml(only: Option<Kind>) -> String {
    crds_yaml_converted_by(only, &ConversionService::default())
}

/// The same, with another service to convert.
pub fn crds_yaml_converted_by(only: Option<Kind>, service: &ConversionService) -> String {
    let kinds = only.as_ref().map_or(Kind::ALL, std::slice::from_ref);
    kinds.iter().map(|kind| crd_yaml(&crd_converted_by(*kind, service))).collect()
}

/// Writes one file per CRD into `dir` and returns their paths.
pub fn write_crds(dir: &Path) -> io::Result<Vec<PathBuf>> {
    std::fs::create_dir_all(dir)?;
    let mut paths = Vec::new();
    for (name, yaml) in crd_files() {
        let path = dir.join(name);
        std::fs::write(&path, yaml)?;
        paths.push(path);
    }
    Ok(paths)
}

/// What belongs into `deploy/crds`: names of files and what is in them. Kinds that only [`crate::older::translate`] knows are not among them: as
/// long as no duty of the operator acts on them, a cluster that took them would make people wait for nothing.
pub fn crd_files() -> Vec<(String, String)> {
    Kind::ALL.iter().map(|kind| (crd_file_name(*kind), crd_yaml(&crd(*kind)))).collect()
}

/// `karpenter.sh_nodepools.yaml`
pub fn crd_file_name(kind: Kind) -> String {
    format!("{}_{}.yaml", kind.group(), kind.plural())
}

pub fn crd(kind: Kind) -> CustomResourceDefinition {
    crd_converted_by(kind, &ConversionService::default())
}

/// The same, with another service to convert. A kind of one version needs none.
pub fn crd_converted_by(kind: Kind, service: &ConversionService) -> CustomResourceDefinition {
    let strings = |words: &[&str]| (!words.is_empty()).then(|| words.iter().map(|word| (*word).to_owned()).collect());
    CustomResourceDefinition {
        metadata: ObjectMeta { name: Some(format!("{}.{}", kind.plural(), kind.group())), ..Default::default() },
        spec: CustomResourceDefinitionSpec {
            group: kind.group().to_owned(),
            names: CustomResourceDefinitionNames {
                categories: strings(&[kind.category()]),
                kind: kind.name().to_owned(),
                list_kind: Some(format!("{}List", kind.name())),
                plural: kind.plural().to_owned(),
                short_names: strings(kind.short_names()),
                singular: Some(kind.name().to_lowercase()),
            },
            scope: if kind.is_namespaced() { "Namespaced" } else { "Cluster" }.to_owned(),
            versions: versions(kind),
            conversion: (kind.versions().len() > 1).then(|| conversion(service)),
            ..Default::default()
        },
        status: None,
    }
}

/// The current version comes first. API servers do not care; readers of the first version do.
fn versions(kind: Kind) -> Vec<CustomResourceDefinitionVersion> {
    let current = CustomResourceDefinitionVersion {
        name: kind.version().to_owned(),
        served: true,
        storage: true,
        additional_printer_columns: columns(kind),
        schema: Some(validation(kind.schema())),
        subresources: Some(CustomResourceSubresources {
            scale: (kind == Kind::NodePool).then(|| CustomResourceSubresourceScale {
                label_selector_path: None,
                spec_replicas_path: ".spec.replicas".to_owned(),
                status_replicas_path: ".status.nodes".to_owned(),
            }),
            ..status_subresource()
        }),
        ..Default::default()
    };
    let older = v1beta1::schema(kind).map(|schema| CustomResourceDefinitionVersion {
        name: v1beta1::VERSION.to_owned(),
        served: true,
        storage: false,
        additional_printer_columns: columns_of_v1beta1(kind),
        schema: Some(validation(schema)),
        subresources: Some(status_subresource()),
        ..Default::default()
    });
    std::iter::once(current).chain(older).collect()
}

fn status_subresource() -> CustomResourceSubresources {
    CustomResourceSubresources { status: Some(CustomResourceSubresourceStatus(serde_json::json!({}))), scale: None }
}

/// Never the strategy `None`: it would change the version and drop every field that has moved. Whose certificate to trust
/// is written by the operator, which makes it.
fn conversion(service: &ConversionService) -> CustomResourceConversion {
    CustomResourceConversion {
        strategy: "Webhook".to_owned(),
        webhook: Some(WebhookConversion {
            client_config: Some(WebhookClientConfig {
                service: Some(ServiceReference {
                    name: service.name.clone(),
                    namespace: service.namespace.clone(),
                    path: Some(service.path.clone()),
                    port: Some(service.port.into()),
                }),
                ..Default::default()
            }),
            conversion_review_versions: vec!["v1".to_owned()],
        }),
    }
}

pub(crate) fn crd_yaml(crd: &CustomResourceDefinition) -> String {
    let json = serde_json::to_value(crd).expect("a CRD is plain data with string keys");
    let yaml = serde_norway::to_string(&tidy(json)).expect("JSON is YAML");
    let lines: String = yaml.lines().map(|line| quote_instant(line) + "\n").collect();
    format!("---\n# Generated by `cargo xtask crds` from crates/api; change it there.\n{lines}")
}

/// Puts quotes around a value that older YAML readers would take for a date. We mean a string; so does the schema.
fn quote_instant(line: &str) -> String {
    match line.split_once(": ") {
        Some((key, value)) if value.parse::<jiff::Timestamp>().is_ok() => format!("{key}: '{value}'"),
        _ => line.to_owned(),
    }
}

/// Sorts the keys, whatever order `serde_json` was built to keep, and writes `100` where the client library says
/// `100.0`.
fn tidy(json: serde_json::Value) -> serde_norway::Value {
    use serde_json::Value;
    match json {
        Value::Object(fields) => {
            let sorted: BTreeMap<String, Value> = fields.into_iter().collect();
            serde_norway::Value::Mapping(sorted.into_iter().map(|(key, value)| (key.into(), tidy(value))).collect())
        }
        Value::Array(items) => serde_norway::Value::Sequence(items.into_iter().map(tidy).collect()),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            (None, Some(float)) if float.fract() == 0.0 && float.abs() < 1e15 => (float as i64).into(),
            (None, float) => float.unwrap_or(f64::NAN).into(),
        },
        Value::String(text) => text.into(),
        Value::Bool(flag) => flag.into(),
        Value::Null => serde_norway::Value::Null,
    }
}

/// A schema with the three fields that every object has.
pub(crate) fn validation(schema: &Schema) -> CustomResourceValidation {
    let mut root = JSONSchemaProps::from(schema);
    let of_type = |type_: &str, description: &str| JSONSchemaProps {
        type_: Some(type_.to_owned()),
        description: Some(description.to_owned()),
        ..Default::default()
    };
    root.properties.get_or_insert_default().extend([
        ("apiVersion".to_owned(), of_type("string", "Group and version of the object.")),
        ("kind".to_owned(), of_type("string", "Kind of the object.")),
        ("metadata".to_owned(), JSONSchemaProps { type_: Some("object".to_owned()), ..Default::default() }),
    ]);
    CustomResourceValidation { open_api_v3_schema: Some(root) }
}

pub(crate) const READY: &str = r#".status.conditions[?(@.type=="Ready")].status"#;
const AGE: Column = Column("Age", "date", ".metadata.creationTimestamp", Width::Always);

struct Column(&'static str, &'static str, &'static str, Width);

/// Whether a column shows in `kubectl get`, or only with `-o wide`.
#[derive(PartialEq)]
enum Width {
    Always,
    Wide,
}

fn columns(kind: Kind) -> Option<Vec<CustomResourceColumnDefinition>> {
    use Width::{Always, Wide};
    let columns = match kind {
        Kind::NodePool => vec![
            Column("NodeClass", "string", ".spec.template.spec.nodeClassRef.name", Always),
            Column("Nodes", "string", ".status.nodes", Always),
            Column("Ready", "string", READY, Always),
            AGE,
            Column("Weight", "integer", ".spec.weight", Wide),
            Column("CPU", "string", ".status.resources.cpu", Wide),
            Column("Memory", "string", ".status.resources.memory", Wide),
        ],
        Kind::NodeClaim => vec![
            Column("Type", "string", r".metadata.labels.node\.kubernetes\.io/instance-type", Always),
            Column("Capacity", "string", r".metadata.labels.karpenter\.sh/capacity-type", Always),
            Column("Zone", "string", r".metadata.labels.topology\.kubernetes\.io/zone", Always),
            Column("Node", "string", ".status.nodeName", Always),
            Column("Ready", "string", READY, Always),
            AGE,
            Column("ImageID", "string", ".status.imageID", Wide),
            Column("ID", "string", ".status.providerID", Wide),
            Column("NodePool", "string", r".metadata.labels.karpenter\.sh/nodepool", Wide),
            Column("NodeClass", "string", ".spec.nodeClassRef.name", Wide),
            Column("Drifted", "string", r#".status.conditions[?(@.type=="Drifted")].status"#, Wide),
        ],
        Kind::NodeOverlay => {
            vec![Column("Ready", "string", READY, Always), AGE, Column("Weight", "integer", ".spec.weight", Wide)]
        }
        Kind::CapacityBuffer => vec![
            Column("Strategy", "string", ".spec.provisioningStrategy", Always),
            Column("PodTemplate", "string", ".status.podTemplateRef.name", Always),
            Column("Replicas", "integer", ".status.replicas", Always),
            Column("ConditionsType", "string", ".status.conditions[*].type", Always),
            Column("ConditionsStatus", "string", ".status.conditions[*].status", Always),
            Column("ConditionsReason", "string", ".status.conditions[*].reason", Always),
            AGE,
        ],
        Kind::Ec2NodeClass => {
            vec![Column("Ready", "string", READY, Always), AGE, Column("Role", "string", ".spec.role", Wide)]
        }
        // kubectl's own columns will do.
        Kind::KwokNodeClass => return None,
    };
    Some(columns.into_iter().map(Column::into).collect())
}

/// As readers of that time expect them.
fn columns_of_v1beta1(kind: Kind) -> Option<Vec<CustomResourceColumnDefinition>> {
    use Width::{Always, Wide};
    let columns = match kind {
        Kind::NodePool => vec![
            Column("NodeClass", "string", ".spec.template.spec.nodeClassRef.name", Always),
            Column("Weight", "string", ".spec.weight", Wide),
        ],
        Kind::NodeClaim => vec![
            Column("Type", "string", r".metadata.labels.node\.kubernetes\.io/instance-type", Always),
            Column("Zone", "string", r".metadata.labels.topology\.kubernetes\.io/zone", Always),
            Column("Node", "string", ".status.nodeName", Always),
            Column("Ready", "string", READY, Always),
            AGE,
            Column("Capacity", "string", r".metadata.labels.karpenter\.sh/capacity-type", Wide),
            Column("NodePool", "string", r".metadata.labels.karpenter\.sh/nodepool", Wide),
            Column("NodeClass", "string", ".spec.nodeClassRef.name", Wide),
        ],
        // kubectl's own columns, then as now.
        _ => return None,
    };
    Some(columns.into_iter().map(Column::into).collect())
}

impl From<Column> for CustomResourceColumnDefinition {
    fn from(Column(name, type_, json_path, width): Column) -> Self {
        CustomResourceColumnDefinition {
            name: name.to_owned(),
            type_: type_.to_owned(),
            json_path: json_path.to_owned(),
            priority: (width == Width::Wide).then_some(1),
            ..Default::default()
        }
    }
}
