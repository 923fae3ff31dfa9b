//! An AWS account on loopback: moto's server, installed from its package index, with its gaps closed by `aws/emulator.py`.
//!
//! ```text
//! packages ── moto[server] ──▶ cache                   once per machine and version
//! start ──▶ python3 aws/emulator.py ──▶ Emulator       seconds; everything in memory, gone when dropped
//!                       ▲
//!    SDK, operator ─────┤  AWS_ENDPOINT_URL
//!    control ───────────┘  /kerf/…: stock, policy, failures, impairments, what was asked
//!                       ▲
//!    account ───────────┤  what a person would see in a console
//!    registrar ─────────┘  kubelets that join, as the user data of their machines says
//! ```
//!
//! The account is numbered 123456789012 and any key will do. Who signs with [`ADMIN_KEY`] is not judged by the policy.

pub mod account;
pub mod policies;
pub mod registrar;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::control_plane::build::{self, Progress};
use crate::control_plane::processes::{self, Processes};
use crate::packages::{Installed, Package};

pub const ADMIN_KEY: &str = "KERFADMIN";

/// The catalogue's own facts are of the same package: types that the emulator knows and those that we know are the same.
const SERVER: Package = Package { name: "moto[server]", version: "5.2.5", is_library: true };
/// Python reads some megabytes of modules first, on a machine that may be busy.
const READY_WITHIN: Duration = Duration::from_secs(300);
/// Preparing an account takes a dozen calls, and a list of all requests may be long.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);

/// A running account. Dropping it ends it.
pub struct Emulator {
    // Dropped in this order: the process goes before the folder it writes to.
    processes: Processes,
    folder: tempfile::TempDir,
    agent: ureq::Agent,
    endpoint: String,
}

/// Either an account, or why there is none on this machine. The second is for the caller to say loudly.
pub enum Started {
    Ready(Box<Emulator>),
    Skipped(String),
}

/// What was made for a cluster.
#[derive(Clone, Debug, Deserialize)]
pub struct Prepared {
    pub account: String,
    pub vpc: String,
    /// One in each of three zones, tagged `karpenter.sh/discovery`.
    pub subnets: Vec<PreparedSubnet>,
    /// Both tagged `karpenter.sh/discovery`, the first `kubernetes.io/cluster/<name>: owned` too.
    pub security_groups: Vec<String>,
    pub role: String,
    /// Holds the role.
    pub profile: String,
    pub cluster_arn: String,
    /// Named like the cluster.
    pub queue_url: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct PreparedSubnet {
    pub id: String,
    pub zone: String,
    pub zone_id: String,
}

/// A request as the emulator heard it.
#[derive(Clone, Debug, Deserialize)]
pub struct Heard {
    pub service: String,
    pub operation: String,
    pub region: String,
    pub path: String,
    pub agent: String,
    pub admin: bool,
    /// When, in seconds since 1970.
    pub at: f64,
    /// The form or the JSON of its body.
    pub parameters: Value,
}

/// What is in the account now, terminated instances left out.
#[derive(Clone, Debug, Deserialize)]
pub struct Holdings {
    pub instances: Vec<HeldInstance>,
    pub templates: Vec<String>,
    pub profiles: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct HeldInstance {
    pub id: String,
    #[serde(rename = "type")]
    pub instance_type: String,
    pub zone: String,
    pub capacity_type: String,
    pub state: String,
    pub tags: std::collections::BTreeMap<String, String>,
}

/// Installs what is missing and starts an empty account.
///
/// - Guarantees: on return it answers. It ends with the returned value, with a panic, and with this process, even one that is killed.
/// - Caveats: without python3 and pip the answer is `Skipped`.
pub fn start(progress: Progress<'_>) -> Result<Started> {
    let packages = match SERVER.install(progress)? {
        Installed::Ready(folder) => folder,
        Installed::Skipped(reason) => return Ok(Started::Skipped(reason)),
    };
    let folder =
        tempfile::Builder::new().prefix("kerf-aws-").tempdir().context("no temporary folder for the emulator")?;
    let mut processes = Processes::new(folder.path())?;
    processes.spawn("emulator", command(&packages).as_mut())?;
    let port = wait_until_ready(&mut processes, folder.path())?;
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(ANSWER_WITHIN))
        // Loopback needs no proxy, whatever the environment says.
        .proxy(None)
        .build()
        .new_agent();
    let endpoint = format!("http://127.0.0.1:{port}");
    Ok(Started::Ready(Box::new(Emulator { processes, folder, agent, endpoint })))
}

fn command(packages: &Path) -> Box<Command> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Box::new(Command::new("python3"));
    command
        .env("PYTHONPATH", packages)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(here.join("aws/emulator.py"))
        .arg("--catalogue")
        .arg(here.join("../crates/cloud/data/aws.txt"));
    command
}

/// The server chooses a free port itself and says which.
fn wait_until_ready(processes: &mut Processes, folder: &Path) -> Result<u16> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        processes.check_alive()?;
        let said = std::fs::read_to_string(processes::log_path(folder, "emulator")).unwrap_or_default();
        if let Some(port) = said.lines().find_map(|line| line.strip_prefix("ready ")) {
            return port.trim().parse().with_context(|| format!("{port:?} is no port"));
        }
        if Instant::now() > deadline {
            bail!("the AWS emulator is not ready after {READY_WITHIN:?}: {said}");
        }
        thread::sleep(Duration::from_millis(50));
    }
}

impl Emulator {
    /// For `AWS_ENDPOINT_URL`.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// What a process needs to take this account for AWS.
    #[must_use]
    pub fn environment(&self, region: &str) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", self.endpoint.clone()),
            ("AWS_REGION", region.to_owned()),
            ("AWS_ACCESS_KEY_ID", "AKIAOPERATOR".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        ]
    }

    /// A VPC with three subnets, security groups, a node role and its profile, an EKS cluster and a queue.
    pub fn prepare(&self, cluster: &str, region: &str) -> Result<Prepared> {
        let made = self.control("prepare", json!({"cluster": cluster, "region": region}))?;
        serde_json::from_value(made).context("the emulator prepared something else")
    }

    /// Forgets everything.
    pub fn reset(&self) -> Result<()> {
        self.control("reset", json!({})).map(drop)
    }

    /// How many instances are left of offerings: (capacity type, type or `*`, zone or `*`, count). None: as many as one likes.
    pub fn stock(&self, rows: &[(&str, &str, &str, Option<u32>)]) -> Result<()> {
        self.control("stock", json!({"stock": rows})).map(drop)
    }

    /// From now on every call is judged by this IAM policy; null takes it back.
    pub fn set_policy(&self, policy: &Value) -> Result<()> {
        self.set(json!({"policy": policy}))
    }

    /// As whom AWS sees the caller.
    pub fn set_principal(&self, arn: &str) -> Result<()> {
        self.set(json!({"principal": arn}))
    }

    /// Sets what `aws/control.py` lists: reservations, placement_groups, shifts, impaired, image_generation, full_subnets, priced.
    pub fn set(&self, settings: Value) -> Result<()> {
        self.control("set", settings).map(drop)
    }

    /// The next calls of an action fail; `times` None: until [`Self::heal`].
    pub fn fail(&self, action: &str, code: &str, message: &str, status: u16, times: Option<u32>) -> Result<()> {
        let order = json!({"action": action, "code": code, "message": message, "status": status, "times": times});
        self.control("fail", order).map(drop)
    }

    /// Calls of an action are heard and not answered, while it is on.
    pub fn hang(&self, action: &str, on: bool) -> Result<()> {
        self.control("hang", json!({"action": action, "on": on})).map(drop)
    }

    pub fn heal(&self, action: &str) -> Result<()> {
        self.control("fail", json!({"action": action, "code": null})).map(drop)
    }

    /// Takes a tag off an instance, as a person at the console would.
    pub fn untag(&self, region: &str, instance: &str, tag: &str) -> Result<()> {
        self.control("release", json!({"region": region, "instance": instance, "tag": tag})).map(drop)
    }

    pub fn deprecate_image(&self, region: &str, image: &str, at: &str) -> Result<()> {
        self.control("deprecate", json!({"region": region, "image": image, "at": at})).map(drop)
    }

    /// What has been asked since the account was prepared or [`Self::forget`] was called.
    pub fn heard(&self) -> Result<Vec<Heard>> {
        let heard = self.control("requests", json!({}))?;
        serde_json::from_value(heard).context("the emulator heard something else")
    }

    pub fn forget(&self) -> Result<()> {
        self.control("forget", json!({})).map(drop)
    }

    pub fn holdings(&self) -> Result<Holdings> {
        serde_json::from_value(self.control("holdings", json!({}))?).context("the emulator holds something else")
    }

    /// Turns a handle of `aws/control.py`.
    pub fn control(&self, handle: &str, order: Value) -> Result<Value> {
        let url = format!("{}/kerf/{handle}", self.endpoint);
        let said = || format!("the emulator's handle {handle}");
        let mut answer = self.agent.post(&url).send(order.to_string()).with_context(said)?;
        let text = answer.body_mut().with_config().limit(256 << 20).read_to_string().with_context(said)?;
        ensure!(answer.status().is_success(), "{}: {text}", said());
        serde_json::from_str(&text).with_context(said)
    }

    /// Where it writes what it says.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        processes::log_path(self.folder.path(), "emulator")
    }

    /// Fails with its last words if it ended by itself.
    pub fn check_alive(&mut self) -> Result<()> {
        self.processes.check_alive()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.processes.end();
        // What it said is the first thing one wants after a failure, and the folder is about to go.
        if thread::panicking() {
            let kept = std::env::temp_dir().join(format!("kerf-aws-logs-{}", std::process::id()));
            if processes::keep_logs(self.folder.path(), &kept).is_ok() {
                build::to_stderr(&format!("aws emulator: logs kept in {}", kept.display()));
            }
        }
    }
}
