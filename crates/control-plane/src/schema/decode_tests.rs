//! What the real server said, asked for each of these.

use super::decode::{TYPE_META_STRUCT, decode};
use super::{Decoded, FieldValidation, Schema, quantity};
use serde_json::json;

fn decoded(api_version: &str, kind: &str, body: &str, mode: FieldValidation) -> Result<Decoded, String> {
    let schema = Schema::built_in(api_version, kind).unwrap();
    decode(&schema, kind, api_version, body.as_bytes(), false, mode).map_err(|error| {
        assert_eq!((error.code, error.reason), (400, "BadRequest"));
        error.message
    })
}

/// What the real server said to each of these.
#[test]
fn mistakes_are_told_in_the_words_of_the_real_server() {
    const UNRECOGNIZED: &str = "the object provided is unrecognized (must be of type Pod): ";
    const META: &str = "couldn't get version/kind; json parse error: ";
    const HANDLED: &str = "Pod in version \"v1\" cannot be handled as a Pod: ";
    const FIELD: &str = "into Go struct field ";
    for (body, before, words) in [
        ("", UNRECOGNIZED, format!("{META}unexpected end of JSON input (<empty>)")),
        ("{", UNRECOGNIZED, format!("{META}unexpected end of JSON input ({{)")),
        (
            "[]",
            UNRECOGNIZED,
            format!("{META}json: cannot unmarshal array into Go value of type {TYPE_META_STRUCT} (5b5d)"),
        ),
        (
            r#"{"kind":1}"#,
            UNRECOGNIZED,
            format!("{META}json: cannot unmarshal number {FIELD}.kind of type string ({{\"kind\":1}})"),
        ),
        (
            r#"{"kind":"Pod","apiVersion":"a/b/c"}"#,
            UNRECOGNIZED,
            "unexpected GroupVersion string: a/b/c ({\"kind\":\"Pod\",\"apiVersion\":\"a/ ...)".into(),
        ),
        (r#"{"spec":[]}"#, HANDLED, format!("json: cannot unmarshal array {FIELD}Pod.spec of type v1.PodSpec")),
        (
            r#"{"spec":1,"metadata":2}"#,
            HANDLED,
            format!("json: cannot unmarshal number {FIELD}Pod.spec of type v1.PodSpec"),
        ),
        (
            r#"{"metadata":{"labels":{"a":1}}}"#,
            HANDLED,
            format!("json: cannot unmarshal number {FIELD}ObjectMeta.metadata.labels of type string"),
        ),
        (
            r#"{"spec":{"containers":{}}}"#,
            HANDLED,
            format!("json: cannot unmarshal object {FIELD}PodSpec.spec.containers of type []v1.Container"),
        ),
        (
            r#"{"spec":{"containers":[1]}}"#,
            HANDLED,
            format!("json: cannot unmarshal number {FIELD}PodSpec.spec.containers of type v1.Container"),
        ),
        (
            r#"{"spec":{"containers":[{"ports":[{"protocol":1}]}]}}"#,
            HANDLED,
            format!(
                "json: cannot unmarshal number {FIELD}ContainerPort.spec.containers.ports.protocol of type v1.Protocol"
            ),
        ),
        (
            r#"{"spec":{"containers":[{"ports":[{"containerPort":1.5}]}]}}"#,
            HANDLED,
            format!(
                "json: cannot unmarshal number 1.5 {FIELD}ContainerPort.spec.containers.ports.containerPort of type int32"
            ),
        ),
        (r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":{}}}}]}}"#, HANDLED, quantity::WRONG_FORMAT.into()),
        (
            r#"{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":true}}}]}}"#,
            HANDLED,
            format!(
                "json: cannot unmarshal bool {FIELD}HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32"
            ),
        ),
        (
            r#"{"spec":{"volumes":[{"configMap":{"name":5}}]}}"#,
            HANDLED,
            format!(
                "json: cannot unmarshal number {FIELD}ConfigMapVolumeSource.spec.volumes.VolumeSource.configMap.LocalObjectReference.name of type string"
            ),
        ),
        (
            r#"{"spec":{"priority":3000000000}}"#,
            HANDLED,
            format!("json: cannot unmarshal number 3000000000 {FIELD}PodSpec.spec.priority of type int32"),
        ),
        (
            r#"{"metadata":{"creationTimestamp":"x"}}"#,
            HANDLED,
            r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#.into(),
        ),
        (
            r#"{"metadata":{"creationTimestamp":5}}"#,
            HANDLED,
            format!("json: cannot unmarshal number {FIELD}ObjectMeta.metadata.creationTimestamp of type string"),
        ),
        (
            r#"{"metadata":{"ownerReferences":[{"uid":5}]}}"#,
            HANDLED,
            format!(
                "json: cannot unmarshal number {FIELD}OwnerReference.metadata.ownerReferences.uid of type types.UID"
            ),
        ),
        (
            r#"{"kind":"Foo","apiVersion":"v1"}"#,
            "Foo in version \"v1\" cannot be handled as a Pod: ",
            r#"no kind "Foo" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111""#.into(),
        ),
        (
            r#"{"kind":"Pod","apiVersion":"v2"}"#,
            "Pod in version \"v2\" cannot be handled as a Pod: ",
            r#"no kind "Pod" is registered for version "v2" in scheme "pkg/runtime/scheme.go:111""#.into(),
        ),
        (
            r#"{"kind":"Deployment","apiVersion":"apps/v1"}"#,
            "Deployment in version \"v1\" cannot be handled as a Pod: ",
            "converting (v1.Deployment) to (core.Pod): unknown conversion".into(),
        ),
        (
            r#"{"kind":"PodList","apiVersion":"v1"}"#,
            "PodList in version \"v1\" cannot be handled as a Pod: ",
            "converting (v1.PodList) to (core.Pod): unknown conversion".into(),
        ),
    ] {
        let said = decoded("v1", "Pod", body, FieldValidation::Warn).unwrap_err();
        assert_eq!(said, format!("{before}{words}"), "{body}");
    }
    let said =
        decoded("apps/v1", "Deployment", r#"{"kind":"Deployment","apiVersion":"apps/v1beta1"}"#, FieldValidation::Warn);
    assert_eq!(
        said.unwrap_err(),
        "the API version in the data (apps/v1beta1) does not match the expected API version (apps/v1)"
    );
    for (data, at) in [("$$$", 0), ("YQ", 0), ("YWJjZA", 4), ("YWJj!", 4)] {
        let body = format!(r#"{{"data":{{"a":"{data}"}}}}"#);
        let said = decoded("v1", "Secret", &body, FieldValidation::Warn).unwrap_err();
        assert!(said.ends_with(&format!("illegal base64 data at input byte {at}")), "{said}");
    }
}

const SLOPPY: &str = r#"{"kind":"Pod","apiVersion":"v1","Spec":{},"spec":{"containers":[
    {"name":"x","image":"x","foo":1,"foo":2,"name":"y"}],"nodename":"x","nodeSelector":{"a":"1","a":"2"}},
    "metadata":{"name":"x","zzz":1},"foo.bar":1,"a\"b":1}"#;

#[test]
fn unknown_and_repeated_fields_are_told_or_refused_as_asked() {
    let complaints = [
        r#"unknown field "Spec""#,
        r#"unknown field "spec.containers[0].foo""#,
        r#"duplicate field "spec.containers[0].name""#,
        r#"unknown field "spec.nodename""#,
        r#"duplicate field "spec.nodeSelector.a""#,
        r#"unknown field "metadata.zzz""#,
        r#"unknown field "foo.bar""#,
        r#"unknown field "a\"b""#,
    ];
    let warned = decoded("v1", "Pod", SLOPPY, FieldValidation::Warn).unwrap();
    assert_eq!(warned.warnings, complaints);
    assert_eq!(warned.value["spec"]["containers"][0]["name"], "y");
    assert_eq!(warned.value["spec"]["nodeSelector"]["a"], "2");
    let refused = decoded("v1", "Pod", SLOPPY, FieldValidation::Strict).unwrap_err();
    let listed = complaints.join(", ");
    assert_eq!(refused, format!("Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: {listed}"));
    assert!(decoded("v1", "Pod", SLOPPY, FieldValidation::Ignore).unwrap().warnings.is_empty());
}

#[test]
fn empty_fields_are_left_out_or_written_as_go_does() {
    let meta = json!({"name": "x"});
    for (api_version, kind, sent, kept) in [
        (
            "v1",
            "ConfigMap",
            json!({"metadata": {"name": "x", "labels": {"a": null}, "annotations": {}, "finalizers": [], "generateName": ""},
                "data": {"a": null, "b": ""}, "binaryData": {}, "immutable": false}),
            json!({"metadata": {"name": "x", "labels": {"a": ""}}, "data": {"a": "", "b": ""}, "immutable": false}),
        ),
        (
            "v1",
            "Secret",
            json!({"metadata": meta, "data": {"a": null, "b": "", "c": "YQ=="}, "type": ""}),
            json!({"metadata": meta, "data": {"a": "", "b": "", "c": "YQ=="}}),
        ),
        (
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            json!({"metadata": meta, "rules": []}),
            json!({"metadata": meta, "rules": null}),
        ),
        (
            "apps/v1",
            "Deployment",
            json!({"metadata": meta, "spec": {"replicas": 0, "paused": false, "minReadySeconds": 0}}),
            json!({"metadata": meta, "status": {}, "spec": {"replicas": 0, "selector": null, "strategy": {},
                "template": {"metadata": {}, "spec": {"containers": null}}}}),
        ),
        (
            "v1",
            "Pod",
            json!({"metadata": meta, "spec": {"containers": [{"name": "a", "ports": [{"containerPort": 1}],
                "resources": {"limits": {"cpu": 0.1, "memory": "1024Mi"}}}], "securityContext": {}}}),
            json!({"metadata": meta, "status": {}, "spec": {"containers": [{"name": "a", "ports": [{"containerPort": 1}],
                "resources": {"limits": {"cpu": "100m", "memory": "1Gi"}}}], "securityContext": {}}}),
        ),
    ] {
        let value = decoded(api_version, kind, &sent.to_string(), FieldValidation::Strict).unwrap().value;
        let mut expected = kept.clone();
        expected["apiVersion"] = json!(api_version);
        expected["kind"] = json!(kind);
        assert_eq!(value, expected);
        let schema = Schema::built_in(api_version, kind).unwrap();
        let again = super::conform(&schema, value.clone(), FieldValidation::Strict).unwrap().value;
        assert_eq!(again, value, "what conforms stays as it is");
    }
}

#[test]
fn a_condition_without_a_time_has_null() {
    let body = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}).to_string();
    let pod = decoded("v1", "Pod", &body, FieldValidation::Strict).unwrap().value;
    assert_eq!(
        pod["status"]["conditions"][0],
        json!({"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": null})
    );
}

#[test]
fn a_custom_resource_has_typed_metadata_and_complaints_about_repetition_only() {
    let schema =
        Schema::structural(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "m": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}}}}));
    let decode = |body: &str, mode| {
        decode(&schema, "Shape", "shapes.io/v1", body.as_bytes(), false, mode).map_err(|error| error.message)
    };
    let head = r#""kind":"Shape","apiVersion":"shapes.io/v1""#;
    for (body, words) in [
        (
            r#"{"kind":"Shape"}"#.to_owned(),
            "the API version in the data () does not match the expected API version (shapes.io/v1)",
        ),
        (
            r#"{"apiVersion":"shapes.io/v1"}"#.to_owned(),
            r#"the object provided is unrecognized (must be of type Shape): Object 'Kind' is missing in '{"apiVersion":"shapes.io/v1"}' ({"apiVersion":"shapes.io/v1"})"#,
        ),
        (
            format!(r#"{{{head},"metadata":5}}"#),
            r#"Shape in version "v1" cannot be handled as a Shape: json: cannot unmarshal number into Go value of type v1.ObjectMeta"#,
        ),
        (
            format!(r#"{{{head},"metadata":{{"labels":{{"a":5}}}}}}"#),
            r#"Shape in version "v1" cannot be handled as a Shape: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"#,
        ),
        (
            format!(r#"{{{head},"spec":{{"x":1e400}}}}"#),
            r#"Shape in version "v1" cannot be handled as a Shape: json: cannot unmarshal number 1e400 into Go value of type float64"#,
        ),
        (
            format!(r#"{{{head},"metadata":{{"ownerReferences":[{{"foo":1}}]}}}}"#),
            r#"Shape in version "v1" cannot be handled as a Shape: strict decoding error: unknown field "metadata.ownerReferences[0].foo""#,
        ),
    ] {
        assert_eq!(decode(&body, FieldValidation::Strict).unwrap_err(), words);
    }
    let body = format!(
        r#"{{{head},"metadata":{{"name":"a","labels":null,"annotations":{{}}}},"spec":{{"a":1.0,"e":"","l":[],"m":[{{"k":"a","k":"b"}}],"f":{{"x":1,"x":2}}}}}}"#
    );
    let decoded = decode(&body, FieldValidation::Warn).unwrap();
    assert_eq!(decoded.warnings, [r#"duplicate field "spec.m[0].k""#, r#"duplicate field "spec.f.x""#]);
    assert_eq!(
        decoded.value,
        json!({"kind": "Shape", "apiVersion": "shapes.io/v1", "metadata": {"name": "a"},
        "spec": {"a": 1, "e": "", "l": [], "m": [{"k": "b"}], "f": {"x": 2}}})
    );
}
