//! Patches of all four kinds.

use serde_json::Value;

use super::{Answer, Call, Written, bodies};
use crate::error::{ApiError, ApiResult, FieldError};
use crate::kind::Resource;
use crate::managed::{self, Writer};
use crate::patch::{self, PatchType};
use crate::schema::FieldValidation;
use crate::state::{State, meta, set_meta};

/// The kinds of patch, by content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchKind {
    pub(super) fn of(call: &Call<'_>) -> ApiResult<Self> {
        let media = call.request.content_type.split(';').next().unwrap_or_default().trim();
        match media {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if call.resource.custom.is_none() => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ if call.resource.custom.is_some() => Err(bodies::unsupported_media_type(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
            _ => Err(ApiError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")),
        }
    }
}

impl State {
    pub(super) fn patch(&mut self, call: &Call<'_>) -> ApiResult<Answer> {
        let kind = PatchKind::of(call)?;
        if kind == PatchKind::Apply {
            return self.apply(call);
        }
        if call.query.has("force") {
            let error = FieldError::forbidden("force", "may not be specified for non-apply patch");
            return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
        }
        let write = call.write()?;
        let schema = call.resource.schema.clone().ok_or_else(ApiError::no_such_path)?;
        let live = self.live(call)?.ok_or_else(|| call.not_found())?;
        let old = super::events::shown_in(&call.resource, live.value());
        let patch_type = match kind {
            PatchKind::Json => PatchType::Json,
            PatchKind::Strategic => PatchType::Strategic,
            PatchKind::Merge | PatchKind::Apply => PatchType::Merge,
        };
        let patched = patch::apply(&schema, patch_type, &old, &call.request.body, write.validation)?;
        let (mut new, mut warnings) = (patched.value, patched.warnings);
        warnings.extend(prune_patched(&call.resource, &mut new, write.validation)?);
        bodies::say_kind(&call.resource, &mut new);
        check_identity(call, &old, &new)?;
        let uid = meta(&new, "uid");
        if uid != &*live.uid && !uid.is_empty() {
            let error = FieldError::invalid("metadata.uid", uid, "field is immutable");
            return Err(ApiError::invalid(&call.resource.group, &call.resource.kind, &call.name, &[error]));
        }
        // A patch that does not name a revision is for whichever is there.
        if meta(&new, "resourceVersion").is_empty() {
            set_meta(&mut new, "resourceVersion", live.revision.to_string());
        }
        let written = self.update_object(&call.resource, &live, new, &write)?;
        warnings.extend(written.warnings);
        Ok(self.written(call, Written { warnings, ..written }))
    }

    fn apply(&mut self, call: &Call<'_>) -> ApiResult<Answer> {
        let mut write = call.write()?;
        if call.query.get("fieldManager").is_empty() {
            let error = FieldError::required("fieldManager", "is required for apply patch");
            return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
        }
        call.query.get("fieldManager").clone_into(&mut write.manager);
        let schema = call.resource.schema.clone().ok_or_else(ApiError::no_such_path)?;
        let read = managed::read(&call.request.body, write.validation)?;
        let (applied, mut warnings) = (placed(call, read.value)?, read.warnings);
        let live = self.live(call)?;
        if live.is_none() && call.subresource.is_some() {
            return Err(call.not_found());
        }
        let live_value = live.as_ref().map(|live| live.value());
        let api_version = call.resource.api_version();
        let writer = Writer { versions: call.resource.versions.as_deref(), ..self.writer(&api_version, &write) };
        let force = call.query.flag("force");
        let ignored = managed::ignored(&call.resource, write.subresource);
        let merged = managed::apply(&schema, live_value.as_ref(), &applied, &writer, force, ignored)?;
        let managed = merged["metadata"]["managedFields"].clone();
        let (merged, _) = bodies::conform(&call.resource, &schema, merged, FieldValidation::Ignore)?;
        let written = match (&live, &live_value) {
            (Some(live), Some(old)) => {
                let seen = meta(&applied, "resourceVersion");
                if !seen.is_empty() && seen != live.revision.to_string() {
                    return Err(ApiError::conflict(
                        &call.resource.group,
                        &call.resource.plural,
                        &call.name,
                        super::write::MODIFIED,
                    ));
                }
                self.finish_update(&call.resource, live, old, merged, &write, Some(managed))?
            }
            _ => self.create_applied(call, merged, &write, managed)?,
        };
        warnings.extend(written.warnings);
        Ok(self.written(call, Written { warnings, ..written }))
    }

    fn create_applied(
        &mut self,
        call: &Call<'_>,
        merged: Value,
        write: &super::Write,
        managed: Value,
    ) -> ApiResult<Written> {
        if !meta(&merged, "uid").is_empty() {
            return Err(ApiError::conflict(
                &call.resource.group,
                &call.resource.plural,
                &call.name,
                &format!(
                    "uid mismatch: the provided object specified uid {}, and no existing object was found",
                    meta(&merged, "uid")
                ),
            ));
        }
        self.create_managed(&call.resource, &call.namespace, merged, write, Some(managed))
    }
}

/// What a patch brings that its definition does not know is told of the whole that came out.
fn prune_patched(resource: &Resource, new: &mut Value, mode: FieldValidation) -> ApiResult<Vec<String>> {
    let whole = new.clone();
    match (mode, bodies::prune(resource, new, FieldValidation::Warn)?) {
        (FieldValidation::Strict, unknown) if !unknown.is_empty() => {
            let why = format!("strict decoding error: {}", unknown.join(", "));
            Err(ApiError::invalid("", "", "", &[FieldError::invalid("patch", whole.to_string(), why)]))
        }
        (FieldValidation::Warn, unknown) => Ok(unknown),
        _ => Ok(Vec::new()),
    }
}

/// An applied configuration says its kind, and its place as the path does.
fn placed(call: &Call<'_>, parsed: Value) -> ApiResult<Value> {
    let said = (parsed["apiVersion"].as_str().unwrap_or_default(), parsed["kind"].as_str().unwrap_or_default());
    if said != (call.resource.api_version().as_str(), call.resource.kind.as_str()) {
        let (group, version) = said.0.split_once('/').unwrap_or(("", said.0));
        return Err(ApiError::bad_request(format!("invalid object type: {group}/{version}, Kind={}", said.1)));
    }
    let name = meta(&parsed, "name");
    if !name.is_empty() && name != call.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.name
        )));
    }
    let mut parsed = parsed;
    set_meta(&mut parsed, "name", call.name.as_str());
    if call.resource.namespaced {
        let namespace = meta(&parsed, "namespace");
        if !namespace.is_empty() && namespace != call.namespace {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        set_meta(&mut parsed, "namespace", call.namespace.as_str());
    }
    Ok(parsed)
}

/// A patch may not make another object of it.
fn check_identity(call: &Call<'_>, old: &Value, new: &Value) -> ApiResult<()> {
    let name = meta(new, "name");
    if name != meta(old, "name") {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.name
        )));
    }
    if meta(new, "namespace") != meta(old, "namespace") {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}
