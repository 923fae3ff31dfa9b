//! Stands in for the HTTP client.

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use kerf_cloud::clock::{Clock, Wait};
use kerf_cloud_aws::sdk::{Connection, Sdk};
use kerf_cloud_aws::wire::{Failure, Reply};
use kerf_model::UnixMillis;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Debug, Clone, Default)]
pub(crate) struct Recorder {
    sent: Arc<Mutex<Vec<Sent>>>,
    answers: Arc<Mutex<VecDeque<(u16, String)>>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) uri: String,
    pub(crate) target: String,
    pub(crate) agent: String,
    pub(crate) body: String,
}

impl Recorder {
    /// Answers in this order; the last one again and again.
    pub(crate) fn new(answers: &[(u16, &str)]) -> Self {
        let recorder = Self::default();
        let answers = answers.iter().map(|(status, text)| (*status, (*text).to_owned()));
        *recorder.answers.lock().unwrap() = answers.collect();
        recorder
    }

    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }

    /// Makes one call through the SDK.
    pub(crate) fn call<T>(&self, call: impl FnOnce(&Sdk) -> Reply<T>) -> Result<T, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let connection = Connection {
                region: Some("us-west-2".to_owned()),
                version: "1.2.3".to_owned(),
                credentials: Some(("AKID".to_owned(), "secret".to_owned())),
                http_client: Some(SharedHttpClient::new(self.clone())),
                ..Connection::default()
            };
            let sdk = Sdk::connect(connection, Arc::new(At(1_800_000_000_000))).await?;
            call(&sdk).await
        })
    }

    /// The same record with other bodies.
    pub(crate) fn rewritten(&self, rewrite: impl Fn(&str) -> String) -> Self {
        let rewritten = Self::default();
        let sent = self.sent().into_iter().map(|sent| Sent { body: rewrite(&sent.body), ..sent });
        *rewritten.sent.lock().unwrap() = sent.collect();
        rewritten
    }

    /// The form of the last request: one `key=value` a line, in order of key.
    pub(crate) fn form(&self) -> String {
        form(&self.sent().last().unwrap().body)
    }
}

impl HttpConnector for Recorder {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let header = |name: &str| request.headers().get(name).unwrap_or_default().to_owned();
        let body = request.body().bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default();
        let sent = Sent {
            uri: request.uri().to_owned(),
            target: header("x-amz-target"),
            agent: header("x-amz-user-agent") + " " + &header("user-agent"),
            body,
        };
        self.sent.lock().unwrap().push(sent);
        let mut answers = self.answers.lock().unwrap();
        let (status, text) = match answers.len() {
            0 => (200, String::new()),
            1 => answers[0].clone(),
            _ => answers.pop_front().unwrap(),
        };
        let mut response = HttpResponse::new(status.try_into().unwrap(), SdkBody::from(text));
        response.headers_mut().insert("x-amzn-requestid", "r-8");
        HttpConnectorFuture::ready(Ok(response))
    }
}

impl HttpClient for Recorder {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

/// A clock that stands.
struct At(i64);

impl Clock for At {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0)
    }

    fn sleep(&self, _: Duration) -> Wait {
        Box::pin(std::future::ready(()))
    }
}

fn form(body: &str) -> String {
    let mut lines: Vec<String> = body.split('&').map(decoded).collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// Percent signs undone; forms of the SDK have no plus for a space.
pub(crate) fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                let hex = String::from_utf8_lossy(&[*high, *low]).into_owned();
                bytes.push(u8::from_str_radix(&hex, 16).unwrap());
                rest = tail;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// Compares a form with the lines expected of it, however they are indented.
pub(crate) fn assert_form(recorder: &Recorder, expected: &str) {
    let mut lines: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    pretty(&recorder.form(), &lines.join("\n"));
}

fn pretty(found: &str, expected: &str) {
    assert!(found == expected, "sent:\n{found}\n\nexpected:\n{expected}");
}
