//! What most tests need: a pool, a deployment, and questions about what became of them.

use serde_json::{Value, json};

use crate::stage::{NODE_CLAIMS, NODE_POOLS, NODES, Stage};

pub(crate) const POOL_LABEL: &str = "karpenter.sh/nodepool";
pub(crate) const DISRUPTED: &str = "karpenter.sh/disrupted";
const IMAGE: &str = "public.ecr.aws/eks-distro/kubernetes/pause:3.7";

impl Stage<'_> {
    /// The test's pool as it would be created: on demand, Linux, amd64, below 32 CPUs, never consolidated.
    pub(crate) fn pool_manifest(&self) -> Value {
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": self.namespace},
            "spec": {
                "template": {"spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "requirements": [
                        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                        {"key": "karpenter.kwok.sh/instance-size", "operator": "Lt", "values": ["32"]},
                    ],
                    "expireAfter": "Never",
                }},
                "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]},
            },
        })
    }

    /// Creates the pool and waits until it is ready.
    #[track_caller]
    pub(crate) fn add_pool(&self, change: impl FnOnce(&mut Value)) {
        let mut pool = self.pool_manifest();
        change(&mut pool);
        self.create(NODE_POOLS, &pool);
        self.wait_for("the pool to be ready", || is_true(&self.pool(), "Ready"));
    }

    #[track_caller]
    pub(crate) fn pool(&self) -> Value {
        self.read(&self.pool_path())
    }

    pub(crate) fn pool_path(&self) -> String {
        format!("{NODE_POOLS}/{}", self.namespace)
    }

    /// A pod's spec that asks for so much CPU on the test's pool.
    pub(crate) fn pod_spec(&self, cpu: &str) -> Value {
        json!({
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {POOL_LABEL: self.namespace},
            "containers": [{"name": "inflate", "image": IMAGE, "resources": {"requests": {"cpu": cpu}}}],
        })
    }

    /// Creates a deployment of pods of one CPU; `change` edits the template.
    #[track_caller]
    pub(crate) fn add_deployment(&self, name: &str, replicas: usize, change: impl FnOnce(&mut Value)) {
        let mut template = json!({"metadata": {"labels": {"app": name}}, "spec": self.pod_spec("1")});
        change(&mut template);
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
        });
        self.create(&self.at("apps/v1", "deployments"), &deployment);
    }

    /// Creates a DaemonSet for the test's pool; `change` edits the template.
    #[track_caller]
    pub(crate) fn add_daemon(&self, name: &str, cpu: &str, change: impl FnOnce(&mut Value)) {
        let mut template = json!({"metadata": {"labels": {"app": name}}, "spec": self.pod_spec(cpu)});
        change(&mut template);
        let daemon = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
        });
        self.create(&self.at("apps/v1", "daemonsets"), &daemon);
    }

    /// The pods with this label `app`.
    #[track_caller]
    pub(crate) fn pods(&self, app: &str) -> Vec<Value> {
        self.list(&format!("{}?labelSelector=app={app}", self.at("v1", "pods")))
    }

    #[track_caller]
    pub(crate) fn n_running(&self, app: &str) -> usize {
        self.pods(app).iter().filter(|pod| pod["status"]["phase"] == "Running").count()
    }

    #[track_caller]
    pub(crate) fn wait_until_running(&self, app: &str, n: usize) {
        self.wait_for(&format!("{n} pods of {app} to run"), || self.n_running(app) == n);
    }

    /// The nodes of the test's pool.
    #[track_caller]
    pub(crate) fn nodes(&self) -> Vec<Value> {
        self.list(&format!("{NODES}?labelSelector={POOL_LABEL}={}", self.namespace))
    }

    /// The claims of the test's pool.
    #[track_caller]
    pub(crate) fn claims(&self) -> Vec<Value> {
        self.list(&format!("{NODE_CLAIMS}?labelSelector={POOL_LABEL}={}", self.namespace))
    }

    /// Claims of the pool that are ready.
    #[track_caller]
    pub(crate) fn n_ready_claims(&self) -> usize {
        self.claims().iter().filter(|claim| is_true(claim, "Ready")).count()
    }

    #[track_caller]
    pub(crate) fn wait_until_no_node_is_left(&self) {
        self.wait_for("the pool's nodes and claims to go", || self.nodes().is_empty() && self.claims().is_empty());
    }

    /// The one node that the pods of `app` run on.
    #[track_caller]
    pub(crate) fn only_node_of(&self, app: &str) -> String {
        let mut nodes: Vec<String> = self.pods(app).iter().map(|pod| text(&pod["spec"]["nodeName"])).collect();
        nodes.sort();
        nodes.dedup();
        assert_eq!(nodes.len(), 1, "the nodes of {app}: {nodes:?}");
        nodes.remove(0)
    }

    /// The messages of the operator's events with this reason about an object of the namespace.
    #[track_caller]
    pub(crate) fn our_events(&self, reason: &str) -> Vec<String> {
        let events = self.list(&self.at("v1", "events"));
        let is_ours = |event: &&Value| {
            event["reason"] == reason
                && (event["source"]["component"] == "karpenter" || event["reportingComponent"] == "karpenter")
        };
        events.iter().filter(is_ours).map(|event| text(&event["message"])).collect()
    }
}

pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

pub(crate) fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind)["status"] == "True"
}

pub(crate) fn is_going(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

pub(crate) fn has_taint(node: &Value, key: &str) -> bool {
    node["spec"]["taints"].as_array().into_iter().flatten().any(|taint| taint["key"] == key)
}

pub(crate) fn name(object: &Value) -> String {
    text(&object["metadata"]["name"])
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
