//! `cargo xtask test --long [PART]`: what is long by nature, and so no part of every run.

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use std::process::Command;
use std::time::Instant;

use crate::{differential, fuzz, toolbox};

/// What `--long` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Half an hour of the rehearsal's seeds: faults between any two writes.
    Seeds,
    /// Scale-ups on a real cluster beside 300 pods that a budget holds, measured against the same without them (needs Go).
    Held,
    /// A thousand generated clusters, asked of Karpenter's scheduler and of ours (needs Go).
    Differential,
    /// Ten minutes of nonsense for each parser.
    Fuzz,
}

enum Outcome {
    Ran,
    Skipped(&'static str),
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
            Self::Seeds => test("kerf-simulation", "seeds", &[], &[("KERF_SEEDS_SECONDS", "1800")]),
            Self::Held if !has_go() => Ok(Outcome::Skipped("no go on PATH")),
            Self::Held => test("kerf-e2e", "operator", &["held"], &[("KERF_LONG", "1")]),
            Self::Differential if !has_go() => Ok(Outcome::Skipped("no go on PATH")),
            Self::Differential => differential::long().map(|()| Outcome::Ran),
            Self::Fuzz => fuzz::long().map(|()| Outcome::Ran),
        }
    }
}

/// A test program of ours, built with optimisation: it runs for long.
fn test(package: &str, target: &str, words: &[&str], envs: &[(&str, &str)]) -> Result<Outcome> {
    let mut command = toolbox::cargo();
    command.args(["test", "--locked", "--release", "--package", package, "--test", target, "--"]).args(words);
    command.arg("--nocapture").envs(envs.iter().copied());
    let status = command.status().with_context(|| format!("`{}` does not start", toolbox::typed(&command)))?;
    if !status.success() {
        bail!("to repeat it alone: {}", toolbox::typed(&command));
    }
    Ok(Outcome::Ran)
}

fn has_go() -> bool {
    Command::new("go").arg("version").output().is_ok_and(|output| output.status.success())
}
