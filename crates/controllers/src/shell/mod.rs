//! The shell: runs an operator on a real clock, against an API server.
//!
//! ```text
//!              one task per kind                         one thread
//! API server ──▶ watch ──▶ Wake ──▶ bounded inbox ──▶ seat: Operator::wake, …, work
//!     ▲                                 ▲                     │ errands
//!     └───────── caller (rate, slots) ──┴── Wake::Done ◀──────┘ tasks: API, cloud, thoughts
//!                lease: who may work         health: who is still waited for       pages: /metrics, /readyz, …
//! ```
//!
//! Here is everything that waits, fails and depends on the world; what is decided, and from what, is not here. The inbox has a
//! size: when the operator is busy, the watches read more slowly, and nothing piles up.

mod bucket;
mod caller;
mod client;
mod clock;
mod credentials;
mod errands;
mod health;
mod lease;
mod pages;
mod seat;
mod watch;

pub use crate::dispatch::Trouble;
pub use crate::lease::Timings;
pub use crate::watcher::escaped;
pub use bucket::Bucket;
pub use caller::{Caller, Limits, agent};
pub use client::{Unusable, client, proxy};
pub use clock::{Clock, WallClock};
pub use health::Health;
pub use lease::{Election, host, identity, secret};
pub use pages::{Bounds, Kept, Page, Pages, Reply, Request as PageRequest, serve};

use crate::lease::Mandate;
use crate::limits::{GRACE, INBOX_MAX};
use crate::metrics::Metrics;
use crate::metrics::families::LEADER_ELECTION_MASTER_STATUS;
use crate::operator::Operator;
use crate::watcher::{Siblings, Source, Watcher, sources};
use clock::Timeline;
use errands::Errands;
use kerf_cloud::CloudProvider;
use kerf_mirror::Kind;
use seat::Message;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// What is run, and how.
pub struct Setup {
    pub operator: Operator,
    pub cloud: Arc<dyn CloudProvider>,
    pub clock: Arc<dyn Clock>,
    /// For watches and errands.
    pub caller: Caller,
    /// Without one the operator leads at once.
    pub election: Option<Election>,
    /// Whether it watches before it leads.
    pub warms_up: bool,
    /// Kinds of which nothing is wanted: the feature that reads them is off.
    pub unwanted: Vec<Kind>,
    /// After so long without a word about a kind, what is known of it is not trusted: see [`crate::watcher`].
    pub stale_after: Duration,
}

/// An operator at work. `run` to let it.
pub struct Shell {
    handle: Handle,
    caller: Caller,
    sources: Vec<Source>,
    election: Option<Election>,
    warms_up: bool,
    stale_after: Duration,
    timeline: Timeline,
    seat_ended: oneshot::Receiver<()>,
    errands_ended: mpsc::Receiver<()>,
}

/// Asks the operator something while it works. Clones ask the same one.
#[derive(Clone)]
pub struct Handle {
    inbox: mpsc::Sender<Message>,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
}

/// Why the operator stopped although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    #[error("leader election lost: {why}; ending, so that the new leader works alone")]
    NotLeading { why: String },
    #[error("the operator's thread has ended; the log says why")]
    Broken,
    #[error("cannot start a thread for the operator")]
    NoThread(#[source] std::io::Error),
}

impl Shell {
    /// Seats the operator on a thread of its own. It does nothing before `run`. Needs a tokio runtime around it.
    pub fn new(setup: Setup) -> Result<Self, Stopped> {
        let (inbox, messages) = mpsc::channel(INBOX_MAX);
        let handle = Handle {
            inbox,
            health: Arc::new(Health::default()),
            metrics: Arc::clone(setup.operator.metrics()),
            clock: Arc::clone(&setup.clock),
        };
        handle.metrics.attach("watches", Arc::clone(&handle.health) as Arc<dyn crate::metrics::Source>);
        let timeline = Timeline::begin();
        let mandate = setup.election.as_ref().map_or_else(|| (Mandate::open(), timeline), Election::mandate);
        let sources = sources(&*setup.cloud, &setup.unwanted);
        let (alive, errands_ended) = mpsc::channel(1);
        let errands = Errands::new(setup.caller.clone(), setup.cloud, mandate, handle.inbox.downgrade(), alive);
        let (ended, seat_ended) = oneshot::channel();
        let seat = seat::Seat::new(setup.operator, Arc::clone(&handle.health), setup.clock, errands, messages);
        std::thread::Builder::new()
            .name("operator".to_owned())
            .spawn(move || {
                seat.sit();
                drop(ended);
            })
            .map_err(Stopped::NoThread)?;
        for kind in setup.unwanted {
            // The inbox is empty and large: there is room.
            let _ = handle.inbox.try_send(Message::Wake(crate::Wake::Synced(kind)));
        }
        Ok(Self {
            handle,
            caller: setup.caller,
            sources,
            election: setup.election,
            warms_up: setup.warms_up,
            stale_after: setup.stale_after,
            timeline,
            seat_ended,
            errands_ended,
        })
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Works until `stop` ends, then lets what was begun come to its end, and gives the lease back.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), Stopped> {
        tokio::pin!(stop);
        let mut watches = JoinSet::new();
        let mut sources = std::mem::take(&mut self.sources);
        if self.warms_up || self.election.is_none() {
            self.watch(&mut watches, std::mem::take(&mut sources));
        } else {
            watches.spawn(health::find_kinds(self.caller.clone(), Arc::clone(&self.handle.health)));
        }
        let mut election = self.election.take();
        if let Some(election) = &mut election {
            self.handle.metrics.set(&LEADER_ELECTION_MASTER_STATUS, &[election.name()], 0.0);
            // Biased: who is asked to stop does not begin to lead.
            tokio::select! {
                biased;
                () = &mut stop => {
                    self.finish().await;
                    return Ok(());
                }
                _ = &mut self.seat_ended => return Err(Stopped::Broken),
                () = election.acquire() => {}
            }
            self.handle.metrics.set(&LEADER_ELECTION_MASTER_STATUS, &[election.name()], 1.0);
        }
        self.watch(&mut watches, sources);
        self.handle.say(Message::Lead).await;
        let outcome = {
            let keep = keep(election.as_mut());
            tokio::pin!(keep);
            // Biased: a lost lease ends the process even when it is asked to stop at the same moment.
            tokio::select! {
                biased;
                why = &mut keep => Err(Stopped::NotLeading { why }),
                _ = &mut self.seat_ended => Err(Stopped::Broken),
                () = &mut stop => {
                    // The lease is kept while errands end: a successor must not do them a second time.
                    tokio::select! {
                        biased;
                        why = &mut keep => Err(Stopped::NotLeading { why }),
                        has_ended = self.finish() => Ok(has_ended),
                    }
                }
            }
        };
        watches.shutdown().await;
        // What is still under way may go on at its other end: then a successor waits for as long as for one that died.
        let has_ended = outcome?;
        if has_ended && let Some(election) = &mut election {
            election.release().await;
        }
        Ok(())
    }

    fn watch(&self, watches: &mut JoinSet<()>, sources: Vec<Source>) {
        let n_classes = sources.iter().filter(|source| source.kind == Kind::NodeClass).count();
        let classes = Siblings::new(n_classes);
        for source in sources {
            let siblings = if source.kind == Kind::NodeClass { Arc::clone(&classes) } else { Siblings::new(1) };
            let follower = watch::Follower {
                watcher: Watcher::new(source, siblings, self.stale_after, self.timeline.now()),
                client: self.caller.client().clone(),
                inbox: self.handle.inbox.clone(),
                health: Arc::clone(&self.handle.health),
                timeline: self.timeline,
            };
            watches.spawn(follower.follow());
        }
    }

    /// No new decisions; what is under way may end. Answers whether it has.
    async fn finish(&mut self) -> bool {
        tracing::info!("stopping: waiting for what is under way");
        let under_way = async {
            self.handle.say(Message::Rest).await;
            // Every errand holds a sender of this channel, and so does the seat until it rests: it closes with the last of them.
            self.errands_ended.recv().await
        };
        let has_ended = tokio::time::timeout(GRACE, under_way).await.is_ok();
        if !has_ended {
            tracing::warn!(seconds = GRACE.as_secs(), "stopping although errands are still under way");
        }
        has_ended
    }
}

impl Handle {
    /// Lets `look` see the operator between two moments of its work. None when it works no more.
    pub async fn look<T: Send + 'static>(&self, look: impl FnOnce(&Operator) -> T + Send + 'static) -> Option<T> {
        let (to, answer) = oneshot::channel();
        let message = Message::Look(Box::new(move |operator| {
            // Whoever asked may have gone away meanwhile.
            let _ = to.send(look(operator));
        }));
        self.inbox.send(message).await.ok()?;
        answer.await.ok()
    }

    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The operator's time.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    async fn say(&self, message: Message) {
        // When the seat is empty, `seat_ended` tells.
        let _ = self.inbox.send(message).await;
    }
}

async fn keep(election: Option<&mut Election>) -> String {
    match election {
        Some(election) => election.keep().await,
        None => std::future::pending().await,
    }
}
