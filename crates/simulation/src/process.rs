//! One process of the operator: its watchers, its lease, its errands, and the operator itself, stepped by hand.
//!
//! ```text
//! lines (a watcher per kind) ── Wake ─▶ operator ── errands ─▶ journeys (a trip each) ─▶ API server, cloud ─┐
//!                                          ▲                        ▲ may it leave?                        │
//!                                          │                     keeper (the lease)                        │
//!                                          └──────────────────── Wake::Done ◀──────────────────────────────┘
//! ```
//!
//! It is what [`kerf_controllers::shell`] does with a runtime and a network: the same watchers, lease and trips.

use crate::faults::{CloudFate, Fate, broken};
use crate::laws::{LEASE, words};
use crate::line::Line;
use crate::stage::Stage;
use kerf_cloud::{CloudError, CloudProvider};
use kerf_controllers::dispatch::{Pass, Refused, Trip};
use kerf_controllers::errand::{ask, think};
use kerf_controllers::lease::{self, Lease, Mandate, Timings};
use kerf_controllers::limits::STALE_AFTER;
use kerf_controllers::metrics::Metrics;
use kerf_controllers::moment::Moment;
use kerf_controllers::watcher::{Siblings, Watcher, sources};
use kerf_controllers::{ApiCall, ApiFailure, CloudAnswer, Errand, Operator, Outcome, Ticket, Wake};
use kerf_mirror::Kind;
use kerf_model::UnixMillis;
use serde_json::Value;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(crate) type Running = kerf_cloud::Answer<CloudAnswer>;

pub(crate) struct Process {
    pub(crate) number: usize,
    pub(crate) operator: Operator,
    pub(crate) lines: Vec<Line>,
    cloud: Arc<dyn CloudProvider>,
    keeper: Option<Keeper>,
    mandate: Arc<Mandate>,
    journeys: Vec<Journey>,
    wish: Option<Moment>,
    leads: bool,
    /// The machine under it stands still: nothing is done, and nothing is noticed.
    pub(crate) asleep_until: Moment,
    /// How far the wall's clock is off.
    pub(crate) skew_ms: i64,
}

/// What came of a step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Quiet,
    Busy,
    /// The process is no more.
    Ended(String),
}

/// One errand under way.
struct Journey {
    ticket: Ticket,
    trip: Trip,
    errand: Errand,
    at: At,
}

enum At {
    /// Sent at once, or again then.
    Waits(Moment),
    /// On its way to the server.
    There { arrives: Moment, back_ms: i64, by: Moment },
    /// The answer is on its way.
    Back { arrives: Moment, by: Moment, answer: Result<Value, Refused> },
    /// Nobody will answer.
    Lost { by: Moment },
    /// The cloud has it.
    Cloud { by: Moment, is_listening: bool, future: Running },
}

struct Keeper {
    lease: Lease,
    answer: Option<(Moment, Result<Value, ApiFailure>)>,
    until: Option<Moment>,
}

impl Process {
    pub(crate) fn new(
        number: usize,
        operator: Operator,
        cloud: Arc<dyn CloudProvider>,
        identity: Option<String>,
        now: Moment,
    ) -> Self {
        let sources = sources(&*cloud, &[]);
        let classes = Siblings::new(sources.iter().filter(|source| source.kind == Kind::NodeClass).count());
        let watcher = |source: kerf_controllers::watcher::Source| {
            let siblings = if source.kind == Kind::NodeClass { Arc::clone(&classes) } else { Siblings::new(1) };
            Line::new(Watcher::new(source, siblings, STALE_AFTER, now))
        };
        let lease = identity.map(|identity| Lease::new(LEASE.0, LEASE.1, &identity, Timings::default()));
        let mandate = lease.as_ref().map_or_else(Mandate::open, |lease| Arc::clone(lease.mandate()));
        Self {
            number,
            operator,
            lines: sources.into_iter().map(watcher).collect(),
            cloud,
            leads: lease.is_none(),
            keeper: lease.map(|lease| Keeper { lease, answer: None, until: None }),
            mandate,
            journeys: Vec::new(),
            // It has everything to look at, even if nothing changes.
            wish: Some(Moment(i64::MIN)),
            asleep_until: Moment(i64::MIN),
            skew_ms: 0,
        }
    }

    pub(crate) fn metrics() -> Arc<Metrics> {
        Arc::new(Metrics::default())
    }

    pub(crate) fn leads(&self) -> bool {
        self.leads
    }

    pub(crate) fn identity(&self) -> Option<&str> {
        self.keeper.as_ref().map(|keeper| keeper.lease.identity())
    }

    /// What it had asked of the cloud; the cloud does it all the same.
    pub(crate) fn take_running(&mut self) -> Vec<Running> {
        let running = std::mem::take(&mut self.journeys).into_iter().filter_map(|journey| match journey.at {
            At::Cloud { future, .. } => Some(future),
            _ => None,
        });
        running.collect()
    }

    /// Hears of everything that is there, before anything is done.
    pub(crate) fn look(&mut self, stage: &mut Stage) {
        self.follow(stage);
    }

    /// Does one round of what is due.
    pub(crate) fn step(&mut self, stage: &mut Stage) -> Turn {
        let now = stage.moment();
        if self.asleep_until > now {
            return Turn::Quiet;
        }
        let mut is_news = match self.travel(stage, now) {
            Ok(is_news) => is_news,
            Err(why) => return Turn::Ended(why),
        };
        is_news |= self.follow(stage);
        let is_due = is_news || self.wish.is_some_and(|wish| wish <= now);
        if is_due && let Err(why) = self.work(stage, now) {
            return Turn::Ended(why);
        }
        // The lease last: who wakes may decide and send before it hears that it leads no longer.
        match self.keep(stage, now) {
            Ok(is_new) if is_due || is_new => Turn::Busy,
            Ok(_) => Turn::Quiet,
            Err(why) => Turn::Ended(why),
        }
    }

    /// Lets the operator work, and sends what it orders. An error when the process has ended.
    fn work(&mut self, stage: &mut Stage, now: Moment) -> Result<(), String> {
        if !self.leads {
            self.operator.stand_by();
            self.wish = None;
            return Ok(());
        }
        let wall = self.wall(now);
        let batch = self.operator.work(wall);
        if self.operator.must_restart() {
            return Err("its clock was set back while much was under way".to_owned());
        }
        // A wish is kept as a wait: whoever sets the clock does not shorten it.
        self.wish = batch.wish.map(|wish| Moment(now.0.saturating_add(wish.0.saturating_sub(wall.0))));
        for (ticket, errand) in batch.errands {
            let trip = Trip::of(&ticket, &errand, Pass::of(&self.mandate));
            let mut journey = Journey { ticket, trip, errand, at: At::Waits(now) };
            match self.go(&mut journey, stage, now)? {
                Some(outcome) => self.operator.wake(Wake::Done(journey.ticket, outcome)),
                None => self.journeys.push(journey),
            }
            self.wish = Some(now);
        }
        Ok(())
    }

    /// When it wants to be stepped again although nothing happens elsewhere.
    pub(crate) fn due(&self, now: Moment) -> Option<Moment> {
        let lines = self.lines.iter().flat_map(Line::due);
        let keeper = self.keeper.iter().flat_map(|keeper| {
            let answer = keeper.answer.as_ref().map(|(at, _)| *at);
            answer.into_iter().chain(keeper.until)
        });
        let journeys = self.journeys.iter().map(|journey| match &journey.at {
            At::Waits(at) => *at,
            At::There { arrives, by, .. } | At::Back { arrives, by, .. } => *arrives.min(by),
            At::Lost { by } => *by,
            // The cloud does not say when it will answer, and who listens is not in a hurry.
            At::Cloud { by, is_listening, .. } => {
                (*by).min(now.after(Duration::from_millis(if *is_listening { 1_000 } else { 100 })))
            }
        });
        // Who sleeps has much to do when it wakes.
        let all = lines.chain(keeper).chain(journeys).chain(self.wish).map(|then| then.max(self.asleep_until));
        all.filter(|then| *then > now).min()
    }

    fn wall(&self, now: Moment) -> UnixMillis {
        UnixMillis(now.0 + self.skew_ms)
    }

    fn follow(&mut self, stage: &mut Stage) -> bool {
        let Self { number, operator, lines, .. } = self;
        let mut is_news = false;
        for line in lines {
            is_news |= line.follow(*number, stage, &mut |wake| operator.wake(wake));
        }
        is_news
    }

    /// Takes errands a step further. Answers whether any has ended; an error when the process has.
    fn travel(&mut self, stage: &mut Stage, now: Moment) -> Result<bool, String> {
        let mut has_ended = false;
        for mut journey in std::mem::take(&mut self.journeys) {
            match self.go(&mut journey, stage, now) {
                Ok(Some(outcome)) => {
                    has_ended = true;
                    self.operator.wake(Wake::Done(journey.ticket, outcome));
                }
                Ok(None) => self.journeys.push(journey),
                Err(why) => return Err(why),
            }
        }
        Ok(has_ended)
    }

    /// Takes one errand as far as it goes now.
    fn go(&mut self, journey: &mut Journey, stage: &mut Stage, now: Moment) -> Result<Option<Outcome>, String> {
        loop {
            match &mut journey.at {
                At::Waits(at) if *at > now => return Ok(None),
                At::Waits(_) => {
                    if let Some(outcome) = self.send(journey, stage, now)? {
                        return Ok(Some(outcome));
                    }
                    // The cloud is looked at in the next round.
                    if matches!(journey.at, At::Cloud { .. }) {
                        return Ok(None);
                    }
                }
                At::There { arrives, .. } if *arrives > now => return Ok(None),
                At::There { back_ms, by, .. } => {
                    let (arrives, by) = (Moment(now.0 + *back_ms), *by);
                    let Errand::Api(call) = &journey.errand else { return Ok(None) };
                    let answer = stage.handle(self.number, call).map_err(Refused::from);
                    journey.at = At::Back { arrives, by, answer };
                }
                At::Back { arrives, by, .. } if *arrives > now => {
                    return Ok((*by <= now).then(|| journey.trip.lost()));
                }
                At::Back { .. } => {
                    let At::Back { answer, .. } = std::mem::replace(&mut journey.at, At::Waits(now)) else {
                        return Ok(None);
                    };
                    let refused = match answer {
                        Ok(value) => return Ok(Some(Outcome::Api(Ok(value)))),
                        Err(refused) => refused,
                    };
                    match journey.trip.judge(now, &refused) {
                        Some(then) => journey.at = At::Waits(then),
                        None => return Ok(Some(Outcome::Api(Err(refused.failure)))),
                    }
                }
                At::Lost { by } => return Ok((*by <= now).then(|| journey.trip.lost())),
                At::Cloud { by, future, .. } => {
                    let answer = match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                        Poll::Ready(answer) => answer,
                        Poll::Pending => return Ok((*by <= now).then(|| journey.trip.lost())),
                    };
                    return self.cloud_answered(journey, answer, stage).map(Some);
                }
            }
        }
    }

    /// It is its turn. None when it is under way.
    fn send(&mut self, journey: &mut Journey, stage: &mut Stage, now: Moment) -> Result<Option<Outcome>, String> {
        let by = match journey.trip.leaves(now) {
            Ok(by) => by,
            Err(outcome) => {
                stage.note(|| format!("p{} does not send: {}", self.number, words(&journey.errand)));
                return Ok(Some(outcome));
            }
        };
        stage.laws.sent(&stage.server, now, self.identity(), &journey.errand);
        let errand = journey.errand.clone();
        let call = match errand {
            Errand::Think(thought) => return Ok(Some(think(thought))),
            Errand::Cloud(call) => {
                stage.note(|| format!("p{} cloud: {}", self.number, words(&journey.errand)));
                let is_listening = call.is_listening();
                journey.at = At::Cloud { by, is_listening, future: ask(&*self.cloud, call) };
                return Ok(None);
            }
            Errand::Api(call) => call,
        };
        stage.n_calls += 1;
        let broke = || Err(Refused::from(broken()));
        let fate = stage.weather.of_call(self.number, &call, now);
        if !matches!(fate, Fate::Arrives { there_ms: 0, back_ms: 0 }) {
            stage.note(|| format!("p{} {} {}: {fate:?}", self.number, call.method, call.path));
        }
        journey.at = match fate {
            Fate::Arrives { there_ms, back_ms } => At::There { arrives: Moment(now.0 + there_ms), back_ms, by },
            Fate::Unsent { is_silent: true } => At::Lost { by },
            Fate::Unsent { is_silent: false } => At::Back { arrives: now, by, answer: broke() },
            Fate::Lost(heard) => {
                // Whatever came of it, nobody hears.
                let _ = stage.handle(self.number, &call);
                match heard.answer() {
                    None => At::Lost { by },
                    Some(failure) => At::Back { arrives: now, by, answer: Err(Refused::from(failure)) },
                }
            }
            Fate::Refused { back_ms, refused } => {
                At::Back { arrives: Moment(now.0 + back_ms), by, answer: Err(refused) }
            }
            Fate::Stops { is_sent } => {
                if is_sent {
                    // As above.
                    let _ = stage.handle(self.number, &call);
                }
                let when = if is_sent { "after" } else { "before" };
                return Err(format!("it stops {when} {} {}", call.method, call.path));
            }
        };
        Ok(None)
    }

    fn cloud_answered(
        &self,
        journey: &Journey,
        answer: Result<CloudAnswer, CloudError>,
        stage: &mut Stage,
    ) -> Result<Outcome, String> {
        let what = words(&journey.errand);
        let fate = stage.weather.of_cloud_call();
        stage.note(|| {
            let came = match &answer {
                Ok(CloudAnswer::Launched(instance)) => instance.provider_id.to_string(),
                Ok(_) => "done".to_owned(),
                Err(error) => error.to_string(),
            };
            format!("p{} cloud: {what} -> {came} {fate:?}", self.number)
        });
        match fate {
            CloudFate::Arrives => Ok(Outcome::Cloud(answer)),
            CloudFate::Lost => Ok(Outcome::Cloud(Err(CloudError::Other {
                message: "connection reset by peer; what was asked may be done".into(),
            }))),
            CloudFate::Stops => Err(format!("it stops when the cloud has answered: {what}")),
        }
    }

    /// Keeps the lease. Answers whether it leads anew; an error when the lease is lost.
    fn keep(&mut self, stage: &mut Stage, now: Moment) -> Result<bool, String> {
        let wall = self.wall(now);
        let number = self.number;
        let Some(keeper) = &mut self.keeper else { return Ok(false) };
        let mut news = match keeper.until {
            None => lease::News::None,
            Some(until) => match keeper.answer.take_if(|(at, _)| *at <= now) {
                Some((_, answer)) => lease::News::Answer(answer),
                None if until <= now => lease::News::Silence,
                None => return Ok(false),
            },
        };
        let mut is_new = false;
        loop {
            match keeper.lease.step(now, wall, std::mem::replace(&mut news, lease::News::None)) {
                lease::Do::Ask(call) => keeper.answer = ask_for_lease(number, &call, stage, now),
                lease::Do::Wait(until) => {
                    keeper.until = Some(until);
                    match keeper.answer.take_if(|(at, _)| *at <= now) {
                        Some((_, answer)) => news = lease::News::Answer(answer),
                        None => return Ok(is_new),
                    }
                }
                lease::Do::Leads => {
                    stage.note(|| format!("p{number} leads"));
                    (self.leads, is_new) = (true, true);
                    // It has everything to look at.
                    self.wish = Some(Moment(i64::MIN));
                }
                lease::Do::Lost { why } => return Err(why),
                lease::Do::StandsBy { .. } | lease::Do::Troubled { .. } | lease::Do::GivenBack { .. } => {}
            }
        }
    }
}

/// None when nobody will answer.
fn ask_for_lease(
    process: usize,
    call: &ApiCall,
    stage: &mut Stage,
    now: Moment,
) -> Option<(Moment, Result<Value, ApiFailure>)> {
    let (back_ms, answer) = match stage.weather.of_call(process, call, now) {
        Fate::Arrives { there_ms, back_ms } => (there_ms + back_ms, stage.handle(process, call)),
        Fate::Lost(heard) => {
            // Whatever came of it, nobody hears.
            let _ = stage.handle(process, call);
            (0, Err(heard.answer()?))
        }
        Fate::Unsent { is_silent: true } => return None,
        // When a process ends is its errands' business.
        Fate::Unsent { is_silent: false } | Fate::Stops { .. } => (0, Err(broken())),
        Fate::Refused { back_ms, refused } => (back_ms, Err(refused.failure)),
    };
    Some((Moment(now.0 + back_ms), answer))
}
