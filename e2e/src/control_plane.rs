//! A real control plane, from registry packages to `readyz`.
//!
//! ```text
//! parts ──▶ build ──▶ <cache>/kerf/control-plane/<set>-<version>/<binary>     minutes, once per machine and version
//!                            │
//! credentials ───────────────┼──▶ launch: etcd ◀── kube-apiserver             seconds, each in its own folder
//!                            │                        ▲
//!                            │            controller manager, scheduler, kwok  for a whole cluster
//!                            ▼
//!                      ControlPlane { endpoint, kubeconfig, client() }        gone when dropped
//! ```
//!
//! - [`parts`]: the table of what can be built. A new row is all a new binary needs.
//! - [`build`]: Go modules in, cached binaries out; `go` runs the command.
//! - `credentials`: a certificate authority, a serving certificate, a service account key and a token per start.
//! - `launch`: the order, the flags, and what it means to be ready.
//! - `processes`: children that end with their parent, however it ends.
//! - [`standing`]: a control plane that outlives the command which started it, for `cargo xtask control-plane`.

pub mod build;
mod credentials;
mod go;
mod launch;
pub mod parts;
pub(crate) mod processes;
pub mod standing;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result};

use crate::client::Client;
use crate::rights::Asked;
use build::{Binaries, Prepared, Progress};
use launch::Launched;
use parts::Part;
use processes::Processes;

/// Running servers, alone on their ports, with their own credentials. Dropping it ends them.
pub struct ControlPlane {
    // Dropped in this order: the processes go before the folder they write to.
    processes: Processes,
    binaries: Binaries,
    address: Address,
    etcd_endpoint: String,
    kubelet: Option<Kubelet>,
    folder: tempfile::TempDir,
}

/// What stands behind the nodes: it forwards the ports of pods on nodes that name its own, all of them to one place.
#[derive(Debug)]
pub struct Kubelet {
    /// Where it listens on loopback: a node that it is to answer for says so in `status.daemonEndpoints`, and 127.0.0.1 in its addresses.
    pub port: u16,
    /// Where forwarded ports lead to. Whoever accepts is the pod.
    pub forwarded: TcpListener,
}

/// How to reach a control plane, and as whom.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Address {
    pub endpoint: String,
    pub ca_pem: String,
    /// A bearer token of the group `system:masters`.
    pub token: String,
    pub kubeconfig: PathBuf,
}

impl Address {
    /// Reads it back from a kubeconfig with one cluster and one user, such as `kerf up` writes.
    pub fn read(kubeconfig: &Path) -> Result<Self> {
        use base64::Engine as _;
        let text = std::fs::read_to_string(kubeconfig).with_context(|| format!("no {}", kubeconfig.display()))?;
        let config: serde_json::Value = serde_norway::from_str(&text).context("a kubeconfig that is not YAML")?;
        let field = |pointer: &str| {
            config.pointer(pointer).and_then(serde_json::Value::as_str).with_context(|| format!("no {pointer}"))
        };
        let authority = field("/clusters/0/cluster/certificate-authority-data")?;
        let authority = base64::engine::general_purpose::STANDARD.decode(authority).context("the authority's data")?;
        Ok(Self {
            endpoint: field("/clusters/0/cluster/server")?.to_owned(),
            ca_pem: String::from_utf8(authority).context("the authority's data is no text")?,
            token: field("/users/0/user/token")?.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
        })
    }
}

/// Either a control plane, or why there is none on this machine. The second is for the caller to say loudly.
pub enum Started {
    Ready(Box<ControlPlane>),
    Skipped(String),
}

/// How much of a control plane is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// etcd and kube-apiserver: objects are judged and kept, and nothing happens to them.
    ApiServer,
    /// The controllers, the scheduler and kwok's kubelets too: what is asked for comes to pass.
    Cluster,
}

impl Extent {
    fn parts(self) -> &'static [Part] {
        match self {
            Self::ApiServer => parts::API_SERVER,
            Self::Cluster => parts::CLUSTER,
        }
    }
}

/// Builds what is missing and starts an API server with its etcd.
///
/// - Flow: binaries from the cache or from Go modules; fresh credentials; etcd; kube-apiserver; wait for `readyz` and the
///   `default` namespace.
/// - Guarantees: on return the server answers. All processes end with the returned value, with a panic, and with this
///   process, even one that is killed.
/// - Assumptions: a POSIX `sh`, and Go unless the binaries are cached.
/// - Caveats: no controller manager, so service account admission is off and nothing is garbage collected.
pub fn start(progress: Progress<'_>) -> Result<Started> {
    start_extent(Extent::ApiServer, progress)
}

/// Builds what is missing and starts a whole cluster: the API server, the controller manager, the scheduler, and kwok as the
/// kubelet of every node with the annotation `kwok.x-k8s.io/node: fake`.
///
/// - Guarantees: those of [`start`]; and the controllers work: the `default` service account is there, so that pods are
///   admitted with service accounts as in any cluster.
/// - The scheduler has a second profile, `topology-spread-defaults`, which spreads over hosts and zones pods that do not say how they want
///   to be spread.
/// - Caveats: behind the nodes stands a [`Kubelet`] that knows nothing but to forward ports, so `logs` and `exec` have nobody to talk to.
pub fn start_cluster(progress: Progress<'_>) -> Result<Started> {
    start_extent(Extent::Cluster, progress)
}

fn start_extent(extent: Extent, progress: Progress<'_>) -> Result<Started> {
    let binaries = match build::prepare(extent.parts(), progress)? {
        Prepared::Ready(binaries) => binaries,
        Prepared::Skipped(reason) => return Ok(Started::Skipped(reason)),
    };
    let folder = tempfile::Builder::new()
        .prefix("kerf-control-plane-")
        .tempdir()
        .context("no temporary folder for the control plane")?;
    let Launched { processes, address, etcd_endpoint, kubelet } = launch::launch(extent, &binaries, folder.path())?;
    Ok(Started::Ready(Box::new(ControlPlane { processes, binaries, address, etcd_endpoint, kubelet, folder })))
}

impl ControlPlane {
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// A client with every right.
    pub fn client(&self) -> Result<Client> {
        Client::new(&self.address)
    }

    /// None without nodes.
    #[must_use]
    pub fn kubelet(&self) -> Option<&Kubelet> {
        self.kubelet.as_ref()
    }

    /// The file for `KUBECONFIG`.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.address.kubeconfig
    }

    /// Where a built binary lies, by its name in [`parts`].
    pub fn binary(&self, name: &str) -> Result<&Path> {
        self.binaries.path(name)
    }

    /// Forgets every state before `revision`, as the API server itself does every few minutes: lists and watches that go on from
    /// an earlier one are told that it is gone.
    pub fn compact(&self, revision: u64) -> Result<()> {
        let url = format!("{}/v3/kv/compaction", self.etcd_endpoint);
        let body = format!(r#"{{"revision":"{revision}","physical":true}}"#);
        ureq::post(&url).send(body).map(drop).with_context(|| format!("etcd does not compact up to {revision}"))
    }

    /// Starts a program that works on this control plane and ends with it: an operator, say. Answers with its process id.
    ///
    /// - Guarantees: it has exactly the given environment: a stray variable of the caller's would be a setting that nobody chose.
    /// - Assumptions: nothing else here is called `name`; its log is at [`Self::log`].
    pub fn join(
        &mut self,
        name: &str,
        binary: &Path,
        arguments: &[&str],
        environment: &[(&str, String)],
    ) -> Result<u32> {
        let variables = environment.iter().map(|(key, value)| (key, value));
        self.processes.spawn(name, Command::new(binary).args(arguments).env_clear().envs(variables))
    }

    /// Where a part writes what it says.
    #[must_use]
    pub fn log(&self, name: &str) -> PathBuf {
        processes::log_path(self.folder.path(), name)
    }

    /// What the operator's account asked for so far: see [`crate::rights`].
    pub fn asked(&self) -> Result<Asked> {
        Asked::read(self.folder.path())
    }

    /// Fails with the last words of a part that ended by itself.
    pub fn check_alive(&mut self) -> Result<()> {
        self.processes.check_alive()
    }

    /// The process ids of its parts, by name.
    #[must_use]
    pub fn pids(&self) -> Vec<(String, u32)> {
        self.processes.pids()
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.processes.end();
        // What the servers said is the first thing one wants after a failure, and the folder is about to go.
        if thread::panicking() {
            let kept = std::env::temp_dir().join(format!("kerf-control-plane-logs-{}", std::process::id()));
            if processes::keep_logs(self.folder.path(), &kept).is_ok() {
                build::to_stderr(&format!("control plane: logs kept in {}", kept.display()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_back_from_a_kubeconfig() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let cluster = "{server: 'https://127.0.0.1:1', certificate-authority-data: cGVt}";
        std::fs::write(&path, format!("clusters: [{{cluster: {cluster}}}]\nusers: [{{user: {{token: t}}}}]\n"))
            .unwrap();
        let address = Address::read(&path).unwrap();
        assert_eq!((address.endpoint.as_str(), address.ca_pem.as_str()), ("https://127.0.0.1:1", "pem"));
        assert_eq!(address.token, "t");
        std::fs::write(&path, "clusters: []").unwrap();
        assert!(format!("{:#}", Address::read(&path).unwrap_err()).contains("/clusters/0/cluster"));
    }
}
