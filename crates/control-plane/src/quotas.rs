//! Resource quotas tell in their status what is used.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use crate::admit::quota;
use crate::drive::Controller;
use crate::hands::Hands;
use crate::kind::{Resource, Subresource};
use crate::rest::Write;
use crate::store::{Change, ChangeKind, Key, ResourceId};

/// Counts anew whenever something changes in a namespace that has a quota.
#[derive(Debug, Default)]
pub struct Quotas {
    present: BTreeSet<Key>,
    due: BTreeSet<Key>,
}

impl Controller for Quotas {
    fn name(&self) -> &'static str {
        "resourcequota-controller"
    }

    fn observe(&mut self, change: &Change) {
        let key = &change.object.key;
        if change.resource == ResourceId::new("", "resourcequotas") {
            if change.kind == ChangeKind::Deleted {
                self.present.remove(key);
            } else {
                self.present.insert(key.clone());
            }
        }
        if !self.present.is_empty() {
            let here = self.present.iter().filter(|quota| quota.namespace == key.namespace);
            self.due.extend(here.cloned());
        }
    }

    fn work(&mut self, hands: &mut Hands<'_>) -> Option<Timestamp> {
        for key in std::mem::take(&mut self.due) {
            let state = hands.state();
            let Some(quotas) = state.catalog.get("", "v1", "resourcequotas").cloned() else { continue };
            let Some(live) = state.find(&quotas, &key.namespace, &key.name) else { continue };
            let resources: Vec<Arc<Resource>> =
                state.catalog.kept().filter(|resource| resource.namespaced).cloned().collect();
            let mut object = live.value();
            let used = quota::used(state, &resources, &object, &key.namespace);
            let status = json!({ "hard": object["spec"]["hard"], "used": used });
            if object["status"] == status {
                continue;
            }
            if let Some(map) = object.as_object_mut() {
                map.insert("status".to_owned(), status);
            }
            let write = Write::by("kube-controller-manager").on(Some(Subresource::Status));
            // Whoever wrote meanwhile has made a change that brings us back.
            let _ = state.update_object(&quotas, &live, object, &write);
        }
        None
    }
}
