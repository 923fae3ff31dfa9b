//! The kwok provider: nodes that are nothing but objects, on a cluster where a kwok controller plays their kubelets.
//!
//! ```text
//! launch ─▶ choose an offering ─▶ draft the Node ─▶ [wait for nodeRegistrationDelay] ─▶ NodeDesk::create_node
//! terminate ─▶ delete the NodeClaim and the Node, if nobody else does ─▶ NotFound
//! ```
//!
//! The cluster is the memory: apart from nodes on their way in and out, nothing is kept here, and a second launch of a claim
//! finds the node of the first.

mod desk;
pub(crate) mod node;

pub use desk::{Created, NodeDesk};

use crate::choice::{Candidate, candidates, names_types};
use kerf_api::{KwokNodeClass, labels as api_labels};
use kerf_cloud::clock::{Clock, Wait};
use kerf_cloud::{
    Answer, ClassStatus, CloudError, CloudProvider, Instance, InstanceRef, LaunchOrder, NodeClassKind, RepairAction,
    RepairPolicy, TypesAsk,
};
use kerf_model::{CapacityType, InstanceType, Money, Text, TypeName};
use node::{Draft, PROVIDER_PREFIX, draft, instance_of, is_deleting, node_name};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub const NODE_CLASS: NodeClassKind =
    NodeClassKind::plain(api_labels::KWOK_GROUP, "v1alpha1", "KWOKNodeClass", "kwoknodeclasses");

/// How long to wait before each further attempt to create a Node: at first as a client retries a conflict, then patiently, as a
/// webhook that is down or a quota that is full may take a while.
const QUICK_RETRIES_MS: [u64; 3] = [10, 50, 250];
const PATIENT_RETRY: Duration = Duration::from_secs(30);
/// A claim whose node has not come by then is given up for that reason.
const GIVE_UP_AFTER: Duration = Duration::from_secs(15 * 60);

/// A thousand names are a few dozen kilobytes.
const ENDED_MAX: usize = 4_096;

/// The provider. Clones are the same one.
#[derive(Clone)]
pub struct KwokCloud(Arc<Inner>);

struct Inner {
    desk: Arc<dyn NodeDesk>,
    clock: Arc<dyn Clock>,
    types: Arc<[Arc<InstanceType>]>,
    well_known: Vec<&'static str>,
    /// Nodes that were promised and do not exist yet, by name.
    on_their_way: Mutex<BTreeMap<Text, Instance>>,
    /// Nodes that were ended lately, by name: whoever asks again need not ask the cluster.
    ended: Mutex<BTreeSet<Text>>,
}

impl KwokCloud {
    /// `types` are those of a file ([`kerf_cloud::kwok::parse`]) or [`kerf_cloud::kwok::embedded`].
    pub fn new(desk: Arc<dyn NodeDesk>, clock: Arc<dyn Clock>, types: Vec<InstanceType>) -> Self {
        let well_known = well_known(&types);
        Self(Arc::new(Inner {
            desk,
            clock,
            types: types.into_iter().map(Arc::new).collect(),
            well_known,
            on_their_way: Mutex::default(),
            ended: Mutex::default(),
        }))
    }

    async fn launch_node(self, order: Arc<LaunchOrder>) -> Result<Instance, CloudError> {
        let name = node_name(&order);
        self.ended().remove(&name);
        if let Some(promised) = self.on_their_way().get(&name) {
            return Ok(promised.clone());
        }
        let (draft, delay) = match self.prepare(&order) {
            Ok(prepared) => prepared,
            // What is forbidden now may have been done before: the node is there all the same.
            Err(refusal) => return self.existing(&name).await?.ok_or(refusal),
        };
        let instance = draft.instance(&order, self.0.clock.now().0);
        if delay.is_zero() {
            match self.0.desk.create_node(draft.object()).await {
                Ok(Created::New) => return Ok(instance),
                Ok(Created::WasThere) => return Ok(self.existing(&name).await?.unwrap_or(instance)),
                Err(error) => self.0.desk.tell(format!("creating Node {name}: {error}; will try again")),
            }
        } else if let Some(there) = self.existing(&name).await? {
            return Ok(there);
        }
        self.on_their_way().insert(name, instance.clone());
        let first_wait = delay.max(Duration::from_millis(QUICK_RETRIES_MS[0]));
        // The wait begins now, not when somebody first looks at the work.
        let first_wait = self.0.clock.sleep(first_wait);
        self.0.desk.spawn(Box::pin(self.clone().arrive(draft, first_wait)));
        Ok(instance)
    }

    /// Everything that can be said without asking the cluster: the node, and how long it takes to come.
    fn prepare(&self, order: &LaunchOrder) -> Result<(Draft, Duration), CloudError> {
        let chosen = choose(&self.0.types, order)?;
        let delay = registration_delay(order)?;
        Ok((draft(order, &chosen), delay))
    }

    async fn existing(&self, name: &Text) -> Result<Option<Instance>, CloudError> {
        Ok(self.0.desk.get_node(name).await?.as_ref().and_then(instance_of))
    }

    /// Creates a promised node after a while, unless it is not wanted any more by then.
    async fn arrive(self, draft: Draft, mut wait: Wait) {
        let desk = &self.0.desk;
        let mut first_failure_ms = None;
        let mut waits = QUICK_RETRIES_MS.into_iter().map(Duration::from_millis);
        loop {
            wait.await;
            if !self.on_their_way().contains_key(&draft.name) {
                return;
            }
            let Err(error) = desk.create_node(draft.object()).await else { break };
            let now_ms = self.0.clock.now().0;
            let first_ms = *first_failure_ms.get_or_insert(now_ms);
            if now_ms - first_ms >= GIVE_UP_AFTER.as_millis() as i64 {
                desk.tell(format!("creating Node {}: {error}; given up", draft.name));
                self.on_their_way().remove(&draft.name);
                return;
            }
            desk.tell(format!("creating Node {}: {error}; will try again", draft.name));
            wait = self.0.clock.sleep(waits.next().unwrap_or(PATIENT_RETRY));
        }
        // It may have been terminated while it was being created.
        let is_wanted = self.on_their_way().remove(&draft.name).is_some();
        if !is_wanted && let Err(error) = desk.delete_node(&draft.name).await {
            desk.tell(format!("deleting Node {}, whose claim is gone: {error}", draft.name));
        }
    }

    async fn end(self, instance: InstanceRef) -> Result<(), CloudError> {
        let gone = CloudError::NotFound { what: instance.provider_id.clone() };
        let Some(name) = instance.provider_id.strip_prefix(PROVIDER_PREFIX) else {
            return Err(gone);
        };
        self.on_their_way().remove(name);
        if self.ended().contains(name) {
            return Err(gone);
        }
        let node = self.0.desk.get_node(name).await?;
        // A registered node is on its way out when this is asked, and its claim too. One that never registered has nobody else to
        // remove it.
        if !node.as_ref().is_some_and(is_deleting) {
            if !instance.claim.as_str().is_empty() {
                self.0.desk.delete_claim(instance.claim.as_str()).await?;
            }
            if node.is_some() {
                self.0.desk.delete_node(name).await?;
            }
        }
        let mut ended = self.ended();
        if ended.len() >= ENDED_MAX {
            ended.clear();
        }
        ended.insert(name.into());
        Err(gone)
    }

    fn ended(&self) -> MutexGuard<'_, BTreeSet<Text>> {
        self.0.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn find(self, provider_id: Text) -> Result<Instance, CloudError> {
        let gone = || CloudError::NotFound { what: provider_id.clone() };
        let name = provider_id.strip_prefix(PROVIDER_PREFIX).ok_or_else(gone)?;
        if let Some(promised) = self.on_their_way().get(name) {
            return Ok(promised.clone());
        }
        let node = self.0.desk.get_node(name).await?;
        node.as_ref().and_then(instance_of).filter(|instance| !instance.is_ending).ok_or_else(gone)
    }

    async fn all(self) -> Result<Vec<Instance>, CloudError> {
        // The promised ones first: whatever arrives in between is then among the nodes.
        let promised = self.on_their_way().clone();
        let nodes = self.0.desk.list_nodes().await?;
        let mut all: BTreeMap<Text, Instance> =
            promised.into_values().map(|instance| (instance.provider_id.clone(), instance)).collect();
        all.extend(nodes.iter().filter_map(instance_of).map(|instance| (instance.provider_id.clone(), instance)));
        Ok(all.into_values().collect())
    }

    fn on_their_way(&self) -> MutexGuard<'_, BTreeMap<Text, Instance>> {
        self.0.on_their_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CloudProvider for KwokCloud {
    fn name(&self) -> &'static str {
        "kwok"
    }

    fn node_classes(&self) -> Vec<NodeClassKind> {
        vec![NODE_CLASS]
    }

    fn well_known_labels(&self) -> Vec<&'static str> {
        self.0.well_known.clone()
    }

    fn instance_types(&self, _: &TypesAsk<'_>) -> Result<Arc<[Arc<InstanceType>]>, CloudError> {
        Ok(self.0.types.clone())
    }

    fn price(&self, instance_type: &TypeName, zone: Option<&Text>, capacity_type: CapacityType) -> Option<Money> {
        price(&self.0.types, instance_type, zone, capacity_type)
    }

    fn launch(&self, order: Arc<LaunchOrder>) -> Answer<Instance> {
        Box::pin(self.clone().launch_node(order))
    }

    /// Deletes the NodeClaim itself and says that the instance is gone, so that a termination needs one call.
    fn terminate(&self, instance: InstanceRef) -> Answer<()> {
        Box::pin(self.clone().end(instance))
    }

    fn get(&self, provider_id: Text) -> Answer<Instance> {
        Box::pin(self.clone().find(provider_id))
    }

    fn list(&self) -> Answer<Vec<Instance>> {
        Box::pin(self.clone().all())
    }

    /// A new boot id is all that a restart of an object can show; one operation has one boot id, so a replay changes nothing.
    fn reboot(&self, instance: InstanceRef, operation: Text) -> Answer<()> {
        let Some(name) = instance.node_name else {
            let message = format!("NodeClaim {} has no status.nodeName: there is no Node to reboot", instance.claim);
            return Box::pin(ready(Err(CloudError::Refused { message: message.into() })));
        };
        let patch = json!({ "status": { "nodeInfo": { "bootID": format!("kwok-{operation}") } } });
        self.0.desk.patch_node_status(&name, patch)
    }

    /// The schema makes every class Ready; nobody needs to touch it.
    fn resolve_class(&self, _: Arc<Value>) -> Answer<ClassStatus> {
        Box::pin(ready(Ok(ClassStatus::default())))
    }

    fn drift(&self, _: InstanceRef, _: Arc<Value>) -> Answer<Option<Text>> {
        Box::pin(ready(Ok(None)))
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        repair_policies()
    }
}

/// The cheapest offering that suits. Types that the claim names are taken even if the requests do not fit: an overlay may have
/// given them what only the operator knows of.
pub(crate) fn choose<'a>(types: &'a [Arc<InstanceType>], order: &LaunchOrder) -> Result<Candidate<'a>, CloudError> {
    let suiting = candidates(types, order);
    let fitting = suiting.iter().find(|candidate| candidate.fits(order));
    let chosen = fitting.or_else(|| suiting.first().filter(|_| names_types(order)));
    chosen.cloned().ok_or_else(|| {
        let why = match (suiting.len(), order.avoid.len()) {
            (0, 0) => "no instance type has an offering that meets its requirements".to_owned(),
            (0, n) => format!("no offering meets its requirements beside the {n} that have no capacity now"),
            (n, _) => format!("none of the {n} offerings that meet its requirements has room for {}", order.requests),
        };
        CloudError::NoCapacity { message: format!("NodeClaim {}: {why}", order.claim).into(), sold_out: Vec::new() }
    })
}

/// From launch to Node object, as the class has it. An error when the class is missing or not ready.
pub(crate) fn registration_delay(order: &LaunchOrder) -> Result<Duration, CloudError> {
    let named = || format!("KWOKNodeClass {}", order.node_class.name);
    let Some(object) = &order.class_object else {
        let message = format!("NodeClaim {}: {} does not exist", order.claim, named());
        return Err(CloudError::NoCapacity { message: message.into(), sold_out: Vec::new() });
    };
    let not_ready = |message: String| CloudError::ClassNotReady { message: message.into() };
    let class: KwokNodeClass = serde_json::from_value((**object).clone())
        .map_err(|error| not_ready(format!("{} cannot be read: {error}", named())))?;
    let conditions = class.status.iter().flat_map(|status| &status.conditions);
    if let Some(ready) =
        conditions.into_iter().find(|condition| condition.type_ == "Ready" && condition.status == "False")
    {
        return Err(not_ready(format!("{} is not ready: {} {}", named(), ready.reason, ready.message)));
    }
    let Some(written) = &class.spec.node_registration_delay else {
        return Ok(Duration::ZERO);
    };
    let delay = written.parse().map_err(|error| not_ready(format!("{}: nodeRegistrationDelay: {error}", named())))?;
    Ok(delay.try_into().unwrap_or(Duration::ZERO))
}

pub(crate) fn price(
    types: &[Arc<InstanceType>],
    instance_type: &TypeName,
    zone: Option<&Text>,
    capacity_type: CapacityType,
) -> Option<Money> {
    let it = types.iter().find(|it| it.name == *instance_type)?;
    let sold = it.offerings.iter().filter(|offering| offering.capacity_type() == Some(capacity_type));
    sold.filter(|offering| zone.is_none() || offering.zone() == zone).map(|offering| offering.price).min()
}

pub(crate) fn repair_policies() -> Vec<RepairPolicy> {
    let seconds = Duration::from_secs;
    [
        ("Ready", "False", "", seconds(600), Duration::ZERO, RepairAction::ReplaceNode),
        ("Ready", "Unknown", ".*", seconds(600), Duration::ZERO, RepairAction::ReplaceNode),
        ("KWOKUnhealthy", "True", ".*", seconds(30), seconds(45), RepairAction::ReplaceNode),
        ("KWOKRebootRequired", "True", ".*", seconds(30), seconds(60), RepairAction::RebootNode),
    ]
    .into_iter()
    .map(|(condition, status, reason, tolerate_for, drain_within, action)| RepairPolicy {
        condition: condition.into(),
        status: status.into(),
        reason: reason.into(),
        tolerate_for,
        drain_within: Some(drain_within),
        priority: 0,
        action,
    })
    .collect()
}

/// The provider's own labels, and every key that an offering of its types has.
pub(crate) fn well_known(types: &[InstanceType]) -> Vec<&'static str> {
    let mut keys: BTreeSet<&'static str> = api_labels::KWOK_WELL_KNOWN.iter().copied().collect();
    let offered = types.iter().flat_map(|it| &it.offerings).flat_map(|offering| offering.requirements.iter());
    let offered: BTreeSet<&Text> = offered.map(|(key, _)| key).collect();
    for key in offered {
        if !keys.contains(&**key) {
            // A file is read once in the life of a process and has a handful of keys: they may stay for good.
            keys.insert(Box::leak(key.to_string().into_boxed_str()));
        }
    }
    keys.into_iter().collect()
}

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod tests;
