//! What was not converted, and what was repaired on the way.

use super::made::Made;
use std::io::Write;

/// As many names as fit into one look.
const NAMES_SHOWN: usize = 5;

pub(super) fn write(out: &mut impl Write, made: &Made) -> std::io::Result<()> {
    if !made.refusals.is_empty() {
        writeln!(out, "Without an equivalent in v1 (an object is left out where it matters):")?;
        for said in &made.refusals {
            let end = if said.what.may_launch { "" } else { " [left out]" };
            writeln!(out, "  {}: {}{end}", said.source, said.what)?;
        }
    }
    if !made.warnings.is_empty() {
        writeln!(out, "To know:")?;
        for said in &made.warnings {
            writeln!(out, "  {}: {}", said.source, said.what)?;
        }
    }
    for (why, titles) in &made.left_out {
        let shown = titles.iter().take(NAMES_SHOWN).cloned().collect::<Vec<_>>().join(", ");
        let more = titles.len().saturating_sub(NAMES_SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        writeln!(out, "Not converted ({why}): {shown}{more}")?;
    }
    Ok(())
}
