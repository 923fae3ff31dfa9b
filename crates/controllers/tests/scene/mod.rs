//! What most scenes need: a pool, a deployment, and questions about the cluster.

#![allow(dead_code, reason = "every test file uses its own part of this")]
#![allow(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

use kerf_simulation::{Rehearsal, Setup};
use serde_json::{Value, json};

pub(crate) const CLASS: &str =
    "{apiVersion: karpenter.kwok.sh/v1alpha1, kind: KWOKNodeClass, metadata: {name: default}}";

/// A cluster with a class and a pool named `default`; `change` edits the pool before it is created.
pub(crate) fn cluster(setup: Setup, change: impl FnOnce(&mut Value)) -> Rehearsal {
    let mut scene = Rehearsal::new(setup);
    scene.create(CLASS);
    let mut pool = pool("default");
    change(&mut pool);
    scene.create_value(&pool);
    scene
}

/// On demand, Linux, amd64, never consolidated: what most stories want.
pub(crate) fn pool(name: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
        "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [
                    {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                ],
                "expireAfter": "Never",
            }},
            "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "Never",
                "budgets": [{"nodes": "100%"}]},
        },
    })
}

/// The documents' deployment, with requests of a CPU each; `change` edits the pods' spec.
pub(crate) fn inflate(name: &str, replicas: i32, change: impl FnOnce(&mut Value)) -> Value {
    let mut spec = json!({
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "inflate", "image": "public.ecr.aws/eks-distro/kubernetes/pause:3.7",
            "resources": {"requests": {"cpu": "1"}}}],
    });
    change(&mut spec);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    })
}

/// Pods with this phase.
pub(crate) fn n_pods(scene: &Rehearsal, phase: &str) -> usize {
    scene.pods().iter().filter(|pod| pod["status"]["phase"] == phase).count()
}

pub(crate) fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

/// Scales a deployment of the default namespace.
pub(crate) fn scale(scene: &mut Rehearsal, deployment: &str, replicas: i32) {
    scene.patch(
        &format!("/apis/apps/v1/namespaces/default/deployments/{deployment}"),
        &json!({"spec": {"replicas": replicas}}),
    );
}

/// Dice for tests: the next number of a sequence that a seed begins.
pub(crate) fn roll(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
