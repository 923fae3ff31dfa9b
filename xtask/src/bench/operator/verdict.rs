//! What the operator has to show, line by line: holds or not, with the number and the ratio to what is asked.

use super::row::{Measured, Row};
use super::scenes::{EMBEDDED, EMPTIED, MIXED, MIXED_EARLY, SPREAD, START, TO_RUNNING};
use crate::bench::verdict::Verdict;

/// One line: a row's number, and the most that it may be.
struct Line {
    row: &'static str,
    claim: &'static str,
    of: fn(&Measured) -> f64,
    max: Max,
}

/// The most that a number may be.
enum Max {
    Is(f64),
    Below(f64),
    /// As a share of the peer's.
    OfPeer(f64),
}

#[rustfmt::skip]
const LINES: [Line; 15] = [
    Line { row: MIXED, claim: "at most 0.7 of the peer's time", of: |m| m.seconds, max: Max::OfPeer(0.7) },
    Line { row: MIXED, claim: "at most $78/h", of: |m| m.dollars_per_hour, max: Max::Is(78.0) },
    Line { row: MIXED, claim: "no second wave of nodes", of: |m| m.waves as f64, max: Max::Is(1.0) },
    Line { row: MIXED, claim: "under 60 MB", of: |m| m.peak_mb, max: Max::Below(60.0) },
    Line { row: MIXED, claim: "at most a third of the peer's CPU seconds", of: |m| m.cpu_seconds, max: Max::OfPeer(1.0 / 3.0) },
    Line { row: MIXED_EARLY, claim: "at most $74.5/h", of: |m| m.dollars_per_hour, max: Max::Is(74.5) },
    Line { row: SPREAD, claim: "at most 0.35 of the peer's time", of: |m| m.seconds, max: Max::OfPeer(0.35) },
    Line { row: SPREAD, claim: "at most 175 nodes", of: |m| m.nodes as f64, max: Max::Is(175.0) },
    Line { row: SPREAD, claim: "at most $93/h", of: |m| m.dollars_per_hour, max: Max::Is(93.0) },
    Line { row: SPREAD, claim: "under 80 MB", of: |m| m.peak_mb, max: Max::Below(80.0) },
    Line { row: SPREAD, claim: "at most a tenth of the peer's CPU seconds", of: |m| m.cpu_seconds, max: Max::OfPeer(0.1) },
    Line { row: EMPTIED, claim: "at most half of the peer's time", of: |m| m.seconds, max: Max::OfPeer(0.5) },
    Line { row: START, claim: "first decision in under 1 s", of: |m| m.seconds, max: Max::Below(1.0) },
    Line { row: START, claim: "under 150 MB", of: |m| m.peak_mb, max: Max::Below(150.0) },
    Line { row: EMBEDDED, claim: "under 700 MB", of: |m| m.peak_mb, max: Max::Below(700.0) },
];

/// As much of an earlier commit's time may a scene take: what is more is no noise.
pub(crate) const OF_BEFORE: f64 = 1.15;

pub(crate) fn judge(rows: &[Row]) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = LINES.iter().map(|line| line.judge(rows)).collect();
    verdicts.push(side_by_side(rows));
    verdicts.extend(rows.iter().filter_map(beside_before));
    verdicts
}

/// A row that an earlier commit was measured with, too.
fn beside_before(row: &Row) -> Option<Verdict> {
    let (ours, before) = row.ours.as_ref().zip(row.before.as_ref())?;
    let ratio = |of: fn(&Measured) -> f64| of(ours) / of(before);
    let seconds = ratio(|m| m.seconds);
    Some(Verdict {
        claim: format!("{}: at most {OF_BEFORE} of the time before, and no dearer", row.name),
        holds: Some(seconds <= OF_BEFORE && ours.dollars_per_hour <= before.dollars_per_hour),
        found: format!(
            "{:.2} s beside {:.2} s: {seconds:.2}; ${:.2} beside ${:.2}; CPU {:.2}, memory {:.2}",
            ours.seconds,
            before.seconds,
            ours.dollars_per_hour,
            before.dollars_per_hour,
            ratio(|m| m.cpu_seconds),
            ratio(|m| m.peak_mb)
        ),
    })
}

impl Line {
    fn judge(&self, rows: &[Row]) -> Verdict {
        let claim = format!("{}: {}", self.row, self.claim);
        let row = rows.iter().find(|row| row.name == self.row);
        let Some(ours) = row.and_then(|row| row.ours.as_ref()).map(self.of) else {
            return Verdict { claim, holds: None, found: "not measured".to_owned() };
        };
        let (holds, found) = match self.max {
            Max::Is(max) => (ours <= max, format!("{ours:.2}, {:.2} of the most", ours / max)),
            Max::Below(max) => (ours < max, format!("{ours:.2}, {:.2} of the limit", ours / max)),
            Max::OfPeer(share) => {
                let Some(peer) = row.and_then(|row| row.peer.as_ref()).map(self.of) else {
                    return Verdict {
                        claim,
                        holds: None,
                        found: format!("{ours:.2}; the peer is not measured (--peer)"),
                    };
                };
                (ours <= peer * share, format!("{ours:.2} beside {peer:.2}: {:.3}", ours / peer))
            }
        };
        Verdict { claim, holds: Some(holds), found }
    }
}

/// Told, not judged: kwok's nodes are ready as they register, so that there is no time for the gate to save here.
fn side_by_side(rows: &[Row]) -> Verdict {
    let found = rows.iter().find(|row| row.name == TO_RUNNING).and_then(|row| row.early_binding);
    Verdict {
        claim: format!("{TO_RUNNING}: with EarlyBinding beside without"),
        holds: None,
        found: found.map_or("not measured".to_owned(), |side| {
            format!(
                "median {:.1} s beside {:.1} s, 95th of a hundred {:.1} s beside {:.1} s",
                side.on.median_seconds, side.off.median_seconds, side.on.p95_seconds, side.off.p95_seconds
            )
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::operator::ledger::ToRunning;
    use crate::bench::operator::row::SideBySide;

    fn measured(seconds: f64, cpu_seconds: f64) -> Measured {
        Measured {
            seconds,
            nodes: 10,
            dollars_per_hour: 78.0,
            cpu_seconds,
            peak_mb: 60.0,
            waves: 1,
            to_running: None,
            nodes_before: None,
        }
    }

    fn row(name: &str, ours: Option<Measured>, peer: Option<Measured>) -> Row {
        Row { name: name.to_owned(), ours, before: None, peer, early_binding: None }
    }

    fn holds(rows: &[Row], claim: &str) -> Option<bool> {
        judge(rows).into_iter().find(|verdict| verdict.claim.ends_with(claim)).expect(claim).holds
    }

    #[test]
    fn what_was_not_measured_neither_holds_nor_fails() {
        assert!(judge(&[]).iter().all(|verdict| verdict.holds.is_none()));
        assert!(judge(&[row(MIXED, None, Some(measured(20.0, 3.0)))]).iter().all(|verdict| verdict.holds.is_none()));
    }

    #[test]
    fn a_share_needs_the_peer_and_a_plain_number_does_not() {
        let alone = [row(MIXED, Some(measured(14.0, 1.2)), None)];
        assert_eq!(holds(&alone, "0.7 of the peer's time"), None);
        assert_eq!(holds(&alone, "mixed-1000: at most $78/h"), Some(true));
        assert_eq!(holds(&alone, "under 60 MB"), Some(false));
        let beside = [row(MIXED, Some(measured(14.0, 1.2)), Some(measured(20.0, 3.0)))];
        assert_eq!(holds(&beside, "0.7 of the peer's time"), Some(true));
        assert_eq!(holds(&beside, "third of the peer's CPU seconds"), Some(false));
    }

    #[test]
    fn early_binding_is_told_beside_its_absence_and_not_judged() {
        let times = |median_seconds| ToRunning { median_seconds, p95_seconds: 9.0 };
        let mut found = row(TO_RUNNING, None, None);
        found.early_binding = Some(SideBySide { off: times(4.0), on: times(1.0) });
        let verdict = side_by_side(&[found]);
        assert_eq!(verdict.holds, None);
        assert!(verdict.found.starts_with("median 1.0 s beside 4.0 s"), "{}", verdict.found);
    }

    #[test]
    fn a_row_is_neither_slower_nor_dearer_than_an_earlier_commit() {
        let mut row = row(MIXED, Some(measured(11.0, 1.0)), None);
        assert!(beside_before(&row).is_none(), "nothing to compare with");
        row.before = Some(measured(10.0, 1.0));
        assert_eq!(beside_before(&row).unwrap().holds, Some(true));
        row.before = Some(measured(9.0, 1.0));
        assert_eq!(beside_before(&row).unwrap().holds, Some(false), "slower");
        row.before = Some(Measured { dollars_per_hour: 77.99, ..measured(11.0, 1.0) });
        assert_eq!(beside_before(&row).unwrap().holds, Some(false), "dearer");
    }
}
