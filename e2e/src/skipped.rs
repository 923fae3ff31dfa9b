//! Tests that could not run here, counted: a tier that this machine cannot have must not look as if it had passed.
//!
//! A suite with its own harness says `ignored`; a plain `#[test]` can only return, and says it here.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::thread;

use crate::control_plane::build;

/// The file in which `cargo xtask test` collects what was skipped: a line per tier, `tests TAB what TAB reason TAB test`, the last being the
/// name of the test that said so.
pub const FILE: &str = "KERF_SKIPPED";

/// Says aloud that `n_tests` did not run, and why, and has it counted where somebody counts.
///
/// # Panics
///
/// When the count cannot be kept: nobody would hear of the skip.
pub fn tell(n_tests: usize, what: &str, reason: &str) {
    build::to_stderr(&format!("skipped: {reason}: {what}"));
    if let Some(file) = std::env::var_os(FILE) {
        // A test runs on a thread of its name.
        let thread = thread::current();
        note(Path::new(&file), n_tests, &[what, reason, thread.name().unwrap_or_default()]);
    }
}

fn note(file: &Path, n_tests: usize, columns: &[&str]) {
    let line = format!("{n_tests}\t{}\n", columns.join("\t"));
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        // In one write: several test processes share the file.
        .and_then(|mut file| file.write_all(line.as_bytes()));
    assert!(written.is_ok(), "cannot count a skipped test in {}: {written:?}", file.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_skip_is_a_line_with_its_count_and_reason() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("skipped");
        note(&file, 1, &["a visit", "no python3", "a_test"]);
        note(&file, 20, &["some cases", "no go", ""]);
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text, "1\ta visit\tno python3\ta_test\n20\tsome cases\tno go\t\n");
    }
}
