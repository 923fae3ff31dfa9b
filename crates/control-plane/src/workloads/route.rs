//! Which desk has to look at what after a change.

use super::accounts::{DEFAULT_ACCOUNT, ROOT_CERTIFICATE};
use super::budget;
use super::cleanup::FINISHED_MAX;
use super::facts::PodFacts;
use super::job::{JOB_NAME, TRACKING};
use super::selector::{Labels, Selector};
use super::world::{World, in_namespace};
use super::{Desk, Task};
use crate::store::{Change, Key, Owner, Stored};

/// Everyone who has to look again because a pod changed.
pub(crate) fn pod(world: &World, before: Option<&PodFacts>, after: Option<&PodFacts>) -> Vec<Task> {
    let mut tasks = Vec::new();
    for pod in before.into_iter().chain(after) {
        if let Some(owner) = &pod.owner
            && let Some(desk) = desk_of_kind(&owner.kind)
        {
            let key = Key::new(&pod.key.namespace, &owner.name);
            tasks.extend(waiting_deployment(world, desk, &key));
            tasks.push(Task { desk, key });
        }
    }
    if let Some(pod) = after.filter(|pod| pod.owner.is_none()) {
        let was_same = before.is_some_and(|before| before.owner.is_none() && before.labels == pod.labels);
        if !was_same {
            tasks.extend(adopters(world, &pod.key.namespace, &pod.labels));
        }
    }
    for pod in after.into_iter().filter(|pod| pod.owner.is_none()) {
        // A Job that is gone left its finalizer behind.
        if let Some(job) = pod.labels.get(JOB_NAME)
            && pod.finalizers.iter().any(|finalizer| finalizer == TRACKING)
        {
            tasks.push(Task { desk: Desk::Job, key: Key::new(&pod.key.namespace, job) });
        }
    }
    if let Some(pod) = before.or(after) {
        for (key, budget) in in_namespace(&world.budgets, &pod.key.namespace) {
            if before.into_iter().chain(after).any(|pod| budget::covers(budget, pod)) {
                tasks.push(Task { desk: Desk::Budget, key: key.clone() });
            }
        }
    }
    if world.pods.n_finished() > FINISHED_MAX {
        tasks.push(Task { desk: Desk::Cleanup, key: Key::default() });
    }
    tasks
}

/// Everyone who has to look again because a node changed.
pub(crate) fn node(world: &World) -> Vec<Task> {
    world.daemon_sets.keys().map(|key| Task { desk: Desk::DaemonSet, key: key.clone() }).collect()
}

/// Everyone who has to look again because something else changed.
pub(crate) fn other(world: &World, change: &Change) -> Vec<Task> {
    let key = change.object.key.clone();
    let task = |desk| Task { desk, key: key.clone() };
    match (change.resource.group.as_str(), change.resource.plural.as_str()) {
        ("apps", "deployments") => vec![task(Desk::Deployment)],
        ("", "replicationcontrollers") => vec![task(Desk::ReplicationController)],
        ("apps", "statefulsets") => vec![task(Desk::StatefulSet)],
        ("apps", "daemonsets") => vec![task(Desk::DaemonSet)],
        ("apps", "controllerrevisions") | ("", "persistentvolumeclaims") => owners(change),
        ("batch", "cronjobs") => vec![task(Desk::CronJob)],
        ("batch", "jobs") => {
            let mut tasks = owners(change);
            tasks.push(task(Desk::Job));
            tasks
        }
        ("policy", "poddisruptionbudgets") => vec![task(Desk::Budget)],
        ("", "namespaces") => vec![task(Desk::Namespace)],
        ("", "serviceaccounts") if key.name == DEFAULT_ACCOUNT => vec![namespace_of(&key)],
        ("", "configmaps") if key.name == ROOT_CERTIFICATE => vec![namespace_of(&key)],
        ("apps", "replicasets") => {
            let mut tasks = vec![task(Desk::ReplicaSet)];
            tasks.extend(owners(change));
            if change.object.owners.is_empty() {
                tasks.extend(adopting_deployments(world, &change.object));
            }
            tasks
        }
        _ => Vec::new(),
    }
}

fn namespace_of(key: &Key) -> Task {
    Task { desk: Desk::Namespace, key: Key::new("", &key.namespace) }
}

fn desk_of_kind(kind: &str) -> Option<Desk> {
    match kind {
        "Deployment" => Some(Desk::Deployment),
        "ReplicaSet" => Some(Desk::ReplicaSet),
        "ReplicationController" => Some(Desk::ReplicationController),
        "StatefulSet" => Some(Desk::StatefulSet),
        "DaemonSet" => Some(Desk::DaemonSet),
        "Job" => Some(Desk::Job),
        "CronJob" => Some(Desk::CronJob),
        _ => None,
    }
}

/// The owners of an object, now and before.
fn owners(change: &Change) -> Vec<Task> {
    let before = change.before.iter().flat_map(|before| &before.owners);
    let tasks = change.object.owners.iter().chain(before).filter_map(|owner: &Owner| {
        let desk = desk_of_kind(&owner.kind)?;
        Some(Task { desk, key: Key::new(&change.object.key.namespace, &owner.name) })
    });
    tasks.collect()
}

/// A Deployment that recreates waits for the last pod of its old sets to be gone.
fn waiting_deployment(world: &World, desk: Desk, key: &Key) -> Option<Task> {
    if desk != Desk::ReplicaSet {
        return None;
    }
    let set = world.replica_sets.get(key)?;
    let owner = super::facts::controller_of(&set.metadata).filter(|owner| owner.kind == "Deployment")?;
    let key = Key::new(&key.namespace, &owner.name);
    let strategy = world.deployments.get(&key)?.spec.as_ref()?.strategy.as_ref()?;
    (strategy.type_.as_deref() == Some("Recreate")).then_some(Task { desk: Desk::Deployment, key })
}

/// Those who would adopt a pod with these labels.
fn adopters(world: &World, namespace: &str, labels: &Labels) -> Vec<Task> {
    let wants = |selector: Selector| !selector.is_empty() && selector.matches(labels);
    let mut tasks = Vec::new();
    for (key, set) in in_namespace(&world.replica_sets, namespace) {
        if set.spec.as_ref().is_some_and(|spec| wants(Selector::of(&spec.selector))) {
            tasks.push(Task { desk: Desk::ReplicaSet, key: key.clone() });
        }
    }
    for (key, set) in in_namespace(&world.replication_controllers, namespace) {
        let selector = set.spec.as_ref().map(|spec| Selector::of_labels(spec.selector.iter().flatten()));
        if selector.is_some_and(wants) {
            tasks.push(Task { desk: Desk::ReplicationController, key: key.clone() });
        }
    }
    for (key, set) in in_namespace(&world.stateful_sets, namespace) {
        if set.spec.as_ref().is_some_and(|spec| wants(Selector::of(&spec.selector))) {
            tasks.push(Task { desk: Desk::StatefulSet, key: key.clone() });
        }
    }
    for (key, job) in in_namespace(&world.jobs, namespace) {
        let selector = job.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        if selector.is_some_and(|selector| wants(Selector::of(selector))) {
            tasks.push(Task { desk: Desk::Job, key: key.clone() });
        }
    }
    for (key, set) in in_namespace(&world.daemon_sets, namespace) {
        if set.spec.as_ref().is_some_and(|spec| wants(Selector::of(&spec.selector))) {
            tasks.push(Task { desk: Desk::DaemonSet, key: key.clone() });
        }
    }
    tasks
}

fn adopting_deployments(world: &World, set: &Stored) -> Vec<Task> {
    let labels: Labels = set.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    in_namespace(&world.deployments, &set.key.namespace)
        .filter(|(_, deployment)| {
            let selector = deployment.spec.as_ref().map(|spec| Selector::of(&spec.selector)).unwrap_or_default();
            !selector.is_empty() && selector.matches(&labels)
        })
        .map(|(key, _)| Task { desk: Desk::Deployment, key: key.clone() })
        .collect()
}
