//! `cargo xtask bench`: how fast we plan, how well, and how the peer does on the same scenes.
//!
//! ```text
//! scenes ─▶ Scene ─┬─▶ Snapshot ─▶ plan_capacity ─▶ audit ─▶ Row ─┬─▶ table, file
//!                  └─▶ scenario ─▶ bench/peer ────▶ Answer ───────┴─▶ verdicts
//! ```
//!
//! `cargo xtask bench control-plane`, `cargo xtask bench operator` and `cargo xtask bench aws` are benches of their own: see
//! [`control_plane`], [`operator`] and [`aws`].
//!
//! A row's time is the best of several runs of `plan_capacity` alone; its memory is the peak of a process that does
//! nothing else. The peer's time is its Solve alone.

mod aws;
mod control_plane;
pub(crate) mod dice;
mod last_word;
mod measure;
mod operator;
pub(crate) mod peer;
mod process;
mod row;
mod scene;
mod scenes;
mod table;
mod types;
mod verdict;

use crate::toolbox;
use anyhow::{Context as _, Result, bail};
use row::Row;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    /// Runs the same scenes through the peer's scheduler too (needs Go).
    #[arg(long)]
    peer: bool,
    /// Writes the rows as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only these rows.
    #[arg(long = "row", value_name = "NAME")]
    rows: Vec<String>,
    /// Also measures how the time grows with twice the pods.
    #[arg(long)]
    scaling: bool,
    /// Writes the scenario that the peer would be asked, to standard output, and ends.
    #[arg(long, value_name = "ROW")]
    print_scenario: Option<String>,
    /// Measures one row in this process and prints it as JSON.
    #[arg(long, hide = true, value_name = "ROW")]
    child: Option<String>,
}

/// Benches of something else than the engine.
#[derive(Debug, clap::Subcommand)]
enum Other {
    /// Our API server beside the real one.
    ControlPlane(control_plane::Args),
    /// The whole operator on a real cluster, and the peer's beside it.
    Operator(operator::Args),
    /// Calls of AWS for each launched node, on an emulated account.
    Aws(aws::Args),
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.other {
        Some(Other::ControlPlane(args)) => return control_plane::run(args),
        Some(Other::Operator(args)) => return operator::run(args),
        Some(Other::Aws(args)) => return aws::run(args),
        None => {}
    }
    if let Some(row) = &args.print_scenario {
        return peer::write(&scenes::build(row)?, std::io::stdout().lock());
    }
    if let Some(row) = &args.child {
        println!("{}", serde_json::to_string(&measure::measure(row)?)?);
        return Ok(());
    }
    if cfg!(debug_assertions) {
        return again_optimised();
    }
    let harness = match args.peer {
        true => peer::prepare()?,
        false => None,
    };
    if args.peer && harness.is_none() {
        println!("the peer is left out: Go is not installed");
    }
    let (rows, failures) = run_rows(&chosen(args)?, harness.as_deref())?;
    let scaling = match args.scaling {
        true => measure_scaling(&rows)?,
        false => Vec::new(),
    };
    println!("\n{}", table::render(&rows, harness.is_some()));
    println!("* the bound does not see every constraint of the row, so that the gap looks wider than it is");
    println!("time: best of several runs of plan_capacity alone; peak MB: of a process that does nothing else\n");
    let verdicts = verdict::judge(&rows, &scaling);
    print!("{}", verdict::render(&verdicts));
    if let Some(path) = &args.json {
        write_rows(path, &rows)?;
    }
    let n_failed = verdicts.iter().filter(|verdict| verdict.holds == Some(false)).count();
    if !failures.is_empty() || n_failed > 0 {
        bail!("{} rows failed, {n_failed} lines do not hold", failures.len());
    }
    Ok(())
}

/// Numbers of an unoptimised build would say nothing.
fn again_optimised() -> Result<()> {
    let given = std::env::args().skip(1);
    let status = toolbox::cargo()
        .args(["run", "--release", "--quiet", "--package", "xtask", "--"])
        .args(given)
        .status()
        .context("cargo run does not start")?;
    if !status.success() {
        bail!("the bench ended with {status}");
    }
    Ok(())
}

fn chosen(args: &Args) -> Result<Vec<&str>> {
    if args.rows.is_empty() {
        return Ok(scenes::ROWS.to_vec());
    }
    for row in &args.rows {
        if !scenes::ROWS.contains(&row.as_str()) {
            bail!("no row is named {row:?}; there are {}", scenes::ROWS.join(", "));
        }
    }
    Ok(args.rows.iter().map(String::as_str).collect())
}

/// Every row that could be measured, and the names of those that could not.
fn run_rows(names: &[&str], harness: Option<&Path>) -> Result<(Vec<Row>, Vec<String>)> {
    let mut rows = Vec::new();
    let mut failures = Vec::new();
    for name in names {
        match measure_apart(name) {
            Ok(row) => {
                println!("{name}: {}, {} nodes, ${:.2}/h", table::time(row.seconds), row.nodes, row.dollars_per_hour);
                rows.push(match harness {
                    Some(harness) => beside_peer(row, harness)?,
                    None => row,
                });
            }
            Err(error) => {
                println!("{name}: FAILED: {error:#}");
                failures.push((*name).to_owned());
            }
        }
    }
    Ok((rows, failures))
}

fn measure_apart(name: &str) -> Result<Row> {
    let us = std::env::current_exe().context("we do not know our own name")?;
    let output = Command::new(us)
        .args(["bench", "--child", name])
        .stderr(Stdio::inherit())
        .output()
        .context("the row's process does not start")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("{}", text.trim().trim_start_matches("✗ "));
    }
    serde_json::from_str(&text).context("the row's process answered something else than a row")
}

fn beside_peer(row: Row, harness: &Path) -> Result<Row> {
    let scene = scenes::build(&row.name)?;
    let answer = peer::ask(harness, &scene)?;
    let mut peer = answer.peer();
    match peer.finished {
        true => println!(
            "  peer: {}, {} nodes, ${:.2}/h, {} of {} pods placed",
            table::time(peer.seconds),
            peer.nodes,
            peer.dollars_per_hour,
            peer.placed,
            peer.pods
        ),
        false => println!("  peer: did not finish in {} s", peer::SECONDS_MAX),
    }
    if row.stranded.is_some() {
        let worst = last_word::of_claims(&scene, &answer.claims)?;
        peer.nodes = worst.n_nodes;
        peer.dollars_per_hour = worst.cost.dollars();
        peer.stranded = Some(worst.n_stranded);
        println!(
            "  peer after kube-scheduler: {} nodes, ${:.2}/h, {} stranded by the first wave",
            peer.nodes, peer.dollars_per_hour, worst.n_stranded
        );
    }
    Ok(row.beside(peer))
}

/// By name: the time of twice the pods over the time of the pods.
fn measure_scaling(rows: &[Row]) -> Result<Vec<(String, f64)>> {
    let seconds = |name: &str| -> Result<f64> {
        match rows.iter().find(|row| row.name == name) {
            Some(row) => Ok(row.seconds),
            None => Ok(measure_apart(name)?.seconds),
        }
    };
    scenes::DOUBLED
        .into_iter()
        .map(|(once, twice)| {
            let (once_s, twice_s) = (seconds(once)?, seconds(twice)?);
            println!("{once} → {twice}: {} → {}", table::time(once_s), table::time(twice_s));
            Ok((format!("{once} → {twice}"), twice_s / once_s))
        })
        .collect()
}

fn write_rows(path: &Path, rows: &[Row]) -> Result<()> {
    let file = File::create(path).with_context(|| format!("{} cannot be written", path.display()))?;
    serde_json::to_writer_pretty(file, rows).with_context(|| format!("{} cannot be written", path.display()))
}
