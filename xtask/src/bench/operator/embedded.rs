//! A large playground: `kerf up` with 5,000 nodes of its simulated cloud and 20 pods on each, and what all of that takes in memory.
//!
//! ```text
//! kerf up ─▶ API server ◀── a static pool: the operator launches its nodes
//!    │              ◀────── pods that have a node already
//!    └── control plane, kubelets, simulated cloud and operator: one process, and its peak is the row's
//! ```

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use kerf_e2e::client::Client;
use kerf_e2e::control_plane::Address;
use serde_json::{Value, json};

use super::contestant::Contestant;
use super::measure::{NODE_POOLS, create};
use super::row::Measured;
use super::standing::{create_all, create_surely, insist};
use crate::bench::process;

const N_NODES: usize = 5_000;
const PODS_PER_NODE: usize = 20;
const N_PODS: usize = N_NODES * PODS_PER_NODE;
/// What is not there by then does not come.
const WITHIN: Duration = Duration::from_secs(1800);
const POLL_EVERY: Duration = Duration::from_secs(1);
const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
const POOL: &str = "fixed";

/// The process. Ends with this value.
struct Playground {
    child: Child,
    folder: std::path::PathBuf,
}

pub(crate) fn measure(contestant: &Contestant) -> Result<Measured> {
    let playground = Playground::start(contestant)?;
    let address = playground.address()?;
    let client = Client::new(&address)?;
    create(&client, NODE_POOLS, &pool())?;
    wait_until(&playground, "all nodes are registered", || {
        let pool = insist(|| client.get(&format!("{NODE_POOLS}/{POOL}")))?.body;
        Ok((pool["status"]["nodes"] == N_NODES, format!("status.nodes is {}", pool["status"]["nodes"])))
    })?;
    let names = open_nodes(&playground, &client)?;
    println!("   {} nodes are ready: {:.0} MB", names.len(), process::peak_mb(playground.child.id())?);
    let began = Instant::now();
    create_all(&address, N_PODS, |client, index| {
        create_surely(client, PODS, &pod(index, &names[index / PODS_PER_NODE])).map(drop)
    })?;
    wait_until(&playground, "all pods run", || {
        let waiting = insist(|| client.get(&format!("{PODS}?fieldSelector=status.phase!%3DRunning&limit=1")))?.body;
        let n_waiting = n_listed(&waiting)?;
        Ok((n_waiting == 0, format!("{n_waiting} of {N_PODS} do not run")))
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let n_pods = n_listed(&insist(|| client.get(&format!("{PODS}?limit=1")))?.body)?;
    if n_pods != N_PODS {
        let left = list_open(&client)?;
        let gone = names.iter().filter(|name| left.binary_search(name).is_err()).count();
        bail!(
            "{n_pods} pods are there instead of {N_PODS}; of their {N_NODES} nodes {gone} are gone, not ready or tainted"
        );
    }
    let pid = playground.child.id();
    Ok(Measured {
        seconds,
        nodes: names.len(),
        // Nobody pays for a simulated cloud, and no line asks.
        dollars_per_hour: 0.0,
        cpu_seconds: process::cpu_seconds(pid)?,
        peak_mb: process::peak_mb(pid)?,
        waves: 1,
        to_running: None,
        nodes_before: None,
    })
}

impl Playground {
    fn start(contestant: &Contestant) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("kerf-bench-up-{}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        let child = Command::new(&contestant.binary)
            .args(["up", "--plain", "--kubeconfig"])
            .arg(folder.join("kubeconfig"))
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("kerf up does not start")?;
        Ok(Self { child, folder })
    }

    /// Waits until it says where it is.
    fn address(&self) -> Result<Address> {
        let kubeconfig = self.folder.join("kubeconfig");
        wait_until(self, "kerf up serves its pools", || {
            let found = Address::read(&kubeconfig).and_then(|address| {
                let answer = Client::new(&address)?.get(NODE_POOLS)?;
                ensure!(answer.is_success(), "{}", answer.message());
                Ok(())
            });
            Ok(match found {
                Ok(()) => (true, String::new()),
                Err(error) => (false, format!("{error:#}")),
            })
        })?;
        Address::read(&kubeconfig)
    }

    fn is_alive(&self) -> bool {
        Path::new(&format!("/proc/{}/exe", self.child.id())).exists()
    }
}

impl Drop for Playground {
    fn drop(&mut self) {
        // An error means that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn open_nodes(playground: &Playground, client: &Client) -> Result<Vec<String>> {
    let mut names = Vec::new();
    wait_until(playground, "all nodes are ready and without taints", || {
        names = list_open(client)?;
        Ok((names.len() == N_NODES, format!("{} of {N_NODES} are", names.len())))
    })?;
    Ok(names)
}

/// In pages: a list of everything at once would be a peak of its own.
fn list_open(client: &Client) -> Result<Vec<String>> {
    let (mut names, mut rest) = (Vec::new(), String::new());
    loop {
        let list = insist(|| client.get(&format!("{NODES}?limit=250&continue={rest}")))?.body;
        for node in list["items"].as_array().context("a list without items")? {
            if is_open(node) {
                names.push(node["metadata"]["name"].as_str().context("a node without a name")?.to_owned());
            }
        }
        match list["metadata"]["continue"].as_str().filter(|rest| !rest.is_empty()) {
            Some(more) => rest = more.to_owned(),
            None => return Ok(names),
        }
    }
}

/// Ready, and registered by the operator: until then a taint evicts every pod that does not tolerate it.
fn is_open(node: &Value) -> bool {
    let is_ready = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
    node["status"]["conditions"].as_array().is_some_and(|conditions| conditions.iter().any(is_ready))
        && node["spec"]["taints"].as_array().is_none_or(Vec::is_empty)
}

/// How many there are, by the first page of one.
fn n_listed(list: &Value) -> Result<usize> {
    let here = list["items"].as_array().context("a list without items")?.len();
    let more = list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
    Ok(here + usize::try_from(more).unwrap_or(usize::MAX))
}

/// Until it holds; the text is what is missing.
fn wait_until(playground: &Playground, what: &str, mut holds: impl FnMut() -> Result<(bool, String)>) -> Result<()> {
    let deadline = Instant::now() + WITHIN;
    loop {
        let (is_so, missing) = holds()?;
        if is_so {
            return Ok(());
        }
        ensure!(playground.is_alive(), "kerf up has ended while we waited until {what}");
        if Instant::now() >= deadline {
            bail!("{what}: not within {} s: {missing}", WITHIN.as_secs());
        }
        thread::sleep(POLL_EVERY);
    }
}

fn pool() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": POOL},
        "spec": {"replicas": N_NODES, "template": {"spec": {
            "expireAfter": "Never",
            // The playground's own.
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.xlarge"]},
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
            ]
        }}}
    })
}

fn pod(index: usize, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("standing-{index:06}"), "labels": {"app": format!("app-{}", index % 97)}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "pause", "image": "registry.k8s.io/pause:3.10",
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}
            }]
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_counts_what_its_page_leaves_out() {
        let list = json!({"items": [{}], "metadata": {"remainingItemCount": 41}});
        assert_eq!(n_listed(&list).unwrap(), 42);
        assert_eq!(n_listed(&json!({"items": [], "metadata": {}})).unwrap(), 0);
        assert!(n_listed(&json!({"message": "no"})).is_err());
    }

    #[test]
    fn a_node_is_open_once_it_is_ready_and_no_taint_is_left() {
        let node = |status: &str, taints: Value| json!({"spec": {"taints": taints}, "status": {"conditions": [{"type": "Ready", "status": status}]}});
        let unregistered = json!([{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]);
        assert!(is_open(&node("True", Value::Null)));
        assert!(is_open(&node("True", json!([]))));
        assert!(!is_open(&node("True", unregistered)));
        assert!(!is_open(&node("False", Value::Null)));
        assert!(!is_open(&json!({})));
    }

    #[test]
    fn the_pool_is_one_that_our_own_types_read_and_the_pods_fit_its_nodes() {
        let pool: kerf_api::NodePool = serde_json::from_value(pool()).unwrap();
        assert_eq!(pool.spec.replicas, Some(N_NODES as i64));
        // The CPUs of an m5.xlarge, without what is reserved.
        const { assert!(PODS_PER_NODE * 100 < 3_900) };
    }
}
