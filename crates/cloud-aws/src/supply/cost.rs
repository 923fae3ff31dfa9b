//! What evaluating an expression may cost at most, told from its text alone, so that what would never end is not begun.
//!
//! ```text
//! text ── too long, too deep? ──▶ parser ──▶ tree ── steps of the worst machine ──▶ evaluated for each type
//! ```
//!
//! Each part has a bound of its steps and one of its size: letters of a text, elements of a list and what they hold, nothing for a
//! number. A macro over a list takes its step once for each element that there could be.

use crate::limits::{
    EXPRESSION_BYTES_MAX, EXPRESSION_DEPTH_MAX, EXPRESSION_STEPS_MAX, EXPRESSION_SYMBOLS_MAX, EXPRESSION_TREE_DEPTH_MAX,
};
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue};

/// The longest name of an instance type, with room. All other variables are numbers.
const NAME_SIZE: u64 = 64;
const NAME: &str = "instance_type";
/// Macros over lists within each other.
const MACRO_DEPTH_MAX: usize = 4;
/// A number in letters.
const NUMBER_SIZE: u64 = 32;

/// Functions and operators, as the parser names them, whose results are numbers or truths whatever they are given.
const SIZELESS: [&str; 28] = [
    "_==_",
    "_!=_",
    "_<_",
    "_<=_",
    "_>_",
    "_>=_",
    "_&&_",
    "_||_",
    "!_",
    "-_",
    "_-_",
    "_*_",
    "_/_",
    "_%_",
    "@in",
    "in",
    "size",
    "int",
    "uint",
    "double",
    "bool",
    "startsWith",
    "endsWith",
    "contains",
    "min",
    "max",
    "@not_strictly_false",
    "__not_strictly_false__",
];

/// Before the parser sees it, which calls itself for each bracket and operator.
pub(super) fn check_text(text: &str) -> Result<(), String> {
    if text.len() > EXPRESSION_BYTES_MAX {
        return Err(format!("it has {} bytes; {EXPRESSION_BYTES_MAX} is the limit", text.len()));
    }
    let is_symbol = |c: &char| !c.is_alphanumeric() && !c.is_whitespace() && *c != '_';
    let n_symbols = text.chars().filter(is_symbol).count();
    if n_symbols > EXPRESSION_SYMBOLS_MAX {
        return Err(format!(
            "it has {n_symbols} operators, brackets and the like; {EXPRESSION_SYMBOLS_MAX} is the limit"
        ));
    }
    let mut depth = 0_usize;
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > EXPRESSION_DEPTH_MAX {
            return Err(format!("its brackets are more than {EXPRESSION_DEPTH_MAX} deep, which is the limit"));
        }
    }
    Ok(())
}

/// Before it is evaluated. Answers how deep its calls are within each other.
pub(super) fn check_tree(tree: &IdedExpr) -> Result<usize, String> {
    let Bound { steps, depth, .. } = bound(tree, &mut Vec::new());
    if depth > EXPRESSION_TREE_DEPTH_MAX {
        return Err(format!("its operators follow each other {depth} deep; {EXPRESSION_TREE_DEPTH_MAX} is the limit"));
    }
    if steps == u64::MAX {
        return Err(format!("evaluating it may take more steps than can be told; {EXPRESSION_STEPS_MAX} is the limit"));
    }
    if steps > EXPRESSION_STEPS_MAX {
        return Err(format!("evaluating it may take {steps} steps; {EXPRESSION_STEPS_MAX} is the limit"));
    }
    Ok(depth)
}

#[derive(Debug, Clone, Copy, Default)]
struct Bound {
    steps: u64,
    size: u64,
    depth: usize,
}

impl Bound {
    fn of(size: u64) -> Self {
        Self { steps: 1, size, depth: 0 }
    }

    fn and(self, other: Self) -> Self {
        Self {
            steps: self.steps.saturating_add(other.steps),
            size: self.size.saturating_add(other.size),
            depth: self.depth.max(other.depth),
        }
    }
}

/// Names, and the size of what they stand for.
type Scope = Vec<(String, u64)>;

fn bound(part: &IdedExpr, scope: &mut Scope) -> Bound {
    let of_part = of_kind(&part.expr, scope);
    Bound { depth: of_part.depth + 1, ..of_part }
}

fn of_kind(part: &Expr, scope: &mut Scope) -> Bound {
    match part {
        Expr::Unspecified => Bound::of(1),
        Expr::Literal(LiteralValue::String(text)) => Bound::of(text.inner().len() as u64),
        Expr::Literal(LiteralValue::Bytes(bytes)) => Bound::of(bytes.inner().len() as u64),
        Expr::Literal(_) => Bound::of(0),
        Expr::Ident(name) => {
            let known = scope.iter().rev().find(|(known, _)| known == name);
            Bound::of(known.map_or(if name == NAME { NAME_SIZE } else { 0 }, |(_, size)| *size))
        }
        Expr::Select(select) => Bound::of(0).and(bound(&select.operand, scope)),
        Expr::Call(call) => of_call(call, scope),
        Expr::List(list) => {
            list.elements.iter().fold(Bound::of(list.elements.len() as u64), |sum, part| sum.and(bound(part, scope)))
        }
        Expr::Map(map) => of_entries(map.entries.iter().map(|entry| &entry.expr), scope),
        Expr::Struct(object) => of_entries(object.entries.iter().map(|entry| &entry.expr), scope),
        Expr::Comprehension(macros) => of_macro(macros, scope),
    }
}

fn of_entries<'a>(entries: impl Iterator<Item = &'a EntryExpr>, scope: &mut Scope) -> Bound {
    entries.fold(Bound::of(0), |sum, entry| match entry {
        EntryExpr::StructField(field) => sum.and(Bound::of(1)).and(bound(&field.value, scope)),
        EntryExpr::MapEntry(entry) => {
            sum.and(Bound::of(1)).and(bound(&entry.key, scope)).and(bound(&entry.value, scope))
        }
    })
}

/// A function looks at all it is given, and makes nothing larger than that; a text in a text is looked for at each of its letters.
fn of_call(call: &CallExpr, scope: &mut Scope) -> Bound {
    let given = call.args.iter().fold(Bound::of(0), |sum, part| sum.and(bound(part, scope)));
    let target = call.target.as_ref().map(|target| bound(target, scope)).unwrap_or_default();
    let all = given.and(target);
    let looked_for = given.size.saturating_mul(target.size) / NAME_SIZE;
    let steps = all.steps.saturating_add(all.size).saturating_add(looked_for);
    let size = match call.func_name.as_str() {
        name if SIZELESS.contains(&name) => 0,
        "string" | "bytes" => all.size.saturating_add(NUMBER_SIZE),
        _ => all.size,
    };
    Bound { steps, size, depth: all.depth }
}

fn of_macro(it: &ComprehensionExpr, scope: &mut Scope) -> Bound {
    // Each brings two names, and is looked at twice: deeper ones would take as long to judge as to run.
    if scope.len() >= 2 * MACRO_DEPTH_MAX {
        return Bound { steps: u64::MAX, ..Bound::default() };
    }
    let range = bound(&it.iter_range, scope);
    let first = bound(&it.accu_init, scope);
    let n_before = scope.len();
    scope.push((it.iter_var.clone(), range.size));
    scope.extend(it.iter_var2.clone().map(|name| (name, range.size)));
    // What one round adds to the result, which grows by as much each time: no macro doubles it.
    scope.push((it.accu_var.clone(), 0));
    let added = bound(&it.loop_step, scope).size;
    let size = first.size.saturating_add(added.saturating_mul(range.size));
    if let Some(result) = scope.last_mut() {
        result.1 = size;
    }
    let round = bound(&it.loop_cond, scope).and(bound(&it.loop_step, scope));
    let result = bound(&it.result, scope);
    scope.truncate(n_before);
    let rounds = round.steps.saturating_mul(range.size);
    let steps = [range.steps, first.steps, rounds, result.steps].into_iter().fold(1, u64::saturating_add);
    let depth = range.and(first).and(round).and(result).depth;
    Bound { steps, size: size.saturating_add(result.size), depth }
}
