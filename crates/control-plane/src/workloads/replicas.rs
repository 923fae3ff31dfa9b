//! ReplicaSets and ReplicationControllers: so many pods of one template.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{PodTemplateSpec, ReplicationControllerCondition, ReplicationControllerStatus};

use super::Synced;
use super::facts::{PodFacts, controller_of, count, uid_of, whole_seconds};
use super::owner::{Owner, is_namespace_going};
use super::selector::{Labels, Selector};
use super::world::{World, in_namespace};
use crate::error::ApiError;
use crate::hands::Hands;
use crate::store::Key;

/// Pods created or deleted in one go. The rest follows when these are seen.
const BURST_MAX: usize = 500;

pub(crate) fn sync_replica_set(world: &World, hands: &mut Hands<'_>, key: &Key) -> Synced {
    let Some(set) = world.replica_sets.get(key) else { return Ok(None) };
    let spec = set.spec.clone().unwrap_or_default();
    let wish = Wish {
        replicas: spec.replicas.unwrap_or(1),
        min_ready_seconds: spec.min_ready_seconds.unwrap_or(0),
        selector: Selector::of(&spec.selector),
        template: spec.template.unwrap_or_default(),
    };
    let owner = Owner::of(set.as_ref(), "replicaset-controller");
    let work = manage(world, hands, owner, &wish)?;

    let old = set.status.clone().unwrap_or_default();
    let conditions = conditions_after(
        &old.conditions.clone().unwrap_or_default(),
        work.failure.as_ref(),
        |condition| condition.type_ == FAILURE,
        |failure| ReplicaSetCondition {
            type_: FAILURE.to_owned(),
            status: "True".to_owned(),
            reason: Some(failure.reason.to_owned()),
            message: Some(failure.error.message.clone()),
            last_transition_time: Some(whole_seconds(hands.now())),
        },
    );
    let counts = &work.counts;
    let status = ReplicaSetStatus {
        replicas: counts.replicas,
        fully_labeled_replicas: count(counts.fully_labeled),
        ready_replicas: count(counts.ready),
        available_replicas: count(counts.available),
        terminating_replicas: Some(counts.terminating),
        conditions,
        observed_generation: set.metadata.generation,
    };
    if status != old {
        let mut changed = set.as_ref().clone();
        changed.status = Some(status);
        hands.update_status(&changed)?;
    }
    work.end()
}

pub(crate) fn sync_replication_controller(world: &World, hands: &mut Hands<'_>, key: &Key) -> Synced {
    let Some(set) = world.replication_controllers.get(key) else { return Ok(None) };
    let spec = set.spec.clone().unwrap_or_default();
    let wish = Wish {
        replicas: spec.replicas.unwrap_or(1),
        min_ready_seconds: spec.min_ready_seconds.unwrap_or(0),
        selector: Selector::of_labels(spec.selector.iter().flatten()),
        template: spec.template.unwrap_or_default(),
    };
    let owner = Owner::of(set.as_ref(), "replication-controller");
    let work = manage(world, hands, owner, &wish)?;

    let old = set.status.clone().unwrap_or_default();
    let conditions = conditions_after(
        &old.conditions.clone().unwrap_or_default(),
        work.failure.as_ref(),
        |condition| condition.type_ == FAILURE,
        |failure| ReplicationControllerCondition {
            type_: FAILURE.to_owned(),
            status: "True".to_owned(),
            reason: Some(failure.reason.to_owned()),
            message: Some(failure.error.message.clone()),
            last_transition_time: Some(whole_seconds(hands.now())),
        },
    );
    let counts = &work.counts;
    let status = ReplicationControllerStatus {
        replicas: counts.replicas,
        fully_labeled_replicas: count(counts.fully_labeled),
        ready_replicas: count(counts.ready),
        available_replicas: count(counts.available),
        conditions,
        observed_generation: set.metadata.generation,
    };
    if status != old {
        let mut changed = set.as_ref().clone();
        changed.status = Some(status);
        hands.update_status(&changed)?;
    }
    work.end()
}

const FAILURE: &str = "ReplicaFailure";

struct Wish {
    replicas: i32,
    min_ready_seconds: i32,
    selector: Selector,
    template: PodTemplateSpec,
}

struct Work {
    counts: Counts,
    failure: Option<Failure>,
    /// When the next pod becomes available.
    again: Option<Timestamp>,
}

struct Failure {
    reason: &'static str,
    error: ApiError,
}

impl Work {
    fn end(self) -> Synced {
        match self.failure {
            Some(failure) => Err(failure.error),
            None => Ok(self.again),
        }
    }
}

fn manage(world: &World, hands: &mut Hands<'_>, owner: Owner<'_>, wish: &Wish) -> Result<Work, ApiError> {
    let pods = world.pods.of_owner_or_nobody(owner.uid(), owner.namespace());
    let (active, others): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| pod.is_active());
    let terminating = others
        .iter()
        .filter(|pod| pod.is_terminating() && pod.is_controlled_by(owner.uid()) && wish.selector.matches(&pod.labels))
        .count();
    let active = owner.claim(hands, &wish.selector, active)?;

    let failure = if owner.is_deleting() {
        None
    } else {
        match decide(wish.replicas, &active, &|| pods_of_siblings(world, owner), hands.now()) {
            Action::Nothing => None,
            Action::Create(n) => {
                create(hands, owner, &wish.template, n).err().map(|error| Failure { reason: "FailedCreate", error })
            }
            Action::Delete(pods) => {
                let mut failure = None;
                for pod in pods {
                    if let Err(error) = owner.delete_pod(hands, &pod) {
                        failure.get_or_insert(Failure { reason: "FailedDelete", error });
                    }
                }
                failure
            }
        }
    };
    let template_labels = wish.template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
    let counts = tally(&active, terminating, &template_labels, wish.min_ready_seconds, hands.now());
    let again = next_available(&active, wish.min_ready_seconds, hands.now());
    Ok(Work { counts, failure, again })
}

fn create(hands: &mut Hands<'_>, owner: Owner<'_>, template: &PodTemplateSpec, n: usize) -> Result<(), ApiError> {
    let pod = owner.pod(template);
    for _ in 0..n {
        match owner.create_pod(hands, &pod) {
            Ok(_) => {}
            // Every further one would fail too, and it will all be over soon.
            Err(error) if is_namespace_going(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What has to be done for the number of pods to be right.
#[derive(Debug)]
pub(crate) enum Action {
    Nothing,
    Create(usize),
    Delete(Vec<Arc<PodFacts>>),
}

fn decide(replicas: i32, active: &[Arc<PodFacts>], related: &dyn Fn() -> Vec<Arc<PodFacts>>, now: Timestamp) -> Action {
    let wanted = usize::try_from(replicas).unwrap_or(0);
    match active.len().cmp(&wanted) {
        Ordering::Equal => Action::Nothing,
        Ordering::Less => Action::Create((wanted - active.len()).min(BURST_MAX)),
        Ordering::Greater => {
            let mut pods = rank_for_deletion(active, &related(), now);
            pods.truncate((active.len() - wanted).min(BURST_MAX));
            Action::Delete(pods)
        }
    }
}

/// The order in which pods are given up: those least far in their life first, then the cheapest, those that share their node
/// with most of their kind, and the youngest by magnitude of age.
pub(crate) fn rank_for_deletion(
    pods: &[Arc<PodFacts>],
    related: &[Arc<PodFacts>],
    now: Timestamp,
) -> Vec<Arc<PodFacts>> {
    let mut on_node: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in related.iter().filter(|pod| pod.is_active()) {
        *on_node.entry(pod.node()).or_default() += 1;
    }
    let company = |pod: &PodFacts| on_node.get(pod.node()).copied().unwrap_or(0);
    let mut ranked = pods.to_vec();
    ranked.sort_by(|a, b| {
        let bound = |pod: &PodFacts| !pod.node().is_empty();
        bound(a)
            .cmp(&bound(b))
            .then(a.phase.cmp(&b.phase))
            .then(a.is_ready().cmp(&b.is_ready()))
            .then(a.deletion_cost.cmp(&b.deletion_cost))
            .then(company(b).cmp(&company(a)))
            .then_with(|| match (a.ready_since, b.ready_since) {
                (Some(since_a), Some(since_b)) => magnitude(since_a, now).cmp(&magnitude(since_b, now)),
                (since_a, since_b) => since_a.is_some().cmp(&since_b.is_some()),
            })
            .then(b.restarts.cmp(&a.restarts))
            .then_with(|| magnitude(a.created, now).cmp(&magnitude(b.created, now)))
            // Pods of about the same age are chosen without a pattern.
            .then_with(|| a.uid().cmp(b.uid()))
            .then_with(|| a.key.cmp(&b.key))
    });
    ranked
}

/// An age, by its power of two.
fn magnitude(since: Timestamp, now: Timestamp) -> i64 {
    let nanos = now.duration_since(since).as_nanos();
    u128::try_from(nanos).ok().and_then(u128::checked_ilog2).map_or(-1, i64::from)
}

/// The pods of all sets that share this one's owner, its own among them.
fn pods_of_siblings(world: &World, owner: Owner<'_>) -> Vec<Arc<PodFacts>> {
    let Some(parent) = controller_of(owner.meta) else { return world.pods.of_owner(owner.uid()) };
    in_namespace(&world.replica_sets, owner.namespace())
        .filter(|(_, set)| controller_of(&set.metadata).is_some_and(|theirs| theirs.uid == parent.uid))
        .flat_map(|(_, set)| world.pods.of_owner(uid_of(&set.metadata)))
        .collect()
}

#[derive(Debug, Default, PartialEq)]
struct Counts {
    replicas: i32,
    fully_labeled: i32,
    ready: i32,
    available: i32,
    terminating: i32,
}

fn tally(
    active: &[Arc<PodFacts>],
    terminating: usize,
    template_labels: &Labels,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Counts {
    let n =
        |of: &dyn Fn(&PodFacts) -> bool| i32::try_from(active.iter().filter(|pod| of(pod)).count()).unwrap_or(i32::MAX);
    let template = Selector::of_labels(template_labels);
    Counts {
        replicas: n(&|_| true),
        fully_labeled: n(&|pod| template.matches(&pod.labels)),
        ready: n(&|pod| pod.is_ready()),
        available: n(&|pod| pod.is_available(min_ready_seconds, now)),
        terminating: i32::try_from(terminating).unwrap_or(i32::MAX),
    }
}

/// When the next of these pods will have been ready for long enough.
pub(crate) fn next_available(pods: &[Arc<PodFacts>], min_ready_seconds: i32, now: Timestamp) -> Option<Timestamp> {
    pods.iter().filter_map(|pod| pod.available_from(min_ready_seconds)).filter(|from| *from > now).min()
}

/// The failure condition stays as it was first told while the failure lasts, and goes with it.
fn conditions_after<C: Clone>(
    old: &[C],
    failure: Option<&Failure>,
    is_failure: impl Fn(&C) -> bool,
    tell: impl Fn(&Failure) -> C,
) -> Option<Vec<C>> {
    let mut conditions: Vec<C> = old.to_vec();
    match failure {
        Some(failure) if !conditions.iter().any(&is_failure) => conditions.push(tell(failure)),
        Some(_) => {}
        None => conditions.retain(|condition| !is_failure(condition)),
    }
    (!conditions.is_empty()).then_some(conditions)
}

#[cfg(test)]
mod tests {
    use super::super::facts::testing::pod;
    use super::*;

    fn pods(words: &[&str]) -> Vec<Arc<PodFacts>> {
        words.iter().map(|words| Arc::new(pod(words))).collect()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn pods_are_given_up_in_the_real_order() {
        // Each row names the pod that goes first.
        for (first, second) in [
            ("a", "b node=n"),
            ("a node=n", "b node=n running"),
            ("a node=n running", "b node=n running ready=10"),
            ("a node=n running ready=10 cost=-1", "b node=n running ready=10"),
            ("a node=n running ready=900", "b node=n running ready=10"),
            ("a node=n running restarts=2", "b node=n running"),
            ("a node=n running created=900", "b node=n running created=10"),
            // About the same age: by uid, whoever is older.
            ("a node=n running created=10", "b node=n running created=11"),
            ("a node=n running created=11", "b node=n running created=10"),
        ] {
            for order in [[first, second], [second, first]] {
                let ranked = rank_for_deletion(&pods(&order), &[], at(1000));
                assert_eq!(ranked[0].key.name, "a", "{order:?}");
            }
        }
    }

    #[test]
    fn a_pod_with_more_of_its_kind_on_its_node_goes_first() {
        let mine = pods(&["a node=full running", "b node=lonely running"]);
        let related =
            pods(&["a node=full running", "b node=lonely running", "c node=full running", "d node=lonely failed"]);
        assert_eq!(rank_for_deletion(&mine, &related, at(1000))[0].key.name, "a");
    }

    #[test]
    fn the_right_number_of_pods_is_created_or_deleted() {
        let three = pods(&["a", "b node=n running", "c node=n running ready=1"]);
        let names = |action: Action| match action {
            Action::Nothing => "nothing".to_owned(),
            Action::Create(n) => format!("create {n}"),
            Action::Delete(pods) => pods.iter().map(|pod| pod.key.name.clone()).collect::<Vec<_>>().join(" "),
        };
        for (replicas, expected) in
            [(3, "nothing"), (5, "create 2"), (2, "a"), (1, "a b"), (0, "a b c"), (-1, "a b c"), (9999, "create 500")]
        {
            assert_eq!(names(decide(replicas, &three, &Vec::new, at(1000))), expected, "{replicas}");
        }
    }

    #[test]
    fn counts_tell_ready_from_available_and_labels_from_lookalikes() {
        let active = pods(&["a running ready=10 label:app=web label:x=1", "b running ready=98 label:app=other", "c"]);
        let labels = [("app".to_owned(), "web".to_owned())].into();
        assert_eq!(
            tally(&active, 2, &labels, 10, at(100)),
            Counts { replicas: 3, fully_labeled: 1, ready: 2, available: 1, terminating: 2 }
        );
        assert_eq!(next_available(&active, 10, at(100)), Some(at(108)));
        assert_eq!(next_available(&active, 0, at(100)), None);
    }
}
