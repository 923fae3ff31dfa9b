//! PodDisruptionBudgets: how many of the pods they cover may be disrupted now.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::Synced;
use super::facts::{PodFacts, after, controller_of, uid_of, whole_seconds};
use super::owner::Owner;
use super::selector::Selector;
use super::share::scaled;
use super::world::World;
use crate::hands::Hands;
use crate::store::Key;

const COMPONENT: &str = "controllermanager";

/// How long a pod whose eviction was granted may take to be deleted before the grant is taken back.
const DELETION_SECONDS: i64 = 120;

pub(crate) fn sync(world: &World, hands: &mut Hands<'_>, key: &Key) -> Synced {
    let Some(budget) = world.budgets.get(key) else { return Ok(None) };
    let owner = Owner::of(budget.as_ref(), COMPONENT);
    let spec = budget.spec.clone().unwrap_or_default();
    let pods = covered(world, key, &spec);
    if pods.is_empty() {
        owner.normal(hands, "NoPods", "No matching pods found".to_owned());
    }
    let old = budget.status.clone().unwrap_or_default();
    let now = hands.now();
    let (status, again) = match expect(world, &spec, &pods) {
        Ok(expected) => {
            if expected.n_unmanaged > 0 {
                owner.warn(hands, "UnmanagedPods", unmanaged_note(spec.selector.as_ref()));
            }
            let (disrupted, again) = still_disrupted(&old, &pods, now);
            let healthy = n_healthy(&pods, &disrupted);
            (told(budget, &old, expected, healthy, disrupted, now), again)
        }
        Err(trouble) => {
            let note = format!("Failed to calculate the number of expected pods: {trouble}");
            owner.warn(hands, "CalculateExpectedPodCountFailed", note);
            (failed(&old, &trouble, now), None)
        }
    };
    if !is_same(&status, &old) {
        let mut changed = budget.as_ref().clone();
        changed.status = Some(status);
        hands.update_status(&changed)?;
    }
    Ok(again)
}

/// A zero may be left out of what is stored.
fn is_same(a: &PodDisruptionBudgetStatus, b: &PodDisruptionBudgetStatus) -> bool {
    let plain = |status: &PodDisruptionBudgetStatus| PodDisruptionBudgetStatus {
        current_healthy: Some(status.current_healthy.unwrap_or(0)),
        desired_healthy: Some(status.desired_healthy.unwrap_or(0)),
        expected_pods: Some(status.expected_pods.unwrap_or(0)),
        disruptions_allowed: Some(status.disruptions_allowed.unwrap_or(0)),
        ..status.clone()
    };
    plain(a) == plain(b)
}

/// No selector covers nothing, an empty one every pod of the namespace.
fn covered(world: &World, key: &Key, spec: &PodDisruptionBudgetSpec) -> Vec<Arc<PodFacts>> {
    let Some(selector) = spec.selector.as_ref().map(Selector::of) else { return Vec::new() };
    world.pods.in_namespace(&key.namespace).filter(|pod| selector.matches(&pod.labels)).cloned().collect()
}

/// Whether a budget covers a pod with these labels.
pub(crate) fn covers(budget: &PodDisruptionBudget, pod: &PodFacts) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector.is_some_and(|selector| Selector::of(selector).matches(&pod.labels))
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Expected {
    pods: i32,
    healthy: i32,
    n_unmanaged: usize,
}

fn expect(world: &World, spec: &PodDisruptionBudgetSpec, pods: &[Arc<PodFacts>]) -> Result<Expected, String> {
    if let Some(max_unavailable) = &spec.max_unavailable {
        let (total, n_unmanaged) = total_scale(world, pods)?;
        let unavailable = scaled(max_unavailable, total, true).ok_or_else(|| not_a_share(max_unavailable))?;
        return Ok(Expected { pods: total, healthy: total.saturating_sub(unavailable).max(0), n_unmanaged });
    }
    match &spec.min_available {
        None => Ok(Expected::default()),
        Some(IntOrString::Int(healthy)) => {
            let n = i32::try_from(pods.len()).unwrap_or(i32::MAX);
            Ok(Expected { pods: n, healthy: *healthy, n_unmanaged: 0 })
        }
        Some(share @ IntOrString::String(_)) => {
            let (total, n_unmanaged) = total_scale(world, pods)?;
            let healthy = scaled(share, total, true).ok_or_else(|| not_a_share(share))?;
            Ok(Expected { pods: total, healthy, n_unmanaged })
        }
    }
}

fn not_a_share(value: &IntOrString) -> String {
    let value = match value {
        IntOrString::Int(n) => n.to_string(),
        IntOrString::String(text) => text.clone(),
    };
    format!("invalid value for IntOrString: invalid type: string is not a percentage ({value})")
}

/// The sum of what the pods' controllers want, and how many pods have none.
fn total_scale(world: &World, pods: &[Arc<PodFacts>]) -> Result<(i32, usize), String> {
    let mut scales: BTreeMap<String, i32> = BTreeMap::new();
    let mut n_unmanaged = 0;
    for pod in pods {
        let Some(owner) = &pod.owner else {
            n_unmanaged += 1;
            continue;
        };
        let (uid, scale) = scale_of(world, &pod.key.namespace, owner)?
            .ok_or_else(|| format!("found no controllers for pod \"{}\"", pod.key.name))?;
        scales.insert(uid, scale);
    }
    Ok((scales.values().fold(0, |sum, scale| sum.saturating_add(*scale)), n_unmanaged))
}

fn scale_of(world: &World, namespace: &str, owner: &OwnerReference) -> Result<Option<(String, i32)>, String> {
    let key = Key::new(namespace, &owner.name);
    let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let scale = match (group, owner.kind.as_str()) {
        ("", "ReplicationController") => world.replication_controllers.get(&key).map(|set| {
            (uid_of(&set.metadata).to_owned(), set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1))
        }),
        ("apps" | "extensions", "ReplicaSet") => match world.replica_sets.get(&key) {
            Some(set) if uid_of(&set.metadata) == owner.uid => {
                // What counts is the Deployment, where there is one: its ReplicaSets come and go.
                let parent = controller_of(&set.metadata).filter(|parent| parent.kind == "Deployment");
                return Ok(match parent {
                    Some(parent) => world.deployments.get(&Key::new(namespace, &parent.name)).and_then(|deployment| {
                        let uid = uid_of(&deployment.metadata).to_owned();
                        let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
                        (uid == parent.uid).then_some((uid, replicas))
                    }),
                    None => Some((owner.uid.clone(), super::deployment::rollout::wanted_of(set))),
                });
            }
            _ => None,
        },
        ("apps", "StatefulSet") => world.stateful_sets.get(&key).map(|set| {
            (uid_of(&set.metadata).to_owned(), set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1))
        }),
        ("apps", "DaemonSet") => return Err("daemonsets.apps does not implement the scale subresource".to_owned()),
        ("batch", "Job") => return Err("jobs.batch does not implement the scale subresource".to_owned()),
        ("", "Node") => return Err("nodes does not implement the scale subresource".to_owned()),
        (_, kind) => return Err(format!("no matches for kind \"{kind}\" in version \"{}\"", owner.api_version)),
    };
    Ok(scale.filter(|(uid, _)| *uid == owner.uid))
}

/// The evictions that were granted and not yet carried out, and when to look at them again.
fn still_disrupted(
    old: &PodDisruptionBudgetStatus,
    pods: &[Arc<PodFacts>],
    now: Timestamp,
) -> (BTreeMap<String, Time>, Option<Timestamp>) {
    let mut still = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.deleted.is_none()) {
        let granted = old.disrupted_pods.as_ref().and_then(|disrupted| disrupted.get(&pod.key.name));
        if let Some(at) = granted.filter(|at| after(at.0, DELETION_SECONDS) >= now) {
            still.insert(pod.key.name.clone(), at.clone());
        }
    }
    // A moment later, so that the grant has run out by then.
    let again = still.values().map(|at| after(at.0, DELETION_SECONDS + 1)).min();
    (still, again)
}

fn n_healthy(pods: &[Arc<PodFacts>], disrupted: &BTreeMap<String, Time>) -> i32 {
    let healthy = pods
        .iter()
        .filter(|pod| pod.deleted.is_none() && !disrupted.contains_key(&pod.key.name) && pod.is_ready())
        .count();
    i32::try_from(healthy).unwrap_or(i32::MAX)
}

fn told(
    budget: &PodDisruptionBudget,
    old: &PodDisruptionBudgetStatus,
    expected: Expected,
    healthy: i32,
    disrupted: BTreeMap<String, Time>,
    now: Timestamp,
) -> PodDisruptionBudgetStatus {
    let spare = healthy.saturating_sub(expected.healthy);
    // A budget that covers nothing yet allows nothing: its first pods may come any moment.
    let allowed = if expected.pods > 0 { spare.max(0) } else { 0 };
    let (status, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(expected.healthy),
        expected_pods: Some(expected.pods),
        disruptions_allowed: Some(allowed),
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        observed_generation: budget.metadata.generation,
        conditions: with_condition(old, status, reason, "", budget.metadata.generation, now),
    }
}

/// When the numbers cannot be known, nothing is allowed.
fn failed(old: &PodDisruptionBudgetStatus, trouble: &str, now: Timestamp) -> PodDisruptionBudgetStatus {
    PodDisruptionBudgetStatus {
        disruptions_allowed: Some(0),
        conditions: with_condition(old, "False", "SyncFailed", trouble, old.observed_generation, now),
        ..old.clone()
    }
}

fn with_condition(
    old: &PodDisruptionBudgetStatus,
    status: &str,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) -> Option<Vec<Condition>> {
    const KIND: &str = "DisruptionAllowed";
    let mut conditions = old.conditions.clone().unwrap_or_default();
    let known = conditions.iter_mut().find(|condition| condition.type_ == KIND);
    let since = match &known {
        Some(known) if known.status == status => known.last_transition_time.clone(),
        _ => whole_seconds(now),
    };
    let condition = Condition {
        type_: KIND.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: since,
    };
    match known {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
    Some(conditions)
}

fn unmanaged_note(selector: Option<&LabelSelector>) -> String {
    let selector = selector.map_or("nil".to_owned(), |selector| {
        let labels: String =
            selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}: {value},")).collect();
        let expressions: String = selector
            .match_expressions
            .iter()
            .flatten()
            .map(|e| {
                let values = e.values.clone().unwrap_or_default().join(" ");
                format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", e.key, e.operator)
            })
            .collect();
        format!(
            "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
             MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
        )
    });
    format!(
        "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a result, the status \
         of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please \
         set \".spec.minAvailable\" field of the PDB to an integer value."
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::facts::testing::pod;
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn world() -> World {
        let mut world = World::default();
        let owned =
            json!([{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "web", "controller": true }]);
        let set = |name: &str, owners: Value, replicas: i32| {
            let set = json!({ "metadata": { "name": name, "uid": name, "ownerReferences": owners },
                              "spec": { "replicas": replicas, "selector": {} } });
            (Key::new("default", name), Arc::new(serde_json::from_value(set).unwrap()))
        };
        world.replica_sets.extend([set("web-1", owned.clone(), 4), set("web-2", owned, 2), set("lone", json!([]), 3)]);
        let deployment = json!({ "metadata": { "name": "web", "uid": "web" },
                                 "spec": { "replicas": 5, "selector": {}, "template": {} } });
        world.deployments.insert(Key::new("default", "web"), Arc::new(serde_json::from_value(deployment).unwrap()));
        world
    }

    fn owned_by(words: &str, kind: &str, name: &str) -> Arc<PodFacts> {
        let mut pod = pod(words);
        pod.owner = Some(Box::new(OwnerReference {
            api_version: if kind == "Foo" { "x.io/v1" } else { "apps/v1" }.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        }));
        Arc::new(pod)
    }

    fn spec(value: Value) -> PodDisruptionBudgetSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_is_expected_follows_from_the_controllers_scale() {
        let pods = [
            owned_by("a", "ReplicaSet", "web-1"),
            owned_by("b", "ReplicaSet", "web-2"),
            owned_by("c", "ReplicaSet", "lone"),
            Arc::new(pod("d")),
        ];
        for (given, expected) in [
            // Deployment of 5 and a set of 3.
            (json!({ "maxUnavailable": 1 }), Ok((8, 7, 1))),
            (json!({ "maxUnavailable": "25%" }), Ok((8, 6, 1))),
            (json!({ "maxUnavailable": "30%" }), Ok((8, 5, 1))),
            (json!({ "maxUnavailable": 9 }), Ok((8, 0, 1))),
            (json!({ "minAvailable": "50%" }), Ok((8, 4, 1))),
            (json!({ "minAvailable": 2 }), Ok((4, 2, 0))),
            (json!({}), Ok((0, 0, 0))),
        ] {
            let result = expect(&world(), &spec(given.clone()), &pods).map(|e| (e.pods, e.healthy, e.n_unmanaged));
            assert_eq!(result, expected, "{given}");
        }
        for (kind, trouble) in [
            ("ReplicaSet", "found no controllers for pod \"a\""),
            ("DaemonSet", "daemonsets.apps does not implement the scale subresource"),
            ("Foo", "no matches for kind \"Foo\" in version \"x.io/v1\""),
        ] {
            let result = expect(&world(), &spec(json!({ "maxUnavailable": 1 })), &[owned_by("a", kind, "gone")]);
            assert_eq!(result.unwrap_err(), trouble);
        }
    }

    #[test]
    fn a_granted_eviction_counts_until_it_is_carried_out_or_runs_out() {
        let old: PodDisruptionBudgetStatus = serde_json::from_value(json!({
            "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0, "disruptionsAllowed": 0,
            "disruptedPods": { "a": "1970-01-01T00:00:10Z", "b": "1970-01-01T00:00:10Z", "gone": "1970-01-01T00:00:10Z" },
        }))
        .unwrap();
        let pods: Vec<_> = ["a running ready=1", "b running ready=1 deleted", "c running ready=1", "d running"]
            .map(|words| Arc::new(pod(words)))
            .into();
        let (still, again) = still_disrupted(&old, &pods, at(100));
        assert_eq!((still.keys().cloned().collect::<Vec<_>>(), again), (vec!["a".to_owned()], Some(at(131))));
        assert_eq!(n_healthy(&pods, &still), 1);
        let (still, again) = still_disrupted(&old, &pods, at(131));
        assert_eq!((still.len(), again, n_healthy(&pods, &still)), (0, None, 2));
    }

    #[test]
    fn the_condition_tells_whether_anything_is_allowed() {
        let budget: PodDisruptionBudget = serde_json::from_value(json!({ "metadata": { "generation": 3 } })).unwrap();
        let old = PodDisruptionBudgetStatus::default();
        let tell = |pods, wanted, healthy| {
            let expected = Expected { pods, healthy: wanted, n_unmanaged: 0 };
            let status = told(&budget, &old, expected, healthy, BTreeMap::new(), at(5));
            let condition = &status.conditions.as_ref().unwrap()[0];
            format!("{} {} {}", status.disruptions_allowed.unwrap(), condition.status, condition.reason)
        };
        assert_eq!(tell(3, 2, 3), "1 True SufficientPods");
        assert_eq!(tell(3, 2, 2), "0 False InsufficientPods");
        assert_eq!(tell(3, 2, 1), "0 False InsufficientPods");
        assert_eq!(tell(0, 0, 1), "0 False InsufficientPods");
        let failed = failed(&old, "no", at(5));
        let condition = &failed.conditions.as_ref().unwrap()[0];
        assert_eq!((condition.reason.as_str(), condition.message.as_str()), ("SyncFailed", "no"));
    }
}
