//! YAML as the real server takes it: turned into JSON first.

use std::borrow::Cow;

use serde_norway::Value;

use super::document::Document;

/// JSON is YAML too, and by far the more common: it is tried first.
pub(super) fn parse(bytes: &[u8]) -> Result<Document<'_>, String> {
    if let Ok(document) = Document::parse(bytes) {
        return Ok(document);
    }
    let value: Value = serde_norway::from_slice(bytes).map_err(|error| format!("yaml: {error}"))?;
    from_yaml(value, 0)
}

fn from_yaml(value: Value, depth: usize) -> Result<Document<'static>, String> {
    if depth > 100 {
        return Err("yaml: exceeded max depth".to_owned());
    }
    Ok(match value {
        Value::Null => Document::Null,
        Value::Bool(yes) => Document::Bool(yes),
        Value::Number(number) => Document::Number(Cow::Owned(number.to_string())),
        Value::String(text) => Document::String(Cow::Owned(text)),
        Value::Sequence(items) => {
            Document::List(items.into_iter().map(|item| from_yaml(item, depth + 1)).collect::<Result<_, _>>()?)
        }
        Value::Mapping(fields) => {
            let fields = fields.into_iter().map(|(key, value)| {
                let key = match key {
                    Value::String(text) => text,
                    Value::Bool(yes) => yes.to_string(),
                    Value::Number(number) => number.to_string(),
                    _ => return Err("error converting YAML to JSON: unsupported map key".to_owned()),
                };
                Ok((Cow::Owned(key), from_yaml(value, depth + 1)?))
            });
            Document::Object(fields.collect::<Result<_, _>>()?)
        }
        Value::Tagged(tagged) => from_yaml(tagged.value, depth + 1)?,
    })
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
    }
}
