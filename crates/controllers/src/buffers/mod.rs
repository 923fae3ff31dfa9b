//! `capacitybuffer`: what each CapacityBuffer comes to, and whether there is room for it (gate `CapacityBuffer`).
//!
//! ```text
//! buffer, PodTemplate, workload ─▶ how many copies ─▶ status.replicas, ReadyForProvisioning
//! the last plan ─────────────────▶ where they went ──▶ Provisioning
//! ```
//!
//! The pods that stand for the room exist in the mirror only, and the planner treats them like any others; this is for people.

use crate::conditions::{Conditions, INDEPENDENT, Status};
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::queue::Queue;
use crate::record::{Decision, Record};
use crate::resource::CAPACITY_BUFFERS;
use crate::world::{Change, World};
use crate::write;
use kerf_api::CapacityBuffer;
use kerf_mirror::{BufferSize, Kind, UnresolvedBuffer};
use kerf_model::{PodId, Revision, Step, Text, UnixMillis};
use serde_json::{Value, json};

const NAME: &str = "capacitybuffer";
const READY_FOR_PROVISIONING: &str = "ReadyForProvisioning";
const PROVISIONING: &str = "Provisioning";
const RECHECK_MS: i64 = 30_000;
/// What a buffer's virtual pods are called: this, the buffer's name, a dash and a number.
const POD_PREFIX: &str = "capacity-buffer-";

type Named = (Text, Text);

pub struct Buffers {
    queue: Queue<Named>,
    /// The decision that buffers have heard of.
    heard_of: Option<(UnixMillis, Revision)>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self { queue: Queue::new(100, 30_000), heard_of: None }
    }
}

impl Duty for Buffers {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, change: &Change, world: &World) {
        match change {
            Change::Other { key } => match key.kind {
                Kind::CapacityBuffer => self.queue.add((key.namespace.clone(), key.name.clone())),
                Kind::PodTemplate | Kind::Deployment | Kind::StatefulSet | Kind::ReplicaSet => {
                    let neighbours = world.buffers.keys().filter(|(namespace, _)| *namespace == key.namespace);
                    neighbours.for_each(|buffer| self.queue.add(buffer.clone()));
                }
                _ => {}
            },
            Change::Synced => world.buffers.keys().for_each(|buffer| self.queue.add(buffer.clone())),
            _ => {}
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !desk.world.is_synced() {
            return None;
        }
        let latest = latest(desk.record).map(|decision| (decision.at, decision.revision));
        if latest != self.heard_of {
            self.heard_of = latest;
            desk.world.buffers.keys().for_each(|buffer| self.queue.add(buffer.clone()));
        }
        for (namespace, name) in self.queue.take_due(desk.now) {
            let Some(buffer) = desk.world.buffers.get(&(namespace.clone(), name.clone())).cloned() else {
                self.queue.forget(&(namespace, name));
                continue;
            };
            let key: Text = format!("{namespace}/{name}").into();
            if desk.is_busy(&key) {
                continue;
            }
            if let Some(size) = desk.world.mirror.buffer_size(&namespace, &name) {
                let places = latest_of(desk.record, &namespace, &name);
                if let Some(status) = changed_status(&buffer, &size, places, desk.now) {
                    let patch =
                        write::if_unchanged(json!({"status": status}), buffer.metadata.resource_version.as_deref());
                    desk.call(&key, write::patch_status(CAPACITY_BUFFERS, &namespace, &name, patch));
                }
            }
            self.queue.add_at((namespace, name), UnixMillis(desk.now.0 + RECHECK_MS));
        }
        self.queue.next()
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        let Some((namespace, name)) = key.split_once('/') else { return };
        let named: Named = (namespace.into(), name.into());
        match outcome {
            Outcome::Api(Err(failure)) if failure.is_not_found() => self.queue.forget(&named),
            Outcome::Api(Err(failure)) => {
                let wait_ms = self.queue.retry(named, desk.now);
                if !failure.is_conflict() {
                    tracing::error!(controller = NAME, namespace, name, error = %failure, wait_ms, "Reconciler error");
                }
            }
            _ => {
                self.queue.succeeded(&named);
                self.queue.add(named);
            }
        }
    }
}

/// Where a buffer's virtual pods went in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Places {
    n_on_nodes: usize,
    n_new: usize,
    n_failed: usize,
}

/// The last decision that speaks of everything.
fn latest(record: &Record) -> Option<&Decision> {
    record.decisions().find(|decision| !decision.is_interim).map(|decision| &**decision)
}

fn latest_of(record: &Record, namespace: &str, buffer: &str) -> Option<Places> {
    let decision = latest(record)?;
    let count = |pods: &[PodId]| pods.iter().filter(|pod| is_of(pod, namespace, buffer)).count();
    let mut places = Places::default();
    for step in &decision.plan.steps {
        match step {
            Step::Place(placement) => places.n_on_nodes += count(&placement.pods),
            Step::Launch(launch) => places.n_new += count(&launch.for_pods),
        }
    }
    places.n_failed = decision.report.refused.iter().filter(|(pod, _)| is_of(pod, namespace, buffer)).count();
    (places != Places::default()).then_some(places)
}

/// Whether a pod stands for room of a buffer.
fn is_of(pod: &PodId, namespace: &str, buffer: &str) -> bool {
    let number = || pod.name.strip_prefix(POD_PREFIX)?.strip_prefix(buffer)?.strip_prefix('-');
    *pod.namespace == *namespace
        && number().is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What to patch of the status; None when it says so already.
fn changed_status(
    buffer: &CapacityBuffer,
    size: &Result<BufferSize, UnresolvedBuffer>,
    places: Option<Places>,
    now: UnixMillis,
) -> Option<Value> {
    let known = buffer.status.clone().unwrap_or_default();
    let mut conditions = Conditions::of(INDEPENDENT, &buffer.metadata, &known.conditions);
    let n_replicas = match size {
        Ok(size) => {
            conditions.set(READY_FOR_PROVISIONING, Status::True, "Resolved", "", now);
            i32::try_from(size.n_replicas).unwrap_or(i32::MAX)
        }
        Err(UnresolvedBuffer { reason, field, message }) => {
            conditions.set(READY_FOR_PROVISIONING, Status::False, reason, &format!("{field}: {message}"), now);
            0
        }
    };
    match (size, n_replicas, places) {
        (Err(_), _, _) => {
            let message = "the buffer cannot be resolved";
            conditions.set(PROVISIONING, Status::False, "NotReadyForProvisioning", message, now);
        }
        (Ok(_), 0, _) => {
            conditions.set(PROVISIONING, Status::False, "BufferEmpty", "the buffer asks for no pods", now);
        }
        (Ok(_), _, Some(places)) => say_where(&mut conditions, places, now),
        // Nobody has planned for it yet.
        (Ok(_), _, None) => {}
    }
    let generation = size.as_ref().ok().and_then(|size| size.template_generation);
    let template = generation.and(buffer.spec.pod_template_ref.as_ref());
    let is_said = known.replicas == Some(n_replicas)
        && known.pod_template_generation == generation
        && known.pod_template_ref.as_ref() == template
        && known.provisioning_strategy == buffer.spec.provisioning_strategy;
    if is_said && !conditions.is_changed() {
        return None;
    }
    let mut status = conditions.to_value();
    status["replicas"] = json!(n_replicas);
    status["podTemplateRef"] = json!(template);
    status["podTemplateGeneration"] = json!(generation);
    status["provisioningStrategy"] = json!(buffer.spec.provisioning_strategy);
    Some(status)
}

fn say_where(conditions: &mut Conditions, places: Places, now: UnixMillis) {
    let Places { n_on_nodes, n_new, n_failed } = places;
    if n_new == 0 && n_failed == 0 {
        conditions.set(PROVISIONING, Status::True, "FitsExistingCapacity", "", now);
        return;
    }
    let n_pods = n_on_nodes + n_new + n_failed;
    let message = format!("{n_new}/{n_pods} virtual pods required new capacity, {n_failed} failed");
    conditions.set(PROVISIONING, Status::False, "RequiresNewCapacity", &message, now);
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_767_225_600_000);

    fn buffer(spec: Value, status: &Value) -> CapacityBuffer {
        serde_json::from_value(json!({
            "metadata": {"name": "b", "namespace": "n", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": spec, "status": status,
        }))
        .unwrap()
    }

    fn said(status: &Value, kind: &str) -> String {
        let conditions = status["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|condition| condition["type"] == kind);
        found.map_or_else(String::new, |condition| {
            let part = |part: &str| condition[part].as_str().unwrap_or_default().to_owned();
            format!("{} {} {}", part("status"), part("reason"), part("message")).trim_end().to_owned()
        })
    }

    #[test]
    fn a_buffer_says_what_it_comes_to_and_where_it_went() {
        let spec = json!({"podTemplateRef": {"name": "t"}, "replicas": 3, "provisioningStrategy": "s"});
        let size = Ok(BufferSize { n_replicas: 3, template_generation: Some(2) });
        let status = changed_status(&buffer(spec.clone(), &json!({})), &size, None, NOW).unwrap();
        assert_eq!(status["replicas"], 3);
        assert_eq!(status["podTemplateRef"], json!({"name": "t"}));
        assert_eq!(status["podTemplateGeneration"], 2);
        assert_eq!(status["provisioningStrategy"], "s");
        assert_eq!(said(&status, READY_FOR_PROVISIONING), "True Resolved");
        assert_eq!(said(&status, PROVISIONING), "", "nobody has planned for it yet");
        let again = buffer(spec, &status);
        assert_eq!(changed_status(&again, &size, None, NOW), None, "it says so already");
        for (places, expected) in [
            (Places { n_on_nodes: 3, ..Places::default() }, "True FitsExistingCapacity"),
            (
                Places { n_on_nodes: 1, n_new: 1, n_failed: 1 },
                "False RequiresNewCapacity 1/3 virtual pods required new capacity, 1 failed",
            ),
        ] {
            let status = changed_status(&again, &size, Some(places), NOW).unwrap();
            assert_eq!(said(&status, PROVISIONING), expected);
        }
    }

    #[test]
    fn a_buffer_that_cannot_be_resolved_says_why_and_counts_nothing() {
        let unresolved = Err(UnresolvedBuffer {
            reason: "ScalableRefNotFound",
            field: "spec.scalableRef.name".into(),
            message: "Deployment n/web does not exist".into(),
        });
        let spec = json!({"scalableRef": {"kind": "Deployment", "name": "web"}, "percentage": 20});
        let status = changed_status(&buffer(spec.clone(), &json!({})), &unresolved, None, NOW).unwrap();
        assert_eq!(status["replicas"], 0);
        assert_eq!(
            said(&status, READY_FOR_PROVISIONING),
            "False ScalableRefNotFound spec.scalableRef.name: Deployment n/web does not exist"
        );
        assert!(said(&status, PROVISIONING).starts_with("False NotReadyForProvisioning"));
        let empty = Ok(BufferSize { n_replicas: 0, template_generation: None });
        let status = changed_status(&buffer(spec, &json!({})), &empty, None, NOW).unwrap();
        assert!(said(&status, PROVISIONING).starts_with("False BufferEmpty"));
    }

    #[test]
    fn a_virtual_pod_belongs_to_one_buffer_only() {
        let pod = PodId::new("n", "capacity-buffer-b-1");
        assert!(is_of(&pod, "n", "b"));
        assert!(!is_of(&pod, "other", "b"));
        assert!(!is_of(&PodId::new("n", "capacity-buffer-b-1-1"), "n", "b"));
        assert!(is_of(&PodId::new("n", "capacity-buffer-b-1-1"), "n", "b-1"));
        assert!(!is_of(&PodId::new("n", "capacity-buffer-b-"), "n", "b"));
    }
}
