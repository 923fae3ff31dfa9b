//! Bodies in protocol buffers, which typed Go clients send: read into the same trees as JSON.
//!
//! ```text
//! "k8s\0" + Unknown { typeMeta { apiVersion, kind }, raw } ──▶ table of field numbers ──▶ JSON tree
//! ```
//!
//! Only reading: answers are JSON, which every such client accepts too.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use base64::Engine as _;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::clock;

/// What every such body begins with.
const MAGIC: &[u8] = b"k8s\0";
/// Messages inside messages. Nothing real is deeper than a schema in a definition.
const DEPTH_MAX: usize = 64;

static TABLE: LazyLock<BTreeMap<&'static str, Message>> =
    LazyLock::new(|| include_str!("../data/wire.txt").lines().filter_map(read_row).collect());

type Message = BTreeMap<u64, Entry>;

struct Entry {
    name: &'static str,
    many: Many,
    kind: Kind,
    /// Its fields stand in the parent's JSON.
    inline: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Many {
    One,
    List,
    Map,
}

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Whole,
    Truth,
    Fraction,
    Bytes,
    Message(&'static str),
}

/// `core/v1.ContainerPort name=1s hostPort=2i …`.
fn read_row(row: &'static str) -> Option<(&'static str, Message)> {
    let mut words = row.split(' ');
    let name = words.next()?;
    let fields = words.filter_map(|word| {
        let (name, rest) = word.split_once('=')?;
        let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let (number, mut kind) = rest.split_at(digits);
        let inline = kind.starts_with('^');
        kind = kind.trim_start_matches('^');
        let many = match kind.as_bytes().first()? {
            b'*' => Many::List,
            b'%' => Many::Map,
            _ => Many::One,
        };
        let kind = match kind.trim_start_matches(['*', '%']) {
            "s" => Kind::Text,
            "i" => Kind::Whole,
            "b" => Kind::Truth,
            "d" => Kind::Fraction,
            "y" => Kind::Bytes,
            message => Kind::Message(message),
        };
        Some((number.parse().ok()?, Entry { name, many, kind, inline }))
    });
    Some((name, fields.collect()))
}

/// Whether a content type means this.
#[must_use]
pub fn is_protobuf(content_type: &str) -> bool {
    content_type.split(';').next().unwrap_or_default().trim() == "application/vnd.kubernetes.protobuf"
}

/// A body as a tree that says its kind. The error is a sentence for the client.
pub fn read(body: &[u8]) -> Result<Value, String> {
    let envelope = body.strip_prefix(MAGIC).ok_or("provided data does not appear to be a protobuf message")?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &b""[..]);
    each_field(envelope, |number, wire| {
        match (number, wire) {
            (1, Wire::Bytes(type_meta)) => each_field(type_meta, |number, wire| {
                match (number, wire) {
                    (1, Wire::Bytes(text)) => api_version = utf8(text)?,
                    (2, Wire::Bytes(text)) => kind = utf8(text)?,
                    _ => {}
                }
                Ok(())
            })?,
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
        Ok(())
    })?;
    let message = message_of(&api_version, &kind)
        .ok_or_else(|| format!("no kind \"{kind}\" is registered for version \"{api_version}\""))?;
    let mut value = read_message(message, raw, 0)?;
    if let Some(object) = value.as_object_mut() {
        object.insert("apiVersion".to_owned(), api_version.into());
        object.insert("kind".to_owned(), kind.into());
    }
    Ok(value)
}

/// The table's name of a kind.
fn message_of(api_version: &str, kind: &str) -> Option<&'static str> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    // `DeleteOptions` says the version of whatever is deleted.
    let name = if kind == "DeleteOptions" {
        "meta/v1.DeleteOptions".to_owned()
    } else {
        let short = match group {
            "" => "core",
            "rbac.authorization.k8s.io" => "rbac",
            group => group.strip_suffix(".k8s.io").unwrap_or(group),
        };
        format!("{short}/{version}.{kind}")
    };
    TABLE.get_key_value(name.as_str()).map(|(name, _)| *name)
}

enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn each_field<'a>(
    mut bytes: &'a [u8],
    mut take: impl FnMut(u64, Wire<'a>) -> Result<(), String>,
) -> Result<(), String> {
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let wire = match tag & 7 {
            0 => Wire::Number(varint(&mut bytes)?),
            1 => Wire::Number(u64::from_le_bytes(fixed(&mut bytes)?)),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).map_err(|_| cut_short())?;
                let (inside, rest) = bytes.split_at_checked(length).ok_or_else(cut_short)?;
                bytes = rest;
                Wire::Bytes(inside)
            }
            5 => Wire::Number(u64::from(u32::from_le_bytes(fixed(&mut bytes)?))),
            odd => return Err(format!("proto: illegal wireType {odd}")),
        };
        take(tag >> 3, wire)?;
    }
    Ok(())
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or_else(cut_short)?;
        *bytes = rest;
        value |= u64::from(first & 0x7f).wrapping_shl(shift);
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("proto: integer overflow".to_owned())
}

fn fixed<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], String> {
    let (head, rest) = bytes.split_first_chunk::<N>().ok_or_else(cut_short)?;
    *bytes = rest;
    Ok(*head)
}

fn cut_short() -> String {
    "unexpected EOF".to_owned()
}

fn utf8(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "proto: a text is not UTF-8".to_owned())
}

fn read_message(name: &'static str, bytes: &[u8], depth: usize) -> Result<Value, String> {
    if depth > DEPTH_MAX {
        return Err("proto: too many messages inside each other".to_owned());
    }
    if let Some(value) = read_special(name, bytes, depth) {
        return value;
    }
    let message = TABLE.get(name).ok_or_else(|| format!("proto: unknown message {name}"))?;
    let mut object = Map::new();
    each_field(bytes, |number, wire| {
        // A field from a newer client is dropped, as an unknown one in JSON is.
        let Some(entry) = message.get(&number) else { return Ok(()) };
        match entry.many {
            Many::One => {
                let value = read_value(entry.kind, &wire, depth)?;
                match (entry.inline, value) {
                    (true, Value::Object(fields)) => object.extend(fields),
                    (_, value) => {
                        object.insert(entry.name.to_owned(), value);
                    }
                }
            }
            Many::List => {
                let value = read_value(entry.kind, &wire, depth)?;
                if let Value::Array(list) = object.entry(entry.name).or_insert_with(|| json!([])) {
                    list.push(value);
                }
            }
            Many::Map => {
                let Wire::Bytes(pair) = wire else { return Err(odd_wire(entry)) };
                let (key, value) = read_pair(entry.kind, pair, depth)?;
                if let Value::Object(map) = object.entry(entry.name).or_insert_with(|| json!({})) {
                    map.insert(key, value);
                }
            }
        }
        Ok(())
    })?;
    Ok(Value::Object(object))
}

fn read_pair(kind: Kind, pair: &[u8], depth: usize) -> Result<(String, Value), String> {
    let (mut key, mut value) = (String::new(), None);
    each_field(pair, |number, wire| {
        match (number, &wire) {
            (1, Wire::Bytes(text)) => key = utf8(text)?,
            (2, _) => value = Some(read_value(kind, &wire, depth)?),
            _ => {}
        }
        Ok(())
    })?;
    let empty = match kind {
        Kind::Message(name) => read_message(name, &[], depth + 1)?,
        _ => json!(""),
    };
    Ok((key, value.unwrap_or(empty)))
}

fn read_value(kind: Kind, wire: &Wire<'_>, depth: usize) -> Result<Value, String> {
    match (kind, wire) {
        (Kind::Text, Wire::Bytes(bytes)) => Ok(Value::from(utf8(bytes)?)),
        (Kind::Whole, Wire::Number(number)) => Ok(Value::from(number.cast_signed())),
        (Kind::Truth, Wire::Number(number)) => Ok(Value::from(*number != 0)),
        (Kind::Fraction, Wire::Number(bits)) => Ok(Value::from(f64::from_bits(*bits))),
        (Kind::Bytes, Wire::Bytes(bytes)) => Ok(Value::from(base64::engine::general_purpose::STANDARD.encode(bytes))),
        (Kind::Message(name), Wire::Bytes(bytes)) => read_message(name, bytes, depth + 1),
        _ => Err("proto: wrong wireType".to_owned()),
    }
}

fn odd_wire(entry: &Entry) -> String {
    format!("proto: wrong wireType for field {}", entry.name)
}

/// The messages that JSON writes in another form.
fn read_special(name: &str, bytes: &[u8], depth: usize) -> Option<Result<Value, String>> {
    Some(match name {
        "meta/v1.Time" => read_time(bytes, clock::seconds),
        "meta/v1.MicroTime" => read_time(bytes, clock::micros),
        "resource.Quantity" => field(bytes, 1).map(|text| text.map_or(json!("0"), |text| lossy(text).into())),
        "intstr.IntOrString" => read_int_or_string(bytes),
        "meta/v1.FieldsV1" | "runtime.RawExtension" | "apiextensions/v1.JSON" => {
            field(bytes, 1).and_then(|raw| match raw {
                None => Ok(Value::Null),
                Some(raw) => serde_json::from_slice(raw).map_err(|error| error.to_string()),
            })
        }
        "apiextensions/v1.JSONSchemaPropsOrBool" => read_schema_or(bytes, 2, depth, |bytes| {
            let mut allows = false;
            each_field(bytes, |number, wire| {
                if let (1, Wire::Number(value)) = (number, wire) {
                    allows = value != 0;
                }
                Ok(())
            })?;
            Ok(json!(allows))
        }),
        "apiextensions/v1.JSONSchemaPropsOrArray" => read_schema_or(bytes, 1, depth, |bytes| {
            let mut list = Vec::new();
            each_field(bytes, |number, wire| {
                if let (2, Wire::Bytes(bytes)) = (number, wire) {
                    list.push(read_message("apiextensions/v1.JSONSchemaProps", bytes, depth + 1)?);
                }
                Ok(())
            })?;
            Ok(Value::from(list))
        }),
        "apiextensions/v1.JSONSchemaPropsOrStringArray" => read_schema_or(bytes, 1, depth, |bytes| {
            let mut list = Vec::new();
            each_field(bytes, |number, wire| {
                if let (2, Wire::Bytes(text)) = (number, wire) {
                    list.push(Value::from(utf8(text)?));
                }
                Ok(())
            })?;
            Ok(Value::from(list))
        }),
        _ => return None,
    })
}

/// A schema where there is one, else what stands in its place.
fn read_schema_or(
    bytes: &[u8],
    schema_number: u64,
    depth: usize,
    otherwise: impl FnOnce(&[u8]) -> Result<Value, String>,
) -> Result<Value, String> {
    match field(bytes, schema_number)? {
        Some(schema) => read_message("apiextensions/v1.JSONSchemaProps", schema, depth + 1),
        None => otherwise(bytes),
    }
}

/// The bytes of one field, where it is there.
fn field(bytes: &[u8], wanted: u64) -> Result<Option<&[u8]>, String> {
    let mut found = None;
    each_field(bytes, |number, wire| {
        if let Wire::Bytes(inside) = wire
            && number == wanted
        {
            found = Some(inside);
        }
        Ok(())
    })?;
    Ok(found)
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// No seconds at all mean no time.
fn read_time(bytes: &[u8], write: fn(Timestamp) -> String) -> Result<Value, String> {
    let (mut seconds, mut nanos) = (0_i64, 0_i64);
    each_field(bytes, |number, wire| {
        match (number, wire) {
            (1, Wire::Number(value)) => seconds = value.cast_signed(),
            (2, Wire::Number(value)) => nanos = value.cast_signed(),
            _ => {}
        }
        Ok(())
    })?;
    // The zero time of Go lies before ours, and means that nobody set it.
    if bytes.is_empty() || seconds <= 0 {
        return Ok(Value::Null);
    }
    let nanos = i32::try_from(nanos).unwrap_or(0);
    Timestamp::new(seconds, nanos).map(|at| Value::from(write(at))).map_err(|error| error.to_string())
}

fn read_int_or_string(bytes: &[u8]) -> Result<Value, String> {
    let (mut is_text, mut whole, mut text) = (false, 0_i64, String::new());
    each_field(bytes, |number, wire| {
        match (number, wire) {
            (1, Wire::Number(value)) => is_text = value == 1,
            (2, Wire::Number(value)) => whole = value.cast_signed(),
            (3, Wire::Bytes(value)) => text = utf8(value)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(if is_text { Value::from(text) } else { Value::from(whole) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varint_of(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let low = (value & 0x7f) as u8;
            value >>= 7;
            if value == 0 {
                bytes.push(low);
                return bytes;
            }
            bytes.push(low | 0x80);
        }
    }

    fn number(field: u64, value: u64) -> Vec<u8> {
        [varint_of(field << 3), varint_of(value)].concat()
    }

    fn bytes(field: u64, inside: &[u8]) -> Vec<u8> {
        [varint_of(field << 3 | 2), varint_of(inside.len() as u64), inside.to_vec()].concat()
    }

    fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = [bytes(1, api_version.as_bytes()), bytes(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), bytes(1, &type_meta), bytes(2, raw)].concat()
    }

    #[test]
    fn a_pod_is_read_as_its_json() {
        let port = [number(3, 80), bytes(4, b"TCP")].concat();
        let label = [bytes(1, b"app"), bytes(2, b"web")].concat();
        let amount = [bytes(1, b"cpu"), bytes(2, &bytes(1, b"100m"))].concat();
        let container = [bytes(1, b"main"), bytes(2, b"nginx"), bytes(6, &port), bytes(8, &bytes(2, &amount))].concat();
        let volume = [bytes(1, b"config"), bytes(2, &bytes(19, &bytes(1, &bytes(1, b"settings"))))].concat();
        let time = number(1, 1_700_000_000);
        let metadata = [bytes(1, b"web"), bytes(8, &time), bytes(11, &label)].concat();
        let spec = [bytes(1, &volume), bytes(2, &container), number(4, 30), number(11, 1)].concat();
        let raw = [bytes(1, &metadata), bytes(2, &spec)].concat();
        assert_eq!(
            read(&body("v1", "Pod", &raw)).unwrap(),
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": { "name": "web", "labels": { "app": "web" }, "creationTimestamp": "2023-11-14T22:13:20Z" },
                "spec": {
                    "containers": [{
                        "name": "main", "image": "nginx", "ports": [{ "containerPort": 80, "protocol": "TCP" }],
                        "resources": { "requests": { "cpu": "100m" } },
                    }],
                    "volumes": [{ "name": "config", "configMap": { "name": "settings" } }],
                    "terminationGracePeriodSeconds": 30, "hostNetwork": true,
                },
            })
        );
    }

    #[test]
    fn numbers_or_texts_are_either() {
        let budget = |either: &[u8]| body("policy/v1", "PodDisruptionBudget", &bytes(2, &bytes(1, either)));
        let of = |either: &[u8]| read(&budget(either)).unwrap()["spec"]["minAvailable"].clone();
        assert_eq!(of(&number(2, 3)), json!(3));
        assert_eq!(of(&[number(1, 1), bytes(3, b"50%")].concat()), json!("50%"));
    }

    #[test]
    fn what_is_not_a_message_is_told() {
        assert!(read(b"{}").is_err());
        assert!(read(&body("v1", "Nonsense", b"")).unwrap_err().contains("Nonsense"));
        assert_eq!(read(&body("v1", "Pod", &[0x0a, 0x7f])).unwrap_err(), "unexpected EOF");
        let deep = (0..200).fold(Vec::new(), |inside, _| bytes(30, &bytes(31, &inside)));
        // Whatever it is, it is answered.
        let _ = read(&body("apiextensions.k8s.io/v1", "CustomResourceDefinition", &deep));
    }

    #[test]
    fn every_message_of_the_table_is_defined() {
        for (name, message) in TABLE.iter() {
            for entry in message.values() {
                if let Kind::Message(inner) = entry.kind {
                    assert!(TABLE.contains_key(inner), "{name} has {inner}");
                }
            }
        }
        assert!(TABLE.len() > 300);
    }
}
