//! Our operator as a process, with the SDK in it: built once, started beside a cluster and an account, killed when a test wants it.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use kerf_e2e::control_plane::build;

/// An operator that runs. It ends with this value.
pub(crate) struct Operator {
    child: Child,
    metrics_port: u16,
    health_port: u16,
    log: PathBuf,
}

impl Operator {
    /// Starts it with these variables and no others. `name` names its log in `folder`.
    pub(crate) fn start(folder: &Path, name: &str, variables: &[(String, String)]) -> Self {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log).unwrap();
        let (metrics_port, health_port) = free_ports();
        let child = Command::new(binary())
            .args(["run", "--cloud", "aws"])
            .env_clear()
            .envs(variables.iter().map(|(key, value)| (key, value)))
            .env("METRICS_PORT", metrics_port.to_string())
            .env("HEALTH_PROBE_PORT", health_port.to_string())
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { child, metrics_port, health_port, log }
    }

    /// Whether `/readyz` answers with 200. Anything else, also silence, is a no.
    pub(crate) fn is_ready(&self) -> bool {
        page(self.health_port, "/readyz").is_some_and(|(status, _)| status == 200)
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// The sum of a family's series whose labels contain all of these texts; 0 where there is none.
    pub(crate) fn metric(&self, family: &str, labels: &[&str]) -> f64 {
        let (_, text) = page(self.metrics_port, "/metrics").unwrap_or_default();
        text.lines()
            .filter_map(|line| line.strip_prefix(family))
            .filter(|rest| rest.starts_with(['{', ' ']) && labels.iter().all(|label| rest.contains(label)))
            .filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// `kill -9`, and gone when this returns.
    pub(crate) fn kill(&mut self) {
        // An error means that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// All that it has said.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn last_words(&self, n_lines: usize) -> String {
        let said = self.said();
        let lines: Vec<&str> = said.lines().filter(|line| !line.contains("\"DEBUG\"")).collect();
        lines[lines.len().saturating_sub(n_lines)..].join("\n")
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A page of a server on loopback, with its status; None when nobody answers.
fn page(port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split_whitespace().nth(1)?.parse().ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some((status, body.to_owned()))
}

/// Our program with the SDK, built from this workspace as the tests were. `KERF_AWS_BINARY` names one that is built already.
pub(crate) fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("KERF_AWS_BINARY") {
        Some(given) => std::path::absolute(given).unwrap(),
        None => build_ours(),
    })
}

fn build_ours() -> PathBuf {
    build::to_stderr("building kerf with the AWS SDK");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--locked", "--package", "kerf-cli", "--features", "aws", "--bin", "kerf"])
        .args(["--message-format", "json-render-diagnostics"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "kerf does not build");
    let executable = String::from_utf8_lossy(&output.stdout).lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        (message["target"]["name"] == "kerf").then_some(())?;
        message["executable"].as_str().map(PathBuf::from)
    });
    executable.expect("cargo says where kerf lies")
}

/// Two different free ports: both are held until both are known.
fn free_ports() -> (u16, u16) {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (first, second) = (listen(), listen());
    (first.local_addr().unwrap().port(), second.local_addr().unwrap().port())
}
