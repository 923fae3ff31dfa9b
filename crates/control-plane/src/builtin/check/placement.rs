//! Where pods may go: node selectors, affinity, spreading, tolerations and the taints they tolerate.

use serde_json::Value;

use super::super::meta;
use super::super::names;
use super::super::tree::{Faults, Path, at, has, int, items, ordered, text};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(crate) fn affinity(faults: &mut Faults, path: &Path<'_>, affinity: &Value) {
    if affinity.is_null() {
        return;
    }
    let node = at(affinity, "nodeAffinity");
    let node_path = path.field("nodeAffinity");
    if has(node, REQUIRED) {
        node_selector(faults, &node_path.field(REQUIRED), at(node, REQUIRED));
    }
    let preferred = node_path.field(PREFERRED);
    for (index, term) in items(node, PREFERRED).iter().enumerate() {
        let path = preferred.index(index);
        weight(faults, &path, term);
        node_term(faults, &path.field("preference"), at(term, "preference"), false);
    }
    for side in ["podAffinity", "podAntiAffinity"] {
        let (terms, path) = (at(affinity, side), path.field(side));
        let required = path.field(REQUIRED);
        for (index, term) in items(terms, REQUIRED).iter().enumerate() {
            pod_term(faults, &required.index(index), term);
        }
        let preferred = path.field(PREFERRED);
        for (index, weighted) in items(terms, PREFERRED).iter().enumerate() {
            let path = preferred.index(index);
            weight(faults, &path, weighted);
            pod_term(faults, &path.field("podAffinityTerm"), at(weighted, "podAffinityTerm"));
        }
    }
}

fn weight(faults: &mut Faults, path: &Path<'_>, term: &Value) {
    let weight = int(term, "weight").unwrap_or_default();
    if !(1..=100).contains(&weight) {
        faults.invalid(&path.field("weight"), weight, "must be in the range 1-100");
    }
}

pub(crate) fn node_selector(faults: &mut Faults, path: &Path<'_>, selector: &Value) {
    let terms = items(selector, "nodeSelectorTerms");
    let path = path.field("nodeSelectorTerms");
    if terms.is_empty() {
        faults.required(&path, "must have at least one node selector term");
    }
    for (index, term) in terms.iter().enumerate() {
        node_term(faults, &path.index(index), term, true);
    }
}

fn node_term(faults: &mut Faults, path: &Path<'_>, term: &Value, checks_values: bool) {
    let expressions = path.field("matchExpressions");
    for (index, requirement) in items(term, "matchExpressions").iter().enumerate() {
        node_requirement(faults, &expressions.index(index), requirement, checks_values);
    }
    let fields = path.field("matchFields");
    for (index, requirement) in items(term, "matchFields").iter().enumerate() {
        node_field(faults, &fields.index(index), requirement);
    }
}

fn node_requirement(faults: &mut Faults, path: &Path<'_>, requirement: &Value, checks_values: bool) {
    let values = items(requirement, "values");
    let values_path = path.field("values");
    match text(requirement, "operator") {
        "In" | "NotIn" => {
            if values.is_empty() {
                faults.required(&values_path, "must be specified when `operator` is 'In' or 'NotIn'");
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                faults.forbidden(&values_path, detail);
            }
        }
        "Gt" | "Lt" => {
            if values.len() != 1 {
                let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                faults.required(&values_path, detail);
            }
        }
        other => faults.invalid(&path.field("operator"), other, "not a valid selector operator"),
    }
    meta::label_key(faults, &path.field("key"), text(requirement, "key"));
    if checks_values {
        for (index, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            for why in names::label_value(value) {
                faults.invalid(&values_path.index(index), value, why);
            }
        }
    }
}

fn node_field(faults: &mut Faults, path: &Path<'_>, requirement: &Value) {
    let values = items(requirement, "values");
    match text(requirement, "operator") {
        "In" | "NotIn" => {
            if values.len() != 1 {
                let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                faults.required(&path.field("values"), detail);
            }
        }
        other => faults.invalid(&path.field("operator"), other, "not a valid selector operator"),
    }
    let key = text(requirement, "key");
    if key != "metadata.name" {
        faults.invalid(&path.field("key"), key, "not a valid field selector key");
        return;
    }
    let values_path = path.field("values");
    for (index, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or_default();
        for why in names::subdomain(value) {
            faults.invalid(&values_path.index(index), value, why);
        }
    }
}

fn pod_term(faults: &mut Faults, path: &Path<'_>, term: &Value) {
    meta::selector(faults, &path.field("labelSelector"), at(term, "labelSelector"));
    meta::selector(faults, &path.field("namespaceSelector"), at(term, "namespaceSelector"));
    for namespace in items(term, "namespaces").iter().filter_map(Value::as_str) {
        for why in names::label(namespace) {
            faults.invalid(&path.field("namespace"), namespace, why);
        }
    }
    label_keys(faults, path, term);
    let key = text(term, "topologyKey");
    if key.is_empty() {
        faults.required(&path.field("topologyKey"), "can not be empty");
    }
    meta::label_key(faults, &path.field("topologyKey"), key);
}

fn label_keys(faults: &mut Faults, path: &Path<'_>, term: &Value) {
    for list in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = items(term, list);
        if keys.is_empty() {
            continue;
        }
        let list_path = path.field(list);
        if !has(term, "labelSelector") {
            faults.forbidden(&list_path, "must not be specified when labelSelector is not set");
        }
        for (index, key) in keys.iter().filter_map(Value::as_str).enumerate() {
            meta::label_key(faults, &list_path.index(index), key);
        }
    }
    let matched = items(term, "matchLabelKeys");
    for (index, key) in matched.iter().enumerate() {
        let name = key.as_str().unwrap_or_default();
        let is_label = at(term, "labelSelector.matchLabels").get(name).is_some();
        let n_expressions =
            items(term, "labelSelector.matchExpressions").iter().filter(|one| text(one, "key") == name).count();
        // The key that the server merged in itself is there once.
        if n_expressions > 0 && (is_label || n_expressions > 1) {
            faults.invalid(&path.index(index), name, "exists in both matchLabelKeys and labelSelector");
        }
    }
    for (index, key) in matched.iter().enumerate() {
        if items(term, "mismatchLabelKeys").contains(key) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            faults.invalid(&path.field("matchLabelKeys").index(index), key.clone(), detail);
        }
    }
}

pub(crate) fn spreading(faults: &mut Faults, path: &Path<'_>, constraints: &[Value]) {
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        let skew = int(constraint, "maxSkew").unwrap_or_default();
        if skew <= 0 {
            faults.invalid(&path.field("maxSkew"), skew, "must be greater than zero");
        }
        let key = text(constraint, "topologyKey");
        if key.is_empty() {
            faults.required(&path.field("topologyKey"), "can not be empty");
        }
        let action = text(constraint, "whenUnsatisfiable");
        faults.one_of(&path.field("whenUnsatisfiable"), action, &["DoNotSchedule", "ScheduleAnyway"]);
        let is_repeated = constraints
            .iter()
            .skip(index + 1)
            .any(|other| text(other, "topologyKey") == key && text(other, "whenUnsatisfiable") == action);
        if is_repeated {
            let pair = format!("{{{key}, {action}}}");
            faults.duplicate(&path.field("{topologyKey, whenUnsatisfiable}"), pair);
        }
        if let Some(domains) = int(constraint, "minDomains") {
            let path = path.field("minDomains");
            if domains <= 0 {
                faults.invalid(&path, domains, "must be greater than zero");
            }
            if action != "DoNotSchedule" {
                let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                faults.invalid(&path, domains, detail);
            }
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if let Some(found) = constraint.get(policy).and_then(Value::as_str) {
                faults.one_of(&path.field(policy), found, &["Honor", "Ignore"]);
            }
        }
        label_keys(faults, &path, constraint);
        meta::selector(faults, &path.field("labelSelector"), at(constraint, "labelSelector"));
    }
}

pub(crate) fn tolerations(faults: &mut Faults, path: &Path<'_>, tolerations: &[Value]) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let path = path.index(index);
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
        if !key.is_empty() {
            meta::label_key(faults, &path.field("key"), key);
        } else if operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            faults.invalid(&path.field("operator"), operator, detail);
        }
        if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            faults.invalid(&path.field("effect"), effect, detail);
        }
        match operator {
            "Equal" | "" => {
                let wrong = names::label_value(value);
                if !wrong.is_empty() {
                    faults.invalid(&path.field("operator"), value, wrong.join(";"));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    faults.invalid(&path.field("operator"), value, detail);
                }
            }
            "Lt" | "Gt" => {
                faults.not_supported(&path.field("operator"), operator, &["Equal", "Exists", "Lt", "Gt"]);
            }
            _ => faults.not_supported(&path.field("operator"), operator, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            faults.one_of(&path.field("effect"), effect, &EFFECTS);
        }
    }
}

pub(crate) fn taints(faults: &mut Faults, path: &Path<'_>, taints: &[Value]) {
    for (index, taint) in taints.iter().enumerate() {
        let path = path.index(index);
        let (key, effect) = (text(taint, "key"), text(taint, "effect"));
        meta::label_key(faults, &path.field("key"), key);
        let value = text(taint, "value");
        let wrong = names::label_value(value);
        if !wrong.is_empty() {
            faults.invalid(&path.field("value"), value, wrong.join(";"));
        }
        if effect.is_empty() {
            faults.required(&path.field("effect"), "");
        } else {
            faults.one_of(&path.field("effect"), effect, &EFFECTS);
        }
        let is_repeated =
            taints.iter().take(index).any(|other| text(other, "key") == key && text(other, "effect") == effect);
        if is_repeated {
            let found = serde_json::json!({
                "Key": key, "Value": value, "Effect": effect, "TimeAdded": at(taint, "timeAdded").clone(),
            });
            let shown = ordered(&found, &["Key", "Value", "Effect", "TimeAdded"]);
            faults.duplicate(&path, found);
            faults.show(shown);
            if let Some(fault) = faults.0.last_mut() {
                fault.detail = "taints must be unique by key and effect pair".to_owned();
            }
        }
    }
}
