//! `kerf explain` with an operator that takes itself for one in a pod: through the API server, which asks RBAC, and a kubelet.
//!
//! ```text
//! kerf explain ─▶ kube-apiserver ─ pods/portforward ─▶ kwok ─▶ a proxy that writes down what passes ─▶ loopback of the operator
//! ```

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use kerf_e2e::control_plane::Address;
use serde_json::{Value, json};

use crate::scene::is_true;
use crate::stage::{LEASE, NODES, Stage};
use crate::tests;

tests!(; only Real whoever_may_forward_the_leaders_ports_is_answered_and_no_token_passes);

const SYSTEM: &str = "/api/v1/namespaces/kube-system";
const POD: &str = "kerf-0";

fn whoever_may_forward_the_leaders_ports_is_answered_and_no_token_passes(stage: &Stage<'_>) {
    stage.add_pool(|_| {});
    add_pod(stage);
    let (asker, stranger) = (user(stage, "asker"), user(stage, "stranger"));
    allow(stage, "asker");
    let environment = [("KUBERNETES_SERVICE_HOST", "10.96.0.1"), ("POD_NAME", POD), ("EXPLAIN_PORT", "0")];
    stage.with_operator(&environment, || {
        let leads = || stage.read(LEASE)["spec"]["holderIdentity"].as_str().is_some_and(|it| it.starts_with("kerf-0_"));
        stage.wait_for("the operator in the pod to lead", leads);
        let operator = stage.operator().explain_address().unwrap();
        let heard = record(stage.kubelet().forwarded.try_clone().unwrap(), operator);

        let pool = format!("nodepool/{}", stage.namespace);
        let said = stage.kerf_as(&asker.kubeconfig, &["explain", &pool]);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
        assert!(said.out.starts_with(&format!("nodepool {}: is ready", stage.namespace)), "{}", said.out);
        let text = String::from_utf8_lossy(&heard.lock().unwrap()).into_owned();
        assert!(text.starts_with(&format!("GET /explain/{pool} HTTP/1.1\r\n")), "{text}");
        for credentials in [asker.token.as_str(), "uthorization", "earer", "ookie"] {
            assert!(!text.contains(credentials), "{credentials} reached the operator: {text}");
        }

        let n_heard = heard.lock().unwrap().len();
        let said = stage.kerf_as(&stranger.kubeconfig, &["explain", &pool]);
        assert_eq!(said.code, 1, "{}", said.out);
        assert!(
            said.err.contains("you may not look who leads") && said.err.contains("cannot get resource \"leases\""),
            "{}",
            said.err
        );
        let said = stage.kerf_as(&stranger.kubeconfig, &["explain", &pool, "--pod", &format!("kube-system/{POD}")]);
        assert_eq!(said.code, 1, "{}", said.out);
        let refusal = "cannot get resource \"pods/portforward\" in API group \"\" in the namespace \"kube-system\"";
        assert!(said.err.contains("the API server does not let you ask") && said.err.contains(refusal), "{}", said.err);
        assert_eq!(heard.lock().unwrap().len(), n_heard, "nothing of it reached the operator");
    });
}

/// The operator's pod, on a node that our kubelet answers for. Nobody else's pods go there.
fn add_pod(stage: &Stage<'_>) {
    let node = format!("{}-kubelet", stage.namespace);
    stage.clear_later(format!("{NODES}/{node}"));
    stage.create(
        NODES,
        &json!({
            "metadata": {"name": node, "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "spec": {"taints": [{"key": "kerf.test/operator", "effect": "NoSchedule"}]},
        }),
    );
    // The kubelet says once how its node is; where it is to be found it leaves to us.
    stage.wait_for("the node to be ready", || is_true(&stage.read(&format!("{NODES}/{node}")), "Ready"));
    stage.patch(
        &format!("{NODES}/{node}/status"),
        &json!({"status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": stage.kubelet().port}},
        }}),
    );
    stage.clear_later(format!("{SYSTEM}/pods/{POD}?gracePeriodSeconds=0"));
    let containers = json!([{"name": "controller", "image": "kerf"}]);
    stage.create(
        &format!("{SYSTEM}/pods"),
        &json!({"metadata": {"name": POD}, "spec": {"nodeName": node, "containers": containers}}),
    );
    stage.wait_for("the operator's pod to run", || {
        stage.read(&format!("{SYSTEM}/pods/{POD}"))["status"]["phase"] == "Running"
    });
}

struct User {
    token: String,
    kubeconfig: PathBuf,
}

/// A user whom the API server knows by a token that an exec plugin gives, as on EKS.
fn user(stage: &Stage<'_>, name: &str) -> User {
    stage.create(&stage.at("v1", "serviceaccounts"), &json!({"metadata": {"name": name}}));
    let path = format!("{}/token", stage.object("v1", "serviceaccounts", name));
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = stage.create(&path, &request)["status"]["token"].as_str().unwrap().to_owned();
    let status = json!({"token": token, "expirationTimestamp": "2100-01-01T00:00:00Z"});
    let credential =
        json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status});
    let plugin = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "interactiveMode": "Never",
        "args": ["-c", format!("echo '{credential}'")],
    });
    let Address { endpoint, ca_pem, .. } = stage.address();
    let authority = stage.folder().join("explain-ca.crt");
    std::fs::write(&authority, ca_pem).unwrap();
    let cluster = json!({"server": endpoint, "certificate-authority": authority});
    let kubeconfig = stage.folder().join(format!("explain-{name}"));
    let config: Value = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": cluster}], "users": [{"name": "it", "user": {"exec": plugin}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    User { token, kubeconfig }
}

/// What `kerf explain` takes, and nothing else.
fn allow(stage: &Stage<'_>, account: &str) {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system";
    let name = format!("{}-explain", stage.namespace);
    for plural in ["roles", "rolebindings"] {
        stage.clear_later(format!("{RBAC}/{plural}/{name}"));
    }
    stage.create(
        &format!("{RBAC}/roles"),
        &json!({"metadata": {"name": name}, "rules": [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["karpenter-leader-election"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"]},
        ]}),
    );
    let group = "rbac.authorization.k8s.io";
    stage.create(
        &format!("{RBAC}/rolebindings"),
        &json!({
            "metadata": {"name": name}, "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": stage.namespace}],
        }),
    );
}

/// Passes on what comes to the pod, and keeps what the operator hears.
fn record(pod: TcpListener, operator: String) -> Arc<Mutex<Vec<u8>>> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&heard);
    thread::spawn(move || {
        for from in pod.incoming().map_while(Result::ok) {
            let Ok(to) = TcpStream::connect(&operator) else { return };
            let (mut question, mut answer) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let record = Arc::clone(&record);
            thread::spawn(move || {
                let mut piece = [0; 4096];
                while let Ok(n @ 1..) = question.read(&mut piece) {
                    record.lock().unwrap().extend_from_slice(&piece[..n]);
                    if (&to).write_all(&piece[..n]).is_err() {
                        return;
                    }
                }
            });
            thread::spawn(move || {
                // Whoever asked may have hung up.
                let _ = std::io::copy(&mut answer, &mut &from);
                let _ = from.shutdown(Shutdown::Both);
            });
        }
    });
    heard
}
