//! What the bench has to show, line by line: holds or not, with the number.

use super::row::Row;
use super::scenes::KUBE_SCHEDULER;
use super::table::{thousands, time};

pub(crate) struct Verdict {
    pub(crate) claim: String,
    /// None where the rows that would tell were not run.
    pub(crate) holds: Option<bool>,
    pub(crate) found: String,
}

/// How much longer twice the pods may take: linear, a logarithm, and the noise of a shared machine.
const DOUBLING_MAX: f64 = 2.3;

pub(crate) fn judge(rows: &[Row], scaling: &[(String, f64)]) -> Vec<Verdict> {
    let mut verdicts = vec![
        ratio(rows, "diverse-10000", 200.0),
        ratio(rows, "preferences-respect-4000", 1000.0),
        ratio(rows, "preferences-ignore-4000", 100.0),
        never_dearer(rows),
        about(rows, "mixed-1000", "within 4% of the bound", |row| {
            let gap = row.gap.unwrap_or(0.0);
            (gap <= 0.04, percent(gap))
        }),
        about(rows, KUBE_SCHEDULER, "within 9% of the bound, nothing stranded", |row| {
            let gap = row.gap.unwrap_or(0.0);
            let stranded = row.stranded.unwrap_or(0);
            (gap <= 0.09 && stranded == 0, format!("{}, {stranded} stranded", percent(gap)))
        }),
        about(rows, "hostname-spread-1000", "at most 170 nodes and $90/h", |row| {
            (
                row.nodes <= 170 && row.dollars_per_hour <= 90.0,
                format!("{} nodes, ${:.2}/h", row.nodes, row.dollars_per_hour),
            )
        }),
        gaps(rows),
        about(rows, "backlog-3152", "under 1 s, every satisfiable pod placed", |row| {
            // A satisfiable pod left behind fails the row itself, so that its being here says the second half.
            (row.seconds < 1.0, format!("{}, {} placed", time(row.seconds), row.placed))
        }),
        about(rows, "large-100k", "under 3 s and 600 MB", |row| {
            (row.seconds < 3.0 && row.peak_mb < 600.0, format!("{}, {:.0} MB", time(row.seconds), row.peak_mb))
        }),
    ];
    if scaling.is_empty() {
        verdicts.push(Verdict {
            claim: format!("twice the pods take at most {DOUBLING_MAX}× the time"),
            holds: None,
            found: "not measured (--scaling)".to_owned(),
        });
    }
    verdicts.extend(scaling.iter().map(|(name, ratio)| Verdict {
        claim: format!("{name}: twice the pods take at most {DOUBLING_MAX}× the time"),
        holds: Some(*ratio <= DOUBLING_MAX),
        found: format!("{ratio:.2}×"),
    }));
    verdicts
}

pub(crate) fn render(verdicts: &[Verdict]) -> String {
    verdicts
        .iter()
        .map(|verdict| {
            let mark = match verdict.holds {
                Some(true) => "pass",
                Some(false) => "FAIL",
                None => "  – ",
            };
            format!("{mark}  {}: {}\n", verdict.claim, verdict.found)
        })
        .collect()
}

fn about(rows: &[Row], name: &str, claim: &str, look: impl Fn(&Row) -> (bool, String)) -> Verdict {
    let (holds, found) = match rows.iter().find(|row| row.name == name) {
        Some(row) => {
            let (holds, found) = look(row);
            (Some(holds), found)
        }
        None => (None, "not measured".to_owned()),
    };
    Verdict { claim: format!("{name}: {claim}"), holds, found }
}

fn ratio(rows: &[Row], name: &str, least: f64) -> Verdict {
    let found = rows.iter().find(|row| row.name == name).and_then(|row| row.ratio);
    Verdict {
        claim: format!("{name}: at least {}× the peer's pods/s", thousands(least)),
        holds: found.map(|ratio| ratio >= least),
        found: found.map_or("not measured (--peer)".to_owned(), |ratio| format!("{}×", thousands(ratio))),
    }
}

/// Only rows where the peer came to an end and placed as many pods can be compared by cost.
fn never_dearer(rows: &[Row]) -> Verdict {
    let compared: Vec<(&Row, f64)> = rows
        .iter()
        .filter_map(|row| {
            let peer = row.peer.as_ref()?;
            (peer.finished && peer.placed == row.placed).then_some((row, peer.dollars_per_hour))
        })
        .collect();
    let dearer: Vec<&str> = compared
        .iter()
        // Prices are summed in another order and from floats over there: a millionth of a dollar is no difference.
        .filter(|(row, theirs)| row.dollars_per_hour > theirs + 1e-6)
        .map(|(row, _)| row.name.as_str())
        .collect();
    Verdict {
        claim: "cost not above the peer's in any row".to_owned(),
        holds: (!compared.is_empty()).then_some(dearer.is_empty()),
        found: match (compared.len(), dearer.is_empty()) {
            (0, _) => "not measured (--peer)".to_owned(),
            (n, true) => format!("{n} rows compared"),
            (_, false) => format!("dearer in {}", dearer.join(", ")),
        },
    }
}

/// The row that kube-scheduler has the last word on has a line of its own.
fn gaps(rows: &[Row]) -> Verdict {
    let mut gaps: Vec<f64> = rows
        .iter()
        .filter(|row| row.bound_ignores.is_empty() && row.name != KUBE_SCHEDULER)
        .filter_map(|row| row.gap)
        .collect();
    gaps.sort_by(f64::total_cmp);
    let found = gaps.last().map(|worst| (gaps[(gaps.len() - 1) / 2], *worst));
    Verdict {
        claim: "gap: median at most 3%, worst at most 8%, where the bound sees every constraint".to_owned(),
        holds: found.map(|(median, worst)| median <= 0.03 && worst <= 0.08),
        found: found.map_or("not measured".to_owned(), |(median, worst)| {
            format!("median {}, worst {} of {} rows", percent(median), percent(worst), gaps.len())
        }),
    }
}

fn percent(fraction: f64) -> String {
    format!("{:.1}%", fraction * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::row::Peer;

    fn row(name: &str) -> Row {
        Row {
            name: name.to_owned(),
            pods: 1000,
            placed: 1000,
            seconds: 0.01,
            pods_per_second: 100_000.0,
            peak_mb: 30.0,
            nodes: 10,
            dollars_per_hour: 103.0,
            bound_dollars_per_hour: 100.0,
            gap: Some(0.03),
            bound_ignores: Vec::new(),
            stranded: None,
            peer: None,
            ratio: None,
        }
    }

    fn peer(dollars: f64) -> Peer {
        Peer {
            pods: 1000,
            placed: 1000,
            seconds: 1.0,
            pods_per_second: 100.0,
            peak_mb: 100.0,
            nodes: 10,
            dollars_per_hour: dollars,
            bound_dollars_per_hour: 0.0,
            gap: None,
            stranded: None,
            finished: true,
        }
    }

    fn found<'a>(verdicts: &'a [Verdict], start: &str) -> &'a Verdict {
        verdicts.iter().find(|verdict| verdict.claim.starts_with(start)).expect(start)
    }

    #[test]
    fn what_was_not_measured_neither_holds_nor_fails() {
        assert!(judge(&[], &[]).iter().all(|verdict| verdict.holds.is_none()));
    }

    #[test]
    fn a_row_is_compared_with_the_peer_on_the_same_scene() {
        let rows = [row("diverse-10000").beside(peer(110.0)), row("mixed-1000").beside(peer(102.0))];
        assert_eq!(rows[0].ratio, Some(1000.0));
        let verdicts = judge(&rows, &[]);
        assert_eq!(found(&verdicts, "diverse-10000").holds, Some(true));
        assert_eq!(found(&verdicts, "cost").holds, Some(false));
        assert_eq!(found(&verdicts, "cost").found, "dearer in mixed-1000");
    }

    #[test]
    fn a_peer_that_placed_fewer_pods_is_no_measure_of_cost() {
        let fewer = Peer { placed: 900, ..peer(90.0) };
        let verdicts = judge(&[row("mixed-1000").beside(fewer)], &[]);
        assert_eq!(found(&verdicts, "cost").holds, None);
    }

    #[test]
    fn a_loosened_bound_is_left_out_of_the_gaps() {
        let mut loose = row("diverse-100");
        loose.gap = Some(0.5);
        loose.bound_ignores = vec!["zone spread".to_owned()];
        let verdicts = judge(&[loose, row("mixed-1000")], &[]);
        assert_eq!(found(&verdicts, "gap").holds, Some(true));
    }

    #[test]
    fn more_than_doubling_fails() {
        let verdicts = judge(&[], &[("diverse".to_owned(), 2.4)]);
        assert_eq!(found(&verdicts, "diverse: twice").holds, Some(false));
    }
}
