//! Deletion: at once, gracefully, or as soon as the last finalizer is gone.

use std::sync::Arc;

use bytes::Bytes;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::objects::success;
use super::write::is_free;
use super::{Answer, Call, bodies};
use crate::error::{ApiError, ApiResult, FieldError};
use crate::kind::Resource;
use crate::state::{State, set_meta};
use crate::store::{Key, Stored};
use crate::{builtin, clock};

/// How a deletion went.
#[derive(Debug)]
pub enum Deleted {
    /// It is gone; this was its last state.
    Gone(Bytes),
    /// It is marked, and goes when its grace is over or its finalizers are done.
    Marked(Bytes),
}

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

impl State {
    pub(super) fn delete(&mut self, call: &Call<'_>) -> ApiResult<Answer> {
        let options = delete_options(call)?;
        check_options(&options)?;
        let live = self.live(call)?.ok_or_else(|| call.not_found())?;
        let deleted = self.delete_object(&call.resource, &live, &options)?;
        let json = match deleted {
            Deleted::Gone(json) if answers_with_object(&call.resource) => json,
            Deleted::Gone(_) => return Ok(Answer::json(200, &success(Some(details(call, &live))))),
            Deleted::Marked(json) => json,
        };
        Ok(self.shown(call, 200, json))
    }

    pub(super) fn delete_collection(&mut self, call: &Call<'_>) -> ApiResult<Answer> {
        if call.resource.namespaced && call.namespace.is_empty() || call.resource.is("", "Namespace") {
            return Err(super::method_not_allowed());
        }
        let options = delete_options(call)?;
        let selected = self.select(call)?;
        for live in &selected.objects {
            match self.delete_object(&call.resource, live, &options) {
                Ok(_) => {}
                // Somebody else was faster, which is what was wanted.
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.shown_list(call, &selected))
    }

    /// Deletes, or marks for deletion, a live object, seen in the resource's version. `options` is a `DeleteOptions`; null will do.
    pub(crate) fn delete_object(
        &mut self,
        resource: &Arc<Resource>,
        live: &Arc<Stored>,
        options: &Value,
    ) -> ApiResult<Deleted> {
        check_options(options)?;
        if resource.is("", "Namespace") && matches!(live.key.name.as_str(), "default" | "kube-system" | "kube-public") {
            let why = "this namespace may not be deleted";
            return Err(ApiError::forbidden("", "namespaces", &live.key.name, why));
        }
        check_preconditions(resource, live, options)?;
        let is_dry = options["dryRun"].as_array().is_some_and(|list| list.iter().any(|word| word == "All"));
        let mut object = live.value();
        let finalizers_before = object["metadata"]["finalizers"].clone();
        set_policy_finalizers(resource, &mut object, options);
        let asked = options["gracePeriodSeconds"].as_i64();
        let grace = builtin::grace_period(resource, &object, asked).unwrap_or(0).max(0);
        let is_pod = resource.is("", "Pod");
        let waits = grace > 0 || !is_free(&object);
        if !waits {
            if is_dry {
                return Ok(Deleted::Gone(live.json()));
            }
            if is_pod {
                // A pod's last word says that it had no grace.
                self.mark(&mut object, 0);
                self.take_away(resource, &live.key);
                return Ok(Deleted::Gone(Bytes::from(object.to_string())));
            }
            return Ok(Deleted::Gone(self.take_away(resource, &live.key).map_or_else(Bytes::new, |last| last.json())));
        }
        if live.is_deleting {
            let left = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
            let is_sooner = is_pod && grace < left;
            if !is_sooner && object["metadata"]["finalizers"] == finalizers_before {
                return Ok(Deleted::Marked(live.json()));
            }
            if is_sooner {
                self.mark(&mut object, grace);
            }
        } else {
            self.mark(&mut object, grace);
            if let Some(generation) = object["metadata"]["generation"].as_i64() {
                set_meta(&mut object, "generation", generation + 1);
            }
            if resource.is("", "Namespace") {
                object["status"] = json!({ "phase": "Terminating" });
            }
        }
        Ok(Deleted::Marked(self.keep(resource, live.key.clone(), object, is_dry)?))
    }

    fn mark(&self, object: &mut Value, grace_seconds: i64) {
        let at = self.now().saturating_add(SignedDuration::from_secs(grace_seconds)).unwrap_or(self.now());
        set_meta(object, "deletionTimestamp", clock::seconds(at));
        set_meta(object, "deletionGracePeriodSeconds", grace_seconds);
    }

    /// Takes an object out of the store, whatever holds it.
    pub(crate) fn take_away(&mut self, resource: &Resource, key: &Key) -> Option<Arc<Stored>> {
        let last = self.store.remove(&resource.id(), key)?;
        if resource.is("apiextensions.k8s.io", "CustomResourceDefinition") {
            self.stop_serving(&last);
        }
        Some(last)
    }
}

/// The kinds whose storage answers a deletion with the object instead of a `Status`.
fn answers_with_object(resource: &Resource) -> bool {
    resource.group.is_empty()
        && matches!(
            resource.kind.as_str(),
            "Pod"
                | "PersistentVolumeClaim"
                | "PersistentVolume"
                | "ServiceAccount"
                | "PodTemplate"
                | "ResourceQuota"
                | "Service"
        )
        || resource.is("resource.k8s.io", "ResourceClaim")
        || resource.is("resource.k8s.io", "ResourceClaimTemplate")
        || resource.is("resource.k8s.io", "ResourceSlice")
        || resource.is("resource.k8s.io", "DeviceClass")
        || resource.group == "storage.k8s.io" && resource.custom.is_none() && resource.kind != "CSIStorageCapacity"
}

fn details(call: &Call<'_>, live: &Stored) -> Value {
    let mut details = json!({ "name": live.key.name, "kind": call.resource.plural, "uid": live.uid });
    if !call.resource.group.is_empty() {
        details["group"] = json!(call.resource.group);
    }
    details
}

/// From the body, or from the query where there is no body.
fn delete_options(call: &Call<'_>) -> ApiResult<Value> {
    let mut options = bodies::options(&call.request.body, &call.request.content_type)?;
    if options.is_null() {
        options = json!({});
        if let Some(grace) = call.query.number("gracePeriodSeconds")? {
            options["gracePeriodSeconds"] = json!(grace);
        }
        for name in ["propagationPolicy"] {
            if call.query.has(name) {
                options[name] = json!(call.query.get(name));
            }
        }
        if call.query.has("orphanDependents") {
            options["orphanDependents"] = json!(call.query.flag("orphanDependents"));
        }
    } else if !options.is_object() {
        return Err(ApiError::bad_request("couldn't get version/kind; json parse error: the body is not an object"));
    }
    if call.query.all("dryRun").any(|word| word == "All") {
        options["dryRun"] = json!(["All"]);
    }
    Ok(options)
}

fn check_options(options: &Value) -> ApiResult<()> {
    let mut errors = Vec::new();
    let policy = options["propagationPolicy"].as_str();
    if options["orphanDependents"].is_boolean() && policy.is_some() {
        errors.push(FieldError::invalid(
            "propagationPolicy",
            policy.unwrap_or_default(),
            "orphanDependents and deletionPropagation cannot be both set",
        ));
    }
    if let Some(policy) = policy.filter(|policy| !matches!(*policy, "Foreground" | "Background" | "Orphan")) {
        errors.push(FieldError::not_supported(
            "propagationPolicy",
            policy,
            &["Foreground", "Background", "Orphan", "nil"],
        ));
    }
    if let Some(odd) = options["dryRun"].as_array().into_iter().flatten().find(|word| *word != "All") {
        errors.push(FieldError::not_supported("dryRun", json!([odd]), &["All"]));
    }
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &errors)) }
}

fn check_preconditions(resource: &Resource, live: &Stored, options: &Value) -> ApiResult<()> {
    let wanted = &options["preconditions"];
    let revision = live.revision.to_string();
    for (field, said, found, perhaps) in [
        ("UID", "uid", &*live.uid, "deleted and then recreated"),
        ("ResourceVersion", "resourceVersion", &revision, "modified"),
    ] {
        if let Some(asked) = wanted[said].as_str()
            && asked != found
        {
            return Err(ApiError::conflict(
                &resource.group,
                &resource.kind,
                &live.key.name,
                &format!(
                    "the {field} in the precondition ({asked}) does not match the {field} in record ({found}). \
                     The object might have been {perhaps}"
                ),
            ));
        }
    }
    Ok(())
}

/// The two finalizers that carry a propagation policy to the garbage collector.
fn set_policy_finalizers(resource: &Resource, object: &mut Value, options: &Value) {
    let has =
        |name: &str| object["metadata"]["finalizers"].as_array().is_some_and(|list| list.iter().any(|it| it == name));
    let wanted = match (options["propagationPolicy"].as_str(), options["orphanDependents"].as_bool()) {
        (Some("Orphan"), _) | (None, Some(true)) => Some(ORPHAN),
        (Some("Foreground"), _) => Some(FOREGROUND),
        (Some(_), _) | (None, Some(false)) => None,
        (None, None) if has(ORPHAN) => Some(ORPHAN),
        (None, None) if has(FOREGROUND) => Some(FOREGROUND),
        // Two kinds keep the default of their first days.
        (None, None) if resource.is("batch", "Job") || resource.is("", "ReplicationController") => Some(ORPHAN),
        (None, None) => None,
    };
    let mut finalizers: Vec<Value> = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    finalizers.retain(|name| name != ORPHAN && name != FOREGROUND);
    finalizers.extend(wanted.map(Value::from));
    if finalizers.is_empty() {
        crate::state::unset_meta(object, "finalizers");
    } else {
        set_meta(object, "finalizers", finalizers);
    }
}
