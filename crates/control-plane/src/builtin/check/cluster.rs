//! Storage, policy, priorities, leases, roles, webhooks and what else a cluster is set up with.

use serde_json::{Value, json};

use super::super::meta;
use super::super::names;
use super::super::tree::{
    Faults, METADATA, Path, ROOT, SPEC, STATUS, at, entries, flag, has, int, items, ordered, text,
};
use super::workloads::{at_most_all, count_or_percent};

const RBAC: &str = "rbac.authorization.k8s.io";
/// The highest priority a user may define; those above are the system's.
const PRIORITY_MAX: i64 = 1_000_000_000;

pub(super) fn disruption_budget(faults: &mut Faults, object: &Value) {
    let spec = at(object, "spec");
    if has(spec, "minAvailable") && has(spec, "maxUnavailable") {
        let found = json!({
            "MinAvailable": at(spec, "minAvailable"),
            "Selector": at(spec, "selector"),
            "MaxUnavailable": at(spec, "maxUnavailable"),
            "UnhealthyPodEvictionPolicy": at(spec, "unhealthyPodEvictionPolicy"),
        });
        let fields = ["MinAvailable", "Selector", "MaxUnavailable", "UnhealthyPodEvictionPolicy"];
        let shown = ordered(&found, &fields);
        faults.invalid(&SPEC, found, "minAvailable and maxUnavailable cannot be both set");
        faults.show(shown);
    }
    for field in ["minAvailable", "maxUnavailable"] {
        if has(spec, field) {
            count_or_percent(faults, &SPEC.field(field), at(spec, field));
            at_most_all(faults, &SPEC.field(field), at(spec, field));
        }
    }
    meta::selector(faults, &SPEC.field("selector"), at(spec, "selector"));
    if let Some(policy) = spec.get("unhealthyPodEvictionPolicy").and_then(Value::as_str) {
        let path = SPEC.field("unhealthyPodEvictionPolicy");
        faults.one_of(&path, policy, &["AlwaysAllow", "IfHealthyBudget"]);
    }
}

pub(super) fn disruption_budget_status(faults: &mut Faults, object: &Value) {
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        faults.not_negative(&STATUS.field(field), at(at(object, "status"), field));
    }
}

pub(super) fn priority_class(faults: &mut Faults, object: &Value) {
    let name = text(object, "metadata.name");
    let value = int(object, "value").unwrap_or_default();
    if name.starts_with("system-") {
        let known = match name {
            "system-node-critical" => Some(2_000_001_000),
            "system-cluster-critical" => Some(2_000_000_000),
            _ => None,
        };
        let why = match known {
            None => Some(format!("{name} is not a known system priority class")),
            Some(wanted) if value != wanted => Some(format!("value of {name} PriorityClass must be {wanted}")),
            Some(_) if flag(object, "globalDefault") => {
                Some(format!("globalDefault of {name} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(why) = why {
            let detail =
                format!("priority class names with 'system-' prefix are reserved for system use only. error: {why}");
            faults.forbidden(&METADATA.field("name"), detail);
        }
    } else if value > PRIORITY_MAX {
        let detail = format!("maximum allowed value of a user defined priority is {PRIORITY_MAX}");
        faults.forbidden(&ROOT.field("value"), detail);
    }
    if let Some(policy) = object.get("preemptionPolicy").and_then(Value::as_str) {
        faults.one_of(&ROOT.field("preemptionPolicy"), policy, &["PreemptLowerPriority", "Never"]);
    }
}

pub(super) fn priority_class_update(faults: &mut Faults, new: &Value, old: &Value) {
    if int(new, "value").unwrap_or_default() != int(old, "value").unwrap_or_default() {
        faults.forbidden(&ROOT.field("value"), "may not be changed in an update.");
    }
    let field = "preemptionPolicy";
    faults.immutable(&ROOT.field(field), at(new, field), at(old, field));
}

pub(super) fn lease(faults: &mut Faults, object: &Value) {
    if let Some(seconds) = int(object, "spec.leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        faults.invalid(&SPEC.field("leaseDurationSeconds"), seconds, "must be greater than 0");
    }
    faults.not_negative(&SPEC.field("leaseTransitions"), at(object, "spec.leaseTransitions"));
}

pub(super) fn storage_class(faults: &mut Faults, object: &Value) {
    let provisioner = text(object, "provisioner");
    let path = ROOT.field("provisioner");
    if provisioner.is_empty() {
        faults.required(&path, "");
    } else {
        for why in names::qualified(&provisioner.to_lowercase()) {
            faults.invalid(&path, provisioner.to_lowercase(), why);
        }
    }
    let policy = text(object, "reclaimPolicy");
    if !policy.is_empty() {
        faults.one_of(&ROOT.field("reclaimPolicy"), policy, &["Delete", "Retain"]);
    }
    let mode = text(object, "volumeBindingMode");
    faults.one_of(&ROOT.field("volumeBindingMode"), mode, &["Immediate", "WaitForFirstConsumer"]);
    let topologies = ROOT.field("allowedTopologies");
    for (index, term) in items(object, "allowedTopologies").iter().enumerate() {
        let term_path = topologies.index(index);
        let list = term_path.field("matchLabelExpressions");
        for (index, expression) in items(term, "matchLabelExpressions").iter().enumerate() {
            let path = list.index(index);
            if items(expression, "values").is_empty() {
                faults.required(&path.field("values"), "");
            }
            meta::label_key(faults, &path.field("key"), text(expression, "key"));
        }
    }
}

pub(super) fn immutable_fields(faults: &mut Faults, new: &Value, old: &Value, fields: &[&str]) {
    for field in fields {
        faults.immutable(&ROOT.field(field), at(new, field), at(old, field));
    }
}

pub(super) fn volume_attachment(faults: &mut Faults, object: &Value) {
    let attacher = text(object, "spec.attacher");
    if attacher.is_empty() {
        faults.required(&SPEC.field("attacher"), "");
    } else {
        driver_name(faults, &SPEC.field("attacher"), attacher);
    }
    let source = SPEC.field("source");
    match (has(object, "spec.source.inlineVolumeSpec"), has(object, "spec.source.persistentVolumeName")) {
        (false, false) => {
            faults.required(&source, "must specify exactly one of inlineVolumeSpec and persistentVolumeName");
        }
        (true, true) => {
            faults.forbidden(&source, "must specify exactly one of inlineVolumeSpec and persistentVolumeName");
        }
        _ => {}
    }
    let node = text(object, "spec.nodeName");
    for why in names::subdomain(node) {
        faults.invalid(&SPEC.field("nodeName"), node, why);
    }
}

fn driver_name(faults: &mut Faults, path: &Path<'_>, name: &str) {
    if name.len() > 63 {
        faults.too_long(path, 63);
    }
    for why in names::subdomain(&name.to_lowercase()) {
        faults.invalid(path, name, why);
    }
}

pub(super) fn csi_node(faults: &mut Faults, object: &Value) {
    let list = SPEC.field("drivers");
    let drivers = items(object, "spec.drivers");
    for (index, driver) in drivers.iter().enumerate() {
        let path = list.index(index);
        let name = text(driver, "name");
        if name.is_empty() {
            faults.required(&path.field("name"), "");
        } else {
            driver_name(faults, &path.field("name"), name);
        }
        if text(driver, "nodeID").is_empty() {
            faults.required(&path.field("nodeID"), "");
        }
        let allocatable = path.field("allocatable");
        faults.not_negative(&allocatable.field("count"), at(driver, "allocatable.count"));
        if drivers.iter().take(index).any(|other| text(other, "name") == name) {
            faults.duplicate(&path.field("name"), name);
        }
        for key in items(driver, "topologyKeys").iter().filter_map(Value::as_str) {
            for why in names::qualified(key) {
                faults.invalid(&path, key, why);
            }
        }
    }
}

pub(super) fn role(faults: &mut Faults, object: &Value, is_namespaced: bool) {
    let list = ROOT.field("rules");
    for (index, rule) in items(object, "rules").iter().enumerate() {
        let path = list.index(index);
        if items(rule, "verbs").is_empty() {
            faults.required(&path.field("verbs"), "verbs must contain at least one value");
        }
        let urls = items(rule, "nonResourceURLs");
        if !urls.is_empty() {
            let path = path.field("nonResourceURLs");
            let found = || Value::from(urls.to_vec());
            if is_namespaced {
                faults.invalid(&path, found(), "namespaced rules cannot apply to non-resource URLs");
            }
            if ["apiGroups", "resources", "resourceNames"].into_iter().any(|field| !items(rule, field).is_empty()) {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                faults.invalid(&path, found(), detail);
            }
            continue;
        }
        if items(rule, "apiGroups").is_empty() {
            faults.required(&path.field("apiGroups"), "resource rules must supply at least one api group");
        }
        if items(rule, "resources").is_empty() {
            faults.required(&path.field("resources"), "resource rules must supply at least one resource");
        }
    }
}

pub(super) fn role_binding(faults: &mut Faults, object: &Value, is_namespaced: bool) {
    let reference = ROOT.field("roleRef");
    faults.one_of(&reference.field("apiGroup"), text(object, "roleRef.apiGroup"), &[RBAC]);
    let kinds: &[&str] = if is_namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    faults.one_of(&reference.field("kind"), text(object, "roleRef.kind"), kinds);
    let name = text(object, "roleRef.name");
    if name.is_empty() {
        faults.required(&reference.field("name"), "");
    } else {
        for why in names::path_segment(name) {
            faults.invalid(&reference.field("name"), name, why);
        }
    }
    let list = ROOT.field("subjects");
    for (index, subject) in items(object, "subjects").iter().enumerate() {
        let path = list.index(index);
        let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
        if name.is_empty() {
            faults.required(&path.field("name"), "");
        }
        match text(subject, "kind") {
            "ServiceAccount" => {
                if !name.is_empty() {
                    for why in names::subdomain(name) {
                        faults.invalid(&path.field("name"), name, why);
                    }
                }
                faults.one_of(&path.field("apiGroup"), group, &[""]);
                if !is_namespaced && text(subject, "namespace").is_empty() {
                    faults.required(&path.field("namespace"), "");
                }
            }
            "User" | "Group" => faults.one_of(&path.field("apiGroup"), group, &[RBAC]),
            other => faults.not_supported(&path.field("kind"), other, &["ServiceAccount", "User", "Group"]),
        }
    }
}

pub(super) fn role_binding_update(faults: &mut Faults, new: &Value, old: &Value) {
    if at(new, "roleRef") != at(old, "roleRef") {
        let found = json!({
            "APIGroup": text(new, "roleRef.apiGroup"),
            "Kind": text(new, "roleRef.kind"),
            "Name": text(new, "roleRef.name"),
        });
        faults.invalid(&ROOT.field("roleRef"), found, "cannot change roleRef");
    }
}

pub(super) fn controller_revision(faults: &mut Faults, object: &Value) {
    faults.not_negative(&ROOT.field("revision"), at(object, "revision"));
    let data = at(object, "data");
    if data.is_null() {
        faults.required(&ROOT.field("data"), "data is mandatory");
    } else if !data.is_object() {
        faults.required(&ROOT.field("data"), "data must be a valid JSON object");
    }
}

pub(super) fn webhooks(faults: &mut Faults, object: &Value) {
    let list = ROOT.field("webhooks");
    let hooks = items(object, "webhooks");
    for (index, hook) in hooks.iter().enumerate() {
        let path = list.index(index);
        let name = text(hook, "name");
        if name.is_empty() {
            faults.required(&path.field("name"), "");
        } else if name.split('.').count() < 3 {
            faults.invalid(
                &path.field("name"),
                name,
                "should be a domain with at least three segments separated by dots",
            );
        }
        match text(hook, "sideEffects") {
            "" => faults.required(&path.field("sideEffects"), "must specify one of None, NoneOnDryRun"),
            found => faults.one_of(&path.field("sideEffects"), found, &["None", "NoneOnDryRun"]),
        }
        if items(hook, "admissionReviewVersions").is_empty() {
            let detail = "must specify one of v1, v1beta1";
            faults.required(&path.field("admissionReviewVersions"), detail);
        }
        faults.one_of(&path.field("failurePolicy"), text(hook, "failurePolicy"), &["Fail", "Ignore"]);
        let seconds = int(hook, "timeoutSeconds").unwrap_or_default();
        if !(1..=30).contains(&seconds) {
            let detail = "the timeout value must be between 1 and 30 seconds";
            faults.invalid(&path.field("timeoutSeconds"), seconds, detail);
        }
        let client = path.field("clientConfig");
        if has(hook, "clientConfig.url") == has(hook, "clientConfig.service") {
            faults.required(&client, "exactly one of url or service is required");
        }
        if hooks.iter().take(index).any(|other| text(other, "name") == name) {
            faults.duplicate(&path.field("name"), name);
        }
    }
}

pub(super) fn event(faults: &mut Faults, object: &Value) {
    let involved = if has(object, "regarding") { "regarding" } else { "involvedObject" };
    let namespace = text(at(object, involved), "namespace");
    let own = text(object, "metadata.namespace");
    let path = ROOT.field("involvedObject");
    let is_cluster_wide = namespace.is_empty() && matches!(own, "default" | "kube-system" | "");
    if namespace != own && !is_cluster_wide {
        faults.invalid(&path.field("namespace"), namespace, "does not match event.namespace");
    }
}

/// An event of the newer group says who saw what, and what was done.
pub(super) fn new_event(faults: &mut Faults, object: &Value) {
    let controller = text(object, "reportingController");
    let path = ROOT.field("reportingController");
    if controller.is_empty() {
        faults.required(&path, "");
        // The real server checks both parts of the qualified name that is not there.
        faults.invalid(&path, controller, "name part must be non-empty");
        faults.invalid(&path, controller, NAME_PART);
    }
    for field in ["reportingInstance", "action", "reason"] {
        if text(object, field).is_empty() {
            faults.required(&ROOT.field(field), "");
        }
    }
    let kind = text(object, "type");
    if !matches!(kind, "Normal" | "Warning") {
        faults.invalid(&ROOT.field("type"), kind, format!("has invalid value: {kind}"));
    }
}

const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Objects of a size-limited map, such as parameters.
pub(super) fn keys_are_given(faults: &mut Faults, object: &Value) {
    for (key, _) in entries(object, "parameters") {
        if key.is_empty() {
            faults.invalid(&ROOT.field("parameters"), "", "field can not be empty.");
        }
    }
}
