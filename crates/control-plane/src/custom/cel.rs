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
use cel::common::ast::{EntryExpr, Expr, SourceInfo};
use cel::parser::{ParseErrors, Parser};

pub(super) use check::Scope;
pub(super) use eval::{EvalError, Variables, evaluate, evaluate_over};
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

/// The same for an expression about values of any type, by name.
pub(super) fn compile_over(source: &str, names: &[&str], wanted: &Type<'_>) -> Result<Expression, CompileError> {
    let (tree, info) = parse(source).map_err(CompileError::Issues)?;
    let checked =
        check::check_over(&tree, names).map_err(|issues| CompileError::Issues(tell(source, &info, &issues)))?;
    if checked.yields != *wanted {
        return Err(CompileError::WrongType);
    }
    Ok(Expression { tree, uses_old_self: false })
}

#[derive(Debug)]
pub(super) enum CompileError {
    Issues(String),
    WrongType,
}

/// How deep a tree may be. Checking and running recurse along it, on stacks that are not theirs alone.
const DEPTH_MAX: usize = 150;

/// Reads an expression. The parser recurses, so it gets a stack of its own, and nothing that could outgrow that.
fn parse(source: &str) -> Result<(IdedExpr, SourceInfo), String> {
    const STACK_BYTES: usize = 64 << 20;
    if source.len() > 64 * 1024 || nesting(source) > DEPTH_MAX {
        return Err(too_deep());
    }
    let read = || {
        let parsed = Parser::new().enable_optional_syntax(true).parse_with_source_info(source);
        match parsed {
            Ok((tree, _)) if depth(&tree) > DEPTH_MAX => Err(too_deep()),
            Ok(parsed) => Ok(parsed),
            Err(errors) => Err(tell_parse_errors(source, &errors)),
        }
    };
    std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, read);
        reader.ok().and_then(|reader| reader.join().ok()).unwrap_or_else(|| Err(too_deep()))
    })
}

fn too_deep() -> String {
    "ERROR: <input>:-1:0: expression recursion limit exceeded: 250".to_owned()
}

/// At most how deep the tree of a source can be: by its brackets, and by its chains of operators.
fn nesting(source: &str) -> usize {
    let mut quote: Option<char> = None;
    let (mut depth, mut deepest, mut n_operators) = (0_usize, 0_usize, 0_usize);
    let mut longest = 0;
    let mut is_escaped = false;
    for c in source.chars() {
        if let Some(open) = quote {
            let ends = c == open && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            quote = if ends { None } else { quote };
            continue;
        }
        match c {
            '\'' | '"' => quote = Some(c),
            '(' | '[' | '{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '+' | '-' | '*' | '/' | '%' | '.' | '!' | '<' | '>' | '=' | '?' => n_operators += 1,
            // The two sides of a junction are trees of their own.
            '&' | '|' | ',' => n_operators = 0,
            _ => {}
        }
        longest = longest.max(n_operators);
    }
    deepest.max(longest)
}

fn depth(tree: &IdedExpr) -> usize {
    let mut deepest = 0;
    let mut left = vec![(tree, 1)];
    while let Some((expr, depth)) = left.pop() {
        deepest = deepest.max(depth);
        let mut go_on = |child| left.push((child, depth + 1));
        match &expr.expr {
            Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).for_each(go_on),
            Expr::Select(select) => go_on(&select.operand),
            Expr::List(list) => list.elements.iter().for_each(go_on),
            Expr::Comprehension(parts) => {
                [&parts.iter_range, &parts.accu_init, &parts.loop_cond, &parts.loop_step, &parts.result]
                    .into_iter()
                    .for_each(go_on);
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        go_on(&entry.key);
                        go_on(&entry.value);
                    }
                }
            }
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) => {}
        }
    }
    deepest
}

fn tell_parse_errors(source: &str, errors: &ParseErrors) -> String {
    let told: Vec<String> = errors
        .errors
        .iter()
        .map(|error| {
            let (line, column) = error.pos;
            located(source, usize::try_from(line).unwrap_or(1), usize::try_from(column).unwrap_or(1), &error.msg)
        })
        .collect();
    told.join("\n")
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
