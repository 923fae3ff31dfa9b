//! The functions on texts.

use std::cell::RefCell;
use std::collections::BTreeMap;

use regex::Regex;

use super::super::{go, pattern};
use super::eval::{EvalError, EvalResult, Run};
use super::value::V;

pub(super) fn call<'a>(run: &mut Run<'a, '_>, name: &str, is_member: bool, values: &[V<'a>]) -> Option<EvalResult<'a>> {
    if name == "join" {
        return join(values);
    }
    if name == "strings.quote" {
        let [V::Text(text)] = values else { return None };
        return Some(Ok(V::text(go::quote(text))));
    }
    let (V::Text(text), args) = values.split_first()? else { return None };
    if !is_member && name != "matches" {
        return None;
    }
    Some(match (name, args) {
        ("contains", [V::Text(part)]) => Ok(V::Bool(text.contains(&**part))),
        ("startsWith", [V::Text(part)]) => Ok(V::Bool(text.starts_with(&**part))),
        ("endsWith", [V::Text(part)]) => Ok(V::Bool(text.ends_with(&**part))),
        ("matches", [V::Text(source)]) => regex(source).map(|regex| V::Bool(regex.is_match(text))),
        ("find", [V::Text(source)]) => {
            regex(source).map(|regex| V::text(regex.find(text).map_or("", |found| found.as_str())))
        }
        ("findAll", [V::Text(source)]) => find_all(text, source, -1),
        ("findAll", [V::Text(source), V::Int(n_max)]) => find_all(text, source, *n_max),
        ("charAt", [V::Int(at)]) => char_at(text, *at),
        ("indexOf", [V::Text(part)]) => Ok(V::Int(index_of(text, part, 0))),
        ("indexOf", [V::Text(part), V::Int(from)]) => {
            bounded(text, *from).map(|from| V::Int(index_of(text, part, from)))
        }
        ("lastIndexOf", [V::Text(part)]) => Ok(V::Int(last_index_of(text, part, usize::MAX))),
        ("lastIndexOf", [V::Text(part), V::Int(until)]) => {
            bounded(text, *until).map(|until| V::Int(last_index_of(text, part, until)))
        }
        ("lowerAscii", []) => Ok(V::text(text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(V::text(text.to_ascii_uppercase())),
        ("trim", []) => Ok(V::text(text.trim())),
        ("replace", [V::Text(from), V::Text(to)]) => replaced(run, text, from, to, -1),
        ("replace", [V::Text(from), V::Text(to), V::Int(n_max)]) => replaced(run, text, from, to, *n_max),
        ("split", [V::Text(by)]) => Ok(split(text, by, -1)),
        ("split", [V::Text(by), V::Int(n_max)]) => Ok(split(text, by, *n_max)),
        ("substring", [V::Int(from)]) => substring(text, *from, None),
        ("substring", [V::Int(from), V::Int(until)]) => substring(text, *from, Some(*until)),
        _ => return None,
    })
}

/// The same few patterns are asked for again with every object.
fn regex(source: &str) -> Result<Regex, EvalError> {
    const KNOWN_MAX: usize = 256;
    thread_local! {
        static KNOWN: RefCell<BTreeMap<String, Regex>> = const { RefCell::new(BTreeMap::new()) };
    }
    KNOWN.with_borrow_mut(|known| {
        if let Some(regex) = known.get(source) {
            return Ok(regex.clone());
        }
        let regex = pattern::compile(source).map_err(EvalError::said)?;
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(source.to_owned(), regex.clone());
        Ok(regex)
    })
}

fn find_all<'a>(text: &str, source: &str, n_max: i64) -> EvalResult<'a> {
    let n_max = usize::try_from(n_max).unwrap_or(usize::MAX);
    Ok(V::list(regex(source)?.find_iter(text).take(n_max).map(|found| V::text(found.as_str())).collect()))
}

fn out_of_range(at: i64) -> EvalError {
    EvalError::said(format!("index out of range: {at}"))
}

fn bounded(text: &str, at: i64) -> Result<usize, EvalError> {
    usize::try_from(at).ok().filter(|at| *at <= text.chars().count()).ok_or_else(|| out_of_range(at))
}

fn char_at<'a>(text: &str, at: i64) -> EvalResult<'a> {
    let at = bounded(text, at)?;
    Ok(V::text(text.chars().nth(at).map(String::from).unwrap_or_default()))
}

/// Places are counted in characters.
fn index_of(text: &str, part: &str, from: usize) -> i64 {
    let start = text.char_indices().nth(from).map_or(text.len(), |(at, _)| at);
    let found = text.get(start..).and_then(|rest| rest.find(part)).and_then(|at| text.get(..start + at));
    found.map_or(-1, |before| i64::try_from(before.chars().count()).unwrap_or(i64::MAX))
}

fn last_index_of(text: &str, part: &str, until: usize) -> i64 {
    let places = text.char_indices().map(|(at, _)| at).chain([text.len()]).take(until.saturating_add(1));
    let starts: Vec<usize> = places.collect();
    let found = starts.iter().rposition(|at| text.get(*at..).is_some_and(|rest| rest.starts_with(part)));
    found.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1)
}

fn replaced<'a>(run: &mut Run<'a, '_>, text: &str, from: &str, to: &str, n_max: i64) -> EvalResult<'a> {
    // What comes out may be far longer than what went in.
    let n_places = text.matches(from).count();
    run.spend(n_places.saturating_mul(to.len()) / 10)?;
    Ok(match usize::try_from(n_max) {
        Ok(n_max) => V::text(text.replacen(from, to, n_max)),
        Err(_) => V::text(text.replace(from, to)),
    })
}

fn split<'a>(text: &str, by: &str, n_max: i64) -> V<'a> {
    let parts: Vec<String> = match (by, usize::try_from(n_max)) {
        (_, Ok(0)) => Vec::new(),
        ("", Err(_)) => text.chars().map(String::from).collect(),
        ("", Ok(n_max)) => {
            let mut parts: Vec<String> = text.chars().take(n_max - 1).map(String::from).collect();
            let rest: String = text.chars().skip(n_max - 1).collect();
            if !rest.is_empty() {
                parts.push(rest);
            }
            parts
        }
        (by, Ok(n_max)) => text.splitn(n_max, by).map(str::to_owned).collect(),
        (by, Err(_)) => text.split(by).map(str::to_owned).collect(),
    };
    V::list(parts.into_iter().map(V::text).collect())
}

fn substring<'a>(text: &str, from: i64, until: Option<i64>) -> EvalResult<'a> {
    let start = bounded(text, from)?;
    let end = until.map_or(Ok(usize::MAX), |until| bounded(text, until))?;
    if end < start {
        return Err(EvalError::said(format!(
            "invalid substring range. start: {from}, end: {}",
            until.unwrap_or_default()
        )));
    }
    Ok(V::text(text.chars().take(end).skip(start).collect::<String>()))
}

fn join<'a>(values: &[V<'a>]) -> Option<EvalResult<'a>> {
    let (list, by) = match values {
        [list] => (list, String::new()),
        [list, V::Text(by)] => (list, by.to_string()),
        _ => return None,
    };
    let items = match list.items()? {
        Ok(items) => items,
        Err(error) => return Some(Err(error)),
    };
    let texts: Option<Vec<String>> = items
        .iter()
        .map(|item| match item {
            V::Text(text) => Some(text.to_string()),
            _ => None,
        })
        .collect();
    Some(texts.map(|texts| V::text(texts.join(&by))).ok_or_else(|| EvalError::no_overload("join")))
}
