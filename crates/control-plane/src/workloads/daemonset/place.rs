//! Where a daemon may run, and what its pod looks like there.

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, PodTemplateSpec,
    Taint, Toleration,
};

use super::super::facts::{NodeFacts, PodFacts};
use super::super::revisions::REVISION_HASH;

/// What every daemon tolerates, so that it is there before the node is ready and stays when the node is in trouble.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
const NETWORK_UNAVAILABLE: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");
const NAME_FIELD: &str = "metadata.name";

/// Whether a daemon should be started on a node, and whether one that runs there may stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fit {
    pub(crate) may_start: bool,
    pub(crate) may_stay: bool,
}

/// The template's pod, with what every daemon tolerates.
pub(crate) fn daemon_spec(template: &PodTemplateSpec) -> PodSpec {
    let mut spec = template.spec.clone().unwrap_or_default();
    let network = (spec.host_network == Some(true)).then_some(NETWORK_UNAVAILABLE);
    let tolerations = spec.tolerations.get_or_insert_default();
    for (key, effect) in TOLERATED.into_iter().chain(network) {
        let wanted = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        if tolerations.contains(&wanted) {
            continue;
        }
        let is_alike = |known: &Toleration| {
            known.key == wanted.key
                && known.effect == wanted.effect
                && known.operator == wanted.operator
                && known.value.as_deref().unwrap_or_default().is_empty()
        };
        match tolerations.iter_mut().find(|known| is_alike(known)) {
            Some(known) => *known = wanted,
            None => tolerations.push(wanted),
        }
    }
    spec
}

/// The template for the daemon of one node. The scheduler binds it: the affinity leaves it no choice.
pub(crate) fn template_for(
    template: &PodTemplateSpec,
    node: &str,
    hash: &str,
    generation: Option<&str>,
) -> PodTemplateSpec {
    let mut spec = daemon_spec(template);
    let only_here = NodeSelectorTerm {
        match_fields: Some(vec![NodeSelectorRequirement {
            key: NAME_FIELD.to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![node.to_owned()]),
        }]),
        match_expressions: None,
    };
    let affinity: &mut Affinity = spec.affinity.get_or_insert_default();
    let affinity: &mut NodeAffinity = affinity.node_affinity.get_or_insert_default();
    affinity.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![only_here] });
    let mut metadata = template.metadata.clone().unwrap_or_default();
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(REVISION_HASH.to_owned(), hash.to_owned());
    if let Some(generation) = generation {
        labels.insert(super::decide::POD_TEMPLATE_GENERATION.to_owned(), generation.to_owned());
    }
    PodTemplateSpec { metadata: Some(metadata), spec: Some(spec) }
}

/// Where a daemon's pod is, or will be.
pub(crate) fn target_node(pod: &PodFacts) -> Option<String> {
    if !pod.node().is_empty() {
        return Some(pod.node().to_owned());
    }
    let spec = pod.stored.read::<Pod>()?.spec?;
    let required = spec.affinity?.node_affinity?.required_during_scheduling_ignored_during_execution?;
    let fields = required.node_selector_terms.into_iter().flat_map(|term| term.match_fields.unwrap_or_default());
    let by_name = fields.into_iter().find(|field| field.key == NAME_FIELD && field.operator == "In")?;
    match by_name.values?.as_slice() {
        [only] => Some(only.clone()),
        _ => None,
    }
}

pub(crate) fn fit(spec: &PodSpec, node: &NodeFacts) -> Fit {
    let never = Fit { may_start: false, may_stay: false };
    let asked_for = spec.node_name.as_deref().unwrap_or_default();
    if !(asked_for.is_empty() || asked_for == node.name) {
        return never;
    }
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| node.labels.get(key) == Some(value));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    if !selected || !required.is_none_or(|required| required.node_selector_terms.iter().any(|term| holds(term, node))) {
        return never;
    }
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let repelled = |effects: &[&str]| {
        node.taints
            .iter()
            .filter(|taint| effects.contains(&taint.effect.as_str()))
            .any(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
    };
    Fit { may_start: !repelled(&["NoSchedule", "NoExecute"]), may_stay: !repelled(&["NoExecute"]) }
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (key, effect, operator) = (text(&toleration.key), text(&toleration.effect), text(&toleration.operator));
    if !(effect.is_empty() || effect == taint.effect) || !(key.is_empty() || key == taint.key) {
        return false;
    }
    let value = text(&toleration.value);
    let theirs = text(&taint.value);
    match operator.as_str() {
        "Exists" => true,
        "" | "Equal" => !key.is_empty() && value == theirs,
        "Gt" | "Lt" => match (theirs.parse::<i64>(), value.parse::<i64>()) {
            (Ok(theirs), Ok(ours)) => !key.is_empty() && if operator == "Gt" { theirs > ours } else { theirs < ours },
            _ => false,
        },
        _ => false,
    }
}

/// A term without any requirement holds for no node.
fn holds(term: &NodeSelectorTerm, node: &NodeFacts) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|requirement| is_met(requirement, node.labels.get(&requirement.key)))
        && fields.iter().all(|requirement| requirement.key == NAME_FIELD && is_met(requirement, Some(&node.name)))
}

fn is_met(requirement: &NodeSelectorRequirement, value: Option<&String>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let number = |compare: fn(i64, i64) -> bool| {
        let limit = values.first().and_then(|limit| limit.parse::<i64>().ok());
        let ours = value.and_then(|value| value.parse::<i64>().ok());
        ours.zip(limit).is_some_and(|(ours, limit)| compare(ours, limit))
    };
    match requirement.operator.as_str() {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number(|ours, limit| ours > limit),
        "Lt" => number(|ours, limit| ours < limit),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(labels: Value, taints: Value) -> NodeFacts {
        NodeFacts {
            name: "n".to_owned(),
            labels: std::sync::Arc::new(serde_json::from_value(labels).unwrap()),
            taints: serde_json::from_value(taints).unwrap(),
        }
    }

    fn fit_of(spec: Value, labels: Value, taints: Value) -> (bool, bool) {
        let template: PodTemplateSpec = serde_json::from_value(json!({ "spec": spec })).unwrap();
        let fit = fit(&daemon_spec(&template), &node(labels, taints));
        (fit.may_start, fit.may_stay)
    }

    #[test]
    fn a_daemon_runs_where_selector_affinity_and_taints_let_it() {
        let affinity = |terms: Value| {
            json!({ "containers": [], "affinity": { "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } } })
        };
        let plain = json!({ "containers": [] });
        for (spec, labels, taints, expected) in [
            (plain.clone(), json!({}), json!([]), (true, true)),
            (json!({ "containers": [], "nodeSelector": { "a": "1" } }), json!({ "a": "1" }), json!([]), (true, true)),
            (json!({ "containers": [], "nodeSelector": { "a": "1" } }), json!({ "a": "2" }), json!([]), (false, false)),
            (json!({ "containers": [], "nodeName": "n" }), json!({}), json!([]), (true, true)),
            (json!({ "containers": [], "nodeName": "m" }), json!({}), json!([]), (false, false)),
            (
                affinity(json!([{ "matchExpressions": [{ "key": "c", "operator": "Gt", "values": ["3"] }] }])),
                json!({ "c": "4" }),
                json!([]),
                (true, true),
            ),
            (
                affinity(json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["m"] }] }])),
                json!({}),
                json!([]),
                (false, false),
            ),
            (affinity(json!([{}])), json!({}), json!([]), (false, false)),
            (plain.clone(), json!({}), json!([{ "key": "k", "effect": "NoSchedule" }]), (false, true)),
            (plain.clone(), json!({}), json!([{ "key": "k", "effect": "NoExecute" }]), (false, false)),
            (plain.clone(), json!({}), json!([{ "key": "k", "effect": "PreferNoSchedule" }]), (true, true)),
            (
                plain.clone(),
                json!({}),
                json!([{ "key": "node.kubernetes.io/not-ready", "effect": "NoExecute" },
                       { "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" }]),
                (true, true),
            ),
            // The taint of a booting node repels a scheduler, and a daemon too: only its NoExecute form is tolerated.
            (
                plain,
                json!({}),
                json!([{ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }]),
                (false, true),
            ),
            (
                json!({ "containers": [], "hostNetwork": true }),
                json!({}),
                json!([{ "key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule" }]),
                (true, true),
            ),
        ] {
            assert_eq!(fit_of(spec.clone(), labels.clone(), taints.clone()), expected, "{spec} {labels} {taints}");
        }
    }

    #[test]
    fn the_pod_of_a_node_can_go_nowhere_else() {
        let template: PodTemplateSpec =
            serde_json::from_value(json!({ "metadata": { "labels": { "app": "d" } }, "spec": { "containers": [] } }))
                .unwrap();
        let made = template_for(&template, "n1", "5f", Some("2"));
        let labels = made.metadata.as_ref().unwrap().labels.as_ref().unwrap();
        assert_eq!(
            (labels["controller-revision-hash"].as_str(), labels["pod-template-generation"].as_str()),
            ("5f", "2")
        );
        let spec = made.spec.unwrap();
        assert_eq!(spec.tolerations.as_ref().unwrap().len(), 6);
        let object = json!({ "metadata": { "name": "p", "namespace": "x" }, "spec": spec });
        let pod = PodFacts::read(&super::super::super::facts::testing::stored(&object)).unwrap();
        assert_eq!(target_node(&pod).as_deref(), Some("n1"));
    }
}
