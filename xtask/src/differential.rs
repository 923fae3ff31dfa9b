//! `cargo xtask differential`: the peer's scheduler and ours are asked about the same generated clusters, and every pod that
//! only one of them places must be explained by a row of docs/differences.md.
//!
//! ```text
//! draw ─▶ Scenario ─┬─▶ bench/peer ─────────────────────▶ PeerAnswer ─┬─▶ compare ─▶ explain ─▶ rows, or shrink and fail
//!                   └─▶ mirror ─▶ plan_capacity ─▶ audit ─▶ OurAnswer ─┘                │
//!                                                                      experiments: the same question with one thing changed
//! ```

mod ask;
mod compare;
mod draw;
mod explain;
mod law;
mod objects;
mod passes;
mod scenario;
mod shrink;

use crate::bench::peer;
use anyhow::{Result, bail};
use compare::Case;
use explain::{Finding, SEARCH_MISSED};
use scenario::Scenario;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Clusters, out of a hundred, where our search may place fewer pods than the peer's. It should be none.
const PERCENT_MISSED_MAX: usize = 1;
/// Clusters, out of a hundred, where our plan for the same pods may cost over 1% more than a sound one of the peer's. Ties of
/// the peer's fall by chance, so that this varies a little from run to run.
const PERCENT_DEARER_MAX: usize = 2;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many clusters are drawn.
    #[arg(long, default_value_t = 300)]
    cases: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Shows the clusters where we place fewer pods or pay more, too.
    #[arg(long)]
    verbose: bool,
}

/// A thousand clusters that no other run draws.
pub(crate) fn long() -> Result<()> {
    run(&Args { cases: 1000, seed: 1000, verbose: false })
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let Some(binary) = peer::prepare()? else {
        bail!("{} clusters were not compared: the peer is built with Go, which is not on PATH", args.cases);
    };
    let mut cases = ask_both(&binary, args)?;
    let findings = explain::explain(&binary, &cases)?;
    println!("{}", summary(&cases, &findings));
    let costs = Costs::of(&binary, &cases)?;
    println!("{costs}");
    let missed: BTreeSet<usize> = findings.iter().filter(is_missed).map(|finding| finding.case).collect();
    if args.verbose {
        for (case, by) in &costs.dearer {
            println!("\nour plan is dearer by {:.1}%:\n{}", by * 100.0, show(&cases[*case]));
        }
        for finding in findings.iter().filter(is_missed) {
            let case = ask_about(&binary, &cases[finding.case].scenario)?;
            println!("\nour search places fewer:\n{}", show(&shrink::shrink(&binary, case, finding)?));
        }
    }
    if let Some(first) = findings.iter().find(|finding| finding.row.is_none()) {
        let case = cases.swap_remove(first.case);
        let name = case.scenario.name.clone();
        let least = shrink::shrink(&binary, case, first)?;
        bail!(
            "cluster {name} differs, and no row of docs/differences.md explains it. Its smallest part that does:\n{}",
            show(&least)
        );
    }
    if missed.len() * 100 > PERCENT_MISSED_MAX * args.cases {
        bail!("our search places fewer pods than the peer's in {} clusters (--verbose shows them)", missed.len());
    }
    if costs.n_much_dearer() * 100 > PERCENT_DEARER_MAX * args.cases {
        bail!("our plan costs over 1% more in {} clusters (--verbose shows them)", costs.n_much_dearer());
    }
    if costs.ours > costs.peers {
        bail!("for the same pods we pay more in total");
    }
    Ok(())
}

fn is_missed(finding: &&Finding) -> bool {
    finding.row == Some(SEARCH_MISSED)
}

fn ask_about(binary: &Path, scenario: &Scenario) -> Result<Case> {
    let mut peers = ask::peer(binary, "one", std::slice::from_ref(scenario))?;
    let ours = ask::ours(scenario)?;
    Ok(Case { scenario: scenario.clone(), ours, peer: peers.remove(0) })
}

fn ask_both(binary: &Path, args: &Args) -> Result<Vec<Case>> {
    let scenarios: Vec<_> = (0..args.cases).map(|number| draw::draw(args.seed, number)).collect();
    let peers = ask::peer(binary, "first", &scenarios)?;
    let mut cases = Vec::new();
    for (scenario, peer) in scenarios.into_iter().zip(peers) {
        let ours = ask::ours(&scenario)?;
        let case = Case { scenario, ours, peer };
        if case.n_pods() != case.peer.pods {
            bail!("{}: we see {} waiting pods, the peer {}", case.scenario.name, case.n_pods(), case.peer.pods);
        }
        cases.push(case);
    }
    Ok(cases)
}

fn summary(cases: &[Case], findings: &[Finding]) -> String {
    let n_pods: usize = cases.iter().map(Case::n_pods).sum();
    // S7 before S24: by length, then by name.
    let mut by_row: BTreeMap<(usize, &str), usize> = BTreeMap::new();
    for finding in findings {
        let row = finding.row.unwrap_or_default();
        *by_row.entry((row.len(), row)).or_default() += finding.difference.n_pods();
    }
    let unexplained = by_row.remove(&(0, "")).unwrap_or(0);
    let explained: usize = by_row.values().sum();
    let rows: Vec<String> = by_row.iter().map(|((_, row), n_pods)| format!("{row} {n_pods}")).collect();
    format!(
        "differential: {} clusters, {n_pods} pods, agree {}, explained {explained} (by row: {}), unexplained {unexplained}",
        cases.len(),
        n_pods - explained - unexplained,
        rows.join(", ")
    )
}

/// What the same pods cost, in clusters where both place the same.
struct Costs {
    n_cheaper: usize,
    n_equal: usize,
    /// Dearer because we keep preferences that the peer gives up: where preferences are ignored, we are not.
    n_preferring: usize,
    /// Dearer without that reason, although the peer's plan keeps the laws: the cluster, and by which fraction.
    dearer: Vec<(usize, f64)>,
    ours: f64,
    peers: f64,
}

impl Costs {
    fn of(binary: &Path, cases: &[Case]) -> Result<Self> {
        let mut costs = Costs { n_cheaper: 0, n_equal: 0, n_preferring: 0, dearer: Vec::new(), ours: 0.0, peers: 0.0 };
        let mut dearer = Vec::new();
        for (position, case) in cases.iter().enumerate().filter(|(_, case)| case.differences().is_empty()) {
            match compare_costs(case) {
                Ordering::Less => costs.n_cheaper += 1,
                Ordering::Equal => costs.n_equal += 1,
                Ordering::Greater if law::breaches(&case.scenario, &case.peer)?.is_empty() => dearer.push(position),
                // What the peer pays less for is not the same.
                Ordering::Greater => continue,
            }
            costs.ours += case.our_cost();
            costs.peers += case.peer.dollars_per_hour;
        }
        let ignoring = |position: &usize| Scenario { ignores_preferences: true, ..cases[*position].scenario.clone() };
        let scenarios: Vec<Scenario> = dearer.iter().map(ignoring).collect();
        let peers = ask::peer(binary, "preferences", &scenarios)?;
        for ((position, scenario), peer) in dearer.into_iter().zip(scenarios).zip(peers) {
            let ours = ask::ours(&scenario)?;
            let (before, after) = (&cases[position], Case { scenario, ours, peer });
            if !before.scenario.ignores_preferences && compare_costs(&after).is_le() {
                costs.n_preferring += 1;
            } else {
                costs.dearer.push((position, before.our_cost() / before.peer.dollars_per_hour - 1.0));
            }
        }
        Ok(costs)
    }

    fn n_much_dearer(&self) -> usize {
        self.dearer.iter().filter(|(_, by)| *by > 0.01).count()
    }
}

impl std::fmt::Display for Costs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "differential: cost for the same pods: cheaper {}, equal {}, dearer for a kept preference {}, dearer {} (over 1%: {}); \
             ${:.2}/h, the peer's ${:.2}/h",
            self.n_cheaper,
            self.n_equal,
            self.n_preferring,
            self.dearer.len(),
            self.n_much_dearer(),
            self.ours,
            self.peers
        )
    }
}

/// Prices are whole microdollars on both sides; what differs by less is the float's.
fn compare_costs(case: &Case) -> Ordering {
    let micros = |dollars: f64| (dollars * 1e6).round() as i64;
    micros(case.our_cost()).cmp(&micros(case.peer.dollars_per_hour))
}

/// A cluster with both answers, for people; the scenario can be given to the harness as it is.
fn show(case: &Case) -> String {
    let breaches = law::breaches(&case.scenario, &case.peer).unwrap_or_default();
    let breaches: Vec<String> = breaches.iter().map(|breach| format!("  the audit of it: {breach}")).collect();
    format!(
        "{}\nours:\n  {}\nthe peer's:\n  {}\n{}",
        case.scenario.json(),
        case.ours.lines().join("\n  "),
        case.peer.lines().join("\n  "),
        breaches.join("\n")
    )
}
