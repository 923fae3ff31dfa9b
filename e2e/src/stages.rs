//! One body, two clusters: ours and a real one, each raised when its first test comes, for all tests of a process.
//!
//! ```text
//! run ─▶ raise (once) ─▶ play ─ fails ─▶ raise, play: on a cluster of its own, once (`repeat`)
//!          └─ cannot: skipped, with the reason
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

use crate::panics::caught;
use crate::repeat::Repeats;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Embedded,
    Real,
}

/// Both clusters of a suite, and how its tests went.
pub struct Stages<C> {
    suite: &'static str,
    embedded: Running<C>,
    real: Running<C>,
}

struct Running<C> {
    /// The cluster, or why there is none.
    cluster: OnceLock<Result<C, String>>,
    /// Held by every test, and by one that wants to be alone for itself.
    occupied: RwLock<()>,
    repeats: Repeats,
    passed: AtomicUsize,
    failed: AtomicUsize,
    skipped: AtomicUsize,
}

/// One test on one stage.
pub struct Turn<'a> {
    pub which: Which,
    pub name: &'a str,
    /// Nobody else is on the stage meanwhile.
    pub is_alone: bool,
}

impl Which {
    pub const ALL: [Self; 2] = [Self::Embedded, Self::Real];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Real => "real",
        }
    }
}

impl<C> Stages<C> {
    /// `suite` is how the summary calls the tests.
    #[must_use]
    pub fn new(suite: &'static str) -> Self {
        Self { suite, embedded: Running::new(), real: Running::new() }
    }

    /// Runs one test, and once more on a fresh cluster if it fails. `Some` is why it did not run. `raise` answers what this machine lacks;
    /// it may panic, and `play` answers why the test failed.
    pub fn run(
        &self,
        turn: &Turn<'_>,
        raise: impl Fn() -> Result<C, String>,
        play: impl Fn(&C) -> Result<(), String>,
    ) -> Result<Option<String>, String> {
        let running = self.of(turn.which);
        let count = |counter: &AtomicUsize| counter.fetch_add(1, Ordering::Relaxed);
        let cluster = match caught(|| running.cluster.get_or_init(&raise)) {
            Ok(Ok(cluster)) => cluster,
            Ok(Err(reason)) => {
                count(&running.skipped);
                return Ok(Some(reason.clone()));
            }
            Err(story) => {
                count(&running.failed);
                return Err(story);
            }
        };
        let first = || {
            let (mut _shared, mut _alone) = (None, None);
            if turn.is_alone {
                _alone = Some(running.occupied.write().unwrap_or_else(PoisonError::into_inner));
            } else {
                _shared = Some(running.occupied.read().unwrap_or_else(PoisonError::into_inner));
            }
            play(cluster)
        };
        let again = || play(&caught(&raise)??);
        match running.repeats.run(&format!("{}::{}", turn.which.name(), turn.name), first, again) {
            Ok(()) => {
                count(&running.passed);
                Ok(None)
            }
            Err(story) => {
                count(&running.failed);
                Err(story)
            }
        }
    }

    /// The cluster, where it was raised, and how many tests it has seen to their end.
    #[must_use]
    pub fn seen(&self, which: Which) -> Option<(&C, usize)> {
        let running = self.of(which);
        let cluster = running.cluster.get()?.as_ref().ok()?;
        Some((cluster, running.passed.load(Ordering::Relaxed) + running.failed.load(Ordering::Relaxed)))
    }

    /// A line for each stage: what `cargo xtask test` shows at its end.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        Which::ALL.map(|which| format!("{} tests on {}: {}", self.suite, which.name(), self.of(which).told())).into()
    }

    fn of(&self, which: Which) -> &Running<C> {
        match which {
            Which::Embedded => &self.embedded,
            Which::Real => &self.real,
        }
    }
}

impl<C> Running<C> {
    fn new() -> Self {
        Self {
            cluster: OnceLock::new(),
            occupied: RwLock::default(),
            repeats: Repeats::default(),
            passed: AtomicUsize::default(),
            failed: AtomicUsize::default(),
            skipped: AtomicUsize::default(),
        }
    }

    fn told(&self) -> String {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        let (passed, failed, skipped) = (count(&self.passed), count(&self.failed), count(&self.skipped));
        match self.cluster.get() {
            Some(Err(reason)) => format!("skipped: {reason}: {skipped} tests"),
            _ => format!("{passed} passed{}, {failed} failed", self.repeats.told()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Turn<'static> = Turn { which: Which::Embedded, name: "a", is_alone: false };

    #[test]
    fn a_test_that_fails_is_tried_on_a_cluster_of_its_own() {
        let stages = Stages::new("some");
        let raised = AtomicUsize::new(0);
        let raise = || Ok(raised.fetch_add(1, Ordering::Relaxed));
        let play = |cluster: &usize| if *cluster == 0 { Err("no".to_owned()) } else { Ok(()) };
        assert_eq!(stages.run(&TURN, raise, play), Ok(None));
        assert_eq!(raised.load(Ordering::Relaxed), 2);
        assert_eq!((stages.seen(Which::Embedded), stages.seen(Which::Real)), (Some((&0, 1)), None));
        assert!(stages.summary()[0].starts_with("some tests on embedded: 1 passed, 1 of them failed once"));
        assert_eq!(stages.summary()[1], "some tests on real: 0 passed, 0 failed");
    }

    #[test]
    fn what_a_machine_lacks_is_told_with_the_count() {
        let stages = Stages::<()>::new("some");
        for _ in 0..2 {
            let outcome = stages.run(&TURN, || Err("no Go".to_owned()), |()| Ok(()));
            assert_eq!(outcome, Ok(Some("no Go".to_owned())));
        }
        assert_eq!(stages.summary()[0], "some tests on embedded: skipped: no Go: 2 tests");
    }
}
