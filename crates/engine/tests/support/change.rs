//! Ways to change a snapshot: shuffle it, leave one pod in it, lift what a refusal names, carry out a plan.

use super::pieces::tolerate_exactly;
use kerf_engine::scheduler_model::SplitMix64;
use kerf_model::resources::NODES;
use kerf_model::{
    BoundGroup, BoundShape, Demand, DemandIdx, Launch, Node, NodeIdx, NodeName, NodeStage, Plan, PodId, PodTerm, Pool,
    PoolName, Quantity, Readiness, Remedy, Requirement, Requirements, Resources, Snapshot, Step, Text, TopologyKind,
    labels,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The same cluster, told in another order.
pub fn shuffled(snapshot: &Snapshot, seed: u64) -> Snapshot {
    let mut draw = SplitMix64::new(seed);
    let mut new = snapshot.clone();
    shuffle(&mut new.pools, &mut draw);
    for pool in &mut new.pools {
        let mut types = pool.types.to_vec();
        shuffle(&mut types, &mut draw);
        pool.types = types.into();
    }
    let node_order = order(new.nodes.len(), &mut draw);
    new.nodes = node_order.iter().map(|idx| snapshot.nodes[*idx].clone()).collect();
    for group in &mut new.bound {
        group.node = NodeIdx(new_position(&node_order, group.node.0));
    }
    shuffle(&mut new.bound, &mut draw);
    let demand_order = order(new.demands.len(), &mut draw);
    new.demands = demand_order.iter().map(|idx| Arc::clone(&snapshot.demands[*idx])).collect();
    for pod in &mut new.pods {
        pod.demand = DemandIdx(new_position(&demand_order, pod.demand.0));
    }
    shuffle(&mut new.pods, &mut draw);
    shuffle(&mut new.daemons, &mut draw);
    new
}

fn order(length: usize, draw: &mut SplitMix64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..length).collect();
    shuffle(&mut order, draw);
    order
}

fn new_position(order: &[usize], old: u32) -> u32 {
    let position = order.iter().position(|idx| *idx == old as usize);
    position.expect("an order holds every index") as u32
}

fn shuffle<T>(items: &mut [T], draw: &mut SplitMix64) {
    for end in (1..items.len()).rev() {
        items.swap(end, draw.below(end as u64 + 1) as usize);
    }
}

/// The cluster as it is, with only this pod waiting.
pub fn alone(snapshot: &Snapshot, pod: &PodId) -> Snapshot {
    let mut new = snapshot.clone();
    new.pods.retain(|pending| pending.id == *pod);
    new
}

/// Lifts exactly what the remedy names. None for remedies that tell of no single change.
pub fn ease(snapshot: &Snapshot, pod: &PodId, remedy: &Remedy) -> Option<Snapshot> {
    let mut new = snapshot.clone();
    let pending = new.pods.iter().find(|pending| pending.id == *pod)?;
    let demand = Arc::make_mut(&mut new.demands[pending.demand.0 as usize]);
    match remedy {
        Remedy::Tolerate { taint, .. } => demand.tolerations.push(tolerate_exactly(taint)),
        Remedy::DropRequirement { key } => drop_requirement(demand, key),
        Remedy::DeclareLabel { pool, key } => {
            pool_mut(&mut new, pool)?.requirements.add(key, Requirement::exists());
        }
        Remedy::ReduceRequest { resource, to } => demand.requests.set(resource, *to),
        Remedy::RaiseLimit { pool, resource, to } => {
            pool_mut(&mut new, pool)?.limits.set(resource, *to);
        }
        Remedy::LowerMinValues { pool, key, to } => {
            let requirements = &mut pool_mut(&mut new, pool)?.requirements;
            requirements.0.get_mut(key)?.min_values = (*to > 0).then_some(*to);
        }
        Remedy::DropTopology { kind, key } => drop_topology(&mut new, pod, *kind, key),
        Remedy::FreeHostPort { port } => demand.host_ports.retain(|taken| taken.port != *port),
        Remedy::MakeReady { pool } => pool_mut(&mut new, pool)?.readiness = Readiness::Ready,
        Remedy::AddPool => return None,
    }
    Some(new)
}

/// The cluster once the plan is carried out and every launch got its first choice.
pub fn carried_out(snapshot: &Snapshot, plan: &Plan) -> Snapshot {
    let mut new = snapshot.clone();
    for step in &plan.steps {
        let (node_idx, pods) = match step {
            Step::Place(placement) => {
                let named = |node: &Node| node.name == placement.node;
                (new.nodes.iter().position(named).expect("a known node"), &placement.pods)
            }
            Step::Launch(launch) => {
                let node = arrived(snapshot, launch);
                let pool = pool_mut(&mut new, &launch.pool).expect("a known pool");
                pool.in_use.add(&node.capacity);
                pool.in_use.add(&Resources::new().with(NODES, Quantity::from_units(1)));
                new.nodes.push(node);
                (new.nodes.len() - 1, &launch.for_pods)
            }
        };
        for id in pods {
            let pod = new.pods.iter().position(|pod| pod.id == *id).expect("a pending pod");
            let demand = Arc::clone(&new.demands[new.pods.remove(pod).demand.0 as usize]);
            bind(&mut new, node_idx, &demand);
        }
    }
    new
}

/// The cluster without what makes one pass more careful than the next: limits and anti-affinity over zones count the
/// worst that a claim may become, minValues keeps it from becoming too little, reservations are waited for, a daemon's
/// port is only known once it runs, spreads and company see only pods whose domain is settled, and a volume that several
/// pods share is counted for each of them.
pub fn without_caution(snapshot: &Snapshot) -> Snapshot {
    let mut new = snapshot.clone();
    new.settings.reserved = None;
    for pool in &mut new.pools {
        pool.limits = Resources::new();
        pool.requirements.0.values_mut().for_each(|requirement| requirement.min_values = None);
    }
    let is_near = |term: &PodTerm| &*term.topology_key == labels::HOSTNAME;
    for group in &mut new.bound {
        Arc::make_mut(&mut group.shape).anti_affinity.retain(is_near);
    }
    for demand in &mut new.demands {
        let demand = Arc::make_mut(demand);
        demand.anti_affinity.retain(is_near);
        demand.preferred_anti_affinity.retain(|(_, term)| is_near(term));
        demand.spreads.clear();
        demand.affinity.clear();
        demand.preferred_affinity.clear();
        demand.volumes.attachments.clear();
    }
    for daemon in &mut new.daemons {
        Arc::make_mut(&mut daemon.demand).host_ports.clear();
    }
    new
}

fn bind(snapshot: &mut Snapshot, node_idx: usize, demand: &Demand) {
    let node = &mut snapshot.nodes[node_idx];
    node.used.add(&demand.requests);
    node.host_ports.extend(demand.host_ports.iter().cloned());
    for (driver, volumes) in &demand.volumes.attachments {
        node.attached.entry(driver.clone()).or_default().extend(volumes.iter().cloned());
    }
    snapshot.bound.push(BoundGroup {
        node: NodeIdx(node_idx as u32),
        shape: Arc::new(BoundShape {
            namespace: demand.namespace.clone(),
            labels: demand.labels.clone(),
            anti_affinity: demand.anti_affinity.clone(),
        }),
        n_pods: 1,
    });
}

/// The node that comes of a launch which got its first choice.
fn arrived(snapshot: &Snapshot, launch: &Launch) -> Node {
    let pool = snapshot.pools.iter().find(|pool| pool.name == launch.pool).expect("a known pool");
    let option = launch.any_of.first().expect("a launch has options");
    let kind = pool.types.iter().find(|kind| kind.name == option.instance_type).expect("a known type");
    let mut labels = launch.labels.clone();
    let mut told = (*launch.requirements).clone();
    told.add_all(&kind.requirements);
    if let Some(zone) = &option.zone {
        told.add(labels::ZONE, Requirement::is_in([&**zone]));
    }
    if let Some(capacity) = option.capacity_type {
        told.add(labels::CAPACITY_TYPE, Requirement::is_in([capacity.as_str()]));
    }
    for (key, requirement) in told.iter() {
        labels.extend(requirement.single().map(|value| (key.clone(), value.clone())));
    }
    labels.insert(labels::HOSTNAME.into(), launch.claim.0.clone());
    Node {
        name: NodeName(launch.claim.0.clone()),
        pool: Some(launch.pool.clone()),
        stage: NodeStage::InFlight,
        labels,
        hostname: launch.claim.0.clone(),
        taints: launch.taints.clone(),
        allocatable: kind.allocatable(),
        capacity: kind.capacity.clone(),
        used: Resources::new(),
        used_by_daemons: Resources::new(),
        host_ports: vec![],
        attached: BTreeMap::new(),
        attach_limits: kind.attach_limits.clone(),
        instance_type: Some(kind.name.clone()),
        price: Some(option.price),
    }
}

fn pool_mut<'s>(snapshot: &'s mut Snapshot, name: &PoolName) -> Option<&'s mut Pool> {
    snapshot.pools.iter_mut().find(|pool| pool.name == *name)
}

fn drop_requirement(demand: &mut Demand, key: &Text) {
    let drop = |requirements: &mut Requirements| drop(requirements.0.remove(key));
    drop(&mut demand.node_selector);
    demand.required_terms.iter_mut().for_each(drop);
    demand.preferred_terms.iter_mut().for_each(|(_, term)| drop(term));
    demand.volumes.alternatives.iter_mut().for_each(drop);
    // A term that asks for nothing more is always met.
    if demand.required_terms.iter().any(Requirements::is_empty) {
        demand.required_terms.clear();
    }
}

fn drop_topology(snapshot: &mut Snapshot, pod: &PodId, kind: TopologyKind, key: &Text) {
    let Some(pending) = snapshot.pods.iter().find(|pending| pending.id == *pod) else {
        return;
    };
    let demand = Arc::make_mut(&mut snapshot.demands[pending.demand.0 as usize]);
    match kind {
        TopologyKind::Spread => demand.spreads.retain(|spread| spread.topology_key != *key),
        TopologyKind::Affinity => {
            demand.affinity.retain(|term| term.topology_key != *key);
            demand.preferred_affinity.retain(|(_, term)| term.topology_key != *key);
        }
        TopologyKind::AntiAffinity => {
            demand.anti_affinity.retain(|term| term.topology_key != *key);
            demand.preferred_anti_affinity.retain(|(_, term)| term.topology_key != *key);
        }
        TopologyKind::InverseAntiAffinity => {
            for group in &mut snapshot.bound {
                let shape: &mut BoundShape = Arc::make_mut(&mut group.shape);
                shape.anti_affinity.retain(|term| term.topology_key != *key);
            }
        }
    }
}
