//! Whatever stands in a dump becomes facts or notes, never a panic; and looking twice shows the same.

#![no_main]

#[path = "../checks/dump.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|text: &str| checks::check(text));
