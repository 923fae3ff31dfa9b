//! Bad input: what the server says, and that it says it properly.

use kerf_e2e::client::{Answer, Client};
use serde_json::{Value, json};

use crate::expect::{causes, refused, refused_with};
use crate::objects::{config_map, deployment, pod};
use crate::stage::Stage;

crate::tests!(
    a_body_that_is_not_json_is_refused,
    an_empty_body_is_refused,
    a_body_without_a_kind_is_taken_as_the_one_of_the_path,
    a_body_of_an_unknown_version_is_refused,
    a_wrong_type_names_its_field,
    a_bad_quantity_names_its_pattern,
    a_bad_time_is_refused,
    unknown_fields_are_dropped_told_or_refused,
    duplicate_fields_are_told_or_refused,
    an_unknown_field_validation_is_refused,
    warnings_tell_of_unknown_fields_by_default_to_kubectl,
    an_invalid_name_is_refused,
    an_invalid_label_is_refused,
    an_invalid_annotation_is_refused,
    an_invalid_owner_is_refused,
    an_invalid_finalizer_is_refused,
    an_invalid_pod_names_every_field,
    a_pod_without_containers_is_refused,
    a_deployment_whose_selector_does_not_match_is_refused,
    an_invalid_budget_node_or_service_is_refused,
    an_unknown_body_format_is_refused,
    an_unknown_path_is_not_found,
    a_method_that_is_not_allowed_is_refused,
    a_stranger_is_not_authorized,
    an_object_that_is_too_large_is_refused,
    a_deprecated_field_comes_with_a_warning,
);

fn send(stage: &Stage, path: &str, text: &str) -> Answer {
    stage.client.call("POST", path).typed("application/json", text).send().unwrap()
}

fn a_body_that_is_not_json_is_refused(stage: &Stage) {
    let answer = send(stage, &stage.config_maps(), "{nonsense");
    refused_with(&answer, 400, "BadRequest");
    assert_eq!(
        answer.message(),
        "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: invalid character 'n' looking for beginning of object key string ({nonsense)"
    );
    let answer = send(stage, &stage.config_maps(), r#"["a list"]"#);
    refused_with(&answer, 400, "BadRequest");
    let start = "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: \
        json: cannot unmarshal array into Go value of type struct { APIVersion string";
    assert!(answer.message().starts_with(start), "{}", answer.message());
}

fn an_empty_body_is_refused(stage: &Stage) {
    let answer = send(stage, &stage.config_maps(), "");
    refused_with(&answer, 400, "BadRequest");
    assert!(
        answer.message().contains("unexpected end of JSON input") || answer.message().contains("EOF"),
        "{}",
        answer.message()
    );
}

fn a_body_without_a_kind_is_taken_as_the_one_of_the_path(stage: &Stage) {
    let created = stage.create(&stage.config_maps(), &json!({"metadata": {"name": "one"}, "data": {"a": "b"}}));
    assert_eq!((&created["kind"], &created["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
}

fn a_body_of_an_unknown_version_is_refused(stage: &Stage) {
    let mut body = deployment("one");
    body["apiVersion"] = json!("apps/v7");
    let answer = stage.client.post(&stage.at("apps/v1", "deployments"), &body).unwrap();
    refused_with(&answer, 400, "BadRequest");
    assert!(
        answer.message().contains(r#"no kind "Deployment" is registered for version "apps/v7" in scheme"#),
        "{}",
        answer.message()
    );
}

fn a_wrong_type_names_its_field(stage: &Stage) {
    let with = |pointer: &str, value: Value| {
        let mut body = deployment("one");
        *body.pointer_mut(pointer).unwrap() = value;
        stage.client.post(&stage.at("apps/v1", "deployments"), &body).unwrap()
    };
    let start = "Deployment in version \"v1\" cannot be handled as a Deployment: ";
    #[rustfmt::skip]
    let cases = [
        ("/spec/replicas", json!("three"), "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"),
        ("/spec/replicas", json!(1.5), "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32"),
        ("/spec", json!("x"), "json: cannot unmarshal string into Go struct field Deployment.spec of type v1.DeploymentSpec"),
        ("/spec/template/spec/containers", json!({}), "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container"),
        ("/spec/template/spec/containers/0/image", json!(5), "json: cannot unmarshal number into Go struct field Container.spec.template.spec.containers.image of type string"),
        ("/spec/selector/matchLabels", json!([]), "json: cannot unmarshal array into Go struct field LabelSelector.spec.selector.matchLabels of type map[string]string"),
        ("/metadata/name", json!(5), "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string"),
    ];
    for (pointer, value, message) in cases {
        refused(&with(pointer, value), 400, "BadRequest", &format!("{start}{message}"));
    }
}

fn a_bad_quantity_names_its_pattern(stage: &Stage) {
    let mut body = pod("one");
    body["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "many"}});
    let answer = stage.client.post(&stage.pods(), &body).unwrap();
    refused(
        &answer,
        400,
        "BadRequest",
        r"Pod in version \v1\ cannot be handled as a Pod: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            .replace('\\', "\"")
            .as_str(),
    );
    body["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1.2.3"}});
    let answer = stage.client.post(&stage.pods(), &body).unwrap();
    refused_with(&answer, 400, "BadRequest");
}

fn a_bad_time_is_refused(stage: &Stage) {
    let body = json!({"metadata": {"name": "one", "creationTimestamp": "yesterday"}});
    let answer = stage.client.post(&stage.config_maps(), &body).unwrap();
    refused(
        &answer,
        400,
        "BadRequest",
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: parsing time \"yesterday\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"yesterday\" as \"2006\"",
    );
}

fn unknown_fields_are_dropped_told_or_refused(stage: &Stage) {
    let mut body = deployment("one");
    body["spec"]["colour"] = json!("red");
    body["spec"]["template"]["spec"]["containers"][0]["imagee"] = json!("x");
    let path = stage.at("apps/v1", "deployments");
    let unknown = [r#"unknown field "spec.colour""#, r#"unknown field "spec.template.spec.containers[0].imagee""#];
    let answer = stage.client.post(&format!("{path}?dryRun=All&fieldValidation=Warn"), &body).unwrap();
    assert_eq!((answer.status, answer.warnings()), (201, unknown.map(str::to_owned).to_vec()));
    assert_eq!(answer.body["spec"]["colour"], Value::Null);
    let answer = stage.client.post(&format!("{path}?dryRun=All&fieldValidation=Ignore"), &body).unwrap();
    assert_eq!((answer.status, answer.warnings()), (201, vec![]));
    let answer = stage.client.post(&format!("{path}?dryRun=All&fieldValidation=Strict"), &body).unwrap();
    refused(
        &answer,
        400,
        "BadRequest",
        &format!(
            "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: {}",
            unknown.join(", ")
        ),
    );
}

fn duplicate_fields_are_told_or_refused(stage: &Stage) {
    let text = r#"{"metadata":{"name":"one","name":"two"},"data":{"a":"1","a":"2"}}"#;
    let answer = send(stage, &format!("{}?dryRun=All&fieldValidation=Warn", stage.config_maps()), text);
    assert_eq!(
        (answer.status, answer.warnings()),
        (201, vec![r#"duplicate field "metadata.name""#.to_owned(), r#"duplicate field "data.a""#.to_owned()])
    );
    assert_eq!(
        (&answer.body["metadata"]["name"], &answer.body["data"]),
        (&json!("two"), &json!({"a": "2"})),
        "the last one counts"
    );
    let answer = send(stage, &format!("{}?dryRun=All&fieldValidation=Strict", stage.config_maps()), text);
    refused(
        &answer,
        400,
        "BadRequest",
        r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: duplicate field "metadata.name", duplicate field "data.a""#,
    );
}

fn an_unknown_field_validation_is_refused(stage: &Stage) {
    let answer = stage
        .client
        .post(&format!("{}?fieldValidation=Perhaps", stage.config_maps()), &config_map("one", json!({})))
        .unwrap();
    refused(
        &answer,
        422,
        "Invalid",
        r#"CreateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "Perhaps": supported values: "", "Ignore", "Strict", "Warn""#,
    );
}

fn warnings_tell_of_unknown_fields_by_default_to_kubectl(stage: &Stage) {
    let answer = stage.client.post(&stage.config_maps(), &json!({"metadata": {"name": "one"}, "datta": {}})).unwrap();
    assert_eq!((answer.status, answer.warnings()), (201, vec![r#"unknown field "datta""#.to_owned()]));
    let header = answer.header("warning").unwrap();
    assert_eq!(header, r#"299 - "unknown field \"datta\"""#);
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn an_invalid_name_is_refused(stage: &Stage) {
    let answer = stage.client.post(&stage.config_maps(), &config_map("Not_Good", json!({}))).unwrap();
    refused(
        &answer,
        422,
        "Invalid",
        &format!("ConfigMap \"Not_Good\" is invalid: metadata.name: Invalid value: \"Not_Good\": {SUBDOMAIN}"),
    );
    assert_eq!(causes(&answer), ["FieldValueInvalid metadata.name"]);
    let long = "a".repeat(254);
    let answer = stage.client.post(&stage.config_maps(), &config_map(&long, json!({}))).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert!(answer.message().ends_with("must be no more than 253 characters"), "{}", answer.message());
    let service = json!({"metadata": {"name": "with.dots"}, "spec": {"ports": [{"port": 80}]}});
    let answer = stage.client.post(&stage.at("v1", "services"), &service).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert_eq!(causes(&answer), ["FieldValueInvalid metadata.name"]);
}

fn an_invalid_label_is_refused(stage: &Stage) {
    let body = json!({"metadata": {"name": "one", "labels": {"bad key": "x", "ok": "bad value!"}}});
    let answer = stage.client.post(&stage.config_maps(), &body).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert_eq!(causes(&answer), ["FieldValueInvalid metadata.labels", "FieldValueInvalid metadata.labels"]);
    assert!(
        answer.message().contains(
            r#"metadata.labels: Invalid value: "bad value!": a valid label must be an empty string or consist of"#
        ),
        "{}",
        answer.message()
    );
}

fn an_invalid_annotation_is_refused(stage: &Stage) {
    let body = json!({"metadata": {"name": "one", "annotations": {"bad key": "anything goes here!"}}});
    let answer = stage.client.post(&stage.config_maps(), &body).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert_eq!(causes(&answer), ["FieldValueInvalid metadata.annotations"]);
    let body = json!({"metadata": {"name": "one", "annotations": {"long": "x".repeat(262_145)}}});
    let answer = stage.client.post(&stage.config_maps(), &body).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert!(
        answer.message().ends_with("metadata.annotations: Too long: may not be more than 262144 bytes"),
        "{}",
        answer.message()
    );
}

fn an_invalid_owner_is_refused(stage: &Stage) {
    let body = json!({"metadata": {"name": "one", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "", "uid": ""}]}});
    let answer = stage.client.post(&stage.config_maps(), &body).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert_eq!(
        causes(&answer),
        ["FieldValueInvalid metadata.ownerReferences.name", "FieldValueInvalid metadata.ownerReferences.uid"]
    );
    let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true});
    let body = json!({"metadata": {"name": "one", "ownerReferences": [owner("a"), owner("b")]}});
    let answer = stage.client.post(&stage.config_maps(), &body).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert!(answer.message().contains("Only one reference can have Controller set to true"), "{}", answer.message());
}

fn an_invalid_finalizer_is_refused(stage: &Stage) {
    let answer = stage
        .client
        .post(&stage.config_maps(), &json!({"metadata": {"name": "one", "finalizers": ["un qualified"]}}))
        .unwrap();
    refused_with(&answer, 422, "Invalid");
    assert_eq!(causes(&answer), ["FieldValueInvalid metadata.finalizers", "FieldValueInvalid metadata.finalizers[0]"]);
}

fn an_invalid_pod_names_every_field(stage: &Stage) {
    let body = json!({"metadata": {"name": "one"}, "spec": {
        "restartPolicy": "Sometimes", "terminationGracePeriodSeconds": -5, "nodeSelector": {"a b": "c"},
        "containers": [
            {"name": "Bad_Name", "image": "web", "imagePullPolicy": "Maybe"},
            {"name": "two", "image": "", "ports": [{"containerPort": 0}, {"containerPort": 70000}]},
            {"name": "two", "image": "web", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}],
        "tolerations": [{"key": "k", "operator": "Perhaps"}],
        "topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Hope"}]}});
    let answer = stage.client.post(&stage.pods(), &body).unwrap();
    refused_with(&answer, 422, "Invalid");
    let found = causes(&answer);
    for expected in [
        "FieldValueInvalid spec.containers[0].name",
        "FieldValueNotSupported spec.containers[0].imagePullPolicy",
        "FieldValueRequired spec.containers[1].image",
        "FieldValueRequired spec.containers[1].ports[0].containerPort",
        "FieldValueInvalid spec.containers[1].ports[1].containerPort",
        "FieldValueDuplicate spec.containers[2].name",
        "FieldValueInvalid spec.containers[2].resources.requests",
        "FieldValueNotSupported spec.restartPolicy",
        "FieldValueInvalid spec.nodeSelector",
        "FieldValueNotSupported spec.tolerations[0].operator",
        "FieldValueInvalid spec.topologySpreadConstraints[0].maxSkew",
        "FieldValueRequired spec.topologySpreadConstraints[0].topologyKey",
        "FieldValueNotSupported spec.topologySpreadConstraints[0].whenUnsatisfiable",
    ] {
        assert!(found.contains(&expected.to_owned()), "{expected} is not in {found:?}");
    }
}

fn a_pod_without_containers_is_refused(stage: &Stage) {
    let answer = stage.client.post(&stage.pods(), &json!({"metadata": {"name": "one"}, "spec": {}})).unwrap();
    refused(&answer, 422, "Invalid", r#"Pod "one" is invalid: spec.containers: Required value"#);
    assert_eq!(
        answer.body["details"],
        json!({"name": "one", "kind": "Pod", "causes": [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.containers"}]})
    );
}

fn a_deployment_whose_selector_does_not_match_is_refused(stage: &Stage) {
    let mut body = deployment("one");
    body["spec"]["selector"]["matchLabels"] = json!({"app": "other"});
    let answer = stage.client.post(&stage.at("apps/v1", "deployments"), &body).unwrap();
    refused(
        &answer,
        422,
        "Invalid",
        r#"Deployment.apps "one" is invalid: spec.template.metadata.labels: Invalid value: {"app":"one"}: `selector` does not match template `labels`"#,
    );
    body["spec"]["selector"] = json!({});
    let answer = stage.client.post(&stage.at("apps/v1", "deployments"), &body).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert!(
        answer.message().contains("spec.selector: Invalid value: {}: empty selector is invalid for deployment"),
        "{}",
        answer.message()
    );
}

fn an_invalid_budget_node_or_service_is_refused(stage: &Stage) {
    let both = json!({"metadata": {"name": "one"}, "spec": {"minAvailable": 1, "maxUnavailable": 1}});
    let answer = stage.client.post(&stage.at("policy/v1", "poddisruptionbudgets"), &both).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert_eq!(causes(&answer), ["FieldValueInvalid spec"]);
    // What was found is shown in the names that the real server has inside.
    assert!(answer.message().ends_with(": minAvailable and maxUnavailable cannot be both set"), "{}", answer.message());
    let node = json!({"metadata": {"name": stage.unique("n")}, "spec": {"taints": [{"key": "a", "effect": "Never"}, {"key": "b", "effect": "NoSchedule"}, {"key": "b", "effect": "NoSchedule"}]}});
    let answer = stage.client.post("/api/v1/nodes", &node).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert_eq!(
        causes(&answer),
        ["FieldValueNotSupported metadata.taints[0].effect", "FieldValueDuplicate metadata.taints[2]"]
    );
    let service = json!({"metadata": {"name": "one"}, "spec": {"type": "Telepathy", "ports": [{"port": 0}]}});
    let answer = stage.client.post(&stage.at("v1", "services"), &service).unwrap();
    refused_with(&answer, 422, "Invalid");
    let found = causes(&answer);
    assert!(
        found.contains(&"FieldValueInvalid spec.ports[0].port".to_owned())
            && found.contains(&"FieldValueNotSupported spec.type".to_owned()),
        "{found:?}"
    );
}

fn an_unknown_body_format_is_refused(stage: &Stage) {
    let answer = stage.client.call("POST", &stage.config_maps()).typed("text/plain", "hello").send().unwrap();
    refused_with(&answer, 415, "UnsupportedMediaType");
    assert!(answer.message().starts_with("the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"), "{}", answer.message());
}

fn an_unknown_path_is_not_found(stage: &Stage) {
    for path in
        ["/api/v1/gadgets", "/apis/apps/v1/namespaces/x/gadgets/y", "/api/v1/namespaces/x/pods/y/nonsense", "/api/v2"]
    {
        let answer = stage.client.get(path).unwrap();
        assert_eq!(answer.status, 404, "{path}");
    }
    let answer = stage.client.get("/api/v1/namespaces/x/gadgets").unwrap();
    refused(&answer, 404, "NotFound", "the server could not find the requested resource");
    assert_eq!(answer.body["details"], json!({}));
}

fn a_method_that_is_not_allowed_is_refused(stage: &Stage) {
    stage.create(&stage.config_maps(), &config_map("one", json!({})));
    let object = stage.object("v1", "configmaps", "one");
    let cases = [
        ("PUT", stage.config_maps()),
        ("PATCH", stage.config_maps()),
        ("POST", object.clone()),
        ("DELETE", format!("{}/x/status", stage.pods())),
    ];
    for (method, path) in cases {
        let answer = stage.client.call(method, &path).json(&config_map("one", json!({}))).send().unwrap();
        refused(&answer, 405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
    }
}

fn a_stranger_is_not_authorized(stage: &Stage) {
    let mut address = stage.address().clone();
    address.token = "guessed".to_owned();
    let answer = Client::new(&address).unwrap().get("/api/v1/nodes").unwrap();
    refused(&answer, 401, "Unauthorized", "Unauthorized");
}

fn an_object_that_is_too_large_is_refused(stage: &Stage) {
    let answer =
        stage.client.post(&stage.config_maps(), &config_map("one", json!({"a": "x".repeat(1_048_577)}))).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert_eq!(answer.message(), "ConfigMap \"one\" is invalid: []: Too long: may not be more than 1048576 bytes");
    let answer =
        stage.client.post(&stage.config_maps(), &config_map("one", json!({"a": "x".repeat(3_200_000)}))).unwrap();
    refused(&answer, 413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728");
}

fn a_deprecated_field_comes_with_a_warning(stage: &Stage) {
    let mut body = pod("one");
    body["spec"]["nodeSelector"] = json!({"beta.kubernetes.io/arch": "amd64"});
    body["spec"]["serviceAccount"] = json!("default");
    let answer = stage.client.post(&format!("{}?dryRun=All", stage.pods()), &body).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.message());
    assert!(
        answer.warnings().contains(
            &r#"spec.nodeSelector[beta.kubernetes.io/arch]: deprecated since v1.14; use "kubernetes.io/arch" instead"#
                .to_owned()
        ),
        "{:?}",
        answer.warnings()
    );
}
