//! Controllers of pods, and the pods they would still create.
//!
//! A file written by hand holds a Deployment and no pods; a dump of a cluster holds both. Only what is missing is
//! added, so that nothing counts twice.

use crate::pods::{Owner, OwnerKind, PodFact};
use crate::read::{self, Reader};
use crate::volumes::ClaimFact;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PodTemplateSpec, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kerf_model::{LabelSelector, Labels, PodId, Text, UnixMillis};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub(crate) struct WorkloadFact {
    pub(crate) source: Text,
    pub(crate) kind: OwnerKind,
    pub(crate) namespace: Text,
    pub(crate) name: Text,
    /// How many pods it wants at once.
    pub(crate) n_wanted: i64,
    /// How many pods its controller has counted.
    pub(crate) n_reported: i64,
    pub(crate) selector: Option<LabelSelector>,
    pub(crate) template: Arc<PodTemplateSpec>,
    /// Of a StatefulSet: name and storage class.
    pub(crate) claim_templates: Vec<(Text, Option<Text>)>,
    pub(crate) first_ordinal: i64,
    pub(crate) owner: Option<Owner>,
    pub(crate) created: UnixMillis,
}

/// A pod that is not there yet.
#[derive(Debug)]
pub(crate) struct Promise<'a> {
    pub(crate) id: PodId,
    pub(crate) workload: &'a WorkloadFact,
    /// Claims that will be made with it.
    pub(crate) claims: BTreeMap<Text, ClaimFact>,
}

impl WorkloadFact {
    fn new(source: &Text, kind: OwnerKind, metadata: &ObjectMeta, template: Option<PodTemplateSpec>) -> Self {
        let owner = read::controller(metadata).map(|owner| Owner {
            kind: OwnerKind::parse(&owner.api_version, &owner.kind),
            name: owner.name.as_str().into(),
        });
        Self {
            source: source.clone(),
            kind,
            namespace: metadata.namespace.as_deref().unwrap_or("default").into(),
            name: metadata.name.as_deref().unwrap_or_default().into(),
            n_wanted: 0,
            n_reported: 0,
            selector: None,
            template: Arc::new(template.unwrap_or_default()),
            claim_templates: Vec::new(),
            first_ordinal: 0,
            owner,
            created: read::created(metadata),
        }
    }

    pub(crate) fn of_deployment(reader: &mut Reader, source: &Text, object: Deployment) -> Self {
        let spec = object.spec.unwrap_or_default();
        Self {
            n_wanted: spec.replicas.unwrap_or(1).into(),
            n_reported: object.status.and_then(|status| status.replicas).unwrap_or(0).into(),
            selector: reader.selector("spec.selector", Some(&spec.selector)),
            ..Self::new(source, OwnerKind::Deployment, &object.metadata, Some(spec.template))
        }
    }

    pub(crate) fn of_replica_set(reader: &mut Reader, source: &Text, object: ReplicaSet) -> Self {
        let spec = object.spec.unwrap_or_default();
        Self {
            n_wanted: spec.replicas.unwrap_or(1).into(),
            n_reported: object.status.map_or(0, |status| status.replicas).into(),
            selector: reader.selector("spec.selector", Some(&spec.selector)),
            ..Self::new(source, OwnerKind::ReplicaSet, &object.metadata, spec.template)
        }
    }

    pub(crate) fn of_stateful_set(reader: &mut Reader, source: &Text, object: StatefulSet) -> Self {
        let spec = object.spec.unwrap_or_default();
        let claim_templates = spec
            .volume_claim_templates
            .iter()
            .flatten()
            .map(|claim| {
                let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
                (claim.metadata.name.as_deref().unwrap_or_default().into(), class.map(Into::into))
            })
            .collect();
        Self {
            n_wanted: spec.replicas.unwrap_or(1).into(),
            n_reported: object.status.map_or(0, |status| status.replicas).into(),
            selector: reader.selector("spec.selector", Some(&spec.selector)),
            claim_templates,
            first_ordinal: spec.ordinals.and_then(|ordinals| ordinals.start).unwrap_or(0).into(),
            ..Self::new(source, OwnerKind::StatefulSet, &object.metadata, Some(spec.template))
        }
    }

    pub(crate) fn of_replication_controller(source: &Text, object: ReplicationController) -> Self {
        let spec = object.spec.unwrap_or_default();
        let selector = spec.selector.as_ref().map(|selector| {
            LabelSelector::from_labels(selector.iter().map(|(key, value)| (key.as_str(), value.as_str())))
        });
        Self {
            n_wanted: spec.replicas.unwrap_or(1).into(),
            n_reported: object.status.map_or(0, |status| status.replicas).into(),
            selector,
            ..Self::new(source, OwnerKind::ReplicationController, &object.metadata, spec.template)
        }
    }

    pub(crate) fn of_job(source: &Text, object: Job) -> Self {
        let spec = object.spec.unwrap_or_default();
        let status = object.status.unwrap_or_default();
        let is_over =
            status.conditions.iter().flatten().any(|condition| {
                matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True"
            });
        let parallelism = spec.parallelism.unwrap_or(1);
        let to_do = spec.completions.map_or(parallelism, |completions| completions - status.succeeded.unwrap_or(0));
        let n_wanted = if is_over || spec.suspend == Some(true) { 0 } else { parallelism.min(to_do).max(0) };
        Self {
            n_wanted: n_wanted.into(),
            n_reported: status.active.unwrap_or(0).into(),
            ..Self::new(source, OwnerKind::Job, &object.metadata, Some(spec.template))
        }
    }

    fn as_owner(&self) -> Owner {
        Owner { kind: self.kind, name: self.name.clone() }
    }
}

type WorkloadKey = (Text, OwnerKind, Text);

/// Pods of one owner that have the same labels.
struct Group<'a> {
    owner: Option<&'a Owner>,
    labels: &'a Labels,
    n_pods: i64,
}

/// The pods that workloads would create, in order of workload, at most so many each; and notes on what was hidden.
pub(crate) fn promises<'a>(
    workloads: &'a BTreeMap<WorkloadKey, WorkloadFact>,
    pods: &BTreeMap<PodId, Box<PodFact>>,
    most: i64,
    readers: &mut Vec<Reader>,
) -> Vec<Promise<'a>> {
    let groups = group(pods);
    let nothing = Vec::new();
    let mut out = Vec::new();
    for workload in workloads.values() {
        // What a Deployment wants, its ReplicaSets want too.
        let is_controlled = workload
            .owner
            .as_ref()
            .is_some_and(|owner| workloads.contains_key(&(workload.namespace.clone(), owner.kind, owner.name.clone())));
        if is_controlled || workload.n_wanted <= 0 {
            continue;
        }
        let of_namespace = groups.get(&workload.namespace).unwrap_or(&nothing);
        let n_found: i64 =
            of_namespace.iter().filter(|group| owns(workload, group, workloads)).map(|group| group.n_pods).sum();
        if n_found < workload.n_reported {
            let mut reader = Reader::new(&workload.source, describe(workload));
            reader.note(
                "status",
                format!(
                    "it has {} pods, of which {n_found} are shown here; the others are taken to run elsewhere (add the output of kubectl get pods)",
                    workload.n_reported
                ),
            );
            readers.push(reader);
        }
        let n_missing = workload.n_wanted - n_found.max(workload.n_reported);
        if n_missing > most {
            let mut reader = Reader::new(&workload.source, describe(workload));
            reader.note("spec.replicas", format!("{n_missing} pods are more than a cluster holds; {most} are planned"));
            readers.push(reader);
        }
        out.extend(new_pods(workload, n_missing.min(most), pods));
    }
    out
}

pub(crate) fn describe(workload: &WorkloadFact) -> String {
    format!("{:?} {}/{}", workload.kind, workload.namespace, workload.name)
}

fn group(pods: &BTreeMap<PodId, Box<PodFact>>) -> BTreeMap<Text, Vec<Group<'_>>> {
    let mut out: BTreeMap<Text, BTreeMap<(Option<&Owner>, &Labels), i64>> = BTreeMap::new();
    for (id, pod) in pods {
        if !pod.is_terminating {
            *out.entry(id.namespace.clone())
                .or_default()
                .entry((pod.owner.as_ref(), &pod.shape.labels))
                .or_default() += 1;
        }
    }
    out.into_iter()
        .map(|(namespace, groups)| {
            let groups = groups.into_iter().map(|((owner, labels), n_pods)| Group { owner, labels, n_pods }).collect();
            (namespace, groups)
        })
        .collect()
}

fn owns(workload: &WorkloadFact, group: &Group<'_>, workloads: &BTreeMap<WorkloadKey, WorkloadFact>) -> bool {
    // A Deployment must have a selector; one without terms was forgotten, and does not mean every pod.
    let selects = || {
        let selector = workload.selector.as_ref();
        selector.is_some_and(|selector| !selector.terms.is_empty() && selector.matches(group.labels))
    };
    match group.owner {
        Some(owner) if *owner == workload.as_owner() => true,
        Some(owner) if workload.kind == OwnerKind::Deployment && owner.kind == OwnerKind::ReplicaSet => {
            let key = (workload.namespace.clone(), OwnerKind::ReplicaSet, owner.name.clone());
            match workloads.get(&key).and_then(|set| set.owner.as_ref()) {
                Some(of_set) => *of_set == workload.as_owner(),
                None => selects(),
            }
        }
        Some(_) => false,
        None => selects(),
    }
}

fn new_pods<'a>(
    workload: &'a WorkloadFact,
    n_missing: i64,
    pods: &BTreeMap<PodId, Box<PodFact>>,
) -> impl Iterator<Item = Promise<'a>> {
    let first = if workload.kind == OwnerKind::StatefulSet { workload.first_ordinal } else { 1 };
    let is_free = |id: &PodId| !pods.contains_key(id);
    (first..)
        .map(|ordinal| PodId {
            namespace: workload.namespace.clone(),
            name: format!("{}-{ordinal}", workload.name).into(),
        })
        .filter(is_free)
        .take(usize::try_from(n_missing).unwrap_or(0))
        .map(|id| {
            let claims = workload
                .claim_templates
                .iter()
                .map(|(claim, class)| (format!("{claim}-{}", id.name).into(), ClaimFact::promised(class.clone())))
                .collect();
            Promise { id, workload, claims }
        })
        .collect::<Vec<_>>()
        .into_iter()
}
