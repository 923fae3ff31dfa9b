//! Pods that want a place, wherever the wish comes from: pods that wait, pods that must move, workloads that would
//! create some, buffers that keep room free. And the daemons that every new node gets.

use crate::Mirror;
use crate::buffers;
use crate::pods::{Owner, OwnerKind, PodFact};
use crate::read::{Fault, Reader};
use crate::requests::ContainerDefaults;
use crate::shape::{Claim, Context, Shape};
use crate::volumes::ClaimFact;
use crate::workloads::{self, Promise};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kerf_model::{NodeName, PodId, Text, UnixMillis};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A pod that wants a place, its demand not yet known.
pub(crate) struct Want {
    pub(crate) id: PodId,
    pub(crate) source: Text,
    pub(crate) shape: Arc<Shape>,
    pub(crate) owner: Option<Owner>,
    pub(crate) created: UnixMillis,
    pub(crate) priority: i32,
    pub(crate) leaving: Option<NodeName>,
    pub(crate) is_virtual: bool,
    pub(crate) promised: BTreeMap<Text, ClaimFact>,
    pub(crate) fault: Option<Fault>,
    /// Whether the fault is among the notes already.
    pub(crate) is_noted: bool,
}

impl Want {
    pub(crate) fn of_pod(mirror: &Mirror, id: &PodId, pod: &PodFact, leaving: Option<&NodeName>) -> Self {
        Self {
            id: id.clone(),
            source: pod.source.clone(),
            shape: pod.shape.clone(),
            owner: pod.owner.clone(),
            created: pod.created,
            priority: pod.priority.unwrap_or_else(|| priority_of(mirror, pod.priority_class.as_deref())),
            leaving: leaving.cloned(),
            is_virtual: false,
            promised: BTreeMap::new(),
            fault: pod.fault.clone(),
            is_noted: pod.fault.is_some() && leaving.is_none(),
        }
    }
}

fn priority_of(mirror: &Mirror, class: Option<&str>) -> i32 {
    let named = class.and_then(|class| mirror.priorities.get(class));
    let default = || mirror.priorities.values().find(|(_, is_default)| *is_default);
    match (class, named) {
        (_, Some((value, _))) => *value,
        (None, None) => default().map_or(0, |(value, _)| *value),
        // The two classes that every cluster has, though no dump need contain them.
        (Some("system-cluster-critical"), None) => 2_000_000_000,
        (Some("system-node-critical"), None) => 2_000_001_000,
        (Some(_), None) => 0,
    }
}

/// What is said of objects that a feature gate hides.
pub(crate) fn switched_off(count: usize, gate: &str) -> String {
    let and_more = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
    format!("it is not considered{and_more}: feature gate {gate} is off")
}

/// More pods than any cluster holds; what asks for more is a typing error.
const MOST_PROMISED: i64 = 500_000;

/// Pods that workloads would create.
pub(crate) fn promised_pods(mirror: &Mirror, wants: &mut Vec<Want>, readers: &mut Vec<Reader>) {
    let promises = workloads::promises(&mirror.workloads, &mirror.pods, MOST_PROMISED, readers);
    let mut last: Option<(*const workloads::WorkloadFact, Arc<Shape>, Option<Fault>, i32)> = None;
    for Promise { id, workload, claims } in promises {
        let (shape, fault, priority) = match &last {
            Some((of, shape, fault, priority)) if std::ptr::eq(*of, workload) => {
                (shape.clone(), fault.clone(), *priority)
            }
            _ => {
                let mut reader = Reader::new(&workload.source, workloads::describe(workload));
                let shape =
                    template_shape(mirror, &mut reader, &workload.namespace, &workload.template, "spec.template");
                let fault = reader.fault.clone();
                readers.push(reader);
                let priority = template_priority(mirror, &workload.template);
                let shape = Arc::new(shape);
                last = Some((workload, shape.clone(), fault.clone(), priority));
                (shape, fault, priority)
            }
        };
        if !waits_when_created(&workload.template) {
            continue;
        }
        let mut promised = claims;
        for claim in &shape.claims {
            if let Claim::Ephemeral { volume, storage_class } = claim {
                let name = format!("{}-{volume}", id.name).into();
                promised.insert(name, ClaimFact::promised(storage_class.clone()));
            }
        }
        wants.push(Want {
            shape: with_claims_of(shape, &promised, workload, &id),
            id,
            source: workload.source.clone(),
            owner: Some(Owner { kind: workload.kind, name: workload.name.clone() }),
            created: workload.created,
            priority,
            leaving: None,
            is_virtual: false,
            promised,
            is_noted: fault.is_some(),
            fault,
        });
    }
}

/// A StatefulSet gives each of its pods the claims of its templates as volumes.
fn with_claims_of(
    shape: Arc<Shape>,
    promised: &BTreeMap<Text, ClaimFact>,
    workload: &workloads::WorkloadFact,
    id: &PodId,
) -> Arc<Shape> {
    if workload.claim_templates.is_empty() {
        return shape;
    }
    let mut with_claims = (*shape).clone();
    for (template, _) in &workload.claim_templates {
        let claim: Text = format!("{template}-{}", id.name).into();
        if promised.contains_key(&claim) {
            with_claims.claims.push(Claim::Named { volume: template.clone(), claim });
        }
    }
    Arc::new(with_claims)
}

fn waits_when_created(template: &PodTemplateSpec) -> bool {
    template.spec.as_ref().is_some_and(|spec| {
        spec.node_name.as_deref().unwrap_or_default().is_empty()
            && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty)
            && spec.scheduler_name.as_deref() != Some("fargate-scheduler")
    })
}

fn template_priority(mirror: &Mirror, template: &PodTemplateSpec) -> i32 {
    let spec = template.spec.as_ref();
    spec.and_then(|spec| spec.priority)
        .unwrap_or_else(|| priority_of(mirror, spec.and_then(|spec| spec.priority_class_name.as_deref())))
}

/// The shape of a pod made from a template, with what the namespace adds to containers that do not say.
fn template_shape(
    mirror: &Mirror,
    reader: &mut Reader,
    namespace: &Text,
    template: &PodTemplateSpec,
    field: &str,
) -> Shape {
    let mut defaults = ContainerDefaults::default();
    let from = (namespace.clone(), Text::from(""));
    for (_, range) in mirror.limit_ranges.range(from..).take_while(|((of, _), _)| of == namespace) {
        for (ours, theirs) in [(&mut defaults.limits, &range.limits), (&mut defaults.requests, &range.requests)] {
            for (name, amount) in theirs.iter() {
                ours.0.entry(name.clone()).or_insert(amount);
            }
        }
    }
    let spec = template.spec.clone().unwrap_or_default();
    if spec.containers.is_empty() {
        reader.fault(format!("{field}.spec.containers"), "a pod needs at least one container");
    }
    let context = Context {
        namespace,
        labels: template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref()),
        field: &format!("{field}.spec"),
        rules: &mirror.settings.labels,
        defaults: &defaults,
    };
    Shape::read(reader, &context, &spec, None)
}

/// How many copies of which pod a buffer stands for; what is in the way becomes a note.
fn sized(
    mirror: &Mirror,
    reader: &mut Reader,
    namespace: &Text,
    spec: &kerf_api::CapacityBufferSpec,
) -> Option<(i64, Shape)> {
    match buffers::resolve(namespace, spec, &mirror.pod_templates, &mirror.workloads) {
        Ok(chunk) => {
            let mut shape = template_shape(mirror, reader, namespace, &chunk.template, "template");
            shape.claims.clear();
            let count = buffers::count(reader, spec, &chunk, &shape.requests);
            Some((count, shape))
        }
        Err(unresolved) => {
            reader.note(unresolved.field, unresolved.message);
            None
        }
    }
}

/// What a buffer comes to, or why to nothing.
pub(crate) fn buffer_size(
    mirror: &Mirror,
    namespace: &Text,
    buffer: &buffers::BufferFact,
) -> Result<buffers::BufferSize, buffers::Unresolved> {
    let chunk = buffers::resolve(namespace, &buffer.spec, &mirror.pod_templates, &mirror.workloads)?;
    let mut reader = Reader::new(&buffer.source, "CapacityBuffer");
    let shape = template_shape(mirror, &mut reader, namespace, &chunk.template, "template");
    let n_replicas = buffers::count(&mut reader, &buffer.spec, &chunk, &shape.requests);
    match reader.fault {
        Some(Fault { field, message }) => Err(buffers::Unresolved { reason: "ResolutionFailed", field, message }),
        None => Ok(buffers::BufferSize { n_replicas, template_generation: chunk.template_generation }),
    }
}

/// Virtual pods for the room that buffers keep free.
pub(crate) fn buffer_pods(mirror: &Mirror, wants: &mut Vec<Want>, readers: &mut Vec<Reader>) {
    if !mirror.settings.gates.capacity_buffer {
        if let Some(((namespace, name), buffer)) = mirror.buffers.first_key_value() {
            let mut reader = Reader::new(&buffer.source, format!("CapacityBuffer {namespace}/{name}"));
            reader.note("", switched_off(mirror.buffers.len(), "CapacityBuffer"));
            readers.push(reader);
        }
        return;
    }
    for ((namespace, name), buffer) in &mirror.buffers {
        let mut reader = Reader::new(&buffer.source, format!("CapacityBuffer {namespace}/{name}"));
        if let Some((count, shape)) = sized(mirror, &mut reader, namespace, &buffer.spec) {
            if count > MOST_PROMISED {
                reader.note(
                    "spec.replicas",
                    format!("{count} pods are more than a cluster holds; {MOST_PROMISED} are planned"),
                );
            }
            let shape = Arc::new(shape);
            let fault = reader.fault.clone();
            wants.extend((1..=count.min(MOST_PROMISED)).map(|ordinal| Want {
                id: PodId { namespace: namespace.clone(), name: format!("capacity-buffer-{name}-{ordinal}").into() },
                source: buffer.source.clone(),
                shape: shape.clone(),
                owner: None,
                created: buffer.created,
                priority: i32::MIN,
                leaving: None,
                is_virtual: true,
                promised: BTreeMap::new(),
                fault: fault.clone(),
                is_noted: fault.is_some(),
            }));
        }
        readers.push(reader);
    }
}

/// For each DaemonSet the pod it would run on a new node: like its newest pod, or as its template says.
pub(crate) fn daemon_shapes(mirror: &Mirror, readers: &mut Vec<Reader>) -> Vec<(Text, Shape)> {
    let mut newest: FxHashMap<(&Text, &Text), (&PodId, &PodFact)> = FxHashMap::default();
    for (id, pod) in &mirror.pods {
        let Some(Owner { kind: OwnerKind::DaemonSet, name }) = &pod.owner else {
            continue;
        };
        if pod.is_terminating || pod.fault.is_some() {
            continue;
        }
        let known = newest.entry((&id.namespace, name)).or_insert((id, pod));
        if pod.created > known.1.created {
            *known = (id, pod);
        }
    }
    let mut out = Vec::new();
    for ((namespace, name), daemon_set) in &mirror.daemon_sets {
        let mut reader = Reader::new(&daemon_set.source, format!("DaemonSet {namespace}/{name}"));
        let by_template = template_shape(mirror, &mut reader, namespace, &daemon_set.template, "spec.template");
        let fault = reader.fault.take();
        readers.push(reader);
        let shape = match newest.get(&(namespace, name)) {
            Some((_, pod)) => Shape { required_terms: by_template.required_terms, ..(*pod.shape).clone() },
            None if fault.is_some() => continue,
            None => by_template,
        };
        // While claims for devices are not considered, neither are daemons that have them.
        if !shape.uses_devices {
            out.push((format!("{namespace}/{name}").into(), shape));
        }
    }
    out
}
