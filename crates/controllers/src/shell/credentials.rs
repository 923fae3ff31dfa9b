//! Credentials that end before they should: what the server no longer accepts is read anew, where there is something to read.
//!
//! ```text
//! request ─▶ with what is known ─▶ API server ─▶ 401 ──▶ read the token's file again, run the plugin again ─▶ for the next request
//!                ▲                                 └─▶ the answer, as it is: whoever asked asks again
//!                └── a token's file is read every minute anyway
//! ```
//!
//! Not for: tokens and certificates that stand in a kubeconfig. Those are somebody's to renew, and the process's end tells.

use crate::limits::{CREDENTIALS_AGAIN, TOKEN_FILE_EVERY};
use http::{Request, Response, StatusCode};
use kube::client::{Body, ConfigExt};
use kube::{Config, Error};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, Service, ServiceExt};

/// A way to the server, with whatever says who we are.
type Way<B> = BoxCloneSyncService<Request<Body>, Response<B>, BoxError>;

/// Sends requests with the credentials that count just now. Clones share them.
pub(super) struct Authorized<S, B>(Arc<Shared<S, B>>);

struct Shared<S, B> {
    config: Config,
    below: S,
    now: Mutex<Now<B>>,
}

struct Now<B> {
    way: Way<B>,
    read_at: Instant,
    is_being_read: bool,
}

impl<S, B> Clone for Authorized<S, B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S, B> Authorized<S, B>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    /// Reads the credentials, and waits for a plugin that gives them.
    pub(super) fn new(config: &Config, below: S) -> Result<Self, Error> {
        let now = Now { way: way(config, &below)?, read_at: Instant::now(), is_being_read: false };
        Ok(Self(Arc::new(Shared { config: config.clone(), below, now: Mutex::new(now) })))
    }

    /// The way, as it is now. A token's file is read again from time to time: kubelets replace it long before the token ends.
    fn way(&self) -> Way<B> {
        let age = self.lock().read_at.elapsed();
        if age >= TOKEN_FILE_EVERY && self.0.config.auth_info.token_file.is_some() {
            self.read_again();
        }
        self.lock().way.clone()
    }

    /// For the requests to come; nobody waits for it.
    fn read_again(&self) {
        let mut now = self.lock();
        // One that hangs is not started a second time.
        if now.is_being_read || now.read_at.elapsed() < CREDENTIALS_AGAIN {
            return;
        }
        now.is_being_read = true;
        drop(now);
        let this = self.clone();
        tokio::task::spawn_blocking(move || {
            let read = way(&this.0.config, &this.0.below);
            let mut now = this.lock();
            (now.read_at, now.is_being_read) = (Instant::now(), false);
            match read {
                Ok(way) => now.way = way,
                // What was known may still do.
                Err(error) => tracing::error!(%error, "the credentials for the API server cannot be read again"),
            }
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Now<B>> {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S, B> Service<Request<Body>> for Authorized<S, B>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let answer = this.way().oneshot(request).await?;
            if answer.status() == StatusCode::UNAUTHORIZED {
                this.read_again();
            }
            Ok(answer)
        })
    }
}

fn way<S, B>(config: &Config, below: &S) -> Result<Way<B>, Error>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    let mut config = config.clone();
    if let (None, Some(file)) = (&config.auth_info.token, &config.auth_info.token_file)
        && let Ok(token) = std::fs::read_to_string(file)
    {
        // Editors and shells end a file with a new line, which no header may have.
        config.auth_info.token = Some(token.trim().to_owned().into());
    }
    Ok(match config.auth_layer()? {
        Some(auth) => BoxCloneSyncService::new(auth.layer(below.clone())),
        None => BoxCloneSyncService::new(below.clone()),
    })
}
