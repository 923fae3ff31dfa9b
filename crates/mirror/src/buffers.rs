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
    /// Of the PodTemplate, where there is one.
    pub(crate) template_generation: Option<i64>,
    /// Of the workload that it imitates.
    n_workload: Option<i64>,
}

/// A template for pods, and which of its versions.
#[derive(Debug, Clone, Default)]
pub(crate) struct TemplateFact {
    pub(crate) template: Arc<PodTemplateSpec>,
    pub(crate) generation: i64,
}

/// What a buffer comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferSize {
    pub n_replicas: i64,
    /// The generation of the PodTemplate that it names, where it names one.
    pub template_generation: Option<i64>,
}

/// Why a buffer comes to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unresolved {
    /// As its condition says it.
    pub reason: &'static str,
    pub field: Text,
    pub message: Text,
}

impl Unresolved {
    pub(crate) fn new(reason: &'static str, field: impl Into<Text>, message: impl Into<Text>) -> Self {
        Self { reason, field: field.into(), message: message.into() }
    }
}

/// Finds the pod that a buffer imitates, or says why there is none.
pub(crate) fn resolve(
    namespace: &Text,
    spec: &CapacityBufferSpec,
    templates: &BTreeMap<(Text, Text), TemplateFact>,
    workloads: &BTreeMap<(Text, OwnerKind, Text), WorkloadFact>,
) -> Result<Chunk, Unresolved> {
    if let Some(reference) = &spec.pod_template_ref {
        let key = (namespace.clone(), reference.name.as_str().into());
        let Some(TemplateFact { template, generation }) = templates.get(&key) else {
            let message = format!("PodTemplate {namespace}/{} does not exist", reference.name);
            return Err(Unresolved::new("PodTemplateNotFound", "spec.podTemplateRef.name", message));
        };
        return Ok(Chunk { template: template.clone(), template_generation: Some(*generation), n_workload: None });
    }
    let failed = |field: &str, message: String| Unresolved::new("ResolutionFailed", field, message);
    let Some(reference) = &spec.scalable_ref else {
        return Err(failed("spec", "it has neither podTemplateRef nor scalableRef".to_owned()));
    };
    let group = reference.api_group.as_deref().unwrap_or_default();
    let kind = match (group, reference.kind.as_str()) {
        ("" | "apps", "Deployment") => OwnerKind::Deployment,
        ("" | "apps", "StatefulSet") => OwnerKind::StatefulSet,
        ("" | "apps", "ReplicaSet") => OwnerKind::ReplicaSet,
        (_, kind) => {
            let message = format!("{kind} cannot be imitated (use a Deployment, StatefulSet or ReplicaSet of apps)");
            return Err(failed("spec.scalableRef.kind", message));
        }
    };
    match workloads.get(&(namespace.clone(), kind, reference.name.as_str().into())) {
        Some(workload) => Ok(Chunk {
            template: workload.template.clone(),
            template_generation: None,
            n_workload: Some(workload.n_wanted),
        }),
        None => {
            let message = format!("{} {namespace}/{} does not exist", reference.kind, reference.name);
            Err(Unresolved::new("ScalableRefNotFound", "spec.scalableRef.name", message))
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
            let chunk = Chunk { template: Arc::default(), template_generation: None, n_workload };
            let mut reader = Reader::new(&"f".into(), "o");
            assert_eq!(count(&mut reader, &parsed, &chunk, &requests), expected, "{spec} {n_workload:?}");
        }
    }
}
