//! A machine that a person has taken over: its claim goes, its Node stays, and nothing is drained or ended.
//!
//! Asked when the claim is being deleted, beside everything else: whoever keeps nodes although their pool goes takes them over first, and
//! the cloud's answer is there before the Node's deletion, which nobody can take back. An answer that takes longer than a moment is not
//! waited for, and neither is it where the machine has a deadline: a drain that begins late hurts more than a Node that must
//! register again. The machine itself is never ended once it is known to be somebody else's.

use super::{Doing, Look, Memory, NAME, RELEASE, backoff_ms};
use crate::desk::Desk;
use crate::errand::{CloudAnswer, CloudCall};
use crate::events::{About, Event};
use crate::queue::earlier;
use crate::resource::{NODE_CLAIMS, NODES};
use crate::world::claim_provider_id;
use crate::write;
use k8s_openapi::api::core::v1::Node;
use kerf_api::labels::{TERMINATION_FINALIZER, TERMINATION_TIMESTAMP};
use kerf_api::taints::DISRUPTED;
use kerf_cloud::CloudError;
use kerf_model::{Text, UnixMillis};
use serde_json::{Value, json};

/// How long a Node's deletion waits for the cloud's word on whose machine it is.
const PATIENCE_MS: i64 = 2_000;

impl Look<'_, '_, '_> {
    /// If the machine was taken over, lets go of its Node and then of the claim, and answers true. Otherwise asks about it beside.
    pub(super) fn lets_go(&mut self) -> bool {
        let Some(id) = claim_provider_id(self.claim).map(Text::from) else {
            return false;
        };
        match self.memory.is_released {
            Some(false) => false,
            Some(true) => {
                self.free(&id);
                true
            }
            None if self.desk.cloud.released(id.clone()).is_none() => false,
            None => {
                self.ask_whether_released(id);
                false
            }
        }
    }

    /// Whether the cloud's word may still come in time to spare the Node.
    pub(super) fn awaits_word(&mut self) -> bool {
        let Some(since) = self.memory.release_asked_at else {
            return false;
        };
        let is_in_haste =
            self.claim.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(TERMINATION_TIMESTAMP));
        let until = UnixMillis(since.0.saturating_add(PATIENCE_MS));
        // A first refusal is an answer of a kind: whoever is in trouble is not waited for.
        let is_asking = self.memory.is_released.is_none() && self.memory.n_release_failures == 0;
        let awaits = is_asking && until > self.desk.now && !is_in_haste;
        if awaits {
            self.again = earlier(self.again, Some(until));
        }
        awaits
    }

    fn ask_whether_released(&mut self, provider_id: Text) {
        // Its end marks the claim again.
        let key = release_key(self.name);
        if self.desk.is_busy(&key) {
            return;
        }
        if let Some(then) = self.memory.release_after.filter(|then| *then > self.desk.now) {
            self.again = earlier(self.again, Some(then));
            return;
        }
        self.memory.release_asked_at.get_or_insert(self.desk.now);
        self.desk.ask_cloud(&key, CloudCall::IsReleased { provider_id });
    }

    fn free(&mut self, provider_id: &str) {
        let nodes = self.desk.world.nodes_of(provider_id);
        // Once is enough: what is written may not have been seen yet.
        let nodes = if self.memory.is_freed { Vec::new() } else { nodes };
        let bound = nodes.iter().find_map(|node| Some((node.metadata.name.clone()?, freed(node)?)));
        if let Some((node, patch)) = bound {
            self.patch_node(&node, patch, Doing::FreeNode);
            return;
        }
        let finalizers = self.claim.metadata.finalizers.iter().flatten();
        let others: Vec<&String> = finalizers.filter(|finalizer| *finalizer != TERMINATION_FINALIZER).collect();
        self.patch(json!({"metadata": {"finalizers": others}}), Doing::RemoveFinalizer);
    }
}

/// The cloud was asked whether the machine is somebody else's.
pub(super) fn answered(name: &Text, memory: &mut Memory, answer: Result<CloudAnswer, CloudError>, desk: &mut Desk<'_>) {
    match answer {
        Ok(CloudAnswer::Released(true)) => {
            memory.is_released = Some(true);
            let Some(claim) = desk.world.claims.get(name).cloned() else { return };
            tracing::info!(controller = NAME, NodeClaim = &**name, "letting go of a machine that was taken over");
            let node = desk.world.node_of_claim(&claim).map(|node| About::of(NODES, &node.metadata));
            for about in [About::of(NODE_CLAIMS, &claim.metadata)].into_iter().chain(node) {
                let text = "the machine was taken over by a person: it and its Node are kept, and managed no longer";
                let same = [about.uid.clone()];
                desk.event(Event::normal(about, "Released", text).same_by(same));
            }
        }
        Ok(_) => memory.is_released = Some(false),
        Err(error) if error.is_not_found() => memory.is_released = Some(false),
        Err(error) => {
            memory.n_release_failures += 1;
            tracing::error!(controller = NAME, NodeClaim = &**name, error = %error, "asking whether a machine was taken over");
            let wait_ms = backoff_ms(memory.n_release_failures);
            memory.release_after = Some(UnixMillis(desk.now.0.saturating_add(wait_ms)));
        }
    }
}

/// The key under which the cloud is asked whose machine it is: beside what else it is asked about a claim.
pub(super) fn release_key(name: &Text) -> Text {
    format!("{RELEASE}{name}").into()
}

/// What a Node must lose to stay when its claim goes: our finalizer, the claim as its owner, and our taint. None when it has none of
/// them.
fn freed(node: &Node) -> Option<Value> {
    let mut patch = json!({});
    let finalizers = node.metadata.finalizers.as_deref().unwrap_or_default();
    if finalizers.iter().any(|finalizer| finalizer == TERMINATION_FINALIZER) {
        let others: Vec<_> = finalizers.iter().filter(|finalizer| *finalizer != TERMINATION_FINALIZER).collect();
        patch["metadata"]["finalizers"] = json!(others);
    }
    let owners = node.metadata.owner_references.as_deref().unwrap_or_default();
    if owners.iter().any(|owner| owner.kind == "NodeClaim") {
        let others: Vec<_> = owners.iter().filter(|owner| owner.kind != "NodeClaim").collect();
        patch["metadata"]["ownerReferences"] = json!(others);
    }
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    if taints.iter().any(|taint| taint.key == DISRUPTED) {
        let others: Vec<_> = taints.iter().filter(|taint| taint.key != DISRUPTED).collect();
        patch["spec"]["taints"] = json!(others);
    }
    // The lists are written whole: what somebody else added meanwhile must not go with ours.
    (patch != json!({})).then(|| write::if_unchanged(patch, node.metadata.resource_version.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_stays_loses_what_ties_it_to_its_claim_and_nothing_else() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {
                "name": "n", "resourceVersion": "7", "finalizers": ["other/finalizer", TERMINATION_FINALIZER],
                "ownerReferences": [
                    {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "c", "uid": "1"},
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "2"},
                ],
            },
            "spec": {"taints": [{"key": DISRUPTED, "effect": "NoSchedule"}, {"key": "mine", "effect": "NoSchedule"}]},
        }))
        .unwrap();
        let expected = json!({
            "metadata": {
                "resourceVersion": "7", "finalizers": ["other/finalizer"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "2"}],
            },
            "spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]},
        });
        assert_eq!(freed(&node), Some(expected));
        let free: Node =
            serde_json::from_value(json!({"metadata": {"name": "n", "finalizers": ["other/finalizer"]}})).unwrap();
        assert_eq!(freed(&free), None);
    }
}
