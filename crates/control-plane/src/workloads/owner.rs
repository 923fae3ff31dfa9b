//! What every controller of pods does with them: make them from a template, delete them, and claim those that are its own.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::json;

use super::facts::{PodFacts, uid_of};
use super::selector::Selector;
use crate::error::{ApiError, ApiResult};
use crate::hands::{Event, Hands, Kube};

/// An object that controls others, and the name under which its controller speaks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner<'a> {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) meta: &'a ObjectMeta,
    pub(crate) component: &'static str,
    /// What it puts on pods that it adopts, to see them end.
    pub(crate) finalizer: Option<&'static str>,
}

impl<'a> Owner<'a> {
    pub(crate) fn of<T: Kube>(object: &'a T, component: &'static str) -> Self {
        Self { api_version: T::API_VERSION, kind: T::KIND, meta: object.metadata(), component, finalizer: None }
    }

    pub(crate) fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.meta.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn uid(&self) -> &str {
        uid_of(self.meta)
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.meta.deletion_timestamp.is_some()
    }

    pub(crate) fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.api_version.to_owned(),
            kind: self.kind.to_owned(),
            name: self.name().to_owned(),
            uid: self.uid().to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    pub(crate) fn normal(&self, hands: &mut Hands<'_>, reason: &str, note: String) {
        self.tell(hands, "Normal", reason, note);
    }

    pub(crate) fn warn(&self, hands: &mut Hands<'_>, reason: &str, note: String) {
        self.tell(hands, "Warning", reason, note);
    }

    fn tell(&self, hands: &mut Hands<'_>, kind: &str, reason: &str, note: String) {
        let about = ObjectReference {
            api_version: Some(self.api_version.to_owned()),
            kind: Some(self.kind.to_owned()),
            namespace: self.meta.namespace.clone(),
            name: self.meta.name.clone(),
            uid: self.meta.uid.clone(),
            resource_version: self.meta.resource_version.clone(),
            field_path: None,
        };
        hands.event(Event { about, kind, reason, action: "", note, component: self.component });
    }

    /// A pod of this owner. Its name is the owner's, with the server's suffix.
    pub(crate) fn pod(&self, template: &PodTemplateSpec) -> Pod {
        let meta = template.metadata.clone().unwrap_or_default();
        // A prefix that leaves no room for the dash goes without.
        let dash = if self.name().len() < 253 { "-" } else { "" };
        Pod {
            metadata: ObjectMeta {
                generate_name: Some(format!("{}{dash}", self.name())),
                namespace: self.meta.namespace.clone(),
                labels: meta.labels,
                annotations: meta.annotations,
                finalizers: meta.finalizers,
                owner_references: Some(vec![self.reference()]),
                ..ObjectMeta::default()
            },
            spec: template.spec.clone(),
            status: None,
        }
    }

    /// Creates a pod and tells how it went. Nothing is told of a namespace that is going away: nothing can be created there.
    pub(crate) fn create_pod(&self, hands: &mut Hands<'_>, pod: &Pod) -> ApiResult<Pod> {
        match hands.create(pod) {
            Ok(created) => {
                let name = created.metadata.name.clone().unwrap_or_default();
                self.normal(hands, "SuccessfulCreate", format!("Created pod: {name}"));
                Ok(created)
            }
            Err(error) => {
                if !is_namespace_going(&error) {
                    self.warn(hands, "FailedCreate", format!("Error creating: {}", error.message));
                }
                Err(error)
            }
        }
    }

    /// Deletes a pod and tells how it went. A pod that is gone already is fine.
    pub(crate) fn delete_pod(&self, hands: &mut Hands<'_>, pod: &PodFacts) -> ApiResult<()> {
        match hands.delete::<Pod>(&pod.key.namespace, &pod.key.name, &json!({})) {
            Ok(()) => {
                self.normal(hands, "SuccessfulDelete", format!("Deleted pod: {}", pod.key.name));
                Ok(())
            }
            Err(error) if error.code == 404 => Ok(()),
            Err(error) => {
                self.warn(hands, "FailedDelete", format!("Error deleting: {}", error.message));
                Err(ApiError { message: format!("unable to delete pods: {}", error.message), ..error })
            }
        }
    }

    /// Adopts and releases what has to be, and returns the pods that are this owner's.
    pub(crate) fn claim(
        &self,
        hands: &mut Hands<'_>,
        selector: &Selector,
        pods: Vec<Arc<PodFacts>>,
    ) -> ApiResult<Vec<Arc<PodFacts>>> {
        let mut mine = Vec::with_capacity(pods.len());
        for pod in pods {
            match claim_on(self.uid(), self.is_deleting(), selector, &pod) {
                Claim::Keep => mine.push(pod),
                Claim::Leave => {}
                Claim::Release => {
                    let released =
                        self.rewrite(hands, &pod, |owners| owners.retain(|owner| owner.uid != self.uid()), false);
                    gone_is_fine(released)?;
                }
                Claim::Adopt => {
                    let adopted = self.rewrite(hands, &pod, |owners| owners.push(self.reference()), true);
                    if gone_is_fine(adopted)?.is_some() {
                        mine.push(pod);
                    }
                }
            }
        }
        Ok(mine)
    }

    fn rewrite(
        &self,
        hands: &mut Hands<'_>,
        pod: &PodFacts,
        change: impl FnOnce(&mut Vec<OwnerReference>),
        takes_finalizer: bool,
    ) -> ApiResult<Pod> {
        let mut owners = pod.stored.read::<Pod>().and_then(|pod| pod.metadata.owner_references).unwrap_or_default();
        change(&mut owners);
        // With the uid, so that a new pod of the same name is not taken for this one.
        let mut meta = serde_json::Map::from_iter([
            ("uid".to_owned(), json!(pod.uid())),
            ("ownerReferences".to_owned(), json!(owners)),
        ]);
        if let Some(finalizer) = self.finalizer {
            let mut finalizers = pod.finalizers.to_vec();
            finalizers.retain(|known| known != finalizer);
            if takes_finalizer {
                finalizers.push(finalizer.to_owned());
            }
            meta.insert("finalizers".to_owned(), json!(finalizers));
        }
        hands.merge_patch::<Pod>(&pod.key.namespace, &pod.key.name, None, &json!({ "metadata": meta }))
    }
}

/// What an owner should do about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Keep,
    Adopt,
    Release,
    Leave,
}

pub(crate) fn claim_on(uid: &str, owner_is_deleting: bool, selector: &Selector, pod: &PodFacts) -> Claim {
    let matches = !selector.is_empty() && selector.matches(&pod.labels);
    match (&pod.owner, matches) {
        (Some(owner), true) if owner.uid == uid => Claim::Keep,
        (Some(owner), false) if owner.uid == uid && !owner_is_deleting => Claim::Release,
        (None, true) if !owner_is_deleting && pod.deleted.is_none() => Claim::Adopt,
        _ => Claim::Leave,
    }
}

/// Turns "it is gone, or replaced" into None.
pub(crate) fn gone_is_fine<T>(result: ApiResult<T>) -> ApiResult<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.code == 404 || error.code == 422 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a creation failed because the namespace is being deleted.
pub(crate) fn is_namespace_going(error: &ApiError) -> bool {
    error.details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// Whether `meta` says that the object with `uid` controls it.
pub(crate) fn is_controlled_by(meta: &ObjectMeta, uid: &str) -> bool {
    super::facts::controller_of(meta).is_some_and(|owner| owner.uid == uid)
}

#[cfg(test)]
mod tests {
    use super::super::facts::testing::pod;
    use super::*;

    #[test]
    fn an_owner_keeps_adopts_and_releases_by_selector() {
        let selector =
            Selector::of_labels(&super::super::selector::Labels::from([("app".to_owned(), "web".to_owned())]));
        for (words, deleting, expected) in [
            ("a owner=me label:app=web", false, Claim::Keep),
            ("a owner=me label:app=web", true, Claim::Keep),
            ("a owner=me label:app=other", false, Claim::Release),
            ("a owner=me label:app=other", true, Claim::Leave),
            ("a owner=you label:app=web", false, Claim::Leave),
            ("a label:app=web", false, Claim::Adopt),
            ("a label:app=web", true, Claim::Leave),
            ("a label:app=web deleted", false, Claim::Leave),
            ("a label:app=other", false, Claim::Leave),
        ] {
            assert_eq!(claim_on("me", deleting, &selector, &pod(words)), expected, "{words} {deleting}");
        }
        assert_eq!(claim_on("me", false, &Selector::default(), &pod("a label:app=web")), Claim::Leave);
    }
}
