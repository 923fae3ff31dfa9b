//! Small clusters for tables: nodes and pods as one would write them down, with only what matters.

use serde_json::{Value, json};

use super::{Cluster, PodFacts, Setback, Verdict, verdicts};

/// Lays `more` over `base`, object by object. Null takes away.
pub(crate) fn over(mut base: Value, more: Value) -> Value {
    match (&mut base, more) {
        (Value::Object(base), Value::Object(more)) => {
            for (key, value) in more {
                let below = base.remove(&key).unwrap_or(Value::Null);
                if !value.is_null() {
                    base.insert(key, over(below, value));
                }
            }
        }
        (base, more) => *base = without_nulls(more),
    }
    base
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(object) => object
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key, without_nulls(value)))
            .collect(),
        value => value,
    }
}

/// A node with 4 cpus, 8Gi and room for 110 pods, in zone a.
pub(crate) fn node(name: &str, more: Value) -> Value {
    let base = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "a"}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}});
    over(base, more)
}

/// A pod of the namespace `default` that asks for nothing.
pub(crate) fn pod(name: &str, more: Value) -> Value {
    let base = json!({"metadata": {"namespace": "default", "name": name, "uid": format!("uid-{name}")},
        "spec": {"containers": [{"name": "c", "image": "web"}]}});
    over(base, more)
}

pub(crate) fn placed(name: &str, on: &str, more: Value) -> Value {
    over(pod(name, json!({"spec": {"nodeName": on}})), more)
}

pub(crate) fn asking(cpu: &str, memory: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "web", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}})
}

pub(crate) fn facts(pod: &Value) -> PodFacts {
    PodFacts::of(&serde_json::from_value(pod.clone()).unwrap())
}

/// A cluster of nodes and placed pods.
pub(crate) fn cluster(nodes: &[Value], pods: &[Value]) -> Cluster {
    let mut cluster = Cluster::default();
    for namespace in ["default", "other"] {
        let object = json!({"metadata": {"name": namespace, "labels": {"team": namespace}}});
        cluster.put("", "namespaces", object.to_string().as_bytes());
    }
    nodes.iter().for_each(|node| put(&mut cluster, "nodes", node));
    pods.iter().for_each(|pod| put(&mut cluster, "pods", pod));
    cluster
}

pub(crate) fn put(cluster: &mut Cluster, plural: &str, object: &Value) {
    let group = match plural {
        "storageclasses" | "csinodes" | "csidrivers" | "csistoragecapacities" | "volumeattachments" => "storage.k8s.io",
        "replicasets" => "apps",
        "poddisruptionbudgets" => "policy",
        _ => "",
    };
    cluster.put(group, plural, object.to_string().as_bytes());
}

/// What every node says, one line each: `n1: fits`, `n2: Insufficient cpu`. A `!` means that no preemption would help.
pub(crate) fn said(cluster: &Cluster, pod: &Value) -> String {
    match verdicts(&facts(pod), cluster) {
        Err(Setback::Refused { message, .. } | Setback::Error(message)) => message,
        Ok(verdicts) => {
            let line = |(name, verdict): &(String, Verdict)| match verdict {
                Verdict::Fits => format!("{name}: fits"),
                Verdict::Error(message) => format!("{name}: error {message}"),
                Verdict::Refused(refusal) => {
                    let reasons: Vec<String> = refusal.reasons.iter().map(ToString::to_string).collect();
                    format!("{name}: {}{}", reasons.join(", "), if refusal.could_yield { "" } else { "!" })
                }
            };
            verdicts.iter().map(line).collect::<Vec<_>>().join("\n")
        }
    }
}
