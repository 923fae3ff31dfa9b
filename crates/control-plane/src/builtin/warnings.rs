//! What is allowed and yet worth a word: `Warning` headers, which kubectl shows.

use serde_json::Value;

use super::names;
use super::quantity::Quantity;
use super::tree::{METADATA, Path, ROOT, SPEC, at, entries, has, int, items, text};
use crate::kind::Resource;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(crate) fn of(resource: &Resource, object: &Value) -> Vec<String> {
    let mut said = Vec::new();
    let is_new = resource.custom.is_none();
    match (resource.group.as_str(), resource.kind.as_str()) {
        _ if !is_new => {}
        ("", "Pod") => {
            hostname(&mut said, object, "the Pod's hostname");
            pod(&mut said, &ROOT, at(object, "metadata"), at(object, "spec"));
        }
        ("", "PodTemplate") => template(&mut said, &ROOT.field("template"), at(object, "template")),
        ("apps", "Deployment" | "ReplicaSet") | ("", "ReplicationController") => {
            hostname(&mut said, object, "Pod names and hostnames");
            template(&mut said, &SPEC.field("template"), at(object, "spec.template"));
        }
        ("apps", "StatefulSet" | "DaemonSet") => {
            template(&mut said, &SPEC.field("template"), at(object, "spec.template"));
        }
        ("batch", "Job") => {
            hostname(&mut said, object, "Pod names and hostnames");
            indexed(&mut said, at(object, "spec"));
            template(&mut said, &SPEC.field("template"), at(object, "spec.template"));
        }
        ("batch", "CronJob") => {
            hostname(&mut said, object, "Pod names and hostnames");
            let job = SPEC.field("jobTemplate");
            let spec = job.field("spec");
            template(&mut said, &spec.field("template"), at(object, "spec.jobTemplate.spec.template"));
        }
        ("", "PersistentVolumeClaim") => {
            let resources = SPEC.field("resources");
            let requests = resources.field("requests");
            let storage = at(object, "spec.resources.requests.storage");
            whole_bytes(&mut said, &requests.key("storage"), storage);
        }
        ("", "PersistentVolume") => {
            let affinity = SPEC.field("nodeAffinity");
            node_selector(&mut said, &affinity.field("required"), at(object, "spec.nodeAffinity.required"));
        }
        ("storage.k8s.io", "StorageClass") => topologies(&mut said, object),
        ("", "Endpoints") => {
            said.push("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned());
        }
        _ => {}
    }
    said
}

fn hostname(said: &mut Vec<String>, object: &Value, use_of: &str) {
    let wrong = names::label(text(object, "metadata.name"));
    if !wrong.is_empty() {
        said.push(format!(
            "{}: this is used in {use_of}, which can result in surprising behavior; a DNS label is recommended: [{}]",
            METADATA.field("name"),
            wrong.join(" ")
        ));
    }
}

fn indexed(said: &mut Vec<String>, spec: &Value) {
    let is_large = int(spec, "completions").is_some_and(|count| count > 100_000)
        && int(spec, "parallelism").is_some_and(|count| count > 10_000);
    if text(spec, "completionMode") == "Indexed" && is_large {
        said.push(
            "spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
                .to_owned(),
        );
    }
}

fn template(said: &mut Vec<String>, path: &Path<'_>, template: &Value) {
    pod(said, path, at(template, "metadata"), at(template, "spec"));
}

fn pod(said: &mut Vec<String>, path: &Path<'_>, metadata: &Value, spec: &Value) {
    let spec_path = path.field("spec");
    for (key, _) in entries(spec, "nodeSelector") {
        if let Some(why) = deprecated_label(key) {
            let selector = spec_path.field("nodeSelector");
            said.push(format!("{}: {why}", selector.key(key)));
        }
    }
    affinity(said, &spec_path.field("affinity"), at(spec, "affinity"));
    let spreading = spec_path.field("topologySpreadConstraints");
    for (index, constraint) in items(spec, "topologySpreadConstraints").iter().enumerate() {
        let path = spreading.index(index);
        let key = text(constraint, "topologyKey");
        if let Some(why) = deprecated_label(key) {
            said.push(format!("{}: {key} is {why}", path.field("topologyKey")));
        }
        no_selector(said, &path, constraint);
    }
    annotations(said, path, metadata);
    volumes(said, &spec_path.field("volumes"), items(spec, "volumes"));
    let secrets = spec_path.field("imagePullSecrets");
    for (index, secret) in items(spec, "imagePullSecrets").iter().enumerate() {
        if text(secret, "name").is_empty() {
            said.push(format!("{}: invalid empty name \"\"", secrets.index(index).field("name")));
        }
    }
    containers(said, &spec_path, spec);
}

fn affinity(said: &mut Vec<String>, path: &Path<'_>, affinity: &Value) {
    if affinity.is_null() {
        return;
    }
    let node = path.field("nodeAffinity");
    node_selector(said, &node.field(REQUIRED), at(at(affinity, "nodeAffinity"), REQUIRED));
    let preferred = node.field(PREFERRED);
    for (index, term) in items(at(affinity, "nodeAffinity"), PREFERRED).iter().enumerate() {
        node_term(said, &preferred.index(index).field("preference"), at(term, "preference"));
    }
    for side in ["podAffinity", "podAntiAffinity"] {
        let (terms, side_path) = (at(affinity, side), path.field(side));
        let required = side_path.field(REQUIRED);
        for (index, term) in items(terms, REQUIRED).iter().enumerate() {
            no_selector(said, &required.index(index), term);
        }
        let preferred = side_path.field(PREFERRED);
        for (index, weighted) in items(terms, PREFERRED).iter().enumerate() {
            no_selector(said, &preferred.index(index).field("podAffinityTerm"), at(weighted, "podAffinityTerm"));
        }
    }
}

fn no_selector(said: &mut Vec<String>, path: &Path<'_>, term: &Value) {
    if !has(term, "labelSelector") {
        said.push(format!("{}: a null labelSelector results in matching no pod", path.field("labelSelector")));
    }
}

fn node_selector(said: &mut Vec<String>, path: &Path<'_>, selector: &Value) {
    let terms = path.field("nodeSelectorTerms");
    for (index, term) in items(selector, "nodeSelectorTerms").iter().enumerate() {
        node_term(said, &terms.index(index), term);
    }
}

fn node_term(said: &mut Vec<String>, path: &Path<'_>, term: &Value) {
    let expressions = path.field("matchExpressions");
    for (index, expression) in items(term, "matchExpressions").iter().enumerate() {
        let key = text(expression, "key");
        if let Some(why) = deprecated_label(key) {
            said.push(format!("{}: {key} is {why}", expressions.index(index).field("key")));
        }
    }
}

fn topologies(said: &mut Vec<String>, object: &Value) {
    let list = ROOT.field("allowedTopologies");
    for (index, term) in items(object, "allowedTopologies").iter().enumerate() {
        let term_path = list.index(index);
        let expressions = term_path.field("matchLabelExpressions");
        for (index, expression) in items(term, "matchLabelExpressions").iter().enumerate() {
            if let Some(why) = deprecated_label(text(expression, "key")) {
                said.push(format!("{}: {why}", expressions.index(index).field("key")));
            }
        }
    }
}

fn deprecated_label(key: &str) -> Option<&'static str> {
    Some(match key {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        "app.kubernetes.io/created-by" => "deprecated since v1.9",
        "scheduler.alpha.kubernetes.io/preferAvoidPods" => "deprecated since v1.22; use Taints and Tolerations instead",
        "node-role.kubernetes.io/master" => "use \"node-role.kubernetes.io/control-plane\" instead",
        _ => return None,
    })
}

fn annotations(said: &mut Vec<String>, path: &Path<'_>, metadata: &Value) {
    const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
    let metadata_path = path.field("metadata");
    let annotations_path = metadata_path.field("annotations");
    for (key, _) in entries(metadata, "annotations") {
        let why = match key.as_str() {
            "scheduler.alpha.kubernetes.io/critical-pod" => {
                "non-functional in v1.16+; use the \"priorityClassName\" field instead"
            }
            "seccomp.security.alpha.kubernetes.io/pod" => {
                "non-functional in v1.27+; use the \"seccompProfile\" field instead"
            }
            key if key.starts_with("container.seccomp.security.alpha.kubernetes.io/") => {
                "non-functional in v1.27+; use the \"seccompProfile\" field instead"
            }
            key if key.starts_with(APP_ARMOR) => "deprecated since v1.30; use the \"appArmorProfile\" field instead",
            _ => continue,
        };
        said.push(format!("{}: {why}", annotations_path.key(key)));
    }
}

fn volumes(said: &mut Vec<String>, path: &Path<'_>, volumes: &[Value]) {
    const GONE: [(&str, &str); 7] = [
        ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
        ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
        ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
        ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
        ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
        ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
        ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ];
    for (index, volume) in volumes.iter().enumerate() {
        for (kind, why) in GONE {
            if has(volume, kind) {
                said.push(format!("{}: {why}", path.index(index).field(kind)));
            }
        }
        if has(volume, "rbd") {
            said.push(format!("{}: deprecated in v1.28, non-functional in v1.31+", path.index(index).field("rbd")));
        }
        for source in items(volume, "projected.sources") {
            if source.as_object().is_none_or(serde_json::Map::is_empty) {
                said.push(format!("volume \"{}\" (Projected) has no sources provided", text(volume, "name")));
            }
        }
    }
}

fn containers(said: &mut Vec<String>, path: &Path<'_>, spec: &Value) {
    let mut ports: Vec<(i64, &str, &str, i64, String)> = Vec::new();
    for list in ["initContainers", "containers"] {
        let list_path = path.field(list);
        for (index, container) in items(spec, list).iter().enumerate() {
            let path = list_path.index(index);
            let resources = path.field("resources");
            for amounts in ["limits", "requests"] {
                let amounts_path = resources.field(amounts);
                for resource in ["memory", "ephemeral-storage"] {
                    let amount = at(at(container, "resources"), amounts).get(resource);
                    if let Some(amount) = amount {
                        whole_bytes(said, &amounts_path.key(resource), amount);
                    }
                }
            }
            variables(said, &path.field("env"), items(container, "env"));
            let is_sidecar = text(container, "restartPolicy") == "Always";
            if list == "containers" || is_sidecar {
                container_ports(said, &path.field("ports"), container, &mut ports);
            }
        }
    }
}

fn variables(said: &mut Vec<String>, path: &Path<'_>, variables: &[Value]) {
    for (index, variable) in variables.iter().enumerate() {
        let name = text(variable, "name");
        if variables.iter().take(index).any(|other| text(other, "name") == name) {
            let detail = format!("hides previous definition of \"{name}\", which may be dropped when using apply");
            said.push(format!("{}: {detail}", path.index(index)));
        }
    }
}

/// A port that is said twice in one pod.
fn container_ports<'a>(
    said: &mut Vec<String>,
    path: &Path<'_>,
    container: &'a Value,
    seen: &mut Vec<(i64, &'a str, &'a str, i64, String)>,
) {
    for (index, port) in items(container, "ports").iter().enumerate() {
        let number = int(port, "containerPort").unwrap_or_default();
        let host = int(port, "hostPort").unwrap_or_default();
        let (protocol, address) = (text(port, "protocol"), text(port, "hostIP"));
        let here = path.index(index).to_string();
        let twin = seen.iter().find(|other| (other.0, other.1, other.2, other.3) == (number, protocol, address, host));
        if let Some(other) = twin {
            said.push(format!("{here}: duplicate port definition with {}", other.4));
        }
        seen.push((number, protocol, address, host, here));
    }
}

fn whole_bytes(said: &mut Vec<String>, path: &Path<'_>, amount: &Value) {
    if let Some(amount) = Quantity::of(amount).filter(|amount| !amount.is_whole()) {
        said.push(format!("{path}: fractional byte value \"{amount}\" is invalid, must be an integer"));
    }
}
