//! Watches: from a revision on, or from what is there now, through selectors, in the form that the client wants.
//!
//! A watch is a value. The server fills it under the lock with what has already happened; later changes reach it through a
//! channel, and whoever serves it asks for the next bytes and keeps the time.
//!
//! Watchers of the version that is kept share its bytes. For others each object is converted as they take it; one that cannot be
//! ends their watch with an error.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::answer::{self, Form};
use super::{Answer, Body, Call, events, read};
use crate::clock::Clock;
use crate::error::{ApiError, ApiResult, FieldError};
use crate::kind::Resource;
use crate::selector::{Fields, Labels};
use crate::state::State;
use crate::store::{Change, ChangeKind, Stored};
use crate::table;

/// What is ready is sent together, up to about this size.
const TOGETHER_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub struct Watch {
    lens: Lens,
    /// What was there when it began and is not told yet. Lines are made as the client takes them: a hundred thousand pods are
    /// half a gigabyte of text.
    present: VecDeque<Arc<Stored>>,
    /// The word that ends the beginning.
    after_present: Option<Bytes>,
    ready: VecDeque<Bytes>,
    changes: UnboundedReceiver<Arc<Change>>,
    /// The last revision that the client knows of, for bookmarks.
    seen: u64,
    /// What happened up to here is not told: a watch of the future waits for it.
    skips_to: u64,
    /// Nothing comes after what is ready.
    is_over: bool,
    pub wants_bookmarks: bool,
    /// When the client wants it to end.
    pub ends_after: Option<Duration>,
}

/// What a watcher sees of a change.
#[derive(Debug)]
struct Lens {
    resource: Arc<Resource>,
    namespace: String,
    name: String,
    labels: Labels,
    fields: Fields,
    form: Form,
    include: String,
    clock: Clock,
    columns_told: bool,
}

impl State {
    pub(super) fn watch(&mut self, call: &Call<'_>) -> ApiResult<Answer> {
        let (labels, fields) = read::selectors(call)?;
        let asked = call.query.get("resourceVersion");
        let revision = read::revision_of(asked).map_err(|why| ApiError::new(500, "", why))?;
        let wants_initial = initial_events(call)?;
        let ends_after = call.query.number("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok());
        let (to, changes) = unbounded_channel();
        let mut watch = Watch {
            lens: Lens {
                resource: Arc::clone(&call.resource),
                namespace: call.namespace.clone(),
                name: call.name.clone(),
                labels,
                fields,
                form: answer::form(&call.request.accept).unwrap_or(Form::Json),
                include: call.query.get("includeObject").to_owned(),
                clock: self.clock.clone(),
                columns_told: false,
            },
            present: VecDeque::new(),
            after_present: None,
            ready: VecDeque::new(),
            changes,
            seen: self.store.revision(),
            skips_to: if revision > self.store.revision() { revision } else { 0 },
            is_over: false,
            wants_bookmarks: call.query.flag("allowWatchBookmarks"),
            ends_after: ends_after.filter(|seconds| *seconds > 0).map(Duration::from_secs),
        };
        let id = call.resource.id();
        match wants_initial {
            Some(true) => {
                self.tell_present(call, &mut watch);
                watch.after_present = watch.wants_bookmarks.then(|| watch.bookmark(true));
            }
            Some(false) if revision == 0 => {}
            None if revision == 0 => self.tell_present(call, &mut watch),
            Some(false) | None => match self.store.changes_after(&id, revision) {
                Ok(past) => {
                    for change in past {
                        watch.take(&change);
                    }
                }
                Err(too_old) => {
                    let error = ApiError::new(
                        410,
                        "Expired",
                        format!("too old resource version: {revision} ({})", too_old.oldest),
                    );
                    watch.ready.push_back(line("ERROR", error.to_status().to_string().as_bytes()));
                    watch.is_over = true;
                }
            },
        }
        if !watch.is_over {
            self.store.listen(&id, to);
        }
        Ok(Answer {
            status: 200,
            content_type: "application/json".to_owned(),
            body: Body::Watch(Box::new(watch)),
            warnings: Vec::new(),
        })
    }

    fn tell_present(&self, call: &Call<'_>, watch: &mut Watch) {
        let id = call.resource.id();
        let all = self.store.list(&id, &call.namespace);
        watch.present = all.filter(|stored| watch.lens.may_see(stored)).cloned().collect();
    }
}

/// Whether the watch shall begin with what is there: `sendInitialEvents`, which has conditions of its own.
fn initial_events(call: &Call<'_>) -> ApiResult<Option<bool>> {
    let kind = call.query.get("resourceVersionMatch");
    let mut errors = Vec::new();
    let wanted = call.query.has("sendInitialEvents").then(|| call.query.flag("sendInitialEvents"));
    match (wanted, kind) {
        (Some(_), "") => errors.push(FieldError::forbidden(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        )),
        (Some(_), "NotOlderThan") | (None, "") => {}
        (Some(_), odd) => errors.push(FieldError::not_supported("resourceVersionMatch", odd, &["NotOlderThan"])),
        (None, _) => errors.push(FieldError::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )),
    }
    if errors.is_empty() { Ok(wanted) } else { Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors)) }
}

impl Watch {
    /// The next bytes, or None when the watch is over. Waits for changes.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(ready) = self.take_ready() {
                return Some(ready);
            }
            if self.is_over {
                return None;
            }
            match self.changes.recv().await {
                Some(change) => self.take(&change),
                None => self.is_over = true,
            }
        }
    }

    /// The next bytes that need no waiting.
    pub fn try_next(&mut self) -> Option<Bytes> {
        while self.present.is_empty()
            && let Ok(change) = self.changes.try_recv()
        {
            self.take(&change);
        }
        self.take_ready()
    }

    /// Whether nothing will come any more, for those who do not wait.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let is_told = self.ready.is_empty() && self.present.is_empty() && self.after_present.is_none();
        is_told && (self.is_over || self.changes.is_closed() && self.changes.is_empty())
    }

    fn take_ready(&mut self) -> Option<Bytes> {
        let mut waiting = self.ready.iter().map(Bytes::len).sum::<usize>();
        while waiting < TOGETHER_BYTES
            && let Some(stored) = self.present.pop_front()
        {
            match self.lens.added(&stored) {
                Ok(None) => {}
                Ok(Some(told)) => {
                    waiting += told.len();
                    self.ready.push_back(told);
                }
                Err(error) => self.fail(&error),
            }
        }
        let has_begun = self.present.is_empty();
        if has_begun {
            self.ready.extend(self.after_present.take());
        }
        // Whatever else has happened meanwhile goes with it.
        while has_begun && !self.is_over && waiting < TOGETHER_BYTES {
            let Ok(change) = self.changes.try_recv() else { break };
            let before = self.ready.len();
            self.take(&change);
            waiting += self.ready.iter().skip(before).map(Bytes::len).sum::<usize>();
        }
        let first = self.ready.pop_front()?;
        if self.ready.is_empty() || first.len() >= TOGETHER_BYTES {
            return Some(first);
        }
        let mut together = BytesMut::with_capacity(waiting.min(2 * TOGETHER_BYTES));
        together.put(first);
        while together.len() < TOGETHER_BYTES
            && let Some(next) = self.ready.pop_front()
        {
            together.put(next);
        }
        Some(together.freeze())
    }

    /// A bookmark line: how far the client has come. `is_first` says that the initial events are complete.
    #[must_use]
    pub fn bookmark(&self, is_first: bool) -> Bytes {
        let resource = &self.lens.resource;
        let mut metadata = json!({ "resourceVersion": self.seen.to_string(), "creationTimestamp": null });
        if is_first {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let object = match self.lens.form {
            Form::Table => json!({
                "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": null, "rows": null,
            }),
            Form::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            }),
            _ => json!({ "kind": resource.kind, "apiVersion": resource.api_version(), "metadata": metadata }),
        };
        line("BOOKMARK", object.to_string().as_bytes())
    }

    fn take(&mut self, change: &Change) {
        if self.is_over || change.revision <= self.skips_to {
            return;
        }
        self.seen = change.revision;
        match self.lens.change(change) {
            Ok(told) => self.ready.extend(told),
            Err(error) => self.fail(&error),
        }
    }

    /// Nothing can be told from here on: the client lists, and reads what is wrong.
    fn fail(&mut self, error: &ApiError) {
        self.ready.push_back(line("ERROR", error.to_status().to_string().as_bytes()));
        self.present.clear();
        self.after_present = None;
        self.is_over = true;
    }
}

impl Lens {
    /// Where it is, and what it is once it is shown in the watcher's version.
    fn sees(&self, shown: &Stored) -> bool {
        self.is_placed(shown) && self.labels.matches(shown) && self.fields.matches(shown)
    }

    fn is_placed(&self, stored: &Stored) -> bool {
        (self.namespace.is_empty() || stored.key.namespace == self.namespace)
            && (self.name.is_empty() || stored.key.name == self.name)
    }

    /// Whether it is worth keeping until the client takes it. What is not kept as it is shown is not converted for that.
    fn may_see(&self, stored: &Stored) -> bool {
        if self.resource.is_plain(stored) { self.sees(stored) } else { self.is_placed(stored) }
    }

    fn added(&mut self, stored: &Stored) -> ApiResult<Option<Bytes>> {
        let reread = self.resource.reread(stored)?;
        let shown = reread.as_deref().unwrap_or(stored);
        Ok(if self.sees(shown) { Some(self.event("ADDED", shown)) } else { None })
    }

    fn change(&mut self, change: &Change) -> ApiResult<Option<Bytes>> {
        if !self.is_placed(&change.object) {
            return Ok(None);
        }
        let before = change.before.as_deref();
        // Without selectors it matters only that there was one.
        let is_selective = !self.labels.is_empty() || !self.fields.is_empty();
        let reread_before = match before.filter(|_| is_selective) {
            Some(before) => self.resource.reread(before)?,
            None => None,
        };
        let reread = self.resource.reread(&change.object)?;
        let before = reread_before.as_deref().or(before);
        let object = reread.as_deref().unwrap_or(&change.object);
        let was_seen = before.is_some_and(|before| self.sees(before));
        let is_seen = change.kind != ChangeKind::Deleted && self.sees(object);
        Ok(match (was_seen, is_seen) {
            (false, false) => None,
            (false, true) => Some(self.event("ADDED", object)),
            (true, true) => Some(self.event("MODIFIED", object)),
            (true, false) if change.kind == ChangeKind::Deleted => Some(self.event("DELETED", object)),
            // It no longer matches: the watcher sees its last matching state, at the revision of the change.
            (true, false) => before.map(|before| self.event("DELETED", &before.at_revision(change.revision))),
        })
    }

    fn event(&mut self, kind: &str, stored: &Stored) -> Bytes {
        match self.form {
            Form::Json | Form::Yaml => line(kind, &events::json_in(&self.resource, stored)),
            Form::Metadata => line(kind, read::partial(&stored.value()).to_string().as_bytes()),
            Form::Table => {
                let object = events::shown_in(&self.resource, stored.value());
                let columns = if self.columns_told { Value::Null } else { Value::from(table::columns(&self.resource)) };
                self.columns_told = true;
                let shown = json!({
                    "kind": "Table", "apiVersion": "meta.k8s.io/v1",
                    "metadata": { "resourceVersion": object["metadata"]["resourceVersion"] },
                    "columnDefinitions": columns,
                    "rows": [read::row(&self.resource, &object, &self.include, self.clock.now())],
                });
                line(kind, shown.to_string().as_bytes())
            }
        }
    }
}

/// One event, as a line of JSON.
fn line(kind: &str, object: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(object.len() + 40);
    bytes.put_slice(b"{\"type\":\"");
    bytes.put_slice(kind.as_bytes());
    bytes.put_slice(b"\",\"object\":");
    bytes.put_slice(object);
    bytes.put_slice(b"}\n");
    bytes.freeze()
}
