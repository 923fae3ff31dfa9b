//! Instances that there are: found, listed, tagged, restarted and ended.
//!
//! ```text
//! find, end ── batched ──▶ one call for many; what the answer leaves out is asked for alone
//! list      ── by tags ──▶ every instance of this cluster's pools, and nobody else's
//! ```
//!
//! Ours is what carries the tags of the contract. An instance whose pool tag a person removed is released: it is not listed, and
//! not ended. What is absent: what an instance means to a claim, which `mapping` makes of it.

mod mapping;

pub use mapping::{as_instance, is_ending};

use crate::batch::{Batcher, Run, Windows};
use crate::settings::Settings;
use crate::tally::Tally;
use crate::wire::{Aws, Ec2Instance, Failure, Filter, InstanceQuery, InstanceStateChange, Tags};
use futures_util::FutureExt;
use futures_util::future::join_all;
use kerf_api::labels as api_labels;
use kerf_cloud::clock::Clock;
use kerf_cloud::{CloudError, InstanceRef};
use kerf_model::Text;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const WINDOWS: Windows =
    Windows { idle: Duration::from_millis(100), max: Duration::from_millis(1_000), items_max: 500 };

/// A terminated instance is as good as gone, so nobody asks for it.
const STATES: [&str; 5] = ["pending", "running", "stopping", "stopped", "shutting-down"];
pub(crate) const CLAIM_TAG: &str = "karpenter.sh/nodeclaim";
pub(crate) const CLUSTER_TAG: &str = "eks:eks-cluster-name";
const NAME_TAG: &str = "Name";
/// EC2 may take this long to know an instance that it has launched.
const READS_LAG_MS: i64 = 60_000;
/// Tags are written one instance at a time, and not faster than this.
const AFTER_TAGGING: Duration = Duration::from_secs(1);

const TERMINATION_FAILURES: &str = "karpenter_cloudprovider_instance_termination_failures_total";

type Answer<T> = Result<T, Failure>;

pub struct Instances {
    wire: Arc<dyn Aws>,
    settings: Arc<Settings>,
    clock: Arc<dyn Clock>,
    tally: Arc<Tally>,
    finding: Batcher<Vec<Filter>, String, Answer<Option<Ec2Instance>>>,
    ending: Batcher<(), String, Answer<()>>,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    /// As last read. Replaced by every list; what a list omits is forgotten.
    seen: BTreeMap<String, Ec2Instance>,
    /// By id: whom it was bought for. EC2 learns that only once the node has a name.
    bought: BTreeMap<String, Bought>,
    /// Restarts that were asked for, by id and operation.
    restarted: BTreeSet<(String, Text)>,
    /// Zones that must not be touched.
    shifted: BTreeSet<String>,
}

struct Bought {
    claim: Text,
    at_ms: i64,
    /// Reads have caught up with the launch: from now on not to be found is to be gone.
    is_seen: bool,
}

impl Memory {
    fn saw(&mut self, instance: &Ec2Instance) {
        self.seen.insert(instance.id.clone(), instance.clone());
        if let Some(bought) = self.bought.get_mut(&instance.id) {
            bought.is_seen = true;
        }
    }
}

/// `aws:///us-west-2a/i-0123`, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderId {
    pub zone: String,
    pub id: String,
}

impl ProviderId {
    pub fn parse(text: &str) -> Option<Self> {
        let (zone, id) = text.split_once(":///")?.1.split_once('/')?;
        let is_whole = !id.is_empty() && !id.contains('/');
        is_whole.then(|| Self { zone: zone.to_owned(), id: id.to_owned() })
    }

    pub fn format(zone: &str, id: &str) -> Text {
        format!("aws:///{zone}/{id}").into()
    }
}

impl Instances {
    pub fn new(wire: Arc<dyn Aws>, settings: Arc<Settings>, clock: Arc<dyn Clock>, tally: Arc<Tally>) -> Self {
        let (find, end) = (find_together(wire.clone()), end_together(wire.clone()));
        Self {
            finding: Batcher::new("describe_instances", tally.clone(), clock.clone(), WINDOWS, find),
            ending: Batcher::new("terminate_instances", tally.clone(), clock.clone(), WINDOWS, end),
            wire,
            settings,
            clock,
            tally,
            memory: Mutex::default(),
        }
    }

    /// What was bought for a claim, before EC2 says so itself.
    pub fn bought(&self, id: &str, claim: &Text) {
        let bought = Bought { claim: claim.clone(), at_ms: self.clock.now().0, is_seen: false };
        self.memory().bought.insert(id.to_owned(), bought);
    }

    /// The claim of an instance, as far as anybody knows.
    pub fn claim_of(&self, instance: &Ec2Instance) -> Text {
        let remembered = || self.memory().bought.get(&instance.id).map(|bought| bought.claim.clone());
        let tag = instance.tags.get(CLAIM_TAG).map(|claim| Text::from(claim.as_str()));
        tag.or_else(remembered).unwrap_or_default()
    }

    /// Zones by name whose instances are left alone, since the cluster has been moved away from them.
    pub fn set_shifted_zones(&self, zones: BTreeSet<String>) {
        self.memory().shifted = zones;
    }

    /// As EC2 has it now. In a zone that traffic was shifted away from: as last seen.
    pub async fn find(&self, provider_id: &str) -> Result<Ec2Instance, CloudError> {
        let Some(of) = ProviderId::parse(provider_id) else { return Err(not_found(provider_id)) };
        if let Some(seen) = self.seen_in_shifted_zone(&of) {
            return Ok(seen);
        }
        let filters = vec![Filter::new("instance-state-name", STATES)];
        let found = self.finding.ask(filters, of.id.clone()).await;
        match found.map_err(|failure| trouble(&failure, provider_id))? {
            Some(instance) => {
                self.memory().saw(&instance);
                Ok(instance)
            }
            None => {
                self.memory().seen.remove(&of.id);
                Err(not_found(provider_id))
            }
        }
    }

    /// As last read, or as it is now where nobody has read it yet.
    pub async fn recall(&self, provider_id: &str) -> Result<Ec2Instance, CloudError> {
        let seen = ProviderId::parse(provider_id).and_then(|of| self.memory().seen.get(&of.id).cloned());
        match seen {
            Some(instance) => Ok(instance),
            None => self.find(provider_id).await,
        }
    }

    /// Every instance of this cluster that is ours, whatever its pool.
    pub async fn list(&self) -> Result<Vec<Ec2Instance>, CloudError> {
        let filters = vec![
            Filter::tag(api_labels::NODE_POOL, "*"),
            Filter::tag(api_labels::EC2_NODE_CLASS, "*"),
            Filter::tag(CLUSTER_TAG, &self.settings.cluster_name),
            Filter::new("instance-state-name", STATES),
        ];
        let began_ms = self.clock.now().0;
        let listed = self.wire.describe_instances(InstanceQuery { ids: Vec::new(), filters }).await;
        let listed = listed.map_err(|failure| trouble(&failure, "of this cluster"))?;
        let mut memory = self.memory();
        let mut seen: BTreeMap<String, Ec2Instance> =
            listed.iter().map(|instance| (instance.id.clone(), instance.clone())).collect();
        // In a shifted zone EC2's silence proves nothing.
        let shifted = memory.shifted.clone();
        let kept = std::mem::take(&mut memory.seen);
        for (id, instance) in kept.into_iter().filter(|(_, instance)| shifted.contains(&instance.zone)) {
            seen.entry(id).or_insert(instance);
        }
        memory.bought.retain(|id, bought| {
            bought.is_seen |= seen.contains_key(id);
            seen.contains_key(id) || began_ms - bought.at_ms < READS_LAG_MS
        });
        memory.restarted.retain(|(id, _)| seen.contains_key(id));
        let out = seen.values().cloned().collect();
        memory.seen = seen;
        Ok(out)
    }

    /// Ends an instance that is ours. `Ok`: it is ending. NotFound: it is gone, or was released and is no business of ours.
    pub async fn end(&self, provider_id: &str) -> Result<(), CloudError> {
        let Some(of) = ProviderId::parse(provider_id) else { return Err(not_found(provider_id)) };
        self.refuse_in_shifted_zone(&of, "ended")?;
        let found = self.find(provider_id).await;
        let is_new = self.is_new(&of.id);
        match found {
            Ok(instance) if instance.state == "shutting-down" => return Ok(()),
            Ok(instance) if is_released(&instance) => {
                tracing::info!("provider-id" = provider_id, "instance was released by its tags and is not ended");
                return Err(CloudError::NotFound { what: format!("a pool tag on instance {provider_id}").into() });
            }
            Ok(instance) if self.is_of_another_cluster(&instance) => return Err(not_found(provider_id)),
            Ok(_) => {}
            // Who has launched it a moment ago must be able to end it, whether reads know of it or not.
            Err(error) if error.is_not_found() && is_new => {}
            Err(error) => return Err(error),
        }
        match self.ending.ask((), of.id.clone()).await {
            Ok(()) => {
                if let Some(seen) = self.memory().seen.get_mut(&of.id) {
                    seen.state = "shutting-down".to_owned();
                }
                Ok(())
            }
            Err(failure) if failure.is_not_found() && is_new => {
                let message =
                    format!("EC2 does not know instance {} yet, which it has just launched: {failure}", of.id);
                Err(CloudError::Other { message: message.into() })
            }
            Err(failure) => {
                if !failure.is_not_found() {
                    let zone_id = self.memory().seen.get(&of.id).and_then(|seen| seen.zone_id.clone());
                    self.tally.note(TERMINATION_FAILURES, [of.zone, zone_id.unwrap_or_default()], 1.0);
                }
                Err(trouble(&failure, provider_id))
            }
        }
    }

    /// The reservation that an instance was last seen in.
    pub fn reservation_of(&self, provider_id: &str) -> Option<String> {
        let of = ProviderId::parse(provider_id)?;
        self.memory().seen.get(&of.id)?.reservation_id.clone()
    }

    /// Restarts in place, once for each operation.
    pub async fn restart(&self, provider_id: &str, operation: Text) -> Result<(), CloudError> {
        let Some(of) = ProviderId::parse(provider_id) else { return Err(not_found(provider_id)) };
        self.refuse_in_shifted_zone(&of, "restarted")?;
        let once = (of.id.clone(), operation);
        if self.memory().restarted.contains(&once) {
            return Ok(());
        }
        let answer = self.wire.reboot_instances(vec![of.id]).await;
        answer.map_err(|failure| trouble(&failure, provider_id))?;
        self.memory().restarted.insert(once);
        Ok(())
    }

    /// Writes the names of node and claim onto the instance, where it has none yet. Answers with the annotations that say so.
    pub async fn tag(&self, instance: &InstanceRef) -> Result<BTreeMap<Text, Text>, CloudError> {
        let Some(of) = ProviderId::parse(&instance.provider_id) else { return Err(not_found(&instance.provider_id)) };
        self.refuse_in_shifted_zone(&of, "tagged")?;
        let found = self.find(&instance.provider_id).await?;
        if self.is_of_another_cluster(&found) {
            return Err(not_found(&instance.provider_id));
        }
        let mut wanted: Tags = Tags::from([
            (CLAIM_TAG.to_owned(), instance.claim.as_str().to_owned()),
            (CLUSTER_TAG.to_owned(), self.settings.cluster_name.clone()),
        ]);
        if let Some(node) = &instance.node_name {
            wanted.insert(NAME_TAG.to_owned(), node.to_string());
        }
        wanted.retain(|key, _| !found.tags.contains_key(key));
        if !wanted.is_empty() {
            let answer = self.wire.create_tags(vec![of.id.clone()], wanted.clone()).await;
            answer.map_err(|failure| trouble(&failure, &instance.provider_id))?;
            if let Some(seen) = self.memory().seen.get_mut(&of.id) {
                seen.tags.extend(wanted);
            }
            self.clock.sleep(AFTER_TAGGING).await;
        }
        let yes: Text = "true".into();
        Ok(BTreeMap::from([(api_labels::TAGGED.into(), yes.clone()), (api_labels::CLUSTER_NAME_TAGGED.into(), yes)]))
    }

    /// An instance that says nothing about its cluster is older than the tag.
    fn is_of_another_cluster(&self, instance: &Ec2Instance) -> bool {
        instance.tags.get(CLUSTER_TAG).is_some_and(|cluster| *cluster != self.settings.cluster_name)
    }

    fn is_new(&self, id: &str) -> bool {
        let now_ms = self.clock.now().0;
        self.memory().bought.get(id).is_some_and(|bought| !bought.is_seen && now_ms - bought.at_ms < READS_LAG_MS)
    }

    fn seen_in_shifted_zone(&self, of: &ProviderId) -> Option<Ec2Instance> {
        let memory = self.memory();
        if memory.shifted.contains(&of.zone) { memory.seen.get(&of.id).cloned() } else { None }
    }

    fn refuse_in_shifted_zone(&self, of: &ProviderId, what: &str) -> Result<(), CloudError> {
        if !self.memory().shifted.contains(&of.zone) {
            return Ok(());
        }
        let message = format!("instance {} is in {}, which has a zonal shift: it is not {what}", of.id, of.zone);
        Err(CloudError::Other { message: message.into() })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a person took the pool's tag away: the instance is theirs from then on.
pub fn is_released(instance: &Ec2Instance) -> bool {
    !instance.tags.contains_key(api_labels::NODE_POOL)
}

/// One DescribeInstances for all; whatever it does not tell of is asked for alone.
fn find_together(wire: Arc<dyn Aws>) -> Run<Vec<Filter>, String, Answer<Option<Ec2Instance>>> {
    Arc::new(move |filters, ids| {
        let wire = wire.clone();
        async move {
            let distinct: BTreeSet<&String> = ids.iter().collect();
            let query = InstanceQuery { ids: distinct.into_iter().cloned().collect(), filters: filters.clone() };
            let found: BTreeMap<String, Ec2Instance> = match wire.describe_instances(query).await {
                Ok(found) => found.into_iter().map(|instance| (instance.id.clone(), instance)).collect(),
                // One unknown id fails the question about all of them.
                Err(failure) if failure.is_not_found() => BTreeMap::new(),
                Err(failure) => return vec![Err(failure); ids.len()],
            };
            let each = ids.into_iter().map(|id| {
                let known = found.get(&id).cloned();
                let alone = InstanceQuery { ids: vec![id], filters: filters.clone() };
                let wire = &wire;
                async move {
                    if known.is_some() {
                        return Ok(known);
                    }
                    match wire.describe_instances(alone).await {
                        Ok(found) => Ok(found.into_iter().next()),
                        Err(failure) if failure.is_not_found() => Ok(None),
                        Err(failure) => Err(failure),
                    }
                }
            });
            join_all(each).await
        }
        .boxed()
    })
}

/// One TerminateInstances for all; whatever does not end by it is ended alone.
fn end_together(wire: Arc<dyn Aws>) -> Run<(), String, Answer<()>> {
    let ends = |change: &InstanceStateChange| is_ending(&change.state);
    Arc::new(move |(), ids| {
        let wire = wire.clone();
        async move {
            let distinct: BTreeSet<&String> = ids.iter().collect();
            let answer = wire.terminate_instances(distinct.into_iter().cloned().collect()).await;
            let ending: BTreeSet<String> = match answer {
                Ok(changes) => changes.into_iter().filter(ends).map(|change| change.id).collect(),
                // Which of them it was that failed is found out one by one.
                Err(_) => BTreeSet::new(),
            };
            let each = ids.into_iter().map(|id| {
                let is_ending = ending.contains(&id);
                let wire = &wire;
                async move {
                    if is_ending {
                        return Ok(());
                    }
                    wire.terminate_instances(vec![id]).await.map(drop)
                }
            });
            join_all(each).await
        }
        .boxed()
    })
}

pub(crate) fn not_found(provider_id: &str) -> CloudError {
    CloudError::NotFound { what: format!("instance {provider_id}").into() }
}

/// What the caller should do next.
fn trouble(failure: &Failure, provider_id: &str) -> CloudError {
    if failure.is_not_found() || failure.code == "InvalidInstanceID.Malformed" {
        return not_found(provider_id);
    }
    let message: Text = format!("instance {provider_id}: {failure}").into();
    if failure.is_throttled() {
        return CloudError::Throttled { message, retry_after: Duration::from_secs(1) };
    }
    CloudError::Other { message }
}

#[cfg(test)]
#[path = "instances/tests.rs"]
mod tests;
