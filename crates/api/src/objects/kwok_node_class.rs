//! KWOKNodeClass: the NodeClass of pretended machines.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

use super::parts::null_as_empty;
use crate::duration::DurationText;

kubernetes_object! {
    /// How nodes of the kwok provider are pretended.
    KwokNodeClass {
        kind: "KWOKNodeClass", group: "karpenter.kwok.sh", version: "v1alpha1", plural: "kwoknodeclasses",
        scope: k8s_openapi::ClusterResourceScope,
        spec: optional KwokNodeClassSpec, status: KwokNodeClassStatus
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KwokNodeClassSpec {
    /// How long a machine takes from launch to a Node object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_registration_delay: Option<DurationText>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KwokNodeClassStatus {
    #[serde(default, deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
