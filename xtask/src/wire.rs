//! `cargo xtask wire`: makes `crates/control-plane/data/wire.txt`, the field numbers of the built-in kinds.
//!
//! Typed Go clients, kubectl among them, write their bodies in protocol buffers. Which number stands for which field is a fact
//! of the wire; it is taken from the published definitions in the Go module cache, as a table of names, numbers and types, and
//! nothing else of them is.
//!
//! ```text
//! core/v1.ContainerPort name=1s hostPort=2i containerPort=3i protocol=4s hostIP=5s
//!         s text, i whole number, b truth, d fraction, y bytes; * a list of, % a map to; ^ its fields stand in the parent's JSON
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use kerf_e2e::control_plane::parts::KUBERNETES;
use serde_json::Value;

const OUTPUT: &str = "crates/control-plane/data/wire.txt";

/// The packages, and where their definitions lie below the module cache's `k8s.io`.
const PACKAGES: [(&str, &str, &str); 17] = [
    ("core/v1", "k8s.io.api.core.v1", "api@/core/v1"),
    ("apps/v1", "k8s.io.api.apps.v1", "api@/apps/v1"),
    ("batch/v1", "k8s.io.api.batch.v1", "api@/batch/v1"),
    ("policy/v1", "k8s.io.api.policy.v1", "api@/policy/v1"),
    ("storage/v1", "k8s.io.api.storage.v1", "api@/storage/v1"),
    ("scheduling/v1", "k8s.io.api.scheduling.v1", "api@/scheduling/v1"),
    ("coordination/v1", "k8s.io.api.coordination.v1", "api@/coordination/v1"),
    ("resource/v1", "k8s.io.api.resource.v1", "api@/resource/v1"),
    ("rbac/v1", "k8s.io.api.rbac.v1", "api@/rbac/v1"),
    ("events/v1", "k8s.io.api.events.v1", "api@/events/v1"),
    ("autoscaling/v1", "k8s.io.api.autoscaling.v1", "api@/autoscaling/v1"),
    ("admissionregistration/v1", "k8s.io.api.admissionregistration.v1", "api@/admissionregistration/v1"),
    (
        "apiextensions/v1",
        "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1",
        "apiextensions-apiserver@/pkg/apis/apiextensions/v1",
    ),
    ("meta/v1", "k8s.io.apimachinery.pkg.apis.meta.v1", "apimachinery@/pkg/apis/meta/v1"),
    ("resource", "k8s.io.apimachinery.pkg.api.resource", "apimachinery@/pkg/api/resource"),
    ("intstr", "k8s.io.apimachinery.pkg.util.intstr", "apimachinery@/pkg/util/intstr"),
    ("runtime", "k8s.io.apimachinery.pkg.runtime", "apimachinery@/pkg/runtime"),
];

/// Kinds that a client may send: everything reachable from them is in the table.
const ROOTS: [&str; 44] = [
    "core/v1.Binding",
    "core/v1.ConfigMap",
    "core/v1.Endpoints",
    "core/v1.Event",
    "core/v1.LimitRange",
    "core/v1.Namespace",
    "core/v1.Node",
    "core/v1.PersistentVolume",
    "core/v1.PersistentVolumeClaim",
    "core/v1.Pod",
    "core/v1.PodTemplate",
    "core/v1.ReplicationController",
    "core/v1.ResourceQuota",
    "core/v1.Secret",
    "core/v1.Service",
    "core/v1.ServiceAccount",
    "apps/v1.ControllerRevision",
    "apps/v1.DaemonSet",
    "apps/v1.Deployment",
    "apps/v1.ReplicaSet",
    "apps/v1.StatefulSet",
    "batch/v1.CronJob",
    "batch/v1.Job",
    "policy/v1.Eviction",
    "policy/v1.PodDisruptionBudget",
    "storage/v1.CSIDriver",
    "storage/v1.CSINode",
    "storage/v1.CSIStorageCapacity",
    "storage/v1.StorageClass",
    "storage/v1.VolumeAttachment",
    "scheduling/v1.PriorityClass",
    "coordination/v1.Lease",
    "resource/v1.DeviceClass",
    "resource/v1.ResourceClaim",
    "resource/v1.ResourceClaimTemplate",
    "resource/v1.ResourceSlice",
    "rbac/v1.ClusterRole",
    "rbac/v1.ClusterRoleBinding",
    "rbac/v1.Role",
    "rbac/v1.RoleBinding",
    "events/v1.Event",
    "autoscaling/v1.Scale",
    "apiextensions/v1.CustomResourceDefinition",
    "meta/v1.DeleteOptions",
];

/// A message's fields: name, number, kind.
type Messages = BTreeMap<String, Vec<(String, String, String)>>;

pub(crate) fn run() -> Result<()> {
    let text = table()?;
    fs::write(OUTPUT, &text).with_context(|| format!("cannot write {OUTPUT}"))?;
    println!("{OUTPUT}: {} messages, {} bytes", text.lines().count(), text.len());
    Ok(())
}

fn table() -> Result<String> {
    let cache = module_cache()?;
    let mut messages = Messages::new();
    for (short, _, folder) in PACKAGES {
        let twin = KUBERNETES.version.replacen("v1.", "v0.", 1);
        let path = cache.join(folder.replacen('@', &format!("@{twin}"), 1)).join("generated.proto");
        let text = fs::read_to_string(&path)
            .with_context(|| format!("{} is not in the module cache: build the control plane first", path.display()))?;
        read_package(short, &text, &mut messages);
    }
    for group in [
        "admissionregistration/v1.MutatingWebhookConfiguration",
        "admissionregistration/v1.ValidatingWebhookConfiguration",
        "admissionregistration/v1.ValidatingAdmissionPolicy",
        "admissionregistration/v1.ValidatingAdmissionPolicyBinding",
    ] {
        if !messages.contains_key(group) {
            bail!("{group} is not defined");
        }
    }
    let in_json = json_fields(&cache.join(format!("kubernetes@{}", KUBERNETES.version)))?;
    let reachable = reachable(&messages);
    let mut text = String::new();
    for name in reachable {
        let Some(fields) = messages.get(&name) else { bail!("{name} is used and not defined") };
        write!(text, "{name}")?;
        for (field, number, kind) in fields {
            let stands_in_parent = kind.contains('/')
                && !kind.starts_with(['*', '%'])
                && in_json.get(&name).is_some_and(|known| !known.contains(field));
            write!(text, " {field}={number}{}{kind}", if stands_in_parent { "^" } else { "" })?;
        }
        text.push('\n');
    }
    Ok(text)
}

fn module_cache() -> Result<PathBuf> {
    let output = Command::new("go").args(["env", "GOMODCACHE"]).output().context("go does not run")?;
    Ok(Path::new(String::from_utf8(output.stdout)?.trim()).join("k8s.io"))
}

/// `repeated Container containers = 2;` becomes `containers=2*core/v1.Container`.
fn read_package(short: &str, text: &str, messages: &mut Messages) {
    let mut current: Option<String> = None;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        if let Some(rest) = line.strip_prefix("message ") {
            let name = format!("{short}.{}", rest.trim_end_matches('{').trim());
            messages.insert(name.clone(), Vec::new());
            current = Some(name);
        } else if line == "}" {
            current = None;
        } else if let (Some(message), Some((left, number))) = (&current, line.trim_end_matches(';').split_once(" = ")) {
            let Some((kind, field)) = left.rsplit_once(' ') else { continue };
            let kind = kind_of(short, kind.trim());
            let entry = (field.to_owned(), number.trim().to_owned(), kind);
            messages.entry(message.clone()).or_default().push(entry);
        }
    }
}

fn kind_of(short: &str, written: &str) -> String {
    if let Some(inner) = written.strip_prefix("repeated ") {
        return format!("*{}", kind_of(short, inner));
    }
    if let Some(inner) = written.strip_prefix("map<string, ").and_then(|rest| rest.strip_suffix('>')) {
        return format!("%{}", kind_of(short, inner));
    }
    match written.strip_prefix("optional ").unwrap_or(written) {
        "string" => "s".to_owned(),
        "int32" | "int64" => "i".to_owned(),
        "bool" => "b".to_owned(),
        "double" => "d".to_owned(),
        "bytes" => "y".to_owned(),
        named => match named.strip_prefix('.') {
            None => format!("{short}.{named}"),
            Some(full) => PACKAGES
                .iter()
                .find_map(|(short, package, _)| {
                    let rest = full.strip_prefix(package)?.strip_prefix('.')?;
                    (!rest.contains('.')).then(|| format!("{short}.{rest}"))
                })
                .unwrap_or_else(|| full.to_owned()),
        },
    }
}

fn reachable(messages: &Messages) -> BTreeSet<String> {
    let webhooks = messages.keys().filter(|name| {
        name.starts_with("admissionregistration/v1.")
            && (name.ends_with("Configuration") || name.ends_with("AdmissionPolicy") || name.ends_with("PolicyBinding"))
    });
    let mut to_do: Vec<String> = ROOTS.iter().map(|root| (*root).to_owned()).chain(webhooks.cloned()).collect();
    let mut found = BTreeSet::new();
    while let Some(name) = to_do.pop() {
        if !found.insert(name.clone()) {
            continue;
        }
        for (_, _, kind) in messages.get(&name).into_iter().flatten() {
            let plain = kind.trim_start_matches(['*', '%']);
            if plain.contains('.') {
                to_do.push(plain.to_owned());
            }
        }
    }
    found
}

/// The properties that each type has in JSON, by our name of the type.
fn json_fields(module: &Path) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let path = module.join("api/openapi-spec/swagger.json");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let swagger: Value = serde_json::from_str(&text).context("the OpenAPI document is not JSON")?;
    let mut known = BTreeMap::new();
    for (name, definition) in swagger["definitions"].as_object().into_iter().flatten() {
        let Some((package, kind)) = name.strip_prefix("io.k8s.").and_then(|rest| rest.rsplit_once('.')) else {
            continue;
        };
        let package = format!("k8s.io.{}", package.replace('-', "_"));
        let Some((short, _, _)) = PACKAGES.iter().find(|(_, full, _)| *full == package) else { continue };
        let fields = definition["properties"].as_object().into_iter().flatten().map(|(field, _)| field.clone());
        known.insert(format!("{short}.{kind}"), fields.collect());
    }
    Ok(known)
}
