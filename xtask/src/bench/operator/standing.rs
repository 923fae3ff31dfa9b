//! A cluster that was there before the operator: nodes of its own making, full of pods, and nobody at the helm.
//!
//! The objects are what an operator leaves behind when it is replaced: claims that are launched, registered and initialized,
//! their nodes, and a pool that is ready. kwok makes the nodes ready and the pods run.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use kerf_api::NodePool;
use kerf_cloud::kwok;
use kerf_e2e::client::{Answer, Client};
use kerf_e2e::control_plane::Address;
use serde_json::{Value, json};

use super::ledger::NODE_CLAIMS;
use super::measure::{NODE_POOLS, create};
use super::price;
use super::scenes::{Scene, TIMED_KEY, TIMED_VALUE};

const N_NODES: usize = 1_000;
const PODS_PER_NODE: usize = 10;
/// More connections than cores only measure the queue before them.
const CONNECTIONS: usize = 4;
/// kwok plays some hundred pods a second on an idle machine.
const STANDS_WITHIN: Duration = Duration::from_secs(600);
const POLL_EVERY: Duration = Duration::from_millis(500);
/// Each waits for half a minute.
const TRIES_MAX: usize = 5;

/// Ten pods of 350m leave 400m of its 3,900m: no room for the pod that is decided about.
const TYPE: &str = "s-4x-amd64-linux";
const POD_CPU: &str = "350m";
/// 0.025 per core and 0.001 per gigabyte.
const TYPE_PRICE: &str = "0.117180";
const PODS: &str = "/api/v1/namespaces/default/pods";
const NODES: &str = "/api/v1/nodes";

/// Makes the pool, the claims, the nodes and their pods, and waits until all of it stands.
pub(crate) fn fill(address: &Address, client: &Client, scene: &Scene) -> Result<()> {
    let began = Instant::now();
    let hash = create_pool(client, scene)?;
    create_all(address, N_NODES, |client, index| {
        let made = create_surely(client, NODE_CLAIMS, &claim(index, &hash))?;
        let uid = made["metadata"]["uid"].as_str().context("a claim without a uid")?;
        let status = format!("{NODE_CLAIMS}/{}/status", claim_name(index));
        let answer = insist(|| client.patch(&status, "merge", &json!({"status": claim_status(index)})))?;
        ensure!(answer.is_success(), "{status}: {}", answer.message());
        create_surely(client, NODES, &node(index, uid, &hash)).map(drop)
    })?;
    wait_until("all nodes are ready", || {
        let nodes = insist(|| client.get(NODES))?.body;
        let items = nodes["items"].as_array().context("a list without items")?;
        Ok(items.iter().filter(|node| is_ready(node)).count() == N_NODES)
    })?;
    create_all(address, N_NODES * PODS_PER_NODE, |client, index| create_surely(client, PODS, &pod(index)).map(drop))?;
    wait_until("all pods run", || {
        let waiting = insist(|| client.get(&format!("{PODS}?fieldSelector=status.phase!%3DRunning")))?.body;
        Ok(waiting["items"].as_array().context("a list without items")?.is_empty())
    })?;
    println!(
        "   {N_NODES} nodes with {} pods stand after {:.0} s",
        N_NODES * PODS_PER_NODE,
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Waits until kube-scheduler has said that there is no room for the pod that has no node.
pub(crate) fn wait_until_refused(client: &Client) -> Result<()> {
    wait_until("the extra pod is refused by kube-scheduler", || {
        let pods = client.get(&format!("{PODS}?labelSelector={TIMED_KEY}%3D{TIMED_VALUE}"))?.body;
        let is_refused =
            |condition: &Value| condition["type"] == "PodScheduled" && condition["reason"] == "Unschedulable";
        Ok(pods["items"].as_array().is_some_and(|pods| {
            pods.iter().any(|pod| {
                let conditions = pod["status"]["conditions"].as_array();
                conditions.is_some_and(|conditions| conditions.iter().any(is_refused))
            })
        }))
    })
}

/// The pool with its hash and its conditions; answers with the hash.
fn create_pool(client: &Client, scene: &Scene) -> Result<String> {
    let mut object = scene.node_pool();
    let pool: NodePool = serde_json::from_value(object.clone()).context("our own NodePool cannot be read")?;
    let hash = pool.hash().map_err(|error| anyhow!("our own NodePool has no hash: {error:?}"))?;
    object["metadata"]["annotations"] = hash_annotations(&hash);
    create(client, NODE_POOLS, &object)?;
    let conditions = conditions(&["ValidationSucceeded", "NodeClassReady", "Ready"]);
    let status = format!("{NODE_POOLS}/default/status");
    let answer = client.patch(&status, "merge", &json!({"status": {"conditions": conditions}}))?;
    ensure!(answer.is_success(), "{status}: {}", answer.message());
    Ok(hash)
}

/// Does something so many times over all connections.
pub(crate) fn create_all(
    address: &Address,
    n: usize,
    make: impl Fn(&Client, usize) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    let client = Client::new(address)?;
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= n {
                            return Ok(());
                        }
                        make(&client, index)?;
                    }
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow!("a connection panicked"))?)
    })
}

/// Creates an object that an earlier, unanswered request may have created already.
pub(crate) fn create_surely(client: &Client, collection: &str, object: &Value) -> Result<Value> {
    let answer = insist(|| client.post(collection, object))?;
    match answer.status {
        201 => Ok(answer.body),
        409 => {
            let name = object["metadata"]["name"].as_str().context("an object without a name")?;
            Ok(insist(|| client.get(&format!("{collection}/{name}")))?.body)
        }
        _ => bail!("{collection} refuses {}: {}", object["metadata"]["name"], answer.message()),
    }
}

/// Asks again when no answer came: a busy machine makes the server slower than its clients' patience, and ten thousand
/// objects are not to be made in vain for that.
pub(crate) fn insist(mut ask: impl FnMut() -> Result<Answer>) -> Result<Answer> {
    for _ in 1..TRIES_MAX {
        if let Ok(answer) = ask() {
            return Ok(answer);
        }
    }
    ask()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + STANDS_WITHIN;
    while !holds()? {
        if Instant::now() >= deadline {
            bail!("{what}: not within {} s", STANDS_WITHIN.as_secs());
        }
        thread::sleep(POLL_EVERY);
    }
    Ok(())
}

/// Ready, and rid of the taint that a node has until its controller has seen that.
fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    let is_true = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    conditions.is_some_and(|conditions| conditions.iter().any(is_true))
        && node["spec"]["taints"].as_array().is_none_or(Vec::is_empty)
}

fn claim_name(index: usize) -> String {
    format!("default-{index:05}")
}

fn node_name(index: usize) -> String {
    format!("kwok-default-{index:05}")
}

fn hash_annotations(hash: &str) -> Value {
    json!({"karpenter.sh/nodepool-hash": hash, "karpenter.sh/nodepool-hash-version": "v3"})
}

fn labels(index: usize) -> Value {
    json!({
        "karpenter.sh/nodepool": "default",
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.kwok.sh/kwoknodeclass": "default",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": TYPE,
        "topology.kubernetes.io/zone": format!("test-zone-{}", ["a", "b", "c", "d"][index % 4]),
        kwok::INSTANCE_SIZE: "4",
        kwok::INSTANCE_FAMILY: "s",
        kwok::INSTANCE_CPU: "4",
        kwok::INSTANCE_MEMORY: "16Gi"
    })
}

fn conditions(kinds: &[&str]) -> Value {
    let condition = |kind: &&str| {
        json!({"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1})
    };
    kinds.iter().map(condition).collect()
}

fn capacity() -> Value {
    json!({"cpu": "4", "memory": "16Gi", "pods": "64", "ephemeral-storage": "20Gi"})
}

fn allocatable() -> Value {
    json!({"cpu": "3900m", "memory": "16374Mi", "pods": "64", "ephemeral-storage": "20Gi"})
}

fn claim(index: usize, hash: &str) -> Value {
    let labels = labels(index);
    let keys =
        ["kubernetes.io/arch", "kubernetes.io/os", "karpenter.sh/capacity-type", "node.kubernetes.io/instance-type"];
    let requirements: Value =
        keys.into_iter().map(|key| json!({"key": key, "operator": "In", "values": [labels[key]]})).collect();
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {
            "name": claim_name(index), "labels": labels, "annotations": hash_annotations(hash),
            "finalizers": ["karpenter.sh/termination"]
        },
        "spec": {
            "expireAfter": "Never",
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": requirements,
            "resources": {"requests": {"cpu": "3500m", "memory": "5Gi", "pods": "10"}}
        }
    })
}

fn claim_status(index: usize) -> Value {
    json!({
        "providerID": format!("kwok://{}", node_name(index)),
        "nodeName": node_name(index),
        "capacity": capacity(),
        "allocatable": allocatable(),
        "conditions": conditions(&["Launched", "Registered", "Initialized", "Ready"])
    })
}

fn node(index: usize, claim_uid: &str, hash: &str) -> Value {
    let mut labels = labels(index);
    labels["kubernetes.io/hostname"] = json!(claim_name(index));
    for (key, value) in [
        ("karpenter.sh/registered", "true"),
        ("karpenter.sh/initialized", "true"),
        ("kwok.x-k8s.io/node", "fake"),
        ("kwok-partition", "a"),
        (price::LABEL, TYPE_PRICE),
    ] {
        labels[key] = json!(value);
    }
    let mut annotations = hash_annotations(hash);
    annotations["kwok.x-k8s.io/node"] = json!("fake");
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": node_name(index), "labels": labels, "annotations": annotations,
            "finalizers": ["karpenter.sh/termination"],
            "ownerReferences": [{
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": claim_name(index), "uid": claim_uid,
                "blockOwnerDeletion": true
            }]
        },
        "spec": {"providerID": format!("kwok://{}", node_name(index))},
        "status": {"capacity": capacity(), "allocatable": allocatable()}
    })
}

fn pod(index: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("standing-{index:05}"), "labels": {"app": format!("app-{}", index % 97)}},
        "spec": {
            "nodeName": node_name(index / PODS_PER_NODE),
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "pause", "image": "registry.k8s.io/pause:3.10",
                "resources": {"requests": {"cpu": POD_CPU, "memory": "512Mi"}}
            }]
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standing_type_is_in_the_catalogue_with_its_price_and_room() {
        let types = kwok::embedded();
        let found = types.iter().find(|one| &*one.name.to_string() == TYPE).unwrap();
        let on_demand = found.offerings.iter().map(|offering| offering.price.dollars()).fold(0.0, f64::max);
        assert_eq!(format!("{on_demand:.6}"), TYPE_PRICE);
    }

    #[test]
    fn an_answer_is_asked_for_again_and_not_for_ever() {
        let answer = || Ok(Answer { status: 201, headers: Vec::new(), body: Value::Null });
        let mut n_asked = 0;
        let mut after = |n_lost: usize| {
            n_asked = 0;
            let outcome = insist(|| {
                n_asked += 1;
                if n_asked > n_lost { answer() } else { bail!("no answer") }
            });
            (outcome.is_ok(), n_asked)
        };
        assert_eq!(after(0), (true, 1));
        assert_eq!(after(TRIES_MAX - 1), (true, TRIES_MAX));
        assert_eq!(after(TRIES_MAX), (false, TRIES_MAX));
    }

    #[test]
    fn a_tainted_node_is_not_ready_yet() {
        let mut node = json!({"spec": {}, "status": {"conditions": conditions(&["Ready"])}});
        assert!(is_ready(&node));
        node["spec"]["taints"] = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
        assert!(!is_ready(&node));
    }
}
