//! Instance profiles: how a role gets onto a machine.
//!
//! A class that names a role has a profile of ours, under a path that says whose it is; a class that names a profile keeps
//! it, and IAM is not asked at all. When the role changes, another profile is made beside the old one, which running
//! machines still use; what nobody uses is collected later.

use crate::memory::Memory;
use crate::settings::Settings;
use crate::wire::{Aws, Failure, InstanceProfile, ProfileOrder, Tags};
use kerf_api::hash::fnv1;
use kerf_api::{Ec2NodeClass, labels};
use kerf_cloud::InUse;
use kerf_model::UnixMillis;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long IAM need not be asked what a profile holds.
const KNOWN_FOR: Duration = Duration::from_secs(15 * 60);
/// A role that does not exist is not tried again for so long.
const ROLE_MISSING_FOR: Duration = Duration::from_secs(60);
/// The profiles of before and after a change: machines may be on their way with either.
const PROTECTED_FOR: Duration = Duration::from_secs(3_600);
/// What IAM takes as a profile's name.
const NAME_MAX: usize = 128;

#[derive(Debug)]
pub(super) struct Profiles {
    /// By profile: its role.
    roles: Memory<String, String>,
    /// By role: what IAM said.
    missing_roles: Memory<String, Failure>,
    protected: Memory<String, ()>,
}

impl Default for Profiles {
    fn default() -> Self {
        Self {
            roles: Memory::new(KNOWN_FOR),
            missing_roles: Memory::new(ROLE_MISSING_FOR),
            protected: Memory::new(PROTECTED_FOR),
        }
    }
}

/// Why there is no profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoProfile {
    /// Neither a role nor a profile is written, or one that cannot be used here.
    Unusable(String),
    RoleMissing {
        role: String,
        failure: Failure,
    },
    Failed(Failure),
}

impl From<Failure> for NoProfile {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Profiles {
    /// The name of the profile that launches of the class use.
    ///
    /// Flow: the profile of the status, if it holds the role; else one that is made for class and role. Asked again, after a
    /// crash say, it comes to the same name and finishes what was begun.
    pub(super) async fn ensure(
        &self,
        wire: &dyn Aws,
        settings: &Settings,
        class: &Ec2NodeClass,
        now: UnixMillis,
    ) -> Result<String, NoProfile> {
        if let Some(profile) = &class.spec.instance_profile {
            return Ok(profile.clone());
        }
        let Some(role) = class.spec.role.as_deref().filter(|role| !role.is_empty()) else {
            return Err(NoProfile::Unusable(
                "spec.role, spec.instanceProfile: found neither; one of them would do".to_owned(),
            ));
        };
        let role = bare(role);
        if let Some(failure) = self.missing_roles.get(&role.to_owned(), now) {
            return Err(NoProfile::RoleMissing { role: role.to_owned(), failure });
        }
        let current = class.status.as_ref().and_then(|status| status.instance_profile.clone());
        if let Some(current) = &current
            && self.holds(wire, current, role, now).await?
        {
            return Ok(current.clone());
        }
        let name = self.make(wire, settings, class, role, now).await?;
        for kept in current.into_iter().chain([name.clone()]) {
            self.protected.put(kept, (), now);
        }
        Ok(name)
    }

    /// Whether a profile exists and has the role.
    async fn holds(&self, wire: &dyn Aws, name: &str, role: &str, now: UnixMillis) -> Result<bool, Failure> {
        if let Some(known) = self.roles.get(&name.to_owned(), now) {
            return Ok(known == role);
        }
        match wire.get_instance_profile(name.to_owned()).await {
            Ok(profile) => {
                let holds = profile.roles.iter().any(|held| held == role);
                if holds {
                    self.roles.put(name.to_owned(), role.to_owned(), now);
                }
                Ok(holds)
            }
            Err(failure) if failure.is_not_found() => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    async fn make(
        &self,
        wire: &dyn Aws,
        settings: &Settings,
        class: &Ec2NodeClass,
        role: &str,
        now: UnixMillis,
    ) -> Result<String, NoProfile> {
        let class_name = class.metadata.name.as_deref().unwrap_or_default();
        let uid = class.metadata.uid.as_deref().unwrap_or_default();
        let name = profile_name(settings, class_name, &format!("{uid}/{role}"));
        let (roles, is_new) = match wire.get_instance_profile(name.clone()).await {
            Ok(profile) => (profile.roles, false),
            Err(failure) if failure.is_not_found() => {
                let path = format!("{}{uid}/", path_prefix(settings));
                let order = ProfileOrder { name: name.clone(), path, tags: tags(settings, class) };
                match wire.create_instance_profile(order).await {
                    Ok(()) => (Vec::new(), true),
                    // IAM reads lag behind its writes: we made it a moment ago.
                    Err(failure) if failure.code == "EntityAlreadyExists" => (Vec::new(), false),
                    Err(failure) => return Err(failure.into()),
                }
            }
            Err(failure) => return Err(failure.into()),
        };
        for wrong in roles.iter().filter(|held| *held != role) {
            wire.remove_role_from_instance_profile(name.clone(), wrong.clone()).await?;
        }
        if !roles.iter().any(|held| held == role)
            && let Err(failure) = wire.add_role_to_instance_profile(name.clone(), role.to_owned()).await
            && failure.code != "LimitExceeded"
        {
            if is_new && let Err(left) = wire.delete_instance_profile(name.clone()).await {
                tracing::warn!(profile = %name, error = %left, "an instance profile without a role is left behind");
            }
            return Err(match failure.is_not_found() && failure.message.to_lowercase().contains("role") {
                true => {
                    self.missing_roles.put(role.to_owned(), failure.clone(), now);
                    NoProfile::RoleMissing { role: role.to_owned(), failure }
                }
                false => failure.into(),
            });
        }
        self.roles.put(name.clone(), role.to_owned(), now);
        Ok(name)
    }

    /// Removes what was made for a class: everything under its path, and the profile of older days.
    pub(super) async fn end(&self, wire: &dyn Aws, settings: &Settings, class: &Ec2NodeClass) -> Result<(), Failure> {
        if settings.is_isolated_vpc {
            return Ok(());
        }
        let uid = class.metadata.uid.as_deref().unwrap_or_default();
        let class_name = class.metadata.name.as_deref().unwrap_or_default();
        let own = class.status.as_ref().and_then(|status| status.instance_profile.clone());
        let own = own.filter(|own| class.spec.instance_profile.as_ref() != Some(own));
        match wire.list_instance_profiles(format!("{}{uid}/", path_prefix(settings))).await {
            Ok(profiles) => {
                for profile in profiles {
                    self.delete(wire, &profile).await?;
                }
            }
            // Without the list we know the one that the class used last.
            Err(failure) if failure.is_denied() => {
                if let Some(name) = own {
                    self.delete_named(wire, &name, settings).await?;
                }
            }
            Err(failure) => return Err(failure),
        }
        if class.spec.role.is_none() {
            return Ok(());
        }
        let legacy =
            format!("{}_{}", settings.cluster_name, fnv1(format!("{}{class_name}", settings.region).as_bytes()));
        match is_iam_name(&legacy) {
            true => self.delete_named(wire, &legacy, settings).await,
            false => Ok(()),
        }
    }

    /// Deletes a profile by name, if it is this cluster's.
    async fn delete_named(&self, wire: &dyn Aws, name: &str, settings: &Settings) -> Result<(), Failure> {
        let owned = format!("kubernetes.io/cluster/{}", settings.cluster_name);
        match wire.get_instance_profile(name.to_owned()).await {
            Ok(profile) if profile.tags.contains_key(&owned) => self.delete(wire, &profile).await,
            Ok(_) => Ok(()),
            Err(failure) if failure.is_not_found() => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    async fn delete(&self, wire: &dyn Aws, profile: &InstanceProfile) -> Result<(), Failure> {
        let gone_is_fine = |answer: Result<(), Failure>| match answer {
            Err(failure) if failure.is_not_found() => Ok(()),
            answer => answer,
        };
        for role in &profile.roles {
            gone_is_fine(wire.remove_role_from_instance_profile(profile.name.clone(), role.clone()).await)?;
        }
        gone_is_fine(wire.delete_instance_profile(profile.name.clone()).await)?;
        self.roles.remove(&profile.name);
        self.protected.remove(&profile.name);
        Ok(())
    }

    /// Deletes the cluster's profiles that no class, no claim and no recent change needs. Answers their names.
    pub(super) async fn collect(
        &self,
        wire: &dyn Aws,
        settings: &Settings,
        in_use: &InUse,
        now: UnixMillis,
    ) -> Result<Vec<String>, Failure> {
        let of_classes = in_use.classes.iter().filter_map(|class| class["status"]["instanceProfile"].as_str());
        let of_claims = in_use.claims.iter().filter_map(|claim| claim.annotations.get(labels::INSTANCE_PROFILE_NAME));
        let used: BTreeSet<&str> = of_classes.chain(of_claims.map(|name| &**name)).collect();
        let mut deleted = Vec::new();
        for profile in wire.list_instance_profiles(path_prefix(settings)).await? {
            let is_needed = used.contains(profile.name.as_str()) || self.protected.get(&profile.name, now).is_some();
            if !is_needed {
                self.delete(wire, &profile).await?;
                deleted.push(profile.name);
            }
        }
        Ok(deleted)
    }
}

/// `<cluster>_<hash>`, as upstream names them; `unique` tells several profiles of one class apart.
pub(super) fn profile_name(settings: &Settings, class: &str, unique: &str) -> String {
    let hash = fnv1(format!("{}{class}{unique}", settings.region).as_bytes());
    format!("{}_{hash}", settings.cluster_name)
}

pub(super) fn path_prefix(settings: &Settings) -> String {
    format!("/karpenter/{}/{}/", settings.region, settings.cluster_name)
}

fn tags(settings: &Settings, class: &Ec2NodeClass) -> Tags {
    let mut tags: Tags = class.spec.tags.clone().unwrap_or_default();
    let ours = [
        (format!("kubernetes.io/cluster/{}", settings.cluster_name), "owned"),
        ("eks:eks-cluster-name".to_owned(), settings.cluster_name.as_str()),
        (labels::EC2_NODE_CLASS.to_owned(), class.metadata.name.as_deref().unwrap_or_default()),
        (labels::REGION.to_owned(), settings.region.as_str()),
    ];
    tags.extend(ours.map(|(key, value)| (key, value.to_owned())));
    tags
}

/// IAM names roles without their path.
fn bare(role: &str) -> &str {
    role.rsplit('/').next().unwrap_or(role)
}

fn is_iam_name(name: &str) -> bool {
    name.len() <= NAME_MAX && name.chars().all(|c| c.is_ascii_alphanumeric() || "_+=,.@-".contains(c))
}

#[cfg(test)]
#[path = "profiles_tests.rs"]
mod tests;
