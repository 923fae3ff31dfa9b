//! Running an expression.

use std::collections::BTreeMap;
use std::rc::Rc;

use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, SelectExpr, operators};
use serde_json::Value;

use super::functions;
use super::value::{Key, Text, V};
use super::{CALL_STEPS_MAX, Expression};

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EvalError {
    /// In the language's words: `no such key: foo`.
    Said(String),
    /// More steps than one evaluation may have.
    TooCostly,
}

impl EvalError {
    pub(crate) fn said(text: impl Into<String>) -> Self {
        Self::Said(text.into())
    }

    pub(crate) fn no_overload(function: &str) -> Self {
        Self::Said(format!("no such overload: {function}"))
    }
}

pub(crate) type EvalResult<'a> = Result<V<'a>, EvalError>;

/// What an expression may name.
#[derive(Clone, Debug)]
pub(crate) struct Variables<'a> {
    pub(crate) this: V<'a>,
    pub(crate) old: Option<V<'a>>,
}

/// The value of an expression, and how many steps it took.
pub(crate) fn evaluate<'a>(expression: &'a Expression, variables: &Variables<'a>) -> (EvalResult<'a>, u64) {
    let mut run = Run { variables, scopes: Vec::new(), n_steps: 0 };
    let result = run.eval(&expression.tree);
    let n_steps = run.n_steps;
    (if n_steps > CALL_STEPS_MAX { Err(EvalError::TooCostly) } else { result }, n_steps)
}

/// The value of an expression about values of any type, by name.
pub(crate) fn evaluate_over<'a>(expression: &'a Expression, values: &[(&'a str, &'a Value)]) -> EvalResult<'a> {
    let variables = Variables { this: V::Null, old: None };
    let named = |(name, value): &(&'a str, &'a Value)| Ok((*name, V::of_anything(value)?));
    let scopes = values.iter().map(named).collect::<Result<_, EvalError>>()?;
    Run { variables: &variables, scopes, n_steps: 0 }.eval(&expression.tree)
}

pub(super) struct Run<'a, 'v> {
    variables: &'v Variables<'a>,
    /// The variables of macros, innermost last.
    scopes: Vec<(&'a str, V<'a>)>,
    n_steps: u64,
}

impl<'a> Run<'a, '_> {
    pub(super) fn spend(&mut self, n_steps: usize) -> Result<(), EvalError> {
        self.n_steps = self.n_steps.saturating_add(u64::try_from(n_steps).unwrap_or(u64::MAX));
        if self.n_steps > CALL_STEPS_MAX { Err(EvalError::TooCostly) } else { Ok(()) }
    }

    pub(super) fn eval(&mut self, expr: &'a IdedExpr) -> EvalResult<'a> {
        self.spend(1)?;
        match &expr.expr {
            Expr::Unspecified | Expr::Struct(_) => Err(EvalError::said("unsupported expression")),
            Expr::Literal(literal) => Ok(literal_value(literal)),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::List(list) => {
                let mut items = Vec::with_capacity(list.elements.len());
                for (idx, element) in list.elements.iter().enumerate() {
                    let value = self.eval(element)?;
                    match value {
                        V::Optional(inner) if list.optional_indices.contains(&idx) => {
                            items.extend(inner.map(|inner| (*inner).clone()));
                        }
                        value => items.push(value),
                    }
                }
                Ok(V::list(items))
            }
            Expr::Map(map) => {
                let mut entries = BTreeMap::new();
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
                    let key = self.eval(&entry.key)?;
                    let key = Key::of(&key).ok_or_else(|| EvalError::said("unsupported key type"))?;
                    let value = match self.eval(&entry.value)? {
                        V::Optional(inner) if entry.optional => match inner {
                            Some(inner) => (*inner).clone(),
                            None => continue,
                        },
                        value => value,
                    };
                    if entries.insert(key, value).is_some() {
                        return Err(EvalError::said("duplicate key in map literal"));
                    }
                }
                Ok(V::Map(Rc::new(entries)))
            }
        }
    }

    fn variable(&self, name: &str) -> EvalResult<'a> {
        if let Some((_, value)) = self.scopes.iter().rev().find(|(known, _)| *known == name) {
            return match value {
                V::Failed(error) => Err((**error).clone()),
                value => Ok(value.clone()),
            };
        }
        match name {
            "self" => Ok(self.variables.this.clone()),
            "oldSelf" => self.variables.old.clone().ok_or_else(|| EvalError::said("no such attribute(s): oldSelf")),
            "bool" | "bytes" | "double" | "int" | "list" | "map" | "null_type" | "string" | "type" | "uint"
            | "optional_type" => Ok(V::Type(Rc::from(name))),
            _ => Err(EvalError::said(format!("no such attribute(s): {name}"))),
        }
    }

    fn select(&mut self, select: &'a SelectExpr) -> EvalResult<'a> {
        // Type names have dots.
        if let (Expr::Select(inner), "Duration" | "Timestamp") = (&select.operand.expr, select.field.as_str())
            && inner.field == "protobuf"
            && matches!(&inner.operand.expr, Expr::Ident(name) if name == "google")
        {
            return Ok(V::Type(Rc::from(format!("google.protobuf.{}", select.field))));
        }
        let operand = self.eval(&select.operand)?;
        if let V::Optional(inner) = &operand {
            let found = inner.as_ref().and_then(|inner| inner.field(&select.field));
            if select.test {
                return Ok(V::Bool(found.is_some()));
            }
            return Ok(found.transpose()?.map_or(V::Optional(None), V::some));
        }
        if select.test {
            return match operand {
                V::Map(_) | V::Json(Value::Object(_), _) => Ok(V::Bool(operand.field(&select.field).is_some())),
                _ => Err(EvalError::no_overload("has")),
            };
        }
        match operand.field(&select.field) {
            Some(found) => found,
            None if matches!(operand, V::Map(_) | V::Json(Value::Object(_), _)) => {
                Err(EvalError::said(format!("no such key: {}", select.field)))
            }
            None => Err(EvalError::said("no such overload")),
        }
    }

    fn call(&mut self, call: &'a CallExpr) -> EvalResult<'a> {
        let name = call.func_name.as_str();
        match (name, call.args.as_slice(), &call.target) {
            (operators::CONDITIONAL, [condition, yes, no], None) => match self.eval(condition)? {
                V::Bool(true) => self.eval(yes),
                V::Bool(false) => self.eval(no),
                _ => Err(EvalError::no_overload(name)),
            },
            (operators::LOGICAL_AND, [one, other], None) => self.junction(one, other, false),
            (operators::LOGICAL_OR, [one, other], None) => self.junction(one, other, true),
            (operators::NOT_STRICTLY_FALSE, [condition], None) => match self.eval(condition) {
                Ok(V::Bool(false)) => Ok(V::Bool(false)),
                Err(EvalError::TooCostly) => Err(EvalError::TooCostly),
                _ => Ok(V::Bool(true)),
            },
            (operators::OPT_SELECT, [operand, field], None) => {
                let operand = self.eval(operand)?;
                let V::Text(field) = self.eval(field)? else { return Err(EvalError::no_overload(name)) };
                let inner = match &operand {
                    V::Optional(inner) => inner.as_deref(),
                    value => Some(value),
                };
                let found = inner.and_then(|inner| inner.field(&field)).transpose()?;
                Ok(found.map_or(V::Optional(None), V::some))
            }
            (_, args, Some(target)) if functions::is_macro(name, args.len()) => {
                functions::expand_macro(self, name, target, args)
            }
            (_, args, target) => {
                // `sets.contains(…)`, `ip.isCanonical(…)`: a name with a dot is no call on a value.
                let qualified = target.as_deref().and_then(|target| match &target.expr {
                    Expr::Ident(space) if functions::is_namespace(space, name) => Some(format!("{space}.{name}")),
                    _ => None,
                });
                let mut values = Vec::with_capacity(args.len() + 1);
                if let (Some(target), None) = (target, &qualified) {
                    values.push(self.eval(target)?);
                }
                for arg in args {
                    values.push(self.eval(arg)?);
                }
                let name = qualified.as_deref().unwrap_or(name);
                functions::call(self, name, target.is_some() && qualified.is_none(), values)
            }
        }
    }

    /// `&&` and `||` look at both sides: one side that settles it makes the other's error not matter.
    fn junction(&mut self, one: &'a IdedExpr, other: &'a IdedExpr, settles: bool) -> EvalResult<'a> {
        let mut error = None;
        for side in [one, other] {
            match self.eval(side) {
                Ok(V::Bool(value)) if value == settles => return Ok(V::Bool(settles)),
                Ok(V::Bool(_)) => {}
                Ok(_) => {
                    error.get_or_insert(EvalError::said("no such overload"));
                }
                Err(EvalError::TooCostly) => return Err(EvalError::TooCostly),
                Err(said) => {
                    error.get_or_insert(said);
                }
            }
        }
        error.map_or(Ok(V::Bool(!settles)), Err)
    }

    fn comprehension(&mut self, comprehension: &'a ComprehensionExpr) -> EvalResult<'a> {
        let range = self.eval(&comprehension.iter_range)?;
        let items = match range.items() {
            Some(items) => items?,
            None => range.keys().ok_or_else(|| EvalError::said("no such overload"))?,
        };
        let accumulator = self.eval(&comprehension.accu_init)?;
        let depth = self.scopes.len();
        self.scopes.push((&comprehension.accu_var, accumulator));
        let result = self.iterate(comprehension, items, depth);
        self.scopes.truncate(depth);
        result
    }

    fn iterate(&mut self, comprehension: &'a ComprehensionExpr, items: Vec<V<'a>>, depth: usize) -> EvalResult<'a> {
        for item in items {
            self.scopes.push((&comprehension.iter_var, item));
            match self.eval(&comprehension.loop_cond) {
                Ok(V::Bool(true)) => {}
                Ok(V::Bool(false)) => break,
                Ok(_) => return Err(EvalError::said("no such overload")),
                Err(error) => return Err(error),
            }
            self.step(&comprehension.loop_step, &comprehension.accu_var, depth)?;
            self.scopes.truncate(depth + 1);
        }
        self.scopes.truncate(depth + 1);
        self.eval(&comprehension.result)
    }

    /// Takes one step of a loop. A list that only grows is grown in place.
    fn step(&mut self, step: &'a IdedExpr, accumulator: &str, slot: usize) -> Result<(), EvalError> {
        let is_accumulator = |expr: &IdedExpr| matches!(&expr.expr, Expr::Ident(name) if name == accumulator);
        if let Expr::Call(call) = &step.expr {
            match (call.func_name.as_str(), call.args.as_slice()) {
                (operators::CONDITIONAL, [condition, yes, no]) => match self.eval(condition) {
                    Ok(V::Bool(true)) => return self.step(yes, accumulator, slot),
                    Ok(V::Bool(false)) => return self.step(no, accumulator, slot),
                    Err(EvalError::TooCostly) => return Err(EvalError::TooCostly),
                    Ok(_) | Err(_) => {}
                },
                (operators::ADD, [left, right]) if is_accumulator(left) => {
                    if let Expr::List(list) = &right.expr
                        && list.optional_indices.is_empty()
                    {
                        let added = list.elements.iter().map(|item| self.eval(item)).collect::<Result<Vec<_>, _>>();
                        match (added, self.scopes.get_mut(slot)) {
                            (Ok(added), Some((_, V::List(items)))) => {
                                Rc::make_mut(items).extend(added);
                                return Ok(());
                            }
                            (Err(EvalError::TooCostly), _) => return Err(EvalError::TooCostly),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        if is_accumulator(step) {
            return Ok(());
        }
        // A later item may still settle the matter, so an error is kept as what the loop has come to so far.
        let value = match self.eval(step) {
            Ok(value) => value,
            Err(EvalError::TooCostly) => return Err(EvalError::TooCostly),
            Err(error) => V::Failed(Rc::new(error)),
        };
        if let Some((_, held)) = self.scopes.get_mut(slot) {
            *held = value;
        }
        Ok(())
    }

    /// The value of an expression where one or more names stand for values.
    pub(super) fn eval_with(&mut self, names: &[(&'a str, V<'a>)], expr: &'a IdedExpr) -> EvalResult<'a> {
        let depth = self.scopes.len();
        self.scopes.extend_from_slice(names);
        let result = self.eval(expr);
        self.scopes.truncate(depth);
        result
    }
}

fn literal_value<'a>(literal: &'a LiteralValue) -> V<'a> {
    match literal {
        LiteralValue::Boolean(value) => V::Bool(*value.inner()),
        LiteralValue::Bytes(value) => V::Bytes(Rc::from(value.inner())),
        LiteralValue::Double(value) => V::Double(*value.inner()),
        LiteralValue::Int(value) => V::Int(*value.inner()),
        LiteralValue::Null => V::Null,
        LiteralValue::String(value) => V::Text(Text::Data(value.inner())),
        LiteralValue::UInt(value) => V::Uint(*value.inner()),
    }
}
