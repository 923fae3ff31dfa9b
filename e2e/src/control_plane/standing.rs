//! A control plane that outlives the command which started it: one per user, in the cache folder, for hands and eyes.
//!
//! `up` starts it, `down` ends it and throws its data away. What runs is written in a file next to its logs, and a pid from that
//! file is only killed while its command line still names our folder: pids are used again.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::build::{self, Prepared, Progress};
use super::launch::{self, Launched};
use super::{Address, Extent};

/// A killed server is gone in milliseconds, unless the machine is very busy.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// What [`up`] came to.
pub enum Up {
    Started(Address),
    AlreadyUp(Address),
    Skipped(String),
}

#[derive(Serialize, Deserialize)]
struct Record {
    address: Address,
    pids: Vec<(String, u32)>,
}

/// Starts the standing control plane, unless it stands already.
pub fn up(progress: Progress<'_>) -> Result<Up> {
    let binaries = match build::prepare(Extent::Cluster.parts(), progress)? {
        Prepared::Ready(binaries) => binaries,
        Prepared::Skipped(reason) => return Ok(Up::Skipped(reason)),
    };
    let folder = folder()?;
    if let Some(record) = read(&folder)? {
        if record.pids.iter().all(|(_, pid)| is_ours(*pid, &folder)) {
            return Ok(Up::AlreadyUp(record.address));
        }
        // Half of it died: the rest is of no use.
        down()?;
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).context("cannot clear the folder of an earlier control plane")?;
    }
    // Its credentials are for this user only.
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let Launched { processes, address, .. } = launch::launch(Extent::Cluster, &binaries, &folder)?;
    let record = Record { address: address.clone(), pids: processes.pids() };
    fs::write(record_path(&folder), serde_json::to_vec_pretty(&record)?).context("cannot write down what runs")?;
    processes.release();
    Ok(Up::Started(address))
}

/// Ends the standing control plane and clears its folder. Says whether there was one.
pub fn down() -> Result<bool> {
    let folder = folder()?;
    let Some(record) = read(&folder)? else {
        return Ok(false);
    };
    let ours: Vec<u32> = record.pids.iter().map(|(_, pid)| *pid).filter(|pid| is_ours(*pid, &folder)).collect();
    kill(&ours)?;
    let deadline = Instant::now() + GONE_WITHIN;
    while ours.iter().any(|pid| is_ours(*pid, &folder)) {
        ensure!(Instant::now() < deadline, "the processes {ours:?} were killed and do not go");
        thread::sleep(Duration::from_millis(20));
    }
    fs::remove_dir_all(&folder).with_context(|| format!("cannot clear {}", folder.display()))?;
    Ok(!ours.is_empty())
}

/// The folder of the standing control plane: kubeconfig, logs, data.
pub fn folder() -> Result<PathBuf> {
    Ok(build::cache_folder()?.join("standing"))
}

/// The command line of a living process.
pub(super) fn command_line(pid: u32) -> Option<String> {
    if let Ok(bytes) = fs::read(format!("/proc/{pid}/cmdline")) {
        // A zombie's is empty.
        return (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).replace('\0', " "));
    }
    let output =
        Command::new("ps").args(["-o", "command=", "-p", &pid.to_string()]).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn is_ours(pid: u32, folder: &Path) -> bool {
    command_line(pid).is_some_and(|line| line.contains(&folder.display().to_string()))
}

fn kill(pids: &[u32]) -> Result<()> {
    if pids.is_empty() {
        return Ok(());
    }
    let status = Command::new("sh")
        .args(["-c", r#"kill -9 "$@""#, "sh"])
        .args(pids.iter().map(u32::to_string))
        .stdin(Stdio::null())
        .status()
        .context("cannot start sh to kill the control plane")?;
    ensure!(status.success(), "cannot kill {pids:?}");
    Ok(())
}

fn read(folder: &Path) -> Result<Option<Record>> {
    let path = record_path(folder);
    if !path.exists() {
        return Ok(None);
    }
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&bytes).map(Some).with_context(|| format!("{} is not what we write there", path.display()))
}

fn record_path(folder: &Path) -> PathBuf {
    folder.join("running.json")
}
