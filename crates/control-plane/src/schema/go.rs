//! Small habits of Go that clients can see: how it quotes text and what it calls JSON values.

use serde_json::Value;

/// `strconv.Quote`.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            other => escape(other, &mut out),
        }
    }
    out.push('"');
    out
}

/// How Go's JSON scanner shows a character that it did not expect.
pub(super) fn quote_char(letter: char) -> String {
    let mut out = String::from("'");
    match letter {
        '\'' => out.push_str("\\'"),
        '"' => out.push('"'),
        other => escape(other, &mut out),
    }
    out.push('\'');
    out
}

fn escape(letter: char, out: &mut String) {
    match letter {
        '\\' => out.push_str("\\\\"),
        '\u{7}' => out.push_str("\\a"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{b}' => out.push_str("\\v"),
        control if (control as u32) < 0x20 || control == '\u{7f}' => {
            out.push_str(&format!("\\x{:02x}", control as u32));
        }
        control if control.is_control() => out.push_str(&format!("\\u{:04x}", control as u32)),
        plain => out.push(plain),
    }
}

/// `fmt`'s `%v` of a tree: `map[a:1 b:[x y]]`.
pub(crate) fn show(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let shown: Vec<String> = fields.iter().map(|(key, value)| format!("{key}:{}", show(value))).collect();
            format!("map[{}]", shown.join(" "))
        }
        other => other.to_string(),
    }
}

/// `fmt`'s `%#v` of a tree.
pub(crate) fn show_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(show_syntax).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let shown: Vec<String> =
                fields.iter().map(|(key, value)| format!("{}:{}", quote(key), show_syntax(value))).collect();
            format!("map[string]interface {{}}{{{}}}", shown.join(", "))
        }
        other => other.to_string(),
    }
}

/// Go's JSON encoder keeps its output harmless in a web page.
pub(crate) fn escape_html(json: &str) -> String {
    json.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}

/// What Go holds a JSON value in.
pub(crate) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_as_go_does() {
        assert_eq!(quote("a\"b\\\n\u{1}é"), "\"a\\\"b\\\\\\n\\x01é\"");
        assert_eq!(quote_char('\''), "'\\''");
        assert_eq!(quote_char('"'), "'\"'");
        assert_eq!(quote_char('}'), "'}'");
    }

    #[test]
    fn trees_are_shown_as_go_does() {
        assert_eq!(show(&serde_json::json!({"b": [1, "x"], "a": {"c": null}})), "map[a:map[c:<nil>] b:[1 x]]");
    }
}
