//! The operator: one owner of state, and its duties.

use crate::desk::Desk;
use crate::disruption::{self, Commands};
use crate::duty::Duty;
use crate::errand::{CloudCall, Errand, Outcome, Ticket};
use crate::events::Events;
use crate::gauges;
use crate::guard::guarded;
use crate::interruption::Interruption;
use crate::lifecycle::Lifecycle;
use crate::limits::{
    ANEW_WITHIN, CLOCK_SLACK, LIST_PAGES_MAX, RETRY_FIRST, RETRY_MOST, SWEEP_EVERY, SWEEP_PACE, SWEEP_PART,
};
use crate::metrics::runtime::Stopwatch;
use crate::metrics::{Metrics, families};
use crate::moment::after;
use crate::nominations::Nominations;
use crate::options::Options;
use crate::queue::earlier;
use crate::record::Record;
use crate::resource::{NODE_CLAIMS, WATCHED};
use crate::standstill::{self, Brake};
use crate::static_capacity;
use crate::stock::Stock;
use crate::supply::CloudSupply;
use crate::termination::{self, Evictions};
use crate::upkeep;
use crate::wake::Wake;
use crate::ward::Ward;
use crate::world::{Change, World};
use crate::write;
use crate::{buffers, chores, classes, early_binding, overlays, pools, provisioning, tagging};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kerf_cloud::CloudProvider;
use kerf_mirror::{Kind, Mirror, Object, ObjectKey};
use kerf_model::{Snapshot, UnixMillis};
use serde_json::Value;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Rounds without a quiet moment after which duties are taken to undo each other's work for ever.
const ROUNDS_MAX: usize = 1_000;

/// Who writes events; its errands need no answer.
pub(crate) const NARRATOR: &str = "events";
/// Who lists claims before anybody works.
const CATCHES_UP: &str = "operator";

pub struct Operator {
    world: World,
    options: Options,
    cloud: Arc<dyn CloudProvider>,
    metrics: Arc<Metrics>,
    stopwatch: Stopwatch,
    record: Record,
    stock: Stock,
    nominations: Nominations,
    evictions: Evictions,
    commands: Commands,
    brake: Brake,
    events: Events,
    n_events: u64,
    duties: Vec<Ward>,
    sweep: Sweep,
    busy: BTreeSet<Ticket>,
    changes: Vec<Change>,
    /// The duties have not seen what changed lately.
    has_stood_by: bool,
    ended: Vec<(Ticket, Outcome)>,
    last_worked: UnixMillis,
    /// Since when everything is to begin anew, because somebody has set the clock back; by the clock as it is now.
    begins_anew: Option<UnixMillis>,
    /// What is under way does not end: only another process can begin anew.
    must_restart: bool,
    /// Errands that take long, and whose answers make sense to a duty that does not remember why it asked.
    patient: BTreeSet<Ticket>,
    behind: Behind,
}

/// Another process may have made claims that our watch does not show yet. Who planned without them would buy for the same pods again.
#[derive(Debug, Default)]
enum Behind {
    #[default]
    No,
    /// All claims are to be listed, from this page on.
    Due {
        at: UnixMillis,
        /// Of the next page; empty for the first one.
        token: String,
        n_pages: usize,
        n_failures: u32,
    },
    Asked {
        n_pages: usize,
        n_failures: u32,
    },
}

/// What the operator wants done.
#[derive(Debug, Default)]
pub struct Batch {
    pub errands: Vec<(Ticket, Errand)>,
    /// When it wants to be asked again even if nothing happens.
    pub wish: Option<UnixMillis>,
}

/// Everything the operator takes care of, in the order in which it does.
pub fn duties(options: &Options) -> Vec<Box<dyn Duty>> {
    // Telling comes first, because a pod's promise is over once provisioning has seen it bound.
    let mut duties = gauges::duties(options);
    duties.push(Box::new(standstill::Tell::default()));
    let working: Vec<Box<dyn Duty>> = vec![
        Box::new(pools::Hash::default()),
        Box::new(pools::Validation::default()),
        Box::new(classes::Classes::default()),
        Box::new(pools::Readiness::default()),
        Box::new(pools::RegistrationHealth::default()),
        Box::new(pools::Counter::default()),
        Box::new(Lifecycle::default()),
        // Before those who plan and drain: what the cloud takes back should not wait for them.
        Box::new(Interruption::default()),
        Box::new(provisioning::Provisioning::default()),
        Box::new(disruption::Conditioning::default()),
        Box::new(disruption::Rounds::default()),
        Box::new(disruption::Execution::default()),
        Box::new(termination::NodeTermination::default()),
        // After all who drain.
        Box::new(termination::EvictionQueue::default()),
    ];
    duties.extend(upkeep::duties());
    duties.push(Box::new(tagging::Tagging::default()));
    duties.push(Box::new(chores::Chores::default()));
    duties.extend(working);
    // After all who may pull the brake.
    duties.push(Box::new(standstill::Check::default()));
    if options.gates.static_capacity {
        duties.push(Box::new(static_capacity::Provisioning::default()));
        duties.push(Box::new(static_capacity::Deprovisioning::default()));
    }
    if options.gates.node_overlay {
        duties.push(Box::new(overlays::Overlays::default()));
    }
    if options.gates.capacity_buffer {
        duties.push(Box::new(buffers::Buffers::default()));
    }
    // Without its gate it only takes down what it once put up.
    duties.push(Box::new(early_binding::EarlyBinding::default()));
    duties
}

impl Operator {
    pub fn new(options: Options, cloud: Arc<dyn CloudProvider>, metrics: Arc<Metrics>) -> Self {
        let duties = duties(&options);
        Self::with_duties(options, cloud, metrics, duties)
    }

    /// With these duties only: for tests of one of them.
    pub fn with_duties(
        options: Options,
        cloud: Arc<dyn CloudProvider>,
        metrics: Arc<Metrics>,
        duties: Vec<Box<dyn Duty>>,
    ) -> Self {
        let awaited = WATCHED.iter().map(|(kind, _)| *kind).chain([Kind::NodeClass]);
        Self {
            world: World::new(Mirror::new(options.mirror.clone()), awaited),
            options,
            cloud,
            metrics,
            stopwatch: Stopwatch::default(),
            record: Record::default(),
            stock: Stock::default(),
            nominations: Nominations::default(),
            evictions: Evictions::default(),
            commands: Commands::default(),
            brake: Brake::default(),
            events: Events::default(),
            n_events: 0,
            duties: duties.into_iter().map(Ward::new).collect(),
            sweep: Sweep::default(),
            busy: BTreeSet::new(),
            changes: Vec::new(),
            has_stood_by: false,
            ended: Vec::new(),
            last_worked: UnixMillis(i64::MIN),
            begins_anew: None,
            must_restart: false,
            patient: BTreeSet::new(),
            behind: Behind::No,
        }
    }

    pub fn world(&self) -> &World {
        &self.world
    }

    pub fn record(&self) -> &Record {
        &self.record
    }

    /// What a decision would be made from, now.
    pub fn snapshot(&self, now: UnixMillis) -> Snapshot {
        let supply = CloudSupply { cloud: &*self.cloud, shelves: &self.stock, now };
        self.world.mirror.snapshot(now, &supply)
    }

    /// What stands still now of what is done of our own will, and why, in words.
    pub fn standstills(&self) -> Vec<(String, String)> {
        let by_reason = standstill::by_reason(&standstill::all(&self.world, &self.options, &self.brake));
        by_reason.into_iter().map(|(why, what)| (what, why.to_string())).collect()
    }

    pub fn nominations(&self) -> &Nominations {
        &self.nominations
    }

    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Takes in what happened. Cheap; `work` does the rest.
    pub fn wake(&mut self, wake: Wake) {
        match wake {
            Wake::Observed(object) => self.observe(*object),
            Wake::Gone(key, version) => self.changes.extend(self.world.forget(&key, version)),
            Wake::Synced(kind) => {
                if self.world.synced(kind) {
                    self.changes.push(Change::Synced);
                }
            }
            Wake::Relisted { kind, class_kind, at, present } => {
                for key in self.world.absent(kind, class_kind.as_ref(), &present.into_iter().collect()) {
                    self.changes.extend(self.world.forget(&key, at));
                }
            }
            Wake::Unreadable { key, what, field, message } => {
                let why = if field.is_empty() { message } else { format!("{field}: {message}") };
                if key.is_none_or(|key| self.world.cannot_read(key, why.clone())) {
                    tracing::error!(object = what, error = why, "ignoring an object that cannot be read");
                }
            }
            Wake::Stale(kind, is_stale) => {
                self.world.set_stale(kind, is_stale);
            }
            Wake::Done(ticket, outcome) => {
                self.busy.remove(&ticket);
                if let Outcome::Api(Ok(value)) = &outcome
                    && let Ok(Ok(object)) = guarded(|| Object::read(value.clone()))
                    && is_still_there(object.metadata())
                {
                    self.observe(object);
                }
                if ticket.duty == NARRATOR {
                    self.events.ended();
                } else if ticket.duty == CATCHES_UP {
                    self.caught_up(outcome);
                } else {
                    self.ended.push((ticket, outcome));
                }
            }
        }
    }

    /// An object that cannot even be taken in is as good as one that cannot be read.
    fn observe(&mut self, object: Object) {
        let key = object.key();
        match guarded(|| self.world.observe(object)) {
            Ok(change) => self.changes.extend(change),
            Err(defect) => {
                self.metrics.add(&families::DEFECTS_TOTAL, &["world"], 1.0);
                tracing::error!(object = %key, error = %defect, "ignoring an object that cannot be taken in");
                self.world.cannot_read(key, defect.to_string());
            }
        }
    }

    /// Lets every duty do what is due.
    pub fn work(&mut self, now: UnixMillis) -> Batch {
        self.metrics.tell_time(now);
        if !self.is_ready_to_work(now) {
            return Batch { errands: Vec::new(), wish: self.begins_anew.map(|since| after(since, ANEW_WITHIN)) };
        }
        if self.has_stood_by
            && let Some(batch) = self.catch_up(now)
        {
            return batch;
        }
        if std::mem::take(&mut self.has_stood_by) {
            self.changes = self.world.everything();
        }
        let mut errands = Vec::new();
        let mut wish = None;
        self.changes.extend(self.sweep.part(&self.world, now));
        for _ in 0..ROUNDS_MAX {
            let changes = std::mem::take(&mut self.changes);
            let ended = std::mem::take(&mut self.ended);
            for duty in &mut self.duties {
                for change in &changes {
                    duty.observe(change, &self.world);
                }
            }
            let mut desk = Desk {
                now,
                world: &self.world,
                options: &self.options,
                cloud: &self.cloud,
                metrics: &self.metrics,
                record: &mut self.record,
                stock: &mut self.stock,
                nominations: &mut self.nominations,
                evictions: &mut self.evictions,
                commands: &mut self.commands,
                brake: &mut self.brake,
                duty: "",
                busy: &mut self.busy,
                errands: &mut errands,
                events: &mut self.events,
            };
            for (ticket, outcome) in ended {
                self.patient.remove(&ticket);
                if let Some(duty) = self.duties.iter_mut().find(|duty| duty.name() == ticket.duty) {
                    self.stopwatch.ended(&ticket, &outcome, now, &self.metrics, self.cloud.name());
                    desk.duty = duty.name();
                    duty.done(&ticket.key, outcome, &changes, &mut desk);
                }
            }
            wish = None;
            for duty in &mut self.duties {
                desk.duty = duty.name();
                wish = earlier(wish, duty.work(&changes, &mut desk));
            }
            if wish.is_none_or(|wish| wish > now) {
                break;
            }
        }
        if self.replace_worn() {
            wish = Some(now);
        }
        for (ticket, errand) in &errands {
            if matches!(errand, Errand::Cloud(call) if call.is_listening() || matches!(call, CloudCall::RunChore { .. }))
            {
                self.patient.insert(ticket.clone());
            }
            self.stopwatch.began(ticket, errand, now, &self.metrics);
        }
        for call in self.events.take() {
            self.n_events += 1;
            let ticket = Ticket { duty: NARRATOR, key: self.n_events.to_string().into() };
            errands.push((ticket, Errand::Api(call)));
        }
        let n_untold = self.events.take_untold();
        if n_untold > 0 {
            self.metrics.add(&families::EVENTS_UNTOLD_TOTAL, &[], n_untold as f64);
            tracing::warn!(n_untold, "the API server takes events too slowly; some are left untold for now");
        }
        Batch { errands, wish: earlier(wish, self.sweep.next_at) }
    }

    /// Whoever waits for a time would wait for that much longer when the clock was set back. Then all duties begin anew, as after a
    /// restart, which they can at any time, as soon as what is under way has ended.
    fn is_ready_to_work(&mut self, now: UnixMillis) -> bool {
        let before = std::mem::replace(&mut self.last_worked, now);
        if after(now, CLOCK_SLACK) < before {
            let ms = before.0.saturating_sub(now.0);
            tracing::warn!(ms, "the clock was set back: everything begins anew when what is under way has ended");
            self.begins_anew = Some(now);
        }
        let Some(since) = self.begins_anew else { return true };
        self.ended.retain(|(ticket, _)| self.patient.contains(ticket));
        if self.busy.iter().any(|ticket| !self.patient.contains(ticket)) {
            // A call to the cloud may take ten minutes, and evictions queue: nobody who loses a machine can wait for that.
            self.must_restart = now >= after(since, ANEW_WITHIN);
            return false;
        }
        let mut fresh = duties(&self.options);
        for ward in &mut self.duties {
            if let Some(nth) = fresh.iter().position(|duty| duty.name() == ward.name()) {
                *ward = Ward::new(fresh.swap_remove(nth));
            }
        }
        (self.stopwatch, self.stock, self.nominations) = Default::default();
        (self.evictions, self.commands, self.brake) = Default::default();
        self.events.forget();
        self.sweep = Sweep::default();
        self.begins_anew = None;
        self.stand_by();
        true
    }

    /// The request that is to be answered before it works; none when there is nothing to ask.
    fn catch_up(&mut self, now: UnixMillis) -> Option<Batch> {
        match std::mem::take(&mut self.behind) {
            Behind::No => None,
            asked @ Behind::Asked { .. } => {
                self.behind = asked;
                Some(Batch::default())
            }
            Behind::Due { at, token, n_pages, n_failures } if at > now => {
                self.behind = Behind::Due { at, token, n_pages, n_failures };
                Some(Batch { errands: Vec::new(), wish: Some(at) })
            }
            Behind::Due { token, n_pages, n_failures, .. } => {
                let ticket = Ticket { duty: CATCHES_UP, key: "claims".into() };
                let call = write::get(NODE_CLAIMS.page(&token));
                self.behind = Behind::Asked { n_pages, n_failures };
                Some(Batch { errands: vec![(ticket, Errand::Api(call))], wish: None })
            }
        }
    }

    fn caught_up(&mut self, outcome: Outcome) {
        let Behind::Asked { n_pages, n_failures } = self.behind else { return };
        self.behind = Behind::No;
        let mut list = match outcome {
            Outcome::Api(Ok(list)) => list,
            outcome => {
                let wait = RETRY_FIRST.saturating_mul(1 << n_failures.min(10)).min(RETRY_MOST);
                tracing::error!(?outcome, again_after = ?wait, "cannot list nodeclaims before leading");
                // From the beginning: a list whose first page has been forgotten is not gone on with, however long one asks.
                let at = after(self.last_worked, wait);
                self.behind = Behind::Due { at, token: String::new(), n_pages: 0, n_failures: n_failures + 1 };
                return;
            }
        };
        let next = list.pointer("/metadata/continue").and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) {
            for mut item in items {
                let Some(object) = item.as_object_mut() else { continue };
                object.insert("apiVersion".to_owned(), NODE_CLAIMS.api_version().into());
                object.insert("kind".to_owned(), NODE_CLAIMS.kind.into());
                // Of what cannot be read, the watch tells.
                if let Ok(Ok(object)) = guarded(|| Object::read(item)) {
                    self.observe(object);
                }
            }
        }
        if !next.is_empty() && n_pages < LIST_PAGES_MAX {
            self.behind = Behind::Due { at: self.last_worked, token: next, n_pages: n_pages + 1, n_failures: 0 };
        }
    }

    /// Duties that do not get over what they remember begin anew, as after a restart, when nothing of theirs is under way.
    /// Answers whether one did.
    fn replace_worn(&mut self) -> bool {
        let mut has_replaced = false;
        for worn in self.duties.iter_mut().filter(|duty| duty.is_worn()) {
            let name = worn.name();
            if self.busy.iter().any(|ticket| ticket.duty == name) {
                continue;
            }
            worn.replace(duties(&self.options).into_iter().find(|duty| duty.name() == name));
            has_replaced = true;
        }
        has_replaced
    }

    /// Somebody else leads. Duties that mark what to look at and never look would mark for ever: they see nothing, and all there is
    /// once they are to work.
    pub fn stand_by(&mut self) {
        self.changes.clear();
        self.has_stood_by = true;
        self.behind = Behind::Due { at: UnixMillis(i64::MIN), token: String::new(), n_pages: 0, n_failures: 0 };
    }

    /// Whether its process should end now and be started again.
    pub fn must_restart(&self) -> bool {
        self.must_restart
    }

    /// Errands that have not ended.
    pub fn n_busy(&self) -> usize {
        self.busy.len()
    }
}

/// Known objects are looked at again from time to time, part by part, whether or not something woke anybody.
#[derive(Debug, Default)]
struct Sweep {
    left: VecDeque<ObjectKey>,
    /// When the last one began.
    began: UnixMillis,
    /// None before everything has been seen once.
    next_at: Option<UnixMillis>,
}

impl Sweep {
    /// The next part, as changes into what is.
    fn part(&mut self, world: &World, now: UnixMillis) -> Vec<Change> {
        match self.next_at {
            // Just now everything is seen for the first time.
            None if world.is_synced() => self.next_at = Some(after(now, SWEEP_EVERY)),
            Some(next) if next <= now => {
                if self.left.is_empty() {
                    (self.left, self.began) = (world.keys_of_moment().into(), now);
                }
                let n_part = self.left.len().min(SWEEP_PART);
                let part = self.left.drain(..n_part).filter_map(|key| world.as_change(&key)).collect();
                let then = if self.left.is_empty() { after(self.began, SWEEP_EVERY) } else { now };
                self.next_at = Some(then.max(after(now, SWEEP_PACE)));
                return part;
            }
            _ => {}
        }
        Vec::new()
    }
}

/// Whether the object of an answer exists: one that is deleted and held by nobody was given back for the last time.
fn is_still_there(metadata: &ObjectMeta) -> bool {
    let is_held = metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
    metadata.resource_version.is_some() && (metadata.deletion_timestamp.is_none() || is_held)
}
