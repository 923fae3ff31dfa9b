//! What was decided about one thing, when, why, what was turned down, and what would change the answer.
//!
//! Answers come from the record of decisions and the world as it is; nothing is asked of the cluster, and nothing is changed.

use crate::events::timestamp;
use crate::operator::Operator;
use crate::record::Decision;
use crate::world::World;
use kerf_api::labels::NODE_POOL;
use kerf_mirror::{Kind, ObjectKey};
use kerf_model::{Launch, Money, PodId, Refusal, Step, Text, Why};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write as _};

/// How many of a kind are listed before the rest is counted.
const FEW: usize = 5;

/// What is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Pod(PodId),
    Node(String),
    NodeClaim(String),
    NodePool(String),
}

impl Subject {
    fn key(&self) -> ObjectKey {
        let (kind, namespace, name): (_, Text, Text) = match self {
            Self::Pod(id) => (Kind::Pod, id.namespace.clone(), id.name.clone()),
            Self::Node(name) => (Kind::Node, "".into(), name.as_str().into()),
            Self::NodeClaim(name) => (Kind::NodeClaim, "".into(), name.as_str().into()),
            Self::NodePool(name) => (Kind::NodePool, "".into(), name.as_str().into()),
        };
        ObjectKey { kind, class_kind: None, namespace, name }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(id) => write!(f, "pod {id}"),
            Self::Node(name) => write!(f, "node {name}"),
            Self::NodeClaim(name) => write!(f, "nodeclaim {name}"),
            Self::NodePool(name) => write!(f, "nodepool {name}"),
        }
    }
}

/// The answer, as JSON and as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// `pod default/web-1`.
    pub subject: String,
    /// How things stand, in one sentence.
    pub now: String,
    /// The latest first.
    pub decisions: Vec<Told>,
}

/// One decision, as far as it concerns the subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    pub at: String,
    /// The state of the world that it was made from.
    pub revision: String,
    pub decided: String,
    pub why: String,
    /// What was turned down, and by how much.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turned_down: Vec<String>,
    /// The smallest change that would alter the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_help: Option<String>,
}

/// None when nothing is known of it: neither in the cluster nor in the record.
pub fn explain(operator: &Operator, subject: &Subject) -> Option<Explanation> {
    if let Some(why) = operator.world().unreadable().get(&subject.key()) {
        let now = format!("cannot be read, and is left alone: {why}");
        return Some(Explanation { subject: subject.to_string(), now, decisions: Vec::new() });
    }
    let mut explanation = match subject {
        Subject::Pod(id) => return of_pod(operator, id),
        Subject::Node(name) => of_node(operator, name),
        Subject::NodeClaim(name) => of_claim(operator, name),
        Subject::NodePool(name) => of_pool(operator, name),
    }?;
    for (what, why) in operator.standstills() {
        let _ = write!(explanation.now, "; {what} stand still: {why}");
    }
    Some(explanation)
}

impl Explanation {
    /// As people read it.
    pub fn to_text(&self) -> String {
        let mut out = format!("{}: {}\n", self.subject, self.now);
        if self.decisions.is_empty() {
            out.push_str(
                "  no decision about it is on record (the record is bounded, and begins when the operator does)\n",
            );
        }
        for told in &self.decisions {
            let _ = writeln!(out, "\n{} ({})  {}", told.at, told.revision, told.decided);
            let _ = writeln!(out, "  why: {}", told.why);
            for other in &told.turned_down {
                let _ = writeln!(out, "  not: {other}");
            }
            if let Some(remedy) = &told.would_help {
                let _ = writeln!(out, "  would help: {remedy}");
            }
        }
        out
    }
}

fn of_pod(operator: &Operator, id: &PodId) -> Option<Explanation> {
    let world = operator.world();
    let mut decisions = Vec::new();
    for decision in operator.record().decisions() {
        if let Some((_, refusal)) = decision.report.refused.iter().find(|(pod, _)| pod == id) {
            decisions.push(refused(decision, refusal));
            continue;
        }
        for step in &decision.plan.steps {
            match step {
                Step::Place(placement) if placement.pods.contains(id) => decisions.push(Told {
                    decided: format!("place it on node {}", placement.node),
                    why: placement.why.to_string(),
                    ..told(decision)
                }),
                Step::Launch(launch) if launch.for_pods.contains(id) => decisions.push(launched(decision, launch)),
                _ => {}
            }
        }
    }
    let left_out = operator.record().left_out(id);
    if let Some(left_out) = left_out {
        decisions.insert(
            0,
            Told {
                at: timestamp(left_out.at),
                revision: left_out.revision.to_string(),
                decided: "leave it out: there is nothing to plan for it".to_owned(),
                why: left_out.why.to_string(),
                turned_down: Vec::new(),
                would_help: None,
            },
        );
    }
    let now = match world.pod(id) {
        Some(pod) if pod.is_bound() => format!("{} on node {}", pod.phase.as_str(), pod.node),
        Some(pod) => match operator.nominations().promise_of(id) {
            Some(promise) => format!("waits for {}", place_in_words(world, &promise.place)),
            None if pod.is_waiting && left_out.is_some() => "waits, and is left out of every plan".to_owned(),
            None if pod.is_waiting => "waits; no place was found for it yet".to_owned(),
            None => format!("is not ours to place: {}", waits_in_words(pod.waits_for)),
        },
        None if decisions.is_empty() => return None,
        None => "is gone".to_owned(),
    };
    Some(Explanation { subject: format!("pod {id}"), now, decisions })
}

fn of_claim(operator: &Operator, name: &str) -> Option<Explanation> {
    let world = operator.world();
    let on_record = operator.record().launch_of(name);
    let now = match world.claims.get(name) {
        Some(claim) => {
            let status = claim.status.clone().unwrap_or_default();
            let state = if claim.metadata.deletion_timestamp.is_some() {
                "is being deleted".to_owned()
            } else {
                let waits = status.conditions.iter().find(|condition| {
                    matches!(condition.type_.as_str(), "Launched" | "Registered" | "Initialized")
                        && condition.status != "True"
                });
                match waits {
                    Some(waits) => format!("{}={} ({}: {})", waits.type_, waits.status, waits.reason, waits.message),
                    None => "is ready".to_owned(),
                }
            };
            let label = |key: &str| claim.metadata.labels.as_ref().and_then(|labels| labels.get(key));
            let what =
                ["node.kubernetes.io/instance-type", "topology.kubernetes.io/zone", "karpenter.sh/capacity-type"]
                    .iter()
                    .filter_map(|key| label(key).map(String::as_str))
                    .collect::<Vec<_>>();
            let node = status.node_name.map(|node| format!(", node {node}")).unwrap_or_default();
            if what.is_empty() { format!("{state}{node}") } else { format!("{state}{node}: {}", what.join(" ")) }
        }
        None if on_record.is_none() => return None,
        None => "is gone".to_owned(),
    };
    let decisions = on_record.map(|(decision, launch)| launched(decision, launch)).into_iter().collect();
    Some(Explanation { subject: format!("nodeclaim {name}"), now, decisions })
}

fn of_node(operator: &Operator, name: &str) -> Option<Explanation> {
    let world = operator.world();
    let node = world.nodes.get(name)?;
    let pods: Vec<_> = world.pods_on(name).filter(|pod| pod.is_active()).collect();
    let n_daemons = pods.iter().filter(|pod| pod.is_daemon()).count();
    let held = pods.iter().filter(|pod| pod.hold.is_some()).map(|pod| pod.id.to_string()).collect::<Vec<_>>();
    let mut now = format!("runs {} pods, {n_daemons} of them of DaemonSets", pods.len());
    if !held.is_empty() {
        let _ = write!(now, "; {} ask not to be disrupted: {}", held.len(), few(&held));
    }
    if node.metadata.deletion_timestamp.is_some() {
        now.push_str("; it is being drained");
    }
    let claim = world.claim_of_node(node).and_then(|claim| claim.metadata.name.clone());
    let Some(claim) = claim else {
        now.push_str("; it is not one of ours");
        return Some(Explanation { subject: format!("node {name}"), now, decisions: Vec::new() });
    };
    let mut decisions: Vec<Told> = operator
        .record()
        .decisions()
        .flat_map(|decision| {
            decision.plan.steps.iter().filter_map(move |step| match step {
                Step::Place(placement) if placement.node.as_str() == name => Some(Told {
                    decided: format!("place {} pods on it", placement.pods.len()),
                    why: placement.why.to_string(),
                    ..told(decision)
                }),
                _ => None,
            })
        })
        .take(FEW)
        .collect();
    decisions.extend(operator.record().launch_of(&claim).map(|(decision, launch)| launched(decision, launch)));
    Some(Explanation { subject: format!("node {name} (nodeclaim {claim})"), now, decisions })
}

fn of_pool(operator: &Operator, name: &str) -> Option<Explanation> {
    let world = operator.world();
    let pool = world.pools.get(name)?;
    let conditions = pool.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let mut now = match conditions.iter().find(|condition| condition.type_ == "Ready") {
        Some(ready) if ready.status == "True" => "is ready".to_owned(),
        Some(ready) => {
            let blamed = conditions.iter().find(|other| other.status == "False" && other.type_ != "Ready");
            let blamed = blamed.unwrap_or(ready);
            format!("is not ready: {}={}, {}: {}", blamed.type_, blamed.status, blamed.reason, blamed.message)
        }
        None => "has not been looked at yet".to_owned(),
    };
    let in_use = pool.status.as_ref().and_then(|status| status.resources.clone()).unwrap_or_default();
    for (resource, limit) in pool.spec.limits.iter().flatten() {
        let used = in_use.get(resource).map_or("0", |amount| amount.0.as_str());
        let _ = write!(now, "; {resource} {used} of {} in use", limit.0);
    }
    let mut decisions = Vec::new();
    for decision in operator.record().decisions() {
        let launches: Vec<&Launch> = decision.launches().filter(|launch| launch.pool.as_str() == name).collect();
        if !launches.is_empty() {
            let n_pods: usize = launches.iter().map(|launch| launch.for_pods.len()).sum();
            let price: Money = launches.iter().map(|launch| launch.price()).sum();
            decisions.push(Told {
                decided: format!("launch {} nodes for {n_pods} pods at {price}/h", launches.len()),
                why: launches[0].why.to_string(),
                turned_down: other_strategies(decision),
                ..told(decision)
            });
        }
        let mut told_of: Vec<*const Refusal> = Vec::new();
        for (pod, refusal) in &decision.report.refused {
            let verdict =
                refusal.verdicts.iter().find(|verdict| verdict.pool.as_ref().is_some_and(|p| p.as_str() == name));
            // Who asked for another pool by name is no matter of this one.
            let is_ours = |why: &Why| !matches!(why, Why::RequirementsClash { key, .. } if **key == *NODE_POOL);
            let is_new = !told_of.contains(&std::sync::Arc::as_ptr(refusal));
            let Some(verdict) = verdict.filter(|verdict| is_new && is_ours(&verdict.why)) else {
                continue;
            };
            told_of.push(std::sync::Arc::as_ptr(refusal));
            let n_alike =
                decision.report.refused.iter().filter(|(_, other)| std::sync::Arc::ptr_eq(other, refusal)).count();
            let others = if n_alike > 1 { format!(" and {} like it", n_alike - 1) } else { String::new() };
            decisions.push(Told {
                decided: format!("no node for pod {pod}{others}"),
                why: verdict.why.to_string(),
                would_help: refusal.remedy.as_ref().map(ToString::to_string),
                ..told(decision)
            });
        }
        if decisions.len() >= 2 * FEW {
            break;
        }
    }
    Some(Explanation { subject: format!("nodepool {name}"), now, decisions })
}

fn told(decision: &Decision) -> Told {
    Told {
        at: timestamp(decision.at),
        revision: decision.revision.to_string(),
        decided: String::new(),
        why: String::new(),
        turned_down: Vec::new(),
        would_help: None,
    }
}

fn refused(decision: &Decision, refusal: &Refusal) -> Told {
    let verdicts: Vec<String> = refusal.verdicts.iter().map(ToString::to_string).collect();
    Told {
        decided: "no place for it".to_owned(),
        why: verdicts.join("; "),
        would_help: refusal.remedy.as_ref().map(ToString::to_string),
        ..told(decision)
    }
}

fn launched(decision: &Decision, launch: &Launch) -> Told {
    let mut turned_down = Vec::new();
    if let Some(first) = launch.any_of.first() {
        for other in launch.any_of.iter().skip(1).take(FEW) {
            turned_down.push(format!(
                "{}, {} more per hour",
                option_in_words(other),
                Money::from_micros(other.price.micros - first.price.micros)
            ));
        }
        if launch.any_of.len() > FEW + 1 {
            turned_down.push(format!("{} more types, each dearer", launch.any_of.len() - FEW - 1));
        }
    }
    turned_down.extend(other_strategies(decision));
    let first = launch.any_of.first().map(option_in_words).unwrap_or_default();
    Told {
        decided: format!(
            "launch nodeclaim {} of nodepool {}: {first} at {}/h",
            launch.claim,
            launch.pool,
            launch.price()
        ),
        why: launch.why.to_string(),
        turned_down,
        ..told(decision)
    }
}

fn option_in_words(option: &kerf_model::LaunchOption) -> String {
    let mut words = option.instance_type.to_string();
    for part in [option.zone.as_deref(), option.capacity_type.map(|kind| kind.as_str())].into_iter().flatten() {
        words.push(' ');
        words.push_str(part);
    }
    words
}

/// The whole plans that were considered and not taken.
fn other_strategies(decision: &Decision) -> Vec<String> {
    let mut candidates = decision.report.candidates.iter();
    let Some(chosen) = candidates.next() else { return Vec::new() };
    let after = |candidate: &kerf_model::Candidate| candidate.cost_after_scheduler.unwrap_or(candidate.cost);
    candidates
        .filter(|other| other.cost != chosen.cost || other.n_nodes != chosen.n_nodes)
        .map(|other| {
            let difference = after(other).micros - after(chosen).micros;
            let sign = if difference < 0 { "less" } else { "more" };
            format!(
                "the plan `{}`: {} nodes, {} {sign} per hour in the end",
                other.strategy,
                other.n_nodes,
                Money::from_micros(difference.abs())
            )
        })
        .collect()
}

fn place_in_words(world: &World, place: &str) -> String {
    if world.nodes.contains_key(place) {
        format!("node {place}")
    } else {
        format!("nodeclaim {place}, which is on its way")
    }
}

fn waits_in_words(waits_for: kerf_mirror::WaitsFor) -> &'static str {
    use kerf_mirror::WaitsFor;
    match waits_for {
        WaitsFor::Us => "it waits for a place",
        WaitsFor::Scheduler => "kube-scheduler has not looked at it yet",
        WaitsFor::Preemption => "it will have the place of a pod that is pushed out",
        WaitsFor::Gate => "a scheduling gate holds it",
        WaitsFor::Fargate => "Fargate runs it",
        WaitsFor::Nothing => "it waits for nothing",
    }
}

fn few(names: &[String]) -> String {
    let shown = names.iter().take(FEW).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > FEW { format!("{shown} and {} more", names.len() - FEW) } else { shown }
}
