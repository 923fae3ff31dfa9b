//! Kubelet settings of an EC2NodeClass. The API server lets any object pass here, so the operator reads it with care.

use std::collections::BTreeSet;

use serde_json::Value;

use super::kubelet_fields::{FIELDS, Fields, Type};
use super::names::is_quantity;
use crate::duration::parse_duration;
use crate::objects::{AmiFamily, Kubelet};
use crate::problem::{Problem, brief};

/// Settings that the operator understands itself, and can pass on through every family.
pub const MANAGED: &[&str] = &[
    "clusterDNS",
    "maxPods",
    "podsPerCore",
    "systemReserved",
    "kubeReserved",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMaxPodGracePeriod",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "cpuCFSQuota",
];

pub const EVICTION_SIGNALS: &[&str] = &[
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
];

pub const RESERVABLE: &[&str] = &["cpu", "memory", "ephemeral-storage", "pid"];

/// A setting whose value is to be computed per instance type (gate `NodeClassCEL`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression<'a> {
    pub path: String,
    pub text: &'a str,
}

/// Everything wrong with the settings themselves, in the order of their paths.
///
/// Flow: field names and types first, as a strict reader of KubeletConfiguration sees them; a wrong type ends the
/// reading with that one problem. Then what the values say.
pub fn problems(kubelet: &Kubelet) -> Vec<Problem> {
    let mut reader = StrictReader::default();
    for (name, value) in kubelet {
        // A string here may be an expression; it is looked at apart.
        if name == "maxPods" && value.is_string() {
            continue;
        }
        if let Err(wrong_type) = reader.field(FIELDS, name, value, "spec.kubelet") {
            return vec![wrong_type];
        }
    }
    let mut problems = reader.unknown;
    problems.extend(meanings(kubelet));
    problems.sort();
    problems
}

/// Settings that cannot reach the node through the family's bootstrap data.
pub fn unsupported(kubelet: &Kubelet, family: &AmiFamily) -> Vec<Problem> {
    if matches!(family, AmiFamily::Al2023 | AmiFamily::Custom) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (name, value) in kubelet {
        let path = format!("spec.kubelet.{name}");
        if !MANAGED.contains(&name.as_str()) {
            problems.push(Problem::new(
                path,
                brief(value),
                format!("{family} cannot pass this on; AL2023 and Custom can"),
            ));
        } else if name == "podsPerCore" && *family == AmiFamily::Bottlerocket {
            problems.push(Problem::new(path, brief(value), "Bottlerocket has no such setting; use maxPods"));
        } else if name == "clusterDNS" && value.as_array().is_some_and(|servers| servers.len() > 1) {
            problems.push(Problem::new(path, brief(value), format!("{family} takes one address")));
        }
    }
    problems
}

/// A `maxPods` that is text, and reserved amounts that are not quantities.
pub fn expressions(kubelet: &Kubelet) -> Vec<Expression<'_>> {
    let mut expressions = Vec::new();
    if let Some(text) = kubelet.get("maxPods").and_then(Value::as_str) {
        expressions.push(Expression { path: "spec.kubelet.maxPods".to_owned(), text });
    }
    for field in ["kubeReserved", "systemReserved"] {
        for (resource, text) in texts(kubelet, field).filter(|(_, text)| !is_quantity(text)) {
            expressions.push(Expression { path: format!("spec.kubelet.{field}[{resource}]"), text });
        }
    }
    expressions
}

/// Collects unknown names, stops at a wrong type.
#[derive(Default)]
struct StrictReader {
    unknown: Vec<Problem>,
}

impl StrictReader {
    fn field(&mut self, fields: Fields, name: &str, value: &Value, parent: &str) -> Result<(), Problem> {
        let path = format!("{parent}.{name}");
        match fields.iter().find(|(known, _)| *known == name) {
            Some((_, type_)) => self.value(type_, value, &path),
            None => {
                self.unknown.push(Problem::new(path, brief(value), "KubeletConfiguration has no such field"));
                Ok(())
            }
        }
    }

    fn value(&mut self, type_: &Type, value: &Value, path: &str) -> Result<(), Problem> {
        let wrong = |wants: &str| Err(Problem::new(path, brief(value), format!("this must be {wants}")));
        match (type_, value) {
            (_, Value::Null)
            | (Type::Bool, Value::Bool(_))
            | (Type::Text, Value::String(_))
            | (Type::Float, Value::Number(_)) => Ok(()),
            (Type::Loose, Value::String(_) | Value::Number(_)) => Ok(()),
            (Type::Int32, Value::Number(number))
                if number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()) =>
            {
                Ok(())
            }
            (Type::Int64, Value::Number(number)) if number.is_i64() => Ok(()),
            (Type::Duration, Value::String(text)) if parse_duration(text).is_ok() => Ok(()),
            (Type::Texts, Value::Array(items)) => self.each(&Type::Text, items, path),
            (Type::Ints, Value::Array(items)) => self.each(&Type::Int32, items, path),
            (Type::TextMap, Value::Object(entries)) => self.entries(&Type::Text, entries, path),
            (Type::BoolMap, Value::Object(entries)) => self.entries(&Type::Bool, entries, path),
            (Type::TextsMap, Value::Object(entries)) => self.entries(&Type::Texts, entries, path),
            (Type::QuantityMap, Value::Object(entries)) => self.entries(&Type::Loose, entries, path),
            (Type::Object(fields), Value::Object(entries)) => {
                entries.iter().try_for_each(|(name, value)| self.field(fields, name, value, path))
            }
            (Type::Objects(fields), Value::Array(items)) => {
                items.iter().enumerate().try_for_each(|(i, item)| match item {
                    Value::Object(entries) => entries
                        .iter()
                        .try_for_each(|(name, value)| self.field(fields, name, value, &format!("{path}[{i}]"))),
                    Value::Null => Ok(()),
                    _ => Err(Problem::new(format!("{path}[{i}]"), brief(item), "this must be an object")),
                })
            }
            _ => wrong(in_words(type_)),
        }
    }

    fn each(&mut self, type_: &Type, items: &[Value], path: &str) -> Result<(), Problem> {
        items.iter().enumerate().try_for_each(|(i, item)| self.value(type_, item, &format!("{path}[{i}]")))
    }

    fn entries(&mut self, type_: &Type, entries: &serde_json::Map<String, Value>, path: &str) -> Result<(), Problem> {
        entries.iter().try_for_each(|(key, entry)| self.value(type_, entry, &format!("{path}[{key}]")))
    }
}

fn in_words(type_: &Type) -> &'static str {
    match type_ {
        Type::Bool => "true or false",
        Type::Int32 | Type::Int64 => "a whole number",
        Type::Float => "a number",
        Type::Text => "a string",
        Type::Duration => "a duration such as 1m30s",
        Type::Texts => "a list of strings",
        Type::Ints => "a list of whole numbers",
        Type::TextMap => "a map of strings",
        Type::BoolMap => "a map of true and false",
        Type::TextsMap => "a map of lists of strings",
        Type::QuantityMap => "a map of amounts",
        Type::Object(_) => "an object",
        Type::Objects(_) => "a list of objects",
        Type::Loose => "a string or a number",
    }
}

fn meanings(kubelet: &Kubelet) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(taints) = kubelet.get("registerWithTaints").filter(|taints| !taints.is_null()) {
        problems.push(Problem::new(
            "spec.kubelet.registerWithTaints",
            brief(taints),
            "taints belong into the NodePool; leave this out",
        ));
    }
    evictions(kubelet, &mut problems);
    for field in ["kubeReserved", "systemReserved"] {
        reserved(kubelet, field, &mut problems);
    }
    image_gc(kubelet, &mut problems);
    for field in ["podsPerCore", "evictionMaxPodGracePeriod", "maxPods"] {
        if let Some(number) = kubelet.get(field).and_then(Value::as_i64).filter(|number| *number < 0) {
            problems.push(Problem::new(
                format!("spec.kubelet.{field}"),
                number.to_string(),
                "a whole number not below zero would do",
            ));
        }
    }
    problems
}

fn evictions(kubelet: &Kubelet, problems: &mut Vec<Problem>) {
    for field in ["evictionHard", "evictionSoft", "evictionMinimumReclaim", "evictionSoftGracePeriod"] {
        let is_grace = field == "evictionSoftGracePeriod";
        for (signal, text) in texts(kubelet, field) {
            let path = format!("spec.kubelet.{field}[{signal}]");
            if !EVICTION_SIGNALS.contains(&signal.as_str()) {
                problems.push(Problem::new(
                    path.clone(),
                    format!("{signal:?}"),
                    format!("one of {} would do", EVICTION_SIGNALS.join(", ")),
                ));
            }
            if is_grace && !parse_duration(text).is_ok_and(|grace| !grace.is_negative()) {
                problems.push(Problem::new(
                    path,
                    format!("{text:?}"),
                    "a duration not below zero, such as 1m30s, would do",
                ));
            } else if !is_grace && !is_threshold(text) {
                problems.push(Problem::new(
                    path,
                    format!("{text:?}"),
                    "a percentage from 0% to 100% or an amount such as 500Mi would do",
                ));
            }
        }
    }
    let signals = |field| texts(kubelet, field).map(|(signal, _)| signal).collect::<BTreeSet<_>>();
    let (soft, grace) = (signals("evictionSoft"), signals("evictionSoftGracePeriod"));
    for (here, missing, there) in [
        ("evictionSoft", soft.difference(&grace), "evictionSoftGracePeriod"),
        ("evictionSoftGracePeriod", grace.difference(&soft), "evictionSoft"),
    ] {
        for signal in missing {
            problems.push(Problem::new(
                format!("spec.kubelet.{here}[{signal}]"),
                "it alone",
                format!("{there} must have the same signal"),
            ));
        }
    }
}

/// A share of 0 to 100 percent, or an amount that is not negative.
fn is_threshold(text: &str) -> bool {
    match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().is_ok_and(|percent| (0.0..=100.0).contains(&percent)),
        None => is_quantity(text) && !is_negative(text),
    }
}

fn is_negative(quantity: &str) -> bool {
    quantity.starts_with('-')
        && quantity.bytes().take_while(|byte| !matches!(byte, b'e' | b'E')).any(|byte| matches!(byte, b'1'..=b'9'))
}

/// Amounts need not be quantities here: they may be expressions.
fn reserved(kubelet: &Kubelet, field: &str, problems: &mut Vec<Problem>) {
    for (resource, text) in texts(kubelet, field) {
        let path = format!("spec.kubelet.{field}[{resource}]");
        if !RESERVABLE.contains(&resource.as_str()) {
            problems.push(Problem::new(
                path.clone(),
                format!("{resource:?}"),
                format!("one of {} would do", RESERVABLE.join(", ")),
            ));
        }
        if text.starts_with('-') {
            problems.push(Problem::new(path, format!("{text:?}"), "an amount not below zero would do"));
        }
    }
}

fn image_gc(kubelet: &Kubelet, problems: &mut Vec<Problem>) {
    let percent = |field: &str| kubelet.get(field).and_then(Value::as_i64);
    for field in ["imageGCHighThresholdPercent", "imageGCLowThresholdPercent"] {
        if let Some(number) = percent(field).filter(|number| !(0..=100).contains(number)) {
            problems.push(Problem::new(
                format!("spec.kubelet.{field}"),
                number.to_string(),
                "a whole number from 0 to 100 would do",
            ));
        }
    }
    if let (Some(high), Some(low)) = (percent("imageGCHighThresholdPercent"), percent("imageGCLowThresholdPercent"))
        && high <= low
    {
        problems.push(Problem::new(
            "spec.kubelet.imageGCHighThresholdPercent",
            high.to_string(),
            format!("it must be above imageGCLowThresholdPercent, which is {low}"),
        ));
    }
}

/// The string entries of a map field; nothing when it is absent.
fn texts<'a>(kubelet: &'a Kubelet, field: &str) -> impl Iterator<Item = (&'a String, &'a str)> + use<'a> {
    let map = kubelet.get(field).and_then(Value::as_object);
    map.into_iter().flatten().filter_map(|(key, value)| Some((key, value.as_str()?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kubelet(value: Value) -> Kubelet {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn field_names_are_sorted_and_unique() {
        assert!(FIELDS.is_sorted_by(|a, b| a.0 < b.0));
        assert!(MANAGED.iter().all(|name| FIELDS.iter().any(|(field, _)| field == name)));
    }

    #[test]
    fn sound_settings_have_no_problems() {
        for value in [
            json!({}),
            json!({"maxPods": 110, "podsPerCore": 2, "clusterDNS": ["10.0.0.10"], "cpuCFSQuota": false}),
            json!({"maxPods": "min(110, default_enis * (ips_per_eni - 1) + 2)"}),
            json!({"kubeReserved": {"cpu": "100m", "memory": "vcpus * 10", "ephemeral-storage": "1Gi", "pid": "100"}}),
            json!({"evictionHard": {"memory.available": "5%", "nodefs.available": "10.5%", "pid.available": "500"}}),
            json!({"evictionSoft": {"memory.available": "1Gi"}, "evictionSoftGracePeriod": {"memory.available": "1m30s"}}),
            json!({"imageGCHighThresholdPercent": 85, "imageGCLowThresholdPercent": 80}),
            json!({"shutdownGracePeriod": "30s", "featureGates": {"A": true}, "authentication": {"webhook": {"cacheTTL": "2m0s"}}}),
            json!({"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}], "containerLogMaxFiles": null}),
        ] {
            assert_eq!(problems(&kubelet(value.clone())), [], "{value}");
        }
    }

    #[test]
    fn each_slip_is_named_with_its_path() {
        for (value, path) in [
            (json!({"maxPod": 110}), "spec.kubelet.maxPod"),
            (json!({"authentication": {"webhooks": {}}}), "spec.kubelet.authentication.webhooks"),
            (json!({"registerWithTaints": [{"key": "a", "effect": "NoSchedule"}]}), "spec.kubelet.registerWithTaints"),
            (json!({"evictionHard": {"memory": "5%"}}), "spec.kubelet.evictionHard[memory]"),
            (json!({"evictionHard": {"memory.available": "101%"}}), "spec.kubelet.evictionHard[memory.available]"),
            (json!({"evictionHard": {"memory.available": "-1Gi"}}), "spec.kubelet.evictionHard[memory.available]"),
            (
                json!({"evictionMinimumReclaim": {"memory.available": "lots"}}),
                "spec.kubelet.evictionMinimumReclaim[memory.available]",
            ),
            (json!({"evictionSoft": {"memory.available": "5%"}}), "spec.kubelet.evictionSoft[memory.available]"),
            (
                json!({"evictionSoftGracePeriod": {"memory.available": "1m"}}),
                "spec.kubelet.evictionSoftGracePeriod[memory.available]",
            ),
            (
                json!({"evictionSoft": {"memory.available": "5%"}, "evictionSoftGracePeriod": {"memory.available": "-1m"}}),
                "spec.kubelet.evictionSoftGracePeriod[memory.available]",
            ),
            (json!({"kubeReserved": {"gpu": "1"}}), "spec.kubelet.kubeReserved[gpu]"),
            (json!({"systemReserved": {"cpu": "-1"}}), "spec.kubelet.systemReserved[cpu]"),
            (json!({"imageGCHighThresholdPercent": 101}), "spec.kubelet.imageGCHighThresholdPercent"),
            (json!({"imageGCLowThresholdPercent": -1}), "spec.kubelet.imageGCLowThresholdPercent"),
            (
                json!({"imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 50}),
                "spec.kubelet.imageGCHighThresholdPercent",
            ),
            (json!({"podsPerCore": -1}), "spec.kubelet.podsPerCore"),
            (json!({"maxPods": -1}), "spec.kubelet.maxPods"),
            (json!({"evictionMaxPodGracePeriod": -1}), "spec.kubelet.evictionMaxPodGracePeriod"),
        ] {
            let found = problems(&kubelet(value.clone()));
            assert!(found.len() == 1 && found[0].path == path, "{value}: {found:?}");
        }
    }

    #[test]
    fn a_wrong_type_ends_the_reading() {
        for (value, path) in [
            (json!({"maxPods": true, "nonsense": 1, "podsPerCore": -1}), "spec.kubelet.maxPods"),
            (json!({"clusterDNS": "10.0.0.10"}), "spec.kubelet.clusterDNS"),
            (json!({"kubeReserved": {"cpu": 1}}), "spec.kubelet.kubeReserved[cpu]"),
            (json!({"podsPerCore": 3_000_000_000_i64}), "spec.kubelet.podsPerCore"),
            (json!({"shutdownGracePeriod": "soon"}), "spec.kubelet.shutdownGracePeriod"),
        ] {
            let found = problems(&kubelet(value.clone()));
            assert!(found.len() == 1 && found[0].path == path, "{value}: {found:?}");
        }
    }

    #[test]
    fn families_differ_in_what_they_pass_on() {
        let exotic =
            kubelet(json!({"cpuManagerPolicy": "static", "podsPerCore": 2, "clusterDNS": ["10.0.0.1", "10.0.0.2"]}));
        for (family, n_problems) in [
            (AmiFamily::Al2023, 0),
            (AmiFamily::Custom, 0),
            (AmiFamily::Al2, 2),
            (AmiFamily::Bottlerocket, 3),
            (AmiFamily::Windows2022, 2),
        ] {
            assert_eq!(unsupported(&exotic, &family).len(), n_problems, "{family}");
        }
    }

    #[test]
    fn expressions_are_told_from_amounts() {
        let settings =
            kubelet(json!({"maxPods": "vcpus * 8", "kubeReserved": {"cpu": "100m", "memory": "vcpus * 20"}}));
        let found: Vec<_> =
            expressions(&settings).into_iter().map(|expression| (expression.path, expression.text)).collect();
        assert_eq!(
            found,
            [
                ("spec.kubelet.maxPods".to_owned(), "vcpus * 8"),
                ("spec.kubelet.kubeReserved[memory]".to_owned(), "vcpus * 20")
            ]
        );
    }
}
