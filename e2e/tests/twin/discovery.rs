//! What the server says of itself: versions, groups, resources, health, OpenAPI.

use kerf_e2e::client::Answer;
use serde_json::{Value, json};

use crate::expect::refused;
use crate::stage::Stage;

crate::tests!(
    the_version_is_that_of_kubernetes,
    health_ready_and_live_say_ok,
    the_core_group_lists_its_version,
    every_group_is_listed_with_its_preferred_version,
    a_group_is_described_by_itself,
    an_unknown_group_is_not_found,
    pods_are_listed_with_verbs_names_and_categories,
    a_subresource_is_listed_with_its_own_kind,
    every_common_resource_is_served_with_scope_and_short_names,
    aggregated_discovery_tells_everything_at_once,
    open_api_v3_lists_its_documents_and_describes_a_deployment,
    open_api_v3_tells_how_field_validation_is_asked_for,
);

fn the_version_is_that_of_kubernetes(stage: &Stage) {
    let version = stage.read("/version");
    assert_eq!((&version["major"], &version["minor"]), (&json!("1"), &json!("36")));
    assert_eq!(version["gitVersion"], "v1.36.3");
    assert!(version["platform"].is_string() && version["goVersion"].is_string(), "{version}");
}

fn health_ready_and_live_say_ok(stage: &Stage) {
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = stage.client.get(path).unwrap();
        assert_eq!((answer.status, &answer.body), (200, &json!("ok")), "{path}");
    }
}

fn the_core_group_lists_its_version(stage: &Stage) {
    let api = stage.read("/api");
    assert_eq!((&api["kind"], &api["versions"]), (&json!("APIVersions"), &json!(["v1"])));
}

fn every_group_is_listed_with_its_preferred_version(stage: &Stage) {
    let groups = stage.read("/apis");
    assert_eq!((&groups["kind"], &groups["apiVersion"]), (&json!("APIGroupList"), &json!("v1")));
    for name in GROUPS {
        let group = groups["groups"].as_array().unwrap().iter().find(|group| group["name"] == *name);
        let group = group.unwrap_or_else(|| panic!("{name} is not served"));
        let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
        assert_eq!(group["preferredVersion"], version);
        assert!(group["versions"].as_array().unwrap().contains(&version), "{group}");
    }
}

const GROUPS: &[&str] = &[
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apps",
    "batch",
    "coordination.k8s.io",
    "events.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

fn a_group_is_described_by_itself(stage: &Stage) {
    let version = json!({"groupVersion": "apps/v1", "version": "v1"});
    assert_eq!(
        stage.read("/apis/apps"),
        json!({"kind": "APIGroup", "apiVersion": "v1", "name": "apps", "versions": [version], "preferredVersion": version})
    );
}

fn an_unknown_group_is_not_found(stage: &Stage) {
    for path in ["/apis/nope.example.com", "/apis/nope.example.com/v1", "/nope"] {
        let answer = stage.client.get(path).unwrap();
        // Outside of every group the server answers in plain words, not with a Status.
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.message().starts_with("404 page not found"), "{path}: {}", answer.message());
    }
    for path in ["/apis/apps/v7", "/apis/apps/v1/gadgets"] {
        let answer = stage.client.get(path).unwrap();
        refused(&answer, 404, "NotFound", "the server could not find the requested resource");
    }
}

fn resource(list: &Value, name: &str) -> Value {
    let resources = list["resources"].as_array().unwrap();
    resources.iter().find(|resource| resource["name"] == name).unwrap_or_else(|| panic!("no {name} in {list}")).clone()
}

fn pods_are_listed_with_verbs_names_and_categories(stage: &Stage) {
    let list = stage.read("/api/v1");
    assert_eq!((&list["kind"], &list["groupVersion"]), (&json!("APIResourceList"), &json!("v1")));
    let mut pods = resource(&list, "pods");
    pods.as_object_mut().unwrap().remove("storageVersionHash");
    assert_eq!(
        pods,
        json!({"name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "shortNames": ["po"],
            "categories": ["all"],
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]})
    );
}

fn a_subresource_is_listed_with_its_own_kind(stage: &Stage) {
    let core = stage.read("/api/v1");
    assert_eq!(
        resource(&core, "pods/eviction"),
        json!({"name": "pods/eviction", "singularName": "", "namespaced": true, "group": "policy", "version": "v1",
            "kind": "Eviction", "verbs": ["create"]})
    );
    assert_eq!(
        resource(&core, "pods/status"),
        json!({"name": "pods/status", "singularName": "", "namespaced": true, "kind": "Pod",
            "verbs": ["get", "patch", "update"]})
    );
    assert_eq!(
        resource(&core, "pods/binding"),
        json!({"name": "pods/binding", "singularName": "", "namespaced": true, "kind": "Binding", "verbs": ["create"]})
    );
    assert_eq!(
        resource(&stage.read("/apis/apps/v1"), "deployments/scale"),
        json!({"name": "deployments/scale", "singularName": "", "namespaced": true, "group": "autoscaling",
            "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"]})
    );
}

fn every_common_resource_is_served_with_scope_and_short_names(stage: &Stage) {
    #[rustfmt::skip]
    let expected = [
        ("/api/v1", "nodes", "Node", false, &["no"][..]),
        ("/api/v1", "namespaces", "Namespace", false, &["ns"]),
        ("/api/v1", "configmaps", "ConfigMap", true, &["cm"]),
        ("/api/v1", "events", "Event", true, &["ev"]),
        ("/api/v1", "persistentvolumes", "PersistentVolume", false, &["pv"]),
        ("/api/v1", "persistentvolumeclaims", "PersistentVolumeClaim", true, &["pvc"]),
        ("/api/v1", "serviceaccounts", "ServiceAccount", true, &["sa"]),
        ("/api/v1", "limitranges", "LimitRange", true, &["limits"]),
        ("/apis/apps/v1", "deployments", "Deployment", true, &["deploy"]),
        ("/apis/apps/v1", "daemonsets", "DaemonSet", true, &["ds"]),
        ("/apis/apps/v1", "replicasets", "ReplicaSet", true, &["rs"]),
        ("/apis/apps/v1", "statefulsets", "StatefulSet", true, &["sts"]),
        ("/apis/batch/v1", "jobs", "Job", true, &[]),
        ("/apis/batch/v1", "cronjobs", "CronJob", true, &["cj"]),
        ("/apis/policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", true, &["pdb"]),
        ("/apis/storage.k8s.io/v1", "storageclasses", "StorageClass", false, &["sc"]),
        ("/apis/scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", false, &["pc"]),
        ("/apis/coordination.k8s.io/v1", "leases", "Lease", true, &[]),
        ("/apis/resource.k8s.io/v1", "resourceslices", "ResourceSlice", false, &[]),
        ("/apis/rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", false, &[]),
        ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", false, &["crd", "crds"]),
        ("/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", false, &[]),
    ];
    for (path, name, kind, is_namespaced, short_names) in expected {
        let found = resource(&stage.read(path), name);
        assert_eq!((&found["kind"], &found["namespaced"]), (&json!(kind), &json!(is_namespaced)), "{name}");
        assert_eq!(found["singularName"], kind.to_lowercase(), "{name}");
        let found: Vec<&str> = found["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        assert_eq!(found, short_names, "{name}");
    }
}

fn aggregated(stage: &Stage, path: &str) -> Answer {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    stage.client.call("GET", path).header("Accept", accept).send().unwrap()
}

fn aggregated_discovery_tells_everything_at_once(stage: &Stage) {
    let core = aggregated(stage, "/api");
    let content_type = core.header("content-type").unwrap();
    assert!(content_type.contains("g=apidiscovery.k8s.io") && content_type.contains("v=v2"), "{content_type}");
    assert_eq!(
        (&core.body["kind"], &core.body["apiVersion"]),
        (&json!("APIGroupDiscoveryList"), &json!("apidiscovery.k8s.io/v2"))
    );
    let pods = find(&core.body["items"][0]["versions"][0]["resources"], "resource", "pods");
    assert_eq!(pods["responseKind"], json!({"group": "", "version": "", "kind": "Pod"}));
    assert_eq!((&pods["scope"], &pods["singularResource"]), (&json!("Namespaced"), &json!("pod")));
    assert_eq!(
        (&pods["shortNames"], &pods["categories"], &pods["verbs"][1]),
        (&json!(["po"]), &json!(["all"]), &json!("delete"))
    );
    let eviction = find(&pods["subresources"], "subresource", "eviction");
    assert_eq!(
        eviction,
        json!({"subresource": "eviction", "responseKind": {"group": "policy", "version": "v1", "kind": "Eviction"},
            "verbs": ["create"]})
    );

    let others = aggregated(stage, "/apis").body;
    for name in GROUPS {
        let group = others["items"].as_array().unwrap().iter().find(|group| group["metadata"]["name"] == *name);
        let group = group.unwrap_or_else(|| panic!("{name} is not in the aggregated list"));
        assert_eq!(
            (&group["versions"][0]["version"], &group["versions"][0]["freshness"]),
            (&json!("v1"), &json!("Current"))
        );
    }
}

#[track_caller]
fn find(list: &Value, key: &str, name: &str) -> Value {
    let entries = list.as_array().unwrap_or_else(|| panic!("no list: {list}"));
    entries.iter().find(|entry| entry[key] == name).unwrap_or_else(|| panic!("no {name} in {list}")).clone()
}

fn open_api_v3_lists_its_documents_and_describes_a_deployment(stage: &Stage) {
    let index = stage.read("/openapi/v3");
    for document in ["api/v1", "apis/apps/v1", "apis/policy/v1", "apis/apiextensions.k8s.io/v1"] {
        let path = index["paths"][document]["serverRelativeURL"].as_str().unwrap_or_else(|| panic!("no {document}"));
        assert!(path.starts_with(&format!("/openapi/v3/{document}")), "{path}");
    }
    let path = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
    let document = stage.read(path);
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let is_deployment = |schema: &&Value| {
        schema["x-kubernetes-group-version-kind"] == json!([{"group": "apps", "version": "v1", "kind": "Deployment"}])
    };
    let deployment = schemas.values().find(is_deployment).expect("a schema of Deployment");
    assert!(deployment["properties"]["spec"].is_object(), "{deployment}");
}

/// What kubectl looks for before it relies on the server to find unknown fields.
fn open_api_v3_tells_how_field_validation_is_asked_for(stage: &Stage) {
    let document = stage.read("/openapi/v3/apis/apps/v1");
    let operation = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(
        operation["x-kubernetes-group-version-kind"],
        json!({"group": "apps", "version": "v1", "kind": "Deployment"})
    );
    let parameters = operation["parameters"].as_array().unwrap();
    for name in ["dryRun", "fieldManager", "fieldValidation", "force"] {
        assert!(parameters.iter().any(|parameter| parameter["name"] == name && parameter["in"] == "query"), "{name}");
    }
}
