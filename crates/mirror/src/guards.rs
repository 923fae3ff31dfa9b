//! PodDisruptionBudgets, as far as they decide whether a pod will move when its node goes.

use crate::read::Reader;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kerf_model::{LabelSelector, Labels};

#[derive(Debug, Clone)]
pub(crate) struct GuardFact {
    selector: Option<LabelSelector>,
    /// Whether it never lets any pod go.
    is_shut: bool,
}

impl GuardFact {
    pub(crate) fn read(reader: &mut Reader, budget: &PodDisruptionBudget) -> Self {
        let Some(spec) = &budget.spec else {
            return Self { selector: None, is_shut: false };
        };
        let is = |limit: &Option<IntOrString>, text: &str| match limit {
            Some(IntOrString::Int(number)) => number.to_string() == text,
            Some(IntOrString::String(words)) => words == text,
            None => false,
        };
        Self {
            selector: reader.selector("spec.selector", spec.selector.as_ref()),
            is_shut: is(&spec.max_unavailable, "0")
                || is(&spec.max_unavailable, "0%")
                || is(&spec.min_available, "100%"),
        }
    }
}

/// Whether a pod's eviction is refused for as long as the budgets stand: one that is shut, or more than one.
pub(crate) fn is_blocked<'a>(guards: impl Iterator<Item = &'a GuardFact>, labels: &Labels) -> bool {
    let mut n_matching = 0;
    let mut is_shut = false;
    for guard in guards {
        if guard.selector.as_ref().is_some_and(|selector| selector.matches(labels)) {
            n_matching += 1;
            is_shut |= guard.is_shut;
        }
    }
    is_shut || n_matching > 1
}
