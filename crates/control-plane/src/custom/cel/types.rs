//! The types of the language, and what a schema says about the types of its fields.

use std::fmt;
use std::sync::Arc;

use super::super::formats::Format;
use super::super::node::{Additional, Node};

#[derive(Clone, Debug)]
pub(crate) enum Type<'a> {
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type<'a>>),
    Map(Arc<Type<'a>>, Arc<Type<'a>>),
    Optional(Arc<Type<'a>>),
    /// The type of a type.
    OfTypes,
    /// An object with the fields of a schema. At the root of a resource, `apiVersion`, `kind` and some of `metadata` are
    /// there whether the schema has them or not.
    Object(&'a Node, bool),
    /// `metadata` of a resource.
    Metadata,
    /// A type of the libraries: `kubernetes.Quantity`, `net.IP`…
    Library(&'static str),
    /// Stands for any type in a signature; the same letter for the same type.
    Parameter(char),
}

impl PartialEq for Type<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(one), Self::List(other)) | (Self::Optional(one), Self::Optional(other)) => one == other,
            (Self::Map(key, value), Self::Map(other_key, other_value)) => key == other_key && value == other_value,
            (Self::Object(one, _), Self::Object(other, _)) => std::ptr::eq(*one, *other),
            (Self::Library(one), Self::Library(other)) => one == other,
            (Self::Parameter(one), Self::Parameter(other)) => one == other,
            (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
        }
    }
}

impl<'a> Type<'a> {
    pub(crate) fn list(of: Self) -> Self {
        Self::List(Arc::new(of))
    }

    pub(crate) fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    pub(crate) fn optional(of: Self) -> Self {
        Self::Optional(Arc::new(of))
    }

    /// The type of what a schema describes. `None` for what rules cannot see: a value of which nothing is known.
    pub(crate) fn of(node: &'a Node, is_resource: bool) -> Option<Self> {
        if node.int_or_string {
            return Some(Self::Dyn);
        }
        Some(match node.type_name.as_str() {
            "array" => Self::list(Self::of(node.items.as_deref()?, node.items.as_deref()?.embedded)?),
            "object" => match &node.additional {
                Additional::Schema(additional) if !is_resource => {
                    Self::map(Self::String, Self::of(additional, additional.embedded)?)
                }
                _ => Self::Object(node, is_resource),
            },
            "string" => match &node.format {
                Some(Format::Text { written, .. }) => match written.as_str() {
                    "byte" => Self::Bytes,
                    "duration" => Self::Duration,
                    "date" | "date-time" => Self::Timestamp,
                    _ => Self::String,
                },
                _ => Self::String,
            },
            "boolean" => Self::Bool,
            "number" => Self::Double,
            "integer" => Self::Int,
            _ => return None,
        })
    }

    /// The type of a field of an object, by the name that rules use for it.
    pub(crate) fn field(&self, name: &str) -> Option<Self> {
        match self {
            Self::Object(node, is_resource) => {
                let name = unescape(name)?;
                if *is_resource {
                    match name.as_str() {
                        "apiVersion" | "kind" => return Some(Self::String),
                        "metadata" => return Some(Self::Metadata),
                        _ => {}
                    }
                }
                let property = node.properties.get(&name)?;
                Self::of(property, property.embedded)
            }
            Self::Metadata => matches!(name, "name" | "generateName").then_some(Self::String),
            _ => None,
        }
    }
}

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The field that a name in a rule stands for: names that are no identifiers are escaped there.
pub(crate) fn unescape(name: &str) -> Option<String> {
    if !name.contains("__") {
        return (!RESERVED.contains(&name)).then(|| name.to_owned());
    }
    if let Some(word) = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"))
        && RESERVED.contains(&word)
    {
        return Some(word.to_owned());
    }
    let mut out = String::new();
    let mut rest = name;
    while !rest.is_empty() {
        let Some(after) = rest.strip_prefix("__") else {
            let c = rest.chars().next()?;
            out.push(c);
            rest = rest.get(c.len_utf8()..)?;
            continue;
        };
        let (word, after) = after.split_once("__")?;
        out.push_str(match word {
            "dot" => ".",
            "dash" => "-",
            "slash" => "/",
            "underscores" => "__",
            _ => return None,
        });
        rest = after;
    }
    Some(out)
}

impl fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("google.protobuf.Duration"),
            Self::Timestamp => f.write_str("google.protobuf.Timestamp"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::OfTypes => f.write_str("type"),
            Self::Object(..) => f.write_str("object"),
            Self::Metadata => f.write_str("metadata"),
            Self::Library(name) => f.write_str(name),
            Self::Parameter(name) => write!(f, "{name}"),
        }
    }
}
