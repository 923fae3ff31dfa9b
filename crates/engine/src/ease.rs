//! Does it help? A remedy is tried out on the cluster as it is, with the one pod waiting, before anyone is told of it.

use crate::plan;
use kerf_model::{
    Demand, DemandIdx, Effort, PodTerm, Pool, PoolName, Readiness, Remedy, Requirement, Snapshot, Toleration,
    TolerationOperator, TopologyKind,
};
use std::sync::Arc;

/// Whether the pod, alone, is placed once exactly this is changed.
pub(crate) fn helps(snapshot: &Snapshot, pod: usize, remedy: &Remedy) -> bool {
    let pending = snapshot.pods[pod].clone();
    let mut demand: Demand = (*snapshot.demands[pending.demand.0 as usize]).clone();
    let mut eased = Snapshot {
        demands: Vec::new(),
        pods: vec![kerf_model::PendingPod { demand: DemandIdx(0), ..pending }],
        ill: Vec::new(),
        notes: Vec::new(),
        settings: snapshot.settings.clone(),
        pools: snapshot.pools.clone(),
        nodes: snapshot.nodes.clone(),
        bound: snapshot.bound.clone(),
        daemons: snapshot.daemons.clone(),
        revision: snapshot.revision,
        now: snapshot.now,
    };
    if !apply(&mut eased, &mut demand, remedy) {
        return false;
    }
    eased.demands.push(Arc::new(demand));
    plan::places_all(&eased, &Effort::default())
}

/// Makes the change. False for remedies that tell of no single one.
fn apply(snapshot: &mut Snapshot, demand: &mut Demand, remedy: &Remedy) -> bool {
    match remedy {
        Remedy::Tolerate { taint, .. } => demand.tolerations.push(Toleration {
            key: taint.key.clone(),
            operator: TolerationOperator::Equal,
            value: taint.value.clone(),
            effect: Some(taint.effect),
        }),
        Remedy::DropRequirement { key } => {
            demand.node_selector.0.remove(key);
            for term in &mut demand.required_terms {
                term.0.remove(key);
            }
            for (_, term) in &mut demand.preferred_terms {
                term.0.remove(key);
            }
        }
        Remedy::DeclareLabel { pool: name, key } => match pool_named(snapshot, name) {
            Some(pool) => pool.requirements.add(key, Requirement::exists()),
            None => return false,
        },
        Remedy::ReduceRequest { resource, to } => demand.requests.set(resource, *to),
        Remedy::RaiseLimit { pool: name, resource, to } => match pool_named(snapshot, name) {
            Some(pool) => pool.limits.set(resource, *to),
            None => return false,
        },
        Remedy::LowerMinValues { pool: name, key, to } => {
            match pool_named(snapshot, name).and_then(|pool| pool.requirements.0.get_mut(key)) {
                Some(requirement) => requirement.min_values = (*to > 0).then_some(*to),
                None => return false,
            }
        }
        Remedy::DropTopology { kind, key } => drop_topology(demand, *kind, key),
        Remedy::FreeHostPort { port } => demand.host_ports.retain(|taken| taken.port != *port),
        Remedy::MakeReady { pool: name } => match pool_named(snapshot, name) {
            Some(pool) => pool.readiness = Readiness::Ready,
            None => return false,
        },
        Remedy::AddPool => return false,
    }
    true
}

fn pool_named<'s>(snapshot: &'s mut Snapshot, name: &PoolName) -> Option<&'s mut Pool> {
    snapshot.pools.iter_mut().find(|pool| pool.name == *name)
}

fn drop_topology(demand: &mut Demand, kind: TopologyKind, key: &str) {
    let other = |term: &PodTerm| &*term.topology_key != key;
    match kind {
        TopologyKind::Spread => demand.spreads.retain(|spread| &*spread.topology_key != key),
        TopologyKind::Affinity => demand.affinity.retain(other),
        TopologyKind::AntiAffinity => demand.anti_affinity.retain(other),
        TopologyKind::InverseAntiAffinity => {}
    }
}
