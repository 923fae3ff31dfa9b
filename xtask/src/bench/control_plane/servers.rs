//! The two servers, and what the system knows about their processes.

use std::any::Any;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use kerf_e2e::client::Client;
use kerf_e2e::control_plane::{self, Address, Started, build, parts};
use serde::Deserialize;

use crate::bench::process::{cpu_seconds, peak_mb};
use crate::toolbox;

/// A running API server. Dropping it ends it.
pub(crate) struct Server {
    name: String,
    address: Address,
    /// The API server itself, and its store if that is another process.
    pids: Vec<u32>,
    /// Kept for as long as it is measured.
    _running: Box<dyn Any + Send + Sync>,
}

/// Our own process; it ends when its standard input does.
struct Ours(Child);

#[derive(Deserialize)]
struct At {
    endpoint: String,
    ca_pem: String,
    token: String,
}

impl Server {
    /// Builds and starts ours.
    pub(crate) fn ours() -> Result<Self> {
        println!("building our API server");
        Self::of_ours("ours", &build_ours()?)
    }

    /// Starts ours of an earlier commit.
    pub(crate) fn before(binary: &Path) -> Result<Self> {
        Self::of_ours("before", binary)
    }

    fn of_ours(name: &str, binary: &Path) -> Result<Self> {
        let mut child = Command::new(binary)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} does not start", binary.display()))?;
        let stdout = child.stdout.take().context("our server has no stdout")?;
        let ours = Ours(child);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("our server does not say where it is")?;
        let At { endpoint, ca_pem, token } =
            serde_json::from_str(&line).context("our server says something else than where it is")?;
        Ok(Self {
            name: name.to_owned(),
            address: Address { endpoint, ca_pem, token, kubeconfig: PathBuf::new() },
            pids: vec![ours.0.id()],
            _running: Box::new(ours),
        })
    }

    /// Starts the real one, or says why there is none.
    pub(crate) fn real() -> Result<Result<Self, String>> {
        let plane = match control_plane::start(&build::to_stderr)? {
            Started::Ready(plane) => plane,
            Started::Skipped(reason) => return Ok(Err(reason)),
        };
        let pid = |name: &str| plane.pids().into_iter().find(|(found, _)| found == name).map(|(_, pid)| pid);
        let pids = [pid("kube-apiserver"), pid("etcd")].into_iter().flatten().collect();
        Ok(Ok(Self {
            name: format!("kube-apiserver {}", parts::KUBERNETES.version),
            address: plane.address().clone(),
            pids,
            _running: plane,
        }))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn client(&self) -> Result<Client> {
        Client::new(&self.address)
    }

    /// The most memory that the API server alone has held so far.
    pub(crate) fn peak_mb(&self) -> Result<f64> {
        peak_mb(*self.pids.first().context("a server is a process")?)
    }

    /// That of its store as well.
    pub(crate) fn peak_with_store_mb(&self) -> Result<f64> {
        self.pids.iter().map(|pid| peak_mb(*pid)).sum()
    }

    /// Processor time of all its processes so far.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        self.pids.iter().map(|pid| cpu_seconds(*pid)).sum()
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It may have ended already, or hang: either way it is not needed any more.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn build_ours() -> Result<PathBuf> {
    let output = toolbox::cargo()
        .args(["build", "--release", "--locked", "--package", "kerf-control-plane", "--example", "api_server"])
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("cargo build does not start")?;
    if !output.status.success() {
        bail!("our API server does not build");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let executable = text.lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        (message["target"]["name"] == "api_server").then_some(())?;
        message["executable"].as_str().map(PathBuf::from)
    });
    executable.context("cargo does not say where our API server lies")
}
