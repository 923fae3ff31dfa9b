//! Pods: where each one is, and how long those that wait have waited. Duty `metrics.pod`.
//!
//! A pod that is first seen pending is followed until it is ready; its durations are observed on the way. One that was there
//! before us is on the page, and not in the durations: nobody saw how long it took.

use super::{Renewal, seconds};
use crate::desk::Desk;
use crate::duty::Duty;
use crate::errand::Outcome;
use crate::metrics::families::{
    PODS_BOUND_DURATION_SECONDS, PODS_PROVISIONING_BOUND_DURATION_SECONDS,
    PODS_PROVISIONING_SCHEDULING_UNDECIDED_TIME_SECONDS, PODS_PROVISIONING_STARTUP_DURATION_SECONDS,
    PODS_PROVISIONING_UNBOUND_TIME_SECONDS, PODS_PROVISIONING_UNSTARTED_TIME_SECONDS, PODS_STARTUP_DURATION_SECONDS,
    PODS_STATE, PODS_UNBOUND_TIME_SECONDS, PODS_UNSTARTED_TIME_SECONDS,
};
use crate::metrics::{Family, Metrics, Page, Source};
use crate::world::{Change, World};
use k8s_openapi::api::core::v1::Node;
use kerf_api::labels;
use kerf_mirror::{OwnedBy, Phase, PodState};
use kerf_model::{PodId, Text, UnixMillis};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug, Default)]
pub struct PodGauges {
    board: Arc<Board>,
    changed: BTreeSet<PodId>,
    pending: BTreeMap<PodId, Pending>,
    renewal: Renewal,
    is_attached: bool,
}

/// A pod on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pending {
    acknowledged: UnixMillis,
    /// When a place was first found for it.
    decided: Option<UnixMillis>,
    is_bound: bool,
}

#[derive(Debug, Default)]
struct Board(Mutex<Arc<Sheet>>);

#[derive(Debug, Default)]
struct Sheet {
    pods: Vec<Arc<PodState>>,
    nodes: BTreeMap<Text, (Arc<Node>, bool)>,
    pending: Vec<(Arc<PodState>, Pending)>,
}

impl Duty for PodGauges {
    fn name(&self) -> &'static str {
        "metrics.pod"
    }

    fn observe(&mut self, change: &Change, _: &World) {
        match change {
            Change::Pod { id, after: Some(_), .. } => {
                self.changed.insert(id.clone());
            }
            Change::Pod { id, after: None, .. } => {
                self.changed.remove(id);
                self.pending.remove(id);
            }
            Change::Node { .. } | Change::Claim { .. } => {}
            _ => return,
        }
        self.renewal.is_dirty = true;
    }

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !self.is_attached {
            desk.metrics.attach("pods", self.board.clone());
            self.is_attached = true;
        }
        for id in std::mem::take(&mut self.changed) {
            if let Some(pod) = desk.world.pod(&id) {
                self.follow(pod, desk);
            }
        }
        if self.renewal.is_due(desk.now) {
            for (id, pending) in &mut self.pending {
                pending.hear(id, desk);
            }
            self.board.publish(self.sheet(desk.world));
        }
        self.renewal.wish()
    }

    fn done(&mut self, _: &Text, _: Outcome, _: &mut Desk<'_>) {}
}

impl PodGauges {
    fn follow(&mut self, pod: &Arc<PodState>, desk: &Desk<'_>) {
        if pod.is_terminal() {
            self.pending.remove(&pod.id);
            return;
        }
        if pod.phase == Phase::Pending && !self.pending.contains_key(&pod.id) {
            let pending = Pending {
                acknowledged: desk.now,
                decided: None,
                is_bound: pod.scheduled_at.is_some() || pod.is_bound(),
            };
            self.pending.insert(pod.id.clone(), pending);
        }
        let Some(pending) = self.pending.get_mut(&pod.id) else {
            return;
        };
        pending.hear(&pod.id, desk);
        if pending.advance(pod, desk.metrics, desk.now) {
            self.pending.remove(&pod.id);
        }
    }

    fn sheet(&self, world: &World) -> Sheet {
        let mut pods: Vec<Arc<PodState>> = world.pods().cloned().collect();
        pods.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        let pending = self.pending.iter().filter_map(|(id, pending)| Some((world.pod(id)?.clone(), *pending)));
        let nodes = world.nodes.iter().map(|(name, node)| {
            let is_managed = world.claim_of_node(node).is_some();
            (name.clone(), (node.clone(), is_managed))
        });
        Sheet { pods, nodes: nodes.collect(), pending: pending.collect() }
    }
}

impl Pending {
    /// Notes when a place was found for it. Whoever found it has counted that.
    fn hear(&mut self, id: &PodId, desk: &Desk<'_>) {
        if self.decided.is_none()
            && let Some(promise) = desk.nominations.promise_of(id)
        {
            self.decided = Some(promise.decided);
        }
    }

    /// Notes how far the pod has come. Answers whether it has arrived.
    fn advance(&mut self, pod: &PodState, metrics: &Metrics, now: UnixMillis) -> bool {
        let has_devices = if pod.has_resource_claims { "true" } else { "false" };
        if !self.is_bound && (pod.is_bound() || pod.scheduled_at.is_some()) {
            self.is_bound = true;
            let at = pod.scheduled_at.unwrap_or(now);
            metrics.observe(&PODS_BOUND_DURATION_SECONDS, &[has_devices], seconds(pod.created, at));
            if let Some(decided) = self.decided {
                let duration = seconds(decided, at);
                metrics.observe(&PODS_PROVISIONING_BOUND_DURATION_SECONDS, &[has_devices], duration);
            }
        }
        let Some(at) = pod.ready_at else {
            return false;
        };
        metrics.observe(&PODS_STARTUP_DURATION_SECONDS, &[], seconds(pod.created, at));
        if let Some(decided) = self.decided {
            metrics.observe(&PODS_PROVISIONING_STARTUP_DURATION_SECONDS, &[], seconds(decided, at));
        }
        true
    }
}

impl Board {
    fn publish(&self, sheet: Sheet) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(sheet);
    }
}

impl Source for Board {
    fn render(&self, page: &mut Page, now: UnixMillis) {
        let sheet = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        page.begin_family(&PODS_STATE);
        for pod in &sheet.pods {
            let place = sheet.nodes.get(&pod.node);
            let label = |key: &str| {
                let labels = place.and_then(|(node, _)| node.metadata.labels.as_ref());
                labels.and_then(|labels| labels.get(key)).map(String::as_str).unwrap_or_default()
            };
            let truth = |it: bool| if it { "true" } else { "false" };
            let owner = owner(pod);
            let values = [
                &*pod.id.name,
                &*pod.id.namespace,
                &owner,
                &*pod.node,
                label(labels::NODE_POOL),
                label(labels::ZONE),
                label(labels::ARCH),
                label(labels::CAPACITY_TYPE),
                label(labels::INSTANCE_TYPE),
                pod.phase.as_str(),
                truth(pod.scheduled_at.is_some() || pod.is_bound()),
                truth(pod.is_ready),
                truth(place.is_some_and(|(_, is_managed)| *is_managed)),
            ];
            page.sample_of(PODS_STATE.name, PODS_STATE.labels.iter().copied().zip(values), 1.0);
        }
        sheet.render_pending(page, now);
    }
}

impl Sheet {
    fn render_pending(&self, page: &mut Page, now: UnixMillis) {
        let mut write = |family: &Family, since: &dyn Fn(&PodState, &Pending) -> Option<UnixMillis>| {
            page.begin_family(family);
            for (pod, pending) in &self.pending {
                let has_devices = if pod.has_resource_claims { "true" } else { "false" };
                let values = [&*pod.id.name, &*pod.id.namespace, has_devices];
                if let Some(since) = since(pod, pending) {
                    page.sample_of(family.name, family.labels.iter().copied().zip(values), seconds(since, now));
                }
            }
        };
        write(&PODS_UNSTARTED_TIME_SECONDS, &|pod, _| Some(pod.created));
        write(&PODS_UNBOUND_TIME_SECONDS, &|pod, pending| (!pending.is_bound).then_some(pod.created));
        write(&PODS_PROVISIONING_UNSTARTED_TIME_SECONDS, &|_, pending| pending.decided);
        write(&PODS_PROVISIONING_UNBOUND_TIME_SECONDS, &|_, pending| pending.decided.filter(|_| !pending.is_bound));
        write(&PODS_PROVISIONING_SCHEDULING_UNDECIDED_TIME_SECONDS, &|_, pending| {
            (!pending.is_bound && pending.decided.is_none()).then_some(pending.acknowledged)
        });
    }
}

/// The owner as a path, as far as its kind is known.
fn owner(pod: &PodState) -> String {
    let place = match pod.owner {
        OwnedBy::Nobody => return String::new(),
        OwnedBy::Other => return pod.owner_name.to_string(),
        OwnedBy::DaemonSet => "apps/v1/namespaces/{}/daemonsets",
        OwnedBy::ReplicaSet => "apps/v1/namespaces/{}/replicasets",
        OwnedBy::StatefulSet => "apps/v1/namespaces/{}/statefulsets",
        OwnedBy::Job => "batch/v1/namespaces/{}/jobs",
        OwnedBy::Node => "v1/namespaces/{}/nodes",
    };
    format!("/apis/{}/{}", place.replace("{}", &pod.id.namespace), pod.owner_name)
}
