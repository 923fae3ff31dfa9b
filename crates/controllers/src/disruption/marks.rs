//! The marks that disruption reads and leaves on nodes and claims, and the requests that write them.

use crate::conditions::{Conditions, NODE_CLAIM, Status};
use crate::errand::ApiCall;
use crate::resource::{NODE_CLAIMS, NODES};
use crate::world::{World, provider_id};
use crate::write;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kerf_api::{NodeClaim, labels, taints};
use kerf_model::{Text, UnixMillis};
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) const DISRUPTION_REASON: &str = "DisruptionReason";
pub(crate) const CONSOLIDATABLE: &str = "Consolidatable";
pub(crate) const DRIFTED: &str = "Drifted";
pub(crate) const LAUNCHED: &str = "Launched";
pub(crate) const INITIALIZED: &str = "Initialized";
/// The value of the label that keeps load balancers away.
const EXCLUDED_BY: &str = "karpenter";

pub(crate) fn name_of(metadata: &ObjectMeta) -> Text {
    metadata.name.as_deref().unwrap_or_default().into()
}

pub(crate) fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str)
}

pub(crate) fn has_label(metadata: &ObjectMeta, key: &str) -> bool {
    label(metadata, key) == Some("true")
}

pub(crate) fn stored(claim: &NodeClaim) -> &[Condition] {
    claim.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
}

pub(crate) fn is_true(claim: &NodeClaim, kind: &str) -> bool {
    stored(claim).iter().any(|condition| condition.type_ == kind && condition.status == "True")
}

/// Somebody has asked for its end: the claim's, or the node's.
pub(crate) fn is_leaving(claim: &NodeClaim, node: Option<&Node>) -> bool {
    claim.metadata.deletion_timestamp.is_some() || node.is_some_and(|node| node.metadata.deletion_timestamp.is_some())
}

/// Whether a claim is ours: the provider serves its class.
pub(crate) fn is_managed(claim: &NodeClaim, classes: &[kerf_cloud::NodeClassKind]) -> bool {
    let class = &claim.spec.node_class_ref;
    classes.iter().any(|kind| kind.group == class.group && kind.kind == class.kind)
}

/// The claim that a node belongs to.
pub(crate) fn claim_of<'a>(world: &'a World, node: &str) -> Option<&'a Arc<NodeClaim>> {
    world.claim_of_node(world.nodes.get(node)?)
}

fn is_disrupted_taint(taint: &Taint) -> bool {
    taint.key == taints::DISRUPTED && taint.effect == taints::NO_SCHEDULE
}

fn taints_of(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

pub(crate) fn is_tainted(node: &Node) -> bool {
    taints_of(node).iter().any(is_disrupted_taint)
}

/// Whether load balancers are kept away by us.
fn is_excluded(node: &Node) -> bool {
    label(&node.metadata, labels::EXCLUDE_FROM_LOAD_BALANCERS) == Some(EXCLUDED_BY)
}

/// Whether neither new pods nor load balancers find the node any more.
pub(crate) fn is_closed(node: &Node) -> bool {
    is_tainted(node) && is_excluded(node)
}

/// Keeps new pods away. Another effect under the same key gives way.
pub(crate) fn taint(node: &Node) -> ApiCall {
    write_taints(node, json!({"spec": {"taints": with_taint(node)}}))
}

/// Keeps new pods and load balancers away, as is fit for a node that ends next.
pub(crate) fn close(node: &Node) -> ApiCall {
    let labels = json!({labels::EXCLUDE_FROM_LOAD_BALANCERS: EXCLUDED_BY});
    write_taints(node, json!({"metadata": {"labels": labels}, "spec": {"taints": with_taint(node)}}))
}

/// Lets in again whom we kept away.
pub(crate) fn open(node: &Node) -> ApiCall {
    let taints: Vec<&Taint> = taints_of(node).iter().filter(|taint| !is_disrupted_taint(taint)).collect();
    let mut patch = json!({"spec": {"taints": taints}});
    if is_excluded(node) {
        patch["metadata"]["labels"][labels::EXCLUDE_FROM_LOAD_BALANCERS] = Value::Null;
    }
    write_taints(node, patch)
}

fn with_taint(node: &Node) -> Vec<Taint> {
    let others = taints_of(node).iter().filter(|taint| taint.key != taints::DISRUPTED).cloned();
    others.chain([taints::disrupted()]).collect()
}

fn write_taints(node: &Node, patch: Value) -> ApiCall {
    let patch = write::if_unchanged(patch, node.metadata.resource_version.as_deref());
    write::patch(NODES, "", node.metadata.name.as_deref().unwrap_or_default(), patch)
}

/// Logs that a node takes no more pods.
pub(crate) fn tell_tainted(node: &Node) {
    tracing::info!(
        controller = "node.termination",
        Node = node.metadata.name.as_deref().unwrap_or_default(),
        "provider-id" = provider_id(node).unwrap_or_default(),
        "taint.Key" = taints::DISRUPTED,
        "taint.Effect" = taints::NO_SCHEDULE,
        "tainted node"
    );
}

/// Says why the node goes.
pub(crate) fn say_reason(claim: &NodeClaim, reason: &str, now: UnixMillis) -> ApiCall {
    let mut conditions = Conditions::of(NODE_CLAIM, &claim.metadata, stored(claim));
    conditions.set(DISRUPTION_REASON, Status::True, reason, reason, now);
    write_conditions(claim, &conditions)
}

/// Takes the reason back.
pub(crate) fn unsay_reason(claim: &NodeClaim) -> ApiCall {
    let mut conditions = Conditions::of(NODE_CLAIM, &claim.metadata, stored(claim));
    conditions.clear(DISRUPTION_REASON);
    write_conditions(claim, &conditions)
}

pub(crate) fn write_conditions(claim: &NodeClaim, conditions: &Conditions) -> ApiCall {
    let patch =
        write::if_unchanged(json!({"status": conditions.to_value()}), claim.metadata.resource_version.as_deref());
    write::patch_status(NODE_CLAIMS, "", claim.metadata.name.as_deref().unwrap_or_default(), patch)
}

/// As the `termination_mode` label says it.
pub(crate) fn termination_mode(claim: &NodeClaim) -> &'static str {
    match claim.spec.termination_grace_period.as_ref().map(kerf_api::DurationText::parse) {
        None => "graceful",
        Some(Ok(period)) if !period.is_positive() => "forceful",
        Some(_) => "eventual",
    }
}

/// As the `capacity_type` label says it.
pub(crate) fn capacity_type(claim: &NodeClaim) -> &str {
    label(&claim.metadata, labels::CAPACITY_TYPE).unwrap_or_default()
}
