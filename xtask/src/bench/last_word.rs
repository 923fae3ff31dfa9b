//! What a plan costs after kube-scheduler had the last word.
//!
//! The planned nodes stand empty, the pods come one by one in ten seeded orders, and the engine's model of kube-scheduler
//! puts them where kube-scheduler would. Pods that find no place are planned for again, on top of what stands, until all
//! run. The worst of the ten orders counts, for our plans and for the peer's alike.

use super::peer::Claim;
use super::scene::{Batch, Running, Scene, Standing};
use anyhow::{Context as _, Result, bail};
use kerf_engine::scheduler_model::{self, ModelClass, ModelNode, NO_ZONE, STRANDED};
use kerf_model::{BoundShape, Demand, Effort, Money, Node, Plan, Quantity, Resources, Step, TypeName, resources};
use std::sync::Arc;

const N_ORDERS: usize = 10;
const SEED: u64 = 42;
/// A plan that needs more waves than this never settles.
const WAVES_MAX: usize = 20;

pub(crate) struct Worst {
    pub(crate) n_nodes: usize,
    pub(crate) cost: Money,
    /// Pods that the first wave left over.
    pub(crate) n_stranded: usize,
}

/// A node to buy.
struct Bought {
    kind: TypeName,
    price: Money,
}

pub(crate) fn of_plan(scene: &Scene, plan: &Plan) -> Result<Worst> {
    worst(scene, &bought(plan)?)
}

pub(crate) fn of_claims(scene: &Scene, claims: &[Claim]) -> Result<Worst> {
    let bought: Vec<Bought> = claims
        .iter()
        .map(|claim| Bought { kind: claim.cheapest_type.as_str().into(), price: Money::from_dollars(claim.price) })
        .collect();
    worst(scene, &bought)
}

fn bought(plan: &Plan) -> Result<Vec<Bought>> {
    plan.steps
        .iter()
        .filter_map(|step| match step {
            Step::Launch(launch) => Some(launch),
            Step::Place(_) => None,
        })
        .map(|launch| {
            let first =
                launch.any_of.first().with_context(|| format!("claim {} has nothing to launch", launch.claim))?;
            Ok(Bought { kind: first.instance_type.clone(), price: first.price })
        })
        .collect()
}

fn worst(scene: &Scene, planned: &[Bought]) -> Result<Worst> {
    let is_plain =
        |demand: &Demand| demand.spreads.is_empty() && demand.anti_affinity.is_empty() && demand.affinity.is_empty();
    if !scene.nodes.is_empty() || !scene.pods.iter().all(|batch| is_plain(&batch.demand)) {
        bail!("only a scene without nodes and topology can be judged by this");
    }
    let classes: Vec<ModelClass> = scene.pods.iter().map(class).collect();
    let counts: Vec<u32> = scene.pods.iter().map(|batch| batch.n_pods).collect();
    let orders = scheduler_model::orders(&counts, &classes, N_ORDERS, SEED);
    let mut worst = Worst { n_nodes: 0, cost: Money::ZERO, n_stranded: 0 };
    for (idx, order) in orders.iter().enumerate() {
        let outcome = settle(scene, planned, &classes, order, SEED + idx as u64)?;
        worst.n_stranded = worst.n_stranded.max(outcome.n_stranded);
        if outcome.cost > worst.cost {
            (worst.n_nodes, worst.cost) = (outcome.n_nodes, outcome.cost);
        }
    }
    Ok(worst)
}

/// One order of arrival, wave after wave until every pod runs.
fn settle(scene: &Scene, planned: &[Bought], classes: &[ModelClass], order: &[u32], seed: u64) -> Result<Worst> {
    let mut stand = Vec::new();
    let mut cost = Money::ZERO;
    build(scene, planned, &mut stand, &mut cost)?;
    let mut waiting = order.to_vec();
    let mut n_stranded = 0;
    for wave in 0..WAVES_MAX {
        waiting = place(scene, &mut stand, classes, &waiting, seed);
        if wave == 0 {
            n_stranded = waiting.len();
        }
        if waiting.is_empty() {
            return Ok(Worst { n_nodes: stand.len(), cost, n_stranded });
        }
        let more = plan_again(scene, &mut stand, &waiting)?;
        build(scene, &more, &mut stand, &mut cost)?;
    }
    bail!("after {WAVES_MAX} waves some pods still wait")
}

/// Adds nodes as the first pool that sells such a one would have them.
fn build(scene: &Scene, bought: &[Bought], stand: &mut Vec<Standing>, cost: &mut Money) -> Result<()> {
    for Bought { kind, price } in bought {
        let found = scene.pools.iter().find_map(|pool| {
            let kind = pool.types.iter().find(|known| known.name == *kind)?;
            let offering = kind.offerings.iter().find(|offering| {
                offering.price == *price
                    && offering.launchable()
                    && offering.requirements.intersects(&pool.requirements)
            })?;
            Some((pool, kind, offering))
        });
        let (pool, kind, offering) = found.with_context(|| format!("nobody sells {kind} for {price}"))?;
        let name = format!("node-{}", stand.len());
        stand.push(Standing::new(&name, pool, kind, offering, Vec::new()));
        *cost += *price;
    }
    Ok(())
}

/// Lets kube-scheduler's model place the waiting pods, and returns those that found no node.
fn place(scene: &Scene, stand: &mut [Standing], classes: &[ModelClass], waiting: &[u32], seed: u64) -> Vec<u32> {
    let nodes: Vec<ModelNode> = stand.iter().map(|standing| model_node(&standing.fact())).collect();
    let outcome = scheduler_model::place(&nodes, classes, waiting, seed, u64::MAX);
    let mut left = Vec::new();
    for (class, node) in waiting.iter().zip(&outcome.placed_on) {
        if *node == STRANDED {
            left.push(*class);
            continue;
        }
        let demand = &scene.pods[*class as usize].demand;
        stand[*node as usize].running.push(Running {
            shape: Arc::new(BoundShape {
                namespace: demand.namespace.clone(),
                labels: demand.labels.clone(),
                anti_affinity: Vec::new(),
            }),
            requests: demand.requests.clone(),
            n_pods: 1,
        });
    }
    left
}

/// What the engine would buy for those that are left, given what stands.
fn plan_again(scene: &Scene, stand: &mut Vec<Standing>, waiting: &[u32]) -> Result<Vec<Bought>> {
    let mut batches: Vec<Batch> = Vec::new();
    for (idx, batch) in scene.pods.iter().enumerate() {
        let n_pods = waiting.iter().filter(|class| **class as usize == idx).count();
        let n_pods = u32::try_from(n_pods).context("too many pods")?;
        batches.push(Batch { name: batch.name.clone(), demand: batch.demand.clone(), n_pods, satisfiable: true });
    }
    let again = Scene {
        name: scene.name.clone(),
        settings: scene.settings.clone(),
        types: scene.types.clone(),
        pools: scene.pools.clone(),
        nodes: std::mem::take(stand),
        pods: batches,
    };
    let (plan, _) = kerf_engine::plan_capacity(&again.snapshot(), &Effort::default());
    *stand = again.nodes;
    bought(&plan)
}

fn class(batch: &Batch) -> ModelClass {
    let requests = &batch.demand.requests;
    ModelClass {
        requests: dimensions(requests),
        cpu: requests.get(resources::CPU).milli,
        memory: requests.get(resources::MEMORY).milli,
        kinds: vec![true],
        ..ModelClass::default()
    }
}

fn model_node(node: &Node) -> ModelNode {
    let mut free = node.allocatable.clone();
    free.subtract(&node.used);
    let of = |amounts: &Resources, name: &str| amounts.get(name).milli;
    ModelNode {
        kind: 0,
        zone: NO_ZONE,
        free: dimensions(&free),
        allocatable_cpu: of(&node.allocatable, resources::CPU),
        allocatable_memory: of(&node.allocatable, resources::MEMORY),
        requested_cpu: of(&node.used, resources::CPU),
        requested_memory: of(&node.used, resources::MEMORY),
        counts: Vec::new(),
    }
}

fn dimensions(amounts: &Resources) -> Vec<i64> {
    [resources::CPU, resources::MEMORY, resources::PODS]
        .map(|name| amounts.get(name))
        .map(|Quantity { milli }| milli)
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::scenes::{self, KUBE_SCHEDULER};

    fn nodes(n: usize, kind: &str, dollars: f64) -> Vec<Bought> {
        (0..n).map(|_| Bought { kind: kind.into(), price: Money::from_dollars(dollars) }).collect()
    }

    /// 0.025 × 128 cores and 0.001 × the gigabytes of 1024 GiB.
    const M_128X: f64 = 0.025 * 128.0 + 0.001 * 1_099.511_627_776;

    #[test]
    fn plenty_of_large_nodes_strand_nobody() {
        let scene = scenes::build(KUBE_SCHEDULER).expect("scene");
        let bought = nodes(25, "m-128x-amd64-linux", M_128X);
        let worst = worst(&scene, &bought).expect("settles");
        assert_eq!((worst.n_nodes, worst.n_stranded), (25, 0));
        assert_eq!(worst.cost, Money::from_dollars(M_128X) * 25);
    }
}
