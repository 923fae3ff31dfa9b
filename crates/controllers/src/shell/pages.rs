//! Small HTTP pages: metrics, probes, and whatever else the operator has to show.
//!
//! Each port has a thread and a runtime of its own, and a [`Door`] before it: whoever is slow, asks without end or holds connections open
//! takes nothing from the operator, from its lease, or from those who ask at another port or from another address.

use crate::limits::{
    METRICS_FRESH, METRICS_PAGES_MAX, PAGES_CONNECTIONS_MAX, PAGES_HEAD_WITHIN, PAGES_PEERS_MAX, PAGES_RATE,
    PAGES_WITHIN,
};
use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

/// So much of a burst is saved up, in seconds of the rate.
const BURST_SECONDS: f64 = 4.0;
/// How often to tell of those who are turned away.
const TELL_EVERY: Duration = Duration::from_secs(60);

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

    /// The page that the request asks for.
    pub async fn answer(&self, request: Request) -> Reply {
        match self.find(request.uri().path()) {
            Some(page) => page(request).await,
            None => {
                let paths: Vec<&str> = self.0.iter().map(|(path, _)| path.as_str()).collect();
                Reply::text(404, format!("404 page not found; there are {}\n", paths.join(", ")))
            }
        }
    }
}

/// What is rendered at most once a second, and is not in memory more than a few times, whoever asks for it and however slowly it is read.
pub struct Kept<R> {
    render: R,
    /// The latest first.
    pages: Mutex<Vec<(Instant, Bytes)>>,
}

impl<R: Fn() -> Bytes> Kept<R> {
    pub fn new(render: R) -> Self {
        Self { render, pages: Mutex::default() }
    }

    pub fn page(&self) -> Bytes {
        self.page_at(Instant::now())
    }

    fn page_at(&self, now: Instant) -> Bytes {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that nobody reads any more.
        let mut is_latest = true;
        pages.retain(|(_, page)| std::mem::take(&mut is_latest) || !page.is_unique());
        if let Some((at, page)) = pages.first()
            && (now.saturating_duration_since(*at) < METRICS_FRESH || pages.len() >= METRICS_PAGES_MAX)
        {
            return page.clone();
        }
        let page = (self.render)();
        pages.insert(0, (now, page.clone()));
        page
    }
}

/// What those who ask may take of one port.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub head_within: Duration,
    pub whole_within: Duration,
    pub connections_max: usize,
    /// Of one address.
    pub per_second: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            head_within: PAGES_HEAD_WITHIN,
            whole_within: PAGES_WITHIN,
            connections_max: PAGES_CONNECTIONS_MAX,
            per_second: PAGES_RATE,
        }
    }
}

/// Serves pages on a thread of their own, which ends with the process.
pub fn serve(name: &'static str, listener: std::net::TcpListener, pages: Pages, bounds: Bounds) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _within = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let accept = accept(name, listener, Arc::new(pages), bounds);
    std::thread::Builder::new().name(name.to_owned()).spawn(move || runtime.block_on(accept))?;
    Ok(())
}

async fn accept(name: &'static str, listener: tokio::net::TcpListener, pages: Arc<Pages>, bounds: Bounds) {
    let mut door = Door::new(bounds);
    let (mut n_turned_away, mut told) = (0_u64, None::<Instant>);
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Too many open files, mostly: it passes.
                tracing::warn!(port = name, error = %error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let (peer, now) = (peer.ip().to_canonical(), Instant::now());
        if !door.may_come(peer, now) {
            n_turned_away += 1;
            if told.is_none_or(|told| now.duration_since(told) >= TELL_EVERY) {
                tracing::warn!(port = name, from = %peer, connections = n_turned_away, "turned away: asked too often");
                (n_turned_away, told) = (0, Some(now));
            }
            continue;
        }
        door.make_room();
        door.seat(peer, tokio::spawn(attend(stream, Arc::clone(&pages), bounds)).abort_handle());
    }
}

/// One request, and its answer.
async fn attend(stream: TcpStream, pages: Arc<Pages>, bounds: Bounds) {
    let service = service_fn(move |request| {
        let pages = Arc::clone(&pages);
        async move { Ok::<_, Infallible>(response(pages.answer(request).await)) }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(bounds.head_within).keep_alive(false);
    match tokio::time::timeout(bounds.whole_within, server.serve_connection(TokioIo::new(stream), service)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(error = %error, "a connection broke"),
        Err(_) => tracing::debug!("a connection took too long"),
    }
}

fn response(reply: Reply) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(reply.body));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(reply.content_type));
    response
}

/// Who is inside, and how often each address came lately.
struct Door {
    bounds: Bounds,
    /// In the order of their arrival.
    inside: Vec<(IpAddr, AbortHandle)>,
    /// Tokens left, and when that was.
    peers: BTreeMap<IpAddr, (f64, Instant)>,
}

impl Door {
    fn new(bounds: Bounds) -> Self {
        Self { bounds, inside: Vec::new(), peers: BTreeMap::new() }
    }

    fn may_come(&mut self, peer: IpAddr, now: Instant) -> bool {
        let rate = self.bounds.per_second as f64;
        let full = rate * BURST_SECONDS;
        let tokens = |(tokens, at): (f64, Instant)| -> f64 {
            (tokens + now.saturating_duration_since(at).as_secs_f64() * rate).min(full)
        };
        if self.peers.len() >= PAGES_PEERS_MAX && !self.peers.contains_key(&peer) {
            self.peers.retain(|_, left| tokens(*left) < full);
            if self.peers.len() >= PAGES_PEERS_MAX {
                self.peers.clear();
            }
        }
        let left = self.peers.entry(peer).or_insert((full, now));
        *left = (tokens(*left), now);
        let may_come = left.0 >= 1.0;
        if may_come {
            left.0 -= 1.0;
        }
        may_come
    }

    /// Cuts the oldest connection of the address that has most of them, where there is one too many.
    fn make_room(&mut self) {
        self.inside.retain(|(_, task)| !task.is_finished());
        if self.inside.len() < self.bounds.connections_max {
            return;
        }
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for (peer, _) in &self.inside {
            *counts.entry(*peer).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(peer, _)| peer);
        if let Some(oldest) = self.inside.iter().position(|(peer, _)| Some(*peer) == most) {
            self.inside.remove(oldest).1.abort();
        }
    }

    fn seat(&mut self, peer: IpAddr, task: AbortHandle) {
        self.inside.push((peer, task));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_page_is_rendered_once_a_second_and_few_of_them_are_in_memory() {
        let n_rendered = AtomicUsize::new(0);
        // Not a static slice, which nobody owns.
        let kept = Kept::new(|| Bytes::from(vec![n_rendered.fetch_add(1, Ordering::Relaxed) as u8; 8]));
        let start = Instant::now();
        for _ in 0..100 {
            assert_eq!(kept.page_at(start)[0], 0);
        }
        assert_eq!(kept.page_at(start + METRICS_FRESH)[0], 1);
        let read: Vec<Bytes> = (2..20).map(|second| kept.page_at(start + METRICS_FRESH * second)).collect();
        assert_eq!(n_rendered.load(Ordering::Relaxed), 2 + METRICS_PAGES_MAX, "those that are read slowly are kept");
        drop(read);
        assert_eq!(usize::from(kept.page_at(start + METRICS_FRESH * 20)[0]), 2 + METRICS_PAGES_MAX);
    }

    #[test]
    fn an_address_that_asks_too_often_is_turned_away_and_others_are_not() {
        let (mut door, start) = (Door::new(Bounds::default()), Instant::now());
        let (loud, quiet) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let n_let_in = (0..1_000).filter(|_| door.may_come(loud, start)).count();
        assert_eq!(n_let_in, 4 * PAGES_RATE);
        assert!(door.may_come(quiet, start));
        assert!(door.may_come(loud, start + Duration::from_secs(1)), "it may come again");
        for n in 0..10_u32 * PAGES_PEERS_MAX as u32 {
            assert!(door.may_come(IpAddr::from(n.to_be_bytes()), start));
            assert!(door.peers.len() <= PAGES_PEERS_MAX);
        }
    }
}
