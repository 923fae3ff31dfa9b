//! `cargo xtask tidy`: which way the doors open, checked.
//!
//! ```text
//! cargo metadata ─▶ arrows    who leans on whom; the table is the one of docs/ARCHITECTURE.md
//! cargo tree     ─▶ arrows    what the quiet rooms bring along
//! source files   ─▶ text      length, openings, things left for later
//! ```

mod arrows;
mod text;

use crate::toolbox;
use anyhow::{Context as _, Result, bail};
use std::path::Path;

pub(crate) fn run() -> Result<()> {
    let metadata = metadata()?;
    let root = toolbox::workspace();
    let mut breaches = arrows::check(&metadata);
    for room in arrows::QUIET {
        if arrows::has_package(&metadata, room) {
            breaches.extend(arrows::check_quiet(room, &tree(room)?));
        }
    }
    let files = text::read_sources(&root)?;
    let n_files = files.len();
    for file in &files {
        breaches.extend(text::check(file));
    }
    for opening in arrows::crate_roots(&metadata) {
        breaches.extend(check_opening(&root, Path::new(opening))?);
    }
    if !breaches.is_empty() {
        for breach in &breaches {
            println!("  {breach}");
        }
        bail!("tidy: {} to put right", breaches.len());
    }
    println!("tidy: every arrow points the right way; {n_files} files read");
    Ok(())
}

fn metadata() -> Result<arrows::Metadata> {
    let output = toolbox::cargo()
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked"])
        .output()
        .context("cargo metadata does not start")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata has another shape than we know")
}

/// Everything that comes along with a room when it is built by itself, one package per line. `cargo metadata` would
/// show the features that other rooms switch on as well.
fn tree(package: &str) -> Result<String> {
    let output = toolbox::cargo()
        .args(["tree", "--locked", "--edges", "normal", "--prefix", "none"])
        .args(["--format", "{p}", "--package", package])
        .output()
        .context("cargo tree does not start")?;
    if !output.status.success() {
        bail!("cargo tree of {package} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn check_opening(root: &Path, path: &Path) -> Result<Option<String>> {
    let content = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let shown = path.strip_prefix(root).unwrap_or(path).display();
    Ok((!text::has_opening(&content))
        .then(|| format!("{shown}: a crate opens with `//!` lines that say what it is for")))
}
