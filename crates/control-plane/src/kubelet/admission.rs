//! May this pod run here? A kubelet asks once more what the scheduler has asked, and refuses what was bound past it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Taint};

use super::amount::Amounts;
use super::selector::{pod_matches_node, tolerates};

/// What a kubelet knows of its node when a pod comes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room {
    pub(crate) name: Arc<str>,
    pub(crate) labels: Arc<BTreeMap<String, String>>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) allocatable: Arc<Amounts>,
    pub(crate) used: Amounts,
    pub(crate) n_pods: i64,
    pub(crate) ports: BTreeSet<Port>,
}

/// A port of the host: address, protocol, number.
pub(crate) type Port = (String, String, i32);

/// Why not: the pod's reason and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Flow: the operating system, then resources, node affinity, host ports and taints; the first that fails is told.
pub(crate) fn admit(pod: &Pod, requests: &Amounts, room: &Room) -> Result<(), Refused> {
    const OS: &str = "kubernetes.io/os";
    let os = room.labels.get(OS).map_or("linux", String::as_str);
    if pod.metadata.labels.as_ref().and_then(|labels| labels.get(OS)).is_some_and(|wanted| wanted != os) {
        return refuse(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        );
    }
    if pod.spec.as_ref().and_then(|spec| spec.os.as_ref()).is_some_and(|wanted| wanted.name != os) {
        return refuse("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS");
    }
    fits(requests, room)?;
    if !pod_matches_node(pod, &room.name, &room.labels) {
        return predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");
    }
    if host_ports(pod).iter().any(|port| room.ports.iter().any(|taken| collide(port, taken))) {
        return predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports");
    }
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let is_tolerated = |taint: &Taint| tolerations.iter().any(|toleration| tolerates(toleration, taint));
    if room.taints.iter().any(|taint| taint.effect == "NoExecute" && !is_tolerated(taint)) {
        return predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate");
    }
    Ok(())
}

pub(crate) fn host_ports(pod: &Pod) -> Vec<Port> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let sidecars =
        spec.init_containers.iter().flatten().filter(|container| container.restart_policy.as_deref() == Some("Always"));
    sidecars
        .chain(&spec.containers)
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number > 0)?;
            let address = port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned());
            Some((address, port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()), number))
        })
        .collect()
}

fn fits(requests: &Amounts, room: &Room) -> Result<(), Refused> {
    let room_for_pods = room.allocatable.get("pods").copied().unwrap_or(0);
    if room.n_pods >= room_for_pods {
        return out_of("pods", 1, room.n_pods, room_for_pods);
    }
    // The order in which the real check looks at them; the others follow by name.
    const FIRST: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
    let others = requests.keys().map(String::as_str).filter(|resource| !FIRST.contains(resource));
    for resource in FIRST.into_iter().chain(others) {
        let requested = requests.get(resource).copied().unwrap_or(0);
        let capacity = room.allocatable.get(resource).copied();
        // A resource that the node has never heard of is the cluster's business, not the kubelet's.
        if requested <= 0 || (capacity.is_none() && is_extended(resource)) {
            continue;
        }
        let capacity = capacity.unwrap_or(0);
        let used = room.used.get(resource).copied().unwrap_or(0);
        if requested > capacity.saturating_sub(used) {
            return out_of(resource, requested, used, capacity);
        }
    }
    Ok(())
}

fn is_extended(resource: &str) -> bool {
    resource.contains('/') && !resource.contains("kubernetes.io/")
}

fn collide(one: &Port, other: &Port) -> bool {
    let everywhere = "0.0.0.0";
    one.1 == other.1 && one.2 == other.2 && (one.0 == other.0 || one.0 == everywhere || other.0 == everywhere)
}

fn out_of(resource: &str, requested: i64, used: i64, capacity: i64) -> Result<(), Refused> {
    refuse(
        &format!("OutOf{resource}"),
        &format!(
            "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        ),
    )
}

fn predicate(name: &str, why: &str) -> Result<(), Refused> {
    refuse(name, &format!("Predicate {name} failed: {why}"))
}

fn refuse(reason: &str, message: &str) -> Result<(), Refused> {
    Err(Refused { reason: reason.to_owned(), message: message.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::super::amount::pod_requests;
    use super::*;
    use serde_json::json;

    #[test]
    fn what_does_not_fit_is_refused_with_the_numbers() {
        let amounts = |list: &[(&str, i64)]| list.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect::<Amounts>();
        let room = Room {
            name: "n".into(),
            labels: Arc::new(BTreeMap::from([("zone".to_owned(), "a".to_owned())])),
            taints: vec![
                Taint { key: "soft".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() },
                Taint { key: "hard".to_owned(), effect: "NoExecute".to_owned(), ..Taint::default() },
            ],
            allocatable: Arc::new(amounts(&[("cpu", 2000), ("memory", 1 << 30), ("pods", 3), ("example.com/gpu", 1)])),
            used: amounts(&[("cpu", 1500), ("example.com/gpu", 1)]),
            n_pods: 2,
            ports: BTreeSet::from([("0.0.0.0".to_owned(), "TCP".to_owned(), 80)]),
        };
        let full = Room { n_pods: 3, ..room.clone() };
        let tolerations = json!([{"operator": "Exists"}]);
        let asks = |name: &str, quantity: &str| json!({"tolerations": tolerations, "containers": [{"name": "c", "resources": {"requests": {name: quantity}}}]});
        let cases = [
            (&room, asks("cpu", "500m"), ""),
            (
                &room,
                asks("cpu", "501m"),
                "OutOfcpu: Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000",
            ),
            (
                &room,
                asks("memory", "2Gi"),
                "OutOfmemory: Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824",
            ),
            (
                &room,
                asks("example.com/gpu", "1"),
                "OutOfexample.com/gpu: Node didn't have enough resource: example.com/gpu, requested: 1, used: 1, capacity: 1",
            ),
            (&room, asks("example.com/unheard-of", "1"), ""),
            (
                &full,
                asks("cpu", "1m"),
                "OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3",
            ),
            (
                &room,
                json!({"tolerations": tolerations, "nodeSelector": {"zone": "b"}, "containers": []}),
                "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
            ),
            (
                &room,
                json!({"tolerations": tolerations, "containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.1"}]}]}),
                "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
            ),
            (
                &room,
                json!({"containers": []}),
                "TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
            ),
            (
                &room,
                json!({"os": {"name": "windows"}, "containers": []}),
                "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS",
            ),
        ];
        for (room, spec, expected) in cases {
            let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
            let told = match admit(&pod, &pod_requests(&pod), room) {
                Ok(()) => String::new(),
                Err(refused) => format!("{}: {}", refused.reason, refused.message),
            };
            assert_eq!(told, expected, "{spec}");
        }
    }
}
