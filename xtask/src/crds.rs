//! `cargo xtask crds`: the CRDs under `deploy/crds`, generated, committed, and compared.

use crate::toolbox;
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeSet;
use std::fs;

const FOLDER: &str = "deploy/crds";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Writes nothing; fails when the committed files are not what would be written.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match args.check {
        true => check(),
        false => write(),
    }
}

fn write() -> Result<()> {
    let folder = toolbox::workspace().join(FOLDER);
    let paths = kerf_api::write_crds(&folder).with_context(|| format!("writing {FOLDER}"))?;
    println!("{} CRDs written into {FOLDER}", paths.len());
    Ok(())
}

pub(crate) fn check() -> Result<()> {
    let folder = toolbox::workspace().join(FOLDER);
    let mut expected = BTreeSet::new();
    let mut stale = Vec::new();
    for (name, generated) in kerf_api::crd_files() {
        let committed = fs::read_to_string(folder.join(&name)).unwrap_or_default();
        if committed != generated {
            stale.push(name.clone());
        }
        expected.insert(name);
    }
    for entry in fs::read_dir(&folder).with_context(|| format!("listing {FOLDER}"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !expected.contains(&name) {
            stale.push(format!("{name} (nothing generates it)"));
        }
    }
    if !stale.is_empty() {
        bail!("{FOLDER} is not what the code says: {}; run `cargo xtask crds` and commit the result", stale.join(", "));
    }
    println!("{} CRDs in {FOLDER} are what the code generates", expected.len());
    Ok(())
}
