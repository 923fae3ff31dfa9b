//! The kinds that have no namesake in v1 and are therefore translated: names, schemas, CRDs.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceStatus,
    CustomResourceSubresources,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::{compute, v1alpha1, v1alpha5};
use crate::crd::{READY, crd_yaml, validation};
use crate::problem::Problem;
use crate::schema::{self, Schema};

/// A kind of object that is translated into objects of v1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TranslatedKind {
    Provisioner,
    AwsNodeTemplate,
    /// An EC2NodeClass under the group `compute.k8s.aws`.
    ComputeNodeClass,
}

struct Names {
    group: &'static str,
    version: &'static str,
    name: &'static str,
    singular: &'static str,
    plural: &'static str,
}

impl TranslatedKind {
    pub const ALL: &'static [Self] = &[Self::Provisioner, Self::AwsNodeTemplate, Self::ComputeNodeClass];

    pub fn group(self) -> &'static str {
        self.names().group
    }

    pub fn version(self) -> &'static str {
        self.names().version
    }

    /// `Provisioner`, as written in `kind:`.
    pub fn name(self) -> &'static str {
        self.names().name
    }

    pub fn plural(self) -> &'static str {
        self.names().plural
    }

    /// `karpenter.sh/v1alpha5`, as written in `apiVersion:`.
    pub fn api_version(self) -> String {
        format!("{}/{}", self.group(), self.version())
    }

    /// `provisioners.karpenter.sh`: the name of the CRD, and the resource of an [`super::marks::Origin`].
    pub fn resource(self) -> String {
        format!("{}.{}", self.plural(), self.group())
    }

    /// `karpenter.sh_provisioners.yaml`
    pub fn crd_file_name(self) -> String {
        format!("{}_{}.yaml", self.group(), self.plural())
    }

    /// The kind that a user's word names: kind, singular or plural, in any case. `EC2NodeClass` is never the one of
    /// `compute.k8s.aws`.
    pub fn from_word(word: &str) -> Option<Self> {
        let word = word.to_lowercase();
        let named = |kind: &&Self| word == kind.names().singular || word == kind.plural() || word == kind.resource();
        Self::ALL.iter().find(named).copied()
    }

    /// The kind of an object by its `apiVersion` and `kind`.
    pub fn of(object: &Value) -> Option<Self> {
        let (api_version, name) = (object.get("apiVersion")?.as_str()?, object.get("kind")?.as_str()?);
        Self::ALL.iter().copied().find(|kind| kind.name() == name && kind.api_version() == api_version)
    }

    /// Fills in what the API server would have filled in.
    pub fn apply_defaults(self, object: &mut Value) {
        schema::fill_defaults(self.schema(), object);
    }

    /// Everything an API server would refuse `object` for, defaults being filled in.
    pub fn check(self, object: &Value, old: Option<&Value>) -> Vec<Problem> {
        schema::check(self.schema(), object, old)
    }

    /// Fields that the schema does not have; an API server drops them, and `kubectl apply` refuses them.
    pub fn unknown_fields(self, object: &Value) -> Vec<String> {
        schema::unknown_fields(self.schema(), object)
    }

    pub fn crd(self) -> CustomResourceDefinition {
        let names = self.names();
        CustomResourceDefinition {
            metadata: ObjectMeta { name: Some(self.resource()), ..Default::default() },
            spec: CustomResourceDefinitionSpec {
                group: names.group.to_owned(),
                names: CustomResourceDefinitionNames {
                    // The alias is no part of `kubectl get karpenter`: what became of it is.
                    categories: (self != Self::ComputeNodeClass).then(|| vec!["karpenter".to_owned()]),
                    kind: names.name.to_owned(),
                    list_kind: Some(format!("{}List", names.name)),
                    plural: names.plural.to_owned(),
                    short_names: None,
                    singular: Some(names.singular.to_owned()),
                },
                scope: "Cluster".to_owned(),
                versions: vec![CustomResourceDefinitionVersion {
                    name: names.version.to_owned(),
                    served: true,
                    storage: true,
                    additional_printer_columns: self.columns(),
                    schema: Some(validation(self.schema())),
                    subresources: Some(CustomResourceSubresources {
                        status: Some(CustomResourceSubresourceStatus(serde_json::json!({}))),
                        scale: None,
                    }),
                    ..Default::default()
                }],
                ..Default::default()
            },
            status: None,
        }
    }

    /// Name and age, as it was when the guides were written; the rest shows with `-o wide`.
    fn columns(self) -> Option<Vec<CustomResourceColumnDefinition>> {
        let column = |name: &str, type_: &str, path: &str, priority| CustomResourceColumnDefinition {
            name: name.to_owned(),
            type_: type_.to_owned(),
            json_path: path.to_owned(),
            priority,
            ..Default::default()
        };
        let age = column("Age", "date", ".metadata.creationTimestamp", None);
        let ready = column("Ready", "string", READY, Some(1));
        match self {
            Self::Provisioner => Some(vec![
                age,
                ready,
                column("Template", "string", ".spec.providerRef.name", Some(1)),
                column("Weight", "integer", ".spec.weight", Some(1)),
            ]),
            Self::AwsNodeTemplate | Self::ComputeNodeClass => Some(vec![age, ready]),
        }
    }

    fn schema(self) -> &'static Schema {
        static SCHEMAS: LazyLock<[Schema; 3]> =
            LazyLock::new(|| [v1alpha5::provisioner(), v1alpha1::aws_node_template(), compute::node_class()]);
        &SCHEMAS[self as usize]
    }

    fn names(self) -> Names {
        match self {
            Self::Provisioner => Names {
                group: "karpenter.sh",
                version: "v1alpha5",
                name: "Provisioner",
                singular: "provisioner",
                plural: "provisioners",
            },
            Self::AwsNodeTemplate => Names {
                group: "karpenter.k8s.aws",
                version: "v1alpha1",
                name: "AWSNodeTemplate",
                singular: "awsnodetemplate",
                plural: "awsnodetemplates",
            },
            // Not `ec2nodeclasses`: of two groups with one plural, kubectl takes the one that comes first in the alphabet, and
            // `kubectl get ec2nodeclasses` would mean this one. `kubectl apply` goes by kind and finds it under any plural.
            Self::ComputeNodeClass => Names {
                group: "compute.k8s.aws",
                version: "v1beta1",
                name: "EC2NodeClass",
                singular: "ec2nodeclassalias",
                plural: "ec2nodeclassaliases",
            },
        }
    }
}

/// The CRDs of what is translated, in the order of [`TranslatedKind::ALL`]. An installation without older objects does without.
pub fn older_crds() -> Vec<CustomResourceDefinition> {
    TranslatedKind::ALL.iter().map(|kind| kind.crd()).collect()
}

/// One of them as YAML, or all as a stream of documents.
pub fn older_crds_yaml(only: Option<TranslatedKind>) -> String {
    let kinds = only.as_ref().map_or(TranslatedKind::ALL, std::slice::from_ref);
    kinds.iter().map(|kind| crd_yaml(&kind.crd())).collect()
}
