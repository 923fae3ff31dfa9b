//! What becomes of each field of a Provisioner and an AWSNodeTemplate.

#![expect(clippy::unwrap_used, reason = "helpers of tests may, like tests")]

#[path = "translate/classes.rs"]
mod classes;
#[path = "translate/pools.rs"]
mod pools;

use kerf_api::older::{Refusal, Translation, TranslationSettings, translate};
use serde_json::{Value, json};

pub(crate) fn settings() -> TranslationSettings {
    TranslationSettings { kubernetes_minor: Some(28), cluster_name: Some("mine".to_owned()), ..Default::default() }
}

pub(crate) fn provider() -> Value {
    json!({"instanceProfile": "p", "subnetSelector": {"a": "b"}, "securityGroupSelector": {"a": "b"}})
}

/// A Provisioner that has what it needs, and these fields beside or instead.
pub(crate) fn provisioner(spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": {"name": "p1"}, "spec": {"provider": provider()},
    });
    merge(&mut object["spec"], spec);
    object
}

pub(crate) fn template(spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "karpenter.k8s.aws/v1alpha1", "kind": "AWSNodeTemplate", "metadata": {"name": "t1", "uid": "7"}, "spec": provider(),
    });
    merge(&mut object["spec"], spec);
    object
}

pub(crate) fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, field) in from {
                match field {
                    Value::Null => drop(into.remove(name)),
                    _ if into.get(name).is_some_and(Value::is_object) => merge(&mut into[name], field),
                    _ => drop(into.insert(name.clone(), field.clone())),
                }
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// What these fields come to; the type of every field that the table uses is one that the CRD takes.
pub(crate) fn made_of(spec: Value) -> Translation {
    translate(&provisioner(&spec), None, &settings())
}

pub(crate) fn with_provider(fields: Value) -> Translation {
    made_of(json!({"provider": fields}))
}

#[track_caller]
pub(crate) fn pool(spec: Value) -> Value {
    let made = made_of(spec);
    assert_eq!(made.refusals, []);
    made.node_pool.unwrap()["spec"].take()
}

#[track_caller]
pub(crate) fn class(fields: Value) -> Value {
    let made = with_provider(fields);
    assert_eq!(made.refusals, []);
    made.node_class.unwrap()["spec"].take()
}

pub(crate) fn told(made: &Translation) -> String {
    let warnings = made.warnings.iter().map(|warning| format!("warning: {warning}\n"));
    let refusals = made.refusals.iter().map(|refusal| format!("refusal: {refusal}\n"));
    warnings.chain(refusals).collect()
}

/// The only refusal.
#[track_caller]
pub(crate) fn refusal(made: &Translation) -> &Refusal {
    assert_eq!(made.refusals.len(), 1, "{}", told(made));
    &made.refusals[0]
}
