//! Kubelets for all simulated nodes: they register machines, keep their leases, and run the pods that are bound to them.
//!
//! ```text
//! Machines (a cloud's power buttons) ─┐                         ┌─▶ nodes: registration, conditions, CSINode, lease
//! nodes marked `kwok.x-k8s.io/node: fake` ─▶ seats: one kubelet each ─┤
//! pods bound to a seat's node ────────┘                         └─▶ pods: admission, life (script.rs, life.rs), status, end
//! ```
//!
//! One controller runs them all; what is due next stands on two agendas, and nodes come before pods: a kubelet renews its lease however much
//! its pods keep it busy, and a server under load takes no node for lost. Nothing really runs: a pod does what `script` reads off it.
//!
//! What a real kubelet does and these do not: static pods, real probes, in-place resize, eviction under pressure, preemption for critical
//! pods, waiting for missing ConfigMaps and Secrets.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ObjectReference, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::drive::Controller;
use crate::hands::{Event, Hands};
use crate::nodes::KnownNode;
use crate::shared::{Recent, Shared};
use crate::store::{Change, ChangeKind, Key};

mod admission;
pub(crate) mod agenda;
pub(crate) mod amount;
mod life;
mod machine;
mod node;
mod pods;
#[cfg(test)]
pub(crate) mod rehearsal;
mod script;
mod seats;
pub(crate) mod selector;
mod status;
#[cfg(test)]
mod tests;
mod volumes;

pub use machine::{CsiDriver, Machine, Machines, Trouble};
pub use script::Pace;

pub(crate) use life::after;
pub(crate) use node::{ATTACHED_BY_CONTROLLER, LEASE_NAMESPACE};
pub(crate) use status::{digest, time};
pub(crate) use volumes::{claims_of, volume_name};

use admission::{Port, Room};
use agenda::Agenda;
use amount::{Amounts, amounts};
use life::{Images, Life};
use node::{FAKE, Health};
use script::Script;

/// So many pods are looked after at a time; then those who watch over nodes and pods have their turn.
const PODS_PER_ROUND: usize = 500;

/// How the kubelets of a cluster behave.
#[derive(Clone, Debug)]
pub struct KubeletOptions {
    pub pace: Pace,
    /// How often a lease is renewed.
    pub lease_every: SignedDuration,
    /// How often a node's status is posted though nothing changed.
    pub status_every: SignedDuration,
    /// Whether pods' and nodes' everyday events are told. Refusals always are.
    pub tells_events: bool,
}

impl Default for KubeletOptions {
    fn default() -> Self {
        Self {
            pace: Pace::brisk(),
            lease_every: SignedDuration::from_secs(10),
            status_every: SignedDuration::from_mins(5),
            tells_events: true,
        }
    }
}

#[derive(Debug)]
pub struct Kubelets {
    options: KubeletOptions,
    machines: Machines,
    seats: BTreeMap<String, Seat>,
    homes: BTreeMap<Key, Box<Home>>,
    /// Pods that wait for a claim, by claim.
    waiting_for: BTreeMap<Key, BTreeSet<Key>>,
    changed_nodes: BTreeSet<String>,
    to_do: VecDeque<Key>,
    is_to_do: BTreeSet<Key>,
    /// What is due for nodes.
    agenda: Agenda<Due>,
    pods_due: Agenda<Key>,
    scripts: Shared<Script>,
    /// What pods ask for, and nodes have.
    amounts: Shared<Amounts>,
    capacities: Recent<BTreeMap<String, Quantity>>,
    n_nodes_seen: u32,
    n_pods_seen: u32,
}

/// One kubelet.
#[derive(Debug)]
struct Seat {
    /// None for a node that somebody made by hand.
    machine: Option<Machine>,
    power: Power,
    node: Option<Seen>,
    health: Health,
    room: Room,
    images: Images,
    internal_ip: String,
    /// Volumes of the pods here, and how many pods use each.
    volumes: BTreeMap<String, u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Power {
    Booting,
    Up,
    Off,
}

/// A node as the server has it.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    uid: String,
    labels: Arc<BTreeMap<String, String>>,
    taints: Vec<Taint>,
    allocatable: Arc<Amounts>,
    is_fake: bool,
    is_ready: bool,
    internal_ip: Option<String>,
    /// None where nobody attaches volumes, and none are waited for.
    attached: Option<BTreeSet<String>>,
}

/// A pod that was let in.
#[derive(Debug)]
struct Home {
    /// The texts of its seat and of the stored pod.
    node: Arc<str>,
    uid: Arc<str>,
    life: Life,
    requests: Arc<Amounts>,
    ports: Box<[Port]>,
    pod_ip: Box<str>,
    volumes: Box<[String]>,
    uses_host_network: bool,
    /// The revision of our own last write: that one is no news.
    written: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Boot(String),
    Ready(String),
    Status(String),
    Lease(String),
}

impl Kubelets {
    #[must_use]
    pub fn new(options: KubeletOptions) -> Self {
        Self {
            options,
            machines: Machines::default(),
            seats: BTreeMap::new(),
            homes: BTreeMap::new(),
            waiting_for: BTreeMap::new(),
            changed_nodes: BTreeSet::new(),
            to_do: VecDeque::new(),
            is_to_do: BTreeSet::new(),
            agenda: Agenda::default(),
            pods_due: Agenda::default(),
            scripts: Shared::default(),
            amounts: Shared::default(),
            capacities: Recent::default(),
            n_nodes_seen: 0,
            n_pods_seen: 0,
        }
    }

    /// The power buttons of these kubelets' machines.
    #[must_use]
    pub fn machines(&self) -> Machines {
        self.machines.clone()
    }

    fn note(&mut self, pod: Key) {
        if self.is_to_do.insert(pod.clone()) {
            self.to_do.push_back(pod);
        }
    }

    fn note_pods_of(&mut self, node: &str, hands: &Hands<'_>) {
        for pod in hands.pods_on(node) {
            self.note(pod.key.clone());
        }
    }

    fn observe_pod(&mut self, change: &Change) {
        let key = change.object.key.clone();
        let node = change.object.field("spec.nodeName").unwrap_or_default();
        if node.is_empty() {
            return;
        }
        let is_own = self.homes.get(&key).is_some_and(|home| home.written == change.object.revision);
        if change.kind == ChangeKind::Deleted || (!is_own && self.seats.contains_key(node)) {
            self.note(key);
        }
    }

    fn observe_node(&mut self, change: &Change) {
        let name = &change.object.key.name;
        let seen = match change.kind {
            ChangeKind::Deleted => None,
            ChangeKind::Added | ChangeKind::Modified => {
                KnownNode::read(&change.object).map(|node| Seen::of(&node, &mut self.amounts))
            }
        };
        let is_ours = self.seats.contains_key(name) || seen.as_ref().is_some_and(|seen| seen.is_fake);
        if !is_ours {
            return;
        }
        if !self.seats.contains_key(name) {
            let internal_ip = seen.as_ref().and_then(|seen| seen.internal_ip.clone()).unwrap_or_else(|| self.node_ip());
            self.seats.insert(name.clone(), Seat::new(None, name, internal_ip, Power::Up));
        }
        if let Some(seat) = self.seats.get_mut(name) {
            seat.see(seen);
            self.changed_nodes.insert(name.clone());
        }
    }

    fn tend_nodes(&mut self, hands: &mut Hands<'_>) {
        while let Some(due) = self.agenda.take_due(hands.now()) {
            match due {
                Due::Boot(node) => self.register(&node, hands),
                Due::Ready(node) => self.come_up(&node, hands),
                Due::Status(node) => self.post_status(&node, hands),
                Due::Lease(node) => self.renew_lease(&node, hands),
            }
        }
    }

    /// Something happened to it, or its time has come.
    fn next_pod(&mut self, now: Timestamp) -> Option<Key> {
        let pod = self.to_do.pop_front();
        if let Some(pod) = &pod {
            self.is_to_do.remove(pod);
        }
        pod.or_else(|| self.pods_due.take_due(now))
    }

    /// Addresses follow from the order of arrival: nodes have one half of `10.0.0.0/8`, pods the other.
    fn node_ip(&mut self) -> String {
        self.n_nodes_seen = self.n_nodes_seen.wrapping_add(1);
        address(10 << 24, self.n_nodes_seen)
    }

    fn pod_ip(&mut self) -> String {
        self.n_pods_seen = self.n_pods_seen.wrapping_add(1);
        address((10 << 24) | (1 << 23), self.n_pods_seen)
    }
}

impl Controller for Kubelets {
    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn manager(&self) -> &'static str {
        "kubelet"
    }

    fn observe(&mut self, change: &Change) {
        match (change.resource.group.as_str(), change.resource.plural.as_str()) {
            ("", "pods") => self.observe_pod(change),
            ("", "nodes") => self.observe_node(change),
            ("", "persistentvolumeclaims") => {
                for pod in self.waiting_for.get(&change.object.key).cloned().unwrap_or_default() {
                    self.note(pod);
                }
            }
            _ => {}
        }
    }

    fn work(&mut self, hands: &mut Hands<'_>) -> Option<Timestamp> {
        for order in self.machines.take() {
            self.obey(order, hands);
        }
        while let Some(node) = self.changed_nodes.pop_first() {
            self.node_changed(&node, hands);
        }
        for _ in 0..PODS_PER_ROUND {
            self.tend_nodes(hands);
            let Some(pod) = self.next_pod(hands.now()) else { break };
            self.tend(&pod, hands);
        }
        let now = (!self.to_do.is_empty()).then(|| hands.now());
        [now, self.agenda.next(), self.pods_due.next()].into_iter().flatten().min()
    }
}

impl Seat {
    fn new(machine: Option<Machine>, name: &str, internal_ip: String, power: Power) -> Self {
        Self {
            machine,
            power,
            node: None,
            health: Health::default(),
            room: Room { name: name.into(), ..Room::default() },
            images: Images::default(),
            internal_ip,
            volumes: BTreeMap::new(),
        }
    }

    fn see(&mut self, seen: Option<Seen>) {
        if let Some(seen) = &seen {
            self.room.labels.clone_from(&seen.labels);
            self.room.taints.clone_from(&seen.taints);
            self.room.allocatable.clone_from(&seen.allocatable);
            if let Some(ip) = &seen.internal_ip {
                self.internal_ip.clone_from(ip);
            }
        }
        self.node = seen;
    }

    /// Whether the kubelet runs and has registered its node. (It goes on running pods when the node object goes away under it.)
    fn is_up(&self) -> bool {
        self.power == Power::Up
    }
}

impl Seen {
    fn of(node: &KnownNode, shared: &mut Shared<Amounts>) -> Self {
        let meta = &node.metadata;
        let status = node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let addresses = status.and_then(|status| status.addresses.as_deref()).unwrap_or_default();
        let attached = status.and_then(|status| status.volumes_attached.as_deref()).unwrap_or_default();
        let annotation = |key: &str| meta.annotations.as_ref().and_then(|annotations| annotations.get(key));
        let mark = annotation(FAKE.0);
        let is_attached_to = annotation(ATTACHED_BY_CONTROLLER).is_some_and(|value| value == "true");
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            labels: Arc::clone(&node.labels),
            taints: node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            allocatable: shared.share(Arc::new(amounts(status.and_then(|status| status.allocatable.as_ref())))),
            is_fake: mark.is_some_and(|mark| mark == FAKE.1),
            is_ready: conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"),
            internal_ip: addresses
                .iter()
                .find(|address| address.type_ == "InternalIP")
                .map(|address| address.address.clone()),
            attached: is_attached_to.then(|| attached.iter().map(|volume| volume.name.clone()).collect()),
        }
    }
}

fn address(base: u32, n: u32) -> String {
    std::net::Ipv4Addr::from(base | (n & 0x007f_ffff)).to_string()
}

fn tell(hands: &mut Hands<'_>, about: ObjectReference, kind: &str, reason: &str, note: String) {
    hands.event(Event { about, kind, reason, action: "", note, component: "kubelet" });
}
