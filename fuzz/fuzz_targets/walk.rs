//! The request path of the control plane over requests that almost make sense.

#![no_main]

#[path = "../checks/walk.rs"]
mod checks;
#[path = "../checks/control_plane.rs"]
mod control_plane;

libfuzzer_sys::fuzz_target!(|input: &[u8]| checks::check(input));
