//! A registered node becomes one that is counted on: what it must show first.

use super::{Doing, INITIALIZED, Look, NAME, REGISTERED};
use crate::conditions::{Conditions, Status};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use kerf_api::NodeClaim;
use kerf_api::labels::{INITIALIZED as INITIALIZED_LABEL, INSTANCE_TYPE};
use kerf_api::taints::is_known_ephemeral;
use kerf_model::{Quantity, Resources, TypeName};
use serde_json::json;
use std::collections::BTreeMap;

impl Look<'_, '_, '_> {
    /// Answers whether the claim is initialized by what is about to be written.
    pub(super) fn initialize(&mut self, conditions: &mut Conditions) -> bool {
        let now = self.desk.now;
        if !conditions.is_unknown(INITIALIZED) {
            conditions.refresh(INITIALIZED, now);
            self.learn();
            return false;
        }
        if !conditions.is_true(REGISTERED) || conditions.is_true("Rebooting") {
            return false;
        }
        let Some(node) = self.desk.world.node_of_claim(self.claim).cloned() else {
            let message = "Node not registered with cluster";
            conditions.set(INITIALIZED, Status::Unknown, "NodeNotFound", message, now);
            return false;
        };
        if let Some((reason, message)) = obstacle(&node, self.claim) {
            conditions.set(INITIALIZED, Status::Unknown, reason, &message, now);
            return false;
        }
        let labels = node.metadata.labels.as_ref();
        if labels.and_then(|labels| labels.get(INITIALIZED_LABEL)).map(String::as_str) != Some("true") {
            let patch = json!({"metadata": {"labels": {INITIALIZED_LABEL: "true"}}});
            let name = node.metadata.name.clone().unwrap_or_default();
            self.patch_node(&name, patch, Doing::InitializeNode);
            return false;
        }
        self.learn();
        conditions.set_true(INITIALIZED, now)
    }

    /// Remembers a type whose machine is too small for what was planned onto it.
    fn learn(&mut self) {
        let Some(node) = self.desk.world.node_of_claim(self.claim) else {
            return;
        };
        let Some(found) = disappointment(node, self.claim) else {
            return;
        };
        let labels = node.metadata.labels.as_ref();
        let Some(instance_type) = labels.and_then(|labels| labels.get(INSTANCE_TYPE)) else {
            return;
        };
        let instance_type = TypeName::from(instance_type.as_str());
        if self.desk.stock.disappointed(&instance_type, found.clone(), self.desk.now) {
            tracing::warn!(
                controller = NAME, NodeClaim = &**self.name, "instance-type" = instance_type.as_str(), found = %found,
                "a node is smaller than promised, and too small for its pods; planning with what it has"
            );
        }
    }
}

/// The first thing that is missing: reason and message.
fn obstacle(node: &Node, claim: &NodeClaim) -> Option<(&'static str, String)> {
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    if !conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
        return Some(("NodeNotReady", "Node status is NotReady".to_owned()));
    }
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let startup = claim.spec.startup_taints.as_deref().unwrap_or_default();
    let is_startup = |key: &str, effect: &str| startup.iter().any(|taint| taint.key == key && taint.effect == effect);
    if let Some(taint) = taints.iter().find(|taint| is_startup(&taint.key, &taint.effect)) {
        return Some(("StartupTaintsExist", format!("StartupTaint \"{}:{}\" still exists", taint.key, taint.effect)));
    }
    if let Some(taint) = taints.iter().find(|taint| is_known_ephemeral(&taint.key, &taint.effect)) {
        let message = format!("KnownEphemeralTaint \"{}:{}\" still exists", taint.key, taint.effect);
        return Some(("KnownEphemeralTaintsExist", message));
    }
    let requests = claim.spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let requests = amounts(requests);
    let allocatable = amounts(status.and_then(|status| status.allocatable.as_ref()));
    let missing = requests.iter().find(|(name, amount)| !amount.is_zero() && allocatable.get(name).is_zero());
    missing.map(|(name, _)| ("ResourceNotRegistered", format!("Resource \"{name}\" was requested but not registered")))
}

/// What the node has of what it has less of than promised, if that is too little for what was planned onto it.
fn disappointment(node: &Node, claim: &NodeClaim) -> Option<Resources> {
    let found = amounts(node.status.as_ref()?.allocatable.as_ref());
    let promised = amounts(claim.status.as_ref()?.allocatable.as_ref());
    let planned = amounts(claim.spec.resources.as_ref()?.requests.as_ref());
    let is_short = planned.iter().any(|(name, amount)| amount > found.get(name) && amount <= promised.get(name));
    if !is_short {
        return None;
    }
    let mut less = Resources::new();
    for (name, amount) in promised.iter().filter(|(name, amount)| found.get(name) < *amount) {
        less.set(name, found.get(name).min(amount));
    }
    Some(less)
}

/// What can be read of a list of amounts.
pub(super) fn amounts(list: Option<&BTreeMap<String, QuantityText>>) -> Resources {
    let read = |(name, text): (&String, &QuantityText)| Some((name.as_str().into(), Quantity::parse(&text.0).ok()?));
    Resources(list.into_iter().flatten().filter_map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::testing::{claim, node};
    use k8s_openapi::api::core::v1::{NodeCondition, Taint};
    use kerf_api::ResourceRequirements;

    fn list(pairs: &[(&str, &str)]) -> BTreeMap<String, QuantityText> {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), QuantityText((*text).to_owned()))).collect()
    }

    fn taint(key: &str, effect: &str) -> Taint {
        Taint { key: key.to_owned(), effect: effect.to_owned(), ..Taint::default() }
    }

    fn ready(status: &str) -> NodeCondition {
        NodeCondition { type_: "Ready".to_owned(), status: status.to_owned(), ..NodeCondition::default() }
    }

    #[test]
    fn the_first_thing_that_a_node_lacks_is_told() {
        let mut claim = claim("c");
        claim.spec.startup_taints = Some(vec![taint("s", "NoSchedule")]);
        let requests = list(&[("cpu", "1"), ("example.com/gpu", "1"), ("memory", "0")]);
        claim.spec.resources = Some(ResourceRequirements { requests: Some(requests) });
        let mut it = node("n");
        let reason = |node: &Node| obstacle(node, &claim).map(|(reason, _)| reason);
        assert_eq!(reason(&it), Some("NodeNotReady"));
        it.status.get_or_insert_default().conditions = Some(vec![ready("Unknown")]);
        assert_eq!(reason(&it), Some("NodeNotReady"));
        it.status.get_or_insert_default().conditions = Some(vec![ready("True")]);
        it.spec.get_or_insert_default().taints =
            Some(vec![taint("s", "NoSchedule"), taint("node.kubernetes.io/not-ready", "NoSchedule")]);
        assert_eq!(reason(&it), Some("StartupTaintsExist"));
        it.spec.get_or_insert_default().taints =
            Some(vec![taint("s", "NoExecute"), taint("node.kubernetes.io/not-ready", "NoSchedule")]);
        assert_eq!(reason(&it), Some("KnownEphemeralTaintsExist"));
        it.spec.get_or_insert_default().taints = Some(vec![taint("s", "NoExecute")]);
        it.status.get_or_insert_default().allocatable = Some(list(&[("cpu", "1"), ("example.com/gpu", "0")]));
        assert_eq!(reason(&it), Some("ResourceNotRegistered"));
        it.status.get_or_insert_default().allocatable = Some(list(&[("cpu", "1"), ("example.com/gpu", "1")]));
        assert_eq!(reason(&it), None);
    }

    #[test]
    fn a_node_disappoints_when_it_is_smaller_than_promised_and_too_small_for_its_plan() {
        let mut claim = claim("c");
        claim.spec.resources = Some(ResourceRequirements { requests: Some(list(&[("cpu", "2"), ("memory", "7Gi")])) });
        claim.status.get_or_insert_default().allocatable = Some(list(&[("cpu", "4"), ("memory", "8Gi")]));
        for (found, expected) in [
            ([("cpu", "4"), ("memory", "8Gi")], None),
            ([("cpu", "3"), ("memory", "7Gi")], None),
            ([("cpu", "4"), ("memory", "6Gi")], Some("memory 6Gi")),
            ([("cpu", "3"), ("memory", "6Gi")], Some("cpu 3, memory 6Gi")),
        ] {
            let mut it = node("n");
            it.status.get_or_insert_default().allocatable = Some(list(&found));
            let learned = disappointment(&it, &claim).map(|less| less.to_string());
            assert_eq!(learned.as_deref(), expected, "{found:?}");
        }
    }
}
