//! Label selectors, made ready to be asked many times.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

pub(crate) type Labels = BTreeMap<String, String>;

/// All requirements must hold. Without any, everything matches: callers that mean nothing ask `is_empty` first.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
    /// An operator nobody knows: holds for nothing, so that a malformed selector takes no pods.
    Never,
}

impl Selector {
    pub(crate) fn of(selector: &LabelSelector) -> Self {
        let mut all: Vec<Requirement> = selector
            .match_labels
            .iter()
            .flatten()
            .map(|(key, value)| Requirement::In(key.clone(), vec![value.clone()]))
            .collect();
        for expression in selector.match_expressions.iter().flatten() {
            let key = expression.key.clone();
            let values = expression.values.clone().unwrap_or_default();
            all.push(match expression.operator.as_str() {
                "In" => Requirement::In(key, values),
                "NotIn" => Requirement::NotIn(key, values),
                "Exists" => Requirement::Exists(key),
                "DoesNotExist" => Requirement::Absent(key),
                _ => Requirement::Never,
            });
        }
        Self(all)
    }

    /// The old form of a selector: these labels, with these values.
    pub(crate) fn of_labels<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        let exact = |(key, value): (&String, &String)| Requirement::In(key.clone(), vec![value.clone()]);
        Self(labels.into_iter().map(exact).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Requirement::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Requirement::Exists(key) => labels.contains_key(key),
            Requirement::Absent(key) => !labels.contains_key(key),
            Requirement::Never => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_holds_when_every_requirement_does() {
        let selector: LabelSelector = serde_json::from_value(json!({
            "matchLabels": { "app": "web" },
            "matchExpressions": [
                { "key": "tier", "operator": "In", "values": ["a", "b"] },
                { "key": "old", "operator": "DoesNotExist" },
                { "key": "zone", "operator": "NotIn", "values": ["x"] },
                { "key": "team", "operator": "Exists" },
            ],
        }))
        .unwrap();
        let selector = Selector::of(&selector);
        for (labels, expected) in [
            ("app=web tier=a team=t", true),
            ("app=web tier=c team=t", false),
            ("app=web tier=a team=t old=1", false),
            ("app=web tier=a team=t zone=x", false),
            ("app=web tier=a team=t zone=y", true),
            ("app=web tier=a", false),
            ("tier=a team=t", false),
        ] {
            let map: Labels = labels
                .split(' ')
                .filter_map(|l| l.split_once('='))
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect();
            assert_eq!(selector.matches(&map), expected, "{labels}");
        }
    }

    #[test]
    fn an_unknown_operator_matches_nothing_and_an_empty_selector_everything() {
        let odd: LabelSelector =
            serde_json::from_value(json!({ "matchExpressions": [{ "key": "a", "operator": "Near" }] })).unwrap();
        assert!(!Selector::of(&odd).matches(&Labels::new()));
        assert!(Selector::default().matches(&Labels::new()) && Selector::default().is_empty());
    }
}
