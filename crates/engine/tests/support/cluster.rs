//! Clusters drawn at random, every kind of constraint among them.

use super::describe::describe;
use super::pieces::{APPS, CPUS, DRIVER, GPU, TIER, TypeRecipe, ZONES, amount, node_class, spread, term, tolerate};
use kerf_model::resources::{CPU, NODES};
use kerf_model::{
    Binder, BoundGroup, BoundShape, Daemon, Demand, DemandIdx, Effect, HostPort, InstanceType, Labels, MinValuesPolicy,
    NamespaceName, Node, NodeIdx, NodePolicy, NodeStage, Operator, PendingPod, PodId, Pool, PreferencePolicy, Quantity,
    Readiness, Requirement, Requirements, ReservedMode, Resources, Revision, Settings, Snapshot, Taint, Text,
    UnixMillis, labels,
};
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// A snapshot that prints itself in a few lines.
#[derive(Clone)]
pub struct Case(pub Snapshot);

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{}", describe(&self.0))
    }
}

pub fn any_snapshot() -> impl Strategy<Value = Case> {
    (
        vec(any_type(), 1..6),
        vec(any_pool(), 1..4),
        vec(any_node(), 0..5),
        vec(any_daemon(), 0..3),
        vec((any_demand(), 1..5_usize, 0..3_i32), 1..7),
        any_settings(),
    )
        .prop_map(|(types, pools, nodes, daemons, demands, settings)| {
            let mut snapshot = Snapshot { revision: Revision(3), settings, daemons, ..Snapshot::default() };
            let types: Vec<Arc<InstanceType>> =
                types.iter().enumerate().map(|(idx, recipe)| Arc::new(recipe.build(idx))).collect();
            for (idx, recipe) in pools.into_iter().enumerate() {
                snapshot.pools.push(recipe.build(idx, &types));
            }
            for recipe in nodes {
                recipe.add_to(&mut snapshot, &types);
            }
            for (demand, n_pods, priority) in demands {
                add_pods(&mut snapshot, demand, n_pods, priority);
            }
            Case(snapshot)
        })
}

/// Pods that need the same share one demand, whoever drew it.
pub fn add_pods(snapshot: &mut Snapshot, demand: Demand, n_pods: usize, priority: i32) {
    let idx = match snapshot.demands.iter().position(|present| **present == demand) {
        Some(idx) => idx,
        None => {
            snapshot.demands.push(Arc::new(demand));
            snapshot.demands.len() - 1
        }
    };
    for _ in 0..n_pods {
        let number = snapshot.pods.len();
        snapshot.pods.push(PendingPod {
            id: PodId::new("default", &format!("pod-{number:02}")),
            demand: DemandIdx(idx as u32),
            created: UnixMillis(number as i64 % 3),
            priority,
            leaving: None,
            is_virtual: number % 11 == 10,
        });
    }
}

fn any_settings() -> impl Strategy<Value = Settings> {
    (any::<bool>(), any::<bool>(), 0..3_u8, any::<bool>()).prop_map(|(respect, strict, reserved, early)| Settings {
        preferences: if respect { PreferencePolicy::Respect } else { PreferencePolicy::Ignore },
        min_values: if strict { MinValuesPolicy::Strict } else { MinValuesPolicy::BestEffort },
        reserved: [None, Some(ReservedMode::Strict), Some(ReservedMode::Fallback)][usize::from(reserved)],
        placed_by: if early { Binder::Kerf } else { Binder::KubeScheduler },
        well_known: labels::WELL_KNOWN.into_iter().chain([CPUS, labels::AWS_RESERVATION_ID]).map(Text::from).collect(),
        ..Settings::default()
    })
}

fn any_type() -> impl Strategy<Value = TypeRecipe> {
    (
        (
            prop::sample::select(vec![1_i64, 2, 4, 8, 16]),
            prop::sample::select(vec![2_i64, 4, 8]),
            prop::sample::select(vec![4_i64, 10, 30]),
            prop_oneof![6 => Just(0_i64), 1 => 1..3_i64],
            prop::bool::weighted(0.2),
        ),
        1..8_u8,
        prop_oneof![1 => Just(0_i64), 2 => 30..90_i64],
        weighted(0.2, 0..3_u32),
        prop_oneof![3 => Just(0_u16), 1 => any::<u16>()],
        0..9_000_i64,
        prop_oneof![1 => Just(0_i64), 1 => 50..200_i64],
    )
        .prop_map(
            |(
                (cpus, gib_per_cpu, pods, gpus, is_arm),
                zones,
                spot_percent,
                reserved,
                sold_out,
                surcharge,
                overhead,
            )| {
                TypeRecipe {
                    cpus,
                    gib_per_cpu,
                    pods,
                    gpus,
                    is_arm,
                    zones,
                    spot_percent,
                    reserved,
                    sold_out,
                    surcharge,
                    overhead,
                }
            },
        )
}

#[derive(Debug, Clone)]
struct PoolRecipe {
    weight: i32,
    tier: Option<Requirement>,
    requirements: Vec<(Text, Requirement)>,
    taint: Option<Taint>,
    limit_cpus: Option<i64>,
    limit_nodes: Option<i64>,
    /// Bits, by type; the pool sees all types at zero.
    types: u8,
    is_static: bool,
    is_ready: bool,
}

fn any_pool() -> impl Strategy<Value = PoolRecipe> {
    let taint =
        (prop::sample::select(vec![Effect::NoSchedule, Effect::PreferNoSchedule, Effect::NoExecute]), any::<bool>())
            .prop_map(|(effect, valued)| Taint {
                key: "dedicated".into(),
                value: if valued { "x" } else { "" }.into(),
                effect,
            });
    let tier = prop_oneof![
        Just(Requirement::is_in(["gold"])),
        Just(Requirement::is_in(["gold", "silver"])),
        Just(Requirement::exists()),
    ];
    (
        prop::sample::select(vec![0, 0, 10]),
        weighted(0.3, tier),
        vec(any_pool_requirement(), 0..3),
        weighted(0.25, taint),
        weighted(0.25, 0..40_i64),
        weighted(0.25, 0..5_i64),
        prop_oneof![2 => Just(0_u8), 1 => any::<u8>()],
        prop::bool::weighted(0.05),
        prop::bool::weighted(0.95),
    )
        .prop_map(|(weight, tier, requirements, taint, limit_cpus, limit_nodes, types, is_static, is_ready)| {
            PoolRecipe { weight, tier, requirements, taint, limit_cpus, limit_nodes, types, is_static, is_ready }
        })
}

fn any_pool_requirement() -> impl Strategy<Value = (Text, Requirement)> {
    let at_least = |requirement: Requirement, least| Requirement { min_values: Some(least), ..requirement };
    prop_oneof![
        subset(&ZONES).prop_map(|zones| (labels::ZONE.into(), Requirement::is_in(zones))),
        subset(&["spot", "on-demand", "reserved"])
            .prop_map(|kinds| (labels::CAPACITY_TYPE.into(), Requirement::is_in(kinds))),
        Just((labels::ARCH.into(), Requirement::is_in(["amd64"]))),
        Just((CPUS.into(), number(Operator::Gt, 1))),
        Just((CPUS.into(), number(Operator::Lte, 8))),
        Just((labels::INSTANCE_TYPE.into(), Requirement::not_in(["t1"]))),
        (1..4_u32).prop_map(move |least| (labels::INSTANCE_TYPE.into(), at_least(Requirement::exists(), least))),
        (1..3_u32).prop_map(move |least| (labels::ZONE.into(), at_least(Requirement::exists(), least))),
    ]
}

fn number(operator: Operator, bound: i64) -> Requirement {
    Requirement::new(operator, &[bound.to_string().as_str().into()]).expect("a number is a bound")
}

fn subset(of: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    prop::sample::subsequence(of, 1..=of.len())
}

impl PoolRecipe {
    fn build(self, idx: usize, types: &[Arc<InstanceType>]) -> Pool {
        let mut requirements = Requirements::new();
        for (key, requirement) in self.requirements {
            requirements.add(&key, requirement);
        }
        if let Some(tier) = self.tier {
            requirements.add(TIER, tier);
        }
        let mut limits = Resources::new();
        if let Some(cpus) = self.limit_cpus {
            limits.set(CPU, Quantity::from_units(cpus));
        }
        if let Some(nodes) = self.limit_nodes {
            limits.set(NODES, Quantity::from_units(nodes));
        }
        let seen = types
            .iter()
            .enumerate()
            .filter(|(idx, _)| self.types == 0 || self.types & (1 << idx) != 0)
            .map(|(_, kind)| Arc::clone(kind))
            .collect();
        let name = format!("pool-{idx}");
        Pool {
            name: name.as_str().into(),
            weight: self.weight,
            labels: Labels::from([("pool-label".into(), name.as_str().into())]),
            requirements,
            taints: self.taint.into_iter().collect(),
            startup_taints: vec![],
            limits,
            in_use: Resources::new(),
            node_class: node_class(),
            types: seen,
            is_static: self.is_static,
            readiness: if self.is_ready {
                Readiness::Ready
            } else {
                Readiness::NotReady("its node class is not ready".into())
            },
        }
    }
}

#[derive(Debug, Clone)]
struct NodeRecipe {
    pool: Option<usize>,
    kind: usize,
    zone: usize,
    stage: NodeStage,
    bound: Vec<BoundRecipe>,
    /// Thousandths of a core that bound pods use.
    used: i64,
    daemon_used: i64,
    port: bool,
    attached: bool,
    taint: Option<Effect>,
}

/// App, number of pods, and whom they avoid by which key.
type BoundRecipe = (usize, u32, Option<(&'static str, usize)>);

fn any_node() -> impl Strategy<Value = NodeRecipe> {
    let stage = prop_oneof![
        5 => Just(NodeStage::Initialized),
        2 => Just(NodeStage::InFlight),
        1 => Just(NodeStage::Leaving),
    ];
    let avoids = weighted(0.15, (any_key(), 0..3_usize));
    (
        weighted(0.7, 0..3_usize),
        0..6_usize,
        0..3_usize,
        stage,
        vec((0..3_usize, 1..3_u32, avoids), 0..3),
        0..1500_i64,
        prop_oneof![Just(0_i64), Just(100_i64)],
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.1),
        weighted(0.1, prop::sample::select(vec![Effect::NoSchedule, Effect::PreferNoSchedule])),
    )
        .prop_map(|(pool, kind, zone, stage, bound, used, daemon_used, port, attached, taint)| NodeRecipe {
            pool,
            kind,
            zone,
            stage,
            bound,
            used,
            daemon_used,
            port,
            attached,
            taint,
        })
}

impl NodeRecipe {
    fn add_to(self, snapshot: &mut Snapshot, types: &[Arc<InstanceType>]) {
        let kind = &types[self.kind % types.len()];
        let name = format!("node-{}", snapshot.nodes.len());
        let label = |key: &str, value: &str| (Text::from(key), Text::from(value));
        let mut labels: Labels = [
            label(labels::ZONE, ZONES[self.zone]),
            label(labels::INSTANCE_TYPE, kind.name.as_str()),
            label(labels::OS, "linux"),
            label(labels::REGION, "r"),
            label(labels::CAPACITY_TYPE, "on-demand"),
            label(labels::HOSTNAME, &name),
        ]
        .into();
        for key in [labels::ARCH, CPUS] {
            let value = kind.requirements.get(key).and_then(Requirement::single);
            labels.extend(value.map(|value| (key.into(), value.clone())));
        }
        let mut taints: Vec<Taint> =
            self.taint.map(|effect| Taint { key: "odd".into(), value: "".into(), effect }).into_iter().collect();
        let pool = self.pool.and_then(|idx| snapshot.pools.get_mut(idx)).map(|pool| {
            labels.extend(pool.labels.clone());
            labels.extend([label(labels::NODEPOOL, pool.name.as_str())]);
            labels.extend([label(labels::REGISTERED, "true")]);
            if self.stage == NodeStage::Initialized {
                labels.extend([label(labels::INITIALIZED, "true")]);
            }
            taints.extend(pool.taints.clone());
            if self.stage != NodeStage::Leaving {
                pool.in_use.add(&kind.capacity);
                pool.in_use.add(&Resources::new().with(NODES, Quantity::from_units(1)));
            }
            pool.name.clone()
        });
        let n_bound: u32 = self.bound.iter().map(|(_, n_pods, _)| n_pods).sum();
        let idx = NodeIdx(snapshot.nodes.len() as u32);
        for (app, n_pods, avoids) in self.bound {
            snapshot.bound.push(BoundGroup {
                node: idx,
                shape: Arc::new(BoundShape {
                    namespace: NamespaceName::default(),
                    labels: [label("app", APPS[app])].into(),
                    anti_affinity: avoids.map(|(key, app)| term(key, APPS[app])).into_iter().collect(),
                }),
                n_pods,
            });
        }
        let daemons = amount(self.daemon_used, self.daemon_used, i64::from(self.daemon_used > 0));
        let mut used = amount(self.used, self.used, i64::from(n_bound));
        used.add(&daemons);
        snapshot.nodes.push(Node {
            name: name.as_str().into(),
            pool,
            stage: self.stage,
            labels,
            hostname: name.as_str().into(),
            taints,
            allocatable: kind.allocatable(),
            capacity: kind.capacity.clone(),
            used,
            used_by_daemons: daemons,
            host_ports: self.port.then(|| any_port(80)).into_iter().collect(),
            attached: self
                .attached
                .then(|| (Text::from(DRIVER), BTreeSet::from(["v0".into(), "v9".into()])))
                .into_iter()
                .collect(),
            attach_limits: kind.attach_limits.clone(),
            instance_type: Some(kind.name.clone()),
            price: None,
        });
    }
}

fn any_port(port: u16) -> HostPort {
    HostPort { ip: "".into(), port, protocol: "TCP".into() }
}

fn any_key() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![labels::HOSTNAME, labels::ZONE])
}

fn any_daemon() -> impl Strategy<Value = Daemon> {
    (
        prop::sample::select(vec![50_i64, 100, 400]),
        any::<bool>(),
        weighted(
            0.3,
            prop_oneof![
                Just((labels::ARCH, "amd64")),
                Just((labels::ZONE, "za")),
                Just((labels::CAPACITY_TYPE, "spot")),
            ],
        ),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(cpu, tolerant, selector, port)| {
            let mut demand = Demand {
                labels: [("app".into(), "daemon".into())].into(),
                requests: amount(cpu, cpu, 1),
                ..Demand::default()
            };
            if tolerant {
                demand.tolerations.push(tolerate(""));
            }
            if let Some((key, value)) = selector {
                demand.node_selector.add(key, Requirement::is_in([value]));
            }
            demand.host_ports.extend(port.then(|| any_port(80)));
            Daemon { name: "daemon".into(), demand: Arc::new(demand) }
        })
}

/// One thing that a pod may ask for.
#[derive(Debug, Clone)]
enum Wish {
    Selector(&'static str, Requirement),
    /// Terms that are ORed.
    OneOf(Vec<(&'static str, Requirement)>),
    Prefers(i32, &'static str, Requirement),
    Tolerates(&'static str),
    Near(&'static str, usize),
    Avoids(&'static str, usize),
    PrefersNear(i32, &'static str, usize),
    PrefersFar(i32, &'static str, usize),
    Spread {
        key: &'static str,
        max_skew: u32,
        is_hard: bool,
        min_domains: Option<u32>,
        honors_taints: bool,
        ignores_affinity: bool,
    },
    Port(u16),
    Disk(Vec<&'static str>, u8),
    Gpu,
}

fn any_node_requirement() -> impl Strategy<Value = (&'static str, Requirement)> {
    prop_oneof![
        3 => subset(&ZONES).prop_map(|zones| (labels::ZONE, Requirement::is_in(zones))),
        1 => subset(&ZONES[..1]).prop_map(|zones| (labels::ZONE, Requirement::not_in(zones))),
        2 => subset(&["spot", "on-demand"])
            .prop_map(|kinds| (labels::CAPACITY_TYPE, Requirement::is_in(kinds))),
        1 => subset(&["amd64", "arm64"]).prop_map(|names| (labels::ARCH, Requirement::is_in(names))),
        1 => subset(&["t0", "t1", "t2"])
            .prop_map(|names| (labels::INSTANCE_TYPE, Requirement::is_in(names))),
        1 => Just((CPUS, number(Operator::Gt, 2))),
        1 => Just((CPUS, number(Operator::Lt, 8))),
        1 => Just((TIER, Requirement::is_in(["gold"]))),
        1 => Just((TIER, Requirement::not_in(["gold"]))),
        1 => Just((TIER, Requirement::exists())),
        1 => Just((TIER, Requirement::does_not_exist())),
        1 => Just(("nobody/knows", Requirement::exists())),
        1 => Just((labels::NODEPOOL, Requirement::is_in(["pool-0"]))),
    ]
}

fn any_wish() -> impl Strategy<Value = Wish> {
    let near = || (any_key(), 0..3_usize);
    prop_oneof![
        3 => any_node_requirement().prop_map(|(key, wanted)| Wish::Selector(key, wanted)),
        2 => vec(any_node_requirement(), 1..3).prop_map(Wish::OneOf),
        1 => (1..100_i32, any_node_requirement())
            .prop_map(|(weight, (key, wanted))| Wish::Prefers(weight, key, wanted)),
        2 => prop::sample::select(vec!["dedicated", "odd", ""]).prop_map(Wish::Tolerates),
        2 => near().prop_map(|(key, app)| Wish::Near(key, app)),
        2 => near().prop_map(|(key, app)| Wish::Avoids(key, app)),
        1 => (1..100_i32, near()).prop_map(|(weight, (key, app))| Wish::PrefersNear(weight, key, app)),
        1 => (1..100_i32, near()).prop_map(|(weight, (key, app))| Wish::PrefersFar(weight, key, app)),
        4 => (
            any_key(),
            1..3_u32,
            prop::bool::weighted(0.75),
            weighted(0.15, 2..4_u32),
            prop::bool::weighted(0.2),
            prop::bool::weighted(0.2),
        )
            .prop_map(|(key, max_skew, is_hard, min_domains, honors_taints, ignores_affinity)| {
                Wish::Spread {
                    key,
                    max_skew,
                    is_hard,
                    min_domains: min_domains.filter(|_| is_hard),
                    honors_taints,
                    ignores_affinity,
                }
            }),
        1 => prop::sample::select(vec![80_u16, 443]).prop_map(Wish::Port),
        1 => (subset(&ZONES), 0..4_u8).prop_map(|(zones, volume)| Wish::Disk(zones, volume)),
        1 => Just(Wish::Gpu),
    ]
}

fn any_demand() -> impl Strategy<Value = Demand> {
    let sizes = prop_oneof![
        4 => (prop::sample::select(vec![100_i64, 250, 500, 1000]), 64..1024_i64),
        3 => (prop::sample::select(vec![1000_i64, 1500, 3000]), 512..8192_i64),
        1 => (prop::sample::select(vec![0_i64, 7000, 20_000]), 0..16_384_i64),
    ];
    let wishes = prop_oneof![2 => vec(any_wish(), 0..1), 3 => vec(any_wish(), 1..2), 2 => vec(any_wish(), 2..4)];
    (0..3_usize, sizes, wishes).prop_map(|(app, (cpu, memory), wishes)| {
        let mut demand = Demand {
            labels: [("app".into(), APPS[app].into())].into(),
            requests: amount(cpu, memory, 1),
            ..Demand::default()
        };
        for wish in wishes {
            grant(&mut demand, wish, APPS[app]);
        }
        demand
    })
}

fn grant(demand: &mut Demand, wish: Wish, own_app: &str) {
    let one = |key: &str, wanted| Requirements::new().with(key, wanted);
    match wish {
        Wish::Selector(key, wanted) => demand.node_selector.add(key, wanted),
        Wish::OneOf(terms) => demand.required_terms.extend(terms.into_iter().map(|(key, wanted)| one(key, wanted))),
        Wish::Prefers(weight, key, wanted) => {
            demand.preferred_terms.push((weight, one(key, wanted)));
        }
        Wish::Tolerates(key) => demand.tolerations.push(tolerate(key)),
        Wish::Near(key, app) => demand.affinity.push(term(key, APPS[app])),
        Wish::Avoids(key, app) => demand.anti_affinity.push(term(key, APPS[app])),
        Wish::PrefersNear(weight, key, app) => {
            demand.preferred_affinity.push((weight, term(key, APPS[app])));
        }
        Wish::PrefersFar(weight, key, app) => {
            demand.preferred_anti_affinity.push((weight, term(key, APPS[app])));
        }
        Wish::Spread { key, max_skew, is_hard, min_domains, honors_taints, ignores_affinity } => {
            let mut spread = spread(key, own_app, max_skew, is_hard);
            spread.min_domains = min_domains;
            if honors_taints {
                spread.node_taints_policy = NodePolicy::Honor;
            }
            if ignores_affinity {
                spread.node_affinity_policy = NodePolicy::Ignore;
            }
            // The API server refuses two constraints with the same key and action.
            let is_new = demand
                .spreads
                .iter()
                .all(|present| present.topology_key != spread.topology_key || present.when != spread.when);
            demand.spreads.extend(is_new.then_some(spread));
        }
        Wish::Port(port) => demand.host_ports.push(any_port(port)),
        Wish::Disk(zones, volume) => {
            demand.volumes.alternatives =
                zones.into_iter().map(|zone| one(labels::ZONE, Requirement::is_in([zone]))).collect();
            demand.volumes.attachments.insert(DRIVER.into(), BTreeSet::from([format!("v{volume}").as_str().into()]));
        }
        Wish::Gpu => demand.requests.set(GPU, Quantity::from_units(1)),
    }
}
