//! The work: nodes and pods created over several connections while watchers count, then lists.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use kerf_e2e::client::Client;
use serde::Serialize;
use serde_json::{Value, json};

use super::Work;
use super::servers::Server;

/// Connections that create. More of them than cores only measures the queue before them.
const CONNECTIONS: usize = 4;
const NAMESPACES: usize = 10;
/// Every tenth pod has the label that is listed by.
const LABELLED: usize = 10;
const PAGE: usize = 500;
/// Lists are short: the best of so many.
const LISTS: usize = 7;
/// After the last creation, a watcher that has not heard of everything by then never will.
const HEAR_WITHIN: Duration = Duration::from_secs(180);

/// What a server did.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) nodes_per_second: f64,
    pub(crate) pods_per_second: f64,
    /// From the first pod's creation until every watcher has heard of every pod.
    pub(crate) watched_seconds: f64,
    /// From the answer to a creation until a watcher hears of it.
    pub(crate) lag_median_ms: f64,
    pub(crate) lag_p99_ms: f64,
    pub(crate) list_ms: f64,
    pub(crate) list_paged_ms: f64,
    pub(crate) list_labelled_ms: f64,
    pub(crate) list_by_node_ms: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) peak_mb: f64,
    pub(crate) peak_with_store_mb: f64,
}

pub(crate) fn run(server: &Server, work: Work) -> Result<Measured> {
    let client = server.client()?;
    let cpu_before = server.cpu_seconds()?;
    prepare(&client)?;
    let created_at: Vec<OnceLock<Instant>> = (0..work.n_pods).map(|_| OnceLock::new()).collect();
    let nodes_heard = AtomicUsize::new(0);
    let version = version_of(&client, "/api/v1/pods")?;

    let mut measured = thread::scope(|scope| -> Result<Measured> {
        let mut watchers = Vec::new();
        for _ in 0..work.n_watchers {
            let (client, version, nodes_heard) = (server.client()?, version.clone(), &nodes_heard);
            let nodes = client.clone();
            scope.spawn(move || count_nodes(&nodes, &version, work.n_nodes, nodes_heard));
            let client_version = version_of(&client, "/api/v1/pods")?;
            watchers.push(scope.spawn(move || hear_pods(&client, &client_version, work.n_pods)));
        }
        let began = Instant::now();
        create(server, work.n_nodes, |index| ("/api/v1/nodes".to_owned(), node(index)), |_| {})?;
        let nodes_per_second = work.n_nodes as f64 / began.elapsed().as_secs_f64();
        println!("   {} nodes created", work.n_nodes);

        let began = Instant::now();
        create(
            server,
            work.n_pods,
            |index| (format!("/api/v1/namespaces/bench-{}/pods", index % NAMESPACES), pod(index, work.n_nodes)),
            |index| {
                // Each pod is created once.
                let _ = created_at[index].set(Instant::now());
            },
        )?;
        let pods_per_second = work.n_pods as f64 / began.elapsed().as_secs_f64();
        println!("   {} pods created", work.n_pods);

        let mut lags = Vec::with_capacity(work.n_pods * work.n_watchers);
        let mut last = began;
        for watcher in watchers {
            let heard = watcher.join().map_err(|_| anyhow::anyhow!("a watcher panicked"))??;
            for (index, at) in heard.into_iter().enumerate() {
                let created = created_at[index].get().context("a pod was heard of before it was there")?;
                lags.push(at.saturating_duration_since(*created));
                last = last.max(at);
            }
        }
        lags.sort_unstable();
        let of_hundred = |share: usize| {
            lags.get(lags.len().saturating_sub(1) * share / 100).map_or(0.0, |lag| lag.as_secs_f64() * 1e3)
        };
        println!(
            "   {} events heard by {} watchers",
            lags.len() + nodes_heard.load(Ordering::Relaxed),
            work.n_watchers
        );
        Ok(Measured {
            nodes_per_second,
            pods_per_second,
            watched_seconds: last.duration_since(began).as_secs_f64(),
            lag_median_ms: of_hundred(50),
            lag_p99_ms: of_hundred(99),
            list_ms: 0.0,
            list_paged_ms: 0.0,
            list_labelled_ms: 0.0,
            list_by_node_ms: 0.0,
            cpu_seconds: 0.0,
            peak_mb: 0.0,
            peak_with_store_mb: 0.0,
        })
    })?;
    let n_nodes_heard = nodes_heard.load(Ordering::Relaxed);
    ensure!(n_nodes_heard == work.n_nodes * work.n_watchers, "watchers of nodes heard {n_nodes_heard} events");

    measured.list_ms = best(|| list(&client, "/api/v1/pods", work.n_pods))?;
    measured.list_paged_ms = best(|| list_paged(&client, work.n_pods))?;
    let labelled = work.n_pods.div_ceil(LABELLED);
    measured.list_labelled_ms = best(|| list(&client, "/api/v1/pods?labelSelector=tenth%3Dyes", labelled))?;
    let on_node = work.n_pods.div_ceil(work.n_nodes.max(1));
    measured.list_by_node_ms =
        best(|| list(&client, "/api/v1/pods?fieldSelector=spec.nodeName%3Dbench-node-00000", on_node))?;
    measured.cpu_seconds = server.cpu_seconds()? - cpu_before;
    measured.peak_mb = server.peak_mb()?;
    measured.peak_with_store_mb = server.peak_with_store_mb()?;
    Ok(measured)
}

/// Namespaces, and the service accounts without which one of the servers refuses pods.
fn prepare(client: &Client) -> Result<()> {
    for index in 0..NAMESPACES {
        let name = format!("bench-{index}");
        post(client, "/api/v1/namespaces", &json!({"metadata": {"name": name}}))?;
        post(client, &format!("/api/v1/namespaces/{name}/serviceaccounts"), &json!({"metadata": {"name": "default"}}))?;
    }
    Ok(())
}

fn post(client: &Client, path: &str, body: &Value) -> Result<()> {
    let answer = client.post(path, body)?;
    match answer.status {
        201 | 409 => Ok(()),
        _ => bail!("POST {path}: {}", answer.message()),
    }
}

fn version_of(client: &Client, path: &str) -> Result<String> {
    let list = client.get(&format!("{path}?limit=1"))?.body;
    Ok(list["metadata"]["resourceVersion"].as_str().context("a list without a version")?.to_owned())
}

/// Creates `n` objects over all connections.
fn create(
    server: &Server,
    n: usize,
    make: impl Fn(usize) -> (String, Value) + Sync,
    created: impl Fn(usize) + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    let client = server.client()?;
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= n {
                            return Ok(());
                        }
                        let (path, body) = make(index);
                        let (status, bytes) = client.call("POST", &path).json(&body).fetch()?;
                        ensure!(status == 201, "POST {path}: {status} {}", String::from_utf8_lossy(&bytes));
                        created(index);
                    }
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| anyhow::anyhow!("a connection panicked"))?)
    })
}

/// When each pod was heard of. Lines are searched, not parsed: parsing twenty times as much as is created would measure
/// our own client.
fn hear_pods(client: &Client, version: &str, n: usize) -> Result<Vec<Instant>> {
    let mut heard: Vec<Option<Instant>> = vec![None; n];
    let mut n_heard = 0;
    let path = format!("/api/v1/pods?watch=true&timeoutSeconds=600&resourceVersion={version}");
    let lines = client.call("GET", &path).lines(HEAR_WITHIN)?;
    for line in lines {
        let line = line.context("a watch broke off")?;
        if !is_added(&line) {
            continue;
        }
        let index = number_after(&line, "\"bench-pod-").with_context(|| format!("a pod without its name: {line}"))?;
        let slot = heard.get_mut(index).context("a pod that nobody created")?;
        if slot.replace(Instant::now()).is_none() {
            n_heard += 1;
        }
        if n_heard == n {
            return heard.into_iter().collect::<Option<Vec<_>>>().context("every pod was counted");
        }
    }
    bail!("a watch ended after {n_heard} of {n} pods")
}

fn count_nodes(client: &Client, version: &str, n: usize, heard: &AtomicUsize) {
    let path = format!("/api/v1/nodes?watch=true&timeoutSeconds=600&resourceVersion={version}");
    let Ok(lines) = client.call("GET", &path).lines(HEAR_WITHIN) else {
        // The count at the end tells.
        return;
    };
    for _ in lines.map_while(Result::ok).filter(|line| is_added(line)).take(n) {
        heard.fetch_add(1, Ordering::Relaxed);
    }
}

fn is_added(line: &str) -> bool {
    line.starts_with(r#"{"type":"ADDED""#) || line.ends_with(r#""type":"ADDED"}"#)
}

fn number_after(line: &str, prefix: &str) -> Option<usize> {
    let start = line.find(prefix)? + prefix.len();
    line.get(start..start + 5)?.parse().ok()
}

/// The least milliseconds of several.
fn best(mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..LISTS {
        let began = Instant::now();
        work()?;
        least = least.min(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(least)
}

fn list(client: &Client, path: &str, expected: usize) -> Result<()> {
    let (status, bytes) = client.call("GET", path).fetch()?;
    ensure!(status == 200, "GET {path}: {status}");
    ensure!(n_items(&bytes) == expected, "GET {path}: {} items instead of {expected}", n_items(&bytes));
    Ok(())
}

fn list_paged(client: &Client, expected: usize) -> Result<()> {
    let (mut n, mut token) = (0, String::new());
    loop {
        let (status, bytes) = client.call("GET", &format!("/api/v1/pods?limit={PAGE}&continue={token}")).fetch()?;
        ensure!(status == 200, "a page: {status} {}", String::from_utf8_lossy(&bytes));
        n += n_items(&bytes);
        match continue_token(&bytes) {
            Some(next) => token = next,
            None => break,
        }
    }
    ensure!(n == expected, "pages have {n} items instead of {expected}");
    Ok(())
}

/// Each pod has its name once with this beginning.
fn n_items(bytes: &[u8]) -> usize {
    std::str::from_utf8(bytes).map_or(0, |text| text.matches("\"name\":\"bench-pod-").count())
}

fn continue_token(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let start = text.find("\"continue\":\"")? + "\"continue\":\"".len();
    let rest = text.get(start..)?;
    let token = rest.get(..rest.find('"')?)?;
    (!token.is_empty()).then(|| token.replace('=', "%3D").replace('+', "%2B").replace('/', "%2F"))
}

fn node(index: usize) -> Value {
    let zone = ["a", "b", "c"][index % 3];
    let capacity = json!({"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"});
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("bench-node-{index:05}"), "labels": {
            "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": format!("bench-node-{index:05}"),
            "topology.kubernetes.io/region": "region-1", "topology.kubernetes.io/zone": format!("region-1{zone}"),
            "node.kubernetes.io/instance-type": "m5.4xlarge", "karpenter.sh/capacity-type": "on-demand", "karpenter.sh/nodepool": "default"}},
        "spec": {"providerID": format!("bench:///region-1{zone}/{index:05}")},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [
            {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}]}})
}

fn pod(index: usize, n_nodes: usize) -> Value {
    let app = format!("app-{}", index % 97);
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("bench-pod-{index:05}"),
            "labels": {"app": app, "pod-template-hash": format!("{:010x}", index * 2_654_435_761_usize), "tenth": if index.is_multiple_of(LABELLED) { "yes" } else { "no" }},
            "annotations": {"kerf.test/note": "one of many, with an annotation of some length as they tend to have"}},
        "spec": {
            "automountServiceAccountToken": false,
            "nodeName": format!("bench-node-{:05}", index % n_nodes.max(1)),
            "containers": [
                {"name": "web", "image": "registry.example.com/web:1.2.3", "ports": [{"containerPort": 8080, "name": "http"}],
                    "env": [{"name": "LOG", "value": "info"}, {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
                    "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}}},
                {"name": "side", "image": "registry.example.com/side:4.5.6", "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}}}],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": app}}}]}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_in_the_order_of_either_server() {
        assert!(is_added(r#"{"type":"ADDED","object":{}}"#) && is_added(r#"{"object":{},"type":"ADDED"}"#));
        assert!(!is_added(r#"{"type":"BOOKMARK","object":{}}"#));
        assert_eq!(number_after(r#"{"metadata":{"name":"bench-pod-00123"}}"#, "\"bench-pod-"), Some(123));
        assert_eq!(number_after("bench-pod-1", "bench-pod-"), None);
    }

    #[test]
    fn a_token_is_found_and_fit_for_a_query() {
        assert_eq!(continue_token(br#"{"metadata":{"continue":"ab=="}}"#).unwrap(), "ab%3D%3D");
        assert_eq!(continue_token(br#"{"metadata":{"continue":""}}"#), None);
        assert_eq!(continue_token(b"{}"), None);
    }
}
