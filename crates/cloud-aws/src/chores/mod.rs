//! What comes round: looks at the account that the operator did not ask for, and what it should do about what is seen.
//!
//! ```text
//! status        instances that EC2 itself finds unhealthy ─▶ end their claims
//! reservations  claims that left their reservation ─▶ relabel; capacity blocks about to end ─▶ end their claims
//! zonal_shift   zones that are shifted away from ─▶ the supply does without them; pools are told
//! figures       what every offering costs and whether it can be had ─▶ metrics
//! ```
//!
//! Each is a function of the wire and of what the cluster uses; what it remembers is in a value of its own. When each runs, and
//! what becomes of its asks, is the operator's business.

pub mod figures;
pub mod reservations;
pub mod status;
pub mod zonal_shift;

use kerf_cloud::{ClaimInUse, InUse};
use std::collections::BTreeMap;

/// Claims that live, by the id of their instance.
fn claims_by_instance(in_use: &InUse) -> BTreeMap<&str, &ClaimInUse> {
    let living = in_use.claims.iter().filter(|claim| !claim.is_deleting);
    living.filter_map(|claim| Some((claim.provider_id.as_deref()?.rsplit('/').next()?, claim))).collect()
}

#[cfg(test)]
mod testing {
    use kerf_cloud::{ClaimInUse, InUse, PoolInUse};
    use kerf_model::{ClaimName, NodeClassRef, PoolName, Requirement, Requirements, labels};
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    pub(super) fn now<T>(future: impl Future<Output = T>) -> T {
        match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("a scripted AWS answers at once"),
        }
    }

    pub(super) fn class() -> NodeClassRef {
        NodeClassRef { group: "karpenter.k8s.aws".into(), kind: "EC2NodeClass".into(), name: "default".into() }
    }

    /// Claim `c-N` has instance `i-N`, with these labels.
    pub(super) fn claim(n: usize, labels: &[(&str, &str)]) -> ClaimInUse {
        ClaimInUse {
            name: ClaimName(format!("c-{n}").into()),
            provider_id: Some(format!("aws:///eu-west-1a/i-{n}").into()),
            node_class: class(),
            labels: labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
            annotations: BTreeMap::new(),
            is_deleting: false,
        }
    }

    pub(super) fn pool(name: &str, zones: &[&str]) -> PoolInUse {
        let mut requirements = Requirements::new();
        if !zones.is_empty() {
            requirements.add(labels::ZONE, Requirement::is_in(zones.iter().copied()));
        }
        PoolInUse { name: PoolName(name.into()), node_class: class(), labels: BTreeMap::new(), requirements }
    }

    pub(super) fn in_use(claims: Vec<ClaimInUse>, pools: Vec<PoolInUse>, status: serde_json::Value) -> InUse {
        let class = serde_json::json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
            "spec": {}, "status": status,
        });
        InUse { classes: vec![Arc::new(class)], claims, pools }
    }
}
