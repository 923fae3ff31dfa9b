//! The history of templates that StatefulSets and DaemonSets keep as ControllerRevisions.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::{Value, json};

use super::facts::created_of;
use super::hash::short_hash;
use super::owner::{Owner, gone_is_fine, is_controlled_by};
use super::world::{World, in_namespace};
use crate::error::ApiResult;
use crate::hands::Hands;

/// On pods, and on the revisions of DaemonSets.
pub(crate) const REVISION_HASH: &str = "controller-revision-hash";
/// On the revisions of StatefulSets.
pub(crate) const HASH: &str = "controller.kubernetes.io/hash";

/// The revision that stands for the present template, once it exists.
pub(crate) enum Outcome {
    Found(Arc<ControllerRevision>),
    /// The name is taken by another template: the owner has to count a collision and try again.
    Collision,
}

/// An owner's revisions, the oldest first.
pub(crate) fn history(world: &World, owner: Owner<'_>) -> Vec<Arc<ControllerRevision>> {
    let mut all: Vec<_> = in_namespace(&world.revisions, owner.namespace())
        .filter(|(_, revision)| is_controlled_by(&revision.metadata, owner.uid()))
        .map(|(_, revision)| Arc::clone(revision))
        .collect();
    all.sort_by(|a, b| {
        a.revision
            .cmp(&b.revision)
            .then_with(|| created_of(&a.metadata).cmp(&created_of(&b.metadata)))
            .then_with(|| a.metadata.name.cmp(&b.metadata.name))
    });
    all
}

/// Finds, renumbers or creates the revision of `template`.
pub(crate) fn ensure(
    hands: &mut Hands<'_>,
    owner: Owner<'_>,
    history: &[Arc<ControllerRevision>],
    template: &PodTemplateSpec,
    collisions: Option<i32>,
    hash_label: &str,
) -> ApiResult<Outcome> {
    let data = data_of(template);
    let next = history.last().map_or(1, |last| last.revision.saturating_add(1));
    match history.iter().rposition(|revision| data_in(revision) == Some(&data)) {
        Some(idx) if idx + 1 == history.len() => Ok(Outcome::Found(Arc::clone(&history[idx]))),
        Some(idx) => {
            // The owner went back to an earlier template: its revision becomes the newest again.
            let mut renumbered = history[idx].as_ref().clone();
            renumbered.revision = next;
            Ok(Outcome::Found(Arc::new(hands.update(&renumbered)?)))
        }
        None => create(hands, owner, template, data, next, collisions, hash_label),
    }
}

fn create(
    hands: &mut Hands<'_>,
    owner: Owner<'_>,
    template: &PodTemplateSpec,
    data: Value,
    revision: i64,
    collisions: Option<i32>,
    hash_label: &str,
) -> ApiResult<Outcome> {
    let hash = short_hash(&data, collisions);
    let prefix: String = owner.name().chars().take(223).collect();
    let mut labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
    labels.insert(hash_label.to_owned(), hash.clone());
    let new = ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{prefix}-{hash}")),
            namespace: owner.meta.namespace.clone(),
            labels: Some(labels),
            annotations: owner.meta.annotations.clone(),
            owner_references: Some(vec![owner.reference()]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data.clone())),
        revision,
    };
    match hands.create(&new) {
        Ok(created) => Ok(Outcome::Found(Arc::new(created))),
        Err(error) if error.reason == "AlreadyExists" => {
            let name = new.metadata.name.as_deref().unwrap_or_default();
            let taken = hands.get::<ControllerRevision>(owner.namespace(), name).ok_or(error)?;
            let is_same = is_controlled_by(&taken.metadata, owner.uid()) && data_in(&taken) == Some(&data);
            Ok(if is_same { Outcome::Found(Arc::new(taken)) } else { Outcome::Collision })
        }
        Err(error) => Err(error),
    }
}

/// Deletes the oldest revisions that nothing uses, beyond `limit`.
pub(crate) fn truncate(
    hands: &mut Hands<'_>,
    history: &[Arc<ControllerRevision>],
    is_live: &dyn Fn(&ControllerRevision) -> bool,
    limit: Option<i32>,
) -> ApiResult<()> {
    for revision in surplus(history, is_live, limit.unwrap_or(10)) {
        let key = super::facts::key_of(&revision.metadata);
        gone_is_fine(hands.delete::<ControllerRevision>(&key.namespace, &key.name, &json!({})))?;
    }
    Ok(())
}

fn surplus<'a>(
    history: &'a [Arc<ControllerRevision>],
    is_live: &dyn Fn(&ControllerRevision) -> bool,
    limit: i32,
) -> Vec<&'a Arc<ControllerRevision>> {
    let Ok(limit) = usize::try_from(limit) else { return Vec::new() };
    let mut unused: Vec<_> = history.iter().filter(|revision| !is_live(revision)).collect();
    unused.truncate(unused.len().saturating_sub(limit));
    unused
}

pub(crate) fn name_of(revision: &ControllerRevision) -> &str {
    revision.metadata.name.as_deref().unwrap_or_default()
}

pub(crate) fn label_of<'a>(revision: &'a ControllerRevision, label: &str) -> &'a str {
    revision.metadata.labels.as_ref().and_then(|labels| labels.get(label)).map_or("", String::as_str)
}

/// The template that a revision keeps.
pub(crate) fn template_in(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    serde_json::from_value(data_in(revision)?.pointer("/spec/template")?.clone()).ok()
}

fn data_in(revision: &ControllerRevision) -> Option<&Value> {
    revision.data.as_ref().map(|data| &data.0)
}

/// A template as a patch that puts it back, which is the form in which `kubectl rollout undo` expects it.
fn data_of(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or_default();
    if let Some(fields) = template.as_object_mut() {
        fields.insert("$patch".to_owned(), json!("replace"));
    }
    json!({ "spec": { "template": template } })
}

/// The names of revisions that pods carry.
pub(crate) fn in_use<'a>(labels: impl Iterator<Item = &'a super::selector::Labels>) -> BTreeSet<String> {
    labels.filter_map(|labels| labels.get(REVISION_HASH).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(name: &str, number: i64) -> Arc<ControllerRevision> {
        Arc::new(serde_json::from_value(json!({ "metadata": { "name": name }, "revision": number })).unwrap())
    }

    #[test]
    fn a_template_survives_the_way_into_a_revision_and_back() {
        let template: PodTemplateSpec = serde_json::from_value(json!({
            "metadata": { "labels": { "app": "db" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } }))
        .unwrap();
        let mut kept = revision("a", 1).as_ref().clone();
        kept.data = Some(RawExtension(data_of(&template)));
        assert_eq!(data_in(&kept).unwrap()["spec"]["template"]["$patch"], "replace");
        assert_eq!(template_in(&kept), Some(template));
    }

    #[test]
    fn only_the_oldest_unused_revisions_beyond_the_limit_are_surplus() {
        let history = [revision("a", 1), revision("b", 2), revision("c", 3), revision("d", 4)];
        for (limit, expected) in [(10, ""), (2, "a"), (1, "a c"), (0, "a c d"), (-1, "")] {
            let live = |revision: &ControllerRevision| name_of(revision) == "b";
            let names: Vec<_> = surplus(&history, &live, limit).iter().map(|revision| name_of(revision)).collect();
            assert_eq!(names.join(" "), expected, "{limit}");
        }
    }
}
