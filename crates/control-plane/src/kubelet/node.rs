//! A machine as a node: the objects a kubelet registers, and the conditions it posts.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec, NodeStatus,
    NodeSystemInfo, ObjectReference,
};
use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};

use super::machine::{Machine, Trouble};
use super::status::{digest, time};

pub(crate) const LEASE_NAMESPACE: &str = "kube-node-lease";
/// kwok's mark of a node that it runs. The same manifests run here.
pub(crate) const FAKE: (&str, &str) = ("kwok.x-k8s.io/node", "fake");

/// On nodes whose volumes are attached from the control plane.
pub(crate) const ATTACHED_BY_CONTROLLER: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

const LEASE_SECONDS: i32 = 40;
const KUBELET_PORT: i32 = 10250;
const VERSION: &str = "v1.36.3";

/// What a kubelet says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) is_up: bool,
    pub(crate) troubles: BTreeSet<Trouble>,
}

/// The node object with which a machine registers, not ready yet.
pub(crate) fn registration(machine: &Machine, internal_ip: &str, now: Timestamp) -> Node {
    let mut labels = BTreeMap::from([
        ("kubernetes.io/hostname".to_owned(), machine.name.clone()),
        ("kubernetes.io/os".to_owned(), "linux".to_owned()),
        ("kubernetes.io/arch".to_owned(), "amd64".to_owned()),
    ]);
    labels.extend(machine.labels.clone());
    let architecture = labels.get("kubernetes.io/arch").cloned().unwrap_or_default();
    let mut annotations = BTreeMap::from([(ATTACHED_BY_CONTROLLER.to_owned(), "true".to_owned())]);
    annotations.extend(machine.annotations.clone());
    let capacity = with_pods(&machine.capacity, machine.max_pods);
    let allocatable = if machine.allocatable.is_empty() { &machine.capacity } else { &machine.allocatable };
    let mut status = NodeStatus {
        addresses: Some(vec![address("InternalIP", internal_ip), address("Hostname", &machine.name)]),
        allocatable: Some(with_pods(allocatable, machine.max_pods)),
        capacity: Some(capacity),
        daemon_endpoints: Some(NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port: KUBELET_PORT }) }),
        images: Some(machine.images.iter().map(|image| container_image(image)).collect())
            .filter(|images: &Vec<_>| !images.is_empty()),
        node_info: Some(system_info(machine, &architecture)),
        ..NodeStatus::default()
    };
    post_conditions(&mut status, &Health::default(), now);
    Node {
        metadata: ObjectMeta {
            name: Some(machine.name.clone()),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(machine.provider_id.clone()).filter(|id| !id.is_empty()),
            taints: Some(machine.taints.clone()).filter(|taints| !taints.is_empty()),
            ..NodeSpec::default()
        }),
        status: Some(status),
    }
}

/// Completes the status of a node that somebody made by hand, as kwok does: what is there is kept.
pub(crate) fn complete_fake(node: &mut Node, internal_ip: &str) {
    let name = node.metadata.name.clone().unwrap_or_default();
    let status = node.status.get_or_insert_default();
    let vast = || {
        [("cpu", "1k"), ("memory", "1Ti"), ("pods", "1M")]
            .map(|(name, text)| (name.to_owned(), Quantity(text.to_owned())))
    };
    let is_missing = |list: &Option<BTreeMap<String, Quantity>>| list.as_ref().is_none_or(BTreeMap::is_empty);
    if is_missing(&status.allocatable) {
        status.allocatable =
            Some(status.capacity.clone().filter(|list| !list.is_empty()).unwrap_or_else(|| vast().into()));
    }
    if is_missing(&status.capacity) {
        status.capacity = status.allocatable.clone();
    }
    let addresses = status.addresses.get_or_insert_default();
    for (kind, text) in [("InternalIP", internal_ip), ("Hostname", &name)] {
        if !addresses.iter().any(|address| address.type_ == kind) {
            addresses.push(address(kind, text));
        }
    }
    let endpoint = NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port: KUBELET_PORT }) };
    status.daemon_endpoints.get_or_insert(endpoint);
    let info = status.node_info.get_or_insert_default();
    let labels = node.metadata.labels.as_ref();
    let label = |key: &str, otherwise: &str| {
        labels.and_then(|labels| labels.get(key)).cloned().unwrap_or_else(|| otherwise.to_owned())
    };
    let fill = |field: &mut String, text: String| {
        if field.is_empty() {
            *field = text;
        }
    };
    fill(&mut info.architecture, label("kubernetes.io/arch", "amd64"));
    fill(&mut info.operating_system, label("kubernetes.io/os", "linux"));
    fill(&mut info.kubelet_version, VERSION.to_owned());
    fill(&mut info.container_runtime_version, "containerd://2.1.4".to_owned());
    status.phase.get_or_insert_with(|| "Running".to_owned());
}

/// Posts the four conditions of a kubelet. Returns the names of those that changed, as its events tell them.
pub(crate) fn post_conditions(status: &mut NodeStatus, health: &Health, now: Timestamp) -> Vec<&'static str> {
    let has = |trouble: Trouble| health.troubles.contains(&trouble);
    let is_ready = health.is_up && !has(Trouble::NotReady);
    let not_ready = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
                     message:Network plugin returns error: cni plugin not initialized";
    let pressure = |is_there: bool, yes: [&'static str; 3], no: [&'static str; 3]| {
        let words = if is_there { yes } else { no };
        (is_there, words)
    };
    let posts = [
        (
            "MemoryPressure",
            pressure(
                has(Trouble::MemoryPressure),
                [
                    "KubeletHasInsufficientMemory",
                    "kubelet has insufficient memory available",
                    "NodeHasInsufficientMemory",
                ],
                ["KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"],
            ),
        ),
        (
            "DiskPressure",
            pressure(
                has(Trouble::DiskPressure),
                ["KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"],
                ["KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"],
            ),
        ),
        (
            "PIDPressure",
            pressure(
                has(Trouble::PidPressure),
                ["KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"],
                ["KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"],
            ),
        ),
        (
            "Ready",
            pressure(
                is_ready,
                ["KubeletReady", "kubelet is posting ready status", "NodeReady"],
                ["KubeletNotReady", not_ready, "NodeNotReady"],
            ),
        ),
    ];
    let conditions = status.conditions.get_or_insert_default();
    let mut changed = Vec::new();
    for (kind, (is_true, [reason, message, event])) in posts {
        let said = if is_true { "True" } else { "False" };
        let old = conditions.iter_mut().find(|condition| condition.type_ == kind);
        let since = old.as_ref().filter(|old| old.status == said).and_then(|old| old.last_transition_time.clone());
        if since.is_none() {
            changed.push(event);
        }
        let condition = NodeCondition {
            type_: kind.to_owned(),
            status: said.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: Some(time(now)),
            last_transition_time: since.or(Some(time(now))),
        };
        match old {
            Some(old) => *old = condition,
            None => conditions.push(condition),
        }
    }
    changed
}

pub(crate) fn lease(node: &Node, now: Timestamp) -> Lease {
    let name = node.metadata.name.clone().unwrap_or_default();
    Lease {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(LEASE_NAMESPACE.to_owned()),
            owner_references: Some(vec![owner(node)]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    }
}

pub(crate) fn csi_node(node: &Node, machine: Option<&Machine>) -> CSINode {
    let drivers = machine.map(|machine| machine.csi_drivers.as_slice()).unwrap_or_default();
    CSINode {
        metadata: ObjectMeta {
            name: node.metadata.name.clone(),
            owner_references: Some(vec![owner(node)]),
            ..ObjectMeta::default()
        },
        spec: CSINodeSpec {
            drivers: drivers
                .iter()
                .map(|driver| CSINodeDriver {
                    name: driver.name.clone(),
                    node_id: driver.node_id.clone(),
                    topology_keys: Some(driver.topology_keys.clone()).filter(|keys| !keys.is_empty()),
                    allocatable: driver.allocatable.map(|count| VolumeNodeResources { count: Some(count) }),
                })
                .collect(),
        },
    }
}

/// How events refer to a node: its kubelet does not know the uid.
pub(crate) fn reference(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

fn owner(node: &Node) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.metadata.name.clone().unwrap_or_default(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    }
}

fn with_pods(list: &BTreeMap<String, Quantity>, max_pods: Option<u32>) -> BTreeMap<String, Quantity> {
    let mut list = list.clone();
    match max_pods {
        Some(max_pods) => {
            list.insert("pods".to_owned(), Quantity(max_pods.to_string()));
        }
        // What a kubelet says that was told nothing else.
        None => {
            list.entry("pods".to_owned()).or_insert_with(|| Quantity("110".to_owned()));
        }
    }
    list
}

fn address(kind: &str, text: &str) -> NodeAddress {
    NodeAddress { type_: kind.to_owned(), address: text.to_owned() }
}

fn container_image(image: &str) -> ContainerImage {
    ContainerImage { names: Some(vec![image.to_owned()]), size_bytes: None }
}

fn system_info(machine: &Machine, architecture: &str) -> NodeSystemInfo {
    let id = digest(&machine.name);
    let part = |from: usize, to: usize| id.get(from..to).unwrap_or_default();
    let uuid = [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-");
    let version = if machine.kubelet_version.is_empty() { VERSION } else { &machine.kubelet_version };
    NodeSystemInfo {
        architecture: architecture.to_owned(),
        boot_id: uuid.clone(),
        container_runtime_version: "containerd://2.1.4".to_owned(),
        kernel_version: "6.12.0".to_owned(),
        kube_proxy_version: String::new(),
        kubelet_version: version.to_owned(),
        machine_id: part(32, 64).to_owned(),
        operating_system: "linux".to_owned(),
        os_image: "Kerf".to_owned(),
        swap: None,
        system_uuid: uuid,
    }
}
