//! The shell against the embedded control plane over TLS, and against a server that answers as it is told.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

#[path = "shell/cluster.rs"]
mod cluster;
#[path = "shell/fake.rs"]
mod fake;

use cluster::{Cluster, NoCloud, until};
use fake::{Asked, Fake, scripted};
use kerf_cloud::InstanceRef;
use kerf_controllers::dispatch::Lane;
use kerf_controllers::limits::STALE_AFTER;
use kerf_controllers::metrics::Metrics;
use kerf_controllers::resource::NODES;
use kerf_controllers::shell::{
    Bounds, Caller, Election, Handle, Limits, PageRequest, Pages, Reply, Setup, Shell, Stopped, Timings, WallClock,
    serve,
};
use kerf_controllers::termination::EVICTION_QUEUE;
use kerf_controllers::{
    ApiCall, ApiFailure, Change, CloudCall, Desk, Duty, Errand, Operator, Options, Outcome, Wake, World, write,
};
use kerf_mirror::{Kind, MirrorSettings, Object, View};
use kerf_model::{ClaimName, Text, UnixMillis};
use kube::Client;
use serde_json::json;
use std::future::ready;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// Nobody loses a lease because the machine is slow, and nobody waits for one to run out.
const PATIENT: Timings =
    Timings { lease: Duration::from_secs(3_600), renew: Duration::from_secs(600), retry: Duration::from_millis(20) };

/// A shell at work, and the way to stop it.
struct Running {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), Stopped>>,
}

impl Running {
    async fn stop(mut self) -> Result<(), Stopped> {
        self.ask_to_stop();
        self.task.await.unwrap()
    }

    fn ask_to_stop(&mut self) {
        drop(self.stop.take());
    }

    async fn knows_pods(&self, expected: usize) -> bool {
        self.handle.look(|operator| operator.world().n_pods()).await == Some(expected)
    }

    async fn is_synced(&self) -> bool {
        self.handle.look(|operator| operator.world().is_synced()).await == Some(true)
    }
}

fn start(client: Client, duties: Vec<Box<dyn Duty>>, election: Option<Election>) -> Running {
    start_with(client, duties, election, false, Vec::new())
}

fn start_with(
    client: Client,
    duties: Vec<Box<dyn Duty>>,
    election: Option<Election>,
    warms_up: bool,
    unwanted: Vec<Kind>,
) -> Running {
    run(client, duties, election, warms_up, unwanted, STALE_AFTER)
}

fn run(
    client: Client,
    duties: Vec<Box<dyn Duty>>,
    election: Option<Election>,
    warms_up: bool,
    unwanted: Vec<Kind>,
    stale_after: Duration,
) -> Running {
    let options = Options::new(MirrorSettings::new(View::Live));
    let cloud = Arc::new(NoCloud);
    let shell = Shell::new(Setup {
        operator: Operator::with_duties(options, cloud.clone(), Arc::new(Metrics::default()), duties),
        cloud,
        clock: Arc::new(WallClock),
        caller: Caller::new(client, Limits { per_second: 200.0, burst: 300, in_flight: 50 }),
        election,
        warms_up,
        unwanted,
        stale_after,
    })
    .unwrap();
    let handle = shell.handle();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(shell.run(async move {
        let _ = stopped.await;
    }));
    Running { handle, stop: Some(stop), task }
}

/// Creates one Node when everything has been seen, and counts how it went.
#[derive(Default)]
struct CreatesOneNode {
    has_asked: bool,
    n_done: Arc<AtomicUsize>,
}

impl Duty for CreatesOneNode {
    fn name(&self) -> &'static str {
        "test.create"
    }

    fn observe(&mut self, _: &Change, _: &World) {}

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if desk.world.is_synced() && !self.has_asked {
            self.has_asked = true;
            desk.call(&"it".into(), write::create(NODES, "", &json!({"metadata": {"name": "made"}})));
        }
        None
    }

    fn done(&mut self, _: &Text, outcome: Outcome, desk: &mut Desk<'_>) {
        let Outcome::Api(Ok(_)) = outcome else { panic!("{outcome:?}") };
        assert!(desk.world.nodes.contains_key("made"), "the answer is in the world before the duty hears of it");
        self.n_done.fetch_add(1, Ordering::SeqCst);
    }
}

/// Writes down what it is shown.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Duty for Diary {
    fn name(&self) -> &'static str {
        "test.diary"
    }

    fn observe(&mut self, change: &Change, _: &World) {
        let line = match change {
            Change::Pod { id, before, after } => format!("{} {} {}", id.name, before.is_some(), after.is_some()),
            Change::Node { name, before, after } => format!("{name} {} {}", before.is_some(), after.is_some()),
            Change::Claim { name, before, after } => format!("{name} {} {}", before.is_some(), after.is_some()),
            other => format!("{other:?}"),
        };
        self.0.lock().unwrap().push(line);
    }

    fn work(&mut self, _: &mut Desk<'_>) -> Option<UnixMillis> {
        None
    }

    fn done(&mut self, _: &Text, _: Outcome, _: &mut Desk<'_>) {}
}

#[test]
fn duties_of_one_that_stands_by_are_shown_nothing_and_those_of_a_leader_all_there_is() {
    let diary = Diary::default();
    let options = Options::new(MirrorSettings::new(View::Live));
    let duties: Vec<Box<dyn Duty>> = vec![Box::new(diary.clone())];
    let mut operator = Operator::with_duties(options, Arc::new(NoCloud), Arc::new(Metrics::default()), duties);
    let object = |kind: &str, name: &str, version: u64| {
        let metadata =
            json!({"name": name, "namespace": "default", "uid": name, "resourceVersion": version.to_string()});
        Object::read(json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": {"containers": []}}))
            .unwrap()
    };
    for version in 1..100 {
        let pod = object("Pod", &format!("p{version}"), version);
        let key = pod.key();
        operator.wake(Wake::Observed(Box::new(pod)));
        operator.stand_by();
        if version > 2 {
            operator.wake(Wake::Gone(key, Some(version)));
            operator.stand_by();
        }
    }
    operator.wake(Wake::Observed(Box::new(object("Node", "n", 100))));
    operator.stand_by();
    assert_eq!(*diary.0.lock().unwrap(), [""; 0]);
    // First it hears of the claims that somebody else has made.
    let mut batch = operator.work(UnixMillis(1));
    let (ticket, _) = batch.errands.remove(0);
    operator.wake(Wake::Done(ticket, Outcome::Api(Ok(json!({"items": []})))));
    operator.work(UnixMillis(1));
    assert_eq!(*diary.0.lock().unwrap(), ["n false true", "p1 false true", "p2 false true"]);
    operator.wake(Wake::Observed(Box::new(object("Pod", "p1", 101))));
    operator.work(UnixMillis(2));
    assert_eq!(diary.0.lock().unwrap()[3..], ["p1 true true"]);
}

#[test]
fn after_the_clock_was_set_back_nobody_waits_long_for_what_does_not_end() {
    let options = Options::new(MirrorSettings::new(View::Live));
    let asks = || -> Vec<Box<dyn Duty>> { vec![Box::new(AsksOnce::default())] };
    let operator = || {
        let mut operator =
            Operator::with_duties(options.clone(), Arc::new(NoCloud), Arc::new(Metrics::default()), asks());
        let batch = operator.work(UnixMillis(100_000));
        assert_eq!(batch.errands.len(), 1);
        (operator, batch.errands.into_iter().next().unwrap().0)
    };
    let (mut stuck, _) = operator();
    let set_back = stuck.work(UnixMillis(50_000));
    assert!(set_back.errands.is_empty() && !stuck.must_restart(), "what is under way may still end");
    let wish = set_back.wish.unwrap();
    assert!(wish <= UnixMillis(75_000), "a machine may be gone two minutes after it is said: {wish:?}");
    stuck.work(wish);
    assert!(stuck.must_restart());
    let (mut sound, ticket) = operator();
    sound.work(UnixMillis(50_000));
    sound.wake(Wake::Done(ticket, Outcome::Api(Ok(json!({})))));
    let batch = sound.work(UnixMillis(80_000));
    assert!(!sound.must_restart(), "it has begun anew by itself");
    let asked =
        batch.errands.iter().any(|(_, errand)| matches!(errand, Errand::Api(call) if call.path.contains("nodeclaims")));
    assert!(asked, "as one that has just come");
}

/// Orders one request at its first work.
#[derive(Default)]
struct AsksOnce(bool);

impl Duty for AsksOnce {
    fn name(&self) -> &'static str {
        "test.asks"
    }

    fn observe(&mut self, _: &Change, _: &World) {}

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if !std::mem::replace(&mut self.0, true) {
            desk.call(&"it".into(), write::get(NODES.collection()));
        }
        None
    }

    fn done(&mut self, _: &Text, _: Outcome, _: &mut Desk<'_>) {}
}

#[test]
fn a_new_leader_lists_all_claims_before_it_works_and_begins_again_when_a_page_is_refused() {
    let diary = Diary::default();
    let options = Options::new(MirrorSettings::new(View::Live));
    let duties: Vec<Box<dyn Duty>> = vec![Box::new(diary.clone())];
    let mut operator = Operator::with_duties(options, Arc::new(NoCloud), Arc::new(Metrics::default()), duties);
    operator.stand_by();
    let mut now = UnixMillis(0);
    // What is asked next, as soon as anything is.
    let mut asked = |operator: &mut Operator| loop {
        let batch = operator.work(now);
        if let Some((ticket, Errand::Api(call))) = batch.errands.into_iter().next() {
            return (ticket, call.path);
        }
        assert_eq!(*diary.0.lock().unwrap(), [""; 0], "nobody works before all is listed");
        now = batch.wish.expect("it wants to ask again");
    };
    let page = |name: &str, token: &str| {
        let claim = json!({"metadata": {"name": name, "uid": name, "resourceVersion": "7"}, "spec": {"requirements": [],
            "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}});
        Outcome::Api(Ok(json!({"metadata": {"continue": token}, "items": [claim]})))
    };
    let refused = |status: u16| {
        Outcome::Api(Err(ApiFailure { status, reason: String::new(), message: "the token has expired".to_owned() }))
    };
    let path = "/apis/karpenter.sh/v1/nodeclaims";
    for (expected, answer) in [
        ("", refused(503)),
        ("", page("one", "t1")),
        // Compacted between two pages: the same token would be refused for ever.
        ("t1", refused(410)),
        ("", page("one", "t2")),
        ("t2", page("two", "")),
    ] {
        let (ticket, asked) = asked(&mut operator);
        assert!(asked.starts_with(path), "{asked}");
        let token = asked.split_once("continue=").map_or("", |(_, token)| token);
        assert_eq!(token, expected, "{asked}");
        operator.wake(Wake::Done(ticket, answer));
    }
    operator.work(now);
    assert_eq!(*diary.0.lock().unwrap(), ["one false true", "two false true"], "what the last leader bought is known");
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_listed_in_pages_and_then_followed() {
    let cluster = Cluster::with_definitions();
    cluster.create_account();
    for number in 0..1_100 {
        cluster.create_pod(&format!("p{number}"));
    }
    let running = start(cluster.client().await, Vec::new(), None);
    until("all pods are known", async || running.knows_pods(1_100).await).await;
    until("every kind is synced", async || running.is_synced().await).await;
    assert!(running.handle.health().is_ready());
    cluster.create_pod("late");
    until("the late pod is known", async || running.knows_pods(1_101).await).await;
    cluster.delete("/api/v1/namespaces/default/pods/late");
    until("the deleted pod is forgotten", async || running.knows_pods(1_100).await).await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duty_creates_what_it_wants_through_the_real_door() {
    let cluster = Cluster::with_definitions();
    let duty = CreatesOneNode::default();
    let n_done = Arc::clone(&duty.n_done);
    let running = start(cluster.client().await, vec![Box::new(duty)], None);
    until("the node is made", async || n_done.load(Ordering::SeqCst) == 1).await;
    assert!(cluster.get("/api/v1/nodes/made").is_some());
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_waits_for_the_definitions_and_says_how_to_get_them() {
    let cluster = Cluster::without_definitions();
    let running = start_with(cluster.client().await, Vec::new(), None, false, Vec::new());
    let health = running.handle.health().clone();
    until("the missing kinds are named", async || {
        health.missing().is_some_and(|missing| {
            missing.len() == 3 && missing.iter().all(|line| line.contains("kerf crds | kubectl apply"))
        })
    })
    .await;
    let missing = health.missing().unwrap();
    let named: Vec<&str> = missing.iter().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(named, ["kwoknodeclasses", "nodeclaims", "nodepools"], "overlays and buffers count as none");
    assert!(!running.is_synced().await);
    cluster.install_definitions();
    until("it is ready", async || health.is_ready()).await;
    until("every kind is synced", async || running.is_synced().await).await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_stands_by_is_ready_when_the_definitions_are_there() {
    let cluster = Cluster::without_definitions();
    let client = cluster.client().await;
    let mut leader = Election::new(client.clone(), "default", "lease", "leader", PATIENT);
    leader.acquire().await;
    let election = Election::new(client.clone(), "default", "lease", "other", PATIENT);
    let running = start(client, Vec::new(), Some(election));
    let health = running.handle.health().clone();
    until("missing definitions are named", async || health.missing().is_some_and(|missing| missing.len() == 2)).await;
    cluster.install_definitions();
    until("it is ready", async || health.is_ready()).await;
    assert!(!running.is_synced().await, "it does not watch before it leads");
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_warms_up_watches_before_it_leads_and_does_nothing() {
    let cluster = Cluster::with_definitions();
    let client = cluster.client().await;
    let mut leader = Election::new(client.clone(), "default", "lease", "leader", PATIENT);
    leader.acquire().await;
    let duty = CreatesOneNode::default();
    let n_done = Arc::clone(&duty.n_done);
    let election = Election::new(client.clone(), "default", "lease", "other", PATIENT);
    let running = start_with(client, vec![Box::new(duty)], Some(election), true, Vec::new());
    until("every kind is synced", async || running.is_synced().await).await;
    assert_eq!(cluster.get("/api/v1/nodes/made"), None);
    leader.release().await;
    until("the successor works", async || n_done.load(Ordering::SeqCst) == 1).await;
    let lease = cluster.get("/apis/coordination.k8s.io/v1/namespaces/default/leases/lease").unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "other");
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
    running.stop().await.unwrap();
    let lease = cluster.get("/apis/coordination.k8s.io/v1/namespaces/default/leases/lease").unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "", "given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_released_lease_is_taken_and_who_lost_it_hears_of_it() {
    let cluster = Cluster::without_definitions();
    let client = cluster.client().await;
    // The second would wait an hour for a lease that is not given back.
    let mut first = Election::new(client.clone(), "default", "lease", "first", PATIENT);
    let mut second = Election::new(client.clone(), "default", "lease", "second", PATIENT);
    first.acquire().await;
    let waiting = tokio::spawn(async move {
        second.acquire().await;
        second
    });
    first.release().await;
    let mut second = waiting.await.unwrap();
    // Somebody writes the first one's name over the second's.
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/lease";
    cluster.patch(path, &json!({"spec": {"holderIdentity": "thief", "renewTime": "2026-01-01T00:00:00.000001Z"}}));
    assert_eq!(second.keep().await, "the lease is held by thief");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_nobody_renews_is_taken_over() {
    let cluster = Cluster::without_definitions();
    let client = cluster.client().await;
    let short = Timings { lease: Duration::from_secs(1), ..PATIENT };
    let mut dead = Election::new(client.clone(), "default", "lease", "dead", short);
    dead.acquire().await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/lease";
    assert_eq!(cluster.get(path).unwrap()["spec"]["holderIdentity"], "dead");
    let mut heir = Election::new(client, "default", "lease", "heir", PATIENT);
    heir.acquire().await;
    let spec = cluster.get(path).unwrap()["spec"].clone();
    assert_eq!((&spec["holderIdentity"], &spec["leaseTransitions"]), (&json!("heir"), &json!(1)));
    assert_eq!(dead.keep().await, "the lease is held by heir", "whoever comes back from the dead leads no more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lease_ends_the_work() {
    let cluster = Cluster::with_definitions();
    let client = cluster.client().await;
    let election = Election::new(client.clone(), "default", "lease", "us", PATIENT);
    let running = start(client, Vec::new(), Some(election));
    until("it leads", async || running.is_synced().await).await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/lease";
    cluster.patch(path, &json!({"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 3_600}}));
    let error = running.task.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("the lease is held by thief"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_break_that_is_too_long_everything_is_listed_again() {
    let pod = |name: &str, version: u32| json!({"metadata": {"name": name, "namespace": "a", "uid": name, "resourceVersion": version.to_string()}});
    let fake = Fake::start(move |asked: Asked| {
        let answer = match (asked.path.as_str(), asked.is_watch, asked.nth) {
            ("/api/v1/pods", false, 0) => {
                Some(json!({"metadata": {"resourceVersion": "10"}, "items": [pod("stays", 3), pod("goes", 4)]}))
            }
            ("/api/v1/pods", true, 0) => {
                assert!(asked.query.contains("resourceVersion=10"), "{}", asked.query);
                let expired = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
                return Some(Reply::json(200, format!("{}\n", json!({"type": "ERROR", "object": expired}))));
            }
            ("/api/v1/pods", false, _) => {
                Some(json!({"metadata": {"resourceVersion": "20"}, "items": [pod("stays", 3), pod("comes", 15)]}))
            }
            _ => None,
        };
        answer.map(|value| Reply::json(200, value.to_string()))
    })
    .await;
    let running = start(fake.client(), Vec::new(), None);
    until("the new pod is known and the old one is not", async || {
        let names = running.handle.look(|operator| {
            let mut names: Vec<String> = operator.world().pods().map(|pod| pod.id.name.to_string()).collect();
            names.sort();
            names
        });
        names.await == Some(vec!["comes".to_owned(), "stays".to_owned()])
    })
    .await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_ends_is_resumed_from_the_last_bookmark() {
    let fake = Fake::start(move |asked: Asked| {
        if asked.path != "/api/v1/pods" || !asked.is_watch || asked.nth > 0 {
            return None;
        }
        let bookmark = json!({"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "77"}}});
        Some(Reply::json(200, format!("{bookmark}\n")))
    })
    .await;
    let running = start(fake.client(), Vec::new(), None);
    until("the watch goes on from the bookmark", async || {
        fake.asked().iter().any(|asked| asked.contains("/api/v1/pods?watch=1") && asked.ends_with("resourceVersion=77"))
    })
    .await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_named_with_its_rule_and_the_other_kinds_go_on() {
    let fake = Fake::start(move |asked: Asked| {
        (asked.path == "/api/v1/services").then(|| {
            let message = "services is forbidden: User \"karpenter\" cannot list resource \"services\"";
            let status = json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": message});
            Reply::json(403, status.to_string())
        })
    })
    .await;
    let running = start(fake.client(), Vec::new(), None);
    let health = running.handle.health().clone();
    until("only services are missing", async || {
        health.missing().is_some_and(|missing| missing.len() == 1 && missing[0].contains("may not list services"))
    })
    .await;
    let missing = health.missing().unwrap().concat();
    assert!(missing.contains("User \"karpenter\" cannot list"), "{missing}");
    assert!(missing.contains(r#"{apiGroups: [""], resources: ["services"], verbs: ["list", "watch"]}"#), "{missing}");
    assert!(!running.is_synced().await);
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_cannot_be_read_does_not_hide_the_others() {
    let fake = Fake::start(move |asked: Asked| {
        (asked.path == "/api/v1/pods" && !asked.is_watch).then(|| {
            let good = json!({"metadata": {"name": "good", "namespace": "a", "resourceVersion": "1"}});
            let bad = json!({"metadata": {"name": "bad", "namespace": "a"}, "spec": {"containers": "none"}});
            Reply::json(200, json!({"metadata": {"resourceVersion": "5"}, "items": [bad, good]}).to_string())
        })
    })
    .await;
    let running = start(fake.client(), Vec::new(), None);
    until("the good pod is known", async || running.knows_pods(1).await).await;
    until("every kind is synced", async || running.is_synced().await).await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_behind_a_closed_gate_are_not_asked_for() {
    let fake = Fake::start(|_| None).await;
    let unwanted = vec![Kind::NodeOverlay, Kind::CapacityBuffer];
    let running = start_with(fake.client(), Vec::new(), None, false, unwanted);
    until("every kind is synced", async || running.is_synced().await).await;
    let asked = fake.asked().concat();
    assert!(!asked.contains("nodeoverlays") && !asked.contains("capacitybuffers"), "{asked}");
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_begun_ends_before_the_process_does() {
    let (is_asked, may_answer) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told, released) = (Arc::clone(&is_asked), Arc::clone(&may_answer));
    let fake = Fake::start_slow(move |asked: Asked| {
        let (told, released) = (Arc::clone(&told), Arc::clone(&released));
        async move {
            if asked.method != "POST" {
                return None;
            }
            told.notify_one();
            released.notified().await;
            let node =
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "made", "resourceVersion": "9"}});
            Some(Reply::json(201, node.to_string()))
        }
    })
    .await;
    let mut running = start(fake.client(), vec![Box::<CreatesOneNode>::default()], None);
    is_asked.notified().await;
    running.ask_to_stop();
    // The seat answers after it has heard that it should rest, because messages are read in their order.
    until("it rests", async || running.handle.look(|_| ()).await.is_some()).await;
    assert!(!running.task.is_finished(), "the errand is still under way");
    may_answer.notify_one();
    running.task.await.unwrap().unwrap();
}

/// Asks the cloud for something, once it knows the cluster.
#[derive(Default)]
struct AsksTheCloud {
    has_asked: Arc<Notify>,
}

impl Duty for AsksTheCloud {
    fn name(&self) -> &'static str {
        "test.cloud"
    }

    fn observe(&mut self, _: &Change, _: &World) {}

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if desk.world.is_synced() && !desk.is_busy("reboot") {
            let claim = ClaimName("c".into());
            let instance = InstanceRef { provider_id: "i".into(), claim, node_name: None };
            desk.ask_cloud(&"reboot".into(), CloudCall::Reboot { instance, operation: "o".into() });
            self.has_asked.notify_one();
        }
        None
    }

    fn done(&mut self, _: &Text, _: Outcome, _: &mut Desk<'_>) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_not_given_back_while_something_may_go_on_at_its_other_end() {
    let cluster = Cluster::with_definitions();
    let client = cluster.client().await;
    let election = Election::new(client.clone(), "default", "lease", "us", PATIENT);
    let duty = AsksTheCloud::default();
    let has_asked = Arc::clone(&duty.has_asked);
    let running = start(client, vec![Box::new(duty)], Some(election));
    has_asked.notified().await;
    running.stop().await.unwrap();
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/lease";
    assert_eq!(cluster.get(path).unwrap()["spec"]["holderIdentity"], "us", "a successor waits until it has run out");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_falls_silent_makes_it_unready_and_is_trusted_again_when_it_speaks() {
    let (is_frozen, thaws) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let (frozen, thawed) = (Arc::clone(&is_frozen), Arc::clone(&thaws));
    let fake = Fake::start_slow(move |asked: Asked| {
        let (frozen, thawed) = (Arc::clone(&frozen), Arc::clone(&thawed));
        async move {
            let thaw = thawed.notified();
            if asked.path == "/api/v1/pods" && !asked.is_watch && frozen.load(Ordering::SeqCst) {
                thaw.await;
            }
            None
        }
    })
    .await;
    // Quiet watches are begun anew after a second: as lists, because this server is an old one.
    let running = run(fake.client(), Vec::new(), None, false, Vec::new(), Duration::from_secs(2));
    let health = running.handle.health().clone();
    until("it is ready", async || running.is_synced().await && health.is_ready()).await;
    is_frozen.store(true, Ordering::SeqCst);
    until("pods are stale", async || {
        health
            .missing()
            .is_some_and(|missing| missing.iter().any(|line| line.starts_with("pods: stale: nothing was heard")))
    })
    .await;
    let stale = || running.handle.look(|operator| operator.world().stale().contains(&Kind::Pod));
    until("the operator knows", async || stale().await == Some(true)).await;
    is_frozen.store(false, Ordering::SeqCst);
    thaws.notify_waiters();
    until("pods are trusted again", async || stale().await == Some(false) && health.is_ready()).await;
    assert!(running.handle.metrics().render().contains("kerf_watch_age_seconds{resource=\"pods\"}"));
    running.stop().await.unwrap();
}

/// Orders these requests once everything has been seen, under this name, and counts how they went by status.
struct Orders {
    name: &'static str,
    calls: Vec<ApiCall>,
    n_done: Arc<AtomicUsize>,
    n_failed: Arc<AtomicUsize>,
}

impl Orders {
    fn duty(name: &'static str, calls: Vec<ApiCall>) -> (Box<dyn Duty>, Arc<AtomicUsize>, Arc<AtomicUsize>) {
        let duty = Self { name, calls, n_done: Arc::default(), n_failed: Arc::default() };
        let (n_done, n_failed) = (Arc::clone(&duty.n_done), Arc::clone(&duty.n_failed));
        (Box::new(duty), n_done, n_failed)
    }
}

impl Duty for Orders {
    fn name(&self) -> &'static str {
        self.name
    }

    fn observe(&mut self, _: &Change, _: &World) {}

    fn work(&mut self, desk: &mut Desk<'_>) -> Option<UnixMillis> {
        if desk.world.is_synced() {
            for (number, call) in self.calls.drain(..).enumerate() {
                desk.call(&number.to_string().into(), call);
            }
        }
        None
    }

    fn done(&mut self, _: &Text, outcome: Outcome, _: &mut Desk<'_>) {
        let Outcome::Api(answer) = outcome else { panic!("{outcome:?}") };
        let counter = if answer.is_ok() { &self.n_done } else { &self.n_failed };
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

fn evictions(n_pods: usize) -> Vec<ApiCall> {
    let path = |number| format!("/api/v1/namespaces/a/pods/p{number}/eviction");
    let call =
        |number| ApiCall { method: "POST", path: path(number), content_type: "application/json", body: json!({}) };
    (0..n_pods).map(call).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_do_not_wait_behind_evictions_that_nobody_answers() {
    let fake = Fake::start_slow(|asked: Asked| async move {
        if asked.path.ends_with("/eviction") {
            return std::future::pending().await;
        }
        (asked.method == "POST").then(|| Reply::json(201, "{}"))
    })
    .await;
    let (evicts, ..) = Orders::duty(EVICTION_QUEUE, evictions(200));
    let nodes = (0..60).map(|number| write::create(NODES, "", &json!({"metadata": {"name": format!("n{number}")}})));
    let (creates, n_created, _) = Orders::duty("test.create", nodes.collect());
    let running = start(fake.client(), vec![evicts, creates], None);
    until("everything else is written", async || n_created.load(Ordering::SeqCst) == 60).await;
    let n_evictions = fake.asked().iter().filter(|asked| asked.ends_with("/eviction")).count();
    assert!(n_evictions <= 50 / 4, "a bounded share: {n_evictions}");
    running.task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budgets_no_comes_back_at_once_and_is_asked_once() {
    let refusal =
        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 10\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    let (client, n_asked) = scripted(vec![refusal; 8]).await;
    let caller = Caller::new(client, Limits::none());
    let begun = std::time::Instant::now();
    for eviction in evictions(4) {
        assert_eq!(caller.call_in(Lane::Evictions, eviction).await.unwrap_err().status, 429);
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "nobody waited as long as the server says");
    assert_eq!(n_asked.load(Ordering::SeqCst), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_to_come_back_is_asked_again() {
    let busy = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let good = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    let (client, n_asked) = scripted(vec![busy, good]).await;
    let caller = Caller::new(client, Limits::none());
    let call = write::create(NODES, "", &json!({"metadata": {"name": "n"}}));
    assert_eq!(caller.call(call.clone()).await, Ok(json!({})));
    assert_eq!(n_asked.load(Ordering::SeqCst), 2);
    // A conflict is for whoever ordered it.
    let taken = "HTTP/1.1 409 Conflict\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let (client, n_asked) = scripted(vec![taken, good]).await;
    assert_eq!(Caller::new(client, Limits::none()).call(call).await.unwrap_err().status, 409);
    assert_eq!(n_asked.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_requests_are_under_way_than_there_are_slots() {
    const SLOTS: usize = 4;
    let under_way = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let gate = Arc::new(tokio::sync::Barrier::new(SLOTS));
    let (counted, peak) = (Arc::clone(&under_way), Arc::clone(&most));
    let fake = Fake::start_slow(move |_| {
        let (counted, peak, gate) = (Arc::clone(&counted), Arc::clone(&peak), Arc::clone(&gate));
        async move {
            peak.fetch_max(counted.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // Nobody is answered before all slots are taken: so all of them are used.
            gate.wait().await;
            counted.fetch_sub(1, Ordering::SeqCst);
            Some(Reply::json(200, "{}"))
        }
    })
    .await;
    let caller = Caller::new(fake.client(), Limits { per_second: -1.0, burst: 1, in_flight: SLOTS });
    let calls: Vec<_> = (0..5 * SLOTS)
        .map(|_| {
            let caller = caller.clone();
            tokio::spawn(async move { caller.get("/version").await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), SLOTS);
}

/// Knows one token at a time.
async fn start_with_tokens(accepted: Arc<Mutex<String>>) -> kube::Config {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let config = kube::Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
    let pages = Pages::default().with("/", move |request: PageRequest| {
        let wanted = format!("Bearer {}", accepted.lock().unwrap());
        let is_known =
            request.headers().get("authorization").is_some_and(|found| found.as_bytes() == wanted.as_bytes());
        let (code, reason) = if is_known { (200, "") } else { (401, "Unauthorized") };
        ready(Reply::json(code, json!({"kind": "Status", "code": code, "reason": reason}).to_string()))
    });
    serve("tokens", listener, pages, Bounds { per_second: 1_000_000, ..Bounds::default() }).unwrap();
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_no_longer_accepted_is_read_or_asked_for_again() {
    let folder = tempfile::tempdir().unwrap();
    for how in ["tokenFile", "exec"] {
        let accepted = Arc::new(Mutex::new("first".to_owned()));
        let mut config = start_with_tokens(Arc::clone(&accepted)).await;
        let file = folder.path().join(how);
        // As an editor leaves it.
        let write = |token: &str| std::fs::write(&file, format!("{token}\n")).unwrap();
        write("first");
        // A plugin that does not say when its token ends.
        let script = format!(
            "printf '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{{\"token\":\"%s\"}}}}' \
             \"$(cat {})\"",
            file.display()
        );
        let exec = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": ["-c", script], "interactiveMode": "Never",
        });
        let user = if how == "exec" { json!({"exec": exec}) } else { json!({"tokenFile": file}) };
        config.auth_info = serde_json::from_value(user).unwrap();
        let caller = Caller::new(kerf_controllers::shell::client(&config).unwrap(), Limits::none());
        caller.get("/api").await.unwrap();

        // It ends early, and is replaced a little later.
        "second".clone_into(&mut accepted.lock().unwrap());
        assert_eq!(caller.get("/api").await.unwrap_err().status, 401, "{how}");
        write("second");
        until("the new token is used", async || caller.get("/api").await.is_ok()).await;
    }
}
