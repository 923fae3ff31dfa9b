//! For each law a plan that keeps it and one that breaks it.

mod places;
mod purchases;
mod topology;

use super::*;
use kerf_model::resources::{CPU, MEMORY, NODES, PODS};
use kerf_model::{
    BoundGroup, BoundShape, CapacityType, ClaimName, Daemon, Demand, DemandIdx, Effect, HostPort, InstanceType,
    LabelSelector, Labels, Launch, LaunchOption, Money, Namespaces, Node, NodeClassRef, NodeIdx, NodeName, NodePolicy,
    NodeStage, Offering, PendingPod, Placement, PodId, PodTerm, Pool, Quantity, Readiness, Reason, Requirement,
    Requirements, Resources, Spread, Step, Taint, Text, Toleration, TolerationOperator, TopologyKind, UnixMillis,
    WhenUnsatisfiable, labels,
};
use std::collections::BTreeSet;
use std::sync::Arc;

const ZONE_A: &str = "a";
const ZONE_B: &str = "b";

fn amount(cpu_milli: i64, memory_mebi: i64, pods: i64) -> Resources {
    Resources::new()
        .with(CPU, Quantity::from_milli(cpu_milli))
        .with(MEMORY, Quantity::from_mebibytes(memory_mebi))
        .with(PODS, Quantity::from_units(pods))
}

fn machine(name: &str, cpu: i64, price: i64) -> InstanceType {
    InstanceType {
        name: name.into(),
        requirements: Requirements::new()
            .with(labels::INSTANCE_TYPE, Requirement::is_in([name]))
            .with(labels::ARCH, Requirement::is_in(["amd64"]))
            .with(labels::OS, Requirement::is_in(["linux"]))
            .with(labels::ZONE, Requirement::is_in([ZONE_A, ZONE_B]))
            .with(labels::CAPACITY_TYPE, Requirement::is_in(["on-demand", "reserved"])),
        offerings: [ZONE_A, ZONE_B]
            .map(|zone| Offering::new(zone, CapacityType::OnDemand, Money::from_micros(price)))
            .to_vec(),
        capacity: amount(cpu * 1000, cpu * 4096, 10),
        overhead: Resources::new(),
        attach_limits: [("ebs".into(), 2)].into(),
    }
}

fn pool(name: &str) -> Pool {
    Pool {
        name: name.into(),
        weight: 0,
        labels: Labels::new(),
        requirements: Requirements::new(),
        taints: vec![],
        startup_taints: vec![],
        limits: Resources::new(),
        in_use: Resources::new(),
        node_class: NodeClassRef { group: "g".into(), kind: "Class".into(), name: "c".into() },
        types: [machine("small", 2, 100), machine("large", 8, 400)].map(Arc::new).into(),
        is_static: false,
        readiness: Readiness::Ready,
    }
}

fn node(name: &str, zone: &str) -> Node {
    Node {
        name: name.into(),
        pool: None,
        stage: NodeStage::Initialized,
        labels: [(Text::from(labels::ZONE), Text::from(zone))].into(),
        hostname: name.into(),
        taints: vec![],
        allocatable: amount(4000, 16384, 10),
        capacity: amount(4000, 16384, 10),
        used: Resources::new(),
        used_by_daemons: Resources::new(),
        host_ports: vec![],
        attached: [].into(),
        attach_limits: [("ebs".into(), 2)].into(),
        instance_type: None,
        price: None,
    }
}

fn demand(app: &str, cpu_milli: i64) -> Demand {
    Demand {
        labels: [(Text::from("app"), Text::from(app))].into(),
        requests: amount(cpu_milli, 128, 1),
        ..Demand::default()
    }
}

/// A snapshot with one pool, nodes n1 (zone a) and n2 (zone b), and pending pods of the demands.
fn scene(demands: Vec<(Demand, usize)>) -> Snapshot {
    let mut pods = vec![];
    for (idx, (_, count)) in demands.iter().enumerate() {
        for n in 0..*count {
            pods.push(PendingPod {
                id: PodId::new("default", &format!("p{idx}-{n}")),
                demand: DemandIdx(idx as u32),
                created: UnixMillis(0),
                priority: 0,
                leaving: None,
                is_virtual: false,
            });
        }
    }
    Snapshot {
        pools: vec![pool("pool")],
        nodes: vec![node("n1", ZONE_A), node("n2", ZONE_B)],
        demands: demands.into_iter().map(|(demand, _)| Arc::new(demand)).collect(),
        pods,
        ..Snapshot::default()
    }
}

fn pods(names: &[&str]) -> Vec<PodId> {
    names.iter().map(|name| PodId::new("default", name)).collect()
}

fn on(node: &str, names: &[&str]) -> Step {
    Step::Place(Placement {
        node: NodeName::from(node),
        pods: pods(names),
        why: Reason::RoomOnNode { n_pods: names.len(), in_flight: false },
    })
}

fn option(name: &str, zone: &str, price: i64) -> LaunchOption {
    LaunchOption {
        instance_type: name.into(),
        zone: Some(zone.into()),
        capacity_type: Some(CapacityType::OnDemand),
        price: Money::from_micros(price),
        price_is_estimate: false,
    }
}

/// A claim for either type, in either zone.
fn claim(name: &str, names: &[&str]) -> Launch {
    Launch {
        claim: ClaimName::from(name),
        pool: "pool".into(),
        node_class: pool("pool").node_class,
        any_of: vec![option("small", ZONE_A, 100), option("large", ZONE_A, 400)].into(),
        requirements: Arc::default(),
        labels: Labels::new(),
        taints: vec![],
        startup_taints: vec![],
        requests: amount(1_000_000, 1_000_000, 1000),
        for_pods: pods(names),
        reservations: vec![],
        min_values_relaxed: false,
        why: Reason::PodsWaiting { n_pods: names.len() },
    }
}

fn launch(name: &str, names: &[&str]) -> Step {
    Step::Launch(Box::new(claim(name, names)))
}

/// A claim that can only end in the zone.
fn launch_in(zone: &str, name: &str, names: &[&str]) -> Step {
    let mut claim = claim(name, names);
    Arc::make_mut(&mut claim.requirements).add(labels::ZONE, Requirement::is_in([zone]));
    let moved = |option: &LaunchOption| LaunchOption { zone: Some(zone.into()), ..option.clone() };
    claim.any_of = claim.any_of.iter().map(moved).collect();
    Step::Launch(Box::new(claim))
}

fn judge(snapshot: &Snapshot, steps: Vec<Step>) -> Vec<Breach> {
    let plan = Plan { based_on: snapshot.revision, steps };
    audit(snapshot, &plan).err().unwrap_or_default()
}

#[track_caller]
fn good(snapshot: &Snapshot, steps: Vec<Step>) {
    let breaches = judge(snapshot, steps);
    assert!(breaches.is_empty(), "{breaches:?}");
}

#[track_caller]
fn bad(snapshot: &Snapshot, steps: Vec<Step>, expected: impl Fn(&Breach) -> bool) {
    let breaches = judge(snapshot, steps);
    assert!(!breaches.is_empty(), "no breach found");
    assert!(breaches.iter().all(&expected), "{breaches:?}");
    assert!(breaches.iter().all(|breach| !breach.to_string().is_empty()));
}

macro_rules! is {
    ($pattern:pat) => {
        |breach: &Breach| matches!(breach, $pattern)
    };
}
use is;
