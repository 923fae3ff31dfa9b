//! Create and update.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::{Answer, Call, bodies};
use crate::custom::CustomVersion;
use crate::error::{ApiError, ApiResult, FieldError};
use crate::kind::{Resource, Subresource};
use crate::managed::{self, Writer};
use crate::schema::FieldValidation;
use crate::state::{State, meta, set_meta, unset_meta};
use crate::store::{Key, Pairs, Stored};
use crate::{admit, builtin};

/// How a write shall be done, and by whom.
#[derive(Clone, Debug)]
pub struct Write {
    pub dry_run: bool,
    pub manager: String,
    pub validation: FieldValidation,
    pub subresource: Option<Subresource>,
}

/// What a write left behind.
#[derive(Debug)]
pub struct Written {
    pub json: Bytes,
    pub created: bool,
    pub warnings: Vec<String>,
}

pub(super) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl Write {
    /// A write by one of the cluster's own controllers.
    #[must_use]
    pub fn by(manager: &str) -> Self {
        Self { dry_run: false, manager: manager.to_owned(), validation: FieldValidation::Ignore, subresource: None }
    }

    #[must_use]
    pub fn on(mut self, subresource: Option<Subresource>) -> Self {
        self.subresource = subresource;
        self
    }
}

impl State {
    pub(super) fn create(&mut self, call: &Call<'_>) -> ApiResult<Answer> {
        if call.resource.namespaced && call.namespace.is_empty() {
            return Err(super::method_not_allowed());
        }
        let write = call.write()?;
        let (object, mut warnings) = bodies::object(call, write.validation)?;
        let written = self.create_object(&call.resource, &call.namespace, object, &write)?;
        warnings.extend(written.warnings);
        Ok(self.written(call, Written { warnings, ..written }))
    }

    pub(super) fn replace(&mut self, call: &Call<'_>) -> ApiResult<Answer> {
        let write = call.write()?;
        let (object, mut warnings) = bodies::object(call, write.validation)?;
        let written = match self.live(call)? {
            None if may_create_on_update(&call.resource) && write.subresource.is_none() => {
                self.create_object(&call.resource, &call.namespace, object, &write)?
            }
            None => return Err(call.not_found()),
            Some(live) => self.update_object(&call.resource, &live, object, &write)?,
        };
        warnings.extend(written.warnings);
        Ok(self.written(call, Written { warnings, ..written }))
    }

    /// Brings a decoded object into being.
    ///
    /// - Flow: defaults, metadata, admission, validation, managed fields, store.
    /// - Guarantees: on an error nothing has changed.
    /// - Assumptions: the object conforms to the resource's schema and says its kind.
    pub(crate) fn create_object(
        &mut self,
        resource: &Arc<Resource>,
        namespace: &str,
        object: Value,
        write: &Write,
    ) -> ApiResult<Written> {
        self.create_managed(resource, namespace, object, write, None)
    }

    /// `applied` holds the managed fields that server-side apply has already worked out.
    pub(super) fn create_managed(
        &mut self,
        resource: &Arc<Resource>,
        namespace: &str,
        mut object: Value,
        write: &Write,
        applied: Option<Value>,
    ) -> ApiResult<Written> {
        if !meta(&object, "resourceVersion").is_empty() && meta(&object, "resourceVersion") != "0" {
            return Err(ApiError::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        if resource.namespaced {
            set_meta(&mut object, "namespace", namespace);
        }
        default(resource, &mut object);
        let managed = applied.unwrap_or_else(|| self.tracked(resource, None, &mut object, write));
        let is_named = !meta(&object, "name").is_empty();
        self.fill_metadata(resource, namespace, &mut object);
        let name = meta(&object, "name").to_owned();
        self.check_namespace(resource, namespace, &name)?;
        // Whoever completes an object comes before its name is generated, and speaks of the prefix.
        let spoken = if is_named { name.clone() } else { meta(&object, "generateName").to_owned() };
        admit::create(self, resource, &mut object, namespace, &spoken)?;
        default(resource, &mut object);
        // After admission: a pod's quality of service follows from the limits it was given there.
        prepare_create(resource, &mut object);
        self.refuse_invalid(resource, &name, validate_create(resource, &object))?;
        admit::judge_create(self, resource, &object, namespace, &name)?;
        set_managed(&mut object, managed);
        if let Some(present) = self.find(resource, namespace, &name) {
            let mut error = ApiError::already_exists(&resource.group, &resource.plural, &name);
            if present.is_deleting {
                error.message.insert_str(0, "object is being deleted: ");
            }
            return Err(error);
        }
        let warnings = warnings(resource, &object);
        let json = self.keep(resource, Key::new(namespace, &name), object, write.dry_run)?;
        Ok(Written { json, created: true, warnings })
    }

    /// Replaces a live object, seen in the resource's version, by a decoded new one.
    pub(crate) fn update_object(
        &mut self,
        resource: &Arc<Resource>,
        live: &Arc<Stored>,
        new: Value,
        write: &Write,
    ) -> ApiResult<Written> {
        let old = live.value();
        self.check_current(resource, live, &new)?;
        self.finish_update(resource, live, &old, new, write, None)
    }

    /// The later half of an update: what the writer may not decide, rules, managed fields, store.
    ///
    /// `applied` holds the managed fields that server-side apply has already worked out.
    pub(super) fn finish_update(
        &mut self,
        resource: &Arc<Resource>,
        live: &Arc<Stored>,
        old: &Value,
        mut new: Value,
        write: &Write,
        applied: Option<Value>,
    ) -> ApiResult<Written> {
        let name = live.key.name.as_str();
        carry_over(&mut new, old);
        default(resource, &mut new);
        let managed = applied.unwrap_or_else(|| self.tracked(resource, Some(old), &mut new, write));
        prepare_update(resource, write.subresource, &mut new, old);
        admit::update(self, resource, write.subresource, &mut new, old)?;
        Self::count_generation(resource, write.subresource, &mut new, old);
        self.refuse_invalid(resource, name, validate_update(resource, write.subresource, &new, old))?;
        admit::judge_update(self, resource, write.subresource, &new, old)?;
        set_managed(&mut new, managed);
        managed::keep_times(old, &mut new);
        let is_going = live.is_deleting
            && is_free(&new)
            && new["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0;
        let warnings = warnings(resource, &new);
        let new = to_kept(resource, new)?;
        if !is_going && self.is_as_kept(resource, live, old, &new) {
            return Ok(Written { json: live.json(), created: false, warnings: Vec::new() });
        }
        let json = self.keep(resource, live.key.clone(), new, write.dry_run)?;
        if is_going && !write.dry_run {
            self.take_away(resource, &live.key);
        }
        Ok(Written { json, created: false, warnings })
    }

    /// Whether a write would leave the very bytes that are there. What is kept in another version than is written today is rewritten by
    /// a write that changes nothing else: so objects are migrated.
    fn is_as_kept(&self, resource: &Resource, live: &Arc<Stored>, old: &Value, new: &Value) -> bool {
        let kept = resource.versions.as_ref().and_then(|_| self.store.get(&resource.id(), &live.key));
        match kept.filter(|kept| !Arc::ptr_eq(kept, live)) {
            Some(kept) => kept.value() == *new,
            None => new == old,
        }
    }

    /// Optimistic concurrency: the writer saw the live object, or did not say what it saw.
    fn check_current(&self, resource: &Resource, live: &Stored, new: &Value) -> ApiResult<()> {
        let name = live.key.name.as_str();
        let conflict = |why: &str| ApiError::conflict(&resource.group, &resource.plural, name, why);
        let uid = meta(new, "uid");
        if !uid.is_empty() && uid != &*live.uid {
            return Err(conflict(&format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                live.uid
            )));
        }
        match meta(new, "resourceVersion") {
            "" | "0" if needs_revision(resource) => Err(ApiError::invalid(
                &resource.group,
                &resource.plural,
                name,
                &[FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update")],
            )),
            "" | "0" => Ok(()),
            seen if seen == live.revision.to_string() => Ok(()),
            seen if seen.parse::<u64>().is_err() => {
                Err(ApiError::bad_request(format!("strconv.ParseUint: parsing \"{seen}\": invalid syntax")))
            }
            _ => Err(conflict(MODIFIED)),
        }
    }

    /// The managed fields after this write. What admission and the strategies do to the object later is nobody's.
    fn tracked(&self, resource: &Resource, old: Option<&Value>, new: &mut Value, write: &Write) -> Value {
        let Some(schema) = &resource.schema else { return Value::Null };
        let api_version = resource.api_version();
        let writer = Writer { versions: resource.versions.as_deref(), ..self.writer(&api_version, write) };
        managed::track(schema, old, new, &writer, managed::ignored(resource, write.subresource));
        new["metadata"].get("managedFields").cloned().unwrap_or_default()
    }

    fn refuse_invalid(&self, resource: &Resource, name: &str, errors: Vec<FieldError>) -> ApiResult<()> {
        if errors.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid(&resource.group, &resource.kind, name, &errors))
    }

    /// Stores the object, or only shows what would be stored: in the resource's version.
    ///
    /// - Caveats: what was stored and cannot be shown is stored all the same, as on the real server.
    pub(super) fn keep(
        &mut self,
        resource: &Arc<Resource>,
        key: Key,
        object: Value,
        dry_run: bool,
    ) -> ApiResult<Bytes> {
        let mut object = to_kept(resource, object)?;
        if dry_run {
            let shown = match (&resource.versions, &resource.custom) {
                (Some(versions), Some(custom)) => versions.shown(object, custom)?,
                _ => object,
            };
            return Ok(Bytes::from(shown.to_string()));
        }
        let fields = match &resource.versions {
            Some(versions) => versions.of(versions.kept_in()).map(|kept| selected(kept, &object)).unwrap_or_default(),
            None => selectable(resource, &object),
        };
        let is_definition = resource.is("apiextensions.k8s.io", "CustomResourceDefinition");
        let before = if is_definition { self.store.get(&resource.id(), &key).cloned() } else { None };
        // A second group shows the same objects: they are kept in the first one's form.
        super::events::to_core(&mut object);
        let stored = self.store.put(&resource.id(), key, &mut object, fields);
        if is_definition {
            self.serve_definition(&stored, before.as_deref());
        }
        if resource.id().plural != resource.plural || resource.id().group != resource.group {
            return Ok(Bytes::from(super::events::shown_in(resource, stored.value()).to_string()));
        }
        Ok(resource.view(&stored)?.json())
    }

    pub(super) fn writer<'a>(&self, api_version: &'a str, write: &'a Write) -> Writer<'a> {
        Writer {
            manager: &write.manager,
            api_version,
            subresource: write.subresource.map_or("", Subresource::name),
            now: self.now(),
            versions: None,
        }
    }

    pub(super) fn written(&self, call: &Call<'_>, written: Written) -> Answer {
        let status = if written.created { 201 } else { 200 };
        self.shown(call, status, written.json).warning(written.warnings)
    }
}

fn set_managed(object: &mut Value, managed: Value) {
    if managed.is_null() {
        unset_meta(object, "managedFields");
    } else {
        set_meta(object, "managedFields", managed);
    }
}

/// What the schema's own rules fill in.
pub(super) fn default(resource: &Resource, object: &mut Value) {
    match &resource.custom {
        Some(custom) => custom.default(object),
        None => {
            if resource.is("apiextensions.k8s.io", "CustomResourceDefinition") {
                crate::custom::default_definition(object);
            }
            builtin::default(resource, object);
        }
    }
}

fn prepare_create(resource: &Resource, object: &mut Value) {
    match &resource.custom {
        Some(custom) if custom.has_status() => {
            if let Some(map) = object.as_object_mut() {
                map.remove("status");
            }
            // A schema may have a status of its own for what nobody has looked at yet.
            custom.default(object);
        }
        Some(_) => {}
        None if resource.is("apiextensions.k8s.io", "CustomResourceDefinition") => {
            builtin::prepare_create(resource, object);
            crate::custom::open_status(object);
        }
        None => builtin::prepare_create(resource, object),
    }
}

fn prepare_update(resource: &Resource, subresource: Option<Subresource>, new: &mut Value, old: &Value) {
    let Some(custom) = &resource.custom else {
        builtin::prepare_update(resource, subresource, new, old);
        if subresource.is_none() && resource.is("apiextensions.k8s.io", "CustomResourceDefinition") {
            crate::custom::remember_storage(new);
        }
        return;
    };
    match subresource {
        Some(Subresource::Status) => {
            // A status write changes the status, and nothing else.
            let status = new.get("status").cloned();
            let revision = new["metadata"].get("resourceVersion").cloned();
            let managed = new["metadata"].get("managedFields").cloned();
            *new = old.clone();
            put_or_remove(new, "status", status);
            if let Some(revision) = revision {
                set_meta(new, "resourceVersion", revision);
            }
            match managed {
                Some(managed) => set_meta(new, "managedFields", managed),
                None => unset_meta(new, "managedFields"),
            }
        }
        _ if custom.has_status() => put_or_remove(new, "status", old.get("status").cloned()),
        _ => {}
    }
}

fn put_or_remove(object: &mut Value, field: &str, value: Option<Value>) {
    if let Some(map) = object.as_object_mut() {
        match value {
            Some(value) => map.insert(field.to_owned(), value),
            None => map.remove(field),
        };
    }
}

fn validate_create(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = builtin::validate_meta(resource, object);
    match &resource.custom {
        Some(custom) => errors.extend(custom.validate(object, None)),
        None if resource.is("apiextensions.k8s.io", "CustomResourceDefinition") => {
            errors.extend(crate::custom::validate_definition(object, None));
        }
        None => errors.extend(builtin::validate_create(resource, object)),
    }
    errors
}

fn validate_update(resource: &Resource, subresource: Option<Subresource>, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = builtin::validate_meta(resource, new);
    let of_update = builtin::validate_meta_update(new, old);
    // The real server looks for new finalizers in two places, and has a cause from each.
    let again: Vec<FieldError> =
        of_update.iter().filter(|error| error.field == "metadata.finalizers").cloned().collect();
    errors.extend(of_update);
    errors.extend(again);
    match &resource.custom {
        Some(custom) if subresource == Some(Subresource::Status) => errors.extend(custom.validate_status(new, old)),
        Some(custom) => errors.extend(custom.validate(new, Some(old))),
        None if resource.is("apiextensions.k8s.io", "CustomResourceDefinition") => {
            if subresource.is_none() {
                errors.extend(crate::custom::validate_definition(new, Some(old)));
            }
        }
        None => errors.extend(builtin::validate_update(resource, subresource, new, old)),
    }
    errors
}

/// What an update cannot take away by leaving it out.
fn carry_over(new: &mut Value, old: &Value) {
    for field in ["name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "generateName"] {
        let is_missing = new["metadata"].get(field).is_none_or(Value::is_null);
        if let Some(kept) = old["metadata"].get(field).filter(|_| is_missing) {
            set_meta(new, field, kept.clone());
        }
    }
    if let Some(created) = old["metadata"].get("creationTimestamp") {
        set_meta(new, "creationTimestamp", created.clone());
    }
    unset_meta(new, "selfLink");
    if let Some(revision) = old["metadata"].get("resourceVersion") {
        set_meta(new, "resourceVersion", revision.clone());
    }
}

/// Nothing holds the object back from going.
pub(super) fn is_free(object: &Value) -> bool {
    let is_empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    let holds_namespace = object["kind"] == "Namespace" && !is_empty(&object["spec"]["finalizers"]);
    is_empty(&object["metadata"]["finalizers"]) && !holds_namespace
}

fn warnings(resource: &Resource, object: &Value) -> Vec<String> {
    // What is deprecated is told with every answer, and not here.
    if resource.custom.is_some() { Vec::new() } else { builtin::warnings(resource, object) }
}

/// In the version in which it is written.
fn to_kept(resource: &Resource, object: Value) -> ApiResult<Value> {
    match &resource.versions {
        Some(versions) => versions.to_kept(object),
        None => Ok(object),
    }
}

pub(super) fn selectable(resource: &Resource, object: &Value) -> Pairs {
    match &resource.custom {
        Some(custom) => selected(custom, object),
        None => builtin::selectable_fields(resource, object).into_iter().collect(),
    }
}

fn selected(custom: &CustomVersion, object: &Value) -> Pairs {
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    custom
        .selectable_fields()
        .iter()
        .filter_map(|path| {
            let found = path.split('.').filter(|part| !part.is_empty()).try_fold(object, |at, part| at.get(part));
            found.map(|value| (path.trim_start_matches('.').to_owned(), shown(value)))
        })
        .collect()
}

/// Kinds that a `PUT` may bring into being.
fn may_create_on_update(resource: &Resource) -> bool {
    matches!(
        (resource.group.as_str(), resource.kind.as_str()),
        ("coordination.k8s.io", "Lease")
            | ("", "Event" | "Endpoints" | "LimitRange" | "Service")
            | ("events.k8s.io", "Event")
            | ("rbac.authorization.k8s.io", _)
    )
}

/// Kinds whose update must say which revision it saw.
fn needs_revision(resource: &Resource) -> bool {
    resource.custom.is_some()
        || matches!(
            (resource.group.as_str(), resource.kind.as_str()),
            ("coordination.k8s.io", "Lease")
                | ("policy", "PodDisruptionBudget")
                | ("apiextensions.k8s.io", _)
                | ("admissionregistration.k8s.io", _)
                | ("storage.k8s.io", "VolumeAttachment" | "CSINode" | "CSIDriver" | "CSIStorageCapacity")
        )
}
