//! The view: a whole screen on a terminal, lines where there is none.

use super::picture::{Picture, dollars};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Rows of nodes and pods shown before the rest is counted.
const NODES_MAX: usize = 24;
const PENDING_MAX: usize = 5;
const BAR: usize = 12;

pub(crate) struct Screen {
    is_terminal: bool,
    is_open: bool,
    last_line: String,
    last_decision: String,
}

impl Screen {
    pub(crate) fn new(is_terminal: bool) -> Self {
        Self { is_terminal, is_open: false, last_line: String::new(), last_decision: String::new() }
    }

    pub(crate) fn show(&mut self, picture: &Picture) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.is_terminal {
            // Its own screen, so that what was there before comes back at the end.
            let open = if self.is_open { "" } else { "\x1b[?1049h\x1b[?25l" };
            self.is_open = true;
            let text = drawn(picture).replace('\n', "\x1b[K\n");
            write!(out, "{open}\x1b[H{text}\x1b[J")?;
            return out.flush();
        }
        for decision in &picture.decisions {
            if decision.as_str() > self.last_decision.as_str() {
                writeln!(out, "{decision}")?;
                self.last_decision.clone_from(decision);
            }
        }
        let line = summary(picture);
        if line != self.last_line {
            writeln!(out, "{}  {line}", picture.at)?;
            self.last_line = line;
        }
        out.flush()
    }

    pub(crate) fn close(&mut self) -> io::Result<()> {
        if self.is_open {
            write!(io::stdout(), "\x1b[?25h\x1b[?1049l")?;
        }
        io::stdout().flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal without a cursor would be worse than an error that nobody hears of.
        let _ = self.close();
    }
}

/// One line that changes only when something did.
pub(crate) fn summary(picture: &Picture) -> String {
    let of_stage = |stage: &str| picture.nodes.iter().filter(|node| node.stage == stage).count();
    format!(
        "{} nodes ({} coming, {} leaving), {} of {} pods running, {} waiting, {}/h",
        picture.nodes.len(),
        of_stage("coming"),
        of_stage("leaving"),
        picture.n_running,
        picture.n_pods,
        picture.pending.len(),
        dollars(picture.per_hour_micros),
    )
}

pub(crate) fn drawn(picture: &Picture) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "kerf up   {}   {}   spent {}", picture.at, summary(picture), dollars(picture.spent_micros));
    let _ = writeln!(out, "\nNODEPOOL              NODES  IN USE                STATE");
    for pool in &picture.pools {
        let _ = writeln!(out, "{:<20}  {:>5}  {:<20}  {}", pool.name, pool.n_nodes, pool.cpu, pool.state);
    }
    let _ =
        writeln!(out, "\nNODE                                      PODS  CPU           MEMORY        $/H      WHAT");
    for node in picture.nodes.iter().take(NODES_MAX) {
        let price = node.price_micros.map_or_else(|| "?".to_owned(), dollars);
        let stage = if node.stage == "ready" { String::new() } else { format!(" ({})", node.stage) };
        let _ = writeln!(
            out,
            "{:<40}  {:>4}  {}  {}  {:<7}  {}{stage}",
            cut(&node.name, 40),
            node.n_pods,
            bar(node.fill.0),
            bar(node.fill.1),
            price,
            node.what,
        );
    }
    if picture.nodes.len() > NODES_MAX {
        let _ = writeln!(out, "… and {} more", picture.nodes.len() - NODES_MAX);
    }
    if !picture.pending.is_empty() {
        let _ = writeln!(out, "\nWAITING");
        for (pod, what) in picture.pending.iter().take(PENDING_MAX) {
            let _ = writeln!(out, "{pod}  {what}");
        }
        if picture.pending.len() > PENDING_MAX {
            let _ = writeln!(out, "… and {} more", picture.pending.len() - PENDING_MAX);
        }
    }
    if !picture.decisions.is_empty() {
        let _ = writeln!(out, "\nDECIDED");
        for decision in &picture.decisions {
            let _ = writeln!(out, "{decision}");
        }
    }
    let _ = writeln!(out, "\nCtrl-C ends it, and the cluster with it.");
    out
}

fn bar(share: f64) -> String {
    let n_full = (share * BAR as f64).round() as usize;
    format!("{}{}", "█".repeat(n_full), "░".repeat(BAR - n_full.min(BAR)))
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most - 1).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::picture::{NodeRow, PoolRow};

    #[test]
    fn a_screen_shows_pools_nodes_waiting_pods_money_and_decisions() {
        let picture = Picture {
            at: "2026-01-01T00:00:10Z".to_owned(),
            pools: vec![PoolRow {
                name: "default".to_owned(),
                n_nodes: 1,
                cpu: "4 of 1000 CPU".to_owned(),
                state: "ready".to_owned(),
            }],
            nodes: vec![NodeRow {
                name: "ip-10-0-0-1.ec2.internal".to_owned(),
                what: "c7i.xlarge us-east-1a spot".to_owned(),
                stage: "coming",
                n_pods: 3,
                fill: (0.75, 0.1),
                price_micros: Some(71_400),
            }],
            n_pods: 4,
            n_running: 3,
            pending: vec![("default/inflate-x".to_owned(), "for default-abcde".to_owned())],
            per_hour_micros: 71_400,
            spent_micros: 1_200,
            decisions: vec!["2026-01-01T00:00:01Z  1 × c7i.xlarge for 4 pods, $0.0714/h".to_owned()],
        };
        insta::assert_snapshot!(drawn(&picture));
        assert_eq!(summary(&picture), "1 nodes (1 coming, 0 leaving), 3 of 4 pods running, 1 waiting, $0.0714/h");
    }
}
