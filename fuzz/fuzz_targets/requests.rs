//! The request path of the control plane over raw requests.

#![no_main]

#[path = "../checks/requests.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|text: &str| checks::check(text));
