//! Values while an expression runs. Objects and lists of the data stay JSON until somebody looks inside.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

use base64::Engine as _;
use jiff::Timestamp;
use serde_json::Value;

use super::super::formats::{Format, go_duration_nanos};
use super::super::go;
use super::super::node::{ListType, Node};
use super::eval::EvalError;
use super::types::unescape;

/// A value. `'a` is how long the data and the schemas live.
#[derive(Clone, Debug)]
pub(crate) enum V<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Text<'a>),
    Bytes(Rc<[u8]>),
    Duration(i64),
    Timestamp(Timestamp),
    List(Rc<Vec<V<'a>>>),
    Map(Rc<BTreeMap<Key, V<'a>>>),
    /// A list or an object of the data, with what its schema says.
    Json(&'a Value, &'a Node),
    Optional(Option<Rc<V<'a>>>),
    Type(Rc<str>),
    /// A value of a library that only the library understands.
    Library(Rc<kube_cel::cel::Value>),
    /// What a loop has come to when a step of it went wrong.
    Failed(Rc<EvalError>),
}

#[derive(Clone, Debug)]
pub(crate) enum Text<'a> {
    Data(&'a str),
    Made(Rc<str>),
}

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Data(text) => text,
            Self::Made(text) => text,
        }
    }
}

/// What may be a key of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Text(Rc<str>),
}

impl Key {
    pub(crate) fn of(value: &V<'_>) -> Option<Self> {
        Some(match value {
            V::Bool(value) => Self::Bool(*value),
            V::Int(value) => Self::Int(*value),
            // Equal numbers are one key.
            V::Uint(value) => i64::try_from(*value).map_or(Self::Uint(*value), Self::Int),
            V::Double(value) => Self::Int(go::to_integer(*value, None)?),
            V::Text(text) => Self::Text(Rc::from(&**text)),
            _ => return None,
        })
    }

    pub(crate) fn value<'a>(&self) -> V<'a> {
        match self {
            Self::Bool(value) => V::Bool(*value),
            Self::Int(value) => V::Int(*value),
            Self::Uint(value) => V::Uint(*value),
            Self::Text(text) => V::Text(Text::Made(text.clone())),
        }
    }
}

impl<'a> V<'a> {
    pub(crate) fn text(text: impl AsRef<str>) -> Self {
        Self::Text(Text::Made(Rc::from(text.as_ref())))
    }

    pub(crate) fn list(items: Vec<Self>) -> Self {
        Self::List(Rc::new(items))
    }

    pub(crate) fn some(value: Self) -> Self {
        Self::Optional(Some(Rc::new(value)))
    }

    /// The data that a schema describes, as rules see it.
    pub(crate) fn of(value: &'a Value, node: &'a Node) -> Result<Self, EvalError> {
        Ok(match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => {
                if node.type_name == "number" {
                    Self::Double(number.as_f64().unwrap_or(f64::MAX))
                } else if let Some(integer) = go::to_integer(number.as_f64().unwrap_or(f64::MAX), number.as_i64()) {
                    Self::Int(integer)
                } else {
                    Self::Double(number.as_f64().unwrap_or(f64::MAX))
                }
            }
            Value::String(text) => match &node.format {
                Some(Format::Text { written, .. }) if node.type_name == "string" => of_format(text, written)?,
                _ => Self::Text(Text::Data(text)),
            },
            Value::Array(_) | Value::Object(_) => Self::Json(value, node),
        })
    }

    /// Data that no schema describes.
    pub(crate) fn of_anything(value: &'a Value) -> Result<Self, EvalError> {
        Self::of(value, &ANYTHING)
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::List(_) | Self::Json(Value::Array(_), _) => "list",
            Self::Map(_) | Self::Json(..) => "map",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Library(_) => "object",
            Self::Failed(_) => "error",
        }
    }

    /// The items of a list.
    pub(crate) fn items(&self) -> Option<Result<Vec<Self>, EvalError>> {
        match self {
            Self::List(items) => Some(Ok(items.to_vec())),
            Self::Json(Value::Array(items), node) => Some(match node.items.as_deref() {
                Some(item_node) => items.iter().map(|item| V::of(item, item_node)).collect(),
                None => items.iter().map(V::of_anything).collect(),
            }),
            _ => None,
        }
    }

    /// How many items, entries, characters or bytes.
    pub(crate) fn size(&self) -> Option<usize> {
        match self {
            Self::List(items) => Some(items.len()),
            Self::Map(entries) => Some(entries.len()),
            Self::Json(Value::Array(items), _) => Some(items.len()),
            Self::Json(Value::Object(members), _) => Some(members.len()),
            Self::Text(text) => Some(text.chars().count()),
            Self::Bytes(bytes) => Some(bytes.len()),
            _ => None,
        }
    }

    /// The keys of a map, in order.
    pub(crate) fn keys(&self) -> Option<Vec<Self>> {
        match self {
            Self::Map(entries) => Some(entries.keys().map(Key::value).collect()),
            Self::Json(Value::Object(members), _) => {
                let mut names: Vec<&str> = members.keys().map(String::as_str).collect();
                names.sort_unstable();
                Some(names.into_iter().map(|name| Self::Text(Text::Data(name))).collect())
            }
            _ => None,
        }
    }

    /// An entry of a map by its key.
    pub(crate) fn entry(&self, key: &V<'a>) -> Option<Result<Self, EvalError>> {
        match self {
            Self::Map(entries) => entries.get(&Key::of(key)?).cloned().map(Ok),
            Self::Json(Value::Object(members), node) => {
                let V::Text(name) = key else { return None };
                let member = members.get(&**name)?;
                Some(V::of(member, node.member(name).unwrap_or(node)))
            }
            _ => None,
        }
    }

    /// A field by the name that rules use: of an object its escaped name, of a map the key itself.
    pub(crate) fn field(&self, name: &str) -> Option<Result<Self, EvalError>> {
        match self {
            Self::Json(Value::Object(members), node) => {
                if node.additional_node().is_some() && node.properties.is_empty() {
                    return Some(V::of(members.get(name)?, node.additional_node()?));
                }
                // What no schema describes has its names as they are.
                let is_as_written = std::ptr::eq(*node, &*ANYTHING);
                let name = if is_as_written { name.to_owned() } else { unescape(name)? };
                // A field that is null is as one that is not there.
                let member = members.get(&name).filter(|member| !member.is_null())?;
                Some(match node.properties.get(&name) {
                    Some(property) => V::of(member, property),
                    // `apiVersion`, `kind` and `metadata` need no schema.
                    None => V::of(member, &ANYTHING),
                })
            }
            Self::Map(entries) => entries.get(&Key::Text(Rc::from(name))).cloned().map(Ok),
            _ => None,
        }
    }

    /// Whether two values are the same. Numbers are compared by what they are worth; sets and maps in lists have no order.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(one), Self::Bool(other)) => one == other,
            (Self::Text(one), Self::Text(other)) => **one == **other,
            (Self::Bytes(one), Self::Bytes(other)) => one == other,
            (Self::Duration(one), Self::Duration(other)) => one == other,
            (Self::Timestamp(one), Self::Timestamp(other)) => one == other,
            (Self::Type(one), Self::Type(other)) => one == other,
            (Self::Library(one), Self::Library(other)) => one == other,
            (Self::Optional(None), Self::Optional(None)) => true,
            (Self::Optional(Some(one)), Self::Optional(Some(other))) => one.equals(other),
            (Self::Int(_) | Self::Uint(_) | Self::Double(_), Self::Int(_) | Self::Uint(_) | Self::Double(_)) => {
                self.compare(other) == Some(Ordering::Equal)
            }
            (Self::Json(Value::Array(_), node), _) if node.list != ListType::Atomic => unordered_equals(self, other),
            (_, Self::Json(Value::Array(_), node)) if node.list != ListType::Atomic => unordered_equals(self, other),
            _ => self.equals_inside(other),
        }
    }

    fn equals_inside(&self, other: &Self) -> bool {
        if let (Some(Ok(one)), Some(Ok(other))) = (self.items(), other.items()) {
            return one.len() == other.len() && one.iter().zip(&other).all(|(one, other)| one.equals(other));
        }
        let (Some(keys), Some(other_keys)) = (self.keys(), other.keys()) else { return false };
        keys.len() == other_keys.len()
            && keys.iter().all(|key| match (self.entry(key), other.entry(key)) {
                (Some(Ok(one)), Some(Ok(other))) => one.equals(&other),
                _ => false,
            })
    }

    /// The order of two values, if they have one.
    pub(crate) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(one), Self::Bool(other)) => Some(one.cmp(other)),
            (Self::Text(one), Self::Text(other)) => Some(one.as_bytes().cmp(other.as_bytes())),
            (Self::Bytes(one), Self::Bytes(other)) => Some(one.cmp(other)),
            (Self::Duration(one), Self::Duration(other)) => Some(one.cmp(other)),
            (Self::Timestamp(one), Self::Timestamp(other)) => Some(one.cmp(other)),
            (Self::Int(one), Self::Int(other)) => Some(one.cmp(other)),
            (Self::Uint(one), Self::Uint(other)) => Some(one.cmp(other)),
            (Self::Int(one), Self::Uint(other)) => Some(i128::from(*one).cmp(&i128::from(*other))),
            (Self::Uint(one), Self::Int(other)) => Some(i128::from(*one).cmp(&i128::from(*other))),
            #[expect(clippy::cast_precision_loss, reason = "numbers of different kinds are compared as floats")]
            (Self::Int(one), Self::Double(other)) => (*one as f64).partial_cmp(other),
            #[expect(clippy::cast_precision_loss, reason = "numbers of different kinds are compared as floats")]
            (Self::Double(one), Self::Int(other)) => one.partial_cmp(&(*other as f64)),
            #[expect(clippy::cast_precision_loss, reason = "numbers of different kinds are compared as floats")]
            (Self::Uint(one), Self::Double(other)) => (*one as f64).partial_cmp(other),
            #[expect(clippy::cast_precision_loss, reason = "numbers of different kinds are compared as floats")]
            (Self::Double(one), Self::Uint(other)) => one.partial_cmp(&(*other as f64)),
            (Self::Double(one), Self::Double(other)) => one.partial_cmp(other),
            _ => None,
        }
    }
}

/// The schema of what needs none.
static ANYTHING: std::sync::LazyLock<Node> = std::sync::LazyLock::new(|| {
    let mut any = Node { type_name: "object".to_owned(), preserve_unknown: true, ..Node::default() };
    for name in ["name", "generateName"] {
        any.properties.insert(name.to_owned(), Node { type_name: "string".to_owned(), ..Node::default() });
    }
    any
});

fn of_format<'a>(text: &'a str, format: &str) -> Result<V<'a>, EvalError> {
    let bad = |what: &str| EvalError::said(format!("Invalid {what} {text}"));
    match format {
        "duration" => go_duration_nanos(text).map(V::Duration).ok_or_else(|| bad("duration")),
        "date" => text
            .parse::<jiff::civil::Date>()
            .ok()
            .and_then(|date| date.to_zoned(jiff::tz::TimeZone::UTC).ok())
            .map(|zoned| V::Timestamp(zoned.timestamp()))
            .ok_or_else(|| bad("date")),
        "date-time" => text.parse::<Timestamp>().map(V::Timestamp).map_err(|_| bad("date-time")),
        "byte" => base64::engine::general_purpose::STANDARD
            .decode(text)
            .map(|bytes| V::Bytes(Rc::from(bytes)))
            .map_err(|_| bad("byte formatted string")),
        _ => Ok(V::Text(Text::Data(text))),
    }
}

/// Each item has its like on the other side. For `map` lists the likes are found by their keys.
fn unordered_equals<'a>(one: &V<'a>, other: &V<'a>) -> bool {
    let (Some(Ok(items)), Some(Ok(others))) = (one.items(), other.items()) else { return false };
    items.len() == others.len() && items.iter().all(|item| others.iter().any(|other| item.equals(other)))
}
