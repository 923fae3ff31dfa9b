//! Validation: what is wrong with an object, with the field and the words of the real server.

mod cluster;
mod container;
mod core;
mod diff;
mod placement;
mod pod;
mod resources;
mod volumes;
mod workloads;

use serde_json::Value;

use super::tree::{Faults, ROOT, SPEC, at};
use crate::error::FieldError;
use crate::kind::{Resource, Subresource};

pub(crate) fn create(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut faults = Faults::default();
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => pod::create(&mut faults, object),
        ("apps", "StatefulSet") => workloads::stateful_set(&mut faults, object, true),
        ("batch", "Job") => workloads::job(&mut faults, object),
        ("batch", "CronJob") => workloads::cron_job(&mut faults, object, true),
        ("apps", "ControllerRevision") => cluster::controller_revision(&mut faults, object),
        ("", "Event") => cluster::event(&mut faults, object),
        ("events.k8s.io", "Event") => {
            cluster::event(&mut faults, object);
            cluster::new_event(&mut faults, object);
        }
        _ => always(&mut faults, resource, object),
    }
    faults.0
}

/// The rules that hold on creation and on every update alike.
fn always(faults: &mut Faults, resource: &Resource, object: &Value) {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "PodTemplate") => pod::template(faults, &ROOT.field("template"), at(object, "template")),
        ("", "ReplicationController") => workloads::replication_controller(faults, object),
        ("", "Service") => core::service(faults, object),
        ("", "ConfigMap") => core::config_map(faults, object),
        ("", "Secret") => core::secret(faults, object),
        ("", "Node") => core::node(faults, object),
        ("", "LimitRange") => core::limit_range(faults, object),
        ("", "ResourceQuota") => core::resource_quota(faults, object),
        ("", "PersistentVolumeClaim") => volumes::claim_spec(faults, &SPEC, at(object, "spec")),
        ("", "PersistentVolume") => volumes::persistent_volume(faults, object),
        ("apps", "Deployment") => workloads::deployment(faults, object),
        ("apps", "ReplicaSet") => workloads::replica_set(faults, object),
        ("apps", "DaemonSet") => workloads::daemon_set(faults, object),
        ("policy", "PodDisruptionBudget") => cluster::disruption_budget(faults, object),
        ("scheduling.k8s.io", "PriorityClass") => cluster::priority_class(faults, object),
        ("coordination.k8s.io", "Lease") => cluster::lease(faults, object),
        ("storage.k8s.io", "StorageClass") => {
            cluster::storage_class(faults, object);
            cluster::keys_are_given(faults, object);
        }
        ("storage.k8s.io", "VolumeAttachment") => cluster::volume_attachment(faults, object),
        ("storage.k8s.io", "CSINode") => cluster::csi_node(faults, object),
        ("rbac.authorization.k8s.io", "Role") => cluster::role(faults, object, true),
        ("rbac.authorization.k8s.io", "ClusterRole") => cluster::role(faults, object, false),
        ("rbac.authorization.k8s.io", "RoleBinding") => cluster::role_binding(faults, object, true),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => cluster::role_binding(faults, object, false),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration") => {
            cluster::webhooks(faults, object);
        }
        _ => {}
    }
}

pub(crate) fn update(
    resource: &Resource,
    subresource: Option<Subresource>,
    new: &Value,
    old: &Value,
) -> Vec<FieldError> {
    let mut faults = Faults::default();
    match subresource {
        None | Some(Subresource::Scale) => main_update(&mut faults, resource, new, old),
        Some(Subresource::Status) => status_update(&mut faults, resource, new, old),
        Some(_) => {}
    }
    faults.0
}

fn main_update(faults: &mut Faults, resource: &Resource, new: &Value, old: &Value) {
    let selector = |faults: &mut Faults| {
        faults.immutable(&SPEC.field("selector"), at(new, "spec.selector"), at(old, "spec.selector"));
    };
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => pod::update(faults, new, old),
        ("", "Node") => core::node_update(faults, new, old),
        ("", "ConfigMap") => {
            core::immutable_data(faults, new, old, &["data", "binaryData"]);
            always(faults, resource, new);
        }
        ("", "Secret") => {
            cluster::immutable_fields(faults, new, old, &["type"]);
            core::immutable_data(faults, new, old, &["data"]);
            always(faults, resource, new);
        }
        ("", "Service") => {
            core::service_update(faults, new, old);
            always(faults, resource, new);
        }
        ("", "ResourceQuota") => {
            always(faults, resource, new);
            core::resource_quota_update(faults, new, old);
        }
        ("", "PersistentVolumeClaim") => {
            always(faults, resource, new);
            volumes::claim_update(faults, new, old);
        }
        ("", "PersistentVolume") => {
            always(faults, resource, new);
            volumes::persistent_volume_update(faults, new, old);
        }
        ("apps", "Deployment" | "ReplicaSet") => {
            always(faults, resource, new);
            selector(faults);
        }
        ("apps", "DaemonSet") => {
            selector(faults);
            always(faults, resource, new);
        }
        ("apps", "StatefulSet") => {
            workloads::stateful_set(faults, new, false);
            workloads::stateful_set_update(faults, new, old);
        }
        ("apps", "ControllerRevision") => {
            cluster::controller_revision(faults, new);
            cluster::immutable_fields(faults, new, old, &["data"]);
        }
        ("batch", "Job") => workloads::job_update(faults, new, old),
        ("batch", "CronJob") => workloads::cron_job(faults, new, false),
        ("scheduling.k8s.io", "PriorityClass") => cluster::priority_class_update(faults, new, old),
        ("storage.k8s.io", "StorageClass") => {
            let fields = ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"];
            cluster::immutable_fields(faults, new, old, &fields);
        }
        ("storage.k8s.io", "VolumeAttachment") => {
            always(faults, resource, new);
            cluster::immutable_fields(faults, new, old, &["spec"]);
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            always(faults, resource, new);
            cluster::role_binding_update(faults, new, old);
        }
        ("resource.k8s.io", "ResourceClaim" | "ResourceClaimTemplate") => {
            cluster::immutable_fields(faults, new, old, &["spec"]);
        }
        _ => always(faults, resource, new),
    }
}

fn status_update(faults: &mut Faults, resource: &Resource, new: &Value, old: &Value) {
    let replicas = ["replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "unavailableReplicas"];
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => pod::status_update(faults, new, old),
        ("", "Namespace") => core::namespace_status(faults, new),
        ("", "Node") => core::node_update(faults, new, old),
        ("apps", "Deployment") => {
            let parts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
            workloads::status_counts(faults, new, &replicas, &parts, "cannot be greater than readyReplicas");
        }
        ("apps", "StatefulSet") => {
            let parts = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
            workloads::status_counts(faults, new, &replicas, &parts, "cannot be greater than status.readyReplicas");
        }
        ("apps", "ReplicaSet") | ("", "ReplicationController") => {
            let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
            workloads::status_counts(faults, new, &replicas, &parts, "cannot be greater than readyReplicas");
        }
        ("policy", "PodDisruptionBudget") => cluster::disruption_budget_status(faults, new),
        _ => {}
    }
}
