//! Pieces of schema that several kinds share.

use serde_json::Value;

use super::rule::Look as _;
use super::{
    Merge, Rule, Schema, boolean, instant, int_or_text, int64, integer, list_of, map_of, object, one_of, patterns, text,
};
use crate::labels::{self, restricted_in_schema};
use crate::objects::Operator;
use crate::taints;

/// Resource names with amounts.
pub(crate) fn resource_list() -> Schema {
    map_of(int_or_text().pattern(patterns::QUANTITY))
}

pub(crate) fn node_class_ref() -> Schema {
    let named = |about| text().about(about).rule(not_empty());
    object([
        ("group", named("API group of the NodeClass, without a version.").pattern("^[^/]*$")),
        ("kind", named("Kind of the NodeClass.")),
        ("name", named("Name of the NodeClass.")),
    ])
    .require(["group", "kind", "name"])
    .about("The NodeClass that says how the cloud builds these nodes.")
}

pub(crate) fn not_empty() -> Rule {
    Rule::new("self != ''", "write something here; it may not be empty", |value| !value.text().is_empty())
}

pub(crate) fn taints(about: &'static str) -> Schema {
    list_of(
        object([
            ("key", text().min_length(1).pattern(patterns::QUALIFIED_NAME).about("Key of the taint.")),
            ("value", text().pattern(patterns::QUALIFIED_NAME).about("Value of the taint.")),
            ("effect", one_of(taints::EFFECTS).about("What the taint does to pods that do not tolerate it.")),
            ("timeAdded", instant().about("When the taint was added; kept for NoExecute taints.")),
        ])
        .require(["key", "effect"]),
    )
    .merge(Merge::AtomicList)
    .about(about)
}

/// The requirements of a NodePool or NodeClaim. A pool may not ask for itself, so `names_pool` is false there.
pub(crate) fn requirements(names_pool: bool) -> Schema {
    let mut key_rules = vec![restricted_key(restricted_in_schema::CORE)];
    if !names_pool {
        key_rules.push(key_is_not(labels::NODE_POOL));
    }
    key_rules.push(key_is_not(labels::HOSTNAME));
    key_rules.push(key_is_spelt(MISSPELT_CAPACITY_TYPE, labels::CAPACITY_TYPE));
    key_rules.push(restricted_key(restricted_in_schema::AWS));
    key_rules.push(restricted_key(restricted_in_schema::KWOK));
    list_of(
        object([
            ("key", requirement_key().rules(key_rules)),
            ("operator", operator()),
            ("values", values()),
            (
                "minValues",
                integer().range(1, 50).about(
                    "Alpha. The launch keeps at least this many different values of the label open, for flexibility.",
                ),
            ),
        ])
        .require(["key", "operator"]),
    )
    .merge(Merge::AtomicList)
    .max_items(100)
    .about("Conditions on labels that every such node meets. They join with those of the pods.")
    .rule(Rule::new(
        "self.all(r, r.operator == 'In' ? r.values.size() != 0 : true)",
        "operator In needs at least one value",
        |list| list.items().iter().all(|r| r.at("operator") != "In" || !r.at("values").items().is_empty()),
    ))
    .rule(compares_one_number())
    .rule(Rule::new(
        "self.all(r, r.operator == 'In' && has(r.minValues) ? r.values.size() >= r.minValues : true)",
        "operator In needs at least minValues values",
        |list| {
            list.items().iter().all(|r| {
                let n_values = r.at("values").items().len() as i64;
                r.at("operator") != "In"
                    || !r.has("minValues")
                    || r.at("minValues").as_i64().is_some_and(|min| n_values >= min)
            })
        },
    ))
}

/// The requirements of a NodeOverlay: no `minValues`, and `NotIn` wants values too.
pub(crate) fn overlay_requirements() -> Schema {
    list_of(
        object([
            (
                "key",
                requirement_key()
                    .rule(restricted_key(restricted_in_schema::CORE))
                    .rule(key_is_not(labels::HOSTNAME))
                    .rule(restricted_key(restricted_in_schema::AWS_OVERLAY)),
            ),
            ("operator", operator()),
            ("values", values()),
        ])
        .require(["key", "operator"]),
    )
    .merge(Merge::AtomicList)
    .max_items(100)
    .about("Which offerings the overlay changes: those that meet all of these.")
    .rule(Rule::new(
        "self.all(r, r.operator in ['In', 'NotIn'] ? r.values.size() != 0 : true)",
        "operators In and NotIn need at least one value",
        |list| {
            list.items()
                .iter()
                .all(|r| !["In", "NotIn"].contains(&r.at("operator").text()) || !r.at("values").items().is_empty())
        },
    ))
    .rule(compares_one_number())
}

fn requirement_key() -> Schema {
    text().max_length(316).pattern(patterns::QUALIFIED_NAME).about("The label key.")
}

fn operator() -> Schema {
    one_of(Operator::WORDS).about("How the label's value relates to `values`.")
}

fn values() -> Schema {
    list_of(text()).merge(Merge::AtomicList).about(
        "What the label is compared with: one or more for In and NotIn, none for Exists and DoesNotExist, one \
         whole number for the comparisons.",
    )
}

fn compares_one_number() -> Rule {
    Rule::new(
        "self.all(r, r.operator in ['Gt', 'Lt', 'Gte', 'Lte'] ? (r.values.size() == 1 && int(r.values[0]) >= 0) \
         : true)",
        "operators Gt, Lt, Gte and Lte need exactly one value, a whole number not below zero",
        |list| {
            list.items().iter().all(|r| {
                !Operator::from(r.at("operator").text()).compares_numbers() || is_one_number(r.at("values").items())
            })
        },
    )
}

/// CEL's `int()` reads what Rust's `i64` reads: an optional sign and digits.
fn is_one_number(values: &[Value]) -> bool {
    matches!(values, [only] if only.text().parse::<i64>().is_ok_and(|number| number >= 0))
}

type Restricted = (&'static str, &'static [&'static str]);

/// A key of the domain must be one of the allowed ones. The domain is matched as a plain suffix of the text before the
/// first slash.
pub(crate) fn restricted_key((domain, allowed): Restricted) -> Rule {
    Rule::new(
        format!("self in [{}] || !self.find('^[^/]+').endsWith('{domain}')", quoted(allowed)),
        format!(
            "labels of {domain} are reserved, except the ones made for users; pick one of those or a domain of your own"
        ),
        move |key| is_allowed(key.text(), domain, allowed),
    )
}

/// The same for the keys of a label map.
pub(crate) fn restricted_keys((domain, allowed): Restricted) -> Rule {
    Rule::new(
        format!("self.all(k, k in [{}] || !k.find('^[^/]+').endsWith('{domain}'))", quoted(allowed)),
        format!(
            "labels of {domain} are reserved, except the ones made for users; pick one of those or a domain of your own"
        ),
        move |map| map.keys().all(|key| is_allowed(key, domain, allowed)),
    )
}

fn is_allowed(key: &str, domain: &str, allowed: &[&str]) -> bool {
    allowed.contains(&key) || !key.split('/').next().unwrap_or_default().ends_with(domain)
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(", ")
}

/// A key that no generation of the API had and that documents spell nevertheless.
const MISSPELT_CAPACITY_TYPE: &str = "karpenter.k8s.aws/capacity-type";

fn key_is_spelt(wrong: &'static str, right: &'static str) -> Rule {
    Rule::new(format!("self != '{wrong}'"), format!("there is no label {wrong}; {right} is meant"), move |key| {
        key.text() != wrong
    })
}

fn key_is_not(forbidden: &'static str) -> Rule {
    Rule::new(
        format!("self != '{forbidden}'"),
        format!("{forbidden} cannot be asked for here; another label would do"),
        move |key| key.text() != forbidden,
    )
}

pub(crate) fn keys_are_not(forbidden: &'static str) -> Rule {
    Rule::new(
        format!("self.all(k, k != '{forbidden}')"),
        format!("{forbidden} is set by the operator; leave it out"),
        move |map| map.keys().all(|key| key != forbidden),
    )
}

/// Conditions in which every field must be said.
pub(crate) fn conditions() -> Schema {
    condition_list(object(condition_fields(patterns::CONDITION_REASON, 1)).require([
        "lastTransitionTime",
        "message",
        "reason",
        "status",
        "type",
    ]))
}

/// Conditions of NodeClaims, where reason and message may be missing or empty.
pub(crate) fn relaxed_conditions() -> Schema {
    condition_list(object(condition_fields(patterns::CONDITION_REASON_OR_EMPTY, 0)).require([
        "lastTransitionTime",
        "status",
        "type",
    ]))
}

fn condition_list(condition: Schema) -> Schema {
    list_of(condition).merge(Merge::MapBy("type")).about("What is known about the object, one statement per type.")
}

fn condition_fields(reason_pattern: &'static str, reason_min_length: u64) -> [(&'static str, Schema); 6] {
    let reason = text()
        .max_length(1024)
        .pattern(reason_pattern)
        .about("Why the status is what it is, in one word for programs.");
    let reason = if reason_min_length > 0 { reason.min_length(reason_min_length) } else { reason };
    [
        ("lastTransitionTime", instant().about("When the status last changed.")),
        ("message", text().max_length(32768).about("The same in a sentence, for people; may be empty.")),
        ("observedGeneration", int64().at_least(0).about("The generation of the object that this statement is about.")),
        ("reason", reason),
        ("status", one_of(&["True", "False", "Unknown"]).about("Whether the statement holds.")),
        ("type", text().max_length(316).pattern(patterns::CONDITION_TYPE).about("What the statement is about.")),
    ]
}

/// An optional switch.
pub(crate) fn switch(about: &'static str) -> Schema {
    boolean().about(about)
}
