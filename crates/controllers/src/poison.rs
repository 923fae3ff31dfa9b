//! Whose presence in a snapshot makes a thought panic: found by thinking about halves, and left out, so that the others are planned.
//!
//! A pod first: most of what the engine looks at comes from pods, and pods that need the same, as the replicas of a workload do, do the same
//! harm: they go together. When one after another would have to go, it is no pod's fault: then each pool is left out in turn. What is found is
//! kept out for a while by whoever asks for thoughts, see [`Quarantine`].

use crate::guard::{Defect, guarded};
use crate::limits::{POISON_FOUND_MAX, POISON_KEPT_FIRST, POISON_KEPT_MOST};
use crate::moment::millis;
use kerf_model::{PodId, Pool, PoolName, Snapshot, UnixMillis};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Poison {
    Pod(PodId),
    Pool(PoolName),
}

impl fmt::Display for Poison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(id) => write!(f, "Pod {id}"),
            Self::Pool(name) => write!(f, "NodePool {name}"),
        }
    }
}

/// An answer to what is left of a snapshot without those that make the thought panic.
#[derive(Debug)]
pub struct Without<T> {
    pub answer: T,
    pub snapshot: Arc<Snapshot>,
    pub poison: Vec<Poison>,
}

/// Thinks, and if that panics, thinks without those at fault.
pub fn think_without<T>(
    snapshot: Arc<Snapshot>,
    think: impl Fn(&Snapshot) -> T,
) -> Result<(Without<T>, Option<Defect>), Defect> {
    let defect = match guarded(|| think(&snapshot)) {
        Ok(answer) => return Ok((Without { answer, snapshot, poison: Vec::new() }, None)),
        Err(defect) => defect,
    };
    let panics = |snapshot: &Snapshot| guarded(|| drop(think(snapshot))).is_err();
    let pods = without_pods(&snapshot, &panics);
    // That nobody is left proves nothing: a pool may be at fault that all of them could go to, and others may take them.
    let (some_are_left, nobody_is) = match pods {
        Some(found) if !found.0.pods.is_empty() => (Some(found), None),
        other => (None, other),
    };
    // Without the only pool that sells anything nobody is thought about, whoever is at fault.
    let sells = |pool: &&Pool| !pool.types.is_empty();
    let may_be_a_pool = nobody_is.is_none() || snapshot.pools.iter().filter(sells).count() > 1;
    let (left, poison) = some_are_left
        .or_else(|| without_pool(&snapshot, &panics).filter(|_| may_be_a_pool))
        .or(nobody_is)
        .ok_or_else(|| defect.clone())?;
    let answer = guarded(|| think(&left))?;
    Ok((Without { answer, snapshot: Arc::new(left), poison }, Some(defect)))
}

fn without_pods(snapshot: &Snapshot, panics: &impl Fn(&Snapshot) -> bool) -> Option<(Snapshot, Vec<Poison>)> {
    let with = |pods: &[usize]| Snapshot {
        pods: pods.iter().map(|idx| snapshot.pods[*idx].clone()).collect(),
        ..snapshot.clone()
    };
    if panics(&with(&[])) {
        return None;
    }
    // All of one kind: there is nobody else to suffer, and it need not be the pool's fault.
    let is_one_kind = snapshot.pods.iter().all(|pod| pod.demand == snapshot.pods[0].demand);
    let id = |idx: usize| Poison::Pod(snapshot.pods[idx].id.clone());
    let mut left: Vec<usize> = (0..snapshot.pods.len()).collect();
    let mut found = Vec::new();
    for _ in 0..POISON_FOUND_MAX {
        let nth = first_culprit(left.len(), |n_first| panics(&with(&left[..n_first])));
        let culprit = left.remove(nth);
        found.push(id(culprit));
        if panics(&with(&left)) {
            let demand = snapshot.pods[culprit].demand;
            let (alike, others) = left.into_iter().partition(|idx| snapshot.pods[*idx].demand == demand);
            let alike: Vec<usize> = alike;
            left = others;
            if alike.is_empty() {
                continue;
            }
            found.extend(alike.into_iter().map(id));
        }
        let rest = with(&left);
        if !panics(&rest) {
            return (!left.is_empty() || is_one_kind).then_some((rest, found));
        }
    }
    None
}

/// Which one makes it panic together with those before it: all panic, none does not.
fn first_culprit(n_all: usize, panics: impl Fn(usize) -> bool) -> usize {
    let (mut calm, mut panicking) = (0, n_all);
    while panicking - calm > 1 {
        let middle = calm + (panicking - calm) / 2;
        if panics(middle) { panicking = middle } else { calm = middle }
    }
    calm
}

/// A pool that sells nothing is not looked at.
fn without_pool(snapshot: &Snapshot, panics: &impl Fn(&Snapshot) -> bool) -> Option<(Snapshot, Vec<Poison>)> {
    (0..snapshot.pools.len()).find_map(|idx| {
        let mut left = snapshot.clone();
        shut(&mut left.pools[idx]);
        (!panics(&left)).then(|| (left, vec![Poison::Pool(snapshot.pools[idx].name.clone())]))
    })
}

fn shut(pool: &mut Pool) {
    pool.types = Arc::new([]);
}

/// What is left out of thoughts, and until when.
#[derive(Debug, Default)]
pub struct Quarantine(BTreeMap<Poison, Kept>);

#[derive(Debug, Clone, Copy)]
struct Kept {
    until: UnixMillis,
    /// How long it was kept the last time.
    ms: i64,
}

impl Quarantine {
    /// Answers how long, in milliseconds: twice as long each time.
    pub fn keep(&mut self, poison: Poison, now: UnixMillis) -> i64 {
        let (first, most) = (millis(POISON_KEPT_FIRST), millis(POISON_KEPT_MOST));
        let ms = self.0.get(&poison).map_or(first, |kept| kept.ms.saturating_mul(2).min(most));
        self.0.insert(poison, Kept { until: UnixMillis(now.0.saturating_add(ms)), ms });
        ms
    }

    /// It is gone, or another.
    pub fn forget(&mut self, poison: &Poison) {
        self.0.remove(poison);
    }

    /// Leaves out those whose time is not over. Answers when the next is to be tried again.
    pub fn apply(&self, snapshot: &mut Snapshot, now: UnixMillis) -> Option<UnixMillis> {
        let kept: BTreeMap<&Poison, &Kept> = self.0.iter().filter(|(_, kept)| kept.until > now).collect();
        if kept.is_empty() {
            return None;
        }
        snapshot.pods.retain(|pod| !kept.contains_key(&Poison::Pod(pod.id.clone())));
        for pool in &mut snapshot.pools {
            if kept.contains_key(&Poison::Pool(pool.name.clone())) {
                shut(pool);
            }
        }
        kept.values().map(|kept| kept.until).min()
    }

    pub fn len(&self, now: UnixMillis) -> usize {
        self.0.values().filter(|kept| kept.until > now).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_model::{DemandIdx, InstanceType, Labels, NodeClassRef, PendingPod, Readiness, Requirements, Resources};
    use std::cell::Cell;

    /// Of pods each of which needs something else.
    fn snapshot(n_pods: usize) -> Arc<Snapshot> {
        with_demands((0..n_pods).map(|n| u32::try_from(n).unwrap()).collect())
    }

    fn with_demands(demands: Vec<u32>) -> Arc<Snapshot> {
        let pod = |(n, demand): (usize, u32)| PendingPod {
            id: PodId::new("default", &format!("p{n}")),
            demand: DemandIdx(demand),
            created: UnixMillis(0),
            priority: 0,
            leaving: None,
            is_virtual: false,
        };
        let pods = demands.into_iter().enumerate().map(pod).collect();
        Arc::new(Snapshot { pods, ..Snapshot::default() })
    }

    fn names(snapshot: &Snapshot) -> Vec<&str> {
        snapshot.pods.iter().map(|pod| &*pod.id.name).collect()
    }

    #[test]
    fn those_at_fault_are_left_out_and_all_others_are_thought_about() {
        for at_fault in [&["p0"][..], &["p999"], &["p17", "p500", "p501"]] {
            let n_thoughts = Cell::new(0);
            let (without, defect) = think_without(snapshot(1_000), |snapshot| {
                n_thoughts.set(n_thoughts.get() + 1);
                assert!(!names(snapshot).iter().any(|name| at_fault.contains(name)), "planted");
                snapshot.pods.len()
            })
            .unwrap();
            let found: Vec<String> = without.poison.iter().map(ToString::to_string).collect();
            let mut expected: Vec<String> = at_fault.iter().map(|name| format!("Pod default/{name}")).collect();
            expected.sort();
            let mut sorted = found.clone();
            sorted.sort();
            assert_eq!(sorted, expected);
            assert_eq!((without.answer, without.snapshot.pods.len()), (1_000 - at_fault.len(), 1_000 - at_fault.len()));
            assert!(defect.unwrap().0.starts_with("planted"));
            assert!(n_thoughts.get() <= 24 * at_fault.len() + 2, "{} thoughts", n_thoughts.get());
        }
    }

    #[test]
    fn all_replicas_of_a_poisonous_template_are_left_out_at_once_however_many() {
        let poisoned = |snapshot: &Snapshot| {
            assert!(!snapshot.pods.iter().any(|pod| pod.demand == DemandIdx(7)), "planted");
            snapshot.pods.len()
        };
        let mixed: Vec<u32> = (0..70).map(|n| if n % 7 == 3 || n >= 60 { 7 } else { n % 7 }).collect();
        let n_replicas = mixed.iter().filter(|demand| **demand == 7).count();
        let (without, defect) = think_without(with_demands(mixed), poisoned).unwrap();
        assert_eq!((without.poison.len(), without.answer), (n_replicas, 70 - n_replicas));
        assert!(without.poison.iter().all(|poison| matches!(poison, Poison::Pod(_))) && defect.is_some());
        let (without, _) = think_without(with_demands(vec![7; 20]), poisoned).unwrap();
        assert_eq!((without.poison.len(), without.answer), (20, 0), "nobody else waits, and no pool is blamed");
    }

    #[test]
    fn a_pool_is_at_fault_where_another_could_take_the_only_workload_that_waits() {
        let type_of = |name: &str| {
            Arc::new(InstanceType {
                name: name.into(),
                requirements: Requirements::new(),
                offerings: Vec::new(),
                capacity: Resources::new(),
                overhead: Resources::new(),
                attach_limits: BTreeMap::new(),
            })
        };
        let pool = |name: &str| Pool {
            name: PoolName(name.into()),
            weight: 0,
            labels: Labels::new(),
            requirements: Requirements::new(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            limits: Resources::new(),
            in_use: Resources::new(),
            node_class: NodeClassRef { group: "g".into(), kind: "k".into(), name: "n".into() },
            types: Arc::from([type_of(name)]),
            is_static: false,
            readiness: Readiness::Ready,
        };
        let poisoned = |snapshot: &Snapshot| {
            let is_open = snapshot.pools.iter().any(|pool| &*pool.name.0 == "bad" && !pool.types.is_empty());
            assert!(!is_open || snapshot.pods.is_empty(), "planted");
        };
        let with_pools = |names: &[&str]| {
            let pools = names.iter().map(|name| pool(name)).collect();
            Arc::new(Snapshot { pools, ..(*with_demands(vec![0; 20])).clone() })
        };
        let (without, _) = think_without(with_pools(&["bad", "good"]), poisoned).unwrap();
        assert_eq!(without.poison, [Poison::Pool(PoolName("bad".into()))]);
        assert_eq!(without.snapshot.pods.len(), 20, "the good one takes them");
        let (without, _) = think_without(with_pools(&["bad"]), poisoned).unwrap();
        assert_eq!(without.poison.len(), 20, "nobody knows whose fault it is, and pods that come later are tried");
    }

    #[test]
    fn of_two_that_do_harm_only_together_one_is_left_out() {
        let (without, _) = think_without(snapshot(8), |snapshot| {
            let names = names(snapshot);
            assert!(!(names.contains(&"p0") && names.contains(&"p7")), "planted");
        })
        .unwrap();
        assert_eq!(names(&without.snapshot), ["p0", "p1", "p2", "p3", "p4", "p5", "p6"]);
    }

    #[test]
    fn what_panics_whoever_is_there_is_an_error() {
        let outcome = think_without(snapshot(4), |_| panic!("planted"));
        assert_eq!(outcome.map(|(without, _): (Without<()>, _)| without.poison).unwrap_err().0, "planted");
    }

    #[test]
    fn what_is_kept_out_is_tried_again_later_and_later() {
        let mut quarantine = Quarantine::default();
        let poison = Poison::Pod(PodId::new("default", "p1"));
        let mut now = UnixMillis(0);
        for expected in [300_000, 600_000, 1_200_000, 2_400_000, 3_600_000, 3_600_000] {
            assert_eq!(quarantine.keep(poison.clone(), now), expected);
            let mut kept = (*snapshot(3)).clone();
            assert_eq!(quarantine.apply(&mut kept, now), Some(UnixMillis(now.0 + expected)));
            assert_eq!(names(&kept), ["p0", "p2"]);
            now = UnixMillis(now.0 + expected);
            let mut tried = (*snapshot(3)).clone();
            assert_eq!(quarantine.apply(&mut tried, now), None);
            assert_eq!(tried.pods.len(), 3);
        }
    }
}
