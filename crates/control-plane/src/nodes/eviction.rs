//! Deletes pods from nodes whose NoExecute taints they do not tolerate, or tolerated for long enough.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, PodCondition, Taint};
use serde_json::json;

use super::known::KnownNode;
use super::taints::{Stay, stay};
use crate::drive::Controller;
use crate::hands::{Event, Hands};
use crate::kubelet::agenda::Agenda;
use crate::kubelet::{after, time};
use crate::store::{Change, ChangeKind, Key, Stored};

#[derive(Debug, Default)]
pub struct TaintEviction {
    /// Only nodes that have NoExecute taints.
    tainted: BTreeMap<String, Vec<Taint>>,
    changed_nodes: BTreeSet<String>,
    changed_pods: BTreeSet<Key>,
    evictions: Agenda<Key>,
}

impl TaintEviction {
    fn observe_node(&mut self, change: &Change) {
        let name = &change.object.key.name;
        let taints = match change.kind {
            ChangeKind::Deleted => Vec::new(),
            ChangeKind::Added | ChangeKind::Modified => no_execute_taints(&change.object),
        };
        let before = self.tainted.get(name);
        if before.map_or(taints.is_empty(), |before| *before == taints) {
            return;
        }
        if taints.is_empty() {
            self.tainted.remove(name);
        } else {
            self.tainted.insert(name.clone(), taints);
        }
        self.changed_nodes.insert(name.clone());
    }

    fn observe_pod(&mut self, change: &Change) {
        let key = &change.object.key;
        let Some(node) = change.object.field("spec.nodeName").filter(|node| !node.is_empty()) else { return };
        if self.tainted.contains_key(node) || change.kind == ChangeKind::Deleted {
            self.changed_pods.insert(key.clone());
        }
    }

    fn judge(&mut self, key: &Key, hands: &mut Hands<'_>) {
        let Some(stored) = hands.pod(key) else {
            self.cancel(key, hands);
            return;
        };
        let taints = self.tainted.get(stored.field("spec.nodeName").unwrap_or_default());
        let Some(taints) = taints else {
            self.cancel(key, hands);
            return;
        };
        // Whoever is on the way out need not be shown the door.
        if stored.is_deleting {
            self.evictions.cancel(key);
            return;
        }
        let tolerations = stored.read::<Pod>().and_then(|pod| pod.spec?.tolerations).unwrap_or_default();
        match stay(taints, &tolerations) {
            Stay::Forever => self.cancel(key, hands),
            Stay::NotAtAll => self.evictions.set(key.clone(), hands.now()),
            // A pod whose time runs keeps its time, whatever taints come and go meanwhile.
            Stay::For(_) if self.evictions.when(key).is_some() => {}
            Stay::For(duration) => self.evictions.set(key.clone(), after(hands.now(), duration)),
        }
    }

    fn cancel(&mut self, key: &Key, hands: &mut Hands<'_>) {
        if self.evictions.cancel(key) {
            tell(hands, key, format!("Cancelling deletion of Pod {}/{}", key.namespace, key.name));
        }
    }
}

impl Controller for TaintEviction {
    fn name(&self) -> &'static str {
        "taint-eviction-controller"
    }

    fn observe(&mut self, change: &Change) {
        match (change.resource.group.as_str(), change.resource.plural.as_str()) {
            ("", "nodes") => self.observe_node(change),
            ("", "pods") => self.observe_pod(change),
            _ => {}
        }
    }

    fn work(&mut self, hands: &mut Hands<'_>) -> Option<Timestamp> {
        for node in std::mem::take(&mut self.changed_nodes) {
            self.changed_pods.extend(hands.pods_on(&node).map(|pod| pod.key.clone()));
        }
        for pod in std::mem::take(&mut self.changed_pods) {
            self.judge(&pod, hands);
        }
        while let Some(pod) = self.evictions.take_due(hands.now()) {
            evict(&pod, hands);
        }
        self.evictions.next()
    }
}

fn no_execute_taints(node: &Stored) -> Vec<Taint> {
    let node = KnownNode::read(node);
    let taints = node.as_deref().and_then(|node| node.spec.as_ref()?.taints.as_ref());
    taints.into_iter().flatten().filter(|taint| taint.effect == "NoExecute").cloned().collect()
}

fn evict(key: &Key, hands: &mut Hands<'_>) {
    let Some(mut pod) = hands.get::<Pod>(&key.namespace, &key.name) else { return };
    tell(hands, key, format!("Marking for deletion Pod {}/{}", key.namespace, key.name));
    let why = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");
    if disrupt(&mut pod, why, hands.now()) {
        // The deletion matters more than what it is remembered for.
        let _ = hands.update_status(&pod);
    }
    let _ = hands.delete::<Pod>(&key.namespace, &key.name, &json!({}));
}

/// Sets the condition that tells why a pod had to go. Whether there was anything to set.
pub(super) fn disrupt(pod: &mut Pod, (reason, message): (&str, &str), now: Timestamp) -> bool {
    let generation = pod.metadata.generation;
    let conditions = pod.status.get_or_insert_default().conditions.get_or_insert_default();
    let old = conditions.iter_mut().find(|condition| condition.type_ == "DisruptionTarget");
    let since = old.as_ref().filter(|old| old.status == "True").and_then(|old| old.last_transition_time.clone());
    let condition = PodCondition {
        type_: "DisruptionTarget".to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: since.or_else(|| Some(time(now))),
        last_probe_time: None,
        observed_generation: generation,
    };
    match old {
        Some(old) if *old == condition => false,
        Some(old) => {
            *old = condition;
            true
        }
        None => {
            conditions.push(condition);
            true
        }
    }
}

fn tell(hands: &mut Hands<'_>, key: &Key, note: String) {
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(key.namespace.clone()),
        name: Some(key.name.clone()),
        ..ObjectReference::default()
    };
    let (kind, reason, component) = ("Normal", "TaintManagerEviction", "taint-eviction-controller");
    hands.event(Event { about, kind, reason, action: "", note, component });
}
