//! Bugs on purpose: each is found within two hundred seeds, by the law that it breaks.

use crate::story;
use kerf_controllers::planted::{Bug, plant};
use std::fmt::Write as _;
use std::io::Write as _;

const SEEDS_MAX: u64 = 200;

/// Tries seeds until one breaks. `what` is planted on this thread, which runs the whole story.
#[track_caller]
fn is_found(what: &str, bug: Option<Bug>, law: &str) {
    plant(bug);
    let shares_tokens = bug.is_none();
    let found = (1..=SEEDS_MAX)
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
}

#[test]
fn a_lost_answer_that_is_taken_for_a_failure_is_found() {
    is_found("a lost answer taken for a failure", Some(Bug::LostAnswerIsFailure), "orphan: ");
}

#[test]
fn a_stale_list_is_found() {
    is_found("a stale list", Some(Bug::StaleList), "");
}

#[test]
fn a_budget_that_is_off_by_one_is_found() {
    is_found("a budget off by one", Some(Bug::BudgetOffByOne), "budget: ");
}

#[test]
fn a_token_that_is_used_twice_is_found() {
    is_found("a token used twice", None, "one machine for two: ");
}
