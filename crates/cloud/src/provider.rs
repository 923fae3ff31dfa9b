//! The socket itself: what the operator asks of any cloud, and what it is answered.
//!
//! ```text
//! operator ── instance_types ──▶ what can be bought now (sync, from what the provider already knows)
//!          ── launch ──────────▶ one instance for one claim; offerings that ran dry are named, in success and in failure
//!          ── terminate, get, list, reboot, resolve_class, drift
//! ```
//!
//! The trait is shaped by what a real cloud does: a fleet answers in part, reads lag behind writes, stock runs out per offering,
//! the same request may arrive twice. Nothing here knows pods, watches or an SDK.

use crate::overlay::Overlay;
use kerf_model::{
    CapacityType, ClaimName, InstanceType, Labels, Money, NodeClassRef, PoolName, Requirements, Resources, Taint, Text,
    TypeName,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// What a provider answers, sooner or later.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T, CloudError>> + Send>>;

/// One cloud.
pub trait CloudProvider: Send + Sync {
    /// As metrics name it: `aws`, `kwok`.
    fn name(&self) -> &'static str;

    /// The node classes it serves; the first is the default.
    fn node_classes(&self) -> Vec<NodeClassKind>;

    /// Labels that its nodes carry beside the well-known ones of Kubernetes: pods may select by them.
    fn well_known_labels(&self) -> Vec<&'static str>;

    /// Everything a pool can buy, even types without an available offering. Answers at once from what is known: a provider
    /// refreshes what it knows by itself. None: nothing is known yet.
    fn instance_types(&self, ask: &TypesAsk<'_>) -> Result<Arc<[Arc<InstanceType>]>, CloudError>;

    /// The overlays that are in force from now on, all of them. Types are answered without them, since the operator lays them over;
    /// a launch ranks by them, and a type that no price list has may get its price from one.
    fn set_overlays(&self, _in_force: Vec<Overlay>) {}

    /// The price of a machine that belongs to no pool of ours.
    fn price(&self, instance_type: &TypeName, zone: Option<&Text>, capacity_type: CapacityType) -> Option<Money>;

    /// Launches one instance for a claim. Asked again for the same claim it answers with the same instance: after a crash
    /// nobody knows whether the first question arrived.
    fn launch(&self, order: Arc<LaunchOrder>) -> Answer<Instance>;

    /// Ends an instance. `Ok` means begun; [`CloudError::NotFound`] means that it is gone.
    fn terminate(&self, instance: InstanceRef) -> Answer<()>;

    fn get(&self, provider_id: Text) -> Answer<Instance>;

    /// Every instance of ours. Those that are ending say so.
    fn list(&self) -> Answer<Vec<Instance>>;

    /// Restarts an instance in place. Asked twice under one `operation`, it restarts once.
    fn reboot(&self, instance: InstanceRef, operation: Text) -> Answer<()>;

    /// Looks up what a node class names (subnets, images…) and says what its status should be.
    fn resolve_class(&self, class: Arc<Value>) -> Answer<ClassStatus>;

    /// Whether an instance is no longer what its class describes, in one word.
    fn drift(&self, instance: InstanceRef, class: Arc<Value>) -> Answer<Option<Text>>;

    /// Conditions of nodes that mean that the machine is broken. Read once, at start.
    fn repair_policies(&self) -> Vec<RepairPolicy>;

    /// Writes the names of node and claim onto the instance, for people who look for it in the cloud's own console. Answers
    /// with annotations for the claim, which say that it is done.
    fn label_instance(&self, _instance: InstanceRef) -> Answer<BTreeMap<Text, Text>> {
        unsupported("labelling instances")
    }

    /// Labels that it leaves empty at a launch when only the running machine will show them. [`CloudProvider::get`] tells them then;
    /// until that is so, the machine's node is not registered.
    fn late_labels(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// The annotations that [`CloudProvider::label_instance`] answers with, so that a claim that has them need not be asked about.
    fn labelling_marks(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Waits a while for what the cloud is about to do to instances. The same notice may come twice, and comes again until it
    /// is acknowledged.
    fn notices(&self) -> Answer<Vec<Notice>> {
        unsupported("notices of interruption")
    }

    /// Has been dealt with: do not tell again. Where the cloud waits for leave to go on, it has it now.
    fn acknowledge(&self, _receipts: Vec<Text>) -> Answer<()> {
        unsupported("notices of interruption")
    }

    /// A class is being deleted and no claim uses it any more: removes what was made for it.
    fn end_class(&self, _class: Arc<Value>) -> Answer<()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// What the provider wants to be called for now and then, beside what the operator asks.
    fn chores(&self) -> Vec<Chore> {
        Vec::new()
    }

    fn run_chore(&self, _name: &'static str, _in_use: Arc<InUse>) -> Answer<ChoreReport> {
        unsupported("chores")
    }

    /// Whether a person has taken an instance over, so that it is no longer the operator's to drain or end. None: here that does not
    /// happen.
    fn released(&self, _provider_id: Text) -> Option<Answer<bool>> {
        None
    }

    /// A node has registered with what it really has: the provider may know better from now on.
    fn learn(&self, _node: &NodeSeen<'_>) {}

    /// The cloud takes the machine of a claim with these labels back: its offering or reservation has nothing to give for now.
    fn taken_back(&self, _labels: &Labels) {}
}

fn unsupported<T: Send + 'static>(what: &str) -> Answer<T> {
    Box::pin(std::future::ready(Err(CloudError::Unsupported { what: what.into() })))
}

/// Something that the cloud is about to do to instances, or has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// For [`CloudProvider::acknowledge`].
    pub receipt: Text,
    /// The same for every copy of one notice.
    pub id: Text,
    pub kind: NoticeKind,
    /// As they stand in provider ids: `i-0123`. May be instances of others.
    pub instances: Vec<Text>,
    pub happened_ms: i64,
    /// By when the machine is gone, where the cloud says so.
    pub until_ms: Option<i64>,
    /// In words, for logs: what the cloud said beyond the kind.
    pub detail: Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoticeKind {
    SpotInterrupted,
    CapacityReservationInterrupted,
    RebalanceRecommendation,
    ScheduledChange,
    InstanceStopped,
    InstanceTerminated,
    /// An Auto Scaling group waits for leave to end an instance of its own.
    LifecycleAction,
    /// An Auto Scaling group waits for leave to put an instance into service. Comes again until its node is ready.
    LaunchLifecycleAction,
    /// Nothing that concerns us.
    NoOp,
}

impl NoticeKind {
    /// As metrics and reasons name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SpotInterrupted => "spot_interrupted",
            Self::CapacityReservationInterrupted => "capacity_reservation_interrupted",
            Self::RebalanceRecommendation => "rebalance_recommendation",
            Self::ScheduledChange => "scheduled_change",
            Self::InstanceStopped => "instance_stopped",
            Self::InstanceTerminated => "instance_terminated",
            Self::LifecycleAction => "lifecycle_action",
            Self::LaunchLifecycleAction => "launch_lifecycle_action",
            Self::NoOp => "no_op",
        }
    }
}

/// Work of the provider's own that comes round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chore {
    /// As logs and metrics name its controller: `providers.pricing`.
    pub name: &'static str,
    /// After a success; a failure is tried again with growing patience. A report may ask for another span.
    pub every: Duration,
    /// Whether the first run comes at once rather than after `every`.
    pub at_start: bool,
    /// Whether it ends or deletes what nobody in the cluster seems to use. It is not called for while the cluster is not known well
    /// enough for that.
    pub collects: bool,
}

/// What the cluster uses, as a chore may need to know.
#[derive(Debug, Clone, Default)]
pub struct InUse {
    /// Whole objects.
    pub classes: Vec<Arc<Value>>,
    pub claims: Vec<ClaimInUse>,
    pub pools: Vec<PoolInUse>,
}

#[derive(Debug, Clone)]
pub struct ClaimInUse {
    pub name: ClaimName,
    pub provider_id: Option<Text>,
    pub node_class: NodeClassRef,
    pub labels: Labels,
    pub annotations: BTreeMap<Text, Text>,
    pub is_deleting: bool,
}

#[derive(Debug, Clone)]
pub struct PoolInUse {
    pub name: PoolName,
    pub node_class: NodeClassRef,
    pub labels: Labels,
    pub requirements: Requirements,
}

#[derive(Debug, Clone, Default)]
pub struct ChoreReport {
    pub again_after: Option<Duration>,
    pub asks: Vec<ChoreAsk>,
    pub samples: Vec<Sample>,
}

/// What a chore asks of the operator, which alone changes the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChoreAsk {
    /// End a claim; `by_force` does not wait for disruption budgets of pods or for volumes.
    EndClaim { claim: ClaimName, reason: Text, message: Text, by_force: bool },
    /// Labels of a claim and its node that are true now; None takes one away.
    Relabel { claim: ClaimName, labels: BTreeMap<Text, Option<Text>> },
    /// End an instance that no claim knows: its Node first, which drains it, and then the machine, unless that is ending already.
    EndMachine { provider_id: Text, is_ending: bool },
    /// An event on a pool.
    TellPool { pool: PoolName, is_warning: bool, reason: Text, message: Text },
}

/// A figure for the metrics page: family, labels in the family's order, value.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub family: &'static str,
    pub labels: Vec<Text>,
    pub value: f64,
}

/// What a node that registered says of itself.
#[derive(Debug, Clone, Copy)]
pub struct NodeSeen<'a> {
    pub instance_type: &'a str,
    pub image_id: &'a str,
    pub class_object: &'a Value,
    pub capacity: &'a Resources,
}

/// A kind of node class, as the API server serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeClassKind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    /// Keeps a class until what was made for it in the cloud is gone; None where nothing is made.
    pub finalizer: Option<&'static str>,
    /// Annotations of class and claim that hold the hash and the version of hashing; None where classes are not hashed.
    pub hash: Option<(&'static str, &'static str)>,
}

impl NodeClassKind {
    /// A kind for which nothing is made in the cloud, and which is not hashed.
    pub const fn plain(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str) -> Self {
        Self { group, version, kind, plural, finalizer: None, hash: None }
    }

    pub fn is(&self, reference: &NodeClassRef) -> bool {
        *reference.group == *self.group && *reference.kind == *self.kind
    }
}

/// A pool that wants to know what it can buy.
#[derive(Debug, Clone)]
pub struct TypesAsk<'a> {
    pub pool: &'a PoolName,
    pub labels: &'a Labels,
    pub requirements: &'a Requirements,
    pub node_class: &'a NodeClassRef,
    /// The whole object, where it is known.
    pub class_object: Option<&'a Value>,
}

/// A node to buy, as the cloud sees it.
#[derive(Debug, Clone)]
pub struct LaunchOrder {
    pub claim: ClaimName,
    /// The claim's uid: with the name it makes a request recognisable.
    pub uid: Text,
    /// None for a claim that a person made.
    pub pool: Option<PoolName>,
    pub node_class: NodeClassRef,
    /// The whole object; None when there is none of that name.
    pub class_object: Option<Arc<Value>>,
    /// Of the claim, instance types and capacity types included.
    pub requirements: Requirements,
    pub requests: Resources,
    pub labels: Labels,
    pub annotations: BTreeMap<Text, Text>,
    pub taints: Vec<Taint>,
    pub startup_taints: Vec<Taint>,
    /// Offerings that the operator has given up for now; the provider does not try them.
    pub avoid: Vec<OfferingKey>,
}

/// One way to buy one type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfferingKey {
    pub instance_type: TypeName,
    pub zone: Text,
    pub capacity_type: CapacityType,
}

impl fmt::Display for OfferingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.instance_type, self.zone, self.capacity_type.as_str())
    }
}

/// Which instance, and whose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceRef {
    pub provider_id: Text,
    pub claim: ClaimName,
    pub node_name: Option<Text>,
}

/// What the cloud knows of an instance.
#[derive(Debug, Clone, Default)]
pub struct Instance {
    pub provider_id: Text,
    pub image_id: Text,
    /// Empty where the cloud does not know whom it was bought for.
    pub claim: Text,
    /// Go onto the claim unless it has its own.
    pub labels: Arc<Labels>,
    /// Go onto the claim in place of its own.
    pub annotations: BTreeMap<Text, Text>,
    pub capacity: Arc<Resources>,
    pub allocatable: Arc<Resources>,
    pub is_ending: bool,
    /// Offerings that were tried on the way and had nothing left.
    pub sold_out: Vec<OfferingKey>,
    pub created_ms: i64,
}

/// What a node class's status should be.
#[derive(Debug, Clone, Default)]
pub struct ClassStatus {
    /// A merge patch of `status`; null leaves it alone.
    pub status: Value,
    /// Annotations to set (hashes).
    pub annotations: BTreeMap<Text, Text>,
    /// Look again after this long.
    pub again_after: Option<Duration>,
}

#[cfg(any(test, feature = "testing"))]
impl ClassStatus {
    /// What the operator makes of it, for tests that have none: the class as it is stored afterwards.
    pub fn write_into(&self, class: &mut Value) {
        for (field, value) in self.status.as_object().into_iter().flatten() {
            class["status"][field] = value.clone();
        }
        for (key, value) in &self.annotations {
            class["metadata"]["annotations"][&**key] = Value::from(&**value);
        }
    }
}

/// A condition of a node that calls for repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairPolicy {
    pub condition: Text,
    pub status: Text,
    /// A regular expression; empty for the fallback of the set.
    pub reason: Text,
    pub tolerate_for: Duration,
    /// None: the claim's own terminationGracePeriod. Zero: by force.
    pub drain_within: Option<Duration>,
    pub priority: u8,
    pub action: RepairAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RepairAction {
    RebootNode,
    ReplaceNode,
}

/// Named for what the caller should do next.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CloudError {
    /// Give the claim up; the pods will ask again.
    #[error("{message}")]
    NoCapacity { message: Text, sold_out: Vec<OfferingKey> },
    /// Give the claim up until its class is ready.
    #[error("{message}")]
    ClassNotReady { message: Text },
    /// Try again; the claim's status says why it waits.
    #[error("{message}")]
    LaunchFailed { reason: Text, message: Text },
    /// Try again later, and slower.
    #[error("asked to slow down: {message}")]
    Throttled { message: Text, retry_after: Duration },
    /// It is not there (any more).
    #[error("{what} was not found")]
    NotFound { what: Text },
    /// Do without.
    #[error("{what} is not supported here")]
    Unsupported { what: Text },
    /// Nobody was asked, and nothing happened: who ordered it may not act any longer.
    #[error("{why}")]
    NotAsked { why: Text },
    /// Will not get better by asking again.
    #[error("{message}")]
    Refused { message: Text },
    /// Try again.
    #[error("{message}")]
    Other { message: Text },
}

impl CloudError {
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// As the `error` label of `karpenter_cloudprovider_errors_total` says it.
    pub fn class(&self) -> &'static str {
        match self {
            Self::NoCapacity { .. } => "InsufficientCapacityError",
            Self::ClassNotReady { .. } => "NodeClassNotReadyError",
            Self::NotFound { .. } => "NodeClaimNotFoundError",
            _ => "unknown",
        }
    }
}
