//! PodDisruptionBudgets, asked pod by pod: would an eviction be refused now?

use crate::world::World;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use kerf_mirror::PodState;
use kerf_model::{LabelSelector, SelectorOperator, SelectorTerm, Text, UnixMillis};
use std::collections::BTreeMap;

/// The budgets of the cluster, read once per round.
#[derive(Debug, Default)]
pub(crate) struct Guards(BTreeMap<Text, Vec<Guard>>);

#[derive(Debug)]
struct Guard {
    /// Namespace and name.
    name: Text,
    selector: LabelSelector,
    n_allowed: i32,
    lets_unready_pods_go: bool,
}

impl Guards {
    pub(crate) fn read(world: &World) -> Self {
        let mut guards = Self::default();
        for ((namespace, name), budget) in &world.budgets {
            guards.0.entry(namespace.clone()).or_default().extend(Guard::read(namespace, name, budget));
        }
        guards
    }

    /// The budgets that forbid to evict a pod: one without any left, or several, because an eviction cannot respect more than
    /// one. Pods that a drain would not evict are nobody's concern.
    pub(crate) fn against(&self, pod: &PodState, now: UnixMillis) -> Vec<Text> {
        let is_evicted = pod.is_active() && !pod.is_mirror && !pod.tolerates_disrupted && !pod.is_held(now);
        if !is_evicted {
            return Vec::new();
        }
        let of_namespace = self.0.get(&pod.id.namespace).into_iter().flatten();
        let matching: Vec<&Guard> = of_namespace.filter(|guard| guard.selector.matches(&pod.labels)).collect();
        match matching.as_slice() {
            [] => Vec::new(),
            [guard] if guard.n_allowed > 0 || (guard.lets_unready_pods_go && !pod.is_ready) => Vec::new(),
            guards => guards.iter().map(|guard| guard.name.clone()).collect(),
        }
    }
}

impl Guard {
    /// A budget without selector, or with one that makes no sense, guards nothing.
    fn read(namespace: &Text, name: &Text, budget: &PodDisruptionBudget) -> Option<Self> {
        let spec = budget.spec.as_ref()?;
        Some(Self {
            name: format!("{namespace}/{name}").into(),
            selector: selector(spec.selector.as_ref()?)?,
            n_allowed: budget.status.as_ref().and_then(|status| status.disruptions_allowed).unwrap_or(0),
            lets_unready_pods_go: spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow"),
        })
    }
}

fn selector(written: &meta::LabelSelector) -> Option<LabelSelector> {
    let labels = written.match_labels.iter().flatten();
    let mut terms: Vec<SelectorTerm> = labels.map(|(key, value)| SelectorTerm::is_in(key, value)).collect();
    for expression in written.match_expressions.iter().flatten() {
        let operator = match expression.operator.as_str() {
            "In" => SelectorOperator::In,
            "NotIn" => SelectorOperator::NotIn,
            "Exists" => SelectorOperator::Exists,
            "DoesNotExist" => SelectorOperator::DoesNotExist,
            _ => return None,
        };
        terms.push(SelectorTerm {
            key: expression.key.as_str().into(),
            operator,
            values: expression.values.iter().flatten().map(|value| value.as_str().into()).collect(),
        });
    }
    Some(LabelSelector::new(terms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn guards(budgets: &[Value]) -> Guards {
        let mut guards = Guards::default();
        for (position, budget) in budgets.iter().enumerate() {
            let budget = serde_json::from_value(budget.clone()).unwrap();
            let name = position.to_string().into();
            guards.0.entry("n".into()).or_default().extend(Guard::read(&"n".into(), &name, &budget));
        }
        guards
    }

    fn pod(namespace: &str, is_ready: bool, annotation: &str) -> PodState {
        let pod = json!({
            "metadata": {"name": "p", "namespace": namespace, "labels": {"app": "web"},
                "annotations": {"karpenter.sh/do-not-disrupt": annotation}},
            "spec": {"nodeName": "a", "containers": []},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": if is_ready { "True" } else { "False" }}]},
        });
        PodState::read(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_pod_is_held_by_a_budget_without_any_left_or_by_several() {
        let of_web = |n_allowed: i32| {
            json!({"spec": {"selector": {"matchLabels": {"app": "web"}}},
                "status": {"disruptionsAllowed": n_allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}})
        };
        let mut lenient = of_web(0);
        lenient["spec"]["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
        let of_others = json!({"spec": {"selector": {"matchExpressions": [
            {"key": "app", "operator": "NotIn", "values": ["web"]}]}}});
        let of_all = json!({"spec": {"selector": {}}});
        let of_none = json!({"spec": {}});
        let ready = pod("n", true, "false");
        for (budgets, pod, expected) in [
            (vec![of_web(1)], &ready, vec![]),
            (vec![of_web(0)], &ready, vec!["n/0"]),
            (vec![of_web(1), of_all.clone()], &ready, vec!["n/0", "n/1"]),
            (vec![of_others], &ready, vec![]),
            (vec![of_none], &ready, vec![]),
            (vec![of_all], &ready, vec!["n/0"]),
            (vec![lenient.clone()], &ready, vec!["n/0"]),
            (vec![lenient], &pod("n", false, "false"), vec![]),
            (vec![of_web(0)], &pod("m", true, "false"), vec![]),
            (vec![of_web(0)], &pod("n", true, "true"), vec![]),
        ] {
            let found = guards(&budgets).against(pod, UnixMillis(0));
            let found: Vec<&str> = found.iter().map(|name| &**name).collect();
            assert_eq!(found, expected, "{budgets:?} {pod:?}");
        }
    }
}
