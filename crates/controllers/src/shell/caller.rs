//! Requests to the API server: sent at the client's rate, a limited number at a time, and answered in our own words.

use super::bucket::Bucket;
use crate::errand::{ApiCall, ApiFailure};
use crate::metrics::{Metrics, runtime};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use kerf_mirror::without_managed_fields;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// No answer of a healthy server takes so long; whoever waits asks again.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// What answers may be.
pub(super) const JSON: &str = "application/json";
/// A server that does not know the first gives the second.
pub(super) const WIRE_OR_JSON: &str = "application/vnd.kubernetes.protobuf;stream=watch,application/json";

/// How fast a client may talk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Requests per second; negative for any number.
    pub per_second: f64,
    pub burst: u32,
    /// Requests under way at the same time.
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
    work: Bucket,
    /// Events have a rate of their own: whatever is told must not hold up what is done.
    events: Bucket,
    slots: Arc<Semaphore>,
}

/// Why a request was not answered as hoped, told with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The kind is not served.
    Missing,
    /// We may not.
    Forbidden {
        message: String,
    },
    /// The server does not know us.
    Unauthorized {
        message: String,
    },
    /// What we have seen is too old to go on from there.
    Expired,
    Unreachable {
        message: String,
    },
    Other {
        status: u16,
        message: String,
    },
}

impl Trouble {
    pub fn of(failure: ApiFailure) -> Self {
        let message = failure.message;
        match failure.status {
            0 => Self::Unreachable { message },
            401 => Self::Unauthorized { message },
            403 => Self::Forbidden { message },
            404 => Self::Missing,
            410 => Self::Expired,
            status => Self::Other { status, message },
        }
    }
}

/// As the API server's log names us.
pub fn agent(version: &str) -> String {
    format!("karpenter/{version}")
}

impl Caller {
    pub fn new(client: Client, limits: Limits) -> Self {
        let now = Instant::now();
        let pace = Pace {
            work: Bucket::new(limits.per_second, limits.burst, now),
            events: Bucket::new(limits.per_second, limits.burst, now),
            slots: Arc::new(Semaphore::new(limits.in_flight.clamp(1, Semaphore::MAX_PERMITS))),
        };
        Self { client, pace: Arc::new(pace), metrics: None }
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
        self.call_and_hold(call).await.0
    }

    /// The same; the request counts as under way until the slot is given back.
    pub(super) async fn call_and_hold(&self, call: ApiCall) -> (Result<Value, ApiFailure>, OwnedSemaphorePermit) {
        self.paced(&self.pace.work, call).await
    }

    /// Writes an event when it is its turn.
    pub(super) async fn tell(&self, call: ApiCall) -> (Result<Value, ApiFailure>, OwnedSemaphorePermit) {
        self.paced(&self.pace.events, call).await
    }

    pub async fn get(&self, path: &str) -> Result<Value, ApiFailure> {
        self.call(ApiCall { method: "GET", path: path.to_owned(), content_type: "", body: Value::Null }).await
    }

    async fn paced(&self, bucket: &Bucket, call: ApiCall) -> (Result<Value, ApiFailure>, OwnedSemaphorePermit) {
        // Thousands may wait here: as text they are a tenth of what they are as trees, and what sends them is made when it is their turn.
        let call = Letter::of(call);
        bucket.take().await;
        let slot = Arc::clone(&self.pace.slots).acquire_owned().await.expect("nobody closes it");
        let Some(metrics) = &self.metrics else {
            return (Box::pin(call.send(&self.client)).await, slot);
        };
        let begun = Instant::now();
        let (method, path) = (call.method, call.path.clone());
        let answer = Box::pin(call.send(&self.client)).await;
        let status = match &answer {
            Err(failure) => failure.status,
            // What the API server stores for the first time, it answers so.
            Ok(_) if method == "POST" => 201,
            Ok(_) => 200,
        };
        runtime::request_ended(metrics, method, &path, status, begun.elapsed().as_secs_f64());
        (answer, slot)
    }
}

/// A request as it is sent.
struct Letter {
    method: &'static str,
    path: String,
    content_type: &'static str,
    body: Vec<u8>,
}

impl Letter {
    fn of(call: ApiCall) -> Self {
        let body = if call.body.is_null() { Vec::new() } else { call.body.to_string().into_bytes() };
        Self { method: call.method, path: call.path, content_type: call.content_type, body }
    }

    async fn send(self, client: &Client) -> Result<Value, ApiFailure> {
        let answer = fetch(client, self.method, &self.path, self.content_type, self.body);
        let bytes = match tokio::time::timeout(ANSWER_WITHIN, answer).await {
            Ok(answer) => answer?,
            Err(_) => return Err(unanswered(format!("no answer within {} s", ANSWER_WITHIN.as_secs()))),
        };
        serde_json::from_slice(&without_managed_fields(&bytes))
            .map_err(|error| unanswered(format!("the answer is not JSON: {error}")))
    }
}

/// Sends a request at once.
pub(super) async fn send(client: &Client, call: ApiCall) -> Result<Value, ApiFailure> {
    Letter::of(call).send(client).await
}

/// The body of a good answer, whole.
pub(super) async fn fetch(
    client: &Client,
    method: &'static str,
    path: &str,
    content_type: &str,
    body: Vec<u8>,
) -> Result<Bytes, ApiFailure> {
    let (answer, _) = open(client, method, path, content_type, body, JSON).await?;
    answer.collect_bytes().await.map_err(|error| unanswered(chain(&error)))
}

/// The body of a good answer, as it comes, and whether it is in protocol buffers.
pub(super) async fn open(
    client: &Client,
    method: &'static str,
    path: &str,
    content_type: &str,
    body: Vec<u8>,
    accept: &'static str,
) -> Result<(Body, bool), ApiFailure> {
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
    let response = client.send(request).await.map_err(|error| unanswered(chain(&error)))?;
    let status = response.status();
    if status.is_success() {
        let form = response.headers().get(header::CONTENT_TYPE);
        let is_wire = form.is_some_and(|form| form.as_bytes().starts_with(b"application/vnd.kubernetes.protobuf"));
        return Ok((response.into_body(), is_wire));
    }
    let bytes = response.into_body().collect_bytes().await.map_err(|error| unanswered(chain(&error)))?;
    Err(failure(status, &bytes))
}

/// The part of a `Status` that we read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refusal {
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
    ApiFailure { status: status.as_u16(), reason: refusal.reason, message: refusal.message }
}

fn unanswered(message: String) -> ApiFailure {
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
    }
}
