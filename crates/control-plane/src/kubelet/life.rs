//! The life of one pod on its node: sandbox, init containers, containers, probes, restarts, the end. Told what time it is, it tells
//! what happened meanwhile.
//!
//! ```text
//! cursor:  sandbox ─▶ pull ─▶ start ─▶ (init: its end; sidecar: started) ─▶ pull ─▶ start ─▶ … one container after the other
//! runs:    started ─▶ ready ─▶ end ─▶ back-off ─▶ started …                 each by itself
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::script::{Restart, Role, Script};

/// The images of one node: since when each is there. They are pulled one at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Images {
    present: BTreeMap<String, Timestamp>,
    free_at: Option<Timestamp>,
}

/// A hundred thousand pods have one: what is there for a moment only, or rarely, has a place of its own.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) script: Arc<Script>,
    pub(crate) begun: Timestamp,
    pub(crate) has_sandbox: bool,
    pub(crate) runs: Box<[Run]>,
    cursor: Option<Box<(Timestamp, Step)>>,
    stopping: Option<Box<Stopping>>,
    /// Nothing will happen here any more.
    pub(crate) is_over: bool,
    /// Ran out of its `activeDeadlineSeconds`.
    pub(crate) is_too_late: bool,
}

/// One container as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) state: State,
    pub(crate) last: Option<Box<Ended>>,
    pub(crate) n_restarts: i32,
    pub(crate) is_started: bool,
    pub(crate) is_ready: bool,
    /// None when nothing is to happen.
    next: Option<Box<Next>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Waiting(Waiting),
    Running { since: Timestamp },
    Ended(Box<Ended>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    PodInitializing,
    ContainerCreating,
    CrashLoopBackOff(SignedDuration),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) reason: &'static str,
    pub(crate) message: &'static str,
    /// None if it never ran.
    pub(crate) started: Option<Timestamp>,
    pub(crate) finished: Timestamp,
}

/// What was worth an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Pulling(usize),
    Pulled { run: usize, took: SignedDuration, with_waiting: SignedDuration },
    AlreadyPresent(usize),
    Created(usize),
    Started(usize),
    BackOff(usize),
    Killing(usize),
    TooLate,
}

/// When a run's own next things happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Next {
    started: Option<Timestamp>,
    ready: Option<Timestamp>,
    end: Option<Timestamp>,
    restart: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Sandbox,
    Pull(usize),
    Pulled { run: usize, took: SignedDuration, asked: Timestamp },
    Start(usize),
}

#[derive(Clone, Copy, Debug)]
struct Stopping {
    at: Timestamp,
    is_killed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Happening {
    Deadline,
    Stop,
    Cursor(Step),
    Started(usize),
    Ready(usize),
    End(usize),
    Restart(usize),
}

const BACK_OFF_FIRST_SECONDS: i64 = 10;
const BACK_OFF_MAX_SECONDS: i64 = 300;

impl Images {
    pub(crate) fn with(images: &[String], since: Timestamp) -> Self {
        Self { present: images.iter().map(|image| (image.clone(), since)).collect(), free_at: None }
    }

    /// When a pull that is asked for now will be done, and how long the pull itself takes.
    fn pull(&mut self, image: &str, asked: Timestamp, takes: SignedDuration) -> (Timestamp, SignedDuration) {
        let begin = self.free_at.map_or(asked, |free| free.max(asked));
        // Whoever waited for somebody else's pull of the same image finds it done.
        let took =
            if self.present.get(image).is_some_and(|since| *since <= begin) { SignedDuration::ZERO } else { takes };
        let done = after(begin, took);
        self.free_at = Some(done);
        self.present.entry(image.to_owned()).or_insert(done);
        (done, took)
    }

    fn has(&self, image: &str, at: Timestamp) -> bool {
        self.present.get(image).is_some_and(|since| *since <= at)
    }
}

impl Life {
    /// Admitted, and waiting for its volumes.
    pub(crate) fn new(script: impl Into<Arc<Script>>, now: Timestamp) -> Self {
        let script = script.into();
        let initialises = script.acts.iter().any(|act| act.role != Role::Main);
        let waiting = if initialises { Waiting::PodInitializing } else { Waiting::ContainerCreating };
        let runs = script
            .acts
            .iter()
            .map(|_| Run {
                state: State::Waiting(waiting),
                last: None,
                n_restarts: 0,
                is_started: false,
                is_ready: false,
                next: None,
            })
            .collect();
        Self {
            script,
            begun: now,
            has_sandbox: false,
            runs,
            cursor: None,
            stopping: None,
            is_over: false,
            is_too_late: false,
        }
    }

    pub(crate) fn waits_for_volumes(&self) -> bool {
        self.cursor.is_none() && !self.has_sandbox && self.stopping.is_none() && !self.is_over
    }

    /// The volumes are there.
    pub(crate) fn go(&mut self, now: Timestamp) {
        if self.waits_for_volumes() {
            self.cursor = cursor(after(now, self.script.sandbox), Step::Sandbox);
        }
    }

    /// The pod is to end within `grace`. Asked again, it can only become sooner.
    pub(crate) fn stop(&mut self, now: Timestamp, grace: SignedDuration) -> Vec<Told> {
        let deadline = after(now, grace);
        if let Some(stopping) = &mut self.stopping {
            if deadline < stopping.at {
                **stopping = Stopping { at: deadline, is_killed: true };
            }
            return Vec::new();
        }
        if self.is_over {
            return Vec::new();
        }
        self.cursor = None;
        let mut told = Vec::new();
        for (index, run) in self.runs.iter_mut().enumerate() {
            run.next = None;
            if matches!(run.state, State::Running { .. }) {
                told.push(Told::Killing(index));
            }
        }
        let stopped = if told.is_empty() { now } else { after(now, self.script.stops_after) };
        self.stopping = Some(Box::new(Stopping { at: stopped.min(deadline), is_killed: stopped > deadline }));
        told
    }

    /// When something will happen next.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.happening().map(|(at, _)| at)
    }

    /// Lives until now.
    pub(crate) fn advance(&mut self, now: Timestamp, images: &mut Images) -> Vec<Told> {
        let mut told = Vec::new();
        while let Some((at, what)) = self.happening().filter(|(at, _)| *at <= now) {
            match what {
                Happening::Deadline => {
                    self.is_too_late = true;
                    told.push(Told::TooLate);
                    self.finish(at, 137, "Error");
                }
                Happening::Stop => self.stopped(at),
                Happening::Cursor(step) => self.step(at, step, images, &mut told),
                Happening::Started(index) => self.started(at, index),
                Happening::Ready(index) => {
                    self.runs[index].plan(|next| next.ready = None);
                    self.runs[index].is_ready = true;
                }
                Happening::End(index) => self.ended(at, index, &mut told),
                Happening::Restart(index) => {
                    self.runs[index].n_restarts = self.runs[index].n_restarts.saturating_add(1);
                    told.push(Told::AlreadyPresent(index));
                    self.start(at, index, &mut told);
                }
            }
        }
        told
    }

    /// The first of all things to come; of things at the same instant the one that stands first here.
    fn happening(&self) -> Option<(Timestamp, Happening)> {
        if self.is_over {
            return None;
        }
        let deadline = self.script.deadline.map(|deadline| (after(self.begun, deadline), Happening::Deadline));
        let stop = self.stopping.as_deref().map(|stopping| (stopping.at, Happening::Stop));
        let cursor = self.cursor.as_deref().map(|(at, step)| (*at, Happening::Cursor(*step)));
        let to_come = self.runs.iter().enumerate().filter_map(|(index, run)| Some((index, run.next.as_deref()?)));
        let runs = to_come.flat_map(|(index, next)| {
            [
                next.started.map(|at| (at, Happening::Started(index))),
                next.ready.map(|at| (at, Happening::Ready(index))),
                next.end.map(|at| (at, Happening::End(index))),
                next.restart.map(|at| (at, Happening::Restart(index))),
            ]
        });
        [deadline, stop, cursor].into_iter().chain(runs).flatten().min_by_key(|(at, _)| *at)
    }

    fn step(&mut self, at: Timestamp, step: Step, images: &mut Images, told: &mut Vec<Told>) {
        match step {
            Step::Sandbox => {
                self.has_sandbox = true;
                self.cursor = self.first_pull(at, 0);
            }
            Step::Pull(run) => {
                let act = &self.script.acts[run];
                if !act.always_pulls && images.has(&act.image, at) {
                    told.push(Told::AlreadyPresent(run));
                    self.cursor = cursor(after(at, act.start), Step::Start(run));
                } else {
                    told.push(Told::Pulling(run));
                    let (done, took) = images.pull(&act.image, at, act.pull);
                    self.cursor = cursor(done, Step::Pulled { run, took, asked: at });
                }
            }
            Step::Pulled { run, took, asked } => {
                told.push(Told::Pulled { run, took, with_waiting: at.duration_since(asked) });
                self.cursor = cursor(after(at, self.script.acts[run].start), Step::Start(run));
            }
            Step::Start(run) => {
                // A main container does not hold back the next; the others do, until they are through.
                self.cursor = match self.script.acts[run].role {
                    Role::Main => self.first_pull(at, run + 1),
                    Role::Init | Role::Sidecar => None,
                };
                self.start(at, run, told);
            }
        }
    }

    fn first_pull(&self, at: Timestamp, run: usize) -> Option<Box<(Timestamp, Step)>> {
        cursor(at, Step::Pull(run)).filter(|_| run < self.runs.len())
    }

    fn start(&mut self, at: Timestamp, index: usize, told: &mut Vec<Told>) {
        told.push(Told::Created(index));
        told.push(Told::Started(index));
        let act = &self.script.acts[index];
        let is_init = act.role == Role::Init;
        let run = &mut self.runs[index];
        run.state = State::Running { since: at };
        run.is_started = false;
        run.is_ready = false;
        run.next = Some(Box::new(Next {
            started: Some(after(at, act.started_after)),
            ready: act.ready_after.filter(|_| !is_init).map(|delay| after(at, delay)),
            end: act.run_for.map(|run_for| after(at, run_for)),
            restart: None,
        }));
    }

    fn started(&mut self, at: Timestamp, index: usize) {
        let run = &mut self.runs[index];
        run.plan(|next| next.started = None);
        run.is_started = true;
        let is_first_time = run.n_restarts == 0 && run.last.is_none();
        if self.script.acts[index].role == Role::Sidecar && is_first_time {
            self.through(at, index);
        }
    }

    /// An init container is through: on to the next.
    fn through(&mut self, at: Timestamp, index: usize) {
        if self.stopping.is_some() {
            return;
        }
        self.cursor = self.first_pull(at, index + 1);
    }

    fn ended(&mut self, at: Timestamp, index: usize, told: &mut Vec<Told>) {
        let act = &self.script.acts[index];
        let (role, code) = (act.role, act.exit_code);
        self.runs[index].end(at, code, if code == 0 { "Completed" } else { "Error" }, "");
        let restarts = match (role, self.script.restart) {
            (Role::Sidecar, _) | (Role::Main, Restart::Always) => true,
            (_, Restart::Never) => false,
            (_, Restart::Always | Restart::OnFailure) => code != 0,
        };
        if restarts {
            self.back_off(at, index, told);
        } else if role == Role::Init && code == 0 {
            self.runs[index].is_ready = true;
            self.through(at, index);
        } else if self.is_complete() {
            self.finish(at, 0, "Completed");
        }
    }

    fn back_off(&mut self, at: Timestamp, index: usize, told: &mut Vec<Told>) {
        let run = &mut self.runs[index];
        let delay = back_off(run.n_restarts);
        run.plan(|next| next.restart = Some(after(at, delay)));
        let State::Ended(ended) = run.state.clone() else { return };
        run.last = Some(ended);
        if !delay.is_zero() {
            run.state = State::Waiting(Waiting::CrashLoopBackOff(delay));
            told.push(Told::BackOff(index));
        }
    }

    /// Whether all main containers have ended for good, or an init container has failed for good.
    fn is_complete(&self) -> bool {
        let restarts = |run: &Run| run.next.as_ref().is_some_and(|next| next.restart.is_some());
        let has_ended = |run: &Run| matches!(run.state, State::Ended(_)) && !restarts(run);
        let acts_and_runs = || self.script.acts.iter().zip(self.runs.iter());
        acts_and_runs().filter(|(act, _)| act.role == Role::Main).all(|(_, run)| has_ended(run))
            || acts_and_runs().any(|(act, run)| {
                act.role == Role::Init && matches!(&run.state, State::Ended(ended) if ended.code != 0) && has_ended(run)
            })
    }

    fn stopped(&mut self, at: Timestamp) {
        let is_killed = self.stopping.as_ref().is_some_and(|stopping| stopping.is_killed);
        if is_killed {
            self.finish(at, 137, "Error")
        } else {
            self.finish(at, 0, "Completed")
        }
        // What never ran and now never will counts as failed, once the pod had come so far as to start it.
        let initialised = self.is_initialised();
        for (act, run) in self.script.acts.iter().zip(self.runs.iter_mut()) {
            if matches!(run.state, State::Waiting(_)) && act.role == Role::Main && initialised {
                run.state = State::Ended(Box::new(Ended {
                    code: 137,
                    reason: "ContainerStatusUnknown",
                    message: "The container could not be located when the pod was terminated",
                    started: None,
                    finished: at,
                }));
            }
        }
    }

    /// The end of everything that still runs.
    fn finish(&mut self, at: Timestamp, code: i32, reason: &'static str) {
        for run in &mut self.runs {
            if matches!(run.state, State::Running { .. }) {
                run.end(at, code, reason, "");
            }
            run.is_ready = run.is_ready && matches!(run.state, State::Ended(_));
            run.next = None;
        }
        self.cursor = None;
        self.is_over = true;
    }

    pub(crate) fn is_initialised(&self) -> bool {
        self.script.acts.iter().zip(&self.runs).all(|(act, run)| match act.role {
            Role::Main => true,
            Role::Init => matches!(&run.state, State::Ended(ended) if ended.code == 0),
            Role::Sidecar => run.is_started || run.last.is_some() || matches!(run.state, State::Ended(_)),
        })
    }

    pub(crate) fn phase(&self) -> &'static str {
        let main = || self.script.acts.iter().zip(&self.runs).filter(|(act, _)| act.role == Role::Main);
        let succeeded = |run: &Run| matches!(&run.state, State::Ended(ended) if ended.code == 0);
        if self.is_over {
            let all_well = self.is_initialised() && main().all(|(_, run)| succeeded(run)) && !self.is_too_late;
            return if all_well { "Succeeded" } else { "Failed" };
        }
        let never_ran = |run: &Run| matches!(run.state, State::Waiting(_)) && run.last.is_none();
        if !self.is_initialised() || main().any(|(_, run)| never_ran(run)) { "Pending" } else { "Running" }
    }
}

impl Run {
    fn end(&mut self, at: Timestamp, code: i32, reason: &'static str, message: &'static str) {
        let started = match self.state {
            State::Running { since } => Some(since),
            _ => None,
        };
        self.state = State::Ended(Box::new(Ended { code, reason, message, started, finished: at }));
        self.is_ready = false;
        self.is_started = false;
        self.next = None;
    }

    /// Changes what is to come.
    fn plan(&mut self, change: impl FnOnce(&mut Next)) {
        let mut next = self.next.take().unwrap_or_default();
        change(&mut next);
        self.next = Some(next).filter(|next| **next != Next::default());
    }
}

fn cursor(at: Timestamp, step: Step) -> Option<Box<(Timestamp, Step)>> {
    Some(Box::new((at, step)))
}

/// The first restart comes at once, the later ones after ten seconds, twenty, and so on to five minutes.
fn back_off(n_restarts: i32) -> SignedDuration {
    match u32::try_from(n_restarts) {
        Ok(n @ 1..=6) => SignedDuration::from_secs((BACK_OFF_FIRST_SECONDS << (n - 1)).min(BACK_OFF_MAX_SECONDS)),
        Ok(7..) => SignedDuration::from_secs(BACK_OFF_MAX_SECONDS),
        _ => SignedDuration::ZERO,
    }
}

/// No instant is later than the last one.
pub(crate) fn after(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::script::{EXIT_CODE, Pace, RUN_FOR, STOPS_AFTER, script};
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(milliseconds).unwrap()
    }

    fn life(pod: Value) -> Life {
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let mut life = Life::new(script(&pod, &Pace::brisk()), at(0));
        life.go(at(0));
        life
    }

    /// Lives from instant to instant until nothing happens before the end, and writes down what was seen at each.
    fn watch(life: &mut Life, images: &mut Images, until: i64) -> String {
        let mut seen = Vec::new();
        while let Some(now) = life.next().filter(|now| *now <= at(until)) {
            let told = life.advance(now, images);
            let runs: String = life
                .runs
                .iter()
                .map(|run| match &run.state {
                    State::Waiting(Waiting::CrashLoopBackOff(_)) => 'b',
                    State::Waiting(_) => 'w',
                    State::Running { .. } if run.is_ready => 'R',
                    State::Running { .. } => 'r',
                    State::Ended(ended) if ended.code == 0 => 'x',
                    State::Ended(_) => 'X',
                })
                .collect();
            let n_told = told.len();
            seen.push(format!("{}ms {} {runs} {n_told}", now.as_millisecond(), life.phase()));
        }
        seen.join(", ")
    }

    #[test]
    fn a_pod_lives_as_its_spec_and_annotations_say() {
        let one = json!([{"name": "a", "image": "x", "imagePullPolicy": "IfNotPresent"}]);
        let two = json!([{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]);
        let init = json!([{"name": "i", "image": "x"}, {"name": "s", "image": "x", "restartPolicy": "Always"}]);
        let delayed = json!([{"name": "a", "image": "x", "readinessProbe": {"initialDelaySeconds": 5}}]);
        let cases = [
            (json!({}), json!({"containers": one}), "300ms Pending w 1, 1300ms Pending w 1, 1500ms Running R 2"),
            (
                json!({}),
                json!({"containers": two}),
                "300ms Pending ww 1, 1300ms Pending ww 1, 1500ms Pending Rw 3, 1700ms Running RR 2",
            ),
            (
                json!({}),
                json!({"containers": one, "initContainers": init}),
                "300ms Pending www 1, 1300ms Pending www 1, 1500ms Pending rww 2, 2000ms Pending xww 1, \
                 2200ms Pending xRw 3, 2400ms Running xRR 2",
            ),
            (
                json!({}),
                json!({"containers": delayed}),
                "300ms Pending w 1, 1300ms Pending w 1, 1500ms Running r 2, 6500ms Running R 0",
            ),
            (
                json!({RUN_FOR: "10s"}),
                json!({"containers": one, "restartPolicy": "Never"}),
                "300ms Pending w 1, 1300ms Pending w 1, 1500ms Running R 2, 11500ms Succeeded x 0",
            ),
            (
                json!({RUN_FOR: "10s", EXIT_CODE: "3"}),
                json!({"containers": one, "restartPolicy": "Never"}),
                "300ms Pending w 1, 1300ms Pending w 1, 1500ms Running R 2, 11500ms Failed X 0",
            ),
            (
                json!({RUN_FOR: "10s", EXIT_CODE: "3"}),
                json!({"containers": one, "restartPolicy": "OnFailure"}),
                "300ms Pending w 1, 1300ms Pending w 1, 1500ms Running R 2, 11500ms Running R 3, 21500ms Running b 1, \
                 31500ms Running R 3, 41500ms Running b 1",
            ),
            (
                json!({}),
                json!({"containers": one, "activeDeadlineSeconds": 20}),
                "300ms Pending w 1, 1300ms Pending w 1, 1500ms Running R 2, 20000ms Failed X 1",
            ),
        ];
        for (annotations, spec, expected) in cases {
            let mut life = life(json!({"metadata": {"annotations": annotations}, "spec": spec}));
            assert_eq!(watch(&mut life, &mut Images::default(), 60_000), expected, "{annotations} {spec}");
        }
    }

    #[test]
    fn a_pod_stops_within_its_grace() {
        let one = json!([{"name": "a", "image": "x"}]);
        // annotations, asked at, grace -> what is seen after
        let cases = [
            (json!({}), 5_000, 30, "6000ms Succeeded x 0"),
            (json!({STOPS_AFTER: "20s"}), 5_000, 30, "25000ms Succeeded x 0"),
            (json!({STOPS_AFTER: "60s"}), 5_000, 30, "35000ms Failed X 0"),
            (json!({}), 500, 30, "500ms Failed X 0"),
        ];
        for (annotations, asked, grace, expected) in cases {
            let mut life = life(json!({"metadata": {"annotations": annotations}, "spec": {"containers": one}}));
            let mut images = Images::default();
            life.advance(at(asked), &mut images);
            life.stop(at(asked), SignedDuration::from_secs(grace));
            assert_eq!(watch(&mut life, &mut images, 60_000), expected, "{annotations} {asked}");
        }
        let mut life = life(json!({"metadata": {"annotations": {STOPS_AFTER: "60s"}}, "spec": {"containers": one}}));
        let mut images = Images::default();
        life.advance(at(5_000), &mut images);
        assert_eq!(life.stop(at(5_000), SignedDuration::from_secs(30)), [Told::Killing(0)]);
        assert_eq!(life.stop(at(6_000), SignedDuration::from_secs(2)), []);
        assert_eq!(watch(&mut life, &mut images, 60_000), "8000ms Failed X 0");
    }

    #[test]
    fn images_are_pulled_one_at_a_time_and_once() {
        let pod = |image: &str| json!({"metadata": {}, "spec": {"containers": [{"name": "a", "image": image}]}});
        let (mut first, mut second, mut third) = (life(pod("x")), life(pod("y")), life(pod("x")));
        let mut images = Images::default();
        first.advance(at(300), &mut images);
        second.advance(at(300), &mut images);
        third.advance(at(300), &mut images);
        assert_eq!(first.next(), Some(at(1300)));
        assert_eq!(second.next(), Some(at(2300)));
        let told = third.advance(at(2300), &mut images);
        let (took, with_waiting) = (SignedDuration::ZERO, SignedDuration::from_secs(2));
        assert_eq!(told, [Told::Pulled { run: 0, took, with_waiting }]);
        let mut fourth = life(pod("x"));
        assert_eq!(fourth.advance(at(300), &mut Images::with(&["x".to_owned()], at(0))), [Told::AlreadyPresent(0)]);
    }
}
