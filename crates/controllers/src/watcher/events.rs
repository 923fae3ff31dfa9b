//! What a watch or a page says, read from its bytes.

use super::Source;
use crate::guard::guarded;
use crate::wake::Wake;
use bytes::Bytes;
use kerf_mirror::{Kind, Object, ObjectKey, Unreadable, WireEvent, WireStatus};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::ops::Range;

/// Of the bookmark after everything that was there.
const IS_END: &str = "k8s.io/initial-events-end";

/// One event of a watch.
#[derive(Debug)]
pub(super) enum Event {
    /// An object is there, new or changed.
    There(Box<Object>),
    /// An object cannot be read. Its key, where it has at least a name.
    Unread {
        key: Option<ObjectKey>,
        wake: Wake,
        version: Option<String>,
    },
    Gone {
        key: ObjectKey,
        version: Option<String>,
    },
    /// Nothing changed up to a version; one of them says that everything that was there has been shown.
    Bookmark {
        is_end: bool,
        version: Option<String>,
    },
    /// The server says why it does not go on.
    Ended {
        code: u16,
        message: String,
    },
}

/// A line of JSON. Fails with words when it is no event. None for an empty one.
pub(super) fn of_line(source: &Source, line: &[u8]) -> Result<Option<Event>, String> {
    if line.is_empty() {
        return Ok(None);
    }
    // Nearly all lines are of this form; what is not, down to its last byte, is read with more care below.
    if let Some(text) = plainly_there(line)
        && let Ok(object) = parse(source.kind, text)
    {
        return Ok(Some(Event::There(Box::new(object))));
    }
    let words = |error: serde_json::Error| format!("the answer is not as expected: {error}");
    let event: JsonEvent<'_> = serde_json::from_slice(line).map_err(words)?;
    let text = event.object.get();
    let stub = || serde_json::from_str::<Stub<'_>>(text).map(|stub| stub.metadata).map_err(words);
    Ok(Some(match event.kind {
        "ERROR" => {
            let status: Status = serde_json::from_str(text).unwrap_or_default();
            Event::Ended { code: status.code, message: status.message }
        }
        "DELETED" => {
            let stub = stub()?;
            Event::Gone { key: key(source, &stub), version: stub.version() }
        }
        "BOOKMARK" => {
            let stub = stub()?;
            let is_end = stub.annotations.as_ref().is_some_and(|annotations| annotations.is_end == "true");
            Event::Bookmark { is_end, version: stub.version() }
        }
        _ => there(source, text),
    }))
}

/// An event in protocol buffers. Fails with words when it is not understood.
pub(super) fn of_wire(source: &Source, frame: &[u8]) -> Result<Event, String> {
    let event = WireEvent::read(frame)?;
    if event.kind == "ERROR" {
        let status = WireStatus::read(event.object);
        return Ok(Event::Ended { code: status.code, message: status.message });
    }
    let object = guarded(|| Object::parse_wire(source.kind, event.object)).map_err(|defect| defect.to_string())??;
    let metadata = object.metadata();
    Ok(match event.kind {
        "DELETED" => Event::Gone { key: object.key(), version: metadata.resource_version.clone() },
        "BOOKMARK" => {
            let annotations = metadata.annotations.as_ref();
            let is_end = annotations.and_then(|all| all.get(IS_END)).is_some_and(|said| said == "true");
            Event::Bookmark { is_end, version: metadata.resource_version.clone() }
        }
        _ => Event::There(Box::new(object)),
    })
}

/// An object of a list or of an event.
pub(super) fn there(source: &Source, text: &str) -> Event {
    let error = match parse(source.kind, text.as_bytes()) {
        Ok(object) => return Event::There(Box::new(object)),
        Err(error) => error,
    };
    let stub = serde_json::from_str::<Stub<'_>>(text).ok().map(|stub| stub.metadata);
    let key = stub.as_ref().map(|stub| key(source, stub));
    let what = match &key {
        Some(key) => key.to_string(),
        None => format!("{} without a name", source.resource.kind),
    };
    let (field, message) = match error {
        Unreadable::Field { field, message } => (field, message),
        Unreadable::NotAnObject { message } => (String::new(), message),
        Unreadable::OtherVersion { known } => ("apiVersion".to_owned(), format!("only {known} is read")),
        Unreadable::UnknownKind | Unreadable::NotNeeded => ("kind".to_owned(), "it is of another kind".to_owned()),
    };
    let version = stub.and_then(|stub| stub.version());
    Event::Unread { key: key.clone(), wake: Wake::Unreadable { key, what, field, message }, version }
}

/// One that makes its reader panic cannot be read.
fn parse(kind: Kind, text: &[u8]) -> Result<Object, Unreadable> {
    let read = guarded(|| Object::parse(kind, text));
    read.unwrap_or_else(|defect| Err(Unreadable::Field { field: String::new(), message: defect.to_string() }))
}

fn key(source: &Source, stub: &StubMeta<'_>) -> ObjectKey {
    let Source { kind, resource, .. } = source;
    let class_kind = source.class_kind();
    let namespace = if resource.is_namespaced { stub.namespace.as_deref().unwrap_or("default") } else { "" };
    ObjectKey { kind: *kind, class_kind, namespace: namespace.into(), name: (&*stub.name).into() }
}

/// A page of a list: its bytes, and where in them its objects are. They are read one by one.
#[derive(Debug)]
pub(super) struct Page {
    bytes: Bytes,
    items: std::vec::IntoIter<Range<usize>>,
    pub(super) version: String,
    /// Of the next page; empty for the last.
    pub(super) token: String,
}

impl Page {
    pub(super) fn read(bytes: Bytes) -> Result<Self, String> {
        let page: JsonPage<'_> =
            serde_json::from_slice(&bytes).map_err(|error| format!("the answer is not as expected: {error}"))?;
        let begin = bytes.as_ptr() as usize;
        let place = |item: &&RawValue| {
            let from = item.get().as_ptr() as usize - begin;
            from..from + item.get().len()
        };
        let items: Vec<Range<usize>> = page.items.iter().flatten().map(place).collect();
        let version = page.metadata.resource_version.unwrap_or_default().into_owned();
        let token = page.metadata.continue_.unwrap_or_default().into_owned();
        Ok(Self { items: items.into_iter(), version, token, bytes })
    }

    /// The next object's text.
    pub(super) fn next(&mut self) -> Option<&str> {
        let range = self.items.next()?;
        Some(std::str::from_utf8(&self.bytes[range]).expect("the parser has checked it"))
    }
}

/// A continue token is base64 for URLs on most servers, and opaque by contract.
pub fn escaped(token: &str) -> String {
    let mut out = String::with_capacity(token.len());
    for byte in token.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The object of an event that says nothing else than that it is there.
fn plainly_there(line: &[u8]) -> Option<&[u8]> {
    let starts: [&[u8]; 2] = [br#"{"type":"ADDED","object":"#, br#"{"type":"MODIFIED","object":"#];
    starts.iter().find_map(|start| line.strip_prefix(*start))?.strip_suffix(b"}")
}

#[derive(Deserialize)]
struct JsonPage<'a> {
    #[serde(default, borrow)]
    metadata: PageMeta<'a>,
    #[serde(default, borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
struct PageMeta<'a> {
    #[serde(default, borrow, rename = "continue")]
    continue_: Option<Cow<'a, str>>,
    #[serde(default, borrow, rename = "resourceVersion")]
    resource_version: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct JsonEvent<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Enough of an object to know which it is.
#[derive(Deserialize)]
struct Stub<'a> {
    #[serde(borrow)]
    metadata: StubMeta<'a>,
}

#[derive(Deserialize)]
struct StubMeta<'a> {
    /// A bookmark has none.
    #[serde(default, borrow)]
    name: Cow<'a, str>,
    #[serde(default, borrow)]
    namespace: Option<Cow<'a, str>>,
    #[serde(default, borrow, rename = "resourceVersion")]
    resource_version: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    annotations: Option<StubAnnotations<'a>>,
}

impl StubMeta<'_> {
    fn version(&self) -> Option<String> {
        self.resource_version.as_deref().map(str::to_owned)
    }
}

#[derive(Deserialize)]
struct StubAnnotations<'a> {
    /// On the bookmark after the last of what was there.
    #[serde(default, borrow, rename = "k8s.io/initial-events-end")]
    is_end: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    code: u16,
    message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continue_token_survives_the_query() {
        assert_eq!(escaped("eyJ2Ijo_a-b.c~=+/"), "eyJ2Ijo_a-b.c~%3D%2B%2F");
    }

    #[test]
    fn a_page_is_read_without_its_items() {
        let text = r#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"x"},"items":[{"a":1}, {"b":2}]}"#;
        let mut page = Page::read(Bytes::from(text)).unwrap();
        assert_eq!((page.version.as_str(), page.token.as_str()), ("7", "x"));
        assert_eq!(page.next(), Some(r#"{"a":1}"#));
        assert_eq!(page.next(), Some(r#"{"b":2}"#));
        assert_eq!(page.next(), None);
        assert_eq!(Page::read(Bytes::from(r#"{"metadata":{},"items":null}"#)).unwrap().next(), None);
        assert!(Page::read(Bytes::from("<html>")).is_err());
    }
}
