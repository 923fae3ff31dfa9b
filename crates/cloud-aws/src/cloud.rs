//! The plug itself: the operator's questions, and who in this room answers them.
//!
//! ```text
//! instance_types, price, learn ── supply        resolve_class, drift, end_class ── classes
//! launch ── launcher (once per claim)           get, list, terminate, tag, reboot ── instances
//! notices, acknowledge ── interruption          chores ── cloud::chores
//! ```
//!
//! What is remembered here is which claim was launched as what, so that asking twice buys once. After a restart that memory is
//! gone: what was launched just before the crash is found by its tags (`launch::trace`), and an instance that no claim knows is
//! ended by the collection of garbage.

mod chores;

use crate::advice::{OptionalCalls, Scope};
use crate::chores::status::StatusChecks;
use crate::chores::zonal_shift::ZonalShifts;
use crate::classes::{ApiServer, Classes, NODE_CLASS, drift};
use crate::instances::{Instances, as_instance, is_released};
use crate::interruption::Queue;
use crate::launch::{Launched, Launcher, Parts, Subnets};
use crate::settings::{ClusterFacts, Settings};
use crate::supply::Supply;
use crate::tally::Tally;
use crate::templates::Templates;
use crate::wire::{Aws, Ec2Instance, Failure};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use kerf_api::{AmiFamily, CustomObject, Ec2NodeClass, hash, labels as api_labels};
use kerf_cloud::clock::Clock;
use kerf_cloud::overlay::Overlay;
use kerf_cloud::{
    Answer, Chore, ChoreReport, ClassStatus, CloudError, CloudProvider, InUse, Instance, InstanceRef, LaunchOrder,
    NodeClassKind, NodeSeen, Notice, RepairAction, RepairPolicy, TypesAsk,
};
use kerf_model::{CapacityType, InstanceType, Labels, Money, Text, TypeName};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Reads may lag behind a launch this long; what is not listed after it is gone.
const LAUNCH_REMEMBERED_MS: i64 = 300_000;

/// EC2, as the operator sees it.
pub struct AwsCloud(Arc<Inner>);

struct Inner {
    wire: Arc<dyn Aws>,
    settings: Arc<Settings>,
    clock: Arc<dyn Clock>,
    supply: Arc<Supply>,
    classes: Classes,
    templates: Arc<Templates>,
    instances: Instances,
    launcher: Launcher,
    optional: Arc<OptionalCalls>,
    tally: Arc<Tally>,
    queue: Option<Queue>,
    checks: StatusChecks,
    shifts: ZonalShifts,
    /// By the claim's uid.
    launches: Mutex<BTreeMap<Text, Launch>>,
    /// By name, as last seen: instances are described by what their class makes of their type.
    class_objects: Mutex<BTreeMap<Text, Arc<Ec2NodeClass>>>,
    are_templates_known: AtomicBool,
    n_collections: AtomicU32,
    cluster_arn: Mutex<Option<String>>,
    service_cidr: Mutex<Option<String>>,
}

/// What is missing for a start, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct NotStarted {
    what: &'static str,
    source: Failure,
}

type Launching = Shared<BoxFuture<'static, Result<Instance, CloudError>>>;

enum Launch {
    /// Whoever asks again waits for the same answer.
    UnderWay(Launching),
    Done(Box<Instance>),
}

impl AwsCloud {
    /// The Kubernetes version is that of the settings, or what EKS says if they want that.
    pub fn new(wire: Arc<dyn Aws>, settings: Settings, clock: Arc<dyn Clock>) -> Arc<Self> {
        Self::beside(None, wire, settings, clock)
    }

    /// One that follows the version of an API server.
    pub fn beside(
        api_server: Option<Arc<dyn ApiServer>>,
        wire: Arc<dyn Aws>,
        settings: Settings,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        let settings = Arc::new(settings);
        let queue = settings.interruption_queue.as_deref().filter(|name| !name.is_empty());
        let scope = Scope::new(&settings.region, None, &settings.cluster_name, queue);
        let parts = Parts {
            supply: Arc::new(Supply::new(settings.clone(), clock.clone())),
            templates: Arc::new(Templates::new(settings.clone(), clock.clone())),
            optional: Arc::new(OptionalCalls::new(scope)),
            tally: Arc::default(),
            wire,
            settings,
            clock,
        };
        let subnets = Arc::new(Subnets::new(parts.clock.clone(), parts.settings.subnet_refresh));
        let launcher = Launcher::new(&parts, subnets.clone());
        let classes =
            Classes::new(parts.settings.clone(), parts.clock.clone(), parts.supply.clone(), parts.optional.clone());
        let queue = parts.settings.interruption_queue.as_deref().filter(|name| !name.is_empty());
        Arc::new(Self(Arc::new(Inner {
            queue: queue.map(|name| Queue::new(name, &parts.settings.region)),
            classes: classes.telling_subnets(move |found| subnets.refreshed(found)).asking(api_server),
            instances: Instances::new(
                parts.wire.clone(),
                parts.settings.clone(),
                parts.clock.clone(),
                parts.tally.clone(),
            ),
            launcher,
            wire: parts.wire,
            settings: parts.settings,
            clock: parts.clock,
            supply: parts.supply,
            templates: parts.templates,
            optional: parts.optional,
            tally: parts.tally,
            checks: StatusChecks::default(),
            shifts: ZonalShifts::default(),
            launches: Mutex::default(),
            class_objects: Mutex::default(),
            are_templates_known: AtomicBool::new(false),
            n_collections: AtomicU32::new(0),
            cluster_arn: Mutex::default(),
            service_cidr: Mutex::default(),
        })))
    }

    /// What must work before anything else does: EC2 answers, the cluster is known, and so are the instance types.
    ///
    /// Errors say which call failed; the operator should not start without.
    pub async fn start(&self) -> Result<(), NotStarted> {
        let inner = &self.0;
        let failed = |what: &'static str| move |source: Failure| NotStarted { what, source };
        match inner.wire.describe_instance_types(true).await {
            Err(failure) if !failure.is_dry_run_passed() && !failure.is_throttled() => {
                return Err(failed("EC2 cannot be reached")(failure));
            }
            _ => {}
        }
        let about = "the cluster's endpoint is not known (set CLUSTER_ENDPOINT, or allow eks:DescribeCluster)";
        inner.classes.discover(&*inner.wire).await.map_err(failed(about))?;
        inner.supply.refresh_types(&*inner.wire).await.map_err(failed("instance types are not known"))
    }

    /// Features that are off because AWS denies their calls, for those who check an installation.
    pub fn optional(&self) -> &OptionalCalls {
        &self.0.optional
    }
}

impl Inner {
    /// Launches, once for each claim, whoever asks how often.
    fn launch(self: &Arc<Self>, order: Arc<LaunchOrder>) -> Answer<Instance> {
        let mut launches = self.launches();
        match launches.get(&order.uid) {
            Some(Launch::Done(instance)) => return std::future::ready(Ok((**instance).clone())).boxed(),
            Some(Launch::UnderWay(launching)) => return launching.clone().boxed(),
            None => {}
        }
        let uid = order.uid.clone();
        let launching = self.clone().launch_now(order).boxed().shared();
        launches.insert(uid, Launch::UnderWay(launching.clone()));
        launching.boxed()
    }

    async fn launch_now(self: Arc<Self>, order: Arc<LaunchOrder>) -> Result<Instance, CloudError> {
        let cluster = self.cluster(&order).await;
        let answer = self.launcher.launch(&order, cluster.as_ref()).await;
        let answer = answer.map(|launched| self.bought(&order, launched));
        let mut launches = self.launches();
        match &answer {
            Ok(instance) => {
                // Told once: who asks again wants to know what it got, not what was dry then.
                let kept = Instance { sold_out: Vec::new(), ..instance.clone() };
                launches.insert(order.uid.clone(), Launch::Done(Box::new(kept)));
            }
            Err(_) => drop(launches.remove(&order.uid)),
        }
        answer
    }

    /// What nodes need to know of their cluster. After a restart claims may be launched before their class has been looked at, so
    /// what that would have found out is asked here.
    async fn cluster(&self, order: &LaunchOrder) -> Option<ClusterFacts> {
        let known = self.classes.cluster();
        let mut facts = match known {
            Some(facts) => facts,
            None => self.classes.discover(&*self.wire).await.ok()?,
        };
        let class = order.class_object.as_deref().and_then(|object| read(object).ok());
        let needs_services = class.is_some_and(|class| class.resolved_ami_family() == AmiFamily::Al2023);
        if needs_services && facts.service_cidr.is_none() {
            let known = self.service_cidr.lock().unwrap_or_else(PoisonError::into_inner).clone();
            facts.service_cidr = match known {
                Some(cidr) => Some(cidr),
                // Without an answer the template says what is missing.
                None => {
                    let asked = self.wire.describe_cluster(self.settings.cluster_name.clone()).await.ok();
                    asked.and_then(|cluster| cluster.service_ipv4_cidr.or(cluster.service_ipv6_cidr))
                }
            };
            *self.service_cidr.lock().unwrap_or_else(PoisonError::into_inner) = facts.service_cidr.clone();
        }
        Some(facts)
    }

    fn bought(&self, order: &LaunchOrder, launched: Launched) -> Instance {
        let Launched { ec2, it, class, sold_out } = launched;
        self.instances.bought(&ec2.id, &order.claim.0);
        self.class_objects().insert(order.node_class.name.clone(), class.clone());
        let mut instance = as_instance(&ec2, Some(&it), order.claim.0.clone(), &self.settings);
        instance.sold_out = sold_out;
        instance.annotations = BTreeMap::from([
            (api_labels::EC2_NODE_CLASS_HASH.into(), self.hash(&class)),
            (api_labels::EC2_NODE_CLASS_HASH_VERSION.into(), Text::from(hash::EC2_NODE_CLASS_HASH_VERSION)),
        ]);
        let profile = class.status.as_ref().and_then(|status| status.instance_profile.as_deref());
        if let Some(profile) = profile {
            instance.annotations.insert(api_labels::INSTANCE_PROFILE_NAME.into(), profile.into());
        }
        instance
    }

    fn hash(&self, class: &Ec2NodeClass) -> Text {
        let known = self.classes.cluster().map(|cluster| cluster.ca_bundle).unwrap_or_default();
        let ca_bundle =
            if self.settings.cluster_ca_bundle.is_empty() { known } else { self.settings.cluster_ca_bundle.clone() };
        class.hash(Some(&ca_bundle)).into()
    }

    async fn find(&self, provider_id: &str) -> Result<Instance, CloudError> {
        let ec2 = self.instances.find(provider_id).await?;
        Ok(self.describe(&ec2, &mut BTreeMap::new()))
    }

    async fn list(&self) -> Result<Vec<Instance>, CloudError> {
        let listed = self.instances.list().await?;
        let mut types = BTreeMap::new();
        let out: Vec<Instance> = listed.iter().map(|ec2| self.describe(ec2, &mut types)).collect();
        let now_ms = self.clock.now().0;
        self.launches().retain(|_, launch| match launch {
            Launch::UnderWay(_) => true,
            Launch::Done(instance) => {
                let is_there = out.iter().any(|listed| listed.provider_id == instance.provider_id);
                is_there || now_ms - instance.created_ms < LAUNCH_REMEMBERED_MS
            }
        });
        Ok(out)
    }

    /// With what its class makes of its type, where both are known. `types` keeps what was looked up, by class.
    fn describe(&self, ec2: &Ec2Instance, types: &mut BTreeMap<String, Option<Arc<[Arc<InstanceType>]>>>) -> Instance {
        let class = ec2.tags.get(api_labels::EC2_NODE_CLASS).cloned().unwrap_or_default();
        let of_class = types.entry(class).or_insert_with_key(|name| {
            let class = self.class_objects().get(name.as_str()).cloned()?;
            self.supply.instance_types(&class).ok()
        });
        let it = of_class.as_ref().and_then(|types| types.iter().find(|it| it.name.as_str() == ec2.instance_type));
        as_instance(ec2, it.map(|it| &**it), self.instances.claim_of(ec2), &self.settings)
    }

    async fn terminate(&self, instance: &InstanceRef) -> Result<(), CloudError> {
        let reservation = self.instances.reservation_of(&instance.provider_id);
        let answer = self.instances.end(&instance.provider_id).await;
        if answer.as_ref().is_err_and(CloudError::is_not_found) {
            self.launches().retain(
                |_, launch| !matches!(launch, Launch::Done(launched) if launched.provider_id == instance.provider_id),
            );
            if let Some(id) = reservation {
                self.supply.reservations().ended(&id);
            }
        }
        answer
    }

    async fn drift(&self, instance: &InstanceRef, class: &Value) -> Result<Option<Text>, CloudError> {
        let class = read(class)?;
        let seen = self.instances.recall(&instance.provider_id).await?;
        // A reservation can leave a running instance, which only EC2 knows; and what was just launched has no groups yet.
        let seen = match seen.reservation_id.is_some() || seen.security_group_ids.is_empty() {
            true => self.instances.find(&instance.provider_id).await?,
            false => seen,
        };
        let types = self.supply.instance_types(&class)?;
        let it = types.iter().find(|it| it.name.as_str() == seen.instance_type).ok_or_else(|| {
            let message = format!("instance {} is a {}, which EC2 no longer lists", seen.id, seen.instance_type);
            CloudError::Other { message: message.into() }
        })?;
        let group = self.supply.placement_group(&class);
        let annotations = self.annotations_of(&instance.provider_id);
        let subject = drift::Subject {
            instance: &seen,
            instance_type: it,
            annotations: &annotations,
            placement_group_id: group.as_ref().map(|group| group.id.as_str()),
            has_reserved_capacity: self.settings.has_reserved_capacity,
        };
        drift::drift(&subject, &class)
    }

    /// What the claim of an instance was told at its launch, as long as that is remembered.
    fn annotations_of(&self, provider_id: &str) -> BTreeMap<Text, Text> {
        let launches = self.launches();
        let launched = launches.values().find_map(|launch| match launch {
            Launch::Done(instance) if *instance.provider_id == *provider_id => Some(instance.annotations.clone()),
            _ => None,
        });
        launched.unwrap_or_default()
    }

    /// What to call a failure of a chore.
    fn chore_failed(failure: &Failure) -> CloudError {
        let message: Text = failure.to_string().into();
        match failure.is_throttled() {
            true => CloudError::Throttled { message, retry_after: Duration::from_secs(5) },
            false => CloudError::Other { message },
        }
    }

    fn launches(&self) -> MutexGuard<'_, BTreeMap<Text, Launch>> {
        self.launches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn class_objects(&self) -> MutexGuard<'_, BTreeMap<Text, Arc<Ec2NodeClass>>> {
        self.class_objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(class: &Value) -> Result<Ec2NodeClass, CloudError> {
    let mut read: Ec2NodeClass = serde_json::from_value(class.clone()).map_err(|error| {
        let name = class["metadata"]["name"].as_str().unwrap_or_default();
        CloudError::Refused { message: format!("EC2NodeClass {name} cannot be read: {error}").into() }
    })?;
    read.apply_defaults();
    Ok(read)
}

impl CloudProvider for AwsCloud {
    fn name(&self) -> &'static str {
        "aws"
    }

    fn node_classes(&self) -> Vec<NodeClassKind> {
        vec![NODE_CLASS]
    }

    fn well_known_labels(&self) -> Vec<&'static str> {
        api_labels::AWS_WELL_KNOWN.to_vec()
    }

    fn late_labels(&self) -> Vec<&'static str> {
        vec![api_labels::PLACEMENT_GROUP_PARTITION]
    }

    fn instance_types(&self, ask: &TypesAsk<'_>) -> Result<Arc<[Arc<InstanceType>]>, CloudError> {
        let Some(object) = ask.class_object else {
            let message = format!("EC2NodeClass {} does not exist", ask.node_class.name);
            return Err(CloudError::Other { message: message.into() });
        };
        let class = Arc::new(read(object)?);
        let types = self.0.supply.instance_types(&class)?;
        self.0.class_objects().insert(ask.node_class.name.clone(), class);
        self.0.launcher.overlaid().saw(ask.pool, ask.labels);
        Ok(types)
    }

    fn set_overlays(&self, in_force: Vec<Overlay>) {
        self.0.supply.set_stated_prices(&in_force);
        self.0.launcher.overlaid().set(in_force);
    }

    fn price(&self, instance_type: &TypeName, zone: Option<&Text>, capacity_type: CapacityType) -> Option<Money> {
        self.0.supply.price(instance_type.as_str(), zone.map(|zone| &**zone), capacity_type)
    }

    fn launch(&self, order: Arc<LaunchOrder>) -> Answer<Instance> {
        self.0.launch(order)
    }

    fn terminate(&self, instance: InstanceRef) -> Answer<()> {
        let inner = self.0.clone();
        Box::pin(async move { inner.terminate(&instance).await })
    }

    fn get(&self, provider_id: Text) -> Answer<Instance> {
        let inner = self.0.clone();
        Box::pin(async move { inner.find(&provider_id).await })
    }

    fn list(&self) -> Answer<Vec<Instance>> {
        let inner = self.0.clone();
        Box::pin(async move { inner.list().await })
    }

    fn reboot(&self, instance: InstanceRef, operation: Text) -> Answer<()> {
        let inner = self.0.clone();
        Box::pin(async move { inner.instances.restart(&instance.provider_id, operation).await })
    }

    fn resolve_class(&self, class: Arc<Value>) -> Answer<ClassStatus> {
        let inner = self.0.clone();
        Box::pin(async move { inner.classes.resolve(&*inner.wire, &class, &inner.templates).await })
    }

    fn drift(&self, instance: InstanceRef, class: Arc<Value>) -> Answer<Option<Text>> {
        let inner = self.0.clone();
        Box::pin(async move { inner.drift(&instance, &class).await })
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        let rows = [
            ("Ready", "False", "", 30),
            ("Ready", "Unknown", ".*", 30),
            ("AcceleratedHardwareReady", "False", ".*", 10),
            ("StorageReady", "False", ".*", 30),
            ("NetworkingReady", "False", ".*", 30),
            ("KernelReady", "False", ".*", 30),
            ("ContainerRuntimeReady", "False", ".*", 30),
        ];
        let policy = |(condition, status, reason, minutes): (&str, &str, &str, u64)| RepairPolicy {
            condition: condition.into(),
            status: status.into(),
            reason: reason.into(),
            tolerate_for: Duration::from_secs(minutes * 60),
            drain_within: Some(Duration::ZERO),
            priority: 0,
            action: RepairAction::ReplaceNode,
        };
        rows.into_iter().map(policy).collect()
    }

    fn label_instance(&self, instance: InstanceRef) -> Answer<BTreeMap<Text, Text>> {
        let inner = self.0.clone();
        Box::pin(async move { inner.instances.tag(&instance).await })
    }

    fn labelling_marks(&self) -> Vec<&'static str> {
        vec![api_labels::TAGGED, api_labels::CLUSTER_NAME_TAGGED]
    }

    fn released(&self, provider_id: Text) -> Option<Answer<bool>> {
        let inner = self.0.clone();
        Some(Box::pin(async move { Ok(is_released(&inner.instances.find(&provider_id).await?)) }))
    }

    fn notices(&self) -> Answer<Vec<Notice>> {
        let inner = self.0.clone();
        Box::pin(async move {
            match &inner.queue {
                Some(queue) => queue.notices(&*inner.wire).await,
                None => Err(CloudError::Unsupported { what: "notices of interruption without a queue".into() }),
            }
        })
    }

    fn acknowledge(&self, receipts: Vec<Text>) -> Answer<()> {
        let inner = self.0.clone();
        Box::pin(async move {
            match &inner.queue {
                Some(queue) => queue.acknowledge(&*inner.wire, receipts).await,
                None => Err(CloudError::Unsupported { what: "notices of interruption without a queue".into() }),
            }
        })
    }

    fn end_class(&self, class: Arc<Value>) -> Answer<()> {
        let inner = self.0.clone();
        Box::pin(async move {
            inner.classes.end(&*inner.wire, &class, &inner.templates).await?;
            if let Some(name) = class["metadata"]["name"].as_str() {
                inner.class_objects().remove(name);
            }
            Ok(())
        })
    }

    fn chores(&self) -> Vec<Chore> {
        chores::list(&self.0.settings)
    }

    fn run_chore(&self, name: &'static str, in_use: Arc<InUse>) -> Answer<ChoreReport> {
        let inner = self.0.clone();
        Box::pin(async move { inner.run_chore(name, &in_use).await })
    }

    fn learn(&self, node: &NodeSeen<'_>) {
        self.0.supply.learn(node);
    }

    fn taken_back(&self, labels: &Labels) {
        let label = |key: &str| labels.get(key).map(|value| &**value);
        match label(api_labels::CAPACITY_TYPE).and_then(CapacityType::parse) {
            Some(CapacityType::Reserved) => {
                if let Some(id) = label(api_labels::CAPACITY_RESERVATION_ID) {
                    self.0.supply.reservations().exhausted(id);
                }
            }
            Some(kind) => {
                if let (Some(instance_type), Some(zone)) = (label(api_labels::INSTANCE_TYPE), label(api_labels::ZONE)) {
                    self.0.supply.unavailable().mark(kind, instance_type, zone, None);
                }
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;
