//! A server that answers as it is told. What it is told nothing about is an empty list, or a watch on which nothing happens. It is an old
//! one: it does not begin watches with what is there. Servers that do are the embedded and the real one.

use kerf_controllers::shell::{Bounds, PageRequest, Pages, Reply, serve};
use kube::{Client, Config};
use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A question.
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) is_watch: bool,
    /// How often the same was asked before.
    pub(crate) nth: usize,
}

pub(crate) struct Fake {
    client: Client,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    pub(crate) async fn start(answer: impl Fn(Asked) -> Option<Reply> + Send + Sync + 'static) -> Self {
        Self::start_slow(move |asked| ready(answer(asked))).await
    }

    pub(crate) async fn start_slow<F>(answer: impl Fn(Asked) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<Reply>> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = kerf_controllers::shell::client(&Config::new(url.parse().unwrap())).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let counts: Mutex<BTreeMap<(String, String, bool), usize>> = Mutex::default();
        let pages = Pages::default().with("/", move |request: PageRequest| {
            let (method, uri) = (request.method().to_string(), request.uri().clone());
            let (path, query) = (uri.path().to_owned(), uri.query().unwrap_or_default().to_owned());
            let is_watch = query.contains("watch=1");
            log.lock().unwrap().push(format!("{method} {uri}"));
            let is_too_new = query.contains("sendInitialEvents");
            let told = (!is_too_new).then(|| {
                let mut counts = counts.lock().unwrap();
                let count = counts.entry((method.clone(), path.clone(), is_watch)).or_default();
                let nth = *count;
                *count += 1;
                answer(Asked { method, path, query, is_watch, nth })
            });
            async move {
                let Some(told) = told else {
                    let message =
                        "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
                    return Reply::json(422, format!(r#"{{"kind":"Status","code":422,"message":"{message}"}}"#));
                };
                match told.await {
                    Some(reply) => reply,
                    None if is_watch => std::future::pending().await,
                    None => Reply::json(200, r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#),
                }
            }
        });
        // A server of a cluster: watches last, and the operator asks as fast as it may.
        let hour = Duration::from_secs(3_600);
        let bounds =
            Bounds { head_within: hour, whole_within: hour, connections_max: usize::MAX, per_second: 1_000_000 };
        serve("fake", listener.into_std().unwrap(), pages, bounds).unwrap();
        Self { client, asked }
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Everything that was asked so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// A server that answers its connections with these words, one after the other. Answers how many it has served.
pub(crate) async fn scripted(answers: Vec<&'static str>) -> (Client, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let n_served = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&n_served);
    tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4_096];
            let n_read = stream.read(&mut request).await.unwrap();
            assert!(n_read > 0, "a connection without a request");
            counter.fetch_add(1, Ordering::SeqCst);
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (kerf_controllers::shell::client(&Config::new(url.parse().unwrap())).unwrap(), n_served)
}
