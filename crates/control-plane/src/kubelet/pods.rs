//! What kubelets do for their pods: let them in or refuse them, live their lives, write their statuses, and see them off.

use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, PodStatus};
use serde_json::json;

use super::admission::{admit, host_ports};
use super::amount::{add, pod_requests, subtract};
use super::life::{Life, Told, after};
use super::script::script;
use super::status::{Addresses, full_name, go_duration, living, refused};
use super::volumes::{Volumes, look};
use super::{Due, Home, Kubelets, tell};
use crate::error::ApiError;
use crate::hands::Hands;
use crate::store::{Key, Stored};

/// The model has no sizes; a pulled image is told to be this large.
const IMAGE_BYTES: u64 = 50_000_000;
const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(10);
/// A status is written on top of what somebody else has just written, at most so often in one go.
const WRITES_MAX: usize = 3;

impl Kubelets {
    /// Looks after one pod: whatever is to be done for it now.
    pub(super) fn tend(&mut self, key: &Key, hands: &mut Hands<'_>) {
        let Some(stored) = hands.pod(key).cloned() else { return self.leave(key) };
        let node = stored.field("spec.nodeName").unwrap_or_default().to_owned();
        if self.homes.get(key).is_some_and(|home| home.uid != stored.uid) {
            self.leave(key);
        }
        if !self.seats.get(&node).is_some_and(super::Seat::is_up) {
            return;
        }
        let Some(pod) = stored.read::<Pod>() else { return };
        if !self.homes.contains_key(key) {
            if matches!(stored.field("status.phase"), Some("Failed" | "Succeeded")) {
                return see_off(&pod, hands);
            }
            if !self.let_in(&stored, &node, &pod, hands) {
                return;
            }
        }
        self.wait_for_volumes(key, &pod, hands);
        if stored.is_deleting {
            let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(30).max(0));
            let told = match self.homes.get_mut(key) {
                Some(home) => home.life.stop(hands.now(), grace),
                None => Vec::new(),
            };
            self.tell_all(&pod, &told, hands);
        }
        self.live(key, pod, hands);
    }

    /// Whether the pod was admitted.
    fn let_in(&mut self, stored: &Stored, node: &str, pod: &Pod, hands: &mut Hands<'_>) -> bool {
        let key = &stored.key;
        let requests = pod_requests(pod);
        let is_leaving = pod.metadata.deletion_timestamp.is_some();
        let Some(seat) = self.seats.get(node) else { return false };
        let node_name = Arc::clone(&seat.room.name);
        if let Err(why) = admit(pod, &requests, &seat.room)
            && !is_leaving
        {
            let status = refused(pod, &why, hands.now());
            match write(pod, status, hands) {
                Ok(_) => tell(hands, about(pod, None), "Warning", &why.reason, why.message.clone()),
                Err(_) => self.pods_due.set(key.clone(), after(hands.now(), RETRY_AFTER)),
            }
            return false;
        }
        let uses_host_network = pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false);
        let pod_ip = if uses_host_network { String::new() } else { self.pod_ip() };
        let home = Home {
            node: node_name,
            uid: Arc::clone(&stored.uid),
            life: Life::new(self.scripts.share(script(pod, &self.options.pace).into()), hands.now()),
            ports: host_ports(pod).into(),
            requests: self.amounts.share(requests.into()),
            pod_ip: pod_ip.into(),
            volumes: Box::default(),
            uses_host_network,
            written: 0,
        };
        if let Some(seat) = self.seats.get_mut(node) {
            add(&mut seat.room.used, &home.requests);
            seat.room.n_pods += 1;
            seat.room.ports.extend(home.ports.iter().cloned());
        }
        self.homes.insert(key.clone(), Box::new(home));
        true
    }

    /// A pod starts once its claims are bound, its volumes attached, and its node's network is there.
    fn wait_for_volumes(&mut self, key: &Key, pod: &Pod, hands: &mut Hands<'_>) {
        let Some(home) = self.homes.get_mut(key).filter(|home| home.life.waits_for_volumes()) else { return };
        let Some(seat) = self.seats.get_mut(&*home.node) else { return };
        let claim_key = |claim: String| Key::new(&key.namespace, &claim);
        let volumes = match look(pod, hands) {
            Volumes::Unbound { claim } => {
                self.waiting_for.entry(claim_key(claim)).or_default().insert(key.clone());
                return;
            }
            Volumes::Bound(volumes) => volumes,
        };
        if *home.volumes != *volumes {
            for volume in &volumes {
                *seat.volumes.entry(volume.clone()).or_default() += 1;
            }
            home.volumes = volumes.into();
            self.agenda.set(Due::Status(home.node.to_string()), hands.now());
        }
        let attached = seat.node.as_ref().and_then(|seen| seen.attached.as_ref());
        let has_all = home.volumes.iter().all(|volume| attached.is_none_or(|attached| attached.contains(volume)));
        if has_all && (seat.health.is_up || home.uses_host_network) {
            home.life.go(hands.now());
        }
    }

    /// Lives the pod's life until now, and writes what became of it.
    fn live(&mut self, key: &Key, pod: Pod, hands: &mut Hands<'_>) {
        let now = hands.now();
        let Some(home) = self.homes.get_mut(key) else { return };
        let Some(seat) = self.seats.get_mut(&*home.node) else { return };
        let told = home.life.advance(now, &mut seat.images);
        let addresses = Addresses { host: seat.internal_ip.clone(), pod: home.pod_ip.to_string() };
        let is_over = home.life.is_over;
        if let Some(next) = home.life.next() {
            self.pods_due.set(key.clone(), next);
        }
        let (life, uid) = (home.life.clone(), home.uid.clone());
        self.tell_all(&pod, &told, hands);
        let status_of = |pod: &Pod| living(pod, &life, &addresses, now);
        match write_until_said(pod, &uid, status_of, hands) {
            Ok(pod) => {
                if let Some(home) = self.homes.get_mut(key) {
                    home.written = revision(&pod);
                }
                if is_over {
                    self.leave(key);
                    see_off(&pod, hands);
                }
            }
            Err(error) if error.code == 404 => self.leave(key),
            Err(_) => self.pods_due.set_earlier(key.clone(), after(now, RETRY_AFTER)),
        }
    }

    /// The pod is no longer here: what it took is free again.
    pub(super) fn leave(&mut self, key: &Key) {
        self.pods_due.cancel(key);
        let Some(home) = self.homes.remove(key) else { return };
        self.waiting_for.retain(|_, pods| {
            pods.remove(key);
            !pods.is_empty()
        });
        let Some(seat) = self.seats.get_mut(&*home.node) else { return };
        subtract(&mut seat.room.used, &home.requests);
        seat.room.n_pods -= 1;
        for port in &home.ports {
            seat.room.ports.remove(port);
        }
        for volume in &home.volumes {
            let users = seat.volumes.get(volume).copied().unwrap_or(0);
            if users > 1 {
                seat.volumes.insert(volume.clone(), users - 1);
            } else if seat.volumes.remove(volume).is_some() {
                // Long since due: there is no clock at hand here, and now is the right time.
                self.agenda.set(Due::Status(home.node.to_string()), jiff::Timestamp::UNIX_EPOCH);
            }
        }
    }

    fn tell_all(&self, pod: &Pod, told: &[Told], hands: &mut Hands<'_>) {
        for one in told {
            if self.options.tells_events || matches!(one, Told::TooLate) {
                let (kind, reason, run, note) = words(pod, one);
                tell(hands, about(pod, run), kind, reason, note);
            }
        }
    }
}

/// A pod that has ended and is being deleted has nothing left to wait for.
fn see_off(pod: &Pod, hands: &mut Hands<'_>) {
    let meta = &pod.metadata;
    if meta.deletion_timestamp.is_none() || meta.deletion_grace_period_seconds == Some(0) {
        return;
    }
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": meta.uid}});
    let (namespace, name) = (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    // Somebody may have been quicker; then it is gone, which is all we wanted.
    let _ = hands.delete::<Pod>(namespace, name, &options);
}

/// Writes the status unless it stands there already; on top of a newer pod if there is one.
fn write_until_said(
    mut pod: Pod,
    uid: &str,
    status_of: impl Fn(&Pod) -> PodStatus,
    hands: &mut Hands<'_>,
) -> Result<Pod, ApiError> {
    let mut conflict = None;
    for _ in 0..WRITES_MAX {
        let status = status_of(&pod);
        if pod.status.as_ref() == Some(&status) {
            return Ok(pod);
        }
        match write(&pod, status, hands) {
            Err(error) if error.reason == "Conflict" => conflict = Some(error),
            done => return done,
        }
        let meta = &pod.metadata;
        let name = meta.name.clone().unwrap_or_default();
        let fresh = hands.get::<Pod>(meta.namespace.as_deref().unwrap_or_default(), &name);
        pod = fresh
            .filter(|fresh| fresh.metadata.uid.as_deref() == Some(uid))
            .ok_or_else(|| ApiError::not_found("", "pods", &name))?;
    }
    Err(conflict.unwrap_or_else(|| ApiError::not_found("", "pods", "")))
}

fn write(pod: &Pod, status: PodStatus, hands: &mut Hands<'_>) -> Result<Pod, ApiError> {
    hands.update_status(&Pod { status: Some(status), metadata: pod.metadata.clone(), spec: pod.spec.clone() })
}

fn revision(pod: &Pod) -> u64 {
    pod.metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn about(pod: &Pod, run: Option<usize>) -> ObjectReference {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let main = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let field_path = run.and_then(|run| match init.get(run) {
        Some(container) => Some(format!("spec.initContainers{{{}}}", container.name)),
        None => main.get(run - init.len()).map(|container| format!("spec.containers{{{}}}", container.name)),
    });
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path,
    }
}

/// Kind, reason, which container, and text of an event.
fn words(pod: &Pod, told: &Told) -> (&'static str, &'static str, Option<usize>, String) {
    let container = |run: usize| {
        let spec = pod.spec.as_ref();
        let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
        let main = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
        init.iter().chain(main).nth(run)
    };
    let image = |run: usize| container(run).and_then(|container| container.image.clone()).unwrap_or_default();
    let name = |run: usize| container(run).map(|container| container.name.clone()).unwrap_or_default();
    match *told {
        Told::Pulling(run) => ("Normal", "Pulling", Some(run), format!("Pulling image \"{}\"", image(run))),
        Told::Pulled { run, took, with_waiting } => (
            "Normal",
            "Pulled",
            Some(run),
            format!(
                "Successfully pulled image \"{}\" in {} ({} including waiting). Image size: {IMAGE_BYTES} bytes.",
                image(run),
                go_duration(took),
                go_duration(with_waiting)
            ),
        ),
        Told::AlreadyPresent(run) => (
            "Normal",
            "Pulled",
            Some(run),
            format!("Container image \"{}\" already present on machine and can be accessed by the pod", image(run)),
        ),
        Told::Created(run) => ("Normal", "Created", Some(run), "Container created".to_owned()),
        Told::Started(run) => ("Normal", "Started", Some(run), "Container started".to_owned()),
        Told::BackOff(run) => (
            "Warning",
            "BackOff",
            Some(run),
            format!("Back-off restarting failed container {} in pod {}", name(run), full_name(pod)),
        ),
        Told::Killing(run) => ("Normal", "Killing", Some(run), format!("Stopping container {}", name(run))),
        Told::TooLate => (
            "Normal",
            "DeadlineExceeded",
            None,
            "Pod was active on the node longer than the specified deadline".to_owned(),
        ),
    }
}
