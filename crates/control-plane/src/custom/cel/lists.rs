//! The functions on lists.

use std::cmp::Ordering;

use cel::common::ast::operators;

use super::eval::{EvalError, EvalResult};
use super::value::V;

pub(super) fn call<'a>(name: &str, values: &[V<'a>]) -> Option<EvalResult<'a>> {
    if let ("lists.range", [V::Int(n)]) = (name, values) {
        return Some(range(*n));
    }
    let (first, args) = values.split_first()?;
    let items = match first.items()? {
        Ok(items) => items,
        Err(error) => return Some(Err(error)),
    };
    let count = |n: usize| V::Int(i64::try_from(n).unwrap_or(i64::MAX));
    Some(match (name, args) {
        ("isSorted", []) => items
            .iter()
            .zip(items.iter().skip(1))
            .try_fold(true, |is_sorted, (one, other)| one.compare(other).map(|order| is_sorted && order.is_le()))
            .map(V::Bool)
            .ok_or_else(|| EvalError::no_overload(name)),
        ("sum", []) => sum(&items),
        ("min", []) => extreme(name, items, Ordering::Less),
        ("max", []) => extreme(name, items, Ordering::Greater),
        ("indexOf", [wanted]) => Ok(items.iter().position(|item| item.equals(wanted)).map_or(V::Int(-1), count)),
        ("lastIndexOf", [wanted]) => Ok(items.iter().rposition(|item| item.equals(wanted)).map_or(V::Int(-1), count)),
        ("distinct", []) => {
            let mut kept: Vec<V<'a>> = Vec::new();
            for item in items {
                if !kept.iter().any(|known| known.equals(&item)) {
                    kept.push(item);
                }
            }
            Ok(V::list(kept))
        }
        ("reverse", []) => Ok(V::list(items.into_iter().rev().collect())),
        ("first", []) => Ok(items.into_iter().next().map_or(V::Optional(None), V::some)),
        ("last", []) => Ok(items.into_iter().next_back().map_or(V::Optional(None), V::some)),
        ("flatten", []) => flatten(items, 1),
        ("flatten", [V::Int(depth)]) if *depth < 0 => Err(EvalError::said("level must be non-negative")),
        ("flatten", [V::Int(depth)]) => flatten(items, *depth),
        ("slice", [V::Int(from), V::Int(until)]) => slice(&items, *from, *until),
        ("sort", []) => {
            let is_sortable = items.iter().zip(items.iter().skip(1)).all(|(one, other)| one.compare(other).is_some());
            if !is_sortable {
                return Some(Err(EvalError::said("list elements must have the same type")));
            }
            let mut items = items;
            items.sort_by(|one, other| one.compare(other).unwrap_or(Ordering::Equal));
            Ok(V::list(items))
        }
        ("sets.contains" | "sets.equivalent" | "sets.intersects", [other]) => {
            let others = match other.items()? {
                Ok(others) => others,
                Err(error) => return Some(Err(error)),
            };
            let holds = |items: &[V<'a>], wanted: &V<'a>| items.iter().any(|item| item.equals(wanted));
            let covers = |items: &[V<'a>], others: &[V<'a>]| others.iter().all(|other| holds(items, other));
            Ok(V::Bool(match name {
                "sets.contains" => covers(&items, &others),
                "sets.equivalent" => covers(&items, &others) && covers(&others, &items),
                _ => others.iter().any(|other| holds(&items, other)),
            }))
        }
        _ => return None,
    })
}

fn range<'a>(n: i64) -> EvalResult<'a> {
    const N_MAX: i64 = 100_000;
    if n > N_MAX {
        return Err(EvalError::TooCostly);
    }
    Ok(V::list((0..n).map(V::Int).collect()))
}

fn sum<'a>(items: &[V<'a>]) -> EvalResult<'a> {
    let Some((first, rest)) = items.split_first() else { return Ok(V::Int(0)) };
    rest.iter().try_fold(first.clone(), |sum, item| {
        super::functions::operator(operators::ADD, &[sum, item.clone()])
            .unwrap_or_else(|| Err(EvalError::no_overload("sum")))
    })
}

fn extreme<'a>(name: &str, items: Vec<V<'a>>, wanted: Ordering) -> EvalResult<'a> {
    let mut items = items.into_iter();
    let Some(mut best) = items.next() else {
        return Err(EvalError::said(format!("{name} called on empty list")));
    };
    for item in items {
        match item.compare(&best) {
            Some(order) if order == wanted => best = item,
            Some(_) => {}
            None => return Err(EvalError::no_overload(name)),
        }
    }
    Ok(best)
}

fn flatten<'a>(items: Vec<V<'a>>, depth: i64) -> EvalResult<'a> {
    let mut items = items;
    for _ in 0..depth {
        let mut flat = Vec::new();
        let mut has_changed = false;
        for item in items {
            match item.items() {
                Some(inner) => {
                    has_changed = true;
                    flat.extend(inner?);
                }
                None => flat.push(item),
            }
        }
        items = flat;
        if !has_changed {
            break;
        }
    }
    Ok(V::list(items))
}

fn slice<'a>(items: &[V<'a>], from: i64, until: i64) -> EvalResult<'a> {
    if from < 0 || until < 0 {
        return Err(EvalError::said(format!("cannot slice({from}, {until}), negative indexes not supported")));
    }
    if from > until {
        return Err(EvalError::said(format!(
            "cannot slice({from}, {until}), start index must be less than or equal to end index"
        )));
    }
    let range = usize::try_from(from).ok().zip(usize::try_from(until).ok());
    let found = range.and_then(|(from, until)| items.get(from..until));
    found
        .map(|items| V::list(items.to_vec()))
        .ok_or_else(|| EvalError::said(format!("cannot slice({from}, {until}), list is length {}", items.len())))
}
