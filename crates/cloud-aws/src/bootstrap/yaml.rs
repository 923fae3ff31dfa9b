//! YAML for readers of any version of it: keys in alphabetical order, and quotes around every text that some reader could take
//! for a number, a date or a yes.

use serde_json::Value;

/// A whole document, ending with a newline.
pub(super) fn write(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => entries(&mut out, value, 0),
        Value::Array(list) if !list.is_empty() => entries(&mut out, value, 0),
        _ => {
            out.push_str(&scalar(value));
            out.push('\n');
        }
    }
    out
}

/// The lines of a map or list that is not empty.
fn entries(out: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) => {
            let mut sorted: Vec<(&String, &Value)> = map.iter().collect();
            sorted.sort_by_key(|(key, _)| *key);
            for (key, value) in sorted {
                out.push_str(&indent);
                out.push_str(&text(key));
                out.push(':');
                match value {
                    Value::Object(inner) if !inner.is_empty() => {
                        out.push('\n');
                        entries(out, value, depth + 1);
                    }
                    // A list stands under its key without further indent, as is usual in Kubernetes.
                    Value::Array(inner) if !inner.is_empty() => {
                        out.push('\n');
                        entries(out, value, depth);
                    }
                    _ => {
                        out.push(' ');
                        out.push_str(&scalar(value));
                        out.push('\n');
                    }
                }
            }
        }
        Value::Array(list) => {
            for item in list {
                let mut inner = String::new();
                if is_nested(item) {
                    entries(&mut inner, item, depth + 1);
                } else {
                    inner = format!("{indent}  {}\n", scalar(item));
                }
                // The dash takes the place of the item's own indent.
                out.push_str(&indent);
                out.push_str("- ");
                out.push_str(inner.get(indent.len() + 2..).unwrap_or_default());
            }
        }
        _ => {}
    }
}

fn is_nested(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(value) => text(value),
        // The rest of JSON is YAML: numbers, true, null, {} and [].
        other => other.to_string(),
    }
}

fn text(value: &str) -> String {
    if is_plain(value) { value.to_owned() } else { Value::from(value).to_string() }
}

/// Whether a text means itself without quotes, whoever reads it.
fn is_plain(value: &str) -> bool {
    const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let Some(first) = value.chars().next() else { return false };
    let is_word = WORDS.iter().any(|word| value.eq_ignore_ascii_case(word));
    let is_harmless = value.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:=%,+\"<>".contains(c));
    let begins_well = match first {
        '-' => value.starts_with("--") && value != "---",
        '/' => true,
        // Amounts and addresses; what could be a number, a date or a time of day gets quotes.
        '0'..='9' => {
            value.replace(['_', ','], "").parse::<f64>().is_err()
                && !value.contains([':', '-'])
                && !value.starts_with("0")
        }
        _ => first.is_ascii_alphabetic() && value.parse::<f64>().is_err(),
    };
    is_harmless && begins_well && !is_word && !value.ends_with(':')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_sorted_and_lists_stand_under_them() {
        let value = json!({"b": {"z": [], "x": {}}, "a": [{"k": 1, "e": "f"}, "two", [1, 2]], "c": null});
        assert_eq!(write(&value), "a:\n- e: f\n  k: 1\n- two\n- - 1\n  - 2\nb:\n  x: {}\n  z: []\nc: null\n");
    }

    #[test]
    fn what_could_be_read_as_something_else_is_quoted() {
        for plain in
            ["100m", "8Gi", "5%", "10.0.100.10", "https://a.b", "karpenter.sh/x", "--node-labels=\"a=b\"", "1m30s"]
        {
            assert_eq!(text(plain), plain);
        }
        for risky in [
            "",
            "true",
            "No",
            "on",
            "12",
            "1e3",
            "0x1f",
            "07",
            "1_000",
            "2001-01-01",
            "12:30",
            "~",
            "- a",
            "a: b",
            "nan",
            "é",
        ] {
            assert_ne!(text(risky), risky);
        }
    }

    #[test]
    fn a_reader_gets_back_what_was_written() {
        let value =
            json!({"on": "yes", "x y": ["a\nb", "#", "", "0x10", 1.5, -3], "z": {"deep": [{"a": [[]], "b": {}}]}});
        let back: Value = serde_norway::from_str(&write(&value)).unwrap();
        assert_eq!(back, value);
    }
}
