//! The operator's pages, and those who ask for them badly.

#![expect(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

use kerf_controllers::limits::PAGES_CONNECTIONS_MAX;
use kerf_controllers::shell::{Bounds, Pages, Reply, serve};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;
use tokio::net::TcpSocket;

fn start(pages: Pages, bounds: Bounds) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    serve("test", listener, pages, bounds).unwrap();
    address
}

/// Nobody is cut off because the machine is slow.
fn patient() -> Bounds {
    let long = Duration::from_secs(600);
    Bounds { head_within: long, whole_within: long, ..Bounds::default() }
}

fn healthy() -> Pages {
    Pages::default().with("/healthz", |_| async { Reply::text(200, "ok") })
}

/// A connection from one of loopback's many addresses.
fn connect(from: Ipv4Addr, to: SocketAddr) -> std::net::TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        socket.connect(to).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

fn ask(from: Ipv4Addr, to: SocketAddr) -> String {
    let mut stream = connect(from, to);
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: kerf\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn whoever_holds_every_connection_open_keeps_no_probe_out() {
    let at = start(healthy(), patient());
    let [loud, louder, kubelet] = [2, 3, 4].map(|last| Ipv4Addr::new(127, 0, 0, last));
    let held: Vec<_> =
        (0..PAGES_CONNECTIONS_MAX).map(|n| connect(if n % 3 == 0 { loud } else { louder }, at)).collect();
    for _ in 0..10 {
        let answer = ask(kubelet, at);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
    }
    // The first of those who had most had to go.
    let cut = &mut &held[1];
    assert_eq!(cut.read(&mut [0]).unwrap(), 0, "cut");
}

#[test]
fn a_request_that_never_ends_is_ended() {
    let at = start(healthy(), Bounds { head_within: Duration::from_millis(50), ..patient() });
    let mut stream = connect(Ipv4Addr::LOCALHOST, at);
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost:").unwrap();
    let mut answer = String::new();
    // Hung up, with or without a word about it, and not by us.
    if let Err(error) = stream.read_to_string(&mut answer) {
        assert!(!matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    }
    assert!(!answer.contains("200"), "{answer}");
}

#[test]
fn an_answer_that_nobody_reads_is_let_go() {
    let (held, let_go) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(Some(held));
    let pages = Pages::default().with("/healthz", move |_| {
        let held = held.lock().unwrap().take();
        async move {
            // More than the kernel takes for us.
            let body = bytes::Bytes::from_owner(Held { bytes: vec![0; 64 << 20], _held: held });
            Reply { status: 200, content_type: "text/plain", body }
        }
    });
    let at = start(pages, Bounds { whole_within: Duration::from_millis(200), ..patient() });
    let mut stream = connect(Ipv4Addr::LOCALHOST, at);
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: kerf\r\n\r\n").unwrap();
    let gone = let_go.recv_timeout(Duration::from_secs(60));
    assert_eq!(gone, Err(std::sync::mpsc::RecvTimeoutError::Disconnected), "the answer is in memory no more");
}

/// An answer's bytes, and a word when they are gone.
struct Held {
    bytes: Vec<u8>,
    _held: Option<std::sync::mpsc::Sender<()>>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[test]
fn there_is_one_request_in_a_connection() {
    let at = start(healthy(), Bounds::default());
    let answer = ask(Ipv4Addr::LOCALHOST, at);
    assert!(answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
}
