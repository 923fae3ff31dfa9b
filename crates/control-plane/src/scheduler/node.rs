//! What the scheduler needs to know of a node, and what its pods take of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Taint, Toleration};

use super::labels::Labels;
use super::pod::{HostPort, PodFacts};
use super::quantity::{Resources, amounts, whole};
use crate::nodes::KnownNode;
use crate::store::Key;

/// A node as it describes itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeFacts {
    pub(crate) name: String,
    pub(crate) labels: Arc<Labels>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) is_unschedulable: bool,
    pub(crate) allocatable: Resources,
    pub(crate) pods_max: i64,
    /// Size by name, as the node tells it.
    pub(crate) images: BTreeMap<String, i64>,
}

impl NodeFacts {
    pub(crate) fn of(node: &KnownNode) -> Self {
        let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
        let allocatable = amounts(status.and_then(|status| status.allocatable.as_ref()));
        let images = status.and_then(|status| status.images.as_ref()).into_iter().flatten().flat_map(|image| {
            let size = image.size_bytes.unwrap_or(0);
            image.names.iter().flatten().map(move |name| (name.clone(), size))
        });
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            labels: Arc::clone(&node.labels),
            taints: spec.and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            is_unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
            pods_max: allocatable.get("pods").copied().map_or(0, whole),
            allocatable: Resources::of(&allocatable),
            images: images.collect(),
        }
    }

    /// Whether nothing on the node keeps such a pod away.
    pub(crate) fn is_tolerated_by(&self, tolerations: &[Toleration]) -> bool {
        self.taints
            .iter()
            .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
            .all(|taint| tolerations.iter().any(|toleration| tolerates(toleration, taint)))
    }
}

/// Comparison operators on values are an alpha feature of 1.36 and off.
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let given = |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(str::to_owned);
    let is_about = given(&toleration.effect).is_none_or(|effect| effect == taint.effect)
        && given(&toleration.key).is_none_or(|key| key == taint.key);
    is_about
        && match toleration.operator.as_deref().unwrap_or("") {
            "" | "Equal" => toleration.value.as_deref().unwrap_or("") == taint.value.as_deref().unwrap_or(""),
            operator => operator == "Exists",
        }
}

/// A node together with its pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeInfo {
    pub(crate) facts: Arc<NodeFacts>,
    pub(crate) pods: BTreeMap<Key, Arc<PodFacts>>,
    pub(crate) requested: Resources,
    pub(crate) scored_cpu_milli: i64,
    pub(crate) scored_memory_bytes: i64,
    ports: BTreeSet<(HostPort, Key)>,
}

impl NodeInfo {
    pub(crate) fn add(&mut self, pod: Arc<PodFacts>) {
        self.remove(&pod.key);
        self.count(&pod, 1);
        for port in &pod.ports {
            self.ports.insert((port.clone(), pod.key.clone()));
        }
        self.pods.insert(pod.key.clone(), pod);
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<PodFacts>> {
        let pod = self.pods.remove(key)?;
        self.count(&pod, -1);
        for port in &pod.ports {
            self.ports.remove(&(port.clone(), key.clone()));
        }
        Some(pod)
    }

    fn count(&mut self, pod: &PodFacts, sign: i64) {
        self.requested.add(&pod.demand.held, sign);
        self.scored_cpu_milli = self.scored_cpu_milli.saturating_add(pod.demand.scored_cpu_milli.saturating_mul(sign));
        self.scored_memory_bytes =
            self.scored_memory_bytes.saturating_add(pod.demand.scored_memory_bytes.saturating_mul(sign));
    }

    /// The wildcard address meets every other.
    pub(crate) fn has_port(&self, wanted: &HostPort) -> bool {
        self.ports.iter().any(|(taken, _)| {
            let is_met = taken.ip == wanted.ip || taken.ip == "0.0.0.0" || wanted.ip == "0.0.0.0";
            is_met && taken.port == wanted.port && taken.protocol == wanted.protocol
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_toleration_is_about_a_key_an_effect_and_a_value() {
        let taint: Taint = serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoSchedule"})).unwrap();
        for (toleration, is_tolerated) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}), true),
            (json!({"key": "k", "operator": "Equal", "value": "w"}), false),
            (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "j", "operator": "Exists"}), false),
            (json!({"key": "k", "operator": "Gt", "value": "1"}), false),
        ] {
            let parsed = serde_json::from_value(toleration.clone()).unwrap();
            assert_eq!(tolerates(&parsed, &taint), is_tolerated, "{toleration}");
        }
    }

    #[test]
    fn a_port_is_taken_on_its_address_and_everywhere_by_the_wildcard() {
        let port = |protocol: &str, port, ip: &str| HostPort { protocol: protocol.into(), port, ip: ip.into() };
        let mut node = NodeInfo::default();
        let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec":
            {"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 80, "hostIP": "127.0.0.1"},
                {"containerPort": 2, "hostPort": 81}]}]}}))
        .unwrap();
        node.add(Arc::new(PodFacts::of(&pod)));
        for (wanted, is_taken) in [
            (port("TCP", 80, "127.0.0.1"), true),
            (port("TCP", 80, "0.0.0.0"), true),
            (port("TCP", 80, "10.0.0.1"), false),
            (port("UDP", 80, "127.0.0.1"), false),
            (port("TCP", 81, "10.0.0.1"), true),
        ] {
            assert_eq!(node.has_port(&wanted), is_taken, "{wanted:?}");
        }
        node.remove(&Key::new("", "p"));
        assert!(!node.has_port(&port("TCP", 81, "10.0.0.1")));
    }
}
