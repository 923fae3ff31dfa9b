//! A version's schema, read once: what pruning, defaults, validation and rules walk along.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

use super::formats::Format;
use super::pattern;
use super::rules::Rule;

/// One node of an `openAPIV3Schema`.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// `object`, `array`, `string`… Empty where any type goes.
    pub(super) type_name: String,
    pub(super) int_or_string: bool,
    pub(super) nullable: bool,
    pub(super) preserve_unknown: bool,
    pub(super) embedded: bool,
    pub(super) default: Option<Value>,
    pub(super) format: Option<Format>,
    pub(super) choices: Vec<Value>,
    pub(super) number: NumberLimits,
    pub(super) text: TextLimits,
    pub(super) min_items: Option<i64>,
    pub(super) max_items: Option<i64>,
    pub(super) unique_items: bool,
    pub(super) min_properties: Option<i64>,
    pub(super) max_properties: Option<i64>,
    pub(super) required: Vec<String>,
    pub(super) properties: BTreeMap<String, Node>,
    pub(super) additional: Additional,
    pub(super) items: Option<Box<Node>>,
    pub(super) all_of: Vec<Node>,
    pub(super) any_of: Vec<Node>,
    pub(super) one_of: Vec<Node>,
    pub(super) not: Option<Box<Node>>,
    pub(super) list: ListType,
    pub(super) rules: Vec<Rule>,
    /// Whether this node or one below it has rules; the walk over rules leaves out the rest.
    pub(super) has_rules: bool,
}

#[derive(Debug, Default)]
pub(super) struct NumberLimits {
    pub(super) minimum: Option<f64>,
    pub(super) maximum: Option<f64>,
    pub(super) exclusive_minimum: bool,
    pub(super) exclusive_maximum: bool,
    pub(super) multiple_of: Option<f64>,
}

#[derive(Debug, Default)]
pub(super) struct TextLimits {
    pub(super) min_length: Option<i64>,
    pub(super) max_length: Option<i64>,
    pub(super) pattern: Option<Pattern>,
}

#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) source: String,
    /// `None` for a pattern that cannot be read; nothing matches it.
    pub(super) regex: Option<Regex>,
}

#[derive(Debug, Default)]
pub(super) enum Additional {
    /// Not said: whatever else is there is not validated, and is pruned.
    #[default]
    Unsaid,
    Allowed(bool),
    Schema(Box<Node>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

impl Node {
    /// Reads a schema. Rules are compiled against the shape that surrounds them; see [`super::rules::compile_tree`].
    pub(super) fn read(schema: &Value) -> Self {
        let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or_default();
        let count = |name: &str| schema.get(name).and_then(Value::as_i64);
        let number = |name: &str| schema.get(name).and_then(Value::as_f64);
        let list = |name: &str| schema.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let texts = |name: &str| list(name).iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
        let nodes = |name: &str| list(name).iter().map(Self::read).collect::<Vec<_>>();
        let boxed =
            |name: &str| schema.get(name).filter(|value| value.is_object()).map(|value| Box::new(Self::read(value)));

        let type_name = text("type").to_owned();
        Self {
            int_or_string: flag("x-kubernetes-int-or-string"),
            nullable: flag("nullable"),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            default: schema.get("default").filter(|value| !value.is_null()).cloned(),
            format: Format::of(text("format"), &type_name, flag("x-kubernetes-int-or-string")),
            choices: list("enum").to_vec(),
            number: NumberLimits {
                minimum: number("minimum"),
                maximum: number("maximum"),
                exclusive_minimum: flag("exclusiveMinimum"),
                exclusive_maximum: flag("exclusiveMaximum"),
                multiple_of: number("multipleOf"),
            },
            text: TextLimits {
                min_length: count("minLength"),
                max_length: count("maxLength"),
                pattern: Some(text("pattern"))
                    .filter(|source| !source.is_empty())
                    .map(|source| Pattern { source: source.to_owned(), regex: pattern::compile(source).ok() }),
            },
            min_items: count("minItems"),
            max_items: count("maxItems"),
            unique_items: flag("uniqueItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            required: texts("required"),
            properties: schema
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .map(|(name, property)| (name.clone(), Self::read(property)))
                .collect(),
            additional: match schema.get("additionalProperties") {
                Some(Value::Bool(allowed)) => Additional::Allowed(*allowed),
                Some(Value::Object(_)) => boxed("additionalProperties").map_or(Additional::Unsaid, Additional::Schema),
                _ => Additional::Unsaid,
            },
            items: boxed("items"),
            all_of: nodes("allOf"),
            any_of: nodes("anyOf"),
            one_of: nodes("oneOf"),
            not: boxed("not"),
            list: match text("x-kubernetes-list-type") {
                "set" => ListType::Set,
                "map" => ListType::Map(texts("x-kubernetes-list-map-keys")),
                _ => ListType::Atomic,
            },
            rules: Vec::new(),
            has_rules: false,
            type_name,
        }
    }

    /// The schema of a member: its property, or what all other members have in common.
    pub(super) fn member(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or_else(|| self.additional_node())
    }

    pub(super) fn additional_node(&self) -> Option<&Self> {
        match &self.additional {
            Additional::Schema(node) => Some(node),
            Additional::Unsaid | Additional::Allowed(_) => None,
        }
    }

    /// The types a value may have, as messages name them: `integer,string` for an int-or-string.
    pub(super) fn type_names(&self) -> &str {
        if self.int_or_string { "integer,string" } else { &self.type_name }
    }
}

/// A value and what stood in its place before, as far as the two can be told to belong together.
///
/// Members of objects belong together by name and items of `map` lists by their keys; items of other lists do not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair<'a> {
    pub(super) new: &'a Value,
    pub(super) old: &'a Value,
    pub(super) node: &'a Node,
}

impl<'a> Pair<'a> {
    pub(super) fn member(&self, name: &str) -> Option<Self> {
        let new = self.new.as_object()?.get(name)?;
        let old = self.old.as_object()?.get(name)?;
        Some(Self { new, old, node: self.node.member(name)? })
    }

    pub(super) fn item(&self, idx: usize) -> Option<Self> {
        let ListType::Map(keys) = &self.node.list else { return None };
        let new = self.new.as_array()?.get(idx)?;
        let old = item_with_keys(self.old.as_array()?, new, keys)?;
        Some(Self { new, old, node: self.node.items.as_deref()? })
    }

    /// Whether nothing has changed. A member that no schema describes counts as changed, as it does on a real server.
    pub(super) fn is_unchanged(&self) -> bool {
        match (self.new, self.old) {
            (Value::Null, Value::Null) => true,
            (Value::Array(new), Value::Array(old)) => {
                new.len() == old.len()
                    && match self.node.list {
                        ListType::Map(_) => {
                            (0..new.len()).all(|idx| self.item(idx).is_some_and(|item| item.is_unchanged()))
                        }
                        ListType::Set | ListType::Atomic => new == old,
                    }
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len()
                    && new.keys().all(|name| self.member(name).is_some_and(|member| member.is_unchanged()))
            }
            (new, old) => new == old,
        }
    }
}

/// The first item of a `map` list that has the same keys.
pub(super) fn item_with_keys<'a>(items: &'a [Value], wanted: &Value, keys: &[String]) -> Option<&'a Value> {
    let wanted = wanted.as_object()?;
    if let [key] = keys {
        wanted.get(key)?;
    }
    let is_same = |item: &Map<String, Value>| keys.iter().all(|key| item.get(key) == wanted.get(key));
    items.iter().find(|item| item.as_object().is_some_and(is_same))
}
