//! DaemonSets: one pod on every node that it may run on.

mod decide;
mod place;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec, DaemonSetStatus};

use self::decide::{Limits, NodeView, Picture, Step};
use super::Synced;
use super::facts::{Phase, PodFacts, count};
use super::owner::{Owner, is_namespace_going};
use super::replicas::next_available;
use super::revisions::{self, Outcome, REVISION_HASH, label_of, name_of};
use super::selector::Selector;
use super::world::World;
use crate::error::{ApiError, ApiResult};
use crate::hands::Hands;
use crate::store::Key;

const COMPONENT: &str = "daemonset-controller";
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// How long to leave a failed pod on a node before the next try, so that the controller and a kubelet that refuses do not chase
/// each other. By DaemonSet and node.
#[derive(Debug, Default)]
pub(crate) struct Patience(BTreeMap<(Key, String), (Timestamp, SignedDuration)>);

impl Patience {
    const FIRST: SignedDuration = SignedDuration::from_secs(1);
    const LONGEST: SignedDuration = SignedDuration::from_mins(15);

    /// None when the pod may be replaced now, else when it may be.
    fn ask(&mut self, set: &Key, node: &str, now: Timestamp) -> Option<Timestamp> {
        let entry = (set.clone(), node.to_owned());
        let wait = match self.0.get(&entry) {
            Some((last, wait)) => {
                let until = last.saturating_add(*wait).unwrap_or(Timestamp::MAX);
                if now < until {
                    return Some(until);
                }
                // A node that was fine for long begins anew.
                if now.duration_since(*last) > Self::LONGEST.saturating_mul(2) {
                    Self::FIRST
                } else {
                    wait.saturating_mul(2).min(Self::LONGEST)
                }
            }
            None => Self::FIRST,
        };
        self.0.insert(entry, (now, wait));
        None
    }

    pub(crate) fn forget(&mut self, set: &Key) {
        self.0.retain(|(known, _), _| known != set);
    }
}

pub(crate) fn sync(world: &World, hands: &mut Hands<'_>, key: &Key, patience: &mut Patience) -> Synced {
    let Some(set) = world.daemon_sets.get(key) else {
        patience.forget(key);
        return Ok(None);
    };
    let owner = Owner::of(set.as_ref(), COMPONENT);
    let spec = set.spec.clone().unwrap_or_default();
    let selector = Selector::of(&spec.selector);
    if selector.is_empty() {
        let note = "This daemon set is selecting all pods. A non-empty selector is required.".to_owned();
        owner.warn(hands, "SelectingAll", note);
        return Ok(None);
    }
    if owner.is_deleting() {
        return Ok(None);
    }
    let candidates = world.pods.of_owner_or_nobody(owner.uid(), owner.namespace());
    let pods = owner.claim(hands, &selector, candidates)?;
    let history = revisions::history(world, owner);
    let old = set.status.clone().unwrap_or_default();
    let current = match revisions::ensure(hands, owner, &history, &spec.template, old.collision_count, REVISION_HASH)? {
        Outcome::Found(revision) => revision,
        Outcome::Collision => {
            let mut changed = set.as_ref().clone();
            let status = changed.status.get_or_insert_default();
            status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
            hands.update_status(&changed)?;
            return Ok(Some(hands.now()));
        }
    };
    let mut round = Round { owner, spec: &spec, set, hash: label_of(&current, REVISION_HASH), again: None };
    let picture = round.picture(world, &pods, hands.now());
    let result = round.work(hands, &picture, patience);
    if result.is_ok() {
        let in_use = revisions::in_use(pods.iter().map(|pod| &*pod.labels));
        let live = |revision: &ControllerRevision| {
            name_of(revision) == name_of(&current) || in_use.contains(label_of(revision, REVISION_HASH))
        };
        revisions::truncate(hands, &history, &live, spec.revision_history_limit)?;
    }
    let status = decide::tally(&picture).status(set, &old);
    if status != old {
        let mut changed = set.as_ref().clone();
        changed.status = Some(status);
        hands.update_status(&changed)?;
    }
    match result {
        Err(error) if is_namespace_going(&error) => Ok(None),
        Err(error) => Err(error),
        Ok(()) => {
            let available = next_available(&pods, spec.min_ready_seconds.unwrap_or(0), hands.now());
            Ok(round.again.into_iter().chain(available).min())
        }
    }
}

struct Round<'a> {
    owner: Owner<'a>,
    spec: &'a DaemonSetSpec,
    set: &'a DaemonSet,
    hash: &'a str,
    again: Option<Timestamp>,
}

impl Round<'_> {
    fn generation(&self) -> Option<&str> {
        self.set.metadata.annotations.as_ref()?.get(TEMPLATE_GENERATION).map(String::as_str)
    }

    fn picture(&self, world: &World, pods: &[Arc<PodFacts>], now: Timestamp) -> Picture {
        let mut by_node: BTreeMap<String, Vec<Arc<PodFacts>>> = BTreeMap::new();
        for pod in pods {
            // One that ended and is being deleted is somebody else's business already.
            if pod.is_finished() && pod.deleted.is_some() {
                continue;
            }
            if let Some(node) = place::target_node(pod) {
                by_node.entry(node).or_default().push(Arc::clone(pod));
            }
        }
        let pod_spec = place::daemon_spec(&self.spec.template);
        let mut nodes = Vec::with_capacity(world.nodes.len());
        for (name, node) in &world.nodes {
            let pods = by_node.remove(name).unwrap_or_default();
            nodes.push(NodeView { name: name.clone(), fit: place::fit(&pod_spec, node), pods, exists: true });
        }
        nodes.extend(by_node.into_iter().map(|(name, pods)| NodeView {
            name,
            fit: place::Fit { may_start: false, may_stay: false },
            pods,
            exists: false,
        }));
        for node in &mut nodes {
            // Bound ones first, then the oldest.
            node.pods.sort_by(|a, b| {
                a.node()
                    .is_empty()
                    .cmp(&b.node().is_empty())
                    .then(a.created.cmp(&b.created))
                    .then_with(|| a.key.name.cmp(&b.key.name))
            });
        }
        let n_desired = nodes.iter().filter(|node| node.fit.may_start).count();
        Picture {
            nodes,
            limits: Limits::of(self.spec, n_desired),
            hash: self.hash.to_owned(),
            generation: self.generation().map(str::to_owned),
            min_ready_seconds: self.spec.min_ready_seconds.unwrap_or(0),
            now,
        }
    }

    fn work(&mut self, hands: &mut Hands<'_>, picture: &Picture, patience: &mut Patience) -> ApiResult<()> {
        let steps = decide::manage(picture);
        let did = self.take(hands, &steps, patience)?;
        if did {
            // An update waits until every node has what it should have.
            return Ok(());
        }
        let steps = decide::update(picture);
        self.take(hands, &steps, patience).map(|_| ())
    }

    /// Returns whether anything was done.
    fn take(&mut self, hands: &mut Hands<'_>, steps: &[Step], patience: &mut Patience) -> ApiResult<bool> {
        let mut failure: Option<ApiError> = None;
        let mut did = false;
        for step in steps {
            let result = match step {
                Step::Start(node) => {
                    did = true;
                    let template = place::template_for(&self.spec.template, node, self.hash, self.generation());
                    self.owner.create_pod(hands, &self.owner.pod(&template)).map(|_| ())
                }
                Step::Stop(pod) => {
                    did = true;
                    self.owner.delete_pod(hands, pod)
                }
                Step::Clear { pod, node } => {
                    let key = super::facts::key_of(self.owner.meta);
                    let until = (pod.phase == Phase::Failed).then(|| patience.ask(&key, node, hands.now())).flatten();
                    if let Some(until) = until {
                        self.again = self.again.into_iter().chain([until]).min();
                        continue;
                    }
                    did = true;
                    let (namespace, name) = (&pod.key.namespace, &pod.key.name);
                    if pod.phase == Phase::Failed {
                        let note =
                            format!("Found failed daemon pod {namespace}/{name} on node {node}, will try to kill it");
                        self.owner.warn(hands, "FailedDaemonPod", note);
                    } else {
                        let note = format!(
                            "Found succeeded daemon pod {namespace}/{name} on node {node}, will try to delete it"
                        );
                        self.owner.normal(hands, "SucceededDaemonPod", note);
                    }
                    self.owner.delete_pod(hands, pod)
                }
            };
            if let Err(error) = result {
                let is_creation = matches!(step, Step::Start(_));
                failure.get_or_insert(error);
                if is_creation {
                    // The next one would most likely fail for the same reason.
                    break;
                }
            }
        }
        failure.map_or(Ok(did), Err)
    }
}

impl decide::Counts {
    fn status(&self, set: &DaemonSet, old: &DaemonSetStatus) -> DaemonSetStatus {
        DaemonSetStatus {
            desired_number_scheduled: self.desired,
            current_number_scheduled: self.current,
            number_misscheduled: self.misscheduled,
            number_ready: self.ready,
            updated_number_scheduled: count(self.updated),
            number_available: count(self.available),
            number_unavailable: count(self.desired - self.available),
            observed_generation: set.metadata.generation,
            collision_count: old.collision_count,
            conditions: old.conditions.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_with_a_node_doubles_and_is_forgotten() {
        let mut patience = Patience::default();
        let set = Key::new("a", "b");
        let at = |millis| Timestamp::from_millisecond(millis).unwrap();
        assert_eq!(patience.ask(&set, "n", at(0)), None);
        assert_eq!(patience.ask(&set, "n", at(999)), Some(at(1000)));
        assert_eq!(patience.ask(&set, "other", at(999)), None);
        assert_eq!(patience.ask(&set, "n", at(1000)), None);
        assert_eq!(patience.ask(&set, "n", at(1001)), Some(at(3000)));
        // An hour later it is as if nothing had happened.
        assert_eq!(patience.ask(&set, "n", at(3_600_000)), None);
        assert_eq!(patience.ask(&set, "n", at(3_600_001)), Some(at(3_601_000)));
        patience.forget(&set);
        assert!(patience.0.is_empty());
    }
}
