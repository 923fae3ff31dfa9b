//! Why the two differ: each row of docs/differences.md that can show here, with the experiment that proves it.
//!
//! A row is never believed on the looks of a cluster. Either the peer's own answer breaks a law, or the question is asked
//! again with the one thing changed that the row is about, and the difference must be gone.

use super::ask::{self, PeerAnswer};
use super::compare::{Case, Difference};
use super::scenario::Scenario;
use super::{law, objects, passes};
use anyhow::Result;
use kerf_engine::audit::Breach;
use kerf_model::{Demand, Offering, PodTerm, Spread, Text, WhenUnsatisfiable, labels};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// How often the peer may go on: what it cannot do in four passes it never does on clusters of this size.
const N_PASSES: usize = 4;
/// How often the peer is asked the same: its ties are broken by the order of a hash map.
const N_AGAIN: usize = 4;

/// The row for clusters where our search found less than the peer's did. Explained is not excused: see `PERCENT_MISSED_MAX`.
pub(crate) const SEARCH_MISSED: &str = "S33";

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
    by_luck(binary, cases, &mut findings)?;
    with_every_zone_known(binary, cases, &mut findings, Order::Peers)?;
    without_host_spread(binary, cases, &mut findings)?;
    without_limits(binary, cases, &mut findings)?;
    in_another_order(binary, cases, &mut findings)?;
    with_every_zone_known(binary, cases, &mut findings, Order::Ours)?;
    without_zone_spread(binary, cases, &mut findings)?;
    for finding in findings.iter_mut().filter(|finding| finding.row.is_none()) {
        finding.row = other_pods_first(&cases[finding.case], &finding.difference)?;
    }
    Ok(findings)
}

/// The peer places more of the pods where kube-scheduler would refuse to bind them; what is sound of it is no more than ours.
fn peer_breaks_a_law(case: &Case, difference: &Difference) -> Result<Option<&'static str>> {
    let contradicts_itself = |pod: &String| {
        let notes = case.ours.snapshot.notes.iter().filter(|note| note.message.contains("at once"));
        notes.map(|note| note.object.rsplit('/').next()).any(|name| name == pod.rsplit('/').next())
    };
    let sound = law::sound_part(&case.scenario, &case.peer)?;
    let n_sound = sound.map_or(0, |sound| difference.among(&sound.placed()));
    if difference.pods.iter().any(contradicts_itself) {
        return Ok((n_sound <= difference.n_ours || difference.demand.is_none()).then_some("S25"));
    }
    if n_sound > difference.n_ours {
        return Ok(None);
    }
    let is_theirs =
        |breach: &&Breach| law::pod_of(breach).is_some_and(|pod| difference.pods.contains(&ask::peers_name(pod)));
    let breaches = law::breaches(&case.scenario, &case.peer)?;
    Ok(breaches.iter().find(is_theirs).and_then(|breach| match breach {
        Breach::RequirementsNotMet { .. } => Some("S34"),
        Breach::AffinityAlone { .. } => Some("S26"),
        Breach::SpreadTooWide { .. } => Some("S27"),
        _ => None,
    }))
}

/// The peer places the pods after all, once its first claims have become nodes.
fn later_passes(binary: &Path, cases: &[Case], findings: &mut [Finding]) -> Result<()> {
    let mut open: Vec<(&mut Finding, Scenario, PeerAnswer, usize)> = unexplained(findings)
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

/// The peer does not know the zone: with a pool that sells nothing but names every zone, it places the pods, in its own order
/// or beside the neighbours that we give them.
fn with_every_zone_known(binary: &Path, cases: &[Case], findings: &mut [Finding], order: Order) -> Result<()> {
    let by_zone = |terms: &[PodTerm]| terms.iter().any(|term| &*term.topology_key == labels::ZONE);
    let is_about_zones = |finding: &&mut Finding| {
        let snapshot = &cases[finding.case].ours.snapshot;
        finding.difference.peer_says.contains("affinity, key=topology.kubernetes.io/zone")
            || snapshot.demands.iter().any(|demand| by_zone(&demand.anti_affinity))
            || snapshot.bound.iter().any(|group| by_zone(&group.shape.anti_affinity))
    };
    let atlas = |finding: &Finding| {
        let case = &cases[finding.case];
        let mut scenario = match order {
            Order::Peers => case.scenario.clone(),
            Order::Ours => with_neighbours(case, &finding.difference.pods),
        };
        let standing = case.ours.snapshot.nodes.iter().filter_map(|node| node.labels.get(labels::ZONE));
        let zones: BTreeSet<&Text> = standing.chain(sold(case)).collect();
        scenario.objects.push(objects::pool_that_sells_nothing(labels::ZONE, &zones));
        scenario
    };
    ask_again(binary, "zones", unexplained(findings).filter(is_about_zones), atlas, |_| "S30")
}

#[derive(Clone, Copy)]
enum Order {
    Peers,
    Ours,
}

/// The zones that can be bought by somebody.
fn sold(case: &Case) -> impl Iterator<Item = &Text> {
    let types = case.ours.snapshot.pools.iter().flat_map(|pool| pool.types.iter());
    types.flat_map(|kind| &kind.offerings).filter_map(Offering::zone)
}

/// The peer counts an imaginary empty node when it spreads over hosts: without that constraint it places the pods.
fn without_host_spread(binary: &Path, cases: &[Case], findings: &mut [Finding]) -> Result<()> {
    ask_again(
        binary,
        "hosts",
        unexplained(findings).filter(|finding| spreads_over(finding, labels::HOSTNAME)),
        |finding| unspread(&cases[finding.case].scenario, labels::HOSTNAME),
        |_| "S6",
    )
}

fn spreads_over(finding: &Finding, key: &str) -> bool {
    let demand = finding.difference.demand.as_deref();
    let is_hard = |spread: &Spread| spread.when == WhenUnsatisfiable::DoNotSchedule && &*spread.topology_key == key;
    demand.is_some_and(|demand| demand.spreads.iter().any(is_hard))
}

/// The same without spread constraints on the key.
fn unspread(scenario: &Scenario, key: &str) -> Scenario {
    scenario.changed("Pod", |pod| {
        let constraints = pod.pointer_mut("/spec/topologySpreadConstraints").and_then(Value::as_array_mut);
        if let Some(constraints) = constraints {
            constraints.retain(|constraint| constraint["topologyKey"] != key);
        }
    })
}

/// Asked the same again, the peer places as many as we do.
fn by_luck(binary: &Path, cases: &[Case], findings: &mut [Finding]) -> Result<()> {
    ask_again(binary, "again", unexplained(findings), |finding| cases[finding.case].scenario.clone(), |_| "S8")
}

/// The peer charges a claim to the limits as the largest that it could become: without limits it places the pods. That ours
/// keep the limits is the audit's word.
fn without_limits(binary: &Path, cases: &[Case], findings: &mut [Finding]) -> Result<()> {
    let blames_limits = |finding: &&mut Finding| finding.difference.peer_says.contains("exceed limits");
    let unlimited = |finding: &Finding| {
        cases[finding.case].scenario.changed("NodePool", |pool| {
            pool["spec"].as_object_mut().map(|spec| spec.remove("limits"));
        })
    };
    ask_again(binary, "limits", unexplained(findings).filter(blames_limits), unlimited, |_| "S28")
}

/// With everybody else where we put them, or only their neighbours, or with nobody else waiting, the peer finds a place for
/// the pods too: only its order stood in the way.
fn in_another_order(binary: &Path, cases: &[Case], findings: &mut [Finding]) -> Result<()> {
    let in_our_company = |finding: &Finding| {
        let case = &cases[finding.case];
        passes::after(&case.scenario, &case.ours.as_peers(), &finding.difference.pods)
    };
    ask_again(binary, "company", unexplained(findings), in_our_company, |_| "S31")?;
    let beside_neighbours = |finding: &Finding| with_neighbours(&cases[finding.case], &finding.difference.pods);
    ask_again(binary, "neighbours", unexplained(findings), beside_neighbours, |_| "S31")?;
    let alone = |finding: &Finding| only_waiting(&cases[finding.case].scenario, &finding.difference.pods);
    ask_again(binary, "alone", unexplained(findings), alone, |_| "S31")
}

/// The pods waiting alone, with the nodes we give them and who else is there.
fn with_neighbours(case: &Case, pods: &[String]) -> Scenario {
    let mut ours = case.ours.as_peers();
    let is_near = |others: &Vec<String>| others.iter().any(|pod| pods.contains(pod));
    ours.claims.retain(|claim| is_near(&claim.pods));
    ours.existing.retain(|_, others| is_near(others));
    only_waiting(&passes::after(&case.scenario, &ours, pods), pods)
}

/// The peer spreads over zones that the pod can never get: without the constraint it places the pods. That ours keep it, over
/// the zones there are, is the audit's word.
fn without_zone_spread(binary: &Path, cases: &[Case], findings: &mut [Finding]) -> Result<()> {
    ask_again(
        binary,
        "spread",
        unexplained(findings).filter(|finding| spreads_over(finding, labels::ZONE)),
        |finding| unspread(&cases[finding.case].scenario, labels::ZONE),
        |_| "S35",
    )
}

/// The same without the pods that wait, except those named.
fn only_waiting(scenario: &Scenario, pods: &[String]) -> Scenario {
    let mut scenario = scenario.clone();
    scenario.objects.retain(|object| {
        object["kind"] != "Pod" || object["spec"]["nodeName"].is_string() || pods.contains(&passes::pod_name(object))
    });
    scenario
}

/// Asks the peer a changed question about each finding; where it now places as many as we do, the row is proven.
fn ask_again<'f>(
    binary: &Path,
    purpose: &str,
    findings: impl Iterator<Item = &'f mut Finding>,
    question: impl Fn(&Finding) -> Scenario,
    row: impl Fn(&Finding) -> &'static str,
) -> Result<()> {
    let open: Vec<&mut Finding> = findings.collect();
    let questions: Vec<Scenario> =
        open.iter().flat_map(|finding| std::iter::repeat_n(question(finding), N_AGAIN)).collect();
    let answers = ask::peer(binary, purpose, &questions)?;
    for (finding, answers) in open.into_iter().zip(answers.chunks(N_AGAIN)) {
        let most = answers.iter().map(|answer| finding.difference.among(&answer.placed())).max();
        if most >= Some(finding.difference.n_ours) {
            finding.row = Some(row(finding));
        }
    }
    Ok(())
}

/// Not all can be placed, and the peer chose others. The rules are the same and only the order differs: our audit finds
/// nothing wrong with its choice, and the pods we place too when nobody else waits, or each of them when all the others are
/// where the peer put them.
/// S32 where we place no fewer in total, S33 where our search missed the better order.
fn other_pods_first(case: &Case, difference: &Difference) -> Result<Option<&'static str>> {
    if difference.is_ours_more() {
        return Ok(None);
    }
    let Some(sound) = law::sound_part(&case.scenario, &case.peer)? else {
        return Ok(None);
    };
    let placed = sound.placed();
    if difference.among(&placed) <= difference.n_ours {
        return Ok(None);
    }
    let alone = ask::ours(&only_waiting(&case.scenario, &difference.pods))?.placed();
    let mut is_order = difference.among(&alone) >= difference.n_peer;
    if !is_order {
        let we_place_last = |pod: &String| -> Result<bool> {
            let last = std::slice::from_ref(pod);
            let question = only_waiting(&passes::after(&case.scenario, &sound, last), last);
            Ok(ask::ours(&question)?.placed().contains(pod))
        };
        let theirs = difference.pods.iter().filter(|pod| placed.contains(*pod));
        is_order = theirs.map(we_place_last).collect::<Result<Vec<bool>>>()?.into_iter().all(|placed| placed);
    }
    if !is_order {
        return Ok(None);
    }
    Ok(Some(if case.ours.placed().len() >= placed.len() { "S32" } else { SEARCH_MISSED }))
}

/// Those of which we placed more, and nobody knows why.
fn unexplained(findings: &mut [Finding]) -> impl Iterator<Item = &mut Finding> {
    findings.iter_mut().filter(|finding| finding.row.is_none() && finding.difference.is_ours_more())
}
