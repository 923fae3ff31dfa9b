//! One description of each kind and version, read three ways.
//!
//! ```text
//!                      ┌─▶ crd::crds()        what an API server enforces
//!  Schema (+ Rules) ───┼─▶ check()            the same judgement without an API server
//!                      └─▶ fill_defaults()    the same defaults without an API server
//!                          prune()            and the same forgetting
//! ```
//!
//! A [`Rule`] carries its CEL text and the same thought in Rust side by side; `tests/crd_cases` is fed to both a real
//! API server and to [`check`], which is how we know that the two agree. What is *not* here: anything the API server
//! does not enforce (see [`crate::validate`]).

mod check;
mod defaults;
mod prune;
mod render;

pub(crate) mod capacity_buffer;
pub(crate) mod ec2_node_class;
pub(crate) mod ec2_terms;
pub(crate) mod kwok_node_class;
pub(crate) mod node_claim;
pub(crate) mod node_overlay;
pub(crate) mod node_pool;
pub(crate) mod parts;
pub(crate) mod patterns;
pub(crate) mod rule;

use std::collections::BTreeMap;

use regex_lite::Regex;
use serde_json::Value;

pub(crate) use check::{check, unknown_fields};
pub(crate) use defaults::fill_defaults;
pub(crate) use prune::prune;
pub(crate) use rule::Rule;

/// A structural schema: the part of OpenAPI that CRDs may use and that we do use.
#[derive(Clone, Debug)]
pub(crate) struct Schema {
    pub(crate) shape: Shape,
    pub(crate) about: &'static str,
    pub(crate) default: Option<Value>,
    pub(crate) words: &'static [&'static str],
    pub(crate) pattern: Option<Regex>,
    pub(crate) format: Option<&'static str>,
    pub(crate) minimum: Option<i64>,
    pub(crate) maximum: Option<i64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) merge: Merge,
    /// An object that keeps fields it does not describe. Rules cannot see those.
    pub(crate) keeps_unknown: bool,
    pub(crate) rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Object {
        properties: BTreeMap<&'static str, Schema>,
        required: Vec<&'static str>,
    },
    Map(Box<Schema>),
    List(Box<Schema>),
    Text,
    Integer,
    Boolean,
    /// A whole number or a string, judged by `pattern` when it is a string.
    IntOrText,
    /// An object with any content.
    Open,
}

/// How server-side apply joins two writers of a list or map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    Unsaid,
    AtomicList,
    AtomicMap,
    /// Each key has its own writer. It is what an API server assumes anyway; said where the contract says it.
    GranularMap,
    Set,
    /// A list whose items are told apart by this field.
    MapBy(&'static str),
}

pub(crate) fn object<const N: usize>(properties: [(&'static str, Schema); N]) -> Schema {
    Schema::of(Shape::Object { properties: BTreeMap::from(properties), required: Vec::new() })
}

pub(crate) fn map_of(values: Schema) -> Schema {
    Schema::of(Shape::Map(Box::new(values)))
}

pub(crate) fn list_of(items: Schema) -> Schema {
    Schema::of(Shape::List(Box::new(items)))
}

pub(crate) fn text() -> Schema {
    Schema::of(Shape::Text)
}

/// A string out of a fixed vocabulary, usually the `WORDS` of a `choice!`.
pub(crate) fn one_of(words: &'static [&'static str]) -> Schema {
    Schema { words, ..text() }
}

pub(crate) fn int32() -> Schema {
    Schema { format: Some("int32"), ..Schema::of(Shape::Integer) }
}

pub(crate) fn int64() -> Schema {
    Schema { format: Some("int64"), ..Schema::of(Shape::Integer) }
}

/// A whole number of no stated width.
pub(crate) fn integer() -> Schema {
    Schema::of(Shape::Integer)
}

pub(crate) fn boolean() -> Schema {
    Schema::of(Shape::Boolean)
}

pub(crate) fn instant() -> Schema {
    Schema { format: Some("date-time"), ..text() }
}

pub(crate) fn int_or_text() -> Schema {
    Schema::of(Shape::IntOrText)
}

pub(crate) fn open_object() -> Schema {
    Schema::of(Shape::Open)
}

impl Schema {
    fn of(shape: Shape) -> Self {
        Self {
            shape,
            about: "",
            default: None,
            words: &[],
            pattern: None,
            format: None,
            minimum: None,
            maximum: None,
            min_length: None,
            max_length: None,
            min_items: None,
            max_items: None,
            max_properties: None,
            merge: Merge::Unsaid,
            keeps_unknown: false,
            rules: Vec::new(),
        }
    }

    pub(crate) fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    /// # Panics
    ///
    /// When this is not an object, or has no such property: a slip in a schema, found by the first test that builds it.
    pub(crate) fn require<const N: usize>(mut self, names: [&'static str; N]) -> Self {
        let Shape::Object { properties, required } = &mut self.shape else {
            panic!("only an object requires properties")
        };
        for name in names {
            assert!(properties.contains_key(name), "{name} is required but not described");
            required.push(name);
        }
        self
    }

    pub(crate) fn default(self, default: Value) -> Self {
        Self { default: Some(default), ..self }
    }

    /// # Panics
    ///
    /// When the pattern is not a regular expression. Patterns are constants, and every schema is built in tests.
    pub(crate) fn pattern(self, pattern: &'static str) -> Self {
        Self { pattern: Some(Regex::new(pattern).expect("patterns are constants, compiled by every test")), ..self }
    }

    pub(crate) fn at_least(self, minimum: i64) -> Self {
        Self { minimum: Some(minimum), ..self }
    }

    pub(crate) fn range(self, minimum: i64, maximum: i64) -> Self {
        Self { minimum: Some(minimum), maximum: Some(maximum), ..self }
    }

    pub(crate) fn min_length(self, length: u64) -> Self {
        Self { min_length: Some(length), ..self }
    }

    pub(crate) fn max_length(self, length: u64) -> Self {
        Self { max_length: Some(length), ..self }
    }

    pub(crate) fn min_items(self, n_items: u64) -> Self {
        Self { min_items: Some(n_items), ..self }
    }

    pub(crate) fn max_items(self, n_items: u64) -> Self {
        Self { max_items: Some(n_items), ..self }
    }

    pub(crate) fn max_properties(self, n_properties: u64) -> Self {
        Self { max_properties: Some(n_properties), ..self }
    }

    pub(crate) fn merge(self, merge: Merge) -> Self {
        Self { merge, ..self }
    }

    /// The same object without one of its properties.
    ///
    /// # Panics
    ///
    /// When this is not an object, or has no such property: a slip in a schema, found by the first test that builds it.
    pub(crate) fn without(mut self, name: &str) -> Self {
        let Shape::Object { properties, required } = &mut self.shape else { panic!("only an object has properties") };
        assert!(properties.remove(name).is_some(), "{name} is not described");
        required.retain(|required| *required != name);
        self
    }

    /// The same object with another description of one of its properties.
    pub(crate) fn replacing(self, name: &'static str, property: Schema) -> Self {
        let mut schema = self.without(name);
        if let Shape::Object { properties, .. } = &mut schema.shape {
            properties.insert(name, property);
        }
        schema
    }

    pub(crate) fn keeping_unknown(self) -> Self {
        Self { keeps_unknown: true, ..self }
    }

    pub(crate) fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    pub(crate) fn rules(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.rules.extend(rules);
        self
    }
}
