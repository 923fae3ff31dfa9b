//! The peer's scheduler and ours, asked about three hundred generated clusters. The work is `cargo xtask differential`; this
//! is its place among the tests.

use std::process::Command;

#[test]
fn every_pod_that_only_one_of_the_two_places_is_explained() {
    // What it says goes past the test harness to whoever runs the tests: a skipped comparison is seen.
    let status = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("differential").status().expect("xtask starts");
    assert!(status.success(), "to repeat it alone: cargo xtask differential");
}
