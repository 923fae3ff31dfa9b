//! Objects as YAML, quoted so that readers of the older YAML agree: there `yes` is no text.

use serde_json::Value;

/// A document for a value.
pub(super) fn write(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => entries(&mut text, value, 0),
        Value::Array(list) if !list.is_empty() => entries(&mut text, value, 0),
        plain => {
            text.push_str(&scalar(plain));
            text.push('\n');
        }
    }
    text
}

/// The entries of a map or a list, each on lines of its own.
fn entries(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                indent(text, depth);
                text.push_str(&string(key));
                text.push(':');
                after_key(text, value, depth);
            }
        }
        Value::Array(list) => {
            for item in list {
                indent(text, depth);
                text.push('-');
                match item {
                    Value::Object(map) if !map.is_empty() => {
                        // The first entry stands beside the dash.
                        let mut inner = String::new();
                        entries(&mut inner, item, depth + 1);
                        text.push(' ');
                        text.push_str(inner.trim_start());
                    }
                    Value::Array(inner) if !inner.is_empty() => {
                        let mut lines = String::new();
                        entries(&mut lines, item, depth + 1);
                        text.push(' ');
                        text.push_str(lines.trim_start());
                    }
                    plain => {
                        text.push(' ');
                        text.push_str(&scalar(plain));
                        text.push('\n');
                    }
                }
            }
        }
        _ => {}
    }
}

fn after_key(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            text.push('\n');
            entries(text, value, depth + 1);
        }
        // A list stands no deeper than its key.
        Value::Array(list) if !list.is_empty() => {
            text.push('\n');
            entries(text, value, depth);
        }
        plain => {
            text.push(' ');
            text.push_str(&scalar(plain));
            text.push('\n');
        }
    }
}

fn indent(text: &mut String, depth: usize) {
    for _ in 0..depth {
        text.push_str("  ");
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => string(text),
        Value::Object(_) => "{}".to_owned(),
        Value::Array(_) => "[]".to_owned(),
        other => other.to_string(),
    }
}

/// Plain where nobody can take it for something else, quoted as JSON otherwise: YAML reads JSON's strings.
fn string(text: &str) -> String {
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/'));
    let begins_like_text = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'/');
    let lower = text.to_ascii_lowercase();
    let means_something =
        matches!(lower.as_str(), "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null" | "nan" | "inf");
    if is_word && begins_like_text && !means_something { text.to_owned() } else { Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for value in [
            json!({ "a": { "b": [1, "x", { "c": null, "d": [] }], "e": "yes" }, "f.g/h": "2026-01-01T00:00:00Z" }),
            json!({ "text": "two\nlines: and \"more\" #", "empty": {}, "number": "12", "nested": [[1, 2], [{ "a": [3] }]] }),
            json!({ "-": "-", " ": " ", "~": "~", "é": "ü" }),
            json!([]),
            json!("plain"),
        ] {
            let text = write(&value);
            let read: Value = serde_norway::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(read, value, "{text}");
        }
        assert_eq!(write(&json!({ "a": "yes", "b": ["c"] })), "a: \"yes\"\nb:\n- c\n");
    }
}
