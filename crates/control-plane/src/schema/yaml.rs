//! YAML as the real server takes it: turned into JSON first.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::document::Document;

/// JSON is YAML too, and by far the more common: it is tried first.
pub(super) fn parse(bytes: &[u8]) -> Result<Document<'_>, String> {
    if let Ok(document) = Document::parse(bytes) {
        return Ok(document);
    }
    serde_norway::from_slice::<Document<'static>>(bytes).map_err(|error| format!("yaml: {error}"))
}

/// Keys that are there twice are kept: who is strict wants to hear of them.
impl<'de> Deserialize<'de> for Document<'static> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Document<'static>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what JSON can hold")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Document::Null)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Document::Null)
    }

    fn visit_bool<E>(self, yes: bool) -> Result<Self::Value, E> {
        Ok(Document::Bool(yes))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Document::Number(Cow::Owned(number.to_string())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Document::Number(Cow::Owned(number.to_string())))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        if !number.is_finite() {
            return Err(E::custom(format!("{number} is no JSON number")));
        }
        Ok(Document::Number(Cow::Owned(number.to_string())))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Document::String(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Document::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some((key, value)) = entries.next_entry::<Document<'static>, Document<'static>>()? {
            let key = match key {
                Document::String(text) | Document::Number(text) => text,
                Document::Bool(yes) => Cow::Owned(yes.to_string()),
                _ => return Err(A::Error::custom("unsupported map key")),
            };
            fields.push((key, value));
        }
        Ok(Document::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::plain;
    use super::*;

    #[test]
    fn yaml_becomes_json() {
        let document = parse(b"a: 1\nb: [x, true, 0.5]\n1: y\n").unwrap();
        let value = plain(document, &mut String::new(), &mut Vec::new());
        assert_eq!(value, serde_json::json!({"a": 1, "b": ["x", true, 0.5], "1": "y"}));
        assert!(parse(b"a: [").is_err());
        let mut repeated = Vec::new();
        let value = plain(parse(b"a:\n  b: 1\n  b: 2\n").unwrap(), &mut String::new(), &mut repeated);
        assert_eq!((value, repeated), (serde_json::json!({"a": {"b": 2}}), vec!["a.b".to_owned()]));
    }
}
