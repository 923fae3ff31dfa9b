//! What a user writes: a class, a pool, a deployment.

use serde_json::{Value, json};

/// Selects by the discovery tag, with the newest Amazon Linux 2023 and the cluster's node role.
pub(crate) fn node_class(cluster: &str) -> Value {
    let by_tag = json!([{"tags": {"karpenter.sh/discovery": cluster}}]);
    json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {
            "role": format!("KarpenterNodeRole-{cluster}"),
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": by_tag, "securityGroupSelectorTerms": by_tag,
        },
    })
}

/// Linux on amd64, of these capacity types; empty nodes go at once.
pub(crate) fn node_pool(name: &str, capacity_types: &[&str]) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
        "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [
                    {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": capacity_types},
                    {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
                    {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"]},
                ],
                "expireAfter": "Never",
            }},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]},
        },
    })
}

/// Pods of one CPU on a pool's nodes. `apart` puts each on a node of its own, also away from other deployments that want it.
pub(crate) fn deployment(name: &str, pool: &str, replicas: usize, apart: bool) -> Value {
    let mut spec = json!({
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {"karpenter.sh/nodepool": pool},
        "containers": [{
            "name": "inflate", "image": "public.ecr.aws/eks-distro/kubernetes/pause:3.7",
            "resources": {"requests": {"cpu": "1"}},
        }],
    });
    if apart {
        spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "labelSelector": {"matchLabels": {"apart": "yes"}}, "topologyKey": "kubernetes.io/hostname",
        }]}});
    }
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name, "apart": if apart { "yes" } else { "no" }}}, "spec": spec},
        },
    })
}

/// What EventBridge puts into the queue two minutes before a spot machine goes.
pub(crate) fn spot_interruption(instance: &str, id: &str) -> String {
    json!({
        "version": "0", "id": id, "detail-type": "EC2 Spot Instance Interruption Warning", "source": "aws.ec2",
        "account": "123456789012", "time": "2026-01-01T00:00:00Z", "region": "us-west-2",
        "resources": [format!("arn:aws:ec2:us-west-2a:instance/{instance}")],
        "detail": {"instance-id": instance, "instance-action": "terminate"},
    })
    .to_string()
}
