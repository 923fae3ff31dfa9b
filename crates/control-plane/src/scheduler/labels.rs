//! Selectors: of pods and namespaces by label, of nodes by label and name.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

pub(crate) type Labels = BTreeMap<String, String>;

/// Which objects are meant, by their labels. `None` means none at all; no requirements mean all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Selector(Option<Vec<Requirement>>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

/// One alternative of a node selector: all of its expressions and fields must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeTerm {
    expressions: Vec<Requirement>,
    fields: Vec<Requirement>,
    /// A term that says nothing, or something unreadable, selects nothing.
    is_valid: bool,
}

impl Selector {
    pub(crate) fn nothing() -> Self {
        Self(None)
    }

    /// An absent selector selects nothing.
    pub(crate) fn of(selector: Option<&LabelSelector>) -> Self {
        let Some(selector) = selector else { return Self::nothing() };
        let mut requirements = of_labels(selector.match_labels.iter().flatten());
        for expression in selector.match_expressions.iter().flatten() {
            let values = expression.values.clone().unwrap_or_default();
            match Requirement::new(&expression.key, &expression.operator, values) {
                Some(requirement) if !matches!(requirement.operator, Operator::Gt | Operator::Lt) => {
                    requirements.push(requirement);
                }
                _ => return Self::nothing(),
            }
        }
        requirements.sort();
        Self(Some(requirements))
    }

    pub(crate) fn of_labels(labels: &Labels) -> Self {
        Self(Some(of_labels(labels.iter())))
    }

    /// What both select.
    pub(crate) fn and(mut self, other: &Self) -> Self {
        match (&mut self.0, &other.0) {
            (Some(requirements), Some(more)) => {
                requirements.extend(more.iter().cloned());
                requirements.sort();
                requirements.dedup();
            }
            _ => self.0 = None,
        }
        self
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.0.as_ref().is_some_and(Vec::is_empty)
    }

    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        self.0.as_ref().is_some_and(|requirements| requirements.iter().all(|requirement| requirement.holds(labels)))
    }
}

fn of_labels<'a>(labels: impl Iterator<Item = (&'a String, &'a String)>) -> Vec<Requirement> {
    labels
        .map(|(key, value)| Requirement { key: key.clone(), operator: Operator::In, values: vec![value.clone()] })
        .collect()
}

impl Requirement {
    fn new(key: &str, operator: &str, mut values: Vec<String>) -> Option<Self> {
        let operator = match operator {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt,
            "Lt" => Operator::Lt,
            _ => return None,
        };
        let is_readable = match operator {
            Operator::In | Operator::NotIn => !values.is_empty(),
            Operator::Exists | Operator::DoesNotExist => values.is_empty(),
            Operator::Gt | Operator::Lt => values.len() == 1 && values.iter().all(|value| value.parse::<i64>().is_ok()),
        };
        values.sort();
        is_readable.then(|| Self { key: key.to_owned(), operator, values })
    }

    fn holds(&self, labels: &Labels) -> bool {
        self.holds_for(labels.get(&self.key).map(String::as_str))
    }

    fn holds_for(&self, value: Option<&str>) -> bool {
        let is_listed = |value: &str| self.values.iter().any(|listed| listed == value);
        match self.operator {
            Operator::In => value.is_some_and(is_listed),
            Operator::NotIn => !value.is_some_and(is_listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => self.compare(value).is_some_and(|(value, bound)| value > bound),
            Operator::Lt => self.compare(value).is_some_and(|(value, bound)| value < bound),
        }
    }

    fn compare(&self, value: Option<&str>) -> Option<(i64, i64)> {
        Some((value?.parse().ok()?, self.values.first()?.parse().ok()?))
    }
}

impl NodeTerm {
    pub(crate) fn of(term: &NodeSelectorTerm) -> Self {
        let read = |requirements: &Option<Vec<NodeSelectorRequirement>>| -> Option<Vec<Requirement>> {
            requirements
                .iter()
                .flatten()
                .map(|one| Requirement::new(&one.key, &one.operator, one.values.clone().unwrap_or_default()))
                .collect()
        };
        let (expressions, fields) = (read(&term.match_expressions), read(&term.match_fields));
        let is_valid = match (&expressions, &fields) {
            (Some(expressions), Some(fields)) => {
                let is_name = |field: &Requirement| {
                    field.key == "metadata.name" && matches!(field.operator, Operator::In | Operator::NotIn)
                };
                !(expressions.is_empty() && fields.is_empty()) && fields.iter().all(is_name)
            }
            _ => false,
        };
        Self { expressions: expressions.unwrap_or_default(), fields: fields.unwrap_or_default(), is_valid }
    }

    pub(crate) fn all_of(selector: &NodeSelector) -> Vec<Self> {
        selector.node_selector_terms.iter().map(Self::of).collect()
    }

    pub(crate) fn matches(&self, name: &str, labels: &Labels) -> bool {
        self.is_valid
            && self.expressions.iter().all(|expression| expression.holds(labels))
            && self.fields.iter().all(|field| field.holds_for(Some(name)))
    }

    /// The names this term is limited to. None when it is not limited by name.
    pub(crate) fn names(&self) -> Option<Vec<String>> {
        let mut names: Option<Vec<String>> = None;
        for field in self.fields.iter().filter(|field| field.operator == Operator::In) {
            names = Some(match names {
                None => field.values.clone(),
                Some(names) => names.into_iter().filter(|name| field.values.contains(name)).collect(),
            });
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_label_selector_selects_by_every_requirement() {
        let web = labels(&[("app", "web"), ("size", "7")]);
        for (selector, is_match) in [
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "db"}}), false),
            (json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}), false),
            (json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["web"]}]}), true),
            (json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}), false),
            (json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "Near"}]}), false),
            (json!({"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["1"]}]}), false),
        ] {
            let parsed = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(Selector::of(Some(&parsed)).matches(&web), is_match, "{selector}");
        }
        assert!(!Selector::of(None).matches(&web));
        let everything = Selector::of_labels(&Labels::new());
        assert!(everything.clone().and(&Selector::of_labels(&web)).matches(&web));
        assert!(everything.is_everything() && !everything.and(&Selector::nothing()).matches(&web));
    }

    #[test]
    fn a_node_term_selects_by_labels_and_by_name() {
        let node = labels(&[("zone", "a"), ("cpus", "8")]);
        for (term, is_match) in [
            (json!({}), false),
            (json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}), true),
            (json!({"matchExpressions": [{"key": "cpus", "operator": "Gt", "values": ["7"]}]}), true),
            (json!({"matchExpressions": [{"key": "cpus", "operator": "Lt", "values": ["8"]}]}), false),
            (json!({"matchExpressions": [{"key": "zone", "operator": "Gt", "values": ["7"]}]}), false),
            (json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}), true),
            (json!({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}), false),
            (json!({"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["n1"]}]}), false),
        ] {
            let parsed = serde_json::from_value(term.clone()).unwrap();
            assert_eq!(NodeTerm::of(&parsed).matches("n1", &node), is_match, "{term}");
        }
    }
}
