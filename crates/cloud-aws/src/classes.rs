//! EC2NodeClasses: what they name is looked up, judged, and written down for everybody who launches.
//!
//! ```text
//! class ─▶ images, reservations, placement group, subnets, groups, profile ─▶ validation ─▶ status, conditions, hash
//!             │ each runs whatever became of the others                          │
//!             └ what AWS does not let us ask is said where it belongs            └ templates: one for a dry run
//! ```
//!
//! What is absent: writes to Kubernetes, and the finalizer: who watches the class does that. What an instance is compared
//! with when the class has moved on is in [`drift`].

mod cluster;
pub mod conditions;
pub mod drift;
pub mod groups;
pub mod images;
mod placement;
mod profiles;
mod reservations;
mod subnets;
mod terms;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod validation;

use crate::advice::{self, Expected, Optional, OptionalCalls};
use crate::memory::Memory;
use crate::settings::{ClusterFacts, Settings};
use crate::supply::Supply;
use crate::templates::Templates;
use crate::wire::{Aws, Failure, SecurityGroup, Subnet};
pub use cluster::ApiServer;
use cluster::Cluster;
use conditions::Finding;
use images::NoImages;
use images::parameters::Parameters;
use kerf_api::{Ami, CustomObject, Ec2NodeClass, hash, labels};
use kerf_cloud::clock::Clock;
use kerf_cloud::{ClassStatus, CloudError, InUse, NodeClassKind, PoolInUse};
use kerf_model::{Text, UnixMillis};
use placement::Placements;
use profiles::{NoProfile, Profiles};
use reservations::Reservations;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use validation::Verdicts;

/// As the API server serves it, and what of it is ours.
pub const NODE_CLASS: NodeClassKind = NodeClassKind {
    group: labels::AWS_GROUP,
    version: "v1",
    kind: "EC2NodeClass",
    plural: "ec2nodeclasses",
    finalizer: Some(labels::EC2_NODE_CLASS_FINALIZER),
    hash: Some((labels::EC2_NODE_CLASS_HASH, labels::EC2_NODE_CLASS_HASH_VERSION)),
};

const MINUTE: Duration = Duration::from_secs(60);
const FIVE_MINUTES: Duration = Duration::from_secs(300);
/// The same question is not asked twice within so long, whoever asks.
const GROUPS_FRESH_FOR: Duration = MINUTE;
/// A refusal reads the same for so long: its encoded part is another each time, and nobody needs two.
const WORDS_LAST: Duration = Duration::from_secs(30 * 60);

/// Hears of subnets whenever EC2 was asked.
type SubnetListener = Box<dyn Fn(&[Subnet]) + Send + Sync>;

/// A class as it was written: its uid and generation.
type Edition = (String, i64);

pub struct Classes {
    settings: Arc<Settings>,
    clock: Arc<dyn Clock>,
    supply: Arc<Supply>,
    optional: Arc<OptionalCalls>,
    cluster: Cluster,
    api_server: Option<Arc<dyn ApiServer>>,
    subnets: Memory<Edition, Vec<Subnet>>,
    groups: Memory<Edition, Vec<SecurityGroup>>,
    images: Memory<(Edition, String), images::Found>,
    parameters: Parameters,
    profiles: Profiles,
    has_listed_profiles: AtomicBool,
    reservations: Reservations,
    placements: Placements,
    verdicts: Verdicts,
    /// By class and call: what a refusal was said to mean.
    words: Memory<(String, &'static str), String>,
    /// By class: looks in a row that met trouble.
    n_troubles: Mutex<BTreeMap<String, u32>>,
    pools: Mutex<Vec<PoolInUse>>,
    on_subnets: SubnetListener,
}

/// A class on its way from the status it has to the one it should have.
struct Draft {
    class: Ec2NodeClass,
    findings: Vec<Finding>,
    again_after: Vec<Duration>,
    /// Something failed that may well not fail next time.
    has_trouble: bool,
    subnets: Vec<Subnet>,
    groups: Vec<SecurityGroup>,
}

impl Draft {
    fn find(&mut self, finding: Finding, again_after: Duration) {
        self.findings.push(finding);
        self.again_after.push(again_after);
    }
}

impl Classes {
    pub fn new(
        settings: Arc<Settings>,
        clock: Arc<dyn Clock>,
        supply: Arc<Supply>,
        optional: Arc<OptionalCalls>,
    ) -> Self {
        Self {
            subnets: Memory::new(settings.subnet_refresh),
            groups: Memory::new(GROUPS_FRESH_FOR),
            images: Memory::new(settings.ami_refresh),
            settings,
            clock,
            supply,
            optional,
            cluster: Cluster::default(),
            api_server: None,
            parameters: Parameters::default(),
            profiles: Profiles::default(),
            has_listed_profiles: AtomicBool::new(false),
            reservations: Reservations::default(),
            placements: Placements::default(),
            verdicts: Verdicts::default(),
            words: Memory::new(WORDS_LAST),
            n_troubles: Mutex::default(),
            pools: Mutex::default(),
            on_subnets: Box::new(|_| {}),
        }
    }

    /// Who wants to hear of subnets whenever EC2 was asked: their free addresses are fresh then.
    #[must_use]
    pub fn telling_subnets(mut self, listener: impl Fn(&[Subnet]) + Send + Sync + 'static) -> Self {
        self.on_subnets = Box::new(listener);
        self
    }

    /// What nodes need to know of their cluster; None before anyone asked.
    pub fn cluster(&self) -> Option<ClusterFacts> {
        self.cluster.known()
    }

    /// Finds out what nodes need to know, unless it is known.
    pub async fn discover(&self, wire: &dyn Aws) -> Result<ClusterFacts, Failure> {
        self.cluster.facts(wire, &self.settings).await
    }

    /// Who is asked for the version where EKS is not.
    #[must_use]
    pub fn asking(mut self, api_server: Option<Arc<dyn ApiServer>>) -> Self {
        self.api_server = api_server;
        self
    }

    /// The chore `providers.version`. Answers the version.
    pub async fn refresh_version(&self, wire: &dyn Aws) -> Result<String, Failure> {
        self.cluster.refresh_version(wire, &self.settings, self.api_server.as_deref()).await
    }

    /// The chore `providers.ssm.invalidation`. Answers how many parameters were forgotten.
    pub async fn forget_deprecated_images(&self, wire: &dyn Aws) -> Result<usize, Failure> {
        let now = self.clock.now();
        match self.parameters.forget_deprecated(wire, now).await {
            Err(failure) if self.is_without(Optional::DescribeImages, &failure, now) => Ok(0),
            answer => answer,
        }
    }

    /// The chore `instanceprofile.garbagecollection`. Answers which profiles went.
    pub async fn collect_profiles(&self, wire: &dyn Aws, in_use: &InUse) -> Result<Vec<String>, Failure> {
        let now = self.clock.now();
        if self.settings.is_isolated_vpc || !self.optional.is_worth_asking(Optional::ListInstanceProfiles, now) {
            return Ok(Vec::new());
        }
        match self.profiles.collect(wire, &self.settings, in_use, now).await {
            Ok(gone) => {
                self.optional.passed(Optional::ListInstanceProfiles);
                Ok(gone)
            }
            Err(failure)
                if failure.action == "iam:ListInstanceProfiles"
                    && self.is_without(Optional::ListInstanceProfiles, &failure, now) =>
            {
                Ok(Vec::new())
            }
            Err(failure) => Err(failure),
        }
    }

    /// Profiles are collected every half hour; that they cannot be is told from the beginning.
    async fn may_list_profiles(&self, wire: &dyn Aws, now: UnixMillis) {
        if self.settings.is_isolated_vpc || self.has_listed_profiles.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Err(failure) = wire.list_instance_profiles(profiles::path_prefix(&self.settings)).await
            && !self.is_without(Optional::ListInstanceProfiles, &failure, now)
        {
            // The collection will tell if it does not pass.
            self.has_listed_profiles.store(false, Ordering::Relaxed);
        }
    }

    /// The pools that there are: a class is tried with a type that a pool of it would buy.
    pub fn know_pools(&self, pools: &[PoolInUse]) {
        *self.pools.lock().unwrap_or_else(PoisonError::into_inner) = pools.to_vec();
    }

    /// What the status of a class should be.
    ///
    /// Flow: everything that the class names is looked up, whatever became of the rest; then it is judged. One status comes of it,
    /// with a condition for each and `Ready` for all. Guarantees: an account that has not changed gives the same status again.
    pub async fn resolve(
        &self,
        wire: &dyn Aws,
        class: &Value,
        templates: &Templates,
    ) -> Result<ClassStatus, CloudError> {
        let now = self.clock.now();
        let mut draft = Draft {
            class: read(class)?,
            findings: Vec::new(),
            again_after: Vec::new(),
            has_trouble: false,
            subnets: Vec::new(),
            groups: Vec::new(),
        };
        let before = draft.class.status.clone().unwrap_or_default();
        self.look_for_images(wire, &mut draft, now).await;
        if self.settings.has_reserved_capacity {
            self.look_for_reservations(wire, &mut draft, now).await;
        }
        self.look_for_placement_group(wire, &mut draft, now).await;
        self.look_for_subnets(wire, &mut draft, now).await;
        self.look_for_groups(wire, &mut draft, now).await;
        self.look_for_profile(wire, &mut draft, now).await;
        self.judge(wire, &mut draft, templates, now).await;
        let after = draft.class.status.clone().unwrap_or_default();
        if before.security_groups != after.security_groups || before.subnets != after.subnets {
            let ids = |all: &[kerf_api::SecurityGroup]| {
                all.iter().map(|group| group.id.clone()).collect::<Vec<_>>().join(", ")
            };
            let subnets: Vec<&str> = after.subnets.iter().map(|subnet| subnet.id.as_str()).collect();
            tracing::info!(
                EC2NodeClass = %name_of(&draft.class), security_groups = %ids(&after.security_groups), subnets = %subnets.join(", "),
                "found what nodes are launched with"
            );
        }
        Ok(ClassStatus {
            status: json!({
                "subnets": list(&after.subnets),
                "securityGroups": list(&after.security_groups),
                "amis": list(&after.amis),
                "capacityReservations": list(&after.capacity_reservations),
                "instanceProfile": after.instance_profile,
                "conditions": conditions::conditions(&draft.class, &draft.findings, now),
            }),
            annotations: self.annotations(&draft.class),
            again_after: Some(self.again_after(&draft)),
        })
    }

    /// Removes what was made for a class that is going: profiles, then templates.
    pub async fn end(&self, wire: &dyn Aws, class: &Value, templates: &Templates) -> Result<(), CloudError> {
        let class = read(class)?;
        let name = name_of(&class);
        let failed = |failure: Failure| CloudError::Other {
            message: format!(
                "EC2NodeClass {name} cannot go yet: what was made for it is still there: {}",
                plain(&failure)
            )
            .into(),
        };
        self.profiles.end(wire, &self.settings, &class).await.map_err(failed)?;
        templates.end_class(wire, &name).await.map_err(failed)?;
        self.verdicts.forget(&name);
        self.n_troubles.lock().unwrap_or_else(PoisonError::into_inner).remove(&uid_of(&class));
        Ok(())
    }

    async fn look_for_images(&self, wire: &dyn Aws, draft: &mut Draft, now: UnixMillis) {
        const FIELD: &str = "spec.amiSelectorTerms";
        let version = match self.discover(wire).await {
            Ok(facts) => facts.version,
            Err(failure) => return self.not_seen(wire, draft, conditions::AMIS, FIELD, &failure, now).await,
        };
        let key = (edition(&draft.class), version.clone());
        let found = match self.images.get(&key, now) {
            Some(found) => Ok(found),
            None => images::find(wire, &draft.class, &version, &self.parameters, now).await,
        };
        match found {
            Ok(found) => {
                set(draft, |status| status.amis = found.amis.clone());
                let mut warning = String::new();
                if let Some(failure) = &found.trouble {
                    self.note(failure, now);
                    warning = self.in_words(wire, &draft.class, FIELD, failure, now).await;
                }
                draft.find(Finding::holds(conditions::AMIS, warning), FIVE_MINUTES);
                self.images.put(key, found, now);
            }
            Err(NoImages::NotFound(why)) => {
                set(draft, |status| status.amis = Vec::<Ami>::new());
                draft.find(Finding::fails(conditions::AMIS, "AMINotFound", why), MINUTE);
            }
            // Only a change of the class or of the cluster can help; what was found before stays for those who compare.
            Err(NoImages::UnsupportedAlias(why)) => {
                draft.find(Finding::fails(conditions::AMIS, "UnsupportedAlias", why), FIVE_MINUTES);
            }
            Err(NoImages::Failed(failure)) => self.not_seen(wire, draft, conditions::AMIS, FIELD, &failure, now).await,
        }
    }

    async fn look_for_reservations(&self, wire: &dyn Aws, draft: &mut Draft, now: UnixMillis) {
        const FIELD: &str = "spec.capacityReservationSelectorTerms";
        match self.reservations.find(wire, &draft.class, now).await {
            Ok(found) => {
                for reservation in &found.counted {
                    self.supply.reservations().set(&reservation.id, reservation.n_available);
                }
                if !found.counted.is_empty() {
                    self.optional.passed(Optional::DescribeCapacityReservations);
                }
                let again = found.changes_after.map_or(MINUTE, |after| after.min(MINUTE));
                set(draft, |status| status.capacity_reservations = found.status);
                draft.find(Finding::holds(conditions::RESERVATIONS, ""), again);
            }
            // Nodes launch without reservations too: the class is not held up by what it may not know.
            Err(failure) if failure.is_denied() => {
                self.note(&failure, now);
                let words = self.off_in_words(&[Optional::DescribeCapacityReservations]);
                set(draft, |status| status.capacity_reservations.clear());
                draft.find(Finding::holds(conditions::RESERVATIONS, format!("{FIELD}: {words}")), MINUTE);
            }
            Err(failure) => self.not_seen(wire, draft, conditions::RESERVATIONS, FIELD, &failure, now).await,
        }
    }

    async fn look_for_placement_group(&self, wire: &dyn Aws, draft: &mut Draft, now: UnixMillis) {
        const FIELD: &str = "spec.placementGroupSelector";
        let Some(selector) = draft.class.spec.placement_group_selector.clone() else {
            return draft.find(Finding::holds(conditions::PLACEMENT_GROUP, ""), FIVE_MINUTES);
        };
        match self.placements.find(wire, &selector, now).await {
            Ok(Some(group)) => {
                self.supply.set_placement_group(&selector, Some(group));
                draft.find(Finding::holds(conditions::PLACEMENT_GROUP, ""), MINUTE);
            }
            Ok(None) => {
                self.supply.set_placement_group(&selector, None);
                let why = format!(
                    "{FIELD}: found no available placement group with {} by ec2:DescribePlacementGroups; make one in {}, or correct \
                     the selector",
                    placement::key(&selector),
                    self.settings.region
                );
                draft.find(Finding::fails(conditions::PLACEMENT_GROUP, "PlacementGroupNotFound", why), MINUTE);
            }
            Err(failure) => {
                self.note(&failure, now);
                draft.has_trouble |= !failure.is_denied();
                let words = self.in_words(wire, &draft.class, FIELD, &failure, now).await;
                draft
                    .find(Finding::fails(conditions::PLACEMENT_GROUP, "PlacementGroupResolutionFailed", words), MINUTE);
            }
        }
    }

    async fn look_for_subnets(&self, wire: &dyn Aws, draft: &mut Draft, now: UnixMillis) {
        let key = edition(&draft.class);
        let found = match self.subnets.get(&key, now) {
            Some(found) => Ok(found),
            None => subnets::find(wire, &draft.class).await.inspect(|found| {
                self.subnets.put(key, found.clone(), now);
                (self.on_subnets)(found);
            }),
        };
        match found {
            Ok(found) => {
                set(draft, |status| status.subnets = subnets::status(&found));
                let finding = match found.is_empty() {
                    true => Finding::fails(
                        conditions::SUBNETS,
                        "SubnetsNotFound",
                        subnets::why_none(wire, &draft.class).await,
                    ),
                    false => Finding::holds(conditions::SUBNETS, ""),
                };
                draft.subnets = found;
                draft.find(finding, MINUTE);
            }
            Err(failure) => {
                self.not_seen(wire, draft, conditions::SUBNETS, "spec.subnetSelectorTerms", &failure, now).await
            }
        }
    }

    async fn look_for_groups(&self, wire: &dyn Aws, draft: &mut Draft, now: UnixMillis) {
        const FIELD: &str = "spec.securityGroupSelectorTerms";
        let key = edition(&draft.class);
        let found = match self.groups.get(&key, now) {
            Some(found) => Ok(found),
            None => groups::find(wire, &draft.class).await.inspect(|found| self.groups.put(key, found.clone(), now)),
        };
        match found {
            Ok(found) if found.is_empty() => {
                set(draft, |status| status.security_groups.clear());
                let why = groups::why_none(wire, &draft.class).await;
                draft.find(Finding::fails(conditions::SECURITY_GROUPS, "SecurityGroupsNotFound", why), MINUTE);
            }
            Ok(found) => {
                set(draft, |status| status.security_groups = groups::status(&found));
                let owned = groups::owned_twice(&found, &self.settings.cluster_name);
                let warnings: Vec<String> = owned.into_iter().chain(groups::strays(&found, &draft.subnets)).collect();
                draft.groups = found;
                draft.find(Finding::holds(conditions::SECURITY_GROUPS, warnings.join("; ")), FIVE_MINUTES);
            }
            Err(failure) => self.not_seen(wire, draft, conditions::SECURITY_GROUPS, FIELD, &failure, now).await,
        }
    }

    async fn look_for_profile(&self, wire: &dyn Aws, draft: &mut Draft, now: UnixMillis) {
        const FIELD: &str = "spec.role";
        match self.profiles.ensure(wire, &self.settings, &draft.class, now).await {
            Ok(profile) => {
                set(draft, |status| status.instance_profile = Some(profile));
                let words = match draft.class.spec.role {
                    Some(_) => {
                        self.may_list_profiles(wire, now).await;
                        self.off_in_words(&[Optional::ListInstanceProfiles])
                    }
                    None => String::new(),
                };
                draft.find(Finding::holds(conditions::INSTANCE_PROFILE, words), FIVE_MINUTES);
            }
            Err(NoProfile::Unusable(why)) => {
                draft.find(Finding::fails(conditions::INSTANCE_PROFILE, "InvalidInstanceProfile", why), FIVE_MINUTES);
            }
            Err(NoProfile::RoleMissing { role, failure }) => {
                let field = format!("EC2NodeClass {}: {FIELD}", name_of(&draft.class));
                let bare = Failure { request_id: None, ..failure };
                let words =
                    advice::missing_role(&bare, &field, &role).unwrap_or_else(|| format!("{field}: {}", plain(&bare)));
                draft.find(Finding::fails(conditions::INSTANCE_PROFILE, "RoleNotFound", words), MINUTE);
            }
            // There may be a way to IAM all the same, through a proxy say; where there is none, a profile that is named needs none.
            Err(NoProfile::Failed(failure)) if self.settings.is_isolated_vpc && failure.status == 0 => {
                let field = format!("{FIELD}: in an isolated VPC, name a profile that exists in spec.instanceProfile");
                self.not_seen(wire, draft, conditions::INSTANCE_PROFILE, &field, &failure, now).await;
            }
            Err(NoProfile::Failed(failure)) => {
                self.not_seen(wire, draft, conditions::INSTANCE_PROFILE, FIELD, &failure, now).await;
            }
        }
    }

    /// Something could not be looked up. What is known stays, and the condition says what is wrong.
    async fn not_seen(
        &self,
        wire: &dyn Aws,
        draft: &mut Draft,
        kind: &'static str,
        field: &str,
        failure: &Failure,
        now: UnixMillis,
    ) {
        tracing::warn!(EC2NodeClass = %name_of(&draft.class), condition = kind, %failure, "cannot look up what the class names");
        self.note(failure, now);
        let words = self.in_words(wire, &draft.class, field, failure, now).await;
        draft.has_trouble |= !failure.is_denied();
        let finding = Finding::not_seen(&draft.class, kind, words, failure.is_denied());
        draft.find(finding, MINUTE);
    }

    /// What went wrong, for a condition: it reads the same as long as it is the same.
    async fn in_words(
        &self,
        wire: &dyn Aws,
        class: &Ec2NodeClass,
        field: &str,
        failure: &Failure,
        now: UnixMillis,
    ) -> String {
        if !failure.is_denied() {
            return format!("{field}: {}", plain(failure));
        }
        let key = (uid_of(class), failure.action);
        if let Some(words) = self.words.get(&key, now) {
            return words;
        }
        let role = class.spec.role.as_deref().and_then(|role| role.rsplit('/').next());
        let expected = Expected { node_roles: role.map(str::to_owned).into_iter().collect(), ..Expected::default() };
        let words = format!("{field}: {}", advice::denied(wire, failure, &expected).await.advice);
        self.words.expired(now);
        self.words.put(key, words.clone(), now);
        words
    }

    /// A refused call that has an entry of its own among those we can do without.
    fn note(&self, failure: &Failure, now: UnixMillis) {
        if let Some(call) = Optional::of(failure.action) {
            self.is_without(call, failure, now);
        }
    }

    fn is_without(&self, call: Optional, failure: &Failure, now: UnixMillis) -> bool {
        let (is_off, words) = self.optional.note(call, failure, now);
        if let Some(words) = words {
            tracing::warn!("{words}");
        }
        is_off
    }

    fn off_in_words(&self, calls: &[Optional]) -> String {
        self.off_where(|call| calls.contains(&call))
    }

    /// What is off and belongs to no condition of its own: prices, instance status, tags of spot requests and the like.
    fn off_elsewhere_in_words(&self) -> String {
        let told = [Optional::DescribeCapacityReservations, Optional::ListInstanceProfiles];
        self.off_where(|call| !told.contains(&call))
    }

    fn off_where(&self, is_meant: impl Fn(Optional) -> bool) -> String {
        let off = self.optional.list().into_iter().filter(|off| is_meant(off.call));
        off.map(|off| off.message).collect::<Vec<_>>().join("; ")
    }

    fn annotations(&self, class: &Ec2NodeClass) -> BTreeMap<Text, Text> {
        let ca_bundle = self.cluster().map(|facts| facts.ca_bundle);
        // Without the certificate the number would be another one, and every node would look drifted.
        let Some(ca_bundle) = ca_bundle else { return BTreeMap::new() };
        BTreeMap::from([
            (labels::EC2_NODE_CLASS_HASH.into(), class.hash(Some(&ca_bundle)).into()),
            (labels::EC2_NODE_CLASS_HASH_VERSION.into(), hash::EC2_NODE_CLASS_HASH_VERSION.into()),
        ])
    }

    /// The soonest of all wishes; after trouble sooner, with growing patience.
    fn again_after(&self, draft: &Draft) -> Duration {
        let soonest = draft.again_after.iter().copied().min().unwrap_or(MINUTE);
        let mut n_troubles = self.n_troubles.lock().unwrap_or_else(PoisonError::into_inner);
        if !draft.has_trouble {
            n_troubles.remove(&uid_of(&draft.class));
            return soonest;
        }
        let n = n_troubles.entry(uid_of(&draft.class)).or_insert(0);
        let patience = Duration::from_secs(1 << (*n).min(6));
        *n += 1;
        soonest.min(patience)
    }
}

/// The typed object, with what the API server would have filled in.
fn read(class: &Value) -> Result<Ec2NodeClass, CloudError> {
    let name = class["metadata"]["name"].as_str().unwrap_or_default();
    let mut read: Ec2NodeClass = serde_json::from_value(class.clone())
        .map_err(|error| CloudError::Refused { message: format!("EC2NodeClass {name}: {error}").into() })?;
    read.apply_defaults();
    Ok(read)
}

fn set(draft: &mut Draft, change: impl FnOnce(&mut kerf_api::Ec2NodeClassStatus)) {
    change(draft.class.status.get_or_insert_default());
}

/// For a merge patch: an empty list is no list.
fn list<T: serde::Serialize>(items: &[T]) -> Value {
    if items.is_empty() { Value::Null } else { json!(items) }
}

fn edition(class: &Ec2NodeClass) -> Edition {
    (uid_of(class), class.metadata.generation.unwrap_or_default())
}

fn uid_of(class: &Ec2NodeClass) -> String {
    class.metadata.uid.clone().or_else(|| class.metadata.name.clone()).unwrap_or_default()
}

fn name_of(class: &Ec2NodeClass) -> String {
    class.metadata.name.clone().unwrap_or_default()
}

/// Without the number of the request, which is another each time.
fn plain(failure: &Failure) -> String {
    Failure { request_id: None, ..failure.clone() }.to_string()
}
