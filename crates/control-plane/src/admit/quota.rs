//! Resource quotas: what a namespace may use. Usage is counted when it is asked for.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Look;
use crate::builtin::quality_of_service;
use crate::builtin::quantity::Quantity;
use crate::builtin::tree::{at, entries, has, items, text};
use crate::builtin::{aggregate_limits, aggregate_requests};
use crate::error::{ApiError, qualified};
use crate::kind::Resource;

type Usage = BTreeMap<String, Quantity>;

pub(super) fn create(
    look: &dyn Look,
    resource: &Resource,
    object: &Value,
    namespace: &str,
    name: &str,
) -> Result<(), ApiError> {
    if !resource.namespaced || resource.is("", "Event") || resource.is("events.k8s.io", "Event") {
        return Ok(());
    }
    let quotas = look.list("", "resourcequotas", namespace);
    if quotas.is_empty() {
        return Ok(());
    }
    let asked = usage(resource, object);
    for quota in quotas {
        let quota = quota.value();
        if !in_scope(resource, &quota, object) {
            continue;
        }
        judge(look, resource, object, &quota, &asked, namespace, name)?;
    }
    Ok(())
}

fn judge(
    look: &dyn Look,
    resource: &Resource,
    object: &Value,
    quota: &Value,
    asked: &Usage,
    namespace: &str,
    name: &str,
) -> Result<(), ApiError> {
    let refuse = |why: &str| Err(ApiError::forbidden(&resource.group, &resource.plural, name, why));
    let quota_name = text(quota, "metadata.name");
    if resource.is("", "Pod")
        && let Some(missing) = missing(object, quota)
    {
        return refuse(&format!("failed quota: {quota_name}: must specify {missing}"));
    }
    let hard: Usage = entries(quota, "spec.hard")
        .filter(|(key, _)| asked.get(*key).is_some_and(|amount| amount.is_positive()))
        .filter_map(|(key, amount)| Some((key.clone(), Quantity::of(amount)?)))
        .collect();
    if hard.is_empty() {
        return Ok(());
    }
    let mut used: Usage = hard.keys().map(|key| (key.clone(), Quantity::ZERO)).collect();
    for stored in look.list(&resource.stored_as.0, &resource.stored_as.1, namespace) {
        let other = stored.value();
        if !in_scope(resource, quota, &other) {
            continue;
        }
        for (key, amount) in usage(resource, &other) {
            if let Some(sum) = used.get_mut(&key) {
                *sum = sum.plus(amount);
            }
        }
    }
    let of = |usage: &Usage, key: &String| usage.get(key).copied().unwrap_or(Quantity::ZERO);
    let exceeded: Vec<&String> =
        hard.keys().filter(|key| of(&used, key).plus(of(asked, key)) > of(&hard, key)).collect();
    if exceeded.is_empty() {
        return Ok(());
    }
    let list =
        |usage: &Usage| exceeded.iter().map(|key| format!("{key}={}", of(usage, key))).collect::<Vec<_>>().join(",");
    let (requested, used, limited) = (list(asked), list(&used), list(&hard));
    refuse(&format!("exceeded quota: {quota_name}, requested: {requested}, used: {used}, limited: {limited}"))
}

/// What a namespace uses of what a quota counts.
pub(crate) fn used(look: &dyn Look, resources: &[std::sync::Arc<Resource>], quota: &Value, namespace: &str) -> Value {
    let mut used: Usage = entries(quota, "spec.hard").map(|(key, _)| (key.clone(), Quantity::ZERO)).collect();
    for resource in resources {
        for stored in look.list(&resource.stored_as.0, &resource.stored_as.1, namespace) {
            let object = stored.value();
            if !in_scope(resource, quota, &object) {
                continue;
            }
            for (key, amount) in usage(resource, &object) {
                if let Some(sum) = used.get_mut(&key) {
                    *sum = sum.plus(amount);
                }
            }
        }
    }
    used.into_iter().map(|(key, amount)| (key, Value::from(amount.to_string()))).collect()
}

/// What one object counts for.
fn usage(resource: &Resource, object: &Value) -> Usage {
    let mut usage = Usage::new();
    let one = Quantity::whole(1);
    let count = format!("count/{}", qualified(&resource.group, &resource.plural));
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => {
            usage.insert(count, one);
            // A pod that has ended is still an object, and uses nothing.
            if matches!(text(object, "status.phase"), "Failed" | "Succeeded") {
                return usage;
            }
            usage.insert("pods".to_owned(), one);
            for (prefix, amounts) in [("requests.", aggregate_requests(object)), ("limits.", aggregate_limits(object))]
            {
                for (name, amount) in amounts {
                    let is_compute = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage");
                    if prefix == "requests." && is_compute {
                        usage.insert(name.clone(), amount);
                    }
                    if prefix == "requests." || is_compute {
                        usage.insert(format!("{prefix}{name}"), amount);
                    }
                }
            }
        }
        ("", "Service") => {
            usage.insert(count, one);
            usage.insert("services".to_owned(), one);
            let n_ports = i64::try_from(items(object, "spec.ports").len()).unwrap_or_default();
            match text(object, "spec.type") {
                "NodePort" => {
                    usage.insert("services.nodeports".to_owned(), Quantity::whole(n_ports));
                }
                "LoadBalancer" => {
                    usage.insert("services.loadbalancers".to_owned(), one);
                    if at(object, "spec.allocateLoadBalancerNodePorts").as_bool() != Some(false) {
                        usage.insert("services.nodeports".to_owned(), Quantity::whole(n_ports));
                    }
                }
                _ => {}
            }
        }
        ("", "PersistentVolumeClaim") => {
            usage.insert(count, one);
            usage.insert("persistentvolumeclaims".to_owned(), one);
            let class = text(object, "spec.storageClassName");
            let suffix = format!("{class}.storageclass.storage.k8s.io/");
            if !class.is_empty() {
                usage.insert(format!("{suffix}persistentvolumeclaims"), one);
            }
            if let Some(size) = Quantity::of(at(object, "spec.resources.requests.storage")) {
                usage.insert("requests.storage".to_owned(), size);
                if !class.is_empty() {
                    usage.insert(format!("{suffix}requests.storage"), size);
                }
            }
        }
        ("", "ConfigMap" | "Secret" | "ReplicationController" | "ResourceQuota") => {
            usage.insert(count, one);
            usage.insert(resource.plural.clone(), one);
        }
        _ => {
            usage.insert(count, one);
        }
    }
    usage
}

/// A quota over requests or limits asks every container to say its own.
fn missing(pod: &Value, quota: &Value) -> Option<String> {
    let mut said: Vec<String> = Vec::new();
    for (key, _) in entries(quota, "spec.hard") {
        let (list, resource) = match key.split_once('.') {
            Some(("limits", resource)) => ("limits", resource),
            Some(("requests", resource)) => ("requests", resource),
            _ if matches!(key.as_str(), "cpu" | "memory" | "ephemeral-storage") => ("requests", key.as_str()),
            _ => continue,
        };
        if !matches!(resource, "cpu" | "memory" | "ephemeral-storage")
            || at(pod, &format!("spec.resources.{list}")).get(resource).is_some()
        {
            continue;
        }
        let silent: Vec<&str> = items(pod, "spec.initContainers")
            .iter()
            .chain(items(pod, "spec.containers"))
            .filter(|container| at(container, &format!("resources.{list}")).get(resource).is_none())
            .map(|container| text(container, "name"))
            .collect();
        if !silent.is_empty() {
            let mut silent = silent;
            silent.sort_unstable();
            said.push(format!("{key} for: {}", silent.join(",")));
        }
    }
    (!said.is_empty()).then(|| said.join("; "))
}

fn in_scope(resource: &Resource, quota: &Value, object: &Value) -> bool {
    let scopes = items(quota, "spec.scopes");
    let selectors = items(quota, "spec.scopeSelector.matchExpressions");
    if scopes.is_empty() && selectors.is_empty() {
        return true;
    }
    if !resource.is("", "Pod") {
        return false;
    }
    let plain = scopes.iter().filter_map(Value::as_str).all(|scope| has_scope(scope, object));
    let selected = selectors.iter().all(|selector| {
        let scope = text(selector, "scopeName");
        let values = items(selector, "values");
        let class = text(object, "spec.priorityClassName");
        match (scope, text(selector, "operator")) {
            ("PriorityClass", "In") => values.iter().any(|value| value == class),
            ("PriorityClass", "NotIn") => !values.iter().any(|value| value == class),
            (scope, "DoesNotExist") => !has_scope(scope, object),
            (scope, _) => has_scope(scope, object),
        }
    });
    plain && selected
}

fn has_scope(scope: &str, pod: &Value) -> bool {
    let is_best_effort = || quality_of_service(pod) == "BestEffort";
    match scope {
        "Terminating" => has(pod, "spec.activeDeadlineSeconds"),
        "NotTerminating" => !has(pod, "spec.activeDeadlineSeconds"),
        "BestEffort" => is_best_effort(),
        "NotBestEffort" => !is_best_effort(),
        "PriorityClass" => !text(pod, "spec.priorityClassName").is_empty(),
        _ => false,
    }
}
