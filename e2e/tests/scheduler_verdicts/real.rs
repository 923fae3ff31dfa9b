//! A real kube-scheduler on a real API server, and the extender through which we see what passed its filters.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::{fs, thread};

use kerf_e2e::client::Client;
use kerf_e2e::control_plane::build::{self, Prepared};
use kerf_e2e::control_plane::{self, ControlPlane, Started, parts};
use serde_json::{Value, json};

use super::pods::PLACED_FOR_REAL;

/// What the extender holds against every node that passed.
pub(crate) const TURNED_DOWN: &str = "node(s) would have done";

/// Nodes that passed all filters, by the uid of the pod.
type Passed = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

pub(crate) struct Real {
    scheduler: Child,
    plane: Box<ControlPlane>,
    passed: Passed,
}

impl Real {
    /// Err says why there is none on this machine.
    pub(crate) fn start() -> Result<Self, String> {
        let binaries = match build::prepare(parts::CLUSTER, &build::to_stderr).unwrap() {
            Prepared::Ready(binaries) => binaries,
            Prepared::Skipped(reason) => return Err(reason),
        };
        let plane = match control_plane::start(&build::to_stderr).unwrap() {
            Started::Ready(plane) => plane,
            Started::Skipped(reason) => return Err(reason),
        };
        let passed = Passed::default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let notes = passed.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let notes = notes.clone();
                thread::spawn(move || answer_all(&stream, &notes));
            }
        });
        let folder = plane.kubeconfig().parent().unwrap();
        let configuration = folder.join("scheduler.yaml");
        fs::write(&configuration, configuration_text(plane.kubeconfig().to_str().unwrap(), port)).unwrap();
        let log = fs::File::create(folder.join("kube-scheduler.log")).unwrap();
        // The shell outlives the scheduler only until our end of the pipe closes, however that happens.
        let scheduler = Command::new("/bin/sh")
            .args(["-c", r#""$0" "--config=$1" --secure-port=0 & server=$!; read -r _; kill -9 $server"#])
            .arg(binaries.path("kube-scheduler").unwrap())
            .arg(&configuration)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Ok(Self { scheduler, plane, passed })
    }

    pub(crate) fn client(&self) -> Client {
        self.plane.client().unwrap()
    }

    pub(crate) fn passed(&self, uid: &str) -> BTreeSet<String> {
        self.passed.lock().unwrap().get(uid).cloned().unwrap_or_default()
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        drop(self.scheduler.stdin.take());
        drop(self.scheduler.wait());
    }
}

fn configuration_text(kubeconfig: &str, port: u16) -> String {
    format!(
        "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {{ kubeconfig: {kubeconfig}, qps: 1000, burst: 2000 }}
leaderElection: {{ leaderElect: false }}
percentageOfNodesToScore: 100
extenders:
- urlPrefix: http://127.0.0.1:{port}
  filterVerb: filter
  nodeCacheCapable: true
  enableHTTPS: false
  httpTimeout: 30s
"
    )
}

/// Serves one connection until the scheduler closes it.
fn answer_all(stream: &TcpStream, passed: &Passed) {
    let mut reader = BufReader::new(stream);
    while let Some(body) = read_request(&mut reader) {
        let question: Value = serde_json::from_slice(&body).unwrap();
        let names: BTreeSet<String> = question["NodeNames"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect();
        let meta = &question["Pod"]["metadata"];
        let refused: BTreeMap<&String, &str> = names.iter().map(|name| (name, TURNED_DOWN)).collect();
        let reply = if meta["labels"][PLACED_FOR_REAL].is_null() {
            json!({"NodeNames": [], "FailedAndUnresolvableNodes": refused}).to_string()
        } else {
            json!({"NodeNames": names}).to_string()
        };
        let uid = meta["uid"].as_str().unwrap_or("").to_owned();
        passed.lock().unwrap().insert(uid, names);
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", reply.len());
        let mut writer = stream;
        if writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(reply.as_bytes())).is_err() {
            return;
        }
    }
}

fn read_request(reader: &mut BufReader<&TcpStream>) -> Option<Vec<u8>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim_end().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(body)
}
