//! What `kubectl get` shows: the columns of a kind, and an object's cells in them.
//!
//! - `columns`: names, types and descriptions for the built-in kinds, as a table.
//! - `pods`, `workloads`, `cluster`: the cells.
//! - `ages`: durations as people read them. `read`: trees, without trust.
//!
//! Custom resources bring their own columns, and only the cells' types are settled here.

mod ages;
mod cluster;
mod columns;
mod pods;
mod read;
#[cfg(test)]
mod tests;
mod workloads;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::custom::CustomVersion;
use crate::kind::Resource;
use read::{n_entries, number, text};
use workloads::Around;

/// The `columnDefinitions` of a `Table`, those of wide output among them.
#[must_use]
pub fn columns(resource: &Resource) -> Vec<Value> {
    let Some(custom) = &resource.custom else {
        return columns::of(&resource.kind);
    };
    let mut all = vec![columns::name()];
    if custom.columns().is_empty() {
        all.push(columns::custom_age());
    }
    all.extend(custom.columns().iter().map(|column| {
        let description = if column.description.is_empty() {
            format!("Custom resource definition column (in JSONPath format): {}", column.json_path)
        } else {
            column.description.clone()
        };
        columns::definition(&column.name, &column.kind, &column.format, &description, column.priority)
    }));
    all
}

/// The `cells` of a row, one for each column.
#[must_use]
pub fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    match &resource.custom {
        Some(custom) => custom_cells(custom, object, now),
        None => built_in_cells(&resource.kind, object, now),
    }
}

/// The `conditions` of a row: pods that have ended say so.
#[must_use]
pub fn conditions(resource: &Resource, object: &Value) -> Option<Value> {
    if resource.is("", "Pod") { pods::conditions(object) } else { None }
}

fn custom_cells(custom: &CustomVersion, object: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells = vec![object["metadata"]["name"].clone()];
    if custom.columns().is_empty() {
        cells.push(json!(ages::since(&object["metadata"]["creationTimestamp"], now)));
    }
    cells.extend(custom.columns().iter().map(|column| typed(&column.kind, custom.cell(column, object), now)));
    cells
}

/// A found value as a cell of the column's type; null where it is of another.
fn typed(kind: &str, found: Value, now: Timestamp) -> Value {
    match (kind, found) {
        (_, Value::Null) => Value::Null,
        ("string", Value::String(text)) => json!(text),
        ("string", other) => json!(other.to_string()),
        #[expect(clippy::cast_possible_truncation, reason = "a fraction in an integer column is cut off")]
        ("integer", Value::Number(number)) => number
            .as_i64()
            .or_else(|| number.as_f64().map(|float| float as i64))
            .map_or(Value::Null, |whole| json!(whole)),
        ("number", Value::Number(number)) => Value::Number(number),
        ("boolean", Value::Bool(truth)) => json!(truth),
        ("date", Value::String(instant)) => match instant.parse::<Timestamp>() {
            Ok(instant) => json!(ages::human(now.duration_since(instant))),
            Err(_) => json!("<invalid>"),
        },
        _ => Value::Null,
    }
}

fn built_in_cells(kind: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    let meta = &object["metadata"];
    let name = || meta["name"].clone();
    let (before_age, after_age) = match kind {
        "Pod" => return pods::cells(object, now),
        "Event" => return cluster::event(object, now),
        "PodTemplate" => {
            let containers = &object["template"]["spec"]["containers"];
            let (names, images) = (read::joined(containers, "name"), read::joined(containers, "image"));
            return vec![
                name(),
                json!(names),
                json!(images),
                json!(read::labels(&object["template"]["metadata"]["labels"])),
            ];
        }
        "StorageClass" => {
            let (cells, _) = cluster::storage_class(object);
            let mut row = vec![json!(cluster::storage_class_name(object))];
            row.extend(cells);
            row.push(json!(ages::since(&meta["creationTimestamp"], now)));
            return row;
        }
        _ => match around_age(kind, object, now) {
            Some(cells) => cells,
            None => return vec![name(), meta["creationTimestamp"].clone()],
        },
    };
    let mut row = vec![name()];
    row.extend(before_age);
    row.push(json!(ages::since(&meta["creationTimestamp"], now)));
    row.extend(after_age);
    row
}

/// The cells between name and age, and those after the age. None for a kind without a printer of its own.
fn around_age(kind: &str, object: &Value, now: Timestamp) -> Option<Around> {
    let only = |cells: Vec<Value>| (cells, Vec::new());
    let counted = |list: &Value| only(vec![json!(n_entries(list))]);
    Some(match kind {
        "Deployment" => workloads::deployment(object),
        "ReplicaSet" => workloads::replica_set(object),
        "ReplicationController" => workloads::replication_controller(object),
        "StatefulSet" => workloads::stateful_set(object),
        "DaemonSet" => workloads::daemon_set(object),
        "Job" => workloads::job(object, now),
        "CronJob" => workloads::cron_job(object, now),
        "PodDisruptionBudget" => workloads::disruption_budget(object),
        "ControllerRevision" => workloads::controller_revision(object),
        "Node" => cluster::node(object),
        "Service" => cluster::service(object),
        "Endpoints" => cluster::endpoints(object),
        "PersistentVolume" => cluster::volume(object),
        "PersistentVolumeClaim" => cluster::claim(object),
        "CSIDriver" => cluster::csi_driver(object),
        "VolumeAttachment" => cluster::volume_attachment(object),
        "ResourceQuota" => cluster::quota(object),
        "ClusterRoleBinding" | "RoleBinding" => cluster::role_binding(object),
        "ValidatingAdmissionPolicy" => cluster::admission_policy(object),
        "ValidatingAdmissionPolicyBinding" => cluster::admission_policy_binding(object),
        "ResourceClaim" => cluster::resource_claim(object),
        "ResourceSlice" => cluster::resource_slice(object),
        "Namespace" => only(vec![json!(text(&object["status"]["phase"]))]),
        "ConfigMap" => only(vec![json!(n_entries(&object["data"]) + n_entries(&object["binaryData"]))]),
        "Secret" => only(vec![json!(text(&object["type"])), json!(n_entries(&object["data"]))]),
        "ServiceAccount" | "DeviceClass" | "ResourceClaimTemplate" => only(Vec::new()),
        "CSINode" => counted(&object["spec"]["drivers"]),
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => counted(&object["webhooks"]),
        "Lease" => only(vec![json!(text(&object["spec"]["holderIdentity"]))]),
        "PriorityClass" => (
            vec![json!(number(&object["value"])), json!(read::is_true(&object["globalDefault"]))],
            vec![json!(text(&object["preemptionPolicy"]))],
        ),
        _ => return None,
    })
}
