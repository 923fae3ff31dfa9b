//! Claims that no pool made: somebody asks for one node, and gets it.

use serde_json::{Value, json};

use crate::scene::{condition, is_true, text};
use crate::stage::{NODE_CLAIMS, NODE_CLASSES, NODES, Stage};
use crate::tests;

tests!(
    a_claim_of_nobodys_becomes_a_ready_node,
    a_claim_with_requests_gets_a_node_that_has_them,
    what_a_claim_says_reaches_its_node,
    deleting_a_claim_removes_its_node,
    deleting_a_node_removes_its_claim,
    a_claim_of_an_unknown_class_is_deleted,
    a_claim_of_a_class_that_is_not_ready_is_deleted,
    a_claim_whose_node_is_denied_is_deleted_when_its_time_to_register_is_over,
    a_claim_with_a_strange_provider_id_is_garbage,
);

fn path(stage: &Stage<'_>) -> String {
    format!("{NODE_CLAIMS}/{}", stage.namespace)
}

/// Creates the claim, named after the test, for types of 16 CPUs.
fn add_claim(stage: &Stage<'_>, change: impl FnOnce(&mut Value)) {
    let mut claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": stage.namespace},
        "spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-16x-amd64-linux", "c-16x-arm64-linux"]},
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            ],
        },
    });
    change(&mut claim);
    stage.clear_later(path(stage));
    stage.create(NODE_CLAIMS, &claim);
}

/// Waits until the claim is ready, and gives back its node.
fn node_of_ready_claim(stage: &Stage<'_>) -> Value {
    stage.wait_for("the claim to be ready", || is_true(&stage.read(&path(stage)), "Ready"));
    stage.read(&format!("{NODES}/{}", text(&stage.read(&path(stage))["status"]["nodeName"])))
}

fn a_claim_of_nobodys_becomes_a_ready_node(stage: &Stage<'_>) {
    add_claim(stage, |_| {});
    let node = node_of_ready_claim(stage);
    let labels = &node["metadata"]["labels"];
    assert_eq!(labels["karpenter.sh/capacity-type"], "on-demand");
    assert!(text(&labels["node.kubernetes.io/instance-type"]).starts_with("c-16x-"));
    assert!(is_true(&node, "Ready"));
    let claim = stage.read(&path(stage));
    for kind in ["Launched", "Registered", "Initialized"] {
        assert!(is_true(&claim, kind), "{kind}: {}", condition(&claim, kind));
    }
    assert_eq!(claim["status"]["providerID"], node["spec"]["providerID"]);
}

fn a_claim_with_requests_gets_a_node_that_has_them(stage: &Stage<'_>) {
    add_claim(stage, |claim| {
        claim["spec"]["resources"] = json!({"requests": {"cpu": "3", "memory": "11Gi"}});
        claim["spec"]["requirements"] = json!([
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        ]);
    });
    let node = node_of_ready_claim(stage);
    let cpu: f64 = text(&node["status"]["capacity"]["cpu"]).parse().unwrap();
    assert!((3.0..=8.0).contains(&cpu), "{cpu} CPUs for a request of 3");
}

fn what_a_claim_says_reaches_its_node(stage: &Stage<'_>) {
    add_claim(stage, |claim| {
        claim["metadata"]["annotations"] = json!({"custom-annotation": "a"});
        claim["metadata"]["labels"] = json!({"custom-label": "l"});
        claim["spec"]["taints"] = json!([
            {"key": "custom-taint", "effect": "NoSchedule", "value": "v"},
            {"key": "other-custom-taint", "effect": "NoExecute", "value": "w"},
        ]);
    });
    let node = node_of_ready_claim(stage);
    let metadata = &node["metadata"];
    assert_eq!(metadata["annotations"]["custom-annotation"], "a");
    assert_eq!(metadata["labels"]["custom-label"], "l");
    for (key, effect) in [("custom-taint", "NoSchedule"), ("other-custom-taint", "NoExecute")] {
        let is_there = |taint: &Value| taint["key"] == key && taint["effect"] == effect;
        assert!(node["spec"]["taints"].as_array().unwrap().iter().any(is_there), "{key}: {}", node["spec"]);
    }
    let claim = stage.read(&path(stage));
    let owner = &metadata["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("NodeClaim"), &claim["metadata"]["name"]));
    assert_eq!((&owner["uid"], &owner["blockOwnerDeletion"]), (&claim["metadata"]["uid"], &json!(true)));
}

fn deleting_a_claim_removes_its_node(stage: &Stage<'_>) {
    add_claim(stage, |_| {});
    let node = format!("{NODES}/{}", text(&node_of_ready_claim(stage)["metadata"]["name"]));
    stage.kubectl_says(&["delete", "nodeclaim", &stage.namespace]);
    assert!(stage.is_gone(&path(stage)));
    stage.wait_for("the node to go", || stage.is_gone(&node));
}

fn deleting_a_node_removes_its_claim(stage: &Stage<'_>) {
    add_claim(stage, |_| {});
    let node = text(&node_of_ready_claim(stage)["metadata"]["name"]);
    stage.kubectl_says(&["delete", "node", &node]);
    assert!(stage.is_gone(&format!("{NODES}/{node}")));
    stage.wait_for("the claim to go", || stage.is_gone(&path(stage)));
}

fn a_claim_of_an_unknown_class_is_deleted(stage: &Stage<'_>) {
    add_claim(stage, |claim| claim["spec"]["nodeClassRef"]["name"] = json!("unknown"));
    stage.wait_for("the claim to go", || stage.is_gone(&path(stage)));
}

fn a_claim_of_a_class_that_is_not_ready_is_deleted(stage: &Stage<'_>) {
    let class = json!({
        "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": stage.namespace}, "spec": {}
    });
    stage.create(NODE_CLASSES, &class);
    let class = format!("{NODE_CLASSES}/{}", stage.namespace);
    stage.clear_later(class.clone());
    let not_ready = json!({
        "type": "Ready", "status": "False", "reason": "Testing", "message": "not today",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
    });
    stage.patch(&format!("{class}/status"), &json!({"status": {"conditions": [not_ready]}}));
    add_claim(stage, |claim| claim["spec"]["nodeClassRef"]["name"] = json!(stage.namespace));
    stage.wait_for("the claim to go", || stage.is_gone(&path(stage)));
}

/// The quarter of an hour that a node has to register begins with a time that the claim itself carries, so that nobody has to wait for it.
fn a_claim_whose_node_is_denied_is_deleted_when_its_time_to_register_is_over(stage: &Stage<'_>) {
    const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
    let name = &stage.namespace;
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nodes"]});
    let is_welcome = "!has(object.metadata.labels) || !('kerf.test/registration' in object.metadata.labels) || \
                      object.metadata.labels['kerf.test/registration'] != 'fail'";
    for path in [BINDINGS, POLICIES] {
        stage.clear_later(format!("{path}/{name}"));
    }
    let policy = json!({"metadata": {"name": name}, "spec": {
        "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": is_welcome}],
    }});
    stage.create(POLICIES, &policy);
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    stage.create(BINDINGS, &binding);
    let labels = json!({"kerf.test/registration": "fail"});
    let unwelcome = json!({"metadata": {"name": name, "labels": labels}});
    // A real server learns of a policy by a watch.
    stage.wait_for("the policy to be obeyed", || {
        stage.client.post(&format!("{NODES}?dryRun=All"), &unwelcome).unwrap().status == 422
    });

    // As one of an operator before: of its own claims an operator knows by its own clock since when it has worked on them.
    add_claim(stage, |claim| {
        claim["metadata"]["labels"] = labels.clone();
        claim["metadata"]["finalizers"] = json!(["karpenter.sh/termination"]);
    });
    stage.wait_for("the claim to be launched", || is_true(&stage.read(&path(stage)), "Launched"));
    stage.wait_for("the node to be denied", || stage.operator().said().contains("denied request"));
    stage.wait_for("the claim to look older than its time to register", || {
        let claim = stage.read(&path(stage));
        assert_eq!(condition(&claim, "Registered")["status"], "Unknown", "{}", claim["status"]);
        let mut conditions = claim["status"]["conditions"].as_array().unwrap().clone();
        for condition in conditions.iter_mut().filter(|condition| condition["type"] == "Registered") {
            condition["lastTransitionTime"] = json!("2026-01-01T00:00:00Z");
        }
        let version = &claim["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version}, "status": {"conditions": conditions}});
        stage.client.patch(&format!("{}/status", path(stage)), "merge", &patch).unwrap().status == 200
    });
    stage.wait_for("the claim to go", || stage.is_gone(&path(stage)));
    assert_eq!(stage.list(&format!("{NODES}?labelSelector=kerf.test/registration=fail")), Vec::<Value>::new());
}

fn a_claim_with_a_strange_provider_id_is_garbage(stage: &Stage<'_>) {
    add_claim(stage, |_| {});
    let node = node_of_ready_claim(stage);
    let before = stage.read(&path(stage))["metadata"]["uid"].clone();
    stage.patch(&format!("{}/status", path(stage)), &json!({"status": {"providerID": "kwok://nobody-knows-this-one"}}));
    stage.wait_for("the claim to go", || stage.is_gone(&path(stage)));
    // What the claim owned goes with it.
    assert_eq!(node["metadata"]["ownerReferences"][0]["uid"], before);
    stage.wait_for("its node to go", || stage.is_gone(&format!("{NODES}/{}", text(&node["metadata"]["name"]))));
}
