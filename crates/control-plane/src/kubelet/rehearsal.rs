//! A whole cluster under a virtual clock, for the tests of kubelets, nodes and volumes.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use serde_json::{Value, json};

use super::{KubeletOptions, Machine};
use crate::clock::Clock;
use crate::control_plane::{ControlPlane, Options};
use crate::dice::Dice;
use crate::hands::{Hands, Kube};

pub(crate) struct Rehearsal {
    pub(crate) plane: ControlPlane,
    start: Timestamp,
}

impl Rehearsal {
    pub(crate) fn new() -> Self {
        Self::with_options(KubeletOptions::default())
    }

    pub(crate) fn with_options(kubelets: KubeletOptions) -> Self {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::starting_at(start);
        let plane = ControlPlane::in_process(&Options { clock, kubelets, ..Options::default() });
        plane.settle();
        Self { plane, start }
    }

    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut Hands<'_>) -> R) -> R {
        let mut state = self.plane.server().lock();
        let mut dice = Dice::for_purpose(1, "test");
        act(&mut Hands::new(&mut state, "test", &mut dice))
    }

    pub(crate) fn create<T: Kube>(&self, object: Value) -> T {
        let object: T = serde_json::from_value(object).unwrap();
        let created = self.with(|hands| hands.create(&object)).unwrap();
        self.plane.settle();
        created
    }

    pub(crate) fn get<T: Kube>(&self, name: &str) -> T {
        self.find(name).unwrap_or_else(|| panic!("there is no {} {name}", T::KIND))
    }

    pub(crate) fn find<T: Kube>(&self, name: &str) -> Option<T> {
        let is_in_namespace = matches!(T::KIND, "Pod" | "PersistentVolumeClaim");
        self.with(|hands| hands.get(if is_in_namespace { "default" } else { "" }, name))
    }

    pub(crate) fn delete<T: Kube>(&self, name: &str) {
        let is_in_namespace = matches!(T::KIND, "Pod" | "PersistentVolumeClaim");
        self.with(|hands| hands.delete::<T>(if is_in_namespace { "default" } else { "" }, name, &json!({}))).unwrap();
        self.plane.settle();
    }

    pub(crate) fn pass(&self, seconds: i64) {
        self.plane.advance(SignedDuration::from_secs(seconds));
    }

    /// Boots a machine of 4 CPUs that is ready at once, and lets it come up.
    pub(crate) fn boot(&self, name: &str, zone: &str) {
        self.plane.machines().boot(machine(name, zone));
        self.pass(1);
    }

    pub(crate) fn pod(&self, name: &str, spec: Value) -> Pod {
        self.annotated_pod(name, json!({}), spec)
    }

    pub(crate) fn annotated_pod(&self, name: &str, annotations: Value, mut spec: Value) -> Pod {
        if spec["containers"].is_null() {
            spec["containers"] = json!([{"name": "main", "image": "app:1"}]);
        }
        let meta = json!({"name": name, "namespace": "default", "annotations": annotations});
        self.create(json!({"metadata": meta, "spec": spec}))
    }

    /// `Running ready` and the like.
    pub(crate) fn seen(&self, pod: &str) -> String {
        let Some(pod) = self.find::<Pod>(pod) else { return "gone".to_owned() };
        let status = pod.status.unwrap_or_default();
        let is_ready = status.conditions.iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
        let mut words = vec![status.phase.unwrap_or_default()];
        words.extend(status.reason);
        words.extend(is_ready.then(|| "ready".to_owned()));
        words.extend(pod.metadata.deletion_timestamp.map(|_| "deleting".to_owned()));
        words.join(" ")
    }

    /// The taints of a node, without their common prefix.
    pub(crate) fn taints(&self, node: &str) -> String {
        let taints = self.get::<Node>(node).spec.and_then(|spec| spec.taints).unwrap_or_default();
        let mut said: Vec<String> = taints
            .iter()
            .map(|taint| format!("{}:{}", taint.key.trim_start_matches("node.kubernetes.io/"), taint.effect))
            .collect();
        said.sort();
        said.join(" ")
    }

    /// What was told about an object of this name, in order.
    pub(crate) fn events(&self, name: &str) -> String {
        let mut events: Vec<Event> = self.with(|hands| hands.list(""));
        events.retain(|event| event.involved_object.name.as_deref() == Some(name));
        let when = |event: &Event| {
            let at = event.first_timestamp.as_ref().map(|at| at.0).or(event.event_time.as_ref().map(|at| at.0));
            at.unwrap_or(self.start)
        };
        let order = |event: &Event| {
            let version = event.metadata.resource_version.as_ref().and_then(|version| version.parse::<u64>().ok());
            (when(event), version)
        };
        events.sort_by_key(order);
        let line = |event: &Event| {
            let by = event.source.as_ref().and_then(|source| source.component.clone()).unwrap_or_default();
            format!(
                "{}s {} {} ({by}) {}",
                when(event).duration_since(self.start).as_secs(),
                event.type_.as_deref().unwrap_or_default(),
                event.reason.as_deref().unwrap_or_default(),
                event.message.as_deref().unwrap_or_default()
            )
        };
        events.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn revision(&self) -> u64 {
        self.plane.server().lock().store.revision()
    }
}

pub(crate) fn machine(name: &str, zone: &str) -> Machine {
    let quantity = |text: &str| k8s_openapi::apimachinery::pkg::api::resource::Quantity(text.to_owned());
    let capacity = [("cpu", "4"), ("memory", "8Gi"), ("pods", "10")];
    let capacity = capacity.map(|(name, text)| (name.to_owned(), quantity(text)));
    Machine {
        name: name.to_owned(),
        provider_id: format!("sim:///{name}"),
        labels: [("topology.kubernetes.io/zone".to_owned(), zone.to_owned())].into(),
        capacity: std::collections::BTreeMap::from(capacity).into(),
        ..Machine::default()
    }
}
