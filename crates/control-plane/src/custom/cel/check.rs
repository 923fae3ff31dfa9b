//! Whether an expression makes sense for the data that it will see: names, fields, and types.

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, SelectExpr, operators};

use super::super::formats::go_duration_nanos;
use super::super::pattern;
use super::types::Type;
use super::{functions, signatures};

/// What an expression may name.
#[derive(Debug)]
pub(crate) struct Scope<'a> {
    pub(crate) this: Type<'a>,
    pub(crate) old: Type<'a>,
}

pub(super) struct Checked<'a> {
    pub(super) yields: Type<'a>,
    pub(super) uses_old_self: bool,
}

pub(super) struct Issue {
    pub(super) expr_id: u64,
    pub(super) message: String,
}

/// Nothing is known about the type yet, or something was said already.
const OPEN: Type<'static> = Type::Parameter('?');

pub(super) fn check<'a>(tree: &IdedExpr, scope: &Scope<'a>) -> Result<Checked<'a>, Vec<Issue>> {
    check_with(tree, Checker { scope, names: Vec::new(), issues: Vec::new(), uses_old_self: false })
}

/// Checks an expression about values of any type, by name.
pub(super) fn check_over(tree: &IdedExpr, names: &[&str]) -> Result<Checked<'static>, Vec<Issue>> {
    let scope = Scope { this: Type::Dyn, old: Type::Dyn };
    let names = names.iter().map(|name| ((*name).to_owned(), Type::Dyn)).collect();
    check_with(tree, Checker { scope: &scope, names, issues: Vec::new(), uses_old_self: false })
}

fn check_with<'a>(tree: &IdedExpr, mut checker: Checker<'a, '_>) -> Result<Checked<'a>, Vec<Issue>> {
    let yields = checker.visit(tree);
    if checker.issues.is_empty() {
        let yields = if yields == OPEN { Type::Dyn } else { yields };
        Ok(Checked { yields, uses_old_self: checker.uses_old_self })
    } else {
        Err(checker.issues)
    }
}

struct Checker<'a, 's> {
    scope: &'s Scope<'a>,
    /// The names that macros have introduced, innermost last.
    names: Vec<(String, Type<'a>)>,
    issues: Vec<Issue>,
    uses_old_self: bool,
}

impl<'a> Checker<'a, '_> {
    fn complain(&mut self, expr_id: u64, message: String) -> Type<'a> {
        self.issues.push(Issue { expr_id, message });
        OPEN
    }

    fn visit(&mut self, expr: &IdedExpr) -> Type<'a> {
        match &expr.expr {
            Expr::Unspecified => OPEN,
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => Type::Bool,
                LiteralValue::Bytes(_) => Type::Bytes,
                LiteralValue::Double(_) => Type::Double,
                LiteralValue::Int(_) => Type::Int,
                LiteralValue::Null => Type::Null,
                LiteralValue::String(_) => Type::String,
                LiteralValue::UInt(_) => Type::Uint,
            },
            Expr::Ident(name) => self.ident(expr.id, name),
            Expr::Select(select) => self.select(expr.id, select),
            Expr::Call(call) => self.call(expr.id, call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::List(list) => {
                let types: Vec<(u64, Type<'a>)> = list
                    .elements
                    .iter()
                    .enumerate()
                    .map(|(idx, element)| {
                        let found = self.visit(element);
                        let found = match found {
                            Type::Optional(inner) if list.optional_indices.contains(&idx) => (*inner).clone(),
                            found => found,
                        };
                        (element.id, found)
                    })
                    .collect();
                Type::list(self.one_type(&types, true))
            }
            Expr::Map(map) => {
                let (mut keys, mut values) = (Vec::new(), Vec::new());
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
                    keys.push((entry.key.id, self.visit(&entry.key)));
                    let value = match self.visit(&entry.value) {
                        Type::Optional(inner) if entry.optional => (*inner).clone(),
                        value => value,
                    };
                    values.push((entry.value.id, value));
                }
                Type::map(self.one_type(&keys, true), self.one_type(&values, true))
            }
            Expr::Struct(made) => {
                self.complain(expr.id, format!("undeclared reference to '{}' (in container '')", made.type_name))
            }
        }
    }

    /// The type that all members of a literal have. Servers want them to have one.
    fn one_type(&mut self, types: &[(u64, Type<'a>)], must_agree: bool) -> Type<'a> {
        let mut common = OPEN;
        for (id, found) in types {
            let agrees = common == *found
                || common == OPEN
                || common == Type::Dyn
                || *found == Type::Dyn
                || fits(&common, found, &mut BTreeMap::new());
            if agrees {
                common = join(&common, found);
            } else {
                if must_agree {
                    self.complain(*id, format!("expected type '{common}' but found '{found}'"));
                    return Type::Dyn;
                }
                common = Type::Dyn;
            }
        }
        common
    }

    fn ident(&mut self, id: u64, name: &str) -> Type<'a> {
        if let Some((_, known)) = self.names.iter().rev().find(|(known, _)| known == name) {
            return known.clone();
        }
        match name {
            "self" => self.scope.this.clone(),
            "oldSelf" => {
                self.uses_old_self = true;
                self.scope.old.clone()
            }
            "bool" | "bytes" | "double" | "int" | "list" | "map" | "null_type" | "string" | "type" | "uint"
            | "optional_type" => Type::OfTypes,
            _ => self.complain(id, format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    fn select(&mut self, id: u64, select: &SelectExpr) -> Type<'a> {
        if let (Expr::Select(inner), "Duration" | "Timestamp") = (&select.operand.expr, select.field.as_str())
            && inner.field == "protobuf"
            && matches!(&inner.operand.expr, Expr::Ident(name) if name == "google")
        {
            return Type::OfTypes;
        }
        let operand = self.visit(&select.operand);
        let (operand, is_optional) = match operand {
            Type::Optional(inner) => ((*inner).clone(), true),
            operand => (operand, false),
        };
        let found = match &operand {
            Type::Object(..) | Type::Metadata => match operand.field(&select.field) {
                Some(found) => found,
                None => self.complain(id, format!("undefined field '{}'", select.field)),
            },
            Type::Map(_, value) => (**value).clone(),
            Type::Dyn => Type::Dyn,
            open if *open == OPEN => OPEN,
            other => self.complain(id, format!("type '{other}' does not support field selection")),
        };
        match (select.test, is_optional) {
            (true, _) => Type::Bool,
            (false, true) => Type::optional(found),
            (false, false) => found,
        }
    }

    fn call(&mut self, id: u64, call: &CallExpr) -> Type<'a> {
        let name = call.func_name.as_str();
        if name == operators::NOT_STRICTLY_FALSE {
            call.args.iter().for_each(|arg| {
                self.visit(arg);
            });
            return Type::Bool;
        }
        if let (operators::OPT_SELECT, [operand, field]) = (name, call.args.as_slice()) {
            return self.optional_select(id, operand, field);
        }
        if let Some(target) = &call.target
            && functions::is_macro(name, call.args.len())
        {
            return self.expand_macro(id, name, target, &call.args);
        }
        let qualified = call.target.as_deref().and_then(|target| match &target.expr {
            Expr::Ident(space) if functions::is_namespace(space, name) => Some(format!("{space}.{name}")),
            _ => None,
        });
        let is_member = call.target.is_some() && qualified.is_none();
        let mut found = Vec::with_capacity(call.args.len() + 1);
        if let (Some(target), true) = (&call.target, is_member) {
            found.push(self.visit(target));
        }
        let is_format = name == "format" && is_member;
        for arg in &call.args {
            let arg_type = match &arg.expr {
                // What goes into a text may be of any types.
                Expr::List(list) if is_format => {
                    list.elements.iter().for_each(|element| {
                        self.visit(element);
                    });
                    Type::list(Type::Dyn)
                }
                _ => self.visit(arg),
            };
            found.push(arg_type);
        }
        self.check_literals(name, call);
        self.resolve(id, qualified.as_deref().unwrap_or(name), is_member, &found)
    }

    fn resolve(&mut self, id: u64, name: &str, is_member: bool, found: &[Type<'a>]) -> Type<'a> {
        let Some(known) = signatures::of(name) else {
            return self.complain(id, format!("undeclared reference to '{name}' (in container '')"));
        };
        let mut yields: Option<Type<'a>> = None;
        for signature in known.iter().filter(|known| known.is_member == is_member && known.takes.len() == found.len()) {
            let mut bound = BTreeMap::new();
            if signature.takes.iter().zip(found).all(|(wanted, found)| fits(wanted, found, &mut bound)) {
                let this = substitute(&signature.yields, &bound);
                yields = Some(match yields {
                    None => this,
                    Some(other) if other == this => other,
                    Some(_) => Type::Dyn,
                });
            }
        }
        if let Some(yields) = yields {
            return yields;
        }
        if found.contains(&OPEN) {
            return OPEN;
        }
        let list = |types: &[Type<'a>]| types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let applied = match (is_member, found.split_first()) {
            (true, Some((target, args))) => format!("{target}.({})", list(args)),
            _ => format!("({})", list(found)),
        };
        self.complain(id, format!("found no matching overload for '{name}' applied to '{applied}'"))
    }

    /// Literals that can never be read are found here rather than with every object.
    fn check_literals(&mut self, name: &str, call: &CallExpr) {
        let place = if name == "matches" && call.target.is_none() { 1 } else { 0 };
        let Some(arg) = call.args.get(place) else { return };
        let Expr::Literal(LiteralValue::String(text)) = &arg.expr else { return };
        let is_readable = match name {
            "duration" => go_duration_nanos(text.inner()).is_some(),
            "timestamp" => text.inner().parse::<jiff::Timestamp>().is_ok(),
            "matches" => pattern::compile(text.inner()).is_ok(),
            _ => true,
        };
        if !is_readable {
            self.complain(arg.id, format!("invalid {name} argument"));
        }
    }

    fn optional_select(&mut self, id: u64, operand: &IdedExpr, field: &IdedExpr) -> Type<'a> {
        let operand = match self.visit(operand) {
            Type::Optional(inner) => (*inner).clone(),
            operand => operand,
        };
        let Expr::Literal(LiteralValue::String(field)) = &field.expr else { return OPEN };
        let found = match &operand {
            Type::Object(..) | Type::Metadata => match operand.field(field.inner()) {
                Some(found) => found,
                None => self.complain(id, format!("undefined field '{}'", field.inner())),
            },
            Type::Map(_, value) => (**value).clone(),
            Type::Dyn => Type::Dyn,
            open if *open == OPEN => OPEN,
            other => self.complain(id, format!("type '{other}' does not support field selection")),
        };
        Type::optional(found)
    }

    /// The type of what a loop runs over: index and item, or key and value.
    fn range(&mut self, range: &IdedExpr) -> (Type<'a>, Type<'a>, bool) {
        match self.visit(range) {
            Type::List(item) => (Type::Int, (*item).clone(), true),
            Type::Map(key, value) => ((*key).clone(), (*value).clone(), false),
            Type::Dyn => (Type::Dyn, Type::Dyn, true),
            open if open == OPEN => (OPEN, OPEN, true),
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.complain(range.id, message);
                (OPEN, OPEN, true)
            }
        }
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Type<'a> {
        let (first, second, is_list) = self.range(&comprehension.iter_range);
        let item = if is_list { second } else { first };
        let start = self.visit(&comprehension.accu_init);
        let depth = self.names.len();
        self.names.push((comprehension.accu_var.clone(), start.clone()));
        self.names.push((comprehension.iter_var.clone(), item));
        self.visit(&comprehension.loop_cond);
        let step = self.visit(&comprehension.loop_step);
        self.names.truncate(depth);
        self.names.push((comprehension.accu_var.clone(), join(&start, &step)));
        let yields = self.visit(&comprehension.result);
        self.names.truncate(depth);
        yields
    }

    fn expand_macro(&mut self, id: u64, name: &str, target: &IdedExpr, args: &[IdedExpr]) -> Type<'a> {
        let n_names = if matches!(name, "sortBy" | "optMap" | "optFlatMap") { 1 } else { 2 };
        let (variables, rest) = args.split_at(n_names.min(args.len()));
        let mut names = Vec::new();
        for variable in variables {
            match functions::introduced(variable) {
                Some(name) => names.push(name.to_owned()),
                None => return self.complain(variable.id, "argument must be a simple name".to_owned()),
            }
        }
        let depth = self.names.len();
        let (first, _) = if n_names == 1 {
            let target_type = self.visit(target);
            let item = match (&target_type, name) {
                (Type::Optional(inner), "optMap" | "optFlatMap") | (Type::List(inner), "sortBy") => (**inner).clone(),
                (Type::Dyn, _) => Type::Dyn,
                (open, _) if *open == OPEN => OPEN,
                (other, _) => {
                    let message = format!("found no matching overload for '{name}' applied to '{other}'");
                    return self.complain(id, message);
                }
            };
            self.names.extend(names.into_iter().map(|name| (name, item.clone())));
            (target_type, item)
        } else {
            let (first, second, _) = self.range(target);
            self.names.extend(names.into_iter().zip([first.clone(), second.clone()]));
            (first, second)
        };
        let types: Vec<Type<'a>> = rest.iter().map(|arg| self.visit(arg)).collect();
        self.names.truncate(depth);
        let (body, condition) = match types.as_slice() {
            [condition, body] => (body, Some(condition)),
            [body] => (body, None),
            _ => return OPEN,
        };
        let is_test = matches!(name, "all" | "exists" | "existsOne");
        for condition in condition.into_iter().chain(is_test.then_some(body)) {
            if !matches!(condition, Type::Bool | Type::Dyn) && *condition != OPEN {
                return self.complain(id, format!("expected type 'bool' but found '{condition}'"));
            }
        }
        match name {
            "all" | "exists" | "existsOne" => Type::Bool,
            "transformList" => Type::list(body.clone()),
            "transformMap" => Type::map(first, body.clone()),
            "optMap" => Type::optional(body.clone()),
            "sortBy" => first,
            // `optFlatMap` yields what it makes, and so does `transformMapEntry`, which makes maps.
            _ => body.clone(),
        }
    }
}

/// Whether a value of one type may stand where another is wanted. Letters are bound on the way.
fn fits<'a>(wanted: &Type<'a>, found: &Type<'a>, bound: &mut BTreeMap<char, Type<'a>>) -> bool {
    match (wanted, found) {
        (Type::Parameter('?'), _) | (_, Type::Parameter('?')) | (Type::Dyn, _) => true,
        (Type::Parameter(letter), found) => match bound.get(letter).cloned() {
            None => {
                bound.insert(*letter, found.clone());
                true
            }
            Some(known) => {
                let agrees = fits(&known, found, &mut BTreeMap::new()) || fits(found, &known, &mut BTreeMap::new());
                if agrees {
                    bound.insert(*letter, join(&known, found));
                }
                agrees
            }
        },
        (_, Type::Dyn) => true,
        (Type::List(wanted), Type::List(found)) | (Type::Optional(wanted), Type::Optional(found)) => {
            fits(wanted, found, bound)
        }
        (Type::Map(wanted_key, wanted), Type::Map(found_key, found)) => {
            fits(wanted_key, found_key, bound) && fits(wanted, found, bound)
        }
        (wanted, Type::Null) | (Type::Null, wanted) => matches!(
            wanted,
            Type::Null
                | Type::Object(..)
                | Type::Metadata
                | Type::Library(_)
                | Type::Optional(_)
                | Type::Duration
                | Type::Timestamp
        ),
        (wanted, found) => wanted == found,
    }
}

/// What two types have in common, where the two fit.
fn join<'a>(one: &Type<'a>, other: &Type<'a>) -> Type<'a> {
    match (one, other) {
        (Type::Parameter('?'), known) | (known, Type::Parameter('?')) => known.clone(),
        (Type::Null, known) | (known, Type::Null) => known.clone(),
        (Type::List(one), Type::List(other)) => Type::list(join(one, other)),
        (Type::Optional(one), Type::Optional(other)) => Type::optional(join(one, other)),
        (Type::Map(key, value), Type::Map(other_key, other_value)) => {
            Type::map(join(key, other_key), join(value, other_value))
        }
        (one, other) if one == other => one.clone(),
        _ => Type::Dyn,
    }
}

fn substitute<'a>(wanted: &Type<'static>, bound: &BTreeMap<char, Type<'a>>) -> Type<'a> {
    match wanted {
        Type::Parameter(letter) => bound.get(letter).cloned().unwrap_or(OPEN),
        Type::List(inner) => Type::List(Arc::new(substitute(inner, bound))),
        Type::Optional(inner) => Type::Optional(Arc::new(substitute(inner, bound))),
        Type::Map(key, value) => Type::map(substitute(key, bound), substitute(value, bound)),
        other => other.clone(),
    }
}
