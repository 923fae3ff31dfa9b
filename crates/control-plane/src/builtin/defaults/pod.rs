//! Defaults of pods and of pod templates.

use serde_json::{Map, Value, json};

use super::super::quantity::Quantity;
use super::super::tree::{
    at, entries, fill, fill_count, fill_map, fill_text, flag, has, items, items_mut, map_mut, open, text, value_mut,
};
use super::{claim_spec, mirror_service_account, resource_list};

pub(crate) const DEFAULT_GRACE_SECONDS: i64 = 30;

const CONTAINER_LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

pub(super) fn pod(object: &mut Value) {
    spec(open(object, "").entry("spec").or_insert(Value::Null));
    for list in ["spec.containers", "spec.initContainers"] {
        for container in items_mut(object, list) {
            requests_from_limits(container);
        }
    }
    pod_level_resources(object);
    fill(open(object, "spec"), "enableServiceLinks", true);
    if flag(object, "spec.hostNetwork") {
        for list in ["spec.containers", "spec.initContainers"] {
            for container in items_mut(object, list) {
                host_ports(container);
            }
        }
    }
    open(object, "status");
    for condition in items_mut(object, "status.conditions") {
        let condition = open(condition, "");
        fill(condition, "lastProbeTime", Value::Null);
        fill(condition, "lastTransitionTime", Value::Null);
    }
}

/// A template has what its pods have, but for what is only decided when the pod is made.
pub(super) fn template(object: &mut Value, path: &str) {
    let template = open(object, path);
    fill_map(template, "metadata");
    spec(template.entry("spec").or_insert(Value::Null));
}

fn requests_from_limits(container: &mut Value) {
    let Some(limits) = at(container, "resources.limits").as_object().filter(|limits| !limits.is_empty()).cloned()
    else {
        return;
    };
    let requests = open(container, "resources.requests");
    for (name, amount) in limits {
        fill(requests, &name, amount);
    }
}

fn host_ports(container: &mut Value) {
    for port in items_mut(container, "ports") {
        let number = at(port, "containerPort").as_i64().unwrap_or_default();
        fill_count(open(port, ""), "hostPort", number);
    }
}

fn spec(spec: &mut Value) {
    mirror_service_account(spec);
    let map = open(spec, "");
    fill_text(map, "dnsPolicy", "ClusterFirst");
    fill_text(map, "restartPolicy", "Always");
    fill_map(map, "securityContext");
    fill(map, "terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS);
    fill_text(map, "schedulerName", "default-scheduler");
    if map.get("containers").is_none_or(Value::is_null) {
        map.insert("containers".to_owned(), Value::Null);
    }
    for list in CONTAINER_LISTS {
        for each in items_mut(spec, list) {
            container(each);
        }
    }
    for each in items_mut(spec, "volumes") {
        volume(each);
    }
    resources(spec, "overhead");
    if has(spec, "resources") {
        resources(spec, "resources.requests");
        resources(spec, "resources.limits");
    }
}

fn resources(value: &mut Value, path: &str) {
    resource_list(value_mut(value, path));
}

fn container(container: &mut Value) {
    let policy = pull_policy(text(container, "image"));
    let map = open(container, "");
    fill_text(map, "imagePullPolicy", policy);
    fill_text(map, "terminationMessagePath", "/dev/termination-log");
    fill_text(map, "terminationMessagePolicy", "File");
    fill_map(map, "resources");
    resources(container, "resources.requests");
    resources(container, "resources.limits");
    for port in items_mut(container, "ports") {
        fill_text(open(port, ""), "protocol", "TCP");
    }
    for variable in items_mut(container, "env") {
        if let Some(reference) = map_mut(variable, "valueFrom.fieldRef") {
            fill_text(reference, "apiVersion", "v1");
        }
        if let Some(reference) = map_mut(variable, "valueFrom.resourceFieldRef") {
            fill(reference, "divisor", "0");
        }
        if let Some(reference) = map_mut(variable, "valueFrom.fileKeyRef") {
            fill(reference, "optional", false);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = value_mut(container, name).filter(|probe| probe.is_object()) {
            default_probe(probe);
        }
    }
    for hook in ["lifecycle.postStart", "lifecycle.preStop"] {
        if let Some(hook) = value_mut(container, hook) {
            http_get(hook);
        }
    }
}

fn default_probe(probe: &mut Value) {
    http_get(probe);
    if let Some(grpc) = map_mut(probe, "grpc") {
        fill(grpc, "service", "");
    }
    let probe = open(probe, "");
    fill_count(probe, "timeoutSeconds", 1);
    fill_count(probe, "periodSeconds", 10);
    fill_count(probe, "successThreshold", 1);
    fill_count(probe, "failureThreshold", 3);
}

fn http_get(action: &mut Value) {
    if let Some(get) = map_mut(action, "httpGet") {
        fill_text(get, "path", "/");
        fill_text(get, "scheme", "HTTP");
    }
}

pub(crate) fn volume(volume: &mut Value) {
    let map = open(volume, "");
    if map.iter().all(|(key, value)| key == "name" || value.is_null()) {
        map.insert("emptyDir".to_owned(), json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = map_mut(volume, source) {
            fill(source, "defaultMode", 0o644);
        }
    }
    field_references(volume, "downwardAPI.items");
    for source in items_mut(volume, "projected.sources") {
        if let Some(token) = map_mut(source, "serviceAccountToken") {
            fill(token, "expirationSeconds", 3600);
        }
        field_references(source, "downwardAPI.items");
    }
    if let Some(path) = map_mut(volume, "hostPath") {
        fill(path, "type", "");
    }
    if let Some(template) = value_mut(volume, "ephemeral.volumeClaimTemplate").filter(|template| template.is_object()) {
        fill_map(open(template, ""), "metadata");
        claim_spec(template);
    }
    if let Some(image) = map_mut(volume, "image") {
        let policy = pull_policy(image.get("reference").and_then(Value::as_str).unwrap_or_default());
        fill_text(image, "pullPolicy", policy);
    }
    if let Some(disk) = map_mut(volume, "azureDisk") {
        fill(disk, "cachingMode", "ReadWrite");
        fill(disk, "fsType", "ext4");
        fill(disk, "readOnly", false);
        fill(disk, "kind", "Shared");
    }
    if let Some(iscsi) = map_mut(volume, "iscsi") {
        fill_text(iscsi, "iscsiInterface", "default");
    }
    if let Some(rbd) = map_mut(volume, "rbd") {
        fill_text(rbd, "pool", "rbd");
        fill_text(rbd, "user", "admin");
        fill_text(rbd, "keyring", "/etc/ceph/keyring");
    }
}

fn field_references(value: &mut Value, path: &str) {
    for item in items_mut(value, path) {
        if let Some(reference) = map_mut(item, "fieldRef") {
            fill_text(reference, "apiVersion", "v1");
        }
        if let Some(reference) = map_mut(item, "resourceFieldRef") {
            fill(reference, "divisor", "0");
        }
    }
}

/// `Always` for the tag `latest`, given or meant, else `IfNotPresent`. A reference that does not parse has no tag.
fn pull_policy(image: &str) -> &'static str {
    let name = image.split('@').next().unwrap_or_default();
    let has_digest = name.len() < image.len();
    let last = name.rsplit('/').next().unwrap_or_default();
    let is_sound = !last.is_empty()
        && !name.contains(char::is_whitespace)
        && !last.split(':').next().unwrap_or_default().contains(|c: char| c.is_ascii_uppercase());
    let is_latest = match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => !has_digest,
    };
    if is_sound && is_latest { "Always" } else { "IfNotPresent" }
}

/// Requests of the pod as a whole follow from its limits and from what its containers request.
fn pod_level_resources(object: &mut Value) {
    if !has(object, "spec.resources") {
        return;
    }
    let n_given = entries(object, "spec.resources.limits").count() + entries(object, "spec.resources.requests").count();
    if n_given > 0 {
        let limits = aggregate(object, "limits");
        for (name, amount) in limits {
            let is_open = name.starts_with("hugepages-")
                && at(object, "spec.resources.requests").get(&name).is_none()
                && at(object, "spec.resources.limits").get(&name).is_none();
            if is_open {
                open(object, "spec.resources.limits").insert(name, Value::from(amount.to_string()));
            }
        }
    }
    let limits: Map<String, Value> =
        entries(object, "spec.resources.limits").map(|(k, v)| (k.clone(), v.clone())).collect();
    if limits.is_empty() {
        return;
    }
    let requested = aggregate(object, "requests");
    let requests = open(object, "spec.resources.requests");
    for (name, amount) in requested {
        if matches!(name.as_str(), "cpu" | "memory") {
            fill(requests, &name, amount.to_string());
        }
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            fill(requests, &name, amount);
        }
    }
}

/// What a pod's containers need together: the sum of those that run side by side, or more where an init container needs more.
pub(crate) fn aggregate(pod: &Value, which: &str) -> Vec<(String, Quantity)> {
    let mut total: Vec<(String, Quantity)> = Vec::new();
    let of = |container: &Value| -> Vec<(String, Quantity)> {
        entries(at(container, "resources"), which)
            .filter_map(|(name, amount)| Some((name.clone(), Quantity::of(amount)?)))
            .collect()
    };
    for container in items(pod, "spec.containers") {
        for (name, amount) in of(container) {
            add(&mut total, &name, amount);
        }
    }
    let mut sidecars: Vec<(String, Quantity)> = Vec::new();
    let mut initial: Vec<(String, Quantity)> = Vec::new();
    for container in items(pod, "spec.initContainers") {
        let mut needs = of(container);
        if text(container, "restartPolicy") == "Always" {
            for (name, amount) in &needs {
                add(&mut total, name, *amount);
                add(&mut sidecars, name, *amount);
            }
            needs.clone_from(&sidecars);
        } else {
            for (name, amount) in &sidecars {
                add(&mut needs, name, *amount);
            }
        }
        for (name, amount) in needs {
            raise(&mut initial, &name, amount);
        }
    }
    for (name, amount) in initial {
        raise(&mut total, &name, amount);
    }
    total
}

fn add(list: &mut Vec<(String, Quantity)>, name: &str, amount: Quantity) {
    match list.iter_mut().find(|(key, _)| key == name) {
        Some((_, sum)) => *sum = sum.plus(amount),
        None => list.push((name.to_owned(), amount)),
    }
}

fn raise(list: &mut Vec<(String, Quantity)>, name: &str, amount: Quantity) {
    match list.iter_mut().find(|(key, _)| key == name) {
        Some((_, most)) => *most = (*most).max(amount),
        None => list.push((name.to_owned(), amount)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_image_is_pulled_always() {
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.2", "IfNotPresent"),
            ("registry.example:5000/nginx", "Always"),
            ("registry.example:5000/nginx:1", "IfNotPresent"),
            ("nginx@sha256:00", "IfNotPresent"),
            ("nginx:latest@sha256:00", "Always"),
            ("", "IfNotPresent"),
            ("Nginx", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }
}
