//! The objects, in the order and the shape that people write them in.

use super::arguments::Language;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;

pub(super) fn write(out: &mut impl Write, objects: Vec<Value>, language: Language) -> anyhow::Result<()> {
    match language {
        Language::Yaml => {
            for object in &objects {
                write!(out, "---\n{}", serde_norway::to_string(&sorted(object))?)?;
            }
        }
        // What kubectl apply reads.
        Language::Json => {
            serde_json::to_writer_pretty(&mut *out, &json!({"apiVersion": "v1", "kind": "List", "items": objects}))?;
            writeln!(out)?;
        }
    }
    Ok(())
}

/// With keys in order, whatever order `serde_json` was built to keep.
fn sorted(value: &Value) -> serde_norway::Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<&String, &Value> = fields.iter().collect();
            serde_norway::Value::Mapping(
                fields.into_iter().map(|(name, field)| (name.as_str().into(), sorted(field))).collect(),
            )
        }
        Value::Array(items) => serde_norway::Value::Sequence(items.iter().map(sorted).collect()),
        Value::String(text) => text.as_str().into(),
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => whole.into(),
            None => number.as_f64().unwrap_or(f64::NAN).into(),
        },
        Value::Null => serde_norway::Value::Null,
    }
}
