//! Whether a value has the shape that a schema asks for: types, limits, formats, and the four junctors.
//!
//! The checks run in the server's order, and say the server's words. Where a value and all that is below it are as they were
//! before an update, what is wrong with it is let pass.

use serde_json::{Number, Value};

use super::formats::{Format, has_format};
use super::go;
use super::node::{Additional, Node, Pair};
use super::path::Path;
use crate::error::{FieldError, FieldErrorKind};

/// Everything that is wrong with the shape of a value.
///
/// `base` is the field that the value is in, for a part of an object. The value's own fields are named from the value on, as
/// the server does: `status.phase: … phase in body must be …`.
pub(super) fn validate(node: &Node, value: &Value, base: &str, pair: Option<Pair<'_>>) -> Vec<FieldError> {
    let outcome = validate_node(node, value, &Path::root(""), pair);
    outcome.problems.into_iter().map(|problem| problem.into_error(base)).collect()
}

#[derive(Default)]
struct Outcome {
    problems: Vec<Problem>,
    /// How many checks were passed on the way. Of several failed alternatives, the one with the most is told.
    n_passed: usize,
}

struct Problem {
    /// What tells this problem from others.
    message: String,
    kind: Kind,
}

enum Kind {
    /// About one field: its name, and how it becomes an error.
    Field { name: String, error: FieldErrorKind, found: Value, detail: Detail },
    /// A remark about the whole.
    Whole,
}

enum Detail {
    Message,
    Other(String),
}

impl Problem {
    fn into_error(self, base: &str) -> FieldError {
        let Self { message, kind } = self;
        let whole = if base.is_empty() { "<nil>" } else { base };
        match kind {
            Kind::Whole => FieldError::invalid(whole, "", message),
            Kind::Field { name, error, found, detail } => {
                let name = name.trim_start_matches('.');
                let field = match (base, name) {
                    (_, "") => whole.to_owned(),
                    ("", name) => name.to_owned(),
                    (base, name) => format!("{base}.{name}"),
                };
                let detail = match detail {
                    Detail::Message => message,
                    Detail::Other(detail) => detail,
                };
                FieldError::new(error, field, found, detail)
            }
        }
    }
}

impl Outcome {
    fn passed() -> Self {
        Self { problems: Vec::new(), n_passed: 1 }
    }

    fn is_valid(&self) -> bool {
        self.problems.is_empty()
    }

    fn merge(&mut self, other: Self) {
        self.n_passed += other.n_passed;
        for problem in other.problems {
            self.add(problem);
        }
    }

    /// The same words are said once.
    fn add(&mut self, problem: Problem) {
        if self.problems.iter().all(|known| known.message != problem.message) {
            self.problems.push(problem);
        }
    }

    fn field(&mut self, path: &Path<'_>, error: FieldErrorKind, found: impl Into<Value>, message: String) {
        let kind = Kind::Field { name: path.to_string(), error, found: found.into(), detail: Detail::Message };
        self.add(Problem { message, kind });
    }

    fn field_saying(
        &mut self,
        path: &Path<'_>,
        error: FieldErrorKind,
        found: impl Into<Value>,
        message: String,
        detail: String,
    ) {
        let kind = Kind::Field { name: path.to_string(), error, found: found.into(), detail: Detail::Other(detail) };
        self.add(Problem { message, kind });
    }

    fn whole(&mut self, message: String) {
        self.add(Problem { message, kind: Kind::Whole });
    }

    fn wrong_type(&mut self, path: &Path<'_>, wanted: &str, found: &str) {
        let message = format!("{path} in body must be of type {wanted}: {}", go::quote(found));
        self.field(path, FieldErrorKind::TypeInvalid, found, message);
    }
}

fn validate_node(node: &Node, value: &Value, path: &Path<'_>, pair: Option<Pair<'_>>) -> Outcome {
    let mut outcome = check_node(node, value, path, pair);
    if !outcome.is_valid() && pair.is_some_and(|pair| pair.is_unchanged()) {
        outcome.problems.clear();
    }
    outcome
}

fn check_node(node: &Node, value: &Value, path: &Path<'_>, pair: Option<Pair<'_>>) -> Outcome {
    let mut outcome = Outcome::default();
    if value.is_null() {
        outcome.merge(check_null(node, path));
        outcome.merge(check_choices(node, value, path));
        return outcome;
    }
    if !node.type_names().is_empty() || node.format.is_some() {
        outcome.merge(check_type(node, value, path));
        outcome.n_passed += 1;
    }
    outcome.merge(check_junctors(node, value, path, pair));
    outcome.n_passed += 1;
    match value {
        Value::String(text) => {
            outcome.merge(check_text(node, text, path));
            outcome.n_passed += 1;
            if let Some(Format::Text { written, known_as }) = &node.format {
                if !has_format(text, known_as) {
                    outcome.wrong_type(path, written, text);
                }
                outcome.n_passed += 1;
            }
        }
        Value::Number(number) => {
            outcome.merge(check_number(node, number, path));
            outcome.n_passed += 1;
        }
        Value::Array(items) => {
            outcome.merge(check_items(node, items, path, pair));
            outcome.n_passed += 1;
        }
        _ => {}
    }
    outcome.merge(check_choices(node, value, path));
    outcome.n_passed += 1;
    if let Value::Object(members) = value {
        outcome.merge(check_members(node, members, path, pair));
        outcome.n_passed += 1;
    }
    outcome.n_passed += 1;
    outcome
}

fn check_null(node: &Node, path: &Path<'_>) -> Outcome {
    if node.type_names().is_empty() || node.nullable {
        return Outcome::passed();
    }
    let mut outcome = Outcome::default();
    outcome.wrong_type(path, node.type_names(), "null");
    outcome
}

fn check_type(node: &Node, value: &Value, path: &Path<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    let (found, found_format) = match value {
        Value::Null => return Outcome::passed(),
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Number(number) if number.as_i64().is_some() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    };
    let takes = |type_name: &str| match (node.int_or_string, type_name) {
        (true, "integer" | "string") => true,
        (true, _) => false,
        (false, type_name) => node.type_name == type_name,
    };
    let is_whole_float = found == "number" && takes("integer") && value.as_f64().is_some_and(go::is_json_integer);
    let is_integer_as_number = found == "integer" && takes("number");
    let fits = takes(found) || is_whole_float || is_integer_as_number;
    let format = match &node.format {
        None => "",
        Some(Format::Integer(name) | Format::Number(name) | Format::Text { written: name, .. }) => name,
    };
    let is_text_or_list = matches!(value, Value::String(_) | Value::Array(_));
    if !is_text_or_list && !format.is_empty() && !fits && found_format != format {
        outcome.wrong_type(path, format, found_format);
        return outcome;
    }
    if !(takes("number") || takes("integer") || format.is_empty()) && is_text_or_list {
        return Outcome::passed();
    }
    if !fits {
        outcome.wrong_type(path, node.type_names(), found);
        return outcome;
    }
    Outcome::passed()
}

fn check_junctors(node: &Node, value: &Value, path: &Path<'_>, pair: Option<Pair<'_>>) -> Outcome {
    let mut outcome = Outcome::default();
    let quoted = || go::quote(&path.to_string());
    let try_each = |nodes: &[Node]| nodes.iter().map(|node| check_node(node, value, path, pair)).collect::<Vec<_>>();
    if !node.any_of.is_empty() {
        match first_valid_or_best(try_each(&node.any_of)) {
            (0, best) => {
                outcome.whole(format!("{} must validate at least one schema (anyOf)", quoted()));
                outcome.merge(best);
            }
            (_, first) => outcome.merge(first),
        }
    }
    if !node.one_of.is_empty() {
        let (n_valid, kept) = first_valid_or_best(try_each(&node.one_of));
        if n_valid != 1 {
            let found = if n_valid == 0 { "none valid".to_owned() } else { format!("{n_valid} valid alternatives") };
            outcome.whole(format!("{} must validate one and only one schema (oneOf). Found {found}", quoted()));
        }
        if n_valid <= 1 {
            outcome.merge(kept);
        }
    }
    if !node.all_of.is_empty() {
        let mut n_valid = 0;
        for result in try_each(&node.all_of) {
            n_valid += usize::from(result.is_valid());
            outcome.merge(result);
        }
        if n_valid != node.all_of.len() {
            let none = if n_valid == 0 { ". None validated" } else { "" };
            outcome.whole(format!("{} must validate all the schemas (allOf){none}", quoted()));
        }
    }
    if let Some(not) = &node.not
        && check_node(not, value, path, pair).is_valid()
    {
        outcome.whole(format!("{} must not validate the schema (not)", quoted()));
    }
    outcome.n_passed += 1;
    outcome
}

/// How many are valid, and the first of these; or, if none is, the one that came furthest.
fn first_valid_or_best(results: Vec<Outcome>) -> (usize, Outcome) {
    let n_valid = results.iter().filter(|result| result.is_valid()).count();
    let mut kept: Option<Outcome> = None;
    for result in results {
        let is_better = match &kept {
            None => n_valid == 0 || result.is_valid(),
            Some(kept) => n_valid == 0 && result.n_passed > kept.n_passed,
        };
        if is_better {
            kept = Some(result);
        }
    }
    (n_valid, kept.unwrap_or_default())
}

fn check_text(node: &Node, text: &str, path: &Path<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    let limits = &node.text;
    if limits.min_length.is_none() && limits.max_length.is_none() && limits.pattern.is_none() {
        return outcome;
    }
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    if let Some(max) = limits.max_length.filter(|max| length > *max) {
        let message = format!("{path} in body should be at most {max} chars long");
        let bytes = if max == 1 { "byte" } else { "bytes" };
        let detail =
            if max >= 0 { format!("may not be more than {max} {bytes}") } else { "value is too long".to_owned() };
        outcome.field_saying(path, FieldErrorKind::TooLong, "", message, detail);
    } else if let Some(min) = limits.min_length.filter(|min| length < *min) {
        let message = format!("{path} in body should be at least {min} chars long");
        outcome.field(path, FieldErrorKind::Invalid, text, message);
    } else if let Some(pattern) = &limits.pattern
        && !pattern.regex.as_ref().is_some_and(|regex| regex.is_match(text))
    {
        let message = format!("{path} in body should match '{}'", pattern.source);
        outcome.field(path, FieldErrorKind::Invalid, text, message);
    }
    outcome
}

fn check_number(node: &Node, number: &Number, path: &Path<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    let limits = &node.number;
    let integer = number.as_i64();
    let float = number.as_f64().unwrap_or(f64::MAX);
    let (type_name, format) = match (&node.format, node.int_or_string, node.type_name.as_str()) {
        (Some(Format::Integer(format)), false, "integer") => ("integer", format.as_str()),
        (Some(Format::Number(format)), false, "number") => ("number", format.as_str()),
        (_, false, "integer") => ("integer", ""),
        (_, false, "number") => ("number", ""),
        _ => ("", ""),
    };
    let mut fits = |float: f64, integer: Option<i64>, what: &str| {
        let fits = match (type_name, format) {
            ("integer", "int32") => {
                go::to_integer(float, integer).is_some_and(|integer| i32::try_from(integer).is_ok())
            }
            ("integer", _) => go::to_integer(float, integer).is_some(),
            ("number", "float") => float.abs() <= f64::from(f32::MAX),
            _ => true,
        };
        if !fits {
            let kind = if format.is_empty() { "(default format)".to_owned() } else { format!("with format {format}") };
            outcome.whole(format!("{what} value must be of type {type_name} {kind} in {path}"));
        }
        fits
    };
    fits(float, integer, "Checked");
    let mut said = Vec::new();
    if let Some(factor) = limits.multiple_of {
        let compares_integers = fits(factor, None, "MultipleOf") && integer.is_some();
        let shown = shown_limit(factor, compares_integers);
        let is_multiple = match integer {
            #[expect(clippy::cast_possible_truncation, reason = "the server cuts limits off like this")]
            Some(integer) if compares_integers => {
                let factor = factor as i64;
                (factor > 0).then(|| integer % factor == 0)
            }
            _ => (factor > 0.0)
                .then(|| go::is_json_integer(if factor < 1.0 { 1.0 / factor * float } else { float / factor })),
        };
        match is_multiple {
            None => said.push((
                Value::from(factor),
                format!("factor MultipleOf declared for {path} must be positive: {shown}"),
            )),
            Some(false) => {
                said.push((Value::Number(number.clone()), format!("{path} in body should be a multiple of {shown}")))
            }
            Some(true) => {}
        }
    }
    let mut compare = |limit: f64, is_exclusive: bool, is_maximum: bool| {
        let what = if is_maximum { "Maximum boundary" } else { "Minimum boundary" };
        let compares_integers = fits(limit, None, what) && integer.is_some();
        let order = match integer {
            #[expect(clippy::cast_possible_truncation, reason = "the server cuts limits off like this")]
            Some(integer) if compares_integers => integer.cmp(&(limit as i64)),
            _ => float.total_cmp(&limit),
        };
        let is_beyond = (is_exclusive && order.is_eq()) || if is_maximum { order.is_gt() } else { order.is_lt() };
        if is_beyond {
            let than = match (is_maximum, is_exclusive) {
                (true, false) => "less than or equal to",
                (true, true) => "less than",
                (false, false) => "greater than or equal to",
                (false, true) => "greater than",
            };
            let shown = shown_limit(limit, compares_integers);
            said.push((Value::Number(number.clone()), format!("{path} in body should be {than} {shown}")));
        }
    };
    if let Some(minimum) = limits.minimum {
        compare(minimum, limits.exclusive_minimum, false);
    }
    if let Some(maximum) = limits.maximum {
        compare(maximum, limits.exclusive_maximum, true);
    }
    for (found, message) in said {
        outcome.field(path, FieldErrorKind::Invalid, found, message);
    }
    outcome.n_passed += 1;
    outcome
}

fn shown_limit(limit: f64, is_integer: bool) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "the server cuts limits off like this")]
    if is_integer { (limit as i64).to_string() } else { go::float(limit) }
}

fn check_items(node: &Node, items: &[Value], path: &Path<'_>, pair: Option<Pair<'_>>) -> Outcome {
    let mut outcome = Outcome::default();
    if let Some(item_node) = &node.items {
        for (idx, item) in items.iter().enumerate() {
            outcome.merge(validate_node(item_node, item, &path.item(idx), pair.and_then(|pair| pair.item(idx))));
        }
    }
    let n_items = i64::try_from(items.len()).unwrap_or(i64::MAX);
    if let Some(min) = node.min_items.filter(|min| n_items < *min) {
        let message = format!("{path} in body should have at least {min} items");
        outcome.field(path, FieldErrorKind::Invalid, n_items, message);
    }
    if let Some(max) = node.max_items.filter(|max| n_items > *max) {
        let message = format!("{path} in body should have at most {max} items");
        outcome.field_saying(path, FieldErrorKind::TooMany, n_items, message, at_most(max));
    }
    if node.unique_items && items.iter().enumerate().any(|(idx, item)| items.iter().take(idx).any(|seen| seen == item))
    {
        outcome.field(path, FieldErrorKind::Invalid, "", format!("{path} in body shouldn't contain duplicates"));
    }
    outcome.n_passed += 1;
    outcome
}

fn at_most(max: i64) -> String {
    match max {
        1 => "must have at most 1 item".to_owned(),
        max if max >= 0 => format!("must have at most {max} items"),
        _ => "has too many items".to_owned(),
    }
}

fn check_choices(node: &Node, value: &Value, path: &Path<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    if node.choices.is_empty() || node.choices.iter().any(|choice| is_same(choice, value)) {
        return outcome;
    }
    let listed: Vec<String> = node
        .choices
        .iter()
        .map(|choice| go::quote(&choice.as_str().map_or_else(|| choice.to_string(), str::to_owned)))
        .collect();
    let message = format!("{path} in body should be one of {:?}", node.choices);
    let detail = format!("supported values: {}", listed.join(", "));
    outcome.field_saying(path, FieldErrorKind::NotSupported, value.clone(), message, detail);
    outcome
}

/// Equal, with no difference between `1` and `1.0`.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (one, other) => one == other,
    }
}

fn check_members(
    node: &Node,
    members: &serde_json::Map<String, Value>,
    path: &Path<'_>,
    pair: Option<Pair<'_>>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let n_members = i64::try_from(members.len()).unwrap_or(i64::MAX);
    if let Some(min) = node.min_properties.filter(|min| n_members < *min) {
        let message = format!("{path} in body should have at least {min} properties");
        outcome.field(path, FieldErrorKind::Invalid, n_members, message);
    }
    if let Some(max) = node.max_properties.filter(|max| n_members > *max) {
        let message = format!("{path} in body should have at most {max} properties");
        outcome.field_saying(path, FieldErrorKind::TooMany, n_members, message, at_most(max));
    }
    let validate_member = |member_node: &Node, name: &str, member: &Value| {
        // What an object says of its own kind is the same before and after by the way it is read.
        let is_type_meta = path.is_root() && matches!(name, "apiVersion" | "kind");
        let pair = pair.filter(|_| !is_type_meta).and_then(|pair| pair.member(name));
        validate_node(member_node, member, &path.field(name), pair)
    };
    let others = members.iter().filter(|(name, _)| !node.properties.contains_key(*name));
    match &node.additional {
        Additional::Allowed(false) => {
            for (name, _) in others {
                let message = format!("{path}.{name} in body is a forbidden property");
                outcome.field(path, FieldErrorKind::Invalid, name.as_str(), message);
            }
        }
        Additional::Schema(additional) => {
            for (name, member) in others {
                outcome.merge(validate_member(additional, name, member));
            }
        }
        Additional::Allowed(true) | Additional::Unsaid => {}
    }
    for (name, property) in &node.properties {
        if let Some(member) = members.get(name) {
            outcome.merge(validate_member(property, name, member));
        }
    }
    for name in node.required.iter().filter(|name| !members.contains_key(*name)) {
        let path = path.field(name);
        let message = format!("{path} in body is required");
        outcome.field_saying(&path, FieldErrorKind::Required, Value::Null, message, String::new());
    }
    outcome
}
