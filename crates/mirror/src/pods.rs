//! Pods: which of them wait, which run, and what holds them where they are.

use crate::read::{self, Fault, Reader};
use crate::requests::ContainerDefaults;
use crate::settings::View;
use crate::shape::{Context, Shape};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kerf_api::LabelRules;
use kerf_model::{Effect, Taint, Text, UnixMillis};
use std::sync::Arc;

#[derive(Debug, Clone)]
pub(crate) struct PodFact {
    pub(crate) source: Text,
    pub(crate) shape: Arc<Shape>,
    pub(crate) place: Place,
    pub(crate) created: UnixMillis,
    pub(crate) priority: Option<i32>,
    pub(crate) priority_class: Option<Text>,
    pub(crate) owner: Option<Owner>,
    pub(crate) fault: Option<Fault>,
    pub(crate) is_terminating: bool,
    /// Until when it must not be disrupted.
    pub(crate) held_until: Option<UnixMillis>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// It wants a place, and we may find one.
    Waiting,
    /// kube-scheduler has not looked at it yet. If it is like one that found no place, it will find none either.
    Fresh,
    /// It waits for something else: a gate, a preemption, another scheduler, or its end.
    Aside,
    On(Text),
}

/// The object that controls a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Owner {
    pub(crate) kind: OwnerKind,
    pub(crate) name: Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum OwnerKind {
    DaemonSet,
    /// A static pod of the kubelet.
    Node,
    Deployment,
    ReplicaSet,
    StatefulSet,
    ReplicationController,
    Job,
    Other,
}

impl OwnerKind {
    pub(crate) fn parse(api_version: &str, kind: &str) -> Self {
        match (api_version.split('/').next().unwrap_or_default(), kind) {
            ("apps", "DaemonSet") => OwnerKind::DaemonSet,
            ("apps", "Deployment") => OwnerKind::Deployment,
            ("apps", "ReplicaSet") => OwnerKind::ReplicaSet,
            ("apps", "StatefulSet") => OwnerKind::StatefulSet,
            ("batch", "Job") => OwnerKind::Job,
            ("v1", "Node") => OwnerKind::Node,
            ("v1", "ReplicationController") => OwnerKind::ReplicationController,
            _ => OwnerKind::Other,
        }
    }
}

/// Reads a pod. None for one that has ended: it neither waits nor takes up room.
pub(crate) fn read(
    reader: &mut Reader,
    source: &Text,
    pod: &Pod,
    namespace: &Text,
    rules: &LabelRules,
    view: View,
) -> Option<PodFact> {
    let empty = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return None;
    }
    if spec.containers.is_empty() {
        reader.fault("spec.containers", "a pod needs at least one container");
    }
    let context = Context {
        namespace,
        labels: pod.metadata.labels.as_ref(),
        field: "spec",
        rules,
        defaults: &ContainerDefaults::default(),
    };
    let shape = Shape::read(reader, &context, spec, pod.status.as_ref());
    let owners = pod.metadata.owner_references.iter().flatten();
    let owner =
        owners.clone().find(|owner| owner.controller == Some(true)).or_else(|| owners.clone().next()).map(|owner| {
            Owner { kind: OwnerKind::parse(&owner.api_version, &owner.kind), name: owner.name.as_str().into() }
        });
    let mut fact = PodFact {
        source: source.clone(),
        shape: Arc::new(shape),
        place: Place::Aside,
        created: read::created(&pod.metadata),
        priority: spec.priority,
        priority_class: spec.priority_class_name.as_deref().map(Into::into),
        owner,
        fault: None,
        is_terminating: read::is_deleting(&pod.metadata),
        held_until: held_until(reader, pod),
    };
    fact.fault = reader.fault.clone();
    fact.place = match spec.node_name.as_deref() {
        Some(node) if !node.is_empty() => Place::On(node.into()),
        _ if fact.is_terminating || fact.belongs_to_a_node() => Place::Aside,
        _ if waits_for_a_place(pod, view) => Place::Waiting,
        _ if view == View::Live && waits_for(pod) == WaitsFor::Scheduler => Place::Fresh,
        _ => Place::Aside,
    };
    Some(fact)
}

impl PodFact {
    pub(crate) fn owner_kind(&self) -> Option<OwnerKind> {
        self.owner.as_ref().map(|owner| owner.kind)
    }

    pub(crate) fn is_daemon(&self) -> bool {
        self.owner_kind() == Some(OwnerKind::DaemonSet)
    }

    /// DaemonSet pods and static pods come and go with their node.
    pub(crate) fn belongs_to_a_node(&self) -> bool {
        matches!(self.owner_kind(), Some(OwnerKind::DaemonSet | OwnerKind::Node))
    }

    /// Whether it will be put elsewhere when its node goes, budgets aside.
    pub(crate) fn will_move(&self, now: UnixMillis) -> bool {
        let is_active = !self.is_terminating || self.owner_kind() == Some(OwnerKind::StatefulSet);
        is_active && !self.belongs_to_a_node() && self.held_until.is_none_or(|until| until <= now)
    }

    /// Whether a drain evicts it at all: pods that tolerate the taint of a leaving node stay to the end.
    pub(crate) fn is_evictable(&self) -> bool {
        let disrupted = Taint { key: "karpenter.sh/disrupted".into(), value: "".into(), effect: Effect::NoSchedule };
        !self.shape.tolerations.iter().any(|toleration| toleration.tolerates(&disrupted))
    }
}

/// What an unbound pod waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitsFor {
    /// kube-scheduler found no place: ours to find.
    Us,
    /// kube-scheduler has not looked at it yet.
    Scheduler,
    /// It will have the place of a pod that is pushed out.
    Preemption,
    Gate,
    /// Fargate brings its own nodes.
    Fargate,
    Nothing,
}

pub(crate) fn waits_for(pod: &Pod) -> WaitsFor {
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
    if spec.and_then(|spec| spec.node_name.as_deref()).is_some_and(|node| !node.is_empty())
        || matches!(status.and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
    {
        return WaitsFor::Nothing;
    }
    if spec.and_then(|spec| spec.scheduler_name.as_deref()) == Some("fargate-scheduler") {
        return WaitsFor::Fargate;
    }
    if spec.and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|gates| !gates.is_empty()) {
        return WaitsFor::Gate;
    }
    if status.and_then(|status| status.nominated_node_name.as_deref()).is_some_and(|node| !node.is_empty()) {
        return WaitsFor::Preemption;
    }
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    match conditions.iter().find(|condition| condition.type_ == "PodScheduled") {
        Some(condition) if condition.reason.as_deref() == Some("Unschedulable") => WaitsFor::Us,
        Some(_) => WaitsFor::Nothing,
        None => WaitsFor::Scheduler,
    }
}

fn waits_for_a_place(pod: &Pod, view: View) -> bool {
    match waits_for(pod) {
        WaitsFor::Us => true,
        WaitsFor::Scheduler => {
            let status = pod.status.as_ref();
            let phase = status.and_then(|status| status.phase.as_deref());
            let is_new = status.and_then(|status| status.conditions.as_ref()).is_none_or(Vec::is_empty);
            view == View::Files && is_new && matches!(phase, None | Some("Pending"))
        }
        _ => false,
    }
}

/// `true` holds for ever, a duration holds from the pod's start. `do-not-evict` is what older releases said.
fn held_until(reader: &mut Reader, pod: &Pod) -> Option<UnixMillis> {
    const FOR_EVER: UnixMillis = UnixMillis(i64::MAX);
    let annotations = pod.metadata.annotations.as_ref()?;
    if annotations.get("karpenter.sh/do-not-evict").map(String::as_str) == Some("true") {
        return Some(FOR_EVER);
    }
    let text = annotations.get("karpenter.sh/do-not-disrupt")?;
    if text == "true" {
        return Some(FOR_EVER);
    }
    let field = "metadata.annotations[karpenter.sh/do-not-disrupt]";
    match kerf_api::parse_duration(text) {
        Ok(duration) if duration.is_positive() => {
            let started = pod.status.as_ref()?.start_time.as_ref().map(read::millis)?;
            let length = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
            Some(UnixMillis(started.0.saturating_add(length)))
        }
        Ok(_) => None,
        Err(_) if text == "false" => None,
        Err(error) => {
            reader.note(field, error);
            None
        }
    }
}
