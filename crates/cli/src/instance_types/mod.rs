//! `kerf instance-types`: which types a NodePool's requirements allow, what each costs, and what pods get of it.
//!
//! ```text
//! arguments, files ─▶ Ask ── select ─▶ rows, the cheapest first ── page ─▶ table, wide, json
//! ```

mod arguments;
mod ask;
mod page;
mod select;

pub(crate) use arguments::InstanceTypesArguments;

use crate::Outcome;
use arguments::Shape;
use std::io::Write;

pub(crate) fn run(arguments: &InstanceTypesArguments, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let ask = ask::Ask::new(arguments)?;
    let found = select::select(&ask)?;
    let text = match arguments.output {
        Shape::Table => page::table(&ask, &found, false),
        Shape::Wide => page::table(&ask, &found, true),
        Shape::Json => page::json(&ask, &found),
    };
    out.write_all(text.as_bytes())?;
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests;
