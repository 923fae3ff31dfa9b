//! Watches over nodes: marks those that fall silent, taints them by their conditions, and tells their pods.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition, ObjectReference, Pod, Taint};
use serde_json::json;

use super::known::KnownNode;
use super::taints::{NOT_READY, UNREACHABLE, asked_for, follow_conditions, has_no_execute, set_no_execute};
use super::zones::{Turn, Zones};
use crate::drive::Controller;
use crate::hands::{Event, Hands};
use crate::kubelet::agenda::Agenda;
use crate::kubelet::{LEASE_NAMESPACE, after, time};
use crate::store::{Change, ChangeKind, Key};

/// Labels by the name they have, and the one they had: the old ones follow the new ones.
const OLD_NAMES: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

const TTL: &str = "node.alpha.kubernetes.io/ttl";
/// Up to how many nodes, how many seconds.
const TTL_SECONDS: [(usize, u32); 4] = [(100, 0), (500, 15), (1000, 30), (2000, 60)];

#[derive(Clone, Debug)]
pub struct LifecycleOptions {
    /// How long a node may be silent before it counts as lost.
    pub monitor_grace: SignedDuration,
    /// The same for a node that has never said anything.
    pub startup_grace: SignedDuration,
}

impl Default for LifecycleOptions {
    fn default() -> Self {
        Self { monitor_grace: SignedDuration::from_secs(50), startup_grace: SignedDuration::from_secs(60) }
    }
}

#[derive(Debug)]
pub struct Lifecycle {
    options: LifecycleOptions,
    nodes: BTreeMap<String, Watched>,
    zones: Zones,
    changed: BTreeSet<String>,
    renewed: BTreeSet<String>,
    removed: Vec<(String, String)>,
    silence: Agenda<String>,
}

#[derive(Debug)]
struct Watched {
    facts: Facts,
    /// When it last gave a sign of life. None until it was looked at.
    heard: Option<Timestamp>,
    /// The heartbeat that was seen then.
    heartbeat: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq)]
struct Facts {
    uid: String,
    resource_version: String,
    created: Option<Timestamp>,
    zone: String,
    /// Does not count when it is judged how much of a zone is down.
    is_excluded: bool,
    is_unschedulable: bool,
    ready: Option<Ready>,
    /// By its conditions.
    taints_asked_for: Vec<&'static str>,
    taints: Vec<Taint>,
    /// Old names of labels that do not follow the new ones, and what they should say.
    stale_labels: BTreeMap<&'static str, String>,
    /// Whether it says how long its kubelet may keep what it read.
    has_ttl: bool,
}

/// What a node says about itself.
#[derive(Clone, Debug, PartialEq)]
struct Ready {
    status: Box<str>,
    heartbeat: Option<Timestamp>,
}

impl Facts {
    fn of(node: &KnownNode) -> Self {
        let spec = node.spec.as_ref();
        let labels = &node.labels;
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let label = |key: &str| labels.get(key).map(String::as_str).unwrap_or_default();
        let zone = format!("{}:\0:{}", label("topology.kubernetes.io/region"), label("topology.kubernetes.io/zone"));
        Self {
            uid: node.metadata.uid.clone().unwrap_or_default(),
            resource_version: node.metadata.resource_version.clone().unwrap_or_default(),
            created: node.metadata.creation_timestamp.as_ref().map(|created| created.0),
            zone,
            is_excluded: labels.contains_key("node.kubernetes.io/exclude-disruption"),
            is_unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
            ready: conditions.iter().find(|condition| condition.type_ == "Ready").map(|ready| Ready {
                status: ready.status.as_str().into(),
                heartbeat: ready.last_heartbeat_time.as_ref().map(|at| at.0),
            }),
            taints_asked_for: asked_for(conditions),
            taints: spec.and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            stale_labels: OLD_NAMES
                .into_iter()
                .filter(|(new, old)| labels.contains_key(*new) && labels.get(*new) != labels.get(*old))
                .map(|(new, old)| (old, label(new).to_owned()))
                .collect(),
            has_ttl: node.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(TTL)),
        }
    }

    fn readiness(&self) -> &str {
        self.ready.as_ref().map(|ready| &*ready.status).unwrap_or_default()
    }

    fn heartbeat(&self) -> Option<Timestamp> {
        self.ready.as_ref()?.heartbeat
    }
}

impl Lifecycle {
    #[must_use]
    pub fn new(options: LifecycleOptions) -> Self {
        Self {
            options,
            nodes: BTreeMap::new(),
            zones: Zones::default(),
            changed: BTreeSet::new(),
            renewed: BTreeSet::new(),
            removed: Vec::new(),
            silence: Agenda::default(),
        }
    }

    fn observe_node(&mut self, change: &Change) {
        let name = change.object.key.name.clone();
        let facts = match change.kind {
            ChangeKind::Deleted => None,
            ChangeKind::Added | ChangeKind::Modified => KnownNode::read(&change.object).as_deref().map(Facts::of),
        };
        let Some(facts) = facts else {
            if let Some(watched) = self.nodes.remove(&name) {
                self.removed.push((name.clone(), watched.facts.uid));
            }
            self.zones.forget(&name);
            self.silence.cancel(&name);
            self.changed.remove(&name);
            return;
        };
        if !facts.is_excluded {
            self.zones.set(&facts.zone, &name, facts.readiness() == "True");
        }
        match self.nodes.get_mut(&name) {
            Some(watched) if watched.facts.uid == facts.uid => watched.facts = facts,
            _ => {
                self.nodes.insert(name.clone(), Watched { facts, heard: None, heartbeat: None });
            }
        }
        self.changed.insert(name);
    }

    /// Takes notice of a node that is new, or whose object has changed.
    fn look_at(&mut self, name: &str, hands: &mut Hands<'_>) {
        let now = hands.now();
        let Some(watched) = self.nodes.get_mut(name) else { return };
        let is_new = watched.heard.is_none();
        let heartbeat = watched.facts.heartbeat();
        let never_posted = watched.facts.ready.is_none();
        if is_new {
            watched.heard = Some(if never_posted { watched.facts.created.unwrap_or(now) } else { now });
        } else if heartbeat != watched.heartbeat {
            watched.heard = Some(now);
        }
        watched.heartbeat = heartbeat;
        let heard = watched.heard.unwrap_or(now);
        let uid = watched.facts.uid.clone();
        if watched.facts.readiness() != "Unknown" {
            let grace = if never_posted { self.options.startup_grace } else { self.options.monitor_grace };
            self.silence.set(name.to_owned(), after(heard, grace));
        }
        if is_new {
            let note = format!("Node {name} event: Registered Node {name} in Controller");
            tell(hands, node_reference(name, &uid), "Normal", "RegisteredNode", note);
        }
        self.taint(name, hands);
        self.label(name, hands);
    }

    /// NoSchedule at once; NoExecute at once if it takes the other's place or goes away, and else in its turn.
    fn taint(&mut self, name: &str, hands: &mut Hands<'_>) {
        let Some(watched) = self.nodes.get(name) else { return };
        let now = hands.now();
        let facts = &watched.facts;
        let by_condition = follow_conditions(&facts.taints, &facts.taints_asked_for, facts.is_unschedulable, now);
        let taints = by_condition.clone().unwrap_or_else(|| facts.taints.clone());
        let wanted = no_execute_of(facts.readiness());
        let opposite = wanted.map(|wanted| if wanted == NOT_READY { UNREACHABLE } else { NOT_READY });
        let no_execute = match (wanted, opposite) {
            (None, _) if facts.readiness() == "True" => {
                self.zones.unwant(name);
                set_no_execute(&taints, None, now)
            }
            (None, _) => None,
            (Some(wanted), _) if has_no_execute(&taints, wanted) => None,
            (Some(wanted), Some(opposite)) if has_no_execute(&taints, opposite) => {
                set_no_execute(&taints, Some(wanted), now)
            }
            (Some(_), _) => {
                self.zones.want(&facts.zone, name);
                None
            }
        };
        let resource_version = facts.resource_version.clone();
        if let Some(taints) = no_execute.or(by_condition) {
            self.write_taints(name, &resource_version, &taints, hands);
        }
    }

    /// The old names of two labels follow the new ones, and kubelets of larger clusters may keep what they read for longer.
    fn label(&mut self, name: &str, hands: &mut Hands<'_>) {
        let Some(watched) = self.nodes.get(name) else { return };
        let stale = &watched.facts.stale_labels;
        let mut patch = json!({"metadata": {}});
        if !stale.is_empty() {
            patch["metadata"]["labels"] = json!(stale);
        }
        if !watched.facts.has_ttl {
            let (_, seconds) =
                TTL_SECONDS.iter().find(|(n_nodes, _)| self.nodes.len() <= *n_nodes).unwrap_or(&(0, 300));
            patch["metadata"]["annotations"] = json!({ TTL: seconds.to_string() });
        }
        if !stale.is_empty() || !watched.facts.has_ttl {
            // A node that went away meanwhile needs no labels.
            let _ = hands.merge_patch::<Node>("", name, None, &patch);
        }
    }

    /// Nothing was heard of a node for too long.
    fn fall_silent(&mut self, name: &str, hands: &mut Hands<'_>) {
        let now = hands.now();
        let Some(mut node) = hands.get::<Node>("", name) else { return };
        let created = node.metadata.creation_timestamp.clone();
        let uid = node.metadata.uid.clone().unwrap_or_default();
        let conditions = node.status.get_or_insert_default().conditions.get_or_insert_default();
        let was_ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let before = conditions.clone();
        for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
            match conditions.iter_mut().find(|condition| condition.type_ == kind) {
                Some(condition) if condition.status == "Unknown" => {}
                Some(condition) => {
                    condition.status = "Unknown".to_owned();
                    condition.reason = Some("NodeStatusUnknown".to_owned());
                    condition.message = Some("Kubelet stopped posting node status.".to_owned());
                    condition.last_transition_time = Some(time(now));
                }
                None => conditions.push(NodeCondition {
                    type_: kind.to_owned(),
                    status: "Unknown".to_owned(),
                    reason: Some("NodeStatusNeverUpdated".to_owned()),
                    message: Some("Kubelet never posted node status.".to_owned()),
                    last_heartbeat_time: created.clone(),
                    last_transition_time: Some(time(now)),
                }),
            }
        }
        if *conditions == before {
            return;
        }
        if hands.update_status(&node).is_err() {
            self.silence.set(name.to_owned(), after(now, SignedDuration::from_secs(1)));
            return;
        }
        if was_ready {
            let note = format!("Node {name} status is now: NodeNotReady");
            tell(hands, node_reference(name, &uid), "Normal", "NodeNotReady", note);
            for pod in hands.keys_on(name) {
                mark_not_ready(&pod, hands);
            }
        }
    }

    fn turn(&mut self, hands: &mut Hands<'_>) {
        match self.zones.turn() {
            Turn::None => {}
            Turn::AllDown => {
                let tainted: Vec<String> = self
                    .nodes
                    .iter()
                    .filter(|(_, watched)| set_no_execute(&watched.facts.taints, None, hands.now()).is_some())
                    .map(|(name, _)| name.clone())
                    .collect();
                for name in tainted {
                    self.set_no_execute(&name, None, hands);
                }
            }
            Turn::SomeUp => {
                // Their silence was perhaps our own deafness: all begin anew.
                let now = hands.now();
                for (name, watched) in &mut self.nodes {
                    watched.heard = Some(now);
                    if no_execute_of(watched.facts.readiness()).is_some() {
                        self.zones.want(&watched.facts.zone, name);
                    }
                    if watched.facts.readiness() != "Unknown" {
                        self.silence.set(name.clone(), after(now, self.options.monitor_grace));
                    }
                }
            }
        }
    }

    /// The nodes whose turn it is to be tainted NoExecute.
    fn taint_due(&mut self, hands: &mut Hands<'_>) {
        for name in self.zones.take_due(hands.now()) {
            let Some(watched) = self.nodes.get(&name) else { continue };
            let wanted = no_execute_of(watched.facts.readiness());
            if wanted.is_some() {
                self.set_no_execute(&name, wanted, hands);
            }
        }
    }

    /// On the node as it is now: the cache may be behind our own last write.
    fn set_no_execute(&mut self, name: &str, wanted: Option<&str>, hands: &mut Hands<'_>) {
        let Some(facts) = hands.get::<Node>("", name).map(|node| Facts::of(&node.into())) else { return };
        if let Some(taints) = set_no_execute(&facts.taints, wanted, hands.now()) {
            self.write_taints(name, &facts.resource_version, &taints, hands);
        }
    }

    /// Refused if somebody else was quicker: their change is then on its way to us, and the node is looked at again.
    fn write_taints(&mut self, name: &str, resource_version: &str, taints: &[Taint], hands: &mut Hands<'_>) {
        let patch = json!({"metadata": {"resourceVersion": resource_version}, "spec": {"taints": taints}});
        let written = hands.merge_patch::<Node>("", name, None, &patch);
        if written.is_err_and(|error| error.reason == "Conflict") {
            self.changed.insert(name.to_owned());
        }
    }
}

impl Controller for Lifecycle {
    fn name(&self) -> &'static str {
        "node-controller"
    }

    fn observe(&mut self, change: &Change) {
        match (change.resource.group.as_str(), change.resource.plural.as_str()) {
            ("", "nodes") => self.observe_node(change),
            ("coordination.k8s.io", "leases")
                if change.object.key.namespace == LEASE_NAMESPACE && change.kind != ChangeKind::Deleted =>
            {
                self.renewed.insert(change.object.key.name.clone());
            }
            _ => {}
        }
    }

    fn work(&mut self, hands: &mut Hands<'_>) -> Option<Timestamp> {
        for (name, uid) in std::mem::take(&mut self.removed) {
            let note = format!("Node {name} event: Removing Node {name} from Controller");
            tell(hands, node_reference(&name, &uid), "Normal", "RemovingNode", note);
        }
        for name in std::mem::take(&mut self.renewed) {
            if let Some(watched) = self.nodes.get_mut(&name).filter(|watched| watched.heard.is_some()) {
                watched.heard = Some(hands.now());
                // A silent node that renews its lease is watched again; the others have their date, and are looked at then.
                if self.silence.when(&name).is_none() && watched.facts.readiness() != "Unknown" {
                    self.silence.set(name, after(hands.now(), self.options.monitor_grace));
                }
            }
        }
        for name in std::mem::take(&mut self.changed) {
            self.look_at(&name, hands);
        }
        self.turn(hands);
        while let Some(name) = self.silence.take_due(hands.now()) {
            let Some(watched) = self.nodes.get(&name) else { continue };
            let never_posted = watched.facts.ready.is_none();
            let grace = if never_posted { self.options.startup_grace } else { self.options.monitor_grace };
            let until = after(watched.heard.unwrap_or_else(|| hands.now()), grace);
            if until > hands.now() {
                self.silence.set(name, until);
            } else {
                self.fall_silent(&name, hands);
            }
        }
        self.taint_due(hands);
        let again = (!self.changed.is_empty()).then(|| hands.now());
        [again, self.silence.next(), self.zones.next()].into_iter().flatten().min()
    }
}

fn no_execute_of(readiness: &str) -> Option<&'static str> {
    match readiness {
        "False" => Some(NOT_READY),
        "Unknown" => Some(UNREACHABLE),
        _ => None,
    }
}

fn mark_not_ready(key: &Key, hands: &mut Hands<'_>) {
    let now = hands.now();
    let Some(mut pod) = hands.get::<Pod>(&key.namespace, &key.name) else { return };
    let conditions = pod.status.get_or_insert_default().conditions.get_or_insert_default();
    let Some(ready) = conditions.iter_mut().find(|condition| condition.type_ == "Ready" && condition.status != "False")
    else {
        return;
    };
    ready.status = "False".to_owned();
    ready.last_transition_time = Some(time(now));
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(key.namespace.clone()),
        name: Some(key.name.clone()),
        uid: pod.metadata.uid.clone(),
        resource_version: pod.metadata.resource_version.clone(),
        field_path: None,
    };
    if hands.update_status(&pod).is_ok() {
        tell(hands, about, "Warning", "NodeNotReady", "Node is not ready".to_owned());
    }
}

fn node_reference(name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

fn tell(hands: &mut Hands<'_>, about: ObjectReference, kind: &str, reason: &str, note: String) {
    hands.event(Event { about, kind, reason, action: "", note, component: "node-controller" });
}
