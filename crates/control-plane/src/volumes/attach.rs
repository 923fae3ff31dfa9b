//! Attaches volumes to the nodes of the pods that use them, and detaches them when the pods are gone.
//!
//! A volume that its node still lists as in use is left attached, unless the node is lost for six minutes or is said to be out of
//! service: who detaches a disk under a running program loses data.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{AttachedVolume, Node, ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{
    CSIDriver, VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec, VolumeAttachmentStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::VolumeOptions;
use super::matching::is_shareable;
use super::users::Users;
use crate::drive::Controller;
use crate::hands::{Event, Hands};
use crate::kind::Subresource;
use crate::kubelet::agenda::Agenda;
use crate::kubelet::{ATTACHED_BY_CONTROLLER, after, digest, volume_name};
use crate::nodes::KnownNode;
use crate::nodes::OUT_OF_SERVICE;
use crate::store::{Change, ChangeKind, Key};

const FORCE_AFTER: SignedDuration = SignedDuration::from_mins(6);
const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(1);

#[derive(Debug)]
pub struct AttachDetach {
    options: VolumeOptions,
    users: Users,
    /// The volume of a bound claim, and the claim of a volume.
    volume_of: BTreeMap<Key, String>,
    claim_of: BTreeMap<String, Key>,
    volumes: BTreeMap<String, Disk>,
    nodes: BTreeMap<String, Host>,
    attachments: BTreeMap<String, Attachment>,
    by_volume: BTreeMap<String, BTreeSet<String>>,
    by_node: BTreeMap<String, BTreeSet<String>>,
    /// Drivers whose volumes nobody attaches.
    unattached_drivers: BTreeSet<String>,
    changed: BTreeSet<String>,
    /// Since when a volume is wanted off a node, by attachment.
    unwanted: BTreeMap<String, Timestamp>,
    /// Pods that were told that they must wait.
    told: BTreeSet<(String, Key)>,
    agenda: Agenda<Due>,
}

/// A volume that can be attached.
#[derive(Clone, Debug)]
struct Disk {
    driver: String,
    /// As nodes list it.
    unique: String,
    is_shareable: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Host {
    is_there: bool,
    is_ready: bool,
    is_out_of_service: bool,
    /// Whether volumes are attached to it from here at all.
    is_managed: bool,
    in_use: BTreeSet<String>,
    attached: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct Attachment {
    volume: String,
    node: String,
    is_attached: bool,
    is_deleting: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The simulated attacher is done with an attachment, one way or the other.
    Attacher(String),
    Volume(String),
}

/// What to do about an attachment that no pod wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detach {
    Now,
    /// Not before this, unless the node lets go of it.
    WaitUntil(Timestamp),
    /// The node is well and will let go of it.
    Wait,
}

fn may_detach(host: &Host, unique: &str, unwanted_since: Timestamp, now: Timestamp) -> Detach {
    if !host.in_use.contains(unique) || host.is_out_of_service {
        return Detach::Now;
    }
    let force_at = after(unwanted_since, FORCE_AFTER);
    match host.is_ready {
        true => Detach::Wait,
        false if force_at <= now => Detach::Now,
        false => Detach::WaitUntil(force_at),
    }
}

impl Host {
    fn of(node: &Node) -> Self {
        let status = node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        let annotations = node.metadata.annotations.as_ref();
        Self {
            is_there: true,
            is_ready: conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"),
            is_out_of_service: taints.iter().any(|taint| taint.key == OUT_OF_SERVICE && taint.effect == "NoExecute"),
            is_managed: annotations
                .and_then(|annotations| annotations.get(ATTACHED_BY_CONTROLLER))
                .is_some_and(|value| value == "true"),
            in_use: status.and_then(|status| status.volumes_in_use.clone()).unwrap_or_default().into_iter().collect(),
            attached: status
                .and_then(|status| status.volumes_attached.as_ref())
                .into_iter()
                .flatten()
                .map(|volume| volume.name.clone())
                .collect(),
        }
    }
}

impl AttachDetach {
    #[must_use]
    pub fn new(options: VolumeOptions) -> Self {
        Self {
            options,
            users: Users::default(),
            volume_of: BTreeMap::new(),
            claim_of: BTreeMap::new(),
            volumes: BTreeMap::new(),
            nodes: BTreeMap::new(),
            attachments: BTreeMap::new(),
            by_volume: BTreeMap::new(),
            by_node: BTreeMap::new(),
            unattached_drivers: BTreeSet::new(),
            changed: BTreeSet::new(),
            unwanted: BTreeMap::new(),
            told: BTreeSet::new(),
            agenda: Agenda::default(),
        }
    }

    fn observe_claim(&mut self, change: &Change) {
        let key = change.object.key.clone();
        let claim = change.object.read::<PersistentVolumeClaim>().filter(|_| change.kind != ChangeKind::Deleted);
        let volume = claim.and_then(|claim| claim.spec?.volume_name).filter(|name| !name.is_empty());
        let before = match &volume {
            Some(volume) => self.volume_of.insert(key.clone(), volume.clone()),
            None => self.volume_of.remove(&key),
        };
        if before == volume {
            return;
        }
        if let Some(before) = before {
            self.claim_of.remove(&before);
            self.changed.insert(before);
        }
        if let Some(volume) = volume {
            self.claim_of.insert(volume.clone(), key);
            self.changed.insert(volume);
        }
    }

    fn observe_volume(&mut self, change: &Change) {
        let name = change.object.key.name.clone();
        // What was attached stays known: it must still be detached.
        if change.kind == ChangeKind::Deleted {
            self.changed.insert(name);
            return;
        }
        let Some(volume) = change.object.read::<PersistentVolume>() else { return };
        let driver = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()).map(|csi| csi.driver.clone());
        if let (Some(driver), Some(unique)) = (driver, volume_name(&volume)) {
            self.volumes.insert(name.clone(), Disk { driver, unique, is_shareable: is_shareable(&volume) });
            self.changed.insert(name);
        }
    }

    fn observe_node(&mut self, change: &Change) {
        let name = change.object.key.name.clone();
        let host = KnownNode::read(&change.object)
            .as_deref()
            .map(|node| Host::of(node))
            .filter(|_| change.kind != ChangeKind::Deleted);
        let host = match host {
            Some(host) => host,
            // A node that is gone can no longer say that it has let go of its volumes.
            None => match self.nodes.get(&name) {
                Some(known) => Host { is_there: false, is_ready: false, is_out_of_service: false, ..known.clone() },
                None => return,
            },
        };
        if self.nodes.get(&name) == Some(&host) {
            return;
        }
        let is_new = !self.nodes.contains_key(&name);
        let attachments = self.by_node.get(&name).into_iter().flatten();
        self.changed.extend(attachments.filter_map(|name| self.attachments.get(name)).map(|one| one.volume.clone()));
        if is_new {
            // Pods may have been there before their node.
            self.changed.extend(self.claim_of.keys().cloned());
        }
        if !host.is_there && !self.by_node.contains_key(&name) {
            self.nodes.remove(&name);
        } else {
            self.nodes.insert(name, host);
        }
    }

    fn observe_attachment(&mut self, change: &Change) {
        let name = change.object.key.name.clone();
        if let Some(known) = self.attachments.remove(&name) {
            for (index, key) in [(&mut self.by_volume, &known.volume), (&mut self.by_node, &known.node)] {
                if let Some(names) = index.get_mut(key) {
                    names.remove(&name);
                    if names.is_empty() {
                        index.remove(key);
                    }
                }
            }
            self.changed.insert(known.volume);
        }
        let attachment = change.object.read::<VolumeAttachment>().filter(|_| change.kind != ChangeKind::Deleted);
        let Some(attachment) = attachment else {
            self.unwanted.remove(&name);
            self.agenda.cancel(&Due::Attacher(name));
            return;
        };
        let Some(volume) = attachment.spec.source.persistent_volume_name.clone() else { return };
        let node = attachment.spec.node_name.clone();
        self.by_volume.entry(volume.clone()).or_default().insert(name.clone());
        self.by_node.entry(node.clone()).or_default().insert(name.clone());
        self.changed.insert(volume.clone());
        let is_attached = attachment.status.as_ref().is_some_and(|status| status.attached);
        let is_deleting = attachment.metadata.deletion_timestamp.is_some();
        self.attachments.insert(name, Attachment { volume, node, is_attached, is_deleting });
    }

    fn reconcile(&mut self, volume: &str, hands: &mut Hands<'_>) {
        let Some(disk) = self.volumes.get(volume).cloned() else { return };
        let wanted = self.wanted_on(volume, &disk);
        let names: Vec<String> = self.by_volume.get(volume).into_iter().flatten().cloned().collect();
        for name in &names {
            let Some(attachment) = self.attachments.get(name).cloned() else { continue };
            if attachment.is_deleting || attachment.is_attached == wanted.contains_key(&attachment.node) {
                self.settle(name, &attachment, &disk, wanted.get(&attachment.node), hands);
            } else if attachment.is_attached {
                self.detach(name, &attachment, &disk, hands);
            } else {
                self.schedule_attacher(name, self.options.attach, hands.now());
            }
        }
        for (node, pods) in &wanted {
            let elsewhere = names.iter().filter_map(|name| self.attachments.get(name)).any(|one| one.node != *node);
            let here = names.iter().filter_map(|name| self.attachments.get(name)).any(|one| one.node == *node);
            if here {
                continue;
            }
            if elsewhere && !disk.is_shareable {
                self.tell_taken(volume, node, pods, hands);
            } else {
                // Refused means that somebody else made it: then it will be seen here soon.
                let _ = hands.create(&attachment(volume, node, &disk));
            }
        }
    }

    /// The nodes that should have the volume, and the pods there that use it.
    fn wanted_on(&self, volume: &str, disk: &Disk) -> BTreeMap<String, Vec<Key>> {
        let mut wanted: BTreeMap<String, Vec<Key>> = BTreeMap::new();
        let Some(claim) = self.claim_of.get(volume).filter(|_| !self.unattached_drivers.contains(&disk.driver)) else {
            return wanted;
        };
        for (pod, user) in self.users.of(claim) {
            let is_managed = self.nodes.get(&user.node).is_some_and(|host| host.is_there && host.is_managed);
            if is_managed && !user.is_finished {
                wanted.entry(user.node.clone()).or_default().push(pod.clone());
            }
        }
        wanted
    }

    /// An attachment that is as it should be, or on its way out: what remains is to tell.
    fn settle(
        &mut self,
        name: &str,
        attachment: &Attachment,
        disk: &Disk,
        pods: Option<&Vec<Key>>,
        hands: &mut Hands<'_>,
    ) {
        if attachment.is_deleting {
            self.schedule_attacher(name, self.options.detach, hands.now());
            return;
        }
        if !attachment.is_attached {
            // Nobody wants it, and it never came to be.
            let _ = hands.delete::<VolumeAttachment>("", name, &json!({}));
            return;
        }
        self.unwanted.remove(name);
        let is_listed = self.nodes.get(&attachment.node).is_none_or(|host| host.attached.contains(&disk.unique));
        if is_listed {
            return;
        }
        if self.list_on_node(&attachment.node, &disk.unique, true, hands) {
            for pod in pods.into_iter().flatten() {
                self.told.remove(&(attachment.volume.clone(), pod.clone()));
                let note = format!("AttachVolume.Attach succeeded for volume \"{}\" ", attachment.volume);
                tell(hands, pod, "Normal", "SuccessfulAttachVolume", note);
            }
        } else {
            self.agenda.set(Due::Volume(attachment.volume.clone()), after(hands.now(), RETRY_AFTER));
        }
    }

    fn detach(&mut self, name: &str, attachment: &Attachment, disk: &Disk, hands: &mut Hands<'_>) {
        let now = hands.now();
        let since = *self.unwanted.entry(name.to_owned()).or_insert(now);
        let host = self.nodes.get(&attachment.node).cloned().unwrap_or_default();
        match may_detach(&host, &disk.unique, since, now) {
            Detach::Wait => {}
            Detach::WaitUntil(then) => self.agenda.set(Due::Volume(attachment.volume.clone()), then),
            Detach::Now => {
                if host.is_there && host.attached.contains(&disk.unique) {
                    self.list_on_node(&attachment.node, &disk.unique, false, hands);
                }
                // Somebody may have deleted it before us.
                let _ = hands.delete::<VolumeAttachment>("", name, &json!({}));
            }
        }
    }

    /// Adds the volume to what the node has attached, or takes it away. Whether it is so now.
    fn list_on_node(&mut self, name: &str, unique: &str, is_attached: bool, hands: &mut Hands<'_>) -> bool {
        let Some(mut node) = hands.get::<Node>("", name) else { return true };
        let list = node.status.get_or_insert_default().volumes_attached.get_or_insert_default();
        let before = list.len();
        list.retain(|volume| volume.name != unique);
        if is_attached {
            list.push(AttachedVolume { name: unique.to_owned(), device_path: String::new() });
        }
        if list.len() == before {
            return true;
        }
        let written = hands.update_status(&node);
        if let (Ok(node), Some(host)) = (&written, self.nodes.get_mut(name)) {
            *host = Host::of(node);
        }
        written.is_ok()
    }

    fn schedule_attacher(&mut self, name: &str, delay: SignedDuration, now: Timestamp) {
        let due = Due::Attacher(name.to_owned());
        if self.agenda.when(&due).is_none() {
            self.agenda.set(due, after(now, delay));
        }
    }

    /// The simulated attacher: it attaches what was made, and lets go of what is deleted.
    fn attacher(&mut self, name: &str, hands: &mut Hands<'_>) {
        let Some(live) = hands.get::<VolumeAttachment>("", name) else { return };
        let finalizer = attacher_finalizer(&live.spec.attacher);
        let finalizers = live.metadata.finalizers.clone().unwrap_or_default();
        if live.metadata.deletion_timestamp.is_some() {
            let rest: Vec<&String> = finalizers.iter().filter(|one| **one != finalizer).collect();
            let patch = json!({"metadata": {"finalizers": rest}});
            // Gone is what we want it to be.
            let _ = hands.merge_patch::<VolumeAttachment>("", name, None, &patch);
            return;
        }
        if !finalizers.contains(&finalizer) {
            let patch = json!({"metadata": {"finalizers": [finalizer]}});
            let _ = hands.merge_patch::<VolumeAttachment>("", name, None, &patch);
        }
        let patch = json!({"status": {"attached": true}});
        let _ = hands.merge_patch::<VolumeAttachment>("", name, Some(Subresource::Status), &patch);
    }

    /// One node at a time: the others are told whom they wait for, once.
    fn tell_taken(&mut self, volume: &str, node: &str, pods: &[Key], hands: &mut Hands<'_>) {
        let others: Vec<Key> = self
            .claim_of
            .get(volume)
            .map(|claim| self.users.of(claim))
            .into_iter()
            .flatten()
            .filter(|(_, user)| !user.node.is_empty() && user.node != node && !user.is_finished)
            .map(|(pod, _)| pod.clone())
            .collect();
        let why = if others.is_empty() {
            "Volume is already exclusively attached to one node and can't be attached to another".to_owned()
        } else {
            let names: Vec<&str> = others.iter().map(|pod| pod.name.as_str()).collect();
            format!("Volume is already used by pod(s) {}", names.join(", "))
        };
        for pod in pods {
            if self.told.insert((volume.to_owned(), pod.clone())) {
                let note = format!("Multi-Attach error for volume \"{volume}\" {why}");
                tell(hands, pod, "Warning", "FailedAttachVolume", note);
            }
        }
    }
}

impl Controller for AttachDetach {
    fn name(&self) -> &'static str {
        "attachdetach-controller"
    }

    fn observe(&mut self, change: &Change) {
        match (change.resource.group.as_str(), change.resource.plural.as_str()) {
            ("", "pods") => {
                for claim in self.users.observe(change) {
                    self.changed.extend(self.volume_of.get(&claim).cloned());
                }
                if change.kind == ChangeKind::Deleted {
                    self.told.retain(|(_, pod)| *pod != change.object.key);
                }
            }
            ("", "persistentvolumeclaims") => self.observe_claim(change),
            ("", "persistentvolumes") => self.observe_volume(change),
            ("", "nodes") => self.observe_node(change),
            ("storage.k8s.io", "volumeattachments") => self.observe_attachment(change),
            ("storage.k8s.io", "csidrivers") => {
                let name = change.object.key.name.clone();
                let driver = change.object.read::<CSIDriver>().filter(|_| change.kind != ChangeKind::Deleted);
                if driver.is_some_and(|driver| driver.spec.attach_required == Some(false)) {
                    self.unattached_drivers.insert(name);
                } else {
                    self.unattached_drivers.remove(&name);
                }
            }
            _ => {}
        }
    }

    fn work(&mut self, hands: &mut Hands<'_>) -> Option<Timestamp> {
        while let Some(due) = self.agenda.take_due(hands.now()) {
            match due {
                Due::Attacher(name) => self.attacher(&name, hands),
                Due::Volume(volume) => {
                    self.changed.insert(volume);
                }
            }
        }
        while let Some(volume) = self.changed.pop_first() {
            self.reconcile(&volume, hands);
        }
        self.agenda.next()
    }
}

fn attachment(volume: &str, node: &str, disk: &Disk) -> VolumeAttachment {
    VolumeAttachment {
        metadata: ObjectMeta {
            name: Some(format!("csi-{}", digest(&format!("{}{node}", disk.unique)))),
            ..ObjectMeta::default()
        },
        spec: VolumeAttachmentSpec {
            attacher: disk.driver.clone(),
            node_name: node.to_owned(),
            source: VolumeAttachmentSource {
                persistent_volume_name: Some(volume.to_owned()),
                inline_volume_spec: None,
            },
        },
        status: Some(VolumeAttachmentStatus { attached: false, ..VolumeAttachmentStatus::default() }),
    }
}

/// `external-attacher/ebs-csi-aws-com`.
fn attacher_finalizer(driver: &str) -> String {
    let plain: String = driver.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    format!("external-attacher/{plain}")
}

fn tell(hands: &mut Hands<'_>, pod: &Key, kind: &str, reason: &str, note: String) {
    let uid = hands.get::<k8s_openapi::api::core::v1::Pod>(&pod.namespace, &pod.name).and_then(|pod| pod.metadata.uid);
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(pod.namespace.clone()),
        name: Some(pod.name.clone()),
        uid,
        ..ObjectReference::default()
    };
    hands.event(Event { about, kind, reason, action: "", note, component: "attachdetach-controller" });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_in_use_is_detached_only_when_its_node_is_lost() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let using = |is_ready: bool, is_out_of_service: bool| Host {
            is_there: true,
            is_ready,
            is_out_of_service,
            in_use: BTreeSet::from(["v".to_owned()]),
            ..Host::default()
        };
        let cases = [
            (Host::default(), 0, Detach::Now),
            (using(true, false), 0, Detach::Wait),
            (using(true, false), 1000, Detach::Wait),
            (using(false, false), 100, Detach::WaitUntil(at(360))),
            (using(false, false), 360, Detach::Now),
            (using(false, true), 0, Detach::Now),
        ];
        for (host, now, expected) in cases {
            assert_eq!(may_detach(&host, "v", at(0), at(now)), expected, "{host:?} at {now}");
        }
    }
}
