//! The functions of the language and of the libraries that API servers add, but for those that [`super::library`] has.

use std::collections::BTreeMap;
use std::rc::Rc;

use cel::IdedExpr;
use cel::common::ast::{Expr, operators};
use jiff::Timestamp;

use super::super::formats::go_duration_nanos;
use super::super::go;
use super::super::node::ListType;
use super::eval::{EvalError, EvalResult, Run};
use super::value::{Key, V};
use super::{library, lists, texts};

/// Names that are a place for functions rather than a value.
pub(super) fn is_namespace(space: &str, function: &str) -> bool {
    match space {
        "sets" => matches!(function, "contains" | "equivalent" | "intersects"),
        "strings" => function == "quote",
        "lists" => function == "range",
        "optional" => matches!(function, "of" | "none" | "ofNonZeroValue"),
        "ip" => function == "isCanonical",
        "format" => library::is_format(function),
        _ => false,
    }
}

/// Calls whose arguments are expressions about names of their own, beyond those that the parser rewrites.
pub(super) fn is_macro(name: &str, n_args: usize) -> bool {
    match name {
        "all" | "exists" | "existsOne" => n_args == 3,
        "transformList" | "transformMap" => matches!(n_args, 3 | 4),
        "transformMapEntry" => matches!(n_args, 3 | 4),
        "sortBy" | "optMap" | "optFlatMap" => n_args == 2,
        _ => false,
    }
}

/// The name that an argument of a macro introduces.
pub(super) fn introduced(expr: &IdedExpr) -> Option<&str> {
    match &expr.expr {
        Expr::Ident(name) => Some(name),
        _ => None,
    }
}

pub(super) fn expand_macro<'a>(
    run: &mut Run<'a, '_>,
    name: &str,
    target: &'a IdedExpr,
    args: &'a [IdedExpr],
) -> EvalResult<'a> {
    let bad = || EvalError::no_overload(name);
    let range = run.eval(target)?;
    if let ("optMap" | "optFlatMap", [variable, body]) = (name, args) {
        let V::Optional(inner) = range else { return Err(bad()) };
        let Some(inner) = inner else { return Ok(V::Optional(None)) };
        let value = run.eval_with(&[(introduced(variable).ok_or_else(bad)?, (*inner).clone())], body)?;
        return Ok(if name == "optMap" { V::some(value) } else { value });
    }
    if let ("sortBy", [variable, body]) = (name, args) {
        let variable = introduced(variable).ok_or_else(bad)?;
        let mut keyed = Vec::new();
        for item in range.items().ok_or_else(bad)?? {
            keyed.push((run.eval_with(&[(variable, item.clone())], body)?, item));
        }
        return sorted(keyed);
    }
    let [first, second, rest @ ..] = args else { return Err(bad()) };
    let (first, second) = (introduced(first).ok_or_else(bad)?, introduced(second).ok_or_else(bad)?);
    let pairs = pairs_of(&range).ok_or_else(bad)??;
    match (name, rest) {
        ("all" | "exists", [condition]) => {
            let settles = name == "exists";
            let mut error = None;
            for (key, value) in pairs {
                match run.eval_with(&[(first, key), (second, value)], condition) {
                    Ok(V::Bool(holds)) if holds == settles => return Ok(V::Bool(settles)),
                    Ok(V::Bool(_)) => {}
                    Ok(_) => return Err(bad()),
                    Err(EvalError::TooCostly) => return Err(EvalError::TooCostly),
                    Err(said) => {
                        error.get_or_insert(said);
                    }
                }
            }
            error.map_or(Ok(V::Bool(!settles)), Err)
        }
        ("existsOne", [condition]) => {
            let mut n_found = 0;
            for (key, value) in pairs {
                if let V::Bool(true) = run.eval_with(&[(first, key), (second, value)], condition)? {
                    n_found += 1;
                }
            }
            Ok(V::Bool(n_found == 1))
        }
        (_, [conditions @ .., body]) => {
            let mut items = Vec::new();
            let mut entries = BTreeMap::new();
            for (key, value) in pairs {
                let names = [(first, key.clone()), (second, value)];
                if let [condition] = conditions
                    && !matches!(run.eval_with(&names, condition)?, V::Bool(true))
                {
                    continue;
                }
                let made = run.eval_with(&names, body)?;
                match name {
                    "transformList" => items.push(made),
                    "transformMap" => {
                        entries.insert(Key::of(&key).ok_or_else(bad)?, made);
                    }
                    _ => {
                        for key in made.keys().ok_or_else(bad)? {
                            let value = made.entry(&key).ok_or_else(bad)??;
                            if entries.insert(Key::of(&key).ok_or_else(bad)?, value).is_some() {
                                return Err(EvalError::said("insert failed: key already exists"));
                            }
                        }
                    }
                }
            }
            Ok(if name == "transformList" { V::list(items) } else { V::Map(Rc::new(entries)) })
        }
        _ => Err(bad()),
    }
}

/// Index and item, or key and value.
fn pairs_of<'a>(range: &V<'a>) -> Option<Result<Vec<(V<'a>, V<'a>)>, EvalError>> {
    if let Some(items) = range.items() {
        let numbered = |items: Vec<V<'a>>| (0_i64..).zip(items).map(|(idx, item)| (V::Int(idx), item)).collect();
        return Some(items.map(numbered));
    }
    let pair = |key: V<'a>| Some(range.entry(&key)?.map(|value| (key, value)));
    Some(range.keys()?.into_iter().filter_map(pair).collect())
}

fn sorted<'a>(mut keyed: Vec<(V<'a>, V<'a>)>) -> EvalResult<'a> {
    let is_sortable = keyed.iter().zip(keyed.iter().skip(1)).all(|((one, _), (other, _))| one.compare(other).is_some());
    if !is_sortable {
        return Err(EvalError::said("list elements must be comparable"));
    }
    keyed.sort_by(|(one, _), (other, _)| one.compare(other).unwrap_or(std::cmp::Ordering::Equal));
    Ok(V::list(keyed.into_iter().map(|(_, item)| item).collect()))
}

/// Calls a function on values. For a call on a value, that value is the first.
pub(super) fn call<'a>(run: &mut Run<'a, '_>, name: &str, is_member: bool, values: Vec<V<'a>>) -> EvalResult<'a> {
    // Long texts and lists cost by their length, so that small steps over them cannot add up unseen.
    let n_read: usize = values
        .iter()
        .map(|value| match value {
            V::Text(text) => text.len() / 10,
            value => value.size().unwrap_or_default() / 10,
        })
        .sum();
    run.spend(n_read)?;
    if matches!(name, operators::EQUALS | operators::NOT_EQUALS | operators::IN) {
        run.spend(comparison_steps(&values))?;
    }
    match operator(name, &values) {
        Some(result) => result,
        None => named(run, name, is_member, values),
    }
}

/// What comparing may take: lists without an order are compared each with each.
fn comparison_steps(values: &[V<'_>]) -> usize {
    let is_unordered = |value: &V<'_>| matches!(value, V::Json(_, node) if node.list != ListType::Atomic);
    let size = values.iter().filter_map(V::size).max().unwrap_or_default();
    if values.iter().any(is_unordered) { size.saturating_mul(size) } else { size }
}

pub(super) fn operator<'a>(name: &str, values: &[V<'a>]) -> Option<EvalResult<'a>> {
    let none = || Err(EvalError::no_overload(name));
    Some(match (name, values) {
        (operators::EQUALS, [one, other]) => Ok(V::Bool(one.equals(other))),
        (operators::NOT_EQUALS, [one, other]) => Ok(V::Bool(!one.equals(other))),
        (operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS, [one, other]) => {
            match one.compare(other) {
                Some(order) => Ok(V::Bool(match name {
                    operators::LESS => order.is_lt(),
                    operators::LESS_EQUALS => order.is_le(),
                    operators::GREATER => order.is_gt(),
                    _ => order.is_ge(),
                })),
                None if matches!((one, other), (V::Double(_), _) | (_, V::Double(_))) => Ok(V::Bool(false)),
                None => none(),
            }
        }
        (operators::IN, [item, container]) => match (container.items(), container) {
            (Some(items), _) => items.map(|items| V::Bool(items.iter().any(|known| known.equals(item)))),
            (None, container) if container.keys().is_some() => Ok(V::Bool(container.entry(item).is_some())),
            _ => none(),
        },
        (operators::LOGICAL_NOT, [V::Bool(value)]) => Ok(V::Bool(!value)),
        (operators::NEGATE, [V::Int(value)]) => value.checked_neg().map(V::Int).ok_or_else(overflow),
        (operators::NEGATE, [V::Double(value)]) => Ok(V::Double(-value)),
        (operators::NEGATE, [V::Duration(value)]) => value.checked_neg().map(V::Duration).ok_or_else(overflow),
        (operators::INDEX, [container, index]) => indexed(container, index),
        (operators::OPT_INDEX, [container, index]) => {
            let found = match container {
                V::Optional(None) => None,
                V::Optional(Some(inner)) => indexed(inner, index).ok(),
                container => indexed(container, index).ok(),
            };
            Ok(found.map_or(V::Optional(None), V::some))
        }
        (operators::ADD, [one, other]) => added(one, other),
        (operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO, [one, other]) => {
            arithmetic(name, one, other)
        }
        _ => return None,
    })
}

fn overflow() -> EvalError {
    EvalError::said("integer overflow")
}

fn indexed<'a>(container: &V<'a>, index: &V<'a>) -> EvalResult<'a> {
    if let V::Optional(inner) = container {
        let found = inner.as_ref().and_then(|inner| indexed(inner, index).ok());
        return Ok(found.map_or(V::Optional(None), V::some));
    }
    if container.keys().is_some() {
        return container
            .entry(index)
            .unwrap_or_else(|| Err(EvalError::said(format!("no such key: {}", shown(index)))));
    }
    let Some(items) = container.items() else { return Err(EvalError::no_overload("_[_]")) };
    let place = match index {
        V::Int(idx) => *idx,
        V::Uint(idx) => i64::try_from(*idx).unwrap_or(i64::MAX),
        V::Double(idx) => go::to_integer(*idx, None).ok_or_else(|| EvalError::said("invalid index"))?,
        _ => return Err(EvalError::no_overload("_[_]")),
    };
    usize::try_from(place)
        .ok()
        .and_then(|idx| items.as_ref().ok()?.get(idx).cloned())
        .ok_or_else(|| EvalError::said(format!("index out of bounds: {place}")))
}

fn shown(value: &V<'_>) -> String {
    match value {
        V::Text(text) => text.to_string(),
        V::Int(value) => value.to_string(),
        V::Uint(value) => value.to_string(),
        V::Bool(value) => value.to_string(),
        V::Double(value) => go::float(*value),
        _ => value.type_name().to_owned(),
    }
}

fn added<'a>(one: &V<'a>, other: &V<'a>) -> EvalResult<'a> {
    Ok(match (one, other) {
        (V::Int(one), V::Int(other)) => V::Int(one.checked_add(*other).ok_or_else(overflow)?),
        (V::Uint(one), V::Uint(other)) => {
            V::Uint(one.checked_add(*other).ok_or_else(|| EvalError::said("unsigned integer overflow"))?)
        }
        (V::Double(one), V::Double(other)) => V::Double(one + other),
        (V::Text(one), V::Text(other)) => V::text(format!("{}{}", &**one, &**other)),
        (V::Bytes(one), V::Bytes(other)) => V::Bytes(Rc::from([&**one, &**other].concat())),
        (V::Duration(one), V::Duration(other)) => V::Duration(one.checked_add(*other).ok_or_else(overflow)?),
        (V::Timestamp(at), V::Duration(nanos)) | (V::Duration(nanos), V::Timestamp(at)) => moved(*at, *nanos)?,
        _ => {
            let (Some(items), Some(others)) = (one.items(), other.items()) else {
                return Err(EvalError::no_overload("_+_"));
            };
            let (mut items, others) = (items?, others?);
            match one {
                // Sets and maps are joined: what is there already stays, or is replaced by what has the same keys.
                V::Json(_, node) if node.list == ListType::Set => {
                    for item in others {
                        if !items.iter().any(|known| known.equals(&item)) {
                            items.push(item);
                        }
                    }
                }
                V::Json(_, node) if node.list != ListType::Atomic => {
                    let ListType::Map(keys) = &node.list else { return Err(EvalError::no_overload("_+_")) };
                    let key_of = |item: &V<'a>| keys.iter().map(|key| item.field(key)?.ok()).collect::<Vec<_>>();
                    let is_same = |one: &[Option<V<'a>>], other: &[Option<V<'a>>]| {
                        one.iter().zip(other).all(|(one, other)| match (one, other) {
                            (Some(one), Some(other)) => one.equals(other),
                            (None, None) => true,
                            _ => false,
                        })
                    };
                    for item in others {
                        let key = key_of(&item);
                        match items.iter().position(|known| is_same(&key_of(known), &key)) {
                            Some(idx) => {
                                if let Some(place) = items.get_mut(idx) {
                                    *place = item;
                                }
                            }
                            None => items.push(item),
                        }
                    }
                }
                _ => items.extend(others),
            }
            V::list(items)
        }
    })
}

fn moved<'a>(at: Timestamp, nanos: i64) -> EvalResult<'a> {
    at.checked_add(jiff::SignedDuration::from_nanos(nanos))
        .map(V::Timestamp)
        .map_err(|_| EvalError::said("timestamp overflow"))
}

fn arithmetic<'a>(name: &str, one: &V<'a>, other: &V<'a>) -> EvalResult<'a> {
    match (one, other) {
        (V::Int(one), V::Int(other)) => match name {
            operators::SUBSTRACT => one.checked_sub(*other).ok_or_else(overflow),
            operators::MULTIPLY => one.checked_mul(*other).ok_or_else(overflow),
            _ if *other == 0 && name == operators::DIVIDE => Err(EvalError::said("division by zero")),
            _ if *other == 0 => Err(EvalError::said("modulus by zero")),
            operators::DIVIDE => one.checked_div(*other).ok_or_else(overflow),
            _ => one.checked_rem(*other).ok_or_else(overflow),
        }
        .map(V::Int),
        (V::Uint(one), V::Uint(other)) => {
            let overflow = || EvalError::said("unsigned integer overflow");
            match name {
                operators::SUBSTRACT => one.checked_sub(*other).ok_or_else(overflow),
                operators::MULTIPLY => one.checked_mul(*other).ok_or_else(overflow),
                operators::DIVIDE => one.checked_div(*other).ok_or_else(|| EvalError::said("division by zero")),
                _ => one.checked_rem(*other).ok_or_else(|| EvalError::said("modulus by zero")),
            }
            .map(V::Uint)
        }
        (V::Double(one), V::Double(other)) => match name {
            operators::SUBSTRACT => Ok(V::Double(one - other)),
            operators::MULTIPLY => Ok(V::Double(one * other)),
            operators::DIVIDE => Ok(V::Double(one / other)),
            _ => Err(EvalError::no_overload(name)),
        },
        (V::Duration(one), V::Duration(other)) if name == operators::SUBSTRACT => {
            one.checked_sub(*other).map(V::Duration).ok_or_else(overflow)
        }
        (V::Timestamp(at), V::Duration(nanos)) if name == operators::SUBSTRACT => {
            moved(*at, nanos.checked_neg().ok_or_else(overflow)?)
        }
        (V::Timestamp(one), V::Timestamp(other)) if name == operators::SUBSTRACT => {
            i64::try_from(one.as_nanosecond() - other.as_nanosecond()).map(V::Duration).map_err(|_| overflow())
        }
        _ => Err(EvalError::no_overload(name)),
    }
}

fn named<'a>(run: &mut Run<'a, '_>, name: &str, is_member: bool, values: Vec<V<'a>>) -> EvalResult<'a> {
    if let Some(result) = conversion(name, is_member, &values) {
        return result;
    }
    if let Some(result) = texts::call(run, name, is_member, &values) {
        return result;
    }
    if let Some(result) = lists::call(name, &values) {
        return result;
    }
    if let Some(result) = time_part(name, &values) {
        return result;
    }
    match (name, values.as_slice()) {
        ("size", [value]) => match value.size() {
            Some(size) => Ok(V::Int(i64::try_from(size).unwrap_or(i64::MAX))),
            None => library::call(name, is_member, values),
        },
        ("optional.of", [value]) => Ok(V::some(value.clone())),
        ("optional.none", []) => Ok(V::Optional(None)),
        ("optional.ofNonZeroValue", [value]) => {
            Ok(if is_zero(value) { V::Optional(None) } else { V::some(value.clone()) })
        }
        ("hasValue", [V::Optional(inner)]) => Ok(V::Bool(inner.is_some())),
        ("value", [V::Optional(inner)]) => {
            inner.as_deref().cloned().ok_or_else(|| EvalError::said("optional.none() dereference"))
        }
        ("orValue", [V::Optional(inner), other]) => Ok(inner.as_deref().unwrap_or(other).clone()),
        ("or", [V::Optional(inner), other]) => {
            Ok(if inner.is_some() { V::Optional(inner.clone()) } else { other.clone() })
        }
        _ => library::call(name, is_member, values),
    }
}

fn is_zero(value: &V<'_>) -> bool {
    match value {
        V::Null | V::Optional(None) => true,
        V::Bool(value) => !value,
        V::Int(value) => *value == 0,
        V::Uint(value) => *value == 0,
        V::Double(value) => *value == 0.0,
        V::Duration(value) => *value == 0,
        value => value.size() == Some(0),
    }
}

fn conversion<'a>(name: &str, is_member: bool, values: &[V<'a>]) -> Option<EvalResult<'a>> {
    let [value] = values else { return None };
    if is_member {
        return None;
    }
    let bad = |text: &str| Err(EvalError::said(format!("type conversion error from 'string' to '{text}'")));
    Some(match (name, value) {
        ("dyn", value) => Ok(value.clone()),
        ("type", value) => Ok(V::Type(Rc::from(value.type_name()))),
        ("int", V::Int(_))
        | ("uint", V::Uint(_))
        | ("double", V::Double(_))
        | ("string", V::Text(_))
        | ("bool", V::Bool(_))
        | ("bytes", V::Bytes(_))
        | ("duration", V::Duration(_))
        | ("timestamp", V::Timestamp(_)) => Ok(value.clone()),
        ("int", V::Uint(value)) => i64::try_from(*value).map(V::Int).map_err(|_| overflow()),
        #[expect(clippy::cast_possible_truncation, reason = "the range has just been checked")]
        ("int", V::Double(value)) if value.is_finite() && value.abs() < 9.2e18 => Ok(V::Int(*value as i64)),
        ("int", V::Double(_)) => Err(overflow()),
        ("int", V::Text(text)) => match text.parse::<i64>() {
            Ok(value) if !text.starts_with('+') => Ok(V::Int(value)),
            _ => text
                .strip_prefix('+')
                .and_then(|digits| digits.parse().ok())
                .map_or_else(|| bad("int"), |n| Ok(V::Int(n))),
        },
        ("int", V::Timestamp(at)) => Ok(V::Int(at.as_second())),
        ("int", V::Duration(nanos)) => Ok(V::Int(*nanos)),
        ("uint", V::Int(value)) => {
            u64::try_from(*value).map(V::Uint).map_err(|_| EvalError::said("unsigned integer overflow"))
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range has just been checked")]
        ("uint", V::Double(value)) if *value >= 0.0 && *value < 1.8e19 => Ok(V::Uint(*value as u64)),
        ("uint", V::Double(_)) => Err(EvalError::said("unsigned integer overflow")),
        ("uint", V::Text(text)) => text.parse().map_or_else(|_| bad("uint"), |value| Ok(V::Uint(value))),
        #[expect(clippy::cast_precision_loss, reason = "that is what a conversion to a float is")]
        ("double", V::Int(value)) => Ok(V::Double(*value as f64)),
        #[expect(clippy::cast_precision_loss, reason = "that is what a conversion to a float is")]
        ("double", V::Uint(value)) => Ok(V::Double(*value as f64)),
        ("double", V::Text(text)) => text.parse().map_or_else(|_| bad("double"), |value| Ok(V::Double(value))),
        ("string", V::Int(_) | V::Uint(_) | V::Bool(_) | V::Double(_)) => Ok(V::text(shown(value))),
        ("string", V::Bytes(bytes)) => std::str::from_utf8(bytes)
            .map(V::text)
            .map_err(|_| EvalError::said("invalid UTF-8 in bytes, cannot convert to string")),
        ("string", V::Timestamp(at)) => Ok(V::text(at.to_string())),
        ("string", V::Duration(nanos)) => Ok(V::text(duration_text(*nanos))),
        ("bytes", V::Text(text)) => Ok(V::Bytes(Rc::from(text.as_bytes()))),
        ("bool", V::Text(text)) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(V::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(V::Bool(false)),
            _ => bad("bool"),
        },
        ("duration", V::Text(text)) => {
            go_duration_nanos(text).map(V::Duration).map_or_else(|| bad("google.protobuf.Duration"), Ok)
        }
        ("duration", V::Int(nanos)) => Ok(V::Duration(*nanos)),
        ("timestamp", V::Text(text)) => text.parse().map(V::Timestamp).or_else(|_| bad("google.protobuf.Timestamp")),
        ("timestamp", V::Int(seconds)) => {
            Timestamp::from_second(*seconds).map(V::Timestamp).map_err(|_| EvalError::said("timestamp overflow"))
        }
        _ => return None,
    })
}

/// Seconds, with as many digits after the point as there are: `5400s`, `1.5s`.
pub(super) fn duration_text(nanos: i64) -> String {
    let (seconds, rest) = (nanos / 1_000_000_000, (nanos % 1_000_000_000).unsigned_abs());
    if rest == 0 {
        return format!("{seconds}s");
    }
    let sign = if nanos < 0 && seconds == 0 { "-" } else { "" };
    format!("{sign}{seconds}.{}s", format!("{rest:09}").trim_end_matches('0'))
}

fn time_part<'a>(name: &str, values: &[V<'a>]) -> Option<EvalResult<'a>> {
    const MILLIS: i64 = 1_000_000;
    if let [V::Duration(nanos)] = values {
        return Some(Ok(V::Int(match name {
            "getHours" => nanos / (3_600_000 * MILLIS),
            "getMinutes" => nanos / (60_000 * MILLIS),
            "getSeconds" => nanos / (1_000 * MILLIS),
            "getMilliseconds" => nanos / MILLIS % 1_000,
            _ => return None,
        })));
    }
    let (at, zone) = match values {
        [V::Timestamp(at)] => (at, "UTC"),
        [V::Timestamp(at), V::Text(zone)] => (at, &**zone),
        _ => return None,
    };
    let Some(zone) = zone_of(zone) else {
        return Some(Err(EvalError::said(format!("unknown time zone {zone}"))));
    };
    let local = at.to_zoned(zone);
    Some(Ok(V::Int(i64::from(match name {
        "getFullYear" => local.year(),
        "getMonth" => i16::from(local.month()) - 1,
        "getDate" => i16::from(local.day()),
        "getDayOfMonth" => i16::from(local.day()) - 1,
        "getDayOfWeek" => i16::from(local.weekday().to_sunday_zero_offset()),
        "getDayOfYear" => local.day_of_year() - 1,
        "getHours" => i16::from(local.hour()),
        "getMinutes" => i16::from(local.minute()),
        "getSeconds" => i16::from(local.second()),
        "getMilliseconds" => local.millisecond(),
        _ => return None,
    }))))
}

fn zone_of(name: &str) -> Option<jiff::tz::TimeZone> {
    if matches!(name, "UTC" | "" | "Z") {
        return Some(jiff::tz::TimeZone::UTC);
    }
    if let Some((hours, minutes)) = name.split_once(':') {
        let hours: i32 = hours.parse().ok()?;
        let minutes: i32 = minutes.parse().ok()?;
        let sign = if name.starts_with('-') { -1 } else { 1 };
        let seconds = hours.checked_mul(3_600)?.checked_add(minutes.checked_mul(60 * sign)?)?;
        return jiff::tz::Offset::from_seconds(seconds).ok().map(jiff::tz::Offset::to_time_zone);
    }
    jiff::tz::TimeZone::get(name).ok()
}
