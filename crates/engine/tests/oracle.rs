//! As good as brute force, when small: up to six pods on up to three types, resources and hostname anti-affinity only.

#![allow(clippy::unwrap_used, reason = "an oracle that panics is an oracle that fails")]

mod support;

use kerf_engine::scheduler_model::SplitMix64;
use kerf_engine::{audit, plan_capacity};
use kerf_model::{
    Binder, Demand, Effort, InstanceType, Labels, Money, Pool, Readiness, Requirements, Resources, Revision, Settings,
    Snapshot, labels,
};
use std::sync::Arc;
use support::cluster::add_pods;
use support::describe::{describe, outline};
use support::pieces::{APPS, TypeRecipe, amount, node_class, term};
use support::{placed, price};

const N_CASES: u64 = 500;
/// How far from the best a plan for six pods may be, in percent: three nodes where two would do.
const WORST_PERCENT: i64 = 50;
/// How many plans must be the best there is, in percent.
const OPTIMAL_PERCENT: u64 = 95;

#[test]
fn small_plans_are_as_cheap_as_brute_force_finds() {
    let mut gaps: Vec<(i64, u64)> = Vec::new();
    for seed in 0..N_CASES {
        let snapshot = draw(seed);
        let (plan, report) = plan_capacity(&snapshot, &Effort::default());
        let best = cheapest(&snapshot);
        let story = || format!("the best costs {}\n{}", best.cost, story(seed));
        assert_eq!(audit(&snapshot, &plan), Ok(()), "{}", story());
        assert_eq!(placed(&plan).len(), best.n_placed, "{}", story());
        assert!(price(&plan) >= best.cost, "cheaper than the best: {}", story());
        assert!(report.cost.bound <= best.cost, "the bound is above the best: {}", story());
        let gap = (price(&plan) - best.cost).micros * 100;
        // A gap of less than a percent is still one.
        gaps.push(((gap + best.cost.micros - 1) / best.cost.micros.max(1), seed));
    }
    gaps.retain(|(percent, _)| *percent > 0);
    gaps.sort();
    let n_optimal = N_CASES - gaps.len() as u64;
    let (worst, seed) = gaps.last().copied().unwrap_or_default();
    let summary =
        format!("{n_optimal} of {N_CASES} are the best there is; percent above it, and seed, of the others: {gaps:?}");
    assert!(worst <= WORST_PERCENT, "{summary}\nthe worst: {}", story(seed));
    assert!(n_optimal * 100 >= N_CASES * OPTIMAL_PERCENT, "{summary}\nthe worst: {}", story(seed));
}

fn story(seed: u64) -> String {
    let snapshot = draw(seed);
    let (plan, report) = plan_capacity(&snapshot, &Effort::default());
    format!("seed {seed}\n{}{}", describe(&snapshot), outline(&plan, &report))
}

struct Best {
    cost: Money,
    n_placed: usize,
}

/// Tries every way to share the pods out among nodes. Pods that fit nowhere even alone are left out.
fn cheapest(snapshot: &Snapshot) -> Best {
    let pods: Vec<&Demand> = snapshot
        .pods
        .iter()
        .map(|pod| snapshot.demand(pod.demand))
        .filter(|demand| node_price(snapshot, &[demand]).is_some())
        .collect();
    let n_sets = 1_usize << pods.len();
    let mut best = vec![None; n_sets];
    best[0] = Some(Money::ZERO);
    for set in 1..n_sets {
        // The node of the lowest pod, then the best for the rest.
        let lowest = set & set.wrapping_neg();
        let mut together = set;
        while together > 0 {
            if together & lowest != 0 {
                let members: Vec<&Demand> =
                    (0..pods.len()).filter(|idx| together & (1 << idx) != 0).map(|idx| pods[idx]).collect();
                if let (Some(node), Some(rest)) = (node_price(snapshot, &members), best[set & !together]) {
                    let cost = node + rest;
                    best[set] = Some(best[set].map_or(cost, |known: Money| known.min(cost)));
                }
            }
            together = (together - 1) & set;
        }
    }
    Best { cost: best[n_sets - 1].expect("each pod fits a node of its own"), n_placed: pods.len() }
}

/// The price of the cheapest node that can hold exactly these pods.
fn node_price(snapshot: &Snapshot, pods: &[&Demand]) -> Option<Money> {
    let quarrel = pods.iter().enumerate().any(|(one, shy)| {
        shy.anti_affinity.iter().any(|term| {
            pods.iter().enumerate().any(|(other, pod)| {
                one != other && term.selector.as_ref().is_some_and(|selector| selector.matches(&pod.labels))
            })
        })
    });
    if quarrel {
        return None;
    }
    let mut needs = Resources::new();
    pods.iter().for_each(|pod| needs.add(&pod.requests));
    let types = snapshot.pools.iter().flat_map(|pool| pool.types.iter());
    types
        .filter(|kind| needs.fits(&kind.allocatable()))
        .flat_map(|kind| &kind.offerings)
        .filter(|offering| offering.launchable())
        .map(|offering| offering.price)
        .min()
}

fn draw(seed: u64) -> Snapshot {
    let mut draw = SplitMix64::new(seed);
    let mut pick = |from: &[i64]| from[draw.below(from.len() as u64) as usize];
    let n_types = pick(&[1, 2, 3, 3]);
    let types: Vec<Arc<InstanceType>> = (0..n_types as usize)
        .map(|idx| {
            let recipe = TypeRecipe {
                cpus: pick(&[1, 2, 4, 8]),
                gib_per_cpu: pick(&[2, 4, 8]),
                pods: pick(&[2, 4, 10]),
                gpus: 0,
                is_arm: false,
                zones: 1,
                // Spot obeys a further rule (enough types to choose from) that brute force does not know.
                spot_percent: 0,
                reserved: None,
                sold_out: 0,
                surcharge: pick(&[0, 1_000, 7_000, 30_000]),
                overhead: pick(&[0, 100]),
            };
            Arc::new(recipe.build(idx))
        })
        .collect();
    let mut snapshot = Snapshot {
        revision: Revision(seed),
        settings: Settings { placed_by: Binder::Kerf, ..Settings::default() },
        pools: vec![Pool {
            name: "pool".into(),
            weight: 0,
            labels: Labels::new(),
            requirements: Requirements::new(),
            taints: vec![],
            startup_taints: vec![],
            limits: Resources::new(),
            in_use: Resources::new(),
            node_class: node_class(),
            types: types.into(),
            is_static: false,
            readiness: Readiness::Ready,
        }],
        ..Snapshot::default()
    };
    let mut left = pick(&[1, 2, 3, 4, 5, 6, 6]);
    while left > 0 {
        let n_pods = pick(&[1, 1, 2, 3]).min(left);
        left -= n_pods;
        let app = APPS[pick(&[0, 1, 2]) as usize];
        let avoided = APPS[pick(&[0, 1, 2]) as usize];
        let is_shy = pick(&[0, 0, 0, 1]) == 1;
        let demand = Demand {
            labels: [("app".into(), app.into())].into(),
            requests: amount(pick(&[100, 300, 500, 900, 1500, 2500, 3500]), pick(&[128, 512, 1024, 3000, 7000]), 1),
            anti_affinity: is_shy.then(|| term(labels::HOSTNAME, avoided)).into_iter().collect(),
            ..Demand::default()
        };
        add_pods(&mut snapshot, demand, n_pods as usize, 0);
    }
    snapshot
}
