//! Quantities as numbers: what a pod asks for, what a node has.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::scheduler::quantity;

/// Thousandths of a CPU, bytes, or pieces, by resource: the units in which refusals are told.
pub(crate) type Amounts = BTreeMap<String, i64>;

type Quantities = BTreeMap<String, Quantity>;

/// The units of a resource list. What is no number counts as nothing: admission has refused it long before.
pub(crate) fn amounts(quantities: Option<&Quantities>) -> Amounts {
    quantities.into_iter().flatten().map(|(name, quantity)| (name.clone(), amount(name, quantity))).collect()
}

pub(crate) fn amount(resource: &str, quantity: &Quantity) -> i64 {
    let nanos = quantity::parse(&quantity.0);
    if resource == "cpu" { quantity::milli(nanos) } else { quantity::whole(nanos) }
}

/// What the scheduler and the kubelet count for a pod: its containers together, or its hungriest moment while it initialises, or what it
/// asks for as a whole; and its overhead.
pub(crate) fn pod_requests(pod: &Pod) -> Amounts {
    let Some(spec) = &pod.spec else { return Amounts::new() };
    let requests =
        |container: &Container| amounts(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
    let mut total = Amounts::new();
    for container in &spec.containers {
        add(&mut total, &requests(container));
    }
    let mut sidecars = Amounts::new();
    let mut hungriest = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let mut moment = requests(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut total, &moment);
            add(&mut sidecars, &moment);
            moment = sidecars.clone();
        } else {
            add(&mut moment, &sidecars);
        }
        raise(&mut hungriest, &moment);
    }
    raise(&mut total, &hungriest);
    total.extend(amounts(spec.resources.as_ref().and_then(|resources| resources.requests.as_ref())));
    add(&mut total, &amounts(spec.overhead.as_ref()));
    total
}

pub(crate) fn add(total: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        let sum = total.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

pub(crate) fn subtract(total: &mut Amounts, less: &Amounts) {
    for (resource, amount) in less {
        let sum = total.entry(resource.clone()).or_default();
        *sum = sum.saturating_sub(*amount);
    }
}

fn raise(total: &mut Amounts, to: &Amounts) {
    for (resource, amount) in to {
        let sum = total.entry(resource.clone()).or_default();
        *sum = (*sum).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities_are_counted_in_their_units_and_rounded_up() {
        let cases = [
            ("cpu", "1", 1000),
            ("cpu", "250m", 250),
            ("cpu", "0.5", 500),
            ("cpu", "1u", 1),
            ("memory", "1Gi", 1 << 30),
            ("memory", "1.5Ki", 1536),
            ("memory", "1e3", 1000),
            ("memory", "100m", 1),
            ("memory", "2E", 2_000_000_000_000_000_000),
            ("pods", "1k", 1000),
            ("pods", "-3", -3),
            ("memory", "999999999999999999999999E", i64::MAX),
            ("memory", "none", 0),
        ];
        for (resource, text, expected) in cases {
            assert_eq!(amount(resource, &Quantity(text.to_owned())), expected, "{resource} {text}");
        }
    }

    #[test]
    fn a_pod_asks_for_its_hungriest_moment() {
        let cpu = |request: &str| json!({"requests": {"cpu": request}});
        let cases = [
            (
                json!({"containers": [{"name": "a", "resources": cpu("1")}, {"name": "b", "resources": cpu("500m")}]}),
                1500,
            ),
            (
                json!({"containers": [{"name": "a", "resources": cpu("1")}],
                       "initContainers": [{"name": "i", "resources": cpu("3")}]}),
                3000,
            ),
            (
                json!({"containers": [{"name": "a", "resources": cpu("1")}],
                       "initContainers": [{"name": "s", "restartPolicy": "Always", "resources": cpu("2")},
                                          {"name": "i", "resources": cpu("3")}]}),
                5000,
            ),
            (json!({"containers": [{"name": "a", "resources": cpu("1")}], "overhead": {"cpu": "100m"}}), 1100),
            (json!({"containers": [{"name": "a", "resources": cpu("1")}], "resources": cpu("4")}), 4000),
        ];
        for (spec, expected) in cases {
            let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
            assert_eq!(pod_requests(&pod).get("cpu"), Some(&expected), "{spec}");
        }
    }
}
