//! Why the two differ: each row of docs/differences.md that can show here, with the experiment that proves it.
//!
//! A row is never believed on the looks of a cluster. Either the peer's own answer breaks a law, or the question is asked
//! again with the one thing changed that the row is about, and the difference must be gone.

use super::ask::{self, PeerAnswer};
use super::compare::{Case, Difference};
use super::scenario::Scenario;
use super::{law, passes};
use anyhow::Result;
use kerf_engine::audit::Breach;
use kerf_model::{Demand, Why};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// How often the peer may go on: what it cannot do in four passes it never does on clusters of this size.
const N_PASSES: usize = 4;
/// How often the peer is asked the same.
const N_AGAIN: usize = 6;

/// A difference with its case and, once found, the row that explains it.
pub(crate) struct Finding {
    pub(crate) case: usize,
    pub(crate) difference: Difference,
    pub(crate) row: Option<&'static str>,
}

/// Finds the row of every difference that has one.
pub(crate) fn explain(binary: &Path, cases: &[Case]) -> Result<Vec<Finding>> {
    let mut findings: Vec<Finding> = cases
        .iter()
        .enumerate()
        .flat_map(|(case, content)| {
            content.differences().into_iter().map(move |difference| Finding { case, difference, row: None })
        })
        .collect();
    for finding in findings.iter_mut().filter(|finding| !finding.difference.is_ours_more()) {
        finding.row = peer_breaks_a_law(&cases[finding.case], &finding.difference)?;
    }
    later_passes(binary, cases, &mut findings)?;
    without_taints(binary, cases, &mut findings)?;
    by_luck(binary, cases, &mut findings)?;
    in_our_company(binary, cases, &mut findings)?;
    for finding in findings.iter_mut().filter(|finding| finding.row.is_none()) {
        finding.row = other_pods_first(&cases[finding.case], &finding.difference)?;
    }
    Ok(findings)
}

/// The peer places a pod where kube-scheduler would refuse to bind it.
fn peer_breaks_a_law(case: &Case, difference: &Difference) -> Result<Option<&'static str>> {
    if difference.we_say.iter().any(|why| matches!(why, Why::Ill { message, .. } if message.contains("at once"))) {
        return Ok(Some("S25"));
    }
    let is_theirs =
        |breach: &&Breach| law::pod_of(breach).is_some_and(|pod| difference.pods.contains(&ask::peers_name(pod)));
    let breaches = law::breaches(&case.scenario, &case.peer)?;
    Ok(breaches.iter().find(is_theirs).and_then(|breach| match breach {
        Breach::RequirementsNotMet { .. } => Some("S25"),
        Breach::AffinityAlone { .. } => Some("S26"),
        Breach::SpreadTooWide { .. } => Some("S27"),
        _ => None,
    }))
}

/// The peer places the pods after all, once its first claims have become nodes.
fn later_passes(binary: &Path, cases: &[Case], findings: &mut [Finding]) -> Result<()> {
    let mut open: Vec<(&mut Finding, Scenario, PeerAnswer, usize)> = unexplained(findings, true)
        .map(|finding| {
            let case = &cases[finding.case];
            let n_placed = finding.difference.n_peer;
            (finding, case.scenario.clone(), case.peer.clone(), n_placed)
        })
        .collect();
    for _ in 1..N_PASSES {
        let next: Vec<Scenario> =
            open.iter().map(|(_, scenario, answer, _)| passes::after(scenario, answer, &[])).collect();
        let answers = ask::peer(binary, "passes", &next)?;
        for ((open, scenario), answer) in open.iter_mut().zip(next).zip(answers) {
            open.3 += open.0.difference.among(&answer.placed());
            (open.1, open.2) = (scenario, answer);
        }
    }
    for (finding, _, _, n_placed) in open {
        let difference = &finding.difference;
        if n_placed >= difference.n_ours {
            finding.row = row_of_a_later_pass(difference);
        }
    }
    Ok(())
}

/// What kept the peer from doing it at once, in its own words, checked against what the pod asks for.
fn row_of_a_later_pass(difference: &Difference) -> Option<&'static str> {
    let demand = difference.demand.as_deref()?;
    let says = |words: &str| difference.peer_says.contains(words);
    let spreads_or_avoids = !demand.spreads.is_empty() || !demand.anti_affinity.is_empty() || prefers(demand);
    if says("pod anti-affinity, key=topology") {
        return Some("S7");
    }
    if says("pod affinity, key=topology") && !demand.affinity.is_empty() {
        return Some("S24");
    }
    if says("exceed limits") {
        return Some("S28");
    }
    let chose_badly = says("topology.kubernetes.io/zone DoesNotExist") || says("required offering");
    (chose_badly && (spreads_or_avoids || !demand.affinity.is_empty())).then_some("S29")
}

fn prefers(demand: &Demand) -> bool {
    !demand.preferred_affinity.is_empty() || !demand.preferred_anti_affinity.is_empty()
}

/// The peer knows no zones for a pod's company, because the pools that have them are tainted.
fn without_taints(binary: &Path, cases: &[Case], findings: &mut [Finding]) -> Result<()> {
    let is_about_zones = |difference: &Difference| {
        let says = |words: &str| difference.peer_says.contains(words);
        says("affinity, key=topology.kubernetes.io/zone")
    };
    let mut open: Vec<&mut Finding> = unexplained(findings, true)
        .filter(|finding| is_about_zones(&finding.difference) && has_tainted_pool(&cases[finding.case]))
        .collect();
    let bare = |finding: &Finding| {
        let clear = |pointer: &'static str| {
            move |object: &mut Value| {
                if let Some(taints) = object.pointer_mut(pointer) {
                    *taints = Value::Array(Vec::new());
                }
            }
        };
        let scenario = &cases[finding.case].scenario;
        let scenario = scenario.changed("NodePool", clear("/spec/template/spec/taints"));
        scenario.changed("Node", clear("/spec/taints")).changed("NodeClaim", clear("/spec/taints"))
    };
    let questions: Vec<Scenario> = open.iter().map(|finding| bare(finding)).collect();
    let answers = ask::peer(binary, "taints", &questions)?;
    for (finding, answer) in open.iter_mut().zip(answers) {
        if finding.difference.among(&answer.placed()) >= finding.difference.n_ours {
            finding.row = Some("S30");
        }
    }
    Ok(())
}

fn has_tainted_pool(case: &Case) -> bool {
    case.ours.snapshot.pools.iter().any(|pool| !pool.taints.is_empty())
}

/// Asked the same again, the peer places as many as we do.
fn by_luck(binary: &Path, cases: &[Case], findings: &mut [Finding]) -> Result<()> {
    for _ in 0..N_AGAIN {
        let mut open: Vec<&mut Finding> = unexplained(findings, true).collect();
        let questions: Vec<Scenario> = open.iter().map(|finding| cases[finding.case].scenario.clone()).collect();
        let answers = ask::peer(binary, "again", &questions)?;
        for (finding, answer) in open.iter_mut().zip(answers) {
            if finding.difference.among(&answer.placed()) >= finding.difference.n_ours {
                finding.row = Some("S8");
            }
        }
    }
    Ok(())
}

/// With everybody else where we put them, the peer finds a place for the pods too: only its order stood in the way.
fn in_our_company(binary: &Path, cases: &[Case], findings: &mut [Finding]) -> Result<()> {
    let mut open: Vec<&mut Finding> = unexplained(findings, true).collect();
    let questions: Vec<Scenario> = open
        .iter()
        .map(|finding| {
            let case = &cases[finding.case];
            passes::after(&case.scenario, &case.ours.as_peers(), &finding.difference.pods)
        })
        .collect();
    let answers = ask::peer(binary, "company", &questions)?;
    for (finding, answer) in open.iter_mut().zip(answers) {
        if finding.difference.among(&answer.placed()) >= finding.difference.n_ours {
            let is_limit = finding.difference.peer_says.contains("exceed limits");
            finding.row = Some(if is_limit { "S28" } else { "S31" });
        }
    }
    Ok(())
}

/// Not all can be placed, and the peer chose others: with its others in place we place the pods too, and in total we place
/// no fewer than it does.
fn other_pods_first(case: &Case, difference: &Difference) -> Result<Option<&'static str>> {
    let (us, them): (BTreeSet<String>, BTreeSet<String>) = (case.ours.placed(), case.peer.placed());
    if difference.is_ours_more() || us.len() < them.len() {
        return Ok(None);
    }
    let company = passes::after(&case.scenario, &case.peer, &difference.pods);
    let n_placed = difference.among(&ask::ours(&company)?.placed());
    Ok((n_placed >= difference.n_peer).then_some("S32"))
}

fn unexplained(findings: &mut [Finding], ours_more: bool) -> impl Iterator<Item = &mut Finding> {
    findings.iter_mut().filter(move |finding| finding.row.is_none() && finding.difference.is_ours_more() == ours_more)
}
