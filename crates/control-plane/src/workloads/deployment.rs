//! Deployments: a ReplicaSet for each template, and the way from one to the next.

pub(crate) mod rollout;
pub(crate) mod status;

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde_json::json;

use self::rollout::{Resize, Set, Wish, wanted_of};
use self::status::{PROGRESSING, condition, condition_of, set_condition};
use super::Synced;
use super::facts::{Phase, controller_of, created_of, uid_of};
use super::hash::short_hash;
use super::owner::{Owner, gone_is_fine, is_controlled_by, is_namespace_going};
use super::selector::{Labels, Selector};
use super::world::{World, in_namespace};
use crate::error::{ApiError, ApiResult};
use crate::hands::Hands;
use crate::store::Key;

pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(crate) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
pub(crate) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// Annotations of a Deployment that its ReplicaSets do not share.
const OWN_ANNOTATIONS: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
];

/// How long the list of earlier revisions of one ReplicaSet may grow, in characters.
const HISTORY_MAX: usize = 2000;

pub(crate) fn sync(world: &World, hands: &mut Hands<'_>, key: &Key) -> Synced {
    let Some(deployment) = world.deployments.get(key) else { return Ok(None) };
    let mut rollout = Rollout {
        world,
        deployment: deployment.as_ref().clone(),
        spec: deployment.spec.clone().unwrap_or_default(),
        wish: Wish::of(deployment),
        new: None,
        old: Vec::new(),
    };
    let selector = Selector::of(&rollout.spec.selector);
    if selector.is_empty() {
        return rollout.refuse_to_select_all(hands);
    }
    let sets = rollout.claim(hands, &selector)?;
    rollout.split(sets);

    if rollout.deployment.metadata.deletion_timestamp.is_some() {
        return rollout.tell_counts(hands);
    }
    if let Some(condition) = status::paused_condition(&rollout.deployment, hands.now()) {
        let mut status = rollout.deployment.status.clone().unwrap_or_default();
        set_condition(&mut status, condition);
        rollout.write_status(hands, status)?;
    }
    rollout.renew_new_set(hands)?;
    let is_paused = rollout.spec.paused.unwrap_or(false);
    let (new, old) = rollout.sizes();
    if is_paused || rollout::is_scaling(&rollout.wish, new.as_ref(), &old) {
        let moves = rollout::scale(&rollout.wish, new.as_ref(), &old);
        rollout.resize(hands, &moves)?;
        if is_paused {
            rollout.clean_up(hands)?;
        }
        return rollout.tell_counts(hands);
    }
    if rollout.wish.rolling.is_some() { rollout.roll(hands) } else { rollout.recreate(hands) }
}

/// One look at one Deployment.
struct Rollout<'w> {
    world: &'w World,
    deployment: Deployment,
    spec: DeploymentSpec,
    wish: Wish,
    new: Option<ReplicaSet>,
    old: Vec<ReplicaSet>,
}

impl Rollout<'_> {
    fn owner(&self) -> Owner<'_> {
        Owner::of(&self.deployment, "deployment-controller")
    }

    fn refuse_to_select_all(&mut self, hands: &mut Hands<'_>) -> Synced {
        let note = "This deployment is selecting all pods. A non-empty selector is required.".to_owned();
        self.owner().warn(hands, "SelectingAll", note);
        let mut status = self.deployment.status.clone().unwrap_or_default();
        status.observed_generation = self.deployment.metadata.generation;
        self.write_status(hands, status)?;
        Ok(None)
    }

    /// The ReplicaSets that are this Deployment's, after adopting and releasing what has to be.
    fn claim(&self, hands: &mut Hands<'_>, selector: &Selector) -> ApiResult<Vec<Arc<ReplicaSet>>> {
        let owner = self.owner();
        let mut mine = Vec::new();
        for (_, set) in in_namespace(&self.world.replica_sets, owner.namespace()) {
            let matches = selector.matches(set.metadata.labels.as_ref().unwrap_or(&Labels::new()));
            match controller_of(&set.metadata) {
                Some(theirs) if theirs.uid != owner.uid() => {}
                Some(_) if matches => mine.push(Arc::clone(set)),
                Some(_) if !owner.is_deleting() => {
                    let rest: Vec<_> = set.metadata.owner_references.iter().flatten().cloned().collect();
                    let rest: Vec<_> = rest.into_iter().filter(|theirs| theirs.uid != owner.uid()).collect();
                    gone_is_fine(rewrite_owners(hands, set, &json!(rest)))?;
                }
                None if matches && !owner.is_deleting() && set.metadata.deletion_timestamp.is_none() => {
                    let mut owners = set.metadata.owner_references.clone().unwrap_or_default();
                    owners.push(owner.reference());
                    if let Some(adopted) = gone_is_fine(rewrite_owners(hands, set, &json!(owners)))? {
                        mine.push(Arc::new(adopted));
                    }
                }
                _ => {}
            }
        }
        Ok(mine)
    }

    /// The set with the Deployment's template is the new one: the oldest of them, should there be several.
    fn split(&mut self, sets: Vec<Arc<ReplicaSet>>) {
        let mut sets: Vec<ReplicaSet> = sets.iter().map(|set| set.as_ref().clone()).collect();
        sets.sort_by(by_age);
        let wanted = without_hash(&self.spec.template);
        let position = sets.iter().position(|set| {
            set.spec
                .as_ref()
                .and_then(|spec| spec.template.as_ref())
                .is_some_and(|theirs| without_hash(theirs) == wanted)
        });
        self.new = position.map(|idx| sets.remove(idx));
        self.old = sets;
    }

    fn sizes(&self) -> (Option<Set>, Vec<Set>) {
        (self.new.as_ref().map(Set::of), self.old.iter().map(Set::of).collect())
    }

    fn next_revision(&self) -> i64 {
        self.old.iter().map(|set| revision_of(&set.metadata).unwrap_or(0)).max().unwrap_or(0).saturating_add(1)
    }

    /// Brings the new set's annotations and the Deployment's revision up to date.
    fn renew_new_set(&mut self, hands: &mut Hands<'_>) -> ApiResult<()> {
        let revision = self.next_revision();
        let min_ready_seconds = self.spec.min_ready_seconds;
        let Some(new) = &self.new else { return Ok(()) };
        let mut renewed = new.clone();
        renew_annotations(&self.deployment, &mut renewed, revision);
        if let Some(spec) = &mut renewed.spec {
            // A zero is left out of what is stored.
            spec.min_ready_seconds = min_ready_seconds.filter(|seconds| *seconds != 0);
        }
        if renewed != *new {
            self.new = Some(hands.update(&renewed)?);
            return Ok(());
        }
        let name = new.metadata.name.clone().unwrap_or_default();
        let revision = new.metadata.annotations.as_ref().and_then(|all| all.get(REVISION)).cloned();
        let mut changed = self.deployment.clone();
        if let Some(revision) = revision {
            changed.metadata.annotations.get_or_insert_default().insert(REVISION.to_owned(), revision);
        }
        let status = changed.status.get_or_insert_default();
        if status::deadline(&self.deployment).is_some() && condition_of(status, PROGRESSING).is_none() {
            let message = format!("Found new replica set \"{name}\"");
            set_condition(status, condition(PROGRESSING, "True", "FoundNewReplicaSet", message, hands.now()));
        }
        self.write(hands, changed)
    }

    fn create_new_set(&mut self, hands: &mut Hands<'_>) -> ApiResult<()> {
        let revision = self.next_revision();
        let others = self.old.iter().map(wanted_of).fold(0, i32::saturating_add);
        let size = rollout::new_size(&self.wish, 0, others);
        let set = new_set(&self.deployment, &self.wish, self.owner(), size, revision);
        let name = set.metadata.name.clone().unwrap_or_default();
        let created = match hands.create(&set) {
            Ok(created) => created,
            Err(error) if error.reason == "AlreadyExists" => return self.resolve_collision(hands, &name, error),
            Err(error) => {
                if !is_namespace_going(&error) {
                    let message = format!("Failed to create new replica set \"{name}\": {}", error.message);
                    self.owner().warn(hands, "ReplicaSetCreateError", message.clone());
                    if status::deadline(&self.deployment).is_some() {
                        let mut status = self.deployment.status.clone().unwrap_or_default();
                        let now = hands.now();
                        set_condition(
                            &mut status,
                            condition(PROGRESSING, "False", "ReplicaSetCreateError", message, now),
                        );
                        self.write_status(hands, status)?;
                    }
                }
                return Err(error);
            }
        };
        if size > 0 {
            let note = format!("Scaled up replica set {name} from 0 to {size}");
            self.owner().normal(hands, "ScalingReplicaSet", note);
        }
        self.new = Some(created);
        let mut changed = self.deployment.clone();
        changed.metadata.annotations.get_or_insert_default().insert(REVISION.to_owned(), revision.to_string());
        if status::deadline(&self.deployment).is_some() {
            let message = format!("Created new replica set \"{name}\"");
            let news = condition(PROGRESSING, "True", "NewReplicaSetCreated", message, hands.now());
            set_condition(changed.status.get_or_insert_default(), news);
        }
        self.write(hands, changed)
    }

    /// The name is taken: by our own set, which the next look will find, or by another template with the same hash.
    fn resolve_collision(&mut self, hands: &mut Hands<'_>, name: &str, error: ApiError) -> ApiResult<()> {
        let owner = self.owner();
        if let Some(taken) = hands.get::<ReplicaSet>(owner.namespace(), name) {
            let template = taken.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default();
            let is_ours = is_controlled_by(&taken.metadata, owner.uid());
            if is_ours && without_hash(&template) == without_hash(&self.spec.template) {
                self.new = Some(taken);
                return Ok(());
            }
        }
        let mut status = self.deployment.status.clone().unwrap_or_default();
        status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
        self.write_status(hands, status)?;
        Err(error)
    }

    fn roll(&mut self, hands: &mut Hands<'_>) -> Synced {
        if self.new.is_none() {
            self.create_new_set(hands)?;
        }
        let (Some(new), old) = self.sizes() else { return Ok(None) };
        if let Some(step) = rollout::step_up(&self.wish, &new, &old) {
            self.resize(hands, &[step])?;
            return self.tell_rollout(hands);
        }
        let down = rollout::step_down(&self.wish, &new, &old);
        if !down.is_empty() {
            self.resize(hands, &down)?;
            return self.tell_rollout(hands);
        }
        self.finish(hands)
    }

    fn recreate(&mut self, hands: &mut Hands<'_>) -> Synced {
        let down: Vec<Resize> = self
            .old
            .iter()
            .filter(|set| wanted_of(set) > 0)
            .map(|set| Resize { set: set.metadata.name.clone().unwrap_or_default(), to: 0, force: false })
            .collect();
        if !down.is_empty() {
            self.resize(hands, &down)?;
            return self.tell_rollout(hands);
        }
        if self.has_old_pods() {
            return self.tell_rollout(hands);
        }
        if self.new.is_none() {
            self.create_new_set(hands)?;
        }
        if let Some(new) = &self.new
            && wanted_of(new) != self.wish.replicas
        {
            let set = new.metadata.name.clone().unwrap_or_default();
            self.resize(hands, &[Resize { set, to: self.wish.replicas, force: false }])?;
        }
        self.finish(hands)
    }

    /// Pods of old sets that may still run, or that their sets believe to have.
    fn has_old_pods(&self) -> bool {
        self.old.iter().any(|set| {
            set.status.as_ref().is_some_and(|status| status.replicas > 0)
                || self
                    .world
                    .pods
                    .of_owner(uid_of(&set.metadata))
                    .iter()
                    .any(|pod| !matches!(pod.phase, Phase::Succeeded | Phase::Failed))
        })
    }

    fn finish(&mut self, hands: &mut Hands<'_>) -> Synced {
        let known = self.deployment.status.clone().unwrap_or_default();
        if status::is_complete(&self.deployment, &self.wish, &known) {
            self.clean_up(hands)?;
        }
        self.tell_rollout(hands)
    }

    /// Resizes sets, and tells of it.
    fn resize(&mut self, hands: &mut Hands<'_>, moves: &[Resize]) -> ApiResult<()> {
        for step in moves {
            let sets = self.old.iter_mut().chain(self.new.as_mut());
            let Some(set) = sets.into_iter().find(|set| set.metadata.name.as_deref() == Some(&step.set)) else {
                continue;
            };
            let from = wanted_of(set);
            if from == step.to && !step.force {
                continue;
            }
            let mut changed = set.clone();
            changed.spec.get_or_insert_default().replicas = Some(step.to);
            set_replicas_annotations(&mut changed, &self.wish);
            if changed == *set {
                continue;
            }
            *set = hands.update(&changed)?;
            if from != step.to {
                let way = if from < step.to { "up" } else { "down" };
                let note = format!("Scaled {way} replica set {} from {from} to {}", step.set, step.to);
                self.owner().normal(hands, "ScalingReplicaSet", note);
            }
        }
        Ok(())
    }

    /// Deletes the oldest empty sets beyond the history limit.
    fn clean_up(&mut self, hands: &mut Hands<'_>) -> ApiResult<()> {
        let limit = self.spec.revision_history_limit;
        for set in beyond_history(&self.old, limit) {
            let key = super::facts::key_of(&set.metadata);
            gone_is_fine(hands.delete::<ReplicaSet>(&key.namespace, &key.name, &json!({})))?;
        }
        Ok(())
    }

    fn tell_counts(&mut self, hands: &mut Hands<'_>) -> Synced {
        let old: Vec<&ReplicaSet> = self.old.iter().collect();
        let status = status::counted(&self.deployment, &self.wish, self.new.as_ref(), &old, hands.now());
        self.write_status(hands, status)?;
        Ok(None)
    }

    fn tell_rollout(&mut self, hands: &mut Hands<'_>) -> Synced {
        let old: Vec<&ReplicaSet> = self.old.iter().collect();
        let (status, again): (_, Option<Timestamp>) =
            status::of_rollout(&self.deployment, &self.wish, self.new.as_ref(), &old, hands.now());
        self.write_status(hands, status)?;
        Ok(again)
    }

    fn write_status(&mut self, hands: &mut Hands<'_>, status: DeploymentStatus) -> ApiResult<()> {
        let mut changed = self.deployment.clone();
        changed.status = Some(status);
        self.write(hands, changed)
    }

    /// Writes status and annotations, if they are new.
    fn write(&mut self, hands: &mut Hands<'_>, changed: Deployment) -> ApiResult<()> {
        let same_status =
            changed.status.clone().unwrap_or_default() == self.deployment.status.clone().unwrap_or_default();
        if !same_status || changed.metadata.annotations != self.deployment.metadata.annotations {
            self.deployment = hands.update_status(&changed)?;
        }
        Ok(())
    }
}

fn rewrite_owners(hands: &mut Hands<'_>, set: &ReplicaSet, owners: &serde_json::Value) -> ApiResult<ReplicaSet> {
    let key = super::facts::key_of(&set.metadata);
    let patch = json!({ "metadata": { "uid": uid_of(&set.metadata), "ownerReferences": owners } });
    hands.merge_patch::<ReplicaSet>(&key.namespace, &key.name, None, &patch)
}

fn by_age(a: &ReplicaSet, b: &ReplicaSet) -> Ordering {
    created_of(&a.metadata).cmp(&created_of(&b.metadata)).then_with(|| a.metadata.name.cmp(&b.metadata.name))
}

fn revision_of(meta: &ObjectMeta) -> Option<i64> {
    meta.annotations.as_ref()?.get(REVISION)?.parse().ok()
}

/// The template as the Deployment has it: without the label that its ReplicaSets add.
fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(meta) = &mut template.metadata {
        meta.creation_timestamp = None;
        if let Some(labels) = &mut meta.labels {
            labels.remove(POD_TEMPLATE_HASH);
        }
        meta.labels = meta.labels.take().filter(|labels| !labels.is_empty());
        meta.annotations = meta.annotations.take().filter(|annotations| !annotations.is_empty());
    }
    template.metadata = template.metadata.take().filter(|meta| *meta != ObjectMeta::default());
    template
}

/// The ReplicaSet for the Deployment's present template.
fn new_set(deployment: &Deployment, wish: &Wish, owner: Owner<'_>, size: i32, revision: i64) -> ReplicaSet {
    let spec = deployment.spec.clone().unwrap_or_default();
    let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
    let mut template = spec.template;
    let hash = short_hash(&without_hash(&template), collisions);
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(POD_TEMPLATE_HASH.to_owned(), hash.clone());
    let labels = labels.clone();
    let mut selector: LabelSelector = spec.selector;
    selector.match_labels.get_or_insert_default().insert(POD_TEMPLATE_HASH.to_owned(), hash.clone());
    let room = 253_usize.saturating_sub(1 + hash.len());
    let prefix: String = owner.name().chars().take(room).collect();
    let mut set = ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{prefix}-{hash}")),
            namespace: deployment.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: Some(vec![owner.reference()]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(size),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        }),
        status: None,
    };
    renew_annotations(deployment, &mut set, revision);
    set_replicas_annotations(&mut set, wish);
    set
}

/// Shares the Deployment's annotations with its new set, and gives it the newest revision. A set that had one before is being
/// rolled back to, and remembers it.
fn renew_annotations(deployment: &Deployment, set: &mut ReplicaSet, revision: i64) {
    let annotations = set.metadata.annotations.get_or_insert_default();
    for (name, value) in deployment.metadata.annotations.iter().flatten() {
        if !OWN_ANNOTATIONS.contains(&name.as_str()) {
            annotations.insert(name.clone(), value.clone());
        }
    }
    let before = annotations.get(REVISION).cloned();
    let known = match before.as_deref() {
        None | Some("") => 0,
        Some(text) => match text.parse::<i64>() {
            Ok(known) => known,
            // Somebody wrote something else here: it is not ours to change.
            Err(_) => return,
        },
    };
    if known >= revision {
        return;
    }
    annotations.insert(REVISION.to_owned(), revision.to_string());
    if let Some(before) = before {
        let history = annotations.get(REVISION_HISTORY).cloned().unwrap_or_default();
        annotations.insert(REVISION_HISTORY.to_owned(), longer_history(&history, &before));
    }
}

/// The history with one more revision, shortened at its beginning to stay within bounds.
fn longer_history(history: &str, revision: &str) -> String {
    let mut all: Vec<&str> = history.split(',').filter(|entry| !entry.is_empty()).collect();
    all.push(revision);
    let length = |all: &[&str]| all.iter().map(|entry| entry.len() + 1).sum::<usize>().saturating_sub(1);
    while all.len() > 1 && length(&all) > HISTORY_MAX {
        all.remove(0);
    }
    all.join(",")
}

fn set_replicas_annotations(set: &mut ReplicaSet, wish: &Wish) {
    let annotations = set.metadata.annotations.get_or_insert_default();
    annotations.insert(DESIRED_REPLICAS.to_owned(), wish.replicas.to_string());
    annotations.insert(MAX_REPLICAS.to_owned(), wish.max_replicas().to_string());
}

/// The sets that history does not need: the lowest revisions beyond the limit, as far as they are empty.
fn beyond_history(old: &[ReplicaSet], limit: Option<i32>) -> Vec<&ReplicaSet> {
    let Some(limit) = limit.filter(|limit| *limit != i32::MAX) else { return Vec::new() };
    let mut sets: Vec<&ReplicaSet> = old.iter().filter(|set| set.metadata.deletion_timestamp.is_none()).collect();
    sets.sort_by(|a, b| {
        let revisions = (revision_of(&a.metadata).unwrap_or(0), revision_of(&b.metadata).unwrap_or(0));
        revisions.0.cmp(&revisions.1).then_with(|| by_age(a, b))
    });
    let surplus = sets.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    sets.truncate(surplus);
    sets.retain(|set| {
        let status = set.status.clone().unwrap_or_default();
        let is_observed = status.observed_generation.unwrap_or(0) >= set.metadata.generation.unwrap_or(0);
        status.replicas == 0 && wanted_of(set) == 0 && is_observed
    });
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment() -> Deployment {
        serde_json::from_value(json!({
            "metadata": { "name": "web", "namespace": "default", "uid": "u", "annotations": { "a": "1", REVISION: "7" } },
            "spec": {
                "replicas": 3, "selector": { "matchLabels": { "app": "web" } },
                "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } },
                "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c" }] } },
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_new_set_carries_the_hash_the_revision_and_the_shared_annotations() {
        let deployment = deployment();
        let wish = Wish::of(&deployment);
        let set = new_set(&deployment, &wish, Owner::of(&deployment, "c"), 3, 2);
        let meta = &set.metadata;
        let hash = meta.labels.as_ref().unwrap()[POD_TEMPLATE_HASH].clone();
        assert_eq!(meta.name.as_deref(), Some(format!("web-{hash}").as_str()));
        let spec = set.spec.as_ref().unwrap();
        assert_eq!(spec.selector.match_labels.as_ref().unwrap()[POD_TEMPLATE_HASH], hash);
        assert_eq!(without_hash(spec.template.as_ref().unwrap()), deployment.spec.as_ref().unwrap().template);
        let annotations: Vec<_> =
            meta.annotations.as_ref().unwrap().iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(
            annotations,
            [
                "a=1",
                "deployment.kubernetes.io/desired-replicas=3",
                "deployment.kubernetes.io/max-replicas=4",
                "deployment.kubernetes.io/revision=2"
            ]
        );
        // The same template gives the same name, and a collision another one.
        assert_eq!(new_set(&deployment, &wish, Owner::of(&deployment, "c"), 0, 9).metadata.name, meta.name);
        let mut collided = deployment.clone();
        collided.status.get_or_insert_default().collision_count = Some(1);
        assert_ne!(new_set(&collided, &wish, Owner::of(&collided, "c"), 0, 9).metadata.name, meta.name);
    }

    #[test]
    fn rolling_back_gives_the_set_a_new_revision_and_remembers_the_old_one() {
        let deployment = deployment();
        let mut set = ReplicaSet::default();
        for (revision, expected) in [(1, "1 "), (1, "1 "), (3, "3 1"), (2, "3 1"), (5, "5 1,3")] {
            renew_annotations(&deployment, &mut set, revision);
            let annotations = set.metadata.annotations.clone().unwrap();
            let history = annotations.get(REVISION_HISTORY).cloned().unwrap_or_default();
            assert_eq!(format!("{} {history}", annotations[REVISION]), expected);
        }
        let long = (0..600).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let longer = longer_history(&long, "600");
        assert!(longer.len() <= HISTORY_MAX && longer.ends_with(",600"));
    }

    #[test]
    fn history_keeps_the_newest_and_never_deletes_a_set_with_pods() {
        let set = |name: &str, revision: i64, wanted: i32| -> ReplicaSet {
            serde_json::from_value(json!({
                "metadata": { "name": name, "annotations": { REVISION: revision.to_string() } },
                "spec": { "replicas": wanted, "selector": {} },
            }))
            .unwrap()
        };
        let sets = [set("c", 3, 0), set("a", 1, 0), set("b", 2, 1), set("d", 4, 0)];
        let names = |limit| {
            beyond_history(&sets, limit)
                .iter()
                .map(|set| set.metadata.name.clone().unwrap())
                .collect::<Vec<_>>()
                .join(" ")
        };
        for (limit, expected) in
            [(Some(10), ""), (Some(3), "a"), (Some(2), "a"), (Some(1), "a c"), (Some(0), "a c d"), (Some(i32::MAX), "")]
        {
            assert_eq!(names(limit), expected, "{limit:?}");
        }
        assert_eq!(names(None), "");
    }
}
