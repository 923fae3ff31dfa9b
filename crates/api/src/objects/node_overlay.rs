//! NodeOverlay: corrections to what the cloud says of its instance types.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

use super::parts::null_as_empty;
use super::{Operator, ResourceList};

kubernetes_object! {
    /// A change of price or an addition of capacity for the offerings its requirements select (alpha).
    NodeOverlay {
        kind: "NodeOverlay", group: "karpenter.sh", version: "v1alpha1", plural: "nodeoverlays",
        scope: k8s_openapi::ClusterResourceScope,
        spec: required NodeOverlaySpec, status: NodeOverlayStatus
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeOverlaySpec {
    #[serde(default, deserialize_with = "null_as_empty")]
    pub requirements: Vec<OverlayRequirement>,
    /// The price to use instead, in dollars per hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    /// A signed number or signed percentage to apply to the price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_adjustment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<ResourceList>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
}

/// Like a [`super::Requirement`], without `minValues`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OverlayRequirement {
    pub key: String,
    pub operator: Operator,
    #[serde(default, deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeOverlayStatus {
    #[serde(default, deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
