//! kubernetes-sigs/karpenter issue 3152: about 2,170 pods wait on about 1,060 nodes of 20 pools. Nearly all of them ask
//! for a GPU machine that the cloud is short of (6 cores, 24 GiB, one GPU each), so that they wait for hours and come back
//! in every pass. They are the largest, so the peer looks at them first, opens a claim for each, and after a minute stops
//! at the 363rd: the hundred light pods at the end of the queue (2 cores, 8 GiB) were not looked at for fourteen hours.
//!
//! Here the machine can be had in two zones and is sold out in the third, where one pool lives: its pods must stay, with
//! the reason, and all others must be placed.

use super::aws::{self, CATEGORY, CPU, FAMILY, GENERATION, ZONES};
use super::pool;
use crate::bench::dice::Dice;
use crate::bench::scene::{Batch, Running, Scene, Standing, requests};
use anyhow::{Context as _, Result};
use kerf_model::{
    Binder, BoundShape, Demand, Effect, Labels, NamespaceName, Operator, Pool, Quantity, Requirement, Requirements,
    Resources, Taint, Toleration, TolerationOperator, labels,
};
use std::sync::Arc;

const SCARCE: &str = "g6.2xlarge";
const SOLD_OUT_IN: &str = ZONES[2];
const GPU: &str = "nvidia.com/gpu";
/// Tells the pools apart, and the pods that want them.
const WORKLOAD: &str = "example.com/workload";

const N_PINNED: usize = 4;
const N_FLEXIBLE: usize = 2;
const N_TEAMS: usize = 14;
/// 1,400 + 300 + 365 + 105 = 2,170: light pods start at place 2,065 of the queue, as in the report.
const PODS_PINNED: [u32; N_PINNED] = [467, 467, 466, 300];
/// The pool that lives where the machine is sold out.
const STUCK: usize = 3;
const PODS_FLEXIBLE: [u32; N_FLEXIBLE] = [180, 185];
const LIGHT: [(usize, u32); 7] = [(0, 15), (1, 15), (2, 15), (3, 15), (7, 15), (8, 15), (9, 15)];
const N_GPU_NODES: usize = 360;
const N_TEAM_NODES: usize = 700;

pub(crate) fn scene(name: &str) -> Result<Scene> {
    let mut types = aws::catalogue()?;
    for kind in types.iter_mut().filter(|kind| kind.name.as_str() == SCARCE) {
        for offering in &mut kind.offerings {
            offering.available = offering.zone().is_none_or(|zone| &**zone != SOLD_OUT_IN);
        }
    }
    let mut scene = Scene::new(name, types);
    scene.settings.placed_by = Binder::Kerf;
    add_pools(&mut scene);
    add_gpu_nodes(&mut scene)?;
    add_team_nodes(&mut scene)?;
    add_pods(&mut scene);
    Ok(scene)
}

fn add_pools(scene: &mut Scene) {
    for i in 0..N_PINNED {
        let mut pinned = Requirements::new().with(labels::INSTANCE_TYPE, Requirement::is_in([SCARCE]));
        if i == STUCK {
            pinned.add(labels::ZONE, Requirement::is_in([SOLD_OUT_IN]));
        }
        scene.pools.push(dedicated(scene, &format!("ml-{i}"), pinned, Some(GPU)));
    }
    for i in 0..N_FLEXIBLE {
        let flexible =
            Requirements::new().with(FAMILY, Requirement::is_in(["g5", "g6"])).with(CPU, bound(Operator::Lt, "33"));
        scene.pools.push(dedicated(scene, &format!("ml-flex-{i}"), flexible, Some(GPU)));
    }
    for i in 0..N_TEAMS {
        let cpu_only = Requirements::new()
            .with(CATEGORY, Requirement::is_in(["c", "m", "r"]))
            .with(GENERATION, bound(Operator::Gt, "5"))
            .with(labels::ARCH, Requirement::is_in(["amd64"]));
        // The second half keeps strangers out.
        let taint = (i >= N_TEAMS / 2).then_some("dedicated");
        scene.pools.push(dedicated(scene, &format!("team-{i}"), cpu_only, taint));
    }
}

fn dedicated(scene: &Scene, name: &str, requirements: Requirements, taint: Option<&str>) -> Pool {
    let mut out = pool(scene, name);
    out.labels.insert(WORKLOAD.into(), name.into());
    out.requirements = requirements
        .with(labels::CAPACITY_TYPE, Requirement::is_in(["on-demand"]))
        .with(labels::OS, Requirement::is_in(["linux"]));
    out.taints.extend(taint.map(|key| Taint { key: key.into(), value: name.into(), effect: Effect::NoSchedule }));
    out
}

fn bound(operator: Operator, number: &str) -> Requirement {
    Requirement::new(operator, &[number.into()]).expect("a bound is one integer")
}

/// Each GPU node runs the one pod that its one GPU can serve.
fn add_gpu_nodes(scene: &mut Scene) -> Result<()> {
    let kind = scene
        .types
        .iter()
        .find(|kind| kind.name.as_str() == SCARCE)
        .with_context(|| format!("the catalogue has no {SCARCE}"))?
        .clone();
    for i in 0..N_GPU_NODES {
        let pool = &scene.pools[i % N_PINNED];
        let offering = kind
            .offerings
            .iter()
            .find(|offering| offering.requirements.intersects(&pool.requirements))
            .with_context(|| format!("{SCARCE} is not sold to {}", pool.name))?;
        let running = vec![Running { shape: shape("ml", pool.name.as_str()), requests: ml_requests(), n_pods: 1 }];
        let node = Standing::new(&format!("gpu-{i}"), pool, &kind, offering, running);
        scene.nodes.push(node);
    }
    Ok(())
}

/// Nodes of the teams are full, save a few of the first team that have room for a light pod each.
fn add_team_nodes(scene: &mut Scene) -> Result<()> {
    let mut dice = Dice::new("backlog", "nodes");
    let pools = scene.pools[N_PINNED + N_FLEXIBLE..].to_vec();
    let choices: Vec<Vec<_>> = pools.iter().map(|pool| aws::of_size(pool, 8..=32)).collect();
    for i in 0..N_TEAM_NODES {
        let team = i % N_TEAMS;
        let pool = &pools[team];
        let (kind, offering) = dice.pick(&choices[team]);
        let room = kind.allocatable();
        let has_place = team == 0 && i < 8 * N_TEAMS;
        let spare = if has_place { 2100 } else { 0 };
        let memory_spare = if has_place { 8300 } else { 0 };
        let half = |name: &str, spare_milli: i64| (room.get(name).milli - spare_milli) / 2;
        let running = vec![Running {
            shape: shape("service", pool.name.as_str()),
            requests: requests(half("cpu", spare), half("memory", memory_spare * (1 << 20) * 1000) / 1000 / (1 << 20)),
            n_pods: 2,
        }];
        let node = Standing::new(&format!("team-node-{i}"), pool, kind, offering, running);
        scene.nodes.push(node);
    }
    Ok(())
}

fn add_pods(scene: &mut Scene) {
    for (i, n_pods) in PODS_PINNED.into_iter().enumerate() {
        let home = format!("ml-{i}");
        let mut batch = Batch::new(&home, n_pods, wanting(&home, ml_requests()));
        batch.satisfiable = i != STUCK;
        scene.pods.push(batch);
    }
    for (i, n_pods) in PODS_FLEXIBLE.into_iter().enumerate() {
        let home = format!("ml-flex-{i}");
        let demand = wanting(&home, ml_requests());
        scene.pods.push(Batch::new(&home, n_pods, demand));
    }
    for (team, n_pods) in LIGHT {
        let demand = wanting(&format!("team-{team}"), requests(2000, 8192));
        scene.pods.push(Batch::new(&format!("light-{team}"), n_pods, demand));
    }
}

fn ml_requests() -> Resources {
    requests(6000, 24 * 1024).with(GPU, Quantity::from_units(1))
}

fn wanting(home: &str, requests: Resources) -> Demand {
    let tolerate = |key: &str| Toleration {
        key: key.into(),
        operator: TolerationOperator::Exists,
        value: "".into(),
        effect: Some(Effect::NoSchedule),
    };
    Demand {
        namespace: NamespaceName(home.into()),
        labels: Labels::from([("app".into(), home.into())]),
        requests,
        node_selector: Requirements::new().with(WORKLOAD, Requirement::is_in([home])),
        tolerations: vec![tolerate(GPU), tolerate("dedicated")],
        ..Demand::default()
    }
}

fn shape(app: &str, namespace: &str) -> Arc<BoundShape> {
    Arc::new(BoundShape {
        namespace: NamespaceName(namespace.into()),
        labels: Labels::from([("app".into(), app.into())]),
        anti_affinity: Vec::new(),
    })
}
