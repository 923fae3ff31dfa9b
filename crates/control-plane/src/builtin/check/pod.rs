//! Pods, and the pods that templates describe.

use serde_json::Value;

use super::super::defaults;
use super::super::meta;
use super::super::names;
use super::super::quantity::Quantity;
use super::super::tree::{
    Faults, Path, SPEC, STATUS, at, copy_key, entries, flag, has, int, items, items_mut, open, text,
};
use super::container::{self, Pod};
use super::resources::{self, Of};
use super::{placement, volumes};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Pod,
    Template,
}

pub(super) fn create(faults: &mut Faults, pod: &Value) {
    metadata_and_spec(faults, pod);
    if !items(pod, "spec.ephemeralContainers").is_empty() {
        faults.forbidden(&SPEC.field("ephemeralContainers"), "cannot be set on create");
    }
    if !text(pod, "spec.nodeName").is_empty() && !items(pod, "spec.schedulingGates").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        faults.forbidden(&SPEC.field("nodeName"), detail);
    }
}

fn metadata_and_spec(faults: &mut Faults, pod: &Value) {
    spec(faults, &SPEC, at(pod, "spec"), Whose::Pod, text(pod, "metadata.name"));
    if text(pod, "spec.serviceAccountName").is_empty() {
        let list = SPEC.field("volumes");
        for (index, volume) in items(pod, "spec.volumes").iter().enumerate() {
            for (source_index, source) in items(volume, "projected.sources").iter().enumerate() {
                if has(source, "serviceAccountToken") {
                    let volume_path = list.index(index);
                    let projected = volume_path.field("projected");
                    let sources = projected.field("sources");
                    let source_path = sources.index(source_index);
                    let detail = "must not be specified when serviceAccountName is not set";
                    faults.forbidden(&source_path.field("serviceAccountToken"), detail);
                }
            }
        }
    }
    container::only_for_pods(faults, &SPEC.field("containers"), items(pod, "spec.containers"));
    container::only_for_pods(faults, &SPEC.field("initContainers"), items(pod, "spec.initContainers"));
}

/// A pod template: labels, annotations and the spec.
pub(super) fn template(faults: &mut Faults, path: &Path<'_>, template: &Value) {
    meta::labels(faults, &path.field("labels"), at(template, "metadata.labels"));
    meta::annotations(faults, &path.field("annotations"), at(template, "metadata.annotations"));
    let path = path.field("spec");
    spec(faults, &path, at(template, "spec"), Whose::Template, "");
    if !items(template, "spec.ephemeralContainers").is_empty() {
        faults.forbidden(&path.field("ephemeralContainers"), "ephemeral containers not allowed in pod template");
    }
}

fn spec(faults: &mut Faults, path: &Path<'_>, spec: &Value, of: Whose, pod_name: &str) {
    let grace_seconds = int(spec, "terminationGracePeriodSeconds");
    if grace_seconds.is_none() {
        faults.required(&path.field("terminationGracePeriodSeconds"), "");
    }
    let sound_volumes = volumes::volumes(faults, &path.field("volumes"), pod_name, items(spec, "volumes"));
    let claims = claims(faults, &path.field("resourceClaims"), items(spec, "resourceClaims"));
    let pod = Pod { volumes: sound_volumes, claims, grace_seconds };
    let (main, init) = (items(spec, "containers"), items(spec, "initContainers"));
    container::containers(faults, &path.field("containers"), main, &pod);
    container::init_containers(faults, &path.field("initContainers"), init, main, &pod);
    whole_resources(faults, path, spec, &pod);
    host_network(faults, path, spec, of);
    required_word(faults, path, spec, "restartPolicy", &["Always", "OnFailure", "Never"]);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    required_word(faults, path, spec, "dnsPolicy", &policies);
    meta::labels(faults, &path.field("nodeSelector"), at(spec, "nodeSelector"));
    security(faults, &path.field("securityContext"), at(spec, "securityContext"));
    placement::affinity(faults, &path.field("affinity"), at(spec, "affinity"));
    dns_config(faults, path, spec);
    let gates = path.field("readinessGates");
    for (index, gate) in items(spec, "readinessGates").iter().enumerate() {
        let kind = text(gate, "conditionType");
        for why in names::qualified(kind) {
            faults.invalid(&gates.index(index).field("conditionType"), kind, why);
        }
    }
    scheduling_gates(faults, &path.field("schedulingGates"), items(spec, "schedulingGates"));
    let spreading = path.field("topologySpreadConstraints");
    placement::spreading(faults, &spreading, items(spec, "topologySpreadConstraints"));
    for field in ["serviceAccountName", "nodeName"] {
        dns_name(faults, path, spec, field, names::subdomain);
    }
    if let Some(seconds) = int(spec, "activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let detail = names::between(1, i64::from(i32::MAX));
        faults.invalid(&path.field("activeDeadlineSeconds"), seconds, detail);
    }
    for field in ["hostname", "subdomain"] {
        dns_name(faults, path, spec, field, names::label);
    }
    placement::tolerations(faults, &path.field("tolerations"), items(spec, "tolerations"));
    dns_name(faults, path, spec, "priorityClassName", names::subdomain);
    dns_name(faults, path, spec, "runtimeClassName", names::subdomain);
    if let Some(policy) = spec.get("preemptionPolicy").and_then(Value::as_str) {
        faults.one_of(&path.field("preemptionPolicy"), policy, &["PreemptLowerPriority", "Never"]);
    }
    let overhead = path.field("overhead");
    for (name, amount) in entries(spec, "overhead") {
        resources::container_name(faults, &overhead.key(name), name);
        resources::amount(faults, &overhead.key(name), name, amount);
    }
    if let Some(os) = spec.get("os").filter(|os| os.is_object()) {
        match text(os, "name") {
            "" => faults.required(&path.field("os").field("name"), "cannot be empty"),
            found => faults.one_of(&path.field("os").field("name"), found, &["linux", "windows"]),
        }
    }
}

fn required_word(faults: &mut Faults, path: &Path<'_>, spec: &Value, field: &str, supported: &[&str]) {
    match text(spec, field) {
        "" => faults.required(&path.field(field), ""),
        found => faults.one_of(&path.field(field), found, supported),
    }
}

fn dns_name(faults: &mut Faults, path: &Path<'_>, spec: &Value, field: &str, rule: fn(&str) -> Vec<String>) {
    let found = text(spec, field);
    if !found.is_empty() {
        for why in rule(found) {
            faults.invalid(&path.field(field), found, why);
        }
    }
}

fn claims<'a>(faults: &mut Faults, path: &Path<'_>, claims: &'a [Value]) -> Vec<&'a str> {
    let mut known: Vec<&str> = Vec::new();
    for (index, claim) in claims.iter().enumerate() {
        let path = path.index(index);
        let name = text(claim, "name");
        if name.is_empty() {
            faults.required(&path.field("name"), "");
        } else if known.contains(&name) {
            faults.duplicate(&path.field("name"), name);
        } else {
            for why in names::label(name) {
                faults.invalid(&path.field("name"), name, why);
            }
            known.push(name);
        }
        let shown = || {
            serde_json::json!({
                "Name": name,
                "ResourceClaimName": at(claim, "resourceClaimName"),
                "ResourceClaimTemplateName": at(claim, "resourceClaimTemplateName"),
            })
        };
        match (has(claim, "resourceClaimName"), has(claim, "resourceClaimTemplateName")) {
            (true, true) => {
                let detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                faults.invalid(&path, shown(), detail);
            }
            (false, false) => {
                let detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                faults.invalid(&path, shown(), detail);
            }
            _ => {}
        }
        for field in ["resourceClaimName", "resourceClaimTemplateName"] {
            dns_name(faults, &path, claim, field, names::subdomain);
        }
    }
    known.sort_unstable();
    known
}

fn whole_resources(faults: &mut Faults, path: &Path<'_>, spec: &Value, pod: &Pod<'_>) {
    let resources = at(spec, "resources");
    if resources.is_null() {
        return;
    }
    let path = path.field("resources");
    if has(resources, "claims") {
        faults.forbidden(&path.field("claims"), "claims may not be set for Resources at pod-level");
    }
    resources::requirements(faults, &path, resources, Of::Pod, &pod.claims);
    let wrapped = serde_json::json!({ "spec": spec });
    let requests = path.field("requests");
    for (name, needed) in defaults::aggregate(&wrapped, "requests") {
        let given = at(resources, "requests").get(&name).and_then(Quantity::of);
        if let Some(given) = given.filter(|given| needed > *given) {
            let detail = format!("must be greater than or equal to aggregate container requests of {needed}");
            faults.invalid(&requests.key(&name), given.to_string(), detail);
        }
    }
    let containers = path.field("containers");
    for (index, container) in items(spec, "containers").iter().enumerate() {
        for (name, amount) in entries(container, "resources.limits") {
            let (Some(limit), Some(most)) =
                (Quantity::of(amount), at(resources, "limits").get(name).and_then(Quantity::of))
            else {
                continue;
            };
            if limit > most {
                let container = containers.index(index);
                let key = container.key(name);
                let detail = format!("must be less than or equal to pod limits of {most}");
                faults.invalid(&key.field("limits"), limit.to_string(), detail);
            }
        }
    }
}

fn host_network(faults: &mut Faults, path: &Path<'_>, spec: &Value, of: Whose) {
    if !flag(spec, "hostNetwork") {
        return;
    }
    let containers = path.field("containers");
    for (index, container) in items(spec, "containers").iter().enumerate() {
        let container_path = containers.index(index);
        let ports = container_path.field("ports");
        for (port_index, port) in items(container, "ports").iter().enumerate() {
            let host = int(port, "hostPort").unwrap_or_default();
            let inner = int(port, "containerPort").unwrap_or_default();
            if (of == Whose::Pod || host != 0) && host != inner {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                faults.invalid(&ports.index(port_index).field("hostPort"), host, detail);
            }
        }
    }
}

fn security(faults: &mut Faults, path: &Path<'_>, context: &Value) {
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        container::numeric_id(faults, &path.field(field), at(context, field));
    }
    let groups = path.field("supplementalGroups");
    for (index, group) in items(context, "supplementalGroups").iter().enumerate() {
        container::numeric_id(faults, &groups.index(index), group);
    }
    if let Some(policy) = context.get("fsGroupChangePolicy").and_then(Value::as_str) {
        faults.one_of(&path.field("fsGroupChangePolicy"), policy, &["Always", "OnRootMismatch"]);
    }
}

fn dns_config(faults: &mut Faults, path: &Path<'_>, spec: &Value) {
    let config_path = path.field("dnsConfig");
    if text(spec, "dnsPolicy") == "None" {
        if !has(spec, "dnsConfig") {
            faults.required(&config_path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if items(spec, "dnsConfig.nameservers").is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            faults.required(&config_path.field("nameservers"), detail);
            return;
        }
    }
    let servers = items(spec, "dnsConfig.nameservers");
    if servers.len() > 3 {
        let found = Value::from(servers.to_vec());
        faults.invalid(&config_path.field("nameservers"), found, "must not have more than 3 nameservers");
    }
}

fn scheduling_gates(faults: &mut Faults, path: &Path<'_>, gates: &[Value]) {
    for (index, gate) in gates.iter().enumerate() {
        let name = text(gate, "name");
        for why in names::qualified(name) {
            faults.invalid(&path.index(index), name, why);
        }
        if gates.iter().take(index).any(|other| text(other, "name") == name) {
            faults.duplicate(&path.index(index), name);
        }
    }
}

const MUTABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
                       `spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` \
                       (allow it to be set to 1 if it was previously negative)";

pub(super) fn update(faults: &mut Faults, new: &Value, old: &Value) {
    metadata_and_spec(faults, new);
    for list in ["containers", "initContainers"] {
        let (after, before) = (items(at(new, "spec"), list), items(at(old, "spec"), list));
        let path = SPEC.field(list);
        if after.len() != before.len() {
            faults.forbidden(&path, "pod updates may not add or remove containers");
            return;
        }
    }
    let deadline = SPEC.field("activeDeadlineSeconds");
    match (int(new, "spec.activeDeadlineSeconds"), int(old, "spec.activeDeadlineSeconds")) {
        (Some(after), Some(before)) if before < after => {
            faults.invalid(&deadline, after, "must be less than or equal to previous value");
            return;
        }
        (None, Some(_)) => {
            faults.invalid(&deadline, Value::Null, "must not update from a positive integer to nil value");
        }
        _ => {}
    }
    added_tolerations(faults, new, old);
    removed_gates(faults, new, old);
    if at(new, "spec") == at(old, "spec") {
        return;
    }
    let mut munged = at(new, "spec").clone();
    allow(&mut munged, at(old, "spec"));
    if !items(old, "spec.schedulingGates").is_empty() {
        allow_gated(faults, &mut munged, new, old);
    }
    if &munged != at(old, "spec") {
        let shown = super::diff::between("PodSpec", at(old, "spec"), &munged);
        faults.forbidden(&SPEC, format!("pod updates may not change fields other than {MUTABLE}\n{shown}"));
    }
}

/// Takes back what an update may change, so that only what it may not is left.
fn allow(munged: &mut Value, old: &Value) {
    for list in ["containers", "initContainers"] {
        for (container, before) in items_mut(munged, list).iter_mut().zip(items(old, list)) {
            copy_key(open(container, ""), "image", before);
        }
    }
    let spec = open(munged, "");
    for key in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        copy_key(spec, key, old);
    }
    let was_negative = int(old, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0);
    if was_negative && spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64) == Some(1) {
        copy_key(spec, "terminationGracePeriodSeconds", old);
    }
}

/// A pod that still waits behind a gate may be tied to fewer nodes.
fn allow_gated(faults: &mut Faults, munged: &mut Value, new: &Value, old: &Value) {
    if at(new, "spec.nodeSelector") != at(old, "spec.nodeSelector") {
        let after = at(new, "spec.nodeSelector");
        if entries(old, "spec.nodeSelector").any(|(key, value)| after.get(key) != Some(value)) {
            let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            faults.invalid(&SPEC.field("nodeSelector"), after.clone(), detail);
        }
        copy_key(open(munged, ""), "nodeSelector", at(old, "spec"));
    }
    let path = "spec.affinity.nodeAffinity";
    if at(new, path) == at(old, path) {
        return;
    }
    const TERMS: &str = "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let (after, before) = (items(at(new, path), TERMS), items(at(old, path), TERMS));
    let affinity = SPEC.field("affinity");
    let node = affinity.field("nodeAffinity");
    let required = node.field("requiredDuringSchedulingIgnoredDuringExecution");
    let terms = required.field("nodeSelectorTerms");
    if !before.is_empty() && before.len() != after.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        faults.invalid(&terms, at(at(new, path), TERMS).clone(), detail);
    } else {
        for (index, (term, was)) in after.iter().zip(before).enumerate() {
            let keeps = |list: &str| items(term, list).starts_with(items(was, list));
            if !keeps("matchExpressions") || !keeps("matchFields") {
                let detail = "only additions are allowed (no mutations or deletions)";
                faults.invalid(&terms.index(index), term.clone(), detail);
            }
        }
    }
    if has(old, "spec.affinity") {
        copy_key(open(munged, "affinity"), "nodeAffinity", at(old, "spec.affinity"));
    } else if !has(new, "spec.affinity.podAffinity") && !has(new, "spec.affinity.podAntiAffinity") {
        open(munged, "").remove("affinity");
    } else {
        open(munged, "affinity").remove("nodeAffinity");
    }
}

fn added_tolerations(faults: &mut Faults, new: &Value, old: &Value) {
    let same = |a: &Value, b: &Value| {
        ["key", "operator", "value", "effect"].into_iter().all(|field| text(a, field) == text(b, field))
    };
    let after = items(new, "spec.tolerations");
    if items(old, "spec.tolerations").iter().any(|before| !after.iter().any(|one| same(one, before))) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        faults.forbidden(&SPEC.field("tolerations"), detail);
    }
}

fn removed_gates(faults: &mut Faults, new: &Value, old: &Value) {
    let path = SPEC.field("schedulingGates");
    for (index, gate) in items(new, "spec.schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        if !items(old, "spec.schedulingGates").iter().any(|before| text(before, "name") == name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            faults.forbidden(&path.index(index).field("name"), detail);
        }
    }
}

pub(super) fn status_update(faults: &mut Faults, new: &Value, old: &Value) {
    let (after, before) = (text(new, "status.nominatedNodeName"), text(old, "status.nominatedNodeName"));
    if after != before && !after.is_empty() {
        let path = STATUS.field("nominatedNodeName");
        for why in names::subdomain(after) {
            faults.invalid(&path, after, why);
        }
        if !text(old, "spec.nodeName").is_empty() {
            faults.forbidden(&path, "may not be set on pods that are already bound to a node");
        }
    }
    faults.immutable(&STATUS.field("qosClass"), at(new, "status.qosClass"), at(old, "status.qosClass"));
    if matches!(text(new, "spec.restartPolicy"), "Always") {
        return;
    }
    let path = STATUS.field("containerStatuses");
    for before in items(old, "status.containerStatuses") {
        let name = text(before, "name");
        let may_restart = text(new, "spec.restartPolicy") == "OnFailure"
            && int(before, "state.terminated.exitCode").is_some_and(|code| code != 0);
        if !has(before, "state.terminated") || may_restart {
            continue;
        }
        for (index, status) in items(new, "status.containerStatuses").iter().enumerate() {
            if text(status, "name") == name && !has(status, "state.terminated") {
                let detail = "may not be transitioned to non-terminated state";
                faults.forbidden(&path.index(index).field("state"), detail);
            }
        }
    }
}
