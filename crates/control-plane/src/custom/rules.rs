//! `x-kubernetes-validations`: rules about a value, and about how it may change.

use std::sync::Arc;

use serde_json::Value;

use super::cel::{self, CompileError, EvalError, Expression, Scope, Type, V, Variables};
use super::field_path;
use super::node::{ListType, Node, Pair, item_with_keys};
use super::path::Path;
use crate::error::{FieldError, FieldErrorKind};

/// What all rules of an object together may cost, in steps.
const OBJECT_STEPS_MAX: u64 = 10_000_000;

/// One rule.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    source: String,
    message: String,
    /// `None` for a rule that could not be read, which is told whenever it would be asked.
    condition: Result<Arc<Expression>, String>,
    message_expression: Option<Arc<Expression>>,
    has_optional_old_self: bool,
    /// `Forbidden`, `Required` and so on, as the cause's reason has it.
    reason: String,
    /// Where below its own place the rule puts the blame.
    field_path: String,
}

/// What is wrong with a rule, and with which part of it.
pub(super) enum Wrong {
    Rule(String),
    MessageExpression(String),
}

/// The expressions of a rule, compiled for a schema, and what is wrong with them.
pub(super) struct Compiled {
    pub(super) condition: Option<Expression>,
    pub(super) message_expression: Option<Expression>,
    pub(super) wrong: Vec<Wrong>,
}

/// Compiles the rules of a schema into the tree that was read from it.
///
/// `schema` and `node` are the same place, once as written and once as read.
pub(super) fn compile_tree(schema: &Value, node: &mut Node, is_resource: bool) {
    let rules: Vec<Rule> = written_rules(schema).map(|rule| Rule::compile(rule, node, is_resource)).collect();
    node.rules = rules;
    let child = |name: &str| schema.get(name).unwrap_or(&Value::Null);
    for (name, property) in &mut node.properties {
        let is_embedded = property.embedded;
        compile_tree(child("properties").get(name).unwrap_or(&Value::Null), property, is_embedded);
    }
    if let super::node::Additional::Schema(additional) = &mut node.additional {
        let is_embedded = additional.embedded;
        compile_tree(child("additionalProperties"), additional, is_embedded);
    }
    if let Some(items) = &mut node.items {
        let is_embedded = items.embedded;
        compile_tree(child("items"), items, is_embedded);
    }
    node.has_rules = !node.rules.is_empty()
        || node.properties.values().any(|property| property.has_rules)
        || node.additional_node().is_some_and(|additional| additional.has_rules)
        || node.items.as_ref().is_some_and(|items| items.has_rules);
}

pub(super) fn written_rules(schema: &Value) -> impl Iterator<Item = &Value> {
    schema.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten()
}

/// Compiles one rule as written, for the value that `node` describes.
pub(super) fn compile(rule: &Value, node: &Node, is_resource: bool) -> Compiled {
    let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut compiled = Compiled { condition: None, message_expression: None, wrong: Vec::new() };
    let Some(this) = Type::of(node, is_resource) else {
        compiled.wrong.push(Wrong::Rule("failed to convert to declType for CEL validation rules".to_owned()));
        return compiled;
    };
    let has_optional_old_self = rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or_default();
    let old = if has_optional_old_self { Type::optional(this.clone()) } else { this.clone() };
    let scope = Scope { this, old };
    if text("rule").trim().is_empty() {
        return compiled;
    }
    match cel::compile(text("rule"), &scope, &Type::Bool) {
        Ok(condition) => compiled.condition = Some(condition),
        Err(CompileError::Issues(issues)) => {
            compiled.wrong.push(Wrong::Rule(format!("compilation failed: {issues}")));
            return compiled;
        }
        Err(CompileError::WrongType) => {
            compiled.wrong.push(Wrong::Rule("cel expression must evaluate to a bool".to_owned()));
            return compiled;
        }
    }
    if !text("messageExpression").is_empty() {
        match cel::compile(text("messageExpression"), &scope, &Type::String) {
            Ok(message_expression) => compiled.message_expression = Some(message_expression),
            Err(CompileError::Issues(issues)) => {
                compiled.wrong.push(Wrong::MessageExpression(format!("messageExpression compilation failed: {issues}")))
            }
            Err(CompileError::WrongType) => {
                compiled.wrong.push(Wrong::MessageExpression("messageExpression must evaluate to a string".to_owned()))
            }
        }
    }
    compiled
}

impl Rule {
    fn compile(rule: &Value, node: &Node, is_resource: bool) -> Self {
        let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
        let compiled = compile(rule, node, is_resource);
        let first_wrong = compiled.wrong.into_iter().find_map(|wrong| match wrong {
            Wrong::Rule(why) => Some(why),
            Wrong::MessageExpression(_) => None,
        });
        Self {
            source: text("rule").to_owned(),
            message: text("message").trim().to_owned(),
            condition: compiled.condition.map(Arc::new).ok_or_else(|| first_wrong.unwrap_or_default()),
            message_expression: compiled.message_expression.map(Arc::new),
            has_optional_old_self: rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or_default(),
            reason: text("reason").to_owned(),
            field_path: field_path::read(text("fieldPath"), node, true).map_or(String::new(), |(path, _)| path),
        }
    }

    fn shown(&self) -> &str {
        if self.message.is_empty() { self.source.trim() } else { &self.message }
    }
}

/// What rules say about a value. `old` is what it was before; `ratchets` tells whether what has not changed is let pass.
pub(super) fn validate(node: &Node, value: &Value, old: Option<&Value>, base: &str, ratchets: bool) -> Vec<FieldError> {
    let mut walk = Walk { errors: Vec::new(), n_steps_left: Some(OBJECT_STEPS_MAX) };
    let seen = match old {
        Some(old) if ratchets => Seen { pair: Some(Pair { new: value, old, node }), parent: None },
        _ => Seen { pair: None, parent: None },
    };
    walk.visit(node, value, old, &Path::root(base), seen);
    walk.errors
}

/// What is known of how a value has changed: the value before, or that of the nearest parent that has one.
#[derive(Clone, Copy)]
struct Seen<'a> {
    pair: Option<Pair<'a>>,
    parent: Option<Pair<'a>>,
}

impl<'a> Seen<'a> {
    fn child(self, child: Option<Pair<'a>>) -> Self {
        match self.pair {
            None => self,
            Some(pair) => Self { pair: child, parent: Some(pair) },
        }
    }

    fn is_unchanged(self) -> bool {
        self.pair.or(self.parent).is_some_and(|pair| pair.is_unchanged())
    }
}

struct Walk {
    errors: Vec<FieldError>,
    /// `None` when all has been spent and nothing more is asked.
    n_steps_left: Option<u64>,
}

impl Walk {
    fn visit<'a>(&mut self, node: &'a Node, value: &'a Value, old: Option<&'a Value>, path: &Path<'_>, seen: Seen<'a>) {
        if !node.has_rules || value.is_null() || self.n_steps_left.is_none() {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        self.ask(node, value, old, path, seen);
        match value {
            Value::Object(members) => {
                let old_members = old.and_then(Value::as_object);
                let old_of = |name: &str| old_members.and_then(|members| members.get(name));
                let seen_of = |name: &str| match (seen.pair, seen.parent, name) {
                    // What an object says of its own kind is the same before and after by the way it is read.
                    (Some(_), None, "apiVersion" | "kind") => Seen { pair: None, parent: None },
                    _ => seen.child(seen.pair.and_then(|pair| pair.member(name))),
                };
                if let Some(additional) = node.additional_node() {
                    for (name, member) in members {
                        self.visit(additional, member, old_of(name), &path.key(name), seen_of(name));
                    }
                }
                for (name, member) in members {
                    if let Some(property) = node.properties.get(name) {
                        self.visit(property, member, old_of(name), &path.field(name), seen_of(name));
                    }
                }
            }
            Value::Array(items) => {
                let Some(item_node) = node.items.as_deref() else { return };
                let old_items = old.and_then(Value::as_array);
                for (idx, item) in items.iter().enumerate() {
                    let old_item = match &node.list {
                        ListType::Map(keys) => old_items.and_then(|old_items| item_with_keys(old_items, item, keys)),
                        ListType::Set | ListType::Atomic => None,
                    };
                    let seen = seen.child(seen.pair.and_then(|pair| pair.item(idx)));
                    self.visit(item_node, item, old_item, &path.item(idx), seen);
                }
            }
            _ => {}
        }
    }

    /// Asks the rules of one place.
    fn ask<'a>(&mut self, node: &'a Node, value: &'a Value, old: Option<&'a Value>, path: &Path<'_>, seen: Seen<'a>) {
        if node.rules.is_empty() {
            return;
        }
        let type_name = node.type_name.as_str();
        let this = match V::of(value, node) {
            Ok(this) => this,
            Err(EvalError::Said(why)) => return self.fail(path, type_name, why),
            Err(EvalError::TooCostly) => return,
        };
        let old_value = old.and_then(|old| V::of(old, node).ok());
        for rule in &node.rules {
            let condition = match &rule.condition {
                Ok(condition) => condition,
                Err(why) if why.is_empty() => continue,
                Err(why) => {
                    self.fail(path, type_name, format!("rule compile error: {why}"));
                    continue;
                }
            };
            if condition.uses_old_self && old_value.is_none() && !rule.has_optional_old_self {
                continue;
            }
            let plain = Variables { this: this.clone(), old: old_value.clone() };
            let variables = if rule.has_optional_old_self {
                Variables { old: Some(old_value.clone().map_or(V::Optional(None), V::some)), ..plain.clone() }
            } else {
                plain
            };
            let (result, n_steps) = cel::evaluate(condition, &variables);
            if !self.spend(n_steps) {
                let why =
                    "validation failed due to running out of cost budget, no further validation rules will be run";
                return self.fail(path, type_name, why.to_owned());
            }
            match result {
                Ok(V::Bool(true)) => continue,
                Ok(_) => {}
                Err(EvalError::TooCostly) => {
                    self.n_steps_left = None;
                    let why = format!(
                        "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to \
                         call cost exceeds limit for rule: {}",
                        rule.shown()
                    );
                    return self.fail(path, type_name, why);
                }
                Err(EvalError::Said(why)) => {
                    let why = if why.starts_with("no such overload") {
                        format!(
                            "'{why}': call arguments did not match a supported operator, function or macro signature for \
                             rule: {}",
                            rule.shown()
                        )
                    } else {
                        format!("{why} evaluating rule: {}", rule.shown())
                    };
                    self.fail(path, type_name, why);
                    continue;
                }
            }
            // A rule about change is not excused by there being none.
            if !condition.uses_old_self && seen.is_unchanged() {
                continue;
            }
            let detail = self.message(rule, &variables);
            self.errors.push(broken(rule, node, value, path, detail));
        }
    }

    fn message(&mut self, rule: &Rule, variables: &Variables<'_>) -> String {
        const MESSAGE_BYTES_MAX: usize = 5 * 1024;
        let fallback = || {
            if rule.message.is_empty() { format!("failed rule: {}", rule.shown()) } else { rule.message.clone() }
        };
        let Some(expression) = &rule.message_expression else { return fallback() };
        let (result, n_steps) = cel::evaluate(expression, variables);
        self.spend(n_steps);
        match result {
            Ok(V::Text(text)) => {
                let text = text.trim();
                let is_usable = !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n');
                if is_usable { text.to_owned() } else { fallback() }
            }
            _ => fallback(),
        }
    }

    fn spend(&mut self, n_steps: u64) -> bool {
        self.n_steps_left = self.n_steps_left.and_then(|left| left.checked_sub(n_steps));
        self.n_steps_left.is_some()
    }

    fn fail(&mut self, path: &Path<'_>, type_name: &str, why: String) {
        self.errors.push(FieldError::invalid(path.to_field(), type_name, why));
    }
}

/// What a broken rule becomes. Objects and lists are not shown.
fn broken(rule: &Rule, node: &Node, value: &Value, path: &Path<'_>, detail: String) -> FieldError {
    let place = path.to_string();
    let field = match (place.as_str(), rule.field_path.as_str()) {
        ("", "") => "<nil>".to_owned(),
        ("", below) => below.to_owned(),
        (place, "") => place.to_owned(),
        (place, below) if below.starts_with('[') => format!("{place}.{below}"),
        (place, below) => format!("{place}.{below}"),
    };
    let is_shown = !matches!(node.type_name.as_str(), "object" | "array");
    let kind = match (rule.reason.as_str(), is_shown) {
        ("FieldValueForbidden", _) => FieldErrorKind::Forbidden,
        ("FieldValueRequired", _) => FieldErrorKind::Required,
        ("FieldValueDuplicate", _) => FieldErrorKind::Duplicate,
        (_, true) => FieldErrorKind::Invalid,
        (_, false) => FieldErrorKind::InvalidUnshown,
    };
    let detail = if kind == FieldErrorKind::Duplicate { String::new() } else { detail };
    FieldError::new(kind, field, if is_shown { value.clone() } else { Value::Null }, detail)
}
