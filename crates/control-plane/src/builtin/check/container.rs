//! Containers: ports, environment, mounts, probes, hooks.

use serde_json::Value;

use super::super::names;
use super::super::tree::{Faults, Path, at, flag, has, int, items, text};
use super::resources::{self, Of};

/// What a container's checks know of its pod.
pub(super) struct Pod<'a> {
    pub(super) volumes: Vec<&'a str>,
    pub(super) claims: Vec<&'a str>,
    pub(super) grace_seconds: Option<i64>,
}

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

pub(super) fn containers(faults: &mut Faults, path: &Path<'_>, containers: &[Value], pod: &Pod<'_>) {
    if containers.is_empty() {
        faults.required(path, "");
        return;
    }
    for (index, container) in containers.iter().enumerate() {
        let here = path.index(index);
        common(faults, &here, container, pod);
        let name = text(container, "name");
        if containers.iter().take(index).any(|other| text(other, "name") == name) {
            faults.duplicate(&here.field("name"), name);
        }
        lifecycle(faults, &here, container, pod);
        restart_policy(faults, &here, container);
    }
    host_ports(faults, path, containers, 0);
}

pub(super) fn init_containers(
    faults: &mut Faults,
    path: &Path<'_>,
    init: &[Value],
    containers: &[Value],
    pod: &Pod<'_>,
) {
    for (index, container) in init.iter().enumerate() {
        let here = path.index(index);
        common(faults, &here, container, pod);
        restart_policy(faults, &here, container);
        let name = text(container, "name");
        let mut others = containers.iter().chain(init.iter().take(index));
        if !name.is_empty() && others.any(|other| text(other, "name") == name) {
            faults.duplicate(&here.field("name"), name);
        }
        host_ports(faults, path, init.get(index..=index).unwrap_or_default(), index);
        if text(container, "restartPolicy") == "Always" {
            lifecycle(faults, &here, container, pod);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if has(container, field) {
                faults.forbidden(&here.field(field), "may not be set for init containers without restartPolicy=Always");
            }
        }
    }
}

fn restart_policy(faults: &mut Faults, path: &Path<'_>, container: &Value) {
    if let Some(policy) = container.get("restartPolicy").and_then(Value::as_str) {
        faults.one_of(&path.field("restartPolicy"), policy, &["Always", "Never", "OnFailure"]);
    } else if !items(container, "restartPolicyRules").is_empty() {
        let detail = "must specify restartPolicy when restart rules are used";
        faults.required(&path.field("restartPolicy"), detail);
    }
}

/// Pods only, not templates.
pub(super) fn only_for_pods(faults: &mut Faults, path: &Path<'_>, containers: &[Value]) {
    for (index, container) in containers.iter().enumerate() {
        let image = text(container, "image");
        if image.trim() != image {
            let detail = "must not have leading or trailing whitespace";
            faults.invalid(&path.index(index).field("image"), image, detail);
        }
    }
}

fn common(faults: &mut Faults, path: &Path<'_>, container: &Value, pod: &Pod<'_>) {
    let name = text(container, "name");
    if name.is_empty() {
        faults.required(&path.field("name"), "");
    } else {
        for why in names::label(name) {
            faults.invalid(&path.field("name"), name, why);
        }
    }
    if text(container, "image").is_empty() {
        faults.required(&path.field("image"), "");
    }
    required_word(faults, &path.field("terminationMessagePolicy"), container, &["File", "FallbackToLogsOnError"]);
    ports(faults, &path.field("ports"), items(container, "ports"));
    environment(faults, &path.field("env"), items(container, "env"));
    environment_from(faults, &path.field("envFrom"), items(container, "envFrom"));
    mounts(faults, path, container, pod);
    required_word(faults, &path.field("imagePullPolicy"), container, &["Always", "IfNotPresent", "Never"]);
    let resources = at(container, "resources");
    resources::requirements(faults, &path.field("resources"), resources, Of::Container, &pod.claims);
    resize_policy(faults, &path.field("resizePolicy"), items(container, "resizePolicy"));
    security(faults, &path.field("securityContext"), at(container, "securityContext"));
}

/// A word that defaults fill in, so that it must be there.
fn required_word(faults: &mut Faults, path: &Path<'_>, container: &Value, supported: &[&str]) {
    let Path::Field(_, field) = path else { return };
    match text(container, field) {
        "" => faults.required(path, ""),
        found => faults.one_of(path, found, supported),
    }
}

fn ports(faults: &mut Faults, path: &Path<'_>, ports: &[Value]) {
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            let wrong = names::port_name(name);
            let is_sound = wrong.is_empty();
            for why in wrong {
                faults.invalid(&path.field("name"), name, why);
            }
            if is_sound && ports.iter().take(index).any(|other| text(other, "name") == name) {
                faults.duplicate(&path.field("name"), name);
            }
        }
        let number = int(port, "containerPort").unwrap_or_default();
        if number == 0 {
            faults.required(&path.field("containerPort"), "");
        } else if let Some(why) = names::port_number(number) {
            faults.invalid(&path.field("containerPort"), number, why);
        }
        let host = int(port, "hostPort").unwrap_or_default();
        if let Some(why) = names::port_number(host).filter(|_| host != 0) {
            faults.invalid(&path.field("hostPort"), host, why);
        }
        match text(port, "protocol") {
            "" => faults.required(&path.field("protocol"), ""),
            found => faults.one_of(&path.field("protocol"), found, &PROTOCOLS),
        }
    }
}

/// A port of the node is given out once per protocol and address.
fn host_ports(faults: &mut Faults, path: &Path<'_>, containers: &[Value], first: usize) {
    let mut taken: Vec<(&str, &str, i64)> = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        for (port_index, port) in items(container, "ports").iter().enumerate() {
            let Some(number) = int(port, "hostPort").filter(|number| *number != 0) else { continue };
            let this = (text(port, "protocol"), text(port, "hostIP"), number);
            if taken.contains(&this) {
                // The single init container is looked at as a list of its own.
                let container_path = path.index(if first > 0 { 0 } else { index });
                let found = format!("{}/{}/{}", this.0, this.1, this.2);
                faults.duplicate(&container_path.field("ports").index(port_index).field("hostPort"), found);
            }
            taken.push(this);
        }
    }
}

fn environment(faults: &mut Faults, path: &Path<'_>, variables: &[Value]) {
    for (index, variable) in variables.iter().enumerate() {
        let path = path.index(index);
        let name = text(variable, "name");
        if name.is_empty() {
            faults.required(&path.field("name"), "");
        } else if let Some(why) = names::environment_variable(name) {
            faults.invalid(&path.field("name"), name, why);
        }
        let from = at(variable, "valueFrom");
        if from.is_null() {
            continue;
        }
        let path = path.field("valueFrom");
        let mut n_sources = 0;
        if has(from, "fieldRef") {
            n_sources += 1;
            field_reference(faults, &path.field("fieldRef"), at(from, "fieldRef"), &ENVIRONMENT_FIELDS);
        }
        if has(from, "resourceFieldRef") {
            n_sources += 1;
            resource_reference(faults, &path.field("resourceFieldRef"), at(from, "resourceFieldRef"), false);
        }
        for source in ["configMapKeyRef", "secretKeyRef"] {
            if has(from, source) {
                n_sources += 1;
                key_reference(faults, &path.field(source), at(from, source));
            }
        }
        n_sources += usize::from(has(from, "fileKeyRef"));
        if n_sources == 0 {
            let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or \
                          `fileKeyRef`";
            faults.invalid(&path, "", detail);
        } else if !text(variable, "value").is_empty() {
            faults.invalid(&path, "", "may not be specified when `value` is not empty");
        } else if n_sources > 1 {
            faults.invalid(&path, "", "may not have more than one field specified at a time");
        }
    }
}

fn key_reference(faults: &mut Faults, path: &Path<'_>, reference: &Value) {
    let (name, key) = (text(reference, "name"), text(reference, "key"));
    for why in names::subdomain(name) {
        faults.invalid(&path.field("name"), name, why);
    }
    if key.is_empty() {
        faults.required(&path.field("key"), "");
    } else {
        for why in names::config_key(key) {
            faults.invalid(&path.field("key"), key, why);
        }
    }
}

const ENVIRONMENT_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
pub(super) const VOLUME_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// Fields of a pod that can be named at all.
const KNOWN_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName", "status.phase"];

pub(super) fn field_reference(faults: &mut Faults, path: &Path<'_>, reference: &Value, allowed: &[&str]) {
    let field = text(reference, "fieldPath");
    if field.is_empty() {
        faults.required(&path.field("fieldPath"), "");
        return;
    }
    let subscript = field.split_once("['").and_then(|(name, rest)| Some((name, rest.strip_suffix("']")?)));
    if let Some((name, key)) = subscript {
        let key = if name == "metadata.annotations" { key.to_lowercase() } else { key.to_owned() };
        match name {
            "metadata.annotations" | "metadata.labels" => {
                for why in names::qualified(&key) {
                    faults.invalid(path, key.as_str(), why);
                }
            }
            _ if is_known(name) => faults.invalid(path, name, "does not support subscript"),
            _ => unknown_field(faults, path, field),
        }
    } else if !is_known(field) {
        unknown_field(faults, path, field);
    } else if !allowed.contains(&field) {
        faults.not_supported(&path.field("fieldPath"), field, allowed);
    }
}

fn is_known(field: &str) -> bool {
    KNOWN_FIELDS.contains(&field) || ENVIRONMENT_FIELDS.contains(&field) || field == "spec.host"
}

fn unknown_field(faults: &mut Faults, path: &Path<'_>, field: &str) {
    let detail = format!("error converting fieldPath: field label not supported: {field}");
    faults.invalid(&path.field("fieldPath"), field, detail);
}

const RESOURCE_FIELDS: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

pub(super) fn resource_reference(faults: &mut Faults, path: &Path<'_>, reference: &Value, is_volume: bool) {
    let resource = text(reference, "resource");
    if is_volume && text(reference, "containerName").is_empty() {
        faults.required(&path.field("containerName"), "");
    } else if resource.is_empty() {
        faults.required(&path.field("resource"), "");
    } else if !RESOURCE_FIELDS.contains(&resource)
        && !resource.starts_with("limits.hugepages-")
        && !resource.starts_with("requests.hugepages-")
    {
        faults.not_supported(&path.field("resource"), resource, &RESOURCE_FIELDS);
    }
}

fn environment_from(faults: &mut Faults, path: &Path<'_>, sources: &[Value]) {
    for (index, source) in sources.iter().enumerate() {
        let here = path.index(index);
        let prefix = text(source, "prefix");
        if let Some(why) = names::environment_variable(prefix) {
            faults.invalid(&here.field("prefix"), prefix, why);
        }
        let mut n_sources = 0;
        for name in ["configMapRef", "secretRef"] {
            if has(source, name) {
                n_sources += 1;
                let found = text(at(source, name), "name");
                for why in names::subdomain(found) {
                    faults.invalid(&here.field(name).field("name"), found, why);
                }
            }
        }
        if n_sources == 0 {
            faults.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`");
        } else if n_sources > 1 {
            faults.invalid(path, "", "may not have more than one field specified at a time");
        }
    }
}

fn mounts(faults: &mut Faults, path: &Path<'_>, container: &Value, pod: &Pod<'_>) {
    let (mounts, devices) = (items(container, "volumeMounts"), items(container, "volumeDevices"));
    let mounts_path = path.field("volumeMounts");
    for (index, mount) in mounts.iter().enumerate() {
        let here = mounts_path.index(index);
        let (name, target) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            faults.required(&here.field("name"), "");
        }
        if !pod.volumes.contains(&name) {
            faults.not_found(&here.field("name"), name);
        }
        if target.is_empty() {
            faults.required(&here.field("mountPath"), "");
        }
        if mounts.iter().take(index).any(|other| text(other, "mountPath") == target) {
            faults.invalid(&here.field("mountPath"), target, "must be unique");
        }
        if devices.iter().any(|device| text(device, "name") == name) {
            faults.invalid(&here.field("name"), name, "must not already exist in volumeDevices");
        }
        if devices.iter().any(|device| text(device, "devicePath") == target) {
            faults.invalid(&here.field("mountPath"), target, "must not already exist as a path in volumeDevices");
        }
        let (sub, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
        descending(faults, &mounts_path.field("subPath"), sub);
        if !expression.is_empty() {
            if !sub.is_empty() {
                let detail = "subPathExpr and subPath are mutually exclusive";
                faults.invalid(&here.field("subPathExpr"), expression, detail);
            }
            descending(faults, &mounts_path.field("subPathExpr"), expression);
        }
        if let Some(propagation) = mount.get("mountPropagation").and_then(Value::as_str) {
            let path = mounts_path.field("mountPropagation");
            faults.one_of(&path, propagation, &["Bidirectional", "HostToContainer", "None"]);
            if propagation == "Bidirectional" && !flag(container, "securityContext.privileged") {
                let detail = "Bidirectional mount propagation is available only to privileged containers";
                faults.forbidden(&path, detail);
            }
        }
    }
    let devices_path = path.field("volumeDevices");
    for (index, device) in devices.iter().enumerate() {
        let here = devices_path.index(index);
        let (name, target) = (text(device, "name"), text(device, "devicePath"));
        if name.is_empty() {
            faults.required(&here.field("name"), "");
        } else if devices.iter().take(index).any(|other| text(other, "name") == name) {
            faults.invalid(&here.field("name"), name, "must be unique");
        }
        if !name.is_empty() && !pod.volumes.contains(&name) {
            faults.not_found(&here.field("name"), name);
        }
        if target.is_empty() {
            faults.required(&here.field("devicePath"), "");
        }
    }
}

/// A relative path that stays below where it starts.
pub(super) fn descending(faults: &mut Faults, path: &Path<'_>, target: &str) {
    if target.starts_with('/') {
        faults.invalid(path, target, "must be a relative path");
    }
    no_backsteps(faults, path, target);
}

pub(super) fn no_backsteps(faults: &mut Faults, path: &Path<'_>, target: &str) {
    if target.split('/').any(|part| part == "..") {
        faults.invalid(path, target, "must not contain '..'");
    }
}

fn resize_policy(faults: &mut Faults, path: &Path<'_>, policies: &[Value]) {
    for (index, policy) in policies.iter().enumerate() {
        let name = text(policy, "resourceName");
        if policies.iter().take(index).any(|other| text(other, "resourceName") == name) {
            faults.duplicate(&path.index(index), name);
        }
        match name {
            "" => faults.required(path, ""),
            found => faults.one_of(path, found, &["cpu", "memory"]),
        }
        match text(policy, "restartPolicy") {
            "" => faults.required(path, ""),
            found => faults.one_of(path, found, &["NotRequired", "RestartContainer"]),
        }
    }
}

const ID_MAX: i64 = i32::MAX as i64;

pub(super) fn numeric_id(faults: &mut Faults, path: &Path<'_>, value: &Value) {
    if let Some(id) = value.as_i64().filter(|id| !(0..=ID_MAX).contains(id)) {
        faults.invalid(path, id, names::between(0, ID_MAX));
    }
}

fn security(faults: &mut Faults, path: &Path<'_>, context: &Value) {
    if context.is_null() {
        return;
    }
    for field in ["runAsUser", "runAsGroup"] {
        numeric_id(faults, &path.field(field), at(context, field));
    }
    if at(context, "allowPrivilegeEscalation").as_bool() == Some(false) && flag(context, "privileged") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        faults.invalid(path, context.clone(), detail);
    }
}

fn lifecycle(faults: &mut Faults, path: &Path<'_>, container: &Value, pod: &Pod<'_>) {
    let hooks = at(container, "lifecycle");
    for hook in ["postStart", "preStop"] {
        if has(hooks, hook) {
            handler(faults, &path.field("lifecycle").field(hook), at(hooks, hook), pod);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let (probe, path) = (at(container, name), path.field(name));
        if probe.is_null() {
            continue;
        }
        handler(faults, &path, probe, pod);
        for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            faults.not_negative(&path.field(field), at(probe, field));
        }
        let grace = int(probe, "terminationGracePeriodSeconds");
        if let Some(grace) = grace.filter(|grace| *grace <= 0) {
            faults.invalid(&path.field("terminationGracePeriodSeconds"), grace, "must be greater than 0");
        }
        if name == "readinessProbe" {
            if let Some(grace) = grace {
                let detail = "must not be set for readinessProbes";
                faults.invalid(&path.field("terminationGracePeriodSeconds"), grace, detail);
            }
        } else {
            let threshold = int(probe, "successThreshold").unwrap_or_default();
            if threshold != 1 {
                faults.invalid(&path.field("successThreshold"), threshold, "must be 1");
            }
        }
    }
}

fn handler(faults: &mut Faults, path: &Path<'_>, handler: &Value, pod: &Pod<'_>) {
    let mut n_handlers = 0;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let action = at(handler, kind);
        if action.is_null() {
            continue;
        }
        let path = path.field(kind);
        n_handlers += 1;
        if n_handlers > 1 {
            faults.forbidden(&path, "may not specify more than 1 handler type");
            continue;
        }
        match kind {
            "exec" if items(action, "command").is_empty() => faults.required(&path.field("command"), ""),
            "httpGet" => {
                if text(action, "path").is_empty() {
                    faults.required(&path.field("path"), "");
                }
                port(faults, &path.field("port"), at(action, "port"));
                faults.one_of(&path.field("scheme"), text(action, "scheme"), &["HTTP", "HTTPS"]);
                for header in items(action, "httpHeaders") {
                    let name = text(header, "name");
                    if let Some(why) = names::header(name) {
                        faults.invalid(&path.field("httpHeaders"), name, why);
                    }
                }
            }
            "tcpSocket" | "grpc" => port(faults, &path.field("port"), at(action, "port")),
            "sleep" => {
                let seconds = int(action, "seconds").unwrap_or_default();
                if let Some(grace) = pod.grace_seconds.filter(|grace| seconds < 0 || seconds > *grace) {
                    let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    faults.invalid(&path, seconds, detail);
                }
            }
            _ => {}
        }
    }
    if n_handlers == 0 {
        faults.required(path, "must specify a handler type");
    }
}

/// A port by number or by name.
pub(super) fn port(faults: &mut Faults, path: &Path<'_>, port: &Value) {
    match port {
        Value::String(name) => {
            for why in names::port_name(name) {
                faults.invalid(path, name.as_str(), why);
            }
        }
        _ => {
            let number = port.as_i64().unwrap_or_default();
            if let Some(why) = names::port_number(number) {
                faults.invalid(path, number, why);
            }
        }
    }
}
