//! CustomResourceDefinitions at work: what they define is served as soon as they are stored, and no longer than they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::clock;
use crate::custom;
use crate::drive::Controller;
use crate::hands::Hands;
use crate::kind::Resource;
use crate::rest::Write;
use crate::state::{State, meta, set_meta};
use crate::store::{Change, ChangeKind, ResourceId, Stored};

/// Keeps a definition until its objects are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

fn definitions() -> ResourceId {
    ResourceId::new("apiextensions.k8s.io", "customresourcedefinitions")
}

impl State {
    /// Serves what a definition defines, and says so in its status. `before` is what it was.
    pub(crate) fn serve_definition(&mut self, stored: &Arc<Stored>, before: Option<&Stored>) {
        let mut crd = stored.value();
        let id = resource_of(&crd);
        let taken = self.taken_names(&id.group, &stored.key.name);
        let verdict = judge_names(&crd["spec"]["names"], &taken);
        let is_served = verdict.conflict.is_none() || is_true(&crd, "Established");
        let served =
            self.catalog.of_plural(&id.group, &id.plural).filter(|resource| resource.custom.is_some()).cloned();
        let is_as_before = served.is_some() && before.is_some_and(|before| before.value()["spec"] == crd["spec"]);
        if !(is_served && is_as_before) {
            self.catalog.retain(|resource| !is_of(resource, &id));
        }
        if is_served && !is_as_before {
            let before = served.and_then(|resource| resource.versions.clone());
            if before.is_some() {
                self.store.end_watches(&id);
            }
            let defined = custom::define(&crd, self.converter.clone(), stored.revision, before.as_deref());
            for resource in defined.served {
                self.catalog.insert(resource);
            }
            if let Some(resource) = defined.unserved {
                self.catalog.insert_unserved(resource);
            }
        }
        if establish(&mut crd, &verdict, &clock::seconds(self.now())) {
            let fields = stored.fields.clone();
            self.store.put(&definitions(), stored.key.clone(), &mut crd, fields);
        }
    }

    /// What the other definitions of a group are called.
    fn taken_names(&self, group: &str, but: &str) -> Taken {
        let mut taken = Taken::default();
        for stored in self.store.list(&definitions(), "").filter(|stored| stored.key.name != but) {
            let crd = stored.value();
            if crd["spec"]["group"] != group {
                continue;
            }
            let names = &crd["status"]["acceptedNames"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            taken.resources.extend([text(&names["plural"]), text(&names["singular"])]);
            taken.resources.extend(names["shortNames"].as_array().into_iter().flatten().map(text));
            taken.kinds.extend([text(&names["kind"]), text(&names["listKind"])]);
        }
        taken
    }

    pub(crate) fn stop_serving(&mut self, last: &Stored) {
        let id = resource_of(&last.value());
        self.catalog.retain(|resource| !is_of(resource, &id));
        self.store.drop_resource(&id);
    }
}

fn resource_of(crd: &Value) -> ResourceId {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    ResourceId { group: text(&crd["spec"]["group"]), plural: text(&crd["spec"]["names"]["plural"]) }
}

fn is_of(resource: &Resource, id: &ResourceId) -> bool {
    resource.custom.is_some() && resource.group == id.group && resource.plural == id.plural
}

#[derive(Default)]
struct Taken {
    /// Plurals, singulars and short names.
    resources: BTreeSet<String>,
    /// Kinds and list kinds.
    kinds: BTreeSet<String>,
}

/// Which names a definition may have.
struct NameVerdict {
    accepted: Value,
    /// The last conflict found: a reason and a message.
    conflict: Option<(&'static str, String)>,
}

fn judge_names(names: &Value, taken: &Taken) -> NameVerdict {
    let mut verdict = NameVerdict { accepted: names.clone(), conflict: None };
    for (field, reason, set) in [
        ("plural", "PluralConflict", &taken.resources),
        ("singular", "SingularConflict", &taken.resources),
        ("shortNames", "ShortNamesConflict", &taken.resources),
        ("kind", "KindConflict", &taken.kinds),
        ("listKind", "ListKindConflict", &taken.kinds),
    ] {
        let said: Vec<&str> = match &names[field] {
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            value => value.as_str().into_iter().collect(),
        };
        if let Some(name) = said.iter().find(|name| !name.is_empty() && set.contains(**name)) {
            verdict.conflict = Some((reason, format!("\"{name}\" is already in use")));
            if let Some(accepted) = verdict.accepted.as_object_mut() {
                accepted.remove(field);
            }
        }
    }
    // Both are written, empty or not.
    if let Some(accepted) = verdict.accepted.as_object_mut() {
        for field in ["plural", "kind"] {
            accepted.entry(field).or_insert_with(|| "".into());
        }
    }
    verdict
}

fn is_true(crd: &Value, kind: &str) -> bool {
    crd["status"]["conditions"]
        .as_array()
        .is_some_and(|list| list.iter().any(|condition| condition["type"] == kind && condition["status"] == "True"))
}

/// Fills the status that the real server's controllers fill. Whether there was anything to fill.
fn establish(crd: &mut Value, verdict: &NameVerdict, now: &str) -> bool {
    let before = crd.clone();
    let is_deleting = crd["metadata"]["deletionTimestamp"].is_string();
    let finalizers = crd["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !is_deleting && !finalizers.iter().any(|name| name == CLEANUP) {
        let with_ours: Vec<Value> = finalizers.into_iter().chain([json!(CLEANUP)]).collect();
        set_meta(crd, "finalizers", with_ours);
    }
    let was_established = is_true(crd, "Established");
    let mut status = crd["status"].as_object().cloned().unwrap_or_default();
    status.insert("acceptedNames".to_owned(), verdict.accepted.clone());
    if let Some(map) = crd.as_object_mut() {
        map.insert("status".to_owned(), Value::Object(status));
    }
    let (names, established) = match &verdict.conflict {
        None => (
            ("True", "NoConflicts", "no conflicts found"),
            ("True", "InitialNamesAccepted", "the initial names have been accepted"),
        ),
        Some((reason, message)) if was_established => (
            ("False", *reason, message.as_str()),
            ("True", "InitialNamesAccepted", "the initial names have been accepted"),
        ),
        Some((reason, message)) => {
            (("False", *reason, message.as_str()), ("False", "NotAccepted", "not all names are accepted"))
        }
    };
    for (kind, (status, reason, message)) in [("NamesAccepted", names), ("Established", established)] {
        crate::rest::set_condition(
            crd,
            json!({ "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now }),
        );
    }
    if is_deleting {
        crate::rest::set_condition(
            crd,
            json!({
                "type": "Terminating", "status": "True", "reason": "InstanceDeletionInProgress",
                "message": "CustomResource deletion is in progress", "lastTransitionTime": now,
            }),
        );
    }
    *crd != before
}

/// Deletes the objects of definitions that go away, and lets those go when none is left.
#[derive(Debug, Default)]
pub struct Definitions {
    /// Definitions that are being deleted, by name: their resources.
    going: BTreeMap<String, ResourceId>,
    is_due: bool,
}

impl Controller for Definitions {
    fn name(&self) -> &'static str {
        "customresourcedefinition-finalizer"
    }

    fn observe(&mut self, change: &Change) {
        if change.resource == definitions() {
            let crd = change.object.value();
            let name = meta(&crd, "name").to_owned();
            if change.kind == ChangeKind::Deleted {
                self.going.remove(&name);
            } else if change.object.is_deleting {
                self.going.insert(name, resource_of(&crd));
                self.is_due = true;
            }
        } else if self.going.values().any(|id| *id == change.resource) {
            self.is_due = true;
        }
    }

    fn work(&mut self, hands: &mut Hands<'_>) -> Option<Timestamp> {
        if !std::mem::take(&mut self.is_due) {
            return None;
        }
        for (name, id) in &self.going {
            let state = hands.state();
            let Some(resource) = state.catalog.of_plural(&id.group, &id.plural).cloned() else { continue };
            let objects: Vec<Arc<Stored>> = state.store.list(id, "").cloned().collect();
            for object in objects.iter().filter(|object| !object.is_deleting) {
                // An object that refuses to go keeps its definition; the next change brings us back.
                let _ = resource.view(object).and_then(|object| state.delete_object(&resource, &object, &Value::Null));
            }
            if state.store.list(id, "").next().is_some() {
                continue;
            }
            let Some(crds) = state.catalog.of_plural("apiextensions.k8s.io", "customresourcedefinitions").cloned()
            else {
                continue;
            };
            if let Some(live) = state.find(&crds, "", name) {
                let mut crd = live.value();
                let left: Vec<Value> = crd["metadata"]["finalizers"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter(|finalizer| *finalizer != CLEANUP)
                    .cloned()
                    .collect();
                set_meta(&mut crd, "finalizers", left);
                let _ = state.update_object(&crds, &live, crd, &Write::by("kube-apiserver"));
            }
        }
        None
    }
}
