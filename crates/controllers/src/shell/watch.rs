//! Follows one kind: a watch that begins with everything there is, and starts again when the thread is lost.
//!
//! ```text
//! everything ──▶ Observed …, then Synced (first time) or Relisted ──▶ changes ──▶ Observed, Gone
//!  ▲                                                                   │ ended: resume from the last version
//!  └─────────────────────────── 410 Gone, or the kind went away ◀──────┘
//! ```
//!
//! A server that cannot begin a watch so (before 1.32, or told not to) is asked for a list in pages. Objects are read one by one,
//! straight from the text of the line or page: that is the most that is held. Pods, of which there are many, are asked for in protocol
//! buffers; from a server that speaks JSON only, or in a way that is not understood, JSON will do.

use super::caller::{JSON, Trouble, WIRE_OR_JSON, fetch, open};
use super::health::{Health, MISSING};
use super::seat::Message;
use crate::resource::Resource;
use crate::wake::Wake;
use bytes::Bytes;
use http_body_util::BodyExt;
use kerf_mirror::{Kind, Object, ObjectKey, Unreadable, WireEvent, WireStatus, wire_frame};
use kube::Client;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Objects per page: as kubectl asks.
const PAGE: usize = 500;
/// Of the bookmark after everything that was there.
const IS_END: &str = "k8s.io/initial-events-end";
/// After trouble, and after trouble upon trouble.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MOST: Duration = Duration::from_secs(30);
/// A definition that is not there may be applied at any moment.
const MISSING_RETRY: Duration = Duration::from_secs(2);
/// A server that says nothing for so long in the middle of what is there does not know how to end it.
const BEGINNING_SILENCE: Duration = Duration::from_secs(10);
/// A watch that ends sooner than this without a word is not resumed at once.
const TOO_SHORT: Duration = Duration::from_secs(1);

/// What to follow.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) kind: Kind,
    pub(super) resource: Resource,
    /// Whether it counts as empty as long as the server does not know the kind.
    pub(super) is_optional: bool,
}

pub(super) struct Follower {
    source: Source,
    client: Client,
    inbox: mpsc::Sender<Message>,
    health: Arc<Health>,
    /// Node classes are one kind to the operator, however many a provider has: they are synced with the last of them.
    classes_left: Arc<AtomicUsize>,
    /// Whether the server can begin a watch with what is there.
    can_begin_with_all: bool,
    /// Whether it is asked to speak in protocol buffers where we read them.
    reads_wire: bool,
    /// Whether anything was shown to the operator before.
    has_shown: bool,
    is_synced: bool,
    /// Only for node classes: what was shown. The operator cannot tell the classes of one provider apart by kind.
    classes: BTreeSet<ObjectKey>,
    /// What was last complained about.
    told: Option<Trouble>,
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
    /// The operator is not there any more.
    Nobody,
}

/// Where a watch begins.
enum Start {
    Everything,
    After(String),
}

impl Follower {
    pub(super) fn new(
        source: Source,
        client: Client,
        inbox: mpsc::Sender<Message>,
        health: Arc<Health>,
        classes_left: Arc<AtomicUsize>,
    ) -> Self {
        health.waits(source.resource.plural, "being listed");
        let reads_wire = source.kind.has_wire_form();
        Self {
            source,
            client,
            inbox,
            health,
            classes_left,
            can_begin_with_all: true,
            reads_wire,
            has_shown: false,
            is_synced: false,
            classes: BTreeSet::new(),
            told: None,
        }
    }

    /// Until the operator is gone.
    pub(super) async fn follow(mut self) {
        let mut version = None;
        let mut wait = RETRY_FIRST;
        loop {
            let outcome = match version.take() {
                None if self.can_begin_with_all => self.watch(Start::Everything).await,
                None => self.list().await,
                Some(from) => self.watch(Start::After(from)).await,
            };
            match outcome {
                Ok(next) => {
                    version = Some(next);
                    wait = RETRY_FIRST;
                    self.told = None;
                }
                Err((_, Break::Nobody)) => return,
                Err((_, Break::NeedsList)) => self.can_begin_with_all = false,
                Err((resume, Break::NeedsJson { message })) => {
                    tracing::info!(kind = %self.source.kind, error = message, "asking for JSON instead of protocol buffers");
                    self.reads_wire = false;
                    version = resume;
                }
                Err((resume, Break::Trouble { verb, trouble })) => {
                    let is_expired = trouble == Trouble::Expired;
                    let is_missing = trouble == Trouble::Missing;
                    // Only what is too old, or went away as a kind, needs a new list.
                    version = resume.filter(|_| !is_expired && !is_missing);
                    if !is_expired && self.complain(verb, trouble).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(if is_missing { MISSING_RETRY } else { wait }).await;
                    wait = (wait * 2).min(RETRY_MOST);
                }
            }
        }
    }

    /// Shows everything there is. Answers the version from which to watch.
    async fn list(&mut self) -> Result<String, (Option<String>, Break)> {
        // Keys are gathered only when something may have to be forgotten.
        let mut present = self.has_shown.then(Vec::new);
        let mut token = String::new();
        loop {
            let path = format!("{}?limit={PAGE}{token}", self.source.resource.collection());
            let bytes = fetch(&self.client, "GET", &path, "", Bytes::new())
                .await
                .map_err(|refused| (None, Break::Trouble { verb: "list", trouble: Trouble::of(refused.failure) }))?;
            let page: Page<'_> = serde_json::from_slice(&bytes).map_err(|error| (None, unreadable("list", &error)))?;
            for item in page.items.iter().flatten() {
                let key = self.show(item.get()).await.map_err(|stop| (None, stop))?;
                if let (Some(present), Some(key)) = (&mut present, key) {
                    present.push(key);
                }
            }
            match page.metadata.continue_.as_deref() {
                Some(next) if !next.is_empty() => token = format!("&continue={}", escaped(next)),
                _ => {
                    let version = page.metadata.resource_version.unwrap_or_default().into_owned();
                    self.listed(present).await.map_err(|stop| (None, stop))?;
                    return Ok(version);
                }
            }
        }
    }

    async fn listed(&mut self, present: Option<Vec<ObjectKey>>) -> Result<(), Break> {
        match present {
            None => {}
            Some(present) if self.source.kind == Kind::NodeClass => {
                let present: BTreeSet<ObjectKey> = present.into_iter().collect();
                for key in std::mem::take(&mut self.classes) {
                    if !present.contains(&key) {
                        self.wake(Wake::Gone(key, None)).await?;
                    }
                }
                self.classes = present;
            }
            Some(present) => self.wake(Wake::Relisted(self.source.kind, present)).await?,
        }
        self.has_shown = true;
        self.synced().await?;
        self.health.has(self.source.resource.plural);
        Ok(())
    }

    async fn synced(&mut self) -> Result<(), Break> {
        if std::mem::replace(&mut self.is_synced, true) {
            return Ok(());
        }
        let kind = self.source.kind;
        if kind == Kind::NodeClass && self.classes_left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Ok(());
        }
        self.wake(Wake::Synced(kind)).await
    }

    /// Shows what changes, after everything there is or after a version. Answers the version from which to go on when the server
    /// has ended the watch.
    async fn watch(&mut self, start: Start) -> Result<String, (Option<String>, Break)> {
        let begun = Instant::now();
        // Watches that began together do not end together.
        let seconds = 240 + self.source.resource.plural.bytes().fold(0, |sum, byte| (sum + u64::from(byte)) % 45);
        let collection = self.source.resource.collection();
        let (place, version) = match start {
            Start::Everything => ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(), String::new()),
            Start::After(version) => (format!("resourceVersion={version}"), version),
        };
        let path = format!("{collection}?watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&{place}");
        let is_beginning = version.is_empty();
        // Keys are gathered only when something may have to be forgotten.
        let present = (is_beginning && self.has_shown).then(Vec::new);
        let mut thread = Thread { is_beginning, present, version };
        let accept = if self.reads_wire { WIRE_OR_JSON } else { JSON };
        let (mut body, is_wire) = match open(&self.client, "GET", &path, "", Bytes::new(), accept).await {
            Ok(answer) => answer,
            Err(refused) => {
                let trouble = Trouble::of(refused.failure);
                let is_not_understood = matches!(trouble, Trouble::Other { status: 400 | 422, .. });
                return Err(match thread.is_beginning && is_not_understood {
                    true => (None, Break::NeedsList),
                    false => (thread.resume(), Break::Trouble { verb: "watch", trouble }),
                });
            }
        };
        if !thread.is_beginning {
            self.health.has(self.source.resource.plural);
        }
        let mut line = Vec::new();
        let mut is_silent = true;
        loop {
            let frame = if thread.is_beginning {
                let frame = tokio::time::timeout(BEGINNING_SILENCE, body.frame()).await;
                frame.map_err(|_| (None, Break::NeedsList))?
            } else {
                body.frame().await
            };
            let frame = match frame {
                None => break,
                Some(Ok(frame)) => frame,
                // Connections break; going on from the last version loses nothing.
                Some(Err(error)) => {
                    tracing::debug!(kind = %self.source.kind, error = %error, "a watch broke");
                    break;
                }
            };
            let Ok(data) = frame.into_data() else { continue };
            if is_wire {
                line.extend_from_slice(&data);
                let mut rest = &*line;
                loop {
                    let frame = wire_frame(rest).map_err(|message| (thread.resume(), Break::NeedsJson { message }))?;
                    let Some((frame, tail)) = frame else { break };
                    is_silent = false;
                    self.wire_event(frame, &mut thread).await.map_err(|stop| (thread.resume(), stop))?;
                    rest = tail;
                }
                let n_read = line.len() - rest.len();
                line.drain(..n_read);
                continue;
            }
            let mut rest = &*data;
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                is_silent = false;
                let (head, tail) = rest.split_at(end);
                // Most lines lie within one frame, and need not be copied.
                let outcome = if line.is_empty() {
                    self.event(head, &mut thread).await
                } else {
                    line.extend_from_slice(head);
                    let whole = std::mem::take(&mut line);
                    self.event(&whole, &mut thread).await
                };
                outcome.map_err(|stop| (thread.resume(), stop))?;
                rest = &tail[1..];
            }
            line.extend_from_slice(rest);
        }
        if is_silent && begun.elapsed() < TOO_SHORT {
            tokio::time::sleep(TOO_SHORT).await;
        }
        match thread.resume() {
            Some(version) => Ok(version),
            None => {
                let message = "the connection ended before everything was seen".to_owned();
                Err((None, Break::Trouble { verb: "list", trouble: Trouble::Unreachable { message } }))
            }
        }
    }

    async fn event(&mut self, line: &[u8], thread: &mut Thread) -> Result<(), Break> {
        if line.is_empty() {
            return Ok(());
        }
        // Nearly all lines are of this form; what is not, down to its last byte, is read with more care below.
        if let Some(text) = plainly_there(line)
            && let Ok(object) = Object::parse(self.source.kind, text)
        {
            return self.there(object, thread).await;
        }
        let event: Event<'_> = serde_json::from_slice(line).map_err(|error| unreadable("watch", &error))?;
        match event.kind {
            "ERROR" => {
                let status: Status = serde_json::from_str(event.object.get()).unwrap_or_default();
                return Err(refused(status.code, status.message));
            }
            "DELETED" => {
                let stub: Stub<'_> =
                    serde_json::from_str(event.object.get()).map_err(|error| unreadable("watch", &error))?;
                let key = self.key(&stub.metadata);
                self.classes.remove(&key);
                let at = stub.metadata.resource_version.as_deref().and_then(|text| text.parse().ok());
                self.wake(Wake::Gone(key, at)).await?;
                remember(&mut thread.version, stub.metadata.resource_version);
            }
            "BOOKMARK" => {
                let stub: Stub<'_> =
                    serde_json::from_str(event.object.get()).map_err(|error| unreadable("watch", &error))?;
                let is_end = stub.metadata.annotations.is_some_and(|annotations| annotations.is_end == "true");
                self.bookmark(is_end, stub.metadata.resource_version, thread).await?;
            }
            _ => {
                let text = event.object.get();
                match Object::parse(self.source.kind, text.as_bytes()) {
                    Ok(object) => self.there(object, thread).await?,
                    Err(error) => {
                        let stub = self.unread(text, error).await?;
                        if let (Some(present), Some(stub)) = (&mut thread.present, &stub) {
                            present.push(self.key(stub));
                        }
                        let seen = stub.and_then(|stub| stub.resource_version.map(Cow::into_owned));
                        remember(&mut thread.version, seen.map(Cow::Owned));
                    }
                }
            }
        }
        Ok(())
    }

    /// The same event, in protocol buffers.
    async fn wire_event(&mut self, frame: &[u8], thread: &mut Thread) -> Result<(), Break> {
        let event = WireEvent::read(frame).map_err(|message| Break::NeedsJson { message })?;
        if event.kind == "ERROR" {
            let status = WireStatus::read(event.object);
            return Err(refused(status.code, status.message));
        }
        let object = Object::parse_wire(self.source.kind, event.object);
        let object = object.map_err(|message| Break::NeedsJson { message })?;
        let metadata = object.metadata();
        match event.kind {
            "DELETED" => {
                let version = metadata.resource_version.clone();
                let at = version.as_deref().and_then(|text| text.parse().ok());
                self.wake(Wake::Gone(object.key(), at)).await?;
                remember(&mut thread.version, version.map(Cow::Owned));
                Ok(())
            }
            "BOOKMARK" => {
                let annotations = metadata.annotations.as_ref();
                let is_end = annotations.and_then(|all| all.get(IS_END)).is_some_and(|said| said == "true");
                self.bookmark(is_end, metadata.resource_version.as_deref().map(Cow::Borrowed), thread).await
            }
            _ => self.there(object, thread).await,
        }
    }

    /// Nothing changed up to a version; the first says that everything has been shown.
    async fn bookmark(
        &mut self,
        is_end: bool,
        version: Option<Cow<'_, str>>,
        thread: &mut Thread,
    ) -> Result<(), Break> {
        if thread.is_beginning {
            // A server that sends other bookmarks first has not understood where to begin.
            if !is_end {
                return Err(Break::NeedsList);
            }
            thread.is_beginning = false;
            self.listed(thread.present.take()).await?;
        }
        remember(&mut thread.version, version);
        Ok(())
    }

    /// An object is there, new or changed.
    async fn there(&mut self, object: Object, thread: &mut Thread) -> Result<(), Break> {
        let seen = object.metadata().resource_version.clone();
        if let Some(present) = &mut thread.present {
            present.push(object.key());
        }
        self.observed(object).await?;
        remember(&mut thread.version, seen.map(Cow::Owned));
        Ok(())
    }

    /// Shows one object of a list. None for one that has not even a name.
    async fn show(&mut self, text: &str) -> Result<Option<ObjectKey>, Break> {
        match Object::parse(self.source.kind, text.as_bytes()) {
            Ok(object) => {
                let key = object.key();
                self.observed(object).await?;
                Ok(Some(key))
            }
            Err(error) => {
                let stub = self.unread(text, error).await?;
                Ok(stub.map(|stub| self.key(&stub)))
            }
        }
    }

    async fn observed(&mut self, object: Object) -> Result<(), Break> {
        self.has_shown = true;
        if self.source.kind == Kind::NodeClass {
            self.classes.insert(object.key());
        }
        self.wake(Wake::Observed(Box::new(object))).await
    }

    /// Tells of an object that cannot be read. The others go on.
    async fn unread<'a>(&mut self, text: &'a str, error: Unreadable) -> Result<Option<StubMeta<'a>>, Break> {
        let stub = serde_json::from_str::<Stub<'a>>(text).ok().map(|stub| stub.metadata);
        let key = stub.as_ref().map(|stub| self.key(stub));
        let what = match &key {
            Some(key) => key.to_string(),
            None => format!("{} without a name", self.source.resource.kind),
        };
        let (field, message) = match error {
            Unreadable::Field { field, message } => (field, message),
            Unreadable::NotAnObject { message } => (String::new(), message),
            Unreadable::OtherVersion { known } => ("apiVersion".to_owned(), format!("only {known} is read")),
            Unreadable::UnknownKind | Unreadable::NotNeeded => ("kind".to_owned(), "it is of another kind".to_owned()),
        };
        self.wake(Wake::Unreadable { key, what, field, message }).await?;
        Ok(stub)
    }

    fn key(&self, stub: &StubMeta<'_>) -> ObjectKey {
        let Source { kind, resource, .. } = &self.source;
        let class_kind = (*kind == Kind::NodeClass).then(|| format!("{}.{}", resource.kind, resource.group).into());
        let namespace = if resource.is_namespaced { stub.namespace.as_deref().unwrap_or("default") } else { "" };
        ObjectKey { kind: *kind, class_kind, namespace: namespace.into(), name: (&*stub.name).into() }
    }

    async fn wake(&self, wake: Wake) -> Result<(), Break> {
        self.inbox.send(Message::Wake(wake)).await.map_err(|_| Break::Nobody)
    }

    /// Says once what is wrong, with what to do about it.
    async fn complain(&mut self, verb: &'static str, trouble: Trouble) -> Result<(), Break> {
        let resource = self.source.resource;
        let words = words(verb, &resource, &trouble);
        let is_known =
            self.told.as_ref().is_some_and(|told| std::mem::discriminant(told) == std::mem::discriminant(&trouble));
        if self.source.is_optional && matches!(trouble, Trouble::Missing | Trouble::Forbidden { .. }) {
            if !is_known {
                tracing::info!("{words}; going on without any");
            }
            self.health.has(resource.plural);
            self.synced().await?;
        } else {
            if !is_known {
                tracing::error!("{words}");
            }
            // What was seen stays true enough while the server is away; only what cannot come back by itself counts.
            let is_lasting = matches!(trouble, Trouble::Missing | Trouble::Forbidden { .. });
            if is_lasting || !self.is_synced {
                self.health.waits(resource.plural, words);
            }
        }
        self.told = Some(trouble);
        Ok(())
    }
}

/// What is wrong, and what to do about it.
fn words(verb: &str, resource: &Resource, trouble: &Trouble) -> String {
    let Resource { group, plural, .. } = resource;
    let name = if group.is_empty() { (*plural).to_owned() } else { format!("{plural}.{group}") };
    match trouble {
        Trouble::Missing => format!("the API server does not serve {name}: {MISSING}"),
        Trouble::Forbidden { message } => format!(
            "may not {verb} {name} ({message}); add to the ClusterRole: \
             {{apiGroups: [{group:?}], resources: [{plural:?}], verbs: [\"get\", \"list\", \"watch\"]}}"
        ),
        Trouble::Unauthorized { message } => {
            format!(
                "the API server does not accept our credentials to {verb} {name} ({message}); renew the token or certificate"
            )
        }
        Trouble::Expired => format!("what was seen of {name} is too old to go on from"),
        Trouble::Unreachable { message } => format!("cannot {verb} {name}: {message}; trying again"),
        Trouble::Other { status, message } => {
            format!("cannot {verb} {name}: {message} (status {status}); trying again")
        }
    }
}

/// How far a watch has come.
struct Thread {
    version: String,
    /// Until everything that was there has been shown.
    is_beginning: bool,
    present: Option<Vec<ObjectKey>>,
}

impl Thread {
    /// From where another watch can go on; None when this one did not come so far.
    fn resume(&self) -> Option<String> {
        (!self.is_beginning && !self.version.is_empty()).then(|| self.version.clone())
    }
}

/// What the server says instead of going on.
fn refused(code: u16, message: String) -> Break {
    let trouble = match code {
        410 => Trouble::Expired,
        code => Trouble::Other { status: code, message },
    };
    Break::Trouble { verb: "watch", trouble }
}

fn unreadable(verb: &'static str, error: &serde_json::Error) -> Break {
    let message = format!("the answer is not as expected: {error}");
    Break::Trouble { verb, trouble: Trouble::Unreachable { message } }
}

fn remember(version: &mut String, seen: Option<Cow<'_, str>>) {
    if let Some(seen) = seen.filter(|seen| !seen.is_empty()) {
        version.clear();
        version.push_str(&seen);
    }
}

/// A continue token is base64 for URLs on most servers, and opaque by contract.
pub fn escaped(token: &str) -> String {
    let mut out = String::with_capacity(token.len());
    for byte in token.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default, borrow)]
    metadata: PageMeta<'a>,
    #[serde(default, borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
struct PageMeta<'a> {
    #[serde(default, borrow, rename = "continue")]
    continue_: Option<Cow<'a, str>>,
    #[serde(default, borrow, rename = "resourceVersion")]
    resource_version: Option<Cow<'a, str>>,
}

/// The object of an event that says nothing else than that it is there.
fn plainly_there(line: &[u8]) -> Option<&[u8]> {
    let starts: [&[u8]; 2] = [br#"{"type":"ADDED","object":"#, br#"{"type":"MODIFIED","object":"#];
    starts.iter().find_map(|start| line.strip_prefix(*start))?.strip_suffix(b"}")
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Enough of an object to know which it is.
#[derive(Deserialize)]
struct Stub<'a> {
    #[serde(borrow)]
    metadata: StubMeta<'a>,
}

#[derive(Deserialize)]
struct StubMeta<'a> {
    /// A bookmark has none.
    #[serde(default, borrow)]
    name: Cow<'a, str>,
    #[serde(default, borrow)]
    namespace: Option<Cow<'a, str>>,
    #[serde(default, borrow, rename = "resourceVersion")]
    resource_version: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    annotations: Option<StubAnnotations<'a>>,
}

#[derive(Deserialize)]
struct StubAnnotations<'a> {
    /// On the bookmark after the last of what was there.
    #[serde(default, borrow, rename = "k8s.io/initial-events-end")]
    is_end: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    code: u16,
    message: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{NODE_POOLS, SERVICES};

    #[test]
    fn a_missing_right_is_named_with_the_rule_that_gives_it() {
        let trouble = Trouble::Forbidden { message: "services is forbidden".to_owned() };
        assert_eq!(
            words("list", &SERVICES, &trouble),
            "may not list services (services is forbidden); add to the ClusterRole: \
             {apiGroups: [\"\"], resources: [\"services\"], verbs: [\"get\", \"list\", \"watch\"]}"
        );
    }

    #[test]
    fn a_missing_kind_is_named_with_the_command_that_brings_it() {
        let words = words("list", &NODE_POOLS, &Trouble::Missing);
        assert!(words.starts_with("the API server does not serve nodepools.karpenter.sh: "), "{words}");
        assert!(words.contains("kerf crds | kubectl apply"), "{words}");
    }

    #[test]
    fn a_continue_token_survives_the_query() {
        assert_eq!(escaped("eyJ2Ijo_a-b.c~=+/"), "eyJ2Ijo_a-b.c~%3D%2B%2F");
    }

    #[test]
    fn a_page_is_read_without_its_items() {
        let page: Page<'_> = serde_json::from_str(
            r#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"x"},"items":[{"a":1}]}"#,
        )
        .unwrap();
        assert_eq!(page.items.unwrap()[0].get(), r#"{"a":1}"#);
        assert_eq!(page.metadata.continue_.as_deref(), Some("x"));
        let empty: Page<'_> = serde_json::from_str(r#"{"metadata":{},"items":null}"#).unwrap();
        assert!(empty.items.is_none());
    }
}
