//! Walks over objects by their shape: what differs, which fields there are, what two objects make together, and what remains
//! when fields go.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::set::FieldSet;
use crate::schema::{Field, List, ListType, Object, Scalar, Schema, Shape, go};

/// A place in the shape. Without a schema the value itself says what it is.
#[derive(Clone, Copy)]
pub(super) struct Node<'s> {
    schema: Option<&'s Schema>,
    /// What the field says of the type's being atomic.
    atomic: Option<bool>,
}

/// How a value is divided among owners.
#[derive(Clone, Copy)]
enum Kind<'s> {
    /// Has one owner.
    Leaf,
    Struct(&'s Object),
    Map(Node<'s>),
    List(&'s List, &'s [String]),
}

impl<'s> Node<'s> {
    pub(super) fn of(schema: &'s Schema) -> Self {
        Self { schema: Some(schema), atomic: None }
    }

    /// Nothing is said of it.
    fn free() -> Self {
        Self { schema: None, atomic: None }
    }

    fn field(field: &'s Field) -> Self {
        Self { schema: Some(field.link.get()), atomic: field.atomic }
    }

    fn kind(self, value: &Value) -> Kind<'s> {
        let Some(schema) = self.schema else {
            return if value.is_object() { Kind::Map(Self::free()) } else { Kind::Leaf };
        };
        let kind = match &schema.shape {
            Shape::Object(object) if !self.atomic.unwrap_or(object.atomic) => Kind::Struct(object),
            Shape::Map(map) if !self.atomic.unwrap_or(map.atomic) => Kind::Map(Self::of(map.values.get())),
            Shape::List(list) => match &list.kind {
                ListType::Atomic => Kind::Leaf,
                ListType::Set => Kind::List(list, &[]),
                ListType::Map(keys) => Kind::List(list, keys),
            },
            Shape::Any { divided: true } => return Self::free().kind(value),
            _ => Kind::Leaf,
        };
        // A value of another type than its shape has is nobody's to divide.
        match (kind, value) {
            (_, Value::Null)
            | (Kind::Struct(_) | Kind::Map(_), Value::Object(_))
            | (Kind::List(..), Value::Array(_)) => kind,
            _ => Kind::Leaf,
        }
    }
}

impl<'s> Kind<'s> {
    fn same_sort(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// The node of a field of an object, and whether the shape declares it.
    fn child(self, key: &str) -> (Node<'s>, bool) {
        match self {
            Kind::Struct(object) => match object.fields.get(key) {
                Some(field) => (Node::field(field), true),
                None => (Node::free(), false),
            },
            Kind::Map(values) => (values, false),
            _ => (Node::free(), false),
        }
    }
}

/// Fields that nobody manages: they are the server's, or say which object it is.
const UNMANAGED_META: [&str; 9] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

fn is_unmanaged(depth: Depth, key: &str) -> bool {
    match depth {
        Depth::Root => key == "apiVersion" || key == "kind",
        Depth::Meta => UNMANAGED_META.contains(&key),
        Depth::Inside => false,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Depth {
    Root,
    Meta,
    Inside,
}

impl Depth {
    fn below(self, key: &str) -> Self {
        if self == Self::Root && key == "metadata" { Self::Meta } else { Self::Inside }
    }
}

/// What changed from one object to another, without the fields that nobody manages.
#[derive(Debug, Default)]
pub(super) struct Difference {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

impl Difference {
    fn put(&mut self, step: &str, child: Self) {
        self.added.put(step, child.added);
        self.modified.put(step, child.modified);
        self.removed.put(step, child.removed);
    }

    fn mark(&mut self, before: Option<&Value>, after: Option<&Value>) {
        match (before, after) {
            (None, Some(_)) => self.added.member = true,
            (Some(_), None) => self.removed.member = true,
            _ => {}
        }
    }

    fn leaf(before: Option<&Value>, after: Option<&Value>) -> Self {
        let mut difference = Self::default();
        difference.mark(before, after);
        difference.modified.member = matches!((before, after), (Some(before), Some(after)) if before != after);
        difference
    }
}

pub(super) fn compare(schema: &Schema, before: &Value, after: &Value) -> Difference {
    let mut difference = compare_nodes(Node::of(schema), Depth::Root, Some(before), Some(after));
    // Metadata itself is nobody's either.
    for set in [&mut difference.added, &mut difference.modified, &mut difference.removed] {
        disown_meta(set);
    }
    difference
}

fn disown_meta(set: &mut FieldSet) {
    if let Some(meta) = set.below.get_mut("f:metadata") {
        meta.member = false;
        if meta.is_empty() {
            set.below.remove("f:metadata");
        }
    }
}

fn compare_nodes(node: Node<'_>, depth: Depth, before: Option<&Value>, after: Option<&Value>) -> Difference {
    let kind = match (before.map(|value| node.kind(value)), after.map(|value| node.kind(value))) {
        (None, None) => return Difference::default(),
        (Some(kind), None) | (None, Some(kind)) => kind,
        (Some(was), Some(is)) if was.same_sort(is) => is,
        (Some(was), Some(is)) => {
            // It became something else: what was divided is gone, what is divided is new, and the whole is changed.
            let mut difference = Difference::default();
            for (kind, before, after) in [(was, before, None), (is, None, after)] {
                let part = compare_divided(kind, depth, before, after);
                difference.removed.below.extend(part.removed.below);
                difference.added.below.extend(part.added.below);
            }
            difference.modified.member = true;
            return difference;
        }
    };
    let divided = !matches!(kind, Kind::Leaf) && (!is_bare(before) || !is_bare(after));
    if !divided {
        return Difference::leaf(before, after);
    }
    let mut difference = compare_divided(kind, depth, before, after);
    difference.mark(before, after);
    difference
}

/// Absent, null or empty: there is nothing to divide.
fn is_bare(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}

fn compare_divided(kind: Kind<'_>, depth: Depth, before: Option<&Value>, after: Option<&Value>) -> Difference {
    match kind {
        Kind::Leaf => Difference::default(),
        Kind::Struct(_) | Kind::Map(_) => {
            let mut difference = Difference::default();
            let old = before.and_then(Value::as_object);
            let new = after.and_then(Value::as_object);
            for (key, before) in old.into_iter().flatten() {
                if !is_unmanaged(depth, key) {
                    let after = new.and_then(|new| new.get(key));
                    let child = compare_nodes(kind.child(key).0, depth.below(key), Some(before), after);
                    difference.put_field(key, child);
                }
            }
            for (key, after) in new.into_iter().flatten() {
                if !is_unmanaged(depth, key) && !old.is_some_and(|old| old.contains_key(key)) {
                    let child = compare_nodes(kind.child(key).0, depth.below(key), None, Some(after));
                    difference.put_field(key, child);
                }
            }
            difference
        }
        Kind::List(list, keys) => compare_lists(list, keys, before, after),
    }
}

impl Difference {
    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    fn put_field(&mut self, key: &str, child: Self) {
        if !child.is_empty() {
            self.put(&format!("f:{key}"), child);
        }
    }
}

fn compare_lists(list: &List, keys: &[String], before: Option<&Value>, after: Option<&Value>) -> Difference {
    let mut difference = Difference::default();
    let item = Node::of(list.item.get());
    let old = index(list, keys, before);
    let new = index(list, keys, after);
    let mut steps: Vec<&String> = old.keys().chain(new.keys().filter(|step| !old.contains_key(*step))).collect();
    steps.sort();
    for step in steps {
        let was = old.get(step).map_or(&[][..], Vec::as_slice);
        let is = new.get(step).map_or(&[][..], Vec::as_slice);
        let mut child = Difference::default();
        match (was, is) {
            ([] | [_], [] | [_]) => {
                child = compare_nodes(item, Depth::Inside, was.first().copied(), is.first().copied());
            }
            // The same key more than once: such items are compared as one thing.
            ([_, _, ..], [_, _, ..]) => child.modified.member = was != is,
            ([_, _, ..], _) => {
                child = compare_nodes(item, Depth::Inside, None, is.first().copied());
                child.removed.member = true;
            }
            (_, [_, _, ..]) => {
                child = compare_nodes(item, Depth::Inside, was.first().copied(), None);
                child.added.member = true;
            }
        }
        difference.put(step, child);
    }
    difference
}

/// The items of a list by their steps. Items without keys have none.
fn index<'v>(list: &List, keys: &[String], value: Option<&'v Value>) -> BTreeMap<String, Vec<&'v Value>> {
    let mut found: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for item in value.and_then(Value::as_array).into_iter().flatten() {
        if let Ok(step) = step_of(list, keys, item) {
            found.entry(step).or_default().push(item);
        }
    }
    found
}

/// `k:{"name":"a"}` or `v:"x"`; or why the item has no place in such a list.
fn step_of(list: &List, keys: &[String], item: &Value) -> Result<String, String> {
    if keys.is_empty() {
        return match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            plain => Ok(format!("v:{plain}")),
        };
    }
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let mut named: BTreeMap<&str, Value> = BTreeMap::new();
    for key in keys {
        let value = fields.get(key).cloned().or_else(|| list.item.get().default_of(key));
        named.extend(value.map(|value| (key.as_str(), value)));
    }
    if named.is_empty() {
        let names: Vec<String> = keys.iter().map(|key| go::quote(key)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    let shown: Vec<String> = named.iter().map(|(name, value)| format!("{}:{value}", Value::from(*name))).collect();
    Ok(format!("k:{{{}}}", shown.join(",")))
}

/// The fields that an applied object speaks of, without those that nobody manages.
pub(super) fn fields_of(schema: &Schema, value: &Value) -> FieldSet {
    let mut set = fields_below(Node::of(schema), Depth::Root, value);
    disown_meta(&mut set);
    set
}

/// Every field there is.
fn all_fields(schema: &Schema, value: &Value) -> FieldSet {
    fields_below(Node::of(schema), Depth::Inside, value)
}

fn fields_below(node: Node<'_>, depth: Depth, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    match (node.kind(value), value) {
        (Kind::Leaf, _) => set.member = true,
        (kind @ (Kind::Struct(_) | Kind::Map(_)), Value::Object(fields)) => {
            for (key, value) in fields.iter().filter(|(key, _)| !is_unmanaged(depth, key)) {
                let (node, is_declared) = kind.child(key);
                let mut child = fields_below(node, depth.below(key), value);
                let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                child.member |= is_empty || !is_declared;
                set.put(format!("f:{key}"), child);
            }
        }
        (Kind::List(list, keys), Value::Array(_)) => {
            for (step, items) in index(list, keys, Some(value)) {
                let mut child = match items.as_slice() {
                    [item] => fields_below(Node::of(list.item.get()), Depth::Inside, item),
                    _ => FieldSet::default(),
                };
                child.member = true;
                set.put(step, child);
            }
        }
        _ => {}
    }
    set
}

/// Declared fields that lead to members count as members, too: then they can go as a whole.
fn with_named_fields(node: Node<'_>, set: &FieldSet, value: &Value) -> FieldSet {
    let mut all = FieldSet { member: set.member, below: BTreeMap::new() };
    let kind = node.kind(value);
    for (step, child) in &set.below {
        let mut child = match (step.strip_prefix("f:"), kind) {
            (Some(key), _) => {
                let (node, is_declared) = kind.child(key);
                let mut child = with_named_fields(node, child, value.get(key).unwrap_or(&Value::Null));
                child.member |= is_declared;
                child
            }
            (None, Kind::List(list, keys)) => {
                let item = index(list, keys, Some(value)).get(step).and_then(|items| items.first().copied());
                with_named_fields(Node::of(list.item.get()), child, item.unwrap_or(&Value::Null))
            }
            _ => child.clone(),
        };
        child.member |= child.below.is_empty();
        all.below.insert(step.clone(), child);
    }
    all
}

/// Drops from a merged object what an applier had applied before and applies no more, unless somebody else has it.
pub(super) fn prune(schema: &Schema, merged: Value, last: &FieldSet, owned: &FieldSet) -> Value {
    let node = Node::of(schema);
    let named = |set: &FieldSet| with_named_fields(node, set, &merged);
    let last = named(last);
    let all = named(&all_fields(schema, &merged));
    let without_last = without(node, &merged, &last).unwrap_or(Value::Null);
    // What remains, or belongs to somebody, comes back.
    let mut unowned = all.clone();
    unowned.subtract(&with_named_fields(node, &all_fields(schema, &without_last), &without_last));
    unowned.subtract(&named(owned));
    let with_owned = without(node, &merged, &unowned).unwrap_or(Value::Null);
    // And of what is gone now, only what was this applier's stays away.
    let mut gone = all;
    gone.subtract(&with_named_fields(node, &all_fields(schema, &with_owned), &with_owned));
    let gone = gone.intersection(&last);
    without(node, &merged, &gone).unwrap_or(Value::Null)
}

/// A value without some fields; `None` when nothing remains.
fn without(node: Node<'_>, value: &Value, unwanted: &FieldSet) -> Option<Value> {
    if unwanted.below.is_empty() {
        return Some(value.clone());
    }
    match (node.kind(value), value) {
        (kind @ (Kind::Struct(_) | Kind::Map(_)), Value::Object(fields)) => {
            let kept: Map<String, Value> = fields
                .iter()
                .filter_map(|(key, value)| {
                    let kept = match unwanted.below.get(&format!("f:{key}")) {
                        None => Some(value.clone()),
                        Some(child) if child.member => None,
                        // What is emptied stays as null: the field is still there, and its owners have it.
                        Some(child) => Some(without(kind.child(key).0, value, child).unwrap_or(Value::Null)),
                    };
                    kept.map(|value| (key.clone(), value))
                })
                .collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        (Kind::List(list, keys), Value::Array(items)) => {
            let item_node = Node::of(list.item.get());
            let kept: Vec<Value> = items
                .iter()
                .filter_map(|item| {
                    let step = step_of(list, keys, item).unwrap_or_default();
                    match unwanted.below.get(&step) {
                        None => Some(item.clone()),
                        Some(child) if child.member => None,
                        Some(child) => without(item_node, item, child),
                    }
                })
                .collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        _ => None,
    }
}

/// The live object with the applied one laid over it.
pub(super) fn merge(schema: &Schema, live: &Value, applied: &Value) -> Value {
    merge_nodes(Node::of(schema), live, applied)
}

fn merge_nodes(node: Node<'_>, live: &Value, applied: &Value) -> Value {
    match (node.kind(applied), live, applied) {
        (kind @ (Kind::Struct(_) | Kind::Map(_)), Value::Object(old), Value::Object(new)) => {
            let mut merged = old.clone();
            for (key, value) in new {
                let value = match old.get(key) {
                    Some(before) => merge_nodes(kind.child(key).0, before, value),
                    None => value.clone(),
                };
                merged.insert(key.clone(), value);
            }
            Value::Object(merged)
        }
        (Kind::Struct(_) | Kind::Map(_), Value::Object(old), Value::Null) if !old.is_empty() => live.clone(),
        (Kind::List(list, keys), Value::Array(old), Value::Array(new)) => {
            Value::Array(merge_lists(list, keys, old, new))
        }
        (Kind::List(..), Value::Array(old), Value::Null) if !old.is_empty() => live.clone(),
        _ => applied.clone(),
    }
}

/// Items that both have stand in the order of the applied list; the live ones between them keep their places.
fn merge_lists(list: &List, keys: &[String], old: &[Value], new: &[Value]) -> Vec<Value> {
    let step = |item: &Value| step_of(list, keys, item).unwrap_or_default();
    let new_steps: Vec<String> = new.iter().map(step).collect();
    let old_steps: Vec<String> = old.iter().map(step).collect();
    let item_node = Node::of(list.item.get());
    let laid_over = |index: usize| -> Option<Value> {
        let applied = new.get(index)?;
        let wanted = new_steps.get(index)?;
        let mut same = old_steps.iter().zip(old).filter(|(step, _)| *step == wanted).map(|(_, item)| item);
        Some(match (same.next(), same.next()) {
            (Some(live), None) => merge_nodes(item_node, live, applied),
            _ => applied.clone(),
        })
    };
    let mut merged = Vec::with_capacity(old.len().max(new.len()));
    let mut next = 0;
    for (live, live_step) in old.iter().zip(&old_steps) {
        match new_steps.iter().position(|step| step == live_step) {
            None => merged.push(live.clone()),
            // Those before it in the applied list come with it, unless it has been placed already.
            Some(place) if place >= next => {
                let shared_between =
                    (next..place).any(|index| new_steps.get(index).is_some_and(|step| old_steps.contains(step)));
                // An item that the applied list has earlier is still to come: this one waits for it.
                if !shared_between {
                    merged.extend((next..=place).filter_map(laid_over));
                    next = place + 1;
                }
            }
            Some(_) => {}
        }
    }
    merged.extend((next..new.len()).filter_map(laid_over));
    merged
}

/// What the shape does not allow in an applied object, each with its path.
pub(super) fn mistakes(schema: &Schema, applied: &Value) -> Vec<String> {
    let mut mistakes = Vec::new();
    check(Node::of(schema), applied, &mut String::new(), &mut mistakes);
    mistakes
}

fn check(node: Node<'_>, value: &Value, path: &mut String, mistakes: &mut Vec<String>) {
    let Some(schema) = node.schema else { return };
    if value.is_null() {
        return;
    }
    let pointer = format!("&{{{}}}", go::show(value));
    match (&schema.shape, value) {
        (Shape::Object(object), Value::Object(fields)) => {
            for (key, value) in fields {
                let length = path.len();
                path.push('.');
                path.push_str(key);
                match object.fields.get(key) {
                    Some(field) => check(Node::field(field), value, path, mistakes),
                    None if object.preserve_unknown || (object.custom && object.fields.is_empty()) => {}
                    None => mistakes.push(format!("{path}: field not declared in schema")),
                }
                path.truncate(length);
            }
        }
        (Shape::Map(map), Value::Object(fields)) => {
            for (key, value) in fields {
                let length = path.len();
                path.push('.');
                path.push_str(key);
                check(Node::of(map.values.get()), value, path, mistakes);
                path.truncate(length);
            }
        }
        (Shape::Object(_) | Shape::Map(_), _) => mistakes.push(format!("{path}: expected map, got {pointer}")),
        (Shape::List(list), Value::Array(items)) => check_items(list, items, path, mistakes),
        (Shape::List(_), _) => mistakes.push(format!("{path}: expected list, got {pointer}")),
        (Shape::Scalar(scalar), _) => {
            if let Some(why) = check_scalar(*scalar, value) {
                mistakes.push(format!("{path}: {why}"));
            }
        }
        (Shape::Either(..) | Shape::Any { .. }, _) => {}
    }
}

fn check_items(list: &List, items: &[Value], path: &mut String, mistakes: &mut Vec<String>) {
    let keys = match &list.kind {
        ListType::Atomic => None,
        ListType::Set => Some(&[][..]),
        ListType::Map(keys) => Some(keys.as_slice()),
    };
    let mut seen: Vec<String> = Vec::new();
    for (place, item) in items.iter().enumerate() {
        let length = path.len();
        match keys.map(|keys| step_of(list, keys, item)) {
            None => path.push_str(&format!("[{place}]")),
            Some(Err(why)) => {
                mistakes.push(format!("{path}: element {place}: {why}"));
                continue;
            }
            Some(Ok(step)) => {
                let set = FieldSet {
                    member: false,
                    below: BTreeMap::from([(step.clone(), FieldSet { member: true, below: BTreeMap::new() })]),
                };
                let shown = set.paths().pop().unwrap_or_default();
                if seen.contains(&step) {
                    mistakes.push(format!("{path}: duplicate entries for key {shown}"));
                    continue;
                }
                seen.push(step);
                path.push_str(&shown);
            }
        }
        check(Node::of(list.item.get()), item, path, mistakes);
        path.truncate(length);
    }
}

fn check_scalar(scalar: Scalar, value: &Value) -> Option<String> {
    let shown = go::show(value);
    match (scalar, value) {
        (Scalar::Int32 | Scalar::Int64 | Scalar::Number, Value::Number(_))
        | (Scalar::String | Scalar::Bytes | Scalar::Time | Scalar::MicroTime, Value::String(_))
        | (Scalar::Bool, Value::Bool(_)) => None,
        (Scalar::Int32 | Scalar::Int64 | Scalar::Number, other) => {
            Some(format!("expected numeric (int or float), got {}", go::type_of(other)))
        }
        (Scalar::Bool, _) => Some(format!("expected boolean, got &{{{shown}}}")),
        (Scalar::String | Scalar::Bytes | Scalar::Time | Scalar::MicroTime, other) => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go::show_syntax(other)))
        }
        (Scalar::IntOrString | Scalar::Quantity, Value::Object(_) | Value::Array(_)) => {
            Some(format!("expected any scalar, got &{{{shown}}}"))
        }
        (Scalar::IntOrString | Scalar::Quantity, _) => None,
    }
}
