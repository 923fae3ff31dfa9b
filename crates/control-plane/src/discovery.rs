//! What is served, told to clients: `/api`, `/apis` and below, in the old form of one document for each group version and in
//! the aggregated form of one for all, and `/version`.
//!
//! Aggregated documents are those of `apidiscovery.k8s.io/v2`. Its beta is gone from the release that we stand for, and a
//! client that names it in a list gets the next form of its list, as there.

use std::cmp::Ordering;
use std::sync::Arc;

use base64::Engine as _;
use serde_json::{Map, Value, json};

use crate::kind::{Catalog, Resource, Subresource};

pub const JSON: &str = "application/json";
pub const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The document at `path`, and its content type. None for a path that is no discovery path, or a group that is not served.
///
/// - Guarantees: groups in the order of the real server, versions with the stable and newest first, resources by name.
/// - Caveats: no `serverAddress`: the server does not know where it is reached.
#[must_use]
pub fn answer(catalog: &Catalog, path: &str, accept: &str) -> Option<(Value, &'static str)> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["version"] => Some((version(), JSON)),
        ["api"] if wants_aggregated(accept) => Some((aggregated(catalog, &[""]), AGGREGATED)),
        ["api"] => {
            let address = json!([{ "clientCIDR": "0.0.0.0/0", "serverAddress": "" }]);
            Some((json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": address }), JSON))
        }
        ["apis"] if wants_aggregated(accept) => Some((aggregated(catalog, &groups(catalog)), AGGREGATED)),
        ["apis"] => {
            let groups: Vec<Value> = groups(catalog).into_iter().map(|name| group(catalog, name)).collect();
            Some((json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }), JSON))
        }
        ["api", version] => resource_list(catalog, "", version).map(|list| (list, JSON)),
        ["apis", name] if groups(catalog).contains(name) => {
            let mut told = json!({ "kind": "APIGroup", "apiVersion": "v1" });
            if let (Value::Object(told), Value::Object(group)) = (&mut told, group(catalog, name)) {
                told.extend(group);
            }
            Some((told, JSON))
        }
        ["apis", group, version] if !group.is_empty() => {
            resource_list(catalog, group, version).map(|list| (list, JSON))
        }
        _ => None,
    }
}

/// The release that we stand for.
#[must_use]
pub fn version() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": "v1.36.3",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, platform(std::env::consts::ARCH)),
    })
}

/// Architectures by the names that Kubernetes has for them.
fn platform(architecture: &str) -> &str {
    match architecture {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Whether the first form in the list that we have is the aggregated one.
fn wants_aggregated(accept: &str) -> bool {
    for form in accept.split(',') {
        let mut parts = form.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        if !matches!(media, "" | "*/*" | "application/*" | JSON) {
            continue;
        }
        let parameters: Vec<(&str, &str)> =
            parts.filter_map(|part| part.split_once('=')).filter(|(key, _)| matches!(*key, "g" | "v" | "as")).collect();
        let says = |key: &str, value: &str| parameters.contains(&(key, value));
        if says("g", "apidiscovery.k8s.io") && says("v", "v2") && says("as", "APIGroupDiscoveryList") {
            return true;
        }
        if parameters.is_empty() {
            return false;
        }
    }
    false
}

/// The order in which the real server names its groups. Groups that are not among them are custom, and follow by name.
const ORDER: [&str; 12] = [
    "apps",
    "events.k8s.io",
    "batch",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
];

/// The served groups but the core one.
fn groups(catalog: &Catalog) -> Vec<&str> {
    let mut groups: Vec<&str> =
        catalog.iter().map(|resource| resource.group.as_str()).filter(|group| !group.is_empty()).collect();
    groups.dedup();
    groups.sort_by_key(|group| (ORDER.iter().position(|known| known == group).unwrap_or(ORDER.len()), *group));
    groups
}

/// The served versions of a group, the preferred one first.
fn versions<'a>(catalog: &'a Catalog, group: &str) -> Vec<&'a str> {
    let of_group = catalog.iter().filter(|resource| resource.group == group);
    let mut versions: Vec<&str> = of_group.map(|resource| resource.version.as_str()).collect();
    versions.sort_by(|a, b| by_preference(a, b));
    versions.dedup();
    versions
}

/// `v2`, `v1`, `v1beta2`, `v1alpha1`, and then what is no version number, by name.
pub(crate) fn by_preference(a: &str, b: &str) -> Ordering {
    match (parse_version(a), parse_version(b)) {
        (Some(first), Some(second)) => second.cmp(&first),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// Stability (stable above beta above alpha), the number, and the number of the beta.
fn parse_version(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits_end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, tail) = rest.split_at(digits_end);
    let major = positive(major)?;
    if tail.is_empty() {
        return Some((2, major, 0));
    }
    let (stability, minor) = match (tail.strip_prefix("beta"), tail.strip_prefix("alpha")) {
        (Some(minor), _) => (1, minor),
        (_, Some(minor)) => (0, minor),
        _ => return None,
    };
    Some((stability, major, positive(minor)?))
}

fn positive(digits: &str) -> Option<u64> {
    digits.parse().ok().filter(|number| *number > 0 && !digits.starts_with('+'))
}

/// The resources of a group version. The catalog has them by name already.
fn resources<'a>(catalog: &'a Catalog, group: &str, version: &str) -> Vec<&'a Arc<Resource>> {
    catalog.iter().filter(|resource| resource.group == group && resource.version == version).collect()
}

fn group(catalog: &Catalog, name: &str) -> Value {
    let versions: Vec<Value> = versions(catalog, name)
        .into_iter()
        .map(|version| json!({ "groupVersion": format!("{name}/{version}"), "version": version }))
        .collect();
    json!({ "name": name, "preferredVersion": versions.first(), "versions": versions })
}

fn resource_list(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    let served = resources(catalog, group, version);
    let first = served.first()?;
    let mut list = Vec::new();
    for resource in &served {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": verbs(resource),
        });
        add_names(&mut entry, resource);
        if let (Value::Object(entry), Some(hash)) = (&mut entry, storage_version_hash(catalog, resource)) {
            entry.insert("storageVersionHash".to_owned(), json!(hash));
        }
        list.push(entry);
        for subresource in subresources(resource) {
            let (kind, verbs) = of_subresource(resource, subresource);
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, subresource.name()), "singularName": "",
                "namespaced": resource.namespaced, "kind": kind.kind, "verbs": verbs,
            });
            if let (Value::Object(entry), false) = (&mut entry, kind.version.is_empty()) {
                entry.insert("group".to_owned(), json!(kind.group));
                entry.insert("version".to_owned(), json!(kind.version));
            }
            list.push(entry);
        }
    }
    let mut told = json!({ "kind": "APIResourceList", "groupVersion": first.api_version(), "resources": list });
    // The list of the core group is older than the field.
    if let (Value::Object(told), false) = (&mut told, group.is_empty()) {
        told.insert("apiVersion".to_owned(), json!("v1"));
    }
    Some(told)
}

/// Which version objects are written in, in a form that clients only compare. Told of definitions whose version for that is served.
fn storage_version_hash(catalog: &Catalog, resource: &Resource) -> Option<String> {
    let kept_in = resource.versions.as_ref()?.kept_in();
    let version = kept_in.rsplit('/').next().unwrap_or_default();
    catalog.get(&resource.group, version, &resource.plural)?;
    // The TLS library brings it along: no other reason here to have a SHA-256.
    let sha256 = rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13()?.common.hash_provider;
    let hash = sha256.hash(format!("{kept_in}/{}", resource.kind).as_bytes());
    Some(base64::engine::general_purpose::STANDARD.encode(hash.as_ref().get(..8)?))
}

fn add_names(entry: &mut Value, resource: &Resource) {
    let Value::Object(entry) = entry else { return };
    for (key, names) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
        if !names.is_empty() {
            entry.insert(key.to_owned(), json!(names));
        }
    }
}

/// What a client gets from a resource. Group and version are empty where they are the resource's own.
struct Response {
    group: &'static str,
    version: &'static str,
    kind: String,
}

fn verbs(resource: &Resource) -> Vec<&'static str> {
    // A resource of a definition names its verbs in an order of its own.
    if resource.custom.is_some() {
        return vec!["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
    }
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "bindings") => vec!["create"],
        ("", "namespaces") => vec!["create", "delete", "get", "list", "patch", "update", "watch"],
        _ => vec!["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    }
}

fn of_subresource(resource: &Resource, subresource: Subresource) -> (Response, Vec<&'static str>) {
    let own = |kind: &str| Response { group: "", version: "", kind: kind.to_owned() };
    let other = |group, version, kind: &str| Response { group, version, kind: kind.to_owned() };
    match subresource {
        Subresource::Scale => (other("autoscaling", "v1", "Scale"), vec!["get", "patch", "update"]),
        Subresource::Eviction => (other("policy", "v1", "Eviction"), vec!["create"]),
        Subresource::Token => (other("authentication.k8s.io", "v1", "TokenRequest"), vec!["create"]),
        Subresource::Binding => (own("Binding"), vec!["create"]),
        Subresource::Finalize => (own(&resource.kind), vec!["update"]),
        Subresource::Status | Subresource::EphemeralContainers | Subresource::Resize | Subresource::Approval => {
            (own(&resource.kind), vec!["get", "patch", "update"])
        }
    }
}

/// By name; a definition's resource has its status before its scale.
fn subresources(resource: &Resource) -> Vec<Subresource> {
    let mut all = resource.subresources.clone();
    if resource.custom.is_some() {
        all.sort();
    } else {
        all.sort_by_key(|subresource| subresource.name());
    }
    all
}

fn aggregated(catalog: &Catalog, groups: &[&str]) -> Value {
    let items: Vec<Value> = groups
        .iter()
        .map(|group| {
            let versions: Vec<Value> = versions(catalog, group)
                .into_iter()
                .map(|version| {
                    let served = resources(catalog, group, version);
                    let resources: Vec<Value> =
                        served.into_iter().map(|resource| aggregated_resource(resource)).collect();
                    json!({ "version": version, "resources": resources, "freshness": "Current" })
                })
                .collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
            json!({ "metadata": metadata, "versions": versions })
        })
        .collect();
    json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items })
}

fn aggregated_resource(resource: &Resource) -> Value {
    // Built-in resources leave group and version to where they stand; those of definitions say them.
    let own = |kind: &str| match &resource.custom {
        Some(_) => json!({ "group": resource.group, "version": resource.version, "kind": kind }),
        None => json!({ "group": "", "version": "", "kind": kind }),
    };
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": own(&resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": verbs(resource),
    });
    add_names(&mut entry, resource);
    let subresources: Vec<Value> = subresources(resource)
        .into_iter()
        .map(|subresource| {
            let (kind, verbs) = of_subresource(resource, subresource);
            let response = if kind.version.is_empty() {
                own(&kind.kind)
            } else {
                json!({ "group": kind.group, "version": kind.version, "kind": kind.kind })
            };
            let mut entry = Map::new();
            entry.insert("subresource".to_owned(), json!(subresource.name()));
            entry.insert("responseKind".to_owned(), response);
            entry.insert("verbs".to_owned(), json!(verbs));
            Value::Object(entry)
        })
        .collect();
    if let (Value::Object(entry), false) = (&mut entry, subresources.is_empty()) {
        entry.insert("subresources".to_owned(), json!(subresources));
    }
    entry
}

#[cfg(test)]
mod tests;
