//! A big day in a big cluster: 2,000 workloads with 100,000 pods waiting, 5,000 nodes that are mostly full, 50 pools of
//! teams with their own labels, taints and tastes, and every type that EC2 sells.

use super::aws::{self, CATEGORY, CPU, GENERATION, ZONES};
use super::pool;
use crate::bench::dice::Dice;
use crate::bench::scene::{Batch, Running, Scene, Standing, requests};
use anyhow::Result;
use kerf_model::{
    Binder, BoundShape, Demand, Effect, LabelSelector, Labels, NamespaceName, Namespaces, NodePolicy, Operator,
    PodTerm, Pool, Requirement, Requirements, Spread, Taint, Toleration, TolerationOperator, WhenUnsatisfiable, labels,
};
use std::collections::BTreeSet;
use std::sync::Arc;

const N_POOLS: usize = 50;
/// The first pools take anyone; the others belong to a team each.
const N_OPEN: usize = 12;
const N_SHAPES: usize = 2000;
const N_NODES: usize = 5000;
const TEAM: &str = "example.com/team";
/// Pods that must be apart on hosts open a node each; a workload has some dozens of those, not thousands.
const APART_MAX: u32 = 40;

pub(crate) fn scene(name: &str, n_pods: u32) -> Result<Scene> {
    let mut scene = Scene::new(name, aws::catalogue()?);
    scene.settings.placed_by = Binder::Kerf;
    for i in 0..N_POOLS {
        let pool = make_pool(&scene, i);
        scene.pools.push(pool);
    }
    let shapes = make_shapes();
    add_nodes(&mut scene, &shapes);
    for (shape, n_pods) in shapes.iter().zip(counts(&shapes, n_pods)) {
        let name = shape.demand.labels["app"].to_string();
        scene.pods.push(Batch::new(&name, n_pods, shape.demand.clone()));
    }
    Ok(scene)
}

/// Which pools a workload can live in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    Open,
    Team(usize),
}

struct Shape {
    home: Home,
    demand: Demand,
}

fn make_pool(scene: &Scene, i: usize) -> Pool {
    let mut out = pool(scene, &format!("pool-{i:02}"));
    let mut dice = Dice::new("large", &format!("pool {i}"));
    let is_open = i < N_OPEN;
    let categories: &[&str] = match i % 4 {
        0 | 1 => &["c", "m", "r"],
        2 => &["m"],
        _ => &["m", "r"],
    };
    let generation = dice.pick(&["4", "5", "6"]);
    let arch: &[&str] = match i % 6 {
        0 | 1 => &["amd64", "arm64"],
        2 => &["arm64"],
        _ => &["amd64"],
    };
    let capacity_types: &[&str] = match i % 3 {
        0 => &["on-demand", "spot"],
        _ => &["on-demand"],
    };
    out.requirements = Requirements::new()
        .with(CATEGORY, Requirement::is_in(categories.iter().copied()))
        .with(GENERATION, bound(Operator::Gt, generation))
        .with(CPU, bound(Operator::Lt, dice.pick(&["33", "65", "97", "129"])))
        .with(labels::OS, Requirement::is_in(["linux"]))
        .with(labels::ARCH, Requirement::is_in(arch.iter().copied()))
        .with(labels::CAPACITY_TYPE, Requirement::is_in(capacity_types.iter().copied()));
    if is_zonal(i) {
        let zone = ZONES[i % ZONES.len()];
        out.requirements.add(labels::ZONE, Requirement::is_in([zone]));
    }
    if !is_open {
        let team = format!("team-{i}");
        out.labels.insert(TEAM.into(), team.as_str().into());
        out.taints.push(Taint { key: TEAM.into(), value: team.as_str().into(), effect: Effect::NoSchedule });
    }
    out
}

/// Whether the pool lives in one zone only.
fn is_zonal(pool: usize) -> bool {
    pool % 7 == 6
}

fn bound(operator: Operator, number: &str) -> Requirement {
    Requirement::new(operator, &[number.into()]).expect("a bound is one integer")
}

fn make_shapes() -> Vec<Shape> {
    let mut dice = Dice::new("large", "shapes");
    (0..N_SHAPES).map(|k| make_shape(k, &mut dice)).collect()
}

fn make_shape(k: usize, dice: &mut Dice) -> Shape {
    let home = if dice.percent(55) { Home::Open } else { Home::Team(N_OPEN + dice.below(N_POOLS - N_OPEN)) };
    let app = format!("app-{k}");
    let namespace = format!("space-{}", k % 100);
    let cpu = dice.pick(&[50, 100, 100, 200, 250, 250, 500, 500, 500, 750, 1000, 1000, 1500, 2000, 3000, 4000, 6000]);
    // Between one and eight gibibytes per core, and never less than a small process takes.
    let memory = (cpu * dice.pick(&[1024, 2048, 2048, 4096, 4096, 8192]) / 1000).max(64);
    let mut demand = Demand {
        namespace: NamespaceName(namespace.as_str().into()),
        labels: Labels::from([
            ("app".into(), app.as_str().into()),
            ("tier".into(), dice.pick(&["front", "back", "batch"]).into()),
        ]),
        requests: requests(cpu, memory),
        ..Demand::default()
    };
    settle(&mut demand, home, dice);
    constrain(&mut demand, &app, &namespace, dice);
    // A workload whose only pool lives in one zone cannot spread over three, and nobody asks it to.
    if matches!(home, Home::Team(pool) if is_zonal(pool)) {
        demand.spreads.retain(|spread| &*spread.topology_key != labels::ZONE);
    }
    Shape { home, demand }
}

/// Where the pods may go at all.
fn settle(demand: &mut Demand, home: Home, dice: &mut Dice) {
    match home {
        Home::Team(pool) => {
            let team = format!("team-{pool}");
            demand.node_selector.add(TEAM, Requirement::is_in([team.as_str()]));
            demand.tolerations.push(Toleration {
                key: TEAM.into(),
                operator: TolerationOperator::Equal,
                value: team.as_str().into(),
                effect: None,
            });
        }
        Home::Open => {
            let own = match dice.below(20) {
                0 => Some((labels::ARCH, "arm64")),
                1..=3 => Some((labels::ARCH, "amd64")),
                4 => Some((labels::CAPACITY_TYPE, "on-demand")),
                5 => Some((labels::ZONE, dice.pick(&ZONES))),
                _ => None,
            };
            if let Some((key, value)) = own {
                demand.node_selector.add(key, Requirement::is_in([value]));
            }
        }
    }
}

/// How the pods want to stand to each other. Most do not care.
fn constrain(demand: &mut Demand, app: &str, namespace: &str, dice: &mut Dice) {
    let own = LabelSelector::from_labels([("app", app)]);
    let spread = |key: &str, when| Spread {
        topology_key: key.into(),
        max_skew: 1,
        min_domains: None,
        when,
        selector: Some(own.clone()),
        node_affinity_policy: NodePolicy::Honor,
        node_taints_policy: NodePolicy::Ignore,
    };
    let term = |key: &str| PodTerm {
        topology_key: key.into(),
        namespaces: Namespaces::These(BTreeSet::from([namespace.into()])),
        selector: Some(own.clone()),
    };
    match dice.below(100) {
        0..8 => demand.spreads.push(spread(labels::ZONE, WhenUnsatisfiable::DoNotSchedule)),
        8..12 => demand.spreads.push(spread(labels::HOSTNAME, WhenUnsatisfiable::ScheduleAnyway)),
        12..14 => demand.anti_affinity.push(term(labels::HOSTNAME)),
        14..17 => demand.preferred_anti_affinity.push((100, term(labels::HOSTNAME))),
        17 => demand.affinity.push(term(labels::ZONE)),
        _ => {}
    }
}

/// How many pods each shape has: a few workloads are large, most are small, all together `n_pods`.
fn counts(shapes: &[Shape], n_pods: u32) -> Vec<u32> {
    let weight = |k: usize| 1.0 / (k as f64 + 20.0);
    let total: f64 = (0..shapes.len()).map(weight).sum();
    let mut counts: Vec<u32> = shapes
        .iter()
        .enumerate()
        .map(|(k, shape)| {
            let share = (f64::from(n_pods) * weight(k) / total) as u32;
            match is_apart(shape) {
                true => share.clamp(1, APART_MAX),
                false => share.max(1),
            }
        })
        .collect();
    // What rounding and the cap left over goes round among those without a cap.
    let mut left = i64::from(n_pods) - counts.iter().map(|n| i64::from(*n)).sum::<i64>();
    for k in (0..shapes.len()).cycle() {
        if left <= 0 {
            break;
        }
        if !is_apart(&shapes[k]) {
            counts[k] += 1;
            left -= 1;
        }
    }
    counts
}

fn is_apart(shape: &Shape) -> bool {
    !shape.demand.anti_affinity.is_empty()
}

/// Nodes of every pool, filled with what lives there until hardly anything fits any more.
fn add_nodes(scene: &mut Scene, shapes: &[Shape]) {
    let mut dice = Dice::new("large", "nodes");
    let bound_shapes: Vec<Arc<BoundShape>> = shapes.iter().map(bound_shape).collect();
    let lives_in: Vec<Vec<usize>> = (0..N_POOLS)
        .map(|pool| {
            let home = if pool < N_OPEN { Home::Open } else { Home::Team(pool) };
            (0..shapes.len()).filter(|k| shapes[*k].home == home && is_free(&shapes[*k].demand, home)).collect()
        })
        .collect();
    let pools = scene.pools.clone();
    let choices: Vec<Vec<_>> = pools.iter().map(|pool| aws::of_size(pool, 4..=64)).collect();
    for i in 0..N_NODES {
        let pool = &pools[i % N_POOLS];
        let (kind, offering) = dice.pick(&choices[i % N_POOLS]);
        let mut room = kind.allocatable_of(offering);
        let mut running: Vec<Running> = Vec::new();
        let mut misses = 0;
        // Three misses in a row: what fits now is crumbs, and crumbs are what a busy cluster has.
        while misses < 3 && !lives_in[i % N_POOLS].is_empty() {
            let k = dice.pick(&lives_in[i % N_POOLS]);
            let requests = &shapes[k].demand.requests;
            if !requests.fits(&room) {
                misses += 1;
                continue;
            }
            room.subtract(requests);
            running.push(Running { shape: bound_shapes[k].clone(), requests: requests.clone(), n_pods: 1 });
        }
        let node = Standing::new(&format!("node-{i:04}"), pool, kind, offering, running);
        scene.nodes.push(node);
    }
}

/// Pods without wishes about each other or, among the open ones, about the node: they may stand anywhere at home.
fn is_free(demand: &Demand, home: Home) -> bool {
    demand.anti_affinity.is_empty()
        && demand.affinity.is_empty()
        && (home != Home::Open || demand.node_selector.is_empty())
}

fn bound_shape(shape: &Shape) -> Arc<BoundShape> {
    Arc::new(BoundShape {
        namespace: shape.demand.namespace.clone(),
        labels: shape.demand.labels.clone(),
        anti_affinity: Vec::new(),
    })
}
