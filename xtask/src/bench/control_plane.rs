//! `cargo xtask bench control-plane`: our API server beside the real one, with the same work from the same client.
//!
//! ```text
//! servers ─▶ ours: a release build of its own process      ┐
//!         └▶ real: etcd and kube-apiserver                 ├─▶ load: nodes, pods, watchers, lists ─▶ Measured ─▶ table, verdict
//!                                                          ┘
//! ```
//!
//! One after the other on the same machine, each alone. Memory and processor time are those of the server's processes.

mod load;
mod servers;

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

use load::Measured;
use servers::Server;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Writes what was measured as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Pods to create.
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// Nodes to create.
    #[arg(long, default_value_t = 1_000)]
    nodes: usize,
    /// Watchers, each of both kinds.
    #[arg(long, default_value_t = 20)]
    watchers: usize,
    /// Leaves the real one out: there is nothing to compare with then.
    #[arg(long)]
    alone: bool,
    /// An `api_server` (an example of `kerf-control-plane`) of an earlier commit: both are measured in turn, three times each, and the
    /// ratios of their medians are shown.
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
}

/// How often each of two servers of ours is measured.
const ROUNDS: usize = 3;

/// What is asked of a server.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Work {
    pub(crate) n_pods: usize,
    pub(crate) n_nodes: usize,
    pub(crate) n_watchers: usize,
}

#[derive(Serialize)]
struct Told<'a> {
    work: Work,
    ours: &'a Measured,
    real: Option<&'a Measured>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if cfg!(debug_assertions) {
        return super::again_optimised();
    }
    let work = Work { n_pods: args.pods, n_nodes: args.nodes, n_watchers: args.watchers };
    println!("{} pods and {} nodes, {} watchers of both", work.n_pods, work.n_nodes, work.n_watchers);
    let ours = match &args.before {
        Some(binary) => beside_before(binary, work)?,
        None => measure(Server::ours()?, work)?,
    };
    let real = match args.alone {
        true => None,
        false => match Server::real()? {
            Ok(server) => Some(measure(server, work)?),
            Err(reason) => {
                println!("skipped: {reason}: the real kube-apiserver is left out");
                None
            }
        },
    };
    println!("\n{}", render(&ours, real.as_ref()));
    if let Some(path) = &args.json {
        let file = File::create(path).with_context(|| format!("{} cannot be written", path.display()))?;
        let told = Told { work, ours: &ours, real: real.as_ref() };
        serde_json::to_writer_pretty(file, &told).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    match real {
        Some(real) => judge(&ours, &real),
        None => Ok(()),
    }
}

/// Measures ours and an earlier one in turn, and shows how they compare. Answers the last of ours.
fn beside_before(binary: &Path, work: Work) -> Result<Measured> {
    let (mut ours, mut before) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(measure(Server::ours()?, work)?);
        before.push(measure(Server::before(binary)?, work)?);
    }
    println!("\n{:<28}{:>14}{:>14}{:>10}", "medians", "ours", "before", "ratio");
    let medians = |all: &[Measured]| -> Vec<f64> {
        let of = |at: usize| {
            let mut numbers: Vec<f64> = all.iter().map(|measured| lines(measured, None)[at].ours).collect();
            numbers.sort_by(f64::total_cmp);
            numbers[numbers.len() / 2]
        };
        (0..lines(&all[0], None).len()).map(of).collect()
    };
    let names = lines(&ours[0], None);
    for ((line, ours), before) in names.iter().zip(medians(&ours)).zip(medians(&before)) {
        // More than one: ours takes longer, or more.
        let ratio = if line.is_better == Better::More { before / ours } else { ours / before };
        println!("{:<28}{ours:>11.2} {:<2}{before:>11.2} {:<2}{ratio:>10.2}", line.what, line.unit, line.unit);
    }
    ours.pop().context("at least one round")
}

fn measure(server: Server, work: Work) -> Result<Measured> {
    println!("\n── {}", server.name());
    let measured = load::run(&server, work).with_context(|| format!("{} did not do the work", server.name()))?;
    println!(
        "   {:.0} pods/s, {:.1} s of processor time, {:.0} MB",
        measured.pods_per_second, measured.cpu_seconds, measured.peak_mb
    );
    Ok(measured)
}

/// A line of the table: what, ours, theirs, and how many times better ours is.
struct Line {
    what: &'static str,
    ours: f64,
    real: Option<f64>,
    unit: &'static str,
    is_better: Better,
    /// What the verdict asks of it.
    must: Must,
}

#[derive(Clone, Copy, PartialEq)]
enum Better {
    More,
    Less,
}

/// What ours must be.
#[derive(Clone, Copy, PartialEq)]
enum Must {
    Faster,
    /// Under a third of the real one's.
    Small,
    /// Nothing: the line is for the reader.
    Shown,
}

impl Line {
    /// How many times better ours is.
    fn ratio(&self) -> Option<f64> {
        let real = self.real?;
        Some(match self.is_better {
            Better::More => self.ours / real,
            Better::Less => real / self.ours,
        })
    }

    fn breach(&self) -> Option<String> {
        let ratio = self.ratio()?;
        match self.must {
            Must::Faster if ratio <= 1.0 => Some(format!("{} is not faster: {ratio:.2}×", self.what)),
            Must::Small if ratio <= 3.0 => Some(format!("{} is not under a third: 1/{ratio:.2}", self.what)),
            _ => None,
        }
    }
}

#[rustfmt::skip]
fn lines(ours: &Measured, real: Option<&Measured>) -> Vec<Line> {
    use Better::{Less, More};
    use Must::{Faster, Shown, Small};
    let line = |what, of: fn(&Measured) -> f64, unit, is_better, must| {
        Line { what, ours: of(ours), real: real.map(of), unit, is_better, must }
    };
    vec![
        line("nodes created", |m| m.nodes_per_second, "/s", More, Faster),
        line("pods created, watched", |m| m.pods_per_second, "/s", More, Faster),
        line("all watchers have seen all", |m| m.watched_seconds, "s", Less, Faster),
        line("watch lag, median", |m| m.lag_median_ms, "ms", Less, Shown),
        line("watch lag, 99th of 100", |m| m.lag_p99_ms, "ms", Less, Shown),
        line("list of all pods", |m| m.list_ms, "ms", Less, Faster),
        line("list in pages of 500", |m| m.list_paged_ms, "ms", Less, Faster),
        line("list by label, a tenth", |m| m.list_labelled_ms, "ms", Less, Faster),
        line("list by node, a few", |m| m.list_by_node_ms, "ms", Less, Faster),
        line("processor time", |m| m.cpu_seconds, "s", Less, Faster),
        line("peak memory, API server", |m| m.peak_mb, "MB", Less, Small),
        line("peak memory, with etcd", |m| m.peak_with_store_mb, "MB", Less, Shown),
    ]
}

fn render(ours: &Measured, real: Option<&Measured>) -> String {
    let mut text = format!("{:<28}{:>14}{:>14}{:>10}\n", "", "ours", "real", "better");
    for line in lines(ours, real) {
        let number = |value: f64| {
            format!("{} {:<2}", if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }, line.unit)
        };
        let theirs = line.real.map_or("–".to_owned(), number);
        let ratio = line.ratio().map_or("–".to_owned(), |ratio| format!("{ratio:.1}×"));
        text.push_str(&format!("{:<28}{:>14}{:>14}{:>10}\n", line.what, number(line.ours), theirs, ratio));
    }
    text
}

fn judge(ours: &Measured, real: &Measured) -> Result<()> {
    let breaches: Vec<String> = lines(ours, Some(real)).iter().filter_map(Line::breach).collect();
    if !breaches.is_empty() {
        bail!("{}", breaches.join("; "));
    }
    println!(
        "✓ faster than kube-apiserver in every line, at {:.0} % of its memory",
        100.0 * ours.peak_mb / real.peak_mb
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(speed: f64, megabytes: f64) -> Measured {
        Measured {
            nodes_per_second: speed,
            pods_per_second: speed,
            watched_seconds: 1.0 / speed,
            lag_median_ms: 1.0,
            lag_p99_ms: 1.0,
            list_ms: 1.0 / speed,
            list_paged_ms: 1.0 / speed,
            list_labelled_ms: 1.0 / speed,
            list_by_node_ms: 1.0 / speed,
            cpu_seconds: 1.0 / speed,
            peak_mb: megabytes,
            peak_with_store_mb: megabytes,
        }
    }

    #[test]
    fn the_verdict_asks_for_speed_and_for_a_third_of_the_memory() {
        assert!(judge(&measured(2.0, 100.0), &measured(1.0, 301.0)).is_ok());
        let large = judge(&measured(2.0, 100.0), &measured(1.0, 299.0)).unwrap_err().to_string();
        assert_eq!(large, "peak memory, API server is not under a third: 1/2.99");
        let slow = judge(&measured(1.0, 1.0), &measured(2.0, 10.0)).unwrap_err().to_string();
        assert!(slow.starts_with("nodes created is not faster: 0.50×; "), "{slow}");
    }

    #[test]
    fn the_table_shows_both_and_the_ratio() {
        let text = render(&measured(2.0, 100.0), Some(&measured(1.0, 300.0)));
        let line = text.lines().find(|line| line.starts_with("nodes created")).unwrap();
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>(),
            ["nodes", "created", "2.00", "/s", "1.00", "/s", "2.0×"]
        );
        assert!(render(&measured(2.0, 100.0), None).contains('–'));
    }
}
