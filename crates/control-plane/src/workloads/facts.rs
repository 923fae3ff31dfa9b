//! What the controllers know of pods and nodes: the few facts they decide by, read once from each change.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::Deserialize;

use super::selector::Labels;
use crate::nodes::KnownNode;
use crate::store::{Key, Stored};

pub(crate) const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
pub(crate) const JOB_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// A pod, as far as its controllers care. The rest is in `stored`.
#[derive(Clone, Debug)]
pub(crate) struct PodFacts {
    pub(crate) key: Key,
    pub(crate) labels: Arc<Labels>,
    /// The owner that controls it, if any.
    pub(crate) owner: Option<Box<OwnerReference>>,
    pub(crate) created: Timestamp,
    pub(crate) deleted: Option<Timestamp>,
    pub(crate) finalizers: Box<[String]>,
    pub(crate) phase: Phase,
    pub(crate) reason: Box<str>,
    /// Since when it has been ready.
    pub(crate) ready_since: Option<Timestamp>,
    /// The most restarts of one container, and those of all.
    pub(crate) restarts: i32,
    pub(crate) all_restarts: i32,
    pub(crate) deletion_cost: i32,
    pub(crate) job_index: Option<u32>,
    /// When it ended, as far as can be told.
    pub(crate) finished: Timestamp,
    pub(crate) stored: Arc<Stored>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    // In the order in which pods are given up.
    #[default]
    Pending,
    Unknown,
    Running,
    Succeeded,
    Failed,
}

impl PodFacts {
    /// None when the object is not a pod at all.
    pub(crate) fn read(stored: &Arc<Stored>) -> Option<Self> {
        let wire: WirePod = stored.read()?;
        let WirePod { metadata, status } = wire;
        let owner = metadata.owner_references.into_iter().find(|owner| owner.controller == Some(true));
        let condition = |kind: &str| status.conditions.iter().find(|c| c.kind == kind && c.status == "True");
        let annotation = |name: &str| metadata.annotations.get(name);
        let created = metadata.creation_timestamp.map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        let deleted = metadata.deletion_timestamp.map(|time| time.0);
        let finished = status.finished().unwrap_or_else(|| {
            let grace = metadata.deletion_grace_period_seconds.unwrap_or(0);
            deleted.map_or(created, |at| after(at, -grace))
        });
        Some(Self {
            key: stored.key.clone(),
            owner: owner.map(Box::new),
            created,
            deleted,
            phase: match status.phase.as_str() {
                "Running" => Phase::Running,
                "Succeeded" => Phase::Succeeded,
                "Failed" => Phase::Failed,
                "Unknown" => Phase::Unknown,
                _ => Phase::Pending,
            },
            ready_since: condition("Ready")
                .map(|c| c.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)),
            restarts: status.container_statuses.iter().map(|container| container.restart_count).max().unwrap_or(0),
            deletion_cost: annotation(POD_DELETION_COST).and_then(|cost| cost.parse().ok()).unwrap_or(0),
            job_index: annotation(JOB_INDEX).and_then(|index| index.parse().ok()),
            all_restarts: status
                .container_statuses
                .iter()
                .chain(&status.init_container_statuses)
                .fold(0, |sum, container| sum.saturating_add(container.restart_count)),
            finished,
            reason: status.reason.into(),
            finalizers: metadata.finalizers.into(),
            labels: Arc::new(metadata.labels),
            stored: Arc::clone(stored),
        })
    }

    pub(crate) fn uid(&self) -> &str {
        &self.stored.uid
    }

    /// Empty until it is bound.
    pub(crate) fn node(&self) -> &str {
        self.stored.field("spec.nodeName").unwrap_or_default()
    }

    /// Neither finished nor on its way out.
    pub(crate) fn is_active(&self) -> bool {
        !self.is_finished() && self.deleted.is_none()
    }

    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    pub(crate) fn is_terminating(&self) -> bool {
        !self.is_finished() && self.deleted.is_some()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready_since.is_some()
    }

    pub(crate) fn is_available(&self, min_ready_seconds: i32, now: Timestamp) -> bool {
        self.available_from(min_ready_seconds).is_some_and(|from| from <= now)
    }

    /// From when it counts as available, if it stays ready.
    pub(crate) fn available_from(&self, min_ready_seconds: i32) -> Option<Timestamp> {
        self.ready_since.map(|since| after(since, i64::from(min_ready_seconds.max(0))))
    }

    pub(crate) fn is_controlled_by(&self, uid: &str) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.uid == uid)
    }
}

/// `seconds` after `from`, as far as time goes.
pub(crate) fn after(from: Timestamp, seconds: i64) -> Timestamp {
    from.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// The reference to the owner that controls an object.
pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

pub(crate) fn uid_of(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

pub(crate) fn key_of(meta: &ObjectMeta) -> Key {
    Key::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

pub(crate) fn created_of(meta: &ObjectMeta) -> Timestamp {
    meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// Counts are left out of a status when they are zero.
pub(crate) fn count(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}

pub(crate) fn whole_seconds(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// A node, as far as daemons care.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeFacts {
    pub(crate) name: String,
    pub(crate) labels: Arc<Labels>,
    pub(crate) taints: Vec<Taint>,
}

impl NodeFacts {
    pub(crate) fn of(node: &KnownNode) -> Self {
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            labels: Arc::clone(&node.labels),
            taints: node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default(),
        }
    }
}

// Only what is asked for, so that managed fields, volumes and the like are skipped while reading.

#[derive(Deserialize)]
struct WirePod {
    metadata: WireMeta,
    #[serde(default)]
    status: WireStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMeta {
    #[serde(default)]
    labels: Labels,
    #[serde(default)]
    annotations: Labels,
    #[serde(default)]
    owner_references: Vec<OwnerReference>,
    #[serde(default)]
    finalizers: Vec<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    phase: String,
    reason: String,
    conditions: Vec<WireCondition>,
    container_statuses: Vec<WireContainer>,
    init_container_statuses: Vec<WireContainer>,
}

impl WireStatus {
    /// When the last container ended, or else when it stopped being ready.
    fn finished(&self) -> Option<Timestamp> {
        let ends = self.container_statuses.iter().map(|container| {
            container
                .state
                .terminated
                .as_ref()
                .and_then(|terminated| terminated.finished_at.as_ref())
                .map(|time| time.0)
        });
        let ends: Option<Vec<Timestamp>> = ends.collect();
        ends.and_then(|ends| ends.into_iter().max()).or_else(|| {
            let unready = self.conditions.iter().find(|c| c.kind == "Ready" && c.status == "False")?;
            unready.last_transition_time.as_ref().map(|time| time.0)
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    last_transition_time: Option<Time>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireContainer {
    restart_count: i32,
    state: WireState,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireState {
    terminated: Option<WireTerminated>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireTerminated {
    finished_at: Option<Time>,
}

#[cfg(test)]
pub(crate) mod testing {
    use serde_json::{Value, json};

    use super::*;

    /// What the store would keep of `object`.
    pub(crate) fn stored(object: &Value) -> Arc<Stored> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = Key::new(&text("/metadata/namespace"), &text("/metadata/name"));
        let fields = [("spec.nodeName", text("/spec/nodeName"))].into_iter().collect();
        Arc::new(Stored::new(key, 1, &mut object.clone(), fields))
    }

    /// Words about a pod: `web-1 running ready=10 node=a created=5 deleted cost=3 restarts=1 index=2 owner=uid label:k=v`.
    pub(crate) fn pod(words: &str) -> PodFacts {
        let mut words = words.split_whitespace();
        let name = words.next().expect("a name comes first");
        let time = |seconds: &str| Timestamp::from_second(seconds.parse().unwrap()).unwrap().to_string();
        let mut object = json!({
            "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}"), "labels": {},
                          "annotations": {}, "creationTimestamp": time("0") },
            "spec": {}, "status": { "phase": "Pending", "conditions": [], "containerStatuses": [] },
        });
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            match key {
                "running" => object["status"]["phase"] = json!("Running"),
                "succeeded" => object["status"]["phase"] = json!("Succeeded"),
                "failed" => object["status"]["phase"] = json!("Failed"),
                "ready" => {
                    object["status"]["conditions"] =
                        json!([{ "type": "Ready", "status": "True", "lastTransitionTime": time(value) }]);
                }
                "node" => object["spec"]["nodeName"] = json!(value),
                "created" => object["metadata"]["creationTimestamp"] = json!(time(value)),
                "deleted" => object["metadata"]["deletionTimestamp"] = json!(time("1000")),
                "cost" => object["metadata"]["annotations"][POD_DELETION_COST] = json!(value),
                "restarts" => {
                    object["status"]["containerStatuses"] = json!([{ "restartCount": value.parse::<i32>().unwrap() }]);
                }
                "finished" => {
                    object["status"]["containerStatuses"] =
                        json!([{ "state": { "terminated": { "finishedAt": time(value) } } }]);
                }
                "index" => object["metadata"]["annotations"][JOB_INDEX] = json!(value),
                "finalizer" => object["metadata"]["finalizers"] = json!([value]),
                "owner" => {
                    object["metadata"]["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "Any", "name": "any",
                        "uid": value, "controller": true }]);
                }
                other => {
                    let label = other.strip_prefix("label:").unwrap_or_else(|| panic!("unknown word {word}"));
                    object["metadata"]["labels"][label] = json!(value);
                }
            }
        }
        PodFacts::read(&stored(&object)).unwrap()
    }

    #[test]
    fn a_pod_that_says_little_is_still_read() {
        let bare = PodFacts::read(&stored(&json!({ "metadata": { "name": "a" } }))).unwrap();
        assert!(bare.is_active() && !bare.is_ready() && bare.phase == Phase::Pending);
        assert!(PodFacts::read(&stored(&json!({ "metadata": 1 }))).is_none());
    }

    #[test]
    fn a_pod_is_available_once_it_was_ready_for_long_enough() {
        let ready = pod("a running ready=10");
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        assert!(ready.is_available(0, at(10)));
        assert!(!ready.is_available(5, at(14)));
        assert!(ready.is_available(5, at(15)));
    }
}
