//! `cargo xtask test --long [PART]`: what is long by nature, and so no part of every run.

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::counts::{Counts, Skipped};
use crate::{differential, fuzz, toolbox};

const NO_GO: &str = "no go on PATH";

/// What `--long` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Half an hour of the rehearsal's seeds: faults between any two writes.
    Seeds,
    /// Scale-ups on a real cluster beside 300 pods that a budget holds, measured against the same without them (needs Go).
    Held,
    /// A thousand generated clusters, asked of Karpenter's scheduler and of ours (needs Go).
    Differential,
    /// Ten thousand objects of each kind and version that upstream published, there and back (needs Go).
    Conversions,
    /// Ten minutes of nonsense for each parser.
    Fuzz,
}

#[derive(Debug)]
enum Outcome {
    Ran,
    Skipped(String),
}

pub(super) fn run(part: Option<Part>, no_skips: bool) -> Result<()> {
    let parts = part.map_or_else(|| Part::value_variants().to_vec(), |part| vec![part]);
    for known in Part::value_variants() {
        println!("{} {}", if parts.contains(known) { "●" } else { "○" }, known.told());
    }
    let mut lines = Vec::new();
    let (mut n_failed, mut n_skipped) = (0, 0);
    for part in parts {
        println!("\n── {}", part.name());
        let began = Instant::now();
        let outcome = match part.run() {
            Ok(Outcome::Ran) => "passed".to_owned(),
            Ok(Outcome::Skipped(reason)) => {
                n_skipped += 1;
                format!("skipped: {reason}")
            }
            Err(error) => {
                n_failed += 1;
                format!("FAILED: {error:#}")
            }
        };
        lines.push(format!("{}: {outcome}, after {:.0} s", part.name(), began.elapsed().as_secs_f64()));
    }
    println!("\n── what ran");
    for line in &lines {
        println!("{line}");
    }
    if n_failed > 0 {
        bail!("{n_failed} failed");
    }
    if no_skips && n_skipped > 0 {
        bail!("{n_skipped} skipped, and nothing may be");
    }
    Ok(())
}

impl Part {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    fn told(self) -> String {
        let help = self.to_possible_value().and_then(|value| value.get_help().map(ToString::to_string));
        format!("{:<13}{}", self.name(), help.unwrap_or_default())
    }

    fn run(self) -> Result<Outcome> {
        match self {
            Self::Seeds => test("kerf-simulation", &["--test", "seeds"], &[], &[("KERF_SEEDS_SECONDS", "1800")]),
            Self::Held if !has_go() => Ok(Outcome::Skipped(NO_GO.to_owned())),
            Self::Held => test("kerf-e2e", &["--test", "operator"], &["held"], &[("KERF_LONG", "1")]),
            Self::Differential if !has_go() => Ok(Outcome::Skipped(NO_GO.to_owned())),
            Self::Differential => differential::long().map(|()| Outcome::Ran),
            Self::Conversions if !has_go() => Ok(Outcome::Skipped(NO_GO.to_owned())),
            Self::Conversions => {
                let folders = published_crds()?;
                let envs = [("KERF_PUBLISHED_CRDS", folders.as_str()), ("PROPTEST_CASES", "10000")];
                test("kerf-api", &["--lib", "--features", "published"], &["published"], &envs)
            }
            Self::Fuzz => fuzz::long().map(|()| Outcome::Ran),
        }
    }
}

/// A test program of ours, built with optimisation: it runs for long.
fn test(package: &str, target: &[&str], words: &[&str], envs: &[(&str, &str)]) -> Result<Outcome> {
    let folder = toolbox::target_folder().join("tests");
    let skipped = folder.join("skipped-long");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(&skipped, "").with_context(|| format!("cannot write {}", skipped.display()))?;
    let mut command = toolbox::cargo();
    command.args(["test", "--locked", "--release", "--package", package]).args(target).arg("--").args(words);
    command.arg("--nocapture").envs(envs.iter().copied());
    let repeat = toolbox::typed(&command);
    command.env(kerf_e2e::skipped::FILE, &skipped).stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("`{repeat}` does not start"))?;
    let mut counts = Counts::default();
    for line in child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
        let line = line.with_context(|| format!("`{repeat}` cannot be heard"))?;
        println!("{line}");
        counts.read(&line);
    }
    let status = child.wait().with_context(|| format!("`{repeat}` does not end"))?;
    counts.read_skips(&fs::read_to_string(&skipped).context("the list of what was skipped is gone")?);
    judge(status.success(), &counts).with_context(|| format!("to repeat it alone: {repeat}"))
}

/// A program that ran nothing has not passed.
fn judge(has_succeeded: bool, counts: &Counts) -> Result<Outcome> {
    match counts.skipped.first() {
        _ if !has_succeeded => bail!("{} failed", counts.failed),
        Some(Skipped { what, reason, .. }) => Ok(Outcome::Skipped(format!("{what}: {reason}"))),
        None if counts.passed == 0 => bail!("no test ran"),
        None => Ok(Outcome::Ran),
    }
}

/// Folders with the CRDs that upstream published of v1beta1 and of both versions, separated by colons.
fn published_crds() -> Result<String> {
    let mut folders = Vec::new();
    for module in ["github.com/aws/karpenter@v0.32.1", "github.com/aws/karpenter-provider-aws@v1.0.8"] {
        let output =
            Command::new("go").args(["mod", "download", "-json", module]).output().context("go does not start")?;
        let told: serde_json::Value =
            serde_json::from_slice(&output.stdout).context("go says something else than JSON")?;
        let folder = told["Dir"].as_str().with_context(|| format!("{module} cannot be fetched: {}", told["Error"]))?;
        folders.push(format!("{folder}/pkg/apis/crds"));
    }
    Ok(folders.join(":"))
}

fn has_go() -> bool {
    Command::new("go").arg("version").output().is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_passed_only_when_something_ran_and_nothing_was_left_out() {
        let ran = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.00s";
        let none = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.00s";
        let left_out = ["test held ... ignored, KERF_LONG is not set", ran];
        let judged = |lines: &[&str], has_succeeded| {
            let mut counts = Counts::default();
            lines.iter().for_each(|line| counts.read(line));
            judge(has_succeeded, &counts)
        };
        assert!(matches!(judged(&[ran], true), Ok(Outcome::Ran)));
        assert!(judged(&[ran], false).is_err() && judged(&[none], true).is_err());
        assert!(matches!(judged(&left_out, true), Ok(Outcome::Skipped(reason)) if reason.contains("KERF_LONG")));
    }
}
