//! Finished pods beyond the number that is kept. Pods whose node is gone are the node controllers' business.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::Synced;
use super::facts::PodFacts;
use super::owner::gone_is_fine;
use super::world::World;
use crate::hands::Hands;

/// Finished pods that are kept for those who want to look at them.
pub(crate) const FINISHED_MAX: usize = 12_500;

pub(crate) fn sync(world: &World, hands: &mut Hands<'_>) -> Synced {
    for pod in surplus(world.pods.finished(), FINISHED_MAX) {
        let options = json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": pod.uid() } });
        gone_is_fine(hands.delete::<Pod>(&pod.key.namespace, &pod.key.name, &options))?;
    }
    Ok(None)
}

/// Evicted ones first, then the oldest.
fn surplus(mut finished: Vec<Arc<PodFacts>>, max: usize) -> Vec<Arc<PodFacts>> {
    let n_surplus = finished.len().saturating_sub(max);
    if n_surplus > 0 {
        finished.sort_by(|a, b| {
            let is_evicted = |pod: &PodFacts| &*pod.reason == "Evicted";
            is_evicted(b).cmp(&is_evicted(a)).then(a.created.cmp(&b.created)).then_with(|| a.key.name.cmp(&b.key.name))
        });
    }
    finished.truncate(n_surplus);
    // One that waits for a finalizer was deleted already.
    finished.retain(|pod| pod.deleted.is_none());
    finished
}

#[cfg(test)]
mod tests {
    use super::super::facts::testing::pod;
    use super::*;

    #[test]
    fn the_oldest_finished_pods_beyond_the_number_go_evicted_ones_first() {
        let mut evicted = pod("c failed created=30");
        evicted.reason = "Evicted".into();
        let pods: Vec<_> =
            [pod("a failed created=20"), pod("b succeeded created=10"), evicted, pod("d failed deleted")]
                .map(Arc::new)
                .into();
        for (max, expected) in [(4, ""), (3, "c"), (2, "c"), (1, "c b"), (0, "c b a")] {
            let names: Vec<_> = surplus(pods.clone(), max).iter().map(|pod| pod.key.name.clone()).collect();
            assert_eq!(names.join(" "), expected, "{max}");
        }
    }
}
