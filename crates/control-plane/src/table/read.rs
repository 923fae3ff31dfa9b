//! Reading trees without assuming anything of them: what is not there, or is something else, reads as empty.

use serde_json::{Map, Value};

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The text, or another one where there is none.
pub(super) fn text_or<'a>(value: &'a Value, otherwise: &'a str) -> &'a str {
    match text(value) {
        "" => otherwise,
        text => text,
    }
}

/// The text of a field that may be left out, even an empty one.
pub(super) fn text_if_set<'a>(value: &'a Value, otherwise: &'a str) -> &'a str {
    value.as_str().unwrap_or(otherwise)
}

pub(super) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

pub(super) fn is_true(value: &Value) -> bool {
    value.as_bool().unwrap_or_default()
}

pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Entries of an object or a list.
pub(super) fn n_entries(value: &Value) -> usize {
    value.as_object().map_or_else(|| items(value).len(), Map::len)
}

/// A number or a text, as it is written: `3`, `25%`.
pub(super) fn number_or_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The condition of a type is there, and `True`.
pub(super) fn holds(conditions: &Value, kind: &str) -> bool {
    items(conditions).iter().find(|condition| text(&condition["type"]) == kind).is_some_and(|c| c["status"] == "True")
}

/// `app=web,tier=front`, in the order of keys.
pub(super) fn labels(labels: &Value) -> String {
    let mut pairs: Vec<String> =
        labels.as_object().into_iter().flatten().map(|(key, value)| format!("{key}={}", text(value))).collect();
    pairs.sort();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// A label selector as people write it: `app=web,tier in (a,b),!canary`, in the order of keys; empty when it asks nothing.
pub(super) fn selector(selector: &Value) -> String {
    let mut terms: Vec<(&str, String)> = selector["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), format!("{key}={}", text(value))))
        .collect();
    terms.sort();
    for expression in items(&selector["matchExpressions"]) {
        let key = text(&expression["key"]);
        let mut values: Vec<&str> = items(&expression["values"]).iter().map(text).collect();
        values.sort_unstable();
        let values = values.join(",");
        let term = match text(&expression["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        terms.push((key, term));
    }
    terms.sort_by_key(|(key, _)| *key);
    terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
}

/// Like [`selector`], but one that asks nothing is `<none>`.
pub(super) fn selector_or_none(value: &Value) -> String {
    let said = selector(value);
    if said.is_empty() { "<none>".to_owned() } else { said }
}

/// One field of each item: `web,sidecar`.
pub(super) fn joined(list: &Value, field: &str) -> String {
    items(list).iter().map(|item| text(&item[field])).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_reads_as_people_write_it() {
        let cases = [
            (json!(null), ""),
            (json!({}), ""),
            (json!({"matchLabels": {"tier": "front", "app": "web"}}), "app=web,tier=front"),
            (
                json!({"matchLabels": {"m": "1"}, "matchExpressions": [
                    {"key": "z", "operator": "In", "values": ["b", "a"]},
                    {"key": "k", "operator": "NotIn", "values": ["a"]},
                    {"key": "a", "operator": "DoesNotExist"},
                    {"key": "b", "operator": "Exists"}]}),
                "!a,b,k notin (a),m=1,z in (a,b)",
            ),
            (json!({"matchLabels": 3, "matchExpressions": [5, {"key": []}]}), ","),
        ];
        for (given, said) in cases {
            assert_eq!(selector(&given), said, "{given}");
        }
    }
}
