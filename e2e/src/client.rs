//! A small blocking client: JSON over HTTPS, with a bearer token, trusting one authority.
//!
//! It answers with what the server said, success or not: a test about refusals wants to read them. Only a conversation that
//! did not take place is an error. It knows nothing of kinds: paths and bodies are the caller's.
//!
//! ```text
//! client.get(path), post, put, delete, apply, patch      the everyday requests
//! client.call("PATCH", path).header(…).body(…).send()     any request
//! client.watch(path)                                      a stream of events, read as they come
//! ```

use std::io::{BufRead as _, BufReader};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;
use ureq::http::{Request, Response};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::control_plane::Address;

/// A busy API server answers within a second; one that takes longer than this has stopped.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// A watch stays open while a test waits for the slowest of its events, and not for ever.
const WATCH_FOR: Duration = Duration::from_secs(180);
/// The largest answer we ask for is a list; the OpenAPI document of all kinds is a few megabytes.
const ANSWER_MAX_BYTES: u64 = 256 << 20;

#[derive(Clone)]
pub struct Client {
    agent: ureq::Agent,
    endpoint: String,
    authorization: String,
}

/// What the server said.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// In the order of their arrival, names in small letters.
    pub headers: Vec<(String, String)>,
    /// The JSON body, or the text as a JSON string where it was not JSON.
    pub body: Value,
}

/// A request that is being put together.
pub struct Call<'a> {
    client: &'a Client,
    method: &'a str,
    path: String,
    headers: Vec<(&'a str, String)>,
    body: Option<Vec<u8>>,
}

/// The events of a watch, in their order. A thread reads them; it ends with the stream.
pub struct Watch {
    events: Receiver<Value>,
}

/// What a watch has next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    Event(Value),
    /// The server ended the stream.
    Ended,
    /// Nothing came in the time that was given.
    Nothing,
}

impl Answer {
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The message of a `Status`, or the whole body where there is none.
    #[must_use]
    pub fn message(&self) -> String {
        match self.body.get("message").and_then(Value::as_str).or_else(|| self.body.as_str()) {
            Some(message) => message.to_owned(),
            None => self.body.to_string(),
        }
    }

    /// The `reason` of a `Status`; empty where there is none.
    #[must_use]
    pub fn reason(&self) -> &str {
        self.body.get("reason").and_then(Value::as_str).unwrap_or_default()
    }

    /// The first header of that name, in small letters.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The texts of the `Warning` headers, without their code and agent.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let of_header = |(name, value): &(String, String)| {
            (name == "warning")
                .then(|| value.strip_prefix("299 - \"").and_then(|rest| rest.strip_suffix('"')).unwrap_or(value))
                .map(|text| text.replace("\\\"", "\""))
        };
        self.headers.iter().filter_map(of_header).collect()
    }
}

impl Client {
    pub fn new(address: &Address) -> Result<Self> {
        let authority =
            Certificate::from_pem(address.ca_pem.as_bytes()).context("the authority's certificate is not PEM")?;
        let agent = ureq::Agent::config_builder()
            .tls_config(TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[authority])).build())
            .http_status_as_error(false)
            .timeout_global(Some(ANSWER_WITHIN))
            // Loopback needs no proxy, whatever the environment says.
            .proxy(None)
            .build()
            .new_agent();
        Ok(Self { agent, endpoint: address.endpoint.clone(), authorization: format!("Bearer {}", address.token) })
    }

    pub fn get(&self, path: &str) -> Result<Answer> {
        self.call("GET", path).send()
    }

    pub fn delete(&self, path: &str) -> Result<Answer> {
        self.call("DELETE", path).send()
    }

    /// Deletes with `DeleteOptions`.
    pub fn delete_with(&self, path: &str, options: &Value) -> Result<Answer> {
        self.call("DELETE", path).json(options).send()
    }

    /// Creates an object in the collection at `path`.
    pub fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.call("POST", path).json(body).send()
    }

    /// Replaces the object at `path`.
    pub fn put(&self, path: &str, body: &Value) -> Result<Answer> {
        self.call("PUT", path).json(body).send()
    }

    /// Server-side apply of the object at `path`, YAML or JSON.
    pub fn apply(&self, path: &str, manager: &str, body: &str) -> Result<Answer> {
        let path = format!("{path}?fieldManager={manager}&force=true");
        self.call("PATCH", &path).typed("application/apply-patch+yaml", body).send()
    }

    /// `kind` is `json`, `merge` or `strategic-merge`.
    pub fn patch(&self, path: &str, kind: &str, body: &Value) -> Result<Answer> {
        self.call("PATCH", path).typed(&format!("application/{kind}-patch+json"), body.to_string()).send()
    }

    #[must_use]
    pub fn call<'a>(&'a self, method: &'a str, path: &str) -> Call<'a> {
        Call { client: self, method, path: path.to_owned(), headers: Vec::new(), body: None }
    }

    /// Opens a watch at `path`, which says `watch=true` itself. A refusal is the answer's, not an event.
    pub fn watch(&self, path: &str) -> Result<Result<Watch, Answer>> {
        self.call("GET", path).watch()
    }
}

impl<'a> Call<'a> {
    /// Adds a header. `Accept` and `Content-Type` take the place of the usual ones.
    #[must_use]
    pub fn header(mut self, name: &'a str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.typed("application/json", body.to_string())
    }

    #[must_use]
    pub fn typed(self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        self.header("Content-Type", content_type).body(body)
    }

    /// A body without a word about its type.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    pub fn send(self) -> Result<Answer> {
        let said = format!("{} {}", self.method, self.path);
        answer(self.run(ANSWER_WITHIN)?).with_context(|| said)
    }

    /// The status and the bytes of the answer, for whoever wants to read them later or not at all.
    pub fn fetch(self) -> Result<(u16, Vec<u8>)> {
        let said = format!("{} {}", self.method, self.path);
        let mut response = self.run(ANSWER_WITHIN)?;
        let bytes = response.body_mut().with_config().limit(ANSWER_MAX_BYTES).read_to_vec().with_context(|| said)?;
        Ok((response.status().as_u16(), bytes))
    }

    /// The lines of an answer that goes on for at most `within`, read by the caller's own thread.
    pub fn lines(self, within: Duration) -> Result<impl Iterator<Item = std::io::Result<String>>> {
        let response = self.run(within)?;
        Ok(BufReader::with_capacity(1 << 16, response.into_body().into_with_config().limit(u64::MAX).reader()).lines())
    }

    pub fn watch(self) -> Result<Result<Watch, Answer>> {
        let said = format!("{} {}", self.method, self.path);
        let response = self.run(WATCH_FOR)?;
        if !response.status().is_success() {
            return Ok(Err(answer(response).with_context(|| said)?));
        }
        let (tell, events) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(response.into_body().into_with_config().limit(u64::MAX).reader()).lines();
            for line in lines.map_while(Result::ok) {
                let event = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if tell.send(event).is_err() {
                    return;
                }
            }
        });
        Ok(Ok(Watch { events }))
    }

    fn run(self, within: Duration) -> Result<Response<ureq::Body>> {
        let said = || format!("{} {}", self.method, self.path);
        let mut request = Request::builder()
            .method(self.method)
            .uri(format!("{}{}", self.client.endpoint, self.path))
            .header("Authorization", &self.client.authorization);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("accept")) {
            request = request.header("Accept", "application/json");
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let agent = &self.client.agent;
        match self.body.clone() {
            None => {
                let request = request.body(()).with_context(said)?;
                agent.run(agent.configure_request(request).timeout_global(Some(within)).build())
            }
            Some(body) => {
                let request = request.body(body).with_context(said)?;
                agent.run(agent.configure_request(request).timeout_global(Some(within)).build())
            }
        }
        .with_context(said)
    }
}

impl Watch {
    /// The next event, waiting for it no longer than `within`.
    #[must_use]
    pub fn next(&self, within: Duration) -> Next {
        match self.events.recv_timeout(within) {
            Ok(event) => Next::Event(event),
            Err(RecvTimeoutError::Timeout) => Next::Nothing,
            Err(RecvTimeoutError::Disconnected) => Next::Ended,
        }
    }
}

fn answer(mut response: Response<ureq::Body>) -> Result<Answer> {
    let headers = response
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let text = response.body_mut().with_config().limit(ANSWER_MAX_BYTES).lossy_utf8(true).read_to_string()?;
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Ok(Answer { status: response.status().as_u16(), headers, body })
}
