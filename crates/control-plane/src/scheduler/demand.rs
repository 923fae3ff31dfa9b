//! How much a pod asks for: containers together, init containers one after another, sidecars throughout, pod-level
//! requests instead of the containers' sum, and overhead on top.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodSpec, PodStatus};

use super::quantity::{Amounts, Resources, add, amounts, milli, parse, raise, whole};

/// What a container that asks for nothing is counted as when nodes are scored.
const UNASKED_CPU: &str = "100m";
const UNASKED_MEMORY: &str = "200Mi";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// What must fit on a node before the pod runs there.
    pub(crate) asked: Resources,
    /// What it holds on its node: during a resize the larger of what was given and what is wanted.
    pub(crate) held: Resources,
    /// For scores: containers that ask for nothing count as something.
    pub(crate) scored_cpu_milli: i64,
    pub(crate) scored_memory_bytes: i64,
}

pub(crate) fn of(spec: &PodSpec, status: &PodStatus) -> Demand {
    let asked = total(spec, None, &Amounts::new());
    let held = total(spec, Some(status), &Amounts::new());
    let has_pod_level = pod_level(spec).next().is_some();
    let mut unasked = Amounts::new();
    for (name, amount) in [("cpu", UNASKED_CPU), ("memory", UNASKED_MEMORY)] {
        if !has_pod_level || !held.contains_key(name) {
            unasked.insert(name.to_owned(), parse(amount));
        }
    }
    let scored = total(spec, Some(status), &unasked);
    Demand {
        asked: Resources::of(&asked),
        held: Resources::of(&held),
        scored_cpu_milli: milli(scored.get("cpu").copied().unwrap_or(0)),
        scored_memory_bytes: whole(scored.get("memory").copied().unwrap_or(0)),
    }
}

fn total(spec: &PodSpec, status: Option<&PodStatus>, unasked: &Amounts) -> Amounts {
    let is_infeasible = status.is_some_and(is_resize_infeasible);
    let of = |container: &Container| {
        let mut asked = amounts(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
        if let Some(given) = status.and_then(|status| container_status(status, &container.name))
            && let Some(resources) = &given.resources
        {
            let mut held = if is_infeasible { Amounts::new() } else { asked };
            raise(&mut held, &amounts(resources.requests.as_ref()));
            raise(&mut held, &amounts(given.allocated_resources.as_ref()));
            asked = held;
        }
        for (name, amount) in unasked {
            asked.entry(name.clone()).or_insert(*amount);
        }
        asked
    };

    let mut sum = Amounts::new();
    for container in &spec.containers {
        add(&mut sum, &of(container));
    }
    let (mut sidecars, mut startup_peak) = (Amounts::new(), Amounts::new());
    for container in spec.init_containers.iter().flatten() {
        let asked = of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut sum, &asked);
            add(&mut sidecars, &asked);
            raise(&mut startup_peak, &sidecars);
        } else {
            let mut alone = asked;
            add(&mut alone, &sidecars);
            raise(&mut startup_peak, &alone);
        }
    }
    raise(&mut sum, &startup_peak);
    for (name, amount) in pod_level(spec) {
        sum.insert(name, amount);
    }
    add(&mut sum, &amounts(spec.overhead.as_ref()));
    sum
}

/// The requests of the pod as a whole. Only cpu, memory and huge pages may be asked for so.
fn pod_level(spec: &PodSpec) -> impl Iterator<Item = (String, i128)> {
    amounts(spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()))
        .into_iter()
        .filter(|(name, _)| name == "cpu" || name == "memory" || name.starts_with("hugepages-"))
}

fn is_resize_infeasible(status: &PodStatus) -> bool {
    status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == "PodResizePending" && condition.reason.as_deref() == Some("Infeasible"))
}

fn container_status<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    let all = status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
    all.into_iter().find(|status| status.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn demand(spec: Value) -> Demand {
        of(&serde_json::from_value(spec).unwrap(), &PodStatus::default())
    }

    fn container(name: &str, cpu: &str) -> Value {
        json!({"name": name, "resources": {"requests": {"cpu": cpu}}})
    }

    fn sidecar(name: &str, cpu: &str) -> Value {
        json!({"name": name, "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn a_pod_asks_for_the_most_it_needs_at_any_time() {
        for (spec, cpu_milli, scored) in [
            (json!({"containers": [{"name": "a"}]}), 0, 100),
            (json!({"containers": [container("a", "1"), container("b", "500m")]}), 1500, 1500),
            (json!({"containers": [container("a", "1")], "initContainers": [container("i", "3")]}), 3000, 3000),
            (
                json!({"containers": [container("a", "1")], "initContainers": [sidecar("s", "1"), container("i", "3")]}),
                4000,
                4000,
            ),
            (
                json!({"containers": [container("a", "1")], "initContainers": [container("i", "3"), sidecar("s", "1")]}),
                3000,
                3000,
            ),
            (json!({"containers": [container("a", "3")], "initContainers": [sidecar("s", "1")]}), 4000, 4000),
            (json!({"containers": [container("a", "1")], "overhead": {"cpu": "250m"}}), 1250, 1250),
            (json!({"containers": [container("a", "1")], "resources": {"requests": {"cpu": "5"}}}), 5000, 5000),
            (json!({"containers": [{"name": "a"}], "resources": {"requests": {"memory": "1Gi"}}}), 0, 100),
        ] {
            let demand = demand(spec.clone());
            assert_eq!((demand.asked.cpu_milli, demand.scored_cpu_milli), (cpu_milli, scored), "{spec}");
        }
    }

    #[test]
    fn a_resize_holds_the_larger_until_it_is_done() {
        let spec = serde_json::from_value(json!({"containers": [container("a", "1")]})).unwrap();
        let status = |conditions: Value| {
            serde_json::from_value(json!({"conditions": conditions, "containerStatuses": [{"name": "a", "image": "a",
                "imageID": "", "ready": true, "restartCount": 0, "resources": {"requests": {"cpu": "500m"}},
                "allocatedResources": {"cpu": "700m"}}]}))
            .unwrap()
        };
        assert_eq!(of(&spec, &status(json!([]))).held.cpu_milli, 1000);
        let infeasible = json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
        assert_eq!(of(&spec, &status(infeasible)).held.cpu_milli, 700);
    }
}
