//! Chance: a test that fails is tried once more, on a cluster of its own, and what happened is never kept quiet.
//!
//! ```text
//! first ─ passes ─▶ passed
//!   └─ fails ─▶ again ─ passes ─▶ passed, told loudly and counted: "failed once, passed when repeated"
//!                 └─ fails ─▶ failed, with both stories
//! ```
//!
//! Six programs share a small machine in these tests, and now and then one of them starves. A defect of ours fails twice. Where many
//! fail, it is not chance, and nothing is repeated any more.

use std::sync::{Mutex, PoisonError};

use crate::control_plane::build;

/// More repetitions than this on one stage are no bad luck.
const REPEATED_MAX: usize = 5;

/// The second tries of one stage.
#[derive(Default)]
pub struct Repeats {
    /// Held while one is tried again: a cluster of its own is enough for a small machine.
    tried: Mutex<Vec<Tried>>,
}

struct Tried {
    name: String,
    has_passed: bool,
}

impl Repeats {
    /// Runs `first`, and `again` if that fails.
    pub fn run<T>(
        &self,
        name: &str,
        first: impl FnOnce() -> Result<T, String>,
        again: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        let story = match first() {
            Ok(passed) => return Ok(passed),
            Err(story) => story,
        };
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        if tried.len() >= REPEATED_MAX {
            return Err(format!(
                "{story}\n(not repeated: {REPEATED_MAX} others failed here before, so it is not chance)"
            ));
        }
        build::to_stderr(&format!("!!! {name}: failed, and is repeated on a cluster of its own:\n{story}"));
        let outcome = again();
        tried.push(Tried { name: name.to_owned(), has_passed: outcome.is_ok() });
        match outcome {
            Ok(passed) => {
                build::to_stderr(&format!("!!! {name}: failed once, passed when repeated"));
                Ok(passed)
            }
            Err(second) => Err(format!("{story}\nfailed again when repeated on a cluster of its own:\n{second}")),
        }
    }

    /// For the summary: nothing where nothing failed once and passed then.
    pub fn told(&self) -> String {
        let tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<&str> = tried.iter().filter(|tried| tried.has_passed).map(|tried| tried.name.as_str()).collect();
        match names.as_slice() {
            [] => String::new(),
            names => format!(", {} of them failed once, passed when repeated: {}", names.len(), names.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no(story: &str) -> Result<(), String> {
        Err(story.to_owned())
    }

    #[test]
    fn what_passes_is_not_repeated() {
        let repeats = Repeats::default();
        assert_eq!(repeats.run("a", || Ok(1), || unreachable!("it has passed")), Ok(1));
        assert_eq!(repeats.told(), "");
    }

    #[test]
    fn what_fails_once_passes_and_is_counted() {
        let repeats = Repeats::default();
        assert_eq!(repeats.run("a", || Err("bad luck".to_owned()), || Ok(2)), Ok(2));
        assert_eq!(repeats.told(), ", 1 of them failed once, passed when repeated: a");
    }

    #[test]
    fn what_fails_twice_fails_with_both_stories() {
        let repeats = Repeats::default();
        let story = repeats.run("a", || no("first"), || no("second")).unwrap_err();
        assert!(story.starts_with("first\n") && story.ends_with("\nsecond"), "{story}");
        assert_eq!(repeats.told(), "");
    }

    #[test]
    fn where_many_fail_it_is_not_chance() {
        let repeats = Repeats::default();
        for _ in 0..REPEATED_MAX {
            assert_eq!(repeats.run("a", || no("first"), || Ok(())), Ok(()));
        }
        let story = repeats.run("b", || no("first"), || Ok(())).unwrap_err();
        assert!(story.contains("not chance"), "{story}");
    }
}
