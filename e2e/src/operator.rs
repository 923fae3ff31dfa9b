//! Our operator as a process: built once, started beside a cluster, killed when a test wants it or when the cluster ends.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::control_plane::build;

/// An operator that runs. It ends with this value; if we are killed, it ends by itself when it can no longer renew its lease.
#[derive(Debug)]
pub struct Operator {
    child: Child,
    pub metrics_port: u16,
    pub health_port: u16,
    /// Where it leaves its address and secret for `kerf explain`, unless it takes itself for one in a pod.
    pub explain_file: PathBuf,
    log: PathBuf,
}

impl Operator {
    /// Starts it with these variables and no others. `name` names its log in `folder`.
    pub fn start<'a>(
        binary: &Path,
        cloud: &str,
        folder: &Path,
        name: &str,
        variables: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("{} cannot be made", log.display()))?;
        let (metrics_port, health_port) = free_ports()?;
        let explain_file = folder.join(format!("{name}.explain.json"));
        let child = Command::new(binary)
            .args(["run", "--cloud", cloud])
            .env_clear()
            .envs(variables)
            .env("METRICS_PORT", metrics_port.to_string())
            .env("HEALTH_PROBE_PORT", health_port.to_string())
            .env("EXPLAIN_FILE", &explain_file)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("{} does not start", binary.display()))?;
        Ok(Self { child, metrics_port, health_port, explain_file, log })
    }

    /// Whether `/readyz` answers with 200. Anything else, also silence, is a no.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        page(self.health_port, "/readyz").is_some_and(|(status, _)| status == 200)
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|ended| ended.is_none())
    }

    /// Asks it to end, and waits until it has: its lease is free then.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        ensure!(asked.success(), "the operator has ended before it was asked to");
        Ok(self.child.wait()?)
    }

    /// `kill -9`, and gone when this returns.
    pub fn kill(&mut self) {
        // An error means that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Where it answers `kerf explain`, once it has said so.
    #[must_use]
    pub fn explain_address(&self) -> Option<String> {
        let said = self.said();
        let lines = said.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let mut starts = lines.filter(|line| line["message"] == "starting");
        starts.next()?["explain"].as_str().map(str::to_owned)
    }

    /// All that it has said.
    #[must_use]
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The last lines that are of interest: what one wants to read beside a failure.
    pub fn last_words(&self, n_lines: usize, is_of_interest: impl Fn(&str) -> bool) -> String {
        let said = self.said();
        let lines: Vec<&str> = said.lines().filter(|line| is_of_interest(line)).collect();
        lines[lines.len().saturating_sub(n_lines)..].join("\n")
    }

    /// The sum of a family's series whose labels contain all of these texts; 0 where there is none.
    #[must_use]
    pub fn metric(&self, family: &str, labels: &[&str]) -> f64 {
        let (_, text) = page(self.metrics_port, "/metrics").unwrap_or_default();
        text.lines()
            .filter_map(|line| line.strip_prefix(family))
            .filter(|rest| rest.starts_with(['{', ' ']) && labels.iter().all(|label| rest.contains(label)))
            .filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A page of a server on loopback, with its status; None when nobody answers.
#[must_use]
pub fn page(port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    // In one piece: a server that answers the first words and hangs up takes the rest for a reason to break off.
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split_whitespace().nth(1)?.parse().ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some((status, body.to_owned()))
}

/// Our program, built from this workspace as the tests were. The variable `given` names one that is built already.
pub fn binary(given: &str, features: &[&str]) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(given) {
        return Ok(std::path::absolute(path)?);
    }
    build::to_stderr(&format!("building kerf {}", features.join(" ")));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--locked", "--package", "kerf-cli", "--bin", "kerf"])
        .args(features.iter().flat_map(|feature| ["--features", feature]))
        .args(["--message-format", "json-render-diagnostics"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cargo build does not start")?;
    ensure!(output.status.success(), "kerf does not build");
    let executable = String::from_utf8_lossy(&output.stdout).lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        (message["target"]["name"] == "kerf").then_some(())?;
        message["executable"].as_str().map(PathBuf::from)
    });
    executable.context("cargo does not say where kerf lies")
}

/// Two different free ports: both are held until both are known.
fn free_ports() -> Result<(u16, u16)> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback");
    let (first, second) = (listen()?, listen()?);
    Ok((first.local_addr()?.port(), second.local_addr()?.port()))
}
