//! Objects come into being, are read, and have what the server adds to them.

use kerf_e2e::client::Answer;
use serde_json::{Value, json};

use crate::expect::{causes, refused, refused_with};
use crate::objects::{config_map, deployment, pod};
use crate::stage::Stage;

crate::tests!(
    a_new_object_has_an_identity,
    a_new_object_tells_who_wrote_which_field,
    what_is_read_is_what_was_created,
    the_same_name_twice_is_a_conflict,
    what_is_not_there_is_not_found,
    an_object_without_a_name_is_invalid,
    an_object_of_another_namespace_is_refused,
    an_object_for_a_missing_namespace_is_refused,
    an_object_of_another_kind_is_refused,
    an_object_with_a_resource_version_is_not_new,
    identity_cannot_be_chosen,
    a_pod_gets_its_defaults,
    a_pod_gets_its_service_account_and_tolerations,
    a_deployment_gets_its_defaults,
    quantities_are_kept_in_their_shortest_form,
    the_quality_of_service_follows_from_requests_and_limits,
    yaml_is_read_and_written,
    every_common_kind_is_created_read_listed_and_deleted,
    a_generated_name_has_a_random_end,
    a_generated_name_may_be_long,
);

fn a_new_object_has_an_identity(stage: &Stage) {
    let created = stage.create(&stage.config_maps(), &config_map("one", json!({"a": "1"})));
    let meta = &created["metadata"];
    assert_eq!((&created["kind"], &created["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    assert_eq!((&meta["name"], &meta["namespace"]), (&json!("one"), &json!(stage.namespace)));
    let uid = meta["uid"].as_str().unwrap();
    let lengths: Vec<usize> = uid.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12], "{uid}");
    assert!(meta["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() > 0);
    let time = meta["creationTimestamp"].as_str().unwrap();
    assert!(time.len() == "2026-01-01T00:00:00Z".len() && time.ends_with('Z'), "{time}");
    assert_eq!(meta["generation"], Value::Null, "a ConfigMap has no generations");
}

fn a_new_object_tells_who_wrote_which_field(stage: &Stage) {
    let post = stage.client.call("POST", &stage.config_maps()).header("User-Agent", "tester/1.0 (of twins)");
    let created = post.json(&config_map("one", json!({"a": "1"}))).send().unwrap().body;
    let entry = &created["metadata"]["managedFields"][0];
    assert_eq!((&entry["manager"], &entry["operation"]), (&json!("tester"), &json!("Update")));
    assert_eq!((&entry["apiVersion"], &entry["fieldsType"]), (&json!("v1"), &json!("FieldsV1")));
    assert_eq!(entry["fieldsV1"], json!({"f:data": {".": {}, "f:a": {}}}));
    assert_eq!(entry["time"], created["metadata"]["creationTimestamp"]);
    let named = stage.create(&format!("{}?fieldManager=somebody", stage.config_maps()), &config_map("two", json!({})));
    // A name and nothing else: there is no field to manage.
    assert_eq!(named["metadata"]["managedFields"], Value::Null);
}

fn what_is_read_is_what_was_created(stage: &Stage) {
    let created = stage.create(&stage.pods(), &pod("one"));
    assert_eq!(stage.read(&stage.object("v1", "pods", "one")), created);
}

fn the_same_name_twice_is_a_conflict(stage: &Stage) {
    let body = config_map("one", json!({}));
    stage.create(&stage.config_maps(), &body);
    let answer = stage.client.post(&stage.config_maps(), &body).unwrap();
    refused(&answer, 409, "AlreadyExists", r#"configmaps "one" already exists"#);
    assert_eq!(answer.body["details"], json!({"name": "one", "kind": "configmaps"}));
    stage.create(&stage.at("apps/v1", "deployments"), &deployment("one"));
    let answer = stage.client.post(&stage.at("apps/v1", "deployments"), &deployment("one")).unwrap();
    refused(&answer, 409, "AlreadyExists", r#"deployments.apps "one" already exists"#);
    assert_eq!(answer.body["details"], json!({"name": "one", "group": "apps", "kind": "deployments"}));
}

fn what_is_not_there_is_not_found(stage: &Stage) {
    let answer = stage.client.get(&stage.object("apps/v1", "deployments", "none")).unwrap();
    refused(&answer, 404, "NotFound", r#"deployments.apps "none" not found"#);
    assert_eq!(answer.body["details"], json!({"name": "none", "group": "apps", "kind": "deployments"}));
    let answer = stage.client.delete(&stage.object("v1", "pods", "none")).unwrap();
    refused(&answer, 404, "NotFound", r#"pods "none" not found"#);
    let answer = stage.client.put(&stage.object("v1", "configmaps", "none"), &config_map("none", json!({}))).unwrap();
    // A ConfigMap may come into being by an update of nothing? It may not.
    refused(&answer, 404, "NotFound", r#"configmaps "none" not found"#);
    let answer = stage.client.patch(&stage.object("v1", "pods", "none"), "merge", &json!({})).unwrap();
    refused(&answer, 404, "NotFound", r#"pods "none" not found"#);
}

fn an_object_without_a_name_is_invalid(stage: &Stage) {
    let answer = stage.client.post(&stage.config_maps(), &json!({"data": {"a": "1"}})).unwrap();
    refused(
        &answer,
        422,
        "Invalid",
        r#"ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required"#,
    );
    assert_eq!(causes(&answer), ["FieldValueRequired metadata.name"]);
}

fn an_object_of_another_namespace_is_refused(stage: &Stage) {
    let body = json!({"metadata": {"name": "one", "namespace": "elsewhere"}});
    let answer = stage.client.post(&stage.config_maps(), &body).unwrap();
    refused(
        &answer,
        400,
        "BadRequest",
        "the namespace of the provided object does not match the namespace sent on the request",
    );
}

fn an_object_for_a_missing_namespace_is_refused(stage: &Stage) {
    let answer = stage.client.post("/api/v1/namespaces/nowhere/configmaps", &config_map("one", json!({}))).unwrap();
    refused(&answer, 404, "NotFound", r#"namespaces "nowhere" not found"#);
    assert_eq!(answer.body["details"], json!({"name": "nowhere", "kind": "namespaces"}));
}

fn an_object_of_another_kind_is_refused(stage: &Stage) {
    let answer = stage.client.post(&stage.config_maps(), &pod("one")).unwrap();
    refused(
        &answer,
        400,
        "BadRequest",
        r#"Pod in version "v1" cannot be handled as a ConfigMap: converting (v1.Pod) to (core.ConfigMap): unknown conversion"#,
    );
}

fn an_object_with_a_resource_version_is_not_new(stage: &Stage) {
    let body = json!({"metadata": {"name": "one", "resourceVersion": "12"}});
    let answer = stage.client.post(&stage.config_maps(), &body).unwrap();
    refused(&answer, 500, "", "resourceVersion should not be set on objects to be created");
}

fn identity_cannot_be_chosen(stage: &Stage) {
    let body = json!({"metadata": {"name": "one", "uid": "5d4b1c4e-0000-0000-0000-000000000000",
        "creationTimestamp": "2001-01-01T00:00:00Z", "deletionTimestamp": "2001-01-01T00:00:00Z", "generation": 7,
        "deletionGracePeriodSeconds": 4, "selfLink": "/here"}});
    let created = stage.create(&stage.config_maps(), &body);
    let meta = &created["metadata"];
    assert_ne!(meta["uid"], body["metadata"]["uid"]);
    assert_ne!(meta["creationTimestamp"], body["metadata"]["creationTimestamp"]);
    for absent in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        assert_eq!(meta[absent], Value::Null, "{absent}");
    }
    let pod = stage.create(&stage.pods(), &{
        let mut pod = pod("one");
        pod["status"] = json!({"phase": "Running", "podIP": "10.0.0.1"});
        pod["metadata"]["generation"] = json!(9);
        pod
    });
    assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    assert_eq!(pod["metadata"]["generation"], 1);
}

fn a_pod_gets_its_defaults(stage: &Stage) {
    let body = json!({"metadata": {"name": "one"}, "spec": {"schedulerName": "nobody",
        "containers": [
            {"name": "tagged", "image": "web:1", "ports": [{"containerPort": 80}],
                "readinessProbe": {"httpGet": {"port": 80}}},
            {"name": "latest", "image": "web", "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}],
        "volumes": [{"name": "v", "configMap": {"name": "c"}}, {"name": "e"}]}});
    let spec = stage.create(&stage.pods(), &body)["spec"].clone();
    #[rustfmt::skip]
    let expected = [
        ("/restartPolicy", json!("Always")),
        ("/dnsPolicy", json!("ClusterFirst")),
        ("/terminationGracePeriodSeconds", json!(30)),
        ("/securityContext", json!({})),
        ("/enableServiceLinks", json!(true)),
        ("/preemptionPolicy", json!("PreemptLowerPriority")),
        ("/priority", json!(0)),
        ("/containers/0/imagePullPolicy", json!("IfNotPresent")),
        ("/containers/1/imagePullPolicy", json!("Always")),
        ("/containers/0/terminationMessagePath", json!("/dev/termination-log")),
        ("/containers/0/terminationMessagePolicy", json!("File")),
        ("/containers/0/ports/0/protocol", json!("TCP")),
        ("/containers/0/resources", json!({})),
        ("/containers/0/readinessProbe", json!({"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
            "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3})),
        ("/containers/1/env/0/valueFrom/fieldRef/apiVersion", json!("v1")),
        ("/containers/1/resources", json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}})),
        ("/volumes/0/configMap/defaultMode", json!(420)),
        ("/volumes/1/emptyDir", json!({})),
    ];
    for (path, value) in expected {
        assert_eq!(spec.pointer(path).unwrap_or(&Value::Null), &value, "{path}");
    }
}

fn a_pod_gets_its_service_account_and_tolerations(stage: &Stage) {
    let spec = stage.create(&stage.pods(), &pod("one"))["spec"].clone();
    assert_eq!((&spec["serviceAccountName"], &spec["serviceAccount"]), (&json!("default"), &json!("default")));
    let volume = &spec["volumes"][0];
    let name = volume["name"].as_str().unwrap();
    assert!(name.starts_with("kube-api-access-") && name.len() == "kube-api-access-abcde".len(), "{name}");
    assert_eq!(
        volume["projected"],
        json!({"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]})
    );
    assert_eq!(
        spec["containers"][0]["volumeMounts"],
        json!([{"name": name, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}])
    );
    let toleration =
        |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    assert_eq!(
        spec["tolerations"],
        json!([toleration("node.kubernetes.io/not-ready"), toleration("node.kubernetes.io/unreachable")])
    );
}

fn a_deployment_gets_its_defaults(stage: &Stage) {
    let mut body = deployment("one");
    body["spec"].as_object_mut().unwrap().remove("replicas");
    let path = format!("{}?dryRun=All", stage.at("apps/v1", "deployments"));
    let created = stage.create(&path, &body);
    let mut spec = created["spec"].clone();
    assert_eq!(spec["template"]["spec"]["containers"][0]["imagePullPolicy"], "IfNotPresent");
    spec.as_object_mut().unwrap().remove("template");
    assert_eq!(
        spec,
        json!({"replicas": 1, "selector": {"matchLabels": {"app": "one"}}, "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}})
    );
    assert_eq!((&created["status"], &created["metadata"]["generation"]), (&json!({}), &json!(1)));
}

fn quantities_are_kept_in_their_shortest_form(stage: &Stage) {
    #[rustfmt::skip]
    let cases = [
        ("cpu", "1000m", "1"), ("cpu", "0.5", "500m"), ("cpu", "1.5", "1500m"), ("cpu", "100u", "1m"),
        ("memory", "1024Mi", "1Gi"), ("memory", "1.5Gi", "1536Mi"), ("memory", "1000000", "1M"), ("memory", "1e3", "1e3"),
        ("memory", "1073741824", "1073741824"), ("memory", "128974848", "128974848"), ("memory", "129e6", "129e6"), ("memory", "0", "0"),
    ];
    for (index, (resource, written, kept)) in cases.into_iter().enumerate() {
        let mut pod = pod(&format!("q{index}"));
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {resource: written}});
        let answer = stage.client.post(&format!("{}?dryRun=All", stage.pods()), &pod).unwrap();
        assert_eq!(
            answer.body["spec"]["containers"][0]["resources"]["requests"][resource],
            kept,
            "{written}: {}",
            answer.message()
        );
    }
}

fn the_quality_of_service_follows_from_requests_and_limits(stage: &Stage) {
    let both = json!({"cpu": "1", "memory": "1Gi"});
    let cases = [
        (json!({}), "BestEffort"),
        (json!({"requests": both}), "Burstable"),
        (json!({"limits": both}), "Guaranteed"),
        (json!({"requests": both, "limits": both}), "Guaranteed"),
        (json!({"limits": {"cpu": "1"}}), "Burstable"),
    ];
    for (index, (resources, class)) in cases.into_iter().enumerate() {
        let mut pod = pod(&format!("q{index}"));
        pod["spec"]["containers"][0]["resources"] = resources.clone();
        let created = stage.create(&stage.pods(), &pod);
        assert_eq!(created["status"]["qosClass"], class, "{resources}");
    }
}

fn yaml_is_read_and_written(stage: &Stage) {
    let text = "kind: ConfigMap\napiVersion: v1\nmetadata:\n  name: one\ndata:\n  a: \"yes\"\n";
    let answer = stage.client.call("POST", &stage.config_maps()).typed("application/yaml", text).send().unwrap();
    assert_eq!((answer.status, &answer.body["data"]), (201, &json!({"a": "yes"})), "{}", answer.message());
    let get = stage.client.call("GET", &stage.object("v1", "configmaps", "one")).header("Accept", "application/yaml");
    let Answer { status, body, headers, .. } = get.send().unwrap();
    assert_eq!(status, 200);
    assert!(headers.contains(&("content-type".to_owned(), "application/yaml".to_owned())), "{headers:?}");
    let text = body.as_str().unwrap();
    assert!(
        text.contains("\ndata:\n  a: \"yes\"\n") || text.starts_with("apiVersion: v1\ndata:\n  a: \"yes\"\n"),
        "{text}"
    );
    assert!(text.contains("\nkind: ConfigMap\n"), "{text}");
}

/// The least that each kind asks for.
#[rustfmt::skip]
fn kinds(stage: &Stage) -> Vec<(&'static str, &'static str, &'static str, bool, Value)> {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]}});
    let selector = json!({"matchLabels": {"a": "b"}});
    let mut finite = template.clone();
    finite["spec"]["restartPolicy"] = json!("Never");
    let driver = stage.unique("csi.example.com");
    let claim_spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}});
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let device_request = json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}});
    let webhook = json!([{"name": "w.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1/x"}, "failurePolicy": "Ignore",
        "rules": [{"apiGroups": ["none.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothing"]}]}]);
    vec![
        ("v1", "configmaps", "ConfigMap", true, json!({})),
        ("v1", "endpoints", "Endpoints", true, json!({})),
        ("v1", "limitranges", "LimitRange", true, json!({"spec": {"limits": []}})),
        ("v1", "persistentvolumeclaims", "PersistentVolumeClaim", true, json!({"spec": claim_spec})),
        ("v1", "pods", "Pod", true, json!({"spec": template["spec"]})),
        ("v1", "podtemplates", "PodTemplate", true, json!({"template": template})),
        ("v1", "replicationcontrollers", "ReplicationController", true, json!({"spec": {"replicas": 0, "selector": {"a": "b"}, "template": template}})),
        ("v1", "resourcequotas", "ResourceQuota", true, json!({"spec": {"hard": {"pods": "100"}}})),
        ("v1", "secrets", "Secret", true, json!({"stringData": {"a": "b"}})),
        ("v1", "serviceaccounts", "ServiceAccount", true, json!({})),
        ("v1", "services", "Service", true, json!({"spec": {"ports": [{"port": 80}], "clusterIP": "None"}})),
        ("v1", "nodes", "Node", false, json!({})),
        ("v1", "persistentvolumes", "PersistentVolume", false, json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "none", "csi": {"driver": "csi.example.com", "volumeHandle": "v"}}})),
        ("apps/v1", "controllerrevisions", "ControllerRevision", true, json!({"revision": 1, "data": {}})),
        ("apps/v1", "daemonsets", "DaemonSet", true, json!({"spec": {"selector": selector, "template": template}})),
        ("apps/v1", "deployments", "Deployment", true, json!({"spec": {"replicas": 0, "selector": selector, "template": template}})),
        ("apps/v1", "replicasets", "ReplicaSet", true, json!({"spec": {"replicas": 0, "selector": selector, "template": template}})),
        ("apps/v1", "statefulsets", "StatefulSet", true, json!({"spec": {"replicas": 0, "serviceName": "s", "selector": selector, "template": template}})),
        ("batch/v1", "jobs", "Job", true, json!({"spec": {"suspend": true, "template": finite}})),
        ("batch/v1", "cronjobs", "CronJob", true, json!({"spec": {"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": {"template": finite}}}})),
        ("coordination.k8s.io/v1", "leases", "Lease", true, json!({"spec": {"holderIdentity": "me", "leaseDurationSeconds": 10}})),
        ("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", true, json!({"spec": {"minAvailable": 1, "selector": selector}})),
        ("rbac.authorization.k8s.io/v1", "roles", "Role", true, json!({"rules": rules})),
        ("rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding", true, json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}})),
        ("rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", false, json!({"rules": rules})),
        ("rbac.authorization.k8s.io/v1", "clusterrolebindings", "ClusterRoleBinding", false, json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}})),
        ("resource.k8s.io/v1", "deviceclasses", "DeviceClass", false, json!({"spec": {}})),
        ("resource.k8s.io/v1", "resourceclaims", "ResourceClaim", true, json!({"spec": device_request})),
        ("resource.k8s.io/v1", "resourceclaimtemplates", "ResourceClaimTemplate", true, json!({"spec": {"spec": device_request}})),
        ("resource.k8s.io/v1", "resourceslices", "ResourceSlice", false, json!({"spec": {"driver": "d.example.com", "nodeName": "n",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": []}})),
        ("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", false, json!({"value": 10})),
        ("storage.k8s.io/v1", "csidrivers", "CSIDriver", false, json!({"metadata": {"name": driver}, "spec": {}})),
        ("storage.k8s.io/v1", "csinodes", "CSINode", false, json!({"spec": {"drivers": []}})),
        ("storage.k8s.io/v1", "csistoragecapacities", "CSIStorageCapacity", true, json!({"storageClassName": "none", "capacity": "1Gi"})),
        ("storage.k8s.io/v1", "storageclasses", "StorageClass", false, json!({"provisioner": "csi.example.com"})),
        ("storage.k8s.io/v1", "volumeattachments", "VolumeAttachment", false, json!({"spec": {"attacher": "csi.example.com", "nodeName": "n", "source": {"persistentVolumeName": "p"}}})),
        ("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", false, json!({"webhooks": webhook})),
        ("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", false, json!({"webhooks": webhook})),
        ("admissionregistration.k8s.io/v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", false, json!({"spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": ["none.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothing"]}]},
            "validations": [{"expression": "true"}]}})),
        ("admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", false, json!({"spec": {"policyName": "p", "validationActions": ["Warn"]}})),
    ]
}

fn every_common_kind_is_created_read_listed_and_deleted(stage: &Stage) {
    for (api_version, plural, kind, is_namespaced, mut body) in kinds(stage) {
        let collection =
            if is_namespaced { stage.at(api_version, plural) } else { crate::stage::cluster(api_version, plural) };
        if body["metadata"].is_null() {
            body["metadata"] = json!({"name": stage.unique("kind")});
        }
        body["metadata"]["labels"] = json!({"test": stage.namespace});
        let name = body["metadata"]["name"].as_str().unwrap().to_owned();
        let created = stage.create(&collection, &body);
        assert_eq!((&created["kind"], &created["apiVersion"]), (&json!(kind), &json!(api_version)));
        let path = format!("{collection}/{name}");
        assert_eq!(stage.read(&path)["metadata"]["uid"], created["metadata"]["uid"], "{plural}");
        let list = stage.read(&format!("{collection}?labelSelector=test%3D{}", stage.namespace));
        assert_eq!((&list["kind"], &list["apiVersion"]), (&json!(format!("{kind}List")), &json!(api_version)));
        assert_eq!(crate::expect::names(&list), [name], "{plural}");
        stage.delete(&format!("{path}?gracePeriodSeconds=0&propagationPolicy=Background"));
        stage.wait_for(&format!("{plural} to go"), || stage.is_gone(&path));
    }
}

fn a_generated_name_has_a_random_end(stage: &Stage) {
    let body = json!({"metadata": {"generateName": "made-"}});
    let names: Vec<String> = (0..20)
        .map(|_| stage.create(&stage.config_maps(), &body)["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    for name in &names {
        let end = name.strip_prefix("made-").unwrap();
        // No vowels, and nothing that looks like another letter.
        assert!(end.len() == 5 && end.bytes().all(|byte| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte)), "{name}");
    }
    let mut different = names.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), names.len());
    let both = stage.create(&stage.config_maps(), &json!({"metadata": {"name": "chosen", "generateName": "made-"}}));
    assert_eq!((&both["metadata"]["name"], &both["metadata"]["generateName"]), (&json!("chosen"), &json!("made-")));
}

fn a_generated_name_may_be_long(stage: &Stage) {
    let long = "a".repeat(80);
    let created = stage.create(&stage.config_maps(), &json!({"metadata": {"generateName": long}}));
    let name = created["metadata"]["name"].as_str().unwrap();
    assert_eq!(name.len(), 63, "{name}");
    let answer = stage.client.post(&stage.config_maps(), &json!({"metadata": {"generateName": "Not-"}})).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert!(causes(&answer).contains(&"FieldValueInvalid metadata.generateName".to_owned()), "{:?}", causes(&answer));
}
