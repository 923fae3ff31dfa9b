//! Whether the peer's answer keeps the laws, as our audit knows them.

use super::ask::{PeerAnswer, peers_name};
use super::passes;
use super::scenario::Scenario;
use anyhow::Result;
use kerf_engine::audit::Breach;
use kerf_model::{Placement, Plan, PodId, Reason, Step};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What the peer's placements break once its claims have become nodes. Pods that we do not consider at all are left out.
pub(crate) fn breaches(scenario: &Scenario, answer: &PeerAnswer) -> Result<Vec<Breach>> {
    let after = passes::after(scenario, answer, &[]);
    let placed = answer.placed();
    let mut by_node: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in after.objects.iter().filter(|object| object["kind"] == "Pod") {
        let (name, node) = (passes::pod_name(pod), pod["spec"]["nodeName"].as_str().unwrap_or_default());
        if placed.contains(&name) {
            by_node.entry(node.to_owned()).or_default().push(name);
        }
    }
    // The nodes stand, and the pods are about to be put onto them.
    let empty = after.changed("Pod", |pod| {
        if placed.contains(&passes::pod_name(pod)) {
            pod["spec"].as_object_mut().map(|spec| spec.remove("nodeName"));
            pod["status"] = Value::Null;
        }
    });
    let snapshot = empty.snapshot()?;
    let known: BTreeMap<String, &PodId> = snapshot.pods.iter().map(|pod| (peers_name(&pod.id), &pod.id)).collect();
    let steps = by_node
        .into_iter()
        .map(|(node, names)| {
            let pods: Vec<PodId> = names.iter().filter_map(|name| known.get(name)).map(|id| (*id).clone()).collect();
            let why = Reason::RoomOnNode { n_pods: pods.len(), in_flight: false };
            Step::Place(Placement { node: node.as_str().into(), pods, why })
        })
        .collect();
    let plan = Plan { based_on: snapshot.revision, steps };
    Ok(kerf_engine::audit(&snapshot, &plan).err().unwrap_or_default())
}

/// The peer's answer without the pods that break a law. None where a law is broken that is not about one pod.
pub(crate) fn sound_part(scenario: &Scenario, answer: &PeerAnswer) -> Result<Option<PeerAnswer>> {
    let mut sound = answer.clone();
    loop {
        let breaches = breaches(scenario, &sound)?;
        if breaches.is_empty() {
            return Ok(Some(sound));
        }
        let wrong: BTreeSet<String> = breaches.iter().filter_map(pod_of).map(peers_name).collect();
        if wrong.is_empty() {
            return Ok(None);
        }
        let places = sound.claims.iter_mut().map(|claim| &mut claim.pods).chain(sound.existing.values_mut());
        places.for_each(|pods| pods.retain(|pod| !wrong.contains(pod)));
        sound.claims.retain(|claim| !claim.pods.is_empty());
    }
}

/// The pod that a breach is about, where it is about one.
pub(crate) fn pod_of(breach: &Breach) -> Option<&PodId> {
    match breach {
        Breach::TaintNotTolerated { pod, .. }
        | Breach::RequirementsNotMet { pod, .. }
        | Breach::HostPortTwice { pod, .. }
        | Breach::AntiAffinity { pod, .. }
        | Breach::AffinityAlone { pod, .. }
        | Breach::SpreadTooWide { pod, .. }
        | Breach::DomainUnknown { pod, .. } => Some(pod),
        _ => None,
    }
}
