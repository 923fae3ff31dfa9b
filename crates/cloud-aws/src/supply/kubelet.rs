//! Kubelet settings as one machine gets them: what a class leaves to be computed is computed.

use super::expressions::{Expressions, Variables};
use kerf_api::Kubelet;
use kerf_cloud::aws::{NodeClassFacts, TypeFacts, default_pods, pods};
use kerf_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};
use kerf_model::{Quantity, Resources, Text, UnixMillis};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// What bootstrap data says about a type, every number in its place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ResolvedKubelet {
    pub max_pods: u32,
    /// What the class says, as it says it; expressions are replaced by their results.
    pub kube_reserved: BTreeMap<String, String>,
    pub system_reserved: BTreeMap<String, String>,
}

/// The class as it is for one type: with the results of its expressions in place of them. Where the gate is off they are left out.
///
/// Guarantees: fails when maxPods has no usable result. A reserved amount without one is left out, as if it had not been written.
pub(super) fn settle<'a>(
    class: &'a NodeClassFacts,
    facts: &TypeFacts,
    expressions: Option<&Expressions>,
    now: UnixMillis,
) -> Result<Cow<'a, NodeClassFacts>, String> {
    let Some(expressions) = expressions.filter(|_| !class.kubelet.expressions.is_empty()) else {
        return Ok(Cow::Borrowed(class));
    };
    let mut settled = class.clone();
    if let Some(text) = &class.kubelet.expressions.max_pods {
        settled.kubelet.max_pods = Some(max_pods(class, facts, expressions, text, now)?);
    }
    let variables = Variables::new(facts, pods_told(facts, &settled));
    let add = |amounts: &mut Resources, texts: &BTreeMap<Text, Text>| {
        for (resource, text) in texts {
            if let Ok(written) = reserved(resource, text, expressions, &variables, now) {
                let amount = Quantity::parse(&written).expect("the result is written as an amount");
                amounts.set(resource, amount);
            }
        }
    };
    add(&mut settled.kubelet.kube_reserved, &class.kubelet.expressions.kube_reserved);
    add(&mut settled.kubelet.system_reserved, &class.kubelet.expressions.system_reserved);
    Ok(Cow::Owned(settled))
}

/// The same in words, for the node itself.
pub(super) fn resolve(
    written: Option<&Kubelet>,
    class: &NodeClassFacts,
    facts: &TypeFacts,
    expressions: Option<&Expressions>,
    now: UnixMillis,
) -> Result<ResolvedKubelet, String> {
    let settled = settle(class, facts, expressions, now)?;
    let n_pods = pods_told(facts, &settled);
    let variables = Variables::new(facts, n_pods);
    let words = |name: &str, texts: &BTreeMap<Text, Text>| {
        let map = written.and_then(|kubelet| kubelet.get(name)).and_then(Value::as_object);
        let plain = map.into_iter().flatten().filter_map(|(resource, value)| {
            let text = value.as_str().filter(|text| Quantity::parse(text).is_ok())?;
            Some((resource.clone(), text.to_owned()))
        });
        let computed = texts.iter().filter_map(|(resource, text)| {
            let result = reserved(resource, text, expressions?, &variables, now).ok()?;
            Some((resource.to_string(), result))
        });
        plain.chain(computed).collect()
    };
    Ok(ResolvedKubelet {
        max_pods: u32::try_from(n_pods).unwrap_or_default(),
        kube_reserved: words("kubeReserved", &class.kubelet.expressions.kube_reserved),
        system_reserved: words("systemReserved", &class.kubelet.expressions.system_reserved),
    })
}

/// Whether every expression has a usable result for the type.
pub(super) fn check(
    class: &NodeClassFacts,
    facts: &TypeFacts,
    expressions: &Expressions,
    now: UnixMillis,
) -> Result<(), String> {
    let written = &class.kubelet.expressions;
    let in_words = |path: String, error: String| format!("spec.{path} for {}: {error}", facts.name);
    let settled =
        settle(class, facts, Some(expressions), now).map_err(|error| in_words("kubelet.maxPods".to_owned(), error))?;
    let variables = Variables::new(facts, pods_told(facts, &settled));
    for (name, texts) in [("kubeReserved", &written.kube_reserved), ("systemReserved", &written.system_reserved)] {
        for (resource, text) in texts {
            reserved(resource, text, expressions, &variables, now)
                .map_err(|error| in_words(format!("kubelet.{name}.{resource}"), error))?;
        }
    }
    Ok(())
}

/// What the kubelet is told: the class's number, else what the family and the interfaces allow.
fn pods_told(facts: &TypeFacts, class: &NodeClassFacts) -> i64 {
    class.kubelet.max_pods.map_or_else(|| pods(facts, class), i64::from)
}

fn max_pods(
    class: &NodeClassFacts,
    facts: &TypeFacts,
    expressions: &Expressions,
    text: &Text,
    now: UnixMillis,
) -> Result<u32, String> {
    let variables = Variables::new(facts, default_pods(facts, class));
    let result = expressions.evaluate(text, &variables, now)?;
    i32::try_from(result)
        .ok()
        .and_then(|result| u32::try_from(result).ok())
        .ok_or_else(|| format!("its result {result} is not between 0 and {}", i32::MAX))
}

/// The result of an expression, as an amount of its resource. Rounded up, so that machines that differ little get the same
/// launch template.
fn reserved(
    resource: &str,
    text: &Text,
    expressions: &Expressions,
    variables: &Variables<'_>,
    now: UnixMillis,
) -> Result<String, String> {
    let result = expressions.evaluate(text, variables, now)?;
    if result < 0 {
        return Err(format!("its result {result} is negative"));
    }
    let up_to = |step: i64| {
        result
            .checked_add(step - 1)
            .map(|sum| sum / step * step)
            .ok_or_else(|| format!("its result {result} is too large"))
    };
    Ok(match resource {
        CPU => format!("{}m", up_to(10)?),
        MEMORY => format!("{}Mi", up_to(16)?),
        EPHEMERAL_STORAGE => format!("{result}Gi"),
        _ => result.to_string(),
    })
}
