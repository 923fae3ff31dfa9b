//! Label selectors, as pods and constraints use them to choose pods.

use crate::ids::Text;
use crate::labels::Labels;
use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SelectorOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SelectorTerm {
    pub key: Text,
    pub operator: SelectorOperator,
    pub values: BTreeSet<Text>,
}

/// All terms must hold. No terms select everything; a *missing* selector is an `Option` at the user's side, because
/// Kubernetes lets it mean "nothing" in one place and "everything" in another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LabelSelector {
    /// Sorted and without duplicates, so that equal selectors compare equal.
    pub terms: Vec<SelectorTerm>,
}

impl LabelSelector {
    pub fn new(mut terms: Vec<SelectorTerm>) -> Self {
        terms.sort();
        terms.dedup();
        Self { terms }
    }

    pub fn from_labels<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self::new(labels.into_iter().map(|(key, value)| SelectorTerm::is_in(key, value)).collect())
    }

    /// The same selector with one more term.
    pub fn and(mut self, term: SelectorTerm) -> Self {
        self.terms.push(term);
        Self::new(self.terms)
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        self.terms.iter().all(|term| term.matches(labels))
    }
}

impl SelectorTerm {
    pub fn is_in(key: &str, value: &str) -> Self {
        Self { key: key.into(), operator: SelectorOperator::In, values: BTreeSet::from([value.into()]) }
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            SelectorOperator::In => value.is_some_and(|value| self.values.contains(value)),
            SelectorOperator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            SelectorOperator::Exists => value.is_some(),
            SelectorOperator::DoesNotExist => value.is_none(),
        }
    }
}
