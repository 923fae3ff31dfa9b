//! The columns of the built-in kinds, and what each says of itself.
//!
//! A line is a column: `name | type[/format][+] | description`. A `+` shows the column only in wide output. A description that
//! begins with `@` is the one of that field, and comes from the shapes of k8s-openapi, where it stands anyway. The columns that
//! nearly every kind has are written by their name alone.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::api::{apps, batch, coordination, core, resource, scheduling, storage};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

/// The columns of a built-in kind. A kind without a printer of its own shows its name and when it was created.
pub(super) fn of(kind: &str) -> Vec<Value> {
    BY_KIND.get(kind).cloned().unwrap_or_else(|| vec![column("Name"), column("Created At")])
}

/// The column every table begins with.
pub(super) fn name() -> Value {
    column("Name")
}

/// The age of a custom resource whose definition declares no columns.
pub(super) fn custom_age() -> Value {
    column("Age|date|@ObjectMeta.creationTimestamp")
}

/// One column definition.
pub(super) fn definition(name: &str, kind: &str, format: &str, description: &str, priority: i64) -> Value {
    json!({ "name": name, "type": kind, "format": format, "description": description, "priority": priority })
}

static BY_KIND: LazyLock<BTreeMap<&str, Vec<Value>>> = LazyLock::new(|| {
    let mut kinds = BTreeMap::new();
    let mut kind = "";
    for line in COLUMNS.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix(' ') {
            None => kind = line,
            Some(line) => kinds.entry(kind).or_insert_with(Vec::new).push(column(line)),
        }
    }
    kinds
});

fn column(line: &str) -> Value {
    let line = match line {
        "Name" => "Name|string/name|@ObjectMeta.name",
        "Age" => "Age|string|@ObjectMeta.creationTimestamp",
        "Created At" => "Created At|date|@ObjectMeta.creationTimestamp",
        "Containers" => "Containers|string|Names of each container in the template.",
        "Containers+" => "Containers|string+|Names of each container in the template.",
        "Images" => "Images|string|Images referenced by each container in the template.",
        "Images+" => "Images|string+|Images referenced by each container in the template.",
        line => line,
    };
    let mut parts = line.splitn(3, '|');
    let (name, kind, description) =
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let (kind, priority) = kind.strip_suffix('+').map_or((kind, 0), |kind| (kind, 1));
    let (kind, format) = kind.split_once('/').unwrap_or((kind, ""));
    let description = match description.strip_prefix('@').and_then(|field| field.split_once('.')) {
        Some((shape, field)) => described(shape, field),
        None => description.to_owned(),
    };
    definition(name, kind, format, &description, priority)
}

/// What the field of a shape says of itself. Empty for one that there is not.
fn described(shape: &str, field: &str) -> String {
    SHAPES
        .get(shape)
        .and_then(|shape| shape["properties"][field]["description"].as_str())
        .unwrap_or_default()
        .to_owned()
}

static SHAPES: LazyLock<BTreeMap<&str, Value>> = LazyLock::new(|| {
    fn shape<T: JsonSchema>() -> Value {
        T::json_schema(&mut SchemaGenerator::default()).to_value()
    }
    BTreeMap::from([
        ("CSIDriverSpec", shape::<storage::v1::CSIDriverSpec>()),
        ("ConfigMap", shape::<core::v1::ConfigMap>()),
        ("ControllerRevision", shape::<apps::v1::ControllerRevision>()),
        ("CronJobSpec", shape::<batch::v1::CronJobSpec>()),
        ("CronJobStatus", shape::<batch::v1::CronJobStatus>()),
        ("DaemonSetSpec", shape::<apps::v1::DaemonSetSpec>()),
        ("DaemonSetStatus", shape::<apps::v1::DaemonSetStatus>()),
        ("DeploymentSpec", shape::<apps::v1::DeploymentSpec>()),
        ("DeploymentStatus", shape::<apps::v1::DeploymentStatus>()),
        ("Endpoints", shape::<core::v1::Endpoints>()),
        ("Event", shape::<core::v1::Event>()),
        ("JobSpec", shape::<batch::v1::JobSpec>()),
        ("JobStatus", shape::<batch::v1::JobStatus>()),
        ("LeaseSpec", shape::<coordination::v1::LeaseSpec>()),
        ("NodeStatus", shape::<core::v1::NodeStatus>()),
        ("NodeSystemInfo", shape::<core::v1::NodeSystemInfo>()),
        ("ObjectMeta", shape::<ObjectMeta>()),
        ("ObjectReference", shape::<core::v1::ObjectReference>()),
        ("PersistentVolumeClaimSpec", shape::<core::v1::PersistentVolumeClaimSpec>()),
        ("PersistentVolumeClaimStatus", shape::<core::v1::PersistentVolumeClaimStatus>()),
        ("PersistentVolumeSpec", shape::<core::v1::PersistentVolumeSpec>()),
        ("PersistentVolumeStatus", shape::<core::v1::PersistentVolumeStatus>()),
        ("PodSpec", shape::<core::v1::PodSpec>()),
        ("PodStatus", shape::<core::v1::PodStatus>()),
        ("PriorityClass", shape::<scheduling::v1::PriorityClass>()),
        ("ReplicaSetSpec", shape::<apps::v1::ReplicaSetSpec>()),
        ("ReplicaSetStatus", shape::<apps::v1::ReplicaSetStatus>()),
        ("ReplicationControllerSpec", shape::<core::v1::ReplicationControllerSpec>()),
        ("ReplicationControllerStatus", shape::<core::v1::ReplicationControllerStatus>()),
        ("ResourcePool", shape::<resource::v1::ResourcePool>()),
        ("ResourceSliceSpec", shape::<resource::v1::ResourceSliceSpec>()),
        ("Secret", shape::<core::v1::Secret>()),
        ("ServiceSpec", shape::<core::v1::ServiceSpec>()),
        ("StorageClass", shape::<storage::v1::StorageClass>()),
        ("VolumeAttachmentSource", shape::<storage::v1::VolumeAttachmentSource>()),
        ("VolumeAttachmentSpec", shape::<storage::v1::VolumeAttachmentSpec>()),
        ("VolumeAttachmentStatus", shape::<storage::v1::VolumeAttachmentStatus>()),
    ])
});

const COLUMNS: &str = "
ConfigMap
 Name
 Data|string|@ConfigMap.data
 Age
Endpoints
 Name
 Endpoints|string|@Endpoints.subsets
 Age
Event
 Last Seen|string|@Event.lastTimestamp
 Type|string|@Event.type
 Reason|string|@Event.reason
 Object|string|@Event.involvedObject
 Subobject|string+|@ObjectReference.fieldPath
 Source|string+|@Event.source
 Message|string|@Event.message
 First Seen|string+|@Event.firstTimestamp
 Count|string+|@Event.count
 Name|string/name+|@ObjectMeta.name
Namespace
 Name
 Status|string|The status of the namespace
 Age
Node
 Name
 Status|string|The status of the node
 Roles|string|The roles of the node
 Age
 Version|string|@NodeSystemInfo.kubeletVersion
 Internal-IP|string+|@NodeStatus.addresses
 External-IP|string+|@NodeStatus.addresses
 OS-Image|string+|@NodeSystemInfo.osImage
 Kernel-Version|string+|@NodeSystemInfo.kernelVersion
 Container-Runtime|string+|@NodeSystemInfo.containerRuntimeVersion
PersistentVolumeClaim
 Name
 Status|string|@PersistentVolumeClaimStatus.phase
 Volume|string|@PersistentVolumeClaimSpec.volumeName
 Capacity|string|@PersistentVolumeClaimStatus.capacity
 Access Modes|string|@PersistentVolumeClaimStatus.accessModes
 StorageClass|string|StorageClass of the pvc
 VolumeAttributesClass|string|VolumeAttributesClass of the pvc
 Age
 VolumeMode|string+|@PersistentVolumeClaimSpec.volumeMode
PersistentVolume
 Name
 Capacity|string|@PersistentVolumeSpec.capacity
 Access Modes|string|@PersistentVolumeSpec.accessModes
 Reclaim Policy|string|@PersistentVolumeSpec.persistentVolumeReclaimPolicy
 Status|string|@PersistentVolumeStatus.phase
 Claim|string|@PersistentVolumeSpec.claimRef
 StorageClass|string|StorageClass of the pv
 VolumeAttributesClass|string|VolumeAttributesClass of the pv
 Reason|string|@PersistentVolumeStatus.reason
 Age
 VolumeMode|string+|@PersistentVolumeSpec.volumeMode
Pod
 Name
 Ready|string|The aggregate readiness state of this pod for accepting traffic.
 Status|string|The aggregate status of the containers in this pod.
 Restarts|string|The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.
 Age
 IP|string+|@PodStatus.podIP
 Node|string+|@PodSpec.nodeName
 Nominated Node|string+|@PodStatus.nominatedNodeName
 Readiness Gates|string+|@PodSpec.readinessGates
PodTemplate
 Name
 Containers
 Images
 Pod Labels|string|The labels for the pod template.
ReplicationController
 Name
 Desired|integer|@ReplicationControllerSpec.replicas
 Current|integer|@ReplicationControllerStatus.replicas
 Ready|integer|@ReplicationControllerStatus.readyReplicas
 Age
 Containers+
 Images+
 Selector|string+|@ReplicationControllerSpec.selector
ResourceQuota
 Name
 Request|string|Request represents a minimum amount of cpu/memory that a container may consume.
 Limit|string|Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.
 Age
Secret
 Name
 Type|string|@Secret.type
 Data|string|@Secret.data
 Age
ServiceAccount
 Name
 Age
Service
 Name
 Type|string|@ServiceSpec.type
 Cluster-IP|string|@ServiceSpec.clusterIP
 External-IP|string|@ServiceSpec.externalIPs
 Port(s)|string|@ServiceSpec.ports
 Age
 Selector|string+|@ServiceSpec.selector
MutatingWebhookConfiguration
 Name
 Webhooks|integer|Webhooks indicates the number of webhooks registered in this configuration
 Age
ValidatingAdmissionPolicy
 Name
 Validations|integer|Validations indicates the number of validation rules defined in this configuration
 ParamKind|string|ParamKind specifies the kind of resources used to parameterize this policy
 Age
ValidatingAdmissionPolicyBinding
 Name
 PolicyName|string|PolicyName indicates the policy definition which the policy binding binded to
 ParamRef|string|ParamRef indicates the param resource which sets the configuration param
 Age
ValidatingWebhookConfiguration
 Name
 Webhooks|integer|Webhooks indicates the number of webhooks registered in this configuration
 Age
ControllerRevision
 Name
 Controller|string|Controller of the object
 Revision|string|@ControllerRevision.revision
 Age
DaemonSet
 Name
 Desired|integer|@DaemonSetStatus.desiredNumberScheduled
 Current|integer|@DaemonSetStatus.currentNumberScheduled
 Ready|integer|@DaemonSetStatus.numberReady
 Up-to-date|integer|@DaemonSetStatus.updatedNumberScheduled
 Available|integer|@DaemonSetStatus.numberAvailable
 Node Selector|string|@PodSpec.nodeSelector
 Age
 Containers+
 Images+
 Selector|string+|@DaemonSetSpec.selector
Deployment
 Name
 Ready|string|Number of the pod with ready state
 Up-to-date|string|@DeploymentStatus.updatedReplicas
 Available|string|@DeploymentStatus.availableReplicas
 Age
 Containers+
 Images+
 Selector|string+|@DeploymentSpec.selector
ReplicaSet
 Name
 Desired|integer|@ReplicaSetSpec.replicas
 Current|integer|@ReplicaSetStatus.replicas
 Ready|integer|@ReplicaSetStatus.readyReplicas
 Age
 Containers+
 Images+
 Selector|string+|@ReplicaSetSpec.selector
StatefulSet
 Name
 Ready|string|Number of the pod with ready state
 Age
 Containers+
 Images+
CronJob
 Name
 Schedule|string|@CronJobSpec.schedule
 Timezone|string|@CronJobSpec.timeZone
 Suspend|boolean|@CronJobSpec.suspend
 Active|integer|@CronJobStatus.active
 Last Schedule|string|@CronJobStatus.lastScheduleTime
 Age
 Containers+
 Images+
 Selector|string+|@JobSpec.selector
Job
 Name
 Status|string|Status of the job.
 Completions|string|@JobStatus.succeeded
 Duration|string|Time required to complete the job.
 Age
 Containers+
 Images+
 Selector|string+|@JobSpec.selector
Lease
 Name
 Holder|string|@LeaseSpec.holderIdentity
 Age
PodDisruptionBudget
 Name
 Min Available|string|The minimum number of pods that must be available.
 Max Unavailable|string|The maximum number of pods that may be unavailable.
 Allowed Disruptions|integer|Calculated number of pods that may be disrupted at this time.
 Age
ClusterRoleBinding
 Name
 Role|string|RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.
 Age
 Users|string+|Users in the clusterRoleBinding
 Groups|string+|Groups in the clusterRoleBinding
 ServiceAccounts|string+|ServiceAccounts in the clusterRoleBinding
RoleBinding
 Name
 Role|string|RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.
 Age
 Users|string+|Users in the roleBinding
 Groups|string+|Groups in the roleBinding
 ServiceAccounts|string+|ServiceAccounts in the roleBinding
DeviceClass
 Name
 Age
ResourceClaim
 Name
 State|string|A summary of the current state (allocated, pending, reserved, etc.).
 Age
ResourceClaimTemplate
 Name
 Age
ResourceSlice
 Name
 Node|string|@ResourceSliceSpec.nodeName
 Driver|string|@ResourceSliceSpec.driver
 Pool|string|@ResourcePool.name
 Age
PriorityClass
 Name
 Value|integer|@PriorityClass.value
 Global-Default|boolean|@PriorityClass.globalDefault
 Age
 PreemptionPolicy|string|@PriorityClass.preemptionPolicy
CSIDriver
 Name
 AttachRequired|boolean|@CSIDriverSpec.attachRequired
 PodInfoOnMount|boolean|@CSIDriverSpec.podInfoOnMount
 StorageCapacity|boolean|@CSIDriverSpec.storageCapacity
 TokenRequests|string|@CSIDriverSpec.tokenRequests
 RequiresRepublish|boolean|@CSIDriverSpec.requiresRepublish
 Modes|string|@CSIDriverSpec.volumeLifecycleModes
 Age
CSINode
 Name
 Drivers|integer|Drivers indicates the number of CSI drivers registered on the node
 Age
StorageClass
 Name
 Provisioner|string|@StorageClass.provisioner
 ReclaimPolicy|string|@StorageClass.reclaimPolicy
 VolumeBindingMode|string|@StorageClass.volumeBindingMode
 AllowVolumeExpansion|string|@StorageClass.allowVolumeExpansion
 Age
VolumeAttachment
 Name
 Attacher|string/name|@VolumeAttachmentSpec.attacher
 PV|string|@VolumeAttachmentSource.persistentVolumeName
 Node|string|@VolumeAttachmentSpec.nodeName
 Attached|boolean|@VolumeAttachmentStatus.attached
 Age
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_says_what_it_is() {
        for (kind, columns) in BY_KIND.iter() {
            for column in columns {
                assert_ne!(column["description"], "", "{kind}: {column}");
                assert_ne!(column["type"], "", "{kind}: {column}");
            }
        }
        assert_eq!(of("LimitRange")[1]["name"], "Created At");
    }
}
