//! Some thirty clusters and what is planned for them, to the step: a search that becomes dearer, slower or merely other shows
//! in the diff of `plans.txt`.
//!
//! ```text
//! KERF_WRITE_TABLE=1 cargo test -p kerf-engine --test table        writes it anew; the diff belongs into the commit's message
//! ```

#![allow(clippy::unwrap_used, reason = "a test tells what went wrong by panicking")]

mod market;
#[path = "../scene/mod.rs"]
#[allow(dead_code, reason = "every test file uses its own part of this")]
mod scene;
mod scenes;

use kerf_model::{Binder, PreferencePolicy, Report, Snapshot, Step, Strategy};
use scene::{plan, render, snapshot};
use std::collections::BTreeMap;
use std::fmt::Write;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/table/plans.txt");

#[test]
fn plans_are_what_they_were_to_the_step() {
    let mut told = String::from(
        "# What is planned for each scene of `scenes.rs`, and what each strategy came to. How to write it anew: `main.rs`.\n",
    );
    for (name, text) in scenes::all() {
        write_scene(&mut told, name, &text).unwrap();
    }
    if std::env::var_os("KERF_WRITE_TABLE").is_some() {
        std::fs::write(TABLE, &told).unwrap();
    }
    let known = std::fs::read_to_string(TABLE).unwrap_or_default();
    let other: Vec<String> = known
        .lines()
        .zip(told.lines())
        .filter(|(was, is)| was != is)
        .map(|(was, is)| format!("- {was}\n+ {is}"))
        .take(12)
        .collect();
    assert!(
        known == told,
        "plans have changed; if they are better, or as good and meant: KERF_WRITE_TABLE=1 (see tests/table/main.rs)\n{}",
        other.join("\n")
    );
}

fn write_scene(out: &mut String, name: &str, text: &str) -> std::fmt::Result {
    let snapshot = of_words(text);
    let (plan, report) = plan(&snapshot);
    let n_placed: usize = plan.steps.iter().filter_map(placed).sum();
    writeln!(
        out,
        "\n{name}: {} pods, {} shapes, {} pools, {} nodes",
        snapshot.pods.len(),
        snapshot.demands.len(),
        snapshot.pools.len(),
        snapshot.nodes.len(),
    )?;
    write_totals(out, &report, plan.steps.iter().filter(|step| matches!(step, Step::Launch(_))).count(), n_placed)?;
    for candidate in &report.candidates {
        let after =
            candidate.cost_after_scheduler.map_or(String::new(), |cost| format!(", {cost} after kube-scheduler"));
        let strategy = match candidate.strategy {
            Strategy::ByValue => "by value",
            Strategy::Alike => "alike",
            Strategy::FirstFit => "first fit",
        };
        let (n_nodes, n_placed, cost) = (candidate.n_nodes, candidate.n_placed, candidate.cost);
        writeln!(out, "  {strategy:<10}{cost}/h, {n_nodes} nodes for {n_placed} pods{after}")?;
    }
    // Whom each machine is for would be another book.
    let mut bought: BTreeMap<String, usize> = BTreeMap::new();
    for line in render(&plan, &report).iter().filter_map(|line| line.strip_prefix("launch ")) {
        let (n, what) = line.split_once(" x ").unwrap_or(("1", line));
        *bought.entry(what.split(" for ").next().unwrap_or(what).to_owned()).or_default() += n.parse().unwrap_or(1);
    }
    for (what, n) in bought {
        writeln!(out, "  buys      {n} x {what}")?;
    }
    Ok(())
}

fn write_totals(out: &mut String, report: &Report, n_launched: usize, n_placed: usize) -> std::fmt::Result {
    let (added, bound) = (report.cost.added, report.cost.bound);
    let (n_refused, steps) = (report.refused.len(), report.spent.steps);
    writeln!(
        out,
        "  plan      {added}/h (bound {bound}), {n_launched} nodes, {n_placed} pods on nodes that are there, {n_refused} refused, {steps} steps"
    )
}

fn placed(step: &Step) -> Option<usize> {
    match step {
        Step::Place(placement) => Some(placement.pods.len()),
        Step::Launch(_) => None,
    }
}

/// Words that are about the whole scene stand on lines of their own.
fn of_words(text: &str) -> Snapshot {
    let is_setting = |line: &&str| line.trim_start().starts_with("with ");
    let lines: Vec<&str> = text.lines().filter(|line| !is_setting(line)).collect();
    let mut out = snapshot(&lines.join("\n"));
    // What machines are labelled with is known of them.
    out.settings.well_known.insert("family".into());
    for line in text.lines().filter(is_setting) {
        match line.trim() {
            "with kube-scheduler" => out.settings.placed_by = Binder::KubeScheduler,
            "with preferences ignored" => out.settings.preferences = PreferencePolicy::Ignore,
            other => panic!("what is {other:?}?"),
        }
    }
    out
}
