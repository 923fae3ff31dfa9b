//! `kerf run` as a process, against the embedded control plane.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

use kerf_control_plane::request::Request;
use kerf_control_plane::{ControlPlane, Options};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Long enough for a slow machine; nothing here waits for time to pass.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster with our definitions, and a kubeconfig for it.
struct Cluster {
    plane: ControlPlane,
    folder: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Self {
        let plane = ControlPlane::start(&Options::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        plane.write_kubeconfig(&folder.path().join("kubeconfig")).unwrap();
        let cluster = Self { plane, folder };
        for definition in kerf_api::crds() {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            cluster.ask("POST", path, &serde_json::to_value(definition).unwrap()).unwrap();
        }
        cluster
    }

    fn kubeconfig(&self) -> String {
        self.folder.path().join("kubeconfig").display().to_string()
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Option<Value> {
        let answer = self.plane.server().handle(&Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: String::new(),
            accept: "application/json".to_owned(),
            content_type: "application/json".to_owned(),
            user_agent: "test".to_owned(),
            body: if body.is_null() { Vec::new().into() } else { body.to_string().into() },
        });
        (200..300).contains(&answer.status).then(|| answer.to_value())
    }

    fn get(&self, path: &str) -> Option<Value> {
        self.ask("GET", path, &Value::Null)
    }
}

/// The process. Ends with its owner.
struct Operator {
    child: Child,
    lines: Receiver<Value>,
    metrics: String,
    probes: String,
}

impl Operator {
    fn start(cluster: &Cluster, flags: &[&str]) -> Self {
        Self::start_with(cluster, flags, &[])
    }

    fn start_with(cluster: &Cluster, flags: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = kerf()
            .args(["run", "--cloud=kwok", "--metrics-port=0", "--health-probe-port=0", "--kubeconfig"])
            .arg(cluster.kubeconfig())
            .args(flags)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (to, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or_else(|_| panic!("the log is not JSON: {line}"));
                if to.send(line).is_err() {
                    return;
                }
            }
        });
        let mut operator = Self { child, lines, metrics: String::new(), probes: String::new() };
        let start = operator.line("starting");
        operator.metrics = start["metrics"].as_str().unwrap().to_owned();
        operator.probes = start["probes"].as_str().unwrap().to_owned();
        operator
    }

    /// The next line of the log with this message.
    #[track_caller]
    fn line(&mut self, message: &str) -> Value {
        let begun = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|_| panic!("no line {message:?}"));
            if line["message"] == message {
                return line;
            }
        }
    }

    fn terminate(&mut self) -> Option<i32> {
        let status = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn kerf() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kerf"));
    // Whatever the machine's own variables are, they are not what is tested.
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/nonexistent");
    command
}

/// Status and body of a page.
fn page(address: &str, path: &str) -> (u16, String) {
    let port = address.rsplit(':').next().unwrap();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: kerf\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
fn refused(output: &Output, expected: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(expected), "{said}");
    assert_eq!(said.lines().count(), 1, "one clear message: {said}");
}

#[test]
fn it_leads_is_ready_shows_its_metrics_and_stops_when_asked() {
    let cluster = Cluster::start();
    let mut operator =
        Operator::start(&cluster, &["--leader-election-namespace=default", "--enable-profiling", "--log-level=debug"]);
    assert_eq!(page(&operator.probes, "/healthz"), (200, "ok".to_owned()));
    until("it is ready", || page(&operator.probes, "/readyz") == (200, "ok".to_owned()));
    assert_eq!(page(&operator.metrics, "/metrics").0, 200);
    assert!(page(&operator.metrics, "/debug/pprof/cmdline").1.contains("--cloud=kwok"));
    assert_eq!(page(&operator.metrics, "/debug/pprof/profile").0, 501);
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/karpenter-leader-election";
    until("it leads", || cluster.get(lease).is_some());
    let spec = cluster.get(lease).unwrap()["spec"].clone();
    assert_eq!(spec["leaseDurationSeconds"], 15);
    let holder = spec["holderIdentity"].as_str().unwrap();
    assert_eq!(holder.rsplit('_').next().unwrap().len(), 36, "{holder} ends with a uuid");
    assert_eq!(operator.terminate(), Some(0));
    operator.line("stopped");
    assert_eq!(cluster.get(lease).unwrap()["spec"]["holderIdentity"], "", "given back");
}

#[test]
fn a_pause_is_told_by_the_readiness_page_and_a_metric_and_makes_nobody_unready() {
    let cluster = Cluster::start();
    let flags = ["--disable-leader-election", "--pause-disruption"];
    let operator = Operator::start(&cluster, &flags);
    until("it is ready", || page(&operator.probes, "/readyz") == (200, "ok".to_owned()));
    let why = "stand still: the operator was started with --pause-disruption\n";
    until("it says so", || {
        let (status, words) = page(&operator.probes, "/readyz?verbose");
        status == 200
            && words.contains("[+]pods ok\n")
            && words.contains(why)
            && words.ends_with("readyz check passed\n")
    });
    let line = "kerf_disruption_standstill{what=\"emptiness\",reason=\"paused\"} 1";
    until("it counts", || page(&operator.metrics, "/metrics").1.lines().any(|it| it == line));
}

#[test]
fn without_profiling_there_are_no_profiles() {
    let cluster = Cluster::start();
    let mut operator = Operator::start(&cluster, &["--disable-leader-election"]);
    assert_eq!(page(&operator.metrics, "/debug/pprof/").0, 404);
    until("it is ready", || page(&operator.probes, "/readyz").0 == 200);
    assert_eq!(operator.terminate(), Some(0));
}

#[test]
fn a_variable_that_cannot_be_read_is_in_the_log() {
    let cluster = Cluster::start();
    let mut child = kerf()
        .args(["run", "--disable-leader-election", "--metrics-port=0", "--kubeconfig", &cluster.kubeconfig()])
        .env("HEALTH_PROBE_PORT", "0")
        .env("KUBE_CLIENT_QPS", "many")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(first.contains("KUBE_CLIENT_QPS") && first.contains("the default counts"), "{first}");
}

#[test]
fn what_cannot_work_ends_at_once_with_one_message_that_says_what_to_do() {
    let cluster = Cluster::start();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let good = cluster.kubeconfig();
    let unauthorised =
        file("stranger", &std::fs::read_to_string(&good).unwrap().replace("token: kerf-", "token: nobody-"));
    let unreachable = file("nowhere", &at_closed_port(Path::new(&good)));
    let run = |flags: &[&str]| kerf().arg("run").args(flags).output().unwrap();
    // All that is wrong with the settings of AWS is told together, line by line.
    let without_name = run(&["--cloud=aws", "--kubeconfig", &good]);
    let said = String::from_utf8_lossy(&without_name.stderr);
    let wanted =
        if cfg!(feature = "aws") { "--cluster-name (CLUSTER_NAME) is empty" } else { "is not part of this binary" };
    assert!(without_name.status.code() == Some(1) && said.contains(wanted), "{said}");
    for (flags, expected) in [
        (&["--cloud=sim", "--kubeconfig", &good][..], "kerf up"),
        (&["--kubeconfig", "/no/such/file"], "cannot use --kubeconfig /no/such/file"),
        (&["--kubeconfig", &file("odd", "{}")], "names no cluster that can be used"),
        (&[], "give --kubeconfig, set KUBECONFIG, or run in a pod"),
        (&["--kubeconfig", &unauthorised], "does not accept our credentials"),
        (&["--kubeconfig", &unreachable], "cannot reach the API server at https://127.0.0.1:"),
        (&["--kubeconfig", &good, "--instance-types-file-path", "/no/such/file"], "cannot read the instance types"),
        (
            &["--kubeconfig", &good, "--instance-types-file-path", &file("t", "[{}]")],
            "no instance type that can be used",
        ),
        (&["--kubeconfig", &good, "--instance-types-file-path", &file("u", "{")], "no instance type that can be used"),
        (&["--kubeconfig", &good, "--instance-types-file-path", &file("v", "[]")], "holds no instance type"),
        (&["--metrics-port=9", "--health-probe-port=9"], "give one of them another port"),
        (&["--feature-gates=NodeRepair="], "NodeRepair"),
    ] {
        refused(&run(flags), expected);
    }
}

/// The same kubeconfig, whose user is somebody else.
fn with_user(kubeconfig: &str, user: &Value) -> String {
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let mut config: Value = serde_norway::from_str(&text).unwrap();
    config["users"][0]["user"] = user.clone();
    config.to_string()
}

/// A user whose credentials come from a script.
fn plugin(script: &str) -> Value {
    json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": ["-c", script], "interactiveMode": "Never",
    }})
}

#[test]
fn an_exec_plugin_gives_the_credentials_and_one_that_cannot_is_named() {
    let cluster = Cluster::start();
    let token = cluster.plane.address().unwrap().token.clone();
    let file = cluster.folder.path().join("plugin");
    let credential = |token: &str| {
        let status = json!({"token": token, "expirationTimestamp": "2100-01-01T00:00:00Z"});
        json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}).to_string()
    };
    let run = |script: &str| {
        std::fs::write(&file, with_user(&cluster.kubeconfig(), &plugin(script))).unwrap();
        kerf().args(["run", "--cloud=kwok", "--kubeconfig", &file.display().to_string()]).output().unwrap()
    };
    refused(&run("exit 3"), "exec plugin \"/bin/sh\" of the kubeconfig gives no credentials: run it by hand");
    refused(&run("echo hello"), "gives no credentials");
    refused(&run(&format!("echo '{}'", credential("of-last-year"))), "does not accept our credentials");
    let good = plugin(&format!("echo '{}'", credential(&token)));
    std::fs::write(&file, with_user(&cluster.kubeconfig(), &good)).unwrap();
    std::fs::rename(&file, cluster.folder.path().join("kubeconfig")).unwrap();
    let mut operator = Operator::start(&cluster, &["--disable-leader-election"]);
    until("it is ready", || page(&operator.probes, "/readyz").0 == 200);
    assert_eq!(operator.terminate(), Some(0));
}

/// A proxy that knows one name, and whom it was asked for.
fn start_proxy(to: u16) -> (u16, Receiver<String>) {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (told, asked) = channel();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let mut head = BufReader::new(client.try_clone().unwrap());
            let mut line = String::new();
            head.read_line(&mut line).unwrap();
            let mut other = String::new();
            while head.read_line(&mut other).is_ok_and(|n| n > 2) {
                other.clear();
            }
            if told.send(line.trim().to_owned()).is_err() {
                return;
            }
            let server = TcpStream::connect(("127.0.0.1", to)).unwrap();
            (&client).write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from_client, &mut to_server));
            std::thread::spawn(move || std::io::copy(&mut &server, &mut &client));
        }
    });
    (port, asked)
}

#[test]
fn https_proxy_is_asked_for_the_api_server_unless_no_proxy_names_it() {
    let cluster = Cluster::start();
    let file = cluster.folder.path().join("kubeconfig");
    let mut config: Value = serde_norway::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned();
    let port: u16 = server.rsplit(':').next().unwrap().parse().unwrap();
    // Only the proxy knows who that is.
    config["clusters"][0]["cluster"]["server"] = json!(format!("https://api.kerf.invalid:{port}"));
    config["clusters"][0]["cluster"]["tls-server-name"] = json!("localhost");
    std::fs::write(&file, config.to_string()).unwrap();
    let (proxy, asked) = start_proxy(port);
    let proxy = format!("http://127.0.0.1:{proxy}");
    let mut operator = Operator::start_with(
        &cluster,
        &["--disable-leader-election"],
        &[("HTTPS_PROXY", &proxy), ("NO_PROXY", "10.0.0.0/8")],
    );
    until("it is ready", || page(&operator.probes, "/readyz").0 == 200);
    assert_eq!(asked.recv().unwrap(), format!("CONNECT api.kerf.invalid:{port} HTTP/1.1"));
    assert_eq!(operator.terminate(), Some(0));
    let output = kerf()
        .args(["run", "--cloud=kwok", "--kubeconfig", &cluster.kubeconfig()])
        .envs([("HTTPS_PROXY", proxy.as_str()), ("NO_PROXY", ".kerf.invalid")])
        .output()
        .unwrap();
    refused(&output, "cannot reach the API server at https://api.kerf.invalid:");
    let output = kerf()
        .args(["run", "--cloud=kwok", "--kubeconfig", &cluster.kubeconfig()])
        .envs([("HTTPS_PROXY", "https://proxy.kerf.invalid")])
        .output()
        .unwrap();
    refused(&output, "the proxy https://proxy.kerf.invalid cannot be used");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let cluster = Cluster::start();
    let taken = std::net::TcpListener::bind(("::", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let flag = format!("--metrics-port={port}");
    let output = kerf().args(["run", &flag, "--kubeconfig", &cluster.kubeconfig()]).output().unwrap();
    refused(&output, "give another port, or end what uses it");
}

#[test]
fn help_is_an_answer_and_a_wrong_flag_is_not() {
    let output = kerf().args(["run", "--help"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("--leader-election-namespace"));
    assert_eq!(kerf().args(["run", "--metrics-port=many"]).output().unwrap().status.code(), Some(1));
}

/// The same kubeconfig, at a port where nobody listens.
fn at_closed_port(kubeconfig: &Path) -> String {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let lines = text.lines().map(|line| match line.trim_start().strip_prefix("server: ") {
        Some(_) => format!("    server: https://127.0.0.1:{port}\n"),
        None => format!("{line}\n"),
    });
    lines.collect()
}

/// A cluster with a pool and a pod that has no place.
fn with_a_waiting_pod() -> Cluster {
    let cluster = Cluster::start();
    let create = |path: &str, object: Value| cluster.ask("POST", path, &object).unwrap();
    create(
        "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses",
        json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}),
    );
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    create(
        "/apis/karpenter.sh/v1/nodepools",
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
            "spec": {"template": {"spec": {"nodeClassRef": class, "requirements": []}}},
        }),
    );
    create(
        "/api/v1/namespaces/default/pods",
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "waits"},
            "spec": {"containers": [{"name": "a", "image": "a", "resources": {"requests": {"cpu": "1"}}}]},
        }),
    );
    cluster
}

#[test]
fn pods_that_wait_get_a_claim() {
    let cluster = with_a_waiting_pod();
    let mut operator = Operator::start(
        &cluster,
        &["--disable-leader-election", "--batch-idle-duration=10ms", "--feature-gates=NodeRepair=true"],
    );
    let claims = || cluster.get("/apis/karpenter.sh/v1/nodeclaims").unwrap()["items"].as_array().unwrap().clone();
    until("there is a claim", || !claims().is_empty());
    assert_eq!(claims().len(), 1);
    assert_eq!(claims()[0]["metadata"]["labels"]["karpenter.sh/nodepool"], "default");
    assert_eq!(operator.terminate(), Some(0));
}

/// Somebody's older or looser definition let it in.
#[test]
fn a_claim_that_cannot_be_read_is_told_and_the_others_go_on() {
    let cluster = with_a_waiting_pod();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodeclaims.karpenter.sh";
    let mut definition = cluster.get(path).unwrap();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    cluster.ask("PUT", path, &definition).unwrap();
    let claims = "/apis/karpenter.sh/v1/nodeclaims";
    let odd = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "odd"}, "spec": {"requirements": "none"},
    });
    until("the definition is looser", || cluster.ask("POST", claims, &odd).is_some());
    let mut operator = Operator::start(&cluster, &["--disable-leader-election", "--batch-idle-duration=10ms"]);
    let registered = operator.line("registered nodeclaim");
    assert_ne!(registered["NodeClaim"]["name"], "odd", "{registered}");
    until("it is told", || {
        let events = cluster.get("/api/v1/namespaces/default/events").unwrap()["items"].as_array().unwrap().clone();
        events.iter().any(|event| {
            event["reason"] == "Unreadable" && event["involvedObject"]["name"] == "odd" && event["type"] == "Warning"
        })
    });
    let counted = "kerf_unreadable_objects{kind=\"NodeClaim\"} 1";
    until("it is counted", || page(&operator.metrics, "/metrics").1.contains(counted));
    assert_eq!(page(&operator.probes, "/readyz").0, 200, "the others are cared for");
    cluster.ask("DELETE", &format!("{claims}/odd"), &Value::Null).unwrap();
    until("it is forgotten", || !page(&operator.metrics, "/metrics").1.contains(counted));
    assert_eq!(operator.terminate(), Some(0));
}

/// `kubectl logs -l app.kubernetes.io/name=karpenter -c controller` reads the standard output of that container. Label and container are the
/// chart's; that the decisions are on the standard output, whatever else is set, is ours.
#[test]
fn d0_64_the_decisions_are_on_the_standard_output_for_kubectl_logs() {
    let cluster = with_a_waiting_pod();
    let mut operator = Operator::start(&cluster, &["--disable-leader-election", "--batch-idle-duration=10ms"]);
    let found = operator.line("found provisionable pod(s)");
    assert_eq!(found["pods"], 1, "{found}");
    operator.line("computed new nodeclaim(s) to fit pod(s)");
    let created = operator.line("created nodeclaim");
    assert_eq!(created["NodePool"]["name"], "default", "{created}");
    let launched = operator.line("launched nodeclaim");
    assert_eq!(launched["NodeClaim"]["name"], created["NodeClaim"]["name"], "{launched}");
    operator.line("registered nodeclaim");
}

/// The chart tells the operator its namespace by SYSTEM_NAMESPACE, and it may be any.
#[test]
fn d4_8_the_lease_follows_the_namespace_that_the_operator_lives_in() {
    for namespace in ["kube-system", "karpenter"] {
        let cluster = Cluster::start();
        // `kube-system` is there already.
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karpenter"}});
        cluster.ask("POST", "/api/v1/namespaces", &object).unwrap();
        let mut operator = Operator::start_with(&cluster, &[], &[("SYSTEM_NAMESPACE", namespace)]);
        let holder = |namespace: &str| {
            let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/karpenter-leader-election");
            Some(cluster.get(&path)?["spec"]["holderIdentity"].clone())
        };
        until("it leads", || holder(namespace).is_some_and(|holder| holder != ""));
        until("it is ready", || page(&operator.probes, "/readyz") == (200, "ok".to_owned()));
        let leases = cluster.get("/apis/coordination.k8s.io/v1/leases").unwrap()["items"].as_array().unwrap().clone();
        let ours = leases.iter().filter(|lease| lease["metadata"]["name"] == "karpenter-leader-election");
        assert_eq!(ours.count(), 1, "one lease, in {namespace}");
        assert_eq!(operator.terminate(), Some(0));
        assert_eq!(holder(namespace).unwrap(), "", "given back in {namespace}");
    }
}

/// A connection from one of loopback's many addresses.
fn connect_from(last: u8, to: &str) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let port: u16 = to.rsplit(':').next().unwrap().parse().unwrap();
    runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, last], 0).into()).unwrap();
        socket.connect(([127, 0, 0, 1], port).into()).await.unwrap().into_std().unwrap()
    })
}

#[test]
fn clients_that_hold_connections_open_cost_the_operator_neither_files_nor_its_probes() {
    let cluster = Cluster::start();
    let mut operator = Operator::start(&cluster, &["--leader-election-namespace=default"]);
    until("it is ready", || page(&operator.probes, "/readyz").0 == 200);
    let files = format!("/proc/{}/fd", operator.child.id());
    let n_files = || std::fs::read_dir(&files).unwrap().count();
    let before = n_files();
    let mut held = Vec::new();
    for address in [&operator.probes, &operator.metrics] {
        held.extend((0..300).map(|nth| connect_from(10 + nth as u8 % 3, address)));
        let begun = Instant::now();
        assert_eq!(page(address, if address == &operator.probes { "/healthz" } else { "/metrics" }).0, 200);
        assert!(begun.elapsed() < Duration::from_secs(10), "a probe waited {:?}", begun.elapsed());
    }
    // What else it does needs some, too.
    assert!(n_files() < before + 2 * 64 + 40, "{} files, before {before}", n_files());
    assert_eq!(page(&operator.probes, "/readyz").0, 200);
    drop(held);
    assert_eq!(operator.terminate(), Some(0), "it kept its lease");
}
