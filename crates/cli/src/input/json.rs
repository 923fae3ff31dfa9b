//! JSON: objects, lists of objects, and several of them one after the other.

use super::{Sink, Trouble, with_kind};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;
use std::io::BufRead;

/// Reads to the end, or to the first place where it is no JSON: what comes after that cannot be told apart.
pub(super) fn read(name: &str, reader: impl BufRead, sink: &mut dyn Sink) -> anyhow::Result<()> {
    let mut json = serde_json::Deserializer::from_reader(reader);
    for document in 1.. {
        let mut found = Found { name, document, n_items: 0, has_begun: false, sink: &mut *sink };
        let Err(error) = (&mut found).deserialize(&mut json) else {
            continue;
        };
        if error.is_eof() && !found.has_begun {
            return Ok(());
        }
        if error.is_io() {
            return Err(error.into());
        }
        let what = match found.n_items {
            0 => format!("document {document}"),
            n_items => format!("document {document}, after item {n_items}"),
        };
        let cut = if error.is_eof() { "it ends in the middle: " } else { "" };
        sink.trouble(Trouble {
            source: format!("{name}:{}", error.line()),
            what,
            message: format!("{cut}{error}; what was found before is used"),
        });
        return Ok(());
    }
    Ok(())
}

/// One document on its way in.
struct Found<'a> {
    name: &'a str,
    document: usize,
    n_items: usize,
    has_begun: bool,
    sink: &'a mut dyn Sink,
}

impl Found<'_> {
    fn source(&self) -> String {
        match self.n_items {
            0 => format!("{}, document {}", self.name, self.document),
            n_items => format!("{}, item {n_items}", self.name),
        }
    }
}

impl<'de> DeserializeSeed<'de> for &mut Found<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Found<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object or a list of them")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.has_begun = true;
        while let Some(item) = items.next_element::<Value>()? {
            self.n_items += 1;
            let source = self.source();
            self.sink.object(&source, item);
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        self.has_begun = true;
        let mut object = Map::new();
        let mut kindless = Vec::new();
        let mut is_list = false;
        while let Some(key) = fields.next_key::<String>()? {
            if key == "items" {
                is_list = true;
                fields.next_value_seed(Items { found: self, object: &object, kindless: &mut kindless })?;
            } else {
                object.insert(key, fields.next_value()?);
            }
        }
        if !is_list {
            let source = self.source();
            self.sink.object(&source, Value::Object(object));
            return Ok(());
        }
        let text = |field: &str| object.get(field).and_then(Value::as_str);
        for (source, item) in kindless {
            self.sink.object(&source, with_kind(item, text("apiVersion"), text("kind")));
        }
        Ok(())
    }
}

/// The items of a list. kubectl gives each its kind; a raw list says it once, before or after them.
struct Items<'a, 'b> {
    found: &'a mut Found<'b>,
    object: &'a Map<String, Value>,
    kindless: &'a mut Vec<(String, Value)>,
}

impl<'de> DeserializeSeed<'de> for Items<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of Kubernetes objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let text = |field: &str| self.object.get(field).and_then(Value::as_str);
        let (api_version, list_kind) = (text("apiVersion"), text("kind"));
        while let Some(item) = items.next_element::<Value>()? {
            self.found.n_items += 1;
            let source = self.found.source();
            if item.get("kind").is_some() {
                self.found.sink.object(&source, item);
            } else if list_kind.is_some() {
                self.found.sink.object(&source, with_kind(item, api_version, list_kind));
            } else {
                self.kindless.push((source, item));
            }
        }
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}
