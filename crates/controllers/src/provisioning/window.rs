//! The window: how long to wait for company before deciding.
//!
//! A window opens with the first trigger, and closes when nothing new has come for a while or when it has been open for long
//! enough. A window that stays open shows what it has so far now and then: what is full already need not wait.
//!
//! What counts as new of a workload is its pods' arrival, once one of them waits: the others will wait as well, and are planned for
//! before kube-scheduler has looked at them. While it looks at pods that are known already, the window stays open for one more quiet
//! time and no longer: a busy cluster's pauses do not cut a workload in two, and slow verdicts hold nobody up.

use super::AFTER_FAILURE_MS;
use kerf_model::{Text, UnixMillis};
use std::collections::BTreeSet;

/// Namespace and name of who owns a pod.
pub(super) type Workload = (Text, Text);

/// After how many quiet times an open window shows what it has. Earlier, and a backlog that arrives within a few seconds would be
/// cut in two, which packs worse.
const INTERIM_AFTER_IDLES: i64 = 3;

#[derive(Debug, Default)]
pub(super) struct Window {
    /// Heard of, not yet given a time.
    fresh: Vec<Fresh>,
    /// Of pods that nobody has looked at yet.
    arriving: Vec<Workload>,
    is_hurried: bool,
    open: Option<Open>,
    again_at: Option<UnixMillis>,
}

#[derive(Debug)]
struct Fresh {
    who: Text,
    workload: Option<Workload>,
    /// It was seen to arrive.
    is_expected: bool,
}

#[derive(Debug)]
struct Open {
    at: UnixMillis,
    last_new: UnixMillis,
    /// When kube-scheduler last found no place for a pod that was known.
    last_verdict: UnixMillis,
    seen: BTreeSet<Text>,
    workloads: BTreeSet<Workload>,
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
        self.waits(who, None, false);
    }

    /// kube-scheduler found no place for a pod, which may have been seen to arrive.
    pub(super) fn waits(&mut self, who: &Text, workload: Option<Workload>, is_expected: bool) {
        self.fresh.push(Fresh { who: who.clone(), workload, is_expected });
    }

    /// A pod of a workload is there, and kube-scheduler has not looked at it.
    pub(super) fn arrives(&mut self, workload: Workload) {
        self.arriving.push(workload);
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
        let arriving = std::mem::take(&mut self.arriving);
        if self.fresh.is_empty() {
            self.see(&arriving, now);
            return;
        }
        let hurried = std::mem::take(&mut self.is_hurried);
        let open = self.open.get_or_insert_with(|| Open {
            at: now,
            last_new: now,
            last_verdict: now,
            seen: BTreeSet::new(),
            workloads: BTreeSet::new(),
            last_look: now,
            closes_at: None,
        });
        for Fresh { who, workload, is_expected } in self.fresh.drain(..) {
            let is_first = workload.is_none_or(|workload| open.workloads.insert(workload));
            if open.seen.insert(who) {
                open.last_verdict = now;
                if is_first || !is_expected {
                    open.last_new = now;
                }
            }
        }
        if hurried {
            open.closes_at.get_or_insert(UnixMillis(now.0 + AFTER_FAILURE_MS));
        }
        self.see(&arriving, now);
    }

    fn see(&mut self, arriving: &[Workload], now: UnixMillis) {
        if let Some(open) = &mut self.open
            && arriving.iter().any(|workload| open.workloads.contains(workload))
        {
            open.last_new = now;
        }
    }

    /// Nothing new has come since then, whenever it was heard of.
    pub(super) fn is_quiet_since(&mut self, then: UnixMillis) {
        if let Some(open) = &mut self.open {
            open.last_new = open.last_new.min(then);
            open.last_verdict = open.last_verdict.min(then);
        }
    }

    pub(super) fn state(&self, now: UnixMillis, idle_ms: i64, max_ms: i64) -> State {
        let Some(open) = &self.open else {
            return self.again_at.map_or(State::Empty, State::Waiting);
        };
        let quiet = (open.last_new.0 + idle_ms).max((open.last_verdict.0 + idle_ms).min(open.last_new.0 + 2 * idle_ms));
        let end = UnixMillis(open.at.0 + max_ms).min(UnixMillis(quiet));
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
    fn pods_that_arrive_keep_it_open_if_others_of_their_workload_wait() {
        let workload = |name: &str| -> Workload { ("default".into(), name.into()) };
        let mut window = Window::default();
        window.arrives(workload("web"));
        window.settle(at(0));
        assert_eq!(window.state(at(0), 1_000, 10_000), State::Empty, "it is not known yet whether they wait");
        window.waits(&"web-1".into(), Some(workload("web")), true);
        window.settle(at(100));
        window.arrives(workload("batch"));
        window.settle(at(800));
        assert_eq!(window.state(at(800), 1_000, 10_000), State::Waiting(at(1_100)));
        window.arrives(workload("web"));
        window.settle(at(900));
        assert_eq!(window.state(at(900), 1_000, 10_000), State::Waiting(at(1_900)));
        // Whoever was not seen to arrive is as new as the first of a workload.
        window.waits(&"web-2".into(), Some(workload("web")), false);
        window.settle(at(1_000));
        assert_eq!(window.state(at(1_000), 1_000, 10_000), State::Waiting(at(2_000)));
        window.waits(&"db-1".into(), Some(workload("db")), true);
        window.settle(at(1_200));
        assert_eq!(window.state(at(1_200), 1_000, 10_000), State::Waiting(at(2_200)));
    }

    #[test]
    fn verdicts_on_pods_that_are_known_hold_it_open_for_one_more_quiet_time() {
        let workload: Workload = ("default".into(), "web".into());
        let mut window = Window::default();
        for n in 0..50 {
            window.waits(&n.to_string().into(), Some(workload.clone()), true);
            window.settle(at(n * 100));
            if n == 5 {
                assert_eq!(window.state(at(500), 1_000, 10_000), State::Waiting(at(1_500)));
            }
        }
        assert_eq!(window.state(at(1_999), 1_000, 10_000), State::Waiting(at(2_000)));
        assert_eq!(window.state(at(2_000), 1_000, 10_000), State::Closed { opened: at(0) });
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
