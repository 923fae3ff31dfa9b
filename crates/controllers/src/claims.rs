//! NodeClaims as the operator makes them: a pool's template, and what a plan or a count adds to it.
//!
//! ```text
//! NodePool template ──┐
//! Wish (from a plan) ─┴─▶ claim_for ─▶ NodeClaim, ready to be created
//! ```
//!
//! Who creates a claim also reserves: the annotation `kerf.dev/reserves` says what the claim may become at most. Until the cloud
//! has answered, the pool's limits count that, and so neither a slow cloud nor a restart lets a pool outgrow them.

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kerf_api::hash;
use kerf_api::labels::{NODE_POOL, NODE_POOL_HASH, NODE_POOL_HASH_VERSION};
use kerf_api::{
    DurationError, LabelRules, NodeClaim, NodeClaimSpec, NodeClassRef, NodePool, Operator, Requirement,
    ResourceRequirements,
};
use kerf_mirror::RESERVES;
use kerf_model::resources::NODES;
use kerf_model::{Quantity, Requirements, Resources, Text};
use serde_json::json;
use std::collections::BTreeMap;

/// What a claim says beyond its pool's template.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// A name that follows from the decision: asked for twice, it is created once.
    pub name: Text,
    /// All of them, those of the pool included.
    pub requirements: Vec<Requirement>,
    /// Beside those of the template, which win.
    pub labels: BTreeMap<String, String>,
    /// Beside those of the template, which lose.
    pub annotations: BTreeMap<String, String>,
    /// The least that the node must offer. Empty for none.
    pub requests: Resources,
    /// The most that the node may have, resource by resource.
    pub reserves: Resources,
}

impl Wish {
    /// A claim that takes the pool's template as it is.
    pub fn plain(name: Text, pool: &NodePool) -> Self {
        Self { name, requirements: pool.spec.template.spec.requirements.clone(), ..Self::default() }
    }
}

/// The claim to create. Fails only where the pool's template has a duration that is none.
pub fn claim_for(pool: &NodePool, wish: Wish) -> Result<NodeClaim, DurationError> {
    let template = &pool.spec.template;
    let class = &template.spec.node_class_ref;
    let pool_name = pool.metadata.name.clone().unwrap_or_default();
    let of_template = template.metadata.clone().unwrap_or_default();

    let mut labels = wish.labels;
    labels.extend(of_template.labels.unwrap_or_default());
    labels.insert(NODE_POOL.to_owned(), pool_name.clone());
    labels.insert(class_label(class), class.name.clone());

    let mut annotations = of_template.annotations.unwrap_or_default();
    annotations.extend(wish.annotations);
    annotations.insert(NODE_POOL_HASH.to_owned(), pool.hash()?);
    annotations.insert(NODE_POOL_HASH_VERSION.to_owned(), hash::NODE_POOL_HASH_VERSION.to_owned());
    annotations.insert(RESERVES.to_owned(), reserves(&wish.reserves));

    let requests = (!wish.requests.is_empty()).then(|| written_amounts(&wish.requests));
    Ok(NodeClaim {
        metadata: ObjectMeta {
            name: Some(wish.name.to_string()),
            generate_name: Some(format!("{pool_name}-")),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![owned_by(pool)]),
            ..ObjectMeta::default()
        },
        spec: NodeClaimSpec {
            taints: some_taints(template.spec.taints.as_ref()),
            startup_taints: some_taints(template.spec.startup_taints.as_ref()),
            requirements: wish.requirements,
            resources: requests.map(|requests| ResourceRequirements { requests: Some(requests) }),
            node_class_ref: class.clone(),
            termination_grace_period: template.spec.termination_grace_period.clone(),
            expire_after: template.spec.expire_after.clone(),
        },
        status: None,
    })
}

/// The label that carries a node class's name: `karpenter.kwok.sh/kwoknodeclass`.
pub fn class_label(class: &NodeClassRef) -> String {
    format!("{}/{}", class.group, class.kind.to_lowercase())
}

/// Requirements in their written form. What was narrowed by several operators takes several entries.
pub fn written(requirements: &Requirements) -> Vec<Requirement> {
    let mut out = Vec::new();
    for (key, requirement) in requirements.iter() {
        let mut min_values = requirement.min_values.map(i64::from);
        let mut push = |operator: Operator, values: Vec<String>| {
            out.push(Requirement { key: key.to_string(), operator, values, min_values: min_values.take() });
        };
        let values: Vec<String> = requirement.values.iter().map(ToString::to_string).collect();
        let has_bounds = requirement.at_least.is_some() || requirement.at_most.is_some();
        match (requirement.complement, values.is_empty()) {
            (false, false) => push(Operator::In, values),
            (false, true) => push(Operator::DoesNotExist, values),
            (true, false) => push(Operator::NotIn, values),
            (true, true) if has_bounds => {}
            (true, true) => push(Operator::Exists, values),
        }
        if let Some(bound) = requirement.at_least {
            push(Operator::Gte, vec![bound.to_string()]);
        }
        if let Some(bound) = requirement.at_most {
            push(Operator::Lte, vec![bound.to_string()]);
        }
    }
    out
}

/// Labels that a claim's own requirements decide: one value for each key that is neither well known nor reserved. A node can
/// only carry what somebody writes on it.
pub fn labels_of(requirements: &[Requirement], rules: &LabelRules) -> BTreeMap<String, String> {
    let is_ours = |key: &str| !rules.is_well_known(rules.normalized(key)) && rules.restriction(key).is_none();
    requirements
        .iter()
        .filter(|requirement| requirement.operator == Operator::In && is_ours(&requirement.key))
        .filter_map(|requirement| Some((requirement.key.clone(), requirement.values.iter().min()?.clone())))
        .collect()
}

/// Amounts by name, as Kubernetes writes them.
pub fn written_amounts(amounts: &Resources) -> BTreeMap<String, QuantityText> {
    amounts.iter().map(|(name, amount)| (name.to_string(), QuantityText(amount.to_string()))).collect()
}

/// A name of a pool's claim, made from what must always lead to the same one.
pub fn name_for(pool: &str, of: &str) -> Text {
    // As generateName does it: no vowels, nothing that looks like something else, so that no word comes out.
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    const SUFFIX: usize = 5;
    // What is longer would not fit into a label.
    const POOL_MAX: usize = 63 - 1 - SUFFIX;
    let mut rest = hash::fnv1(of.as_bytes());
    // The low bits of FNV-1 are those of the last byte; let all of them take part.
    rest ^= rest >> 29;
    rest = rest.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    rest ^= rest >> 32;
    let mut suffix = String::with_capacity(SUFFIX);
    for _ in 0..SUFFIX {
        let position = usize::try_from(rest % ALPHABET.len() as u64).expect("smaller than the alphabet");
        suffix.push(char::from(ALPHABET[position]));
        rest /= ALPHABET.len() as u64;
    }
    let pool = if pool.len() > POOL_MAX { pool[..POOL_MAX].trim_end_matches(['-', '.']) } else { pool };
    format!("{pool}-{suffix}").into()
}

fn owned_by(pool: &NodePool) -> OwnerReference {
    OwnerReference {
        api_version: <NodePool as k8s_openapi::Resource>::API_VERSION.to_owned(),
        kind: <NodePool as k8s_openapi::Resource>::KIND.to_owned(),
        name: pool.metadata.name.clone().unwrap_or_default(),
        uid: pool.metadata.uid.clone().unwrap_or_default(),
        block_owner_deletion: Some(true),
        controller: None,
    }
}

fn reserves(amounts: &Resources) -> String {
    let mut amounts = amounts.clone();
    amounts.set(NODES, Quantity::from_units(1));
    json!(written_amounts(&amounts)).to_string()
}

/// An empty list is written as none.
fn some_taints(taints: Option<&Vec<Taint>>) -> Option<Vec<Taint>> {
    taints.filter(|taints| !taints.is_empty()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> NodePool {
        let pool = json!({
            "metadata": {"name": "default", "uid": "u-1"},
            "spec": {"template": {
                "metadata": {"labels": {"team": "a", "shade": "template"}, "annotations": {"note": "template"}},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "class"},
                    "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
                    "taints": [{"key": "t", "effect": "NoSchedule"}],
                    "startupTaints": [],
                    "terminationGracePeriod": "5m", "expireAfter": "1h",
                },
            }},
        });
        serde_json::from_value(pool).unwrap()
    }

    #[test]
    fn a_claim_carries_what_its_pool_says_of_nodes() {
        let wish = Wish {
            labels: BTreeMap::from([("shade".to_owned(), "wish".to_owned()), ("x".to_owned(), "y".to_owned())]),
            requests: Resources::new().with("cpu", Quantity::from_milli(1500)),
            reserves: Resources::new().with("cpu", Quantity::from_units(4)),
            ..Wish::plain("default-abcde".into(), &pool())
        };
        let claim = serde_json::to_value(claim_for(&pool(), wish).unwrap()).unwrap();
        let hash = pool().hash().unwrap();
        assert_eq!(
            claim["metadata"],
            json!({
                "name": "default-abcde", "generateName": "default-",
                "labels": {
                    "karpenter.sh/nodepool": "default", "karpenter.kwok.sh/kwoknodeclass": "class",
                    "team": "a", "shade": "template", "x": "y",
                },
                "annotations": {
                    "karpenter.sh/nodepool-hash": hash, "karpenter.sh/nodepool-hash-version": "v3", "note": "template",
                    "kerf.dev/reserves": "{\"cpu\":\"4\",\"nodes\":\"1\"}",
                },
                "ownerReferences": [{
                    "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "default", "uid": "u-1",
                    "blockOwnerDeletion": true,
                }],
            })
        );
        assert_eq!(
            claim["spec"],
            json!({
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "class"},
                "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
                "taints": [{"key": "t", "effect": "NoSchedule"}],
                "resources": {"requests": {"cpu": "1500m"}},
                "terminationGracePeriod": "5m", "expireAfter": "1h",
            })
        );
    }

    #[test]
    fn a_broken_duration_is_told_with_its_text() {
        let mut pool = pool();
        pool.spec.template.spec.termination_grace_period = Some(kerf_api::DurationText::new("soon"));
        let error = claim_for(&pool, Wish::plain("a".into(), &pool)).unwrap_err();
        assert!(error.to_string().contains("\"soon\""), "{error}");
    }

    #[test]
    fn requirements_are_written_so_that_they_read_the_same() {
        use kerf_model::Requirement as Allowed;
        let requirements = Requirements::new()
            .with("a", Allowed { min_values: Some(2), ..Allowed::is_in(["x", "y"]) })
            .with("b", Allowed { at_least: Some(3), at_most: Some(9), ..Allowed::not_in(["5"]) })
            .with("c", Allowed::exists())
            .with("d", Allowed::does_not_exist());
        let written = written(&requirements);
        let mut again = Requirements::new();
        for entry in &written {
            let values: Vec<Text> = entry.values.iter().map(|value| value.as_str().into()).collect();
            let operator = kerf_model::Operator::parse(entry.operator.as_str()).unwrap();
            let mut allowed = Allowed::new(operator, &values).unwrap();
            allowed.min_values = entry.min_values.map(|n| u32::try_from(n).unwrap());
            again.add(&entry.key, allowed);
        }
        assert_eq!(again, requirements);
        assert_eq!(written.len(), 6);
    }

    #[test]
    fn only_keys_that_users_own_become_labels() {
        let entry = |key: &str, operator: Operator, values: &[&str]| Requirement {
            key: key.to_owned(),
            operator,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            min_values: None,
        };
        let requirements = [
            entry("example.com/team", Operator::In, &["b", "a"]),
            entry("example.com/other", Operator::Exists, &[]),
            entry("kubernetes.io/arch", Operator::In, &["amd64"]),
            entry("karpenter.sh/nodepool", Operator::In, &["default"]),
            entry("karpenter.sh/odd", Operator::In, &["x"]),
        ];
        let labels = labels_of(&requirements, &LabelRules::core());
        assert_eq!(labels, BTreeMap::from([("example.com/team".to_owned(), "a".to_owned())]));
    }

    #[test]
    fn names_follow_from_their_origin_and_fit_into_a_label() {
        assert_eq!(name_for("default", "u-1/0"), name_for("default", "u-1/0"));
        let names: std::collections::BTreeSet<Text> =
            (0..1_000).map(|slot| name_for("default", &format!("u-1/{slot}"))).collect();
        assert!(names.len() > 990, "{}", names.len());
        assert!(names.iter().all(|name| kerf_api::validate::is_label_value(name)));
        assert!(name_for(&"p".repeat(253), "x").len() <= 63);
    }
}
