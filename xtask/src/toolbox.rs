//! Where things lie, and how other programs are called.

use anyhow::{Context as _, Result, bail};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the workspace.
pub(crate) fn workspace() -> PathBuf {
    let here =
        env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().map_or(here.clone(), Path::to_path_buf)
}

/// The user's cache folder for what is built once and used again: tools, the peer's binary.
pub(crate) fn cache() -> Result<PathBuf> {
    let base = match env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?).join(".cache"),
    };
    Ok(base.join("kerf"))
}

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace());
    // Set for us by `cargo run`; a cargo below us shall find its own.
    for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"] {
        command.env_remove(name);
    }
    command
}

/// Where cargo puts what it builds.
pub(crate) fn target_folder() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), |given| workspace().join(given))
}

/// A tool of the Rust world that is not part of the toolchain.
pub(crate) struct Tool {
    /// The name of its package, which is the name of its binary too.
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// How it is built, beyond cargo's defaults.
    pub(crate) flags: &'static [&'static str],
}

impl Tool {
    /// The binary, built on the first day and reused afterwards.
    pub(crate) fn prepare(&self) -> Result<PathBuf> {
        let root = cache()?.join("tools").join(format!("{}-{}", self.name, self.version));
        let binary = root.join("bin").join(self.name);
        if binary.exists() {
            return Ok(binary);
        }
        println!("installing {} {} (once for this machine)", self.name, self.version);
        let status = cargo()
            .args(["install", self.name, "--locked", "--quiet"])
            .args(self.flags)
            .args(["--version", self.version, "--root"])
            .arg(&root)
            // Its own build folder: a tool's profile and features are none of the workspace's business.
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("CARGO_BUILD_BUILD_DIR")
            .status()
            .with_context(|| format!("cargo install {} does not start", self.name))?;
        if !status.success() {
            bail!("cargo install {} failed: {status}", self.name);
        }
        Ok(binary)
    }
}

/// A command as one would type it.
pub(crate) fn typed(command: &Command) -> String {
    let envs = command
        .get_envs()
        .filter_map(|(key, value)| Some((key, value?)))
        .map(|(key, value)| format!("{}={:?} ", key.display(), value.display().to_string()));
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program()).display().to_string();
    let words = command.get_args().map(|word| format!(" {}", word.display()));
    envs.chain([program]).chain(words).collect()
}
