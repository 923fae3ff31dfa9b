//! Small HTTP pages: metrics, probes, and whatever else the operator has to show.

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// Whoever connects and says nothing does not stay.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);

pub type Request = http::Request<Incoming>;

/// What a page answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub content_type: &'static str,
    pub body: Bytes,
}

impl Reply {
    pub fn text(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: body.into() }
    }

    pub fn json(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, content_type: "application/json", body: body.into() }
    }
}

pub type Page = Arc<dyn Fn(Request) -> Pin<Box<dyn Future<Output = Reply> + Send>> + Send + Sync>;

/// Pages by path. One that ends in `/` has everything below it too.
#[derive(Clone, Default)]
pub struct Pages(Vec<(String, Page)>);

impl Pages {
    #[must_use]
    pub fn with<F>(mut self, path: &str, page: impl Fn(Request) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Reply> + Send + 'static,
    {
        self.0.push((path.to_owned(), Arc::new(move |request| Box::pin(page(request)))));
        self
    }

    fn find(&self, path: &str) -> Option<&Page> {
        let is_for = |own: &str| own == path || own.ends_with('/') && path.starts_with(own);
        self.0.iter().filter(|(own, _)| is_for(own)).max_by_key(|(own, _)| own.len()).map(|(_, page)| page)
    }

    async fn answer(&self, request: Request) -> Reply {
        match self.find(request.uri().path()) {
            Some(page) => page(request).await,
            None => {
                let paths: Vec<&str> = self.0.iter().map(|(path, _)| path.as_str()).collect();
                Reply::text(404, format!("404 page not found; there are {}\n", paths.join(", ")))
            }
        }
    }
}

/// Serves pages until it is dropped.
pub async fn serve(listener: TcpListener, pages: Pages) {
    let pages = Arc::new(pages);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Too many open files, mostly: it passes.
                tracing::warn!(error = %error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let pages = Arc::clone(&pages);
        let service = service_fn(move |request| {
            let pages = Arc::clone(&pages);
            async move { Ok::<_, Infallible>(response(pages.answer(request).await)) }
        });
        tokio::spawn(async move {
            let mut server = hyper::server::conn::http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(HEADERS_WITHIN);
            if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(error = %error, "a connection broke");
            }
        });
    }
}

fn response(reply: Reply) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(reply.body));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(reply.content_type));
    response
}
