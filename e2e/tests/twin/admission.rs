//! What else there is decides whether and how an object is taken in.

use serde_json::{Value, json};

use crate::expect::{causes, refused, refused_with};
use crate::objects::pod;
use crate::stage::Stage;

crate::tests!(
    a_limit_range_gives_defaults,
    a_limit_range_refuses_what_is_too_much_or_too_little,
    a_limit_range_holds_pods_and_claims_to_its_bounds,
    a_limit_range_is_validated,
    a_priority_class_gives_a_priority,
    an_unknown_priority_class_is_refused,
    a_priority_must_be_that_of_its_class,
    the_system_classes_are_there,
    a_priority_class_is_validated_and_immutable,
    an_unknown_service_account_is_refused,
    a_pod_may_go_without_a_token,
    an_account_may_forbid_its_token,
    a_quota_counts_pods,
    a_quota_of_requests_asks_for_requests,
    a_quota_tells_what_is_used,
    a_claim_of_no_class_gets_the_default_class,
    volumes_and_claims_are_protected,
    a_new_node_is_tainted_until_it_is_ready,
    a_policy_denies_what_its_rule_does_not_hold_for;
    alone
    a_default_class_gives_everyone_a_priority,
);

fn with_resources(name: &str, resources: Value) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["resources"] = resources;
    pod
}

fn limits(stage: &Stage, limits: Value) {
    stage.create(&stage.at("v1", "limitranges"), &json!({"metadata": {"name": "bounds"}, "spec": {"limits": limits}}));
    // The real server learns of it by a watch.
    stage.wait_for("the limit range to be obeyed", || {
        let tiny = with_resources(
            "probe",
            json!({"requests": {"cpu": "1m", "memory": "1"}, "limits": {"cpu": "1m", "memory": "1"}}),
        );
        let huge = with_resources(
            "probe",
            json!({"requests": {"cpu": "1M", "memory": "1Pi"}, "limits": {"cpu": "1M", "memory": "1Pi"}}),
        );
        let path = format!("{}?dryRun=All", stage.pods());
        [pod("probe"), tiny, huge].iter().any(|pod| {
            let answer = stage.client.post(&path, pod).unwrap();
            answer.status == 403 || answer.body["metadata"]["annotations"].is_object()
        })
    });
}

fn a_limit_range_gives_defaults(stage: &Stage) {
    limits(
        stage,
        json!([{"type": "Container", "default": {"cpu": "500m", "memory": "256Mi"}, "defaultRequest": {"cpu": "100m"}}]),
    );
    let created = stage.create(&stage.pods(), &pod("one"));
    assert_eq!(
        created["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "256Mi"}})
    );
    assert_eq!(
        created["metadata"]["annotations"],
        json!({"kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu, memory request for container web; cpu, memory limit for container web"})
    );
    let own =
        stage.create(&stage.pods(), &with_resources("two", json!({"requests": {"cpu": "200m", "memory": "1Mi"}})));
    assert_eq!(
        own["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "200m", "memory": "1Mi"}})
    );
}

fn a_limit_range_refuses_what_is_too_much_or_too_little(stage: &Stage) {
    limits(stage, json!([{"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "100m"}}]));
    let answer = stage
        .client
        .post(&stage.pods(), &with_resources("one", json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "2"}})))
        .unwrap();
    refused(
        &answer,
        403,
        "Forbidden",
        r#"pods "one" is forbidden: [minimum cpu usage per Container is 100m, but request is 50m, maximum cpu usage per Container is 1, but limit is 2]"#,
    );
    assert_eq!(answer.body["details"], json!({"name": "one", "kind": "pods"}));
    let created = stage.create(&stage.pods(), &pod("two"));
    assert_eq!(
        created["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}),
        "the most is the default"
    );
}

fn a_limit_range_holds_pods_and_claims_to_its_bounds(stage: &Stage) {
    limits(
        stage,
        json!([{"type": "Pod", "max": {"memory": "1Gi"}}, {"type": "PersistentVolumeClaim", "min": {"storage": "2Gi"}},
            {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}]),
    );
    let answer =
        stage.client.post(&stage.pods(), &with_resources("one", json!({"limits": {"memory": "2Gi"}}))).unwrap();
    refused_with(&answer, 403, "Forbidden");
    assert!(answer.message().contains("maximum memory usage per Pod is 1Gi, but limit is 2Gi"), "{}", answer.message());
    let resources = json!({"requests": {"cpu": "1", "memory": "1Mi"}, "limits": {"cpu": "3", "memory": "1Mi"}});
    let answer = stage.client.post(&stage.pods(), &with_resources("one", resources)).unwrap();
    refused(
        &answer,
        403,
        "Forbidden",
        r#"pods "one" is forbidden: cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"#,
    );
    let claim = json!({"metadata": {"name": "one"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none",
        "resources": {"requests": {"storage": "1Gi"}}}});
    let answer = stage.client.post(&stage.at("v1", "persistentvolumeclaims"), &claim).unwrap();
    refused(
        &answer,
        403,
        "Forbidden",
        r#"persistentvolumeclaims "one" is forbidden: minimum storage usage per PersistentVolumeClaim is 2Gi, but request is 1Gi"#,
    );
}

fn a_limit_range_is_validated(stage: &Stage) {
    let body = json!({"metadata": {"name": "one"}, "spec": {"limits": [{"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]}});
    let answer = stage.client.post(&stage.at("v1", "limitranges"), &body).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert!(causes(&answer).contains(&"FieldValueInvalid spec.limits[0].min[cpu]".to_owned()), "{:?}", causes(&answer));
    assert!(answer.message().contains("min value 2 is greater than max value 1"), "{}", answer.message());
}

fn class(stage: &Stage, name: &str, content: Value) -> String {
    let mut body = json!({"metadata": {"name": stage.unique(name)}});
    for (key, value) in content.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    let created = stage.create_for_now("/apis/scheduling.k8s.io/v1/priorityclasses", &body);
    created["metadata"]["name"].as_str().unwrap().to_owned()
}

fn of_class(name: &str, class: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["priorityClassName"] = json!(class);
    pod
}

fn a_priority_class_gives_a_priority(stage: &Stage) {
    let high = class(stage, "high", json!({"value": 1000, "preemptionPolicy": "Never", "description": "important"}));
    // The real server looks into a cache of classes, and then asks.
    let created = stage.create(&stage.pods(), &of_class("one", &high));
    assert_eq!((&created["spec"]["priority"], &created["spec"]["preemptionPolicy"]), (&json!(1000), &json!("Never")));
}

fn an_unknown_priority_class_is_refused(stage: &Stage) {
    let answer = stage.client.post(&stage.pods(), &of_class("one", "nonsense")).unwrap();
    refused(&answer, 403, "Forbidden", r#"pods "one" is forbidden: no PriorityClass with name nonsense was found"#);
}

fn a_priority_must_be_that_of_its_class(stage: &Stage) {
    let high = class(stage, "high", json!({"value": 1000}));
    let mut pod = of_class("one", &high);
    pod["spec"]["priority"] = json!(5);
    let answer = stage.client.post(&stage.pods(), &pod).unwrap();
    refused(
        &answer,
        403,
        "Forbidden",
        r#"pods "one" is forbidden: the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 1000 from the given PriorityClass name"#,
    );
}

fn the_system_classes_are_there(stage: &Stage) {
    for (name, value) in [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)] {
        let class = stage.read(&format!("/apis/scheduling.k8s.io/v1/priorityclasses/{name}"));
        assert_eq!((&class["value"], &class["preemptionPolicy"]), (&json!(value), &json!("PreemptLowerPriority")));
    }
    let created = stage.create(&stage.pods(), &of_class("one", "system-node-critical"));
    assert_eq!(created["spec"]["priority"], 2_000_001_000);
}

fn a_priority_class_is_validated_and_immutable(stage: &Stage) {
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let answer =
        stage.client.post(classes, &json!({"metadata": {"name": stage.unique("x")}, "value": 1_000_000_001})).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert!(
        answer.message().ends_with("maximum allowed value of a user defined priority is 1000000000"),
        "{}",
        answer.message()
    );
    let answer = stage.client.post(classes, &json!({"metadata": {"name": "system-mine"}, "value": 1})).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert!(
        answer.message().contains("priority class names with 'system-' prefix are reserved for system use only"),
        "{}",
        answer.message()
    );
    let name = class(stage, "one", json!({"value": 5}));
    let answer = stage.client.patch(&format!("{classes}/{name}"), "merge", &json!({"value": 6})).unwrap();
    refused_with(&answer, 422, "Invalid");
    assert_eq!(causes(&answer), ["FieldValueForbidden value"]);
    assert!(answer.message().ends_with("value: Forbidden: may not be changed in an update."), "{}", answer.message());
}

fn an_unknown_service_account_is_refused(stage: &Stage) {
    let mut pod = pod("one");
    pod["spec"]["serviceAccountName"] = json!("nobody");
    let answer = stage.client.post(&stage.pods(), &pod).unwrap();
    refused(
        &answer,
        403,
        "Forbidden",
        &format!(
            "pods \"one\" is forbidden: error looking up service account {}/nobody: serviceaccount \"nobody\" not found",
            stage.namespace
        ),
    );
}

fn a_pod_may_go_without_a_token(stage: &Stage) {
    let mut pod = pod("one");
    pod["spec"]["automountServiceAccountToken"] = json!(false);
    let created = stage.create(&stage.pods(), &pod);
    assert_eq!(
        (&created["spec"]["volumes"], &created["spec"]["serviceAccountName"]),
        (&Value::Null, &json!("default"))
    );
}

fn an_account_may_forbid_its_token(stage: &Stage) {
    let account = json!({"metadata": {"name": "quiet"}, "automountServiceAccountToken": false, "imagePullSecrets": [{"name": "s"}]});
    stage.create(&stage.at("v1", "serviceaccounts"), &account);
    let mut pod = pod("one");
    pod["spec"]["serviceAccountName"] = json!("quiet");
    let created = stage.create(&stage.pods(), &pod);
    assert_eq!(
        (&created["spec"]["volumes"], &created["spec"]["imagePullSecrets"]),
        (&Value::Null, &json!([{"name": "s"}]))
    );
}

fn quota(stage: &Stage, hard: Value) -> String {
    stage.create(&stage.at("v1", "resourcequotas"), &json!({"metadata": {"name": "cap"}, "spec": {"hard": hard}}));
    let path = stage.object("v1", "resourcequotas", "cap");
    stage.wait_for("the quota to be counted", || stage.read(&path)["status"]["used"].is_object());
    path
}

fn a_quota_counts_pods(stage: &Stage) {
    quota(stage, json!({"pods": "1", "count/configmaps": "2"}));
    stage.create(&stage.pods(), &pod("one"));
    let answer = stage.client.post(&stage.pods(), &pod("two")).unwrap();
    refused(
        &answer,
        403,
        "Forbidden",
        r#"pods "two" is forbidden: exceeded quota: cap, requested: pods=1, used: pods=1, limited: pods=1"#,
    );
}

fn a_quota_of_requests_asks_for_requests(stage: &Stage) {
    quota(stage, json!({"requests.cpu": "1", "limits.memory": "1Gi"}));
    let answer = stage.client.post(&stage.pods(), &pod("one")).unwrap();
    refused(
        &answer,
        403,
        "Forbidden",
        r#"pods "one" is forbidden: failed quota: cap: must specify limits.memory for: web; requests.cpu for: web"#,
    );
    let fitting = json!({"requests": {"cpu": "600m"}, "limits": {"memory": "100Mi"}});
    stage.create(&stage.pods(), &with_resources("one", fitting.clone()));
    let answer = stage.client.post(&stage.pods(), &with_resources("two", fitting)).unwrap();
    refused(
        &answer,
        403,
        "Forbidden",
        r#"pods "two" is forbidden: exceeded quota: cap, requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1"#,
    );
}

fn a_quota_tells_what_is_used(stage: &Stage) {
    let path = quota(stage, json!({"pods": "5"}));
    stage.create(&stage.pods(), &pod("one"));
    stage.wait_for("the pod to be counted", || {
        stage.read(&path)["status"] == json!({"hard": {"pods": "5"}, "used": {"pods": "1"}})
    });
    stage.delete(&stage.object("v1", "pods", "one"));
    stage.wait_for("the pod to be forgotten", || stage.read(&path)["status"]["used"] == json!({"pods": "0"}));
}

fn a_claim_of_no_class_gets_the_default_class(stage: &Stage) {
    let name = stage.unique("standard");
    let class = json!({"metadata": {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "csi.example.com", "volumeBindingMode": "WaitForFirstConsumer"});
    let created = stage.create_for_now("/apis/storage.k8s.io/v1/storageclasses", &class);
    assert_eq!(
        (&created["reclaimPolicy"], &created["volumeBindingMode"]),
        (&json!("Delete"), &json!("WaitForFirstConsumer"))
    );
    let claim = |name: &str| json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    stage.wait_for("the class to be the default", || {
        let created =
            stage.create(&format!("{}?dryRun=All", stage.at("v1", "persistentvolumeclaims")), &claim("probe"));
        created["spec"]["storageClassName"] == name
    });
    let created = stage.create(&stage.at("v1", "persistentvolumeclaims"), &claim("one"));
    assert_eq!(
        (&created["spec"]["volumeMode"], &created["status"]["phase"]),
        (&json!("Filesystem"), &json!("Pending"))
    );
    let mut none = claim("two");
    none["spec"]["storageClassName"] = json!("");
    assert_eq!(stage.create(&stage.at("v1", "persistentvolumeclaims"), &none)["spec"]["storageClassName"], "");
}

fn volumes_and_claims_are_protected(stage: &Stage) {
    let claim = json!({"metadata": {"name": "one"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}}});
    let created = stage.create(&stage.at("v1", "persistentvolumeclaims"), &claim);
    assert_eq!(created["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    let volume = json!({"metadata": {"name": stage.unique("v")}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "storageClassName": "other", "csi": {"driver": "csi.example.com", "volumeHandle": "v"}}});
    let created = stage.create_for_now("/api/v1/persistentvolumes", &volume);
    assert_eq!(created["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
    assert_eq!(
        (&created["spec"]["persistentVolumeReclaimPolicy"], &created["spec"]["volumeMode"]),
        (&json!("Retain"), &json!("Filesystem"))
    );
}

fn a_new_node_is_tainted_until_it_is_ready(stage: &Stage) {
    let node = stage.create("/api/v1/nodes?dryRun=All", &json!({"metadata": {"name": stage.unique("n")}}));
    assert_eq!(node["spec"]["taints"], json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]));
}

fn a_policy_denies_what_its_rule_does_not_hold_for(stage: &Stage) {
    const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let name = stage.unique("deny");
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]});
    let policy = json!({"metadata": {"name": name}, "spec": {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "ours", "expression": "request.namespace == '".to_owned() + &stage.namespace + "'"}],
        "validations": [
            {"expression": "!has(object.data) || !('bad' in object.data)"},
            {"expression": "!has(object.data) || size(object.data) < 2", "message": "one is enough", "reason": "Forbidden"},
        ],
    }});
    stage.create_for_now(POLICIES, &policy);
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    stage.create_for_now("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", &binding);
    let maps = stage.at("v1", "configmaps");
    let map = |data: Value| json!({"metadata": {"name": "map"}, "data": data});
    // The real server learns of a policy by a watch.
    let probe = format!("{maps}?dryRun=All");
    stage.wait_for("the policy to be obeyed", || {
        stage.client.post(&probe, &map(json!({"bad": "x"}))).unwrap().status != 201
    });
    let said = |why: &str| {
        format!(
            "configmaps \"map\" is forbidden: ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: {why}"
        )
    };
    let answer = stage.client.post(&maps, &map(json!({"bad": "x"}))).unwrap();
    refused(&answer, 422, "Invalid", &said("failed expression: !has(object.data) || !('bad' in object.data)"));
    assert_eq!(causes(&answer), [" "]);
    stage.create(&maps, &map(json!({"good": "x"})));
    let path = stage.object("v1", "configmaps", "map");
    let answer = stage.client.patch(&path, "merge", &json!({"data": {"better": "y"}})).unwrap();
    refused(&answer, 403, "Forbidden", &said("one is enough"));
}

fn a_default_class_gives_everyone_a_priority(stage: &Stage) {
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let name = class(stage, "everyone", json!({"value": 7, "globalDefault": true}));
    stage.wait_for("the class to be the default", || {
        stage.create(&format!("{}?dryRun=All", stage.pods()), &pod("probe"))["spec"]["priority"] == 7
    });
    let created = stage.create(&stage.pods(), &pod("one"));
    assert_eq!(created["spec"]["priorityClassName"], name);
    let answer = stage
        .client
        .post(classes, &json!({"metadata": {"name": stage.unique("two")}, "value": 8, "globalDefault": true}))
        .unwrap();
    refused_with(&answer, 403, "Forbidden");
    assert!(
        answer
            .message()
            .ends_with(&format!("PriorityClass {name} is already marked as default. Only one default can exist")),
        "{}",
        answer.message()
    );
    stage.delete(&format!("{classes}/{name}"));
    stage.wait_for("there to be no default", || {
        stage.create(&format!("{}?dryRun=All", stage.pods()), &pod("probe"))["spec"]["priority"] == 0
    });
}
