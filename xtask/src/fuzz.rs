//! `cargo xtask fuzz`: nonsense in, no panic out.
//!
//! Fuzzing needs compiler flags that are unstable. Instead of a nightly toolchain, which a machine may not have and which
//! changes by the day, the stable compiler is told to accept them: `RUSTC_BOOTSTRAP=1`. Nothing built this way leaves the
//! machine. The targets live in a workspace of their own under `fuzz/`, so that neither their flags nor their
//! dependencies reach the product.

use crate::toolbox::{self, Tool};
use anyhow::{Context as _, Result, bail};
use std::path::Path;
use std::process::Command;

const CARGO_FUZZ: Tool = Tool { name: "cargo-fuzz", version: "0.13.2", flags: &[] };

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long each target runs.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Only this target (a file under fuzz/fuzz_targets).
    #[arg(long)]
    target: Option<String>,
}

/// Every target for ten minutes.
pub(crate) fn long() -> Result<()> {
    run(&Args { seconds: 600, target: None })
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let binary = CARGO_FUZZ.prepare()?;
    let folder = toolbox::workspace().join("fuzz");
    let known = targets(&folder)?;
    let chosen: Vec<&String> =
        known.iter().filter(|name| args.target.as_ref().is_none_or(|wanted| wanted == *name)).collect();
    if chosen.is_empty() {
        bail!("there is no such target; there are {}", known.join(", "));
    }
    for name in chosen {
        println!("\n── {name}, {} s", args.seconds);
        fuzz(&binary, &folder, name, args.seconds)?;
    }
    Ok(())
}

fn targets(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder.join("fuzz_targets")).context("listing the targets")?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.context("listing the targets")?.path();
        if let Some(name) = path.file_stem() {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Finds go into `fuzz/corpus`, which stays on the machine; `fuzz/seeds` are the committed starting points.
fn fuzz(binary: &Path, folder: &Path, name: &str, seconds: u64) -> Result<()> {
    let found = folder.join("corpus").join(name);
    std::fs::create_dir_all(&found).context("making the corpus folder")?;
    let status = Command::new(binary)
        .current_dir(folder)
        .env("RUSTC_BOOTSTRAP", "1")
        .args(["fuzz", "run", name])
        .arg(&found)
        .arg(folder.join("seeds").join(name))
        .arg("--")
        .arg(format!("-max_total_time={seconds}"))
        // A document larger than this teaches nothing that a smaller one does not.
        .arg("-max_len=8192")
        .arg("-timeout=10")
        .status()
        .context("cargo-fuzz does not start")?;
    if !status.success() {
        bail!(
            "target `{name}` failed; the input is under fuzz/artifacts/{name}. Keep it as a table row beside the code"
        );
    }
    Ok(())
}
