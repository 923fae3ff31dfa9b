//! Bottlerocket: settings in TOML, the user's and ours in one document.

use super::{Bootstrap, BootstrapError};
use kerf_api::Ec2NodeClass;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// What Bottlerocket knows under `settings.kubernetes`. A key that it does not know would keep it from booting.
const KNOWN: [&str; 59] = [
    "allowed-unsafe-sysctls",
    "api-server",
    "authentication-mode",
    "bootstrap-token",
    "cloud-provider",
    "cluster-certificate",
    "cluster-dns-ip",
    "cluster-domain",
    "cluster-name",
    "container-log-max-files",
    "container-log-max-size",
    "container-log-max-workers",
    "container-log-monitor-interval",
    "cpu-cfs-quota-enforced",
    "cpu-manager-policy",
    "cpu-manager-policy-options",
    "cpu-manager-reconcile-period",
    "credential-providers",
    "device-ownership-from-security-context",
    "event-burst",
    "event-qps",
    "eviction-hard",
    "eviction-max-pod-grace-period",
    "eviction-soft",
    "eviction-soft-grace-period",
    "hostname-override",
    "hostname-override-source",
    "image-gc-high-threshold-percent",
    "image-gc-low-threshold-percent",
    "kube-api-burst",
    "kube-api-qps",
    "kube-reserved",
    "log-level",
    "max-pods",
    "memory-manager-policy",
    "memory-manager-reserved-memory",
    "memory-swap-behavior",
    "node-ip",
    "node-labels",
    "node-taints",
    "pod-infra-container-image",
    "pod-pids-limit",
    "provider-id",
    "registry-burst",
    "registry-qps",
    "reserved-cpus",
    "seccomp-default",
    "server-certificate",
    "server-key",
    "server-tls-bootstrap",
    "shutdown-grace-period",
    "shutdown-grace-period-for-critical-pods",
    "single-process-oom-kill",
    "standalone-mode",
    "static-pods",
    "static-pods-enabled",
    "system-reserved",
    "topology-manager-policy",
    "topology-manager-scope",
];

/// Sorts before commands of the user, who may want the disks.
const MOUNT_COMMAND: &str = "000-mount-instance-storage";

/// From this version on the image knows by itself which directories belong onto the local disks.
const BINDS_BY_ITSELF: (u32, u32) = (1, 46);

pub(super) fn render(inputs: &Bootstrap) -> Result<String, BootstrapError> {
    let mut settings = match inputs.custom() {
        Some(custom) => parse(custom)?,
        None => Table::new(),
    };
    let mut kubernetes = match settings.remove("kubernetes") {
        Some(Value::Table(written)) => known_only(written),
        _ => Table::new(),
    };
    overwrite(&mut kubernetes, inputs);
    settings.insert("kubernetes".to_owned(), Value::Table(kubernetes));
    if inputs.instance_store_raid {
        let commands = settings.entry("bootstrap-commands").or_insert_with(|| Value::Table(Table::new()));
        if let Value::Table(commands) = commands {
            commands.insert(MOUNT_COMMAND.to_owned(), mount_command(inputs.bottlerocket_version.as_deref()));
        }
    }
    let document = Table::from_iter([("settings".to_owned(), Value::Table(settings))]);
    Ok(document.to_string())
}

/// The table `settings` of user data. Tables beside it mean nothing to Bottlerocket and are lost.
pub(super) fn parse(custom: &str) -> Result<Table, BootstrapError> {
    let mut document: Table = custom.parse().map_err(|error: toml::de::Error| {
        let (line, column) = position(custom, error.span().map_or(0, |span| span.start));
        BootstrapError::Toml { line, column, why: error.message().to_owned() }
    })?;
    let settings = match document.remove("settings") {
        None => return Ok(Table::new()),
        Some(Value::Table(settings)) => settings,
        Some(other) => return Err(BootstrapError::NoTable { key: "settings", found: other.type_str() }),
    };
    for (key, path) in [("kubernetes", "settings.kubernetes"), ("bootstrap-commands", "settings.bootstrap-commands")] {
        if let Some(other) = settings.get(key).filter(|value| !value.is_table()) {
            return Err(BootstrapError::NoTable { key: path, found: other.type_str() });
        }
    }
    let labels = settings.get("kubernetes").and_then(|kubernetes| kubernetes.get("node-labels"));
    if let Some(other) = labels.filter(|value| !value.is_table()) {
        return Err(BootstrapError::NoTable { key: "settings.kubernetes.node-labels", found: other.type_str() });
    }
    Ok(settings)
}

/// Counted from one, as editors do.
fn position(text: &str, at_byte: usize) -> (usize, usize) {
    let before = text.get(..at_byte).unwrap_or(text);
    let in_line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, in_line.chars().count() + 1)
}

fn known_only(written: Table) -> Table {
    let (known, unknown): (Vec<_>, Vec<_>) =
        written.into_iter().partition(|(key, _)| KNOWN.binary_search(&key.as_str()).is_ok());
    if !unknown.is_empty() {
        let keys: Vec<String> = unknown.into_iter().map(|(key, _)| format!("settings.kubernetes.{key}")).collect();
        tracing::warn!(keys = keys.join(", "), "spec.userData has settings that Bottlerocket does not know; left out");
    }
    known.into_iter().collect()
}

fn overwrite(kubernetes: &mut Table, inputs: &Bootstrap) {
    let mut set = |key: &str, value: Value| kubernetes.insert(key.to_owned(), value);
    set("cluster-name", inputs.cluster_name.as_str().into());
    set("api-server", inputs.cluster.endpoint.as_str().into());
    if !inputs.cluster.ca_bundle.is_empty() {
        set("cluster-certificate", inputs.cluster.ca_bundle.as_str().into());
    }
    if let Some(first) = inputs.cluster_dns().into_iter().next() {
        set("cluster-dns-ip", first.into());
    }
    set("max-pods", i64::from(inputs.resolved.max_pods).into());
    set("node-taints", node_taints(inputs));
    for (key, amounts) in [
        ("system-reserved", inputs.system_reserved()),
        ("kube-reserved", inputs.kube_reserved()),
        ("eviction-hard", inputs.amounts("evictionHard")),
        ("eviction-soft", inputs.amounts("evictionSoft")),
        ("eviction-soft-grace-period", inputs.amounts("evictionSoftGracePeriod")),
    ] {
        if !amounts.is_empty() {
            set(key, table(&amounts));
        }
    }
    if let Some(seconds) = inputs.kubelet.get("evictionMaxPodGracePeriod").and_then(serde_json::Value::as_i64) {
        set("eviction-max-pod-grace-period", seconds.into());
    }
    for (key, setting) in [
        ("image-gc-high-threshold-percent", "imageGCHighThresholdPercent"),
        ("image-gc-low-threshold-percent", "imageGCLowThresholdPercent"),
    ] {
        if let Some(percent) = inputs.single(setting) {
            set(key, percent.into());
        }
    }
    if let Some(is_enforced) = inputs.kubelet.get("cpuCFSQuota").and_then(serde_json::Value::as_bool) {
        set("cpu-cfs-quota-enforced", is_enforced.into());
    }
    let labels = kubernetes.entry("node-labels").or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(labels) = labels {
        labels.extend(inputs.labels.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))));
    }
}

/// Taints of one key share a list.
fn node_taints(inputs: &Bootstrap) -> Value {
    let mut taints: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for taint in &inputs.taints {
        let value = format!("{}:{}", taint.value, taint.effect.as_str());
        taints.entry(taint.key.to_string()).or_default().push(value.into());
    }
    Value::Table(taints.into_iter().map(|(key, values)| (key, Value::Array(values))).collect())
}

fn table(amounts: &BTreeMap<String, String>) -> Value {
    Value::Table(amounts.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect())
}

fn mount_command(version: Option<&str>) -> Value {
    let call = |words: &[&str]| Value::Array(words.iter().map(|word| Value::from(*word)).collect());
    let init = ["apiclient", "ephemeral-storage", "init"];
    let mut bind = vec!["apiclient", "ephemeral-storage", "bind"];
    if !version.is_some_and(binds_by_itself) {
        bind.extend(["--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]);
    }
    Value::Table(Table::from_iter([
        ("commands".to_owned(), Value::Array(vec![call(&init), call(&bind)])),
        ("essential".to_owned(), true.into()),
        ("mode".to_owned(), "always".into()),
    ]))
}

fn binds_by_itself(version: &str) -> bool {
    version == "latest" || major_and_minor(version).is_some_and(|version| version >= BINDS_BY_ITSELF)
}

/// Of `1.46.0`, `v1.46.0`, `1.46.0-1a2b3c`.
fn major_and_minor(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.strip_prefix('v').unwrap_or(version).split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The version of the images of a class: that of its alias, else that in a term by name, else that in the names of the images
/// found. None when none of them tells.
pub fn version_of(class: &Ec2NodeClass) -> Option<String> {
    let terms = &class.spec.ami_selector_terms;
    let alias = terms.iter().find_map(|term| term.alias.as_deref()?.split_once('@')).map(|(_, version)| version);
    let found = class.status.iter().flat_map(|status| &status.amis).filter_map(|ami| ami.name.as_deref());
    let names = terms.iter().filter_map(|term| term.name.as_deref()).chain(found);
    alias.or_else(|| names.filter_map(version_in_name).next()).map(str::to_owned)
}

/// Of `bottlerocket-aws-k8s-1.35-x86_64-v1.46.0-1a2b3c4d`, the part behind the last `-v`.
fn version_in_name(name: &str) -> Option<&str> {
    let at = name.rfind("-v")?;
    let version = name[at + 2..].split('-').next()?;
    major_and_minor(version).map(|_| version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_api::{Ami, AmiSelectorTerm, Ec2NodeClassStatus};

    #[test]
    fn known_keys_are_in_order_so_that_they_are_found() {
        assert!(KNOWN.is_sorted());
    }

    #[test]
    fn from_1_46_on_the_image_knows_which_directories_to_bind() {
        for (version, expected) in [
            ("latest", true),
            ("1.46.0", true),
            ("v1.46.1", true),
            ("1.100.0", true),
            ("2.0.0", true),
            ("1.45.9", false),
            ("v1.9.2", false),
            ("newest", false),
        ] {
            assert_eq!(binds_by_itself(version), expected, "{version}");
        }
    }

    #[test]
    fn the_version_comes_from_the_alias_then_a_name_then_the_images() {
        let named = |name: &str| AmiSelectorTerm { name: Some(name.to_owned()), ..AmiSelectorTerm::default() };
        let mut class = Ec2NodeClass::default();
        assert_eq!(version_of(&class), None);
        let image = |name: &str| Ami { name: Some(name.to_owned()), ..Ami::default() };
        let amis = vec![image("something-vital"), image("bottlerocket-aws-k8s-1.35-x86_64-v1.44.0-1a2b3c4d")];
        class.status = Some(Ec2NodeClassStatus { amis, ..Ec2NodeClassStatus::default() });
        assert_eq!(version_of(&class).as_deref(), Some("1.44.0"));
        class.spec.ami_selector_terms = vec![named("bottlerocket-aws-k8s-1.35-*-v1.45.*")];
        assert_eq!(version_of(&class).as_deref(), Some("1.45.*"));
        let alias = Some("bottlerocket@v1.46.0".to_owned());
        class.spec.ami_selector_terms.push(AmiSelectorTerm { alias, ..AmiSelectorTerm::default() });
        assert_eq!(version_of(&class).as_deref(), Some("v1.46.0"));
    }
}
