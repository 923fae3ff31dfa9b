//! Where each kind is served.

use crate::limits::LIST_PAGE;
use crate::watcher::escaped;
use kerf_mirror::Kind;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
    pub is_namespaced: bool,
}

macro_rules! resources {
    ($($name:ident = $group:literal $version:literal $plural:literal $kind:literal $namespaced:literal;)+) => {
        $(pub const $name: Resource = Resource {
            group: $group, version: $version, plural: $plural, kind: $kind, is_namespaced: $namespaced,
        };)+
    };
}

resources! {
    PODS = "" "v1" "pods" "Pod" true;
    NODES = "" "v1" "nodes" "Node" false;
    NAMESPACES = "" "v1" "namespaces" "Namespace" false;
    SERVICES = "" "v1" "services" "Service" true;
    EVENTS = "" "v1" "events" "Event" true;
    PERSISTENT_VOLUMES = "" "v1" "persistentvolumes" "PersistentVolume" false;
    PERSISTENT_VOLUME_CLAIMS = "" "v1" "persistentvolumeclaims" "PersistentVolumeClaim" true;
    REPLICATION_CONTROLLERS = "" "v1" "replicationcontrollers" "ReplicationController" true;
    LIMIT_RANGES = "" "v1" "limitranges" "LimitRange" true;
    POD_TEMPLATES = "" "v1" "podtemplates" "PodTemplate" true;
    DEPLOYMENTS = "apps" "v1" "deployments" "Deployment" true;
    REPLICA_SETS = "apps" "v1" "replicasets" "ReplicaSet" true;
    STATEFUL_SETS = "apps" "v1" "statefulsets" "StatefulSet" true;
    DAEMON_SETS = "apps" "v1" "daemonsets" "DaemonSet" true;
    POD_DISRUPTION_BUDGETS = "policy" "v1" "poddisruptionbudgets" "PodDisruptionBudget" true;
    STORAGE_CLASSES = "storage.k8s.io" "v1" "storageclasses" "StorageClass" false;
    CSI_NODES = "storage.k8s.io" "v1" "csinodes" "CSINode" false;
    VOLUME_ATTACHMENTS = "storage.k8s.io" "v1" "volumeattachments" "VolumeAttachment" false;
    NODE_POOLS = "karpenter.sh" "v1" "nodepools" "NodePool" false;
    NODE_CLAIMS = "karpenter.sh" "v1" "nodeclaims" "NodeClaim" false;
    NODE_OVERLAYS = "karpenter.sh" "v1alpha1" "nodeoverlays" "NodeOverlay" false;
    CAPACITY_BUFFERS = "autoscaling.x-k8s.io" "v1beta1" "capacitybuffers" "CapacityBuffer" true;
    LEASES = "coordination.k8s.io" "v1" "leases" "Lease" true;
}

impl Resource {
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// A list's first page, or the one that its continue token names.
    pub fn page(&self, token: &str) -> String {
        let rest = if token.is_empty() { String::new() } else { format!("&continue={}", escaped(token)) };
        format!("{}?limit={LIST_PAGE}{rest}", self.collection())
    }

    /// Of pods: those that are bound to a node.
    pub fn on_node(&self, node: &str) -> String {
        format!("{}?fieldSelector=spec.nodeName%3D{node}", self.collection())
    }

    /// Where all of them are listed.
    pub fn collection(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}/{}", self.version, self.plural)
        } else {
            format!("/apis/{}/{}/{}", self.group, self.version, self.plural)
        }
    }

    /// Where those of one namespace are listed and created. The namespace is ignored for kinds that have none.
    pub fn collection_in(&self, namespace: &str) -> String {
        if !self.is_namespaced || namespace.is_empty() {
            return self.collection();
        }
        let root = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        format!("{root}/namespaces/{namespace}/{}", self.plural)
    }

    pub fn path(&self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.collection_in(namespace))
    }
}

/// The kinds that the operator watches, node classes aside: those are the provider's.
pub const WATCHED: [(Kind, Resource); 21] = [
    // What is bought and for whom comes last, so that a first look has everything that judges it.
    (Kind::Namespace, NAMESPACES),
    (Kind::Service, SERVICES),
    (Kind::StorageClass, STORAGE_CLASSES),
    (Kind::CSINode, CSI_NODES),
    (Kind::VolumeAttachment, VOLUME_ATTACHMENTS),
    (Kind::PersistentVolume, PERSISTENT_VOLUMES),
    (Kind::PersistentVolumeClaim, PERSISTENT_VOLUME_CLAIMS),
    (Kind::LimitRange, LIMIT_RANGES),
    (Kind::PodTemplate, POD_TEMPLATES),
    (Kind::ReplicationController, REPLICATION_CONTROLLERS),
    (Kind::Deployment, DEPLOYMENTS),
    (Kind::ReplicaSet, REPLICA_SETS),
    (Kind::StatefulSet, STATEFUL_SETS),
    (Kind::DaemonSet, DAEMON_SETS),
    (Kind::PodDisruptionBudget, POD_DISRUPTION_BUDGETS),
    (Kind::NodeOverlay, NODE_OVERLAYS),
    (Kind::CapacityBuffer, CAPACITY_BUFFERS),
    (Kind::NodePool, NODE_POOLS),
    (Kind::NodeClaim, NODE_CLAIMS),
    (Kind::Node, NODES),
    (Kind::Pod, PODS),
];
