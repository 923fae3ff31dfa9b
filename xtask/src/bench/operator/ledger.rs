//! What happened in the cluster, and when: pods, nodes and claims as a watch tells of them.
//!
//! ```text
//! watch pods, nodes, nodeclaims ─▶ one thread each ─▶ Book ─▶ whoever waits for something to be true of it
//! ```
//!
//! Times are those at which our watch heard: creation times of objects are whole seconds, which is too coarse here.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kerf_e2e::client::Client;
use kerf_e2e::control_plane::{Address, ControlPlane};
use serde::Deserialize;

use super::scenes::{TIMED_KEY, TIMED_VALUE};

/// Longer than the longest scene.
const WATCH_FOR: Duration = Duration::from_secs(3600);
const POLL_EVERY: Duration = Duration::from_millis(20);
/// Claims of one decision follow each other within milliseconds, and those of one batch within its window's idle time. A pause
/// of more than this is a decision about news.
const WAVE_GAP: Duration = Duration::from_secs(3);

pub(crate) const NODE_CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";
const NODES: &str = "/api/v1/nodes";

fn pods() -> String {
    format!("/api/v1/namespaces/default/pods?labelSelector={TIMED_KEY}%3D{TIMED_VALUE}")
}

/// Watches from now on; of the pods, those that the scene is about. Its threads end with the cluster.
pub(crate) struct Ledger {
    book: Arc<Mutex<Book>>,
}

/// Everything heard so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    pods: BTreeMap<String, Pod>,
    nodes: BTreeMap<String, Life>,
    claims: BTreeMap<String, Life>,
    /// Claims that have been initialized.
    initialized: BTreeSet<String>,
    /// A watch that ended: what was not heard cannot be waited for.
    ended: Option<String>,
}

#[derive(Clone, Debug)]
struct Pod {
    life: Life,
    running: Option<Instant>,
    node: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Life {
    created: Instant,
    gone: Option<Instant>,
}

/// How long pods took to run on their node, from the moment the node was there.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct ToRunning {
    pub(crate) median_seconds: f64,
    pub(crate) p95_seconds: f64,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Pod,
    Node,
    Claim,
}

impl Ledger {
    pub(crate) fn open(address: &Address) -> Result<Self> {
        let book = Arc::new(Mutex::new(Book::default()));
        for (kind, path) in
            [(Kind::Pod, pods()), (Kind::Node, format!("{NODES}?")), (Kind::Claim, format!("{NODE_CLAIMS}?"))]
        {
            let client = Client::new(address)?;
            let list = client.get(&format!("{path}&limit=1"))?.body;
            let version = list["metadata"]["resourceVersion"].as_str().context("a list without a version")?.to_owned();
            let book = Arc::clone(&book);
            thread::spawn(move || {
                let Err(error) = hear(kind, &client, &path, version, &book);
                lock(&book).ended = Some(format!("the watch of {path} is over: {error:#}"));
            });
        }
        Ok(Self { book })
    }

    /// Waits until `holds`, and answers with the book of that moment.
    pub(crate) fn wait_until(
        &self,
        plane: &mut ControlPlane,
        what: &str,
        within: Duration,
        holds: impl Fn(&Book) -> bool,
    ) -> Result<Book> {
        let deadline = Instant::now() + within;
        loop {
            {
                let book = lock(&self.book);
                if holds(&book) {
                    return Ok(book.clone());
                }
                if let Some(why) = &book.ended {
                    bail!("waiting for {what}: {why}");
                }
                if Instant::now() >= deadline {
                    bail!("{what}: not within {} s: {}", within.as_secs(), book.told());
                }
            }
            plane.check_alive()?;
            thread::sleep(POLL_EVERY);
        }
    }
}

/// A watcher that panicked has left the book as it was after the event before.
fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Hears for ever. A server that is short of time ends the watches of its slow readers, and expects them to come again with the
/// last version that they know: nothing is lost by that.
fn hear(kind: Kind, client: &Client, path: &str, mut version: String, book: &Mutex<Book>) -> Result<Infallible> {
    loop {
        let watch = format!("{path}&watch=true&timeoutSeconds={}&resourceVersion={version}", WATCH_FOR.as_secs());
        for line in client.call("GET", &watch).lines(WATCH_FOR)? {
            let line = line?;
            let event: Event = serde_json::from_str(&line).with_context(|| format!("an odd event: {line}"))?;
            version.clone_from(&event.object.metadata.version);
            lock(book).hear(kind, event, Instant::now());
        }
    }
}

#[derive(Debug, Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Object,
}

#[derive(Debug, Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
    #[serde(rename = "resourceVersion")]
    version: String,
    #[serde(rename = "deletionTimestamp")]
    deleted_at: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Spec {
    #[serde(rename = "nodeName")]
    node_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Status {
    phase: Option<String>,
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl Book {
    fn hear(&mut self, kind: Kind, event: Event, now: Instant) {
        let name = event.object.metadata.name;
        // A pod on its way out serves nobody; a node on its way out still costs.
        let is_leaving = matches!(kind, Kind::Pod) && event.object.metadata.deleted_at.is_some();
        let is_gone = event.kind == "DELETED" || is_leaving;
        let born = Life { created: now, gone: None };
        let life = match kind {
            Kind::Node => self.nodes.entry(name).or_insert(born),
            Kind::Claim => {
                let is_initialized = |one: &Condition| one.kind == "Initialized" && one.status == "True";
                if event.object.status.conditions.iter().any(is_initialized) {
                    self.initialized.insert(name.clone());
                }
                self.claims.entry(name).or_insert(born)
            }
            Kind::Pod => {
                let pod = self.pods.entry(name).or_insert(Pod { life: born, running: None, node: None });
                if event.object.status.phase.as_deref() == Some("Running") {
                    pod.running.get_or_insert(now);
                }
                pod.node = event.object.spec.node_name.or(pod.node.take());
                &mut pod.life
            }
        };
        if is_gone {
            life.gone.get_or_insert(now);
        }
    }

    fn living_pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.values().filter(|pod| pod.life.gone.is_none())
    }

    pub(crate) fn n_pods(&self) -> usize {
        self.living_pods().count()
    }

    pub(crate) fn n_running(&self) -> usize {
        self.living_pods().filter(|pod| pod.running.is_some()).count()
    }

    /// Pods that have a node, whether its kubelet has started them or not.
    pub(crate) fn n_bound(&self) -> usize {
        self.living_pods().filter(|pod| pod.node.is_some()).count()
    }

    /// Claims that are there and were initialized.
    pub(crate) fn n_initialized(&self) -> usize {
        let lives = |(name, claim): &(&String, &Life)| claim.gone.is_none() && self.initialized.contains(*name);
        self.claims.iter().filter(lives).count()
    }

    pub(crate) fn n_nodes(&self) -> usize {
        self.nodes.values().filter(|node| node.gone.is_none()).count()
    }

    pub(crate) fn n_claims(&self) -> usize {
        self.claims.values().filter(|claim| claim.gone.is_none()).count()
    }

    pub(crate) fn first_pod(&self) -> Option<Instant> {
        self.pods.values().map(|pod| pod.life.created).min()
    }

    pub(crate) fn last_pod(&self) -> Option<Instant> {
        self.pods.values().map(|pod| pod.life.created).max()
    }

    pub(crate) fn last_running(&self) -> Option<Instant> {
        self.living_pods().filter_map(|pod| pod.running).max()
    }

    pub(crate) fn first_claim(&self) -> Option<Instant> {
        self.claims.values().map(|claim| claim.created).min()
    }

    pub(crate) fn last_claim(&self) -> Option<Instant> {
        self.claims.values().map(|claim| claim.created).max()
    }

    pub(crate) fn last_node_gone(&self) -> Option<Instant> {
        self.nodes.values().filter_map(|node| node.gone).max()
    }

    /// Bursts of claims.
    pub(crate) fn n_waves(&self) -> usize {
        let mut times: Vec<Instant> = self.claims.values().map(|claim| claim.created).collect();
        times.sort_unstable();
        let pauses = times.windows(2).filter(|pair| pair[1].duration_since(pair[0]) > WAVE_GAP).count();
        usize::from(!times.is_empty()) + pauses
    }

    /// None where no pod runs on a node that we saw come.
    pub(crate) fn to_running(&self) -> Option<ToRunning> {
        let mut seconds: Vec<f64> = self
            .living_pods()
            .filter_map(|pod| {
                let node = self.nodes.get(pod.node.as_ref()?)?;
                // The two watches are read by two threads: a pod that runs at once may be heard of first.
                Some(pod.running?.saturating_duration_since(node.created).as_secs_f64())
            })
            .collect();
        seconds.sort_unstable_by(f64::total_cmp);
        let of_hundred = |share: usize| seconds.get(seconds.len().saturating_sub(1) * share / 100).copied();
        Some(ToRunning { median_seconds: of_hundred(50)?, p95_seconds: of_hundred(95)? })
    }

    /// For an error and for progress.
    pub(crate) fn told(&self) -> String {
        format!(
            "{} of {} pods run, {} have a node, on {} nodes; {} of {} claims are initialized, in {} waves",
            self.n_running(),
            self.n_pods(),
            self.n_bound(),
            self.n_nodes(),
            self.n_initialized(),
            self.n_claims(),
            self.n_waves()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_is_being_deleted_does_not_count_and_a_node_does() {
        let leaving = || {
            let metadata =
                serde_json::json!({"name": "x", "resourceVersion": "1", "deletionTimestamp": "2026-01-01T00:00:00Z"});
            let object = serde_json::json!({"metadata": metadata, "status": {"phase": "Running"}});
            Event { kind: "MODIFIED".to_owned(), object: serde_json::from_value(object).unwrap() }
        };
        let mut book = Book::default();
        book.hear(Kind::Pod, leaving(), Instant::now());
        book.hear(Kind::Node, leaving(), Instant::now());
        assert_eq!((book.n_running(), book.n_nodes()), (0, 1));
    }

    fn event(kind: &str, name: &str, node: Option<&str>, phase: Option<&str>) -> Event {
        let object = serde_json::json!({"metadata": {"name": name, "resourceVersion": "1"}, "spec": {"nodeName": node}, "status": {"phase": phase}});
        Event { kind: kind.to_owned(), object: serde_json::from_value(object).unwrap() }
    }

    #[test]
    fn claims_that_follow_each_other_are_one_wave_and_a_pause_begins_another() {
        let began = Instant::now();
        let mut book = Book::default();
        assert_eq!(book.n_waves(), 0);
        for (name, millis) in [("a", 0), ("b", 2_900), ("c", 5_800), ("d", 9_000)] {
            book.hear(Kind::Claim, event("ADDED", name, None, None), began + Duration::from_millis(millis));
        }
        // Again heard of, and later gone: neither is a new claim.
        book.hear(Kind::Claim, event("MODIFIED", "a", None, None), began + Duration::from_secs(60));
        book.hear(Kind::Claim, event("DELETED", "b", None, None), began + Duration::from_secs(70));
        assert_eq!((book.n_waves(), book.n_claims()), (2, 3));
    }

    #[test]
    fn a_bound_pod_counts_before_it_runs_and_a_claim_once_it_is_initialized() {
        let now = Instant::now();
        let mut book = Book::default();
        book.hear(Kind::Pod, event("ADDED", "p", None, Some("Pending")), now);
        assert_eq!((book.n_pods(), book.n_bound()), (1, 0));
        book.hear(Kind::Pod, event("MODIFIED", "p", Some("n"), Some("Pending")), now);
        assert_eq!((book.n_bound(), book.n_running()), (1, 0));
        let claim = |status: &str| {
            let conditions = serde_json::json!([{"type": "Initialized", "status": status}]);
            let object = serde_json::json!({"metadata": {"name": "c", "resourceVersion": "1"}, "status": {"conditions": conditions}});
            Event { kind: "MODIFIED".to_owned(), object: serde_json::from_value(object).unwrap() }
        };
        book.hear(Kind::Claim, claim("Unknown"), now);
        assert_eq!((book.n_claims(), book.n_initialized()), (1, 0));
        book.hear(Kind::Claim, claim("True"), now);
        assert_eq!(book.n_initialized(), 1);
        book.hear(Kind::Claim, event("DELETED", "c", None, None), now);
        assert_eq!(book.n_initialized(), 0);
    }

    #[test]
    fn a_pod_is_timed_from_its_node_to_its_first_running() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut book = Book::default();
        book.hear(Kind::Pod, event("ADDED", "p", None, Some("Pending")), at(0));
        book.hear(Kind::Node, event("ADDED", "n", None, None), at(3));
        book.hear(Kind::Pod, event("MODIFIED", "p", Some("n"), Some("Pending")), at(4));
        assert_eq!((book.n_running(), book.to_running()), (0, None));
        book.hear(Kind::Pod, event("MODIFIED", "p", Some("n"), Some("Running")), at(5));
        book.hear(Kind::Pod, event("MODIFIED", "p", Some("n"), Some("Running")), at(9));
        assert_eq!(book.to_running(), Some(ToRunning { median_seconds: 2.0, p95_seconds: 2.0 }));
        assert_eq!((book.first_pod(), book.last_running()), (Some(at(0)), Some(at(5))));
    }

    #[test]
    fn what_is_gone_is_not_counted() {
        let now = Instant::now();
        let mut book = Book::default();
        book.hear(Kind::Pod, event("ADDED", "p", Some("n"), Some("Running")), now);
        book.hear(Kind::Node, event("ADDED", "n", None, None), now);
        book.hear(Kind::Pod, event("DELETED", "p", Some("n"), Some("Running")), now);
        book.hear(Kind::Node, event("DELETED", "n", None, None), now);
        assert_eq!((book.n_pods(), book.n_running(), book.n_nodes()), (0, 0, 0));
        assert_eq!(book.last_node_gone(), Some(now));
    }
}
