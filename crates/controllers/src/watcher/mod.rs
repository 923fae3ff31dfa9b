//! Follows one kind: a watch that begins with everything there is, and starts again when the thread is lost.
//!
//! ```text
//! everything ──▶ Observed …, then Synced (first time) or Relisted ──▶ changes ──▶ Observed, Gone
//!  ▲                                                                   │ ended: resume from the last version
//!  └──────────── 410 Gone, silence, or the kind went away ◀────────────┘
//! ```
//!
//! A state machine with one step, [`Watcher::step`]: in goes what was heard of the request, and when; out comes what to do next. It has no
//! clock, no runtime and no client, so that the shell drives it over a network and a rehearsal over a simulated one:
//!
//! ```text
//! let mut next = watcher.step(now, News::None);
//! loop match next {
//!     Do::Ask(ask)     => send it and drop what was open;    next = watcher.step(now, News::None)
//!     Do::Wake(wake)   => hand it to the operator;           next = watcher.step(now, News::None)
//!     Do::Report(says) => tell health;                       next = watcher.step(now, News::None)
//!     Do::Wait(until)  => next = watcher.step(now, whatever comes of the request, or News::Silence at `until`)
//! }
//! ```
//!
//! A server that cannot begin a watch so (before 1.32, or told not to) is asked for a list in pages. Objects are read one by one,
//! straight from the bytes of the piece or page: that is the most that is held. Pods, of which there are many, are asked for in protocol
//! buffers; from a server that speaks JSON only, or in a way that is not understood, JSON will do.
//!
//! **Silence.** A server tells a quiet watch once a minute how far it has come (a bookmark), and ends each watch after the time that it was
//! asked for. A watch that says nothing for half of the staleness limit is given up, and what it would have shown is asked for anew, all of
//! it: so a connection that is dead costs half a limit, and a kind is *stale* only when the server could not be made to talk at all. While it
//! is, nobody may take what is known of it for the truth: [`Wake::Stale`].

mod events;
mod frames;
mod words;

pub use events::escaped;
pub use words::MISSING;

use crate::dispatch::{Refused, Trouble};
use crate::limits::{
    BEGINNING_SILENCE, LIST_PAGE, LIST_PAGES_MAX, MISSING_RETRY, OPEN_WITHIN, PAGE_WITHIN, RETRY_FIRST, RETRY_MOST,
    WATCH_AGAIN,
};
use crate::moment::Moment;
use crate::resource::{Resource, WATCHED};
use crate::wake::Wake;
use bytes::Bytes;
use events::{Event, Page};
use frames::{Frame, Frames};
use kerf_cloud::CloudProvider;
use kerf_mirror::{Kind, ObjectKey};
use kerf_model::Text;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What answers may be.
pub const JSON: &str = "application/json";
/// A server that does not know the first gives the second.
pub const WIRE_OR_JSON: &str = "application/vnd.kubernetes.protobuf;stream=watch,application/json";

/// What to follow.
#[derive(Debug, Clone)]
pub struct Source {
    pub kind: Kind,
    pub resource: Resource,
    /// Whether it counts as empty as long as the server does not know the kind.
    pub is_optional: bool,
}

impl Source {
    /// Only for node classes, as their keys have it.
    fn class_kind(&self) -> Option<Text> {
        let Resource { kind, group, .. } = &self.resource;
        (self.kind == Kind::NodeClass).then(|| format!("{kind}.{group}").into())
    }
}

/// All kinds that an operator follows: the provider's classes first, what is bought and for whom last.
pub fn sources(cloud: &dyn CloudProvider, unwanted: &[Kind]) -> Vec<Source> {
    let classes = cloud.node_classes().into_iter().map(|class| {
        let resource = Resource {
            group: class.group,
            version: class.version,
            plural: class.plural,
            kind: class.kind,
            is_namespaced: false,
        };
        (Kind::NodeClass, resource)
    });
    classes
        .chain(WATCHED)
        .filter(|(kind, _)| !unwanted.contains(kind))
        .map(|(kind, resource)| Source {
            kind,
            resource,
            // Roles of older charts do not know limit ranges: only DaemonSets without requests would notice.
            is_optional: matches!(kind, Kind::NodeOverlay | Kind::CapacityBuffer | Kind::LimitRange),
        })
        .collect()
}

/// What came of the request.
#[derive(Debug)]
pub enum News {
    /// Nothing yet: the watcher was not waiting.
    None,
    /// Nothing until the time that the watcher wanted to wait for.
    Silence,
    Refused(Refused),
    /// A watch has begun, in protocol buffers or in JSON.
    Opened {
        is_wire: bool,
    },
    /// The next bytes of a watch, cut anywhere.
    Piece(Bytes),
    /// The watch is over: the server has ended it, or the connection broke, and how.
    Closed {
        broke: Option<String>,
    },
    /// The whole answer to a list.
    Page(Bytes),
}

/// What to do next.
#[derive(Debug)]
pub enum Do {
    /// Makes this request; what was open before is given up.
    Ask(Ask),
    Wake(Wake),
    Report(Report),
    /// Nothing before there is news, or until then.
    Wait(Moment),
}

/// A GET.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub path: String,
    pub accept: &'static str,
    /// Answered in pieces; else as a whole.
    pub is_watch: bool,
}

/// What readiness should know of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// It is not there yet, and why.
    Waits(String),
    /// It is there.
    Has,
    /// Nothing was heard of it for longer than the limit; or it was again.
    Stale(bool),
}

/// Node classes are one kind to the operator, however many a provider has: they are synced with the last of them, and stale with the first.
#[derive(Debug)]
pub struct Siblings {
    n_unsynced: AtomicUsize,
    n_stale: AtomicUsize,
}

impl Siblings {
    /// Of so many watchers of one kind.
    pub fn new(n_watchers: usize) -> Arc<Self> {
        Arc::new(Self { n_unsynced: AtomicUsize::new(n_watchers), n_stale: AtomicUsize::new(0) })
    }
}

pub struct Watcher {
    source: Source,
    siblings: Arc<Siblings>,
    stale_after: Duration,
    state: State,
    /// What is to be done before the state is looked at again.
    out: VecDeque<Do>,
    /// Whether the server can begin a watch with what is there.
    can_begin_with_all: bool,
    /// Whether it is asked to speak in protocol buffers where we read them.
    reads_wire: bool,
    shown: Shown,
    /// What was last complained about.
    told: Option<Trouble>,
    /// After the next trouble.
    backoff: Duration,
    /// When what is known was last known to be all there is.
    heard: Moment,
    is_stale: bool,
}

/// What the operator was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shown {
    Nothing,
    /// Something: another beginning must say what is gone.
    Some,
    /// Everything, once.
    Everything,
}

#[derive(Debug)]
enum State {
    /// Nothing is asked before then.
    Resting {
        until: Moment,
        then: From,
    },
    /// A page of a list is asked for.
    Listing {
        list: List,
        by: Moment,
    },
    /// Its objects are shown.
    Showing {
        list: List,
        page: Page,
    },
    /// A watch is asked for.
    Opening {
        thread: Thread,
        by: Moment,
    },
    Following {
        thread: Thread,
        frames: Frames,
        by: Moment,
    },
}

/// Where to begin.
#[derive(Debug, Clone)]
enum From {
    Everything,
    After(String),
}

/// A list on its way.
#[derive(Debug)]
struct List {
    token: String,
    n_pages: usize,
    /// Of the first page: what came later is in no page for certain.
    version: Option<u64>,
    /// Keys are gathered only when something may have to be forgotten.
    present: Option<Vec<ObjectKey>>,
}

/// How far a watch has come.
#[derive(Debug)]
struct Thread {
    asked_at: Moment,
    version: String,
    /// Until everything that was there has been shown.
    is_beginning: bool,
    present: Option<Vec<ObjectKey>>,
    is_silent: bool,
}

impl Thread {
    /// From where another watch can go on; everything when this one did not come so far.
    fn resume(&self) -> From {
        if self.is_beginning || self.version.is_empty() { From::Everything } else { From::After(self.version.clone()) }
    }

    fn remember(&mut self, seen: Option<String>) {
        if let Some(seen) = seen.filter(|seen| !seen.is_empty()) {
            self.version = seen;
        }
    }
}

/// Why following stopped for a moment.
enum Break {
    Trouble {
        verb: &'static str,
        trouble: Trouble,
    },
    /// The server does not begin watches with what is there.
    NeedsList,
    /// What it says in protocol buffers is not understood.
    NeedsJson {
        message: String,
    },
}

impl Watcher {
    pub fn new(source: Source, siblings: Arc<Siblings>, stale_after: Duration, now: Moment) -> Self {
        let reads_wire = source.kind.has_wire_form();
        Self {
            source,
            siblings,
            stale_after,
            state: State::Resting { until: now, then: From::Everything },
            out: VecDeque::from([Do::Report(Report::Waits("being listed".to_owned()))]),
            can_begin_with_all: true,
            reads_wire,
            shown: Shown::Nothing,
            told: None,
            backoff: RETRY_FIRST,
            heard: now,
            is_stale: false,
        }
    }

    pub fn source(&self) -> &Source {
        &self.source
    }

    /// When what is known was last known to be all there is.
    pub fn heard(&self) -> Moment {
        self.heard
    }

    /// Whether what is open matters still; while it rests it does not.
    pub fn listens(&self) -> bool {
        !matches!(self.state, State::Resting { .. })
    }

    /// Takes in what was heard, and says what to do next.
    pub fn step(&mut self, now: Moment, news: News) -> Do {
        self.hear(now, news);
        loop {
            if let Some(next) = self.out.pop_front() {
                return next;
            }
            if let Some(until) = self.go_on(now) {
                return Do::Wait(until);
            }
        }
    }

    /// How long a watch shall last. Those that began together do not end together; and under a short limit, where the minute between two
    /// bookmarks is too long, its regular end is the sign of life.
    fn lasts(&self) -> Duration {
        let limit = self.stale_after.as_secs();
        let spread = self.source.resource.plural.bytes().fold(0, |sum, byte| (sum + u64::from(byte)) % 45);
        Duration::from_secs(if limit >= 180 { 240 + spread } else { (limit * 2 / 5).max(1) })
    }

    /// A watch that says nothing for so long is given up.
    fn patience(&self) -> Duration {
        (self.stale_after / 2).min(self.longest())
    }

    /// A watch that is not over after so long is given up, however much it says: the server was to end it before.
    fn longest(&self) -> Duration {
        self.lasts() + Duration::from_secs(30)
    }

    /// Until when a watch may be silent that was asked for then.
    fn silent_until(&self, asked_at: Moment, is_beginning: bool, now: Moment) -> Moment {
        let silence = if is_beginning { BEGINNING_SILENCE } else { self.patience() };
        now.after(silence).min(asked_at.after(self.longest()))
    }

    /// A deadline, shorter where a short limit leaves no time for it.
    fn within(&self, deadline: Duration) -> Duration {
        deadline.min(self.patience())
    }

    /// Whether nobody knows any longer that going on from the last version would show everything in time.
    fn is_doubtful(&self, now: Moment) -> bool {
        now.since(self.heard) >= self.patience()
    }

    /// When the kind will count as stale; never when it does already, or was not there yet.
    fn stale_at(&self) -> Option<Moment> {
        (!self.is_stale && self.shown == Shown::Everything).then(|| self.heard.after(self.stale_after))
    }

    fn hear(&mut self, now: Moment, news: News) {
        match news {
            News::None => {}
            News::Silence => {
                if self.stale_at().is_some_and(|then| then <= now) {
                    self.set_stale(true);
                }
                self.wait_is_over(now);
            }
            News::Refused(refused) => self.refused(now, refused),
            News::Opened { is_wire } => {
                if !matches!(self.state, State::Opening { .. }) {
                    return;
                }
                if let State::Opening { thread, .. } = self.take_state(now) {
                    if !thread.is_beginning {
                        self.out.push_back(Do::Report(Report::Has));
                    }
                    let by = self.silent_until(thread.asked_at, thread.is_beginning, now);
                    self.state = State::Following { thread, frames: Frames::new(is_wire), by };
                }
            }
            News::Piece(piece) => {
                let State::Following { thread, .. } = &self.state else { return };
                let until = self.silent_until(thread.asked_at, thread.is_beginning, now);
                if let State::Following { frames, by, .. } = &mut self.state {
                    frames.feed(piece);
                    *by = until;
                }
            }
            News::Closed { broke } => self.closed(now, broke),
            News::Page(bytes) => {
                if !matches!(self.state, State::Listing { .. }) {
                    return;
                }
                if let State::Listing { list, .. } = self.take_state(now) {
                    match Page::read(bytes) {
                        Ok(page) => self.state = State::Showing { list, page },
                        Err(message) => {
                            let trouble = Trouble::Unreachable { message };
                            self.stop(now, From::Everything, Break::Trouble { verb: "list", trouble }, None);
                        }
                    }
                }
            }
        }
    }

    /// Takes the next small step of the state. None while there is more to do; else until when to wait.
    fn go_on(&mut self, now: Moment) -> Option<Moment> {
        let earliest = |by: Moment, stale_at: Option<Moment>| stale_at.map_or(by, |then| then.min(by));
        match &mut self.state {
            State::Resting { until, then } => {
                if *until > now {
                    return Some(earliest(*until, self.stale_at()));
                }
                let then = then.clone();
                self.begin(now, then);
                None
            }
            State::Listing { by, .. } | State::Opening { by, .. } => Some(earliest(*by, self.stale_at())),
            State::Showing { .. } => {
                self.show_next(now);
                None
            }
            State::Following { frames, by, .. } => {
                let is_wire = frames.is_wire();
                let event = match frames.next() {
                    Ok(None) => {
                        let by = *by;
                        return Some(earliest(by, self.stale_at()));
                    }
                    Ok(Some(Frame::Line(line))) => events::of_line(&self.source, line)
                        .map_err(|message| Break::Trouble { verb: "watch", trouble: Trouble::Unreachable { message } }),
                    Ok(Some(Frame::Wire(frame))) => {
                        events::of_wire(&self.source, frame).map(Some).map_err(|message| Break::NeedsJson { message })
                    }
                    Err(message) if is_wire => Err(Break::NeedsJson { message }),
                    Err(message) => Err(Break::Trouble { verb: "watch", trouble: Trouble::Unreachable { message } }),
                };
                let outcome = match event {
                    Ok(None) => Ok(()),
                    Ok(Some(event)) => self.take(now, event),
                    Err(stop) => Err(stop),
                };
                if let Err(stop) = outcome {
                    self.break_off(now, stop);
                }
                None
            }
        }
    }

    /// Asks for a list or a watch.
    fn begin(&mut self, now: Moment, from: From) {
        // Keys are gathered only when something may have to be forgotten.
        let present = (self.shown > Shown::Nothing).then(Vec::new);
        let (version, is_beginning) = match from {
            From::Everything if !self.can_begin_with_all => {
                return self.ask_page(now, List { token: String::new(), n_pages: 0, version: None, present });
            }
            From::Everything => (String::new(), true),
            From::After(version) => (version, false),
        };
        let place = match is_beginning {
            true => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
            false => format!("resourceVersion={version}"),
        };
        let (collection, seconds) = (self.source.resource.collection(), self.lasts().as_secs());
        let path = format!("{collection}?watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&{place}");
        let accept = if self.reads_wire { WIRE_OR_JSON } else { JSON };
        self.out.push_back(Do::Ask(Ask { path, accept, is_watch: true }));
        let present = present.filter(|_| is_beginning);
        let thread = Thread { asked_at: now, version, is_beginning, present, is_silent: true };
        self.state = State::Opening { thread, by: now.after(self.within(OPEN_WITHIN)) };
    }

    fn ask_page(&mut self, now: Moment, list: List) {
        let mut path = format!("{}?limit={LIST_PAGE}", self.source.resource.collection());
        if !list.token.is_empty() {
            path.push_str("&continue=");
            path.push_str(&escaped(&list.token));
        }
        self.out.push_back(Do::Ask(Ask { path, accept: JSON, is_watch: false }));
        self.state = State::Listing { list, by: now.after(self.within(PAGE_WITHIN)) };
    }

    /// Shows one object of a page, or asks for the next page, or goes over to watching.
    fn show_next(&mut self, now: Moment) {
        let State::Showing { list, page } = &mut self.state else { return };
        let event = page.next().map(|text| events::there(&self.source, text));
        let key = match &event {
            Some(Event::There(object)) => Some(object.key()),
            Some(Event::Unread { key, .. }) => key.clone(),
            _ => None,
        };
        if let (Some(present), Some(key)) = (&mut list.present, key) {
            present.push(key);
        }
        match event {
            Some(Event::There(object)) => return self.show(Wake::Observed(object)),
            Some(Event::Unread { wake, .. }) => return self.show(wake),
            _ => {}
        }
        let State::Showing { mut list, mut page } = self.take_state(now) else { return };
        list.n_pages += 1;
        list.version = list.version.or_else(|| page.version.parse().ok());
        if page.token.is_empty() {
            self.listed(now, list.version, list.present);
            self.state = State::Resting { until: now, then: From::After(std::mem::take(&mut page.version)) };
        } else if list.n_pages >= LIST_PAGES_MAX {
            let message = format!("the list has more than {LIST_PAGES_MAX} pages");
            let trouble = Trouble::Unreachable { message };
            self.stop(now, From::Everything, Break::Trouble { verb: "list", trouble }, None);
        } else {
            list.token = std::mem::take(&mut page.token);
            self.ask_page(now, list);
        }
    }

    fn take(&mut self, now: Moment, event: Event) -> Result<(), Break> {
        let (patience, longest) = (self.patience(), self.longest());
        let State::Following { thread, by, .. } = &mut self.state else { return Ok(()) };
        thread.is_silent = false;
        let is_beginning = thread.is_beginning;
        match event {
            Event::There(object) => {
                if let Some(present) = &mut thread.present {
                    present.push(object.key());
                }
                thread.remember(object.metadata().resource_version.clone());
                self.show(Wake::Observed(object));
            }
            Event::Unread { key, wake, version } => {
                if let (Some(present), Some(key)) = (&mut thread.present, key) {
                    present.push(key);
                }
                thread.remember(version);
                self.show(wake);
            }
            Event::Gone { key, version } => {
                let at = version.as_deref().and_then(|text| text.parse().ok());
                thread.remember(version);
                self.out.push_back(Do::Wake(Wake::Gone(key, at)));
            }
            Event::Bookmark { is_end, version } => {
                // A server that sends other bookmarks first has not understood where to begin.
                if is_beginning && !is_end {
                    return Err(Break::NeedsList);
                }
                let at = version.as_deref().and_then(|text| text.parse().ok());
                thread.remember(version);
                if is_beginning {
                    thread.is_beginning = false;
                    *by = now.after(patience).min(thread.asked_at.after(longest));
                    let present = thread.present.take();
                    self.listed(now, at, present);
                }
            }
            Event::Ended { code, message } => {
                let trouble = match code {
                    410 => Trouble::Expired,
                    code => Trouble::Other { status: code, message },
                };
                return Err(Break::Trouble { verb: "watch", trouble });
            }
        }
        if !is_beginning {
            self.is_well(now);
        }
        Ok(())
    }

    /// There is something, whether it can be read or not.
    fn show(&mut self, wake: Wake) {
        self.shown = self.shown.max(Shown::Some);
        self.out.push_back(Do::Wake(wake));
    }

    /// Everything that was there at a version has been shown.
    fn listed(&mut self, now: Moment, at: Option<u64>, present: Option<Vec<ObjectKey>>) {
        #[cfg(feature = "planted")]
        let present = present.filter(|_| !crate::planted::has(crate::planted::Bug::StaleList));
        if let Some(present) = present {
            let (kind, class_kind) = (self.source.kind, self.source.class_kind());
            self.out.push_back(Do::Wake(Wake::Relisted { kind, class_kind, at, present }));
        }
        self.synced();
        self.out.push_back(Do::Report(Report::Has));
        self.is_well(now);
    }

    fn synced(&mut self) {
        if std::mem::replace(&mut self.shown, Shown::Everything) == Shown::Everything {
            return;
        }
        if self.siblings.n_unsynced.fetch_sub(1, Ordering::AcqRel) <= 1 {
            self.out.push_back(Do::Wake(Wake::Synced(self.source.kind)));
        }
    }

    /// What is known is all there is.
    fn is_well(&mut self, now: Moment) {
        self.heard = now;
        self.backoff = RETRY_FIRST;
        self.told = None;
        if self.is_stale {
            self.set_stale(false);
        }
    }

    fn set_stale(&mut self, is_stale: bool) {
        self.is_stale = is_stale;
        self.out.push_back(Do::Report(Report::Stale(is_stale)));
        let n_stale = &self.siblings.n_stale;
        let is_first = is_stale && n_stale.fetch_add(1, Ordering::AcqRel) == 0;
        let was_last = !is_stale && n_stale.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_first || was_last {
            self.out.push_back(Do::Wake(Wake::Stale(self.source.kind, is_stale)));
        }
    }

    /// Waited in vain.
    fn wait_is_over(&mut self, now: Moment) {
        let no_answer =
            |within: Duration| Trouble::Unreachable { message: format!("no answer within {} s", within.as_secs()) };
        let (from, stop) = match &self.state {
            State::Listing { by, .. } if *by <= now => {
                (From::Everything, Break::Trouble { verb: "list", trouble: no_answer(self.within(PAGE_WITHIN)) })
            }
            State::Opening { thread, by } if *by <= now => {
                (thread.resume(), Break::Trouble { verb: "watch", trouble: no_answer(self.within(OPEN_WITHIN)) })
            }
            // It does not know how to end what is there.
            State::Following { thread, by, .. } if *by <= now && thread.is_beginning => {
                (From::Everything, Break::NeedsList)
            }
            State::Following { thread, by, .. } if *by <= now => {
                let message = match thread.asked_at.after(self.longest()) <= now {
                    true => "the watch does not end, although it was to last no longer".to_owned(),
                    false => format!("the watch said nothing for {} s", self.patience().as_secs()),
                };
                self.complain(now, "watch", Trouble::Unreachable { message });
                // It was waited for long enough.
                self.state = State::Resting { until: now, then: From::Everything };
                return;
            }
            _ => return,
        };
        self.stop(now, from, stop, None);
    }

    fn refused(&mut self, now: Moment, refused: Refused) {
        let trouble = Trouble::of(refused.failure);
        let is_not_understood = matches!(trouble, Trouble::Other { status: 400 | 422, .. });
        match &self.state {
            State::Opening { thread, .. } if thread.is_beginning && is_not_understood => {
                self.stop(now, From::Everything, Break::NeedsList, None);
            }
            State::Opening { thread, .. } => {
                let from = thread.resume();
                self.stop(now, from, Break::Trouble { verb: "watch", trouble }, refused.retry_after);
            }
            State::Listing { .. } => {
                self.stop(now, From::Everything, Break::Trouble { verb: "list", trouble }, refused.retry_after);
            }
            _ => {}
        }
    }

    fn closed(&mut self, now: Moment, broke: Option<String>) {
        if !matches!(self.state, State::Following { .. }) {
            return;
        }
        let State::Following { thread, .. } = self.take_state(now) else { return };
        // Connections break; going on from the last version loses nothing.
        if let Some(message) = &broke {
            tracing::debug!(kind = %self.source.kind, error = message, "a watch broke");
        }
        let lasted = now.since(thread.asked_at);
        if broke.is_none() && !thread.is_beginning && lasted.saturating_add(Duration::from_secs(1)) >= self.lasts() {
            // Ended as it was asked to: until now it has told everything.
            self.is_well(now);
        }
        let from = thread.resume();
        if matches!(from, From::Everything) {
            // Ended as it was asked to, and so it would be each time: what is there takes longer to show than a watch lasts.
            if broke.is_none() && thread.is_beginning && lasted.saturating_add(Duration::from_secs(1)) >= self.lasts() {
                return self.stop(now, from, Break::NeedsList, None);
            }
            let message = "the connection ended before everything was seen".to_owned();
            let trouble = Trouble::Unreachable { message };
            return self.stop(now, from, Break::Trouble { verb: "list", trouble }, None);
        }
        // A watch that ends at once without a word is not resumed at once.
        let is_too_short = thread.is_silent && lasted < WATCH_AGAIN;
        let until = if is_too_short { now.after(WATCH_AGAIN) } else { now };
        let then = if self.is_doubtful(now) { From::Everything } else { from };
        self.state = State::Resting { until, then };
    }

    /// An event says that this watch does not go on.
    fn break_off(&mut self, now: Moment, stop: Break) {
        let from = match &self.state {
            State::Following { thread, .. } => thread.resume(),
            _ => From::Everything,
        };
        self.stop(now, from, stop, None);
    }

    fn stop(&mut self, now: Moment, from: From, stop: Break, retry_after: Option<Duration>) {
        let (verb, trouble) = match stop {
            Break::NeedsList => {
                self.can_begin_with_all = false;
                self.state = State::Resting { until: now, then: From::Everything };
                return;
            }
            Break::NeedsJson { message } => {
                tracing::info!(kind = %self.source.kind, error = message, "asking for JSON instead of protocol buffers");
                self.reads_wire = false;
                self.state = State::Resting { until: now, then: from };
                return;
            }
            Break::Trouble { verb, trouble } => (verb, trouble),
        };
        let is_expired = trouble == Trouble::Expired;
        let is_missing = trouble == Trouble::Missing;
        // Only what is too old, went away as a kind, or was silent for long needs a new list.
        let needs_all = is_expired || is_missing || self.is_doubtful(now);
        let then = if needs_all { From::Everything } else { from };
        if !is_expired {
            self.complain(now, verb, trouble);
        }
        let wait = match retry_after {
            _ if is_missing => MISSING_RETRY,
            Some(after) => after.clamp(self.backoff, RETRY_MOST.max(self.backoff)),
            None => self.backoff,
        };
        self.backoff = (self.backoff * 2).min(RETRY_MOST);
        self.state = State::Resting { until: now.after(wait), then };
    }

    /// Says once what is wrong, with what to do about it.
    fn complain(&mut self, now: Moment, verb: &'static str, trouble: Trouble) {
        let words = words::words(verb, &self.source.resource, &trouble);
        let is_known =
            self.told.as_ref().is_some_and(|told| std::mem::discriminant(told) == std::mem::discriminant(&trouble));
        let is_lasting = matches!(trouble, Trouble::Missing | Trouble::Forbidden { .. });
        if self.source.is_optional && is_lasting {
            if !is_known {
                tracing::info!("{words}; going on without any");
            }
            self.out.push_back(Do::Report(Report::Has));
            self.synced();
            // None is all there is.
            self.heard = now;
            if self.is_stale {
                self.set_stale(false);
            }
        } else {
            if !is_known {
                tracing::error!("{words}");
            }
            // What was seen stays true enough while the server is away; only what cannot come back by itself counts.
            if is_lasting || self.shown != Shown::Everything {
                self.out.push_back(Do::Report(Report::Waits(words)));
            }
        }
        self.told = Some(trouble);
    }

    /// Leaves a state behind that asks for everything, should nobody put another one there.
    fn take_state(&mut self, now: Moment) -> State {
        std::mem::replace(&mut self.state, State::Resting { until: now, then: From::Everything })
    }
}

#[cfg(test)]
mod tests;
