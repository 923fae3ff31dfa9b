//! A NodePool, as the operator looks at it.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Taint;

use super::names::{is_label_value, is_qualified_name};
use super::requirements::{self, Written};
use crate::labels::{LabelRules, NODE_POOL};
use crate::objects::NodePool;
use crate::problem::Problem;
use crate::taints::EFFECTS;

impl NodePool {
    /// Everything that would make `ValidationSucceeded` false, with the labels that the cloud provider knows.
    pub fn validate(&self, rules: &LabelRules) -> Vec<Problem> {
        let mut problems = Vec::new();
        self.validate_labels(rules, &mut problems);
        self.validate_taints(&mut problems);
        self.validate_requirements(rules, &mut problems);
        problems
    }

    fn validate_labels(&self, rules: &LabelRules, problems: &mut Vec<Problem>) {
        let labels = self.spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
        for (key, value) in labels.into_iter().flatten() {
            let path = format!("spec.template.metadata.labels[{key}]");
            let mut say =
                |found: &str, wants: String| problems.push(Problem::new(path.clone(), format!("{found:?}"), wants));
            if key == NODE_POOL {
                say(key, "the operator sets this label; leave it out".to_owned());
            }
            if !is_qualified_name(key) {
                say(key, "a label key such as example.com/team would do".to_owned());
            }
            if !is_label_value(value) {
                say(value, "a label value is at most 63 characters, alphanumeric at both ends".to_owned());
            }
            if let Some(restriction) = rules.restriction(key) {
                say(key, restriction.to_string());
            }
        }
    }

    fn validate_taints(&self, problems: &mut Vec<Problem>) {
        let spec = &self.spec.template.spec;
        let mut seen = BTreeSet::new();
        for (field, taints) in [("taints", &spec.taints), ("startupTaints", &spec.startup_taints)] {
            for (i, taint) in taints.iter().flatten().enumerate() {
                let path = format!("spec.template.spec.{field}[{i}]");
                problems.extend(check_taint(taint, &path));
                if !seen.insert((&taint.key, &taint.effect)) {
                    problems.push(Problem::new(
                        path,
                        format!("{}:{} again", taint.key, taint.effect),
                        "a key and effect may occur once in taints and startupTaints together",
                    ));
                }
            }
        }
    }

    fn validate_requirements(&self, rules: &LabelRules, problems: &mut Vec<Problem>) {
        for (i, requirement) in self.spec.template.spec.requirements.iter().enumerate() {
            let path = format!("spec.template.spec.requirements[{i}]");
            if requirement.key == NODE_POOL {
                problems.push(Problem::new(
                    format!("{path}.key"),
                    format!("{NODE_POOL:?}"),
                    "a pool cannot ask for a pool; leave it out",
                ));
            }
            let written = Written {
                path,
                key: &requirement.key,
                operator: &requirement.operator,
                values: &requirement.values,
                min_values: requirement.min_values,
            };
            problems.extend(requirements::check(&written, rules));
        }
    }
}

fn check_taint(taint: &Taint, path: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    if !is_qualified_name(&taint.key) {
        problems.push(Problem::new(
            format!("{path}.key"),
            format!("{:?}", taint.key),
            "a key such as example.com/team would do",
        ));
    }
    if let Some(value) = taint.value.as_ref().filter(|value| !value.is_empty() && !is_qualified_name(value)) {
        problems.push(Problem::new(
            format!("{path}.value"),
            format!("{value:?}"),
            "a value of letters, digits, -, _ and . would do",
        ));
    }
    if !taint.effect.is_empty() && !EFFECTS.contains(&taint.effect.as_str()) {
        problems.push(Problem::new(
            format!("{path}.effect"),
            format!("{:?}", taint.effect),
            format!("one of {} would do", EFFECTS.join(", ")),
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn problems(template: Value) -> Vec<String> {
        let mut template = template;
        template["spec"]["nodeClassRef"] =
            json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
        let pool: NodePool = serde_json::from_value(json!({"spec": {"template": template}})).unwrap();
        pool.validate(&LabelRules::aws()).iter().map(ToString::to_string).collect()
    }

    fn requirement(value: Value) -> Vec<String> {
        problems(json!({"spec": {"requirements": [value]}}))
    }

    #[test]
    fn a_sound_pool_has_no_problems() {
        let sound = problems(json!({
            "metadata": {"labels": {"example.com/team": "a", "kubernetes.io/anything": ""}},
            "spec": {
                "taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute", "value": "x"}],
                "startupTaints": [{"key": "b", "effect": "NoSchedule"}],
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"], "minValues": 2},
                    {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gte", "values": ["4"]},
                    {"key": "beta.kubernetes.io/arch", "operator": "In", "values": ["arm64"]},
                    {"key": "example.com/x", "operator": "NotIn"},
                ],
            },
        }));
        assert!(sound.is_empty(), "{sound:?}");
    }

    #[test]
    fn each_slip_in_labels_is_named() {
        for (key, value, needle) in [
            ("karpenter.sh/nodepool", "x", "leave it out"),
            ("not a key", "x", "label key"),
            ("example.com/x", "not a value", "label value"),
            ("karpenter.sh/anything", "x", "reserved"),
            ("kubernetes.io/hostname", "x", "cannot be asked for"),
            ("karpenter.k8s.aws/anything", "x", "reserved"),
        ] {
            let found = problems(json!({"metadata": {"labels": {key: value}}, "spec": {}}));
            assert!(
                found.len() == 1 && found[0].starts_with(&format!("spec.template.metadata.labels[{key}]")),
                "{key}: {found:?}"
            );
            assert!(found[0].contains(needle), "{key}: {found:?}");
        }
    }

    #[test]
    fn a_taint_may_not_occur_twice_across_both_lists() {
        let taint = json!({"key": "a", "effect": "NoSchedule"});
        let found = problems(json!({"spec": {"taints": [taint], "startupTaints": [taint]}}));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("spec.template.spec.startupTaints[0]"), "{found:?}");
        assert!(problems(json!({"spec": {"taints": [{"key": "a", "effect": ""}]}})).is_empty());
        assert_eq!(problems(json!({"spec": {"taints": [{"key": "", "effect": "Nope", "value": "a b"}]}})).len(), 3);
    }

    #[test]
    fn each_slip_in_requirements_is_named() {
        for (value, path, needle) in [
            (json!({"key": "karpenter.sh/nodepool", "operator": "Exists"}), "key", "pool"),
            (json!({"key": "a b", "operator": "Exists"}), "key", "label key"),
            (json!({"key": "karpenter.k8s.aws/foo", "operator": "Exists"}), "key", "reserved"),
            (json!({"key": "a", "operator": "Around", "values": ["1"]}), "operator", "In, NotIn"),
            (json!({"key": "a", "operator": "In"}), "values", "at least one"),
            (json!({"key": "a", "operator": "In", "values": ["a b"]}), "values", "label value"),
            (json!({"key": "a", "operator": "In", "values": ["b"], "minValues": 2}), "minValues", "at most 1"),
            (json!({"key": "a", "operator": "Gt", "values": ["-1"]}), "values", "whole number"),
            (json!({"key": "a", "operator": "Lte", "values": ["1", "2"]}), "values", "whole number"),
            (
                json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["cheap"]}),
                "values",
                "on-demand",
            ),
            (
                json!({"key": "karpenter.k8s.aws/instance-tenancy", "operator": "In", "values": ["host"]}),
                "values",
                "dedicated",
            ),
            (
                json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "cheap"], "minValues": 2}),
                "minValues",
                "at most 1",
            ),
        ] {
            let found = requirement(value.clone());
            assert!(!found.is_empty(), "{value}");
            assert!(found[0].starts_with(&format!("spec.template.spec.requirements[0].{path}")), "{value}: {found:?}");
            assert!(found[0].contains(needle), "{value}: {found:?}");
        }
    }

    #[test]
    fn one_unknown_capacity_type_among_known_ones_is_let_pass() {
        assert!(
            requirement(json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "cheap"]}))
                .is_empty()
        );
        assert!(
            requirement(json!({"key": "karpenter.sh/capacity-type", "operator": "NotIn", "values": ["cheap"]}))
                .is_empty()
        );
    }
}
