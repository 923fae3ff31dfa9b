//! What the view shows, as plain values.

use kerf_cloud_sim::Bill;
use kerf_controllers::Operator;
use kerf_controllers::events::timestamp;
use kerf_model::{NodeStage, Quantity, Resources, Step, UnixMillis, labels, resources};

/// The cluster at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Picture {
    pub(crate) at: String,
    pub(crate) pools: Vec<PoolRow>,
    pub(crate) nodes: Vec<NodeRow>,
    pub(crate) n_pods: usize,
    pub(crate) n_running: usize,
    /// Pods that wait, with what they wait for.
    pub(crate) pending: Vec<(String, String)>,
    pub(crate) per_hour_micros: i64,
    pub(crate) spent_micros: i64,
    /// The latest last.
    pub(crate) decisions: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct PoolRow {
    pub(crate) name: String,
    pub(crate) n_nodes: usize,
    pub(crate) cpu: String,
    pub(crate) state: String,
}

#[derive(Debug, Clone)]
pub(crate) struct NodeRow {
    pub(crate) name: String,
    pub(crate) what: String,
    pub(crate) stage: &'static str,
    pub(crate) n_pods: usize,
    /// Of CPU and memory, from 0 to 1.
    pub(crate) fill: (f64, f64),
    pub(crate) price_micros: Option<i64>,
}

/// Decisions shown.
const DECISIONS: usize = 6;

impl Picture {
    pub(crate) fn of(operator: &Operator, now: UnixMillis, bill: &Bill) -> Self {
        let world = operator.world();
        let snapshot = operator.snapshot(now);
        let pools = snapshot.pools.iter().map(|pool| {
            let of_pool = |node: &&kerf_model::Node| node.pool.as_ref() == Some(&pool.name);
            let limit = pool.limits.get(resources::CPU);
            let used = pool.in_use.get(resources::CPU);
            PoolRow {
                name: pool.name.to_string(),
                n_nodes: snapshot.nodes.iter().filter(of_pool).count(),
                cpu: if limit.is_zero() { format!("{used} CPU") } else { format!("{used} of {limit} CPU") },
                state: match &pool.readiness {
                    kerf_model::Readiness::Ready => "ready".to_owned(),
                    kerf_model::Readiness::NotReady(why) => why.to_string(),
                },
            }
        });
        let nodes = snapshot.nodes.iter().map(|node| NodeRow {
            name: node.name.to_string(),
            what: [labels::INSTANCE_TYPE, labels::ZONE, labels::CAPACITY_TYPE]
                .iter()
                .filter_map(|key| node.labels.get(*key).map(|value| &**value))
                .collect::<Vec<_>>()
                .join(" "),
            stage: match node.stage {
                NodeStage::Initialized => "ready",
                NodeStage::InFlight => "coming",
                NodeStage::Leaving => "leaving",
            },
            n_pods: world.pods_on(&node.name.0).filter(|pod| pod.is_active()).count(),
            fill: (
                share(&node.used, &node.allocatable, resources::CPU),
                share(&node.used, &node.allocatable, resources::MEMORY),
            ),
            price_micros: node.price.map(|price| price.micros),
        });
        let waiting = snapshot.pods.iter().filter(|pod| !pod.is_virtual).map(|pod| {
            let what = match operator.nominations().promise_of(&pod.id) {
                Some(promise) => format!("for {}", promise.place),
                None => "for a decision".to_owned(),
            };
            (pod.id.to_string(), what)
        });
        let is_running = |pod: &&std::sync::Arc<kerf_mirror::PodState>| pod.phase == kerf_mirror::Phase::Running;
        let mut decisions: Vec<String> =
            operator.record().decisions().filter_map(|decision| in_a_line(decision)).take(DECISIONS).collect();
        decisions.reverse();
        Self {
            at: timestamp(now),
            pools: pools.collect(),
            nodes: nodes.collect(),
            n_pods: world.pods().filter(|pod| pod.is_active()).count(),
            n_running: world.pods().filter(is_running).count(),
            pending: waiting.collect(),
            per_hour_micros: bill.per_hour.micros,
            spent_micros: bill.spent_micros,
            decisions,
        }
    }
}

/// A decision that did or refused something, in one line.
fn in_a_line(decision: &kerf_controllers::record::Decision) -> Option<String> {
    let mut parts = Vec::new();
    let (mut n_launches, mut n_pods, mut micros) = (0, 0, 0);
    let mut types = std::collections::BTreeMap::new();
    for step in &decision.plan.steps {
        if let Step::Launch(launch) = step {
            n_launches += 1;
            n_pods += launch.for_pods.len();
            micros += launch.price().micros;
            if let Some(option) = launch.any_of.first() {
                *types.entry(option.instance_type.to_string()).or_insert(0) += 1;
            }
        }
    }
    if n_launches > 0 {
        let types: Vec<String> = types.iter().map(|(name, n)| format!("{n} × {name}")).collect();
        parts.push(format!("{} for {n_pods} pods, {}/h", types.join(", "), dollars(micros)));
    }
    if let Some((pod, refusal)) = decision.report.refused.first() {
        let n_more = decision.report.refused.len() - 1;
        let more = if n_more > 0 { format!(" and {n_more} more") } else { String::new() };
        parts.push(format!("no place for {pod}{more}: {refusal}"));
    }
    (!parts.is_empty()).then(|| format!("{}  {}", timestamp(decision.at), parts.join("; ")))
}

fn share(used: &Resources, of: &Resources, name: &str) -> f64 {
    let (used, of): (Quantity, Quantity) = (used.get(name), of.get(name));
    if of.is_zero() { 0.0 } else { (used.milli as f64 / of.milli as f64).clamp(0.0, 1.0) }
}

/// `$1.2345`.
pub(crate) fn dollars(micros: i64) -> String {
    format!("${}.{:04}", micros / 1_000_000, micros % 1_000_000 / 100)
}
