//! From the bytes of a body to an object of the right kind.

use serde_json::Value;

use super::Call;
use crate::error::{ApiError, ApiResult};
use crate::kind::Resource;
use crate::schema::{self, FieldValidation, Schema};
use crate::state::{meta, set_meta};

/// How a body is written.
pub(crate) fn is_yaml(content_type: &str) -> ApiResult<bool> {
    match content_type.split(';').next().unwrap_or_default().trim() {
        // An empty body of any kind is no body.
        "" | "application/json" | "application/vnd.kubernetes.protobuf" => Ok(false),
        "application/yaml" => Ok(true),
        _ => Err(unsupported_media_type("application/json, application/yaml, application/vnd.kubernetes.protobuf")),
    }
}

pub(crate) fn unsupported_media_type(accepted: &str) -> ApiError {
    ApiError::new(
        415,
        "UnsupportedMediaType",
        format!("the body of the request was in an unknown format - accepted media types include: {accepted}"),
    )
}

/// An object of the call's resource, conforming to its schema, with its unknown fields told.
pub(crate) fn object(call: &Call<'_>, mode: FieldValidation) -> ApiResult<(Value, Vec<String>)> {
    let is_yaml = is_yaml(&call.request.content_type)?;
    let resource = &call.resource;
    let body = &call.request.body;
    let schema = resource.schema.as_ref().ok_or_else(ApiError::no_such_path)?;
    // A custom resource's decoder and its schema complain together.
    let reading = match mode {
        FieldValidation::Strict if resource.custom.is_some() => FieldValidation::Warn,
        mode => mode,
    };
    let decoded = schema::decode(schema, &resource.kind, &resource.api_version(), body, is_yaml, reading)?;
    let (mut value, mut warnings) = (decoded.value, decoded.warnings);
    warnings.extend(prune(resource, &mut value, reading)?);
    if reading != mode && !warnings.is_empty() {
        // What is there twice is told before what is unknown.
        warnings.sort_by_key(|warning| !warning.starts_with("duplicate field"));
        return Err(strict_error(resource, &warnings));
    }
    say_kind(resource, &mut value);
    check_place(call, &mut value)?;
    Ok((value, warnings))
}

/// Drops what a custom resource's schema does not know, or refuses it.
pub(crate) fn prune(resource: &Resource, value: &mut Value, mode: FieldValidation) -> ApiResult<Vec<String>> {
    let Some(custom) = &resource.custom else { return Ok(Vec::new()) };
    let unknown: Vec<String> =
        custom.prune(value).into_iter().map(|path| format!("unknown field \"{path}\"")).collect();
    match mode {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(unknown),
        FieldValidation::Strict if unknown.is_empty() => Ok(Vec::new()),
        FieldValidation::Strict => Err(strict_error(resource, &unknown)),
    }
}

fn strict_error(resource: &Resource, complaints: &[String]) -> ApiError {
    ApiError::bad_request(format!(
        "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
        resource.kind,
        resource.version,
        resource.kind,
        complaints.join(", ")
    ))
}

pub(crate) fn say_kind(resource: &Resource, value: &mut Value) {
    if let Some(object) = value.as_object_mut() {
        object.insert("kind".to_owned(), resource.kind.clone().into());
        object.insert("apiVersion".to_owned(), resource.api_version().into());
    }
}

/// The object's namespace and name against those of the path.
fn check_place(call: &Call<'_>, value: &mut Value) -> ApiResult<()> {
    if call.resource.namespaced {
        let said = meta(value, "namespace");
        if !said.is_empty() && said != call.namespace {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        set_meta(value, "namespace", call.namespace.as_str());
    } else if !meta(value, "namespace").is_empty() {
        return Err(ApiError::bad_request("namespace may not be set on cluster-scoped resources".to_owned()));
    }
    if !call.name.is_empty() {
        let said = meta(value, "name");
        if said.is_empty() {
            set_meta(value, "name", call.name.as_str());
        } else if said != call.name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({said}) does not match the name on the URL ({})",
                call.name
            )));
        }
    }
    Ok(())
}

/// A body of options (`DeleteOptions`), where there may be none.
pub(crate) fn options(body: &[u8], content_type: &str) -> ApiResult<Value> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Null);
    }
    let schema = Schema::built_in("v1", "DeleteOptions").ok_or_else(ApiError::no_such_path)?;
    let is_yaml = is_yaml(content_type)?;
    Ok(schema::decode(&schema, "DeleteOptions", "v1", body, is_yaml, FieldValidation::Ignore)?.value)
}

/// What a patch or an in-process writer made, brought into the schema's shape.
pub(crate) fn conform(
    resource: &Resource,
    schema: &Schema,
    value: Value,
    mode: FieldValidation,
) -> ApiResult<(Value, Vec<String>)> {
    let decoded = schema::conform(schema, value, mode)?;
    let (mut value, mut warnings) = (decoded.value, decoded.warnings);
    warnings.extend(prune(resource, &mut value, mode)?);
    say_kind(resource, &mut value);
    Ok((value, warnings))
}
