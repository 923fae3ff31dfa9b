//! The older document in protocol buffers, as kubectl asks for it: the messages of gnostic's `OpenAPIv2.proto`.
//!
//! Go's client takes no other form of it, and kubectl 1.32 asks for it when it meets a kind that it does not know.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use crate::discovery::JSON;

/// What a client asks for, and what it is told that it got: the real server has two names for it.
const ASKED: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
];
pub(crate) const CONTENT_TYPE: &str = ASKED[1];

/// A row for each message: keys of the JSON, and where they go.
///
/// ```text
/// key=9s        text            key=9S       texts, one or many     key=9b, 9i, 9d     truth, whole number, fraction
/// key=9y        anything        key=9Y       a list of anything     x=9y               every key that begins with x-
/// key=9:Row     a message       key=9*Row    a list of them         key=9%Row          a map, as a list of name and message
/// key=9.2.1…    inside of a message that has only that              .=…                the value itself
/// ```
const ROWS: &str = "
Document swagger=1s info=2:Info paths=8.2%PathItem definitions=9.1%Schema security=12*Requirement securityDefinitions=13.1%Security
Info title=1s version=2s description=3s
PathItem get=2:Operation put=3:Operation post=4:Operation delete=5:Operation options=6:Operation head=7:Operation patch=8:Operation parameters=9*Parameter x=10y
Operation tags=1S summary=2s description=3s operationId=5s produces=6S consumes=7S parameters=8*Parameter responses=9.1%Response schemes=10S deprecated=11b x=13y
Body description=1s name=2s in=3s required=4b schema=5:Schema x=6y
Query required=1b in=2s description=3s name=4s type=6s format=7s uniqueItems=20b x=23y
Path required=1b in=2s description=3s name=4s type=5s format=6s uniqueItems=19b x=22y
Response .=1:Answer
Answer description=1s schema=2.1:Schema x=5y
Schema $ref=1s format=2s title=3s description=4s default=5y multipleOf=6d maximum=7d exclusiveMaximum=8b minimum=9d exclusiveMinimum=10b maxLength=11i minLength=12i pattern=13s maxItems=14i minItems=15i uniqueItems=16b maxProperties=17i minProperties=18i required=19S enum=20Y additionalProperties=21:Additional type=22.1S items=23.1:Schema allOf=24*Schema properties=25.1%Schema discriminator=26s readOnly=27b example=30y x=31y
Security .=2:ApiKey
ApiKey type=1s name=2s in=3s description=4s x=5y
Requirement .=1%Texts
Texts .=1S
";

static TABLE: LazyLock<BTreeMap<&'static str, Vec<Field>>> = LazyLock::new(|| ROWS.lines().filter_map(row).collect());

struct Field {
    key: &'static str,
    /// The numbers on the way, the last one being the field's own.
    numbers: Vec<u64>,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Texts,
    Truth,
    Whole,
    Fraction,
    Anything,
    Anythings,
    Message(&'static str),
    Messages(&'static str),
    Named(&'static str),
}

fn row(row: &'static str) -> Option<(&'static str, Vec<Field>)> {
    let mut words = row.split(' ').filter(|word| !word.is_empty());
    let name = words.next()?;
    let field = |word: &'static str| {
        let (key, rest) = word.split_once('=')?;
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (numbers, kind) = rest.split_at(digits);
        let kind = match kind.split_at(1) {
            ("s", _) => Kind::Text,
            ("S", _) => Kind::Texts,
            ("b", _) => Kind::Truth,
            ("i", _) => Kind::Whole,
            ("d", _) => Kind::Fraction,
            ("y", _) => Kind::Anything,
            ("Y", _) => Kind::Anythings,
            (":", row) => Kind::Message(row),
            ("*", row) => Kind::Messages(row),
            (_, row) => Kind::Named(row),
        };
        Some(Field { key, numbers: numbers.split('.').filter_map(|number| number.parse().ok()).collect(), kind })
    };
    Some((name, words.filter_map(field).collect()))
}

/// Whether this form comes first among those that a client takes.
pub(crate) fn is_asked(accept: &str) -> bool {
    let mut forms: Vec<(f32, &str)> = accept
        .split(',')
        .map(|form| {
            let mut parts = form.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok());
            (weight.unwrap_or(1.0), media)
        })
        .collect();
    forms.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let known = |media: &str| ASKED.contains(&media) || matches!(media, "" | "*/*" | "application/*" | JSON);
    forms.iter().find(|(_, media)| known(media)).is_some_and(|(_, media)| ASKED.contains(media))
}

/// The document's bytes.
pub(crate) fn document(document: &Value) -> Vec<u8> {
    message("Document", document)
}

fn message(name: &str, value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    match (name, value) {
        ("Parameter", _) => return parameter(value),
        // One of two, and a no is told as well as a yes.
        ("Additional", Value::Bool(allowed)) => {
            key(&mut bytes, 2, 0);
            varint(&mut bytes, u64::from(*allowed));
            return bytes;
        }
        ("Additional", _) => {
            nested(&mut bytes, &[1], &message("Schema", value));
            return bytes;
        }
        _ => {}
    }
    for field in TABLE.get(name).map(Vec::as_slice).unwrap_or_default() {
        match field.key {
            "." => put(&mut bytes, field, value),
            "x" => {
                for (key, value) in value.as_object().into_iter().flatten().filter(|(key, _)| key.starts_with("x-")) {
                    nested(&mut bytes, &field.numbers, &named(key, &anything(value)));
                }
            }
            key => {
                if let Some(value) = value.get(key).filter(|value| !value.is_null()) {
                    put(&mut bytes, field, value);
                }
            }
        }
    }
    bytes
}

/// Parameters are of one message or another, by the place where they are given.
fn parameter(value: &Value) -> Vec<u8> {
    let (numbers, row): (&[u64], &str) = match value["in"].as_str().unwrap_or_default() {
        "body" => (&[1, 1], "Body"),
        "path" => (&[1, 2, 4], "Path"),
        _ => (&[1, 2, 3], "Query"),
    };
    let mut bytes = Vec::new();
    nested(&mut bytes, numbers, &message(row, value));
    bytes
}

fn put(bytes: &mut Vec<u8>, field: &Field, value: &Value) {
    let numbers = &field.numbers;
    let many = |value: &Value| match value {
        Value::Array(items) => items.clone(),
        one => vec![one.clone()],
    };
    match field.kind {
        Kind::Text => {
            if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
                nested(bytes, numbers, text.as_bytes());
            }
        }
        Kind::Texts => {
            let (last, path) = numbers.split_last().unwrap_or((&0, &[]));
            let mut texts = Vec::new();
            many(value).iter().filter_map(Value::as_str).for_each(|text| nested(&mut texts, &[*last], text.as_bytes()));
            within(bytes, path, &texts);
        }
        Kind::Truth => {
            if value == &Value::Bool(true) {
                key(bytes, numbers.first().copied().unwrap_or_default(), 0);
                varint(bytes, 1);
            }
        }
        Kind::Whole => {
            if let Some(number) = value.as_i64().filter(|number| *number != 0) {
                key(bytes, numbers.first().copied().unwrap_or_default(), 0);
                varint(bytes, number.cast_unsigned());
            }
        }
        Kind::Fraction => {
            if let Some(number) = value.as_f64().filter(|number| *number != 0.0) {
                key(bytes, numbers.first().copied().unwrap_or_default(), 1);
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        Kind::Anything => nested(bytes, numbers, &anything(value)),
        Kind::Anythings => many(value).iter().for_each(|value| nested(bytes, numbers, &anything(value))),
        Kind::Message(row) => nested(bytes, numbers, &message(row, value)),
        Kind::Messages(row) => many(value).iter().for_each(|value| nested(bytes, numbers, &message(row, value))),
        Kind::Named(row) => {
            let (last, path) = numbers.split_last().unwrap_or((&0, &[]));
            let mut entries = Vec::new();
            for (name, value) in value.as_object().into_iter().flatten() {
                nested(&mut entries, &[*last], &named(name, &message(row, value)));
            }
            within(bytes, path, &entries);
        }
    }
}

/// A name and what it names.
fn named(name: &str, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if !name.is_empty() {
        nested(&mut bytes, &[1], name.as_bytes());
    }
    nested(&mut bytes, &[2], value);
    bytes
}

/// As YAML, of which JSON is a part.
fn anything(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    nested(&mut bytes, &[2], format!("{value}\n").as_bytes());
    bytes
}

/// Bytes as the field of a field of a field.
fn nested(bytes: &mut Vec<u8>, numbers: &[u64], content: &[u8]) {
    let Some((last, path)) = numbers.split_last() else { return };
    let mut inner = Vec::with_capacity(content.len() + 8);
    key(&mut inner, *last, 2);
    varint(&mut inner, content.len() as u64);
    inner.extend_from_slice(content);
    within(bytes, path, &inner);
}

/// Fields that are encoded already, inside of messages.
fn within(bytes: &mut Vec<u8>, path: &[u64], fields: &[u8]) {
    if path.is_empty() {
        bytes.extend_from_slice(fields);
    } else {
        nested(bytes, path, fields);
    }
}

fn key(bytes: &mut Vec<u8>, number: u64, wire_type: u64) {
    varint(bytes, number << 3 | wire_type);
}

fn varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(u8::try_from(number & 0x7f).unwrap_or_default() | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kind::Catalog;

    #[test]
    fn the_first_form_that_is_known_counts() {
        let [first, second] = ASKED;
        for (accept, expected) in [
            ("", false),
            ("*/*", false),
            ("application/json", false),
            (first, true),
            (second, true),
            (&format!("{first}, application/json"), true),
            (&format!("application/json, {first}"), false),
            (&format!("application/json;q=0.5, {first}"), true),
            (&format!("{first};q=0.1,*/*"), false),
            (&format!("text/html,{first}"), true),
            ("text/html", false),
        ] {
            assert_eq!(is_asked(accept), expected, "{accept}");
        }
    }

    #[test]
    fn a_schema_becomes_the_message_that_go_makes_of_it() {
        let rows = [
            (json!({"$ref": "#/definitions/A"}), "0a0f232f646566696e6974696f6e732f41"),
            (json!({"type": "string"}), "b201080a06737472696e67"),
            (json!({"maximum": 2, "minLength": 300, "readOnly": true}), "39000000000000004060ac02d80101"),
            (json!({"additionalProperties": false}), "aa01021000"),
            (json!({"additionalProperties": {"type": "a"}}), "aa01080a06b201030a0161"),
            (json!({"properties": {"a": {"description": "b"}}}), "ca010a0a080a01611203220162"),
            (json!({"x-a": ["b"]}), "fa010f0a03782d6112081206 5b2262225d0a"),
            (json!({"enum": ["a"], "default": 1, "required": ["r"]}), "2a041202310a9a010172a20106120422612 20a"),
        ];
        for (schema, expected) in rows {
            let bytes: String = message("Schema", &schema).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(bytes, expected.replace(' ', ""), "{schema}");
        }
    }

    /// Every field of every message can be skipped: lengths are right wherever one looks.
    #[test]
    fn the_whole_document_is_well_formed() {
        let bytes = document(&super::super::v2(&Catalog::built_in()));
        let mut rest = bytes.as_slice();
        let mut numbers = Vec::new();
        while !rest.is_empty() {
            let key = take(&mut rest);
            assert_eq!(key & 7, 2, "every field of the document is text or a message");
            let length = usize::try_from(take(&mut rest)).unwrap();
            rest = rest.get(length..).unwrap();
            numbers.push(key >> 3);
        }
        assert_eq!(numbers, [1, 2, 8, 9, 12, 13]);
    }

    fn take(bytes: &mut &[u8]) -> u64 {
        let mut number = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            number |= u64::from(first & 0x7f) << shift;
            if *first < 0x80 {
                break;
            }
        }
        number
    }
}
