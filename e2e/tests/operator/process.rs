//! Our operator as a process: built once, started beside a cluster, killed when a test wants it or when the cluster ends.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use kerf_e2e::control_plane::build;

/// An operator that runs. It ends with this value; if we are killed, it ends by itself when it can no longer renew its lease.
pub(crate) struct Operator {
    child: Child,
    pub(crate) metrics_port: u16,
    pub(crate) health_port: u16,
    log: PathBuf,
}

impl Operator {
    /// Starts it, with further environment variables. `name` names its log in `folder`.
    pub(crate) fn start(kubeconfig: &Path, folder: &Path, name: &str, environment: &[(&str, &str)]) -> Self {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log).unwrap();
        let (metrics_port, health_port) = free_ports();
        let child = Command::new(binary())
            .args(["run", "--cloud", "kwok"])
            .env_clear()
            .env("KUBECONFIG", kubeconfig)
            .env("SYSTEM_NAMESPACE", "kube-system")
            .env("DISABLE_LEADER_ELECTION", "false")
            .env("METRICS_PORT", metrics_port.to_string())
            .env("HEALTH_PROBE_PORT", health_port.to_string())
            .env("FEATURE_GATES", "StaticCapacity=true,CapacityBuffer=true,NodeOverlay=true")
            // Tests bring their pods at once; there is nothing to wait for.
            .env("BATCH_IDLE_DURATION", "200ms")
            .env("BATCH_MAX_DURATION", "2s")
            .env("LOG_LEVEL", "debug")
            .envs(environment.iter().copied())
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

    /// Asks it to end, and waits until it has: its lease is free then.
    pub(crate) fn stop(&mut self) {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(asked.success(), "the operator has ended before it was asked to");
        let ended = self.child.wait().unwrap();
        assert!(ended.success(), "the operator ended with {ended}");
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

    /// The last lines that name one of the words: what one wants to read beside a failure.
    pub(crate) fn last_words_about(&self, word: &str, n_lines: usize) -> String {
        let said = self.said();
        let lines: Vec<&str> = said.lines().filter(|line| line.contains(word) || line.contains("\"ERROR\"")).collect();
        lines[lines.len().saturating_sub(n_lines)..].join("\n")
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A page of a server on loopback, with its status; None when nobody answers.
pub(crate) fn page(port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split_whitespace().nth(1)?.parse().ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some((status, body.to_owned()))
}

/// Our program, built from this workspace as the tests were. `KERF_BINARY` names one that is built already.
pub(crate) fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("KERF_BINARY") {
        Some(given) => std::path::absolute(given).unwrap(),
        None => build_ours(),
    })
}

fn build_ours() -> PathBuf {
    build::to_stderr("building kerf");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--locked", "--package", "kerf-cli", "--bin", "kerf"])
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
