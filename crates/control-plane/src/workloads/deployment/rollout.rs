//! How many pods each ReplicaSet of a Deployment should have: pure arithmetic, without a cluster.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::super::facts::created_of;
use super::super::share::scaled;
use super::{DESIRED_REPLICAS, MAX_REPLICAS};

/// What the Deployment asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wish {
    pub(crate) replicas: i32,
    /// None for `Recreate`.
    pub(crate) rolling: Option<Rolling>,
    /// The replicas its status last told of: a base for proportions where a set does not tell its own.
    pub(crate) known_replicas: i32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rolling {
    pub(crate) surge: i32,
    pub(crate) unavailable: i32,
}

/// A ReplicaSet, as far as the arithmetic goes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Set {
    pub(crate) name: String,
    pub(crate) created: i64,
    pub(crate) wanted: i32,
    pub(crate) available: i32,
    pub(crate) desired_annotation: Option<i32>,
    pub(crate) max_annotation: Option<i32>,
}

/// A ReplicaSet's next size. A forced one also renews the annotations where the size is right already.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resize {
    pub(crate) set: String,
    pub(crate) to: i32,
    pub(crate) force: bool,
}

impl Wish {
    pub(crate) fn of(deployment: &Deployment) -> Self {
        let spec = deployment.spec.clone().unwrap_or_default();
        let replicas = spec.replicas.unwrap_or(1);
        let strategy = spec.strategy.unwrap_or_default();
        let rolling = (strategy.type_.as_deref() != Some("Recreate")).then(|| {
            let rolling = strategy.rolling_update.unwrap_or_default();
            let surge = rolling.max_surge.and_then(|value| scaled(&value, replicas, true)).unwrap_or(0);
            let unavailable = rolling.max_unavailable.and_then(|value| scaled(&value, replicas, false)).unwrap_or(0);
            // Both may round to nothing, and then nothing would ever move.
            Rolling { surge, unavailable: if surge == 0 && unavailable == 0 { 1 } else { unavailable } }
        });
        let known_replicas = deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or(0);
        Self { replicas, rolling, known_replicas }
    }

    pub(crate) fn max_surge(&self) -> i32 {
        self.rolling.map_or(0, |rolling| rolling.surge)
    }

    pub(crate) fn max_unavailable(&self) -> i32 {
        if self.replicas == 0 { 0 } else { self.rolling.map_or(0, |rolling| rolling.unavailable.min(self.replicas)) }
    }

    /// The most pods there may be during a rollout.
    pub(crate) fn max_replicas(&self) -> i32 {
        self.replicas.saturating_add(self.max_surge())
    }

    fn min_available(&self) -> i32 {
        self.replicas - self.max_unavailable()
    }
}

impl Set {
    pub(crate) fn of(set: &ReplicaSet) -> Self {
        let annotation = |name: &str| {
            let value = set.metadata.annotations.as_ref()?.get(name)?;
            value.parse::<i32>().ok().filter(|number| *number >= 0)
        };
        Self {
            name: set.metadata.name.clone().unwrap_or_default(),
            created: created_of(&set.metadata).as_second(),
            wanted: wanted_of(set),
            available: set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0),
            desired_annotation: annotation(DESIRED_REPLICAS),
            max_annotation: annotation(MAX_REPLICAS),
        }
    }

    fn is_active(&self) -> bool {
        self.wanted > 0
    }

    fn resize(&self, to: i32) -> Resize {
        Resize { set: self.name.clone(), to, force: false }
    }
}

pub(crate) fn wanted_of(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

fn total(sets: &[Set]) -> i32 {
    sets.iter().fold(0, |sum, set| sum.saturating_add(set.wanted))
}

/// Whether the Deployment was resized since its sets were: then the sets are resized first, and the rollout goes on after.
pub(crate) fn is_scaling(wish: &Wish, new: Option<&Set>, old: &[Set]) -> bool {
    new.into_iter()
        .chain(old)
        .filter(|set| set.is_active())
        .any(|set| set.desired_annotation.is_some_and(|desired| desired != wish.replicas))
}

/// The size with which a set begins, or to which the newest one may grow now. `others` is what all other sets want.
pub(crate) fn new_size(wish: &Wish, wanted: i32, others: i32) -> i32 {
    if wish.rolling.is_none() {
        return wish.replicas;
    }
    let room = wish.max_replicas() - wanted.saturating_add(others);
    if room <= 0 { wanted } else { wanted + room.min(wish.replicas - wanted) }
}

/// The next step up of a rolling update: the newest set grows, or shrinks if it is too large.
pub(crate) fn step_up(wish: &Wish, new: &Set, old: &[Set]) -> Option<Resize> {
    let to = if new.wanted > wish.replicas { wish.replicas } else { new_size(wish, new.wanted, total(old)) };
    (to != new.wanted).then(|| new.resize(to))
}

/// The next step down: first what is not available anyway, then as many as availability allows, the oldest set first.
pub(crate) fn step_down(wish: &Wish, new: &Set, old: &[Set]) -> Vec<Resize> {
    let mut old: Vec<Set> = old.iter().filter(|set| set.is_active()).cloned().collect();
    old.sort_by(|a, b| a.created.cmp(&b.created).then_with(|| a.name.cmp(&b.name)));
    let before: Vec<i32> = old.iter().map(|set| set.wanted).collect();

    // A set that was just made smaller still tells of the pods that it is giving up: they are not to be counted on.
    if old.iter().any(|set| set.available > set.wanted) {
        return Vec::new();
    }
    let new = &Set { available: new.available.min(new.wanted), ..new.clone() };
    // Pods of the new set that are not available yet must not cost old ones that are.
    let budget = new.wanted.saturating_add(total(&old)) - wish.min_available() - (new.wanted - new.available);
    if budget <= 0 {
        return Vec::new();
    }
    let mut cleaned = 0;
    for set in &mut old {
        let unhealthy = set.wanted - set.available;
        if unhealthy > 0 {
            let n = unhealthy.min(budget - cleaned);
            set.wanted -= n;
            cleaned += n;
        }
    }
    let available = old.iter().fold(new.available, |sum, set| sum.saturating_add(set.available));
    let mut spare = available - wish.min_available();
    for set in &mut old {
        if spare <= 0 {
            break;
        }
        let n = set.wanted.min(spare);
        set.wanted -= n;
        spare -= n;
    }
    old.iter()
        .zip(before)
        .filter(|(set, before)| set.wanted != *before)
        .map(|(set, _)| set.resize(set.wanted))
        .collect()
}

/// Sizes after the Deployment was resized, or while it is paused: the change is spread over all active sets, so that a rollout
/// that is under way stays as far as it is.
pub(crate) fn scale(wish: &Wish, new: Option<&Set>, old: &[Set]) -> Vec<Resize> {
    let mut newest_first: Vec<&Set> = old.iter().collect();
    newest_first.sort_by(|a, b| b.created.cmp(&a.created).then_with(|| b.name.cmp(&a.name)));
    let active: Vec<&Set> = newest_first.iter().copied().chain(new).filter(|set| set.is_active()).collect();
    let only = match active.as_slice() {
        [] => new.or(newest_first.first().copied()),
        [one] => Some(*one),
        _ => None,
    };
    if let Some(only) = only {
        return if only.wanted == wish.replicas { Vec::new() } else { vec![only.resize(wish.replicas)] };
    }
    if new.is_some_and(|new| is_saturated(wish, new)) {
        return newest_first.iter().filter(|set| set.is_active()).map(|set| set.resize(0)).collect();
    }
    if wish.rolling.is_some() { proportional(wish, active) } else { Vec::new() }
}

fn is_saturated(wish: &Wish, set: &Set) -> bool {
    set.wanted == wish.replicas && set.desired_annotation == Some(wish.replicas) && set.available == wish.replicas
}

fn proportional(wish: &Wish, mut active: Vec<&Set>) -> Vec<Resize> {
    let allowed = if wish.replicas > 0 { wish.max_replicas() } else { 0 };
    let to_add = allowed - active.iter().fold(0_i32, |sum, set| sum.saturating_add(set.wanted));
    // The largest first; among equals the newer one grows first, and the older one shrinks first.
    active.sort_by(|a, b| {
        let age = a.created.cmp(&b.created).then_with(|| a.name.cmp(&b.name));
        b.wanted.cmp(&a.wanted).then(if to_add > 0 { age.reverse() } else { age })
    });
    let mut added = 0_i32;
    let mut sizes: Vec<i32> = Vec::with_capacity(active.len());
    for set in &active {
        let left = to_add - added;
        let share = match to_add {
            0 => 0,
            1.. => fraction(wish, set).min(left),
            _ => fraction(wish, set).max(left),
        };
        let share = if left == 0 { 0 } else { share };
        added += share;
        sizes.push(set.wanted + share);
    }
    if to_add != 0
        && let Some(largest) = sizes.first_mut()
    {
        *largest = (*largest + to_add - added).max(0);
    }
    active.iter().zip(sizes).map(|(set, to)| Resize { set: set.name.clone(), to, force: true }).collect()
}

/// By how much a set grows if it keeps its part of the whole.
fn fraction(wish: &Wish, set: &Set) -> i32 {
    if wish.replicas == 0 {
        return -set.wanted;
    }
    let before = set.max_annotation.filter(|max| *max > 0).unwrap_or(wish.known_replicas);
    if before == 0 {
        return 0;
    }
    let size = f64::from(set.wanted) * f64::from(wish.max_replicas()) / f64::from(before);
    #[expect(clippy::cast_possible_truncation, reason = "a float beyond the range becomes its end")]
    let size = size.round() as i32;
    size.saturating_sub(set.wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name wanted/available [desired=n] [max=n]`, the oldest first.
    fn sets(text: &str) -> Vec<Set> {
        text.split(',')
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .enumerate()
            .map(|(idx, text)| {
                let mut words = text.split(' ');
                let name = words.next().unwrap().to_owned();
                let (wanted, available) = words.next().unwrap().split_once('/').unwrap();
                let mut set = Set {
                    name,
                    created: i64::try_from(idx).unwrap(),
                    wanted: wanted.parse().unwrap(),
                    available: available.parse().unwrap(),
                    desired_annotation: None,
                    max_annotation: None,
                };
                for word in words {
                    let (key, value) = word.split_once('=').unwrap();
                    let value = Some(value.parse().unwrap());
                    if key == "max" { set.max_annotation = value } else { set.desired_annotation = value }
                }
                set
            })
            .collect()
    }

    fn wish(replicas: i32, surge: i32, unavailable: i32) -> Wish {
        Wish { replicas, rolling: Some(Rolling { surge, unavailable }), known_replicas: 0 }
    }

    fn told(moves: &[Resize]) -> String {
        moves.iter().map(|m| format!("{}->{}", m.set, m.to)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_new_set_grows_as_far_as_the_surge_allows() {
        for (replicas, surge, new, old, expected) in [
            (10, 3, "new 0/0", "old 10/10", "new->3"),
            (10, 3, "new 3/0", "old 8/8", "new->5"),
            (10, 3, "new 5/0", "old 8/8", ""),
            (10, 0, "new 0/0", "old 10/10", ""),
            (10, 0, "new 0/0", "old 8/8", "new->2"),
            (3, 1, "new 0/0", "", "new->3"),
            (3, 1, "new 5/5", "", "new->3"),
            (0, 1, "new 0/0", "old 2/2", ""),
        ] {
            let step = step_up(&wish(replicas, surge, 0), &sets(new)[0], &sets(old));
            assert_eq!(told(&step.into_iter().collect::<Vec<_>>()), expected, "{replicas} {surge} {new} {old}");
        }
    }

    #[test]
    fn old_sets_shrink_as_far_as_availability_allows_the_unhealthy_first() {
        for (replicas, unavailable, new, old, expected) in [
            (10, 2, "new 3/0", "old 10/10", "old->8"),
            (10, 2, "new 5/0", "old 8/8", ""),
            (10, 0, "new 3/3", "old 10/10", "old->7"),
            (10, 0, "new 3/1", "old 10/10", "old->9"),
            // Five of the old ones are not available: they go first, within the budget.
            (10, 2, "new 0/0", "a 5/5, b 8/3", "b->3"),
            (10, 2, "new 0/0", "a 8/8, b 5/0", "b->0"),
            // After a rollback the crashing ones go.
            (10, 2, "new 8/7", "bad 5/0", "bad->1"),
            (10, 2, "new 10/10", "a 1/1, b 2/2", "a->0 b->0"),
            (3, 1, "new 1/0", "a 0/0", ""),
            // Just made smaller: what it tells is not true any more.
            (5, 2, "new 3/0", "old 5/11", ""),
            (5, 2, "new 3/7", "old 4/4", "old->0"),
            (5, 2, "new 3/0", "old 5/5", "old->3"),
        ] {
            let moves = step_down(&wish(replicas, 0, unavailable), &sets(new)[0], &sets(old));
            assert_eq!(told(&moves), expected, "{replicas} {unavailable} {new} {old}");
        }
    }

    #[test]
    fn a_resize_is_spread_over_the_active_sets() {
        for (replicas, surge, new, old, expected) in [
            // One active set takes it all, and no active set means the newest.
            (5, 1, "new 3/3", "old 0/0", "new->5"),
            (5, 1, "new 0/0", "old 3/3", "old->5"),
            (5, 1, "new 0/0", "old 0/0", "new->5"),
            (3, 1, "new 3/3", "old 0/0", ""),
            // In the midst of a rollout both grow: 10 -> 20, surge 3 -> 3.
            (20, 3, "new 5/5 max=13", "old 8/8 max=13", "old->14 new->9"),
            (5, 1, "new 5/5 max=13", "old 8/8 max=13", "old->4 new->2"),
            (0, 0, "new 5/5 max=13", "old 8/8 max=13", "old->0 new->0"),
            // A saturated new set leaves nothing to the old ones.
            (5, 1, "new 5/5 desired=5", "a 1/1, b 2/2", "b->0 a->0"),
        ] {
            let mut old = sets(old);
            let mut new = sets(new).remove(0);
            new.created = 99;
            let moves = scale(&wish(replicas, surge, 0), Some(&new), &old);
            assert_eq!(told(&moves), expected, "{replicas} {surge} {new:?} {old:?}");
            old.clear();
        }
        assert_eq!(scale(&wish(3, 1, 0), None, &[]), []);
    }

    #[test]
    fn a_scaling_event_is_told_by_the_annotations_of_active_sets() {
        for (new, old, expected) in [
            ("new 3/3 desired=3", "old 0/0 desired=7", false),
            ("new 3/3 desired=3", "old 1/1 desired=7", true),
            ("new 3/3", "", false),
            ("new 3/3 desired=2", "", true),
        ] {
            assert_eq!(is_scaling(&wish(3, 1, 0), sets(new).first(), &sets(old)), expected, "{new} {old}");
        }
    }

    #[test]
    fn surge_and_unavailable_never_both_round_to_nothing() {
        let deployment = |surge: &str, unavailable: &str, replicas: i32| -> Wish {
            let deployment = serde_json::json!({ "spec": { "replicas": replicas, "selector": {}, "template": {}, "strategy": {
                "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } } } });
            Wish::of(&serde_json::from_value(deployment).unwrap())
        };
        for (surge, unavailable, replicas, expected) in
            [("25%", "25%", 3, (1, 0)), ("0%", "1%", 2, (0, 1)), ("25%", "25%", 10, (3, 2)), ("0%", "100%", 0, (0, 0))]
        {
            let wish = deployment(surge, unavailable, replicas);
            assert_eq!((wish.max_surge(), wish.max_unavailable()), expected, "{surge} {unavailable} {replicas}");
        }
    }
}
