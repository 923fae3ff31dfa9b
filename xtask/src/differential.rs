//! `cargo xtask differential`.

mod ask;
mod compare;
mod draw;
mod explain;
mod law;
mod objects;
mod passes;
mod scenario;

use crate::bench::peer;
use anyhow::Result;
use compare::Case;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many clusters are drawn.
    #[arg(long, default_value_t = 300)]
    cases: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let Some(binary) = peer::prepare()? else {
        println!("differential: SKIPPED: {} clusters were not compared, because Go is not installed", args.cases);
        return Ok(());
    };
    let scenarios: Vec<_> = (0..args.cases).map(|number| draw::draw(args.seed, number)).collect();
    let peers = ask::peer(&binary, "first", &scenarios)?;
    let mut cases = vec![];
    for (scenario, peer) in scenarios.into_iter().zip(peers) {
        let ours = match ask::ours(&scenario) {
            Ok(o) => o,
            Err(e) => {
                println!("ERR {e:#}");
                continue;
            }
        };
        cases.push(Case { scenario, ours, peer });
    }
    for f in explain::explain(&binary, &cases)? {
        let case = &cases[f.case];
        let d = &f.difference;
        println!("{:?} {} {:?}: ours {} peer {}", f.row, case.scenario.name, d.pods, d.n_ours, d.n_peer);
        if f.row.is_none() {
            println!(
                "  {} \n  {}\n peer:\n  {}",
                case.scenario.name,
                case.ours.lines().join("\n  "),
                case.peer.lines().join("\n  ")
            );
            std::fs::write(format!("/tmp/case-{}.json", case.scenario.name), case.scenario.line())?;
        }
    }
    let (mut cheaper, mut equal, mut dearer) = (0, 0, 0);
    for case in &cases {
        if case.differences().is_empty() {
            let (a, b) = (case.ours.report.cost.added.dollars(), case.peer.dollars_per_hour);
            if a < b - 1e-6 {
                cheaper += 1
            } else if a < b + 1e-6 {
                equal += 1
            } else {
                dearer += 1;
                println!(
                    "DEARER {} {a} {b} {:?}\n  {}\n peer:\n  {}",
                    case.scenario.name,
                    law::breaches(&case.scenario, &case.peer)?,
                    case.ours.lines().join("\n  "),
                    case.peer.lines().join("\n  ")
                );
                std::fs::write(format!("/tmp/case-{}.json", case.scenario.name), case.scenario.line())?;
            }
        }
    }
    println!("cheaper {cheaper} equal {equal} dearer {dearer}");
    Ok(())
}
