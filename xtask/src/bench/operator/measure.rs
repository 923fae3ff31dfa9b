//! One scene with one operator: a fresh cluster, the operator, the pods, the clock.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use kerf_e2e::client::Client;
use kerf_e2e::control_plane::{self, ControlPlane, Started, build};
use kerf_e2e::crds;
use serde_json::{Value, json};

use super::contestant::{Contestant, Running};
use super::ledger::{Book, Ledger};
use super::price;
use super::row::Measured;
use super::scenes::{self, Scene, Timed};
use super::standing;

/// The slowest scene of the slowest operator takes some two minutes on a machine that has nothing else to do.
const SCENE_WITHIN: Duration = Duration::from_secs(900);
/// What is not there by then does not come.
const PREPARED_WITHIN: Duration = Duration::from_secs(300);
const POOL_READY_WITHIN: Duration = Duration::from_secs(60);
const POLL_EVERY: Duration = Duration::from_millis(50);

pub(crate) const NODE_POOLS: &str = "/apis/karpenter.sh/v1/nodepools";
const NODE_CLASSES: &str = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// Measures the scene, or says why there is no cluster on this machine.
pub(crate) fn measure(
    scene: &Scene,
    contestant: &Contestant,
    logs: Option<&Path>,
) -> Result<std::result::Result<Measured, String>> {
    let mut plane = match control_plane::start_cluster(&build::to_stderr)? {
        Started::Ready(plane) => plane,
        Started::Skipped(reason) => return Ok(Err(reason)),
    };
    let outcome = measure_on(&mut plane, scene, contestant);
    if let Some(folder) = logs {
        keep_log(&plane, scene, contestant, folder)?;
    }
    outcome.map(Ok)
}

fn measure_on(plane: &mut ControlPlane, scene: &Scene, contestant: &Contestant) -> Result<Measured> {
    let client = plane.client()?;
    crds::install(&client, &crds::read(&crds::folder())?)?;
    match scene.timed {
        Timed::ScaleUp => scale_up(plane, &client, scene, contestant),
        Timed::Emptying => empty(plane, &client, scene, contestant),
        Timed::Start => start(plane, &client, scene, contestant),
    }
}

fn scale_up(plane: &mut ControlPlane, client: &Client, scene: &Scene, contestant: &Contestant) -> Result<Measured> {
    let (running, ledger) = begin(plane, client, scene, contestant)?;
    let book = all_run(plane, &ledger, scene)?;
    tell(&book);
    let seconds = between(book.first_pod(), book.last_running())?;
    measured(client, &running, &book, seconds)
}

fn empty(plane: &mut ControlPlane, client: &Client, scene: &Scene, contestant: &Contestant) -> Result<Measured> {
    let (running, ledger) = begin(plane, client, scene, contestant)?;
    // Not until the pods run: what is emptied is nodes, and a kubelet that is short of time leaves a pod or two unstarted for ever.
    let n = scene.n_pods();
    let full =
        ledger.wait_until(plane, &format!("{n} initialized nodes, each with a pod"), PREPARED_WITHIN, |book| {
            book.n_bound() == n && book.n_initialized() == n && book.n_nodes() == n
        })?;
    tell(&full);
    let began = Instant::now();
    for deployment in scene.deployments {
        let path = format!("{DEPLOYMENTS}/{}", deployment.name);
        let answer = client.delete_with(&path, &json!({"propagationPolicy": "Background"}))?;
        ensure!(answer.is_success(), "DELETE {path}: {}", answer.message());
    }
    let book = ledger.wait_until(plane, "no node is left", SCENE_WITHIN, |book| book.n_nodes() == 0)?;
    let seconds = between(Some(began), book.last_node_gone())?;
    Ok(Measured { nodes_before: Some(full.n_nodes()), ..measured(client, &running, &book, seconds)? })
}

fn start(plane: &mut ControlPlane, client: &Client, scene: &Scene, contestant: &Contestant) -> Result<Measured> {
    create(client, NODE_CLASSES, &scenes::node_class())?;
    standing::fill(plane.address(), client, scene)?;
    for deployment in scene.deployments {
        create(client, DEPLOYMENTS, &deployment.object())?;
    }
    standing::wait_until_refused(client)?;
    let ledger = Ledger::open(plane.address())?;
    let running = contestant.start(plane, scene.is_early_binding)?;
    let decided = ledger.wait_until(plane, "the first decision", SCENE_WITHIN, |book| book.first_claim().is_some())?;
    let seconds = between(Some(running.started), decided.first_claim())?;
    // Memory is read after everything that follows from the decision: what comes late is held too.
    let book =
        ledger.wait_until(plane, "the extra pod runs", SCENE_WITHIN, |book| book.n_running() == scene.n_pods())?;
    measured(client, &running, &book, seconds)
}

/// Starts the operator in an empty cluster, gives it its pool, and creates the pods.
fn begin(
    plane: &mut ControlPlane,
    client: &Client,
    scene: &Scene,
    contestant: &Contestant,
) -> Result<(Running, Ledger)> {
    let running = contestant.start(plane, scene.is_early_binding)?;
    running.wait_until_ready(plane)?;
    create(client, NODE_CLASSES, &scenes::node_class())?;
    create(client, NODE_POOLS, &scene.node_pool())?;
    wait_until_pool_ready(plane, client)?;
    println!(
        "   {} is ready: {:.1} s of processor time, {:.0} MB",
        contestant.name,
        running.cpu_seconds()?,
        running.peak_mb()?
    );
    let ledger = Ledger::open(plane.address())?;
    for deployment in scene.deployments {
        create(client, DEPLOYMENTS, &deployment.object())?;
    }
    Ok((running, ledger))
}

fn all_run(plane: &mut ControlPlane, ledger: &Ledger, scene: &Scene) -> Result<Book> {
    ledger.wait_until(plane, "all pods run", SCENE_WITHIN, |book| book.n_running() == scene.n_pods())
}

fn measured(client: &Client, running: &Running, book: &Book, seconds: f64) -> Result<Measured> {
    let (nodes, dollars_per_hour) = price::of_nodes(client)?;
    Ok(Measured {
        seconds,
        nodes,
        dollars_per_hour,
        cpu_seconds: running.cpu_seconds()?,
        peak_mb: running.peak_mb()?,
        waves: book.n_waves(),
        to_running: book.to_running(),
        nodes_before: None,
    })
}

fn between(from: Option<Instant>, to: Option<Instant>) -> Result<f64> {
    let (from, to) = from.zip(to).context("something was waited for that left no trace")?;
    Ok(to.saturating_duration_since(from).as_secs_f64())
}

/// Where the time went.
fn tell(book: &Book) {
    let after = |instant: Option<Instant>| between(book.first_pod(), instant).unwrap_or(0.0);
    println!(
        "   pods created within {:.1} s, first claim after {:.1} s, last after {:.1} s, all run after {:.1} s: {}",
        after(book.last_pod()),
        after(book.first_claim()),
        after(book.last_claim()),
        after(book.last_running()),
        book.told()
    );
}

pub(crate) fn create(client: &Client, collection: &str, object: &Value) -> Result<Value> {
    let answer = client.post(collection, object)?;
    ensure!(answer.status == 201, "{collection} refuses {}: {}", object["metadata"]["name"], answer.message());
    Ok(answer.body)
}

fn wait_until_pool_ready(plane: &mut ControlPlane, client: &Client) -> Result<()> {
    let deadline = Instant::now() + POOL_READY_WITHIN;
    loop {
        plane.check_alive()?;
        let pool = client.get(&format!("{NODE_POOLS}/default"))?.body;
        let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        let conditions = pool["status"]["conditions"].as_array();
        if conditions.is_some_and(|conditions| conditions.iter().any(is_ready)) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!("the NodePool is not Ready within {} s: {}", POOL_READY_WITHIN.as_secs(), pool["status"]);
        }
        thread::sleep(POLL_EVERY);
    }
}

fn keep_log(plane: &ControlPlane, scene: &Scene, contestant: &Contestant, folder: &Path) -> Result<()> {
    let log = plane.log(contestant.name);
    if log.is_file() {
        fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        let kept = folder.join(format!("{}-{}.log", scene.name, contestant.name));
        fs::copy(&log, &kept).with_context(|| format!("{} cannot be written", kept.display()))?;
    }
    Ok(())
}
