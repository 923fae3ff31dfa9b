//! What the documents promise of the engine, one test per line, each named after it.
//!
//! The documents are those of the people who come to us; the lines are numbered in our reading of them. A test gives
//! the binary the YAML a reader would apply (in its v1 form; where the document is of an older generation, GEN says so)
//! and looks at the plan.

#[path = "documents/cluster.rs"]
mod cluster;
#[path = "documents/guides.rs"]
mod guides;
#[path = "documents/overview.rs"]
mod overview;

use std::io::Write;

/// Every line whose area is the engine.
const LINES: [&str; 22] = [
    "D0.4", "D0.6", "D0.7", "D0.9", "D0.51", "D0.52", "D0.74", "D0.79", "D0.80", "D0.81", "D0.82", "D0.90", "D0.92",
    "D1.26", "D1.28", "D2.1", "D3.13", "D3.17", "D3.37", "D3.38", "D4.10", "D4.11",
];

#[test]
fn every_engine_line_of_the_documents_has_its_test() {
    let source = [include_str!("documents/overview.rs"), include_str!("documents/guides.rs")].concat();
    let has_test = |line: &str| {
        let name = line.to_lowercase().replace('.', "_");
        source.contains(&format!("#[test]\nfn {name}_"))
    };
    let missing: Vec<&str> = LINES.into_iter().filter(|line| !has_test(line)).collect();
    assert!(missing.is_empty(), "without a test: {missing:?}");
    let n_tests = source.matches("#[test]\nfn d").count();
    assert_eq!(n_tests, LINES.len(), "a test is named after no line, or two after one");
    // Not by `print!`, which the test runner keeps to itself.
    writeln!(std::io::stdout(), "documents: {} engine lines tested", LINES.len()).expect("stdout is open");
}
