//! The window: how long to wait for company before deciding.
//!
//! A window opens with the first trigger, and closes when nothing new has come for a while or when it has been open for long
//! enough. A window that stays open shows what it has so far now and then: what is full already need not wait.

use super::AFTER_FAILURE_MS;
use kerf_model::{Text, UnixMillis};
use std::collections::BTreeSet;

/// After how many quiet times an open window shows what it has. Earlier, and a backlog that arrives within a few seconds would be
/// cut in two, which packs worse.
const INTERIM_AFTER_IDLES: i64 = 3;

#[derive(Debug, Default)]
pub(super) struct Window {
    /// Heard of, not yet given a time.
    fresh: Vec<Text>,
    is_hurried: bool,
    open: Option<Open>,
    again_at: Option<UnixMillis>,
}

#[derive(Debug)]
struct Open {
    at: UnixMillis,
    last_new: UnixMillis,
    seen: BTreeSet<Text>,
    last_look: UnixMillis,
    /// Something failed: whoever waits has waited once already.
    closes_at: Option<UnixMillis>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    Empty,
    Waiting(UnixMillis),
    Interim { opened: UnixMillis },
    Closed { opened: UnixMillis },
}

impl Window {
    pub(super) fn trigger(&mut self, who: &Text) {
        self.fresh.push(who.clone());
    }

    /// As a trigger, but nobody waits for company.
    pub(super) fn hurry(&mut self, who: &Text) {
        self.is_hurried = true;
        self.trigger(who);
    }

    /// Look again at that time, whatever happens.
    pub(super) fn again_at(&mut self, then: UnixMillis) {
        self.again_at = Some(self.again_at.map_or(then, |at| at.min(then)));
    }

    /// Gives what was heard of its time.
    pub(super) fn settle(&mut self, now: UnixMillis) {
        if self.again_at.is_some_and(|at| at <= now) {
            self.again_at = None;
            self.hurry(&"held back".into());
        }
        if self.fresh.is_empty() {
            return;
        }
        let hurried = std::mem::take(&mut self.is_hurried);
        let open = self.open.get_or_insert_with(|| Open {
            at: now,
            last_new: now,
            seen: BTreeSet::new(),
            last_look: now,
            closes_at: None,
        });
        for who in self.fresh.drain(..) {
            if open.seen.insert(who) {
                open.last_new = now;
            }
        }
        if hurried {
            open.closes_at.get_or_insert(UnixMillis(now.0 + AFTER_FAILURE_MS));
        }
    }

    /// Nothing new has come since then, whenever it was heard of.
    pub(super) fn is_quiet_since(&mut self, then: UnixMillis) {
        if let Some(open) = &mut self.open {
            open.last_new = open.last_new.min(then);
        }
    }

    pub(super) fn state(&self, now: UnixMillis, idle_ms: i64, max_ms: i64) -> State {
        let Some(open) = &self.open else {
            return self.again_at.map_or(State::Empty, State::Waiting);
        };
        let quiet = UnixMillis(open.last_new.0 + idle_ms);
        let end = UnixMillis(open.at.0 + max_ms).min(quiet);
        let end = open.closes_at.map_or(end, |at| at.min(end));
        if end <= now {
            return State::Closed { opened: open.at };
        }
        let look = UnixMillis(open.last_look.0 + INTERIM_AFTER_IDLES * idle_ms);
        if look <= now {
            return State::Interim { opened: open.at };
        }
        State::Waiting(end.min(look))
    }

    /// It was shown; more may come.
    pub(super) fn looked(&mut self, now: UnixMillis) {
        if let Some(open) = &mut self.open {
            open.last_look = now;
        }
    }

    pub(super) fn close(&mut self) {
        self.open = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> UnixMillis {
        UnixMillis(ms)
    }

    fn told(window: &mut Window, who: &str, ms: i64) {
        window.trigger(&who.into());
        window.settle(at(ms));
    }

    #[test]
    fn a_second_of_quiet_closes_it() {
        let mut window = Window::default();
        assert_eq!(window.state(at(0), 1_000, 10_000), State::Empty);
        told(&mut window, "a", 0);
        told(&mut window, "b", 600);
        assert_eq!(window.state(at(700), 1_000, 10_000), State::Waiting(at(1_600)));
        // A pod that is known already does not extend it.
        told(&mut window, "a", 1_500);
        assert_eq!(window.state(at(1_600), 1_000, 10_000), State::Closed { opened: at(0) });
        window.close();
        assert_eq!(window.state(at(1_600), 1_000, 10_000), State::Empty);
    }

    #[test]
    fn it_shows_what_it_has_and_ends_after_ten_seconds_however_many_come() {
        let mut window = Window::default();
        let mut shown = Vec::new();
        for n in 0..40 {
            told(&mut window, &n.to_string(), n * 500);
            match window.state(at(n * 500), 1_000, 10_000) {
                State::Interim { .. } => {
                    shown.push(n * 500);
                    window.looked(at(n * 500));
                }
                State::Closed { .. } => {
                    assert_eq!((shown.as_slice(), n), ([3_000, 6_000, 9_000].as_slice(), 20));
                    return;
                }
                _ => {}
            }
        }
        panic!("it never closed");
    }

    #[test]
    fn what_waited_before_it_was_heard_of_need_not_wait_again() {
        let mut window = Window::default();
        told(&mut window, "a", 5_000);
        window.is_quiet_since(at(4_400));
        assert_eq!(window.state(at(5_000), 1_000, 10_000), State::Waiting(at(5_400)));
        window.is_quiet_since(at(1_000));
        assert_eq!(window.state(at(5_000), 1_000, 10_000), State::Closed { opened: at(5_000) });
    }

    #[test]
    fn a_failure_does_not_wait_for_company() {
        let mut window = Window::default();
        window.hurry(&"claim".into());
        window.settle(at(0));
        assert_eq!(window.state(at(0), 1_000, 10_000), State::Waiting(at(AFTER_FAILURE_MS)));
        assert_eq!(window.state(at(AFTER_FAILURE_MS), 1_000, 10_000), State::Closed { opened: at(0) });
    }
}
