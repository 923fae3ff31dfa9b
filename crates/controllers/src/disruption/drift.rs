//! Whether a node is still what its pool and its class describe, and why not.
//!
//! ```text
//! claim, pool ──▶ of_pool ── NodePoolDrifted, RequirementsDrifted      plain functions of what is known
//! claim, class ─▶ classes::hash ── NodeClassDrift
//! claim, class ─▶ Memo ──▶ CloudCall::Drift ── AMIDrift, …             the provider's word, asked for when it may have changed
//! ```
//!
//! Only the statement is made here: who is replaced, when, and by what, is decided elsewhere.

use super::marks;
use kerf_api::labels::{NODE_POOL_HASH, NODE_POOL_HASH_VERSION};
use kerf_api::{NodeClaim, NodePool};
use kerf_cloud::InstanceRef;
use kerf_mirror::NodeClassObject;
use kerf_model::{ClaimName, Labels, NodeClassRef, Operator, Requirement, Requirements, Text, UnixMillis};
use std::collections::BTreeMap;

/// The provider is asked again after this long, even if nobody told of a change: images and subnets change in the cloud.
pub(crate) const ASK_AGAIN_MS: i64 = 5 * 60_000;

/// What the provider said of each claim, as long as its word is good.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    said: BTreeMap<Text, Said>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    /// The version of the class that was asked about.
    class_version: Option<String>,
    /// None: it could not say, and what stands on the claim stays.
    answer: Option<Option<Text>>,
    good_until: UnixMillis,
}

impl Memo {
    /// The provider's word on a claim. None: ask.
    pub(crate) fn word(&self, claim: &str, class: &NodeClassObject, now: UnixMillis) -> Option<&Option<Option<Text>>> {
        let said = self.said.get(claim)?;
        (said.class_version == class.metadata.resource_version && now < said.good_until).then_some(&said.answer)
    }

    /// When to ask again.
    pub(crate) fn good_until(&self, claim: &str) -> Option<UnixMillis> {
        self.said.get(claim).map(|said| said.good_until)
    }

    pub(crate) fn asked(&mut self, claim: &Text, class: &NodeClassObject) {
        let class_version = class.metadata.resource_version.clone();
        // Until the answer is there, nothing is known.
        self.said.insert(claim.clone(), Said { class_version, answer: None, good_until: UnixMillis(i64::MIN) });
    }

    pub(crate) fn answered(&mut self, claim: &str, answer: Option<Option<Text>>, good_until: UnixMillis) {
        if let Some(said) = self.said.get_mut(claim) {
            said.answer = answer;
            said.good_until = good_until;
        }
    }

    pub(crate) fn forget(&mut self, claim: &str) {
        self.said.remove(claim);
    }
}

/// Why a claim no longer is what its pool's template makes, as far as the two objects tell.
pub fn of_pool(claim: &NodeClaim, pool: &NodePool, is_well_known: impl Fn(&str) -> bool) -> Option<&'static str> {
    if has_other_hash(claim, pool) {
        return Some("NodePoolDrifted");
    }
    let empty = BTreeMap::new();
    let written = claim.metadata.labels.as_ref().unwrap_or(&empty);
    let labels: Labels = written.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect();
    let is_inside = Requirements::from_labels(&labels).compatible(&requirements(pool), is_well_known).is_ok();
    (!is_inside).then_some("RequirementsDrifted")
}

/// Both carry a hash, made in the same way, and they differ. Where one is missing nothing is known.
fn has_other_hash(claim: &NodeClaim, pool: &NodePool) -> bool {
    let of_claim = |key: &str| claim.metadata.annotations.as_ref()?.get(key);
    let of_pool = |key: &str| pool.metadata.annotations.as_ref()?.get(key);
    let is_same_way = matches!(
        (of_claim(NODE_POOL_HASH_VERSION), of_pool(NODE_POOL_HASH_VERSION)),
        (Some(one), Some(other)) if one == other
    );
    let differ = matches!(
        (of_claim(NODE_POOL_HASH), of_pool(NODE_POOL_HASH)),
        (Some(one), Some(other)) if one != other
    );
    is_same_way && differ
}

/// What cannot be read is the pool's trouble, told on its status.
fn requirements(pool: &NodePool) -> Requirements {
    let mut requirements = Requirements::new();
    for written in &pool.spec.template.spec.requirements {
        let values: Vec<Text> = written.values.iter().map(|value| value.as_str().into()).collect();
        let operator = Operator::parse(written.operator.as_str());
        if let Some(requirement) = operator.and_then(|operator| Requirement::new(operator, &values)) {
            requirements.add(&written.key, requirement);
        }
    }
    requirements
}

/// The machine that a claim stands for; None before there is one.
pub(crate) fn instance(name: &Text, claim: &NodeClaim) -> Option<InstanceRef> {
    let status = claim.status.as_ref()?;
    let provider_id = status.provider_id.as_deref().filter(|id| !id.is_empty())?;
    Some(InstanceRef {
        provider_id: provider_id.into(),
        claim: ClaimName(name.clone()),
        node_name: status.node_name.as_deref().map(Text::from),
    })
}

pub(crate) fn class_of(claim: &NodeClaim) -> NodeClassRef {
    let class = &claim.spec.node_class_ref;
    NodeClassRef {
        group: class.group.as_str().into(),
        kind: class.kind.as_str().into(),
        name: class.name.as_str().into(),
    }
}

/// As the claim says it now: the reason, if it is drifted.
pub(crate) fn stated(claim: &NodeClaim) -> Option<&str> {
    let condition = marks::stored(claim).iter().find(|condition| condition.type_ == marks::DRIFTED)?;
    (condition.status == "True").then_some(condition.reason.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn claim(labels: Value, annotations: Value) -> NodeClaim {
        let class = json!({"group": "g", "kind": "k", "name": "n"});
        let claim = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "c", "labels": labels, "annotations": annotations}, "spec": {"nodeClassRef": class},
        });
        serde_json::from_value(claim).unwrap()
    }

    fn pool(requirements: Value, annotations: Value) -> NodePool {
        let class = json!({"group": "g", "kind": "k", "name": "n"});
        let pool = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p", "annotations": annotations},
            "spec": {"template": {"spec": {"nodeClassRef": class, "requirements": requirements}}},
        });
        serde_json::from_value(pool).unwrap()
    }

    fn hashed(hash: &str, version: &str) -> Value {
        json!({"karpenter.sh/nodepool-hash": hash, "karpenter.sh/nodepool-hash-version": version})
    }

    #[test]
    fn a_pool_drifts_its_claims_when_both_hashes_were_made_alike_and_differ() {
        for (of_claim, of_pool_, expected) in [
            (hashed("1", "v3"), hashed("1", "v3"), None),
            (hashed("1", "v3"), hashed("2", "v3"), Some("NodePoolDrifted")),
            (hashed("1", "v2"), hashed("2", "v3"), None),
            (json!({}), hashed("2", "v3"), None),
            (hashed("1", "v3"), json!({}), None),
            (json!({"karpenter.sh/nodepool-hash": "1"}), json!({"karpenter.sh/nodepool-hash": "2"}), None),
        ] {
            let (claim, pool) = (claim(json!({}), of_claim.clone()), pool(json!([]), of_pool_.clone()));
            assert_eq!(of_pool(&claim, &pool, |_| false), expected, "{of_claim} {of_pool_}");
        }
    }

    #[test]
    fn labels_outside_of_the_pools_requirements_are_drift() {
        let wants =
            |key: &str, operator: &str, values: Value| json!([{"key": key, "operator": operator, "values": values}]);
        let zone = "topology.kubernetes.io/zone";
        for (labels, requirements, expected) in [
            (json!({zone: "a"}), wants(zone, "In", json!(["a", "b"])), None),
            (json!({zone: "c"}), wants(zone, "In", json!(["a", "b"])), Some("RequirementsDrifted")),
            (json!({zone: "a"}), wants(zone, "NotIn", json!(["a"])), Some("RequirementsDrifted")),
            (json!({}), wants(zone, "In", json!(["a"])), None),
            (json!({}), wants("team", "In", json!(["blue"])), Some("RequirementsDrifted")),
            (json!({"team": "blue"}), wants("team", "Exists", json!([])), None),
            (json!({}), wants("team", "DoesNotExist", json!([])), None),
        ] {
            let (claim, pool) = (claim(labels.clone(), json!({})), pool(requirements.clone(), json!({})));
            assert_eq!(of_pool(&claim, &pool, |key| key == zone), expected, "{labels} {requirements}");
        }
    }
}
