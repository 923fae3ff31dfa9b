//! Runs errands on the runtime, and brings back how they ended. What becomes of one, [`crate::dispatch`] knows.

use super::caller::Caller;
use super::clock::Timeline;
use super::seat::Message;
use crate::dispatch::{Pass, Trip};
use crate::errand::{CloudCall, Errand, Outcome, Ticket, ask, think};
use crate::guard::Guarded;
use crate::lease::Mandate;
use crate::operator::NARRATOR;
use crate::wake::Wake;
use kerf_cloud::{CloudError, CloudProvider};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

pub(super) struct Errands {
    runtime: Handle,
    caller: Caller,
    cloud: Arc<dyn CloudProvider>,
    /// Whether it may act, and the clock that this is counted on.
    mandate: Arc<Mandate>,
    timeline: Timeline,
    /// Weak: the seat that holds these errands must be able to notice that nobody else talks to it any more.
    inbox: mpsc::WeakSender<Message>,
    /// Nothing is ever sent: that nobody holds one any more says that everything has ended.
    alive: mpsc::Sender<()>,
}

impl Errands {
    pub(super) fn new(
        caller: Caller,
        cloud: Arc<dyn CloudProvider>,
        (mandate, timeline): (Arc<Mandate>, Timeline),
        inbox: mpsc::WeakSender<Message>,
        alive: mpsc::Sender<()>,
    ) -> Self {
        Self { runtime: Handle::current(), caller, cloud, mandate, timeline, inbox, alive }
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(super) fn start(&self, ticket: Ticket, errand: Errand) {
        let Some(inbox) = self.inbox.upgrade() else {
            return;
        };
        let alive = self.alive.clone();
        let trip = Trip::of(&ticket, &errand, Pass::of(&self.mandate));
        let timeline = self.timeline;
        match errand {
            Errand::Think(thought) => {
                self.runtime.spawn_blocking(move || {
                    let outcome = think(thought);
                    // Whoever is not there any more needs no answer; so below.
                    let _ = inbox.blocking_send(Message::Wake(Wake::Done(ticket, outcome)));
                    drop(alive);
                });
            }
            Errand::Api(call) => {
                let caller = self.caller.clone();
                self.runtime.spawn(async move {
                    let (answer, slot) = caller.carry(trip, timeline, call).await;
                    if let (NARRATOR, Err(failure)) = (ticket.duty, &answer) {
                        tracing::debug!(error = failure.message, "cannot write an event");
                    }
                    let _ = inbox.send(Message::Wake(Wake::Done(ticket, Outcome::Api(answer)))).await;
                    // Answers are large: a server that is quick does not pile them up before an operator that is busy.
                    drop(slot);
                    drop(alive);
                });
            }
            Errand::Cloud(call) if call.is_listening() => {
                let (cloud, inbox) = (Arc::clone(&self.cloud), self.inbox.clone());
                self.runtime.spawn(async move {
                    // Neither the end of this process nor that of the seat waits for it.
                    let outcome = ask_within(&*cloud, call, trip, timeline).await;
                    if let Some(inbox) = inbox.upgrade() {
                        let _ = inbox.send(Message::Wake(Wake::Done(ticket, outcome))).await;
                    }
                });
            }
            Errand::Cloud(call) => {
                let cloud = Arc::clone(&self.cloud);
                self.runtime.spawn(async move {
                    let outcome = ask_within(&*cloud, call, trip, timeline).await;
                    let _ = inbox.send(Message::Wake(Wake::Done(ticket, outcome))).await;
                    drop(alive);
                });
            }
        }
    }
}

async fn ask_within(cloud: &dyn CloudProvider, call: CloudCall, mut trip: Trip, timeline: Timeline) -> Outcome {
    let by = match trip.leaves(timeline.now()) {
        Ok(by) => timeline.instant(by),
        Err(outcome) => return outcome,
    };
    match tokio::time::timeout_at(by, Guarded::new(async move { ask(cloud, call).await })).await {
        Ok(Ok(answer)) => Outcome::Cloud(answer),
        Ok(Err(defect)) => Outcome::Cloud(Err(CloudError::Other { message: defect.to_string().into() })),
        Err(_) => trip.lost(),
    }
}
