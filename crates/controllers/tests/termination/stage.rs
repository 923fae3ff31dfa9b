//! Nodes, claims and pods for a drain, and a cloud that does as it is told.

use kerf_cloud::{
    Answer, ClassStatus, CloudError, CloudProvider, Instance, InstanceRef, LaunchOrder, NodeClassKind, RepairPolicy,
    TypesAsk,
};
use kerf_controllers::Duty;
use kerf_controllers::termination::{EvictionQueue, NodeTermination};
use kerf_model::{CapacityType, InstanceType, Money, Text, TypeName};
use kerf_simulation::{Rehearsal, Setup};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, Mutex};

/// The machines of a cloud, and how often each was asked to end. One that was asked ends at the second asking.
#[derive(Clone, Default)]
pub(crate) struct Machines(Arc<Mutex<BTreeMap<Text, usize>>>);

/// Of a machine about which the cloud says nothing.
const HUSHED: usize = usize::MAX;

impl Machines {
    pub(crate) fn add(&self, node: &str) {
        self.0.lock().unwrap().insert(provider_id(node).into(), 0);
    }

    /// Whoever asks for it hears nothing.
    pub(crate) fn hush(&self, node: &str) {
        self.0.lock().unwrap().insert(provider_id(node).into(), HUSHED);
    }

    /// It is gone, and nobody here knows.
    pub(crate) fn lose(&self, node: &str) {
        self.0.lock().unwrap().remove(&*provider_id(node));
    }

    pub(crate) fn is_there(&self, node: &str) -> bool {
        self.0.lock().unwrap().contains_key(&*provider_id(node))
    }

    /// Nobody has asked for its end.
    pub(crate) fn is_untouched(&self, node: &str) -> bool {
        self.0.lock().unwrap().get(&*provider_id(node)) == Some(&0)
    }
}

impl CloudProvider for Machines {
    fn name(&self) -> &'static str {
        "kwok"
    }

    fn node_classes(&self) -> Vec<NodeClassKind> {
        vec![kerf_cloud_sim::kwok::NODE_CLASS]
    }

    fn well_known_labels(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn instance_types(&self, _: &TypesAsk<'_>) -> Result<Arc<[Arc<InstanceType>]>, CloudError> {
        Ok(Arc::new([]))
    }

    fn price(&self, _: &TypeName, _: Option<&Text>, _: CapacityType) -> Option<Money> {
        None
    }

    fn launch(&self, _: Arc<LaunchOrder>) -> Answer<Instance> {
        Box::pin(ready(Err(CloudError::Unsupported { what: "launching".into() })))
    }

    fn terminate(&self, instance: InstanceRef) -> Answer<()> {
        let mut machines = self.0.lock().unwrap();
        let answer = match machines.get_mut(&instance.provider_id) {
            Some(0) => {
                machines.insert(instance.provider_id, 1);
                Ok(())
            }
            Some(_) => {
                machines.remove(&instance.provider_id);
                Err(CloudError::NotFound { what: instance.provider_id })
            }
            None => Err(CloudError::NotFound { what: instance.provider_id }),
        };
        Box::pin(ready(answer))
    }

    fn get(&self, provider_id: Text) -> Answer<Instance> {
        let answer = match self.0.lock().unwrap().get(&provider_id) {
            Some(&HUSHED) => return Box::pin(std::future::pending()),
            Some(_) => Ok(Instance { provider_id, ..Instance::default() }),
            None => Err(CloudError::NotFound { what: provider_id }),
        };
        Box::pin(ready(answer))
    }

    fn list(&self) -> Answer<Vec<Instance>> {
        Box::pin(ready(Ok(Vec::new())))
    }

    fn reboot(&self, _: InstanceRef, _: Text) -> Answer<()> {
        Box::pin(ready(Err(CloudError::Unsupported { what: "rebooting".into() })))
    }

    fn resolve_class(&self, _: Arc<Value>) -> Answer<ClassStatus> {
        Box::pin(ready(Ok(ClassStatus::default())))
    }

    fn drift(&self, _: InstanceRef, _: Arc<Value>) -> Answer<Option<Text>> {
        Box::pin(ready(Ok(None)))
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        Vec::new()
    }
}

pub(crate) fn provider_id(node: &str) -> String {
    format!("kwok://{node}")
}

pub(crate) fn duties() -> Vec<Box<dyn Duty>> {
    vec![Box::new(NodeTermination::default()), Box::new(EvictionQueue::default())]
}

/// A cluster with these nodes of ours, each with its claim and its machine.
pub(crate) fn stage(nodes: &[&str]) -> (Rehearsal, Machines) {
    let machines = Machines::default();
    let cloud = machines.clone();
    let setup = Setup::default().with_duties(duties).with_cloud(move |_| Arc::new(cloud.clone()));
    let mut rehearsal = Rehearsal::new(setup);
    for name in nodes {
        add_node(&mut rehearsal, &machines, name);
    }
    (rehearsal, machines)
}

pub(crate) fn add_node(rehearsal: &mut Rehearsal, machines: &Machines, name: &str) {
    machines.add(name);
    rehearsal.create_value(&node(name));
    rehearsal.create_value(&claim(name));
    let status = json!({"status": {"providerID": provider_id(name), "nodeName": name}});
    rehearsal.patch(&format!("{}/status", claim_path(name)), &status);
    rehearsal.run_until("the node is ready", 10, |rehearsal| {
        let node = rehearsal.get(&node_path(name)).unwrap_or_default();
        node["status"]["conditions"].to_string().contains("KubeletReady")
    });
}

/// A node of ours, with a kubelet of the rehearsal.
pub(crate) fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "finalizers": ["karpenter.sh/termination"],
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                "karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
                "karpenter.sh/capacity-type": "spot", "karpenter.kwok.sh/kwoknodeclass": "default",
                "topology.kubernetes.io/zone": "zone-a", "kubernetes.io/hostname": name,
            },
        },
        "spec": {"providerID": provider_id(name)},
        "status": {"allocatable": {"cpu": "100", "memory": "100Gi", "pods": "500"}},
    })
}

pub(crate) fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {
            "name": name, "finalizers": ["karpenter.sh/termination"], "labels": {"karpenter.sh/nodepool": "default"},
        },
        "spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
        },
    })
}

pub(crate) fn node_path(name: &str) -> String {
    format!("/api/v1/nodes/{name}")
}

pub(crate) fn claim_path(name: &str) -> String {
    format!("/apis/karpenter.sh/v1/nodeclaims/{name}")
}

pub(crate) fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{name}")
}

/// A pod that runs on a node; `change` is merged into it.
pub(crate) fn run_pod(rehearsal: &mut Rehearsal, name: &str, node: &str, change: &Value) {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "main", "image": "web"}],
        },
    });
    merge(&mut pod, change);
    rehearsal.create_value(&pod);
    rehearsal.run_until("the pod runs", 30, |rehearsal| is_running(rehearsal, name));
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// A change of a pod: annotations.
pub(crate) fn annotated(key: &str, value: &str) -> Value {
    json!({"metadata": {"annotations": {key: value}}})
}

/// Running, and nobody has asked it to stop.
pub(crate) fn is_running(rehearsal: &Rehearsal, name: &str) -> bool {
    let pod = rehearsal.get(&pod_path(name)).unwrap_or_default();
    pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
}

pub(crate) fn is_leaving(rehearsal: &Rehearsal, name: &str) -> bool {
    rehearsal.get(&pod_path(name)).is_some_and(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
}

pub(crate) fn is_gone(rehearsal: &Rehearsal, path: &str) -> bool {
    rehearsal.get(path).is_none()
}

pub(crate) fn is_tainted(rehearsal: &Rehearsal, node: &str) -> bool {
    let node = rehearsal.get(&node_path(node)).unwrap_or_default();
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.iter().any(|taint| taint["key"] == "karpenter.sh/disrupted" && taint["effect"] == "NoSchedule")
}

/// A claim's condition as `status reason`.
pub(crate) fn condition(rehearsal: &Rehearsal, claim: &str, kind: &str) -> String {
    let claim = rehearsal.get(&claim_path(claim)).unwrap_or_default();
    let conditions = claim["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let condition = conditions.iter().find(|condition| condition["type"] == kind);
    condition.map_or_else(String::new, |condition| {
        format!("{} {}", condition["status"].as_str().unwrap(), condition["reason"].as_str().unwrap())
    })
}

/// The user deletes the claim, which has so many seconds: its own duty writes down when that ends and deletes the Node.
pub(crate) fn delete_claim_within(rehearsal: &mut Rehearsal, name: &str, seconds: i64) {
    rehearsal.delete(&claim_path(name));
    let end = rehearsal.now() + jiff::SignedDuration::from_secs(seconds);
    let annotation = json!({"karpenter.sh/nodeclaim-termination-timestamp": end.to_string()});
    rehearsal.patch(&claim_path(name), &json!({"metadata": {"annotations": annotation}}));
    rehearsal.delete(&node_path(name));
}

/// The value of a series of the operator's metrics page; 0 when there is none.
pub(crate) fn metric(rehearsal: &Rehearsal, series: &str) -> f64 {
    let page = rehearsal.operator().metrics().render();
    let value = page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
    value.unwrap_or(0.0)
}

pub(crate) fn budget(name: &str, min_available: i64) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": "web"}}},
    })
}
