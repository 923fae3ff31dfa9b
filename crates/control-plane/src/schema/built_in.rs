//! The shapes of the built-in kinds, from k8s-openapi's JSON schemas and the facts that those leave out.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use k8s_openapi::Resource;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

use super::facts::{FieldFacts, TypeFacts};
use super::{Alternative, Empty, Field, Link, List, ListType, MapShape, Object, Scalar, Schema, Shape, facts};

pub(crate) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub(crate) const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

struct Everything {
    /// The JSON schemas as k8s-openapi has them, by full name.
    json: BTreeMap<String, Value>,
    shapes: BTreeMap<String, Arc<Schema>>,
    /// The full name of a kind, by its apiVersion and name.
    kinds: Kinds,
}

type Kinds = BTreeMap<&'static str, BTreeMap<&'static str, String>>;

static EVERYTHING: LazyLock<Everything> = LazyLock::new(gather);

pub(super) fn of_kind(api_version: &str, kind: &str) -> Option<Arc<Schema>> {
    name_of(api_version, kind).and_then(|name| EVERYTHING.shapes.get(name)).cloned()
}

/// The full OpenAPI name of a built-in kind.
pub(crate) fn name_of(api_version: &str, kind: &str) -> Option<&'static str> {
    EVERYTHING.kinds.get(api_version)?.get(kind).map(String::as_str)
}

/// The JSON schema of a type, as k8s-openapi has it.
pub(crate) fn json_schema(name: &str) -> Option<&'static Value> {
    EVERYTHING.json.get(name)
}

/// A type by its full name. One that nobody described is any value.
pub(crate) fn definition(name: &str) -> Arc<Schema> {
    EVERYTHING.shapes.get(name).cloned().unwrap_or_else(|| Arc::new(Schema::any()))
}

struct Gatherer {
    generator: SchemaGenerator,
    kinds: Kinds,
}

impl Gatherer {
    fn kind<T: Resource + JsonSchema>(&mut self) {
        self.named::<T>(T::API_VERSION, T::KIND);
    }

    fn named<T: JsonSchema>(&mut self, api_version: &'static str, kind: &'static str) {
        self.kinds.entry(api_version).or_default().insert(kind, T::schema_name().into_owned());
        self.plain::<T>();
    }

    fn plain<T: JsonSchema>(&mut self) {
        let _reference = self.generator.subschema_for::<T>();
    }
}

fn gather() -> Everything {
    let mut gatherer = Gatherer { generator: SchemaGenerator::default(), kinds: BTreeMap::new() };
    every_kind(&mut gatherer);
    let mut json: BTreeMap<String, Value> = gatherer.generator.take_definitions(true).into_iter().collect();
    let facts = facts::read(include_str!("facts.txt"));
    let nothing = TypeFacts::default();
    for (name, schema) in &mut json {
        drop_unasked(schema, facts.get(name).unwrap_or(&nothing));
    }
    let shapes = json
        .iter()
        .map(|(name, schema)| {
            (name.clone(), Arc::new(definition_of(name, schema, facts.get(name).unwrap_or(&nothing))))
        })
        .collect();
    Everything { json, shapes, kinds: gatherer.kinds }
}

/// k8s-openapi asks for metadata, and for some names, where the server does not.
fn drop_unasked(schema: &mut Value, facts: &TypeFacts<'_>) {
    let Value::Object(fields) = schema else { return };
    if let Some(Value::Array(required)) = fields.get_mut("required") {
        required.retain(|key| key.as_str().is_some_and(|key| key != "metadata" && !facts.field(key).optional));
        if required.is_empty() {
            fields.remove("required");
        }
    }
}

fn every_kind(gatherer: &mut Gatherer) {
    use k8s_openapi::api::{
        admissionregistration::v1 as admission, apps::v1 as apps, authentication::v1 as authentication,
        authorization::v1 as authorization, autoscaling::v1 as autoscaling, batch::v1 as batch,
        coordination::v1 as coordination, core::v1 as core, events::v1 as events, policy::v1 as policy,
        rbac::v1 as rbac, resource::v1 as resource, scheduling::v1 as scheduling, storage::v1 as storage,
    };
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as extensions;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

    macro_rules! kinds {
        ($($group:ident: $($kind:ident)+;)+) => { $($(gatherer.kind::<$group::$kind>();)+)+ };
    }
    kinds! {
        core: Binding ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolumeClaim PersistentVolume Pod
            PodTemplate ReplicationController ResourceQuota Secret ServiceAccount Service;
        admission: MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
            ValidatingWebhookConfiguration;
        extensions: CustomResourceDefinition;
        apps: ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet;
        authentication: TokenRequest TokenReview;
        authorization: SelfSubjectAccessReview SubjectAccessReview;
        autoscaling: Scale HorizontalPodAutoscaler;
        batch: CronJob Job;
        coordination: Lease;
        events: Event;
        policy: Eviction PodDisruptionBudget;
        rbac: ClusterRole ClusterRoleBinding Role RoleBinding;
        resource: DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice;
        scheduling: PriorityClass;
        storage: CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment;
        meta: Status;
    }
    gatherer.named::<meta::DeleteOptions>("v1", "DeleteOptions");
    gatherer.plain::<meta::ListMeta>();
}

fn definition_of(name: &str, schema: &Value, facts: &TypeFacts<'_>) -> Schema {
    let short = name.rsplit('.').next().unwrap_or(name);
    let shape = match short {
        "Quantity" => return Schema::scalar_of(Scalar::Quantity),
        "IntOrString" => return Schema::scalar_of(Scalar::IntOrString),
        "Time" => return Schema::scalar_of(Scalar::Time),
        "MicroTime" => return Schema::scalar_of(Scalar::MicroTime),
        "JSON" | "RawExtension" | "FieldsV1" => Shape::Any { divided: false },
        "JSONSchemaPropsOrArray" => Shape::Either(json_schema_props(), Alternative::Objects),
        "JSONSchemaPropsOrBool" => Shape::Either(json_schema_props(), Alternative::Bool),
        "JSONSchemaPropsOrStringArray" => Shape::Either(json_schema_props(), Alternative::Strings),
        _ => {
            let required: Vec<&str> =
                schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let none = Map::new();
            let properties = schema["properties"].as_object().unwrap_or(&none);
            let fields = properties
                .iter()
                .map(|(key, property)| {
                    let is_required = required.contains(&key.as_str());
                    let field = field_of(key, property, is_required, &facts.field(key));
                    (key.clone(), Field { part: facts.part(key).to_owned(), ..field })
                })
                .collect();
            Shape::Object(Object { name: short.to_owned(), fields, atomic: facts.atomic, ..Object::default() })
        }
    };
    Schema::new(shape, format!("v1.{short}"))
}

fn json_schema_props() -> Link {
    Link::named("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
}

/// What a field's type comes to, as far as the rules about emptiness go.
#[derive(Clone, Copy, PartialEq)]
enum Sort {
    Plain,
    Collection,
    Struct,
    /// Written by its own hand, so that Go never finds it empty: times, quantities, raw JSON.
    Special,
}

fn field_of(key: &str, property: &Value, is_required: bool, facts: &FieldFacts<'_>) -> Field {
    let (mut schema_or_name, sort) = type_of(property, facts);
    if let (Err(schema), Some(default)) = (&mut schema_or_name, facts.default) {
        let number = default.parse::<i64>().ok().map(Value::from);
        schema.default = Some(number.unwrap_or_else(|| Value::from(default)));
    }
    if let (Err(schema), true) = (&mut schema_or_name, facts.optional) {
        schema.default = Some(Value::from(""));
    }
    let is_meta = key == "metadata" && matches!(&schema_or_name, Ok(name) if name == OBJECT_META || name == LIST_META);
    let written = (is_required && !facts.left_out_when_empty) || facts.written_when_empty;
    let empty = match sort {
        Sort::Struct if is_meta || facts.inline => Empty::Zero,
        Sort::Struct if facts.pointer || !is_required => {
            if written && facts.pointer || facts.written_when_empty {
                Empty::Null
            } else {
                Empty::Kept
            }
        }
        Sort::Struct => Empty::Zero,
        Sort::Collection if facts.pointer => Empty::Kept,
        Sort::Collection => {
            if written {
                Empty::Null
            } else {
                Empty::LeftOut
            }
        }
        Sort::Plain | Sort::Special if facts.pointer => {
            if written {
                Empty::Null
            } else {
                Empty::Kept
            }
        }
        Sort::Special if facts.left_out_when_empty => Empty::LeftOut,
        Sort::Special => Empty::Zero,
        Sort::Plain if written => Empty::Zero,
        Sort::Plain => Empty::LeftOut,
    };
    let link = match schema_or_name {
        Ok(name) => Link::named(&name),
        Err(schema) => Link::here(schema),
    };
    Field {
        link,
        empty,
        part: String::new(),
        retain_keys: facts.retain_keys,
        replace: facts.replace,
        atomic: facts.atomic,
    }
}

/// The name of another type, or a type of its own.
fn type_of(property: &Value, facts: &FieldFacts<'_>) -> (Result<String, Schema>, Sort) {
    if let Some(name) = reference(property) {
        let short = name.rsplit('.').next().unwrap_or(name);
        let sort = match short {
            "Quantity" | "IntOrString" | "Time" | "MicroTime" | "JSON" | "RawExtension" | "FieldsV1" => Sort::Special,
            "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" => Sort::Special,
            _ => Sort::Struct,
        };
        return (Ok(name.to_owned()), sort);
    }
    let go_type = facts.go_type.as_deref();
    match property["type"].as_str() {
        Some("array") => {
            let item_type = go_type.and_then(|name| name.strip_prefix("[]"));
            let item = child(&property["items"], item_type);
            let own = go_type.map_or_else(|| format!("[]{}", go_type_of(&item)), str::to_owned);
            let kind = if facts.set {
                ListType::Set
            } else if facts.keys.is_empty() {
                ListType::Atomic
            } else {
                ListType::Map(facts.keys.iter().map(|key| (*key).to_owned()).collect())
            };
            let merge_key = facts.merge.map(str::to_owned);
            let list = List { item, kind, merge_key };
            (Err(Schema::new(Shape::List(list), own)), Sort::Collection)
        }
        Some("object") => {
            let value_type = go_type.and_then(|name| name.split_once(']')).map(|(_, value)| value);
            let values = child(&property["additionalProperties"], value_type);
            let own = go_type.map_or_else(
                || match go_type_of(&values).as_str() {
                    "resource.Quantity" => "v1.ResourceList".to_owned(),
                    value => format!("map[string]{value}"),
                },
                str::to_owned,
            );
            let map = MapShape { values, atomic: facts.atomic == Some(true) };
            (Err(Schema::new(Shape::Map(map), own)), Sort::Collection)
        }
        _ => {
            let mut schema = plain(property);
            if let Some(go_type) = go_type {
                go_type.clone_into(&mut schema.go_type);
            }
            let sort = if matches!(schema.shape, Shape::Any { .. }) { Sort::Special } else { Sort::Plain };
            (Err(schema), sort)
        }
    }
}

fn child(property: &Value, go_type: Option<&str>) -> Link {
    let facts = FieldFacts { go_type: go_type.map(str::to_owned), ..FieldFacts::default() };
    match type_of(property, &facts).0 {
        Ok(name) => Link::named(&name),
        Err(schema) => Link::here(schema),
    }
}

/// Known before the shapes are: a named type is called by its last word.
fn go_type_of(link: &Link) -> String {
    match link {
        Link::Here(schema) => schema.go_type.clone(),
        Link::Named { name, .. } => match name.rsplit('.').next().unwrap_or(name) {
            "Quantity" => Scalar::Quantity.go_type().to_owned(),
            "IntOrString" => Scalar::IntOrString.go_type().to_owned(),
            short => format!("v1.{short}"),
        },
    }
}

fn plain(property: &Value) -> Schema {
    let scalar = match (property["type"].as_str(), property["format"].as_str()) {
        (Some("string"), Some("byte")) => Scalar::Bytes,
        (Some("string"), _) => Scalar::String,
        (Some("integer"), Some("int64")) => Scalar::Int64,
        (Some("integer"), _) => Scalar::Int32,
        (Some("number"), _) => Scalar::Number,
        (Some("boolean"), _) => Scalar::Bool,
        _ => return Schema::any(),
    };
    Schema::scalar_of(scalar)
}

/// `#/$defs/io.k8s.api.core.v1.PodSpec` refers to the type of that name.
pub(crate) fn reference(property: &Value) -> Option<&str> {
    property["$ref"].as_str().and_then(|path| path.rsplit('/').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_speaks_of_a_field_that_is_there() {
        for (name, facts) in facts::read(include_str!("facts.txt")) {
            let schema = EVERYTHING.shapes.get(&name).unwrap_or_else(|| panic!("{name} is no type"));
            for field in facts.names() {
                assert!(schema.field(field).is_some(), "{name} has no {field}");
            }
        }
    }

    #[test]
    fn lists_of_a_pod_merge_by_their_keys() {
        let pod = Schema::built_in("v1", "Pod").unwrap();
        let spec = pod.field("spec").unwrap();
        let containers = spec.field("containers").unwrap();
        assert_eq!(containers.list_type(), Some(&ListType::Map(vec!["name".to_owned()])));
        let ports = containers.item().unwrap().field("ports").unwrap();
        assert_eq!(ports.merge_key(), Some("containerPort"));
        assert_eq!(ports.go_type, "[]v1.ContainerPort");
        assert_eq!(ports.item().unwrap().field("protocol").unwrap().default, Some(Value::from("TCP")));
        assert_eq!(spec.field("tolerations").unwrap().list_type(), Some(&ListType::Atomic));
    }

    #[test]
    fn every_served_kind_has_a_shape() {
        for resource in crate::kind::Catalog::built_in().iter() {
            assert!(Schema::built_in(&resource.api_version(), &resource.kind).is_some(), "{}", resource.kind);
        }
    }
}
