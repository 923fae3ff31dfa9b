//! NodePool, from v1beta1 to v1 and back, as far as the other side can say it.

use serde_json::{Map, Value};

use super::node_class_ref::{self, Annotation};
use super::v1beta1::WHEN_UNDERUTILIZED;
use super::{EXPIRY_REPLACES_FIRST, annotations, conditions, kubelet};
use crate::objects::ConsolidationPolicy;

const SPEC_OF_TEMPLATE: &str = "/spec/template/spec";
const DISRUPTION: &str = "/spec/disruption";
pub(super) const LIMITS: &str = "/spec/limits";

/// Without a `consolidateAfter`, v1beta1 did not wait.
const AT_ONCE: &str = "0s";

pub(super) fn to_v1(pool: &mut Value) {
    flatten_limits(pool);
    if let Some(disruption) = fields_at(pool, DISRUPTION)
        && disruption.get("consolidationPolicy") == Some(&WHEN_UNDERUTILIZED.into())
    {
        let policy = ConsolidationPolicy::WhenEmptyOrUnderutilized.as_str();
        disruption.insert("consolidationPolicy".to_owned(), policy.into());
        disruption.entry("consolidateAfter").or_insert_with(|| AT_ONCE.into());
    }
    move_field(pool, "expireAfter", DISRUPTION, SPEC_OF_TEMPLATE);
    kubelet::to_v1(pool, SPEC_OF_TEMPLATE);
    node_class_ref::to_v1(pool, SPEC_OF_TEMPLATE, Annotation::OnlyRead);
    conditions::to_v1(pool);
    if annotations::get(pool, EXPIRY_REPLACES_FIRST).is_none() {
        annotations::put(pool, EXPIRY_REPLACES_FIRST, "true".to_owned());
    }
}

pub(super) fn to_v1beta1(pool: &mut Value) {
    if let Some(disruption) = fields_at(pool, DISRUPTION) {
        let same = ConsolidationPolicy::WhenEmpty.as_str();
        if disruption.get("consolidationPolicy").is_some_and(|policy| policy.is_string() && policy != same) {
            disruption.insert("consolidationPolicy".to_owned(), WHEN_UNDERUTILIZED.into());
            if disruption.get("consolidateAfter") == Some(&AT_ONCE.into()) {
                disruption.remove("consolidateAfter");
            }
        }
    }
    move_field(pool, "expireAfter", SPEC_OF_TEMPLATE, DISRUPTION);
    node_class_ref::to_v1beta1(pool, SPEC_OF_TEMPLATE);
    kubelet::to_v1beta1(pool, SPEC_OF_TEMPLATE);
}

/// Nested limits move up. Where both are there, which the schema refuses for the resources it knows, the flat one is
/// the one that counted in the releases of that time.
fn flatten_limits(pool: &mut Value) {
    let Some(limits) = fields_at(pool, LIMITS) else { return };
    if limits.get("resources").is_some_and(Value::is_object)
        && let Some(Value::Object(nested)) = limits.remove("resources")
    {
        for (name, amount) in nested {
            limits.entry(name).or_insert(amount);
        }
    }
}

/// Limits that have changed in v1 are read in the form in which they were written, `before`. Else the next
/// `kubectl apply` of the manifest would add the nested form to the flat one.
pub(super) fn nest_limits(pool: &mut Value, before: Option<&Value>) {
    let was_nested = before.is_some_and(|limits| limits.get("resources").is_some_and(Value::is_object));
    if let Some(limits) = fields_at(pool, LIMITS).filter(|limits| was_nested && !limits.contains_key("resources")) {
        let nested = std::mem::take(limits);
        limits.insert("resources".to_owned(), nested.into());
    }
}

fn move_field(object: &mut Value, name: &str, from: &str, to: &str) {
    if fields_at(object, to).is_none() {
        return;
    }
    if let Some(value) = fields_at(object, from).and_then(|fields| fields.remove(name))
        && let Some(fields) = fields_at(object, to)
    {
        fields.insert(name.to_owned(), value);
    }
}

fn fields_at<'a>(object: &'a mut Value, path: &str) -> Option<&'a mut Map<String, Value>> {
    object.pointer_mut(path)?.as_object_mut()
}
