//! The request path of the control plane over raw requests.

#![no_main]

#[path = "../checks/requests.rs"]
mod checks;
#[path = "../checks/control_plane.rs"]
mod control_plane;

libfuzzer_sys::fuzz_target!(|text: &str| checks::check(text));
