//! Early binding (gate `EarlyBinding`): pods are bound to the node that was launched for them as soon as it registers.
//!
//! ```text
//! registration puts up a fence ─▶ a breath ─▶ bind the pods that were promised the node ─▶ the fence comes down
//! (taint, NoSchedule)                          kubelet pulls images while it gets ready      kube-scheduler may use the rest
//! ```
//!
//! kube-scheduler cannot come between because of the fence, and so the plan holds to the pod. A pod that somebody else bound
//! first is left alone; one that may not go there (a startup taint, a node smaller than promised, a volume that kube-scheduler must
//! bind) is left to kube-scheduler. What is promised is only in memory: after a restart the fences come down, and nothing is lost.

use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::queue::Queue;
use crate::resource::NODES;
use crate::world::{Change, World};
use crate::write;
use k8s_openapi::api::core::v1::{Node, Taint};
use kerf_api::{NodeClaim, labels, taints};
use kerf_mirror::{PodState, WaitsFor};
use kerf_model::{PodId, Quantity, Text, UnixMillis};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The taint of a node whose own pods are being bound.
const FENCE: &str = taints::EARLY_BINDING;
/// The controller that evicts for NoExecute taints may still see one that has just gone; a pod bound in the same breath would be
/// marked for deletion, and nothing recreates a bare pod.
const BREATH_MS: i64 = 500;
/// Whatever happens, the fence is not up for longer.
const FENCE_MAX_MS: i64 = 15_000;

pub struct EarlyBinding {
    nodes: Queue<Text>,
    /// When a node was first seen without anything that would throw pods out again.
    clear_since: BTreeMap<Text, UnixMillis>,
    /// Pods that are being bound, with their node.
    binding: BTreeMap<Text, (PodId, Text)>,
    n_bound: BTreeMap<Text, usize>,
    /// Pods that the API server would not let us bind.
    refused: BTreeSet<Text>,
}

impl Default for EarlyBinding {
    fn default() -> Self {
        Self {
            nodes: Queue::new(100, 10_000),
            clear_since: BTreeMap::new(),
            binding: BTreeMap::new(),
            n_bound: BTreeMap::new(),
            refused: BTreeSet::new(),
        }
    }
}

/// The taint that registration puts on a node when the gate is on.
pub fn fence() -> Taint {
    Taint { key: FENCE.to_owned(), effect: taints::NO_SCHEDULE.to_owned(), value: None, time_added: None }
}

pub fn has_fence(node: &Node) -> bool {
    taints_of(node).iter().any(|taint| taint.key == FENCE)
}

impl Duty for EarlyBinding {
    fn name(&self) -> &'static str {
        "earlybinding"
    }

    fn observe(&mut self, change: &Change, world: &World) {
        match change {
            Change::Node { name, after: Some(node), .. } if has_fence(node) => self.nodes.add(name.clone()),
            Change::Node { name, after: None, .. } => self.forget(name),
            Change::Pod { after: Some(pod), .. }
                if pod.is_bound() && world.nodes.get(&pod.node).is_some_and(|node| has_fence(node)) =>
            {
                self.nodes.add(pod.node.clone());
            }
            _ => {}
        }
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        for name in self.nodes.take_due(desk.now) {
            if let Some(node) = desk.world.nodes.get(&name).cloned()
                && has_fence(&node)
                && !desk.is_busy(&name)
            {
                self.reconcile(desk, &name, &node);
            }
        }
        self.nodes.next()
    }

    fn done(&mut self, key: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        let Outcome::Api(result) = outcome else { return };
        match (self.binding.remove(key), result) {
            (Some((pod, node)), Ok(_)) => {
                tracing::debug!(controller = "earlybinding", Pod = %pod, Node = &*node, "bound pod");
                *self.n_bound.entry(node.clone()).or_default() += 1;
                self.nodes.add(node);
            }
            (Some((pod, node)), Err(failure)) => {
                // Somebody else was quicker, or it is gone: both are as good. Anything else is kube-scheduler's to try.
                tracing::debug!(controller = "earlybinding", Pod = %pod, Node = &*node, error = %failure, "pod not bound");
                self.refused.insert(key.clone());
                self.nodes.add(node);
            }
            // The fence came down.
            (None, Ok(_)) => {
                let n_pods = self.n_bound.get(key).copied().unwrap_or(0);
                tracing::info!(controller = "earlybinding", Node = &**key, pods = n_pods, "bound pod(s) to node");
                self.forget(key);
            }
            (None, Err(failure)) => {
                if !failure.is_not_found() {
                    self.nodes.retry(key.clone(), desk.now);
                }
            }
        }
    }
}

impl EarlyBinding {
    fn reconcile(&mut self, desk: &mut Desk<'_>, name: &Text, node: &Arc<Node>) {
        let now = desk.now;
        let claim = desk.world.claim_of_node(node).cloned();
        let since = *self.clear_since.entry(name.clone()).or_insert(now);
        // A gate that was switched off leaves the fences of before to be taken down.
        let is_late = now.0 - since.0 >= FENCE_MAX_MS || !desk.options.gates.early_binding;
        let Some(claim) = claim.filter(|claim| !is_late && may_bind(node, claim)) else {
            // Startup taints go when their owner is done; the pods wait for that, and so do we for a while.
            let waits = !is_late && desk.world.claim_of_node(node).is_some_and(|claim| has_startup_taint(node, claim));
            if waits {
                self.nodes.add_at(name.clone(), UnixMillis(since.0 + FENCE_MAX_MS));
            } else {
                self.take_down(desk, name, node);
            }
            return;
        };
        if now.0 - since.0 < BREATH_MS {
            self.nodes.add_at(name.clone(), UnixMillis(since.0 + BREATH_MS));
            return;
        }
        let claim_name: Text = claim.metadata.name.as_deref().unwrap_or_default().into();
        let promised: BTreeSet<PodId> =
            desk.nominations.pods_of(&claim_name).chain(desk.nominations.pods_of(name)).cloned().collect();
        let has_strangers = desk
            .world
            .pods_on(name)
            .any(|pod| pod.is_active() && !pod.is_daemon() && !pod.is_mirror && !self.is_ours(pod, &promised, name));
        if has_strangers {
            self.take_down(desk, name, node);
            return;
        }
        let mut is_done = true;
        for id in &promised {
            let Some(pod) = desk.world.pod(id).cloned() else { continue };
            if !self.wants_binding(desk, &pod) {
                continue;
            }
            is_done = false;
            if self.binding.contains_key(&pod.uid) {
                continue;
            }
            self.binding.insert(pod.uid.clone(), (id.clone(), name.clone()));
            desk.call(&pod.uid, write::bind(&pod, name));
        }
        if is_done {
            self.take_down(desk, name, node);
        } else {
            self.nodes.add_at(name.clone(), UnixMillis(since.0 + FENCE_MAX_MS));
        }
    }

    fn is_ours(&self, pod: &PodState, promised: &BTreeSet<PodId>, node: &Text) -> bool {
        promised.contains(&pod.id) || self.n_bound.contains_key(node)
    }

    fn wants_binding(&self, desk: &Desk<'_>, pod: &PodState) -> bool {
        let is_free = !pod.is_bound() && pod.is_active() && matches!(pod.waits_for, WaitsFor::Us | WaitsFor::Scheduler);
        let is_bound_volume = |claim: &Text| {
            let key = (pod.id.namespace.clone(), claim.clone());
            let phase = desk.world.volume_claims.get(&key).and_then(|claim| claim.status.as_ref()?.phase.clone());
            phase.as_deref() == Some("Bound")
        };
        is_free
            && !self.refused.contains(&pod.uid)
            && !pod.has_resource_claims
            && pod.volume_claims.iter().all(is_bound_volume)
    }

    fn take_down(&mut self, desk: &mut Desk<'_>, name: &Text, node: &Node) {
        let rest: Vec<&Taint> = taints_of(node).iter().filter(|taint| taint.key != FENCE).collect();
        let rest = if rest.is_empty() { serde_json::Value::Null } else { json!(rest) };
        let patch = write::if_unchanged(json!({"spec": {"taints": rest}}), node.metadata.resource_version.as_deref());
        desk.call(name, write::patch(NODES, "", name, patch));
    }

    fn forget(&mut self, node: &Text) {
        self.nodes.forget(node);
        self.clear_since.remove(node);
        self.n_bound.remove(node);
        if self.binding.is_empty() {
            self.refused.clear();
        }
    }
}

/// Whether the node is what was promised, and nothing on it would keep the pods out or throw them out again.
fn may_bind(node: &Node, claim: &NodeClaim) -> bool {
    let has_label = |key: &str| {
        node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str) == Some("true")
    };
    claim.metadata.deletion_timestamp.is_none()
        && node.metadata.deletion_timestamp.is_none()
        && has_label(labels::REGISTERED)
        && !has_startup_taint(node, claim)
        && taints_of(node).iter().all(|taint| is_expected(taint, claim))
        && is_large_enough(node, claim)
}

fn has_startup_taint(node: &Node, claim: &NodeClaim) -> bool {
    let startup = claim.spec.startup_taints.as_deref().unwrap_or_default();
    taints_of(node).iter().any(|taint| startup.iter().any(|start| is_same(start, taint)))
}

/// Taints that the plan knew of, our own fence, and those that every pod tolerates for five minutes while a node gets ready.
fn is_expected(taint: &Taint, claim: &NodeClaim) -> bool {
    taint.key == FENCE
        || matches!(taint.key.as_str(), taints::NODE_NOT_READY | taints::NODE_UNREACHABLE)
        || claim.spec.taints.as_deref().unwrap_or_default().iter().any(|planned| is_same(planned, taint))
}

fn is_same(one: &Taint, other: &Taint) -> bool {
    one.key == other.key && one.effect == other.effect
}

/// Whether it has what the pods and the daemons of the plan need together.
fn is_large_enough(node: &Node, claim: &NodeClaim) -> bool {
    let requests = claim.spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    requests.into_iter().flatten().all(|(name, needs)| {
        let has = allocatable.and_then(|amounts| amounts.get(name)).map(|amount| Quantity::parse(&amount.0));
        match (Quantity::parse(&needs.0), has) {
            (Ok(needs), Some(Ok(has))) => has >= needs,
            (Ok(needs), None) => needs.is_zero(),
            _ => false,
        }
    })
}

fn taints_of(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(taints: &[(&str, &str)], cpu: &str) -> Node {
        let taints: Vec<_> = taints.iter().map(|(key, effect)| json!({"key": key, "effect": effect})).collect();
        let node = json!({
            "metadata": {"name": "n", "labels": {"karpenter.sh/registered": "true"}},
            "spec": {"taints": taints}, "status": {"allocatable": {"cpu": cpu}},
        });
        serde_json::from_value(node).unwrap()
    }

    fn claim() -> NodeClaim {
        let claim = json!({
            "metadata": {"name": "c"},
            "spec": {
                "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": [],
                "taints": [{"key": "team", "effect": "NoSchedule", "value": "a"}],
                "startupTaints": [{"key": "agent", "effect": "NoSchedule"}],
                "resources": {"requests": {"cpu": "3"}},
            },
        });
        serde_json::from_value(claim).unwrap()
    }

    #[test]
    fn only_what_the_plan_knew_of_may_be_on_the_node() {
        let fence = (FENCE, "NoSchedule");
        for (story, taints, cpu, may) in [
            ("a new node", vec![fence, ("node.kubernetes.io/not-ready", "NoSchedule")], "4", true),
            ("with the pool's taint", vec![fence, ("team", "NoSchedule")], "4", true),
            ("with a startup taint", vec![fence, ("agent", "NoSchedule")], "4", false),
            ("not registered yet", vec![fence, ("karpenter.sh/unregistered", "NoExecute")], "4", false),
            ("being disrupted", vec![fence, ("karpenter.sh/disrupted", "NoSchedule")], "4", false),
            ("tainted by a stranger", vec![fence, ("rogue", "NoExecute")], "4", false),
            ("smaller than promised", vec![fence], "2", false),
        ] {
            assert_eq!(may_bind(&node(&taints, cpu), &claim()), may, "{story}");
        }
    }
}
