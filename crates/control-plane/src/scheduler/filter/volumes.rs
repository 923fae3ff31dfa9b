//! The checks about storage: disks and claims for one pod alone, attach limits, where volumes are and could be made.

use std::collections::{BTreeMap, BTreeSet};

use super::super::cluster::Cluster;
use super::super::node::NodeInfo;
use super::super::pod::PodFacts;
use super::super::storage::{Claim, Class};
use super::super::verdict::{Filter, Reason, Refusal, Verdict};
use super::{Setback, for_now, never};
use crate::store::Key;

const ZONE_LABELS: [&str; 4] = [
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

/// What all nodes have in common for this pod's volumes.
#[derive(Clone, Default)]
pub(super) struct Volumes<'a> {
    bound: Vec<&'a Claim>,
    /// Unbound claims that wait for a node.
    waiting: Vec<&'a Claim>,
    /// Names of claims that only one pod may use, and how many pods use them already.
    exclusive: BTreeSet<String>,
    n_conflicts: i64,
    /// Zone labels of bound volumes: on such a node, this label must have one of these values.
    zones: Vec<(String, BTreeSet<String>)>,
}

/// How a pod's unbound claims would be met on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodVolumes {
    /// Claim and volume.
    pub(crate) bind: Vec<(Key, String)>,
    pub(crate) provision: Vec<Provision>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Provision {
    pub(crate) claim: Key,
}

impl<'a> Volumes<'a> {
    pub(super) fn begin(cluster: &'a Cluster, pod: &PodFacts) -> Result<Self, (Filter, Setback)> {
        let mut volumes = Self::default();
        if pod.claims.is_empty() {
            return Ok(volumes);
        }
        volumes.restrict(cluster, pod).map_err(|setback| (Filter::VolumeRestrictions, setback))?;
        volumes.sort_claims(cluster, pod).map_err(|setback| (Filter::VolumeBinding, setback))?;
        volumes.find_zones(cluster, pod).map_err(|setback| (Filter::VolumeZone, setback))?;
        Ok(volumes)
    }

    fn restrict(&mut self, cluster: &Cluster, pod: &PodFacts) -> Result<(), Setback> {
        for used in pod.claims.iter().filter(|used| !used.is_ephemeral) {
            let key = Key::new(&pod.key.namespace, &used.name);
            let claim = cluster.storage.claims.get(&key).ok_or_else(|| not_found(&used.name))?;
            if claim.is_for_one_pod() && self.exclusive.insert(used.name.clone()) {
                self.n_conflicts += i64::from(cluster.n_users(&key) > 0);
            }
        }
        Ok(())
    }

    fn sort_claims(&mut self, cluster: &'a Cluster, pod: &PodFacts) -> Result<(), Setback> {
        let mut is_immediate = false;
        let mut claims = Vec::new();
        for used in &pod.claims {
            let name = &used.name;
            let Some(claim) = cluster.storage.claims.get(&Key::new(&pod.key.namespace, name)) else {
                return Err(if used.is_ephemeral {
                    refused(format!(
                        "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{name}\""
                    ))
                } else {
                    not_found(name)
                });
            };
            if claim.is_lost {
                let volume = &claim.volume;
                return Err(refused(format!(
                    "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""
                )));
            }
            if claim.is_deleting {
                return Err(refused(format!("persistentvolumeclaim \"{name}\" is being deleted")));
            }
            if used.is_ephemeral && claim.controller_uid.as_deref() != Some(&*pod.uid) {
                let (namespace, pod) = (&pod.key.namespace, &pod.key.name);
                return Err(refused(format!(
                    "PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"
                )));
            }
            claims.push(claim);
        }
        for claim in claims {
            let waits = cluster.storage.classes.get(&claim.class).is_some_and(|class| class.waits_for_consumer);
            if claim.is_bound {
                self.bound.push(claim);
            } else if waits && claim.volume.is_empty() {
                self.waiting.push(claim);
            } else {
                is_immediate = true;
            }
        }
        if is_immediate {
            return Err(refused("pod has unbound immediate PersistentVolumeClaims".to_owned()));
        }
        Ok(())
    }

    fn find_zones(&mut self, cluster: &Cluster, pod: &PodFacts) -> Result<(), Setback> {
        for used in pod.claims.iter().filter(|used| !used.is_ephemeral) {
            let Some(claim) = cluster.storage.claims.get(&Key::new(&pod.key.namespace, &used.name)) else { continue };
            if claim.volume.is_empty() {
                continue;
            }
            let Some(volume) = cluster.storage.volumes.get(&claim.volume) else {
                return Err(refused(format!("persistentvolume \"{}\" not found", claim.volume)));
            };
            for label in ZONE_LABELS {
                let Some(value) = volume.labels.get(label) else { continue };
                let values: BTreeSet<String> = value.split("__").map(|zone| zone.trim().to_owned()).collect();
                if !values.contains("") {
                    self.zones.push((label.to_owned(), values));
                }
            }
        }
        Ok(())
    }

    pub(super) fn judge(&self, cluster: &Cluster, pod: &PodFacts, node: &NodeInfo) -> Verdict {
        let refused = disks(pod, node)
            .or_else(|| (self.n_conflicts > 0).then(|| for_now(Filter::VolumeRestrictions, Reason::ClaimInUse)))
            .or_else(|| limits(cluster, pod, node));
        if let Some(refusal) = refused {
            return Verdict::Refused(refusal);
        }
        match self.plan(cluster, node) {
            Err(message) => return Verdict::Error(message),
            Ok((_, reasons)) if !reasons.is_empty() => {
                return Verdict::Refused(Refusal { reasons, could_yield: false, filter: Filter::VolumeBinding });
            }
            Ok(_) => {}
        }
        self.zone(node).map_or(Verdict::Fits, Verdict::Refused)
    }

    pub(super) fn shift(&mut self, pod: &PodFacts, other: &PodFacts, sign: i64) {
        if pod.key.namespace != other.key.namespace {
            return;
        }
        for used in other.claims.iter().filter(|used| !used.is_ephemeral) {
            if self.exclusive.contains(&used.name) {
                self.n_conflicts += sign;
            }
        }
    }

    fn zone(&self, node: &NodeInfo) -> Option<Refusal> {
        let labels = &node.facts.labels;
        if !ZONE_LABELS.iter().any(|label| labels.contains_key(*label)) {
            return None;
        }
        let is_met = |(label, values): &(String, BTreeSet<String>)| {
            let value = labels.get(label).or_else(|| labels.get(current_name(label)));
            value.is_some_and(|value| values.contains(value))
        };
        (!self.zones.iter().all(is_met)).then(|| never(Filter::VolumeZone, Reason::VolumeZone))
    }

    /// How unbound claims would be met here, and what stands against it.
    pub(super) fn plan(&self, cluster: &Cluster, node: &NodeInfo) -> Result<(PodVolumes, Vec<Reason>), String> {
        let labels = &node.facts.labels;
        let (mut reasons, mut plan) = (Vec::new(), PodVolumes::default());
        let mut is_missing = false;
        for claim in &self.bound {
            match cluster.storage.volumes.get(&claim.volume) {
                None => {
                    is_missing = true;
                    break;
                }
                Some(volume) if !volume.is_reachable_from(labels) => {
                    reasons.push(Reason::VolumeElsewhere);
                    break;
                }
                Some(_) => {}
            }
        }
        if !self.waiting.is_empty() {
            self.meet_waiting(cluster, node, &mut plan, &mut reasons)?;
        }
        if is_missing {
            reasons.push(Reason::VolumeMissing);
        }
        Ok((plan, reasons))
    }

    fn meet_waiting(
        &self,
        cluster: &Cluster,
        node: &NodeInfo,
        plan: &mut PodVolumes,
        reasons: &mut Vec<Reason>,
    ) -> Result<(), String> {
        let labels = &node.facts.labels;
        let (mut to_provision, mut to_find) = (Vec::new(), Vec::new());
        for claim in &self.waiting {
            match &claim.selected_node {
                Some(selected) if *selected != node.facts.name => {
                    reasons.push(Reason::NoVolume);
                    return Ok(());
                }
                Some(_) => to_provision.push(*claim),
                None => to_find.push(*claim),
            }
        }
        to_find.sort_by_key(|claim| claim.size);
        let mut taken = Vec::new();
        for claim in to_find {
            match cluster.storage.find_volume(claim, labels, &taken) {
                Some(volume) => {
                    taken.push(volume.name.clone());
                    plan.bind.push((claim.key.clone(), volume.name.clone()));
                }
                None => to_provision.push(claim),
            }
        }
        for claim in to_provision {
            let class: &Class = cluster
                .storage
                .classes
                .get(&claim.class)
                .ok_or_else(|| format!("failed to find storage class \"{}\"", claim.class))?;
            if !class.provisions() || !class.allows(labels) {
                reasons.push(Reason::NoVolume);
                return Ok(());
            }
            if !cluster.storage.has_room(claim, &claim.class, class, labels) {
                reasons.push(Reason::NoStorageRoom);
                return Ok(());
            }
            plan.provision.push(Provision { claim: claim.key.clone() });
        }
        Ok(())
    }
}

/// Disks named in the pod that another pod on the node has.
fn disks(pod: &PodFacts, node: &NodeInfo) -> Option<Refusal> {
    let is_in_use = !pod.disks.is_empty()
        && node
            .pods
            .values()
            .any(|other| pod.disks.iter().any(|disk| other.disks.iter().any(|theirs| disk.conflicts(theirs))));
    is_in_use.then(|| for_now(Filter::VolumeRestrictions, Reason::DiskInUse))
}

/// How many volumes of a driver a node can hold.
fn limits(cluster: &Cluster, pod: &PodFacts, node: &NodeInfo) -> Option<Refusal> {
    if pod.claims.is_empty() {
        return None;
    }
    let limits = cluster.storage.limits(&node.facts.name)?;
    let volumes_of = |pod: &PodFacts| -> BTreeSet<(String, String)> {
        let keys = pod.claims.iter().map(|used| Key::new(&pod.key.namespace, &used.name));
        keys.filter_map(|key| cluster.storage.driver_of(cluster.storage.claims.get(&key)?)).collect()
    };
    let mut new = volumes_of(pod);
    if new.is_empty() {
        return None;
    }
    let mut attached: BTreeSet<(String, String)> = node.pods.values().flat_map(|other| volumes_of(other)).collect();
    new.retain(|volume| !attached.contains(volume));
    attached.extend(cluster.storage.attached_to(&node.facts.name));
    let count = |volumes: &BTreeSet<(String, String)>| {
        let mut per_driver: BTreeMap<String, i64> = BTreeMap::new();
        for (driver, _) in volumes {
            *per_driver.entry(driver.clone()).or_default() += 1;
        }
        per_driver
    };
    let held = count(&attached);
    let is_too_many = count(&new).iter().any(|(driver, more)| {
        limits.get(driver).is_some_and(|limit| held.get(driver).copied().unwrap_or(0) + more > *limit)
    });
    is_too_many.then(|| for_now(Filter::NodeVolumeLimits, Reason::TooManyVolumes))
}

fn current_name(label: &str) -> &str {
    match label {
        "failure-domain.beta.kubernetes.io/region" => "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone" => "topology.kubernetes.io/zone",
        label => label,
    }
}

fn not_found(claim: &str) -> Setback {
    refused(format!("persistentvolumeclaim \"{claim}\" not found"))
}

fn refused(message: String) -> Setback {
    Setback::Refused { message, is_about_claims: true }
}
