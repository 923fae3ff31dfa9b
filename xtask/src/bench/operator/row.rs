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
        let mut row =
            Row { name: "x".to_owned(), ours: Some(measured(2.0)), peer: Some(measured(4.0)), early_binding: None };
        let value = serde_json::to_value(&row).unwrap();
        assert_eq!((value["seconds"].as_f64(), value["peer"]["seconds"].as_f64()), (Some(2.0), Some(4.0)));
        assert!(render(&[row.clone()]).contains("0.50"));
        row.peer = None;
        assert!(serde_json::to_value(&row).unwrap()["peer"].is_null());
        row.ours = None;
        assert!(serde_json::to_value(&row).unwrap().get("seconds").is_none());
    }
}
