//! Further profiles: other names that pods may give as their scheduler, with default spread constraints of their own.
//!
//! Everything else of a profile is as in the default one, whose own default constraints only score.

use k8s_openapi::api::core::v1::TopologySpreadConstraint;

use super::cluster::Cluster;
use super::labels::Labels;
use super::pod::{PodFacts, Rules, Spread};

/// A profile as a scheduler's configuration has it: `defaultingType: List` with these constraints.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    pub scheduler_name: String,
    /// Without selectors: those are found for each pod.
    pub default_constraints: Vec<TopologySpreadConstraint>,
}

impl Profile {
    /// The pod as this profile sees it: with the default constraints, if it has none and if somebody selects it.
    pub(super) fn complete(&self, cluster: &Cluster, pod: &PodFacts) -> Option<PodFacts> {
        if !pod.spread.is_empty() || self.default_constraints.is_empty() {
            return None;
        }
        let selector = cluster.siblings_of(pod)?;
        let spread = self
            .default_constraints
            .iter()
            .map(|constraint| Spread { selector: selector.clone(), ..Spread::of(constraint, &Labels::new()) });
        let rules = Rules { spread: spread.collect(), ..(*pod.rules).clone() };
        Some(PodFacts { rules: rules.into(), ..pod.clone() })
    }
}
