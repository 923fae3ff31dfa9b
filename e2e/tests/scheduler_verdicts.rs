//! Do our scheduler's verdicts agree with the real kube-scheduler's?
//!
//! Scenes are drawn from a seed: nodes, placed pods, volumes, and pods that wait. A real kube-scheduler judges each waiting pod;
//! an extender of ours notes which nodes passed all of its filters and turns every one of them down, so that nothing is placed
//! and the pod's condition tells what it held against each of the others. Ours must name the same nodes and say the same words,
//! to the letter. At the end of each scene a few pods are placed for real, on nodes that must be among our best; and a few
//! important ones send others away, whom ours would send away too.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use kerf_control_plane::scheduler::{
    Cluster, PodFacts, Preemption, Reason, Refusal, Setback, Verdict, best, explain, preemptions, verdicts,
};
use kerf_e2e::client::Client;
use kerf_e2e::control_plane::build;
use kerf_e2e::skipped;
use serde_json::{Value, json};

#[path = "scheduler_verdicts/dice.rs"]
mod dice;
#[path = "scheduler_verdicts/pods.rs"]
mod pods;
#[path = "scheduler_verdicts/real.rs"]
mod real;
#[path = "scheduler_verdicts/scene.rs"]
mod scene;

use dice::Dice;
use real::{Real, TURNED_DOWN};
use scene::{SCENE_LABEL, Scene};

const SEED: u64 = 4;
const SCENES: usize = 60;
const PODS_PER_SCENE: usize = 20;
/// Pods that are placed for real, one after the other.
const CHOICES_PER_SCENE: usize = 4;
/// Pods that may send others away, one after the other.
const PREEMPTORS_PER_SCENE: usize = 2;
/// What the real scheduler has seen of a scene trails what we wrote by a moment: a pod that disagrees is asked about again.
const ASKED_MAX: usize = 6;
const WAIT_MAX: Duration = Duration::from_secs(60);
const POLL_EVERY: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Tally {
    n_cases: usize,
    n_fitting: usize,
    n_refused: usize,
    n_nowhere: usize,
}

/// What each node says.
type Said = Vec<(String, Verdict)>;

/// What one of the two says about a pod.
#[derive(Debug, PartialEq, Eq)]
struct Opinion {
    fitting: BTreeSet<String>,
    reason: String,
    message: String,
}

#[test]
fn both_schedulers_accept_the_same_nodes_and_refuse_the_others_in_the_same_words() {
    let real = match Real::start() {
        Ok(real) => real,
        Err(reason) => {
            skipped::tell(1, &format!("{} verdicts of the scheduler", SCENES * PODS_PER_SCENE), &reason);
            return;
        }
    };
    let client = real.client();
    let began = Instant::now();
    let (mut tallies, mut disagreements) = (BTreeMap::<&str, Tally>::new(), Vec::new());
    let (mut chosen, mut preempted) = ((0, 0), (0, 0));
    for number in 0..SCENES {
        let mut dice = Dice::new(SEED, number);
        let scene = Scene::draw(number, &mut dice);
        scene.raise(&client);
        wait_until_seen(&real, &client, &scene);
        let cluster = read_back(&client, &scene);
        let asked: Vec<(&str, Value)> = (0..PODS_PER_SCENE).map(|n| pods::waiting(&scene, n, &mut dice)).collect();
        disagreements.extend(ask(&real, &client, &cluster, &scene, &asked, &mut tallies));
        for n in 0..PREEMPTORS_PER_SCENE {
            disagreements.extend(ask_important(&real, &client, &scene, &pods::important(n, &mut dice), &mut preempted));
        }
        // They are promised nodes, and would be tried again while others are placed.
        for n in 0..PREEMPTORS_PER_SCENE {
            let path = format!("/api/v1/namespaces/{}/pods/v{n}-0?gracePeriodSeconds=0", scene.namespace());
            assert!(client.delete(&path).unwrap().is_success());
        }
        for n in 0..CHOICES_PER_SCENE {
            disagreements.extend(ask_where(&client, &scene, &pods::choosing(n, &mut dice), &mut chosen));
        }
        scene.clear(&client);
    }
    for line in summary(&tallies, began.elapsed()) {
        build::to_stderr(&line);
    }
    let (n_chosen, n_unique) = chosen;
    build::to_stderr(&format!(
        "scheduler verdicts: {n_chosen} choices agreed, {n_unique} of them with a single best node"
    ));
    let (n_asked, n_victims) = preempted;
    build::to_stderr(&format!("scheduler verdicts: {n_asked} preemptions agreed, {n_victims} pods sent away"));
    assert!(disagreements.is_empty(), "{} disagreements:\n{}", disagreements.len(), disagreements.join("\n\n"));
}

/// Puts all pods of a scene to both, and returns the disagreements that last.
fn ask(
    real: &Real,
    client: &Client,
    cluster: &Cluster,
    scene: &Scene,
    asked: &[(&'static str, Value)],
    tallies: &mut BTreeMap<&'static str, Tally>,
) -> Vec<String> {
    let mut open: Vec<usize> = (0..asked.len()).collect();
    let mut disagreements = Vec::new();
    for round in 0..ASKED_MAX {
        let created: Vec<(usize, Value)> =
            open.iter().map(|number| (*number, create(client, scene, &asked[*number].1, round))).collect();
        disagreements.clear();
        open.clear();
        for (number, pod) in created {
            let (family, theirs) = (asked[number].0, their_opinion(real, client, &pod));
            let ours = our_opinion(cluster, &pod);
            if ours == theirs {
                tallies.entry(family).or_default().count(&ours, scene.nodes.len());
            } else {
                open.push(number);
                disagreements.push(format!(
                    "scene {} ({family})\nours:   {ours:?}\ntheirs: {theirs:?}\npod: {}\nscene: {}",
                    scene.number,
                    asked[number].1,
                    scene.objects()
                ));
            }
        }
        if open.is_empty() {
            break;
        }
    }
    disagreements
}

/// Lets the real scheduler place a pod, on a node that must be among our best. Counts choices, and those without equals.
fn ask_where(client: &Client, scene: &Scene, wanted: &Value, chosen: &mut (usize, usize)) -> Option<String> {
    let mut last = None;
    for round in 0..ASKED_MAX {
        let cluster = read_back(client, scene);
        let created = create(client, scene, wanted, round);
        let facts = PodFacts::of(&serde_json::from_value(created.clone()).unwrap());
        let ours = best(&facts, &cluster);
        let path = pod_path(&created);
        let deadline = Instant::now() + WAIT_MAX;
        let theirs = loop {
            let pod = client.get(&path).unwrap().body;
            if let Some(condition) = condition(&pod) {
                break (pod["spec"]["nodeName"].as_str().unwrap_or("").to_owned(), condition["message"].clone());
            }
            assert!(Instant::now() < deadline, "the scheduler says nothing about {path}");
            thread::sleep(POLL_EVERY);
        };
        if ours.contains(&theirs.0) || (ours.is_empty() && theirs.0.is_empty()) {
            chosen.0 += 1;
            chosen.1 += usize::from(ours.len() == 1);
            return None;
        }
        last = Some(format!(
            "scene {} (choice)\nours:   {ours:?}\ntheirs: {theirs:?}\npod: {wanted}\nscene: {}",
            scene.number,
            scene.objects()
        ));
        assert!(client.delete(&format!("{path}?gracePeriodSeconds=0")).unwrap().is_success());
    }
    last
}

/// The `PodScheduled` condition.
fn condition(pod: &Value) -> Option<&Value> {
    pod["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "PodScheduled")
}

/// Puts a pod to both that may send others away, and returns what they disagree on. Counts preemptions and victims.
fn ask_important(
    real: &Real,
    client: &Client,
    scene: &Scene,
    wanted: &Value,
    preempted: &mut (usize, usize),
) -> Option<String> {
    // Those who were sent away for the one before are still there, and leave.
    let cluster = read_back(client, scene);
    let leaving_before = leaving(client, scene);
    let created = create(client, scene, wanted, 0);
    let theirs = their_opinion(real, client, &created);
    let (ours, choices) = (our_opinion(&cluster, &created), our_preemptions(&cluster, &created));
    let disagreement = |what: &str| {
        let (pod, scene_objects) = (wanted, scene.objects());
        Some(format!(
            "scene {} (preemption): {what}\nours:   {ours:?} {choices:?}\ntheirs: {theirs:?}\npod: {pod}\nscene: {scene_objects}",
            scene.number
        ))
    };
    if ours != theirs {
        return disagreement("other words");
    }
    let path = pod_path(&created);
    let nominated = client.get(&path).unwrap().body["status"]["nominatedNodeName"].as_str().unwrap_or("").to_owned();
    let Some(choice) = choices.iter().find(|choice| choice.node == nominated) else {
        return if choices.is_empty() && nominated.is_empty() {
            None
        } else {
            disagreement(&format!("{nominated} is nominated"))
        };
    };
    let victims = choice.victims.iter().map(|key| format!("{}/{}", key.namespace, key.name));
    let expected: BTreeSet<String> = victims.filter(|victim| !leaving_before.contains(victim)).collect();
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let gone: BTreeSet<String> = leaving(client, scene).difference(&leaving_before).cloned().collect();
        if gone == expected {
            preempted.0 += 1;
            preempted.1 += expected.len();
            return None;
        }
        if Instant::now() > deadline {
            return disagreement(&format!("they sent away {gone:?}"));
        }
        thread::sleep(POLL_EVERY);
    }
}

fn our_preemptions(cluster: &Cluster, pod: &Value) -> Vec<Preemption> {
    let facts = PodFacts::of(&serde_json::from_value(pod.clone()).unwrap());
    our_verdicts(&facts, cluster).map(|(_, verdicts)| preemptions(&facts, cluster, &verdicts)).unwrap_or_default()
}

/// Pods that are being deleted, as `namespace/name`.
fn leaving(client: &Client, scene: &Scene) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for namespace in [scene.namespace(), scene.other_namespace()] {
        let list = client.get(&format!("/api/v1/namespaces/{namespace}/pods")).unwrap().body;
        for pod in list["items"].as_array().unwrap() {
            if pod["metadata"]["deletionTimestamp"].is_string() {
                all.insert(format!("{namespace}/{}", pod["metadata"]["name"].as_str().unwrap()));
            }
        }
    }
    all
}

fn pod_path(pod: &Value) -> String {
    let meta = &pod["metadata"];
    format!("/api/v1/namespaces/{}/pods/{}", meta["namespace"].as_str().unwrap(), meta["name"].as_str().unwrap())
}

fn create(client: &Client, scene: &Scene, pod: &Value, round: usize) -> Value {
    let mut pod = pod.clone();
    let name = format!("{}-{round}", pod["metadata"]["name"].as_str().unwrap());
    pod["metadata"]["name"] = json!(name);
    let answer = client.post(&format!("/api/v1/namespaces/{}/pods", scene.namespace()), &pod).unwrap();
    assert!(answer.is_success(), "{}: {pod}", answer.message());
    answer.body
}

fn their_opinion(real: &Real, client: &Client, pod: &Value) -> Opinion {
    let (meta, path) = (&pod["metadata"], pod_path(pod));
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        let answer = client.get(&path).unwrap();
        assert!(answer.is_success(), "{}", answer.message());
        if let Some(condition) = condition(&answer.body) {
            assert_eq!(condition["status"], "False", "only those who may are placed: {condition}");
            return Opinion {
                fitting: real.passed(meta["uid"].as_str().unwrap()),
                reason: condition["reason"].as_str().unwrap_or("").to_owned(),
                message: condition["message"].as_str().unwrap_or("").to_owned(),
            };
        }
        assert!(Instant::now() < deadline, "the scheduler says nothing about {path}");
        thread::sleep(POLL_EVERY);
    }
}

fn our_opinion(cluster: &Cluster, pod: &Value) -> Opinion {
    let facts = PodFacts::of(&serde_json::from_value(pod.clone()).unwrap());
    let verdicts = our_verdicts(&facts, cluster);
    let (fitting, verdicts) = match verdicts {
        Ok((fitting, verdicts)) => (fitting, Ok(verdicts)),
        Err(setback) => (BTreeSet::new(), Err(setback)),
    };
    let is_error = verdicts.iter().flatten().any(|(_, verdict)| matches!(verdict, Verdict::Error(_)));
    let reason = if is_error { "SchedulerError" } else { "Unschedulable" }.to_owned();
    Opinion { fitting, reason, message: explain(&facts, cluster, &verdicts) }
}

/// The nodes that would do, and what all say once those are turned down.
fn our_verdicts(facts: &PodFacts, cluster: &Cluster) -> Result<(BTreeSet<String>, Said), Setback> {
    let (mut fitting, mut all) = (BTreeSet::new(), verdicts(facts, cluster)?);
    for (node, verdict) in &mut all {
        if *verdict == Verdict::Fits {
            fitting.insert(node.clone());
            *verdict = Verdict::Refused(Refusal::never(Reason::Other(TURNED_DOWN.to_owned())));
        }
    }
    Ok((fitting, all))
}

impl Tally {
    fn count(&mut self, opinion: &Opinion, n_nodes: usize) {
        self.n_cases += 1;
        self.n_fitting += opinion.fitting.len();
        self.n_refused += n_nodes - opinion.fitting.len();
        self.n_nowhere += usize::from(opinion.fitting.is_empty());
    }
}

fn summary(tallies: &BTreeMap<&str, Tally>, took: Duration) -> Vec<String> {
    let mut total = Tally::default();
    let mut lines = Vec::new();
    for (family, tally) in tallies {
        let Tally { n_cases, n_fitting, n_refused, n_nowhere } = tally;
        lines.push(format!(
            "scheduler verdicts: {family}: {n_cases} pods agreed, {n_fitting} nodes fit, {n_refused} refused, {n_nowhere} pods nowhere"
        ));
        total.n_cases += n_cases;
        total.n_fitting += n_fitting;
        total.n_refused += n_refused;
        total.n_nowhere += n_nowhere;
    }
    lines.push(format!(
        "scheduler verdicts: {} pods agreed in {SCENES} scenes of seed {SEED}: {} nodes fit, {} refused, {} pods nowhere; {} s",
        total.n_cases,
        total.n_fitting,
        total.n_refused,
        total.n_nowhere,
        took.as_secs()
    ));
    lines
}

/// A pod that bears everything is accepted by exactly the nodes of the scene once the scheduler has seen them.
fn wait_until_seen(real: &Real, client: &Client, scene: &Scene) {
    let expected: BTreeSet<String> = scene.nodes.iter().map(|node| node.name.clone()).collect();
    let deadline = Instant::now() + WAIT_MAX;
    for round in 0.. {
        let created = create(client, scene, &pods::undemanding(), round);
        let theirs = their_opinion(real, client, &created);
        if theirs.message.starts_with(&format!("0/{} nodes", expected.len())) && theirs.fitting.is_subset(&expected) {
            return;
        }
        assert!(Instant::now() < deadline, "the scheduler does not see scene {}: {theirs:?}", scene.number);
    }
}

/// The scene as the API server shows it, defaults and all.
fn read_back(client: &Client, scene: &Scene) -> Cluster {
    let mut cluster = Cluster::default();
    let mut take = |group: &str, plural: &str, place: &str| {
        let root = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/v1") };
        let list = client.get(&format!("{root}/{place}")).unwrap();
        assert!(list.is_success(), "{place}: {}", list.message());
        for item in list.body["items"].as_array().unwrap() {
            cluster.put(group, plural, item.to_string().as_bytes());
        }
    };
    take("", "namespaces", "namespaces");
    take("storage.k8s.io", "csidrivers", "csidrivers");
    let of_scene = format!("labelSelector={SCENE_LABEL}={}", scene.namespace());
    for (group, plural) in [
        ("storage.k8s.io", "storageclasses"),
        ("storage.k8s.io", "csinodes"),
        ("storage.k8s.io", "csistoragecapacities"),
        ("", "persistentvolumes"),
    ] {
        take(group, plural, &format!("{plural}?{of_scene}"));
    }
    for (group, plural) in [("", "persistentvolumeclaims"), ("", "services"), ("policy", "poddisruptionbudgets")] {
        take(group, plural, &format!("namespaces/{}/{plural}", scene.namespace()));
    }
    take("", "nodes", "nodes");
    take("", "pods", "pods");
    cluster
}
