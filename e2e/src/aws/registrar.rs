//! Kubelets that join: for each machine of the emulated account that runs, the Node which a kubelet with its user data would register.
//!
//! ```text
//! account.machines() ─▶ new and running? ─▶ its launch template's user data ─▶ NodeConfig ─▶ Node, by the API server
//! ```
//!
//! Labels, taints, the number of pods and the reservations are read from the user data, not from what we think it says: what our
//! operator wrote there is what its nodes become. A Node is made once and never deleted: that is the operator's business. Heartbeats
//! and pods are kwok's, for every Node carries its annotation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::account::{Account, Machine, list, text};
use crate::client::Client;
use crate::control_plane::build;

/// A kubelet takes tens of seconds; nobody gains from waiting for one that is not there.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// EC2 puts it onto every instance that came from a template.
const TEMPLATE_TAG: &str = "aws:ec2launchtemplate:id";

/// Works until it is dropped.
pub struct Registrar {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Registrar {
    #[must_use]
    pub fn start(account: Account, client: Client, cluster: &str) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut desk = Desk {
            account,
            client,
            cluster: cluster.to_owned(),
            done: BTreeSet::new(),
            told: BTreeSet::new(),
            configs: BTreeMap::new(),
            types: BTreeMap::new(),
        };
        let until = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                desk.look();
                thread::sleep(LOOK_EVERY);
            }
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Registrar {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Desk {
    account: Account,
    client: Client,
    cluster: String,
    /// Machines whose Node has been made.
    done: BTreeSet<String>,
    /// Troubles that have been told, so that each is told once.
    told: BTreeSet<String>,
    /// What the user data of a template says, by the template's id.
    configs: BTreeMap<String, NodeConfig>,
    types: BTreeMap<String, Value>,
}

impl Desk {
    fn look(&mut self) {
        let machines = match self.account.machines_of(&self.cluster) {
            Ok(machines) => machines,
            Err(error) => return self.tell(format!("cannot look at the account: {error:#}")),
        };
        for machine in machines.iter().filter(|machine| machine.state == "running") {
            if self.done.contains(&machine.id) {
                continue;
            }
            match self.register(machine) {
                Ok(()) => {
                    self.done.insert(machine.id.clone());
                }
                Err(error) => self.tell(format!("{} cannot join: {error:#}", machine.id)),
            }
        }
    }

    fn tell(&mut self, trouble: String) {
        if self.told.insert(trouble.clone()) {
            build::to_stderr(&format!("registrar: {trouble}"));
        }
    }

    fn register(&mut self, machine: &Machine) -> Result<()> {
        let config = self.config(machine)?.clone();
        ensure!(config.cluster == self.cluster, "its user data is for cluster {:?}", config.cluster);
        let instance_type = match self.types.get(&machine.instance_type) {
            Some(known) => known.clone(),
            None => {
                let found = self.account.instance_type(&machine.instance_type)?;
                self.types.insert(machine.instance_type.clone(), found.clone());
                found
            }
        };
        let node = node(machine, &instance_type, &config, self.account.region());
        let answer = self.client.post("/api/v1/nodes", &node)?;
        match answer.status {
            201 => Ok(()),
            // It was there before this registrar: the machine is the same.
            409 => Ok(()),
            status => bail!("the API server answers {status}: {}", answer.message()),
        }
    }

    fn config(&mut self, machine: &Machine) -> Result<&NodeConfig> {
        let template = machine.tag(TEMPLATE_TAG).context("it came from no launch template")?.to_owned();
        if !self.configs.contains_key(&template) {
            let data = self.account.template_data_of(&template)?;
            let config = NodeConfig::of_user_data(&text(&data["userData"]))
                .with_context(|| format!("the user data of launch template {template}"))?;
            self.configs.insert(template.clone(), config);
        }
        Ok(&self.configs[&template])
    }
}

/// What a kubelet is told, on Amazon Linux 2023 and on Bottlerocket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeConfig {
    pub cluster: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Value>,
    pub max_pods: u64,
    pub kube_reserved: BTreeMap<String, String>,
    pub system_reserved: BTreeMap<String, String>,
}

impl NodeConfig {
    /// Reads base64 of what either of the two takes.
    pub fn of_user_data(user_data: &str) -> Result<Self> {
        let bytes = STANDARD.decode(user_data).context("not base64")?;
        let text = String::from_utf8(bytes).context("not text")?;
        match text.starts_with("MIME-Version:") || text.starts_with("Content-Type:") {
            true => Self::of_archive(&text),
            false => Self::of_settings(&text),
        }
    }

    /// A MIME archive, whose last part of nodeadm's type is the one that counts.
    fn of_archive(archive: &str) -> Result<Self> {
        let part = parts(archive)?
            .into_iter()
            .rev()
            .find(|(kind, _)| kind.starts_with("application/node.eks.aws"))
            .context("no part of type application/node.eks.aws")?;
        let config: Value = serde_norway::from_str(&part.1).context("the NodeConfig is not YAML")?;
        ensure!(config["kind"] == "NodeConfig", "it is a {}", config["kind"]);
        let kubelet = &config["spec"]["kubelet"];
        let amounts = |value: &Value| -> BTreeMap<String, String> {
            value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
        };
        Ok(Self {
            cluster: text(&config["spec"]["cluster"]["name"]),
            labels: labels(list(&kubelet["flags"]))?,
            taints: list(&kubelet["config"]["registerWithTaints"]).to_vec(),
            max_pods: kubelet["config"]["maxPods"].as_u64().context("no spec.kubelet.config.maxPods")?,
            kube_reserved: amounts(&kubelet["config"]["kubeReserved"]),
            system_reserved: amounts(&kubelet["config"]["systemReserved"]),
        })
    }

    /// Bottlerocket's settings, in TOML.
    fn of_settings(settings: &str) -> Result<Self> {
        let settings: Value = toml::from_str(settings).context("neither a MIME archive nor TOML")?;
        let kubernetes = &settings["settings"]["kubernetes"];
        ensure!(kubernetes.is_object(), "no table settings.kubernetes");
        let texts = |value: &Value| -> BTreeMap<String, String> {
            value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
        };
        let mut taints = Vec::new();
        for (key, values) in kubernetes["node-taints"].as_object().into_iter().flatten() {
            for written in list(values) {
                let written = text(written);
                let (value, effect) = written.rsplit_once(':').with_context(|| format!("taint {key}: {written:?}"))?;
                taints.push(json!({"key": key, "value": value, "effect": effect}));
            }
        }
        Ok(Self {
            cluster: text(&kubernetes["cluster-name"]),
            labels: texts(&kubernetes["node-labels"]),
            taints,
            max_pods: kubernetes["max-pods"].as_u64().context("no settings.kubernetes.max-pods")?,
            kube_reserved: texts(&kubernetes["kube-reserved"]),
            system_reserved: texts(&kubernetes["system-reserved"]),
        })
    }
}

/// The parts of a MIME archive: their type, and what they hold.
fn parts(archive: &str) -> Result<Vec<(String, String)>> {
    let archive = archive.replace("\r\n", "\n");
    let (head, body) = archive.split_once("\n\n").context("a MIME archive begins with headers")?;
    let (_, boundary) = head.split_once("boundary=").context("the archive names no boundary")?;
    let boundary = boundary.lines().next().unwrap_or_default().trim().trim_matches('"').to_owned();
    ensure!(!boundary.is_empty(), "the archive's boundary is empty");
    let mark = format!("--{boundary}");
    let mut out = Vec::new();
    for section in body.split(&mark).skip(1) {
        if section.starts_with("--") {
            break;
        }
        let (head, content) = section.trim_start_matches('\n').split_once("\n\n").context("a part without headers")?;
        let kind =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-type:").map(str::to_owned));
        out.push((kind.unwrap_or_default().trim().to_owned(), content.to_owned()));
    }
    Ok(out)
}

/// Of the flag `--node-labels="a=b,c=d"`.
fn labels(flags: &[Value]) -> Result<BTreeMap<String, String>> {
    let flag = flags.iter().filter_map(Value::as_str).find_map(|flag| flag.strip_prefix("--node-labels="));
    let Some(flag) = flag else {
        return Ok(BTreeMap::new());
    };
    let pairs = flag.trim_matches('"').split(',').filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').with_context(|| format!("label {pair:?} has no value"))?;
        Ok((key.to_owned(), value.to_owned()))
    };
    pairs.map(pair).collect()
}

fn node(machine: &Machine, instance_type: &Value, config: &NodeConfig, region: &str) -> Value {
    let name = &machine.private_dns_name;
    let architectures = list(&instance_type["processorInfo"]["supportedArchitectures"]);
    let architecture = if architectures.iter().any(|it| it == "arm64") { "arm64" } else { "amd64" };
    let mut labels: Map<String, Value> = config.labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    for (key, value) in [
        ("kubernetes.io/hostname", name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture),
        ("node.kubernetes.io/instance-type", &machine.instance_type),
        ("topology.kubernetes.io/zone", &machine.zone),
        ("topology.kubernetes.io/region", region),
    ] {
        labels.insert(key.to_owned(), json!(value));
    }
    let number = |value: &Value| text(value).parse::<u64>().unwrap_or(0);
    let n_cpus = number(&instance_type["vCpuInfo"]["defaultVCpus"]);
    // The kernel and the hypervisor keep a little less than is reckoned with.
    let memory_mib = number(&instance_type["memoryInfo"]["sizeInMiB"]) * 95 / 100;
    let storage_mib = 20 << 10;
    let kept = |resource: &str| kept(config, resource);
    let allocatable = json!({
        "cpu": format!("{}m", (n_cpus * 1_000).saturating_sub(kept("cpu"))),
        "memory": format!("{}Mi", memory_mib.saturating_sub(kept("memory") + 100)),
        "ephemeral-storage": format!("{}Mi", storage_mib - storage_mib / 10 - 1_024),
        "pods": config.max_pods.to_string(),
    });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"providerID": machine.provider_id(), "taints": config.taints},
        "status": {
            "capacity": {
                "cpu": n_cpus.to_string(), "memory": format!("{memory_mib}Mi"),
                "ephemeral-storage": format!("{storage_mib}Mi"), "pods": config.max_pods.to_string(),
            },
            "allocatable": allocatable,
        },
    })
}

/// What is reserved of a resource, in thousandths of a CPU, or in MiB.
fn kept(config: &NodeConfig, resource: &str) -> u64 {
    let of = |amounts: &BTreeMap<String, String>| {
        let amount = amounts.get(resource).map_or("0", String::as_str);
        let digits = |suffix: &str| amount.strip_suffix(suffix).and_then(|digits| digits.parse::<u64>().ok());
        match resource {
            "cpu" => digits("m").or_else(|| amount.parse::<u64>().ok().map(|cores| cores * 1_000)),
            _ => digits("Mi").or_else(|| digits("Gi").map(|gib| gib << 10)),
        }
        .unwrap_or(0)
    };
    of(&config.kube_reserved) + of(&config.system_reserved)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARCHIVE: &str = "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"//\"\r\n\r\n--//\r\n\
        Content-Type: text/x-shellscript; charset=\"us-ascii\"\r\n\r\n#!/bin/bash\necho hello\r\n--//\r\n\
        Content-Type: application/node.eks.aws\r\n\r\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  cluster:\n    \
        name: demo\n  kubelet:\n    config:\n      maxPods: 29\n      kubeReserved: {cpu: 70m, memory: 574Mi}\n      \
        systemReserved: {memory: 1Gi}\n      registerWithTaints:\n      - {key: karpenter.sh/unregistered, effect: NoExecute}\n    \
        flags:\n    - --node-labels=\"karpenter.sh/nodepool=default,team=blue\"\r\n--//--\r\n";

    fn machine() -> Machine {
        Machine {
            id: "i-1".to_owned(),
            instance_type: "m5.large".to_owned(),
            state: "running".to_owned(),
            zone: "us-west-2a".to_owned(),
            image_id: "ami-1".to_owned(),
            private_dns_name: "ip-10-0-0-1.ec2.internal".to_owned(),
            private_address: "10.0.0.1".to_owned(),
            is_spot: false,
            tags: Vec::new(),
        }
    }

    #[test]
    fn a_node_is_what_its_user_data_says() {
        let config = NodeConfig::of_user_data(&STANDARD.encode(ARCHIVE)).unwrap();
        assert_eq!((config.cluster.as_str(), config.max_pods), ("demo", 29));
        let instance_type = json!({
            "processorInfo": {"supportedArchitectures": ["x86_64"]}, "vCpuInfo": {"defaultVCpus": "2"},
            "memoryInfo": {"sizeInMiB": "8192"},
        });
        let node = node(&machine(), &instance_type, &config, "us-west-2");
        assert_eq!(node["spec"]["providerID"], "aws:///us-west-2a/i-1");
        assert_eq!(node["spec"]["taints"][0]["key"], "karpenter.sh/unregistered");
        assert_eq!(node["metadata"]["labels"]["team"], "blue");
        assert_eq!(node["metadata"]["labels"]["kubernetes.io/arch"], "amd64");
        assert_eq!(node["status"]["allocatable"]["cpu"], "1930m");
        assert_eq!(node["status"]["allocatable"]["memory"], format!("{}Mi", 8192 * 95 / 100 - 574 - 1024 - 100));
        assert_eq!(node["status"]["capacity"]["pods"], "29");
    }

    #[test]
    fn bottlerocket_says_the_same_in_its_own_way() {
        let settings = "[settings.kubernetes]\ncluster-name = \"demo\"\nmax-pods = 29\n[settings.kubernetes.node-labels]\n\
                        \"karpenter.sh/nodepool\" = \"default\"\n[settings.kubernetes.node-taints]\n\
                        \"karpenter.sh/unregistered\" = [\":NoExecute\"]\n[settings.kubernetes.kube-reserved]\ncpu = \"70m\"\n";
        let config = NodeConfig::of_user_data(&STANDARD.encode(settings)).unwrap();
        assert_eq!((config.cluster.as_str(), config.max_pods), ("demo", 29));
        assert_eq!(config.labels["karpenter.sh/nodepool"], "default");
        assert_eq!(config.taints, [json!({"key": "karpenter.sh/unregistered", "value": "", "effect": "NoExecute"})]);
        assert_eq!(kept(&config, "cpu"), 70);
    }

    #[test]
    fn user_data_that_no_kubelet_could_read_is_refused() {
        for (archive, expected) in [
            ("#!/bin/bash\n\necho hello", "TOML"),
            ("MIME-Version: 1.0\n\n--//", "boundary"),
            ("[settings]\nmotd = \"hello\"", "settings.kubernetes"),
            (
                "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\nContent-Type: text/plain\n\nhello\n--//--",
                "node.eks.aws",
            ),
        ] {
            let error = NodeConfig::of_user_data(&STANDARD.encode(archive)).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
        assert!(NodeConfig::of_user_data("***").is_err());
    }
}
