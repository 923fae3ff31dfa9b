//! A small blocking client: JSON over HTTPS, with a bearer token, trusting one authority.
//!
//! It answers with what the server said, success or not: a test about refusals wants to read them. Only a conversation that
//! did not take place is an error. It knows nothing of kinds: paths and bodies are the caller's.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;
use ureq::http::Request;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::control_plane::Address;

/// A busy API server answers within a second; one that takes longer than this has stopped.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// The largest answer we ask for is a list; the OpenAPI document of all kinds is a few megabytes.
const ANSWER_MAX_BYTES: u64 = 64 << 20;

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
    /// The JSON body, or the text as a JSON string where it was not JSON.
    pub body: Value,
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
        self.send("GET", path, "application/json", Vec::new())
    }

    pub fn delete(&self, path: &str) -> Result<Answer> {
        self.send("DELETE", path, "application/json", Vec::new())
    }

    /// Creates an object in the collection at `path`.
    pub fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send("POST", path, "application/json", body.to_string().into_bytes())
    }

    /// Replaces the object at `path`.
    pub fn put(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send("PUT", path, "application/json", body.to_string().into_bytes())
    }

    /// Server-side apply of the object at `path`, YAML or JSON.
    pub fn apply(&self, path: &str, manager: &str, body: &str) -> Result<Answer> {
        let path = format!("{path}?fieldManager={manager}&force=true");
        self.send("PATCH", &path, "application/apply-patch+yaml", body.as_bytes().to_vec())
    }

    fn send(&self, method: &str, path: &str, content_type: &str, body: Vec<u8>) -> Result<Answer> {
        let said = || format!("{method} {path}");
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.endpoint))
            .header("Authorization", &self.authorization)
            .header("Accept", "application/json");
        let response = if body.is_empty() {
            self.agent.run(request.body(()).with_context(said)?)
        } else {
            self.agent.run(request.header("Content-Type", content_type).body(body).with_context(said)?)
        };
        let mut response = response.with_context(said)?;
        let text = response.body_mut().with_config().limit(ANSWER_MAX_BYTES).read_to_string().with_context(said)?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Answer { status: response.status().as_u16(), body })
    }
}
