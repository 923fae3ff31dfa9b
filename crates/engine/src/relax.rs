//! Wishes, and the order in which they are given up.

use kerf_model::{
    Demand, Effect, PodTerm, PreferencePolicy, Requirements, Spread, Text, Toleration, TolerationOperator,
    WhenUnsatisfiable,
};
use std::collections::BTreeSet;

/// A demand with some of its preferences still standing as if they were required.
#[derive(Clone)]
pub(crate) struct Wish<'a> {
    /// Selector, the current required term, and the heaviest preferred term.
    pub(crate) requirements: Requirements,
    /// The same without the preferred term.
    pub(crate) strict: Requirements,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) affinity: Vec<&'a PodTerm>,
    pub(crate) anti_affinity: Vec<&'a PodTerm>,
    pub(crate) spreads: Vec<&'a Spread>,
    /// Labels that must be there although what is left of their requirement could do without.
    pub(crate) must_exist: BTreeSet<Text>,
    /// A key on which selector and terms contradict each other: nothing can grant this wish.
    pub(crate) contradiction: Option<Text>,
    /// What was given up to get here, in words.
    pub(crate) given_up: Vec<Text>,
}

/// Keys that some part wants to exist, where all parts together would be content with absence: `Exists` and `NotIn`
/// intersect to `NotIn`, and the wish for existence would be lost.
fn must_exist<'r>(parts: impl Iterator<Item = &'r Requirements>, together: &Requirements) -> BTreeSet<Text> {
    parts
        .flat_map(Requirements::iter)
        .filter(|(key, requirement)| {
            !requirement.allows_absence() && together.get(key).is_some_and(kerf_model::Requirement::allows_absence)
        })
        .map(|(key, _)| key.clone())
        .collect()
}

/// More steps than any pod has preferences; a longer chain is cut, and the rest is tried with everything given up.
const MAX_STEPS: usize = 64;

/// All stages from "everything wished for" to "only what is required".
pub(crate) fn chain<'a>(demand: &'a Demand, policy: PreferencePolicy, pools_prefer: bool) -> Vec<Wish<'a>> {
    let mut stage = Stage::of(demand, policy);
    let mut wishes = vec![stage.wish(demand)];
    while wishes.len() < MAX_STEPS && stage.give_up(pools_prefer) {
        wishes.push(stage.wish(demand));
    }
    wishes
}

struct Stage<'a> {
    terms: Vec<&'a Requirements>,
    affinity: Vec<(i32, &'a PodTerm)>,
    anti_affinity: Vec<(i32, &'a PodTerm)>,
    preferred: Vec<(i32, &'a Requirements)>,
    spreads: Vec<&'a Spread>,
    tolerates_preferred: bool,
    given_up: Vec<Text>,
}

impl<'a> Stage<'a> {
    fn of(demand: &'a Demand, policy: PreferencePolicy) -> Self {
        let respect = policy == PreferencePolicy::Respect;
        let mut stage = Self {
            terms: demand.required_terms.iter().collect(),
            affinity: demand.preferred_affinity.iter().map(|(weight, term)| (*weight, term)).collect(),
            anti_affinity: demand.preferred_anti_affinity.iter().map(|(weight, term)| (*weight, term)).collect(),
            preferred: demand.preferred_terms.iter().map(|(weight, term)| (*weight, term)).collect(),
            spreads: demand.spreads.iter().collect(),
            tolerates_preferred: false,
            given_up: Vec::new(),
        };
        if !respect {
            stage.affinity.clear();
            stage.anti_affinity.clear();
            stage.preferred.clear();
            stage.spreads.retain(|spread| spread.when == WhenUnsatisfiable::DoNotSchedule);
        }
        // Heaviest first; ties keep the order of the list.
        stage.affinity.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
        stage.anti_affinity.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
        stage.preferred.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
        stage
    }

    fn wish(&self, demand: &'a Demand) -> Wish<'a> {
        let mut strict = demand.node_selector.clone();
        let mut contradiction = None;
        if let Some(term) = self.terms.first() {
            contradiction = strict.first_contradiction(term).cloned();
            strict.add_all(term);
        }
        let mut requirements = strict.clone();
        // A preference that contradicts what is required can never be met: nothing is given up for it.
        if let Some((_, term)) = self.preferred.first().filter(|(_, term)| strict.first_contradiction(term).is_none()) {
            requirements.add_all(term);
        }
        let parts = [Some(&demand.node_selector), self.terms.first().copied()];
        let must_exist = must_exist(parts.into_iter().flatten(), &requirements);
        let mut tolerations = demand.tolerations.clone();
        if self.tolerates_preferred {
            tolerations.push(Toleration {
                key: "".into(),
                operator: TolerationOperator::Exists,
                value: "".into(),
                effect: Some(Effect::PreferNoSchedule),
            });
        }
        Wish {
            requirements,
            strict,
            must_exist,
            contradiction,
            tolerations,
            affinity: demand.affinity.iter().chain(self.affinity.iter().map(|(_, term)| *term)).collect(),
            anti_affinity: demand
                .anti_affinity
                .iter()
                .chain(self.anti_affinity.iter().map(|(_, term)| *term))
                .collect(),
            spreads: self.spreads.clone(),
            given_up: self.given_up.clone(),
        }
    }

    /// Gives up one more thing, in the contract's order. False when nothing is left.
    fn give_up(&mut self, pools_prefer: bool) -> bool {
        let what = if self.terms.len() > 1 {
            format!("required node affinity term {}", self.terms.remove(0))
        } else if !self.affinity.is_empty() {
            let (weight, term) = self.affinity.remove(0);
            format!("preferred pod affinity on {} (weight {weight})", term.topology_key)
        } else if !self.anti_affinity.is_empty() {
            let (weight, term) = self.anti_affinity.remove(0);
            format!("preferred pod anti-affinity on {} (weight {weight})", term.topology_key)
        } else if !self.preferred.is_empty() {
            let (weight, term) = self.preferred.remove(0);
            format!("preferred node affinity {term} (weight {weight})")
        } else if let Some(position) = self.spreads.iter().position(|s| s.when == WhenUnsatisfiable::ScheduleAnyway) {
            format!("topology spread on {}", self.spreads.swap_remove(position).topology_key)
        } else if pools_prefer && !self.tolerates_preferred {
            self.tolerates_preferred = true;
            "staying off nodes with PreferNoSchedule taints".to_owned()
        } else {
            return false;
        };
        self.given_up.push(what.into());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_model::{Namespaces, NodePolicy, Requirement};

    #[test]
    fn preferences_are_given_up_in_the_contracts_order() {
        let term = |key: &str| PodTerm { topology_key: key.into(), namespaces: Namespaces::All, selector: None };
        let zone = |value| Requirements::new().with("zone", Requirement::is_in([value]));
        let demand = Demand {
            required_terms: vec![zone("a"), zone("b")],
            preferred_terms: vec![(1, zone("c")), (5, zone("d"))],
            preferred_affinity: vec![(1, term("x"))],
            preferred_anti_affinity: vec![(2, term("light")), (9, term("heavy"))],
            spreads: vec![Spread {
                topology_key: "rack".into(),
                max_skew: 1,
                min_domains: None,
                when: WhenUnsatisfiable::ScheduleAnyway,
                selector: None,
                node_affinity_policy: NodePolicy::Honor,
                node_taints_policy: NodePolicy::Ignore,
            }],
            ..Demand::default()
        };
        let wishes = chain(&demand, PreferencePolicy::Respect, true);
        let last = wishes.last().unwrap();
        assert_eq!(
            last.given_up.iter().map(|text| &**text).collect::<Vec<_>>(),
            [
                "required node affinity term zone In [a]",
                "preferred pod affinity on x (weight 1)",
                "preferred pod anti-affinity on heavy (weight 9)",
                "preferred pod anti-affinity on light (weight 2)",
                "preferred node affinity zone In [d] (weight 5)",
                "preferred node affinity zone In [c] (weight 1)",
                "topology spread on rack",
                "staying off nodes with PreferNoSchedule taints",
            ]
        );
        assert_eq!(chain(&demand, PreferencePolicy::Ignore, false).len(), 2);
    }

    #[test]
    fn a_preference_takes_nothing_away_from_what_is_required() {
        let team = |requirement| Requirements::new().with("team", requirement);
        let demand = Demand {
            required_terms: vec![team(Requirement::not_in(["x"])), team(Requirement::is_in(["y"]))],
            preferred_terms: vec![(1, team(Requirement::exists()))],
            ..Demand::default()
        };
        let first = &chain(&demand, PreferencePolicy::Respect, false)[0];
        assert!(first.must_exist.is_empty() && first.contradiction.is_none());
        let opposed = Demand { preferred_terms: vec![(1, team(Requirement::is_in(["x"])))], ..demand };
        let first = &chain(&opposed, PreferencePolicy::Respect, false)[0];
        assert_eq!(first.requirements, first.strict, "a preference that cannot be met is left aside");
    }
}
