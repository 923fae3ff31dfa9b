//! A NodeOverlay, as the operator looks at it.

use super::requirements::{self, Written};
use crate::labels::LabelRules;
use crate::objects::{NodeOverlay, Operator};
use crate::problem::Problem;

impl NodeOverlay {
    /// Everything that would make `ValidationSucceeded` false with reason `RuntimeValidation`.
    pub fn validate(&self, rules: &LabelRules) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (i, requirement) in self.spec.requirements.iter().enumerate() {
            let written = Written {
                path: format!("spec.requirements[{i}]"),
                key: &requirement.key,
                operator: &requirement.operator,
                values: &requirement.values,
                min_values: None,
            };
            problems.extend(requirements::check(&written, rules));
            if requirement.operator == Operator::NotIn && requirement.values.is_empty() {
                problems.push(Problem::new(
                    format!("spec.requirements[{i}].values"),
                    "none",
                    "operator NotIn needs at least one value",
                ));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_overlay_is_checked_like_a_pool_and_not_in_wants_values_too() {
        for (requirement, n_problems) in [
            (json!({"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]}), 0),
            (json!({"key": "karpenter.sh/nodepool", "operator": "In", "values": ["a"]}), 0),
            (json!({"key": "karpenter.sh/foo", "operator": "Exists"}), 1),
            (json!({"key": "a", "operator": "NotIn"}), 1),
            (json!({"key": "a", "operator": "In"}), 1),
        ] {
            let overlay: NodeOverlay =
                serde_json::from_value(json!({"spec": {"requirements": [requirement]}})).unwrap();
            assert_eq!(overlay.validate(&LabelRules::aws()).len(), n_problems, "{requirement}");
        }
    }
}
