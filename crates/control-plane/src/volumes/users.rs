//! Which pods use which claims, without parsing pods that use none.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;

use crate::kubelet::claims_of;
use crate::store::{Change, ChangeKind, Key, Stored};

/// A pod that uses claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) claims: Vec<Key>,
    /// Empty if not scheduled.
    pub(super) node: String,
    pub(super) is_finished: bool,
    /// Some of its claims are to be made for it.
    pub(super) has_ephemeral: bool,
}

#[derive(Debug, Default)]
pub(super) struct Users {
    pods: BTreeMap<Key, User>,
    by_claim: BTreeMap<Key, BTreeSet<Key>>,
}

impl Users {
    /// The claims that this change is about.
    pub(super) fn observe(&mut self, change: &Change) -> Vec<Key> {
        let key = &change.object.key;
        if change.kind == ChangeKind::Deleted {
            let Some(user) = self.pods.remove(key) else { return Vec::new() };
            for claim in &user.claims {
                if let Some(pods) = self.by_claim.get_mut(claim) {
                    pods.remove(key);
                    if pods.is_empty() {
                        self.by_claim.remove(claim);
                    }
                }
            }
            return user.claims;
        }
        let node = change.object.field("spec.nodeName").unwrap_or_default();
        let is_finished = matches!(change.object.field("status.phase"), Some("Failed" | "Succeeded"));
        // A pod's volumes never change.
        if let Some(user) = self.pods.get_mut(key) {
            if user.node == node && user.is_finished == is_finished {
                return Vec::new();
            }
            user.node = node.to_owned();
            user.is_finished = is_finished;
            return user.claims.clone();
        }
        if change.kind == ChangeKind::Modified || !mentions_claims(&change.object) {
            return Vec::new();
        }
        let Some(pod) = change.object.read::<Pod>() else { return Vec::new() };
        let in_namespace = |name: String| Key::new(&key.namespace, &name);
        let claims: Vec<Key> = claims_of(&pod).into_iter().map(in_namespace).collect();
        if claims.is_empty() {
            return claims;
        }
        for claim in &claims {
            self.by_claim.entry(claim.clone()).or_default().insert(key.clone());
        }
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
        let has_ephemeral = volumes.iter().any(|volume| volume.ephemeral.is_some());
        let user = User { claims: claims.clone(), node: node.to_owned(), is_finished, has_ephemeral };
        self.pods.insert(key.clone(), user);
        claims
    }

    pub(super) fn of(&self, claim: &Key) -> impl Iterator<Item = (&Key, &User)> {
        let pods = self.by_claim.get(claim).into_iter().flatten();
        pods.filter_map(|pod| self.pods.get(pod).map(|user| (pod, user)))
    }

    pub(super) fn get(&self, pod: &Key) -> Option<&User> {
        self.pods.get(pod)
    }
}

/// Most pods use no claim: looking for the two words is much quicker than parsing.
fn mentions_claims(pod: &Stored) -> bool {
    let json = pod.json();
    let text = std::str::from_utf8(&json).unwrap_or_default();
    text.contains("\"persistentVolumeClaim\"") || text.contains("\"ephemeral\"")
}
