//! What the scheduler does about its decisions: bind, prepare volumes, tell, and make room.

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod};
use serde_json::{Value, json};

use super::filter::PodVolumes;
use super::pod::PodFacts;
use super::preempt::Preemption;
use super::storage::{BOUND_BY_CONTROLLER, SELECTED_NODE};
use super::{BIND_WITHIN, Binding, Scheduler};
use crate::clock;
use crate::error::ApiResult;
use crate::hands::{Event, Hands};
use crate::kind::Subresource;
use crate::store::{Key, Names};

/// The longest note an event may carry.
const NOTE_MAX: usize = 1024;

impl Scheduler {
    /// Gives the pod its node, at once or when its volumes are ready.
    pub(super) fn place(&mut self, pod: &PodFacts, node: &str, volumes: PodVolumes, hands: &mut Hands<'_>) {
        self.cluster.assume(pod, node);
        if volumes.bind.is_empty() && volumes.provision.is_empty() {
            self.bind(pod, node, hands);
            return;
        }
        match self.prepare_volumes(node, &volumes, hands) {
            Ok(()) => {
                // Whoever asks meanwhile learns where the pod is expected.
                patch_status(pod, None, Some(node), hands);
                let deadline = hands.now().saturating_add(BIND_WITHIN).unwrap_or(hands.now());
                let binding = Binding { uid: pod.uid.clone(), node: node.to_owned(), volumes, deadline };
                self.binding.insert(pod.key.clone(), binding);
            }
            Err(error) => self.give_up(pod, &error.to_string(), hands),
        }
    }

    fn bind(&mut self, pod: &PodFacts, node: &str, hands: &mut Hands<'_>) {
        let (namespace, name) = (&pod.key.namespace, &pod.key.name);
        match hands.bind(namespace, name, node) {
            Ok(()) => {
                self.queue.remove(&pod.key);
                let note = format!("Successfully assigned {namespace}/{name} to {node}");
                tell(pod, "Normal", "Scheduled", "Binding", note, hands);
            }
            Err(error) => {
                self.give_up(pod, &format!("running Bind plugin \"DefaultBinder\": {error}"), hands);
            }
        }
    }

    /// Takes a placement back after an error, to try again.
    fn give_up(&mut self, pod: &PodFacts, message: &str, hands: &mut Hands<'_>) {
        self.binding.remove(&pod.key);
        self.cluster.forget(&pod.key);
        self.refuse(pod, "SchedulerError", message, Some(""), hands);
        self.queue.retry(&pod.key, hands.now());
    }

    /// Keeps existing volumes for the claims, and asks for the others to be made near the node.
    fn prepare_volumes(&mut self, node: &str, volumes: &PodVolumes, hands: &mut Hands<'_>) -> ApiResult<()> {
        for (claim, volume) in &volumes.bind {
            let uid = self.cluster.storage.claims.get(claim).map(|claim| claim.uid.clone());
            let patch = json!({
                "metadata": {"annotations": {BOUND_BY_CONTROLLER: "yes"}},
                "spec": {"claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": claim.namespace, "name": claim.name, "uid": uid}},
            });
            let bound: PersistentVolume = hands.merge_patch("", volume, None, &patch)?;
            self.take_in("persistentvolumes", &bound);
        }
        for provision in &volumes.provision {
            let patch = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
            let Names { namespace, name } = &*provision.claim;
            let claim: PersistentVolumeClaim = hands.merge_patch(namespace, name, None, &patch)?;
            self.take_in("persistentvolumeclaims", &claim);
        }
        Ok(())
    }

    /// Takes in what we wrote, before the store tells us.
    fn take_in<T: serde::Serialize>(&mut self, plural: &str, object: &T) {
        if let Ok(json) = serde_json::to_vec(object) {
            self.cluster.put("", plural, &json);
        }
    }

    /// Binds the pods whose volumes are ready by now.
    pub(super) fn finish_bindings(&mut self, hands: &mut Hands<'_>) {
        let keys: Vec<Key> = self.binding.keys().cloned().collect();
        for key in keys {
            let Some(pod) = self.cluster.pods.get(&key).cloned() else { continue };
            let Some(binding) = self.binding.get(&key) else { continue };
            if binding.uid != pod.uid || !self.cluster.is_assumed(&key) {
                self.binding.remove(&key);
                continue;
            }
            let node = binding.node.clone();
            match self.volume_progress(binding, hands) {
                Progress::Ready => {
                    self.binding.remove(&key);
                    self.bind(&pod, &node, hands);
                }
                Progress::Waiting => {}
                Progress::Failed(why) => {
                    self.give_up(&pod, &format!("running PreBind plugin \"VolumeBinding\": {why}"), hands);
                }
            }
        }
    }

    fn volume_progress(&self, binding: &Binding, hands: &Hands<'_>) -> Progress {
        let asked = binding.volumes.provision.iter().map(|provision| (&provision.claim, true));
        for (key, is_provisioned) in binding.volumes.bind.iter().map(|(claim, _)| (claim, false)).chain(asked) {
            let Some(claim) = self.cluster.storage.claims.get(key) else {
                return Progress::Failed(format!("persistentvolumeclaim \"{}\" not found", key.name));
            };
            if is_provisioned && claim.selected_node.as_deref() != Some(binding.node.as_str()) {
                return Progress::Failed(format!("provisioning failed for PVC \"{}\"", key.name));
            }
            if !claim.is_bound {
                if hands.now() >= binding.deadline {
                    return Progress::Failed("context deadline exceeded".to_owned());
                }
                return Progress::Waiting;
            }
        }
        Progress::Ready
    }

    /// Says on the pod and in an event why it has no node.
    ///
    /// `nominated` is the node it is promised, empty to take a promise back, None to leave it as it is.
    pub(super) fn refuse(
        &mut self,
        pod: &PodFacts,
        reason: &str,
        message: &str,
        nominated: Option<&str>,
        hands: &mut Hands<'_>,
    ) {
        tell(pod, "Warning", "FailedScheduling", "Scheduling", shortened(message), hands);
        if let Some(nominated) = nominated {
            let nominated = Some(nominated.to_owned()).filter(|name| !name.is_empty());
            if pod.nominated != nominated {
                self.cluster.put_pod(PodFacts { nominated, ..pod.clone() });
            }
        }
        patch_status(pod, Some((reason, message)), nominated, hands);
    }

    /// Sends the victims away.
    pub(super) fn preempt(&mut self, pod: &PodFacts, preemption: &Preemption, hands: &mut Hands<'_>) {
        for key in &preemption.victims {
            let Some(victim) = self.cluster.pods.get(key).cloned() else { continue };
            if victim.is_deleting {
                continue;
            }
            let message = format!("{}: preempting to accommodate a higher priority pod", pod.scheduler);
            add_condition(&victim, "DisruptionTarget", "True", "PreemptionByScheduler", &message, None, hands);
            if hands.delete::<Pod>(&key.namespace, &key.name, &json!({})).is_ok() {
                let note = format!("Preempted by pod {} on node {}", pod.uid, preemption.node);
                tell(&victim, "Normal", "Preempted", "Preempting", note, hands);
                self.cluster.put_pod(PodFacts { is_deleting: true, is_being_preempted: true, ..(*victim).clone() });
            }
        }
        let lesser: Vec<PodFacts> = self
            .cluster
            .nominated_to(&preemption.node)
            .filter(|other| other.priority < pod.priority)
            .map(|other| (**other).clone())
            .collect();
        for other in lesser {
            patch_status(&other, None, Some(""), hands);
            self.cluster.put_pod(PodFacts { nominated: None, ..other });
        }
    }
}

enum Progress {
    Ready,
    Waiting,
    Failed(String),
}

fn tell(pod: &PodFacts, kind: &str, reason: &str, action: &str, note: String, hands: &mut Hands<'_>) {
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(pod.key.namespace.clone()),
        name: Some(pod.key.name.clone()),
        uid: Some(pod.uid.to_string()),
        ..Default::default()
    };
    hands.event(Event { about, kind, reason, action, note, component: &pod.scheduler });
}

fn shortened(message: &str) -> String {
    if message.len() <= NOTE_MAX {
        return message.to_owned();
    }
    let end = (0..=NOTE_MAX - 4).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
    format!("{} ...", message.get(..end).unwrap_or(""))
}

/// Sets the `PodScheduled` condition and the nominated node, where they differ from what is there.
fn patch_status(pod: &PodFacts, refused: Option<(&str, &str)>, nominated: Option<&str>, hands: &mut Hands<'_>) {
    match refused {
        Some((reason, message)) => add_condition(pod, "PodScheduled", "False", reason, message, nominated, hands),
        None => {
            let Some(nominated) = nominated.filter(|name| *name != pod.nominated.as_deref().unwrap_or("")) else {
                return;
            };
            write(pod, json!({"nominatedNodeName": named(nominated)}), hands);
        }
    }
}

fn named(node: &str) -> Value {
    if node.is_empty() { Value::Null } else { json!(node) }
}

fn add_condition(
    pod: &PodFacts,
    kind: &str,
    is: &str,
    reason: &str,
    message: &str,
    nominated: Option<&str>,
    hands: &mut Hands<'_>,
) {
    let Some(current) = hands.get::<Pod>(&pod.key.namespace, &pod.key.name) else { return };
    let status = current.status.unwrap_or_default();
    let generation = current.metadata.generation;
    let mut conditions = status.conditions.unwrap_or_default();
    let known = conditions.iter().position(|condition| condition.type_ == kind);
    let mut condition = known.map(|at| conditions[at].clone()).unwrap_or_default();
    let is_same = known.is_some()
        && condition.status == is
        && condition.reason.as_deref() == Some(reason)
        && condition.message.as_deref() == Some(message)
        && condition.observed_generation == generation;
    let nominated = nominated.filter(|name| *name != status.nominated_node_name.as_deref().unwrap_or(""));
    if is_same && nominated.is_none() {
        return;
    }
    if condition.status != is || known.is_none() {
        let now = clock::seconds(hands.now()).parse().unwrap_or_else(|_| hands.now());
        condition.last_transition_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
    }
    condition.type_ = kind.to_owned();
    condition.status = is.to_owned();
    condition.reason = Some(reason.to_owned());
    condition.message = Some(message.to_owned());
    condition.observed_generation = generation;
    match known {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    let mut patch = json!({"conditions": conditions});
    if let (Some(nominated), Some(status)) = (nominated, patch.as_object_mut()) {
        status.insert("nominatedNodeName".to_owned(), named(nominated));
    }
    write(pod, patch, hands);
}

/// A pod that is gone by now needs no status; any other failure shows again at the next attempt.
fn write(pod: &PodFacts, status: Value, hands: &mut Hands<'_>) {
    let Names { namespace, name } = &*pod.key;
    drop(hands.merge_patch::<Pod>(namespace, name, Some(Subresource::Status), &json!({"status": status})));
}
