//! Domains: which nodes share a value of a topology key, as small numbers instead of strings.

use std::collections::BTreeMap;

/// The domains of one topology key, over all node slots.
#[derive(Clone, Debug, Default)]
pub(crate) struct Domains {
    /// By slot: the number of the node's domain. None for a node without the label, and for an empty slot.
    pub(crate) of_slot: Vec<Option<u32>>,
    pub(crate) n_domains: usize,
}

impl Domains {
    pub(crate) fn of<'a>(values: impl Iterator<Item = Option<&'a str>>) -> Self {
        let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
        let mut of_slot = Vec::new();
        for value in values {
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            of_slot.push(value.map(|value| *numbers.entry(value).or_insert(next)));
        }
        Self { of_slot, n_domains: numbers.len() }
    }

    pub(crate) fn at(&self, slot: usize) -> Option<usize> {
        self.of_slot.get(slot).copied().flatten().map(|domain| domain as usize)
    }

    /// Sums a count per slot into a count per domain.
    pub(crate) fn sum(&self, per_slot: &[i64]) -> Vec<i64> {
        let mut sums = vec![0; self.n_domains];
        for (slot, count) in per_slot.iter().enumerate().filter(|(_, count)| **count != 0) {
            if let Some(domain) = self.at(slot) {
                sums[domain] += count;
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_nodes_become_counts_of_domains() {
        let domains = Domains::of([Some("b"), None, Some("a"), Some("b")].into_iter());
        assert_eq!(domains.n_domains, 2);
        assert_eq!(domains.sum(&[1, 10, 2, 3, 99]), vec![4, 2]);
    }
}
