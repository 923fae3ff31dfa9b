//! TLS on loopback, for everybody who has the token.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::header::AUTHORIZATION;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::error::ApiError;
use crate::rest::Answer;
use crate::service::{AnswerBody, Service};

/// A connection on which nobody has said who they are by then ends. Loopback is shared with whoever has an account.
const STRANGER_WITHIN: Duration = Duration::from_secs(30);
/// A request whose body is not there by then is refused. The real server ends requests after as long.
const BODY_WITHIN: Duration = Duration::from_secs(60);
/// Connections at a time; more are hung up on. Clients have some dozens each.
const CONNECTIONS_MAX: usize = 2_000;

/// How much is put up with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    stranger_within: Duration,
    body_within: Duration,
    connections_max: usize,
}

impl Default for Patience {
    fn default() -> Self {
        Self { stranger_within: STRANGER_WITHIN, body_within: BODY_WITHIN, connections_max: CONNECTIONS_MAX }
    }
}

/// Accepts connections until told to stop.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: rustls::ServerConfig,
    service: Service,
    token: String,
    patience: Patience,
    mut stop: watch::Receiver<bool>,
) {
    let host = Host {
        acceptor: TlsAcceptor::from(Arc::new(tls)),
        service,
        expected: Arc::new(format!("Bearer {token}")),
        patience,
    };
    let seats = Arc::new(Semaphore::new(patience.connections_max));
    loop {
        let stream = tokio::select! {
            // Stopping goes before accepting, or a busy listener would never stop.
            biased;
            _ = stop.changed() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of descriptors, say: the next one may fare better.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            },
        };
        let Ok(seat) = Arc::clone(&seats).try_acquire_owned() else { continue };
        let (host, mut stop) = (host.clone(), stop.clone());
        tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = stop.changed() => {}
                () = host.converse(stream) => {}
            }
            drop(seat);
        });
    }
}

/// Whoever answers on a connection.
#[derive(Clone)]
struct Host {
    acceptor: TlsAcceptor,
    service: Service,
    expected: Arc<String>,
    patience: Patience,
}

impl Host {
    async fn converse(&self, stream: TcpStream) {
        // Small answers go out at once; a failure only costs time.
        let _ = stream.set_nodelay(true);
        let is_known = Arc::new(AtomicBool::new(false));
        let conversation = async {
            let Ok(stream) = self.acceptor.accept(stream).await else { return };
            let handler = service_fn(|request| self.clone().answer(request, Arc::clone(&is_known)));
            // A connection that breaks is its client's business.
            let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), handler).await;
        };
        tokio::pin!(conversation);
        if tokio::time::timeout(self.patience.stranger_within, &mut conversation).await.is_err()
            && is_known.load(Ordering::Relaxed)
        {
            conversation.await;
        }
    }

    async fn answer(
        self,
        request: hyper::Request<hyper::body::Incoming>,
        is_known: Arc<AtomicBool>,
    ) -> Result<http::Response<AnswerBody>, std::convert::Infallible> {
        let sent = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let knows = sent == Some(self.expected.as_str())
            || sent.and_then(|sent| sent.strip_prefix("Bearer ")).is_some_and(|token| self.service.knows(token));
        if knows {
            is_known.store(true, Ordering::Relaxed);
        } else if !is_open(request.uri().path()) {
            return Ok(self.service.refuse(unauthorized()));
        }
        // Only the body of the request is waited for.
        let answered = tokio::time::timeout(self.patience.body_within, self.service.answer(request)).await;
        Ok(answered.unwrap_or_else(|_| self.service.refuse(too_slow())))
    }
}

/// What the real server tells everybody.
fn is_open(path: &str) -> bool {
    matches!(path, "/healthz" | "/livez" | "/readyz" | "/version")
}

fn unauthorized() -> Answer {
    Answer::refusal(&ApiError::new(401, "Unauthorized", "Unauthorized"))
}

fn too_slow() -> Answer {
    Answer::refusal(&ApiError::new(408, "Timeout", "the body of the request did not come in time"))
}

/// A free port on loopback, or the one asked for.
pub(crate) async fn listen(port: u16) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::Certificates;
    use crate::clock::Clock;
    use crate::server::Server;
    use std::io::{Read, Write};

    const BRIEF: Duration = Duration::from_millis(200);

    /// Serves with little patience; gives the address, and what ends it.
    fn served(patience: Patience) -> (tokio::runtime::Runtime, SocketAddr, watch::Sender<bool>, String) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (listener, address) = runtime.block_on(listen(0)).unwrap();
        let certificates = Certificates::create().unwrap();
        let service = Service::new(Server::new(Clock::real(), 1));
        let (stop, stopped) = watch::channel(false);
        runtime.spawn(serve(listener, certificates.tls, service, "known".to_owned(), patience, stopped));
        (runtime, address, stop, certificates.ca_pem)
    }

    /// A client that trusts the authority.
    fn connect(
        address: SocketAddr,
        ca_pem: &str,
    ) -> rustls::StreamOwned<rustls::ClientConnection, std::net::TcpStream> {
        use rustls::pki_types::pem::PemObject;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(rustls::pki_types::CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "localhost".try_into().unwrap();
        let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        rustls::StreamOwned::new(connection, std::net::TcpStream::connect(address).unwrap())
    }

    /// Whether the other side hangs up soon.
    fn is_hung_up_on(mut stream: std::net::TcpStream) -> bool {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        matches!(stream.read(&mut [0]), Ok(0)) || stream.take_error().is_ok_and(|error| error.is_some())
    }

    #[test]
    fn who_never_says_who_they_are_is_hung_up_on() {
        let patience = Patience { stranger_within: BRIEF, ..Patience::default() };
        let (_runtime, address, _stop, ca) = served(patience);
        assert!(is_hung_up_on(std::net::TcpStream::connect(address).unwrap()), "no TLS");
        let mut stranger = connect(address, &ca);
        stranger.write_all(b"GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut told = String::new();
        // Hung up without a goodbye in TLS, which is an error after what was read.
        let _ = stranger.read_to_string(&mut told);
        assert!(told.starts_with("HTTP/1.1 200"), "{told}");
        // Who has shown a token stays.
        let mut known = connect(address, &ca);
        let ask = b"GET /version HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer known\r\n\r\n";
        known.write_all(ask).unwrap();
        assert!(known.read(&mut [0; 4096]).unwrap() > 0);
        std::thread::sleep(3 * BRIEF);
        known.write_all(ask).unwrap();
        assert!(known.read(&mut [0; 4096]).unwrap() > 0);
    }

    #[test]
    fn a_body_that_never_comes_is_not_waited_for() {
        let (_runtime, address, _stop, ca) = served(Patience { body_within: BRIEF, ..Patience::default() });
        let mut client = connect(address, &ca);
        let head = "POST /api/v1/namespaces HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer known\r\n\
                    content-type: application/json\r\ncontent-length: 100\r\n\r\n{";
        client.write_all(head.as_bytes()).unwrap();
        let mut told = [0; 12];
        client.read_exact(&mut told).unwrap();
        assert_eq!(&told, b"HTTP/1.1 408");
    }

    #[test]
    fn one_connection_too_many_is_hung_up_on_and_the_others_are_served() {
        let (_runtime, address, _stop, ca) = served(Patience { connections_max: 1, ..Patience::default() });
        let mut first = connect(address, &ca);
        first.write_all(b"GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        assert!(first.read(&mut [0; 4096]).unwrap() > 0);
        assert!(is_hung_up_on(std::net::TcpStream::connect(address).unwrap()));
        first.write_all(b"GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        assert!(first.read(&mut [0; 4096]).unwrap() > 0);
    }
}
