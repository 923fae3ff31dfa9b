//! The server under an HTTP client, without a socket: a tower service for `kube::Client::new`.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT, WARNING};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;

use crate::request::Request;
use crate::rest::watch::Watch;
use crate::rest::{Answer, Body as Sent};
use crate::server::Server;

/// The real server sends a bookmark about once a minute.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// A watch whose client does not say how long ends after half an hour or so, as the real one's do.
const WATCH_ENDS_AFTER: Duration = Duration::from_secs(45 * 60);
/// A body larger than this is refused, as the real server does.
const BODY_MAX_BYTES: usize = 3 << 20;

/// Requests in, answers out; clones share one server.
#[derive(Clone)]
pub struct Service {
    server: Server,
}

impl Service {
    #[must_use]
    pub fn new(server: Server) -> Self {
        Self { server }
    }

    /// Whether this is the token of a service account.
    pub(crate) fn knows(&self, token: &str) -> bool {
        self.server.lock().tokens.contains(token)
    }

    /// An answer that was made elsewhere.
    pub(crate) fn refuse(&self, answer: Answer) -> http::Response<AnswerBody> {
        response(answer)
    }

    /// Answers an HTTP request. Only reading the body and serving a watch wait for anything.
    pub async fn answer<B>(&self, request: http::Request<B>) -> http::Response<AnswerBody>
    where
        B: Body<Data: Send> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let text = |name: http::header::HeaderName| {
            let values = parts.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
            values.collect::<Vec<_>>().join(",")
        };
        let body = match http_body_util::Limited::new(body, BODY_MAX_BYTES).collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(_) => return response(too_large()),
        };
        let request = Request {
            method: parts.method.as_str().to_owned(),
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            accept: text(ACCEPT),
            content_type: text(CONTENT_TYPE),
            user_agent: text(USER_AGENT),
            body,
        };
        let is_head = request.method == "HEAD";
        let mut answer = self.server.handle(&request);
        if is_head {
            answer.body = Sent::Whole(Bytes::new());
        }
        response(answer)
    }
}

fn too_large() -> Answer {
    let why = format!("Request entity too large: limit is {BODY_MAX_BYTES}");
    Answer::refusal(&crate::error::ApiError::new(413, "RequestEntityTooLarge", why))
}

fn response(answer: Answer) -> http::Response<AnswerBody> {
    let mut builder = http::Response::builder().status(answer.status).header(CONTENT_TYPE, answer.content_type);
    for warning in answer.warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ");
        if let Ok(value) = http::HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            builder = builder.header(WARNING, value);
        }
    }
    let body = match answer.body {
        Sent::Whole(bytes) => AnswerBody::pieces(vec![bytes]),
        Sent::Pieces(pieces) => AnswerBody::pieces(pieces),
        Sent::Watch(watch) => AnswerBody::watch(*watch),
    };
    builder.body(body).unwrap_or_else(|_| {
        let mut response = http::Response::new(AnswerBody::pieces(Vec::new()));
        *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

type NextBytes = Pin<Box<dyn Future<Output = Option<(Bytes, Box<Watching>)>> + Send>>;

/// A body that is there already, or a watch that goes on.
pub struct AnswerBody(Flow);

enum Flow {
    Pieces(std::collections::VecDeque<Bytes>),
    Watch(NextBytes),
    Over,
}

struct Watching {
    watch: Watch,
    ends_at: tokio::time::Instant,
    bookmark_at: tokio::time::Instant,
}

impl AnswerBody {
    fn pieces(pieces: Vec<Bytes>) -> Self {
        Self(Flow::Pieces(pieces.into_iter().filter(|piece| !piece.is_empty()).collect()))
    }

    fn watch(watch: Watch) -> Self {
        let now = tokio::time::Instant::now();
        let ends_at = now + watch.ends_after.unwrap_or(WATCH_ENDS_AFTER);
        // One comes shortly before the end, so that the next watch can go on from there.
        let last_bookmark = ends_at.checked_sub(BOOKMARK_BEFORE_END).filter(|at| *at > now);
        let bookmark_at = last_bookmark.map_or(now + BOOKMARK_EVERY, |at| at.min(now + BOOKMARK_EVERY));
        let watching = Watching { watch, ends_at, bookmark_at };
        Self(Flow::Watch(Box::pin(next(Box::new(watching)))))
    }
}

/// The next bytes of a watch: what happened, or a bookmark; None when its time is up.
async fn next(mut watching: Box<Watching>) -> Option<(Bytes, Box<Watching>)> {
    loop {
        // In this order: an end is an end, news goes before bookmarks.
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(watching.ends_at) => return None,
            bytes = watching.watch.next() => return bytes.map(|bytes| (bytes, watching)),
            () = tokio::time::sleep_until(watching.bookmark_at) => {
                watching.bookmark_at += BOOKMARK_EVERY;
                if watching.watch.wants_bookmarks {
                    let bookmark = watching.watch.bookmark(false);
                    return Some((bookmark, watching));
                }
            }
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Flow::Over => Poll::Ready(None),
            Flow::Pieces(pieces) => Poll::Ready(pieces.pop_front().map(|piece| Ok(Frame::data(piece)))),
            Flow::Watch(future) => match future.as_mut().poll(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(None) => {
                    self.0 = Flow::Over;
                    Poll::Ready(None)
                }
                Poll::Ready(Some((bytes, watching))) => {
                    self.0 = Flow::Watch(Box::pin(next(watching)));
                    Poll::Ready(Some(Ok(Frame::data(bytes))))
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Flow::Pieces(pieces) => pieces.is_empty(),
            Flow::Watch(_) => false,
            Flow::Over => true,
        }
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match &self.0 {
            Flow::Pieces(pieces) => {
                http_body::SizeHint::with_exact(pieces.iter().map(|piece| piece.len() as u64).sum())
            }
            Flow::Watch(_) | Flow::Over => http_body::SizeHint::default(),
        }
    }
}

impl<B> tower_service::Service<http::Request<B>> for Service
where
    B: Body<Data: Send> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = http::Response<AnswerBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}
