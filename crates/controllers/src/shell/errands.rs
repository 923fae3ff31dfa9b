//! Runs errands on the runtime, and brings back how they ended.

use super::caller::Caller;
use super::seat::Message;
use crate::dispatch::Lane;
use crate::errand::{Errand, Outcome, Ticket, ask, think};
use crate::operator::NARRATOR;
use crate::wake::Wake;
use kerf_cloud::CloudProvider;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

pub(super) struct Errands {
    runtime: Handle,
    caller: Caller,
    cloud: Arc<dyn CloudProvider>,
    /// Weak: the seat that holds these errands must be able to notice that nobody else talks to it any more.
    inbox: mpsc::WeakSender<Message>,
    /// Nothing is ever sent: that nobody holds one any more says that everything has ended.
    alive: mpsc::Sender<()>,
}

impl Errands {
    pub(super) fn new(
        caller: Caller,
        cloud: Arc<dyn CloudProvider>,
        inbox: mpsc::WeakSender<Message>,
        alive: mpsc::Sender<()>,
    ) -> Self {
        Self { runtime: Handle::current(), caller, cloud, inbox, alive }
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(super) fn start(&self, ticket: Ticket, errand: Errand) {
        let Some(inbox) = self.inbox.upgrade() else {
            return;
        };
        let alive = self.alive.clone();
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
                    let (answer, slot) = caller.carry(Lane::of(&ticket), call).await;
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
                    let answer = ask(&*cloud, call).await;
                    if let Some(inbox) = inbox.upgrade() {
                        let _ = inbox.send(Message::Wake(Wake::Done(ticket, Outcome::Cloud(answer)))).await;
                    }
                });
            }
            Errand::Cloud(call) => {
                let cloud = Arc::clone(&self.cloud);
                self.runtime.spawn(async move {
                    let answer = ask(&*cloud, call).await;
                    let _ = inbox.send(Message::Wake(Wake::Done(ticket, Outcome::Cloud(answer)))).await;
                    drop(alive);
                });
            }
        }
    }
}
