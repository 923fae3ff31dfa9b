//! The rest of the core group: services, nodes, config maps, secrets, limits and quotas.

use serde_json::{Value, json};

use super::super::meta;
use super::super::names;
use super::super::quantity::Quantity;
use super::super::tree::{
    Faults, METADATA, Path, ROOT, SPEC, STATUS, at, entries, flag, has, int, items, ordered, text,
};
use super::{container, placement, resources};

const DATA_MAX_BYTES: usize = 1024 * 1024;

pub(super) fn config_map(faults: &mut Faults, object: &Value) {
    let mut n_bytes = 0_usize;
    let data = ROOT.field("data");
    for (key, value) in entries(object, "data") {
        for why in names::config_key(key) {
            faults.invalid(&data.key(key), key.as_str(), why);
        }
        if at(object, "binaryData").get(key).is_some() {
            faults.invalid(&data.key(key), key.as_str(), "duplicate of key present in binaryData");
        }
        n_bytes = n_bytes.saturating_add(value.as_str().unwrap_or_default().len());
    }
    let binary = ROOT.field("binaryData");
    for (key, value) in entries(object, "binaryData") {
        for why in names::config_key(key) {
            faults.invalid(&binary.key(key), key.as_str(), why);
        }
        n_bytes = n_bytes.saturating_add(decoded_len(value));
    }
    if n_bytes > DATA_MAX_BYTES {
        faults.too_long(&ROOT.field(""), DATA_MAX_BYTES);
    }
}

fn decoded_len(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    let n_padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
    (text.len() / 4 * 3).saturating_sub(n_padding)
}

pub(super) fn immutable_data(faults: &mut Faults, new: &Value, old: &Value, fields: &[&str]) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if !flag(old, "immutable") {
        return;
    }
    if !flag(new, "immutable") {
        faults.forbidden(&ROOT.field("immutable"), DETAIL);
    }
    for field in fields {
        let is_same = at(new, field) == at(old, field)
            || entries(new, field).next().is_none() && entries(old, field).next().is_none();
        if !is_same {
            faults.forbidden(&ROOT.field(field), DETAIL);
        }
    }
}

pub(super) fn secret(faults: &mut Faults, object: &Value) {
    let data = ROOT.field("data");
    let mut n_bytes = 0_usize;
    for (key, value) in entries(object, "data") {
        for why in names::config_key(key) {
            faults.invalid(&data.key(key), key.as_str(), why);
        }
        n_bytes = n_bytes.saturating_add(decoded_len(value));
    }
    if n_bytes > DATA_MAX_BYTES {
        faults.too_long(&data, DATA_MAX_BYTES);
    }
    let has_key = |key: &str| at(object, "data").get(key).is_some();
    let mut need = |key: &str| {
        if !has_key(key) {
            faults.required(&data.key(key), "");
        }
    };
    match text(object, "type") {
        "kubernetes.io/dockercfg" => need(".dockercfg"),
        "kubernetes.io/dockerconfigjson" => need(".dockerconfigjson"),
        "kubernetes.io/basic-auth" if !has_key("username") && !has_key("password") => {
            need("username");
            need("password");
        }
        "kubernetes.io/ssh-auth" => need("ssh-privatekey"),
        "kubernetes.io/tls" => {
            need("tls.crt");
            need("tls.key");
        }
        "kubernetes.io/service-account-token" => {
            let account = at(object, "metadata.annotations").get("kubernetes.io/service-account.name");
            if account.and_then(Value::as_str).unwrap_or_default().is_empty() {
                let annotations = METADATA.field("annotations");
                faults.required(&annotations.key("kubernetes.io/service-account.name"), "");
            }
        }
        _ => {}
    }
}

pub(super) fn node(faults: &mut Faults, object: &Value) {
    placement::taints(faults, &METADATA.field("taints"), items(object, "spec.taints"));
    node_resources(faults, object);
}

pub(super) fn node_resources(faults: &mut Faults, object: &Value) {
    for list in ["capacity", "allocatable"] {
        let path = STATUS.field(list);
        for (name, value) in entries(at(object, "status"), list) {
            resources::amount(faults, &path.field(name), name, value);
        }
    }
}

pub(super) fn node_update(faults: &mut Faults, new: &Value, old: &Value) {
    node_resources(faults, new);
    let addresses = items(new, "status.addresses");
    let path = STATUS.field("addresses");
    for (index, address) in addresses.iter().enumerate() {
        if addresses.iter().take(index).any(|other| other == address) {
            let found = json!({ "Type": text(address, "type"), "Address": text(address, "address") });
            let shown = ordered(&found, &["Type", "Address"]);
            faults.duplicate(&path.index(index), found);
            faults.show(shown);
        }
    }
    let ranges = |object| items(object, "spec.podCIDRs");
    if !ranges(old).is_empty() && ranges(old) != ranges(new) {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        faults.forbidden(&SPEC.field("podCIDRs"), detail);
    }
    let provider = text(old, "spec.providerID");
    if !provider.is_empty() && provider != text(new, "spec.providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        faults.forbidden(&SPEC.field("providerID"), detail);
    }
    placement::taints(faults, &METADATA.field("taints"), items(new, "spec.taints"));
}

pub(super) fn namespace_status(faults: &mut Faults, new: &Value) {
    let phase = text(new, "status.phase");
    let path = STATUS.field("Phase");
    if !has(new, "metadata.deletionTimestamp") {
        if phase != "Active" {
            faults.invalid(&path, phase, "may only be 'Active' if `deletionTimestamp` is empty");
        }
    } else if phase != "Terminating" {
        faults.invalid(&path, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty");
    }
}

pub(super) fn limit_range(faults: &mut Faults, object: &Value) {
    let list = SPEC.field("limits");
    let limits = items(object, "spec.limits");
    for (index, limit) in limits.iter().enumerate() {
        let path = list.index(index);
        let kind = text(limit, "type");
        let wrong = names::qualified(kind);
        if wrong.is_empty() && !kind.contains('/') && !matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim") {
            faults.invalid(&path.field("type"), kind, "must be a standard limit type or fully qualified");
        }
        for why in wrong {
            faults.invalid(&path.field("type"), kind, why);
        }
        if limits.iter().take(index).any(|other| text(other, "type") == kind) {
            faults.duplicate(&path.field("type"), kind);
        }
        one_limit(faults, &path, limit, kind);
    }
}

fn one_limit(faults: &mut Faults, path: &Path<'_>, limit: &Value, kind: &str) {
    let mut keys: Vec<&str> = Vec::new();
    for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let list_path = path.field(list);
        if kind == "Pod" && list.starts_with("default") {
            if entries(limit, list).next().is_some() {
                faults.forbidden(&list_path, "may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        if list == "maxLimitRequestRatio"
            && kind == "PersistentVolumeClaim"
            && !has(limit, "min.storage")
            && !has(limit, "max.storage")
        {
            let detail = "either minimum or maximum storage value is required, but neither was provided";
            faults.required(&path.field("limits"), detail);
        }
        for (name, _) in entries(limit, list) {
            let path = list_path.key(name);
            if matches!(kind, "Pod" | "Container") {
                resources::container_name(faults, &path, name);
            } else {
                resources::name(faults, &path, name);
            }
            if !keys.contains(&name.as_str()) {
                keys.push(name);
            }
        }
    }
    for key in keys {
        let of = |list: &str| {
            let is_hidden = kind == "Pod" && list.starts_with("default");
            at(limit, list).get(key).and_then(Quantity::of).filter(|_| !is_hidden)
        };
        let (min, max) = (of("min"), of("max"));
        let (default, request) = (of("default"), of("defaultRequest"));
        let mut tell = |list: &str, found: Quantity, detail: String| {
            faults.invalid(&path.field(list).key(key), found.to_string(), detail);
        };
        if let (Some(min), Some(max)) = (min, max)
            && min > max
        {
            tell("min", min, format!("min value {min} is greater than max value {max}"));
        }
        if let (Some(request), Some(min)) = (request, min)
            && min > request
        {
            tell("defaultRequest", request, format!("min value {min} is greater than default request value {request}"));
        }
        if let (Some(request), Some(max)) = (request, max)
            && request > max
        {
            tell("defaultRequest", request, format!("default request value {request} is greater than max value {max}"));
        }
        if let (Some(request), Some(default)) = (request, default)
            && request > default
        {
            let detail = format!("default request value {request} is greater than default limit value {default}");
            tell("defaultRequest", request, detail);
        }
        if let (Some(default), Some(min)) = (default, min)
            && min > default
        {
            tell("default", min, format!("min value {min} is greater than default value {default}"));
        }
        if let (Some(default), Some(max)) = (default, max)
            && default > max
        {
            tell("default", max, format!("default value {default} is greater than max value {max}"));
        }
        if let Some(ratio) = of("maxLimitRequestRatio").filter(|ratio| *ratio < Quantity::whole(1)) {
            tell("maxLimitRequestRatio", ratio, format!("ratio {ratio} is less than 1"));
        }
    }
}

pub(super) fn resource_quota(faults: &mut Faults, object: &Value) {
    let hard = SPEC.field("hard");
    for (name, value) in entries(object, "spec.hard") {
        quota_name(faults, &hard.key(name), name);
        resources::amount(faults, &hard.key(name), name, value);
    }
    let scopes = items(object, "spec.scopes");
    let path = SPEC.field("scopes");
    let all = || at(object, "spec.scopes").clone();
    for scope in scopes {
        const KNOWN: [&str; 6] = [
            "Terminating",
            "NotTerminating",
            "BestEffort",
            "NotBestEffort",
            "PriorityClass",
            "CrossNamespacePodAffinity",
        ];
        let scope = scope.as_str().unwrap_or_default();
        if !KNOWN.contains(&scope) {
            faults.invalid(&path, all(), "unsupported scope");
        }
        for (name, _) in entries(object, "spec.hard") {
            let fits = match scope {
                "BestEffort" => name == "pods",
                "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
                    name == "pods" || name.ends_with("cpu") || name.ends_with("memory")
                }
                _ => true,
            };
            if resources::is_quota_standard(name) && !fits {
                faults.invalid(&path, all(), "unsupported scope applied to resource");
            }
        }
    }
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| scopes.iter().any(|given| given == scope)) {
            faults.invalid(&path, all(), "conflicting scopes");
        }
    }
}

fn quota_name(faults: &mut Faults, path: &Path<'_>, name: &str) {
    resources::name(faults, path, name);
    if !name.contains('/') && !resources::is_quota_standard(name) {
        faults.invalid(path, name, "must be a standard resource for quota");
    }
}

pub(super) fn resource_quota_update(faults: &mut Faults, new: &Value, old: &Value) {
    let sorted = |object: &Value| {
        let mut scopes: Vec<String> = items(object, "spec.scopes").iter().map(ToString::to_string).collect();
        scopes.sort();
        scopes
    };
    if sorted(new) != sorted(old) {
        faults.invalid(&SPEC.field("scopes"), at(new, "spec.scopes").clone(), "field is immutable");
    }
}

const SERVICE_KINDS: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

pub(super) fn service(faults: &mut Faults, object: &Value) {
    let spec = at(object, "spec");
    let kind = text(spec, "type");
    let is_headless = text(spec, "clusterIP") == "None";
    let ports = items(spec, "ports");
    let ports_path = SPEC.field("ports");
    if ports.is_empty() && !is_headless && kind != "ExternalName" {
        faults.required(&ports_path, "");
    }
    let addresses = SPEC.field("clusterIPs");
    match kind {
        "LoadBalancer" | "NodePort" if is_headless => {
            faults.invalid(&addresses.index(0), "None", format!("may not be set to 'None' for {kind} services"));
        }
        "ExternalName" => {
            if !text(spec, "clusterIP").is_empty() || !items(spec, "clusterIPs").is_empty() {
                faults.forbidden(&addresses, "may not be set for ExternalName services");
            }
            let name = text(spec, "externalName").trim_end_matches('.');
            if name.is_empty() {
                faults.required(&SPEC.field("externalName"), "");
            } else {
                for why in names::subdomain(name) {
                    faults.invalid(&SPEC.field("externalName"), name, why);
                }
            }
        }
        _ => {}
    }
    for (index, port) in ports.iter().enumerate() {
        service_port(faults, &ports_path.index(index), ports, index, port);
    }
    meta::labels(faults, &SPEC.field("selector"), at(spec, "selector"));
    faults.one_of(&SPEC.field("sessionAffinity"), text(spec, "sessionAffinity"), &["ClientIP", "None"]);
    if text(spec, "sessionAffinity") == "ClientIP" {
        let seconds = int(spec, "sessionAffinityConfig.clientIP.timeoutSeconds").unwrap_or_default();
        if !(1..=86_400).contains(&seconds) {
            let config = SPEC.field("sessionAffinityConfig");
            let client = config.field("clientIP");
            let detail = "must be greater than 0 and less than 86400";
            faults.invalid(&client.field("timeoutSeconds"), seconds, detail);
        }
    }
    address(faults, spec);
    faults.one_of(&SPEC.field("type"), kind, &SERVICE_KINDS);
    for (index, port) in ports.iter().enumerate() {
        if kind == "ClusterIP" && int(port, "nodePort").unwrap_or_default() != 0 {
            let detail = "may not be used when `type` is 'ClusterIP'";
            faults.forbidden(&ports_path.index(index).field("nodePort"), detail);
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let earlier = || ports.iter().take(index).filter(|other| text(other, "protocol") == text(port, "protocol"));
        let node_port = int(port, "nodePort").unwrap_or_default();
        if node_port != 0 && earlier().any(|other| int(other, "nodePort") == Some(node_port)) {
            faults.duplicate(&ports_path.index(index).field("nodePort"), node_port);
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let is_same =
            |other: &Value| text(other, "protocol") == text(port, "protocol") && at(other, "port") == at(port, "port");
        if ports.iter().take(index).any(is_same) {
            let found = json!({
                "Name": "", "Protocol": text(port, "protocol"), "AppProtocol": null,
                "Port": at(port, "port"), "TargetPort": 0, "NodePort": 0,
            });
            let shown = ordered(&found, &["Name", "Protocol", "AppProtocol", "Port", "TargetPort", "NodePort"]);
            faults.duplicate(&ports_path.index(index), found);
            faults.show(shown);
        }
    }
    let is_balanced = kind == "LoadBalancer";
    if has(spec, "allocateLoadBalancerNodePorts") && !is_balanced {
        let path = SPEC.field("allocateLoadBalancerNodePorts");
        faults.forbidden(&path, "may only be used when `type` is 'LoadBalancer'");
    }
    if has(spec, "loadBalancerClass") && !is_balanced {
        faults.forbidden(&SPEC.field("loadBalancerClass"), "may only be used when `type` is 'LoadBalancer'");
    }
    traffic(faults, spec, kind);
}

fn traffic(faults: &mut Faults, spec: &Value, kind: &str) {
    let is_external =
        matches!(kind, "LoadBalancer" | "NodePort") || kind == "ClusterIP" && !items(spec, "externalIPs").is_empty();
    let policy = text(spec, "externalTrafficPolicy");
    let path = SPEC.field("externalTrafficPolicy");
    if !is_external {
        if !policy.is_empty() {
            faults.invalid(&path, policy, "may only be set for externally-accessible services");
        }
    } else if policy.is_empty() {
        faults.required(&path, "");
    } else {
        faults.one_of(&path, policy, &["Cluster", "Local"]);
    }
    if let Some(policy) = spec.get("internalTrafficPolicy").and_then(Value::as_str) {
        faults.one_of(&SPEC.field("internalTrafficPolicy"), policy, &["Cluster", "Local"]);
    }
}

fn address(faults: &mut Faults, spec: &Value) {
    let given = text(spec, "clusterIP");
    if text(spec, "type") == "ExternalName" || matches!(given, "" | "None") {
        return;
    }
    if given.parse::<std::net::IpAddr>().is_err() {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        faults.invalid(&SPEC.field("clusterIPs").index(0), given, detail);
    }
}

fn service_port(faults: &mut Faults, path: &Path<'_>, ports: &[Value], index: usize, port: &Value) {
    let name = text(port, "name");
    if name.is_empty() {
        if ports.len() > 1 {
            faults.required(&path.field("name"), "");
        }
    } else {
        for why in names::label(name) {
            faults.invalid(&path.field("name"), name, why);
        }
        if ports.iter().take(index).any(|other| text(other, "name") == name) {
            faults.duplicate(&path.field("name"), name);
        }
    }
    let number = int(port, "port").unwrap_or_default();
    if let Some(why) = names::port_number(number) {
        faults.invalid(&path.field("port"), number, why);
    }
    match text(port, "protocol") {
        "" => faults.required(&path.field("protocol"), ""),
        found => faults.one_of(&path.field("protocol"), found, &["SCTP", "TCP", "UDP"]),
    }
    container::port(faults, &path.field("targetPort"), at(port, "targetPort"));
}

pub(super) fn service_update(faults: &mut Faults, new: &Value, old: &Value) {
    let needs = |object: &Value| text(object, "spec.type") != "ExternalName";
    let (after, before) = (text(new, "spec.clusterIP"), text(old, "spec.clusterIP"));
    if needs(new) && needs(old) && !before.is_empty() && after != before {
        let found = Value::from(vec![after]);
        let path = SPEC.field("clusterIPs");
        if after.is_empty() {
            faults.invalid(&path.index(0), found, "primary clusterIP can not be unset");
        } else {
            faults.invalid(&path.index(0), found, "may not change once set");
        }
    }
}
