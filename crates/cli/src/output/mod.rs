//! The plan as a document: what `-o json` and `-o yaml` print, and what the text is made from.
//!
//! The shape is a promise, described in `docs/plan-output.md`: fields are added, not changed or removed, as long as
//! `format` says `kerf-plan/v1`. The types of `kerf-model` are free to change; these are not.

mod names;
pub(crate) mod text;

use crate::supply::Origin;
use kerf_model::{
    Launch, LaunchOption, Money, Note, Placement, Plan, PodId, Readiness, Reason, Refusal, Report, Requirement,
    Requirements, Snapshot, Step, Taint, Why,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const FORMAT: &str = "kerf-plan/v1";

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Document {
    pub(crate) format: &'static str,
    pub(crate) revision: u64,
    pub(crate) catalogues: Vec<CatalogueEntry>,
    pub(crate) summary: Summary,
    pub(crate) cost: CostEntry,
    pub(crate) launches: Vec<LaunchEntry>,
    pub(crate) placements: Vec<PlacementEntry>,
    /// Pods that stay pending, by cause.
    pub(crate) pending: Vec<PendingEntry>,
    /// Spare capacity that cannot be had, by cause.
    pub(crate) unmet_buffers: Vec<PendingEntry>,
    /// Pods that ask not to run on a NodePool's nodes.
    pub(crate) set_aside: Vec<String>,
    pub(crate) relaxed: Vec<RelaxedEntry>,
    pub(crate) robustness: Option<RobustnessEntry>,
    pub(crate) search: SearchEntry,
    pub(crate) notes: Vec<NoteEntry>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CatalogueEntry {
    pub(crate) name: String,
    pub(crate) date: Option<String>,
    pub(crate) instance_types: usize,
}

#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    /// Pods that want a place, those of leaving nodes included.
    pub(crate) pods_waiting: usize,
    pub(crate) pods_leaving: usize,
    pub(crate) buffer_pods: usize,
    pub(crate) pods_on_existing_nodes: usize,
    pub(crate) pods_on_new_nodes: usize,
    pub(crate) pods_pending: usize,
    pub(crate) nodes: usize,
    pub(crate) nodes_to_launch: usize,
    pub(crate) node_pools: usize,
    pub(crate) node_pools_not_ready: usize,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CostEntry {
    pub(crate) dollars_per_hour_before: f64,
    pub(crate) dollars_per_hour_added: f64,
    pub(crate) dollars_per_hour_after: f64,
    pub(crate) dollars_per_hour_bound: f64,
    /// How far `added` is above `bound`, as a fraction.
    pub(crate) gap: Option<f64>,
    pub(crate) bound_ignores: Vec<String>,
    pub(crate) has_estimates: bool,
    pub(crate) nodes_without_price: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LaunchEntry {
    pub(crate) claim: String,
    pub(crate) node_pool: String,
    pub(crate) node_class: NodeClassEntry,
    /// What would do, the first choice first.
    pub(crate) instance_types: Vec<OptionEntry>,
    pub(crate) dollars_per_hour: f64,
    pub(crate) pods: Vec<String>,
    pub(crate) requests: BTreeMap<String, String>,
    pub(crate) requirements: Vec<RequirementEntry>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<TaintEntry>,
    pub(crate) startup_taints: Vec<TaintEntry>,
    pub(crate) reservations: Vec<String>,
    pub(crate) min_values_relaxed: bool,
    pub(crate) reason: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeClassEntry {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) name: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OptionEntry {
    pub(crate) name: String,
    pub(crate) zone: Option<String>,
    pub(crate) capacity_type: Option<String>,
    pub(crate) dollars_per_hour: f64,
    pub(crate) is_estimate: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequirementEntry {
    pub(crate) key: String,
    pub(crate) operator: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) values: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) min_values: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaintEntry {
    pub(crate) key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) value: String,
    pub(crate) effect: String,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlacementEntry {
    pub(crate) node: String,
    pub(crate) in_flight: bool,
    pub(crate) pods: Vec<String>,
    pub(crate) reason: String,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PendingEntry {
    pub(crate) pods: Vec<String>,
    pub(crate) verdicts: Vec<VerdictEntry>,
    /// The smallest change that would place one of them alone.
    pub(crate) would_help: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VerdictEntry {
    /// None for reasons that concern the pod itself.
    pub(crate) node_pool: Option<String>,
    /// One word for programs: TooLarge, LimitReached, …
    pub(crate) cause: String,
    pub(crate) message: String,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RelaxedEntry {
    pub(crate) pods: Vec<String>,
    pub(crate) given_up: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RobustnessEntry {
    pub(crate) orders: usize,
    pub(crate) worst_stranded: usize,
    pub(crate) worst_dollars_per_hour: f64,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SearchEntry {
    pub(crate) steps: u64,
    pub(crate) is_cut_off: bool,
    /// What was tried, the chosen one first.
    pub(crate) candidates: Vec<CandidateEntry>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CandidateEntry {
    pub(crate) strategy: String,
    pub(crate) nodes: usize,
    pub(crate) pods_placed: usize,
    pub(crate) dollars_per_hour: f64,
    pub(crate) dollars_per_hour_after_scheduler: Option<f64>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NoteEntry {
    pub(crate) source: String,
    pub(crate) object: String,
    pub(crate) field: String,
    pub(crate) message: String,
}

impl Document {
    pub(crate) fn new(snapshot: &Snapshot, plan: &Plan, report: &Report, origins: &[Origin]) -> Self {
        let virtual_pods: BTreeSet<&PodId> =
            snapshot.pods.iter().filter(|pod| pod.is_virtual).map(|pod| &pod.id).collect();
        let mut launches = Vec::new();
        let mut placements = Vec::new();
        for step in &plan.steps {
            match step {
                Step::Launch(launch) => launches.push(LaunchEntry::from(&**launch)),
                Step::Place(placement) => placements.push(PlacementEntry::from(placement)),
            }
        }
        let (aside, refused): (Vec<_>, Vec<_>) = report.refused.iter().partition(|(_, refusal)| is_not_for_us(refusal));
        let (unmet, refused): (Vec<_>, Vec<_>) = refused.into_iter().partition(|(pod, _)| virtual_pods.contains(pod));
        let is_real = |pod: &&PodId| !virtual_pods.contains(*pod);
        let placed = |pods: &[PodId]| pods.iter().filter(is_real).count();
        let (mut on_existing, mut on_new) = (0, 0);
        for step in &plan.steps {
            match step {
                Step::Place(placement) => on_existing += placed(&placement.pods),
                Step::Launch(launch) => on_new += placed(&launch.for_pods),
            }
        }
        Self {
            format: FORMAT,
            revision: report.revision.0,
            catalogues: origins.iter().map(CatalogueEntry::from).collect(),
            summary: Summary {
                pods_waiting: on_existing + on_new + refused.len(),
                pods_leaving: snapshot.pods.iter().filter(|pod| pod.leaving.is_some()).count(),
                buffer_pods: virtual_pods.len(),
                pods_on_existing_nodes: on_existing,
                pods_on_new_nodes: on_new,
                pods_pending: refused.len(),
                nodes: snapshot.nodes.len(),
                nodes_to_launch: launches.len(),
                node_pools: snapshot.pools.len(),
                node_pools_not_ready: snapshot.pools.iter().filter(|pool| pool.readiness != Readiness::Ready).count(),
            },
            cost: CostEntry::from(report),
            launches,
            placements,
            pending: by_cause(&refused),
            unmet_buffers: by_cause(&unmet),
            set_aside: aside.iter().map(|(pod, _)| pod.to_string()).collect(),
            relaxed: report
                .relaxed
                .iter()
                .map(|relaxed| RelaxedEntry { pods: strings(&relaxed.pods), given_up: strings(&relaxed.given_up) })
                .collect(),
            robustness: report.robustness.as_ref().map(|robustness| RobustnessEntry {
                orders: robustness.n_orders,
                worst_stranded: robustness.worst_stranded,
                worst_dollars_per_hour: robustness.worst_cost.dollars(),
            }),
            search: SearchEntry::from(report),
            notes: snapshot.notes.iter().map(NoteEntry::from).collect(),
        }
    }
}

fn strings<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

fn is_not_for_us(refusal: &Refusal) -> bool {
    !refusal.verdicts.is_empty() && refusal.verdicts.iter().all(|verdict| verdict.why == Why::NotForUs)
}

/// Refusals with the same words become one, the most frequent first.
fn by_cause(refused: &[&(PodId, Arc<Refusal>)]) -> Vec<PendingEntry> {
    let mut groups: BTreeMap<String, (Vec<&PodId>, &Refusal)> = BTreeMap::new();
    for (pod, refusal) in refused {
        groups.entry(refusal.to_string()).or_insert((Vec::new(), refusal)).0.push(pod);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    for (pods, _) in &mut groups {
        pods.sort_by_key(|pod| names::natural(pod));
    }
    groups.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    groups
        .into_iter()
        .map(|(pods, refusal)| PendingEntry {
            pods: strings(&pods),
            verdicts: refusal
                .verdicts
                .iter()
                .map(|verdict| VerdictEntry {
                    node_pool: verdict.pool.as_ref().map(ToString::to_string),
                    cause: cause(&verdict.why).to_owned(),
                    message: verdict.why.to_string(),
                })
                .collect(),
            would_help: refusal.remedy.as_ref().map(ToString::to_string),
        })
        .collect()
}

fn cause(why: &Why) -> &'static str {
    match why {
        Why::NoPools => "NoPools",
        Why::PoolNotReady { .. } => "PoolNotReady",
        Why::PoolMatchesNoType { .. } => "PoolMatchesNoType",
        Why::TaintNotTolerated { .. } => "TaintNotTolerated",
        Why::LabelUnknown { .. } => "LabelUnknown",
        Why::RequirementsClash { .. } => "RequirementsClash",
        Why::NoTypeMatches { .. } => "NoTypeMatches",
        Why::TooLarge { .. } => "TooLarge",
        Why::NoTypeHasAll { .. } => "NoTypeHasAll",
        Why::NoOffering { .. } => "NoOffering",
        Why::LimitReached { .. } => "LimitReached",
        Why::MinValues { .. } => "MinValues",
        Why::Topology { .. } => "Topology",
        Why::VolumeElsewhere { .. } => "VolumeElsewhere",
        Why::VolumeLimit { .. } => "VolumeLimit",
        Why::HostPortTaken { .. } => "HostPortTaken",
        Why::ReservationAwaited { .. } => "ReservationAwaited",
        Why::Ill { .. } => "Ill",
        Why::DynamicResources => "DynamicResources",
        Why::NotForUs => "NotForUs",
        Why::EffortSpent { .. } => "EffortSpent",
    }
}

impl From<&Origin> for CatalogueEntry {
    fn from(origin: &Origin) -> Self {
        Self { name: origin.name.clone(), date: origin.date.clone(), instance_types: origin.n_types }
    }
}

impl From<&Report> for CostEntry {
    fn from(report: &Report) -> Self {
        let cost = &report.cost;
        Self {
            dollars_per_hour_before: cost.before.dollars(),
            dollars_per_hour_added: cost.added.dollars(),
            dollars_per_hour_after: (cost.before + cost.added).dollars(),
            dollars_per_hour_bound: cost.bound.dollars(),
            gap: cost.gap(),
            bound_ignores: strings(&cost.bound_ignores),
            has_estimates: cost.has_estimates,
            nodes_without_price: cost.n_unpriced_nodes,
        }
    }
}

impl From<&Launch> for LaunchEntry {
    fn from(launch: &Launch) -> Self {
        let text_map = |pairs: &kerf_model::Labels| pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Self {
            claim: launch.claim.to_string(),
            node_pool: launch.pool.to_string(),
            node_class: NodeClassEntry {
                group: launch.node_class.group.to_string(),
                kind: launch.node_class.kind.to_string(),
                name: launch.node_class.name.to_string(),
            },
            instance_types: launch.any_of.iter().map(OptionEntry::from).collect(),
            dollars_per_hour: launch.price().dollars(),
            pods: strings(&launch.for_pods),
            requests: launch.requests.iter().map(|(name, amount)| (name.to_string(), amount.to_string())).collect(),
            requirements: requirement_entries(&launch.requirements),
            labels: text_map(&launch.labels),
            taints: launch.taints.iter().map(TaintEntry::from).collect(),
            startup_taints: launch.startup_taints.iter().map(TaintEntry::from).collect(),
            reservations: strings(&launch.reservations),
            min_values_relaxed: launch.min_values_relaxed,
            reason: launch.why.to_string(),
        }
    }
}

impl From<&LaunchOption> for OptionEntry {
    fn from(option: &LaunchOption) -> Self {
        Self {
            name: option.instance_type.to_string(),
            zone: option.zone.as_ref().map(ToString::to_string),
            capacity_type: option.capacity_type.map(|kind| kind.as_str().to_owned()),
            dollars_per_hour: option.price.dollars(),
            is_estimate: option.price_is_estimate,
        }
    }
}

impl From<&Taint> for TaintEntry {
    fn from(taint: &Taint) -> Self {
        Self { key: taint.key.to_string(), value: taint.value.to_string(), effect: taint.effect.as_str().to_owned() }
    }
}

impl From<&Placement> for PlacementEntry {
    fn from(placement: &Placement) -> Self {
        Self {
            node: placement.node.to_string(),
            in_flight: matches!(placement.why, Reason::RoomOnNode { in_flight: true, .. }),
            pods: strings(&placement.pods),
            reason: placement.why.to_string(),
        }
    }
}

impl From<&Report> for SearchEntry {
    fn from(report: &Report) -> Self {
        Self {
            steps: report.spent.steps,
            is_cut_off: report.spent.is_cut_off,
            candidates: report
                .candidates
                .iter()
                .map(|candidate| CandidateEntry {
                    strategy: candidate.strategy.to_string(),
                    nodes: candidate.n_nodes,
                    pods_placed: candidate.n_placed,
                    dollars_per_hour: candidate.cost.dollars(),
                    dollars_per_hour_after_scheduler: candidate.cost_after_scheduler.map(Money::dollars),
                })
                .collect(),
        }
    }
}

impl From<&Note> for NoteEntry {
    fn from(note: &Note) -> Self {
        Self {
            source: note.source.to_string(),
            object: note.object.to_string(),
            field: note.field.to_string(),
            message: note.message.to_string(),
        }
    }
}

/// As they stand in a NodeClaim: bounds are Gte and Lte, both of them two entries.
fn requirement_entries(requirements: &Requirements) -> Vec<RequirementEntry> {
    requirements.iter().flat_map(|(key, requirement)| entries_of(key, requirement)).collect()
}

fn entries_of(key: &str, requirement: &Requirement) -> Vec<RequirementEntry> {
    let entry = |operator: &str, values: Vec<String>| RequirementEntry {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values,
        min_values: requirement.min_values,
    };
    let bounds: Vec<RequirementEntry> = [("Gte", requirement.at_least), ("Lte", requirement.at_most)]
        .into_iter()
        .filter_map(|(operator, bound)| Some(entry(operator, vec![bound?.to_string()])))
        .collect();
    if !bounds.is_empty() {
        return bounds;
    }
    vec![entry(requirement.operator().as_str(), requirement.values.iter().map(ToString::to_string).collect())]
}

#[cfg(test)]
mod tests;
