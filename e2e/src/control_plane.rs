//! A real control plane, from registry packages to `readyz`.
//!
//! ```text
//! parts ──▶ build ──▶ <cache>/kerf/control-plane/<set>-<version>/<binary>     minutes, once per machine and version
//!                            │
//! credentials ───────────────┼──▶ processes: etcd ◀── kube-apiserver          seconds, each in its own folder
//!                            ▼
//!                      ControlPlane { endpoint, kubeconfig, client() }        gone when dropped
//! ```
//!
//! - [`parts`]: the table of what can be built. A new row is all a new binary needs.
//! - [`build`]: Go modules in, cached binaries out; `go` runs the command.
//! - `credentials`: a certificate authority, a serving certificate, a service account key and a token per start.
//! - `processes`: children that end with their parent, however it ends.
//! - [`standing`]: a control plane that outlives the command which started it, for `cargo xtask control-plane`.

pub mod build;
mod credentials;
mod go;
pub mod parts;
mod processes;
pub mod standing;

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::client::Client;
use build::{Binaries, Prepared, Progress};
use credentials::Credentials;
use processes::Processes;

/// The API server is ready after about 2 s on two idle cores. A minute and a half forgives a machine that compiles beside us.
const READY_WITHIN: Duration = Duration::from_secs(90);
const POLL_EVERY: Duration = Duration::from_millis(50);
/// A free port is found by asking for one and letting it go; somebody else may take it first. Three such losses in a row
/// are no longer bad luck.
const STARTS_MAX: u32 = 3;

/// A running etcd and kube-apiserver, alone on their ports, with their own credentials. Dropping it ends them.
pub struct ControlPlane {
    // Dropped in this order: the processes go before the folder they write to.
    processes: Processes,
    binaries: Binaries,
    address: Address,
    folder: tempfile::TempDir,
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

/// Either a control plane, or why there is none on this machine. The second is for the caller to say loudly.
pub enum Started {
    Ready(Box<ControlPlane>),
    Skipped(String),
}

/// Builds what is missing and starts an API server with its etcd.
///
/// - Flow: binaries from the cache or from Go modules; fresh credentials; etcd; kube-apiserver; wait for `readyz` and the
///   `default` namespace.
/// - Guarantees: on return the server answers. Both processes end with the returned value, with a panic, and with this
///   process, even one that is killed.
/// - Assumptions: a POSIX `sh`, and Go unless the binaries are cached.
/// - Caveats: no controller manager yet, so service account admission is off and nothing is garbage collected.
pub fn start(progress: Progress<'_>) -> Result<Started> {
    let binaries = match build::prepare(parts::API_SERVER, progress)? {
        Prepared::Ready(binaries) => binaries,
        Prepared::Skipped(reason) => return Ok(Started::Skipped(reason)),
    };
    let folder = tempfile::Builder::new()
        .prefix("kerf-control-plane-")
        .tempdir()
        .context("no temporary folder for the control plane")?;
    let (processes, address) = launch(&binaries, folder.path())?;
    Ok(Started::Ready(Box::new(ControlPlane { processes, binaries, address, folder })))
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

    /// The file for `KUBECONFIG`.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.address.kubeconfig
    }

    /// Where a built binary lies, by its name in [`parts`].
    pub fn binary(&self, name: &str) -> Result<&Path> {
        self.binaries.path(name)
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

/// Starts the parts in `folder` and waits for them; a lost race for a port begins again with fresh ports.
fn launch(binaries: &Binaries, folder: &Path) -> Result<(Processes, Address)> {
    let credentials = Credentials::create(folder)?;
    let mut lost = None;
    for _ in 0..STARTS_MAX {
        match launch_once(binaries, folder, &credentials) {
            Err(error) if processes::says_port_taken(folder) => lost = Some(error),
            outcome => return outcome,
        }
    }
    Err(lost.expect("the loop ran at least once and every start failed"))
        .with_context(|| format!("{STARTS_MAX} starts lost their ports"))
}

fn launch_once(binaries: &Binaries, folder: &Path, credentials: &Credentials) -> Result<(Processes, Address)> {
    let (etcd_port, secure_port) = free_ports()?;
    let endpoint = format!("https://127.0.0.1:{secure_port}");
    let kubeconfig = folder.join("kubeconfig");
    fs::write(&kubeconfig, credentials.kubeconfig(&endpoint)).context("cannot write the kubeconfig")?;
    let address =
        Address { endpoint, ca_pem: credentials.ca_pem.clone(), token: credentials.token.clone(), kubeconfig };

    let mut processes = Processes::new(folder)?;
    let etcd_data = folder.join(format!("etcd-{etcd_port}"));
    processes.start("etcd", binaries.path("etcd")?, &etcd_arguments(&etcd_data, etcd_port))?;
    processes.start(
        "kube-apiserver",
        binaries.path("kube-apiserver")?,
        &api_server_arguments(credentials, etcd_port, secure_port),
    )?;
    wait_until_ready(&mut processes, &Client::new(&address)?)?;
    Ok((processes, address))
}

/// Two different free ports: both are held until both are known.
fn free_ports() -> Result<(u16, u16)> {
    let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback")?;
    let second = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback")?;
    Ok((first.local_addr()?.port(), second.local_addr()?.port()))
}

fn etcd_arguments(data: &Path, port: u16) -> Vec<String> {
    vec![
        format!("--data-dir={}", data.display()),
        format!("--listen-client-urls=http://127.0.0.1:{port}"),
        format!("--advertise-client-urls=http://127.0.0.1:{port}"),
        // One member has no peers: any port will do, and nobody needs to know which.
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        // The data dies with the folder; waiting for the disk would only slow every write.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ]
}

fn api_server_arguments(credentials: &Credentials, etcd_port: u16, secure_port: u16) -> Vec<String> {
    let file = |path: &Path| path.display().to_string();
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        "--bind-address=127.0.0.1".to_owned(),
        // Without an address to advertise it looks for an outside interface, which a sandbox may not have; and a loopback
        // address is refused as an endpoint of the `kubernetes` service, so nobody reconciles those.
        "--advertise-address=127.0.0.1".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--secure-port={secure_port}"),
        format!("--tls-cert-file={}", file(&credentials.serving_cert)),
        format!("--tls-private-key-file={}", file(&credentials.serving_key)),
        format!("--token-auth-file={}", file(&credentials.token_file)),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-signing-key-file={}", file(&credentials.service_account_key)),
        format!("--service-account-key-file={}", file(&credentials.service_account_public_key)),
        "--api-audiences=https://kubernetes.default.svc".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        // Nobody makes the `default` service account until a controller manager joins, and pods would be refused without it.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
    ]
}

/// Ready means: `readyz` says so, and the `default` namespace, which the server makes for itself, is there.
fn wait_until_ready(processes: &mut Processes, client: &Client) -> Result<()> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        processes.check_alive()?;
        let Some(last) = what_is_missing(client) else {
            return Ok(());
        };
        if Instant::now() >= deadline {
            bail!(
                "kube-apiserver is not ready after {} s; the last answer was: {last}\n{}",
                READY_WITHIN.as_secs(),
                processes.log_tails()
            );
        }
        thread::sleep(POLL_EVERY);
    }
}

fn what_is_missing(client: &Client) -> Option<String> {
    ["/readyz", "/api/v1/namespaces/default"].iter().find_map(|path| match client.get(path) {
        Ok(answer) if answer.is_success() => None,
        Ok(answer) => Some(format!("{path}: {} {}", answer.status, answer.message())),
        Err(error) => Some(format!("{error:#}")),
    })
}
