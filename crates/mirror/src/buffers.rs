//! Capacity buffers: room kept free, counted in copies of a pod.

use crate::pods::OwnerKind;
use crate::read::Reader;
use crate::workloads::WorkloadFact;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kerf_api::CapacityBufferSpec;
use kerf_model::{Resources, Text, UnixMillis};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub(crate) struct BufferFact {
    pub(crate) source: Text,
    pub(crate) spec: CapacityBufferSpec,
    pub(crate) created: UnixMillis,
}

/// What a buffer is made of.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) template: Arc<PodTemplateSpec>,
    /// Of the workload that it imitates.
    n_workload: Option<i64>,
}

/// Finds the pod that a buffer imitates, or says why there is none.
pub(crate) fn resolve(
    reader: &mut Reader,
    namespace: &Text,
    spec: &CapacityBufferSpec,
    templates: &BTreeMap<(Text, Text), Arc<PodTemplateSpec>>,
    workloads: &BTreeMap<(Text, OwnerKind, Text), WorkloadFact>,
) -> Option<Chunk> {
    if let Some(reference) = &spec.pod_template_ref {
        let key = (namespace.clone(), reference.name.as_str().into());
        return match templates.get(&key) {
            Some(template) => Some(Chunk { template: template.clone(), n_workload: None }),
            None => {
                reader.note(
                    "spec.podTemplateRef.name",
                    format!("PodTemplate {namespace}/{} does not exist", reference.name),
                );
                None
            }
        };
    }
    let Some(reference) = &spec.scalable_ref else {
        reader.note("spec", "it has neither podTemplateRef nor scalableRef");
        return None;
    };
    let group = reference.api_group.as_deref().unwrap_or_default();
    let kind = match (group, reference.kind.as_str()) {
        ("" | "apps", "Deployment") => OwnerKind::Deployment,
        ("" | "apps", "StatefulSet") => OwnerKind::StatefulSet,
        ("" | "apps", "ReplicaSet") => OwnerKind::ReplicaSet,
        (_, kind) => {
            reader.note(
                "spec.scalableRef.kind",
                format!("{kind} cannot be imitated (use a Deployment, StatefulSet or ReplicaSet of apps)"),
            );
            return None;
        }
    };
    match workloads.get(&(namespace.clone(), kind, reference.name.as_str().into())) {
        Some(workload) => Some(Chunk { template: workload.template.clone(), n_workload: Some(workload.n_wanted) }),
        None => {
            reader.note(
                "spec.scalableRef.name",
                format!("{} {namespace}/{} does not exist", reference.kind, reference.name),
            );
            None
        }
    }
}

/// How many copies: the larger of count and percentage, at most what the limits allow.
pub(crate) fn count(reader: &mut Reader, spec: &CapacityBufferSpec, chunk: &Chunk, requests: &Resources) -> i64 {
    let by_percentage = match (spec.percentage, chunk.n_workload) {
        (Some(percentage), Some(replicas)) if percentage > 0 && replicas > 0 => {
            Some(percent_of(replicas, percentage.into()).max(1))
        }
        _ => None,
    };
    let wanted = spec.replicas.map(i64::from).max(by_percentage);
    let limits = reader.resources("spec.limits", spec.limits.as_ref());
    let by_limits = limits
        .iter()
        .filter(|(name, _)| requests.get(name).milli > 0)
        .map(|(name, limit)| limit.milli / requests.get(name).milli)
        .min();
    match (wanted, by_limits) {
        (Some(wanted), Some(most)) => wanted.min(most),
        (Some(wanted), None) => wanted,
        (None, Some(most)) => most,
        (None, None) => 0,
    }
}

/// Rounded up.
fn percent_of(whole: i64, percentage: i64) -> i64 {
    let hundredths = whole.saturating_mul(percentage);
    hundredths / 100 + i64::from(hundredths % 100 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_model::Quantity;

    #[test]
    fn a_buffer_counts_as_the_contract_counts() {
        let requests = Resources::new().with("cpu", Quantity::from_milli(500));
        for (spec, n_workload, expected) in [
            ("{}", None, 0),
            ("{replicas: 3}", None, 3),
            ("{percentage: 20}", Some(11), 3),
            ("{percentage: 1}", Some(2), 1),
            ("{percentage: 50}", Some(0), 0),
            ("{replicas: 2, percentage: 50}", Some(10), 5),
            ("{limits: {cpu: '2'}}", None, 4),
            ("{replicas: 9, limits: {cpu: '2'}}", None, 4),
            ("{replicas: 2, limits: {cpu: '2'}}", None, 2),
            ("{replicas: 2, limits: {memory: '1'}}", None, 2),
        ] {
            let value: serde_json::Value = serde_norway::from_str(spec).unwrap();
            let parsed: CapacityBufferSpec = serde_json::from_value(value).unwrap();
            let chunk = Chunk { template: Arc::default(), n_workload };
            let mut reader = Reader::new(&"f".into(), "o");
            assert_eq!(count(&mut reader, &parsed, &chunk, &requests), expected, "{spec} {n_workload:?}");
        }
    }
}
