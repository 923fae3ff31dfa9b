//! Whose operator: ours or the peer's. Both are processes with the same environment variables.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use kerf_e2e::control_plane::ControlPlane;
use kerf_e2e::control_plane::build::{self, Prepared};
use kerf_e2e::control_plane::parts;
use kerf_e2e::operator::page;

use crate::bench::process;
use crate::toolbox;

/// An empty cluster is read in a second or two, a full one in some more.
const READY_WITHIN: Duration = Duration::from_secs(120);
const POLL_EVERY: Duration = Duration::from_millis(20);

/// An operator that can be started.
#[derive(Clone, Debug)]
pub(crate) struct Contestant {
    /// Names its process, its log and its lines.
    pub(crate) name: &'static str,
    pub(crate) binary: PathBuf,
    arguments: &'static [&'static str],
}

/// A started one. Its process ends with the cluster.
pub(crate) struct Running {
    pub(crate) started: Instant,
    pid: u32,
    health_port: u16,
}

impl Contestant {
    /// Ours, built from this workspace unless a binary is given.
    pub(crate) fn ours(given: Option<&Path>) -> Result<Self> {
        let binary = match given {
            Some(binary) => std::path::absolute(binary).context("no folder to be in")?,
            None => build_ours()?,
        };
        Self::of_ours("kerf", binary)
    }

    /// Ours, of an earlier commit.
    pub(crate) fn before(given: &Path) -> Result<Self> {
        Self::of_ours("kerf-before", std::path::absolute(given).context("no folder to be in")?)
    }

    fn of_ours(name: &'static str, binary: PathBuf) -> Result<Self> {
        ensure!(binary.is_file(), "{} is not there", binary.display());
        Ok(Self { name, binary, arguments: &["run", "--cloud", "kwok"] })
    }

    /// The peer's, from its Go module, or why this machine has none.
    pub(crate) fn peer() -> Result<Result<Self, String>> {
        Ok(match build::prepare(parts::PEER, &build::to_stderr)? {
            Prepared::Ready(binaries) => {
                let part = parts::PEER.first().context("the peer is one part")?;
                Ok(Self { name: part.name, binary: binaries.path(part.name)?.to_owned(), arguments: &[] })
            }
            Prepared::Skipped(reason) => Err(reason),
        })
    }

    pub(crate) fn start(&self, plane: &mut ControlPlane, is_early_binding: bool) -> Result<Running> {
        let (metrics_port, health_port) = (free_port()?, free_port()?);
        let mut environment = vec![
            ("KUBECONFIG", plane.kubeconfig().display().to_string()),
            // There is one of it, and a lease would only be another thing to wait for.
            ("DISABLE_LEADER_ELECTION", "true".to_owned()),
            ("METRICS_PORT", metrics_port.to_string()),
            ("HEALTH_PROBE_PORT", health_port.to_string()),
            ("SYSTEM_NAMESPACE", "kube-system".to_owned()),
            ("KUBERNETES_MIN_VERSION", "1.19.0-0".to_owned()),
            ("CPU_REQUESTS", "1000".to_owned()),
            ("LOG_LEVEL", "info".to_owned()),
        ];
        if is_early_binding {
            environment.push(("FEATURE_GATES", "EarlyBinding=true".to_owned()));
        }
        let started = Instant::now();
        let pid = plane.join(self.name, &self.binary, self.arguments, &environment)?;
        Ok(Running { started, pid, health_port })
    }
}

impl Running {
    pub(crate) fn wait_until_ready(&self, plane: &mut ControlPlane) -> Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        while !says_ready(self.health_port) {
            plane.check_alive()?;
            if Instant::now() >= deadline {
                bail!("the operator does not say that it is ready within {} s", READY_WITHIN.as_secs());
            }
            thread::sleep(POLL_EVERY);
        }
        Ok(())
    }

    /// Since its start.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        process::cpu_seconds(self.pid)
    }

    pub(crate) fn peak_mb(&self) -> Result<f64> {
        process::peak_mb(self.pid)
    }
}

/// Whether `/readyz` answers with 200. Anything else, also silence, is a no.
fn says_ready(port: u16) -> bool {
    page(port, "/readyz").is_some_and(|(status, _)| status == 200)
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback")?;
    Ok(listener.local_addr()?.port())
}

fn build_ours() -> Result<PathBuf> {
    println!("building kerf");
    let output = toolbox::cargo()
        .args(["build", "--release", "--locked", "--package", "kerf-cli", "--bin", "kerf"])
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("cargo build does not start")?;
    ensure!(output.status.success(), "kerf does not build");
    let text = String::from_utf8_lossy(&output.stdout);
    let executable = text.lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        (message["target"]["name"] == "kerf").then_some(())?;
        message["executable"].as_str().map(PathBuf::from)
    });
    executable.context("cargo does not say where kerf lies")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    fn answering(status: &'static str) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 512];
            let _ = stream.read(&mut asked).unwrap();
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok").unwrap();
        });
        port
    }

    #[test]
    fn only_an_answer_of_200_is_ready() {
        assert!(says_ready(answering("200 OK")));
        assert!(!says_ready(answering("500 Internal Server Error")));
        assert!(!says_ready(free_port().unwrap()));
    }
}
