//! What every write does to an object's metadata, whoever writes.

use serde_json::{Value, json};

use crate::builtin;
use crate::clock;
use crate::error::{ApiError, ApiResult};
use crate::kind::{Resource, Subresource};
use crate::state::{State, meta, set_meta, unset_meta};

/// The real server tries a generated name again when it is taken.
const NAME_TRIES_MAX: u32 = 8;
/// A generated name's base is cut so that the suffix fits.
const NAME_BASE_MAX: usize = 63 - 5;

impl State {
    /// What the server itself decides about a new object: uid, time, generation, a generated name.
    pub(super) fn fill_metadata(&mut self, resource: &Resource, namespace: &str, object: &mut Value) {
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"] {
            unset_meta(object, field);
        }
        if resource.namespaced {
            set_meta(object, "namespace", namespace);
        }
        let uid = self.dice.uid();
        set_meta(object, "uid", uid);
        set_meta(object, "creationTimestamp", clock::seconds(self.now()));
        if has_generation(resource) {
            set_meta(object, "generation", 1);
        } else {
            unset_meta(object, "generation");
        }
        if meta(object, "name").is_empty() && !meta(object, "generateName").is_empty() {
            let name = self.generated_name(resource, namespace, meta(object, "generateName"));
            set_meta(object, "name", name);
        }
    }

    fn generated_name(&mut self, resource: &Resource, namespace: &str, base: &str) -> String {
        let mut cut = base.len().min(NAME_BASE_MAX);
        while !base.is_char_boundary(cut) {
            cut -= 1;
        }
        let mut name = String::new();
        for _ in 0..NAME_TRIES_MAX {
            name = format!("{}{}", &base[..cut], self.dice.suffix());
            if self.find(resource, namespace, &name).is_none() {
                break;
            }
        }
        name
    }

    /// A namespaced object needs its namespace, and one that is not going away.
    pub(super) fn check_namespace(&self, resource: &Resource, namespace: &str, name: &str) -> ApiResult<()> {
        if !resource.namespaced {
            return Ok(());
        }
        let namespaces = crate::store::ResourceId::new("", "namespaces");
        let Some(stored) = self.store.get(&namespaces, &crate::store::Key::new("", namespace)) else {
            return Err(ApiError::not_found("", "namespaces", namespace));
        };
        if stored.is_deleting {
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            let mut error = ApiError::forbidden(&resource.group, &resource.plural, name, &why);
            error = error.cause(
                "NamespaceTerminating",
                format!("namespace {namespace} is being terminated"),
                "metadata.namespace",
            );
            return Err(error);
        }
        Ok(())
    }

    /// Counts a write in `metadata.generation` where it changed what is wanted.
    pub(super) fn count_generation(
        resource: &Resource,
        subresource: Option<Subresource>,
        new: &mut Value,
        old: &Value,
    ) {
        let before = &old["metadata"]["generation"];
        let Some(generation) = before.as_i64() else {
            unset_meta(new, "generation");
            return;
        };
        let changed = match &resource.custom {
            // A status says nothing new about what is wanted, whatever annotations come with it.
            _ if subresource == Some(Subresource::Status) => false,
            Some(custom) => is_custom_change(new, old, custom.has_status()),
            None => builtin::bumps_generation(resource, new, old),
        };
        set_meta(new, "generation", generation + i64::from(changed));
    }
}

fn is_custom_change(new: &Value, old: &Value, has_status: bool) -> bool {
    let wanted = |object: &Value| {
        let mut object = object.clone();
        if let Some(map) = object.as_object_mut() {
            map.remove("metadata");
            if has_status {
                map.remove("status");
            }
        }
        object
    };
    wanted(new) != wanted(old)
}

/// Kinds whose objects count their generations from the first.
fn has_generation(resource: &Resource) -> bool {
    resource.custom.is_some()
        || matches!(
            (resource.group.as_str(), resource.kind.as_str()),
            ("", "Pod" | "ReplicationController")
                | ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
                | ("batch", "Job" | "CronJob")
                | ("policy", "PodDisruptionBudget")
                | ("apiextensions.k8s.io", "CustomResourceDefinition")
                | ("admissionregistration.k8s.io", _)
                | ("scheduling.k8s.io", "PriorityClass")
                | ("resource.k8s.io", "ResourceSlice" | "DeviceClass")
        )
}

/// `Status` of `Success`, as deletions and bindings answer.
pub(super) fn success(details: Option<Value>) -> Value {
    let mut status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" });
    match details {
        Some(details) => status["details"] = details,
        None => status["code"] = json!(201),
    }
    status
}
