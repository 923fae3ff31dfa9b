//! Counting claims that are removed before their time.

use crate::metrics::{Metrics, families};
use crate::world::World;
use kerf_api::{NodeClaim, labels};

/// Why a claim comes to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveUp {
    NoCapacity,
    ClassNotReady,
    LaunchTimeout,
    RegistrationTimeout,
}

impl GiveUp {
    /// As the `reason` label of `karpenter_nodeclaims_disrupted_total` says it.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NoCapacity => "insufficient_capacity",
            Self::ClassNotReady => "nodeclass_not_ready",
            Self::LaunchTimeout => "launch_timeout",
            Self::RegistrationTimeout => "registration_timeout",
        }
    }
}

/// One more claim was disrupted, not for consolidation.
pub fn count(metrics: &Metrics, claim: &NodeClaim, reason: &str) {
    metrics.add(&families::NODECLAIMS_DISRUPTED_TOTAL, &series(claim, reason), 1.0);
}

/// The pods of a claim's node must move because of it.
pub fn count_pods(metrics: &Metrics, claim: &NodeClaim, reason: &str, world: &World) {
    let n_pods = world.node_of_claim(claim).map_or(0, |node| {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        world.pods_on(name).filter(|pod| pod.is_reschedulable()).count()
    });
    #[expect(clippy::cast_precision_loss, reason = "a node has a few hundred pods")]
    metrics.add(&families::PODS_DISRUPTION_INITIATED_TOTAL, &series(claim, reason), n_pods as f64);
}

/// How much time the pods of a removed claim are given.
pub fn termination_mode(claim: &NodeClaim) -> &'static str {
    match claim.spec.termination_grace_period.as_ref().map(kerf_api::DurationText::parse) {
        Some(Ok(period)) if period.is_positive() => "eventual",
        Some(Ok(_)) => "forceful",
        None | Some(Err(_)) => "graceful",
    }
}

/// A label of a claim; empty where there is none.
pub fn label<'a>(claim: &'a NodeClaim, key: &str) -> &'a str {
    claim.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str).unwrap_or_default()
}

fn series<'a>(claim: &'a NodeClaim, reason: &'a str) -> [&'a str; 5] {
    let consolidation_policy = "";
    [
        reason,
        label(claim, labels::NODE_POOL),
        label(claim, labels::CAPACITY_TYPE),
        consolidation_policy,
        termination_mode(claim),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_api::DurationText;

    #[test]
    fn the_termination_mode_follows_from_the_grace_period() {
        for (period, expected) in
            [(None, "graceful"), (Some("0s"), "forceful"), (Some("30s"), "eventual"), (Some("soon"), "graceful")]
        {
            let mut claim = NodeClaim::default();
            claim.spec.termination_grace_period = period.map(DurationText::new);
            assert_eq!(termination_mode(&claim), expected, "{period:?}");
        }
    }
}
