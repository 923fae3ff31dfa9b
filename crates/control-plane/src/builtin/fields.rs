//! What field selectors may ask for.

use serde_json::Value;

use super::tree::{at, flag, int, text};
use crate::kind::Resource;

const POD: [&str; 8] = [
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
];

const CORE_EVENT: [&str; 11] = [
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

const EVENT: [&str; 10] = [
    "reason",
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reportingController",
    "type",
];

/// Beside `metadata.name` and `metadata.namespace`.
fn own_names(resource: &Resource) -> &'static [&'static str] {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => &POD,
        ("", "Node") => &["spec.unschedulable"],
        ("", "Namespace") => &["status.phase"],
        ("", "Secret") => &["type"],
        ("", "Service") => &["spec.clusterIP", "spec.type"],
        ("", "ReplicationController") | ("apps", "ReplicaSet") => &["status.replicas"],
        ("batch", "Job") => &["status.successful"],
        ("", "Event") => &CORE_EVENT,
        ("events.k8s.io", "Event") => &EVENT,
        ("resource.k8s.io", "ResourceSlice") => &["spec.driver", "spec.nodeName"],
        _ => &[],
    }
}

/// Every name that a field selector on this resource may have.
pub(crate) fn names(resource: &Resource) -> Vec<String> {
    let mut names = vec!["metadata.name".to_owned()];
    if resource.namespaced {
        names.push("metadata.namespace".to_owned());
    }
    names.extend(own_names(resource).iter().map(|&name| name.to_owned()));
    if resource.is("", "Pod") {
        names.push("status.podIPs".to_owned());
        // Asked for by very old clients; means the node.
        names.push("spec.host".to_owned());
    }
    names
}

/// Names and values, without those of the metadata.
pub(crate) fn values(resource: &Resource, object: &Value) -> Vec<(String, String)> {
    let kind = (resource.group.as_str(), resource.kind.as_str());
    own_names(resource).iter().map(|&name| (name.to_owned(), value(kind, object, name))).collect()
}

fn value(kind: (&str, &str), object: &Value, name: &str) -> String {
    match (kind, name) {
        (_, "spec.hostNetwork" | "spec.unschedulable") => flag(object, name).to_string(),
        (_, "status.replicas") => int(object, name).unwrap_or_default().to_string(),
        (_, "status.successful") => int(object, "status.succeeded").unwrap_or_default().to_string(),
        (("", "Event"), "source") => {
            let component = text(object, "source.component");
            if component.is_empty() { text(object, "reportingComponent") } else { component }.to_owned()
        }
        // The same events are kept for both groups, as the core group writes them.
        (("events.k8s.io", "Event"), name) => {
            let core = match name.split_once('.') {
                Some(("regarding", rest)) => format!("involvedObject.{rest}"),
                _ if name == "reportingController" => "reportingComponent".to_owned(),
                _ => name.to_owned(),
            };
            text(object, if at(object, name).is_null() { &core } else { name }).to_owned()
        }
        (_, "status.podIP") => {
            let listed = at(object, "status.podIPs").get(0).map(|entry| text(entry, "ip")).unwrap_or_default();
            if listed.is_empty() { text(object, name) } else { listed }.to_owned()
        }
        _ => text(object, name).to_owned(),
    }
}
