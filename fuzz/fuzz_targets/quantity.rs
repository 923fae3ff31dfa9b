//! A quantity that can be read can be written, and reads the same again.

#![no_main]

#[path = "../checks/quantity.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|text: &str| checks::check(text));
