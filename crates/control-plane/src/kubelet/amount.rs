//! Quantities as numbers: what a pod asks for, what a node has.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Thousandths of a CPU, bytes, or pieces, by resource: the units in which refusals are told.
pub(crate) type Amounts = BTreeMap<String, i64>;

type Quantities = BTreeMap<String, Quantity>;

const NANOS_PER_UNIT: i128 = 1_000_000_000;

/// The units of a resource list. What is no number counts as nothing: admission has refused it long before.
pub(crate) fn amounts(quantities: Option<&Quantities>) -> Amounts {
    quantities.into_iter().flatten().map(|(name, quantity)| (name.clone(), amount(name, quantity))).collect()
}

pub(crate) fn amount(resource: &str, quantity: &Quantity) -> i64 {
    let nanos = nanos(&quantity.0).unwrap_or(0);
    let nanos_per_step = if resource == "cpu" { NANOS_PER_UNIT / 1000 } else { NANOS_PER_UNIT };
    let steps = nanos.div_euclid(nanos_per_step) + i128::from(nanos.rem_euclid(nanos_per_step) > 0);
    i64::try_from(steps).unwrap_or(i64::MAX)
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

/// `1500m`, `1.5Gi`, `1e3`, in billionths. None for what is no quantity.
fn nanos(text: &str) -> Option<i128> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let number_end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let nine: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let fraction: i128 = nine.parse().ok()?;
    let nanos = whole.checked_mul(NANOS_PER_UNIT)?.checked_add(fraction)?;
    let scaled = scale(nanos, suffix)?;
    Some(if is_negative { -scaled } else { scaled })
}

fn scale(nanos: i128, suffix: &str) -> Option<i128> {
    let binary = |power: u32| nanos.checked_mul(1_i128 << (10 * power));
    let decimal = |power: i32| match u32::try_from(power) {
        Ok(power) => nanos.checked_mul(10_i128.checked_pow(power)?),
        Err(_) => Some(nanos / 10_i128.checked_pow(power.unsigned_abs())?),
    };
    match suffix {
        "" => Some(nanos),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        exponent => decimal(exponent.strip_prefix(['e', 'E'])?.parse().ok().filter(|power: &i32| power.abs() < 30)?),
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
            ("memory", "999999999999999999999999E", 0),
            ("memory", "none", 0),
            ("memory", "1e99", 0),
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
