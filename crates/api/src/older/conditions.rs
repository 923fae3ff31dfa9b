//! Conditions: before 0.36 in the manner of Knative, where little is required; in v1 those of Kubernetes.

use std::sync::LazyLock;

use regex_lite::Regex;
use serde_json::{Map, Value};

use crate::schema::patterns;

/// What v1beta1 calls what v1 calls [`INSTANCE_TERMINATING`].
const TERMINATING: &str = "Terminating";
const INSTANCE_TERMINATING: &str = "InstanceTerminating";

/// Conditions of claims that v1 has no more, so that nobody would ever take them back: emptiness and expiry are seen
/// without them.
const GONE: &[&str] = &["Empty", "Expired"];

/// Gives each condition what v1 requires and v1beta1 did not.
pub(super) fn to_v1(object: &mut Value) {
    let created = object.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
    // An object has a time of creation as soon as an API server has seen it, and no condition before.
    let since = created.unwrap_or("1970-01-01T00:00:00Z").to_owned();
    for condition in each(object) {
        let is_said = |name: &str| condition.get(name).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        let (has_time, has_reason) = (is_said("lastTransitionTime"), is_said("reason"));
        if !has_time {
            condition.insert("lastTransitionTime".to_owned(), since.clone().into());
        }
        if !has_reason {
            let reason = reason_from_type(condition).to_owned();
            condition.insert("reason".to_owned(), reason.into());
        }
        condition.entry("message").or_insert_with(|| "".into());
    }
}

/// The same for a NodeClaim, whose conditions may have fewer fields and other names.
pub(super) fn of_claim_to_v1(claim: &mut Value) {
    to_v1(claim);
    rename(claim, TERMINATING, INSTANCE_TERMINATING);
    if let Some(Value::Array(conditions)) = claim.pointer_mut("/status/conditions") {
        conditions.retain(|condition| !GONE.iter().any(|gone| condition["type"] == *gone));
    }
}

pub(super) fn of_claim_to_v1beta1(claim: &mut Value) {
    rename(claim, INSTANCE_TERMINATING, TERMINATING);
}

fn rename(object: &mut Value, from: &str, to: &str) {
    if each(object).all(|condition| condition.get("type") != Some(&to.into())) {
        for condition in each(object).filter(|condition| condition.get("type") == Some(&from.into())) {
            condition.insert("type".to_owned(), to.into());
        }
    }
}

fn each(object: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    conditions.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// As v1 has it where there is no better reason: the condition's own name, if it is a word.
fn reason_from_type(condition: &Map<String, Value>) -> &str {
    static WORD: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(patterns::CONDITION_REASON).expect("patterns are constants, compiled by every test")
    });
    condition.get("type").and_then(Value::as_str).filter(|name| WORD.is_match(name)).unwrap_or("Unknown")
}
