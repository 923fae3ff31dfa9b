//! The request path of the control plane over requests that almost make sense.

#![no_main]

#[path = "../checks/walk.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| checks::check(input));
