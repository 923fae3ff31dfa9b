//! From binaries to a control plane that answers: the order, the flags, and what it means to be ready.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::build::Binaries;
use super::credentials::Credentials;
use super::parts::KWOK;
use super::processes::{self, Processes};
use super::{Address, Extent, Kubelet};
use crate::client::Client;
use crate::rights;

/// The API server is ready after about 2 s on two idle cores. A minute and a half forgives a machine that compiles beside us.
const READY_WITHIN: Duration = Duration::from_secs(90);
const POLL_EVERY: Duration = Duration::from_millis(50);
/// A free port is found by asking for one and letting it go; somebody else may take it first. Three such losses in a row
/// are no longer bad luck.
const STARTS_MAX: u32 = 3;

const KWOK_DEFINITION: &str = "kwok.x-k8s.io_stages.yaml";
const KWOK_STAGES: &str = "/apis/kwok.x-k8s.io/v1alpha1/stages";
/// With a configuration file the three numbers of workers default to none, and the controllers refuse to start. Without a port
/// it does not pretend to serve a kubelet's API. Whatever port of whatever pod is forwarded leads to FORWARDED.
const KWOK_CONFIGURATION: &str = "\
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  enableCRDs: [Stage]
  enableDebuggingHandlers: true
  manageAllNodes: false
  manageNodesWithAnnotationSelector: kwok.x-k8s.io/node=fake
  nodeLeaseDurationSeconds: 40
  nodeLeaseParallelism: 4
  podPlayStageParallelism: 4
  nodePlayStageParallelism: 4
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterPortForward
metadata:
  name: everything
spec:
  forwards:
  - target: {address: 127.0.0.1, port: FORWARDED}
";

/// What the operator's own account asks for, without bodies; of everybody else nothing. See [`crate::rights`].
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: [USER]
- level: None
";

/// The default profile, and one that spreads over hosts and zones what does not say how it wants to be spread.
const SCHEDULER_CONFIGURATION: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: KUBECONFIG, qps: 1000, burst: 2000}
profiles:
- schedulerName: default-scheduler
- schedulerName: topology-spread-defaults
  pluginConfig:
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule}
      - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}
";

/// Servers that answer.
pub(super) struct Launched {
    pub(super) processes: Processes,
    pub(super) address: Address,
    pub(super) etcd_endpoint: String,
    pub(super) kubelet: Option<Kubelet>,
}

/// Starts the parts in `folder` and waits for them; a lost race for a port begins again with fresh ports.
pub(super) fn launch(extent: Extent, binaries: &Binaries, folder: &Path) -> Result<Launched> {
    let credentials = Credentials::create(folder)?;
    let mut lost = None;
    for _ in 0..STARTS_MAX {
        match launch_once(extent, binaries, folder, &credentials) {
            Err(error) if processes::says_port_taken(folder) => lost = Some(error),
            outcome => return outcome,
        }
    }
    Err(lost.expect("the loop ran at least once and every start failed"))
        .with_context(|| format!("{STARTS_MAX} starts lost their ports"))
}

fn launch_once(extent: Extent, binaries: &Binaries, folder: &Path, credentials: &Credentials) -> Result<Launched> {
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
        &api_server_arguments(extent, credentials, folder, (etcd_port, secure_port))?,
    )?;
    let client = Client::new(&address)?;
    wait_until_ready(&mut processes, &client, &["/readyz", "/api/v1/namespaces/default"])?;
    let mut kubelet = None;
    if extent == Extent::Cluster {
        kubelet = Some(join_controllers(&mut processes, binaries, folder, credentials, &address, &client)?);
    }
    Ok(Launched { processes, address, etcd_endpoint: format!("http://127.0.0.1:{etcd_port}"), kubelet })
}

/// Starts everything that works on a ready API server, and waits until it does.
fn join_controllers(
    processes: &mut Processes,
    binaries: &Binaries,
    folder: &Path,
    credentials: &Credentials,
    address: &Address,
    client: &Client,
) -> Result<Kubelet> {
    let manager = controller_manager_arguments(credentials, address);
    processes.start("kube-controller-manager", binaries.path("kube-controller-manager")?, &manager)?;
    processes.start("kube-scheduler", binaries.path("kube-scheduler")?, &scheduler_arguments(folder, address)?)?;

    // kwok gives up when it finds no stages to read, so they come before it.
    apply(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &binaries.file(&KWOK, KWOK_DEFINITION)?)?;
    wait_until_ready(processes, client, &[KWOK_STAGES])?;
    for stage in KWOK.files.iter().filter_map(|file| file.rsplit('/').next()).filter(|name| *name != KWOK_DEFINITION) {
        apply(client, KWOK_STAGES, &binaries.file(&KWOK, stage)?)?;
    }
    let configuration = folder.join("kwok.yaml");
    let kubelet = Kubelet::new()?;
    let forwarded = kubelet.forwarded.local_addr().context("a port has an address")?.port();
    fs::write(&configuration, KWOK_CONFIGURATION.replace("FORWARDED", &forwarded.to_string()))
        .context("cannot write kwok's configuration")?;
    let kwok = [
        format!("--kubeconfig={}", address.kubeconfig.display()),
        format!("--config={}", configuration.display()),
        format!("--server-address=127.0.0.1:{}", kubelet.port),
        format!("--tls-cert-file={}", credentials.serving_cert.display()),
        format!("--tls-private-key-file={}", credentials.serving_key.display()),
    ];
    processes.start("kwok", binaries.path("kwok")?, &kwok)?;

    // Made by the controller manager: until it is there, every pod is refused.
    wait_until_ready(processes, client, &["/api/v1/namespaces/default/serviceaccounts/default"])?;
    Ok(kubelet)
}

impl Kubelet {
    fn new() -> Result<Self> {
        let forwarded = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback")?;
        Ok(Self { port: free_ports()?.0, forwarded })
    }
}

/// Applies one document to the collection that its kind belongs to.
fn apply(client: &Client, collection: &str, text: &str) -> Result<()> {
    let object: Value = serde_norway::from_str(text).with_context(|| format!("no document for {collection}"))?;
    let name = object["metadata"]["name"].as_str().with_context(|| format!("a nameless object for {collection}"))?;
    let answer = client.apply(&format!("{collection}/{name}"), "kerf", text)?;
    ensure!(answer.is_success(), "{collection}/{name} is refused: {}", answer.message());
    Ok(())
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

fn api_server_arguments(
    extent: Extent,
    credentials: &Credentials,
    folder: &Path,
    (etcd_port, secure_port): (u16, u16),
) -> Result<Vec<String>> {
    let file = |path: &Path| path.display().to_string();
    let policy = folder.join("audit-policy.yaml");
    fs::write(&policy, AUDIT_POLICY.replace("USER", &rights::user())).context("cannot write the audit policy")?;
    let mut arguments = vec![
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
        format!("--audit-policy-file={}", file(&policy)),
        format!("--audit-log-path={}", file(&rights::log_path(folder))),
    ];
    if extent == Extent::ApiServer {
        // Nobody makes the `default` service account without a controller manager, and pods would be refused without it.
        arguments.push("--disable-admission-plugins=ServiceAccount".to_owned());
    }
    Ok(arguments)
}

fn controller_manager_arguments(credentials: &Credentials, address: &Address) -> Vec<String> {
    let mut arguments = client_arguments(address);
    arguments.extend([
        format!("--service-account-private-key-file={}", credentials.service_account_key.display()),
        // Published to every namespace; pods mount it beside their token.
        format!("--root-ca-file={}", credentials.ca_file.display()),
        // There are no bootstrap tokens, no cloud, and no network to hand out addresses of.
        "--controllers=*,-bootstrap-signer-controller,-token-cleaner-controller,-node-ipam-controller,\
         -cloud-node-lifecycle-controller"
            .to_owned(),
    ]);
    arguments
}

/// With a configuration file, the flags that say the same are not looked at.
fn scheduler_arguments(folder: &Path, address: &Address) -> Result<Vec<String>> {
    let configuration = folder.join("kube-scheduler.yaml");
    let kubeconfig = serde_json::to_string(&address.kubeconfig).context("a path that is no text")?;
    fs::write(&configuration, SCHEDULER_CONFIGURATION.replace("KUBECONFIG", &kubeconfig))
        .context("cannot write the scheduler's configuration")?;
    Ok(vec![format!("--config={}", configuration.display()), "--secure-port=0".to_owned()])
}

/// For a controller that is alone and in a hurry. The usual 20 requests a second would be most of a test's time.
fn client_arguments(address: &Address) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", address.kubeconfig.display()),
        "--leader-elect=false".to_owned(),
        "--kube-api-qps=1000".to_owned(),
        "--kube-api-burst=2000".to_owned(),
        "--secure-port=0".to_owned(),
    ]
}

/// Ready means that every one of the paths is served; the last of them are objects which the servers make for themselves.
fn wait_until_ready(processes: &mut Processes, client: &Client, paths: &[&str]) -> Result<()> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        processes.check_alive()?;
        let Some(last) = what_is_missing(client, paths) else {
            return Ok(());
        };
        if Instant::now() >= deadline {
            bail!(
                "the control plane is not ready after {} s; the last answer was: {last}\n{}",
                READY_WITHIN.as_secs(),
                processes.log_tails()
            );
        }
        thread::sleep(POLL_EVERY);
    }
}

fn what_is_missing(client: &Client, paths: &[&str]) -> Option<String> {
    paths.iter().find_map(|path| match client.get(path) {
        Ok(answer) if answer.is_success() => None,
        Ok(answer) => Some(format!("{path}: {} {}", answer.status, answer.message())),
        Err(error) => Some(format!("{error:#}")),
    })
}
