//! Defaults: what the server writes into fields that a client left out, so that a read shows the whole object.
//!
//! Fields that the real server always shows, set or not (`status.replicas`, `resources`), count as defaults here.

mod pod;

use serde_json::{Map, Value, json};

use super::quantity::Quantity;
use super::tree::{copy_key, fill, fill_count, fill_map, fill_text, has, items_mut, map_mut, open, text, value_mut};
use crate::kind::Resource;

pub(crate) use pod::{DEFAULT_GRACE_SECONDS, aggregate};

pub(crate) fn default(resource: &Resource, object: &mut Value) {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => pod::pod(object),
        ("", "PodTemplate") => pod::template(object, "template"),
        ("", "ReplicationController") => replication_controller(object),
        ("", "Service") => service(object),
        ("", "Namespace") => namespace(object),
        ("", "Node") => node(object),
        ("", "PersistentVolume") => persistent_volume(object),
        ("", "PersistentVolumeClaim") => claim(object),
        ("", "Secret") => secret(object),
        ("", "LimitRange") => limit_range(object),
        ("", "ResourceQuota") => resource_quota(object),
        ("", "Endpoints") => endpoints(object),
        ("" | "events.k8s.io", "Event") => event(object, resource.group.is_empty()),
        ("apps", "Deployment") => deployment(object),
        ("apps", "ReplicaSet") => replica_set(object),
        ("apps", "StatefulSet") => stateful_set(object),
        ("apps", "DaemonSet") => daemon_set(object),
        ("apps", "ControllerRevision") => fill(open(object, ""), "revision", 0),
        ("batch", "Job") => job(object),
        ("batch", "CronJob") => cron_job(object),
        ("coordination.k8s.io", "Lease") => fill_map(open(object, ""), "spec"),
        ("policy", "PodDisruptionBudget") => disruption_budget(object),
        ("scheduling.k8s.io", "PriorityClass") => {
            let class = open(object, "");
            fill(class, "preemptionPolicy", "PreemptLowerPriority");
            fill(class, "value", 0);
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => binding(object),
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => rules(object),
        ("storage.k8s.io", "StorageClass") => {
            let class = open(object, "");
            fill(class, "reclaimPolicy", "Delete");
            fill(class, "volumeBindingMode", "Immediate");
        }
        ("storage.k8s.io", "CSIDriver") => csi_driver(object),
        ("storage.k8s.io", "CSINode") => {
            let spec = open(object, "spec");
            if spec.get("drivers").is_none_or(|drivers| drivers.as_array().is_none_or(Vec::is_empty)) {
                spec.insert("drivers".to_owned(), Value::Null);
            }
        }
        ("storage.k8s.io", "VolumeAttachment") => fill(open(object, "status"), "attached", false),
        ("storage.k8s.io", "CSIStorageCapacity") => {}
        ("resource.k8s.io", kind) => device(kind, object),
        ("admissionregistration.k8s.io", kind) => webhook(kind, object),
        _ => {}
    }
}

/// A resource list: finer than a thousandth rounds up.
pub(crate) fn resource_list(list: Option<&mut Value>) {
    let Some(list) = list.and_then(Value::as_object_mut) else { return };
    for amount in list.values_mut() {
        let is_fine = amount.as_str().is_some_and(|text| text.ends_with(['n', 'u']));
        if let Some(quantity) = Quantity::of(amount).filter(|_| is_fine) {
            *amount = Value::from(quantity.round_up_to_milli().to_string());
        }
    }
}

fn replication_controller(object: &mut Value) {
    pod::template(object, "spec.template");
    let labels = super::tree::at(object, "spec.template.metadata.labels").clone();
    if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
        fill_empty(open(object, "spec"), "selector", &labels);
        fill_empty(open(object, "metadata"), "labels", &labels);
    }
    let spec = open(object, "spec");
    fill(spec, "replicas", 1);
    fill(open(object, "status"), "replicas", 0);
}

fn fill_empty(map: &mut Map<String, Value>, key: &str, value: &Value) {
    if map.get(key).is_none_or(|found| found.as_object().is_none_or(Map::is_empty)) {
        map.insert(key.to_owned(), value.clone());
    }
}

fn deployment(object: &mut Value) {
    pod::template(object, "spec.template");
    let spec = open(object, "spec");
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    fill(spec, "progressDeadlineSeconds", 600);
    let strategy = open(object, "spec.strategy");
    fill_text(strategy, "type", "RollingUpdate");
    if text(object, "spec.strategy.type") == "RollingUpdate" {
        let rolling = open(object, "spec.strategy.rollingUpdate");
        fill(rolling, "maxUnavailable", "25%");
        fill(rolling, "maxSurge", "25%");
    }
    open(object, "status");
}

fn replica_set(object: &mut Value) {
    if has(object, "spec.template") {
        pod::template(object, "spec.template");
    }
    fill(open(object, "spec"), "replicas", 1);
    fill(open(object, "status"), "replicas", 0);
}

fn stateful_set(object: &mut Value) {
    pod::template(object, "spec.template");
    for template in items_mut(object, "spec.volumeClaimTemplates") {
        let map = open(template, "");
        map.insert("apiVersion".to_owned(), Value::from("v1"));
        map.insert("kind".to_owned(), Value::from("PersistentVolumeClaim"));
        fill_map(map, "metadata");
        claim(template);
    }
    let spec = open(object, "spec");
    fill_text(spec, "podManagementPolicy", "OrderedReady");
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    fill(spec, "serviceName", "");
    let retention = open(object, "spec.persistentVolumeClaimRetentionPolicy");
    fill_text(retention, "whenDeleted", "Retain");
    fill_text(retention, "whenScaled", "Retain");
    let strategy = open(object, "spec.updateStrategy");
    if strategy.get("type").and_then(Value::as_str).unwrap_or_default().is_empty() {
        strategy.insert("type".to_owned(), Value::from("RollingUpdate"));
        fill_map(strategy, "rollingUpdate");
    }
    if text(object, "spec.updateStrategy.type") == "RollingUpdate"
        && let Some(rolling) = map_mut(object, "spec.updateStrategy.rollingUpdate")
    {
        fill(rolling, "partition", 0);
    }
    let status = open(object, "status");
    fill(status, "replicas", 0);
    fill(status, "availableReplicas", 0);
}

fn daemon_set(object: &mut Value) {
    pod::template(object, "spec.template");
    fill(open(object, "spec"), "revisionHistoryLimit", 10);
    fill_text(open(object, "spec.updateStrategy"), "type", "RollingUpdate");
    if text(object, "spec.updateStrategy.type") == "RollingUpdate" {
        let rolling = open(object, "spec.updateStrategy.rollingUpdate");
        fill(rolling, "maxUnavailable", 1);
        fill(rolling, "maxSurge", 0);
    }
    let status = open(object, "status");
    for count in ["currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"] {
        fill(status, count, 0);
    }
}

/// The labels that a job takes over from its template are copied by the strategy, after the generated ones are in.
fn job(object: &mut Value) {
    pod::template(object, "spec.template");
    let has_failure_policy = has(object, "spec.podFailurePolicy");
    let is_per_index = has(object, "spec.backoffLimitPerIndex");
    let spec = open(object, "spec");
    if spec.get("parallelism").is_none_or(Value::is_null) {
        fill(spec, "completions", 1);
        fill(spec, "parallelism", 1);
    }
    fill(spec, "backoffLimit", if is_per_index { i32::MAX } else { 6 });
    fill(spec, "completionMode", "NonIndexed");
    fill(spec, "suspend", false);
    fill(spec, "podReplacementPolicy", if has_failure_policy { "Failed" } else { "TerminatingOrFailed" });
    fill(spec, "manualSelector", false);
    failure_policy(object, "spec.podFailurePolicy.rules");
    open(object, "status");
}

fn failure_policy(object: &mut Value, path: &str) {
    for rule in items_mut(object, path) {
        for pattern in items_mut(rule, "onPodConditions") {
            fill_text(open(pattern, ""), "status", "True");
        }
    }
}

fn cron_job(object: &mut Value) {
    pod::template(object, "spec.jobTemplate.spec.template");
    failure_policy(object, "spec.jobTemplate.spec.podFailurePolicy.rules");
    open(object, "spec.jobTemplate.metadata");
    let spec = open(object, "spec");
    fill_text(spec, "concurrencyPolicy", "Allow");
    fill(spec, "suspend", false);
    fill(spec, "successfulJobsHistoryLimit", 3);
    fill(spec, "failedJobsHistoryLimit", 1);
    open(object, "status");
}

fn service(object: &mut Value) {
    let spec = open(object, "spec");
    fill_text(spec, "sessionAffinity", "None");
    fill_text(spec, "type", "ClusterIP");
    let affinity = text(object, "spec.sessionAffinity").to_owned();
    let kind = text(object, "spec.type").to_owned();
    if affinity == "None" {
        open(object, "spec").remove("sessionAffinityConfig");
    } else if affinity == "ClientIP" && !has(object, "spec.sessionAffinityConfig.clientIP.timeoutSeconds") {
        let config = json!({ "clientIP": { "timeoutSeconds": 10_800 } });
        open(object, "spec").insert("sessionAffinityConfig".to_owned(), config);
    }
    for port in items_mut(object, "spec.ports") {
        let number = super::tree::at(port, "port").clone();
        let port = open(port, "");
        fill_text(port, "protocol", "TCP");
        let is_open = port
            .get("targetPort")
            .is_none_or(|target| target.is_null() || target.as_i64() == Some(0) || target.as_str() == Some(""));
        if is_open && !number.is_null() {
            port.insert("targetPort".to_owned(), number);
        }
    }
    let is_external = matches!(kind.as_str(), "LoadBalancer" | "NodePort")
        || kind == "ClusterIP" && !super::tree::items(object, "spec.externalIPs").is_empty();
    let spec = open(object, "spec");
    if is_external {
        fill_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind == "ExternalName" {
        spec.remove("internalTrafficPolicy");
    } else {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", true);
        for ingress in items_mut(object, "status.loadBalancer.ingress") {
            if !text(ingress, "ip").is_empty() {
                fill(open(ingress, ""), "ipMode", "VIP");
            }
        }
    }
    open(object, "status.loadBalancer");
}

fn namespace(object: &mut Value) {
    let name = text(object, "metadata.name").to_owned();
    if !name.is_empty() {
        open(object, "metadata.labels").insert("kubernetes.io/metadata.name".to_owned(), Value::from(name));
    }
    open(object, "spec");
    fill_text(open(object, "status"), "phase", "Active");
}

fn node(object: &mut Value) {
    open(object, "spec");
    resource_list(value_mut(object, "status.capacity"));
    resource_list(value_mut(object, "status.allocatable"));
    if has(object, "status.capacity") && !has(object, "status.allocatable") {
        let capacity = super::tree::at(object, "status.capacity").clone();
        open(object, "status").insert("allocatable".to_owned(), capacity);
    }
    fill(open(object, "status.daemonEndpoints.kubeletEndpoint"), "Port", 0);
    let info = open(object, "status.nodeInfo");
    for key in [
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ] {
        fill(info, key, "");
    }
    for condition in items_mut(object, "status.conditions") {
        let condition = open(condition, "");
        fill(condition, "lastHeartbeatTime", Value::Null);
        fill(condition, "lastTransitionTime", Value::Null);
    }
}

fn persistent_volume(object: &mut Value) {
    resource_list(value_mut(object, "spec.capacity"));
    let spec = open(object, "spec");
    fill_text(spec, "persistentVolumeReclaimPolicy", "Retain");
    fill(spec, "volumeMode", "Filesystem");
    if let Some(path) = map_mut(object, "spec.hostPath") {
        fill(path, "type", "");
    }
    fill_text(open(object, "status"), "phase", "Pending");
}

/// A claim, or the template of one.
fn claim(object: &mut Value) {
    claim_spec(object);
    resource_list(value_mut(object, "status.capacity"));
    fill_text(open(object, "status"), "phase", "Pending");
}

fn claim_spec(object: &mut Value) {
    open(object, "spec.resources");
    for list in ["spec.resources.requests", "spec.resources.limits"] {
        resource_list(value_mut(object, list));
    }
    fill(open(object, "spec"), "volumeMode", "Filesystem");
}

fn secret(object: &mut Value) {
    use base64::Engine as _;

    fill_text(open(object, ""), "type", "Opaque");
    // Plain text is for writing only: it becomes data, and wins.
    if let Some(Value::Object(plain)) = open(object, "").remove("stringData") {
        let data = open(object, "data");
        for (key, value) in plain {
            let encoded = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
            data.insert(key, Value::from(encoded));
        }
    }
}

fn limit_range(object: &mut Value) {
    open(object, "spec");
    for limit in items_mut(object, "spec.limits") {
        for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            resource_list(value_mut(limit, list));
        }
        if text(limit, "type") != "Container" {
            continue;
        }
        merge_absent(limit, "max", "default");
        merge_absent(limit, "default", "defaultRequest");
        merge_absent(limit, "min", "defaultRequest");
    }
}

fn merge_absent(object: &mut Value, from: &str, to: &str) {
    let Some(given) = object.get(from).and_then(Value::as_object).filter(|given| !given.is_empty()).cloned() else {
        return;
    };
    let target = open(object, to);
    for (key, value) in given {
        fill(target, &key, value);
    }
}

fn resource_quota(object: &mut Value) {
    open(object, "spec");
    resource_list(value_mut(object, "spec.hard"));
    resource_list(value_mut(object, "status.hard"));
    resource_list(value_mut(object, "status.used"));
    open(object, "status");
}

fn endpoints(object: &mut Value) {
    for subset in items_mut(object, "subsets") {
        for port in items_mut(subset, "ports") {
            fill_text(open(port, ""), "protocol", "TCP");
        }
    }
}

fn event(object: &mut Value, is_core: bool) {
    let map = open(object, "");
    fill(map, "eventTime", Value::Null);
    if is_core {
        fill_map(map, "involvedObject");
        fill_map(map, "source");
        fill(map, "firstTimestamp", Value::Null);
        fill(map, "lastTimestamp", Value::Null);
        fill(map, "reportingComponent", "");
        fill(map, "reportingInstance", "");
    } else {
        fill_map(map, "regarding");
        fill_map(map, "deprecatedSource");
        fill(map, "deprecatedFirstTimestamp", Value::Null);
        fill(map, "deprecatedLastTimestamp", Value::Null);
    }
}

fn disruption_budget(object: &mut Value) {
    open(object, "spec");
    let status = open(object, "status");
    for count in ["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"] {
        fill(status, count, 0);
    }
}

fn binding(object: &mut Value) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    fill_text(open(object, "roleRef"), "apiGroup", GROUP);
    for subject in items_mut(object, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            fill_text(open(subject, ""), "apiGroup", GROUP);
        }
    }
}

fn rules(object: &mut Value) {
    let role = open(object, "");
    if role.get("rules").is_none_or(|rules| rules.as_array().is_none_or(Vec::is_empty)) {
        role.insert("rules".to_owned(), Value::Null);
    }
}

fn csi_driver(object: &mut Value) {
    let spec = open(object, "spec");
    fill(spec, "attachRequired", true);
    fill(spec, "podInfoOnMount", false);
    fill(spec, "storageCapacity", false);
    fill(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    if spec.get("volumeLifecycleModes").is_none_or(|modes| modes.as_array().is_none_or(Vec::is_empty)) {
        spec.insert("volumeLifecycleModes".to_owned(), json!(["Persistent"]));
    }
    fill(spec, "requiresRepublish", false);
    fill(spec, "seLinuxMount", false);
}

fn device(kind: &str, object: &mut Value) {
    match kind {
        "ResourceClaim" => {
            device_requests(object, "spec.devices.requests");
            open(object, "spec.devices");
            open(object, "status");
        }
        "ResourceClaimTemplate" => {
            device_requests(object, "spec.spec.devices.requests");
            open(object, "spec.spec.devices");
            open(object, "spec.metadata");
        }
        "DeviceClass" => {
            open(object, "spec");
        }
        _ => {}
    }
}

fn device_requests(object: &mut Value, path: &str) {
    for request in items_mut(object, path) {
        if let Some(exactly) = value_mut(request, "exactly") {
            device_count(exactly);
        }
        for alternative in items_mut(request, "firstAvailable") {
            device_count(alternative);
        }
    }
}

fn device_count(request: &mut Value) {
    let request = open(request, "");
    fill_text(request, "allocationMode", "ExactCount");
    if request.get("allocationMode").and_then(Value::as_str) == Some("ExactCount") {
        fill_count(request, "count", 1);
    }
}

fn webhook(kind: &str, object: &mut Value) {
    match kind {
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            for webhook in items_mut(object, "webhooks") {
                let hook = open(webhook, "");
                fill(hook, "failurePolicy", "Fail");
                match_resources(hook);
                fill(hook, "timeoutSeconds", 10);
                if kind == "MutatingWebhookConfiguration" {
                    fill(hook, "reinvocationPolicy", "Never");
                }
                fill_map(hook, "clientConfig");
                if let Some(service) = map_mut(webhook, "clientConfig.service") {
                    fill(service, "port", 443);
                }
                scopes(webhook, "rules");
            }
        }
        "ValidatingAdmissionPolicy" => {
            fill(open(object, "spec"), "failurePolicy", "Fail");
            if let Some(constraints) = value_mut(object, "spec.matchConstraints") {
                constraint(constraints);
            }
            open(object, "status");
        }
        "ValidatingAdmissionPolicyBinding" => {
            if let Some(resources) = value_mut(object, "spec.matchResources") {
                constraint(resources);
            }
        }
        _ => {}
    }
}

fn constraint(constraint: &mut Value) {
    match_resources(open(constraint, ""));
    scopes(constraint, "resourceRules");
    scopes(constraint, "excludeResourceRules");
}

fn match_resources(map: &mut Map<String, Value>) {
    fill(map, "matchPolicy", "Equivalent");
    fill_map(map, "namespaceSelector");
    fill_map(map, "objectSelector");
}

fn scopes(object: &mut Value, path: &str) {
    for rule in items_mut(object, path) {
        fill(open(rule, ""), "scope", "*");
    }
}

/// The deprecated `serviceAccount` always says what `serviceAccountName` says.
fn mirror_service_account(spec: &mut Value) {
    let name = [text(spec, "serviceAccountName"), text(spec, "serviceAccount")]
        .into_iter()
        .find(|name| !name.is_empty())
        .unwrap_or_default();
    if name.is_empty() {
        return;
    }
    let both = json!({ "serviceAccountName": name, "serviceAccount": name });
    let spec = open(spec, "");
    copy_key(spec, "serviceAccountName", &both);
    copy_key(spec, "serviceAccount", &both);
}
