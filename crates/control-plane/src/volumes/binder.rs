//! Binds claims to volumes, has volumes made for claims, reclaims what was released, and protects what is in use.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    Node, ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus, Pod,
};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::json;

use super::VolumeOptions;
use super::matching::{best_match, class_of_claim, is_for, satisfies};
use super::provision::{PROVISIONED_BY, PROVISIONER_FINALIZER, ZONE, place, reference, volume};
use super::users::{User, Users};
use crate::drive::Controller;
use crate::error::ApiResult;
use crate::hands::{Event, Hands};
use crate::kubelet::agenda::Agenda;
use crate::kubelet::{after, time};
use crate::store::{Change, ChangeKind, Key};

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const OLD_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
/// What could not be written is tried again as often as the real controller looks at everything.
const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(15);

#[derive(Debug)]
pub struct Binder {
    options: VolumeOptions,
    claims: BTreeMap<Key, PersistentVolumeClaim>,
    volumes: BTreeMap<String, PersistentVolume>,
    classes: BTreeMap<String, StorageClass>,
    users: Users,
    zone_of_node: BTreeMap<String, String>,
    n_nodes_in_zone: BTreeMap<String, usize>,
    /// Volumes that no claim has.
    unclaimed: BTreeSet<String>,
    /// Volumes that name a claim, by claim.
    reserved: BTreeMap<Key, BTreeSet<String>>,
    /// Claims that are not bound.
    unbound: BTreeSet<Key>,
    changed_claims: BTreeSet<Key>,
    changed_volumes: BTreeSet<String>,
    changed_pods: BTreeSet<Key>,
    /// The last thing that was told about a claim: it is told once, not at every look.
    told: BTreeMap<Key, String>,
    provisioning: Agenda<Key>,
    again: Agenda<Key>,
}

impl Binder {
    #[must_use]
    pub fn new(options: VolumeOptions) -> Self {
        Self {
            options,
            claims: BTreeMap::new(),
            volumes: BTreeMap::new(),
            classes: BTreeMap::new(),
            users: Users::default(),
            zone_of_node: BTreeMap::new(),
            n_nodes_in_zone: BTreeMap::new(),
            unclaimed: BTreeSet::new(),
            reserved: BTreeMap::new(),
            unbound: BTreeSet::new(),
            changed_claims: BTreeSet::new(),
            changed_volumes: BTreeSet::new(),
            changed_pods: BTreeSet::new(),
            told: BTreeMap::new(),
            provisioning: Agenda::default(),
            again: Agenda::default(),
        }
    }

    fn observe_claim(&mut self, change: &Change) {
        let key = change.object.key.clone();
        // A volume hears of everything that happens to its claim.
        let volumes = self.reserved.get(&key).cloned().unwrap_or_default();
        self.changed_volumes.extend(volumes);
        let claim = change.object.read::<PersistentVolumeClaim>().filter(|_| change.kind != ChangeKind::Deleted);
        let Some(claim) = claim else {
            self.claims.remove(&key);
            self.unbound.remove(&key);
            self.told.remove(&key);
            self.provisioning.cancel(&key);
            self.again.cancel(&key);
            return;
        };
        self.know_claim(key.clone(), claim);
        self.changed_claims.insert(key);
    }

    fn know_claim(&mut self, key: Key, claim: PersistentVolumeClaim) {
        if annotation(&claim.metadata, BIND_COMPLETED).is_some() {
            self.unbound.remove(&key);
        } else {
            self.unbound.insert(key.clone());
        }
        self.claims.insert(key, claim);
    }

    fn observe_volume(&mut self, change: &Change) {
        let name = change.object.key.name.clone();
        self.forget_volume(&name);
        let volume = change.object.read::<PersistentVolume>().filter(|_| change.kind != ChangeKind::Deleted);
        let Some(volume) = volume else { return };
        let is_free = claim_of(&volume).is_none();
        self.know_volume(name.clone(), volume);
        self.changed_volumes.insert(name);
        if is_free {
            self.changed_claims.extend(self.unbound.iter().cloned());
        }
    }

    fn know_volume(&mut self, name: String, volume: PersistentVolume) {
        self.forget_volume(&name);
        match claim_of(&volume) {
            Some(claim) => {
                self.reserved.entry(claim).or_default().insert(name.clone());
            }
            None => {
                self.unclaimed.insert(name.clone());
            }
        }
        self.volumes.insert(name, volume);
    }

    fn forget_volume(&mut self, name: &str) {
        let Some(volume) = self.volumes.remove(name) else { return };
        self.unclaimed.remove(name);
        if let Some(claim) = claim_of(&volume) {
            if let Some(volumes) = self.reserved.get_mut(&claim) {
                volumes.remove(name);
                if volumes.is_empty() {
                    self.reserved.remove(&claim);
                }
            }
            self.changed_claims.insert(claim);
        }
    }

    /// The labels of nodes stand beside them: no node is parsed for its zone.
    fn observe_node(&mut self, change: &Change) {
        let name = &change.object.key.name;
        let zone = change.object.label(ZONE).filter(|_| change.kind != ChangeKind::Deleted);
        if self.zone_of_node.get(name).map(String::as_str) == zone {
            return;
        }
        if let Some(before) = self.zone_of_node.remove(name) {
            let n_nodes = self.n_nodes_in_zone.entry(before.clone()).or_default();
            *n_nodes = n_nodes.saturating_sub(1);
            if *n_nodes == 0 {
                self.n_nodes_in_zone.remove(&before);
            }
        }
        if let Some(zone) = zone {
            self.zone_of_node.insert(name.clone(), zone.to_owned());
            *self.n_nodes_in_zone.entry(zone.to_owned()).or_default() += 1;
        }
    }

    fn sync_claim(&mut self, key: &Key, hands: &mut Hands<'_>) {
        let Some(claim) = self.claims.get(key).cloned() else { return };
        if claim.metadata.deletion_timestamp.is_some() && self.release_claim(key, &claim, hands) {
            return;
        }
        let synced = if annotation(&claim.metadata, BIND_COMPLETED).is_some() {
            self.sync_bound(key, claim, hands)
        } else {
            self.sync_unbound(key, claim, hands)
        };
        if synced.is_err() {
            self.again.set(key.clone(), after(hands.now(), RETRY_AFTER));
        }
    }

    /// Lets a claim go that nobody uses. Whether it went.
    fn release_claim(&mut self, key: &Key, claim: &PersistentVolumeClaim, hands: &mut Hands<'_>) -> bool {
        let has_finalizer = finalizers(&claim.metadata).any(|finalizer| finalizer == CLAIM_FINALIZER);
        let is_owned_by = |pod: &Key| {
            claim.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "Pod" && owner.name == pod.name)
        };
        // A pod that was never scheduled does not hold its claim, nor does a finished one hold the claim that was made for it.
        let is_over = |pod: &Key, user: &User| user.is_finished && user.has_ephemeral && is_owned_by(pod);
        let mut users = self.users.of(key).filter(|(_, user)| !user.node.is_empty());
        let is_used = users.any(|(pod, user)| !is_over(pod, user));
        if !has_finalizer || is_used {
            return false;
        }
        let rest: Vec<&String> =
            finalizers(&claim.metadata).filter(|finalizer| *finalizer != CLAIM_FINALIZER).collect();
        let patch = json!({"metadata": {"finalizers": rest}});
        hands.merge_patch::<PersistentVolumeClaim>(&key.namespace, &key.name, None, &patch).is_ok()
    }

    fn sync_unbound(&mut self, key: &Key, claim: PersistentVolumeClaim, hands: &mut Hands<'_>) -> ApiResult<()> {
        let wanted = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
        if !wanted.is_empty() {
            return self.sync_asked(key, claim, &wanted, hands);
        }
        let class = self.classes.get(class_of_claim(&claim)).cloned();
        let is_delayed =
            class.as_ref().is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
        let candidates = self.reserved.get(key).into_iter().flatten().chain(&self.unclaimed);
        let candidates = candidates.filter_map(|name| self.volumes.get(name));
        if let Some(volume) = best_match(&claim, candidates, is_delayed).cloned() {
            return self.bind(key, volume, claim, hands);
        }
        if let Some(default) = self.default_class_for(&claim) {
            let patch = json!({"spec": {"storageClassName": default}});
            hands.merge_patch::<PersistentVolumeClaim>(&key.namespace, &key.name, None, &patch)?;
            return Ok(());
        }
        if is_delayed && annotation(&claim.metadata, SELECTED_NODE).is_none() {
            let (reason, note) = self.why_waiting(key);
            self.tell(key, &claim, "Normal", reason, note, hands);
        } else if class_of_claim(&claim).is_empty() {
            let note = "no persistent volumes available for this claim and no storage class is set".to_owned();
            self.tell(key, &claim, "Normal", "FailedBinding", note, hands);
        } else {
            return self.ask_provisioner(key, claim, class, hands);
        }
        Ok(())
    }

    /// A claim that named no class gets the default one as soon as there is one.
    fn default_class_for(&self, claim: &PersistentVolumeClaim) -> Option<String> {
        let spec = claim.spec.as_ref()?;
        if spec.storage_class_name.is_some() || !class_of_claim(claim).is_empty() {
            return None;
        }
        let is_default =
            |class: &&StorageClass| DEFAULT_CLASS.iter().any(|key| annotation(&class.metadata, key) == Some("true"));
        // The youngest of several, and the first by name of those.
        let classes = self.classes.values().filter(is_default);
        let newest = classes.min_by_key(|class| {
            let created = class.metadata.creation_timestamp.as_ref().map(|created| created.0);
            (std::cmp::Reverse(created), class.metadata.name.clone())
        });
        newest.and_then(|class| class.metadata.name.clone())
    }

    fn why_waiting(&self, key: &Key) -> (&'static str, String) {
        let pods: Vec<&str> =
            self.users.of(key).filter(|(_, user)| user.node.is_empty()).map(|(pod, _)| pod.name.as_str()).collect();
        match pods.as_slice() {
            [] => ("WaitForFirstConsumer", "waiting for first consumer to be created before binding".to_owned()),
            [pod] => ("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
            pods => ("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", pods.join(","))),
        }
    }

    /// A claim that names its volume.
    fn sync_asked(
        &mut self,
        key: &Key,
        claim: PersistentVolumeClaim,
        wanted: &str,
        hands: &mut Hands<'_>,
    ) -> ApiResult<()> {
        let Some(volume) = self.volumes.get(wanted).cloned() else { return Ok(()) };
        match volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) {
            Some(reference) if !is_for(reference, &claim) => {
                let note = format!("volume \"{wanted}\" already bound to a different claim.");
                self.tell(key, &claim, "Warning", "FailedBinding", note, hands);
                Ok(())
            }
            Some(_) => self.bind(key, volume, claim, hands),
            None => match satisfies(&volume, &claim) {
                Ok(()) => self.bind(key, volume, claim, hands),
                Err(why) => {
                    let note = format!("Cannot bind to requested volume \"{wanted}\": {why}");
                    self.tell(key, &claim, "Warning", "VolumeMismatch", note, hands);
                    Ok(())
                }
            },
        }
    }

    fn sync_bound(&mut self, key: &Key, claim: PersistentVolumeClaim, hands: &mut Hands<'_>) -> ApiResult<()> {
        let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
        let lost = match self.volumes.get(&name) {
            _ if name.is_empty() => {
                ("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
            }
            None => ("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!"),
            Some(volume) => {
                let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
                if reference.is_none_or(|reference| reference.uid == claim.metadata.uid) {
                    return self.bind(key, volume.clone(), claim, hands);
                }
                ("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
            }
        };
        if phase_of(&claim) == "Lost" {
            return Ok(());
        }
        let status =
            PersistentVolumeClaimStatus { phase: Some("Lost".to_owned()), ..PersistentVolumeClaimStatus::default() };
        let written = hands.update_status(&PersistentVolumeClaim { status: Some(status), ..claim })?;
        self.tell(key, &written, "Warning", lost.0, lost.1.to_owned(), hands);
        Ok(())
    }

    /// Ties both ends, and says so in both statuses. Writes only what is not yet so.
    fn bind(
        &mut self,
        key: &Key,
        mut volume: PersistentVolume,
        mut claim: PersistentVolumeClaim,
        hands: &mut Hands<'_>,
    ) -> ApiResult<()> {
        let name = volume.metadata.name.clone().unwrap_or_default();
        let spec = volume.spec.get_or_insert_default();
        let had_reference = spec.claim_ref.is_some();
        if spec.claim_ref.as_ref().and_then(|reference| reference.uid.as_ref()) != claim.metadata.uid.as_ref() {
            spec.claim_ref = Some(reference(&claim));
            if !had_reference {
                annotate(&mut volume.metadata, BOUND_BY_CONTROLLER, "yes");
            }
            volume = hands.update(&volume)?;
            self.know_volume(name.clone(), volume.clone());
        }
        self.set_volume_phase(&name, "Bound", hands)?;
        let spec = claim.spec.get_or_insert_default();
        let is_new = spec.volume_name.as_ref() != Some(&name);
        if is_new || annotation(&claim.metadata, BIND_COMPLETED).is_none() {
            claim.spec.get_or_insert_default().volume_name = Some(name.clone());
            if is_new {
                annotate(&mut claim.metadata, BOUND_BY_CONTROLLER, "yes");
            }
            annotate(&mut claim.metadata, BIND_COMPLETED, "yes");
            claim = hands.update(&claim)?;
            self.know_claim(key.clone(), claim.clone());
        }
        let spec = volume.spec.unwrap_or_default();
        let before = claim.status.clone().unwrap_or_default();
        let status = PersistentVolumeClaimStatus {
            phase: Some("Bound".to_owned()),
            access_modes: spec.access_modes,
            capacity: if before.phase.as_deref() == Some("Bound") { before.capacity.clone() } else { spec.capacity },
            ..before.clone()
        };
        if status != before {
            claim.status = Some(status);
            claim = hands.update_status(&claim)?;
            self.know_claim(key.clone(), claim);
        }
        self.told.remove(key);
        Ok(())
    }

    fn set_volume_phase(&mut self, name: &str, phase: &str, hands: &mut Hands<'_>) -> ApiResult<()> {
        let Some(volume) = self.volumes.get(name) else { return Ok(()) };
        let before = volume.status.clone().unwrap_or_default();
        if before.phase.as_deref() == Some(phase) {
            return Ok(());
        }
        let mut volume = volume.clone();
        let status = volume.status.get_or_insert_default();
        status.phase = Some(phase.to_owned());
        status.last_phase_transition_time = Some(time(hands.now()));
        let written = hands.update_status(&volume)?;
        self.know_volume(name.to_owned(), written);
        Ok(())
    }

    fn ask_provisioner(
        &mut self,
        key: &Key,
        claim: PersistentVolumeClaim,
        class: Option<StorageClass>,
        hands: &mut Hands<'_>,
    ) -> ApiResult<()> {
        let Some(class) = class else {
            let note = format!("storageclass.storage.k8s.io \"{}\" not found", class_of_claim(&claim));
            self.tell(key, &claim, "Warning", "ProvisioningFailed", note, hands);
            return Ok(());
        };
        let provisioner = class.provisioner;
        if provisioner.starts_with("kubernetes.io/") {
            let note = format!("no volume plugin matched name: {provisioner}");
            self.tell(key, &claim, "Warning", "ProvisioningFailed", note, hands);
            return Ok(());
        }
        if annotation(&claim.metadata, PROVISIONER) != Some(&provisioner) {
            let annotations = json!({OLD_PROVISIONER: provisioner, PROVISIONER: provisioner});
            let patch = json!({"metadata": {"annotations": annotations}});
            let written = hands.merge_patch::<PersistentVolumeClaim>(&key.namespace, &key.name, None, &patch)?;
            self.know_claim(key.clone(), written);
        }
        let note = format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
             system administrator. If volume creation is delayed, please verify that the provisioner is running and \
             correctly registered."
        );
        self.tell(key, &claim, "Normal", "ExternalProvisioning", note, hands);
        if self.provisioning.when(key).is_none() && claim.metadata.deletion_timestamp.is_none() {
            self.provisioning.set(key.clone(), after(hands.now(), self.options.provision));
        }
        Ok(())
    }

    /// The simulated provisioner.
    fn provision(&mut self, key: &Key, hands: &mut Hands<'_>) -> ApiResult<()> {
        let Some(claim) = self.claims.get(key).filter(|_| self.unbound.contains(key)).cloned() else { return Ok(()) };
        let Some(class) = self.classes.get(class_of_claim(&claim)).cloned() else { return Ok(()) };
        let selected = annotation(&claim.metadata, SELECTED_NODE);
        let labels = selected.map(|name| {
            let node = hands.get::<Node>("", name);
            node.map(|node| node.metadata.labels.unwrap_or_default())
        });
        let driver_keys = selected
            .and_then(|name| hands.get::<CSINode>("", name))
            .and_then(|node| node.spec.drivers.into_iter().find(|driver| driver.name == class.provisioner))
            .and_then(|driver| driver.topology_keys)
            .unwrap_or_default();
        let zones: Vec<&str> = self.n_nodes_in_zone.keys().map(String::as_str).collect();
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        let place = match &labels {
            Some(None) => None,
            Some(Some(labels)) => place(&class, &uid, Some((labels, &driver_keys)), &zones),
            None => place(&class, &uid, None, &zones),
        };
        let Some(place) = place else {
            // The node went away, or was a bad choice: the scheduler shall choose again.
            let patch = json!({"metadata": {"annotations": {SELECTED_NODE: null}}});
            hands.merge_patch::<PersistentVolumeClaim>(&key.namespace, &key.name, None, &patch)?;
            return Ok(());
        };
        let note = format!("External provisioner is provisioning volume for claim \"{}/{}\"", key.namespace, key.name);
        event(hands, about_claim(&claim), "Normal", "Provisioning", note, &class.provisioner);
        let made = hands.create(&volume(&claim, &class, &place))?;
        let name = made.metadata.name.clone().unwrap_or_default();
        let note = format!("Successfully provisioned volume {name}");
        event(hands, about_claim(&claim), "Normal", "ProvisioningSucceeded", note, &class.provisioner);
        self.know_volume(name, made);
        self.changed_claims.insert(key.clone());
        Ok(())
    }

    fn sync_volume(&mut self, name: &str, hands: &mut Hands<'_>) -> ApiResult<()> {
        let Some(volume) = self.volumes.get(name).cloned() else { return Ok(()) };
        let phase = volume.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone());
        let is_deleting = volume.metadata.deletion_timestamp.is_some();
        let reference = reference.filter(|reference| reference.uid.as_deref().is_some_and(|uid| !uid.is_empty()));
        let Some(reference) = reference else {
            self.set_volume_phase(name, "Available", hands)?;
            return if is_deleting { self.release_volume(name, hands) } else { Ok(()) };
        };
        let claim_key =
            Key::new(reference.namespace.as_deref().unwrap_or_default(), reference.name.as_deref().unwrap_or_default());
        match self.claims.get(&claim_key).filter(|claim| claim.metadata.uid == reference.uid) {
            None => {
                if phase != "Released" && phase != "Failed" {
                    self.set_volume_phase(name, "Released", hands)?;
                }
                self.reclaim(name, hands)
            }
            Some(claim) => {
                let bound_to = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
                if bound_to == name {
                    self.set_volume_phase(name, "Bound", hands)?;
                } else if bound_to.is_empty() {
                    self.changed_claims.insert(claim_key);
                }
                Ok(())
            }
        }
    }

    /// The simulated provisioner deletes what it made, if it was made to be deleted.
    fn reclaim(&mut self, name: &str, hands: &mut Hands<'_>) -> ApiResult<()> {
        let Some(volume) = self.volumes.get(name) else { return Ok(()) };
        let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
        let is_ours = annotation(&volume.metadata, PROVISIONED_BY).is_some();
        if policy == Some("Delete") && is_ours && volume.metadata.deletion_timestamp.is_none() {
            hands.delete::<PersistentVolume>("", name, &json!({}))?;
        }
        self.release_volume(name, hands)
    }

    fn release_volume(&mut self, name: &str, hands: &mut Hands<'_>) -> ApiResult<()> {
        let Some(volume) = hands.get::<PersistentVolume>("", name) else { return Ok(()) };
        let is_ours = |finalizer: &&String| *finalizer == VOLUME_FINALIZER || *finalizer == PROVISIONER_FINALIZER;
        if volume.metadata.deletion_timestamp.is_none() || !finalizers(&volume.metadata).any(|one| is_ours(&one)) {
            return Ok(());
        }
        let rest: Vec<&String> = finalizers(&volume.metadata).filter(|finalizer| !is_ours(finalizer)).collect();
        let patch = json!({"metadata": {"finalizers": rest}});
        hands.merge_patch::<PersistentVolume>("", name, None, &patch).map(|_| ())
    }

    /// Makes the claims that a pod brings along.
    fn make_ephemeral_claims(&mut self, key: &Key, hands: &mut Hands<'_>) {
        let Some(pod) = hands.get::<Pod>(&key.namespace, &key.name) else { return };
        if pod.metadata.deletion_timestamp.is_some() {
            return;
        }
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: key.name.clone(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let template = volume.ephemeral.as_ref().and_then(|source| source.volume_claim_template.as_ref());
            let Some(template) = template else { continue };
            let name = format!("{}-{}", key.name, volume.name);
            if self.claims.contains_key(&Key::new(&key.namespace, &name)) {
                continue;
            }
            let meta = template.metadata.clone().unwrap_or_default();
            let claim = PersistentVolumeClaim {
                metadata: ObjectMeta {
                    name: Some(name),
                    namespace: Some(key.namespace.clone()),
                    labels: meta.labels,
                    annotations: meta.annotations,
                    owner_references: Some(vec![owner.clone()]),
                    ..ObjectMeta::default()
                },
                spec: Some(template.spec.clone()),
                status: None,
            };
            if let Err(error) = hands.create(&claim) {
                let note = format!("ephemeral volume {}: {}", volume.name, error.message);
                let about = ObjectReference { kind: Some("Pod".to_owned()), ..about(&pod.metadata) };
                event(hands, about, "Warning", "FailedToCreateClaim", note, "ephemeral_volume");
            }
        }
    }

    fn tell(
        &mut self,
        key: &Key,
        claim: &PersistentVolumeClaim,
        kind: &str,
        reason: &str,
        note: String,
        hands: &mut Hands<'_>,
    ) {
        let words = format!("{reason} {note}");
        if self.told.get(key) != Some(&words) {
            self.told.insert(key.clone(), words);
            event(hands, about_claim(claim), kind, reason, note, "persistentvolume-controller");
        }
    }
}

impl Controller for Binder {
    fn name(&self) -> &'static str {
        "persistentvolume-binder"
    }

    fn observe(&mut self, change: &Change) {
        match (change.resource.group.as_str(), change.resource.plural.as_str()) {
            ("", "persistentvolumeclaims") => self.observe_claim(change),
            ("", "persistentvolumes") => self.observe_volume(change),
            ("", "nodes") => self.observe_node(change),
            ("", "pods") => {
                let claims = self.users.observe(change);
                self.changed_claims.extend(claims);
                let key = &change.object.key;
                if change.kind == ChangeKind::Added && self.users.get(key).is_some_and(|user| user.has_ephemeral) {
                    self.changed_pods.insert(key.clone());
                }
            }
            ("storage.k8s.io", "storageclasses") => {
                let name = change.object.key.name.clone();
                match change.object.read::<StorageClass>().filter(|_| change.kind != ChangeKind::Deleted) {
                    Some(class) => {
                        self.classes.insert(name, class);
                        self.changed_claims.extend(self.unbound.iter().cloned());
                    }
                    None => {
                        self.classes.remove(&name);
                    }
                }
            }
            _ => {}
        }
    }

    fn work(&mut self, hands: &mut Hands<'_>) -> Option<Timestamp> {
        for pod in std::mem::take(&mut self.changed_pods) {
            self.make_ephemeral_claims(&pod, hands);
        }
        while let Some(claim) = self.again.take_due(hands.now()) {
            self.changed_claims.insert(claim);
        }
        while let Some(claim) = self.provisioning.take_due(hands.now()) {
            if self.provision(&claim, hands).is_err() {
                self.provisioning.set(claim, after(hands.now(), RETRY_AFTER));
            }
        }
        loop {
            if let Some(name) = self.changed_volumes.pop_first() {
                if self.sync_volume(&name, hands).is_err() {
                    // Whoever was quicker has changed the volume, and so it comes up again.
                    continue;
                }
            } else if let Some(key) = self.changed_claims.pop_first() {
                self.sync_claim(&key, hands);
            } else {
                break;
            }
        }
        [self.again.next(), self.provisioning.next()].into_iter().flatten().min()
    }
}

fn claim_of(volume: &PersistentVolume) -> Option<Key> {
    let reference = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(Key::new(reference.namespace.as_deref().unwrap_or_default(), reference.name.as_deref().unwrap_or_default()))
}

fn phase_of(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

fn annotate(meta: &mut ObjectMeta, key: &str, value: &str) {
    meta.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
}

fn finalizers(meta: &ObjectMeta) -> impl Iterator<Item = &String> {
    meta.finalizers.iter().flatten()
}

fn about(meta: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        ..ObjectReference::default()
    }
}

fn about_claim(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference { kind: Some("PersistentVolumeClaim".to_owned()), ..about(&claim.metadata) }
}

fn event(hands: &mut Hands<'_>, about: ObjectReference, kind: &str, reason: &str, note: String, component: &str) {
    hands.event(Event { about, kind, reason, action: "", note, component });
}
