//! Label selectors: the order of their terms does not matter, and one more term never selects more.

#![no_main]

#[path = "../checks/selector.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|text: &str| checks::check(text));
