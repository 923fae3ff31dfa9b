//! Pods in protocol buffers, as a watch of them is told: for the API server that is a fifth of the work of JSON, and for us what nobody
//! reads is skipped by its length.
//!
//! ```text
//! length (4 bytes) + WatchEvent { type, object { raw } }           one frame of a watch
//!   raw = "k8s\0" + Unknown { typeMeta, raw }                      an object that says its kind
//!     raw ──▶ the fields in the tables below ──▶ serde ──▶ the same type that JSON is read into
//! ```
//!
//! Go writes every text that is not a pointer, empty or not: an empty one is as good as absent, unless its table says otherwise.

use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde::de::value::Error;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

/// What an object that says its kind begins with.
const MAGIC: &[u8] = b"k8s\0";

/// One event of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireEvent<'a> {
    pub kind: &'a str,
    /// The object's own bytes.
    pub object: &'a [u8],
}

/// The part of a `Status` that is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WireStatus {
    pub code: u16,
    pub message: String,
}

/// No object that a server stores is so large.
const FRAME_MAX: u32 = 64 << 20;

/// A frame, and what follows it.
type Cut<'a> = (&'a [u8], &'a [u8]);

/// The first whole frame, and what follows it. None when more bytes must come first.
pub fn frame(bytes: &[u8]) -> Result<Option<Cut<'_>>, String> {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length);
    if length > FRAME_MAX {
        return Err(format!("a frame of {length} bytes"));
    }
    Ok(rest.split_at_checked(length as usize))
}

impl<'a> WireEvent<'a> {
    pub fn read(frame: &'a [u8]) -> Result<Self, String> {
        let read = || {
            let kind = inside(frame, 1)?.unwrap_or_default();
            let object = inside(inside(frame, 2)?.unwrap_or_default(), 1)?.unwrap_or_default();
            let envelope = object.strip_prefix(MAGIC).ok_or_else(|| Error::custom("an object without its mark"))?;
            Ok(Self { kind: utf8(kind)?, object: inside(envelope, 2)?.unwrap_or_default() })
        };
        read().map_err(|error: Error| error.to_string())
    }
}

impl WireStatus {
    pub fn read(bytes: &[u8]) -> Self {
        let message = inside(bytes, 3).ok().flatten().and_then(|text| std::str::from_utf8(text).ok());
        let mut code = 0;
        let mut rest = bytes;
        while let Ok(Some((number, wire))) = next(&mut rest) {
            if let (6, Wire::Number(value)) = (number, wire) {
                code = u16::try_from(value).unwrap_or(0);
            }
        }
        Self { code, message: message.unwrap_or_default().to_owned() }
    }
}

pub(crate) fn read_pod(bytes: &[u8]) -> Result<Pod, String> {
    Pod::deserialize(Item { kind: Kind::Message(POD), wire: Wire::Bytes(bytes) })
        .map_err(|error: Error| error.to_string())
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Text,
    /// A pointer to a text: empty is not absent.
    Given,
    Whole,
    Truth,
    Time,
    Quantity,
    Message(&'static [Field]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Many {
    One,
    List,
    Map,
    /// Its fields stand in the parent's JSON.
    Inline,
}

#[derive(Debug, Clone, Copy)]
struct Field {
    number: u64,
    name: &'static str,
    kind: Kind,
    many: Many,
}

const fn one(number: u64, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, many: Many::One }
}

const fn list(number: u64, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, many: Many::List }
}

const fn map(number: u64, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, many: Many::Map }
}

use Kind::{Given, Message, Quantity, Text, Time, Truth, Whole};

const POD: &[Field] =
    &[one(1, "metadata", Message(METADATA)), one(2, "spec", Message(SPEC)), one(3, "status", Message(STATUS))];

const METADATA: &[Field] = &[
    one(1, "name", Text),
    one(3, "namespace", Text),
    one(5, "uid", Text),
    one(6, "resourceVersion", Text),
    one(7, "generation", Whole),
    one(8, "creationTimestamp", Time),
    one(9, "deletionTimestamp", Time),
    one(10, "deletionGracePeriodSeconds", Whole),
    map(11, "labels", Text),
    map(12, "annotations", Text),
    list(13, "ownerReferences", Message(OWNER)),
    list(14, "finalizers", Text),
];

const OWNER: &[Field] = &[
    one(5, "apiVersion", Given),
    one(1, "kind", Given),
    one(3, "name", Given),
    one(4, "uid", Given),
    one(6, "controller", Truth),
    one(7, "blockOwnerDeletion", Truth),
];

const SPEC: &[Field] = &[
    list(1, "volumes", Message(VOLUME)),
    list(20, "initContainers", Message(CONTAINER)),
    list(2, "containers", Message(CONTAINER)),
    one(3, "restartPolicy", Text),
    one(4, "terminationGracePeriodSeconds", Whole),
    map(7, "nodeSelector", Text),
    one(10, "nodeName", Text),
    one(11, "hostNetwork", Truth),
    one(18, "affinity", Message(AFFINITY)),
    one(19, "schedulerName", Text),
    list(22, "tolerations", Message(TOLERATION)),
    one(24, "priorityClassName", Text),
    one(25, "priority", Whole),
    one(29, "runtimeClassName", Given),
    one(31, "preemptionPolicy", Given),
    map(32, "overhead", Quantity),
    list(33, "topologySpreadConstraints", Message(SPREAD)),
    list(38, "schedulingGates", Message(NAMED)),
    list(39, "resourceClaims", Message(POD_CLAIM)),
    one(40, "resources", Message(RESOURCES)),
];

const STATUS: &[Field] = &[
    one(1, "phase", Text),
    list(2, "conditions", Message(CONDITION)),
    one(4, "reason", Text),
    one(11, "nominatedNodeName", Text),
    one(7, "startTime", Time),
    list(10, "initContainerStatuses", Message(CONTAINER_STATUS)),
    list(8, "containerStatuses", Message(CONTAINER_STATUS)),
    one(14, "resize", Text),
];

const CONTAINER: &[Field] = &[
    one(1, "name", Given),
    list(6, "ports", Message(PORT)),
    one(8, "resources", Message(RESOURCES)),
    one(24, "restartPolicy", Given),
];

const PORT: &[Field] =
    &[one(2, "hostPort", Whole), one(3, "containerPort", Whole), one(4, "protocol", Text), one(5, "hostIP", Text)];

const RESOURCES: &[Field] =
    &[map(1, "limits", Quantity), map(2, "requests", Quantity), list(3, "claims", Message(CLAIM))];

const CLAIM: &[Field] = &[one(1, "name", Given), one(2, "request", Text)];

const NAMED: &[Field] = &[one(1, "name", Given)];

const POD_CLAIM: &[Field] =
    &[one(1, "name", Given), one(3, "resourceClaimName", Given), one(4, "resourceClaimTemplateName", Given)];

const CONTAINER_STATUS: &[Field] = &[
    one(1, "name", Given),
    one(4, "ready", Truth),
    one(5, "restartCount", Whole),
    one(6, "image", Given),
    one(7, "imageID", Given),
    map(10, "allocatedResources", Quantity),
    one(11, "resources", Message(RESOURCES)),
];

const CONDITION: &[Field] = &[
    one(1, "type", Given),
    one(2, "status", Given),
    one(4, "lastTransitionTime", Time),
    one(5, "reason", Text),
    one(6, "message", Text),
];

const TOLERATION: &[Field] = &[
    one(1, "key", Text),
    one(2, "operator", Text),
    one(3, "value", Text),
    one(4, "effect", Text),
    one(5, "tolerationSeconds", Whole),
];

const SPREAD: &[Field] = &[
    one(1, "maxSkew", Whole),
    one(2, "topologyKey", Given),
    one(3, "whenUnsatisfiable", Given),
    one(4, "labelSelector", Message(SELECTOR)),
    one(5, "minDomains", Whole),
    one(6, "nodeAffinityPolicy", Given),
    one(7, "nodeTaintsPolicy", Given),
    list(8, "matchLabelKeys", Text),
];

const SELECTOR: &[Field] = &[map(1, "matchLabels", Text), list(2, "matchExpressions", Message(REQUIREMENT))];

/// Of labels and of nodes.
const REQUIREMENT: &[Field] = &[one(1, "key", Given), one(2, "operator", Given), list(3, "values", Text)];

const AFFINITY: &[Field] = &[
    one(1, "nodeAffinity", Message(NODE_AFFINITY)),
    one(2, "podAffinity", Message(POD_AFFINITY)),
    one(3, "podAntiAffinity", Message(POD_AFFINITY)),
];

const NODE_AFFINITY: &[Field] = &[
    one(1, "requiredDuringSchedulingIgnoredDuringExecution", Message(NODE_SELECTOR)),
    list(2, "preferredDuringSchedulingIgnoredDuringExecution", Message(PREFERRED_NODES)),
];

const NODE_SELECTOR: &[Field] = &[list(1, "nodeSelectorTerms", Message(NODE_TERM))];

const NODE_TERM: &[Field] =
    &[list(1, "matchExpressions", Message(REQUIREMENT)), list(2, "matchFields", Message(REQUIREMENT))];

const PREFERRED_NODES: &[Field] = &[one(1, "weight", Whole), one(2, "preference", Message(NODE_TERM))];

/// For and against.
const POD_AFFINITY: &[Field] = &[
    list(1, "requiredDuringSchedulingIgnoredDuringExecution", Message(POD_TERM)),
    list(2, "preferredDuringSchedulingIgnoredDuringExecution", Message(PREFERRED_PODS)),
];

const PREFERRED_PODS: &[Field] = &[one(1, "weight", Whole), one(2, "podAffinityTerm", Message(POD_TERM))];

const POD_TERM: &[Field] = &[
    one(1, "labelSelector", Message(SELECTOR)),
    list(2, "namespaces", Text),
    one(3, "topologyKey", Given),
    one(4, "namespaceSelector", Message(SELECTOR)),
    list(5, "matchLabelKeys", Text),
    list(6, "mismatchLabelKeys", Text),
];

const VOLUME: &[Field] =
    &[one(1, "name", Given), Field { number: 2, name: "", kind: Message(VOLUME_SOURCE), many: Many::Inline }];

const VOLUME_SOURCE: &[Field] =
    &[one(10, "persistentVolumeClaim", Message(NAMED_CLAIM)), one(29, "ephemeral", Message(EPHEMERAL))];

const NAMED_CLAIM: &[Field] = &[one(1, "claimName", Given), one(2, "readOnly", Truth)];

const EPHEMERAL: &[Field] = &[one(1, "volumeClaimTemplate", Message(CLAIM_TEMPLATE))];

const CLAIM_TEMPLATE: &[Field] = &[one(2, "spec", Message(CLAIM_SPEC))];

const CLAIM_SPEC: &[Field] = &[
    list(1, "accessModes", Text),
    one(3, "volumeName", Text),
    // An empty class is a choice: none.
    one(5, "storageClassName", Given),
    one(6, "volumeMode", Given),
];

#[derive(Debug, Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The next field's number and what it holds. None at the end.
fn next<'a>(bytes: &mut &'a [u8]) -> Result<Option<(u64, Wire<'a>)>, Error> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let tag = varint(bytes)?;
    let wire = match tag & 7 {
        0 => Wire::Number(varint(bytes)?),
        1 => Wire::Number(u64::from_le_bytes(fixed(bytes)?)),
        2 => {
            let length = usize::try_from(varint(bytes)?).map_err(|_| cut_short())?;
            let (inside, rest) = bytes.split_at_checked(length).ok_or_else(cut_short)?;
            *bytes = rest;
            Wire::Bytes(inside)
        }
        5 => Wire::Number(u64::from(u32::from_le_bytes(fixed(bytes)?))),
        odd => return Err(Error::custom(format_args!("wire type {odd}"))),
    };
    Ok(Some((tag >> 3, wire)))
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Error> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or_else(cut_short)?;
        *bytes = rest;
        value |= u64::from(first & 0x7f).wrapping_shl(shift);
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Error::custom("a number of more than 64 bits"))
}

fn fixed<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Error> {
    let (head, rest) = bytes.split_first_chunk::<N>().ok_or_else(cut_short)?;
    *bytes = rest;
    Ok(*head)
}

fn cut_short() -> Error {
    Error::custom("it is cut short")
}

fn utf8(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|_| Error::custom("a text that is not UTF-8"))
}

/// The bytes of one field; the last, where there are several.
fn inside(mut bytes: &[u8], wanted: u64) -> Result<Option<&[u8]>, Error> {
    let mut found = None;
    while let Some((number, wire)) = next(&mut bytes)? {
        if let Wire::Bytes(inside) = wire
            && number == wanted
        {
            found = Some(inside);
        }
    }
    Ok(found)
}

/// Seconds since 1970 in the form that JSON has. None for the time that says nothing.
fn time(bytes: &[u8]) -> Result<Option<String>, Error> {
    let mut seconds = None;
    let mut rest = bytes;
    while let Some((number, wire)) = next(&mut rest)? {
        if let (1, Wire::Number(value)) = (number, wire) {
            seconds = Some(value.cast_signed());
        }
    }
    let Some(seconds) = seconds else { return Ok(None) };
    let time = k8s_openapi::jiff::Timestamp::from_second(seconds).map_err(Error::custom)?;
    Ok(Some(time.to_string()))
}

/// One value, of a field or of a list.
#[derive(Clone, Copy)]
struct Item<'a> {
    kind: Kind,
    wire: Wire<'a>,
}

impl<'de> Deserializer<'de> for Item<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match (self.kind, self.wire) {
            (Text | Given, Wire::Bytes(bytes)) => visitor.visit_borrowed_str(utf8(bytes)?),
            (Whole, Wire::Number(number)) => visitor.visit_i64(number.cast_signed()),
            (Truth, Wire::Number(number)) => visitor.visit_bool(number != 0),
            (Time, Wire::Bytes(bytes)) => match time(bytes)? {
                Some(time) => visitor.visit_string(time),
                None => visitor.visit_unit(),
            },
            (Quantity, Wire::Bytes(bytes)) => visitor.visit_borrowed_str(utf8(inside(bytes, 1)?.unwrap_or(b"0"))?),
            (Message(fields), Wire::Bytes(bytes)) => visitor.visit_map(Fields::new(fields, bytes)),
            _ => Err(Error::custom("a value of the wrong wire type")),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        struct enum identifier ignored_any
    }
}

/// The fields of a message. Those of a list or a map stand together, as Go writes them; where they do not, it is an error.
struct Fields<'a> {
    fields: &'static [Field],
    rest: &'a [u8],
    /// Where to go on after fields that stand in their parent's.
    outer: Option<(&'static [Field], &'a [u8])>,
    current: Option<(&'static Field, Wire<'a>)>,
    /// Numbers of lists and maps that have been read.
    done: u64,
}

impl<'a> Fields<'a> {
    fn new(fields: &'static [Field], bytes: &'a [u8]) -> Self {
        Self { fields, rest: bytes, outer: None, current: None, done: 0 }
    }

    /// One more of the same list or map.
    fn more(&mut self, number: u64) -> Result<Option<Wire<'a>>, Error> {
        let mut ahead = self.rest;
        match next(&mut ahead)? {
            Some((found, wire)) if found == number => {
                self.rest = ahead;
                Ok(Some(wire))
            }
            _ => Ok(None),
        }
    }
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        loop {
            let Some((number, wire)) = next(&mut self.rest)? else {
                let Some((fields, rest)) = self.outer.take() else { return Ok(None) };
                (self.fields, self.rest) = (fields, rest);
                continue;
            };
            let Some(field) = self.fields.iter().find(|field| field.number == number) else { continue };
            match (field.many, field.kind, wire) {
                (Many::Inline, Message(fields), Wire::Bytes(bytes)) => {
                    self.outer = Some((self.fields, self.rest));
                    (self.fields, self.rest) = (fields, bytes);
                    continue;
                }
                (Many::One, Text | Time, Wire::Bytes([])) => continue,
                (Many::List | Many::Map, _, _) => {
                    let bit = 1_u64 << (number & 63);
                    if self.done & bit != 0 {
                        return Err(Error::custom(format_args!("{} in two places", field.name)));
                    }
                    self.done |= bit;
                }
                _ => {}
            }
            self.current = Some((field, wire));
            return seed.deserialize(field.name.into_deserializer()).map(Some);
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (field, wire) = self.current.take().ok_or_else(|| Error::custom("a value without its name"))?;
        match field.many {
            Many::One | Many::Inline => seed.deserialize(Item { kind: field.kind, wire }),
            Many::List | Many::Map => seed.deserialize(Group { fields: self, field, first: Some(wire), value: None }),
        }
    }
}

/// A list or a map.
struct Group<'x, 'a> {
    fields: &'x mut Fields<'a>,
    field: &'static Field,
    first: Option<Wire<'a>>,
    /// Of the pair whose key was read last.
    value: Option<Wire<'a>>,
}

impl<'a> Group<'_, 'a> {
    fn take(&mut self) -> Result<Option<Wire<'a>>, Error> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.fields.more(self.field.number),
        }
    }
}

impl<'de> Deserializer<'de> for Group<'_, 'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.field.many {
            Many::Map => visitor.visit_map(self),
            _ => visitor.visit_seq(self),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> SeqAccess<'de> for Group<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(wire) = self.take()? else { return Ok(None) };
        seed.deserialize(Item { kind: self.field.kind, wire }).map(Some)
    }
}

impl<'de> MapAccess<'de> for Group<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(Wire::Bytes(mut pair)) = self.take()? else { return Ok(None) };
        let mut key: &[u8] = b"";
        self.value = None;
        while let Some((number, wire)) = next(&mut pair)? {
            match (number, wire) {
                (1, Wire::Bytes(text)) => key = text,
                (2, wire) => self.value = Some(wire),
                _ => {}
            }
        }
        seed.deserialize(Item { kind: Text, wire: Wire::Bytes(key) }).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(Item { kind: self.field.kind, wire: self.value.take().unwrap_or(Wire::Bytes(b"")) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn whole(number: u8, value: u8) -> Vec<u8> {
        vec![number << 3, value]
    }

    fn part(number: usize, inside: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for mut rest in [number << 3 | 2, inside.len()] {
            while rest > 0x7f {
                out.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
                rest >>= 7;
            }
            out.push(u8::try_from(rest).unwrap());
        }
        [out, inside.to_vec()].concat()
    }

    fn pair(number: usize, key: &str, value: &[u8]) -> Vec<u8> {
        part(number, &[part(1, key.as_bytes()), part(2, value)].concat())
    }

    fn quantity(text: &str) -> Vec<u8> {
        part(1, text.as_bytes())
    }

    /// 2026-11-16T05:38:14Z.
    fn moment() -> Vec<u8> {
        let mut out = vec![1 << 3];
        let mut rest = 1_794_807_494_u64;
        while rest > 0x7f {
            out.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
            rest >>= 7;
        }
        out.push(u8::try_from(rest).unwrap());
        out
    }

    fn pod() -> Vec<u8> {
        let metadata = [
            part(1, b"web-0"),
            part(2, b""),
            part(3, b"shop"),
            part(5, b"u-1"),
            part(6, b"42"),
            part(8, &moment()),
            pair(11, "app", b"web"),
            pair(11, "empty", b""),
            part(
                13,
                &[part(1, b"ReplicaSet"), part(3, b"web"), part(4, b"u"), part(5, b"apps/v1"), whole(6, 1)].concat(),
            ),
            // Managed fields: skipped whatever is in them.
            part(17, b"\xff\xff"),
        ]
        .concat();
        let amounts = [pair(2, "cpu", &quantity("100m")), pair(2, "memory", &quantity("128Mi"))].concat();
        let container = [part(1, b"main"), part(2, b"image"), part(8, &amounts)].concat();
        let template = part(1, &part(2, &part(5, b"")));
        let volumes = [
            part(1, &[part(1, b"data"), part(2, &part(10, &part(1, b"claim")))].concat()),
            part(1, &[part(1, b"scratch"), part(2, &part(29, &template))].concat()),
        ]
        .concat();
        let spec = [
            volumes,
            part(2, &container),
            part(2, &[part(1, b"side"), part(8, b"")].concat()),
            part(3, b"Always"),
            vec![4 << 3, 30],
            part(10, b"node-1"),
            vec![11 << 3, 0],
            part(22, &[part(1, b"dedicated"), part(2, b"Equal"), part(3, b"a"), part(4, b"")].concat()),
            part(24, b""),
            [vec![0xc8, 0x01], vec![0]].concat(),
        ]
        .concat();
        let status = [
            part(1, b"Running"),
            part(2, &[part(1, b"Ready"), part(2, b"True"), part(3, b""), part(4, &moment()), part(5, b"")].concat()),
            part(7, &moment()),
            part(11, b""),
        ]
        .concat();
        [part(1, &metadata), part(2, &spec), part(3, &status)].concat()
    }

    #[test]
    fn a_pod_reads_as_from_json() {
        let expected: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": "web-0", "namespace": "shop", "uid": "u-1", "resourceVersion": "42",
                "creationTimestamp": "2026-11-16T05:38:14Z", "labels": {"app": "web", "empty": ""},
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true}
                ]
            },
            "spec": {
                "volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}},
                    {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": ""}}}}
                ],
                "containers": [
                    {"name": "main", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}},
                    {"name": "side", "resources": {}}
                ],
                "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "nodeName": "node-1", "hostNetwork": false,
                "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "a"}], "priority": 0
            },
            "status": {
                "phase": "Running", "startTime": "2026-11-16T05:38:14Z",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-16T05:38:14Z"}]
            }
        }))
        .unwrap();
        assert_eq!(read_pod(&pod()).unwrap(), expected);
    }

    #[test]
    fn a_watch_comes_in_frames_that_may_be_cut_anywhere() {
        let object = [MAGIC, &part(1, &[part(1, b"v1"), part(2, b"Pod")].concat()), &part(2, &pod())].concat();
        let event = [part(1, b"ADDED"), part(2, &part(1, &object))].concat();
        let bytes = [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event, &[0, 0]].concat();
        for cut in 0..bytes.len() - 2 {
            assert_eq!(frame(&bytes[..cut]).unwrap(), None, "{cut}");
        }
        let (first, rest) = frame(&bytes).unwrap().unwrap();
        assert_eq!(rest, [0, 0]);
        let read = WireEvent::read(first).unwrap();
        assert_eq!((read.kind, read.object), ("ADDED", &pod()[..]));
        assert!(frame(&[0xff; 8]).is_err());
        assert!(WireEvent::read(b"{\"type\":\"ADDED\"}").is_err());
    }

    #[test]
    fn what_is_cut_short_or_scattered_is_an_error_and_no_panic() {
        let whole_pod = pod();
        for cut in 1..whole_pod.len() {
            // Some cuts fall between two fields; none may do harm.
            let _ = read_pod(&whole_pod[..cut]);
        }
        assert!(read_pod(&whole_pod[..whole_pod.len() - 1]).is_err());
        let scattered = part(2, &[part(2, &part(1, b"a")), part(10, b"n"), part(2, &part(1, b"b"))].concat());
        assert!(read_pod(&scattered).unwrap_err().contains("containers"));
    }

    #[test]
    fn a_refusal_says_its_code_and_why() {
        let status = [part(2, b"Failure"), part(3, b"too old"), vec![6 << 3, 0x9a, 0x03]].concat();
        assert_eq!(WireStatus::read(&status), WireStatus { code: 410, message: "too old".to_owned() });
        assert_eq!(WireStatus::read(b"\xff"), WireStatus::default());
    }
}
