//! `cargo xtask ci`, which is also `cargo xtask test`: everything that must hold before a change goes in.
//!
//! Stages run in the order in which they tell most for their time. The first that fails ends the run and says how to
//! repeat it alone.

use crate::toolbox::{self, Tool};
use crate::{crds, tidy};
use anyhow::{Context as _, Result, bail};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Looks at licences, bans and sources. It could look at advisories too, but their database is a Git repository of its
/// own, and a check that needs the network fails on the wrong days.
const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };

/// Everything is checked with the AWS SDK built in, once: what the playground leaves out is still ours.
const FEATURES: [&str; 2] = ["--features", "kerf-cli/aws"];

pub(crate) fn run() -> Result<()> {
    let started = Instant::now();
    let mut tests = Tests::default();
    let mut remarks = Vec::new();
    stage("format", || call(toolbox::cargo().args(["fmt", "--all", "--check"])))?;
    stage("clippy", || {
        let mut clippy = toolbox::cargo();
        clippy.args(["clippy", "--workspace", "--all-targets", "--locked", "--quiet"]).args(FEATURES);
        call(clippy.args(["--", "-D", "warnings"]))
    })?;
    stage("tidy", tidy::run)?;
    stage("tests", || {
        // The tests that start `kerf` as a process take the one that was built with them.
        let kerf = toolbox::target_folder().join("debug/kerf");
        let mut command = toolbox::cargo();
        command.args(["test", "--workspace", "--locked"]).args(FEATURES);
        tests = call_tests(command.env("KERF_BINARY", &kerf).env("KERF_AWS_BINARY", &kerf))?;
        Ok(())
    })?;
    stage("docs", || {
        call(
            toolbox::cargo()
                .args(["doc", "--workspace", "--no-deps", "--locked", "--quiet"])
                .args(FEATURES)
                .env("RUSTDOCFLAGS", "-D warnings"),
        )
    })?;
    stage("deny", || {
        remarks.extend(deny()?);
        Ok(())
    })?;
    stage("generated files", crds::check)?;
    println!("\n── all stages passed in {}", seconds(started));
    for line in tests.summaries.iter().chain(&tests.twins) {
        println!("{line}");
    }
    println!(
        "tests: {} passed, {} failed, {} ignored; named after a line of the five documents: {}",
        tests.passed, tests.failed, tests.ignored, tests.of_documents
    );
    for remark in remarks {
        println!("note: {remark}");
    }
    Ok(())
}

fn stage(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("\n── {name}");
    let started = Instant::now();
    work().with_context(|| format!("stage `{name}` failed after {}", seconds(started)))?;
    println!("── {name}: passed in {}", seconds(started));
    Ok(())
}

fn seconds(started: Instant) -> String {
    format!("{:.1} s", started.elapsed().as_secs_f64())
}

fn call(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("`{}` does not start", toolbox::typed(command)))?;
    if !status.success() {
        bail!("to repeat it alone: {}", toolbox::typed(command));
    }
    Ok(())
}

/// What the test run said.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tests {
    /// Cargo's own lines, one per test binary that had something to run.
    summaries: Vec<String>,
    passed: usize,
    failed: usize,
    ignored: usize,
    of_documents: usize,
    /// What the twin tests and those on an emulated AWS say of their stages.
    twins: Vec<String>,
}

/// Runs the tests, shows what they print, and keeps count.
fn call_tests(command: &mut Command) -> Result<Tests> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("`{}` does not start", toolbox::typed(command)))?;
    let stdout = child.stdout.take().context("the child has no stdout")?;
    let mut tests = Tests::default();
    for line in BufReader::new(stdout).lines() {
        let line = line.context("the test output cannot be read")?;
        println!("{line}");
        tests.read(&line);
    }
    let status = child.wait().context("the tests do not end")?;
    if !status.success() {
        bail!("to repeat it alone: {}", toolbox::typed(command));
    }
    Ok(tests)
}

impl Tests {
    /// One line of `cargo test`.
    fn read(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... ok")) {
            let name = name.rsplit("::").next().unwrap_or(name);
            self.of_documents += usize::from(is_of_documents(name));
        }
        if ["twin tests on ", "aws tests on ", "operator tests"].iter().any(|begin| line.starts_with(begin)) {
            self.twins.push(line.to_owned());
        }
        if !line.starts_with("test result: ") {
            return;
        }
        let count = |what: &str| {
            line.split([';', '.'])
                .filter_map(|part| part.trim().strip_suffix(what))
                .find_map(|number| number.trim().parse::<usize>().ok())
                .unwrap_or(0)
        };
        let (passed, failed, ignored) = (count("passed"), count("failed"), count("ignored"));
        self.passed += passed;
        self.failed += failed;
        self.ignored += ignored;
        if passed + failed + ignored > 0 {
            self.summaries.push(line.to_owned());
        }
    }
}

/// Named after a line of the five documents: `d0_81_…`.
fn is_of_documents(name: &str) -> bool {
    let mut parts = name.split('_');
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    parts.next().and_then(|part| part.strip_prefix('d')).is_some_and(is_number) && parts.next().is_some_and(is_number)
}

fn deny() -> Result<Option<String>> {
    let binary = match DENY.prepare() {
        Ok(binary) => binary,
        Err(error) => {
            return Ok(Some(format!("licences, bans and sources were not looked at: {error:#}")));
        }
    };
    let mut command = Command::new(binary);
    command
        .current_dir(toolbox::workspace())
        .args(["--locked", "--log-level", "error"])
        .args(["check", "bans", "licenses", "sources"]);
    call(&mut command)?;
    Ok(Some("advisories are not part of this run: `cargo deny check advisories` fetches their database".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_all_test_binaries_are_summed() {
        let mut tests = Tests::default();
        for line in [
            "running 3 tests",
            "test quantity::tests::d0_81_a_name ... ok",
            "test d2_12_other ... ok",
            "test d2_words_only ... ok",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "twin tests on real: 3 passed, 0 failed",
            "test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s",
        ] {
            tests.read(line);
        }
        assert_eq!((tests.passed, tests.failed, tests.ignored, tests.of_documents), (7, 2, 1, 2));
        assert_eq!(tests.summaries.len(), 2, "empty binaries are left out");
        assert_eq!(tests.twins, ["twin tests on real: 3 passed, 0 failed"]);
    }

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("/somewhere/bin/cargo");
        command.args(["doc", "--workspace"]).env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(toolbox::typed(&command), "RUSTDOCFLAGS=\"-D warnings\" cargo doc --workspace");
    }
}
