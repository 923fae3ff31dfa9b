//! Strategic merge patch: the shape says which lists merge and by which key, directives in the patch say what else to do.
//!
//! `$patch: replace|delete`, `$retainKeys: [..]`, `$setElementOrder/<list>: [..]`, `$deleteFromPrimitiveList/<list>: [..]`.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::schema::{Schema, Shape, go};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";

pub(super) fn apply(schema: &Schema, target: &Value, patch: &Value) -> Result<Value, ApiError> {
    let (Value::Object(original), Value::Object(patch)) = (target, patch) else {
        return Err(ApiError::bad_request("invalid JSON document"));
    };
    merge_object(Some(schema), original.clone(), patch.clone()).map(Value::Object)
}

/// The real server does not explain these by a code of their own.
fn failed(message: String) -> ApiError {
    ApiError::new(500, "", message)
}

fn merge_object(
    schema: Option<&Schema>,
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
) -> Result<Map<String, Value>, ApiError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(directive, &patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    let ordered: Vec<String> = patch.keys().filter(|key| key.starts_with(ORDER)).cloned().collect();
    for key in ordered {
        let order = patch.remove(&key).unwrap_or(Value::Null);
        merge_in_order(schema, &mut original, &mut patch, &key, &order)?;
    }
    for (key, value) in patch {
        if key.starts_with(DELETE_FROM) {
            delete_from(&mut original, &key, value)?;
        } else {
            merge_field(schema, &mut original, key, value)?;
        }
    }
    Ok(original)
}

fn merge_field(
    schema: Option<&Schema>,
    original: &mut Map<String, Value>,
    key: String,
    value: Value,
) -> Result<(), ApiError> {
    if value.is_null() {
        original.remove(&key);
        return Ok(());
    }
    let child = schema.and_then(|schema| schema.field(&key));
    match (original.remove(&key), value) {
        (Some(Value::Object(before)), Value::Object(patch)) => {
            let merged = if is_replaced(schema, &key) { patch } else { merge_object(child, before, patch)? };
            original.insert(key, Value::Object(merged));
        }
        (Some(Value::Array(before)), Value::Array(patch)) => {
            let merged = match child.and_then(Schema::merge_key) {
                Some(merge_key) => merge_list(child, before, patch, merge_key)?,
                None => patch,
            };
            original.insert(key, Value::Array(merged));
        }
        (_, mut value) => {
            discard_nulls(&mut value);
            if let Some(value) = without_directives(value) {
                original.insert(key, value);
            }
        }
    }
    Ok(())
}

/// The patch names every field that may stay.
fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), ApiError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let wrong = || ApiError::bad_request("invalid patch format of retainKeys");
    let Value::Array(keys) = keys else {
        return Err(wrong());
    };
    let is_retained = |name: &str| keys.iter().any(|key| key == name);
    let is_directive = |name: &str| name.starts_with(DELETE_FROM) || name.starts_with(ORDER);
    if patch.iter().any(|(name, value)| !value.is_null() && !is_directive(name) && !is_retained(name)) {
        return Err(wrong());
    }
    original.retain(|name, _| is_retained(name));
    Ok(())
}

fn merge_in_order(
    schema: Option<&Schema>,
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    directive: &str,
    order: &Value,
) -> Result<(), ApiError> {
    let Value::Array(order) = order else {
        return Err(not_a_list(order));
    };
    let Some((ORDER, key)) = directive.split_once('/') else {
        return Err(ApiError::bad_request("invalid patch format of setElementOrder list"));
    };
    let before = as_list(original.get(key))?;
    let change = as_list(patch.get(key))?;
    let list = schema.and_then(|schema| schema.field(key));
    let merge_key = list.and_then(Schema::merge_key);
    let by = merge_key.unwrap_or_default();
    check_order(change.as_deref().unwrap_or_default(), order, by)?;
    let merged = match (&before, change) {
        (None, None) => return Ok(()),
        (Some(before), None) => before.clone(),
        (None, Some(change)) => change.into_iter().filter_map(without_directives).collect(),
        (Some(before), Some(change)) if merge_key.is_some() => merge_list(list, before.clone(), change, by)?,
        (Some(_), Some(change)) => change,
    };
    let (asked, others) = partition(merged, order, by)?;
    let ordered = put_in_order(asked, others, order, before.as_deref().unwrap_or_default(), by)?;
    original.insert(key.to_owned(), Value::Array(ordered));
    patch.remove(key);
    Ok(())
}

fn as_list(value: Option<&Value>) -> Result<Option<Vec<Value>>, ApiError> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items.clone())),
        Some(other) => Err(not_a_list(other)),
    }
}

fn not_a_list(value: &Value) -> ApiError {
    failed(format!("expected a []interface {{}}, but received a {}", go::type_of(value)))
}

/// The items of a patch stand in the order that the patch itself asks for.
fn check_order(change: &[Value], order: &[Value], by: &str) -> Result<(), ApiError> {
    if order.is_empty() || change.is_empty() {
        return Ok(());
    }
    let mut places = order.iter();
    for item in change.iter().filter(|item| by.is_empty() || item.get(DIRECTIVE).is_none()) {
        loop {
            let Some(place) = places.next() else {
                let (change, order) = (Value::from(change), Value::from(order));
                return Err(failed(format!(
                    "The order in patch list:\n{}\n doesn't match {ORDER} list:\n{}\n",
                    go::show(&change),
                    go::show(&order)
                )));
            };
            if same_key(item, place, by)? {
                break;
            }
        }
    }
    Ok(())
}

fn same_key(left: &Value, right: &Value, by: &str) -> Result<bool, ApiError> {
    if by.is_empty() { Ok(left == right) } else { Ok(key_of(left, by)? == key_of(right, by)?) }
}

fn key_of<'a>(item: &'a Value, by: &str) -> Result<&'a Value, ApiError> {
    let Value::Object(fields) = item else {
        return Err(failed(format!("expected a map[string]interface {{}}, but received a {}", go::type_of(item))));
    };
    fields.get(by).ok_or_else(|| failed(format!("map: {} does not contain declared merge key: {by}", go::show(item))))
}

fn merge_list(
    schema: Option<&Schema>,
    before: Vec<Value>,
    change: Vec<Value>,
    by: &str,
) -> Result<Vec<Value>, ApiError> {
    if before.is_empty() && change.is_empty() {
        return Ok(before);
    }
    let of_objects = one_sort(&before, &change)?;
    if !of_objects {
        let mut merged: Vec<Value> = Vec::new();
        for item in before.iter().chain(&change) {
            if !merged.contains(item) {
                merged.push(item.clone());
            }
        }
        let (asked, others) = partition(merged, &change, "")?;
        return put_in_order(asked, others, &change, &before, "");
    }
    if by.is_empty() {
        return Err(failed("cannot merge lists without merge key for ".to_owned()));
    }
    let (before, change) = special_items(before, change, by)?;
    let server_order = before.clone();
    let item_schema = schema.and_then(Schema::item);
    let mut merged = before;
    for item in &change {
        let key = key_of(item, by)?;
        let at = merged.iter().position(|other| other.get(by) == Some(key));
        match (at.and_then(|at| merged.get_mut(at)), item) {
            (Some(found), Value::Object(patch)) => {
                let original = match found.take() {
                    Value::Object(original) => original,
                    _ => Map::new(),
                };
                *found = Value::Object(merge_object(item_schema, original, patch.clone())?);
            }
            _ => merged.push(item.clone()),
        }
    }
    let (asked, others) = partition(merged, &change, by)?;
    put_in_order(asked, others, &change, &server_order, by)
}

/// Whether these are lists of objects. Mixed lists are refused.
fn one_sort(before: &[Value], change: &[Value]) -> Result<bool, ApiError> {
    let mut sorts: Vec<&'static str> = before.iter().chain(change).map(go::type_of).collect();
    sorts.dedup();
    match sorts.as_slice() {
        ["map[string]interface {}"] => Ok(true),
        ["[]interface {}"] => {
            Err(ApiError::new(422, "Invalid", "the server rejected our request due to an error in our request"))
        }
        [_] => Ok(false),
        _ => {
            let lists = format!("[{} {}]", go::show(&Value::from(before)), go::show(&Value::from(change)));
            Err(failed(format!("list element types are not identical: {lists}")))
        }
    }
}

/// Carries out the items that are directives; what remains is to be merged.
fn special_items(mut before: Vec<Value>, change: Vec<Value>, by: &str) -> Result<(Vec<Value>, Vec<Value>), ApiError> {
    let mut plain = Vec::with_capacity(change.len());
    let mut is_replaced = false;
    for item in change {
        let Some(directive) = item.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let key = key_of(&item, by)?;
                before.retain(|other| other.get(by) != Some(key));
            }
            Some("replace") => is_replaced = true,
            Some("merge") => return Err(failed("merging lists cannot yet be specified in the patch".to_owned())),
            _ => {
                let fields = item.as_object().cloned().unwrap_or_default();
                return Err(unknown_directive(directive, &fields));
            }
        }
    }
    if is_replaced { Ok((plain, Vec::new())) } else { Ok((before, plain)) }
}

fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> ApiError {
    let shown = match directive {
        Value::String(text) => text.clone(),
        other => format!("%!s({}={})", go::type_of(other), go::show(other)),
    };
    failed(format!("unknown patch type: {shown} in map: {}", go::show(&Value::Object(patch.clone()))))
}

fn delete_from(original: &mut Map<String, Value>, directive: &str, unwanted: Value) -> Result<(), ApiError> {
    let Some((DELETE_FROM, key)) = directive.split_once('/') else {
        return Err(ApiError::bad_request("invalid patch format of primitive list"));
    };
    if unwanted.is_null() {
        original.remove(key);
    } else if let (Some(Value::Array(items)), Value::Array(unwanted)) = (original.get_mut(key), unwanted) {
        items.retain(|item| !unwanted.contains(item));
    }
    Ok(())
}

/// Those that are in `order`, and those that only the server has.
fn partition(items: Vec<Value>, order: &[Value], by: &str) -> Result<(Vec<Value>, Vec<Value>), ApiError> {
    let mut asked = Vec::new();
    let mut others = Vec::new();
    for item in items {
        if !by.is_empty() {
            key_of(&item, by)?;
        }
        if place_of(&item, order, by).is_some() { asked.push(item) } else { others.push(item) }
    }
    Ok((asked, others))
}

fn place_of(item: &Value, order: &[Value], by: &str) -> Option<usize> {
    if by.is_empty() {
        return order.iter().position(|other| other == item);
    }
    let key = item.get(by);
    order.iter().position(|other| other.get(by) == key)
}

/// The patch's items in the order it asks for, the server's where they stood.
fn put_in_order(
    mut asked: Vec<Value>,
    mut others: Vec<Value>,
    order: &[Value],
    server_order: &[Value],
    by: &str,
) -> Result<Vec<Value>, ApiError> {
    if !by.is_empty() {
        for item in order.iter().chain(server_order) {
            key_of(item, by)?;
        }
    }
    asked.sort_by_key(|item| place_of(item, order, by));
    others.sort_by_key(|item| place_of(item, server_order, by));
    let mut all = Vec::with_capacity(asked.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in asked {
        while let Some(other) = others.peek() {
            let (place, wanted) = (place_of(other, server_order, by), place_of(&item, server_order, by));
            let stood_before = matches!((place, wanted), (Some(place), Some(wanted)) if place < wanted);
            if !stood_before {
                break;
            }
            all.extend(others.next());
        }
        all.push(item);
    }
    all.extend(others);
    Ok(all)
}

fn is_replaced(schema: Option<&Schema>, key: &str) -> bool {
    match schema.map(|schema| &schema.shape) {
        Some(Shape::Object(object)) => object.fields.get(key).is_some_and(|field| field.replace),
        _ => false,
    }
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// What is new has nothing to be merged with: objects that are directives have no place in it.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => Some(Value::Object(
            fields.into_iter().filter_map(|(key, field)| without_directives(field).map(|field| (key, field))).collect(),
        )),
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}
