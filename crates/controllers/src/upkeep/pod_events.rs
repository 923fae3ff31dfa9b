//! When a pod last came to a node or left it: `consolidateAfter` counts from there.

use super::BACKOFF_MS;
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::lifecycle::is_managed;
use crate::queue::Queue;
use crate::resource::NODE_CLAIMS;
use crate::world::{Change, World};
use crate::write;
use crate::{conditions, events};
use kerf_api::NodeClaim;
use kerf_mirror::PodState;
use kerf_model::{Text, UnixMillis};
use serde_json::json;

const NAME: &str = "nodeclaim.podevents";
/// A burst of pods is one event.
const QUIET_MS: i64 = 10_000;

pub struct PodEvents {
    /// Names of nodes.
    queue: Queue<Text>,
}

impl Default for PodEvents {
    fn default() -> Self {
        Self { queue: Queue::new(BACKOFF_MS.0, BACKOFF_MS.1) }
    }
}

impl Duty for PodEvents {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, change: &Change, _: &World) {
        if let Change::Pod { before, after: Some(after), .. } = change
            && is_event(before.as_deref(), after)
        {
            self.queue.add(after.node.clone());
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !desk.world.is_synced() {
            return None;
        }
        for node in self.queue.take_due(desk.now) {
            let claim = desk.world.nodes.get(&node).and_then(|node| desk.world.claim_of_node(node));
            let Some(claim) = claim.filter(|claim| is_managed(claim, &**desk.cloud)) else {
                continue;
            };
            let name: Text = claim.metadata.name.as_deref().unwrap_or_default().into();
            if is_quiet(claim, desk.now) || claim.metadata.deletion_timestamp.is_some() || desk.is_busy(&name) {
                continue;
            }
            let time = events::timestamp(desk.now);
            let patch = json!({"status": {"lastPodEventTime": time}});
            desk.call(&name, write::patch_status(NODE_CLAIMS, "", &name, patch));
        }
        self.queue.next()
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        // Without it a node looks idle sooner than it is. The claim knows its node, and the node is what is queued.
        if let Outcome::Api(Err(failure)) = outcome
            && !failure.is_not_found()
        {
            tracing::error!(controller = NAME, NodeClaim = &**key, error = %failure, "patching lastPodEventTime");
            let node = desk.world.claims.get(key).and_then(|claim| desk.world.node_of_claim(claim));
            if let Some(name) = node.and_then(|node| node.metadata.name.as_deref()) {
                self.queue.retry(name.into(), desk.now);
            }
        }
    }
}

/// A pod that is not a daemon came, ended, or began to end.
fn is_event(before: Option<&PodState>, after: &PodState) -> bool {
    if after.is_daemon() || !after.is_bound() {
        return false;
    }
    let Some(before) = before else {
        return true;
    };
    !before.is_bound()
        || (after.is_terminal() && !before.is_terminal())
        || (after.is_terminating() && !before.is_terminating())
}

fn is_quiet(claim: &NodeClaim, now: UnixMillis) -> bool {
    let last = claim.status.as_ref().and_then(|status| status.last_pod_event_time.as_ref());
    // Stored times are whole seconds.
    last.is_some_and(|last| conditions::time(now).0.as_millisecond() - last.0.as_millisecond() < QUIET_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::time;
    use crate::lifecycle::testing::claim;
    use k8s_openapi::api::core::v1::Pod;

    fn pod(node: &str, phase: &str, is_deleting: bool, owner: &str) -> PodState {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": []}, "status": {"phase": phase}});
        if !node.is_empty() {
            pod["spec"]["nodeName"] = json!(node);
        }
        if is_deleting {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        if !owner.is_empty() {
            let owner = json!({"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "u", "controller": true});
            pod["metadata"]["ownerReferences"] = json!([owner]);
        }
        PodState::read(&serde_json::from_value::<Pod>(pod).unwrap())
    }

    #[test]
    fn pods_that_come_end_or_begin_to_end_count_and_daemons_do_not() {
        let waiting = pod("", "Pending", false, "");
        let bound = pod("n", "Pending", false, "");
        let running = pod("n", "Running", false, "");
        let ended = pod("n", "Succeeded", false, "");
        let leaving = pod("n", "Running", true, "");
        for (before, after, expected) in [
            (None, &waiting, false),
            (None, &bound, true),
            (Some(&waiting), &bound, true),
            (Some(&bound), &running, false),
            (Some(&running), &ended, true),
            (Some(&running), &leaving, true),
            (Some(&leaving), &leaving, false),
            (None, &pod("n", "Running", false, "DaemonSet"), false),
            (None, &pod("n", "Running", false, "ReplicaSet"), true),
        ] {
            assert_eq!(is_event(before, after), expected, "{before:?} {after:?}");
        }
    }

    #[test]
    fn ten_seconds_are_one_event() {
        let mut it = claim("c");
        assert!(!is_quiet(&it, UnixMillis(0)));
        it.status.get_or_insert_default().last_pod_event_time = Some(time(UnixMillis(5_000)));
        assert!(is_quiet(&it, UnixMillis(14_999)));
        assert!(!is_quiet(&it, UnixMillis(15_000)));
    }
}
