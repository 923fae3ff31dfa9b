//! Bugs on purpose: each is found within two hundred seeds, by the law that it breaks.

use crate::story;
use kerf_controllers::planted::{Bug, plant};
use std::fmt::Write as _;
use std::io::Write as _;
use std::iter;

const SEEDS_MAX: u64 = 200;

/// Tries seeds until one breaks, the one that did so lately first. `what` is planted on this thread, which runs the whole story.
#[track_caller]
fn is_found(what: &str, bug: Option<Bug>, lately: u64, law: &str) {
    plant(bug);
    let shares_tokens = bug.is_none();
    let found = iter::once(lately)
        .chain((1..=SEEDS_MAX).filter(|seed| *seed != lately))
        .map(|seed| (seed, story::run(seed, shares_tokens)))
        .find(|(_, ended)| !ended.breaches.is_empty());
    plant(None);
    let Some((seed, ended)) = found else { panic!("{what} survives {SEEDS_MAX} seeds") };
    // Past the capture of the harness: how soon it is found says how good the seeds are.
    let _ = writeln!(std::io::stderr(), "seeds: {what} is found by seed {seed}");
    let words = ended.breaches.iter().fold(String::new(), |mut words, breach| {
        // Writing to a string cannot fail.
        let _ = writeln!(words, "{breach}");
        words
    });
    assert!(words.contains(law), "seed {seed} breaks another law than {law:?}: {words}");
    let without = story::run(seed, false).breaches;
    assert!(without.is_empty(), "seed {seed} breaks without it, too: {without:?}");
}

#[test]
fn a_lost_answer_that_is_taken_for_a_failure_is_found() {
    is_found("a lost answer taken for a failure", Some(Bug::LostAnswerIsFailure), 1, "orphan: ");
}

#[test]
fn a_stale_list_is_found() {
    is_found("a stale list", Some(Bug::StaleList), 52, "idle: ");
}

#[test]
fn a_budget_that_is_off_by_one_is_found() {
    is_found("a budget off by one", Some(Bug::BudgetOffByOne), 3, "budget: ");
}

#[test]
fn a_token_that_is_used_twice_is_found() {
    is_found("a token used twice", None, 1, "one machine for two: ");
}

#[test]
fn an_unfenced_errand_is_found() {
    is_found("an unfenced errand", Some(Bug::UnfencedErrand), 27, "unfenced: ");
}

#[test]
fn a_forgotten_rollback_is_found() {
    is_found("a forgotten rollback", Some(Bug::ForgottenRollback), 13, "still marked to go");
}
