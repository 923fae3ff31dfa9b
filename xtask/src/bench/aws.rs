//! `cargo xtask bench aws`: how many calls of AWS a launched node takes, and how long a decision waits for its CreateFleet.
//!
//! The stage is that of the end-to-end tests: an emulated account, our control plane, our operator as a process with the official SDK.
//! The emulator counts what arrives, so that retries count too.
//!
//! What the contract's batching implies, for a wave of equal pods:
//!
//! - CreateFleet: equal requests share a call within 35 ms of quiet and a second at most. A wave of claims arrives in bursts, so a
//!   twentieth of a call for each node is generous, and one for the first.
//! - CreateTags: one for each node, for its tags name the node. TerminateInstances: none.
//! - DescribeInstances: at most one for each node, and a look at everything now and then.
//! - Launch templates: one for each group of types that a kubelet is told the same, of the sixty types that a request names; described
//!   once before it is made.

use super::verdict::{Verdict, render};
use crate::toolbox;
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Types in a request, and so the most groups that they can make.
const GROUPS_MAX: u64 = 60;
/// Looks at everything while a wave comes: garbage collection, the class, the queue.
const LOOKS: u64 = 30;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Writes the rows as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    nodes: u64,
    claims: f64,
    /// From the deployment to its last running pod.
    seconds: f64,
    /// From the first claim to the first CreateFleet, as the operator's log and the emulator's clock have them.
    decision_to_fleet_seconds: f64,
    /// By action.
    calls: BTreeMap<String, u64>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("kerf-bench-aws-{}", std::process::id()));
    fs::create_dir_all(&folder).context("no temporary folder")?;
    let file = folder.join("rows.json");
    let mut command = toolbox::cargo();
    command.args(["test", "--locked", "--package", "kerf-e2e", "--test", "aws"]).env("KERF_BENCH_AWS", &file);
    let status = command.status().context("cargo test does not start")?;
    if !status.success() {
        bail!("the bench ended with {status}");
    }
    let Ok(text) = fs::read_to_string(&file) else {
        println!("there are no rows: the stage could not be raised here, for the reason above");
        return Ok(());
    };
    fs::remove_dir_all(&folder).context("the temporary folder stays")?;
    let rows: Vec<Row> = serde_json::from_str(&text).context("the stage answered something else than rows")?;
    for row in &rows {
        print_row(row);
    }
    let verdicts: Vec<Verdict> = rows.iter().flat_map(judge).collect();
    print!("{}", render(&verdicts));
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&rows)?;
        fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    let n_failed = verdicts.iter().filter(|verdict| verdict.holds == Some(false)).count();
    if n_failed > 0 {
        bail!("{n_failed} lines do not hold");
    }
    Ok(())
}

fn print_row(row: &Row) {
    println!(
        "\n{} nodes: {:.1} s to running, {:.3} s from decision to CreateFleet, {} claims",
        row.nodes, row.seconds, row.decision_to_fleet_seconds, row.claims
    );
    for (action, count) in &row.calls {
        println!("  {action:<40} {count:>6}   {:>7.3} per node", *count as f64 / row.nodes as f64);
    }
}

/// The most calls of an action that a wave of nodes may take.
fn limits(n_nodes: u64) -> [(&'static str, u64); 6] {
    [
        ("ec2:CreateFleet", 1 + n_nodes.div_ceil(20)),
        ("ec2:CreateTags", n_nodes),
        ("ec2:DescribeInstances", n_nodes + LOOKS),
        ("ec2:CreateLaunchTemplate", GROUPS_MAX),
        ("ec2:DescribeLaunchTemplates", GROUPS_MAX + LOOKS),
        ("ec2:TerminateInstances", 0),
    ]
}

fn judge(row: &Row) -> Vec<Verdict> {
    let of = |action: &str| row.calls.get(action).copied().unwrap_or(0);
    let mut verdicts: Vec<Verdict> = limits(row.nodes)
        .into_iter()
        .map(|(action, most)| Verdict {
            claim: format!("{} nodes: at most {most} calls of {action}", row.nodes),
            holds: Some(of(action) <= most),
            found: of(action).to_string(),
        })
        .collect();
    verdicts.push(Verdict {
        claim: format!("{} nodes: CreateFleet is called at all", row.nodes),
        holds: Some(of("ec2:CreateFleet") > 0),
        found: of("ec2:CreateFleet").to_string(),
    });
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(nodes: u64, calls: &[(&str, u64)]) -> Row {
        let calls = calls.iter().map(|(action, count)| ((*action).to_owned(), *count)).collect();
        Row { nodes, claims: nodes as f64, seconds: 1.0, decision_to_fleet_seconds: 0.1, calls }
    }

    #[test]
    fn a_call_for_each_node_where_batching_would_do_does_not_hold() {
        let failed = |row: &Row| judge(row).into_iter().filter(|it| it.holds == Some(false)).count();
        assert_eq!(failed(&row(50, &[("ec2:CreateFleet", 3), ("ec2:CreateTags", 50)])), 0);
        assert_eq!(failed(&row(50, &[("ec2:CreateFleet", 50), ("ec2:CreateTags", 50)])), 1);
        assert_eq!(failed(&row(50, &[("ec2:CreateFleet", 3), ("ec2:CreateTags", 51)])), 1);
        assert_eq!(failed(&row(1, &[])), 1, "nothing was launched");
    }
}
