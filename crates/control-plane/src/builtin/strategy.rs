//! What a client may set: the status is the controllers', the rest is the client's, and a few fields are the server's.

use serde_json::{Map, Value, json};

use super::defaults::DEFAULT_GRACE_SECONDS;
use super::quantity::Quantity;
use super::tree::{
    at, copy_key, entries, fill, fill_map, fill_text, flag, has, int, items, items_mut, map_mut, open, text, value_mut,
};
use crate::kind::{Resource, Subresource};

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Whether objects of this kind have a `metadata.generation`.
pub(crate) fn has_generation(resource: &Resource) -> bool {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", kind) => matches!(kind, "Pod" | "PodTemplate" | "ReplicationController"),
        ("apps", kind) => kind != "ControllerRevision",
        ("batch" | "policy" | "scheduling.k8s.io" | "admissionregistration.k8s.io" | "apiextensions.k8s.io", _) => true,
        ("resource.k8s.io", kind) => matches!(kind, "DeviceClass" | "ResourceSlice"),
        _ => resource.custom.is_some(),
    }
}

pub(crate) fn bumps_generation(resource: &Resource, new: &Value, old: &Value) -> bool {
    let differs = |path: &str| at(new, path) != at(old, path);
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("apps", "Deployment") => differs("spec") || differs("metadata.annotations"),
        ("", "PodTemplate") => differs("template"),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            differs("webhooks")
        }
        ("scheduling.k8s.io", _) => false,
        ("storage.k8s.io", "CSIDriver") => differs("spec"),
        _ => has_generation(resource) && differs("spec"),
    }
}

pub(crate) fn prepare_create(resource: &Resource, object: &mut Value) {
    if has_generation(resource) {
        open(object, "metadata").insert("generation".to_owned(), Value::from(1));
    }
    let created = at(object, "metadata.creationTimestamp").clone();
    let status = match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => Some(pod_status(object, &created)),
        ("", "Namespace") => {
            namespace_finalizer(object);
            Some(json!({ "phase": "Active" }))
        }
        ("", "PersistentVolume") => Some(json!({ "phase": "Pending", "lastPhaseTransitionTime": created })),
        ("", "PersistentVolumeClaim") => {
            data_sources(object);
            Some(json!({ "phase": "Pending" }))
        }
        ("", "Service") => Some(json!({ "loadBalancer": {} })),
        ("", "ResourceQuota") => Some(json!({})),
        ("", "ReplicationController") | ("apps", "ReplicaSet") => Some(json!({ "replicas": 0 })),
        ("apps", "StatefulSet") => Some(json!({ "replicas": 0, "availableReplicas": 0 })),
        ("apps", "Deployment") | ("batch", "CronJob") | ("resource.k8s.io", "ResourceClaim") => Some(json!({})),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => Some(json!({})),
        ("apps", "DaemonSet") => {
            template_generation(object, 1);
            Some(json!({
                "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
            }))
        }
        ("batch", "Job") => {
            job_labels(object);
            Some(json!({}))
        }
        ("policy", "PodDisruptionBudget") => {
            Some(json!({ "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0 }))
        }
        ("storage.k8s.io", "VolumeAttachment") => Some(json!({ "attached": false })),
        ("coordination.k8s.io", "Lease") => {
            without_coordination(object);
            None
        }
        _ => None,
    };
    if let Some(status) = status {
        open(object, "").insert("status".to_owned(), status);
    }
    if resource.is("", "Pod") {
        merge_label_keys(object);
    }
}

pub(crate) fn prepare_update(resource: &Resource, subresource: Option<Subresource>, new: &mut Value, old: &Value) {
    match subresource {
        Some(Subresource::Status) => prepare_status(resource, new, old),
        Some(Subresource::Finalize) => copy_key(open(new, ""), "status", old),
        Some(Subresource::EphemeralContainers) => {
            let containers = at(new, "spec.ephemeralContainers").clone();
            keep_all_but_metadata(new, old);
            if !containers.is_null() {
                open(new, "spec").insert("ephemeralContainers".to_owned(), containers);
            }
        }
        Some(Subresource::Resize) => resize(new, old),
        _ => prepare_main(resource, new, old),
    }
}

fn prepare_main(resource: &Resource, new: &mut Value, old: &Value) {
    if resource.has(Subresource::Status) {
        copy_key(open(new, ""), "status", old);
    }
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Namespace") => copy_key(open(new, "spec"), "finalizers", at(old, "spec")),
        ("", "Secret") if text(new, "type").is_empty() => copy_key(open(new, ""), "type", old),
        ("", "Service") => keep_allocated(new, old),
        ("", "PersistentVolumeClaim") => data_sources(new),
        ("coordination.k8s.io", "Lease") => without_coordination(new),
        ("", "Pod") => {
            // Resolved on creation; a client that does not know them leaves them out.
            for key in ["priority", "preemptionPolicy"] {
                if let Some(value) = at(old, "spec").get(key) {
                    fill(open(new, "spec"), key, value.clone());
                }
            }
        }
        ("apps", "DaemonSet") => {
            let before = at(old, "metadata.annotations").get(TEMPLATE_GENERATION);
            let generation = before.and_then(Value::as_str).and_then(|text| text.parse::<i64>().ok()).unwrap_or(1);
            let is_changed = at(new, "spec.template") != at(old, "spec.template");
            template_generation(new, generation.saturating_add(i64::from(is_changed)));
        }
        ("batch", "Job")
            if items_are_empty(at(new, "metadata.labels"))
                && !items_are_empty(at(new, "spec.template.metadata.labels")) =>
        {
            let labels = at(new, "spec.template.metadata.labels").clone();
            open(new, "metadata").insert("labels".to_owned(), labels);
        }
        _ => {}
    }
}

/// Coordinated leader election is not switched on in a stock server, which drops its fields.
fn without_coordination(object: &mut Value) {
    let spec = open(object, "spec");
    spec.remove("strategy");
    spec.remove("preferredHolder");
}

fn items_are_empty(map: &Value) -> bool {
    map.as_object().is_none_or(Map::is_empty)
}

/// A write to the status changes nothing but the status and some of the metadata.
fn prepare_status(resource: &Resource, new: &mut Value, old: &Value) {
    for (key, value) in old.as_object().into_iter().flatten() {
        if !matches!(key.as_str(), "metadata" | "status") {
            open(new, "").insert(key.clone(), value.clone());
        }
    }
    let gone: Vec<String> = open(new, "")
        .keys()
        .filter(|key| !matches!(key.as_str(), "metadata" | "status" | "apiVersion" | "kind") && old.get(key).is_none())
        .cloned()
        .collect();
    for key in gone {
        open(new, "").remove(&key);
    }
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => {
            copy_key(open(new, "metadata"), "ownerReferences", at(old, "metadata"));
            if text(new, "status.qosClass").is_empty() {
                copy_key(open(new, "status"), "qosClass", at(old, "status"));
            }
        }
        ("apps", "Deployment") => copy_key(open(new, "metadata"), "labels", at(old, "metadata")),
        ("", "PersistentVolume")
            if text(new, "status.phase") == text(old, "status.phase")
                && !has(new, "status.lastPhaseTransitionTime") =>
        {
            copy_key(open(new, "status"), "lastPhaseTransitionTime", at(old, "status"));
        }
        ("apiextensions.k8s.io", _) => {
            for key in ["labels", "annotations", "finalizers", "ownerReferences"] {
                copy_key(open(new, "metadata"), key, at(old, "metadata"));
            }
        }
        _ if resource.custom.is_some() => {
            let version = at(new, "metadata.resourceVersion").clone();
            let managed = at(new, "metadata.managedFields").clone();
            let metadata = open(new, "metadata");
            *metadata = at(old, "metadata").as_object().cloned().unwrap_or_default();
            for (key, value) in [("resourceVersion", version), ("managedFields", managed)] {
                if value.is_null() {
                    metadata.remove(key);
                } else {
                    metadata.insert(key.to_owned(), value);
                }
            }
        }
        _ => {}
    }
}

/// Everything but the metadata as it was.
fn keep_all_but_metadata(new: &mut Value, old: &Value) {
    let metadata = at(new, "metadata").clone();
    *new = old.clone();
    let version = metadata.get("resourceVersion").cloned();
    if let Some(version) = version {
        open(new, "metadata").insert("resourceVersion".to_owned(), version);
    }
    if let Some(managed) = metadata.get("managedFields").cloned() {
        open(new, "metadata").insert("managedFields".to_owned(), managed);
    }
}

/// A resize changes the containers' resources and resize policies, and nothing else.
fn resize(new: &mut Value, old: &Value) {
    let asked = new.clone();
    keep_all_but_metadata(new, old);
    for list in ["spec.containers", "spec.initContainers"] {
        for container in items_mut(new, list) {
            let name = text(container, "name").to_owned();
            let Some(wanted) = items(&asked, list).iter().find(|other| text(other, "name") == name) else { continue };
            copy_key(open(container, ""), "resources", wanted);
            copy_key(open(container, ""), "resizePolicy", wanted);
        }
    }
    if has(&asked, "spec.resources") {
        copy_key(open(new, "spec"), "resources", at(&asked, "spec"));
    }
}

/// How long a pod has to leave. None for everything but pods.
pub(crate) fn grace_period(resource: &Resource, object: &Value, asked: Option<i64>) -> Option<i64> {
    if !resource.is("", "Pod") {
        return None;
    }
    let is_unplaced = text(object, "spec.nodeName").is_empty();
    let is_finished = matches!(text(object, "status.phase"), "Failed" | "Succeeded");
    if is_unplaced || is_finished {
        return Some(0);
    }
    let period = asked.or(int(object, "spec.terminationGracePeriodSeconds")).unwrap_or(DEFAULT_GRACE_SECONDS);
    Some(if period < 0 { 1 } else { period })
}

fn pod_status(pod: &Value, created: &Value) -> Value {
    let mut status = json!({ "phase": "Pending", "qosClass": quality_of_service(pod) });
    if !items(pod, "spec.schedulingGates").is_empty() {
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": null,
            "lastTransitionTime": created, "message": "Scheduling is blocked due to non-empty scheduling gates",
        });
        open(&mut status, "").insert("conditions".to_owned(), json!([condition]));
    }
    status
}

/// `Guaranteed` where every container limits cpu and memory to what it requests, `BestEffort` where none asks for any.
pub(crate) fn quality_of_service(pod: &Value) -> &'static str {
    let mut requests: Sums = [None, None];
    let mut limits: Sums = [None, None];
    let mut is_guaranteed = true;
    if has(pod, "spec.resources") {
        sum(&mut requests, at(pod, "spec.resources.requests"));
        let n_limited = sum(&mut limits, at(pod, "spec.resources.limits"));
        is_guaranteed = entries(pod, "spec.resources.limits").next().is_none() || n_limited == 2;
    } else {
        for container in items(pod, "spec.containers").iter().chain(items(pod, "spec.initContainers")) {
            sum(&mut requests, at(container, "resources.requests"));
            is_guaranteed &= sum(&mut limits, at(container, "resources.limits")) == 2;
        }
    }
    if requests == [None, None] && limits == [None, None] {
        "BestEffort"
    } else if is_guaranteed && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// Of cpu and memory.
type Sums = [Option<Quantity>; 2];

/// Adds what is positive, and counts it.
fn sum(sums: &mut Sums, list: &Value) -> usize {
    let mut n_found = 0;
    for (total, name) in sums.iter_mut().zip(["cpu", "memory"]) {
        if let Some(amount) = list.get(name).and_then(Quantity::of).filter(|amount| amount.is_positive()) {
            *total = Some(total.map_or(amount, |sum| sum.plus(amount)));
            n_found += 1;
        }
    }
    n_found
}

/// `matchLabelKeys` and `mismatchLabelKeys` become part of the selector, with the pod's own values.
fn merge_label_keys(pod: &mut Value) {
    if !has(pod, "spec.affinity") && !has(pod, "spec.topologySpreadConstraints") {
        return;
    }
    let labels = at(pod, "metadata.labels").clone();
    for constraint in items_mut(pod, "spec.topologySpreadConstraints") {
        merge_into_selector(constraint, &labels);
    }
    for side in ["spec.affinity.podAffinity", "spec.affinity.podAntiAffinity"] {
        let Some(side) = value_mut(pod, side) else { continue };
        for term in items_mut(side, "requiredDuringSchedulingIgnoredDuringExecution") {
            merge_into_selector(term, &labels);
        }
        for weighted in items_mut(side, "preferredDuringSchedulingIgnoredDuringExecution") {
            if let Some(term) = value_mut(weighted, "podAffinityTerm") {
                merge_into_selector(term, &labels);
            }
        }
    }
}

fn merge_into_selector(term: &mut Value, labels: &Value) {
    let mut added = Vec::new();
    for (list, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in items(term, list).iter().filter_map(Value::as_str) {
            let Some(value) = labels.get(key) else { continue };
            let requirement = json!({ "key": key, "operator": operator, "values": [value] });
            // An object that was prepared before has it already.
            if !items(term, "labelSelector.matchExpressions").contains(&requirement) {
                added.push(requirement);
            }
        }
    }
    if added.is_empty() {
        return;
    }
    let Some(selector) = map_mut(term, "labelSelector") else { return };
    match selector.get_mut("matchExpressions") {
        Some(Value::Array(expressions)) => expressions.extend(added),
        _ => {
            selector.insert("matchExpressions".to_owned(), Value::Array(added));
        }
    }
}

fn namespace_finalizer(object: &mut Value) {
    let spec = open(object, "spec");
    let finalizers = spec.entry("finalizers").or_insert(Value::Null);
    match finalizers.as_array_mut() {
        Some(list) if list.iter().any(|finalizer| finalizer == "kubernetes") => {}
        Some(list) => list.push(Value::from("kubernetes")),
        None => *finalizers = json!(["kubernetes"]),
    }
}

fn template_generation(object: &mut Value, generation: i64) {
    let value = Value::from(generation.to_string());
    open(object, "metadata.annotations").insert(TEMPLATE_GENERATION.to_owned(), value);
}

/// The two ways of saying from what a volume is filled say the same.
fn data_sources(object: &mut Value) {
    let source = at(object, "spec.dataSource").clone();
    let reference = at(object, "spec.dataSourceRef").clone();
    if !source.is_null() && reference.is_null() {
        let is_known = matches!(
            (text(&source, "apiGroup"), text(&source, "kind")),
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        );
        if is_known {
            open(object, "spec").insert("dataSourceRef".to_owned(), source);
        } else {
            open(object, "spec").remove("dataSource");
        }
    } else if source.is_null() && !reference.is_null() && text(&reference, "namespace").is_empty() {
        open(object, "spec").insert("dataSource".to_owned(), reference);
    }
}

/// A job's pods carry its name and uid, and its selector asks for the uid.
fn job_labels(object: &mut Value) {
    // A job without labels has its template's, with the generated ones.
    let takes_over = items_are_empty(at(object, "metadata.labels")) && has(object, "spec.template.metadata.labels");
    if !flag(object, "spec.manualSelector") {
        let name = text(object, "metadata.name").to_owned();
        let uid = text(object, "metadata.uid").to_owned();
        let labels = open(object, "spec.template.metadata.labels");
        for (key, value) in [
            ("job-name", &name),
            ("batch.kubernetes.io/job-name", &name),
            ("controller-uid", &uid),
            ("batch.kubernetes.io/controller-uid", &uid),
        ] {
            labels.entry(key).or_insert_with(|| Value::from(value.as_str()));
        }
        open(object, "spec.selector.matchLabels")
            .entry("batch.kubernetes.io/controller-uid")
            .or_insert_with(|| Value::from(uid));
    }
    if takes_over {
        let labels = at(object, "spec.template.metadata.labels").clone();
        open(object, "metadata").insert("labels".to_owned(), labels);
    }
}

/// Whether a service has an address of its own (`None` counts).
pub(crate) fn needs_address(service: &Value) -> bool {
    text(service, "spec.type") != "ExternalName"
}

pub(crate) fn needs_node_ports(service: &Value) -> bool {
    match text(service, "spec.type") {
        "NodePort" => true,
        "LoadBalancer" => at(service, "spec.allocateLoadBalancerNodePorts").as_bool() != Some(false),
        _ => false,
    }
}

/// What was given out to a service stays with it, and leaves with the type that needed it.
fn keep_allocated(new: &mut Value, old: &Value) {
    let before = at(old, "spec");
    if needs_address(old) && needs_address(new) {
        let spec = open(new, "spec");
        fill_text(spec, "clusterIP", text(before, "clusterIP"));
        for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if let Some(value) = before.get(key) {
                fill(spec, key, value.clone());
            }
        }
    } else if needs_address(old) {
        let spec = open(new, "spec");
        for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if spec.get(key) == before.get(key) {
                spec.remove(key);
            }
        }
    }
    if needs_node_ports(old) {
        let keeps = needs_node_ports(new);
        for port in items_mut(new, "spec.ports") {
            let name = text(port, "name").to_owned();
            let known = items(old, "spec.ports").iter().find(|other| text(other, "name") == name);
            let Some(given) = known.and_then(|known| known.get("nodePort")) else { continue };
            let port = open(port, "");
            if keeps {
                fill(port, "nodePort", given.clone());
            } else if port.get("nodePort") == Some(given) {
                port.remove("nodePort");
            }
        }
    }
    let kind = text(new, "spec.type").to_owned();
    let is_external =
        matches!(kind.as_str(), "LoadBalancer" | "NodePort") || !items(new, "spec.externalIPs").is_empty();
    let spec = open(new, "spec");
    for (key, is_kept) in [
        ("allocateLoadBalancerNodePorts", kind == "LoadBalancer"),
        ("loadBalancerClass", kind == "LoadBalancer"),
        ("externalTrafficPolicy", is_external),
    ] {
        if !is_kept && spec.get(key) == before.get(key) {
            spec.remove(key);
        }
    }
    if kind != "LoadBalancer" {
        let status = open(new, "status");
        status.remove("loadBalancer");
        fill_map(status, "loadBalancer");
    }
}
