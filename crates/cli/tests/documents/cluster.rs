//! A cluster in YAML, and what `kerf plan -o json` says of it.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

/// The class that most pools use; the documents' one, with names of our own.
pub(crate) const CLASS: &str = "
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: workers}
spec:
  role: KarpenterNodeRole-kerf-demo
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: kerf-demo}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: kerf-demo}}]
";

pub(crate) const ON_DEMAND: &str = "{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}";
pub(crate) const BOTH: &str = "{key: karpenter.sh/capacity-type, operator: In, values: [spot, on-demand]}";
pub(crate) const AMD64: &str = "{key: kubernetes.io/arch, operator: In, values: [amd64]}";
pub(crate) const CATEGORIES: &str = "{key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}";
pub(crate) const TYPE: &str = "node.kubernetes.io/instance-type";

/// A NodePool of class `workers`. `spec` holds fields beside the template, `template` those of its spec.
pub(crate) fn pool(name: &str, requirements: &[&str], template: &str, spec: &str) -> String {
    pool_with_labels(name, "{}", requirements, template, spec)
}

pub(crate) fn pool_with_labels(name: &str, labels: &str, requirements: &[&str], template: &str, spec: &str) -> String {
    format!(
        "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: {name}}}
spec:
  template:
    metadata: {{labels: {labels}}}
    spec: {{nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: workers}}, requirements: [{}]{}}}
{}",
        requirements.join(", "),
        inserted(template),
        indented(spec),
    )
}

/// `key In [values]`, the shape of nearly every requirement in the documents.
pub(crate) fn within(key: &str, values: &str) -> String {
    format!("{{key: {key}, operator: In, values: [{values}]}}")
}

/// A Deployment; `more` is inserted into the pod's spec.
pub(crate) fn deployment(name: &str, replicas: u32, requests: &str, more: &str) -> String {
    format!(
        "
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec: {{replicas: {replicas}, selector: {{matchLabels: {{app: {name}}}}}, template: {{metadata: {{labels: {{app: {name}}}}}, spec: {}}}}}
",
        pod_spec(name, requests, more)
    )
}

pub(crate) fn pod(name: &str, requests: &str, more: &str) -> String {
    format!(
        "\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: {name}}}}}, spec: {}}}\n",
        pod_spec(name, requests, more)
    )
}

/// A pod that runs on a node.
pub(crate) fn running(name: &str, app: &str, node: &str, requests: &str, more: &str) -> String {
    format!(
        "\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: {app}}}}}, spec: {}, status: {{phase: Running}}}}\n",
        pod_spec(name, requests, &format!("nodeName: {node}{}", inserted(more)))
    )
}

fn pod_spec(name: &str, requests: &str, more: &str) -> String {
    format!(
        "{{terminationGracePeriodSeconds: 0, containers: [{{name: {name}, image: public.ecr.aws/eks-distro/kubernetes/pause:3.7, resources: {{requests: {requests}}}}}]{}}}",
        inserted(more)
    )
}

/// A ready node of a pool, without daemons. `labels` are inserted beside the usual ones.
pub(crate) fn node(name: &str, pool: &str, of_type: &str, capacity: &str, labels: &str, spec: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Node
metadata:
  name: {name}
  labels: {{karpenter.sh/nodepool: {pool}, karpenter.sh/registered: 'true', karpenter.sh/initialized: 'true', karpenter.sh/capacity-type: on-demand, kubernetes.io/arch: amd64, kubernetes.io/os: linux, kubernetes.io/hostname: {name}, node.kubernetes.io/instance-type: {of_type}, topology.kubernetes.io/zone: us-east-1a{}}}
spec: {{providerID: 'aws:///us-east-1a/{name}'{}}}
status: {{capacity: {capacity}, allocatable: {capacity}}}
",
        inserted(labels),
        inserted(spec)
    )
}

fn inserted(fields: &str) -> String {
    if fields.is_empty() { String::new() } else { format!(", {fields}") }
}

fn indented(fields: &str) -> String {
    fields.lines().map(|line| format!("  {line}\n")).collect()
}

/// One instance type in the kwok provider's format, in zone `z`, for plans that can be drawn by hand.
/// Each offering is a capacity type and a price; a tenth of a CPU of it is not for pods.
pub(crate) fn kwok_type(name: &str, cpu: u32, memory_gi: u32, offerings: &[(&str, f64)]) -> Value {
    let is = |key: &str, value: &str| serde_json::json!({"key": key, "operator": "In", "values": [value]});
    let offerings: Vec<Value> = offerings
        .iter()
        .map(|(capacity_type, price)| {
            serde_json::json!({"Price": price, "Available": true, "Requirements": [
                is("karpenter.sh/capacity-type", capacity_type), is("topology.kubernetes.io/zone", "z")]})
        })
        .collect();
    serde_json::json!({"name": name, "architecture": "amd64", "operatingSystems": ["linux"],
        "resources": {"cpu": cpu.to_string(), "memory": format!("{memory_gi}Gi")}, "offerings": offerings})
}

/// What the binary said.
pub(crate) struct Plan {
    pub(crate) json: Value,
    pub(crate) status: i32,
}

/// Plans these documents with the AWS catalogue.
pub(crate) fn plan(documents: &[&str]) -> Plan {
    plan_with(&[], documents)
}

/// Plans them with a file of instance types, which is gone afterwards.
pub(crate) fn plan_with_types(types: &[Value], documents: &[&str]) -> Plan {
    let id = std::thread::current().id();
    let file = std::env::temp_dir().join(format!("kerf-documents-{}-{id:?}.json", std::process::id()));
    std::fs::write(&file, Value::from(types.to_vec()).to_string()).expect("the folder for temporary files is writable");
    let plan = plan_with(&["--instance-types", &file.display().to_string()], documents);
    std::fs::remove_file(&file).expect("it was just written");
    plan
}

pub(crate) fn plan_with(arguments: &[&str], documents: &[&str]) -> Plan {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kerf"))
        .args(["plan", "-f", "-", "-o", "json", "--now", "2026-11-15T09:10:00Z"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("cargo built the binary");
    let text = documents.join("\n---\n");
    child.stdin.take().expect("it is piped").write_all(text.as_bytes()).expect("the binary reads all of it");
    let output = child.wait_with_output().expect("the binary ends");
    let told = String::from_utf8_lossy(&output.stderr);
    let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {told}"));
    let plan = Plan { json, status: output.status.code().expect("nobody killed it") };
    plan.check_counts();
    plan
}

impl Plan {
    /// Holds for every plan: each pod once, the sums agree, the exit status tells.
    fn check_counts(&self) {
        let groups = ["launches", "placements", "pending"];
        let pods: Vec<&str> =
            groups.iter().flat_map(|group| list(&self.json[group])).flat_map(|entry| strings(&entry["pods"])).collect();
        let distinct: BTreeSet<&str> = pods.iter().copied().collect();
        assert_eq!(distinct.len(), pods.len(), "a pod is told of twice");
        assert_eq!(self.count("podsWaiting"), pods.len());
        assert_eq!(self.status, if list(&self.json["pending"]).is_empty() { 0 } else { 2 });
        let prices: f64 = self.launches().iter().map(|launch| launch.price()).sum();
        assert!((prices - self.added()).abs() < 1e-6, "{prices} is not {}", self.added());
    }

    pub(crate) fn count(&self, name: &str) -> usize {
        let count = self.json["summary"][name].as_u64().unwrap_or_else(|| panic!("no count {name}"));
        usize::try_from(count).expect("counts are small")
    }

    /// Dollars per hour of what would be launched.
    pub(crate) fn added(&self) -> f64 {
        self.json["cost"]["dollarsPerHourAdded"].as_f64().expect("it is always there")
    }

    pub(crate) fn launches(&self) -> Vec<Launch<'_>> {
        list(&self.json["launches"]).iter().map(Launch).collect()
    }

    /// How many launches have each first choice, and how many pods they are for.
    pub(crate) fn bought(&self) -> BTreeMap<&str, (usize, usize)> {
        let mut out: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for launch in self.launches() {
            let entry = out.entry(launch.first_type()).or_default();
            *entry = (entry.0 + 1, entry.1 + launch.pods().len());
        }
        out
    }

    /// How many pods of an app (the name before the last dash) go to new nodes of each pool.
    pub(crate) fn pods_by_pool(&self, app: &str) -> BTreeMap<&str, usize> {
        let mut out = BTreeMap::new();
        for launch in self.launches() {
            let n_pods = launch.pods().iter().filter(|pod| app_of(pod) == app).count();
            if n_pods > 0 {
                *out.entry(launch.pool()).or_default() += n_pods;
            }
        }
        out
    }

    /// Pods by the existing node they go to.
    pub(crate) fn placed(&self) -> BTreeMap<&str, Vec<&str>> {
        let entries = list(&self.json["placements"]).iter();
        entries.map(|entry| (entry["node"].as_str().unwrap_or_default(), strings(&entry["pods"]))).collect()
    }

    pub(crate) fn n_pending(&self) -> usize {
        self.count("podsPending")
    }

    /// The last pod that is told to stay pending.
    pub(crate) fn last_pending(&self) -> &str {
        let pods = list(&self.json["pending"]).iter().flat_map(|entry| strings(&entry["pods"]));
        pods.last().expect("some pod stays pending")
    }

    /// Why a pod stays pending, by pool: cause and words. Empty when it does not.
    pub(crate) fn refusal(&self, pod: &str) -> BTreeMap<&str, (&str, &str)> {
        let entry = list(&self.json["pending"]).iter().find(|entry| strings(&entry["pods"]).contains(&pod));
        let verdicts = entry.map(|entry| list(&entry["verdicts"])).unwrap_or_default();
        verdicts
            .iter()
            .map(|verdict| {
                let say = |field: &str| verdict[field].as_str().unwrap_or_default();
                (say("nodePool"), (say("cause"), say("message")))
            })
            .collect()
    }

    pub(crate) fn would_help(&self, pod: &str) -> &str {
        let entry = list(&self.json["pending"]).iter().find(|entry| strings(&entry["pods"]).contains(&pod));
        entry.and_then(|entry| entry["wouldHelp"].as_str()).unwrap_or_default()
    }

    /// Everything odd about the input, one line each.
    pub(crate) fn notes(&self) -> String {
        let say = |note: &Value, field: &str| note[field].as_str().unwrap_or_default().to_owned();
        list(&self.json["notes"])
            .iter()
            .map(|note| format!("{}: {}: {}\n", say(note, "object"), say(note, "field"), say(note, "message")))
            .collect()
    }
}

/// A node to buy.
pub(crate) struct Launch<'a>(pub(crate) &'a Value);

impl<'a> Launch<'a> {
    pub(crate) fn pool(&self) -> &'a str {
        self.0["nodePool"].as_str().unwrap_or_default()
    }

    pub(crate) fn pods(&self) -> Vec<&'a str> {
        strings(&self.0["pods"])
    }

    pub(crate) fn price(&self) -> f64 {
        self.0["dollarsPerHour"].as_f64().expect("a launch has a price")
    }

    /// What would do, first choice first.
    pub(crate) fn options(&self) -> &'a [Value] {
        list(&self.0["instanceTypes"])
    }

    pub(crate) fn types(&self) -> BTreeSet<&'a str> {
        self.options().iter().filter_map(|option| option["name"].as_str()).collect()
    }

    pub(crate) fn first_type(&self) -> &'a str {
        self.options()[0]["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn first(&self, field: &str) -> &'a str {
        self.options()[0][field].as_str().unwrap_or_default()
    }

    pub(crate) fn label(&self, key: &str) -> &'a str {
        self.0["labels"][key].as_str().unwrap_or_default()
    }

    /// The values of the claim's requirement on a key.
    pub(crate) fn values(&self, key: &str) -> BTreeSet<&'a str> {
        let found = list(&self.0["requirements"]).iter().find(|requirement| requirement["key"] == key);
        found.map(|requirement| strings(&requirement["values"]).into_iter().collect()).unwrap_or_default()
    }

    pub(crate) fn request(&self, resource: &str) -> &'a str {
        self.0["requests"][resource].as_str().unwrap_or_default()
    }
}

/// `web` of `default/web-12`.
pub(crate) fn app_of(pod: &str) -> &str {
    let name = pod.split_once('/').map_or(pod, |(_, name)| name);
    name.rsplit_once('-').map_or(name, |(app, _)| app)
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn strings(value: &Value) -> Vec<&str> {
    list(value).iter().filter_map(Value::as_str).collect()
}
