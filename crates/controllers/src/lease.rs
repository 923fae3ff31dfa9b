//! Who may work: a Lease in the cluster, held by one process at a time, and the mandate that it makes.
//!
//! ```text
//! seeking: read ─▶ nobody's, or run out ─▶ take ─▶ leading: renew ─▶ … ─▶ lost, or given back
//!           ▲ another's │                                     │ refused
//!           └── wait ◀──┘                                     └─▶ read ─▶ take
//! ```
//!
//! Nobody trusts anybody's clock: a lease has run out when it has not changed for its whole duration, on the watch of whoever
//! looks at it. Its holder gives up sooner (`renew`) than others take over (`lease`), so that there are never two. What counts is when a
//! renewal was *sent*: others may have seen it as early as that, however late its answer comes.
//!
//! A state machine with one step, [`Lease::step`], without a clock, a runtime or a client. It keeps a [`Mandate`]: whatever changes the world
//! asks it on its way out, and is not sent under a lease that is lost, or that could not be renewed in time, even if nobody has noticed yet.

use crate::errand::{ApiCall, ApiFailure};
use crate::limits::{ANSWER_WITHIN, LEASE_LASTS, LEASE_RENEW, LEASE_RETRY};
use crate::moment::Moment;
use crate::resource::LEASES;
use kerf_model::UnixMillis;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How the Lease is called, unless told otherwise.
pub const NAME: &str = "karpenter-leader-election";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// Others wait so long after the last sign of life.
    pub lease: Duration,
    /// The holder tries so long to give a sign of life before it gives up.
    pub renew: Duration,
    /// Between two attempts, to get it or to keep it.
    pub retry: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self { lease: LEASE_LASTS, renew: LEASE_RENEW, retry: LEASE_RETRY }
    }
}

/// Whether one may act. Written by the lease, asked before every request and every cloud call.
#[derive(Debug)]
pub struct Mandate(Mutex<Standing>);

#[derive(Debug, Clone, Copy)]
enum Standing {
    /// Nobody elects: everybody may.
    Open,
    Closed {
        last: Term,
    },
    Held {
        term: Term,
        until: Moment,
    },
}

/// One time of leading, from taking the lease to losing it. What is ordered in one is not done in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(u64);

/// It may not be done: who ordered it leads no longer, or cannot know whether it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not sent: the lease under which it was ordered is lost or could not be renewed in time")]
pub struct NoMandate;

impl Mandate {
    /// Without an election.
    pub fn open() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Standing::Open)))
    }

    fn closed() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Standing::Closed { last: Term(0) })))
    }

    /// Under which term something is ordered now.
    pub fn term(&self) -> Term {
        match *self.lock() {
            Standing::Open => Term(0),
            Standing::Closed { last } => last,
            Standing::Held { term, .. } => term,
        }
    }

    /// Whether what was ordered under a term may be done now.
    pub fn check(&self, ordered: Term, now: Moment) -> Result<(), NoMandate> {
        match *self.lock() {
            Standing::Open => Ok(()),
            Standing::Held { term, until } if term == ordered && now < until => Ok(()),
            Standing::Held { .. } | Standing::Closed { .. } => Err(NoMandate),
        }
    }

    fn hold(&self, until: Moment) {
        let mut standing = self.lock();
        *standing = match *standing {
            Standing::Held { term, .. } => Standing::Held { term, until },
            Standing::Closed { last: Term(last) } => Standing::Held { term: Term(last + 1), until },
            Standing::Open => Standing::Open,
        };
    }

    fn close(&self) {
        let mut standing = self.lock();
        if let Standing::Held { term, .. } = *standing {
            *standing = Standing::Closed { last: term };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Standing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What came of the request.
#[derive(Debug)]
pub enum News {
    /// Nothing yet: the lease was not waiting.
    None,
    /// Nothing until the time that it wanted to wait for.
    Silence,
    Answer(Result<Value, ApiFailure>),
}

/// What to do next. All but `Ask` and `Wait` are for telling; then one comes back with [`News::None`].
#[derive(Debug, PartialEq)]
pub enum Do {
    /// Sends this, at once and once.
    Ask(ApiCall),
    /// Nothing before there is an answer, or until then.
    Wait(Moment),
    /// It is ours.
    Leads,
    /// It is somebody's.
    StandsBy { holder: String },
    /// It could not be got or renewed this time. It goes on.
    Troubled { why: String },
    /// It was ours. This is the end: whoever worked under it ends, too.
    Lost { why: String },
    /// This is the end as well. Whether it was ours to give.
    GivenBack { was_ours: Result<bool, String> },
}

/// One contender.
pub struct Lease {
    namespace: String,
    name: String,
    identity: String,
    timings: Timings,
    mandate: Arc<Mandate>,
    /// The lease as last seen, and since when it looks so.
    seen: Option<(Value, Moment)>,
    /// When the last renewal that succeeded was sent; none while it is not ours.
    renewed: Option<Moment>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Resting { until: Moment },
    Asked { what: What, sent: Moment },
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Written without reading: whoever holds it is the only one with a reason to change it.
    Renew,
    Read,
    Create,
    Take,
    ReadToGive,
    Give,
}

impl Lease {
    pub fn new(namespace: &str, name: &str, identity: &str, timings: Timings) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            timings,
            mandate: Mandate::closed(),
            seen: None,
            renewed: None,
            state: State::Resting { until: Moment(i64::MIN) },
        }
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn identity(&self) -> &str {
        &self.identity
    }

    pub fn mandate(&self) -> &Arc<Mandate> {
        &self.mandate
    }

    /// Begins to give the lease back, so that the next one need not wait for it to run out. From now on nobody may act under it.
    pub fn give_back(&mut self) {
        self.mandate.close();
        self.renewed = None;
        self.state = State::Asked { what: What::ReadToGive, sent: Moment(i64::MAX) };
    }

    /// Takes in what was heard, and says what to do next. `wall` is the wall's time, which is only written down.
    pub fn step(&mut self, now: Moment, wall: UnixMillis, news: News) -> Do {
        if self.state == (State::Asked { what: What::ReadToGive, sent: Moment(i64::MAX) }) {
            // Read, because a renewal that was cut short may have been written all the same.
            return self.ask(now, What::ReadToGive, self.get());
        }
        if let Some(why) = self.is_overdue(now) {
            return self.lose(why);
        }
        match (self.state, news) {
            (State::Asked { what, sent }, News::Answer(answer)) => self.answered(now, wall, what, sent, answer),
            (State::Asked { what, sent }, News::Silence) if now >= self.by(sent) => {
                self.failed(now, what, "no answer".to_owned())
            }
            (State::Asked { sent, .. }, _) => Do::Wait(self.by(sent)),
            (State::Resting { until }, _) if until > now => Do::Wait(until),
            (State::Resting { .. }, _) => self.attempt(now, wall),
            (State::Ended, _) => Do::Wait(Moment(i64::MAX)),
        }
    }

    /// By when whoever leads must have renewed.
    fn deadline(&self) -> Option<Moment> {
        self.renewed.map(|sent| sent.after(self.timings.renew))
    }

    fn by(&self, sent: Moment) -> Moment {
        let patience = if self.state_gives() { self.timings.renew } else { ANSWER_WITHIN };
        let by = sent.after(patience);
        self.deadline().map_or(by, |deadline| deadline.min(by))
    }

    fn state_gives(&self) -> bool {
        matches!(self.state, State::Asked { what: What::ReadToGive | What::Give, .. })
    }

    fn is_overdue(&self, now: Moment) -> Option<String> {
        let renew = self.timings.renew.as_secs();
        let is_over = self.deadline().is_some_and(|deadline| deadline <= now);
        is_over.then(|| format!("it could not be renewed within {renew} s of the last renewal"))
    }

    fn lose(&mut self, why: String) -> Do {
        self.mandate.close();
        (self.renewed, self.state) = (None, State::Ended);
        Do::Lost { why }
    }

    fn attempt(&mut self, now: Moment, wall: UnixMillis) -> Do {
        match &self.seen {
            Some((lease, _)) if holder(lease) == self.identity => {
                let put = self.put(self.claimed(lease.clone(), wall));
                self.ask(now, What::Renew, put)
            }
            _ => self.ask(now, What::Read, self.get()),
        }
    }

    fn ask(&mut self, now: Moment, what: What, call: ApiCall) -> Do {
        self.state = State::Asked { what, sent: now };
        Do::Ask(call)
    }

    fn answered(
        &mut self,
        now: Moment,
        wall: UnixMillis,
        what: What,
        sent: Moment,
        answer: Result<Value, ApiFailure>,
    ) -> Do {
        match (what, answer) {
            (What::Renew | What::Create | What::Take, Ok(written)) => {
                self.see(now, written);
                let is_new = self.renewed.is_none();
                self.renewed = Some(sent);
                self.mandate.hold(sent.after(self.timings.renew));
                self.state = State::Resting { until: now.after(self.timings.retry) };
                // An answer that comes too late is none.
                match self.is_overdue(now) {
                    Some(why) => self.lose(why),
                    None if is_new => Do::Leads,
                    None => self.step(now, wall, News::None),
                }
            }
            // Somebody else has written it, or the answer before was lost.
            (What::Renew, Err(_)) => self.ask(now, What::Read, self.get()),
            (What::Read, Ok(found)) => self.found(now, wall, found),
            (What::Read, Err(failure)) if failure.is_not_found() => {
                let post = self.post(wall);
                self.ask(now, What::Create, post)
            }
            (What::ReadToGive, Ok(found)) if holder(&found) == self.identity => {
                let put = self.put(given(found, wall));
                self.ask(now, What::Give, put)
            }
            (What::ReadToGive, Ok(_)) => self.given_back(Ok(false)),
            (What::Give, Ok(_)) => self.given_back(Ok(true)),
            (What::ReadToGive | What::Give, Err(failure)) => self.given_back(Err(failure.message)),
            (what @ (What::Read | What::Create | What::Take), Err(failure)) => {
                let why = self.words(&failure);
                self.failed(now, what, why)
            }
        }
    }

    fn found(&mut self, now: Moment, wall: UnixMillis, found: Value) -> Do {
        self.see(now, found.clone());
        let by = holder(&found).to_owned();
        if by.is_empty() || by == self.identity || self.has_run_out(now) {
            let put = self.put(self.claimed(found, wall));
            return self.ask(now, What::Take, put);
        }
        if self.renewed.is_some() {
            return self.lose(format!("the lease is held by {by}"));
        }
        self.state = State::Resting { until: now.after(self.timings.retry) };
        Do::StandsBy { holder: by }
    }

    fn failed(&mut self, now: Moment, what: What, why: String) -> Do {
        if matches!(what, What::ReadToGive | What::Give) {
            return self.given_back(Err(why));
        }
        self.state = State::Resting { until: now.after(self.timings.retry) };
        Do::Troubled { why }
    }

    fn given_back(&mut self, was_ours: Result<bool, String>) -> Do {
        (self.state, self.seen) = (State::Ended, None);
        Do::GivenBack { was_ours }
    }

    fn see(&mut self, now: Moment, lease: Value) {
        let is_same = self.seen.as_ref().is_some_and(|(known, _)| known["spec"] == lease["spec"]);
        let since = match &self.seen {
            Some((_, since)) if is_same => *since,
            _ => now,
        };
        self.seen = Some((lease, since));
    }

    fn has_run_out(&self, now: Moment) -> bool {
        let Some((lease, since)) = &self.seen else {
            return false;
        };
        let seconds = lease["spec"]["leaseDurationSeconds"].as_u64();
        let lasts = seconds.map_or(self.timings.lease, Duration::from_secs);
        now.since(*since) >= lasts
    }

    /// The lease as we want it to be.
    fn claimed(&self, mut lease: Value, wall: UnixMillis) -> Value {
        let now = micro_time(wall);
        if holder(&lease) != self.identity {
            let transitions = lease["spec"]["leaseTransitions"].as_i64().unwrap_or(0);
            lease["spec"]["leaseTransitions"] = json!(transitions + 1);
            lease["spec"]["acquireTime"] = json!(now);
        }
        lease["spec"]["holderIdentity"] = json!(self.identity);
        lease["spec"]["leaseDurationSeconds"] = json!(self.timings.lease.as_secs().max(1));
        lease["spec"]["renewTime"] = json!(now);
        lease
    }

    fn get(&self) -> ApiCall {
        ApiCall { method: "GET", path: self.path(), content_type: "", body: Value::Null }
    }

    fn post(&self, wall: UnixMillis) -> ApiCall {
        let now = micro_time(wall);
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {
                "holderIdentity": self.identity, "leaseDurationSeconds": self.timings.lease.as_secs().max(1),
                "acquireTime": now, "renewTime": now, "leaseTransitions": 0,
            },
        });
        let path = LEASES.collection_in(&self.namespace);
        ApiCall { method: "POST", path, content_type: "application/json", body }
    }

    fn put(&self, lease: Value) -> ApiCall {
        ApiCall { method: "PUT", path: self.path(), content_type: "application/json", body: lease }
    }

    fn path(&self) -> String {
        LEASES.path(&self.namespace, &self.name)
    }

    fn words(&self, failure: &ApiFailure) -> String {
        let Self { namespace, name, .. } = self;
        match failure.status {
            403 => format!(
                "may not lead: {}; add to a Role in namespace {namespace}: {{apiGroups: [\"coordination.k8s.io\"], \
                 resources: [\"leases\"], verbs: [\"get\", \"create\", \"update\"]}}, or run with \
                 --disable-leader-election",
                failure.message
            ),
            404 => format!(
                "cannot create Lease {name}: {}; does namespace {namespace} exist? (--leader-election-namespace)",
                failure.message
            ),
            _ => format!("cannot get or renew Lease {namespace}/{name}: {}", failure.message),
        }
    }
}

fn given(mut lease: Value, wall: UnixMillis) -> Value {
    let now = micro_time(wall);
    lease["spec"]["holderIdentity"] = json!("");
    lease["spec"]["leaseDurationSeconds"] = json!(1);
    lease["spec"]["renewTime"] = json!(now);
    lease["spec"]["acquireTime"] = json!(now);
    lease
}

fn holder(lease: &Value) -> &str {
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default()
}

/// As Kubernetes writes a `MicroTime`.
fn micro_time(wall: UnixMillis) -> String {
    let at = jiff::Timestamp::from_millisecond(wall.0).unwrap_or_default();
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: UnixMillis = UnixMillis(1_767_225_600_000);

    fn lease() -> Lease {
        Lease::new("ns", "l", "me", Timings::default())
    }

    fn failure(status: u16) -> News {
        News::Answer(Err(ApiFailure { status, reason: String::new(), message: "no".to_owned() }))
    }

    /// Steps, and answers a request with what it wrote.
    fn written(lease: &mut Lease, asked: Do, now: i64) -> Do {
        let Do::Ask(call) = asked else { panic!("{asked:?}") };
        lease.step(Moment(now), WALL, News::Answer(Ok(call.body)))
    }

    /// Leads since zero.
    fn leading() -> Lease {
        let mut lease = lease();
        assert!(matches!(lease.step(Moment(0), WALL, News::None), Do::Ask(ApiCall { method: "GET", .. })));
        let post = lease.step(Moment(0), WALL, failure(404));
        assert_eq!(written(&mut lease, post, 0), Do::Leads);
        assert_eq!(lease.step(Moment(0), WALL, News::None), Do::Wait(Moment(2_000)));
        lease
    }

    #[test]
    fn a_renewal_counts_from_when_it_was_sent() {
        let mut lease = leading();
        let term = lease.mandate().term();
        let put = lease.step(Moment(2_000), WALL, News::Silence);
        // Answered after 7.9 s: a tenth of a second is left of the old term, and two seconds of the new one.
        assert!(lease.mandate().check(term, Moment(9_899)).is_ok());
        assert_eq!(written(&mut lease, put, 9_900), Do::Wait(Moment(11_900)));
        assert!(lease.mandate().check(term, Moment(11_999)).is_ok());
        assert_eq!(
            lease.mandate().check(term, Moment(12_000)),
            Err(NoMandate),
            "ten seconds after it was sent, not after the answer"
        );
        // The next one is not answered.
        assert!(matches!(lease.step(Moment(11_900), WALL, News::Silence), Do::Ask(_)));
        assert_eq!(lease.step(Moment(11_900), WALL, News::None), Do::Wait(Moment(12_000)));
        let Do::Lost { why } = lease.step(Moment(12_000), WALL, News::Silence) else { panic!() };
        assert!(why.contains("within 10 s"), "{why}");
    }

    #[test]
    fn an_answer_after_the_deadline_is_none() {
        let mut lease = leading();
        let put = lease.step(Moment(2_000), WALL, News::Silence);
        // The process slept.
        assert!(matches!(written(&mut lease, put, 60_000), Do::Lost { .. }));
        assert_eq!(lease.mandate().check(lease.mandate().term(), Moment(60_000)), Err(NoMandate));
    }

    #[test]
    fn nothing_is_done_under_a_lease_that_is_another_ones_or_of_another_term() {
        let mut lease = lease();
        let before = lease.mandate().term();
        assert_eq!(lease.mandate().check(before, Moment(0)), Err(NoMandate), "it was never ours");
        lease = leading();
        let term = lease.mandate().term();
        assert_ne!(term, before);
        assert_eq!(lease.mandate().check(before, Moment(0)), Err(NoMandate), "ordered before it was ours");
        assert!(Mandate::open().check(before, Moment(i64::MAX)).is_ok(), "without an election everybody may");
        // Stolen.
        assert!(matches!(lease.step(Moment(2_000), WALL, News::Silence), Do::Ask(_)));
        assert!(matches!(lease.step(Moment(2_100), WALL, failure(409)), Do::Ask(ApiCall { method: "GET", .. })));
        let stolen = json!({"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 15}});
        let lost = lease.step(Moment(2_200), WALL, News::Answer(Ok(stolen)));
        assert_eq!(lost, Do::Lost { why: "the lease is held by thief".to_owned() });
        assert_eq!(lease.mandate().check(term, Moment(2_200)), Err(NoMandate));
    }

    #[test]
    fn a_lease_that_does_not_change_is_taken_when_it_has_run_out_on_our_own_watch() {
        let mut lease = lease();
        let held = json!({"spec": {"holderIdentity": "dead", "leaseDurationSeconds": 15, "renewTime": "2031-01-01T00:00:00.000000Z"}});
        let mut now = 0;
        loop {
            assert!(matches!(lease.step(Moment(now), WALL, News::Silence), Do::Ask(ApiCall { method: "GET", .. })));
            match lease.step(Moment(now), WALL, News::Answer(Ok(held.clone()))) {
                Do::StandsBy { holder } => assert_eq!(holder, "dead"),
                take => {
                    assert_eq!(now, 16_000);
                    let Do::Ask(call) = &take else { panic!("{take:?}") };
                    assert_eq!(call.body["spec"]["leaseTransitions"], 1);
                    assert_eq!(written(&mut lease, take, now), Do::Leads);
                    return;
                }
            }
            let Do::Wait(Moment(next)) = lease.step(Moment(now), WALL, News::None) else { panic!() };
            now = next;
        }
    }

    #[test]
    fn given_back_it_is_nobodys_and_nothing_is_done_any_more() {
        let mut lease = leading();
        let term = lease.mandate().term();
        lease.give_back();
        assert_eq!(lease.mandate().check(term, Moment(1)), Err(NoMandate));
        assert!(matches!(lease.step(Moment(1), WALL, News::None), Do::Ask(ApiCall { method: "GET", .. })));
        let ours = json!({"spec": {"holderIdentity": "me"}});
        let put = lease.step(Moment(2), WALL, News::Answer(Ok(ours)));
        let Do::Ask(call) = &put else { panic!("{put:?}") };
        assert_eq!(call.body["spec"]["holderIdentity"], "");
        assert_eq!(written(&mut lease, put, 3), Do::GivenBack { was_ours: Ok(true) });
    }

    #[test]
    fn a_right_that_is_missing_is_named_and_it_goes_on() {
        let mut lease = lease();
        assert!(matches!(lease.step(Moment(0), WALL, News::None), Do::Ask(_)));
        let Do::Troubled { why } = lease.step(Moment(1), WALL, failure(403)) else { panic!() };
        assert!(why.contains("resources: [\"leases\"]"), "{why}");
        assert_eq!(lease.step(Moment(1), WALL, News::None), Do::Wait(Moment(2_001)));
        assert!(matches!(lease.step(Moment(2_001), WALL, News::Silence), Do::Ask(_)));
        assert_eq!(lease.step(Moment(62_001), WALL, News::Silence), Do::Troubled { why: "no answer".to_owned() });
    }
}
