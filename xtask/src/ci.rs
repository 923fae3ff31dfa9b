//! `cargo xtask test`: everything that must hold before a change goes in.
//!
//! ```text
//! format ─▶ tidy ─▶ generated files ─▶ clippy ─▶ build ─▶ tests, docs, licences: two lanes (jobs) ─▶ last lines
//!    └─ meanwhile: Go parts and tools that are not on this machine yet (ahead)
//! ```
//!
//! Stages run in the order in which they tell most for their time. The first that fails ends the run and says how to
//! repeat it alone; of the tests, all run, and each that failed is named.

mod ahead;
mod counts;
mod documents;
mod jobs;
mod long;
mod suites;

use crate::toolbox;
use crate::{crds, tidy};
use ahead::Ahead;
use anyhow::{Context as _, Result, bail};
use counts::{Counts, Skipped};
use jobs::{Ended, Job, Lane};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Everything is checked with the AWS SDK built in, once: what the playground leaves out is still ours.
const FEATURES: [&str; 2] = ["--features", "kerf-cli/aws"];

/// What takes less is not worth a line of its own.
const WORTH_A_LINE: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Fails when anything was skipped, too: what CI asks for.
    #[arg(long)]
    no_skips: bool,
    /// Runs what is long by nature instead: all of it, or one part. Without the machine for a part, it is skipped.
    #[arg(long, value_name = "PART", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "no flag, a flag alone, a flag with a part")]
    long: Option<Option<long::Part>>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(part) = args.long {
        return long::run(part, args.no_skips);
    }
    let mut run = Run { began: Instant::now(), stages: Vec::new() };
    run.stage("format", || call(toolbox::cargo().args(["fmt", "--all", "--check"])))?;
    let ahead = Ahead::start();
    run.stage("tidy", tidy::run)?;
    run.stage("generated files", crds::check)?;
    run.stage("clippy", || {
        let mut clippy = toolbox::cargo();
        clippy.args(["clippy", "--workspace", "--all-targets", "--locked", "--quiet"]).args(FEATURES);
        call(clippy.args(["--", "-D", "warnings"]))
    })?;
    let suites = run.stage("build", suites::build)?;
    let ready = run.stage("tools and Go parts", || ahead.wait())?;

    let folder = toolbox::target_folder().join("tests");
    let skipped = folder.join("skipped");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(&skipped, "").with_context(|| format!("cannot write {}", skipped.display()))?;
    let mut work: Vec<Job> = suites.iter().map(|suite| suite.job(&skipped)).collect();
    work.extend(checks(ready.deny.as_deref().ok()));
    let ended = run.stage("tests, docs, licences", || jobs::run(work, &folder, told))?;

    let mut counts = Counts::default();
    for line in ended.iter().flat_map(|ended| ended.output.lines()) {
        counts.read(line);
    }
    counts.read_skips(&fs::read_to_string(&skipped).context("the list of what was skipped is gone")?);
    if let Err(reason) = &ready.deny {
        let what = "licences, bans and sources".to_owned();
        counts.skipped.push(Skipped { n_tests: 1, what, reason: reason.clone() });
    }
    run.last_lines(&ended, &counts)?;
    conclude(&ended, &counts, args.no_skips)
}

/// What computes beside the tests.
fn checks(deny: Option<&Path>) -> Vec<Job> {
    let cargo = |words: &[&str]| {
        let mut command = toolbox::cargo();
        command.args(words).args(FEATURES);
        command
    };
    let mut docs = cargo(&["doc", "--workspace", "--no-deps", "--locked", "--quiet"]);
    docs.env("RUSTDOCFLAGS", "-D warnings");
    let mut checks = vec![
        ("examples in the documentation", cargo(&["test", "--doc", "--workspace", "--locked"])),
        ("documentation", docs),
    ];
    if let Some(deny) = deny {
        let mut command = Command::new(deny);
        command
            .current_dir(toolbox::workspace())
            .args(["--locked", "--log-level", "error"])
            .args(["check", "bans", "licenses", "sources"]);
        checks.push(("licences, bans and sources", command));
    }
    checks
        .into_iter()
        .map(|(name, command)| Job {
            name: name.to_owned(),
            repeat: toolbox::typed(&command),
            command: suites::polite(Lane::Cores, command),
            lane: Lane::Cores,
        })
        .collect()
}

/// A program has ended: a line, and everything it said if it failed.
fn told(ended: &Ended) {
    let took = seconds(ended.took);
    match &ended.failure {
        None => println!("   {}: passed in {took}", ended.name),
        Some(failure) => {
            println!(
                "{}\n   {}: FAILED after {took}: {failure}\n   to repeat it alone: {}",
                ended.output, ended.name, ended.repeat
            );
        }
    }
}

/// How a run goes.
struct Run {
    began: Instant,
    stages: Vec<(&'static str, Duration)>,
}

impl Run {
    fn stage<T>(&mut self, name: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("\n── {name}");
        let began = Instant::now();
        let done = work().with_context(|| format!("stage `{name}` failed after {}", seconds(began.elapsed())))?;
        println!("── {name}: done in {}", seconds(began.elapsed()));
        self.stages.push((name, began.elapsed()));
        Ok(done)
    }

    fn last_lines(&self, ended: &[Ended], counts: &Counts) -> Result<()> {
        println!("\n── stages");
        for (name, took) in &self.stages {
            println!("{:>9}  {name}", seconds(*took));
        }
        println!("{:>9}  in all", seconds(self.began.elapsed()));
        println!("\n── test programs and checks of {} and more", seconds(WORTH_A_LINE));
        let mut slow: Vec<&Ended> = ended.iter().filter(|ended| ended.took >= WORTH_A_LINE).collect();
        slow.sort_by_key(|ended| std::cmp::Reverse(ended.took));
        for ended in slow {
            println!("{:>9}  {}", seconds(ended.took), ended.name);
        }
        println!("\n── lines of the five documents");
        let differences = toolbox::workspace().join("docs/differences.md");
        let differences = fs::read_to_string(&differences).context("docs/differences.md cannot be read")?;
        for area in documents::areas(&counts.of_documents, &differences) {
            println!(
                "{:>14}: {:>2} of {:>2} with a test, {} with a written difference alone, {} with neither",
                area.name,
                area.n_tested,
                area.n_lines(),
                area.n_different,
                area.open.len()
            );
        }
        println!();
        for remark in &counts.remarks {
            println!("{remark}");
        }
        println!("advisories are not part of this run: `cargo deny check advisories` fetches their database");
        for Skipped { n_tests, what, reason } in &counts.skipped {
            println!(
                "skipped: {what}: {reason}{}",
                if *n_tests > 1 { format!(" ({n_tests} tests)") } else { String::new() }
            );
        }
        println!("tests: {} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.n_skipped());
        Ok(())
    }
}

fn conclude(ended: &[Ended], counts: &Counts, no_skips: bool) -> Result<()> {
    let failed: Vec<String> = ended
        .iter()
        .filter(|ended| ended.failure.is_some())
        .map(|ended| format!("{}, to repeat it alone: {}", ended.name, ended.repeat))
        .collect();
    if !failed.is_empty() {
        bail!("{} failed:\n  {}", failed.len(), failed.join("\n  "));
    }
    if counts.passed == 0 {
        bail!("no test ran");
    }
    if no_skips && counts.n_skipped() > 0 {
        bail!("{} skipped, and nothing may be: the reasons are above", counts.n_skipped());
    }
    Ok(())
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

fn call(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("`{}` does not start", toolbox::typed(command)))?;
    if !status.success() {
        bail!("to repeat it alone: {}", toolbox::typed(command));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_fails_the_run_only_where_nothing_may_be_skipped() {
        let skipped = Skipped { n_tests: 1, what: "a visit".to_owned(), reason: "no go on PATH".to_owned() };
        let counts = Counts { passed: 3, skipped: vec![skipped], ..Counts::default() };
        assert!(conclude(&[], &counts, false).is_ok());
        assert!(conclude(&[], &counts, true).unwrap_err().to_string().starts_with("1 skipped"));
        assert!(conclude(&[], &Counts::default(), false).is_err(), "a run without tests has not passed");
    }

    #[test]
    fn a_program_that_failed_is_named_with_the_command_that_repeats_it() {
        let ended = Ended {
            name: "kerf-api lib".to_owned(),
            took: Duration::ZERO,
            repeat: "cargo test -p kerf-api --lib".to_owned(),
            output: String::new(),
            failure: Some("exit status: 101".to_owned()),
        };
        let error = conclude(&[ended], &Counts { passed: 1, ..Counts::default() }, false).unwrap_err().to_string();
        assert!(error.contains("kerf-api lib") && error.contains("cargo test -p kerf-api --lib"), "{error}");
    }

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("/somewhere/bin/cargo");
        command.args(["doc", "--workspace"]).env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(toolbox::typed(&command), "RUSTDOCFLAGS=\"-D warnings\" cargo doc --workspace");
    }
}
