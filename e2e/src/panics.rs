//! Panics of tests that run beside each other: kept for the list of failures, place and words, instead of told at once.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on, in the whole process.
pub fn keep() {
    panic::set_hook(Box::new(|panic| LAST.set(panic.to_string())));
}

/// What `play` answers; the error is its panic.
pub fn caught<T>(play: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(play)).map_err(|_| LAST.take())
}

/// Runs `play`, then `clean_up` however it went, then goes on as `play` ended.
pub fn and_then_surely(play: impl FnOnce(), clean_up: impl FnOnce()) {
    let outcome = catch_unwind(AssertUnwindSafe(play));
    let words = LAST.take();
    clean_up();
    LAST.set(words);
    if let Err(panic) = outcome {
        panic::resume_unwind(panic);
    }
}
