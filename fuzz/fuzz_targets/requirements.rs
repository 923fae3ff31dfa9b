//! The algebra of requirements, on whatever can be written down: one requirement per line, an operator and its values.

#![no_main]

#[path = "../checks/requirements.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|text: &str| checks::check(text));
