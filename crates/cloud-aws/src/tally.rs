//! Figures that come up while working, until somebody collects them for the metrics page.

use kerf_cloud::Sample;
use kerf_model::Text;
use std::sync::{Mutex, PoisonError};

/// They are collected every minute; who does not collect does not fill the memory.
const KEPT_MAX: usize = 100_000;

#[derive(Debug, Default)]
pub struct Tally(Mutex<Vec<Sample>>);

impl Tally {
    /// One more of a counter, or something observed for a histogram.
    pub fn note<L: Into<Text>>(&self, family: &'static str, labels: impl IntoIterator<Item = L>, value: f64) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX {
            kept.push(Sample { family, labels: labels.into_iter().map(Into::into).collect(), value });
        }
    }

    /// Everything since the last time.
    pub fn take(&self) -> Vec<Sample> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_collected_once() {
        let tally = Tally::default();
        tally.note("family", ["a", "b"], 1.0);
        let expected = Sample { family: "family", labels: vec!["a".into(), "b".into()], value: 1.0 };
        assert_eq!(tally.take(), [expected]);
        assert!(tally.take().is_empty());
    }
}
