//! Launch templates: what EC2 is told about every instance of a kind, made when needed and removed when not.
//!
//! ```text
//! TemplateWants ─ groups ─▶ types that can share a template
//!                   └ recipe ─▶ name: a hash of everything the template says
//!                        ├ known lately ─▶ used again, and kept a minute longer
//!                        └ not known ─▶ looked up by name, else made (data, bootstrap)
//! sweep ─▶ what was not used for a minute is deleted in EC2
//! ```
//!
//! Nobody makes templates by hand, and nobody has to clean them up. A template never changes: other contents have another name.
//! Which types and capacity a claim may have is not decided here.

mod data;
mod groups;
mod recipe;

pub(crate) use recipe::partition;

use crate::bootstrap::{self, BootstrapError, USER_DATA_BYTES_TIGHT};
use crate::memory::Memory;
use crate::settings::{ClusterFacts, Settings};
use crate::supply::ResolvedKubelet;
use crate::wire::{Aws, Failure, Filter, PlacementGroup, Tags, Template, TemplateOrder, TemplateQuery};
use futures_util::lock::Mutex as Turn;
use kerf_api::{Ec2NodeClass, labels as keys};
use kerf_cloud::clock::Clock;
use kerf_cloud::{CloudError, LaunchOrder};
use kerf_model::{CapacityType, InstanceType, Offering, PoolName, Text, TypeName};
use recipe::Recipe;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What every name of ours begins with.
pub const NAME_PREFIX: &str = "karpenter.k8s.aws/";

/// A template that nobody used for this long is deleted.
const UNUSED_SPAN: Duration = Duration::from_secs(60);

/// How long a template stays that we may not delete, before we ask again.
const DENIED_SPAN: Duration = Duration::from_secs(600);

/// Tells which cluster something belongs to.
const CLUSTER_TAG: &str = "eks:eks-cluster-name";

/// What kubelets are told beyond what the class says, by instance type.
pub trait Kubelets: Send + Sync {
    fn kubelet_for(&self, class: &Ec2NodeClass, instance_type: &InstanceType) -> Result<ResolvedKubelet, CloudError>;
}

/// What is to be launched.
pub struct TemplateWants<'a> {
    pub class: &'a Ec2NodeClass,
    pub order: &'a LaunchOrder,
    pub types: Vec<TypeWanted<'a>>,
    pub supply: &'a dyn Kubelets,
    pub cluster: &'a ClusterFacts,
    pub capacity_type: CapacityType,
    /// `default` or `dedicated`.
    pub tenancy: &'a str,
    /// That of the class, where it has one.
    pub placement_group: Option<&'a PlacementGroup>,
    /// As [`tags`] makes them.
    pub tags: Tags,
}

/// A type, and what is left of its offerings.
#[derive(Debug, Clone)]
pub struct TypeWanted<'a> {
    pub instance_type: &'a InstanceType,
    /// Only those of reservations matter here: each reservation has a template of its own.
    pub offerings: Vec<&'a Offering>,
}

/// A template that exists, and what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyTemplate {
    pub name: String,
    pub image_id: String,
    /// In the order in which they were wanted.
    pub types: Vec<TypeName>,
    /// Only offerings of this reservation may be launched from it.
    pub reservation_id: Option<String>,
}

/// Why there is no template.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TemplateError {
    #[error(transparent)]
    Aws(#[from] Failure),
    #[error("EC2NodeClass {class}: {source}")]
    UserData { class: String, source: BootstrapError },
    /// The class lacks something, which its status should say.
    #[error("EC2NodeClass {class}: {why}")]
    Class { class: String, why: String },
    /// No image of the class fits any of the types.
    #[error("EC2NodeClass {class}: {why}")]
    NoImage { class: String, why: String },
    #[error(transparent)]
    Kubelet(#[from] CloudError),
}

pub struct Templates {
    settings: Arc<Settings>,
    clock: Arc<dyn Clock>,
    /// Name to id.
    known: Memory<String, String>,
    /// Who makes or removes templates goes alone: two launches of a kind should not both make the same one.
    turn: Turn<()>,
    leaves_out_spot_tags: AtomicBool,
    /// By class: the size of the user data of the template made last.
    user_data_bytes: Mutex<BTreeMap<String, usize>>,
}

impl Templates {
    pub fn new(settings: Arc<Settings>, clock: Arc<dyn Clock>) -> Self {
        Self {
            settings,
            clock,
            known: Memory::new(UNUSED_SPAN),
            turn: Turn::new(()),
            leaves_out_spot_tags: AtomicBool::new(false),
            user_data_bytes: Mutex::default(),
        }
    }

    /// The templates for what is wanted, made where they are missing.
    ///
    /// Guarantees: every wanted type that an image fits is in exactly one template, or for reserved capacity in one for each of
    /// its reservations. Without an error there is at least one.
    pub async fn ensure_all(
        &self,
        wire: &dyn Aws,
        wants: &TemplateWants<'_>,
    ) -> Result<Vec<ReadyTemplate>, CloudError> {
        Ok(self.prepare(wire, wants).await?)
    }

    /// As [`Self::ensure_all`], for those who want to know what AWS said.
    pub async fn prepare(
        &self,
        wire: &dyn Aws,
        wants: &TemplateWants<'_>,
    ) -> Result<Vec<ReadyTemplate>, TemplateError> {
        let _turn = self.turn.lock().await;
        match self.ensure_groups(wire, wants).await {
            Err(TemplateError::Aws(failure)) if self.gives_up_spot_tags(&failure) => {
                self.ensure_groups(wire, wants).await
            }
            answer => answer,
        }
    }

    /// From now on spot requests go untagged: an older policy does not allow to tag them. Templates get other names by it.
    /// Answers whether they were tagged before.
    pub fn leave_out_spot_tags(&self) -> bool {
        !self.leaves_out_spot_tags.swap(true, Ordering::Relaxed)
    }

    pub fn leaves_out_spot_tags(&self) -> bool {
        self.leaves_out_spot_tags.load(Ordering::Relaxed)
    }

    /// Templates that EC2 says do not exist.
    pub fn forget<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        for name in names {
            self.known.remove(&name.to_owned());
        }
    }

    /// Learns which templates an earlier operator left, so that those nobody uses go like any other. Called once this
    /// one leads.
    pub async fn hydrate(&self, wire: &dyn Aws) -> Result<(), Failure> {
        let _turn = self.turn.lock().await;
        let now = self.clock.now();
        for template in self.find(wire, Vec::new()).await? {
            self.known.put(template.name, template.id, now);
        }
        Ok(())
    }

    /// Deletes what was not used for a minute. One that cannot be deleted is tried again later; the first failure is told after
    /// all were tried. Answers how many went.
    pub async fn sweep(&self, wire: &dyn Aws) -> Result<usize, Failure> {
        let _turn = self.turn.lock().await;
        let (mut n_gone, mut first_failure) = (0, None);
        for (name, id) in self.known.expired(self.clock.now()) {
            match delete(wire, id.clone()).await {
                Ok(()) => n_gone += 1,
                Err(failure) => {
                    let span = if failure.is_denied() { DENIED_SPAN } else { UNUSED_SPAN };
                    self.known.put_for(name, id, span, self.clock.now());
                    first_failure = first_failure.or(Some(failure));
                }
            }
        }
        first_failure.map_or(Ok(n_gone), Err)
    }

    /// Deletes all templates that were made for a class.
    pub async fn end_class(&self, wire: &dyn Aws, class_name: &str) -> Result<(), Failure> {
        let _turn = self.turn.lock().await;
        let of_class = Filter::new(format!("tag:{}", keys::EC2_NODE_CLASS), [class_name]);
        let mut first_failure = None;
        for template in self.find(wire, vec![of_class]).await? {
            match delete(wire, template.id).await {
                Ok(()) => drop(self.known.remove(&template.name)),
                Err(failure) => first_failure = first_failure.or(Some(failure)),
            }
        }
        self.sizes().remove(class_name);
        first_failure.map_or(Ok(()), Err)
    }

    /// By class, for `karpenter_ec2nodeclasses_userdata_bytes`.
    pub fn user_data_bytes(&self) -> BTreeMap<String, usize> {
        self.sizes().clone()
    }

    async fn ensure_groups(
        &self,
        wire: &dyn Aws,
        wants: &TemplateWants<'_>,
    ) -> Result<Vec<ReadyTemplate>, TemplateError> {
        let mut ready = Vec::new();
        for group in groups::groups(wants)? {
            let recipe = Recipe::new(wants, &group.shared, self.leaves_out_spot_tags());
            let name = recipe.name(&self.settings);
            self.ensure(wire, &name, &recipe, wants).await?;
            let reservation_id = recipe.reservation.map(|reservation| reservation.id.to_string());
            ready.push(ReadyTemplate { name, image_id: recipe.image_id, types: group.types, reservation_id });
        }
        Ok(ready)
    }

    async fn ensure(
        &self,
        wire: &dyn Aws,
        name: &str,
        recipe: &Recipe,
        wants: &TemplateWants<'_>,
    ) -> Result<(), TemplateError> {
        let key = name.to_owned();
        if self.known.get(&key, self.clock.now()).is_some() {
            self.known.touch(&key, self.clock.now());
            return Ok(());
        }
        let id = match lookup(wire, name).await? {
            Some(template) => template.id,
            None => self.make(wire, name, recipe, wants).await?.id,
        };
        self.known.put(key, id, self.clock.now());
        Ok(())
    }

    async fn make(
        &self,
        wire: &dyn Aws,
        name: &str,
        recipe: &Recipe,
        wants: &TemplateWants<'_>,
    ) -> Result<Template, TemplateError> {
        let class = class_name(wants.class);
        let named = |source| TemplateError::UserData { class: class.clone(), source };
        let text = bootstrap::render(&recipe.bootstrap(&self.settings, wants)).map_err(named)?;
        let n_bytes = text.as_ref().map_or(0, String::len);
        if n_bytes >= USER_DATA_BYTES_TIGHT {
            tracing::warn!(class, n_bytes, "user data is close to the 16384 bytes that EC2 takes");
        }
        let user_data = text.map(|text| bootstrap::encode(&text));
        let data = data::template_data(recipe, &self.settings, user_data)
            .map_err(|why| TemplateError::Class { class: class.clone(), why })?;
        let order = TemplateOrder { name: name.to_owned(), tags: wants.tags.clone(), data };
        let template = match wire.create_launch_template(order).await {
            // Somebody else was faster, or EC2 has only now heard of what we made.
            Err(failure) if failure.code == "InvalidLaunchTemplateName.AlreadyExistsException" => {
                lookup(wire, name).await?.ok_or(failure)?
            }
            answer => answer?,
        };
        self.sizes().insert(class, n_bytes);
        Ok(template)
    }

    /// Templates of this cluster. What somebody else tagged like ours is not ours by name.
    async fn find(&self, wire: &dyn Aws, more: Vec<Filter>) -> Result<Vec<Template>, Failure> {
        let mut filters = vec![Filter::new(format!("tag:{CLUSTER_TAG}"), [&self.settings.cluster_name])];
        filters.extend(more);
        let found = wire.describe_launch_templates(TemplateQuery { names: Vec::new(), filters }).await?;
        Ok(found.into_iter().filter(|template| template.name.starts_with(NAME_PREFIX)).collect())
    }

    fn gives_up_spot_tags(&self, failure: &Failure) -> bool {
        let gives_up = denies_spot_tags(&failure.code, &failure.message) && self.leave_out_spot_tags();
        if gives_up {
            tracing::warn!(%failure, "may not tag spot requests; they go untagged from now on");
        }
        gives_up
    }

    fn sizes(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.user_data_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether AWS refused because spot requests may not be tagged, as policies of earlier years have it. The words may come with a
/// failed call, or as an error of a fleet.
pub fn denies_spot_tags(code: &str, message: &str) -> bool {
    Failure::new("", code, message).is_denied() && message.contains("spot-instances-request")
}

/// The tags of everything that is made for a class and a pool. Ours win over the user's.
pub fn tags(class: &Ec2NodeClass, pool: Option<&PoolName>, cluster_name: &str) -> Tags {
    let mut tags = class.spec.tags.clone().unwrap_or_default();
    tags.extend([
        (format!("kubernetes.io/cluster/{cluster_name}"), "owned".to_owned()),
        (keys::NODE_POOL.to_owned(), pool.map(|pool| pool.0.to_string()).unwrap_or_default()),
        (CLUSTER_TAG.to_owned(), cluster_name.to_owned()),
        (keys::EC2_NODE_CLASS.to_owned(), class_name(class)),
    ]);
    tags
}

impl From<TemplateError> for CloudError {
    fn from(error: TemplateError) -> Self {
        let message: Text = error.to_string().into();
        let failed = |reason: &str| Self::LaunchFailed { reason: reason.into(), message: message.clone() };
        match error {
            TemplateError::Aws(failure) if failure.is_throttled() => {
                Self::Throttled { message, retry_after: Duration::from_secs(1) }
            }
            TemplateError::Aws(failure) if failure.is_denied() => failed("Unauthorized"),
            TemplateError::Aws(_) => failed("LaunchFailed"),
            TemplateError::UserData { source: BootstrapError::TooLarge { .. }, .. } => {
                failed("UserDataSizeLimitExceeded")
            }
            TemplateError::UserData { source: BootstrapError::NoServiceCidr, .. } => Self::ClassNotReady { message },
            TemplateError::UserData { .. } => failed("InvalidUserData"),
            TemplateError::Class { .. } => Self::ClassNotReady { message },
            TemplateError::NoImage { .. } => failed("LaunchFailed"),
            TemplateError::Kubelet(error) => error,
        }
    }
}

fn class_name(class: &Ec2NodeClass) -> String {
    class.metadata.name.clone().unwrap_or_default()
}

/// By name. More than one is EC2's contradiction in terms.
async fn lookup(wire: &dyn Aws, name: &str) -> Result<Option<Template>, Failure> {
    let query = TemplateQuery { names: vec![name.to_owned()], filters: Vec::new() };
    match wire.describe_launch_templates(query).await {
        Err(failure) if failure.is_not_found() => Ok(None),
        Err(failure) => Err(failure),
        Ok(mut found) if found.len() == 1 => Ok(found.pop()),
        Ok(found) => {
            let message = format!("{} launch templates are called {name}; one was expected", found.len());
            Err(Failure::new("ec2:DescribeLaunchTemplates", "", &message))
        }
    }
}

/// One that is gone already is gone.
async fn delete(wire: &dyn Aws, id: String) -> Result<(), Failure> {
    match wire.delete_launch_template(id).await {
        Err(failure) if failure.is_not_found() => Ok(()),
        answer => answer,
    }
}

#[cfg(test)]
mod tests;
