//! The three kinds of patch: from the object as it stands and a patch's bytes to the object as it should be.

use serde_json::Value;

use crate::error::ApiError;
use crate::schema::{self, Decoded, FieldValidation, Schema, go};

mod operations;
mod strategic;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
}

/// The whole way: reads the patch, applies it, and makes the outcome conform.
///
/// - Guarantees: refusals and warnings are those of the real server, for each kind of patch in its own words.
/// - Caveats: what a custom resource does not know is left for its schema to prune.
pub fn apply(
    schema: &Schema,
    patch_type: PatchType,
    target: &Value,
    body: &[u8],
    mode: FieldValidation,
) -> Result<Decoded, ApiError> {
    let (patched, mut complaints, shown) = match patch_type {
        PatchType::Json => (json(target, body)?, operations::complaints(body), None),
        PatchType::Merge => {
            let parsed = parse_object(body, "error decoding patch: ")?;
            if parsed.value.is_null() {
                return Err(ApiError::bad_request("Invalid JSON Patch"));
            }
            (merge(target, &parsed.value), parsed.warnings, None)
        }
        PatchType::Strategic => {
            let parsed = parse_object(body, "")?;
            let patch = if parsed.value.is_null() { Value::Object(serde_json::Map::new()) } else { parsed.value };
            (strategic(schema, target, &patch)?, parsed.warnings, Some(go::show(&patch)))
        }
    };
    let patched = same_type(target, patched, patch_type)?;
    let conforming = match &shown {
        Some(shown) => schema::conform_converted(schema, patched, shown, &complaints, mode)?,
        None => schema::conform_with(schema, patched, &complaints, mode)?,
    };
    if mode == FieldValidation::Warn {
        complaints.extend(conforming.warnings);
    } else {
        complaints.clear();
    }
    Ok(Decoded { value: conforming.value, warnings: complaints })
}

/// RFC 6902, as the real server reads it.
pub fn json(target: &Value, patch: &[u8]) -> Result<Value, ApiError> {
    operations::apply(target, patch)
}

/// RFC 7386.
#[must_use]
pub fn merge(target: &Value, patch: &Value) -> Value {
    let mut merged = target.clone();
    json_patch::merge(&mut merged, patch);
    merged
}

/// Strategic merge: lists of objects merge by their keys, and directives say more.
pub fn strategic(schema: &Schema, target: &Value, patch: &Value) -> Result<Value, ApiError> {
    strategic::apply(schema, target, patch)
}

fn parse_object(body: &[u8], before: &str) -> Result<Decoded, ApiError> {
    let parsed = schema::parse(body, false).map_err(|error| ApiError::bad_request(format!("{before}{error}")))?;
    let what = match &parsed.value {
        Value::Object(_) | Value::Null => return Ok(parsed),
        Value::Array(_) => "array",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
    };
    Err(ApiError::bad_request(format!(
        "{before}json: cannot unmarshal {what} into Go value of type map[string]interface {{}}"
    )))
}

/// A patch does not make another kind of an object: the strategic one is not heard, the others are refused.
fn same_type(target: &Value, mut patched: Value, patch_type: PatchType) -> Result<Value, ApiError> {
    let refused = |why: String, patched: &Value| {
        let error = crate::error::FieldError::invalid("patch", patched.to_string(), why);
        ApiError::invalid("", "", "", &[error])
    };
    for key in ["apiVersion", "kind"] {
        let (before, after) = (&target[key], &patched[key]);
        if before == after || before.is_null() {
            continue;
        }
        let is_text = after.as_str().is_some_and(|text| !text.is_empty()) || after.is_null() || after == "";
        if patch_type != PatchType::Strategic && is_text && !after.is_null() && after != "" {
            let kind = patched["kind"].as_str().unwrap_or_default();
            let version = patched["apiVersion"].as_str().unwrap_or_default();
            let why = format!(
                "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
                go::quote(kind),
                go::quote(version)
            );
            return Err(refused(why, &patched));
        }
        let before = before.clone();
        if let Value::Object(object) = &mut patched {
            object.insert(key.to_owned(), before);
        }
    }
    Ok(patched)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "p", "labels": {"a": "b"}}, "status": {},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "strategy": {},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [
                {"name": "a", "image": "i", "resources": {}, "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
                {"name": "b", "image": "j", "resources": {}}]}}}})
    }

    fn patched(patch_type: PatchType, body: &str, mode: FieldValidation) -> Result<Decoded, ApiError> {
        let schema = Schema::built_in("apps/v1", "Deployment").unwrap();
        apply(&schema, patch_type, &deployment(), body.as_bytes(), mode)
    }

    /// What the real server said to each of these.
    #[test]
    fn refusals_are_the_real_servers() {
        use PatchType::{Json, Merge, Strategic};
        for (patch_type, body, code, reason, words) in [
            (Json, "", 400, "BadRequest", "error decoding patch: unexpected end of JSON input"),
            (
                Json,
                "{}",
                400,
                "BadRequest",
                "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            ),
            (
                Json,
                "[1]",
                400,
                "BadRequest",
                "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
            ),
            (
                Json,
                r#"[{"op":5,"path":"/a"}]"#,
                400,
                "BadRequest",
                "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
            ),
            (
                Json,
                r#"[{"op":"test","path":"/spec/replicas","value":5}]"#,
                422,
                "Invalid",
                "the server rejected our request due to an error in our request",
            ),
            (Merge, "", 400, "BadRequest", "error decoding patch: unexpected end of JSON input"),
            (
                Merge,
                "[]",
                400,
                "BadRequest",
                "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
            (Merge, "null", 400, "BadRequest", "Invalid JSON Patch"),
            (Strategic, "{", 400, "BadRequest", "unexpected end of JSON input"),
            (
                Strategic,
                "5",
                400,
                "BadRequest",
                "json: cannot unmarshal number into Go value of type map[string]interface {}",
            ),
            (
                Strategic,
                r#"{"spec":{"replicas":"x"}}"#,
                422,
                "Invalid",
                r#" "" is invalid: patch: Invalid value: "map[spec:map[replicas:x]]": unrecognized type: int32"#,
            ),
            (
                Strategic,
                r#"{"spec":{"replicas":1.5}}"#,
                422,
                "Invalid",
                r#" "" is invalid: patch: Invalid value: "map[spec:map[replicas:1.5]]": cannot convert float64 to int32"#,
            ),
            (
                Strategic,
                r#"{"spec":5}"#,
                422,
                "Invalid",
                r#" "" is invalid: patch: Invalid value: "map[spec:5]": cannot restore struct from: int64"#,
            ),
            (
                Strategic,
                r#"{"spec":{"paused":"x"}}"#,
                422,
                "Invalid",
                r#" "" is invalid: patch: Invalid value: "map[spec:map[paused:x]]": unrecognized type: bool"#,
            ),
            (
                Strategic,
                r#"{"metadata":{"labels":{"a":1}}}"#,
                422,
                "Invalid",
                r#" "" is invalid: patch: Invalid value: "map[metadata:map[labels:map[a:1]]]": cannot convert int64 to string"#,
            ),
            (
                Strategic,
                r#"{"spec":{"template":{"spec":{"containers":{}}}}}"#,
                422,
                "Invalid",
                r#" "" is invalid: patch: Invalid value: "map[spec:map[template:map[spec:map[containers:map[]]]]]": cannot restore slice from map"#,
            ),
            (
                Strategic,
                r#"{"spec":{"strategy":{"rollingUpdate":{"maxSurge":true}}}}"#,
                422,
                "Invalid",
                r#" "" is invalid: patch: Invalid value: "map[spec:map[strategy:map[rollingUpdate:map[maxSurge:true]]]]": json: cannot unmarshal bool into Go value of type int32"#,
            ),
            (
                Strategic,
                r#"{"spec":{"template":{"spec":{"containers":[{"image":"z"}]}}}}"#,
                500,
                "",
                "map: map[image:z] does not contain declared merge key: name",
            ),
            (Strategic, r#"{"spec":{"$patch":"foo"}}"#, 500, "", "unknown patch type: foo in map: map[$patch:foo]"),
            (Strategic, r#"{"spec":{"$patch":5}}"#, 500, "", "unknown patch type: %!s(int64=5) in map: map[$patch:5]"),
            (Strategic, r#"{"spec":{"$retainKeys":5}}"#, 400, "BadRequest", "invalid patch format of retainKeys"),
            (
                Strategic,
                r#"{"spec":{"$retainKeys":["x"],"replicas":2}}"#,
                400,
                "BadRequest",
                "invalid patch format of retainKeys",
            ),
            (
                Strategic,
                r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":5}}}}"#,
                500,
                "",
                "expected a []interface {}, but received a int64",
            ),
            (
                Strategic,
                r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"b"}],"containers":[{"name":"a","image":"x"}]}}}}"#,
                500,
                "",
                "The order in patch list:\n[map[image:x name:a]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
            ),
        ] {
            let error = patched(patch_type, body, FieldValidation::Warn).unwrap_err();
            assert_eq!((error.code, error.reason, error.message.as_str()), (code, reason, words), "{body}");
        }
        let error = patched(Merge, r#"{"spec":{"replicas":"x"}}"#, FieldValidation::Warn).unwrap_err();
        assert!(
            error.message.starts_with(r#" "" is invalid: patch: Invalid value: "{\"apiVersion\":\"apps/v1\""#),
            "{error}"
        );
        assert!(error.message.ends_with(
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
        ));
        let error = patched(Merge, r#"{"kind":"Foo"}"#, FieldValidation::Warn).unwrap_err();
        assert!(
            error.message.ends_with(
                r#"no kind "Foo" is registered for version "apps/v1" in scheme "pkg/runtime/scheme.go:111""#
            )
        );
        assert!(patched(Strategic, r#"{"kind":"Foo"}"#, FieldValidation::Warn).is_ok());
    }

    #[test]
    fn what_a_patch_should_not_say_is_told_or_refused_as_asked() {
        use PatchType::{Json, Merge, Strategic};
        for (patch_type, body, complaints) in [
            (
                Json,
                r#"[{"op":"add","path":"/spec/foo","value":1},{"op":"replace","path":"/spec/replicas","value":1,"foo":2}]"#,
                vec![r#"json patch unknown field "[1].foo""#, r#"unknown field "spec.foo""#],
            ),
            (
                Json,
                r#"[{"op":"replace","op":"add","path":"/spec/replicas","value":1}]"#,
                vec![r#"json patch duplicate field "[0].op""#],
            ),
            (Merge, r#"{"a":1,"a":2}"#, vec![r#"duplicate field "a""#, r#"unknown field "a""#]),
            (
                Strategic,
                r#"{"spec":{"replicas":1,"replicas":2,"foo":1}}"#,
                vec![r#"duplicate field "spec.replicas""#, r#"unknown field "spec.foo""#],
            ),
            (
                Strategic,
                r#"{"spec":{"foo":1,"template":{"spec":{"bar":1,"containers":[{"name":"a","zoo":1}]}}},"zap":1}"#,
                vec![
                    r#"unknown field "spec.foo""#,
                    r#"unknown field "spec.template.spec.bar""#,
                    r#"unknown field "spec.template.spec.containers[0].zoo""#,
                    r#"unknown field "zap""#,
                ],
            ),
        ] {
            assert_eq!(patched(patch_type, body, FieldValidation::Warn).unwrap().warnings, complaints);
            assert!(patched(patch_type, body, FieldValidation::Ignore).unwrap().warnings.is_empty());
            let error = patched(patch_type, body, FieldValidation::Strict).unwrap_err();
            assert!(error.message.ends_with(&format!("strict decoding error: {}", complaints.join(", "))), "{error}");
        }
    }
}
