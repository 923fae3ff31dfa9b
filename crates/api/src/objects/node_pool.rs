//! NodePool: the shape of the nodes we may make, how many, and how gently they may be replaced.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

use super::parts::null_as_empty;
use super::{NodeClassRef, Requirement, ResourceList};
use crate::duration::{DurationOrNever, DurationText};

kubernetes_object! {
    /// What nodes may look like, how many there may be, and when they may be replaced.
    NodePool {
        kind: "NodePool", group: "karpenter.sh", version: "v1", plural: "nodepools",
        scope: k8s_openapi::ClusterResourceScope,
        spec: required NodePoolSpec, status: NodePoolStatus
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolSpec {
    pub template: NodeClaimTemplate,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption: Option<Disruption>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ResourceList>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    /// Set for a static pool: keep exactly this many nodes, whatever the pods ask (alpha).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplate {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    pub spec: NodeClaimTemplateSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplateSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<Taint>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup_taints: Option<Vec<Taint>>,
    #[serde(default, deserialize_with = "null_as_empty")]
    pub requirements: Vec<Requirement>,
    pub node_class_ref: NodeClassRef,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<DurationText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_after: Option<DurationOrNever>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consolidate_after: Option<DurationOrNever>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consolidation_policy: Option<ConsolidationPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budgets: Option<Vec<Budget>>,
}

/// How many nodes may be disrupted at once, for which reasons, and when. Its arithmetic is in [`crate::budget`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// A count (`"3"`) or a share of the pool (`"10%"`). Absent only on an object that has not met the defaults yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasons: Option<Vec<DisruptionReason>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<DurationText>,
}

choice! {
    /// Which nodes consolidation may look at.
    ConsolidationPolicy {
        WhenEmpty = "WhenEmpty",
        WhenEmptyOrUnderutilized = "WhenEmptyOrUnderutilized",
        Balanced = "Balanced",
    }
}

choice! {
    /// Why a node is disrupted of our own will.
    DisruptionReason {
        Underutilized = "Underutilized",
        Empty = "Empty",
        Drifted = "Drifted",
        /// Node repair.
        Unhealthy = "Unhealthy",
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceList>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_class_observed_generation: Option<i64>,
    #[serde(default, deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl NodePool {
    /// A pool with `replicas` keeps a fixed number of nodes; the others follow the pods.
    pub fn is_static(&self) -> bool {
        self.spec.replicas.is_some()
    }
}
