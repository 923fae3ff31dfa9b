//! The table that people read.

use super::row::{Peer, Row};

const HEADS: [&str; 9] = ["row", "pods", "time", "pods/s", "peak MB", "nodes", "$/h", "bound", "gap"];
const PEER_HEADS: [&str; 6] = ["peer time", "pods/s", "peak MB", "nodes", "$/h", "times faster"];

/// Lines of equal columns, the first to the left and the others to the right.
pub(crate) fn render(rows: &[Row], with_peer: bool) -> String {
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut heads: Vec<String> = HEADS.map(str::to_owned).to_vec();
    if with_peer {
        heads.extend(PEER_HEADS.map(str::to_owned));
    }
    lines.push(heads);
    for row in rows {
        let mut cells = ours(row);
        if with_peer {
            cells.extend(theirs(row));
        }
        lines.push(cells);
    }
    align(&lines)
}

fn ours(row: &Row) -> Vec<String> {
    vec![
        row.name.clone(),
        row.pods.to_string(),
        time(row.seconds),
        thousands(row.pods_per_second),
        format!("{:.0}", row.peak_mb),
        row.nodes.to_string(),
        format!("{:.2}", row.dollars_per_hour),
        format!("{:.2}", row.bound_dollars_per_hour),
        // A star: spread or affinity that the bound does not see.
        match (row.gap, row.bound_ignores.is_empty()) {
            (None, _) => "–".to_owned(),
            (Some(gap), true) => format!("{:.1}%", gap * 100.0),
            (Some(gap), false) => format!("{:.1}%*", gap * 100.0),
        },
    ]
}

fn theirs(row: &Row) -> Vec<String> {
    let Some(peer) = &row.peer else {
        return vec!["–".to_owned(); PEER_HEADS.len()];
    };
    let cost = |peer: &Peer| match peer.finished && peer.placed == row.placed {
        true => format!("{:.2}", peer.dollars_per_hour),
        false => format!("({:.2})", peer.dollars_per_hour),
    };
    vec![
        match peer.finished {
            true => time(peer.seconds),
            false => format!("> {:.0} s", peer.seconds),
        },
        thousands(peer.pods_per_second),
        format!("{:.0}", peer.peak_mb),
        peer.nodes.to_string(),
        cost(peer),
        row.ratio.map_or("–".to_owned(), |ratio| format!("{}×", thousands(ratio))),
    ]
}

pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 0.1 => format!("{:.2} ms", s * 1e3),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// A whole number with commas, or two digits where it is small.
pub(crate) fn thousands(number: f64) -> String {
    if number < 10.0 {
        return format!("{number:.1}");
    }
    let digits = format!("{number:.0}");
    let mut out = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The first column to the left, the others to the right.
pub(crate) fn align(lines: &[Vec<String>]) -> String {
    let n_columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..n_columns).map(width).collect();
    lines
        .iter()
        .map(|line| {
            let cells: Vec<String> = line
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, width))| match column {
                    0 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                })
                .collect();
            format!("{}\n", cells.join("  ").trim_end())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_enough_to_compare_at_a_glance() {
        assert_eq!(thousands(1_234_567.4), "1,234,567");
        assert_eq!(thousands(999.0), "999");
        assert_eq!(thousands(7.25), "7.2");
        assert_eq!(time(0.000_012), "12 µs");
        assert_eq!(time(0.0123), "12.30 ms");
        assert_eq!(time(2.5), "2.50 s");
    }

    #[test]
    fn columns_line_up() {
        let lines = vec![vec!["row".to_owned(), "n".to_owned()], vec!["a".to_owned(), "100".to_owned()]];
        assert_eq!(align(&lines), "row    n\na    100\n");
    }
}
