//! The two stages: how they are raised, and what a test does on either.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use kerf_e2e::client::{Answer, Client, Next, Watch};
use kerf_e2e::control_plane::{self, Address, Started, build, parts};
use kerf_e2e::panics::caught;
use kerf_e2e::stages::{self, Turn, Which};
use serde_json::{Value, json};

use crate::Test;

/// Most things happen within milliseconds; a cluster of five processes whose machine compiles beside it may take its time.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Ours shares this process, and its controllers wake with every change.
const WAIT_MAX_EMBEDDED: Duration = Duration::from_secs(20);
const POLL_EVERY: Duration = Duration::from_millis(15);

/// The label and the taint of a test's own nodes.
pub(crate) const NODE_OF: &str = "kerf.test/namespace";

/// Both clusters, raised when the first test comes.
pub(crate) type Stages = stages::Stages<Cluster>;

pub(crate) struct Cluster {
    address: Address,
    /// Ends with us.
    plane: Plane,
}

enum Plane {
    Embedded { _plane: Box<kerf_control_plane::ControlPlane>, _folder: tempfile::TempDir },
    Real(Box<control_plane::ControlPlane>),
}

/// One test's place: a client with every right, and a namespace of its own.
pub(crate) struct Stage<'a> {
    which: Which,
    cluster: &'a Cluster,
    pub(crate) client: Client,
    #[expect(dead_code, reason = "for tests that run kubectl")]
    pub(crate) kubeconfig: PathBuf,
    pub(crate) namespace: String,
    /// Paths of what lies outside of the namespace.
    leftovers: RefCell<Vec<String>>,
}

/// Runs one test in a namespace of its own. `Some` is why it did not run.
pub(crate) fn run(stages: &Stages, which: Which, namespace: &str, test: Test) -> Result<Option<String>, String> {
    let turn = Turn { which, name: test.name, is_alone: test.is_alone };
    let play = |cluster: &Cluster| caught(|| (test.body)(&Stage::open(which, cluster, namespace.to_owned())));
    stages.run(&turn, || raise(which), play)
}

fn raise(which: Which) -> Result<Cluster, String> {
    let began = Instant::now();
    let (cluster, what) = match which {
        Which::Embedded => (embedded(), "kerf-control-plane".to_owned()),
        Which::Real => match control_plane::start_cluster(&build::to_stderr) {
            Ok(Started::Ready(plane)) => {
                let address = plane.address().clone();
                (Cluster { address, plane: Plane::Real(plane) }, format!("Kubernetes {}", parts::KUBERNETES.version))
            }
            Ok(Started::Skipped(reason)) => return Err(reason),
            // A cluster that should start and does not is a failure of every test, not a reason to skip them.
            Err(error) => panic!("the real cluster does not start: {error:#}"),
        },
    };
    build::to_stderr(&format!("{}: {what} ready after {} ms", which.name(), began.elapsed().as_millis()));
    Ok(cluster)
}

fn embedded() -> Cluster {
    let plane = kerf_control_plane::ControlPlane::start(&kerf_control_plane::Options::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    plane.write_kubeconfig(&kubeconfig).unwrap();
    let at = plane.address().unwrap();
    let address =
        Address { endpoint: at.endpoint.clone(), ca_pem: at.ca_pem.clone(), token: at.token.clone(), kubeconfig };
    Cluster { address, plane: Plane::Embedded { _plane: Box::new(plane), _folder: folder } }
}

impl<'a> Stage<'a> {
    fn open(which: Which, cluster: &'a Cluster, namespace: String) -> Self {
        let address = &cluster.address;
        let client = Client::new(address).unwrap();
        let stage = Self {
            which,
            cluster,
            client,
            kubeconfig: address.kubeconfig.clone(),
            namespace,
            leftovers: RefCell::default(),
        };
        stage.create("/api/v1/namespaces", &json!({"metadata": {"name": stage.namespace}}));
        // Pods are refused until their service account is there.
        let account = stage.object("v1", "serviceaccounts", "default");
        stage.wait_for("the service account of a new namespace", || stage.client.get(&account).unwrap().is_success());
        stage
    }

    /// How to reach the stage, and as whom.
    pub(crate) fn address(&self) -> &Address {
        &self.cluster.address
    }

    /// Deletes what is at `path` when the test has ended, however it ends.
    pub(crate) fn clear_later(&self, path: String) {
        self.leftovers.borrow_mut().push(path);
    }

    /// Creates something outside of the namespace, for as long as the test runs.
    #[track_caller]
    pub(crate) fn create_for_now(&self, collection: &str, body: &Value) -> Value {
        let created = self.create(collection, body);
        self.clear_later(format!("{collection}/{}", created["metadata"]["name"].as_str().unwrap()));
        created
    }

    /// Makes the server forget every state before this one. `version` is a recent resourceVersion.
    pub(crate) fn forget_before(&self, version: u64) {
        match &self.cluster.plane {
            Plane::Real(plane) => plane.compact(version).unwrap(),
            // It never remembers anything from before it began to serve a kind.
            Plane::Embedded { .. } => {}
        }
    }

    /// Where a resource of the test's namespace is listed and created: `at("apps/v1", "deployments")`.
    pub(crate) fn at(&self, api_version: &str, plural: &str) -> String {
        format!("{}/namespaces/{}/{plural}", root(api_version), self.namespace)
    }

    pub(crate) fn object(&self, api_version: &str, plural: &str, name: &str) -> String {
        format!("{}/{name}", self.at(api_version, plural))
    }

    pub(crate) fn pods(&self) -> String {
        self.at("v1", "pods")
    }

    pub(crate) fn config_maps(&self) -> String {
        self.at("v1", "configmaps")
    }

    /// A name for something outside of namespaces, which no other test has.
    pub(crate) fn unique(&self, name: &str) -> String {
        format!("{name}-{}", self.namespace)
    }

    /// A node with a simulated kubelet, 8 CPUs and 16 GiB unless `change` says otherwise, ready when this returns. It is for this
    /// test alone: it has a taint, which `toleration` tolerates, and it goes with the test. Gives back its name.
    #[track_caller]
    pub(crate) fn add_node(&self, name: &str, change: impl FnOnce(&mut Value)) -> String {
        let name = self.unique(name);
        let capacity = json!({"cpu": "8", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi"});
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": {"kwok.x-k8s.io/node": "fake"},
                "labels": {NODE_OF: self.namespace, "kubernetes.io/hostname": name},
            },
            "spec": {"taints": [{"key": NODE_OF, "value": self.namespace, "effect": "NoSchedule"}]},
            "status": {"capacity": capacity, "allocatable": capacity},
        });
        change(&mut node);
        self.create("/api/v1/nodes", &node);
        let path = format!("/api/v1/nodes/{name}");
        self.wait_for("a new node to be ready and without the taint of one that is not", || {
            let node = self.read(&path);
            let of_type = |condition: &&Value| condition["type"] == "Ready";
            let is_ready = node["status"]["conditions"].as_array().into_iter().flatten().find(of_type);
            let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
            is_ready.is_some_and(|condition| condition["status"] == "True")
                && !taints.any(|taint| taint["key"] == "node.kubernetes.io/not-ready")
        });
        name
    }

    /// For pods that may run on the nodes of this test.
    pub(crate) fn toleration(&self) -> Value {
        json!({"key": NODE_OF, "operator": "Equal", "value": self.namespace, "effect": "NoSchedule"})
    }

    /// Creates an object that must be welcome, and gives it back as stored.
    #[track_caller]
    pub(crate) fn create(&self, path: &str, body: &Value) -> Value {
        let answer = self.patiently(|| self.client.post(path, body).unwrap());
        assert_eq!(answer.status, 201, "POST {path}: {}", answer.message());
        answer.body
    }

    /// Reads something that must be there.
    #[track_caller]
    pub(crate) fn read(&self, path: &str) -> Value {
        let answer = self.patiently(|| self.client.get(path).unwrap());
        assert_eq!(answer.status, 200, "GET {path}: {}", answer.message());
        answer.body
    }

    #[track_caller]
    pub(crate) fn replace(&self, path: &str, body: &Value) -> Value {
        let answer = self.patiently(|| self.client.put(path, body).unwrap());
        assert_eq!(answer.status, 200, "PUT {path}: {}", answer.message());
        answer.body
    }

    /// `kind` is `json`, `merge` or `strategic-merge`.
    #[track_caller]
    pub(crate) fn patch(&self, path: &str, kind: &str, body: &Value) -> Value {
        let answer = self.patiently(|| self.client.patch(path, kind, body).unwrap());
        assert_eq!(answer.status, 200, "PATCH {path}: {}", answer.message());
        answer.body
    }

    /// Server-side apply; `query` may say `force=true`.
    pub(crate) fn apply(&self, path: &str, manager: &str, query: &str, body: &Value) -> Answer {
        let path = format!("{path}?fieldManager={manager}&{query}");
        self.client.call("PATCH", &path).typed("application/apply-patch+yaml", body.to_string()).send().unwrap()
    }

    #[track_caller]
    pub(crate) fn delete(&self, path: &str) -> Value {
        let answer = self.patiently(|| self.client.delete(path).unwrap());
        assert!(answer.is_success(), "DELETE {path}: {}", answer.message());
        answer.body
    }

    /// Asks again while the server replaces its handler of a kind: a request in the moment after a definition has changed is
    /// told that the server is shutting down, and clients try again.
    fn patiently(&self, ask: impl Fn() -> Answer) -> Answer {
        let deadline = Instant::now() + self.wait_max();
        loop {
            let answer = ask();
            let is_between = answer.status == 503 && answer.message() == "apiserver is shutting down";
            if !is_between || Instant::now() >= deadline {
                return answer;
            }
            thread::sleep(POLL_EVERY);
        }
    }

    pub(crate) fn is_gone(&self, path: &str) -> bool {
        self.client.get(path).unwrap().status == 404
    }

    #[track_caller]
    pub(crate) fn watch(&self, path: &str) -> Watch {
        match self.client.watch(path).unwrap() {
            Ok(watch) => watch,
            Err(answer) => panic!("GET {path}: {} {}", answer.status, answer.message()),
        }
    }

    /// Waits until it holds.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, mut holds: impl FnMut() -> bool) {
        self.wait_some(what, || holds().then_some(()));
    }

    fn wait_max(&self) -> Duration {
        match self.which {
            Which::Embedded => WAIT_MAX_EMBEDDED,
            Which::Real => WAIT_MAX,
        }
    }

    /// Waits until there is something, and gives it back.
    #[track_caller]
    pub(crate) fn wait_some<T>(&self, what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + self.wait_max();
        loop {
            if let Some(found) = probe() {
                return found;
            }
            assert!(Instant::now() < deadline, "waited in vain for: {what}");
            thread::sleep(POLL_EVERY);
        }
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        for path in self.leftovers.take() {
            let _ = self.client.delete(&path);
        }
        let _ = self.client.delete(&format!("/api/v1/nodes?labelSelector={NODE_OF}={}", self.namespace));
        // What else a test left behind goes with its namespace; nobody waits for it.
        let _ = self.client.delete(&format!("/api/v1/namespaces/{}", self.namespace));
    }
}

/// Where a resource is listed outside of namespaces, or in all of them.
pub(crate) fn cluster(api_version: &str, plural: &str) -> String {
    format!("{}/{plural}", root(api_version))
}

fn root(api_version: &str) -> String {
    if api_version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{api_version}") }
}

/// The next event of a watch, which must come.
#[track_caller]
pub(crate) fn next_event(watch: &Watch) -> Value {
    match watch.next(WAIT_MAX) {
        Next::Event(event) => event,
        other => panic!("a watch should have an event, and has: {other:?}"),
    }
}

/// The next event as `("ADDED", "name")`.
#[track_caller]
pub(crate) fn next_change(watch: &Watch) -> (String, String) {
    let event = next_event(watch);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
}

/// Where our own manifests lie.
#[expect(dead_code, reason = "for tests that install our definitions")]
pub(crate) fn definitions() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/crds"))
}
