//! What a pod requests as a whole.
//!
//! ```text
//! max( containers + sidecars , each init container + the sidecars started before it ) → pod-level figures → + overhead
//! ```

use crate::read::Reader;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodSpec, PodStatus, ResourceRequirements};
use kerf_model::{Quantity, Resources, resources, shared_text};
use std::fmt::Display;

/// Amounts that a namespace gives to containers that do not say (from LimitRanges).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ContainerDefaults {
    pub(crate) limits: Resources,
    pub(crate) requests: Resources,
}

/// The requests of a pod, `pods: 1` included. With a status, a resize in progress counts with the larger of what is
/// asked and what is allocated; one that cannot be done counts with what is allocated.
pub(crate) fn of_pod(
    reader: &mut Reader,
    field: &str,
    spec: &PodSpec,
    status: Option<&PodStatus>,
    defaults: &ContainerDefaults,
) -> Resources {
    let cannot_resize = status.is_some_and(resize_is_infeasible);
    let mut statuses = Vec::new();
    if let Some(status) = status {
        statuses.extend(status.container_statuses.iter().flatten());
        statuses.extend(status.init_container_statuses.iter().flatten());
    }
    let mut of_container = |list: &str, position: usize, container: &Container, is_running: bool| {
        let field = format_args!("{field}.{list}[{position}].resources");
        let requests = of_container(reader, field, container.resources.as_ref(), defaults);
        let status = statuses.iter().find(|status| status.name == container.name);
        match status {
            Some(status) if is_running => with_status(reader, requests, status, cannot_resize),
            _ => requests,
        }
    };

    let mut total = Resources::new();
    for (position, container) in spec.containers.iter().enumerate() {
        total.add(&of_container("containers", position, container, true));
    }
    let mut sidecars = Resources::new();
    let mut starting = Resources::new();
    for (position, container) in spec.init_containers.iter().flatten().enumerate() {
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        let mut requests = of_container("initContainers", position, container, is_sidecar);
        if is_sidecar {
            total.add(&requests);
            sidecars.add(&requests);
            starting.raise_to(&sidecars);
        } else {
            requests.add(&sidecars);
            starting.raise_to(&requests);
        }
    }
    total.raise_to(&starting);

    if let Some(of_pod) = &spec.resources {
        override_by_pod_level(reader, &format!("{field}.resources"), of_pod, &mut total);
    }
    total.add(&reader.resources(format_args!("{field}.overhead"), spec.overhead.as_ref()));
    total.0.retain(|_, amount| !amount.is_zero());
    total.set(resources::PODS, Quantity::from_units(1));
    total
}

/// The limits of a pod: the sum of its containers and sidecars, or its largest init container, or what is said of the pod as a
/// whole. What cannot be read is left out; [`of_pod`] has noted it.
pub(crate) fn limits_of_pod(spec: &PodSpec) -> Resources {
    let reader = &mut Reader::new(&shared_text(""), shared_text(""));
    let mut of = |written: Option<&ResourceRequirements>| {
        reader.resources("limits", written.and_then(|written| written.limits.as_ref()))
    };
    let mut total = Resources::new();
    for container in &spec.containers {
        total.add(&of(container.resources.as_ref()));
    }
    let mut starting = Resources::new();
    let mut sidecars = Resources::new();
    for container in spec.init_containers.iter().flatten() {
        let mut limits = of(container.resources.as_ref());
        if container.restart_policy.as_deref() == Some("Always") {
            total.add(&limits);
            sidecars.add(&limits);
            starting.raise_to(&sidecars);
        } else {
            limits.add(&sidecars);
            starting.raise_to(&limits);
        }
    }
    total.raise_to(&starting);
    for (name, amount) in of(spec.resources.as_ref()).iter() {
        total.set(name, amount);
    }
    total
}

/// Requests of one container. A limit without a request is a request, then the namespace's defaults fill what is left.
fn of_container(
    reader: &mut Reader,
    field: impl Display,
    written: Option<&ResourceRequirements>,
    defaults: &ContainerDefaults,
) -> Resources {
    let limits = reader.resources(format_args!("{field}.limits"), written.and_then(|w| w.limits.as_ref()));
    let requests = reader.resources(format_args!("{field}.requests"), written.and_then(|w| w.requests.as_ref()));
    let mut out = requests;
    for (name, amount) in limits.iter().chain(defaults.requests.iter()).chain(defaults.limits.iter()) {
        if !out.0.contains_key(name) {
            out.set(name, amount);
        }
    }
    out
}

fn with_status(reader: &mut Reader, requests: Resources, status: &ContainerStatus, cannot_resize: bool) -> Resources {
    let Some(actual) = &status.resources else {
        return requests;
    };
    let mut out = reader.resources("status.containerStatuses.resources.requests", actual.requests.as_ref());
    out.raise_to(&reader.resources("status.containerStatuses.allocatedResources", status.allocated_resources.as_ref()));
    if !cannot_resize {
        out.raise_to(&requests);
    }
    out
}

fn resize_is_infeasible(status: &PodStatus) -> bool {
    status.resize.as_deref() == Some("Infeasible")
        || status
            .conditions
            .iter()
            .flatten()
            .any(|condition| condition.type_ == "PodResizePending" && condition.reason.as_deref() == Some("Infeasible"))
}

/// Pod-level figures replace the sum of the containers, for the resources that may be given there. A pod-level limit
/// stands in for a request only where no container says anything.
fn override_by_pod_level(reader: &mut Reader, field: &str, written: &ResourceRequirements, total: &mut Resources) {
    let supported = |name: &str| matches!(name, resources::CPU | resources::MEMORY) || name.starts_with("hugepages-");
    let requests = reader.resources(format_args!("{field}.requests"), written.requests.as_ref());
    let limits = reader.resources(format_args!("{field}.limits"), written.limits.as_ref());
    for (name, amount) in limits.iter() {
        if supported(name) && total.get(name).is_zero() {
            total.set(name, amount);
        }
    }
    for (name, amount) in requests.iter() {
        if supported(name) {
            total.set(name, amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    fn requests(yaml: &str) -> String {
        let value: serde_json::Value = serde_norway::from_str(yaml).unwrap();
        let pod: Pod = serde_json::from_value(value).unwrap();
        let mut reader = Reader::new(&"f".into(), "o");
        let spec = pod.spec.unwrap();
        let out = of_pod(&mut reader, "spec", &spec, pod.status.as_ref(), &ContainerDefaults::default());
        assert_eq!(reader.notes, []);
        out.to_string()
    }

    #[test]
    fn requests_add_up_as_kubernetes_adds_them() {
        for (story, yaml, expected) in [
            ("nothing asked", "spec: {containers: [{name: a}]}", "pods 1"),
            (
                "containers add up",
                "spec: {containers: [{name: a, resources: {requests: {cpu: 100m}}}, {name: b, resources: {requests: {cpu: '1', memory: 1Gi}}}]}",
                "cpu 1100m, memory 1Gi, pods 1",
            ),
            (
                "a large init container counts alone",
                "spec: {containers: [{name: a, resources: {requests: {cpu: '1'}}}], initContainers: [{name: i, resources: {requests: {cpu: '3'}}}, {name: j, resources: {requests: {cpu: '2'}}}]}",
                "cpu 3, pods 1",
            ),
            (
                "sidecars run beside containers and later init containers",
                "spec: {containers: [{name: a, resources: {requests: {cpu: '1'}}}], initContainers: [{name: i, resources: {requests: {cpu: '2'}}}, {name: s, restartPolicy: Always, resources: {requests: {cpu: '1'}}}, {name: j, resources: {requests: {cpu: '2'}}}]}",
                "cpu 3, pods 1",
            ),
            (
                "overhead comes on top",
                "spec: {overhead: {cpu: 250m}, containers: [{name: a, resources: {requests: {cpu: '1'}}}]}",
                "cpu 1250m, pods 1",
            ),
            (
                "pod-level figures replace the sum for what they name",
                "spec: {resources: {requests: {cpu: '2', ephemeral-storage: 1Gi}}, containers: [{name: a, resources: {requests: {cpu: '1', memory: 1Gi}}}]}",
                "cpu 2, memory 1Gi, pods 1",
            ),
            (
                "limits stand in for requests",
                "spec: {containers: [{name: a, resources: {limits: {cpu: '1', nvidia.com/gpu: '1'}, requests: {cpu: 100m}}}]}",
                "cpu 100m, nvidia.com/gpu 1, pods 1",
            ),
            (
                "a resize in progress counts with the larger figure",
                "{spec: {containers: [{name: a, resources: {requests: {cpu: '1'}}}]}, status: {containerStatuses: [{name: a, allocatedResources: {cpu: '2'}, resources: {requests: {cpu: 1500m}}}]}}",
                "cpu 2, pods 1",
            ),
            (
                "a resize that cannot be done counts with what is allocated",
                "{spec: {containers: [{name: a, resources: {requests: {cpu: '9'}}}]}, status: {conditions: [{type: PodResizePending, status: 'True', reason: Infeasible}], containerStatuses: [{name: a, allocatedResources: {cpu: '2'}, resources: {requests: {cpu: '2'}}}]}}",
                "cpu 2, pods 1",
            ),
        ] {
            assert_eq!(requests(yaml), expected, "{story}");
        }
    }

    #[test]
    fn limits_add_up_like_requests_and_are_never_invented() {
        let limits = |yaml: &str| {
            let value: serde_json::Value = serde_norway::from_str(yaml).unwrap();
            limits_of_pod(&serde_json::from_value(value).unwrap()).to_string()
        };
        let two =
            "containers: [{name: a, resources: {limits: {cpu: '1'}}}, {name: b, resources: {requests: {cpu: '1'}}}]";
        assert_eq!(limits(two), "cpu 1");
        let starting =
            format!("{two}\ninitContainers: [{{name: i, resources: {{limits: {{cpu: '3', memory: 1Gi}}}}}}]");
        assert_eq!(limits(&starting), "cpu 3, memory 1Gi");
        assert_eq!(limits(&format!("{two}\nresources: {{limits: {{cpu: '2'}}}}")), "cpu 2");
    }

    #[test]
    fn the_namespace_fills_in_what_a_container_does_not_say() {
        let spec: PodSpec = serde_json::from_value(serde_json::json!({
            "containers": [{"name": "a"}, {"name": "b", "resources": {"requests": {"cpu": "1"}}}]
        }))
        .unwrap();
        let defaults = ContainerDefaults {
            limits: Resources::new().with("cpu", Quantity::from_units(2)).with("memory", Quantity::from_units(8)),
            requests: Resources::new().with("cpu", Quantity::from_milli(500)),
        };
        let out = of_pod(&mut Reader::new(&"f".into(), "o"), "spec", &spec, None, &defaults);
        assert_eq!(out.to_string(), "cpu 1500m, memory 16, pods 1");
    }

    #[test]
    fn a_malformed_amount_is_a_fault_with_its_place() {
        let spec: PodSpec = serde_json::from_value(serde_json::json!({
            "containers": [{"name": "a", "resources": {"requests": {"memory": "1GiB"}}}]
        }))
        .unwrap();
        let mut reader = Reader::new(&"f".into(), "o");
        of_pod(&mut reader, "spec", &spec, None, &ContainerDefaults::default());
        assert_eq!(&*reader.fault.unwrap().field, "spec.containers[0].resources.requests.memory");
    }
}
