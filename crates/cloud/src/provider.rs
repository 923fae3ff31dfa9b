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
}

/// A kind of node class, as the API server serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeClassKind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
}

impl NodeClassKind {
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
    pub labels: Labels,
    /// Go onto the claim in place of its own.
    pub annotations: BTreeMap<Text, Text>,
    pub capacity: Resources,
    pub allocatable: Resources,
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
