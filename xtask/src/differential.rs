//! `cargo xtask differential`.

mod ask;
mod draw;
mod scenario;

use crate::bench::peer;
use anyhow::Result;

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
    let mut same = 0;
    for (scenario, peer) in scenarios.iter().zip(&peers) {
        let ours = match ask::ours(scenario) {
            Ok(o) => o,
            Err(e) => {
                println!("ERR {e:#}");
                continue;
            }
        };
        if ours.snapshot.ill.len() > 0 {
            println!("{}: ill {:?}", scenario.name, ours.snapshot.ill);
        }
        if ours.snapshot.pods.len() != peer.pods {
            println!("{}: pods {} {}", scenario.name, ours.snapshot.pods.len(), peer.pods);
        }
        let us = ours.placed();
        let them = peer.placed();
        for (d, pods) in ours.classes() {
            let a = pods.iter().filter(|p| us.contains(*p)).count();
            let b = pods.iter().filter(|p| them.contains(p.as_str())).count();
            same += pods.len() - a.abs_diff(b);
            if a != b {
                println!("{} {} of {}: ours {a} peer {b}", scenario.name, pods[0], pods.len());
                for p in &pods {
                    if !them.contains(p.as_str()) {
                        println!("   peer: {}", peer.errors.get(p).map_or("", |x| x));
                        break;
                    }
                }
                for p in &pods {
                    if let Some((_, r)) = ours.report.refused.iter().find(|(id, _)| ask::peers_name(id) == *p) {
                        println!("   ours: {r}");
                        break;
                    }
                }
                let _ = d;
            }
        }
    }
    println!("same {same}");
    Ok(())
}
