//! Does the control plane itself stand, obey and go away?

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use kerf_e2e::client::Client;
use kerf_e2e::control_plane::{self, ControlPlane, Started, build};
use kerf_e2e::skipped;
use serde_json::json;

const GADGETS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: gadgets.kerf.test }
spec:
  group: kerf.test
  scope: Cluster
  names: { plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList }
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          size: { type: integer, default: 3, x-kubernetes-validations: [{ rule: self < 10, message: too large for a gadget }] }
"#;

fn start() -> Option<Box<ControlPlane>> {
    match control_plane::start(&build::to_stderr).unwrap() {
        Started::Ready(plane) => Some(plane),
        Started::Skipped(reason) => {
            skipped::tell(1, "the control plane itself", &reason);
            None
        }
    }
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_control_plane_takes_a_kind_defaults_it_guards_it_and_is_gone_when_dropped() {
    let began = Instant::now();
    let Some(plane) = start() else { return };
    build::to_stderr(&format!("control plane ready after {} ms", began.elapsed().as_millis()));
    let client = plane.client().unwrap();

    let version = client.get("/version").unwrap();
    assert_eq!(version.body["gitVersion"], control_plane::parts::KUBERNETES.version);
    assert_eq!((&version.body["major"], &version.body["minor"]), (&json!("1"), &json!("36")));

    the_schema_is_enforced(&client);
    a_stranger_is_refused(&plane);
    kubectl_gets_in(&plane);
    a_pod_can_be_created(&client);

    let (folder, pids) = (plane.kubeconfig().parent().unwrap().to_owned(), plane.pids());
    assert_eq!(pids.len(), 2);
    drop(plane);
    assert!(!folder.exists());
    for (name, pid) in pids {
        assert!(fs::metadata(format!("/proc/{pid}")).is_err(), "{name} is still there");
    }
}

fn the_schema_is_enforced(client: &Client) {
    let applied = client
        .apply("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.kerf.test", "kerf", GADGETS)
        .unwrap();
    assert!(applied.is_success(), "{}", applied.message());
    let gadgets = "/apis/kerf.test/v1/gadgets";
    wait_for("the new kind to be served", || client.get(gadgets).unwrap().is_success());
    let gadget = json!({"apiVersion": "kerf.test/v1", "kind": "Gadget", "metadata": {"name": "one"}});
    let mut created = client.post(gadgets, &gadget).unwrap().body;
    assert_eq!(created["size"], 3);
    created["size"] = json!(10);
    let refused = client.put(&format!("{gadgets}/one"), &created).unwrap();
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(refused.message().contains("too large for a gadget"), "{refused:?}");
}

fn a_stranger_is_refused(plane: &ControlPlane) {
    let mut address = plane.address().clone();
    address.token = "guessed".to_owned();
    assert_eq!(Client::new(&address).unwrap().get("/api/v1/nodes").unwrap().status, 401);
}

fn kubectl_gets_in(plane: &ControlPlane) {
    let kubectl = plane.binary("kubectl").unwrap();
    let output = Command::new(kubectl)
        .env("KUBECONFIG", plane.kubeconfig())
        .args(["get", "gadgets", "-o", "name"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "gadget.kerf.test/one\n", "{output:?}");
}

fn a_pod_can_be_created(client: &Client) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "web", "image": "web"}]}});
    let answer = client.post("/api/v1/namespaces/default/pods", &pod).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.message());
    // A token for a service account shows that the signing key was understood.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "kerf"}});
    assert_eq!(client.post("/api/v1/namespaces/default/serviceaccounts", &account).unwrap().status, 201);
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}});
    let token = client.post("/api/v1/namespaces/default/serviceaccounts/kerf/token", &request).unwrap();
    assert_eq!(token.status, 201, "{}", token.message());
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token.body["status"]["token"]}});
    let reviewed = client.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).unwrap();
    assert_eq!(reviewed.body["status"]["authenticated"], true, "{}", reviewed.body);
}

#[test]
fn in_a_whole_cluster_a_deployment_comes_to_run_on_a_node_of_kwok() {
    let began = Instant::now();
    let plane = match control_plane::start_cluster(&build::to_stderr).unwrap() {
        Started::Ready(plane) => plane,
        Started::Skipped(reason) => {
            skipped::tell(1, "the whole cluster", &reason);
            return;
        }
    };
    build::to_stderr(&format!("cluster ready after {} ms", began.elapsed().as_millis()));
    let names: Vec<String> = plane.pids().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"]);

    let client = plane.client().unwrap();
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "annotations": {"kwok.x-k8s.io/node": "fake"}}});
    assert_eq!(client.post("/api/v1/nodes", &node).unwrap().status, 201);
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web"}]}}}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(client.post(deployments, &deployment).unwrap().status, 201);
    wait_for("both replicas to be available", || {
        client.get(&format!("{deployments}/web")).unwrap().body["status"]["availableReplicas"] == 2
    });
    let pods = client.get("/api/v1/namespaces/default/pods").unwrap().body;
    for pod in pods["items"].as_array().unwrap() {
        assert_eq!((&pod["spec"]["nodeName"], &pod["spec"]["serviceAccountName"]), (&json!("n1"), &json!("default")));
    }

    assert!(client.delete(&format!("{deployments}/web?propagationPolicy=Foreground")).unwrap().is_success());
    wait_for("the deployment and its pods to go", || {
        client.get(&format!("{deployments}/web")).unwrap().status == 404
            && client.get("/api/v1/namespaces/default/pods").unwrap().body["items"] == json!([])
    });
}
