//! The loop that lets the cluster's own controllers work.
//!
//! ```text
//! store's changes ──▶ observe (all) ──▶ work (each) ──▶ new changes? again : sleep until the next wish or the next change
//! ```
//!
//! Under a real clock a thread does the sleeping. Under a virtual one nobody sleeps: whoever holds the control plane moves the
//! clock, and the controllers do what is due.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;

use crate::dice::Dice;
use crate::hands::Hands;
use crate::state::State;
use crate::store::Change;

/// A part of the cluster that reacts to changes: a state machine without a thread, a clock or dice of its own.
pub trait Controller: Send {
    fn name(&self) -> &'static str;

    /// Under which name it writes, in managed fields.
    fn manager(&self) -> &'static str {
        "kube-controller-manager"
    }

    /// A change in the store; every change since the beginning, in order. For caches and queues.
    fn observe(&mut self, change: &Change);

    /// Does what is due. Returns when it wants to be called again even if nothing changes.
    fn work(&mut self, hands: &mut Hands<'_>) -> Option<Timestamp>;
}

/// Rounds without a quiet moment after which controllers are taken to undo each other's work for ever.
const ROUNDS_MAX: usize = 100_000;

/// All controllers, and when each wants to be called.
pub struct Drive {
    seats: Vec<Seat>,
    nudged: Nudge,
}

/// Says that something outside the store has happened, and everybody shall work once.
#[derive(Clone, Debug, Default)]
pub struct Nudge(Arc<AtomicBool>);

impl Nudge {
    pub fn give(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }

    fn is_given(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

struct Seat {
    controller: Box<dyn Controller>,
    dice: Dice,
    wish: Option<Timestamp>,
}

/// What a round left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// There are changes that somebody has not seen.
    Again,
    /// Nothing to do before this time.
    Until(Timestamp),
    /// Nothing to do until something changes.
    Quiet,
}

impl Drive {
    #[must_use]
    pub fn new(controllers: Vec<Box<dyn Controller>>, seed: u64) -> Self {
        let seats = controllers.into_iter().map(|controller| {
            let dice = Dice::for_purpose(seed, controller.name());
            Seat { controller, dice, wish: None }
        });
        Self { seats: seats.collect(), nudged: Nudge::default() }
    }

    #[must_use]
    pub fn nudge(&self) -> Nudge {
        self.nudged.clone()
    }

    /// Shows everybody what happened, and lets everybody work once.
    pub fn round(&mut self, state: &mut State) -> Round {
        let changes = state.store.take_unseen();
        for change in &changes {
            for seat in &mut self.seats {
                seat.controller.observe(change);
            }
            // Read once for all of them; what each keeps, it has taken.
            change.object.forget_read();
        }
        let now = state.now();
        let everybody = self.nudged.take() || !changes.is_empty();
        for seat in &mut self.seats {
            // Without news only those work whose time has come.
            if !everybody && seat.wish.is_none_or(|wish| wish > now) {
                continue;
            }
            let manager = seat.controller.manager();
            seat.wish = seat.controller.work(&mut Hands::new(state, manager, &mut seat.dice));
        }
        if state.store.has_unseen() || self.nudged.is_given() {
            return Round::Again;
        }
        match self.seats.iter().filter_map(|seat| seat.wish).min() {
            Some(wish) if wish <= state.now() => Round::Again,
            Some(wish) => Round::Until(wish),
            None => Round::Quiet,
        }
    }

    /// Rounds until nothing is due now. None when they never end.
    pub fn settle(&mut self, state: &mut State) -> Option<Round> {
        for _ in 0..ROUNDS_MAX {
            match self.round(state) {
                Round::Again => {}
                round => return Some(round),
            }
        }
        None
    }
}
