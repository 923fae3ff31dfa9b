//! The kinds that we look at, and how one is made from what a file or a watch holds.

use crate::wire;
use k8s_openapi::Metadata;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplate, ReplicationController,
    Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kerf_api::{CapacityBuffer, NodeClaim, NodeOverlay, NodePool};
use kerf_model::{Text, shared_text};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

macro_rules! kinds {
    ($($kind:ident $group:literal $version:literal)+) => {
        /// One Kubernetes object of a kind that planning looks at.
        #[derive(Debug, Clone)]
        pub enum Object {
            $($kind(Box<$kind>),)+
            /// Any provider's node class, as it is: only the provider's own room knows what is in it.
            NodeClass(Box<NodeClassObject>),
        }

        /// The kinds, as parts of a key.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($kind,)+
            NodeClass,
        }

        impl Object {
            pub fn kind(&self) -> Kind {
                match self {
                    $(Object::$kind(_) => Kind::$kind,)+
                    Object::NodeClass(_) => Kind::NodeClass,
                }
            }

            pub fn metadata(&self) -> &ObjectMeta {
                match self {
                    $(Object::$kind(object) => object.metadata(),)+
                    Object::NodeClass(object) => &object.metadata,
                }
            }

            fn read_known(group: &str, kind: &str, version: &str, value: Value) -> Result<Object, Unreadable> {
                match (group, kind) {
                    $(($group, stringify!($kind)) => {
                        if version != $version {
                            return Err(Unreadable::OtherVersion { known: $version });
                        }
                        parse(value).map(|object| Object::$kind(Box::new(object)))
                    })+
                    _ => Err(Unreadable::UnknownKind),
                }
            }

            /// Reads an object of a kind as an API server writes it, straight from the text. Nothing is tidied: see
            /// [`Object::read`] for what people write.
            pub fn parse(kind: Kind, json: &[u8]) -> Result<Object, Unreadable> {
                match kind {
                    $(Kind::$kind => parse_text(json).map(|object| Object::$kind(Box::new(object))),)+
                    Kind::NodeClass => parse_text(json).and_then(Object::read),
                }
            }
        }

        impl Object {
            /// Reads an object of a kind that has this form, from its bytes in protocol buffers.
            pub fn parse_wire(kind: Kind, bytes: &[u8]) -> Result<Object, String> {
                match kind {
                    Kind::Pod => wire::read_pod(bytes).map(|pod| Object::Pod(Box::new(pod))),
                    other => Err(format!("{other} is only read as JSON")),
                }
            }
        }

        impl fmt::Display for Kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Kind::$kind => stringify!($kind),)+
                    Kind::NodeClass => "NodeClass",
                })
            }
        }
    };
}

kinds! {
    Pod "" "v1"
    Node "" "v1"
    Namespace "" "v1"
    Service "" "v1"
    PersistentVolume "" "v1"
    PersistentVolumeClaim "" "v1"
    ReplicationController "" "v1"
    LimitRange "" "v1"
    PodTemplate "" "v1"
    Deployment "apps" "v1"
    ReplicaSet "apps" "v1"
    StatefulSet "apps" "v1"
    DaemonSet "apps" "v1"
    Job "batch" "v1"
    PodDisruptionBudget "policy" "v1"
    StorageClass "storage.k8s.io" "v1"
    CSINode "storage.k8s.io" "v1"
    VolumeAttachment "storage.k8s.io" "v1"
    PriorityClass "scheduling.k8s.io" "v1"
    NodePool "karpenter.sh" "v1"
    NodeClaim "karpenter.sh" "v1"
    NodeOverlay "karpenter.sh" "v1alpha1"
    CapacityBuffer "autoscaling.x-k8s.io" "v1beta1"
}

/// A node class of any provider.
#[derive(Debug, Clone)]
pub struct NodeClassObject {
    pub group: Text,
    pub kind: Text,
    pub metadata: ObjectMeta,
    /// The whole object. Each launch and each look for drift takes it along.
    pub value: Arc<Value>,
}

/// Which object a fact comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub kind: Kind,
    /// Only for node classes, whose kinds differ by provider: `EC2NodeClass.karpenter.k8s.aws`.
    pub class_kind: Option<Text>,
    /// Empty for kinds that live outside namespaces.
    pub namespace: Text,
    pub name: Text,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.class_kind {
            Some(kind) => write!(f, "{} ", kind.split('.').next().unwrap_or(kind))?,
            None => write!(f, "{} ", self.kind)?,
        }
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// Why a value did not become an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// No kind or apiVersion, or not even a mapping.
    NotAnObject {
        message: String,
    },
    /// Objects of this kind exist, but planning has no use for them.
    NotNeeded,
    UnknownKind,
    /// The kind is known, in another version.
    OtherVersion {
        known: &'static str,
    },
    /// One of its fields has the wrong form.
    Field {
        field: String,
        message: String,
    },
}

impl Object {
    /// Reads an object as it comes out of a JSON or YAML parser.
    pub fn read(mut value: Value) -> Result<Object, Unreadable> {
        let not_an_object = |message: &str| Unreadable::NotAnObject { message: message.to_owned() };
        if !value.is_object() {
            return Err(not_an_object("it is not a mapping with apiVersion and kind"));
        }
        tidy(&mut value, false);
        let text = |field: &str| value.get(field).and_then(Value::as_str);
        let Some(kind) = text("kind").map(str::to_owned) else {
            return Err(not_an_object("it has no kind"));
        };
        let Some(api_version) = text("apiVersion").map(str::to_owned) else {
            return Err(not_an_object("it has no apiVersion"));
        };
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        if kind.ends_with("NodeClass") && group.contains('.') {
            return read_node_class(group, &kind, value);
        }
        if is_not_needed(group, &kind) {
            return Err(Unreadable::NotNeeded);
        }
        let object = Self::read_known(group, &kind, version, value)?;
        if object.metadata().name.as_deref().unwrap_or("").is_empty() {
            return Err(Unreadable::Field { field: "metadata.name".to_owned(), message: "it has no name".to_owned() });
        }
        Ok(object)
    }

    pub fn key(&self) -> ObjectKey {
        let metadata = self.metadata();
        let class_kind = match self {
            Object::NodeClass(class) => Some(format!("{}.{}", class.kind, class.group).into()),
            _ => None,
        };
        ObjectKey {
            kind: self.kind(),
            class_kind,
            namespace: if self.kind().is_namespaced() {
                shared_text(metadata.namespace.as_deref().unwrap_or("default"))
            } else {
                shared_text("")
            },
            name: metadata.name.as_deref().unwrap_or_default().into(),
        }
    }
}

impl Kind {
    /// Whether [`Object::parse_wire`] reads it: there are many pods, and few of anything else.
    pub fn has_wire_form(self) -> bool {
        self == Kind::Pod
    }

    pub fn is_namespaced(self) -> bool {
        !matches!(
            self,
            Kind::Node
                | Kind::Namespace
                | Kind::PersistentVolume
                | Kind::StorageClass
                | Kind::CSINode
                | Kind::VolumeAttachment
                | Kind::PriorityClass
                | Kind::NodePool
                | Kind::NodeClaim
                | Kind::NodeOverlay
                | Kind::NodeClass
        )
    }
}

/// How an object that could not be read calls itself, as far as it says.
pub fn describe(value: &Value) -> String {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").unwrap_or("object");
    match (text("/metadata/namespace"), text("/metadata/name")) {
        (Some(namespace), Some(name)) => format!("{kind} {namespace}/{name}"),
        (None, Some(name)) if kind == "Pod" => format!("{kind} default/{name}"),
        (None, Some(name)) => format!("{kind} {name}"),
        (_, None) => format!("{kind} without a name"),
    }
}

fn parse<T: DeserializeOwned>(value: Value) -> Result<T, Unreadable> {
    serde_path_to_error::deserialize(value)
        .map_err(|error| Unreadable::Field { field: error.path().to_string(), message: error.inner().to_string() })
}

fn parse_text<T: DeserializeOwned>(json: &[u8]) -> Result<T, Unreadable> {
    let json = &*without_managed_fields(json);
    // Watching the path costs a tenth of the time; only what fails is read a second time to say where.
    serde_json::from_slice(json).or_else(|_| {
        serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(json))
            .map_err(|error| Unreadable::Field { field: error.path().to_string(), message: error.inner().to_string() })
    })
}

/// The text with an empty list of managed fields: they are a third of most objects, trees of keys, and nobody here reads them.
pub fn without_managed_fields(json: &[u8]) -> Cow<'_, [u8]> {
    // A name of a field and no part of a text: in a text, its quotes would be escaped.
    const FIELD: &[u8] = br#""managedFields":["#;
    let cut = || {
        let start = json.windows(FIELD.len()).position(|part| part == FIELD)? + FIELD.len() - 1;
        let mut list = serde_json::Deserializer::from_slice(&json[start..]).into_iter::<IgnoredAny>();
        list.next()?.ok()?;
        Some([&json[..start], b"[]", &json[start + list.byte_offset()..]].concat())
    };
    cut().map_or(Cow::Borrowed(json), Cow::Owned)
}

fn read_node_class(group: &str, kind: &str, value: Value) -> Result<Object, Unreadable> {
    let metadata = value.get("metadata").cloned().unwrap_or(Value::Null);
    let metadata: ObjectMeta = parse(metadata)?;
    Ok(Object::NodeClass(Box::new(NodeClassObject {
        group: group.into(),
        kind: kind.into(),
        metadata,
        value: value.into(),
    })))
}

/// Kinds that dumps of whole clusters contain, and that say nothing about capacity. Those of any group that is not
/// listed here are named in a note, because they may be typing errors.
fn is_not_needed(group: &str, kind: &str) -> bool {
    match group {
        "" => matches!(
            kind,
            "ConfigMap" | "Secret" | "ServiceAccount" | "Endpoints" | "Event" | "ResourceQuota" | "ComponentStatus"
        ),
        "apps" => kind == "ControllerRevision",
        "batch" => kind == "CronJob",
        "storage.k8s.io" => {
            matches!(kind, "CSIDriver" | "CSIStorageCapacity" | "VolumeAttributesClass")
        }
        // Claims for devices make a pod ineligible by default, so that what the devices are does not matter yet.
        "resource.k8s.io"
        | "rbac.authorization.k8s.io"
        | "coordination.k8s.io"
        | "networking.k8s.io"
        | "discovery.k8s.io"
        | "events.k8s.io"
        | "autoscaling"
        | "admissionregistration.k8s.io"
        | "apiextensions.k8s.io"
        | "apiregistration.k8s.io"
        | "certificates.k8s.io"
        | "flowcontrol.apiserver.k8s.io"
        | "node.k8s.io"
        | "metrics.k8s.io" => true,
        _ => false,
    }
}

/// Makes a hand-written object as strict as the API server's own: what is null is absent, amounts are text even where
/// YAML read a number (`cpu: 1`), and conditions have a time.
fn tidy(value: &mut Value, holds_amounts: bool) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            for (name, field) in fields.iter_mut() {
                // A CSINode's `allocatable.count` is a plain number, and no resource.
                if holds_amounts && field.is_number() && name != "count" {
                    *field = Value::String(field.to_string());
                } else if name == "conditions" {
                    let conditions = field.as_array_mut().into_iter().flatten();
                    conditions.filter_map(Value::as_object_mut).for_each(|condition| {
                        let time = condition.entry("lastTransitionTime");
                        time.or_insert_with(|| "1970-01-01T00:00:00Z".into());
                    });
                } else {
                    tidy(field, AMOUNTS.contains(&name.as_str()));
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| tidy(item, false)),
        _ => {}
    }
}

/// Fields that hold resource amounts, wherever they are.
const AMOUNTS: [&str; 11] = [
    "requests",
    "limits",
    "capacity",
    "allocatable",
    "overhead",
    "default",
    "defaultRequest",
    "min",
    "max",
    "allocatedResources",
    "podFixed",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<Object, Unreadable> {
        Object::read(serde_norway::from_str(yaml).unwrap())
    }

    #[test]
    fn an_object_is_read_by_group_and_kind() {
        let object = read("{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: null}").unwrap();
        assert_eq!(object.key().to_string(), "Deployment default/web");
        let object = read("{apiVersion: v1, kind: Node, metadata: {name: a, namespace: odd}}").unwrap();
        assert_eq!(object.key().to_string(), "Node a");
        let object = read("{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: a}}").unwrap();
        assert_eq!(object.key().to_string(), "EC2NodeClass a");
    }

    #[test]
    fn managed_fields_are_left_out_wherever_they_stand() {
        let fields = r#"[{"manager":"a]\"}","fieldsV1":{"f:spec":{".":{}}}},{"manager":"b"}]"#;
        for text in [
            format!(r#"{{"metadata":{{"managedFields":{fields},"name":"a"}},"spec":{{"nodeName":"n"}}}}"#),
            format!(r#"{{"spec":{{"nodeName":"n"}},"metadata":{{"name":"a","managedFields":{fields}}}}}"#),
            r#"{"metadata":{"name":"a","annotations":{"said":"\"managedFields\":["}},"spec":{"nodeName":"n"}}"#
                .to_owned(),
            r#"{"metadata":{"name":"a"},"spec":{"nodeName":"n"}}"#.to_owned(),
        ] {
            let Object::Pod(pod) = Object::parse(Kind::Pod, text.as_bytes()).unwrap() else { panic!("{text}") };
            assert_eq!(pod.metadata.name.as_deref(), Some("a"));
            assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("n"));
            assert!(pod.metadata.managed_fields.is_none_or(|fields| fields.is_empty()));
        }
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        for (yaml, expected) in [
            ("[]", "NotAnObject"),
            ("{kind: Pod}", "NotAnObject"),
            ("{apiVersion: v1, kind: Secret}", "NotNeeded"),
            ("{apiVersion: v1, kind: Pot}", "UnknownKind"),
            ("{apiVersion: karpenter.sh/v1beta1, kind: NodePool, metadata: {name: a}}", "OtherVersion"),
            ("{apiVersion: v1, kind: Pod}", "metadata.name"),
            ("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: {}}}", "spec.containers"),
            ("{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: many}}", "spec.replicas"),
        ] {
            let error = format!("{:?}", read(yaml).unwrap_err());
            assert!(error.contains(expected), "{yaml}: {error}");
        }
    }

    #[test]
    fn what_a_server_writes_is_read_from_its_text() {
        let pod = Object::parse(Kind::Pod, br#"{"metadata": {"name": "a", "namespace": "b"}}"#).unwrap();
        assert_eq!(pod.key().to_string(), "Pod b/a");
        let class =
            br#"{"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "a"}}"#;
        assert_eq!(Object::parse(Kind::NodeClass, class).unwrap().key().to_string(), "KWOKNodeClass a");
        let error = Object::parse(Kind::Pod, br#"{"spec": {"containers": [{"name": 3}]}}"#).unwrap_err();
        assert!(format!("{error:?}").contains("spec.containers[0].name"), "{error:?}");
    }

    #[test]
    fn amounts_written_as_numbers_are_read() {
        let Ok(Object::Pod(pod)) = read(
            "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, resources: {requests: {cpu: 0.5, memory: 1073741824}}}]}}",
        ) else {
            panic!("not a pod")
        };
        let resources = pod.spec.unwrap().containers[0].resources.clone().unwrap();
        assert_eq!(resources.requests.unwrap()["cpu"].0, "0.5");
    }
}
