//! The operator's own thread: takes in whatever has come, then lets it work once.

use super::clock::Clock;
use super::errands::Errands;
use super::health::Health;
use crate::guard::guarded;
use crate::operator::Operator;
use crate::wake::Wake;
use kerf_model::UnixMillis;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Between two looks at the cluster. News comes in bursts (a thousand pods of one Deployment), and each look costs something
/// whatever came; after a quiet time the first news is looked at without delay.
const PACE: Duration = Duration::from_millis(5);

/// Messages taken at once.
const MANY: usize = 128;

/// Then it looks, even if somebody goes on talking.
const BATCHES_MAX: usize = 64;

/// What can be said to the seat.
pub(super) enum Message {
    Wake(Wake),
    Look(Box<dyn FnOnce(&Operator) + Send>),
    /// You lead: work.
    Lead,
    /// Decide nothing more, and take in what still comes.
    Rest,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Wake(wake) => f.debug_tuple("Wake").field(wake).finish(),
            Self::Look(_) => f.write_str("Look"),
            Self::Lead => f.write_str("Lead"),
            Self::Rest => f.write_str("Rest"),
        }
    }
}

pub(super) struct Seat {
    operator: Operator,
    health: Arc<Health>,
    clock: Arc<dyn Clock>,
    /// None at rest.
    errands: Option<Errands>,
    runtime: tokio::runtime::Handle,
    messages: mpsc::Receiver<Message>,
    leads: bool,
}

impl Seat {
    pub(super) fn new(
        operator: Operator,
        health: Arc<Health>,
        clock: Arc<dyn Clock>,
        errands: Errands,
        messages: mpsc::Receiver<Message>,
    ) -> Self {
        let runtime = errands.runtime().clone();
        Self { operator, health, clock, errands: Some(errands), runtime, messages, leads: false }
    }

    /// Works until nobody can send a message any more.
    pub(super) fn sit(mut self) {
        let mut batch = Vec::with_capacity(MANY);
        let mut wish = None;
        let mut next_look = Instant::now();
        loop {
            if !self.receive(&mut batch, wish) {
                return;
            }
            // Somebody may have gone on talking while the last look was taken, or will in a moment.
            std::thread::sleep(next_look.saturating_duration_since(Instant::now()));
            self.take(&mut batch);
            for _ in 0..BATCHES_MAX {
                if self.messages.is_empty() || !self.receive(&mut batch, Some(UnixMillis(i64::MIN))) {
                    break;
                }
                self.take(&mut batch);
            }
            wish = self.work();
            if self.operator.must_restart() {
                tracing::error!(
                    "the clock was set back, and what is under way does not end: ending, so that the process is started again"
                );
                return;
            }
            self.health.stand_still(self.operator.standstills());
            // Until everything is there nothing is decided, and ten thousand objects come through an inbox of a hundred.
            let pace = if self.operator.world().is_synced() { PACE } else { Duration::ZERO };
            next_look = Instant::now() + pace;
        }
    }

    /// Waits for messages, or until the wish is due. False when nobody is left.
    fn receive(&mut self, batch: &mut Vec<Message>, wish: Option<UnixMillis>) -> bool {
        let messages = &mut self.messages;
        self.runtime.block_on(async {
            let receive = messages.recv_many(batch, MANY);
            match wish {
                None => receive.await > 0,
                Some(then) => {
                    let wait = self.clock.wait_until(then);
                    // Time alone is also a reason to work.
                    !tokio::time::timeout(wait, receive).await.is_ok_and(|n| n == 0)
                }
            }
        })
    }

    fn take(&mut self, batch: &mut Vec<Message>) {
        for message in batch.drain(..) {
            match message {
                Message::Wake(wake) => self.operator.wake(wake),
                Message::Look(look) => {
                    // Whoever asked hears nothing, and asks again.
                    if let Err(defect) = guarded(|| look(&self.operator)) {
                        tracing::error!(error = %defect, "held a panic while looking at the operator");
                    }
                }
                Message::Lead => self.leads = true,
                Message::Rest => self.errands = None,
            }
        }
    }

    fn work(&mut self) -> Option<UnixMillis> {
        match &self.errands {
            Some(errands) if self.leads => {
                let batch = self.operator.work(self.clock.now());
                for (ticket, errand) in batch.errands {
                    errands.start(ticket, errand);
                }
                batch.wish
            }
            _ => {
                self.operator.stand_by();
                None
            }
        }
    }
}
