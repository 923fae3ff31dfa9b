//! Namespaces: the four of the first day, and the emptying of those that go.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::clock;
use crate::drive::Controller;
use crate::hands::Hands;
use crate::kind::Resource;
use crate::rest::{Write, set_condition};
use crate::state::State;
use crate::store::{Change, ChangeKind, ResourceId, Stored};

/// Empties namespaces that are being deleted, and lets them go when they are empty.
#[derive(Debug, Default)]
pub struct Namespaces {
    going: BTreeSet<String>,
    due: BTreeSet<String>,
}

impl Controller for Namespaces {
    fn name(&self) -> &'static str {
        "namespace-controller"
    }

    fn observe(&mut self, change: &Change) {
        if change.resource == ResourceId::new("", "namespaces") {
            let name = &change.object.key.name;
            if change.kind == ChangeKind::Deleted {
                self.going.remove(name);
            } else if change.object.is_deleting {
                self.going.insert(name.clone());
                self.due.insert(name.clone());
            }
        } else if self.going.contains(&change.object.key.namespace) {
            self.due.insert(change.object.key.namespace.clone());
        }
    }

    fn work(&mut self, hands: &mut Hands<'_>) -> Option<Timestamp> {
        for name in std::mem::take(&mut self.due) {
            empty(hands.state(), &name);
        }
        None
    }
}

fn empty(state: &mut State, namespace: &str) {
    let resources: Vec<Arc<Resource>> = state
        .catalog
        .kept()
        .filter(|resource| {
            resource.namespaced && resource.stored_as.1 == resource.plural && resource.stored_as.0 == resource.group
        })
        .cloned()
        .collect();
    let mut left: Vec<(String, usize)> = Vec::new();
    let mut finalizers: Vec<(String, usize)> = Vec::new();
    for resource in resources {
        let objects: Vec<Arc<Stored>> = state.store.list(&resource.id(), namespace).cloned().collect();
        for object in objects.iter().filter(|object| !object.is_deleting) {
            // What cannot be read in the version that is written stays, and with it the namespace.
            let options = json!({ "propagationPolicy": "Background" });
            let _ = resource.view(object).and_then(|object| state.delete_object(&resource, &object, &options));
        }
        let staying: Vec<Arc<Stored>> = state.store.list(&resource.id(), namespace).cloned().collect();
        if staying.is_empty() {
            continue;
        }
        left.push((format!("{}.{}", resource.plural, resource.group), staying.len()));
        for finalizer in staying.iter().flat_map(|stored| finalizers_of(&stored.value())) {
            match finalizers.iter_mut().find(|(name, _)| *name == finalizer) {
                Some((_, count)) => *count += 1,
                None => finalizers.push((finalizer, 1)),
            }
        }
    }
    let Some(namespaces) = state.catalog.get("", "v1", "namespaces").cloned() else { return };
    let Some(live) = state.find(&namespaces, "", namespace) else { return };
    let mut object = live.value();
    if left.is_empty() {
        if let Some(finalizers) = object.pointer_mut("/spec/finalizers").and_then(Value::as_array_mut) {
            // Others' finalizers are theirs to remove.
            finalizers.retain(|name| name != "kubernetes");
        }
        let write = Write::by("kube-controller-manager").on(Some(crate::kind::Subresource::Finalize));
        let _ = state.update_object(&namespaces, &live, object, &write);
        return;
    }
    left.sort();
    finalizers.sort();
    let now = clock::seconds(state.now());
    for condition in conditions(&left, &finalizers, &now) {
        set_condition(&mut object, condition);
    }
    let write = Write::by("kube-controller-manager").on(Some(crate::kind::Subresource::Status));
    let _ = state.update_object(&namespaces, &live, object, &write);
}

fn finalizers_of(object: &Value) -> Vec<String> {
    let list = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn conditions(left: &[(String, usize)], finalizers: &[(String, usize)], now: &str) -> Vec<Value> {
    let counted = |entries: &[(String, usize)], what: &dyn Fn(&str, usize) -> String| {
        entries.iter().map(|(name, count)| what(name, *count)).collect::<Vec<_>>().join(", ")
    };
    let remaining = format!(
        "Some resources are remaining: {}",
        counted(left, &|name, count| format!("{name} has {count} resource instances"))
    );
    let held = format!(
        "Some content in the namespace has finalizers remaining: {}",
        counted(finalizers, &|name, count| format!("{name} in {count} resource instances"))
    );
    let row = |kind: &str, status: &str, reason: &str, message: &str| json!({ "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now });
    vec![
        row(
            "NamespaceDeletionDiscoveryFailure",
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        row(
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        row(
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        row("NamespaceContentRemaining", "True", "SomeResourcesRemain", &remaining),
        if finalizers.is_empty() {
            row(
                "NamespaceFinalizersRemaining",
                "False",
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            )
        } else {
            row("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", &held)
        },
    ]
}

/// What is there before the first request: namespaces, the two priority classes of the system, the `kubernetes` service.
pub(crate) fn boot(state: &mut State) {
    let write = Write::by("kube-apiserver");
    let mut make = |group: &str, plural: &str, namespace: &str, object: Value| {
        let resource = state.catalog.of_plural(group, plural).cloned().expect("built-in kinds are served");
        let kept = state.create_object(&resource, namespace, said(&resource, object), &write);
        kept.expect("what the server makes for itself is valid");
    };
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        make("", "namespaces", "", json!({ "metadata": { "name": name } }));
    }
    for (name, value, about) in [
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ] {
        make(
            "scheduling.k8s.io",
            "priorityclasses",
            "",
            json!({ "metadata": { "name": name }, "value": value, "description": about }),
        );
    }
    make(
        "",
        "services",
        "default",
        json!({
            "metadata": { "name": "kubernetes", "labels": { "component": "apiserver", "provider": "kubernetes" } },
            "spec": {
                "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
                "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": 443 }],
                "sessionAffinity": "None", "type": "ClusterIP",
            },
        }),
    );
}

fn said(resource: &Resource, mut object: Value) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.insert("kind".to_owned(), resource.kind.clone().into());
        map.insert("apiVersion".to_owned(), resource.api_version().into());
    }
    object
}
