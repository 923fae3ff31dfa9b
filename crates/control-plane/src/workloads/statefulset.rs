//! StatefulSets: pods with a name and storage of their own, one after the other.

mod decide;
mod member;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use self::decide::{Action, Picture, Strategy};
use self::member::Member;
use super::Synced;
use super::facts::{PodFacts, count, key_of};
use super::owner::{Owner, is_namespace_going};
use super::replicas::next_available;
use super::revisions::{self, HASH, Outcome, REVISION_HASH, name_of};
use super::selector::Selector;
use super::world::World;
use crate::error::{ApiError, ApiResult};
use crate::hands::Hands;
use crate::store::Key;

pub(crate) const COMPONENT: &str = "statefulset-controller";

pub(crate) fn sync(world: &World, hands: &mut Hands<'_>, key: &Key) -> Synced {
    let Some(set) = world.stateful_sets.get(key) else { return Ok(None) };
    let owner = Owner::of(set.as_ref(), COMPONENT);
    let spec = set.spec.clone().unwrap_or_default();
    let selector = Selector::of(&spec.selector);
    if selector.is_empty() {
        return Ok(None);
    }
    let candidates = world.pods.of_owner_or_nobody(owner.uid(), owner.namespace());
    // Only pods that are named like members are ever adopted.
    let named = candidates
        .into_iter()
        .filter(|pod| pod.owner.is_some() || decide::ordinal_of(owner.name(), &pod.key.name).is_some());
    let pods = owner.claim(hands, &selector, named.collect())?;

    let history = revisions::history(world, owner);
    let old = set.status.clone().unwrap_or_default();
    let collisions = old.collision_count.unwrap_or(0);
    let update = match revisions::ensure(hands, owner, &history, &spec.template, Some(collisions), HASH)? {
        Outcome::Found(revision) => revision,
        Outcome::Collision => {
            let mut changed = set.as_ref().clone();
            changed.status.get_or_insert_default().collision_count = Some(collisions.saturating_add(1));
            hands.update_status(&changed)?;
            return Ok(Some(hands.now()));
        }
    };
    let current = history
        .iter()
        .find(|revision| Some(name_of(revision)) == old.current_revision.as_deref())
        .cloned()
        .unwrap_or_else(|| Arc::clone(&update));

    let now = hands.now();
    let picture = picture(world, &spec, owner.name(), &pods, &update, now);
    let mut counts = Counts::of(&pods, &spec, name_of(&current), name_of(&update), now);
    let mut failure = None;
    if !owner.is_deleting() {
        let round = Round { world, spec: &spec, owner, current: &current, update: &update, known: &old };
        for action in decide::decide(&picture) {
            if matches!(action, Action::Renew(_)) {
                counts.current -= 1;
            }
            if let Err(error) = round.act(hands, &action) {
                failure = Some(error);
                break;
            }
        }
    }
    let status = counts.status(set, &spec, name_of(&current), name_of(&update), collisions);
    if !is_same(&status, &old) {
        let mut changed = set.as_ref().clone();
        changed.status = Some(status);
        hands.update_status(&changed)?;
    }
    let in_use = revisions::in_use(pods.iter().map(|pod| &*pod.labels));
    let live = |revision: &ControllerRevision| {
        let name = name_of(revision);
        name == name_of(&current) || name == name_of(&update) || in_use.contains(name)
    };
    revisions::truncate(hands, &history, &live, spec.revision_history_limit)?;
    match failure {
        Some(error) if is_namespace_going(&error) => Ok(None),
        Some(error) => Err(error),
        None => Ok(next_available(&pods, spec.min_ready_seconds.unwrap_or(0), now)),
    }
}

fn picture<'a>(
    world: &World,
    spec: &StatefulSetSpec,
    name: &str,
    pods: &[Arc<PodFacts>],
    update: &'a ControllerRevision,
    now: Timestamp,
) -> Picture<'a> {
    let start = start_of(spec);
    let replicas = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
    let mut members: BTreeMap<usize, Arc<PodFacts>> = BTreeMap::new();
    let mut condemned: BTreeMap<i32, Arc<PodFacts>> = BTreeMap::new();
    for pod in pods {
        let Some(ordinal) = decide::ordinal_of(name, &pod.key.name) else { continue };
        let idx = usize::try_from(i64::from(ordinal) - i64::from(start)).ok();
        match idx.filter(|idx| *idx < replicas) {
            Some(idx) => members.insert(idx, Arc::clone(pod)),
            None => condemned.insert(ordinal, Arc::clone(pod)),
        };
    }
    let strategy = spec.update_strategy.clone().unwrap_or_default();
    Picture {
        start,
        replicas,
        members,
        condemned: condemned.into_values().rev().collect(),
        is_ordered: spec.pod_management_policy.as_deref() != Some("Parallel"),
        min_ready_seconds: spec.min_ready_seconds.unwrap_or(0),
        strategy: if strategy.type_.as_deref() == Some("OnDelete") {
            Strategy::OnDelete
        } else {
            let partition = strategy.rolling_update.and_then(|rolling| rolling.partition).unwrap_or(0);
            Strategy::Rolling { partition: usize::try_from(partition).unwrap_or(0) }
        },
        update_revision: name_of(update),
        needs_care: pods
            .iter()
            .filter(|pod| member::needs_care(world, spec, name, pod))
            .map(|pod| pod.key.name.clone())
            .collect(),
        now,
    }
}

pub(crate) fn start_of(spec: &StatefulSetSpec) -> i32 {
    spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0)
}

/// What an action needs to know.
struct Round<'a> {
    world: &'a World,
    spec: &'a StatefulSetSpec,
    owner: Owner<'a>,
    current: &'a ControllerRevision,
    update: &'a ControllerRevision,
    known: &'a StatefulSetStatus,
}

impl Round<'_> {
    fn act(&self, hands: &mut Hands<'_>, action: &Action) -> ApiResult<()> {
        match action {
            Action::Create(ordinal) => self.create(hands, *ordinal),
            Action::Delete(pod) | Action::Renew(pod) => self.delete(hands, pod),
            Action::EnsureClaims(pod) => self.member_of(pod).map_or(Ok(()), |member| {
                self.create_claims(hands, &member, &pod.key.name)?;
                self.renew_claim_owners(hands, &member, pod)
            }),
            Action::Care(pod) => self.care(hands, pod),
            Action::CareForClaims(pod) => {
                self.member_of(pod).map_or(Ok(()), |member| self.renew_claim_owners(hands, &member, pod))
            }
        }
    }

    fn member(&self, ordinal: i32) -> Member<'_> {
        Member { owner: self.owner, spec: self.spec, ordinal }
    }

    fn member_of(&self, pod: &PodFacts) -> Option<Member<'_>> {
        decide::ordinal_of(self.owner.name(), &pod.key.name).map(|ordinal| self.member(ordinal))
    }

    fn create(&self, hands: &mut Hands<'_>, ordinal: i32) -> ApiResult<()> {
        let member = self.member(ordinal);
        let revision = if self.begins_at_current(ordinal) { self.current } else { self.update };
        let Some(template) = revisions::template_in(revision) else { return Ok(()) };
        let pod = member.pod(&template, name_of(revision));
        let name = member.pod_name();
        if member.claims().iter().any(|claim| self.is_stale(claim)) {
            // Storage of an earlier pod of that name is still on its way out.
            return Ok(());
        }
        let result = self.create_claims(hands, &member, &name).and_then(|()| hands.create(&pod).map(|_| ()));
        if let Err(error) = &result
            && error.reason == "AlreadyExists"
        {
            return result;
        }
        self.tell(hands, "Create", &name, &result);
        result
    }

    /// Members below the partition, or not yet updated, begin with the template that the others of them have.
    fn begins_at_current(&self, ordinal: i32) -> bool {
        let idx = i64::from(ordinal) - i64::from(start_of(self.spec));
        let strategy = self.spec.update_strategy.clone().unwrap_or_default();
        match strategy.rolling_update {
            _ if strategy.type_.as_deref() == Some("OnDelete") => false,
            None => idx < i64::from(self.known.current_replicas.unwrap_or(0)),
            Some(rolling) => idx < i64::from(rolling.partition.unwrap_or(0)),
        }
    }

    fn is_stale(&self, claim: &PersistentVolumeClaim) -> bool {
        let policy = member::policy_of(self.spec);
        let owned_by_a_pod = self
            .world
            .claims
            .get(&key_of(&claim.metadata))
            .is_some_and(|claim| claim.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "Pod"));
        policy.deletes_when_scaled && owned_by_a_pod
    }

    fn delete(&self, hands: &mut Hands<'_>, pod: &PodFacts) -> ApiResult<()> {
        let result = match hands.delete::<Pod>(&pod.key.namespace, &pod.key.name, &serde_json::json!({})) {
            Err(error) if error.code == 404 => Ok(()),
            other => other,
        };
        self.tell(hands, "Delete", &pod.key.name, &result);
        result
    }

    fn create_claims(&self, hands: &mut Hands<'_>, member: &Member<'_>, pod: &str) -> ApiResult<()> {
        for claim in member.claims() {
            let key = key_of(&claim.metadata);
            if let Some(known) = self.world.claims.get(&key) {
                if known.metadata.deletion_timestamp.is_some() {
                    return Err(ApiError::new(409, "Conflict", format!("pvc {} is being deleted", key.name)));
                }
                continue;
            }
            match hands.create(&claim) {
                Ok(_) => {
                    let set = self.owner.name();
                    let note = format!("Create Claim {} Pod {pod} in StatefulSet {set} success", key.name);
                    self.owner.normal(hands, "SuccessfulCreate", note);
                }
                Err(error) if error.reason == "AlreadyExists" => {}
                Err(error) => {
                    let set = self.owner.name();
                    let note = format!(
                        "Create Claim {} for Pod {pod} in StatefulSet {set} failed error: {}",
                        key.name, error.message
                    );
                    self.owner.warn(hands, "FailedCreate", note);
                    let message = format!("failed to create PVC {}: {}", key.name, error.message);
                    return Err(ApiError { message, ..error });
                }
            }
        }
        Ok(())
    }

    /// Puts a member's name, labels and storage right.
    fn care(&self, hands: &mut Hands<'_>, pod: &PodFacts) -> ApiResult<()> {
        let Some(member) = self.member_of(pod) else { return Ok(()) };
        self.renew_claim_owners(hands, &member, pod)?;
        if member.is_identity_right(pod) {
            return Ok(());
        }
        let Some(mut changed) = pod.stored.read::<Pod>() else { return Ok(()) };
        member.identify(&mut changed);
        let result = hands.update(&changed).map(|_| ());
        self.tell(hands, "Update", &pod.key.name, &result);
        result
    }

    fn renew_claim_owners(&self, hands: &mut Hands<'_>, member: &Member<'_>, pod: &PodFacts) -> ApiResult<()> {
        for claim in member.claims() {
            let Some(known) = self.world.claims.get(&key_of(&claim.metadata)) else { continue };
            if let Some(owners) = member.claim_owners(known, pod) {
                let mut changed = known.as_ref().clone();
                changed.metadata.owner_references = Some(owners);
                hands.update(&changed)?;
            }
        }
        Ok(())
    }

    fn tell(&self, hands: &mut Hands<'_>, verb: &str, pod: &str, result: &ApiResult<()>) {
        let set = self.owner.name();
        match result {
            Ok(()) => {
                let note = format!("{verb} Pod {pod} in StatefulSet {set} successful");
                self.owner.normal(hands, &format!("Successful{verb}"), note);
            }
            Err(error) if is_namespace_going(error) => {}
            Err(error) => {
                let note = format!("{verb} Pod {pod} in StatefulSet {set} failed error: {}", error.message);
                self.owner.warn(hands, &format!("Failed{verb}"), note);
            }
        }
    }
}

#[derive(Debug, Default, PartialEq)]
struct Counts {
    replicas: i32,
    ready: i32,
    available: i32,
    current: i32,
    updated: i32,
}

impl Counts {
    fn of(pods: &[Arc<PodFacts>], spec: &StatefulSetSpec, current: &str, update: &str, now: Timestamp) -> Self {
        let mut counts = Self::default();
        for pod in pods {
            counts.replicas += 1;
            if decide::is_running_and_ready(pod) {
                counts.ready += 1;
                counts.available += i32::from(pod.is_available(spec.min_ready_seconds.unwrap_or(0), now));
            }
            if pod.deleted.is_none() {
                let revision = pod.labels.get(REVISION_HASH).map_or("", String::as_str);
                counts.current += i32::from(revision == current);
                counts.updated += i32::from(revision == update);
            }
        }
        counts
    }

    fn status(
        &self,
        set: &StatefulSet,
        spec: &StatefulSetSpec,
        current: &str,
        update: &str,
        collisions: i32,
    ) -> StatefulSetStatus {
        let is_rolling =
            spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete");
        // Once every member is updated and ready, the update is the current revision.
        let is_done = is_rolling && self.updated == self.replicas && self.ready == self.replicas;
        StatefulSetStatus {
            observed_generation: set.metadata.generation,
            replicas: self.replicas,
            ready_replicas: count(self.ready),
            available_replicas: Some(self.available),
            current_replicas: count(if is_done { self.updated } else { self.current }),
            updated_replicas: count(self.updated),
            current_revision: Some(if is_done { update } else { current }.to_owned()),
            update_revision: Some(update.to_owned()),
            collision_count: Some(collisions),
            conditions: set.status.as_ref().and_then(|status| status.conditions.clone()),
        }
    }
}

/// A zero may be left out of what is stored.
fn is_same(a: &StatefulSetStatus, b: &StatefulSetStatus) -> bool {
    let plain = |status: &StatefulSetStatus| StatefulSetStatus {
        available_replicas: Some(status.available_replicas.unwrap_or(0)),
        ..status.clone()
    };
    plain(a) == plain(b)
}
