//! The controllers' picture of the cluster, kept from the store's changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, ReplicationController};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde::de::DeserializeOwned;

use super::accounts::{CERTIFICATE_FIELD, DEFAULT_ACCOUNT, ROOT_CERTIFICATE};
use super::facts::{NodeFacts, PodFacts};
use super::selector::Labels;
use crate::nodes::KnownNode;
use crate::shared::Shared;
use crate::store::{Change, ChangeKind, Key};

pub(crate) type Shelf<T> = BTreeMap<Key, Arc<T>>;

#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) pods: Pods,
    pub(crate) nodes: BTreeMap<String, NodeFacts>,
    pub(crate) deployments: Shelf<Deployment>,
    pub(crate) replica_sets: Shelf<ReplicaSet>,
    pub(crate) replication_controllers: Shelf<ReplicationController>,
    pub(crate) stateful_sets: Shelf<StatefulSet>,
    pub(crate) daemon_sets: Shelf<DaemonSet>,
    pub(crate) revisions: Shelf<ControllerRevision>,
    pub(crate) jobs: Shelf<Job>,
    pub(crate) cron_jobs: Shelf<CronJob>,
    pub(crate) budgets: Shelf<PodDisruptionBudget>,
    pub(crate) claims: Shelf<PersistentVolumeClaim>,
    pub(crate) namespaces: Shelf<Namespace>,
    /// The namespaces that have their `default` service account.
    pub(crate) default_accounts: BTreeSet<String>,
    /// What each namespace's `kube-root-ca.crt` holds.
    pub(crate) root_certificates: BTreeMap<String, String>,
}

/// Pods, found by who controls them.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    by_key: Shelf<PodFacts>,
    by_owner: BTreeMap<String, BTreeSet<Key>>,
    /// Pods that nobody controls, by namespace.
    orphans: BTreeMap<String, BTreeSet<Key>>,
    /// Finished pods, of which only so many are kept.
    finished: BTreeSet<Key>,
    labels: Shared<Labels>,
}

impl World {
    /// Takes a change in. Pods and nodes go their own way: see `Pods::observe` and `observe_node`.
    pub(crate) fn observe(&mut self, change: &Change) {
        let resource = (change.resource.group.as_str(), change.resource.plural.as_str());
        match resource {
            ("apps", "deployments") => keep(&mut self.deployments, change),
            ("apps", "replicasets") => keep(&mut self.replica_sets, change),
            ("", "replicationcontrollers") => keep(&mut self.replication_controllers, change),
            ("apps", "statefulsets") => keep(&mut self.stateful_sets, change),
            ("apps", "daemonsets") => keep(&mut self.daemon_sets, change),
            ("apps", "controllerrevisions") => keep(&mut self.revisions, change),
            ("batch", "jobs") => keep(&mut self.jobs, change),
            ("batch", "cronjobs") => keep(&mut self.cron_jobs, change),
            ("policy", "poddisruptionbudgets") => keep(&mut self.budgets, change),
            ("", "persistentvolumeclaims") => keep(&mut self.claims, change),
            ("", "namespaces") => keep(&mut self.namespaces, change),
            ("", "serviceaccounts") if change.object.key.name == DEFAULT_ACCOUNT => {
                let namespace = change.object.key.namespace.clone();
                if change.kind == ChangeKind::Deleted {
                    self.default_accounts.remove(&namespace);
                } else {
                    self.default_accounts.insert(namespace);
                }
            }
            ("", "configmaps") if change.object.key.name == ROOT_CERTIFICATE => {
                let namespace = change.object.key.namespace.clone();
                if change.kind == ChangeKind::Deleted {
                    self.root_certificates.remove(&namespace);
                } else {
                    let data = change.object.read::<ConfigMap>().and_then(|map| map.data).unwrap_or_default();
                    self.root_certificates.insert(namespace, data.get(CERTIFICATE_FIELD).cloned().unwrap_or_default());
                }
            }
            _ => {}
        }
    }

    /// True when something about the node changed that daemons care about.
    pub(crate) fn observe_node(&mut self, change: &Change) -> bool {
        let name = &change.object.key.name;
        if change.kind == ChangeKind::Deleted {
            return self.nodes.remove(name).is_some();
        }
        let Some(node) = KnownNode::read(&change.object) else { return false };
        let facts = NodeFacts::of(&node);
        self.nodes.insert(name.clone(), facts.clone()) != Some(facts)
    }
}

fn keep<T: DeserializeOwned>(shelf: &mut Shelf<T>, change: &Change) {
    let key = &change.object.key;
    match change.kind {
        ChangeKind::Deleted => {
            shelf.remove(key);
        }
        ChangeKind::Added | ChangeKind::Modified => {
            // What cannot be read is as good as gone: nothing is decided from an older picture of it.
            match change.object.read::<T>() {
                Some(object) => shelf.insert(key.clone(), Arc::new(object)),
                None => shelf.remove(key),
            };
        }
    }
}

/// The objects of one namespace.
pub(crate) fn in_namespace<'a, T>(
    shelf: &'a Shelf<T>,
    namespace: &'a str,
) -> impl Iterator<Item = (&'a Key, &'a Arc<T>)> {
    shelf.range(Key::new(namespace, "")..).take_while(move |(key, _)| key.namespace == namespace)
}

impl Pods {
    /// Returns the pod before and after.
    pub(crate) fn observe(&mut self, change: &Change) -> (Option<Arc<PodFacts>>, Option<Arc<PodFacts>>) {
        let key = &change.object.key;
        let before = self.by_key.remove(key);
        if let Some(before) = &before {
            self.unlink(before);
        }
        let after = match change.kind {
            ChangeKind::Deleted => None,
            ChangeKind::Added | ChangeKind::Modified => PodFacts::read(&change.object)
                .map(|pod| Arc::new(PodFacts { labels: self.labels.share(Arc::clone(&pod.labels)), ..pod })),
        };
        if let Some(after) = &after {
            self.link(after);
            self.by_key.insert(key.clone(), Arc::clone(after));
        }
        (before, after)
    }

    pub(crate) fn of_owner(&self, uid: &str) -> Vec<Arc<PodFacts>> {
        self.all(self.by_owner.get(uid))
    }

    /// The pods of an owner, and those in its namespace that nobody controls.
    pub(crate) fn of_owner_or_nobody(&self, uid: &str, namespace: &str) -> Vec<Arc<PodFacts>> {
        let mut pods = self.of_owner(uid);
        pods.extend(self.all(self.orphans.get(namespace)));
        pods
    }

    pub(crate) fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<PodFacts>> {
        in_namespace(&self.by_key, namespace).map(|(_, pod)| pod)
    }

    pub(crate) fn n_finished(&self) -> usize {
        self.finished.len()
    }

    pub(crate) fn finished(&self) -> Vec<Arc<PodFacts>> {
        self.all(Some(&self.finished))
    }

    fn all(&self, keys: Option<&BTreeSet<Key>>) -> Vec<Arc<PodFacts>> {
        keys.into_iter().flatten().filter_map(|key| self.by_key.get(key).cloned()).collect()
    }

    fn link(&mut self, pod: &PodFacts) {
        match &pod.owner {
            Some(owner) => self.by_owner.entry(owner.uid.clone()).or_default().insert(pod.key.clone()),
            None => self.orphans.entry(pod.key.namespace.clone()).or_default().insert(pod.key.clone()),
        };
        if pod.is_finished() {
            self.finished.insert(pod.key.clone());
        }
    }

    fn unlink(&mut self, pod: &PodFacts) {
        match &pod.owner {
            Some(owner) => forget(&mut self.by_owner, &owner.uid, &pod.key),
            None => forget(&mut self.orphans, &pod.key.namespace, &pod.key),
        }
        self.finished.remove(&pod.key);
    }
}

fn forget(index: &mut BTreeMap<String, BTreeSet<Key>>, under: &str, key: &Key) {
    if let Some(keys) = index.get_mut(under) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(under);
        }
    }
}
