//! The hash of a node class: whether a claim was made from the class as it is now.
//!
//! When the way of hashing changes (the version), every claim would look drifted at once. So claims are rewritten first, except
//! those that had drifted already, and the class last: as long as it says the old version, the work is not done.

use crate::errand::ApiCall;
use crate::resource::NODE_CLAIMS;
use crate::write;
use kerf_api::NodeClaim;
use kerf_cloud::{ClassStatus, NodeClassKind};
use kerf_mirror::NodeClassObject;
use kerf_model::NodeClassRef;
use serde_json::json;
use std::sync::Arc;

/// Whether a claim was made from a class that said something else: all four annotations are there, both were hashed the same
/// way, and the numbers differ.
pub fn is_drifted(kind: &NodeClassKind, class: &NodeClassObject, claim: &NodeClaim) -> bool {
    let Some((hash, version)) = kind.hash else { return false };
    let pair = |key: &str| {
        let of_class = class.metadata.annotations.as_ref()?.get(key)?;
        Some((of_class, claim.metadata.annotations.as_ref()?.get(key)?))
    };
    matches!((pair(hash), pair(version)), (Some((now, then)), Some((a, b))) if a == b && now != then)
}

/// Claims that must be rewritten before the class may say the new version, as requests by claim.
pub(super) fn migrations<'a>(
    kind: &NodeClassKind,
    class: &NodeClassRef,
    object: &NodeClassObject,
    found: &ClassStatus,
    claims: impl Iterator<Item = &'a Arc<NodeClaim>>,
) -> Vec<(String, ApiCall)> {
    let Some((hash_key, version_key)) = kind.hash else { return Vec::new() };
    let (Some(hash), Some(version)) = (found.annotations.get(hash_key), found.annotations.get(version_key)) else {
        return Vec::new();
    };
    let says = |annotations: &Option<std::collections::BTreeMap<String, String>>| {
        annotations.as_ref().and_then(|all| all.get(version_key)).is_some_and(|said| **said == **version)
    };
    if says(&object.metadata.annotations) {
        return Vec::new();
    }
    let outdated = claims.filter(|claim| is_of(claim, class) && !says(&claim.metadata.annotations));
    let rewrite = |claim: &Arc<NodeClaim>| {
        let name = claim.metadata.name.clone().unwrap_or_default();
        // With its old number it stays drifted; with the new one it would be forgiven.
        let annotations = match is_marked_drifted(claim) {
            true => json!({version_key: &**version}),
            false => json!({hash_key: &**hash, version_key: &**version}),
        };
        let call = write::patch(NODE_CLAIMS, "", &name, json!({"metadata": {"annotations": annotations}}));
        (name, call)
    };
    outdated.map(rewrite).collect()
}

pub(super) fn is_of(claim: &NodeClaim, class: &NodeClassRef) -> bool {
    let reference = &claim.spec.node_class_ref;
    *reference.group == *class.group && *reference.kind == *class.kind && *reference.name == *class.name
}

fn is_marked_drifted(claim: &NodeClaim) -> bool {
    let conditions = claim.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Drifted" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    const KIND: NodeClassKind =
        NodeClassKind { hash: Some(("hash", "version")), ..NodeClassKind::plain("g", "v1", "Kind", "kinds") };

    fn class(annotations: Value) -> NodeClassObject {
        let value = json!({"metadata": {"name": "default", "annotations": annotations}});
        let metadata = serde_json::from_value(value["metadata"].clone()).unwrap();
        NodeClassObject { group: "g".into(), kind: "Kind".into(), metadata, value: value.into() }
    }

    fn claim(class: &str, annotations: Value, is_drifted: bool) -> Arc<NodeClaim> {
        let conditions = match is_drifted {
            true => {
                json!([{"type": "Drifted", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}])
            }
            false => json!([]),
        };
        let value = json!({
            "metadata": {"name": format!("of-{class}"), "annotations": annotations},
            "spec": {"nodeClassRef": {"group": "g", "kind": "Kind", "name": class}, "requirements": []},
            "status": {"conditions": conditions},
        });
        Arc::new(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn a_claim_has_drifted_when_both_were_hashed_alike_and_the_numbers_differ() {
        let of = |hash: &str, version: &str| json!({"hash": hash, "version": version});
        for (class_says, claim_says, expected) in [
            (of("1", "v6"), of("1", "v6"), false),
            (of("2", "v6"), of("1", "v6"), true),
            (of("2", "v6"), of("1", "v5"), false),
            (of("2", "v6"), json!({"version": "v6"}), false),
            (json!({}), of("1", "v6"), false),
        ] {
            let drifted = is_drifted(&KIND, &class(class_says.clone()), &claim("default", claim_says.clone(), false));
            assert_eq!(drifted, expected, "{class_says} {claim_says}");
        }
    }

    #[test]
    fn claims_of_an_older_version_are_rewritten_and_the_drifted_keep_their_number() {
        let reference = NodeClassRef { group: "g".into(), kind: "Kind".into(), name: "default".into() };
        let found = ClassStatus {
            annotations: [("hash".into(), "9".into()), ("version".into(), "v6".into())].into(),
            ..ClassStatus::default()
        };
        let claims = [
            claim("default", json!({"hash": "1", "version": "v5"}), false),
            claim("default", json!({"hash": "1", "version": "v5"}), true),
            claim("default", json!({"hash": "1", "version": "v6"}), false),
            claim("another", json!({"hash": "1", "version": "v5"}), false),
        ];
        let old = class(json!({"hash": "1", "version": "v5"}));
        let bodies: Vec<Value> =
            migrations(&KIND, &reference, &old, &found, claims.iter()).into_iter().map(|(_, call)| call.body).collect();
        assert_eq!(
            bodies,
            [
                json!({"metadata": {"annotations": {"hash": "9", "version": "v6"}}}),
                json!({"metadata": {"annotations": {"version": "v6"}}}),
            ]
        );
        let new = class(json!({"hash": "1", "version": "v6"}));
        assert!(migrations(&KIND, &reference, &new, &found, claims.iter()).is_empty());
    }
}
