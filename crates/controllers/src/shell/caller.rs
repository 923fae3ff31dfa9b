//! Requests to the API server: sent at the client's rate, a limited number at a time, and answered in our own words.
//!
//! Whether a request is sent again, [`crate::dispatch`] says; the client itself repeats nothing.

use super::bucket::Bucket;
use super::clock::Timeline;
use crate::dispatch::{Lane, Refused, Trip, unanswered};
use crate::errand::{ApiCall, ApiFailure, Outcome};
use crate::limits::{LIST_PAGE, LIST_PAGES_MAX, PAGE_BYTES_MAX, RATE_OF_EVICTIONS, SHARE_OF_EVICTIONS};
use crate::metrics::families::REQUEST_WAIT_SECONDS;
use crate::metrics::{Metrics, runtime};
use crate::watcher::{JSON, escaped};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use kerf_mirror::without_managed_fields;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How fast a client may talk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Requests per second; negative for any number.
    pub per_second: f64,
    pub burst: u32,
    /// Requests under way at the same time. Evictions and events have a quarter each, on top of it.
    pub in_flight: usize,
}

impl Limits {
    /// None.
    pub fn none() -> Self {
        Self { per_second: -1.0, burst: 1, in_flight: Semaphore::MAX_PERMITS }
    }
}

/// A client with a rate. Clones share it.
#[derive(Clone)]
pub struct Caller {
    client: Client,
    pace: Arc<Pace>,
    /// Where requests are counted.
    metrics: Option<Arc<Metrics>>,
}

struct Pace {
    timeline: Timeline,
    work: Bucket,
    /// Events have a rate of their own: whatever is told must not hold up what is done.
    events: Bucket,
    /// Evictions have no more than a part of the rate: they take from both.
    evictions: Bucket,
    slots: Arc<Semaphore>,
    slots_of_events: Arc<Semaphore>,
    slots_of_evictions: Arc<Semaphore>,
}

impl Pace {
    fn new(limits: Limits, now: Instant) -> Self {
        let slots = limits.in_flight.clamp(1, Semaphore::MAX_PERMITS);
        let share = (slots / SHARE_OF_EVICTIONS).max(1);
        let (burst, part) = (limits.burst, u32::try_from(RATE_OF_EVICTIONS).unwrap_or(1));
        Self {
            timeline: Timeline::begin(),
            work: Bucket::new(limits.per_second, burst, now),
            events: Bucket::new(limits.per_second, burst, now),
            evictions: Bucket::new(limits.per_second / f64::from(part), burst / part, now),
            slots: Arc::new(Semaphore::new(slots)),
            slots_of_events: Arc::new(Semaphore::new(share)),
            slots_of_evictions: Arc::new(Semaphore::new(share)),
        }
    }

    /// Waits for a turn in a lane.
    async fn turn(&self, lane: Lane) -> OwnedSemaphorePermit {
        let slots = match lane {
            Lane::Work => {
                self.work.take().await;
                &self.slots
            }
            Lane::Events => {
                self.events.take().await;
                &self.slots_of_events
            }
            Lane::Evictions => {
                self.evictions.take().await;
                self.work.take().await;
                &self.slots_of_evictions
            }
        };
        Arc::clone(slots).acquire_owned().await.expect("nobody closes it")
    }
}

/// As the API server's log names us.
pub fn agent(version: &str) -> String {
    format!("karpenter/{version}")
}

impl Caller {
    /// Needs a client that repeats nothing by itself: see [`super::client`].
    pub fn new(client: Client, limits: Limits) -> Self {
        Self { client, pace: Arc::new(Pace::new(limits, Instant::now())), metrics: None }
    }

    /// Counts what it asks and how it is answered.
    #[must_use]
    pub fn counted(mut self, metrics: &Arc<Metrics>) -> Self {
        self.metrics = Some(Arc::clone(metrics));
        self
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Sends a request when it is its turn.
    pub async fn call(&self, call: ApiCall) -> Result<Value, ApiFailure> {
        self.call_in(Lane::Work, call).await
    }

    pub async fn call_in(&self, lane: Lane, call: ApiCall) -> Result<Value, ApiFailure> {
        let trip = Trip::request(lane, call.method);
        self.carry(trip, self.pace.timeline, call).await.0
    }

    pub async fn get(&self, path: &str) -> Result<Value, ApiFailure> {
        self.call(ApiCall { method: "GET", path: path.to_owned(), content_type: "", body: Value::Null }).await
    }

    /// Shows every page of a list. One that does not end is a failure.
    pub async fn each_page(&self, collection: &str, mut show: impl FnMut(Value)) -> Result<(), ApiFailure> {
        let mut token = String::new();
        for n_pages in 1.. {
            let path = format!("{collection}?limit={LIST_PAGE}&continue={}", escaped(&token));
            let page = self.get(&path).await?;
            let next = next_page(&page, &token, n_pages)?;
            show(page);
            let Some(next) = next else { break };
            token = next;
        }
        Ok(())
    }

    /// Takes a request where it goes: sends it when it is its turn, and again where the server asks for it. It counts as under way until the
    /// slot is given back. `timeline` is the trip's clock.
    pub(super) async fn carry(
        &self,
        mut trip: Trip,
        timeline: Timeline,
        call: ApiCall,
    ) -> (Result<Value, ApiFailure>, OwnedSemaphorePermit) {
        // Thousands may wait here: as text they are a tenth of what they are as trees, and what sends them is made when it is their turn.
        let letter = Letter::of(call);
        loop {
            let slot = self.turn(trip.lane().unwrap_or(Lane::Work)).await;
            let by = match trip.leaves(timeline.now()) {
                Ok(by) => timeline.instant(by),
                Err(Outcome::Api(outcome)) => return (outcome, slot),
                Err(_) => return (Err(unanswered()), slot),
            };
            let refused = match Box::pin(self.send(&letter, by)).await {
                Ok(value) => return (Ok(value), slot),
                Err(refused) => refused,
            };
            let Some(then) = trip.judge(timeline.now(), &refused) else {
                return (Err(refused.failure), slot);
            };
            // Who is asked to come back later holds nobody up meanwhile.
            drop(slot);
            tokio::time::sleep_until(timeline.instant(then)).await;
        }
    }

    async fn turn(&self, lane: Lane) -> OwnedSemaphorePermit {
        let begun = Instant::now();
        let slot = self.pace.turn(lane).await;
        if let Some(metrics) = &self.metrics {
            metrics.observe(&REQUEST_WAIT_SECONDS, &[lane.as_str()], begun.elapsed().as_secs_f64());
        }
        slot
    }

    async fn send(&self, letter: &Letter, by: tokio::time::Instant) -> Result<Value, Refused> {
        let begun = Instant::now();
        let answer = tokio::time::timeout_at(by, letter.send(&self.client)).await;
        let answer = answer.unwrap_or_else(|_| Err(unanswered().into()));
        if let Some(metrics) = &self.metrics {
            let status = match &answer {
                Err(refused) => refused.failure.status,
                // What the API server stores for the first time, it answers so.
                Ok(_) if letter.method == "POST" => 201,
                Ok(_) => 200,
            };
            runtime::request_ended(metrics, letter.method, &letter.path, status, begun.elapsed().as_secs_f64());
        }
        answer
    }
}

/// Where a list goes on after a page, if it does. Nobody has so many pages, and none twice.
fn next_page(page: &Value, token: &str, n_pages: usize) -> Result<Option<String>, ApiFailure> {
    let next = page.pointer("/metadata/continue").and_then(Value::as_str).filter(|next| !next.is_empty());
    match next {
        Some(next) if next == token || n_pages >= LIST_PAGES_MAX => {
            Err(lost(format!("a list that does not end: {n_pages} pages, and one more")))
        }
        next => Ok(next.map(ToOwned::to_owned)),
    }
}

/// A request as it is sent.
struct Letter {
    method: &'static str,
    path: String,
    content_type: &'static str,
    body: Bytes,
}

impl Letter {
    fn of(call: ApiCall) -> Self {
        let body = if call.body.is_null() { Vec::new() } else { call.body.to_string().into_bytes() };
        Self { method: call.method, path: call.path, content_type: call.content_type, body: body.into() }
    }

    async fn send(&self, client: &Client) -> Result<Value, Refused> {
        let bytes =
            fetch(client, self.method, &self.path, self.content_type, self.body.clone(), PAGE_BYTES_MAX).await?;
        let value = serde_json::from_slice(&without_managed_fields(&bytes));
        value.map_err(|error| lost(format!("the answer is not JSON: {error}")).into())
    }
}

/// Sends a request at once, and once. Whoever calls has the deadline.
pub(super) async fn send(client: &Client, call: ApiCall) -> Result<Value, ApiFailure> {
    Letter::of(call).send(client).await.map_err(|refused| refused.failure)
}

/// The body of a good answer, whole.
pub(super) async fn fetch(
    client: &Client,
    method: &'static str,
    path: &str,
    content_type: &str,
    body: Bytes,
    bytes_max: usize,
) -> Result<Bytes, Refused> {
    let (answer, _) = open(client, method, path, content_type, body, JSON).await?;
    let whole = Limited::new(answer, bytes_max).collect().await;
    whole.map(http_body_util::Collected::to_bytes).map_err(|error| lost(chain(&*error)).into())
}

/// The body of a good answer, as it comes, and whether it is in protocol buffers.
pub(super) async fn open(
    client: &Client,
    method: &'static str,
    path: &str,
    content_type: &str,
    body: Bytes,
    accept: &'static str,
) -> Result<(Body, bool), Refused> {
    let method = Method::from_bytes(method.as_bytes()).expect("our own words");
    let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
    if !body.is_empty() {
        request = request.header(header::CONTENT_TYPE, content_type);
    }
    let request = request.body(Body::from(body)).map_err(|error| ApiFailure {
        status: 0,
        reason: "BadRequest".to_owned(),
        message: format!("{path:?} is no path: {error}"),
    })?;
    let response = client.send(request).await.map_err(|error| lost(chain(&error)))?;
    let status = response.status();
    if status.is_success() {
        let form = response.headers().get(header::CONTENT_TYPE);
        let is_wire = form.is_some_and(|form| form.as_bytes().starts_with(b"application/vnd.kubernetes.protobuf"));
        return Ok((response.into_body(), is_wire));
    }
    let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
    let told =
        Limited::new(response.into_body(), PAGE_BYTES_MAX).collect().await.map_err(|error| lost(chain(&*error)))?;
    let bytes = told.to_bytes();
    Err(Refused { failure: failure(status, &bytes), retry_after: retry_after.map(Duration::from_secs) })
}

/// The part of a `Status` that we read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refusal {
    reason: String,
    message: String,
    details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
    message: String,
}

fn failure(status: StatusCode, body: &[u8]) -> ApiFailure {
    let mut refusal: Refusal = serde_json::from_slice(body).unwrap_or_default();
    if refusal.message.is_empty() {
        // Proxies and overloaded servers answer in plain text.
        let text = String::from_utf8_lossy(&body[..body.len().min(300)]);
        refusal.message = format!("the API server answered {status} {}", text.trim());
    }
    // Which budget it is stands there, and nowhere else.
    if let Some(cause) = refusal.details.causes.iter().find(|cause| cause.reason == "DisruptionBudget") {
        refusal.message = format!("{} {}", refusal.message, cause.message);
    }
    ApiFailure { status: status.as_u16(), reason: refusal.reason, message: refusal.message }
}

fn lost(message: String) -> ApiFailure {
    ApiFailure { status: 0, reason: String::new(), message }
}

/// An error and its causes, each said once: many repeat their cause in their own words.
fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !words.contains(&said) {
            words.push_str(": ");
            words.push_str(&said);
        }
        source = cause.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_ends_or_is_given_up() {
        let page = |next: &str| serde_json::json!({"items": [], "metadata": {"continue": next}});
        assert_eq!(next_page(&page("b"), "a", 1), Ok(Some("b".to_owned())));
        assert_eq!(next_page(&page(""), "a", 1), Ok(None));
        assert_eq!(next_page(&Value::Null, "a", 1), Ok(None));
        next_page(&page("a"), "a", 1).unwrap_err();
        next_page(&page("b"), "a", LIST_PAGES_MAX).unwrap_err();
    }

    #[test]
    fn a_refusal_is_read_from_a_status_or_from_plain_words() {
        let status = br#"{"kind": "Status", "reason": "AlreadyExists", "message": "it is there", "code": 409}"#;
        let read = failure(StatusCode::CONFLICT, status);
        assert!(read.already_exists());
        assert_eq!(read.message, "it is there");
        let read = failure(StatusCode::TOO_MANY_REQUESTS, b"Too many requests, please try again later.\n");
        assert_eq!(
            read.message,
            "the API server answered 429 Too Many Requests Too many requests, please try again later."
        );
        let held = br#"{"kind": "Status", "reason": "TooManyRequests", "code": 429, "message": "Cannot evict pod.",
            "details": {"causes": [{"reason": "DisruptionBudget", "message": "The disruption budget web needs 3."}]}}"#;
        let read = failure(StatusCode::TOO_MANY_REQUESTS, held);
        assert_eq!(read.message, "Cannot evict pod. The disruption budget web needs 3.");
    }
}
