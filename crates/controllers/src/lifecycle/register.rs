//! A machine has joined the cluster: what its Node takes over from the claim. Only now; later edits of a claim stay with it.

use super::initialize::amounts;
use super::removal::label;
use super::{Doing, LAUNCHED, Look, NAME, REGISTERED};
use crate::conditions::{Conditions, Status};
use crate::desk::Desk;
use crate::early_binding;
use crate::events::{About, Event};
use crate::resource::NODE_CLAIMS;
use crate::world::claim_provider_id;
use crate::write;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kerf_api::NodeClaim;
use kerf_api::labels::{DO_NOT_SYNC_TAINTS, INSTANCE_TYPE, REGISTERED as REGISTERED_LABEL, TERMINATION_FINALIZER};
use kerf_api::taints::{NO_EXECUTE, UNREGISTERED};
use kerf_cloud::NodeSeen;
use kerf_model::NodeClassRef;
use serde_json::{Value, json};
use std::collections::BTreeMap;

impl Look<'_, '_, '_> {
    /// Answers whether the claim is registered by what is about to be written.
    pub(super) fn register(&mut self, conditions: &mut Conditions, status: &mut Value) -> bool {
        let now = self.desk.now;
        if !conditions.is_unknown(REGISTERED) {
            conditions.refresh(REGISTERED, now);
            return false;
        }
        // Until the status names the machine there is nothing to look for.
        let id = claim_provider_id(self.claim).filter(|_| conditions.is_true(LAUNCHED));
        let Some(id) = id.map(str::to_owned) else {
            return false;
        };
        let nodes = self.desk.world.nodes_of(&id);
        let node = match nodes.as_slice() {
            [] => {
                let message = "Node not registered with cluster";
                conditions.set(REGISTERED, Status::Unknown, "NodeNotFound", message, now);
                return false;
            }
            [node] => (*node).clone(),
            _ => {
                let message = "Invariant violated, matched multiple nodes";
                conditions.set(REGISTERED, Status::False, "MultipleNodesFound", message, now);
                return false;
            }
        };
        let name = node.metadata.name.clone().unwrap_or_default();
        if !was_seen_before(&node) && !self.memory.is_told_of_missing_taint {
            self.memory.is_told_of_missing_taint = true;
            tracing::error!(
                controller = NAME,
                NodeClaim = &**self.name,
                Node = name,
                "provider-id" = id,
                "missing taint prevents registration race conditions on karpenter-managed nodes"
            );
            let text = format!(
                "Missing {UNREGISTERED} taint which prevents registration related race conditions on Karpenter-managed nodes"
            );
            let about = About::of(NODE_CLAIMS, &self.claim.metadata);
            self.desk.event(Event::warning(about, "UnregisteredTaintMissing", text));
        }
        if let Some(key) = self.awaits_label(&id) {
            let message = format!("The cloud does not say yet which {key} its machine has");
            conditions.set(REGISTERED, Status::Unknown, "LabelNotKnown", &message, now);
            return false;
        }
        let binds_early =
            self.desk.options.gates.early_binding && self.desk.nominations.pods_of(self.name).next().is_some();
        if let Some(patch) = sync(&node, self.claim, binds_early) {
            let patch = write::if_unchanged(patch, node.metadata.resource_version.as_deref());
            self.patch_node(&name, patch, Doing::SyncNode);
            return false;
        }
        status["nodeName"] = json!(name);
        conditions.set_true(REGISTERED, now)
    }
}

/// Lets the provider see what the machine really has.
pub(super) fn teach(claim: &NodeClaim, desk: &Desk<'_>) {
    let class = &claim.spec.node_class_ref;
    let class = NodeClassRef {
        group: class.group.as_str().into(),
        kind: class.kind.as_str().into(),
        name: class.name.as_str().into(),
    };
    let (Some(node), Some(class)) = (desk.world.node_of_claim(claim), desk.world.classes.get(&class)) else {
        return;
    };
    let image_id = claim.status.as_ref().and_then(|status| status.image_id.as_deref()).unwrap_or_default();
    let capacity = amounts(node.status.as_ref().and_then(|status| status.capacity.as_ref()));
    desk.cloud.learn(&NodeSeen {
        instance_type: label(claim, INSTANCE_TYPE),
        image_id,
        class_object: &class.value,
        capacity: &capacity,
    });
}

/// Whether the node came with the taint that keeps pods away until it is registered, or is registered already.
fn was_seen_before(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(REGISTERED_LABEL)) || taints(node).iter().any(is_unregistered)
}

/// What the Node lacks of what the claim says. None when it has everything. Where pods will be bound early, a fence goes up in
/// the moment in which the mark of the unregistered goes.
fn sync(node: &Node, claim: &NodeClaim, binds_early: bool) -> Option<Value> {
    let mut metadata = json!({});
    let mut finalizers = node.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == TERMINATION_FINALIZER) {
        finalizers.push(TERMINATION_FINALIZER.to_owned());
        metadata["finalizers"] = json!(finalizers);
    }
    let mut owners = node.metadata.owner_references.clone().unwrap_or_default();
    let uid = claim.metadata.uid.clone().unwrap_or_default();
    if !owners.iter().any(|owner| owner.uid == uid) {
        owners.push(owner(claim, uid));
        metadata["ownerReferences"] = json!(owners);
    }
    let annotations = lacking(node.metadata.annotations.as_ref(), claim.metadata.annotations.as_ref());
    if !annotations.is_empty() {
        metadata["annotations"] = json!(annotations);
    }
    let mut wanted = claim.metadata.labels.clone().unwrap_or_default();
    wanted.insert(REGISTERED_LABEL.to_owned(), "true".to_owned());
    let labels = lacking(node.metadata.labels.as_ref(), Some(&wanted));
    if !labels.is_empty() {
        metadata["labels"] = json!(labels);
    }
    let mut patch = json!({});
    if metadata != json!({}) {
        patch["metadata"] = metadata;
    }
    let mut taints_then = taints_after(node, claim);
    if binds_early && taints(node).iter().any(is_unregistered) {
        taints_then.push(early_binding::fence());
    }
    if taints_then != taints(node) {
        patch["spec"] = json!({"taints": taints_then});
    }
    (patch != json!({})).then_some(patch)
}

/// Those of the claim join those of the node, unless the node asks to be left alone; the mark of the unregistered goes.
fn taints_after(node: &Node, claim: &NodeClaim) -> Vec<Taint> {
    let mut out: Vec<Taint> = taints(node).iter().filter(|taint| !is_unregistered(taint)).cloned().collect();
    let labels = node.metadata.labels.as_ref();
    if labels.and_then(|labels| labels.get(DO_NOT_SYNC_TAINTS)).map(String::as_str) == Some("true") {
        return out;
    }
    let wanted = claim.spec.taints.iter().flatten().chain(claim.spec.startup_taints.iter().flatten());
    for taint in wanted {
        if !out.iter().any(|there| there.key == taint.key && there.effect == taint.effect) {
            out.push(taint.clone());
        }
    }
    out
}

fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

fn is_unregistered(taint: &Taint) -> bool {
    taint.key == UNREGISTERED && taint.effect == NO_EXECUTE
}

fn owner(claim: &NodeClaim, uid: String) -> OwnerReference {
    OwnerReference {
        api_version: NODE_CLAIMS.api_version(),
        kind: NODE_CLAIMS.kind.to_owned(),
        name: claim.metadata.name.clone().unwrap_or_default(),
        uid,
        block_owner_deletion: Some(true),
        controller: None,
    }
}

/// The entries that are missing or different.
fn lacking<'a>(
    there: Option<&BTreeMap<String, String>>,
    wanted: Option<&'a BTreeMap<String, String>>,
) -> BTreeMap<&'a String, &'a String> {
    let is_there = |key: &String, value: &String| there.and_then(|there| there.get(key)) == Some(value);
    wanted.into_iter().flatten().filter(|(key, value)| !is_there(key, value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::testing::{claim, node};

    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        Taint { key: key.to_owned(), value: Some(value.to_owned()), effect: effect.to_owned(), ..Taint::default() }
    }

    /// Applies the patch to the parts that it may touch.
    fn synced(node: &Node, claim: &NodeClaim) -> Node {
        let patch = sync(node, claim, false).unwrap();
        let mut node = node.clone();
        let read = |pointer: &str| patch.pointer(pointer).cloned();
        if let Some(value) = read("/metadata/finalizers") {
            node.metadata.finalizers = serde_json::from_value(value).unwrap();
        }
        if let Some(value) = read("/metadata/ownerReferences") {
            node.metadata.owner_references = serde_json::from_value(value).unwrap();
        }
        if let Some(value) = read("/metadata/labels") {
            let new: BTreeMap<String, String> = serde_json::from_value(value).unwrap();
            node.metadata.labels.get_or_insert_default().extend(new);
        }
        if let Some(value) = read("/metadata/annotations") {
            let new: BTreeMap<String, String> = serde_json::from_value(value).unwrap();
            node.metadata.annotations.get_or_insert_default().extend(new);
        }
        if let Some(value) = read("/spec/taints") {
            node.spec.get_or_insert_default().taints = serde_json::from_value(value).unwrap();
        }
        node
    }

    #[test]
    fn a_node_takes_over_everything_once_and_then_lacks_nothing() {
        let mut claim = claim("c");
        claim.metadata.labels = Some(BTreeMap::from([("team".to_owned(), "claim".to_owned())]));
        claim.metadata.annotations = Some(BTreeMap::from([("note".to_owned(), "claim".to_owned())]));
        claim.spec.taints = Some(vec![taint("t", "claim", "NoSchedule"), taint("u", "", "NoExecute")]);
        claim.spec.startup_taints = Some(vec![taint("s", "", "NoSchedule")]);
        let mut bare = node("n");
        bare.metadata.labels = Some(BTreeMap::from([("team".to_owned(), "node".to_owned())]));
        bare.metadata.finalizers = Some(vec!["example.com/other".to_owned()]);
        bare.spec.get_or_insert_default().taints =
            Some(vec![taint("t", "node", "NoSchedule"), kerf_api::taints::unregistered()]);
        let node = synced(&bare, &claim);
        assert_eq!(node.metadata.finalizers.as_ref().unwrap(), &["example.com/other", TERMINATION_FINALIZER]);
        let owner = &node.metadata.owner_references.as_ref().unwrap()[0];
        assert_eq!((owner.kind.as_str(), owner.name.as_str(), owner.uid.as_str()), ("NodeClaim", "c", "uid-c"));
        assert_eq!((owner.block_owner_deletion, owner.controller), (Some(true), None));
        assert_eq!(node.metadata.labels.as_ref().unwrap()["team"], "claim");
        assert_eq!(node.metadata.labels.as_ref().unwrap()[REGISTERED_LABEL], "true");
        assert_eq!(node.metadata.annotations.as_ref().unwrap()["note"], "claim");
        let expected = [taint("t", "node", "NoSchedule"), taint("u", "", "NoExecute"), taint("s", "", "NoSchedule")];
        assert_eq!(taints(&node), expected, "a taint that is there is kept");
        assert_eq!(sync(&node, &claim, false), None);
        assert_eq!(sync(&node, &claim, true), None, "a fence goes up only in the moment of registration");
    }

    #[test]
    fn a_node_that_asks_for_it_keeps_its_taints_but_for_the_unregistered_one() {
        let mut claim = claim("c");
        claim.spec.taints = Some(vec![taint("t", "", "NoSchedule")]);
        let mut bare = node("n");
        bare.metadata.labels = Some(BTreeMap::from([(DO_NOT_SYNC_TAINTS.to_owned(), "true".to_owned())]));
        bare.spec.get_or_insert_default().taints = Some(vec![kerf_api::taints::unregistered()]);
        assert_eq!(taints(&synced(&bare, &claim)), []);
    }

    #[test]
    fn a_node_without_the_unregistered_taint_is_told_apart_from_one_that_lost_it_at_registration() {
        let mut it = node("n");
        assert!(!was_seen_before(&it));
        it.spec.get_or_insert_default().taints = Some(vec![kerf_api::taints::unregistered()]);
        assert!(was_seen_before(&it));
        it.spec.get_or_insert_default().taints = None;
        it.metadata.labels = Some(BTreeMap::from([(REGISTERED_LABEL.to_owned(), "true".to_owned())]));
        assert!(was_seen_before(&it));
    }
}
