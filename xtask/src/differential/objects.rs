//! Kubernetes objects that are written in more than one place.

use kerf_model::{Quantity, Text, labels, resources};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// An initialized node of an instance type, and its claim where a pool manages it. The type is in the format of kwok's file.
pub(crate) fn machine(name: &str, all: &Value, taints: &[Value], kind: &Value, is_managed: bool) -> Vec<Value> {
    let provider_id = format!("kerf:///{name}");
    let capacity = &kind["resources"];
    let allocatable = allocatable(capacity);
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": all},
        "spec": {"providerID": provider_id, "taints": taints},
        "status": {
            "capacity": capacity, "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    if !is_managed {
        return vec![node];
    }
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": "2025-01-01T00:00:00Z"});
    let claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name, "labels": all},
        "spec": {
            "requirements": [], "taints": taints,
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        },
        "status": {
            "nodeName": name, "providerID": provider_id, "capacity": capacity, "allocatable": allocatable,
            "conditions": [condition("Launched"), condition("Registered"), condition("Initialized")],
        },
    });
    vec![node, claim]
}

/// What is left of the capacity after the overhead that a type of kwok's file has when it says nothing.
fn allocatable(capacity: &Value) -> Value {
    let mut out = capacity.clone();
    for (resource, overhead) in
        [(resources::CPU, Quantity::from_milli(100)), (resources::MEMORY, Quantity::from_mebibytes(10))]
    {
        let whole = capacity[resource].as_str().and_then(|text| Quantity::parse(text).ok()).unwrap_or_default();
        out[resource] = json!(Quantity { milli: whole.milli - overhead.milli }.to_string());
    }
    out
}

/// The labels that a node of the type has by itself.
pub(crate) fn labels_of_type(kind: &Value) -> Value {
    json!({
        labels::INSTANCE_TYPE: kind["name"], labels::ARCH: kind["architecture"], labels::OS: "linux",
        "karpenter.kwok.sh/instance-cpu": kind["resources"]["cpu"],
        "karpenter.kwok.sh/instance-memory": kind["resources"]["memory"],
    })
}

pub(crate) fn containers(cpu_millis: usize, memory_mebibytes: usize, port: Option<u16>) -> Value {
    let mut container = json!({
        "name": "main", "image": "none",
        "resources": {"requests": {"cpu": format!("{cpu_millis}m"), "memory": format!("{memory_mebibytes}Mi")}},
    });
    if let Some(port) = port {
        container["ports"] = json!([{"containerPort": port, "hostPort": port, "protocol": "TCP"}]);
    }
    json!([container])
}

/// A pool that can never grow, and only says that a label has these values.
pub(crate) fn pool_that_sells_nothing(key: &str, values: &BTreeSet<&Text>) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "a-pool-that-sells-nothing"},
        "spec": {
            "limits": {"cpu": "0"},
            "template": {"spec": {
                "requirements": [{"key": key, "operator": "In", "values": values}],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            }},
        },
    })
}
