//! `kerf explain`, and who gets to hear what: against an operator as a process, on the embedded control plane.
//!
//! ```text
//! kerf explain ─▶ front: says who leads, lets one user forward ports, writes down what passes ─▶ loopback of the operator "in a pod"
//! kerf explain ─▶ loopback of an operator outside of a pod, with the secret of its file
//! ```
//!
//! The front stands for an API server and a kubelet; `e2e/tests/operator/explain.rs` asks a real one.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

use kerf_control_plane::request::Request;
use kerf_control_plane::{ControlPlane, Options};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tungstenite::protocol::Role;
use tungstenite::{Message, WebSocket};

const PATIENCE: Duration = Duration::from_secs(60);

/// What the one user's exec plugin prints.
const TOKEN: &str = "of-the-exec-plugin-7f3a";

/// A cluster with a pool and a pod whose mistyped affinity keeps it out of every plan, and a home for who works with it.
struct Cluster {
    plane: ControlPlane,
    home: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Self {
        let plane = ControlPlane::start(&Options::default()).unwrap();
        let home = tempfile::tempdir().unwrap();
        plane.write_kubeconfig(&home.path().join("kubeconfig")).unwrap();
        let cluster = Self { plane, home };
        for definition in kerf_api::crds() {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            cluster.create(path, &serde_json::to_value(definition).unwrap());
        }
        cluster.create(
            "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses",
            &json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}),
        );
        let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
        cluster.create(
            "/apis/karpenter.sh/v1/nodepools",
            &json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
                "spec": {"template": {"spec": {"nodeClassRef": class, "requirements": []}}},
            }),
        );
        let mistyped = json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["sopt"]});
        let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [mistyped]}]});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
        cluster.create(
            "/api/v1/namespaces/default/pods",
            &json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mistyped"},
                "spec": {"affinity": affinity, "containers": [{"name": "a", "image": "a"}]},
            }),
        );
        cluster
    }

    fn create(&self, path: &str, body: &Value) {
        let request = Request {
            method: "POST".to_owned(),
            path: path.to_owned(),
            content_type: "application/json".to_owned(),
            body: body.to_string().into(),
            ..Request::default()
        };
        let answer = self.plane.server().handle(&request);
        assert_eq!(answer.status, 201, "{path}: {}", answer.to_value());
    }

    fn kubeconfig(&self) -> PathBuf {
        self.home.path().join("kubeconfig")
    }

    fn kerf(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kerf"));
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.home.path());
        command
    }

    fn explain(&self, kubeconfig: &std::path::Path, arguments: &[&str]) -> Output {
        self.kerf().arg("explain").args(arguments).arg("--kubeconfig").arg(kubeconfig).output().unwrap()
    }

    /// The files that invite to an operator of this home.
    fn invitations(&self) -> Vec<PathBuf> {
        let folder = self.home.path().join(".kube/kerf");
        std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
    }
}

/// The process, which ends with its owner, and where it answers `kerf explain`.
struct Operator {
    child: Child,
    explain: String,
    metrics: String,
}

impl Operator {
    fn start(cluster: &Cluster, environment: &[(&str, &str)]) -> Self {
        let mut child = cluster
            .kerf()
            .args(["run", "--cloud=kwok", "--metrics-port=0", "--health-probe-port=0", "--batch-idle-duration=10ms"])
            .arg("--kubeconfig")
            .arg(cluster.kubeconfig())
            .env("SYSTEM_NAMESPACE", "kube-system")
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let start = lines.find_map(|line| {
            let line: Value = serde_json::from_str(&line).unwrap();
            (line["message"] == "starting").then_some(line)
        });
        // Somebody has to read what it says.
        std::thread::spawn(move || lines.for_each(drop));
        let start = start.unwrap();
        let text = |key: &str| start[key].as_str().unwrap().to_owned();
        Self { child, explain: text("explain"), metrics: text("metrics") }
    }

    fn terminate(&mut self) {
        let status = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Asks until the answer has this in it: the operator may not have decided yet.
#[track_caller]
fn until_it_says(expected: &str, ask: impl Fn() -> Output) -> String {
    let begun = Instant::now();
    loop {
        let output = ask();
        let said = text(&output);
        if output.status.success() && said.contains(expected) {
            return said;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {expected:?}: {said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[track_caller]
fn refused(output: &Output, expected: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(expected), "{said}");
}

#[test]
fn an_operator_outside_of_a_pod_answers_on_its_machine_whoever_has_its_secret() {
    let cluster = Cluster::start();
    let mut operator = Operator::start(&cluster, &[]);
    let files = cluster.invitations();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(std::fs::metadata(&files[0]).unwrap().mode() & 0o777, 0o600);
    for what in [&["pod", "mistyped"][..], &["pod/mistyped"], &["pods", "mistyped"], &["po/mistyped", "-n", "default"]]
    {
        let said = until_it_says("is left out of every plan", || cluster.explain(&cluster.kubeconfig(), what));
        assert!(said.contains("[sopt] is a capacity type"), "{said}");
    }
    until_it_says("nodepool default: is ready", || cluster.explain(&cluster.kubeconfig(), &["nodepools/default"]));
    refused(&cluster.explain(&cluster.kubeconfig(), &["node/nowhere"]), "neither in the cluster nor in the record");

    let (status, body) = page(&operator.explain, "/explain/nodepool/default");
    assert_eq!(status, 401, "{body}");
    assert_eq!(page(&operator.metrics, "/explain/nodepool/default").0, 404, "not on the port of metrics");
    let maps = Request { path: "/api/v1/namespaces/kube-system/configmaps/kerf".to_owned(), ..Request::default() };
    assert_eq!(cluster.plane.server().handle(&Request { method: "GET".to_owned(), ..maps }).status, 404);

    // A copy that others may read is no secret any more.
    let copy = cluster.home.path().join("copy");
    std::fs::write(&copy, std::fs::read(&files[0]).unwrap()).unwrap();
    let with_copy = ["nodepool/default", "--explain-file", copy.to_str().unwrap()];
    let open = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(&copy, open).unwrap();
    refused(&cluster.explain(&cluster.kubeconfig(), &with_copy), "is open to others (mode 640)");
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o600)).unwrap();
    until_it_says("nodepool default", || cluster.explain(&cluster.kubeconfig(), &with_copy));
    operator.terminate();
    assert!(cluster.invitations().is_empty(), "it goes with its operator");
}

#[test]
fn a_playground_answers_whoever_runs_it() {
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = home.path().join("playground");
    let kerf = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kerf"));
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home.path());
        command
    };
    let mut up = kerf();
    up.args(["up", "--plain", "--kubeconfig"]).arg(&kubeconfig).stdout(Stdio::piped());
    let mut child = up.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("kubeconfig")));
    std::thread::spawn(move || lines.for_each(drop));
    let mut playground = Operator { child, explain: String::new(), metrics: String::new() };
    until_it_says("nodepool default: is ready", || {
        kerf().args(["explain", "nodepool", "default", "--kubeconfig"]).arg(&kubeconfig).output().unwrap()
    });
    playground.terminate();
    assert_eq!(std::fs::read_dir(home.path().join(".kube/kerf")).unwrap().count(), 0, "nothing is left");
}

#[test]
fn an_operator_that_was_killed_leaves_a_file_that_misleads_nobody() {
    let cluster = Cluster::start();
    let mut killed = Operator::start(&cluster, &[]);
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    assert_eq!(cluster.invitations().len(), 1);
    // It led, and its host is no pod.
    refused(&cluster.explain(&cluster.kubeconfig(), &["nodepool/default"]), "");
    let _next = Operator::start(&cluster, &[("DISABLE_LEADER_ELECTION", "true")]);
    assert_eq!(cluster.invitations().len(), 1, "cleared away");
    until_it_says("nodepool default", || cluster.explain(&cluster.kubeconfig(), &["nodepool/default"]));
}

#[test]
fn one_in_a_pod_is_asked_through_the_api_server_and_hears_no_credentials() {
    let cluster = Cluster::start();
    let operator = Operator::start(&cluster, &[("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("EXPLAIN_PORT", "0")]);
    assert!(cluster.invitations().is_empty(), "nothing is left in a pod");
    let front = Front::start(operator.explain.clone());
    let kubeconfig = |user: Value| {
        let path = cluster.home.path().join("front");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": front.url}}],
            "users": [{"name": "it", "user": user}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        });
        std::fs::write(&path, config.to_string()).unwrap();
        path
    };
    let status = json!({"token": TOKEN, "expirationTimestamp": "2100-01-01T00:00:00Z"});
    let credential =
        json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status});
    let plugin = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "interactiveMode": "Never",
        "args": ["-c", format!("echo '{credential}'")],
    }});
    let port = operator.explain.rsplit(':').next().unwrap().to_owned();
    let said = until_it_says("is left out of every plan", || {
        cluster.explain(&kubeconfig(plugin.clone()), &["pod/mistyped", "--explain-port", &port])
    });
    assert!(said.starts_with("pod default/mistyped: "), "{said}");
    let heard = String::from_utf8(front.passed.lock().unwrap().clone()).unwrap();
    assert!(heard.starts_with("GET /explain/pod/default/mistyped HTTP/1.1\r\n"), "{heard}");
    for credentials in [TOKEN, "uthorization", "earer", "ookie"] {
        assert!(!heard.contains(credentials), "{credentials}: {heard}");
    }

    let stranger = cluster.explain(&kubeconfig(json!({"token": "a-stranger"})), &["pod/mistyped"]);
    refused(&stranger, "the API server does not let you ask: a-stranger cannot get resource pods/portforward");
    refused(&stranger, "a pod's own events have the reason, too");
    let closed = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port().to_string();
    let elsewhere = cluster.explain(&kubeconfig(plugin), &["pod/mistyped", "--explain-port", &closed]);
    refused(&elsewhere, &format!("nobody answers on port {closed} of pod kube-system/kerf-0"));
}

/// Says that `kerf-0` leads, and forwards one port of it for whoever has the token.
struct Front {
    url: String,
    /// Everything that reached the pod's port.
    passed: Arc<Mutex<Vec<u8>>>,
}

impl Front {
    fn start(operator: String) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let passed = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&passed);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (operator, record) = (operator.clone(), Arc::clone(&record));
                std::thread::spawn(move || answer(client, &operator, &record));
            }
        });
        Self { url, passed }
    }
}

fn answer(mut client: TcpStream, operator: &str, record: &Mutex<Vec<u8>>) {
    let Some(head) = head(&mut client) else { return };
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let header = |name: &str| {
        let of_name = |line: &str| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then(|| value.to_owned())
        };
        head.lines().find_map(of_name).unwrap_or_default()
    };
    let user = header("authorization").trim_start_matches("Bearer ").to_owned();
    if path.ends_with("/namespaces/kube-system/leases/karpenter-leader-election") {
        let holder = "kerf-0_01234567-89ab-cdef-0123-456789abcdef";
        return say(&mut client, "200 OK", &json!({"kind": "Lease", "spec": {"holderIdentity": holder}}));
    }
    let Some(port) = path.strip_prefix("/api/v1/namespaces/kube-system/pods/kerf-0/portforward?&ports=") else {
        return say(&mut client, "404 Not Found", &json!({"kind": "Status", "code": 404, "message": path}));
    };
    if user != TOKEN {
        let message = format!("{user} cannot get resource pods/portforward");
        let refusal =
            json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": message});
        return say(&mut client, "403 Forbidden", &refusal);
    }
    let key = tungstenite::handshake::derive_accept_key(header("sec-websocket-key").as_bytes());
    let switch = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {key}\r\n\
         Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n"
    );
    client.write_all(switch.as_bytes()).unwrap();
    let port: u16 = port.parse().unwrap();
    let mut socket = WebSocket::from_raw_socket(client, Role::Server, None);
    // Both channels begin with the port.
    for channel in [0, 1] {
        let [low, high] = port.to_le_bytes();
        socket.send(Message::binary(vec![channel, low, high])).unwrap();
    }
    if !operator.ends_with(&format!(":{port}")) {
        socket.send(Message::binary(b"\x01connection refused".to_vec())).unwrap();
        let _ = socket.close(None);
        while socket.read().is_ok() {}
        return;
    }
    // One question, and its answer up to the end.
    let Ok(Message::Binary(question)) = socket.read() else { return };
    assert_eq!(question[0], 0);
    record.lock().unwrap().extend_from_slice(&question[1..]);
    let mut pod = TcpStream::connect(operator).unwrap();
    pod.write_all(&question[1..]).unwrap();
    let mut answered = vec![0];
    pod.read_to_end(&mut answered).unwrap();
    socket.send(Message::binary(answered)).unwrap();
    let _ = socket.close(None);
    while socket.read().is_ok() {}
}

fn head(client: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

fn say(client: &mut TcpStream, status: &str, body: &Value) {
    let body = body.to_string();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    // Whoever asked may have gone.
    let _ = client.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes());
}

/// Status and body of a page.
fn page(address: &str, path: &str) -> (u16, String) {
    let port = address.rsplit(':').next().unwrap();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: kerf\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
