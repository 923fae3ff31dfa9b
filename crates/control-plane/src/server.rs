//! The server as everybody shares it: the state behind its lock, and a bell for the loop that drives the controllers.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::namespaces;
use crate::request::Request;
use crate::rest::Answer;
use crate::state::State;

#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    /// Held while one waits for the state. Whoever has just let go of the state comes behind those who wait: without it, the loop that
    /// drives the controllers would take the state again and again, and requests would starve.
    turn: Mutex<()>,
    state: Mutex<State>,
    bell: Condvar,
}

impl Server {
    /// A server with the objects of the first day.
    #[must_use]
    pub fn new(clock: Clock, seed: u64) -> Self {
        let mut state = State::new(clock, seed);
        namespaces::boot(&mut state);
        Self { shared: Arc::new(Shared { turn: Mutex::new(()), state: Mutex::new(state), bell: Condvar::new() }) }
    }

    /// Answers one request.
    pub fn handle(&self, request: &Request) -> Answer {
        let mut state = self.lock();
        let answer = state.handle(request);
        let has_news = state.store.has_unseen();
        drop(state);
        if has_news {
            self.ring();
        }
        answer
    }

    /// The state itself. A panic of another thread does not make it unusable: every write is whole or not there.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        let _turn = self.shared.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes whoever waits for changes.
    pub fn ring(&self) {
        self.shared.bell.notify_all();
    }

    /// Lets go of the state until there is news, or for as long as is given.
    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, State>, at_most: Duration) -> MutexGuard<'a, State> {
        self.shared.bell.wait_timeout(state, at_most).unwrap_or_else(PoisonError::into_inner).0
    }
}
