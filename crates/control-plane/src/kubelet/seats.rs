//! What kubelets do for their nodes: boot, register, post conditions, renew leases.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::CSINode;
use serde_json::json;

use super::life::{Images, after};
use super::machine::{Machine, Order, Trouble};
use super::node::{LEASE_NAMESPACE, complete_fake, csi_node, lease, post_conditions, reference, registration};
use super::{Due, Kubelets, Power, Seat, Seen, tell};
use crate::clock::micros;
use crate::hands::Hands;

impl Kubelets {
    pub(super) fn obey(&mut self, order: Order, hands: &Hands<'_>) {
        let now = hands.now();
        match order {
            Order::Boot(machine) => self.boot(*machine, now),
            Order::PowerOff(name) => {
                if let Some(seat) = self.seats.get_mut(&name) {
                    seat.power = Power::Off;
                    self.forget_dates(&name);
                }
            }
            Order::PowerOn(name) => {
                let Some(seat) = self.seats.get_mut(&name).filter(|seat| seat.power == Power::Off) else { return };
                let delay = seat.machine.as_ref().map(|machine| machine.boot_delay).unwrap_or_default();
                seat.power = Power::Booting;
                self.agenda.set(Due::Boot(name), after(now, delay));
            }
            Order::Terminate(name) => self.vanish(&name, hands),
            Order::Trouble(name, trouble, is_there) => self.trouble(&name, trouble, is_there, now),
        }
    }

    fn boot(&mut self, mut machine: Machine, now: Timestamp) {
        if self.seats.get(&machine.name).is_some_and(|seat| seat.machine.is_some()) {
            return;
        }
        let internal_ip = machine.internal_ip.clone().unwrap_or_else(|| self.node_ip());
        let name = machine.name.clone();
        let mut seat = Seat::new(None, &name, internal_ip, Power::Booting);
        seat.images = Images::with(&machine.images, now);
        self.agenda.set(Due::Boot(name.clone()), after(now, machine.boot_delay));
        machine.capacity = self.capacities.share(machine.capacity);
        machine.allocatable = self.capacities.share(machine.allocatable);
        seat.machine = Some(machine);
        self.seats.insert(name, seat);
    }

    /// The kubelet and all it ran are gone, without a word.
    fn vanish(&mut self, name: &str, hands: &Hands<'_>) {
        self.forget_dates(name);
        self.seats.remove(name);
        for pod in hands.pods_on(name) {
            self.leave(&pod.key);
        }
    }

    fn forget_dates(&mut self, name: &str) {
        for due in [Due::Boot, Due::Ready, Due::Status, Due::Lease] {
            self.agenda.cancel(&due(name.to_owned()));
        }
    }

    fn trouble(&mut self, name: &str, trouble: Trouble, is_there: bool, now: Timestamp) {
        let Some(seat) = self.seats.get_mut(name) else { return };
        let is_news =
            if is_there { seat.health.troubles.insert(trouble) } else { seat.health.troubles.remove(&trouble) };
        if is_news && seat.is_up() {
            self.agenda.set(Due::Status(name.to_owned()), now);
        }
    }

    pub(super) fn node_changed(&mut self, name: &str, hands: &Hands<'_>) {
        let now = hands.now();
        let Some(seat) = self.seats.get_mut(name) else { return };
        let is_fake = seat.machine.is_none();
        match &seat.node {
            None if is_fake => return self.vanish(name, hands),
            None => {
                self.agenda.cancel(&Due::Status(name.to_owned()));
                self.agenda.cancel(&Due::Lease(name.to_owned()));
                return;
            }
            Some(seen) if is_fake && !seen.is_fake => return self.vanish(name, hands),
            Some(_) => {}
        }
        if !seat.is_up() {
            return;
        }
        if is_fake {
            seat.health.is_up = true;
        }
        let is_ready = seat.health.is_up && !seat.health.troubles.contains(&Trouble::NotReady);
        let is_said = seat.node.as_ref().is_some_and(|seen| seen.is_ready == is_ready);
        if !is_said {
            self.agenda.set(Due::Status(name.to_owned()), now);
        }
        if self.agenda.when(&Due::Status(name.to_owned())).is_none() {
            self.agenda.set(Due::Status(name.to_owned()), after(now, self.options.status_every));
        }
        if self.agenda.when(&Due::Lease(name.to_owned())).is_none() {
            self.agenda.set(Due::Lease(name.to_owned()), now);
        }
        self.note_waiting_pods_of(name, hands);
    }

    /// Pods that came before their kubelet, and pods that wait for a volume to be attached.
    fn note_waiting_pods_of(&mut self, name: &str, hands: &Hands<'_>) {
        for pod in hands.pods_on(name) {
            let waits = self.homes.get(&pod.key).is_none_or(|home| home.life.waits_for_volumes());
            let is_finished = matches!(pod.field("status.phase"), Some("Failed" | "Succeeded"));
            if waits && (pod.is_deleting || !is_finished) {
                self.note(pod.key.clone());
            }
        }
    }

    /// The kubelet starts: it makes its node, or finds it made.
    pub(super) fn register(&mut self, name: &str, hands: &mut Hands<'_>) {
        let now = hands.now();
        let Some(seat) = self.seats.get_mut(name) else { return };
        seat.power = Power::Up;
        seat.health.is_up = false;
        let tells = self.options.tells_events && seat.machine.is_some();
        if tells {
            tell(hands, reference(name), "Normal", "Starting", "Starting kubelet.".to_owned());
        }
        let ready_delay = seat.machine.as_ref().map(|machine| machine.ready_delay).unwrap_or_default();
        if let Some(machine) = &seat.machine {
            let wanted = registration(machine, &seat.internal_ip, now);
            let node = match hands.create(&wanted) {
                Ok(node) => Some(node),
                Err(error) if error.reason == "AlreadyExists" => hands.get::<Node>("", name).and_then(|found| {
                    let status = found.status.clone().unwrap_or_default();
                    let wanted = wanted.status.unwrap_or_default();
                    // What others put into the status stays there.
                    let kept = k8s_openapi::api::core::v1::NodeStatus {
                        volumes_attached: status.volumes_attached,
                        volumes_in_use: status.volumes_in_use,
                        ..wanted
                    };
                    hands.update_status(&Node { status: Some(kept), ..found }).ok()
                }),
                Err(_) => None,
            };
            let Some(node) = node else {
                // Refused or in conflict: a kubelet tries again, for ever.
                seat.power = Power::Booting;
                self.agenda.set(Due::Boot(name.to_owned()), after(now, jiff::SignedDuration::from_secs(10)));
                return;
            };
            let _ = hands.create(&csi_node(&node, seat.machine.as_ref()));
            seat.see(Some(Seen::of(&node.into(), &mut self.amounts)));
        }
        if tells {
            for reason in ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"] {
                let note = format!("Node {name} status is now: {reason}");
                tell(hands, reference(name), "Normal", reason, note);
            }
            let note = "Updated Node Allocatable limit across pods".to_owned();
            tell(hands, reference(name), "Normal", "NodeAllocatableEnforced", note);
        }
        self.agenda.set(Due::Lease(name.to_owned()), now);
        self.agenda.set(Due::Ready(name.to_owned()), after(now, ready_delay));
        self.agenda.set(Due::Status(name.to_owned()), after(now, self.options.status_every));
        self.note_pods_of(name, hands);
    }

    /// The network is there: the node becomes ready.
    pub(super) fn come_up(&mut self, name: &str, hands: &mut Hands<'_>) {
        let Some(seat) = self.seats.get_mut(name).filter(|seat| seat.is_up()) else { return };
        seat.health.is_up = true;
        self.post_status(name, hands);
        self.note_pods_of(name, hands);
    }

    pub(super) fn post_status(&mut self, name: &str, hands: &mut Hands<'_>) {
        let now = hands.now();
        let Some(seat) = self.seats.get_mut(name).filter(|seat| seat.is_up()) else { return };
        let Some(mut node) = hands.get::<Node>("", name) else { return };
        let is_fake = seat.machine.is_none();
        if is_fake {
            complete_fake(&mut node, &seat.internal_ip);
        }
        let status = node.status.get_or_insert_default();
        let changed = post_conditions(status, &seat.health, now);
        let in_use: Vec<String> = seat.volumes.keys().cloned().collect();
        status.volumes_in_use = Some(in_use).filter(|volumes| !volumes.is_empty());
        match hands.update_status(&node) {
            Ok(node) => {
                let is_first = seat.node.as_ref().is_none_or(|seen| !seen.is_ready);
                if is_fake && is_first && hands.get::<CSINode>("", name).is_none() {
                    let _ = hands.create(&csi_node(&node, None));
                }
                seat.see(Some(Seen::of(&node.into(), &mut self.amounts)));
                if self.options.tells_events && !is_fake {
                    for reason in changed {
                        let note = format!("Node {name} status is now: {reason}");
                        tell(hands, reference(name), "Normal", reason, note);
                    }
                }
                self.agenda.set(Due::Status(name.to_owned()), after(now, self.options.status_every));
            }
            // Somebody else wrote first, or the server would not have it: a kubelet looks again within seconds.
            Err(error) => {
                let wait = if error.reason == "Conflict" { 0 } else { 10 };
                if error.code != 404 {
                    self.agenda.set(Due::Status(name.to_owned()), after(now, jiff::SignedDuration::from_secs(wait)));
                }
            }
        }
    }

    pub(super) fn renew_lease(&mut self, name: &str, hands: &mut Hands<'_>) {
        let now = hands.now();
        if !self.seats.get(name).is_some_and(|seat| seat.is_up() && seat.node.is_some()) {
            return;
        }
        let patch = json!({"spec": {"renewTime": micros(now)}});
        let renewed = hands.merge_patch::<Lease>(LEASE_NAMESPACE, name, None, &patch);
        if renewed.is_err_and(|error| error.code == 404)
            && let Some(node) = hands.get::<Node>("", name)
        {
            // Where even that fails, the next renewal tries again.
            let _ = hands.create(&lease(&node, now));
        }
        self.agenda.set(Due::Lease(name.to_owned()), after(now, self.options.lease_every));
    }
}
