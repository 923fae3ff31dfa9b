//! What the hands need to know of a pod: where it is, how far along, and what a drain must respect.
//!
//! Planning has its own view (shapes and demands); this one is for evicting, binding, counting and telling. It is small,
//! because a large cluster has a hundred thousand of them.

use crate::pods::{OwnerKind, WaitsFor, waits_for};
use crate::read;
use k8s_openapi::api::core::v1::{Pod, Toleration};
use kerf_model::{Labels, PodId, Text, UnixMillis, shared_text};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodState {
    pub id: PodId,
    pub uid: Text,
    /// Empty until it is bound.
    pub node: Text,
    pub phase: Phase,
    pub created: UnixMillis,
    pub started: Option<UnixMillis>,
    /// When it must be gone: deletion was asked for, and its grace period is in it.
    pub deleting_since: Option<UnixMillis>,
    pub grace_seconds: Option<i64>,
    pub labels: Arc<Labels>,
    pub owner: OwnedBy,
    pub owner_name: Text,
    pub is_critical: bool,
    /// Tolerates `karpenter.sh/disrupted:NoSchedule`: a drain leaves it alone.
    pub tolerates_disrupted: bool,
    pub is_mirror: bool,
    pub is_ready: bool,
    /// The `PodScheduled` condition is True, and since when.
    pub scheduled_at: Option<UnixMillis>,
    pub ready_at: Option<UnixMillis>,
    /// kube-scheduler found no place, and we may find one.
    pub is_waiting: bool,
    /// What it waits for, where it is not us.
    pub waits_for: WaitsFor,
    /// `karpenter.sh/do-not-disrupt`, or the older `karpenter.sh/do-not-evict`, as written.
    pub hold: Option<Text>,
    pub has_resource_claims: bool,
    /// Names of the PersistentVolumeClaims that it mounts, in its namespace.
    pub volume_claims: Vec<Text>,
    pub priority: i32,
    /// `karpenter.sh/disruption-cost`, else `controller.kubernetes.io/pod-deletion-cost`, as written.
    pub cost: Option<Text>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Pending => "Pending",
            Phase::Running => "Running",
            Phase::Succeeded => "Succeeded",
            Phase::Failed => "Failed",
            Phase::Unknown => "Unknown",
        }
    }
}

/// Who controls a pod, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnedBy {
    Nobody,
    DaemonSet,
    /// A static pod of the kubelet.
    Node,
    ReplicaSet,
    StatefulSet,
    Job,
    Other,
}

/// Whether a pod may be disrupted, by its own word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    None,
    ForEver,
    /// A duration from the pod's start; the start is not known yet.
    NotStarted,
    Until(UnixMillis),
    Over,
    /// The annotation says something else.
    Invalid(Text),
}

impl PodState {
    pub fn read(pod: &Pod) -> Self {
        let text = |text: Option<&str>| -> Text { text.unwrap_or_default().into() };
        let metadata = &pod.metadata;
        Self::of(PodId { namespace: text(metadata.namespace.as_deref()), name: text(metadata.name.as_deref()) }, pod)
    }

    /// The same, for those who know its name already.
    pub fn of(id: PodId, pod: &Pod) -> Self {
        let metadata = &pod.metadata;
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        let text = |text: Option<&String>| -> Text { text.map(String::as_str).unwrap_or_default().into() };
        let often = |text: Option<&str>| shared_text(text.unwrap_or_default());
        let annotation = |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key));
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let since = |kind: &str| {
            conditions
                .iter()
                .find(|condition| condition.type_ == kind && condition.status == "True")
                .map(|condition| condition.last_transition_time.as_ref().map_or(UnixMillis(0), read::millis))
        };
        let mut owners = metadata.owner_references.iter().flatten();
        let owner = owners.clone().find(|owner| owner.controller == Some(true)).or_else(|| owners.next());
        let owned_by = match owner.map(|owner| OwnerKind::parse(&owner.api_version, &owner.kind)) {
            None => OwnedBy::Nobody,
            Some(OwnerKind::DaemonSet) => OwnedBy::DaemonSet,
            Some(OwnerKind::Node) => OwnedBy::Node,
            Some(OwnerKind::ReplicaSet) => OwnedBy::ReplicaSet,
            Some(OwnerKind::StatefulSet) => OwnedBy::StatefulSet,
            Some(OwnerKind::Job) => OwnedBy::Job,
            Some(_) => OwnedBy::Other,
        };
        let volumes = spec.and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
        let volume_claims = volumes.iter().filter_map(|volume| {
            let named = volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.as_str().into());
            named.or_else(|| volume.ephemeral.as_ref().map(|_| format!("{}-{}", id.name, volume.name).into()))
        });
        let priority_class = spec.and_then(|spec| spec.priority_class_name.as_deref()).unwrap_or_default();
        let waits_for = waits_for(pod);
        Self {
            uid: text(metadata.uid.as_ref()),
            node: often(spec.and_then(|spec| spec.node_name.as_deref())),
            phase: match status.and_then(|status| status.phase.as_deref()) {
                Some("Running") => Phase::Running,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                Some("Unknown") => Phase::Unknown,
                _ => Phase::Pending,
            },
            created: read::created(metadata),
            started: status.and_then(|status| status.start_time.as_ref()).map(read::millis),
            deleting_since: metadata.deletion_timestamp.as_ref().map(read::millis),
            grace_seconds: spec.and_then(|spec| spec.termination_grace_period_seconds),
            labels: Arc::new(read::labels(metadata.labels.as_ref())),
            owner: owned_by,
            owner_name: often(owner.map(|owner| owner.name.as_str())),
            is_critical: matches!(priority_class, "system-cluster-critical" | "system-node-critical"),
            tolerates_disrupted: spec
                .and_then(|spec| spec.tolerations.as_deref())
                .unwrap_or_default()
                .iter()
                .any(tolerates_disrupted),
            is_mirror: owned_by == OwnedBy::Node || annotation("kubernetes.io/config.mirror").is_some(),
            is_ready: since("Ready").is_some(),
            scheduled_at: since("PodScheduled"),
            ready_at: since("Ready"),
            is_waiting: waits_for == WaitsFor::Us
                && metadata.deletion_timestamp.is_none()
                && !matches!(owned_by, OwnedBy::DaemonSet | OwnedBy::Node),
            waits_for,
            hold: match annotation("karpenter.sh/do-not-evict") {
                Some(old) if annotation("karpenter.sh/do-not-disrupt").is_none() => Some(old.as_str().into()),
                _ => annotation("karpenter.sh/do-not-disrupt").map(|text| text.as_str().into()),
            },
            has_resource_claims: spec
                .and_then(|spec| spec.resource_claims.as_ref())
                .is_some_and(|claims| !claims.is_empty()),
            volume_claims: volume_claims.collect(),
            priority: spec.and_then(|spec| spec.priority).unwrap_or(0),
            cost: annotation("karpenter.sh/disruption-cost")
                .or_else(|| annotation("controller.kubernetes.io/pod-deletion-cost"))
                .map(|text| text.as_str().into()),
            id,
        }
    }

    pub fn is_bound(&self) -> bool {
        !self.node.is_empty()
    }

    pub fn is_terminal(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    pub fn is_terminating(&self) -> bool {
        self.deleting_since.is_some()
    }

    /// Neither ended nor ending.
    pub fn is_active(&self) -> bool {
        !self.is_terminal() && !self.is_terminating()
    }

    pub fn is_daemon(&self) -> bool {
        self.owner == OwnedBy::DaemonSet
    }

    /// It will want another place when its node goes.
    pub fn is_reschedulable(&self) -> bool {
        let goes_on = self.is_active() || (self.is_terminating() && self.owner == OwnedBy::StatefulSet);
        goes_on && !self.is_terminal() && !self.is_daemon() && !self.is_mirror
    }

    /// What its annotation asks for, at a time.
    pub fn hold(&self, now: UnixMillis) -> Hold {
        let Some(text) = self.hold.as_deref() else {
            return Hold::None;
        };
        match text {
            "true" => Hold::ForEver,
            "false" => Hold::None,
            _ => match kerf_api::parse_duration(text) {
                Ok(duration) if duration.is_positive() => match self.started {
                    None => Hold::NotStarted,
                    Some(started) => {
                        let length = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
                        let until = UnixMillis(started.0.saturating_add(length));
                        if until > now { Hold::Until(until) } else { Hold::Over }
                    }
                },
                _ => Hold::Invalid(text.into()),
            },
        }
    }

    /// Whether its annotation holds it where it is.
    pub fn is_held(&self, now: UnixMillis) -> bool {
        matches!(self.hold(now), Hold::ForEver | Hold::NotStarted | Hold::Until(_))
    }
}

fn tolerates_disrupted(toleration: &Toleration) -> bool {
    let is_for_key = match toleration.key.as_deref() {
        None | Some("") => toleration.operator.as_deref() == Some("Exists"),
        Some(key) => key == kerf_api::taints::DISRUPTED,
    };
    let is_for_effect = matches!(toleration.effect.as_deref(), None | Some("" | "NoSchedule"));
    let is_for_value =
        toleration.operator.as_deref() == Some("Exists") || toleration.value.as_deref().unwrap_or_default().is_empty();
    is_for_key && is_for_effect && is_for_value
}
