//! The control plane under kube's own client, without a socket; and twice under one seed.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

use std::collections::BTreeMap;

use futures_core::Stream as _;
use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kerf_control_plane::clock::Clock;
use kerf_control_plane::kubelet::Machine;
use kerf_control_plane::{ControlPlane, Options};
use kube::api::{Api, DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};

fn plane(seed: u64) -> ControlPlane {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    ControlPlane::in_process(&Options { clock, seed, ..Options::default() })
}

fn client(plane: &ControlPlane) -> kube::Client {
    kube::Client::new(plane.service(), "default")
}

fn boot(plane: &ControlPlane, name: &str) {
    let capacity = [("cpu", "4"), ("memory", "8Gi"), ("pods", "110")];
    plane.machines().boot(Machine {
        name: name.to_owned(),
        capacity: capacity
            .iter()
            .map(|(key, value)| {
                ((*key).to_owned(), k8s_openapi::apimachinery::pkg::api::resource::Quantity((*value).to_owned()))
            })
            .collect::<BTreeMap<_, _>>()
            .into(),
        boot_delay: SignedDuration::from_secs(30),
        ..Machine::default()
    });
}

fn web(replicas: i32) -> Deployment {
    serde_json::from_value(json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "web", "image": "web:1", "resources": { "requests": { "cpu": "500m" } } }] },
            },
        },
    }))
    .unwrap()
}

#[tokio::test]
async fn a_client_of_another_house_sees_a_cluster() {
    let plane = plane(1);
    let client = client(&plane);
    let version = client.apiserver_version().await.unwrap();
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "36"));
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &web(3)).await.unwrap();
    plane.advance(SignedDuration::from_secs(10));
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let waiting = pods.list(&ListParams::default().fields("status.phase=Pending").labels("app=web")).await.unwrap();
    assert_eq!(waiting.items.len(), 3);
    boot(&plane, "one");
    plane.advance(SignedDuration::from_mins(2));
    let nodes: Api<Node> = Api::all(client.clone());
    assert_eq!(nodes.list(&ListParams::default()).await.unwrap().items.len(), 1);
    let running = pods.list(&ListParams::default().fields("spec.nodeName=one,status.phase=Running")).await.unwrap();
    assert_eq!(running.items.len(), 3);
    let ready = deployments.get_status("web").await.unwrap().status.unwrap().ready_replicas;
    assert_eq!(ready, Some(3));
    let victim = running.items[0].metadata.name.clone().unwrap();
    pods.evict(&victim, &EvictParams::default()).await.unwrap();
    plane.advance(SignedDuration::from_mins(2));
    let now = pods.list(&ListParams::default()).await.unwrap();
    assert!(now.items.iter().all(|pod| pod.metadata.name.as_deref() != Some(victim.as_str())));
    assert_eq!(now.items.len(), 3);
    deployments.delete("web", &DeleteParams::foreground()).await.unwrap();
    plane.advance(SignedDuration::from_mins(2));
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 0);
    assert_eq!(deployments.get_opt("web").await.unwrap(), None);
}

#[tokio::test]
async fn a_watch_in_the_process_hears_what_happens() {
    use tokio::time::timeout;
    let plane = plane(1);
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&plane));
    let map = |value: &str| {
        let data = BTreeMap::from([("a".to_owned(), value.to_owned())]);
        let mut map = ConfigMap { data: Some(data), ..ConfigMap::default() };
        map.metadata.name = Some("one".to_owned());
        map
    };
    let first = maps.create(&PostParams::default(), &map("1")).await.unwrap();
    let from = first.metadata.resource_version.unwrap();
    let mut events = Box::pin(maps.watch(&WatchParams::default(), &from).await.unwrap());
    maps.patch(
        "one",
        &PatchParams::apply("tester").force(),
        &Patch::Apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "one" }, "data": { "a": "2" },
        })),
    )
    .await
    .unwrap();
    maps.delete("one", &DeleteParams::default()).await.unwrap();
    let mut told = Vec::new();
    while told.len() < 2 {
        let next = std::future::poll_fn(|context| events.as_mut().poll_next(context));
        let event = timeout(std::time::Duration::from_secs(20), next).await.expect("a watch does not hang").unwrap();
        told.push(match event.unwrap() {
            WatchEvent::Modified(map) => format!("modified {}", map.data.unwrap()["a"]),
            WatchEvent::Deleted(map) => format!("deleted {}", map.metadata.name.unwrap()),
            other => format!("{other:?}"),
        });
    }
    assert_eq!(told, ["modified 2", "deleted one"]);
}

/// Everything that is stored after an hour with machines, rollouts and a lost node.
fn an_hour(seed: u64) -> Vec<Value> {
    let plane = plane(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The client's own buffer wants a runtime to live in.
    let _inside = runtime.enter();
    let deployments: Api<Deployment> = Api::default_namespaced(client(&plane));
    runtime.block_on(deployments.create(&PostParams::default(), &web(12))).unwrap();
    for name in ["one", "two", "three"] {
        boot(&plane, name);
    }
    plane.advance(SignedDuration::from_mins(5));
    plane.machines().power_off("two");
    let patch = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "web", "image": "web:2" }] } } } });
    runtime.block_on(deployments.patch("web", &PatchParams::default(), &Patch::Strategic(&patch))).unwrap();
    plane.advance(SignedDuration::from_mins(55));
    let state = plane.server().lock();
    let resources: Vec<_> = state.store.resources().cloned().collect();
    resources.iter().flat_map(|id| state.store.list(id, "").map(|stored| stored.value()).collect::<Vec<_>>()).collect()
}

#[test]
fn the_same_seed_gives_the_same_cluster_to_the_byte() {
    let first = an_hour(7);
    assert!(first.len() > 40, "{}", first.len());
    assert_eq!(first, an_hour(7));
    assert_ne!(first, an_hour(8));
}

#[test]
fn the_older_document_comes_in_protocol_buffers_to_who_asks_for_nothing_else() {
    let plane = plane(1);
    let ask = |accept: &str| {
        plane.server().handle(&kerf_control_plane::request::Request {
            method: "GET".to_owned(),
            path: "/openapi/v2".to_owned(),
            accept: accept.to_owned(),
            ..Default::default()
        })
    };
    // So asks Go's client, which kubectl is built on.
    let answer = ask("application/com.github.proto-openapi.spec.v2@v1.0+protobuf");
    assert_eq!(answer.content_type, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    let kerf_control_plane::rest::Body::Whole(bytes) = answer.body else { panic!("a document is whole") };
    assert!(bytes.starts_with(b"\x0a\x032.0\x12"), "its version comes first");
    assert_eq!(ask("application/json").to_value()["swagger"], "2.0");
}
