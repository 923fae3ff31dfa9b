//! Deletes the pods nobody looks after any more: their node is gone, or out of service, or they never had one.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;

use super::eviction::disrupt;
use super::known::KnownNode;
use super::taints::OUT_OF_SERVICE;
use crate::drive::Controller;
use crate::hands::Hands;
use crate::kubelet::after;
use crate::kubelet::agenda::Agenda;
use crate::store::{Change, ChangeKind, Key};

/// A node object may come back, or come late: so long do its pods wait for it.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);

#[derive(Debug, Default)]
pub struct PodGarbage {
    /// Whether a node that is there is out of service.
    nodes: BTreeMap<String, bool>,
    /// Nodes that pods are bound to, and that may be missing.
    to_check: BTreeSet<String>,
    to_delete: BTreeSet<Key>,
    /// Nodes that are out of service: who is leaving them need not wait for a kubelet.
    to_free: BTreeSet<String>,
    missing: Agenda<String>,
}

impl PodGarbage {
    fn observe_node(&mut self, change: &Change) {
        let name = &change.object.key.name;
        if change.kind == ChangeKind::Deleted {
            self.nodes.remove(name);
            self.to_check.insert(name.clone());
            return;
        }
        let is_out_of_service = KnownNode::read(&change.object).is_some_and(|node| is_out_of_service(&node));
        self.nodes.insert(name.clone(), is_out_of_service);
        self.missing.cancel(name);
        if is_out_of_service {
            self.to_free.insert(name.clone());
        }
    }

    fn observe_pod(&mut self, change: &Change) {
        let key = &change.object.key;
        let node = change.object.field("spec.nodeName").unwrap_or_default();
        if change.kind == ChangeKind::Deleted {
            self.to_delete.remove(key);
            return;
        }
        if change.object.is_deleting && change.before.as_ref().is_none_or(|before| !before.is_deleting) {
            // Nobody else will delete a pod that was never bound.
            if node.is_empty() || self.nodes.get(node) == Some(&true) {
                self.to_delete.insert(key.clone());
            }
        }
        if !node.is_empty() && !self.nodes.contains_key(node) {
            self.to_check.insert(node.to_owned());
        }
    }
}

impl Controller for PodGarbage {
    fn name(&self) -> &'static str {
        "pod-garbage-collector"
    }

    fn observe(&mut self, change: &Change) {
        match (change.resource.group.as_str(), change.resource.plural.as_str()) {
            ("", "nodes") => self.observe_node(change),
            ("", "pods") => self.observe_pod(change),
            _ => {}
        }
    }

    fn work(&mut self, hands: &mut Hands<'_>) -> Option<Timestamp> {
        for node in std::mem::take(&mut self.to_check) {
            let has_pods = hands.pods_on(&node).next().is_some();
            if has_pods && !self.nodes.contains_key(&node) && self.missing.when(&node).is_none() {
                self.missing.set(node, after(hands.now(), QUARANTINE));
            }
        }
        while let Some(node) = self.missing.take_due(hands.now()) {
            for pod in hands.keys_on(&node) {
                discard(&pod, Some(("DeletionByPodGC", "PodGC: node no longer exists")), hands);
            }
        }
        for node in std::mem::take(&mut self.to_free) {
            let leaving = hands.pods_on(&node).filter(|pod| pod.is_deleting);
            self.to_delete.extend(leaving.map(|pod| pod.key.clone()));
        }
        for pod in std::mem::take(&mut self.to_delete) {
            discard(&pod, None, hands);
        }
        self.missing.next()
    }
}

/// Not ready, and said by somebody to be so for good.
fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is_ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    !is_ready && taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

/// Writes down that the pod has failed, if it had not ended, and deletes it at once.
fn discard(key: &Key, why: Option<(&str, &str)>, hands: &mut Hands<'_>) {
    let Some(mut pod) = hands.get::<Pod>(&key.namespace, &key.name) else { return };
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    if !matches!(phase, "Failed" | "Succeeded") {
        if let Some(why) = why {
            disrupt(&mut pod, why, hands.now());
        }
        pod.status.get_or_insert_default().phase = Some("Failed".to_owned());
        // The deletion matters more than what it is remembered for.
        let _ = hands.update_status(&pod);
    }
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}});
    let _ = hands.delete::<Pod>(&key.namespace, &key.name, &options);
}
