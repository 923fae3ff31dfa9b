//! One operator and its cluster, stepped by hand.

use crate::clerk::{Background, Clerk, StageClock};
use jiff::{SignedDuration, Timestamp};
use kerf_cloud::{CloudError, CloudProvider};
use kerf_cloud_sim::KwokCloud;
use kerf_control_plane::clock::Clock;
use kerf_control_plane::request::Request;
use kerf_control_plane::store::{Change, ChangeKind, ResourceId};
use kerf_control_plane::{ControlPlane, Server};
use kerf_controllers::errand::{ApiFailure, ask, think};
use kerf_controllers::metrics::Metrics;
use kerf_controllers::resource::WATCHED;
use kerf_controllers::{ApiCall, CloudAnswer, Errand, Operator, Options, Outcome, Ticket, Wake};
use kerf_mirror::{Kind, LabelRules, MirrorSettings, Object, View};
use kerf_model::{Text, UnixMillis};
use serde_json::{Value, json};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Where every rehearsal begins.
const START: &str = "2026-01-01T00:00:00Z";

type Running = kerf_cloud::Answer<CloudAnswer>;
/// Makes the cloud, given the plane that its machines belong to.
type MakeCloud = Box<dyn Fn(&ControlPlane) -> Arc<dyn CloudProvider>>;

/// Makes the duties of an operator, and again those of its successor.
pub type MakeDuties = fn() -> Vec<Box<dyn kerf_controllers::Duty>>;

/// What is rehearsed.
pub struct Setup {
    pub seed: u64,
    pub options: Options,
    /// The kwok provider with its built-in types unless said.
    pub cloud: Option<MakeCloud>,
    /// Only these duties, instead of all: for tests of one of them.
    pub duties: Option<MakeDuties>,
}

pub struct Rehearsal {
    plane: ControlPlane,
    clock: Clock,
    operator: Operator,
    cloud: Arc<dyn CloudProvider>,
    setup: Setup,
    changes: UnboundedReceiver<Arc<Change>>,
    /// Whose, whether it only listens, and what.
    running: Vec<(Ticket, bool, Running)>,
    wish: Option<UnixMillis>,
    /// Requests that the operator made, for tests that count them.
    pub n_calls: usize,
    is_down: bool,
    background: Background,
}

impl Setup {
    /// Another cloud than the kwok provider.
    pub fn with_cloud(mut self, cloud: impl Fn(&ControlPlane) -> Arc<dyn CloudProvider> + 'static) -> Self {
        self.cloud = Some(Box::new(cloud));
        self
    }

    /// Only these duties, instead of all.
    pub fn with_duties(mut self, duties: MakeDuties) -> Self {
        self.duties = Some(duties);
        self
    }
}

impl Default for Setup {
    /// The kwok provider with its built-in types, and what a user gets without any flag.
    fn default() -> Self {
        let labels = LabelRules::kwok();
        let mut mirror = MirrorSettings::new(View::Live);
        mirror.scheduling.well_known.extend(kerf_api::labels::KWOK_WELL_KNOWN.iter().map(|key| Text::from(*key)));
        mirror.labels = labels;
        Self { seed: 1, options: Options::new(mirror), cloud: None, duties: None }
    }
}

impl Rehearsal {
    /// A control plane with our definitions installed, and an operator that has seen everything once.
    pub fn new(setup: Setup) -> Self {
        let clock = Clock::starting_at(START.parse().expect("a date"));
        let options = kerf_control_plane::Options {
            clock: clock.clone(),
            seed: setup.seed,
            ..kerf_control_plane::Options::default()
        };
        let plane = ControlPlane::in_process(&options);
        for crd in kerf_api::crds() {
            let body = serde_json::to_value(&crd).expect("definitions are JSON");
            let answer =
                request(plane.server(), "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "", &body);
            assert!(answer.is_ok(), "a definition of ours is refused: {answer:?}");
        }
        plane.settle();
        let background = Background::default();
        let cloud = match &setup.cloud {
            Some(cloud) => cloud(&plane),
            None => {
                let desk = Clerk { server: plane.server().clone(), background: background.clone() };
                let types = kerf_cloud::kwok::embedded();
                Arc::new(KwokCloud::new(Arc::new(desk), Arc::new(StageClock(clock.clone())), types))
            }
        };
        let (operator, changes) = start(&plane, &setup, &cloud);
        Self {
            plane,
            clock,
            operator,
            cloud,
            setup,
            changes,
            running: Vec::new(),
            wish: Some(UnixMillis(i64::MIN)),
            n_calls: 0,
            is_down: false,
            background,
        }
    }

    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    pub fn operator(&self) -> &Operator {
        &self.operator
    }

    pub fn cloud(&self) -> &Arc<dyn CloudProvider> {
        &self.cloud
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The operator dies without a word, and its successor begins. Whatever it had asked of the cloud still happens; nobody
    /// hears the answer.
    pub fn restart(&mut self) {
        self.kill();
        self.revive();
    }

    /// The operator dies without a word.
    pub fn kill(&mut self) {
        self.is_down = true;
    }

    /// Its successor begins.
    pub fn revive(&mut self) {
        let (operator, changes) = start(&self.plane, &self.setup, &self.cloud);
        (self.operator, self.changes, self.is_down) = (operator, changes, false);
        // It has everything to look at, even if nothing changes.
        self.wish = Some(UnixMillis(i64::MIN));
        for (ticket, ..) in &mut self.running {
            ticket.duty = "of a dead operator";
        }
    }

    /// Lets everybody do what is due now, without moving the clock.
    pub fn settle(&mut self) {
        while self.step() {}
    }

    /// Lets time pass.
    pub fn run_for(&mut self, seconds: i64) {
        let end = self.clock.now() + SignedDuration::from_secs(seconds);
        loop {
            self.settle();
            if !self.advance(end) {
                return;
            }
        }
    }

    /// Lets time pass until it holds. Panics when it does not hold within `seconds`.
    #[track_caller]
    pub fn run_until(&mut self, what: &str, seconds: i64, mut holds: impl FnMut(&Self) -> bool) {
        let end = self.clock.now() + SignedDuration::from_secs(seconds);
        loop {
            self.settle();
            if holds(self) {
                return;
            }
            assert!(self.advance(end), "waited {seconds} s in vain for: {what}");
        }
    }

    /// Creates an object from YAML or JSON text; several documents are separated by `---`.
    #[track_caller]
    pub fn create(&mut self, text: &str) {
        for document in text.split("\n---\n") {
            let value: Value = serde_norway::from_str(document).expect("the test's own YAML");
            self.create_value(&value);
        }
    }

    #[track_caller]
    pub fn create_value(&mut self, value: &Value) -> Value {
        let path = collection_of(self.plane.server(), value);
        match request(self.plane.server(), "POST", &path, "application/json", value) {
            Ok(value) => value,
            Err(failure) => panic!("POST {path}: {failure}"),
        }
    }

    /// An object by its path, `/apis/karpenter.sh/v1/nodepools/default`.
    pub fn get(&self, path: &str) -> Option<Value> {
        request(self.plane.server(), "GET", path, "", &Value::Null).ok()
    }

    /// The objects of a collection by its path and query.
    pub fn list(&self, path: &str) -> Vec<Value> {
        let list = request(self.plane.server(), "GET", path, "", &Value::Null);
        let items = list.ok().and_then(|list| list.get("items").and_then(Value::as_array).cloned());
        items.unwrap_or_default()
    }

    pub fn claims(&self) -> Vec<Value> {
        self.list("/apis/karpenter.sh/v1/nodeclaims")
    }

    pub fn nodes(&self) -> Vec<Value> {
        self.list("/api/v1/nodes")
    }

    pub fn pods(&self) -> Vec<Value> {
        self.list("/api/v1/pods")
    }

    /// The messages of the events of a reason, in any namespace.
    pub fn events(&self, reason: &str) -> Vec<String> {
        let events = self.list("/api/v1/events");
        let of_reason = events.iter().filter(|event| event["reason"] == reason);
        of_reason.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// A merge patch.
    #[track_caller]
    pub fn patch(&mut self, path: &str, patch: &Value) -> Value {
        match request(self.plane.server(), "PATCH", path, "application/merge-patch+json", patch) {
            Ok(value) => value,
            Err(failure) => panic!("PATCH {path}: {failure}"),
        }
    }

    pub fn delete(&mut self, path: &str) {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
        // Deleting what is gone already is as good.
        let _ = request(self.plane.server(), "DELETE", path, "application/json", &options);
    }

    /// Does one round of what is due. Answers whether there was anything.
    pub fn step(&mut self) -> bool {
        self.background.poll();
        self.plane.settle();
        if self.is_down {
            self.poll_cloud();
            return false;
        }
        let mut is_news = false;
        while let Ok(change) = self.changes.try_recv() {
            is_news = true;
            for wake in wakes(&change) {
                self.operator.wake(wake);
            }
        }
        for (ticket, outcome) in self.poll_cloud() {
            is_news = true;
            self.operator.wake(Wake::Done(ticket, Outcome::Cloud(outcome)));
        }
        let now = millis(self.clock.now());
        if !is_news && self.wish.is_none_or(|wish| wish > now) {
            return false;
        }
        let batch = self.operator.work(now);
        self.wish = batch.wish;
        for (ticket, errand) in batch.errands {
            match errand {
                Errand::Api(call) => {
                    self.n_calls += 1;
                    let outcome = Outcome::Api(send(self.plane.server(), &call));
                    self.operator.wake(Wake::Done(ticket, outcome));
                    self.wish = Some(now);
                }
                Errand::Think(thought) => {
                    self.operator.wake(Wake::Done(ticket, think(thought)));
                    self.wish = Some(now);
                }
                Errand::Cloud(call) => {
                    let is_listening = call.is_listening();
                    self.running.push((ticket, is_listening, ask(&*self.cloud, call)));
                    self.wish = Some(now);
                }
            }
        }
        true
    }

    fn poll_cloud(&mut self) -> Vec<(Ticket, Result<CloudAnswer, CloudError>)> {
        let mut context = Context::from_waker(Waker::noop());
        let mut ended = Vec::new();
        let mut still = Vec::new();
        for (ticket, is_listening, mut future) in self.running.drain(..) {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(outcome) => ended.push((ticket, outcome)),
                Poll::Pending => still.push((ticket, is_listening, future)),
            }
        }
        self.running = still;
        ended
    }

    /// Moves the clock to when something is due next. False when that is after the end.
    fn advance(&mut self, end: Timestamp) -> bool {
        let now = self.clock.now();
        if now >= end {
            return false;
        }
        let wishes = [self.plane.settle(), self.wish.filter(|_| !self.is_down).map(timestamp)];
        let mut next = wishes.into_iter().flatten().filter(|then| *then > now).min().unwrap_or(end);
        // The cloud does not say when it will answer, and who listens is not in a hurry.
        if self.running.iter().any(|(_, is_listening, _)| !is_listening) || self.background.poll() > 0 {
            next = next.min(now + SignedDuration::from_millis(100));
        } else if !self.running.is_empty() {
            next = next.min(now + SignedDuration::from_secs(1));
        }
        self.clock.advance_to(next.min(end));
        true
    }
}

fn start(
    plane: &ControlPlane,
    setup: &Setup,
    cloud: &Arc<dyn CloudProvider>,
) -> (Operator, UnboundedReceiver<Arc<Change>>) {
    let metrics = Arc::new(Metrics::default());
    let mut operator = match setup.duties {
        None => Operator::new(setup.options.clone(), Arc::clone(cloud), metrics),
        Some(duties) => Operator::with_duties(setup.options.clone(), Arc::clone(cloud), metrics, duties()),
    };
    let (to, changes) = unbounded_channel();
    let classes = cloud.node_classes();
    let resources = WATCHED
        .iter()
        .map(|(kind, resource)| (*kind, resource.group, resource.plural))
        .chain(classes.iter().map(|class| (Kind::NodeClass, class.group, class.plural)));
    let mut state = plane.server().lock();
    for (kind, group, plural) in resources {
        let id = ResourceId { group: group.to_owned(), plural: plural.to_owned() };
        for stored in state.store.list(&id, "") {
            if let Ok(object) = Object::read(stored.value()) {
                operator.wake(Wake::Observed(Box::new(object)));
            }
        }
        state.store.listen(&id, to.clone());
        operator.wake(Wake::Synced(kind));
    }
    drop(state);
    (operator, changes)
}

fn wakes(change: &Change) -> Vec<Wake> {
    let Ok(object) = Object::read(change.object.value()) else {
        return Vec::new();
    };
    match change.kind {
        ChangeKind::Deleted => vec![Wake::Gone(object.key(), Some(change.revision))],
        _ => vec![Wake::Observed(Box::new(object))],
    }
}

fn send(server: &Server, call: &ApiCall) -> Result<Value, ApiFailure> {
    request(server, call.method, &call.path, call.content_type, &call.body)
}

pub(crate) fn request(
    server: &Server,
    method: &str,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Result<Value, ApiFailure> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let request = Request {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        accept: "application/json".to_owned(),
        content_type: content_type.to_owned(),
        user_agent: "karpenter/rehearsal".to_owned(),
        body: if body.is_null() { Vec::new().into() } else { body.to_string().into() },
    };
    let answer = server.handle(&request);
    let value = answer.to_value();
    if (200..300).contains(&answer.status) {
        return Ok(value);
    }
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    Err(ApiFailure { status: answer.status, reason: text("reason"), message: text("message") })
}

/// Where an object is created.
fn collection_of(server: &Server, value: &Value) -> String {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    let root = if api_version.contains('/') { format!("/apis/{api_version}") } else { format!("/api/{api_version}") };
    let resources = request(server, "GET", &root, "", &Value::Null).unwrap_or_default();
    let resource = resources["resources"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|resource| resource["kind"] == kind && !resource["name"].as_str().unwrap_or_default().contains('/'))
        .unwrap_or_else(|| panic!("nobody serves {kind} of {api_version}"));
    let plural = resource["name"].as_str().unwrap_or_default();
    if resource["namespaced"] == true {
        let namespace = Some(text("/metadata/namespace")).filter(|name| !name.is_empty()).unwrap_or("default");
        format!("{root}/namespaces/{namespace}/{plural}")
    } else {
        format!("{root}/{plural}")
    }
}

fn millis(at: Timestamp) -> UnixMillis {
    UnixMillis(at.as_millisecond())
}

fn timestamp(at: UnixMillis) -> Timestamp {
    // A time between two milliseconds has passed when the later one has come.
    Timestamp::from_millisecond(at.0).unwrap_or(Timestamp::MAX)
}
