//! The expression language of rules (CEL), as API servers have it.
//!
//! Parsing is the `cel` crate's. Checking and running are done here, because a server does both with the schema in hand:
//! a rule that reads a field which the schema does not have is refused with the definition, `integer` and `number` are
//! different types though JSON has one, and what a rule may spend is counted.
//!
//! ```text
//! source ─▶ cel::parser ─▶ check (types, from the schema) ─▶ Expression ─▶ eval (values, lazily over the JSON) ─▶ V
//!                                                                            └─▶ functions, ─▶ library (kube-cel)
//! ```

mod check;
mod eval;
mod functions;
mod library;
mod lists;
mod signatures;
mod texts;
mod types;
mod value;

use cel::IdedExpr;
use cel::common::ast::SourceInfo;
use cel::parser::Parser;

pub(super) use check::Scope;
pub(super) use eval::{EvalError, Variables, evaluate};
pub(super) use types::Type;
pub(super) use value::V;

/// What one evaluation may cost, in steps. A real server counts differently, and also stops at a million.
pub(super) const CALL_STEPS_MAX: u64 = 1_000_000;

/// An expression that has been read and found to make sense.
#[derive(Debug)]
pub(super) struct Expression {
    tree: IdedExpr,
    pub(super) uses_old_self: bool,
}

/// Reads an expression and checks it. What is wrong is told as the server tells it, with place and excerpt.
pub(super) fn compile(source: &str, scope: &Scope<'_>, wanted: &Type<'_>) -> Result<Expression, CompileError> {
    let (tree, info) = parse(source).map_err(CompileError::Issues)?;
    let checked = check::check(&tree, scope).map_err(|issues| CompileError::Issues(tell(source, &info, &issues)))?;
    // What an expression yields must be known: `dyn` will not do.
    if checked.yields != *wanted {
        return Err(CompileError::WrongType);
    }
    Ok(Expression { tree, uses_old_self: checked.uses_old_self })
}

#[derive(Debug)]
pub(super) enum CompileError {
    Issues(String),
    WrongType,
}

fn parse(source: &str) -> Result<(IdedExpr, SourceInfo), String> {
    // The parser's own limit is on nesting; a very long flat chain of operators nests in the tree all the same.
    const SOURCE_BYTES_MAX: usize = 64 * 1024;
    if source.len() > SOURCE_BYTES_MAX {
        return Err(format!(
            "ERROR: <input>:-1:0: expression code point size exceeds limit: size: {}, limit {SOURCE_BYTES_MAX}",
            source.len()
        ));
    }
    Parser::new().enable_optional_syntax(true).parse_with_source_info(source).map_err(|errors| {
        let told: Vec<String> = errors
            .errors
            .iter()
            .map(|error| {
                let (line, column) = error.pos;
                located(source, usize::try_from(line).unwrap_or(1), usize::try_from(column).unwrap_or(1), &error.msg)
            })
            .collect();
        told.join("\n")
    })
}

/// `ERROR: <input>:1:6: undefined field 'foo'`, the line, and a mark below the place.
fn located(source: &str, line: usize, column: usize, message: &str) -> String {
    let text = source.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    let dots = ".".repeat(column.saturating_sub(1));
    format!("ERROR: <input>:{line}:{column}: {message}\n | {text}\n | {dots}^")
}

fn tell(source: &str, info: &SourceInfo, issues: &[check::Issue]) -> String {
    let mut told: Vec<(usize, usize, &str)> = issues
        .iter()
        .map(|issue| {
            let offset = info.offset_for(issue.expr_id).map_or(0, |(start, _)| usize::try_from(start).unwrap_or(0));
            let (line, column) = line_and_column(source, offset);
            (line, column, issue.message.as_str())
        })
        .collect();
    told.sort_by_key(|(line, column, _)| (*line, *column));
    told.dedup();
    let told: Vec<String> =
        told.into_iter().map(|(line, column, message)| located(source, line, column, message)).collect();
    told.join("\n")
}

/// Counted from one, in characters.
fn line_and_column(source: &str, offset: usize) -> (usize, usize) {
    let mut line = 1;
    let mut column = 1;
    for (at, c) in source.chars().enumerate() {
        if at >= offset {
            break;
        }
        if c == '\n' {
            line += 1;
            column = 1;
        } else {
            column += 1;
        }
    }
    (line, column)
}
