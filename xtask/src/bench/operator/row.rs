//! A row as the file has it, and the table that people read.

use serde::Serialize;

use super::ledger::ToRunning;
use crate::bench::table::align;

/// One scene: what our operator did, and what the peer's did.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Absent where only the peer was asked.
    #[serde(flatten)]
    pub(crate) ours: Option<Measured>,
    /// What an earlier commit of ours did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<Measured>,
    pub(crate) peer: Option<Measured>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) early_binding: Option<SideBySide>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Measured {
    pub(crate) seconds: f64,
    pub(crate) nodes: usize,
    pub(crate) dollars_per_hour: f64,
    /// Of the operator's process since its start.
    pub(crate) cpu_seconds: f64,
    pub(crate) peak_mb: f64,
    pub(crate) waves: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) to_running: Option<ToRunning>,
    /// Where nodes were removed: how many there were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nodes_before: Option<usize>,
}

impl Measured {
    /// Of several runs: each number's median. None of none.
    pub(crate) fn median(all: &[Self]) -> Option<Self> {
        let of = |number: fn(&Self) -> f64| {
            let mut numbers: Vec<f64> = all.iter().map(number).collect();
            numbers.sort_by(f64::total_cmp);
            numbers.get((numbers.len().max(1) - 1) / 2).copied()
        };
        let seconds = of(|m| m.seconds)?;
        // Counts are those of the run with the median time.
        let typical = all.iter().find(|run| run.seconds.total_cmp(&seconds).is_eq())?.clone();
        Some(Self {
            seconds,
            dollars_per_hour: of(|m| m.dollars_per_hour)?,
            cpu_seconds: of(|m| m.cpu_seconds)?,
            peak_mb: of(|m| m.peak_mb)?,
            ..typical
        })
    }
}

/// The gate off and on, on the same scene.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct SideBySide {
    pub(crate) off: ToRunning,
    pub(crate) on: ToRunning,
}

const HEADS: [&str; 14] = [
    "row", "time", "peer", "ratio", "nodes", "peer", "$/h", "peer", "CPU s", "peer", "ratio", "peak MB", "peer",
    "waves",
];

pub(crate) fn render(rows: &[Row]) -> String {
    let mut lines = vec![HEADS.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(cells));
    align(&lines)
}

fn cells(row: &Row) -> Vec<String> {
    let (ours, peer) = (row.ours.as_ref(), row.peer.as_ref());
    let said =
        |measured: Option<&Measured>, of: &dyn Fn(&Measured) -> String| measured.map_or_else(|| "–".to_owned(), of);
    let ratio = |of: fn(&Measured) -> f64| match ours.zip(peer) {
        Some((ours, peer)) => format!("{:.2}", of(ours) / of(peer)),
        None => "–".to_owned(),
    };
    let waves = |measured: Option<&Measured>| said(measured, &|found| found.waves.to_string());
    vec![
        row.name.clone(),
        said(ours, &|found| format!("{:.1} s", found.seconds)),
        said(peer, &|found| format!("{:.1} s", found.seconds)),
        ratio(|found| found.seconds),
        said(ours, &|found| found.nodes.to_string()),
        said(peer, &|found| found.nodes.to_string()),
        said(ours, &|found| format!("{:.2}", found.dollars_per_hour)),
        said(peer, &|found| format!("{:.2}", found.dollars_per_hour)),
        said(ours, &|found| format!("{:.2}", found.cpu_seconds)),
        said(peer, &|found| format!("{:.2}", found.cpu_seconds)),
        ratio(|found| found.cpu_seconds),
        said(ours, &|found| format!("{:.0}", found.peak_mb)),
        said(peer, &|found| format!("{:.0}", found.peak_mb)),
        format!("{} / {}", waves(ours), waves(peer)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(seconds: f64) -> Measured {
        Measured {
            seconds,
            nodes: 10,
            dollars_per_hour: 77.5,
            cpu_seconds: 1.0,
            peak_mb: 50.0,
            waves: 1,
            to_running: None,
            nodes_before: None,
        }
    }

    #[test]
    fn a_row_in_the_file_has_our_numbers_at_its_top_and_the_peers_below() {
        let mut row = Row {
            name: "x".to_owned(),
            ours: Some(measured(2.0)),
            before: None,
            peer: Some(measured(4.0)),
            early_binding: None,
        };
        let value = serde_json::to_value(&row).unwrap();
        assert_eq!((value["seconds"].as_f64(), value["peer"]["seconds"].as_f64()), (Some(2.0), Some(4.0)));
        assert!(render(&[row.clone()]).contains("0.50"));
        row.peer = None;
        assert!(serde_json::to_value(&row).unwrap()["peer"].is_null());
        row.ours = None;
        assert!(serde_json::to_value(&row).unwrap().get("seconds").is_none());
    }

    #[test]
    fn of_three_runs_the_median_of_each_number_counts() {
        let run = |seconds, cpu_seconds, nodes| Measured { cpu_seconds, nodes, ..measured(seconds) };
        let median = Measured::median(&[run(3.0, 1.0, 7), run(1.0, 9.0, 8), run(2.0, 2.0, 9)]).unwrap();
        assert_eq!((median.seconds, median.cpu_seconds, median.nodes), (2.0, 2.0, 9));
        assert_eq!(Measured::median(&[]), None);
    }
}
