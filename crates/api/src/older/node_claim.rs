//! NodeClaim, from v1beta1 to v1 and back, as far as the other side can say it.

use serde_json::Value;

use super::node_class_ref::{self, Annotation};
use super::{EXPIRY_OF_POOL, annotations, conditions, kubelet};

const SPEC: &str = "/spec";

/// No claim may expire because it was converted; what its pool says is not in sight here.
const NEVER: &str = "Never";

pub(super) fn to_v1(claim: &mut Value) {
    kubelet::to_v1(claim, SPEC);
    node_class_ref::to_v1(claim, SPEC, Annotation::Written);
    conditions::of_claim_to_v1(claim);
    if let Some(Value::Object(spec)) = claim.get_mut("spec") {
        spec.insert("expireAfter".to_owned(), NEVER.into());
        annotations::put(claim, EXPIRY_OF_POOL, "true".to_owned());
    }
}

pub(super) fn to_v1beta1(claim: &mut Value) {
    annotations::take(claim, EXPIRY_OF_POOL);
    node_class_ref::to_v1beta1(claim, SPEC);
    kubelet::to_v1beta1(claim, SPEC);
    conditions::of_claim_to_v1beta1(claim);
}
