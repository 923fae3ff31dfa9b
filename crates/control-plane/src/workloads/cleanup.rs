//! Pods that nobody else would delete: on nodes that are gone, on nodes that are out of service, and finished ones beyond a number.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use serde_json::json;

use super::Synced;
use super::facts::{PodFacts, after, whole_seconds};
use super::owner::gone_is_fine;
use super::world::World;
use crate::error::ApiResult;
use crate::hands::Hands;
use crate::kind::Subresource;

/// Finished pods that are kept for those who want to look at them.
const FINISHED_MAX: usize = 12_500;

/// A node may come back under its name: its pods are given this long.
const QUARANTINE_SECONDS: i64 = 40;

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Nodes that pods name and that are not there, and since when.
#[derive(Debug, Default)]
pub(crate) struct Missing(BTreeMap<String, Timestamp>);

pub(crate) fn sync(world: &World, hands: &mut Hands<'_>, missing: &mut Missing) -> Synced {
    let now = hands.now();
    let (lost, again) = missing.look(world, now);
    for pod in lost.iter().flat_map(|node| world.pods.on_node(node)) {
        remove(hands, &pod, Some("PodGC: node no longer exists"))?;
    }
    for pod in on_dead_nodes(world) {
        remove(hands, &pod, None)?;
    }
    for pod in surplus(&world.pods.finished(), FINISHED_MAX) {
        remove(hands, &pod, None)?;
    }
    Ok(again)
}

impl Missing {
    /// The nodes that have been missing for long enough, and when the next one will have been.
    fn look(&mut self, world: &World, now: Timestamp) -> (Vec<String>, Option<Timestamp>) {
        let absent: Vec<&String> = world.pods.nodes().filter(|node| !world.nodes.contains_key(*node)).collect();
        self.0.retain(|node, _| absent.contains(&node));
        let mut lost = Vec::new();
        let mut again = None;
        for node in absent {
            let since = *self.0.entry(node.clone()).or_insert(now);
            let until = after(since, QUARANTINE_SECONDS);
            if until <= now {
                lost.push(node.clone());
            } else {
                again = again.into_iter().chain([until]).min();
            }
        }
        (lost, again)
    }
}

/// Pods that were to be deleted on a node of which somebody said that it will not answer any more.
fn on_dead_nodes(world: &World) -> Vec<Arc<PodFacts>> {
    let dead = world
        .nodes
        .values()
        .filter(|node| !node.is_ready && node.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE));
    dead.flat_map(|node| world.pods.on_node(&node.name)).filter(|pod| pod.deleted.is_some()).collect()
}

/// The finished pods beyond the number that is kept: evicted ones first, then the oldest.
fn surplus(finished: &[Arc<PodFacts>], max: usize) -> Vec<Arc<PodFacts>> {
    let mut pods: Vec<_> = finished.to_vec();
    let n_surplus = pods.len().saturating_sub(max);
    if n_surplus > 0 {
        pods.sort_by(|a, b| {
            let is_evicted = |pod: &PodFacts| pod.reason == "Evicted";
            is_evicted(b).cmp(&is_evicted(a)).then(a.created.cmp(&b.created)).then_with(|| a.key.name.cmp(&b.key.name))
        });
    }
    pods.truncate(n_surplus);
    // One that waits for a finalizer was deleted already.
    pods.retain(|pod| pod.deleted.is_none());
    pods
}

/// Marks a pod as failed, so that its owner sees it end, and deletes it at once.
fn remove(hands: &mut Hands<'_>, pod: &PodFacts, why: Option<&str>) -> ApiResult<()> {
    let (namespace, name) = (&pod.key.namespace, &pod.key.name);
    if !pod.is_finished() {
        let Some(known) = pod.stored.read::<Pod>() else { return Ok(()) };
        let mut conditions = known.status.and_then(|status| status.conditions).unwrap_or_default();
        if let Some(why) = why {
            conditions.retain(|condition| condition.type_ != "DisruptionTarget");
            conditions.push(PodCondition {
                type_: "DisruptionTarget".to_owned(),
                status: "True".to_owned(),
                reason: Some("DeletionByPodGC".to_owned()),
                message: Some(why.to_owned()),
                last_transition_time: Some(whole_seconds(hands.now())),
                observed_generation: known.metadata.generation,
                ..PodCondition::default()
            });
        }
        let patch =
            json!({ "metadata": { "uid": pod.uid }, "status": { "phase": "Failed", "conditions": conditions } });
        if gone_is_fine(hands.merge_patch::<Pod>(namespace, name, Some(Subresource::Status), &patch))?.is_none() {
            return Ok(());
        }
    }
    if pod.is_finished() && pod.deleted.is_some() {
        // It was deleted before, and only waits for its finalizers.
        return Ok(());
    }
    let options = json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": pod.uid } });
    gone_is_fine(hands.delete::<Pod>(namespace, name, &options))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::facts::testing::pod;
    use super::*;

    #[test]
    fn the_oldest_finished_pods_beyond_the_number_go_evicted_ones_first() {
        let mut evicted = pod("c failed created=30");
        evicted.reason = "Evicted".to_owned();
        let pods: Vec<_> =
            [pod("a failed created=20"), pod("b succeeded created=10"), evicted, pod("d failed deleted")]
                .map(Arc::new)
                .into();
        for (max, expected) in [(4, ""), (3, "c"), (1, "c b"), (0, "c b a")] {
            let names: Vec<_> = surplus(&pods, max).iter().map(|pod| pod.key.name.clone()).collect();
            assert_eq!(names.join(" "), expected, "{max}");
        }
    }
}
