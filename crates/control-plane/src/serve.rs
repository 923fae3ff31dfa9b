//! TLS on loopback, for everybody who has the token.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::error::ApiError;
use crate::rest::Answer;
use crate::service::Service;

/// Accepts connections until told to stop.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: rustls::ServerConfig,
    service: Service,
    token: String,
    mut stop: watch::Receiver<bool>,
) {
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let expected = Arc::new(format!("Bearer {token}"));
    loop {
        let stream = tokio::select! {
            // Stopping goes before accepting, or a busy listener would never stop.
            biased;
            _ = stop.changed() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of descriptors, say: the next one may fare better.
                Err(_) => {
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                    continue;
                }
            },
        };
        let (acceptor, service, expected, mut stop) =
            (acceptor.clone(), service.clone(), Arc::clone(&expected), stop.clone());
        tokio::spawn(async move {
            // Small answers go out at once; a failure only costs time.
            let _ = stream.set_nodelay(true);
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let handler = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                let (service, expected) = (service.clone(), Arc::clone(&expected));
                async move {
                    let sent = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
                    let is_known = sent == Some(expected.as_str())
                        || is_open(request.uri().path())
                        || sent.and_then(|sent| sent.strip_prefix("Bearer ")).is_some_and(|token| service.knows(token));
                    if !is_known {
                        return Ok(service.refuse(unauthorized()));
                    }
                    Ok::<_, std::convert::Infallible>(service.answer(request).await)
                }
            });
            let builder = auto::Builder::new(TokioExecutor::new());
            let connection = builder.serve_connection(TokioIo::new(stream), handler);
            tokio::select! {
                biased;
                _ = stop.changed() => {}
                // A connection that breaks is its client's business.
                _ = connection => {}
            }
        });
    }
}

/// What the real server tells everybody.
fn is_open(path: &str) -> bool {
    matches!(path, "/healthz" | "/livez" | "/readyz" | "/version")
}

fn unauthorized() -> Answer {
    Answer::refusal(&ApiError::new(401, "Unauthorized", "Unauthorized"))
}

/// A free port on loopback, or the one asked for.
pub(crate) async fn listen(port: u16) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}
