//! Does this node match? Node selectors, node affinity, taints and tolerations, as kubelets and the volume binder need them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint, Toleration};

type Labels = BTreeMap<String, String>;

/// The selector and the required affinity of a pod.
pub(crate) fn pod_matches_node(pod: &Pod, name: &str, labels: &Labels) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|selector| selector_matches(selector, name, labels))
}

/// One term is enough; an empty term matches nothing.
pub(crate) fn selector_matches(selector: &NodeSelector, name: &str, labels: &Labels) -> bool {
    selector.node_selector_terms.iter().any(|term| term_matches(term, name, labels))
}

fn term_matches(term: &NodeSelectorTerm, name: &str, labels: &Labels) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let of_field = |key: &str| (key == "metadata.name").then_some(name);
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|want| requirement_matches(want, labels.get(&want.key).map(String::as_str)))
        && fields.iter().all(|want| requirement_matches(want, of_field(&want.key)))
}

fn requirement_matches(want: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = want.values.as_deref().unwrap_or_default();
    let is_listed = |value: &str| values.iter().any(|one| one == value);
    match want.operator.as_str() {
        "In" => value.is_some_and(is_listed),
        "NotIn" => !value.is_some_and(is_listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        operator => {
            let number = |text: &str| text.parse::<i64>().ok();
            match (value.and_then(number), values.first().and_then(|text| number(text))) {
                (Some(value), Some(limit)) if operator == "Gt" => value > limit,
                (Some(value), Some(limit)) if operator == "Lt" => value < limit,
                _ => false,
            }
        }
    }
}

pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    if !(effect.is_empty() || effect == taint.effect) || !(key.is_empty() || key == taint.key) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => {
            !key.is_empty()
                && toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
        "Exists" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn pods_match_nodes_by_selector_and_affinity() {
        let labels: Labels =
            [("zone", "a"), ("size", "8")].into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let affinity = |term: Value| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [term]}}}})
        };
        let expression = |key: &str, operator: &str, values: &[&str]| {
            affinity(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
        };
        let cases = [
            (json!({}), true),
            (json!({"nodeSelector": {"zone": "a"}}), true),
            (json!({"nodeSelector": {"zone": "b"}}), false),
            (expression("zone", "In", &["b", "a"]), true),
            (expression("zone", "NotIn", &["a"]), false),
            (expression("none", "NotIn", &["a"]), true),
            (expression("none", "Exists", &[]), false),
            (expression("none", "DoesNotExist", &[]), true),
            (expression("size", "Gt", &["7"]), true),
            (expression("size", "Lt", &["7"]), false),
            (expression("zone", "Gt", &["7"]), false),
            (affinity(json!({})), false),
            (affinity(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]})), true),
        ];
        for (mut spec, expected) in cases {
            spec["containers"] = json!([]);
            let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
            assert_eq!(pod_matches_node(&pod, "n", &labels), expected, "{spec}");
        }
    }

    #[test]
    fn tolerations_match_taints() {
        let taint: Taint = serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoExecute"})).unwrap();
        let cases = [
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "value": "w"}), false),
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"operator": "Exists"}), true),
            (json!({"operator": "Exists", "effect": "NoSchedule"}), false),
            (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), true),
            (json!({"key": "other", "operator": "Exists"}), false),
            (json!({}), false),
        ];
        for (toleration, expected) in cases {
            let toleration: Toleration = serde_json::from_value(toleration).unwrap();
            assert_eq!(tolerates(&toleration, &taint), expected, "{toleration:?}");
        }
    }
}
