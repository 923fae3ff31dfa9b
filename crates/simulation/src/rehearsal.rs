//! One operator and its cluster, stepped by hand.

use crate::clerk::{Background, Clerk, StageClock};
use crate::faults::{Faults, Heard, Trace, Weather};
use crate::laws::{LEASE, Laws};
use crate::process::{Process, Running, Turn};
use crate::stage::{Stage, request};
use crate::yard::sim_cloud;
use jiff::{SignedDuration, Timestamp};
use kerf_cloud::CloudProvider;
use kerf_cloud_sim::{KwokCloud, SimCloud, SimOptions};
use kerf_control_plane::clock::Clock;
use kerf_control_plane::{ControlPlane, Server};
use kerf_controllers::moment::Moment;
use kerf_controllers::resource::LEASES;
use kerf_controllers::{Operator, Options};
use kerf_mirror::{LabelRules, MirrorSettings, View};
use kerf_model::Text;
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

/// Where every rehearsal begins.
const START: &str = "2026-01-01T00:00:00Z";

/// Steps without time moving after which something goes on for ever.
const STEPS_MAX: usize = 20_000;

/// Makes the cloud, given the plane that its machines belong to.
type MakeCloud = Box<dyn Fn(&ControlPlane) -> Arc<dyn CloudProvider>>;

/// Whether a machine runs, by its provider id.
pub type RunsMachine = Box<dyn Fn(&str) -> bool>;

/// Makes the duties of an operator, and again those of its successor.
pub type MakeDuties = fn() -> Vec<Box<dyn kerf_controllers::Duty>>;

/// What is rehearsed.
pub struct Setup {
    pub seed: u64,
    pub options: Options,
    /// The kwok provider with its built-in types unless said. Each process gets one of its own: what the one before it remembered is
    /// forgotten, unless they share it.
    pub cloud: Option<MakeCloud>,
    /// Only these duties, instead of all: for tests of one of them.
    pub duties: Option<MakeDuties>,
    /// Whether processes contend for a lease. Without it there is one, and it leads.
    pub elects: bool,
    /// Whether everything that happens is written down: see [`Rehearsal::trace`].
    pub keeps_trace: bool,
    /// Whether a machine runs, by its provider id: what is ended while it runs must have been drained.
    pub account: Option<RunsMachine>,
}

pub struct Rehearsal {
    plane: ControlPlane,
    setup: Setup,
    stage: Stage,
    seats: Vec<Seat>,
    /// Calls to the cloud whose process is no more.
    orphans: Vec<Running>,
    background: Background,
    n_processes: usize,
}

/// Where one process runs, and its successor after it.
struct Seat {
    process: Process,
    cloud: Arc<dyn CloudProvider>,
    is_down: bool,
    /// When its successor begins by itself.
    back_at: Option<Moment>,
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

    /// What a user of EC2 gets.
    pub fn for_ec2(mut self) -> Self {
        self.options.mirror.labels = LabelRules::aws();
        let well_known = kerf_api::labels::AWS_WELL_KNOWN.iter().map(|key| Text::from(*key));
        self.options.mirror.scheduling.well_known.extend(well_known);
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
        Self {
            seed: 1,
            options: Options::new(mirror),
            cloud: None,
            duties: None,
            elects: false,
            keeps_trace: false,
            account: None,
        }
    }
}

impl Rehearsal {
    /// A control plane with our definitions installed, and an operator that has seen everything once.
    pub fn new(mut setup: Setup) -> Self {
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
        let stage = Stage {
            server: plane.server().clone(),
            clock,
            weather: Weather::new(setup.seed),
            trace: Trace(setup.keeps_trace.then(Vec::new)),
            laws: Laws { account: setup.account.take(), ..Laws::default() },
            n_calls: 0,
        };
        let mut rehearsal = Self {
            plane,
            setup,
            stage,
            seats: Vec::new(),
            orphans: Vec::new(),
            background: Background::default(),
            n_processes: 0,
        };
        rehearsal.add_process();
        rehearsal
    }

    /// The same on a simulated EC2. What outlives a process is the account, and nothing else.
    pub fn on_sim(setup: Setup, options: SimOptions) -> (Self, SimCloud) {
        let account: Arc<OnceLock<SimCloud>> = Arc::default();
        let (of_cloud, of_laws) = (Arc::clone(&account), Arc::clone(&account));
        let mut setup = setup.for_ec2().with_cloud(move |plane| {
            let first = || sim_cloud(plane, options.clone()).expect("a region of the catalogue");
            Arc::new(of_cloud.get_or_init(first).successor())
        });
        setup.account = Some(Box::new(move |id| {
            of_laws.get().is_some_and(|cloud| cloud.running().iter().any(|line| *line.provider_id == *id))
        }));
        let rehearsal = Self::new(setup);
        let cloud = account.get().expect("the first process has asked for it").clone();
        (rehearsal, cloud)
    }

    /// Another process of the operator, which stands by while somebody else leads.
    pub fn add_process(&mut self) {
        let (process, cloud) = self.process(self.seats.len());
        self.seats.push(Seat { process, cloud, is_down: false, back_at: None });
    }

    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// The operator of the first process.
    pub fn operator(&self) -> &Operator {
        &self.seats[0].process.operator
    }

    /// The cloud of the first process.
    pub fn cloud(&self) -> &Arc<dyn CloudProvider> {
        &self.seats[0].cloud
    }

    pub fn now(&self) -> Timestamp {
        self.stage.clock.now()
    }

    /// Requests that the operator made.
    pub fn n_calls(&self) -> usize {
        self.stage.n_calls
    }

    /// The process that leads, by number.
    pub fn leader(&self) -> Option<usize> {
        self.seats.iter().position(|seat| !seat.is_down && seat.process.leads())
    }

    /// Whether a process takes any kind for stale.
    pub fn is_stale(&self, process: usize) -> bool {
        self.seats[process].process.lines.iter().any(|line| line.is_stale)
    }

    /// Everything that happened, a line each; empty unless it is kept.
    pub fn trace(&self) -> &[String] {
        self.stage.trace.0.as_deref().unwrap_or_default()
    }

    /// What must hold when something is sent, and did not.
    pub fn breaches(&self) -> &[String] {
        &self.stage.laws.breaches
    }

    /// What goes wrong by chance from now on.
    pub fn expect_faults(&mut self, faults: Faults) {
        self.stage.weather.faults = faults;
    }

    /// Nothing goes wrong from now on: who sleeps wakes, and who has ended comes back.
    pub fn clear_faults(&mut self) {
        self.stage.note(|| "faults end".to_owned());
        self.stage.weather.clear();
        let now = self.stage.moment();
        for seat in &mut self.seats {
            seat.process.asleep_until = seat.process.asleep_until.min(now);
            seat.back_at = seat.back_at.map(|at| at.min(now));
        }
    }

    /// The operator dies without a word, and its successor begins. Whatever it had asked of the cloud still happens; nobody
    /// hears the answer.
    pub fn restart(&mut self) {
        self.kill();
        self.revive();
    }

    /// The operator dies without a word.
    pub fn kill(&mut self) {
        self.end(0, "it is killed", None);
    }

    /// Its successor begins.
    pub fn revive(&mut self) {
        self.begin(0);
    }

    /// A process dies without a word, and comes back after a while.
    pub fn crash(&mut self, process: usize) {
        let absence_ms = self.stage.weather.absence_ms();
        let back_at = self.later(absence_ms);
        self.end(process, "it is killed", Some(back_at));
    }

    /// A process does nothing for a while, and does not notice.
    pub fn put_to_sleep(&mut self, process: usize, seconds: i64) {
        self.stage.note(|| format!("p{process} sleeps for {seconds} s"));
        self.seats[process].process.asleep_until = self.later(seconds * 1_000);
    }

    /// A process does not reach the API server for a while.
    pub fn cut_off(&mut self, process: usize, seconds: i64) {
        self.stage.note(|| format!("p{process} is cut off for {seconds} s"));
        let until = self.later(seconds * 1_000);
        self.stage.weather.cut_off(process, until);
    }

    /// The wall's clock of a process is set.
    pub fn set_clock(&mut self, process: usize, seconds: i64) {
        self.stage.note(|| format!("the clock of p{process} jumps {seconds} s"));
        let process = &mut self.seats[process].process;
        process.skew_ms += seconds * 1_000;
    }

    /// Somebody writes another name into the lease.
    pub fn steal_lease(&mut self) {
        let path = LEASES.path(LEASE.0, LEASE.1);
        let at = self.now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let spec = json!({"holderIdentity": "thief", "leaseDurationSeconds": 15, "renewTime": at, "acquireTime": at});
        let patch = json!({"spec": spec});
        let stolen = request(&self.stage.server, "PATCH", &path, "application/merge-patch+json", &patch);
        self.stage.note(|| format!("the lease is stolen: {}", stolen.is_ok()));
        // Its holder finds out when it renews it the next time, or may not go on without.
        self.stage.laws.stolen_until = Some(self.later(12_000));
    }

    /// The watches of a kind, by plural, are dead from now on, and nobody says so; new ones are begun in vain for so long.
    pub fn freeze(&mut self, plural: &str, seconds: i64) {
        self.stage.note(|| format!("{plural} freeze for {seconds} s"));
        let until = self.later(seconds * 1_000);
        self.stage.weather.freeze(plural, until);
        self.each_line(plural, crate::line::Line::deaden);
    }

    /// The watches of a kind break off.
    pub fn cut_watches(&mut self, plural: &str) {
        self.stage.note(|| format!("watches of {plural} break"));
        self.each_line(plural, crate::line::Line::cut);
    }

    /// The watches of a kind break off, and cannot go on from where they were.
    pub fn compact(&mut self, plural: &str) {
        self.stage.weather.compact(plural);
        self.cut_watches(plural);
    }

    /// The watches of a kind say once more what they said last.
    pub fn repeat_watches(&mut self, plural: &str) {
        self.stage.note(|| format!("watches of {plural} repeat themselves"));
        let now = self.stage.moment();
        self.each_line(plural, |line| line.repeat(now));
    }

    /// The next requests of a method whose path ends so are carried out, and something else is heard in place of their answers.
    pub fn lose_answers(&mut self, method: &'static str, path: &str, n_times: usize, heard: Heard) {
        self.stage.weather.lose(method, path, n_times, heard);
    }

    /// Writes to a path with this in it wait for somebody else's webhook, which does not answer.
    pub fn hang_webhook(&mut self, path: &str, seconds: i64) {
        self.stage.note(|| format!("a webhook hangs on {path} for {seconds} s"));
        let until = self.later(seconds * 1_000);
        self.stage.weather.hang_webhook(path, until);
    }

    /// Lets everybody do what is due now, without moving the clock.
    ///
    /// # Panics
    /// When there is no end of it, which is a defect of the operator's, or of this.
    pub fn settle(&mut self) {
        for _ in 0..STEPS_MAX {
            if !self.step() {
                return;
            }
        }
        let last = self.trace().iter().rev().take(20).rev().cloned().collect::<Vec<_>>();
        panic!("it never settles at {}:\n{}", self.now(), last.join("\n"));
    }

    /// Lets time pass.
    pub fn run_for(&mut self, seconds: i64) {
        let end = self.stage.clock.now() + SignedDuration::from_secs(seconds);
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
        let end = self.stage.clock.now() + SignedDuration::from_secs(seconds);
        loop {
            self.settle();
            if holds(self) {
                return;
            }
            assert!(self.advance(end), "waited {seconds} s in vain for: {what}; breaches: {:?}", self.breaches());
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
        self.orphans.retain_mut(|running| poll(running).is_pending());
        let now = self.stage.moment();
        let mut is_busy = false;
        for number in 0..self.seats.len() {
            let seat = &mut self.seats[number];
            if seat.is_down {
                if seat.back_at.is_some_and(|at| at <= now) {
                    self.begin(number);
                    is_busy = true;
                }
                continue;
            }
            match seat.process.step(&mut self.stage) {
                Turn::Quiet => {}
                Turn::Busy => is_busy = true,
                Turn::Ended(why) => {
                    let absence_ms = self.stage.weather.absence_ms();
                    let back_at = self.later(absence_ms);
                    self.end(number, &why, Some(back_at));
                    is_busy = true;
                }
            }
        }
        is_busy
    }

    /// Moves the clock to when something is due next. False when that is after the end.
    fn advance(&mut self, end: Timestamp) -> bool {
        let (now, moment) = (self.stage.clock.now(), self.stage.moment());
        if now >= end {
            return false;
        }
        let of_seats = self.seats.iter().filter_map(|seat| match seat.is_down {
            true => seat.back_at,
            false => seat.process.due(moment),
        });
        let wishes = self.plane.settle().into_iter().chain(of_seats.map(timestamp));
        let mut next = wishes.filter(|then| *then > now).min().unwrap_or(end);
        // The cloud does not say when it will be done.
        if !self.orphans.is_empty() || self.background.poll() > 0 {
            next = next.min(now + SignedDuration::from_millis(100));
        }
        self.stage.clock.advance_to(next.min(end));
        true
    }

    fn process(&mut self, number: usize) -> (Process, Arc<dyn CloudProvider>) {
        self.n_processes += 1;
        let cloud = match &self.setup.cloud {
            Some(cloud) => cloud(&self.plane),
            None => {
                // What waited in the process before it waits no longer.
                self.background = Background::default();
                let desk = Clerk { server: self.plane.server().clone(), background: self.background.clone() };
                let types = kerf_cloud::kwok::embedded();
                Arc::new(KwokCloud::new(Arc::new(desk), Arc::new(StageClock(self.stage.clock.clone())), types))
            }
        };
        let (options, metrics) = (self.setup.options.clone(), Process::metrics());
        let operator = match self.setup.duties {
            None => Operator::new(options, Arc::clone(&cloud), metrics),
            Some(duties) => Operator::with_duties(options, Arc::clone(&cloud), metrics, duties()),
        };
        let identity = self.setup.elects.then(|| format!("p{number}_{}", self.n_processes));
        let mut process = Process::new(number, operator, Arc::clone(&cloud), identity, self.stage.moment());
        process.look(&mut self.stage);
        (process, cloud)
    }

    fn end(&mut self, number: usize, why: &str, back_at: Option<Moment>) {
        self.stage.note(|| format!("p{number} ends: {why}"));
        let seat = &mut self.seats[number];
        (seat.is_down, seat.back_at) = (true, back_at);
        self.orphans.extend(seat.process.take_running());
    }

    fn begin(&mut self, number: usize) {
        self.stage.note(|| format!("p{number} begins"));
        let (process, cloud) = self.process(number);
        let seat = &mut self.seats[number];
        (seat.process, seat.cloud, seat.is_down, seat.back_at) = (process, cloud, false, None);
    }

    fn each_line(&mut self, plural: &str, change: impl FnMut(&mut crate::line::Line)) {
        let lines = self.seats.iter_mut().flat_map(|seat| &mut seat.process.lines);
        lines.filter(|line| line.plural() == plural).for_each(change);
    }

    fn later(&self, ms: i64) -> Moment {
        Moment(self.stage.moment().0 + ms)
    }
}

fn poll(running: &mut Running) -> Poll<()> {
    running.as_mut().poll(&mut Context::from_waker(Waker::noop())).map(drop)
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

fn timestamp(at: Moment) -> Timestamp {
    // A time between two milliseconds has passed when the later one has come.
    Timestamp::from_millisecond(at.0).unwrap_or(Timestamp::MAX)
}
