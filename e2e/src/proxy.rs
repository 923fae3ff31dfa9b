//! A way to an API server that can be made to stand still, as a network does that loses a connection without a word.
//!
//! ```text
//! kerf run ── HTTP, one request per connection ──▶ proxy ── TLS ──▶ API server
//!                                                    └─ frozen: neither questions about the frozen path nor their answers move on
//! ```
//!
//! It asks with the caller's own credentials. To its callers it is an old server, too: one that cannot begin a watch with what is there
//! (before 1.32), so that they list.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use ureq::http::Request;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::control_plane::Address;

/// No watch of these tests lasts longer.
const LAST: Duration = Duration::from_secs(600);
/// What a server older than 1.32 says.
const TOO_NEW: &str = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";

/// Listens until the process ends.
pub struct Proxy {
    trouble: Arc<Trouble>,
    port: u16,
}

#[derive(Default)]
struct Trouble {
    /// The path of a collection.
    frozen: Mutex<Option<String>>,
    thawed: Condvar,
    /// A method and a path whose next answer nobody gets.
    lost: Mutex<Option<(String, String)>>,
}

impl Proxy {
    pub fn start(to: &Address) -> Result<Self> {
        let authority =
            Certificate::from_pem(to.ca_pem.as_bytes()).context("the authority's certificate is not PEM")?;
        let agent = ureq::Agent::config_builder()
            .tls_config(TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[authority])).build())
            .http_status_as_error(false)
            .timeout_global(Some(LAST))
            .proxy(None)
            .build()
            .new_agent();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback")?;
        let (port, endpoint) = (listener.local_addr()?.port(), to.endpoint.clone());
        let trouble = Arc::new(Trouble::default());
        let shared = Arc::clone(&trouble);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (agent, endpoint, trouble) = (agent.clone(), endpoint.clone(), Arc::clone(&shared));
                // Whoever hangs up has had enough; that is no error of ours.
                thread::spawn(move || drop(pass(&client, &agent, &endpoint, &trouble)));
            }
        });
        Ok(Self { trouble, port })
    }

    /// The same kubeconfig, by way of this proxy.
    pub fn kubeconfig(&self, of: &Path, folder: &Path) -> Result<PathBuf> {
        let text = std::fs::read_to_string(of).with_context(|| format!("no {}", of.display()))?;
        let mut config: Value = serde_norway::from_str(&text).context("a kubeconfig that is not YAML")?;
        config["clusters"][0]["cluster"] = json!({"server": format!("http://127.0.0.1:{}", self.port)});
        let path = folder.join(format!("proxy-{}.kubeconfig", self.port));
        std::fs::write(&path, config.to_string()).context("cannot write a kubeconfig")?;
        Ok(path)
    }

    /// From now on nothing is heard of this collection: what is under way stands still, and so does what is asked anew.
    pub fn freeze(&self, path: &str) {
        *lock(&self.trouble.frozen) = Some(path.to_owned());
    }

    pub fn thaw(&self) {
        *lock(&self.trouble.frozen) = None;
        self.trouble.thawed.notify_all();
    }

    /// The next such request is carried out, and the connection breaks before its answer.
    pub fn lose_answer(&self, method: &str, path: &str) {
        *lock(&self.trouble.lost) = Some((method.to_owned(), path.to_owned()));
    }

    pub fn has_lost_it(&self) -> bool {
        lock(&self.trouble.lost).is_none()
    }
}

impl Trouble {
    /// Waits as long as this collection is frozen.
    fn wait(&self, collection: &str) {
        let mut path = lock(&self.frozen);
        while path.as_deref() == Some(collection) {
            path = self.thawed.wait(path).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether this is the request whose answer is lost.
    fn loses(&self, method: &str, path: &str) -> bool {
        lock(&self.lost).take_if(|(its_method, its_path)| its_method == method && its_path == path).is_some()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries one request there, and its answer back as it comes.
fn pass(mut client: &TcpStream, agent: &ureq::Agent, endpoint: &str, trouble: &Trouble) -> Result<()> {
    client.set_nodelay(true)?;
    let mut reader = BufReader::new(client);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().context("no method")?.to_owned(), words.next().context("no path")?.to_owned());
    let mut request = Request::builder().method(method.as_str()).uri(format!("{endpoint}{target}"));
    let mut n_body = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => n_body = value.parse()?,
            "host" | "connection" | "transfer-encoding" | "accept-encoding" => {}
            _ => request = request.header(name, value),
        }
    }
    let mut body = vec![0; n_body];
    reader.read_exact(&mut body)?;
    let (collection, query) = target.split_once('?').unwrap_or((&target, ""));
    // Writes go on: only what is asked about it is frozen.
    let asked = if method == "GET" { collection } else { "" };
    trouble.wait(asked);
    if query.contains("sendInitialEvents") {
        let status = json!({"kind": "Status", "code": 422, "reason": "Invalid", "message": TOO_NEW}).to_string();
        let head = "HTTP/1.1 422 Unprocessable Entity\r\nContent-Type: application/json\r\nConnection: close\r\n";
        return Ok(write!(client, "{head}Content-Length: {}\r\n\r\n{status}", status.len())?);
    }
    let response = agent.run(request.body(body)?)?;
    if trouble.loses(&method, collection) {
        return Ok(());
    }
    write!(client, "HTTP/1.1 {}\r\nConnection: close\r\n", response.status())?;
    for name in ["content-type", "retry-after"] {
        if let Some(value) = response.headers().get(name).and_then(|value| value.to_str().ok()) {
            write!(client, "{name}: {value}\r\n")?;
        }
    }
    // Without a length: it ends with the connection.
    client.write_all(b"\r\n")?;
    let mut answer = response.into_body().into_with_config().limit(u64::MAX).reader();
    let mut piece = vec![0; 1 << 16];
    loop {
        let n_read = answer.read(&mut piece)?;
        if n_read == 0 {
            return Ok(());
        }
        trouble.wait(asked);
        client.write_all(&piece[..n_read])?;
    }
}
