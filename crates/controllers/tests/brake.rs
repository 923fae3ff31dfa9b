//! The pause and the brake, rehearsed with the whole operator: what is done of our own will stops, what was asked for goes on.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

mod scene;

use kerf_cloud::Instance;
use kerf_control_plane::request::Request;
use kerf_controllers::disruption::{Conditioning, Execution, Rounds};
use kerf_controllers::explain::{Subject, explain};
use kerf_controllers::metrics::Metrics;
use kerf_controllers::resource::WATCHED;
use kerf_controllers::standstill::{Check, Tell};
use kerf_controllers::{
    ApiCall, ApiFailure, CloudAnswer, CloudCall, Duty, Errand, Operator, Outcome, Ticket, Wake, upkeep,
};
use kerf_mirror::{Kind, Object};
use kerf_model::UnixMillis;
use kerf_simulation::{Rehearsal, Setup};
use scene::{cluster, inflate, n_pods, name, scale};
use serde_json::{Value, json};
use std::sync::Arc;

/// Some nodes with a pod each, in a pool whose empty nodes go at once.
fn with_nodes(setup: Setup, n_nodes: i32) -> Rehearsal {
    let mut scene = cluster(setup, |pool| {
        pool["spec"]["disruption"] = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]});
    });
    scene.create_value(&inflate("web", n_nodes, |spec| {
        spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}},
        }]}});
    }));
    let n_nodes = usize::try_from(n_nodes).unwrap();
    scene.run_until("all run", 120, |scene| n_pods(scene, "Running") == n_nodes);
    assert_eq!(scene.claims().len(), n_nodes);
    scene
}

fn has_metric(scene: &Rehearsal, line: &str) -> bool {
    scene.operator().metrics().render().lines().any(|it| it == line)
}

#[test]
fn a_paused_operator_takes_no_node_away_unless_somebody_asks_for_it_and_says_so() {
    let mut setup = Setup::default();
    setup.options.pauses_disruption = true;
    let mut scene = with_nodes(setup, 3);
    scale(&mut scene, "web", 0);
    scene.run_for(600);
    assert_eq!(scene.claims().len(), 3, "empty nodes stay");
    let why = "stand still: the operator was started with --pause-disruption";
    assert!(scene.events("DisruptionBlocked").iter().any(|words| words.ends_with(why)));
    assert!(has_metric(&scene, "kerf_disruption_standstill{what=\"emptiness\",reason=\"paused\"} 1"));
    let claim = name(&scene.claims()[0]);
    for subject in [
        Subject::NodePool("default".to_owned()),
        Subject::NodeClaim(claim.clone()),
        Subject::Node(name(&scene.nodes()[0])),
    ] {
        let told = explain(scene.operator(), &subject).unwrap();
        assert!(told.now.ends_with(why), "{}", told.now);
    }
    scene.delete(&format!("/apis/karpenter.sh/v1/nodeclaims/{claim}"));
    scene.run_until("what was asked for is done", 60, |scene| scene.claims().len() == 2);

    let mut scene = with_nodes(Setup::default(), 3);
    scale(&mut scene, "web", 0);
    scene.run_until("without the pause they go", 60, |scene| scene.claims().is_empty());
}

/// An operator whose requests reach a server when we say so, which is told what we like, and whose clock is ours.
struct Stage {
    server: Rehearsal,
    operator: Operator,
    /// How far the operator's clock is ahead.
    ahead_ms: i64,
    /// Machines that the cloud lists; None for all of them.
    listed: Option<Vec<String>>,
    /// Answers to these paths are held back, with what they are.
    held_path: Option<&'static str>,
    held: Vec<(Ticket, ApiCall)>,
    n_pages: usize,
}

const N_NODES: usize = 30;

fn duties() -> Vec<Box<dyn Duty>> {
    let mut duties: Vec<Box<dyn Duty>> = vec![Box::new(Tell::default())];
    duties.extend(upkeep::duties());
    duties.extend([
        Box::new(Conditioning::default()) as Box<dyn Duty>,
        Box::new(Rounds::default()),
        Box::new(Execution::default()),
        Box::new(Check::default()),
    ]);
    duties
}

impl Stage {
    /// Nodes `n0`, `n1`, … and their claims, in a pool whose empty nodes go after so long.
    fn new(consolidate_after: &str, expire_after: &str) -> Self {
        let mut server = cluster(Setup::default(), |pool| {
            pool["spec"]["disruption"] = json!({"consolidateAfter": consolidate_after, "budgets": [{"nodes": "100%"}]});
        });
        server.kill();
        let labels = json!({
            "karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
            "karpenter.sh/capacity-type": "on-demand", "node.kubernetes.io/instance-type": "c-2x-amd64-linux",
            "topology.kubernetes.io/zone": "test-zone-a",
        });
        let amounts = json!({"cpu": "2", "memory": "4Gi", "pods": "110"});
        let now = server.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let conditions: Vec<Value> = ["Launched", "Registered", "Initialized", "Ready"]
            .iter()
            .map(|kind| json!({"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": now}))
            .collect();
        for n in 0..N_NODES {
            let name = format!("n{n}");
            server.create_value(&json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
                "spec": {"providerID": format!("kwok://{name}")},
                "status": {"capacity": amounts, "allocatable": amounts},
            }));
            server.create_value(&json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                "metadata": {"name": name, "finalizers": ["karpenter.sh/termination"],
                    "labels": {"karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "on-demand"}},
                "spec": {
                    "requirements": [], "expireAfter": expire_after,
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                },
            }));
            let status = json!({"providerID": format!("kwok://{name}"), "nodeName": name, "conditions": conditions});
            server.patch(&format!("{CLAIMS}/{name}/status"), &json!({"status": status}));
        }
        server.run_for(15);
        let options = Setup::default().options;
        let operator = Operator::with_duties(options, server.cloud().clone(), Arc::new(Metrics::default()), duties());
        let (listed, held_path, held) = (None, None, Vec::new());
        Self { server, operator, ahead_ms: 0, listed, held_path, held, n_pages: 0 }
    }

    /// Tells the operator what there is of these collections.
    fn tell(&mut self, collections: &[&str]) {
        for path in collections {
            let (api_version, kind) = match *path {
                PODS => ("v1", "Pod"),
                NODES => ("v1", "Node"),
                CLAIMS => ("karpenter.sh/v1", "NodeClaim"),
                POOLS => ("karpenter.sh/v1", "NodePool"),
                _ => ("karpenter.kwok.sh/v1alpha1", "KWOKNodeClass"),
            };
            for mut object in self.server.list(path) {
                (object["apiVersion"], object["kind"]) = (json!(api_version), json!(kind));
                self.operator.wake(Wake::Observed(Box::new(Object::read(object).unwrap())));
            }
        }
    }

    /// Lets it believe that it has seen everything.
    fn begin(&mut self, collections: &[&str]) {
        self.tell(&["/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", POOLS, CLAIMS]);
        self.tell(collections);
        let kinds = WATCHED.iter().map(|(kind, _)| *kind).chain([Kind::NodeClass]);
        kinds.for_each(|kind| self.operator.wake(Wake::Synced(kind)));
    }

    fn run_for(&mut self, seconds: i64) {
        for _ in 0..seconds {
            self.settle();
            self.server.run_for(1);
        }
        self.settle();
    }

    fn settle(&mut self) {
        loop {
            let now = UnixMillis(self.server.now().as_millisecond() + self.ahead_ms);
            let batch = self.operator.work(now);
            if batch.errands.is_empty() {
                return;
            }
            for (ticket, errand) in batch.errands {
                match errand {
                    Errand::Api(call) if self.held_path.is_some_and(|path| call.path.starts_with(path)) => {
                        self.held.push((ticket, call));
                    }
                    Errand::Api(call) => self.send(ticket, &call),
                    Errand::Cloud(CloudCall::List) => {
                        let ids = self
                            .listed
                            .clone()
                            .unwrap_or_else(|| (0..N_NODES).map(|n| format!("kwok://n{n}")).collect());
                        let instances =
                            ids.iter().map(|id| Instance { provider_id: id.as_str().into(), ..Instance::default() });
                        let answer = CloudAnswer::Listed(instances.collect());
                        self.operator.wake(Wake::Done(ticket, Outcome::Cloud(Ok(answer))));
                    }
                    Errand::Cloud(CloudCall::Drift { .. }) => {
                        self.operator.wake(Wake::Done(ticket, Outcome::Cloud(Ok(CloudAnswer::Drifted(None)))));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn send(&mut self, ticket: Ticket, call: &ApiCall) {
        let (path, query) = call.path.split_once('?').unwrap_or((&call.path, ""));
        self.n_pages += usize::from(path == PODS);
        let answer = self.server.plane().server().handle(&Request {
            method: call.method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            accept: "application/json".to_owned(),
            content_type: call.content_type.to_owned(),
            user_agent: "karpenter/test".to_owned(),
            body: if call.body.is_null() { Vec::new().into() } else { call.body.to_string().into() },
        });
        let value = answer.to_value();
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let outcome = match answer.status {
            200..300 => Ok(value),
            status => Err(ApiFailure { status, reason: text("reason"), message: text("message") }),
        };
        self.operator.wake(Wake::Done(ticket, Outcome::Api(outcome)));
    }

    /// Whatever was held back is answered.
    fn let_go(&mut self) {
        self.held_path = None;
        for (ticket, call) in std::mem::take(&mut self.held) {
            self.send(ticket, &call);
        }
    }

    fn n_going(&self) -> usize {
        let claims = self.server.claims();
        claims.iter().filter(|claim| claim["metadata"]["deletionTimestamp"].is_string()).count()
    }

    fn n_tainted(&self) -> usize {
        let nodes = self.server.nodes();
        let taints = |node: &Value| node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        nodes.iter().filter(|node| taints(node).iter().any(|taint| taint["key"] == "karpenter.sh/disrupted")).count()
    }

    fn standstill(&self) -> String {
        self.operator.standstills().iter().map(|(what, why)| format!("{what}: {why}")).collect::<Vec<_>>().join("; ")
    }

    fn n_brakes(&self, looks: &str) -> bool {
        let line = format!("kerf_disruption_brakes_total{{looks=\"{looks}\"}} 1");
        self.operator.metrics().render().lines().any(|it| it == line)
    }
}

const PODS: &str = "/api/v1/pods";
const NODES: &str = "/api/v1/nodes";
const POOLS: &str = "/apis/karpenter.sh/v1/nodepools";
const CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";

#[test]
fn a_picture_that_has_lost_its_pods_empties_no_node_until_it_has_them_again() {
    let mut stage = Stage::new("0s", "Never");
    for n in 0..N_NODES {
        stage.server.create_value(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{n}"), "namespace": "default"},
            "spec": {"nodeName": format!("n{n}"), "containers": [{"name": "main", "image": "web"}]},
        }));
    }
    stage.begin(&[NODES]);
    stage.run_for(60);
    assert_eq!((stage.n_going(), stage.n_tainted()), (0, 0));
    let standstill = stage.standstill();
    let begin = "emptiness, drift, consolidation, expiration, garbage collection, liveness: 30 of 30 nodes look empty within 2 minutes, \
                 more than 20: a fresh list of pods does not agree: node n0 runs pod default/p0, and 29 more nodes are not empty";
    assert_eq!(standstill, begin);
    let told = explain(&stage.operator, &Subject::Node("n7".to_owned())).unwrap();
    assert!(told.now.contains("30 of 30 nodes look empty"), "{}", told.now);
    assert!(stage.server.events("DisruptionBlocked").iter().any(|words| words.contains("30 of 30 nodes look empty")));
    assert!(stage.n_brakes("empty"));
    assert!((2..=4).contains(&stage.n_pages), "asked now and then, not all the time: {}", stage.n_pages);

    // The watch recovers: the picture agrees with the list, and nobody goes.
    stage.tell(&[PODS]);
    stage.run_for(60);
    assert_eq!(stage.standstill(), "");
    assert_eq!((stage.n_going(), stage.n_tainted()), (0, 0));
    assert!(
        stage.server.events("DisruptionUnblocked").iter().any(|words| words.starts_with("going on with emptiness"))
    );
}

#[test]
fn nodes_that_are_empty_indeed_wait_for_the_fresh_list_and_no_longer() {
    let mut stage = Stage::new("0s", "Never");
    stage.begin(&[NODES]);
    // The list is there before the second look, five seconds after the first: nothing is lost.
    stage.run_for(7);
    assert_eq!(stage.n_going(), N_NODES);
    assert!(stage.n_brakes("empty"));
    assert_eq!(stage.n_pages, 1);

    let mut stage = Stage::new("0s", "Never");
    stage.held_path = Some(PODS);
    stage.begin(&[NODES]);
    stage.run_for(40);
    assert_eq!((stage.n_going(), stage.n_tainted()), (0, 0));
    assert!(stage.standstill().ends_with("a fresh list of pods is asked for"), "{}", stage.standstill());
    stage.let_go();
    stage.run_for(1);
    assert_eq!(stage.n_going(), N_NODES);
}

#[test]
fn a_clock_that_runs_ahead_expires_no_crowd_before_the_servers_own_does() {
    let mut stage = Stage::new("Never", "1h");
    stage.begin(&[NODES]);
    stage.ahead_ms = 3_600_000;
    stage.run_for(120);
    assert_eq!(stage.n_going(), 0);
    let standstill = stage.standstill();
    assert!(standstill.contains("the API server's own clock does not agree: by it, 2026-01-01T00:"), "{standstill}");
    assert!(standstill.ends_with("the time of 30 of them is not over"), "{standstill}");
    assert!(stage.n_brakes("expired"));
    stage.ahead_ms = 0;
    stage.server.run_for(3_600);
    stage.run_for(301);
    assert_eq!(stage.n_going(), N_NODES, "{}", stage.standstill());
}

#[test]
fn machines_that_one_list_of_the_cloud_lacks_are_asked_for_again_before_their_claims_are_collected() {
    // Nodes that say that they live would be believed.
    let mut stage = Stage::new("Never", "Never");
    stage.listed = Some(Vec::new());
    stage.begin(&[]);
    stage.run_for(1);
    assert!(stage.n_brakes("gone"));
    assert_eq!(stage.n_going(), N_NODES, "two lists agree");

    let mut stage = Stage::new("Never", "Never");
    stage.listed = Some(Vec::new());
    stage.begin(&[]);
    let now = UnixMillis(stage.server.now().as_millisecond());
    // The first list lacks them all, every later one has them.
    let batch = stage.operator.work(now);
    for (ticket, errand) in batch.errands {
        if let Errand::Cloud(CloudCall::List) = errand {
            stage.operator.wake(Wake::Done(ticket, Outcome::Cloud(Ok(CloudAnswer::Listed(Vec::new())))));
        }
    }
    stage.listed = None;
    stage.run_for(5);
    assert!(
        stage.standstill().contains("a fresh list of instances does not agree: it has the machines of"),
        "{}",
        stage.standstill()
    );
    stage.run_for(300);
    assert_eq!((stage.n_going(), stage.standstill().as_str()), (0, ""));
}
