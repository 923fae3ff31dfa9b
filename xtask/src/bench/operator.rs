//! `cargo xtask bench operator`: the whole operator on a real cluster, ours beside the peer's.
//!
//! ```text
//! scenes ─▶ Scene ─▶ measure: a fresh cluster ─▶ contestant: ours or the peer's, a process ─▶ Measured ─▶ Row ─▶ table, file
//!                       │                            ▲                                                     └▶ verdicts
//!                       └─▶ pool, deployments ───────┴─▶ ledger: when each pod, node and claim came and went
//! ```
//!
//! etcd, kube-apiserver, the controller manager, kube-scheduler and kwok share the machine with the operator, and start afresh for each
//! scene of each operator, one after the other. `bench/operator/README.md` says how to read the rows.

mod contestant;
mod embedded;
mod ledger;
mod measure;
mod price;
mod row;
mod scenes;
mod standing;
mod verdict;

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::verdict::render as render_verdicts;
use contestant::Contestant;
use row::{Measured, Row, SideBySide};
use scenes::{EMBEDDED, MIXED, MIXED_EARLY, ROWS, TO_RUNNING};

/// How often a scene is measured with each of two binaries of ours.
const ROUNDS: usize = 3;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runs the same scenes with the peer's operator too (needs Go).
    #[arg(long)]
    peer: bool,
    /// Runs the peer's operator alone.
    #[arg(long, conflicts_with = "peer")]
    only_peer: bool,
    /// Writes the rows as JSON, after each of them.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only these rows.
    #[arg(long = "row", value_name = "NAME")]
    rows: Vec<String>,
    /// A `kerf` that is built already.
    #[arg(long, value_name = "FILE")]
    kerf: Option<PathBuf>,
    /// A `kerf` of an earlier commit: both are measured in turn, three times each, and their medians compared.
    #[arg(long, value_name = "FILE", conflicts_with = "only_peer")]
    before: Option<PathBuf>,
    /// Keeps what the operators logged.
    #[arg(long, value_name = "FOLDER")]
    logs: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if cfg!(debug_assertions) {
        return super::again_optimised();
    }
    let names = chosen(&args.rows)?;
    let peer = match args.peer || args.only_peer {
        true => Contestant::peer()?.inspect_err(|reason| println!("the peer is left out: {reason}")).ok(),
        false => None,
    };
    let ours = match args.only_peer {
        true => None,
        false => Some(Contestant::ours(args.kerf.as_deref())?),
    };
    let before = args.before.as_deref().map(Contestant::before).transpose()?;
    let mut rows: Vec<Row> = Vec::new();
    let mut n_failures = 0;
    for name in names {
        let is_scene = scenes::scene(name).is_some() || name == EMBEDDED;
        let row = if is_scene {
            println!("\n── {name}");
            let mut found = Found::default();
            for round in 0..before.as_ref().map_or(1, |_| ROUNDS) {
                let mut ask = |contestant: &Option<Contestant>, into: &mut Vec<Measured>| {
                    let Some(contestant) = contestant else { return };
                    match measure_one(name, contestant, args.logs.as_deref()) {
                        Ok(measured) => into.extend(measured),
                        Err(error) => {
                            println!("   {}: FAILED: {error:#}", contestant.name);
                            n_failures += 1;
                        }
                    }
                };
                ask(&ours, &mut found.ours);
                ask(&before, &mut found.before);
                // The peer is the same in each round, and takes longest.
                if round == 0 && scenes::scene(name).is_some_and(|scene| scene.has_peer) {
                    ask(&peer, &mut found.peer);
                }
            }
            let [ours, before, peer] = [found.ours, found.before, found.peer].map(|all| Measured::median(&all));
            Row { name: name.to_owned(), ours, before, peer, early_binding: None }
        } else {
            side_by_side(&rows)
        };
        rows.push(row);
        if let Some(path) = &args.json {
            write_rows(path, &rows)?;
        }
    }
    println!("\n{}", row::render(&rows));
    let verdicts = verdict::judge(&rows);
    print!("{}", render_verdicts(&verdicts));
    let n_broken = verdicts.iter().filter(|verdict| verdict.holds == Some(false)).count();
    if n_failures > 0 || n_broken > 0 {
        bail!("{n_failures} scenes failed, {n_broken} lines do not hold");
    }
    Ok(())
}

/// What one scene came to with each contestant, in each round.
#[derive(Default)]
struct Found {
    ours: Vec<Measured>,
    before: Vec<Measured>,
    peer: Vec<Measured>,
}

/// The chosen rows in the order of the table; the derived row brings the two that it is read off.
fn chosen(given: &[String]) -> Result<Vec<&'static str>> {
    for row in given {
        if !ROWS.contains(&row.as_str()) {
            bail!("no row is named {row:?}; there are {}", ROWS.join(", "));
        }
    }
    let is_derived = given.iter().any(|row| row == TO_RUNNING);
    let is_chosen = |row: &&str| {
        given.is_empty() || given.iter().any(|name| name == row) || (is_derived && [MIXED, MIXED_EARLY].contains(row))
    };
    Ok(ROWS.into_iter().filter(is_chosen).collect())
}

fn measure_one(name: &str, contestant: &Contestant, logs: Option<&Path>) -> Result<Option<Measured>> {
    let measured = match scenes::scene(name) {
        Some(scene) => measure::measure(scene, contestant, logs)?,
        None => Ok(embedded::measure(contestant)?),
    };
    match measured {
        Ok(found) => {
            tell(contestant.name, &found);
            Ok(Some(found))
        }
        Err(reason) => {
            println!("   skipped: {reason}");
            Ok(None)
        }
    }
}

fn tell(name: &str, found: &Measured) {
    println!(
        "   {name}: {:.1} s, {} nodes, ${:.2}/h, {:.2} s of processor time, {:.0} MB",
        found.seconds, found.nodes, found.dollars_per_hour, found.cpu_seconds, found.peak_mb
    );
}

/// Read off the two mixed scenes, which differ in nothing but the gate. Its numbers are those with the gate, its seconds the median.
fn side_by_side(rows: &[Row]) -> Row {
    let ours = |name: &str| rows.iter().find(|row| row.name == name).and_then(|row| row.ours.clone());
    let (off, on) = (ours(MIXED), ours(MIXED_EARLY));
    let both = off.and_then(|off| off.to_running).zip(on.as_ref().and_then(|on| on.to_running));
    let early_binding = both.map(|(off, on)| SideBySide { off, on });
    let measured = on.zip(early_binding).map(|(on, side)| Measured { seconds: side.on.median_seconds, ..on });
    Row { name: TO_RUNNING.to_owned(), ours: measured, before: None, peer: None, early_binding }
}

fn write_rows(path: &Path, rows: &[Row]) -> Result<()> {
    let file = File::create(path).with_context(|| format!("{} cannot be written", path.display()))?;
    serde_json::to_writer_pretty(file, rows).with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_derived_row_brings_the_two_it_is_read_off() {
        let given = |names: &[&str]| chosen(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        assert_eq!(given(&[TO_RUNNING]).unwrap(), [MIXED, MIXED_EARLY, TO_RUNNING]);
        assert_eq!(given(&[MIXED]).unwrap(), [MIXED]);
        assert_eq!(given(&[]).unwrap(), ROWS);
        assert!(given(&["no-such"]).unwrap_err().to_string().contains(MIXED));
    }
}
