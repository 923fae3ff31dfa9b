//! Resource names and amounts.

use serde_json::Value;

use super::super::names;
use super::super::quantity::Quantity;
use super::super::tree::{Faults, Path, at, entries, items, text};

const COUNTED: [&str; 9] = [
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

fn is_container_standard(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge_page(name)
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_standard(name: &str) -> bool {
    is_quota_standard(name) || is_container_standard(name) || name == "storage"
}

pub(crate) fn is_quota_standard(name: &str) -> bool {
    COUNTED.contains(&name)
        || matches!(
            name,
            "cpu"
                | "memory"
                | "ephemeral-storage"
                | "requests.cpu"
                | "requests.memory"
                | "requests.storage"
                | "requests.ephemeral-storage"
                | "limits.cpu"
                | "limits.memory"
                | "limits.ephemeral-storage"
        )
        || is_huge_page(name)
        || name.starts_with("requests.hugepages-")
}

/// Without a domain, or with one of Kubernetes' own.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified(&format!("requests.{name}")).is_empty()
}

fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

fn is_counted(name: &str) -> bool {
    COUNTED.contains(&name) || is_extended(name)
}

/// A resource's name, wherever it stands.
pub(crate) fn name(faults: &mut Faults, path: &Path<'_>, name: &str) -> bool {
    let wrong = names::qualified(name);
    let is_sound = wrong.is_empty();
    for why in wrong {
        faults.invalid(path, name, why);
    }
    if is_sound && !name.contains('/') && !is_standard(name) {
        faults.invalid(path, name, "must be a standard resource type or fully qualified");
        return false;
    }
    is_sound
}

pub(crate) fn container_name(faults: &mut Faults, path: &Path<'_>, resource: &str) {
    name(faults, path, resource);
    if !resource.contains('/') {
        if !is_container_standard(resource) {
            faults.invalid(path, resource, "must be a standard resource for containers");
        }
    } else if !is_native(resource) && !is_extended(resource) {
        faults.invalid(path, resource, "doesn't follow extended resource name standard");
    }
}

fn pod_name(faults: &mut Faults, path: &Path<'_>, resource: &str) {
    name(faults, path, resource);
    if !resource.contains('/') && !is_container_standard(resource) {
        faults.invalid(path, resource, "must be a standard resource for pods");
    } else if !matches!(resource, "cpu" | "memory") && !is_huge_page(resource) {
        faults.not_supported(path, resource, &["cpu", "hugepages-", "memory"]);
    }
}

pub(crate) fn amount(faults: &mut Faults, path: &Path<'_>, resource: &str, value: &Value) {
    let Some(quantity) = Quantity::of(value) else { return };
    if quantity.is_negative() {
        faults.invalid(path, quantity.to_string(), names::NOT_NEGATIVE);
    }
    if is_counted(resource) && !quantity.is_whole() {
        faults.invalid(path, quantity.to_string(), "must be an integer");
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Container,
    Pod,
}

/// Limits and requests of one container or of a whole pod.
pub(crate) fn requirements(faults: &mut Faults, path: &Path<'_>, resources: &Value, of: Of, claims: &[&str]) {
    if resources.as_object().is_none_or(serde_json::Map::is_empty) {
        return;
    }
    let limits_path = path.field("limits");
    let requests_path = path.field("requests");
    let mut has_huge_pages = false;
    let mut has_compute = false;
    let mut judge = |faults: &mut Faults, list: &Path<'_>, resource: &str, value: &Value| {
        let path = list.key(resource);
        match of {
            Of::Container => container_name(faults, &path, resource),
            Of::Pod => pod_name(faults, &path, resource),
        }
        amount(faults, &path, resource, value);
        has_huge_pages |= is_huge_page(resource);
        has_compute |= matches!(resource, "cpu" | "memory");
    };
    for (resource, value) in entries(resources, "limits") {
        judge(faults, &limits_path, resource, value);
    }
    for (resource, value) in entries(resources, "requests") {
        judge(faults, &requests_path, resource, value);
        let Some(request) = Quantity::of(value) else { continue };
        match at(resources, "limits").get(resource).and_then(Quantity::of) {
            Some(limit) if request != limit && !is_overcommit_allowed(resource) => {
                let detail = format!("must be equal to {resource} limit of {limit}");
                faults.invalid(&requests_path, request.to_string(), detail);
            }
            Some(limit) if request > limit => {
                let detail = format!("must be less than or equal to {resource} limit of {limit}");
                faults.invalid(&requests_path, request.to_string(), detail);
            }
            None if !is_overcommit_allowed(resource) => {
                faults.required(&limits_path, "Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
    }
    if has_huge_pages && !has_compute {
        faults.forbidden(path, "HugePages require cpu or memory");
    }
    claim_names(faults, &path.field("claims"), items(resources, "claims"), claims);
}

fn claim_names(faults: &mut Faults, path: &Path<'_>, used: &[Value], claims: &[&str]) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, claim) in used.iter().enumerate() {
        let path = path.index(index);
        let name = text(claim, "name");
        if name.is_empty() {
            faults.required(&path, "");
            continue;
        }
        if seen.contains(&name) && text(claim, "request").is_empty() {
            faults.duplicate(&path, name);
        }
        seen.push(name);
        if !claims.contains(&name) {
            let listed =
                if claims.is_empty() { " which is empty".to_owned() } else { format!(": {}", claims.join(", ")) };
            faults.not_found(&path, name);
            if let Some(fault) = faults.0.last_mut() {
                fault.detail = format!("must be one of the names in pod.spec.resourceClaims{listed}");
            }
        }
    }
}
