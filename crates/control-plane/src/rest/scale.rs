//! The scale subresource: one small object in front of many kinds.

use serde_json::{Value, json};

use super::patching::PatchKind;
use super::{Answer, Call, bodies};
use crate::error::{ApiError, ApiResult, FieldError};
use crate::state::{State, meta, set_meta};
use crate::{patch, schema};

impl State {
    pub(super) fn get_scale(&mut self, call: &Call<'_>) -> ApiResult<Answer> {
        let stored = self.live(call)?.ok_or_else(|| call.not_found())?;
        Ok(Answer::json(200, &scale_of(call, &stored.value())))
    }

    pub(super) fn put_scale(&mut self, call: &Call<'_>) -> ApiResult<Answer> {
        let is_yaml = bodies::is_yaml(&call.request.content_type)?;
        let shape = scale_schema()?;
        let mode = call.write()?.validation;
        let sent = schema::decode(&shape, "Scale", "autoscaling/v1", &call.request.body, is_yaml, mode)?.value;
        self.set_scale(call, &sent)
    }

    pub(super) fn patch_scale(&mut self, call: &Call<'_>) -> ApiResult<Answer> {
        let kind = PatchKind::of(call)?;
        let stored = self.live(call)?.ok_or_else(|| call.not_found())?;
        let present = scale_of(call, &stored.value());
        let body = &call.request.body;
        let patched = if kind == PatchKind::Json {
            patch::json(&present, body)?
        } else {
            let sent: Value = serde_json::from_slice(body)
                .or_else(|_| serde_norway::from_slice(body))
                .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
            patch::merge(&present, &sent)
        };
        let conformed = schema::conform(&*scale_schema()?, patched, call.write()?.validation)?.value;
        self.set_scale(call, &conformed)
    }

    fn set_scale(&mut self, call: &Call<'_>, scale: &Value) -> ApiResult<Answer> {
        let write = call.write()?;
        let live = self.live(call)?.ok_or_else(|| call.not_found())?;
        let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
        if replicas < 0 {
            let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
            return Err(ApiError::invalid("autoscaling", "Scale", &call.name, &[error]));
        }
        let mut object = live.value();
        let path = match &call.resource.custom {
            Some(custom) => custom.scale_paths().map(|paths| paths.spec_replicas).unwrap_or_default(),
            None => ".spec.replicas".to_owned(),
        };
        put_at(&mut object, &path, replicas.into());
        let seen = meta(scale, "resourceVersion");
        set_meta(
            &mut object,
            "resourceVersion",
            if seen.is_empty() { live.revision.to_string() } else { seen.to_owned() },
        );
        let uid = meta(scale, "uid");
        if !uid.is_empty() {
            set_meta(&mut object, "uid", uid);
        }
        self.update_object(&call.resource, &live, object, &write)?;
        let stored = self.live(call)?.ok_or_else(|| call.not_found())?;
        Ok(Answer::json(200, &scale_of(call, &stored.value())))
    }
}

fn scale_schema() -> ApiResult<std::sync::Arc<schema::Schema>> {
    schema::Schema::built_in("autoscaling/v1", "Scale").ok_or_else(ApiError::no_such_path)
}

fn scale_of(call: &Call<'_>, object: &Value) -> Value {
    let number = |path: &str| at(object, path).and_then(Value::as_i64).unwrap_or(0);
    let (wanted, present, selector) = match &call.resource.custom {
        Some(custom) => {
            let Some(paths) = custom.scale_paths() else { return Value::Null };
            let selector = paths.label_selector.as_deref().and_then(|path| at(object, path)).and_then(Value::as_str);
            (number(&paths.spec_replicas), number(&paths.status_replicas), selector.unwrap_or_default().to_owned())
        }
        None => (number(".spec.replicas"), number(".status.replicas"), selector_text(&object["spec"]["selector"])),
    };
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    let mut status = json!({ "replicas": present });
    if !selector.is_empty() {
        status["selector"] = json!(selector);
    }
    let mut spec = json!({});
    if wanted != 0 {
        spec["replicas"] = json!(wanted);
    }
    json!({ "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status })
}

/// `app=web,tier in (a,b)`, from a selector object or a plain map.
fn selector_text(selector: &Value) -> String {
    let plain =
        || selector.as_object().filter(|map| !map.contains_key("matchLabels") && !map.contains_key("matchExpressions"));
    let labels = selector["matchLabels"].as_object().or_else(plain);
    let mut parts: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let mut values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        values.sort_unstable();
        parts.push(match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    parts.sort();
    parts.join(",")
}

fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').filter(|part| !part.is_empty()).try_fold(object, |at, part| at.get(part))
}

/// Sets a value at a dotted path, making the objects on the way.
fn put_at(object: &mut Value, path: &str, value: Value) {
    let parts: Vec<&str> = path.split('.').filter(|part| !part.is_empty()).collect();
    let Some((last, parents)) = parts.split_last() else { return };
    let mut place = object;
    for part in parents {
        let Some(map) = place.as_object_mut() else { return };
        place = map.entry(*part).or_insert_with(|| json!({}));
    }
    if let Some(map) = place.as_object_mut() {
        map.insert((*last).to_owned(), value);
    }
}
