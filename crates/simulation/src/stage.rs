//! What processes share: the API server as they reach it, the time, and what goes wrong in between.

use crate::faults::{Trace, Weather};
use crate::laws::Laws;
use bytes::Bytes;
use kerf_control_plane::Server;
use kerf_control_plane::clock::Clock;
use kerf_control_plane::request::Request;
use kerf_control_plane::rest::Answer;
use kerf_controllers::moment::Moment;
use kerf_controllers::{ApiCall, ApiFailure};
use serde_json::Value;

/// As the API server's log names us.
pub(crate) const AGENT: &str = "karpenter/rehearsal";

pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) clock: Clock,
    pub(crate) weather: Weather,
    pub(crate) trace: Trace,
    pub(crate) laws: Laws,
    /// Requests that the operator made.
    pub(crate) n_calls: usize,
}

impl Stage {
    /// The time that nobody can set.
    pub(crate) fn moment(&self) -> Moment {
        Moment(self.clock.now().as_millisecond())
    }

    pub(crate) fn note(&mut self, words: impl FnOnce() -> String) {
        self.trace.note(self.clock.now(), words);
    }

    /// What the server does with a request that has arrived.
    pub(crate) fn handle(&mut self, process: usize, call: &ApiCall) -> Result<Value, ApiFailure> {
        let answer = request(&self.server, call.method, &call.path, call.content_type, &call.body);
        self.note(|| {
            let status = answer.as_ref().map_or_else(|failure| failure.status, |_| 200);
            format!("p{process} {} {} {:016x} -> {status}", call.method, call.path, sum(&call.body))
        });
        answer
    }
}

/// FNV-1a of a body.
fn sum(body: &Value) -> u64 {
    let text = body.to_string();
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

pub(crate) fn request(
    server: &Server,
    method: &str,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Result<Value, ApiFailure> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let request = Request {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        accept: "application/json".to_owned(),
        content_type: content_type.to_owned(),
        user_agent: AGENT.to_owned(),
        body: if body.is_null() { Bytes::new() } else { body.to_string().into() },
    };
    let answer = server.handle(&request);
    if (200..300).contains(&answer.status) { Ok(answer.to_value()) } else { Err(failure(&answer)) }
}

pub(crate) fn failure(answer: &Answer) -> ApiFailure {
    let value = answer.to_value();
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    ApiFailure { status: answer.status, reason: text("reason"), message: text("message") }
}
