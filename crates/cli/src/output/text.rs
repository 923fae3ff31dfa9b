//! The plan as a platform engineer reads it.

use super::names::{compressed, count, first_few, in_stems, stems};
use super::{Document, LaunchEntry, NoteEntry, PendingEntry};
use kerf_model::Note;
use std::io::{self, Write};

/// How many names of pods stand in a line before the rest is counted.
const NAMES: usize = 5;

/// How many notes are shown; all of them are in the JSON.
const NOTES: usize = 40;

pub(crate) fn write(out: &mut impl Write, document: &Document) -> io::Result<()> {
    headline(out, document)?;
    origins(out, document)?;
    launches(out, document)?;
    placements(out, document)?;
    pending(out, "Pending", "pod", &document.pending)?;
    pending(out, "Buffers that cannot be kept", "buffer pod", &document.unmet_buffers)?;
    cost(out, document)?;
    relaxed(out, document)?;
    if !document.set_aside.is_empty() {
        let what = count(document.set_aside.len(), "pod");
        let names = first_few(&document.set_aside, NAMES);
        writeln!(out, "\nSet aside\n  {what} that asked not to run on a NodePool's nodes: {names}")?;
    }
    notes(out, document)
}

/// A note in one line: where, what, why.
pub(crate) fn note(note: &Note) -> String {
    note_line(&NoteEntry::from(note))
}

fn note_line(note: &NoteEntry) -> String {
    let mut line = String::new();
    for part in [&note.source, &note.object, &note.field] {
        if !part.is_empty() {
            line.push_str(part);
            line.push_str(": ");
        }
    }
    line + &note.message
}

fn headline(out: &mut impl Write, document: &Document) -> io::Result<()> {
    let summary = &document.summary;
    let verb = if summary.pods_waiting == 1 { "waits" } else { "wait" };
    let fate = match summary.pods_pending {
        0 if summary.pods_waiting == 0 => "nothing is to be done",
        0 => "all of them get a place",
        pending if pending == summary.pods_waiting => "none of them gets a place",
        _ => "some of them stay pending",
    };
    writeln!(out, "{} {verb} for a place; {fate}.", count(summary.pods_waiting, "pod"))?;
    let mut parts = Vec::new();
    let mut part = |number: usize, what: String| {
        if number > 0 {
            parts.push(what);
        }
    };
    part(
        summary.pods_on_existing_nodes,
        format!("{} on nodes that are there or on their way", count(summary.pods_on_existing_nodes, "pod")),
    );
    part(
        summary.nodes_to_launch,
        format!("{} on {}", count(summary.pods_on_new_nodes, "pod"), count(summary.nodes_to_launch, "new node")),
    );
    part(summary.pods_pending, format!("{} pending", count(summary.pods_pending, "pod")));
    part(summary.pods_leaving, format!("{} from nodes that are leaving", count(summary.pods_leaving, "pod")));
    part(summary.buffer_pods, format!("{} to keep room free", count(summary.buffer_pods, "buffer pod")));
    if !parts.is_empty() {
        writeln!(out, "  {}", parts.join("; "))?;
    }
    Ok(())
}

fn origins(out: &mut impl Write, document: &Document) -> io::Result<()> {
    let summary = &document.summary;
    let not_ready = match summary.node_pools_not_ready {
        0 => String::new(),
        number => format!(" ({number} not ready)"),
    };
    writeln!(out, "  seen: {}, {}{not_ready}", count(summary.nodes, "node"), count(summary.node_pools, "NodePool"))?;
    for catalogue in &document.catalogues {
        let date = catalogue.date.as_ref().map(|date| format!(" of {date}")).unwrap_or_default();
        writeln!(out, "  catalogue: {}{date}, {}", catalogue.name, count(catalogue.instance_types, "instance type"))?;
    }
    if document.cost.has_estimates {
        writeln!(out, "  prices: ~ marks an estimate")?;
    }
    Ok(())
}

fn launches(out: &mut impl Write, document: &Document) -> io::Result<()> {
    if document.launches.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nLaunch")?;
    let mut groups: Vec<Vec<&LaunchEntry>> = Vec::new();
    for launch in &document.launches {
        match groups.iter_mut().find(|group| looks_like(group[0], launch)) {
            Some(group) => group.push(launch),
            None => groups.push(vec![launch]),
        }
    }
    let heads = ["", "NODEPOOL", "TYPE", "ZONE", "CAPACITY", "$/H EACH", "OR ELSE", "PODS EACH"];
    let mut table: Vec<Vec<String>> = vec![heads.map(str::to_owned).to_vec()];
    table.extend(groups.iter().map(|group| launch_row(group)));
    columns(out, &table)
}

/// Whether two claims differ in nothing that a line would show.
fn looks_like(one: &LaunchEntry, other: &LaunchEntry) -> bool {
    one.node_pool == other.node_pool
        && one.instance_types.first() == other.instance_types.first()
        && one.reservations == other.reservations
        && one.min_values_relaxed == other.min_values_relaxed
        && stems(&one.pods) == stems(&other.pods)
}

fn launch_row(group: &[&LaunchEntry]) -> Vec<String> {
    let launch = group[0];
    let first = launch.instance_types.first();
    let text = |field: Option<&String>| field.cloned().unwrap_or_else(|| "any".to_owned());
    let mut pods = match group {
        [single] => compressed(&single.pods),
        _ => in_stems(&launch.pods),
    };
    if !launch.reservations.is_empty() {
        pods.push_str(&format!(" (reservation {})", launch.reservations.join(", ")));
    }
    if launch.min_values_relaxed {
        pods.push_str(" (minValues lowered)");
    }
    let others = group.iter().map(|launch| launch.instance_types.len().saturating_sub(1));
    let (fewest, most) = (others.clone().min().unwrap_or(0), others.max().unwrap_or(0));
    vec![
        format!("{} ×", group.len()),
        launch.node_pool.clone(),
        first.map_or_else(String::new, |option| option.name.clone()),
        text(first.and_then(|option| option.zone.as_ref())),
        text(first.and_then(|option| option.capacity_type.as_ref())),
        first.map_or_else(String::new, |option| price(option.dollars_per_hour, option.is_estimate)),
        match (fewest, most) {
            (_, 0) => "-".to_owned(),
            (fewest, most) if fewest == most => count(most, "type"),
            (fewest, most) => format!("{fewest}–{}", count(most, "type")),
        },
        pods,
    ]
}

fn placements(out: &mut impl Write, document: &Document) -> io::Result<()> {
    if document.placements.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nPlace on nodes")?;
    let mut table = vec![["NODE", "", "PODS"].map(str::to_owned).to_vec()];
    for placement in &document.placements {
        let way = if placement.in_flight { "on its way" } else { "" };
        table.push(vec![placement.node.clone(), way.to_owned(), compressed(&placement.pods)]);
    }
    columns(out, &table)
}

fn pending(out: &mut impl Write, title: &str, what: &str, entries: &[PendingEntry]) -> io::Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{title}")?;
    for entry in entries {
        writeln!(out, "  {}: {}", count(entry.pods.len(), what), first_few(&entry.pods, NAMES))?;
        for verdict in &entry.verdicts {
            match &verdict.node_pool {
                Some(pool) => writeln!(out, "    nodepool {pool}: {}", verdict.message)?,
                None => writeln!(out, "    {}", verdict.message)?,
            }
        }
        if let Some(remedy) = &entry.would_help {
            writeln!(out, "    would help: {remedy}")?;
        }
    }
    Ok(())
}

fn cost(out: &mut impl Write, document: &Document) -> io::Result<()> {
    let cost = &document.cost;
    writeln!(out, "\nCost")?;
    let about = |is_estimate| if is_estimate { "~" } else { "" };
    writeln!(
        out,
        "  ${:.4}/h → {}${:.4}/h ({}${:.4}/h more)",
        cost.dollars_per_hour_before,
        about(cost.has_estimates),
        cost.dollars_per_hour_after,
        about(cost.has_estimates),
        cost.dollars_per_hour_added
    )?;
    if cost.nodes_without_price > 0 {
        writeln!(out, "  {} without a known price not counted", count(cost.nodes_without_price, "node"))?;
    }
    if let Some(gap) = cost.gap {
        let percent = gap * 100.0;
        if percent < 0.05 {
            writeln!(out, "  the best possible: no plan adds less than ${:.4}/h", cost.dollars_per_hour_bound)?;
        } else {
            writeln!(
                out,
                "  within {percent:.1}% of the best possible (no plan adds less than ${:.4}/h)",
                cost.dollars_per_hour_bound
            )?;
        }
        if !cost.bound_ignores.is_empty() {
            writeln!(out, "  the true gap may be smaller: the bound does not see {}", cost.bound_ignores.join(", "))?;
        }
    }
    if let Some(robustness) = &document.robustness {
        let stranded = match robustness.worst_stranded {
            0 => "no pod stranded".to_owned(),
            number => format!("{} stranded", count(number, "pod")),
        };
        writeln!(
            out,
            "  when kube-scheduler places the pods, at worst of {} orders: {stranded}, ${:.4}/h more",
            robustness.orders, robustness.worst_dollars_per_hour
        )?;
    }
    if let Some(line) = fewer_nodes(document) {
        writeln!(out, "  {line}")?;
    }
    if document.search.is_cut_off {
        writeln!(
            out,
            "  the search was stopped after {} steps; a higher --effort may find more",
            document.search.steps
        )?;
    }
    Ok(())
}

/// Says so when a cheaper plan was passed over because it needs more nodes.
fn fewer_nodes(document: &Document) -> Option<String> {
    let after = |candidate: &super::CandidateEntry| {
        candidate.dollars_per_hour_after_scheduler.unwrap_or(candidate.dollars_per_hour)
    };
    let (chosen, others) = document.search.candidates.split_first()?;
    let passed_over = others
        .iter()
        .filter(|other| other.pods_placed == chosen.pods_placed && after(other) < after(chosen))
        .min_by(|a, b| after(a).total_cmp(&after(b)))?;
    Some(format!(
        "fewer nodes were preferred: {} by {} would have cost ${:.4}/h",
        count(passed_over.nodes, "node"),
        passed_over.strategy,
        after(passed_over)
    ))
}

fn relaxed(out: &mut impl Write, document: &Document) -> io::Result<()> {
    if document.relaxed.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nPreferences given up")?;
    for relaxed in &document.relaxed {
        let pods = count(relaxed.pods.len(), "pod");
        writeln!(out, "  {pods}: {}: {}", first_few(&relaxed.pods, NAMES), relaxed.given_up.join("; "))?;
    }
    Ok(())
}

fn notes(out: &mut impl Write, document: &Document) -> io::Result<()> {
    if document.notes.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nNotes")?;
    for note in document.notes.iter().take(NOTES) {
        writeln!(out, "  {}", note_line(note))?;
    }
    if document.notes.len() > NOTES {
        writeln!(out, "  and {} more (-o json shows all)", document.notes.len() - NOTES)?;
    }
    Ok(())
}

fn price(dollars: f64, is_estimate: bool) -> String {
    let mark = if is_estimate { "~" } else { "" };
    format!("{mark}${dollars:.4}")
}

/// Left-aligned columns, two spaces apart; empty columns vanish.
fn columns(out: &mut impl Write, table: &[Vec<String>]) -> io::Result<()> {
    let n_columns = table.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..n_columns)
        .map(|column| {
            table.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    for row in table {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths).filter(|(_, width)| **width > 0) {
            line.push_str("  ");
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - cell.chars().count()));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
